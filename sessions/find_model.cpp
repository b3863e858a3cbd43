// The search for a recorded run's model; the order is in find_model.h.
#include "sessions/find_model.h"

#include <algorithm>
#include <filesystem>

#include "engine/base/hash.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {
namespace fs = std::filesystem;

constexpr std::size_t kLongestPath = 4096;
constexpr std::uintmax_t kLargestModel = std::uintmax_t{2} << 30;  // as protobuf has it

std::string hash_of(const std::string& path) {
  const Result<std::string> hash = hash_file_hex(path);
  return hash.ok() ? *hash : "";
}

fs::path session_folder(const std::string& session) {
  std::error_code failed;
  const fs::path full = fs::weakly_canonical(session, failed);
  return (failed ? fs::path(session) : full).parent_path();
}

// Names from a file may hold anything; those that no file can have lead nowhere.
void add(std::vector<std::string>& paths, const fs::path& folder, const std::string& name) {
  if (name.empty() || name.size() > kLongestPath || name.find('\0') != std::string::npos) return;
  const std::string path = absolute_path((folder / name).string());
  if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
}

}  // namespace

std::string normal_path(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  std::error_code failed;
  const fs::path there = fs::weakly_canonical(path, failed);
  if (failed || there == fs::weakly_canonical(normal, failed) || failed) return normal.string();
  return there.string();
}

std::string absolute_path(const std::string& path) {
  std::error_code failed;
  const fs::path full = fs::absolute(path, failed);
  return failed ? path : normal_path(full);
}

FoundModel find_model(const RunRecord& run, const std::string& session, const std::string& given_path) {
  const fs::path folder = session_folder(session);
  FoundModel found;
  std::vector<std::string>& paths = found.tried;
  const std::string& recorded = run.summary.model;
  if (!given_path.empty()) {
    add(paths, "", given_path);
  } else {
    add(paths, "", recorded);
    const auto row = run.environment.find(kModelFromSession);
    add(paths, folder, row != run.environment.end() ? row->second : recorded);
    add(paths, folder, fs::path(recorded).filename().string());
  }
  found.path = given_path.empty() ? recorded : given_path;
  for (const std::string& path : paths) {
    std::error_code failed;
    if (!fs::is_regular_file(path, failed)) continue;
    const std::uintmax_t bytes = fs::file_size(path, failed);
    if (failed || bytes == 0) continue;  // also what /proc offers
    const bool same =
        run.summary.model_hash.empty() || (bytes <= kLargestModel && hash_of(path) == run.summary.model_hash);
    if (same) return {FoundModel::State::same, path, {}};
    if (found.state == FoundModel::State::none) found.state = FoundModel::State::other, found.path = path;
  }
  if (found.state != FoundModel::State::none) paths.clear();
  return found;
}

std::string model_note(const FoundModel& found, const RunRecord& run) {
  if (found.state == FoundModel::State::same) return "";
  if (found.state == FoundModel::State::other)
    return "the model at " + escaped(found.path) + " has other contents than that of run " +
           std::to_string(run.summary.id);
  std::string text;
  for (const std::string& path : found.tried) text += (text.empty() ? "" : ", ") + escaped(path);
  return "the model of run " + std::to_string(run.summary.id) + " is not there" +
         (text.empty() ? " (no path is recorded)" : " (looked at " + text + ")");
}

std::string model_label(const std::string& path) {
  const fs::path p(path);
  const std::string stem = p.stem().string();
  const std::string folder = p.parent_path().filename().string();
  return stem == "model" && !folder.empty() && folder != "." && folder != ".." ? folder : stem;
}

std::string model_from_session(const std::string& model, const std::string& session) {
  std::error_code failed;
  const fs::path to = fs::weakly_canonical(absolute_path(model), failed);
  if (failed) return "";
  return to.lexically_relative(session_folder(session)).string();
}

}  // namespace gradloom
