// What pass tensor-parallel splits, what it leaves whole and why, and what is refused. That trainings stay equal: tests/app/tensor_parallel_test.cpp.
#include "passes/tensor_parallel.h"

#include <gtest/gtest.h>

#include <set>

#include "engine/ir/op.h"
#include "engine/onnx/import.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/parameter_part.h"
#include "engine/ops/preparation.h"
#include "passes/compile.h"
#include "tests/passes/support.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

using test::why_nots;

constexpr std::int64_t kWide = 8;

// Two products with weights of [6, 8] and [8, 6], and what `between` makes of the first; the loss is the mean of squares.
template <class Between>
Graph pair(const Between& between) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4, 6}});
  const auto weight = [&](const char* name, Shape shape) {
    std::vector<double> numbers(static_cast<std::size_t>(element_count(shape)));
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
    return b.parameter(name, Tensor::from_f64(DType::f32, std::move(shape), numbers));
  };
  const ValueId first = b.op("MatMul", {x, weight("first", {6, kWide})});
  const ValueId y = b.op("MatMul", {between(b, first), weight("second", {kWide, 6})});
  const ValueId loss = b.op("ReduceMean", {b.op("Mul", {y, y})}, {{"keepdims", std::int64_t{0}}});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  return graph;
}
ValueId relu(GraphBuilder& b, ValueId x) { return b.op("Relu", {x}); }
ValueId truth(GraphBuilder& b) { return b.constant(Tensor::from_f64(DType::boolean, {}, {1})); }
ValueId dropped(GraphBuilder& b, ValueId x) {
  return b.op("Dropout", {x, b.scalar(DType::f32, 0.5), truth(b)});
}

CompileOptions options_of(const std::string& passes, std::int64_t ranks, const char* optimizer = "adamw") {
  CompileOptions options;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer(optimizer);
  options.train.ranks = ranks;
  options.pipeline = *parse_pipeline(passes);
  return options;
}

Result<Compiled> compiled(const Graph& graph, const std::string& passes, std::int64_t ranks,
                          const char* optimizer = "adamw") {
  return compile(graph, options_of(passes, ranks, optimizer));
}

const PassReport& report_of(const Compiled& compiled) {
  for (const PassReport& report : compiled.reports)
    if (report.name == "tensor-parallel") return report;
  static const PassReport none;
  return none;
}

std::string refused(const Graph& graph, const std::string& passes, std::int64_t ranks,
                    const char* optimizer = "adamw") {
  const auto result = compiled(graph, passes, ranks, optimizer);
  if (result.ok()) return "";
  EXPECT_EQ(result.error().code, Errc::usage);
  return result.error().message;
}

Shape shape_of(const Compiled& compiled, const std::string& name) {
  return compiled.train.graph.type(find_value(compiled.train.graph, name)).shape;
}

TEST(TensorParallel, RanksHaveColumnsOfTheFirstAndRowsOfTheSecond) {
  const Graph graph = pair(relu);
  for (const std::int64_t ranks : {2, 4}) {
    const auto made = compiled(graph, "default,tensor-parallel", ranks);
    ASSERT_OK(made);
    EXPECT_EQ(report_of(*made).matched, 1);
    EXPECT_EQ(shape_of(*made, "first"), (Shape{6, kWide / ranks}));
    EXPECT_EQ(shape_of(*made, "second"), (Shape{kWide / ranks, 6}));
    EXPECT_EQ(shape_of(*made, "second/m"), (Shape{kWide / ranks, 6})) << "its moments too";
    EXPECT_EQ(tensor_ranks(made->train.graph), ranks);
    EXPECT_EQ(test::op_counts(made->train.graph)["AllReduceSum"], 1) << "the input's gradient is not wanted";
    EXPECT_EQ(test::op_counts(made->train.graph)["AllReduceMean"], 0) << "all have the same batch";
    EXPECT_TRUE(check_plan(made->train.graph, made->plan).ok());
    const Tensor& first = made->train.graph.values[find_value(made->train.graph, "first")].data;
    EXPECT_EQ(first.at(kWide / ranks), kWide) << "rank 0 begins with column 0 of each row";
  }
}

TEST(TensorParallel, GroupsExchangeGradientsWithEachOther) {
  const auto made = compiled(pair(relu), "tensor-parallel{size=2}", 6);
  ASSERT_OK(made);
  int means = 0;
  for (const Node& node : made->train.graph.nodes) {
    if (node.op != &all_reduce_op()) continue;
    ++means;
    EXPECT_EQ(node.attrs.integer("ranks"), 3);
    EXPECT_EQ(node.attrs.integer("stride"), 2);
    EXPECT_EQ(node.attrs.integer("world"), 6);
  }
  EXPECT_EQ(means, 3) << "of two gradients and the loss";
}

TEST(TensorParallel, OneRankIsLeftAsItIs) {
  const Graph graph = pair(relu);
  const auto with = compiled(graph, "default,tensor-parallel", 1), without = compiled(graph, "default", 1);
  ASSERT_OK(with);
  ASSERT_OK(without);
  EXPECT_EQ(with->plan.hash, without->plan.hash);
}

TEST(TensorParallel, PartsAreOfEachPieceOfAnAxis) {
  std::vector<double> numbers(24);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
  const Tensor whole = Tensor::from_f64(DType::f32, {2, 12}, numbers);
  const ParameterPart part{1, 3, 2};
  Tensor again(DType::f32, {2, 12});
  for (const std::int64_t number : {0, 1}) {
    const auto mine = cut_part(whole, part, number);
    ASSERT_OK(mine);
    ASSERT_EQ(mine->shape(), (Shape{2, 6}));
    for (std::int64_t i = 0; i < 12; ++i)
      EXPECT_EQ(mine->at(i), static_cast<double>(i / 2 * 4 + number * 2 + i % 2)) << i;
    put_part(again, *mine, part, number);
  }
  EXPECT_TRUE(bit_equal(whole, again));
}

// The reason why nothing is split.
std::string why_whole(const Graph& graph, const std::string& passes = "tensor-parallel",
                      std::int64_t ranks = 2) {
  const auto made = compiled(graph, passes, ranks);
  EXPECT_TRUE(made.ok()) << made.error().message;
  if (!made.ok()) return "";
  EXPECT_EQ(report_of(*made).matched, 0);
  EXPECT_EQ(tensor_ranks(made->train.graph), 1);
  EXPECT_EQ(made->notes.size(), 1u) << "that ranks have batches of their own then";
  return why_nots(report_of(*made));
}

TEST(TensorParallel, WhatMixesColumnsLeavesLayersWhole) {
  const auto softmax = [](GraphBuilder& b, ValueId x) { return b.op("Softmax", {x}); };
  EXPECT_NE(why_whole(pair(softmax)).find("mixes what different ranks have (Softmax"), std::string::npos);
  const auto cut = [&](GraphBuilder& b,
                       ValueId x) {  // of which no axis has a part for each of four ranks
    const ValueId pieces = b.op("Reshape", {x, b.i64s({4, 2, 2, 2})});
    return b.op("Reshape", {b.op("Relu", {pieces}), b.i64s({4, kWide})});
  };
  EXPECT_NE(why_whole(pair(cut), "tensor-parallel", 4).find("are not those of the parts (Reshape"),
            std::string::npos);
  const auto noise = [](GraphBuilder& b, ValueId x) {
    return b.op("Add", {x, b.op("RandomNormalLike", {x})});
  };
  EXPECT_NE(why_whole(pair(noise)).find("random numbers would not be those of one rank"), std::string::npos);
  const auto masked = [](GraphBuilder& b, ValueId x) {
    return b.ops(op_by_name("Dropout"), {x, b.scalar(DType::f32, 0.5), truth(b)}, {}, 2)[0];
  };
  EXPECT_NE(why_whole(pair(masked)).find("it gives its mask"), std::string::npos);
  const auto unknown = [](GraphBuilder& b, ValueId x) {
    return b.op("Dropout", {x, b.input("ratio", {DType::f32, {}}), truth(b)});
  };
  EXPECT_NE(why_whole(pair(unknown)).find("what it drops is not known"), std::string::npos);
  const auto sum = [](GraphBuilder& b, ValueId x) {
    return b.op("CumSum", {x, b.constant(Tensor::from_i64({1}).reshaped({}))});
  };
  EXPECT_NE(why_whole(pair(sum)).find("not known to compute parts by themselves (CumSum"), std::string::npos);
}

TEST(TensorParallel, WhatIsEmptyOrLeftOutLeavesLayersWhole) {
  const auto nothing = [](GraphBuilder& b, ValueId x) {
    const ValueId none = b.op("Slice", {x, b.i64s({0}), b.i64s({0}), b.i64s({1})});
    return b.op("Concat", {none, x}, {{"axis", std::int64_t{1}}});
  };
  EXPECT_NE(why_whole(pair(nothing)), "");
  const auto half = [](GraphBuilder& b, ValueId x) {
    const auto pieces = b.add(op_by_name("Split"), {x, b.i64s({kWide / 2, kWide / 2})},
                              {{"axis", std::int64_t{1}}}, 2, {"half", ""});
    EXPECT_TRUE(pieces.ok());
    return b.op("Concat", {(*pieces)[0], (*pieces)[0]}, {{"axis", std::int64_t{1}}});
  };
  EXPECT_NE(why_whole(pair(half)), "");
}

TEST(TensorParallel, NumbersThatDoNotDivideLeaveLayersWhole) {
  EXPECT_NE(why_whole(pair(relu), "tensor-parallel{size=3}", 3).find(", is no multiple of 3"),
            std::string::npos);
}

TEST(TensorParallel, WhatLeavesTheModelOrHasOtherReadersIsWhole) {
  Graph graph = pair(relu);  // columns that nothing adds up
  GraphBuilder b(graph);
  const ValueId first = find_value(graph, "first");
  const ValueId other = b.op("ReduceMean", {b.op("Mul", {first, first})}, {{"keepdims", std::int64_t{0}}});
  const ValueId loss = b.op("Add", {find_value(graph, "loss"), other});
  graph.values[find_value(graph, "loss")].name = "before";
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  EXPECT_NE(why_whole(graph).find("mixes what different ranks have (ReduceMean"), std::string::npos);
}

TEST(TensorParallel, ConstantsThatDifferLeaveLayersWhole) {
  const auto scaled = [](const std::vector<double>& numbers) {
    return [numbers](GraphBuilder& b, ValueId x) {
      return b.op("Mul", {x, b.constant(Tensor::from_f64(DType::f32, {kWide}, numbers))});
    };
  };
  EXPECT_NE(why_whole(pair(scaled({1, 2, 3, 4, 5, 6, 7, 8}))).find("ranks would need different parts"),
            std::string::npos);
  const auto made = compiled(pair(scaled({1, 2, 3, 4, 1, 2, 3, 4})), "tensor-parallel", 2);
  ASSERT_OK(made);
  EXPECT_EQ(report_of(*made).matched, 1);
}

// The numbers of the whole: columns of [4, 8] are runs of 4.
TEST(TensorParallel, DropoutKnowsItsPart) {
  const auto made = compiled(pair(dropped), "default,tensor-parallel", 2);
  ASSERT_OK(made);
  EXPECT_EQ(report_of(*made).matched, 1);
  int nodes = 0;
  std::set<std::int64_t> keys;
  for (const Node& node : made->train.graph.nodes) {
    if (!is_op(node, "Dropout")) continue;
    ++nodes;
    EXPECT_EQ(node.attrs.integer("parts"), 2);
    EXPECT_EQ(node.attrs.integer("run"), kWide / 2);
    keys.insert(static_cast<std::int64_t>(random_key(node.attrs, node.name)));
  }
  EXPECT_EQ(nodes, 2) << "it and its gradient";
  EXPECT_EQ(keys.size(), 1u);
}

// A vocabulary of 64 words of 6 numbers; `tied`: the head's weight is the embedding's.
Graph words(bool tied, std::int64_t tokens, bool of_log_softmax = false, std::int64_t vocabulary = 64) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId table = b.parameter("table", Tensor(DType::f32, {vocabulary, 6}));
  const ValueId head =
      tied ? b.op("Transpose", {table}) : b.parameter("head", Tensor(DType::f32, {6, vocabulary}));
  const ValueId h = b.op("Relu", {b.op("Gather", {table, b.input("ids", {DType::i64, {tokens}})})});
  const ValueId logits = b.op("MatMul", {h, head}), labels = b.input("labels", {DType::i64, {tokens}});
  const ValueId loss = of_log_softmax
                           ? b.op("NegativeLogLikelihoodLoss", {b.op("LogSoftmax", {logits}), labels})
                           : b.op("SoftmaxCrossEntropyLoss", {logits, labels});
  graph.values[loss].name = "loss";
  graph.outputs = {loss};
  return graph;
}

TEST(TensorParallel, RanksShareTheVocabulary) {
  for (const bool tied : {true, false})
    for (const bool of_log_softmax : {true, false}) {
      SCOPED_TRACE(tied);
      const auto made = compiled(words(tied, 8, of_log_softmax), "default,tensor-parallel", 2);
      ASSERT_OK(made);
      EXPECT_EQ(report_of(*made).matched, tied ? 1 : 2) << why_nots(report_of(*made));
      EXPECT_EQ(shape_of(*made, "table"), (Shape{32, 6}));
      const char* const head = tied ? "table" : "head";
      EXPECT_EQ(shape_of(*made, head), (tied ? Shape{32, 6} : Shape{6, 32}));
      auto counts = test::op_counts(made->train.graph);
      EXPECT_EQ(counts["AllReduceSum"], 3)
          << "of the rows, of the scores, of the gradient of what the head reads";
      EXPECT_EQ(counts["PartScores"], 1);
      EXPECT_EQ(
          counts["LogSoftmax"] + counts["NegativeLogLikelihoodLoss"] + counts["SoftmaxCrossEntropyLoss"], 0);
      EXPECT_TRUE(check_plan(made->train.graph, made->plan).ok());
    }
}

TEST(TensorParallel, TheVocabularyHeadOfAPartTakesRowsAtATime) {
  const auto made =
      compiled(words(true, 8), "default,tensor-parallel,fuse-linear-cross-entropy{min_mib=0}", 2);
  ASSERT_OK(made);
  auto counts = test::op_counts(made->train.graph);
  EXPECT_EQ(counts["LinearPartScores"], 1);
  EXPECT_EQ(counts["LinearPartScoresGrad"], 1);
  EXPECT_EQ(counts["PartScores"], 0);
}

// 65 words: 33, and 32 with a row of zeros.
TEST(TensorParallel, VocabulariesThatDoNotDivideAreFilledUp) {
  for (const bool tied : {true, false})
    for (const bool of_log_softmax : {true, false}) {
      const auto made = compiled(words(tied, 8, of_log_softmax, 65), "default,tensor-parallel", 2);
      ASSERT_OK(made);
      EXPECT_EQ(report_of(*made).matched, tied ? 1 : 2) << why_nots(report_of(*made));
      EXPECT_EQ(shape_of(*made, "table"), (Shape{33, 6}));
      EXPECT_EQ(shape_of(*made, tied ? "table" : "head"), (tied ? Shape{33, 6} : Shape{6, 33}));
      for (const auto& [id, part] : parameter_parts(made->train.graph)) {
        EXPECT_EQ(part.dim, 65);
        EXPECT_EQ(part.whole(made->train.graph.type(id).shape)[static_cast<std::size_t>(part.axis)], 65);
      }
      int scores = 0;
      for (const Node& node : made->train.graph.nodes)
        if (node.alive() && (is_op(node, "PartScores") || is_op(node, "PartScoresGrad"))) {
          EXPECT_EQ(node.attrs.integer("classes"), 65);
          ++scores;
        }
      EXPECT_EQ(scores, 2);
      EXPECT_TRUE(check_plan(made->train.graph, made->plan).ok());
    }
}

// Adam's 0 / sqrt(0) of rows that are always 0, where nothing is added to the root.
TEST(TensorParallel, AVocabularyIsWholeWhereZerosWouldNotStayZeros) {
  const auto made_with = [](const char* optimizer, std::int64_t words_of) {
    auto made = compiled(words(true, 8, false, words_of), "default,tensor-parallel", 2, optimizer);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return std::move(made).value();
  };
  for (const char* optimizer : {"adamw{eps=0}", "adam{eps=0}", "adamw_hf{eps=0}", "lamb{eps=0}",
                                "adagrad{eps=0}", "adamw{eps=1e-60}", "rmsprop{eps=0}", "adadelta{eps=0}"}) {
    const Compiled made = made_with(optimizer, 65);
    EXPECT_EQ(shape_of(made, "table"), (Shape{65, 6})) << optimizer;
    EXPECT_NE(why_nots(report_of(made)).find("not to be filled up"), std::string::npos) << optimizer;
    EXPECT_TRUE(std::any_of(made.notes.begin(), made.notes.end(), [](const std::string& note) {
      return note.find("leaves the vocabulary whole") != std::string::npos;
    })) << optimizer;
    const Compiled divided = made_with(optimizer, 64);
    EXPECT_EQ(shape_of(divided, "table"), (Shape{32, 6})) << optimizer;
    EXPECT_TRUE(divided.notes.empty()) << optimizer;
  }
  for (const char* optimizer :
       {"adamw", "sgd{momentum=0.9}", "lion", "adagrad{eps=0,initial_accumulator_value=0.1}"}) {
    const Compiled made = made_with(optimizer, 65);
    EXPECT_EQ(shape_of(made, "table"), (Shape{33, 6})) << optimizer;
    EXPECT_TRUE(made.notes.empty()) << optimizer;
  }
}

TEST(TensorParallel, PartsOfFilledUpParametersMakeThemUp) {
  std::vector<double> numbers;
  for (int i = 0; i < 2 * 7 * 3; ++i) numbers.push_back(i);
  const Tensor whole = Tensor::from_f64(DType::f32, {2, 7, 3}, numbers);
  const ParameterPart part{1, 1, 3, 7};
  Tensor joined(DType::f32, whole.shape());
  for (std::int64_t number = 0; number < 3; ++number) {
    const auto own = cut_part(whole, part, number);
    ASSERT_OK(own);
    ASSERT_EQ(own->shape(), (Shape{2, 3, 3}));
    EXPECT_EQ(own->at(0), static_cast<double>(number * 9));
    EXPECT_EQ(own->at(9), static_cast<double>(21 + number * 9));
    EXPECT_EQ(own->at(17), number < 2 ? 21.0 + static_cast<double>(number) * 9 + 8 : 0);
    put_part(joined, *own, part, number);
  }
  EXPECT_TRUE(bit_equal(joined, whole));
  EXPECT_EQ(part_of_dim(50257, 2), 25129);
  EXPECT_EQ(part_of_dim(64, 2), 32);
  EXPECT_EQ(part_of_dim(5, 4), 0) << "2, 2, 1 and none";
}

TEST(TensorParallel, VocabulariesThatAreSmallAndOtherDimsThatDoNotDivideAreWhole) {
  Graph odd;
  GraphBuilder b(odd);
  const ValueId h = b.op("Sigmoid", {b.op("MatMul", {b.input("x", {DType::f32, {4, 6}}),
                                                     b.parameter("first", Tensor(DType::f32, {6, 65}))})});
  const ValueId y = b.op("MatMul", {h, b.parameter("second", Tensor(DType::f32, {65, 6}))});
  odd.outputs = {b.op("ReduceMean", {y}, {{"keepdims", std::int64_t{0}}})};
  odd.values[odd.outputs[0]].name = "loss";
  EXPECT_NE(why_whole(odd).find("is no multiple of 2"), std::string::npos) << "zeros would not stay zeros";
  EXPECT_NE(why_whole(words(true, 8, false, 62)).find("classes are fewer than 64"), std::string::npos);
  const auto made = compiled(words(false, 32), "tensor-parallel", 2);  // as many rows are read as saved
  ASSERT_OK(made);
  EXPECT_EQ(shape_of(*made, "table"), (Shape{64, 6}));
  EXPECT_EQ(shape_of(*made, "head"), (Shape{6, 32}));
}

TEST(TensorParallel, InstancesAreSwitchedOff) {
  Graph graph = pair(relu);
  const std::string site = graph.nodes[0].name;
  const auto made = compiled(graph, "tensor-parallel{except=" + site + "}", 2);
  ASSERT_OK(made);
  EXPECT_EQ(report_of(*made).matched, 0);
}

TEST(TensorParallel, WhatNeedsWholeParametersIsRefused) {
  const Graph graph = pair(relu);
  const auto has = [](const std::string& text, const char* words) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  has(refused(graph, "tensor-parallel{size=2}", 3), "3 ranks are no groups of 2");
  has(refused(graph, "tensor-parallel,zero", 2), "pass zero exchanges with all ranks");
  has(refused(graph, "tensor-parallel,adasum", 2), "pass adasum exchanges with all ranks");
  has(refused(graph, "tensor-parallel,sync-batchnorm", 2), "pass sync-batchnorm exchanges with all ranks");
  EXPECT_EQ(refused(graph, "tensor-parallel", 2, "lamb"), "");
  has(refused(graph, "tensor-parallel", 2, "adafactor"),
      "adafactor needs means over rows and columns of whole parameters");
  has(refused(graph, "tensor-parallel", 2, "adamw{eight_bit_states=1}"), "states of 8 bits");
  EXPECT_EQ(refused(graph, "tensor-parallel", 1, "adafactor"), "");
}

TEST(TensorParallel, NormsAreOfAllParts) {
  CompileOptions options = options_of("tensor-parallel", 2);
  options.train.clip_norm = 1;
  const auto made = compile(pair(relu), options);
  ASSERT_OK(made);
  auto counts = test::op_counts(made->train.graph);
  EXPECT_EQ(counts["GlobalNorm"], 0);
  EXPECT_EQ(counts["NormOfSquares"], 1);
  EXPECT_EQ(counts["AllReduceSum"], 2) << "of the result and of the squares";
}

TEST(TensorParallel, EvaluationSplitsWhatTheTrainingSplits) {
  // Dropout of unknown ratio, which is none there, keeps a pair whole in the training.
  const auto dropout = [](GraphBuilder& b, ValueId x) {
    return b.op("Dropout", {x, b.input("ratio", {DType::f32, {}}), truth(b)});
  };
  for (const bool random : {false, true}) {
    const Graph graph = random ? pair(dropout) : pair(relu);
    const CompileOptions options = options_of("default,tensor-parallel", 2);
    const auto made = compile(graph, options);
    ASSERT_OK(made);
    const auto evaluation = compile_evaluation(*made, options);
    ASSERT_OK(evaluation);
    EXPECT_EQ(tensor_ranks(evaluation->graph), random ? 1 : 2);
    for (const char* const name : {"first", "second"})
      EXPECT_EQ(evaluation->graph.type(find_value(evaluation->graph, name)).shape, shape_of(*made, name));
  }
}

struct ModelCase {
  const char* folder;
  std::map<std::string, std::int64_t> dims;
  int matched;                          // regions
  std::map<std::string, Shape> shapes;  // of parameters on two ranks
};

// Attention of GPT (Q, K and V in one product), BERT (three) and LLaMA (fewer keys than queries, rotary positions, gated units).
TEST(TensorParallel, ModelsAreSplitByHeadsAndColumns) {
  const std::vector<ModelCase> cases{
      {"models/mlp",
       {{"batch", 4}},
       1,
       {{"layers.0.weight", {48, 64}},
        {"layers.0.bias", {48}},
        {"layers.1.weight", {64, 48}},
        {"layers.1.bias", {64}},
        {"layers.2.weight", {10, 64}}}},
      {"models/gpt-char",
       {{"batch", 2}},
       9,
       {{"wte.weight", {128, 128}},
        {"blocks.0.attn.qkv.weight", {192, 128}},
        {"blocks.0.attn.qkv.bias", {192}},
        {"blocks.0.attn.proj.weight", {128, 64}},
        {"blocks.1.fc.weight", {256, 128}},
        {"blocks.1.proj.weight", {128, 256}},
        {"blocks.1.proj.bias", {128}}}},
      {"modules/bert",
       {},
       5,
       {{"body.layers.0.attention.key.weight", {8, 16}},
        {"body.layers.0.attention.out.weight", {16, 8}},
        {"body.layers.1.mlp.up.bias", {16}},
        {"body.pooler.weight", {8, 16}},
        {"body.transform.weight", {16, 16}}}},
      {"modules/llama",
       {},
       4,
       {{"body.layers.0.wk.weight", {4, 16}},
        {"body.layers.0.wo.weight", {16, 8}},
        {"body.layers.1.w3.weight", {12, 16}}}},
  };
  for (const ModelCase& c : cases) {
    SCOPED_TRACE(c.folder);
    ImportOptions import;
    import.dims = c.dims;
    const auto model =
        import_onnx(std::string(GRADLOOM_SOURCE_DIR) + "/tests/" + c.folder + "/model.onnx", import);
    ASSERT_OK(model);
    const auto made = compiled(model->graph, "default,tensor-parallel", 2);
    ASSERT_OK(made);
    EXPECT_EQ(report_of(*made).matched, c.matched) << why_nots(report_of(*made));
    for (const auto& [name, shape] : c.shapes) EXPECT_EQ(shape_of(*made, name), shape) << name;
  }
}

}  // namespace
}  // namespace gradloom
