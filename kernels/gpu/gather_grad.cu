// Gradient of Gather (embedding): ddata[o, indices[k], :] += dy[o, k, :], rows without sources are 0.
// dy: [outer, count, inner], ddata: [outer, axis_size, inner]. No atomics; the same bits on every device.
//   1. The positions k are sorted by destination row, stable: a radix sort of 8 bits per pass, as many passes as axis_size needs. A pass
//      counts the digits of each tile of kTile positions, sums up the counts over digits and tiles, and moves every position to its
//      place (Satish et al. 2009; the rank within a warp comes from ballots).
//   2. ddata is filled with zeros.
//   3. The sorted list is cut into chunks of kChunk positions. One thread per 16 bytes of a row walks a chunk in order and writes the
//      rows that lie whole in it. Sums of the row that came in from the chunk before and of the one that goes on into the next go to the
//      workspace (head and tail), so a row with very many sources is added by many blocks.
//   4. For every row that goes over chunks: tail of its first chunk, then the heads of the next ones, in order.
// So a row adds its sources in order of k, in sums that begin anew where a chunk begins.
#include "kernels/gpu/divider.h"
#include "kernels/gpu/group.h"
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {
namespace {

using i64 = std::int64_t;

constexpr int kThreads = 256, kDigits = 256, kDigitBits = 8;
constexpr int kLeastWarp = 32, kMostWarps = kThreads / kLeastWarp;
constexpr int kTile = int(kGatherGradTile), kChunk = int(kGatherGradChunk);

// A position and the row it goes to; axis_size for none.
struct Entry {
  i64 row, k;
};

// ---- sort -----------------------------------------------------------------------------------------------------------------------

// Where a pass takes entries from: the indices themselves, then the pass before.
template <class Index>
struct FromIndices {
  const Index* indices;
  i64 axis_size;
  GRADLOOM_DEVICE Entry operator()(i64 k) const {
    const i64 index = indices[k], row = index < 0 ? index + axis_size : index;
    return {row >= 0 && row < axis_size ? row : axis_size, k};
  }
};
struct FromEntries {
  const Entry* entries;
  GRADLOOM_DEVICE Entry operator()(i64 at) const { return entries[at]; }
};

// Set bits, summed in fields of 2, 4 and 8 bits.
GRADLOOM_DEVICE int count_bits(unsigned long long v) {
  v -= v >> 1 & 0x5555555555555555ull;
  v = (v & 0x3333333333333333ull) + (v >> 2 & 0x3333333333333333ull);
  v = (v + (v >> 4)) & 0x0f0f0f0f0f0f0f0full;
  return int((v * 0x0101010101010101ull) >> 56);
}

// Lanes of the warp with the same digit; `valid` tells lanes that have one.
GRADLOOM_DEVICE unsigned long long same_digit(int digit, bool valid) {
  unsigned long long mask = ballot(valid);
  for (int bit = 0; bit < kDigitBits; ++bit) {
    const bool set = (digit >> bit & 1) != 0;
    const unsigned long long ones = ballot(set);
    mask &= set ? ones : ~ones;
  }
  return mask;
}

// The tile's positions, in order: each warp has kTile / warps neighbours, one per lane at a time. visit(entry, digit, rank) with the
// rank among entries of the same digit and warp; afterwards counts[warp][digit] are numbers of entries. All threads must call it.
template <class Source, class Visit>
GRADLOOM_DEVICE void rank_tile(const Source& source, i64 count, int shift, int (&counts)[kMostWarps][kDigits], const Visit& visit) {
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp, warps = kThreads / kWarp;
  for (int w = 0; w < warps; ++w) counts[w][threadIdx.x] = 0;
  __syncthreads();
  const i64 first = static_cast<i64>(blockIdx.x) * kTile + warp * (kTile / warps) + lane;
  for (int step = 0; step < kTile / kThreads; ++step) {
    const i64 at = first + step * kWarp;
    const bool valid = at < count;
    const Entry entry = valid ? source(at) : Entry{0, 0};
    const int digit = int(entry.row >> shift) & (kDigits - 1);
    const unsigned long long same = same_digit(digit, valid);
    const int below = count_bits(same & ((1ull << lane) - 1)), before = counts[warp][digit];
    __syncthreads();   // all lanes have read
    if (valid) visit(entry, digit, before + below);
    if (valid && below == 0) counts[warp][digit] = before + count_bits(same);
    __syncthreads();
  }
}

// table[digit][tile] = entries of the tile with this digit.
template <class Source>
__global__ void count_kernel(Source source, i64 count, int shift, i64* table) {
  __shared__ int counts[kMostWarps][kDigits];
  rank_tile(source, count, shift, counts, [](const Entry&, int, int) {});
  int total = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) total += counts[w][threadIdx.x];
  table[static_cast<i64>(threadIdx.x) * gridDim.x + blockIdx.x] = total;
}

// In place: every number becomes the sum of those before it. One block.
__global__ void scan_kernel(i64 n, i64* table) {
  __shared__ i64 sums[1024];
  const int thread = int(threadIdx.x), threads = int(blockDim.x);
  const i64 share = (n + threads - 1) / threads, begin = thread * share, end = min(n, begin + share);
  i64 sum = 0;
  for (i64 i = begin; i < end; ++i) sum += table[i];
  sums[thread] = sum;
  __syncthreads();
  for (int step = 1; step < threads; step *= 2) {   // Hillis and Steele 1986
    const i64 left = thread >= step ? sums[thread - step] : 0;
    __syncthreads();
    sums[thread] += left;
    __syncthreads();
  }
  i64 before = sums[thread] - sum;
  for (i64 i = begin; i < end; ++i) {
    const i64 own = table[i];
    table[i] = before;
    before += own;
  }
}

// Moves every entry of the tile to its place.
template <class Source>
__global__ void move_kernel(Source source, i64 count, int shift, const i64* table, Entry* sorted) {
  __shared__ int counts[kMostWarps][kDigits];
  __shared__ i64 starts[kMostWarps][kDigits];
  rank_tile(source, count, shift, counts, [](const Entry&, int, int) {});
  i64 start = table[static_cast<i64>(threadIdx.x) * gridDim.x + blockIdx.x];
  for (int w = 0; w < kThreads / kWarp; ++w) {
    starts[w][threadIdx.x] = start;
    start += counts[w][threadIdx.x];
  }
  __syncthreads();
  const int warp = int(threadIdx.x) / kWarp;
  rank_tile(source, count, shift, counts, [&](const Entry& entry, int digit, int rank) { sorted[starts[warp][digit] + rank] = entry; });
}

// ---- sums -----------------------------------------------------------------------------------------------------------------------

template <class T>
struct Sums {
  i64 count, axis_size, inner, chunks;
  Divider by_strips, by_chunks;   // of inner; strip fastest, then chunk, then outer
  const Entry* sorted;
  const T* dy;
  T* ddata;
  Accum<T>* partial;              // [outer, chunks, head and tail, inner]
  bool packed;
};

template <class T>
struct Place {
  i64 o, chunk, column;
};
template <class T>
GRADLOOM_DEVICE Place<T> place_of(const Sums<T>& s) {
  const i64 rest = s.by_strips(blockIdx.x), o = s.by_chunks(rest), strip = blockIdx.x - rest * s.by_strips.divisor;
  return {o, rest - o * s.chunks, (strip * blockDim.x + threadIdx.x) * Group<T>::kCount};
}

template <class T>
GRADLOOM_DEVICE Accum<T>* partial_of(const Sums<T>& s, const Place<T>& at, i64 chunk, int tail) {
  return s.partial + ((at.o * s.chunks + chunk) * 2 + tail) * s.inner + at.column;
}

// A sum of sources [.., end) of the list is done: `row` from `begun` on in this chunk.
template <class T>
GRADLOOM_DEVICE void put_sum(const Sums<T>& s, const Place<T>& at, const Group<T>& sum, i64 row, i64 begun, i64 end) {
  if (row >= s.axis_size) return;
  const bool from_before = begun > 0 && s.sorted[begun - 1].row == row, goes_on = end < s.count && s.sorted[end].row == row;
  if (!from_before && !goes_on) {
    return store_group(s.ddata + (at.o * s.axis_size + row) * s.inner + at.column, sum, s.inner - at.column, s.packed);
  }
  Accum<T>* const to = partial_of(s, at, at.chunk, from_before ? 0 : 1);
  for (int j = 0; j < Group<T>::kCount; ++j) {
    if (at.column + j < s.inner) to[j] = sum.v[j];
  }
}

constexpr int kAhead = 4;   // sources on their way at a time

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
        values[n] = fetch(s.dy + (at.o * s.count + entries[n].k) * s.inner + at.column, s.inner - at.column, s.packed);
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
      if (row >= s.axis_size) return;   // no destination, and only such follow
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
  for (i64 chunk = at.chunk + 1; chunk < s.chunks && s.sorted[chunk * kChunk].row == row; ++chunk) add(chunk, 0);
  store_group(s.ddata + (at.o * s.axis_size + row) * s.inner + at.column, sum, s.inner - at.column, s.packed);
}

// ---- launchers ------------------------------------------------------------------------------------------------------------------

template <class Source>
void sort_pass(const Source& source, i64 count, int shift, i64* table, Entry* sorted, Stream stream) {
  const i64 tiles = ceil_div(count, kTile);
  const dim3 grid{unsigned(tiles)}, block(kThreads);
  launch(stream, count_kernel<Source>, grid, block, 0, source, count, shift, table);
  launch(stream, scan_kernel, dim3(1), dim3(1024), 0, tiles * kDigits, table);
  launch(stream, move_kernel<Source>, grid, block, 0, source, count, shift, static_cast<const i64*>(table), sorted);
}

// The sorted list: in one of two halves of the workspace.
template <class Index>
const Entry* sort(const GatherGradArgs& args, Entry* entries, i64* table, Stream stream) {
  Entry *to = entries, *from = entries + args.count;
  sort_pass(FromIndices<Index>{static_cast<const Index*>(args.indices), args.axis_size}, args.count, 0, table, to, stream);
  for (int shift = kDigitBits; args.axis_size >> shift != 0; shift += kDigitBits) {
    Entry* const free = from;
    from = to;
    to = free;
    sort_pass(FromEntries{from}, args.count, shift, table, to, stream);
  }
  return to;
}

template <class T>
void add_rows(const GatherGradArgs& args, Stream stream) {
  const T zero{};
  fill({sizeof(T), args.outer * args.axis_size * args.inner, &zero, args.ddata}, stream);
  if (args.count == 0) return;
  const GatherGradSpace space = gather_grad_space(args);
  char* const workspace = static_cast<char*>(args.workspace);
  auto* const entries = reinterpret_cast<Entry*>(workspace + space.entries);
  auto* const table = reinterpret_cast<i64*>(workspace + space.table);
  const Entry* const sorted = args.index_dtype == DType::i64 ? sort<std::int64_t>(args, entries, table, stream)
                                                             : sort<std::int32_t>(args, entries, table, stream);
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
  s.partial = reinterpret_cast<Accum<T>*>(workspace + space.partial);
  s.packed = packable<T>(args.inner, args.dy, args.ddata);
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
