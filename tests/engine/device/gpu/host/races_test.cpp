// Races that are found, each beside a relative that differs by the barrier, fence or atomic that is missing and has none.
#include "engine/device/gpu/host/races.h"

#include <ostream>

#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

constexpr unsigned kThreads = 128, kLanes = unsigned(kWarp);

GRADLOOM_DEVICE unsigned global_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

// What a kernel leaves out.
template <bool right>
GRADLOOM_DEVICE void barrier_if() {
  if constexpr (right) __syncthreads();
}
template <bool right>
GRADLOOM_DEVICE void fence_if() {
  if constexpr (right) __threadfence();
}
template <bool right>
GRADLOOM_DEVICE void sync_warp_if() {
  if constexpr (right) sync_warp();
}

// ---- shared memory and barriers -------------------------------------------------------------------------------------------------

template <bool right>
__global__ void read_neighbour(float* data, unsigned*) {
  __shared__ float tile[kThreads];
  tile[threadIdx.x] = data[threadIdx.x];
  barrier_if<right>();
  data[threadIdx.x] = tile[(threadIdx.x + 1) % kThreads];
}

template <bool right>
__global__ void reuse_tile(float* data, unsigned*) {
  __shared__ float tile[kThreads];
  float sum = 0;
  for (unsigned k = 0; k < 3; ++k) {
    tile[threadIdx.x] = data[k * kThreads + threadIdx.x];
    __syncthreads();
    sum += tile[kThreads - 1 - threadIdx.x];
    barrier_if<right>();
  }
  data[threadIdx.x] = sum;
}

// The next tile is loaded while this one is read: one barrier a round is enough for two tiles, not for one.
template <bool right>
__global__ void double_buffer(float* data, unsigned*) {
  __shared__ float tiles[2][kThreads];
  tiles[0][threadIdx.x] = data[threadIdx.x];
  float sum = 0;
  for (unsigned k = 0; k < 4; ++k) {
    if (right || k % 2 == 0) __syncthreads();
    if (k < 3) tiles[(k + 1) % 2][threadIdx.x] = data[(k + 1) * kThreads + threadIdx.x];
    sum += tiles[k % 2][kThreads - 1 - threadIdx.x];
  }
  data[threadIdx.x] = sum;
}

template <bool right>
__global__ void tree_sum(float* data, unsigned*) {
  __shared__ float parts[kThreads];
  parts[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    barrier_if<right>();
  }
  if (threadIdx.x == 0) data[0] = parts[0];
}

// Hillis and Steele: what is read must be read by all before it is written.
template <bool right>
__global__ void scan(float* data, unsigned*) {
  __shared__ float sums[kThreads];
  sums[threadIdx.x] = data[threadIdx.x];
  for (unsigned back = 1; back < kThreads; back *= 2) {
    __syncthreads();
    const float more = threadIdx.x >= back ? sums[threadIdx.x - back] : 0;
    barrier_if<right>();
    sums[threadIdx.x] += more;
  }
  data[threadIdx.x] = sums[threadIdx.x];
}

// block_reduce() of gpu.h without its second barrier, called twice.
template <bool right>
GRADLOOM_DEVICE float reduce_once(float v) {
  __shared__ float parts[32];
  const unsigned lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes, warps = blockDim.x / kLanes;
  v = warp_reduce(v, Sum());
  if (lane == 0) parts[warp] = v;
  __syncthreads();
  v = warp_reduce(lane < warps ? parts[lane] : 0.0f, Sum());
  barrier_if<right>();
  return v;
}
template <bool right>
__global__ void reduce_twice(float* data, unsigned*) {
  const float sum = reduce_once<right>(data[threadIdx.x]);
  data[threadIdx.x] = reduce_once<right>(sum + 1);
}

template <bool right>
__global__ void broadcast(float* data, unsigned*) {
  __shared__ float value;
  if (threadIdx.x == 5) value = data[5];
  barrier_if<right>();
  data[kThreads + threadIdx.x] = value;
}

// Everybody reads, then one writes.
template <bool right>
__global__ void write_after_reads(float* data, unsigned*) {
  __shared__ float value;
  if (threadIdx.x == 0) value = 1;
  __syncthreads();
  data[threadIdx.x] = value;
  barrier_if<right>();
  if (threadIdx.x == 77) value = 2;
}

// Two pieces of dynamic shared memory that meet, or overlap by one element.
template <bool right>
__global__ void carve(float* data, unsigned*) {
  float* const first = dynamic_shared<float>();
  float* const second = first + kThreads - (right ? 0 : 1);
  first[threadIdx.x] = data[threadIdx.x];
  second[threadIdx.x] = 1;
  data[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x];
}

template <bool right>
__global__ void turn_in_place(float* data, unsigned*) {
  const unsigned row = threadIdx.x / 8, column = threadIdx.x % 8;
  const float v = data[column * 8 + row % 8];
  barrier_if<right>();
  if (row < 8) data[row * 8 + column] = v;
}

// ---- warps ----------------------------------------------------------------------------------------------------------------------

// A shuffle lets lanes wait for each other and orders no memory.
template <bool right>
__global__ void shuffle_between(float* data, unsigned*) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = data[threadIdx.x];
  const int lane = shuffle_xor(int(threadIdx.x), 1);
  sync_warp_if<right>();
  data[threadIdx.x] = values[lane];
}

template <bool right>
__global__ void ballot_between(float* data, unsigned*) {
  __shared__ float values[kThreads];
  if (threadIdx.x % kLanes == 0) values[threadIdx.x / kLanes] = 1;
  const bool any = ballot(data[threadIdx.x] > 0) != 0;
  sync_warp_if<right>();
  data[threadIdx.x] = any ? 0 : values[threadIdx.x / kLanes];
}

// The last steps of a tree, of one warp, as they were written for warps in lock step.
template <bool right>
__global__ void warp_tree(float* data, unsigned*) {
  __shared__ float parts[kLanes];
  parts[threadIdx.x] = data[threadIdx.x];
  sync_warp();
  for (unsigned half = kLanes / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    sync_warp_if<right>();
  }
  if (threadIdx.x == 0) data[0] = parts[0];
}

// Of this warp, or of the next: a warp's barrier is none of the block.
template <bool right>
__global__ void other_warp(float* data, unsigned*) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = data[threadIdx.x];
  sync_warp();
  data[threadIdx.x] = values[right ? threadIdx.x ^ 1 : (threadIdx.x + kLanes) % kThreads];
}

template <bool right>
__global__ void warp_reuses(float* data, unsigned*) {
  __shared__ float values[kThreads];
  float sum = 0;
  for (int k = 0; k < 3; ++k) {
    values[threadIdx.x] = data[threadIdx.x] + float(k);
    sync_warp();
    sum += values[threadIdx.x ^ 3];
    sync_warp_if<right>();
  }
  data[threadIdx.x] = sum;
}

// ---- blocks ---------------------------------------------------------------------------------------------------------------------

template <bool right>
__global__ void write_one_element(float* data, unsigned*) {
  data[right ? global_thread() : threadIdx.x] = float(blockIdx.x);
}

// The block's own elements and one of the next block's, in place.
template <bool right>
__global__ void stencil(float* data, unsigned*) {
  float* const to = data + (right ? gridDim.x * blockDim.x + 1 : 0);
  const float next = data[global_thread() + 1];
  __syncthreads();
  to[global_thread()] = next;
}

template <bool right>
__global__ void count(float*, unsigned* words) {
  if constexpr (right)
    atomicAdd(words, 1u);
  else
    *words += 1;
}

template <bool right>
__global__ void largest(float* data, unsigned* words) {
  const unsigned v = unsigned(data[global_thread()]);
  if constexpr (right)
    atomicMax(words, v);
  else if (*words < v + 1)
    *words = v + 1;
}

// A plain read of what others count.
template <bool right>
__global__ void read_counter(float* data, unsigned* words) {
  atomicAdd(words, 1u);
  data[global_thread()] = float(right ? atomicAdd(words, 0u) : *words);
}

// A plain write of what others count.
template <bool right>
__global__ void reset_counter(float*, unsigned* words) {
  if (global_thread() == 0) {
    if constexpr (right)
      atomicCAS(words, 1u, 0u);
    else
      *words = 0;
  }
  atomicAdd(words, 1u);
}

// A barrier orders the block, no other.
template <bool right>
__global__ void barrier_for_blocks(float* data, unsigned*) {
  data[global_thread()] = 1;
  __syncthreads();
  const unsigned block = right ? blockIdx.x : (blockIdx.x + 1) % gridDim.x;
  data[1024 + global_thread()] = data[block * blockDim.x + (threadIdx.x + 1) % blockDim.x];
}

// ---- fences and flags -----------------------------------------------------------------------------------------------------------

// CUDA's threadFenceReduction: the block that comes last adds what all have left.
template <bool release, bool acquire, bool join, bool share>
__global__ void last_block(float* data, unsigned* words) {
  __shared__ bool last;
  float* const parts = data + 2048;
  parts[global_thread()] = data[global_thread()];
  barrier_if<join>();
  if (threadIdx.x == 0) {
    fence_if<release>();
    last = atomicAdd(words, 1u) == gridDim.x - 1;
    fence_if<acquire>();
  }
  barrier_if<share>();
  if (!last) return;
  float sum = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) sum += parts[block * blockDim.x + threadIdx.x];
  data[threadIdx.x + 3072] = sum;
}

// Two blocks of one thread; the second finds the first one's flag. Volatile accesses are strong.
template <bool release, bool acquire, bool strong>
__global__ void flags(float* data, unsigned* words) {
  const unsigned mine = blockIdx.x, other = 1 - mine;
  data[mine] = 1;
  fence_if<release>();
  if constexpr (strong)
    *static_cast<volatile unsigned*>(words + mine) = 1;
  else
    words[mine] = 1;
  const unsigned set = strong ? *static_cast<volatile unsigned*>(words + other) : words[other];
  fence_if<acquire>();
  if (set != 0) data[2 + mine] = data[other];
}

// What a flag passes on may be passed on again.
template <bool right>
__global__ void chain(float* data, unsigned* words) {
  if (atomicAdd(words, 0u) != 0) {
    __threadfence();
    for (unsigned i = 0; i < atomicAdd(words, 0u); ++i) data[1024] += data[i];
  }
  data[atomicAdd(words + 1, 1u)] = 1;
  fence_if<right>();
  atomicAdd(words, 1u);
}

// A fence alone orders nothing.
template <bool right>
__global__ void fence_without_flag(float* data, unsigned*) {
  data[global_thread()] = 1;
  __threadfence();
  if constexpr (right) __syncthreads();
  data[1024 + global_thread()] = data[global_thread() ^ 1];
}

// ---- pieces of memory -----------------------------------------------------------------------------------------------------------

template <bool right>
__global__ void histogram(float* data, unsigned* words) {
  __shared__ unsigned bins[8];
  if (threadIdx.x < 8) bins[threadIdx.x] = 0;
  __syncthreads();
  if constexpr (right)
    atomicAdd(bins + threadIdx.x % 8, unsigned(data[threadIdx.x]) + 1);
  else
    ++bins[threadIdx.x % 8];
  __syncthreads();
  if (threadIdx.x < 8) words[8 * blockIdx.x + threadIdx.x] = bins[threadIdx.x];
}

// Atomics before the zeros.
template <bool right>
__global__ void zero_then_count(float*, unsigned* words) {
  __shared__ unsigned bins[8];
  if (threadIdx.x < 8) bins[threadIdx.x] = 0;
  barrier_if<right>();
  atomicAdd(bins + threadIdx.x % 8, 1u);
  __syncthreads();
  if (threadIdx.x < 8) words[8 * blockIdx.x + threadIdx.x] = bins[threadIdx.x];
}

// Neighbouring bytes of a word are of different threads, or halves of one byte.
template <bool right>
__global__ void bytes_of_words(float* data, unsigned*) {
  auto* const bytes = reinterpret_cast<unsigned char*>(data);
  const unsigned t = global_thread();
  if constexpr (right)
    bytes[t] = static_cast<unsigned char>(t);
  else
    bytes[t / 2] = static_cast<unsigned char>(t % 2 == 0 ? (bytes[t / 2] & 0xF0u) | (t & 15)
                                                         : (bytes[t / 2] & 15u) | t << 4);
}

// 16 bytes at once, and the first of the next 16.
template <bool right>
__global__ void packs(float* data, unsigned*) {
  const unsigned at = 4 * threadIdx.x;
  Pack<float> pack = load_pack(data + at);
  pack.v[0] += right ? 1 : data[at + 4];
  store_pack(data + at, pack);
}

// Halves of a double's eight bytes.
template <bool right>
__global__ void wide_and_narrow(float* data, unsigned*) {
  auto* const wide = reinterpret_cast<double*>(data);
  if (threadIdx.x % 2 == 0) wide[threadIdx.x] = 1;
  data[2 * threadIdx.x + (right ? 1024 : threadIdx.x % 2 == 1 ? 0xFFFFFFFFu : 1024)] = 2;
}

// ---- the table ------------------------------------------------------------------------------------------------------------------

using Kernel = void (*)(float* data, unsigned* words);
struct Case {
  const char* name;
  Kernel racing, right;
  unsigned blocks, threads;
  const char* at;  // of the race
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

#define GRADLOOM_CASE(name, blocks, threads, at) \
  { #name, name < false>, name < true>, blocks, threads, at }
const Case kCases[] = {
    GRADLOOM_CASE(read_neighbour, 1, kThreads, "shared tile+"),
    GRADLOOM_CASE(reuse_tile, 1, kThreads, "shared tile+"),
    GRADLOOM_CASE(double_buffer, 1, kThreads, "shared tiles+"),
    GRADLOOM_CASE(tree_sum, 1, kThreads, "shared parts+"),
    GRADLOOM_CASE(scan, 1, kThreads, "shared sums+"),
    GRADLOOM_CASE(reduce_twice, 1, kThreads, "shared parts+"),
    GRADLOOM_CASE(broadcast, 1, kThreads, "shared value+0"),
    GRADLOOM_CASE(write_after_reads, 1, kThreads, "shared value+0"),
    GRADLOOM_CASE(carve, 1, kThreads, "shared+"),
    GRADLOOM_CASE(turn_in_place, 1, kThreads, "array (word 1 of the arguments)+"),
    GRADLOOM_CASE(shuffle_between, 1, kThreads, "shared values+"),
    GRADLOOM_CASE(ballot_between, 1, kThreads, "shared values+"),
    GRADLOOM_CASE(warp_tree, 1, kLanes, "shared parts+"),
    GRADLOOM_CASE(other_warp, 1, kThreads, "shared values+"),
    GRADLOOM_CASE(warp_reuses, 1, kThreads, "shared values+"),
    GRADLOOM_CASE(write_one_element, 3, kThreads, "array (word 1 of the arguments)+"),
    GRADLOOM_CASE(stencil, 3, kThreads, "array (word 1 of the arguments)+"),
    GRADLOOM_CASE(count, 2, 1, "array (word 2 of the arguments)+0"),
    GRADLOOM_CASE(largest, 2, kThreads, "array (word 2 of the arguments)+0"),
    GRADLOOM_CASE(read_counter, 2, 1, "array (word 2 of the arguments)+0"),
    GRADLOOM_CASE(reset_counter, 2, kThreads, "array (word 2 of the arguments)+0"),
    GRADLOOM_CASE(barrier_for_blocks, 3, kThreads, "array (word 1 of the arguments)+"),
    {"last_block_release", last_block<false, true, true, true>, last_block<true, true, true, true>, 4,
     kThreads, "array (word 1 of the arguments)+"},
    {"last_block_acquire", last_block<true, false, true, true>, last_block<true, true, true, true>, 4,
     kThreads, "array (word 1 of the arguments)+"},
    {"last_block_join", last_block<true, true, false, true>, last_block<true, true, true, true>, 4, kThreads,
     "array (word 1 of the arguments)+"},
    {"last_block_share", last_block<true, true, true, false>, last_block<true, true, true, true>, 4, kThreads,
     "shared last+0"},
    {"flags_release", flags<false, true, true>, flags<true, true, true>, 2, 1,
     "array (word 1 of the arguments)+"},
    {"flags_acquire", flags<true, false, true>, flags<true, true, true>, 2, 1,
     "array (word 1 of the arguments)+"},
    {"flags_weak", flags<true, true, false>, flags<true, true, true>, 2, 1,
     "array (word 2 of the arguments)+"},
    GRADLOOM_CASE(chain, 5, 1, "array (word 1 of the arguments)+"),
    GRADLOOM_CASE(fence_without_flag, 2, kThreads, "array (word 1 of the arguments)+"),
    GRADLOOM_CASE(histogram, 2, kThreads, "shared bins+"),
    GRADLOOM_CASE(zero_then_count, 2, kThreads, "shared bins+"),
    GRADLOOM_CASE(bytes_of_words, 2, 64, "array (word 1 of the arguments)+"),
    GRADLOOM_CASE(packs, 1, kThreads, "array (word 1 of the arguments)+"),
    GRADLOOM_CASE(wide_and_narrow, 1, kThreads, "array (word 1 of the arguments)+"),
};
#undef GRADLOOM_CASE

std::string fault_of(Kernel kernel, unsigned blocks, unsigned threads, host::ThreadOrder order,
                     int launches = 1) {
  Device device(order);
  float* const data = device.inout<float>("data", std::vector<float>(4096));
  auto* const words = device.inout<unsigned>("words", std::vector<unsigned>(16));
  for (int i = 0; i < launches; ++i)
    device.launch([&](Stream stream) {
      launch(stream, kernel, blocks, threads, 2 * kThreads * sizeof(float), data, words);
    });
  return device.fault() ? device.fault()->text : "";
}

std::vector<host::ThreadOrder> schedules() {
  std::vector<host::ThreadOrder> orders{{host::ThreadOrder::ascending}, {host::ThreadOrder::descending}};
  for (std::uint64_t seed = 100; seed < 105; ++seed) orders.push_back({host::ThreadOrder::shuffled, seed});
  return orders;
}

class HostRaces : public testing::TestWithParam<Case> {};

TEST_P(HostRaces, AreFoundInEveryOrderAndTheRelativeHasNone) {
  const Case& one = GetParam();
  for (const host::ThreadOrder order : schedules()) {
    const std::string text = fault_of(one.racing, one.blocks, one.threads, order);
    EXPECT_NE(text.find("race: its "), std::string::npos) << text;
    EXPECT_NE(text.find(std::string(" bytes at ") + one.at), std::string::npos) << text;
    EXPECT_EQ(fault_of(one.right, one.blocks, one.threads, order), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, HostRaces, testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

// ---- what is said, and what is no race ------------------------------------------------------------------------------------------

TEST(HostRaces, BothSidesAreNamed) {
  const std::string text = fault_of(write_one_element<false>, 3, kThreads, {host::ThreadOrder::descending});
  for (
      const char* part :
      {"kernel test::write_one_element<false>, block (1, 0, 0), thread (127, 0, 0): race: its write of 4 bytes at "
       "array (word 1 of the arguments)+508 (test::write_one_element<false>, program 0x",
       ") is not ordered after the write by block (2, 0, 0), thread (127, 0, 0) (test::write_one_element<false>, "})
    EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in \"" << text << '"';
}

TEST(HostRaces, SharedMemoryIsNamedWithItsByte) {
  const std::string text = fault_of(carve<false>, 1, kThreads, {});
  EXPECT_NE(text.find("race: its write of 4 bytes at shared+"), std::string::npos) << text;
}

TEST(HostRaces, KernelsOfAStreamAreOrdered) {
  EXPECT_EQ(fault_of(stencil<true>, 3, kThreads, {}, 3), "");
  EXPECT_EQ(fault_of(last_block<true, true, true, true>, 4, kThreads, {}, 1), "");
  EXPECT_EQ(fault_of(write_one_element<true>, 3, kThreads, {}, 3), "");
}

// More times of a warp than a clock has: earlier accesses are forgotten, and no race is made up.
template <bool right>
__global__ void long_loop(float* data, unsigned*) {
  __shared__ float values[kLanes];
  for (int k = 0; k < 70000; ++k) {
    values[threadIdx.x] = float(k);
    sync_warp();
    data[threadIdx.x] += values[threadIdx.x ^ 1];
    if (right || k != 69999) sync_warp();
  }
  values[threadIdx.x ^ 2] = 0;
}

TEST(HostRaces, ClocksThatEnd) {
  EXPECT_EQ(fault_of(long_loop<true>, 1, kLanes, {}), "");
  EXPECT_NE(fault_of(long_loop<false>, 1, kLanes, {}), "");
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
