// Kernels that move elements without arithmetic.
//   strided_copy   out[sum i_d out_strides_d] = in[sum i_d in_strides_d], dims of rank <= 8 (transpose, slice, expand, concat, pad)
//   fill           out[i] = value
//   gather         out[o, k, :] = data[o, indices[k], :], zeros for indices out of range. [outer, axis_size, inner] -> [outer, count, inner]
// Elements are 1, 2, 4 or 8 bytes. Copies are planned on the host: dims are ordered by the stride they write
// with, merged, and runs that are contiguous on both sides are moved in units of up to 16 bytes. When another
// dim is contiguous in `in` than in `out`, the two go through square tiles of shared memory, so that both
// sides are read and written in whole lines (NVIDIA's matrix transpose).
#include "kernels/gpu/divider.h"
#include "kernels/gpu/kernels.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr int kThreads = 256;

struct alignas(16) Bytes16 {
  unsigned v[4];
};

// ---- strided copy ---------------------------------------------------------------------------------------------------------------

struct CopyPlan {
  int rank = 0;
  long long dims[kEwMaxRank], in[kEwMaxRank], out[kEwMaxRank];
  long long count = 1;
};

long long magnitude(long long v) { return v < 0 ? -v : v; }

void swap_dims(CopyPlan& p, int a, int b) {
  long long* const columns[] = {p.dims, p.in, p.out};
  for (long long* column : columns) {
    const long long kept = column[a];
    column[a] = column[b];
    column[b] = kept;
  }
}

// Dims of size 1 dropped, the others by decreasing stride in `out`,
// neighbours that both sides step through evenly merged.
CopyPlan planned(const StridedCopyArgs& args) {
  CopyPlan p;
  for (int d = 0; d < args.rank; ++d) {
    p.count *= args.dims[d];
    if (args.dims[d] == 1) continue;
    p.dims[p.rank] = args.dims[d];
    p.in[p.rank] = args.in_strides[d];
    p.out[p.rank] = args.out_strides[d];
    ++p.rank;
    for (int at = p.rank - 1; at > 0 && magnitude(p.out[at - 1]) < magnitude(p.out[at]); --at)
      swap_dims(p, at - 1, at);
  }
  int rank = 0;
  for (int d = 0; d < p.rank; ++d) {
    const int last = rank - 1;
    if (last >= 0 && p.in[last] == p.in[d] * p.dims[d] && p.out[last] == p.out[d] * p.dims[d]) {
      p.dims[last] *= p.dims[d];
      p.in[last] = p.in[d];
      p.out[last] = p.out[d];
    } else {
      swap_dims(p, rank, d);
      ++rank;
    }
  }
  p.rank = rank;
  if (rank == 0) {
    p.rank = 1;
    p.dims[0] = p.in[0] = p.out[0] = 1;
  }
  return p;
}

// The largest unit of bytes in which runs of `p` can be moved.
// Strides and the last dim become counts of units.
int widen(CopyPlan& p, int element_bytes, const void* in, const void* out) {
  const int last = p.rank - 1;
  if (p.in[last] != 1 || p.out[last] != 1) return element_bytes;
  unsigned long long bits =
      reinterpret_cast<unsigned long long>(in) | reinterpret_cast<unsigned long long>(out);
  bits |= static_cast<unsigned long long>(p.dims[last] * element_bytes);
  for (int d = 0; d < last; ++d)
    bits |= static_cast<unsigned long long>((p.in[d] | p.out[d]) * element_bytes);
  int unit = 16;
  while (unit > element_bytes && bits % static_cast<unsigned>(unit) != 0) unit /= 2;
  const long long factor = unit / element_bytes;
  p.dims[last] /= factor;
  p.count /= factor;
  for (int d = 0; d < last; ++d) {
    p.in[d] /= factor;
    p.out[d] /= factor;
  }
  return unit;
}

// Offsets of the number-th point of dims [0, rank).
struct Locator {
  int rank = 0;
  Divider by[kEwMaxRank];
  long long in[kEwMaxRank], out[kEwMaxRank];

  GRADLOOM_DEVICE void locate(long long number, long long* in_offset, long long* out_offset) const {
    long long from = 0, to = 0;
    for (int d = rank - 1; d > 0; --d) {
      const long long rest = by[d](number), i = number - rest * by[d].divisor;
      from += i * in[d];
      to += i * out[d];
      number = rest;
    }
    *in_offset = from + number * in[0];
    *out_offset = to + number * out[0];
  }
};

void add_dim(Locator& l, const CopyPlan& p, int d) {
  l.by[l.rank] = Divider(p.dims[d], p.count);
  l.in[l.rank] = p.in[d];
  l.out[l.rank] = p.out[d];
  ++l.rank;
}

constexpr int kCopiesPerThread = 4;

template <class T>
__global__ void copy_kernel(Locator locator, long long count, const T* in, T* out) {
  const long long first = static_cast<long long>(blockIdx.x) * (kThreads * kCopiesPerThread) + threadIdx.x;
  for (int j = 0; j < kCopiesPerThread; ++j) {
    const long long i = first + j * kThreads;
    if (i >= count) return;
    long long from, to;
    locator.locate(i, &from, &to);
    out[to] = in[from];
  }
}

template <class T>
void copy_units(const CopyPlan& p, const void* in, void* out, Stream stream) {
  Locator locator;
  for (int d = 0; d < p.rank; ++d) add_dim(locator, p, d);
  const long long blocks = ceil_div(p.count, kThreads * kCopiesPerThread);
  launch(stream, copy_kernel<T>, dim3(unsigned(blocks)), dim3(kThreads), 0, locator, p.count,
         static_cast<const T*>(in), static_cast<T*>(out));
}

// A tile has kSide rows (contiguous in `in`) and columns (contiguous in `out`); its pitch spreads a column
// over all banks.
template <class T>
constexpr int kSide = sizeof(T) <= 2 ? 64 : 32;
template <class T>
constexpr int kPitch = kSide<T> + (sizeof(T) < 4 ? 4 / int(sizeof(T)) : 1);

struct Turned {
  Locator rest;  // the other dims
  Divider row_tiles, col_tiles;
  long long rows, cols;           // dims of the contiguous strides of in and out
  long long in_pitch, out_pitch;  // stride of `in` along columns, of `out` along rows
};

template <class T>
__global__ void transpose_kernel(Turned t, const T* in, T* out) {
  constexpr int kSteps = kThreads / kSide<T>;
  __shared__ T tile[kSide<T>][kPitch<T>];
  const long long tiles = t.col_tiles(blockIdx.x), row_part = t.row_tiles(tiles);
  const long long col0 = (blockIdx.x - tiles * t.col_tiles.divisor) * kSide<T>,
                  row0 = (tiles - row_part * t.row_tiles.divisor) * kSide<T>;
  long long from = 0, to = 0;
  if (t.rest.rank > 0) t.rest.locate(row_part, &from, &to);
  const int lane = int(threadIdx.x) % kSide<T>, first = int(threadIdx.x) / kSide<T>;
  for (int c = first; c < kSide<T>; c += kSteps) {
    if (row0 + lane < t.rows && col0 + c < t.cols)
      tile[c][lane] = in[from + row0 + lane + (col0 + c) * t.in_pitch];
  }
  __syncthreads();
  for (int r = first; r < kSide<T>; r += kSteps) {
    if (row0 + r < t.rows && col0 + lane < t.cols)
      out[to + (row0 + r) * t.out_pitch + col0 + lane] = tile[lane][r];
  }
}

template <class T>
void copy_turned(const CopyPlan& p, int turned, const void* in, void* out, Stream stream) {
  const int last = p.rank - 1;
  Turned t;
  for (int d = 0; d < last; ++d) {
    if (d != turned) add_dim(t.rest, p, d);
  }
  t.rows = p.dims[turned];
  t.cols = p.dims[last];
  t.in_pitch = p.in[last];
  t.out_pitch = p.out[turned];
  t.row_tiles = Divider(ceil_div(t.rows, kSide<T>), p.count);
  t.col_tiles = Divider(ceil_div(t.cols, kSide<T>), p.count);
  const long long blocks = p.count / (t.rows * t.cols) * t.row_tiles.divisor * t.col_tiles.divisor;
  launch(stream, transpose_kernel<T>, dim3(unsigned(blocks)), dim3(kThreads), 0, t, static_cast<const T*>(in),
         static_cast<T*>(out));
}

// The dim to transpose with the last one, -1 for none. Short dims would leave most of a tile empty, and their
// lines stay in the cache.
int turned_dim(const CopyPlan& p) {
  constexpr long long kShort = 16;
  const int last = p.rank - 1;
  if (p.out[last] != 1 || p.in[last] == 1 || p.in[last] == 0 || p.dims[last] < kShort) return -1;
  for (int d = 0; d < last; ++d) {
    if (p.in[d] == 1 && p.dims[d] >= kShort) return d;
  }
  return -1;
}

template <class T>
void copy_elements(const CopyPlan& p, const void* in, void* out, Stream stream) {
  const int turned = turned_dim(p);
  if (turned >= 0) return copy_turned<T>(p, turned, in, out, stream);
  copy_units<T>(p, in, out, stream);
}

// ---- fill -----------------------------------------------------------------------------------------------------------------------

// 16 bytes of the repeated value; `count` units, then the elements that are left.
template <class T>
__global__ void fill_kernel(Pack<T> pack, long long packs, long long count, T* out) {
  const long long first = static_cast<long long>(blockIdx.x) * (kThreads * kCopiesPerThread) + threadIdx.x;
  for (int j = 0; j < kCopiesPerThread; ++j) {
    const long long i = first + j * kThreads;
    if (i < packs) {
      store_pack(out + i * Pack<T>::kCount, pack);
    } else if (i < packs + (count - packs * Pack<T>::kCount)) {
      out[packs * Pack<T>::kCount + (i - packs)] = pack.v[0];
    }
  }
}

template <class T>
void fill_typed(const FillArgs& args, Stream stream) {
  Pack<T> pack;
  for (T& v : pack.v) v = *static_cast<const T*>(args.value);
  const long long packs = packable<T>(Pack<T>::kCount, args.out) ? args.count / Pack<T>::kCount : 0;
  const long long stores = packs + args.count - packs * Pack<T>::kCount;
  const long long blocks = ceil_div(stores, kThreads * kCopiesPerThread);
  launch(stream, fill_kernel<T>, dim3(unsigned(blocks)), dim3(kThreads), 0, pack, packs, args.count,
         static_cast<T*>(args.out));
}

// ---- gather ---------------------------------------------------------------------------------------------------------------------

struct Rows {
  Divider units, count;  // of a row; indices
  long long total, axis_size;
};

template <class T, class Index>
__global__ void gather_kernel(Rows rows, const T* data, const Index* indices, T* out) {
  const long long first = static_cast<long long>(blockIdx.x) * (kThreads * kCopiesPerThread) + threadIdx.x;
  for (int j = 0; j < kCopiesPerThread; ++j) {
    const long long i = first + j * kThreads;
    if (i >= rows.total) return;
    const long long row = rows.units(i), unit = i - row * rows.units.divisor;
    const long long o = rows.count(row);
    long long k = static_cast<long long>(indices[row - o * rows.count.divisor]);
    k = k < 0 ? k + rows.axis_size : k;
    out[i] = k >= 0 && k < rows.axis_size ? data[(o * rows.axis_size + k) * rows.units.divisor + unit] : T{};
  }
}

template <class T>
void gather_units(const GatherArgs& args, long long units, Stream stream) {
  Rows rows;
  rows.total = args.outer * args.count * units;
  rows.axis_size = args.axis_size;
  rows.units = Divider(units, rows.total);
  rows.count = Divider(args.count, rows.total);
  const dim3 grid(unsigned(ceil_div(rows.total, kThreads * kCopiesPerThread))), block(kThreads);
  const T* const data = static_cast<const T*>(args.data);
  T* const out = static_cast<T*>(args.out);
  if (args.index_dtype == DType::i64) {
    launch(stream, gather_kernel<T, std::int64_t>, grid, block, 0, rows, data,
           static_cast<const std::int64_t*>(args.indices), out);
  } else {
    launch(stream, gather_kernel<T, std::int32_t>, grid, block, 0, rows, data,
           static_cast<const std::int32_t*>(args.indices), out);
  }
}

}  // namespace

void strided_copy(const StridedCopyArgs& args, Stream stream) {
  CopyPlan p = planned(args);
  if (p.count == 0) return;
  switch (widen(p, int(args.element_bytes), args.in, args.out)) {
    case 1: return copy_elements<std::uint8_t>(p, args.in, args.out, stream);
    case 2: return copy_elements<std::uint16_t>(p, args.in, args.out, stream);
    case 4: return copy_elements<std::uint32_t>(p, args.in, args.out, stream);
    case 8: return copy_elements<std::uint64_t>(p, args.in, args.out, stream);
    default: return copy_units<Bytes16>(p, args.in, args.out, stream);
  }
}

void fill(const FillArgs& args, Stream stream) {
  if (args.count == 0) return;
  switch (args.element_bytes) {
    case 1: return fill_typed<std::uint8_t>(args, stream);
    case 2: return fill_typed<std::uint16_t>(args, stream);
    case 4: return fill_typed<std::uint32_t>(args, stream);
    default: return fill_typed<std::uint64_t>(args, stream);
  }
}

void gather(const GatherArgs& args, Stream stream) {
  const long long row_bytes = args.inner * static_cast<long long>(args.element_bytes);
  if (args.outer * args.count * row_bytes == 0) return;
  const unsigned long long bits = static_cast<unsigned long long>(row_bytes) |
                                  reinterpret_cast<unsigned long long>(args.data) |
                                  reinterpret_cast<unsigned long long>(args.out);
  long long unit = 16;
  while (bits % static_cast<unsigned long long>(unit) != 0) unit /= 2;
  switch (unit) {
    case 1: return gather_units<std::uint8_t>(args, row_bytes, stream);
    case 2: return gather_units<std::uint16_t>(args, row_bytes / 2, stream);
    case 4: return gather_units<std::uint32_t>(args, row_bytes / 4, stream);
    case 8: return gather_units<std::uint64_t>(args, row_bytes / 8, stream);
    default: return gather_units<Bytes16>(args, row_bytes / 16, stream);
  }
}

}  // namespace gradloom::kernels::gpu
