// Operators whose kernel is a sequence of kernels of other rows, with the results between them in the
// workspace: Hardmax, LpNormalization, DynamicQuantizeLinear, ... They run on every device that has kernels for the parts.
#pragma once

#include <memory>
#include <vector>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"

namespace gradloom {

// The nodes of the sequence are added to `b` over the inputs `in(i)`; prepare() makes one kernel of them.
// Constants may be scalars (of elementwise operators) and what operators read when planning (axes, shapes):
// none is in the memory of the device.
class KernelSequence {
 public:
  explicit KernelSequence(const NodeTypes& types);
  GraphBuilder& b() { return builder_; }
  // kNone when omitted.
  ValueId in(std::size_t i) const { return i < inputs_.size() ? inputs_[i] : kNone; }
  ValueId op(const char* name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return builder_.op(name, std::move(inputs), std::move(attrs));
  }
  ValueId cast(ValueId x, DType to);
  // The i32 index of the first largest element along `axis`, which keeps its dim as 1; the size of the axis
  // where there is none (NaN).
  ValueId first_largest(ValueId x, std::int64_t axis);
  // `results`: the value behind each output of the node; each must be made by a node that is no view, and be
  // of the output's type.
  Result<Kernel> prepare(const std::string& name, const std::vector<ValueId>& results);

 private:
  std::shared_ptr<Graph> graph_;
  const NodeTypes& types_;
  GraphBuilder builder_;
  std::vector<ValueId> inputs_;
};

}  // namespace gradloom
