// Memory of the host "device": guarded on both sides, and filled with 0xFF (NaN) when it is new.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

namespace gradloom::kernels::gpu::host {

class Memory {
 public:
  ~Memory();
  // Null when the limit of device memory (GRADLOOM_HOSTGPU_MEMORY_MB) or the host's memory does not allow it.
  void* allocate(std::size_t bytes, bool pinned);
  // What is wrong: not ours, the other kind, or written around. Memory of ours is released in any case.
  std::optional<std::string> release(void* memory, bool pinned);

  // The first allocation that was written around.
  std::optional<std::string> damage() const;
  // Why [at, at + bytes) is no range to copy or fill: it begins in an allocation and leaves it.
  std::optional<std::string> leaves(const void* at, std::size_t bytes) const;
  // Device or pinned memory: asynchronous copies are possible.
  bool owns(const void* at) const { return find(at) != nullptr; }

  // Of device memory, in this process.
  static std::size_t limit_bytes();
  static std::size_t used_bytes();

 private:
  struct Block {
    unsigned char* begin;  // of the left guard
    std::size_t bytes;
    bool pinned;
    bool whole() const;
    std::string text() const;
  };
  const Block* find(const void* at) const;
  void free(const Block& block);
  std::map<const unsigned char*, Block> blocks_;  // by first byte
};

}  // namespace gradloom::kernels::gpu::host
