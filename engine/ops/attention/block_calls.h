// Attention as a sequence of kernels: products, softmax, .. over one block of queries after the other (query_blocks.h). On every device, of every
// type that its products take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/attention/query_blocks.h"
#include "engine/ops/copies.h"
#include "engine/ops/products/matrix_product.h"

namespace gradloom::attention {

class BlockCalls {
 public:
  using Program = std::shared_ptr<const kernels::EwProgram>;

  // A device error where a product or the layout of an operand has no kernel, or where the result had other bits than of
  // `dense`, the same attention of dense tensors.
  static Result<BlockCalls> of(const NodeTypes& types, Attention attention, const Attention& dense,
                               bool backward);
  std::size_t workspace_bytes() const { return at_.bytes; }
  std::vector<Program> programs() const;
  // Inputs and outputs of FusedAttention, of FusedAttentionGrad.
  void attention(const LaunchArgs& args) const;
  void attention_grad(const LaunchArgs& args) const;

 private:
  // One block, prepared; what the row does not need stays empty.
  struct Step {
    QueryBlock block;
    SliceProduct scores, result, probability_grad, q_grad, k_grad, v_grad;
    Program mask, mask_grad;
    Program narrow;  // where the products read another type than that of the scores
    // dy * y of the rows, dense; none: what the sums are of is probabilities times their gradients
    Program result_slopes;
    // Log-sum-exp of the block's rows, from or to where they are among all; nothing where they are all.
    CopyPlan log_sum_places;
    std::optional<kernels::StridedCopyArgs> log_sum_copy;
  };
  // Where the parts of the workspace begin. Scores: two buffers for the gradient, the other one at `grads`.
  struct Parts {
    std::size_t scores = 0, grads = 0;
    std::size_t narrow = 0;                  // a block of scores in the type of the operands
    std::size_t k_sum = 0, v_sum = 0;        // of dK and dV, which several blocks add to
    std::size_t log_sums = 0, row_sums = 0;  // a number per row of a block
    std::size_t products = 0, bytes = 0;
  };

  Status add_step(const NodeTypes& types, const QueryBlock& block, bool masked_shares, bool backward);
  Status add_products(const NodeTypes& types, Step& s, bool backward);
  Status require_bits_of(const NodeTypes& types, const Attention& dense, bool backward) const;
  Status add_row_numbers(const NodeTypes& types, Step& s, bool backward);
  void lay_out(const NodeTypes& types, bool backward);
  void masked_scores(const Step& s, const LaunchArgs& args, const void* const* operands, void* scores) const;
  void probabilities_again(const Step& s, const LaunchArgs& args, const void* log_sum_exp,
                           void* scores) const;
  // Null: they are not known.
  const void* row_sums(const Step& s, const LaunchArgs& args) const;
  const void* narrowed(const Step& s, const LaunchArgs& args, const void* scores) const;
  void drop(const QueryBlock& block, const LaunchArgs& args, const void* x, void* y) const;
  std::int64_t batches() const { return element_count(a_.batch); }

  Attention a_;
  std::vector<Step> steps_;  // in the order they run
  Shape mask_shape_;
  std::int64_t mask_row_ = 0;
  std::size_t score_bytes_ = 0, number_bytes_ = 0, product_bytes_ = 0;  // of one buffer of each
  bool log_sums_ = false;                                               // FusedAttention gives them
  bool fill_grads_ = false;
  DType sums_ = DType::f32;                 // of dK and dV while blocks add to them
  Program narrow_k_, narrow_v_;             // where that is not their type
  std::int64_t k_count_ = 0, v_count_ = 0;  // elements of dK and dV
  Parts at_;
};

}  // namespace gradloom::attention
