// Memory of the strict driver. Device memory can be touched only while work of the device runs: at any other time an access traps,
// and so does one to memory that was freed, whose addresses never come back, or past the end of an allocation. The trap says in one
// line whose memory it was. New memory is 0xFF (NaN).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace gradloom::strict {

struct Allocation {
  unsigned char* at;
  std::size_t bytes;
  unsigned char*
      map;  // whole pages: one that is never mapped, those of the allocation, one that is never mapped
  std::size_t map_bytes;
  bool pinned, alive;
  std::string text() const;  // "device memory of 4096 bytes"
};

class GuardedMemory {
 public:
  // Null: there is not so much. Device memory begins at multiples of 256 bytes, as cudaMalloc's.
  void* allocate(std::size_t bytes, bool pinned);
  // What is wrong with it: no allocation begins there, it was freed before, it is of the other kind or was written around.
  std::optional<std::string> release(void* memory, bool pinned);

  // The allocation that has this address, or had it before it was freed. Null: memory of others.
  const Allocation* find(const void* at) const;
  // Why [at, at + bytes) must not be touched: it leaves its allocation, which may have been freed.
  std::optional<std::string> wrong(const void* at, std::size_t bytes) const;
  // The first allocation that was written around; only while it can be touched.
  std::optional<std::string> damage() const;
  // Between them work of the device may run; what is opened by then is closed at the outermost end().
  void begin() { ++depth_; }
  void end();
  void open();                                         // all device memory can be touched
  void close();                                        // none of it, until the next open()
  std::int64_t openings() const { return openings_; }  // of all, which take time by its size

  std::size_t limit_bytes() const;  // of device memory: GRADLOOM_STRICT_MEMORY_MB, 4096 unless it is set
  std::size_t used_bytes() const { return used_; }
  // "2 allocations of device memory (8192 bytes)"; "" when nothing is left.
  std::string left() const;

 private:
  friend class OpenPages;
  void protect(int protection);
  std::map<const unsigned char*, Allocation> all_;  // by first byte; those that were freed too
  std::set<const Allocation*> live_;
  std::size_t used_ = 0;
  int depth_ = 0;
  bool open_ = false;
  std::int64_t openings_ = 0;
};

// The pages of [at, at + bytes) can be touched while this lives, if they are of device memory: opening all of it for each copy takes time
// by its size. They must be of a live allocation, or of none.
class OpenPages {
 public:
  OpenPages(const GuardedMemory& memory, const void* at, std::size_t bytes);
  ~OpenPages();
  OpenPages(const OpenPages&) = delete;
  OpenPages& operator=(const OpenPages&) = delete;

 private:
  void* first_ = nullptr;  // null: nothing was closed
  std::size_t bytes_ = 0;
};

// The device's, for those who know no driver.h (hip_properties.cpp).
std::size_t device_bytes();

}  // namespace gradloom::strict
