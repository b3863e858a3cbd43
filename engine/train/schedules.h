// Schedules of the learning rate: the rate of a step is the optimizer's times factor(step). Formulas and
// options are PyTorch's. Errors: Errc::usage for an unknown name or option, and for options that contradict.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/fields.h"

namespace gradloom {

// A schedule with its options; those that its row does not list mean nothing.
struct ScheduleSpec {
  std::string name = "constant";
  std::int64_t warmup = 0, total = 0, step_size = 1, period = 0, period_factor = 1;
  double end = 0, power = 1, gamma = 0.1, pct_start = 0.3, div_factor = 25, final_div_factor = 1e4;
  bool linear = false, three_phase = false;
  void fields(FieldVisitor& v);
  double factor(std::int64_t step) const;  // step is 1-based
};

struct ScheduleOption {
  const char *name, *help, *unit;
  double least, most;
  std::variant<std::int64_t ScheduleSpec::*, double ScheduleSpec::*, bool ScheduleSpec::*> member;
};

struct ScheduleDef {
  const char *name, *title;
  double (*factor)(const ScheduleSpec& spec, std::int64_t step);  // after the warm-up
  bool own_warmup;                                                // the warm-up too is the formula's
  const char *formula, *source;
  std::span<const ScheduleOption> options;  // after `warmup`, which every schedule has
};
std::span<const ScheduleDef> all_schedules();

Result<ScheduleSpec> parse_schedule(const std::string& text);  // "cosine{warmup=10,total=100}"

}  // namespace gradloom
