#include "engine/plan/micro_steps.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

// What reads an accumulator runs once, what adds more to it with every micro-batch.
TEST(MicroSteps, OnceIsWhatFollowsTheSums) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId acc = b.input("acc", {DType::f32, {9, 4}}, Role::state),
                micro = b.input("micro", {DType::i64, {}}, Role::hyper),
                dx = b.input("dx", {DType::f32, {6, 4}}), tokens = b.input("tokens", {DType::i64, {6}});
  const ValueId gradient = b.op("Tanh", {b.input("g", {DType::f32, {9, 4}})});
  const ValueId begun = b.op("Accumulate", {acc, gradient, micro});
  const ValueId next = b.op("AccumulateRows", {begun, kNone, dx, tokens}, {{"axis", std::int64_t{0}}});
  const ValueId norm = b.op("GlobalNorm", {next});
  graph.updates = {{acc, next}};
  graph.outputs = {b.op("ClipScale", {norm}, {{"max_norm", 1.0}})};
  const auto order = topological_order(graph);
  ASSERT_TRUE(order.ok());
  const std::vector<bool> once = once_per_step(graph, *order);
  std::map<std::string, bool> found;
  for (const NodeId id : *order) found[graph.nodes[id].op->name] = once[id];
  EXPECT_EQ(found, (std::map<std::string, bool>{{"Tanh", false},
                                                {"Accumulate", false},
                                                {"AccumulateRows", false},
                                                {"GlobalNorm", true},
                                                {"ClipScale", true}}));
}

// Rows that are themselves made of an accumulator are not those of a micro-batch.
TEST(MicroSteps, RowsOfSumsAreAddedOnce) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId acc = b.input("acc", {DType::f32, {9, 4}}, Role::state),
                sums = b.input("sums", {DType::f32, {6, 4}}, Role::state),
                micro = b.input("micro", {DType::i64, {}}, Role::hyper),
                tokens = b.input("tokens", {DType::i64, {6}});
  const ValueId added = b.op("Accumulate", {sums, b.input("g", {DType::f32, {6, 4}}), micro});
  const ValueId next = b.op("AccumulateRows", {acc, kNone, added, tokens}, {{"axis", std::int64_t{0}}});
  graph.updates = {{sums, added}, {acc, next}};
  const auto order = topological_order(graph);
  ASSERT_TRUE(order.ok());
  EXPECT_TRUE(once_per_step(graph, *order)[graph.values[next].producer]);
}

// Of a node that adds to an accumulator and makes more besides, the sums alone are those of all micro-batches.
TEST(MicroSteps, WhatIsMadeBesideSumsIsOfEveryMicroBatch) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId acc = b.input("acc", {DType::f32, {9, 4}}, Role::state),
                micro = b.input("micro", {DType::i64, {}}, Role::hyper);
  const auto made = b.ops(op_by_name("AccumulateLinearCrossEntropy"),
                          {acc, micro, b.input("dloss", {DType::f32, {}}), b.input("x", {DType::f32, {6, 4}}),
                           b.input("w", {DType::f32, {9, 4}}), kNone, b.input("labels", {DType::i64, {6}})},
                          {{"axis", std::int64_t{0}}}, 3);
  const ValueId of_loss = b.op("Tanh", {made[0]}), of_rows = b.op("Tanh", {made[1]}),
                of_sums = b.op("Tanh", {made[2]});
  graph.updates = {{acc, made[2]}};
  graph.outputs = {of_loss, of_rows, of_sums};
  const auto order = topological_order(graph);
  ASSERT_TRUE(order.ok());
  const std::vector<bool> once = once_per_step(graph, *order);
  const auto is_once = [&](ValueId value) { return bool{once[graph.values[value].producer]}; };
  EXPECT_FALSE(is_once(made[0]));
  EXPECT_FALSE(is_once(of_loss));
  EXPECT_FALSE(is_once(of_rows));
  EXPECT_TRUE(is_once(of_sums));
}

}  // namespace
}  // namespace gradloom
