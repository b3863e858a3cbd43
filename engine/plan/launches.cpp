#include "engine/plan/launches.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>

#include "engine/ops/collectives/host_work.h"
#include "engine/ops/padding/packed_rows.h"
#include "kernels/elementwise.h"
#include "kernels/gpu/kernel_counts.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace on_paper {
namespace {

using namespace kernels;

// ---- what one launch reads, writes and computes ---------------------------------------------------------------

std::int64_t of_dims(const std::int64_t* dims, const std::int64_t* strides, int rank) {
  std::int64_t count = 1;
  for (int d = 0; d < rank; ++d)
    if (strides == nullptr || strides[d] != 0) count *= dims[d];
  return count;
}

LaunchKind work(DType dtype, double flops, double read, double written) {
  LaunchKind kind;
  kind.dtype = dtype;
  kind.flops = flops;
  kind.bytes_read = read;
  kind.bytes_written = written;
  return kind;
}
// Of elements of one type.
LaunchKind of_elements(DType dtype, std::int64_t computed, double flops_each, std::int64_t read,
                       std::int64_t written) {
  const auto size = static_cast<double>(dtype_bytes(dtype));
  return work(dtype, static_cast<double>(computed) * flops_each, static_cast<double>(read) * size,
              static_cast<double>(written) * size);
}
LaunchKind copied(double bytes) { return work(DType::u8, 0, bytes, bytes); }

// Kernels that no sequence has: they cost what their operator does.
template <class Args>
std::optional<LaunchKind> work_of(const Args&) {
  return std::nullopt;
}

std::optional<LaunchKind> work_of(const ElementwiseArgs& args) {
  const EwProgram& p = *args.program;
  const std::int64_t elements = of_dims(p.dims.data(), nullptr, p.rank);
  double read = 0, written = 0;
  for (const EwInput& in : p.inputs)
    read += static_cast<double>(of_dims(p.dims.data(), in.strides.data(), p.rank)) *
            static_cast<double>(dtype_bytes(in.dtype));
  const std::vector<EwRowPlace> places = p.row > 0 ? ew_row_places(p) : std::vector<EwRowPlace>();
  for (const EwOutput& out : p.outputs) {
    const bool per_row = p.row > 0 && places[static_cast<std::size_t>(out.reg)].per_row;
    written += static_cast<double>(per_row ? elements / p.row : elements) *
               static_cast<double>(dtype_bytes(out.dtype));
  }
  const DType dtype = p.outputs.empty() ? DType::f32 : p.outputs[0].dtype;
  return work(dtype, static_cast<double>(elements) * static_cast<double>(p.code.size()), read, written);
}
std::optional<LaunchKind> work_of(const DropoutArgs& args) {
  const std::int64_t n = args.batch * args.rows * args.columns;
  return of_elements(args.dtype, n, 10, n, n);
}
std::optional<LaunchKind> work_of(const StridedCopyArgs& args) {
  const auto size = static_cast<double>(args.element_bytes);
  return work(DType::u8, 0, size * static_cast<double>(of_dims(args.dims, args.in_strides, args.rank)),
              size * static_cast<double>(of_dims(args.dims, nullptr, args.rank)));
}
std::optional<LaunchKind> work_of(const FillArgs& args) {
  return work(DType::u8, 0, 0, static_cast<double>(args.element_bytes) * static_cast<double>(args.count));
}
std::optional<LaunchKind> work_of(const StoreArgs& args) {
  return work(DType::u8, 0, 0, static_cast<double>(args.bytes));
}
std::optional<LaunchKind> work_of(const ReduceArgs& args) {
  const std::int64_t out = args.outer * args.inner;
  return of_elements(args.dtype, out * args.n, 1, out * args.n, out);
}
std::optional<LaunchKind> work_of(const SoftmaxArgs& args) {
  const std::int64_t n = args.outer * args.n * args.inner;
  return of_elements(args.dtype, n, 5, n, n);
}
std::optional<LaunchKind> work_of(const SoftmaxAgainArgs& args) {
  const std::int64_t n = args.rows * args.n;
  return of_elements(args.dtype, n, 2, n, n);
}
std::optional<LaunchKind> work_of(const SoftmaxGradArgs& args) {
  const std::int64_t n = args.outer * args.n * args.inner;
  return of_elements(args.dtype, n, 4, 2 * n, n);
}
std::optional<LaunchKind> work_of(const ReverseSequenceArgs& args) {
  return copied(static_cast<double>(args.element_bytes) *
                static_cast<double>(args.batch * args.time * args.inner));
}
std::optional<LaunchKind> work_of(const CumSumArgs& args) {
  const std::int64_t n = args.outer * args.n * args.inner;
  return of_elements(args.dtype, n, 1, n, n);
}
std::optional<LaunchKind> work_of(const ArgExtremeArgs& args) {
  const std::int64_t n = args.outer * args.n * args.inner;
  return of_elements(args.dtype, n, 1, n, args.outer * args.inner);
}
std::optional<LaunchKind> work_of(const TopKArgs& args) {
  const std::int64_t n = args.outer * args.n * args.inner;
  return of_elements(args.dtype, n, 1, n, 2 * args.outer * args.k * args.inner);
}
std::optional<LaunchKind> work_of(const GatherArgs& args) {
  return copied(static_cast<double>(args.element_bytes) *
                static_cast<double>(args.outer * args.count * args.inner));
}
std::optional<LaunchKind> work_of(const GatherGradArgs& args) {
  const std::int64_t dy = args.outer * args.count * args.inner;
  if (args.adds) return of_elements(args.dtype, dy, 2, 2 * dy, dy);
  return of_elements(args.dtype, dy, 1, dy, args.outer * args.axis_size * args.inner);
}
std::optional<LaunchKind> work_of(const IndexGatherArgs& args) {
  return copied(static_cast<double>(args.element_bytes) *
                static_cast<double>(of_dims(args.walk.dims, nullptr, args.walk.rank) * args.walk.block));
}
std::optional<LaunchKind> work_of(const IndexScatterArgs& args) {
  const std::int64_t n = of_dims(args.walk.dims, nullptr, args.walk.rank) * args.walk.block;
  return of_elements(args.dtype, n, 1, n, n);
}
std::optional<LaunchKind> work_of(const OneHotArgs& args) {
  return work(
      DType::u8, 0, static_cast<double>(args.outer * args.inner) * 8,
      static_cast<double>(args.element_bytes) * static_cast<double>(args.outer * args.depth * args.inner));
}

std::optional<LaunchKind> work_of(const NllLossArgs& args) {
  const std::int64_t rows = args.outer * args.inner;
  return of_elements(args.dtype, rows, 2, 2 * rows, args.reduction == LossReduction::none ? rows : 1);
}
std::optional<LaunchKind> work_of(const NllLossGradArgs& args) {
  const std::int64_t rows = args.outer * args.inner;
  return of_elements(args.dtype, rows, 2, rows, rows * args.n);
}
std::optional<LaunchKind> work_of(const SoftmaxCrossEntropyArgs& args) {
  const std::int64_t n = args.outer * args.n * args.inner;
  if (args.dlogits == nullptr) {
    const std::int64_t of_row = (args.reduction == LossReduction::none ? 1 : 0) +
                                (args.log_sum_exp != nullptr ? 1 : 0) + (args.targets != nullptr ? 1 : 0);
    return of_elements(args.dtype, n, 3, n, args.outer * args.inner * of_row + 2);  // 2: loss, total weight
  }
  const bool again = args.n * static_cast<std::int64_t>(dtype_bytes(args.dtype)) > gpu::kWholeRowBytes;
  return of_elements(args.dtype, n, 6, again ? 2 * n : n, n);
}
std::optional<LaunchKind> work_of(const SoftmaxCrossEntropyGradArgs& args) {
  const std::int64_t n = args.outer * args.n * args.inner;
  return of_elements(args.dtype, n, 3, n, n);
}

std::optional<LaunchKind> work_of(const LayerNormArgs& args) {
  const std::int64_t n = args.rows * args.cols;
  return of_elements(args.dtype, n, 8, n, n);
}
std::optional<LaunchKind> work_of(const LayerNormGradArgs& args) {
  const std::int64_t n = args.rows * args.cols;
  return of_elements(args.dtype, n, 14, args.added != nullptr ? 3 * n : 2 * n, n);
}
std::optional<LaunchKind> work_of(const ResampleArgs& args) {
  return of_elements(args.dtype, args.outer * args.out * args.inner, 4, args.outer * args.in * args.inner,
                     args.outer * args.out * args.inner);
}

std::optional<LaunchKind> work_of(const RecurrentStepArgs& args) {
  const RecurrentCell& c = args.cell;
  const std::int64_t units = c.batch * c.hidden, gates = units * c.gates, states = args.c != nullptr ? 2 : 1;
  return of_elements(c.dtype, gates, 10, 2 * gates + states * units,
                     units * (c.slots + states + (args.y != nullptr ? 1 : 0)));
}
std::optional<LaunchKind> work_of(const RecurrentStepGradArgs& args) {
  const RecurrentCell& c = args.cell;
  const std::int64_t units = c.batch * c.hidden, states = args.c != nullptr ? 2 : 1;
  return of_elements(c.dtype, units * c.gates, 15, units * (c.slots + 1 + 2 * states),
                     units * (2 * c.gates + states));
}

std::optional<LaunchKind> work_of(const GemmArgs& args) {
  const auto parts = [&](const std::int64_t* strides) {
    return static_cast<double>(of_dims(args.batch_dims, strides, args.batch_rank));
  };
  const auto m = static_cast<double>(args.m), n = static_cast<double>(args.n),
             k = static_cast<double>(args.k);
  const auto size = static_cast<double>(dtype_bytes(args.dtype)),
             c_size = args.wide_c ? static_cast<double>(sizeof(float)) : size;
  const double products = parts(nullptr), c = products * m * n,
               sums = args.sums_of == GemmOperand::a   ? m
                      : args.sums_of == GemmOperand::b ? n
                                                       : 0;
  double read = (parts(args.a_batch) * m * k + parts(args.b_batch) * k * n) * size, written = c * c_size;
  if (args.accumulate || args.addend != nullptr) read += c * c_size;
  if (args.bias != nullptr) read += n * size;
  if (args.aux != nullptr)
    (args.activation == kernels::Activation::gelu_tanh_grad ? read : written) += c * size;
  LaunchKind kind = work(args.dtype, 2 * c * k + sums * k, read, written + sums * size);
  kind.arithmetic = Arithmetic::products;
  kind.products = of_dims(args.batch_dims, nullptr, args.batch_rank);
  kind.rows = args.m;
  kind.columns = args.n;
  return kind;
}
std::optional<LaunchKind> work_of(const GroupedGemmArgs& args) {
  const auto size = static_cast<double>(dtype_bytes(args.dtype));
  const auto rows = static_cast<double>(args.rows), m = static_cast<double>(args.m),
             n = static_cast<double>(args.n), groups = static_cast<double>(args.groups);
  const bool columns = args.sum == GroupedSum::columns;
  const double left = rows * m * size, matrices = groups * m * n * size, right = rows * n * size;
  LaunchKind kind =
      work(args.dtype, 2 * rows * m * n, left + (columns ? matrices : right), columns ? right : matrices);
  kind.arithmetic = Arithmetic::products;
  kind.products = columns ? 1 : args.groups;
  kind.rows = columns ? args.rows : args.m;
  kind.columns = args.n;
  return kind;
}
std::optional<LaunchKind> work_of(const ConvolutionArgs& args) {
  const ConvolutionDesc& s = args.shape;
  const std::int64_t x = s.n * s.c * s.d * s.h * s.w, w = s.k * s.c / s.groups * s.t * s.r * s.s,
                     y = s.n * s.k * s.od * s.oh * s.ow;
  const std::int64_t written = args.kind == ConvolutionKind::forward         ? y
                               : args.kind == ConvolutionKind::backward_data ? x
                                                                             : w;
  LaunchKind kind = of_elements(s.dtype, y, 2.0 * static_cast<double>(s.c / s.groups * s.t * s.r * s.s),
                                x + w + y - written, written);
  kind.arithmetic = Arithmetic::convolutions;
  return kind;
}

// Their operator says what they cost.
LaunchKind of_attention() {
  LaunchKind kind;
  kind.arithmetic = Arithmetic::attention;
  return kind;
}
std::optional<LaunchKind> work_of(const FlashAttentionArgs&) { return of_attention(); }
std::optional<LaunchKind> work_of(const FlashAttentionGradArgs&) { return of_attention(); }

// Operands of one byte; the type of A's codes says at which rate they are multiplied, which is that of both formats.
LaunchKind of_codes(const Fp8ProductArgs& args) {
  LaunchKind kind = *work_of(args.product);
  const auto m = static_cast<double>(args.product.m), n = static_cast<double>(args.product.n),
             k = static_cast<double>(args.product.k);
  kind.dtype = DType::f8e4m3fn;
  kind.bytes_read = (m + n) * k;
  return kind;
}

// ---- the launcher that writes down ----------------------------------------------------------------------------

constexpr const char *kLibraryAttention = "attention", *kLibraryFp8 = "fp8_product";

// What vendors' libraries have, as one kernel.
template <class Args>
constexpr bool by_library = std::is_same_v<Args, GemmArgs> || std::is_same_v<Args, ConvolutionArgs>;

class Tally {
 public:
  bool library = false;
  std::vector<LaunchKind> kinds;
  bool known = true;  // what all launches do

  static void queue(void* tally, KernelId id, const void* args, std::size_t) {
    static_cast<Tally*>(tally)->add(id, args);
  }
  // The library takes what it is offered: operators offer what it has.
  static bool offer(void* tally, LibraryKernelId id, const void* args, std::size_t) {
    const bool codes = id == LibraryKernelId::fp8_product;
    LaunchKind kind = codes ? of_codes(*static_cast<const Fp8ProductArgs*>(args)) : of_attention();
    kind.kernel = codes ? kLibraryFp8 : kLibraryAttention;
    static_cast<Tally*>(tally)->take(std::move(kind));
    return true;
  }

 private:
  void add(KernelId id, const void* args) {
    switch (id) {
#define GRADLOOM_TALLY(name, Args) \
  case KernelId::name: return add(kernel_name(id), *static_cast<const Args*>(args));
      GRADLOOM_GPU_KERNELS(GRADLOOM_TALLY)
#undef GRADLOOM_TALLY
      case KernelId::elementwise: return add(kernel_name(id), *static_cast<const ElementwiseArgs*>(args));
      default: known = false;
    }
  }

  template <class Args>
  void add(const char* name, const Args& args) {
    auto kind = work_of(args);
    known = known && kind.has_value();
    if (!kind) kind.emplace();
    kind->kernel = name;
    if (!library || !by_library<Args>) kind->kernels = gpu::kernels_of(args);
    take(std::move(*kind));
  }

  void take(LaunchKind kind) {
    const auto key = [](const LaunchKind& k) {
      return std::tie(k.kernel, k.dtype, k.kernels, k.flops, k.bytes_read, k.bytes_written, k.products,
                      k.rows, k.columns);
    };
    const auto same = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const LaunchKind& other) { return key(other) == key(kind); });
    if (same != kinds.end()) {
      same->count += 1;
      return;
    }
    kind.count = 1;
    kinds.push_back(std::move(kind));
  }
};

// Whether nothing is read before a launch but what the node itself holds: elsewhere the host exchanges numbers with other ranks.
bool only_launches(const OpDef& op) { return op.exchange == RankExchange::none && !may_run_on_host(op); }

// Addresses of operands: apart, at boundaries, and nobody's.
struct Nowhere {
  std::uintptr_t next = std::uintptr_t{1} << 40;
  void* operator()(const Type& type) {
    constexpr std::uintptr_t kBoundary = 256;
    void* const at = reinterpret_cast<void*>(next);  // NOLINT(performance-no-int-to-ptr)
    next += (static_cast<std::uintptr_t>(byte_size(type)) / kBoundary + 2) * kBoundary;
    return at;
  }
};

Node node_of(const OpDef& op, const NodeTypes& types) {
  Node node;
  node.op = &op;
  node.attrs = types.attrs;
  for (std::size_t i = 0; i < types.inputs.size(); ++i)
    node.inputs.push_back(types.has(i) ? static_cast<ValueId>(i) : kNone);
  for (std::size_t i = 0; i < types.outputs.size(); ++i)
    node.outputs.push_back(types.wants(i) ? static_cast<ValueId>(types.inputs.size() + i) : kNone);
  return node;
}

Tally run_on_paper(const OpDef& op, const Kernel& kernel, const NodeTypes& types) {
  Tally tally;
  tally.library = types.dnn_library;
  Nowhere nowhere;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (std::size_t i = 0; i < types.inputs.size(); ++i)
    inputs.push_back(types.has(i) ? nowhere(types.inputs[i]) : nullptr);
  for (std::size_t i = 0; i < types.outputs.size(); ++i)
    outputs.push_back(types.wants(i) ? nowhere(types.outputs[i]) : nullptr);
  constexpr std::int64_t kAllRows = std::numeric_limits<std::int64_t>::max();
  const Node node = node_of(op, types);
  // What takes an operand's place, if the plan can
  const auto place = static_cast<std::size_t>(std::max(op.inplace_input, 0));
  if (op.inplace_input >= 0 && types.wants(0) && types.has(place) && types.inputs[place] == types.outputs[0])
    outputs[0] = const_cast<void*>(inputs[place]);
  if (op.aliases != nullptr)  // updates in place
    for (const auto& [output, input] : op.aliases(node)) {
      const auto to = static_cast<std::size_t>(output), from = static_cast<std::size_t>(input);
      if (types.wants(to) && types.has(from)) outputs[to] = const_cast<void*>(inputs[from]);
    }
  if (counts_rows(node) && !inputs.empty()) inputs[0] = &kAllRows;
  const Type workspace{DType::u8, {static_cast<std::int64_t>(kernel.workspace_bytes)}};
  const auto* const random = static_cast<const RandomState*>(nowhere({DType::u8, {sizeof(RandomState)}}));
  const Launcher launcher(&Tally::queue, &tally, types.dnn_library ? &Tally::offer : nullptr);
  kernel.run({inputs.data(), outputs.data(), nowhere(workspace), random, launcher});
  return tally;
}

// What the operator does in one launch, or in several that are alike to it.
void set_cost(LaunchKind& kind, const Cost& cost, std::int64_t launches) {
  const auto parts = static_cast<double>(launches);
  kind.flops = cost.flops / parts;
  kind.bytes_read = cost.bytes_read / parts;
  kind.bytes_written = cost.bytes_written / parts;
}

}  // namespace
}  // namespace on_paper

std::int64_t device_kernels(const std::vector<LaunchKind>& launches) {
  std::int64_t all = 0;
  for (const LaunchKind& kind : launches) all += kind.count * kind.kernels;
  return std::max<std::int64_t>(all, 1);
}

Cost cost_of_launches(const std::vector<LaunchKind>& launches) {
  Cost cost;
  for (const LaunchKind& kind : launches) {
    const auto count = static_cast<double>(kind.count);
    cost.flops += count * kind.flops;
    cost.bytes_read += count * kind.bytes_read;
    cost.bytes_written += count * kind.bytes_written;
  }
  return cost;
}

std::vector<LaunchKind> launches_of(const OpDef& op, const Kernel& kernel, const NodeTypes& types,
                                    const Cost& cost) {
  if (!on_paper::only_launches(op) || !kernel.run) return {};
  on_paper::Tally tally = on_paper::run_on_paper(op, kernel, types);
  std::int64_t launches = 0, attentions = 0;
  for (const LaunchKind& kind : tally.kinds) {
    launches += kind.count;
    if (kind.arithmetic == Arithmetic::attention) attentions += kind.count;
  }
  for (LaunchKind& kind : tally.kinds) {
    if (launches == 1 || !tally.known || kind.arithmetic == Arithmetic::attention)
      on_paper::set_cost(kind, cost, tally.known && launches > 1 ? attentions : launches);
    if (launches == 1 || !tally.known) kind.arithmetic = op.arithmetic;
  }
  return tally.kinds;
}

}  // namespace gradloom
