#include "engine/train/state_ranges.h"

#include "engine/ir/op.h"
#include "engine/ops/collectives/owned_parts.h"
#include "engine/ops/collectives/share_parameters.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "kernels/block_quantization.h"

namespace gradloom {
namespace {

// Calls f(state, parameter) for what a node remembers, with the parameter's place among those that it updates.
template <class F>
void for_states(const Node& node, const F& f) {
  using namespace optimizer_inputs;
  const std::size_t n = parameter_count(node.attrs),
                    end = node.inputs.size() - node.attrs.integers("copies").size();
  for (std::size_t i = kFirst + 2 * n; i < end; ++i) f(node.inputs[i], (i - kFirst) % n);
}

bool updates(const Node& node) { return node.alive() && is_op(node, "Optimizer"); }

}  // namespace

std::map<ValueId, OwnRange> parameter_ranges(const Graph& graph) {
  std::map<ValueId, OwnRange> ranges;
  for (const Node& node : graph.nodes) {
    if (!node.alive() || !gives_parameters(*node.op) || !node.attrs.has(kMasters)) continue;
    const std::vector<std::int64_t> masters = node.attrs.integers(kMasters);
    std::vector<Type> types;
    for (const ValueId out : node.outputs) types.push_back(graph.type(out));
    const auto parts = owned_parts(node.attrs, types);
    CHECK(parts.ok(), "parts of parameters that were inferred");
    for (std::size_t i = 0; i < masters.size(); ++i)
      if (masters[i] >= 0) ranges[static_cast<ValueId>(masters[i])].whole = types[i].shape;
    for (const OwnedPart& part : *parts)
      if (masters[part.tensor] >= 0 && part.owner == node.attrs.integer("rank"))
        ranges[static_cast<ValueId>(masters[part.tensor])].range = {part.begin, part.count};
  }
  return ranges;
}

Status keep_ranges(Graph& graph) {
  for (const auto& [parameter, own] : parameter_ranges(graph)) {
    if (own.range.count == element_count(own.whole)) continue;
    Value& value = graph.values[parameter];
    value.data = TRY(elements_of(value.data, own.range));
    value.type.shape = {own.range.count};
    for (const Update& update : graph.updates)
      if (update.state == parameter) graph.values[update.next].type = value.type;
  }
  return {};
}

std::map<ValueId, ElementRange> state_ranges(const Graph& graph) {
  std::map<ValueId, ElementRange> ranges;
  for (const Node& node : graph.nodes) {
    if (!updates(node) || !node.attrs.has("begins")) continue;
    const std::vector<std::int64_t> begins = node.attrs.integers("begins"),
                                    counts = node.attrs.integers("counts");
    for_states(node, [&](ValueId state, std::size_t parameter) {
      ranges[state] = {begins[parameter], counts[parameter]};
    });
  }
  return ranges;
}

std::set<ValueId> own_states(const Graph& graph) {
  std::set<ValueId> shared;  // with the other ranks
  for (const Node& node : graph.nodes)
    if (node.alive() && node.op->exchange == RankExchange::share)
      shared.insert(node.inputs.begin(), node.inputs.end());
  // At the end of the step, or at the beginning of the next.
  const auto is_given = [&](ValueId state, ValueId next) {
    return shared.count(next) != 0 || before_gather(graph, state) != state;
  };
  std::set<ValueId> own;
  for (const Node& node : graph.nodes) {
    if (!updates(node)) continue;
    const std::vector<std::int64_t> copies = node.attrs.integers("copies");
    std::set<std::size_t> apart;  // parameters whose next value, or its copy, goes to the other ranks
    for (std::size_t i = 0; i < optimizer_inputs::parameter_count(node.attrs); ++i)
      if (is_given(node.inputs[optimizer_inputs::kFirst + i], node.outputs[i])) apart.insert(i);
    for (std::size_t i = 0; i < copies.size(); ++i)
      if (is_given(node.inputs[node.inputs.size() - copies.size() + i],
                   node.outputs[node.outputs.size() - copies.size() + i]))
        apart.insert(static_cast<std::size_t>(copies[i]));
    for_states(node, [&](ValueId state, std::size_t parameter) {
      if (apart.count(parameter) != 0) own.insert(state);
    });
  }
  return own;
}

Result<Tensor> elements_of(const Tensor& tensor, const ElementRange& range) {
  Tensor part(tensor.dtype(), {range.count});
  TRY(tensor.read(static_cast<std::size_t>(range.begin) * dtype_bytes(tensor.dtype()), part.mutable_data(),
                  part.bytes()));
  return part;
}

ElementRange scale_blocks_of(const ElementRange& range) {
  using namespace kernels::portable;
  CHECK(range.begin % kCodeBlock == 0, "a range of codes begins inside of a block");
  return {range.begin / kCodeBlock, code_blocks(range.count)};
}

Result<EightBitState> elements_of(const EightBitState& state, const ElementRange& range) {
  return EightBitState{TRY(elements_of(state.codes, range)),
                       TRY(elements_of(state.scales, scale_blocks_of(range)))};
}

}  // namespace gradloom
