#include "app/commands/export_view.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "app/commands/commands.h"
#include "app/job_source.h"
#include "app/view_exports.h"
#include "engine/base/text.h"
#include "sessions/store.h"
#ifdef GRADLOOM_DESKTOP
#include "app/desktop/open.h"
#endif

namespace gradloom {
namespace {

Result<ViewSource> view_source(const ExportViewOptions& options, const std::string& session,
                               const std::string& run, const std::string& recipe) {
  ViewSource source;
  if (!session.empty() && !recipe.empty())
    return Error{Errc::usage, "export takes SESSION or --recipe, not both"};
  if (!recipe.empty()) {
    source.recipe = TRY(read_job_source(recipe)).recipe;
    return source;
  }
  if (session.empty()) return Error{Errc::usage, "--view needs SESSION or --recipe"};
  source.session = session;
  const auto store = TRY(Store::open(session, StoreMode::read));
  if (!options.against.empty()) source.other = TRY(store->find_run(options.against));
  if (TRY(store->list_runs()).empty()) return source;  // searches and predictions it may have
  source.run = TRY(store->find_run(run));
  const RunRecord record = TRY(store->load_run(source.run));
  if (record.summary.has_recipe())
    if (auto job = job_of_run(record, session)) source.recipe = std::move(job->recipe);
  return source;
}

#ifdef GRADLOOM_DESKTOP
Result<bool> has_comparison(const ViewSource& source) {
  const auto store = TRY(Store::open(source.session, StoreMode::read));
  const std::vector<StoredComparison> all = TRY(store->list_comparisons());
  return std::any_of(all.begin(), all.end(), [&](const StoredComparison& c) {
    return c.run_a == source.other && c.run_b == source.run;
  });
}

// The window's script of the view: its tab, and what else it is asked for.
std::string script_of(const ViewDef& view, const ViewSource& source) {
  std::string script = view.script;
  const std::string against = "{against}";
  if (const std::size_t at = script.find(against); at != std::string::npos)
    script.replace(at, against.size(), std::to_string(source.other));
  return "wait idle\nclick \"tab." + std::string(view.panel) + "\"\nwait idle\n" + script +
         "wait idle\nmove 1 1\nwait 40\n";
}

Status draw_view(const ViewDef& view, const ViewSource& source, const ExportViewOptions& options,
                 const std::string& file, CommandContext& context) {
  // The window shows a comparison that the session has: as the two were recorded.
  if (view.of == ViewOf::pair && !TRY(has_comparison(source)))
    TRY(json_lines(view_words(view, source), context));
  OpenOptions open;
  open.headless = true;
  open.theme = find_theme(options.theme);
  TRY(parse_window_size(options.size, open));
  if (source.session.empty())
    open.recipe = source.recipe;
  else
    open.path = source.session;
  open.run = source.run;
  open.against = source.other;
  open.commands = script_of(view, source);
  open.screenshot = file;
  open.screenshot_item = "pane." + std::string(view.panel);
  const Finishing finishing(context);  // what the window starts ends with it
  return open_window(open, context.stop);
}
#else
Status draw_view(const ViewDef&, const ViewSource&, const ExportViewOptions&, const std::string&,
                 CommandContext&) {
  return Error{Errc::usage, "this build has no window to make pictures of: .csv and .json are there"};
}
#endif

void declare_export_view(CLI::App& app, ExportViewOptions& options) {
  std::string names;
  for (const ViewDef* const view : views_by_name())
    names += (names.empty() ? "" : " | ") + std::string(view->name);
  CLI::Option* const view = app.add_option(
      "--view", options.view,
      "write what a view of the window shows into the file of -o: its rows as .csv, what its command says "
      "as .json, its picture as .svg or .png: " +
          names);
  app.add_option("--against", options.against,
                 "with --view graph, compare and difference: the run that is side A");
  app.add_option("--size", options.size, "with a picture of --view: size of the window that it is of")
      ->needs(view)
      ->capture_default_str();
  app.add_option("--theme", options.theme, "with a picture of --view: dark, light or contrast")
      ->needs(view)
      ->check(CLI::IsMember({"dark", "light", "contrast"}))
      ->capture_default_str();
}

Status export_view(const ExportViewOptions& options, const std::string& session, const std::string& run,
                   const std::string& recipe, const std::string& file, CommandContext& context) {
  if (file.empty()) return Error{Errc::usage, "--view needs -o FILE"};
  const ViewForm form = TRY(view_form(file));
  const ViewSource source = TRY(view_source(options, session, run, recipe));
  const ViewDef& view = *TRY(find_view(options.view, source));
  if (form == ViewForm::picture) {
    TRY(draw_view(view, source, options, file, context));
  } else {
    TRY(write_view(view, TRY(json_lines(view_words(view, source), context)), file));
  }
  context.out.object({{"view", view.name}, {"file", file}, {"run_id", source.run}});
  context.out.text("wrote " + escaped(file));
  return {};
}

constexpr ExportViews kExportViews{declare_export_view, export_view};

}  // namespace

CommandRun declare_export_and_views(CLI::App& app) { return declare_export_with(app, &kExportViews); }

}  // namespace gradloom
