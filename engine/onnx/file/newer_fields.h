// Fields of onnx.proto that are newer than the schema compiled in (ONNX 1.12): they are kept by protobuf as
// unknown fields, and read from there.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

namespace gradloom {

// "" unless given (IR version 10): functions of one name may be overloaded, a call names the one it means.
std::string overload_of(const onnx::NodeProto& node);
std::string overload_of(const onnx::FunctionProto& function);

// FunctionProto.attribute_proto (IR version 9): attributes with the values they have when a call gives none.
// False: they cannot be parsed.
bool attribute_defaults(const onnx::FunctionProto& function, std::vector<onnx::AttributeProto>* defaults);

// The entry of metadata_props (IR version 10), or "".
std::string metadata_of(const onnx::NodeProto& node, const std::string& key);
std::string metadata_of(const onnx::ValueInfoProto& value, const std::string& key);
std::string metadata_of(const onnx::GraphProto& graph, const std::string& key);

// Of BatchNormalization, "unbiased": what PyTorch keeps, for which ONNX has no attribute.
inline constexpr const char* kRunningVariance = "gradloom.running_variance";

void add_metadata(onnx::NodeProto& node, const std::string& key, const std::string& value);

// The strings of a Python list, as torch writes them into metadata: "['a', 'b']". Empty: not such a list.
std::vector<std::string> python_list(const std::string& text);

}  // namespace gradloom
