#include "app/desktop/run_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/json_fields.h"
#include "engine/base/text.h"
#include "profiler/environment.h"
#include "sessions/stats.h"

namespace gradloom {
namespace {

// A number as the command says it, with those that JSON has no digits for.
double value_of(const Json& object, const char* key, double fallback = 0) {
  const auto it = object.find(key);
  if (it == object.end()) return fallback;
  if (it->is_number()) return it->get<double>();
  return it->is_string() ? std::nan("") : fallback;  // "NaN", "Infinity"
}

void read_step(const Json& root, RunProgress& p) {
  p.step = integer_of(root, "step");
  p.steps.push_back(static_cast<double>(p.step));
  p.losses.push_back(value_of(root, "loss"));
  p.step_ns.push_back(value_of(root, "step_ns"));
  p.grad_norms.push_back(value_of(root, "grad_norm", std::nan("")));
  p.last_step_at_ns = monotonic_ns();
  if (p.steps.size() == 1) p.first_step_at_ns = p.last_step_at_ns;
  p.fraction = p.planned_steps > 0 ? static_cast<double>(p.step) / static_cast<double>(p.planned_steps) : 0;
}

}  // namespace

AdviceRow read_finding(const Json& root) {
  AdviceRow row;
  row.title = text_of(root, "title");
  row.node = text_of(root, "node");
  row.change = text_of(root, "change");
  row.remedy = text_of(root, "remedy");
  row.command = text_of(root, "command");
  row.compares = flag_of(root, "compares");
  row.numbers = texts_of(root, "numbers");
  row.gain_ns = value_of(root, "gain_ns");
  row.gain = value_of(root, "gain");
  row.low = value_of(root, "low");
  row.high = value_of(root, "high");
  row.saved_bytes = integer_of(root, "saved_bytes");
  return row;
}

namespace {

std::vector<WhatIfPart> read_parts(const Json& root, const char* key) {
  std::vector<WhatIfPart> parts;
  for (const Json& part : objects_of(root, key))
    parts.push_back({text_of(part, "name"), value_of(part, "before_ns"), value_of(part, "after_ns"),
                     integer_of(part, "kernels_before"), integer_of(part, "kernels_after")});
  return parts;
}

WhatIfView read_answer(const Json& root) {
  WhatIfView view;
  view.question = text_of(root, "question");
  view.times = text_of(root, "times");
  view.note = text_of(root, "note");
  view.before_ns = value_of(root, "step_ns");
  view.after_ns = value_of(root, "predicted_ns");
  view.low_ns = value_of(root, "low_ns");
  view.high_ns = value_of(root, "high_ns");
  if (const auto ratio = root.find("ratio"); ratio != root.end() && ratio->is_object()) {
    view.ratio = value_of(*ratio, "value");
    view.low = value_of(*ratio, "low");
    view.high = value_of(*ratio, "high");
  }
  view.samples = value_of(root, "samples", 1);
  view.known = value_of(root, "measured");
  view.exposed_ns = value_of(root, "exposed_ns");
  view.before_peak_bytes = integer_of(root, "plan_peak_bytes");
  view.after_peak_bytes = integer_of(root, "predicted_peak_bytes");
  view.phases = read_parts(root, "phases");
  view.ops = read_parts(root, "ops");
  return view;
}

TuneTableRow read_tried(const Json& root) {
  TuneTableRow row;
  row.changes = text_of(root, "changes");
  row.label = text_of(root, "label");
  row.plan_hash = text_of(root, "plan_hash");
  row.round = integer_of(root, "round");
  row.ratio = {value_of(root, "ratio"), value_of(root, "low"), value_of(root, "high")};
  row.step_ns = value_of(root, "step_ns");
  row.predicted = value_of(root, "predicted_ratio");
  row.peak_bytes = integer_of(root, "peak_bytes");
  row.error = value_of(root, "error", -1);
  return row;
}

WorthSide read_side(const Json& root, const char* key) {
  const auto side = root.find(key);
  if (side == root.end() || !side->is_object()) return {};
  using State = WorthSide::State;
  return {flag_of(*side, "same_work") ? State::same : State::measured,
          {value_of(*side, "ratio"), value_of(*side, "low"), value_of(*side, "high")},
          integer_of(*side, "peak_saved_bytes")};
}

WorthTable read_worth(const Json& root) {
  WorthTable table;
  table.step_ns = value_of(root, "step_ns");
  table.peak_bytes = integer_of(root, "peak_bytes");
  table.all = read_side(root, "all");
  for (const Json& pass : objects_of(root, "passes"))
    table.passes.push_back({text_of(pass, "pass"), read_side(pass, "among"), read_side(pass, "alone")});
  return table;
}

Proof read_proof(const Json& root) {
  Proof proof;
  proof.equal = root["verified"] == Json(true);
  proof.passes = texts_of(root, "passes");
  proof.instances = integer_of(root, "instances");
  proof.tensors = integer_of(root, "tensors");
  proof.steps = integer_of(root, "steps");
  const auto take_worst = [&](const Json& of) {
    const auto worst = of.find("worst");
    if (worst == of.end() || !worst->is_object()) return;
    proof.kind = text_of(*worst, "kind");
    proof.tensor = text_of(*worst, "name");
    proof.error = value_of(*worst, "error");
    proof.bound = value_of(*worst, "bound");
  };
  take_worst(root);
  if (const auto culprit = root.find("culprit"); culprit != root.end() && culprit->is_object()) {
    proof.culprit = text_of(*culprit, "pass");
    proof.site = text_of(*culprit, "site");
    take_worst(*culprit);
  }
  return proof;
}

// What a search, the worth of passes or a proof says; false: another line.
bool read_search_line(const Json& root, RunKind kind, RunEvent& result) {
  if (kind == RunKind::tune)
    for (const char* what : {"job", "candidate", "trial", "row"})
      if (const auto row = root.find(what); row != root.end() && row->is_object()) {
        result.tried = read_tried(*row);
        return true;
      }
  if (const auto worth = root.find("worth");
      kind == RunKind::worth && worth != root.end() && worth->is_object()) {
    result.worth = read_worth(*worth);
    return true;
  }
  if (kind != RunKind::verify || !root.contains("verified")) return false;
  result.proof = read_proof(root);
  return true;
}

}  // namespace

const RunWords& words_of(RunKind kind) {
  static constexpr RunWords kWords[] = {
      {"Run", "The run", "running", ""},
      {"Comparison", "The comparison", "comparing", ""},
      {"Advice", "The advice", "looking for advice", "The advice is there"},
      {"Measuring", "Measuring", "measuring this machine", "This machine is measured"},
      {"Prediction", "The prediction", "predicting", "The prediction is there"},
      {"Search", "The search", "searching", "The search has ended"},
      {"Worth of passes", "Measuring the passes", "measuring what each pass is worth",
       "What each pass is worth is measured"},
      {"Proof", "The proof", "proving that the passes change nothing", "The passes are proved equal"}};
  return kWords[static_cast<std::size_t>(kind)];
}

std::string subject_of(const RunProgress& p) {
  return p.kind == RunKind::train && p.run_id > 0 ? "Run " + std::to_string(p.run_id)
                                                  : words_of(p.kind).subject;
}

// Of a comparison.
void read_group(const Json& root, RunProgress& p) {
  p.seconds = value_of(root, "seconds");
  p.most_seconds = value_of(root, "most_seconds");
  const auto group = root.find("group");
  if (group == root.end() || !group->is_array() || group->size() != 5) return;
  for (const Json& number : *group)
    if (!number.is_number()) return;
  const auto at = [&](std::size_t i) { return (*group)[i].get<double>(); };
  p.measured.push_back({at(0), {at(1), at(2)}, {at(3), at(4)}});
  p.intervals.add(p.measured.back());
}

std::string ratio_so_far(const RunProgress& p) {
  if (p.intervals.all().empty()) return {};
  const Interval& ratio = p.intervals.all().back();
  return fmt::format("B is {:.3f}\u00d7 [{:.3f}, {:.3f}]", ratio.value, ratio.low, ratio.high);
}

double seconds_left(const RunProgress& p, std::int64_t now_ns) {
  const auto since = [&](std::int64_t at_ns) { return static_cast<double>(now_ns - at_ns) * 1e-9; };
  if (p.kind != RunKind::train)
    return p.seconds_left < 0 ? -1 : std::max(0.0, p.seconds_left - since(p.left_at_ns));
  const std::size_t made = p.step_ns.size();
  if (made == 0 || p.planned_steps <= 0) return -1;
  constexpr std::size_t kRecent = 50;
  const auto recent = static_cast<std::ptrdiff_t>(std::min(made, kRecent));
  double pace_ns = median({p.step_ns.end() - recent, p.step_ns.end()});
  if (made > 1)
    pace_ns = std::max(
        pace_ns, static_cast<double>(p.last_step_at_ns - p.first_step_at_ns) / static_cast<double>(made - 1));
  const auto steps = static_cast<double>(std::max<std::int64_t>(0, p.planned_steps - p.step));
  return std::max(0.0, pace_ns * steps * 1e-9 - since(p.last_step_at_ns));
}

RunEvent read_run_line(const std::string& line, RunProgress& p) {
  RunEvent result;
  const Json root = Json::parse(line, nullptr, false);
  if (!root.is_object()) return result;
  const std::string event =
      root.contains("event") && root["event"].is_string() ? root["event"].get<std::string>() : "";
  if (event == "start") {
    p.run_id = root.contains("run_id") && root["run_id"].is_number() ? integer_of(root, "run_id") : 0;
    p.planned_steps = integer_of(root, "steps");
    p.kernels_per_step = integer_of(root, "kernels_per_step");
  } else if (event == "progress") {
    p.fraction = value_of(root, "fraction");
    p.what = text_of(root, "what");
    p.seconds_left = value_of(root, "seconds_left", -1);
    p.left_at_ns = monotonic_ns();
    read_group(root, p);
  } else if (read_search_line(root, p.kind, result)) {
    return result;
  } else if (p.kind == RunKind::what_if && root.contains("question")) {
    result.answer = read_answer(root);
  } else if (p.kind == RunKind::advise && root.contains("finding")) {
    result.finding = read_finding(root);
  } else if (p.kind == RunKind::advise && root.contains("summary") && root["summary"].is_object()) {
    result.advised_step_ns = value_of(root["summary"], "step_ns");
  } else if (root.contains("step") && root.contains("loss")) {
    read_step(root, p);
  } else if (root.contains("eval") && root["eval"].is_object()) {
    p.held_out_steps.push_back(value_of(root["eval"], "step"));
    p.held_out.push_back(value_of(root["eval"], "loss"));
  } else if (root.contains("checkpoint")) {
    result.checkpoint = true;
  } else if (root.contains("replay") && root["replay"].is_object()) {
    const bool agrees = root["replay"].value("agrees", false);
    result.notice = agrees ? Notice{NoticeKind::good, "The replay agrees with the recipe"}
                           : Notice{NoticeKind::warning, "The replay differs from what the recipe promises"};
  } else if (p.kind == RunKind::compare && !root.contains("summary")) {
    if (auto comparison = parse_comparison(line)) result.comparison = std::move(comparison).value();
  }
  return result;
}

Notice end_run(const ChildExit& exit, const std::optional<Verdict>& verdict, RunProgress& p) {
  const bool train = p.kind == RunKind::train;
  const std::string what = subject_of(p);
  const bool stopped = exit.code == static_cast<int>(Errc::interrupted) || p.stopping;
  p.running = false;
  p.exit_code = exit.code;
  // That a pass strays is an answer.
  const bool strays = p.kind == RunKind::verify && exit.code == static_cast<int>(Errc::check_failed);
  p.outcome = exit.ok() || strays ? "done" : stopped ? "stopped" : "failed";
  if (p.outcome == "failed") {
    p.error = exit.error.empty() ? what + " ended with code " + std::to_string(exit.code) : exit.error;
    return {NoticeKind::error, p.error};
  }
  if (p.outcome == "stopped")
    return {NoticeKind::info,
            what + " was stopped" + (train && p.step > 0 ? " after step " + std::to_string(p.step) : "")};
  if (strays) return {NoticeKind::warning, "A pass strays: its badge in the list of passes says where"};
  if (*words_of(p.kind).done != 0) return {NoticeKind::good, words_of(p.kind).done};
  if (!train && verdict) return {NoticeKind::good, std::string("Comparison: B is ") + verdict_name(*verdict)};
  return {NoticeKind::good,
          what + " is done: " + plural_text(static_cast<std::int64_t>(p.steps.size()), "step") + " in " +
              duration_text(static_cast<double>(monotonic_ns() - p.started_ns))};
}

std::int64_t changed_run(const std::string& line) {
  const Json root = Json::parse(line, nullptr, false);
  if (!root.is_object() || !root.contains("run_id") || root.value("deleted", true)) return 0;
  return root.value("run_id", std::int64_t{0});
}

std::vector<DeviceInfo> read_devices(const std::vector<std::string>& lines) {
  std::vector<DeviceInfo> devices;
  for (const std::string& line : lines) {
    const Json root = Json::parse(line, nullptr, false);
    if (!root.is_object() || !root.contains("device")) continue;
    DeviceInfo d;
    d.id = root.value("device", "");
    d.name = root.value("name", "");
    d.available = root.value("available", false);
    d.why_not = root.value("why_not", "");
    d.detail = root.value("detail", "");
    d.queued = d.id != "cpu";
    devices.push_back(std::move(d));
  }
  return devices;
}

}  // namespace gradloom
