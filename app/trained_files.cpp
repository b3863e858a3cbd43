#include "app/trained_files.h"

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <system_error>

#include "app/parameter_file.h"
#include "engine/onnx/export.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/base/npz.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> other_folders(const TrainedFiles& files) {
  std::vector<fs::path> folders;
  if (!files.session.empty()) folders.push_back(fs::path(files.session).parent_path());
  const char* temporary = std::getenv("TMPDIR");
  folders.emplace_back(temporary != nullptr && *temporary != '\0' ? temporary : "/tmp");
  return folders;
}

// The file's own name in the folder, or "p-1.npz", "p-2.npz" ... where something has it.
fs::path free_name(const fs::path& folder, const fs::path& asked) {
  constexpr int kMostTried = 1000;
  std::error_code ignored;
  fs::path path = folder / asked.filename();
  for (int i = 1; fs::exists(path, ignored) && i < kMostTried; ++i)
    path = folder / (asked.stem().string() + "-" + std::to_string(i) + asked.extension().string());
  return path;
}

using WriteTo = std::function<Status(const std::string& path)>;

// Tries the folders in order after `problem`.
SavedFile save_elsewhere(const std::string& asked, const std::string& problem, const TrainedFiles& files,
                         const WriteTo& write) {
  SavedFile saved{asked, "", problem};
  for (const fs::path& folder : other_folders(files)) {
    std::error_code failed;
    const bool same =
        fs::equivalent(folder.empty() ? "." : folder,
                       fs::path(asked).has_parent_path() ? fs::path(asked).parent_path() : ".", failed);
    if (same && !failed) continue;
    const std::string path = free_name(folder, asked).string();
    const Status written = write(path);
    if (written.ok()) {
      saved.path = path;
      return saved;
    }
    saved.problem += "; " + written.error().message;
  }
  return saved;
}

SavedFile save(const std::string& asked, const TrainedFiles& files, const WriteTo& write) {
  const Status written = write(asked);
  if (written.ok()) return {asked, asked, ""};
  return save_elsewhere(asked, written.error().message, files, write);
}

SavedFile save_model(const TrainedFiles& files, const Job& job,
                     const std::map<std::string, Tensor>& parameters, const WriteTo& write_params) {
  const SavedFile saved = save(files.onnx, files, [&](const std::string& path) {
    return export_onnx(job.recipe().model, parameters, path, job.model().tied_copies);
  });
  if (!saved.path.empty() || !files.params.empty()) return saved;
  SavedFile params = save(files.onnx + ".npz", files, write_params);
  return {files.onnx, params.path, saved.problem + (params.problem.empty() ? "" : "; " + params.problem)};
}

}  // namespace

Status check_places(const TrainedFiles& files) {
  for (const std::string* path : {&files.params, &files.onnx}) {
    if (path->empty()) continue;
    if (*path == files.session)
      return Error{Errc::usage, "'" + escaped(*path) + "' is to hold the session: give another name"};
    TRY(check_writable(*path));
  }
  if (!files.params.empty() && files.params == files.onnx)
    return Error{Errc::usage,
                 "--save-params and --export-onnx name the same file '" + escaped(files.onnx) + "'"};
  return {};
}

Status check_sizes(const TrainedFiles& files, const Graph& graph) {
  std::size_t bytes = 0;
  for (const ValueId id : graph.parameters) bytes += byte_size(graph.values[id].type);
  const auto too_large = [&](const std::string& path, std::int64_t most, const char* what) -> Status {
    if (path.empty() || bytes <= static_cast<std::size_t>(most)) return {};
    return Error{Errc::limit, "'" + escaped(path) + "' cannot hold " +
                                  bytes_text(static_cast<double>(bytes)) + " of parameters: " + what +
                                  " end at " + bytes_text(static_cast<double>(most))};
  };
  if (!is_safetensors_name(files.params)) TRY(too_large(files.params, kMostNpzBytes, ".npz files"));
  return too_large(files.onnx, Limits().file_bytes, "ONNX files");
}

std::vector<SavedFile> save_trained(const TrainedFiles& files, const Job& job,
                                    const std::map<std::string, Tensor>& parameters) {
  const WriteTo write_params = [&](const std::string& path) {
    return is_safetensors_name(path) ? write_safetensors(path, with_buffers(parameters, job.model()))
                                     : write_npz(path, parameters);
  };
  std::vector<SavedFile> saved;
  if (!files.params.empty()) saved.push_back(save(files.params, files, write_params));
  if (!files.onnx.empty()) saved.push_back(save_model(files, job, parameters, write_params));
  return saved;
}

Status saved_where_asked(const std::vector<SavedFile>& saved) {
  std::string text;
  for (const SavedFile& file : saved) {
    if (file.problem.empty()) continue;
    text += (text.empty() ? "" : "; ") + file.problem +
            (file.path.empty() ? std::string("; the parameters are lost")
                               : "; the parameters are in " + escaped(file.path));
  }
  return text.empty() ? Status() : Error{Errc::io, text};
}

}  // namespace gradloom
