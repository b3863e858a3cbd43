// RecurrentGrad (ours): the steps of RNN, GRU and LSTM backwards, up to the products that are the same for
// all of them.
//   inputs: R, what the forward layer kept (inputs of the activations, states h and LSTM's c: layers.cpp),
//   dY [steps, directions, batch, hidden], dY_h, dY_c [directions, batch, hidden] (none where no gradient flows), sequence_lens, P
//   -> gradient of X W^T [directions, steps, batch, gates * hidden] (layout 1: batch before steps),
//      gradient of h R^T [directions, steps, batch, gates * hidden] by step, of initial_h and LSTM's initial_c [directions, batch, hidden]
// Attributes: those of the forward node and kind. The gradients of X, W, R, B and P are products and sums of
// these, left to the graph.
#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/gradient_rules.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/recurrent/recurrent.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"
#include "kernels/library_kernels.h"

namespace gradloom {
namespace {

enum Input : std::size_t { kR, kKept, kH, kC, kDy, kDyH, kDyC, kLengths, kP };  // all after kH may be omitted

// The dims, as x has them, of what the forward layer kept.
Result<RecurrentShape> shape_of(const Attrs& attrs, const Shape& kept, const Shape& r) {
  if (kept.size() != 4) return infer_error("what the layer kept is " + to_string(kept));
  const bool batch_first = attrs.integer("layout") != 0;
  const Shape x = batch_first ? Shape{kept[2], kept[1], 1} : Shape{kept[1], kept[2], 1};
  return recurrent_shape(attrs.text("kind"), attrs, x, r);
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  const RecurrentShape s = TRY(shape_of(ctx.attrs, ctx.shape(kKept), ctx.shape(kR)));
  const DType t = ctx.dtype(kR);
  const std::int64_t d = s.directions, rows = s.gates * s.hidden;
  const Type by_step{t, {d, s.steps, s.batch, rows}}, state{t, {d, s.batch, s.hidden}};
  const Type by_position{t, s.batch_first ? Shape{d, s.batch, s.steps, rows} : by_step.shape};
  return set_outputs(ctx, {by_position, by_step, state, state});
}

struct Plan {
  RecurrentShape shape;
  DType dtype;
  std::vector<kernels::RecurrentCell> cells;
  SliceProduct states, reset;  // dh += d(h R^T) R; reset: d(r h) of a gru
  std::vector<bool> in;
  std::size_t dreset = 0, packed = 0, packed_reset = 0, scratch = 0;  // in the workspace
};

void run_direction(const LaunchArgs& args, const Plan& p, std::int64_t d) {
  const RecurrentShape& s = p.shape;
  const DType t = p.dtype;
  const std::int64_t rows = s.gates * s.hidden, state = s.batch * s.hidden;
  auto* const workspace = static_cast<std::byte*>(args.workspace);
  void* const scratch = workspace + p.scratch;
  const auto start = [&](Input input, void* to) {
    const std::uint64_t zero = 0;
    if (!p.in[input]) return args.on.fill({dtype_bytes(t), state, &zero, to});
    copy_elements(args.on, t, state, elements_at(args.inputs[input], t, d * state), to);
  };
  kernels::RecurrentStepGradArgs a{};
  a.cell = p.cells[static_cast<std::size_t>(d)];
  const bool lstm = a.cell.kind == kernels::RecurrentKind::lstm,
             two_parts = a.cell.kind == kernels::RecurrentKind::gru;
  a.cell.lengths = p.in[kLengths] ? static_cast<const std::int32_t*>(args.inputs[kLengths]) : nullptr;
  a.cell.y_time = s.directions * state;
  a.cell.y_batch = s.hidden;
  a.dy = p.in[kDy] ? elements_at(args.inputs[kDy], t, d * state) : nullptr;
  a.peepholes = p.in[kP] ? elements_at(args.inputs[kP], t, d * 3 * s.hidden) : nullptr;
  a.dh = elements_at(args.outputs[2], t, d * state);
  a.dc = lstm ? elements_at(args.outputs[3], t, d * state) : nullptr;
  a.dinput = elements_at(args.outputs[0], t, d * s.steps * s.batch * rows);
  a.dreset = workspace + p.dreset;
  start(kDyH, a.dh);
  if (lstm) start(kDyC, a.dc);
  const void* const weights = elements_at(args.inputs[kR], t, d * rows * s.hidden);
  const void *const r = p.states.packed(weights, workspace + p.packed), *const r_reset = p.reset.packed(
                                                                            elements_at(
                                                                                weights, t,
                                                                                2 * s.hidden * s.hidden),
                                                                            workspace + p.packed_reset);
  for (a.step = s.steps - 1; a.step >= 0; --a.step) {
    const std::int64_t slice = d * s.steps + a.step, states = d * (s.steps + 1) + a.step;
    a.part = 0;
    a.kept = elements_at(args.inputs[kKept], t, slice * s.slots * state);
    a.h = elements_at(args.inputs[kH], t, states * state);
    a.c = lstm ? elements_at(args.inputs[kC], t, states * state) : nullptr;
    a.c_next = lstm ? elements_at(args.inputs[kC], t, (states + 1) * state) : nullptr;
    a.dproduct = elements_at(args.outputs[1], t, slice * s.batch * rows);
    args.on.recurrent_step_grad(a);
    if (two_parts) {
      p.reset.run(args, elements_at(a.dproduct, t, 2 * s.hidden), r_reset, workspace + p.dreset, scratch);
      a.part = 1;
      args.on.recurrent_step_grad(a);
    }
    p.states.run(args, a.dproduct, r, a.dh, scratch);
  }
}

Result<Kernel> prepare(const NodeTypes& types) {
  const DType t = types.inputs[kR].dtype;
  TRY(require_kernel_type(types.target, t));
  const std::string kind = types.attrs.text("kind");
  const RecurrentShape s = TRY(shape_of(types.attrs, types.inputs[kKept].shape, types.inputs[kR].shape));
  if (kind == "LSTM" && (!types.has(kC) || !types.wants(3)))
    return no_kernel("an LSTM's gradient needs its cell states");
  if (s.steps * s.batch == 0) return no_kernel("no kernel for an empty sequence");
  auto plan = std::make_shared<Plan>();
  plan->shape = s;
  plan->dtype = t;
  plan->cells = TRY(recurrent_cells(kind, types.attrs, t, s));
  for (std::size_t i = 0; i <= kP; ++i) plan->in.push_back(types.has(i));
  const std::int64_t rows = s.gates * s.hidden;
  const bool two_parts = plan->cells[0].kind == kernels::RecurrentKind::gru;
  plan->states = TRY(SliceProduct::create(
      types.target, in_every_step(slice_product(t, s.batch, s.hidden, two_parts ? 2 * s.hidden : rows, rows,
                                                s.hidden, 1, s.hidden, true),
                                  s.steps)));
  if (two_parts)
    plan->reset = TRY(SliceProduct::create(
        types.target,
        in_every_step(slice_product(t, s.batch, s.hidden, s.hidden, rows, s.hidden, 1, s.hidden), s.steps)));
  plan->packed = aligned_bytes(t, s.batch * s.hidden);
  plan->packed_reset = plan->packed + aligned_bytes(plan->states.packed_bytes());
  plan->scratch = plan->packed_reset + aligned_bytes(plan->reset.packed_bytes());
  plan->scratch = kernels::library_place(types.target, plan->scratch);
  const std::size_t scratch = std::max(plan->states.workspace_bytes(), plan->reset.workspace_bytes());
  return Kernel{"recurrent_grad", plan->scratch + scratch,
                [plan = std::shared_ptr<const Plan>(plan)](const LaunchArgs& args) {
                  for (std::int64_t d = 0; d < plan->shape.directions; ++d) run_direction(args, *plan, d);
                }};
}

Cost cost(const NodeTypes& types) {
  return cost_of(types, 2.0 * static_cast<double>(types.outputs[1].shape[1] * types.outputs[1].shape[2]) *
                            static_cast<double>(element_count(types.inputs[kR].shape)));
}

// 2 steps of 2 items, 3 hidden units.
std::vector<Sample> samples() {
  const auto inputs = [](std::int64_t gates, std::int64_t slots, bool lstm) {
    std::vector<SampleInput> list{floats({1, gates * 3, 3}),
                                  floats({1, 2, 2, slots * 3}),
                                  floats({1, 3, 2, 3}),
                                  lstm ? floats({1, 3, 2, 3}) : omitted(),
                                  floats({2, 1, 2, 3}),
                                  floats({1, 2, 3}),
                                  lstm ? floats({1, 2, 3}) : omitted(),
                                  exact(DType::i32, {2}, {2, 1})};
    if (lstm) list.push_back(floats({1, 9}));
    return list;
  };
  const auto attrs = [](const char* kind) {
    return Attrs{{"kind", std::string(kind)}, {"hidden_size", std::int64_t{3}}};
  };
  Attrs linear = attrs("GRU");
  linear.set("linear_before_reset", std::int64_t{1});
  return {
      {.name = "rnn", .attrs = attrs("RNN"), .inputs = inputs(1, 1, false), .output_count = 3},
      {.name = "gru", .attrs = attrs("GRU"), .inputs = inputs(3, 4, false), .output_count = 3},
      {.name = "gru-linear", .attrs = linear, .inputs = inputs(3, 4, false), .output_count = 3},
      {.name = "lstm", .attrs = attrs("LSTM"), .inputs = inputs(4, 4, true), .output_count = 4},
  };
}

}  // namespace

const OpDef recurrent_grad_op = {
    .name = "RecurrentGrad",
    .domain = "gradloom",
    .summary = "The steps of RNN, GRU and LSTM backwards.",
    .min_inputs = 3,
    .max_inputs = 9,
    .max_outputs = 4,
    .infer = infer,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .arithmetic = Arithmetic::products,
};

}  // namespace gradloom
