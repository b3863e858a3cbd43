// gradloom advise: what would make a job or a recorded run faster, by how much, and how to prove it.
#include <CLI/CLI.hpp>

#include "app/advice/advice.h"
#include "app/commands/commands.h"
#include "app/recipe_flags.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

struct AdviseArguments {
  RecipeFlags recipe;
  std::string subject, run = "last";
  double least_percent = 1, seconds = 20;
  bool all = false, no_steps = false, progress = false;
};

Status report_advice(const CommandContext& context, const Advice& advice, double least_share) {
  for (const std::string& note : advice.notes) context.out.note(escaped(note));
  for (const Finding& finding : advice.findings) context.out.object(finding_json(finding, advice.step_ns));
  context.out.object({{"summary", summary_json(advice, least_share)}});
  context.out.text(advice_text(advice, least_share));
  return {};
}

}  // namespace

CommandRun declare_advise(CLI::App& app) {
  auto options = std::make_shared<AdviseArguments>();
  app.add_option("JOB", options->subject,
                 "ONNX file, a folder that verify wrote, or a session (may come from --recipe)");
  options->recipe.declare(app, false);
  app.add_option("--run", options->run, "of a session: number or name of a run, or last");
  app.add_option("--least", options->least_percent, "per cent of a step: what promises less is left out")
      ->check(CLI::Range(0.0, 100.0));
  app.add_flag("--all", options->all, "leave nothing out that promises anything");
  app.add_option("--seconds", options->seconds, "time for trying the changes that promise most")
      ->check(CLI::Range(0.0, 86400.0));
  app.add_flag("--no-steps", options->no_steps, "make no step: predict from the times of --costs alone");
  app.add_flag("--progress", options->progress,
               "with --json: also a line {\"event\":\"progress\",...} for each thing that is looked at");
  return [options](CommandContext& context) -> Status {
    AdviseArguments& o = *options;
    AdviceOptions settings;
    settings.least_share = o.all ? 0 : o.least_percent / 100;
    settings.seconds = o.seconds;
    const std::optional<RunRecord> run = TRY(asked_run(o.subject, o.run));
    if (run && run->summary.is_loop())
      return report_advice(context, advise_loop(*run, o.subject, settings), settings.least_share);
    if (!run) o.recipe.set_model(o.subject);
    settings.source = TRY(o.recipe.source());
    if (run && !settings.source) settings.source = TRY(job_of_run(*run, o.subject));
    if (settings.source && !settings.source->note.empty()) context.out.note(settings.source->note);
    const Recipe job =
        settings.source ? TRY(o.recipe.over(settings.source->recipe)) : TRY(o.recipe.resolve());
    settings.machine = machine_of(job);
    if (run) settings.trace = TRY(trace_of_run(o.subject, run->summary.id));
    if (!run && job.costs.empty() && !o.no_steps) settings.time = time_some_steps(context.stop);
    const auto tell = [&](const AdviceProgress& p) {
      context.out.progress("advise", p.fraction, p.what);
      if (o.progress) context.out.object({{"event", "progress"}, {"fraction", p.fraction}, {"what", p.what}});
    };
    const auto advice = advise(job, run ? &*run : nullptr, settings, context.stop, tell);
    context.out.progress_done();
    return advice ? report_advice(context, *advice, settings.least_share) : Status(advice.error());
  };
}

}  // namespace gradloom
