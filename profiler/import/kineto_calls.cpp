#include "profiler/import/kineto_calls.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <unordered_map>

namespace gradloom {
namespace {

using Kind = ChromeEvent::Kind;

constexpr std::string_view kEvaluate = "autograd::engine::evaluate_function: ";
constexpr std::string_view kModule = "nn.Module: ";
constexpr std::size_t kMostPaths = 100'000, kMostPathBytes = 1024;

struct PhaseWord {
  std::string_view word;
  CallPhase phase;
};
// Spans of these names say what the program does, and are no modules.
constexpr PhaseWord kPhaseWords[] = {
    {"forward", CallPhase::forward},
    {"forward_pass", CallPhase::forward},
    {"model_inference", CallPhase::forward},
    {"model_forward", CallPhase::forward},
    {"loss", CallPhase::loss},
    {"backward", CallPhase::backward},
    {"backward_pass", CallPhase::backward},
    {"optimizer", CallPhase::optimizer},
    {"optimizer_step", CallPhase::optimizer},
    {"optimizer.step", CallPhase::optimizer},
    {"zero_grad", CallPhase::optimizer},
    {"data", CallPhase::data},
    {"dataloader", CallPhase::data},
};

// Spans of PyTorch's own that say nothing of a module.
constexpr std::array<std::string_view, 9> kOthers{"nccl:",
                                                  "gloo:",
                                                  "[",
                                                  "## ",
                                                  "PyTorch Profiler",
                                                  "DistributedDataParallel.",
                                                  "Torch-Compiled Region",
                                                  "Profiler",
                                                  "TorchDynamo"};

CallPhase phase_of_word(const std::string& name) {
  std::string word;
  for (const char c : name)
    if (c != '#' && c != ' ') word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const PhaseWord& known : kPhaseWords)
    if (word == known.word) return known.phase;
  return CallPhase::unknown;
}

// A node that computes without operators inside it: what the program wrote, or torch.compile made. In Python such are
// "FBackward", where PyTorch's own have a number ("AddmmBackward0").
bool computes_itself(const std::string& node) {
  return node.ends_with("Backward") || node.starts_with("torch::autograd::CppNode");
}

std::string_view without_digits(std::string_view name) {
  const std::size_t last = name.find_last_not_of("0123456789");
  return last == std::string_view::npos ? name : name.substr(0, last + 1);
}

// One open span of a thread.
struct Open {
  std::int64_t end_ns = 0;
  std::int32_t op_call = -1;  // the nearest operator around what follows, in KinetoCalls::calls
  CallPlace place;            // of what lies in it
};

// Of an operator that is open: where its own time lies.
struct OwnTime {
  std::int64_t cursor_ns = 0, longest_ns = -1;
};

class Nesting {
 public:
  Nesting(ChromeEvents& events, KinetoCalls& out) : events_(events), out_(out) {}
  void thread(const std::vector<std::int32_t>& order);

 private:
  const std::string& name(std::int32_t event) const { return events_.texts[at(event).name]; }
  const ChromeEvent& at(std::int32_t event) const { return events_.events[static_cast<std::size_t>(event)]; }
  KinetoCall& call(std::int32_t i) { return out_.calls[static_cast<std::size_t>(i)]; }
  void open(std::int32_t event);
  void close_before(std::int64_t start_ns);
  void open_operator(std::int32_t event, Open& span);
  void open_mark(std::int32_t event, Open& span);
  void open_node(std::int32_t event, Open& span);
  void gap(std::int32_t op, std::int64_t until_ns);

  ChromeEvents& events_;
  KinetoCalls& out_;
  std::vector<Open> stack_;
  std::unordered_map<std::int32_t, OwnTime> own_;  // by call, of operators that are open
};

void Nesting::thread(const std::vector<std::int32_t>& order) {
  for (const std::int32_t event : order) open(event);
  close_before(INT64_MAX);
}

// The operator did something itself from where the last one inside it ended.
void Nesting::gap(std::int32_t op, std::int64_t until_ns) {
  OwnTime& own = own_[op];
  const std::int64_t ns = until_ns - own.cursor_ns;
  if (ns > own.longest_ns) {
    own.longest_ns = ns;
    call(op).own_start_ns = own.cursor_ns;
  }
}

void Nesting::close_before(std::int64_t start_ns) {
  while (!stack_.empty() && stack_.back().end_ns <= start_ns) {
    const Open closed = stack_.back();
    stack_.pop_back();
    const std::int32_t around = stack_.empty() ? -1 : stack_.back().op_call;
    if (closed.op_call < 0 || closed.op_call == around) continue;  // no operator
    gap(closed.op_call, closed.end_ns);
    own_.erase(closed.op_call);
    KinetoCall& done = call(closed.op_call);
    done.own_ns = std::max<std::int64_t>(done.own_ns, 0);
    done.own_start_ns =
        std::max(at(done.event).start_ns, std::min(done.own_start_ns, closed.end_ns - done.own_ns));
  }
}

void Nesting::open(std::int32_t event) {
  const ChromeEvent& e = at(event);
  close_before(e.start_ns);
  // Spans of no time lie in what began at the same time.
  Open span;
  if (!stack_.empty()) span = stack_.back();
  const std::int64_t end_ns = e.start_ns + e.duration_ns;
  span.end_ns = stack_.empty() ? end_ns : std::min(end_ns, stack_.back().end_ns);
  switch (e.kind) {
    case Kind::op:
      if (is_autograd(name(event)))
        open_node(event, span);
      else
        open_operator(event, span);
      break;
    case Kind::node: open_operator(event, span); break;
    case Kind::annotation: open_mark(event, span); break;
    case Kind::module:
      span.place.module = out_.paths.add(span.place.module, e.name, name(event).substr(kModule.size()));
      span.place.outer = span.place.inner = -1;
      out_.spans.push_back(event);
      break;
    default: out_.calls.push_back({event, span.place}); return;  // of the runtime: nothing lies in it
  }
  stack_.push_back(span);
}

void Nesting::open_operator(std::int32_t event, Open& span) {
  const ChromeEvent& e = at(event);
  if (span.op_call >= 0) {
    gap(span.op_call, e.start_ns);
    own_[span.op_call].cursor_ns = span.end_ns;
    call(span.op_call).own_ns -= span.end_ns - e.start_ns;
  }
  if (span.place.outer < 0) span.place.outer = event;
  span.place.inner = event;
  span.op_call = static_cast<std::int32_t>(out_.calls.size());
  own_[span.op_call].cursor_ns = e.start_ns;
  out_.calls.push_back({event, span.place, span.end_ns - e.start_ns, e.start_ns});
}

void Nesting::open_node(std::int32_t event, Open& span) {
  std::string what = name(event);
  if (what.starts_with(kEvaluate)) what.erase(0, kEvaluate.size());
  const std::int32_t text = events_.texts.add(what);
  span.place.phase = CallPhase::backward;
  span.place.outer = span.place.inner = -1;
  const bool inside =  // the function that the engine evaluates
      span.place.node >= 0 && out_.nodes[static_cast<std::size_t>(span.place.node)].name == text;
  if (!inside) {
    span.place.node = static_cast<std::int32_t>(out_.nodes.size());
    out_.nodes.push_back({event, text, -1, out_.calls.size()});
    out_.spans.push_back(event);
  }
  if (at(event).name == text && computes_itself(what)) open_operator(event, span);
}

void Nesting::open_mark(std::int32_t event, Open& span) {
  const std::string& mark = name(event);
  const MarkKind kind = mark_kind(mark);
  CallPlace& place = span.place;
  if (kind != MarkKind::other) place.outer = place.inner = -1;
  switch (kind) {
    case MarkKind::step:
      out_.steps.push_back(event);
      place.marked = place.module = 0;  // what is around all steps says nothing of a part of them
      return;
    case MarkKind::optimizer: place.phase = CallPhase::optimizer, place.part = event; break;
    case MarkKind::data: place.phase = CallPhase::data, place.part = event; break;
    case MarkKind::phase: place.phase = phase_of_word(mark); break;
    case MarkKind::other: return;
    case MarkKind::module: place.marked = out_.paths.add(place.marked, at(event).name, mark); break;
  }
  out_.spans.push_back(event);
}

// "aten::_log_softmax" and "LogSoftmaxBackward0" -> "logsoftmax".
std::string plain_name(std::string_view name) {
  if (const std::size_t colon = name.rfind(':'); colon != std::string_view::npos)
    name.remove_prefix(colon + 1);
  name = without_digits(name).ends_with("Backward")
             ? without_digits(name).substr(0, without_digits(name).size() - 8)
             : name;
  std::string plain;
  for (const char c : name)
    if (c != '_') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (plain.ends_with("forward")) plain.resize(plain.size() - 7);
  return plain;
}

bool makes_nodes(const KinetoCall& call) {
  return call.place.node < 0 && call.place.phase != CallPhase::optimizer &&
         call.place.phase != CallPhase::data;
}

void match_by_sequence(const ChromeEvents& events, KinetoCalls& out) {
  std::map<std::int64_t, std::int32_t> last;  // the operator that made the node is the last of its number
  for (std::size_t i = 0; i < out.calls.size(); ++i) {
    const ChromeEvent& e = events.events[static_cast<std::size_t>(out.calls[i].event)];
    if (e.sequence < 0 || e.kind != Kind::op || !makes_nodes(out.calls[i])) continue;
    std::int32_t& at = last.try_emplace(e.sequence, static_cast<std::int32_t>(i)).first->second;
    const std::int32_t before = out.calls[static_cast<std::size_t>(at)].event;
    if (events.events[static_cast<std::size_t>(before)].start_ns <= e.start_ns)
      at = static_cast<std::int32_t>(i);
  }
  for (AutogradNode& node : out.nodes) {
    const std::int64_t sequence = events.events[static_cast<std::size_t>(node.event)].sequence;
    const auto at = sequence < 0 ? last.end() : last.find(sequence);
    if (at != last.end()) node.forward = at->second;
  }
}

void match_by_order(const ChromeEvents& events, KinetoCalls& out) {
  std::vector<std::string> plain(events.texts.size());
  const auto plain_of = [&](std::int32_t text) -> const std::string& {
    std::string& known = plain[static_cast<std::size_t>(text)];
    if (known.empty()) known = plain_name(events.texts[text]);
    return known;
  };
  NameMap<std::vector<std::int32_t>> waiting;  // operators, by the name of the node that they made
  for (const AutogradNode& node : out.nodes) waiting[plain_of(node.name)];
  std::size_t next = 0;
  std::int64_t covered_ns = -1;  // of a thread: what is inside the operator that made a node makes none
  std::int32_t thread = -1;
  for (std::size_t i = 0; i <= out.calls.size(); ++i) {
    for (; next < out.nodes.size() && out.nodes[next].at_call == i; ++next) {
      std::vector<std::int32_t>& found = waiting[plain_of(out.nodes[next].name)];
      if (found.empty()) continue;
      out.nodes[next].forward = found.back();
      found.pop_back();
    }
    if (i == out.calls.size() || !makes_nodes(out.calls[i])) continue;
    const ChromeEvent& e = events.events[static_cast<std::size_t>(out.calls[i].event)];
    if (e.thread != thread) thread = e.thread, covered_ns = -1;
    if (e.kind != Kind::op || e.start_ns + e.duration_ns <= covered_ns) continue;
    const auto made = waiting.find(plain_of(e.name));
    if (made == waiting.end()) continue;
    made->second.push_back(static_cast<std::int32_t>(i));
    covered_ns = e.start_ns + e.duration_ns;
  }
}

// A gradient is added to its parameter's at once: that belongs to the node before.
void follow_accumulations(const ChromeEvents& events, KinetoCalls& out) {
  for (std::size_t i = 1; i < out.nodes.size(); ++i) {
    AutogradNode& node = out.nodes[i];
    const AutogradNode& before = out.nodes[i - 1];
    const auto thread = [&](const AutogradNode& n) {
      return events.events[static_cast<std::size_t>(n.event)].thread;
    };
    if (node.forward < 0 && events.texts[node.name].ends_with("AccumulateGrad") &&
        thread(node) == thread(before))
      node.forward = before.forward;
  }
}

}  // namespace

std::int32_t ModulePaths::add(std::int32_t around, std::int32_t text, const std::string& label) {
  const auto known = known_.find({around, text});
  if (known != known_.end()) return known->second;
  const auto& [outer, depth] = paths_[static_cast<std::size_t>(around)];
  const bool whole = outer.empty() || label == outer || label.starts_with(outer + "/");
  std::string path = whole ? label : outer + "/" + label;
  std::int32_t made = around;
  if (depth < kMostImportDepth && path.size() <= kMostPathBytes && paths_.size() < kMostPaths) {
    made = static_cast<std::int32_t>(paths_.size());
    paths_.emplace_back(std::move(path), depth + 1);
  }
  if (known_.size() < 2 * kMostPaths) known_.emplace(std::pair(around, text), made);
  return made;
}

MarkKind mark_kind(const std::string& name) {
  if (name.starts_with("ProfilerStep")) return MarkKind::step;
  if (name.starts_with("Optimizer.")) return MarkKind::optimizer;
  if (name.starts_with("enumerate(DataLoader)")) return MarkKind::data;
  if (phase_of_word(name) != CallPhase::unknown) return MarkKind::phase;
  for (const std::string_view other : kOthers)
    if (name.starts_with(other)) return MarkKind::other;
  return MarkKind::module;
}

std::string optimizer_name(const std::string& name) {
  const std::size_t mark = name.find('#');
  return mark == std::string::npos ? name : name.substr(mark + 1);
}

bool is_autograd(const std::string& name) {
  return name.starts_with("autograd::engine::") || name.starts_with("torch::autograd::") ||
         without_digits(name).ends_with("Backward");
}

KinetoCalls nest_calls(ChromeEvents& events) {
  KinetoCalls out;
  std::vector<std::int32_t> order;
  bool numbered = false;
  for (std::size_t i = 0; i < events.events.size(); ++i) {
    const ChromeEvent& e = events.events[i];
    numbered |= e.sequence >= 0;
    if (e.kind == Kind::op || e.kind == Kind::annotation || e.kind == Kind::module ||
        e.kind == Kind::runtime || e.kind == Kind::node)
      order.push_back(static_cast<std::int32_t>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t i, std::int32_t j) {
    const ChromeEvent &a = events.events[static_cast<std::size_t>(i)],
                      &b = events.events[static_cast<std::size_t>(j)];
    if (a.thread != b.thread) return a.thread < b.thread;
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
  });
  Nesting nesting(events, out);
  std::vector<std::int32_t> thread;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto thread_of = [&](std::size_t k) {
      return events.events[static_cast<std::size_t>(order[k])].thread;
    };
    thread.push_back(order[i]);
    if (i + 1 < order.size() && thread_of(i + 1) == thread_of(i)) continue;
    nesting.thread(thread);
    thread.clear();
  }
  std::stable_sort(out.steps.begin(), out.steps.end(), [&](std::int32_t a, std::int32_t b) {
    return events.events[static_cast<std::size_t>(a)].start_ns <
           events.events[static_cast<std::size_t>(b)].start_ns;
  });
  out.by_order = !numbered && !out.nodes.empty();
  if (out.by_order)
    match_by_order(events, out);
  else
    match_by_sequence(events, out);
  follow_accumulations(events, out);
  return out;
}

}  // namespace gradloom
