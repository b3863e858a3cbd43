#include "app/advice/advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/advice/subject.h"
#include "app/roofline.h"
#include "engine/base/text.h"
#include "engine/device/device.h"
#include "kernels/prepared/bf16.h"
#include "profiler/environment.h"
#include "sessions/read_nsys.h"

namespace gradloom {
namespace {

constexpr std::size_t kMostTimed = 8;

// A first look by prediction, and then, while there is time, one after each change that was timed.
class Adviser {
 public:
  Adviser(Subject& subject, const AdviceOptions& options, const TellAdvice& tell)
      : subject_(subject), options_(options), tell_(tell), start_ns_(monotonic_ns()) {}

  Result<Advice> run() {
    Findings found = TRY(look(true));
    std::set<std::string> timed;
    while (subject_.can_time() && timed.size() < kMostTimed && seconds() < options_.seconds) {
      const std::string next = most_promising(found, timed);
      if (next.empty()) break;
      say(static_cast<double>(timed.size()) / kMostTimed, "timing " + next);
      timed.insert(next);
      TRY(subject_.time(next));
      found = TRY(look(false));
    }
    Advice advice;
    advice.step_ns = subject_.step_ns();
    advice.kernels_ns = subject_.predictor().kernels_ns();
    advice.times = subject_.times();
    if (subject_.can_time() && !options_.machine.disturbed.empty())
      advice.notes.push_back(options_.machine.disturbed);
    for (Finding& finding : found) keep(advice, std::move(finding));
    return advice;
  }

 private:
  double seconds() const { return static_cast<double>(monotonic_ns() - start_ns_) * 1e-9; }
  void say(double fraction, const std::string& what) const {
    if (tell_) tell_({fraction, what});
  }

  Result<Findings> look(bool tell) {
    Findings found;
    const auto rules = advice_rules();
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (tell) say(static_cast<double>(i) / static_cast<double>(rules.size()), rules[i].name);
      const std::size_t before = found.size();
      TRY(rules[i].find(subject_, found));
      for (std::size_t k = before; k < found.size(); ++k) {
        found[k].rule = rules[i].name;
        for (double* ns : {&found[k].gain.ns, &found[k].gain.low_ns, &found[k].gain.high_ns})
          *ns = std::min(*ns, (1 - kLeastLeft) * subject_.step_ns());
      }
    }
    // What is paid once is the most of a short run, and nothing of a long one: what each step gains comes first.
    std::stable_sort(found.begin(), found.end(), [](const Finding& a, const Finding& b) {
      return a.once != b.once ? b.once : a.gain.ns > b.gain.ns;
    });
    return found;
  }

  // Of the changes that are none but predicted, the one that may gain most.
  std::string most_promising(const Findings& found, const std::set<std::string>& timed) {
    const Finding* best = nullptr;
    for (const Finding& finding : found) {
      if (finding.change.empty() || timed.count(finding.change) || !subject_.is_compiled(finding.change))
        continue;
      if (finding.gain.known > 0.99 || !subject_.matters(finding.gain.high_ns)) continue;
      if (best == nullptr || finding.gain.high_ns > best->gain.high_ns) best = &finding;
    }
    return best == nullptr ? "" : best->change;
  }

  void keep(Advice& advice, Finding finding) const {
    const bool memory_alone = finding.gain.ns <= 0 && finding.saved_bytes > 0 && finding.rule == "recompute";
    if (finding.gain.ns <= 0 && !memory_alone) return;
    if (memory_alone || subject_.share(finding.gain.ns) >= options_.least_share)
      advice.findings.push_back(std::move(finding));
    else
      ++advice.left_out;
  }

  Subject& subject_;
  const AdviceOptions& options_;
  const TellAdvice& tell_;
  const std::int64_t start_ns_;
};

std::string range_text(const Finding& f, double step_ns) {
  const auto part = [&](double ns) { return fmt::format("{:.1f}", 100 * ns / step_ns); };
  return fmt::format("{} of a step, {} % [{}, {}]{}", duration_text(f.gain.ns), part(f.gain.ns),
                     part(f.gain.low_ns), part(f.gain.high_ns),
                     f.gain.low_ns <= 0 ? ": it may be nothing" : "");
}

std::string finding_text(std::size_t number, const Finding& f, double step_ns) {
  std::string text = fmt::format("{}. {}\n", number, f.title);
  const auto line = [&](const char* name, const std::string& what) {
    if (!what.empty()) text += fmt::format("   {:<8} {}\n", name, what);
  };
  line("gain", f.gain.ns > 0 ? range_text(f, step_ns)
                             : bytes_text(static_cast<double>(f.saved_bytes)) + " of the peak");
  std::string numbers;
  for (const std::string& number_text : f.numbers) numbers += (numbers.empty() ? "" : "; ") + number_text;
  line("why", numbers);
  line("change", f.change);
  line("", f.remedy);
  line("prove", f.command);
  if (f.ratio > 0)
    line("expect", fmt::format("{:.3f}x [{:.3f}, {:.3f}]", f.ratio, f.ratio_low, f.ratio_high));
  return text;
}

}  // namespace

MachineFacts machine_of(const Recipe& job) {
  const Environment here = read_environment();
  MachineFacts machine{here.usable_cores, here.memory_bytes, kernels::has_bf16_products()};
  if (here.load_before > here.usable_cores + 0.5)
    machine.disturbed = fmt::format("{:.1f} processes on {} compete: times that are taken now are doubtful",
                                    here.load_before, plural_text(here.usable_cores, "usable processor"));
  const std::vector<DeviceInfo> devices = list_devices();
  for (const DeviceInfo& device : devices)
    if (device.id == job.device && device.queued) {
      machine.memory_bytes = device.memory_bytes;
      machine.fast_bf16 = true;
    }
  if (auto measured = hardware_of_plan(job, "", devices)) machine.types = std::move(measured->types);
  return machine;
}

Result<Advice> advise(const Recipe& job, const RunRecord* run, const AdviceOptions& options,
                      std::stop_token stop, const TellAdvice& tell) {
  if (tell) tell({0, options.time ? "timing the job's kernels" : "compiling"});
  const auto subject = TRY(Subject::of(job, run, options, std::move(stop)));
  Advice advice = TRY(Adviser(*subject, options, tell).run());
  if (run != nullptr)
    if (const auto cpu = run->environment.find("cpu_model");
        cpu != run->environment.end() && cpu->second != read_environment().cpu_model)
      advice.notes.push_back("the run's kernels were timed on another processor: " + cpu->second);
  return advice;
}

Result<std::optional<RunRecord>> asked_run(const std::string& subject, const std::string& run) {
  if (!is_sqlite_file(subject)) return std::optional<RunRecord>();
  const auto store = TRY(Store::open(subject, StoreMode::read));
  return std::optional(TRY(store->load_run(TRY(store->find_run(run)))));
}

Result<std::shared_ptr<const TraceDocument>> trace_of_run(const std::string& session, std::int64_t run) {
  const auto store = TRY(Store::open(session, StoreMode::read));
  return std::shared_ptr<const TraceDocument>(std::make_shared<TraceDocument>(TRY(store->load_trace(run))));
}

std::function<Result<TimedKernels>(const Recipe&)> time_some_steps(std::stop_token stop) {
  constexpr std::int64_t kSteps = 6;
  constexpr double kMostSeconds = 10;
  return [stop = std::move(stop)](const Recipe& recipe) {
    const std::int64_t start_ns = monotonic_ns();
    const auto slow = [&] { return static_cast<double>(monotonic_ns() - start_ns) * 1e-9 > kMostSeconds; };
    return time_kernels(recipe, kSteps, slow, stop);
  };
}

Result<Advice> advise_run(const RunRecord& run, const std::string& session, AdviceOptions options,
                          std::stop_token stop) {
  if (run.summary.is_loop()) return advise_loop(run, session, options);
  options.source = TRY(job_of_run(run, session));
  const Recipe job = options.source->recipe;
  options.machine = machine_of(job);
  options.trace = TRY(trace_of_run(session, run.summary.id));
  return advise(job, &run, options, std::move(stop), nullptr);
}

Json finding_json(const Finding& f, double step_ns) {
  const auto part = [&](double ns) { return json_number(step_ns > 0 ? ns / step_ns : 0); };
  Json json = {{"finding", f.rule},
               {"title", f.title},
               {"gain_ns", json_number(f.gain.ns)},
               {"low_ns", json_number(f.gain.low_ns)},
               {"high_ns", json_number(f.gain.high_ns)},
               {"gain", part(f.gain.ns)},
               {"low", part(f.gain.low_ns)},
               {"high", part(f.gain.high_ns)},
               {"measured", f.gain.known},
               {"saved_bytes", f.saved_bytes},
               {"node", f.node},
               {"numbers", f.numbers},
               {"change", f.change},
               {"remedy", f.remedy},
               {"command", f.command},
               {"compares", f.ratio > 0 && f.change != kEditedModel}};
  if (f.ratio > 0)
    json["expected_ratio"] = {{"value", json_number(f.ratio)},
                              {"low", json_number(f.ratio_low)},
                              {"high", json_number(f.ratio_high)}};
  return json;
}

Json summary_json(const Advice& advice, double least_share) {
  return {{"findings", advice.findings.size()},
          {"left_out", advice.left_out},
          {"least_share", least_share},
          {"step_ns", json_number(advice.step_ns)},
          {"kernels_ns", json_number(advice.kernels_ns)},
          {"times", advice.times},
          {"notes", advice.notes}};
}

std::string advice_text(const Advice& advice, double least_share) {
  std::string text = "a step takes " + duration_text(advice.step_ns);
  if (advice.kernels_ns > 0) text += ", its kernels " + duration_text(advice.kernels_ns);
  text += " (" + advice.times + ")\n";
  for (std::size_t i = 0; i < advice.findings.size(); ++i)
    text += "\n" + finding_text(i + 1, advice.findings[i], advice.step_ns);
  if (advice.findings.empty())
    text += "\nnothing was found that is worth " + percent_text(least_share) + " of a step\n";
  if (advice.left_out > 0)
    text += fmt::format("\n{} worth less than {} of a step: --all shows them\n",
                        plural_text(static_cast<std::int64_t>(advice.left_out), "finding"),
                        percent_text(least_share));
  text.pop_back();
  return text;
}

}  // namespace gradloom
