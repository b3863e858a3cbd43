// Optimizer (ours): new parameters and states of `n` tensors in one launch.
//   inputs: lr (f64 scalar), step (i64 scalar, 1 at the first update), grad_scale (scalar or omitted), apply
//           (boolean scalar or omitted; false: nothing changes), p0..pn-1, g0..gn-1, then per state n tensors
//   outputs: p0'..pn-1', then per state n tensors; all are written over their inputs (kMustAlias)
// Attributes: n, kind (a row of kernels/optimizers.def) and the options of that row,
// whose formula and source stand there.
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::OptimizerKind;

constexpr std::size_t kScale = 2, kApply = 3, kFirst = 4;  // indices of the optional ones and of p0

// What a row of kernels/optimizers.def says to this operator.
struct Row {
  const char* name;
  OptimizerKind kind;
  std::size_t states;
  const char* needs;  // the attribute without which there are no states
  double bare_operations, operations;
};

constexpr std::size_t count_words(const char* text) {
  std::size_t words = *text == 0 ? 0 : 1;
  for (; *text != 0; ++text)
    if (*text == ' ') ++words;
  return words;
}

constexpr Row kRows[] = {
#define OPTIMIZER(name, title, lr, states, needs, bare_operations, operations, ...) \
  {#name, OptimizerKind::name, count_words(states), needs, bare_operations, operations},
#include "kernels/optimizers.def"
#undef OPTIMIZER
};

// The options of the kind, from the attributes.
void set_options(kernels::OptimizerArgs& args, const Attrs& attrs) {
  switch (args.kind) {
#define NUMBER(field, name, fallback, least, most, help) args.field = attrs.real(#field, fallback);
#define FLAG(field, name, fallback, help) args.field = attrs.integer(#field, fallback) != 0;
#define OPTIMIZER(name, title, lr, states, needs, bare, operations, start, formula, source, options) \
  case OptimizerKind::name:                                                                          \
    options break;
#include "kernels/optimizers.def"
#undef OPTIMIZER
#undef FLAG
#undef NUMBER
  }
}

struct Layout {
  const Row* row;
  std::size_t n, states;
  std::size_t inputs() const { return kFirst + (2 + states) * n; }
  std::size_t outputs() const { return (1 + states) * n; }
};

Result<Layout> layout_of(const Attrs& attrs) {
  const std::string kind = attrs.text("kind", kRows[0].name);
  const std::int64_t n = attrs.integer("n", 1);
  if (n < 1 || n > (1 << 20)) return infer_error("n is " + std::to_string(n));
  for (const Row& row : kRows) {
    if (kind != row.name) continue;
    const bool stateless = *row.needs != 0 && attrs.real(row.needs) == 0;
    return Layout{&row, static_cast<std::size_t>(n), stateless ? 0 : row.states};
  }
  return infer_error("kind '" + kind + "' is unknown");
}

Status infer(InferContext& ctx) {
  const Layout l = TRY(layout_of(ctx.attrs));
  if (ctx.inputs.size() != l.inputs())
    return infer_error(std::to_string(ctx.inputs.size()) + " inputs, expected " + std::to_string(l.inputs()));
  for (std::size_t i = 0; i < l.inputs(); ++i)
    if (i != kScale && i != kApply && !ctx.has(i))
      return infer_error("input " + std::to_string(i) + " is missing");
  if (ctx.in(0) != Type{DType::f64, {}} || ctx.in(1) != Type{DType::i64, {}})
    return infer_error("lr must be f64[] and step i64[]");
  if (ctx.has(kScale) && ctx.in(kScale) != Type{ctx.dtype(kFirst), {}})
    return infer_error("grad_scale is " + to_string(ctx.in(kScale)));
  if (ctx.has(kApply) && ctx.in(kApply) != Type{DType::boolean, {}})
    return infer_error("apply is " + to_string(ctx.in(kApply)));
  std::vector<Type> outputs;
  for (std::size_t group = 0; group < 2 + l.states; ++group) {
    for (std::size_t i = 0; i < l.n; ++i) {
      const Type &parameter = ctx.in(kFirst + i), &type = ctx.in(kFirst + group * l.n + i);
      if (type != parameter || parameter.dtype != ctx.dtype(kFirst))
        return infer_error("input " + std::to_string(kFirst + group * l.n + i) + " is " + to_string(type) +
                           ", its parameter " + to_string(parameter));
      if (group != 1) outputs.push_back(parameter);
    }
  }
  return set_outputs(ctx, std::move(outputs));
}

std::vector<std::pair<int, int>> aliases(const Node& node) {
  auto l = layout_of(node.attrs);
  CHECK(l.ok(), "aliases of an invalid Optimizer");
  std::vector<std::pair<int, int>> pairs;
  for (std::size_t i = 0; i < l->outputs(); ++i) {
    const std::size_t input =
        kFirst + (i < l->n ? i : i + l->n);  // the gradients lie between parameters and states
    pairs.emplace_back(static_cast<int>(i), static_cast<int>(input));
  }
  return pairs;
}

// Multiplications, additions, divisions and roots per element.
Cost cost(const NodeTypes& types) {
  auto l = layout_of(types.attrs);
  CHECK(l.ok(), "cost of an invalid Optimizer");
  const double per_element = l->states == 0 ? l->row->bare_operations : l->row->operations;
  double elements = 0;
  for (std::size_t i = 0; i < l->n; ++i)
    elements += static_cast<double>(element_count(types.inputs[kFirst + i].shape));
  return cost_of(types, per_element * elements);
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Layout l = TRY(layout_of(types.attrs));
  const DType dtype = types.inputs[kFirst].dtype;
  TRY(require_kernel_type(types.target, dtype));
  if (types.outputs.size() != l.outputs()) return no_kernel("every output must be present");
  const Attrs& attrs = types.attrs;
  kernels::OptimizerArgs layout{};
  layout.dtype = dtype;
  layout.kind = l.row->kind;
  layout.count = as_dim(l.n);
  set_options(layout, attrs);
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < l.n; ++i) sizes.push_back(element_count(types.inputs[kFirst + i].shape));
  layout.sizes = sizes.data();
  const std::size_t workspace = kernels::workspace_bytes(types.target, layout);
  return Kernel{std::string("optimizer ") + l.row->name, workspace,
                [layout, sizes, n = l.n, states = l.states, scaled = types.has(kScale),
                 conditional = types.has(kApply)](const LaunchArgs& args) {
                  const auto input = [&](std::size_t group) { return args.inputs + kFirst + group * n; };
                  kernels::OptimizerArgs a = layout;
                  a.sizes = sizes.data();
                  a.lr = static_cast<const double*>(args.inputs[0]);
                  a.step = static_cast<const std::int64_t*>(args.inputs[1]);
                  a.grad_scale = scaled ? args.inputs[kScale] : nullptr;
                  a.apply = conditional ? static_cast<const bool*>(args.inputs[kApply]) : nullptr;
                  a.param = input(0);
                  a.grad = input(1);
                  a.state1 = states > 0 ? input(2) : nullptr;
                  a.state2 = states > 1 ? input(3) : nullptr;
                  a.param_out = args.outputs;
                  a.state1_out = states > 0 ? args.outputs + n : nullptr;
                  a.state2_out = states > 1 ? args.outputs + 2 * n : nullptr;
                  a.workspace = args.workspace;
                  args.on.optimizer(a);
                }};
}

// `shapes`: of the parameters; second moments are positive. apply: -1 omitted.
Sample sample(const char* name, Attrs attrs, const std::vector<Shape>& shapes, std::int64_t step, bool scaled,
              int apply = -1) {
  attrs.set("n", as_dim(shapes.size()));
  auto l = layout_of(attrs);
  CHECK(l.ok(), "sample of an invalid Optimizer");
  const std::size_t squares = l->row->kind == OptimizerKind::adagrad ? 2 : 3;  // the group of second moments
  Sample s;
  s.name = name;
  s.inputs = {exact(DType::f64, {}, {0.1}), exact(DType::i64, {}, {static_cast<double>(step)}),
              scaled ? exact(DType::f32, {}, {0.5}) : omitted(),
              apply < 0 ? omitted() : exact(DType::boolean, {}, {static_cast<double>(apply)})};
  for (std::size_t group = 0; group < 2 + l->states; ++group)
    for (const Shape& shape : shapes)
      s.inputs.push_back(group == squares ? floats(shape, 0.1, 1) : floats(shape));
  s.output_count = static_cast<int>(l->outputs());
  s.attrs = std::move(attrs);
  return s;
}

std::vector<Sample> samples() {
  const auto kind = [](const char* name) {
    return Attrs{{"kind", std::string(name)}, {"weight_decay", 0.01}};
  };
  Attrs momentum = kind("sgd");
  momentum.set("momentum", 0.9);
  momentum.set("dampening", 0.1);
  Attrs nesterov = kind("sgd");
  nesterov.set("momentum", 0.9);
  nesterov.set("nesterov", std::int64_t{1});
  Attrs adagrad = kind("adagrad");
  adagrad.set("lr_decay", 0.1);
  adagrad.set("initial_sum", 0.5);
  Attrs uncorrected = kind("adamw_hf");
  uncorrected.set("correct_bias", std::int64_t{0});
  std::vector<Sample> all = {
      sample("sgd", kind("sgd"), {{3, 5}}, 1, false),
      sample("sgd-momentum", momentum, {{3, 5}, {7}}, 1, false),
      sample("sgd-momentum-later", momentum, {{3, 5}, {7}}, 4, true),
      sample("sgd-nesterov", nesterov, {{9}}, 2, false),
      sample("adam", kind("adam"), {{3, 5}, {}}, 1, false),
      sample("adam-scaled", kind("adam"), {{2, 2}}, 10, true),
      sample("adamw", kind("adamw"), {{3, 5}, {4}, {1}}, 3, false),
      sample("lamb", kind("lamb"), {{3, 5}, {4}}, 3, true),
      sample("adagrad", adagrad, {{3, 5}, {4}}, 1, false),
      sample("adagrad-later", adagrad, {{3, 5}, {4}}, 5, true),
      sample("lion", kind("lion"), {{3, 5}, {4}}, 3, true),
      sample("adamw-hf", kind("adamw_hf"), {{3, 5}, {4}}, 3, false),
      sample("adamw-hf-uncorrected", uncorrected, {{9}}, 3, true),
      sample("sgd-skipped", momentum, {{3, 5}, {7}}, 4, true, 0),
      sample("adamw-skipped", kind("adamw"), {{3, 5}, {4}}, 3, true, 0),
      sample("adamw-applied", kind("adamw"), {{3, 5}, {4}}, 3, true, 1),
      sample("lamb-skipped", kind("lamb"), {{3, 5}, {4}}, 3, false, 0),
      sample("adagrad-skipped", adagrad, {{3, 5}, {4}}, 1, true, 0),
      sample("lion-skipped", kind("lion"), {{3, 5}, {4}}, 3, false, 0),
      sample("adamw-layer", kind("adamw"), {{2048, 512}, {2048}}, 3, false),
  };
  all.back().bench = true;
  return all;
}

}  // namespace

const OpDef optimizer_op = {
    .name = "Optimizer",
    .domain = "gradloom",
    .summary = "Updates parameters and optimizer states: SGD, Adam, AdamW, LAMB, Adagrad or Lion.",
    .traits = kNoGradient | kMustAlias,
    .min_inputs = 6,
    .max_inputs = 1 << 23,
    .max_outputs = 1 << 22,
    .infer = infer,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .aliases = aliases,
};

}  // namespace gradloom
