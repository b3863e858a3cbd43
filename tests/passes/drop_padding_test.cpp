// drop-padding: a small transformer over padded batches trains to the same numbers, on as many rows as there are tokens.
#include <gtest/gtest.h>

#include "engine/device/device.h"
#include "engine/ops/padding/packed_rows.h"
#include "engine/run/executor.h"
#include "kernels/cpu.h"
#include "passes/compile.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::op_counts;
using test::Perm;
using test::why_nots;

constexpr std::int64_t kBatch = 3, kPositions = 5, kWidth = 8, kHeads = 2;
constexpr const char* kPass = "drop-padding";

// How the mask comes into the scores: 1 at tokens, 1 at padding, as an addend, as one that leaves nothing out, or as the
// ids of padding, 1.
enum class Form { keep, block, add, weak, pad_id };

struct Tiny {
  DType type = DType::f64;
  bool masked = true;  // attention reads the mask
  bool dropout = false;
  bool own_positions = false;  // adds a value [1, position, width] behind the first product
  bool causal = false;         // the mask meets a constant one
  Form form = Form::keep;
};

// ids, mask [batch, position] -> the mean of what a pooler makes of each first token.
class Model {
 public:
  explicit Model(const Tiny& tiny = {}) : tiny_(tiny) {
    ids = b.input(tiny.form == Form::pad_id ? "padded ids" : "ids", {DType::i64, {kBatch, kPositions}});
    mask = b.input(tiny.form == Form::block ? "blocked" : "mask", {DType::i64, {kBatch, kPositions}});
    ValueId x = b.op("Gather", {weight("table", {4, kWidth}), ids});
    x = normalized("first",
                   product("embedding", b.op("Add", {x, weight("places", {1, kPositions, kWidth})}), kWidth));
    if (tiny.own_positions) x = b.op("Add", {x, weight("more places", {1, kPositions, kWidth})});
    const ValueId y = product("output", attention(x), kWidth);
    x = normalized("second", b.op("Add", {x, dropped(y)}));
    const ValueId wide = b.op("Gelu", {product("wide", x, 3 * kWidth)});
    x = normalized(
        "last", b.op("Add", {b.op("Mul", {x, b.scalar(tiny.type, 0.5)}), product("narrow", wide, kWidth)}));
    const ValueId firsts = b.op("Gather", {x, b.scalar(DType::i64, 0)}, {{"axis", std::int64_t{1}}});
    const ValueId pooled = b.op("MatMul", {firsts, weight("pooler", {kWidth, 4})});
    loss = b.op("ReduceMean", {b.op("Mul", {pooled, pooled})}, {{"keepdims", std::int64_t{0}}});
    graph.values[loss].name = "loss";
    graph.outputs = {loss};
  }

  Graph graph;
  GraphBuilder b{graph};
  ValueId ids = kNone, mask = kNone, loss = kNone;

 private:
  ValueId weight(const std::string& name, Shape shape) {
    std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(name)));
    return b.parameter(name, test::random_tensor({tiny_.type, std::move(shape)}, random));
  }
  ValueId product(const std::string& name, ValueId x, std::int64_t width) {
    const std::int64_t own = graph.type(x).shape.back();
    return b.op("Add", {b.op("MatMul", {x, weight(name, {own, width})}), weight(name + ".bias", {width})});
  }
  ValueId normalized(const std::string& name, ValueId x) {
    return b.op("LayerNormalization",
                {x, weight(name + ".scale", {kWidth}), weight(name + ".shift", {kWidth})});
  }
  ValueId dropped(ValueId x) {
    if (!tiny_.dropout) return x;
    return b.op("Dropout", {x, b.scalar(DType::f32, 0.25), b.scalar(DType::boolean, 1)},
                {{"key", std::int64_t{5}}});
  }
  ValueId heads(ValueId x, Perm perm) {
    const ValueId split = b.op("Reshape", {x, b.i64s({kBatch, kPositions, kHeads, kWidth / kHeads})});
    return b.op("Transpose", {split}, {{"perm", std::move(perm)}});
  }
  ValueId by_key(ValueId of) { return b.op("Reshape", {of, b.i64s({kBatch, 1, 1, kPositions})}); }
  ValueId kept_keys() {
    const Attrs boolean{{"to", std::int64_t{9}}};
    if (tiny_.form == Form::pad_id)
      return b.op("Not", {by_key(b.op("Equal", {ids, b.scalar(DType::i64, 1)}))});
    const ValueId given = b.op("Cast", {by_key(mask)}, boolean);
    return tiny_.form == Form::block ? b.op("Not", {given}) : given;
  }
  ValueId masked(ValueId scores, ValueId kept) {
    if (tiny_.form != Form::add && tiny_.form != Form::weak)
      return b.op("Where", {kept, scores, b.scalar(tiny_.type, -1e30)});
    const ValueId one = b.scalar(tiny_.type, 1),
                  kept_one = b.op("Cast", {kept},
                                  {{"to", tiny_.type == DType::f64 ? std::int64_t{11} : std::int64_t{1}}});
    const ValueId low = b.scalar(tiny_.type, tiny_.form == Form::add ? -1e9 : -1);
    return b.op("Add", {scores, b.op("Mul", {b.op("Sub", {one, kept_one}), low})});
  }
  ValueId attention(ValueId x) {
    const ValueId q = heads(product("q", x, kWidth), {0, 2, 1, 3}),
                  k = heads(product("k", x, kWidth), {0, 2, 3, 1}),
                  v = heads(product("v", x, kWidth), {0, 2, 1, 3});
    ValueId scores = b.op("MatMul", {q, k});
    if (tiny_.masked) {
      ValueId kept = kept_keys();
      if (tiny_.causal) {
        std::vector<double> before;
        for (int i = 0; i < kPositions * kPositions; ++i) before.push_back(i % kPositions <= i / kPositions);
        kept = b.op(
            "And",
            {kept, b.constant(Tensor::from_f64(DType::boolean, {1, 1, kPositions, kPositions}, before))});
      }
      scores = masked(scores, kept);
    }
    const ValueId mixed = b.op("MatMul", {b.op("Softmax", {scores}, {{"axis", std::int64_t{-1}}}), v});
    return b.op("Reshape", {b.op("Transpose", {mixed}, {{"perm", Perm{0, 2, 1, 3}}}),
                            b.i64s({kBatch, kPositions, kWidth})});
  }

  const Tiny tiny_;
};

PassReport run_drop_padding(Graph& graph, const std::string& pass, PassPhase phase = PassPhase::pre_gradient,
                            kernels::Target target = kernels::Target::cpu) {
  std::vector<PassReport> reports;
  const Status status = run_passes(graph, *parse_pipeline(pass), phase, reports, target);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  return reports.empty() ? PassReport{} : reports[0];
}

using Lengths = std::vector<std::int64_t>;

Tensor mask_of(const Lengths& lengths, double token = 1, double padding = 0) {
  std::vector<double> mask;
  for (const std::int64_t length : lengths)
    for (std::int64_t p = 0; p < kPositions; ++p)
      mask.push_back(p >= length ? padding
                     : token < 0 ? std::vector{0.0, 2.0, 3.0}[static_cast<std::size_t>(p + length) % 3]
                                 : token);
  return Tensor::from_f64(DType::i64, {kBatch, kPositions}, mask);
}

using Numbers = std::map<std::string, Tensor>;

// Loss and gradients, or with `accumulate` parameters after two steps, each batch of other lengths than the last.
Result<Numbers> train(const Graph& model, const std::string& passes, const std::vector<Lengths>& batches,
                      std::int64_t accumulate = 0) {
  CompileOptions options;
  options.gradients_only = accumulate == 0;
  options.train.loss = "loss";
  options.train.optimizer = TRY(parse_optimizer("sgd{lr=0.1}"));
  options.train.accumulate = std::max<std::int64_t>(accumulate, 1);
  options.pipeline = TRY(parse_pipeline(passes));
  const Compiled compiled = TRY(compile(model, options));
  const Graph& graph = compiled.train.graph;
  TRY(check_plan(graph, compiled.plan));
  const auto device = make_cpu_device();
  const auto executor = TRY(Executor::create(graph, compiled.plan, *device));
  std::size_t next = 0;
  std::mt19937 random(3);
  const auto feed = [&](std::int64_t) -> Status {
    for (const ValueId input : graph.inputs) {
      const Value& value = graph.value(input);
      const Lengths& lengths = batches[next % batches.size()];
      if (value.name == "mask") TRY(executor->feed(input, mask_of(lengths)));
      if (value.name == "blocked") TRY(executor->feed(input, mask_of(lengths, 0, 1)));
      if (value.name == "padded ids") TRY(executor->feed(input, mask_of(lengths, -1, 1)));
      if (value.name == "ids") TRY(executor->feed(input, test::random_tensor(value.type, random)));
    }
    ++next;
    return {};
  };
  Numbers numbers;
  if (accumulate == 0) {
    executor->poison();
    TRY(feed(0));
    TRY(executor->run_forward(17, 0));
    for (const auto& [name, gradient] : compiled.gradients)
      if (gradient != kNone) numbers[name] = TRY(executor->read(gradient));
  }
  for (std::int64_t step = 1; step <= 2 && accumulate > 0; ++step) {
    StepOptions step_options;
    step_options.step = step;
    step_options.lr = 0.1;
    step_options.seed = 9;
    step_options.micro_batches = static_cast<std::int32_t>(accumulate);
    executor->poison();
    TRY(executor->step(compiled.train.names, step_options, feed));
  }
  if (accumulate > 0)
    for (const ValueId id : graph.parameters) numbers[graph.values[id].name] = TRY(executor->read(id));
  numbers["the loss"] = TRY(executor->read(compiled.train.names.loss));
  return numbers;
}

void expect_same(const Result<Numbers>& a, const Result<Numbers>& b, double tolerance) {
  ASSERT_OK(a);
  ASSERT_OK(b);
  EXPECT_GT(a->size(), 10u);
  ASSERT_EQ(a->size(), b->size());
  double largest = 0;
  for (const auto& [name, x] : *a)
    for (std::int64_t i = 0; i < x.count(); ++i) largest = std::max(largest, std::abs(x.at(i)));
  EXPECT_GT(largest, 0.01);
  for (const auto& [name, x] : *a)
    for (std::int64_t i = 0; i < x.count(); ++i)
      ASSERT_NEAR(x.at(i), b->at(name).at(i), tolerance * largest) << name << " [" << i << "]";
}

const std::vector<Lengths> kBatches = {{2, 5, 3}, {5, 5, 5}, {1, 1, 1}, {1, 4, 2}};

TEST(DropPadding, GradientsStayWhatTheyAre) {
  for (const bool causal : {false, true})
    for (const Lengths& lengths : kBatches) {
      const Model model({.causal = causal});
      for (const char* passes :
           {"default,drop-padding", "drop-padding", "drop-padding,fuse-matmul-epilogue{devices=all}"})
        expect_same(train(model.graph, "none", {lengths}), train(model.graph, passes, {lengths}), 1e-13);
    }
}

TEST(DropPadding, MasksOfEveryFormAreFoundByTrying) {
  for (const Form form : {Form::keep, Form::block, Form::add, Form::pad_id}) {
    const Model model({.form = form});
    Model packed({.form = form});
    const PassReport report = run_drop_padding(packed.graph, kPass);
    EXPECT_GT(report.matched, 0) << why_nots(report);
    expect_same(train(model.graph, "none", kBatches, 2),
                train(model.graph, "default,drop-padding", kBatches, 2), 1e-12);
    expect_same(train(model.graph, "none", kBatches, 2),
                train(model.graph, "default,fuse-attention{min_keys=1},drop-padding", kBatches, 2), 1e-12);
  }
}

TEST(DropPadding, EveryBatchHasItsOwnNumberOfTokens) {
  const Model model;
  for (const std::int64_t accumulate : {1, 2, 3})
    expect_same(train(model.graph, "none", kBatches, accumulate),
                train(model.graph, "default,drop-padding", kBatches, accumulate), 1e-12);
}

TEST(DropPadding, HoldsInSinglePrecisionAndWithRecompute) {
  const Model model({.type = DType::f32});
  expect_same(train(model.graph, "none", kBatches, 2),
              train(model.graph, "default,drop-padding", kBatches, 2), 1e-5);
}

TEST(DropPadding, DropoutDrawsTheSameMasks) {
  const Model model({.dropout = true});
  expect_same(train(model.graph, "none", kBatches, 2),
              train(model.graph, "default,drop-padding", kBatches, 2), 1e-12);
}

TEST(DropPadding, AllRowsArePackedAndNoneIsComputedWhole) {
  const Model model;
  CompileOptions options;
  options.gradients_only = true;
  options.train.loss = "loss";
  options.pipeline = *parse_pipeline("default,drop-padding");
  const auto compiled = compile(model.graph, options);
  ASSERT_OK(compiled);
  auto counts = op_counts(compiled->train.graph);
  EXPECT_EQ(counts["TokenRows"], 1);
  // 7 products forward, 14 backward.
  int products = 0;
  for (const Node& node : compiled->train.graph.nodes)
    if (node.alive() && is_op(node, "PackedRows"))
      products += node.attrs.text("packed_op").find("MatMul") != std::string::npos ? 1 : 0;
  EXPECT_EQ(products, 21);
  for (const PassReport& report : compiled->reports)
    if (report.name == kPass && report.at == PassPhase::post_gradient) EXPECT_EQ(why_nots(report), "");
}

TEST(DropPadding, AnInstanceCanBeSwitchedOff) {
  Model model({.dropout = true});  // which divides the rows
  const PassReport report = run_drop_padding(model.graph, "drop-padding");
  ASSERT_GE(report.matched, 2);
  const std::string site = report.log.front().fingerprint;
  const Model other({.dropout = true});
  expect_same(train(other.graph, "none", kBatches, 2),
              train(other.graph, "default,drop-padding{except=" + site + "}", kBatches, 2), 1e-12);
}

// A value that something else reads whole is computed whole, and so is what it is made of.
TEST(DropPadding, WhatIsReadWholeIsComputedWhole) {
  Model model;
  run_drop_padding(model.graph, kPass);
  Graph& graph = model.graph;
  const auto added = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                  [](const Node& node) { return node.alive() && is_op(node, "Gelu"); });
  ASSERT_NE(added, graph.nodes.end());
  const ValueId rows = added->outputs[0];
  ASSERT_EQ(graph.type(rows).shape, (Shape{kBatch * kPositions, 3 * kWidth}));
  GraphBuilder b(graph);
  graph.outputs.push_back(b.op("ReduceMax", {rows}));
  const PassReport report = run_drop_padding(graph, kPass, PassPhase::post_gradient);
  EXPECT_NE(why_nots(report).find("ReduceMax"), std::string::npos) << why_nots(report);
  EXPECT_NE(why_nots(report).find("reads all rows"), std::string::npos) << why_nots(report);
  for (const Node& node : graph.nodes)
    if (node.alive() && is_op(node, "Gelu")) EXPECT_EQ(node.outputs[0], rows);
}

// ---- why not ----

std::string refusal(Model& model, const std::string& pass = kPass) {
  const PassReport report = run_drop_padding(model.graph, pass);
  EXPECT_EQ(report.matched, 0);
  EXPECT_EQ(op_counts(model.graph)["PackRows"], 0);
  return why_nots(report);
}

TEST(DropPadding, NeedsAMask) {
  Model model({.masked = false});
  EXPECT_NE(refusal(model).find("no input of [batch, position] masks attention"), std::string::npos);
}

TEST(DropPadding, NeedsAMaskThatLeavesKeysOut) {
  Model model({.form = Form::weak});
  EXPECT_NE(refusal(model).find("it leaves out other keys than those where 'mask' is 0"), std::string::npos);
}

TEST(DropPadding, IsForTheCpu) {
  Model model;
  const PassReport report =
      run_drop_padding(model.graph, kPass, PassPhase::pre_gradient, kernels::Target::gpu);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(why_nots(report).find("for the CPU"), std::string::npos);
}

TEST(DropPadding, NeedsAllAttentionMasked) {
  Model model;
  const ValueId x = model.b.input("x", {DType::f64, {kBatch, kPositions, kPositions}});
  model.graph.outputs.push_back(model.b.op("Softmax", {model.b.op("Abs", {x})}));
  EXPECT_NE(refusal(model).find("'mask' leaves nothing out here"), std::string::npos);
}

TEST(DropPadding, TakesTheMaskThatIsNamed) {
  Model model;
  EXPECT_GT(run_drop_padding(model.graph, "drop-padding{mask=mask}").matched, 0);
  Model other;
  EXPECT_NE(refusal(other, "drop-padding{mask=nosuch}").find("no input 'nosuch' of [batch, position] masks"),
            std::string::npos);
  Model ids;
  EXPECT_NE(refusal(ids, "drop-padding{mask=ids}").find("no input 'ids' of [batch, position] masks"),
            std::string::npos);
}

TEST(DropPadding, LeavesWhatKnowsPositionsToPaddedValues) {
  Model plain, own({.own_positions = true});
  const auto islands = [](Model& model) { return run_drop_padding(model.graph, kPass).matched; };
  EXPECT_GT(islands(own), islands(plain));  // an operand [1, position, width] divides one
  const Model again({.own_positions = true});
  expect_same(train(again.graph, "none", kBatches, 1),
              train(again.graph, "default,drop-padding", kBatches, 1), 1e-12);
}

TEST(PackedRows, StepsHoldTheTokens) {
  for (std::int64_t rows = 1; rows <= 70; ++rows) {
    std::int64_t before = 0;
    for (std::int64_t count = 0; count <= rows; ++count) {
      const std::int64_t step = row_step(count, rows), size = rows_of_step(step, rows);
      EXPECT_TRUE(step >= 0 && step < kRowSteps);
      EXPECT_TRUE(size >= count && size <= rows && size >= 1 && size >= before) << count << " of " << rows;
      EXPECT_TRUE(step == 0 || rows_of_step(step - 1, rows) < count) << count << " of " << rows;
      before = size;
    }
    EXPECT_EQ(before, rows);
  }
}

}  // namespace
}  // namespace gradloom
