// The machine record, read from /proc, /sys and uname; of a GPU from its driver.
#include "profiler/environment.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "engine/base/text.h"
#include "kernels/cpu.h"

namespace gradloom {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

double load_average() {
  std::istringstream text(first_line("/proc/loadavg"));
  double load = -1;
  text >> load;
  return text ? load : -1;
}

// Files of cpufreq hold kHz.
double cpufreq_mhz(const char* file) {
  std::istringstream text(first_line(std::string("/sys/devices/system/cpu/cpu0/cpufreq/") + file));
  double khz = 0;
  text >> khz;
  return text ? khz / 1000 : 0;
}

std::string after_colon(const std::string& line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string::npos) return "";
  const std::size_t start = line.find_first_not_of(" \t", colon + 1);
  return start == std::string::npos ? "" : line.substr(start);
}

void read_cpu(Environment& environment) {
  std::ifstream in("/proc/cpuinfo");
  std::set<std::string> cores;
  std::string line, package;
  while (std::getline(in, line)) {
    if (line.rfind("processor", 0) == 0) ++environment.logical_cores;
    if (line.rfind("model name", 0) == 0 && environment.cpu_model.empty())
      environment.cpu_model = after_colon(line);
    if (line.rfind("physical id", 0) == 0) package = after_colon(line);
    if (line.rfind("core id", 0) == 0) cores.insert(package + ":" + after_colon(line));
    if (line.rfind("cpu MHz", 0) == 0 && environment.frequency_mhz == 0)
      environment.frequency_mhz = std::atof(after_colon(line).c_str());
    if (line.rfind("flags", 0) == 0)
      environment.virtual_machine = line.find(" hypervisor") != std::string::npos;
  }
  environment.physical_cores = cores.empty() ? environment.logical_cores : static_cast<int>(cores.size());
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) environment.usable_cores = CPU_COUNT(&set);
}

void read_memory(Environment& environment) {
  std::ifstream in("/proc/meminfo");
  std::string name, unit;
  for (std::int64_t kib = 0; in >> name >> kib; std::getline(in, unit)) {
    if (name == "MemTotal:") environment.memory_bytes = kib * 1024;
    if (name == "MemAvailable:") environment.available_bytes = kib * 1024;
  }
}

std::string os_name() {
  std::ifstream in("/etc/os-release");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("PRETTY_NAME=", 0) != 0) continue;
    std::string name = line.substr(12);
    if (name.size() >= 2 && name.front() == '"') name = name.substr(1, name.size() - 2);
    return name;
  }
  return "";
}

const char kNotMeasured[] = "not measured";

std::string measured(std::int32_t value) { return value < 0 ? kNotMeasured : std::to_string(value); }
std::string measured(const std::string& text) { return text.empty() ? kNotMeasured : escaped(text); }

void state_rows(const std::string& prefix, const DeviceState& state,
                std::map<std::string, std::string>& rows) {
  rows[prefix + "sm_clock_mhz"] = measured(state.sm_clock_mhz);
  rows[prefix + "memory_clock_mhz"] = measured(state.memory_clock_mhz);
  rows[prefix + "temperature_c"] = measured(state.temperature_c);
  rows[prefix + "power_mw"] = measured(state.power_mw);
  rows[prefix + "power_limit_mw"] = measured(state.power_limit_mw);
  rows[prefix + "utilization_percent"] = measured(state.utilization_percent);
  rows[prefix + "throttle"] = measured(state.throttle);
  rows[prefix + "other_processes"] = measured(state.other_processes);
}

void gpu_rows(const GpuRecord& gpu, std::map<std::string, std::string>& rows) {
  rows["gpu.name"] = measured(gpu.info.name);
  rows["gpu.driver"] = measured(gpu.info.driver);
  rows["gpu.libraries"] = measured(gpu.info.libraries);
  rows["gpu.memory_bytes"] = std::to_string(gpu.info.memory_bytes);
  rows["gpu.free_bytes"] = std::to_string(gpu.info.free_bytes);
  state_rows("gpu.start.", gpu.start, rows);
  state_rows("gpu.", gpu.last, rows);
  rows["gpu.throttle"] = measured(gpu.throttle);
  rows["gpu.other_processes"] = measured(gpu.most_other_processes);
  rows["gpu.min_sm_clock_mhz"] = measured(gpu.min_sm_clock_mhz);
  rows["gpu.max_temperature_c"] = measured(gpu.max_temperature_c);
  rows["gpu.max_power_mw"] = measured(gpu.max_power_mw);
  rows["gpu.kernel_times"] = measured(gpu.kernel_times);
}

// Reasons of both lists, "none" only when neither has any.
std::string united(const std::string& a, const std::string& b) {
  std::set<std::string> reasons;
  for (const std::string* text : {&a, &b}) {
    std::istringstream in(*text);
    for (std::string reason; std::getline(in >> std::ws, reason, ',');) reasons.insert(reason);
  }
  if (reasons.size() > 1) reasons.erase("none");
  std::string text;
  for (const std::string& reason : reasons) text += (text.empty() ? "" : ", ") + reason;
  return text;
}

}  // namespace

void add_state(GpuRecord& record, const DeviceState& state) {
  record.last = state;
  if (state.sm_clock_mhz >= 0 &&
      (record.min_sm_clock_mhz < 0 || state.sm_clock_mhz < record.min_sm_clock_mhz))
    record.min_sm_clock_mhz = state.sm_clock_mhz;
  record.max_temperature_c = std::max(record.max_temperature_c, state.temperature_c);
  record.max_power_mw = std::max(record.max_power_mw, state.power_mw);
  record.most_other_processes = std::max(record.most_other_processes, state.other_processes);
  record.throttle = united(record.throttle, state.throttle);
}

void begin_gpu(Environment& environment, const DeviceInfo& device) {
  if (!device.queued) return;
  GpuRecord record;
  record.info = device;
  record.start = device_state(device.id);
  add_state(record, record.start);
  record.min_sm_clock_mhz = -1;  // without work the clocks are down
  record.looked_ns = monotonic_ns();
  environment.gpu = record;
}

void watch_gpu(Environment& environment, bool now) {
  constexpr std::int64_t kIntervalNs = 1'000'000'000;
  if (!environment.gpu || (!now && monotonic_ns() - environment.gpu->looked_ns < kIntervalNs)) return;
  add_state(*environment.gpu, device_state(environment.gpu->info.id));
  environment.gpu->looked_ns = monotonic_ns();
}

std::string gpu_disturbances(const std::map<std::string, std::string>& rows) {
  const auto value = [&](const char* name) {
    const auto at = rows.find(name);
    return at == rows.end() || at->second == kNotMeasured ? std::string() : at->second;
  };
  std::string text;
  if (const std::string throttle = value("gpu.throttle"); !throttle.empty() && throttle != "none")
    text = "the GPU's clocks were held down (" + throttle + ")";
  if (const std::string others = value("gpu.other_processes"); !others.empty() && others != "0")
    text += (text.empty() ? "" : ", ") + others + (others == "1" ? " other process" : " other processes") +
            " ran on the GPU";
  return text;
}

Environment read_environment() {
  Environment environment;
  environment.load_before = load_average();
  read_cpu(environment);
  read_memory(environment);
  environment.isa = kernels::cpu().isa;
  environment.threads = kernels::threads();
  environment.governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  environment.max_frequency_mhz = cpufreq_mhz("cpuinfo_max_freq");
  if (const double now = cpufreq_mhz("scaling_cur_freq"); now > 0) environment.frequency_mhz = now;
  environment.os = os_name();
  struct utsname info {};
  if (::uname(&info) == 0) environment.kernel = std::string(info.sysname) + " " + info.release;
#if defined(__clang__)
  environment.compiler = "clang " __clang_version__;
#else
  environment.compiler = "g++ " __VERSION__;
#endif
  environment.version = GRADLOOM_VERSION;
  environment.git_id = GRADLOOM_GIT_ID;
  return environment;
}

void finish_environment(Environment& environment) {
  environment.load_after = load_average();
  if (const double now = cpufreq_mhz("scaling_cur_freq"); now > 0) environment.frequency_mhz = now;
}

std::map<std::string, std::string> environment_rows(const Environment& e) {
  std::map<std::string, std::string> rows;
  const auto text = [&](const char* name, const std::string& value) {
    if (!value.empty()) rows[name] = escaped(value);
  };
  const auto number = [&](const char* name, double value, bool known) {
    if (known) rows[name] = number_text(value);
  };
  text("cpu_model", e.cpu_model);
  text("isa", e.isa);
  text("governor", e.governor);
  text("os", e.os);
  text("kernel", e.kernel);
  text("compiler", e.compiler);
  text("version", e.version);
  text("git_id", e.git_id);
  text("hardware", hardware_text(e));
  number("logical_cores", e.logical_cores, e.logical_cores > 0);
  number("physical_cores", e.physical_cores, e.physical_cores > 0);
  number("usable_cores", e.usable_cores, e.usable_cores > 0);
  number("threads", e.threads, e.threads > 0);
  number("frequency_mhz", e.frequency_mhz, e.frequency_mhz > 0);
  number("max_frequency_mhz", e.max_frequency_mhz, e.max_frequency_mhz > 0);
  number("memory_bytes", static_cast<double>(e.memory_bytes), e.memory_bytes > 0);
  number("available_bytes", static_cast<double>(e.available_bytes), e.available_bytes > 0);
  number("load_before", e.load_before, e.load_before >= 0);
  number("load_after", e.load_after, e.load_after >= 0);
  rows["virtual_machine"] = e.virtual_machine ? "true" : "false";
  if (e.gpu) gpu_rows(*e.gpu, rows);
  return rows;
}

std::string hardware_text(const Environment& e) {
  return fmt::format("{}{}, {} thread{}, {}", e.gpu ? e.gpu->info.name + "; " : "",
                     e.cpu_model.empty() ? "unknown CPU" : escaped(e.cpu_model), e.threads,
                     e.threads == 1 ? "" : "s", e.isa);
}

std::string hardware_text_with(const DeviceInfo& device, int threads) {
  Environment environment = read_environment();
  if (threads > 0) environment.threads = threads;
  if (device.queued) environment.gpu.emplace().info = device;
  return hardware_text(environment);
}

std::string hardware_text_here(const std::string& id, int threads) {
  for (const DeviceInfo& device : list_devices())
    if (device.id == id) return hardware_text_with(device, threads);
  return hardware_text_with({}, threads);
}

}  // namespace gradloom
