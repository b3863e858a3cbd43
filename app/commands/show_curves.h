// show --curves: loss, held-out loss, norm of the gradient, learning rate, throughput or time of the steps of one run or
// several, smoothed or not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/output.h"
#include "sessions/store.h"

namespace CLI {
class App;
}

namespace gradloom {

struct CurveOptions {
  std::string of;                 // empty: no curves
  std::vector<std::string> with;  // runs of the session by number or name, and SESSION#RUN
  double smooth = 0;
};
void declare_curves(CLI::App& app, CurveOptions& options);
// The text tells of each run, of at most `limit`, first, last and best value; JSON every one of them.
Status show_curves(const Output& out, const RunRecord& run, Store& store, const CurveOptions& options,
                   std::int64_t limit);

}  // namespace gradloom
