// k steps, a checkpoint and the other steps are the same bits as all steps at once.
#include "app/training_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "app/last_good.h"
#include "engine/base/npz.h"
#include "engine/base/plugins.h"
#include "engine/device/plugin.h"
#include "engine/ops/products/fp8.h"
#include "engine/train/optimizers.h"
#include "tests/app/model_job.h"
#include "tests/environment.h"
#include "tests/folder.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

constexpr std::int64_t kSteps = 6, kBefore = 2;

Recipe recipe_with(const std::string& model, const std::string& optimizer) {
  Recipe recipe = model_recipe(model, optimizer);
  recipe.schedule = "cosine{warmup=3,total=8}";
  recipe.seed = 7;
  if (model != "gpt-char") return recipe;
  recipe.dims = {{"batch", 2}};
  recipe.data = "tokens:" GRADLOOM_SOURCE_DIR "/ARCHITECTURE.md";
  return recipe;
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> parameters, results;
};

Trained train(Job& job, std::int64_t last) {
  Trained trained;
  for (std::int64_t step = job.steps_before() + 1; step <= last; ++step) {
    job.executor().poison();
    const auto result = job.step(step);
    EXPECT_TRUE(result.ok()) << result.error().message;
    if (!result.ok()) return trained;
    trained.losses.push_back(result->loss);
  }
  trained.parameters = *job.parameters();
  trained.results = copied(*job.result_views());
  return trained;
}

void expect_equal(const Trained& expected, const Trained& got) {
  ASSERT_EQ(expected.losses.size(), static_cast<std::size_t>(kSteps));
  ASSERT_EQ(got.losses.size(), static_cast<std::size_t>(kSteps - kBefore));
  for (std::size_t i = 0; i < got.losses.size(); ++i)
    EXPECT_EQ(std::memcmp(&expected.losses[i + kBefore], &got.losses[i], sizeof(double)), 0)
        << "step " << i + kBefore + 1 << ": " << expected.losses[i + kBefore] << " and " << got.losses[i];
  ASSERT_EQ(expected.parameters.size(), got.parameters.size());
  for (const auto& [name, tensor] : expected.parameters)
    EXPECT_TRUE(bit_equal(tensor, got.parameters.at(name))) << name;
  for (const auto& [name, tensor] : expected.results)
    EXPECT_TRUE(bit_equal(tensor, got.results.at(name))) << name;
}

class TrainingState : public testing::Test {
 protected:
  // After kBefore steps, by way of the disk.
  Checkpoint checkpoint(const Recipe& recipe) {
    const auto job = make_job(recipe);
    if (job == nullptr) return {};
    train(*job, kBefore);
    const auto taken = checkpoint_of(*job, kBefore);
    EXPECT_TRUE(taken.ok()) << taken.error().message;
    const std::string path = folder_ / ("c" + std::to_string(++count_));
    std::filesystem::create_directory(path);
    const Status written = write_checkpoint(path, *taken);
    EXPECT_TRUE(written.ok()) << written.error().message;
    auto read = read_checkpoint(path);
    EXPECT_TRUE(read.ok()) << read.error().message;
    return read.ok() ? std::move(read).value() : Checkpoint();
  }
  void expect_bit_equal(const Recipe& recipe) {
    const Checkpoint from = checkpoint(recipe);
    EXPECT_EQ(from.step, kBefore);
    EXPECT_EQ(from.next_batch, kBefore * recipe.accumulate);
    const auto whole = make_job(recipe), rest = make_job(recipe, &from);
    ASSERT_TRUE(whole != nullptr && rest != nullptr);
    expect_equal(train(*whole, kSteps), train(*rest, kSteps));
  }
  void expect_refused(const Recipe& recipe, const Checkpoint& from, const std::string& text) {
    const auto prepared = prepare(recipe, {}, &from);
    ASSERT_FALSE(prepared.ok()) << text;
    EXPECT_EQ(prepared.error().code, Errc::bad_input);
    EXPECT_NE(prepared.error().message.find(text), std::string::npos) << prepared.error().message;
  }
  // "exp_avg", ..: what the checkpoint calls the first state of a parameter.
  static std::string first_state(const Checkpoint& from) {
    const std::string prefix = "layers.0.bias.";
    for (const auto& [key, tensor] : from.optimizer.tensors)
      if (key.starts_with(prefix) && key != prefix + "step") return key.substr(prefix.size());
    return "";
  }
  TemporaryFolder folder_;
  int count_ = 0;
};

// Every optimizer that there is, in the form in which it keeps states.
TEST_F(TrainingState, ResumedStepsAreBitEqualForEveryOptimizer) {
  for (const OptimizerDef& def : all_optimizers())
    for (const char* model : {"cnn-digits", "mlp"}) {
      SCOPED_TRACE(std::string(model) + " " + def.name);
      expect_bit_equal(recipe_with(model, std::string(def.name) + "{" + def.start + "}"));
    }
}

// States of 8 bits go through the file as they are, with bf16, too, and on the way are read by trainings that keep them in f32: one
// reads what the other wrote, and the numbers are the same as they encode to the same bytes.
TEST_F(TrainingState, StatesOf8BitsGoOnAndBecomeWideOnesAndBack) {
  const std::string eight = "eight_bit_states=true";
  for (const OptimizerDef& def : all_optimizers()) {
    if (std::none_of(def.options.begin(), def.options.end(),
                     [](const OptimizerOption& o) { return o.flag == &OptimizerSpec::eight_bit_states; }))
      continue;
    SCOPED_TRACE(def.name);
    const std::string text = std::string(def.name) + "{" + def.start;
    const Recipe wide = recipe_with("mlp", text + "}");
    Recipe encoded = recipe_with("mlp", text + "," + eight + "}");
    expect_bit_equal(encoded);
    const Checkpoint from = checkpoint(encoded);
    const std::string first = "layers.0.weight." + first_state(from);
    ASSERT_TRUE(from.optimizer.tensors.count(first + ".codes") &&
                from.optimizer.tensors.count(first + ".scales"));
    EXPECT_EQ(from.optimizer.tensors.at(first + ".codes").type(), (Type{DType::u8, {96, 64}}));
    EXPECT_FALSE(from.optimizer.tensors.count(first));
    EXPECT_TRUE(from.optimizer.tensors.count("layers.0.bias." + first_state(from)))
        << "small ones keep their width";
    // 8 bits -> f32 without a step -> 8 bits: the steps after are those of the run that never stopped.
    const auto widened = make_job(wide, &from);
    ASSERT_NE(widened, nullptr);
    Checkpoint between = *checkpoint_of(*widened, kBefore);
    EXPECT_EQ(between.optimizer.tensors.at(first).type(), (Type{DType::f32, {96, 64}}));
    between.path = from.path;
    const auto whole = make_job(encoded), rest = make_job(encoded, &between);
    ASSERT_TRUE(whole != nullptr && rest != nullptr);
    expect_equal(train(*whole, kSteps), train(*rest, kSteps));
    EXPECT_EQ(train(*widened, kSteps).losses.size(), static_cast<std::size_t>(kSteps - kBefore));
  }
  Recipe low = recipe_with("bert-tiny", "adamw{lr=1e-3," + eight + "}");
  for (const char* precision : {"bf16", "bf16{weights=low}", "f64"}) {
    set_precision(low, precision);
    expect_bit_equal(low);
  }
}

TEST_F(TrainingState, ResumedStepsAreBitEqualWithTokens) {
  expect_bit_equal(recipe_with("gpt-char", "adamw{lr=1e-3}"));
}

// The masks are those of the steps, and synthetic batches too.
TEST_F(TrainingState, ResumedStepsAreBitEqualWithDropout) {
  Recipe recipe = recipe_with("bert-tiny", "lamb{lr=1e-2}");
  recipe.data = "synthetic";
  expect_bit_equal(recipe);
  for (const char* precision :
       {"bf16", "bf16{weights=low}"}) {  // whose copies, and whose rounding, go on too
    set_precision(recipe, precision);
    expect_bit_equal(recipe);
  }
}

TEST_F(TrainingState, ResumedStepsAreBitEqualWhileTheLossScaleMoves) {
  Recipe recipe = recipe_with("mlp", "adam{lr=1e-3}");
  recipe.precision = "f16";
  recipe.loss_scale = "dynamic{initial=1e6,interval=2}";
  recipe.accumulate = 2;
  recipe.clip_norm = 1;
  const Checkpoint from = checkpoint(recipe);
  ASSERT_TRUE(from.loss_scale);
  EXPECT_LT(from.made_steps, from.step) << "this scale makes steps overflow";
  expect_bit_equal(recipe);
}

TEST_F(TrainingState, ResumedStepsAreBitEqualWithAverages) {
  Recipe recipe = recipe_with("cnn-digits", "adamw{lr=1e-2}");
  recipe.ema = 0.9;
  const Checkpoint from = checkpoint(recipe);
  EXPECT_TRUE(std::any_of(from.optimizer.tensors.begin(), from.optimizer.tensors.end(),
                          [](const auto& entry) { return entry.first.ends_with(".ema"); }));
  expect_bit_equal(recipe);
  Recipe without = recipe;
  without.ema = 0;
  expect_refused(without, from, ".ema' is of another optimizer");
}

// Magnitudes of 8-bit products go on, too. A training that has none in its checkpoint begins anew with them, one without takes no notice.
TEST_F(TrainingState, ResumedStepsAreBitEqualWithProductsOf8Bits) {
  const Recipe wide = recipe_with("gpt-char", "adamw{lr=1e-3}");
  Recipe rounded = wide;
  set_pipeline(rounded, *parse_pipeline("default,fp8{least=64,history=3}"));
  expect_bit_equal(rounded);
  set_precision(rounded, "bf16");
  rounded.accumulate = 2;
  expect_bit_equal(rounded);
  const Checkpoint from = checkpoint(rounded);
  const auto magnitudes =
      std::count_if(from.optimizer.tensors.begin(), from.optimizer.tensors.end(),
                    [](const auto& entry) { return entry.first.starts_with(kFp8StatePrefix); });
  EXPECT_EQ(magnitudes, 2);
  const auto without = make_job(wide, &from);
  ASSERT_NE(without, nullptr);
  const Checkpoint plain = checkpoint(wide);
  const auto with = make_job(rounded, &plain);
  ASSERT_NE(with, nullptr);
  EXPECT_EQ(train(*with, kSteps).losses.size(), static_cast<std::size_t>(kSteps - kBefore));
}

TEST_F(TrainingState, ResumedStepsAreBitEqualInDouble) {
  Recipe recipe = recipe_with("cnn-digits", "adam");
  recipe.precision = "f64";
  expect_bit_equal(recipe);
}

// What is written has no trace of passes: saved under one set, the training goes on under another.
TEST_F(TrainingState, OtherPassesGoOnWithTheSameNumbers) {
  for (const char* model : {"cnn-digits", "gpt-char"}) {
    Recipe optimized = recipe_with(model, "adamw{lr=1e-3}"), plain = optimized;
    plain.passes.clear();
    plain.planner = "none";
    const Checkpoint from = checkpoint(optimized), same = checkpoint(plain);
    ASSERT_EQ(from.model.tensors.size(), same.model.tensors.size());
    ASSERT_EQ(from.optimizer.tensors.size(), same.optimizer.tensors.size());
    for (const auto& [key, tensor] : same.optimizer.tensors) {
      ASSERT_TRUE(from.optimizer.tensors.count(key)) << key;
      EXPECT_EQ(from.optimizer.tensors.at(key).type(), tensor.type()) << key;
    }
    const auto whole = make_job(optimized), rest = make_job(plain, &from);
    ASSERT_TRUE(whole != nullptr && rest != nullptr);
    const Trained expected = train(*whole, kSteps), got = train(*rest, kSteps);
    ASSERT_EQ(got.losses.size(), static_cast<std::size_t>(kSteps - kBefore));
    for (std::size_t i = 0; i < got.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], expected.losses[i + kBefore], 1e-4 * expected.losses[i + kBefore]);
  }
}

TEST_F(TrainingState, AnotherDeviceGoesOn) {
#ifdef GRADLOOM_PLUGIN_FOLDER
  const Setting plugins("GRADLOOM_PLUGINS", GRADLOOM_PLUGIN_FOLDER),
      cache("GRADLOOM_CACHE", GRADLOOM_PLUGIN_FOLDER "/tests/cache");
  ASSERT_TRUE(find_plugin("hostgpu").ok());
  Recipe cpu = recipe_with("mlp", "adam{lr=1e-2}"), gpu = cpu;
  gpu.device = "host-gpu";
  const auto whole = make_job(cpu);
  ASSERT_NE(whole, nullptr);
  const Trained expected = train(*whole, kSteps);
  for (const Recipe& first : {cpu, gpu}) {
    const Checkpoint from = checkpoint(first);
    const auto rest = make_job(first.device == "cpu" ? gpu : cpu, &from);
    ASSERT_NE(rest, nullptr);
    const Trained got = train(*rest, kSteps);
    ASSERT_EQ(got.losses.size(), static_cast<std::size_t>(kSteps - kBefore));
    for (std::size_t i = 0; i < got.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], expected.losses[i + kBefore], 1e-4 * expected.losses[i + kBefore]);
  }
  expect_bit_equal(gpu);
#else
  GTEST_SKIP() << "this build has no host executor (GRADLOOM_HOST_GPU is off)";
#endif
}

TEST_F(TrainingState, OtherPrecisionsGoOn) {
  const Recipe f32 = recipe_with("mlp", "adam{lr=1e-3}");
  const Checkpoint from = checkpoint(f32);
  for (const char* precision : {"f64", "bf16", "f16"}) {
    Recipe other = f32;
    set_precision(other, precision);
    const auto rest = make_job(other, &from);
    ASSERT_NE(rest, nullptr);
    const Trained got = train(*rest, kSteps);
    const auto whole = make_job(f32);
    const Trained expected = train(*whole, kSteps);
    for (std::size_t i = 0; i < got.losses.size(); ++i)
      EXPECT_NEAR(got.losses[i], expected.losses[i + kBefore], 2e-2 * expected.losses[i + kBefore])
          << precision;
  }
}

// The data go on where they were, also where a step takes more batches from now on.
TEST_F(TrainingState, ThePlaceInTheDataStaysWhenAccumulationChanges) {
  Recipe recipe = recipe_with("mlp", "sgd{lr=0.1}");
  const Checkpoint from = checkpoint(recipe);
  recipe.accumulate = 3;
  const auto job = make_job(recipe, &from);
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(job->first_batch(kBefore + 1), kBefore);
  EXPECT_EQ(job->first_batch(kBefore + 2), kBefore + 3);
}

TEST_F(TrainingState, NamesAreThoseOfPyTorch) {
  const Checkpoint from = checkpoint(recipe_with("cnn-digits", "adam"));
  for (const char* name : {"stem.weight", "stem_norm.running_mean", "head.bias"})
    EXPECT_TRUE(from.model.tensors.count(name)) << name;
  for (const char* state : {"exp_avg", "exp_avg_sq", "step"})
    EXPECT_TRUE(from.optimizer.tensors.count(std::string("stem.weight.") + state)) << state;
  EXPECT_EQ(from.optimizer.tensors.at("stem.weight.step").at(0), kBefore);
  EXPECT_FALSE(from.optimizer.tensors.count("stem_norm.running_mean.exp_avg"));
  const Checkpoint sgd = checkpoint(recipe_with("mlp", "sgd{momentum=0.9}"));
  EXPECT_TRUE(sgd.optimizer.tensors.count("layers.0.weight.momentum_buffer"));
  const Checkpoint nadam = checkpoint(recipe_with("mlp", "nadam{beta1=0.8,momentum_decay=0}"));
  EXPECT_NEAR(nadam.optimizer.tensors.at("layers.0.bias.mu_product").at(0), std::pow(0.4, kBefore), 1e-7);
  const Checkpoint rmsprop = checkpoint(recipe_with("mlp", "rmsprop{momentum=0.9,centered=true}"));
  for (const char* state : {"square_avg", "grad_avg", "momentum_buffer"})
    EXPECT_TRUE(rmsprop.optimizer.tensors.count(std::string("layers.0.weight.") + state)) << state;
  const Checkpoint largest = checkpoint(recipe_with("mlp", "adamw{amsgrad=true}"));
  EXPECT_TRUE(largest.optimizer.tensors.count("layers.0.weight.max_exp_avg_sq"));
  const Checkpoint adafactor = checkpoint(recipe_with("mlp", "adafactor"));
  for (const char* key :
       {"layers.0.weight.exp_avg_sq_row", "layers.0.weight.exp_avg_sq_col", "layers.0.bias.exp_avg_sq"})
    EXPECT_TRUE(adafactor.optimizer.tensors.count(key)) << key;
}

TEST_F(TrainingState, AnotherTrainingIsRefused) {
  const Checkpoint from = checkpoint(recipe_with("mlp", "adam"));
  expect_refused(recipe_with("cnn-digits", "adam"), from, "no tensor for parameter 'stem.weight'");
  expect_refused(recipe_with("mlp", "sgd{momentum=0.9}"), from, "no 'layers.0.weight.momentum_buffer'");
  expect_refused(recipe_with("mlp", "sgd"), from, "'layers.0.bias.exp_avg' is of another optimizer");
  expect_refused(recipe_with("mlp", "adam{amsgrad=true}"), from, "no 'layers.0.weight.max_exp_avg_sq'");
  const Checkpoint nadam = checkpoint(recipe_with("mlp", "nadam"));
  expect_refused(recipe_with("mlp", "nadam{beta1=0.5}"), nadam, "mu_product' is not that of");
  expect_refused(recipe_with("mlp", "adam"), nadam, "mu_product' is of another optimizer");
  Recipe frozen = recipe_with("mlp", "adam");
  frozen.freeze = {"layers.0.*"};
  expect_refused(frozen, from, "'layers.0.bias.exp_avg' is of another optimizer, or of a parameter");
  const Checkpoint less = checkpoint(frozen);
  expect_refused(recipe_with("mlp", "adam"), less, "no 'layers.0.weight.exp_avg'");
}

// What another program kept, in the names of a checkpoint, goes on as a checkpoint does.
TEST_F(TrainingState, AnOptimizersFileGoesOnBitForBit) {
  for (const char* optimizer :
       {"adamw{lr=1e-3}", "adam{eight_bit_states=true}", "adam{amsgrad=true}", "nadam",
        "rmsprop{momentum=0.9,centered=true}", "radam{eight_bit_states=true}", "adadelta"}) {
    Recipe recipe = recipe_with("cnn-digits", optimizer);
    recipe.accumulate = 2;
    const Checkpoint from = checkpoint(recipe);
    const auto whole = make_job(recipe);
    ASSERT_NE(whole, nullptr);
    const Trained expected = train(*whole, kSteps);
    recipe.load_params = from.path + "/" + kModelFile;
    recipe.load_optimizer = from.path + "/" + kOptimizerFile;
    const auto rest = make_job(recipe);
    ASSERT_NE(rest, nullptr);
    EXPECT_EQ(rest->steps_before(), kBefore);
    EXPECT_EQ(rest->first_batch(kBefore + 1), kBefore * recipe.accumulate);
    expect_equal(expected, train(*rest, kSteps));
    recipe.ema = 0.9;  // which the file knows nothing of
    EXPECT_NE(make_job(recipe), nullptr);
  }
}

TEST_F(TrainingState, AnOptimizersFileThatDoesNotFitIsRefused) {
  Recipe recipe = recipe_with("mlp", "sgd{momentum=0.9}");
  const Checkpoint from = checkpoint(recipe);
  const auto refused = [&](const Recipe& asked, const std::map<std::string, Tensor>& tensors,
                           const std::string& text) {
    Recipe other = asked;
    other.load_optimizer = folder_ / "o.npz";
    ASSERT_TRUE(write_npz(other.load_optimizer, tensors).ok());
    const auto prepared = prepare(other);
    ASSERT_FALSE(prepared.ok()) << text;
    EXPECT_EQ(prepared.error().code, Errc::bad_input);
    EXPECT_NE(prepared.error().message.find("o.npz: " + text), std::string::npos) << prepared.error().message;
  };
  std::map<std::string, Tensor> good = from.optimizer.tensors, tensors = good;
  std::erase_if(tensors, [](const auto& entry) { return entry.first.ends_with(".step"); });
  refused(recipe, tensors, "it does not say how many updates were made");
  tensors["step"] = Tensor::scalar(DType::f32, -1);
  refused(recipe, tensors, "'step' is no count of updates: f32[]");
  tensors = good;
  tensors["step"] = Tensor::scalar(DType::i64, 3);
  refused(recipe, tensors, "'step' says 3 updates, others 2");
  tensors = good;
  tensors.erase("layers.0.weight.momentum_buffer");
  refused(recipe, tensors, "no 'layers.0.weight.momentum_buffer', which the optimizer keeps");
  refused(recipe_with("mlp", "adam"), good, "no 'layers.0.weight.exp_avg'");
  refused(recipe_with("mlp", "sgd"), good, "'layers.0.bias.momentum_buffer' is of another optimizer");
  tensors = good;
  tensors["layers.0.bias.momentum_buffer"] = Tensor(DType::f32, {95});
  refused(recipe, tensors, "'layers.0.bias.momentum_buffer' is f32[95]; expected f32[96]");
}

// Step counts, numbers and shapes that do not fit: nothing is half loaded.
TEST_F(TrainingState, TensorsThatDoNotFitAreRefused) {
  const Recipe recipe = recipe_with("mlp", "adam");
  Checkpoint from = checkpoint(recipe);
  const auto shape = from;
  from.optimizer.tensors["layers.0.bias.exp_avg"] = Tensor(DType::f32, {3});
  expect_refused(recipe, from, "'layers.0.bias.exp_avg' is f32[3]; expected f32[96]");
  from = shape;
  from.model.tensors["layers.0.bias"] = Tensor(DType::i32, {96});
  expect_refused(recipe, from, "tensor 'layers.0.bias' is i32[96]; expected f32[96]");
  from = shape;
  from.model.tensors["stranger"] = Tensor(DType::f32, {96});
  expect_refused(recipe, from, "the model has no parameter 'stranger'");
}

}  // namespace
}  // namespace gradloom
