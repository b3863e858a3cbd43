// The operators of a PyTorch trace with what they lie in: spans of one thread lie inside one another by their times. Nodes of
// ONNX Runtime are operators, too: those of a Loop's body lie in the Loop. Found are the operator that the program called, the
// module (a span that the program marked, or a call of torch.nn.Module), the node of autograd and the forward operator that it
// differentiates, and what optimizers and DataLoaders do.
//
// Autograd's nodes have the sequence number of their forward operator. Traces of PyTorch without Kineto have none: then a node
// belongs to the last operator of its name that no later node took, as autograd goes backwards.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "profiler/import/chrome_events.h"

namespace gradloom {

// Paths of modules, "blocks.0/attn". A label is a path itself where it begins with that of the module around it.
class ModulePaths {
 public:
  ModulePaths() : paths_{{"", 0}} {}
  std::int32_t add(std::int32_t around, std::int32_t text, const std::string& label);  // 0: no module
  const std::string& operator[](std::int32_t i) const { return paths_[static_cast<std::size_t>(i)].first; }

 private:
  std::vector<std::pair<std::string, int>> paths_;  // each with its depth
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> known_;
};

enum class CallPhase : std::uint8_t { unknown, forward, loss, backward, optimizer, data };

// What a span lies in. Numbers of events, unless they say otherwise; -1: nothing.
struct CallPlace {
  CallPhase phase = CallPhase::unknown;
  std::int32_t marked = 0, module = 0;  // in ModulePaths, by marks and by torch.nn.Module
  std::int32_t node = -1;               // in KinetoCalls::nodes
  std::int32_t part = -1;               // the optimizer's or DataLoader's span
  std::int32_t outer = -1,
               inner = -1;  // operators around it, the outermost and the nearest, in the same module
};

struct KinetoCall {
  std::int32_t event = -1;
  CallPlace place;                // of an operator: with itself as `inner`
  std::int64_t own_ns = 0;        // without the operators inside it
  std::int64_t own_start_ns = 0;  // where the longest part of that begins
};

struct AutogradNode {
  std::int32_t event = -1, name = 0;  // name: in ChromeEvents::texts, "AddmmBackward0"
  std::int32_t forward = -1;          // in KinetoCalls::calls
  std::size_t at_call = 0;            // the calls before it
};

struct KinetoCalls {
  std::vector<KinetoCall> calls;  // operators and calls of the runtime, thread by thread, by start
  std::vector<AutogradNode> nodes;
  ModulePaths paths;
  std::vector<std::int32_t> steps;  // events "ProfilerStep#N", by start
  bool by_order = false;            // nodes were matched by name and order
  std::vector<std::int32_t> spans;  // events that are no operators: of them host spans are made
};

// Adds to the texts of `events`.
KinetoCalls nest_calls(ChromeEvents& events);

// What a span that the program or PyTorch marked is.
enum class MarkKind : std::uint8_t { step, optimizer, data, phase, other, module };
MarkKind mark_kind(const std::string& name);
// "Optimizer.step#AdamW.step" -> "AdamW.step"
std::string optimizer_name(const std::string& name);
bool is_autograd(const std::string& name);

}  // namespace gradloom
