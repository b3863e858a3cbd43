#include "passes/stages.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/names.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

Stage stage_of(const std::string& what, PassPhase at, const RewriteRecord* record, std::size_t nodes) {
  Stage stage{.pass = what, .at = at, .nodes = nodes};
  if (record == nullptr) return stage;
  stage.rule = record->rule;
  stage.site = record->site;
  stage.fingerprint = record->fingerprint;
  stage.why = record->why;
  stage.sources = record->sources;
  return stage;
}

// Numbers the runs of passes: stages of one pass and phase that follow each other are one run. A cleaning pass that runs
// again without others in between has others' stages in between, or nothing to tell apart.
class RunCounter {
 public:
  std::int32_t run_of(const std::string& pass, PassPhase at) {
    if (pass != pass_ || at != at_) ++runs_[pass];
    pass_ = pass;
    at_ = at;
    return runs_[pass];
  }

 private:
  std::string pass_;
  PassPhase at_ = PassPhase::pre_gradient;
  std::map<std::string, std::int32_t> runs_;
};

// Sees the graph after each rewrite and writes down what is other than before.
class StageRecorder {
  // Not only at another place of the schedule. What gets other types gets the pass into its origin.
  static bool is_other(const Node& now, const Node& before) {
    return now.inputs != before.inputs || now.origin.passes != before.origin.passes ||
           now.origin.sources != before.origin.sources || !(now.attrs == before.attrs);
  }

 public:
  void see(const Graph& graph, const std::string& what, PassPhase at, const RewriteRecord* record) {
    const auto number = static_cast<std::int32_t>(history_.stages.size());
    Stage stage = stage_of(what, at, record, 0);
    if (record != nullptr) names_.insert(record->changed.begin(), record->changed.end());
    resize(graph.nodes.size());
    for (NodeId id = 0; id < graph.nodes.size(); ++id) {
      const Node& node = graph.nodes[id];
      stage.nodes += node.alive() ? 1 : 0;
      if (node.alive() != there_[id]) {
        node.alive() ? add(graph, id, number) : remove(id, number);
        (node.alive() ? stage.added : stage.removed).push_back(id);
      } else if (node.alive()) {
        const bool told = names_.count(node.name) != 0;
        if (told && is_other(node, last_[id])) stage.changed.push_back(id);
        if (told || record == nullptr || node.inputs != last_[id].inputs) update(graph, id, number);
      }
    }
    names_.clear();
    const bool same = stage.added.empty() && stage.removed.empty() && stage.changed.empty();
    if (same && record == nullptr && number > 0) return;
    stage.run = runs_.run_of(what, at);
    history_.stages.push_back(std::move(stage));
  }

  StageHistory finish(Graph graph) {
    history_.all = std::move(graph);
    for (NodeId id = 0; id < last_.size(); ++id)
      if (last_[id].alive()) history_.all.nodes[id] = std::move(last_[id]);
    name_apart();
    return std::move(history_);
  }

 private:
  void resize(std::size_t nodes) {
    last_.resize(nodes);
    there_.resize(nodes, false);
    open_.resize(nodes);
    history_.nodes.resize(nodes);
  }

  void add(const Graph& graph, NodeId id, std::int32_t number) {
    there_[id] = true;
    history_.nodes[id].from = number;
    update(graph, id, number);
  }

  void remove(NodeId id, std::int32_t number) {
    there_[id] = false;
    history_.nodes[id].until = number;
    for (const std::int32_t read : open_[id]) close(read, number);
    open_[id].clear();
  }

  // What the node is now, and the values that it reads from now on.
  void update(const Graph& graph, NodeId id, std::int32_t number) {
    last_[id] = graph.nodes[id];
    const std::vector<ValueId>& inputs = last_[id].inputs;
    std::vector<std::int32_t>& open = open_[id];
    for (std::size_t i = inputs.size(); i < open.size(); ++i) close(open[i], number);
    open.resize(inputs.size(), -1);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (open[i] >= 0 && history_.reads[static_cast<std::size_t>(open[i])].value == inputs[i]) continue;
      close(open[i], number);
      open[i] = inputs[i] == kNone ? -1 : static_cast<std::int32_t>(history_.reads.size());
      if (inputs[i] != kNone) history_.reads.push_back({inputs[i], id, {number, StageSpan::kEver}});
    }
  }

  void close(std::int32_t read, std::int32_t number) {
    if (read >= 0) history_.reads[static_cast<std::size_t>(read)].span.until = number;
  }

  void name_apart() {
    NameSet taken;
    for (NodeId id = 0; id < history_.nodes.size(); ++id)
      if (history_.nodes[id].until == StageSpan::kEver) taken.insert(history_.all.nodes[id].name);
    for (NodeId id = 0; id < history_.nodes.size(); ++id) {
      const std::int32_t until = history_.nodes[id].until;
      if (until == StageSpan::kEver || !history_.all.nodes[id].alive()) continue;
      std::string& name = history_.all.nodes[id].name;
      const std::string base = name + " (until " + history_.stages[static_cast<std::size_t>(until)].pass;
      if (taken.count(name) != 0) name = base + ")";
      for (int i = 2; taken.count(name) != 0; ++i) name = base + ", " + std::to_string(i) + ")";
      taken.insert(name);
    }
  }

  StageHistory history_;
  std::vector<Node> last_;  // as they were when they were last there
  std::vector<bool> there_;
  std::vector<std::vector<std::int32_t>> open_;  // by node and input: its place in `reads`, -1: none
  NameSet names_;                                // that the rewrite changed in place
  RunCounter runs_;
};

struct StageName {
  std::string pass, site;
  std::int32_t run = 0;  // 0: the last
};

Result<StageName> parse_stage(const std::string& text) {
  StageName name;
  const std::size_t colon = text.find(':');
  name.pass = text.substr(0, colon);
  if (colon != std::string::npos) name.site = text.substr(colon + 1);
  const Error bad{Errc::usage,
                  "'" + escaped(text) + "' is no stage: it is told as PASS, PASS#RUN or PASS:SITE"};
  if (name.pass.empty() || (colon != std::string::npos && name.site.empty())) return bad;
  const std::size_t hash = name.pass.find('#');
  if (hash == std::string::npos) return name;
  const std::string run = name.pass.substr(hash + 1);
  if (run.empty() || run.size() > 6 || run.find_first_not_of("0123456789") != std::string::npos) return bad;
  name.run = std::stoi(run);
  name.pass.resize(hash);
  if (name.run < 1 || name.pass.empty()) return bad;
  return name;
}

// Why there is no such stage, with what there is.
Error no_stage(const StageName& name, const std::vector<Stage>& stages, const Compiled& compiled,
               const Pipeline& pipeline) {
  std::vector<std::string> sites;
  std::int32_t runs = 0;
  for (const Stage& stage : stages) {
    if (stage.pass != name.pass) continue;
    sites.push_back(is_fingerprint(name.site) ? stage.fingerprint : stage.site);
    runs = std::max(runs, stage.run);
  }
  std::erase(sites, "");
  if (runs > 0 && name.run > runs)
    return {Errc::usage, "pass " + name.pass + " did something in " + plural_text(runs, "run") +
                             ", there is no run " + std::to_string(name.run)};
  if (runs > 0)
    return {Errc::usage,
            "pass " + escaped(name.pass) + " rewrote nothing at '" + escaped(name.site) + "'" +
                (sites.empty() ? "" : "; did you mean " + escaped(nearest_to_glob(name.site, sites)) + "?")};
  const auto called = [&](const auto& pass) { return name.pass == pass; };
  const bool ran = std::any_of(compiled.reports.begin(), compiled.reports.end(),
                               [&](const PassReport& r) { return called(r.name); });
  if (ran) return {Errc::usage, "pass " + name.pass + " changed nothing in this job"};
  const bool on = std::any_of(pipeline.passes.begin(), pipeline.passes.end(),
                              [&](const PassConfig& c) { return called(c.def->name); });
  if (on || find_pass(name.pass) != nullptr)
    return {Errc::usage, "pass " + name.pass + " did not run: it is not among the passes of this job"};
  return {Errc::usage, unknown_pass(name.pass, PassWords::passes)};
}

}  // namespace

Result<StageHistory> stage_history(const Graph& imported, const CompileOptions& options,
                                   std::stop_token stop) {
  StageRecorder recorder;
  CompileOptions watched = options;
  watched.watch = [&recorder](const Graph& graph, const std::string& what, PassPhase at,
                              const RewriteRecord* record) { recorder.see(graph, what, at, record); };
  Compiled compiled = TRY(compile(imported, watched, std::move(stop)));
  return recorder.finish(std::move(compiled.train.graph));
}

Result<StagedGraph> graph_at(const Graph& imported, const CompileOptions& options, const std::string& name,
                             std::stop_token stop) {
  const StageName wanted = TRY(parse_stage(name));
  StagedGraph found;
  std::vector<Stage> stages;
  RunCounter runs;
  CompileOptions watched = options;
  watched.watch = [&](const Graph& graph, const std::string& what, PassPhase at,
                      const RewriteRecord* record) {
    Stage stage = stage_of(what, at, record, live_node_count(graph));
    stage.run = runs.run_of(what, at);
    const bool fits = what == wanted.pass && (wanted.run == 0 || wanted.run == stage.run) &&
                      (wanted.site.empty() ||
                       (record != nullptr && fits_instance(wanted.site, stage.site, stage.fingerprint)));
    stages.push_back(std::move(stage));
    if (!fits) return;
    found.graph = graph;
    found.record = record == nullptr ? RewriteRecord() : *record;
    found.stage = stages.back();
    found.number = stages.size();
  };
  const Compiled compiled = TRY(compile(imported, watched, std::move(stop)));
  if (found.number == 0) return no_stage(wanted, stages, compiled, options.pipeline);
  found.stages = stages.size();
  return found;
}

}  // namespace gradloom
