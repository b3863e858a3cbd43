// A small transformer over padded batches, and its training with passes, on devices and in precisions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/run/executor.h"
#include "passes/compile.h"
#include "tests/passes/support.h"

namespace gradloom::test {

constexpr std::int64_t kBatch = 3, kPositions = 5, kWidth = 8, kHeads = 2;

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
    return b.parameter(name, random_tensor({tiny_.type, std::move(shape)}, random));
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

using Lengths = std::vector<std::int64_t>;

inline Tensor mask_of(const Lengths& lengths, double token = 1, double padding = 0) {
  std::vector<double> mask;
  for (const std::int64_t length : lengths)
    for (std::int64_t p = 0; p < kPositions; ++p)
      mask.push_back(p >= length ? padding
                     : token < 0 ? std::vector{0.0, 2.0, 3.0}[static_cast<std::size_t>(p + length) % 3]
                                 : token);
  return Tensor::from_f64(DType::i64, {kBatch, kPositions}, mask);
}

using Numbers = std::map<std::string, Tensor>;

// Where and how a model is trained. `steps`: with `accumulate`.
struct Training {
  std::int64_t accumulate = 0, steps = 2;
  std::string device = "cpu", precision{};  // "": that of the model
  std::int64_t memory_budget_bytes = 0;
};

inline Result<CompileOptions> padded_options(const std::string& passes, const Training& how) {
  CompileOptions options;
  options.target = TRY(device_target(how.device));
  options.gradients_only = how.accumulate == 0;
  options.train.loss = "loss";
  options.train.optimizer = TRY(parse_optimizer("sgd{lr=0.1}"));
  options.train.accumulate = std::max<std::int64_t>(how.accumulate, 1);
  options.pipeline = TRY(parse_pipeline(passes));
  options.memory_budget_bytes = how.memory_budget_bytes;
  if (!how.precision.empty()) {
    PassConfig low = TRY(configure_pass(*find_pass("mixed-precision"), {{"type", how.precision}}));
    options.pipeline.passes.insert(place_of(options.pipeline, *low.def, {}), std::move(low));
  }
  return options;
}

// Loss and gradients, or with `accumulate` parameters after some steps, each batch of other lengths than the last.
inline Result<Numbers> train_padded(const Graph& model, const std::string& passes,
                                    const std::vector<Lengths>& batches, const Training& how = {}) {
  const std::int64_t accumulate = how.accumulate;
  const CompileOptions options = TRY(padded_options(passes, how));
  const Compiled compiled = TRY(compile(model, options));
  const Graph& graph = compiled.train.graph;
  TRY(check_plan(graph, compiled.plan));
  const auto device = TRY(open_device(how.device));
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
      if (value.name == "ids") TRY(executor->feed(input, random_tensor(value.type, random)));
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
  for (std::int64_t step = 1; step <= how.steps && accumulate > 0; ++step) {
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

inline void expect_same(const Result<Numbers>& a, const Result<Numbers>& b, double tolerance) {
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

inline const std::vector<Lengths> kBatches = {{2, 5, 3}, {5, 5, 5}, {1, 1, 1}, {1, 4, 2}};

}  // namespace gradloom::test
