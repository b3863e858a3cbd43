#include "app/import_trace.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "app/import_ranks.h"
#include "app/match_modules.h"
#include "app/recipe_flags.h"
#include "engine/base/text.h"
#include "engine/onnx/import.h"
#include "sessions/find_model.h"
#include "sessions/read_nsys.h"
#include "sessions/store.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostName = 120;

bool is_trace_name(const std::string& name) {
  return name.ends_with(".json") || name.ends_with(".json.gz") || name.ends_with(".sqlite");
}

// "step3.pt.trace.json.gz" -> "step3"
std::string name_of_file(const std::string& file) {
  std::string name = fs::path(file).filename().string();
  for (const char* end : {".gz", ".json", ".sqlite", ".trace", ".pt"})
    if (name.size() > std::string(end).size() && name.ends_with(end))
      name.resize(name.size() - std::string(end).size());
  return name.substr(0, kMostName);
}

struct KnownModel {
  std::string path, hash;
  std::vector<std::string> scopes;  // of its nodes
};

Result<KnownModel> read_model(const ImportRequest& request) {
  ImportOptions options;
  options.allow_unknown = true;
  for (const auto& [name, n] : TRY(read_import_limits(request.import_limits)))
    TRY(set_limit(options.limits, name, n));
  const ImportedModel model = TRY(import_onnx(request.model, options));
  KnownModel known{absolute_path(request.model), model.content_hash, {}};
  for (const SourceNode& node : model.graph.sources) known.scopes.push_back(node.scope);
  return known;
}

std::string command_of(const ImportRequest& request, const std::string& file) {
  std::string text = "gradloom import " + shell_quoted(file) + " --session " + shell_quoted(request.session);
  if (!request.model.empty()) text += " --model " + shell_quoted(request.model);
  return text;
}

void note_match(const ModuleMatch& match, ImportedTrace& trace) {
  trace.environment["import.modules"] =
      std::to_string(match.matched) + " of " + std::to_string(match.all) + " are the model's";
  if (match.all == 0) {
    trace.notes.emplace_back("the trace names no modules: nothing of it is matched to the model");
    return;
  }
  if (match.others.empty()) return;
  std::string text =
      plural_text(static_cast<std::int64_t>(match.others.size()), "module") + " not in the model: ";
  for (std::size_t i = 0; i < match.others.size() && i < 4; ++i)
    text += (i == 0 ? "" : ", ") + match.others[i];
  trace.notes.push_back(text + (match.others.size() > 4 ? ", .." : ""));
}

Status write_steps(ImportedRanks& all, RunWriter& writer) {
  std::int64_t number = 0;
  for (ImportedStep& step : all.trace.steps) {
    std::stable_sort(step.samples.begin(), step.samples.end(),
                     [](const KernelSample& a, const KernelSample& b) { return a.start_ns < b.start_ns; });
    StepRow row;
    row.step = ++number;
    row.loss = std::numeric_limits<double>::quiet_NaN();  // no trace has it
    row.step_ns = step.duration_ns;
    row.timed = true;
    writer.add_host_spans(std::move(step.host));
    if (!all.ranks.empty())
      writer.add_rank_step(number, std::move(all.steps[static_cast<std::size_t>(number) - 1]));
    TRY(writer.add_step(row, step.samples, step.activities));
    step = ImportedStep();
  }
  return {};
}

// Of ranks `file` is their folder.
RunStart start_of(const ImportRequest& request, const std::string& file, const KnownModel& model,
                  const ImportedTrace& trace) {
  RunStart start;
  start.name = request.name.empty() ? name_of_file(file) : request.name;
  start.model = model.path;
  start.model_hash = model.hash;
  start.device = trace.device;
  start.data = trace.origin;
  start.command = command_of(request, file);
  start.planned_steps = static_cast<std::int64_t>(trace.steps.size());
  start.environment = trace.environment;
  start.environment["import.file"] = absolute_path(file);
  for (std::size_t i = 0; i < trace.notes.size(); ++i)
    start.environment[kImportNote + std::to_string(i + 1)] = trace.notes[i];
  return start;
}

ImportedRun told(const std::string& file, const RunStart& start, const ImportedTrace& trace) {
  ImportedRun run;
  run.file = file;
  run.name = start.name;
  run.origin = trace.origin;
  run.device = trace.device;
  run.steps = static_cast<std::int64_t>(trace.steps.size());
  run.kernels = static_cast<std::int64_t>(trace.kernels.size());
  std::vector<std::int64_t> times;
  for (const ImportedStep& step : trace.steps) {
    times.push_back(step.duration_ns);
    run.executions += static_cast<std::int64_t>(step.samples.size());
  }
  std::sort(times.begin(), times.end());
  if (!times.empty()) {
    const std::int64_t low = times[(times.size() - 1) / 2];
    run.median_step_ns = low + (times[times.size() / 2] - low) / 2;
  }
  std::set<std::string> modules;
  for (const ImportedKernel& kernel : trace.kernels)
    if (!kernel.info.scope.empty()) modules.insert(kernel.info.scope);
  run.modules = static_cast<std::int64_t>(modules.size());
  run.notes = trace.notes;
  return run;
}

// Those of one job's ranks together, where all are there.
std::vector<std::vector<std::string>> grouped(const std::vector<std::string>& files) {
  std::vector<std::vector<std::string>> groups;
  // By number of ranks and how often each was met: its file by rank.
  std::map<std::pair<std::int64_t, std::size_t>, std::map<std::int64_t, std::string>> jobs;
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> met;
  for (const std::string& file : files) {
    std::map<std::string, std::string> facts;
    if (!is_sqlite_file(file))
      if (auto told = read_trace_facts(file)) facts = std::move(told).value();
    const TraceRankPlace place = rank_of_trace(facts);
    if (place.ranks == 0)
      groups.push_back({file});
    else
      jobs[{place.ranks, met[{place.ranks, place.rank}]++}][place.rank] = file;
  }
  // Ranks that recorded unequally often: nobody knows which of their files belong together.
  const auto equally_often = [&](std::int64_t ranks) {
    for (std::int64_t rank = 1; rank < ranks; ++rank)
      if (met[{ranks, rank}] != met[{ranks, 0}]) return false;
    return true;
  };
  for (const auto& [job, by_rank] : jobs) {
    const bool whole = static_cast<std::int64_t>(by_rank.size()) == job.first && equally_often(job.first);
    std::vector<std::string> ranks;
    for (const auto& [_, file] : by_rank)
      if (whole)
        ranks.push_back(file);
      else
        groups.push_back({file});
    if (whole) groups.push_back(std::move(ranks));
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

Result<ImportedRanks> read_traces(const std::vector<std::string>& files, const ImportProgress& progress) {
  std::vector<ImportedTrace> traces;
  for (const std::string& file : files) {
    const auto told = [&](double fraction) {
      const auto n = static_cast<double>(files.size());
      if (progress) progress((static_cast<double>(traces.size()) + fraction) / n);
    };
    traces.push_back(TRY(is_sqlite_file(file) ? read_nsys_export(file, told) : read_json_trace(file, told)));
  }
  if (traces.size() == 1) return ImportedRanks{std::move(traces.front()), {}, {}};
  auto merged = merge_ranks(std::move(traces));
  if (!merged) return with_context(merged.error(), fs::path(files.front()).parent_path().string());
  return merged;
}

void note_missing_ranks(ImportedTrace& trace) {
  const TraceRankPlace place = rank_of_trace(trace.environment);
  if (place.ranks > 1)
    trace.notes.push_back("it is rank " + std::to_string(place.rank) + " of " + std::to_string(place.ranks) +
                          ": a folder with the traces of all becomes one run with all of them");
}

}  // namespace

Result<std::vector<std::vector<std::string>>> import_files(const std::string& trace) {
  std::error_code failed;
  if (!fs::is_directory(trace, failed)) return std::vector<std::vector<std::string>>{{trace}};
  std::vector<std::string> files;
  for (fs::directory_iterator at(trace, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (is_trace_name(name)) files.push_back(at->path().string());
    if (files.size() > kMostImportFiles)
      return Error{Errc::limit, trace + ": it has more than " + std::to_string(kMostImportFiles) + " traces"};
  }
  if (failed) return Error{Errc::io, "cannot read " + trace + ": " + failed.message()};
  if (files.empty())
    return Error{Errc::bad_input, trace + ": no file in it ends in .json, .json.gz or .sqlite"};
  std::sort(files.begin(), files.end());
  return grouped(files);
}

Result<ImportedRun> import_trace(const ImportRequest& request, const std::vector<std::string>& files,
                                 const ImportProgress& progress) {
  KnownModel model;
  if (!request.model.empty()) model = TRY(read_model(request));
  ImportedRanks all = TRY(read_traces(files, progress));
  ImportedTrace& trace = all.trace;
  if (all.ranks.empty()) note_missing_ranks(trace);
  ModuleMatch match;
  if (!request.model.empty()) {
    match = match_modules(trace, model.scopes);
    note_match(match, trace);
  }
  const std::string file =
      files.size() == 1 ? files.front() : fs::path(absolute_path(files.front())).parent_path().string();
  const auto store = TRY(Store::open(request.session, StoreMode::write));
  const RunStart start = start_of(request, file, model, trace);
  ImportedRun run = told(file, start, trace);
  run.matched_modules = match.matched;
  run.ranks = std::max<std::int64_t>(1, std::ssize(all.ranks));
  const auto writer = TRY(store->begin_run(start));
  run.run = writer->id();
  TRY(writer->write_kernels(trace.operators, trace.kernels));
  if (!all.ranks.empty()) TRY(writer->write_ranks(all.ranks));
  TRY(write_steps(all, *writer));
  RunFinish finish;
  finish.measured_peak_bytes = trace.peak_bytes;
  TRY(writer->finish(finish));
  return run;
}

}  // namespace gradloom
