// C = alpha * A B + bias (+ C), batched, any strides. Doubles: Tiles of C are independent parts; each
// packs the panels of A and B that it needs and runs a register-blocked micro kernel. The sum over k goes in
// blocks of fixed size, in order, so the bits do not depend on the number of threads.
#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

i64 batches_of(const GemmArgs& args) {
  i64 batch = 1;
  for (int d = 0; d < args.batch_rank; ++d) batch *= args.batch_dims[d];
  return batch;
}

// To the offsets of the operands, in elements, where the matrices of this number begin.
GRADLOOM_INLINE void add_batch(const GemmArgs& args, i64 number, i64& a, i64& b, i64& c) {
  for (int d = args.batch_rank - 1; d >= 0; --d) {
    const i64 index = number % args.batch_dims[d];
    number /= args.batch_dims[d];
    a += index * args.a_batch[d];
    b += index * args.b_batch[d];
    c += index * args.c_batch[d];
  }
}

#if defined(__AVX512F__)
typedef double Lanes __attribute__((vector_size(64)));
constexpr i64 kMr = 12, kNrVectors = 2;
#elif defined(__AVX2__)
typedef double Lanes __attribute__((vector_size(32)));
constexpr i64 kMr = 6, kNrVectors = 2;
#else
typedef double Lanes __attribute__((vector_size(16)));
constexpr i64 kMr = 4, kNrVectors = 2;
#endif
constexpr i64 kWidth = i64(sizeof(Lanes) / sizeof(double));
constexpr i64 kNr = kNrVectors * kWidth;
constexpr i64 kMc = 96, kNc = 192, kKc = 256;  // a tile of C and a block of k

struct Panels {
  alignas(64) double a[(kMc + kMr) * kKc];
  alignas(64) double b[(kNc + kNr) * kKc];
};

// A[rows, depth] -> panels of kMr rows: panel, k, row. Missing rows are zero.
void pack_a(const double* a, i64 row_stride, i64 col_stride, i64 rows, i64 depth, double* out) {
  for (i64 r0 = 0; r0 < rows; r0 += kMr) {
    const i64 height = smaller(kMr, rows - r0);
    for (i64 r = 0; r < kMr; ++r) {
      const double* const from = a + (r0 + r) * row_stride;
      if (r < height) {
        for (i64 k = 0; k < depth; ++k) out[k * kMr + r] = from[k * col_stride];
      } else {
        for (i64 k = 0; k < depth; ++k) out[k * kMr + r] = 0.0;
      }
    }
    out += kMr * depth;
  }
}

// B[depth, cols] -> panels of kNr columns: panel, k, column. Missing columns are zero.
void pack_b(const double* b, i64 row_stride, i64 col_stride, i64 depth, i64 cols, double* out) {
  for (i64 c0 = 0; c0 < cols; c0 += kNr) {
    const i64 width = smaller(kNr, cols - c0);
    if (col_stride == 1 && width == kNr) {
      for (i64 k = 0; k < depth; ++k)
        __builtin_memcpy(out + k * kNr, b + k * row_stride + c0, kNr * sizeof(double));
    } else {
      for (i64 c = 0; c < kNr; ++c) {
        const double* const from = b + (c0 + c) * col_stride;
        for (i64 k = 0; k < depth; ++k) out[k * kNr + c] = c < width ? from[k * row_stride] : 0.0;
      }
    }
    out += kNr * depth;
  }
}

// out[kMr][kNr] = panel of A times panel of B.
GRADLOOM_INLINE void micro_kernel(const double* a, const double* b, i64 depth, double* out) {
  Lanes sum[kMr][kNrVectors] = {};
  for (i64 k = 0; k < depth; ++k) {
    Lanes column[kNrVectors];
    __builtin_memcpy(column, b + k * kNr, sizeof(column));
#pragma GCC unroll 12
    for (i64 r = 0; r < kMr; ++r) {
      const double value = a[k * kMr + r];
#pragma GCC unroll 2
      for (i64 v = 0; v < kNrVectors; ++v) sum[r][v] += value * column[v];
    }
  }
  __builtin_memcpy(out, sum, sizeof(sum));
}

// One tile of C, rows x cols at (row, col), of one matrix.
void compute_tile(const GemmArgs& args, const double* a, const double* b, double* c, i64 row, i64 col,
                  Panels& panels) {
  const i64 rows = smaller(kMc, args.m - row), cols = smaller(kNc, args.n - col);
  const i64 depth_blocks = larger(1, ceil_div(args.k, kKc));
  for (i64 block = 0; block < depth_blocks; ++block) {
    const i64 k0 = block * kKc, depth = smaller(kKc, args.k - k0);
    const bool first = block == 0, last = block + 1 == depth_blocks;
    pack_a(a + row * args.a_row + k0 * args.a_col, args.a_row, args.a_col, rows, depth, panels.a);
    pack_b(b + k0 * args.b_row + col * args.b_col, args.b_row, args.b_col, depth, cols, panels.b);
    for (i64 c0 = 0; c0 < cols; c0 += kNr) {
      for (i64 r0 = 0; r0 < rows; r0 += kMr) {
        alignas(64) double sums[kMr][kNr];
        micro_kernel(panels.a + r0 * depth, panels.b + c0 * depth, depth, sums[0]);
        for (i64 r = 0; r < smaller(kMr, rows - r0); ++r) {
          double* const out = c + (row + r0 + r) * args.c_row + (col + c0) * args.c_col;
          const double* const bias =
              first && args.bias != nullptr ? static_cast<const double*>(args.bias) + col + c0 : nullptr;
          for (i64 j = 0; j < smaller(kNr, cols - c0); ++j) {
            double* const at = out + j * args.c_col;
            double value = args.alpha * sums[r][j];
            if (bias != nullptr) value += bias[j];
            if (!first || args.accumulate) value += *at;
            if (last && args.activation == Activation::relu) value = max(value, 0.0);
            *at = value;
          }
        }
      }
    }
  }
}

// Integers, exact modulo 2^32 or 2^64: signed ones are computed as unsigned.
template <class T>
void integer_gemm(const GemmArgs& args) {
  const i64 batch = batches_of(args);
  const T alpha = T(i64(args.alpha));
  parallel_for(batch * args.m, batch * args.m * args.n * larger(1, args.k), [&](i64 part) {
    const i64 row = part % args.m;
    const i64 number = part / args.m;
    i64 a = row * args.a_row, b = 0, c = row * args.c_row;
    add_batch(args, number, a, b, c);
    const T *const left = static_cast<const T*>(args.a) + a, *const right = static_cast<const T*>(args.b) + b;
    for (i64 j = 0; j < args.n; ++j) {
      T sum = 0;
      for (i64 k = 0; k < args.k; ++k) sum += left[k * args.a_col] * right[k * args.b_row + j * args.b_col];
      sum *= alpha;
      if (args.bias != nullptr) sum += static_cast<const T*>(args.bias)[j];
      T* const at = static_cast<T*>(args.c) + c + j * args.c_col;
      *at = args.accumulate ? *at + sum : sum;
    }
  });
}

}  // namespace

void gemm(const GemmArgs& args) {
  if (args.dtype == DType::i32 || args.dtype == DType::u32) return integer_gemm<std::uint32_t>(args);
  if (args.dtype == DType::i64 || args.dtype == DType::u64) return integer_gemm<std::uint64_t>(args);
  static thread_local Panels panels;
  const i64 batch = batches_of(args);
  const i64 row_tiles = ceil_div(args.m, kMc), col_tiles = ceil_div(args.n, kNc);
  const i64 parts = batch * row_tiles * col_tiles;
  parallel_for(parts, batch * args.m * args.n * larger(1, args.k) / 4, [&](i64 part) {
    const i64 tile = part % (row_tiles * col_tiles);
    const i64 number = part / (row_tiles * col_tiles);
    i64 a = 0, b = 0, c = 0;
    add_batch(args, number, a, b, c);
    compute_tile(args, static_cast<const double*>(args.a) + a, static_cast<const double*>(args.b) + b,
                 static_cast<double*>(args.c) + c, tile / col_tiles * kMc, tile % col_tiles * kNc, panels);
  });
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
