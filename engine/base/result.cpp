#include "engine/base/result.h"

#include <atomic>
#include <cstdio>

#include "engine/base/broken_invariant.h"

namespace gradloom {
namespace {
std::atomic<bool> throws{false};
}

void throw_broken_invariants() { throws = true; }

namespace detail {

void check_failed(const char* condition, const char* why, const char* file, int line) {
  if (throws)
    throw BrokenInvariant("internal error: " + std::string(why) + " (" + condition + ") at " + file + ":" +
                          std::to_string(line));
  std::fprintf(stderr, "gradloom: internal error: %s (%s) at %s:%d\n", why, condition, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace detail
}  // namespace gradloom
