#include "profiler/processor_wait.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace gradloom {
namespace {

std::int64_t queued_ns() {
  std::int64_t sum = 0;
  std::error_code failed;
  for (std::filesystem::directory_iterator task("/proc/self/task", failed), end; !failed && task != end;
       task.increment(failed)) {
    std::ifstream in(task->path() / "schedstat");
    std::int64_t running = 0, waiting = 0;
    if (in >> running >> waiting) sum += waiting;
  }
  return sum;
}

// cpu user nice system idle iowait irq softirq steal ..., in clock ticks
std::int64_t stolen_ns() {
  std::ifstream in("/proc/stat");
  std::string name;
  std::int64_t ticks = 0;
  in >> name;
  for (int field = 0; field < 8; ++field) in >> ticks;
  const long per_second = ::sysconf(_SC_CLK_TCK);
  return in && name == "cpu" && per_second > 0 ? ticks * (1'000'000'000 / per_second) : 0;
}

}  // namespace

std::int64_t processor_wait_ns() { return queued_ns() + stolen_ns(); }

}  // namespace gradloom
