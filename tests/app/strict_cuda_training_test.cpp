// The CUDA plugin's own code over the strict driver: every operator's samples, and the models of tests/models with every way in which a
// step is queued. Losses agree with the CPU's as host-gpu's do, and with each other to the bit. Nothing is complained about, nothing is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "app/job.h"
#include "passes/compile.h"
#include "tests/app/all_samples.h"
#include "tests/app/model_job.h"
#include "tests/app/strict_cuda.h"
#include "tests/environment.h"
#include "tests/passes/padded_model.h"

namespace gradloom {
namespace {

void expect_samples_to_agree(const char* precision) {
  const StrictCuda strict;
  expect_samples_to_pass(kStrictDevice, precision);
  EXPECT_EQ(strict.complaints(), "");
  EXPECT_EQ(strict.left(), "");
  EXPECT_GT(strict.counts().work, 1000);
}

TEST(StrictCudaOperators, EverySampleAgreesWithTheCpu) { expect_samples_to_agree("f32"); }
TEST(StrictCudaOperators, EverySampleOfBf16AgreesWithTheCpu) { expect_samples_to_agree("bf16"); }

Recipe strict_recipe(const std::string& model, const std::string& device) {
  Recipe recipe = model_recipe(model);
  recipe.data = "synthetic";
  recipe.clip_norm = 1;
  recipe.dims = {{"batch", model == "gpt-char" ? 1 : 4}};
  recipe.device = device;
  return recipe;
}

// Losses of `steps` steps, pipelined as training does; every second one timed.
std::vector<double> strict_losses(const Recipe& recipe, std::int64_t steps, bool timed) {
  const auto job = make_job(recipe);
  if (job == nullptr) return {};
  job->executor().poison();
  std::vector<double> result;
  for (std::int64_t next = 1; static_cast<std::int64_t>(result.size()) < steps;) {
    while (next <= steps && job->pending() <= job->depth()) {
      const Status submitted = job->submit(next, timed && next % 2 == 0);
      ++next;
      EXPECT_TRUE(submitted.ok()) << submitted.error().message;
      if (!submitted.ok()) return result;
    }
    const auto r = job->collect();
    EXPECT_TRUE(r.ok()) << r.error().message;
    if (!r.ok()) return result;
    result.push_back(r->loss);
  }
  return result;
}

// How many tokens a batch has the host counts in its own memory, and each number of rows is launched, recorded and run again.
TEST(StrictCudaPadding, IsDroppedAsOnTheCpu) {
  const StrictCuda strict;
  const test::Model model({.type = DType::f32});
  for (const char* precision : {"", "bf16"}) {
    const test::Training cpu{.accumulate = 1, .steps = 12, .precision = precision},
        gpu{.accumulate = 1, .steps = 12, .device = kStrictDevice, .precision = precision};
    test::expect_same(test::train_padded(model.graph, "default,drop-padding", test::kBatches, cpu),
                      test::train_padded(model.graph, "default,drop-padding", test::kBatches, gpu),
                      *precision == '\0' ? 1e-5 : 3e-2);
    EXPECT_EQ(strict.complaints(), "");
    EXPECT_EQ(strict.left(), "");
  }
}

class StrictCudaModel : public ::testing::TestWithParam<const char*> {};

TEST_P(StrictCudaModel, TrainsAsTheCpuDoes) {
  const StrictCuda strict;
  const std::string model = GetParam();
  const std::int64_t steps = model == "gpt-char" ? 2 : 4;
  const std::vector<double> expected = strict_losses(strict_recipe(model, "cpu"), steps, false);
  Recipe recipe = strict_recipe(model, kStrictDevice);
  const std::vector<double> recorded = strict_losses(recipe, steps, false);
  ASSERT_EQ(recorded.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(recorded[i], expected[i], 1e-5 * std::max(1.0, std::fabs(expected[i]))) << "step " << i + 1;
  EXPECT_EQ(strict.complaints(), "");
  EXPECT_EQ(strict.left(), "");
  const auto expect_same = [&](const std::vector<double>& losses, const char* what) {
    ASSERT_EQ(losses.size(), recorded.size()) << what;
    EXPECT_EQ(std::memcmp(losses.data(), recorded.data(), losses.size() * sizeof(double)), 0) << what;
    EXPECT_EQ(strict.complaints(), "") << what;
    EXPECT_EQ(strict.left(), "") << what;
  };
  expect_same(strict_losses(recipe, steps, true), "recorded and timed");
  recipe.record = false;
  const Setting early("GRADLOOM_STRICT_COPIES", "early");
  expect_same(strict_losses(recipe, steps, true), "launched one by one and timed, copies early");
}

INSTANTIATE_TEST_SUITE_P(Models, StrictCudaModel,
                         ::testing::Values("mlp", "cnn-digits", "bert-tiny", "gpt-char"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Half types, whose products have epilogues and results beside them.
TEST(StrictCudaTypes, Bf16TrainsAsOnTheCpu) {
  const StrictCuda strict;
  Recipe recipe = strict_recipe("bert-tiny", "cpu");
  set_precision(recipe, "bf16");
  const std::vector<double> expected = strict_losses(recipe, 4, false);
  recipe.device = kStrictDevice;
  const std::vector<double> found = strict_losses(recipe, 4, true);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 2e-3 * std::max(1.0, std::fabs(expected[i]))) << "step " << i + 1;
  EXPECT_EQ(strict.complaints(), "");
  EXPECT_EQ(strict.left(), "");
}

// The library multiplies the codes of every layer; HIP's is not asked.
TEST(StrictCudaTypes, ProductsOf8BitsAreTheLibrarys) {
  const StrictCuda strict;
  Recipe recipe = strict_recipe("gpt-char", "cpu");
  set_pipeline(recipe, *parse_pipeline("default,fp8{least=64}"));
  set_precision(recipe, "bf16");
  const std::vector<double> expected = strict_losses(recipe, 3, false);
  recipe.device = kStrictDevice;
  if (std::string(GRADLOOM_STRICT_KIND) == "hip") {
    const auto job = Job::create(*prepare(recipe));
    ASSERT_FALSE(job.ok());
    EXPECT_EQ(job.error().code, Errc::usage);
    EXPECT_NE(job.error().message.find("has no products of 8 bits"), std::string::npos)
        << job.error().message;
    return;
  }
  const std::vector<double> found = strict_losses(recipe, 3, true);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-2 * expected[i]) << "step " << i + 1;
  const auto job = make_job(recipe);
  ASSERT_NE(job, nullptr);
  ASSERT_TRUE(job->step(1).ok());
  int products = 0;
  for (const Implementations& step : job->implementations())
    for (const Implementation& one : step) {
      if (one.kernel != "fp8_product") continue;
      EXPECT_EQ(one.library, "cublasLt 13.1.0") << one.detail;
      ++products;
    }
  EXPECT_EQ(products, 3 * 16) << "each layer's product and its gradients";
  EXPECT_EQ(strict.complaints(), "");
}

TEST(StrictCudaBare, TrainsWithoutLibraries) {
  const StrictCuda strict(use_bare_strict_cuda);
  const std::vector<double> expected = strict_losses(strict_recipe("bert-tiny", "cpu"), 3, false),
                            found = strict_losses(strict_recipe("bert-tiny", kStrictDevice), 3, true);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-5 * std::max(1.0, std::fabs(expected[i]))) << "step " << i + 1;
  EXPECT_EQ(strict.complaints(), "");
  EXPECT_EQ(strict.left(), "");
}

// Copies that are steps of the plan, on streams of their own, within the recording.
TEST(StrictCudaOffload, TrainsAsWithoutIt) {
  const StrictCuda strict;
  Recipe recipe = strict_recipe("bert-tiny", kStrictDevice);
  const std::vector<double> resident = strict_losses(recipe, 3, false);
  recipe.offload = {"*"};
  for (const bool record : {true, false}) {
    recipe.record = record;
    for (const char* copies : {"late", "early"}) {
      const Setting setting("GRADLOOM_STRICT_COPIES", copies);
      EXPECT_EQ(strict_losses(recipe, 3, record), resident) << copies;
      EXPECT_EQ(strict.complaints(), "") << copies;
      EXPECT_EQ(strict.left(), "");
    }
  }
}

}  // namespace
}  // namespace gradloom
