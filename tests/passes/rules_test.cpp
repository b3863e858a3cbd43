#include "passes/rules.h"

#include <fstream>

#include "passes/compile.h"
#include "passes/pattern.h"
#include "tests/passes/support.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

using test::op_counts;

constexpr const char* kQuickGelu = R"(
rule quick-gelu {
  y = Mul(x, s); s = Sigmoid(k); k = Mul(x, #1.702)
  -> y = Swish(x){alpha=1.702}
})";
// The same with the gradient that autodiff would find, said by the rule.
constexpr const char* kGiven = R"(
rule given-gelu {
  y = Mul(x, s); s = Sigmoid(k); k = Mul(x, #1.702)
  -> y = Mul(x, t); t = Sigmoid(u); u = Mul(x, #1.702)
  gradient dx = Mul(dy, g); g = Add(t, h); h = Mul(v, w); v = Sub(#1, t); w = Mul(y, #1.702)
})";
constexpr const char* kDivide = R"(
rule div-mul after {
  y = Div(x, #c) -> y = Mul(x, #(1 / c))
  where c != 0, dtype(x) == f32 | dtype(x) == f64, rank(x) >= 1
})";

// The rule on the graph, with its results compared.
PassReport run_rule(Graph& graph, const std::string& text, double tolerance = 1e-6) {
  const auto rules = parse_rules(text);
  EXPECT_TRUE(rules.ok()) << (rules.ok() ? "" : rules.error().message);
  if (!rules.ok()) return {};
  Pipeline pipeline;
  for (const auto& rule : *rules) pipeline.passes.push_back(configure_rule(rule).value());
  const Graph before = graph;
  std::vector<PassReport> reports;
  const Status status = run_passes(graph, pipeline, rules->front()->phase, reports);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  test::expect_same_results(before, graph, tolerance);
  return reports.empty() ? PassReport{} : reports[0];
}

struct RulesTest : test::TwoInputs {};

TEST_F(RulesTest, AFusedOperatorTakesThePlaceOfItsPieces) {
  graph.outputs = {b.op("Mul", {b.op("Sigmoid", {b.op("Mul", {b.scalar(DType::f32, 1.702), x})}), x})};
  const PassReport report = run_rule(graph, kQuickGelu);
  EXPECT_EQ(report.name, "quick-gelu");
  EXPECT_EQ(report.matched, 1);
  EXPECT_EQ(op_counts(graph), (test::Counts{{"Swish", 1}}));
}

TEST_F(RulesTest, ConstantsAreComputedFromMatchedOnes) {
  graph.outputs = {b.op("Div", {x, b.scalar(DType::f32, 3)})};
  EXPECT_EQ(run_rule(graph, kDivide).matched, 1);
  EXPECT_EQ(op_counts(graph), (test::Counts{{"Mul", 1}}));
}

TEST_F(RulesTest, ConstantsOfAWhereHaveTheTypeOfItsChoices) {
  graph.outputs = {b.op("Relu", {b.op("Sub", {x, y})})};
  EXPECT_EQ(
      run_rule(graph, "rule relu-where { r = Relu(d) -> r = Where(m, d, #0); m = Greater(d, #0) }").matched,
      1);
  EXPECT_EQ(op_counts(graph), (test::Counts{{"Sub", 1}, {"Greater", 1}, {"Where", 1}}));
}

TEST_F(RulesTest, ConditionsThatDoNotHoldAreTheReason) {
  const ValueId scalar = b.input("s", {DType::f32, {}});
  graph.outputs = {b.op("Div", {scalar, b.scalar(DType::f32, 3)})};
  const PassReport report = run_rule(graph, kDivide, 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(test::why_nots(report).find("the rule wants rank(x) >= 1"), std::string::npos)
      << test::why_nots(report);
}

TEST_F(RulesTest, AnotherTypeOfTheReplacementIsTheReason) {
  graph.outputs = {b.op("Exp", {b.op("Neg", {x})})};
  const PassReport report =
      run_rule(graph, "rule flat { y = Exp(n); n = Neg(x) -> y = Reshape(x, [-1]) }", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(test::why_nots(report).find("the replacement is f32[12]"), std::string::npos)
      << test::why_nots(report);
  const PassReport impossible =
      run_rule(graph, "rule no { y = Exp(n); n = Neg(x) -> y = Reshape(x, [5, -1]) }", 0);
  EXPECT_NE(test::why_nots(impossible).find("the replacement cannot be"), std::string::npos)
      << test::why_nots(impossible);
}

TEST_F(RulesTest, WhatIsKnownBeforeRunningIsLeft) {
  const ValueId rows = b.op("Gather", {b.op("Shape", {x}), b.i64s({0})}, {{"axis", std::int64_t{0}}});
  graph.values[rows].data = Tensor::from_i64({3});  // as import finds it
  graph.outputs = {b.op("Neg", {rows})};
  const PassReport report = run_rule(graph, "rule g { y = Gather(a, i) -> y = Slice(a, [0], [1]) }", 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(test::why_nots(report).find("known before running"), std::string::npos);
}

TEST_F(RulesTest, ValuesReadElsewhereKeepThePieces) {
  const ValueId s = b.op("Sigmoid", {b.op("Mul", {x, b.scalar(DType::f32, 1.702)})});
  graph.outputs = {b.op("Mul", {x, s}), b.op("Neg", {s})};
  const PassReport report = run_rule(graph, kQuickGelu, 0);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(test::why_nots(report).find("is also read by node"), std::string::npos);
}

TEST_F(RulesTest, AMatchedValueTakesTheResultsPlace) {
  const char* text = "rule twice { y = Neg(n); n = Neg(x) -> x where same(x, y) }";
  graph.outputs = {b.op("Exp", {b.op("Neg", {b.op("Neg", {x})})})};
  EXPECT_EQ(run_rule(graph, text, 0).matched, 1);
  EXPECT_EQ(op_counts(graph), (test::Counts{{"Exp", 1}}));
  graph.outputs = {b.op("Neg", {b.op("Neg", {y})})};
  const PassReport output = run_rule(graph, text, 0);
  EXPECT_EQ(output.matched, 0);
  EXPECT_NE(test::why_nots(output).find("is an output of the graph"), std::string::npos);
}

TEST_F(RulesTest, AttributesGoOver) {
  const test::Perm swap{1, 0};
  graph.outputs = {b.op("Transpose", {b.op("Exp", {x})}, {{"perm", swap}})};
  EXPECT_EQ(run_rule(graph,
                     "rule sink { y = Transpose(e){perm=$p}; e = Exp(x) -> y = Exp(t); t = "
                     "Transpose(x){perm=$p} }",
                     0)
                .matched,
            1);
  EXPECT_EQ(graph.nodes.back().op->name, std::string("Exp"));
  // An attribute of another kind is no crash but a reason.
  const PassReport report =
      run_rule(graph, "rule bad { y = Transpose(x){perm=$p} -> y = Softmax(x){axis=$p} }", 0);
  EXPECT_NE(test::why_nots(report).find("is of another type"), std::string::npos) << test::why_nots(report);
}

TEST_F(RulesTest, ArePassesWithASwitchOfTheirOwn) {
  const auto rules = parse_rules(std::string(kQuickGelu) + kDivide);
  ASSERT_OK(rules);
  ASSERT_EQ(rules->size(), 2u);
  EXPECT_EQ((*rules)[0]->phase, PassPhase::pre_gradient);
  EXPECT_EQ((*rules)[1]->phase, PassPhase::post_gradient);
  const Pipeline all = default_pipeline(*rules);
  EXPECT_EQ(all.text().find("quick-gelu,div-mul,fold-constants"), 0u) << all.text();
  const auto some = parse_pipeline("default,-quick-gelu,div-mul{except=/a/*}", *rules);
  ASSERT_OK(some);
  EXPECT_EQ(some->passes[0].def->name, std::string("div-mul"));
  EXPECT_EQ(some->passes[0].sites.except, std::set<std::string>{"/a/*"});
  EXPECT_EQ(parse_pipeline(some->text(), *rules)->text(), some->text());
  const auto unknown = parse_pipeline("default,-quick-gulu", *rules);
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("did you mean quick-gelu?"), std::string::npos);
  EXPECT_FALSE(parse_pipeline("default,quick-gelu{alpha=1}", *rules).ok());
}

TEST(Rules, ErrorsNameSourceLineAndColumn) {
  const std::pair<const char*, const char*> wrong[] = {
      {"rul a {}", "r:1:1: expected 'rule'"},
      {"rule cse { y = Neg(x) -> x }", "r:1:6: a pass is called 'cse' already"},
      {"rule a { y = Neg(x) -> x }\nrule a { y = Neg(x) -> x }", "r:2:6: rule 'a' stands here twice"},
      {"rule a { y = Neg(x) }", "r:1:21: expected the result of a statement, got '}'"},
      {"rule a { y = Neg(x) -> }", "r:1:24: expected what takes the pattern's place"},
      {"rule a { y = Neg(x) -> z }", "r:1:24: 'z' is no value that the pattern is made of"},
      {"rule a { y = Neg(x) -> z = Exp(x) }", "r:1:24: the first statement gives 'y'"},
      {"rule a { y = Neg(x) -> y = Exp(w) }", "r:1:24: 'w' is no value of the rule"},
      {"rule a { y = Neg(x) -> y = Exp(t) t = Neg(u) u = Neg(t) }", "r:1:24: 'y' is made of itself"},
      {"rule a { y = Neg(x) -> y = Exp(x) t = Neg(x) }", "r:1:24: 't' is nothing that the result is made of"},
      {"rule a { y = Neg(x) -> y = Exp(x, x) }", "r:1:28: Exp takes 1 inputs, not 2"},
      {"rule a { y = Neg(x) -> y = Softmax(x){axis=\"a\"} }",
       "r:1:44: attribute 'axis' of Softmax is of another type"},
      {"rule a { y = Neg(x) -> y = Mul(x, #c) }", "r:1:36: 'c' is no constant of the pattern (#c)"},
      {"rule a { y = Neg(x) -> x where rnk(x) > 1 }", "r:1:32: unknown function 'rnk'"},
      {"rule a { y = Neg(x) -> x gradient }",
       "r:1:35: no gradient of a value that the replacement reads is given ('dx')"},
      {"rule a { y = Neg(x) ->\n x gradient dx = Neg(z) }", "r:2:13: 'z' is no value of the rule"},
      {"rule a { y = Neg(x) -> x gradient x = Neg(dy) }", "r:1:35: 'x' is there already"},
      {"rule a { y = Neg(x) -> x gradient dx = Neg(t) t = Neg(dx) }", "r:1:35: 'dx' is made of itself"},
      {"rule a { y = Neg(x) -> x gradient dx = Neg(dy) t = Neg(dy) }",
       "r:1:35: 't' is nothing that the result is made of"},
      {"rule a { y = Neg(x) -> x gradient dx = Negg(dy) }", "r:1:40: unknown operator 'Negg'"},
      {"rule a after { y = Neg(x) -> x gradient dx = Neg(dy) }",
       "r:1:32: rules that run after autodiff have no gradient"},
      {"rule a { y = Neg(x) -> x where rank(z) > 1 }", "r:1:37: 'z' is no value of the pattern"}};
  for (const auto& [text, error] : wrong) {
    const auto rules = parse_rules(text, "r");
    ASSERT_FALSE(rules.ok()) << text;
    EXPECT_EQ(rules.error().code, Errc::usage);
    EXPECT_EQ(rules.error().message.find(error), 0u) << rules.error().message << "\n" << error;
  }
}

TEST(Rules, LimitsHold) {
  EXPECT_EQ(parse_rules(std::string(kMostRulesBytes + 1, ' ')).error().code, Errc::limit);
  std::string deep = "rule a { y = Div(x, #c) -> y = Mul(x, #" + std::string(10000, '(') + "c";
  EXPECT_NE(parse_rules(deep).error().message.find("deeper than"), std::string::npos);
  deep = "rule a { y = Div(x, #c) -> y = Mul(x, #" + std::string(10000, '-') + "c";
  EXPECT_NE(parse_rules(deep).error().message.find("deeper than"), std::string::npos);
  std::string many, long_rule = "rule a { v0 = Neg(v1) ";
  for (std::size_t i = 0; i <= kMostRules; ++i)
    many += "rule a" + std::to_string(i) + " { y = Neg(x) -> x }\n";
  EXPECT_NE(parse_rules(many).error().message.find("more than 256 rules"), std::string::npos);
  for (std::size_t i = 1; i <= Pattern::kMostStatements; ++i)
    long_rule += "v" + std::to_string(i) + " = Neg(v" + std::to_string(i + 1) + ") ";
  EXPECT_NE(parse_rules(long_rule).error().message.find("more than 64 statements"), std::string::npos);
}

// The examples of docs/rules.md are rules.
TEST(Rules, TheExamplesOfTheReferenceAreRules) {
  std::ifstream file(std::string(GRADLOOM_SOURCE_DIR) + "/docs/rules.md");
  std::string line, rules;
  for (bool code = false; std::getline(file, line);) {
    if (line == "```")
      code = !code;
    else if (code)
      rules += line + "\n";
  }
  const auto parsed = parse_rules(rules);
  ASSERT_OK(parsed);
  EXPECT_EQ(parsed->size(), 3u);
}

// Whatever stands in a file of rules, the answer is rules or one line.
TEST(Rules, EveryCutAndEveryChangedCharacterIsAnswered) {
  const std::string text = std::string(kQuickGelu) + kDivide + kGiven;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char c : {'\0', '(', '}', '#', '-', '"', '9', '\xff'}) {
      std::string changed = text;
      changed[i] = c;
      const auto rules = parse_rules(changed);
      if (!rules.ok()) {
        EXPECT_EQ(rules.error().message.find('\n'), std::string::npos);
      }
    }
    const auto cut = parse_rules(text.substr(0, i));
    if (!cut.ok()) {
      EXPECT_EQ(cut.error().code, Errc::usage);
    }
  }
}

// The gradient of what replaces a match is derived as everything's is.
TEST(Rules, GradientsAreThoseOfTheReplacement) {
  Graph model;
  GraphBuilder b(model);
  const ValueId x = b.input("x", {DType::f64, {4, 3}}),
                w = b.parameter("w", Tensor::from_f64(DType::f64, {3}, {1, -2, 0.5}));
  const ValueId p = b.op("Mul", {x, w});
  const ValueId q = b.op("Mul", {p, b.op("Sigmoid", {b.op("Mul", {p, b.scalar(DType::f64, 1.702)})})});
  model.outputs = {b.op("ReduceMean", {q}, {{"keepdims", std::int64_t{0}}})};
  const auto rules = parse_rules(kQuickGelu);
  ASSERT_OK(rules);
  const auto gradient = [&](const std::string& passes) -> Result<Tensor> {
    CompileOptions options;
    options.gradients_only = true;
    options.pipeline = TRY(parse_pipeline(passes, *rules));
    const Compiled compiled = TRY(compile(model, options));
    auto fed = test::random_inputs(compiled.train.graph, 5);
    fed[find_value(compiled.train.graph, "w")] = Tensor::from_f64(DType::f64, {3}, {1, -2, 0.5});
    const auto contents = TRY(test::evaluate_graph(compiled.train.graph, fed));
    for (const auto& [name, value] : compiled.gradients)
      if (name == "w") return contents.at(value);
    return Error{Errc::bug, "no gradient"};
  };
  const auto plain = gradient("none"), fused = gradient("quick-gelu");
  ASSERT_OK(plain);
  ASSERT_OK(fused);
  EXPECT_LE(test::largest_difference(*plain, *fused), 1e-12);
}

// Loss and gradients of GELU in the middle of a product, with rules.
struct GivenGradients : ::testing::Test {
  Graph model;
  void SetUp() override {
    GraphBuilder b(model);
    const ValueId x = b.input("x", {DType::f64, {4, 3}}), w = b.parameter("w", weights());
    const ValueId p = b.op("Mul", {x, w});
    const ValueId q = b.op("Mul", {p, b.op("Sigmoid", {b.op("Mul", {p, b.scalar(DType::f64, 1.702)})})});
    model.outputs = {b.op("ReduceMean",
                          {
                              b.op("Round", {b.op("Mul", {q, q})}),
                          },
                          {{"keepdims", std::int64_t{0}}}),
                     b.op("ReduceMean", {b.op("Mul", {q, q})}, {{"keepdims", std::int64_t{0}}})};
  }
  static Tensor weights() { return Tensor::from_f64(DType::f64, {3}, {1, -2, 0.5}); }

  struct Outcome {
    double loss = 0;
    Tensor gradient;
    test::Counts counts;
  };
  // `output`: of the model, which is the loss.
  Outcome run(const std::string& rules_text, const std::string& passes, std::size_t output,
              const Tensor& w = weights()) {
    const auto rules = parse_rules(rules_text);
    EXPECT_TRUE(rules.ok()) << (rules.ok() ? "" : rules.error().message);
    CompileOptions options;
    options.gradients_only = true;
    options.loss_for_gradients = model.values[model.outputs[output]].name;
    options.pipeline = *parse_pipeline(passes, *rules);
    const auto compiled = compile(model, options);
    EXPECT_TRUE(compiled.ok()) << (compiled.ok() ? "" : compiled.error().message);
    const Graph& graph = compiled->train.graph;
    auto fed = test::random_inputs(graph, 5);
    fed[find_value(graph, "w")] = w;
    const auto contents = test::evaluate_graph(graph, fed);
    EXPECT_TRUE(contents.ok());
    Outcome outcome{contents->at(graph.loss).at(0), {}, op_counts(graph)};
    for (const auto& [name, value] : compiled->gradients)
      if (name == "w" && value != kNone) outcome.gradient = contents->at(value);
    return outcome;
  }
};

TEST_F(GivenGradients, TakeThePlaceOfDerivedOnes) {
  const Outcome derived = run(kGiven, "none", 1);
  for (const char* passes : {"given-gelu", "default,given-gelu", "default"}) {
    const Outcome given = run(kGiven, passes, 1);
    EXPECT_NEAR(given.loss, derived.loss, 1e-13) << passes;
    EXPECT_LE(test::largest_difference(derived.gradient, given.gradient), 1e-12) << passes;
    for (const char* op : {"GivenGradient", "GradientSeed"}) EXPECT_EQ(given.counts.count(op), 0u) << passes;
  }
  for (std::int64_t i = 0; i < 3; ++i) {  // finite differences
    constexpr double kStep = 1e-6;
    Tensor more = weights(), less = weights();
    more.mutable_as<double>()[i] += kStep;
    less.mutable_as<double>()[i] -= kStep;
    const double slope =
        (run(kGiven, "given-gelu", 1, more).loss - run(kGiven, "given-gelu", 1, less).loss) / (2 * kStep);
    EXPECT_NEAR(run(kGiven, "given-gelu", 1).gradient.at(i), slope, 1e-8);
  }
}

// What the rule says is what happens: also where it is not the derivative, or where the operator has none.
TEST_F(GivenGradients, AreThoseOfTheRule) {
  std::string twice = kGiven;
  twice.replace(twice.find("dx = Mul(dy, g)"), 15, "dx = Mul(e, #2); e = Mul(dy, g)");
  const Tensor derived = run(kGiven, "none", 1).gradient, doubled = run(twice, "given-gelu", 1).gradient;
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_NEAR(doubled.at(i), 2 * derived.at(i), 1e-12);
  const char* straight = "rule straight { y = Round(x) -> y = Round(x) gradient dx = Identity(dy) }";
  EXPECT_FALSE(run(straight, "none", 0).gradient.defined()) << "Round has none";
  const Outcome through = run(straight, "straight", 0);
  EXPECT_EQ(through.loss, run(straight, "none", 0).loss);
  EXPECT_LE(test::largest_difference(through.gradient, derived), 1e-12);
}

TEST_F(RulesTest, GradientsThatDoNotFitAreTheReason) {
  graph.outputs = {b.op("Mul", {b.op("Exp", {x}), y})};
  const std::string rule = "rule g { z = Mul(e, b); e = Exp(a) -> z = Mul(f, b); f = Exp(a) gradient ";
  const auto reason = [&](const std::string& gradient) {
    Graph changed = graph;
    return test::why_nots(run_rule(changed, rule + gradient + " }"));
  };
  EXPECT_NE(reason("da = Mul(dz, z)").find("the rule gives no gradient of 'b'"), std::string::npos);
  EXPECT_NE(reason("da = Mul(dz, z) db = ReduceSum(dz)")
                .find("the gradient of 'b' is f32[1, 1], the value is f32[3, 4]"),
            std::string::npos)
      << reason("da = Mul(dz, z) db = ReduceSum(dz)");
  EXPECT_EQ(reason("da = Mul(dz, z) db = Mul(dz, f)"), "");
}

}  // namespace
}  // namespace gradloom
