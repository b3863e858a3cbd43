#include "engine/device/gpu/runtime/modules.h"

#include "engine/device/gpu/runtime/activity.h"
#include "engine/device/gpu/runtime/cache.h"
#include "engine/device/gpu/runtime/rtc.h"

#if !defined(GRADLOOM_HIP)
#include <cuda.h>  // types only: the functions come from the driver at run time
#endif

#if defined(GRADLOOM_HIP)
using Module = hipModule_t;
using Function = hipFunction_t;
#else
using Module = CUmodule;
using Function = CUfunction;
#endif

struct GpuModule {
  Module module = nullptr;
  std::vector<Function> functions;
};

namespace gradloom::kernels::gpu {
namespace {

#if defined(GRADLOOM_HIP)

RtcOutput compile_source(const std::string& source, const std::string& architecture) {
  return hiprtc_compile(source, architecture);
}

Error load(GpuContext*, Module* module, const char* code) { return hipModuleLoadData(module, code); }
void unload(Module module) { (void)hipModuleUnload(module); }
Error find(Function* function, Module module, const char* name) {
  return hipModuleGetFunction(function, module, name);
}
Error start(Function function, GpuDim grid, GpuDim block, hipStream_t stream, void** params) {
  note_program(function);
  const Error error = hipModuleLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, 0,
                                            stream, params, nullptr);
  note_program(nullptr);
  return error;
}

#else

RtcOutput compile_source(const std::string& source, const std::string& architecture) {
  return nvrtc_compile(source, architecture);
}

// The driver's functions, got without linking to libcuda: the plugin loads where there is no driver. Error
// numbers are the runtime's.
struct Driver {
  decltype(&cuModuleLoadData) load = nullptr;
  decltype(&cuModuleUnload) unload = nullptr;
  decltype(&cuModuleGetFunction) find = nullptr;
  decltype(&cuLaunchKernel) launch = nullptr;
  Error error = cudaSuccess;

  Driver() {
    bind(load, "cuModuleLoadData");
    bind(unload, "cuModuleUnload");
    bind(find, "cuModuleGetFunction");
    bind(launch, "cuLaunchKernel");
  }

  template <class F>
  void bind(F& function, const char* name) {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    constexpr unsigned kVersion = 12000;  // of the functions' signatures
#if CUDART_VERSION >= 12050
    const Error status =
        cudaGetDriverEntryPointByVersion(name, &address, kVersion, cudaEnableDefault, &found);
#else
    (void)kVersion;
    const Error status = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found);
#endif
    if (status != cudaSuccess) error = status;
    if (status == cudaSuccess && found != cudaDriverEntryPointSuccess) error = cudaErrorSymbolNotFound;
    function = reinterpret_cast<F>(address);
  }
};
const Driver& driver() {
  static const Driver functions;
  return functions;
}

Error load(GpuContext*, Module* module, const char* code) {
  return driver().error != cudaSuccess ? driver().error : Error(driver().load(module, code));
}
void unload(Module module) {
  if (driver().error == cudaSuccess) (void)driver().unload(module);
}
Error find(Function* function, Module module, const char* name) {
  return Error(driver().find(function, module, name));
}
Error start(Function function, GpuDim grid, GpuDim block, cudaStream_t stream, void** params) {
  return Error(driver().launch(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, 0, stream, params,
                               nullptr));
}

#endif

GpuStatus load_code(GpuContext* context, const std::string& code, const char* const* entries, int count,
                    GpuModule& module) {
  const Error loaded = load(context, &module.module, code.c_str());
  if (loaded != GPU(Success)) return report(context, loaded, "load compiled programs");
  for (int i = 0; i < count; ++i) {
    Function function = nullptr;
    const Error found = find(&function, module.module, entries[i]);
    if (found != GPU(Success)) {
      unload(module.module);
      return report(context, found, std::string("find program ") + entries[i]);
    }
    module.functions.push_back(function);
  }
  return GPU_OK;
}

}  // namespace

#if defined(GRADLOOM_HIP)
std::string compiler_version() { return hiprtc_version(); }
#else
std::string compiler_version() { return nvrtc_version(); }
#endif

GpuStatus compile_module(GpuContext* context, const char* source, const char* const* entries, int count,
                         const char* cache_folder, GpuModule** module) {
  const std::string folder = cache_folder != nullptr ? cache_folder : "";
  const std::string name = cache_name(source, context->architecture, compiler_version());
  auto loaded = std::make_unique<GpuModule>();
  // A cached program that the driver refuses (it was replaced by an older one, say) is compiled again.
  const std::string cached = folder.empty() ? "" : read_cache(folder, name);
  if (cached.empty() || load_code(context, cached, entries, count, *loaded) != GPU_OK) {
    if (context->lost) return GPU_DEVICE_LOST;
    *loaded = GpuModule();
    const RtcOutput output = compile_source(source, context->architecture);
    if (output.code.empty())
      return report(context, GPU_LAUNCH_FAILED,
                    "compile programs for " + context->architecture + ": " + output.error);
    const GpuStatus status = load_code(context, output.code, entries, count, *loaded);
    if (status != GPU_OK) return status;
    if (!folder.empty()) write_cache(folder, name, output.code);
  }
  *module = loaded.release();
  return GPU_OK;
}

void unload_module(GpuContext* context, GpuModule* module) {
  if (module == nullptr) return;
  if (!context->lost) unload(module->module);
  delete module;
}

GpuStatus launch_program(GpuContext* context, int stream, GpuModule* module, int index, GpuDim grid,
                         GpuDim block, const void* params) {
  if (index < 0 || std::size_t(index) >= module->functions.size())
    return report(context, GPU_FAILED, "no program " + std::to_string(index));
  void* list[] = {const_cast<void*>(params)};  // the one argument; its size is in the function's description
  return check(context,
               start(module->functions[std::size_t(index)], grid, block, context->streams[stream], list),
               "launch program");
}

}  // namespace gradloom::kernels::gpu
