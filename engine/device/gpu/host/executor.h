// Runs kernels of gpu.h on the CPU: the proof of their logic without a GPU. How to use it in a test:
// tests/kernels/gpu/support.h.
//
// A grid runs block by block on the calling OS thread. Each thread of a block runs until it waits (barrier,
// warp function) and then keeps its stack; threads that never wait share one stack and are a plain loop.
// Found as faults, each with kernel, block and thread:
//   - __syncthreads() that not all threads of the block reach, or that they reach at different places
//   - a warp function that not all lanes of the warp reach, a lane outside the warp, blocks that are no whole number of warps
//   - writes outside dynamic shared memory (under ASan: any access outside shared memory, at the access itself)
//   - bad grids and blocks, more than 48 KiB of shared memory (dynamic, and static of the kernel itself)
//   - where kernels are compiled so that their accesses are seen (sees_races()): races of threads, warps and blocks (races.h)
// and as wrong results: shared memory that was not written (NaN), missing barriers (results differ between
// thread orders), launchers that give kernels pointers to their own variables (launches run after them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/gpu/gpu.h"

namespace gradloom::kernels::gpu::host {

// The order in which blocks run, and threads between two barriers.
struct ThreadOrder {
  enum Kind { ascending, descending, shuffled } kind = ascending;
  std::uint64_t seed = 0;  // of shuffled
  // Only so many of the grid's last blocks run, of tensors too large to be gone through; 0: all.
  unsigned long long last_blocks = 0;
};
// "ascending", "descending" or "shuffled:SEED".
std::optional<ThreadOrder> parse_thread_order(const char* text);

// A launch that keeps its arguments.
class KeptLaunch {
 public:
  explicit KeptLaunch(const Launch& launch);
  const Launch& get() const { return launch_; }

 private:
  Launch launch_;
  std::unique_ptr<std::byte[]> closure_;  // at a 16-byte boundary, as new gives it
};

// A stream that keeps what launchers launch.
struct LaunchList : Queue {
  LaunchList();
  std::vector<KeptLaunch> launches;
};

struct Fault {
  bool of_launch;  // the launch itself is wrong and nothing has run; else the kernel is
  std::string text;
};

// Whether grid, block and shared memory are what a GPU takes.
std::optional<Fault> check(const Launch& launch);
// Runs one launch to its end, after check(). Safe to call from several OS threads: one grid runs at a time.
std::optional<Fault> run(const Launch& launch, ThreadOrder order);

// Whether the kernels of this library report their accesses.
bool sees_races();

constexpr std::size_t kSharedBytes = 49152;  // 48 KiB

}  // namespace gradloom::kernels::gpu::host
