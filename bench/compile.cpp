// How long it takes to plan a training step again: the whole way of passes/compile.h from a deep synthetic transformer
// to its plan, without a model file. The best of some runs, by processor time; the parts are in time of the clock.
//   compile [--nodes N] [--runs N] [--passes PIPELINE] [--precision f32|bf16]
// --nodes: of the step before the passes after autodiff (about).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "engine/ir/builder.h"
#include "engine/train/optimizers.h"
#include "passes/compile.h"
#include "sessions/recipe.h"

namespace gradloom {
namespace {

constexpr std::int64_t kBatch = 2, kTokens = 32, kHeads = 4, kWidth = 64;

// A decoder as exporters write it: norms, GELU and attention in elementary operators.
class Decoder {
 public:
  explicit Decoder(Graph& graph) : b_(graph) {}

  void build(int layers) {
    ValueId x = b_.input("x", {DType::f32, {kBatch, kTokens, kWidth}});
    mask_ = b_.input("mask", {DType::f32, {1, 1, kTokens, kTokens}});
    for (int layer = 0; layer < layers; ++layer) {
      prefix_ = "blocks." + std::to_string(layer);
      x = b_.op("Add", {x, attention(norm("ln1", x))});
      x = b_.op("Add", {x, feed_forward(norm("ln2", x))});
    }
    prefix_ = "head";
    const ValueId y = norm("ln", x);
    graph_loss(b_.op("ReduceMean", {b_.op("Mul", {y, y})}, {{"keepdims", std::int64_t{0}}}));
  }
  ValueId loss() const { return loss_; }

 private:
  void graph_loss(ValueId value) { loss_ = value; }
  ValueId parameter(const std::string& name, const Shape& shape) {
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < element_count(shape); ++i)
      numbers.push_back(
          static_cast<double>((i * 2654435761 + static_cast<std::int64_t>(name.size())) % 1000) / 5000 - 0.1);
    return b_.parameter(prefix_ + "." + name, Tensor::from_f64(DType::f32, shape, numbers));
  }
  ValueId scalar(double value) { return b_.scalar(DType::f32, value); }

  ValueId norm(const std::string& name, ValueId x) {
    const Attrs last{{"axes", std::vector<std::int64_t>{-1}}, {"keepdims", std::int64_t{1}}};
    const ValueId centred = b_.op("Sub", {x, b_.op("ReduceMean", {x}, last)});
    const ValueId variance = b_.op("ReduceMean", {b_.op("Pow", {centred, scalar(2)})}, last);
    const ValueId scaled = b_.op("Div", {centred, b_.op("Sqrt", {b_.op("Add", {variance, scalar(1e-5)})})});
    return b_.op("Add", {b_.op("Mul", {scaled, parameter(name + ".weight", {kWidth})}),
                         parameter(name + ".bias", {kWidth})});
  }

  ValueId linear(const std::string& name, ValueId x, std::int64_t from, std::int64_t to) {
    const ValueId turned = b_.op("Transpose", {parameter(name + ".weight", {to, from})},
                                 {{"perm", std::vector<std::int64_t>{1, 0}}});
    return b_.op("Add", {parameter(name + ".bias", {to}), b_.op("MatMul", {x, turned})});
  }

  ValueId heads(const std::string& name, ValueId x, const std::vector<std::int64_t>& perm) {
    const ValueId split = b_.op(
        "Reshape", {linear(name, x, kWidth, kWidth), b_.i64s({kBatch, kTokens, kHeads, kWidth / kHeads})});
    return b_.op("Transpose", {split}, {{"perm", perm}});
  }

  ValueId attention(ValueId x) {
    const ValueId q = heads("q", x, {0, 2, 1, 3}), k = heads("k", x, {0, 2, 3, 1}),
                  v = heads("v", x, {0, 2, 1, 3});
    const ValueId scores = b_.op("Div", {b_.op("MatMul", {q, k}), scalar(4)});
    const ValueId weights = b_.op("Softmax", {b_.op("Add", {scores, mask_})}, {{"axis", std::int64_t{-1}}});
    const ValueId turned = b_.op("Transpose", {b_.op("MatMul", {weights, v})},
                                 {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
    return linear("proj", b_.op("Reshape", {turned, b_.i64s({kBatch, kTokens, kWidth})}), kWidth, kWidth);
  }

  ValueId feed_forward(ValueId x) {
    const ValueId h = linear("fc1", x, kWidth, 4 * kWidth);
    const ValueId erf = b_.op("Erf", {b_.op("Div", {h, scalar(1.4142135623730951)})});
    const ValueId gelu = b_.op("Mul", {b_.op("Mul", {h, b_.op("Add", {erf, scalar(1)})}), scalar(0.5)});
    return linear("fc2", gelu, 4 * kWidth, kWidth);
  }

  GraphBuilder b_;
  std::string prefix_;
  ValueId mask_ = kNone, loss_ = kNone;
};

Graph decoder(int layers) {
  Graph graph;
  Decoder d(graph);
  d.build(layers);
  graph.values[d.loss()].name = "loss";
  graph.outputs = {d.loss()};
  return graph;
}

struct Asked {
  std::size_t nodes = 10000;
  int runs = 3;
  std::string passes = "default", precision = "f32";
};

Result<CompileOptions> options_of(const Asked& asked) {
  Recipe recipe;
  set_pipeline(recipe, TRY(parse_pipeline(asked.passes)));
  set_precision(recipe, asked.precision);
  recipe.loss = "loss";
  recipe.optimizer = "adamw{lr=1e-3}";
  return recipe_compile_options(recipe);
}

struct Timed {
  Compiled compiled;
  double processor_ms = 0;
};

double processor_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void print(const Timed& timed) {
  const Compiled& best = timed.compiled;
  std::vector<std::pair<double, std::string>> rows{{best.plan.plan_ms, "schedule and plan"}};
  double rest = best.compile_ms - best.plan.plan_ms;
  for (const PassReport& report : best.reports) {
    rest -= report.ms;
    rows.emplace_back(report.ms, report.name +
                                     (report.at == PassPhase::pre_gradient ? " (before autodiff)" : "") +
                                     ": " + std::to_string(report.matched) + " matches, " +
                                     std::to_string(report.nodes_after) + " nodes after");
  }
  rows.emplace_back(rest, "loss, autodiff, optimizer");
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [ms, what] : rows) std::printf("%9.2f ms  %s\n", ms, what.c_str());
  std::printf("%9.2f ms  in all, %.2f ms of the processor\n", best.compile_ms, timed.processor_ms);
  std::printf("%zu nodes before the passes, %zu steps, %zu buffers, arena %.4f of its bound, plan %s\n",
              best.nodes_before_passes, best.plan.steps.size(), best.plan.buffers.size(),
              static_cast<double>(best.plan.arena_bytes) / static_cast<double>(best.plan.lower_bound_bytes),
              best.plan.hash.substr(0, 16).c_str());
}

Status run(const Asked& asked) {
  const CompileOptions options = TRY(options_of(asked));
  const std::size_t one = TRY(compile(decoder(1), options)).nodes_before_passes,
                    two = TRY(compile(decoder(2), options)).nodes_before_passes;
  const auto layers = static_cast<int>((asked.nodes - std::min(asked.nodes, one)) / (two - one)) + 1;
  const Graph graph = decoder(layers);
  Timed best;
  for (int i = 0; i < asked.runs; ++i) {
    const double start_ms = processor_ms();
    Compiled compiled = TRY(compile(graph, options));
    const double taken_ms = processor_ms() - start_ms;
    if (i == 0 || taken_ms < best.processor_ms) best = {std::move(compiled), taken_ms};
  }
  print(best);
  return {};
}

}  // namespace
}  // namespace gradloom

int main(int argc, char** argv) {
  gradloom::Asked asked;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--nodes") == 0) asked.nodes = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--runs") == 0) asked.runs = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--passes") == 0) asked.passes = argv[i + 1];
    if (std::strcmp(argv[i], "--precision") == 0) asked.precision = argv[i + 1];
  }
  const gradloom::Status status = gradloom::run(asked);
  if (status.ok()) return 0;
  std::fprintf(stderr, "compile: %s\n", status.error().message.c_str());
  return static_cast<int>(status.error().code);
}
