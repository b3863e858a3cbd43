// Kernels that move elements without arithmetic: strided copy (transpose, slice, expand,
// concat, pad), fill, gather.
#include "kernels/cpu/kernel.h"
#include "kernels/cpu/panels.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// To move a byte takes about as long as a unit of work (kParallelWork): the work of a kernel here is its bytes.
constexpr i64 kPartBytes = 16384;

// ---- strided copy -----------------------------------------------------------------------------------------

struct Copy {
  int rank = 0;
  i64 dims[kEwMaxRank], in[kEwMaxRank], out[kEwMaxRank];
  i64 count = 1;

  void add(i64 dim, i64 in_stride, i64 out_stride) {
    dims[rank] = dim;
    in[rank] = in_stride;
    out[rank++] = out_stride;
  }
};

// Drops dims of size 1 and merges neighbours that both sides step through evenly.
Copy merged(const StridedCopyArgs& args) {
  Copy c;
  for (int d = 0; d < args.rank; ++d) {
    c.count *= args.dims[d];
    if (args.dims[d] == 1) continue;
    const int last = c.rank - 1;
    if (last >= 0 && c.in[last] == args.in_strides[d] * args.dims[d] &&
        c.out[last] == args.out_strides[d] * args.dims[d]) {
      c.dims[last] *= args.dims[d];
      c.in[last] = args.in_strides[d];
      c.out[last] = args.out_strides[d];
    } else {
      c.add(args.dims[d], args.in_strides[d], args.out_strides[d]);
    }
  }
  if (c.rank == 0) c.add(1, 1, 1);
  return c;
}

// A point of dims [0, rank), and the offsets of its element.
struct Point {
  i64 in = 0, out = 0, index[kEwMaxRank];

  Point(const Copy& c, int rank, i64 number) {
    for (int d = rank - 1; d >= 0; --d) {
      index[d] = number % c.dims[d];
      number /= c.dims[d];
      in += index[d] * c.in[d];
      out += index[d] * c.out[d];
    }
  }
  // `steps` points further along dim d, at most to its end, where the dims before it go on.
  GRADLOOM_INLINE void advance(const Copy& c, int d, i64 steps) {
    for (; d >= 0; --d, steps = 1) {
      in += steps * c.in[d];
      out += steps * c.out[d];
      if ((index[d] += steps) < c.dims[d]) return;
      in -= index[d] * c.in[d];
      out -= index[d] * c.out[d];
      index[d] = 0;
    }
  }
};

// The first and the last `count` times n bytes of a run that is no longer than both together: all are read before any is written.
template <int n, int count = 1>
GRADLOOM_INLINE void copy_ends(const char* in, char* out, i64 bytes) {
  typename VecOf<char, n>::type first[count], last[count];
  const i64 behind = bytes - n * count;
#pragma GCC unroll 2
  for (int i = 0; i < count; ++i) {
    __builtin_memcpy(&first[i], in + i * n, n);
    __builtin_memcpy(&last[i], in + behind + i * n, n);
  }
#pragma GCC unroll 2
  for (int i = 0; i < count; ++i) {
    __builtin_memcpy(out + i * n, &first[i], n);
    __builtin_memcpy(out + behind + i * n, &last[i], n);
  }
}

// A call of memcpy takes longer than a short run does.
GRADLOOM_INLINE void copy_bytes(const char* in, char* out, i64 bytes) {
  constexpr int n = kVecBytes;
  if (bytes > 4 * n) {
    __builtin_memcpy(out, in, std::size_t(bytes));
  } else if (bytes > 2 * n) {
    copy_ends<n, 2>(in, out, bytes);
  } else if (bytes >= n) {
    copy_ends<n>(in, out, bytes);
  } else if (n > 32 && bytes >= 32) {
    copy_ends<32>(in, out, bytes);
  } else if (bytes >= 16) {
    copy_ends<16>(in, out, bytes);
  } else if (bytes >= 8) {
    copy_ends<8>(in, out, bytes);
  } else if (bytes >= 4) {
    copy_ends<4>(in, out, bytes);
  } else {
    for (i64 i = 0; i < bytes; ++i) out[i] = in[i];
  }
}

template <class T>
GRADLOOM_INLINE void copy_run(const T* in, i64 in_stride, T* out, i64 out_stride, i64 n) {
  if (in_stride == 1 && out_stride == 1) {
    copy_bytes(reinterpret_cast<const char*>(in), reinterpret_cast<char*>(out), n * i64(sizeof(T)));
  } else if (in_stride == 0 && out_stride == 1) {
    const T v = *in;
    for (i64 i = 0; i < n; ++i) out[i] = v;
  } else if (out_stride == 1) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) out[i] = in[i * in_stride];
  } else {
    for (i64 i = 0; i < n; ++i) out[i * out_stride] = in[i * in_stride];
  }
}

// ---- rows become columns ----------------------------------------------------------------------------------

// How long a side of the blocks is that registers turn around: rows of a cache line where registers are as long.
// 0: none for numbers of this size.
template <class T>
constexpr i64 kSide = sizeof(T) == 1    ? 0
                      : kVecBytes == 64 ? 64 / i64(sizeof(T))
                                        : 32 / i64(sizeof(T));
constexpr i64 kLeastSide = 4;

// Numbers of 16 bits: pairs of them, of two rows, are words, and rows of words become columns. In a quarter of a
// register, 16 bytes, the pairs of its first four columns come to `low`, the others to `high`.
template <class V>
GRADLOOM_INLINE void pair_columns(const V& a, const V& b, V& low, V& high) {
  if constexpr (sizeof(V) == 64) {
    low = __builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42, 11, 43, 16, 48, 17,
                                  49, 18, 50, 19, 51, 24, 56, 25, 57, 26, 58, 27, 59);
    high = __builtin_shufflevector(a, b, 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46, 15, 47, 20, 52,
                                   21, 53, 22, 54, 23, 55, 28, 60, 29, 61, 30, 62, 31, 63);
  } else {
    low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27);
    high = __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31);
  }
}

// in[c * in_stride + r] -> out[r * out_stride + c], r and c in [0, side).
template <i64 side, class T>
GRADLOOM_INLINE void turn_block(const T* in, i64 in_stride, T* out, i64 out_stride) {
  if constexpr (sizeof(T) == 2) {
    constexpr int n = int(side) / 2;
    using Half = typename VecOf<T, 4 * n>::type;
    using Word = typename VecOf<unsigned, 4 * n>::type;
    for (int part = 0; part < 2; ++part) {
      Word words[n];
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i) {
        Half a, b, low, high;
        __builtin_memcpy(&a, in + 2 * i * in_stride, sizeof a);
        __builtin_memcpy(&b, in + (2 * i + 1) * in_stride, sizeof b);
        pair_columns(a, b, low, high);
        words[i] = __builtin_bit_cast(Word, part == 0 ? low : high);
      }
      transpose(words);
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i)
        __builtin_memcpy(out + (i / 4 * 8 + part * 4 + i % 4) * out_stride, &words[i], sizeof(Word));
    }
  } else {
    using Line = typename VecOf<T, int(side) * int(sizeof(T))>::type;
    Line lines[side];
#pragma GCC unroll 16
    for (i64 c = 0; c < side; ++c) __builtin_memcpy(&lines[c], in + c * in_stride, sizeof(Line));
    transpose(lines);
#pragma GCC unroll 16
    for (i64 r = 0; r < side; ++r) __builtin_memcpy(out + r * out_stride, &lines[r], sizeof(Line));
  }
}

// The same of a tile, r in [0, rows), c in [0, cols), neither below `side`. The last blocks overlap those before them.
template <i64 side, class T>
void turn_blocks(const T* in, i64 in_stride, T* out, i64 out_stride, i64 rows, i64 cols) {
  for (i64 row = 0; row < rows; row += side) {
    const i64 r = smaller(row, rows - side);
    for (i64 col = 0; col < cols; col += side) {
      const i64 c = smaller(col, cols - side);
      turn_block<side>(in + c * in_stride + r, in_stride, out + r * out_stride + c, out_stride);
    }
  }
}

template <class T>
void turn_tile(const T* in, i64 in_stride, T* out, i64 out_stride, i64 rows, i64 cols) {
  constexpr i64 side = kSide<T>;
  const i64 least = smaller(rows, cols);
  if constexpr (side > 0) {
    if (least >= side) return turn_blocks<side>(in, in_stride, out, out_stride, rows, cols);
  }
  if constexpr (side > 16) {
    if (least >= 16) return turn_blocks<16>(in, in_stride, out, out_stride, rows, cols);
  }
  if constexpr (side > 8 && sizeof(T) >= 4) {
    if (least >= 8) return turn_blocks<8>(in, in_stride, out, out_stride, rows, cols);
  }
  if constexpr (side > kLeastSide && sizeof(T) >= 4)
    return turn_blocks<kLeastSide>(in, in_stride, out, out_stride, rows, cols);
  constexpr i64 kColumns = 16;  // whose lines stay in the nearest cache for all rows
  for (i64 begin = 0; begin < cols; begin += kColumns)
    for (i64 r = 0; r < rows; ++r)
      for (i64 c = begin; c < smaller(cols, begin + kColumns); ++c)
        out[r * out_stride + c] = in[c * in_stride + r];
}

// [0, size) in tiles of one size, but for the last, which is up to twice as long.
struct Tiles {
  i64 size, tile, count;
  Tiles(i64 whole, i64 wanted) : size(whole), tile(wanted), count(larger(1, whole / wanted)) {}
  i64 length(i64 number) const { return number + 1 < count ? tile : size - number * tile; }
};

// Dim `row` is contiguous in `in`, dim `col` in `out`: tiles of these two. Neither has less than kLeastSide.
template <class T>
void copy_turned(const StridedCopyArgs& args, const Copy& c, int row, int col) {
  constexpr i64 kTile = 64, kTileElements = kPartBytes / i64(sizeof(T));
  Copy rest;
  for (int d = 0; d < c.rank; ++d) {
    if (d == row || d == col) continue;
    rest.add(c.dims[d], c.in[d], c.out[d]);
    rest.count *= c.dims[d];
  }
  const i64 in_stride = c.in[col], out_stride = c.out[row];
  const Tiles cols(c.dims[col], larger(kTile, kTileElements / smaller(kTile, c.dims[row]))),
      rows(c.dims[row], larger(kTile, kTileElements / smaller(kTile, c.dims[col])));
  const i64 of_each = rows.count * cols.count,
            together =
                larger(1, kTileElements / (smaller(rows.size, rows.tile) * smaller(cols.size, cols.tile)));
  const T* const from = static_cast<const T*>(args.in);
  T* const to = static_cast<T*>(args.out);
  parallel_pieces(rest.count * of_each, together, c.count * i64(sizeof(T)), [&](i64 begin, i64 end) {
    for (i64 part = begin; part < end; ++part) {
      const Point at(rest, rest.rank, part / of_each);
      const i64 i = part / cols.count % rows.count, j = part % cols.count, r = i * rows.tile,
                k = j * cols.tile;
      turn_tile(from + at.in + k * in_stride + r, in_stride, to + at.out + r * out_stride + k, out_stride,
                rows.length(i), cols.length(j));
    }
  });
}

// ---- any strides ------------------------------------------------------------------------------------------

// The last dim along which neighbours lie side by side; -1: none that is long enough for tiles.
int contiguous_dim(const Copy& c, const i64* strides) {
  int d = c.rank - 1;
  while (d >= 0 && (strides[d] != 1 || c.dims[d] < kLeastSide)) --d;
  return d;
}

template <class T>
void copy(const StridedCopyArgs& args) {
  const Copy c = merged(args);
  if (c.count == 0) return;
  const int last = c.rank - 1, row = contiguous_dim(c, c.in), col = contiguous_dim(c, c.out);
  const bool turned = row >= 0 && col >= 0 && c.in[col] != 1 && c.in[col] != 0;
  if (turned) return copy_turned<T>(args, c, row, col);
  const T* const from = static_cast<const T*>(args.in);
  T* const to = static_cast<T*>(args.out);
  const i64 inner = c.dims[last], work = c.count * i64(sizeof(T)), part = kPartBytes / i64(sizeof(T));
  if (c.rank == 1) {
    return parallel_pieces(inner, part, work, [&](i64 begin, i64 end) {
      copy_run(from + begin * c.in[0], c.in[0], to + begin * c.out[0], c.out[0], end - begin);
    });
  }
  const int outer = last - 1;
  parallel_pieces(c.count / inner, larger(1, part / inner), work, [&](i64 begin, i64 end) {
    Point at(c, last, begin);
    for (i64 run = begin; run < end;) {
      const i64 runs = smaller(end - run, c.dims[outer] - at.index[outer]);
      for (i64 i = 0; i < runs; ++i)
        copy_run(from + at.in + i * c.in[outer], c.in[last], to + at.out + i * c.out[outer], c.out[last],
                 inner);
      at.advance(c, outer, runs);
      run += runs;
    }
  });
}

// ---- fill -------------------------------------------------------------------------------------------------

template <class T>
void fill_typed(const FillArgs& args) {
  const T value = *static_cast<const T*>(args.value);
  T* const out = static_cast<T*>(args.out);
  parallel_pieces(args.count, kPartBytes / i64(sizeof(T)), args.count * i64(sizeof(T)),
                  [&](i64 begin, i64 end) {
                    for (i64 i = begin; i < end; ++i) out[i] = value;
                  });
}

// ---- gather -----------------------------------------------------------------------------------------------

// Bytes of the rows to come that are fetched: where they are, only the indices tell.
constexpr i64 kRowBytesAhead = 4096;

template <class T>
void gather_elements(const GatherArgs& args) {
  const T* const data = static_cast<const T*>(args.data);
  T* const out = static_cast<T*>(args.out);
  parallel_pieces(args.outer * args.count, 8192, args.outer * args.count * 2, [&](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) {
      const i64 o = i / args.count;
      i64 k = read_index(args.index_dtype, args.indices, i - o * args.count);
      k = k < 0 ? k + args.axis_size : k;
      out[i] = k >= 0 && k < args.axis_size ? data[o * args.axis_size + k] : T(0);
    }
  });
}

}  // namespace

void strided_copy(const StridedCopyArgs& args) {
  switch (args.element_bytes) {
    case 1: return copy<std::uint8_t>(args);
    case 2: return copy<std::uint16_t>(args);
    case 4: return copy<std::uint32_t>(args);
    default: return copy<std::uint64_t>(args);
  }
}

void fill(const FillArgs& args) {
  switch (args.element_bytes) {
    case 1: return fill_typed<std::uint8_t>(args);
    case 2: return fill_typed<std::uint16_t>(args);
    case 4: return fill_typed<std::uint32_t>(args);
    default: return fill_typed<std::uint64_t>(args);
  }
}

void gather(const GatherArgs& args) {
  if (args.inner == 1) {
    switch (args.element_bytes) {
      case 1: return gather_elements<std::uint8_t>(args);
      case 2: return gather_elements<std::uint16_t>(args);
      case 4: return gather_elements<std::uint32_t>(args);
      default: return gather_elements<std::uint64_t>(args);
    }
  }
  const i64 bytes = args.inner * i64(args.element_bytes);
  if (bytes == 0) return;
  const char* const data = static_cast<const char*>(args.data);
  char* const out = static_cast<char*>(args.out);
  const i64 rows = args.outer * args.count, ahead = larger(1, kRowBytesAhead / bytes);
  const auto place = [&](i64 row) {  // in data; -1: there is none
    const i64 o = row / args.count, k = read_index(args.index_dtype, args.indices, row - o * args.count),
              at = k < 0 ? k + args.axis_size : k;
    return at >= 0 && at < args.axis_size ? (o * args.axis_size + at) * bytes : i64(-1);
  };
  parallel_pieces(rows, larger(1, kPartBytes / bytes), rows * bytes, [&](i64 begin, i64 end) {
    for (i64 row = begin; row < end; ++row) {
      if (row + ahead < rows) {
        const char* const next = data + place(row + ahead);
        for (i64 i = 0; i < smaller(bytes, kRowBytesAhead); i += 64) __builtin_prefetch(next + i);
      }
      if (const i64 from = place(row); from >= 0) {
        __builtin_memcpy(out + row * bytes, data + from, std::size_t(bytes));
      } else {
        __builtin_memset(out + row * bytes, 0, std::size_t(bytes));
      }
    }
  });
}

}  // namespace gradloom::kernels::GRADLOOM_ISA
