// The executor: what it computes, and that every kind of fault it looks for is found and named.
#include "engine/device/gpu/host/executor.h"

#include <gtest/gtest-spi.h>

#include <numeric>

#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

constexpr unsigned kLanes = unsigned(kWarp);

std::string fault_of(const std::function<void(Stream)>& launcher, host::ThreadOrder order = {}) {
  Device device(order);
  device.launch(launcher);
  return device.fault() ? device.fault()->text : "";
}

void expect_parts(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in \"" << text << '"';
}

// ---- what is right --------------------------------------------------------------------------------------------------------------

__global__ void write_indices(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] += block * 1000 + thread;
}

TEST(HostExecutor, EveryThreadOfEveryBlockRunsOnce) {
  const dim3 grid{3, 2, 4}, block{5, 3, 2};
  const Results results = on_device([&](Device& device) {
    unsigned* out = device.out<unsigned>("out", 24 * 30);
    std::fill_n(out, 24 * 30, 0u);
    device.launch([&](Stream stream) { launch(stream, write_indices, grid, block, 0, out); });
  });
  const auto out = results.get<unsigned>("out");
  for (unsigned i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], i / 30 * 1000 + i % 30);
}

template <class T>
__global__ void reduce_block(const T* in, T* sum, T* largest) {
  const T v = in[blockIdx.x * blockDim.x + threadIdx.x];
  const T total = block_reduce(v, Sum(), T(0));
  const T peak = block_reduce(v, Max(), v);
  sum[blockIdx.x * blockDim.x + threadIdx.x] = total;
  if (threadIdx.x == 0) largest[blockIdx.x] = peak;
}

template <class T>
void expect_block_reduce(unsigned threads) {
  constexpr unsigned kBlocks = 3;
  const auto in = values<T>(kBlocks * threads, threads);
  const Results results = on_device([&](Device& device) {
    const T* x = device.in<T>(in);
    T* sum = device.out<T>("sum", in.size());
    T* largest = device.out<T>("largest", kBlocks);
    device.launch(
        [&](Stream stream) { launch(stream, reduce_block<T>, kBlocks, threads, 0, x, sum, largest); });
  });
  std::vector<double> sums, peaks;
  for (unsigned b = 0; b < kBlocks; ++b) {
    const auto* row = in.data() + b * threads;
    sums.insert(sums.end(), threads, std::accumulate(row, row + threads, 0.0));
    peaks.push_back(double(*std::max_element(row, row + threads)));
  }
  expect_close(results.get<T>("sum"), sums, tolerance<T>({1e-5, 1e-5}), "sum");
  expect_close(results.get<T>("largest"), peaks, {0, 0}, "largest");
}

TEST(HostExecutor, BlockReduceForEveryNumberOfWarps) {
  for (unsigned threads = kLanes; threads <= 1024; threads += kLanes) {
    expect_block_reduce<float>(threads);
    expect_block_reduce<double>(threads);
  }
}

__global__ void warp_functions(int* out) {
  const int lane = int(threadIdx.x) % kWarp;
  int* mine = out + 5 * threadIdx.x;
  mine[0] = shuffle_xor(lane, 3);
  mine[1] = shuffle_down(lane, 5);
  mine[2] = shuffle(lane, 7);
  const unsigned long long odd = ballot(lane % 2 == 1);
  mine[3] = int(odd >> 32);
  mine[4] = int(odd);
}

TEST(HostExecutor, WarpFunctions) {
  const Results results = on_device([&](Device& device) {
    int* out = device.out<int>("out", 5 * 2 * kLanes);
    device.launch([&](Stream stream) { launch(stream, warp_functions, 1, 2 * kLanes, 0, out); });
  });
  const auto out = results.get<int>("out");
  for (int t = 0; t < 2 * kWarp; ++t) {
    const int lane = t % kWarp;
    EXPECT_EQ(out[std::size_t(5 * t)], lane ^ 3);
    EXPECT_EQ(out[std::size_t(5 * t + 1)], lane + 5 < kWarp ? lane + 5 : lane);
    EXPECT_EQ(out[std::size_t(5 * t + 2)], 7);
    EXPECT_EQ(unsigned(out[std::size_t(5 * t + 3)]), kWarp == 64 ? 0xAAAAAAAAu : 0u);
    EXPECT_EQ(unsigned(out[std::size_t(5 * t + 4)]), 0xAAAAAAAAu);
  }
}

struct Given {
  int lane, twice[3];
};

// The second time from lanes that changed what they gave.
__global__ void gather_sums(int* out) {
  const int thread = int(threadIdx.x), lane = thread % kWarp;
  Given given{lane, {2 * thread, 0, 1}};
  for (int round = 0; round < 2; ++round) {
    const Given* const all = gather(given);
    int sum = 0;
    for (int other = 0; other < kWarp; ++other)
      sum += all[other].lane == other ? all[other].twice[0] + all[other].twice[2] : 1000000;
    out[2 * thread + round] = sum;
    given.twice[2] = 5;
  }
}

TEST(HostExecutor, LanesSeeWhatAllGive) {
  const Results results = on_device([&](Device& device) {
    int* out = device.out<int>("out", 2 * 2 * kLanes);
    device.launch([&](Stream stream) { launch(stream, gather_sums, 1, 2 * kLanes, 0, out); });
  });
  const auto out = results.get<int>("out");
  for (int t = 0; t < 2 * kWarp; ++t)
    for (int round = 0; round < 2; ++round)
      EXPECT_EQ(out[std::size_t(2 * t + round)],
                kWarp * (kWarp - 1) + t / kWarp * 2 * kWarp * kWarp + kWarp * (round == 0 ? 1 : 5));
}

__global__ void reverse_through_shared(const double* in, double* out) {
  auto* shared = dynamic_shared<double>();
  shared[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

TEST(HostExecutor, DynamicSharedMemory) {
  const auto in = values<double>(1000, 3);
  const Results results = on_device([&](Device& device) {
    const double* x = device.in<double>(in);
    double* y = device.out<double>("y", in.size());
    device.launch([&](Stream stream) { launch(stream, reverse_through_shared, 1, 1000, 8000, x, y); });
  });
  EXPECT_EQ(results.get<double>("y"), std::vector<double>(in.rbegin(), in.rend()));
}

__global__ void add_atomically(unsigned* sum, unsigned long long* long_sum, int* largest, int* swaps) {
  atomicAdd(sum, threadIdx.x);
  atomicAdd(long_sum, 1ull << 32);
  atomicMax(largest, int(threadIdx.x));
  if (atomicCAS(swaps, int(threadIdx.x), int(threadIdx.x) + 1) == int(threadIdx.x)) __threadfence();
}

TEST(HostExecutor, Atomics) {
  Device device({});
  auto* sum = device.inout<unsigned>("sum", {0});
  auto* long_sum = device.inout<unsigned long long>("long_sum", {0});
  auto* largest = device.inout<int>("largest", {-1});
  auto* swaps = device.inout<int>("swaps", {0});
  device.launch(
      [&](Stream stream) { launch(stream, add_atomically, 2, 100, 0, sum, long_sum, largest, swaps); });
  EXPECT_EQ(*sum, 2u * 4950u);
  EXPECT_EQ(*long_sum, 200ull << 32);
  EXPECT_EQ(*largest, 99);
  EXPECT_EQ(*swaps, 100);  // ascending threads: each finds its number
}

__global__ void count_only(unsigned* count) { atomicAdd(count, 1u); }

TEST(HostExecutor, ThousandsOfBlocksAndManyLaunchesReuseTheirStacks) {
  Device device({});
  auto* count = device.inout<unsigned>("count", {0});
  device.launch([&](Stream stream) {
    for (int i = 0; i < 50; ++i) launch(stream, count_only, 1000, 64, 0, count);
  });
  EXPECT_EQ(*count, 50u * 1000u * 64u);
}

TEST(HostExecutor, LaunchesKeepTheirArguments) {
  Device device({});
  auto* count = device.inout<unsigned>("count", {0});
  host::LaunchList list;
  {
    unsigned* local = count;
    launch(&list, count_only, 1, 1, 0, local);
    local = nullptr;
  }
  EXPECT_EQ(*count, 0u);  // nothing has run
  EXPECT_EQ(host::run(list.launches.at(0).get(), {}), std::nullopt);
  EXPECT_EQ(*count, 1u);
}

// ---- thread orders --------------------------------------------------------------------------------------------------------------

__global__ void order_of_threads(unsigned* next, unsigned* at) {
  at[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(next, 1u);
}

std::vector<unsigned> ranks(host::ThreadOrder order) {
  Device device(order);
  auto* next = device.inout<unsigned>("next", {0});
  auto* at = device.out<unsigned>("at", 6 * 96);
  device.launch([&](Stream stream) { launch(stream, order_of_threads, 6, 96, 0, next, at); });
  return {at, at + 6 * 96};
}

TEST(HostExecutor, ThreadOrders) {
  using host::ThreadOrder;
  std::vector<unsigned> all(6 * 96);
  std::iota(all.begin(), all.end(), 0u);
  EXPECT_EQ(ranks({ThreadOrder::ascending}), all);
  EXPECT_EQ(ranks({ThreadOrder::descending}), std::vector<unsigned>(all.rbegin(), all.rend()));
  const auto one = ranks({ThreadOrder::shuffled, 1}), two = ranks({ThreadOrder::shuffled, 2});
  EXPECT_NE(one, two);
  EXPECT_EQ(one, ranks({ThreadOrder::shuffled, 1}));
  EXPECT_TRUE(std::is_permutation(one.begin(), one.end(), all.begin()));
}

TEST(HostExecutor, ThreadOrdersHaveText) {
  EXPECT_EQ(host::parse_thread_order("descending")->kind, host::ThreadOrder::descending);
  EXPECT_EQ(host::parse_thread_order("shuffled:12")->seed, 12u);
  EXPECT_FALSE(host::parse_thread_order("shuffled"));
  EXPECT_FALSE(host::parse_thread_order("up"));
}

// Thread t reads what its neighbour writes, without a barrier between.
__global__ void neighbour_without_barrier(float* out) {
  __shared__ float values[64];
  values[threadIdx.x] = float(threadIdx.x);
  out[threadIdx.x] = values[(threadIdx.x + 1) % 64];
}

TEST(HostExecutor, MissingBarrierShowsInAnotherOrder) {
  std::vector<std::vector<unsigned char>> bits;
  for (const host::ThreadOrder order : thread_orders()) {
    Device device(order);
    float* out = device.out<float>("out", 64);
    device.launch([&](Stream stream) { launch(stream, neighbour_without_barrier, 1, 64, 0, out); });
    EXPECT_FALSE(device.fault());
    bits.push_back(device.finish().bytes["out"]);
  }
  EXPECT_NE(bits[0], bits[1]);
  EXPECT_NE(bits[0], bits[2]);
}

// Shared memory of the block before must not be seen.
__global__ void read_unwritten(float* out) {
  __shared__ float kept;
  float* dynamic = dynamic_shared<float>();
  if (blockIdx.x == 0) kept = dynamic[0] = 1;
  out[2 * blockIdx.x] = kept;
  out[2 * blockIdx.x + 1] = dynamic[0];
}

TEST(HostExecutor, SharedMemoryIsNanWhenABlockStarts) {
  Device device({});
  float* out = device.out<float>("out", 4);
  device.launch([&](Stream stream) { launch(stream, read_unwritten, 2, 1, 4, out); });
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 1.0f);
  EXPECT_TRUE(std::isnan(out[2]));
  EXPECT_TRUE(std::isnan(out[3]));
}

// ---- faults ---------------------------------------------------------------------------------------------------------------------

__global__ void early_return(int* out, int limit) {
  if (int(threadIdx.x) >= limit && blockIdx.x == 2) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

TEST(HostExecutor, BarrierThatNotAllThreadsReach) {
  for (const host::ThreadOrder order : thread_orders()) {
    std::vector<int> out(100);
    expect_parts(
        fault_of([&](Stream stream) { launch(stream, early_return, 4, 100, 0, out.data(), 97); }, order),
        {"kernel test::early_return, block (2, 0, 0), thread (97, 0, 0): __syncthreads() at "
         "executor_test.cpp:",
         "is reached by 97 of the 100 threads of the block; this one has returned"});
  }
}

__global__ void two_barriers() {
  if (threadIdx.x < 10)
    __syncthreads();
  else
    __syncthreads();
}

TEST(HostExecutor, BarriersAtDifferentPlaces) {
  expect_parts(
      fault_of([](Stream stream) { launch(stream, two_barriers, 1, 30, 0); }),
      {"kernel test::two_barriers, block (0, 0, 0), thread (10, 0, 0)",
       "10 of the 30 threads of the block; this one waits in __syncthreads() at executor_test.cpp:"});
}

__global__ void half_warp_shuffles(int* out) {
  if (int(threadIdx.x) % kWarp < kWarp / 2) out[threadIdx.x] = shuffle_xor(int(threadIdx.x), 1);
}

TEST(HostExecutor, WarpFunctionThatNotAllLanesReach) {
  std::vector<int> out(2 * kLanes);
  const std::string half = std::to_string(kLanes / 2);
  expect_parts(
      fault_of([&](Stream stream) { launch(stream, half_warp_shuffles, 1, 2 * kLanes, 0, out.data()); }),
      {"kernel test::half_warp_shuffles, block (0, 0, 0), thread (" + half +
           ", 0, 0): shuffle_xor at executor_test.cpp:",
       "by " + half + " of the " + std::to_string(kLanes) + " threads of the warp; this one has returned"});
}

__global__ void half_warp_gathers(int* out) {
  if (int(threadIdx.x) % kWarp < kWarp / 2) out[threadIdx.x] = gather(int(threadIdx.x))[0];
}

TEST(HostExecutor, GatherThatNotAllLanesReach) {
  std::vector<int> out(kLanes);
  expect_parts(fault_of([&](Stream stream) { launch(stream, half_warp_gathers, 1, kLanes, 0, out.data()); }),
               {"thread (" + std::to_string(kLanes / 2) + ", 0, 0): gather at executor_test.cpp:",
                "this one has returned"});
}

__global__ void ballot_against_barrier(int* out) {
  if (threadIdx.x == 3) __syncthreads();
  out[threadIdx.x] = int(ballot(true));
}

TEST(HostExecutor, WarpFunctionAgainstBarrier) {
  std::vector<int> out(kLanes);
  expect_parts(
      fault_of([&](Stream stream) { launch(stream, ballot_against_barrier, 1, kLanes, 0, out.data()); }),
      {"thread (3, 0, 0): ballot at", "this one waits in __syncthreads() at"});
}

template <int from>
__global__ void shuffle_from(int* out) {
  out[threadIdx.x] = shuffle(int(threadIdx.x), from);
}

TEST(HostExecutor, LaneOutsideTheWarp) {
  std::vector<int> out(kLanes);
  expect_parts(
      fault_of([&](Stream stream) { launch(stream, shuffle_from<kWarp>, 1, kLanes, 0, out.data()); }),
      {"kernel test::shuffle_from<" + std::to_string(kWarp) +
           ">, block (0, 0, 0), thread (0, 0, 0): shuffle at",
       "with lane " + std::to_string(kWarp) + ": a warp has " + std::to_string(kWarp)});
  expect_parts(fault_of([&](Stream stream) { launch(stream, shuffle_from<-1>, 1, kLanes, 0, out.data()); }),
               {"with lane -1"});
}

TEST(HostExecutor, WarpFunctionInABlockOfPartWarps) {
  std::vector<int> out(kLanes + 8);
  expect_parts(
      fault_of([&](Stream stream) { launch(stream, shuffle_from<0>, 1, kLanes + 8, 0, out.data()); }),
      {"in a block of " + std::to_string(kLanes + 8) + " threads, which is no multiple of " +
       std::to_string(kWarp)});
}

// Not compiled with ASan's checks, which would stop the program at the access.
__attribute__((no_sanitize("address"))) __global__ void write_shared_at(int index) {
  dynamic_shared<volatile float>()[index] = 1;
}

TEST(HostExecutor, WritesOutsideDynamicSharedMemory) {
  EXPECT_EQ(fault_of([](Stream stream) { launch(stream, write_shared_at, 1, 1, 40, 9); }), "");
  expect_parts(
      fault_of([](Stream stream) { launch(stream, write_shared_at, 1, 1, 40, 10); }),
      {"kernel test::write_shared_at, block (0, 0, 0)", "after the 40 bytes of dynamic shared memory"});
  expect_parts(fault_of([](Stream stream) { launch(stream, write_shared_at, 1, 1, 40, -1); }),
               {"before dynamic shared memory"});
}

__global__ void static_shared(float* out) {
  __shared__ float tile[10000];
  tile[threadIdx.x] = float(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

#if defined(__SANITIZE_ADDRESS__)
__global__ void read_shared_at(float* out, int index, bool dynamic) {
  __shared__ float values[10];
  values[threadIdx.x] = 0;
  *out = dynamic ? dynamic_shared<float>()[index] : values[index];
}

TEST(HostExecutorDeathTest, AnyAccessOutsideSharedMemoryUnderAsan) {
  const auto read = [](int index, bool dynamic) {
    float out = 0;
    return fault_of([&](Stream stream) { launch(stream, read_shared_at, 1, 1, 40, &out, index, dynamic); });
  };
  EXPECT_EQ(read(9, false) + read(9, true), "");
  EXPECT_DEATH(read(10, false), "global-buffer-overflow|out of bounds");
  EXPECT_DEATH(read(10, true), "use-after-poison");
  EXPECT_DEATH(read(-1, true), "use-after-poison");
}
#endif

TEST(HostExecutor, BadLaunches) {
  unsigned count = 0;
  const auto fault = [&](dim3 grid, dim3 block, std::size_t shared) {
    return fault_of([&](Stream stream) { launch(stream, count_only, grid, block, shared, &count); });
  };
  expect_parts(fault({0}, {1}, 0), {"kernel test::count_only: bad grid (0, 1, 1)"});
  expect_parts(fault({1, 70000}, {1}, 0), {"bad grid (1, 70000, 1)"});
  expect_parts(fault({1}, {0}, 0), {"bad block (0, 1, 1)"});
  expect_parts(fault({1}, {1025}, 0), {"bad block (1025, 1, 1)"});
  expect_parts(fault({1}, {32, 33}, 0), {"no more than 1024 in all"});
  expect_parts(fault({1}, {1}, 49153),
               {"49153 bytes of dynamic and 0 of static shared memory; a block may have 49152"});
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(fault({1}, {1024}, 49152), "");
  EXPECT_EQ(count, 1024u);
}

TEST(HostExecutor, StaticSharedMemoryCounts) {
  std::vector<float> out(8);
  EXPECT_EQ(fault_of([&](Stream stream) { launch(stream, static_shared, 1, 8, 9152, out.data()); }), "");
  expect_parts(fault_of([&](Stream stream) { launch(stream, static_shared, 1, 8, 9156, out.data()); }),
               {"9156 bytes of dynamic and 40000 of static shared memory"});
}

TEST(HostExecutor, RunsOnAfterAFault) {
  std::vector<int> out(100);
  EXPECT_NE(fault_of([&](Stream stream) { launch(stream, early_return, 3, 100, 0, out.data(), 1); }), "");
  EXPECT_EQ(fault_of([&](Stream stream) { launch(stream, early_return, 3, 100, 0, out.data(), 100); }), "");
  EXPECT_EQ(out, std::vector<int>(100, 1));
}

// ---- the harness itself ---------------------------------------------------------------------------------------------------------

TEST(HostExecutor, BuffersFindWritesAroundThem) {
  Buffer buffer("b", 10, 4);
  buffer.expect_guards();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 4u);
  buffer.data()[-1] = 1;
  EXPECT_NONFATAL_FAILURE(buffer.expect_guards(), "written before buffer b");
  buffer.data()[-1] = 0xA5;
  buffer.data()[10] = 1;
  EXPECT_NONFATAL_FAILURE(buffer.expect_guards(), "written after buffer b");
}

TEST(HostExecutor, HarnessFindsWrittenInputs) {
  Device device({});
  const_cast<float*>(device.in<float>({1, 2}))[1] = 3;
  EXPECT_NONFATAL_FAILURE(device.finish(), "input 0 was written");
}

TEST(HostExecutor, HarnessFindsBitsThatDependOnTheOrder) {
  EXPECT_NONFATAL_FAILURE(on_device([](Device& device) {
                            static int run = 0;
                            *device.out<int>("y", 1) = ++run < 3 ? 1 : 2;
                          }),
                          "y differs in thread order 2");
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
