// What every pass promises: its example, idempotence, and the same loss and gradients on real models: alone,
// all, all but one.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/onnx/import.h"
#include "engine/run/executor.h"
#include "kernels/cpu.h"
#include "passes/compile.h"
#include "passes/precision.h"
#include "tests/passes/support.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

using test::canonical_dump;
using test::run_pass;

class EveryPass : public ::testing::TestWithParam<const PassDef*> {};

TEST_P(EveryPass, TurnsItsExampleIntoWhatItPromises) {
  const PassDef& def = *GetParam();
  auto example = def.example();
  ASSERT_OK(example);
  ASSERT_OK(verify(example->before));
  ASSERT_OK(verify(example->after));
  Graph graph = example->before;
  const PassReport report = run_pass(graph, def.name);
  EXPECT_GE(report.matched, 1);
  EXPECT_EQ(canonical_dump(graph), canonical_dump(example->after));
  // fp8: sums of 512 products of numbers below 1.
  const double tolerance = def.by_precision ? 2e-2 : changes_precision(def) ? 2 : def.bit_exact ? 0 : 1e-5;
  test::expect_same_results(example->before, graph, tolerance);
}

TEST_P(EveryPass, FindsNothingMoreInItsOwnResult) {
  auto example = GetParam()->example();
  ASSERT_OK(example);
  run_pass(example->before, GetParam()->name);
  EXPECT_EQ(run_pass(example->before, GetParam()->name).matched, 0);
}

TEST_P(EveryPass, NamesOnlyNodesThatExistInItsLog) {
  auto example = GetParam()->example();
  ASSERT_OK(example);
  std::set<std::string> names;
  for (const Node& node : example->before.nodes) names.insert(node.name);
  const PassReport report = run_pass(example->before, GetParam()->name);
  for (const RewriteRecord& record : report.log) {
    EXPECT_TRUE(names.count(record.site)) << record.site;
    EXPECT_FALSE(record.rule.empty());
    for (const std::string& node : record.added) names.insert(node);
    for (const std::string& node : record.removed) EXPECT_TRUE(names.count(node)) << node;
  }
}

// What the log calls an instance is what switches it off, and nothing else.
TEST_P(EveryPass, InstancesAreSwitchedByTheirFingerprint) {
  auto example = GetParam()->example();
  ASSERT_OK(example);
  Graph all = example->before;
  const std::string name = GetParam()->name;
  for (const RewriteRecord& record : run_pass(all, name).log) {
    if (!record.matched || record.fingerprint.empty()) continue;  // it follows from other matches
    EXPECT_TRUE(is_fingerprint(record.fingerprint)) << record.fingerprint;
    Graph graph = example->before;
    for (const RewriteRecord& other : run_pass(graph, name + "{except=" + record.fingerprint + "}").log)
      EXPECT_FALSE(other.matched && other.fingerprint == record.fingerprint) << record.site;
  }
}

std::string test_name(const ::testing::TestParamInfo<const PassDef*>& param) {
  std::string name = param.param->name;
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
}
INSTANTIATE_TEST_SUITE_P(Passes, EveryPass, ::testing::ValuesIn(all_passes().begin(), all_passes().end()),
                         test_name);

// ---- the models -------------------------------------------------------------------------------------------

struct Results {
  std::map<std::string, Tensor> tensors;  // loss, and the gradient of every parameter and float input by name
};

Result<Graph> load_model(const std::string& name, DType float_type = DType::f64) {
  ImportOptions options;
  options.float_type = float_type;
  options.dims["batch"] = 2;
  return TRY(import_onnx(std::string(GRADLOOM_SOURCE_DIR) + "/tests/models/" + name + "/model.onnx", options))
      .graph;
}

Tensor feed_tensor(const Type& type, std::mt19937& random) {
  std::vector<double> numbers;
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (std::int64_t i = 0; i < element_count(type.shape); ++i) {
    numbers.push_back(is_float(type.dtype) ? uniform(random) : static_cast<double>(random() % 4));
  }
  return Tensor::from_f64(type.dtype, type.shape, numbers);
}

Result<Results> run_model(const Graph& model, const std::string& passes) {
  CompileOptions options;
  options.gradients_only = true;
  options.pipeline = TRY(parse_pipeline(passes));
  const Compiled compiled = TRY(compile(model, options));
  const Graph& graph = compiled.train.graph;
  TRY(check_plan(graph, compiled.plan));
  kernels::set_threads(1);  // the bits do not depend on it
  const auto device = make_cpu_device();
  const auto executor = TRY(Executor::create(graph, compiled.plan, *device));
  executor->poison();
  std::mt19937 random(5);
  for (ValueId id : graph.inputs) TRY(executor->feed(id, feed_tensor(graph.type(id), random)));
  TRY(executor->run_forward(17, 0));
  Results results;
  results.tensors["the loss"] = TRY(executor->read(compiled.train.names.loss));
  for (const auto& [name, gradient] : compiled.gradients) {
    if (gradient != kNone) results.tensors[name] = TRY(executor->read(gradient));
  }
  return results;
}

double largest_magnitude(const Tensor& tensor) {
  double largest = 0;
  for (std::int64_t i = 0; i < tensor.count(); ++i) largest = std::max(largest, std::abs(tensor.at(i)));
  return largest;
}

// Empty when equal: bit-equal with tolerance 0, else relative to the largest magnitude of the tensor. A
// gradient that is zero by construction (the bias of attention's keys: softmax does not see it) is rounding
// noise, so noise far below the other gradients counts as zero.
std::string difference(const Results& a, const Results& b, double tolerance, double noise = 1e-14) {
  if (a.tensors.size() != b.tensors.size()) return "other gradients exist";
  double largest_of_all = 0;
  for (const auto& [name, x] : a.tensors) largest_of_all = std::max(largest_of_all, largest_magnitude(x));
  for (const auto& [name, x] : a.tensors) {
    const Tensor& y = b.tensors.at(name);
    if (x.type() != y.type()) return name + " has another type";
    if (tolerance == 0) {
      if (!bit_equal(x, y)) return name + " is not bit-equal";
      continue;
    }
    const double largest = largest_magnitude(x);
    double error = 0;
    for (std::int64_t i = 0; i < x.count(); ++i) {
      if (!std::isfinite(y.at(i))) return name + " is not finite";
      error = std::max(error, std::abs(x.at(i) - y.at(i)));
    }
    if (error > tolerance * largest + noise * largest_of_all)
      return name + " differs by " + std::to_string(error) + " of " + std::to_string(largest);
  }
  return "";
}

class EveryModel : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryModel, KeepsLossAndGradientsUnderEveryChoiceOfPasses) {
  constexpr double kTolerance = 1e-10;
  const auto model = load_model(GetParam());
  ASSERT_OK(model);
  const auto reference = run_model(*model, "none");
  ASSERT_OK(reference);
  EXPECT_GT(reference->tensors.size(), 5u);
  const auto expect_same = [&](const std::string& passes, double tolerance) {
    const auto results = run_model(*model, passes);
    ASSERT_OK(results);
    EXPECT_EQ(difference(*reference, *results, tolerance), "") << GetParam() << " with " << passes;
  };
  std::string exact;
  for (const PassDef* def : all_passes()) {
    expect_same(def->name, def->bit_exact ? 0 : kTolerance);
    expect_same(std::string("default,-") + def->name, kTolerance);
    if (def->bit_exact) exact += (exact.empty() ? "" : ",") + std::string(def->name);
  }
  expect_same(exact, 0);
  expect_same("default", kTolerance);
  for (const std::string of_gpus :
       {"fuse-matmul-epilogue{devices=all}", "fuse-residual{devices=all}",
        "fuse-matmul-epilogue{devices=all},fuse-residual{devices=all}", "fuse-rows{devices=all}"}) {
    expect_same(of_gpus, kTolerance);
    expect_same("default," + of_gpus, kTolerance);
  }
}

// Parameters after three optimizer steps with clipping, two micro-batches each.
Result<Results> train_model(const Graph& model, const std::string& passes) {
  CompileOptions options;
  options.train.loss = "loss";
  options.train.optimizer = TRY(parse_optimizer("adamw{lr=1e-2}"));
  options.train.clip_norm = 0.5;
  options.train.accumulate = 2;
  options.pipeline = TRY(parse_pipeline(passes));
  const Compiled compiled = TRY(compile(model, options));
  const Graph& graph = compiled.train.graph;
  const auto device = make_cpu_device();
  const auto executor = TRY(Executor::create(graph, compiled.plan, *device));
  std::mt19937 random(5);
  const auto feed = [&](std::int64_t) -> Status {
    for (ValueId id : graph.inputs) TRY(executor->feed(id, feed_tensor(graph.type(id), random)));
    return {};
  };
  for (std::int64_t step = 1; step <= 3; ++step) {
    StepOptions step_options;
    step_options.step = step;
    step_options.lr = 1e-2;
    step_options.seed = 9;
    step_options.micro_batches = 2;
    TRY(executor->step(compiled.train.names, step_options, feed));
  }
  Results results;
  results.tensors["the loss"] = TRY(executor->read(compiled.train.names.loss));
  results.tensors["the norm"] = TRY(executor->read(compiled.train.names.grad_norm));
  for (ValueId id : graph.parameters) results.tensors[graph.values[id].name] = TRY(executor->read(id));
  return results;
}

TEST_P(EveryModel, TrainsToTheSameParameters) {
  const auto model = load_model(GetParam());
  ASSERT_OK(model);
  const auto reference = train_model(*model, "none");
  ASSERT_OK(reference);
  for (const auto& [passes, tolerance] : std::map<std::string, double>{
           {"default", 1e-9},
           {"fold-constants,eliminate-noops,cse,dead-code,fuse-elementwise,fuse-optimizer", 0}}) {
    const auto results = train_model(*model, passes);
    ASSERT_OK(results);
    // Adam divides the noise of a zero gradient by epsilon = 1e-8 and multiplies it by the learning rate.
    EXPECT_EQ(difference(*reference, *results, tolerance, 1e-12), "") << passes;
  }
}

// In f32, where constants that the file rounded still are the constants of GELU.
TEST_P(EveryModel, KeepsLossAndGradientsInSinglePrecision) {
  const auto model = load_model(GetParam(), DType::f32);
  ASSERT_OK(model);
  const auto reference = run_model(*model, "none"), results = run_model(*model, "default");
  ASSERT_OK(reference);
  ASSERT_OK(results);
  EXPECT_EQ(difference(*reference, *results, 1e-4, 1e-6), "");
}

TEST(RealModels, AreFusedAsFarAsTheyCanBe) {
  const std::map<std::string, std::map<std::string, int>> expected = {
      {"gpt-char",
       {{"fuse-gelu", 4}, {"fuse-scale-matmul", 12}, {"fuse-bias-activation", 16}, {"fuse-optimizer", 1}}},
      {"bert-tiny",
       {{"fuse-layernorm", 5},
        {"fuse-gelu", 2},
        {"fuse-bias-activation", 12},
        {"fuse-elementwise", 6},  // a Dropout of some rows has the numbers of all: it is no part of a region
        {"select-rows", 1},
        {"fuse-optimizer", 1}}},
      {"cnn-digits", {{"block-channels", 3}, {"fuse-batch-norm", 5}, {"fuse-optimizer", 1}}},
      {"mlp", {{"fuse-bias-activation", 2}, {"fuse-optimizer", 1}}}};
  for (const auto& [name, passes] : expected) {
    const auto model = load_model(name, DType::f32);
    ASSERT_OK(model);
    CompileOptions options;
    options.train.loss = "loss";
    options.train.optimizer = *parse_optimizer("adamw");
    options.pipeline = default_pipeline();
    const auto compiled = compile(*model, options);
    ASSERT_OK(compiled);
    std::map<std::string, int> matched;
    for (const PassReport& report : compiled->reports) matched[report.name] += report.matched;
    for (const auto& [pass, count] : passes) EXPECT_EQ(matched[pass], count) << pass << " in " << name;
    const auto counts = test::op_counts(compiled->train.graph);
    for (const char* gone : {"Shape", "Identity", "Erf", "Pow", "Sqrt"})
      EXPECT_EQ(counts.count(gone), 0u) << gone << " in " << name;
    // Where the channels' blocks end, before the product, and its gradient.
    EXPECT_EQ(counts.count("Transpose") == 0 ? 0 : counts.at("Transpose"), name == "cnn-digits" ? 2 : 0)
        << name;
    EXPECT_EQ(counts.at("Optimizer"), 1) << name;
  }
}

// Sites keep their names whatever else is switched off: the names that recipes store.
TEST(RealModels, SitesKeepTheNamesOfTheModel) {
  const auto model = load_model("gpt-char", DType::f32);
  ASSERT_OK(model);
  std::set<std::string> model_names;
  for (const Node& node : model->nodes) model_names.insert(node.name);
  CompileOptions options;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer("adamw");
  options.pipeline = default_pipeline();
  const auto compiled = compile(*model, options);
  ASSERT_OK(compiled);
  for (const PassReport& report : compiled->reports) {
    for (const RewriteRecord& record : report.log) {
      if (record.site.find("/grad/") != std::string::npos || report.name == "fuse-optimizer") continue;
      EXPECT_TRUE(model_names.count(record.site)) << report.name << " at " << record.site;
    }
  }
}

std::set<std::string> live_names(const Graph& graph) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes)
    if (node.alive()) names.insert(node.name);
  return names;
}

void replay(const std::vector<RewriteRecord>& log, std::set<std::string>& names) {
  for (const RewriteRecord& record : log) {
    for (const std::string& node : record.changed) EXPECT_TRUE(names.count(node)) << node;
    for (const std::string& node : record.removed) EXPECT_EQ(names.erase(node), 1u) << node;
    for (const std::string& node : record.added) EXPECT_TRUE(names.insert(node).second) << node;
  }
}

// The log is the whole history: replayed over the names of the nodes it ends where the graph does.
// Nodes that it does not name are as they were.
TEST_P(EveryModel, LogsTellEveryChange) {
  const auto model = load_model(GetParam());
  ASSERT_OK(model);
  Graph graph = *model;
  ASSERT_OK(add_loss(graph, "loss"));
  TrainSpec spec;
  spec.optimizer = *parse_optimizer("adamw");
  for (const PassPhase phase : {PassPhase::pre_gradient, PassPhase::post_gradient}) {
    for (const PassDef* def : all_passes()) {
      if (def->phase != phase && def->phase != PassPhase::both) continue;
      const Graph before = graph;
      std::set<std::string> names = live_names(graph);
      std::vector<PassReport> reports;
      ASSERT_OK(run_passes(graph, *parse_pipeline(def->name), phase, reports));
      ASSERT_EQ(reports.size(), 1u);
      replay(reports[0].log, names);
      EXPECT_EQ(names, live_names(graph)) << def->name;
      std::set<std::string> changed;
      for (const RewriteRecord& record : reports[0].log)
        changed.insert(record.changed.begin(), record.changed.end());
      for (NodeId id = 0; id < before.nodes.size(); ++id) {
        const Node &was = before.nodes[id], &is = graph.nodes[id];
        if (!was.alive() || !is.alive() || changed.count(is.name)) continue;
        EXPECT_TRUE(was.attrs == is.attrs && was.origin.passes == is.origin.passes)
            << def->name << ": " << is.name;
      }
    }
    if (phase != PassPhase::pre_gradient) break;
    std::set<std::string> names = live_names(graph);
    auto train = add_training(std::move(graph), spec);
    ASSERT_OK(train);
    replay(train->removed, names);
    graph = std::move(train->graph);
    const std::set<std::string> all = live_names(graph);
    EXPECT_TRUE(std::includes(all.begin(), all.end(), names.begin(), names.end()));
  }
}

TEST_P(EveryModel, PassesFindNothingMoreInTheirOwnResult) {
  const auto model = load_model(GetParam());
  ASSERT_OK(model);
  TrainSpec spec;
  spec.optimizer = *parse_optimizer("adamw");
  Graph forward = *model;
  ASSERT_OK(add_loss(forward, "loss"));
  for (const PassDef* def : all_passes()) {
    Graph graph = forward;
    if (def->phase != PassPhase::pre_gradient) {
      auto train = add_training(forward, spec);
      ASSERT_OK(train);
      graph = train->graph;
    }
    run_pass(graph, def->name);
    const PassReport second = run_pass(graph, def->name);
    EXPECT_EQ(second.matched, 0) << def->name << ": "
                                 << (second.log.empty() ? ""
                                                        : second.log[0].rule + " at " + second.log[0].site);
  }
}

TEST_P(EveryModel, CompilesInUnderAFifthOfASecond) {
  const auto model = load_model(GetParam());
  ASSERT_OK(model);
  CompileOptions options;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer("adamw");
  options.pipeline = default_pipeline();
  double best_ms = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto compiled = compile(*model, options);
    ASSERT_OK(compiled);
    EXPECT_LT(live_node_count(compiled->train.graph), compiled->nodes_before_passes);
    best_ms = std::min(best_ms, compiled->compile_ms);
  }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  best_ms /= 20;  // the limit is for the program as it is used
#endif
  EXPECT_LT(best_ms, 200);
}

std::string model_name(const ::testing::TestParamInfo<const char*>& param) {
  std::string name = param.param;
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
}
INSTANTIATE_TEST_SUITE_P(Models, EveryModel, ::testing::Values("gpt-char", "bert-tiny", "cnn-digits", "mlp"),
                         model_name);

}  // namespace
}  // namespace gradloom
