// Adafactor (its formula: kernels/optimizers.def). A factored parameter of shape [.., r, c] is a list of matrices [r, c],
// whose second moment is kept as means over rows and over columns. Five passes over all tensors:
//   1 means of rows
//   2 means of columns, a strip of them at a time
//   3 the mean over a matrix of its rows' means
//   4 sums of squares of update and parameter, per piece; the second moment of what is not factored
//   5 the update, whose size those sums decide
// The gradient is read four times: the update itself, as large as the parameter, is kept nowhere.
#include "kernels/cpu/optimizer_pieces.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

constexpr i64 kColumns = 128;  // of a strip

// What a step reads of its arguments.
template <class T>
struct Step {
  T scale, limit;            // of gradients: their factor, then their largest size
  double keep, take, floor;  // of second moments; floor: what is added to squares
  T least;                   // that a second moment can be
  bool first;                // states may be anything
};

template <class T>
Step<T> step_of(const OptimizerArgs& args) {
  const bool first = *args.step <= 1;
  const double take = first ? 1.0 : __builtin_pow(double(*args.step), args.decay_rate);
  T scale = args.grad_scale != nullptr ? *static_cast<const T*>(args.grad_scale) : T(1);
  if (args.maximize) scale = -scale;
  return {scale,        args.clip_value > 0 ? T(args.clip_value) : T(__builtin_inf()),
          1.0 - take,   take,
          args.epsilon, T(args.epsilon),
          first};
}

// The gradient of an element or of a register of them. A NaN stays one.
template <class T, class V>
GRADLOOM_INLINE V gradient(const Step<T>& s, const V& from) {
  const V g = from * s.scale, most = V{} + s.limit, least = V{} - s.limit;
  const V below = g > most ? most : g;
  return below < least ? least : below;
}

// The next second moment from a gradient's square or from a mean of squares.
template <class T>
GRADLOOM_INLINE T next_moment(const Step<T>& s, T old, double square) {
  return T(s.keep * (s.first ? 0.0 : double(old)) + s.take * (square + s.floor));
}

i64 matrices_of(const OptimizerArgs& args, i64 t) { return args.sizes[t] / (args.rows[t] * args.columns[t]); }

template <class T>
void row_means(const OptimizerArgs& args, const Step<T>& s) {
  const auto rows_of = [&](i64 t) { return args.sizes[t] / args.columns[t]; };
  for_parts(args.count, args.sizes, 1, rows_of, [&](i64 t, i64 row, i64) {
    const i64 columns = args.columns[t];
    double squares = 0;
    for_row_parts(columns, [&](i64 begin, i64 count) {
      T held[kSumBlock];
      const T* const grad = gradients_at(args, t, row * columns + begin, count, held);
      squares += sum_of(grad, grad, count, [&](const auto& a, const auto&) {
        const auto g = gradient(s, a);
        return g * g;
      });
    });
    static_cast<T*>(args.state1_out[t])[row] =
        next_moment(s, static_cast<const T*>(args.state1[t])[row], squares / double(columns));
  });
}

template <class T>
void column_means(const OptimizerArgs& args, const Step<T>& s) {
  const auto strips_of = [&](i64 t) { return matrices_of(args, t) * blocks_of(args.columns[t], kColumns); };
  for_parts(args.count, args.sizes, 1, strips_of, [&](i64 t, i64 strip, i64) {
    const i64 rows = args.rows[t], columns = args.columns[t], strips = blocks_of(columns, kColumns);
    const i64 matrix = strip / strips, begin = strip % strips * kColumns,
              count = smaller(kColumns, columns - begin);
    double squares[kColumns] = {};
    for (i64 r = 0; r < rows; ++r) {
      T held[kColumns];
      const T* const grad = gradients_at(args, t, (matrix * rows + r) * columns + begin, count, held);
      for (i64 j = 0; j < count; ++j) {
        const T g = gradient(s, grad[j]);
        squares[j] += double(g * g);
      }
    }
    const T* const old = static_cast<const T*>(args.state2[t]) + matrix * columns + begin;
    T* const out = static_cast<T*>(args.state2_out[t]) + matrix * columns + begin;
    for (i64 j = 0; j < count; ++j) out[j] = next_moment(s, old[j], squares[j] / double(rows));
  });
}

// means: of the rows' means, by matrix; first_matrix: of each tensor.
template <class T>
void matrix_means(const OptimizerArgs& args, double* means, i64* first_matrix) {
  for (i64 t = 0, before = 0; t < args.count; ++t) {
    first_matrix[t] = before;
    before += matrices_of(args, t);
  }
  const auto parts_of = [&](i64 t) { return matrices_of(args, t); };
  for_parts(args.count, args.sizes, 1, parts_of, [&](i64 t, i64 matrix, i64 number) {
    const i64 rows = args.rows[t];
    means[number] = sum(static_cast<const T*>(args.state1_out[t]) + matrix * rows, rows) / double(rows);
  });
}

// The update of a piece before its size is known: the gradient over the root of the second moment.
template <class T>
GRADLOOM_INLINE void fill_updates(const OptimizerArgs& args, const Step<T>& s, const Piece& piece,
                                  const double* means, const i64* first_matrix, T* updates) {
  T held[kTensorPiece];
  const T* const grad = gradients_at(args, piece.tensor, piece.begin, piece.count, held);
  const auto floored = [&](T moment) { return moment < s.least ? s.least : moment; };
  if (!args.factored) {
    const T* const moments = output<T>(args.state1_out, piece);
    for (i64 i = 0; i < piece.count; ++i) updates[i] = gradient(s, grad[i]) / sqrt(floored(moments[i]));
    return;
  }
  const i64 t = piece.tensor, rows = args.rows[t], columns = args.columns[t];
  for (i64 i = 0; i < piece.count;) {  // by rows
    const i64 at = piece.begin + i, row = at / columns, column = at % columns, matrix = row / rows;
    const i64 count = smaller(columns - column, piece.count - i);
    const double mean = means[first_matrix[t] + matrix];
    const T of_row = T(1.0 / sqrt(double(floored(static_cast<const T*>(args.state1_out[t])[row])) / mean));
    const T* const of_columns = static_cast<const T*>(args.state2_out[t]) + matrix * columns + column;
    for (i64 j = 0; j < count; ++j)
      updates[i + j] = gradient(s, grad[i + j]) * of_row / sqrt(floored(of_columns[j]));
    i += count;
  }
}

template <class T>
void next_moments(const OptimizerArgs& args, const Step<T>& s, const Piece& piece) {
  T held[kTensorPiece];
  const T* const grad = gradients_at(args, piece.tensor, piece.begin, piece.count, held);
  const T* const old = input<T>(args.state1, piece);
  T* const out = output<T>(args.state1_out, piece);
  for (i64 i = 0; i < piece.count; ++i) {
    const T g = gradient(s, grad[i]);
    out[i] = next_moment(s, old[i], double(g * g));
  }
}

// The rate of a step, of which the parameter's own size makes that of a tensor.
double step_rate(const OptimizerArgs& args) {
  const double lr = learning_rate(args), step = double(*args.step);
  if (!args.relative_step) return lr;
  const double most = args.warmup_init ? 1e-6 * step : 1e-2, falling = 1.0 / sqrt(step);
  return lr * (most < falling ? most : falling);
}

template <class T>
void update(const OptimizerArgs& args) {
  const Step<T> s = step_of<T>(args);
  double* const param_squares = static_cast<double*>(args.workspace);
  double* const update_squares = param_squares + pieces_of(args.count, args.sizes);
  i64* const first_matrix = reinterpret_cast<i64*>(update_squares + pieces_of(args.count, args.sizes));
  double* const means = reinterpret_cast<double*>(first_matrix + args.count);
  if (args.factored) {
    row_means(args, s);
    column_means(args, s);
    matrix_means<T>(args, means, first_matrix);
  }
  for_pieces(args.count, args.sizes, 8, [&](i64 number, const Piece& piece) {
    if (!args.factored) next_moments(args, s, piece);
    T updates[kTensorPiece];
    fill_updates(args, s, piece, means, first_matrix, updates);
    const auto square = [](const auto& a, const auto& b) { return a * b; };
    const Parameter<T> parameter(args, piece);
    const T* const param = parameter.from;
    param_squares[number] = sum_of(param, param, piece.count, square);
    update_squares[number] = sum_of(updates, updates, piece.count, square);
  });
  add_pieces(args.count, args.sizes, param_squares);
  add_pieces(args.count, args.sizes, update_squares);

  const double rate = step_rate(args);
  const T beta1 = T(args.beta1), one_minus_beta1 = T(1.0 - args.beta1);
  for_pieces(args.count, args.sizes, 8, [&](i64 number, const Piece& piece) {
    const i64 first = number - piece.begin / kTensorPiece;
    const double elements = double(args.sizes[piece.tensor]);
    const double param_size = sqrt(param_squares[first] / elements),
                 over = sqrt(update_squares[first] / elements) / args.clip_threshold;
    const double own = !args.scale_parameter        ? rate
                       : param_size < args.epsilon2 ? rate * args.epsilon2
                                                    : rate * param_size;
    // A NaN of a sum reaches the parameters, as it does in the others.
    const T factor = T(over <= 1.0 ? own : own / over), shrink = T(1.0 - own * args.weight_decay);
    T updates[kTensorPiece];
    fill_updates(args, s, piece, means, first_matrix, updates);
    const Parameter<T> parameter(args, piece);
    const T* const param = parameter.from;
    T* const param_out = parameter.to;
    if (args.state3_out != nullptr) {
      const T* const old = input<T>(args.state3, piece);
      T* const m = output<T>(args.state3_out, piece);
      for (i64 i = 0; i < piece.count; ++i) {
        m[i] = beta1 * (s.first ? T(0) : old[i]) + one_minus_beta1 * (updates[i] * factor);
        param_out[i] = param[i] * shrink - m[i];
      }
    } else {
      for (i64 i = 0; i < piece.count; ++i) param_out[i] = param[i] * shrink - updates[i] * factor;
    }
    parameter.finish(args, piece);
  });
}

}  // namespace

void adafactor(const OptimizerArgs& args) { GRADLOOM_FLOAT_DISPATCH(args.dtype, update, args); }

}  // namespace gradloom::kernels::GRADLOOM_ISA
