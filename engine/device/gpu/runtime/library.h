// Shared libraries of the vendors, found when they are needed: a program must start without them. They may
// come from a toolkit, from the system or from Python wheels. Plain C++, the same for CUDA and HIP.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

namespace gradloom::kernels::gpu {

class Library {
 public:
  // Opens the first of `names` that exists, looking for each in: the toolkits (CUDA_HOME, CUDA_PATH, ROCM_PATH,
  // CONDA_PREFIX, /usr/local/cuda*, /opt/cuda, /opt/rocm*), the loader's own path, wheels (site-packages/nvidia/*/lib of
  // the active and the system's Pythons). It is never closed: vendors' libraries keep threads.
  explicit Library(std::initializer_list<const char*> names);

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& path() const { return path_; }  // the file that was opened
  const std::string& error() const {
    return error_;
  }  // what was looked for, and the loader's last message when a file did not load

  // Sets `function` to symbol `name`; false, with error(), when it is missing.
  template <class F>
  bool bind(F*& function, const char* name) {
    function = reinterpret_cast<F*>(symbol(name));
    return function != nullptr;
  }
  void* symbol(const char* name);

 private:
  void* handle_ = nullptr;
  std::string path_, error_;
};

// A switch of the environment: "0" is off, anything else on; `otherwise` when it is not set or empty.
bool switched(const char* name, bool otherwise);

// Folders of toolkits and of wheels that exist here, in the order of search.
std::vector<std::string> toolkit_folders();
std::vector<std::string> wheel_folders();

}  // namespace gradloom::kernels::gpu
