// bf16 on the CPU.
#pragma once

namespace gradloom::kernels {

// Does this processor multiply bf16 (AVX-512 BF16 or AMX)? Elsewhere oneDNN's bf16 is slower than its f32.
bool has_bf16_products();

// Are products of pairs by kernels/cpu/pairs.h, of which flash_attention is made, the faster ones? With AVX512_BF16 and the kernels of level
// v4; not with AMX, which oneDNN's products use.
bool pair_products();

}  // namespace gradloom::kernels
