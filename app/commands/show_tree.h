// show --tree: one step of a run as a tree of its kernels' time, as a table with indented names and as JSON.
#pragma once

#include <string>

#include "app/output.h"
#include "profiler/trace.h"
#include "sessions/store.h"

namespace CLI {
class App;
}

namespace gradloom {

struct TreeOptions {
  std::string by;  // empty: no tree
  int depth = -1;  // levels below the step; -1: all
  bool unfold = false;
};
void declare_tree(CLI::App& app, TreeOptions& options);
// The text has the `limit` longest nodes and what is left out of them as sums; JSON all of them.
Status show_tree(const Output& out, const RunRecord& run, const TraceDocument& trace,
                 const TreeOptions& options, std::int64_t limit);

}  // namespace gradloom
