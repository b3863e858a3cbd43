#include "app/measure_device.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/device/device.h"
#include "engine/ir/builder.h"
#include "engine/ir/op.h"
#include "engine/run/executor.h"
#include "kernels/clock.h"
#include "passes/planners.h"

namespace gradloom {
namespace {

constexpr std::int64_t kMeasuredNs = 300'000'000;  // for each kernel, once it is warm
constexpr std::int64_t kTypeNs = 20'000'000;       // for each of those that are measured in several types
constexpr int kLeastRuns = 4, kMostRuns = 200;

// Of either sign: products are faster with zeros than with what training gives them.
Tensor numbers(const Shape& shape) {
  Tensor tensor(DType::f32, shape);
  auto* const to = tensor.mutable_as<float>();
  std::uint32_t random = 1;
  for (std::int64_t i = 0; i < tensor.count(); ++i) {
    random = random * 1664525u + 1013904223u;
    to[i] = static_cast<float>(random >> 8) * 0x1p-23f - 1.0f;
  }
  return tensor;
}

// One kernel as a plan of its own.
class OneKernel {
 public:
  static Result<std::unique_ptr<OneKernel>> make(Device& device, kernels::Target target, Graph graph) {
    auto one = std::unique_ptr<OneKernel>(new OneKernel);
    one->graph_ = std::move(graph);
    const PlannerDef& planner = *find_planner("best-fit");
    one->plan_ = TRY(
        make_plan(one->graph_, {.planner = planner.plan, .planner_name = planner.name, .target = target}));
    one->executor_ = TRY(Executor::create(one->graph_, one->plan_, device));
    for (const ValueId input : one->graph_.inputs) {
      const Type& type = one->graph_.type(input);
      TRY(one->executor_->feed(input, numbers(type.shape).cast(type.dtype)));
    }
    return one;
  }

  // The shortest run.
  Result<double> ns(std::stop_token stop, std::int64_t most_ns = kMeasuredNs) {
    double best = std::numeric_limits<double>::max();
    const std::int64_t start_ns = kernels::now_ns();
    for (int i = 0; i < kMostRuns && (i < kLeastRuns || kernels::now_ns() - start_ns < most_ns); ++i) {
      if (stop.stop_requested()) return Error{Errc::interrupted, "interrupted"};
      const StepOutcome outcome = TRY(executor_->step({}, {.step = i + 1, .timed = true}, {}));
      double sum = 0;
      for (const KernelSample& sample : outcome.samples) sum += static_cast<double>(sample.duration_ns);
      if (sum > 0) best = std::min(best, sum);
    }
    if (best == std::numeric_limits<double>::max()) return Error{Errc::device, "its kernels cannot be timed"};
    return best;
  }

  KernelInfo info() const { return kernel_infos(graph_, plan_).front(); }

 private:
  OneKernel() = default;
  Graph graph_;
  Plan plan_;
  std::unique_ptr<Executor> executor_;
};

Graph negation(std::int64_t count) {
  Graph graph;
  GraphBuilder b(graph);
  graph.outputs = {b.op("Neg", {b.input("x", {DType::f32, {count}})})};
  return graph;
}

Graph product(DType type, std::int64_t size) {
  Graph graph;
  GraphBuilder b(graph);
  const Type matrix{type, {size, size}};
  graph.outputs = {b.op("MatMul", {b.input("a", matrix), b.input("b", matrix)})};
  return graph;
}

// A kernel of each kind that another type changes differently, with operands of about `count` elements.
constexpr std::int64_t kRow = 64;
ValueId rows(GraphBuilder& b, const char* name, DType type, std::int64_t count) {
  return b.input(name, {type, {count / kRow, kRow}});
}
struct TypeProbe {
  const char* op;
  ValueId (*make)(GraphBuilder& b, DType type, std::int64_t count);
};
constexpr TypeProbe kProbes[] = {
    {"MatMul",
     [](GraphBuilder& b, DType type, std::int64_t count) {
       const auto n = static_cast<std::int64_t>(std::sqrt(count));
       return b.op("MatMul", {b.input("a", {type, {n, n}}), b.input("b", {type, {n, n}})});
     }},
    {"Conv",
     [](GraphBuilder& b, DType type, std::int64_t count) {
       constexpr std::int64_t kBatch = 8, kChannels = 16;
       const auto side = static_cast<std::int64_t>(std::sqrt(count / (kBatch * kChannels)));
       return b.op("Conv", {b.input("x", {type, {kBatch, kChannels, side, side}}),
                            b.input("w", {type, {kChannels, kChannels, 3, 3}})});
     }},
    {"Add",
     [](GraphBuilder& b, DType type, std::int64_t count) {
       return b.op("Add", {rows(b, "x", type, count), rows(b, "y", type, count)});
     }},
    {"Gelu", [](GraphBuilder& b, DType type,
                std::int64_t count) { return b.op("Gelu", {rows(b, "x", type, count)}); }},
    {"Concat",
     [](GraphBuilder& b, DType type, std::int64_t count) {
       return b.op("Concat", {rows(b, "x", type, count), rows(b, "y", type, count)},
                   {{"axis", std::int64_t{1}}});
     }},
    {"ReduceSum",
     [](GraphBuilder& b, DType type, std::int64_t count) {
       return b.op("ReduceSum", {rows(b, "x", type, count), b.i64s({0})}, {{"keepdims", std::int64_t{0}}});
     }},
    {"LayerNormalization",
     [](GraphBuilder& b, DType type, std::int64_t count) {
       return b.op("LayerNormalization", {rows(b, "x", type, count), b.input("scale", {type, {kRow}})});
     }},
    {"Softmax",
     [](GraphBuilder& b, DType type, std::int64_t count) {
       return b.op("Softmax", {rows(b, "x", type, count)}, {{"axis", std::int64_t{-1}}});
     }},
    {"SoftmaxGrad", [](GraphBuilder& b, DType type, std::int64_t count) {
       return b.op("SoftmaxGrad", {rows(b, "dy", type, count), rows(b, "y", type, count)},
                   {{"axis", std::int64_t{-1}}});
     }}};

Result<std::vector<TypeTime>> measure_types(Device& device, kernels::Target target,
                                            const std::vector<DType>& types, std::stop_token stop) {
  std::vector<TypeTime> times;
  for (const TypeProbe& probe : kProbes)
    for (const DType type : types)
      for (const std::int64_t count : {1 << 13, 1 << 16, 1 << 20}) {
        Graph graph;
        GraphBuilder b(graph);
        graph.outputs = {probe.make(b, type, count)};
        const auto kernel = OneKernel::make(device, target, std::move(graph));
        if (!kernel) break;  // the device does not compute it in this type
        const double ns = TRY((*kernel)->ns(stop, kTypeNs));
        times.push_back({probe.op, dtype_name(type), type_size((*kernel)->info()), std::max(1.0, ns)});
      }
  return times;
}

}  // namespace

Result<DeviceSpeeds> measure_device(const std::string& id, std::stop_token stop,
                                    const ToldOfMeasuring& told) {
  const kernels::Target target = TRY(device_target(id));
  const std::unique_ptr<Device> device = TRY(open_device(id));
  const bool cpu = target == kernels::Target::cpu;
  const std::vector<std::int64_t> sizes =
      cpu ? std::vector<std::int64_t>{64 << 10, 1 << 20, 16 << 20, 512 << 20}
          : std::vector<std::int64_t>{1 << 20, 32 << 20, 1 << 30};
  constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};
  const double parts = static_cast<double>(sizes.size() + std::size(kTypes) + 1);
  DeviceSpeeds speeds;
  speeds.launch_ns = TRY(TRY(OneKernel::make(*device, target, negation(1)))->ns(stop));
  for (const std::int64_t bytes : sizes) {
    told("memory", static_cast<double>(speeds.memory.size()) / parts);
    const auto kernel = TRY(OneKernel::make(*device, target, negation(bytes / 8)));
    speeds.memory.push_back({bytes, static_cast<double>(bytes) / TRY(kernel->ns(stop))});
  }
  auto done = static_cast<double>(sizes.size());
  for (const DType type : kTypes) {
    told(std::string("products in ") + dtype_name(type), done++ / parts);
    // Larger until a product takes long enough to be one of the machine's best.
    for (std::int64_t size = cpu ? 512 : 2048;; size *= 2) {
      const auto kernel = OneKernel::make(*device, target, product(type, size));
      if (!kernel) break;  // the device does not compute in it
      const double ns = TRY((*kernel)->ns(stop));
      const auto n = static_cast<double>(size);
      if (ns < 2e6 && size < 8192) continue;
      speeds.products.push_back({type, size, 2 * n * n * n / ns});
      break;
    }
  }
  std::vector<DType> types;
  for (const ProductSpeed& product : speeds.products) types.push_back(product.type);
  told("kernels in each type", done / parts);
  speeds.types = TRY(measure_types(*device, target, types, stop));
  return speeds;
}

namespace {

// Nanoseconds of `work`, the best of several.
template <class Work>
Result<double> best_of(int runs, const Work& work) {
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < runs; ++i) {
    const std::int64_t start_ns = kernels::now_ns();
    TRY(work());
    best = std::min(best, static_cast<double>(kernels::now_ns() - start_ns));
  }
  return best;
}

// How often all ranks measure what took this one so long (0: it looks on): about a second.
Result<int> agreed_runs(World& world, double once_ns) {
  constexpr double kSecond = 1e9, kMost = 20;
  const std::vector<std::int64_t> all = TRY(world.exchange(static_cast<std::int64_t>(once_ns)));
  const auto slowest = static_cast<double>(*std::max_element(all.begin(), all.end()));
  return static_cast<int>(std::clamp(kSecond / std::max(slowest, 1.0), 2.0, kMost));
}

// `best`, where one more run of each way to add is faster.
template <class Work>
Status improve(World& world, decltype(ExchangeSpeed::ns)& best, const Work& work) {
  for (std::size_t form = 0; form < best.size(); ++form) {
    world.set_reduce_form(static_cast<ReduceForm>(form));
    best[form] = std::min(best[form], TRY(best_of(1, work)));
  }
  world.set_reduce_form(ReduceForm::order);
  return {};
}

}  // namespace

Result<LinkSpeeds> measure_exchanges(World& world) {
  LinkSpeeds speeds;
  constexpr std::int64_t kLarge = 16 << 20;
  std::vector<std::byte> block(kLarge);
  const int last = world.size() - 1;
  // There and back again; the other ranks look on.
  const auto both_ways = [&](std::int64_t bytes) -> Status {
    const World::Block there{block.data(), bytes, 0}, back{block.data(), bytes, last};
    TRY(world.share_between(there, last));
    return world.share_between(back, 0);
  };
  const bool measures = world.rank() == 0 || world.rank() == last;
  const auto large = [&](int runs) { return best_of(runs, [&] { return both_ways(kLarge); }); };
  if (measures) speeds.latency_ns = TRY(best_of(200, [&] { return both_ways(8); })) / 2;
  const double once_ns = measures ? TRY(large(1)) : 0;
  const int runs = TRY(agreed_runs(world, once_ns));
  if (measures) {
    const double ns = std::min(once_ns, TRY(large(runs - 1))) / 2;
    speeds.bytes_per_ns = static_cast<double>(kLarge) / std::max(ns - speeds.latency_ns, 1.0);
  }
  for (const std::int64_t bytes :
       {std::int64_t{4} << 10, std::int64_t{64} << 10, std::int64_t{1} << 20, kLarge}) {
    TRY(world.exchange(0));  // all begin together
    const std::int64_t count = bytes / 4;
    std::vector<float> workspace(
        static_cast<std::size_t>(World::mean_workspace_bytes(DType::f32, count, world.size())) / 4 + 1);
    const World::Piece piece{block.data(), block.data(), count};
    const auto mean = [&] { return world.mean(DType::f32, {&piece, 1}, workspace.data()); };
    decltype(ExchangeSpeed::ns) best{};
    best.fill(std::numeric_limits<double>::max());
    TRY(improve(world, best, mean));
    for (int left = TRY(agreed_runs(world, *std::max_element(best.begin(), best.end()))) - 1; left > 0;
         --left)
      TRY(improve(world, best, mean));
    speeds.means.push_back({bytes, best});
  }
  return speeds;
}

}  // namespace gradloom
