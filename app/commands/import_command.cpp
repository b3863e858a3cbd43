// gradloom import: what another profiler recorded, as a run of a session.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/import_trace.h"
#include "app/recipe_flags.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

Json run_json(const ImportedRun& run) {
  return {{"run_id", run.run},      {"trace", run.file},
          {"name", run.name},       {"recorded_by", run.origin},
          {"device", run.device},   {"ranks", run.ranks},
          {"steps", run.steps},     {"median_step_ns", run.median_step_ns},
          {"kernels", run.kernels}, {"executions", run.executions},
          {"modules", run.modules}, {"matched_modules", run.matched_modules},
          {"notes", run.notes}};
}

void tell(const Output& out, const ImportRequest& request, const ImportedRun& run) {
  out.object(run_json(run));
  for (const std::string& note : run.notes) out.note(note);
  std::string text =
      "run " + std::to_string(run.run) + " (" + escaped(run.name) +
      "): " + find_import_origin(run.origin)->title + " on " + escaped(run.device) + ", " +
      (run.ranks > 1 ? plural_text(run.ranks, "rank") + ", " : "") + plural_text(run.steps, "step") + " of " +
      duration_text(static_cast<double>(run.median_step_ns)) + ", " + plural_text(run.kernels, "kernel") +
      " in " + plural_text(run.executions, "execution") + ", " + plural_text(run.modules, "module");
  if (!request.model.empty())
    text += ", " + std::to_string(run.matched_modules) + " of them as in " + escaped(request.model);
  out.text(text);
}

}  // namespace

CommandRun declare_import(CLI::App& app) {
  auto request = std::make_shared<ImportRequest>();
  app.add_option(
         "TRACE", request->trace,
         "trace of PyTorch's profiler (.json, .json.gz), profile of ONNX Runtime (.json), SQLite export "
         "of Nsight Systems, or a folder of them: traces of all ranks of a job become one run")
      ->required();
  app.add_option("--session", request->session, "session file that gets the run")->required();
  app.add_option("--name", request->name, "label of the run (default: the file's name)");
  app.add_option("--model", request->model,
                 "ONNX model whose modules the trace's are, so that runs of both compare by module");
  declare_import_limits(app, request->import_limits);
  return [request](CommandContext& context) -> Status {
    for (const std::vector<std::string>& files : TRY(import_files(request->trace))) {
      const auto run = import_trace(*request, files, [&](double fraction) {
        context.out.progress("import", fraction, escaped(files.front()));
      });
      context.out.progress_done();
      if (!run) return run.error();
      tell(context.out, *request, *run);
    }
    context.out.text("look at it: gradloom show " + shell_quoted(request->session) + ", or gradloom open " +
                     shell_quoted(request->session));
    return {};
  };
}

}  // namespace gradloom
