#include "engine/base/result.h"

#include <cstdio>

namespace gradloom::detail {

void check_failed(const char* condition, const char* why, const char* file, int line) {
  std::fprintf(stderr, "gradloom: internal error: %s (%s) at %s:%d\n", why, condition, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace gradloom::detail
