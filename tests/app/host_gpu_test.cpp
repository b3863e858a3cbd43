// The GPU path end to end without a GPU: device host-gpu runs the GPU kernels' sources on the CPU behind the
// same plugin interface.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>

#include "app/job.h"
#include "app/model_summary.h"
#include "engine/base/text.h"
#include "engine/device/gpu_device.h"
#include "engine/onnx/file/tensor_proto.h"
#include "engine/ir/op.h"
#include "passes/compile.h"
#include "tests/engine/onnx/support.h"
#include "tests/engine/run/order.h"
#include "tests/environment.h"
#include "tests/app/host_gpu_support.h"
#include "tests/app/all_samples.h"
#include "tests/app/model_job.h"
#include "tests/passes/padded_model.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

Recipe recipe_for(const std::string& model, const std::string& passes, const std::string& device) {
  Recipe recipe = model_recipe(model);
  recipe.data = "synthetic";
  recipe.clip_norm = 1;
  recipe.dims = {{"batch", model == "gpt-char" ? 1 : 4}};
  recipe.device = device;
  const auto pipeline = parse_pipeline(passes);
  if (pipeline.ok()) set_pipeline(recipe, *pipeline);
  return recipe;
}

std::string test_name(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// Losses of `steps` steps, pipelined as training does.
std::vector<double> losses_of(const Recipe& recipe, std::int64_t steps, bool timed = false) {
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
    if (timed && r->step % 2 == 0) {
      EXPECT_EQ(r->samples.size(), job->compiled().plan.steps.size()) << "step " << r->step;
    }
  }
  return result;
}

TEST(HostGpu, EveryOperatorSampleAgreesWithTheCpu) {
  REQUIRE_HOST_GPU();
  for (const char* precision : {"f32", "f64", "f16", "bf16"}) expect_samples_to_pass("host-gpu", precision);
}

class HostGpuModel : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(HostGpuModel, TrainsAsTheCpuDoes) {
  REQUIRE_HOST_GPU();
  const auto [model, passes] = GetParam();
  const std::int64_t steps = std::string(model) == "gpt-char" ? 3 : 5;
  const std::vector<double> expected = losses_of(recipe_for(model, passes, "cpu"), steps);
  Recipe recipe = recipe_for(model, passes, "host-gpu");
  const std::vector<double> recorded = losses_of(recipe, steps);
  ASSERT_EQ(recorded.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(recorded[i], expected[i], 1e-5 * std::max(1.0, std::fabs(expected[i]))) << "step " << i + 1;
  recipe.record = false;
  const std::vector<double> launched = losses_of(recipe, steps, true);
  ASSERT_EQ(launched.size(), recorded.size());
  EXPECT_EQ(std::memcmp(launched.data(), recorded.data(), recorded.size() * sizeof(double)), 0)
      << "recorded, launched and timed steps differ";
}

INSTANTIATE_TEST_SUITE_P(Models, HostGpuModel,
                         ::testing::Combine(::testing::Values("mlp", "cnn-digits", "bert-tiny", "gpt-char"),
                                            ::testing::Values("default", "none")),
                         [](const auto& test) {
                           return test_name(std::string(std::get<0>(test.param)) + "_" +
                                            std::get<1>(test.param));
                         });

// Without a library codes are multiplied as numbers of bf16, which they are.
TEST(HostGpu, ProductsOf8BitsTrainAsOnTheCpu) {
  REQUIRE_HOST_GPU();
  for (const char* scaling : {"delayed", "current"}) {
    const std::string passes = std::string("default,fp8{least=16,scaling=") + scaling + "}";
    const std::vector<double> expected = losses_of(recipe_for("bert-tiny", passes, "cpu"), 4),
                              found = losses_of(recipe_for("bert-tiny", passes, "host-gpu"), 4, true);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-2 * std::max(1.0, expected[i])) << scaling << ", step " << i + 1;
  }
}

// The model with f16 in the place of f32.
void make_f16(onnx::TensorProto& tensor) {
  if (tensor.data_type() != onnx::TensorProto::FLOAT) return;
  const auto full = TensorReader(Limits(), "").read(tensor);
  ASSERT_TRUE(full.ok()) << full.error().message;
  tensor.clear_float_data();
  write_tensor(full->cast(DType::f16), &tensor);
}
void make_f16(onnx::ModelProto& model) {
  onnx::GraphProto& graph = *model.mutable_graph();
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) make_f16(tensor);
  for (auto* values : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()})
    for (onnx::ValueInfoProto& value : *values)
      if (value.type().tensor_type().elem_type() == onnx::TensorProto::FLOAT)
        value.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT16);
  for (onnx::NodeProto& node : *graph.mutable_node())
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) make_f16(*attribute.mutable_t());
      const bool cast = node.op_type() == "Cast" && attribute.name() == "to";
      if (cast && attribute.i() == onnx::TensorProto::FLOAT) attribute.set_i(onnx::TensorProto::FLOAT16);
    }
}

// A model in f16 lacks nothing on a GPU, and trains there as on the CPU, within its rounding.
class HostGpuF16 : public ::testing::TestWithParam<const char*> {};

TEST_P(HostGpuF16, TrainsAsTheCpuDoes) {
  REQUIRE_HOST_GPU();
  Recipe recipe = recipe_for(GetParam(), "default", "cpu");
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(test::read_bytes(recipe.model)));
  ASSERT_NO_FATAL_FAILURE(make_f16(model));
  const TemporaryFolder folder;
  recipe.model = folder / "model.onnx";
  test::write_bytes(recipe.model, model.SerializeAsString());
  recipe.optimizer = "sgd{lr=0.1}";  // Adam's squares of gradients are too small for f16
  ImportOptions options;
  options.dims = recipe.dims;
  const auto imported = import_onnx(recipe.model, options);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  const ModelSummary summary = summarize(*imported, imported->graph.outputs);
  EXPECT_TRUE(summary.no_gpu_kernel.empty())
      << summary.no_gpu_kernel[0].op << ": " << summary.no_gpu_kernel[0].reason;
  EXPECT_TRUE(summary.no_cpu_kernel.empty());
  constexpr std::int64_t kSteps = 5;
  const std::vector<double> cpu = losses_of(recipe, kSteps);
  recipe.device = "host-gpu";
  const std::vector<double> gpu = losses_of(recipe, kSteps);
  ASSERT_EQ(cpu.size(), std::size_t(kSteps));
  ASSERT_EQ(gpu.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i)
    EXPECT_NEAR(gpu[i], cpu[i], 2.5e-3 * std::fabs(cpu[i])) << "step " << i + 1;
  EXPECT_NE(gpu.back(), gpu.front()) << "was anything trained?";
  const auto job = make_job(recipe);
  ASSERT_NE(job, nullptr);
  const auto parameters = job->parameters();
  ASSERT_TRUE(parameters.ok());
  for (const auto& [name, value] : *parameters) EXPECT_EQ(value.dtype(), DType::f16) << name;
}

INSTANTIATE_TEST_SUITE_P(Models, HostGpuF16, ::testing::Values("mlp", "cnn-digits", "bert-tiny", "gpt-char"),
                         [](const auto& test) { return test_name(test.param); });

// Mixed precision: the losses of f32 within what 16 bits round away, parameters in f32, and the same plan on
// the CPU. The two round different sums, so they are as near to each other as the type is to f32. f16 has
// three bits more than bf16; with this loss scale no step is skipped.
std::unique_ptr<Job> expect_mixed(const char* model, const std::string& precision,
                                  const std::string& passes) {
  constexpr std::int64_t kSteps = 10;
  const double coarse = precision == "f16" ? 0.125 : 1;
  Recipe recipe = recipe_for(model, passes, "cpu");
  const std::vector<double> f32 = losses_of(recipe, kSteps);
  set_precision(recipe, precision);
  recipe.loss_scale = "dynamic{initial=4096}";
  const std::vector<double> cpu = losses_of(recipe, kSteps);
  recipe.device = "host-gpu";
  auto job = make_job(recipe);
  EXPECT_NE(job, nullptr);
  EXPECT_EQ(cpu.size(), f32.size());
  if (job == nullptr || cpu.size() != f32.size()) return nullptr;
  double worst = 0, apart = 0;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    const auto result = job->step(step);
    EXPECT_TRUE(result.ok()) << result.error().message;
    if (!result.ok()) return nullptr;
    EXPECT_EQ(result->skipped, 0);
    const double want = f32[static_cast<std::size_t>(step) - 1], loss = result->loss;
    worst = std::max(worst, std::fabs(loss - want) / std::fabs(want));
    apart = std::max(apart, std::fabs(loss - cpu[static_cast<std::size_t>(step) - 1]) / std::fabs(want));
  }
  ::testing::Test::RecordProperty("worst_against_f32", std::to_string(worst));
  ::testing::Test::RecordProperty("worst_against_cpu", std::to_string(apart));
  EXPECT_LT(worst, 5e-2 * coarse);
  EXPECT_GT(worst, 1e-6 * coarse) << "was anything computed in 16 bits?";
  EXPECT_LT(apart, 2e-2 * coarse);
  return job;
}

class HostGpuMixed : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(HostGpuMixed, TrainsIn16Bits) {
  REQUIRE_HOST_GPU();
  const auto [model, precision] = GetParam();
  const auto job = expect_mixed(model, precision, "default");
  ASSERT_NE(job, nullptr);
  const auto parameters = job->parameters();
  ASSERT_TRUE(parameters.ok());
  for (const auto& [name, value] : *parameters) EXPECT_EQ(value.dtype(), DType::f32) << name;
}

INSTANTIATE_TEST_SUITE_P(Models, HostGpuMixed,
                         ::testing::Combine(::testing::Values("mlp", "cnn-digits", "bert-tiny", "gpt-char"),
                                            ::testing::Values("bf16", "f16")),
                         [](const auto& test) {
                           return test_name(std::string(std::get<0>(test.param)) + "_" +
                                            std::get<1>(test.param));
                         });

// The same with attention by our own kernels of one piece, which each step tells.
class HostGpuAttention : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(HostGpuAttention, TrainsIn16Bits) {
  REQUIRE_HOST_GPU();
  const auto [model, precision] = GetParam();
  const auto job = expect_mixed(model, precision, "default,fuse-attention{min_keys=1}");
  ASSERT_NE(job, nullptr);
  std::map<std::string, int> ours;
  for (const Implementations& of_step : job->implementations())
    for (const Implementation& used : of_step)
      if (used.detail == kernels::kFlashAttentionName) ++ours[used.kernel];
  const int layers = std::string_view(model) == "gpt-char" ? 4 : 2;
  EXPECT_EQ(ours["flash_attention"], layers);
  EXPECT_EQ(ours["flash_attention_grad"], layers);
}

INSTANTIATE_TEST_SUITE_P(Models, HostGpuAttention,
                         ::testing::Combine(::testing::Values("bert-tiny", "gpt-char"),
                                            ::testing::Values("bf16", "f16")),
                         [](const auto& test) {
                           return test_name(std::string(std::get<0>(test.param)) + "_" +
                                            std::get<1>(test.param));
                         });

// Relu, and a residual sum with Relu, forward and backward.
TEST(HostGpu, FusedBatchNormalizationsKeepTheirBits) {
  REQUIRE_HOST_GPU();
  for (const char* const precision : {"f32", "bf16", "f16"}) {
    SCOPED_TRACE(precision);
    Recipe apart = recipe_for("cnn-digits", "none", "host-gpu"),
           fused = recipe_for("cnn-digits", "fuse-batch-norm", "host-gpu");
    apart.precision = fused.precision = precision;
    const auto job = make_job(fused);
    ASSERT_NE(job, nullptr);
    int results = 0, gradients = 0;
    for (const Node& node : job->compiled().train.graph.nodes) {
      results += node.alive() && is_op(node, "FusedBatchNorm") ? 1 : 0;
      gradients += node.alive() && is_op(node, "FusedBatchNormGrad") ? 1 : 0;
    }
    EXPECT_EQ(results, 3);
    EXPECT_GE(gradients, 1);
    EXPECT_EQ(losses_of(apart, 6), losses_of(fused, 6));
  }
}

// The second step's gradients overflow in f16 when they are multiplied by 2^16.
TEST(HostGpu, SkipsTheStepsThatTheCpuSkips) {
  REQUIRE_HOST_GPU();
  Recipe recipe = recipe_for("cnn-digits", "default", "cpu");
  set_precision(recipe, "f16");
  const auto cpu = make_job(recipe);
  recipe.device = "host-gpu";
  const auto gpu = make_job(recipe);
  ASSERT_TRUE(cpu != nullptr && gpu != nullptr);
  int skipped = 0;
  for (std::int64_t step = 1; step <= 6; ++step) {
    const auto want = cpu->step(step), got = gpu->step(step);
    ASSERT_TRUE(want.ok() && got.ok());
    EXPECT_EQ(got->skipped, want->skipped) << "step " << step;
    EXPECT_EQ(got->loss_scale, want->loss_scale) << "step " << step;
    skipped += want->skipped > 0;
  }
  EXPECT_EQ(skipped, 1);
}

TEST(HostGpu, AccumulationAndOptimizersAgree) {
  REQUIRE_HOST_GPU();
  for (const char* optimizer :
       {"sgd{lr=0.05,momentum=0.9,nesterov=true}", "adam{lr=1e-2}", "lamb{lr=1e-2}", "adagrad{lr=1e-2}",
        "lion{lr=1e-3}", "adamw_hf{lr=1e-2}", "adafactor", "adamw{lr=1e-2,amsgrad=true}",
        "rmsprop{lr=1e-3,momentum=0.9,centered=true,eps=1e-3}", "nadam{lr=1e-2}", "radam{lr=1e-2}",
        "adadelta"}) {
    Recipe cpu = recipe_for("mlp", "default", "cpu");
    cpu.optimizer = optimizer;
    cpu.accumulate = 3;
    Recipe gpu = cpu;
    gpu.device = "host-gpu";
    const std::vector<double> a = losses_of(cpu, 4), b = losses_of(gpu, 4);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(b[i], a[i], 1e-5 * std::max(1.0, std::fabs(a[i]))) << optimizer << " step " << i + 1;
  }
}

// The vocabulary head's gradient is added to its accumulator, tied to the embedding or not.
TEST(HostGpu, AccumulatedHeadsAgree) {
  REQUIRE_HOST_GPU();
  const std::pair<const char*, const char*> cases[] = {{"gpt-char", "bf16"}, {"mlp", "f32"}, {"mlp", "bf16"}};
  for (const auto& [model, precision] : cases) {
    Recipe cpu = recipe_for(model, "default,fuse-linear-cross-entropy{min_mib=0,chunk_mib=1}", "cpu");
    cpu.optimizer = "adamw{lr=1e-3}";
    cpu.accumulate = 3;
    set_precision(cpu, precision);
    Recipe gpu = cpu;
    gpu.device = "host-gpu";
    const std::vector<double> a = losses_of(cpu, 2), b = losses_of(gpu, 2);
    ASSERT_EQ(a.size(), b.size());
    const double tolerance = std::string(precision) == "f32" ? 1e-5 : 2e-2;
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(b[i], a[i], tolerance * std::max(1.0, std::fabs(a[i]))) << model << " step " << i + 1;
  }
}

// The launches that the host made and the kernels that they started are of the same
// plan step and micro-batch.
TEST(HostGpu, ActivitiesOfATimedStepBelongToItsKernels) {
  REQUIRE_HOST_GPU();
  for (const bool record : {true, false}) {
    for (const std::int64_t micro_batches : {1, 3}) {
      Recipe recipe = recipe_for("mlp", "default", "host-gpu");
      recipe.record = record;
      recipe.accumulate = micro_batches;
      const auto job = make_job(recipe);
      ASSERT_NE(job, nullptr);
      ASSERT_TRUE(job->step(1).ok());
      ASSERT_TRUE(job->step(2).ok());
      const auto step = job->step(3, true);
      ASSERT_TRUE(step.ok());
      std::map<std::pair<std::int32_t, std::int32_t>, const KernelSample*> kernels;
      for (const KernelSample& k : step->samples) kernels[{k.micro, k.plan_step}] = &k;
      EXPECT_EQ(kernels.size(), step->samples.size());
      std::size_t launches = 0, uploads = 0;
      for (const Activity& a : step->activities) {
        EXPECT_LE(a.start_ns, a.end_ns);
        EXPECT_GE(a.start_ns, step->end_ns - step->step_ns);
        EXPECT_LE(a.end_ns, step->end_ns + 1'000'000);
        uploads += a.kind == Activity::Kind::copy && a.stream == GPU_UPLOAD;
        if (a.kind != Activity::Kind::api) continue;
        ++launches;
        ASSERT_EQ(kernels.count({a.micro, a.plan_step}), 1u) << a.micro << " " << a.plan_step;
        EXPECT_LE(a.start_ns, kernels.at({a.micro, a.plan_step})->start_ns);
      }
      const std::size_t parts =
          micro_batches == 1 ? 1 : static_cast<std::size_t>(micro_batches) + 1;  // and once per step
      EXPECT_EQ(launches, record ? parts : kernels.size());
      EXPECT_EQ(uploads, static_cast<std::size_t>(micro_batches));
    }
  }
}

// A host that comes late learns from the device when a step was over.
TEST(HostGpu, StepsEndWhenTheDeviceIsDone) {
  REQUIRE_HOST_GPU();
  const auto job = make_job(recipe_for("mlp", "default", "host-gpu"));
  ASSERT_NE(job, nullptr);
  for (std::int64_t step = 1; step <= 3; ++step) ASSERT_TRUE(job->step(step).ok());
  constexpr std::int64_t kLateNs = 200'000'000;
  std::int64_t last_end_ns = 0;
  for (std::int64_t next = 4, done = 4; done <= 6; ++done) {
    while (next <= 6 && job->pending() <= job->depth()) ASSERT_TRUE(job->submit(next++).ok());
    const std::int64_t submitted_ns = monotonic_ns();
    std::this_thread::sleep_for(std::chrono::nanoseconds(kLateNs));
    const auto step = job->collect();
    ASSERT_TRUE(step.ok());
    EXPECT_LT(step->end_ns, submitted_ns + kLateNs / 2) << "step " << done;
    EXPECT_GT(step->step_ns, 0);
    EXPECT_LT(step->step_ns, kLateNs / 2) << "step " << done;
    EXPECT_GT(step->end_ns, last_end_ns);
    last_end_ns = step->end_ns;
  }
}

// ---- algorithms -----------------------------------------------------------------------------------------------------------------

// The search finds one of two algorithms whose sums differ in the last bits; what it found gives the same
// bits in a later run, whatever would be the fastest then.
TEST(HostGpu, TheSearchedAlgorithmIsUsedAgain) {
  REQUIRE_HOST_GPU();
  Recipe recipe = recipe_for("gpt-char", "default", "host-gpu");
  // The bytes of all parameters after two steps.
  const auto trained = [](const Recipe& r, const Algorithms& known, Algorithms* used) {
    auto prepared = prepare(r);
    EXPECT_TRUE(prepared.ok());
    auto job = Job::create(std::move(prepared).value(), known);
    EXPECT_TRUE(job.ok()) << job.error().message;
    for (std::int64_t step = 1; step <= 2; ++step) EXPECT_TRUE((*job)->step(step).ok());
    if (used != nullptr) *used = (*job)->algorithms();
    const auto parameters = (*job)->parameters();
    EXPECT_TRUE(parameters.ok());
    std::string bytes;
    for (const auto& [name, tensor] : *parameters)
      bytes.append(static_cast<const char*>(static_cast<const void*>(tensor.data())), tensor.bytes());
    return bytes;
  };
  const std::string suggested = trained(recipe, {}, nullptr);
  recipe.search = 2;
  Algorithms found, used;
  std::string whole;
  {
    const Setting fastest("GRADLOOM_HOSTGPU_FASTEST", "1");
    whole = trained(recipe, {}, &found);
  }
  ASSERT_FALSE(found.empty());
  for (const auto& [problem, algorithm] : found) EXPECT_EQ(algorithm.bytes, "01") << problem;
  EXPECT_TRUE(whole != suggested) << "the two algorithms cannot be told apart";
  const Setting fastest("GRADLOOM_HOSTGPU_FASTEST", "0");
  EXPECT_TRUE(trained(recipe, {}, &used) == suggested);
  EXPECT_TRUE(trained(recipe, found, &used) == whole) << "known from a session";
  EXPECT_EQ(used.size(), found.size());
  Recipe replayed = recipe;
  for (const auto& [problem, algorithm] : found) replayed.algorithms[problem] = algorithm.bytes;
  EXPECT_TRUE(trained(replayed, {}, &used) == whole) << "known from a recipe";
  // Bytes that are none of the library's algorithms are as if they were not there.
  for (const char* bytes : {"05", "0101", "", "no hexadecimal"}) {
    for (auto& [problem, text] : replayed.algorithms) text = bytes;
    EXPECT_TRUE(trained(replayed, {}, &used) == suggested) << bytes;
    for (const auto& [problem, algorithm] : used) EXPECT_EQ(algorithm.bytes, "00") << problem;
  }
  replayed.algorithms = {{"another library; 1 2 3", "01"}};
  EXPECT_TRUE(trained(replayed, {}, &used) == suggested);
  EXPECT_EQ(used.size(), found.size()) << "problems of others are not handed on";
}

// ---- padding --------------------------------------------------------------------------------------------------------------------

// drop-padding, over batches of other lengths in turn, so that each number of rows is launched, recorded and run again.
TEST(HostGpu, PaddingIsDroppedInAllPrecisions) {
  REQUIRE_HOST_GPU();
  const auto check = [](test::Form form, const std::string& precision, double tolerance) {
    const test::Model model({.type = DType::f32, .dropout = true, .form = form});
    const test::Training gpu{.accumulate = 1, .steps = 12, .device = "host-gpu", .precision = precision},
        sums{.accumulate = 3, .steps = 4, .device = "host-gpu", .precision = precision},
        cpu{.accumulate = 1, .steps = 12, .precision = precision};
    const auto train = [&](const char* passes, const test::Training& how) {
      return test::train_padded(model.graph, passes, test::kBatches, how);
    };
    const auto dropped = train("default,drop-padding", gpu);
    test::expect_same(train("default", gpu), dropped, tolerance);
    test::expect_same(train("default,drop-padding", cpu), dropped, tolerance);
    test::expect_same(train("default", sums), train("default,drop-padding", sums), tolerance);
  };
  check(test::Form::keep, "", 1e-5);
  check(test::Form::pad_id, "", 1e-5);
  check(test::Form::keep, "bf16", 3e-2);
  check(test::Form::pad_id, "f16", 4e-3);
}

// Rows of tokens from kernels that every device has are those that the CPU counts.
TEST(HostGpu, TokensAreFoundAsOnTheCpu) {
  REQUIRE_HOST_GPU();
  const test::Model model({.type = DType::f64});
  for (const test::Lengths& lengths : test::kBatches) {
    const test::Training gpu{.device = "host-gpu"};
    test::expect_same(test::train_padded(model.graph, "none", {lengths}),
                      test::train_padded(model.graph, "drop-padding", {lengths}, gpu), 1e-12);
  }
}

// select-rows: the loss reads the first token of each text, whose query alone attends in the last layer.
TEST(HostGpu, RowsAreSelectedInAllPrecisions) {
  REQUIRE_HOST_GPU();
  for (const auto& [precision, tolerance] :
       {std::pair("", 1e-5), std::pair("bf16", 3e-2), std::pair("f16", 4e-3)}) {
    const test::Model model({.type = DType::f32, .dropout = true});
    const auto train = [&](const char* passes, const char* device) {
      return test::train_padded(model.graph, passes, test::kBatches,
                                {.accumulate = 2, .device = device, .precision = precision});
    };
    const auto selected = train("default,fuse-attention{min_keys=1}", "host-gpu");
    test::expect_same(train("default,fuse-attention{min_keys=1},-select-rows", "host-gpu"), selected,
                      tolerance);
    test::expect_same(train("default,fuse-attention{min_keys=1}", "cpu"), selected, tolerance);
  }
}

// ---- order ----------------------------------------------------------------------------------------------------------------------

TEST(Order, TheCheckerFindsWhatIsMissing) {
  const OrderedRange a{0, 64}, b{64, 128};
  using Kind = OrderedWork::Kind;
  const OrderedWork up{Kind::work, 1, -1, "upload", {}, {a}, {}},
      use{Kind::work, 0, -1, "kernel", {a}, {b}, {}};
  const OrderedWork record{Kind::record, 1, 5}, wait{Kind::wait, 0, 5}, early{Kind::record, 1, 5};
  EXPECT_EQ(first_disorder({up, record, wait, use}), "");
  EXPECT_EQ(first_disorder({up, record, use}), "kernel does not wait for upload");
  EXPECT_EQ(first_disorder({early, up, wait, use}), "kernel does not wait for upload");
  EXPECT_EQ(first_disorder({up, {Kind::host_wait_all}, use}), "");
  const OrderedWork again{Kind::work, 1, -1, "next upload", {b}, {}, {b}},
      reader{Kind::work, 0, -1, "reader", {b}, {}, {}};
  EXPECT_EQ(first_disorder({reader, again}), "the host writes what next upload reads before reader is over");
  EXPECT_EQ(first_disorder({reader, {Kind::record, 0, 7}, {Kind::host_wait, 0, 7}, again}), "");
}

TEST(HostGpu, WorkIsOrderedAsItsMemoryDemands) {
  REQUIRE_HOST_GPU();
  for (const bool recorded : {true, false}) {
    Recipe recipe = recipe_for("bert-tiny", "default", "host-gpu");
    recipe.record = recorded;
    recipe.accumulate = 2;
    const auto job = make_job(recipe);
    ASSERT_NE(job, nullptr);
    QueuedWork queued;
    ASSERT_NO_FATAL_FAILURE(queue_steps(*job, 4, queued));
    EXPECT_TRUE(queued.streams.count(GPU_UPLOAD) == 1 && queued.streams.count(GPU_COMPUTE) == 1);
    EXPECT_GE(queued.kernels, job->compiled().plan.steps.size() * 4);
    EXPECT_EQ(first_disorder(queued.work), "") << (recorded ? "recorded" : "launched");
    // The check can fail: without the events that order the two streams it does.
    EXPECT_NE(first_disorder(queued.loose()), "");
  }
}

TEST(HostGpu, NothingIsAllocatedOrCompiledWithinAStep) {
  REQUIRE_HOST_GPU();
  const auto job = make_job(recipe_for("mlp", "default", "host-gpu"));
  ASSERT_NE(job, nullptr);
  ASSERT_TRUE(job->step(1).ok());
  ASSERT_TRUE(job->step(2).ok());
  const Setting fail("GRADLOOM_HOSTGPU_FAIL", "allocate:1=4,compile:1=5,end_capture:1=5");
  const auto third = job->step(3);
  EXPECT_TRUE(third.ok()) << third.error().message;
}

}  // namespace
}  // namespace gradloom
