// Attention by our own kernels of one piece: on GPUs of half types (kernels/gpu/attention.cu), on CPUs that multiply bf16 of it
// (kernels/cpu/attention.cpp).
#pragma once

#include <cstddef>
#include <optional>

#include "engine/ir/op.h"
#include "engine/ops/attention/query_blocks.h"
#include "kernels/arguments.h"

namespace gradloom::attention {

class FlashCalls {
 public:
  // Nothing where the kernels do not take it: other types, heads of more columns than a warp holds, more keys than a processor's
  // caches. `first`: which input q is.
  static std::optional<FlashCalls> of(const NodeTypes& types, std::size_t first, const Attention& a);
  std::size_t grad_workspace_bytes() const;
  // Inputs and outputs of FusedAttention, of FusedAttentionGrad.
  void attention(const LaunchArgs& args) const;
  void attention_grad(const LaunchArgs& args) const;

 private:
  // inputs: q, k, v, mask.
  kernels::FlashAttentionArgs form(const LaunchArgs& args, const void* const* inputs) const;

  kernels::Target target_ = kernels::Target::cpu;
  kernels::FlashAttentionGradArgs form_{};  // without addresses; of FusedAttention, what is forward
  bool log_sums_ = false;                   // FusedAttention gives them
};

}  // namespace gradloom::attention
