// The precision of a training as text: `bf16{full=Softmax,/head/*; low=LayerNormalization; list=autocast}`.
// Options, which semicolons separate:
//   list  what is computed in 16 bits and what in f32, instead of the operator table: autocast, O1, O2 (below)
//   full  stays in f32: operator types and globs over node names, which commas separate
//   low   computes in 16 bits
//   within  where 16 bits may be at all, in the same words: what is elsewhere stays in f32
//   weights  low: bf16 weights are the only ones, rounded at random; full (default): f32 ones stand behind them
// Names are the model's and those of what passes made of them. What is in both lists stays in f32; losses do always. What would follow
// its operands does as a name of the model says that ends with @f32 or @low: a script's x.float(). Errors: Errc::usage, with the nearest name.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/op.h"

namespace gradloom {

struct PrecisionSpec {
  std::string type = "f32";  // f32, f64, bf16, f16
  std::string list;          // empty: the operator table's
  std::vector<std::string> full, low, within;
  bool low_weights = false;
  bool mixed() const { return type == "bf16" || type == "f16"; }
};

Result<PrecisionSpec> parse_precision(const std::string& text);
std::string precision_forms();
// The type alone, of a text that parse_precision takes: "bf16".
std::string precision_type_name(const std::string& text);

// A list of a known library. Operators in none of its own lists follow their operands.
struct PrecisionList {
  const char *name, *meaning, *source;
  std::span<const char*const> low, full;
  bool all_low = false;  // everything that `full` has not
};
std::span<const PrecisionList> precision_lists();

// What the table, a list or the user wants of every node.
class PrecisionChoice {
 public:
  // Errc::usage: a name that is neither an operator's type nor fits a node of the graph.
  static Result<PrecisionChoice> make(const Graph& graph, const PrecisionSpec& spec);
  bool low_weights() const { return spec_.low_weights; }
  Precision of(const Graph& graph, NodeId node) const;
  bool by_user(const Graph& graph, NodeId node) const;  // named in `full` or `low`, or not in `within`

 private:
  std::optional<Precision> named(const Graph& graph, const Node& node) const;
  PrecisionSpec spec_;
  const PrecisionList* list_ = nullptr;
};

struct PassDef;
// The pass rounds on purpose: verify compares a job that has it with one that has it alone.
bool changes_precision(const PassDef& def);

}  // namespace gradloom
