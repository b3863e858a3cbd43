// gradloom what-if: how long a step would take if something were different, from measured kernels; and how right it was.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/recipe_flags.h"
#include "app/what_if.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

struct WhatIfOptions {
  RecipeFlags recipe;
  std::string subject, run = "last", changes, on, session;
  std::string link = kUsualLink, local_link;
  std::int64_t ranks_per_machine = 0;
  std::vector<std::string> speed_ups;
  bool scores = false, forget = false;
};

Result<WhatIf> question_of(const WhatIfOptions& o) {
  WhatIf question;
  question.changes = o.changes;
  for (const std::string& text : o.speed_ups) question.speed_ups.push_back(TRY(parse_speed_up(text)));
  if (!o.on.empty()) question.on = TRY(find_hardware(o.on));
  question.cluster = TRY(parse_cluster(o.link, o.local_link, o.ranks_per_machine));
  if (question.text().empty())
    return Error{Errc::usage, "nothing is different: --b SETTINGS, --speed WHAT=FACTOR or --on PROCESSOR"};
  return question;
}

Status show_scores(const std::string& session, const Output& out) {
  const auto store = TRY(Store::open(session, StoreMode::read));
  const std::vector<PredictionScore> scores = TRY(score_predictions(*store));
  out.object(scores_json(scores, session));
  out.text(scores_text(scores));
  return {};
}

// A session that cannot be written loses a prediction, not the answer.
void keep(const std::string& session, const KeptPrediction& prediction, const Output& out) {
  auto store = Store::open(session, StoreMode::write);
  const Status kept = store ? (*store)->add_prediction(prediction) : Status(store.error());
  if (!kept) out.note("the prediction is not kept: " + kept.error().message);
}

}  // namespace

CommandRun declare_what_if(CLI::App& app) {
  auto options = std::make_shared<WhatIfOptions>();
  app.add_option("JOB", options->subject, "ONNX file, or a session (may come from --recipe)");
  options->recipe.declare(app, false);
  app.add_option("--run", options->run, "of a session: number or name of a run, or last");
  app.add_option("--b", options->changes,
                 "settings that would be different, as compare takes them: 'precision=bf16;dim=batch=16'");
  app.add_option(
      "--speed", options->speed_ups,
      "what would be faster, and how many times: op:GLOB=2 | kernel:GLOB=2 | node:GLOB=2 | scope:GLOB=2 | "
      "phase:GLOB=2 | launch=2 | link=2 (repeatable)");
  app.add_option(
      "--on", options->on,
      "another processor: by its data sheet (h200, a100, ..), or a file that devices --measure --json wrote there");
  app.add_option("--link", options->link,
                 "of several ranks: what a machine's link to the others carries, and its latency")
      ->capture_default_str();
  app.add_option("--local-link", options->local_link, std::string("of several ranks: ") + kLocalLinkHelp);
  app.add_option("--local", options->ranks_per_machine,
                 "of several ranks: ranks of a machine; 0: all are on one")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1024}));
  app.add_option(
      "--session", options->session,
      "keep the prediction in this session, whose next run with these settings scores it (default: the session "
      "that is asked)");
  app.add_flag("--forget", options->forget, "keep no prediction");
  app.add_flag("--scores", options->scores, "of a session: what was predicted, and what runs measured since");
  return [options](CommandContext& context) -> Status {
    WhatIfOptions& o = *options;
    if (o.scores) return show_scores(o.subject, context.out);
    const WhatIf question = TRY(question_of(o));
    AdviceOptions settings;
    const std::optional<RunRecord> run = TRY(asked_run(o.subject, o.run));
    Recipe recorded;
    if (run) {
      if (!run->summary.has_recipe())
        return Error{Errc::usage, "run " + std::to_string(run->summary.id) + " is " +
                                      run->summary.kind_text() +
                                      ": what would change in it cannot be planned"};
      JobSource source = TRY(job_of_run(*run, o.subject));
      recorded = std::move(source.recipe);
      if (o.session.empty()) o.session = o.subject;
      if (!source.note.empty()) context.out.note(source.note);
    } else {
      o.recipe.set_model(o.subject);
    }
    const Recipe job = TRY(o.recipe.resolve(run ? &recorded : nullptr));
    settings.machine = machine_of(job);
    if (!run && job.costs.empty()) settings.time = time_some_steps(context.stop);
    const WhatIfAnswer answer = TRY(what_if(job, run ? &*run : nullptr, question, settings, context.stop));
    context.out.object(answer_json(question, answer));
    context.out.text(answer_text(question, answer));
    if (!o.session.empty() && !o.forget) keep(o.session, kept_prediction(question, answer), context.out);
    return {};
  };
}

}  // namespace gradloom
