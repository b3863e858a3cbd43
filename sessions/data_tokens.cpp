// Batches of tokens: windows of a file of numbers of 1, 2 or 4 bytes, which is read where it lies.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "engine/base/fields.h"
#include "engine/base/hash.h"
#include "engine/base/input_file.h"
#include "engine/base/text.h"
#include "sessions/batch_sources.h"
#include "sessions/permutation.h"
#include "sessions/random.h"

namespace gradloom {
namespace {

// Files up to this are looked through before the first step; of larger ones each window when it is read.
constexpr std::int64_t kLookedThroughBytes = std::int64_t{256} << 20;
constexpr std::int64_t kPieceTokens = 1 << 18;

class Tokens : public BatchSource {
 public:
  Tokens(const std::string& file, std::int64_t token_bytes, std::uint64_t seed, DataOrder order)
      : path_(file), token_bytes_(token_bytes), seed_(seed ^ fnv1a64("tokens")), order_(order) {}
  Status open(const std::vector<InputSpec>& inputs) {
    TRY(choose(inputs));
    auto opened = InputFile::open(path_);
    if (!opened) return Error{Errc::io, opened.error().message};  // as for whole files: a folder, a pipe
    file_ = std::make_unique<InputFile>(std::move(opened).value());
    if (file_->size() % token_bytes_ != 0)
      return Error{Errc::bad_input, fmt::format("{}: {} bytes are no whole number of tokens of {} bytes",
                                                path_, file_->size(), token_bytes_)};
    size_ = file_->size() / token_bytes_;
    const bool in_turn = order_.epochs || order_.shuffle;
    const std::int64_t needed = width_ * (in_turn ? rows_ : 1) + 1;
    if (size_ < needed || width_ == 0)
      return Error{Errc::bad_input, fmt::format("{}: {} {}, but a {} and its labels need {}", path_, size_,
                                                unit(), in_turn ? "batch" : "window", needed)};
    if (in_turn) count_ = (size_ - 1) / (width_ * rows_);
    if (file_->size() > kLookedThroughBytes || most() >= limit_of_width()) return {};
    std::vector<std::uint32_t> piece;
    for (std::int64_t at = 0; at < size_; at += kPieceTokens)
      TRY(read(at, std::min(kPieceTokens, size_ - at), piece));
    return {};
  }
  std::int64_t count() const override { return count_; }
  std::int64_t tokens() const override { return rows_ * width_; }
  Result<std::map<std::string, Tensor>> batch(std::int64_t i) const override {
    Tensor tokens(tokens_.type.dtype, tokens_.type.shape);
    Tensor labels;
    if (!labels_.name.empty()) labels = Tensor(labels_.type.dtype, labels_.type.shape);
    std::vector<std::uint32_t> window;
    for (std::int64_t row = 0; row < rows_; ++row) {
      TRY(read(start_of(i, row), width_ + 1, window));
      for (std::int64_t j = 0; j < width_; ++j) {
        store_integer(tokens, row * width_ + j, window[static_cast<std::size_t>(j)]);
        if (labels.defined())
          store_integer(labels, row * width_ + j, window[static_cast<std::size_t>(j) + 1]);
      }
    }
    std::map<std::string, Tensor> out;
    out[tokens_.name] = std::move(tokens);
    if (labels.defined()) out[labels_.name] = std::move(labels);
    return out;
  }

 private:
  const char* unit() const { return token_bytes_ == 1 ? "bytes" : "tokens"; }
  std::int64_t limit_of_width() const { return std::int64_t{1} << (8 * token_bytes_); }
  // Tokens are below it.
  std::int64_t most() const {
    std::int64_t most = limit_of_width();
    for (const InputSpec* input : {&tokens_, &labels_}) {
      if (input->name.empty()) continue;
      most = std::min(most, dtype_limit(input->type.dtype));
      if (input->limit > 0) most = std::min(most, input->limit);
    }
    return most;
  }
  const InputSpec& limited() const {
    const auto limit = [](const InputSpec& input) {
      return std::min(input.limit > 0 ? input.limit : INT64_MAX, dtype_limit(input.type.dtype));
    };
    return !labels_.name.empty() && limit(labels_) < limit(tokens_) ? labels_ : tokens_;
  }
  // Where a row's window begins: at random, or one behind the other.
  std::int64_t start_of(std::int64_t i, std::int64_t row) const {
    if (count_ == 0) {
      const auto bits = philox4x32(seed_, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(i));
      const auto places = static_cast<std::uint64_t>(size_ - width_);  // starts whose last label is inside
      if (places <= UINT32_MAX) return scaled(bits[0], places);
      return static_cast<std::int64_t>((std::uint64_t{bits[1]} << 32 | bits[0]) % places);
    }
    const std::int64_t window = i % count_ * rows_ + row;
    if (!order_.shuffle) return window * width_;
    const std::int64_t windows = (size_ - 1) / width_;  // of which an epoch leaves out others each time
    return Permutation(windows, seed_, static_cast<std::uint64_t>(i / count_))(window) * width_;
  }
  // Tokens from `first` on, each below the limit.
  Status read(std::int64_t first, std::int64_t count, std::vector<std::uint32_t>& out) const {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(count * token_bytes_));
    if (const Status status = file_->read_unchanged(first * token_bytes_, bytes.data(), count * token_bytes_);
        !status)
      return with_context(status.error(), path_);
    const std::int64_t below = most();
    out.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::uint32_t token = 0;
      for (auto byte = static_cast<std::size_t>(token_bytes_); byte-- > 0;)
        token = token << 8 | bytes[i * static_cast<std::size_t>(token_bytes_) + byte];
      if (token >= below)
        return Error{Errc::bad_input,
                     fmt::format("{}: {} {} at {} is not below {}, the limit of {}", path_,
                                 token_bytes_ == 1 ? "byte" : "token", token,
                                 first + static_cast<std::int64_t>(i), below, input_text(limited()))};
      out[i] = token;
    }
    return {};
  }
  // Which input gets the windows and which the tokens that follow.
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
  const std::string path_;
  const std::int64_t token_bytes_;
  const std::uint64_t seed_;
  const DataOrder order_;
  std::unique_ptr<InputFile> file_;
  std::int64_t size_ = 0;      // in tokens
  InputSpec tokens_, labels_;  // labels_.name empty: the graph has none
  std::int64_t width_ = 0, rows_ = 0;
  std::int64_t count_ = 0;  // batches of windows one behind the other; 0: windows at random places
};

struct TokenOptions {
  std::int64_t bytes = 1;
  void fields(FieldVisitor& v) {
    v.field("bytes", bytes, {.help = "of a token, little-endian", .unit = "bytes", .min = 1, .max = 4});
  }
};

}  // namespace

Result<std::int64_t> token_bytes(const std::string& kind) {
  const NamedOptions named = TRY(parse_named_options(kind.substr(0, kind.size() - 1)));
  TokenOptions options;
  TRY(set_fields([&](FieldVisitor& v) { options.fields(v); }, named.values, "tokens"));
  if (options.bytes == 3) return Error{Errc::usage, "tokens have 1, 2 or 4 bytes, not 3"};
  return options.bytes;
}

Batches open_tokens(const std::string& kind, const std::string& file, const std::vector<InputSpec>& inputs,
                    std::uint64_t seed, DataOrder order) {
  auto source = std::make_unique<Tokens>(file, TRY(token_bytes(kind)), seed, order);
  TRY(source->open(inputs));
  return std::unique_ptr<BatchSource>(std::move(source));
}

}  // namespace gradloom
