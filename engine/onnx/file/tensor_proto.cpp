// Contents of a TensorProto are either raw_data (little-endian, row-major) or the typed list of its data
// type, or lie in an external file {location, offset, length}; exactly as many as the dims say. Everything is
// checked before memory is allocated. Types of two and four bits share bytes, of raw_data as of int32_data;
// the bits behind the last element are ignored.
#include "engine/onnx/file/tensor_proto.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>

#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/onnx/file/contents_in_file.h"
#include "engine/ops/inference.h"

namespace gradloom {

namespace {

using onnx::TensorProto;

Error size_mismatch(const Type& type, std::int64_t expected, std::int64_t found, const char* unit) {
  return bad_input(to_string(type) + " needs " + std::to_string(expected) + " " + unit + ", the file has " +
                   std::to_string(found));
}

template <class T>
Status narrow(const google::protobuf::RepeatedField<std::int32_t>& from, void* to) {
  T* out = static_cast<T*>(to);
  for (int i = 0; i < from.size(); ++i) {
    if (from[i] < std::numeric_limits<T>::min() || from[i] > std::numeric_limits<T>::max()) {
      return bad_input("element " + std::to_string(i) +
                       " is out of the type's range: " + std::to_string(from[i]));
    }
    out[i] = static_cast<T>(from[i]);
  }
  return {};
}

// Bytes that the elements take in a file.
std::int64_t packed_bytes(DType dtype, std::int64_t count) {
  const std::int64_t per_byte = elements_per_byte(dtype);
  if (per_byte == 1) return count * static_cast<std::int64_t>(dtype_bytes(dtype));
  return count / per_byte + (count % per_byte != 0 ? 1 : 0);
}

// From the first bytes of `data` to all of them: from the last element to the first,
// each at or behind its source.
void unpack(DType dtype, std::uint8_t* data, std::int64_t count) {
  const int per_byte = elements_per_byte(dtype), bits = 8 / per_byte;
  const bool is_signed = dtype == DType::i4 || dtype == DType::i2;
  const int mask = (1 << bits) - 1, sign = is_signed ? 1 << (bits - 1) : 0;
  for (std::int64_t i = count; i-- > 0;) {
    const int code = (data[i / per_byte] >> (i % per_byte * bits)) & mask;
    data[i] = static_cast<std::uint8_t>((code ^ sign) - sign);
  }
}

std::string pack(const Tensor& tensor) {
  const int per_byte = elements_per_byte(tensor.dtype()), bits = 8 / per_byte, mask = (1 << bits) - 1;
  std::string packed(static_cast<std::size_t>(packed_bytes(tensor.dtype(), tensor.count())), '\0');
  for (std::int64_t i = 0, n = tensor.count(); i < n; ++i) {
    char& byte = packed[static_cast<std::size_t>(i / per_byte)];
    byte = static_cast<char>(byte | ((tensor.as<std::uint8_t>()[i] & mask) << (i % per_byte * bits)));
  }
  return packed;
}

// The list a data type uses; at most one of all lists may be filled.
int list_size(const TensorProto& p, DType dtype) {
  switch (dtype) {
    case DType::f32: return p.float_data_size();
    case DType::f64: return p.double_data_size();
    case DType::i64: return p.int64_data_size();
    case DType::u32:
    case DType::u64: return p.uint64_data_size();
    default: return p.int32_data_size();
  }
}

Status copy_list(const TensorProto& p, DType dtype, std::size_t bytes, void* to) {
  switch (dtype) {
    case DType::f32: std::memcpy(to, p.float_data().data(), bytes); return {};
    case DType::f64: std::memcpy(to, p.double_data().data(), bytes); return {};
    case DType::i64: std::memcpy(to, p.int64_data().data(), bytes); return {};
    case DType::u64: std::memcpy(to, p.uint64_data().data(), bytes); return {};
    case DType::i32: std::memcpy(to, p.int32_data().data(), bytes); return {};
    case DType::u32:
      for (int i = 0; i < p.uint64_data_size(); ++i) {
        if (p.uint64_data(i) > std::numeric_limits<std::uint32_t>::max())
          return bad_input("element " + std::to_string(i) + " is out of the type's range");
        static_cast<std::uint32_t*>(to)[i] = static_cast<std::uint32_t>(p.uint64_data(i));
      }
      return {};
    case DType::i8: return narrow<std::int8_t>(p.int32_data(), to);
    case DType::u8: return narrow<std::uint8_t>(p.int32_data(), to);
    case DType::i16: return narrow<std::int16_t>(p.int32_data(), to);
    case DType::u16:
    case DType::f16:
    case DType::bf16: return narrow<std::uint16_t>(p.int32_data(), to);
    case DType::boolean:
      for (int i = 0; i < p.int32_data_size(); ++i)
        static_cast<std::uint8_t*>(to)[i] = p.int32_data(i) != 0 ? 1 : 0;
      return {};
    case DType::i4:  // packed, as small floats and bytes are
    case DType::u4:
    case DType::i2:
    case DType::u2:
    case DType::f8e4m3fn:
    case DType::f8e4m3fnuz:
    case DType::f8e5m2:
    case DType::f8e5m2fnuz:
    case DType::f4e2m1:
    case DType::f8e8m0: return narrow<std::uint8_t>(p.int32_data(), to);
  }
  return {};
}

Result<std::int64_t> decimal(const std::string& text, const char* what) {
  const std::optional<std::int64_t> value = parse_number<std::int64_t>(text);
  if (!value || *value < 0)
    return bad_input(std::string("external ") + what + " '" + escaped(text) + "' is not a byte count");
  return *value;
}

}  // namespace

Result<DType> dtype_of_proto(int data_type) { return dtype_from_onnx(std::int64_t{data_type}); }

TensorReader::TensorReader(const Limits& limits, std::string folder, std::shared_ptr<const InputFile> model)
    : limits_(limits),
      folder_(std::move(folder)),
      budget_bytes_(memory_budget_bytes()),
      model_(std::move(model)) {}

Result<Tensor> TensorReader::read(const TensorProto& proto) { return load(proto, TRY(find(proto))); }

Result<Tensor> TensorReader::read_initializer(const onnx::TensorProto& proto) {
  Result<Tensor> tensor = read(proto);
  if (!tensor.ok()) return with_context(tensor.error(), "initializer '" + escaped(proto.name()) + "'");
  return tensor;
}

Result<Tensor> TensorReader::refer(const onnx::TensorProto& proto) {
  constexpr std::int64_t kLeastBytes = 4096;
  Found found = TRY(find(proto));
  const bool as_in_memory = elements_per_byte(found.type.dtype) == 1 && found.type.dtype != DType::boolean;
  if (!as_in_memory || !found.stays_open || found.file_bytes < kLeastBytes) return load(proto, found);
  return Tensor::in_file(std::move(found.type), std::move(found.file), found.offset);
}

Result<TensorReader::Found> TensorReader::find(const TensorProto& proto) {
  const DType dtype = TRY(dtype_of_proto(proto.data_type()));
  if (proto.dims_size() > limits_.rank) {
    return Error{Errc::limit, "rank " + std::to_string(proto.dims_size()) + " is over the limit of " +
                                  std::to_string(limits_.rank) + raised_by("rank")};
  }
  if (proto.has_segment()) return bad_input("segmented tensors are not supported");
  const Type type{dtype, Shape(proto.dims().begin(), proto.dims().end())};
  const std::int64_t count = TRY(checked_element_count(type.shape, dtype_bytes(dtype)));
  const std::int64_t bytes = count * static_cast<std::int64_t>(dtype_bytes(dtype));
  const bool packed = elements_per_byte(dtype) > 1;
  const std::int64_t file_bytes = packed_bytes(dtype, count), items = packed ? file_bytes : count;
  const std::optional<FileRange> left = contents_in_file(proto);
  const std::int64_t raw_bytes = left ? left->bytes : static_cast<std::int64_t>(proto.raw_data().size());
  const bool external = proto.data_location() == TensorProto::EXTERNAL;
  const int filled = (proto.float_data_size() > 0) + (proto.int32_data_size() > 0) +
                     (proto.int64_data_size() > 0) + (proto.double_data_size() > 0) +
                     (proto.uint64_data_size() > 0) + (proto.string_data_size() > 0) +
                     (raw_bytes == 0 ? 0 : 1) + (external ? 1 : 0);
  if (filled > 1) return bad_input("contents are given twice");
  const int listed = list_size(proto, dtype);
  if (!external && raw_bytes != 0 && raw_bytes != file_bytes)
    return size_mismatch(type, file_bytes, raw_bytes, "bytes");
  if (!external && raw_bytes == 0 && (listed != items || (filled == 1 && listed == 0))) {
    return size_mismatch(type, items, listed, packed ? "packed elements" : "elements");
  }
  Found found{type, file_bytes, nullptr, 0, false};
  if (external) TRY(locate(proto, found));
  if (left) {
    CHECK(model_ != nullptr, "contents in a file that is not known");
    found.file = model_;
    found.offset = left->offset;
    found.stays_open = true;
  }
  if (bytes > budget_bytes_) return Error{Errc::limit, to_string(type) + " does not fit in memory"};
  budget_bytes_ -= bytes;
  return found;
}

Result<Tensor> TensorReader::load(const TensorProto& proto, const Found& found) {
  const DType dtype = found.type.dtype;
  Tensor tensor(dtype, found.type.shape);
  if (found.file != nullptr) {
    TRY(found.file->read_unchanged(found.offset, tensor.mutable_data(), found.file_bytes));
  } else if (!proto.raw_data().empty()) {
    std::memcpy(tensor.mutable_data(), proto.raw_data().data(), proto.raw_data().size());
  } else if (tensor.count() > 0) {
    TRY(copy_list(proto, dtype, tensor.bytes(), tensor.mutable_data()));
  }
  if (elements_per_byte(dtype) > 1) unpack(dtype, tensor.mutable_as<std::uint8_t>(), tensor.count());
  if (dtype == DType::boolean) {
    for (std::int64_t i = 0, n = tensor.count(); i < n; ++i)
      tensor.mutable_as<std::uint8_t>()[i] = tensor.as<std::uint8_t>()[i] != 0 ? 1 : 0;
  }
  return tensor;
}

Status TensorReader::locate(const TensorProto& proto, Found& found) {
  if (folder_.empty()) return bad_input("external data is not allowed here");
  std::string location;
  std::int64_t length = -1;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") found.offset = TRY(decimal(entry.value(), "offset"));
    if (entry.key() == "length") length = TRY(decimal(entry.value(), "length"));
  }
  TRY(open_external(location, found));
  const std::int64_t bytes = found.file_bytes, size = found.file->size();
  if (length >= 0 && length != bytes) {
    return bad_input("external length is " + std::to_string(length) + " bytes, the type needs " +
                     std::to_string(bytes));
  }
  if (found.offset > size || bytes > size - found.offset) {
    return bad_input("bytes " + std::to_string(found.offset) + " + " + std::to_string(bytes) +
                     " are beyond the end of '" + escaped(location) + "' (" + std::to_string(size) +
                     " bytes)");
  }
  return {};
}

// Of a model with a file for each tensor only so many stay open: the contents of others come into memory.
Status TensorReader::open_external(const std::string& location, Found& found) {
  constexpr std::size_t kMostOpen = 256;
  const auto known = files_.find(location);
  if (known != files_.end()) {
    found.file = known->second;
  } else {
    found.file = std::make_shared<const InputFile>(TRY(InputFile::open_inside(folder_, location)));
    if (files_.size() >= kMostOpen) return {};
    files_.emplace(location, found.file);
  }
  found.stays_open = true;
  return {};
}

void write_type(const Type& type, TensorProto* proto) {
  proto->clear_dims();
  for (const std::int64_t dim : type.shape) proto->add_dims(dim);
  proto->set_data_type(static_cast<int>(onnx_from_dtype(type.dtype)));
  proto->clear_raw_data();
  proto->clear_float_data();
  proto->clear_int32_data();
  proto->clear_int64_data();
  proto->clear_double_data();
  proto->clear_uint64_data();
  proto->clear_string_data();
  proto->clear_external_data();
  proto->clear_data_location();
  forget_contents_in_file(*proto);
}

void write_tensor(const Tensor& tensor, TensorProto* proto) {
  write_type(tensor.type(), proto);
  if (elements_per_byte(tensor.dtype()) > 1) {
    proto->set_raw_data(pack(tensor));
  } else {
    proto->set_raw_data(tensor.data(), tensor.bytes());
  }
}

}  // namespace gradloom
