#include "engine/train/state_ranges.h"

#include "engine/ir/op.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "kernels/block_quantization.h"

namespace gradloom {

std::map<ValueId, ElementRange> state_ranges(const Graph& graph) {
  using namespace optimizer_inputs;
  std::map<ValueId, ElementRange> ranges;
  for (const Node& node : graph.nodes) {
    if (!node.alive() || !is_op(node, "Optimizer") || !node.attrs.has("begins")) continue;
    const std::vector<std::int64_t> begins = node.attrs.integers("begins"),
                                    counts = node.attrs.integers("counts");
    const std::size_t n = parameter_count(node.attrs),
                      end = node.inputs.size() - node.attrs.integers("copies").size();
    for (std::size_t i = kFirst + 2 * n; i < end; ++i) {
      const std::size_t parameter = (i - kFirst) % n;
      ranges[node.inputs[i]] = {begins[parameter], counts[parameter]};
    }
  }
  return ranges;
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
