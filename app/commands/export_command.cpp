// gradloom export: a recorded run, or a recipe, for others: as a recipe, a configuration of another program, a job of a launcher; its
// numbers as CSV tables and for TensorBoard. Also a checkpoint of several ranks in the form of one rank.
#include <CLI/CLI.hpp>
#include <filesystem>

#include "app/advice/advice.h"
#include "app/checkpoint_folder.h"
#include "app/commands/commands.h"
#include "app/commands/export_view.h"
#include "app/conversion_notes.h"
#include "app/graph_file.h"
#include "app/launch_files.h"
#include "app/recipe_flags.h"
#include "app/replay.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "sessions/deepspeed.h"
#include "sessions/find_model.h"
#include "sessions/recipe.h"
#include "sessions/run_tables.h"
#include "sessions/store.h"
#include "sessions/tensorboard.h"
#include "sessions/training_arguments.h"

namespace gradloom {
namespace {

struct ExportOptions {
  std::string session, run = "last", recipe, output, launch;
  std::string csv, tensorboard;  // folders
  std::string graph, checkpoint;
  std::int64_t ranks = 0, local = 0;
  std::size_t boxes = 60;
  ExportViewOptions view;
  bool schema = false, deepspeed = false, training_arguments = false, accelerate = false;
  int files() const { return deepspeed + training_arguments + accelerate + (launch.empty() ? 0 : 1); }
  bool of_session() const { return !csv.empty() || !tensorboard.empty() || !graph.empty(); }
};

struct ExportSource {
  Recipe recipe;
  std::int64_t run_id = 0;  // 0: of a recipe file
  std::string plan_hash;
};

Result<ExportSource> find_source(const ExportOptions& options, CommandContext& context) {
  if (options.session.empty() && options.recipe.empty())
    return Error{Errc::usage, "export: SESSION is required"};
  if (!options.session.empty() && !options.recipe.empty())
    return Error{Errc::usage, "export takes SESSION or --recipe, not both"};
  ExportSource source;
  if (!options.recipe.empty()) {
    source.recipe = TRY(read_recipe(options.recipe));
    return source;
  }
  const auto store = TRY(Store::open(options.session, StoreMode::read));
  const RunRecord run = TRY(store->load_run(TRY(store->find_run(options.run))));
  source.recipe = TRY(recipe_with_expectations(run));
  source.run_id = run.summary.id;
  source.plan_hash = run.summary.plan_hash;
  const FoundModel model = find_model(run, options.session);
  if (model.state != FoundModel::State::none) source.recipe.model = model.path;
  if (const std::string note = model_note(model, run); !note.empty()) context.out.note(note);
  return source;
}

Status export_recipe(const ExportOptions& options, const ExportSource& source, CommandContext& context) {
  if (options.output.empty()) {
    // As Output::object does: what a terminal would obey stays as JSON's escapes.
    context.out.document(Json::parse(recipe_json(source.recipe)).dump(2, ' ', true) + "\n");
    return {};
  }
  TRY(write_recipe(source.recipe, options.output));
  Json told = {{"recipe", options.output}, {"run_id", source.run_id}, {"plan_hash", source.plan_hash}};
  if (source.run_id == 0) told = {{"recipe", options.output}};
  context.out.object(told);
  context.out.text("wrote " + options.output + " (replay: gradloom train --recipe " +
                   shell_quoted(options.output) + ")");
  return {};
}

// A configuration file of another program. `key` names it in --json.
Status export_converted(const ExportOptions& options, const ConvertedFile& file, const char* key,
                        CommandContext& context) {
  if (options.output.empty()) {
    context.out.document(file.text);
  } else {
    TRY(atomic_write_file(options.output, file.text));
    context.out.object({{key, options.output}, {"notes", notes_json(file.notes)}});
    context.out.text("wrote " + options.output);
  }
  tell_notes(context.out, file.notes, options.output.empty());
  return {};
}

Status export_job(const ExportOptions& options, const Recipe& recipe, CommandContext& context) {
  const LauncherDef& launcher = *TRY(find_launcher(options.launch));
  const LaunchJob job = TRY(
      launch_job(launcher.shares_files ? with_absolute_paths(recipe) : recipe, recipe.ranks, options.local));
  const LaunchFile file = TRY(launcher.write(job));
  for (const std::string& library : recipe.ops)
    context.out.note("the job runs the code of a library of operators: " + library);
  if (options.output.empty()) {
    context.out.document(file.text);
  } else {
    TRY(atomic_write_file(options.output, file.text));
    Json placeholders = Json::object();
    for (const LaunchPlaceholder& p : file.placeholders) placeholders[p.word] = p.meaning;
    context.out.object({{"launch", options.output},
                        {"launcher", launcher.name},
                        {"ranks", job.ranks},
                        {"machines", job.machines()},
                        {"ranks_of_a_machine", job.local},
                        {"command", shell_line(job.words)},
                        {"placeholders", placeholders}});
    context.out.text("wrote " + options.output + " (" + launcher.title +
                     "): " + plural_text(job.ranks, "rank") + " on " +
                     plural_text(job.machines(), "machine") + "; to fill in:");
  }
  for (const LaunchPlaceholder& p : file.placeholders)
    if (options.output.empty())
      context.out.note("to fill in: " + p.word + ", " + p.meaning);
    else
      context.out.text("  " + p.word + "  " + p.meaning);
  return {};
}

Status write_into(const std::string& folder, const std::string& name, std::string_view text) {
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  std::error_code failed;
  std::filesystem::create_directories(path.parent_path(), failed);
  if (failed)
    return Error{Errc::io,
                 "cannot make folder '" + escaped(path.parent_path().string()) + "': " + failed.message()};
  return atomic_write_file(path.string(), text);
}

Status export_csv(const std::string& folder, const RunRecord& run, const TraceDocument& trace,
                  CommandContext& context) {
  Json rows = Json::object();
  std::string text;
  for (const RunTable& table : run_tables(run, trace)) {
    TRY(write_into(folder, table.name + ".csv", table.csv));
    rows[table.name] = table.rows;
    text += (text.empty() ? ": " : ", ") + table.name + " " + std::to_string(table.rows);
  }
  if (trace.steps_left_out > 0 && !trace.exchanges.empty())
    context.out.note("exchanges.csv has those of the first " + std::to_string(trace.steps.size()) +
                     " timed steps; " + plural_text(trace.steps_left_out, "step") + " left out");
  context.out.object({{"csv", folder}, {"run_id", run.summary.id}, {"rows", rows}});
  context.out.text("wrote " + folder + text);
  return {};
}

Status export_tensorboard(const std::string& folder, const RunRecord& run, CommandContext& context) {
  if (run.steps.empty())
    return Error{Errc::bad_input, "run " + std::to_string(run.summary.id) + " has no steps"};
  const std::string name = tensorboard_file(run.summary);
  TRY(write_into(folder, name, tensorboard_events(run)));
  context.out.object({{"tensorboard", folder},
                      {"file", name},
                      {"run_id", run.summary.id},
                      {"steps", run.steps.size()},
                      {"evaluations", run.evaluations.size()}});
  context.out.text("wrote " + folder + "/" + name + ": " +
                   plural_text(static_cast<std::int64_t>(run.steps.size()), "step") +
                   " (tensorboard --logdir " + shell_quoted(folder) + ")");
  return {};
}

// What the run trains, compiled anew, with the times of its kernels.
Status export_graph_file(const ExportOptions& options, const RunRecord& run, CommandContext& context) {
  if (!is_viewers_graph(options.graph))
    return Error{Errc::usage,
                 "--graph writes .json (Model Explorer) or .svg; plan --export-graph writes .onnx"};
  const JobSource source = TRY(job_of_run(run, options.session));
  if (!source.note.empty()) context.out.note(source.note);
  const auto prepared = TRY(prepare(source.recipe, context.stop));
  const WrittenGraph made =
      TRY(write_viewers_graph(*prepared, {options.boxes, &run}, options.graph, context.stop));
  context.out.object({{"graph", options.graph},
                      {"run_id", run.summary.id},
                      {"nodes", made.nodes},
                      {"timed", made.timed},
                      {"same_plan", prepared->compiled.plan.hash == run.summary.plan_hash}});
  context.out.text("wrote " + options.graph + ": " +
                   plural_text(static_cast<std::int64_t>(made.nodes), "node") +
                   (made.timed ? " with their times" : ", not timed"));
  return {};
}

Status export_of_session(const ExportOptions& options, CommandContext& context) {
  if (options.session.empty()) return Error{Errc::usage, "--csv, --tensorboard and --graph need SESSION"};
  const auto store = TRY(Store::open(options.session, StoreMode::read));
  const std::int64_t id = TRY(store->find_run(options.run));
  const RunRecord run = TRY(store->load_run(id));
  if (!options.csv.empty()) {
    const TraceDocument exchanges = run.ranks.empty() ? TraceDocument() : TRY(store->load_trace(id));
    TRY(export_csv(options.csv, run, exchanges, context));
  }
  if (!options.tensorboard.empty()) TRY(export_tensorboard(options.tensorboard, run, context));
  if (!options.graph.empty()) TRY(export_graph_file(options, run, context));
  return {};
}

Status export_checkpoint(const ExportOptions& options, CommandContext& context) {
  if (options.output.empty())
    return Error{Errc::usage, "--checkpoint needs -o FOLDER, where the checkpoint is to be"};
  const Checkpoint from = TRY(open_checkpoint(options.checkpoint));
  TRY(join_checkpoint(from, options.output));
  context.out.object({{"checkpoint", options.output}, {"from", from.path}, {"step", from.step}});
  context.out.text(
      "wrote " + escaped(options.output) + ": " + escaped(from.path) +
      (from.shards ? ", the states of all ranks in one file" : ", which was of one rank before"));
  return {};
}

Status export_schema(const std::string& output, CommandContext& context) {
  if (output.empty()) {
    context.out.document(recipe_schema_json());
    return {};
  }
  TRY(atomic_write_file(output, recipe_schema_json()));
  context.out.object({{"schema", output}});
  context.out.text("wrote " + output);
  return {};
}

Status check_flags(const ExportOptions& options) {
  if (!options.checkpoint.empty() &&
      (options.of_session() || options.files() > 0 || !options.recipe.empty() || !options.session.empty()))
    return Error{Errc::usage, "--checkpoint is exported alone, with -o FOLDER"};
  if (options.files() > 1)
    return Error{Errc::usage,
                 "export writes one file: --deepspeed, --training-arguments, --accelerate or --launch"};
  if (options.of_session() && (options.files() > 0 || !options.output.empty() || !options.recipe.empty()))
    return Error{Errc::usage,
                 "--csv, --tensorboard and --graph write what a session holds to places of their own: "
                 "without -o, --recipe and files of other programs"};
  if (!options.view.view.empty() &&
      (options.of_session() || options.files() > 0 || !options.checkpoint.empty()))
    return Error{Errc::usage, "--view writes one file, with -o: nothing else is exported with it"};
  if (options.view.view.empty() && !options.view.against.empty())
    return Error{Errc::usage, "--against is for --view"};
  if (options.local > 0 && options.launch.empty() && !options.accelerate)
    return Error{Errc::usage, "--local is for --launch and --accelerate"};
  if (options.ranks > 0 && options.files() == 0)
    return Error{Errc::usage, "--ranks is for the files of other programs"};
  return {};
}

std::string launcher_help() {
  std::string text;
  for (const LauncherDef& def : all_launchers())
    text += (text.empty() ? "" : " | ") + std::string(def.name) + " (" + def.title + ")";
  return "write a job of so many ranks for a launcher: " + text;
}

}  // namespace

CommandRun declare_export_with(CLI::App& app, const ExportViews* views) {
  auto options = std::make_shared<ExportOptions>();
  app.add_option("SESSION", options->session, "session file");
  app.add_option("--run", options->run, "number or name of a run, or last");
  app.add_option("--recipe", options->recipe, "a recipe file instead of a session");
  app.add_option("-o,--output", options->output, "file to write (default: stdout)");
  app.add_option(
      "--checkpoint", options->checkpoint,
      "a checkpoint, or the newest in a folder of them, whose states several ranks wrote: as one rank "
      "writes it, into the new folder that -o names");
  app.add_flag("--deepspeed", options->deepspeed,
               "write DeepSpeed's ds_config.json, and list what it has no word for");
  app.add_flag("--training-arguments", options->training_arguments,
               "write keyword arguments of Hugging Face's TrainingArguments as JSON, and list the same");
  app.add_flag("--accelerate", options->accelerate,
               "write a configuration of Accelerate as YAML, and list the same");
  app.add_option("--launch", options->launch, launcher_help());
  app.add_option("--ranks", options->ranks, "ranks of the job (default: the recipe's)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1048576}));
  app.add_option("--local", options->local, "ranks of each machine of the job (default: all)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1048576}));
  app.add_option(
      "--csv", options->csv,
      "folder for the tables of the run: kernels, steps, evaluations, passes, matches, memory, exchanges");
  app.add_option(
      "--tensorboard", options->tensorboard,
      "folder for losses, learning rate, gradient norm and speed by step, as TensorBoard reads them");
  CLI::Option* const graph = app.add_option(
      "--graph", options->graph,
      "file for the graph of the run with the times of its kernels: .json (Google's Model Explorer) | .svg "
      "(the drawing of the window)");
  app.add_option("--boxes", options->boxes, "with --graph X.svg: about so many; scopes fold beyond")
      ->needs(graph)
      ->check(CLI::Range(std::size_t{1}, std::size_t{100000}))
      ->capture_default_str();
  if (views != nullptr) views->declare(app, options->view);
  app.add_flag("--schema", options->schema, "print the JSON Schema of recipes");
  return [options, views](CommandContext& context) -> Status {
    if (options->schema) return export_schema(options->output, context);
    TRY(check_flags(*options));
    if (!options->view.view.empty())
      return views->write(options->view, options->session, options->run, options->recipe, options->output,
                          context);
    if (!options->checkpoint.empty()) return export_checkpoint(*options, context);
    if (options->of_session()) return export_of_session(*options, context);
    ExportSource source = TRY(find_source(*options, context));
    Recipe& recipe = source.recipe;
    if (options->ranks > 0) recipe.ranks = options->ranks;
    if (options->deepspeed)
      return export_converted(*options, TRY(deepspeed_from_recipe(recipe)), "deepspeed", context);
    if (options->training_arguments)
      return export_converted(*options, TRY(training_arguments_of(recipe)), "training_arguments", context);
    if (options->accelerate) {
      const LaunchJob job = TRY(launch_job(recipe, recipe.ranks, options->local));
      return export_converted(*options, TRY(accelerate_config_of(recipe, job.machines())), "accelerate",
                              context);
    }
    if (!options->launch.empty()) return export_job(*options, recipe, context);
    return export_recipe(*options, source, context);
  };
}

CommandRun declare_export(CLI::App& app) { return declare_export_with(app, nullptr); }

}  // namespace gradloom
