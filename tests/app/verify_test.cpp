#include "app/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <sstream>

#include "app/recipe_flags.h"
#include "app/verify_measure.h"
#include "engine/base/file.h"
#include "engine/ir/op.h"
#include "engine/ops/inference.h"
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

// What a pass can do wrong to the result of a node.
enum class Fault : std::uint8_t { scaled, moved, skipped, rounded, lost };
constexpr Fault kFaults[] = {Fault::scaled, Fault::moved, Fault::skipped, Fault::rounded, Fault::lost};

// A pass that computes every node's result through two exact negations, and one of them wrong.
class WrongPass final : public Pass {
 public:
  WrongPass(std::string wrong, Fault fault) : wrong_(std::move(wrong)), fault_(fault) {}
  Status run(Rewriter& rw) const override {
    sites.clear();
    for (const NodeId id : TRY(topological_order(rw.graph()))) {
      const Node node = rw.graph().nodes[id];
      if (node.outputs.size() != 1 || rw.is_output(node.outputs[0]) || node.op->has(kShapeOnly)) continue;
      if (rw.graph().type(node.outputs[0]).dtype != DType::f32) continue;
      sites.push_back(node.name);
      if (!rw.allowed("negations", id)) continue;
      GraphBuilder& b = rw.begin("negations", id, {id});
      const ValueId same = b.op(*node.op, node.inputs, node.attrs);
      rw.replace(node.outputs[0],
                 node.name == wrong_ ? spoiled(b, same, node.inputs[0]) : b.op("Neg", {b.op("Neg", {same})}));
      rw.commit();
    }
    return {};
  }
  mutable std::vector<std::string> sites;  // of the last run

 private:
  ValueId spoiled(GraphBuilder& b, ValueId right, ValueId input) const {
    switch (fault_) {
      case Fault::scaled: return b.op("Mul", {right, b.scalar(DType::f32, 1.001)});
      case Fault::moved: {  // each column by another number: a cross-entropy does not see one for all
        const Shape& shape = b.type(right).shape;
        std::vector<double> by;
        for (std::int64_t i = 0; i < (shape.empty() ? 1 : shape.back()); ++i)
          by.push_back(0.01 * static_cast<double>(i + 1));
        const Shape row(shape.empty() ? 0 : 1, static_cast<std::int64_t>(by.size()));
        return b.op("Add", {right, b.constant(Tensor::from_f64(DType::f32, row, by))});
      }
      case Fault::skipped: return b.type(input) == b.type(right) ? input : b.op("Neg", {right});
      case Fault::rounded: {
        const auto cast = [&](ValueId of, DType to) {
          return b.op("Cast", {of}, {{"to", onnx_from_dtype(to)}});
        };
        return cast(cast(right, DType::bf16), DType::f32);
      }
      case Fault::lost: return b.op("Div", {right, b.scalar(DType::f32, 0)});
    }
    return right;
  }
  const std::string wrong_;
  const Fault fault_;
};

const PassDef kWrong = {
    .name = "wrong",
    .summary = "computes one result wrong",
    .doc = "",
    .phase = PassPhase::pre_gradient,
    .make = [] { return std::unique_ptr<Pass>(); },
    .example = nullptr,
};

// A pass that gives every node of an operator another attribute, of which neither loss nor gradients nor parameters depend.
class WrongAttribute final : public Pass {
 public:
  WrongAttribute(const char* op, const char* attribute, double value)
      : op_(op), attribute_(attribute), value_(value) {}
  Status run(Rewriter& rw) const override {
    for (const NodeId id : TRY(topological_order(rw.graph()))) {
      const Node node = rw.graph().nodes[id];
      if (!is_op(node, op_) || !rw.allowed("attribute", id)) continue;
      Attrs attrs = node.attrs;
      attrs.set(attribute_, value_);
      rw.begin("attribute", id, {});
      rw.retype(id, node.inputs, attrs);
      rw.commit();
    }
    return {};
  }

 private:
  const char *const op_, *const attribute_;
  const double value_;
};

const PassDef kWrongAfter = {
    .name = "wrong-after",
    .summary = "changes an attribute of the updates",
    .doc = "",
    .phase = PassPhase::post_gradient,
    .make = [] { return std::unique_ptr<Pass>(); },
    .example = nullptr,
};

struct JobOf {
  const char *model, *loss, *optimizer;
  double ema = 0;
};

std::shared_ptr<Prepared> prepared(const JobOf& of, const std::string& precision = "f32",
                                   const std::string& passes = "default") {
  Recipe recipe;
  recipe.model = std::string(GRADLOOM_SOURCE_DIR "/tests/models/") + of.model + "/model.onnx";
  recipe.dims = {{"batch", 4}};
  recipe.loss = of.loss;
  recipe.optimizer = of.optimizer;
  recipe.ema = of.ema;
  set_pipeline(recipe, *parse_pipeline(passes));
  set_precision(recipe, precision);
  auto job = prepare_measured(recipe, {});
  EXPECT_TRUE(job.ok()) << job.error().message;
  return std::const_pointer_cast<Prepared>(job.value());
}

// The pass in the middle of the pipeline, and its object to ask.
std::shared_ptr<WrongPass> add_wrong(Prepared& job, const std::string& wrong, Fault fault) {
  auto pass = std::make_shared<WrongPass>(wrong, fault);
  std::vector<PassConfig>& passes = job.options.pipeline.passes;
  passes.insert(passes.begin() + static_cast<std::ptrdiff_t>(passes.size() / 2), {&kWrong, {}, {}, pass});
  auto compiled = compile(job.model.graph, job.options);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  job.compiled = std::move(compiled).value();
  return pass;
}

constexpr JobOf kJobs[] = {{"mlp", "ce:logits,labels", "adam{lr=1e-3}"},
                           {"cnn-digits", "ce:logits,labels", "sgd{lr=0.1,momentum=0.9}"}};

TEST(Verify, ModelsOfTheRepositoryKeepWhatTheyCompute) {
  for (const char* model : {"mlp", "cnn-digits", "gpt-char", "bert-tiny"})
    for (const char* precision : {"f32", "bf16"}) {
      const auto job = prepared({model, "ce:logits,labels", "adamw{lr=1e-3}"}, precision);
      const auto verification = verify(job, {});
      ASSERT_TRUE(verification.ok()) << model << ": " << verification.error().message;
      EXPECT_TRUE(verification->agrees()) << model << " in " << precision;
      EXPECT_GT(verification->instances, 0) << model;
      EXPECT_FALSE(verification->culprit) << model;
      EXPECT_GT(verification->tensors.size(), job->compiled.train.trainable.size() * 2) << model;
    }
}

// What rounds on purpose is no culprit, and does not hide one.
TEST(Verify, ProductsOf8BitsAreComparedWithSuch) {
  for (const char* precision : {"f32", "bf16"}) {
    const auto job =
        prepared({"gpt-char", "ce:logits,labels", "adamw{lr=1e-3}"}, precision, "default,fp8{least=64}");
    const auto verification = verify(job, {});
    ASSERT_TRUE(verification.ok()) << verification.error().message;
    EXPECT_TRUE(verification->agrees()) << precision;
    EXPECT_FALSE(verification->culprit) << precision;
  }
  const auto job =
      prepared({"gpt-char", "ce:logits,labels", "adamw{lr=1e-3}"}, "f32", "default,fp8{least=64}");
  const Pipeline pipeline = job->options.pipeline;
  const std::string site = add_wrong(*job, "", Fault::lost)->sites[5];
  job->options.pipeline = pipeline;
  add_wrong(*job, site, Fault::lost);
  const auto verification = verify(job, {});
  ASSERT_TRUE(verification.ok()) << verification.error().message;
  ASSERT_TRUE(verification->culprit);
  EXPECT_EQ(verification->culprit->pass, "wrong");
  EXPECT_EQ(verification->culprit->site, site);
}

TEST(Verify, TwentyWrongRewritesAreFoundToTheInstance) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    const auto job = prepared(kJobs[seed % std::size(kJobs)]);
    const Fault fault = kFaults[seed / 2 % std::size(kFaults)];
    const std::vector<std::string> sites = add_wrong(*job, "", fault)->sites;
    ASSERT_GE(sites.size(), 3u);
    job->options.pipeline = default_pipeline();
    const std::string site = sites[random() % sites.size()];
    add_wrong(*job, site, fault);
    const std::string what = "seed " + std::to_string(seed) + ", " + job->recipe.model + " at " + site;
    const auto verification = verify(job, {});
    ASSERT_TRUE(verification.ok()) << what << ": " << verification.error().message;
    EXPECT_FALSE(verification->agrees()) << what;
    ASSERT_TRUE(verification->culprit) << what;
    EXPECT_EQ(verification->culprit->pass, "wrong") << what;
    EXPECT_EQ(verification->culprit->site, site) << what;
    EXPECT_FALSE(verification->culprit->worst.agrees()) << what;
  }
}

// Nothing of the training depends on them, and whoever evaluates or takes the trained model gets them.
TEST(Verify, RunningStatisticsAndAveragesAreUpdatesToo) {
  struct Case {
    const PassDef& def;
    const char *op, *attribute, *strays;
  };
  for (const Case& c : {Case{kWrong, "BatchNormalization", "momentum", "running_"},
                        Case{kWrongAfter, "MovingAverage", "decay", "/ema"}}) {
    const auto job = prepared({"cnn-digits", "ce:logits,labels", "sgd{lr=0.1}", 0.9});
    std::vector<PassConfig>& passes = job->options.pipeline.passes;
    passes.insert(passes.begin(), {&c.def, {}, {}, std::make_shared<WrongAttribute>(c.op, c.attribute, 0.5)});
    auto compiled = compile(job->model.graph, job->options);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    job->compiled = std::move(compiled).value();
    const auto verification = verify(job, {});
    ASSERT_TRUE(verification.ok()) << verification.error().message;
    ASSERT_TRUE(verification->culprit) << c.op;
    EXPECT_EQ(verification->culprit->pass, c.def.name);
    EXPECT_NE(verification->culprit->site, "") << c.op;
    for (const Verified& v : verification->tensors)
      EXPECT_TRUE(v.agrees() || v.name.find(c.strays) != std::string::npos) << v.name;
  }
}

// Parameters are f32 there and a step changes them by far less than a unit of bf16: updates that are half as large as they should be
// are seen in what the steps change.
TEST(Verify, UpdatesAreHeldInMixedPrecisionToo) {
  for (const char* precision : {"f32", "bf16"}) {
    const auto job = prepared({"mlp", "ce:logits,labels", "sgd{lr=1e-3}"}, precision);
    std::vector<PassConfig>& passes = job->options.pipeline.passes;
    passes.insert(passes.begin(),
                  {&kWrongAfter, {}, {}, std::make_shared<WrongAttribute>("Optimizer", "lr_factor", 0.5)});
    auto compiled = compile(job->model.graph, job->options);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    job->compiled = std::move(compiled).value();
    const auto verification = verify(job, {});
    ASSERT_TRUE(verification.ok()) << verification.error().message;
    ASSERT_TRUE(verification->culprit) << precision;
    EXPECT_EQ(verification->culprit->pass, "wrong-after") << precision;
    const auto all = std::find_if(verification->tensors.begin(), verification->tensors.end(),
                                  [](const Verified& v) { return v.name == "change of all"; });
    ASSERT_NE(all, verification->tensors.end());
    EXPECT_FALSE(all->agrees()) << precision;
    EXPECT_NEAR(all->error / all->size, 0.5, 0.05) << precision;
  }
}

TEST(Verify, AReproducerHasAsFewPassesAsShowTheDifference) {
  const TemporaryFolder folder;
  const auto job = prepared(kJobs[0]);
  add_wrong(*job, "/layers.0/Gemm", Fault::scaled);
  const std::string out = folder / "again";
  const auto verification = verify(job, {.out = out});
  ASSERT_TRUE(verification.ok()) << verification.error().message;
  EXPECT_EQ(verification->folder, out);
  const auto recipe = read_recipe(out + "/recipe.json");
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  ASSERT_EQ(recipe->passes.size(), 1u);
  EXPECT_EQ(recipe->passes[0].name, "wrong");
  EXPECT_EQ(recipe->passes[0].sites.only, std::set<std::string>{"/layers.0/Gemm"});
  EXPECT_TRUE(std::filesystem::exists(out + "/model.onnx"));
  EXPECT_EQ(recipe->model, out + "/model.onnx");
  EXPECT_EQ(recipe->data, "npz:" + out + "/batches.npz");
}

// The folder is a job: its model, batches and passes, wherever it is moved.
TEST_F(Commands, VerifyTakesTheFolderOfAReproducer) {
  const auto job = prepared(kJobs[0]);
  add_wrong(*job, "/layers.0/Gemm", Fault::scaled);
  ASSERT_TRUE(verify(job, {.out = path("made")}).ok());
  expect_error({"verify", path("made")}, 3, "unknown pass 'wrong'");
  nlohmann::json recipe = nlohmann::json::parse(read_file(path("made/recipe.json")));
  recipe["passes"] = {{{"name", "cse"}}};
  ASSERT_TRUE(atomic_write_file(path("made/recipe.json"), recipe.dump()).ok());
  fs::rename(path("made"), path("moved"));
  const Outcome again = run({"verify", path("moved")});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("of 1 pass and planner best-fit"), std::string::npos) << again.out;
  expect_error({"verify", path("moved"), "--recipe", path("moved/recipe.json")}, 2, "two recipes");
}

TEST_F(Commands, VerifyPrintsEveryTensorAsJson) {
  const Outcome o =
      run({"verify", model("mlp/model.onnx"), "--dim", "batch=4", "--loss", "ce:logits,labels", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream lines(o.out);
  std::string line, last;
  int tensors = 0;
  while (std::getline(lines, line)) {
    tensors += line.rfind("{\"tensor\"", 0) == 0 ? 1 : 0;
    last = line;
  }
  const nlohmann::json summary = nlohmann::json::parse(last);
  EXPECT_TRUE(summary["verified"].get<bool>());
  EXPECT_EQ(summary["tensors"].get<int>(), tensors);
  EXPECT_TRUE(summary["culprit"].is_null());
  EXPECT_EQ(summary["steps"], 3);
  EXPECT_LE(summary["worst"]["error"], summary["worst"]["bound"]);
  EXPECT_FALSE(summary["worst"]["name"].get<std::string>().empty());
  EXPECT_EQ(o.out.find("\"progress\""), std::string::npos) << "only where it is asked for";
}

TEST_F(Commands, VerifyMakesTheStepsThatItIsAskedFor) {
  const std::vector<std::string> job{"verify", model("mlp/model.onnx"), "--dim",   "batch=4",
                                     "--loss", "ce:logits,labels",      "--steps", "2"};
  const Outcome text = run(job);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("parameters after 2 steps stay"), std::string::npos) << text.out;
  std::vector<std::string> words = job;
  words.emplace_back("--json");
  const Outcome objects = run(words);
  ASSERT_EQ(objects.code, 0) << objects.err;
  EXPECT_NE(objects.out.find("\"steps\":2"), std::string::npos) << objects.out;
  EXPECT_NE(objects.out.find("\"step 2\""), std::string::npos) << objects.out;
  EXPECT_EQ(objects.out.find("\"step 3\""), std::string::npos) << objects.out;
  words = job;
  words.back() = "1001";
  expect_error(words, 2, "--steps: verify makes at most 1000 steps, got 1001");
  words.back() = "0";
  expect_error(words, 2, "--steps");
  EXPECT_NE(run({"verify", "--help"}).out.find("by default 3, whatever a recipe says"), std::string::npos);
}

// A training's number of steps is none of its proof's: the line that others show leaves it away.
TEST(Verify, ItsCommandLineNamesNoStepsOfATraining) {
  Recipe recipe = prepared(kJobs[0])->recipe;
  recipe.steps = 20000;
  const std::string line = verify_line(recipe, {});
  EXPECT_EQ(line.rfind("gradloom verify " + recipe.model, 0), 0u) << line;
  EXPECT_EQ(line.find("steps"), std::string::npos) << line;
}

// The gradient of a bias that is added to all keys of an attention is zero: what rounding makes of it is no error.
TEST(GradientError, IsThatOfTheLargestWhereItIsZeroButForRounding) {
  const auto gradient = [](const std::string& name, double value) {
    Tensor tensor(DType::f64, {2});
    for (double& x : std::span(tensor.mutable_as<double>(), 2)) x = value;
    return Measured{MeasuredKind::gradient, name, tensor};
  };
  const std::vector<Measured> exact{gradient("w", 0.5), gradient("key", 1e-17), gradient("small", 1e-6)};
  EXPECT_NEAR(gradient_error({gradient("w", 0.5), gradient("key", 3e-9), gradient("small", 1e-6)}, exact),
              6e-9, 1e-12);
  EXPECT_NEAR(gradient_error({gradient("w", 0.505), gradient("key", 0), gradient("small", 1e-6)}, exact),
              0.01, 1e-9);
  EXPECT_NEAR(gradient_error({gradient("w", 0.5), gradient("key", 0), gradient("small", 2e-6)}, exact), 1,
              1e-9);
  EXPECT_EQ(gradient_error({gradient("key", std::nan(""))}, exact), INFINITY);
}

}  // namespace
}  // namespace gradloom
