// The first operator whose result is not finite is named: forward, backward, the update, and what was given.
#include "app/not_finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "app/train_steps.h"

#include "tests/app/command_fixture.h"
#include "tests/app/model_job.h"

namespace gradloom {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinite = INFINITY;

TEST(RangeOf, CountsEachKind) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    const OperandRange r =
        range_of("x", Tensor::from_f64(dtype, {6}, {kNaN, -2, kInfinite, 0.5, -kInfinite, kInfinite}));
    EXPECT_EQ(r.nan, 1);
    EXPECT_EQ(r.positive_infinite, 2);
    EXPECT_EQ(r.negative_infinite, 1);
    EXPECT_EQ(r.not_finite(), 4);
    EXPECT_EQ(r.least, -2);
    EXPECT_EQ(r.most, 0.5);
  }
  const OperandRange none = range_of("x", Tensor::from_f64(DType::f32, {1}, {kNaN}));
  EXPECT_EQ(none.least, 0);
  EXPECT_EQ(none.most, 0);
}

// A parameter that makes the product of the first layer overflow although it is finite itself.
void enlarge(Job& job, const std::string& name, double factor) {
  const ValueId id = find_value(job.compiled().train.graph, name);
  ASSERT_NE(id, kNone) << name;
  const Tensor before = *job.executor().read(id);
  std::vector<double> values = before.to_f64();
  for (double& v : values) v = factor * (v + 0.01);
  ASSERT_TRUE(job.executor().write(id, Tensor::from_f64(before.dtype(), before.shape(), values)).ok());
}

std::string first_parameter(const Job& job) {
  const Graph& graph = job.compiled().train.graph;
  return graph.value(graph.parameters[0]).name;
}

TEST(FindNotFinite, AHealthyStepHasNone) {
  for (const char* model : {"mlp", "cnn-digits", "bert-tiny"}) {
    SCOPED_TRACE(model);
    const auto job = make_job(model_recipe(model));
    ASSERT_NE(job, nullptr);
    UsualKernels usual;
    ASSERT_TRUE(find_not_finite(*job, 1, nullptr, &usual).ok());
    const auto found = find_not_finite(*job, 2, &usual);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_FALSE(*found) << not_finite_report(**found).text;
  }
}

// Observed steps are the steps.
TEST(FindNotFinite, TheStepIsMadeAsAnyOther) {
  Recipe recipe = model_recipe("bert-tiny");
  recipe.accumulate = 2;
  const auto observed = make_job(recipe), plain = make_job(recipe);
  ASSERT_TRUE(observed && plain);
  const UsualKernels none;
  ASSERT_TRUE(find_not_finite(*observed, 1, &none).ok());
  ASSERT_TRUE(plain->step(1).ok());
  const auto a = *observed->step(2), b = *plain->step(2);
  EXPECT_EQ(a.loss, b.loss);
  const auto expected = plain->parameters(), got = observed->parameters();
  ASSERT_TRUE(expected.ok() && got.ok());
  for (const auto& [name, tensor] : *expected) EXPECT_TRUE(bit_equal(tensor, got->at(name))) << name;
}

TEST(FindNotFinite, ForwardOverflowIsTheProductThatMadeIt) {
  for (const bool passes : {true, false}) {
    Recipe recipe = model_recipe("mlp");
    if (!passes) recipe.passes.clear();
    const auto job = make_job(recipe);
    ASSERT_NE(job, nullptr);
    const std::string name = first_parameter(*job);
    enlarge(*job, name, 3e38);
    const UsualKernels none;
    const auto found = find_not_finite(*job, 1, &none);
    ASSERT_TRUE(found.ok() && *found);
    const NotFinite& f = **found;
    EXPECT_EQ(f.kernel.phase, "forward") << not_finite_report(f).text;
    EXPECT_FALSE(f.kernel.onnx_nodes.empty());
    bool reads = false;
    for (const OperandRange& r : f.inputs) {
      EXPECT_EQ(r.not_finite(), 0) << r.name;
      reads = reads || r.most > 1e36;
    }
    EXPECT_TRUE(reads) << "it reads the large numbers: " << not_finite_report(f).text;
    const std::string text = not_finite_report(f).text;
    EXPECT_NE(text.find("forward, ONNX node "), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
    EXPECT_EQ(not_finite_report(f).json["phase"], "forward");
  }
}

TEST(FindNotFinite, AnUpdateThatOverflowsIsTheOptimizers) {
  const auto job = make_job(model_recipe("mlp", "sgd{lr=1e300}"));
  ASSERT_NE(job, nullptr);
  const UsualKernels none;
  const auto found = find_not_finite(*job, 1, &none);
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->kernel.phase, "optimizer") << not_finite_report(**found).text;
}

TEST(FindNotFinite, NaNThatWasGivenIsNamedSo) {
  const auto job = make_job(model_recipe("mlp"));
  ASSERT_NE(job, nullptr);
  const std::string name = first_parameter(*job);
  enlarge(*job, name, kNaN);
  const UsualKernels none;
  const auto found = find_not_finite(*job, 1, &none);
  ASSERT_TRUE(found.ok() && *found);
  EXPECT_EQ((*found)->plan_step, -1);
  const std::string text = not_finite_report(**found).text;
  EXPECT_NE(text.find("was given is not finite: parameter " + name), std::string::npos) << text;
  // What a step that went well has too is none of its faults.
  const auto again = make_job(model_recipe("mlp"));
  enlarge(*again, name, 3e38);
  UsualKernels usual;
  ASSERT_TRUE(find_not_finite(*again, 1, nullptr, &usual).ok());
  EXPECT_FALSE(usual.empty());
}

class Replays : public Commands {};

TEST_F(Replays, ALossThatIsNotFiniteNamesItsOperator) {
  for (const bool files : {false, true}) {
    std::vector<std::string> flags{"--optimizer", "sgd{lr=30000}", "--steps",
                                   "500",         "--session",     path("s.db")};
    if (files) flags.insert(flags.end(), {"--save-params", path("p.npz")});
    const Outcome o = run(train_mlp(flags));
    EXPECT_EQ(o.code, 7) << o.err;
    EXPECT_NE(o.err.find("the first result that is not finite, in step "), std::string::npos) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), files ? 2 : 1) << o.err;
    bool named = false;
    for (const json& line : o.lines())
      if (line.contains("not_finite")) {
        const json& found = line["not_finite"];
        named = true;
        EXPECT_FALSE(found["op"].get<std::string>().empty());
        for (const json& input : found["inputs"]) EXPECT_EQ(input["not_finite"], 0);
        EXPECT_GT(found["outputs"].size(), 0u);
      }
    EXPECT_TRUE(named) << o.out;
    const json shown = run({"show", path("s.db"), "--json"}).lines()[0];
    EXPECT_NE(shown["message"].get<std::string>().find("the first result that is not finite"),
              std::string::npos);
  }
}

// With the norm at hand the gradients tell before the parameters are lost.
TEST_F(Replays, GradientsThatAreNotFiniteEndTheRunInTheirStep) {
  StepResult result;
  result.loss = 1;
  EXPECT_TRUE(check_loss(result).ok()) << "not computed";
  result.grad_norm = kInfinite;
  EXPECT_EQ(check_loss(result).error().message, "the gradients are not finite at step 0");
  result.skipped = 1;
  EXPECT_TRUE(check_loss(result).ok()) << "f16: the step was not made";
}

}  // namespace
}  // namespace gradloom
