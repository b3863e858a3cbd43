#include "tests/engine/device/gpu/driver/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace gradloom::strict {
namespace {

constexpr std::size_t kPage = 4096, kAlignment = 256;
constexpr unsigned char kSlack = 0xA5, kNew = 0xFF;

std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

const GuardedMemory* watched = nullptr;
bool running = false;  // work of the device
struct sigaction before;

// One line, then what would have happened.
void on_trap(int signal_number, siginfo_t* info, void*) {
  const Allocation* const memory = watched != nullptr ? watched->find(info->si_addr) : nullptr;
  if (memory != nullptr) {
    const long offset = static_cast<unsigned char*>(info->si_addr) - memory->at;
    char text[256];
    const int length = std::snprintf(
        text, sizeof text, "strict driver: %s touches byte %ld of %s memory of %zu bytes%s\n",
        running ? "work of the device" : "the host", offset, memory->pinned ? "pinned" : "device",
        memory->bytes, memory->alive ? "" : ", which was freed");
    if (write(2, text, std::size_t(length)) < 0) _exit(86);
  }
  sigaction(signal_number, &before, nullptr);
}

void watch(const GuardedMemory* memory) {
  if (watched != nullptr) return;
  watched = memory;
  struct sigaction action = {};
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &before);
}

}  // namespace

std::string Allocation::text() const {
  return std::string(pinned ? "pinned" : "device") + " memory of " + std::to_string(bytes) + " bytes";
}

std::size_t GuardedMemory::limit_bytes() const {
  const char* const set = std::getenv("GRADLOOM_STRICT_MEMORY_MB");
  return std::size_t(set != nullptr ? std::strtoull(set, nullptr, 10) : 4096) << 20;
}

void* GuardedMemory::allocate(std::size_t bytes, bool pinned) {
  if (!pinned && (bytes > limit_bytes() || used_ > limit_bytes() - bytes)) return nullptr;
  watch(this);
  const std::size_t inner = rounded(std::max<std::size_t>(bytes, 1), kPage);
  void* const map =
      mmap(nullptr, inner + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  Allocation made{nullptr, bytes, static_cast<unsigned char*>(map), inner + 2 * kPage, pinned, true};
  unsigned char* const first = made.map + kPage;
  if (mprotect(first, inner, PROT_READ | PROT_WRITE) != 0) {
    munmap(map, made.map_bytes);
    return nullptr;
  }
  made.at =
      first + (inner - rounded(std::max<std::size_t>(bytes, 1), kAlignment));  // it ends where the page does
  std::memset(first, kSlack, inner);
  std::memset(made.at, kNew, bytes);
  if (!pinned && !open_) mprotect(first, inner, PROT_NONE);
  if (!pinned) used_ += bytes;
  live_.insert(&(all_[made.at] = made));
  return made.at;
}

std::optional<std::string> GuardedMemory::release(void* memory, bool pinned) {
  const auto found = all_.find(static_cast<const unsigned char*>(memory));
  if (found == all_.end()) return "no allocation begins there";
  Allocation& block = found->second;
  if (!block.alive) return block.text() + " was freed before";
  if (block.pinned != pinned) return block.text() + " is of the other kind";
  begin();
  open();
  const auto wrong = damage();
  end();
  block.alive = false;
  live_.erase(&block);
  if (!pinned) used_ -= block.bytes;
  // The memory goes, the addresses stay taken.
  (void)mmap(block.map, block.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0);
  return wrong;
}

const Allocation* GuardedMemory::find(const void* at) const {
  const auto* const byte = static_cast<const unsigned char*>(at);
  // Allocations lie apart, each within its pages.
  auto next = all_.upper_bound(byte);
  if (next != all_.end() && byte >= next->second.map) return &next->second;
  if (next == all_.begin()) return nullptr;
  const Allocation& block = (--next)->second;
  return byte < block.map + block.map_bytes ? &block : nullptr;
}

std::optional<std::string> GuardedMemory::wrong(const void* at, std::size_t bytes) const {
  const Allocation* const block = find(at);
  if (block == nullptr) return std::nullopt;
  const std::ptrdiff_t offset = static_cast<const unsigned char*>(at) - block->at;
  const std::string where =
      std::to_string(bytes) + " bytes at " + std::to_string(offset) + " of " + block->text();
  if (!block->alive) return where + ", which was freed";
  if (offset < 0 || std::size_t(offset) + bytes > block->bytes) return where;
  return std::nullopt;
}

std::optional<std::string> GuardedMemory::damage() const {
  const auto whole = [](const unsigned char* from, const unsigned char* to) {
    return std::all_of(from, to, [](unsigned char byte) { return byte == kSlack; });
  };
  for (const Allocation* const block : live_)
    if (!whole(block->map + kPage, block->at) ||
        !whole(block->at + block->bytes, block->map + block->map_bytes - kPage))
      return block->text() + " was written around";
  return std::nullopt;
}

void GuardedMemory::protect(int protection) {
  for (const Allocation* const block : live_)
    if (!block->pinned) mprotect(block->map + kPage, block->map_bytes - 2 * kPage, protection);
}

void GuardedMemory::open() {
  if (!open_) {
    protect(PROT_READ | PROT_WRITE);
    ++openings_;
  }
  open_ = running = true;
}

void GuardedMemory::close() {
  if (open_) protect(PROT_NONE);
  open_ = running = false;
}

void GuardedMemory::end() {
  if (--depth_ == 0) close();
}

OpenPages::OpenPages(const GuardedMemory& memory, const void* at, std::size_t bytes) {
  const Allocation* const block = memory.find(at);
  if (block == nullptr || block->pinned || memory.open_ || bytes == 0) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(at) / kPage * kPage;
  first_ = reinterpret_cast<void*>(begin);
  bytes_ = rounded(reinterpret_cast<std::uintptr_t>(at) + bytes - begin, kPage);
  mprotect(first_, bytes_, PROT_READ | PROT_WRITE);
}

OpenPages::~OpenPages() {
  if (first_ != nullptr) mprotect(first_, bytes_, PROT_NONE);
}

std::string GuardedMemory::left() const {
  std::string text;
  for (const bool pinned : {false, true}) {
    std::size_t count = 0, bytes = 0;
    for (const Allocation* const block : live_) {
      if (block->pinned != pinned) continue;
      ++count;
      bytes += block->bytes;
    }
    if (count > 0)
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " allocations of " +
              (pinned ? "pinned" : "device") + " memory (" + std::to_string(bytes) + " bytes)";
  }
  return text;
}

}  // namespace gradloom::strict
