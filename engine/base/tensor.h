// Types, shapes and host tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/types.h"

namespace gradloom {

// Row-major dims. A negative dim is symbolic: Graph::symbols[-dim - 1] is its name;
// equal numbers are equal dims.
using Shape = std::vector<std::int64_t>;

struct Type {
  DType dtype = DType::f32;
  Shape shape;
  bool operator==(const Type&) const = default;
};

const char* dtype_name(DType dtype);  // "f32", "i64", "bool", ...
Result<DType> dtype_from_name(const std::string& name);

bool is_static(const Shape& shape);
std::int64_t element_count(const Shape& shape);  // REQUIRES is_static; 1 for a scalar
std::size_t byte_size(const Type& type);         // REQUIRES is_static
std::string to_string(const Shape& shape);       // "[8, 64, 128]"; symbolic dims as ?1
std::string to_string(const Type& type);         // "f32[8, 64, 128]"

// Element count with overflow and sign checks, for shapes from files: errors instead of wrapping.
Result<std::int64_t> checked_element_count(const Shape& shape, std::size_t element_bytes);

// A host tensor: contiguous, 64-byte aligned, shared and immutable once published
// (copy-on-write by `mutable_data`).
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, Shape shape);  // zero-filled
  static Tensor scalar(DType dtype, double value);
  static Tensor from_i64(const std::vector<std::int64_t>& values);  // 1-d
  static Tensor from_f64(DType dtype, Shape shape, const std::vector<double>& values);

  const Type& type() const { return type_; }
  DType dtype() const { return type_.dtype; }
  const Shape& shape() const { return type_.shape; }
  std::int64_t count() const { return element_count(type_.shape); }
  std::size_t bytes() const { return byte_size(type_); }
  bool defined() const { return storage_ != nullptr; }
  const void* data() const { return storage_.get(); }
  void* mutable_data();  // clones when shared
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data());
  }
  template <class T>
  T* mutable_as() {
    return static_cast<T*>(mutable_data());
  }

  double at(std::int64_t i) const;            // element i as double
  std::int64_t int_at(std::int64_t i) const;  // element i as integer
  std::vector<std::int64_t> to_i64() const;
  std::vector<double> to_f64() const;
  Tensor cast(DType dtype) const;
  Tensor reshaped(Shape shape) const;  // shares the storage

 private:
  Type type_;
  std::shared_ptr<std::byte[]> storage_;
};

bool bit_equal(const Tensor& a, const Tensor& b);

}  // namespace gradloom
