// A region is one call of run_parts. Its parts are cut into chunks, and each thread of the team
// has a range of them, whose next chunk is told by a ticket: the region's epoch and, below it, a
// number. A thread takes the chunks of its own range first, because their data lie in its caches,
// then those of others. It takes one by raising the ticket, which fails once the region is over:
// a thread that comes late touches nothing of the next.
#include "kernels/threads.h"

#include <linux/futex.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <exception>
#include <new>
#include <utility>

#include "kernels/clock.h"
#include "kernels/signals.h"
#include "kernels/thread_watch.h"

namespace gradloom::kernels {
namespace {

constexpr std::int64_t kChunksPerThread = 8;
constexpr int kNumberBits = 16;  // of a ticket, below the epoch
constexpr std::uint64_t kClosed = (std::uint64_t{1} << kNumberBits) - 1;
static_assert(kMostThreads * kChunksPerThread < std::int64_t{kClosed});
constexpr std::size_t kStackBytes = 4 << 20;  // enough for every kernel, whatever the limits of the shell

// How long to wait before sleeping: to wake a thread takes several microseconds, and most regions of a
// training step follow each other faster than this (gpt-char, two threads on a machine with other work: 20 us
// cost 11 % of a step, 200 us nothing). And how long before looking whether the one that is waited for runs.
constexpr std::int64_t kSpinNs = 200000, kLookNs = 50000;

// A thread that computes parts, as the others see it. Each has its cache lines for itself:
// two, as they come in pairs.
struct alignas(128) Member {
  std::atomic<std::uint64_t> ticket{0};
  std::atomic<bool> computing{false};
  std::atomic<int> processor{-1};
  std::atomic<pid_t> id{0};
  std::atomic<clockid_t> clock{0};  // counts the time that it runs
  ThreadTime noted;  // its own until a region that is watched is over, then the caller's; busy_ns 0: nothing
};

struct Region {
  std::atomic<bool> failed{false};
  std::exception_ptr failure;  // of the one that set `failed`
  std::atomic<PartsBody> body{nullptr};
  std::atomic<void*> context{nullptr};
  std::atomic<std::int64_t> parts{0};
  std::atomic<std::int64_t> chunks{0};
  std::atomic<int> team{0};
  std::atomic<bool> watched{false};  // who began it watches
};

Member members[kMostThreads];  // 0: the caller
Region region;
alignas(128) std::atomic<std::uint32_t> epoch{0};        // a futex: idle threads sleep on it
alignas(128) std::atomic<std::int32_t> asleep{0};        // how many do
alignas(128) std::atomic<std::uint32_t> chunks_left{0};  // a futex: the caller sleeps on it
alignas(128) std::atomic<bool> caller_sleeps{false};
std::atomic<std::uint32_t> resizes{0};                 // a futex: threads beyond the count sleep on it
std::atomic<int> wanted{0};                            // set_threads; 0: as many as there are processors
std::atomic<int> started{1}, startable{kMostThreads};  // the caller included
std::atomic<bool> occupied{false};                     // a region runs
std::atomic<std::uint32_t> lent_in{0};                 // the epoch in which a thread lent to the caller
std::atomic<bool> moving{false};                       // a thread is being moved between processors
std::atomic<bool> watched{false};                      // a ThreadWatch is there
std::int64_t waited_ns = 0;                            // its thread, for parts of others
std::uint64_t last_epoch = 0;                          // of whoever has set `occupied`
int last_team = 0;                                     // the same

thread_local int own_number = 0;
thread_local pid_t own_id = 0;  // the system's; 0: not asked yet
thread_local bool computes_parts = false;
thread_local bool watches = false;  // the ThreadWatch is this thread's

struct Scratch {
  void* memory = nullptr;
  std::size_t bytes = 0;
  ~Scratch() { std::free(memory); }
};
thread_local Scratch scratch;

// Returns when `word` may have changed from `value`.
template <class Word>
void sleep_on(std::atomic<Word>& word, Word value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
template <class Word>
void wake_all(std::atomic<Word>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void register_as(Member& member) {
  if (own_id == 0) own_id = static_cast<pid_t>(syscall(SYS_gettid));
  if (member.id.load(std::memory_order_relaxed) != own_id) {
    clockid_t clock{};
    if (pthread_getcpuclockid(pthread_self(), &clock) != 0) clock = CLOCK_MONOTONIC;  // seems to run always
    member.clock.store(clock, std::memory_order_relaxed);
    member.id.store(own_id, std::memory_order_relaxed);
  }
  member.processor.store(sched_getcpu(), std::memory_order_relaxed);
}

// ---- processors -------------------------------------------------------------------------------------------------

// Moves a thread for now: to one processor, or away from it.
// Afterwards it may again be where it might be before.
void move_thread(pid_t id, int processor, bool to_it) {
  if (processor < 0 || processor >= CPU_SETSIZE || moving.exchange(true)) return;
  cpu_set_t allowed, there;
  if (sched_getaffinity(id, sizeof allowed, &allowed) == 0 && CPU_ISSET(processor, &allowed) &&
      CPU_COUNT(&allowed) > 1) {
    if (to_it) {
      CPU_ZERO(&there);
      CPU_SET(processor, &there);
    } else {
      there = allowed;
      CPU_CLR(processor, &there);
    }
    if (sched_setaffinity(id, sizeof there, &there) == 0) sched_setaffinity(id, sizeof allowed, &allowed);
  }
  moving.store(false);
}

// On the caller's processor a thread would only take its time.
bool beside_caller() { return sched_getcpu() == members[0].processor.load(std::memory_order_relaxed); }
void leave_caller() {
  if (beside_caller()) move_thread(0, sched_getcpu(), false);
}

// Has a member hardly run since its clock was `before`, kLookNs ago? Then it waits for a processor behind
// somebody else's work, for milliseconds.
bool stands_still(const Member& member, std::int64_t before) {
  return now_ns(member.clock.load(std::memory_order_relaxed)) - before < kLookNs / 4;
}

// Who is about to sleep until another has gone on gives that one the own processor, on which nobody waits.
void lend_processor(const Member& to) {
  move_thread(to.id.load(std::memory_order_relaxed), sched_getcpu(), true);
}

// Spins until `done`, true then, or until kSpinNs are over. `begin` is called early in it and `look` after
// kLookNs; where they say false, the spin ends.
template <class Done, class Begin, class Look>
bool spin_until(const Done& done, const Begin& begin, const Look& look) {
  constexpr int kBetweenLooks = 16;  // at the clock
  std::int64_t start = 0;
  bool looked = false;
  for (int turn = 0; !done(); ++turn) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    if (turn % kBetweenLooks != kBetweenLooks - 1) continue;
    const std::int64_t now = now_ns();
    if (start == 0) {
      start = now;
      if (!begin()) return false;
    } else if (now - start > kSpinNs) {
      return false;
    } else if (!looked && now - start > kLookNs) {
      looked = true;
      if (!look()) return false;
    }
  }
  return true;
}

// ---- parts ------------------------------------------------------------------------------------------------------

// What a thread did of a region, from its first part to its last.
void note_parts(ThreadTime& noted, std::int64_t start_ns, std::int64_t end_ns) {
  if (noted.busy_ns == 0) noted.start_ns = start_ns;
  noted.end_ns = end_ns;
  noted.busy_ns += end_ns - start_ns;
}

// Computes chunks of the region `now` until none is left to take; how many it did.
std::uint32_t take_chunks(int number, std::uint32_t now) {
  std::uint32_t done = 0;
  const auto is_now = [&](std::uint64_t ticket) { return std::uint32_t(ticket >> kNumberBits) == now; };
  if (!is_now(members[number].ticket.load(std::memory_order_acquire))) return 0;
  // Acquired: if one of them is already the next region's, the tickets have been
  // closed, and none can be raised.
  const PartsBody body = region.body.load(std::memory_order_acquire);
  void* const context = region.context.load(std::memory_order_acquire);
  const std::int64_t parts = region.parts.load(std::memory_order_acquire),
                     chunks = region.chunks.load(std::memory_order_acquire);
  const int team = region.team.load(std::memory_order_acquire);
  const bool noted = region.watched.load(std::memory_order_acquire);
  std::int64_t start_ns = 0;
  for (int k = 0; k < team; ++k) {
    const int owner = (number + k) % team;
    const std::int64_t first = chunks * owner / team, last = chunks * (owner + 1) / team;
    std::atomic<std::uint64_t>& ticket = members[owner].ticket;
    std::uint64_t seen = ticket.load(std::memory_order_acquire);
    while (is_now(seen)) {
      const std::int64_t chunk = first + std::int64_t(seen & kClosed);
      if (chunk >= last) break;
      if (!ticket.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      if (noted && done == 0) start_ns = now_ns();
      try {
        body(context, parts * chunk / chunks, parts * (chunk + 1) / chunks);
      } catch (...) {
        if (!region.failed.exchange(true)) region.failure = std::current_exception();
      }
      ++done;
      seen = ticket.load(std::memory_order_acquire);
    }
  }
  if (noted && done > 0) note_parts(members[number].noted, start_ns, now_ns());
  return done;
}

// Waits for a region other than `seen`.
std::uint32_t next_region(std::uint32_t seen) {
  const Member& caller = members[0];
  std::int64_t before = 0;
  const auto has_come = [&] { return epoch.load(std::memory_order_acquire) != seen; };
  const auto begin = [&] {
    leave_caller();
    before = now_ns(caller.clock.load(std::memory_order_relaxed));
    return !beside_caller();
  };
  const auto look = [&] {
    if (!stands_still(caller, before)) return true;
    if (lent_in.exchange(seen) != seen) lend_processor(caller);
    return false;
  };
  if (!spin_until(has_come, begin, look)) {
    asleep.fetch_add(1);
    while (epoch.load() == seen) sleep_on(epoch, seen);
    asleep.fetch_sub(1);
  }
  return epoch.load(std::memory_order_acquire);
}

void* compute_parts(void* argument) {
  computes_parts = true;
  NoSignals::from_now_on();
  omp_set_num_threads(1);  // oneDNN's, within a part
  Member& own = *static_cast<Member*>(argument);
  own_number = static_cast<int>(&own - members);
  std::uint32_t seen = epoch.load(std::memory_order_acquire) - 1;
  for (;;) {
    for (std::uint32_t size; size = resizes.load(), own_number >= threads();) sleep_on(resizes, size);
    seen = next_region(seen);
    leave_caller();
    register_as(own);
    own.computing.store(true, std::memory_order_relaxed);
    const std::uint32_t done = take_chunks(own_number, seen);
    if (done > 0 && chunks_left.fetch_sub(done) == done && caller_sleeps.load()) wake_all(chunks_left);
    own.computing.store(false, std::memory_order_relaxed);
  }
  return nullptr;
}

// Of the child of a fork, which has one thread.
void forget_threads() {
  started.store(1);
  asleep.store(0);
  occupied.store(false);
  moving.store(false);
  watched.store(false);
  watches = false;
  computes_parts = false;
  own_number = 0;
  own_id = 0;
}

// Starts what is missing; how many threads there are then, with the caller.
int start_threads(int count) {
  static const int watches_forks = pthread_atfork(nullptr, nullptr, forget_threads);
  (void)watches_forks;
  count = std::min(count, startable.load());
  while (started.load() < count) {
    const NoSignals inherited;  // signals are for the threads of others
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    const bool runs = pthread_create(&thread, &attributes, compute_parts, &members[started.load()]) == 0;
    pthread_attr_destroy(&attributes);
    if (!runs) {
      startable.store(started.load());
      return started.load();
    }
    started.fetch_add(1);
  }
  return count;
}

void await_members(int team) {
  std::int64_t before[kMostThreads];
  bool computing[kMostThreads] = {};
  const auto all_done = [] { return chunks_left.load(std::memory_order_acquire) == 0; };
  const auto begin = [&] {
    const int here = sched_getcpu();
    bool apart = true;
    for (int k = 1; k < team; ++k) {
      computing[k] = members[k].computing.load(std::memory_order_relaxed);
      if (!computing[k]) continue;
      before[k] = now_ns(members[k].clock.load(std::memory_order_relaxed));
      apart = apart && members[k].processor.load(std::memory_order_relaxed) != here;
    }
    return apart;
  };
  const auto look = [&] {
    for (int k = 1; k < team; ++k) {
      if (!computing[k] || !members[k].computing.load(std::memory_order_relaxed)) continue;
      if (!stands_still(members[k], before[k])) continue;
      lend_processor(members[k]);
      return false;
    }
    return true;
  };
  if (spin_until(all_done, begin, look)) return;
  caller_sleeps.store(true);
  for (std::uint32_t left; (left = chunks_left.load()) != 0;) sleep_on(chunks_left, left);
  caller_sleeps.store(false);
}

void wait_for_members(int team) {
  if (!watches) return await_members(team);
  const std::int64_t start_ns = now_ns();
  await_members(team);
  waited_ns += now_ns() - start_ns;
}

void run_region(std::int64_t parts, PartsBody body, void* context, int team) {
  const std::int64_t chunks = std::min(parts, team * kChunksPerThread);
  const std::uint64_t now = ++last_epoch;
  for (int k = 0; k < team; ++k)
    members[k].ticket.store((now << kNumberBits) | kClosed, std::memory_order_relaxed);
  // Where the last region had more threads: one of them that comes late reads what is stored below, too.
  for (int k = team; k < last_team; ++k) members[k].ticket.store(kClosed, std::memory_order_relaxed);
  last_team = team;
  region.body.store(body, std::memory_order_release);
  region.context.store(context, std::memory_order_release);
  region.parts.store(parts, std::memory_order_release);
  region.chunks.store(chunks, std::memory_order_release);
  region.team.store(team, std::memory_order_release);
  region.watched.store(watches, std::memory_order_release);
  chunks_left.store(std::uint32_t(chunks), std::memory_order_relaxed);
  register_as(members[0]);
  for (int k = 0; k < team; ++k) members[k].ticket.store(now << kNumberBits, std::memory_order_release);
  epoch.store(std::uint32_t(now));
  if (asleep.load() > 0) wake_all(epoch);
  const std::uint32_t done = take_chunks(0, std::uint32_t(now));
  if (chunks_left.fetch_sub(done) != done) wait_for_members(team);
  if (!region.failed.load(std::memory_order_relaxed)) return;
  region.failed.store(false);
  std::rethrow_exception(std::exchange(region.failure, nullptr));
}

// While it exists, this thread computes the parts of a region.
class Occupation {
 public:
  Occupation() { computes_parts = true; }
  ~Occupation() {
    computes_parts = false;
    occupied.store(false);
  }
  Occupation(const Occupation&) = delete;
  Occupation& operator=(const Occupation&) = delete;
};

}  // namespace

void set_threads(int threads) {
  wanted.store(std::clamp(threads, 0, kMostThreads));
  startable.store(kMostThreads);
  resizes.fetch_add(1);
  wake_all(resizes);
}

int threads() {
  const int count = wanted.load(std::memory_order_relaxed);
  if (count > 0) return count;
  cpu_set_t allowed;
  static const int processors = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return std::clamp(processors, 1, kMostThreads);
}

int refused_threads() { return std::max(threads() - startable.load(), 0); }

int worker_number() { return own_number; }

ThreadWatch::ThreadWatch() : on_(!watched.exchange(true)) { watches = watches || on_; }

ThreadWatch::~ThreadWatch() {
  if (!on_) return;
  watches = false;
  watched.store(false);
}

void ThreadWatch::begin() {
  if (!on_) return;
  for (int k = 0; k < started.load(); ++k) members[k].noted = {};
  waited_ns = 0;
  start_ns_ = now_ns();
}

std::vector<ThreadTime> ThreadWatch::end() {
  if (!on_) return {};
  const std::int64_t end_ns = now_ns();
  std::vector<ThreadTime> times{{0, start_ns_, end_ns, end_ns - start_ns_ - waited_ns}};
  for (int k = 1; k < started.load(); ++k) {
    if (members[k].noted.busy_ns == 0) continue;
    times.push_back(members[k].noted);
    times.back().thread = k;
  }
  return times;
}

void* thread_scratch(std::size_t bytes) {
  if (bytes <= scratch.bytes) return scratch.memory;
  constexpr std::size_t kAlignment = 64;
  std::free(std::exchange(scratch.memory, nullptr));
  scratch.bytes = 0;
  scratch.memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (scratch.memory == nullptr) throw std::bad_alloc();
  scratch.bytes = bytes;
  return scratch.memory;
}

void run_parts(std::int64_t parts, PartsBody body, void* context, int most) {
  if (parts <= 0) return;
  const auto wanted_team = static_cast<int>(std::min<std::int64_t>(std::min(threads(), most), parts));
  if (wanted_team == 1 || computes_parts || occupied.exchange(true)) return body(context, 0, parts);
  const Occupation occupation;
  const int team = start_threads(wanted_team);
  if (team == 1) return body(context, 0, parts);
  run_region(parts, body, context, team);
}

}  // namespace gradloom::kernels
