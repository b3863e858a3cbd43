// Optimizer (ours): new parameters and states of `n` tensors in one launch.
//   inputs: lr (f64 scalar, or the table of optimizer_inputs.h), step (i64 scalar, 1 at the first update), grad_scale (scalar or omitted),
//           apply (boolean scalar or omitted; false: nothing changes), p0..pn-1, g0..gn-1, then per state n tensors, then copies
//   outputs: p0'..pn-1', then per state n tensors, then copies; all are written over their inputs (kMustAlias)
// Where the parameters are not of 16 bits, a gradient may be f16 or bf16, and a copy is the next value of a parameter rounded to f16 or
// bf16 (all to the same): what the next forward pass reads.
// With attribute keys (a number of each parameter) the parameters are bf16, computed in the type of the states (f32 without
// any) and rounded at random by Philox's numbers of seed, step, key and element; they have no copies.
// With attributes begins and counts (of each parameter; without keys, for optimizers that reach single elements, UpdateReach) elements [begin, begin +
// count) of each parameter and copy are updated alone, begin a multiple of kRangeUnit; the others stay. States and, if it is not whole, the
// gradient are those of these elements, of one dim; so is a parameter with a copy, which has the shape of the whole then, if it is not whole.
// Attributes: n, copies (the parameter of each), kind (a row of kernels/optimizers.def) and the options of that row, whose formula and source
// stand there; factored (optimizers with states of rows and columns): whether the states are these; row, of the table; lr_factor,
// clip_value and ratio_in_lr (OptimizerArgs); eight_bit_states: every state is u8[encoded_bytes(elements)] (kernels/block_quantization.h). Otherwise
// every state has its parameter's shape or that of its rows or columns.
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "kernels/block_quantization.h"
#include "kernels/launcher.h"

#include <cmath>
#include <cstring>
#include <set>
#include <type_traits>

namespace gradloom {
namespace {

using kernels::OptimizerKind, kernels::StateForm, kernels::StateRange;
using namespace kernels::portable;  // block_quantization.h

using namespace optimizer_inputs;

// A state as a row of kernels/optimizers.def declares it.
struct State {
  int number;
  StateForm form;
  StateRange range;
  const char* needs;  // the attribute without which it is not there
};

// What a row of kernels/optimizers.def says to this operator.
struct Row {
  const char* name;
  OptimizerKind kind;
  std::span<const State> states;
  UpdateReach reach;
  double bare_operations, operations;
};

#define NUMBER(...)
#define FLAG(...)
#define STATE(number, name, form, range, needs) {number, StateForm::form, StateRange::range, needs},
#define OPTIMIZER(name, title, lr, states, ...) constexpr State name##_states[] = {states};
#include "kernels/optimizers.def"
#undef OPTIMIZER

constexpr Row kRows[] = {
#define OPTIMIZER(name, title, lr, states, reach, bare_operations, operations, ...) \
  {#name, OptimizerKind::name, name##_states, UpdateReach::reach, bare_operations, operations},
#include "kernels/optimizers.def"
#undef OPTIMIZER
#undef STATE
#undef FLAG
#undef NUMBER
};

// The options of the kind, from the attributes.
void set_options(kernels::OptimizerArgs& args, const Attrs& attrs) {
  switch (args.kind) {
#define NUMBER(field, name, fallback, least, most, help) args.field = attrs.real(#field, fallback);
#define FLAG(field, name, fallback, help) args.field = attrs.integer(#field, fallback) != 0;
#define OPTIMIZER(name, title, lr, states, reach, bare, operations, start, formula, source, options) \
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
  std::size_t n;
  bool factored, eight_bit;
  std::vector<State> states;  // that there are
  std::vector<std::int64_t> copies, keys, begins, counts;
  // Each parameter's place among the copies; -1: it has none. Empty: there are none.
  std::vector<std::int64_t> copy_of{};
  bool ranged() const { return !begins.empty(); }
  // Whether a range of parameter i is all that there is of it. `shape`: of each input.
  bool is_part(std::size_t i, const auto& shape) const {
    return ranged() && !copy_of.empty() && copy_of[i] >= 0 && shape(kFirst + i) == Shape{counts[i]};
  }
  // The shape of the whole parameter.
  const Shape& whole(std::size_t i, const auto& shape) const {
    return shape(is_part(i, shape) ? first_copy() + static_cast<std::size_t>(copy_of[i]) : kFirst + i);
  }
  // What is updated of parameter i.
  Shape updated(std::size_t i, const Shape& parameter) const {
    return ranged() ? Shape{counts[i]} : parameter;
  }
  std::size_t first_copy() const { return kFirst + (2 + states.size()) * n; }  // among the inputs
  std::size_t inputs() const { return first_copy() + copies.size(); }
  std::size_t outputs() const { return (1 + states.size()) * n + copies.size(); }
};

Status check_copies(const std::vector<std::int64_t>& copies, std::int64_t n) {
  const std::set<std::int64_t> places(copies.begin(), copies.end());
  if (places.size() != copies.size() || (!places.empty() && (*places.begin() < 0 || *places.rbegin() >= n)))
    return infer_error("copies must be different parameters");
  return {};
}

Status check_ranges(const Layout& l) {
  if (l.begins.empty() && l.counts.empty()) return {};
  if (l.begins.size() != l.n || l.counts.size() != l.n)
    return infer_error("begins and counts must be one per parameter");
  if (l.row->reach != UpdateReach::element)
    return infer_error(std::string(l.row->name) + " updates whole parameters");
  if (!l.keys.empty()) return infer_error("what is rounded at random is a whole parameter");
  for (std::size_t i = 0; i < l.n; ++i)
    if (l.begins[i] < 0 || l.counts[i] < 0 || l.begins[i] % kRangeUnit != 0)
      return infer_error("a range begins at " + std::to_string(l.begins[i]) + " and has " +
                         std::to_string(l.counts[i]) + " elements");
  return {};
}

Result<Layout> layout_of(const Attrs& attrs) {
  const std::string kind = attrs.text("kind", kRows[0].name);
  const std::int64_t n = attrs.integer("n", 1);
  if (n < 1 || n > (1 << 20)) return infer_error("n is " + std::to_string(n));
  for (const Row& row : kRows) {
    if (kind != row.name) continue;
    Layout layout{&row,
                  static_cast<std::size_t>(n),
                  attrs.integer("factored", 0) != 0,
                  attrs.integer("eight_bit_states", 0) != 0,
                  {},
                  attrs.integers("copies"),
                  attrs.integers("keys"),
                  attrs.integers("begins"),
                  attrs.integers("counts")};
    TRY(check_copies(layout.copies, n));
    if (!layout.copies.empty()) layout.copy_of.assign(layout.n, -1);
    for (std::size_t i = 0; i < layout.copies.size(); ++i)
      layout.copy_of[static_cast<std::size_t>(layout.copies[i])] = as_dim(i);
    TRY(check_ranges(layout));
    if (layout.eight_bit && row.kind == OptimizerKind::adafactor)
      return infer_error("Adafactor's states are not of 8 bits");
    if (!layout.keys.empty() && (as_dim(layout.keys.size()) != n || !layout.copies.empty()))
      return infer_error("keys must be one per parameter, without copies");
    for (const State& state : row.states) {
      if (*state.needs != 0 && attrs.real(state.needs) == 0) continue;
      if (state.form == StateForm::whole || layout.factored == (state.form != StateForm::unfactored))
        layout.states.push_back(state);
    }
    return layout;
  }
  return infer_error("kind '" + kind + "' is unknown");
}

// The type of a state of a parameter that is computed in this type.
Result<Type> state_type(const Layout& l, const Type& parameter, StateForm form) {
  Type type = parameter;
  if (l.eight_bit && !is_static(parameter.shape)) return infer_error("states of 8 bits need every dim bound");
  if (l.eight_bit) return Type{DType::u8, {encoded_bytes(element_count(parameter.shape))}};
  if (form == StateForm::whole || form == StateForm::unfactored) return type;
  if (type.shape.size() < 2 || element_count(type.shape) == 0)
    return infer_error("a parameter " + to_string(parameter) + " cannot be factored");
  if (form == StateForm::rows)
    type.shape.pop_back();
  else
    type.shape.erase(type.shape.end() - 2);
  return type;
}

// What parameters of type `parameter` are computed in. inputs: the node's types.
DType computed_in(const Layout& l, DType parameter, const auto& type_of_input) {
  if (l.keys.empty()) return parameter;
  return l.states.empty() || l.eight_bit ? DType::f32 : type_of_input(kFirst + 2 * l.n);
}

bool is_table(const Type& lr) { return !lr.shape.empty(); }

Status check_rate(const Type& lr, const Attrs& attrs) {
  if (lr == Type{DType::f64, {}}) return {};
  const bool table = lr.dtype == DType::f64 && lr.shape.size() == 2 && lr.shape[1] == as_dim(kColumns);
  const std::int64_t row = attrs.integer("row", 0);
  if (!table || row < 0 || row >= lr.shape[0])
    return infer_error("lr must be f64[] or f64[rows, " + std::to_string(kColumns) + "] with a row " +
                       std::to_string(row) + ", not " + to_string(lr));
  return {};
}

// The row of a table, in the host's memory: what stands there instead of the attributes; momentum only of what keeps a state for it.
void follow_row(kernels::OptimizerArgs& args, bool keeps) {
  double* const options[] = {&args.momentum, &args.beta1, &args.beta2, &args.weight_decay, &args.epsilon};
  static_assert(std::size(options) + 1 == kColumns);
  for (std::size_t i = keeps ? 0 : 1; i < std::size(options); ++i)
    if (const double value = args.lr[1 + i]; !std::isnan(value)) *options[i] = value;
}

Status infer(InferContext& ctx) {
  const Layout l = TRY(layout_of(ctx.attrs));
  if (ctx.inputs.size() != l.inputs())
    return infer_error(std::to_string(ctx.inputs.size()) + " inputs, expected " + std::to_string(l.inputs()));
  for (std::size_t i = 0; i < l.inputs(); ++i)
    if (i != kScale && i != kApply && !ctx.has(i))
      return infer_error("input " + std::to_string(i) + " is missing");
  TRY(check_rate(ctx.in(0), ctx.attrs));
  if (ctx.in(1) != Type{DType::i64, {}}) return infer_error("step must be i64[]");
  const DType computed = computed_in(l, ctx.dtype(kFirst), [&](std::size_t i) { return ctx.dtype(i); });
  if (!l.keys.empty() && (ctx.dtype(kFirst) != DType::bf16 || !is_float(computed) || is_half(computed)))
    return infer_error("parameters with keys are bf16 beside wider states");
  if (ctx.has(kScale) && ctx.in(kScale) != Type{computed, {}})
    return infer_error("grad_scale is " + to_string(ctx.in(kScale)));
  if (ctx.has(kApply) && ctx.in(kApply) != Type{DType::boolean, {}})
    return infer_error("apply is " + to_string(ctx.in(kApply)));
  std::vector<Type> outputs;
  const auto shape_of = [&](std::size_t i) -> const Shape& { return ctx.shape(i); };
  for (std::size_t group = 0; group < 2 + l.states.size(); ++group) {  // parameters, gradients, states
    for (std::size_t i = 0; i < l.n; ++i) {
      const Type &parameter = ctx.in(kFirst + i), &type = ctx.in(kFirst + group * l.n + i);
      const Shape& shape = l.whole(i, shape_of);
      const bool whole = group == 1 && type.shape == shape;
      if (group == 0 && l.ranged() && (!is_static(shape) || l.begins[i] > element_count(shape) - l.counts[i]))
        return infer_error("a range ends behind its parameter " + to_string(parameter));
      const Type wide{group > 0 ? computed : parameter.dtype, group == 0 ? parameter.shape
                                                              : whole    ? shape
                                                                         : l.updated(i, shape)};
      Type expected = group < 2 ? wide : TRY(state_type(l, wide, l.states[group - 2].form));
      if (group == 1 && !is_half(computed) && is_half(type.dtype)) expected.dtype = type.dtype;
      if (type != expected || parameter.dtype != ctx.dtype(kFirst))
        return infer_error("input " + std::to_string(kFirst + group * l.n + i) + " is " + to_string(type) +
                           ", its parameter " + to_string(parameter));
      if (group != 1) outputs.push_back(expected);
    }
  }
  for (std::size_t i = 0; i < l.copies.size(); ++i) {
    const auto of = static_cast<std::size_t>(l.copies[i]);
    const Type &parameter = ctx.in(kFirst + of), &type = ctx.in(l.first_copy() + i);
    if (type.shape != l.whole(of, shape_of) || is_half(parameter.dtype) || !is_half(type.dtype) ||
        type.dtype != ctx.dtype(l.first_copy()))
      return infer_error("a copy is " + to_string(type) + ", its parameter " + to_string(parameter));
    outputs.push_back(type);
  }
  return set_outputs(ctx, std::move(outputs));
}

// Results lie as operands do, but that the gradients are between parameters and states.
std::vector<std::pair<int, int>> aliases(const Node& node) {
  const auto parameters = static_cast<int>(node.attrs.integer("n", 1));
  std::vector<std::pair<int, int>> pairs;
  pairs.reserve(node.outputs.size());
  for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i)
    pairs.emplace_back(i, static_cast<int>(kFirst) + (i < parameters ? i : i + parameters));
  return pairs;
}

// Multiplications, additions, divisions and roots per element.
Cost cost(const NodeTypes& types) {
  auto l = layout_of(types.attrs);
  CHECK(l.ok(), "cost of an invalid Optimizer");
  const double per_element = l->states.empty() ? l->row->bare_operations : l->row->operations;
  double elements = 0, idle_bytes = 0;
  const auto shape_of = [&](std::size_t i) -> const Shape& { return types.inputs[i].shape; };
  for (std::size_t i = 0; i < l->n; ++i) {
    const Type &parameter = types.inputs[kFirst + i], &gradient = types.inputs[kFirst + l->n + i];
    const std::int64_t count = element_count(l->updated(i, l->whole(i, shape_of)));
    const auto idle = [&](const Type& type) {
      return static_cast<double>(element_count(type.shape) - count) *
             static_cast<double>(dtype_bytes(type.dtype));
    };
    elements += static_cast<double>(count);
    idle_bytes += 2 * idle(parameter) + idle(gradient);  // what stays of a parameter is not touched
    if (!l->copy_of.empty() && l->copy_of[i] >= 0)
      idle_bytes += 2 * idle(types.inputs[l->first_copy() + static_cast<std::size_t>(l->copy_of[i])]);
  }
  Cost all = cost_of(types, per_element * elements);
  all.bytes_read -= idle_bytes;
  return all;
}

// Elements of the parameters, and their last two dims where they are factored; types of the gradients; places of the copies.
struct Tensors {
  std::vector<std::int64_t> elements, rows, columns, copies, begins, param_begins, grad_begins;
  std::vector<std::size_t> whole_bytes,
      copy_bytes;  // of parameters of which ranges are updated, and of their copies
  std::vector<std::uint64_t> keys;
  std::vector<DType> grad_types;
  void point(kernels::OptimizerArgs& args) const {
    args.sizes = elements.data();
    args.rows = rows.data();
    args.columns = columns.data();
    args.grad_types = grad_types.data();
    args.copies = copies.empty() ? nullptr : copies.data();
    args.keys = keys.data();
  }
  std::size_t pointers() const { return begins.empty() ? 0 : 3 * begins.size() + copies.size(); }
  // Ranges are tensors to the kernel: it gets their places, in lists that begin at `params`. What no range has stays, also
  // where results do not stand where their operands do; on GPUs they do (kMustAlias).
  void narrow(kernels::OptimizerArgs& args, const void* const* copies_in, const void** params,
              kernels::Target target) const {
    if (begins.empty()) return;
    const std::size_t n = begins.size();
    const void** const grads = params + n;
    auto** const results = const_cast<void**>(grads + n);
    void** const results_copies = results + n;
    const auto at = [](auto* base, std::int64_t from, DType type) {
      using Byte =
          std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(base)>>, const char, char>;
      return static_cast<Byte*>(base) + from * static_cast<std::int64_t>(dtype_bytes(type));
    };
    for (std::size_t i = 0; i < n; ++i) {
      const bool apart = args.param_out[i] != args.param[i];
      CHECK(!apart || target == kernels::Target::cpu, "a GPU updates parameters where they are");
      if (apart) std::memcpy(args.param_out[i], args.param[i], whole_bytes[i]);
      params[i] = at(args.param[i], param_begins[i], args.dtype);
      grads[i] = at(args.grad[i], grad_begins[i], grad_types[i]);
      results[i] = at(args.param_out[i], param_begins[i], args.dtype);
    }
    for (std::size_t i = 0; i < copies.size(); ++i) {
      if (copies[i] < 0) continue;
      const auto copy = static_cast<std::size_t>(copies[i]);
      if (args.copy_out[copy] != copies_in[copy])
        std::memcpy(args.copy_out[copy], copies_in[copy], copy_bytes[copy]);
      results_copies[copy] = at(args.copy_out[copy], begins[i], args.low_type);
    }
    args.param = params;
    args.grad = grads;
    args.param_out = results;
    args.copy_out = results_copies;
  }
};
Tensors tensors_of(const NodeTypes& types, const Layout& l) {
  Tensors tensors;
  const auto shape_of = [&](std::size_t i) -> const Shape& { return types.inputs[i].shape; };
  for (std::size_t i = 0; i < l.n; ++i) {
    const Shape& shape = l.whole(i, shape_of);
    tensors.elements.push_back(element_count(l.updated(i, shape)));
    if (l.ranged()) {
      tensors.begins.push_back(l.begins[i]);
      tensors.param_begins.push_back(l.is_part(i, shape_of) ? 0 : l.begins[i]);
      const bool whole = types.inputs[kFirst + l.n + i].shape == shape;
      tensors.grad_begins.push_back(whole ? l.begins[i] : 0);
      tensors.whole_bytes.push_back(byte_size(types.inputs[kFirst + i]));
    }
    tensors.rows.push_back(shape.size() < 2 ? 1 : shape[shape.size() - 2]);
    tensors.columns.push_back(shape.empty() ? 1 : shape.back());
    tensors.grad_types.push_back(types.inputs[kFirst + l.n + i].dtype);
  }
  tensors.keys.assign(l.keys.begin(), l.keys.end());
  tensors.copies = l.copy_of;
  for (std::size_t i = 0; i < l.copies.size(); ++i)
    tensors.copy_bytes.push_back(byte_size(types.inputs[l.first_copy() + i]));
  return tensors;
}

void set_state(kernels::OptimizerArgs& args, int number, const void* const* from, void* const* to) {
  (number == 1 ? args.state1 : number == 2 ? args.state2 : args.state3) = from;
  (number == 1 ? args.state1_out : number == 2 ? args.state2_out : args.state3_out) = to;
}

Result<Kernel> prepare(const NodeTypes& types) {
  const Layout l = TRY(layout_of(types.attrs));
  const DType dtype =
      computed_in(l, types.inputs[kFirst].dtype, [&](std::size_t i) { return types.inputs[i].dtype; });
  TRY(require_kernel_type(types.target, dtype));
  if (types.outputs.size() != l.outputs()) return no_kernel("every output must be present");
  const Attrs& attrs = types.attrs;
  kernels::OptimizerArgs layout{};
  layout.dtype = dtype;
  layout.kind = l.row->kind;
  layout.count = as_dim(l.n);
  set_options(layout, attrs);
  layout.lr_factor = attrs.real("lr_factor", 1);
  layout.clip_value = attrs.real("clip_value", 0);
  layout.ratio_in_lr = attrs.integer("ratio_in_lr", 0) != 0;
  layout.factored = l.factored;
  layout.low_params = !l.keys.empty();
  layout.low_type = DType::bf16;
  if (!l.copies.empty()) layout.low_type = types.inputs[l.first_copy()].dtype;
  const Tensors tensors = tensors_of(types, l);
  tensors.point(layout);
  // The host makes the lists, where it can: those of a GPU are not in its workspace, and are read before the launch returns.
  const std::size_t lists = types.target == kernels::Target::cpu ? tensors.pointers() * sizeof(void*) : 0;
  const std::size_t workspace = lists + kernels::workspace_bytes(types.target, layout);
  return Kernel{
      std::string("optimizer ") + l.row->name, workspace,
      [layout, tensors, lists, target = types.target, n = l.n, states = l.states, scaled = types.has(kScale),
       conditional = types.has(kApply), first_copy = l.first_copy(), table = is_table(types.inputs[0]),
       first = static_cast<std::size_t>(attrs.integer("row", 0)) * kColumns](const LaunchArgs& args) {
        kernels::OptimizerArgs a = layout;
        tensors.point(a);
        a.lr = static_cast<const double*>(args.inputs[0]);
        if (table) a.lr += first;
        if (table && target == kernels::Target::cpu) follow_row(a, !states.empty());
        a.step = static_cast<const std::int64_t*>(args.inputs[1]);
        a.grad_scale = scaled ? args.inputs[kScale] : nullptr;
        a.apply = conditional ? static_cast<const bool*>(args.inputs[kApply]) : nullptr;
        a.param = args.inputs + kFirst;
        a.grad = args.inputs + kFirst + n;
        a.param_out = args.outputs;
        for (std::size_t s = 0; s < states.size(); ++s)
          set_state(a, states[s].number, args.inputs + kFirst + (2 + s) * n, args.outputs + (1 + s) * n);
        a.copy_out = args.outputs + (1 + states.size()) * n;
        a.random = args.random;
        a.workspace = static_cast<char*>(args.workspace) + lists;
        std::vector<const void*> apart(lists == 0 ? tensors.pointers() : 0);
        tensors.narrow(a, args.inputs + first_copy,
                       lists == 0 ? apart.data() : static_cast<const void**>(args.workspace), target);
        args.on.optimizer(a);
      }};
}

// A state of 8 bits and the gradient beside it, such that bytes can be compared: the next scales are exact in f32, and no next number
// lies in the middle of two codes, where a rounding decides. The first number of each block is the largest in both.
SampleInput encoded(std::int64_t numbers, bool positive) {
  const std::int64_t blocks = code_blocks(numbers);
  std::vector<double> contents;
  for (std::int64_t i = 0; i < blocks; ++i) contents.insert(contents.end(), {0, 0, 0, 63});  // 0.5f
  for (std::int64_t i = 0; i < numbers; ++i)
    contents.push_back(static_cast<double>(i % kCodeBlock == 0 ? 255
                                           : positive          ? 40 + i * 37 % 215
                                                               : i * 37 % 255));
  const Type type{DType::u8, {as_dim(contents.size())}};
  return exact(type.dtype, type.shape, std::move(contents));
}
SampleInput beside_encoded(const Shape& shape) {
  std::vector<double> contents;
  for (std::int64_t i = 0; i < element_count(shape); ++i)
    contents.push_back(i % kCodeBlock == 0 ? 1 : static_cast<double>(i * 29 % 127 - 63) / 64.37 + 0.00217);
  return exact(DType::f32, shape, std::move(contents));
}

// `shapes`: of the parameters; second moments are positive. apply: -1 omitted.
Sample sample(const char* name, Attrs attrs, const std::vector<Shape>& shapes, std::int64_t step, bool scaled,
              int apply = -1) {
  attrs.set("n", as_dim(shapes.size()));
  auto l = layout_of(attrs);
  CHECK(l.ok(), "sample of an invalid Optimizer");
  Sample s;
  s.name = name;
  s.inputs = {exact(DType::f64, {}, {0.1}), exact(DType::i64, {}, {static_cast<double>(step)}),
              scaled ? exact(DType::f32, {}, {0.5}) : omitted(),
              apply < 0 ? omitted() : exact(DType::boolean, {}, {static_cast<double>(apply)})};
  for (const Shape& shape : shapes) s.inputs.push_back(floats(shape));
  for (const Shape& shape : shapes) s.inputs.push_back(l->eight_bit ? beside_encoded(shape) : floats(shape));
  for (const State& state : l->states) {
    const bool positive = state.range == StateRange::positive;
    for (const Shape& shape : shapes) {
      const auto type = state_type(*l, {DType::f32, shape}, state.form);
      CHECK(type.ok(), "sample of a parameter that cannot be factored");
      s.inputs.push_back(l->eight_bit ? encoded(element_count(shape), positive)
                         : positive   ? floats(type->shape, 0.1, 1)
                                      : floats(type->shape));
    }
  }
  s.output_count = static_cast<int>(l->outputs());
  s.attrs = std::move(attrs);
  return s;
}

// The same with gradients and copies in 16 bits beside parameters that keep theirs.
Sample in_16_bits(const char* name, Attrs attrs, const std::vector<Shape>& shapes, DType low,
                  const std::vector<std::int64_t>& copies, int apply = -1) {
  Sample s = sample(name, std::move(attrs), shapes, 3, true, apply);
  s.attrs.set("copies", copies);
  const std::size_t n = shapes.size();
  for (std::size_t i = kScale; i < s.inputs.size(); ++i) s.inputs[i].statistic = i != kApply;
  for (std::size_t i = 0; i < n; i += 2) s.inputs[kFirst + n + i].type.dtype = low;
  for (const std::int64_t copy : copies) {
    s.inputs.push_back(floats(shapes[static_cast<std::size_t>(copy)]));
    s.inputs.back().type.dtype = low;
  }
  s.output_count += static_cast<int>(copies.size());
  return s;
}

// Parameters of bf16 with keys.
Sample rounded_at_random(const char* name, Attrs attrs, const std::vector<Shape>& shapes) {
  Sample s = in_16_bits(name, std::move(attrs), shapes, DType::bf16, {});
  s.attrs.erase("copies");
  std::vector<std::int64_t> keys;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    s.inputs[kFirst + i] = exact(DType::bf16, shapes[i],
                                 std::vector<double>(static_cast<std::size_t>(element_count(shapes[i])),
                                                     0.5 + 0.25 * static_cast<double>(i)));
    keys.push_back(static_cast<std::int64_t>(77 + i));
  }
  s.attrs.set("keys", keys);
  return s;
}

// Of two rows, the second with the rate alone.
Sample with_table(Sample s) {
  const double none = std::nan("");
  s.inputs[0] = exact(DType::f64, {2, as_dim(kColumns)},
                      {0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.1, none, none, none, none, none});
  return s;
}

std::vector<Sample> eight_bit_samples() {
  const auto eight = [](const char* name) {
    return Attrs{{"kind", std::string(name)},
                 {"beta1", 0.5},
                 {"beta2", 0.5},
                 {"momentum", 0.5},
                 {"eight_bit_states", std::int64_t{1}}};
  };
  return {
      sample("adamw-eight-bit", eight("adamw"), {{3, 5}, {2, 300}}, 3, true),
      sample("adam-eight-bit", eight("adam"), {{8200}}, 3, false),
      sample("lamb-eight-bit", eight("lamb"), {{3, 5}, {520}}, 3, true),
      sample("lion-eight-bit", eight("lion"), {{257}}, 3, false),
      sample("adagrad-eight-bit", eight("adagrad"), {{256}, {4}}, 5, false),
      sample("adamw-hf-eight-bit", eight("adamw_hf"), {{300}}, 3, false),
      sample("sgd-eight-bit", eight("sgd"), {{300}, {4}}, 3, false),
      sample("adamw-eight-bit-skipped", eight("adamw"), {{3, 100}}, 3, false, 0),
      in_16_bits("adamw-eight-bit-bf16-copies", eight("adamw"), {{3, 100}, {4}}, DType::bf16, {0}),
  };
}

std::vector<Sample> samples() {
  const auto kind = [](const char* name, Attrs more = {}) {
    more.set("kind", std::string(name));
    more.set("weight_decay", 0.01);
    return more;
  };
  const Attrs of_parts = kind("lamb", {{"ratio_in_lr", std::int64_t{1}}}),
              momentum = kind("sgd", {{"momentum", 0.9}, {"dampening", 0.1}}),
              nesterov = kind("sgd", {{"momentum", 0.9}, {"nesterov", std::int64_t{1}}}),
              adagrad = kind("adagrad", {{"lr_decay", 0.1}, {"initial_sum", 0.5}}),
              uncorrected = kind("adamw_hf", {{"correct_bias", std::int64_t{0}}}),
              factored = kind("adafactor", {{"factored", std::int64_t{1}}}),
              averaged =
                  kind("adafactor",
                       {{"factored", std::int64_t{1}}, {"beta1", 0.9}, {"relative_step", std::int64_t{0}}}),
              second = kind("adamw", {{"row", std::int64_t{1}}}),
              clipped = kind("adamw", {{"clip_value", 0.2}, {"lr_factor", 0.5}});
  std::vector<Sample> all = {
      sample("sgd", kind("sgd"), {{3, 5}}, 1, false),
      sample("sgd-momentum", momentum, {{3, 5}, {7}}, 1, false),
      sample("sgd-momentum-later", momentum, {{3, 5}, {7}}, 4, true),
      sample("sgd-nesterov", nesterov, {{9}}, 2, false),
      sample("adam", kind("adam"), {{3, 5}, {}}, 1, false),
      sample("adam-scaled", kind("adam"), {{2, 2}}, 10, true),
      sample("adamw", kind("adamw"), {{3, 5}, {4}, {1}}, 3, false),
      sample("lamb", kind("lamb"), {{3, 5}, {4}}, 3, true),
      sample("lamb-of-parts", of_parts, {{3, 5}, {4}}, 3, true),
      sample("adagrad", adagrad, {{3, 5}, {4}}, 1, false),
      sample("adagrad-later", adagrad, {{3, 5}, {4}}, 5, true),
      sample("lion", kind("lion"), {{3, 5}, {4}}, 3, true),
      sample("adamw-hf", kind("adamw_hf"), {{3, 5}, {4}}, 3, false),
      sample("adamw-hf-uncorrected", uncorrected, {{9}}, 3, true),
      sample("adafactor", factored, {{3, 5}, {2, 3, 4}}, 1, false),
      sample("adafactor-averaged", averaged, {{3, 5}, {1, 7}, {2, 1}}, 4, true),
      sample("adafactor-unfactored", kind("adafactor"), {{5}, {}}, 3, false),
      sample("adamw-clipped", clipped, {{3, 5}, {4}}, 3, true),
      sample("sgd-skipped", momentum, {{3, 5}, {7}}, 4, true, 0),
      sample("adamw-skipped", kind("adamw"), {{3, 5}, {4}}, 3, true, 0),
      sample("adamw-applied", kind("adamw"), {{3, 5}, {4}}, 3, true, 1),
      sample("lamb-skipped", kind("lamb"), {{3, 5}, {4}}, 3, false, 0),
      sample("adagrad-skipped", adagrad, {{3, 5}, {4}}, 1, true, 0),
      sample("lion-skipped", kind("lion"), {{3, 5}, {4}}, 3, false, 0),
      sample("adafactor-skipped", averaged, {{3, 5}, {2, 3, 4}}, 3, true, 0),
      in_16_bits("sgd-bf16-copies", momentum, {{3, 5}, {7}, {9}}, DType::bf16, {0, 2}),
      in_16_bits("adamw-f16-copies", clipped, {{3, 5}, {7}}, DType::f16, {1}),
      in_16_bits("lamb-bf16-copies", kind("lamb"), {{3, 5}, {4}}, DType::bf16, {0}),
      in_16_bits("lion-bf16-gradients", kind("lion"), {{3, 5}, {4}}, DType::bf16, {}),
      in_16_bits("adagrad-bf16-copies", adagrad, {{3, 5}, {4}}, DType::bf16, {0, 1}),
      in_16_bits("adafactor-bf16-copies", averaged, {{3, 5}, {2, 3, 4}}, DType::bf16, {0, 1}),
      in_16_bits("adafactor-unfactored-bf16", kind("adafactor"), {{5}}, DType::bf16, {0}),
      rounded_at_random("adamw-rounded-at-random", kind("adamw"), {{3, 5}, {7}}),
      rounded_at_random("sgd-rounded-at-random", momentum, {{3, 5}, {7}}),
      with_table(sample("adamw-of-a-row", second, {{3, 5}, {4}}, 3, true)),
      sample("adamw-layer", kind("adamw"), {{2048, 512}, {2048}}, 3, false),
  };
  all.back().bench = true;
  for (Sample& encoded : eight_bit_samples()) all.push_back(std::move(encoded));
  return all;
}

}  // namespace

UpdateReach update_reach(std::string_view kind) {
  for (const Row& row : kRows)
    if (kind == row.name) return row.reach;
  return UpdateReach::tensor;
}

const OpDef optimizer_op = {
    .name = "Optimizer",
    .domain = "gradloom",
    .summary = "Updates parameters and optimizer states: SGD, Adam, AdamW, LAMB, Adagrad, Lion or Adafactor.",
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
