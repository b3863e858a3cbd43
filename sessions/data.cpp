// Batch sources: synthetic, npz, tokens.
#include "sessions/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/base/npz.h"
#include "sessions/random.h"

namespace gradloom {
namespace {

constexpr std::int64_t kMaxTokensBytes = std::int64_t{1} << 30;

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

// Entry `i` along the first axis.
Tensor batch_of(const Tensor& all, std::int64_t i) {
  Tensor one(all.dtype(), Shape(all.shape().begin() + 1, all.shape().end()));
  const std::size_t bytes = one.bytes();
  if (bytes > 0)
    std::memcpy(one.mutable_data(),
                static_cast<const std::byte*>(all.data()) + static_cast<std::size_t>(i) * bytes, bytes);
  return one;
}

class Npz : public BatchSource {
 public:
  static Result<std::unique_ptr<BatchSource>> open(const std::string& file,
                                                   const std::vector<InputSpec>& inputs) {
    auto source = std::make_unique<Npz>();
    // What is not wanted, or has another type, is refused by its header:
    // a small archive may hold a large array.
    const auto wanted = [&](const std::string& name, const Type& type) -> Result<bool> {
      for (const InputSpec& input : inputs) {
        if (input.name != name) continue;
        TRY(accept_type(type, input));
        return true;
      }
      return false;
    };
    std::map<std::string, Tensor> arrays = TRY(read_npz(file, wanted));
    for (const InputSpec& input : inputs) {
      const auto found = arrays.find(input.name);
      if (found == arrays.end())
        return Error{Errc::bad_input,
                     fmt::format("{}: no array for {}; it has {}", file, input_text(input), names(arrays))};
      Result<Tensor> accepted = accept(found->second, input);
      if (!accepted.ok()) return with_context(accepted.error(), file);
      const std::int64_t count = accepted->shape()[0];
      if (source->count_ != 0 && source->count_ != count) {
        return Error{Errc::bad_input, fmt::format("{}: array {} has {} batches, others have {}", file,
                                                  escaped(input.name), count, source->count_)};
      }
      source->count_ = count;
      source->inputs_.emplace_back(input, std::move(accepted).value());
    }
    return std::unique_ptr<BatchSource>(std::move(source));
  }
  std::int64_t count() const override { return count_; }
  Result<std::map<std::string, Tensor>> batch(std::int64_t i) const override {
    std::map<std::string, Tensor> out;
    for (const auto& [input, all] : inputs_) out[input.name] = batch_of(all, i % count_);
    return out;
  }

 private:
  static std::string names(const std::map<std::string, Tensor>& arrays) {
    std::string text;
    for (const auto& [name, tensor] : arrays) {
      if (text.size() > 300) return text + ", ...";
      text += (text.empty() ? "" : ", ") + escaped(name);
    }
    return text.empty() ? "none" : text;
  }
  static Status accept_type(const Type& type, const InputSpec& input) {
    const std::string has = fmt::format("array {} is {}", escaped(input.name), to_string(type));
    const bool same = type.dtype == input.type.dtype,
               floats = is_float(type.dtype) && is_real(input.type.dtype),
               bytes = is_small_int(input.type.dtype) && (type.dtype == DType::i8 || type.dtype == DType::u8);
    if (!same && !floats && !bytes)
      return Error{Errc::bad_input,
                   fmt::format("{}, but {} needs {}", has, input_text(input), dtype_name(input.type.dtype))};
    Shape wanted = input.type.shape;
    wanted.insert(wanted.begin(), type.shape.empty() ? 0 : type.shape[0]);
    if (type.shape.empty() || type.shape != wanted) {
      return Error{Errc::bad_input,
                   fmt::format("{}, but {} needs that shape with one more leading axis, the batch number",
                               has, input_text(input))};
    }
    if (type.shape[0] == 0) return Error{Errc::bad_input, has + ": no batches"};
    return {};
  }
  static std::string ignored_text(const InputSpec& input) {
    if (!input.label) return "";
    return input.ignored ? fmt::format("; the loss ignores only {}", *input.ignored)
                         : "; the loss ignores no label";
  }
  // The whole array, of the dtype that the input wants.
  static Result<Tensor> accept(const Tensor& array, const InputSpec& input) {
    if (input.limit > 0 && is_integer(array.dtype())) {
      for (std::int64_t i = 0; i < array.count(); ++i) {
        const std::int64_t value = array.int_at(i);
        // Indices may count from the end, labels may not.
        const std::int64_t least = input.label ? 0 : -input.limit;
        if ((value >= least && value < input.limit) || (input.label && value == input.ignored)) continue;
        return Error{Errc::bad_input, fmt::format("array {}: {} {} at element {} is outside of {}..{}{}",
                                                  escaped(input.name), input.label ? "label" : "value", value,
                                                  i, least, input.limit - 1, ignored_text(input))};
      }
    }
    Tensor result = array.cast(input.type.dtype);
    for (std::int64_t i = 0; is_small_int(result.dtype()) && i < array.count(); ++i) {
      if (result.int_at(i) != array.int_at(i))
        return Error{Errc::bad_input,
                     fmt::format("array {}: value {} at element {} is no {}", escaped(input.name),
                                 array.int_at(i), i, dtype_name(input.type.dtype))};
    }
    return result;
  }
  std::int64_t count_ = 0;
  std::vector<std::pair<InputSpec, Tensor>> inputs_;
};

class Tokens : public BatchSource {
 public:
  static Result<std::unique_ptr<BatchSource>> open(const std::string& file,
                                                   const std::vector<InputSpec>& inputs, std::uint64_t seed) {
    auto source = std::make_unique<Tokens>();
    TRY(source->choose(inputs));
    source->bytes_ = TRY(read_file_limited(file, kMaxTokensBytes));
    source->seed_ = seed ^ fnv1a64("tokens");
    const std::int64_t needed = source->width_ + 1;
    const auto size = static_cast<std::int64_t>(source->bytes_.size());
    if (size < needed)
      return Error{Errc::bad_input,
                   fmt::format("{}: {} bytes, but a window and its labels need {}", file, size, needed)};
    for (const InputSpec* input : {&source->tokens_, &source->labels_}) {
      const std::int64_t limit =
          std::min(input->limit > 0 ? input->limit : std::int64_t{256}, dtype_limit(input->type.dtype));
      if (input->name.empty() || limit >= 256) continue;
      for (std::int64_t i = 0; i < size; ++i) {
        const auto byte = static_cast<unsigned char>(source->bytes_[static_cast<std::size_t>(i)]);
        if (byte >= limit)
          return Error{Errc::bad_input, fmt::format("{}: byte {} at {} is not below {}, the limit of {}",
                                                    file, byte, i, limit, input_text(*input))};
      }
    }
    return std::unique_ptr<BatchSource>(std::move(source));
  }
  std::int64_t count() const override { return 0; }
  Result<std::map<std::string, Tensor>> batch(std::int64_t i) const override {
    Tensor tokens(tokens_.type.dtype, tokens_.type.shape);
    Tensor labels;
    if (!labels_.name.empty()) labels = Tensor(labels_.type.dtype, labels_.type.shape);
    const std::uint64_t places =
        bytes_.size() - static_cast<std::uint64_t>(width_);  // starts whose last label is inside
    for (std::int64_t row = 0; row < rows_; ++row) {
      const auto bits = philox4x32(seed_, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(i));
      const std::int64_t start = scaled(bits[0], places);
      for (std::int64_t j = 0; j < width_; ++j) {
        const auto byte = [&](std::int64_t at) {
          return static_cast<unsigned char>(bytes_[static_cast<std::size_t>(at)]);
        };
        store_integer(tokens, row * width_ + j, byte(start + j));
        if (labels.defined()) store_integer(labels, row * width_ + j, byte(start + j + 1));
      }
    }
    std::map<std::string, Tensor> out;
    out[tokens_.name] = std::move(tokens);
    if (labels.defined()) out[labels_.name] = std::move(labels);
    return out;
  }

 private:
  // Which input gets the windows and which the bytes that follow.
  Status choose(const std::vector<InputSpec>& inputs) {
    std::vector<InputSpec> integers;
    for (const InputSpec& input : inputs) {
      if (!is_integer(input.type.dtype))
        return Error{Errc::bad_input,
                     fmt::format("tokens: feeds integer inputs only, not {}; use npz:", input_text(input))};
      integers.push_back(input);
    }
    if (integers.empty() || integers.size() > 2) {
      return Error{
          Errc::bad_input,
          fmt::format(
              "tokens: feeds one integer input and its labels, but the graph has {} integer inputs; use npz:",
              integers.size())};
    }
    if (integers.size() == 2) {
      const auto named_label = [](const InputSpec& s) {
        return s.name.find("label") != std::string::npos || s.name.find("target") != std::string::npos;
      };
      const bool marked = integers[0].label != integers[1].label;
      const bool first_is_label =
          marked ? integers[0].label : named_label(integers[0]) && !named_label(integers[1]);
      if (first_is_label) std::swap(integers[0], integers[1]);
      labels_ = integers[1];
    }
    tokens_ = integers[0];
    if (tokens_.type.shape.empty())
      return Error{Errc::bad_input,
                   fmt::format("tokens: {} has no axis for the window", input_text(tokens_))};
    width_ = tokens_.type.shape.back();
    rows_ = width_ > 0 ? element_count(tokens_.type.shape) / width_ : 0;
    if (!labels_.name.empty() && element_count(labels_.type.shape) != element_count(tokens_.type.shape)) {
      return Error{Errc::bad_input,
                   fmt::format("tokens: {} and {} differ in size; labels need one element per token",
                               input_text(tokens_), input_text(labels_))};
    }
    return {};
  }
  InputSpec tokens_, labels_;  // labels_.name empty: the graph has none
  std::int64_t width_ = 0, rows_ = 0;
  std::string bytes_;
  std::uint64_t seed_ = 0;
};

}  // namespace

std::pair<std::string, std::string> split_data(const std::string& spec) {
  for (const std::string kind : {"npz:", "tokens:"})
    if (spec.starts_with(kind)) return {kind, spec.substr(kind.size())};
  return {spec, ""};
}

Result<std::unique_ptr<BatchSource>> make_batches(const std::string& spec,
                                                  const std::vector<InputSpec>& inputs, std::uint64_t seed) {
  for (const InputSpec& input : inputs) {
    if (!is_static(input.type.shape)) return Error{Errc::usage, input_text(input) + " has an unbound dim"};
  }
  const auto [kind, file] = split_data(spec);
  if (kind == "synthetic") return std::unique_ptr<BatchSource>(new Synthetic(inputs, seed));
  if (kind == "npz:" && !file.empty()) return Npz::open(file, inputs);
  if (kind == "tokens:" && !file.empty()) return Tokens::open(file, inputs, seed);
  return Error{Errc::usage, "data must be synthetic, npz:FILE or tokens:FILE, not " + escaped(spec)};
}

Result<std::map<std::string, Tensor>> repeated_inputs(const std::string& spec,
                                                      const std::set<std::string>& names) {
  std::map<std::string, Tensor> contents;
  const auto [kind, file] = split_data(spec);
  if (kind != "npz:" || file.empty()) return contents;
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
