// What Gradloom's own operators are in ONNX's: small graphs of standard operators, from which export_graph writes
// functions. A test runs each on the samples of its row, against the row's kernel.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"

namespace gradloom {

// One node on its way: standard nodes are added to `b` over the inputs `in`.
struct Body {
  GraphBuilder& b;
  const NodeTypes& types;
  std::vector<ValueId> in;  // kNone: omitted
  // Which elements Dropout keeps: booleans that the graph is given, by the key of their random numbers.
  struct Mask {
    ValueId value = kNone;
    double ratio = 0;  // of what is dropped
  };
  std::map<std::uint64_t, Mask> keep{};

  const Attrs& attrs() const { return types.attrs; }
  bool has(std::size_t i) const { return i < in.size() && in[i] != kNone; }
  const Shape& shape(ValueId id) const { return b.shape(id); }
  DType dtype(ValueId id) const { return b.type(id).dtype; }
  ValueId op(const char* name, std::vector<ValueId> inputs, Attrs attributes = {}) {
    return b.op(name, std::move(inputs), std::move(attributes));
  }
  ValueId number(DType type, double value) { return b.scalar(type, value); }
  ValueId number_like(ValueId like, double value) { return b.scalar(dtype(like), value); }
  ValueId cast(ValueId x, DType to);
  ValueId transpose(ValueId x, const std::vector<std::int64_t>& perm);  // empty: x
  ValueId reshape(ValueId x, const Shape& to);
  ValueId sum(ValueId x, const std::vector<std::int64_t>& axes, bool keeps_dims = false);  // no axes: x
  ValueId sum_all(ValueId x);                                                              // a scalar
  ValueId mean(ValueId x, const std::vector<std::int64_t>& axes);                          // dims are kept
  ValueId zeros(DType type, const Shape& shape);
  // acc, or 0 in the first micro-batch, and part / count (attribute) of this one; micro may be kNone.
  ValueId accumulated(ValueId acc, ValueId micro, ValueId part);
  // x where it is kept, times 1 / (1 - ratio), else 0.
  ValueId dropped(ValueId x, double ratio, std::uint64_t key);
};

// The results, one per output of the node that is there; the error says why the node has no such form.
using BodyFn = Result<std::vector<ValueId>> (*)(Body& body);
using Bodies = std::map<std::string_view, BodyFn>;  // by the name of the row

const Bodies& elementwise_bodies();
const Bodies& product_bodies();
const Bodies& normalization_bodies();
const Bodies& window_bodies();
const Bodies& loss_bodies();
const Bodies& training_bodies();

// Of an operator of ours, or of a standard one for nodes that use what is ours in it; null: it has none.
BodyFn find_body(const OpDef& op);

// Channels in blocks (engine/ops/channel_blocks.h): a body of plain tensors, between transposes.
bool has_blocks(const Attrs& attrs);
Result<std::vector<ValueId>> body_of_blocks(Body& body, const OpDef& op);

// Slopes that several bodies need.
ValueId gelu_slope(Body& body, ValueId x, bool tanh_form);
ValueId gelu(Body& body, ValueId x, bool tanh_form);

}  // namespace gradloom
