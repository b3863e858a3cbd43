// What is compiled at run time, by the driver's functions, which the plugin asks the runtime for. NVRTC's stand-in (nvrtc.cpp) makes
// shared libraries of the host.
#include <elf.h>

#include <cstdlib>
#include <cstring>

#include "tests/engine/device/gpu/driver/driver.h"

namespace gradloom::strict {
namespace {

CUresult result(cudaError_t error) { return CUresult(error); }  // the numbers are the same

CUresult load(CUmodule* module, const void* image) {
  const Call call("cuModuleLoadData", Call::on_device | Call::unsafe | Call::allocates);
  if (call.refused()) return result(call.error());
  const auto* const bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, ELFMAG, SELFMAG) != 0) return result(call.fail(cudaErrorInvalidKernelImage));
  Elf64_Ehdr header;
  std::memcpy(&header, bytes, sizeof header);
  const char* const end = bytes + header.e_shoff + std::size_t(header.e_shnum) * header.e_shentsize;
  auto code = std::make_unique<kernels::gpu::host::Module>(std::string(bytes, end));
  if (!code->error().empty()) return result(call.fail(cudaErrorInvalidKernelImage, code->error()));
  CUmodule const loaded = driver().modules.make();
  loaded->code = std::move(code);
  loaded->sizes = end;  // as nvrtc.cpp has put them there, with a 0 at their end
  *module = loaded;
  return CUDA_SUCCESS;
}

CUresult unload(CUmodule module) {
  const Call call("cuModuleUnload", Call::on_device | Call::unsafe);
  const cudaError_t error = call.refused() ? call.error() : call.check(driver().modules, module, "module");
  if (error != cudaSuccess) return result(error);
  if (is_queued(module))
    complain("cuModuleUnload: programs of it are still queued");
  else
    module->code.reset();
  driver().modules.destroy(module);
  return CUDA_SUCCESS;
}

CUresult find(CUfunction* function, CUmodule module, const char* name) {
  const Call call("cuModuleGetFunction", Call::on_device);
  const cudaError_t error = call.refused() ? call.error() : call.check(driver().modules, module, "module");
  if (error != cudaSuccess) return result(error);
  const auto entry = module->code->find(name);
  const std::size_t at = ("\n" + module->sizes).find("\n" + std::string(name) + " ");
  if (entry == nullptr || at == std::string::npos) return result(call.fail(cudaErrorSymbolNotFound));
  const std::size_t bytes = std::strtoull(module->sizes.c_str() + at + std::strlen(name), nullptr, 10);
  *function = &module->functions.emplace_back(CUfunc_st{module, entry, bytes});
  return CUDA_SUCCESS;
}

CUresult start(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
               unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** params,
               void**) {
  const Call call("cuLaunchKernel", Call::on_device | Call::launches);
  if (call.refused()) return result(call.error());
  if (!function->module->alive)
    return result(call.fail(cudaErrorInvalidResourceHandle, "its module was unloaded"));
  Work work{Work::kernel};
  work.module = function->module;
  work.launch = keep_program(function->entry, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                             shared_bytes, params[0], function->bytes);
  if (const auto fault = launch_fault(*work.launch)) return result(call.fail(cudaErrorInvalidValue, *fault));
  return result(call.submit(stream, std::move(work)));
}

}  // namespace
}  // namespace gradloom::strict

using namespace gradloom::strict;

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                        unsigned long long,
                                                        cudaDriverEntryPointQueryResult* status) {
  const Call call("cudaGetDriverEntryPointByVersion", Call::anywhere);
  if (call.refused()) return call.error();
  const std::string wanted = name;
  *function = wanted == "cuModuleLoadData"      ? reinterpret_cast<void*>(&load)
              : wanted == "cuModuleUnload"      ? reinterpret_cast<void*>(&unload)
              : wanted == "cuModuleGetFunction" ? reinterpret_cast<void*>(&find)
              : wanted == "cuLaunchKernel"      ? reinterpret_cast<void*>(&start)
                                                : nullptr;
  *status = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
