#include "engine/device/gpu/host/module.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/gpu/host.h"
#include "engine/device/gpu/host/accesses.h"
#include "engine/device/gpu/host/compiler.h"
#include "engine/device/gpu/host/symbols.h"
#include "engine/device/gpu/runtime/cache.h"

namespace gradloom::kernels::gpu::host {
namespace {

std::string path_of(int file) { return "/proc/self/fd/" + std::to_string(file); }

}  // namespace

Module::Module(const std::string& source, const std::vector<std::string>& entries, const char* cache_folder) {
  const std::string name = cache_name(source, "host", program_compiler());
  std::string code = cache_folder != nullptr ? read_cache(cache_folder, name) : "";
  if (code.empty()) {
    code = compile_program(source, &error_);
    if (code.empty()) return;
    if (cache_folder != nullptr) write_cache(cache_folder, name, code);
  }
  load(code);
  for (const std::string& entry : entries) {
    entries_.push_back(find(entry));
    if (entries_.back() == nullptr && error_.empty()) error_ = "the program has no entry " + entry;
  }
}

Module::Module(const std::string& code) { load(code); }

Module::~Module() {
  bool stays = false;
  if (library_ != nullptr) {
    dlclose(library_);
    // A library that stays loaded (one with unique symbols, as sanitizers make them) keeps its name, so the
    // number in it is not given to the file of another program.
    void* const same = dlopen(path_of(file_).c_str(), RTLD_NOW | RTLD_NOLOAD);
    stays = same != nullptr;
    if (stays) dlclose(same);
  }
  if (file_ >= 0 && !stays) close(file_);
  forget_kernel_symbols();
}

void Module::load(const std::string& code) {
  file_ = memfd_create("gradloom-program", MFD_CLOEXEC);
  if (file_ < 0 || write(file_, code.data(), code.size()) != ssize_t(code.size())) {
    error_ = "no memory for the compiled program";
    return;
  }
  show_hooks();
  library_ = dlopen(path_of(file_).c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const machine = symbol("gradloom_gpu_machine");
  if (machine == nullptr) {
    error_ = dlerror();
    return;
  }
  *static_cast<Machine**>(machine) = gradloom_gpu_machine;
}

void* Module::symbol(const std::string& name) const {
  return library_ != nullptr ? dlsym(library_, name.c_str()) : nullptr;
}

}  // namespace gradloom::kernels::gpu::host
