// tensor-parallel: ranks share weights, each computes with its columns of one and its rows of the next (Shoeybi et al. 2019, Megatron-LM).
//   Y = f(X A) B:  rank i has columns A_i and rows B_i, and Y = sum over the ranks of f(X A_i) B_i
// where f computes columns, or the heads that they are, by themselves. Forward the results are added over the ranks, backward the gradients of X; a
// bias behind B is added once, after the sum. Which f these are is found by passes/tensor_splits.h. A vocabulary is shared as rows of the
// embedding and columns of the head's weight (passes/tensor_vocabulary.h).
#include "passes/tensor_parallel.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/parameter_part.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "passes/tensor_splits.h"
#include "passes/tensor_vocabulary.h"
#include "passes/trained.h"

namespace gradloom {
namespace {

constexpr const char *kName = "tensor-parallel", *kRule = "weights", *kRanks = "ranks", *kFill = "fill";

// A region that computes with parts from now on.
class TensorRewrite {
 public:
  TensorRewrite(Rewriter& rw, const TensorRegion& region, std::int64_t world)
      : rw_(rw), region_(region), attrs_(exchange_attrs(region.ranks(), 1, world)) {
    for (const NodeId id : region_.nodes()) arguments_.emplace(id, part_arguments(region_, id));
  }

  Status run(NodeId anchor, const std::vector<NodeId>& order) {
    std::vector<NodeId> replaced(region_.ends().begin(), region_.ends().end());
    replaced.insert(replaced.end(), region_.known().begin(), region_.known().end());
    GraphBuilder& b = rw_.begin(kRule, anchor, replaced);
    TRY(cut(b));
    for (const NodeId id : region_.known())
      for (const ValueId out : std::vector<ValueId>(graph().nodes[id].outputs))
        if (out != kNone && rw_.use_count(out) > 0)
          rw_.replace(out, b.constant(Tensor(graph().values[out].data)));
    for (const NodeId id : order) {
      if (region_.nodes().count(id) == 0) continue;
      if (region_.ends().count(id) != 0)
        TRY(end(b, id));
      else
        TRY(compute_part(b, id));
    }
    const auto text = [](std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
    rw_.commit(plural_text(static_cast<std::int64_t>(parts_.size()), "parameter") + " of " + text(bytes_) +
               ", of which each of " + plural_text(region_.ranks(), "rank") + " keeps " +
               text(bytes_ / region_.ranks()));
    return {};
  }

 private:
  const Graph& graph() const { return rw_.graph(); }

  // What is no result of a node.
  Status cut(GraphBuilder& b) {
    for (const auto& [id, split] : region_.splits()) {
      const Value& value = graph().values[id];
      if (value.producer != kNone) continue;
      const ParameterPart part{split.axis, split.groups, region_.ranks(), region_.padded()};
      if (value.role == Role::constant) {
        now_[id] = b.constant(TRY(cut_part(value.data, part, 0)));
        continue;
      }
      parts_[id] = part;
      bytes_ += static_cast<std::int64_t>(byte_size(value.type));
      if (part.parts == 1) continue;
      const std::string name = b.unique_name(value.name + "/ParameterPart");
      now_[id] = TRY(b.add(parameter_part_op(), {id}, part_attrs(part), 1, {}, name))[0];
    }
    return {};
  }

  ValueId part_of(ValueId id) const {
    const auto found = now_.find(id);
    return found == now_.end() ? id : found->second;
  }

  // What each rank reads whole, and computes a part of the gradient of.
  Result<ValueId> shared(GraphBuilder& b, ValueId id, std::int64_t rank) {
    if (!is_float(graph().type(id).dtype) || !depends_on_trained(graph(), id)) return id;
    const auto [at, fresh] = shared_.try_emplace(id, id);
    if (!fresh) return at->second;
    const BuildScope there(b, {b.context().origin, rank, ""});
    const std::string name = b.unique_name(graph().values[id].name + "/AllReduceGradient");
    return at->second = TRY(b.add(all_reduce_gradient_op(), {id}, attrs_, 1, {}, name))[0];
  }

  Status compute_part(GraphBuilder& b, NodeId id) {
    const Node node = graph().nodes[id];
    const PartArguments& arguments = arguments_.at(id);
    std::vector<ValueId> inputs = node.inputs;
    for (ValueId& in : inputs) {
      if (in == kNone) continue;
      in = region_.split(in) != nullptr ? part_of(in) : TRY(shared(b, in, node.rank));
    }
    for (const auto& [place, values] : arguments.inputs) {
      if (inputs.size() <= place) inputs.resize(place + 1, kNone);
      inputs[place] = b.i64s(values);
    }
    rw_.retype(id, std::move(inputs), arguments.attrs);
    return {};
  }

  // What adds the parts up. The first of these says of which parameters.
  Status end(GraphBuilder& b, NodeId id) {
    const Node node = graph().nodes[id];
    if (is_op(node, "LogSoftmax")) return {};  // its readers take its operand
    const BuildScope there(b, {b.context().origin, node.rank, ""});
    PartsSummed summed{region_.ranks(), attrs_, region_.padded()};
    if (!said_) say_parts(summed.attrs, parts_);
    said_ = true;
    if (is_op(node, "MatMul") || is_op(node, "Gemm")) return add_parts_up(b, node, summed);
    ValueId operand = node.inputs[0];
    if (is_op(node, "NegativeLogLikelihoodLoss"))
      operand = graph().nodes[graph().values[operand].producer].inputs[0];
    operand = part_of(operand);
    const ValueId result = is_op(node, "Gather") ? TRY(gather_of_parts(b, node, operand, summed))
                                                 : TRY(loss_of_parts(b, node, operand, summed));
    rw_.replace(node.outputs[0], result);
    return {};
  }

  Status add_parts_up(GraphBuilder& b, const Node& node, const PartsSummed& summed) {
    const std::vector<ValueId> operands{part_of(node.inputs[0]), part_of(node.inputs[1])};
    Attrs of_product = node.attrs;
    of_product.erase("beta");
    const ValueId product =
        TRY(b.add(*node.op, operands, std::move(of_product), 1, {}, b.unique_name(node.name + "/part")))[0];
    ValueId sum = TRY(b.add(all_reduce_sum_op(), {product}, summed.attrs, 1, {},
                            b.unique_name(node.name + "/AllReduceSum")))[0];
    if (node.inputs.size() > 2 && node.inputs[2] != kNone) {
      ValueId bias = node.inputs[2];
      if (const double beta = node.attrs.real("beta", 1); beta != 1)
        bias = b.op("Mul", {bias, b.scalar(b.type(bias).dtype, beta)});
      sum = TRY(b.add(op_by_name("Add"), {sum, bias}, {}, 1, {}, b.unique_name(node.name + "/bias")))[0];
    }
    rw_.replace(node.outputs[0], sum);
    return {};
  }

  Rewriter& rw_;
  const TensorRegion& region_;
  const Attrs attrs_;
  std::map<NodeId, PartArguments> arguments_;
  std::map<ValueId, ValueId> now_;  // what is read in the place of a parameter or constant
  std::map<ValueId, ValueId> shared_;
  std::map<ValueId, ParameterPart> parts_;
  std::int64_t bytes_ = 0;
  bool said_ = false;
};

class TensorParallel final : public Pass {
 public:
  void fields(FieldVisitor& v) override {
    v.field("size", size_,
            {.help = "ranks that share parameters; 0: all that train together", .min = 0, .max = 65536});
    v.field(kRanks, ranks_,
            {.help = "how many ranks train together; 0: as many as there are", .min = 0, .max = 65536});
    v.field(
        kFill, fill_,
        {.help =
             "whether rows and classes of a vocabulary that the ranks do not divide are filled up with zeros"});
  }

  Status run(Rewriter& rw) const override {
    if (ranks_ == 1) return {};
    const std::int64_t world = std::max<std::int64_t>(ranks_, 1), size = ranks_ == 0  ? 1
                                                                         : size_ == 0 ? world
                                                                                      : size_;
    if (world % size != 0)
      return Error{Errc::usage, plural_text(world, "rank") + " are no groups of " + std::to_string(size) +
                                    ": the number of ranks is to be a multiple of size"};
    if (size == 1 && ranks_ != 0) return {};
    const std::vector<NodeId> order = TRY(topological_order(rw.graph()));
    std::set<NodeId> done;
    for (const NodeId id : order) {
      if (done.count(id) != 0 || !rw.graph().nodes[id].alive()) continue;
      const bool gathers = gathers_from_table(rw.graph(), id);
      if (!gathers && !multiplies_with_weight(rw.graph(), id)) continue;
      if (!depends_on_trained(rw.graph(), rw.graph().nodes[id].inputs[gathers ? 0 : 1])) continue;
      std::string why;
      const std::optional<TensorRegion> region = region_of(rw, id, {rw, size, fill_}, why);
      if (!region) {
        rw.reject(kRule, id, why);
        continue;
      }
      done.insert(region->nodes().begin(), region->nodes().end());
      const std::vector<NodeId> matched(region->nodes().begin(), region->nodes().end());
      if (rw.allowed(kRule, id, matched)) TRY(TensorRewrite(rw, *region, world).run(id, order));
    }
    return {};
  }

 private:
  // The rows of a table are one group. The columns of a weight are one, or those of two or three products in one: gate and up; Q, K and V. `why`: of the attempt that got
  // farthest. `empty`: to begin with.
  static std::optional<TensorRegion> region_of(const Rewriter& rw, NodeId product, const TensorRegion& empty,
                                               std::string& why) {
    if (is_op(rw.graph().nodes[product], "Gather")) {
      TensorRegion region = empty;
      why = region.grow_rows(product);
      return why.empty() ? std::optional(std::move(region)) : std::nullopt;
    }
    std::size_t most = 0;
    for (const std::int64_t groups : {1, 3, 2}) {
      TensorRegion region = empty;
      std::string why_not = region.grow(product, groups);
      if (why_not.empty()) return region;
      if (!why.empty() && region.nodes().size() <= most) continue;
      most = region.nodes().size();
      why = std::move(why_not);
    }
    return std::nullopt;
  }

  std::int64_t size_ = 0, ranks_ = 0;
  bool fill_ = true;
};

// One rank that shares with none.
Result<PassExample> example() {
  const auto build = [](Graph& graph, bool split) {
    GraphBuilder b(graph);
    const ValueId x = b.input("x", {DType::f32, {4, 6}});
    const ValueId first = b.parameter("first", Tensor(DType::f32, {6, 8})),
                  second = b.parameter("second", Tensor(DType::f32, {8, 6}));
    const ValueId h = b.op("Relu", {b.op("MatMul", {x, first})});
    ValueId y = b.op("MatMul", {h, second});
    if (split) {
      Attrs attrs = exchange_attrs(1, 1, 1);
      say_parts(attrs, {{first, {1, 1, 1}}, {second, {0, 1, 1}}});
      y = b.ops(all_reduce_sum_op(), {y}, std::move(attrs), 1)[0];
    }
    graph.outputs = {y};
  };
  PassExample e;
  build(e.before, false);
  build(e.after, true);
  return e;
}

// Whether a parameter that is 0 and has gradients of 0 stays 0: not where its update divides by a root of squares of these alone, in f32.
bool keeps_zeros(const OptimizerSpec& optimizer) {
  const auto options = optimizer_def(optimizer.kind).options;
  const bool divides = std::any_of(options.begin(), options.end(), [](const OptimizerOption& option) {
    return option.number == &OptimizerSpec::epsilon;
  });
  return !divides || static_cast<float>(optimizer.epsilon) > 0 ||
         static_cast<float>(optimizer.initial_sum) > 0;
}

}  // namespace

Result<Pipeline> pipeline_for_ranks(const Pipeline& pipeline, std::int64_t ranks,
                                    const OptimizerSpec& optimizer) {
  Pipeline told = pipeline;
  for (PassConfig& config : told.passes) {
    if (config.def != find_pass(kName)) continue;
    auto options = config.options;
    std::erase_if(options, [](const auto& option) { return option.first == kRanks; });
    options.emplace_back(kRanks, std::to_string(ranks));
    if (!keeps_zeros(optimizer)) {
      std::erase_if(options, [](const auto& option) { return option.first == kFill; });
      options.emplace_back(kFill, "0");
    }
    config.pass = TRY(configure_pass(*config.def, std::move(options))).pass;
  }
  return told;
}

Pipeline pipeline_as_split(const Pipeline& pipeline, const std::vector<PassReport>& reports) {
  InstanceChoice split;
  for (const PassReport& report : reports)
    if (report.name == kName)
      for (const RewriteRecord& record : report.log)
        if (record.matched) split.only.insert(record.site);
  Pipeline same = pipeline;
  if (split.only.empty())
    std::erase_if(same.passes, [](const PassConfig& config) { return config.def == find_pass(kName); });
  for (PassConfig& config : same.passes)
    if (config.def == find_pass(kName)) config.sites = split;
  return same;
}

std::vector<std::string> notes_of_whole(const Graph& graph, const TrainSpec& spec, const Pipeline& pipeline,
                                        const std::vector<PassReport>& reports) {
  if (spec.ranks == 1 || pipeline.find(kName) == nullptr) return {};
  std::vector<std::string> notes;
  if (tensor_ranks(graph) == 1)
    notes.push_back(std::string(kName) + " splits nothing of this model: each of " +
                    plural_text(spec.ranks, "rank") + " has all parameters and batches of its own");
  for (const PassReport& report : reports)
    for (const RewriteRecord& record : report.log)
      if (report.name == kName && record.why.ends_with(kNotFilledUp) && !keeps_zeros(spec.optimizer)) {
        notes.push_back(
            std::string(kName) + " leaves the vocabulary whole: the ranks do not divide it, and " +
            optimizer_def(spec.optimizer.kind).name + " with eps=" + number_text(spec.optimizer.epsilon) +
            " makes 0 / 0 of zeros that fill parts up");
        return notes;
      }
  return notes;
}

Status check_shared_parameters(const Graph& graph, const TrainSpec& spec, const Pipeline& pipeline) {
  if (tensor_ranks(graph) == 1) return {};
  const auto refuse = [](const std::string& why) {
    return Error{Errc::usage, std::string(kName) + ": " + why};
  };
  for (const char* const other : {"zero", "adasum", "sync-batchnorm"})
    if (pipeline.find(other) != nullptr)
      return refuse(std::string("pass ") + other +
                    " exchanges with all ranks, not with those that have the same part: "
                    "switch one of the two off");
  const std::string optimizer = optimizer_def(spec.optimizer.kind).name;
  if (spec.optimizer.kind != kernels::OptimizerKind::lamb && update_reach(optimizer) != UpdateReach::element)
    return refuse(optimizer +
                  " needs means over rows and columns of whole parameters, of which ranks have parts");
  if (spec.optimizer.eight_bit_states) return refuse("states of 8 bits are of blocks that parts would cut");
  if (spec.low_weights)
    return refuse("weights=low rounds at random, by the place of an element in the whole parameter");
  return {};
}

extern const PassDef tensor_parallel_pass;
const PassDef tensor_parallel_pass = {
    .name = kName,
    .summary = "ranks share weights: each computes with its columns of one and its rows of the next",
    .doc =
        "With several ranks, groups of `size` neighbours take the same batches and share weights: of two linear layers with elementwise operators in "
        "between each rank has columns of the first and rows of the second; of attention the projections of its own heads, Q, K and V apart or in one "
        "product, and their rows of the output projection. What each makes of its part is added over the group, in the order of the ranks, once in the "
        "forward pass, and the gradient of the input once in the backward pass. So weights, gradients, states of the optimizer and activations in "
        "between are divided by `size`; the groups exchange gradients among themselves as data-parallel does. A vocabulary is shared as "
        "rows of the embedding and columns of the head's weight, tied or not, filled up with zeros where `size` does not divide it: of the logits each rank has its words', and log-sum-exp and the label's "
        "logit are exchanged. Dropout draws the numbers of one rank. A layer is left whole where what follows is not known to compute columns or heads by "
        "themselves. Results are those of one rank with the batch of the group, rounded differently. Files and checkpoints hold whole parameters.",
    .phase = PassPhase::pre_gradient,
    .by_default = false,
    .bit_exact = false,
    .make = [] { return std::unique_ptr<Pass>(new TensorParallel); },
    .example = example,
};

}  // namespace gradloom
