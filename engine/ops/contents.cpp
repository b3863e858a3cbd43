#include "engine/ops/contents.h"

namespace gradloom {

Status require_between(const Tensor* known, std::int64_t low, std::int64_t high, const char* what,
                       const std::int64_t* but) {
  if (known == nullptr) return {};
  for (std::int64_t i = 0, n = known->count(); i < n; ++i) {
    const std::int64_t v = known->int_at(i);
    if ((v < low || v > high) && (but == nullptr || v != *but))
      return infer_error(std::string(what) + " " + std::to_string(v) + " is not " + std::to_string(low) +
                         " to " + std::to_string(high));
  }
  return {};
}

}  // namespace gradloom
