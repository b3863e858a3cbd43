// Sequences of tensors: lists while the file is read, Split and Concat in the graph.
#include "engine/onnx/read/node_reader.h"
#include "tests/engine/onnx/support.h"
#include "tests/engine/reference.h"

namespace gradloom {
namespace {

using test::expect_refused;
using test::import_model;
using test::imported_or_fail;
using test::model_from_text;
using test::node_of;
using test::value_of;

using Numbers = std::vector<double>;

onnx::ModelProto model_of(const std::string& output, const std::string& nodes) {
  return model_from_text("g (float[2, 5] x) => (" + output +
                         ") { zero = Constant<value = int64 {0}>() two = Constant<value = int64 {2}>()"
                         " last = Constant<value = int64 {-1}>() " +
                         nodes + " }");
}

// Output 0 for x = 0, 1, ... 9.
Numbers output_of(const Graph& graph) {
  const auto runner = reference::Runner::create(graph);
  EXPECT_TRUE(runner.ok());
  if (!runner.ok() || graph.inputs.empty()) return {};
  const Numbers x{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto values = runner->run({{graph.inputs[0], Tensor::from_f64(DType::f32, {2, 5}, x)}});
  EXPECT_TRUE(values.ok());
  return values.ok() ? (*values)[graph.outputs[0]].to_f64() : Numbers{};
}

Graph graph_of(const onnx::ModelProto& model) { return imported_or_fail(model).graph; }

TEST(Sequences, ChunksAreOneSplit) {
  const Graph graph =
      graph_of(model_of("float[2, 2] y", "s = SplitToSequence<axis = 1>(x, two) y = SequenceAt(s, zero)"));
  EXPECT_EQ(output_of(graph), (Numbers{0, 1, 5, 6}));
  int splits = 0;
  for (const Node& node : graph.nodes)
    splits += node.alive() && std::string(node.op->name) == "Split" ? 1 : 0;
  EXPECT_EQ(splits, 1);
  // The last chunk is what is left.
  EXPECT_EQ(output_of(graph_of(
                model_of("float[2, 1] y", "s = SplitToSequence<axis = 1>(x, two) y = SequenceAt(s, last)"))),
            (Numbers{4, 9}));
}

TEST(Sequences, SplitBySizesAndIntoSlices) {
  EXPECT_EQ(output_of(graph_of(model_of("float[2, 3] y",
                                        "sizes = Constant<value = int64[2] {2, 3}>() "
                                        "s = SplitToSequence<axis = -1>(x, sizes) y = SequenceAt(s, last)"))),
            (Numbers{2, 3, 4, 7, 8, 9}));
  EXPECT_EQ(output_of(graph_of(model_of(
                "float[5] y", "s = SplitToSequence<axis = 0, keepdims = 0>(x) y = SequenceAt(s, last)"))),
            (Numbers{5, 6, 7, 8, 9}));
}

TEST(Sequences, AreBuiltTakenApartAndJoined) {
  const Graph graph =
      graph_of(model_of("float[6, 5] y",
                        "n = Neg(x) a = SequenceConstruct(x, n) e = SequenceEmpty() b = SequenceInsert(e, x)"
                        " c = SequenceInsert(b, n, zero) d = SequenceErase(a, zero) f = SequenceAt(d, zero)"
                        " g = SequenceInsert(c, f) h = Identity(g) y = ConcatFromSequence<axis = 0>(h)"));
  Numbers want;
  for (const double sign : {-1.0, 1.0, -1.0})
    for (int i = 0; i < 10; ++i) want.push_back(sign * i);
  EXPECT_EQ(output_of(graph), want);
  const Graph stacked = graph_of(model_of(
      "float[2, 2, 5] y", "a = SequenceConstruct(x, x) y = ConcatFromSequence<axis = 1, new_axis = 1>(a)"));
  EXPECT_EQ(output_of(stacked), (Numbers{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 5, 6, 7, 8, 9}));
  EXPECT_EQ(output_of(graph_of(model_of("int64 y", "a = SequenceConstruct(x, x) y = SequenceLength(a)"))),
            (Numbers{2}));
}

TEST(Sequences, GoThroughLoops) {
  const Graph graph = graph_of(model_of(
      "float[2, 5] y",
      "n = Constant<value = int64 {5}>() t = Constant<value = bool {1}>() s = SplitToSequence<axis = 1>(x)"
      " e = SequenceEmpty() r = Loop (n, t, e) <body = b (int64 i, bool c, float[2, 1] l) =>"
      " (bool k, float[2, 1] out) { k = Identity(c) p = SequenceAt(s, i) out = SequenceInsert(l, p, "
      "zero) }>"
      " y = ConcatFromSequence<axis = 1>(r)"));
  EXPECT_EQ(output_of(graph), (Numbers{4, 3, 2, 1, 0, 9, 8, 7, 6, 5}));
}

TEST(Sequences, AreMapped) {
  const Graph graph = graph_of(model_of(
      "float[2, 5] y",
      "s = SplitToSequence<axis = 1>(x) n = Neg(x) t = SplitToSequence<axis = 1>(n)"
      " a, b = SequenceMap (s, t, two) <body = g (float[2, 1] p, float[2, 1] q, int64 k) =>"
      " (float[2, 1] u, float[2, 1] v) { f = CastLike(k, p) h = Mul(p, f) u = Add(h, q) v = Sub(p, q) }>"
      " c = ConcatFromSequence<axis = 1>(a) d = ConcatFromSequence<axis = 1>(b) y = Add(c, d)"));
  EXPECT_EQ(output_of(graph), (Numbers{0, 3, 6, 9, 12, 15, 18, 21, 24, 27})) << "(2x - x) + (x + x)";
}

TEST(Sequences, WhatIsNotKnownIsTheReason) {
  const auto refused = [](const std::string& nodes, const std::string& text) {
    expect_refused(import_model(model_of("float[2, 5] y", nodes)), Errc::bad_input, {text});
  };
  refused(
      "f = ReduceMax<keepdims = 0>(x) p = Cast<to = 7>(f) a = SequenceConstruct(x, x) y = SequenceAt(a, p)",
      "its position is not known before running");
  refused(
      "f = ReduceMax<keepdims = 0>(x) p = Cast<to = 7>(f) a = SplitToSequence(x, p) y = SequenceAt(a, zero)",
      "its sizes are not known before running");
  refused("a = SequenceConstruct(x, x) b = SequenceConstruct(a, a) y = Identity(x)",
          "a sequence of sequences");
  refused("y = SequenceAt(x, zero)", "its sequence is not known before running");
  refused("a = SequenceConstruct(x, x) y = Relu(a)", "Relu (1 node: Relu_4; of a sequence)");
}

TEST(Sequences, MalformedOnesAreRefused) {
  const auto refused = [](const std::string& nodes, const std::string& text) {
    expect_refused(import_model(model_of("float[2, 5] y", nodes)), Errc::bad_input, {text});
  };
  refused("a = SequenceConstruct(x, x) y = SequenceAt(a, two)", "position 2 is outside of the 2 tensors");
  refused("e = SequenceEmpty() y = ConcatFromSequence<axis = 0>(e)", "the sequence is empty");
  refused("e = SequenceEmpty() y = SequenceAt(e)", "has 1 inputs");
  refused("s = SplitToSequence<axis = 1>(x, zero) y = SequenceAt(s, zero)", "chunks of 0 elements");
  refused("s = SplitToSequence<axis = 3>(x, two) y = SequenceAt(s, zero)", "axis 3");
}

TEST(Sequences, AreNoOutputsOfTheModel) {
  expect_refused(import_model(model_of("float[2, 5] y", "y = SequenceConstruct(x, x)")), Errc::bad_input,
                 {"graph output 'y' is no tensor"});
}

}  // namespace
}  // namespace gradloom
