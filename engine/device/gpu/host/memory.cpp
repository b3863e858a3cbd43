#include "engine/device/gpu/host/memory.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "engine/device/gpu/host/sanitizer.h"

namespace gradloom::kernels::gpu::host {
namespace {

constexpr std::size_t kAlignment = 256, kGuardBytes = 1024;  // CUDA aligns allocations to 256 bytes
constexpr unsigned char kGuardByte = 0xA5, kNew = 0xFF;
std::atomic<std::size_t> used{0};

bool whole_guard(const unsigned char* guard, std::size_t bytes) {
  unpoison(guard, bytes);
  const bool whole = std::all_of(guard, guard + bytes, [](unsigned char byte) { return byte == kGuardByte; });
  poison(guard, bytes);
  return whole;
}

}  // namespace

std::size_t Memory::limit_bytes() {
  if (const char* limit = std::getenv("GRADLOOM_HOSTGPU_MEMORY_MB"))
    return std::size_t(std::strtoull(limit, nullptr, 10)) << 20;
  return std::size_t(sysconf(_SC_PHYS_PAGES)) * std::size_t(sysconf(_SC_PAGE_SIZE));
}

std::size_t Memory::used_bytes() { return used; }

Memory::~Memory() {
  for (const auto& [at, block] : blocks_) free(block);
}

void Memory::free(const Block& block) {
  unpoison(block.begin, block.bytes + 2 * kGuardBytes);
  std::free(block.begin);
  if (!block.pinned) used -= block.bytes;
}

void* Memory::allocate(std::size_t bytes, bool pinned) {
  if (!pinned && (bytes > limit_bytes() || used > limit_bytes() - bytes)) return nullptr;
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, bytes + 2 * kGuardBytes) != 0) return nullptr;
  auto* begin = static_cast<unsigned char*>(memory);
  std::memset(begin, kGuardByte, kGuardBytes);
  std::memset(begin + kGuardBytes, kNew, bytes);
  std::memset(begin + kGuardBytes + bytes, kGuardByte, kGuardBytes);
  poison(begin, kGuardBytes);
  poison(begin + kGuardBytes + bytes, kGuardBytes);
  if (!pinned) used += bytes;
  blocks_[begin + kGuardBytes] = {begin, bytes, pinned};
  return begin + kGuardBytes;
}

std::optional<std::string> Memory::release(void* memory, bool pinned) {
  const auto found = blocks_.find(static_cast<const unsigned char*>(memory));
  if (found == blocks_.end()) return "not memory of this device";
  const Block block = found->second;
  std::optional<std::string> wrong;
  if (block.pinned != pinned) wrong = block.text() + " is of the other kind";
  if (!block.whole()) wrong = block.text() + " was written around";
  blocks_.erase(found);
  free(block);
  return wrong;
}

bool Memory::Block::whole() const {
  return whole_guard(begin, kGuardBytes) && whole_guard(begin + kGuardBytes + bytes, kGuardBytes);
}

std::string Memory::Block::text() const {
  return std::string(pinned ? "pinned" : "device") + " memory of " + std::to_string(bytes) + " bytes";
}

std::optional<std::string> Memory::damage() const {
  for (const auto& [at, block] : blocks_)
    if (!block.whole()) return block.text() + " was written around";
  return std::nullopt;
}

const Memory::Block* Memory::find(const void* at) const {
  const auto* byte = static_cast<const unsigned char*>(at);
  auto next = blocks_.upper_bound(byte);
  if (next == blocks_.begin()) return nullptr;
  const auto& [first, block] = *--next;
  return byte < first + std::max<std::size_t>(block.bytes, 1) ? &block : nullptr;
}

std::optional<std::string> Memory::leaves(const void* at, std::size_t bytes) const {
  const Block* block = find(at);
  if (block == nullptr) return std::nullopt;
  const std::size_t offset = std::size_t(static_cast<const unsigned char*>(at) - block->begin) - kGuardBytes;
  if (bytes <= block->bytes - offset) return std::nullopt;
  return std::to_string(bytes) + " bytes at " + std::to_string(offset) + " of " + block->text();
}

}  // namespace gradloom::kernels::gpu::host
