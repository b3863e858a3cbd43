// Which accesses to memory of a running grid are ordered, and which are not: a happens-before checker for kernels on the host
// executor, whose order of threads is only one of those that a GPU may choose.
//
// Two accesses of different threads to the same byte race when one of them writes, not both are strong, and neither happens
// before the other. Strong are atomics and volatile accesses (PTX ISA, "Memory Consistency Model": relaxed; ours have the scope of the
// device). What happens before what:
//   - a thread's own accesses, in its order
//   - __syncthreads(): all before it by threads of the block, all after it; of shared and of global memory
//   - sync_warp(): the same for the warp. Shuffles, ballots and matrix products order no memory (CUDA Programming Guide, "Warp Shuffle
//     Functions")
//   - __threadfence(): what happened before a fence before a strong write, before what follows a fence after a strong read that
//     sees that write or an atomic one that follows it. A strong access without a fence orders nothing.
//   - kernels of a stream, one after another: a grid begins with nothing
//
// As in FastTrack (Flanagan and Freund, PLDI 2009) a piece of memory has its latest write and its latest reads that are not ordered,
// each with a time. A time is not a vector but (block, barriers passed, clock of the thread since): barriers order whole blocks, so
// a number tells. Only fences need sets of times.
//
// No race is reported that is none. Missed can be: races of a program path that no launch takes; a race with one of more than two
// unordered readers where fences order the others; what is older than the latest kMostCells pieces of memory; accesses that the compiler has
// removed or merged; memory written by the host or read by it meanwhile.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

namespace gradloom::kernels::gpu::host {

// Whether the kernels of this library report their accesses (accesses.cpp).
#if defined(GRADLOOM_GPU_RACES)
constexpr bool kSeesAccesses = true;
#else
constexpr bool kSeesAccesses = false;
#endif

struct MemoryRange {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  bool holds(std::uintptr_t at) const { return at - begin < bytes; }
  bool meets(std::uintptr_t at, std::size_t count) const { return at < begin + bytes && begin < at + count; }
};
inline MemoryRange range_of(const void* at, std::size_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(at), bytes};
}
// Of the program and its libraries. Kernels know no variables there but their own __shared__ ones (gpu.h).
std::vector<MemoryRange> writable_data();

// What an access does; a bit each.
enum AccessKind : unsigned { kPlain = 0, kReads = 1, kWrites = 2, kStrong = 4 };

struct Race {
  std::uintptr_t at;  // first byte of the later access
  std::size_t bytes;
  bool shared;
  struct Side {
    unsigned kind;                // AccessKind
    std::uint32_t block, thread;  // numbers
    std::uintptr_t code;          // of the instruction after
  } later, earlier;
};

// What a thread knows of others by fences: of each the time up to which all has happened before.
class Knowledge {
 public:
  struct Time {
    std::uint32_t barrier;
    std::uint16_t clock, warp_clock;  // of its own accesses, below that of its warp's
    auto operator<=>(const Time&) const = default;
  };
  bool empty() const { return times_.empty() && !everything_; }
  void add(std::uint32_t block, std::uint32_t thread, Time time);
  void add(const Knowledge& other);
  bool covers(std::uint32_t block, std::uint32_t thread, std::uint32_t barrier, std::uint16_t clock) const;

 private:
  std::map<std::uint64_t, Time> times_;  // by block << 10 | thread
  bool everything_ = false;              // too much to keep
};

class Races {
 public:
  // `apart`: memory whose accesses are none of the kernel's. Shared memory: what each block has anew.
  void begin_grid(unsigned threads, std::vector<MemoryRange> shared, std::vector<MemoryRange> apart);
  void begin_block(std::uint32_t block);
  // Whose accesses follow; what lies on its stack is its own.
  void run_thread(unsigned thread, MemoryRange stack);

  void barrier();
  void sync_warp(unsigned warp);
  void fence();
  void access(std::uintptr_t at, std::size_t bytes, unsigned kind, std::uintptr_t code);

  // The first one of the grid; nothing is looked at after it.
  const std::optional<Race>& race() const { return race_; }

 private:
  struct Access {
    std::uint64_t who = 0;    // block << 32 | barrier << 10 | thread
    std::uint64_t where = 0;  // code << 16 | clock; 0: no access
    std::uint32_t block() const { return std::uint32_t(who >> 32); }
    std::uint32_t barrier() const { return std::uint32_t(who) >> 10; }
    std::uint32_t thread() const { return std::uint32_t(who) & 1023; }
    std::uint16_t clock() const { return std::uint16_t(where); }
  };
  struct Readers {
    Access two[2];
  };
  struct Cell {
    Access write;
    Readers reads;
  };
  // Strong accesses of one place, and what those who read it there come to know by a fence.
  struct Strong {
    std::uintptr_t at;
    std::size_t bytes;
    Readers writes, reads;
    Knowledge sync;
  };
  struct Page {
    unsigned granule;  // bytes of a cell: as coarse as its accesses allow
    bool shared;
    std::vector<Cell> cells;
    std::vector<Strong> strong;
  };
  struct Thread {
    std::uint16_t clock = 0;
    bool fenced = false;
    Knowledge acquired, pending, released;  // pending: acquired at the next fence
  };
  // The access under way.
  struct Now {
    std::uintptr_t at;
    std::size_t bytes;
    unsigned kind;
    Access access;
    bool shared;
  };

  Page& page_at(std::uintptr_t base, unsigned granule);
  void refine(Page& page, unsigned granule);
  void forget();
  bool before(const Access& access, bool shared) const;
  bool same_time(const Access& access, const Access& now) const;
  void remember(Readers& readers, const Access& now, bool shared) const;
  bool check(const Access& earlier, unsigned kind, const Now& now);
  bool check(const Readers& earlier, unsigned kind, const Now& now);
  bool check_cell(Cell& cell, const Now& now);
  bool check_strong(Page& page, const Now& now);
  void take_strong(Page& page, const Now& now);
  void advance(Thread& thread);

  unsigned threads_count_ = 0;
  std::vector<MemoryRange> shared_, apart_;
  MemoryRange stack_;
  std::uint32_t block_ = 0, barrier_ = 0, thread_ = 0;
  std::vector<Thread> threads_;
  std::vector<std::uint16_t> warps_;  // the clock of the latest sync_warp()
  bool fences_ = false;               // in this block
  std::unordered_map<std::uintptr_t, Page> pages_;
  struct Recent {
    std::uintptr_t base = 0;
    Page* page = nullptr;
  };
  std::vector<Recent> recent_ = std::vector<Recent>(256);
  std::size_t cells_ = 0;
  std::optional<Race> race_;
};

}  // namespace gradloom::kernels::gpu::host
