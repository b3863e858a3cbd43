#include "engine/device/gpu/host/executor.h"

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <numeric>
#include <string_view>

#include "engine/device/gpu/host/accesses.h"
#include "engine/device/gpu/host/races.h"
#include "engine/device/gpu/host/sanitizer.h"
#include "engine/device/gpu/host/symbols.h"

namespace gradloom::kernels::gpu::host {
namespace {

namespace context = boost::context;

constexpr unsigned kMaxThreads = 1024;
constexpr std::size_t kGuardBytes = 1024;
constexpr unsigned char kGuardByte = 0xA5, kUnwritten = 0xFF;  // every float of 0xFF bytes is NaN

void barrier(Place place);
void exchange(Wait wait, const void* in, void* out, Size bytes, int lane, Place place);
const void* gather(const void* in, Size bytes, Place place);
Machine the_machine{.barrier = barrier, .exchange = exchange, .gather = gather};

const char* wait_name(Wait wait) {
  switch (wait) {
    case Wait::barrier: return "__syncthreads()";
    case Wait::shuffle_xor: return "shuffle_xor";
    case Wait::shuffle_down: return "shuffle_down";
    case Wait::shuffle: return "shuffle";
    case Wait::ballot: return "ballot";
    case Wait::gather: return "gather";
    case Wait::sync_warp: return "sync_warp";
  }
  return "";
}

std::string text_of(Wait wait, Place place) {
  const std::string_view file = place.file;
  return std::string(wait_name(wait)) + " at " + std::string(file.substr(file.rfind('/') + 1)) + ":" +
         std::to_string(place.line);
}

std::string text_of(const dim3& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

dim3 unflatten(unsigned long long i, const dim3& dims) {
  return {unsigned(i % dims.x), unsigned(i / dims.x % dims.y), unsigned(i / dims.x / dims.y)};
}

std::uint64_t mix(std::uint64_t z) {  // SplitMix64 (Steele et al. 2014)
  z = (z + 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Block `i` of `n` in this order. Shuffled: steps of a stride without common divisor with
// n, so that each comes once.
unsigned long long block_at(unsigned long long i, unsigned long long n, ThreadOrder order) {
  if (order.kind == ThreadOrder::ascending) return i;
  if (order.kind == ThreadOrder::descending) return n - 1 - i;
  unsigned long long stride = mix(order.seed) % n;
  while (std::gcd(stride, n) != 1) ++stride;
  const auto product = static_cast<unsigned __int128>(i) * stride + mix(order.seed + 1) % n;
  return static_cast<unsigned long long>(product % n);
}

// Whole warps in this order, and lanes within them.
std::vector<unsigned> thread_list(unsigned threads, ThreadOrder order) {
  std::vector<unsigned> list(threads);
  std::iota(list.begin(), list.end(), 0u);
  if (order.kind == ThreadOrder::descending) std::reverse(list.begin(), list.end());
  if (order.kind != ThreadOrder::shuffled) return list;
  const auto key = [&](unsigned t) {
    return std::pair(mix(order.seed ^ mix(t / unsigned(kWarp))), mix(order.seed + t));
  };
  std::sort(list.begin(), list.end(), [&](unsigned a, unsigned b) { return key(a) < key(b); });
  return list;
}

// A stack on which threads run, one after another. All are kept for the next block.
struct Worker {
  context::fiber fiber;  // where it stopped
  StackNotes notes;
  MemoryRange stack;
};

// Stacks as boost maps them, with a guard page; ASan's marks are wiped before the addresses go back.
struct StackAllocator {
  context::protected_fixedsize_stack stacks{std::size_t(kSanitized ? 512 : 128) * 1024};
  context::stack_context allocate() { return stacks.allocate(); }
  void deallocate(context::stack_context& stack) {
    unpoison(static_cast<unsigned char*>(stack.sp) - stack.size, stack.size);
    stacks.deallocate(stack);
  }
};

// One thread of the running block.
struct Thread {
  enum State : unsigned char { fresh, ready, waiting, returned } state = fresh;
  Wait wait = Wait::barrier;
  Place place{};
  int lane = 0;  // of a warp function: its argument
  Worker* worker = nullptr;
  alignas(16) unsigned char in[16] = {}, out[16] = {};
  const void* given = nullptr;  // to gather
  std::size_t given_bytes = 0;
};

// Unwinds the threads of a block that has failed, back to their worker. The only exception of ours; it never
// leaves this file's frames and the kernel's.
struct Abandoned {};

class Executor {
 public:
  Executor() : dynamic_(std::make_unique<unsigned char[]>(kGuardBytes + kSharedBytes + kGuardBytes)) {}
  ~Executor();
  std::optional<Fault> run(const Launch& launch, ThreadOrder order);

  void wait(Wait wait, Place place, int lane, const void* in, void* out, std::size_t bytes);
  const void* gather(const void* in, std::size_t bytes, Place place);

 private:
  void begin_races();
  void run_block(const KernelSymbol& symbol);
  void start_threads();
  void resume_ready(unsigned first, unsigned last);
  void settle_warps();
  bool release_warp(unsigned warp);
  bool release_barrier();
  void exchange_lanes(unsigned first);
  void gather_lanes(unsigned first);
  void report_missing(unsigned first, unsigned last, unsigned waiting);
  void check_lane(Wait wait, Place place, int lane);
  void fail(unsigned thread, const std::string& what);
  void abandon_threads();
  void look(Worker& worker);
  void look_away();
  std::string place_of(const Race& race) const;
  std::string race_text(const Race& race) const;
  void fill_shared(const KernelSymbol& symbol);
  void check_dynamic_shared();

  Worker& idle_worker();
  void enter(Worker& worker);
  void leave(Worker& worker);
  void work(Worker& self);
  unsigned char* dynamic() const { return dynamic_.get() + kGuardBytes; }

  std::unique_ptr<unsigned char[]> dynamic_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
  context::fiber main_;
  StackNotes main_notes_;
  bool quitting_ = false;

  // The running launch and block.
  const Launch* launch_ = nullptr;
  std::string kernel_;
  std::vector<unsigned> order_;
  unsigned next_ = 0, count_ = 0, returned_ = 0, current_ = 0;
  std::vector<Thread> threads_{kMaxThreads};
  std::optional<Fault> fault_;
  Races races_;
  alignas(16) std::array<unsigned char, kGatherBytes * std::size_t(kWarp)> gathered_{};  // of the latest warp
};

Executor& executor() {
  static Executor one;
  return one;
}

// ---- stacks ---------------------------------------------------------------------------------------------------------------------

Worker& Executor::idle_worker() {
  if (!idle_.empty()) {
    Worker& worker = *idle_.back();
    idle_.pop_back();
    return worker;
  }
  Worker& worker = *workers_.emplace_back(std::make_unique<Worker>());
  StackAllocator allocator;
  const context::stack_context stack = allocator.allocate();
  worker.notes.create(static_cast<unsigned char*>(stack.sp) - stack.size, stack.size);
  worker.stack = range_of(static_cast<unsigned char*>(stack.sp) - stack.size, stack.size);
  worker.fiber = context::fiber(std::allocator_arg, context::preallocated(stack.sp, stack.size, stack),
                                allocator, [this, &worker](context::fiber&& from) {
                                  main_ = std::move(from);
                                  worker.notes.entered(main_notes_);
                                  work(worker);
                                  worker.notes.leaving_for_good(main_notes_);
                                  return std::move(main_);
                                });
  return worker;
}

void Executor::enter(Worker& worker) {
  main_notes_.leaving(worker.notes);
  worker.fiber = std::move(worker.fiber).resume();
  main_notes_.entered(worker.notes);
}

void Executor::leave(Worker& worker) {
  worker.notes.leaving(main_notes_);
  main_ = std::move(main_).resume();
  worker.notes.entered(main_notes_);
}

void Executor::work(Worker& self) {
  while (!quitting_) {
    while (next_ < count_ && !fault_) {
      current_ = order_[next_++];
      threads_[current_].worker = &self;
      the_machine.thread = unflatten(current_, launch_->block);
      look(self);
      try {
        launch_->thread(launch_->closure);
      } catch (const Abandoned&) {
      }
      look_away();
      threads_[current_].state = Thread::returned;  // current_ is again this thread's: resume_ready() says so
      ++returned_;
    }
    idle_.push_back(&self);
    leave(self);
  }
}

Executor::~Executor() {
  quitting_ = true;
  for (auto& worker : workers_) {
    enter(*worker);
    worker->notes.destroy();
  }
}

// ---- one block ------------------------------------------------------------------------------------------------------------------

void Executor::run_block(const KernelSymbol& symbol) {
  fill_shared(symbol);
  std::for_each_n(threads_.begin(), count_, [](Thread& thread) { thread.state = Thread::fresh; });
  next_ = returned_ = 0;
  start_threads();
  settle_warps();
  while (!fault_ && returned_ < count_ && release_barrier()) {
    resume_ready(0, count_);
    settle_warps();
  }
  if (fault_) abandon_threads();
  check_dynamic_shared();
}

// Until every thread has returned or waits.
void Executor::start_threads() {
  while (next_ < count_ && !fault_) enter(idle_worker());
}

// Positions of order_.
void Executor::resume_ready(unsigned first, unsigned last) {
  for (unsigned i = first; i < last && !fault_; ++i) {
    Thread& thread = threads_[order_[i]];
    if (thread.state != Thread::ready) continue;
    current_ = order_[i];
    the_machine.thread = unflatten(current_, launch_->block);
    enter(*thread.worker);
  }
}

// Each warp on, until its lanes have returned or wait for the block.
void Executor::settle_warps() {
  for (unsigned first = 0; first < count_ && !fault_; first += unsigned(kWarp)) {
    const unsigned last = std::min(first + unsigned(kWarp), count_);
    while (!fault_ && release_warp(first)) resume_ready(first, last);
  }
}

// Whether lanes of the warp that starts at this position of order_ may go on. Positions of a warp are
// together in every order; only in blocks that are no whole number of warps are they not, and there warp
// functions fail before they wait.
bool Executor::release_warp(unsigned first) {
  unsigned waiting = count_;
  const unsigned last = std::min(first + unsigned(kWarp), count_);
  for (unsigned i = first; i < last; ++i) {
    const Thread& thread = threads_[order_[i]];
    if (thread.state == Thread::waiting && thread.wait != Wait::barrier) waiting = order_[i];
  }
  if (waiting == count_) return false;
  report_missing(first, last, waiting);
  if (!fault_) exchange_lanes(order_[first] / unsigned(kWarp) * unsigned(kWarp));
  return !fault_;
}

bool Executor::release_barrier() {
  unsigned waiting = 0;
  while (threads_[waiting].state == Thread::returned) ++waiting;
  report_missing(0, count_, waiting);
  if (fault_) return false;
  if (kSeesAccesses) races_.barrier();
  std::for_each_n(threads_.begin(), count_, [](Thread& thread) { thread.state = Thread::ready; });
  return true;
}

// All threads at these positions must wait where thread `waiting` does.
void Executor::report_missing(unsigned first, unsigned last, unsigned waiting) {
  const Thread& here = threads_[waiting];
  const auto arrived = [&](unsigned t) {
    const Thread& thread = threads_[t];
    return thread.state == Thread::waiting && thread.wait == here.wait &&
           thread.place.line == here.place.line &&
           (thread.place.file == here.place.file || std::strcmp(thread.place.file, here.place.file) == 0);
  };
  unsigned count = 0, missing = count_;
  for (unsigned i = first; i < last; ++i) {
    if (arrived(order_[i]))
      ++count;
    else
      missing = std::min(missing, order_[i]);
  }
  if (missing == count_) return;
  const Thread& other = threads_[missing];
  fail(missing, text_of(here.wait, here.place) + " is reached by " + std::to_string(count) + " of the " +
                    std::to_string(last - first) + " threads of the " +
                    (here.wait == Wait::barrier ? "block" : "warp") + "; this one " +
                    (other.state == Thread::returned ? "has returned"
                                                     : "waits in " + text_of(other.wait, other.place)));
}

void Executor::exchange_lanes(unsigned first) {
  if (threads_[first].wait == Wait::gather) return gather_lanes(first);
  if (kSeesAccesses && threads_[first].wait == Wait::sync_warp) races_.sync_warp(first / unsigned(kWarp));
  unsigned long long mask = 0;  // of ballot
  for (unsigned lane = 0; lane < unsigned(kWarp); ++lane)
    mask |= static_cast<unsigned long long>(threads_[first + lane].in[0] != 0) << lane;
  for (unsigned lane = 0; lane < unsigned(kWarp); ++lane) {
    Thread& thread = threads_[first + lane];
    unsigned from = unsigned(thread.lane);
    if (thread.wait == Wait::shuffle_xor) from ^= lane;
    if (thread.wait == Wait::shuffle_down)
      from = lane + from < unsigned(kWarp) ? lane + from : lane;  // no such lane: its own value
    if (thread.wait == Wait::ballot)
      std::memcpy(thread.out, &mask, sizeof mask);
    else
      std::memcpy(thread.out, threads_[first + from].in, sizeof thread.out);
    thread.state = Thread::ready;
  }
}

void Executor::gather_lanes(unsigned first) {
  unsigned char* to = gathered_.data();
  for (unsigned lane = 0; lane < unsigned(kWarp); ++lane) {
    Thread& thread = threads_[first + lane];
    std::memcpy(to, thread.given, thread.given_bytes);
    to += thread.given_bytes;
    thread.state = Thread::ready;
  }
}

// Called by the running thread. What it returns stays while the lanes of its warp go on, one after another: they can give
// more only where all wait again.
const void* Executor::gather(const void* in, std::size_t bytes, Place place) {
  threads_[current_].given = in;
  threads_[current_].given_bytes = bytes;
  wait(Wait::gather, place, 0, nullptr, nullptr, 0);
  return gathered_.data();
}

// Called by the running thread.
void Executor::wait(Wait wait, Place place, int lane, const void* in, void* out, std::size_t bytes) {
  look_away();
  Thread& thread = threads_[current_];
  thread.wait = wait;
  thread.place = place;
  thread.lane = lane;
  thread.state = Thread::waiting;
  if (wait != Wait::barrier) check_lane(wait, place, lane);
  if (bytes > 0) std::memcpy(thread.in, in, bytes);
  if (!fault_) leave(*thread.worker);
  if (fault_) throw Abandoned{};
  if (bytes > 0) std::memcpy(out, thread.out, bytes);
  look(*thread.worker);
}

// Each warp function of each thread comes here: no text before there is a fault.
void Executor::check_lane(Wait wait, Place place, int lane) {
  const bool whole_warps = count_ % unsigned(kWarp) == 0;
  if (whole_warps && lane >= 0 && lane < kWarp) return;
  const std::string where = text_of(wait, place);
  if (!whole_warps)
    fail(current_, where + " in a block of " + std::to_string(count_) + " threads, which is no multiple of " +
                       std::to_string(kWarp));
  else
    fail(current_, where + " with lane " + std::to_string(lane) + ": a warp has " + std::to_string(kWarp));
}

void Executor::fail(unsigned thread, const std::string& what) {
  if (fault_) return;
  fault_ = Fault{false, "kernel " + kernel_ + ", block " + text_of(the_machine.block) + ", thread " +
                            text_of(unflatten(thread, launch_->block)) + ": " + what};
}

void Executor::abandon_threads() {
  for (unsigned t = 0; t < count_; ++t) {
    if (threads_[t].state != Thread::waiting && threads_[t].state != Thread::ready) continue;
    current_ = t;
    enter(*threads_[t].worker);
  }
}

// ---- accesses -------------------------------------------------------------------------------------------------------------------

// The kernel's code runs from here on, as the current thread.
void Executor::look(Worker& worker) {
  if (!kSeesAccesses) return;
  races_.run_thread(current_, worker.stack);
  see_accesses(&races_);
}

void Executor::look_away() {
  if (!kSeesAccesses) return;
  see_accesses(nullptr);
  if (races_.race()) fail(current_, race_text(*races_.race()));
}

// Where the access is: in shared memory, or behind the nearest address among the kernel's arguments.
std::string Executor::place_of(const Race& race) const {
  if (race.shared) {
    if (range_of(dynamic(), launch_->shared_bytes).holds(race.at))
      return "shared+" + std::to_string(race.at - reinterpret_cast<std::uintptr_t>(dynamic()));
    return shared_name(reinterpret_cast<const void*>(race.at));
  }
  std::uintptr_t nearest = 0, word = 0;
  std::size_t number = 0;
  for (std::size_t i = 0; i < launch_->closure_bytes / sizeof word; ++i) {
    std::memcpy(&word, static_cast<const unsigned char*>(launch_->closure) + i * sizeof word, sizeof word);
    if (word > race.at || word <= nearest) continue;
    nearest = word;
    number = i;
  }
  return "array (word " + std::to_string(number) + " of the arguments)+" + std::to_string(race.at - nearest);
}

std::string Executor::race_text(const Race& race) const {
  const auto what = [](unsigned kind) {
    const std::string strong = (kind & kStrong) != 0 ? "strong " : "";
    return strong + ((kind & kWrites) == 0 ? "read" : (kind & kReads) != 0 ? "read and write" : "write");
  };
  const auto code = [](const Race::Side& side) {
    return " (" + code_name(reinterpret_cast<const void*>(side.code - 1)) + ")";
  };
  return "race: its " + what(race.later.kind) + " of " + std::to_string(race.bytes) + " bytes at " +
         place_of(race) + code(race.later) + " is not ordered after the " + what(race.earlier.kind) +
         " by block " + text_of(unflatten(race.earlier.block, launch_->grid)) + ", thread " +
         text_of(unflatten(race.earlier.thread, launch_->block)) + code(race.earlier);
}

// ---- shared memory --------------------------------------------------------------------------------------------------------------

void Executor::fill_shared(const KernelSymbol& symbol) {
  for (const SharedVariable& variable : symbol.shared) std::memset(variable.at, kUnwritten, variable.bytes);
  std::memset(dynamic(), kUnwritten, launch_->shared_bytes);
}

void Executor::check_dynamic_shared() {
  const std::size_t bytes = launch_->shared_bytes;
  unpoison(dynamic_.get(), kGuardBytes + kSharedBytes + kGuardBytes);
  const auto whole = [](const unsigned char* from, const unsigned char* to) {
    return std::all_of(from, to, [](unsigned char byte) { return byte == kGuardByte; });
  };
  if (!whole(dynamic() - kGuardBytes, dynamic()) && !fault_)
    fail(count_ - 1, "a thread of this block has written before dynamic shared memory");
  if (!whole(dynamic() + bytes, dynamic() + bytes + kGuardBytes) && !fault_)
    fail(count_ - 1, "a thread of this block has written after the " + std::to_string(bytes) +
                         " bytes of dynamic shared memory");
  poison(dynamic() - kGuardBytes, kGuardBytes);
  poison(dynamic() + bytes, kGuardBytes);
}

// ---- one launch -----------------------------------------------------------------------------------------------------------------

std::optional<Fault> check_symbol(const Launch& launch, const KernelSymbol& symbol) {
  const auto fault = [&](const std::string& text) {
    return Fault{true, "kernel " + symbol.name + ": " + text};
  };
  const dim3 &g = launch.grid, &b = launch.block;
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535)
    return fault("bad grid " + text_of(g) + ": 1 to 2147483647, 65535, 65535 blocks");
  if (b.x == 0 || b.y == 0 || b.z == 0 || b.x > 1024 || b.y > 1024 || b.z > 64 ||
      b.x * b.y * b.z > kMaxThreads)
    return fault("bad block " + text_of(b) + ": 1 to 1024, 1024, 64 threads and no more than 1024 in all");
  if (launch.shared_bytes + symbol.shared_bytes > kSharedBytes)
    return fault(std::to_string(launch.shared_bytes) + " bytes of dynamic and " +
                 std::to_string(symbol.shared_bytes) + " of static shared memory; a block may have " +
                 std::to_string(kSharedBytes));
  return std::nullopt;
}

void Executor::begin_races() {
  std::vector<MemoryRange> shared = writable_data();
  shared.push_back(range_of(dynamic(), launch_->shared_bytes));
  races_.begin_grid(count_, std::move(shared),
                    {range_of(&the_machine, sizeof the_machine),
                     range_of(&gradloom_gpu_machine, sizeof gradloom_gpu_machine),
                     range_of(launch_->closure, launch_->closure_bytes), range_of(this, sizeof *this)});
}

std::optional<Fault> Executor::run(const Launch& launch, ThreadOrder order) {
  const KernelSymbol symbol = kernel_symbol(launch.kernel);
  if (auto fault = check_symbol(launch, symbol)) return fault;
  launch_ = &launch;
  kernel_ = symbol.name;
  count_ = launch.block.x * launch.block.y * launch.block.z;
  order_ = thread_list(count_, order);
  fault_.reset();
  the_machine.grid_dims = launch.grid;
  the_machine.block_dims = launch.block;
  the_machine.dynamic_shared = dynamic();
  unpoison(dynamic_.get(), kGuardBytes + kSharedBytes + kGuardBytes);
  std::memset(dynamic_.get(), kGuardByte, kGuardBytes + kSharedBytes + kGuardBytes);
  poison(dynamic() - kGuardBytes, kGuardBytes);
  poison(dynamic() + launch.shared_bytes, kGuardBytes);
  if (kSeesAccesses) begin_races();
  const unsigned long long blocks =
      static_cast<unsigned long long>(launch.grid.x) * launch.grid.y * launch.grid.z;
  const unsigned long long first =
      order.last_blocks > 0 && order.last_blocks < blocks ? blocks - order.last_blocks : 0;
  for (unsigned long long i = first; i < blocks && !fault_; ++i) {
    const unsigned long long block = first > 0 ? i : block_at(i, blocks, order);
    the_machine.block = unflatten(block, launch.grid);
    if (kSeesAccesses) races_.begin_block(std::uint32_t(block));
    run_block(symbol);
  }
  return fault_;
}

void barrier(Place place) { executor().wait(Wait::barrier, place, 0, nullptr, nullptr, 0); }

void exchange(Wait wait, const void* in, void* out, Size bytes, int lane, Place place) {
  executor().wait(wait, place, lane, in, out, bytes);
}

const void* gather(const void* in, Size bytes, Place place) { return executor().gather(in, bytes, place); }

}  // namespace

extern "C" {
Machine* gradloom_gpu_machine = &the_machine;
}

std::optional<ThreadOrder> parse_thread_order(const char* text) {
  const std::string_view order = text;
  if (order == "ascending") return ThreadOrder{ThreadOrder::ascending};
  if (order == "descending") return ThreadOrder{ThreadOrder::descending};
  constexpr std::string_view kShuffled = "shuffled:";
  if (order.substr(0, kShuffled.size()) != kShuffled) return std::nullopt;
  return ThreadOrder{.kind = ThreadOrder::shuffled,
                     .seed = std::strtoull(text + kShuffled.size(), nullptr, 10)};
}

KeptLaunch::KeptLaunch(const Launch& launch)
    : launch_(launch), closure_(new std::byte[launch.closure_bytes]) {
  std::memcpy(closure_.get(), launch.closure, launch.closure_bytes);
  launch_.closure = closure_.get();
}

LaunchList::LaunchList()
    : Queue{[](Queue* queue, const Launch& launch) {
        static_cast<LaunchList*>(queue)->launches.emplace_back(launch);
      }} {}

std::optional<Fault> check(const Launch& launch) {
  return check_symbol(launch, kernel_symbol(launch.kernel));
}

bool sees_races() { return kSeesAccesses; }

std::optional<Fault> run(const Launch& launch, ThreadOrder order) {
  static std::mutex one_grid;
  const std::lock_guard lock(one_grid);
  return executor().run(launch, order);
}

}  // namespace gradloom::kernels::gpu::host
