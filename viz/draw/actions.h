// What the views ask of the application. Views fill it in while drawing; the application reads and clears it
// once a frame.
#pragma once

#include <optional>
#include <string>

#include "passes/pass.h"

namespace gradloom {

struct Actions {
  std::string go_to_node;            // select and show this node in the graph
  std::string go_to_kernel;          // show this node's row in the kernel table
  std::string hover_node;            // outline this node in the other views
  std::string filter_kernels;        // put this query into the kernel table
  std::string note_node;             // write a note on this node
  std::optional<Pipeline> pipeline;  // plan again with these passes
  std::string copied;                // was put on the clipboard: worth a toast
  bool show_node_panel = false;
};

}  // namespace gradloom
