#include "profiler/import/kineto.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/plan/streams.h"
#include "profiler/import/kernel_rows.h"
#include "profiler/import/kineto_calls.h"

namespace gradloom {
namespace {

using Kind = ChromeEvent::Kind;

// 0 is the busiest stream, or the training thread; the next ones are what copies and exchanges of our own runs use; a session
// takes 1023.
constexpr std::int32_t kFirstOther = kStreamCount, kLastStream = 1023;

const char* phase_text(CallPhase phase) {
  switch (phase) {
    case CallPhase::loss: return "loss";
    case CallPhase::backward: return "backward";
    case CallPhase::optimizer: return "optimizer";
    case CallPhase::data: return "data";
    default: return "forward";
  }
}

class KinetoRun {
 public:
  explicit KinetoRun(ChromeEvents& events)
      : events_(events), calls_(nest_calls(events)), rows_(trace_, events.texts) {}
  Result<ImportedTrace> make();

 private:
  const ChromeEvent& at(std::int32_t event) const { return events_.events[static_cast<std::size_t>(event)]; }
  const std::string& text(std::int32_t i) const { return events_.texts[i]; }
  const KinetoCall& call(std::int32_t i) const { return calls_.calls[static_cast<std::size_t>(i)]; }
  const AutogradNode& node(std::int32_t i) const { return calls_.nodes[static_cast<std::size_t>(i)]; }
  void find_steps();
  void choose_main_thread();
  Status cut_steps();
  void find_backward();
  void choose_modules();
  void choose_device();
  std::int32_t step_of(std::int64_t start_ns) const;
  CallPhase phase_of(const CallPlace& place, std::int64_t start_ns) const;
  std::int32_t module_of(const CallPlace& place) const;
  KernelPlace describe(const CallPlace& place, std::int64_t start_ns);
  bool outside(std::int64_t start_ns, std::int64_t ns);
  void add_operators();
  void add_device();
  void add_device_event(const ChromeEvent& e, std::int32_t launch);
  bool exchanges(const ChromeEvent& e) const { return text(e.name).starts_with("nccl"); }  // RCCL's, too
  std::int32_t kernel_name(const ChromeEvent& e);
  void number_streams();
  std::int32_t stream_of(const ChromeEvent& e) const;
  std::int32_t stream_of_thread(std::int32_t thread);
  void add_host();
  void tell();

  ChromeEvents& events_;
  KinetoCalls calls_;
  ImportedTrace trace_;
  KernelRows rows_;
  std::int32_t main_thread_ = -1, device_ = -1;
  std::unordered_set<std::int32_t> told_;  // launches, as calls
  bool by_marks_ = true, on_device_ = false, hip_ = false, unmarked_ = false;
  std::vector<std::int32_t> module_texts_;  // by module; 0: not there yet
  std::map<std::int32_t, std::int32_t> optimizer_texts_;
  std::vector<std::int64_t> backward_end_ns_;                              // by step; -1: it has none
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> streams_;  // by device and stream
  std::map<std::int32_t, std::int32_t> thread_streams_;
  double outside_ns_ = 0;
  std::int64_t unlaunched_ = 0, unmatched_nodes_ = 0, left_out_ = 0;
};

Result<ImportedTrace> KinetoRun::make() {
  trace_.origin = events_.origin;
  for (const ChromeEvent& e : events_.events) {
    on_device_ |= e.kind == Kind::kernel;
    hip_ |= e.kind == Kind::runtime && text(e.name).starts_with("hip");
  }
  find_steps();
  choose_main_thread();
  TRY(cut_steps());
  find_backward();
  choose_modules();
  if (on_device_)
    add_device();
  else
    add_operators();
  if (trace_.kernels.empty())
    return Error{Errc::bad_input, "it has neither operators nor kernels of PyTorch"};
  choose_device();
  add_host();
  tell();
  return std::move(trace_);
}

// Without marked steps the trace is one.
void KinetoRun::find_steps() {
  for (const std::int32_t event : calls_.steps) {
    const ChromeEvent& e = at(event);
    // Marked twice (by a nested profiler, or as a whole and in parts): the first counts.
    const bool again =
        !trace_.steps.empty() && e.start_ns < trace_.steps.back().start_ns + trace_.steps.back().duration_ns;
    if (again) continue;
    ImportedStep& step = trace_.steps.emplace_back();
    step.start_ns = e.start_ns;
    step.duration_ns = e.duration_ns;
    const std::string& name = text(e.name);
    if (const std::size_t mark = name.rfind('#'); mark != std::string::npos)
      step.number = parse_number<std::int64_t>(name.substr(mark + 1)).value_or(-1);
  }
  unmarked_ = trace_.steps.empty();
  if (!unmarked_) return;
  std::int64_t first = INT64_MAX, last = 0;
  for (const ChromeEvent& e : events_.events) {
    first = std::min(first, e.start_ns);
    last = std::max(last, e.start_ns + e.duration_ns);
  }
  if (first > last) return;
  trace_.steps.emplace_back().start_ns = first;
  trace_.steps.back().duration_ns = std::min(last - first, kLongestImport);
  trace_.notes.emplace_back("the trace marks no steps (profiler.step()): all of it counts as one");
}

// That of the steps, else the one with the most operators' time.
void KinetoRun::choose_main_thread() {
  if (!calls_.steps.empty()) {
    main_thread_ = at(calls_.steps.front()).thread;
    return;
  }
  std::map<std::int32_t, double> own_ns;
  for (const KinetoCall& c : calls_.calls) own_ns[at(c.event).thread] += static_cast<double>(c.own_ns);
  for (const auto& [thread, ns] : own_ns)
    if (main_thread_ < 0 || ns > own_ns[main_thread_]) main_thread_ = thread;
}

Status KinetoRun::cut_steps() {
  if (trace_.steps.size() > kMostImportSteps)
    return Error{Errc::limit, fmt::format("it has more than {} steps", kMostImportSteps)};
  std::vector<std::int64_t> executions(trace_.steps.size());
  for (const ChromeEvent& e : events_.events)
    if (e.kind == (on_device_ ? Kind::kernel : Kind::op))
      if (const std::int32_t step = step_of(e.start_ns); step >= 0)
        ++executions[static_cast<std::size_t>(step)];
  left_out_ = fit_steps(trace_, executions);
  if (trace_.steps.empty() && left_out_ > 0)
    return Error{Errc::limit, fmt::format("its first step alone has more than {} executions of kernels",
                                          kMostImportExecutions)};
  return {};
}

void KinetoRun::find_backward() {
  backward_end_ns_.assign(trace_.steps.size(), -1);
  for (const AutogradNode& n : calls_.nodes) {
    const ChromeEvent& e = at(n.event);
    if (const std::int32_t step = step_of(e.start_ns); step >= 0) {
      std::int64_t& end = backward_end_ns_[static_cast<std::size_t>(step)];
      end = std::max(end, e.start_ns + e.duration_ns);
    }
  }
}

// -1: outside of all.
std::int32_t KinetoRun::step_of(std::int64_t start_ns) const {
  const auto after =
      std::upper_bound(trace_.steps.begin(), trace_.steps.end(), start_ns,
                       [](std::int64_t ns, const ImportedStep& step) { return ns < step.start_ns; });
  if (after == trace_.steps.begin()) return -1;
  const auto step = after - 1;
  const bool inside = unmarked_ || start_ns < step->start_ns + std::max<std::int64_t>(step->duration_ns, 1);
  return inside ? static_cast<std::int32_t>(step - trace_.steps.begin()) : -1;
}

// Modules are what the program marked, unless that is less of the forward than what traces with stacks say.
void KinetoRun::choose_modules() {
  double marked_ns = 0, stacked_ns = 0;
  for (const KinetoCall& c : calls_.calls) {
    if (c.place.node >= 0 || at(c.event).kind != Kind::op) continue;
    if (c.place.marked != 0) marked_ns += static_cast<double>(c.own_ns);
    if (c.place.module != 0) stacked_ns += static_cast<double>(c.own_ns);
  }
  by_marks_ = marked_ns >= stacked_ns;
}

CallPhase KinetoRun::phase_of(const CallPlace& place, std::int64_t start_ns) const {
  if (place.phase != CallPhase::unknown) return place.phase;
  const std::int32_t step = step_of(start_ns);
  const std::int64_t backward_end = step < 0 ? -1 : backward_end_ns_[static_cast<std::size_t>(step)];
  const bool after = backward_end >= 0 && start_ns >= backward_end && module_of(place) == 0;
  return after ? CallPhase::optimizer : CallPhase::forward;
}

// Of a backward operator that of its forward, unless it is in one itself (recomputed).
std::int32_t KinetoRun::module_of(const CallPlace& place) const {
  const std::int32_t own = by_marks_ ? place.marked : place.module;
  if (place.node < 0) return own;
  const std::int32_t forward = node(place.node).forward;
  if (forward < 0) return own;
  const CallPlace& there = call(forward).place;
  const std::int32_t module = by_marks_ ? there.marked : there.module;
  return own != 0 ? own : module;
}

KernelPlace KinetoRun::describe(const CallPlace& place, std::int64_t start_ns) {
  KernelPlace made;
  const CallPhase phase = phase_of(place, start_ns);
  made.phase = events_.texts.add(phase_text(phase));
  const auto module = static_cast<std::size_t>(module_of(place));
  if (module >= module_texts_.size()) module_texts_.resize(module + 1);
  if (module > 0 && module_texts_[module] == 0)
    module_texts_[module] = events_.texts.add(calls_.paths[static_cast<std::int32_t>(module)]);
  made.scope = module_texts_[module];
  if (place.inner >= 0) {
    made.op = at(place.inner).name;
    made.inputs = at(place.inner).inputs;
  }
  std::int32_t source = place.outer;
  if (place.node >= 0) {
    const AutogradNode& n = node(place.node);
    if (n.name != made.op) made.inside = n.name;
    source = n.forward < 0 ? -1 : call(n.forward).place.outer;
  } else if (place.part >= 0) {
    std::int32_t& name = optimizer_texts_[at(place.part).name];
    if (name == 0) name = events_.texts.add(optimizer_name(text(at(place.part).name)));
    made.inside = name;
    source = -1;
  } else if (place.outer >= 0 && place.outer != place.inner) {
    made.inside = at(place.outer).name;
  }
  if (source >= 0 && phase != CallPhase::optimizer) made.source = at(source).name;
  return made;
}

// Counts what is in no step, but for what follows the last one.
bool KinetoRun::outside(std::int64_t start_ns, std::int64_t ns) {
  if (step_of(start_ns) >= 0) return false;
  if (!trace_.steps.empty() && start_ns < trace_.steps.back().start_ns)
    outside_ns_ += static_cast<double>(ns);
  return true;
}

// Operators of several threads run at the same time, as those of streams.
std::int32_t KinetoRun::stream_of_thread(std::int32_t thread) {
  if (thread == main_thread_) return 0;
  const auto next = static_cast<std::int32_t>(thread_streams_.size());
  const auto [at, fresh] = thread_streams_.try_emplace(thread, std::min(kFirstOther + next, kLastStream));
  if (fresh && next < 16)
    trace_.environment[kTraceStream + std::to_string(at->second)] =
        "thread " + events_.threads[static_cast<std::size_t>(thread)];
  return at->second;
}

void KinetoRun::add_operators() {
  for (const KinetoCall& c : calls_.calls) {
    const ChromeEvent& e = at(c.event);
    if (e.kind != Kind::op || outside(e.start_ns, c.own_ns)) continue;
    KernelPlace place = describe(c.place, e.start_ns);
    place.kernel = place.op;
    place.stream = stream_of_thread(e.thread);
    if (c.place.node >= 0 && node(c.place.node).forward < 0) ++unmatched_nodes_;
    rows_.add(trace_.steps[static_cast<std::size_t>(step_of(e.start_ns))], place, c.own_start_ns, c.own_ns);
  }
}

void KinetoRun::number_streams() {
  std::map<std::pair<std::int32_t, std::int32_t>, double> busy_ns;
  for (const ChromeEvent& e : events_.events)
    if (e.kind == Kind::kernel || e.kind == Kind::copy || e.kind == Kind::fill)
      busy_ns[{e.device, e.stream}] += e.kind == Kind::kernel ? static_cast<double>(e.duration_ns) : 0;
  std::vector<std::pair<double, std::pair<std::int32_t, std::int32_t>>> order;
  for (const auto& [stream, ns] : busy_ns) order.emplace_back(-ns, stream);
  std::sort(order.begin(), order.end());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int32_t number =
        i == 0 ? 0 : std::min(kFirstOther + static_cast<std::int32_t>(i) - 1, kLastStream);
    streams_[order[i].second] = number;
    if (i < 16)
      trace_.environment[kTraceStream + std::to_string(number)] =
          fmt::format("stream {} of device {}", order[i].second.second, order[i].second.first);
  }
}

std::int32_t KinetoRun::stream_of(const ChromeEvent& e) const {
  const auto known = streams_.find({e.device, e.stream});
  return known == streams_.end() ? 0 : known->second;
}

void KinetoRun::add_device() {
  number_streams();
  // By correlation and by external id. Trees, because the numbers are a file's: it could make them fall together in a hash.
  std::map<std::int64_t, std::int32_t> launch_of, operator_of;
  for (std::size_t i = 0; i < calls_.calls.size(); ++i) {
    const ChromeEvent& e = at(calls_.calls[i].event);
    if (e.kind == Kind::runtime && e.correlation >= 0)
      launch_of[e.correlation] = static_cast<std::int32_t>(i);
    if (e.kind == Kind::op && e.external >= 0) operator_of[e.external] = static_cast<std::int32_t>(i);
  }
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < events_.events.size(); ++i) {
    const Kind kind = events_.events[i].kind;
    if (kind == Kind::kernel || kind == Kind::copy || kind == Kind::fill)
      order.push_back(static_cast<std::int32_t>(i));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return at(a).start_ns < at(b).start_ns; });
  for (const std::int32_t event : order) {
    const ChromeEvent& e = at(event);
    const auto launched = e.correlation < 0 ? launch_of.end() : launch_of.find(e.correlation);
    // Older traces give kernels the correlation as external id.
    const auto named = launched != launch_of.end() || e.external < 0 || e.external == e.correlation
                           ? operator_of.end()
                           : operator_of.find(e.external);
    add_device_event(e, launched != launch_of.end()  ? launched->second
                        : named != operator_of.end() ? named->second
                                                     : -1);
  }
}

// Exchanges of several groups of ranks are different kernels.
std::int32_t KinetoRun::kernel_name(const ChromeEvent& e) {
  if (!exchanges(e) || e.detail == 0) return e.name;
  return events_.texts.add(text(e.name) + " of group " + text(e.detail));
}

// `launch`: the call that started it, or the operator that did; -1: neither is known.
void KinetoRun::add_device_event(const ChromeEvent& e, std::int32_t launch) {
  const bool known = launch >= 0;
  const std::int64_t launched_ns = known ? at(call(launch).event).start_ns : e.start_ns;
  if (outside(launched_ns, e.duration_ns)) return;
  ImportedStep& step = trace_.steps[static_cast<std::size_t>(step_of(launched_ns))];
  const std::int32_t stream = stream_of(e);
  std::int32_t plan_step = -1;
  if (e.kind == Kind::kernel) {
    if (!known) ++unlaunched_;
    KernelPlace place = describe(known ? call(launch).place : CallPlace(), launched_ns);
    place.kernel = kernel_name(e);
    place.stream = stream;
    plan_step = rows_.add(step, place, e.start_ns, e.duration_ns);
    if (exchanges(e)) {
      trace_.kernels[static_cast<std::size_t>(plan_step)].exchange = true;
      step.exchanges.push_back({plan_step, e.start_ns, e.duration_ns, e.bytes});
    }
  } else {
    const auto kind = e.kind == Kind::copy ? Activity::Kind::copy : Activity::Kind::fill;
    step.activities.push_back(
        {kind, -1, stream, e.start_ns, e.start_ns + e.duration_ns, e.bytes, text(e.name), 0});
  }
  // One launch of a CUDA graph starts many kernels: it is told with the first.
  if (!known || at(call(launch).event).kind != Kind::runtime || !told_.insert(launch).second) return;
  const ChromeEvent& l = at(call(launch).event);
  step.activities.push_back(
      {Activity::Kind::api, plan_step, -1, l.start_ns, l.start_ns + l.duration_ns, 0, text(l.name), 0});
}

void KinetoRun::choose_device() {
  trace_.device = "cpu";
  const auto peak = [&](std::int64_t type) {
    const auto known = events_.peak_bytes.find(type);
    return known == events_.peak_bytes.end() ? 0 : known->second;
  };
  trace_.peak_bytes = peak(0);
  if (!on_device_) return;
  for (const auto& [stream, number] : streams_)
    if (number == 0) device_ = std::max(stream.first, 0);
  trace_.device = fmt::format("{}:{}", hip_ ? "hip" : "cuda", device_);
  trace_.peak_bytes = peak(1);
  const auto name = events_.devices.find(device_);
  if (name != events_.devices.end()) trace_.environment["gpu.name"] = name->second;
}

// Of the training thread: modules, autograd's nodes, optimizers, DataLoaders and what the program marked else.
void KinetoRun::add_host() {
  std::vector<std::vector<HostSpan>> spans(trace_.steps.size());
  for (const std::int32_t event : calls_.spans) {
    const ChromeEvent& e = at(event);
    const std::int32_t step = e.thread == main_thread_ ? step_of(e.start_ns) : -1;
    if (step < 0) continue;
    const std::string& name = text(e.name);
    const bool autograd = e.kind == Kind::op;
    const MarkKind mark = mark_kind(name);
    if (!autograd && (e.kind == Kind::module) == by_marks_ &&
        (e.kind == Kind::module || mark == MarkKind::module))
      continue;  // of the modules that are not chosen
    HostSpan span;
    span.kind = autograd                      ? "backward"
                : e.kind == Kind::module      ? "module"
                : mark == MarkKind::optimizer ? "optimizer"
                : mark == MarkKind::data      ? "data"
                : mark == MarkKind::module    ? "module"
                                              : "python";
    span.name = mark == MarkKind::optimizer ? optimizer_name(name)
                : autograd ? name.substr(name.find(": ") == std::string::npos ? 0 : name.find(": ") + 2)
                           : name;
    span.start_ns = e.start_ns;
    span.duration_ns = e.duration_ns;
    spans[static_cast<std::size_t>(step)].push_back(std::move(span));
  }
  for (std::size_t i = 0; i < spans.size(); ++i) {
    ImportedStep& step = trace_.steps[i];
    if (spans[i].size() >= kMostImportSpans) continue;
    step.host = nested_spans(std::move(spans[i]), static_cast<std::int64_t>(i) + 1, step.start_ns,
                             step.start_ns + step.duration_ns);
    for (HostSpan& span : step.host)
      if (span.kind == "module" && span.name.starts_with("nn.Module: ")) span.name.erase(0, 11);
  }
}

void KinetoRun::tell() {
  for (const auto& [name, value] : events_.facts) trace_.environment[name] = value;
  if (!calls_.steps.empty())
    trace_.environment["trace.steps"] =
        fmt::format("{} to {}", text(at(calls_.steps.front()).name), text(at(calls_.steps.back()).name));
  if (!events_.with_categories && events_.origin == "kineto")
    trace_.notes.push_back(
        "this PyTorch has no Kineto: times are whole microseconds, and shapes are missing");
  if (calls_.by_order)
    trace_.notes.push_back(
        "the trace has no sequence numbers: backward operators belong to the last forward "
        "operator of their name");
  if (unmatched_nodes_ > 0)
    trace_.notes.push_back(plural_text(unmatched_nodes_, "backward operator") +
                           " without a forward operator");
  if (unlaunched_ > 0)
    trace_.notes.push_back(plural_text(unlaunched_, "kernel") + " whose launch the trace does not have");
  if (left_out_ > 0)
    trace_.notes.push_back(fmt::format("at most {} executions of kernels are taken: {} left out",
                                       kMostImportExecutions, plural_text(left_out_, "later step")));
  if (events_.unreadable > 0)
    trace_.notes.push_back(plural_text(events_.unreadable, "event") + " without a time");
  double inside_ns = 0;
  for (const ImportedStep& step : trace_.steps)
    for (const KernelSample& sample : step.samples) inside_ns += static_cast<double>(sample.duration_ns);
  if (outside_ns_ > inside_ns / 100)
    trace_.notes.push_back(duration_text(outside_ns_) + " of kernels lie outside of the steps");
}

}  // namespace

// A profiler that ends within a step cuts it off.
static void leave_out_cut_step(ImportedTrace& trace) {
  if (trace.steps.size() < 2) return;
  std::vector<std::size_t> executions;
  for (const ImportedStep& step : trace.steps) executions.push_back(step.samples.size());
  const std::size_t last = executions.back();
  executions.pop_back();
  const auto middle = executions.begin() + static_cast<std::ptrdiff_t>(executions.size() / 2);
  std::nth_element(executions.begin(), middle, executions.end());
  if (2 * last >= *middle) return;
  trace.notes.push_back(fmt::format(
      "the profiler ended in the last step ({} of some {} kernels): it is left out", last, *middle));
  trace.steps.pop_back();
}

Result<ImportedTrace> import_kineto(ChromeEvents& events) {
  ImportedTrace trace = TRY(KinetoRun(events).make());
  leave_out_cut_step(trace);
  return trace;
}

}  // namespace gradloom
