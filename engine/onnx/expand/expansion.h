// Operators that are best expressed by others: library bodies, as ONNX's function operators have them, built
// from rows that have kernels and gradients. An expanded node is the source of every node it becomes.
//
// Shapes in the comments of the bodies: B batch, S sequence, H heads, D size of a head, E = H D.
#pragma once

#include <onnx/onnx_pb.h>

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"

namespace gradloom {

// Adds one node of a body: checked, typed and folded as any node of the file.
using AddPart = std::function<Result<std::vector<ValueId>>(const OpDef& op, std::vector<ValueId> inputs,
                                                           Attrs attrs, int output_count)>;

// Large constants of bodies, one for all nodes of a model: by what they hold.
using SharedConstants = std::map<std::string, ValueId>;

// What a body sees of the node it stands for.
class Expander {
 public:
  Expander(GraphBuilder& builder, const AddPart& add, const Attrs& node_attrs,
           std::span<const ValueId> inputs, std::vector<bool> wanted, SharedConstants& shared)
      : attrs(node_attrs),
        outputs(wanted.size(), kNone),
        builder_(builder),
        add_(add),
        inputs_(inputs),
        wanted_(std::move(wanted)),
        shared_(shared) {}

  const Attrs& attrs;
  std::vector<ValueId> outputs;  // to fill, one per output of the node

  std::size_t input_count() const { return inputs_.size(); }
  bool has(std::size_t i) const { return i < inputs_.size() && inputs_[i] != kNone; }
  ValueId in(std::size_t i) const { return has(i) ? inputs_[i] : kNone; }
  bool wants(std::size_t i) const { return i < wanted_.size() && wanted_[i]; }
  const Shape& shape(ValueId id) const { return builder_.shape(id); }
  DType dtype(ValueId id) const { return builder_.type(id).dtype; }
  std::size_t rank(ValueId id) const { return shape(id).size(); }
  // Known contents, or null.
  const Tensor* known(ValueId id) const;

  Result<ValueId> op(const char* name, std::vector<ValueId> inputs, Attrs attributes = {});
  Result<std::vector<ValueId>> ops(const char* name, std::vector<ValueId> inputs, Attrs attributes,
                                   int outputs);
  ValueId scalar(DType dtype, double value) { return builder_.scalar(dtype, value); }
  ValueId constant(Tensor contents) { return builder_.constant(std::move(contents)); }
  ValueId ints(const std::vector<std::int64_t>& values) { return builder_.i64s(values); }
  // allowed[i, j] = j <= i + offset, boolean [rows, columns]; all nodes of a model share one.
  ValueId causal_mask(std::int64_t rows, std::int64_t columns, std::int64_t offset);

  // Short forms.
  Result<ValueId> reshape(ValueId x, const std::vector<std::int64_t>& shape);  // 0 copies, -1 is computed
  Result<ValueId> transpose(ValueId x, const std::vector<std::int64_t>& permutation);
  Result<ValueId> channels_first(ValueId x);  // [n, spatial.., c] -> [n, c, spatial..]
  Result<ValueId> channels_last(ValueId x);   // back
  Result<ValueId> cast(ValueId x, DType to);  // x itself when it is of this type
  Result<ValueId> slice(ValueId x, std::int64_t begin, std::int64_t end, std::int64_t axis);

  // The node is valid but its body does not cover it: it counts as unsupported, with this reason.
  Error unsupported(const std::string& why);
  const std::string& unsupported_reason() const { return unsupported_; }

 private:
  GraphBuilder& builder_;
  const AddPart& add_;
  std::span<const ValueId> inputs_;
  std::vector<bool> wanted_;
  SharedConstants& shared_;
  std::string unsupported_;
};

struct ExpansionAttribute {
  const char* name;
  onnx::AttributeProto::AttributeType type;
};

inline constexpr const char* kMicrosoft = "com.microsoft";
inline constexpr int kNewest = 1000;  // the opset up to which a body holds that none has replaced

struct Expansion {
  const char* name;
  const char* domain;
  int since, until;  // opsets of this body
  int min_inputs, max_inputs, max_outputs;
  Status (*build)(Expander& e);
  // Of an operator that is not ONNX's own: those are checked against ONNX's schemas.
  std::vector<ExpansionAttribute> attributes;
};

// The body for an operator that has no row, or no row at this opset; null when there is none.
const Expansion* find_expansion(const std::string& name, const std::string& domain, int opset);
std::vector<const Expansion*> all_expansions();

// The tables that it looks into.
std::span<const Expansion> normalization_expansions();
std::span<const Expansion> attention_expansions();
std::span<const Expansion> microsoft_attention_expansions();
std::span<const Expansion> activation_expansions();
std::span<const Expansion> fused_expansions();
std::span<const Expansion> training_expansions();
std::span<const Expansion> legacy_expansions();
std::span<const Expansion> signal_expansions();
std::span<const Expansion> image_expansions();
std::span<const Expansion> integer_expansions();
std::span<const Expansion> gating_expansions();
std::span<const Expansion> text_expansions();

}  // namespace gradloom
