#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::op_counts;
using test::Perm;
using test::run_and_compare;

struct DeadCode : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  Type type{DType::f32, {3, 4}};
  ValueId x = b.input("x", type), y = b.input("y", type);
};

TEST_F(DeadCode, UnreadNodesGoOutputsLossAndUpdatesStay) {
  b.op("Exp", {b.op("Neg", {x})});
  const ValueId state = b.input("state", type, Role::state),
                loss = b.op("ReduceSum", {y}, {{"keepdims", std::int64_t{0}}});
  graph.updates = {{state, b.op("Add", {state, x})}};
  graph.outputs = {b.op("Tanh", {x})};
  graph.loss = loss;
  EXPECT_EQ(run_and_compare(graph, "dead-code", 0).matched, 2);
  EXPECT_EQ(op_counts(graph), (Counts{{"Add", 1}, {"ReduceSum", 1}, {"Tanh", 1}}));
}

TEST_F(DeadCode, UnreadOptionalOutputsAreNotWritten) {
  const auto d = b.ops(op_by_name("Dropout"), {x, b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 1)},
                       {{"key", std::int64_t{4}}}, 2);
  graph.outputs = {d[0]};
  EXPECT_EQ(run_and_compare(graph, "dead-code", 0).matched, 1);
  for (const Node& node : graph.nodes) {
    if (node.alive()) {
      EXPECT_EQ(node.outputs.size(), 1u);
    }
  }
}

// Which outputs each operator still writes, when only those of `read` are read.
std::vector<bool> written(const char* op, const std::vector<Type>& inputs, const Attrs& attrs, int outputs,
                          const std::vector<std::size_t>& read) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<ValueId> in;
  for (const Type& type : inputs) {
    const std::string name = "x" + std::to_string(in.size());
    in.push_back(is_float(type.dtype) ? b.input(name, type) : b.constant(Tensor::from_i64({2}), name));
  }
  const auto out = b.ops(op_by_name(op), in, attrs, outputs);
  for (const std::size_t i : read) graph.outputs.push_back(out[i]);
  run_and_compare(graph, "dead-code", 0);
  std::vector<bool> result;
  for (const Node& node : graph.nodes)
    if (node.alive())
      for (const ValueId v : node.outputs) result.push_back(v != kNone);
  return result;
}

TEST(DeadCodeOutputs, OfEachOperatorThatHasOptionalOnes) {
  using Written = std::vector<bool>;
  const auto f = [](Shape shape) { return Type{DType::f32, std::move(shape)}; };
  const std::vector<Type> top{f({3, 5}), {DType::i64, {1}}};
  EXPECT_EQ(written("TopK", top, {}, 2, {0}), (Written{true}));
  EXPECT_EQ(written("TopK", top, {}, 2, {1}), (Written{false, true}));
  EXPECT_EQ(written("TopK", top, {}, 2, {0, 1}), (Written{true, true}));
  EXPECT_EQ(written("RMSNormalization", {f({3, 4}), f({4})}, {}, 2, {0}), (Written{true}));
  EXPECT_EQ(written("LayerNormalization", {f({3, 4}), f({4})}, {}, 3, {0, 2}), (Written{true, false, true}));
  EXPECT_EQ(written("InstanceNormalization", {f({2, 3, 4}), f({3}), f({3})}, {}, 3, {0}), (Written{true}));
  EXPECT_EQ(written("GroupNormalization", {f({2, 4, 3}), f({4}), f({4})}, {{"num_groups", std::int64_t{2}}},
                    3, {0}),
            (Written{true}));
  EXPECT_EQ(written("MaxPool", {f({1, 1, 4, 4})}, {{"kernel_shape", Perm{2, 2}}}, 2, {0}), (Written{true}));
  const Attrs hidden{{"hidden_size", std::int64_t{2}}};
  const auto layer = [&](std::int64_t gates) {
    return std::vector<Type>{f({3, 2, 4}), f({1, gates * 2, 4}), f({1, gates * 2, 2})};
  };
  EXPECT_EQ(written("RNN", layer(1), hidden, 2, {1}), (Written{false, true}));
  EXPECT_EQ(written("GRU", layer(3), hidden, 4, {0}), (Written{true}));
  EXPECT_EQ(written("LSTM", layer(4), hidden, 3, {2}), (Written{false, false, true}));
  // The normalized values themselves stay: only statistics are optional.
  EXPECT_EQ(written("LayerNormalization", {f({3, 4}), f({4})}, {}, 2, {1}), (Written{true, true}));
}

TEST_F(DeadCode, OutputsThatCountForTheOthersStay) {
  const auto parts = b.ops(op_by_name("Split"), {x, b.i64s({1, 3})}, {{"axis", std::int64_t{1}}}, 2);
  graph.outputs = {parts[0]};
  EXPECT_EQ(run_and_compare(graph, "dead-code", 0).matched, 0);
}

}  // namespace
}  // namespace gradloom
