// A recorded training loop: what of its steps is spent outside the engine, which no setting of a job changes.
#include <fmt/format.h>

#include <algorithm>

#include "app/advice/subject.h"
#include "app/recipe_flags.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

// What would take a kind of time away, and how much of it at least and usually.
struct LoopRemedy {
  const char* kind;
  const char* title;  // "{}" is the time
  const char* remedy;
  double least, usual;
};

constexpr LoopRemedy kRemedies[] = {
    {"data", "the loop waits {} of a step for its batches",
     "make batches in other processes: DataLoader(.., num_workers=2, persistent_workers=True)", 0.3, 0.8},
    {"optimizer", "the optimizer in PyTorch takes {} of a step",
     "gradloom.torch.TrainStep(model, loss, optimizer) makes the update a part of the plan", 0, 0.5},
    {"compile", "tracing and compiling go on after the first steps: {} of a step",
     "cut or fill batches to few sizes, or keep more plans: gradloom.torch.Module(model, plans=64)", 0.5,
     0.9},
    {"outside", "modules that the engine refused compute {} of a step in PyTorch",
     "gradloom.torch.Module without fallback= names what they need", 0, 0.3},
    {"module", "modules that are not wrapped compute {} of a step in PyTorch",
     "wrap the outermost module: gradloom.torch.Module(model)", 0, 0.3},
    {"backward", "autograd of what PyTorch computes takes {} of a step",
     "wrap the outermost module, or gradloom.torch.TrainStep for the whole step", 0, 0.3},
    {"step", "Python takes {} of a step outside all that is known",
     "gradloom.torch.TrainStep makes a step one call", 0, 0.5},
    {"record", "recording itself takes {} of a step",
     "gradloom.record(.., profile=\"step\") times whole steps alone", 0.5, 0.9},
};

std::string rule_of(const LoopRemedy& remedy) { return std::string("loop_") + remedy.kind; }

std::string names_of(const LoopShares& loop, const std::string& kind) {
  std::string text;
  int named = 0;
  for (const LoopPart& part : loop.parts)
    if (part.kind == kind && !part.name.empty() && named++ < 3)
      text += (text.empty() ? "" : ", ") + escaped(part.name) + " " + duration_text(part.ns);
  return text;
}

}  // namespace

std::vector<std::string> loop_rule_names() {
  std::vector<std::string> names;
  for (const LoopRemedy& remedy : kRemedies) names.push_back(rule_of(remedy));
  return names;
}

Advice advise_loop(const RunRecord& run, const std::string& session, const AdviceOptions& options) {
  Advice advice;
  advice.times = "run " + std::to_string(run.summary.id);
  if (!run.loop) return advice;
  const LoopShares& loop = *run.loop;
  advice.step_ns = loop.step_ns;
  advice.kernels_ns = loop.kernel_ns;
  for (const LoopRemedy& remedy : kRemedies) {
    const double ns = loop.ns_of(remedy.kind);
    if (ns <= 0) continue;
    Finding finding;
    finding.rule = rule_of(remedy);
    finding.title = fmt::format(fmt::runtime(remedy.title), duration_text(ns));
    finding.gain = {remedy.usual * ns, remedy.least * ns, ns, 0};
    if (loop.share(finding.gain.ns) < options.least_share) {
      ++advice.left_out;
      continue;
    }
    finding.numbers.push_back(percent_text(loop.share(ns)) + " of " + duration_text(loop.step_ns) +
                              ", the engine " + percent_text(loop.engine_share()));
    if (const std::string names = names_of(loop, remedy.kind); !names.empty())
      finding.numbers.push_back(names);
    finding.remedy = remedy.remedy;
    finding.command = "gradloom show " + shell_quoted(session) + " --run " + std::to_string(run.summary.id);
    advice.findings.push_back(std::move(finding));
  }
  std::stable_sort(advice.findings.begin(), advice.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.gain.ns > b.gain.ns; });
  return advice;
}

}  // namespace gradloom
