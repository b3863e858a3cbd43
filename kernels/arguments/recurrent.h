// Arguments of recurrent networks (conventions: kernels/arguments.h).
#pragma once

#include "kernels/types.h"

namespace gradloom::kernels {

// One step of a recurrent network, every element (item of the batch, hidden unit) by itself; the products are
// made before it. Gates in ONNX's order: rnn: i; gru: z r h; lstm: i o f c. gru_linear: linear_before_reset.
// (ONNX-22 RNN, GRU, LSTM)
enum class RecurrentKind : std::uint8_t { rnn, gru, gru_linear, lstm };
enum class RecurrentFunction : std::uint8_t {
  sigmoid,
  tanh,
  relu,
  affine,
  leaky_relu,
  thresholded_relu,
  scaled_tanh,
  hard_sigmoid,
  elu,
  softsign,
  softplus
};
struct RecurrentActivation {
  RecurrentFunction function;
  double alpha, beta;
};
struct RecurrentCell {
  DType dtype;
  RecurrentKind kind;
  bool reverse;                        // an item of length n is read from position n - 1 down
  bool coupled;                        // lstm: the forget gate is 1 - the input gate
  double clip;                         // of what activations get; infinite: none
  RecurrentActivation activations[3];  // f, g, h of the formulas
  std::int64_t steps, batch, hidden;
  std::int64_t gates, slots;  // per unit: of the products, and of what is kept for the gradient
  // From one position or item to the next, in elements: of what belongs to the input, and to the output.
  std::int64_t x_time, x_batch, y_time, y_batch;
  // [batch] or null: beyond its length an item keeps its state and its output is 0.
  const std::int32_t* lengths;
};
// part 1: the second half of a gru's step, after the product of slot 3 (r * h) with the recurrent weights of
// the hidden gate.
struct RecurrentStepArgs {
  RecurrentCell cell;
  std::int64_t step;
  int part;
  // x W^T: rows of gates * hidden (x_time, x_batch); h R^T: [batch, gates * hidden].
  const void *input, *product;
  const void *bias, *peepholes;  // [2, gates * hidden], [3, hidden] or null
  const void *h, *c;             // [batch, hidden], before the step
  void* kept;  // [batch, slots * hidden]: inputs of the activations; gru: slot 3 is r * h, or h R^T + bias
  void *h_next, *c_next, *y;  // y may be null
};
// dh, dc: in: of the states after the step; out: of those before it, without what comes through the products.
// gru: part 1 after the product of dkept's hidden gate with its recurrent weights (dreset: [batch, hidden]).
struct RecurrentStepGradArgs {
  RecurrentCell cell;
  std::int64_t step;
  int part;
  const void *dy, *peepholes, *kept, *h, *c, *c_next, *dreset;  // dy (y_time, y_batch) may be null
  void *dh, *dc;
  // Rows of gates * hidden: of `input` (x_time, x_batch), and of `product` [batch, ..].
  void *dinput, *dproduct;
};

}  // namespace gradloom::kernels

// clang-format off
// Its kernels: K(name, arguments).
#define GRADLOOM_RECURRENT_KERNELS(K) \
  K(recurrent_step, RecurrentStepArgs) K(recurrent_step_grad, RecurrentStepGradArgs)
// clang-format on
