#include "passes/offload.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/transfers.h"
#include "engine/plan/streams.h"
#include "passes/node_patterns.h"
#include "passes/phases.h"
#include "passes/planners.h"

namespace gradloom {
namespace {

// Who reads the bytes of a value, itself or through views, in the order of the schedule.
struct Readers {
  std::vector<NodeId> before, behind;  // the loss; behind: the backward pass and the optimizer
  bool kept = false;                   // an output, the loss or what an update takes is among them
};

class Values {
 public:
  static Result<Values> of(const Graph& graph) {
    Values values(graph);
    const std::vector<NodeId> order = TRY(topological_order(graph));
    for (std::size_t i = 0; i < order.size(); ++i) values.place_[order[i]] = i;
    return values;
  }

  std::size_t place(NodeId node) const { return place_[node]; }

  Readers readers(ValueId v) const {
    Readers readers;
    add_readers(v, readers);
    const auto earlier = [&](NodeId a, NodeId b) { return place_[a] < place_[b]; };
    std::sort(readers.before.begin(), readers.before.end(), earlier);
    std::sort(readers.behind.begin(), readers.behind.end(), earlier);
    return readers;
  }

  // Why the value cannot be away; empty: it can.
  std::string why_not(ValueId v) const {
    const Value& value = graph_->values[v];
    const Readers r = readers(v);
    if (graph_->nodes[value.producer].op->has(kMustAlias)) return "it is a state, which stays";
    if (byte_size(value.type) == 0) return "it has no bytes";
    if (r.kept) return "it is kept to the end of the step";
    if (r.behind.empty()) return "nothing after the loss reads it";
    const auto copied = [&](NodeId id) { return copies_to_host(*graph_->nodes[id].op); };
    if (std::any_of(r.before.begin(), r.before.end(), copied)) return "it leaves already";
    if (!r.before.empty() && place_[r.before.back()] > place_[r.behind.front()])
      return "it is read in the forward pass and in the backward pass by turns";
    if (r.behind.front() == kNone || place_[value.producer] + 1 == place_[r.behind.front()])
      return "it is read after the loss as soon as it is made";
    return "";
  }

  // That can be away, in the order in which they are made.
  std::vector<ValueId> movable() const {
    std::vector<ValueId> found;
    for (ValueId v = 0; v < graph_->values.size(); ++v) {
      const NodeId producer = graph_->values[v].producer;
      if (producer == kNone || !runs_forward(graph_->nodes[producer]) ||
          graph_->nodes[producer].op->has(kView))
        continue;
      if (why_not(v).empty()) found.push_back(v);
    }
    std::stable_sort(found.begin(), found.end(), [&](ValueId a, ValueId b) {
      return place_[graph_->values[a].producer] < place_[graph_->values[b].producer];
    });
    return found;
  }

 private:
  explicit Values(const Graph& graph) : graph_(&graph), uses_(uses_of(graph)), place_(graph.nodes.size(), 0) {
    kept_.insert(graph.outputs.begin(), graph.outputs.end());
    kept_.insert(graph.loss);
    for (const Update& update : graph.updates) kept_.insert(update.next);
  }

  void add_readers(ValueId v, Readers& readers) const {
    readers.kept = readers.kept || kept_.count(v) != 0;
    for (const Use& use : uses_[v]) {
      const Node& node = graph_->nodes[use.node];
      if (node.op->has(kView) && use.input_index == 0)
        add_readers(node.outputs[0], readers);
      else
        (runs_after_loss(node) ? readers.behind : readers.before).push_back(use.node);
    }
  }

  const Graph* graph_;
  std::vector<std::vector<Use>> uses_;
  std::vector<std::size_t> place_;  // by node, in the schedule
  std::set<ValueId> kept_;
};

const RewriteRun kRun{.name = "offload", .infer_again = false};

class Offloader {
 public:
  Offloader(Graph& graph, Rewriter& rw) : graph_(graph), rw_(rw) {}

  // `first`: the node after the loss that reads the value first.
  Status move(ValueId v, NodeId first, const std::string& why) {
    const NodeId producer = graph_.values[v].producer;
    if (!rw_.allowed("away", producer)) return {};
    GraphBuilder& b = rw_.begin("away", producer, {producer});
    const std::string name = graph_.values[v].name;
    const auto copy = [&](const char* op, ValueId from, const char* what) -> Result<ValueId> {
      const ValueId made = TRY(b.add(op_by_name(op), {from}, {}, 1, {b.unique_name(name + what)},
                                     b.unique_name(graph_.nodes[producer].name + what)))[0];
      graph_.values[made].role = Role::activation;
      return made;
    };
    const ValueId away = TRY(copy("CopyToHost", v, "/away"));
    const auto behind_copy = static_cast<NodeId>(graph_.nodes.size());
    const ValueId back = TRY(copy("CopyFromHost", away, "/back"));
    TRY(read_instead(b, v, back));
    // It leaves where it is made, and comes back where it is read.
    for (NodeId id = behind_copy; id < graph_.nodes.size(); ++id) {
      graph_.nodes[id].origin.phase = graph_.nodes[first].origin.phase;
      graph_.nodes[id].rank = graph_.nodes[first].rank;
    }
    rw_.commit(why);
    return {};
  }

 private:
  // What reads `from` after the loss reads `to`, views of it views of that.
  Status read_instead(GraphBuilder& b, ValueId from, ValueId to) {
    const std::vector<Use> uses = rw_.uses(from);
    for (const Use& use : uses) {
      const Node reader = graph_.nodes[use.node];
      if (reader.op->has(kView) && use.input_index == 0 && !runs_after_loss(reader)) {
        if (!read_behind(reader.outputs[0])) continue;
        std::vector<ValueId> inputs = reader.inputs;
        inputs[0] = to;
        const std::string name = graph_.values[reader.outputs[0]].name;
        const ValueId view =
            TRY(b.add(*reader.op, std::move(inputs), reader.attrs, 1, {b.unique_name(name + "/back")},
                      b.unique_name(reader.name + "/back")))[0];
        graph_.values[view].type = graph_.values[reader.outputs[0]].type;
        graph_.values[view].role = Role::activation;
        TRY(read_instead(b, reader.outputs[0], view));
      } else if (runs_after_loss(reader)) {
        std::vector<ValueId> inputs = graph_.nodes[use.node].inputs;
        inputs[use.input_index] = to;
        rw_.retype(use.node, std::move(inputs), reader.attrs);
      }
    }
    return {};
  }

  bool read_behind(ValueId v) const {
    return std::any_of(rw_.uses(v).begin(), rw_.uses(v).end(), [&](const Use& use) {
      const Node& node = graph_.nodes[use.node];
      return runs_after_loss(node) || (node.op->has(kView) && read_behind(node.outputs[0]));
    });
  }

  Graph& graph_;
  Rewriter& rw_;
};

using Texts = std::map<std::string, std::string>;  // by name of the value

Status apply(Graph& graph, const std::vector<ValueId>& values,
             const std::vector<std::pair<NodeId, std::string>>& kept, const Texts& texts,
             std::vector<PassReport>& reports) {
  const Values known = TRY(Values::of(graph));
  return run_rewrites(
      graph, kRun,
      [&](Rewriter& rw) -> Status {
        for (const auto& [node, why] : kept) rw.reject("away", node, why);
        Offloader offloader(graph, rw);
        for (const ValueId v : values) {
          const auto text = texts.find(graph.values[v].name);
          TRY(offloader.move(v, known.readers(v).behind.front(), text == texts.end() ? "" : text->second));
        }
        return {};
      },
      reports);
}

// What became of each value that leaves: bytes, and how long readers are predicted to wait for its copies.
Texts texts_of(const Graph& graph, const Plan& plan, const StepSpeeds& speeds) {
  const StepTimes times = predict_times(graph, plan, speeds);
  std::map<std::size_t, double> waits_ns;  // by copy
  double free_ns = 0;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    if (step.stream != kComputeStream) continue;
    // To the last one that is waited for, which is over the latest.
    double latest_ns = -1;
    std::size_t latest = 0;
    for (const std::int32_t other : step.waits)
      if (const double end_ns = times.end_ns[static_cast<std::size_t>(other)]; end_ns > latest_ns) {
        latest_ns = end_ns;
        latest = static_cast<std::size_t>(other);
      }
    if (latest_ns >= 0) waits_ns[latest] += std::max(0.0, times.start_ns[i] - free_ns);
    free_ns = times.end_ns[i];
  }
  Texts texts;
  std::map<ValueId, double> away_ns;  // by what is in the host's memory
  for (const auto& [copy, ns] : waits_ns) {
    const Node& node = graph.nodes[plan.steps[copy].node];
    away_ns[copies_to_host(*node.op) ? node.outputs[0] : node.inputs[0]] += ns;
  }
  for (const PlanStep& step : plan.steps) {
    const Node& node = graph.nodes[step.node];
    if (!copies_to_host(*node.op)) continue;
    const Value& value = graph.values[node.inputs[0]];
    const double ns = away_ns.count(node.outputs[0]) != 0 ? away_ns.at(node.outputs[0]) : 0;
    std::string text = bytes_text(static_cast<double>(byte_size(value.type))) + ", ";
    if (step.stream == kComputeStream)
      text += "copied as a step of its own: it is not of the micro-batch alone";
    else
      text += ns > 0 ? "readers are predicted to wait " + duration_text(ns) : "predicted to be back in time";
    texts[value.name] = std::move(text);
  }
  return texts;
}

// Copies may hold memory until they are over, or kernels wait for them.
constexpr double kHolds[] = {1e300, 0};

// Fewest values, of a list in the order in which they may leave, with which a plan fits.
class Fitter {
 public:
  Fitter(const Graph& graph, const std::vector<PassReport>& reports, const OffloadOptions& options)
      : graph_(graph), reports_(reports), options_(options) {}

  Status run() {
    for (const RecomputeChoice& choice : chosen()) {
      Graph graph = graph_;
      std::vector<PassReport> reports = reports_;
      if (!choice.nodes.empty()) TRY(apply_recompute(graph, choice.nodes, reports));
      // Copies make no plan faster.
      if (best && TRY(with(graph, reports, {}, 0, true)).predicted_ns >= best->predicted_ns) continue;
      const Values values = TRY(Values::of(graph));
      std::vector<ValueId> earliest = values.movable(), largest = earliest;
      std::stable_sort(largest.begin(), largest.end(), [&](ValueId a, ValueId b) {
        return byte_size(graph.type(a)) > byte_size(graph.type(b));
      });
      for (const double hold_ns : kHolds) {
        hold_ns_ = hold_ns;
        if (plans_ <= most_plans()) TRY(fit(graph, reports, earliest));
        if (plans_ <= most_plans() && largest != earliest) TRY(fit(graph, reports, largest));
      }
    }
    return {};
  }

  std::optional<FittedPlan> best;
  std::int64_t least_bytes = INT64_MAX;

 private:
  // Choices of recompute, from the curve; plans, so many of so many nodes in all: seconds.
  static constexpr std::size_t kChoices = 8, kLeastPlans = 64, kPlannedNodes = 200'000;
  std::size_t most_plans() const {
    return std::max(kLeastPlans, kPlannedNodes / std::max<std::size_t>(graph_.nodes.size(), 1));
  }

  std::vector<RecomputeChoice> chosen() const {
    const auto& all = options_.recompute;
    std::vector<RecomputeChoice> some;
    // First the cheapest that fits by itself.
    const auto fits = std::find_if(all.begin(), all.end(), [&](const RecomputeChoice& choice) {
      return choice.peak_bytes <= options_.budget_bytes;
    });
    if (fits != all.end()) some.push_back(*fits);
    const std::size_t count = std::min(all.size(), kChoices);
    for (std::size_t i = 0; i < count; ++i)
      some.push_back(all[i * (all.size() - 1) / std::max<std::size_t>(count - 1, 1)]);
    return some;
  }

  Result<FittedPlan> with(const Graph& from, const std::vector<PassReport>& reports,
                          const std::vector<ValueId>& order, std::size_t count, bool search) {
    if (options_.stop.stop_requested()) return Error{Errc::interrupted, "interrupted"};
    ++plans_;
    const std::vector<ValueId> values(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
    FittedPlan made{from, {}, reports};
    PlanOptions plan = options_.plan;
    plan.speeds.hold_ns = hold_ns_;
    if (search) plan.planner = plan_nothing;
    Texts texts;
    if (!search && count > 0) {
      Graph tried = from;
      std::vector<PassReport> ignored;
      TRY(apply(tried, values, {}, {}, ignored));
      texts = texts_of(tried, TRY(make_plan(tried, plan)), plan.speeds);
    }
    std::vector<std::pair<NodeId, std::string>> kept;
    for (std::size_t i = count; !search && i < order.size(); ++i)
      kept.emplace_back(from.values[order[i]].producer, "the budget is kept without it");
    if (count > 0) TRY(apply(made.graph, values, kept, texts, made.reports));
    made.plan = TRY(make_plan(made.graph, plan));
    made.predicted_ns = predict_times(made.graph, made.plan, plan.speeds).total_ns;
    return made;
  }

  Status fit(const Graph& graph, const std::vector<PassReport>& reports, const std::vector<ValueId>& order) {
    std::size_t low = 0, high = order.size();
    const FittedPlan all = TRY(with(graph, reports, order, high, true));
    least_bytes = std::min(least_bytes, all.plan.peak_bytes());
    if (all.plan.peak_bytes() > options_.budget_bytes) return {};
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      const bool fits =
          TRY(with(graph, reports, order, middle, true)).plan.peak_bytes() <= options_.budget_bytes;
      (fits ? high : low) = fits ? middle : middle + 1;
    }
    // The planner may need a little more than the lower bound.
    for (std::size_t count = low; count <= order.size();
         count += std::max<std::size_t>(1, (order.size() - low) / 8)) {
      FittedPlan made = TRY(with(graph, reports, order, count, false));
      if (made.plan.peak_bytes() > options_.budget_bytes) continue;
      if (!best || made.predicted_ns < best->predicted_ns) best = std::move(made);
      break;
    }
    return {};
  }

  const Graph& graph_;
  const std::vector<PassReport>& reports_;
  const OffloadOptions& options_;
  double hold_ns_ = kHolds[0];
  std::size_t plans_ = 0;  // made so far
};

}  // namespace

Status offload_named(Graph& graph, const std::vector<std::string>& patterns, PlanOptions& plan,
                     std::vector<PassReport>& reports) {
  TRY(check_node_patterns(graph, patterns, "--offload"));
  const Values values = TRY(Values::of(graph));
  std::vector<ValueId> moved;
  std::vector<std::pair<NodeId, std::string>> kept;
  for (const NodeId id : TRY(topological_order(graph))) {
    const Node& node = graph.nodes[id];
    if (!runs_forward(node) || std::none_of(patterns.begin(), patterns.end(),
                                            [&](const std::string& p) { return fits_node(p, graph, node); }))
      continue;
    if (node.op->has(kView)) {
      kept.emplace_back(id, "it is a view: what it is one of can leave");
      continue;
    }
    for (const ValueId v : node.outputs) {
      if (v == kNone) continue;
      if (std::string why = values.why_not(v); why.empty())
        moved.push_back(v);
      else
        kept.emplace_back(id, std::move(why));
    }
  }
  Graph tried = graph;
  std::vector<PassReport> ignored;
  TRY(apply(tried, moved, {}, {}, ignored));
  std::optional<Plan> least;
  for (const double hold_ns : kHolds) {
    PlanOptions held = plan;
    held.speeds.hold_ns = hold_ns;
    Plan made = TRY(make_plan(tried, held));
    if (least && made.peak_bytes() >= least->peak_bytes()) continue;
    least = std::move(made);
    plan.speeds.hold_ns = hold_ns;
  }
  const Texts texts = texts_of(tried, *least, plan.speeds);
  return apply(graph, moved, kept, texts, reports);
}

Result<std::optional<FittedPlan>> offload_to_fit(const Graph& graph, const std::vector<PassReport>& reports,
                                                 const OffloadOptions& options, std::int64_t& least_bytes) {
  Fitter fitter(graph, reports, options);
  TRY(fitter.run());
  least_bytes = fitter.least_bytes;
  return std::move(fitter.best);
}

}  // namespace gradloom
