// FlexAttention: against the formula, with and without subgraphs, and what is refused.
#include <cmath>

#include "engine/autodiff/autodiff.h"
#include "tests/engine/onnx/support.h"
#include "tests/engine/reference.h"

namespace gradloom {
namespace {

using test::expect_refused;
using test::import_model;
using test::imported_or_fail;
using test::model_from_text;

using Numbers = std::vector<double>;

// Two query heads over one key head, 2 queries, 3 keys, size 2.
onnx::ModelProto flex_model(const std::string& attributes, const std::string& q = "1, 2, 2, 2",
                            const std::string& k = "1, 1, 3, 2", const std::string& v = "1, 1, 3, 1") {
  onnx::ModelProto model = model_from_text("g (float[" + q + "] q, float[" + k + "] k, float[" + v +
                                           "] v, float[1] b) => (float[1, 2, 2, 1] y) { "
                                           "y = ai.onnx.preview.FlexAttention " +
                                           attributes + "(q, k, v) }");
  onnx::OperatorSetIdProto* import = model.add_opset_import();
  import->set_domain("ai.onnx.preview");
  import->set_version(1);
  return model;
}

const Numbers kQ = {1, 0, 0.5, -1, 2, 1, -1, 0.25}, kK = {1, 2, -1, 0.5, 0, 1}, kV = {1, -2, 3};

template <class ScoreMod, class ProbMod>
Numbers expected(double scale, const ScoreMod& score_mod, const ProbMod& prob_mod) {
  Numbers y;
  for (std::size_t row = 0; row < 4; ++row) {  // both heads read the same keys
    double weight[3], sum = 0, out = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      const double product = kQ[2 * row] * kK[2 * j] + kQ[2 * row + 1] * kK[2 * j + 1];
      sum += weight[j] = std::exp(score_mod(product * scale));
    }
    for (std::size_t j = 0; j < 3; ++j) out += prob_mod(weight[j] / sum) * kV[j];
    y.push_back(out);
  }
  return y;
}

void expect_output(const onnx::ModelProto& model, const Numbers& wanted) {
  const Graph graph = imported_or_fail(model).graph;
  reference::Feeds feeds;
  for (const ValueId id : graph.inputs) {
    const std::string& name = graph.value(id).name;
    feeds[id] = Tensor::from_f64(DType::f32, graph.type(id).shape,
                                 name == "q"   ? kQ
                                 : name == "k" ? kK
                                 : name == "v" ? kV
                                               : Numbers{0.5});
  }
  const auto runner = reference::Runner::create(graph);
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  const auto values = runner->run(feeds);
  ASSERT_TRUE(values.ok()) << values.error().message;
  const Numbers y = (*values)[graph.outputs[0]].to_f64();
  ASSERT_EQ(y.size(), wanted.size());
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], wanted[i], 1e-6) << i;
}

const auto same = [](double x) { return x; };

TEST(FlexAttention, SharesKeysBetweenHeads) {
  expect_output(flex_model(""), expected(1 / std::sqrt(2.0), same, same));
  expect_output(flex_model("<scale = 0.25>"), expected(0.25, same, same));
  expect_output(flex_model("<softmax_precision = 11>"), expected(1 / std::sqrt(2.0), same, same));
}

TEST(FlexAttention, SubgraphsChangeScoresAndProbabilities) {
  const std::string score =
      "score_mod = s (float[B, H, L, S] x) => (float[B, H, L, S] z) { t = Tanh(x) z = Mul(t, b) }";
  const std::string prob = "prob_mod = p (float[B, H, L, S] x) => (float[B, H, L, S] z) { z = Mul(x, x) }";
  const auto capped = [](double x) { return 0.5 * std::tanh(x); };
  const auto squared = [](double x) { return x * x; };
  expect_output(flex_model("<" + score + ">"), expected(1 / std::sqrt(2.0), capped, same));
  expect_output(flex_model("<" + prob + ">"), expected(1 / std::sqrt(2.0), same, squared));
  expect_output(flex_model("<scale = 0.5, " + score + ", " + prob + ">"), expected(0.5, capped, squared));
}

TEST(FlexAttention, ThePrecisionIsThatOfTheSoftmax) {
  const Graph graph = imported_or_fail(flex_model("<softmax_precision = 16>")).graph;
  EXPECT_EQ(graph.type(test::node_of(graph, "FlexAttention_0/Softmax").outputs[0]).dtype, DType::bf16);
  EXPECT_EQ(graph.type(graph.outputs[0]).dtype, DType::f32);
}

TEST(FlexAttention, HasGradients) {
  Graph graph = imported_or_fail(flex_model("")).graph;
  GraphBuilder b(graph);
  const ValueId loss = b.op("ReduceSum", {graph.outputs[0]}, {{"keepdims", std::int64_t{0}}});
  const std::vector<ValueId> wrt(graph.inputs.begin(), graph.inputs.begin() + 3);
  const auto grads = add_gradients(graph, loss, wrt);
  ASSERT_TRUE(grads.ok()) << grads.error().message;
  EXPECT_EQ(grads->size(), 3u);
}

TEST(FlexAttention, MalformedOnesAreRefused) {
  const auto refused = [](const onnx::ModelProto& model, const std::string& text) {
    expect_refused(import_model(model), Errc::bad_input, {text});
  };
  refused(flex_model("", "1, 3, 2, 2", "1, 2, 3, 2", "1, 2, 3, 1"),
          "its 3 query heads do not share the 2 and 2 heads of K and V");
  refused(flex_model("", "1, 2, 2, 2", "1, 1, 3, 3"), "do not fit");
  refused(flex_model("", "2, 2, 2"), "have rank 4");
  refused(flex_model("<softmax_precision = 7>"), "softmax_precision is i64");
  refused(flex_model("<scale = 1>"), "attribute 'scale'");
  refused(flex_model("<score_mod = s () => (float[1] z) { z = Identity(b) }>"),
          "score_mod must have one input and one output");
  refused(flex_model("<prob_mod = p (float[B, H, L, S] x) => (float[1] z) { z = Identity(b) }>"),
          "prob_mod makes f32[1] of f32[1, 2, 2, 3]");
  refused(flex_model("<score_mod = s (float[B, H, L, S] x) => (float[B, H, L, S] z) { z = Nope(x) }>"),
          "Nope");
}

}  // namespace
}  // namespace gradloom
