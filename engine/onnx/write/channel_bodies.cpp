// Nodes whose tensors have their channels in blocks (engine/ops/channel_blocks.h): what they are of plain ones, between transposes.
#include <algorithm>
#include <string_view>

#include "engine/onnx/write/bodies.h"
#include "engine/ops/channel_blocks.h"

namespace gradloom {
namespace {

using Values = std::vector<ValueId>;

constexpr const char* kBlockAttributes[] = {"block", "x_block", "y_block"};

// Of a convolution: x -> y; of its gradients: dy (and x) -> dx or dw.
std::int64_t block_at(const NodeTypes& types, std::string_view op, std::size_t place, bool output) {
  const std::int64_t both = types.attrs.integer("block", 1), x = types.attrs.integer("x_block", 1),
                     y = types.attrs.integer("y_block", 1);
  const Shape& shape = (output ? types.outputs : types.inputs)[place].shape;
  if (both > 1)
    return shape.size() >= 4 && shape.back() == both && shape.size() == types.inputs[0].shape.size() ? both
                                                                                                     : 1;
  if (op == "ConvGradData") return output ? x : place == 0 ? y : 1;
  if (op == "ConvGradWeights") return output ? 1 : place == 0 ? y : x;
  return place != 0 ? 1 : output ? y : x;
}

// [n, c / block, spatial.., block] <-> [n, c, spatial..]
ValueId joined(Body& body, ValueId v, std::int64_t block) {
  if (block == 1) return v;
  const Shape shape = body.shape(v);
  std::vector<std::int64_t> perm{0, 1, static_cast<std::int64_t>(shape.size()) - 1};
  for (std::size_t i = 2; i + 1 < shape.size(); ++i) perm.push_back(static_cast<std::int64_t>(i));
  return body.reshape(body.transpose(v, perm), plain_shape(shape, block));
}
ValueId split_again(Body& body, ValueId v, std::int64_t block) {
  if (block == 1) return v;
  Shape apart = body.shape(v);
  apart[1] /= block;
  apart.insert(apart.begin() + 2, block);
  std::vector<std::int64_t> perm{0, 1};
  for (std::size_t i = 3; i < apart.size(); ++i) perm.push_back(static_cast<std::int64_t>(i));
  perm.push_back(2);
  return body.transpose(body.reshape(v, apart), perm);
}

}  // namespace

bool has_blocks(const Attrs& attrs) {
  return std::any_of(std::begin(kBlockAttributes), std::end(kBlockAttributes),
                     [&](const char* name) { return attrs.integer(name, 1) > 1; });
}

Result<Values> body_of_blocks(Body& body, const OpDef& op) {
  const NodeTypes& blocked = body.types;
  NodeTypes types = blocked;
  for (const char* name : kBlockAttributes) types.attrs.erase(name);
  Body plain{body.b, types, body.in, std::move(body.keep)};
  for (std::size_t i = 0; i < plain.in.size(); ++i) {
    if (!plain.has(i)) continue;
    const std::int64_t block = block_at(blocked, op.name, i, false);
    plain.in[i] = joined(body, plain.in[i], block);
    types.inputs[i].shape = plain_shape(types.inputs[i].shape, block);
  }
  for (std::size_t i = 0; i < types.outputs.size(); ++i)
    types.outputs[i].shape = plain_shape(types.outputs[i].shape, block_at(blocked, op.name, i, true));
  const std::int64_t both = blocked.attrs.integer("block", 1);
  if (const auto in = types.attrs.integers("input_shape"); both > 1 && !in.empty())
    types.attrs.set("input_shape", plain_shape(in, both));
  // What ONNX has is itself, if nothing of ours is asked of it.
  const BodyFn build = find_body(op);
  const bool standard = *op.domain == 0 && (build == nullptr || types.outputs.size() == 1);
  if (!standard && build == nullptr) return Error{Errc::bad_input, "channels in blocks"};
  Values results = standard ? body.b.ops(op, plain.in, types.attrs, static_cast<int>(types.outputs.size()))
                            : TRY(build(plain));
  body.keep = std::move(plain.keep);
  for (std::size_t i = 0; i < std::min(results.size(), types.outputs.size()); ++i)
    if (types.wants(i)) results[i] = split_again(body, results[i], block_at(blocked, op.name, i, true));
  return results;
}

}  // namespace gradloom
