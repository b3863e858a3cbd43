// What steps of a run wait for beside their kernels: batches and the rest of the host, and the launch of the next kernel.
#include <fmt/format.h>

#include "app/advice/subject.h"
#include "engine/base/text.h"
#include "sessions/stats.h"
#include "viz/model/step_idle.h"

namespace gradloom::advice {
namespace {

struct Waits {
  double host_ns = 0, launch_ns = 0, wall_ns = 0;  // medians over the timed steps, of the run's own rank
  std::size_t steps = 0;
};

// Without the first steps, and those before which data were evaluated: what they wait for is no step's own.
Waits waits_of(const RunRecord& run, const TraceDocument& trace) {
  const IdleReader reader(run, trace);
  std::set<std::int64_t> evaluated;
  for (const EvaluationRow& row : run.evaluations) evaluated.insert(row.step + 1);
  std::vector<double> host, launch, wall;
  for (const TraceStep& step : trace.steps) {
    if (step.step <= run.summary.last_warmup_step() || evaluated.count(step.step) != 0) continue;
    const StepIdle idle = reader.step(step.step);
    if (idle.lanes.empty()) continue;
    const IdleSums sums = idle.lanes.front().sums();
    host.push_back(sums.idle_ns[static_cast<std::size_t>(IdleCause::kHost)]);
    launch.push_back(sums.idle_ns[static_cast<std::size_t>(IdleCause::kLaunch)]);
    wall.push_back(sums.wall_ns);
  }
  return {median(host), median(launch), median(wall), host.size()};
}

std::string of_steps(const Waits& waits, double ns) {
  return fmt::format("{} of the {} of a timed step, by the median of {}", duration_text(ns),
                     duration_text(waits.wall_ns),
                     plural_text(static_cast<std::int64_t>(waits.steps), "step"));
}

// The step as it was timed is scaled to the run's usual ones, which nothing times.
Finding of_wait(const Subject& subject, const Waits& waits, double ns, std::string title) {
  Finding finding;
  finding.title = std::move(title);
  const double gain = ns / waits.wall_ns * subject.step_ns();
  finding.gain = {0.7 * gain, 0.2 * gain, gain, 0};
  finding.numbers.push_back("waits " + of_steps(waits, ns));
  return finding;
}

}  // namespace

Status find_waits(Subject& subject, Findings& found) {
  constexpr double kLeast = 0.05, kLeastLaunch = 0.15;
  const RunRecord* const run = subject.run();
  if (run == nullptr || subject.trace() == nullptr) return {};
  const Waits waits = waits_of(*run, *subject.trace());
  if (waits.steps == 0 || waits.wall_ns <= 0) return {};
  const std::string data = subject.recipe().data;
  if (waits.host_ns > kLeast * waits.wall_ns) {
    const bool made = data == "synthetic";
    Finding finding =
        of_wait(subject, waits, waits.host_ns,
                "kernels wait for the host at both ends of a step" +
                    std::string(made ? "" : ", where batches of " + escaped(data) + " are taken"));
    if (made) {
      finding.remedy = "fewer, larger steps (batch, accumulate) spread what the host does once a step";
      finding.command = "gradloom train " + subject.job_flags() + " --profile all";
    } else {
      finding.change = "data=synthetic";
      finding.command = subject.command(finding.change);
      finding.remedy =
          "with synthetic data it shows what the batches cost; then keep them in one .npz (in memory) "
          "or .npy files (read where they lie) on a fast disk";
      subject.set_ratio(finding);
    }
    found.push_back(std::move(finding));
  }
  if (waits.launch_ns > kLeastLaunch * waits.wall_ns) {
    const auto launches = static_cast<double>(subject.job().kernels.size());
    Finding finding =
        of_wait(subject, waits, waits.launch_ns, "kernels wait to be launched, one after the other");
    finding.gain = {0.5 * finding.gain.ns, 0, finding.gain.high_ns, 0};
    finding.numbers.push_back(fmt::format("{:.0f} launches of {} each, kernels of {} on average", launches,
                                          duration_text(waits.launch_ns / launches),
                                          duration_text(subject.predictor().kernels_ns() / launches)));
    finding.remedy = "fewer kernels (passes) or longer ones (batch): the findings beside this say which";
    finding.command = "gradloom train " + subject.job_flags() + " --profile all";
    found.push_back(std::move(finding));
  }
  return {};
}

}  // namespace gradloom::advice
