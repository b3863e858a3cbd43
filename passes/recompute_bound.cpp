#include "passes/recompute_bound.h"

#include <algorithm>
#include <limits>
#include <map>

#include "engine/ir/views.h"
#include "passes/phases.h"

namespace gradloom {
namespace {

// A buffer of the arena: what makes it, and when it is read.
struct Kept {
  NodeId producer = kNone;
  bool stays = false;                   // whatever runs again
  std::int32_t last_forward = -1;       // step of the last reader before the gradient
  std::vector<std::int32_t> readers{};  // steps
};

std::vector<Kept> kept_buffers(const Graph& graph, const Plan& plan, const std::vector<bool>& repeatable) {
  std::vector<Kept> kept(plan.buffers.size());
  const auto buffer_at = [&](ValueId v) -> Kept* {
    const std::int32_t buffer = v == kNone ? -1 : plan.buffer_of[v];
    return buffer < 0 ? nullptr : &kept[static_cast<std::size_t>(buffer)];
  };
  for (ValueId v = 0; v < graph.values.size(); ++v) {
    Kept* const buffer = buffer_at(v);
    if (buffer == nullptr) continue;
    const NodeId producer = graph.values[behind_views(graph, v)].producer;
    // Of several makers (updates in place) it is none that could run again.
    buffer->stays = buffer->stays || producer == kNone || !repeatable[producer] ||
                    (buffer->producer != kNone && buffer->producer != producer);
    buffer->producer = producer;
  }
  for (const ValueId out : graph.outputs)
    if (Kept* const buffer = buffer_at(out)) buffer->stays = true;
  if (Kept* const loss = buffer_at(graph.loss)) loss->stays = true;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Node& node = graph.nodes[plan.steps[i].node];
    const auto step = static_cast<std::int32_t>(i);
    for (const ValueId in : node.inputs) {
      Kept* const buffer = buffer_at(in);
      if (buffer == nullptr) continue;
      buffer->readers.push_back(step);
      if (!runs_after_loss(node)) buffer->last_forward = std::max(buffer->last_forward, step);
    }
  }
  return kept;
}

}  // namespace

RecomputeBound::RecomputeBound(const Graph& graph, const Plan& plan, const std::vector<bool>& repeatable,
                               const std::vector<double>& cost)
    : fixed_bytes_(plan.peak_bytes() - plan.arena_bytes), moments_(plan.steps.size()) {
  const std::vector<Kept> kept = kept_buffers(graph, plan, repeatable);
  std::vector<std::map<NodeId, Removable>> others(moments_.size());
  std::vector<std::int64_t> reads(moments_.size(), 0), makes(moments_.size(), 0);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const Buffer& buffer = plan.buffers[i];
    if (buffer.place != Place::arena || buffer.bytes == 0) continue;
    for (std::int32_t t = buffer.first_step; t <= buffer.last_step; ++t) {
      const auto at = static_cast<std::size_t>(t);
      const bool read = std::binary_search(kept[i].readers.begin(), kept[i].readers.end(), t);
      if (t == buffer.first_step && (kept[i].stays || kept[i].last_forward >= 0)) {
        makes[at] += buffer.bytes;
      } else if (kept[i].stays ? t < buffer.last_step : t < kept[i].last_forward) {
        moments_[at].bytes += buffer.bytes;
      } else if (read || kept[i].stays) {
        reads[at] += buffer.bytes;
      } else {
        Removable& other = others[at][kept[i].producer];
        other.bytes += static_cast<double>(buffer.bytes);
        other.cost = cost[kept[i].producer];
      }
    }
  }
  for (std::size_t t = 0; t < moments_.size(); ++t) {
    Moment& moment = moments_[t];
    // What only the gradient reads may run there alone.
    const bool moves = repeatable[plan.steps[t].node] && makes[t] == 0;
    if (!moves) moment.bytes += std::max(reads[t], makes[t]) + aligned_bytes(plan.steps[t].workspace_bytes);
    for (const auto& [node, other] : others[t]) {
      moment.others.push_back(other);
      moment.other_bytes += other.bytes;
    }
    std::stable_sort(moment.others.begin(), moment.others.end(), [](const Removable& a, const Removable& b) {
      return a.cost * b.bytes < b.cost * a.bytes;
    });
  }
}

std::int64_t RecomputeBound::least_peak_bytes() const {
  std::int64_t most = 0;
  for (const Moment& moment : moments_) most = std::max(most, moment.bytes);
  return fixed_bytes_ + most;
}

double RecomputeBound::least_cost(std::int64_t peak_bytes) const {
  double most = 0;
  for (const Moment& moment : moments_) {
    double excess = static_cast<double>(fixed_bytes_ + moment.bytes - peak_bytes) + moment.other_bytes,
           cost = 0;
    for (const Removable& other : moment.others) {
      if (excess <= 0) break;
      cost += other.cost * std::min(1.0, excess / other.bytes);
      excess -= other.bytes;
    }
    if (excess > 0) return std::numeric_limits<double>::infinity();
    most = std::max(most, cost);
  }
  return most;
}

}  // namespace gradloom
