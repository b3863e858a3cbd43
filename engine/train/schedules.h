// Schedules of the learning rate: the rate of a step is the optimizer's times factor(step). Errors:
// Errc::usage for an unknown name or option.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/fields.h"

namespace gradloom {

struct ScheduleDef {
  const char *name, *title;
  bool falls;                                    // from 1 after the warm-up to `end` at step `total`
  double (*shape)(double progress, double end);  // of the fall; progress goes from 0 to 1
  const char* formula;
};
std::span<const ScheduleDef> all_schedules();

struct ScheduleSpec {
  std::string name = "constant";
  std::int64_t warmup = 0, total = 0;
  double end = 0;
  void fields(FieldVisitor& v);
  double factor(std::int64_t step) const;  // step is 1-based
};
Result<ScheduleSpec> parse_schedule(const std::string& text);  // "cosine{warmup=10,total=100}"

}  // namespace gradloom
