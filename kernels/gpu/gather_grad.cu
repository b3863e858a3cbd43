// Gradient of Gather (embedding): ddata[o, indices[k], :] += dy[o, k, :], rows without sources are 0.
// dy: [outer, count, inner], ddata: [outer, axis_size, inner]. No atomics; the same bits on every device.
//   1. The positions k are sorted by destination row, stable (sort.h).
//   2. ddata is filled with zeros, unless sums are added to what is there (over `divisor`).
//   3. The sorted list is cut into chunks of kChunk positions. One thread per 16 bytes of a row walks a chunk in order and writes the
//      rows that lie whole in it. Sums of the row that came in from the chunk before and of the one that goes on into the next go to the
//      workspace (head and tail), so a row with very many sources is added by many blocks.
//   4. For every row that goes over chunks: tail of its first chunk, then the heads of the next ones, in order.
// So a row adds its sources in order of k, in sums that begin anew where a chunk begins.
#include "kernels/gpu/divider.h"
#include "kernels/gpu/group.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/sort.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {
namespace {

using i64 = std::int64_t;

constexpr int kChunk = int(kGatherGradChunk);

// What the sort takes first: the indices themselves.
template <class Index>
struct FromIndices {
  const Index* indices;
  i64 axis_size;
  GRADLOOM_DEVICE Entry operator()(i64 k) const {
    const i64 index = indices[k], row = index < 0 ? index + axis_size : index;
    return {row >= 0 && row < axis_size ? row : axis_size, k};
  }
};
// ---- sums -----------------------------------------------------------------------------------------------------------------------

template <class T>
struct Sums {
  i64 count, axis_size, inner, chunks;
  Divider by_strips, by_chunks;  // of inner; strip fastest, then chunk, then outer
  const Entry* sorted;
  const T* dy;
  T* ddata;
  Accum<T>* partial;  // [outer, chunks, head and tail, inner]
  bool packed, adds;
  Accum<T> divisor;
};

template <class T>
struct Place {
  i64 o, chunk, column;
};
template <class T>
GRADLOOM_DEVICE Place<T> place_of(const Sums<T>& s) {
  const i64 rest = s.by_strips(blockIdx.x), o = s.by_chunks(rest),
            strip = blockIdx.x - rest * s.by_strips.divisor;
  return {o, rest - o * s.chunks, (strip * blockDim.x + threadIdx.x) * Group<T>::kCount};
}

template <class T>
GRADLOOM_DEVICE Accum<T>* partial_of(const Sums<T>& s, const Place<T>& at, i64 chunk, int tail) {
  return s.partial + ((at.o * s.chunks + chunk) * 2 + tail) * s.inner + at.column;
}

// All sources of a row: written, or added to what is there.
template <class T>
GRADLOOM_DEVICE void store_sum(const Sums<T>& s, const Place<T>& at, i64 row, Group<T> sum) {
  T* const to = s.ddata + (at.o * s.axis_size + row) * s.inner + at.column;
  const i64 left = s.inner - at.column;
  if (s.adds) {
    const Group<T> there = to_group(fetch(to, left, s.packed));
    for (int j = 0; j < Group<T>::kCount; ++j) sum.v[j] = there.v[j] + sum.v[j] / s.divisor;
  }
  store_group(to, sum, left, s.packed);
}

// A sum of sources [.., end) of the list is done: `row` from `begun` on in this chunk.
template <class T>
GRADLOOM_DEVICE void put_sum(const Sums<T>& s, const Place<T>& at, const Group<T>& sum, i64 row, i64 begun,
                             i64 end) {
  if (row >= s.axis_size) return;
  const bool from_before = begun > 0 && s.sorted[begun - 1].row == row,
             goes_on = end < s.count && s.sorted[end].row == row;
  if (!from_before && !goes_on) return store_sum(s, at, row, sum);
  Accum<T>* const to = partial_of(s, at, at.chunk, from_before ? 0 : 1);
  for (int j = 0; j < Group<T>::kCount; ++j) {
    if (at.column + j < s.inner) to[j] = sum.v[j];
  }
}

constexpr int kAhead = 4;  // sources on their way at a time

template <class T>
__global__ void sum_kernel(Sums<T> s) {
  const Place<T> at = place_of(s);
  if (at.column >= s.inner) return;
  const i64 begin = at.chunk * kChunk, end = min(s.count, begin + kChunk);
  i64 row = s.sorted[begin].row, begun = begin;
  Group<T> sum{};
  for (i64 i = begin; i < end; i += kAhead) {
    Entry entries[kAhead];
    Pack<T> values[kAhead];
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      entries[n] = i + n < end ? s.sorted[i + n] : Entry{s.axis_size, 0};
      if (entries[n].row < s.axis_size) {
        values[n] = fetch(s.dy + (at.o * s.count + entries[n].k) * s.inner + at.column, s.inner - at.column,
                          s.packed);
      }
    }
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      if (i + n >= end) break;
      if (entries[n].row != row) {
        put_sum(s, at, sum, row, begun, i + n);
        sum = Group<T>{};
        row = entries[n].row;
        begun = i + n;
      }
      if (row >= s.axis_size) return;  // no destination, and only such follow
      for (int j = 0; j < Group<T>::kCount; ++j) sum.v[j] += to_accum(values[n].v[j]);
    }
  }
  put_sum(s, at, sum, row, begun, end);
}

// The row that begins in this chunk and goes on into the next ones, if there is one.
template <class T>
__global__ void join_kernel(Sums<T> s) {
  const Place<T> at = place_of(s);
  const i64 begin = at.chunk * kChunk, next = begin + kChunk;
  if (at.column >= s.inner || next >= s.count) return;
  const i64 row = s.sorted[next - 1].row;
  const bool from_before = begin > 0 && s.sorted[begin - 1].row == row;
  if (row >= s.axis_size || from_before || s.sorted[next].row != row) return;
  Group<T> sum{};
  const auto add = [&](i64 chunk, int tail) {
    const Accum<T>* const from = partial_of(s, at, chunk, tail);
    for (int j = 0; j < Group<T>::kCount; ++j) sum.v[j] += at.column + j < s.inner ? from[j] : Accum<T>(0);
  };
  add(at.chunk, 1);
  for (i64 chunk = at.chunk + 1; chunk < s.chunks && s.sorted[chunk * kChunk].row == row; ++chunk)
    add(chunk, 0);
  store_sum(s, at, row, sum);
}

// ---- launchers ------------------------------------------------------------------------------------------------------------------

template <class Index>
const Entry* sort(const GatherGradArgs& args, Stream stream) {
  return sort_entries(FromIndices<Index>{static_cast<const Index*>(args.indices), args.axis_size}, args.count,
                      args.axis_size, args.workspace, stream);
}

template <class T>
void add_rows(const GatherGradArgs& args, Stream stream) {
  const T zero{};
  if (!args.adds) fill({sizeof(T), args.outer * args.axis_size * args.inner, &zero, args.ddata}, stream);
  if (args.count == 0) return;
  const GatherGradSpace space = gather_grad_space(args);
  const Entry* const sorted =
      args.index_dtype == DType::i64 ? sort<std::int64_t>(args, stream) : sort<std::int32_t>(args, stream);
  constexpr int kCount = Group<T>::kCount;
  const i64 groups = ceil_div(args.inner, kCount), chunks = ceil_div(args.count, kChunk);
  const int threads = groups > 128 ? 256 : groups > 64 ? 128 : 64;
  const i64 strips = ceil_div(groups, threads), blocks = strips * chunks * args.outer;
  Sums<T> s{};
  s.count = args.count;
  s.axis_size = args.axis_size;
  s.inner = args.inner;
  s.chunks = chunks;
  s.by_strips = Divider(strips, blocks);
  s.by_chunks = Divider(chunks, blocks);
  s.sorted = sorted;
  s.dy = static_cast<const T*>(args.dy);
  s.ddata = static_cast<T*>(args.ddata);
  s.partial = reinterpret_cast<Accum<T>*>(static_cast<char*>(args.workspace) + space.partial);
  s.packed = packable<T>(args.inner, args.dy, args.ddata);
  s.adds = args.adds;
  s.divisor = Accum<T>(args.divisor);
  const dim3 grid{unsigned(blocks)}, block{unsigned(threads)};
  launch(stream, sum_kernel<T>, grid, block, 0, s);
  if (chunks > 1) launch(stream, join_kernel<T>, grid, block, 0, s);
}

}  // namespace

void gather_grad(const GatherGradArgs& args, Stream stream) {
  if (args.outer * args.axis_size * args.inner == 0) return;
  GRADLOOM_GPU_FLOATS(args.dtype, add_rows, args, stream);
}

}  // namespace gradloom::kernels::gpu
