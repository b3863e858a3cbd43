// What runs LinearCrossEntropyLoss, LinearPartScores and their gradients (linear_cross_entropy_loss.cpp): chunks of rows whose logits fit
// a small workspace.
#pragma once

#include <cstdint>
#include <string>

#include "engine/ir/op.h"

namespace gradloom {

struct LinearHead {
  kernels::Target target = kernels::Target::cpu;
  std::int64_t n = 0, k = 0, classes = 0;
  std::int64_t rows = 0;        // of a chunk
  bool transposed = false;      // w is [classes, k]
  DType type = DType::f32;      // of x and w
  DType scores = DType::f32;    // of a chunk's logits: f32 where the products can write it
  DType sums = DType::f32;      // of losses, class weights and sums over rows: f32 where type is 16 bits
  DType gradient = DType::f32;  // of dw and dbias; of an accumulated dw it is `sums`
  DType labels = DType::i64;
  bool mean = true;
  bool has_ignore = false;
  std::int64_t ignore_index = 0;
  bool bias = false, weight = false;
  // Classes are a part of all, the number-th of `parts`: there are scores (part_scores.cpp) and no losses. parts 0: all classes are here.
  std::int64_t parts = 0, number = 0;
  std::int64_t own = 0;  // of `classes` those that are classes; what is behind them has weights that are 0
  bool library = false;  // NodeTypes::dnn_library
  // Inputs are: dloss if 1, x, w, bias, labels, class weight; or dscores if 1, .., labels, scores if 1. Before these, if `micro_batches`
  // is not 0: acc and micro, and dw is written over acc, to which 1 / micro_batches of it is added.
  std::size_t first = 0;
  std::int64_t micro_batches = 0;
  // Outputs in this order; of a part without the loss.
  bool want_loss = false, want_dx = false, want_dw = false, want_dbias = false;
  DType dw_type() const { return micro_batches > 0 ? sums : gradient; }
  bool gradients() const { return want_dx || want_dw || want_dbias; }
  std::int64_t chunks() const { return (n + rows - 1) / rows; }
  // Elements from one row of the logits to the next. Tensor cores are fed from rows that begin at multiples of 16 bytes, best of 128, and
  // vocabularies are often odd: GPT-2's has 50257 words. So are products of bf16 on the CPU.
  std::int64_t pitch() const {
    const std::int64_t step = target == kernels::Target::gpu ? 64 : scores != type ? 32 : 1;
    return (classes + step - 1) / step * step;
  }
};

// As many rows as have logits of `bytes` in f32, in chunks of about equal size and multiples of 16.
std::int64_t chunk_rows(std::int64_t n, std::int64_t classes, std::int64_t bytes = std::int64_t{64} << 20);

// REQUIRES that inference accepted it, and n, k, classes > 0.
Result<Kernel> prepare_linear_head(const std::string& name, const LinearHead& head);

}  // namespace gradloom
