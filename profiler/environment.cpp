// The machine record, read from /proc, /sys and uname.
#include "profiler/environment.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

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

}  // namespace

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
  return rows;
}

std::string hardware_text(const Environment& e) {
  return fmt::format("{}, {} thread{}, {}", e.cpu_model.empty() ? "unknown CPU" : escaped(e.cpu_model),
                     e.threads, e.threads == 1 ? "" : "s", e.isa);
}

}  // namespace gradloom
