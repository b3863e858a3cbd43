#include "app/graph_file.h"

#include <filesystem>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "viz/report/graph_picture.h"
#include "viz/report/model_explorer.h"

namespace gradloom {
namespace {

constexpr const char *kExplorer = ".json", *kPicture = ".svg";

// "gpt-char/model.onnx": where it lies is this machine's.
std::string short_name(const Prepared& prepared) {
  const std::filesystem::path path(prepared.recipe.model);
  return (path.parent_path().filename() / path.filename()).string();
}

// Of the whole graph, for who opens the file without knowing where it came from.
std::map<std::string, std::string> facts(const Prepared& prepared, const GraphModel& model,
                                         const RunRecord* run) {
  std::map<std::string, std::string> made{
      {"model", short_name(prepared)},
      {"plan", prepared.compiled.plan.hash},
      {"passes", prepared.options.pipeline.text()},
      {"kernels per step", std::to_string(prepared.compiled.plan.steps.size())}};
  if (run == nullptr || !model.timed) return made;
  made["times of"] =
      "run " + std::to_string(run->summary.id) + (model.other_plan.empty() ? "" : ", which had another plan");
  made["device"] = run->summary.device;
  made["kernels' time per step"] = model.time_text(model.total_time_ns);
  return made;
}

}  // namespace

bool is_viewers_graph(const std::string& path) {
  return path.ends_with(kExplorer) || path.ends_with(kPicture);
}

Result<WrittenGraph> write_viewers_graph(const Prepared& prepared, const GraphFileOptions& options,
                                         const std::string& path, std::stop_token stop) {
  const Compiled& compiled = prepared.compiled;
  const auto model = std::make_shared<GraphModel>(build_graph_model(compiled.train.graph, &compiled.plan));
  if (options.run != nullptr) {
    const RunSummary& run = options.run->summary;
    apply_times(*model, options.run->kernels,
                run.plan_hash == compiled.plan.hash ? "" : "run " + std::to_string(run.id));
  }
  const WrittenGraph written{model->boxes.size(), model->timed};
  if (path.ends_with(kExplorer)) {
    TRY(atomic_write_file(path, model_explorer_json(*model, facts(prepared, *model, options.run))));
    return written;
  }
  const auto scene = build_scene(model, model->default_collapsed(options.boxes), stop);
  if (!scene) return Error{Errc::interrupted, "interrupted"};
  TRY(atomic_write_file(path, graph_picture(*scene, short_name(prepared))));
  return written;
}

}  // namespace gradloom
