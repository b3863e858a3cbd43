#include "engine/plan/known_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>

#include "engine/ops/samples.h"
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

// A graph of the sample's node alone.
Result<Graph> graph_of(const OpDef& op, const Sample& sample) {
  Graph graph;
  GraphBuilder b(graph);
  std::vector<ValueId> ids;
  for (const SampleInput& input : sample.inputs) {
    const Type& type = input.type;
    const std::string name = "x" + std::to_string(ids.size());
    if (input.omitted) {
      ids.push_back(kNone);
    } else if (input.constant) {
      ids.push_back(b.constant(input.values.empty() ? numbers(type.dtype, type.shape, 1)
                                                    : Tensor::from_f64(type.dtype, type.shape, input.values),
                               name));
    } else {
      ids.push_back(b.input(name, type));
    }
  }
  TRY(b.add(op, ids, sample.attrs, sample.output_count, {}, "node"));
  return graph;
}

void expect_same(const KnownKernels::Facts& known, const KnownKernels::Facts& asked,
                 const std::string& where) {
  EXPECT_EQ(known.kernel, asked.kernel) << where;
  EXPECT_EQ(known.workspace_bytes, asked.workspace_bytes) << where;
  EXPECT_EQ(known.cost.flops, asked.cost.flops) << where;
  EXPECT_EQ(known.cost.bytes_read, asked.cost.bytes_read) << where;
  EXPECT_EQ(known.cost.bytes_written, asked.cost.bytes_written) << where;
}

// The operator's own kernel, asked for twice before prepare_kernel's: of f16, which some have on the CPU and some have not.
TEST(KnownKernels, TellWhetherAnOperatorsOwnKernelTakesTheTypes) {
  KnownKernels known;
  int taken = 0, refused = 0;
  std::list<Graph> graphs;  // contents are told apart by where they lie
  for (const OpDef* op : all_ops()) {
    if (op->cpu == nullptr) continue;
    for (const Sample& sample : op->samples()) {
      auto graph = graph_of(*op, sample);
      ASSERT_TRUE(graph.ok()) << op->name << " " << sample.name << ": " << graph.error().message;
      graphs.push_back(*std::move(graph));
      NodeTypes types = node_types(graphs.back(), graphs.back().nodes.back());
      for (auto* list : {&types.inputs, &types.outputs})
        for (Type& type : *list)
          if (type.dtype == DType::f32) type.dtype = DType::f16;
      if (std::any_of(types.constants.begin(), types.constants.end(),
                      [](const Tensor* t) { return t != nullptr; }))
        continue;  // of the sample's own type
      const auto own = op->cpu(types);
      for (int i = 0; i < 2; ++i) {
        const Status told = known.own(*op, types);
        EXPECT_EQ(told.ok(), own.ok()) << op->name << " " << sample.name;
        if (!told && !own) {
          EXPECT_EQ(told.error().message, own.error().message);
        }
      }
      ++(own ? taken : refused);
      const auto asked = kernel_facts(*op, types);
      if (asked) expect_same(known.of(*op, types).value(), *asked, std::string(op->name) + " " + sample.name);
    }
  }
  EXPECT_GT(taken, 50);
  EXPECT_GT(refused, 50);
}

// All samples of all operators through one memory, each asked for again after all others.
TEST(KnownKernels, AreWhatPreparingWouldFind) {
  struct Row {
    const OpDef* op;
    Graph graph;
    KnownKernels::Facts asked;
    std::string where;
  };
  std::list<Row> rows;
  for (const OpDef* op : all_ops()) {
    if (op->prepare(kernels::Target::cpu) == nullptr) continue;
    for (const Sample& sample : op->samples()) {
      auto graph = graph_of(*op, sample);
      ASSERT_TRUE(graph.ok()) << op->name << " " << sample.name << ": " << graph.error().message;
      const auto asked = kernel_facts(*op, node_types(*graph, graph->nodes.back()));
      if (asked) rows.push_back({op, *std::move(graph), *asked, std::string(op->name) + " " + sample.name});
    }
  }
  ASSERT_GT(rows.size(), 1000u);
  KnownKernels known;
  for (int round = 0; round < 2; ++round)
    for (const Row& row : rows) {
      const auto facts = known.of(*row.op, node_types(row.graph, row.graph.nodes.back()));
      ASSERT_TRUE(facts.ok()) << row.where;
      expect_same(*facts, row.asked, row.where);
    }
}

// What is kept is used: a row that no longer answers is not asked again.
TEST(KnownKernels, AreAskedOnce) {
  OpDef counted = op_by_name("Relu");
  static int calls;
  calls = 0;
  counted.cost = [](const NodeTypes& types) {
    ++calls;
    return default_cost(types);
  };
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4, 8}}), wide = b.input("wide", {DType::f32, {4, 9}});
  ASSERT_TRUE(b.add(counted, {x}, {}, 1, {}, "one").ok());
  ASSERT_TRUE(b.add(counted, {x}, {}, 1, {}, "two").ok());
  ASSERT_TRUE(b.add(counted, {wide}, {}, 1, {}, "three").ok());
  ASSERT_TRUE(b.add(counted, {x}, {{"other", std::int64_t{1}}}, 1, {}, "four").ok());
  KnownKernels known;
  std::vector<int> after;
  for (const Node& node : graph.nodes) {
    ASSERT_TRUE(known.of(counted, node_types(graph, node)).ok());
    after.push_back(calls);
  }
  EXPECT_EQ(after, (std::vector<int>{1, 1, 2, 3}));
}

}  // namespace
}  // namespace gradloom
