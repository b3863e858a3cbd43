#include "engine/device/gpu/runtime/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace gradloom::kernels::gpu {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

void add_matches(const std::string& pattern, bool newest_first, std::vector<std::string>& folders) {
  glob_t found = {};
  if (glob(pattern.c_str(), GLOB_ONLYDIR, nullptr, &found) == 0) {
    std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    if (newest_first) std::reverse(paths.begin(), paths.end());
    for (const std::string& path : paths) {
      if (std::find(folders.begin(), folders.end(), path) == folders.end()) folders.push_back(path);
    }
  }
  globfree(&found);
}

// Installation prefixes of Python: active environments, what `python3` on PATH belongs to,
// the user's, the system's.
std::vector<std::string> python_prefixes() {
  std::vector<std::string> prefixes;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (!variable(name).empty()) prefixes.push_back(variable(name));
  }
  const std::string path = variable("PATH");
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = path.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t slash = folder.rfind('/');
    if (slash == std::string::npos || slash == 0 || access((folder + "/python3").c_str(), X_OK) != 0)
      continue;
    prefixes.push_back(folder.substr(0, slash));
  }
  if (!variable("HOME").empty()) prefixes.push_back(variable("HOME") + "/.local");
  prefixes.insert(prefixes.end(), {"/usr/local", "/usr"});
  return prefixes;
}

}  // namespace

std::vector<std::string> toolkit_folders() {
  std::vector<std::string> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH", "ROCM_PATH"}) {
    if (variable(name).empty()) continue;
    for (const char* part : {"/lib64", "/lib", "/targets/x86_64-linux/lib", "/extras/CUPTI/lib64"})
      add_matches(variable(name) + part, false, folders);
  }
  if (!variable("CONDA_PREFIX").empty())
    for (const char* part : {"/targets/x86_64-linux/lib", "/lib"})
      add_matches(variable("CONDA_PREFIX") + part, false, folders);
  // NVIDIA's packages, with what the plain ones of distributions lack (/usr/lib is the loader's own); Arch, Debian.
  for (const char* pattern :
       {"/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda-*/lib64",
        "/usr/local/cuda-*/targets/x86_64-linux/lib", "/usr/local/cuda-*/extras/CUPTI/lib64",
        "/opt/cuda/lib64", "/opt/cuda/extras/CUPTI/lib64", "/usr/lib/cuda/lib64", "/opt/rocm/lib",
        "/opt/rocm-*/lib"})
    add_matches(pattern, true, folders);
  return folders;
}

std::vector<std::string> wheel_folders() {
  std::vector<std::string> folders;
  for (const std::string& prefix : python_prefixes()) {
    for (const char* packages :
         {"/lib/python3*/site-packages", "/lib/python3*/dist-packages", "/lib/python3/dist-packages"}) {
      for (const char* part : {"/nvidia/cu13/lib", "/nvidia/*/lib"})
        add_matches(prefix + packages + part, true, folders);
    }
  }
  return folders;
}

bool switched(const char* name, bool otherwise) {
  const std::string value = variable(name);
  return value.empty() ? otherwise : value != "0";
}

Library::Library(std::initializer_list<const char*> names) {
  std::string refused, listed;
  const auto try_open = [&](const std::string& file) {
    if (file.find('/') != std::string::npos && access(file.c_str(), R_OK) != 0) return false;
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) {
      const char* message = dlerror();
      if (file.find('/') != std::string::npos && message != nullptr) refused = message;
    }
    return handle_ != nullptr;
  };
  const auto try_folders = [&](const std::vector<std::string>& folders) {
    for (const std::string& folder : folders) {
      for (const char* name : names) {
        if (handle_ == nullptr && try_open(folder + "/" + name)) path_ = folder + "/" + name;
      }
    }
  };
  try_folders(toolkit_folders());
  for (const char* name : names) {
    listed += (listed.empty() ? "" : ", ") + std::string(name);
    if (handle_ == nullptr && try_open(name)) path_ = name;
  }
  if (handle_ == nullptr) try_folders(wheel_folders());
  if (handle_ == nullptr)
    error_ = "none of " + listed + " found" + (refused.empty() ? "" : " (" + refused + ")");
}

void* Library::symbol(const char* name) {
  if (handle_ == nullptr) return nullptr;
  void* address = dlsym(handle_, name);
  if (address == nullptr) error_ = path_ + " has no " + name;
  return address;
}

}  // namespace gradloom::kernels::gpu
