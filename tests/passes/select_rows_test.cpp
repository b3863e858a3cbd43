// select-rows: results stay equal, and what lies before a selection has its rows alone.
#include "tests/passes/padded_model.h"

namespace gradloom {
namespace {

using test::run_and_compare;
using test::why_nots;

constexpr const char* kSelect = "select-rows";
constexpr double kNear = 1e-13;

struct SelectRows : ::testing::Test {
  static constexpr std::int64_t kTexts = 2, kWords = 6, kColumns = 8;
  Graph graph;
  GraphBuilder b{graph};
  ValueId x = b.input("x", {DType::f64, {kTexts, kWords, kColumns}});

  ValueId weight(const std::string& name, Shape shape) {
    std::mt19937 random(static_cast<unsigned>(name.size()) + 3);
    return b.parameter(name, test::random_tensor({DType::f64, std::move(shape)}, random));
  }
  // What makes rows that are no longer followed: it mixes them.
  ValueId mixed(ValueId v, std::int64_t axis = 1) {
    return b.op("CumSum", {v, b.scalar(DType::i64, double(axis))});
  }
  ValueId product(ValueId v) { return b.op("MatMul", {v, weight("weight", {kColumns, kColumns})}); }
  ValueId rows(ValueId v, std::int64_t begin, std::int64_t end, std::int64_t axis = 1,
               std::int64_t step = 1) {
    return b.op("Slice", {v, b.i64s({begin}), b.i64s({end}), b.i64s({axis}), b.i64s({step})});
  }
  ValueId first(ValueId v) { return rows(v, 0, 1); }
  ValueId gathered(ValueId v, ValueId numbers, std::int64_t axis = 1) {
    return b.op("Gather", {v, numbers}, {{"axis", axis}});
  }
  ValueId numbers(const std::vector<std::int64_t>& shape) { return b.input("numbers", {DType::i64, shape}); }

  // The value, computed where `selected` was taken of it, has this shape afterwards.
  void expect_rows(ValueId selected, const std::map<std::string, Shape>& shapes,
                   const std::string& passes = kSelect) {
    graph.outputs = {b.op("Exp", {selected})};
    const PassReport report = run_and_compare(graph, passes, kNear);
    EXPECT_EQ(report.matched, 1) << why_nots(report);
    std::set<std::string> seen;
    for (const Node& node : graph.nodes) {
      if (!node.alive()) continue;
      const auto wanted = shapes.find(node.op->name);
      if (wanted == shapes.end()) continue;
      seen.insert(wanted->first);
      EXPECT_EQ(graph.type(node.outputs[0]).shape, wanted->second) << node.name;
    }
    EXPECT_EQ(seen.size(), shapes.size());
    EXPECT_EQ(test::run_pass(graph, passes).matched, 0) << "again";
  }
  void expect_whole(ValueId selected, const std::string& why, const std::string& passes = kSelect) {
    graph.outputs.push_back(b.op("Exp", {selected}));
    const PassReport report = run_and_compare(graph, passes, 0);
    EXPECT_EQ(report.matched, 0);
    EXPECT_NE(why_nots(report).find(why), std::string::npos) << why_nots(report);
  }
};

TEST_F(SelectRows, OfALayerTheFirstTokenIsComputed) {
  const ValueId before = mixed(x);
  ValueId y = b.op("Gelu", {b.op("Add", {product(before), weight("bias", {kColumns})})});
  y = b.op("LayerNormalization",
           {b.op("Add", {y, before}), weight("scales", {kColumns}), weight("shift", {kColumns})});
  const Shape one{kTexts, 1, kColumns};
  expect_rows(first(y),
              {{"MatMul", one}, {"Gelu", one}, {"Add", one}, {"LayerNormalization", one}, {"Slice", one}});
  EXPECT_EQ(test::op_counts(graph)["Slice"], 1) << "of both operands of the sum";
}

TEST_F(SelectRows, NodesKeepNamesAndOriginsAndTheLogTellsThem) {
  const ValueId y = product(mixed(x));
  const std::string name = graph.nodes[graph.values[y].producer].name;
  graph.outputs = {b.op("Exp", {first(y)})};
  const PassReport report = run_and_compare(graph, kSelect, kNear);
  ASSERT_EQ(report.matched, 1);
  const RewriteRecord& record = report.log.back();
  EXPECT_EQ(record.why, "1 of 6 rows in 1 node, 1 product");
  EXPECT_EQ(record.changed, std::vector<std::string>{name});
  ASSERT_TRUE(record.saves.has_value());
  EXPECT_EQ(record.saves->flops, 2.0 * kTexts * kColumns * kColumns * (kWords - 1));
  EXPECT_EQ(record.saves->kernels, 0);
}

TEST_F(SelectRows, RowsChosenByTheData) {
  expect_rows(gathered(product(mixed(x)), numbers({3})), {{"MatMul", {kTexts, 3, kColumns}}});
}
TEST_F(SelectRows, ATableOfRowNumbers) {
  expect_rows(gathered(product(mixed(x)), numbers({2, 2})), {{"MatMul", {kTexts, 4, kColumns}}});
}
TEST_F(SelectRows, OneRowWithoutItsAxis) {
  expect_rows(gathered(product(mixed(x)), b.scalar(DType::i64, -1)), {{"MatMul", {kTexts, 1, kColumns}}});
}
TEST_F(SelectRows, EverySecondRow) {
  expect_rows(rows(product(mixed(x)), 1, 6, 1, 2), {{"MatMul", {kTexts, 3, kColumns}}});
}
TEST_F(SelectRows, ExamplesOfTheBatch) {
  expect_rows(rows(product(mixed(x)), 1, 2, 0), {{"MatMul", {1, kWords, kColumns}}});
}
TEST_F(SelectRows, AnOutputKeepsItsName) {
  const ValueId y = first(product(mixed(x)));
  graph.values[y].name = "wanted";
  graph.outputs = {y};
  EXPECT_EQ(run_and_compare(graph, kSelect, kNear).matched, 1);
  EXPECT_EQ(graph.values[graph.outputs[0]].name, "wanted");
}

// As x[arange(n), last]: a text's number and a word's for each row.
TEST_F(SelectRows, RowsOfTwoAxes) {
  const ValueId places = b.constant(Tensor::from_f64(DType::i64, {2, 2}, {0, 4, 1, 2}));
  ValueId y = b.op("Add", {product(mixed(x)), weight("bias", {1, 1, kColumns})});
  y = b.op("LayerNormalization", {y, weight("scales", {kColumns})}, {{"axis", std::int64_t{2}}});
  expect_rows(b.op("GatherND", {y, places}),
              {{"MatMul", {2, kColumns}}, {"LayerNormalization", {2, kColumns}}});
}
TEST_F(SelectRows, RowsOfWordsOfAllTexts) {
  const ValueId flat = b.op("Reshape", {b.op("Relu", {product(mixed(x))}), b.i64s({-1, kColumns})});
  expect_rows(gathered(flat, numbers({5}), 0), {{"MatMul", {5, kColumns}}, {"Relu", {5, kColumns}}});
}
TEST_F(SelectRows, ThroughWhatMovesAxes) {
  ValueId y = b.op("Reshape", {product(mixed(x)), b.i64s({kTexts, kWords, 2, 4})});
  y = b.op("Transpose", {y}, {{"perm", test::Perm{0, 2, 1, 3}}});
  y = b.op("Unsqueeze", {y, b.i64s({0})});
  y = b.op("Squeeze", {y, b.i64s({0})});
  expect_rows(rows(y, 2, 3, 2), {{"MatMul", {kTexts, 1, kColumns}}, {"Transpose", {kTexts, 2, 1, 4}}});
}
TEST_F(SelectRows, ThroughPartsOfOtherAxes) {
  const ValueId y = product(mixed(x));
  const ValueId turned =
      b.op("Concat", {b.op("Neg", {rows(y, 4, 8, 2)}), rows(y, 0, 4, 2)}, {{"axis", std::int64_t{-1}}});
  const ValueId picked = gathered(turned, b.i64s({1, 0, 3, 3}), 2);
  expect_rows(first(picked), {{"MatMul", {kTexts, 1, kColumns}}, {"Concat", {kTexts, 1, kColumns}}});
}
TEST_F(SelectRows, ThroughReductionsOfOtherAxes) {
  const ValueId y = product(mixed(x));
  const ValueId mean = b.op("ReduceMean", {y, b.i64s({-1})}, {{"keepdims", std::int64_t{1}}}),
                sum = b.op("ReduceSum", {b.op("Square", {b.op("Sub", {y, mean})}), b.i64s({0})},
                           {{"keepdims", std::int64_t{0}}});
  expect_rows(rows(sum, 3, 5, 0), {{"MatMul", {kTexts, 2, kColumns}}, {"ReduceSum", {2, kColumns}}});
}
TEST_F(SelectRows, ThroughSoftmaxOverColumns) {
  expect_rows(first(b.op("Softmax", {product(mixed(x))}, {{"axis", std::int64_t{-1}}})),
              {{"Softmax", {kTexts, 1, kColumns}}});
}
TEST_F(SelectRows, ThroughExpand) {
  const ValueId wide =
      b.op("Expand", {b.op("Reshape", {product(mixed(x)), b.i64s({1, kTexts, kWords, kColumns})}),
                      b.i64s({3, kTexts, kWords, kColumns})});
  expect_rows(rows(wide, 0, 1, 2), {{"Expand", {3, kTexts, 1, kColumns}}, {"MatMul", {kTexts, 1, kColumns}}});
}
TEST_F(SelectRows, OperandsThatAreTheSameForAllRowsStay) {
  const ValueId column = b.input("column", {DType::f64, {kTexts, 1, kColumns}});
  expect_rows(first(b.op("Mul", {product(mixed(x)), column})), {{"Mul", {kTexts, 1, kColumns}}});
  EXPECT_EQ(test::op_counts(graph)["Slice"], 1);
}
TEST_F(SelectRows, RowsOfGemm) {
  const ValueId flat = b.input("flat", {DType::f64, {9, kColumns}});
  const ValueId y =
      b.op("Gemm", {mixed(flat, 0), weight("weight", {5, kColumns}), weight("bias of five", {5})},
           {{"transB", std::int64_t{1}}});
  expect_rows(rows(y, 7, 8, 0), {{"Gemm", {1, 5}}});
}
TEST_F(SelectRows, TokensThatAreReadAreLookedUp) {
  const ValueId ids = b.input("ids", {DType::i64, {kTexts, kWords}});
  const ValueId y = b.op("Gather", {weight("table", {4, kColumns}), ids});
  expect_rows(first(product(y)), {{"Gather", {kTexts, 1, kColumns}}, {"MatMul", {kTexts, 1, kColumns}}});
}

// ---- attention ----------------------------------------------------------------------------------------------------

struct SelectQueries : SelectRows {
  static constexpr std::int64_t kHeads = 2, kOwn = kColumns / kHeads;
  ValueId heads(ValueId v) { return b.op("Reshape", {v, b.i64s({kTexts, kWords, kHeads, kOwn})}); }
  // [batch, words, columns], of one operator or of several, with a mask [1, 1, words, words] or [batch, 1, 1, words].
  ValueId attention(Attrs attrs, std::optional<Shape> mask = std::nullopt) {
    const ValueId of = mixed(x);
    const test::Perm by_head{0, 2, 1, 3};
    for (const char* perm : {"perm_q", "perm_k", "perm_v", "perm_y"}) attrs.set(perm, by_head);
    std::vector<ValueId> operands{heads(product(of)), heads(b.op("Tanh", {of})), heads(b.op("Sin", {of}))};
    if (mask) {
      operands.push_back(b.input("mask", {DType::f64, *mask}));
      attrs.set("mask", std::string("add"));
    }
    return b.op("Reshape", {b.op("FusedAttention", operands, attrs), b.i64s({kTexts, kWords, kColumns})});
  }
  void expect_queries(ValueId y, std::int64_t begin) {
    expect_rows(rows(y, begin, begin + 1), {{"FusedAttention", {kTexts, 1, kHeads, kOwn}},
                                            {"MatMul", {kTexts, 1, kColumns}},
                                            {"Tanh", {kTexts, kWords, kColumns}}});
  }
};

TEST_F(SelectQueries, AttentionHasFewerQueries) { expect_queries(attention({{"scale", 0.5}}), 0); }
TEST_F(SelectQueries, MasksOfKeysStay) { expect_queries(attention({}, Shape{kTexts, 1, 1, kWords}), 3); }
TEST_F(SelectQueries, MasksOfQueriesAreSelected) {
  expect_queries(attention({}, Shape{1, 1, kWords, kWords}), 4);
}
TEST_F(SelectQueries, WhatADropsStays) {
  expect_queries(attention({{"dropout", 0.4}, {"key", std::int64_t{9}}}), 5);
}
TEST_F(SelectQueries, TextsAreNoQueries) {
  expect_whole(rows(attention({{"scale", 0.5}}), 0, 1, 0), "is asked for other rows than those of queries");
}
TEST_F(SelectQueries, RowsThatAreNoPartKeepTheNumbersOfAll) {
  expect_whole(rows(attention({{"dropout", 0.4}, {"key", std::int64_t{9}}}), 1, 3),
               "FusedAttention draws random numbers by position");
}

// ---- dropout ------------------------------------------------------------------------------------------------------

struct SelectDropped : SelectRows {
  ValueId dropped(ValueId v, ValueId ratio) {
    return b.op("Dropout", {v, ratio, b.scalar(DType::boolean, 1)}, {{"key", std::int64_t{7}}});
  }
  ValueId dropped(ValueId v) { return dropped(v, b.scalar(DType::f64, 0.4)); }
};

TEST_F(SelectDropped, OneRowKeepsItsMask) {
  expect_rows(rows(dropped(product(mixed(x))), 4, 5), {{"Dropout", {kTexts, 1, kColumns}}});
}
TEST_F(SelectDropped, HalfOfTheRowsKeepTheirs) {
  expect_rows(rows(dropped(product(mixed(x))), 3, 6), {{"Dropout", {kTexts, 3, kColumns}}});
}
TEST_F(SelectDropped, OneTextKeepsItsMask) {
  expect_rows(rows(dropped(product(mixed(x))), 1, 2, 0), {{"Dropout", {1, kWords, kColumns}}});
}
TEST_F(SelectDropped, OtherRowsAreDroppedWhole) {
  expect_whole(rows(dropped(product(mixed(x))), 1, 3), "the rows are not one of equal parts");
}
TEST_F(SelectDropped, AndThoseThatDataChooses) {
  expect_whole(gathered(dropped(product(mixed(x))), numbers({1})), "the rows are not one of equal parts");
}
TEST_F(SelectDropped, AndWhereItGivesItsMask) {
  const std::vector<ValueId> inputs{product(mixed(x)), b.scalar(DType::f64, 0.4),
                                    b.scalar(DType::boolean, 1)};
  expect_whole(first(b.ops(op_by_name("Dropout"), inputs, {{"key", std::int64_t{7}}}, 2)[0]),
               "gives its mask");
}
TEST_F(SelectDropped, AndWhereTheRatioIsComputed) {
  expect_whole(first(dropped(product(mixed(x)), b.op("Sigmoid", {b.input("ratio", {DType::f64, {}})}))),
               "is not known before running");
}

// ---- what stays ---------------------------------------------------------------------------------------------------

TEST_F(SelectRows, RowsThatOthersReadAreComputed) {
  const ValueId y = product(mixed(x));
  graph.outputs = {b.op("Sin", {y})};
  expect_whole(first(y), "is also read by node Sin");
}
TEST_F(SelectRows, RowsThatLeaveTheGraphAreComputed) {
  const ValueId y = product(mixed(x));
  graph.outputs = {y};
  expect_whole(first(y), "an output");
}
TEST_F(SelectRows, RowsOfTwoSelectionsAreComputed) {
  const ValueId y = product(mixed(x));
  graph.outputs = {b.op("Sin", {rows(y, 1, 2)})};
  expect_whole(first(y), "is also read by node Slice");
}
TEST_F(SelectRows, WhatMixesRowsIsTheBorder) {
  expect_whole(first(mixed(x)), "CumSum CumSum is not known to compute rows by themselves");
}
TEST_F(SelectRows, SoIsSoftmaxOverThem) {
  expect_whole(first(b.op("Softmax", {mixed(x)}, {{"axis", std::int64_t{1}}})), "mixes the rows");
}
TEST_F(SelectRows, SoIsANormOverThem) {
  expect_whole(first(b.op("LayerNormalization", {mixed(x), weight("scales", {kWords, kColumns})},
                          {{"axis", std::int64_t{1}}})),
               "mixes the rows");
}
TEST_F(SelectRows, SoIsASumBehindRowsOfTwoAxes) {
  const ValueId sums = b.op("ReduceSum", {mixed(x), b.i64s({-1})});
  expect_whole(b.op("GatherND", {sums, b.constant(Tensor::from_f64(DType::i64, {2, 2}, {0, 4, 1, 2}))}),
               "mixes the rows");
}
TEST_F(SelectRows, SoIsAViewThatSharesThemOut) {
  expect_whole(rows(b.op("Reshape", {mixed(x), b.i64s({kTexts, 3, 2 * kColumns})}), 0, 1),
               "has the rows in other axes");
}
TEST_F(SelectRows, SoAreRowsOfTwoAxesThatAViewCountsOtherwise) {
  const ValueId view = b.op("Reshape", {product(mixed(x)), b.i64s({kWords, kTexts, kColumns})});
  expect_whole(b.op("GatherND", {view, b.constant(Tensor::from_f64(DType::i64, {2, 2}, {4, 1, 0, 1}))}),
               "has the rows in other axes");
}
TEST_F(SelectRows, SoAreColumnsOfAProduct) {
  expect_whole(rows(product(mixed(x)), 0, 1, 2), "is asked for columns");
}
TEST_F(SelectRows, SoAreMatricesOfTheirOwn) {
  const ValueId each = b.input("each", {DType::f64, {kTexts, kColumns, kColumns}});
  expect_whole(rows(b.op("MatMul", {mixed(x), each}), 0, 1, 0), "each part of the batch with its own matrix");
}
TEST_F(SelectRows, SoAreMatricesThatMeetTheSameRows) {
  const ValueId each = b.input("each", {DType::f64, {kTexts, kColumns, kColumns}});
  const ValueId left = mixed(b.input("left", {DType::f64, {kWords, kColumns}}), 0);
  expect_whole(first(b.op("MatMul", {left, each})), "broadcasts its left operand");
}
struct SelectOfTwoAxes : SelectRows {
  void expect_border(ValueId of, const std::string& why) {
    expect_whole(b.op("GatherND", {of, b.constant(Tensor::from_f64(DType::i64, {2, 2}, {0, 1, 1, 0}))}), why);
  }
};
TEST_F(SelectOfTwoAxes, ATransposeIsTheBorder) {
  expect_border(b.op("Transpose", {mixed(x)}, {{"perm", std::vector<std::int64_t>{1, 0, 2}}}),
                "moves axes that rows are counted over");
}
TEST_F(SelectOfTwoAxes, SoIsAViewThatNamesAxes) {
  const ValueId wide = mixed(b.input("wide", {DType::f64, {kTexts, kWords, 1, kColumns}}));
  expect_border(b.op("Squeeze", {wide, b.i64s({2})}), "joins axes that rows are counted over");
}
TEST_F(SelectOfTwoAxes, SoIsAnOperandOfOneOfThem) {
  const ValueId words = b.input("words", {DType::f64, {kWords, 1}});
  expect_border(b.op("Mul", {mixed(x), words}),
                "broadcasts an operand to some of the axes that rows are counted over");
}
TEST_F(SelectRows, SoAreOtherSelectionsOfTheSameAxis) {
  expect_whole(rows(rows(mixed(x), 1, 5), 0, 1), "takes some of the rows itself");
}
TEST_F(SelectRows, SoIsWhatJoinsRows) {
  const ValueId y = mixed(x);
  expect_whole(first(b.op("Concat", {y, y}, {{"axis", std::int64_t{1}}})), "along the axis of the rows");
}
TEST_F(SelectRows, SoAreRandomNumbers) {
  const ValueId noise = b.op("RandomNormalLike", {x});
  graph.outputs = {b.op("Shape", {b.op("Exp", {first(noise)})})};
  const PassReport report = test::run_pass(graph, kSelect);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("draws random numbers"), std::string::npos) << why_nots(report);
}
TEST_F(SelectRows, MostOfTheRowsAreAllOfThem) {
  expect_whole(rows(product(mixed(x)), 0, 5), "it keeps 5 of 6 rows, more than 75 % (most_kept)");
}
TEST_F(SelectRows, UnlessTheOptionSaysOtherwise) {
  expect_rows(rows(product(mixed(x)), 0, 5), {{"MatMul", {kTexts, 5, kColumns}}},
              "select-rows{most_kept=90}");
}
TEST_F(SelectRows, PartsOfSeveralAxesStay) {
  const ValueId y = product(mixed(x));
  expect_whole(b.op("Slice", {y, b.i64s({0, 0}), b.i64s({1, 2}), b.i64s({1, 2})}), "parts of several axes");
}
TEST_F(SelectRows, RowsBackwardsStay) { expect_whole(rows(product(mixed(x)), 2, -9, 1, -1), "backwards"); }
TEST_F(SelectRows, RowsOfEachTextStay) {
  const ValueId places = b.constant(Tensor::from_f64(DType::i64, {2, 1, 1}, {4, 2}));
  expect_whole(b.op("GatherND", {product(mixed(x)), places}, {{"batch_dims", std::int64_t{1}}}),
               "rows of its own");
}
// Three operands would be copied, and a third of a choice is saved.
TEST_F(SelectRows, WhereMoreIsCopiedThanComputedNothingMoves) {
  const ValueId choice = b.input("choice", {DType::boolean, {kTexts, kWords, kColumns}});
  expect_whole(rows(b.op("Where", {choice, mixed(x, 0), mixed(x, 1)}), 0, 4),
               "selecting more tensors would cost more");
}
TEST_F(SelectRows, AnInstanceIsSwitchedOff) {
  expect_whole(first(product(mixed(x))), "switched off for this instance", "select-rows{except=Slice}");
}

// ---- a transformer whose loss reads the first token ------------------------------------------------------------------

double flops_of(const Graph& model, const std::string& passes) {
  const auto options = test::padded_options(passes, {.accumulate = 1});
  EXPECT_TRUE(options.ok());
  const auto compiled = compile(model, *options);
  EXPECT_TRUE(compiled.ok()) << (compiled.ok() ? "" : compiled.error().message);
  double flops = 0;
  for (const PlanStep& step : compiled->plan.steps) flops += step.flops;
  return flops;
}

TEST(SelectRowsOfAModel, TheLastLayerComputesWhatTheLossReads) {
  for (const char* passes :
       {"default", "default,fuse-attention{min_keys=1}", "simplify-slices,select-rows"}) {
    const test::Model model;
    const double less = flops_of(model.graph, passes),
                 all = flops_of(model.graph, std::string(passes) == "default" ||
                                                     std::string(passes).starts_with("default,")
                                                 ? std::string(passes) + ",-select-rows"
                                                 : "simplify-slices");
    EXPECT_LT(less, 0.7 * all) << passes;
  }
}

TEST(SelectRowsOfAModel, LossAndGradientsStayWhatTheyAre) {
  for (const bool causal : {false, true})
    for (const bool dropout : {false, true})
      for (const char* passes :
           {"select-rows", "default", "default,fuse-attention{min_keys=1}", "default,drop-padding"}) {
        const test::Model model({.dropout = dropout, .causal = causal});
        test::expect_same(test::train_padded(model.graph, "none", {test::kBatches[0]}),
                          test::train_padded(model.graph, passes, {test::kBatches[0]}), 1e-13);
        test::expect_same(test::train_padded(model.graph, "none", test::kBatches, {.accumulate = 2}),
                          test::train_padded(model.graph, passes, test::kBatches, {.accumulate = 2}), 1e-12);
      }
}

TEST(SelectRowsOfAModel, HoldsInOtherPrecisions) {
  const test::Model model({.type = DType::f32, .dropout = true});
  const auto expected = test::train_padded(model.graph, "none", test::kBatches, {.accumulate = 2});
  test::expect_same(expected, test::train_padded(model.graph, "default", test::kBatches, {.accumulate = 2}),
                    1e-5);
  for (const auto& [precision, tolerance] : {std::pair("bf16", 3e-2), std::pair("f16", 4e-3)})
    test::expect_same(
        expected,
        test::train_padded(model.graph, "default", test::kBatches, {.accumulate = 2, .precision = precision}),
        tolerance);
}

}  // namespace
}  // namespace gradloom
