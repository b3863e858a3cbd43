#include "app/import_trace.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

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

Status write_steps(ImportedTrace& trace, RunWriter& writer) {
  std::int64_t number = 0;
  for (ImportedStep& step : trace.steps) {
    std::stable_sort(step.samples.begin(), step.samples.end(),
                     [](const KernelSample& a, const KernelSample& b) { return a.start_ns < b.start_ns; });
    StepRow row;
    row.step = ++number;
    row.loss = std::numeric_limits<double>::quiet_NaN();  // no trace has it
    row.step_ns = step.duration_ns;
    row.timed = true;
    writer.add_host_spans(std::move(step.host));
    TRY(writer.add_step(row, step.samples, step.activities));
    step = ImportedStep{step.start_ns, step.duration_ns, {}, {}, {}};
  }
  return {};
}

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

}  // namespace

Result<std::vector<std::string>> import_files(const std::string& trace) {
  std::error_code failed;
  if (!fs::is_directory(trace, failed)) return std::vector<std::string>{trace};
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
  return files;
}

Result<ImportedRun> import_trace(const ImportRequest& request, const std::string& file,
                                 const ImportProgress& progress) {
  KnownModel model;
  if (!request.model.empty()) model = TRY(read_model(request));
  ImportedTrace trace =
      TRY(is_sqlite_file(file) ? read_nsys_export(file, progress) : read_json_trace(file, progress));
  ModuleMatch match;
  if (!request.model.empty()) {
    match = match_modules(trace, model.scopes);
    note_match(match, trace);
  }
  const auto store = TRY(Store::open(request.session, StoreMode::write));
  const RunStart start = start_of(request, file, model, trace);
  ImportedRun run = told(file, start, trace);
  run.matched_modules = match.matched;
  const auto writer = TRY(store->begin_run(start));
  run.run = writer->id();
  TRY(writer->write_kernels(trace.operators, trace.kernels));
  TRY(write_steps(trace, *writer));
  RunFinish finish;
  finish.measured_peak_bytes = trace.peak_bytes;
  TRY(writer->finish(finish));
  return run;
}

}  // namespace gradloom
