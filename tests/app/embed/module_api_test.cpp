// gradloom_module_*: forward and backward from outside, in memory of the test's own.
#include "app/embed/gradloom.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/paths.h"

namespace gradloom {
namespace {

const std::string kMlp = GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx";

struct CallMemory {
  std::vector<std::vector<unsigned char>> tensors;
  std::vector<void*> pointers;
  void add(std::int64_t bytes) {
    tensors.emplace_back(static_cast<std::size_t>(bytes) + 64);
    auto at = reinterpret_cast<std::uintptr_t>(tensors.back().data());
    pointers.push_back(tensors.back().data() + (64 - at % 64) % 64);
  }
  const void* const* in() const { return pointers.data(); }
};

// A module with memory for one call.
class Called {
 public:
  explicit Called(gradloom_module* module) : module_(module) {
    for (int kind = 0; kind <= GRADLOOM_STATISTIC; ++kind) {
      int count = 0;
      EXPECT_EQ(gradloom_module_count(module, kind, &count), GRADLOOM_OK);
      for (int i = 0; i < count; ++i) {
        gradloom_value v;
        EXPECT_EQ(gradloom_module_value(module, kind, i, &v), GRADLOOM_OK);
        values[kind].push_back(v);
        memory[kind].add(v.bytes);
        gradients[kind].add(v.bytes);
        fill(kind, i);
      }
    }
    std::int64_t alignment = 0;
    EXPECT_EQ(gradloom_module_arena(module, 0, &arena_bytes, &alignment), GRADLOOM_OK);
    EXPECT_EQ(alignment, 64);
    arena.add(arena_bytes);
  }
  gradloom_call call() {
    gradloom_call c{};
    c.size = sizeof c;
    c.inputs = memory[GRADLOOM_INPUT].in();
    c.parameters = memory[GRADLOOM_PARAMETER].in();
    c.statistics = memory[GRADLOOM_STATISTIC].pointers.data();
    c.outputs = memory[GRADLOOM_OUTPUT].pointers.data();
    c.arena = arena.pointers[0];
    c.output_gradients = gradients[GRADLOOM_OUTPUT].in();
    c.input_gradients = gradients[GRADLOOM_INPUT].pointers.data();
    c.parameter_gradients = gradients[GRADLOOM_PARAMETER].pointers.data();
    return c;
  }
  double* numbers(int kind, int i) {
    return static_cast<double*>(memory[kind].pointers[static_cast<std::size_t>(i)]);
  }
  double* gradient(int kind, int i) {
    return static_cast<double*>(gradients[kind].pointers[static_cast<std::size_t>(i)]);
  }
  int forward() {
    const gradloom_call c = call();
    return gradloom_module_forward(module_, &c);
  }
  int backward() {
    const gradloom_call c = call();
    return gradloom_module_backward(module_, &c);
  }
  // sum of outputs times their given gradients
  double objective() {
    EXPECT_EQ(forward(), GRADLOOM_OK) << gradloom_last_error();
    double sum = 0;
    for (int o = 0; o < static_cast<int>(values[GRADLOOM_OUTPUT].size()); ++o)
      for (std::int64_t k = 0; k < values[GRADLOOM_OUTPUT][static_cast<std::size_t>(o)].bytes / 8; ++k)
        sum += numbers(GRADLOOM_OUTPUT, o)[k] * gradient(GRADLOOM_OUTPUT, o)[k];
    return sum;
  }

  std::vector<gradloom_value> values[4];
  CallMemory memory[4], gradients[4], arena;
  std::int64_t arena_bytes = 0;

 private:
  void fill(int kind, int i) {
    const gradloom_value& v = values[kind][static_cast<std::size_t>(i)];
    for (std::int64_t k = 0; k < v.bytes / 8; ++k) {
      const double number = std::sin(static_cast<double>(kind * 131 + i * 17 + k * 3 + 1)) / 3;
      if (v.dtype == GRADLOOM_F64) {
        numbers(kind, i)[k] = number;
        gradient(kind, i)[k] = kind == GRADLOOM_OUTPUT ? number : std::nan("");
      } else {
        const std::int64_t label = k % 7;
        std::memcpy(numbers(kind, i) + k, &label, sizeof label);
      }
    }
  }
  gradloom_module* module_;
};

gradloom_module* opened(std::vector<const char*> words) {
  gradloom_module* module = nullptr;
  EXPECT_EQ(gradloom_module_open(kMlp.c_str(), static_cast<int>(words.size()), words.data(), &module),
            GRADLOOM_OK)
      << gradloom_last_error();
  return module;
}

std::vector<std::int64_t> extents(const char* batch) {
  gradloom_module* const module = opened({"--dim", batch});
  const std::int64_t* at = nullptr;
  std::size_t count = 0;
  EXPECT_EQ(gradloom_module_extents(module, &at, &count), GRADLOOM_OK) << gradloom_last_error();
  const std::vector<std::int64_t> all(at, at + count);
  EXPECT_EQ(gradloom_module_extents(module, nullptr, &count), GRADLOOM_USAGE);
  gradloom_module_close(module);
  return all;
}

// Gemm, Relu, Gemm, Relu, Gemm to 10 classes, and the loss.
TEST(ModuleApi, ExtentsAreOfAllThatNodesMake) {
  EXPECT_EQ(extents("batch=8"),
            (std::vector<std::int64_t>{2, 8, 96, 2, 8, 96, 2, 8, 64, 2, 8, 64, 2, 8, 10, 0}));
  EXPECT_EQ(extents("batch=3"),
            (std::vector<std::int64_t>{2, 3, 96, 2, 3, 96, 2, 3, 64, 2, 3, 64, 2, 3, 10, 0}));
}
const std::vector<const char*> kDouble{"--dim", "batch=4", "--precision", "f64", "--input-grad", "x"};

TEST(ModuleApi, GradientsAreThoseOfDifferences) {
  gradloom_module* const module = opened(kDouble);
  ASSERT_NE(module, nullptr);
  Called c(module);
  ASSERT_EQ(c.values[GRADLOOM_OUTPUT].size(), 2u);
  EXPECT_STREQ(c.values[GRADLOOM_OUTPUT][0].name, "loss");
  EXPECT_EQ(c.values[GRADLOOM_OUTPUT][0].gradient, 1);
  EXPECT_EQ(c.values[GRADLOOM_INPUT][0].gradient, 1);
  EXPECT_EQ(c.values[GRADLOOM_INPUT][1].gradient, 0);  // labels
  ASSERT_EQ(c.forward(), GRADLOOM_OK) << gradloom_last_error();
  ASSERT_EQ(c.backward(), GRADLOOM_OK) << gradloom_last_error();
  for (const int kind : {GRADLOOM_INPUT, GRADLOOM_PARAMETER})
    for (int i = 0; i < static_cast<int>(c.values[kind].size()); ++i) {
      const gradloom_value& v = c.values[kind][static_cast<std::size_t>(i)];
      if (v.gradient == 0) continue;
      for (std::int64_t k = 0; k < v.bytes / 8; k += 1 + v.bytes / 8 / 5) {
        double& number = c.numbers(kind, i)[k];
        const double before = number, h = 1e-5;
        number = before + h;
        const double above = c.objective();
        number = before - h;
        const double below = c.objective();
        number = before;
        EXPECT_NEAR(c.gradient(kind, i)[k], (above - below) / (2 * h), 1e-7) << v.name << "[" << k << "]";
      }
    }
  gradloom_module_close(module);
}

TEST(ModuleApi, BytesAreAFile) {
  std::ifstream in(kMlp, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  gradloom_module* from_bytes = nullptr;
  ASSERT_EQ(gradloom_module_open_bytes(bytes.data(), bytes.size(), static_cast<int>(kDouble.size()),
                                       kDouble.data(), &from_bytes),
            GRADLOOM_OK)
      << gradloom_last_error();
  std::fill(bytes.begin(), bytes.end(), '\0');
  gradloom_module* const from_file = opened(kDouble);
  Called a(from_bytes), b(from_file);
  EXPECT_EQ(a.objective(), b.objective());
  gradloom_module_close(from_bytes);
  gradloom_module_close(from_file);
  EXPECT_EQ(gradloom_module_open_bytes("no model", 8, 0, nullptr, &from_bytes), GRADLOOM_BAD_INPUT);
  EXPECT_NE(std::string(gradloom_last_error()).find("the model's bytes"), std::string::npos)
      << gradloom_last_error();
}

TEST(ModuleApi, ForwardAloneNeedsLess) {
  gradloom_module* const module = opened(kDouble);
  Called c(module);
  std::int64_t alone = 0;
  ASSERT_EQ(gradloom_module_arena(module, GRADLOOM_NO_GRAD, &alone, nullptr), GRADLOOM_OK);
  EXPECT_LT(alone, c.arena_bytes);
  const double want = c.objective();
  gradloom_call call = c.call();
  call.flags = GRADLOOM_NO_GRAD;
  ASSERT_EQ(gradloom_module_forward(module, &call), GRADLOOM_OK) << gradloom_last_error();
  EXPECT_NEAR(c.numbers(GRADLOOM_OUTPUT, 0)[0] * c.gradient(GRADLOOM_OUTPUT, 0)[0], want, 10);
  EXPECT_EQ(c.backward(), GRADLOOM_USAGE);
  gradloom_module_close(module);
}

TEST(ModuleApi, ErrorsAreCodesAndOneLine) {
  gradloom_module* module = nullptr;
  const auto expect = [&](int code, int want, const std::string& part) {
    EXPECT_EQ(code, want) << gradloom_last_error();
    EXPECT_NE(std::string(gradloom_last_error()).find(part), std::string::npos) << gradloom_last_error();
  };
  const auto open = [&](std::vector<const char*> words) {
    return gradloom_module_open(kMlp.c_str(), static_cast<int>(words.size()), words.data(), &module);
  };
  expect(gradloom_module_open("/none.onnx", 0, nullptr, &module), GRADLOOM_IO, "/none.onnx");
  expect(gradloom_module_open(nullptr, 0, nullptr, &module), GRADLOOM_USAGE, "no model");
  expect(open({}), GRADLOOM_USAGE, "batch");
  expect(open({"--mode", "fast"}), GRADLOOM_USAGE, "fast");
  expect(open({"--dim", "batch=4", "--device", "cuda:0"}), GRADLOOM_DEVICE, "cuda:0");
  expect(open({"--dim", "batch=4", "--output", "lost"}), GRADLOOM_USAGE, "loss");
  expect(open({"--dim", "batch=4", "--input-grad", "y"}), GRADLOOM_USAGE, "'y'");
  expect(open({"--dim", "batch=4", "--freeze", "none.*"}), GRADLOOM_USAGE, "none.*");
  EXPECT_EQ(module, nullptr);
  expect(gradloom_module_forward(nullptr, nullptr), GRADLOOM_USAGE, "module is null");
  gradloom_module_close(nullptr);

  module = opened(kDouble);
  Called c(module);
  expect(c.backward(), GRADLOOM_USAGE, "holds no forward");
  gradloom_call call = c.call();
  call.size = 4;
  expect(gradloom_module_forward(module, &call), GRADLOOM_USAGE, "size");
  call = c.call();
  call.arena = nullptr;
  expect(gradloom_module_forward(module, &call), GRADLOOM_USAGE, "arena");
  call = c.call();
  call.arena = static_cast<char*>(call.arena) + 8;
  expect(gradloom_module_forward(module, &call), GRADLOOM_USAGE, "multiple of 64");
  call = c.call();
  call.inputs = nullptr;
  expect(gradloom_module_forward(module, &call), GRADLOOM_USAGE, "input 'x'");
  call = c.call();
  call.flags = 64;
  expect(gradloom_module_forward(module, &call), GRADLOOM_USAGE, "flags");
  ASSERT_EQ(c.forward(), GRADLOOM_OK);
  call = c.call();
  call.seed = 5;
  expect(gradloom_module_backward(module, &call), GRADLOOM_USAGE, "seed");
  call = c.call();
  std::vector<void*> none(c.values[GRADLOOM_PARAMETER].size(), nullptr);
  call.parameter_gradients = none.data();
  expect(gradloom_module_backward(module, &call), GRADLOOM_USAGE, "the gradient of parameter");
  EXPECT_EQ(c.backward(), GRADLOOM_OK);
  expect(c.backward(), GRADLOOM_USAGE, "holds no forward");  // it is used up
  gradloom_value v;
  expect(gradloom_module_value(module, GRADLOOM_INPUT, 9, &v), GRADLOOM_USAGE, "9");
  expect(gradloom_module_value(module, GRADLOOM_STATE, 0, &v), GRADLOOM_USAGE, "kind");
  gradloom_module_close(module);
}

// Threads with arenas of their own on one module, and on one each.
TEST(ModuleApi, ThreadsShareModules) {
  gradloom_module* const shared = opened(kDouble);
  Called alone(shared);
  const double want = alone.objective();
  ASSERT_EQ(alone.backward(), GRADLOOM_OK);
  const double gradient = alone.gradient(GRADLOOM_PARAMETER, 0)[0];
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      gradloom_module* const module = t % 2 == 0 ? shared : opened(kDouble);
      for (int i = 0; i < 20; ++i) {
        Called c(module);
        EXPECT_EQ(c.objective(), want);
        EXPECT_EQ(c.backward(), GRADLOOM_OK);
        EXPECT_EQ(c.gradient(GRADLOOM_PARAMETER, 0)[0], gradient);
      }
      if (module != shared) gradloom_module_close(module);
    });
  for (std::thread& thread : threads) thread.join();
  gradloom_module_close(shared);
}

}  // namespace
}  // namespace gradloom
