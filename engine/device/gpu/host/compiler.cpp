#include "engine/device/gpu/host/compiler.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "kernels/gpu/host.h"

namespace gradloom::kernels::gpu::host {
namespace {

namespace fs = std::filesystem;

// A folder that goes away.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((fs::temp_directory_path(error_) / "gradloom-XXXXXX").string()) {
    if (error_ || mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~TemporaryFolder() {
    if (!path_.empty()) fs::remove_all(path_, error_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::error_code error_;
  std::string path_;
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The compiler and its options; baked in: GRADLOOM_HOST_CXX_DEFAULT,
// GRADLOOM_HOST_CXX_FLAGS (sanitizers of the build).
std::vector<std::string> compiler_command() {
  const char* chosen = std::getenv("GRADLOOM_HOST_CXX");
  std::vector<std::string> command{chosen != nullptr && *chosen != 0 ? chosen : GRADLOOM_HOST_CXX_DEFAULT};
  std::istringstream flags(GRADLOOM_HOST_CXX_FLAGS);
  for (std::string flag; flags >> flag;) command.push_back(flag);
  for (const char* flag : {"-std=c++20", "-O1", "-fwrapv", "-shared", "-fPIC", "-fvisibility=hidden", "-w",
                           "-DGRADLOOM_GPU_HOST", "-DGRADLOOM_GPU_MODULE"})
    command.emplace_back(flag);
  command.push_back("-DGRADLOOM_GPU_WARP=" + std::to_string(kWarp));
  return command;
}

// Runs a command without a shell; its outputs go to a file. Whether it exits with 0.
bool run_command(const std::vector<std::string>& command, const std::string& output_path) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  int status = 0;
  return failed == 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::string compile_program(const std::string& source, std::string* error) {
  const TemporaryFolder folder;
  if (folder.path().empty()) {
    *error = "no temporary folder can be made";
    return "";
  }
  const std::string source_path = folder.path() + "/program.cpp",
                    library_path = folder.path() + "/program.so";
  std::ofstream(source_path, std::ios::binary) << source;
  std::vector<std::string> command = compiler_command();
  const std::string compiler = command.front();
  command.insert(command.end(), {source_path, "-o", library_path});
  if (!run_command(command, folder.path() + "/output")) {
    *error = compiler + ": " + contents(folder.path() + "/output");
    return "";
  }
  return contents(library_path);
}

std::string program_compiler() {
  std::string text;
  for (const std::string& word : compiler_command()) text += word + ' ';
  return text;
}

}  // namespace gradloom::kernels::gpu::host
