// C[b] = activation(alpha * A[b] B[b] + bias + (accumulate ? C[b] : 0) + addend[b]), batched, any strides: the product
// for devices without a library and for layouts that no library takes; and what comes after a library's
// product where that has not this epilogue. A: [m, k], B: [k, n], C: [m, n], bias: [n]. f16 and bf16 on matrix
// units (half_product.h), f32 and f64 as tiles in shared memory (tile_product.h); sums are float, of f64 double. Products with few tiles and a long k
// (gradients of weights) are cut along k when the workspace is there: slices of a length that the shape
// decides leave their sums in the workspace [slices, batch, m, n], and a second kernel adds them in order.
#include "kernels/gpu/half_product.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/params.h"
#include "kernels/gpu/tile_product.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr int kThreads = kTileThreads;

struct Matrices {
  int batch_rank;
  long long batch_dims[kEwMaxRank], a_batch[kEwMaxRank], b_batch[kEwMaxRank], c_batch[kEwMaxRank];
  long long batches, m, n, k, a_row, a_col, b_row, b_col, c_row, c_col;
  double alpha;
  Activation activation;
  bool accumulate, wide_c;
  const void *a, *b, *bias, *addend;
  void *c, *aux, *partial;  // partial: null when there is one slice
};

struct Offsets {
  long long a = 0, b = 0, c = 0;
};
GRADLOOM_DEVICE Offsets offsets_of(const Matrices& p, long long batch) {
  Offsets at;
  for (int d = p.batch_rank - 1; d >= 0; --d) {
    const long long rest = batch / p.batch_dims[d], index = batch - rest * p.batch_dims[d];
    at.a += index * p.a_batch[d];
    at.b += index * p.b_batch[d];
    at.c += index * p.c_batch[d];
    batch = rest;
  }
  return at;
}

// As in kernels/elementwise.def.
template <class A>
GRADLOOM_DEVICE A activated(Activation activation, A a) {
  switch (activation) {
    case Activation::relu: return max(a, A(0));
    case Activation::gelu_erf: return gelu(a);
    case Activation::gelu_tanh: return gelu_tanh(a);
    default: return a;
  }
}

// Element `at` of C, or of what is laid out as C, which may be wider than A and B.
template <class T>
GRADLOOM_DEVICE Accum<T> c_value(const Matrices& p, const void* c, long long at) {
  if (p.wide_c) return static_cast<const Accum<T>*>(c)[at];
  return to_accum(static_cast<const T*>(c)[at]);
}
template <class T>
GRADLOOM_DEVICE void set_c(const Matrices& p, long long at, Accum<T> value) {
  if (p.wide_c)
    static_cast<Accum<T>*>(p.c)[at] = value;
  else
    static_cast<T*>(p.c)[at] = from_accum<T>(value);
}

// Bias, activation and aux of the result at `at`, elements from the first, of column `col`.
template <class T>
GRADLOOM_DEVICE void finish(const Matrices& p, long long at, long long col, Accum<T> value) {
  using A = Accum<T>;
  T* const aux = static_cast<T*>(p.aux);
  if (p.bias != nullptr) value += to_accum(static_cast<const T*>(p.bias)[col]);
  if (p.activation == Activation::gelu_tanh_grad) {
    value *= gelu_tanh_slope<A>(to_accum(aux[at]));
  } else {
    if (aux != nullptr) aux[at] = from_accum<T>(value);
    value = activated(p.activation, value);
  }
  set_c<T>(p, at, value);
}

template <class T>
GRADLOOM_DEVICE void put(const Matrices& p, long long c_offset, long long row, long long col, Accum<T> sum) {
  const long long at = c_offset + row * p.c_row + col * p.c_col;
  Accum<T> value = Accum<T>(p.alpha) * sum;
  if (p.accumulate) value += c_value<T>(p, p.c, at);
  if (p.addend != nullptr) value += c_value<T>(p, p.addend, at);
  finish<T>(p, at, col, value);
}

template <class T, class Shape, bool a_depth_first, bool b_depth_first>
__global__ void __launch_bounds__(kThreads, 2) product_kernel(Matrices params, TileGrid grid) {
  const Matrices& p = first_param(params);
  using A = Accum<T>;
  const TilePlace at = tile_place<Shape>(grid);
  const Offsets offsets = offsets_of(p, at.product);
  const StridedOperand<T, a_depth_first> a{static_cast<const T*>(p.a) + offsets.a, p.m, p.a_row, p.a_col};
  const StridedOperand<T, b_depth_first> b{static_cast<const T*>(p.b) + offsets.b, p.n, p.b_col, p.b_row};
  const long long begin = at.slice * grid.length, end = min(begin + grid.length, p.k);
  A sums[Shape::kRows][Shape::kCols];
  tile_product<Shape>(a, b, at.row, at.col, begin, end, sums);
  A* const partial = static_cast<A*>(p.partial);
  for_results<Shape>(sums, at.row, at.col, p.m, p.n, [&](long long row, long long col, A sum) {
    if (partial == nullptr) return put<T>(p, offsets.c, row, col, sum);
    partial[((at.slice * p.batches + at.product) * p.m + row) * p.n + col] = sum;
  });
}

// Which operands' rows in memory, along the sums or across them, are whole packs at their boundaries.
struct HalfPacks {
  bool a, b;
};
struct HalfTile {
  static constexpr int kM = kSide, kN = kSide;
};

template <class T, bool a_turned, bool b_turned>
__global__ void __launch_bounds__(kHalfThreads)
    half_product_kernel(Matrices params, TileGrid grid, HalfPacks packs) {
  const Matrices& p = first_param(params);
  alignas(16) __shared__ HalfStage<T> staged;
  const TilePlace at = tile_place<HalfTile>(grid);
  const Offsets offsets = offsets_of(p, at.product);
  const T* const from_a = static_cast<const T*>(p.a) + offsets.a;
  const T* const from_b = static_cast<const T*>(p.b) + offsets.b;
  const HalfOperand<T, a_turned> a{
      {from_a, a_turned ? p.a_col : p.a_row, a_turned ? p.a_row : p.a_col, 0, 0, packs.a}, p.m};
  const HalfOperand<T, b_turned> b{
      {from_b, b_turned ? p.b_row : p.b_col, b_turned ? p.b_col : p.b_row, 0, 0, packs.b}, p.n};
  const long long begin = at.slice * grid.length, end = min(begin + grid.length, p.k);
  HalfSums sums = {};
  half_sums(a, b, at.row, at.col, begin, end, staged, sums);
  float* const partial = static_cast<float*>(p.partial);
  for_half_results(sums, at.row, at.col, p.m, p.n, [&](long long row, long long col, float sum) {
    if (partial == nullptr) return put<T>(p, offsets.c, row, col, sum);
    partial[((at.slice * p.batches + at.product) * p.m + row) * p.n + col] = sum;
  });
}

// Adds the slices of one result per thread.
template <class T>
__global__ void join_kernel(Matrices p, long long slices) {
  using A = Accum<T>;
  const long long i = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x,
                  results = p.batches * p.m * p.n;
  if (i >= results) return;
  const A* const partial = static_cast<const A*>(p.partial);
  A sum = partial[i];
  for (long long slice = 1; slice < slices; ++slice) sum += partial[slice * results + i];
  const long long line = i / p.n, batch = line / p.m;
  put<T>(p, offsets_of(p, batch).c, line - batch * p.m, i - line * p.n, sum);
}

// One result per thread, which a library left in C.
template <class T>
__global__ void epilogue_kernel(Matrices p) {
  const long long i = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= p.batches * p.m * p.n) return;
  const long long line = i / p.n, batch = line / p.m, col = i - line * p.n;
  const long long at = offsets_of(p, batch).c + (line - batch * p.m) * p.c_row + col * p.c_col;
  finish<T>(p, at, col, c_value<T>(p, p.c, at));
}

long long magnitude(long long v) { return v < 0 ? -v : v; }

template <class T, class Shape>
void multiply(const Matrices& p, const ProductCut& cut, Stream stream) {
  const TileGrid grid{ceil_div(p.m, Shape::kM), ceil_div(p.n, Shape::kN), cut.slices, cut.length};
  const dim3 blocks{unsigned(grid.blocks(p.batches))}, block(kThreads);
  const bool a_depth_first = magnitude(p.a_col) <= magnitude(p.a_row),
             b_depth_first = magnitude(p.b_row) < magnitude(p.b_col);
  if (a_depth_first && b_depth_first)
    return launch(stream, product_kernel<T, Shape, true, true>, blocks, block, 0, p, grid);
  if (a_depth_first) return launch(stream, product_kernel<T, Shape, true, false>, blocks, block, 0, p, grid);
  if (b_depth_first) return launch(stream, product_kernel<T, Shape, false, true>, blocks, block, 0, p, grid);
  launch(stream, product_kernel<T, Shape, false, false>, blocks, block, 0, p, grid);
}

template <class T>
void multiply_halves(const Matrices& p, const ProductCut& cut, Stream stream) {
  const TileGrid grid{ceil_div(p.m, kSide), ceil_div(p.n, kSide), cut.slices, cut.length};
  const dim3 blocks{unsigned(grid.blocks(p.batches))}, block(kHalfThreads);
  const bool a_turned = magnitude(p.a_col) > magnitude(p.a_row),
             b_turned = magnitude(p.b_row) >= magnitude(p.b_col);
  const int rank = p.batch_rank;
  const HalfPacks packs{a_turned ? whole_packs<T>(p.a, p.m, rank, p.a_batch, p.a_col, p.a_row)
                                 : whole_packs<T>(p.a, p.k, rank, p.a_batch, p.a_row, p.a_col),
                        b_turned ? whole_packs<T>(p.b, p.n, rank, p.b_batch, p.b_row, p.b_col)
                                 : whole_packs<T>(p.b, p.k, rank, p.b_batch, p.b_col, p.b_row)};
  const auto kernel =
      a_turned ? (b_turned ? half_product_kernel<T, true, true> : half_product_kernel<T, true, false>)
               : (b_turned ? half_product_kernel<T, false, true> : half_product_kernel<T, false, false>);
  launch(stream, kernel, blocks, block, 0, p, grid, packs);
}

Matrices matrices_of(const GemmArgs& args) {
  Matrices p{};
  p.batch_rank = args.batch_rank;
  p.batches = 1;
  for (int d = 0; d < args.batch_rank; ++d) {
    p.batches *= args.batch_dims[d];
    p.batch_dims[d] = args.batch_dims[d];
    p.a_batch[d] = args.a_batch[d];
    p.b_batch[d] = args.b_batch[d];
    p.c_batch[d] = args.c_batch[d];
  }
  p.m = args.m;
  p.n = args.n;
  p.k = args.k;
  p.a_row = args.a_row;
  p.a_col = args.a_col;
  p.b_row = args.b_row;
  p.b_col = args.b_col;
  p.c_row = args.c_row;
  p.c_col = args.c_col;
  p.alpha = args.alpha;
  p.activation = args.activation;
  p.accumulate = args.accumulate;
  p.wide_c = args.wide_c;
  p.a = args.a;
  p.b = args.b;
  p.bias = args.bias;
  p.addend = args.addend;
  p.c = args.c;
  p.aux = args.aux;
  return p;
}

// The workspace has served the product by then.
void sum_operand(const GemmArgs& args, Stream stream) {
  if (args.sums_of == GemmOperand::none) return;
  const bool of_a = args.sums_of == GemmOperand::a;
  reduce({args.dtype, Reduction::sum, 1, args.k, of_a ? args.m : args.n, of_a ? args.a : args.b, args.sums,
          args.workspace},
         stream);
}

template <class T>
void product(const GemmArgs& args, Stream stream) {
  Matrices p = matrices_of(args);
  const long long results = p.batches * p.m * p.n;
  if (results == 0) return;
  ProductCut cut = product_cut(p.batches, p.m, p.n, p.k, args.dtype);
  const std::size_t needed = product_bytes(cut, p.batches, p.m, p.n, args.dtype);
  if (args.workspace == nullptr || args.workspace_bytes < needed) cut = {cut.large_tiles, 1, p.k};
  p.partial = cut.slices > 1 ? args.workspace : nullptr;
  if constexpr (sizeof(T) == 2) {
    multiply_halves<T>(p, cut, stream);
  } else if constexpr (sizeof(T) == sizeof(double)) {
    multiply<T, TileShape<double, 64, 64, 8>>(p, cut, stream);
  } else if (cut.large_tiles) {
    multiply<T, TileShape<float, 128, 128, 8>>(p, cut, stream);
  } else {
    multiply<T, TileShape<float, 64, 64, 16>>(p, cut, stream);
  }
  if (cut.slices > 1)
    launch(stream, join_kernel<T>, dim3(unsigned(ceil_div(results, kThreads))), dim3(kThreads), 0, p,
           cut.slices);
}

template <class T>
void epilogue(const GemmArgs& args, Stream stream) {
  const Matrices p = matrices_of(args);
  const long long results = p.batches * p.m * p.n;
  if (results == 0 || (p.bias == nullptr && p.activation == Activation::none)) return;
  launch(stream, epilogue_kernel<T>, dim3(unsigned(ceil_div(results, kThreads))), dim3(kThreads), 0, p);
}

}  // namespace

void gemm(const GemmArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, product, args, stream);
  sum_operand(args, stream);
}

void gemm_epilogue(const GemmArgs& args, Stream stream) {
  GRADLOOM_GPU_FLOATS(args.dtype, epilogue, args, stream);
  sum_operand(args, stream);
}

}  // namespace gradloom::kernels::gpu
