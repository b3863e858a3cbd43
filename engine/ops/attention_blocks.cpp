#include "engine/ops/attention_blocks.h"

#include <algorithm>

#include "engine/ops/common.h"

namespace gradloom::attention {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kScoreBytes = 16 << 20;  // of one block
constexpr std::int64_t kRowStep = 16;           // blocks are whole multiples of it
constexpr std::int64_t kLeastRows = 64;         // of a block that could leave keys out
constexpr double kHidden = -1e9;  // scores at or below are hidden: their probability is 0 beside any other

// What a mask that is known when planning hides.
class KnownMask {
 public:
  KnownMask(const Attention& a, const Tensor& mask)
      : mask_(mask), strides_(mask_strides(a, mask.shape())), a_(a) {}

  // Of row `row` of any part of the batch: keys from here on are hidden, all from 0 if that is every key;
  // whether one before is.
  struct Row {
    std::int64_t end = 0;
    bool holes = false;
  };
  Row row(std::int64_t row) const {
    Row found;
    for (const std::int64_t base : bases()) {
      std::int64_t shown = 0, end = 0;
      const std::int64_t first = base + row * strides_[strides_.size() - 2], step = strides_.back();
      for (std::int64_t key = 0; key < a_.keys; ++key) {
        if (hidden(first + key * step)) continue;
        ++shown;
        end = key + 1;
      }
      if (shown == 0) end = a_.keys;  // nothing is left out of a row that sees nothing
      found.holes = found.holes || shown != end || end != a_.keys;
      found.end = std::max(found.end, end);
    }
    return found;
  }
  // Rows that see nothing: their probabilities are not 0 where the mask is.
  bool blind_rows() const {
    for (const std::int64_t base : bases())
      for (std::int64_t row = 0; row < (strides_[strides_.size() - 2] == 0 ? 1 : a_.rows); ++row) {
        bool blind = true;
        for (std::int64_t key = 0; key < a_.keys && blind; ++key)
          blind = hidden(base + row * strides_[strides_.size() - 2] + key * strides_.back());
        if (blind) return true;
      }
    return false;
  }

 private:
  // Offsets of the parts of the batch that differ.
  Ints bases() const {
    Ints offsets = {0};
    for (std::size_t i = 0; i < a_.batch.size(); ++i) {
      if (strides_[i] == 0) continue;
      Ints more;
      for (const std::int64_t offset : offsets)
        for (std::int64_t n = 0; n < a_.batch[i]; ++n) more.push_back(offset + n * strides_[i]);
      offsets = std::move(more);
    }
    return offsets;
  }
  bool hidden(std::int64_t at) const {
    if (a_.mask == Mask::add) return mask_.at(at) <= kHidden;
    const bool set = mask_.as<std::uint8_t>()[at] != 0;
    return a_.fill <= kHidden && set == (a_.mask == Mask::block);
  }

  const Tensor& mask_;
  Ints strides_;
  const Attention& a_;
};

}  // namespace

std::vector<std::int64_t> mask_strides(const Attention& a, const Shape& mask) {
  Ints strides = dense_strides(mask);
  for (std::size_t i = 0; i < mask.size(); ++i)
    if (mask[i] == 1) strides[i] = 0;
  strides.insert(strides.begin(), a.batch.size() + 2 - mask.size(), 0);
  return strides;
}

std::int64_t rounded(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

// Blocks of rows, and the keys that each needs. Deterministic: from shapes and the known mask alone.
std::vector<Block> blocks_of(const Attention& a, const Tensor* known) {
  const std::int64_t row_bytes = std::max<std::int64_t>(
      1, element_count(a.batch) * a.keys * static_cast<std::int64_t>(dtype_bytes(a.dtype)));
  std::int64_t size = std::max(kRowStep, kScoreBytes / row_bytes / kRowStep * kRowStep);
  if (known != nullptr) size = std::min(size, std::max(kLeastRows, rounded(a.rows / 8, kRowStep)));
  std::vector<Block> blocks;
  for (std::int64_t row = 0; row < a.rows; row += size) {
    Block block{row, std::min(size, a.rows - row), a.keys, a.mask != Mask::none};
    if (known != nullptr) {
      const KnownMask mask(a, *known);
      block.keys = 0;
      block.masked = false;
      for (std::int64_t r = row; r < row + block.rows; ++r) {
        const KnownMask::Row seen = mask.row(r);
        block.keys = std::max(block.keys, seen.end);
        block.masked = block.masked || seen.holes;
      }
      block.keys = std::min(a.keys, rounded(block.keys, kRowStep));
      block.masked = block.masked || a.mask == Mask::add;  // it may add more than hiding
    }
    blocks.push_back(block);
  }
  return blocks;
}

bool has_blind_rows(const Attention& a, const Tensor& mask) { return KnownMask(a, mask).blind_rows(); }

}  // namespace gradloom::attention
