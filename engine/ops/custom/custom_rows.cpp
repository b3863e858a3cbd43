// What the rows of a library's operators do: tensors and attributes as C structs on the way in, checks of what its
// functions say on the way out.
#include "engine/ops/custom/custom_rows.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/text.h"
#include "engine/ops/preparation.h"
#include "kernels/threads.h"

namespace gradloom {

CustomOp* custom_op_table[kMostCustomOps] = {};

namespace {

constexpr std::pair<int, DType> kTypes[] = {
    {GRADLOOM_OP_F32, DType::f32},      {GRADLOOM_OP_U8, DType::u8},   {GRADLOOM_OP_I8, DType::i8},
    {GRADLOOM_OP_I32, DType::i32},      {GRADLOOM_OP_I64, DType::i64}, {GRADLOOM_OP_F16, DType::f16},
    {GRADLOOM_OP_BOOL, DType::boolean}, {GRADLOOM_OP_F64, DType::f64}, {GRADLOOM_OP_BF16, DType::bf16}};

int number_of(DType type) {
  for (const auto& [number, own] : kTypes)
    if (own == type) return number;
  return 0;
}

const DType* type_of(int number) {
  for (const auto& row : kTypes)
    if (row.first == number) return &row.second;
  return nullptr;
}

// ---- What a call sees ----

const Attrs& attrs_of(const void* node) { return *static_cast<const Attrs*>(node); }

std::int64_t attribute_int(const void* node, const char* name, std::int64_t fallback) {
  const auto* value = attribute<std::int64_t>(attrs_of(node), name);
  return value == nullptr ? fallback : *value;
}

double attribute_float(const void* node, const char* name, double fallback) {
  const auto* value = attribute<double>(attrs_of(node), name);
  return value == nullptr ? fallback : *value;
}

const char* attribute_text(const void* node, const char* name, const char* fallback) {
  const auto* value = attribute<std::string>(attrs_of(node), name);
  return value == nullptr ? fallback : value->c_str();
}

template <class T>
std::size_t attribute_list(const void* node, const char* name, T* values, std::size_t room) {
  const auto* list = attribute<std::vector<T>>(attrs_of(node), name);
  if (list == nullptr) return 0;
  std::copy_n(list->begin(), std::min(room, list->size()), values);
  return list->size();
}

void parallel(std::int64_t parts, kernels::PartsBody body, void* context) {
  kernels::run_parts(parts, body, context);
}

gradloom_op_tensor tensor_of(const Type& type, bool present) {
  gradloom_op_tensor tensor{};
  tensor.present = present ? 1 : 0;
  tensor.dtype = number_of(type.dtype);
  tensor.rank = static_cast<std::int32_t>(type.shape.size());
  std::copy(type.shape.begin(), type.shape.end(), tensor.dims);
  return tensor;
}

constexpr std::size_t kMostTensors = GRADLOOM_OP_MAX_INPUTS + 2 * GRADLOOM_OP_MAX_OUTPUTS;

// The tensors of a call, without memory of their own: a kernel that runs takes none.
struct Tensors {
  std::array<gradloom_op_tensor, kMostTensors> inputs{};
  std::array<gradloom_op_tensor, GRADLOOM_OP_MAX_INPUTS> outputs{};
  std::int32_t input_count = 0, output_count = 0;

  gradloom_op_call call(const Attrs& attrs) {
    gradloom_op_call made{};
    made.inputs = inputs.data();
    made.outputs = outputs.data();
    made.input_count = input_count;
    made.output_count = output_count;
    made.threads = kernels::threads();
    made.node = &attrs;
    made.attribute_int = attribute_int;
    made.attribute_float = attribute_float;
    made.attribute_text = attribute_text;
    made.attribute_ints = attribute_list<std::int64_t>;
    made.attribute_floats = attribute_list<double>;
    made.parallel = parallel;
    return made;
  }
};
static_assert(GRADLOOM_OP_MAX_OUTPUTS <= GRADLOOM_OP_MAX_INPUTS);

Error says(const CustomOp& op, const std::string& what) { return infer_error(op.title + ": " + what); }

// ---- Types ----

Status takes(const CustomOp& op, const Type& type, const std::string& what) {
  if (number_of(type.dtype) == 0) return says(op, what + " is " + dtype_name(type.dtype));
  if (type.shape.size() <= GRADLOOM_OP_MAX_RANK) return {};
  return says(op, what + " has " + std::to_string(type.shape.size()) + " dims, " +
                      std::to_string(GRADLOOM_OP_MAX_RANK) + " are the most");
}

Result<Type> output_type(const CustomOp& op, const gradloom_op_tensor& tensor, std::size_t index,
                         const InferContext& ctx) {
  const std::string what = "its shape function gave output " + std::to_string(index) + " ";
  const DType* const dtype = type_of(tensor.dtype);
  if (dtype == nullptr) return says(op, what + "the unknown type " + std::to_string(tensor.dtype));
  if (tensor.rank < 0 || tensor.rank > GRADLOOM_OP_MAX_RANK)
    return says(op, what + "the rank " + std::to_string(tensor.rank));
  Type type{*dtype, Shape(tensor.dims, tensor.dims + tensor.rank)};
  for (const std::int64_t dim : type.shape) {
    bool known = dim >= 0;
    for (std::size_t i = 0; !known && i < ctx.inputs.size(); ++i)
      known = ctx.has(i) && std::count(ctx.shape(i).begin(), ctx.shape(i).end(), dim) > 0;
    if (!known) return says(op, what + "the dim " + std::to_string(dim));
  }
  if (is_static(type.shape))
    if (const auto count = checked_element_count(type.shape, dtype_bytes(type.dtype)); !count)
      return with_context(count.error(), op.title + ": output " + std::to_string(index));
  return type;
}

Status infer_forward(const CustomOp& op, InferContext& ctx) {
  Tensors tensors;
  tensors.input_count = op.def.max_inputs;
  tensors.output_count = op.def.outputs;
  for (std::size_t i = 0; i < ctx.inputs.size(); ++i) {
    if (!ctx.has(i)) continue;
    TRY(takes(op, ctx.in(i), "input " + std::to_string(i)));
    tensors.inputs[i] = tensor_of(ctx.in(i), true);
  }
  if (op.def.shape == nullptr && !ctx.has(0)) return says(op, "input 0 is missing");
  for (std::int32_t i = 0; i < op.def.outputs; ++i) {
    gradloom_op_tensor& output = tensors.outputs[static_cast<std::size_t>(i)];
    if (op.def.shape == nullptr)
      output = tensors.inputs[0];
    else
      output.rank = -1;  // what the function forgets is told
    output.present = i < ctx.output_count ? 1 : 0;
  }
  if (op.def.shape != nullptr) {
    gradloom_op_call call = tensors.call(ctx.attrs);
    if (const char* const why = op.def.shape(&call)) return says(op, escaped(why));
  }
  for (std::size_t i = 0; i < ctx.outputs.size(); ++i)
    ctx.outputs[i] = TRY(output_type(op, tensors.outputs[i], i, ctx));
  return {};
}

// ---- Gradient ----

// For each gradient that the backward node makes, the input of that node whose type it has; -1: none.
constexpr const char* kLike = "gradloom.like";

Status infer_backward(InferContext& ctx) {
  const std::vector<std::int64_t> like = ctx.attrs.integers(kLike);
  for (std::size_t i = 0; i < ctx.outputs.size() && i < like.size(); ++i)
    if (like[i] >= 0) ctx.outputs[i] = ctx.in(static_cast<std::size_t>(like[i]));
  return {};
}

// An operand of the backward node with the type of input i; where nothing else has it, the input itself.
std::int64_t operand_like(const GradContext& ctx, std::vector<ValueId>& operands, std::size_t i) {
  const Type wanted = ctx.b.type(ctx.in(i));
  for (std::size_t k = 0; k < operands.size(); ++k)
    if (operands[k] != kNone && ctx.b.type(operands[k]) == wanted) return static_cast<std::int64_t>(k);
  operands[i] = ctx.in(i);
  return static_cast<std::int64_t>(i);
}

Status add_backward(const CustomOp& op, GradContext& ctx) {
  const auto inputs = static_cast<std::size_t>(op.def.max_inputs);
  const auto outputs = static_cast<std::size_t>(op.def.outputs);
  std::vector<ValueId> operands(inputs + 2 * outputs, kNone);
  for (std::size_t i = 0; i < ctx.node.inputs.size(); ++i)
    if ((op.def.backward_reads_inputs >> i & 1) != 0) operands[i] = ctx.in(i);
  for (std::size_t i = 0; i < ctx.node.outputs.size(); ++i) {
    if ((op.def.backward_reads_outputs >> i & 1) != 0) operands[inputs + i] = ctx.out(i);
    operands[inputs + outputs + i] = ctx.grad(i);
  }
  std::vector<std::int64_t> like;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < ctx.node.inputs.size(); ++i) {
    like.push_back(ctx.wants(i) ? operand_like(ctx, operands, i) : -1);
    names.push_back(ctx.wants(i)
                        ? ctx.b.unique_name(ctx.b.context().name_prefix + op.name + ":d" + std::to_string(i))
                        : "");
  }
  while (!names.empty() && names.back().empty()) names.pop_back();
  Attrs attrs = ctx.node.attrs;
  attrs.set(kLike, like);
  const std::vector<ValueId> made = TRY(
      ctx.b.add(op.backward, std::move(operands), std::move(attrs), static_cast<int>(names.size()), names));
  for (std::size_t i = 0; i < made.size(); ++i) ctx.set(i, made[i]);
  return {};
}

// ---- Kernels ----

using RunFn = void (*)(const gradloom_op_call*);

std::string dtypes_text(const CustomOp& op) {
  std::string text;
  for (const auto& [number, type] : kTypes)
    if ((op.def.dtypes & GRADLOOM_OP_TAKES(number)) != 0)
      text += (text.empty() ? "" : ", ") + std::string(dtype_name(type));
  return text;
}

struct Prepared {
  Tensors tensors;
  Attrs attrs;
  RunFn run = nullptr;
};

void run_prepared(const Prepared& prepared, std::size_t inputs, std::size_t outputs, const LaunchArgs& args) {
  Tensors tensors = prepared.tensors;
  for (std::size_t i = 0; i < inputs; ++i)
    if (tensors.inputs[i].present != 0) tensors.inputs[i].data = const_cast<void*>(args.inputs[i]);
  for (std::size_t i = 0; i < outputs; ++i)
    if (tensors.outputs[i].present != 0) tensors.outputs[i].data = args.outputs[i];
  gradloom_op_call call = tensors.call(prepared.attrs);
  call.workspace = args.workspace;
  prepared.run(&call);
}

Result<Kernel> prepare(const CustomOp& op, const NodeTypes& types, bool backward) {
  auto prepared = std::make_shared<Prepared>();
  Tensors& tensors = prepared->tensors;
  tensors.input_count = op.def.max_inputs + (backward ? 2 * op.def.outputs : 0);
  tensors.output_count = backward ? op.def.max_inputs : op.def.outputs;
  const auto add = [&](gradloom_op_tensor& tensor, const Type& type, bool present) -> Status {
    if (!present) return {};
    const int number = number_of(type.dtype);
    if (number == 0 || (op.def.dtypes & GRADLOOM_OP_TAKES(number)) == 0)
      return no_kernel(op.title + " has no kernel for " + dtype_name(type.dtype) +
                       ", its library has it for " + dtypes_text(op));
    tensor = tensor_of(type, true);
    return {};
  };
  for (std::size_t i = 0; i < types.inputs.size(); ++i)
    TRY(add(tensors.inputs[i], types.inputs[i], types.has(i)));
  for (std::size_t i = 0; i < types.outputs.size(); ++i)
    TRY(add(tensors.outputs[i], types.outputs[i], types.wants(i)));
  prepared->attrs = types.attrs;
  prepared->run = backward ? op.def.backward : op.def.forward;
  const auto workspace = backward ? op.def.backward_workspace : op.def.workspace;
  const gradloom_op_call call = tensors.call(prepared->attrs);
  const std::size_t bytes = workspace == nullptr ? 0 : workspace(&call);
  return Kernel{op.title + (backward ? " backward" : ""), bytes,
                [shared = std::shared_ptr<const Prepared>(prepared), inputs = types.inputs.size(),
                 outputs = types.outputs.size()](const LaunchArgs& args) {
                  run_prepared(*shared, inputs, outputs, args);
                }};
}

// ---- Functions of one number ----

template <std::size_t N>
struct Numbered {
  static Status infer(InferContext& ctx) { return infer_forward(*custom_op_table[N], ctx); }
  static Status grad(GradContext& ctx) { return add_backward(*custom_op_table[N], ctx); }
  static Result<Kernel> forward(const NodeTypes& types) { return prepare(*custom_op_table[N], types, false); }
  static Result<Kernel> backward(const NodeTypes& types) { return prepare(*custom_op_table[N], types, true); }
};

struct Functions {
  InferFn infer;
  GradFn grad;
  PrepareFn forward, backward;
};

template <std::size_t... N>
constexpr std::array<Functions, sizeof...(N)> functions_of(std::index_sequence<N...>) {
  return {Functions{Numbered<N>::infer, Numbered<N>::grad, Numbered<N>::forward, Numbered<N>::backward}...};
}

constexpr auto kFunctions = functions_of(std::make_index_sequence<kMostCustomOps>());

}  // namespace

void make_custom_rows(CustomOp& op, std::size_t number) {
  const Functions& functions = kFunctions[number];
  OpDef& forward = op.forward;
  forward.name = op.name.c_str();
  forward.domain = op.domain.c_str();
  forward.since = op.def.version;
  forward.summary = op.summary.c_str();
  if ((op.def.flags & GRADLOOM_OP_IN_PLACE) != 0) forward.inplace_input = 0;
  if (op.def.outputs > 1) forward.traits |= kOptionalOutputs;
  forward.min_inputs = op.def.min_inputs;
  forward.max_inputs = op.def.max_inputs;
  forward.max_outputs = op.def.outputs;
  forward.infer = functions.infer;
  forward.cpu = functions.forward;
  forward.precision = Precision::full;
  if (op.def.backward == nullptr) return;
  forward.grad = functions.grad;
  OpDef& backward = op.backward;
  backward = forward;
  backward.summary = "Gradient";
  backward.inplace_input = -1;
  backward.traits = kOptionalOutputs | kFirstOutputOptional;
  backward.min_inputs = 0;
  backward.max_inputs = op.def.max_inputs + 2 * op.def.outputs;
  backward.max_outputs = op.def.max_inputs;
  backward.infer = infer_backward;
  backward.grad = nullptr;
  backward.cpu = functions.backward;
}

}  // namespace gradloom
