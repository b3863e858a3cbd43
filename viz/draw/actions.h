// What the views ask of the application. Views fill it in while drawing; the application reads and clears it
// once a frame.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "passes/pass.h"
#include "sessions/compare.h"

namespace gradloom {

// What a menu calls `twice_as_fast`.
inline constexpr const char* kTwiceAsFast = "What if it were twice as fast?";

struct Actions {
  std::string go_to_node;                 // select and show this node in the graph
  std::optional<ComparedRow> select_row;  // select what this row of a comparison stands for
  bool show_graph = false;                // and bring the graph to the front
  std::string go_to_kernel;               // show this node's row in the kernel table
  std::string hover_node;                 // outline this node in the other views
  std::int64_t times_against = 0;    // run that the graph's times are to be compared with; 0: as they are
  bool times_offer = false;          // what is offered where times are of something else than what stands
  std::string filter_kernels;        // put this query into the kernel table
  std::string note_node;             // write a note on this node
  std::optional<Pipeline> pipeline;  // plan again with these passes
  enum class RulesAsk : std::uint8_t { none, choose, read_again, remove };
  RulesAsk rules = RulesAsk::none;  // the file of the user's rules
  bool verify = false;              // prove the passes that stand
  std::string copied;               // was put on the clipboard: worth a toast
  // Predict the step with these twice as fast, as --speed of what-if names them: "node:conv1", "scope:h.0"
  std::vector<std::string> twice_as_fast;
  bool no_path = false;       // between two nodes of the graph, as was asked
  std::string show_operator;  // open the page of this operator
  bool show_node_panel = false;
  std::string selection_sum;  // of several rows that are selected in a table, for the line of state
};

}  // namespace gradloom
