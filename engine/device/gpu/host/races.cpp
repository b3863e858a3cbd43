#include "engine/device/gpu/host/races.h"

#include <link.h>

#include <algorithm>

#include "kernels/gpu/gpu.h"

namespace gradloom::kernels::gpu::host {
namespace {

constexpr std::size_t kPageBytes = 512, kCoarsest = 16;
constexpr std::size_t kMostCells = std::size_t(8) << 20;  // of 48 bytes
constexpr std::size_t kMostTimes = 1024;
constexpr std::uint32_t kMostBarriers = (1u << 22) - 1;
constexpr std::uint16_t kLastClock = 65535;

}  // namespace

std::vector<MemoryRange> writable_data() {
  std::vector<MemoryRange> ranges;
  const auto add = [](dl_phdr_info* info, std::size_t, void* to) {
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& segment = info->dlpi_phdr[i];
      if (segment.p_type == PT_LOAD && (segment.p_flags & PF_W) != 0)
        static_cast<std::vector<MemoryRange>*>(to)->push_back(
            {info->dlpi_addr + segment.p_vaddr, segment.p_memsz});
    }
    return 0;
  };
  dl_iterate_phdr(add, &ranges);
  return ranges;
}

// ---- knowledge ------------------------------------------------------------------------------------------------------------------

void Knowledge::add(std::uint32_t block, std::uint32_t thread, Time time) {
  Time& known = times_.try_emplace(std::uint64_t(block) << 10 | thread, time).first->second;
  known = std::max(known, time);
}

void Knowledge::add(const Knowledge& other) {
  for (const auto& [who, time] : other.times_) {
    Time& known = times_.try_emplace(who, time).first->second;
    known = std::max(known, time);
  }
  everything_ = everything_ || other.everything_ || times_.size() > kMostTimes;
  if (everything_) times_.clear();
}

bool Knowledge::covers(std::uint32_t block, std::uint32_t thread, std::uint32_t barrier,
                       std::uint16_t clock) const {
  if (everything_) return true;
  const std::uint64_t first = std::uint64_t(block) << 10;
  for (auto at = times_.lower_bound(first); at != times_.end() && at->first < first + 1024; ++at) {
    const auto& [who, time] = *at;
    const std::uint32_t other = std::uint32_t(who) & 1023;
    if (barrier < time.barrier) return true;
    if (barrier > time.barrier) continue;
    if (other == thread && clock <= time.clock) return true;
    if (other / unsigned(kWarp) == thread / unsigned(kWarp) && clock < time.warp_clock) return true;
  }
  return false;
}

// ---- time -----------------------------------------------------------------------------------------------------------------------

void Races::begin_grid(unsigned threads, std::vector<MemoryRange> shared, std::vector<MemoryRange> apart) {
  threads_count_ = threads;
  shared_ = std::move(shared);
  apart_ = std::move(apart);
  race_.reset();
  forget();
}

void Races::begin_block(std::uint32_t block) {
  block_ = block;
  barrier_ = 0;
  fences_ = false;
  threads_.assign(threads_count_, {});
  warps_.assign((threads_count_ + unsigned(kWarp) - 1) / unsigned(kWarp), 0);
}

void Races::run_thread(unsigned thread, MemoryRange stack) {
  thread_ = thread;
  stack_ = stack;
}

void Races::barrier() {
  if (++barrier_ > kMostBarriers) {
    forget();
    barrier_ = 0;
  }
  Knowledge all;
  if (fences_)
    for (const Thread& thread : threads_) all.add(thread.acquired);
  for (Thread& thread : threads_) {
    thread.clock = 0;
    if (fences_) thread.acquired = all;
  }
  std::fill(warps_.begin(), warps_.end(), std::uint16_t(0));
}

void Races::sync_warp(unsigned warp) {
  const auto first = threads_.begin() + std::ptrdiff_t(warp) * kWarp, last = first + kWarp;
  const auto sooner = [](const Thread& a, const Thread& b) { return a.clock < b.clock; };
  advance(*std::max_element(first, last, sooner));
  const std::uint16_t clock = std::max_element(first, last, sooner)->clock;
  warps_[warp] = clock;
  Knowledge all;
  if (fences_) std::for_each(first, last, [&](const Thread& thread) { all.add(thread.acquired); });
  std::for_each(first, last, [&](Thread& thread) {
    thread.clock = clock;
    if (fences_) thread.acquired = all;
  });
}

void Races::advance(Thread& thread) {
  if (thread.clock == kLastClock) {  // no time is left: all that is known is given up
    forget();
    for (Thread& each : threads_) each.clock = 0;
    std::fill(warps_.begin(), warps_.end(), std::uint16_t(0));
  }
  ++thread.clock;
}

void Races::fence() {
  fences_ = true;
  Thread& thread = threads_[thread_];
  thread.acquired.add(thread.pending);
  thread.pending = {};
  thread.released = thread.acquired;
  thread.released.add(block_, thread_, {barrier_, thread.clock, warps_[thread_ / unsigned(kWarp)]});
  thread.fenced = true;
  advance(thread);
}

// Whether the running thread comes after it.
bool Races::before(const Access& access, bool shared) const {
  if (access.where == 0) return true;
  if (access.block() == block_) {
    if (access.thread() == thread_ || access.barrier() != barrier_) return true;
    const unsigned warp = thread_ / unsigned(kWarp);
    if (access.thread() / unsigned(kWarp) == warp && access.clock() < warps_[warp]) return true;
  } else if (shared) {  // another block's memory
    return true;
  }
  const Knowledge& known = threads_[thread_].acquired;
  return !known.empty() && known.covers(access.block(), access.thread(), access.barrier(), access.clock());
}

bool Races::same_time(const Access& access, const Access& now) const {
  return access.who == now.who && access.where != 0 && access.clock() == now.clock();
}

// Of many accesses that are not ordered two are kept, as far apart as there are: whoever conflicts with one of
// all conflicts with one of these.
void Races::remember(Readers& readers, const Access& now, bool shared) const {
  auto& [one, other] = readers.two;
  const auto distance = [](const Access& a, const Access& b) {
    if (a.block() != b.block()) return 3;
    return a.thread() / unsigned(kWarp) != b.thread() / unsigned(kWarp) ? 2 : 1;
  };
  const bool one_before = before(one, shared), other_before = before(other, shared);
  if (one_before && other_before) {
    one = now;
    other = {};
  } else if (one_before) {
    one = now;
  } else if (other_before || distance(one, now) > distance(one, other)) {
    other = now;
  }
}

// ---- memory ---------------------------------------------------------------------------------------------------------------------

void Races::forget() {
  pages_.clear();
  std::fill(recent_.begin(), recent_.end(), Recent{});
  cells_ = 0;
}

Races::Page& Races::page_at(std::uintptr_t base, unsigned granule) {
  Recent& recent = recent_[base / kPageBytes % recent_.size()];
  if (recent.page != nullptr && recent.base == base) {
    if (granule < recent.page->granule) refine(*recent.page, granule);
    return *recent.page;
  }
  const auto found = pages_.find(base);
  Page* page = found != pages_.end() ? &found->second : nullptr;
  if (page == nullptr) {
    if (cells_ > kMostCells) forget();
    const bool shared = std::any_of(shared_.begin(), shared_.end(),
                                    [&](const MemoryRange& range) { return range.meets(base, kPageBytes); });
    page = &pages_.emplace(base, Page{granule, shared, std::vector<Cell>(kPageBytes / granule), {}})
                .first->second;
    cells_ += kPageBytes / granule;
  }
  if (granule < page->granule) refine(*page, granule);
  recent_[base / kPageBytes % recent_.size()] = {base, page};
  return *page;
}

void Races::refine(Page& page, unsigned granule) {
  const std::size_t each = page.granule / granule;
  std::vector<Cell> cells;
  cells.reserve(page.cells.size() * each);
  for (const Cell& cell : page.cells) cells.insert(cells.end(), each, cell);
  cells_ += cells.size() - page.cells.size();
  page.cells = std::move(cells);
  page.granule = granule;
}

// ---- accesses -------------------------------------------------------------------------------------------------------------------

bool Races::check(const Access& earlier, unsigned kind, const Now& now) {
  if (before(earlier, now.shared)) return true;
  const auto side = [](const Access& access, unsigned of_kind) {
    return Race::Side{of_kind, access.block(), access.thread(), std::uintptr_t(access.where >> 16)};
  };
  race_ = Race{now.at, now.bytes, now.shared, side(now.access, now.kind), side(earlier, kind)};
  return false;
}

bool Races::check(const Readers& earlier, unsigned kind, const Now& now) {
  return check(earlier.two[0], kind, now) && check(earlier.two[1], kind, now);
}

// Against plain accesses. A plain write that comes after all stands for all.
bool Races::check_cell(Cell& cell, const Now& now) {
  const bool writes = (now.kind & kWrites) != 0, strong = (now.kind & kStrong) != 0;
  if (!strong && !writes && same_time(cell.reads.two[0], now.access)) return true;
  if (!strong && writes && same_time(cell.write, now.access) && cell.reads.two[0].where == 0) return true;
  if (!check(cell.write, kWrites, now)) return false;
  if (writes && !check(cell.reads, kReads, now)) return false;
  if (strong) return true;
  if (writes)
    cell = {now.access, {}};
  else
    remember(cell.reads, now.access, now.shared);
  return true;
}

// Against strong accesses: all of them for those to other bytes or more, whose sizes do not agree.
bool Races::check_strong(Page& page, const Now& now) {
  const bool writes = (now.kind & kWrites) != 0, strong = (now.kind & kStrong) != 0;
  for (Strong& other : page.strong) {
    if (!MemoryRange{other.at, other.bytes}.meets(now.at, now.bytes)) continue;
    if (strong && other.at == now.at && other.bytes == now.bytes) continue;
    if (!check(other.writes, kStrong | kReads | kWrites, now)) return false;
    if (writes && !check(other.reads, kStrong | kReads, now)) return false;
  }
  if (!strong && writes)
    std::erase_if(page.strong, [&](const Strong& other) {
      return MemoryRange{other.at, other.bytes}.meets(now.at, now.bytes);
    });
  return true;
}

void Races::take_strong(Page& page, const Now& now) {
  const bool reads = (now.kind & kReads) != 0, writes = (now.kind & kWrites) != 0;
  auto place = std::find_if(page.strong.begin(), page.strong.end(), [&](const Strong& strong) {
    return strong.at == now.at && strong.bytes == now.bytes;
  });
  if (place == page.strong.end()) place = page.strong.insert(place, Strong{now.at, now.bytes, {}, {}, {}});
  if (now.shared && place->writes.two[0].where != 0 && place->writes.two[0].block() != block_)
    place->sync = {};  // another block's memory
  remember(writes ? place->writes : place->reads, now.access, now.shared);
  Thread& thread = threads_[thread_];
  if (reads) thread.pending.add(place->sync);
  if (writes && !reads) place->sync = {};
  if (writes && thread.fenced) place->sync.add(thread.released);
}

void Races::access(std::uintptr_t at, std::size_t bytes, unsigned kind, std::uintptr_t code) {
  if (race_ || stack_.holds(at)) return;
  for (const MemoryRange& range : apart_)
    if (range.holds(at)) return;
  if ((kind & kStrong) != 0 && (bytes > 8 || at % bytes != 0)) kind &= ~unsigned(kStrong);
  const Access access{std::uint64_t(block_) << 32 | std::uint64_t(barrier_) << 10 | thread_,
                      std::uint64_t(code) << 16 | threads_[thread_].clock};
  for (std::size_t part; bytes > 0; at += part, bytes -= part) {
    const std::uintptr_t base = at / kPageBytes * kPageBytes;
    part = std::min(bytes, std::size_t(base + kPageBytes - at));
    const std::uintptr_t bits = at | part | kCoarsest;
    Page& page = page_at(base, unsigned(bits & -bits));
    const Now now{at, part, kind, access, page.shared};
    if (!page.strong.empty() && !check_strong(page, now)) return;
    const std::size_t first = (at - base) / page.granule, last = first + part / page.granule;
    for (std::size_t i = first; i < last; ++i)
      if (!check_cell(page.cells[i], now)) return;
    if ((kind & kStrong) != 0) take_strong(page, now);
  }
}

}  // namespace gradloom::kernels::gpu::host
