#include "engine/base/tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>

#include "engine/base/bf16.h"
#include "engine/base/input_file.h"
#include "kernels/small_types.h"

namespace gradloom {
namespace {

// clang-format off
using kernels::portable::I4, kernels::portable::U4, kernels::portable::I2, kernels::portable::U2,
    kernels::portable::F8e4m3fn, kernels::portable::F8e4m3fnuz, kernels::portable::F8e5m2,
    kernels::portable::F8e5m2fnuz, kernels::portable::F4e2m1, kernels::portable::F8e8m0;
// clang-format on

struct Name {
  DType dtype;
  const char* name;
};
constexpr Name kNames[] = {
    {DType::f32, "f32"},
    {DType::f64, "f64"},
    {DType::i32, "i32"},
    {DType::i64, "i64"},
    {DType::u8, "u8"},
    {DType::f16, "f16"},
    {DType::bf16, "bf16"},
    {DType::boolean, "bool"},
    {DType::i8, "i8"},
    {DType::i16, "i16"},
    {DType::u16, "u16"},
    {DType::u32, "u32"},
    {DType::u64, "u64"},
    {DType::i4, "i4"},
    {DType::u4, "u4"},
    {DType::i2, "i2"},
    {DType::u2, "u2"},
    {DType::f8e4m3fn, "f8e4m3fn"},
    {DType::f8e4m3fnuz, "f8e4m3fnuz"},
    {DType::f8e5m2, "f8e5m2"},
    {DType::f8e5m2fnuz, "f8e5m2fnuz"},
    {DType::f4e2m1, "f4e2m1"},
    {DType::f8e8m0, "f8e8m0"},
};

// Zeros; pages of large ones are only taken when they are written. Without memory this throws std::bad_alloc,
// as every container does: the command ends with exit code 4.
std::shared_ptr<std::byte[]> allocate(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t rounded = std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  void* const base = std::calloc(rounded + kAlignment, 1);
  if (base == nullptr) throw std::bad_alloc();
  void* aligned = base;
  std::size_t space = rounded + kAlignment;
  std::align(kAlignment, rounded, aligned, space);
  return {static_cast<std::byte*>(aligned), [base](std::byte*) { std::free(base); }};
}

template <class Small>
void set_small(void* data, std::int64_t i, std::int64_t value) {
  kernels::portable::narrow(value, static_cast<Small*>(data)[i]);
}
template <class Small>
void set_small(void* data, std::int64_t i, double value) {
  kernels::portable::narrow(value, static_cast<Small*>(data)[i], 0);
}

void set_element(void* data, DType dtype, std::int64_t i, double v, std::int64_t iv) {
  // clang-format off
  switch (dtype) {
    case DType::f32: static_cast<float*>(data)[i] = static_cast<float>(v); break;
    case DType::f64: static_cast<double*>(data)[i] = v; break;
    case DType::i32: static_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(iv); break;
    case DType::i64: static_cast<std::int64_t*>(data)[i] = iv; break;
    case DType::u8: static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(iv); break;
    case DType::boolean: static_cast<std::uint8_t*>(data)[i] = (v != 0); break;
    case DType::i8: static_cast<std::int8_t*>(data)[i] = static_cast<std::int8_t>(iv); break;
    case DType::i16: static_cast<std::int16_t*>(data)[i] = static_cast<std::int16_t>(iv); break;
    case DType::u16: static_cast<std::uint16_t*>(data)[i] = static_cast<std::uint16_t>(iv); break;
    case DType::u32: static_cast<std::uint32_t*>(data)[i] = static_cast<std::uint32_t>(iv); break;
    case DType::u64: static_cast<std::uint64_t*>(data)[i] = static_cast<std::uint64_t>(iv); break;
    case DType::f16: static_cast<_Float16*>(data)[i] = static_cast<_Float16>(v); break;
    case DType::bf16: static_cast<std::uint16_t*>(data)[i] = f32_to_bf16(static_cast<float>(v)); break;
    case DType::i4: set_small<I4>(data, i, iv); break;
    case DType::u4: set_small<U4>(data, i, iv); break;
    case DType::i2: set_small<I2>(data, i, iv); break;
    case DType::u2: set_small<U2>(data, i, iv); break;
    case DType::f8e4m3fn: set_small<F8e4m3fn>(data, i, v); break;
    case DType::f8e4m3fnuz: set_small<F8e4m3fnuz>(data, i, v); break;
    case DType::f8e5m2: set_small<F8e5m2>(data, i, v); break;
    case DType::f8e5m2fnuz: set_small<F8e5m2fnuz>(data, i, v); break;
    case DType::f4e2m1: set_small<F4e2m1>(data, i, v); break;
    case DType::f8e8m0: set_small<F8e8m0>(data, i, v); break;
  }
  // clang-format on
}

// Truncation towards zero that never overflows: NaN becomes 0, values outside the range of i64 are clamped.
std::int64_t to_integer(double v) {
  if (!(v == v)) return 0;
  if (v >= 9223372036854775807.0) return std::numeric_limits<std::int64_t>::max();
  if (v <= -9223372036854775808.0) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(v);
}

}  // namespace

const char* dtype_name(DType dtype) {
  for (const Name& n : kNames)
    if (n.dtype == dtype) return n.name;
  return "?";
}

Result<DType> dtype_from_name(const std::string& name) {
  for (const Name& n : kNames)
    if (name == n.name) return n.dtype;
  return Error{Errc::usage, "unknown element type '" + name + "'"};
}

bool is_static(const Shape& shape) {
  for (std::int64_t d : shape)
    if (d < 0) return false;
  return true;
}

std::int64_t element_count(const Shape& shape) {
  std::int64_t count = 1;
  for (std::int64_t d : shape) {
    CHECK(d >= 0, "element count of a symbolic shape");
    count *= d;
  }
  return count;
}

std::size_t byte_size(const Type& type) {
  return static_cast<std::size_t>(element_count(type.shape)) * dtype_bytes(type.dtype);
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i) text += ", ";
    text += shape[i] >= 0 ? std::to_string(shape[i]) : "?" + std::to_string(shape[i]).substr(1);
  }
  return text + "]";
}

std::string to_string(const Type& type) { return dtype_name(type.dtype) + to_string(type.shape); }

Result<std::int64_t> checked_element_count(const Shape& shape, std::size_t element_bytes) {
  std::int64_t count = 1;
  bool empty = false;
  for (std::int64_t d : shape) {
    if (d < 0)
      return Error{Errc::bad_input, "dimension " + std::to_string(d) + " is negative in " + to_string(shape)};
    empty = empty || d == 0;
    if (__builtin_mul_overflow(count, std::max<std::int64_t>(d, 1), &count))
      return Error{Errc::limit, "shape " + to_string(shape) + " has more elements than fit in 63 bits"};
  }
  std::int64_t bytes;
  if (__builtin_mul_overflow(count, static_cast<std::int64_t>(element_bytes), &bytes))
    return Error{Errc::limit, "tensor of shape " + to_string(shape) + " has more bytes than fit in 63 bits"};
  return empty ? 0 : count;
}

Tensor::Tensor(DType dtype, Shape shape) : type_{dtype, std::move(shape)} {
  storage_ = allocate(byte_size(type_));
}

Tensor Tensor::over(Type type, std::shared_ptr<std::byte[]> memory) {
  Tensor t;
  t.type_ = std::move(type);
  t.storage_ = std::move(memory);
  return t;
}

Tensor Tensor::scalar(DType dtype, double value) {
  Tensor t(dtype, {});
  set_element(t.mutable_data(), dtype, 0, value, to_integer(value));
  return t;
}

Tensor Tensor::from_i64(const std::vector<std::int64_t>& values) {
  Tensor t(DType::i64, {static_cast<std::int64_t>(values.size())});
  if (!values.empty()) std::memcpy(t.mutable_data(), values.data(), values.size() * 8);
  return t;
}

Tensor Tensor::from_f64(DType dtype, Shape shape, const std::vector<double>& values) {
  Tensor t(dtype, std::move(shape));
  CHECK(t.count() == static_cast<std::int64_t>(values.size()),
        "value count must equal the shape's element count");
  void* data = t.mutable_data();
  for (std::size_t i = 0; i < values.size(); ++i)
    set_element(data, dtype, static_cast<std::int64_t>(i), values[i], to_integer(values[i]));
  return t;
}

struct Tensor::FileContents {
  std::shared_ptr<const InputFile> file;
  std::int64_t offset = 0;
  std::once_flag once;
  std::shared_ptr<std::byte[]> memory;  // since somebody asked for an address

  Status read(std::size_t from, void* to, std::size_t bytes) const {
    return file->read_unchanged(offset + static_cast<std::int64_t>(from), to,
                                static_cast<std::int64_t>(bytes));
  }
};

Tensor Tensor::in_file(Type type, std::shared_ptr<const InputFile> file, std::int64_t offset) {
  Tensor t;
  t.type_ = std::move(type);
  t.file_ = std::make_shared<FileContents>();
  t.file_->file = std::move(file);
  t.file_->offset = offset;
  return t;
}

bool Tensor::in_memory() const { return storage_ != nullptr; }

const void* Tensor::loaded_data() const {
  std::call_once(file_->once, [&] {
    auto memory = allocate(bytes());
    const Status status = file_->read(0, memory.get(), bytes());
    CHECK(status.ok(), status.ok() ? "" : status.error().message.c_str());
    file_->memory = std::move(memory);
  });
  return file_->memory.get();
}

Status Tensor::read(std::size_t from, void* to, std::size_t count) const {
  CHECK(defined() && from <= bytes() && count <= bytes() - from, "read beyond the contents");
  if (file_ != nullptr) return file_->read(from, to, count);
  if (count > 0) std::memcpy(to, storage_.get() + from, count);
  return {};
}

Status Tensor::visit(const Visit& visit) const {
  constexpr std::size_t kPieceBytes = 1 << 20;
  CHECK(defined(), "visit of an undefined tensor");
  if (file_ == nullptr) {
    TRY(visit(storage_.get(), 0, bytes()));
    return {};
  }
  const auto piece = allocate(std::min(bytes(), kPieceBytes));
  for (std::size_t from = 0; from < bytes(); from += kPieceBytes) {
    const std::size_t count = std::min(kPieceBytes, bytes() - from);
    TRY(file_->read(from, piece.get(), count));
    if (!TRY(visit(piece.get(), from, count))) return {};
  }
  return {};
}

Result<Tensor> Tensor::loaded() const {
  if (file_ == nullptr) return *this;
  Tensor t(dtype(), shape());
  TRY(file_->read(0, t.storage_.get(), bytes()));
  return t;
}

void* Tensor::mutable_data() {
  CHECK(defined(), "write to an undefined tensor");
  if (file_ != nullptr) {
    auto copy = allocate(bytes());
    std::memcpy(copy.get(), loaded_data(), bytes());
    storage_ = std::move(copy);
    file_ = nullptr;
  }
  if (storage_.use_count() > 1) {
    auto copy = allocate(bytes());
    std::memcpy(copy.get(), storage_.get(), bytes());
    storage_ = std::move(copy);
  }
  return storage_.get();
}

double Tensor::at(std::int64_t i) const {
  // clang-format off
  switch (dtype()) {
    case DType::f32: return static_cast<double>(as<float>()[i]);
    case DType::f64: return as<double>()[i];
    case DType::f16: return static_cast<double>(as<_Float16>()[i]);
    case DType::bf16: return static_cast<double>(bf16_to_f32(as<std::uint16_t>()[i]));
    case DType::u64: return static_cast<double>(as<std::uint64_t>()[i]);
    case DType::f8e4m3fn: return static_cast<double>(widen(as<F8e4m3fn>()[i]));
    case DType::f8e4m3fnuz: return static_cast<double>(widen(as<F8e4m3fnuz>()[i]));
    case DType::f8e5m2: return static_cast<double>(widen(as<F8e5m2>()[i]));
    case DType::f8e5m2fnuz: return static_cast<double>(widen(as<F8e5m2fnuz>()[i]));
    case DType::f4e2m1: return static_cast<double>(widen(as<F4e2m1>()[i]));
    case DType::f8e8m0: return static_cast<double>(widen(as<F8e8m0>()[i]));
    default: return static_cast<double>(int_at(i));
  }
  // clang-format on
}

std::int64_t Tensor::int_at(std::int64_t i) const {
  switch (dtype()) {
    case DType::i32: return as<std::int32_t>()[i];
    case DType::i64: return as<std::int64_t>()[i];
    case DType::u8:
    case DType::u4:
    case DType::u2:
    case DType::boolean: return as<std::uint8_t>()[i];
    case DType::i4:
    case DType::i2:
    case DType::i8: return as<std::int8_t>()[i];
    case DType::i16: return as<std::int16_t>()[i];
    case DType::u16: return as<std::uint16_t>()[i];
    case DType::u32: return as<std::uint32_t>()[i];
    case DType::u64: return static_cast<std::int64_t>(as<std::uint64_t>()[i]);
    default: return to_integer(at(i));
  }
}

std::vector<std::int64_t> Tensor::to_i64() const {
  std::vector<std::int64_t> out(static_cast<std::size_t>(count()));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = int_at(static_cast<std::int64_t>(i));
  return out;
}

std::vector<double> Tensor::to_f64() const {
  std::vector<double> out(static_cast<std::size_t>(count()));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = at(static_cast<std::int64_t>(i));
  return out;
}

Tensor Tensor::cast(DType target) const {
  if (target == dtype()) return *this;
  Tensor t(target, shape());
  void* data = t.mutable_data();
  const bool from_float = is_float(dtype()) || is_small_float(dtype());
  for (std::int64_t i = 0, n = count(); i < n; ++i) {
    const double v = at(i);
    set_element(data, target, i, v, from_float ? to_integer(v) : int_at(i));
  }
  return t;
}

Tensor Tensor::reshaped(Shape shape) const {
  CHECK(element_count(shape) == count(), "reshape keeps the element count");
  Tensor t = *this;
  t.type_.shape = std::move(shape);
  return t;
}

bool bit_equal(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && a.defined() == b.defined() &&
         (!a.defined() || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

}  // namespace gradloom
