// What RNN, GRU, LSTM and their gradient row share: the layer as kernels see it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/ops/products/matrix_product.h"
#include "kernels/launcher.h"

namespace gradloom {

// Dims of a layer; symbolic ones below 0. layout 0: x [steps, batch, inputs], 1: x [batch, steps, inputs].
struct RecurrentShape {
  std::int64_t directions, steps, batch, inputs, hidden;
  std::int64_t gates, slots;  // as in kernels::RecurrentCell
  bool batch_first;
};
// kind: "RNN", "GRU" or "LSTM"; r: the recurrent weights [directions, gates * hidden, hidden].
Result<RecurrentShape> recurrent_shape(const std::string& kind, const Attrs& attrs, const Shape& x,
                                       const Shape& r);

// One cell per direction, without pointers; the strides of x count gates * hidden per position. Every dim
// must be known.
Result<std::vector<kernels::RecurrentCell>> recurrent_cells(const std::string& kind, const Attrs& attrs,
                                                            DType dtype, const RecurrentShape& shape);

// m x n sums over k of rows `a_row` apart, B with strides, into rows `c_row` apart.
kernels::MatMulDesc slice_product(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k,
                                  std::int64_t a_row, std::int64_t b_row, std::int64_t b_col,
                                  std::int64_t c_row, bool accumulate = false);
// A product with the same B in every step: packed before the first, where there are enough for it to pay.
kernels::MatMulDesc in_every_step(kernels::MatMulDesc desc, std::int64_t steps);

}  // namespace gradloom
