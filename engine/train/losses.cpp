#include "engine/train/losses.h"

#include <algorithm>

#include "engine/base/fields.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

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

// LogSoftmax over the class axis, then NegativeLogLikelihoodLoss, which takes classes on axis 1: rows are
// flattened ([.., C] -> [rows, C]) when the class axis is last. Pass fuse-softmax-cross-entropy makes one
// kernel of it.
Result<ValueId> ce_loss(GraphBuilder& b, ValueId logits, const std::string& label_name,
                        const LossOptions& options) {
  const std::int64_t axis = options.axis;
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

// The mean of `each` over all elements.
Result<ValueId> mean_over(GraphBuilder& b, ValueId prediction, const std::string& target_name,
                          ValueId (*each)(GraphBuilder& b, ValueId prediction, ValueId target)) {
  const Type type = b.type(prediction);
  const ValueId target = TRY(find_or_add_input(b, target_name, type, false));
  const ValueId elements = each(b, prediction, target);
  std::vector<std::int64_t> axes;
  for (std::size_t i = 0; i < type.shape.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  return b.op("ReduceMean", {elements, b.i64s(axes)}, {{"keepdims", std::int64_t{0}}});
}

Result<ValueId> mse_loss(GraphBuilder& b, ValueId prediction, const std::string& target, const LossOptions&) {
  return mean_over(b, prediction, target, [](GraphBuilder& in, ValueId x, ValueId t) {
    return in.op("Square", {in.op("Sub", {x, t})});
  });
}

Result<ValueId> l1_loss(GraphBuilder& b, ValueId prediction, const std::string& target, const LossOptions&) {
  return mean_over(b, prediction, target, [](GraphBuilder& in, ValueId x, ValueId t) {
    return in.op("Abs", {in.op("Sub", {x, t})});
  });
}

// On logits: softplus(x) - x t, which overflows for no x.
Result<ValueId> bce_loss(GraphBuilder& b, ValueId prediction, const std::string& target, const LossOptions&) {
  return mean_over(b, prediction, target, [](GraphBuilder& in, ValueId x, ValueId t) {
    const ValueId softplus = in.op("Softplus", {x});
    return in.op("Sub", {softplus, in.op("Mul", {x, t})});
  });
}

#define INTEGER(field, fallback, help) LossOption{#field, help, fallback, &LossOptions::field},
#define LOSS(name, title, prediction, target, compared, suggested, formula, source, options) \
  constexpr std::initializer_list<LossOption> name##_options = {options};
#include "engine/train/losses.def"
#undef LOSS
#undef INTEGER

constexpr LossDef kLosses[] = {
#define LOSS(name, title, prediction, target, compared, suggested, formula, source, options) \
  {#name,     title,       prediction, target, LossTarget::compared,                         \
   suggested, name##_loss, formula,    source, {name##_options.begin(), name##_options.size()}},
#include "engine/train/losses.def"
#undef LOSS
};

std::uint32_t add_loss_source(Graph& graph, const std::string& loss) {
  graph.sources.push_back({"loss", loss.substr(0, loss.find_first_of(":{")), "gradloom", "loss"});
  return static_cast<std::uint32_t>(graph.sources.size() - 1);
}

Status use_output(Graph& graph, const std::string& name) {
  const ValueId id = TRY(find_prediction(graph, name));
  const Shape& shape = graph.values[id].type.shape;
  if (!is_static(shape) || element_count(shape) != 1)
    return Error{Errc::bad_input, "--loss: output '" + escaped(name) + "' is " +
                                      to_string(graph.values[id].type) + "; a scalar is needed"};
  graph.loss = id;
  return {};
}

Result<const LossDef*> find_loss(const std::string& name) {
  for (const LossDef& def : kLosses)
    if (name == def.name) return &def;
  std::vector<std::string> known = loss_names();
  known.insert(known.begin(), "an output's name");
  return Error{Errc::usage, unknown_name("loss", name, known)};
}

Result<LossOptions> parse_options(const LossDef& def, const NamedOptions& named) {
  LossOptions options;
  for (const LossOption& option : def.options) options.*option.number = option.fallback;
  TRY(set_fields(
      [&](FieldVisitor& v) {
        for (const LossOption& option : def.options)
          v.field(option.name, options.*option.number, {.help = option.help});
      },
      named.values, "loss " + named.name));
  return options;
}

}  // namespace

std::span<const LossDef> all_losses() { return kLosses; }

std::vector<std::string> loss_names() {
  std::vector<std::string> names;
  for (const LossDef& def : kLosses) names.emplace_back(def.name);
  return names;
}

std::vector<std::string> loss_forms() {
  std::vector<std::string> forms;
  for (const LossDef& def : kLosses)
    forms.push_back(std::string(def.name) + ":" + def.prediction + "," + def.target);
  return forms;
}

Status add_loss(Graph& graph, const std::string& loss) {
  if (loss.empty()) return Error{Errc::usage, "no loss: give --loss OUTPUT or --loss " + loss_forms()[0]};
  const std::size_t colon = loss.find(':');
  if (colon == std::string::npos || find_value(graph, loss) != kNone) return use_output(graph, loss);
  const NamedOptions named = TRY(parse_named_options(loss.substr(0, colon)));
  const LossDef& def = *TRY(find_loss(named.name));
  const std::vector<std::string> parts = split_top_level(std::string_view(loss).substr(colon + 1));
  if (parts.size() != 2 || parts[0].empty() || parts[1].empty())
    return Error{Errc::usage, "--loss " + escaped(loss) + ": expected " + named.name + ":PREDICTION,TARGET"};
  const LossOptions options = TRY(parse_options(def, named));
  const ValueId prediction = TRY(find_prediction(graph, parts[0]));
  if (!is_static(graph.values[prediction].type.shape))
    return Error{Errc::usage,
                 "--loss: '" + escaped(parts[0]) + "' has unbound dims; bind them with --dim NAME=N"};
  const Origin origin{{add_loss_source(graph, loss)}, Phase::loss};
  GraphBuilder b(graph, {.origin = origin, .rank = std::int64_t{1} << 39, .name_prefix = "loss/"});
  graph.loss = TRY(def.build(b, prediction, parts[1], options));
  return {};
}

}  // namespace gradloom
