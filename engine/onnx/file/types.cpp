// A dimension is a number, a name, or nothing; a name means the same number everywhere in the model.
#include "engine/onnx/file/types.h"

#include "engine/base/text.h"
#include "engine/onnx/file/tensor_proto.h"

namespace gradloom {

Result<Type> TypeReader::read_input(const std::string& name, const onnx::TypeProto& proto) {
  return read(proto, {name, "input '" + escaped(name) + "'"});
}

Result<Type> TypeReader::read_declared(const onnx::TypeProto& proto) {
  return read(proto, {"", "the value"});
}

Result<Type> TypeReader::read(const onnx::TypeProto& proto, const Owner& owner) {
  if (!proto.has_tensor_type())
    return bad_input(owner.label + " is not a tensor: sequences, maps and optionals are not supported");
  const auto& tensor = proto.tensor_type();
  if (!tensor.has_shape()) return bad_input(owner.label + " has no shape");
  const Result<DType> dtype = dtype_of_proto(tensor.elem_type());
  if (!dtype.ok()) return with_context(dtype.error(), owner.label);
  if (tensor.shape().dim_size() > options_.limits.rank) {
    return Error{Errc::limit, owner.label + " has rank " + std::to_string(tensor.shape().dim_size()) +
                                  ", over the limit of " + std::to_string(options_.limits.rank) +
                                  raised_by("rank")};
  }
  Type type{options_.imported(*dtype), {}};
  for (int i = 0; i < tensor.shape().dim_size(); ++i)
    type.shape.push_back(TRY(dim(tensor.shape().dim(i), owner, i)));
  if (!is_static(type.shape)) return type;
  const Result<std::int64_t> count = checked_element_count(type.shape, dtype_bytes(type.dtype));
  if (!count.ok()) return with_context(count.error(), owner.label);
  return type;
}

Result<std::int64_t> TypeReader::dim(const onnx::TensorShapeProto::Dimension& proto, const Owner& owner,
                                     int axis) {
  if (proto.has_dim_value()) {
    if (proto.dim_value() < 0)
      return bad_input(owner.label + " has the negative dimension " + std::to_string(proto.dim_value()));
    return proto.dim_value();
  }
  const bool is_input = !owner.name.empty();
  const std::string name =
      proto.dim_param().empty() && is_input ? owner.name + "_dim" + std::to_string(axis) : proto.dim_param();
  if (const auto known = dims_.find(name); known != dims_.end()) return known->second;
  if (!is_input) return bad_input(owner.label + " has an unknown dimension");
  const auto given = options_.dims.find(name);
  if (given == options_.dims.end()) symbols_.push_back(name);
  const std::int64_t value =
      given == options_.dims.end() ? -static_cast<std::int64_t>(symbols_.size()) : given->second;
  dims_[name] = value;
  return value;
}

Result<bool> TypeReader::shape_agrees(const onnx::TypeProto& proto, const Type& type) const {
  const auto& tensor = proto.tensor_type();
  const DType declared = TRY(dtype_of_proto(tensor.elem_type()));
  const DType expected = options_.imported(declared);
  if (expected != type.dtype) {
    return bad_input(std::string("is declared ") + dtype_name(expected) + ", it is " +
                     dtype_name(type.dtype));
  }
  if (!tensor.has_shape()) return true;
  bool equal = static_cast<std::size_t>(tensor.shape().dim_size()) == type.shape.size();
  for (int i = 0; equal && i < tensor.shape().dim_size(); ++i) {
    const std::int64_t dim = type.shape[static_cast<std::size_t>(i)];
    equal = !tensor.shape().dim(i).has_dim_value() || dim < 0 || tensor.shape().dim(i).dim_value() == dim;
  }
  return equal;
}

Status check_declared(const onnx::TypeProto& proto, const onnx::TensorProto& data, const std::string& owner) {
  if (!proto.has_tensor_type()) return bad_input(owner + " is declared as something other than a tensor");
  const auto& tensor = proto.tensor_type();
  if (tensor.elem_type() != data.data_type())
    return bad_input(owner + " is declared with another element type");
  if (!tensor.has_shape()) return {};
  bool equal = tensor.shape().dim_size() == data.dims_size();
  for (int i = 0; equal && i < data.dims_size(); ++i) {
    equal = !tensor.shape().dim(i).has_dim_value() || tensor.shape().dim(i).dim_value() == data.dims(i);
  }
  return equal ? Status{} : Status{bad_input(owner + " is declared with another shape")};
}

Status TypeReader::check_given() const {
  for (const auto& [name, value] : options_.dims) {
    if (value < 1)
      return Error{Errc::usage,
                   "dimension '" + escaped(name) + "' must be at least 1, not " + std::to_string(value)};
  }
  return {};
}

Status TypeReader::check_all_used() const {
  for (const auto& [name, value] : options_.dims) {
    if (dims_.count(name) != 0) continue;
    std::string known;
    for (const auto& [other, dim] : dims_) known += (known.empty() ? "" : ", ") + escaped(other);
    return Error{Errc::usage,
                 "the model has no dimension '" + escaped(name) +
                     (known.empty() ? "': all its dimensions are fixed" : "'; it has: " + known)};
  }
  return {};
}

}  // namespace gradloom
