#include "engine/train/eight_bit.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/block_quantization.h"

namespace gradloom {
namespace {

using namespace kernels::portable;
using kernels::StateRange;

std::size_t scale_bytes(std::int64_t numbers) {
  return static_cast<std::size_t>(code_blocks(numbers)) * sizeof(float);
}

// `bytes` bytes of a tensor in memory from `from` on, which keep the tensor alive.
Tensor part_of(const Tensor& tensor, Type type, std::size_t from) {
  const auto whole = std::make_shared<Tensor>(tensor);
  auto* const data = const_cast<std::byte*>(static_cast<const std::byte*>(whole->data())) + from;
  return Tensor::over(std::move(type), std::shared_ptr<std::byte[]>(whole, data));
}

template <bool positive>
void encode(const float* numbers, std::int64_t count, float* scales, std::uint8_t* codes) {
  for (std::int64_t begin = 0; begin < count; begin += kCodeBlock) {
    const std::int64_t end = std::min<std::int64_t>(begin + kCodeBlock, count);
    float least = 0, most = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      least = min(numbers[i], least);
      most = max(numbers[i], most);
    }
    const float scale = scales[begin / kCodeBlock] = block_scale(least, most);
    for (std::int64_t i = begin; i < end; ++i)
      codes[i] = static_cast<std::uint8_t>(code_in_block<positive>(numbers[i], scale));
  }
}

}  // namespace

Type encoded_type(const Shape& parameter) { return {DType::u8, {encoded_bytes(element_count(parameter))}}; }
Type codes_type(const Shape& parameter) { return {DType::u8, parameter}; }
Type scales_type(const Shape& parameter) { return {DType::f32, {code_blocks(element_count(parameter))}}; }

EightBitState split_state(const Tensor& encoded, const Shape& parameter) {
  return {part_of(encoded, codes_type(parameter), scale_bytes(element_count(parameter))),
          part_of(encoded, scales_type(parameter), 0)};
}

Result<Tensor> joined_state(const EightBitState& state) {
  Tensor joined(encoded_type(state.codes.shape()).dtype, encoded_type(state.codes.shape()).shape);
  auto* const bytes = joined.mutable_as<std::uint8_t>();
  TRY(state.scales.read(0, bytes, state.scales.bytes()));
  TRY(state.codes.read(0, bytes + state.scales.bytes(), state.codes.bytes()));
  return joined;
}

Result<Tensor> decoded_state(const EightBitState& state, StateRange range) {
  const Tensor codes = TRY(state.codes.loaded()), scales = TRY(state.scales.loaded());
  Tensor numbers(DType::f32, codes.shape());
  auto* const to = numbers.mutable_as<float>();
  std::array<float, kCodes> map;
  for (std::size_t code = 0; code < map.size(); ++code)
    map[code] = map_value(static_cast<int>(code), range == StateRange::positive);
  for (std::int64_t i = 0; i < codes.count(); ++i)
    to[i] = map[codes.as<std::uint8_t>()[i]] * scales.as<float>()[i / kCodeBlock];
  return numbers;
}

Result<Tensor> encoded_state(const Tensor& numbers, StateRange range) {
  const Tensor wide = TRY(numbers.loaded()).cast(DType::f32);
  const Type type = encoded_type(numbers.shape());
  Tensor encoded(type.dtype, type.shape);
  auto* const bytes = encoded.mutable_as<std::uint8_t>();
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): the scales come first
  auto* const scales = reinterpret_cast<float*>(bytes);
  std::uint8_t* const codes = bytes + scale_bytes(numbers.count());
  if (range == StateRange::positive)
    encode<true>(wide.as<float>(), wide.count(), scales, codes);
  else
    encode<false>(wide.as<float>(), wide.count(), scales, codes);
  return encoded;
}

}  // namespace gradloom
