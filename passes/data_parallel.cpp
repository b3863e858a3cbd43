// data-parallel: what the ranks of a training exchange goes in few large pieces, each begun as soon as its gradients are there,
// while the backward pass goes on (Li et al. 2020, PyTorch Distributed; buckets in the order in which gradients are ready).
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "engine/ir/op.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/owned_parts.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/ops/inference.h"
#include "passes/pass.h"

namespace gradloom {
namespace {

constexpr const char* kRule = "bucket";

struct Bucket {
  // That make the mean of one tensor each, for all ranks or for its owner, in the order in which these are ready.
  std::vector<NodeId> nodes;
  std::int64_t rank = 0;   // in the schedule, of what makes the last of them
  std::int64_t bytes = 0;  // that are exchanged
  bool in_background = false;
  bool rounded = false;  // to bf16 before the exchange, and widened after it
};

class DataParallel final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("bucket_mb", bucket_mb_,
            {.help = "megabytes after which a piece is full", .min = 0, .max = 1 << 20});
    v.field(
        "dtype", dtype_,
        {.help =
             "what gradients are exchanged in: f32 leaves them as they are, bf16 rounds them, which halves the bytes",
         .choices = {"f32", "bf16"}});
    v.field("overlap", overlap_, {.help = "exchange while the backward pass goes on"});
  }

  Status run(Rewriter& rw) const override {
    std::vector<Bucket> buckets = TRY(fill_buckets(rw));
    // From the last to the first: what waits for one waits until the next has begun.
    ValueId next_begun = kNone;
    std::int64_t next_rank = 0;
    for (std::size_t i = buckets.size(); i-- > 0;) {
      Bucket& bucket = buckets[i];
      std::erase_if(bucket.nodes, [&](NodeId id) { return !rw.allowed(kRule, id); });
      if (bucket.nodes.empty() || (bucket.nodes.size() == 1 && !bucket.in_background && !bucket.rounded))
        continue;
      if (bucket.in_background) {
        const std::int64_t rank = bucket.rank;
        next_begun = TRY(spread(rw, bucket, next_begun, next_rank));
        next_rank = rank;
      } else if (reduces(rw.graph(), bucket)) {
        bucket.rank = rw.graph().nodes[bucket.nodes[0]].rank;
        TRY(spread(rw, bucket, kNone, 0));
      } else {
        TRY(merge(rw, bucket));
      }
    }
    return {};
  }

 private:
  // Each goes to its owner alone.
  static bool reduces(const Graph& graph, const Bucket& bucket) {
    return graph.nodes[bucket.nodes[0]].op == &reduce_gradients_op();
  }

  // No loss, which leaves the graph, nor what forward and backward pass wait for. The answer is the same on every rank: with zero
  // the update that reads a mean is on one of them, and nothing may read it on the others.
  static bool is_gradient(const Rewriter& rw, NodeId exchange) {
    const Graph& graph = rw.graph();
    if (graph.nodes[exchange].op == &reduce_gradients_op()) return true;
    const ValueId mean = graph.nodes[exchange].outputs[0];
    const std::vector<Use>& uses = rw.uses(mean);
    return !rw.is_output(mean) && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      return graph.nodes[use.node].origin.phase == Phase::optimizer;
    });
  }

  // Of one type, and run as often; what a state holds next is replaced where it is, which background work cannot do. What forward
  // and backward pass wait for in their midst (sync-batchnorm) stays there.
  Result<std::vector<Bucket>> fill_buckets(Rewriter& rw) const {
    const Graph& graph = rw.graph();
    const std::vector<NodeId> order = TRY(topological_order(graph));
    std::vector<std::size_t> place(graph.nodes.size());
    for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    const auto maker = [&](NodeId id) { return graph.values[graph.nodes[id].inputs[0]].producer; };
    std::vector<NodeId> exchanges;
    for (const NodeId id : order)
      if ((graph.nodes[id].op == &all_reduce_op() || graph.nodes[id].op == &reduce_gradients_op()) &&
          graph.nodes[id].origin.phase == Phase::optimizer && graph.nodes[id].inputs.size() == 1 &&
          maker(id) != kNone)
        exchanges.push_back(id);
    std::stable_sort(exchanges.begin(), exchanges.end(),
                     [&](NodeId a, NodeId b) { return place[maker(a)] < place[maker(b)]; });
    std::vector<Bucket> buckets;
    std::map<std::string, std::size_t> open;
    for (const NodeId id : exchanges) {
      const Node& node = graph.nodes[id];
      const Node& made_by = graph.nodes[maker(id)];
      const bool of_state = std::any_of(graph.updates.begin(), graph.updates.end(),
                                        [&](const Update& u) { return u.next == node.outputs[0]; });
      const bool background = overlap_ && !of_state;
      const Type type = graph.type(node.inputs[0]);
      const bool rounded =
          dtype_ == "bf16" && dtype_bytes(type.dtype) > 2 && !of_state && is_gradient(rw, id);
      const std::string key = dtype_name(type.dtype) + std::string(of_state ? " state" : "") +
                              (rounded ? " rounded" : "") + " " + node.op->name +
                              (made_by.op->has(kAccumulates) ? " once" : "");
      const auto [at, fresh] = open.try_emplace(key, buckets.size());
      if (fresh) buckets.push_back({.in_background = background, .rounded = rounded});
      Bucket& bucket = buckets[at->second];
      bucket.nodes.push_back(id);
      bucket.rank = std::max(bucket.rank, made_by.rank);
      bucket.bytes += rounded ? element_count(type.shape) * 2 : static_cast<std::int64_t>(byte_size(type));
      if (bucket.bytes >= bucket_mb_ * 1'000'000) open.erase(at);
    }
    return buckets;
  }

  // What goes to the others. What is rounded is so as soon as it is there.
  static Result<std::vector<ValueId>> exchanged(GraphBuilder& b, const Bucket& bucket) {
    const Graph& graph = b.graph();
    std::vector<ValueId> inputs;
    for (const NodeId id : bucket.nodes) {
      ValueId in = graph.nodes[id].inputs[0];
      const std::int64_t rank = graph.nodes[graph.values[in].producer].rank;
      const BuildScope there(b, {b.context().origin, rank, b.context().name_prefix});
      if (bucket.rounded) in = TRY(cast(b, in, DType::bf16));
      inputs.push_back(in);
    }
    return inputs;
  }

  static Result<ValueId> cast(GraphBuilder& b, ValueId value, DType to) {
    const Attrs attrs{{"to", std::int64_t{onnx_from_dtype(to)}}};
    const std::string name = b.unique_name(b.graph().values[value].name + "/" + dtype_name(to));
    return TRY(b.add(op_by_name("Cast"), {value}, attrs, 1, {}, name))[0];
  }

  // A mean as its readers want it: in the type of `exchange`'s input.
  static Result<ValueId> as_read(GraphBuilder& b, const Bucket& bucket, NodeId exchange, ValueId mean) {
    if (!bucket.rounded) return mean;
    return cast(b, mean, b.graph().type(b.graph().nodes[exchange].inputs[0]).dtype);
  }

  // With zero a rank may have no use for a mean, which is not widened then.
  static bool needs(const Rewriter& rw, const Bucket& bucket, ValueId mean) {
    return !bucket.rounded || !rw.uses(mean).empty() || rw.is_output(mean);
  }

  static std::string said(const Bucket& bucket) {
    return std::to_string(bucket.nodes.size()) + " exchanges in one" + (bucket.rounded ? ", in bf16" : "");
  }

  static Status merge(Rewriter& rw, const Bucket& bucket) {
    const Attrs attrs = rw.graph().nodes[bucket.nodes[0]].attrs;
    GraphBuilder& b = rw.begin(kRule, bucket.nodes[0], bucket.nodes);
    const std::vector<ValueId> inputs = TRY(exchanged(b, bucket));
    const auto means = TRY(b.add(all_reduce_op(), inputs, attrs, static_cast<int>(inputs.size()), {},
                                 b.unique_name("bucket/AllReduceMean")));
    TRY(replace_results(rw, b, bucket, means));
    rw.commit(said(bucket));
    return {};
  }

  static Status replace_results(Rewriter& rw, GraphBuilder& b, const Bucket& bucket,
                                const std::vector<ValueId>& means) {
    for (std::size_t i = 0; i < means.size(); ++i) {
      const ValueId old = rw.graph().nodes[bucket.nodes[i]].outputs[0];
      if (needs(rw, bucket, old)) rw.replace(old, TRY(as_read(b, bucket, bucket.nodes[i], means[i])));
    }
    return {};
  }

  // What was added behind a gradient's way to its owner: `done`, and at the owner `result`.
  struct Behind {
    ValueId done = kNone, result = kNone;
  };
  static std::vector<Behind> behind(const Rewriter& rw, const Bucket& bucket, std::vector<NodeId>& nodes) {
    std::vector<Behind> all;
    for (const NodeId id : bucket.nodes) {
      Behind of_one;
      for (const ValueId out : rw.graph().nodes[id].outputs)
        for (const Use& use : rw.uses(out)) {
          const Node& reader = rw.graph().nodes[use.node];
          if (reader.op == &all_reduce_wait_op()) of_one.done = reader.outputs[0];
          if (reader.op == &all_reduce_result_op()) of_one.result = reader.outputs[0];
          nodes.push_back(use.node);
        }
      all.push_back(of_one);
    }
    return all;
  }

  // The node that begins a bucket's exchange: its results, and the workspace.
  static Result<std::vector<ValueId>> begin(GraphBuilder& b, const Bucket& bucket,
                                            const std::vector<ValueId>& inputs) {
    const Graph& graph = b.graph();
    const Node first = graph.nodes[bucket.nodes[0]];
    Attrs attrs = first.attrs;
    std::size_t results = bucket.nodes.size();
    const char* name = "bucket/AllReduceBegin";
    if (reduces(graph, bucket)) {
      std::vector<OwnedPart> parts;
      std::vector<Type> types;
      for (const NodeId id : bucket.nodes) {
        types.push_back(graph.type(graph.nodes[id].inputs[0]));
        for (OwnedPart part : TRY(owned_parts(graph.nodes[id].attrs, std::span(&types.back(), 1)))) {
          part.tensor = types.size() - 1;
          parts.push_back(part);
        }
      }
      const std::int64_t own = attrs.integer("rank");
      results = static_cast<std::size_t>(std::count_if(
          parts.begin(), parts.end(), [&](const OwnedPart& part) { return part.owner == own; }));
      set_owned_parts(attrs, parts, types);
      name = "bucket/ReduceGradients";
    }
    const OpDef& op = reduces(graph, bucket) ? reduce_gradients_op() : all_reduce_begin_op();
    const BuildScope early(b, {b.context().origin, bucket.rank, b.context().name_prefix});
    return b.add(op, inputs, std::move(attrs), static_cast<int>(results) + 1, {}, b.unique_name(name));
  }

  // `next_begun`: of the bucket that is ready after this one, or kNone; returns the same of this one.
  static Result<ValueId> spread(Rewriter& rw, const Bucket& bucket, ValueId next_begun,
                                std::int64_t next_rank) {
    const bool to_owners = reduces(rw.graph(), bucket);
    const std::int64_t last_rank = rw.graph().nodes[bucket.nodes[0]].rank;
    std::vector<NodeId> replaced = bucket.nodes;
    const std::vector<Behind> old = to_owners ? behind(rw, bucket, replaced) : std::vector<Behind>();
    GraphBuilder& b = rw.begin(kRule, bucket.nodes[0], replaced);
    const std::vector<ValueId> inputs = TRY(exchanged(b, bucket));
    std::vector<ValueId> means = TRY(begin(b, bucket, inputs));
    const ValueId workspace = means.back();
    means.pop_back();
    std::vector<ValueId> kept{workspace};
    kept.insert(kept.end(), inputs.begin(), inputs.end());
    kept.insert(kept.end(), means.begin(), means.end());
    if (next_begun != kNone) kept.push_back(next_begun);
    const BuildScope later(
        b, {b.context().origin, next_begun == kNone ? last_rank : next_rank, b.context().name_prefix});
    const ValueId done =
        TRY(b.add(all_reduce_wait_op(), kept, {}, 1, {}, b.unique_name("bucket/AllReduceWait")))[0];
    for (ValueId& mean : means)
      mean = TRY(b.add(all_reduce_result_op(), {mean, done}, {}, 1, {}, b.unique_name("bucket/result")))[0];
    auto mean = means.begin();
    for (std::size_t i = 0; i < old.size(); ++i) {
      rw.replace(old[i].done, done);
      if (old[i].result == kNone) continue;
      const ValueId own = *mean++;
      if (needs(rw, bucket, old[i].result))
        rw.replace(old[i].result, TRY(as_read(b, bucket, bucket.nodes[i], own)));
    }
    if (!to_owners) TRY(replace_results(rw, b, bucket, means));
    rw.commit(said(bucket) + (bucket.in_background ? ", in the background" : ""));
    return workspace;
  }

  std::int64_t bucket_mb_ = 2;
  std::string dtype_ = "f32";
  bool overlap_ = true;
};

// Two gradients of one rank of one: they go together.
Result<PassExample> example() {
  const Attrs ranks{{"ranks", std::int64_t{1}}};
  const auto build = [&](Graph& graph, bool together) {
    GraphBuilder b(graph, {.origin = {{}, Phase::optimizer}, .rank = 5});
    const ValueId p = b.input("p", {DType::f32, {4}}), q = b.input("q", {DType::f32, {2, 3}});
    const ValueId dp = b.op("Neg", {p}), dq = b.op("Neg", {q});
    std::vector<ValueId> means;
    if (!together) {
      for (const ValueId g : {dp, dq}) means.push_back(b.ops(all_reduce_op(), {g}, ranks, 1)[0]);
    } else {
      means = b.ops(all_reduce_begin_op(), {dp, dq}, ranks, 3);
      const ValueId workspace = means.back();
      means.pop_back();
      const ValueId done = b.op(all_reduce_wait_op(), {workspace, dp, dq, means[0], means[1]});
      for (ValueId& mean : means) mean = b.op(all_reduce_result_op(), {mean, done});
    }
    graph.outputs = means;
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

}  // namespace

extern const PassDef data_parallel_pass;
const PassDef data_parallel_pass = {
    .name = "data-parallel",
    .summary = "exchange gradients between ranks in large pieces, during the backward pass",
    .doc =
        "With several ranks, the means of gradients over the ranks are made together until bucket_mb megabytes are full, in the order in "
        "which gradients are complete, and with overlap in the background: a piece is waited for when the next one has begun, the last "
        "ones before the updates. The sums keep their order, so loss and gradients keep their bits. With dtype=bf16 gradients are rounded to nearest, added "
        "in f32 and rounded again, in the order that `reduce` says: half the bytes, the same bits on all ranks, and other ones than without. What zero{stage=2} sends to one rank alone goes "
        "in pieces of its own. One rank has nothing to exchange.",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(new DataParallel); },
    .example = example,
};

}  // namespace gradloom
