// The machine record of a run: what one needs to judge whether two timings may be compared.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "engine/device/device.h"

namespace gradloom {

// The GPU of a run: before its first step, as it was when last looked at, and what was seen in between.
struct GpuRecord {
  DeviceInfo info;
  DeviceState start, last;
  std::int32_t min_sm_clock_mhz = -1, max_temperature_c = -1, max_power_mw = -1, most_other_processes = -1;
  std::string throttle;        // every reason seen; "none"; empty: not measured
  std::string kernel_times;    // StepOutcome::times_from of the latest timed step; empty: none was
  std::int64_t looked_ns = 0;  // at `last`
};

struct Environment {
  std::string cpu_model, isa;  // isa: level of the CPU kernels in use, e.g. "x86-64-v4"
  int logical_cores = 0, physical_cores = 0, usable_cores = 0;  // usable: affinity mask of this process
  int threads = 0;                                              // that kernels use
  std::string governor;                                         // empty where the machine does not tell
  double frequency_mhz = 0, max_frequency_mhz = 0;              // 0: unknown
  std::string os, kernel, compiler, version, git_id;            // git_id empty when built outside a checkout
  std::int64_t memory_bytes = 0, available_bytes = 0;
  double load_before = -1, load_after = -1;  // 1-minute load average; -1: unknown
  bool virtual_machine = false;
  std::optional<GpuRecord> gpu;  // runs on a GPU
};

Environment read_environment();                     // load_before is read here
void finish_environment(Environment& environment);  // reads load_after and the frequency again
void begin_gpu(Environment& environment, const DeviceInfo& device);  // nothing for the CPU
// Looks at the GPU again, at most once a second unless told so: with work queued it tells
// clocks and power under load.
void watch_gpu(Environment& environment, bool now = false);
void add_state(GpuRecord& record, const DeviceState& state);
// As stored: name -> text, known ones only. Rows of a GPU begin with "gpu." and are always there: "not
// measured" says so.
std::map<std::string, std::string> environment_rows(const Environment& environment);
// What in the rows of a run makes its times doubtful: clocks held down,
// other processes on the GPU. Empty: nothing known.
std::string gpu_disturbances(const std::map<std::string, std::string>& rows);
std::string hardware_text(const Environment& environment);  // "AMD EPYC 9654, 2 threads, x86-64-v4", a GPU's
                                                            // name before it: recipes compare it
// The same with one of this machine's devices; threads: 0: as many as kernels use now.
std::string hardware_text_with(const DeviceInfo& device, int threads = 0);
// With the device of that id, for which all are asked.
std::string hardware_text_here(const std::string& device, int threads = 0);

}  // namespace gradloom
