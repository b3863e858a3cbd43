// Where a kernel of a plan comes from: the ONNX nodes behind it, what every pass did to them and why others did
// not, and the kernels of the other phases that stand for the same ONNX nodes (`plan --explain`).
#pragma once

#include <string>
#include <vector>

#include "app/output.h"
#include "passes/compile.h"

namespace gradloom {

struct Explained {
  NodeId node = kNone;          // kNone: it is gone, and no other stands for it
  std::string name;             // of the node, or of what is gone
  std::int32_t plan_step = -1;  // -1: a view, without a kernel, or gone
  // Of the passes that met its ONNX nodes, in their order: what they did, and why they did not.
  struct Event {
    std::string pass;
    PassPhase at = PassPhase::pre_gradient;
    const RewriteRecord* record = nullptr;  // of the compiled job
  };
  std::vector<Event> events;
  std::vector<NodeId> relatives;  // other nodes that stand for one of its ONNX nodes
};

// `name`: of a node of the final graph, of an ONNX node, of a kernel, a glob over the names of nodes, or of a node that a pass
// removed.
// Usage error with the nearest name: nothing is called so.
Result<std::vector<Explained>> explain(const Compiled& compiled, const std::string& name);

Json explained_json(const Compiled& compiled, const Explained& explained);
std::string explained_text(const Compiled& compiled, const Explained& explained);

}  // namespace gradloom
