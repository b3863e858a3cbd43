// Adafactor (its formula: kernels/optimizers.def) for many tensors. A factored parameter of shape [.., r, c] is a list of
// matrices [r, c], whose second moment is kept as means over rows and over columns. A batch of tensors takes up to six
// launches:
//   1 means of rows: 32 threads a row         2 means of columns: a block per strip of 32 columns
//   3 the mean over a matrix of its rows' means
//   4 sums of squares of update and parameter, per piece; the second moment of what is not factored
//   5 from them the rate of every tensor      6 the update
// The gradient is read four times: the update itself, as large as the parameter, is kept nowhere. Half types are computed in
// float, from the second moments as they are stored.
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/optimizer_batch.h"
#include "kernels/gpu/params.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr int kLanes = 32, kRowsPerBlock = kOptimizerThreads / kLanes;

enum List : int {
  kGrad,
  kParam,
  kState1,
  kState2,
  kState3,
  kParamOut,
  kState1Out,
  kState2Out,
  kState3Out,
  kCopyOrKey,
  kListCount
};

// A batch with what factored tensors add to it. Row k of all is of the tensor t with first_row[t] <= k < first_row[t + 1].
struct Tensors : Batch<kAdafactorBatch, kListCount> {
  long long rows[kCapacity], columns[kCapacity];
  long long first_row[kCapacity + 1], first_strip[kCapacity + 1], first_matrix[kCapacity + 1];
  long long matrices_before;  // of the batches before this one
};
static_assert(sizeof(Tensors) < 3840);

// Workspace: squares of parameters and of updates by piece; by tensor, of the update and of decay, the rate; means by matrix.
struct Space {
  double *param_squares, *update_squares, *factor, *shrink, *means;
};

struct Settings {
  double beta1, epsilon, epsilon2, weight_decay, decay_rate, clip_threshold;
  bool scale_parameter, relative_step, warmup_init, factored;
  LowParams low;
  StepInputs inputs;
};

template <class T>
GRADLOOM_DEVICE const T* list_of(const Tensors& batch, List list, int t) {
  return static_cast<const T*>(batch.lists[list][t]);
}
template <class T>
GRADLOOM_DEVICE T* out_of(const Tensors& batch, List list, int t) {
  return static_cast<T*>(const_cast<void*>(batch.lists[list][t]));
}

template <class T>
GRADLOOM_DEVICE Accum<T> gradient_at(const Tensors& batch, int t, long long at) {
  return to_accum(element_at<T>({batch.lists[kGrad][t], batch.types[t]}, at));
}

template <class A>
struct Step {
  A scale, limit;            // of gradients: their factor, then their largest size (0: any)
  double keep, take, floor;  // of second moments; floor: what is added to squares
  bool first;                // states may be anything

  GRADLOOM_DEVICE A gradient(A from) const {
    const A g = from * scale;
    return limit > A(0) ? clipped(g, limit) : g;
  }
  GRADLOOM_DEVICE A next_moment(A old, A square) const {
    return A(keep * (first ? 0.0 : double(old)) + take * (double(square) + floor));
  }
  // A moment is never below what was added to it, but as it is stored it may be 0.
  GRADLOOM_DEVICE A root(A moment) const { return sqrt(moment < A(floor) ? A(floor) : moment); }
};

// Every thread must call it: one computes the power.
template <class T>
GRADLOOM_DEVICE Step<Accum<T>> step_of(const Settings& s) {
  using A = Accum<T>;
  __shared__ Step<A> shared;
  if (threadIdx.x == 0) {
    const long long step = *s.inputs.step;
    const double take = step <= 1 ? 1.0 : pow(double(step), s.decay_rate);
    const A scale = unsigned_scale<T>(s.inputs);
    shared = {
        s.inputs.maximize ? -scale : scale, A(s.inputs.clip_value), 1.0 - take, take, s.epsilon, step <= 1};
  }
  __syncthreads();
  return shared;
}

GRADLOOM_DEVICE double lanes_sum(double v) {
  for (int apart = kLanes / 2; apart > 0; apart /= 2) v += shuffle_xor(v, apart);
  return v;
}

// ---- second moments -------------------------------------------------------------------------------------------------------------

template <class T>
__global__ void row_means_kernel(Tensors batch, Settings s) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const Step<A> step = step_of<T>(s);
  const int lane = int(threadIdx.x) % kLanes;
  const long long number = static_cast<long long>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kLanes;
  const bool inside = number < batch.first_row[batch.count];
  const int t = inside ? tensor_of(batch.first_row, batch.count, number) : 0;
  const long long row = number - batch.first_row[t], columns = inside ? batch.columns[t] : 0;
  A squares = 0;
  for (long long c = lane; c < columns; c += kLanes) {
    const A g = step.gradient(gradient_at<T>(batch, t, row * columns + c));
    squares += g * g;
  }
  const double sum = lanes_sum(double(squares));
  if (!inside || lane != 0) return;
  const A old = to_accum(list_of<T>(batch, kState1, t)[row]);
  out_of<T>(batch, kState1Out, t)[row] = from_accum<T>(step.next_moment(old, A(sum / double(columns))));
}

template <class T>
__global__ void column_means_kernel(Tensors batch, Settings s) {
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const Step<A> step = step_of<T>(s);
  const int lane = int(threadIdx.x) % kLanes, walker = int(threadIdx.x) / kLanes;
  const int t = tensor_of(batch.first_strip, batch.count, static_cast<long long>(blockIdx.x));
  const long long rows = batch.rows[t], columns = batch.columns[t], strips = ceil_div(columns, kLanes),
                  strip = static_cast<long long>(blockIdx.x) - batch.first_strip[t], matrix = strip / strips,
                  c = strip % strips * kLanes + lane;
  A squares = 0;
  if (c < columns) {
    const long long first = matrix * rows * columns + c;
    for (long long r = walker; r < rows; r += kRowsPerBlock) {
      const A g = step.gradient(gradient_at<T>(batch, t, first + r * columns));
      squares += g * g;
    }
  }
  __shared__ double sums[kRowsPerBlock][kLanes];
  sums[walker][lane] = double(squares);
  __syncthreads();
  if (walker != 0 || c >= columns) return;
  double sum = 0;
  for (int w = 0; w < kRowsPerBlock; ++w) sum += sums[w][lane];
  const long long at = matrix * columns + c;
  const A old = to_accum(list_of<T>(batch, kState2, t)[at]);
  out_of<T>(batch, kState2Out, t)[at] = from_accum<T>(step.next_moment(old, A(sum / double(rows))));
}

template <class T>
__global__ void matrix_means_kernel(Tensors batch, Settings s, Space space) {
  if (skipped(s.inputs)) return;
  const int lane = int(threadIdx.x) % kLanes;
  const long long number = static_cast<long long>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kLanes;
  const bool inside = number < batch.first_matrix[batch.count];
  const int t = inside ? tensor_of(batch.first_matrix, batch.count, number) : 0;
  const long long rows = inside ? batch.rows[t] : 0;
  const T* const moments = out_of<T>(batch, kState1Out, t) + (number - batch.first_matrix[t]) * rows;
  double sum = 0;
  for (long long r = lane; r < rows; r += kLanes) sum += double(to_accum(moments[r]));
  sum = lanes_sum(sum);
  if (inside && lane == 0) space.means[batch.matrices_before + number] = sum / double(rows);
}

// ---- updates --------------------------------------------------------------------------------------------------------------------

// The piece of a block.
struct Place {
  int t;
  long long begin, count;
};
GRADLOOM_DEVICE Place place_of(const Tensors& batch) {
  const int t = tensor_of(batch.first, batch.count, int(blockIdx.x));
  const long long begin = (static_cast<long long>(blockIdx.x) - batch.first[t]) * kTensorPiece,
                  left = batch.sizes[t] - begin;
  return {t, begin, left < kTensorPiece ? left : kTensorPiece};
}

// Gradients over the roots of their second moments, for the group at element `at` of tensor t, of which there are `left`.
template <class T>
GRADLOOM_DEVICE Group<T> updates_of(const Tensors& batch, const Settings& s, const Space& space,
                                    const Step<Accum<T>>& step, int t, long long at, long long left) {
  using A = Accum<T>;
  constexpr int kCount = Group<T>::kCount;
  const LowTensor grad{batch.lists[kGrad][t], batch.types[t]};
  const bool packed = (reinterpret_cast<unsigned long long>(grad.data) + at * sizeof(T)) % 16 == 0;
  Group<T> updates = to_group(fetch_any<T>(grad, at, left, packed));
  const int count = left < kCount ? int(left) : kCount;
  const T* const moments = out_of<T>(batch, kState1Out, t);
  if (!s.factored) {
    for (int j = 0; j < count; ++j)
      updates.v[j] = step.gradient(updates.v[j]) / step.root(to_accum(moments[at + j]));
    return updates;
  }
  const long long rows = batch.rows[t], columns = batch.columns[t];
  const T* const of_columns = out_of<T>(batch, kState2Out, t);
  long long row = at / columns, column = at - row * columns, matrix = 0;
  A of_row = 0;
  for (int j = 0; j < count; ++j) {
    if (j == 0 || column == columns) {
      if (j > 0) ++row, column = 0;
      matrix = row / rows;
      const double mean = space.means[batch.matrices_before + batch.first_matrix[t] + matrix];
      of_row = A(sqrt(mean)) / step.root(to_accum(moments[row]));
    }
    updates.v[j] =
        step.gradient(updates.v[j]) * of_row / step.root(to_accum(of_columns[matrix * columns + column]));
    ++column;
  }
  return updates;
}

template <class T>
__global__ void squares_kernel(Tensors params, Settings s, Space space) {
  const Tensors& batch = first_param(params);
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const Step<A> step = step_of<T>(s);
  const Place place = place_of(batch);
  const LowTensor param = s.low.parameter<T>(batch.lists[kParam][place.t]);
  A param_square = 0, update_square = 0;
  for_groups<T>(place.count, [&](long long i, long long left) {
    const int count = left < Group<T>::kCount ? int(left) : Group<T>::kCount;
    const long long at = place.begin + i;
    if (!s.factored) {
      for (int j = 0; j < count; ++j) {
        const A g = step.gradient(gradient_at<T>(batch, place.t, at + j));
        const A old = to_accum(list_of<T>(batch, kState1, place.t)[at + j]);
        out_of<T>(batch, kState1Out, place.t)[at + j] = from_accum<T>(step.next_moment(old, g * g));
      }
    }
    const Group<T> updates = updates_of<T>(batch, s, space, step, place.t, at, left);
    for (int j = 0; j < count; ++j) {
      const A p = to_accum(element_at<T>(param, at + j));
      param_square += p * p;
      update_square += updates.v[j] * updates.v[j];
    }
  });
  const double p2 = block_reduce(double(param_square), Sum(), 0.0),
               u2 = block_reduce(double(update_square), Sum(), 0.0);
  if (threadIdx.x == 0) {
    space.param_squares[batch.first_piece + blockIdx.x] = p2;
    space.update_squares[batch.first_piece + blockIdx.x] = u2;
  }
}

// One block per tensor.
__global__ void rates_kernel(Tensors batch, Settings s, Space space) {
  const int t = int(blockIdx.x);
  const long long first = batch.first_piece + batch.first[t], pieces = batch.first[t + 1] - batch.first[t];
  const double elements = double(batch.sizes[t]), p2 = sum_pieces(space.param_squares + first, pieces),
               u2 = sum_pieces(space.update_squares + first, pieces);
  if (threadIdx.x != 0) return;
  const double step = double(*s.inputs.step), most = s.warmup_init ? 1e-6 * step : 1e-2,
               falling = 1.0 / sqrt(step);
  double rate = learning_rate(s.inputs);
  if (s.relative_step) rate *= most < falling ? most : falling;
  const double param_size = sqrt(p2 / elements), over = sqrt(u2 / elements) / s.clip_threshold;
  if (s.scale_parameter) rate *= param_size < s.epsilon2 ? s.epsilon2 : param_size;
  space.factor[batch.first_tensor + t] = over <= 1.0 ? rate : rate / over;
  space.shrink[batch.first_tensor + t] = 1.0 - rate * s.weight_decay;
}

template <class T>
__global__ void apply_kernel(Tensors params, Settings s, Space space) {
  const Tensors& batch = first_param(params);
  if (skipped(s.inputs)) return;
  using A = Accum<T>;
  const Step<A> step = step_of<T>(s);
  const Place place = place_of(batch);
  const A factor = A(space.factor[batch.first_tensor + place.t]),
          shrink = A(space.shrink[batch.first_tensor + place.t]), beta1 = A(s.beta1),
          one_minus_beta1 = A(1.0 - s.beta1);
  const LowTensor param = s.low.parameter<T>(batch.lists[kParam][place.t]);
  const T* const old = list_of<T>(batch, kState3, place.t);
  const LowParameter<T> param_out =
      s.low.parameter_out<T>(batch.lists[kParamOut][place.t], batch.lists[kCopyOrKey][place.t]);
  T* const momentum = out_of<T>(batch, kState3Out, place.t);
  const bool packed = aligned16(param.data) && aligned16(param_out.data);
  for_groups<T>(place.count, [&](long long i, long long left) {
    const int count = left < Group<T>::kCount ? int(left) : Group<T>::kCount;
    const Pack<T> param_pack = fetch_any<T>(param, place.begin + i, left, packed);
    const Group<T> updates = updates_of<T>(batch, s, space, step, place.t, place.begin + i, left);
    Group<T> next = to_group(param_pack);
    for (int j = 0; j < count; ++j) {
      A update = updates.v[j] * factor;
      if (momentum != nullptr) {
        const long long at = place.begin + i + j;
        const A before = step.first ? A(0) : to_accum(old[at]);
        update = beta1 * before + one_minus_beta1 * update;
        momentum[at] = from_accum<T>(update);
      }
      next.v[j] = next.v[j] * shrink - update;
    }
    param_out.store(place.begin + i, next, left, packed);
  });
}

// ---- launchers ------------------------------------------------------------------------------------------------------------------

// Counts the rows, strips and matrices of the tensors of a batch.
void count_parts(Tensors& batch, const OptimizerArgs& args) {
  for (int t = 0; t < batch.count; ++t) {
    const long long rows = args.rows[batch.first_tensor + t], columns = args.columns[batch.first_tensor + t];
    const long long matrices = batch.sizes[t] / (rows * columns);
    batch.rows[t] = rows;
    batch.columns[t] = columns;
    batch.first_row[t + 1] = batch.first_row[t] + matrices * rows;
    batch.first_strip[t + 1] = batch.first_strip[t] + matrices * ceil_div(columns, kLanes);
    batch.first_matrix[t + 1] = batch.first_matrix[t] + matrices;
  }
}

template <class T>
void update(const OptimizerArgs& args, Stream stream) {
  const Settings s{args.beta1,       args.epsilon,        args.epsilon2,        args.weight_decay,
                   args.decay_rate,  args.clip_threshold, args.scale_parameter, args.relative_step,
                   args.warmup_init, args.factored,       low_params(args),     step_inputs(args)};
  const void* const* const lists[kListCount] = {
      args.grad,      args.param,      args.state1,     args.state2,     args.state3,
      args.param_out, args.state1_out, args.state2_out, args.state3_out, nullptr};
  const long long pieces = tensor_pieces(args.count, args.sizes);
  double* const workspace = static_cast<double*>(args.workspace);
  double* const by_tensor = workspace + 2 * pieces;
  const Space space{workspace, workspace + pieces, by_tensor, by_tensor + args.count,
                    by_tensor + 2 * args.count};
  long long matrices = 0;
  for_batches<Tensors>(
      args.count, args.sizes, lists, args.dtype, args.grad_types, [&](Tensors& batch, int blocks) {
        add_copies_or_keys(batch, kCopyOrKey, args);
        const dim3 block(kOptimizerThreads), grid{unsigned(blocks)};
        if (args.factored) {
          batch.matrices_before = matrices;
          count_parts(batch, args);
          const auto groups = [](long long n) { return dim3(unsigned(ceil_div(n, kRowsPerBlock))); };
          launch(stream, row_means_kernel<T>, groups(batch.first_row[batch.count]), block, 0, batch, s);
          launch(stream, column_means_kernel<T>, dim3(unsigned(batch.first_strip[batch.count])), block, 0,
                 batch, s);
          launch(stream, matrix_means_kernel<T>, groups(batch.first_matrix[batch.count]), block, 0, batch, s,
                 space);
          matrices += batch.first_matrix[batch.count];
        }
        launch(stream, squares_kernel<T>, grid, block, 0, batch, s, space);
        launch(stream, rates_kernel, dim3(unsigned(batch.count)), block, 0, batch, s, space);
        launch(stream, apply_kernel<T>, grid, block, 0, batch, s, space);
      });
}

}  // namespace

void adafactor(const OptimizerArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, update, args, stream);
}

}  // namespace gradloom::kernels::gpu
