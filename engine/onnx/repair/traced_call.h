// What torch.export had traced where the dynamo exporter wrote a node: metadata "pkg.torch.onnx.fx_node" of nodes, as
// "%mul_1 : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%x, 2), kwargs = {})". One call may
// have become several nodes, which all carry its text.
#pragma once

#include <onnx/onnx_pb.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

struct TracedCall {
  std::string result, function;        // "mul_1", "aten.mul.Tensor"
  std::vector<std::string> arguments;  // at the top level, as they are written: "%x", "2", "[4, 2]"
  std::vector<std::string> values;     // names of all values among them, in order: "x"
  // Argument `i` where it is an integer or a number; no value where it is left out or something else.
  std::optional<std::int64_t> integer(std::size_t i) const;
  std::optional<double> number(std::size_t i) const;
};

// No value: the node carries no such text.
std::optional<TracedCall> traced_call_of(const onnx::NodeProto& node);

}  // namespace gradloom
