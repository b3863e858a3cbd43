#include <gtest/gtest.h>

#include <cmath>

#include "engine/autodiff/autodiff.h"
#include "tests/engine/onnx/support.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::expect_same_results;
using test::op_counts;
using test::run_and_compare;
using test::run_pass;
using test::why_nots;
using Perm = std::vector<std::int64_t>;

constexpr const char* kAlways = "fuse-attention{min_keys=1}";

enum class Masked { no, block, keep, add };

struct AttentionForm {
  Masked mask = Masked::no;
  bool scaled_scores = true, scaled_operands = false, divided = false;
  bool heads = true;        // [batch, rows, heads, d] and transposes, as exports have it
  double fill = -INFINITY;  // of a known mask
  bool known = false;       // a causal mask that is known when planning
  bool dropout = false, unknown_ratio = false, read_mask = false;
  bool trained_mask = false, kept = false, wrong_axis = false;
};

Tensor future(std::int64_t rows) {
  Tensor mask(DType::boolean, {rows, rows});
  for (std::int64_t i = 0; i < rows * rows; ++i)
    mask.mutable_as<std::uint8_t>()[i] = i % rows > i / rows ? 1 : 0;
  return mask;
}

Graph attention(const AttentionForm& f) {
  Graph graph;
  GraphBuilder b(graph);
  const Type type{DType::f64, f.heads ? Shape{2, 6, 3, 4} : Shape{2, 3, 6, 4}};
  const auto operand = [&](const char* name) {
    const ValueId x = b.input(name, type);
    return f.heads ? b.op("Transpose", {x}, {{"perm", Perm{0, 2, 1, 3}}}) : x;
  };
  const auto number = [&](double v) { return b.scalar(DType::f64, v); };
  ValueId q = operand("q"), k = operand("k");
  const ValueId v = operand("v");
  k = b.op("Transpose", {k}, {{"perm", Perm{0, 1, 3, 2}}});
  if (f.scaled_operands) {
    q = b.op("Mul", {q, number(0.7)});
    k = b.op("Mul", {number(0.6), k});
  }
  ValueId s = b.op("MatMul", {q, k});
  if (f.scaled_scores) s = f.divided ? b.op("Div", {s, number(2)}) : b.op("Mul", {s, number(0.5)});
  if (f.mask == Masked::add) {
    const Type bias{DType::f64, {1, 3, 6, 6}};
    const ValueId mask =
        f.trained_mask ? b.parameter("bias", Tensor(bias.dtype, bias.shape)) : b.input("mask", bias);
    s = b.op("Add", {mask, s});
  } else if (f.mask != Masked::no) {
    const ValueId mask =
        f.known ? b.constant(future(6), "mask") : b.input("mask", {DType::boolean, {2, 1, 1, 6}});
    const ValueId fill = number(f.known ? f.fill : -1e30);
    s = f.mask == Masked::block ? b.op("Where", {mask, fill, s}) : b.op("Where", {mask, s, fill});
  }
  ValueId p = b.op("Softmax", {s}, {{"axis", std::int64_t{f.wrong_axis ? 2 : -1}}});
  if (f.kept) graph.outputs.push_back(p);
  if (f.dropout) {
    const ValueId ratio = f.unknown_ratio ? b.input("ratio", {DType::f64, {}}) : number(0.25);
    const auto dropped = b.ops(op_by_name("Dropout"), {p, ratio, b.scalar(DType::boolean, 1)},
                               {{"key", std::int64_t{5}}}, f.read_mask ? 2 : 1);
    p = dropped[0];
    if (f.read_mask) graph.outputs.push_back(dropped[1]);
  }
  ValueId y = b.op("MatMul", {p, v});
  if (f.heads) y = b.op("Transpose", {y}, {{"perm", Perm{0, 2, 1, 3}}});
  graph.outputs.push_back(y);
  return graph;
}

std::vector<AttentionForm> forms() {
  return {{},
          {.scaled_scores = false},
          {.scaled_operands = true, .divided = true},
          {.heads = false},
          {.mask = Masked::block},
          {.mask = Masked::keep, .scaled_operands = true},
          {.mask = Masked::add, .heads = false},
          {.mask = Masked::block, .known = true},
          {.mask = Masked::block, .fill = -2, .known = true},  // it hides nothing
          {.dropout = true},
          {.mask = Masked::block, .known = true, .dropout = true}};
}

TEST(FuseAttention, EveryFormBecomesOneNode) {
  int number = 0;
  for (const AttentionForm& form : forms()) {
    SCOPED_TRACE(number++);
    Graph graph = attention(form);
    const PassReport report = run_and_compare(graph, kAlways, 1e-12);
    EXPECT_EQ(report.matched, 1) << why_nots(report);
    run_pass(graph, "dead-code");
    EXPECT_EQ(op_counts(graph), (std::map<std::string, int>{{"FusedAttention", 1}}));
  }
}

// The loss is a weighted sum of the outputs; its gradients become outputs too.
void add_attention_training(Graph& graph) {
  GraphBuilder b(graph);
  const ValueId y = graph.outputs[0];
  Tensor weights(DType::f64, graph.type(y).shape);
  for (std::int64_t i = 0; i < weights.count(); ++i)
    weights.mutable_as<double>()[i] = std::sin(static_cast<double>(i));
  const ValueId loss =
      b.op("ReduceSum", {b.op("Mul", {y, b.constant(weights, "weights")})}, {{"keepdims", std::int64_t{0}}});
  const std::vector<ValueId> wrt = {find_value(graph, "q"), find_value(graph, "k"), find_value(graph, "v")};
  const auto gradients = add_gradients(graph, loss, wrt);
  ASSERT_OK(gradients);
  for (const ValueId x : wrt) graph.outputs.push_back(gradients->at(x));
}

TEST(FuseAttention, GradientsStayTheSame) {
  int number = 0;
  for (const AttentionForm& form : forms()) {
    SCOPED_TRACE(number++);
    Graph apart = attention(form), fused = attention(form);
    EXPECT_EQ(run_pass(fused, kAlways).matched, 1);
    add_attention_training(apart);
    add_attention_training(fused);
    EXPECT_EQ(op_counts(fused)["FusedAttentionGrad"], 1);
    EXPECT_EQ(op_counts(fused)["Softmax"], 0);
    expect_same_results(apart, fused, 1e-12);
  }
}

// A number per row, which a graph without a gradient has not.
TEST(FuseAttention, LogSumExpIsMadeForTheGradientAlone) {
  const auto nodes_of = [](const Graph& graph, const char* op) {
    std::vector<Node> found;
    for (const Node& node : graph.nodes)
      if (is_op(node, op)) found.push_back(node);
    return found;
  };
  Graph graph = attention({});
  run_pass(graph, kAlways);
  ASSERT_EQ(nodes_of(graph, "FusedAttention").size(), 1u);
  EXPECT_EQ(nodes_of(graph, "FusedAttention")[0].outputs.size(), 1u);
  add_attention_training(graph);
  const Node forward = nodes_of(graph, "FusedAttention")[0],
             gradient = nodes_of(graph, "FusedAttentionGrad")[0];
  ASSERT_EQ(forward.outputs.size(), 2u);
  EXPECT_EQ(graph.type(forward.outputs[1]), (Type{DType::f64, {2, 3, 6}})) << "of the layout of the scores";
  EXPECT_EQ(gradient.inputs[1], forward.outputs[0]);
  EXPECT_EQ(gradient.inputs[2], forward.outputs[1]);
}

TEST(FuseAttention, SaysWhyNot) {
  struct Case {
    AttentionForm form;
    const char* why;
  };
  for (const Case& c :
       {Case{{.dropout = true, .unknown_ratio = true}, "the ratio of the dropout is not known"},
        {{.dropout = true, .read_mask = true}, "the mask of the dropout is read"},
        {{.kept = true}, "output of the graph"},
        {{.wrong_axis = true}, "not over the keys"},
        {{.mask = Masked::add, .trained_mask = true}, "the mask is trained"}}) {
    Graph graph = attention(c.form);
    const PassReport report = run_pass(graph, kAlways);
    EXPECT_EQ(report.matched, 0);
    EXPECT_NE(why_nots(report).find(c.why), std::string::npos) << c.why << ": " << why_nots(report);
  }
  Graph few = attention({});
  const PassReport report = run_pass(few, "fuse-attention");
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("6 keys: keeping their probabilities costs little (min_keys)"),
            std::string::npos)
      << why_nots(report);
}

// Scores of q k, and what their softmax is multiplied with.
TEST(FuseAttention, SaysWhichOperandsDoNotFit) {
  const auto expect_left = [](const Shape& q, const Shape& k, const Shape& v, const std::string& why) {
    Graph graph;
    GraphBuilder b(graph);
    const auto input = [&](const char* name, const Shape& shape) {
      return b.input(name, {DType::f32, shape});
    };
    const ValueId scores = b.op("MatMul", {input("q", q), input("k", k)});
    const ValueId p = b.op("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
    graph.outputs = {v.empty() ? b.op("Exp", {p}) : b.op("MatMul", {p, input("v", v)})};
    const PassReport report = run_pass(graph, kAlways);
    EXPECT_EQ(report.matched, 0);
    EXPECT_NE(why_nots(report).find(why), std::string::npos) << why_nots(report);
  };
  expect_left({2, 3, 6, 4}, {1, 3, 4, 6}, {2, 3, 6, 4}, "batch dims of the operands differ");
  expect_left({2, 3, 6, 4}, {2, 3, 4, 6}, {2, 1, 6, 4}, "batch dims of the operands differ");
  expect_left({2, 3, 6, 4}, {4, 6}, {2, 3, 6, 4}, "the operands have different numbers of dims");
  expect_left({2, 3, 6, 4}, {2, 3, 4, 6}, {},
              "the probabilities are read by Exp, not multiplied with values");
}

// A mask of more batches, queries or keys than the scores have.
TEST(FuseAttention, AMaskThatMakesTheScoresLargerStays) {
  const auto expect_left = [](const Shape& q, const Shape& k, const Shape& mask, const Shape& v) {
    for (const bool add : {true, false}) {
      Graph graph;
      GraphBuilder b(graph);
      const auto input = [&](const char* name, const Shape& shape, DType dtype = DType::f64) {
        return b.input(name, {dtype, shape});
      };
      const ValueId scores = b.op("MatMul", {input("q", q), input("k", k)});
      const ValueId masked =
          add ? b.op("Add", {scores, input("mask", mask)})
              : b.op("Where", {input("mask", mask, DType::boolean), scores, b.scalar(DType::f64, -1e30)});
      const ValueId p = b.op("Softmax", {masked}, {{"axis", std::int64_t{-1}}});
      graph.outputs = {b.op("MatMul", {p, input("v", v)})};
      const PassReport report = run_and_compare(graph, kAlways, 0);
      EXPECT_EQ(report.matched, 0);
      EXPECT_NE(why_nots(report).find("the mask broadcasts the scores"), std::string::npos)
          << why_nots(report);
    }
  };
  expect_left({1, 2, 4, 3}, {1, 2, 3, 6}, {5, 1, 4, 6}, {1, 2, 6, 3});
  expect_left({1, 2, 1, 3}, {1, 2, 3, 6}, {1, 1, 4, 6}, {1, 2, 6, 3});
  expect_left({1, 2, 4, 3}, {1, 2, 3, 1}, {1, 1, 4, 6}, {1, 2, 6, 3});
}

// Its gradient is a result, as of an argument of a module with requires_grad.
TEST(FuseAttention, AMaskWhoseGradientIsWantedStays) {
  Graph graph = attention({.mask = Masked::add});
  graph.values[find_value(graph, "mask")].wanted = true;
  const PassReport report = run_pass(graph, kAlways);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("the mask is trained"), std::string::npos) << why_nots(report);
}

// Six keys: on the CPU probabilities of so few are kept, and of a GPU's none; a number that is named holds for both.
TEST(FuseAttention, ThatProbabilitiesAreKeptDependsOnTheTarget) {
  const auto matched = [](const char* pass, kernels::Target target) {
    Graph graph = attention({});
    const PassReport report = run_pass(graph, pass, target);
    EXPECT_EQ(report.matched + report.rejected, 1) << why_nots(report);
    return report.matched;
  };
  EXPECT_EQ(matched("fuse-attention", kernels::Target::cpu), 0);
  EXPECT_EQ(matched("fuse-attention", kernels::Target::gpu), 1);
  EXPECT_EQ(matched("fuse-attention{min_keys=256}", kernels::Target::gpu), 0);
  EXPECT_EQ(matched("fuse-attention{min_keys=6}", kernels::Target::cpu), 1);
}

// Gradients are not asked of it, so that results and the other gradients are those of the parts.
TEST(FuseAttention, AFrozenMaskIsNotTrained) {
  Graph fused = attention({.mask = Masked::add, .trained_mask = true});
  fused.values[find_value(fused, "bias")].frozen = true;
  Graph apart = fused;
  const PassReport report = run_pass(fused, kAlways);
  EXPECT_EQ(report.matched, 1) << why_nots(report);
  add_attention_training(apart);
  add_attention_training(fused);
  EXPECT_EQ(op_counts(fused)["FusedAttentionGrad"], 1);
  expect_same_results(apart, fused, 1e-12);
}

// What ONNX's Attention and its relatives become when they are imported, with every kind of mask.
TEST(FuseAttention, TakesTheAttentionOperatorsOfOnnx) {
  const std::string four = "float[2, 4, 6, 5] q, float[2, 2, 6, 5] k, float[2, 2, 6, 5] v",
                    three = "float[2, 6, 8] q, float[2, 6, 8] k, float[2, 6, 8] v";
  struct Case {
    std::string inputs, node;
    int opset;
  };
  for (const Case& c :
       {Case{four, "Attention(q, k, v)", 23}, Case{four, "Attention<is_causal = 1>(q, k, v)", 23},
        Case{four + ", float[6, 6] m", "Attention(q, k, v, m)", 23},
        Case{four + ", float[6, 6] m", "Attention<is_causal = 1>(q, k, v, m)", 23},
        Case{four + ", bool[6, 6] m", "Attention(q, k, v, m)", 23},
        Case{four + ", bool[2, 1, 6, 6] m", "Attention<is_causal = 1>(q, k, v, m)", 23},
        Case{four + ", int64[2] n", "Attention<is_causal = 1>(q, k, v, , , , n)", 24},
        Case{four + ", float[6, 6] m, int64[2] n", "Attention(q, k, v, m, , , n)", 24},
        Case{four, "Attention<is_causal = 1, left_window_size = 2>(q, k, v)", 25},
        Case{three, "Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, v)", 23},
        Case{three, "com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v)", 17},
        Case{three, "com.microsoft.MultiHeadAttention<num_heads = 2, unidirectional = 1>(q, k, v)", 17},
        Case{three + ", int32[2, 6] p", "com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, , p)", 17},
        Case{"float[2, 6, 8] q, float[2, 6, 4] k, float[2, 6, 4] v, int32[2] n, int32 t",
             "com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, local_window_size = 3>"
             "(q, k, v, , , n, t)",
             17}}) {
    SCOPED_TRACE(c.node);
    auto model = test::model_from_text("g (" + c.inputs + ") => (float y) { y = " + c.node + " }", c.opset);
    auto* microsoft = model.add_opset_import();
    microsoft->set_domain("com.microsoft");
    microsoft->set_version(1);
    model.mutable_graph()->mutable_output(0)->clear_type();
    ImportOptions options;
    options.float_type = DType::f64;
    const auto imported = test::import_model(model, options);
    ASSERT_OK(imported);
    Graph apart = imported->graph, fused = imported->graph;
    const PassReport report = run_pass(fused, kAlways);
    EXPECT_EQ(report.matched, 1) << why_nots(report);
    add_attention_training(apart);
    add_attention_training(fused);
    EXPECT_EQ(op_counts(fused)["Softmax"], 0);
    expect_same_results(apart, fused, 1e-11);
  }
}

TEST(FuseAttention, OtherUsesOfSoftmaxAreNoNearMisses) {
  Graph graph;
  GraphBuilder b(graph);
  graph.outputs = {b.op("Softmax", {b.input("x", {DType::f64, {3, 4}})})};
  const PassReport report = run_pass(graph, kAlways);
  EXPECT_EQ(report.matched, 0);
  EXPECT_EQ(why_nots(report), "");
}

}  // namespace
}  // namespace gradloom
