#include "engine/device/gpu/runtime/device.h"

#include <cstdio>
#include <cstring>

#include "engine/device/gpu/runtime/activity.h"
#include "engine/device/gpu/runtime/modules.h"
#include "engine/device/gpu/runtime/nvml.h"

namespace gradloom::kernels::gpu {
namespace {

template <std::size_t n>
void put(char (&target)[n], const std::string& text) {
  std::snprintf(target, n, "%s", text.c_str());
}

// "13.0" of 13000 (CUDA); HIP's own numbers are 50221153 = 5.2.
std::string version_text(int version) {
#if defined(GRADLOOM_HIP)
  return std::to_string(version / 10000000) + "." + std::to_string(version / 100000 % 100);
#else
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
#endif
}

#if defined(GRADLOOM_HIP)

std::string architecture_of(const HipProperties& properties) { return properties.gcnArchName; }

// Code objects fit one processor: the list that this plugin was compiled for.
bool has_code(const HipProperties& properties, std::string* needs) {
  const std::string built = GRADLOOM_HIP_ARCHITECTURES, name = architecture_of(properties);
  *needs = "built for " + built;
  return (" " + built + " ").find(" " + name.substr(0, name.find(':')) + " ") != std::string::npos;
}

std::string uuid_of(int32_t index, const HipProperties&) {
  hipUUID uuid = {};  // 16 characters of text
  return hipDeviceGetUuid(&uuid, index) == hipSuccess
             ? "GPU-" + std::string(uuid.bytes, strnlen(uuid.bytes, sizeof uuid.bytes))
             : "";
}

#else

std::string architecture_of(const cudaDeviceProp& properties) {
  return "sm_" + std::to_string(properties.major) + std::to_string(properties.minor);
}

bool has_code(const cudaDeviceProp& properties, std::string* needs) {
  *needs = "needs compute capability 8.0 or newer";
  return properties.major >= 8;
}

std::string uuid_of(int32_t, const cudaDeviceProp& properties) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char hex[4];
    std::snprintf(hex, sizeof hex, "%02x", static_cast<unsigned char>(properties.uuid.bytes[i]));
    text += hex;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

#endif

GpuStatus properties_of(int32_t index, DeviceProperties* properties) {
  int32_t count = 0;
  const GpuStatus status = count_devices(&count);
  if (status != GPU_OK) return status;
  if (index < 0 || index >= count)
    return report(nullptr, GPU_NO_DEVICE,
                  std::string("no ") + kKind + " device " + std::to_string(index) + ", there are " +
                      std::to_string(count));
  return check(nullptr, device_properties(properties, index), "device properties");
}

std::string libraries() {
  std::string text;
  for (const std::string& version :
       {gemm_library_version(), dnn_library_version(), compiler_version(), activity_version()}) {
    if (!version.empty()) text += (text.empty() ? "" : ", ") + version;
  }
  return text;
}

}  // namespace

GpuStatus count_devices(int32_t* count) {
  int found = 0, driver = 0, runtime = 0;
  *count = 0;
  if (const std::string missing = missing_runtime(); !missing.empty())
    return report(nullptr, GPU_NO_DRIVER, "no driver found: " + missing);
  const Error error = GPU(GetDeviceCount)(&found);  // leaves `found` alone when there is no driver
  (void)GPU(GetLastError)();
  const GpuStatus status = status_of(int(error));
  if (status == GPU_NO_DRIVER) {
    (void)GPU(DriverGetVersion)(&driver);
    (void)GPU(RuntimeGetVersion)(&runtime);
    const std::string needs = std::string("the plugin needs a driver for ") +
                              (kKind[0] == 'c' ? "CUDA " : "HIP ") + version_text(runtime) + " or newer";
    return report(nullptr, GPU_NO_DRIVER,
                  driver == 0 ? "no driver found; " + needs
                              : "the driver is for version " + version_text(driver) + "; " + needs);
  }
  if (status == GPU_NO_DEVICE || (error == GPU(Success) && found == 0))
    return report(nullptr, GPU_NO_DEVICE, std::string("no ") + kKind + " device");
  if (error != GPU(Success)) return report(nullptr, error, "count devices");
  *count = found;
  return GPU_OK;
}

GpuStatus supported_architecture(int32_t index, std::string* architecture) {
  DeviceProperties properties;
  const GpuStatus status = properties_of(index, &properties);
  if (status != GPU_OK) return status;
  *architecture = architecture_of(properties);
  std::string needs;
  if (!has_code(properties, &needs))
    return report(
        nullptr, GPU_UNSUPPORTED,
        std::string(properties.name) + " is " + *architecture + ": the " + kKind + " plugin " + needs);
  return GPU_OK;
}

GpuStatus describe_device(int32_t index, GpuDescription* description) {
  DeviceProperties properties;
  const GpuStatus status = properties_of(index, &properties);
  if (status != GPU_OK) return status;
  *description = {};
  put(description->name, properties.name);
  put(description->architecture, architecture_of(properties));
  put(description->uuid, uuid_of(index, properties));
  put(description->libraries, libraries());
  int driver = 0, runtime = 0, clock_khz = 0;
  (void)GPU(DriverGetVersion)(&driver);
  (void)GPU(RuntimeGetVersion)(&runtime);
  put(description->runtime, version_text(runtime));
  const std::string package = nvml_driver_version();
  put(description->driver, version_text(driver) + (package.empty() ? "" : " (" + package + ")"));
#if defined(GRADLOOM_HIP)
  (void)hipDeviceGetAttribute(&clock_khz, hipDeviceAttributeClockRate, index);
#else
  (void)cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, index);
#endif
  description->clock_khz = clock_khz;
  description->warp_size = properties.warpSize;
  description->multiprocessors = properties.multiProcessorCount;
  description->shared_bytes_per_block = int32_t(properties.sharedMemPerBlock);
  description->memory_bytes = int64_t(properties.totalGlobalMem);
  // NVML first: the runtime's call makes a context of some hundred MB on the device.
  long long total = 0, free = 0;
  if (nvml_memory(description->uuid, &total, &free)) {
    description->free_bytes = free;
  } else {
    std::size_t free_now = 0, all = 0;
    if (GPU(SetDevice)(index) == GPU(Success) && GPU(MemGetInfo)(&free_now, &all) == GPU(Success))
      description->free_bytes = int64_t(free_now);
    (void)GPU(GetLastError)();
  }
  return GPU_OK;
}

GpuStatus device_environment(int32_t index, GpuEnvironment* environment) {
  DeviceProperties properties;
  const GpuStatus status = properties_of(index, &properties);
  if (status != GPU_OK) return status;
  *environment = {-1, -1, -1, -1, -1, -1, -1, 0, ""};
  (void)nvml_environment(uuid_of(index, properties).c_str(),
                         environment);  // values that nothing measures stay -1
  return GPU_OK;
}

}  // namespace gradloom::kernels::gpu
