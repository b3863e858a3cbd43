// bf16, the upper half of an f32, to and from f32.
#pragma once

#include <cstdint>

namespace gradloom {

float bf16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_bf16(float value);  // to the nearest, ties to even; NaN stays one

}  // namespace gradloom
