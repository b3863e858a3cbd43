#include "engine/device/gpu/runtime/nvml.h"

#include <unistd.h>

#include <cstdio>
#include <vector>

#include "engine/device/gpu/runtime/library.h"

namespace gradloom::kernels::gpu {
namespace {

// NVML API reference, "Device Queries". Functions give 0 for success.
using Handle = void*;
struct Utilization {
  unsigned gpu, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;
};
struct Process {  // nvmlProcessInfo_t of the _v3 functions
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
constexpr int kInsufficientSize = 7;
constexpr int kClockSm = 1, kClockMemory = 2, kTemperatureGpu = 0;

struct Reason {
  unsigned long long bit;
  const char* name;
};
constexpr Reason kReasons[] = {
    // nvmlClocksEventReason*; 0x1 is "idle", 0x2 clocks set by the user
    {0x2, "application clocks"}, {0x4, "power cap"},        {0x8, "hardware slowdown"},
    {0x10, "sync boost"},        {0x20, "thermal"},         {0x40, "hardware thermal"},
    {0x80, "power brake"},       {0x100, "display clocks"},
};

struct Nvml {
  Library library{"libnvidia-ml.so.1"};
  int (*init)() = nullptr;
  int (*by_uuid)(const char*, Handle*) = nullptr;
  int (*clock)(Handle, int type, unsigned* mhz) = nullptr;
  int (*temperature)(Handle, int sensor, unsigned* celsius) = nullptr;
  int (*power)(Handle, unsigned* mw) = nullptr;
  int (*power_limit)(Handle, unsigned* mw) = nullptr;
  int (*utilization)(Handle, Utilization*) = nullptr;
  int (*reasons)(Handle, unsigned long long*) = nullptr;
  int (*processes)(Handle, unsigned* count, Process*) = nullptr;
  int (*memory)(Handle, Memory*) = nullptr;
  int (*driver)(char*, unsigned length) = nullptr;
  bool ready = false;

  Nvml() {
    if (!library || !library.bind(init, "nvmlInit_v2") || !library.bind(by_uuid, "nvmlDeviceGetHandleByUUID"))
      return;
    // Each of these may be missing from an older driver; its value is then not measured.
    library.bind(clock, "nvmlDeviceGetClockInfo");
    library.bind(temperature, "nvmlDeviceGetTemperature");
    library.bind(power, "nvmlDeviceGetPowerUsage");
    library.bind(power_limit, "nvmlDeviceGetEnforcedPowerLimit");
    library.bind(utilization, "nvmlDeviceGetUtilizationRates");
    library.bind(reasons, "nvmlDeviceGetCurrentClocksEventReasons") ||
        library.bind(reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    library.bind(processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    library.bind(memory, "nvmlDeviceGetMemoryInfo");
    library.bind(driver, "nvmlSystemGetDriverVersion");
    ready = init() == 0;
  }
};
Nvml& nvml() {
  static Nvml functions;
  return functions;
}

bool handle_of(const char* uuid, Handle* handle) { return nvml().ready && nvml().by_uuid(uuid, handle) == 0; }

// A measured value, -1 when the function is missing or fails.
template <class F, class... Args>
std::int32_t measured(F function, Handle handle, Args... args) {
  unsigned value = 0;
  return function != nullptr && function(handle, args..., &value) == 0 ? std::int32_t(value) : -1;
}

std::int32_t count_other_processes(Handle handle) {
  unsigned count = 0;
  if (nvml().processes == nullptr) return -1;
  int status = nvml().processes(handle, &count, nullptr);
  if (status == 0) return 0;
  if (status != kInsufficientSize) return -1;
  count += 16;  // some may start meanwhile
  std::vector<Process> all(count);
  if (nvml().processes(handle, &count, all.data()) != 0) return -1;
  std::int32_t others = 0;
  for (unsigned i = 0; i < count; ++i) others += all[i].pid != unsigned(getpid()) ? 1 : 0;
  return others;
}

}  // namespace

bool nvml_environment(const char* uuid, GpuEnvironment* environment) {
  Handle handle = nullptr;
  if (!handle_of(uuid, &handle)) return false;
  const Nvml& n = nvml();
  environment->sm_clock_mhz = measured(n.clock, handle, kClockSm);
  environment->memory_clock_mhz = measured(n.clock, handle, kClockMemory);
  environment->temperature_c = measured(n.temperature, handle, kTemperatureGpu);
  environment->power_mw = measured(n.power, handle);
  environment->power_limit_mw = measured(n.power_limit, handle);
  Utilization used = {};
  environment->utilization_percent =
      n.utilization != nullptr && n.utilization(handle, &used) == 0 ? std::int32_t(used.gpu) : -1;
  environment->other_processes = count_other_processes(handle);
  unsigned long long reasons = 0;
  if (n.reasons != nullptr && n.reasons(handle, &reasons) == 0) {
    environment->throttle_reasons = reasons;
    std::string text;
    for (const Reason& reason : kReasons) {
      if ((reasons & reason.bit) != 0) text += (text.empty() ? "" : ", ") + std::string(reason.name);
    }
    std::snprintf(environment->throttle_text, sizeof environment->throttle_text, "%s",
                  text.empty() ? "none" : text.c_str());
  }
  return true;
}

bool nvml_memory(const char* uuid, long long* total_bytes, long long* free_bytes) {
  Handle handle = nullptr;
  Memory memory = {};
  if (!handle_of(uuid, &handle) || nvml().memory == nullptr || nvml().memory(handle, &memory) != 0)
    return false;
  *total_bytes = static_cast<long long>(memory.total);
  *free_bytes = static_cast<long long>(memory.free);
  return true;
}

std::string nvml_driver_version() {
  char text[96] = "";
  return nvml().ready && nvml().driver != nullptr && nvml().driver(text, sizeof text) == 0 ? text : "";
}

}  // namespace gradloom::kernels::gpu
