// Batch sources: what they share, synthetic, and which there are.
#include "sessions/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include "engine/base/hash.h"
#include "engine/base/npz.h"
#include "engine/base/text.h"
#include "sessions/batch_sources.h"
#include "sessions/random.h"

namespace gradloom {

bool is_real(DType dtype) { return is_float(dtype) || is_small_float(dtype); }
bool is_integer(DType dtype) { return !is_real(dtype) && dtype != DType::boolean; }

std::string input_text(const InputSpec& input) {
  return fmt::format("input {} ({})", escaped(input.name), to_string(input.type));
}

void store_integer(Tensor& tensor, std::int64_t i, std::int64_t value) {
  switch (dtype_bytes(tensor.dtype())) {
    case 1: tensor.mutable_as<std::int8_t>()[i] = static_cast<std::int8_t>(value); break;
    case 2: tensor.mutable_as<std::int16_t>()[i] = static_cast<std::int16_t>(value); break;
    case 4: tensor.mutable_as<std::int32_t>()[i] = static_cast<std::int32_t>(value); break;
    default: tensor.mutable_as<std::int64_t>()[i] = value; break;
  }
}

// Largest value + 1 that a dtype holds, as far as it fits an int64.
std::int64_t dtype_limit(DType dtype) {
  switch (dtype) {
    case DType::i2: return 1 << 1;
    case DType::u2: return 1 << 2;
    case DType::i4: return 1 << 3;
    case DType::u4: return 1 << 4;
    case DType::u8: return 1 << 8;
    case DType::i8: return 1 << 7;
    case DType::u16: return 1 << 16;
    case DType::i16: return 1 << 15;
    case DType::i32: return std::int64_t{1} << 31;
    case DType::u32: return std::int64_t{1} << 32;
    default: return INT64_MAX;
  }
}

// Uniform in [0, bound) from 32 random bits: multiplication; the bias is below bound / 2^32.
std::int64_t scaled(std::uint32_t bits, std::uint64_t bound) {
  return static_cast<std::int64_t>((std::uint64_t{bits} * bound) >> 32);
}

Tensor batch_of(const Tensor& all, std::int64_t i) {
  Tensor one(all.dtype(), Shape(all.shape().begin() + 1, all.shape().end()));
  const std::size_t bytes = one.bytes();
  if (bytes > 0)
    std::memcpy(one.mutable_data(),
                static_cast<const std::byte*>(all.data()) + static_cast<std::size_t>(i) * bytes, bytes);
  return one;
}

Status accept_dtype(const Type& type, const InputSpec& input) {
  const bool same = type.dtype == input.type.dtype,
             floats = is_float(type.dtype) && is_real(input.type.dtype),
             integers = is_integer(input.type.dtype) && !is_real(type.dtype);  // booleans are 0 and 1
  if (same || floats || integers) return {};
  return Error{Errc::bad_input,
               fmt::format("array {} is {}, but {} needs {}", escaped(input.name), to_string(type),
                           input_text(input), dtype_name(input.type.dtype))};
}

namespace {

std::string ignored_text(const InputSpec& input) {
  if (!input.label) return "";
  return input.ignored ? fmt::format("; the loss ignores only {}", *input.ignored)
                       : "; the loss ignores no label";
}

// Numbers of u64 from 2^63 on read as negative ones.
bool same_integer(const Tensor& a, const Tensor& b, std::int64_t i) {
  const std::int64_t value = a.int_at(i);
  return value == b.int_at(i) && (value >= 0 || (a.dtype() == DType::u64) == (b.dtype() == DType::u64));
}

std::string integer_text(const Tensor& tensor, std::int64_t i) {
  const std::int64_t value = tensor.int_at(i);
  return tensor.dtype() == DType::u64 ? std::to_string(static_cast<std::uint64_t>(value))
                                      : std::to_string(value);
}

}  // namespace

Result<Tensor> accept_contents(const Tensor& array, const InputSpec& input, std::int64_t first) {
  Tensor result = array.cast(input.type.dtype);
  if (!is_integer(input.type.dtype)) return result;
  for (std::int64_t i = 0; array.dtype() != result.dtype() && i < array.count(); ++i) {
    if (!same_integer(array, result, i))
      return Error{Errc::bad_input,
                   fmt::format("array {}: value {} at element {} is no {}", escaped(input.name),
                               integer_text(array, i), first + i, dtype_name(input.type.dtype))};
  }
  for (std::int64_t i = 0; input.limit > 0 && i < result.count(); ++i) {
    const std::int64_t value = result.int_at(i);
    // Indices may count from the end, labels may not.
    const std::int64_t least = input.label ? 0 : -input.limit;
    if ((value >= least && value < input.limit) || (input.label && value == input.ignored)) continue;
    return Error{Errc::bad_input, fmt::format("array {}: {} {} at element {} is outside of {}..{}{}",
                                              escaped(input.name), input.label ? "label" : "value", value,
                                              first + i, least, input.limit - 1, ignored_text(input))};
  }
  return result;
}

namespace {

class Synthetic : public BatchSource {
 public:
  Synthetic(std::vector<InputSpec> inputs, std::uint64_t seed) : inputs_(std::move(inputs)), seed_(seed) {}
  std::int64_t count() const override { return 0; }
  Result<std::map<std::string, Tensor>> batch(std::int64_t i) const override {
    std::map<std::string, Tensor> out;
    for (const InputSpec& input : inputs_) out[input.name] = make(input, static_cast<std::uint64_t>(i));
    return out;
  }

 private:
  Tensor make(const InputSpec& input, std::uint64_t batch) const {
    if (is_real(input.type.dtype)) return normal(input, batch);
    Tensor tensor(input.type.dtype, input.type.shape);
    const std::int64_t n = tensor.count();
    const std::uint64_t key = seed_ ^ fnv1a64(input.name);
    std::int64_t limit = input.limit > 0 ? input.limit : 2;
    if (input.type.dtype == DType::boolean) limit = 2;
    limit = std::min({limit, dtype_limit(input.type.dtype), std::int64_t{1} << 32});
    for (std::int64_t at = 0; at < n; at += 4) {
      const auto bits = philox4x32(key, static_cast<std::uint64_t>(at / 4), batch);
      for (std::int64_t j = at; j < std::min(n, at + 4); ++j) {
        store_integer(tensor, j,
                      scaled(bits[static_cast<std::size_t>(j - at)], static_cast<std::uint64_t>(limit)));
      }
    }
    return tensor;
  }
  // Box-Muller in double, so that f32 and f64 runs see the same numbers up to rounding.
  Tensor normal(const InputSpec& input, std::uint64_t batch) const {
    constexpr double kTwoPi = 6.283185307179586;
    Tensor tensor(DType::f64, input.type.shape);
    double* to = tensor.mutable_as<double>();
    const std::int64_t n = tensor.count();
    const std::uint64_t key = seed_ ^ fnv1a64(input.name);
    for (std::int64_t at = 0; at < n; at += 4) {
      const auto bits = philox4x32(key, static_cast<std::uint64_t>(at / 4), batch);
      double values[4];
      for (std::size_t pair = 0; pair < 4; pair += 2) {
        const double u = (bits[pair] + 1.0) / 4294967296.0, angle = kTwoPi * (bits[pair + 1] / 4294967296.0);
        const double radius = std::sqrt(-2 * std::log(u));
        values[pair] = radius * std::cos(angle);
        values[pair + 1] = radius * std::sin(angle);
      }
      for (std::int64_t j = at; j < std::min(n, at + 4); ++j) to[j] = values[j - at];
    }
    return input.type.dtype == DType::f64 ? tensor : tensor.cast(input.type.dtype);
  }
  std::vector<InputSpec> inputs_;
  std::uint64_t seed_;
};

constexpr const char* kForms =
    "data must be synthetic, npz:FILE, npz:FOLDER, npy:INPUT=FILE,.., tokens:FILE or tokens{bytes=2}:FILE, not ";

}  // namespace

std::pair<std::string, std::string> split_data(const std::string& spec) {
  for (const std::string kind : {"npz:", "npy:", "tokens:"})
    if (spec.starts_with(kind)) return {kind, spec.substr(kind.size())};
  if (const std::size_t end = spec.find("}:"); spec.starts_with("tokens{") && end != std::string::npos)
    return {spec.substr(0, end + 2), spec.substr(end + 2)};
  return {spec, ""};
}

std::string move_data_files(const std::string& spec,
                            const std::function<std::string(const std::string& file)>& move) {
  const auto [kind, file] = split_data(spec);
  if (file.empty()) return spec;
  if (kind != "npy:") return kind + move(file);
  const auto files = npy_files(file);
  if (!files) return spec;
  std::string text;
  for (const auto& [input, path] : *files) text += (text.empty() ? "" : ",") + input + "=" + move(path);
  return kind + text;
}

Status check_data(const std::string& spec) {
  const auto [kind, file] = split_data(spec);
  if (kind == "synthetic" || kind == kCallerData) return {};
  if (file.empty()) return Error{Errc::usage, kForms + escaped(spec)};
  if (kind == "npy:") TRY(npy_files(file));
  if (kind.starts_with("tokens")) TRY(token_bytes(kind));
  return {};
}

Result<std::unique_ptr<BatchSource>> make_batches(const std::string& spec,
                                                  const std::vector<InputSpec>& inputs, std::uint64_t seed,
                                                  DataOrder order) {
  for (const InputSpec& input : inputs) {
    if (!is_static(input.type.shape)) return Error{Errc::usage, input_text(input) + " has an unbound dim"};
  }
  TRY(check_data(spec));
  const auto [kind, file] = split_data(spec);
  if (kind == "synthetic") {
    if (order.shuffle)
      return Error{Errc::usage, "synthetic data have no order to shuffle: every batch is new anyway"};
    return std::unique_ptr<BatchSource>(new Synthetic(inputs, seed));
  }
  if (kind == kCallerData)
    return Error{Errc::usage, "data caller: each step's batches come from a program that links libgradloom"};
  if (kind == "npy:") return open_npy(file, inputs, seed, order);
  if (kind != "npz:") return open_tokens(kind, file, inputs, seed, order);
  std::error_code ignored;
  return std::filesystem::is_directory(file, ignored) ? open_npz_folder(file, inputs, seed, order)
                                                      : open_npz(file, inputs, seed, order);
}

Result<std::map<std::string, Tensor>> repeated_inputs(const std::string& spec,
                                                      const std::set<std::string>& names) {
  std::map<std::string, Tensor> contents;
  const auto [kind, file] = split_data(spec);
  std::error_code ignored;
  if (kind != "npz:" || file.empty() || std::filesystem::is_directory(file, ignored)) return contents;
  const auto wanted = [&](const std::string& name, const Type& type) -> Result<bool> {
    return names.count(name) > 0 && !is_real(type.dtype) && !type.shape.empty() && type.shape[0] > 0;
  };
  for (const auto& [name, all] : TRY(read_npz(file, wanted))) {
    if (!all.defined()) continue;
    const Tensor first = batch_of(all, 0);
    bool same = true;
    for (std::int64_t i = 1; i < all.shape()[0] && same; ++i) same = bit_equal(batch_of(all, i), first);
    if (same) contents[name] = first;
  }
  return contents;
}

}  // namespace gradloom
