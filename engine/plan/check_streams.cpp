// Races between streams: vector clocks (Lamport, 1978; Mattern, 1988) over the steps tell which of them are known to be over
// when another begins; what is not ordered must not touch the same bytes, unless both only read them.
#include "engine/plan/check_streams.h"

#include <algorithm>
#include <array>

#include "engine/ir/op.h"
#include "engine/ops/transfers.h"
#include "engine/plan/streams.h"

namespace gradloom {
namespace {

// Bytes that a step touches.
struct Touch {
  Place place;
  std::int64_t begin, end;
  bool writes;
  ValueId value;  // kNone: workspace
};

class StreamChecker {
 public:
  StreamChecker(const Graph& graph, const Plan& plan) : graph_(graph), plan_(plan) {}

  Status run() {
    bool aside = false;
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      TRY(check_step(i));
      aside = aside || plan_.steps[i].stream != kComputeStream;
    }
    if (!aside) return {};
    find_order();
    TRY(check_exchanges());
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) touched_.push_back(touches_of(i));
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      if (plan_.steps[i].stream == kComputeStream) continue;
      // Two steps aside are looked at from the later one.
      for (std::size_t other = 0; other < plan_.steps.size(); ++other)
        if (other < i || plan_.steps[other].stream == kComputeStream)
          TRY(check_pair(std::min(i, other), std::max(i, other)));
    }
    return {};
  }

 private:
  using Clock = std::array<std::int64_t, kStreamCount>;  // by stream: the last step that is over

  const Node& node(std::size_t step) const { return graph_.nodes[plan_.steps[step].node]; }
  std::string name(std::size_t step) const {
    return "step " + std::to_string(step) + " ('" + node(step).name + "', stream " +
           std::to_string(plan_.steps[step].stream) + ")";
  }
  static Error fail(const std::string& message) { return Error{Errc::bug, "invalid plan: " + message}; }
  bool in_host(ValueId v) const {
    return v != kNone && plan_.buffer_of[v] >= 0 &&
           plan_.buffers[static_cast<std::size_t>(plan_.buffer_of[v])].place == Place::host;
  }

  Status check_step(std::size_t i) const {
    const PlanStep& step = plan_.steps[i];
    if (step.stream < 0 || step.stream >= kStreamCount) return fail(name(i) + ": there is no such stream");
    std::int32_t before = -1;
    for (const std::int32_t other : step.waits) {
      if (other <= before) return fail(name(i) + ": its waits are not in order");
      before = other;
      if (other >= static_cast<std::int32_t>(i)) return fail(name(i) + " waits for a step that comes later");
      const PlanStep& waited = plan_.steps[static_cast<std::size_t>(other)];
      if (waited.stream == step.stream) return fail(name(i) + " waits for a step of its own stream");
      if (waited.micro != step.micro) return fail(name(i) + " waits for a step outside the micro-batch");
    }
    const OpDef& op = *node(i).op;
    const bool out = copies_to_host(op), back = copies_from_host(op), aside = step.stream != kComputeStream;
    const bool exchange = step.stream == kExchangeStream;
    if (exchange && !op.begins_exchange())
      return fail(name(i) + " begins no exchange between ranks, and only these run on that stream");
    if (aside && !exchange && !out && !back)
      return fail(name(i) + " is no copy, and only copies run on that stream");
    if (aside && !exchange && (out ? step.stream != kDownloadStream : step.stream != kUploadStream))
      return fail(name(i) + " is on the stream of the other direction");
    for (const ValueId in : node(i).inputs)
      if (in_host(in) != (in != kNone && aside && back))
        return fail(name(i) + " reads '" + graph_.values[in].name + "', which is " +
                    (in_host(in) ? "in the host's memory" : "not in the host's memory"));
    for (const ValueId made : node(i).outputs)
      if (in_host(made) != (made != kNone && aside && out))
        return fail(name(i) + " writes '" + graph_.values[made].name + "', which is " +
                    (in_host(made) ? "in the host's memory" : "not in the host's memory"));
    return {};
  }

  // What is over before each step begins.
  void find_order() {
    Clock none;
    none.fill(-1);
    std::array<Clock, kStreamCount> now;
    now.fill(none);
    bool micro = true;
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      if (micro && !step.micro)
        for (Clock& clock : now) clock.fill(static_cast<std::int64_t>(i) - 1);
      micro = step.micro;
      Clock& clock = now[static_cast<std::size_t>(step.stream)];
      for (const std::int32_t other : step.waits) {
        const auto waited = static_cast<std::size_t>(other);
        for (std::size_t s = 0; s < clock.size(); ++s) clock[s] = std::max(clock[s], before_[waited][s]);
        std::int64_t& theirs = clock[static_cast<std::size_t>(plan_.steps[waited].stream)];
        theirs = std::max<std::int64_t>(theirs, other);
      }
      before_.push_back(clock);
      clock[static_cast<std::size_t>(step.stream)] = static_cast<std::int64_t>(i);
    }
  }

  // They come one after another.
  Status check_exchanges() const {
    std::size_t before = plan_.steps.size();  // the exchange before; none
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      if (!node(i).op->exchanges()) continue;
      const std::int32_t stream = before < i ? plan_.steps[before].stream : plan_.steps[i].stream;
      if (stream != plan_.steps[i].stream &&
          before_[i][static_cast<std::size_t>(stream)] < static_cast<std::int64_t>(before))
        return fail(name(i) + " does not wait for " + name(before) + ", and both exchange with other ranks");
      before = i;
    }
    return {};
  }

  std::vector<Touch> touches_of(std::size_t i) const {
    std::vector<Touch> touches;
    if (node(i).op->exchange == RankExchange::wait)
      return touches;  // it names what has to stay, and touches none of it
    const auto add = [&](ValueId v, bool writes) {
      if (v == kNone || plan_.buffer_of[v] < 0) return;
      const Buffer& b = plan_.buffers[static_cast<std::size_t>(plan_.buffer_of[v])];
      const auto bytes = static_cast<std::int64_t>(byte_size(graph_.values[v].type));
      touches.push_back({b.place, b.offset, b.offset + bytes, writes, v});
    };
    for (const ValueId in : node(i).inputs) add(in, false);
    for (const ValueId made : node(i).outputs) add(made, true);
    const PlanStep& step = plan_.steps[i];
    if (step.workspace_bytes > 0)
      touches.push_back(
          {Place::arena, step.workspace_offset, step.workspace_offset + step.workspace_bytes, true, kNone});
    return touches;
  }

  Status check_pair(std::size_t first, std::size_t second) const {
    const std::int32_t stream = plan_.steps[first].stream;
    if (stream == plan_.steps[second].stream ||
        before_[second][static_cast<std::size_t>(stream)] >= static_cast<std::int64_t>(first))
      return {};
    for (const Touch& a : touched_[first])
      for (const Touch& b : touched_[second])
        if (a.place == b.place && a.begin < b.end && b.begin < a.end && (a.writes || b.writes)) {
          const ValueId v = b.value != kNone ? b.value : a.value;
          return fail(name(second) + " does not wait for " + name(first) + ", and both touch the memory of " +
                      (v == kNone ? "their workspace" : "'" + graph_.values[v].name + "'"));
        }
    return {};
  }

  const Graph& graph_;
  const Plan& plan_;
  std::vector<Clock> before_;  // by step
  std::vector<std::vector<Touch>> touched_;
};

}  // namespace

Status check_streams(const Graph& graph, const Plan& plan) { return StreamChecker(graph, plan).run(); }

}  // namespace gradloom
