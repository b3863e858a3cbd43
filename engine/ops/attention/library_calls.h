// Attention as a library of the device computes it, cuDNN: in one call, or in as many as its memory asks for.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/ir/op.h"
#include "engine/ops/attention/query_blocks.h"
#include "kernels/launcher.h"

namespace gradloom::attention {

class LibraryCalls {
 public:
  // Nothing where the library means something else or takes no call of one head: other random numbers, masks that replace
  // scores (but those of the future alone), rows that may see nothing, more batch dims than two, other types.
  // `first`: which input q is; backward: of the gradient.
  static std::optional<LibraryCalls> of(const NodeTypes& types, std::size_t first, const Attention& a,
                                        bool backward);
  std::size_t workspace_bytes() const { return form_.forward.workspace_bytes; }
  // Inputs and outputs of FusedAttention, of FusedAttentionGrad. False: the library took not all calls, and what it
  // has written is to be made again.
  bool attention(const LaunchArgs& args) const;
  bool attention_grad(const LaunchArgs& args) const;

 private:
  // The part of one call, and where it begins, in elements.
  struct Part {
    kernels::AttentionGradArgs form;
    std::int64_t q, k, v, y, log_sum, dy, dq, dk, dv;
  };
  // inputs: q, k, v, mask.
  template <class Call>
  bool all_parts(const LaunchArgs& args, const void* const* inputs, const Call& call) const;
  Part part(std::int64_t image, std::int64_t head) const;

  // Of the largest call, without addresses; of FusedAttention, what is forward
  kernels::AttentionGradArgs form_{};
  bool log_sums_ = false;                        // FusedAttention gives them
  std::int64_t batch_ = 0, heads_ = 0;           // of all
  std::int64_t mask_image_ = 0, mask_head_ = 0;  // elements from one to the next; 0: all have one
};

}  // namespace gradloom::attention
