#include "engine/train/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/base/text.h"

namespace gradloom {
namespace {

double linear(double progress, double end) { return 1.0 + (end - 1.0) * progress; }
double cosine(double progress, double end) {
  return end + (1.0 - end) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

constexpr ScheduleDef kSchedules[] = {
    {"constant", "the same rate for all steps", false, nullptr, "1"},
    {"linear", "a straight line", true, linear, "1 + (end - 1) progress"},
    {"cosine", "half a cosine", true, cosine, "end + (1 - end) (1 + cos(pi progress)) / 2"},
};

const ScheduleDef* find_schedule(const std::string& name) {
  for (const ScheduleDef& def : kSchedules)
    if (name == def.name) return &def;
  return nullptr;
}

}  // namespace

std::span<const ScheduleDef> all_schedules() { return kSchedules; }

void ScheduleSpec::fields(FieldVisitor& v) {
  v.field("warmup", warmup, {.help = "steps of linear warm-up", .unit = "steps", .min = 0});
  const ScheduleDef* const def = find_schedule(name);
  if (def == nullptr || !def->falls) return;
  v.field("total", total, {.help = "step at which the final factor is reached", .unit = "steps", .min = 0});
  v.field("end", end, {.help = "final factor", .min = 0});
}

double ScheduleSpec::factor(std::int64_t step) const {
  const auto s = static_cast<double>(step);
  if (warmup > 0 && step <= warmup) return s / static_cast<double>(warmup);
  const ScheduleDef* const def = find_schedule(name);
  if (def == nullptr || !def->falls || total <= warmup) return 1.0;
  const double progress =
      std::min(1.0, (s - static_cast<double>(warmup)) / static_cast<double>(total - warmup));
  return def->shape(progress, end);
}

Result<ScheduleSpec> parse_schedule(const std::string& text) {
  const NamedOptions named = TRY(parse_named_options(text.empty() ? "constant" : text));
  const ScheduleDef* const def = find_schedule(named.name);
  if (def == nullptr) {
    std::vector<std::string> known;
    for (const ScheduleDef& d : kSchedules) known.emplace_back(d.name);
    return Error{Errc::usage, unknown_name("schedule", named.name, known)};
  }
  ScheduleSpec spec;
  spec.name = named.name;
  TRY(set_fields([&](FieldVisitor& v) { spec.fields(v); }, named.values, "schedule " + spec.name));
  if (def->falls && spec.total <= spec.warmup)
    return Error{Errc::usage, "schedule " + spec.name + ": total must be larger than warmup"};
  return spec;
}

}  // namespace gradloom
