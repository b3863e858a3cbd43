// bf16 on the CPU.
#pragma once

namespace gradloom::kernels {

// Does this processor multiply bf16 (AVX-512 BF16 or AMX)? Elsewhere oneDNN's bf16 is slower than its f32.
bool has_bf16_products();

}  // namespace gradloom::kernels
