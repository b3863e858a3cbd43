#include "engine/ops/custom/host_call.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/base/text.h"
#include "engine/ops/custom/custom_rows.h"
#include "engine/ops/inference.h"
#include "engine/ops/kernel_failed.h"
#include "engine/ops/preparation.h"

namespace gradloom {
namespace {

constexpr int kMostTensors = 64;
constexpr std::int64_t kLikeInput = -1;

std::mutex adding;
std::int64_t last_number = 0;
std::map<std::int64_t, std::shared_ptr<const HostFunction>>& functions() {
  static std::map<std::int64_t, std::shared_ptr<const HostFunction>> all;
  return all;
}

std::shared_ptr<const HostFunction> function_of(std::int64_t number) {
  const std::lock_guard lock(adding);
  const auto found = functions().find(number);
  return found == functions().end() ? nullptr : found->second;
}

// ---- Types ----

std::string name_of(const Attrs& attrs) {
  const auto* name = attribute<std::string>(attrs, "name");
  return name == nullptr || name->empty() ? "HostCall" : escaped(*name);
}

Error says(const Attrs& attrs, const std::string& what) { return infer_error(name_of(attrs) + ": " + what); }

std::string dims_name(std::size_t i) { return "dims_" + std::to_string(i); }

std::optional<DType> float_type_of(const InferContext& ctx) {
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i)
    if (ctx.has(i) && is_float(ctx.dtype(i))) return ctx.dtype(i);
  return std::nullopt;
}

// The type of result i, as the attributes say.
Result<Type> result_type(const Attrs& attrs, std::size_t i, std::int64_t number, std::optional<DType> like) {
  const auto* dims = attribute<std::vector<std::int64_t>>(attrs, dims_name(i));
  Type type;
  if (number == kLikeInput && like) {
    type.dtype = *like;
  } else {
    const Result<DType> known = dtype_from_onnx(number);
    if (!known) return with_context(known.error(), name_of(attrs));
    type.dtype = *known;
  }
  if (dims != nullptr) type.shape = *dims;
  for (const std::int64_t dim : type.shape)
    if (dim < 0) return says(attrs, "attribute " + dims_name(i) + " has a negative number");
  if (const auto count = checked_element_count(type.shape, dtype_bytes(type.dtype)); !count)
    return with_context(count.error(), name_of(attrs));
  return type;
}

const std::vector<std::int64_t>& numbers(const Attrs& attrs, const std::string& name) {
  static const std::vector<std::int64_t> none;
  const auto* list = attribute<std::vector<std::int64_t>>(attrs, name);
  return list == nullptr ? none : *list;
}

// The results, and one number more that the gradient reads, so that it runs after the call.
Status infer_call(InferContext& ctx) {
  const std::vector<std::int64_t>& dtypes = numbers(ctx.attrs, "dtypes");
  if (dtypes.empty() || dtypes.size() >= kMostTensors)
    return says(ctx.attrs, "attribute dtypes is missing or too long");
  if (ctx.outputs.size() > dtypes.size() + 1) return says(ctx.attrs, "it has more outputs than dtypes");
  for (std::size_t i = 0; i < ctx.outputs.size(); ++i)
    ctx.outputs[i] = i == dtypes.size() ? Type{DType::f32, {1}}
                                        : TRY(result_type(ctx.attrs, i, dtypes[i], float_type_of(ctx)));
  return {};
}

// Its dtypes are those of the inputs' gradients; -1: nobody wants that one.
Status infer_gradient(InferContext& ctx) {
  const std::vector<std::int64_t>& dtypes = numbers(ctx.attrs, "dtypes");
  for (std::size_t i = 0; i < ctx.outputs.size() && i < dtypes.size(); ++i)
    if (dtypes[i] > 0) ctx.outputs[i] = TRY(result_type(ctx.attrs, i, dtypes[i], std::nullopt));
  return {};
}

extern const OpDef host_call_grad;

Status add_gradient(GradContext& ctx) {
  const std::size_t results = numbers(ctx.node.attrs, "dtypes").size();
  const std::vector<std::int64_t>& differentiable = numbers(ctx.node.attrs, "differentiable");
  std::vector<ValueId> operands(results + 1, kNone);
  bool any = false;
  for (std::size_t i = 0; i < results && i < differentiable.size(); ++i) {
    if (differentiable[i] != 0) operands[i] = ctx.grad(i);
    any = any || operands[i] != kNone;
  }
  if (!any) return {};
  operands[results] = ctx.require_out(results);
  Attrs attrs;
  for (const char* kept : {"function", "call", "name"})
    if (const auto found = ctx.node.attrs.all().find(kept); found != ctx.node.attrs.all().end())
      attrs.set(kept, found->second);
  std::vector<std::int64_t> dtypes;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < ctx.node.inputs.size(); ++i) {
    dtypes.push_back(-1);
    names.emplace_back();
    if (!ctx.wants(i)) continue;
    const Type type = ctx.b.type(ctx.in(i));
    if (!is_static(type.shape))
      return says(attrs, "the shape of input " + std::to_string(i) + " is not known");
    dtypes.back() = onnx_from_dtype(type.dtype);
    attrs.set(dims_name(i), std::vector<std::int64_t>(type.shape.begin(), type.shape.end()));
    names.back() = ctx.b.unique_name(ctx.b.context().name_prefix + "HostCall:d" + std::to_string(i));
  }
  while (!names.empty() && names.back().empty()) names.pop_back();
  attrs.set("dtypes", dtypes);
  const std::vector<ValueId> made = TRY(ctx.b.add(host_call_grad, std::move(operands), std::move(attrs),
                                                  static_cast<int>(names.size()), names));
  for (std::size_t i = 0; i < made.size(); ++i) ctx.set(i, made[i]);
  return {};
}

// ---- Kernels ----

struct Prepared {
  std::weak_ptr<const HostFunction> function;  // gone once it is removed
  std::string name;
  std::int64_t call = 0;
  bool backward = false;
  std::vector<HostTensor> inputs, outputs;
  std::size_t made = 0;  // of the outputs; the node leaves out those behind them
};

void run_prepared(const Prepared& prepared, const LaunchArgs& args) {
  std::vector<HostTensor> inputs = prepared.inputs, outputs = prepared.outputs;
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].data = const_cast<void*>(args.inputs[i]);
  for (std::size_t i = 0; i < prepared.made; ++i) outputs[i].data = args.outputs[i];
  const std::shared_ptr<const HostFunction> function = prepared.function.lock();
  if (function == nullptr)
    throw KernelFailed{{Errc::device, prepared.name + ": the function that it calls was removed"}};
  if (!(*function)(prepared.call, prepared.backward, inputs, outputs))
    throw KernelFailed{
        {Errc::device, prepared.name + (prepared.backward ? ": its backward failed" : ": it failed")}};
}

std::vector<HostTensor> tensors_of(const std::vector<Type>& types) {
  std::vector<HostTensor> tensors;
  for (const Type& type : types) tensors.push_back({nullptr, type.dtype, type.shape});
  return tensors;
}

Result<Kernel> prepare(const NodeTypes& types, bool backward) {
  const auto integer = [&](const char* name) {
    const auto* value = attribute<std::int64_t>(types.attrs, name);
    return value == nullptr ? std::int64_t{0} : *value;
  };
  auto prepared = std::make_shared<Prepared>();
  prepared->name = name_of(types.attrs);
  prepared->call = integer("call");
  prepared->backward = backward;
  prepared->function = function_of(integer("function"));
  if (prepared->function.expired())
    return no_kernel(prepared->name +
                     " is a function of the program that made the model, which is not this one");
  prepared->inputs = tensors_of(types.inputs);
  prepared->outputs = tensors_of(types.outputs);
  // Not what orders the two: the last input of the one and the last output of the other.
  if (backward)
    prepared->inputs.pop_back();
  else
    prepared->outputs.resize(numbers(types.attrs, "dtypes").size());
  prepared->made = std::min(types.outputs.size(), prepared->outputs.size());
  return Kernel{prepared->name + (backward ? " backward" : "") + " (host)", 0,
                [shared = std::shared_ptr<const Prepared>(prepared)](const LaunchArgs& args) {
                  run_prepared(*shared, args);
                }};
}

const OpDef host_call{.name = "HostCall",
                      .domain = "gradloom",
                      .summary = "A function of the program that has Gradloom inside",
                      .traits = kRandom | kRunsOnce | kOptionalOutputs | kFirstOutputOptional |
                                kOfFiles,  // not folded, not merged
                      .min_inputs = 0,
                      .max_inputs = kMostTensors,
                      .max_outputs = kMostTensors,
                      .infer = infer_call,
                      .grad = add_gradient,
                      .cpu = [](const NodeTypes& types) { return prepare(types, false); },
                      .precision = Precision::full};

const OpDef host_call_grad{.name = "HostCallGrad",
                           .domain = "gradloom",
                           .summary = "Gradient of HostCall",
                           .traits = kRandom | kRunsOnce | kOptionalOutputs | kFirstOutputOptional,
                           .min_inputs = 0,
                           .max_inputs = kMostTensors,
                           .max_outputs = kMostTensors,
                           .infer = infer_gradient,
                           .cpu = [](const NodeTypes& types) { return prepare(types, true); },
                           .precision = Precision::full};

}  // namespace

std::int64_t add_host_function(HostFunction function) {
  const std::lock_guard lock(adding);
  functions()[++last_number] = std::make_shared<const HostFunction>(std::move(function));
  return last_number;
}

void remove_host_function(std::int64_t number) {
  const std::lock_guard lock(adding);
  functions().erase(number);
}

const OpDef& host_call_op() { return host_call; }
bool is_host_call(const OpDef& op) { return &op == &host_call || &op == &host_call_grad; }

}  // namespace gradloom
