// Where the model of a recorded run is now. A run keeps the model's absolute path (run.model), its
// path from the session's folder (environment row model.from_session) and the hash of its contents.
// Looked at, in this order:
//   1. the path that the user gives: then nothing else;
//   2. run.model; a relative one, as older sessions have, from the current folder;
//   3. model.from_session, or a relative run.model, from the session's folder;
//   4. a file of that name beside the session.
// The first regular file with the hash is the model. Without one, the first of them that is a file is told,
// with its other contents.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "sessions/store.h"

namespace gradloom {

struct FoundModel {
  enum class State : std::uint8_t {
    same,   // as the run had it, or the run recorded no hash
    other,  // another file is at its place
    none,
  };
  State state = State::none;
  std::string path;                // absolute; none: as recorded
  std::vector<std::string> tried;  // none: where it is not
};
FoundModel find_model(const RunRecord& run, const std::string& session, const std::string& given_path = "");
// What to tell of it, as one line without the line's end; empty when it is the same.
std::string model_note(const FoundModel& found, const RunRecord& run);

// Without "." and "..", where that leads to the same place; behind a folder that is a symbolic link ".." is not the folder around the
// link, and the path is that of what it leads to.
std::string normal_path(const std::filesystem::path& path);
// A path as sessions keep it: absolute and normal; where there is no current folder, as it is.
std::string absolute_path(const std::string& path);

// What a model is called: the file's stem, or its folder's name for "model.onnx".
std::string model_label(const std::string& path);

// For writing: the row of the environment.
constexpr const char* kModelFromSession = "model.from_session";
std::string model_from_session(const std::string& model, const std::string& session);

}  // namespace gradloom
