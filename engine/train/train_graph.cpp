#include "engine/train/train_graph.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/autodiff/autodiff.h"
#include "engine/base/text.h"
#include "engine/ops/op.h"

namespace gradloom {
namespace {

// Optimizer nodes run after the whole backward pass.
constexpr std::int64_t kOptimizerRank = std::int64_t{1} << 41;

using kernels::OptimizerKind;

struct KindName {
  const char* name;
  OptimizerKind kind;
};
constexpr KindName kKinds[] = {{"sgd", OptimizerKind::sgd},
                               {"adam", OptimizerKind::adam},
                               {"adamw", OptimizerKind::adamw},
                               {"lamb", OptimizerKind::lamb}};

const char* kind_name(OptimizerKind kind) {
  for (const KindName& k : kKinds)
    if (k.kind == kind) return k.name;
  return "?";
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "" : ", ") + escaped(n);
  return text;
}

std::vector<std::string> names_of(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<std::string> names;
  for (ValueId id : ids) names.push_back(graph.values[id].name);
  return names;
}

// The value called `name`, which must be a float tensor computed by the model.
Result<ValueId> find_prediction(const Graph& graph, const std::string& name) {
  const ValueId id = find_value(graph, name);
  if (id == kNone)
    return Error{Errc::usage, "--loss names '" + escaped(name) +
                                  "', which is no value of the model (outputs: " +
                                  joined(names_of(graph, graph.outputs)) + ")"};
  if (!graph.values[id].has_type || !is_float(graph.values[id].type.dtype))
    return Error{Errc::bad_input, "--loss: '" + escaped(name) + "' is not a floating-point tensor"};
  return id;
}

// Existing graph input, or a new one of the wanted type. A wrong type is an error naming both.
Result<ValueId> find_or_add_input(GraphBuilder& b, const std::string& name, const Type& want, bool integer) {
  const ValueId id = find_value(b.graph(), name);
  if (id == kNone) return b.input(name, want);
  const Type& have = b.graph().values[id].type;
  const bool type_ok =
      integer ? (have.dtype == DType::i64 || have.dtype == DType::i32) : have.dtype == want.dtype;
  if (!type_ok)
    return Error{Errc::bad_input,
                 "--loss: '" + escaped(name) + "' is " + to_string(have) + "; expected " +
                     (integer ? std::string("integer class labels") : std::string(dtype_name(want.dtype))) +
                     " of shape " + to_string(want.shape)};
  if (is_static(have.shape) && is_static(want.shape) && have.shape != want.shape)
    return Error{Errc::bad_input, "--loss: '" + escaped(name) + "' has shape " + to_string(have.shape) +
                                      "; expected " + to_string(want.shape)};
  return id;
}

// ce: LogSoftmax over the class axis, then NegativeLogLikelihoodLoss, which takes classes on axis 1: rows are
// flattened
// ([.., C] -> [rows, C]) when the class axis is last; pass fuse-softmax-cross-entropy makes one kernel of it.
Result<ValueId> cross_entropy(GraphBuilder& b, ValueId logits, const std::string& label_name,
                              std::int64_t axis) {
  const Type type = b.type(logits);
  const auto rank = static_cast<std::int64_t>(type.shape.size());
  if (rank < 2)
    return Error{Errc::bad_input, "--loss ce: logits " + to_string(type) + " need at least two axes"};
  if (axis < -rank || axis >= rank)
    return Error{Errc::usage,
                 "--loss ce: axis " + std::to_string(axis) + " is out of range for " + to_string(type)};
  const std::int64_t class_axis = axis < 0 ? axis + rank : axis;
  Shape label_shape = type.shape;
  label_shape.erase(label_shape.begin() + class_axis);
  ValueId labels = TRY(find_or_add_input(b, label_name, Type{DType::i64, label_shape}, true));
  const Attrs loss_attrs{{"reduction", std::string("mean")}, {"ignore_index", std::int64_t{-100}}};
  if (class_axis == rank - 1 && rank > 2) {
    logits = b.op("Reshape", {logits, b.i64s({-1, type.shape.back()})});
    labels = b.op("Reshape", {labels, b.i64s({-1})});
  } else if (class_axis != 1) {
    std::vector<std::int64_t> perm;
    for (std::int64_t i = 0; i < rank; ++i)
      if (i != class_axis) perm.push_back(i);
    perm.insert(perm.begin() + 1, class_axis);
    logits = b.op("Transpose", {logits}, {{"perm", perm}});
  }
  const ValueId log_prob = b.op("LogSoftmax", {logits}, {{"axis", std::int64_t{1}}});
  return b.op("NegativeLogLikelihoodLoss", {log_prob, labels}, loss_attrs);
}

Result<ValueId> regression(GraphBuilder& b, const std::string& kind, ValueId prediction,
                           const std::string& target_name) {
  const Type type = b.type(prediction);
  const ValueId target = TRY(find_or_add_input(b, target_name, type, false));
  ValueId each;
  if (kind == "mse") {
    each = b.op("Square", {b.op("Sub", {prediction, target})});
  } else if (kind == "l1") {
    each = b.op("Abs", {b.op("Sub", {prediction, target})});
  } else {  // bce on logits: softplus(x) - x * t, stable for any sign
    each = b.op("Sub", {b.op("Softplus", {prediction}), b.op("Mul", {prediction, target})});
  }
  std::vector<std::int64_t> axes;
  for (std::size_t i = 0; i < type.shape.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  return b.op("ReduceMean", {each, b.i64s(axes)}, {{"keepdims", std::int64_t{0}}});
}

std::uint32_t add_loss_source(Graph& graph, const std::string& loss) {
  graph.sources.push_back({"loss", loss.substr(0, loss.find_first_of(":{")), "gradloom", "loss"});
  return static_cast<std::uint32_t>(graph.sources.size() - 1);
}

Attrs optimizer_attrs(const OptimizerSpec& o) {
  Attrs attrs{
      {"kind", std::string(kind_name(o.kind))}, {"n", std::int64_t{1}}, {"weight_decay", o.weight_decay}};
  attrs.set("maximize", std::int64_t{o.maximize});
  if (o.kind == OptimizerKind::sgd) {
    attrs.set("momentum", o.momentum);
    attrs.set("dampening", o.dampening);
    attrs.set("nesterov", std::int64_t{o.nesterov});
  } else {
    attrs.set("beta1", o.beta1);
    attrs.set("beta2", o.beta2);
    attrs.set("epsilon", o.epsilon);
  }
  return attrs;
}

// The value whose bytes these are.
ValueId behind_views(const Graph& graph, ValueId id) {
  for (NodeId node = graph.values[id].producer; node != kNone && graph.nodes[node].op->has(kView);
       node = graph.values[id].producer)
    id = graph.nodes[node].inputs[0];
  return id;
}

// Training needs the loss and the state updates (running statistics), not the model's other outputs.
void keep_only_needed(Graph& graph) {
  std::vector<ValueId> stack{graph.loss};
  for (const Update& u : graph.updates) stack.push_back(u.next);
  std::vector<bool> needed(graph.nodes.size(), false);
  while (!stack.empty()) {
    const ValueId id = stack.back();
    stack.pop_back();
    const NodeId producer = id == kNone ? kNone : graph.values[id].producer;
    if (producer == kNone || needed[producer]) continue;
    needed[producer] = true;
    for (ValueId in : graph.nodes[producer].inputs) stack.push_back(in);
  }
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    if (needed[id] || !graph.nodes[id].alive()) continue;
    graph.nodes[id].op = nullptr;
    graph.nodes[id].inputs.clear();
  }
  graph.outputs = {graph.loss};
}

ValueId add_state(GraphBuilder& b, const std::string& name, const Tensor& initial) {
  const ValueId id = b.input(name, initial.type(), Role::state);
  b.graph().values[id].data = initial;
  return id;
}
ValueId add_state(GraphBuilder& b, const std::string& name, const Type& like) {
  return add_state(b, name, Tensor(like.dtype, like.shape));
}

// What the optimizer takes beside parameters and gradients; kNone: no factor, always applied.
struct Scaling {
  ValueId factor = kNone, apply = kNone, step = kNone;
};

// The norm of the gradients, clipping by it, and what loss scaling makes of it. `loss_scale`: the state that
// the gradients are multiplied by, or kNone.
Scaling add_scaling(GraphBuilder& b, const TrainSpec& spec, const std::vector<ValueId>& gradients,
                    ValueId loss_scale, StepNames& names) {
  Scaling scaling{.step = names.step};
  if (spec.clip_norm <= 0 && !spec.loss_scale) return scaling;
  b.name_prefix = spec.loss_scale ? "scale/" : "clip/";
  names.grad_norm = b.op("GlobalNorm", gradients);
  if (!spec.loss_scale) {
    scaling.factor = b.op("ClipScale", {names.grad_norm}, {{"max_norm", spec.clip_norm}});
    return scaling;
  }
  const Attrs attrs{{"growth", spec.loss_scale->growth},
                    {"backoff", spec.loss_scale->backoff},
                    {"interval", spec.loss_scale->interval},
                    {"max_norm", spec.clip_norm}};
  const Type counter{DType::i64, {}};
  const std::vector<ValueId> states{loss_scale, add_state(b, "gradloom/good_steps", counter),
                                    add_state(b, "gradloom/skipped_steps", counter),
                                    add_state(b, "gradloom/made_steps", counter)};
  std::vector<ValueId> inputs{names.grad_norm};
  inputs.insert(inputs.end(), states.begin(), states.end());
  const auto next = b.ops(op_by_name("LossScale"), inputs, attrs, 7);
  for (std::size_t i = 0; i < states.size(); ++i) b.graph().updates.push_back({states[i], next[3 + i]});
  names.grad_norm = next[2];
  names.loss_scale = next[3];
  names.skipped = next[5];
  return {.factor = next[1], .apply = next[0], .step = next[6]};  // bias corrections count the steps made
}

std::vector<std::string> state_names(const OptimizerSpec& o) {
  if (o.kind == OptimizerKind::sgd)
    return o.momentum != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{};
  return {"m", "v"};
}

}  // namespace

void OptimizerSpec::fields(FieldVisitor& v) {
  v.field("lr", lr, {.help = "learning rate", .min = 0});
  v.field("weight_decay", weight_decay,
          {.help = kind == OptimizerKind::adamw || kind == OptimizerKind::lamb ? "decoupled weight decay"
                                                                               : "L2 penalty",
           .min = 0});
  if (kind == OptimizerKind::sgd) {
    v.field("momentum", momentum, {.help = "momentum factor", .min = 0, .max = 1});
    v.field("dampening", dampening, {.help = "dampening of momentum", .min = 0, .max = 1});
    v.field("nesterov", nesterov, {.help = "Nesterov momentum"});
  } else {
    v.field("beta1", beta1, {.help = "decay of the first moment", .min = 0, .max = 1});
    v.field("beta2", beta2, {.help = "decay of the second moment", .min = 0, .max = 1});
    v.field("eps", epsilon, {.help = "added to the denominator", .min = 0});
  }
  v.field("maximize", maximize, {.help = "ascend instead of descend"});
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const KindName& k : kKinds) names.emplace_back(k.name);
  return names;
}

Result<OptimizerSpec> parse_optimizer(const std::string& text) {
  const NamedOptions named = TRY(parse_named_options(text));
  OptimizerSpec spec;
  bool known = false;
  for (const KindName& k : kKinds)
    if (named.name == k.name) {
      spec.kind = k.kind;
      known = true;
    }
  if (!known)
    return Error{Errc::usage,
                 "unknown optimizer '" + escaped(named.name) + "' (known: sgd, adam, adamw, lamb)"};
  if (spec.kind == OptimizerKind::adamw) spec.weight_decay = 1e-2;
  if (spec.kind == OptimizerKind::lamb) {
    spec.weight_decay = 1e-2;
    spec.epsilon = 1e-6;
  }
  TRY(set_fields([&](FieldVisitor& v) { spec.fields(v); }, named.values, "optimizer " + named.name));
  if (spec.nesterov && (spec.momentum <= 0 || spec.dampening != 0))
    return Error{Errc::usage, "optimizer sgd: nesterov needs momentum > 0 and dampening = 0"};
  return spec;
}

std::string print_optimizer(const OptimizerSpec& spec) {
  OptimizerSpec copy = spec;
  return std::string(kind_name(spec.kind)) + "{" + print_fields([&](FieldVisitor& v) { copy.fields(v); }) +
         "}";
}

void ScheduleSpec::fields(FieldVisitor& v) {
  if (name == "constant") {
    v.field("warmup", warmup, {.help = "steps of linear warm-up", .unit = "steps", .min = 0});
    return;
  }
  v.field("warmup", warmup, {.help = "steps of linear warm-up", .unit = "steps", .min = 0});
  v.field("total", total, {.help = "step at which the final factor is reached", .unit = "steps", .min = 0});
  v.field("end", end, {.help = "final factor", .min = 0});
}

double ScheduleSpec::factor(std::int64_t step) const {
  const auto s = static_cast<double>(step);
  if (warmup > 0 && step <= warmup) return s / static_cast<double>(warmup);
  if (name == "constant" || total <= warmup) return 1.0;
  const double progress =
      std::min(1.0, (s - static_cast<double>(warmup)) / static_cast<double>(total - warmup));
  if (name == "linear") return 1.0 + (end - 1.0) * progress;
  return end + (1.0 - end) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

Result<ScheduleSpec> parse_schedule(const std::string& text) {
  const NamedOptions named = TRY(parse_named_options(text.empty() ? "constant" : text));
  ScheduleSpec spec;
  spec.name = named.name;
  if (spec.name != "constant" && spec.name != "linear" && spec.name != "cosine")
    return Error{Errc::usage,
                 "unknown schedule '" + escaped(spec.name) + "' (known: constant, linear, cosine)"};
  TRY(set_fields([&](FieldVisitor& v) { spec.fields(v); }, named.values, "schedule " + spec.name));
  if (spec.name != "constant" && spec.total <= spec.warmup)
    return Error{Errc::usage, "schedule " + spec.name + ": total must be larger than warmup"};
  return spec;
}

std::string print_schedule(const ScheduleSpec& spec) {
  ScheduleSpec copy = spec;
  return spec.name + "{" + print_fields([&](FieldVisitor& v) { copy.fields(v); }) + "}";
}

void LossScaleSpec::fields(FieldVisitor& v) {
  v.field("initial", initial, {.help = "scale of the first step", .min = 1, .max = 3e38});
  v.field("growth", growth, {.help = "factor after `interval` steps that were made", .min = 1, .max = 65536});
  v.field("backoff", backoff, {.help = "factor after a step that was skipped", .min = 1e-3, .max = 1});
  v.field("interval", interval,
          {.help = "steps in a row before the scale grows", .unit = "steps", .min = 1, .max = 1e9});
}

Result<LossScaleSpec> parse_loss_scale(const std::string& text) {
  const NamedOptions named = TRY(parse_named_options(text.empty() ? "dynamic" : text));
  if (named.name != "dynamic")
    return Error{Errc::usage, "unknown loss scale '" + escaped(named.name) + "' (known: dynamic)"};
  LossScaleSpec spec;
  TRY(set_fields([&](FieldVisitor& v) { spec.fields(v); }, named.values, "loss scale"));
  return spec;
}

std::string print_loss_scale(const LossScaleSpec& spec) {
  LossScaleSpec copy = spec;
  return "dynamic{" + print_fields([&](FieldVisitor& v) { copy.fields(v); }) + "}";
}

Status add_loss(Graph& graph, const std::string& loss) {
  if (loss.empty()) return Error{Errc::usage, "no loss: give --loss OUTPUT or --loss ce:LOGITS,LABELS"};
  const std::size_t colon = loss.find(':');
  const std::string head = loss.substr(0, colon);
  GraphBuilder b(graph);
  b.origin.phase = Phase::loss;
  b.rank = std::int64_t{1} << 39;
  b.name_prefix = "loss/";
  if (colon == std::string::npos || find_value(graph, loss) != kNone) {
    const ValueId id = TRY(find_prediction(graph, loss));
    const Shape& shape = graph.values[id].type.shape;
    if (!is_static(shape) || element_count(shape) != 1)
      return Error{Errc::bad_input, "--loss: output '" + escaped(loss) + "' is " +
                                        to_string(graph.values[id].type) + "; a scalar is needed"};
    graph.loss = id;
    return {};
  }
  const NamedOptions named = TRY(parse_named_options(head));
  const std::vector<std::string> parts = split_top_level(std::string_view(loss).substr(colon + 1));
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty())
    return Error{Errc::usage, "--loss " + escaped(loss) + ": expected " + named.name + ":PREDICTION,TARGET"};
  struct LossOptions {
    std::int64_t axis = -1;
  } options;
  const bool is_ce = named.name == "ce";
  TRY(set_fields(
      [&](FieldVisitor& v) {
        if (is_ce) v.field("axis", options.axis, {.help = "class axis"});
      },
      named.values, "loss " + named.name));
  if (!is_ce && named.name != "mse" && named.name != "l1" && named.name != "bce")
    return Error{Errc::usage,
                 "unknown loss '" + escaped(named.name) + "' (known: an output's name, ce, mse, l1, bce)"};
  const ValueId prediction = TRY(find_prediction(graph, parts[0]));
  if (!is_static(graph.values[prediction].type.shape))
    return Error{Errc::usage,
                 "--loss: '" + escaped(parts[0]) + "' has unbound dims; bind them with --dim NAME=N"};
  b.origin.sources = {add_loss_source(graph, loss)};
  graph.loss = is_ce ? TRY(cross_entropy(b, prediction, parts[1], options.axis))
                     : TRY(regression(b, named.name, prediction, parts[1]));
  return {};
}

Result<TrainGraph> add_training(Graph forward, const TrainSpec& spec) {
  TrainGraph out;
  out.graph = std::move(forward);
  Graph& graph = out.graph;
  CHECK(graph.loss != kNone, "add_loss comes first");
  if (spec.accumulate < 1) return Error{Errc::usage, "--accumulate must be at least 1"};

  keep_only_needed(graph);
  std::vector<ValueId> trainable;
  for (ValueId id : graph.parameters) {
    const std::string& name = graph.values[id].name;
    const bool frozen = std::any_of(spec.freeze.begin(), spec.freeze.end(),
                                    [&](const std::string& g) { return glob_match(g, name); });
    if (!frozen && is_float(graph.values[id].type.dtype)) trainable.push_back(id);
  }
  if (trainable.empty())
    return Error{Errc::bad_input, "nothing to train: the model has no trainable parameters"};
  if (const ValueId root = behind_views(graph, graph.loss); graph.values[root].role == Role::parameter)
    return Error{Errc::bad_input, "the loss is the parameter '" + escaped(graph.values[root].name) +
                                      "' itself: nothing is computed from it"};
  GraphBuilder b(graph);
  b.origin.phase = Phase::optimizer;
  b.rank = kOptimizerRank;
  ValueId loss_scale = kNone;
  if (spec.loss_scale) {
    if (graph.type(graph.loss).dtype == DType::f16)
      return Error{Errc::bad_input, "the loss '" + escaped(graph.values[graph.loss].name) +
                                        "' is computed in f16, where it cannot be scaled (cast it to f32)"};
    loss_scale = add_state(b, "gradloom/loss_scale", Tensor::scalar(DType::f32, spec.loss_scale->initial));
  }
  const auto grads = TRY(add_gradients(graph, graph.loss, trainable, loss_scale));

  out.names.lr = b.input("gradloom/lr", Type{DType::f64, {}}, Role::hyper);
  out.names.step = b.input("gradloom/step", Type{DType::i64, {}}, Role::hyper);
  out.names.loss = graph.loss;
  std::vector<std::pair<ValueId, ValueId>> pairs;  // parameter, gradient
  for (ValueId p : trainable) {
    if (grads.at(p) == kNone) continue;  // the loss does not depend on it
    pairs.emplace_back(p, grads.at(p));
    out.trainable.push_back(graph.values[p].name);
  }
  if (pairs.empty())
    return Error{Errc::bad_input, "nothing to train: the loss depends on no trainable parameter"};

  if (spec.accumulate > 1) {
    out.names.micro = b.input("gradloom/micro", Type{DType::i64, {}}, Role::hyper);
    const Attrs attrs{{"count", spec.accumulate}};
    const auto accumulate = [&](ValueId value, const std::string& name) {
      const ValueId acc = add_state(b, name, graph.values[value].type);
      const ValueId next = b.op("Accumulate", {acc, value, out.names.micro}, attrs);
      graph.updates.push_back({acc, next});
      return next;
    };
    b.rank = kOptimizerRank - 1;
    for (auto& [p, g] : pairs) {
      b.name_prefix = graph.values[p].name + "/";
      g = accumulate(g, graph.values[p].name + "/acc");
    }
    b.name_prefix = "loss/";
    out.names.loss = accumulate(graph.loss, "loss/acc");
    b.rank = kOptimizerRank;
  }
  std::vector<ValueId> gradients;
  for (const auto& [p, g] : pairs) gradients.push_back(g);
  const Scaling scaling = add_scaling(b, spec, gradients, loss_scale, out.names);
  const OpDef& optimizer = op_by_name("Optimizer");
  const std::vector<std::string> states = state_names(spec.optimizer);
  for (const auto& [p, g] : pairs) {
    const std::string name = graph.values[p].name;
    b.name_prefix = name + "/";
    std::vector<ValueId> inputs{out.names.lr, scaling.step, scaling.factor, scaling.apply, p, g};
    std::vector<ValueId> state_ids;
    for (const std::string& s : states) {
      state_ids.push_back(add_state(b, name + "/" + s, graph.values[p].type));
      inputs.push_back(state_ids.back());
    }
    const auto next =
        b.ops(optimizer, inputs, optimizer_attrs(spec.optimizer), static_cast<int>(1 + states.size()));
    graph.updates.push_back({p, next[0]});
    for (std::size_t i = 0; i < states.size(); ++i) graph.updates.push_back({state_ids[i], next[i + 1]});
  }
  graph.outputs.clear();
  for (ValueId StepNames::*value : StepNames::kReported)
    if (out.names.*value != kNone) graph.outputs.push_back(out.names.*value);
  return out;
}

}  // namespace gradloom
