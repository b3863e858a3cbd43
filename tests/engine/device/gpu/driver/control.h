// How tests speak with the strict driver in a plugin that they loaded: functions that it exports beside its entry.
#pragma once

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

// Work of a library of the device: `function` touches its memory when its turn in the stream comes. Not 0: refused.
typedef int (*StrictLibraryWorkFn)(void* stream, void (*function)(void* user), void* user);
#define STRICT_LIBRARY_WORK "strict_library_work"

const char* strict_complaints(void);
const char* strict_left(void);
void strict_counts(StrictCounts* counts);
void strict_fail(const char* what);
int strict_library_work(void* stream, void (*function)(void* user), void* user);

#ifdef __cplusplus
}
#endif
