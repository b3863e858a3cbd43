// How many rows of tokens a batch has, counted by the host from what it sends, and what becomes of that.
#include "engine/run/row_counts.h"

#include <gtest/gtest.h>

#include "engine/ops/padding/packed_rows.h"
#include "engine/ops/padding/token_rows.h"
#include "engine/run/executor.h"
#include "tests/engine/run/queued_device.h"

namespace gradloom {
namespace {

constexpr std::int64_t kTexts = 4, kPositions = 16;  // 64 rows: steps of 4

// One product on rows of tokens. The mask: an input, what follows from one, or from a parameter.
enum class From { input, ids, parameter };
struct Rows {
  Graph graph;
  GraphBuilder b{graph};
  ValueId given = kNone, x = kNone;
  Plan plan;

  explicit Rows(From from, bool inverted = false) {
    const Shape dims{kTexts, kPositions};
    given = from == From::parameter ? b.parameter("given", Tensor(DType::i64, dims))
                                    : b.input("given", {DType::i64, dims});
    x = b.input("x", {DType::f32, {kTexts, kPositions, 8}});
    ValueId mask = given;
    if (from == From::ids) {
      const ValueId flat = b.op("Reshape", {given, b.i64s({kTexts * kPositions})});
      mask = b.op("Reshape", {b.op("Not", {b.op("Equal", {flat, b.scalar(DType::i64, 1)})}), b.i64s(dims)});
    }
    Attrs attrs;
    if (inverted) attrs.set("inverted", std::int64_t{1});
    const auto t = b.ops(token_rows_op(), {mask}, std::move(attrs), 3);
    const ValueId rows = b.op(pack_rows_op(), {x, t[0], t[1], t[2]}),
                  w = b.parameter("w", Tensor(DType::f32, {8, 8}));
    const Node product{.op = &op_by_name("MatMul"), .inputs = {rows, w}};
    PackedNode packed = packed_node(product, t[2], {0}, {0});
    const ValueId y = b.op(*packed.op, std::move(packed.inputs), std::move(packed.attrs));
    graph.outputs = {b.op(unpack_rows_op(), {y, t[0], t[1], t[2]})};
    auto made = make_plan(graph, {stack_all, "stack", true});
    EXPECT_TRUE(made.ok()) << made.error().message;
    plan = std::move(made).value();
  }
  // The first `tokens` positions hold `token`, the others `padding`.
  Tensor batch(std::int64_t tokens, double token, double padding) const {
    std::vector<double> numbers(kTexts * kPositions, padding);
    std::fill_n(numbers.begin(), tokens, token);
    return Tensor::from_f64(DType::i64, {kTexts, kPositions}, numbers);
  }
};

TEST(RowCounts, AreThoseOfTheBatchAsKernelsArePreparedForThem) {
  struct Case {
    From from;
    bool inverted;
    double token, padding;
  };
  for (const Case& c :
       {Case{From::input, false, 1, 0}, Case{From::input, true, 0, 7}, Case{From::ids, false, 5, 1}}) {
    const Rows rows(c.from, c.inverted);
    RowCounts counts;
    ASSERT_TRUE(counts.prepare(rows.graph, rows.plan).ok());
    ASSERT_TRUE(counts.any());
    for (const auto& [tokens, expected] :
         {std::pair(0, 4), {1, 4}, {4, 4}, {5, 8}, {33, 36}, {61, 64}, {64, 64}}) {
      const Tensor batch = rows.batch(tokens, c.token, c.padding);
      EXPECT_EQ(counts.rows([&](ValueId v) { return v == rows.given ? batch.data() : nullptr; }), expected)
          << tokens;
    }
    EXPECT_EQ(counts.rows([](ValueId) { return nullptr; }), RowCounts::kAll) << "nobody knows the batch";
  }
}

TEST(RowCounts, WhatFollowsFromMoreThanInputsIsNotCounted) {
  const Rows rows(From::parameter);
  RowCounts counts;
  ASSERT_TRUE(counts.prepare(rows.graph, rows.plan).ok());
  EXPECT_FALSE(counts.any());
  QueuedDevice device;
  const auto executor = Executor::create(rows.graph, rows.plan, device);
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  ASSERT_TRUE((*executor)->run_forward().ok());
  EXPECT_EQ(device.rows, std::vector<std::int64_t>{RowCounts::kAll}) << "all are computed";
}

TEST(RowCounts, PlansWithoutPaddingHaveNone) {
  SmallPlan small;
  RowCounts counts;
  ASSERT_TRUE(counts.prepare(small.graph, small.plan).ok());
  EXPECT_FALSE(counts.any());
}

// Each number of rows is launched one by one once, then recorded, then run as recorded.
TEST(RowCounts, AnExecutorTellsItsKernels) {
  const Rows rows(From::input);
  QueuedDevice device;
  const auto executor = Executor::create(rows.graph, rows.plan, device);
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  using Counted = std::vector<std::int64_t>;
  const auto step = [&](std::int64_t number, std::vector<std::int64_t> tokens) {
    StepOptions options;
    options.step = number;
    options.micro_batches = static_cast<std::int64_t>(tokens.size());
    device.rows.clear();
    device.take_notes();
    const auto done = (*executor)->step({}, options, [&](std::int64_t k) {
      return (*executor)->feed(rows.given, rows.batch(tokens[static_cast<std::size_t>(k)], 1, 0));
    });
    EXPECT_TRUE(done.ok()) << done.error().message;
    return device.rows;
  };
  const auto replays = [&] { return std::count(device.notes.begin(), device.notes.end(), "replay"); };
  EXPECT_EQ(step(1, {10}), Counted{12});
  EXPECT_EQ(replays(), 0);
  EXPECT_EQ(step(2, {40}), Counted{40});
  EXPECT_EQ(replays(), 0) << "never launched with so many";
  EXPECT_EQ(step(3, {11}), Counted{12}) << "recorded";
  EXPECT_EQ(replays(), 1);
  EXPECT_EQ(step(4, {12}), Counted{}) << "as recorded";
  EXPECT_EQ(replays(), 1);
  EXPECT_EQ(step(5, {20, 39}), (Counted{20, 40}))
      << "of a micro-batch: the first is launched, the second recorded";
  ASSERT_TRUE((*executor)->run_forward().ok());
  EXPECT_EQ(device.rows.back(), 40) << "the batch stays until another is fed";
}

}  // namespace
}  // namespace gradloom
