// How tests speak with the strict driver in a plugin that they loaded: functions that it exports beside its entry.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct StrictCounts {
  int64_t calls, allocations, launches, work;  // work: pieces that have run
} StrictCounts;

// Everything that it complained about so far, a line each; forgets it. The text lives until the next call.
typedef const char* (*StrictComplaintsFn)(void);
#define STRICT_COMPLAINTS "strict_complaints"
// What is allocated, created or loaded now; "" nothing. Likewise.
typedef const char* (*StrictLeftFn)(void);
#define STRICT_LEFT "strict_left"
typedef void (*StrictCountsFn)(StrictCounts*);
#define STRICT_COUNTS "strict_counts"
// Counts from 0 again, and fails as GRADLOOM_STRICT_FAIL would say (driver.h); "" nothing. A device that was lost is back.
typedef void (*StrictFailFn)(const char* what);
#define STRICT_FAIL "strict_fail"

// A function of the runtime, for tests that have streams of their own beside the plugin's; null: there is none of this name.
typedef void* (*StrictRuntimeFn)(const char* name);
#define STRICT_RUNTIME "strict_runtime"

// Who watches the work of the device (libraries/cupti.cpp).
enum StrictWorkKind {
  STRICT_KERNEL,
  STRICT_PROGRAM,
  STRICT_LIBRARY_KERNEL,
  STRICT_COPY,
  STRICT_FILL,
  STRICT_GRAPH
};
typedef struct StrictRan {
  int kind;
  const char* name;                  // of a kernel: lives as long as the call
  uint64_t bytes, node, start, end;  // node: of a graph; 0: none
  uint32_t stream, correlation;      // stream: as stream_id has it; those of graphs are the driver's own
} StrictRan;
typedef struct StrictObserver {
  // A call that queues work begins (leaves 0: the answer has a bit 1 << kind for each kind of work whose end is to be told) and returns.
  unsigned (*called)(int kind, int leaves, uint32_t correlation);
  void (*node)(uint64_t node, uint64_t original);  // is made: of what is recorded (original 0), or a copy
  uint64_t (*clock)(void);
  void (*ran)(const StrictRan* work);
} StrictObserver;

// What the stand-ins of the device's libraries ask of the driver (libraries/door.h).
enum StrictBegun {
  STRICT_OK = 0,
  STRICT_LOST = -1,       // the device is
  STRICT_NO_MEMORY = -2,  // as "memory:N" has wanted it
  STRICT_REFUSED = -3,    // what the caller must not do now; said already
  STRICT_FAILS = -4       // as "NAME:N" has wanted it; more than 0: with this status
};
enum { STRICT_ALLOCATES = 1 };  // it may take memory: not while work is recorded
typedef struct StrictDoor {
  int (*begin)(const char* name, int rules);  // a call of a library: one of StrictBegun, or a status
  void (*complain)(const char* what);
  // Why [at, at + bytes) is not memory of the device; null: it is. Lives until the thread's next call.
  const char* (*wrong)(const void* at, size_t bytes);
  void (*hold)(const char* what, int count);  // so many more of these are there ("cublasLt handles")
  // Work in a stream: `function` touches the device's memory when its turn comes, more than once in a graph; `release` comes
  // after the last time, and where it is refused. Not 0: refused.
  int (*work)(void* stream, const char* name, void (*function)(void* user), void* user,
              void (*release)(void* user));
  void (*observe)(const StrictObserver* observer);  // null: nobody watches
  uint32_t (*stream_id)(const void* stream);        // 0: it is none
} StrictDoor;
typedef const StrictDoor* (*StrictDoorFn)(void);
#define STRICT_DOOR "strict_door"

const char* strict_complaints(void);
const char* strict_left(void);
void strict_counts(StrictCounts* counts);
void strict_fail(const char* what);
const StrictDoor* strict_door(void);
void* strict_runtime(const char* name);

#ifdef __cplusplus
}
#endif
