// Kernels that move elements without arithmetic: strided copy (transpose, slice, expand,
// concat, pad), fill, gather.
#include "kernels/cpu/kernel.h"

namespace gradloom::kernels::GRADLOOM_ISA {
namespace {

// ---- strided copy -----------------------------------------------------------------------------------------

struct Copy {
  int rank = 0;
  i64 dims[kEwMaxRank], in[kEwMaxRank], out[kEwMaxRank];
  i64 count = 1;
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
      c.dims[c.rank] = args.dims[d];
      c.in[c.rank] = args.in_strides[d];
      c.out[c.rank] = args.out_strides[d];
      ++c.rank;
    }
  }
  if (c.rank == 0) {
    c.rank = 1;
    c.dims[0] = 1;
    c.in[0] = c.out[0] = 1;
  }
  return c;
}

// Offsets of the number-th point of dims [0, rank).
void locate(const Copy& c, int rank, i64 number, i64* in, i64* out) {
  *in = *out = 0;
  for (int d = rank - 1; d >= 0; --d) {
    const i64 i = number % c.dims[d];
    number /= c.dims[d];
    *in += i * c.in[d];
    *out += i * c.out[d];
  }
}

template <class T>
GRADLOOM_INLINE void copy_run(const T* in, i64 in_stride, T* out, i64 out_stride, i64 n) {
  if (in_stride == 1 && out_stride == 1) {
    if (n * i64(sizeof(T)) >= 64) {
      __builtin_memcpy(out, in, std::size_t(n) * sizeof(T));
    } else {
#pragma GCC ivdep
      for (i64 i = 0; i < n; ++i) out[i] = in[i];
    }
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

// in[c * in_stride + r] -> out[r * out_stride + c] for an R x C block,
// through a buffer that turns it around in L1.
template <class T>
void transpose_block(const T* in, i64 in_stride, T* out, i64 out_stride, i64 rows, i64 cols) {
  constexpr i64 kSide = 16;
  if (rows == kSide && cols == kSide) {
    T block[kSide][kSide];
    for (i64 c = 0; c < kSide; ++c) {
      for (i64 r = 0; r < kSide; ++r) block[c][r] = in[c * in_stride + r];
    }
    for (i64 r = 0; r < kSide; ++r) {
      T row[kSide];
      for (i64 c = 0; c < kSide; ++c) row[c] = block[c][r];
      for (i64 c = 0; c < kSide; ++c) out[r * out_stride + c] = row[c];
    }
    return;
  }
  for (i64 r = 0; r < rows; ++r) {
    for (i64 c = 0; c < cols; ++c) out[r * out_stride + c] = in[c * in_stride + r];
  }
}

// The innermost dim is contiguous in `out`, dim `turned` is contiguous in `in`: tiles of these two.
template <class T>
void copy_transposed(const StridedCopyArgs& args, const Copy& c, int turned) {
  constexpr i64 kTile = 64, kSide = 16;
  const int last = c.rank - 1;
  Copy rest;
  for (int d = 0; d < last; ++d) {
    if (d == turned) continue;
    rest.dims[rest.rank] = c.dims[d];
    rest.in[rest.rank] = c.in[d];
    rest.out[rest.rank] = c.out[d];
    rest.count *= c.dims[d];
    ++rest.rank;
  }
  const i64 rows = c.dims[turned], cols = c.dims[last];
  const i64 row_tiles = ceil_div(rows, kTile), col_tiles = ceil_div(cols, kTile);
  const T* const from = static_cast<const T*>(args.in);
  T* const to = static_cast<T*>(args.out);
  parallel_for(rest.count * row_tiles * col_tiles, c.count, [&](i64 part) {
    i64 in, out;
    locate(rest, rest.rank, part / (row_tiles * col_tiles), &in, &out);
    const i64 r0 = part / col_tiles % row_tiles * kTile, c0 = part % col_tiles * kTile;
    const i64 r1 = smaller(rows, r0 + kTile), c1 = smaller(cols, c0 + kTile);
    for (i64 r = r0; r < r1; r += kSide) {
      for (i64 k = c0; k < c1; k += kSide) {
        transpose_block(from + in + k * c.in[last] + r, c.in[last], to + out + r * c.out[turned] + k,
                        c.out[turned], smaller(kSide, r1 - r), smaller(kSide, c1 - k));
      }
    }
  });
}

template <class T>
void copy(const StridedCopyArgs& args) {
  const Copy c = merged(args);
  if (c.count == 0) return;
  const int last = c.rank - 1;
  if (c.out[last] == 1 && c.in[last] != 1 && c.in[last] != 0 && c.dims[last] >= 4) {
    for (int d = last - 1; d >= 0; --d) {
      if (c.in[d] == 1 && c.dims[d] >= 4) return copy_transposed<T>(args, c, d);
    }
  }
  const T* const from = static_cast<const T*>(args.in);
  T* const to = static_cast<T*>(args.out);
  const i64 inner = c.dims[last];
  const i64 work = c.count * i64(sizeof(T)) / 4;
  if (c.rank == 1) {
    return parallel_pieces(inner, 16384, work, [&](i64 begin, i64 end) {
      copy_run(from + begin * c.in[0], c.in[0], to + begin * c.out[0], c.out[0], end - begin);
    });
  }
  const i64 runs = c.count / inner;
  parallel_pieces(runs, larger(1, 16384 / inner), work, [&](i64 begin, i64 end) {
    i64 in, out, index[kEwMaxRank];
    locate(c, last, begin, &in, &out);
    for (i64 d = last - 1, number = begin; d >= 0; --d) {
      index[d] = number % c.dims[d];
      number /= c.dims[d];
    }
    for (i64 run = begin; run < end; ++run) {
      copy_run(from + in, c.in[last], to + out, c.out[last], inner);
      for (int d = last - 1; d >= 0; --d) {
        in += c.in[d];
        out += c.out[d];
        if (++index[d] < c.dims[d]) break;
        in -= index[d] * c.in[d];
        out -= index[d] * c.out[d];
        index[d] = 0;
      }
    }
  });
}

// ---- fill -------------------------------------------------------------------------------------------------

template <class T>
void fill_typed(const FillArgs& args) {
  const T value = *static_cast<const T*>(args.value);
  T* const out = static_cast<T*>(args.out);
  parallel_pieces(args.count, 32768, args.count * i64(sizeof(T)) / 4, [&](i64 begin, i64 end) {
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
  parallel_pieces(rows, larger(1, 32768 / bytes), rows * bytes / 4, [&](i64 begin, i64 end) {
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
