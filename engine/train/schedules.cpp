#include "engine/train/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/base/text.h"

namespace gradloom {
namespace {

// ---- factors, of steps after the warm-up ----

double constant(const ScheduleSpec&, std::int64_t) { return 1; }

// From 0 at step `from` to 1, where it stays.
double progress(const ScheduleSpec& spec, std::int64_t step, std::int64_t from) {
  return std::min(1.0, static_cast<double>(step - from) / static_cast<double>(spec.total - spec.warmup));
}

double cosine_from(double from, double to, double progress) {
  return to + (from - to) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

double linear(const ScheduleSpec& spec, std::int64_t step) {
  return 1.0 + (spec.end - 1.0) * progress(spec, step, spec.warmup);
}
double cosine(const ScheduleSpec& spec, std::int64_t step) {
  return cosine_from(1, spec.end, progress(spec, step, spec.warmup));
}
double polynomial(const ScheduleSpec& spec, std::int64_t step) {
  return spec.end + (1.0 - spec.end) * std::pow(1.0 - progress(spec, step, spec.warmup + 1), spec.power);
}
double steps(const ScheduleSpec& spec, std::int64_t step) {
  const std::int64_t decays = (step - spec.warmup - 1) / spec.step_size;
  return std::pow(spec.gamma, static_cast<double>(decays));
}

double cosine_restarts(const ScheduleSpec& spec, std::int64_t step) {
  auto made = static_cast<double>(step - spec.warmup - 1), period = static_cast<double>(spec.period);
  if (spec.period_factor == 1) made = std::fmod(made, period);
  for (; made >= period; period *= static_cast<double>(spec.period_factor)) made -= period;
  return cosine_from(1, spec.end, made / period);
}

// The last step of the rise, counted from 0.
double rise_end(const ScheduleSpec& spec) {
  return (spec.warmup > 0 ? static_cast<double>(spec.warmup)
                          : spec.pct_start * static_cast<double>(spec.total)) -
         1.0;
}

double one_cycle(const ScheduleSpec& spec, std::int64_t step) {
  struct Phase {
    double end, from, to;
  };
  const double start = 1.0 / spec.div_factor, least = start / spec.final_div_factor, peak = rise_end(spec),
               last = static_cast<double>(spec.total - 1);
  const std::vector<Phase> phases =
      spec.three_phase ? std::vector<Phase>{{peak, start, 1}, {2 * peak, 1, start}, {last, start, least}}
                       : std::vector<Phase>{{peak, start, 1}, {last, 1, least}};
  const double made = std::min(static_cast<double>(step - 1), last);
  double begin = 0;
  for (const Phase& phase : phases) {
    if (made > phase.end && &phase != &phases.back()) {
      begin = phase.end;
      continue;
    }
    const double part = phase.end > begin ? (made - begin) / (phase.end - begin) : 1;
    return spec.linear ? phase.from + (phase.to - phase.from) * part
                       : cosine_from(phase.from, phase.to, part);
  }
  return least;
}

// ---- the table ----

using Spec = ScheduleSpec;
constexpr double kMost = 1e308;

constexpr ScheduleOption kTotal{"total",     "step at which the final factor is reached", "steps", 0, kMost,
                                &Spec::total},
    kEnd{"end", "final factor", "", 0, 1e308, &Spec::end};
constexpr ScheduleOption kFalling[] = {kTotal, kEnd};
constexpr ScheduleOption kPolynomial[] = {
    {"total", "step after which the final factor is reached", "steps", 0, kMost, &Spec::total},
    kEnd,
    {"power", "exponent of what is left", "", 0, 1e308, &Spec::power}};
constexpr ScheduleOption kSteps[] = {
    {"step_size", "steps between two falls", "steps", 1, kMost, &Spec::step_size},
    {"gamma", "factor of a fall", "", 0, 1e308, &Spec::gamma}};
constexpr ScheduleOption kRestarts[] = {
    {"period", "steps from the start to the first restart", "steps", 1, kMost, &Spec::period},
    {"period_factor", "how many times longer each period is than the one before", "", 1, kMost,
     &Spec::period_factor},
    {"end", "factor before a restart", "", 0, 1e308, &Spec::end}};
constexpr ScheduleOption kOneCycle[] = {
    {"total", "steps of the whole cycle", "steps", 0, kMost, &Spec::total},
    {"pct_start", "part of the steps in which the rate rises, where warmup is 0", "", 0, 1, &Spec::pct_start},
    {"div_factor", "1 over the first factor", "", 1e-300, 1e308, &Spec::div_factor},
    {"final_div_factor", "first factor over the last one", "", 1e-300, 1e308, &Spec::final_div_factor},
    {"linear", "straight lines instead of half cosines", "", 0, 1, &Spec::linear},
    {"three_phase", "fall to the first factor in as many steps as the rise, then to the last one", "", 0, 1,
     &Spec::three_phase}};

constexpr ScheduleDef kSchedules[] = {
    {"constant", "the same rate for all steps", constant, false, "1", "", {}},
    {"linear", "a straight line", linear, false, "1 + (end - 1) min(1, n / (total - warmup))", "", kFalling},
    {"cosine", "half a cosine", cosine, false,
     "end + (1 - end) (1 + cos(pi min(1, n / (total - warmup)))) / 2", "", kFalling},
    {"polynomial", "a power of what is left", polynomial, false,
     "end + (1 - end) (1 - min(1, (n - 1) / (total - warmup)))^power",
     "PolynomialLR(total_iters=total - warmup, power)", kPolynomial},
    {"step", "a fall every some steps", steps, false, "gamma^floor((n - 1) / step_size)",
     "StepLR(step_size, gamma)", kSteps},
    {"cosine-restarts", "half cosines one after the other", cosine_restarts, false,
     "end + (1 - end) (1 + cos(pi c / T)) / 2, c the steps made in a period and T its length",
     "CosineAnnealingWarmRestarts(T_0=period, T_mult=period_factor, eta_min=lr end)", kRestarts},
    {"one-cycle", "a rise and a deep fall", one_cycle, true,
     "from 1 / div_factor to 1 at step warmup, to 1 / (div_factor final_div_factor) at step total, by half cosines",
     "OneCycleLR(max_lr=lr, total_steps=total, pct_start=warmup / total, cycle_momentum=False)", kOneCycle},
};

const ScheduleDef* find_schedule(const std::string& name) {
  for (const ScheduleDef& def : kSchedules)
    if (name == def.name) return &def;
  return nullptr;
}

// What a schedule's options must be together.
Status check(const ScheduleDef& def, const ScheduleSpec& spec) {
  const auto refuse = [&](const std::string& why) {
    return Error{Errc::usage, "schedule " + spec.name + ": " + why};
  };
  const auto lists = [&](std::string_view option) {
    return std::any_of(def.options.begin(), def.options.end(),
                       [&](const ScheduleOption& o) { return option == o.name; });
  };
  if (lists("total") && spec.total <= spec.warmup) return refuse("total must be larger than warmup");
  if (lists("period") && spec.period < 1) return refuse("period must be at least 1");
  if (def.own_warmup && spec.three_phase && 2 * rise_end(spec) >= static_cast<double>(spec.total - 1))
    return refuse("three_phase needs a rise of less than half of total");
  return {};
}

}  // namespace

std::span<const ScheduleDef> all_schedules() { return kSchedules; }

void ScheduleSpec::fields(FieldVisitor& v) {
  const ScheduleDef* const def = find_schedule(name);
  const bool own = def != nullptr && def->own_warmup;
  v.field("warmup", warmup,
          {.help = own ? "steps of the rise; 0: pct_start of total" : "steps of linear warm-up",
           .unit = "steps",
           .min = 0});
  if (def == nullptr) return;
  for (const ScheduleOption& option : def->options)
    std::visit(
        [&](auto member) {
          v.field(option.name, this->*member,
                  {.help = option.help, .unit = option.unit, .min = option.least, .max = option.most});
        },
        option.member);
}

double ScheduleSpec::factor(std::int64_t step) const {
  const ScheduleDef* const def = find_schedule(name);
  const bool own = def != nullptr && def->own_warmup;
  if (!own && warmup > 0 && step <= warmup) return static_cast<double>(step) / static_cast<double>(warmup);
  return def != nullptr ? def->factor(*this, step) : 1;
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
  TRY(check(*def, spec));
  return spec;
}

}  // namespace gradloom
