// If, Loop and Scan: followed where their course is known, reported with the reason where not.
#include <cmath>

#include "engine/onnx/export.h"
#include "engine/autodiff/autodiff.h"
#include "engine/onnx/read/node_reader.h"
#include "tests/engine/onnx/support.h"
#include "tests/engine/reference.h"

namespace gradloom {
namespace {

using test::add_floats;
using test::add_ints;
using test::expect_refused;
using test::import_model;
using test::imported_or_fail;
using test::model_from_text;
using test::node_of;
using test::value_of;

std::vector<double> output_of(const Graph& graph, const std::map<std::string, std::vector<double>>& inputs,
                              std::size_t output = 0) {
  const auto runner = reference::Runner::create(graph);
  if (!runner.ok()) {
    ADD_FAILURE() << runner.error().message;
    return {};
  }
  reference::Feeds feeds;
  for (const ValueId id : graph.inputs)
    feeds[id] = Tensor::from_f64(graph.type(id).dtype, graph.type(id).shape, inputs.at(graph.value(id).name));
  const auto values = runner->run(feeds);
  if (!values.ok()) {
    ADD_FAILURE() << values.error().message;
    return {};
  }
  return (*values)[graph.outputs[output]].to_f64();
}

using Numbers = std::vector<double>;

// ---- If ---------------------------------------------------------------------------------------------------

onnx::ModelProto branching(const std::string& condition) {
  return model_from_text("g (float[2] x, bool b) => (float[2] y) { h = Relu(x) " + condition +
                         " y = If (c) <then_branch = t () => (float[2] r) { k = Neg(h) r = Add(k, x) },"
                         " else_branch = e () => (float[2] r) { r = Mul(h, h) }> }");
}

TEST(If, TakesTheBranchThatIsKnown) {
  // 2 dimensions' worth of elements: Size(x) = 2.
  const char* conditions[] = {"n = Size(x) l = Constant<value = int64 {2}>() c = Equal(n, l)",
                              "n = Size(x) l = Constant<value = int64 {3}>() c = Equal(n, l)"};
  const Graph taken = imported_or_fail(branching(conditions[0])).graph;
  EXPECT_EQ(output_of(taken, {{"x", {2, -1}}, {"b", {0}}}), (Numbers{0, -1}));
  EXPECT_STREQ(node_of(taken, "If_4/Add_1").op->name, "Add");
  const SourceNode& source = taken.sources[node_of(taken, "If_4/Neg_0").origin.sources[0]];
  EXPECT_EQ(source.op_type, "Neg");
  EXPECT_EQ(source.scope, "If_4");
  EXPECT_EQ(value_of(taken, "y").name, "y");
  const Graph other = imported_or_fail(branching(conditions[1])).graph;
  EXPECT_EQ(output_of(other, {{"x", {2, -1}}, {"b", {0}}}), (Numbers{4, 0}));
}

TEST(If, AnUnknownConditionIsTheReason) {
  const onnx::ModelProto model = branching("c = Not(b)");
  expect_refused(import_model(model), Errc::bad_input,
                 {"If (1 node: If_2; its condition is not known before running)"});
  ImportOptions viewing;
  viewing.allow_unknown = true;
  const ImportedModel viewed = imported_or_fail(model, viewing);
  ASSERT_EQ(viewed.unknown.size(), 1u);
  EXPECT_EQ(node_of(viewed.graph, "If_2").inputs.size(), 3u) << "the condition and the two captured values";
  EXPECT_EQ(to_string(value_of(viewed.graph, "y").type), "f32[]") << "graph outputs declare no values";
}

TEST(If, OutputsThatAreOuterValuesKeepTheirNames) {
  const Graph graph =
      imported_or_fail(
          model_from_text(
              "g (float[2] x) => (float[2] y, float[2] z) { c = Constant<value = bool {1}>() h = Relu(x)"
              " y, z = If (c) <then_branch = t () => (float[2] h, float[2] h) {},"
              " else_branch = e () => (float[2] h, float[2] h) {}> }"))
          .graph;
  EXPECT_EQ(graph.outputs.size(), 2u);
  EXPECT_EQ(graph.value(graph.outputs[1]).name, "z");
  EXPECT_EQ(value_of(graph, "h").name, "h");
  EXPECT_EQ(output_of(graph, {{"x", {2, -1}}}, 1), (Numbers{2, 0}));
}

TEST(If, NestsAndNamesWhatIsWrongInside) {
  const auto nested = [](const std::string& inner) {
    return model_from_text(
        "g (float[2] x) => (float[2] y) { c = Constant<value = bool {1}>()"
        " y = If (c) <then_branch = t () => (float[2] r) {"
        "   r = If (c) <then_branch = tt () => (float[2] s) { " +
        inner +
        " },"
        "               else_branch = te () => (float[2] s) { s = Neg(x) }> },"
        " else_branch = e () => (float[2] r) { r = Neg(x) }> }");
  };
  EXPECT_EQ(output_of(imported_or_fail(nested("s = Abs(x)")).graph, {{"x", {2, -1}}}), (Numbers{2, 1}));
  expect_refused(import_model(nested("s = Wobble(x)")), Errc::bad_input,
                 {"Wobble (1 node: If_1/If_0/Wobble_0)"});
  expect_refused(import_model(nested("s = Softmax<axis = 3>(x)")), Errc::bad_input,
                 {"'If_1' (If)", "'If_1/If_0' (If)", "'If_1/If_0/Softmax_0' (Softmax)", "axis 3"});
  expect_refused(import_model(nested("s = Abs(nobody)")), Errc::bad_input, {"'If_1' (If)", "'nobody'"});
  expect_refused(import_model(nested("x = Abs(c) s = Neg(x)")), Errc::bad_input, {"'x' is defined twice"});
}

TEST(If, MalformedOnesAreRefused) {
  const auto refused = [](const std::string& node, const std::string& text) {
    expect_refused(
        import_model(model_from_text("g (float[2] x) => (float[2] y) { c = Constant<value = bool {1}>()"
                                     " y = If " +
                                     node + " }")),
        Errc::bad_input, {text});
  };
  const std::string t = "then_branch = t () => (float[2] r) { r = Abs(x) }";
  const std::string e = "else_branch = e () => (float[2] r) { r = Abs(x) }";
  refused("(c) <" + t + ">", "'else_branch' is missing");
  refused("(c, c) <" + t + ", " + e + ">", "one input");
  refused("(c) <" + t + ", else_branch = e () => () {}>", "0 outputs, it needs 1");
  refused("(c) <" + t + ", else_branch = e (float[2] q) => (float[2] q) {}>", "no inputs");
  refused("(x) <" + t + ", " + e + ">", "not known before running");
}

TEST(If, WeightsOfBranchesAreParameters) {
  onnx::ModelProto model = branching("c = Constant<value = bool {0}>()");
  auto* branch = model.mutable_graph()->mutable_node(2)->mutable_attribute(1)->mutable_g();
  branch->mutable_node(0)->set_input(1, "scale");
  onnx::TensorProto* scale = branch->add_initializer();
  scale->set_name("scale");
  scale->set_data_type(onnx::TensorProto::FLOAT);
  scale->add_dims(2);
  scale->add_float_data(3);
  scale->add_float_data(5);
  const Graph graph = imported_or_fail(model).graph;
  ASSERT_EQ(graph.parameters.size(), 1u);
  EXPECT_EQ(graph.value(graph.parameters[0]).name, "scale");
  EXPECT_EQ(output_of(graph, {{"x", {2, 1}}, {"b", {0}}}), (Numbers{6, 5}));

  // A node may have the same name.
  model.mutable_graph()->mutable_node(2)->set_name("scale");
  const Graph named = imported_or_fail(model).graph;
  ASSERT_EQ(named.parameters.size(), 1u);
  EXPECT_EQ(named.value(named.parameters[0]).name, "scale");

  const TemporaryFolder folder;
  test::write_bytes(folder / "m.onnx", model.SerializeAsString());
  const Status exported = export_onnx(
      folder / "m.onnx", {{"scale", Tensor::from_f64(DType::f32, {2}, {7, 9})}}, folder / "trained.onnx");
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  const auto trained = import_onnx(folder / "trained.onnx", {});
  ASSERT_TRUE(trained.ok()) << trained.error().message;
  EXPECT_EQ(value_of(trained->graph, "scale").data.to_f64(), (Numbers{7, 9}));
}

// ---- Loop -------------------------------------------------------------------------------------------------

// s starts as x; every iteration: s = s * w + i, and s * s is a slice of the second output.
onnx::ModelProto looping(const std::string& trips, const std::string& next = "k = Identity(c)") {
  onnx::ModelProto model = model_from_text(
      "g (float[2] x, int64 n) => (float[2] y, float[T, 2] z) { " + trips +
      " y, z = Loop (m, t, x) <body = b (int64 i, bool c, float[2] s) => (bool k, float[2] r, float[2] q) {"
      "   p = Mul(s, w) f = Cast<to = 1>(i) r = Add(p, f) q = Mul(r, r) " +
      next + " }> }");
  add_floats(model, "w", {2}, {2, 3});
  return model;
}

constexpr const char* kThree = "m = Constant<value = int64 {3}>() t = Constant<value = bool {1}>()";

TEST(Loop, UnrollsAKnownCount) {
  const ImportedModel model = imported_or_fail(looping(kThree));
  const std::map<std::string, Numbers> inputs = {{"x", {1, -1}}, {"n", {0}}};
  // (1, -1) -> (2, -3) -> (5, -8) -> (12, -22)
  EXPECT_EQ(output_of(model.graph, inputs, 0), (Numbers{12, -22}));
  EXPECT_EQ(output_of(model.graph, inputs, 1), (Numbers{4, 9, 25, 64, 144, 484}));
  EXPECT_EQ(to_string(value_of(model.graph, "z").type), "f32[3, 2]");
  const Node& second = node_of(model.graph, "Loop_2/1/Mul_0");
  EXPECT_EQ(model.graph.sources[second.origin.sources[0]].scope, "Loop_2.1");
  EXPECT_EQ(model.graph.parameters.size(), 1u) << "a captured weight is trained";
}

TEST(Loop, EndsWhenItsConditionDoes) {
  // Goes on while i < 1: iterations 0 and 1 run.
  const std::string next = "one = Constant<value = int64 {1}>() k = Less(i, one)";
  const Graph counted = imported_or_fail(looping(kThree, next)).graph;
  EXPECT_EQ(output_of(counted, {{"x", {1, -1}}, {"n", {0}}}), (Numbers{5, -8}));
  onnx::ModelProto endless = looping(kThree, next);
  endless.mutable_graph()->mutable_node(2)->set_input(0, "");
  endless.mutable_graph()->mutable_node(2)->set_input(1, "");
  EXPECT_EQ(output_of(imported_or_fail(endless).graph, {{"x", {1, -1}}, {"n", {0}}}), (Numbers{5, -8}));
}

TEST(Loop, WithoutIterationsGivesWhatItGot) {
  for (const char* none : {"m = Constant<value = int64 {0}>() t = Constant<value = bool {1}>()",
                           "m = Constant<value = int64 {9}>() t = Constant<value = bool {0}>()",
                           "m = Constant<value = int64 {-5}>() t = Constant<value = bool {1}>()"}) {
    const ImportedModel model = imported_or_fail(looping(none));
    EXPECT_EQ(output_of(model.graph, {{"x", {1, -1}}, {"n", {0}}}), (Numbers{1, -1}));
    EXPECT_EQ(to_string(value_of(model.graph, "z").type), "f32[0, 2]");
  }
}

TEST(Loop, GradientsGoThroughEveryIteration) {
  ImportOptions options;
  options.float_type = DType::f64;
  ImportedModel model = imported_or_fail(looping(kThree), options);
  Graph& graph = model.graph;
  GraphBuilder b(graph);
  const auto total = [&](ValueId v) { return b.op("ReduceSum", {v}, {{"keepdims", std::int64_t{0}}}); };
  const ValueId loss = b.op("Add", {total(graph.outputs[0]), total(graph.outputs[1])});
  const ValueId w = graph.parameters[0], x = graph.inputs[0];
  const auto grads = add_gradients(graph, loss, {w, x});
  ASSERT_TRUE(grads.ok()) << grads.error().message;
  const auto runner = reference::Runner::create(graph);
  ASSERT_TRUE(runner.ok());
  const auto loss_at = [&](const Numbers& at_w, const Numbers& at_x) {
    reference::Feeds feeds{{w, Tensor::from_f64(DType::f64, {2}, at_w)},
                           {x, Tensor::from_f64(DType::f64, {2}, at_x)},
                           {graph.inputs[1], Tensor::from_i64({0}).reshaped({})}};
    return *runner->run(feeds);
  };
  const Numbers at_w = {0.7, -1.1}, at_x = {0.3, 0.9};
  const auto values = loss_at(at_w, at_x);
  for (std::size_t i = 0; i < 2; ++i) {
    for (const bool weight : {true, false}) {
      Numbers side[2] = {weight ? at_w : at_x, weight ? at_w : at_x};
      side[0][i] += 1e-5;
      side[1][i] -= 1e-5;
      double sides[2];
      for (int k = 0; k < 2; ++k)
        sides[k] = (weight ? loss_at(side[k], at_x) : loss_at(at_w, side[k]))[loss].at(0);
      const double difference = (sides[0] - sides[1]) / 2e-5;
      EXPECT_NEAR(values[grads->at(weight ? w : x)].at(static_cast<std::int64_t>(i)), difference,
                  1e-8 + 1e-6 * std::fabs(difference));
    }
  }
}

TEST(Loop, ACourseThatDependsOnDataIsTheReason) {
  expect_refused(import_model(looping("m = Identity(n) t = Constant<value = bool {1}>()")), Errc::bad_input,
                 {"Loop (1 node: Loop_2; its trip count is not known"});
  expect_refused(import_model(looping(kThree,
                                      "z0 = ReduceSum<keepdims = 0>(s) l = ReduceSum<keepdims = 0>(q)"
                                      " k = Less(z0, l)")),
                 Errc::bad_input, {"Loop_2", "whether iteration 1 follows is not known"});
}

TEST(Loop, UnknownOperatorsInsideAreNamedOnce) {
  onnx::ModelProto model = looping(kThree);
  model.mutable_graph()->mutable_node(2)->mutable_attribute(0)->mutable_g()->mutable_node(0)->set_op_type(
      "Wobble");
  expect_refused(import_model(model), Errc::bad_input,
                 {"1 operator is not", "Wobble (1 node: Loop_2/0/Wobble_0)"});
}

TEST(Loop, LimitsEndBombs) {
  expect_refused(import_model(looping("m = Constant<value = int64 {9223372036854775807}>()"
                                      " t = Constant<value = bool {1}>()")),
                 Errc::limit, {"Loop_2", "after unrolling"});
  ImportOptions options;
  options.limits.expanded_nodes = 40;
  expect_refused(
      import_model(looping("m = Constant<value = int64 {20}>() t = Constant<value = bool {1}>()"), options),
      Errc::limit, {"40 nodes after unrolling"});
  options.allow_unknown = true;  // it can be looked at
  const auto viewed =
      import_model(looping("m = Constant<value = int64 {20}>() t = Constant<value = bool {1}>()"), options);
  ASSERT_TRUE(viewed.ok()) << viewed.error().message;
  ASSERT_EQ(viewed->unknown.size(), 1u);
  EXPECT_NE(viewed->unknown[0].reason.find("40 nodes after unrolling"), std::string::npos);
}

// ---- Scan -------------------------------------------------------------------------------------------------

onnx::ModelProto scanning(const std::string& attributes, const std::string& length = "3") {
  return model_from_text("g (float[2] s, float[" + length + ", 2] x) => (float[2] e, float[" + length +
                         ", 2] y) { e, y = Scan <num_scan_inputs = 1" + attributes +
                         ", body = b (float[2] a, float[2] v) => (float[2] n, float[2] o)"
                         " { n = Add(a, v) o = Mul(n, v) }> (s, x) }");
}

TEST(Scan, RunsOverTheSequence) {
  const std::map<std::string, Numbers> inputs = {{"s", {1, 0}}, {"x", {1, 2, 3, 4, 5, 6}}};
  const Graph forward = imported_or_fail(scanning("")).graph;
  EXPECT_EQ(output_of(forward, inputs, 0), (Numbers{10, 12}));
  EXPECT_EQ(output_of(forward, inputs, 1), (Numbers{2, 4, 15, 24, 50, 72}));
  const Graph backward =
      imported_or_fail(scanning(", scan_input_directions = [1], scan_output_directions = [1]")).graph;
  EXPECT_EQ(output_of(backward, inputs, 1), (Numbers{10, 24, 27, 40, 30, 36}));
  EXPECT_EQ(forward.sources[node_of(forward, "Scan_0/2/Add_0").origin.sources[0]].scope, "Scan_0.2");
}

TEST(Scan, AxesOfInputsAndOutputs) {
  const Graph graph =
      imported_or_fail(model_from_text("g (float[2] s, float[2, 3] x) => (float[2] e, float[2, 3] y) {"
                                       " e, y = Scan <num_scan_inputs = 1, scan_input_axes = [-1],"
                                       " scan_output_axes = [1], body = b (float[2] a, float[2] v) =>"
                                       " (float[2] n, float[2] o) { n = Add(a, v) o = Neg(v) }> (s, x) }"))
          .graph;
  EXPECT_EQ(output_of(graph, {{"s", {0, 0}}, {"x", {1, 2, 3, 4, 5, 6}}}, 0), (Numbers{6, 15}));
  EXPECT_EQ(output_of(graph, {{"s", {0, 0}}, {"x", {1, 2, 3, 4, 5, 6}}}, 1),
            (Numbers{-1, -2, -3, -4, -5, -6}));
}

// Opset 8: every input and output has a batch axis before it.
TEST(Scan, OfABatch) {
  const auto scan = [](const std::string& lengths, const std::string& batch) {
    onnx::ModelProto model =
        model_from_text("g (float[" + batch + ", 1] s, float[" + batch + ", 3, 1] x, int64[" + batch +
                            "] l) => (float[" + batch + ", 1] e, float[" + batch +
                            ", 3, 1] y) { e, y = Scan <num_scan_inputs = 1, directions = [1],"
                            " body = b (float[1] a, float[1] v) => (float[1] n, float[1] o)"
                            " { n = Add(a, v) o = Mul(n, v) }> (l, s, x) }",
                        8);
    model.mutable_graph()->mutable_node(0)->set_input(0, lengths);
    return model;
  };
  const Graph graph = imported_or_fail(scan("", "2")).graph;
  const std::map<std::string, Numbers> inputs = {{"s", {1, 10}}, {"x", {1, 2, 3, 4, 5, 6}}, {"l", {3, 3}}};
  EXPECT_EQ(output_of(graph, inputs, 0), (Numbers{7, 25}));
  EXPECT_EQ(output_of(graph, inputs, 1), (Numbers{12, 12, 7, 96, 105, 100}));
  EXPECT_EQ(graph.sources[node_of(graph, "Scan_0/1.2/Add_0").origin.sources[0]].scope, "Scan_0.1.2");
  expect_refused(import_model(scan("l", "2")), Errc::bad_input, {"lengths of their own"});
  expect_refused(import_model(scan("", "N")), Errc::bad_input, {"its batch is a dimension without"});
}

TEST(Scan, ALengthWithoutANumberIsTheReason) {
  expect_refused(import_model(scanning("", "T")), Errc::bad_input,
                 {"Scan (1 node: Scan_0; its trip count", "--dim"});
  ImportOptions options;
  options.dims = {{"T", 4}};
  EXPECT_EQ(to_string(value_of(imported_or_fail(scanning("", "T"), options).graph, "y").type), "f32[4, 2]");
  expect_refused(import_model(scanning(", scan_input_axes = [0, 1]")), Errc::bad_input, {"wrong size"});
}

TEST(ControlFlow, WhatSubgraphsReadComesFirst) {
  onnx::ModelProto model = branching("c = Constant<value = bool {1}>()");
  // The If before the node whose output its branch captures.
  model.mutable_graph()->mutable_node()->SwapElements(0, 2);
  const ImportedModel imported = imported_or_fail(model);
  EXPECT_TRUE(test::has_note(imported, "sorted"));
  EXPECT_EQ(output_of(imported.graph, {{"x", {2, -1}}, {"b", {0}}}), (Numbers{0, -1}));
}

}  // namespace
}  // namespace gradloom
