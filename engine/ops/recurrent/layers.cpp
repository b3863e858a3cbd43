// RNN, GRU and LSTM over whole sequences.
//   X [steps, batch, inputs], W [directions, gates * hidden, inputs], R [directions, gates * hidden, hidden],
//   B [directions, 2 * gates * hidden], sequence_lens [batch] (i32), initial_h and LSTM's initial_c [directions, batch, hidden],
//   LSTM's P [directions, 3 * hidden]; all but the first three may be omitted
//   -> Y [steps, directions, batch, hidden], Y_h, LSTM's Y_c [directions, batch, hidden]
//   ours, for the gradient: what the steps keep [directions, steps, batch, slots * hidden] (kernels/recurrent.h), then the states before
//   and after every step, h and LSTM's c [directions, steps + 1, batch, hidden]
// layout 1: X [batch, steps, inputs], Y [batch, steps, directions, hidden], states [batch, directions,
// hidden]. One product for the inputs of all steps of a direction; then per step a product with the recurrent
// weights and one kernel. Source: ONNX RNN-14, GRU-14, LSTM-14 (22: more types).
#include "engine/ops/contents.h"
#include "engine/ops/costs.h"
#include "engine/ops/dims.h"
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

using Ints = std::vector<std::int64_t>;

enum class Layer { rnn, gru, lstm };
constexpr const char* name_of(Layer layer) {
  return layer == Layer::rnn ? "RNN" : layer == Layer::gru ? "GRU" : "LSTM";
}
constexpr std::size_t kX = 0, kW = 1, kR = 2, kB = 3, kLengths = 4, kH = 5, kC = 6, kP = 7;

// Outputs: the ONNX ones, then ours.
constexpr std::size_t first_own(Layer layer) { return layer == Layer::lstm ? 3 : 2; }

Status check_input(const InferContext& ctx, std::size_t i, const char* what, const Shape& wanted) {
  if (!ctx.has(i)) return {};
  TRY(require_float(ctx, i, what));
  const Shape& shape = ctx.shape(i);
  bool fits = shape.size() == wanted.size();
  for (std::size_t d = 0; fits && d < shape.size(); ++d) fits = !dims_differ(shape[d], wanted[d]);
  return fits ? Status{}
              : Status(infer_error(std::string(what) + " is " + to_string(shape) + " instead of " +
                                   to_string(wanted)));
}

template <Layer layer>
Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 3));
  const RecurrentShape s = TRY(recurrent_shape(name_of(layer), ctx.attrs, ctx.shape(kX), ctx.shape(kR)));
  const std::int64_t d = s.directions, rows = s.gates * s.hidden;
  const Shape state = s.batch_first ? Shape{s.batch, d, s.hidden} : Shape{d, s.batch, s.hidden};
  TRY(check_input(ctx, kW, "W", {d, rows, s.inputs}));
  TRY(check_input(ctx, kR, "R", {d, rows, s.hidden}));
  TRY(check_input(ctx, kB, "B", {d, 2 * rows}));
  TRY(check_input(ctx, kH, "initial_h", state));
  TRY(check_input(ctx, kC, "initial_c", state));
  TRY(check_input(ctx, kP, "P", {d, 3 * s.hidden}));
  if (ctx.has(kLengths) && (ctx.dtype(kLengths) != DType::i32 || ctx.shape(kLengths).size() != 1 ||
                            dims_differ(ctx.shape(kLengths)[0], s.batch)))
    return infer_error("sequence_lens must be one i32 per item of the batch");
  if (ctx.has(kLengths) && s.steps >= 0) TRY(require_between(ctx.constant(kLengths), 0, s.steps, "length"));
  const DType t = ctx.dtype(kX);
  const Shape y = s.batch_first ? Shape{s.batch, s.steps, d, s.hidden} : Shape{s.steps, d, s.batch, s.hidden};
  const Type kept{t, {d, s.steps, s.batch, s.slots * s.hidden}},
      states{t, {d, TRY(add_dims({s.steps, 1})), s.batch, s.hidden}};
  std::vector<Type> outputs{{t, y}, {t, state}};
  if (layer == Layer::lstm) outputs.push_back({t, state});
  outputs.insert(outputs.end(), {kept, states});
  if (layer == Layer::lstm) outputs.push_back(states);
  return set_outputs(ctx, std::move(outputs));
}

// ---- forward ----------------------------------------------------------------------------------------------

// Everything that a launch needs; offsets are in the workspace.
struct Plan {
  RecurrentShape shape;
  DType dtype;
  std::vector<kernels::RecurrentCell> cells;
  SliceProduct input, recurrent, reset;  // reset: of a gru that is not linear before it
  std::vector<bool> in, out;             // given, wanted
  std::size_t own;                       // first output of ours
  std::size_t gates = 0, product = 0, kept = 0, h = 0, c = 0, packed = 0, packed_reset = 0, scratch = 0,
              bytes = 0;

  std::size_t take_bytes(std::size_t size) {
    const std::size_t at = bytes;
    bytes += aligned_bytes(size);
    return at;
  }
  std::size_t take(std::int64_t count) {
    return take_bytes(static_cast<std::size_t>(count) * dtype_bytes(dtype));
  }
};

// States from or to [directions, batch, hidden] (or with the batch first) of one direction.
void copy_states(const LaunchArgs& args, const Plan& p, std::int64_t direction, const void* from,
                 bool from_layer, void* to) {
  const RecurrentShape& s = p.shape;
  const std::int64_t row = s.batch_first ? s.directions * s.hidden : s.hidden;
  const std::int64_t first = direction * (s.batch_first ? s.hidden : s.batch * s.hidden);
  kernels::StridedCopyArgs copy{};
  copy.element_bytes = dtype_bytes(p.dtype);
  copy.rank = 2;
  copy.dims[0] = s.batch;
  copy.dims[1] = s.hidden;
  copy.in_strides[0] = from_layer ? row : s.hidden;
  copy.out_strides[0] = from_layer ? s.hidden : row;
  copy.in_strides[1] = copy.out_strides[1] = 1;
  copy.in = from_layer ? elements_at(from, p.dtype, first) : from;
  copy.out = from_layer ? to : elements_at(to, p.dtype, first);
  args.on.strided_copy(copy);
}

// Where a direction's states or kept values are: one slice per step in an output, or the same one in the
// workspace for all.
struct Slices {
  void* base;
  std::int64_t step;  // in elements
};

void run_direction(const LaunchArgs& args, const Plan& p, std::int64_t d) {
  const RecurrentShape& s = p.shape;
  const std::int64_t rows = s.gates * s.hidden, state = s.batch * s.hidden;
  const bool lstm = s.gates == 4;
  const DType t = p.dtype;
  auto* const workspace = static_cast<std::byte*>(args.workspace);
  const auto slices = [&](std::size_t output, std::size_t offset, std::int64_t size, std::int64_t count) {
    const bool wanted = output < p.out.size() && p.out[output];
    return wanted ? Slices{elements_at(args.outputs[output], t, d * count * size), size}
                  : Slices{workspace + offset, 0};
  };
  const Slices kept = slices(p.own, p.kept, s.slots * state, s.steps),
               h = slices(p.own + 1, p.h, state, s.steps + 1);
  const Slices c = slices(p.own + 2, p.c, state, s.steps + 1);
  const auto start = [&](std::size_t input, const Slices& to) {
    const std::uint64_t zero = 0;
    if (p.in[input]) return copy_states(args, p, d, args.inputs[input], true, to.base);
    args.on.fill({dtype_bytes(t), state, &zero, to.base});
  };
  start(kH, h);
  if (lstm) start(kC, c);
  void* const scratch = workspace + p.scratch;
  p.input.run(args, args.inputs[kX], elements_at(args.inputs[kW], t, d * rows * s.inputs),
              workspace + p.gates, scratch);
  const void* const weights = elements_at(args.inputs[kR], t, d * rows * s.hidden);
  const void *const r = p.recurrent.packed(weights, workspace + p.packed), *const r_reset = p.reset.packed(
                                                                               elements_at(
                                                                                   weights, t,
                                                                                   2 * s.hidden * s.hidden),
                                                                               workspace + p.packed_reset);
  kernels::RecurrentStepArgs a{};
  a.cell = p.cells[static_cast<std::size_t>(d)];
  a.cell.lengths = p.in[kLengths] ? static_cast<const std::int32_t*>(args.inputs[kLengths]) : nullptr;
  a.cell.y_time = s.batch_first ? s.directions * s.hidden : s.directions * state;
  a.cell.y_batch = s.batch_first ? s.steps * s.directions * s.hidden : s.hidden;
  a.input = workspace + p.gates;
  a.product = workspace + p.product;
  a.bias = p.in[kB] ? elements_at(args.inputs[kB], t, d * 2 * rows) : nullptr;
  a.peepholes = p.in[kP] ? elements_at(args.inputs[kP], t, d * 3 * s.hidden) : nullptr;
  a.y = p.out[0] ? elements_at(args.outputs[0], t, d * (s.batch_first ? s.hidden : state)) : nullptr;
  for (a.step = 0; a.step < s.steps; ++a.step) {
    a.part = 0;
    a.h = elements_at(h.base, t, a.step * h.step);
    a.h_next = elements_at(h.base, t, (a.step + 1) * h.step);
    a.c = elements_at(c.base, t, a.step * c.step);
    a.c_next = elements_at(c.base, t, (a.step + 1) * c.step);
    a.kept = elements_at(kept.base, t, a.step * kept.step);
    p.recurrent.run(args, a.h, r, workspace + p.product, scratch);
    args.on.recurrent_step(a);
    if (a.cell.kind != kernels::RecurrentKind::gru) continue;
    p.reset.run(args, elements_at(a.kept, t, 3 * s.hidden), r_reset,
                elements_at(workspace + p.product, t, 2 * s.hidden), scratch);
    a.part = 1;
    args.on.recurrent_step(a);
  }
  if (p.out[1]) copy_states(args, p, d, elements_at(h.base, t, s.steps * h.step), false, args.outputs[1]);
  if (lstm && p.out[2])
    copy_states(args, p, d, elements_at(c.base, t, s.steps * c.step), false, args.outputs[2]);
}

template <Layer layer>
Result<Kernel> prepare(const NodeTypes& types) {
  const DType t = types.inputs[kX].dtype;
  TRY(require_kernel_type(types.target, t));
  const RecurrentShape s =
      TRY(recurrent_shape(name_of(layer), types.attrs, types.inputs[kX].shape, types.inputs[kR].shape));
  if (s.steps * s.batch * s.inputs == 0) return no_kernel("no kernel for an empty sequence");
  auto plan = std::make_shared<Plan>();
  plan->shape = s;
  plan->dtype = t;
  plan->cells = TRY(recurrent_cells(name_of(layer), types.attrs, t, s));
  plan->own = first_own(layer);
  for (std::size_t i = 0; i <= kP; ++i) plan->in.push_back(types.has(i));
  for (std::size_t i = 0; i < plan->own + 3; ++i) plan->out.push_back(types.wants(i));
  const std::int64_t rows = s.gates * s.hidden, state = s.batch * s.hidden;
  const bool two_parts = plan->cells[0].kind == kernels::RecurrentKind::gru;
  plan->input = TRY(SliceProduct::create(
      types.target, slice_product(t, s.steps * s.batch, rows, s.inputs, s.inputs, 1, s.inputs, rows)));
  plan->recurrent = TRY(SliceProduct::create(
      types.target, in_every_step(slice_product(t, s.batch, two_parts ? 2 * s.hidden : rows, s.hidden,
                                                s.hidden, 1, s.hidden, rows),
                                  s.steps)));
  if (two_parts)
    plan->reset = TRY(SliceProduct::create(
        types.target,
        in_every_step(slice_product(t, s.batch, s.hidden, s.hidden, s.slots * s.hidden, 1, s.hidden, rows),
                      s.steps)));
  plan->gates = plan->take(s.steps * s.batch * rows);
  plan->product = plan->take(s.batch * rows);
  plan->kept = plan->take(s.slots * state);
  plan->h = plan->take(state);
  plan->c = plan->take(state);
  plan->packed = plan->take_bytes(plan->recurrent.packed_bytes());
  plan->packed_reset = plan->take_bytes(plan->reset.packed_bytes());
  plan->bytes = kernels::library_place(types.target, plan->bytes);
  plan->scratch = plan->bytes;
  const std::size_t scratch = std::max(
      {plan->input.workspace_bytes(), plan->recurrent.workspace_bytes(), plan->reset.workspace_bytes()});
  return Kernel{layer == Layer::rnn   ? "rnn"
                : layer == Layer::gru ? "gru"
                                      : "lstm",
                plan->bytes + scratch, [plan = std::shared_ptr<const Plan>(plan)](const LaunchArgs& args) {
                  for (std::int64_t d = 0; d < plan->shape.directions; ++d) run_direction(args, *plan, d);
                }};
}

Cost cost(const NodeTypes& types) {
  const Shape &w = types.inputs[kW].shape, &r = types.inputs[kR].shape, &x = types.inputs[kX].shape;
  return cost_of(types, 2.0 * static_cast<double>(x[0] * x[1]) *
                            static_cast<double>(element_count(w) + element_count(r)));
}

// ---- gradient ---------------------------------------------------------------------------------------------

ValueId flat(GraphBuilder& b, ValueId value, std::int64_t directions, std::int64_t rows, std::int64_t cols) {
  return b.reshape(value, {directions, rows, cols});
}
ValueId slice(GraphBuilder& b, ValueId value, std::int64_t axis, std::int64_t begin, std::int64_t end) {
  return b.op("Slice", {value, b.i64s({begin}), b.i64s({end}), b.i64s({axis})});
}
ValueId sum(GraphBuilder& b, ValueId value, const Ints& axes) {
  return b.op("ReduceSum", {value, b.i64s(axes)}, {{"keepdims", std::int64_t{0}}});
}
// a^T b of every direction.
ValueId weights(GraphBuilder& b, ValueId left, ValueId right) {
  return b.op("FusedMatMul", {left, right}, {{"perm_a", Ints{0, 2, 1}}});
}

template <Layer layer>
class Gradient {
 public:
  Gradient(GradContext& ctx, const RecurrentShape& s)
      : ctx_(ctx), b_(ctx.b), s_(s), rows_(s.gates * s.hidden), positions_(s.steps * s.batch) {}

  Status run() {
    for (std::size_t i = first_own(layer); i < ctx_.out_grads.size(); ++i)
      if (ctx_.grad(i) != kNone)
        return Error{Errc::bad_input, "no gradient through output " + std::to_string(i)};
    kept_ = ctx_.require_out(first_own(layer));
    h_ = ctx_.require_out(first_own(layer) + 1);
    if (layer == Layer::lstm) c_ = ctx_.require_out(5);
    Attrs attrs = ctx_.node.attrs;
    attrs.set("kind", std::string(name_of(layer)));
    const auto steps = b_.ops(
        op_by_name("RecurrentGrad"),
        {ctx_.in(kR), kept_, h_, c_, steps_first(grad(0), {1, 2, 0, 3}), steps_first(grad(1), {1, 0, 2}),
         layer == Layer::lstm ? steps_first(grad(2), {1, 0, 2}) : kNone, ctx_.in(kLengths),
         layer == Layer::lstm ? ctx_.in(kP) : kNone},
        std::move(attrs), layer == Layer::lstm ? 4 : 3);
    dinput_ = flat(b_, steps[0], s_.directions, positions_, rows_);
    dproduct_ = flat(b_, steps[1], s_.directions, positions_, rows_);
    if (ctx_.wants(kX)) ctx_.set(kX, input());
    if (ctx_.wants(kW)) ctx_.set(kW, weights(b_, dinput_, flat(b_, ctx_.in(kX), 1, positions_, s_.inputs)));
    if (ctx_.wants(kR)) ctx_.set(kR, recurrent_weights());
    if (ctx_.wants(kB))
      ctx_.set(
          kB, b_.op("Concat", {sum(b_, dinput_, {1}), sum(b_, dproduct_, {1})}, {{"axis", std::int64_t{1}}}));
    if (ctx_.wants(kH)) ctx_.set(kH, as_layer(steps[2]));
    if (ctx_.wants(kC)) ctx_.set(kC, as_layer(steps[3]));
    if (ctx_.wants(kP)) ctx_.set(kP, peepholes(steps[1]));
    return {};
  }

 private:
  ValueId grad(std::size_t output) const {
    return output < ctx_.out_grads.size() ? ctx_.grad(output) : kNone;
  }
  // From the layer's layout to [.., directions, batch, hidden].
  ValueId steps_first(ValueId grad, Ints perm) {
    return grad == kNone || !s_.batch_first ? grad : b_.op("Transpose", {grad}, {{"perm", std::move(perm)}});
  }
  ValueId as_layer(ValueId states) {
    return s_.batch_first ? b_.op("Transpose", {states}, {{"perm", Ints{1, 0, 2}}}) : states;
  }

  ValueId input() {
    const ValueId dx = b_.op("MatMul", {dinput_, ctx_.in(kW)});
    const ValueId both = s_.directions > 1 ? sum(b_, dx, {0}) : dx;
    return b_.reshape(both, ctx_.shape(ctx_.in(kX)));
  }
  ValueId recurrent_weights() {
    const ValueId before = flat(b_, slice(b_, h_, 1, 0, s_.steps), s_.directions, positions_, s_.hidden);
    if (layer != Layer::gru || ctx_.node.attrs.integer("linear_before_reset") != 0)
      return weights(b_, dproduct_, before);
    // The hidden gate's product is that of r * h, which slot 3 holds.
    const ValueId reset =
        flat(b_, slice(b_, kept_, 3, 3 * s_.hidden, 4 * s_.hidden), s_.directions, positions_, s_.hidden);
    const ValueId gates = weights(b_, slice(b_, dproduct_, 2, 0, 2 * s_.hidden), before);
    const ValueId hidden = weights(b_, slice(b_, dproduct_, 2, 2 * s_.hidden, 3 * s_.hidden), reset);
    return b_.op("Concat", {gates, hidden}, {{"axis", std::int64_t{1}}});
  }
  // Gate by gate: its gradient times the cell state that it looks at.
  ValueId peepholes(ValueId dproduct) {
    std::vector<ValueId> parts;
    for (std::int64_t gate = 0; gate < 3; ++gate) {
      const std::int64_t first = gate == 1 ? 1 : 0;  // the output gate sees the new state
      const ValueId cells = slice(b_, c_, 1, first, first + s_.steps);
      const ValueId grads = slice(b_, dproduct, 3, gate * s_.hidden, (gate + 1) * s_.hidden);
      parts.push_back(sum(b_, b_.op("Mul", {grads, cells}), {1, 2}));
    }
    return b_.op("Concat", parts, {{"axis", std::int64_t{1}}});
  }

  GradContext& ctx_;
  GraphBuilder& b_;
  const RecurrentShape& s_;
  std::int64_t rows_, positions_;
  ValueId kept_ = kNone, h_ = kNone, c_ = kNone, dinput_ = kNone, dproduct_ = kNone;
};

template <Layer layer>
Status grad(GradContext& ctx) {
  TRY(require_static(ctx, ctx.in(kX)));
  if (element_count(ctx.shape(ctx.in(kX))) == 0)
    return Error{Errc::bad_input, "no gradient of an empty sequence"};
  const RecurrentShape s =
      TRY(recurrent_shape(name_of(layer), ctx.node.attrs, ctx.shape(ctx.in(kX)), ctx.shape(ctx.in(kR))));
  return Gradient<layer>(ctx, s).run();
}

// ---- samples ----------------------------------------------------------------------------------------------

struct Given {
  bool bias = true, lengths = false, h = false, c = false, peepholes = false;
};

// 3 steps of 2 items with 4 inputs, 3 hidden units.
template <Layer layer>
Sample sample(const char* name, Attrs attrs, Given given, int outputs) {
  constexpr std::int64_t kSteps = 3, kBatch = 2, kInputs = 4, kHidden = 3;
  constexpr std::int64_t gates = layer == Layer::rnn ? 1 : layer == Layer::gru ? 3 : 4;
  const std::int64_t d = attrs.text("direction") == "bidirectional" ? 2 : 1;
  const bool first = attrs.integer("layout") != 0;
  attrs.set("hidden_size", kHidden);
  const Shape state = first ? Shape{kBatch, d, kHidden} : Shape{d, kBatch, kHidden};
  Sample s{.name = name, .attrs = std::move(attrs), .output_count = outputs};
  s.inputs = {floats(first ? Shape{kBatch, kSteps, kInputs} : Shape{kSteps, kBatch, kInputs}),
              floats({d, gates * kHidden, kInputs}),
              floats({d, gates * kHidden, kHidden}),
              given.bias ? floats({d, 2 * gates * kHidden}) : omitted(),
              given.lengths ? exact(DType::i32, {kBatch}, {2, 3}) : omitted(),
              given.h ? floats(state) : omitted()};
  if (layer != Layer::lstm) return s;
  s.inputs.push_back(given.c ? floats(state) : omitted());
  s.inputs.push_back(given.peepholes ? floats({d, 3 * kHidden}) : omitted());
  return s;
}

template <Layer layer>
std::vector<Sample> samples() {
  constexpr int all = layer == Layer::lstm ? 3 : 2;
  const auto direction = [](const char* text) { return Attrs{{"direction", std::string(text)}}; };
  std::vector<Sample> list = {
      sample<layer>("plain", {}, {.bias = false}, 1),
      sample<layer>("bias-states", {}, {.h = true, .c = true}, all),
      sample<layer>("reverse-lengths", direction("reverse"), {.lengths = true, .h = true}, all),
      sample<layer>("bidirectional-lengths", direction("bidirectional"),
                    {.lengths = true, .h = true, .c = true, .peepholes = true}, all),
      sample<layer>("batch-first", {{"layout", std::int64_t{1}}, {"direction", std::string("bidirectional")}},
                    {.lengths = true, .h = true, .c = true}, all),
      sample<layer>("clip", {{"clip", 0.4}}, {.h = true, .peepholes = true}, all),
  };
  if (layer == Layer::rnn) {
    for (const char* name : {"Relu", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
                             "HardSigmoid", "Elu", "Softsign", "Softplus"}) {
      const double alpha = std::string(name) == "HardSigmoid" ? 0.1 : 0.3;  // flat, so that it meets no kink
      list.push_back(sample<layer>(name,
                                   {{"activations", std::string(name)},
                                    {"activation_alpha", std::vector<double>{alpha}},
                                    {"activation_beta", std::vector<double>{0.6}}},
                                   {.h = true}, all));
    }
  } else if (layer == Layer::gru) {
    list.push_back(sample<layer>("linear", {{"linear_before_reset", std::int64_t{1}}}, {.h = true}, all));
    list.push_back(
        sample<layer>("linear-lengths",
                      {{"linear_before_reset", std::int64_t{1}}, {"direction", std::string("bidirectional")}},
                      {.lengths = true, .h = true}, all));
    list.push_back(sample<layer>("activations", {{"activations", std::string("HardSigmoid,Softsign")}},
                                 {.h = true}, all));
  } else {
    list.push_back(sample<layer>("peepholes", {}, {.h = true, .c = true, .peepholes = true}, all));
    list.push_back(
        sample<layer>("coupled", {{"input_forget", std::int64_t{1}}}, {.c = true, .peepholes = true}, all));
    list.push_back(sample<layer>("activations",
                                 {{"activations", std::string("Sigmoid,ScaledTanh,Softsign")},
                                  {"activation_alpha", std::vector<double>{0.8}},
                                  {"activation_beta", std::vector<double>{0.7}}},
                                 {.c = true}, all));
  }
  constexpr std::int64_t gates = layer == Layer::rnn ? 1 : layer == Layer::gru ? 3 : 4;
  Sample speech{.name = "speech", .attrs = {{"hidden_size", std::int64_t{256}}}, .bench = true};
  speech.inputs = {floats({64, 16, 128}), floats({1, gates * 256, 128}, -0.1, 0.1),
                   floats({1, gates * 256, 256}, -0.1, 0.1)};
  list.push_back(std::move(speech));
  return list;
}

template <Layer layer>
constexpr OpDef row(const char* summary) {
  OpDef r{.name = name_of(layer)};
  r.since = 7;
  r.summary = summary;
  r.traits = kOptionalOutputs | kFirstOutputOptional;
  r.min_inputs = 3;
  r.max_inputs = layer == Layer::lstm ? 8 : 6;
  r.max_outputs = layer == Layer::lstm ? 6 : 4;
  r.infer = infer<layer>;
  r.grad = grad<layer>;
  r.cost = cost;
  r.cpu = prepare<layer>;
  r.gpu = prepare<layer>;
  r.samples = samples<layer>;
  r.precision = Precision::low;
  r.arithmetic = Arithmetic::products;
  return r;
}

}  // namespace

const OpDef rnn_op = row<Layer::rnn>("Simple recurrent layer over sequences.");
const OpDef gru_op = row<Layer::gru>("Gated recurrent units over sequences.");
const OpDef lstm_op = row<Layer::lstm>("Long short-term memory over sequences.");

}  // namespace gradloom
