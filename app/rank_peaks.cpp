#include "app/rank_peaks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "engine/ir/op.h"
#include "engine/ir/views.h"
#include "engine/ops/collectives/share_parameters.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "engine/plan/plan.h"
#include "engine/ranks/world.h"
#include "engine/train/optimizers.h"
#include "engine/train/weight_copies.h"
#include "passes/zero.h"

namespace gradloom {
namespace {

// `bytes` more from step `first` to `last`.
void add(std::vector<std::int64_t>& changes, std::int32_t first, std::int32_t last, std::int64_t bytes) {
  if (first > last) return;
  changes[static_cast<std::size_t>(first)] += bytes;
  changes[static_cast<std::size_t>(last) + 1] -= bytes;
}

// The same training where every rank keeps all; nothing: it is that already.
std::optional<Compiled> without_zero(const Prepared& prepared) {
  const Compiled& c = prepared.compiled;
  if (std::none_of(c.plan.steps.begin(), c.plan.steps.end(), [&](const PlanStep& step) {
        return gives_parameters(*c.train.graph.nodes[step.node].op);
      }))
    return std::nullopt;
  CompileOptions options = prepared.options;
  std::erase_if(options.pipeline.passes,
                [](const PassConfig& pass) { return pass.def == find_pass("zero"); });
  Result<Compiled> whole = compile(prepared.model.graph, options);
  if (!whole) return std::nullopt;  // a budget that it does not keep: nearest is the plan at hand
  return std::move(whole).value();
}

struct Most {
  std::int64_t bytes = 0;
  std::size_t step = 0;
};
Most most_live(const std::vector<std::int64_t>& changes) {
  Most most;
  std::int64_t live = 0;
  for (std::size_t i = 0; i < changes.size(); ++i)
    if ((live += changes[i]) > most.bytes) most = {live, i};
  return most;
}

std::int64_t live_at(const std::vector<std::int64_t>& changes, std::size_t step) {
  return std::accumulate(changes.begin(), changes.begin() + static_cast<std::ptrdiff_t>(step) + 1,
                         std::int64_t{0});
}

std::map<ValueId, std::int32_t> makers(const Compiled& c) {
  std::map<ValueId, std::int32_t> steps;
  for (std::size_t i = 0; i < c.plan.steps.size(); ++i)
    for (const ValueId out : c.train.graph.nodes[c.plan.steps[i].node].outputs)
      if (out != kNone) steps.emplace(out, static_cast<std::int32_t>(i));
  return steps;
}

// Of so many bytes of a parameter those of `count` elements.
std::int64_t bytes_of_part(std::int64_t bytes, std::int64_t count, std::int64_t elements) {
  return zero_bytes({elements, bytes, true}, {0, 0, count, 0});
}

}  // namespace

PeakPrediction::PeakPrediction(const Prepared& prepared) {
  const std::optional<Compiled> whole = without_zero(prepared);
  const TrainSpec& train = prepared.options.train;
  cut_ = update_reach(optimizer_def(train.optimizer.kind).name) == UpdateReach::element && !train.low_weights;
  const Compiled& c = whole ? *whole : prepared.compiled;
  live_.assign(c.plan.steps.size() + 1, 0);
  for (const Buffer& buffer : c.plan.buffers)
    if (buffer.place == Place::arena) add(live_, buffer.first_step, buffer.last_step, buffer.bytes);
  for (std::size_t i = 0; i < c.plan.steps.size(); ++i) {
    const auto at = static_cast<std::int32_t>(i);
    add(live_, at, at, aligned_bytes(c.plan.steps[i].workspace_bytes));
  }
  read_states(c);
  const PassConfig* const zero = prepared.options.pipeline.find("zero");
  const std::pair<std::string, std::string> whole_masters{"masters", "all"};
  read_copies(c, zero == nullptr || std::find(zero->options.begin(), zero->options.end(), whole_masters) ==
                                        zero->options.end());
  read_exchanges(c);
  read_gradients(c);
  gradients_ = buckets_ = std::vector<std::int64_t>(live_.size(), 0);
  for (const Trained& t : trained_) {
    add(gradients_, t.computed.first, t.computed.last, t.computed.bytes);
    add(gradients_, t.first, t.last, t.buffer_bytes);
    add(gradients_, t.wide_first, t.wide_last, t.wide_buffer_bytes);
  }
  for (const Exchange& e : exchanges_) add(buckets_, e.first, e.last, e.workspace_bytes);
  const std::int64_t live = most_live(live_).bytes;
  if (live > 0) waste_ = static_cast<double>(c.plan.arena_bytes) / static_cast<double>(live);
  others_bytes_ = c.plan.peak_bytes() - c.plan.arena_bytes;
  parameter_bytes_ = c.plan.state_bytes - accumulator_bytes_;
  for (const Trained& t : trained_) {
    others_bytes_ -= t.state_bytes;
    parameter_bytes_ -= t.state_bytes;
  }
}

// What the optimizer remembers.
void PeakPrediction::read_states(const Compiled& c) {
  const Graph& graph = c.train.graph;
  std::map<ValueId, std::int64_t> bytes;
  for (const std::string& name : c.train.trainable) bytes.emplace(find_value(graph, name), 0);
  for (const TrainState& state : c.train.states) {
    const ValueId value = find_value(graph, state.value);
    if (!state.remembered && value != kNone)  // of micro-batches
      accumulator_bytes_ += aligned_bytes(static_cast<std::int64_t>(byte_size(graph.type(value))));
    if (state.parameter.empty() || !state.remembered || state.name == kAverage) continue;
    if (value != kNone)
      bytes[find_value(graph, state.parameter)] += static_cast<std::int64_t>(byte_size(graph.type(value)));
  }
  for (const auto& [parameter, of_parameter] : bytes)
    trained_.push_back({element_count(graph.type(parameter).shape), of_parameter});
}

// As pass zero finds them.
void PeakPrediction::read_copies(const Compiled& c, bool masters_apart) {
  const Graph& graph = c.train.graph;
  const std::vector<std::vector<Use>> uses = uses_of(graph);
  std::map<ValueId, ValueId> next, copies;  // by parameter
  for (const Update& update : graph.updates) next[update.state] = update.next;
  for (const auto& [copy, of] : weight_copies(graph)) copies[of] = copy;
  std::vector<ValueId> trained;
  for (const std::string& name : c.train.trainable) trained.push_back(find_value(graph, name));
  std::sort(trained.begin(), trained.end());
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const auto copy = copies.find(trained[i]);
    if (copy == copies.end()) continue;
    trained_[i].copy_bytes = static_cast<std::int64_t>(byte_size(graph.type(copy->second)));
    const bool updated_alone =
        uses[trained[i]].size() == 1 && uses[next.at(trained[i])].empty() &&
        std::find(graph.outputs.begin(), graph.outputs.end(), trained[i]) == graph.outputs.end();
    if (masters_apart && updated_alone)
      trained_[i].master_bytes = static_cast<std::int64_t>(byte_size(graph.type(trained[i])));
  }
}

void PeakPrediction::read_exchanges(const Compiled& c) {
  const Graph& graph = c.train.graph;
  for (std::size_t i = 0; i < c.plan.steps.size(); ++i) {
    const Node& node = graph.nodes[c.plan.steps[i].node];
    const bool background = node.op->exchange == RankExchange::begin_mean;
    if (!background && node.op->exchange != RankExchange::mean) continue;
    Exchange exchange{.type = graph.type(node.inputs[0]).dtype};
    for (const ValueId in : node.inputs) exchange.count += element_count(graph.type(in).shape);
    exchange.first = exchange.last = static_cast<std::int32_t>(i);
    exchange.workspace_bytes = aligned_bytes(c.plan.steps[i].workspace_bytes);
    if (background) {
      const Buffer& buffer = c.plan.buffers[static_cast<std::size_t>(c.plan.buffer_of[node.outputs.back()])];
      exchange.last = buffer.last_step;
      exchange.workspace_bytes = buffer.bytes;
    }
    exchanges_.push_back(exchange);
  }
}

// What the exchange that makes `mean` reads for it.
PeakPrediction::Life PeakPrediction::computed_gradient(const Compiled& c, NodeId exchange, ValueId mean) {
  const Node& node = c.train.graph.nodes[exchange];
  const auto place = static_cast<std::size_t>(std::find(node.outputs.begin(), node.outputs.end(), mean) -
                                              node.outputs.begin());
  if (place >= node.inputs.size()) return {};
  const std::int32_t number = c.plan.buffer_of[node.inputs[place]];
  if (number < 0 || number == c.plan.buffer_of[mean]) return {};
  const Buffer& buffer = c.plan.buffers[static_cast<std::size_t>(number)];
  if (buffer.place != Place::arena) return {};
  return {buffer.bytes, buffer.first_step, buffer.last_step};
}

void PeakPrediction::read_gradients(const Compiled& c) {
  using namespace optimizer_inputs;
  const Graph& graph = c.train.graph;
  const std::map<ValueId, std::int32_t> made = makers(c);
  std::map<ValueId, std::size_t> places;
  for (const std::string& name : c.train.trainable) places.emplace(find_value(graph, name), places.size());
  std::size_t place = 0;
  for (auto& [parameter, at] : places) at = place++;
  std::map<ValueId, std::int32_t> norms;  // the step that reads a gradient for the norm
  for (std::size_t i = 0; i < c.plan.steps.size(); ++i)
    if (const Node& node = graph.nodes[c.plan.steps[i].node]; is_op(node, "GlobalNorm"))
      for (const ValueId in : node.inputs) norms[in] = static_cast<std::int32_t>(i);
  for (const PlanStep& step : c.plan.steps) {
    const Node& node = graph.nodes[step.node];
    const std::size_t n = is_op(node, "Optimizer") ? parameter_count(node.attrs) : 0;
    for (std::size_t i = 0; i < n; ++i) {
      const auto at = places.find(node.inputs[kFirst + i]);
      const ValueId gradient = node.inputs[kFirst + n + i];
      ValueId mean = behind_views(graph, gradient);
      const ValueId wide = mean;
      if (const NodeId id = graph.values[mean].producer; id != kNone && is_op(graph.nodes[id], "Cast"))
        mean = behind_views(graph, graph.nodes[id].inputs[0]);
      const NodeId maker = graph.values[mean].producer;
      if (at == places.end() || maker == kNone) continue;
      const RankExchange exchange = graph.nodes[maker].op->exchange;
      const std::int32_t number = c.plan.buffer_of[mean];
      if (number < 0 || (exchange != RankExchange::mean && exchange != RankExchange::begin_mean)) continue;
      const Buffer& buffer = c.plan.buffers[static_cast<std::size_t>(number)];
      Trained& t = trained_[at->second];
      t.bytes = static_cast<std::int64_t>(byte_size(graph.type(mean)));
      t.buffer_bytes = buffer.bytes;
      t.begun = made.at(mean);
      t.first = buffer.first_step;
      t.last = buffer.last_step;
      t.computed = computed_gradient(c, maker, mean);
      t.in_place = buffer.first_step < t.begun;
      for (std::size_t k = 0; k < exchanges_.size(); ++k)
        if (exchanges_[k].first == t.begun) t.exchange = k;
      t.needed = exchanges_[t.exchange].last;
      const auto norm = norms.find(gradient);
      if (wide != mean && c.plan.buffer_of[wide] >= 0) {
        const Buffer& widened = c.plan.buffers[static_cast<std::size_t>(c.plan.buffer_of[wide])];
        t.wide_bytes = static_cast<std::int64_t>(byte_size(graph.type(gradient)));
        t.wide_buffer_bytes = widened.bytes;
        t.wide_first = made.at(wide);
        t.wide_last = widened.last_step;
        if (norm != norms.end()) t.wide_needed = norm->second;
      } else if (norm != norms.end()) {
        t.needed = std::max(t.needed, norm->second);
      }
    }
  }
}

std::vector<PeakPrediction::Shares> PeakPrediction::shares(Stage stage, std::int64_t ranks) const {
  // Pass zero knows only those that have something to divide.
  std::vector<ZeroItem> items;
  std::vector<std::size_t> places;
  Shares none(trained_.size());
  for (std::size_t i = 0; i < trained_.size() && stage != Stage::none; ++i) {
    const Trained& t = trained_[i];
    const std::int64_t gradient = std::max(t.bytes, t.wide_bytes),  // before data-parallel rounds it
        bytes = t.state_bytes + t.master_bytes + (stage == Stage::gradients ? gradient : 0);
    if (bytes == 0) continue;
    items.push_back({t.elements, bytes, cut_});
    places.push_back(i);
    none[i].divided = true;
  }
  std::vector<Shares> of_rank(static_cast<std::size_t>(ranks), none);
  for (const OwnedPart& part : zero_shares(items, ranks))
    of_rank[static_cast<std::size_t>(part.owner)][places[part.tensor]].count = part.count;
  return of_rank;
}

void PeakPrediction::add_gradients(Stage stage, const Shares& own, std::vector<std::int64_t>& changes) const {
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const Trained& t = trained_[i];
    if (t.bytes == 0 || !own[i].divided) continue;
    if (stage == Stage::states) {
      if (own[i].count == 0) {
        add(changes, t.needed + 1, t.last, -t.buffer_bytes);
        add(changes, std::max(t.wide_first, t.wide_needed + 1), t.wide_last, -t.wide_buffer_bytes);
      }
      continue;
    }
    const std::int64_t wide = aligned_bytes(bytes_of_part(t.wide_bytes, own[i].count, t.elements));
    if (t.wide_bytes > 0) add(changes, t.wide_first, t.wide_last, wide - t.wide_buffer_bytes);
    // What goes to its owners is not made in place.
    const std::int64_t kept = aligned_bytes(bytes_of_part(t.bytes, own[i].count, t.elements));
    add(changes, t.begun, t.last, kept);
    add(changes, t.in_place ? exchanges_[t.exchange].last + 1 : t.begun, t.last, -t.buffer_bytes);
  }
}

void PeakPrediction::add_workspaces(Stage stage, const Shares& own, std::int64_t ranks,
                                    std::vector<std::int64_t>& changes) const {
  std::vector<std::int64_t> kept(exchanges_.size(), 0), reduced(exchanges_.size(), 0);  // elements
  for (std::size_t i = 0; i < trained_.size() && stage == Stage::gradients; ++i) {
    const Trained& t = trained_[i];
    if (t.bytes == 0 || !own[i].divided) continue;
    reduced[t.exchange] += t.elements;
    kept[t.exchange] += own[i].count;
  }
  for (std::size_t k = 0; k < exchanges_.size(); ++k) {
    const Exchange& e = exchanges_[k];
    std::int64_t bytes = World::mean_workspace_bytes(e.type, e.count - reduced[k], static_cast<int>(ranks));
    if (reduced[k] > 0) {
      const std::vector<std::int64_t> counts{kept[k], reduced[k] - kept[k]};
      const std::vector<int> of{0, 1};
      bytes = std::max(bytes, World::reduce_workspace_bytes(e.type, counts, of, 0, static_cast<int>(ranks)));
    }
    add(changes, e.first, e.last, aligned_bytes(bytes) - e.workspace_bytes);
  }
}

RankPeak PeakPrediction::peak_of(Stage stage, std::int64_t ranks, const Shares& own) const {
  std::vector<std::int64_t> changes = live_, gradients = gradients_, buckets = buckets_;
  RankPeak peak{.parameters = parameter_bytes_};
  std::int64_t kept_elsewhere = 0;
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const Trained& t = trained_[i];
    peak.state += own[i].divided ? bytes_of_part(t.state_bytes, own[i].count, t.elements) : t.state_bytes;
    if (!own[i].divided) continue;
    kept_elsewhere += t.master_bytes > 0
                          ? t.master_bytes - bytes_of_part(t.master_bytes, own[i].count, t.elements)
                          : t.copy_bytes;
  }
  peak.parameters -= kept_elsewhere;
  for (std::vector<std::int64_t>* const of : {&changes, &gradients})
    if (stage != Stage::none) add_gradients(stage, own, *of);
  for (std::vector<std::int64_t>* const of : {&changes, &buckets}) add_workspaces(stage, own, ranks, *of);
  const Most most = most_live(changes);
  const auto arena = static_cast<std::int64_t>(std::ceil(static_cast<double>(most.bytes) * waste_));
  peak.bytes = others_bytes_ - kept_elsewhere + peak.state + arena;
  peak.gradients = accumulator_bytes_ + std::max<std::int64_t>(live_at(gradients, most.step), 0);
  peak.buckets = std::max<std::int64_t>(live_at(buckets, most.step), 0);
  peak.activations = peak.bytes - peak.parameters - peak.gradients - peak.state - peak.buckets;
  return peak;
}

RankPeak PeakPrediction::peak_of(Stage stage, std::int64_t ranks) const {
  std::vector<Shares> all = shares(stage, ranks);
  std::sort(all.begin(), all.end());  // many ranks are alike
  all.erase(std::unique(all.begin(), all.end()), all.end());
  RankPeak most;
  for (const Shares& own : all)
    if (const RankPeak peak = peak_of(stage, ranks, own); peak.bytes > most.bytes) most = peak;
  return most;
}

RankPeaks PeakPrediction::of(std::int64_t ranks) const {
  return {peak_of(Stage::none, ranks), peak_of(Stage::states, ranks), peak_of(Stage::gradients, ranks)};
}

}  // namespace gradloom
