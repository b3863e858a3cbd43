// Types of attributes come from the library's operator schemas, which end at opset 17,
// and a list of what was added after.
#include "engine/onnx/read/attributes.h"

#include <onnx/defs/schema.h>

#include <algorithm>
#include <iterator>

#include "engine/base/text.h"
#include "engine/onnx/read/attribute_ranges.h"
#include "engine/ops/inference.h"

namespace gradloom {

namespace {

using onnx::AttributeProto;

constexpr int kNewestSchemaOpset = 17;  // of the library; later attributes are listed below

struct LaterAttribute {
  const char* op_type;
  const char* name;
  int since;
  AttributeProto::AttributeType type;
};

// Attributes that opsets 18 to 28 added. Source: the ONNX operator changelog.
constexpr LaterAttribute kLater[] = {
    {"Attention", "is_causal", 23, AttributeProto::INT},
    {"Attention", "kv_num_heads", 23, AttributeProto::INT},
    {"Attention", "left_window_size", 25, AttributeProto::INT},
    {"Attention", "q_num_heads", 23, AttributeProto::INT},
    {"Attention", "qk_matmul_output_mode", 23, AttributeProto::INT},
    {"Attention", "right_window_size", 25, AttributeProto::INT},
    {"Attention", "scale", 23, AttributeProto::FLOAT},
    {"Attention", "softcap", 23, AttributeProto::FLOAT},
    {"Attention", "softmax_precision", 23, AttributeProto::INT},
    {"AffineGrid", "align_corners", 20, AttributeProto::INT},
    {"AveragePool", "dilations", 19, AttributeProto::INTS},
    {"BitCast", "to", 26, AttributeProto::INT},
    {"Cast", "saturate", 19, AttributeProto::INT},
    {"Cast", "round_mode", 24, AttributeProto::STRING},
    {"CastLike", "saturate", 19, AttributeProto::INT},
    {"CastLike", "round_mode", 24, AttributeProto::STRING},
    {"CausalConvWithState", "activation", 27, AttributeProto::STRING},
    {"CenterCropPad", "axes", 18, AttributeProto::INTS},
    {"Col2Im", "dilations", 18, AttributeProto::INTS},
    {"Col2Im", "pads", 18, AttributeProto::INTS},
    {"Col2Im", "strides", 18, AttributeProto::INTS},
    {"CumProd", "exclusive", 26, AttributeProto::INT},
    {"CumProd", "reverse", 26, AttributeProto::INT},
    {"DeformConv", "dilations", 19, AttributeProto::INTS},
    {"DeformConv", "group", 19, AttributeProto::INT},
    {"DeformConv", "kernel_shape", 19, AttributeProto::INTS},
    {"DeformConv", "offset_group", 19, AttributeProto::INT},
    {"DeformConv", "pads", 19, AttributeProto::INTS},
    {"DeformConv", "strides", 19, AttributeProto::INTS},
    {"DequantizeLinear", "block_size", 21, AttributeProto::INT},
    {"DequantizeLinear", "output_dtype", 23, AttributeProto::INT},
    {"Gelu", "approximate", 20, AttributeProto::STRING},
    {"GroupNormalization", "epsilon", 18, AttributeProto::FLOAT},
    {"GroupNormalization", "num_groups", 18, AttributeProto::INT},
    {"GroupNormalization", "stash_type", 21, AttributeProto::INT},
    {"LinearAttention", "chunk_size", 27, AttributeProto::INT},
    {"LinearAttention", "kv_num_heads", 27, AttributeProto::INT},
    {"LinearAttention", "q_num_heads", 27, AttributeProto::INT},
    {"LinearAttention", "scale", 27, AttributeProto::FLOAT},
    {"LinearAttention", "update_rule", 27, AttributeProto::STRING},
    {"LpPool", "ceil_mode", 18, AttributeProto::INT},
    {"LpPool", "dilations", 18, AttributeProto::INTS},
    {"QuantizeLinear", "block_size", 21, AttributeProto::INT},
    {"QuantizeLinear", "output_dtype", 21, AttributeProto::INT},
    {"QuantizeLinear", "precision", 23, AttributeProto::INT},
    {"QuantizeLinear", "saturate", 19, AttributeProto::INT},
    {"Range", "stash_type", 27, AttributeProto::INT},
    {"Resize", "antialias", 18, AttributeProto::INT},
    {"Resize", "axes", 18, AttributeProto::INTS},
    {"Resize", "keep_aspect_ratio_policy", 18, AttributeProto::STRING},
    {"RMSNormalization", "axis", 23, AttributeProto::INT},
    {"RMSNormalization", "epsilon", 23, AttributeProto::FLOAT},
    {"RMSNormalization", "stash_type", 23, AttributeProto::INT},
    {"RotaryEmbedding", "interleaved", 23, AttributeProto::INT},
    {"RotaryEmbedding", "num_heads", 23, AttributeProto::INT},
    {"RotaryEmbedding", "rotary_embedding_dim", 23, AttributeProto::INT},
    {"SpaceToDepth", "mode", 28, AttributeProto::STRING},
    {"Split", "num_outputs", 18, AttributeProto::INT},
    {"SwiGLU", "alpha", 28, AttributeProto::FLOAT},
    {"Swish", "alpha", 24, AttributeProto::FLOAT},
    {"TensorScatter", "axis", 24, AttributeProto::INT},
    {"TensorScatter", "mode", 24, AttributeProto::STRING},
};

bool is_reduction(const std::string& op_type) { return op_type.compare(0, 6, "Reduce") == 0; }

// The declared type of an attribute, or UNDEFINED when the operator has none of this name at this opset.
AttributeProto::AttributeType declared_type(const onnx::OpSchema* schema, const std::string& op_type,
                                            const std::string& name, int opset) {
  if (opset > kNewestSchemaOpset &&
      is_reduction(op_type)) {  // opset 18 moved the axes of all reductions to an input
    if (name == "axes") return AttributeProto::UNDEFINED;
    if (name == "noop_with_empty_axes") return AttributeProto::INT;
  }
  if (opset >= 20 && op_type == "DFT" && name == "axis")  // an input since
    return AttributeProto::UNDEFINED;
  for (const LaterAttribute& later : kLater) {
    if (op_type == later.op_type && name == later.name && opset >= later.since) return later.type;
  }
  if (schema == nullptr) return AttributeProto::UNDEFINED;
  const auto it = schema->attributes().find(name);
  return it == schema->attributes().end() ? AttributeProto::UNDEFINED
                                          : static_cast<AttributeProto::AttributeType>(it->second.type);
}

AttributeProto::AttributeType own_type(const std::vector<ExpansionAttribute>& own, const std::string& name) {
  for (const ExpansionAttribute& attribute : own)
    if (name == attribute.name) return attribute.type;
  return AttributeProto::UNDEFINED;
}

const char* type_name(int type) {
  constexpr const char* kNames[] = {
      "UNDEFINED", "FLOAT",   "INT",    "STRING",        "TENSOR",         "GRAPH",      "FLOATS",     "INTS",
      "STRINGS",   "TENSORS", "GRAPHS", "SPARSE_TENSOR", "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS"};
  return type >= 0 && type < static_cast<int>(std::size(kNames)) ? kNames[type] : "of an unknown type";
}

// Whether fields of another type than the declared one are filled.
bool has_foreign_contents(const AttributeProto& a) {
  const auto type = a.type();
  return (a.has_f() && type != AttributeProto::FLOAT) || (a.has_i() && type != AttributeProto::INT) ||
         (a.has_s() && type != AttributeProto::STRING) || (a.has_t() && type != AttributeProto::TENSOR) ||
         (a.has_g() && type != AttributeProto::GRAPH) ||
         (a.floats_size() > 0 && type != AttributeProto::FLOATS) ||
         (a.ints_size() > 0 && type != AttributeProto::INTS) ||
         (a.strings_size() > 0 && type != AttributeProto::STRINGS) ||
         (a.tensors_size() > 0 && type != AttributeProto::TENSORS) ||
         (a.graphs_size() > 0 && type != AttributeProto::GRAPHS);
}

Result<bool> read_value(const AttributeProto& a, TensorReader& tensors, Attrs& attrs) {
  switch (a.type()) {
    case AttributeProto::FLOAT: attrs.set(a.name(), static_cast<double>(a.f())); return true;
    case AttributeProto::INT: attrs.set(a.name(), static_cast<std::int64_t>(a.i())); return true;
    case AttributeProto::STRING: attrs.set(a.name(), std::string(a.s())); return true;
    case AttributeProto::STRINGS: {  // names: one text, separated by commas
      std::string names;
      for (const std::string& name : a.strings()) names += (names.empty() ? "" : ",") + name;
      attrs.set(a.name(), std::move(names));
      return true;
    }
    case AttributeProto::FLOATS:
      attrs.set(a.name(), std::vector<double>(a.floats().begin(), a.floats().end()));
      return true;
    case AttributeProto::INTS:
      attrs.set(a.name(), std::vector<std::int64_t>(a.ints().begin(), a.ints().end()));
      return true;
    case AttributeProto::TENSOR: {
      if (!a.has_t()) return Error{Errc::bad_input, "has no tensor"};
      if (!dtype_of_proto(a.t().data_type()).ok()) return false;
      attrs.set(a.name(), TRY(tensors.read(a.t())));
      return true;
    }
    default: return false;
  }
}

}  // namespace

const onnx::OpSchema* schema_of(const std::string& op_type, int opset) {
  if (opset > kNewestSchemaOpset) return nullptr;
  return onnx::OpSchemaRegistry::Schema(op_type, opset, onnx::ONNX_DOMAIN);
}

const onnx::OpSchema* newest_schema_of(const std::string& op_type, int opset) {
  return schema_of(op_type, std::min(opset, kNewestSchemaOpset));
}

AttributeProto::AttributeType attribute_type(const std::string& op_type, const std::string& name, int opset) {
  return declared_type(newest_schema_of(op_type, opset), op_type, name, opset);
}

Result<ReadAttributes> read_attributes(const onnx::NodeProto& node, int opset, TensorReader& tensors,
                                       const std::vector<ExpansionAttribute>* own, bool undeclared) {
  const bool has_schema = own == nullptr && !undeclared;
  const onnx::OpSchema* schema = has_schema ? newest_schema_of(node.op_type(), opset) : nullptr;
  ReadAttributes read;
  const auto refuse = [&](const std::string& why) {
    if (read.unsupported.empty()) read.unsupported = why;
  };
  for (const AttributeProto& a : node.attribute()) {
    const std::string label = "attribute '" + escaped(a.name()) + "'";
    const auto bad = [&](const std::string& why) { return Error{Errc::bad_input, label + " " + why}; };
    if (a.name().empty()) return bad("has no name");
    if (read.attrs.has(a.name())) return bad("is given twice");
    if (!a.ref_attr_name().empty()) return bad("refers to a function's attribute outside a function");
    if (has_foreign_contents(a))
      return bad(std::string("is declared ") + type_name(a.type()) + " but holds another type");
    const auto declared = undeclared   ? a.type()
                          : has_schema ? declared_type(schema, node.op_type(), a.name(), opset)
                                       : own_type(*own, a.name());
    if (declared == AttributeProto::UNDEFINED) {
      refuse(label + " is not known");
    } else if (declared != a.type()) {
      return bad(std::string("is ") + type_name(a.type()) + ", it must be " + type_name(declared));
    }
    Result<bool> supported = read_value(a, tensors, read.attrs);
    if (!supported.ok()) return with_context(supported.error(), label);
    if (declared != AttributeProto::UNDEFINED && !undeclared && *supported && read.excluded.empty())
      read.excluded = attribute_out_of_range(node.op_type(), a.name(), read.attrs.all().at(a.name()));
    if (!*supported) {
      refuse(a.type() == AttributeProto::GRAPH ? std::string("it has a subgraph")
                                               : label + " is " + type_name(a.type()));
    }
  }
  if (schema != nullptr) {
    for (const auto& [name, attribute] : schema->attributes()) {
      if (attribute.required && !read.attrs.has(name) && read.unsupported.empty() &&
          declared_type(schema, node.op_type(), name, opset) != AttributeProto::UNDEFINED) {
        return Error{Errc::bad_input, "attribute '" + name + "' is missing"};
      }
    }
  }
  return read;
}

Result<Tensor> constant_contents(const Attrs& attrs) {
  if (attrs.all().size() != 1) return Error{Errc::bad_input, "has one attribute, the value"};
  const auto& [name, value] = *attrs.all().begin();
  if (name == "value") return std::get<Tensor>(value);
  if (name == "value_float") return Tensor::scalar(DType::f32, std::get<double>(value));
  if (name == "value_int") return Tensor::from_i64({std::get<std::int64_t>(value)}).reshaped({});
  if (name == "value_ints") return Tensor::from_i64(std::get<std::vector<std::int64_t>>(value));
  if (name == "value_floats") {
    const auto& list = std::get<std::vector<double>>(value);
    return Tensor::from_f64(DType::f32, {static_cast<std::int64_t>(list.size())}, list);
  }
  return Error{Errc::bad_input, "attribute '" + escaped(name) + "' is not supported"};
}

void promote_attributes_to_f64(const std::string& op_type, Attrs& attrs, bool narrow) {
  // Attributes that hold a TensorProto::DataType, and whether FLOAT is what they mean when absent.
  struct TypeAttribute {
    const char* op_type;
    const char* name;
    bool float_by_default;
  };
  constexpr TypeAttribute kTypeAttributes[] = {
      {"Cast", "to", false},
      {"LayerNormalization", "stash_type", true},
      {"GroupNormalization", "stash_type", true},
      {"RMSNormalization", "stash_type", true},
      {"DequantizeLinear", "output_dtype", false},
      {"ConstantFill", "dtype", true},
      {"EyeLike", "dtype", false},
      {"Bernoulli", "dtype", false},
      {"RandomNormal", "dtype", true},
      {"RandomUniform", "dtype", true},
      {"RandomNormalLike", "dtype", false},
      {"RandomUniformLike", "dtype", false},
      {"HannWindow", "output_datatype", true},
      {"HammingWindow", "output_datatype", true},
      {"BlackmanWindow", "output_datatype", true},
      {"MelWeightMatrix", "output_datatype", true},
      {"Attention", "softmax_precision", false},
      {"Fp8MatMul", "to", true},
  };
  const auto promoted = [&](DType type) { return type == DType::f32 || (narrow && is_float(type)); };
  const std::int64_t f32 = onnx_from_dtype(DType::f32), f64 = onnx_from_dtype(DType::f64);
  for (const TypeAttribute& t : kTypeAttributes) {
    if (op_type != t.op_type) continue;
    const Result<DType> type = dtype_from_onnx(attrs.integer(t.name, t.float_by_default ? f32 : 0));
    if (type.ok() && promoted(*type)) attrs.set(t.name, f64);
  }
  if (op_type == "ConstantOfShape" && !attrs.has("value")) attrs.set("value", Tensor(DType::f64, {1}));
  const Attrs before = attrs;
  for (const auto& [name, value] : before.all()) {
    const Tensor* tensor = std::get_if<Tensor>(&value);
    if (tensor != nullptr && promoted(tensor->dtype())) attrs.set(name, tensor->cast(DType::f64));
  }
}

}  // namespace gradloom
