// The way of a graph through its passes: what it was after each rewrite of each pass. A node keeps its id from its first
// stage to its last, so all stages together are one graph of every node that ever was, and a stage is those of them that
// are there then.
#pragma once

#include <cstdint>
#include <limits>
#include <stop_token>
#include <string>
#include <vector>

#include "passes/compile.h"

namespace gradloom {

struct Stage {
  std::string pass;  // or kStartStage, kAutodiffStage
  PassPhase at = PassPhase::pre_gradient;
  std::int32_t run = 1;                      // of this pass: it may run more than once
  std::string rule, site, fingerprint, why;  // RewriteRecord; empty: no rewrite of a pass
  std::vector<std::uint32_t> sources;        // Graph::sources concerned
  std::vector<NodeId> added, removed, changed;
  std::size_t nodes = 0;  // after it
  bool is_rewrite() const { return !rule.empty(); }
};

// From one stage to before another one.
struct StageSpan {
  static constexpr std::int32_t kEver = std::numeric_limits<std::int32_t>::max();
  std::int32_t from = kEver, until = kEver;
  bool holds(std::int32_t stage) const { return from <= stage && stage < until; }
};

// A node reads a value.
struct StageRead {
  ValueId value = kNone;
  NodeId reader = kNone;
  StageSpan span;
};

struct StageHistory {
  // Every node as it was last; no node reads its own results, through others either. Names are unique: a node whose name went to another one is called
  // "NAME (until PASS)".
  Graph all;
  std::vector<Stage> stages;     // the first is the start; those that changed something
  std::vector<StageSpan> nodes;  // by NodeId; never there: from kEver on
  std::vector<StageRead> reads;  // of all stages
};

// Of a compilation; `stop` as there.
Result<StageHistory> stage_history(const Graph& imported, const CompileOptions& options,
                                   std::stop_token stop = {});

// One stage as a graph.
struct StagedGraph {
  Stage stage;                         // without its nodes
  RewriteRecord record;                // of a rewrite
  std::size_t number = 0, stages = 0;  // the start is 1
  Graph graph;
};

// "PASS" is the stage after its last rewrite, "PASS#2" that of its second run, "PASS:SITE" the one after the rewrite of an
// instance, told as `--passes` tells it: by name, glob or fingerprint. "start" and "autodiff" are stages too.
// Errc::usage: there is no such pass, or it did nothing there.
Result<StagedGraph> graph_at(const Graph& imported, const CompileOptions& options, const std::string& name,
                             std::stop_token stop = {});

}  // namespace gradloom
