#include "app/desktop/sample.h"

#include <filesystem>

#include "app/desktop/suggest.h"
#include "engine/base/plugins.h"

namespace gradloom {

std::optional<Recipe> sample_job(const std::string& program_folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder =
      program_folder.empty() ? fs::path(program_path()).parent_path() : fs::path(program_folder);
  for (const char* share : {"share", "../share"}) {
    const fs::path at = (folder / share / "gradloom/samples/bert-tiny").lexically_normal();
    if (!fs::is_regular_file(at / "model.onnx", error)) continue;
    Recipe job;
    set_pipeline(job, default_pipeline());
    job.model = (at / "model.onnx").string();
    job.dims = {{"batch", 8}};  // as its data has it
    job.loss = "loss";
    job.data = "npz:" + (at / "batches.npz").string();
    job.optimizer = default_optimizer("adamw");
    job.steps = kFirstSteps;
    return job;
  }
  return std::nullopt;
}

}  // namespace gradloom
