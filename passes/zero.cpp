// zero: each rank keeps the optimizer's states of its share of the parameters, and with stage 2 their gradients (Rajbhandari et al.
// 2020, ZeRO). Parameters are cut, where the optimizer updates each element by itself.
#include "passes/zero.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/owned_parts.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/ops/collectives/share_parameters.h"
#include "engine/ops/inference.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "engine/ranks/world.h"
#include "engine/train/eight_bit.h"
#include "engine/train/state_ranges.h"
#include "passes/casts.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

using namespace optimizer_inputs;

constexpr const char *kStates = "states", *kShare = "share", *kGradients = "gradients",
                     *kParameters = "parameters";

// An update and what it remembers.
struct Kept {
  NodeId node = kNone;
  ValueId parameter = kNone, next = kNone;
  std::vector<ValueId> states;
  NodeId mean = kNone;  // stage 2: that makes the gradient's mean for all ranks, until now
  // To 16 bits, by which alone the forward pass reads the parameter: ranks give each other its result. Else kNone.
  NodeId cast = kNone;
  WeightCopy copy;  // in its place
  // Bytes: of the states, of a gradient that its owners alone get, and of a parameter that they alone keep.
  ZeroItem item;
  std::vector<OwnedPart> parts;

  const OwnedPart* of_rank(std::int64_t rank) const {
    const auto found =
        std::find_if(parts.begin(), parts.end(), [&](const OwnedPart& part) { return part.owner == rank; });
    return found == parts.end() ? nullptr : &*found;
  }
  bool is_cut() const { return parts.size() > 1; }
};

bool is_norm(const Node& node) { return is_op(node, "GlobalNorm"); }

class Zero final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("stage", stage_,
            {.help = "what is divided: 1 the optimizer's states, 2 gradients too", .min = 1, .max = 2});
    v.field(
        "masters", masters_,
        {.help = "f32 parameters that are read in 16 bits alone: apart, each element where it is updated, or "
                 "all of them on every rank",
         .choices = {"apart", "all"}});
    v.field(
        "rank", rank_,
        {.help = "whose plan it is; -1: that of the process, 0 where it is none", .min = -1, .max = 65535});
  }

  Status run(Rewriter& rw) const override {
    const std::int64_t ranks = rank_count(rw.graph());
    if (ranks == 0) return {};
    if (rank_ >= ranks)
      return Error{Errc::usage,
                   "zero: there is no rank " + std::to_string(rank_) + " of " + std::to_string(ranks)};
    std::vector<Kept> all = TRY(find(rw));
    if (all.empty()) return {};
    std::vector<ZeroItem> items;
    for (const Kept& kept : all) items.push_back(kept.item);
    for (OwnedPart part : zero_shares(items, ranks)) {
      Kept& kept = all[std::exchange(part.tensor, 0)];
      kept.parts.push_back(part);
    }
    for (Kept& kept : all)
      if (kept.cast != kNone) TRY(write_copy(rw, kept));
    for (const Kept& kept : all)
      if (const OwnedPart* const own = kept.of_rank(own_rank()); own != nullptr && kept.is_cut())
        TRY(narrow(rw, kept, *own));
    TRY(share(rw, all, ranks, TRY(reduce(rw, all, ranks))));
    for (const Kept& kept : all)
      if (kept.of_rank(own_rank()) == nullptr) leave(rw, kept);
    return {};
  }

 private:
  std::int64_t own_rank() const {
    if (rank_ >= 0) return rank_;
    const World* const world = World::current();
    return world == nullptr ? 0 : world->rank();
  }

  // 0: the graph exchanges nothing.
  static std::int64_t rank_count(const Graph& graph) {
    for (const Node& node : graph.nodes)
      if (node.alive() && (node.op == &all_reduce_op() || node.op == &all_reduce_begin_op()))
        return node.attrs.integer("ranks");
    return 0;
  }

  // Why a gradient has to be on every rank; empty: its update and norms alone read it. `mean`: what makes it.
  static std::string needed_by_all(const Rewriter& rw, NodeId update, NodeId mean) {
    const Graph& graph = rw.graph();
    if (mean == kNone || graph.nodes[mean].op != &all_reduce_op() || graph.nodes[mean].inputs.size() != 1)
      return "its gradient has no exchange of its own";
    const ValueId gradient = graph.nodes[mean].outputs[0];
    const std::vector<Use>& uses = rw.uses(gradient);
    const bool others = std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.node != update && !is_norm(graph.nodes[use.node]);
    });
    if (others || rw.is_output(gradient)) return "others than the update read its gradient";
    const bool low = std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return use.node != update && is_half(graph.type(graph.nodes[use.node].outputs[0]).dtype);
    });
    return low ? "the norm of gradients is in 16 bits" : "";
  }

  // In the order of the parameters.
  Result<std::vector<Kept>> find(Rewriter& rw) const {
    const Graph& graph = rw.graph();
    std::map<ValueId, NodeId> updaters;
    for (const NodeId id : TRY(topological_order(graph)))
      if (is_op(graph.nodes[id], "Optimizer")) updaters.emplace(graph.nodes[id].inputs[kFirst], id);
    std::vector<Kept> all;
    std::optional<DType> low;  // of copies
    for (const auto& [parameter, id] : updaters) {
      const Node& node = graph.nodes[id];
      if (parameter_count(node.attrs) != 1 || node.attrs.has("copies")) {
        rw.reject(kStates, id, "it updates several values at once");
        continue;
      }
      if (is_shared(rw, node.outputs[0])) continue;  // it was found before
      Kept kept{id, parameter, node.outputs[0], {node.inputs.begin() + kFirst + 2, node.inputs.end()}};
      kept.item = {element_count(graph.type(parameter).shape), 0, may_be_cut(node)};
      for (const ValueId state : kept.states)
        kept.item.bytes += static_cast<std::int64_t>(byte_size(graph.type(state)));
      if (stage_ == 2) {
        const ValueId gradient = node.inputs[kFirst + 1];
        const NodeId mean = graph.values[gradient].producer;
        if (const std::string why = needed_by_all(rw, id, mean); !why.empty()) {
          rw.reject(kGradients, id, why);
        } else {
          kept.mean = mean;
          kept.item.bytes += static_cast<std::int64_t>(byte_size(graph.type(gradient)));
        }
      }
      if (masters_ == "apart") kept.cast = only_cast(rw, kept, low);
      if (kept.cast != kNone) kept.item.bytes += static_cast<std::int64_t>(byte_size(graph.type(parameter)));
      if (kept.item.bytes == 0) {
        rw.reject(kStates, id, "the optimizer remembers nothing");
        continue;
      }
      if (rw.allowed(kStates, id)) all.push_back(std::move(kept));
    }
    return all;
  }

  // The cast to 16 bits that alone reads the parameter, beside its update; kNone: there is none, or others read the parameter or what it
  // becomes. The answer is the same on every rank. `low`: the type of such casts, once there is one.
  static NodeId only_cast(Rewriter& rw, const Kept& kept, std::optional<DType>& low) {
    const Graph& graph = rw.graph();
    NodeId cast = kNone;
    bool others = !rw.uses(kept.next).empty() || std::find(graph.outputs.begin(), graph.outputs.end(),
                                                           kept.parameter) != graph.outputs.end();
    for (const Use& use : rw.uses(kept.parameter)) {
      const Node& reader = graph.nodes[use.node];
      const bool casts = is_op(reader, "Cast") && is_half(graph.type(reader.outputs[0]).dtype) &&
                         !is_half(graph.type(kept.parameter).dtype) && !rw.is_output(reader.outputs[0]);
      if (casts && cast == kNone &&
          low.value_or(graph.type(reader.outputs[0]).dtype) == graph.type(reader.outputs[0]).dtype)
        cast = use.node;
      else if (use.node != kept.node)
        others = true;
    }
    if (cast == kNone) return kNone;
    if (others) {
      rw.reject(kParameters, cast,
                "others than the cast and the update read the parameter, or what it becomes");
      return kNone;
    }
    if (!rw.allowed(kParameters, cast)) return kNone;
    low = graph.type(graph.nodes[cast].outputs[0]).dtype;
    return cast;
  }

  // The update writes what the cast gives, for the next step.
  static Status write_copy(Rewriter& rw, Kept& kept) {
    const ValueId rounded = rw.graph().nodes[kept.cast].outputs[0];
    const DType low = rw.graph().type(rounded).dtype;
    const Tensor& whole = rw.graph().values[kept.parameter].data;
    Tensor initial;
    if (whole.defined()) initial = TRY(whole.loaded()).cast(low);
    GraphBuilder& b = rw.begin(kParameters, kept.cast, {kept.cast});
    kept.copy = add_weight_copy(rw, b, kept.node, 0, low, std::move(initial));
    rw.replace(rounded, kept.copy.state);
    rw.commit("ranks exchange it in 16 bits");
    return {};
  }

  // Whether a range of the parameter can be updated by itself.
  static bool may_be_cut(const Node& update) {
    return update_reach(update.attrs.text("kind")) == UpdateReach::element && !update.attrs.has("keys");
  }

  // A gradient that its owners get alone.
  struct Reduced {
    ValueId result = kNone;  // on this rank, if it is one of them
    const Kept* kept = nullptr;
  };

  // What was waited for, without which no rank goes on.
  Result<std::vector<ValueId>> reduce(Rewriter& rw, const std::vector<Kept>& all, std::int64_t ranks) const {
    std::vector<NodeId> replaced;
    std::vector<ValueId> waits;
    for (const Kept& kept : all)
      if (kept.mean != kNone) replaced.push_back(kept.mean);
    if (replaced.empty()) return waits;
    const auto reduced = static_cast<std::int64_t>(replaced.size());
    const std::vector<NodeId> norms = norms_of(rw, replaced);
    replaced.insert(replaced.end(), norms.begin(), norms.end());
    GraphBuilder& b = rw.begin(kGradients, replaced[0], replaced);
    std::map<ValueId, Reduced> gradients;  // by the mean
    for (const Kept& kept : all) {
      if (kept.mean == kNone) continue;
      const ValueId mean = rw.graph().nodes[kept.mean].outputs[0];
      gradients[mean] = {TRY(reduce_one(b, kept, ranks, waits)), &kept};
    }
    for (const NodeId norm : norms) {
      const ValueId old = rw.graph().nodes[norm].outputs[0];
      rw.replace(old, TRY(norm_of_shares(b, norm, gradients, ranks, waits)));
    }
    for (const auto& [mean, gradient] : gradients) {
      if (gradient.result == kNone) continue;
      if (gradient.kept->is_cut())
        read_gradient(rw, gradient.kept->node, gradient.result);
      else
        rw.replace(mean, gradient.result);
    }
    rw.commit(plural_text(reduced, "gradient") + ", each at the ranks that keep its states");
    return waits;
  }

  static std::vector<NodeId> norms_of(const Rewriter& rw, const std::vector<NodeId>& means) {
    std::vector<NodeId> norms;
    for (const NodeId mean : means)
      for (const Use& use : rw.uses(rw.graph().nodes[mean].outputs[0]))
        if (is_norm(rw.graph().nodes[use.node])) norms.push_back(use.node);
    std::sort(norms.begin(), norms.end());
    norms.erase(std::unique(norms.begin(), norms.end()), norms.end());
    return norms;
  }

  // The update of a range reads the gradient of that range alone.
  static void read_gradient(Rewriter& rw, NodeId update, ValueId gradient) {
    const Node& node = rw.graph().nodes[update];
    std::vector<ValueId> inputs = node.inputs;
    inputs[kFirst + 1] = gradient;
    rw.retype(update, std::move(inputs), node.attrs);
  }

  // Begun and waited for; pass data-parallel puts work in between. What an owner gets of the gradient, else kNone.
  Result<ValueId> reduce_one(GraphBuilder& b, const Kept& kept, std::int64_t ranks,
                             std::vector<ValueId>& waits) const {
    const Graph& graph = b.graph();
    const Node mean = graph.nodes[kept.mean];
    const std::string name = graph.values[kept.parameter].name;
    const bool own = kept.of_rank(own_rank()) != nullptr;
    const BuildScope there(b, {b.context().origin, mean.rank, ""});
    Attrs attrs{{"ranks", ranks}, {"rank", own_rank()}};
    set_owned_parts(attrs, kept.parts, std::vector{graph.type(mean.inputs[0])});
    const std::vector<ValueId> made = TRY(b.add(reduce_gradients_op(), mean.inputs, attrs, own ? 2 : 1, {},
                                                b.unique_name(name + "/ReduceGradients")));
    std::vector<ValueId> held{made.back(), mean.inputs[0]};
    if (own) held.push_back(made[0]);
    waits.push_back(
        TRY(b.add(all_reduce_wait_op(), held, {}, 1, {}, b.unique_name(name + "/AllReduceWait")))[0]);
    if (!own) return kNone;
    return TRY(b.add(all_reduce_result_op(), {made[0], waits.back()}, {}, 1, {},
                     b.unique_name(name + "/result")))[0];
  }

  // GlobalNorm of gradients that are at their owners, who tell each other their squares: the same sums in the same order.
  // `waits`: every rank has made all else that it exchanges before.
  Result<ValueId> norm_of_shares(GraphBuilder& b, NodeId norm, const std::map<ValueId, Reduced>& gradients,
                                 std::int64_t ranks, const std::vector<ValueId>& waits) const {
    const Graph& graph = b.graph();
    const Node node = graph.nodes[norm];
    const BuildScope there(b, {b.context().origin, node.rank, ""});
    const std::int64_t everywhere = ranks;  // in the place of an owner
    std::map<std::int64_t, std::vector<ValueId>> own;
    std::map<std::int64_t, std::int64_t> totals;  // pieces
    std::vector<std::int64_t> from, pieces;
    const auto add = [&](std::int64_t owner, std::int64_t elements) {
      pieces.push_back(square_pieces(elements));
      totals[owner] += pieces.back();
      from.push_back(owner);
    };
    for (const ValueId gradient : node.inputs) {
      const auto reduced = gradients.find(gradient);
      if (reduced == gradients.end()) {
        add(everywhere, element_count(graph.type(gradient).shape));
        own[everywhere].push_back(gradient);
        continue;
      }
      for (const OwnedPart& part : reduced->second.kept->parts) add(part.owner, part.count);
      if (reduced->second.result != kNone) own[own_rank()].push_back(reduced->second.result);
    }
    std::vector<ValueId> squares;
    std::vector<std::int64_t> owners;
    for (const auto& [owner, total] : totals) {
      const auto found = own.find(owner);
      squares.push_back(found == own.end() ? b.constant(Tensor(DType::f64, {total}))
                                           : TRY(b.add(gradient_squares_op(), found->second, {}, 1, {},
                                                       b.unique_name(node.name + "/squares")))[0]);
      owners.push_back(owner);
    }
    for (std::int64_t& of : from) of = std::find(owners.begin(), owners.end(), of) - owners.begin();
    const bool has_local = owners.back() == everywhere;
    std::vector<ValueId> shared(squares.begin(), squares.end() - (has_local ? 1 : 0));
    const std::size_t count = shared.size();
    shared.insert(shared.end(), waits.begin(), waits.end());
    owners.resize(count);
    std::vector<ValueId> all =
        TRY(b.add(share_parameters_op(), shared, {{"ranks", ranks}, {"owners", owners}},
                  static_cast<int>(count), {}, b.unique_name(node.name + "/ShareSquares")));
    if (has_local) all.push_back(squares.back());
    const Attrs attrs{{"type", std::int64_t{onnx_from_dtype(graph.type(node.outputs[0]).dtype)}},
                      {"from", from},
                      {"pieces", pieces}};
    return TRY(b.add(norm_of_squares_op(), all, attrs, 1, {}, b.unique_name(node.name + "/norm")))[0];
  }

  // Whatever comes after an update reads what its owner has made. `waits`: what else every rank has made before.
  Status share(Rewriter& rw, const std::vector<Kept>& all, std::int64_t ranks,
               const std::vector<ValueId>& waits) const {
    std::vector<ValueId> updated;
    std::vector<OwnedPart> parts;
    std::vector<Type> types;
    std::vector<std::int64_t> masters;
    std::int64_t own_bytes = 0, bytes = 0, own = 0, rank = 0;
    for (const Kept& kept : all) {
      for (const OwnedPart& part : kept.parts)
        parts.push_back({updated.size(), part.begin, part.count, part.owner});
      masters.push_back(kept.cast == kNone ? -1 : std::int64_t{kept.parameter});
      updated.push_back(kept.cast == kNone ? kept.next : kept.copy.next);
      types.push_back(rw.graph().type(updated.back()));
      rank = std::max(rank, rw.graph().nodes[kept.node].rank);
      bytes += kept.item.bytes;
      if (const OwnedPart* const part = kept.of_rank(own_rank())) {
        own_bytes += zero_bytes(kept.item, *part);
        ++own;
      }
    }
    std::vector<std::vector<Use>> uses;
    for (const ValueId next : updated) uses.push_back(rw.uses(next));
    GraphBuilder& b = rw.begin(kShare, all[0].node, {});
    const BuildScope later(b, {b.context().origin, rank + 1, ""});
    std::vector<ValueId> inputs = updated;
    inputs.insert(inputs.end(), waits.begin(), waits.end());
    const std::vector<ValueId> shared =
        TRY(b.add(share_parameters_op(), inputs, given_attrs(ranks, own_rank(), parts, types, masters),
                  static_cast<int>(updated.size()), {}, b.unique_name("all/ShareParameters")));
    for (std::size_t i = 0; i < shared.size(); ++i) {
      if (masters[i] >= 0) {
        rw.update(all[i].copy.state, shared[i]);
        continue;
      }
      rw.replace_outputs(updated[i], shared[i]);
      for (const Use& use : uses[i]) {
        const Node& reader = rw.graph().nodes[use.node];
        std::vector<ValueId> read = reader.inputs;
        read[use.input_index] = shared[i];
        rw.retype(use.node, std::move(read), reader.attrs);
      }
    }
    const auto text = [](std::int64_t n) { return bytes_text(static_cast<double>(n)); };
    rw.commit("rank " + std::to_string(own_rank()) + " of " + std::to_string(ranks) +
              " keeps the states of " + std::to_string(own) + " of " +
              plural_text(static_cast<std::int64_t>(all.size()), "parameter") + ", " + text(own_bytes) +
              " of " + text(bytes));
    return {};
  }

  // This rank updates a part of the parameter.
  static Status narrow(Rewriter& rw, const Kept& kept, const OwnedPart& own) {
    const Node node = rw.graph().nodes[kept.node];
    const Shape shape = rw.graph().type(kept.parameter).shape;
    const ElementRange range{own.begin, own.count};
    std::vector<ValueId> inputs = node.inputs;
    GraphBuilder& b = rw.begin(kStates, kept.node, {});
    for (std::size_t i = 0; i < kept.states.size(); ++i) {
      const ValueId state = kept.states[i];
      const Tensor& whole = rw.graph().values[state].data;
      const ValueId part =
          b.state(b.unique_name(rw.graph().values[state].name),
                  node.attrs.integer("eight_bit_states") == 0
                      ? TRY(elements_of(whole, range))
                      : TRY(joined_state(TRY(elements_of(split_state(whole, shape), range)))));
      rw.forget(state);
      rw.replace_outputs(state, part);  // its name is that of the whole
      inputs[kFirst + 2 + i] = part;
      rw.update(part, node.outputs[1 + i]);
    }
    Attrs attrs = node.attrs;
    attrs.set("begins", std::vector<std::int64_t>{own.begin});
    attrs.set("counts", std::vector<std::int64_t>{own.count});
    rw.retype(kept.node, std::move(inputs), std::move(attrs));
    rw.commit("it keeps elements " + std::to_string(own.begin) + " to " +
              std::to_string(own.begin + own.count - 1) + " of " + std::to_string(kept.item.elements));
    return {};
  }

  // The update of a parameter that other ranks make.
  static void leave(Rewriter& rw, const Kept& kept) {
    std::vector<NodeId> replaced{kept.node};
    if (kept.mean != kNone) replaced.push_back(kept.mean);
    rw.begin(kStates, kept.node, replaced);
    for (const ValueId state : kept.states) rw.forget(state);
    if (kept.cast == kNone) {
      rw.replace(kept.next, kept.parameter);
    } else {
      rw.replace(kept.copy.next, kept.copy.state);
      rw.forget(kept.parameter);
    }
    const int first = kept.parts.front().owner, last = kept.parts.back().owner;
    rw.commit((kept.is_cut() ? "ranks " + std::to_string(first) + " to " + std::to_string(last) + " keep "
                             : "rank " + std::to_string(first) + " keeps ") +
              bytes_text(static_cast<double>(kept.item.bytes)));
  }

  std::int64_t stage_ = 1, rank_ = -1;
  std::string masters_ = "apart";
};

// One rank of one keeps all.
Result<PassExample> example() {
  const auto build = [](Graph& graph, bool shared) {
    GraphBuilder b(graph, {.origin = {{}, Phase::optimizer}, .rank = 5});
    const ValueId lr = b.input("lr", {DType::f64, {}}, Role::hyper),
                  step = b.input("step", {DType::i64, {}}, Role::hyper);
    const ValueId x = b.input("x", {DType::f32, {4}});
    const ValueId p = b.parameter("p", Tensor(DType::f32, {4})),
                  buffer = b.state("p/momentum", Tensor(DType::f32, {4}));
    const ValueId gradient = b.ops(all_reduce_op(), {b.op("Neg", {x})}, {{"ranks", std::int64_t{1}}}, 1)[0];
    const auto next = b.ops(op_by_name("Optimizer"), {lr, step, kNone, kNone, p, gradient, buffer},
                            {{"kind", std::string("sgd")}, {"momentum", 0.9}}, 2);
    const ValueId made =
        shared ? b.ops(share_parameters_op(), {next[0]},
                       {{"ranks", std::int64_t{1}}, {"owners", std::vector<std::int64_t>{0}}}, 1)[0]
               : next[0];
    b.update(p, made);
    b.update(buffer, next[1]);
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

std::int64_t zero_bytes(const ZeroItem& item, const OwnedPart& part) {
  if (part.count == item.elements) return item.bytes;
  return static_cast<std::int64_t>(static_cast<double>(item.bytes) * static_cast<double>(part.count) /
                                   static_cast<double>(item.elements));
}

std::vector<OwnedPart> zero_shares(std::span<const ZeroItem> items, std::int64_t ranks) {
  std::vector<std::size_t> by_size(items.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](std::size_t a, std::size_t b) { return items[a].bytes > items[b].bytes; });
  const auto count = static_cast<std::size_t>(ranks);
  std::vector<std::int64_t> has(count, 0);
  std::vector<std::size_t> least_first(count);
  std::vector<std::vector<OwnedPart>> parts(items.size());
  for (const std::size_t i : by_size) {
    const ZeroItem& item = items[i];
    const std::int64_t unit = item.cut ? kRangeUnit : std::max<std::int64_t>(item.elements, 1),
                       units = std::max<std::int64_t>((item.elements + unit - 1) / unit, 1);
    std::vector<std::int64_t> of_rank(count, units / ranks);
    std::iota(least_first.begin(), least_first.end(), std::size_t{0});
    std::stable_sort(least_first.begin(), least_first.end(),
                     [&](std::size_t a, std::size_t b) { return has[a] < has[b]; });
    for (std::int64_t more = 0; more < units % ranks; ++more)
      ++of_rank[least_first[static_cast<std::size_t>(more)]];
    std::int64_t begin = 0;
    for (std::size_t rank = 0; rank < count; ++rank) {
      if (of_rank[rank] == 0) continue;
      const std::int64_t end = std::min(begin + of_rank[rank] * unit, item.elements);
      parts[i].push_back({i, begin, end - begin, static_cast<int>(rank)});
      has[rank] += zero_bytes(item, parts[i].back());
      begin = end;
    }
  }
  std::vector<OwnedPart> all;
  for (const std::vector<OwnedPart>& of_item : parts) all.insert(all.end(), of_item.begin(), of_item.end());
  return all;
}

extern const PassDef zero_pass;
const PassDef zero_pass = {
    .name = "zero",
    .summary = "each rank keeps the optimizer's states of its share of the parameters, or gradients too",
    .doc =
        "With several ranks, each element's update and the optimizer's states for it are on one rank alone, which sends the element to "
        "the others (ZeRO, stage 1): Adam's moments, two thirds of what parameters take in training beside their gradients, are divided by the "
        "number of ranks. Parameters are cut at multiples of 8192 elements and shared out evenly; those of lamb and adafactor, whose updates need "
        "norms and means of all, and those of bf16 that are rounded at random stay whole, the largest first to the rank "
        "that has least. Every optimizer keeps its bits. In bf16 and f16 a parameter that the forward pass reads in 16 bits alone is "
        "kept in f32 where it is updated, element by element, and there alone: what goes to the others is its rounded copy, half the bytes. Of a "
        "parameter that is read in f32 too (an embedding tied to the head, one with a moving average) every rank gets all. "
        "Gradients are exchanged as without it. With stage=2 the rank that keeps states alone gets "
        "their gradients: the others send theirs and are done with it. The sums keep their order, the norm of all gradients "
        "is that of what each rank tells of its own, and each rank sends two thirds of what it does in stage 1. With accumulate every rank adds up the "
        "gradients of its own micro-batches, all of them, and the sums are exchanged. In a checkpoint each rank writes its own.",
    .phase = PassPhase::post_gradient,
    .by_default = false,
    .make = [] { return std::unique_ptr<Pass>(new Zero); },
    .example = example,
};

}  // namespace gradloom
