// C = alpha * A B + bias (+ C), batched, any strides. Tiles of C are independent parts; each packs the panels
// of A and B that it needs and multiplies them in registers. The sum over k goes in
// blocks of fixed size, in order, so the bits do not depend on the number of threads.
#include "kernels/cpu/panels.h"

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

// ---- blocks, after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008) --------

// Sums of `rows` x `columns` elements of C stay in registers while a panel of A passes a panel of B.
template <class T>
struct Kernel {
#if defined(__AVX512F__)
  static constexpr i64 rows = 12;
#elif defined(__AVX2__)
  static constexpr i64 rows = 6;
#else
  static constexpr i64 rows = 4;
#endif
  static constexpr i64 registers = 2, columns = registers * kLanes<T>;
};
// A tile of C is at most so large, and takes a block of k at a time: the panels of A stay in L2.
constexpr i64 kMostRows = 192, kMostColumns = 512;
template <class T>
constexpr i64 kDepth = 1024 / i64(sizeof(T));

template <class T>
struct Panels {
  alignas(64) T a[(kMostRows + Kernel<T>::rows) * kDepth<T>];
  alignas(64) T b[(kMostColumns + Kernel<T>::columns) * kDepth<T>];
};

// Lines (rows of A, columns of B) of `depth` elements -> panels of `width` lines: panel, k, line. Missing lines are zero.
template <class T, i64 width>
void pack(const T* x, i64 line_stride, i64 depth_stride, i64 lines, i64 depth, T* out) {
  for (i64 first = 0; first < lines; first += width, out += width * depth) {
    const i64 count = smaller(width, lines - first);
    const T* const from = x + first * line_stride;
    if (line_stride == 1 && count == width) {
      for (i64 k = 0; k < depth; ++k)
        __builtin_memcpy(out + k * width, from + k * depth_stride, width * sizeof(T));
    } else if (depth_stride == 1) {
      const char* const bytes = reinterpret_cast<const char*>(from);
      const i64 line_bytes = line_stride * i64(sizeof(T));
      if (count == width) {
        pack_transposed<T, width>(bytes, line_bytes, width, depth, out);
      } else {
        pack_transposed<T, width>(bytes, line_bytes, count, depth, out);
      }
    } else {
      for (i64 k = 0; k < depth; ++k)
        for (i64 i = 0; i < width; ++i)
          out[k * width + i] = i < count ? from[i * line_stride + k * depth_stride] : T(0);
    }
  }
}

// What becomes of sums over k: alpha times them, and bias and C and then the activation where there are any.
template <class T>
struct Finish {
  T alpha;
  const T* bias;  // of the first column; null: none
  bool add, relu;
};

template <class T, class V>
GRADLOOM_INLINE void finish(const Finish<T>& how, const V& sum, i64 column, T* c) {
  V value = how.alpha * sum;
  if (how.bias != nullptr) value += get(how.bias + column, value);
  if (how.add) value += get(c, value);
  if (how.relu) value = value < 0 ? V{} : value;
  put(c, value);
}

// A panel of A times a panel of B, into rows of C that lie c_row apart.
template <class T>
GRADLOOM_INLINE void multiply(const T* a, const T* b, i64 depth, const Finish<T>& how, T* c, i64 c_row) {
  using K = Kernel<T>;
  Vec<T> sums[K::rows][K::registers] = {};
  for (i64 k = 0; k < depth; ++k) {
    Vec<T> line[K::registers];
#pragma GCC unroll 2
    for (i64 v = 0; v < K::registers; ++v) line[v] = load(b + k * K::columns + v * kLanes<T>);
#pragma GCC unroll 12
    for (i64 r = 0; r < K::rows; ++r) {
      const T value = a[k * K::rows + r];
#pragma GCC unroll 2
      for (i64 v = 0; v < K::registers; ++v) sums[r][v] += value * line[v];
    }
  }
#pragma GCC unroll 12
  for (i64 r = 0; r < K::rows; ++r)
#pragma GCC unroll 2
    for (i64 v = 0; v < K::registers; ++v) {
      const i64 column = v * kLanes<T>;
      finish(how, sums[r][v], column, c + r * c_row + column);
    }
}

// The same at the edges of C, and where its columns do not lie beside one another.
template <class T>
void multiply_part(const T* a, const T* b, i64 depth, const Finish<T>& how, T* c, i64 c_row, i64 c_column,
                   i64 rows, i64 columns) {
  using K = Kernel<T>;
  alignas(64) T sums[K::rows * K::columns];
  multiply(a, b, depth, Finish<T>{T(1), nullptr, false, false}, sums, K::columns);
  for (i64 r = 0; r < rows; ++r) {
    const T* const from = sums + r * K::columns;
    if (c_column == 1) {
      for_registers<T>(columns,
                       [&](i64 j, auto like) { finish(how, get(from + j, like), j, c + r * c_row + j); });
    } else {
      for (i64 j = 0; j < columns; ++j) finish(how, from[j], j, c + r * c_row + j * c_column);
    }
  }
}

// A tile of C, rows x columns at (row, column), of one matrix.
struct Tile {
  i64 row, column, rows, columns;
};

template <class T>
void compute_tile(const GemmArgs& args, const T* a, const T* b, T* c, const Tile& tile) {
  using K = Kernel<T>;
  Panels<T>& panels = *static_cast<Panels<T>*>(thread_scratch(sizeof(Panels<T>)));
  const i64 depth_blocks = larger(1, ceil_div(args.k, kDepth<T>));
  for (i64 block = 0; block < depth_blocks; ++block) {
    const i64 k0 = block * kDepth<T>, depth = smaller(kDepth<T>, args.k - k0);
    const bool first = block == 0, last = block + 1 == depth_blocks;
    pack<T, K::rows>(a + tile.row * args.a_row + k0 * args.a_col, args.a_row, args.a_col, tile.rows, depth,
                     panels.a);
    pack<T, K::columns>(b + k0 * args.b_row + tile.column * args.b_col, args.b_col, args.b_row, tile.columns,
                        depth, panels.b);
    Finish<T> how{T(args.alpha), nullptr, !first || args.accumulate,
                  last && args.activation == Activation::relu};
    for (i64 j = 0; j < tile.columns; j += K::columns) {
      if (first && args.bias != nullptr) how.bias = static_cast<const T*>(args.bias) + tile.column + j;
      const i64 columns = smaller(K::columns, tile.columns - j);
      for (i64 i = 0; i < tile.rows; i += K::rows) {
        T* const to = c + (tile.row + i) * args.c_row + (tile.column + j) * args.c_col;
        const T *const left = panels.a + i * depth, *const right = panels.b + j * depth;
        const i64 rows = smaller(K::rows, tile.rows - i);
        if (rows == K::rows && columns == K::columns && args.c_col == 1) {
          multiply(left, right, depth, how, to, args.c_row);
        } else {
          multiply_part(left, right, depth, how, to, args.c_row, args.c_col, rows, columns);
        }
      }
    }
  }
}

// How C is cut into tiles, from its sizes alone: as large as panels may be, smaller where there would be few.
struct Cut {
  i64 rows, columns;
};

template <class T>
Cut cut_of(const GemmArgs& args, i64 batch) {
  constexpr i64 kFew = 4, kFewWork = 262144, kMany = 16, kManyWork = 4194304;
  Cut cut{smaller(kMostRows, args.m), smaller(kMostColumns, args.n)};
  const auto worth_halving = [&] {
    const i64 tiles = batch * ceil_div(args.m, cut.rows) * ceil_div(args.n, cut.columns),
              half = cut.rows * cut.columns * args.k / 2;
    return (tiles < kFew && half >= kFewWork) || (tiles < kMany && half >= kManyWork);
  };
  while (worth_halving()) {
    i64& side = cut.rows >= cut.columns ? cut.rows : cut.columns;
    side = ceil_div(side, 2);
  }
  // Tiles of nearly equal size, of whole panels.
  const auto even = [](i64 size, i64 most, i64 panel) {
    return ceil_div(ceil_div(size, ceil_div(size, most)), panel) * panel;
  };
  return {even(args.m, cut.rows, Kernel<T>::rows), even(args.n, cut.columns, Kernel<T>::columns)};
}

template <class T>
void float_gemm(const GemmArgs& args) {
  const i64 batch = batches_of(args);
  const Cut cut = cut_of<T>(args, batch);
  const i64 down = ceil_div(args.m, cut.rows), across = ceil_div(args.n, cut.columns);
  parallel_for(batch * down * across, batch * args.m * args.n * larger(1, args.k) / 4, [&](i64 part) {
    i64 a = 0, b = 0, c = 0;
    add_batch(args, part / (down * across), a, b, c);
    const i64 row = part % down * cut.rows, column = part / down % across * cut.columns;
    compute_tile(args, static_cast<const T*>(args.a) + a, static_cast<const T*>(args.b) + b,
                 static_cast<T*>(args.c) + c,
                 Tile{row, column, smaller(cut.rows, args.m - row), smaller(cut.columns, args.n - column)});
  });
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
  GRADLOOM_FLOAT_DISPATCH(args.dtype, float_gemm, args);
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
