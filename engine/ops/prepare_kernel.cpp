// Kernels of rows that compute neither bf16 nor f16 on the CPU: the row's f32 kernel between conversions.
// Operands are widened in the workspace, results are computed there and rounded once, as GPU kernels do that
// load, compute in f32 and store. For numerics, not for speed: every operand is written once more.
#include <algorithm>

#include "engine/ops/preparation.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

// One operand: where its f32 copy lies in the workspace, and the program that converts it. No program: used
// as it is.
struct Operand {
  std::shared_ptr<const kernels::EwProgram> convert;
  std::size_t at = 0;
};

struct Widened {
  Kernel inner;
  std::vector<Operand> inputs, outputs;
  std::vector<Tensor> constants;  // the kernel may refer to them
  std::size_t pointers =
      0;  // bytes of the workspace that hold the kernel's lists of operands; its own workspace is first
};

// The types as the f32 kernel sees them; conversions of the operands and their places behind `end`.
std::vector<Operand> widen(std::vector<Type>& types, const std::vector<bool>& present, bool back,
                           std::size_t& end) {
  std::vector<Operand> operands(types.size());
  for (std::size_t i = 0; i < types.size(); ++i) {
    const DType narrow = types[i].dtype;
    if (!is_half(narrow)) continue;
    types[i].dtype = DType::f32;
    if (!present[i]) continue;
    const std::int64_t count = element_count(types[i].shape);
    operands[i] = {back ? conversion(DType::f32, narrow, count) : conversion(narrow, DType::f32, count), end};
    end += aligned_bytes(byte_size(types[i]));
  }
  return operands;
}

void run_widened(const Widened& w, const LaunchArgs& args) {
  auto* const base = static_cast<std::byte*>(args.workspace);
  auto** const in = reinterpret_cast<const void**>(base + w.pointers);
  auto** const out = const_cast<void**>(in + w.inputs.size());
  for (std::size_t i = 0; i < w.inputs.size(); ++i) {
    in[i] = args.inputs[i];
    if (w.inputs[i].convert == nullptr) continue;
    void* copy = base + w.inputs[i].at;
    args.on.elementwise({w.inputs[i].convert.get(), &in[i], &copy, nullptr});
    in[i] = copy;
  }
  for (std::size_t i = 0; i < w.outputs.size(); ++i)
    out[i] = w.outputs[i].convert == nullptr ? args.outputs[i] : base + w.outputs[i].at;
  w.inner.run({in, out, args.workspace, args.random, args.on});
  for (std::size_t i = 0; i < w.outputs.size(); ++i) {
    if (w.outputs[i].convert == nullptr) continue;
    const void* const result = out[i];
    args.on.elementwise({w.outputs[i].convert.get(), &result, &args.outputs[i], nullptr});
  }
}

Result<Kernel> prepare_widened(const OpDef& op, NodeTypes types) {
  auto w = std::make_shared<Widened>();
  w->constants.reserve(types.constants.size());
  for (const Tensor*& known : types.constants) {
    if (known == nullptr || !is_half(known->dtype())) continue;
    w->constants.push_back(known->cast(DType::f32));
    known = &w->constants.back();
  }
  std::size_t end = 0;
  w->inputs = widen(types.inputs, types.input_present, false, end);
  w->outputs = widen(types.outputs, types.output_present, true, end);
  w->inner = TRY(op.cpu(types));
  w->pointers = aligned_bytes(w->inner.workspace_bytes);
  const std::size_t before =
      w->pointers + aligned_bytes((w->inputs.size() + w->outputs.size()) * sizeof(void*));
  for (auto* operands : {&w->inputs, &w->outputs})
    for (Operand& operand : *operands) operand.at += before;
  return Kernel{
      w->inner.name + " in f32", before + end,
      [shared = std::shared_ptr<const Widened>(w)](const LaunchArgs& args) { run_widened(*shared, args); }};
}

}  // namespace

Result<Kernel> prepare_kernel(const OpDef& op, const NodeTypes& types) {
  Result<Kernel> own = op.prepare(types.target)(types);
  if (own || kernels::computes_halves(types.target)) return own;
  const auto half = [](const Type& type) { return is_half(type.dtype); };
  const bool any = std::any_of(types.inputs.begin(), types.inputs.end(), half) ||
                   std::any_of(types.outputs.begin(), types.outputs.end(), half);
  return any ? prepare_widened(op, types) : own;
}

}  // namespace gradloom
