#include "engine/train/train_graph.h"

#include <algorithm>

#include "engine/autodiff/autodiff.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/ir/builder.h"
#include "engine/ir/op.h"
#include "engine/ir/views.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/parameter_part.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "engine/train/eight_bit.h"
#include "engine/train/lamb_rate.h"

namespace gradloom {
namespace {

// Optimizer nodes run after the whole backward pass.
constexpr std::int64_t kOptimizerRank = std::int64_t{1} << 41;

// A model may have given any name to a value of its own, "w/m" too: then the step's value gets a number.
ValueId add_input(GraphBuilder& b, const std::string& name, const Type& type, Role role) {
  return b.input(b.unique_name(name), type, role);
}

// `state`: all but its name in the graph.
ValueId add_state(GraphBuilder& b, std::vector<TrainState>& states, TrainState state, Tensor initial) {
  const std::string owner = state.parameter.empty() ? "gradloom" : state.parameter;
  state.value = b.unique_name(owner + "/" + state.name);
  states.push_back(std::move(state));
  return b.state(states.back().value, std::move(initial));
}
ValueId add_state(GraphBuilder& b, std::vector<TrainState>& states, TrainState state, const Type& like) {
  return add_state(b, states, std::move(state), Tensor(like.dtype, like.shape));
}

// What the optimizer takes beside parameters and gradients; kNone: no factor, always applied.
struct Scaling {
  ValueId factor = kNone, apply = kNone, step = kNone;
};

// A parameter and what the loss says of it.
struct Trained {
  ValueId parameter, gradient;
};

// The norm of all gradients, where ranks have parts of some: their squares are added over these ranks. With the bits of GlobalNorm of as
// many pieces (reduce_gradients.h).
ValueId norm_over_parts(GraphBuilder& b, const TrainSpec& spec, const std::vector<Trained>& trained) {
  const Graph& graph = b.graph();
  const std::map<ValueId, ParameterPart> parts = parameter_parts(graph);
  std::vector<ValueId> gradients[2];  // of whole parameters, and of parts
  std::vector<std::int64_t> from, pieces;
  for (const bool of_parts : {false, true})
    for (const Trained& t : trained) {
      if ((parts.count(t.parameter) != 0) != of_parts) continue;
      gradients[of_parts ? 1 : 0].push_back(t.gradient);
      pieces.push_back(square_pieces(element_count(graph.type(t.gradient).shape)));
      from.push_back(of_parts && !gradients[0].empty() ? 1 : 0);
    }
  std::vector<ValueId> squares;
  for (const std::vector<ValueId>& some : gradients)
    if (!some.empty()) squares.push_back(b.ops(gradient_squares_op(), some, {}, 1)[0]);
  if (!gradients[1].empty())
    squares.back() = b.ops(all_reduce_sum_op(), {squares.back()},
                           exchange_attrs(tensor_ranks(graph), 1, spec.ranks), 1)[0];
  const bool wide = graph.type(trained[0].gradient).dtype == DType::f64;
  const std::int64_t type = onnx_from_dtype(wide ? DType::f64 : DType::f32);
  return b.op(norm_of_squares_op(), squares, {{"type", type}, {"from", from}, {"pieces", pieces}});
}

ValueId global_norm(GraphBuilder& b, const TrainSpec& spec, const std::vector<Trained>& trained) {
  if (tensor_ranks(b.graph()) > 1) return norm_over_parts(b, spec, trained);
  std::vector<ValueId> gradients;
  for (const Trained& t : trained) gradients.push_back(t.gradient);
  Attrs norm;
  if (spec.low_weights) norm.set("full", std::int64_t{1});
  return b.op("GlobalNorm", gradients, std::move(norm));
}

// The norm of the gradients, clipping by it, and what loss scaling makes of it. `loss_scale`: the state that
// the gradients are multiplied by, or kNone.
Scaling add_scaling(GraphBuilder& b, const TrainSpec& spec, const std::vector<Trained>& trained,
                    ValueId loss_scale, TrainGraph& out) {
  StepNames& names = out.names;
  Scaling scaling{.step = names.step};
  if (spec.clip_norm <= 0 && !spec.loss_scale) return scaling;
  const BuildScope names_of_scaling(b, b.context().named(spec.loss_scale ? "scale/" : "clip/"));
  names.grad_norm = global_norm(b, spec, trained);
  if (!spec.loss_scale) {
    scaling.factor = b.op("ClipScale", {names.grad_norm}, {{"max_norm", spec.clip_norm}});
    return scaling;
  }
  Attrs attrs{{"growth", spec.loss_scale->growth},
              {"backoff", spec.loss_scale->backoff},
              {"interval", spec.loss_scale->interval},
              {"max_norm", spec.clip_norm}};
  if (spec.loss_scale->hysteresis > 1) attrs.set("hysteresis", spec.loss_scale->hysteresis);
  if (spec.loss_scale->least > 0) attrs.set("least", spec.loss_scale->least);
  if (spec.loss_scale->most > 0) attrs.set("most", spec.loss_scale->most);
  const Type counter{DType::i64, {}};
  const std::vector<ValueId> states{loss_scale, add_state(b, out.states, {.name = "good_steps"}, counter),
                                    add_state(b, out.states, {.name = "skipped_steps"}, counter),
                                    add_state(b, out.states, {.name = "made_steps"}, counter)};
  std::vector<ValueId> inputs{names.grad_norm};
  inputs.insert(inputs.end(), states.begin(), states.end());
  const auto next = b.ops(op_by_name("LossScale"), inputs, attrs, 7);
  for (std::size_t i = 0; i < states.size(); ++i) b.update(states[i], next[3 + i]);
  names.grad_norm = next[2];
  names.loss_scale = next[3];
  names.skipped = next[5];
  return {.factor = next[1], .apply = next[0], .step = next[6]};  // bias corrections count the steps made
}

Result<std::vector<ValueId>> trainable_parameters(const Graph& graph) {
  std::vector<ValueId> trainable;
  for (const ValueId id : graph.parameters)
    if (is_trained(graph, id) && is_float(graph.values[id].type.dtype)) trainable.push_back(id);
  if (trainable.empty())
    return Error{Errc::bad_input, "nothing to train: the model has no trainable parameters"};
  if (const ValueId root = behind_views(graph, graph.loss); graph.values[root].role == Role::parameter)
    return Error{Errc::bad_input, "the loss is the parameter '" + escaped(graph.values[root].name) +
                                      "' itself: nothing is computed from it"};
  return trainable;
}

// Of hyper input lr: one number, or a row for each numbered group.
Result<Shape> rate_shape(const Graph& graph, const TrainSpec& spec) {
  const std::int64_t rows = group_numbers(spec.groups);
  if (rows == 0) return Shape{};
  if (tensor_ranks(graph) > 1)
    return Error{Errc::usage, "tensor-parallel: numbered groups of parameters are for whole ones"};
  return Shape{rows, static_cast<std::int64_t>(optimizer_inputs::kColumns)};
}

// The state that gradients are multiplied by, or kNone.
Result<ValueId> add_loss_scale(GraphBuilder& b, const TrainSpec& spec, std::vector<TrainState>& states) {
  if (!spec.loss_scale) return kNone;
  const Graph& graph = b.graph();
  if (graph.type(graph.loss).dtype == DType::f16)
    return Error{Errc::bad_input, "the loss '" + escaped(graph.values[graph.loss].name) +
                                      "' is computed in f16, where it cannot be scaled (cast it to f32)"};
  return add_state(b, states, {.name = "loss_scale"}, Tensor::scalar(DType::f32, spec.loss_scale->initial));
}

// What a parameter is computed in between its gradient and its next value.
Type computed_type(const TrainSpec& spec, Type type) {
  if (spec.low_weights && type.dtype == DType::bf16) type.dtype = DType::f32;
  return type;
}

// Gradients and the loss become their means over the micro-batches.
void accumulate(GraphBuilder& b, const TrainSpec& spec, std::vector<Trained>& trained, TrainGraph& out) {
  const Graph& graph = b.graph();
  StepNames& names = out.names;
  names.micro = add_input(b, "gradloom/micro", {DType::i64, {}}, Role::hyper);
  const auto add = [&](ValueId value, const std::string& owner) {
    const BuildScope before_updates(b, {b.context().origin, kOptimizerRank - 1, owner + "/"});
    const TrainState state{.parameter = owner, .name = "acc", .remembered = false};
    const ValueId acc = add_state(b, out.states, state, computed_type(spec, graph.values[value].type));
    const ValueId next = b.op("Accumulate", {acc, value, names.micro}, {{"count", spec.accumulate}});
    b.update(acc, next);
    return next;
  };
  for (Trained& t : trained) t.gradient = add(t.gradient, graph.values[t.parameter].name);
  names.loss = add(graph.loss, "loss");
}

// Gradients, the loss and running statistics become their means over the ranks: once per step, after accumulation. Running
// statistics, which every micro-batch changes, after each. Ranks that share parameters have the same batches: the means are over those that have the
// same parts.
void exchange(GraphBuilder& b, const TrainSpec& spec, std::vector<Trained>& trained, TrainGraph& out) {
  Graph& graph = out.graph;
  const std::int64_t sharing = tensor_ranks(graph);
  if (spec.ranks == sharing) return;
  const Attrs attrs = exchange_attrs(spec.ranks / sharing, sharing, spec.ranks);
  const auto mean = [&](ValueId value, const std::string& owner) {
    const BuildScope before_updates(b, {b.context().origin, kOptimizerRank - 1, owner + "/"});
    return b.ops(all_reduce_op(), {value}, attrs, 1)[0];
  };
  for (Trained& t : trained) t.gradient = mean(t.gradient, graph.values[t.parameter].name);
  out.names.loss = mean(out.names.loss, "loss");
  for (std::size_t i = 0; i < graph.updates.size(); ++i) {
    const Update update = graph.updates[i];
    if (graph.values[update.state].role == Role::state && is_float(graph.type(update.next).dtype) &&
        std::none_of(out.states.begin(), out.states.end(),
                     [&](const TrainState& s) { return s.value == graph.values[update.state].name; }))
      graph.updates[i].next = mean(update.next, graph.values[update.state].name);
  }
}

// One Optimizer node per parameter; pass fuse-optimizer makes one of all that have the same options.
void add_updates(GraphBuilder& b, const TrainSpec& spec, const std::vector<Trained>& trained,
                 const Scaling& scaling, TrainGraph& out) {
  const Graph& graph = b.graph();
  const OpDef& op = op_by_name("Optimizer");
  const std::map<ValueId, ParameterPart> parts = parameter_parts(graph);
  for (const auto& [p, g] : trained) {
    const std::string name = graph.values[p].name;
    const BuildScope names_of_parameter(b, b.context().named(name + "/"));
    const ParameterOptions own = options_of(spec.groups, name, spec.optimizer.lr);
    OptimizerSpec optimizer = spec.optimizer;
    optimizer.weight_decay = own.weight_decay.value_or(optimizer.weight_decay);
    const auto [dtype, shape] = computed_type(spec, graph.values[p].type);
    Attrs attrs = optimizer_attrs(optimizer, shape);
    if (dtype != graph.values[p].type.dtype)
      attrs.set("keys", std::vector<std::int64_t>{static_cast<std::int64_t>(fnv1a64(name))});
    if (own.lr_factor != 1) attrs.set("lr_factor", own.lr_factor);
    if (own.number > 0) attrs.set("row", own.number);
    if (spec.clip_value > 0) attrs.set("clip_value", spec.clip_value);
    std::vector<ValueId> inputs{out.names.lr, scaling.step, scaling.factor, scaling.apply, p, g};
    std::vector<ValueId> states;
    for (const OptimizerState& s : optimizer_states(optimizer, shape)) {
      const bool encoded = has_eight_bit_states(optimizer, shape);
      const TrainState state{.parameter = name, .name = s.name, .range = s.range, .encoded = encoded};
      states.push_back(add_state(b, out.states, state, encoded ? encoded_type(shape) : Type{dtype, s.shape}));
      inputs.push_back(states.back());
    }
    if (parts.count(p) != 0 && optimizer.kind == kernels::OptimizerKind::lamb) {
      const LambOperands operands{inputs[0], inputs[1], inputs[2], p, g, states[0], states[1]};
      inputs[0] = lamb_rate(b, spec, optimizer.weight_decay, operands,
                            exchange_attrs(tensor_ranks(graph), 1, spec.ranks));
      attrs.set("ratio_in_lr", std::int64_t{1});
    }
    const auto next = b.ops(op, inputs, attrs, static_cast<int>(1 + states.size()));
    b.update(p, next[0]);
    for (std::size_t i = 0; i < states.size(); ++i) b.update(states[i], next[i + 1]);
    if (spec.ema > 0) {
      const TrainState state{.parameter = name, .name = kAverage};
      const ValueId average = add_state(b, out.states, state, Tensor(graph.values[p].data));
      b.update(average, b.op("MovingAverage", {average, next[0], scaling.apply}, {{"decay", spec.ema}}));
    }
  }
}

}  // namespace

void freeze_parameters(Graph& graph, const TrainSpec& spec) {
  for (const ValueId id : graph.parameters) {
    Value& parameter = graph.values[id];
    const bool frozen = fits_any(spec.freeze, parameter.name) ||
                        options_of(spec.groups, parameter.name, spec.optimizer.lr).frozen;
    parameter.frozen = frozen && !fits_any(spec.train, parameter.name);
  }
}

Result<std::vector<RewriteRecord>> keep_trained(Graph& graph) {
  graph.outputs = {graph.loss};
  Rewriter rw(graph, "training");
  TRY(remove_unneeded(rw, "not trained on"));
  return rw.take_log();
}

Result<TrainGraph> add_training(Graph forward, const TrainSpec& spec) {
  TrainGraph out;
  out.graph = std::move(forward);
  Graph& graph = out.graph;
  CHECK(graph.loss != kNone, "add_loss comes first");
  CHECK(spec.ranks % tensor_ranks(graph) == 0, "ranks that share parameters are groups of all");
  if (spec.accumulate < 1) return Error{Errc::usage, "--accumulate must be at least 1"};
  TRY(check_groups(spec.groups, spec.optimizer.lr));
  if (spec.low_weights && spec.ema > 0)
    return Error{Errc::usage,
                 "a moving average of parameters would vanish in bf16: --ema needs precision weights=full"};

  out.removed = TRY(keep_trained(graph));
  freeze_parameters(graph, spec);
  const std::vector<ValueId> trainable = TRY(trainable_parameters(graph));
  GraphBuilder b(graph, {.origin = {{}, Phase::optimizer}, .rank = kOptimizerRank});
  const ValueId loss_scale = TRY(add_loss_scale(b, spec, out.states));
  const auto grads = TRY(add_gradients(graph, graph.loss, trainable, loss_scale));

  out.names.lr = add_input(b, "gradloom/lr", {DType::f64, TRY(rate_shape(graph, spec))}, Role::hyper);
  out.names.step = add_input(b, "gradloom/step", {DType::i64, {}}, Role::hyper);
  out.names.loss = graph.loss;
  std::vector<Trained> trained;
  for (ValueId p : trainable) {
    if (grads.at(p) == kNone) continue;  // the loss does not depend on it
    trained.push_back({p, grads.at(p)});
    out.trainable.push_back(graph.values[p].name);
  }
  if (trained.empty())
    return Error{Errc::bad_input, "nothing to train: the loss depends on no trainable parameter"};

  if (spec.accumulate > 1) accumulate(b, spec, trained, out);
  if (spec.ranks > 1) exchange(b, spec, trained, out);
  const Scaling scaling = add_scaling(b, spec, trained, loss_scale, out);
  add_updates(b, spec, trained, scaling, out);
  graph.outputs.clear();
  for (ValueId StepNames::*value : StepNames::kReported)
    if (out.names.*value != kNone) graph.outputs.push_back(out.names.*value);
  return out;
}

}  // namespace gradloom
