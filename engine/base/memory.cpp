#include "engine/base/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace gradloom {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The number that a file holds; none where there is no file, or "max" in it.
std::int64_t number_in(const std::string& path) {
  std::ifstream in(path);
  std::int64_t number = kNoLimit;
  return in >> number && number >= 0 ? number : kNoLimit;
}

// Of a group and of all around it: each limits what is inside. The outermost is looked at even where the
// group is not to be seen: a container may see its own as the outermost, and be told of the path outside.
std::int64_t limit_of(const std::string& mount, std::string group, const char* file) {
  std::int64_t limit = kNoLimit;
  for (;;) {
    limit = std::min(limit, number_in(mount + group + "/" + file));
    const std::size_t slash = group.rfind('/');
    if (slash == std::string::npos) return limit;
    group.resize(slash);
  }
}

}  // namespace

// A line of `membership` is "number:controllers:group": 0 and none for version 2, else version 1.
std::int64_t cgroup_memory_limit(const std::string& membership, const std::string& mounts) {
  std::int64_t limit = kNoLimit;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",",
                      group = line.substr(second + 1);
    if (group.find("/..") != std::string::npos) continue;  // outside of what we see
    if (controllers == ",,") {
      limit = std::min(
          {limit, limit_of(mounts, group, "memory.max"), limit_of(mounts + "/unified", group, "memory.max")});
    } else if (controllers.find(",memory,") != std::string::npos) {
      limit = std::min(limit, limit_of(mounts + "/memory", group, "memory.limit_in_bytes"));
    }
  }
  return limit;
}

namespace {

std::int64_t status_bytes(const char* row) {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;) {
    std::int64_t kibibytes = 0;
    if (word == row && in >> kibibytes) return kibibytes << 10;
  }
  return 0;
}

}  // namespace

std::int64_t process_peak_bytes() { return status_bytes("VmHWM:"); }
std::int64_t process_bytes() { return status_bytes("VmRSS:"); }

std::int64_t usable_memory_bytes() {
  const std::int64_t pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGE_SIZE);
  std::int64_t usable = pages > 0 && page_bytes > 0 ? pages * page_bytes : std::int64_t{8} << 30;
  std::ifstream in("/proc/self/cgroup");
  const std::string membership{std::istreambuf_iterator<char>(in), {}};
  usable = std::min(usable, cgroup_memory_limit(membership, "/sys/fs/cgroup"));
  rlimit address{};
  if (::getrlimit(RLIMIT_AS, &address) == 0 && address.rlim_cur != RLIM_INFINITY)
    usable = std::min(usable, std::int64_t(std::min<rlim_t>(address.rlim_cur, rlim_t(usable))));
  return usable;
}

}  // namespace gradloom
