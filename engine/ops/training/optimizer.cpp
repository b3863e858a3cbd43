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
#include "engine/ops/rows.h"
#include "engine/ops/training/optimizer_layout.h"
#include "kernels/launcher.h"

#include <cmath>
#include <cstring>
#include <type_traits>

namespace gradloom {
namespace {

using kernels::OptimizerKind;

using namespace optimizer_inputs;

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

// What parameters of type `parameter` are computed in. inputs: the node's types.
DType computed_in(const OptimizerLayout& l, DType parameter, const auto& type_of_input) {
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
  const OptimizerLayout l = TRY(optimizer_layout(ctx.attrs));
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
      Type expected = group < 2 ? wide : TRY(optimizer_state_type(l, wide, l.states[group - 2].form));
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
  auto l = optimizer_layout(types.attrs);
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
Tensors tensors_of(const NodeTypes& types, const OptimizerLayout& l) {
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
  const OptimizerLayout l = TRY(optimizer_layout(types.attrs));
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

}  // namespace

const OpDef optimizer_op = {
    .name = "Optimizer",
    .domain = "gradloom",
    .summary = "Updates parameters and optimizer states, by one of the rows of kernels/optimizers.def.",
    .traits = kNoGradient | kMustAlias,
    .min_inputs = 6,
    .max_inputs = 1 << 23,
    .max_outputs = 1 << 22,
    .infer = infer,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = optimizer_samples,
    .aliases = aliases,
};

}  // namespace gradloom
