// Positions sorted by the row they go to, stable: the order in which sums without atomics are added up.
// A radix sort of 8 bits per pass, as many passes as the number of rows needs. A pass counts the digits of
// each tile of kTile positions, sums up the counts over digits and tiles, and moves every position to its
// place (Satish et al. 2009; the rank within a warp comes from ballots).
#pragma once

#include "kernels/gpu/gpu.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {

constexpr int kSortThreads = 256, kDigits = 256, kDigitBits = 8;
constexpr int kLeastWarp = 32, kMostWarps = kSortThreads / kLeastWarp;
constexpr int kTile = int(kSortTile);

// A position and the row it goes to; the number of rows for none.
struct Entry {
  std::int64_t row, k;
};

// Where a pass takes entries from: a source of the caller's, then the pass before.
struct FromEntries {
  const Entry* entries;
  GRADLOOM_DEVICE Entry operator()(std::int64_t at) const { return entries[at]; }
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

// The tile's positions, in order: each warp has kTile / warps neighbours, one per lane at a time.
// visit(entry, digit, rank) with the rank among entries of the same digit and warp; afterwards
// counts[warp][digit] are numbers of entries. All threads must call it.
template <class Source, class Visit>
GRADLOOM_DEVICE void rank_tile(const Source& source, std::int64_t count, int shift,
                               int (&counts)[kMostWarps][kDigits], const Visit& visit) {
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp, warps = kSortThreads / kWarp;
  for (int w = 0; w < warps; ++w) counts[w][threadIdx.x] = 0;
  __syncthreads();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kTile + warp * (kTile / warps) + lane;
  for (int step = 0; step < kTile / kSortThreads; ++step) {
    const std::int64_t at = first + step * kWarp;
    const bool valid = at < count;
    const Entry entry = valid ? source(at) : Entry{0, 0};
    const int digit = int(entry.row >> shift) & (kDigits - 1);
    const unsigned long long same = same_digit(digit, valid);
    const int below = count_bits(same & ((1ull << lane) - 1)), before = counts[warp][digit];
    __syncthreads();  // all lanes have read
    if (valid) visit(entry, digit, before + below);
    if (valid && below == 0) counts[warp][digit] = before + count_bits(same);
    __syncthreads();
  }
}

// table[digit][tile] = entries of the tile with this digit.
template <class Source>
__global__ void count_kernel(Source source, std::int64_t count, int shift, std::int64_t* table) {
  __shared__ int counts[kMostWarps][kDigits];
  rank_tile(source, count, shift, counts, [](const Entry&, int, int) {});
  int total = 0;
  for (int w = 0; w < kSortThreads / kWarp; ++w) total += counts[w][threadIdx.x];
  table[static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x] = total;
}

// In place: every number becomes the sum of those before it. One block.
template <int most_threads>
__global__ void scan_kernel(std::int64_t n, std::int64_t* table) {
  __shared__ std::int64_t sums[most_threads];
  const int thread = int(threadIdx.x), threads = int(blockDim.x);
  const std::int64_t share = (n + threads - 1) / threads, begin = thread * share, end = min(n, begin + share);
  std::int64_t sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += table[i];
  sums[thread] = sum;
  __syncthreads();
  for (int step = 1; step < threads; step *= 2) {  // Hillis and Steele 1986
    const std::int64_t left = thread >= step ? sums[thread - step] : 0;
    __syncthreads();
    sums[thread] += left;
    __syncthreads();
  }
  std::int64_t before = sums[thread] - sum;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t own = table[i];
    table[i] = before;
    before += own;
  }
}

// Moves every entry of the tile to its place.
template <class Source>
__global__ void move_kernel(Source source, std::int64_t count, int shift, const std::int64_t* table,
                            Entry* sorted) {
  __shared__ int counts[kMostWarps][kDigits];
  __shared__ std::int64_t starts[kMostWarps][kDigits];
  rank_tile(source, count, shift, counts, [](const Entry&, int, int) {});
  std::int64_t start = table[static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x];
  for (int w = 0; w < kSortThreads / kWarp; ++w) {
    starts[w][threadIdx.x] = start;
    start += counts[w][threadIdx.x];
  }
  __syncthreads();
  const int warp = int(threadIdx.x) / kWarp;
  rank_tile(source, count, shift, counts,
            [&](const Entry& entry, int digit, int rank) { sorted[starts[warp][digit] + rank] = entry; });
}

template <class Source>
void sort_pass(const Source& source, std::int64_t count, int shift, std::int64_t* table, Entry* sorted,
               Stream stream) {
  const std::int64_t tiles = ceil_div(count, kTile);
  const dim3 grid{unsigned(tiles)}, block(kSortThreads);
  launch(stream, count_kernel<Source>, grid, block, 0, source, count, shift, table);
  launch(stream, scan_kernel<1024>, dim3(1), dim3(1024), 0, tiles * kDigits, table);
  launch(stream, move_kernel<Source>, grid, block, 0, source, count, shift,
         static_cast<const std::int64_t*>(table), sorted);
}

// source(k): the entry of position k < count, with a row <= rows. The sorted list is in one of two halves of
// the space (sort_space).
template <class Source>
const Entry* sort_entries(const Source& source, std::int64_t count, std::int64_t rows, void* space,
                          Stream stream) {
  Entry *to = static_cast<Entry*>(space), *from = to + count;
  auto* const table = reinterpret_cast<std::int64_t*>(static_cast<char*>(space) + sort_space(count).table);
  sort_pass(source, count, 0, table, to, stream);
  for (int shift = kDigitBits; rows >> shift != 0; shift += kDigitBits) {
    Entry* const free = from;
    from = to;
    to = free;
    sort_pass(FromEntries{from}, count, shift, table, to, stream);
  }
  return to;
}

}  // namespace gradloom::kernels::gpu
