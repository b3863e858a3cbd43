// A compiled graph as the window's graph view has it, for `plan` and `show`: all boxes, those that a search finds
// (viz/model/search.h), the way from one to another and what lies around one (viz/model/graph_paths.h), each with what the view
// colours it by. A run's have their times, and the change against another run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "app/job.h"
#include "app/output.h"
#include "sessions/store.h"
#include "viz/model/graph_model.h"

namespace CLI {
class App;
}

namespace gradloom {

struct GraphAsked {
  bool all = false;               // --graph
  std::string find;               // a query
  std::vector<std::string> path;  // two nodes; empty: not asked
  std::string neighbours;         // NODE or NODE,N
  bool any() const { return flag() != nullptr; }
  const char* flag() const {  // that asked; null: none
    return !find.empty()         ? "--find"
           : !path.empty()       ? "--path"
           : !neighbours.empty() ? "--neighbours"
           : all                 ? "--graph"
                                 : nullptr;
  }
};
void declare_graph(CLI::App& app, GraphAsked& asked);

// Boxes in the order in which they are told: of the schedule, of a way along it, by distance from a node.
struct GraphAnswer {
  std::string title;
  // And links from where it begins; 0 of all and of a search.
  std::vector<std::pair<std::int32_t, std::int32_t>> boxes;
};
// A node is named, or is the only one that a query finds. Errors: Errc::usage: no node is meant or several are, the query is none.
Result<GraphAnswer> ask_graph(const GraphModel& model, const GraphAsked& asked);

// Of a job; of a run of it, with its times where the run is given.
GraphModel graph_model_of(const Prepared& prepared, const RunRecord* run = nullptr);
// Of a run that has no recipe, another program's: a box for each node of its kernels, without links.
GraphModel graph_model_of(const RunRecord& run);
// The times of another run beside those of `run`. Errc::bad_input: one has no times.
Status compare_graph(GraphModel& model, const RunRecord& run, const RunRecord& other);

// {"asked", "kernels_ns", "against", "boxes": [{"node", "op", "phase", "scope", .., "time_ns", "share", "change"}]}. `plan`: of the
// model, for the workspace of its kernels; may be null.
Json graph_answer_json(const GraphModel& model, const GraphAnswer& answer, const Plan* plan);
std::string graph_answer_text(const GraphModel& model, const GraphAnswer& answer, std::size_t limit);

}  // namespace gradloom
