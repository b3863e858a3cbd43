#include "app/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/advice/subject.h"
#include "app/recipe_flags.h"
#include "app/roofline.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/plan/launches.h"
#include "profiler/environment.h"
#include "sessions/run_environment.h"

namespace gradloom {
namespace {

constexpr SpeedUpKind kSpeedKinds[] = {
    {"op", "Operator", SpeedUp::Of::op, true},          {"kernel", "Kernel type", SpeedUp::Of::kernel, true},
    {"node", "Node", SpeedUp::Of::node, true},          {"scope", "Scope", SpeedUp::Of::scope, true},
    {"phase", "Phase", SpeedUp::Of::phase, true},       {"launch", "Launches", SpeedUp::Of::launch, false},
    {"link", "Link of ranks", SpeedUp::Of::link, false}};
constexpr double kLeastFactor = 1e-3, kMostFactor = 1e6;
// What is told from roofs alone lies within these of it.
constexpr double kRoofLow = 0.7, kRoofHigh = 1.5;
// By which the median step of one run differs from that of another of the same plan, on a quiet machine.
constexpr double kRunToRun = 0.05;

const SpeedUpKind& speed_kind_of(SpeedUp::Of of) {
  return *std::find_if(std::begin(kSpeedKinds), std::end(kSpeedKinds),
                       [&](const SpeedUpKind& k) { return k.of == of; });
}

std::string speed_up_text(const SpeedUp& up) {
  const SpeedUpKind& k = speed_kind_of(up.of);
  return std::string(k.name) + (k.pattern ? ":" + escaped(up.pattern) : "") + " " + number_text(up.factor) +
         "x";
}

bool fits(const SpeedUp& up, const KernelInfo& kernel) {
  switch (up.of) {
    case SpeedUp::Of::op: return glob_match(up.pattern, kernel.op);
    case SpeedUp::Of::kernel: return glob_match(up.pattern, kernel.kernel);
    case SpeedUp::Of::node: return glob_match(up.pattern, kernel.node);
    case SpeedUp::Of::scope:
      return glob_match(up.pattern, kernel.scope) || glob_match(up.pattern + "/*", kernel.scope);
    case SpeedUp::Of::phase: return glob_match(up.pattern, kernel.phase);
    case SpeedUp::Of::launch:
    case SpeedUp::Of::link: return false;
  }
  return false;
}

// Of all kernels of a plan one factor each.
Result<std::vector<double>> factors_of(const std::vector<SpeedUp>& ups,
                                       const std::vector<KernelInfo>& kernels) {
  std::vector<double> factors(kernels.size(), 1);
  for (const SpeedUp& up : ups) {
    if (!speed_kind_of(up.of).pattern) continue;
    bool any = false;
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      if (!fits(up, kernels[i])) continue;
      factors[i] *= up.factor;
      any = true;
    }
    if (!any) return Error{Errc::usage, "--speed " + speed_up_text(up) + ": no kernel of the plan fits"};
  }
  return factors;
}

double factor_of(const std::vector<SpeedUp>& ups, SpeedUp::Of of) {
  double factor = 1;
  for (const SpeedUp& up : ups)
    if (up.of == of) factor *= up.factor;
  return factor;
}

// Settings apart from the number of ranks, which exchanges are predicted for.
std::string without_ranks(const std::string& changes) {
  std::string rest;
  for (const std::string& part : split_top_level(changes, ';'))
    if (!part.starts_with("ranks=")) rest += (rest.empty() ? "" : ";") + part;
  return rest;
}

class Answerer {
 public:
  Answerer(Subject& subject, const WhatIf& question, std::stop_token stop)
      : subject_(subject), question_(question), stop_(std::move(stop)) {}
  Result<WhatIfAnswer> run();

 private:
  struct Launch {
    const KernelInfo* kernel = nullptr;
    double before_ns = 0, after_ns = 0;  // in the job; in the changed one
  };
  Status settle();
  Status sped_up();
  Status on_hardware();
  Status add_ranks();
  // What kernels wait for exchanges, and by whose figures.
  struct Exposed {
    double ns = 0;
    std::string figures;
  };
  Result<Exposed> exposed(const Recipe& recipe, const std::optional<Hardware>& on, double link_factor) const;
  void add_parts();
  const Candidate& changed() const { return changed_ != nullptr ? changed_->candidate : subject_.job(); }

  Subject& subject_;
  const WhatIf& question_;
  std::stop_token stop_;
  const ChangedJob* changed_ = nullptr;  // null: the job itself
  std::string changes_;                  // with the device that the other processor needs, without ranks
  std::vector<double> after_;            // ns of the changed job's launches
  WhatIfAnswer answer_;
};

Status Answerer::settle() {
  answer_.times = subject_.times();
  answer_.before_ns = subject_.step_ns();
  answer_.before_peak_bytes = subject_.job().peak_bytes;
  std::string& changes = changes_ = without_ranks(question_.changes);
  const bool on_gpu = subject_.recipe().device != "cpu";
  if (question_.on && question_.on->is_gpu() && !on_gpu)
    changes += std::string(changes.empty() ? "" : ";") + "device=cuda:0";
  if (!changes.empty()) {
    changed_ = TRY(subject_.changed(changes));
    // The work of the job itself, or an impossible change: that is what was asked for, and why.
    if (changed_ == nullptr) TRY(changed_job(subject_.recipe(), changes, stop_));
  }
  const Candidate& c = changed();
  Gain gain;
  if (changed_ != nullptr) gain = changed_->gain;
  answer_.samples = c.samples;
  answer_.known = gain.known;
  const auto step = [&](double gain_ns) {
    return std::max(kLeastLeft * answer_.before_ns, answer_.before_ns - gain_ns) * c.samples;
  };
  answer_.after_ns = step(gain.ns);
  answer_.low_ns = (1 - kRunToRun) * step(gain.high_ns);
  answer_.high_ns = (1 + kRunToRun) * step(gain.low_ns);
  answer_.after_peak_bytes = c.peak_bytes;
  answer_.recipe = c.recipe;
  answer_.plan_hash = c.plan_hash;
  if (c.recipe.precision != subject_.recipe().precision && !subject_.predictor().types_measured())
    answer_.note = percent_text(answer_.known) +
                   " of what differs was measured; what another type makes of kernels is told " +
                   (subject_.recipe().device == "cpu" ? "as of other processors" : "by its width alone") +
                   " (gradloom devices --measure finds it for this one)";
  for (const KernelInfo& kernel : c.kernels) after_.push_back(subject_.predictor().ns(kernel));
  return {};
}

// The launches of kernels stand beside them all, but on a GPU that its data sheet tells: there each is told with its own.
Status Answerer::sped_up() {
  const Candidate& c = changed();
  const std::vector<double> factors = TRY(factors_of(question_.speed_ups, c.kernels));
  const bool within = question_.on && question_.on->is_gpu();
  const double launch_factor = factor_of(question_.speed_ups, SpeedUp::Of::launch),
               beside_ns =
                   within ? 0 : subject_.predictor().launch_ns() * static_cast<double>(c.kernels.size());
  double saved = beside_ns * (1 - 1 / launch_factor);
  for (std::size_t i = 0; i < after_.size(); ++i) {
    const auto launches = static_cast<double>(device_kernels(c.kernels[i].launches));
    const double launch_ns = within ? std::min(after_[i], launches * question_.on->launch_ns) : 0,
                 ns = (after_[i] - launch_ns) / factors[i] + launch_ns / launch_factor;
    saved += after_[i] - ns;
    after_[i] = ns;
  }
  // What is unsure of a step is so of what is left of it.
  const double left = answer_.after_ns > 0 ? std::max(0.0, 1 - saved / answer_.after_ns) : 1;
  for (double* ns : {&answer_.after_ns, &answer_.low_ns, &answer_.high_ns}) *ns *= left;
  return {};
}

// Where its roofs are data sheets', what kernels took here says nothing; else each takes as much longer or shorter as its roof is.
Status Answerer::on_hardware() {
  if (!question_.on) return {};
  const Hardware& there = *question_.on;
  const Candidate& c = changed();
  const std::string& precision = answer_.recipe.precision;
  const double launches = static_cast<double>(c.kernels.size());
  double kernels_ns = 0;
  if (there.is_gpu()) {
    for (std::size_t i = 0; i < after_.size(); ++i)
      kernels_ns += after_[i] = kernel_bound(there, c.kernels[i], precision).expected_ns;
    answer_.after_ns = kernels_ns;
    answer_.note = "told from " + escaped(there.source) + " alone: no kernel was measured there";
  } else {
    const Hardware here = subject_.run() != nullptr ? TRY(hardware_of_run(*subject_.run(), ""))
                                                    : TRY(hardware_of_plan(subject_.recipe(), ""));
    for (std::size_t i = 0; i < after_.size(); ++i) {
      const double before = kernel_bound(here, c.kernels[i], precision).least_ns;
      if (before > 0) after_[i] *= kernel_bound(there, c.kernels[i], precision).least_ns / before;
      kernels_ns += after_[i];
    }
    answer_.after_ns = kernels_ns + subject_.predictor().launch_ns() * launches;
    answer_.note = "each kernel is scaled by its roofs here and there";
  }
  answer_.known = 0;
  answer_.low_ns = kRoofLow * answer_.after_ns;
  answer_.high_ns = kRoofHigh * answer_.after_ns;
  return {};
}

Result<Answerer::Exposed> Answerer::exposed(const Recipe& of, const std::optional<Hardware>& on,
                                            double link_factor) const {
  if (of.ranks <= 1) return Exposed();
  Recipe recipe = of;
  if (recipe.kernel_times.empty()) recipe.kernel_times = subject_.predictor().model().times();
  const auto prepared = TRY(prepare(recipe, stop_));
  const std::string hardware = subject_.run() != nullptr ? environment_row(*subject_.run(), "hardware") : "";
  Cluster cluster = cluster_of(question_.cluster, *prepared, on, hardware);
  for (Link* link : {&cluster.link, &cluster.local}) {
    link->bytes_per_ns *= link_factor;
    link->latency_ns /= link_factor;
  }
  return Exposed{predict_exposed_ns(*prepared, cluster), cluster.figures};
}

Status Answerer::add_ranks() {
  Recipe recipe = subject_.recipe();
  TRY(RecipeFlags::override_with(recipe, changes_));
  TRY(RecipeFlags::override_with(recipe, question_.changes));
  if (recipe.ranks <= 1 && subject_.recipe().ranks <= 1) return {};
  // A measured step has waited for its own, also as it is scaled to another CPU; what is told of a GPU is kernels alone.
  const bool kernels_alone = question_.on && question_.on->is_gpu();
  const Exposed before = kernels_alone ? Exposed() : TRY(exposed(subject_.recipe(), std::nullopt, 1)),
                after = TRY(exposed(recipe, question_.on, factor_of(question_.speed_ups, SpeedUp::Of::link)));
  answer_.exposed_ns = after.ns;
  answer_.figures = after.figures;
  const double more = after.ns - before.ns;
  answer_.after_ns = std::max(0.0, answer_.after_ns + more);
  answer_.low_ns = std::max(0.0, answer_.low_ns + more - std::abs(more) / 2);
  answer_.high_ns += more + std::abs(more) / 2;
  answer_.recipe.ranks = recipe.ranks;
  if (recipe.ranks != subject_.recipe().ranks)
    answer_.plan_hash = TRY(prepare(recipe, stop_))->compiled.plan.hash;
  return {};
}

void Answerer::add_parts() {
  std::map<std::string, WhatIfPart> phases, ops;
  const auto add = [&](const KernelInfo& kernel, double before_ns, double after_ns, bool after) {
    for (auto& [map, key] : {std::pair(&phases, &kernel.phase), std::pair(&ops, &kernel.op)}) {
      WhatIfPart& part = (*map)[*key];
      part.name = *key;
      part.before_ns += before_ns;
      part.after_ns += after_ns;
      ++(after ? part.after : part.before);
    }
  };
  for (const KernelInfo& kernel : subject_.job().kernels)
    add(kernel, subject_.predictor().ns(kernel), 0, false);
  for (std::size_t i = 0; i < after_.size(); ++i) add(changed().kernels[i], 0, after_[i], true);
  for (auto& [map, list] : {std::pair(&phases, &answer_.phases), std::pair(&ops, &answer_.ops)}) {
    for (const auto& [_, part] : *map) list->push_back(part);
    std::stable_sort(list->begin(), list->end(), [](const WhatIfPart& a, const WhatIfPart& b) {
      return std::abs(a.after_ns - a.before_ns) > std::abs(b.after_ns - b.before_ns);
    });
  }
}

Result<WhatIfAnswer> Answerer::run() {
  TRY(settle());
  TRY(on_hardware());
  TRY(sped_up());
  TRY(add_ranks());
  add_parts();
  return std::move(answer_);
}

}  // namespace

std::span<const SpeedUpKind> speed_up_kinds() { return kSpeedKinds; }

Result<SpeedUp> parse_speed_up(const std::string& text) {
  const auto refuse = [&](const std::string& why) {
    return Error{Errc::usage, "--speed '" + escaped(text) + "': " + why +
                                  " (op:GLOB=FACTOR; also kernel:, node:, scope:, phase:, launch=, link=)"};
  };
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos) return refuse("no factor");
  const auto factor = parse_number<double>(text.substr(equals + 1));
  if (!factor || !(*factor >= kLeastFactor && *factor <= kMostFactor))
    return refuse("the factor is a number from 0.001 to 1000000");
  const std::string what = text.substr(0, equals);
  const std::size_t colon = what.find(':');
  for (const SpeedUpKind& k : kSpeedKinds) {
    if (what.substr(0, colon) != k.name) continue;
    if (k.pattern != (colon != std::string::npos))
      return refuse(k.pattern ? "no pattern" : "it takes no pattern");
    const std::string pattern = k.pattern ? what.substr(colon + 1) : "";
    if (k.pattern && pattern.empty()) return refuse("no pattern");
    return SpeedUp{k.of, pattern, *factor};
  }
  return refuse("it is none of what can be faster");
}

std::string WhatIf::text() const {
  std::string said;
  const auto add = [&](const std::string& part) { said += (said.empty() ? "" : "; ") + part; };
  if (!changes.empty()) add(escaped(changes));
  for (const SpeedUp& up : speed_ups) add(speed_up_text(up));
  if (on) add("on " + escaped(on->name));
  return said;
}

Result<WhatIfAnswer> what_if(const Recipe& job, const RunRecord* run, const WhatIf& question,
                             const AdviceOptions& options, std::stop_token stop) {
  for (const SpeedUp& up : question.speed_ups) {
    Recipe changed = job;
    TRY(RecipeFlags::override_with(changed, question.changes));
    if (up.of == SpeedUp::Of::link && changed.ranks <= 1)
      return Error{Errc::usage, "--speed link: one rank has no link (ranks=N among the settings)"};
  }
  Recipe changed = job;
  TRY(RecipeFlags::override_with(changed, question.changes));
  if (changed.threads != job.threads)
    return Error{Errc::usage,
                 "kernels on another number of threads cannot be told from these: compare --b "
                 "threads=N measures them"};
  const auto subject = TRY(Subject::of(job, run, options, stop));
  return Answerer(*subject, question, std::move(stop)).run();
}

KeptPrediction kept_prediction(const WhatIf& question, const WhatIfAnswer& answer) {
  const bool can_be_run = question.speed_ups.empty() && !question.on;
  const Recipe& r = answer.recipe;
  return {.question = question.text(),
          .plan_hash = can_be_run ? answer.plan_hash : "",
          .hardware = hardware_text_here(r.device, static_cast<int>(r.threads)),
          .step_ns = answer.before_ns,
          .predicted_ns = answer.after_ns,
          .low_ns = answer.low_ns,
          .high_ns = answer.high_ns,
          .recipe_json = recipe_json(r)};
}

Result<std::vector<PredictionScore>> score_predictions(Store& store) {
  std::vector<PredictionScore> scores;
  const std::vector<RunSummary> runs = TRY(store.list_runs());
  for (KeptPrediction& prediction : TRY(store.list_predictions())) {
    PredictionScore score{std::move(prediction)};
    for (const RunSummary& run : runs) {
      const KeptPrediction& p = score.prediction;
      if (p.plan_hash.empty() || run.plan_hash != p.plan_hash || run.started_utc < p.created_utc) continue;
      if (run.median_step_ns <= 0) continue;
      const auto environment = TRY(store.environment(run.id));
      const auto hardware = environment.find("hardware");
      if (hardware == environment.end() || hardware->second != p.hardware) continue;
      score.run = run.id;
      score.measured_ns = static_cast<double>(run.median_step_ns);
      break;
    }
    scores.push_back(std::move(score));
  }
  return scores;
}

namespace {

Json parts_json(const std::vector<WhatIfPart>& parts) {
  Json rows = Json::array();
  for (const WhatIfPart& p : parts)
    rows.push_back({{"name", p.name},
                    {"before_ns", p.before_ns},
                    {"after_ns", p.after_ns},
                    {"kernels_before", p.before},
                    {"kernels_after", p.after}});
  return rows;
}

std::string parts_table(const char* what, const std::vector<WhatIfPart>& parts, std::size_t most) {
  std::vector<std::vector<std::string>> rows;
  for (const WhatIfPart& p : parts) {
    if (rows.size() >= most) break;
    const double change = p.after_ns - p.before_ns;
    rows.push_back({escaped(p.name), std::to_string(p.before), std::to_string(p.after),
                    duration_text(p.before_ns), duration_text(p.after_ns),
                    (change < 0 ? "-" : "+") + duration_text(std::abs(change))});
  }
  return table_text({what, "kernels", "then", "time", "then", "change"}, rows);
}

}  // namespace

Json answer_json(const WhatIf& question, const WhatIfAnswer& a) {
  Json json = {
      {"question", question.text()},
      {"times", a.times},
      {"step_ns", a.before_ns},
      {"predicted_ns", a.after_ns},
      {"low_ns", a.low_ns},
      {"high_ns", a.high_ns},
      {"samples", a.samples},
      {"ratio", {{"value", a.ratio(a.after_ns)}, {"low", a.ratio(a.high_ns)}, {"high", a.ratio(a.low_ns)}}},
      {"measured", a.known},
      {"exposed_ns", a.exposed_ns},
      {"figures", a.figures},
      {"plan_peak_bytes", a.before_peak_bytes},
      {"predicted_peak_bytes", a.after_peak_bytes},
      {"plan_hash", a.plan_hash},
      {"note", a.note}};
  json["phases"] = parts_json(a.phases);
  json["ops"] = parts_json(a.ops);
  return json;
}

std::string answer_text(const WhatIf& question, const WhatIfAnswer& a) {
  constexpr std::size_t kMostOps = 12;
  std::string text = "a step takes  " + duration_text(a.before_ns) + " (" + a.times + ")\n";
  text += "what if       " + question.text() + "\n";
  text += fmt::format("predicted     {} [{}, {}]", duration_text(a.after_ns), duration_text(a.low_ns),
                      duration_text(a.high_ns));
  text +=
      fmt::format(", {:.3f}x [{:.3f}, {:.3f}]", a.ratio(a.after_ns), a.ratio(a.high_ns), a.ratio(a.low_ns));
  if (a.samples != 1) text += ", a step of " + number_text(a.samples) + " times as many samples";
  text += "\n";
  if (a.note.empty())
    text += "rests on      " + percent_text(a.known) + " of what differs was measured\n";
  else
    text += "rests on      " + a.note + "\n";
  if (a.exposed_ns > 0)
    text += "exchanges     kernels wait " + duration_text(a.exposed_ns) + " of a step (" + a.figures + ")\n";
  text += "peak          " + bytes_text(static_cast<double>(a.before_peak_bytes)) + " -> " +
          bytes_text(static_cast<double>(a.after_peak_bytes)) + "\n";
  text += "\n" + parts_table("phase", a.phases, a.phases.size()) + "\n\n" +
          parts_table("operator", a.ops, kMostOps);
  return text;
}

double median_error(const std::vector<PredictionScore>& scores) {
  std::vector<double> errors;
  for (const PredictionScore& s : scores)
    if (s.run > 0) errors.push_back(std::abs(s.error()));
  return errors.empty() ? std::nan("") : median(errors);
}

std::string measuring_command(const KeptPrediction& prediction, const std::string& session) {
  if (prediction.plan_hash.empty()) return {};
  const auto recipe = parse_recipe(prediction.recipe_json);
  return recipe ? command_line(*recipe, {.session = session}) : std::string();
}

Json scores_json(const std::vector<PredictionScore>& scores, const std::string& session) {
  Json rows = Json::array();
  for (const PredictionScore& s : scores) {
    const KeptPrediction& p = s.prediction;
    rows.push_back({{"created", p.created_utc},
                    {"question", p.question},
                    {"predicted_ns", p.predicted_ns},
                    {"low_ns", p.low_ns},
                    {"high_ns", p.high_ns},
                    {"run", s.run > 0 ? Json(s.run) : Json(nullptr)}});
    if (s.run > 0) {
      rows.back()["measured_ns"] = s.measured_ns;
      rows.back()["error"] = s.error();
      rows.back()["in_range"] = s.in_range();
    } else {
      rows.back()["measure"] = measuring_command(p, session);
    }
  }
  return {{"predictions", rows}, {"median_error", json_number(median_error(scores))}};
}

std::string scores_text(const std::vector<PredictionScore>& scores) {
  if (scores.empty()) return "no predictions";
  std::vector<std::vector<std::string>> rows;
  std::int64_t measured = 0, in_range = 0;
  for (const PredictionScore& s : scores) {
    const KeptPrediction& p = s.prediction;
    const bool run = s.run > 0;
    measured += run ? 1 : 0;
    in_range += run && s.in_range() ? 1 : 0;
    rows.push_back({escaped(p.question), duration_text(p.predicted_ns),
                    "[" + duration_text(p.low_ns) + ", " + duration_text(p.high_ns) + "]",
                    run                   ? std::to_string(s.run)
                    : p.plan_hash.empty() ? "-"
                                          : "not yet",
                    run ? duration_text(s.measured_ns) : "-",
                    run ? fmt::format("{:+.1f} %", 100 * s.error()) : "-",
                    run ? (s.in_range() ? "yes" : "no") : "-"});
  }
  std::string text =
      table_text({"what if", "predicted", "range", "run", "measured", "error", "in range"}, rows);
  if (measured > 0)
    text += fmt::format("\n\nmedian error {:.1f} % over {}, {} in their range", 100 * median_error(scores),
                        plural_text(measured, "prediction"), in_range);
  return text;
}

}  // namespace gradloom
