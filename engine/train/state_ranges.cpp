#include "engine/train/state_ranges.h"

#include "engine/ir/op.h"
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
  std::set<ValueId> own;
  for (const Node& node : graph.nodes)
    if (updates(node))
      for_states(node, [&](ValueId state, std::size_t parameter) {
        if (shared.count(node.outputs[parameter]) != 0) own.insert(state);
      });
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
