// show --steps: the steps of a run one by one, and which stand out; --idle: what a timed step's lanes wait for;
// --critical-path: what its end waited for; --launches: when each of its kernels ran.
#pragma once

#include "app/output.h"
#include "sessions/store.h"

namespace CLI {
class App;
}

namespace gradloom {

struct TimelineOptions {
  bool steps = false, idle = false, path = false, launches = false;
  std::int64_t step = 0;  // of the others; 0: the one that takes as long as half of the timed ones
  bool any() const { return flag() != nullptr; }
  bool of_a_step() const { return idle || path || launches; }
  const char* flag() const {  // that asked, the first of them; null: none
    return steps ? "--steps" : idle ? "--idle" : path ? "--critical-path" : launches ? "--launches" : nullptr;
  }
};
void declare_timeline(CLI::App& app, TimelineOptions& options);

// The text has at most `limit` rows of each table; JSON all. Errc::usage: the step is not timed.
Status show_timeline(const Output& out, const RunRecord& run, Store& store, const TimelineOptions& options,
                     std::int64_t limit);

}  // namespace gradloom
