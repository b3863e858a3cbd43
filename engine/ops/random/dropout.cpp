// Dropout: y = keep ? x * (1 / (1 - ratio)) : 0 in training, y = x otherwise; mask (output 1) = keep.
//   opset 12 on: inputs x, ratio (scalar, default 0.5), training_mode (scalar bool, default false)
//   opset 7..11: attribute ratio, inference only: the identity
//   keep comes from Philox4x32-10 keyed by seed, step and attribute "key" (else the node's name), so that
//   dx = Dropout(dy) with the same ratio, training_mode and key recomputes the mask instead of keeping it.
//   Attribute seed of ONNX is not used: runs have one seed.
//   Attributes parts and run (and part): x is what this rank, or a selection of rows, has of a tensor (engine/ops/rank_part.h), and keep that of the whole's elements; ratio and
//   training_mode are known then, and there is no mask.
// Source: Srivastava et al. 2014; ONNX Dropout-7, -13.
#include "engine/ops/noops.h"
#include "engine/ops/copies.h"
#include "engine/ops/costs.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/rank_part.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

bool known_off(const Tensor* training) {
  return training != nullptr && training->count() == 1 && training->int_at(0) == 0;
}

Status infer_identity(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  return set_outputs(ctx, {ctx.in(0), {DType::boolean, ctx.shape(0)}});
}

Status infer(InferContext& ctx) {
  TRY(require_inputs(ctx, 1));
  const char* what[] = {"", "ratio", "training_mode"};
  if (!is_float(ctx.dtype(0))) return infer_error(std::string("the input is ") + dtype_name(ctx.dtype(0)));
  for (std::size_t i = 1; i < 3; ++i)
    if (ctx.has(i) && is_static(ctx.shape(i)) && element_count(ctx.shape(i)) != 1)
      return infer_error(std::string(what[i]) + " must be a scalar, it is " + to_string(ctx.in(i)));
  if (ctx.has(1) && !is_float(ctx.dtype(1))) return infer_error("ratio must be floating point");
  if (ctx.has(2) && ctx.dtype(2) != DType::boolean) return infer_error("training_mode must be boolean");
  if (const Tensor* ratio = ctx.constant(1);
      ratio != nullptr && ratio->count() == 1 && !(ratio->at(0) >= 0 && ratio->at(0) < 1))
    return infer_error("ratio " + std::to_string(ratio->at(0)) + " is outside [0, 1)");
  if (is_static(ctx.shape(0))) TRY(rank_part(ctx.attrs, element_count(ctx.shape(0))));
  return infer_identity(ctx);
}

Status grad_identity(GradContext& ctx) {
  ctx.set(0, ctx.grad());
  return {};
}

Status grad(GradContext& ctx) {
  const ValueId training = ctx.in(2);
  if (training == kNone ||
      known_off(is_constant(ctx.b.graph(), training) ? &ctx.b.graph().values[training].data : nullptr))
    return grad_identity(ctx);
  if (!ctx.wants(0)) return {};
  Attrs attrs{{"key", static_cast<std::int64_t>(random_key(ctx.node.attrs, ctx.node.name))}};
  copy_rank_part(ctx.node.attrs, attrs);
  ctx.set(0, ctx.b.op(*ctx.node.op, {ctx.grad(), ctx.in(1), training}, std::move(attrs)));
  return {};
}

// x unchanged, everything kept.
Kernel copy_kernel(const NodeTypes& types) {
  const std::int64_t count = element_count(types.inputs[0].shape);
  return Kernel{"copy", 0,
                [dtype = types.inputs[0].dtype, count, mask = types.wants(1)](const LaunchArgs& args) {
                  if (count == 0) return;
                  copy_elements(args.on, dtype, count, args.inputs[0], args.outputs[0]);
                  const std::uint8_t kept = 1;
                  if (mask) args.on.fill({1, count, &kept, args.outputs[1]});
                }};
}

Result<Kernel> prepare_identity(const NodeTypes& types) { return copy_kernel(types); }

// The runs of a part are rows of the whole with others between them.
Result<Kernel> prepare_part(const NodeTypes& types, const RankPart& part) {
  const Type& x = types.inputs[0];
  const Tensor* const ratio = types.has(1) ? types.constants[1] : nullptr;
  if (types.wants(1)) return no_kernel("no kernel gives the mask of a part");
  if ((types.has(1) && ratio == nullptr) || types.constants[2] == nullptr)
    return no_kernel("what is dropped of a part is not known before running");
  const kernels::DropoutArgs layout{x.dtype,
                                    1,
                                    element_count(x.shape) / part.run,
                                    part.run,
                                    part.number * part.run,
                                    0,
                                    part.parts * part.run,
                                    ratio == nullptr ? 0.5 : ratio->at(0),
                                    random_key(types.attrs, types.node_name),
                                    nullptr,
                                    nullptr,
                                    nullptr};
  return Kernel{"dropout of a part", 0, [layout](const LaunchArgs& args) {
                  kernels::DropoutArgs a = layout;
                  a.x = args.inputs[0];
                  a.y = args.outputs[0];
                  a.random = args.random;
                  args.on.dropout(a);
                }};
}

// Inputs of the program: x, then the scalars that are present; missing ones are constants.
Result<Kernel> prepare(const NodeTypes& types) {
  using kernels::EwOp;
  const DType dtype = types.inputs[0].dtype;
  if (!types.has(2) || known_off(types.constants[2])) return copy_kernel(types);
  TRY(require_kernel_type(types.target, dtype));
  if (const auto part = TRY(rank_part(types.attrs, element_count(types.inputs[0].shape))))
    return prepare_part(types, *part);
  const std::uint64_t key = random_key(types.attrs, types.node_name);
  kernels::EwProgram program;
  program.rank = 1;
  program.dims[0] = element_count(types.inputs[0].shape);
  kernels::EwInput dense{dtype, {}};
  dense.strides[0] = 1;
  program.inputs = {dense};
  std::vector<std::size_t> sources{0};  // input of the node behind each input of the program
  std::int16_t ratio = -1;
  if (types.has(1)) {
    ratio = static_cast<std::int16_t>(program.inputs.size());
    program.inputs.push_back({types.inputs[1].dtype, {}});
    sources.push_back(1);
  }
  const auto training = static_cast<std::int16_t>(program.inputs.size());
  program.inputs.push_back({DType::boolean, {}});
  sources.push_back(2);
  auto next = static_cast<std::int16_t>(program.inputs.size());
  if (ratio < 0) {
    program.constants = {{dtype, 0.5}};
    ratio = next++;
  } else if (types.inputs[1].dtype != dtype) {
    program.code.push_back({EwOp::Cast, types.inputs[1].dtype, dtype, {ratio, -1, -1}, 0});
    ratio = next++;
  }
  program.code.push_back({EwOp::Dropout, dtype, dtype, {0, ratio, training}, key});
  program.outputs = {{next++, dtype}};
  if (types.wants(1)) {
    program.code.push_back({EwOp::DropoutMask, dtype, DType::boolean, {ratio, training, -1}, key});
    program.outputs.push_back({next, DType::boolean});
  }
  const auto shared = std::make_shared<const kernels::EwProgram>(std::move(program));
  return Kernel{"dropout",
                0,
                [shared, sources](const LaunchArgs& args) {
                  const void* inputs[3];
                  for (std::size_t i = 0; i < sources.size(); ++i) inputs[i] = args.inputs[sources[i]];
                  args.on.elementwise({shared.get(), inputs, args.outputs, args.random});
                },
                {shared}};
}

// Ten rounds of Philox make four numbers: about 20 integer operations per element,
// a comparison and a product.
Cost cost(const NodeTypes& types) {
  return cost_of(types, 2.0 * static_cast<double>(element_count(types.inputs[0].shape)));
}

std::vector<Sample> samples_identity() {
  return {
      {.name = "identity", .attrs = {{"ratio", 0.3}}, .inputs = {floats({3, 5})}},
      {.name = "mask", .inputs = {floats({2, 7})}, .output_count = 2},
  };
}

std::vector<Sample> samples() {
  const Attrs key{{"key", std::int64_t{81985529216486895}}};
  Attrs part = key;
  set_rank_part(part, 2, 3);
  const SampleInput on = exact(DType::boolean, {}, {1}), off = exact(DType::boolean, {}, {0});
  const SampleInput quarter = exact(DType::f32, {}, {0.25});
  return {
      {.name = "inference", .attrs = key, .inputs = {floats({3, 5})}},
      {.name = "off", .attrs = key, .inputs = {floats({3, 5}), quarter, off}, .output_count = 2},
      {.name = "training", .attrs = key, .inputs = {floats({4, 7, 3}), quarter, on}},
      {.name = "mask",
       .attrs = key,
       .inputs = {floats({5, 11}), exact(DType::f32, {}, {0.75}), on},
       .output_count = 2},
      {.name = "default-ratio", .attrs = key, .inputs = {floats({33}), omitted(), on}},
      {.name = "part",
       .attrs = part,
       .inputs = {floats({4, 6}), known_exact(DType::f32, {}, {0.25}), known_exact(DType::boolean, {}, {1})}},
      {.name = "ratio-zero", .attrs = key, .inputs = {floats({9}), exact(DType::f32, {}, {0}), on}},
      {.name = "activations", .attrs = key, .inputs = {floats({1024, 2048}), quarter, on}, .bench = true},
  };
}

// Where nobody asks for the mask: not training, or nothing is dropped.
Noop switched_off(const Graph& graph, const Node& node) {
  const auto input_is = [&](std::size_t i, double wanted) {
    return node.inputs.size() > i && scalar_is(graph, node.inputs[i], wanted);
  };
  const bool mask_free = node.outputs.size() < 2 || node.outputs[1] == kNone;
  return mask_free && (input_is(2, 0) || input_is(1, 0)) ? Noop{"dropout-off", 0} : Noop{};
}

}  // namespace

const OpDef dropout_7_op = {
    .name = "Dropout",
    .until = 11,
    .summary = "The identity: dropout of a model exported for inference.",
    .traits = kOptionalOutputs,
    .max_outputs = 2,
    .infer = infer_identity,
    .grad = grad_identity,
    .cost = copy_cost,
    .cpu = prepare_identity,
    .gpu = prepare_identity,
    .samples = samples_identity,
};

const OpDef dropout_12_op = {
    .name = "Dropout",
    .since = 12,
    .summary = "Zeroes a random part of its input in training and scales up the rest.",
    .traits = kRandom | kPointwise | kOptionalOutputs,
    .max_inputs = 3,
    .max_outputs = 2,
    .infer = infer,
    .grad = grad,
    .cost = cost,
    .cpu = prepare,
    .gpu = prepare,
    .samples = samples,
    .ew = kernels::EwOp::Dropout,
    .inplace_input = 0,
    .noop = switched_off,
};

}  // namespace gradloom
