// gradloom runs: the runs of a session, and what is said of them.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>

#include "app/commands/commands.h"
#include "app/commands/show_searches.h"
#include "app/run_summary.h"
#include "app/source_commit.h"
#include "engine/base/text.h"
#include "sessions/store.h"
#include "viz/model/run_search.h"

namespace gradloom {
namespace {

struct EditFlag {
  const char* name;
  RunEdit::Kind kind;
  bool has_value;  // RUN=VALUE, else RUN
  const char* help;
};
// In the order in which they are made.
constexpr EditFlag kEdits[] = {
    {"--rename", RunEdit::Kind::rename, true, "RUN=NAME: gives a run another name; RUN= takes its name away"},
    {"--tag", RunEdit::Kind::tag, true, "RUN=a,b: adds tags"},
    {"--untag", RunEdit::Kind::untag, true, "RUN=a,b: takes tags away"},
    {"--note", RunEdit::Kind::note, true, "RUN=TEXT: keeps a note on a run; RUN= takes it away"},
    {"--pin", RunEdit::Kind::pin, false, "RUN: is listed first and cannot be deleted"},
    {"--unpin", RunEdit::Kind::unpin, false, "RUN: undoes --pin"},
    {"--delete", RunEdit::Kind::remove, false, "RUN: deletes a run with its comparisons, for good"},
};

struct RunsOptions {
  std::string session, filter;
  std::map<std::string, std::vector<std::string>> edits;  // by flag
  bool compact = false, searches = false;
};

// How many passes a run had, in few letters; sessions write "none" where there were none.
std::string pass_count_text(const std::string& pipeline) {
  if (pipeline.empty() || pipeline == "none") return "none";
  if (pipeline == default_pipeline().text()) return "default";
  const std::size_t count = split_top_level(pipeline).size();
  return std::to_string(count) + (count == 1 ? " pass" : " passes");
}

std::string tags_text(const RunSummary& s) {
  std::string text = s.pinned ? "(pinned)" : "";
  for (const std::string& tag : s.tags) text += (text.empty() ? "" : " ") + escaped(tag);
  return text;
}

std::vector<std::string> run_row(const RunSummary& s) {
  return {std::to_string(s.id),
          s.name.empty() ? "-" : escaped(s.name),
          escaped(s.status),
          escaped(s.started_utc),
          s.has_recipe() ? escaped(s.model) : s.kind_text(),
          s.has_recipe() ? pass_count_text(s.passes) : "-",
          std::to_string(s.steps),
          s.has_loss() ? short_text(s.last_loss) : "-",
          duration_text(static_cast<double>(s.median_step_ns)),
          s.has_recipe() || s.measured_peak_bytes > 0 ? bytes_text(static_cast<double>(s.measured_peak_bytes))
                                                      : "-"};
}

void show_comparison(const Output& out, const StoredComparison& c) {
  out.object({{"comparison_id", c.id},
              {"run_a", c.run_a > 0 ? Json(c.run_a) : Json(nullptr)},
              {"run_b", c.run_b > 0 ? Json(c.run_b) : Json(nullptr)},
              {"a", c.comparison.a},
              {"b", c.comparison.b},
              {"created_utc", c.created_utc},
              {"interleaved", c.comparison.interleaved},
              {"verdict", verdict_name(c.comparison.verdict)},
              {"ratio", json_number(c.comparison.ratio.value)},
              {"ratio_low", json_number(c.comparison.ratio.low)},
              {"ratio_high", json_number(c.comparison.ratio.high)}});
  char text[160];
  std::snprintf(text, sizeof text, "comparison %lld  %s: %.3fx [%.3f, %.3f]  ", static_cast<long long>(c.id),
                verdict_name(c.comparison.verdict), c.comparison.ratio.value, c.comparison.ratio.low,
                c.comparison.ratio.high);
  out.text(text + escaped(c.comparison.a) + " -> " + escaped(c.comparison.b));
}

Status show_runs(const RunsOptions& options, CommandContext& context) {
  const Result<RunQuery> query = RunQuery::parse(options.filter);
  if (!query.ok()) return with_context(query.error(), "--filter");
  const auto store = TRY(Store::open(options.session, StoreMode::read));
  const std::vector<RunSummary> all = TRY(store->list_runs());
  std::vector<RunSummary> found;
  for (const std::size_t at : found_runs(all, *query)) found.push_back(all[at]);
  std::vector<std::string> head{"run",    "name",  "status",    "started", "model",
                                "passes", "steps", "last loss", "step",    "peak"};
  const bool tagged =
      std::any_of(found.begin(), found.end(), [](const RunSummary& s) { return !tags_text(s).empty(); });
  if (tagged) head.emplace_back("tags");
  std::vector<std::string> commits;  // by run
  for (const RunSummary& s : found) commits.push_back(source_text(TRY(store->environment(s.id))));
  const bool committed =
      std::any_of(commits.begin(), commits.end(), [](const auto& c) { return !c.empty(); });
  if (committed) head.emplace_back("commit");
  std::vector<std::vector<std::string>> rows;
  for (const RunSummary& s : found) {
    const std::string& commit = commits[rows.size()];
    Json told = run_summary_json(s);
    told["commit"] = commit;
    context.out.object(told);
    rows.push_back(run_row(s));
    if (tagged) rows.back().push_back(tags_text(s));
    if (committed) rows.back().push_back(commit);
  }
  if (rows.empty())
    context.out.text(all.empty() ? "no runs"
                                 : "none of " + plural_text(static_cast<std::int64_t>(all.size()), "run"));
  else
    context.out.text(table_text(head, rows, {1, 2, 3, 4, 5, 10, 11}));
  const auto shown = [&](std::int64_t id) {
    return std::any_of(found.begin(), found.end(), [id](const RunSummary& s) { return s.id == id; });
  };
  for (const StoredComparison& c : TRY(store->list_comparisons()))
    if (query->empty() || shown(c.run_a) || shown(c.run_b)) show_comparison(context.out, c);
  return {};
}

// The run before an '=' of a value, and what stands behind it: the first '=' before which there is a run, as names may have some.
Result<RunEdit> parse_edit(Store& store, const EditFlag& flag, const std::string& text) {
  std::size_t at = flag.has_value ? text.find('=') : text.size();
  if (at == std::string::npos)
    return Error{Errc::usage, std::string(flag.name) + " " + escaped(text) + ": it takes " +
                                  std::string(flag.help).substr(0, std::string(flag.help).find(':'))};
  Result<std::int64_t> run = store.find_run(text.substr(0, at));
  for (std::size_t next = text.find('=', at + 1); !run.ok() && next != std::string::npos;
       next = text.find('=', next + 1)) {
    const Result<std::int64_t> longer = store.find_run(text.substr(0, next));
    if (!longer.ok()) continue;
    run = longer;
    at = next;
  }
  if (!run.ok()) return run.error();
  return RunEdit{flag.kind, *run, flag.has_value ? text.substr(at + 1) : ""};
}

Result<std::vector<RunEdit>> parse_edits(Store& store, const RunsOptions& options) {
  std::vector<RunEdit> edits;
  for (const EditFlag& flag : kEdits) {
    const auto given = options.edits.find(flag.name);
    if (given == options.edits.end()) continue;
    for (const std::string& text : given->second) edits.push_back(TRY(parse_edit(store, flag, text)));
  }
  return edits;
}

void tell_change(const Output& out, const RunChange& change) {
  const std::string name = change.name.empty() ? "" : " (" + escaped(change.name) + ")";
  if (change.deleted) {
    out.object({{"run_id", change.run},
                {"name", change.name},
                {"deleted", true},
                {"rows", change.rows},
                {"comparisons", change.comparisons}});
    out.text("deleted run " + std::to_string(change.run) + name + ": " + plural_text(change.rows, "row") +
             (change.comparisons > 0 ? " and " + plural_text(change.comparisons, "comparison") : ""));
    return;
  }
  out.object({{"run_id", change.run},
              {"name", change.name},
              {"tags", change.tags},
              {"note", change.note},
              {"pinned", change.pinned},
              {"deleted", false}});
  RunSummary now;
  now.tags = change.tags;
  now.note = change.note;
  now.pinned = change.pinned;
  const std::string said = run_annotation_text(now);
  out.text("run " + std::to_string(change.run) + name + (said.empty() ? "" : ": " + said));
}

Status compact(Store& store, const Output& out) {
  const auto bytes = [&] {
    std::error_code ignored;
    return static_cast<std::int64_t>(std::filesystem::file_size(store.path(), ignored));
  };
  const std::int64_t before = bytes();
  TRY(store.compact());
  out.object({{"compacted", store.path()}, {"bytes_before", before}, {"bytes", bytes()}});
  out.text(escaped(store.path()) + ": " + bytes_text(static_cast<double>(before)) + " -> " +
           bytes_text(static_cast<double>(bytes())));
  return {};
}

Status change_runs(const RunsOptions& options, CommandContext& context) {
  if (!options.filter.empty())
    return Error{Errc::usage, "--filter chooses what is listed, not what is changed"};
  TRY(Store::open(options.session, StoreMode::read));  // writing would make the file
  const auto store = TRY(Store::open(options.session, StoreMode::write));
  const std::vector<RunEdit> edits = TRY(parse_edits(*store, options));
  std::map<std::int64_t, RunChange> last;  // of several changes of a run
  for (RunChange& change : TRY(store->edit_runs(edits))) last[change.run] = std::move(change);
  for (const auto& [run, change] : last) tell_change(context.out, change);
  return options.compact ? compact(*store, context.out) : Status();
}

std::string filter_help() {
  std::string keys;
  for (const std::string_view key : run_query_keys()) keys += (keys.empty() ? "" : ", ") + std::string(key);
  return "only the runs of a query, e.g. 'tag:base device:cpu loss<2.5 step<10ms -status:failed is:pinned'; keys: " +
         keys;
}

}  // namespace

CommandRun declare_runs(CLI::App& app) {
  auto options = std::make_shared<RunsOptions>();
  app.add_option("SESSION", options->session, "session file")->required();
  app.add_option("--filter", options->filter, filter_help());
  for (const EditFlag& flag : kEdits)
    app.add_option(flag.name, options->edits[flag.name],
                   std::string(flag.help) + "; repeatable" +
                       (flag.kind == RunEdit::Kind::rename ? ". RUN is a number or name, or last" : ""))
        ->take_all()
        ->allow_extra_args(false);
  app.add_flag(
      "--compact", options->compact,
      "makes the file as small as its runs allow; else later runs fill the room that deleted ones left");
  app.add_flag(
      "--searches", options->searches,
      "instead of the runs: what tune found, and what each pass is worth, of every job that was searched");
  return [options](CommandContext& context) -> Status {
    const bool changes =
        options->compact || std::any_of(options->edits.begin(), options->edits.end(),
                                        [](const auto& edit) { return !edit.second.empty(); });
    if (options->searches && (changes || !options->filter.empty()))
      return Error{Errc::usage, "--searches tells of searches: it goes with no flag that is about runs"};
    if (options->searches)
      return show_searches(context.out, *TRY(Store::open(options->session, StoreMode::read)));
    return changes ? change_runs(*options, context) : show_runs(*options, context);
  };
}

}  // namespace gradloom
