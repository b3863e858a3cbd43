// Modules: forward and backward apart, in the memory of the caller, against PyTorch's float64 gradients of every folder of
// tests/modules and tests/models, and against central differences where there are no references.
#include "app/module.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "app/job.h"
#include "tests/app/module_loop.h"

namespace gradloom {
namespace {

struct Bound {
  double rtol, atol;  // times the largest number where that is over 1: small ones are sums of large ones
};
void expect_near(const Tensor& got, const Tensor& want, Bound bound, const std::string& what) {
  ASSERT_EQ(got.shape(), want.shape()) << what;
  double largest = 1;
  for (std::int64_t i = 0; i < want.count(); ++i)
    if (std::isfinite(want.at(i))) largest = std::max(largest, std::fabs(want.at(i)));
  bound.atol *= largest;
  for (std::int64_t i = 0; i < want.count(); ++i) {
    const double g = got.at(i), w = want.at(i);
    ASSERT_TRUE(g == w || std::fabs(g - w) <= bound.atol + bound.rtol * std::fabs(w))
        << what << "[" << i << "] is " << g << ", PyTorch has " << w;
  }
}

void expect_gradients(const Opened& o, const Loop& loop, const Bound& bound) {
  EXPECT_FALSE(o.gradients.empty());
  for (const NamedTensor& want : o.gradients) {
    const Tensor* const got = loop.gradient(want.name);
    if (got == nullptr)  // no path leads there: PyTorch's is 0
      expect_near(Tensor(DType::f64, want.tensor.shape()), want.tensor, bound, want.name);
    else
      expect_near(*got, want.tensor, bound, want.name);
  }
}

class ModuleFolder : public testing::TestWithParam<std::string> {};

TEST_P(ModuleFolder, GradientsArePyTorchs) {
  for (const Words& words :
       {Words{"--precision", "f64"}, {"--precision", "f64", "--passes", "none"}, Words{}}) {
    const auto o = open_folder(GetParam(), words);
    ASSERT_NE(o, nullptr);
    // The references of tests/models are in f32.
    const bool f32 = words.empty() || o->gradients[0].tensor.dtype() == DType::f32;
    const Bound bound = f32 ? Bound{1e-4, 1e-6} : Bound{1e-9, 1e-12};
    Loop one = o->loop(), other = o->loop();  // one waits while the other goes all the way
    other.seed = 99;
    ASSERT_TRUE(one.forward().ok());
    ASSERT_TRUE(other.forward().ok());
    for (std::size_t i = 0; i < std::min(o->references.size(), one.outputs.size()); ++i)
      expect_near(one.outputs[i], o->references[i].tensor, bound, "output " + std::to_string(i));
    ASSERT_TRUE(other.backward().ok());
    const Status status = one.backward();
    ASSERT_TRUE(status.ok()) << status.error().message;
    expect_gradients(*o, one, bound);
    Loop alone = o->loop();
    ASSERT_LE(*o->module->arena_bytes(true), *o->module->arena_bytes(false));
    ASSERT_TRUE(alone.forward(true).ok());
    for (std::size_t i = 0; i < std::min(o->references.size(), alone.outputs.size()); ++i)
      expect_near(alone.outputs[i], o->references[i].tensor, bound, "output " + std::to_string(i));
    EXPECT_FALSE(alone.backward().ok());  // nothing was kept
  }
}

INSTANTIATE_TEST_SUITE_P(PyTorch, ModuleFolder, testing::ValuesIn(folder_names()), [](const auto& test) {
  std::string name = test.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// ---- what the folders do not tell ------------------------------------------------------------------------------

// Other numbers where there are floats.
void change(std::vector<Tensor>& tensors, double factor) {
  for (Tensor& t : tensors) {
    if (!is_float(t.dtype())) continue;
    std::vector<double> numbers = t.to_f64();
    for (double& n : numbers) n *= factor;
    t = Tensor::from_f64(t.dtype(), t.shape(), numbers);
  }
}

// Batches whose backwards come later, in any order, are those of one after the other.
TEST(Module, ForwardsWaitForTheirBackwards) {
  for (const char* name : {"batch-norm2d", "bert-tiny", "gpt-char", "lstm", "unet"}) {
    SCOPED_TRACE(name);
    const auto o = open_folder(name, {});
    ASSERT_NE(o, nullptr);
    std::vector<Loop> apart, waiting;
    for (int i = 0; i < 3; ++i)
      for (auto* loops : {&apart, &waiting}) {
        loops->push_back(o->loop());
        change(loops->back().inputs, 1 + 0.25 * i);
        change(loops->back().parameters, 1 - 0.125 * i);
        loops->back().step = static_cast<std::uint64_t>(i + 1);
      }
    for (Loop& loop : apart) {
      ASSERT_TRUE(loop.forward().ok());
      ASSERT_TRUE(loop.backward().ok());
    }
    for (Loop& loop : waiting) ASSERT_TRUE(loop.forward().ok());
    for (const std::size_t i : {1, 0, 2}) ASSERT_TRUE(waiting[i].backward().ok());
    for (std::size_t i = 0; i < 3; ++i) {
      expect_bits(waiting[i].parameter_gradients, apart[i].parameter_gradients, "gradient of parameter");
      expect_bits(waiting[i].statistics, apart[i].statistics, "statistic");
    }
    EXPECT_FALSE(bit_equal(apart[0].parameter_gradients[0], apart[1].parameter_gradients[0]));
  }
}

// The loss's change along a direction through all parameters and inputs, against the gradients'.
void expect_differences(Opened& o, const Loop& like, const std::string& what) {
  Loop loop = like;
  ASSERT_TRUE(loop.forward().ok()) << what;
  ASSERT_TRUE(loop.backward().ok()) << what;
  double slope = 0;
  constexpr double kStep = 1e-6;
  const auto moved = [&](double by) {
    Loop there = like;
    for (std::size_t i = 0; i < there.parameters.size(); ++i) {
      if (!o.module->values(ModuleKind::parameter)[i].gradient) continue;
      std::vector<double> numbers = there.parameters[i].to_f64();
      for (std::size_t k = 0; k < numbers.size(); ++k)
        numbers[k] += by * std::sin(static_cast<double>(k + i));
      there.parameters[i] = Tensor::from_f64(DType::f64, there.parameters[i].shape(), numbers);
    }
    EXPECT_TRUE(there.forward().ok());
    return there.outputs[0].at(0);
  };
  for (std::size_t i = 0; i < loop.parameters.size(); ++i) {
    if (!o.module->values(ModuleKind::parameter)[i].gradient) continue;
    for (std::int64_t k = 0; k < loop.parameters[i].count(); ++k)
      slope += loop.parameter_gradients[i].at(k) * std::sin(static_cast<double>(k) + static_cast<double>(i));
  }
  const double want = (moved(kStep) - moved(-kStep)) / (2 * kStep);
  EXPECT_NEAR(slope, want, 1e-6 * (1 + std::fabs(want))) << what;
}

// Random operators drop the same in backward as in forward, other things with another seed or step.
TEST(Module, SeedAndStepSayWhatIsDropped) {
  const auto o = open_folder("bert-tiny", {"--precision", "f64"});
  ASSERT_NE(o, nullptr);
  Loop loop = o->loop();
  expect_differences(*o, loop, "with Dropout");
  const auto loss = [&](std::uint64_t seed, std::uint64_t step) {
    loop.seed = seed;
    loop.step = step;
    EXPECT_TRUE(loop.forward().ok());
    return loop.outputs[0].at(0);
  };
  const double one = loss(1, 1);
  EXPECT_EQ(one, loss(1, 1));
  EXPECT_NE(one, loss(2, 1));
  EXPECT_NE(one, loss(1, 2));
}

// In mode eval nothing is random and statistics are read, not written.
TEST(Module, EvalReadsStatistics) {
  for (const char* name : {"cnn-digits", "bert-tiny", "batch-norm2d"}) {
    SCOPED_TRACE(name);
    const auto o = open_folder(name, {"--precision", "f64", "--mode", "eval"});
    ASSERT_NE(o, nullptr);
    Loop loop = o->loop();
    const std::vector<Tensor> before = loop.statistics;
    expect_differences(*o, loop, "eval");
    ASSERT_TRUE(loop.forward().ok());
    const double loss = loop.outputs[0].at(0);
    loop.seed += 1;
    ASSERT_TRUE(loop.forward().ok());
    EXPECT_EQ(loop.outputs[0].at(0), loss);
    expect_bits(loop.statistics, before, "statistic");
    change(loop.statistics, 2);
    ASSERT_TRUE(loop.forward().ok());
    EXPECT_EQ(loop.outputs[0].at(0) == loss, before.empty());
  }
}

// Training updates them in place, once for each forward, as PyTorch does: r' = (1 - m) r + m b, whose fixed point is the
// batch's own statistic.
TEST(Module, TrainingMovesStatistics) {
  const auto o = open_folder("batch-norm2d", {"--precision", "f64"});
  ASSERT_NE(o, nullptr);
  Loop loop = o->loop();
  ASSERT_FALSE(loop.statistics.empty());
  std::vector<Tensor> seen{loop.statistics[0]};
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(loop.forward(i == 1).ok());  // without gradients too
    seen.push_back(Loop::copy_of(loop.statistics[0]));
  }
  const auto moved = [&](std::size_t i) { return seen[i + 1].at(0) - seen[i].at(0); };
  EXPECT_NE(moved(0), 0);
  constexpr auto kMomentum = static_cast<double>(0.9f);  // as the file has it
  EXPECT_NEAR(moved(1) / moved(0), kMomentum, 1e-9);
  EXPECT_NEAR(moved(2) / moved(1), kMomentum, 1e-9);
}

TEST(Module, FrozenParametersHaveNoGradient) {
  const auto all = open_folder("gpt-char", {"--precision", "f64"});
  ASSERT_NE(all, nullptr);
  Loop whole = all->loop();
  ASSERT_TRUE(whole.forward().ok());
  ASSERT_TRUE(whole.backward().ok());
  const std::string path = folder_of_module("gpt-char") + "/model.onnx";
  std::string glob = all->module->values(ModuleKind::parameter)[0].name;
  auto some = ModelModule::open(
      path, {"--precision", "f64", "--dim", "batch=" + std::to_string(whole.inputs[0].shape()[0]), "--freeze",
             glob, "--output-grad", all->loss});
  ASSERT_TRUE(some.ok()) << some.error().message;
  const auto& values = (*some)->values(ModuleKind::parameter);
  EXPECT_FALSE(values[0].gradient);
  Loop loop(**some, all->model, all->inputs);
  loop.output_gradients = whole.output_gradients;
  ASSERT_TRUE(loop.forward().ok());
  ASSERT_TRUE(loop.backward().ok());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i].gradient)
      expect_near(loop.parameter_gradients[i], whole.parameter_gradients[i], {1e-12, 1e-15}, values[i].name);
    else
      EXPECT_TRUE(bit_equal(loop.parameter_gradients[i], unwritten(values[i].type))) << values[i].name;
  auto none = ModelModule::open(path, {"--dim", "batch=2", "--freeze", "*"});
  ASSERT_TRUE(none.ok()) << none.error().message;
  for (const ModuleValue& v : (*none)->values(ModuleKind::output)) EXPECT_FALSE(v.gradient);
  EXPECT_EQ(*(*none)->arena_bytes(true), *(*none)->arena_bytes(false));
}

// The gradients of the whole step's graph, as training makes them.
std::map<std::string, Tensor> gradients_of_step(const Opened& o, const std::string& precision) {
  std::map<std::string, Tensor> gradients;
  Recipe recipe;
  set_pipeline(recipe, default_pipeline());
  set_precision(recipe, precision);
  auto options = recipe_compile_options(recipe);
  EXPECT_TRUE(options.ok()) << options.error().message;
  options->gradients_only = true;
  options->loss_for_gradients = o.loss;
  const auto compiled = compile(o.model.graph, *options);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  const auto device = make_cpu_device();
  const auto executor = Executor::create(compiled->train.graph, compiled->plan, *device);
  EXPECT_TRUE(executor.ok());
  for (const NamedTensor& input : o.inputs) {
    const ValueId id = find_value(compiled->train.graph, input.name);
    EXPECT_TRUE((*executor)->feed(id, input.tensor.cast(compiled->train.graph.type(id).dtype)).ok());
  }
  EXPECT_TRUE((*executor)->run_forward(0, 0).ok());
  for (const auto& [name, value] : compiled->gradients)
    if (value != kNone) gradients[name] = *(*executor)->read(value);
  return gradients;
}

// Mixed precision keeps what is outside in f32; gradients are those of the step in one part, which other tests hold near f32's.
TEST(Module, Bf16IsThatOfTheStep) {
  for (const char* name : {"gpt-char", "cnn-digits", "mlp", "bert-tiny"}) {
    SCOPED_TRACE(name);
    const auto low = open_folder(name, {"--precision", "bf16"});
    ASSERT_NE(low, nullptr);
    Loop loop = low->loop();
    ASSERT_TRUE(loop.forward().ok());
    ASSERT_TRUE(loop.backward().ok());
    double difference = 0, size = 0;
    for (const auto& [parameter, want] : gradients_of_step(*low, "bf16")) {
      const Tensor* const got = loop.gradient(parameter);
      ASSERT_NE(got, nullptr) << parameter;
      ASSERT_EQ(got->type(), want.type()) << parameter;
      for (std::int64_t k = 0; k < want.count(); ++k) {
        difference += (got->at(k) - want.at(k)) * (got->at(k) - want.at(k));
        size += want.at(k) * want.at(k);
      }
    }
    EXPECT_GT(size, 0);
    EXPECT_LT(std::sqrt(difference / size), 1e-3);
  }
}

// Several outputs with gradients at once: linear in them.
TEST(Module, GradientsAddUpOverOutputs) {
  const std::string path = folder_of_module("gpt-char") + "/model.onnx";
  const auto o = open_folder("gpt-char", {"--precision", "f64"});
  ASSERT_NE(o, nullptr);
  const std::int64_t batch = o->inputs[0].tensor.shape()[0];
  auto module = ModelModule::open(path, {"--precision", "f64", "--dim", "batch=" + std::to_string(batch)});
  ASSERT_TRUE(module.ok()) << module.error().message;
  ASSERT_EQ((*module)->values(ModuleKind::output).size(), 2u);
  const auto gradients = [&](double of_loss, double of_logits) {
    Loop loop(**module, o->model, o->inputs);
    const Type& logits = loop.output_gradients[1].type();
    std::vector<double> numbers(static_cast<std::size_t>(element_count(logits.shape)));
    for (std::size_t k = 0; k < numbers.size(); ++k)
      numbers[k] = of_logits * std::cos(static_cast<double>(k));
    loop.output_gradients[0] = Tensor::from_f64(DType::f64, loop.output_gradients[0].shape(), {of_loss});
    loop.output_gradients[1] = Tensor::from_f64(DType::f64, logits.shape, numbers);
    EXPECT_TRUE(loop.forward().ok());
    EXPECT_TRUE(loop.backward().ok());
    return loop.parameter_gradients;
  };
  const std::vector<Tensor> one = gradients(1, 0), other = gradients(0, 1), both = gradients(2, 3);
  for (std::size_t i = 0; i < both.size(); ++i)
    for (std::int64_t k = 0; k < both[i].count(); ++k)
      ASSERT_NEAR(both[i].at(k), 2 * one[i].at(k) + 3 * other[i].at(k),
                  1e-9 * (1 + std::fabs(both[i].at(k))));
}

// An output that is an input or is there twice, and a gradient that is what was given: nothing is computed, all is copied.
TEST(Module, ChosenOutputsComeInTheirOrder) {
  const auto o = open_folder("mlp", {});
  ASSERT_NE(o, nullptr);
  const std::string path = folder_of_module("mlp") + "/model.onnx";
  auto module =
      ModelModule::open(path, {"--dim", "batch=" + std::to_string(o->inputs[0].tensor.shape()[0]), "--output",
                               "logits", "--output", "loss", "--output", "logits", "--output-grad", "loss"});
  ASSERT_TRUE(module.ok()) << module.error().message;
  Loop whole = o->loop(), loop(**module, o->model, o->inputs);
  ASSERT_TRUE(whole.forward().ok());
  ASSERT_TRUE(loop.forward().ok());
  expect_bits(loop.outputs, {whole.outputs[1], whole.outputs[0], whole.outputs[1]}, "output");
}

// Each tensor one element behind a cache line, as views of a larger one may lie.
TEST(Module, AddressesNeedTheAlignmentOfTheirElements) {
  for (const char* name : {"cnn-digits", "bert-tiny", "lstm", "unet"}) {
    SCOPED_TRACE(name);
    const auto o = open_folder(name, {});
    ASSERT_NE(o, nullptr);
    Loop loop = o->loop(), aligned = o->loop();
    ASSERT_TRUE(aligned.forward().ok());
    ASSERT_TRUE(loop.forward().ok());  // takes the arena
    ModuleCall call = loop.call(false);
    std::vector<std::vector<std::byte>> memory;
    const auto moved = [&](const std::vector<Tensor>& tensors, std::vector<void*>& pointers) {
      for (const Tensor& t : tensors) {
        memory.emplace_back(t.bytes() + 128, std::byte{0xff});
        const auto at = reinterpret_cast<std::uintptr_t>(memory.back().data());
        pointers.push_back(memory.back().data() + (64 - at % 64) % 64 + dtype_bytes(t.dtype()));
        if (t.bytes() > 0) std::memcpy(pointers.back(), t.data(), t.bytes());
      }
      return pointers.data();
    };
    std::vector<void*> in, parameters, statistics, out, given, input_made, made;
    call.inputs = moved(loop.inputs, in);
    call.parameters = moved(loop.parameters, parameters);
    call.statistics = moved(o->loop().statistics, statistics);
    call.outputs = moved(loop.outputs, out);
    call.output_gradients = moved(loop.output_gradients, given);
    call.input_gradients = moved(loop.input_gradients, input_made);
    call.parameter_gradients = moved(loop.parameter_gradients, made);
    ASSERT_TRUE(o->module->forward(call).ok());
    for (std::size_t i = 0; i < out.size(); ++i)
      EXPECT_EQ(std::memcmp(out[i], aligned.outputs[i].data(), aligned.outputs[i].bytes()), 0);
    ASSERT_TRUE(o->module->backward(call).ok());
    ASSERT_TRUE(aligned.backward().ok());
    for (std::size_t i = 0; i < made.size(); ++i)
      EXPECT_EQ(
          std::memcmp(made[i], aligned.parameter_gradients[i].data(), aligned.parameter_gradients[i].bytes()),
          0);
  }
}

TEST(Module, SizesThatOnlyTheDataTellAreRefused) {
  for (const char* name : {"graph-self-loops", "graph-self-loops-dynamo"}) {
    const auto module = ModelModule::open(folder_of_module(name) + "/model.onnx", {});
    ASSERT_FALSE(module.ok());
    EXPECT_EQ(module.error().code, Errc::bad_input);
    EXPECT_NE(module.error().message.find("only the data tells how large"), std::string::npos);
  }
}

TEST(Module, OnlyTheProcessorsDeviceIsTaken) {
  const auto module = ModelModule::open(folder_of_module("mlp") + "/model.onnx",
                                        {"--dim", "batch=2", "--device", "host-gpu"});
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.error().code, Errc::device);
}

}  // namespace
}  // namespace gradloom
