// Buffers of files that do not tell them from parameters are not trained; what only resembles them is.
#include "engine/onnx/repair/buffers.h"

#include <cmath>

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::add_floats;
using test::has_note;
using test::imported_or_fail;
using test::model_from_text;

std::vector<float> numbers(std::int64_t count, double (*element)(std::int64_t)) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(element(i)));
  return values;
}

// What becomes of "p" of this shape in a graph that computes y from x and p.
InitializerVerdict verdict_of(const std::string& nodes, const Shape& shape,
                              const std::vector<float>& contents, const ImportOptions& options = {}) {
  onnx::ModelProto model = model_from_text("g (float[6, 6] x) => (float[6, 6] y) { " + nodes + " }");
  add_floats(model, "p", shape, contents);
  const ImportedModel imported = imported_or_fail(model, options);
  EXPECT_EQ(imported.initializers.size(), 1u);
  if (imported.initializers.size() != 1) return {};
  const InitializerVerdict& verdict = imported.initializers[0];
  EXPECT_EQ(verdict.trained, imported.graph.parameters.size() == 1);
  EXPECT_EQ(test::value_of(imported.graph, "p").role, verdict.trained ? Role::parameter : Role::constant);
  EXPECT_NE(verdict.why, "");
  if (!verdict.trained) {
    EXPECT_TRUE(has_note(imported, "1 initializer is taken for a buffer and not trained"));
    EXPECT_TRUE(has_note(imported, "p (" + verdict.why + ")"));
  }
  return verdict;
}

double causal(std::int64_t i) { return i % 6 > i / 6 ? -INFINITY : 0; }
double lower(std::int64_t i) { return i % 6 <= i / 6 ? 1 : 0; }
double checked(std::int64_t i) { return i % 2 == 0 ? 1 : 0; }
double position(std::int64_t i) { return static_cast<double>(i); }
double cosines(std::int64_t i) {
  return std::cos(static_cast<double>(i / 6) * std::pow(100.0, -static_cast<double>(i % 3) / 3));
}
double noise(std::int64_t i) { return std::fmod(static_cast<double>(i) * 0.618, 1) - 0.5; }
double one(std::int64_t) { return 1; }

TEST(Buffers, ContentsAndReadersBothSpeak) {
  struct Case {
    const char* nodes;
    double (*element)(std::int64_t);
    bool trained;
    const char* why;
  };
  for (const Case& c : {
           Case{"s = Add(x, p) y = Softmax(s)", causal, false,
                "a mask of zeros and large negative numbers, read by Add"},
           Case{"t = Transpose(p) s = Add(x, t) y = Softmax(s)", causal, false, "a mask of zeros"},
           Case{"y = MatMul(x, p)", causal, true, "read by MatMul"},
           Case{"y = Mul(x, p)", lower, false, "a triangular mask, read by Mul"},
           Case{"y = MatMul(x, p)", lower, true, "read by MatMul"},
           Case{"y = Mul(x, p)", checked, true, "may be a buffer: zeros and ones, read by Mul"},
           Case{"y = Mul(x, p)", cosines, false, "a table of cosines, read by Mul"},
           Case{"y = Add(x, p)", cosines, false, "a table of sinusoidal positions, read by Add"},
           Case{"y = MatMul(x, p)", cosines, true, "read by MatMul"},
           Case{"y = Mul(x, p)", one, true, "read by Mul"},
           Case{"y = Add(x, p)", noise, true, "read by Add"},
           Case{"y = Mul(x, p)", noise, true, "read by Mul"},
       }) {
    SCOPED_TRACE(c.nodes);
    const InitializerVerdict verdict = verdict_of(c.nodes, {6, 6}, numbers(36, c.element));
    EXPECT_EQ(verdict.trained, c.trained) << verdict.why;
    EXPECT_NE(verdict.why.find(c.why), std::string::npos) << verdict.why;
  }
}

TEST(Buffers, WhatPassesNoGradient) {
  const InitializerVerdict verdict =
      verdict_of("m = Greater(p, x) y = Where(m, x, x)", {6, 6}, numbers(36, noise));
  EXPECT_FALSE(verdict.trained);
  EXPECT_EQ(verdict.why, "no gradient passes Greater, which reads it");
}

TEST(Buffers, RangesAndFrequencies) {
  EXPECT_FALSE(verdict_of("y = Mul(x, p)", {6}, numbers(6, position)).trained);
  const std::vector<float> frequencies = {1, 0.3f, 0.1f, 0.03f, 0.01f, 0.003f};
  EXPECT_FALSE(verdict_of("a = Mul(x, p) c = Cos(a) s = Sin(a) y = Add(c, s)", {6}, frequencies).trained);
  EXPECT_TRUE(verdict_of("a = Mul(x, p) s = Sin(a) y = Add(s, s)", {6}, frequencies).trained)
      << "no pair of waves";
  EXPECT_TRUE(verdict_of("y = Mul(x, p)", {6}, frequencies).trained);
}

TEST(Buffers, Scalars) {
  EXPECT_FALSE(verdict_of("m = IsNaN(x) y = Where(m, p, x)", {}, {-1e9f}).trained);
  EXPECT_TRUE(verdict_of("m = IsNaN(x) y = Where(m, p, x)", {}, {-1}).trained);
  EXPECT_FALSE(verdict_of("a = Add(x, p) y = Sqrt(a)", {}, {1e-5f}).trained);
  EXPECT_TRUE(verdict_of("a = Add(x, p) y = Sqrt(a)", {}, {1}).trained);
  const char* scores = "k = Transpose(x) s = MatMul(x, k) d = Div(s, p) y = Softmax(d)";
  EXPECT_FALSE(verdict_of(scores, {}, {std::sqrt(8.0f)}).trained);
  const InitializerVerdict temperature = verdict_of(scores, {}, {0.07f});
  EXPECT_TRUE(temperature.trained);
  EXPECT_NE(temperature.why.find("may be a buffer: a number that Div divides by"), std::string::npos)
      << temperature.why;
}

TEST(Buffers, AreTrainedWhereAskedFor) {
  ImportOptions options;
  options.train = {"q", "p*"};
  const InitializerVerdict verdict =
      verdict_of("s = Add(x, p) y = Softmax(s)", {6, 6}, numbers(36, causal), options);
  EXPECT_TRUE(verdict.trained);
  EXPECT_NE(verdict.why.find("trained as --train says"), std::string::npos) << verdict.why;
}

// What multiplies labels or losses of single elements is told; what a layer reads behind it is not.
TEST(Buffers, WeightsOfLossesAreUnsure) {
  const auto why = [](const char* nodes) {
    onnx::ModelProto model = model_from_text(
        "g (float[6, 6] x, float[6, 6] t, float[6, 6] w) => (float y) { " + std::string(nodes) + " }");
    add_floats(model, "p", {6}, numbers(6, noise));
    const ImportedModel imported = imported_or_fail(model);
    EXPECT_EQ(imported.graph.parameters.size(), 1u) << nodes;
    return imported.initializers.at(0).why;
  };
  const std::string unsure = "read by Mul; may be a buffer: weighs what the loss adds up";
  EXPECT_EQ(why("l = Sub(x, t) s = Mul(l, l) e = Mul(p, s) y = ReduceMean <keepdims = 0> (e)"), unsure);
  EXPECT_EQ(why("q = Mul(t, p) l = Softplus(x) e = Mul(q, l) n = Neg(e) y = ReduceSum <keepdims = 0> (n)"),
            unsure);
  EXPECT_EQ(why("h = Mul(x, p) l = MatMul(h, w) y = ReduceMean <keepdims = 0> (l)"), "read by Mul");
  EXPECT_EQ(why("h = Mul(x, p) l = Softmax(h) e = Mul(l, t) y = ReduceMean <keepdims = 0> (e)"),
            "read by Mul");
  EXPECT_EQ(why("h = Add(x, p) e = Mul(h, t) y = ReduceMean <keepdims = 0> (e)"), "read by Add");
}

TEST(Buffers, UnsureOnesAreNotedWithTheRemedy) {
  onnx::ModelProto model = model_from_text("g (float[6, 6] x) => (float[6, 6] y) { y = Mul(x, p) }");
  add_floats(model, "p", {6, 6}, numbers(36, checked));
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_TRUE(has_note(imported,
                       "1 parameter may be a buffer and is trained (--freeze NAME keeps it as it is): p ("));
}

// What the dynamo exporter calls a parameter is one, with a note: it does not say whether it had a gradient.
TEST(Buffers, ParametersOfTheExporterAreTrained) {
  onnx::ModelProto model = model_from_text("g (float[6, 6] x) => (float[6, 6] y) { y = Add(x, p) }");
  add_floats(model, "p", {6, 6}, numbers(36, cosines));
  test::add_metadata(model.mutable_graph(), 16, test::kSignature, "p_p: PARAMETER target='p'");
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_EQ(imported.graph.parameters.size(), 1u);
  EXPECT_TRUE(has_note(imported, "1 parameter may be a buffer and is trained"));
}

TEST(Buffers, EveryInitializerHasAVerdict) {
  onnx::ModelProto model = model_from_text(
      "g (float[2, 3] x) => (float[3] y) { a = Mul(x, w) b = Clip(a, low) s = ReduceSum <keepdims = 0> (b, axes) y = Add(s, onnx_1) }");
  model.mutable_graph()->mutable_node(3)->set_input(1, "onnx::Add_1");
  add_floats(model, "w", {3}, {1, 2, 4});
  add_floats(model, "low", {}, {0});
  test::add_ints(model, "axes", {1}, {0});
  add_floats(model, "onnx::Add_1", {3}, {1, 2, 4});
  add_floats(model, "lonely", {3}, {1, 2, 4});
  std::vector<std::string> rows;
  for (const InitializerVerdict& v : imported_or_fail(model).initializers)
    rows.push_back(v.name + (v.trained ? " trained: " : " frozen: ") + v.why);
  EXPECT_EQ(rows, (std::vector<std::string>{
                      "w trained: read by Mul", "low frozen: an argument of Clip, no weight",
                      "axes frozen: i64: only floats are trained",
                      "onnx::Add_1 frozen: a constant by its name", "lonely frozen: nothing reads it"}));
}

// TorchScript casts the window of torch.stft; a copy of a statistic follows no batches.
TEST(Buffers, WhatReadsACopyReadsTheInitializer) {
  onnx::ModelProto model = model_from_text(
      "g (float[1, 16] x, float[2, 3, 4] z) => (y, v) { c = Cast<to = 1>(window) d = Identity(c) s = STFT(x, step, d)"
      " u = Cast<to = 1>(w) y = Mul(s, u) none = Cast<to = 1>(lonely) m = Identity(mean)"
      " b = BatchNormalization(z, scale, bias, m, var) f = MelWeightMatrix(bins, length, rate, low, high)"
      " g = ReduceSum <keepdims = 0> (f) v = Add(b, g) }");
  test::add_ints(model, "step", {}, {4});
  add_floats(model, "window", {4}, {0, 0.5, 1, 0.5});
  add_floats(model, "w", {}, {3});
  add_floats(model, "lonely", {}, {3});
  for (const char* name : {"scale", "bias", "mean", "var"}) add_floats(model, name, {3}, {1, 2, 4});
  test::add_ints(model, "bins", {}, {4});
  test::add_ints(model, "length", {}, {16});
  test::add_ints(model, "rate", {}, {8000});
  add_floats(model, "low", {}, {100});
  add_floats(model, "high", {}, {3000});
  std::vector<std::string> rows;
  for (const InitializerVerdict& v : imported_or_fail(model).initializers)
    if (v.type.dtype == DType::f32) rows.push_back(v.name + (v.trained ? " trained: " : " frozen: ") + v.why);
  EXPECT_EQ(rows, (std::vector<std::string>{"window frozen: an argument of STFT, no weight",
                                            "w trained: read by Mul", "lonely trained: read by Cast",
                                            "scale trained: read by BatchNormalization",
                                            "bias trained: read by BatchNormalization",
                                            "mean frozen: an argument of BatchNormalization, no weight",
                                            "var frozen: a running statistic, which follows the batches",
                                            "low frozen: an argument of MelWeightMatrix, no weight",
                                            "high frozen: an argument of MelWeightMatrix, no weight"}));
}

}  // namespace
}  // namespace gradloom
