#include "engine/ops/padding/packed_rows.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "engine/ops/preparation.h"

namespace gradloom {
namespace {

constexpr const char *kOp = "packed_op", *kDomain = "packed_domain", *kSince = "packed_since",
                     *kInputs = "packed_inputs", *kOutputs = "packed_outputs";
constexpr int kMostInputs = 65, kMostOutputs = 16;

using Positions = std::vector<std::int64_t>;

const OpDef& inner_op(const Attrs& attrs) {
  const OpDef* const op =
      find_op(attrs.text(kOp), attrs.text(kDomain), static_cast<int>(attrs.integer(kSince)));
  CHECK(op != nullptr, "a packed operator that is in no table");
  return *op;
}

Status infer(InferContext& ctx) {
  InferContext inner{ctx.graph, ctx.attrs, ctx.inputs.subspan(1), ctx.output_count, ctx.outputs};
  TRY(inner_op(ctx.attrs).infer(inner));
  ctx.outputs = std::move(inner.outputs);
  return {};
}

// What the operator sees: no count.
NodeTypes inner_types(NodeTypes types) {
  types.inputs.erase(types.inputs.begin());
  types.input_present.erase(types.input_present.begin());
  types.constants.erase(types.constants.begin());
  return types;
}

Cost cost(const NodeTypes& types) { return inner_op(types.attrs).cost(inner_types(types)); }

std::vector<std::pair<int, int>> aliases(const Node& node) {
  const OpDef& op = inner_op(node.attrs);
  if (op.aliases == nullptr) return {};
  Node inner = node;
  inner.inputs.erase(inner.inputs.begin());
  std::vector<std::pair<int, int>> pairs = op.aliases(inner);
  for (auto& [output, input] : pairs) ++input;
  return pairs;
}

// Kernels by size, and which of them a step takes.
struct Prepared {
  std::vector<Kernel> kernels;
  std::vector<std::int64_t> sizes;
  std::vector<std::size_t> of_step;
};

constexpr std::int64_t kProgramSteps = 4;  // steps that share a compiled program

bool programs_of_gpu(const OpDef& op, const NodeTypes& types) {
  return types.target != kernels::Target::cpu && (op.has(kElementwise) || op.has(kPointwise));
}

Result<Kernel> prepare(const NodeTypes& given) {
  const NodeTypes all = inner_types(given);
  const OpDef& op = inner_op(all.attrs);
  const Positions inputs = all.attrs.integers(kInputs), outputs = all.attrs.integers(kOutputs);
  CHECK(!inputs.empty(), "a node without rows");
  const std::int64_t rows = all.inputs[static_cast<std::size_t>(inputs[0])].shape[0];
  auto prepared = std::make_shared<Prepared>();
  Kernel kernel;
  std::int64_t last = 0;
  for (std::int64_t step = 0; last < rows; ++step) {
    last = rows_of_step(step, rows);
    const std::int64_t size =
        rows_of_step(programs_of_gpu(op, all) ? step | (kProgramSteps - 1) : step, rows);
    if (prepared->sizes.empty() || size != prepared->sizes.back()) {
      NodeTypes types = all;
      for (const std::int64_t i : inputs) types.inputs[static_cast<std::size_t>(i)].shape[0] = size;
      for (const std::int64_t i : outputs) {
        Shape& shape = types.outputs[static_cast<std::size_t>(i)].shape;
        if (!shape.empty())
          shape[0] = size;  // empty: nobody reads it, as in a node that runs again for another result
      }
      const Kernel& made = prepared->kernels.emplace_back(TRY(prepare_kernel(op, types)));
      prepared->sizes.push_back(size);
      kernel.workspace_bytes = std::max(kernel.workspace_bytes, made.workspace_bytes);
      kernel.programs.insert(kernel.programs.end(), made.programs.begin(), made.programs.end());
    }
    prepared->of_step.push_back(prepared->kernels.size() - 1);
  }
  kernel.name = prepared->kernels.back().name + ", rows of tokens";
  kernel.run = [rows, prepared = std::shared_ptr<const Prepared>(prepared)](const LaunchArgs& args) {
    const std::int64_t step = row_step(*static_cast<const std::int64_t*>(args.inputs[0]), rows);
    prepared->kernels[prepared->of_step[static_cast<std::size_t>(step)]].run(
        {args.inputs + 1, args.outputs, args.workspace, args.random, args.on});
  };
  return kernel;
}

constexpr OpDef row(const char* name, const char* summary, std::uint32_t traits) {
  OpDef r{.name = name};
  r.domain = "gradloom";
  r.summary = summary;
  r.traits = kNoGradient | kOptionalOutputs | kFirstOutputOptional | traits;
  r.max_inputs = kMostInputs;
  r.max_outputs = kMostOutputs;
  r.infer = infer;
  r.cost = cost;
  r.cpu = prepare;
  r.gpu = prepare;
  r.precision = Precision::full;
  return r;
}

const OpDef packed_rows = row("PackedRows", "An operator on the rows of tokens alone.", 0);
const OpDef packed_elementwise =
    row("PackedElementwise", "Elementwise operators on the rows of tokens alone.", kPointwise);
const OpDef packed_update = [] {
  OpDef r = row("PackedUpdate", "An update in place by the rows of tokens alone.", kMustAlias | kAccumulates);
  r.aliases = aliases;
  return r;
}();

}  // namespace

std::int64_t rows_of_step(std::int64_t step, std::int64_t rows) {
  return std::min((step + 1) * ((rows + kRowSteps - 1) / kRowSteps), rows);
}

std::int64_t row_step(std::int64_t count, std::int64_t rows) {
  const std::int64_t size = (rows + kRowSteps - 1) / kRowSteps;
  return std::max<std::int64_t>((std::min(count, rows) + size - 1) / size - 1, 0);
}

bool counts_rows(const Node& node) {
  return node.op == &packed_rows || node.op == &packed_elementwise || node.op == &packed_update;
}

PackedNode packed_node(const Node& node, ValueId count, const Positions& inputs, const Positions& outputs) {
  const OpDef& op = *node.op;
  PackedNode packed{&packed_rows, {count}, node.attrs};
  if (op.has(kMustAlias)) packed.op = &packed_update;
  if (op.has(kElementwise) || op.has(kPointwise)) packed.op = &packed_elementwise;
  packed.inputs.insert(packed.inputs.end(), node.inputs.begin(), node.inputs.end());
  packed.attrs.set(kOp, std::string(op.name));
  packed.attrs.set(kDomain, std::string(op.domain));
  packed.attrs.set(kSince, std::int64_t{op.since});
  packed.attrs.set(kInputs, inputs);
  packed.attrs.set(kOutputs, outputs);
  return packed;
}

}  // namespace gradloom
