// Types, shapes and host tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

class InputFile;

// A host tensor: contiguous, 64-byte aligned, shared and immutable once published (copy-on-write by
// `mutable_data`). Its contents are in memory, or stay in a file until something needs them: weights, which
// `read` and `visit` bring from there piece by piece and leave no trace of in memory.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, Shape shape);  // zero-filled
  // Contents from byte `offset` of `file` on, laid out there as in memory. REQUIRES that the file has them.
  static Tensor in_file(Type type, std::shared_ptr<const InputFile> file, std::int64_t offset);
  // Contents in memory of somebody else, who shares `memory` and may write there.
  static Tensor over(Type type, std::shared_ptr<std::byte[]> memory);
  static Tensor scalar(DType dtype, double value);
  static Tensor from_i64(const std::vector<std::int64_t>& values);  // 1-d
  static Tensor from_f64(DType dtype, Shape shape, const std::vector<double>& values);

  const Type& type() const { return type_; }
  DType dtype() const { return type_.dtype; }
  const Shape& shape() const { return type_.shape; }
  std::int64_t count() const { return element_count(type_.shape); }
  std::size_t bytes() const { return byte_size(type_); }
  bool defined() const { return storage_ != nullptr || file_ != nullptr; }
  // Contents that are in a file come into memory, for good: meant for small tensors, and for those that are
  // in memory anyway. A file that has changed since is a broken invariant here; the three below tell it.
  const void* data() const { return file_ == nullptr ? storage_.get() : loaded_data(); }
  void* mutable_data();  // clones when shared

  bool in_memory() const;  // what is defined and not in a file
  // `bytes` bytes of the contents, from byte `from` on. Errc::io: the file has changed since it was opened.
  Status read(std::size_t from, void* to, std::size_t bytes) const;
  // All contents in order, in pieces of whole elements; those in memory as one. False ends the visit.
  using Visit = std::function<Result<bool>(const std::byte* piece, std::size_t from, std::size_t bytes)>;
  Status visit(const Visit& visit) const;
  Result<Tensor> loaded() const;  // in memory: itself, or a copy of its own that is read now

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
  struct FileContents;
  const void* loaded_data() const;
  Type type_;
  std::shared_ptr<std::byte[]> storage_;
  std::shared_ptr<FileContents> file_;  // where the contents are; null: in `storage_`
};

bool bit_equal(const Tensor& a, const Tensor& b);

}  // namespace gradloom
