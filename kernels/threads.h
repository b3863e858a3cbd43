// The threads that compute. Kernels cut their work into parts by sizes alone and hand the parts to run_parts.
// Which thread computes a part, when, and how many threads there are, changes no bit.
//
// A thread that waits spins for some microseconds and then sleeps. Threads take parts as they come: one that
// the machine is late to run costs only the part that it is at. While that one has no processor, the thread
// that waits for it lends it its own (threads.cpp), so that another busy process costs about its fair share
// of the machine.
//
// Nothing here fails: where the system starts no more threads, those that there are compute all parts.
// OpenMP's settings (OMP_DYNAMIC, OMP_THREAD_LIMIT, OMP_STACKSIZE, ..) have no say, because no code of ours
// or of oneDNN's runs in a team of OpenMP; this holds for a program that only links the library, too. After a
// fork the child starts threads of its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu.h"

namespace gradloom::kernels {

constexpr int kMostThreads = 1024;

// The number of this thread among those that compute the parts of one run_parts:
// below its team, 0 for the caller.
int worker_number();

// Calls body(context, first part, behind the last part) until each of [0, parts) was computed exactly once,
// by a team of at most threads(), parts and `most` threads, and returns when all are. Within a part, or while
// the parts of another thread run, the calling thread alone computes. What a part throws, one if there are
// many, is thrown here when all are done.
using PartsBody = void (*)(void* context, std::int64_t begin, std::int64_t end);
void run_parts(std::int64_t parts, PartsBody body, void* context, int most = kMostThreads);

// How many of threads() the system has refused to start so far.
int refused_threads();

// Memory of the calling thread for what a part packs: contents undefined, aligned to 64 bytes, good until this thread
// asks again, kept while it lives. Large thread_local arrays are not the way: every thread of the process has them all,
// on its stack, where there may be less room than they take. Throws std::bad_alloc.
void* thread_scratch(std::size_t bytes);

// body(begin, end) for ranges that cover [0, parts).
template <class Body>
inline __attribute__((always_inline)) void for_ranges(std::int64_t parts, const Body& body,
                                                      int most = kMostThreads) {
  run_parts(
      parts,
      [](void* context, std::int64_t begin, std::int64_t end) {
        (*static_cast<const Body*>(context))(begin, end);
      },
      const_cast<Body*>(&body), most);
}

// body(part) for each part.
template <class Body>
inline __attribute__((always_inline)) void for_parts(std::int64_t parts, const Body& body,
                                                     int most = kMostThreads) {
  const auto range = [&body](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) body(part);
  };
  for_ranges(parts, range, most);
}

}  // namespace gradloom::kernels
