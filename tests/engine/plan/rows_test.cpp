// Parts along other axes than the first: rows of the whole, read and written there by kernels that take strides, to the same
// bits; refused wherever one of them does not; and plans that are wrong about rows, which the checker must find.
#include <gtest/gtest.h>

#include "engine/ops/inference.h"
#include "tests/engine/plan/pieces_support.h"

namespace gradloom {
namespace {

struct RowPieces : Pieces {
  void SetUp() override { REQUIRE_OWN_PRODUCTS(); }
  // [2, 6, 3 * 8]: two batches of six positions.
  ValueId qkv = b.op("MatMul", {b.input("tokens", {DType::f32, {2, 6, 16}}), weight({16, 24})});

  // The last reason why a node is copied.
  void expect_copies(const std::string& words) const {
    EXPECT_NE(why(plan(), false).find(words), std::string::npos) << words << ", but: " << why(plan(), false);
  }
  ValueId weight(Shape shape) {
    return b.input("weight" + std::to_string(b.graph().values.size()), {DType::f32, std::move(shape)});
  }
  ValueId heads(ValueId v) { return b.op("Reshape", {v, b.i64s({2, 6, 2, 4})}); }
  std::string node_of(ValueId v) { return "'" + graph.nodes[graph.values[v].producer].name + "' "; }
};

TEST_F(RowPieces, GatesAndHeadsAreReadInWhatAProductMade) {
  const auto parts = split(qkv, {8, 8, 8}, 2);
  const ValueId turned = b.op("Transpose", {heads(parts[0])}, {{"perm", Ints{0, 2, 1, 3}}});
  const ValueId gated = b.op("Mul", {unary("Sigmoid", parts[1]), parts[2]});
  graph.outputs = {turned, gated};
  const Plan p = plan();
  EXPECT_EQ(p.steps.size(), 4u) << why(p, false);
  EXPECT_EQ(p.pieces.size(), 4u);
  EXPECT_EQ(p.pieces.at(parts[1]).offset_bytes, 32);
  EXPECT_EQ(p.pieces.at(parts[1]).rows, 12);
  EXPECT_EQ(p.pieces.at(parts[1]).row_bytes, 32);
  EXPECT_EQ(p.pieces.at(parts[1]).pitch_bytes, 96);
  EXPECT_EQ(same_bits(), 1u);
}

// Halves that change places, as rotary embeddings have them.
TEST_F(RowPieces, ConcatReadsRows) {
  const auto parts = split(qkv, {12, 12}, 2);
  graph.outputs = {b.op("Softmax", {join({unary("Neg", parts[1]), parts[0]}, 2)})};
  EXPECT_EQ(same_bits(), 1u) << why(plan(), false);
  expect_copies("'" + graph.values[parts[0]].name + "' is read in place from another tensor");
}

TEST_F(RowPieces, ElementwiseOperatorsReadRows) {
  const auto parts = split(qkv, {8, 16}, 2);
  const ValueId gate = unary("Sigmoid", parts[0]);
  const ValueId bias = b.input("bias", {DType::f32, {8}});
  const ValueId sum = b.op("Add", {parts[0], bias}),
                back = b.op("Mul", {b.op("Reshape", {parts[0], b.i64s({12, 8})}), bias});
  graph.outputs = {gate, sum, back, unary("Exp", parts[1])};
  EXPECT_EQ(same_bits(), 1u) << why(plan(), false);
}

TEST_F(RowPieces, EveryFloatType) {
  std::size_t splits = 0;
  for (const DType type : {DType::f64, DType::bf16, DType::f16}) {
    const ValueId typed = b.op("Cast", {x}, {{"to", onnx_from_dtype(type)}});
    const auto parts = split(typed, {8, 8}, 1);
    graph.outputs = {b.op("Transpose", {parts[0]}), b.op("Mul", {parts[1], parts[0]})};
    EXPECT_EQ(same_bits(), ++splits) << dtype_name(type) << ": " << why(plan(), false);
  }
}

TEST_F(RowPieces, ReadersOfDenseTensorsKeepTheCopy) {
  const auto refused = [&](std::vector<ValueId> outputs, const std::string& words) {
    graph.outputs = std::move(outputs);
    expect_copies(words);
    same_bits();
  };
  const auto part = [&] { return slice(qkv, 0, 8, 2); };
  const ValueId softmax = unary("Softmax", part());
  refused({softmax}, node_of(softmax) + "(Softmax) reads dense tensors only");
  const ValueId out = part();
  refused({out}, "'" + graph.values[out].name + "' is an output");
  const ValueId again = slice(part(), 0, 3, 1);
  refused({unary("Exp", again)}, node_of(again) + "(Slice) reads dense tensors only");
  const ValueId over = b.op("Reshape", {part(), b.i64s({6, 16})});
  refused({unary("Exp", over)}, "a dim of '" + graph.values[over].name + "' goes on over the end of a row");
  graph.outputs = {b.op("MatMul", {part(), weight({8, 5})})};
  same_bits();  // the library's: in rows only where a trial finds these bits
  const ValueId noise = b.op("Dropout", {part(), b.scalar(DType::f32, 0.5), b.scalar(DType::boolean, 1)});
  refused({noise}, node_of(noise) + "(Dropout) reads dense tensors only");
  const ValueId low = b.op("Cast", {part()}, {{"to", onnx_from_dtype(DType::bf16)}});
  const ValueId wide = b.op("Softmax", {slice(low, 0, 4, 2)});
  refused({wide}, node_of(wide) + "(Softmax) reads dense tensors only");
}

// Queries and keys as they lie in what one product made, and two products beside each other in what they are joined to.
TEST_F(RowPieces, ProductsReadAndWriteRows) {
  const auto tokens = [&](const char* name) { return b.input(name, {DType::f32, {2, 20, 48}}); };
  const ValueId qk = unary("Exp", tokens("qk"));
  const auto parts = split(qk, {16, 32}, 2);
  const ValueId wide = b.op("MatMul", {parts[0], weight({16, 24})});
  const ValueId scores =
      b.op("FusedMatMul", {parts[0], parts[1]}, {{"perm_a", Ints{0, 2, 1}}, {"alpha", 0.5}});
  const ValueId other =
      b.op("Gemm", {b.op("Reshape", {parts[1], b.i64s({40, 32})}), weight({16, 32}), weight({16})},
           {{"transB", std::int64_t{1}}});
  const ValueId whole = join({wide, b.op("Reshape", {other, b.i64s({2, 20, 16})})}, 2);
  graph.outputs = {unary("Sin", whole), scores};
  EXPECT_EQ(same_bits(), 2u) << why(plan(), false);
}

// In every type that the CPU's own product has: f64 of any size; f32 of a size for which oneDNN is not asked.
TEST_F(RowPieces, ProductsOfF64) {
  const ValueId wide = b.op("Cast", {x}, {{"to", onnx_from_dtype(DType::f64)}});
  const auto parts = split(wide, {4, 12}, 1);
  const ValueId small = b.op("FusedMatMul", {parts[0], parts[0]}, {{"perm_b", Ints{1, 0}}}),
                turned =
                    b.op("FusedMatMul", {parts[1], small}, {{"perm_a", Ints{1, 0}}, {"perm_y", Ints{1, 0}}});
  graph.outputs = {unary("Sin", join({small, turned}, 1))};
  EXPECT_EQ(same_bits(), 2u) << why(plan(), false);
}

TEST_F(RowPieces, ProductsThatDoMoreWriteDenseTensors) {
  const ValueId tokens = b.input("rows", {DType::f32, {32, 24}});
  const auto of_weight = [&](const char* op, std::vector<ValueId> more, Attrs attrs = {}) {
    more.insert(more.begin(), {tokens, weight({24, 16})});
    return b.op(op, std::move(more), std::move(attrs));
  };
  const auto joined = [&](ValueId product) {
    graph.outputs = {unary("Sin", join({of_weight("MatMul", {}), product}, 1))};
  };
  joined(of_weight("FusedMatMul", {weight({16})}));
  EXPECT_EQ(same_bits(), 1u) << why(plan(), false);
  joined(of_weight("FusedMatMul", {weight({16})}, {{"activation", std::string("relu")}}));
  expect_copies("a product that the processor's library may add in another order");
  joined(of_weight("FusedMatMul", {weight({16})}, {{"activation", std::string("gelu_tanh")}}));
  expect_copies("what is added to the product, or made of it, is dense");
  joined(of_weight("Gemm", {weight({32, 16})}));
  expect_copies("what is added to the product, or made of it, is dense");
  EXPECT_EQ(same_bits(), 1u) << "of the first";
}

// Heads that lie behind each other are one batch for dense tensors, where each is a part they are many.
TEST_F(RowPieces, ProductsOfFewerDimsThanTheirRows) {
  const ValueId stacked = unary("Exp", b.input("stacked", {DType::f32, {2, 6, 16, 16}}));
  const ValueId part = slice(stacked, 0, 2, 1), product = b.op("MatMul", {part, part});
  graph.outputs = {product};
  expect_copies("more and smaller products than of dense tensors");
  EXPECT_EQ(same_bits(), 0u);
}

TEST_F(RowPieces, TransposesWriteRows) {
  const Ints perm{0, 2, 1, 3};
  const auto turned = [&](const char* name) {
    const ValueId heads = b.op("Transpose", {b.input(name, {DType::f32, {2, 3, 6, 4}})}, {{"perm", perm}});
    return b.op("Reshape", {heads, b.i64s({2, 6, 12})});
  };
  graph.outputs = {unary("Sin", join({turned("a"), turned("c")}, 2))};
  EXPECT_EQ(same_bits(), 1u) << why(plan(), false);
}

// A kernel that refuses keeps the copies of one node, not those of others.
TEST_F(RowPieces, EachNodeByItself) {
  const auto parts = split(qkv, {8, 16}, 2);
  const ValueId other = slice(qkv, 8, 24, 2);
  graph.outputs = {unary("Softmax", parts[0]), unary("Exp", parts[1]), unary("Exp", other)};
  EXPECT_EQ(same_bits(), 1u);
}

TEST_F(RowPieces, PartsAreReadAsTensors) {
  const ValueId part = slice(qkv, 8, 16, 2);
  graph.outputs = {unary("Exp", part)};
  const Plan on = plan(), off = plan(false, false);
  ASSERT_EQ(on.pieces.count(part), 1u);
  const auto value = [&](const Plan& p) {
    const auto device = make_cpu_device();
    const auto executor = Executor::create(graph, p, *device);
    EXPECT_TRUE(executor.ok());
    for (const ValueId id : graph.inputs) {
      std::vector<double> numbers;
      for (std::int64_t i = 0; i < element_count(graph.type(id).shape); ++i)
        numbers.push_back(static_cast<double>(i % 13) - 6);
      EXPECT_TRUE((*executor)->feed(id, Tensor::from_f64(DType::f32, graph.type(id).shape, numbers)).ok());
    }
    EXPECT_TRUE((*executor)->run_forward().ok());
    const Tensor read = (*executor)->read(part).value(), view = (*executor)->view(part).value();
    EXPECT_TRUE(bit_equal(read, view));
    return read;
  };
  EXPECT_TRUE(bit_equal(value(on), value(off)));
}

TEST_F(RowPieces, GpusTakeDenseTensors) {
  graph.outputs = {unary("Exp", slice(qkv, 0, 8, 2)), unary("Exp", slice(x, 1, 3))};
  PlanOptions options{spread, "spread", true, kernels::Target::gpu};
  const auto made = make_plan(graph, options);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->choices.size(), 2u);
  EXPECT_FALSE(made->choices[0].taken);
  EXPECT_TRUE(made->choices[1].taken);
  EXPECT_TRUE(check_plan(graph, *made).ok());
}

// ---- plans that are wrong ---------------------------------------------------------------------------------

struct WrongRows : RowPieces {
  ValueId first = kNone, second = kNone;
  Plan good;
  void SetUp() override {
    const auto parts = split(qkv, {8, 16}, 2);
    first = parts[0];
    second = parts[1];
    graph.outputs = {unary("Sin", first), unary("Abs", second), b.op("Transpose", {second})};
    good = plan(true, false);
    ASSERT_EQ(good.pieces.size(), 2u) << why(good, false);
  }
  static constexpr const char* kLost = "after it was overwritten, or where it is not";
};

TEST_F(WrongRows, PitchRowsAndOffset) {
  Plan bad = good;
  bad.pieces[first].pitch_bytes = 64;
  expect_found(bad, kLost);
  bad = good;
  bad.pieces[second].pitch_bytes = 64;
  expect_found(bad, kLost);
  bad = good;
  bad.pieces[first].offset_bytes = 4;
  expect_found(bad, kLost);
  bad = good;
  bad.pieces[first].offset_bytes = 2;
  expect_found(bad, "misaligned");
  bad = good;
  bad.pieces[first].pitch_bytes = 98;
  expect_found(bad, "misaligned");
  bad = good;
  bad.pieces[second].offset_bytes += 32;
  expect_found(bad, "reaches beyond its buffer");
  bad = good;
  bad.pieces[first].rows = 6;
  expect_found(bad, "has other rows");
  bad = good;
  bad.pieces[first] = {0, 6, 64, 96};
  expect_found(bad, kLost);
  bad = good;
  bad.pieces[first] = {0, 1, 12 * 32, 0};  // dense, from where it begins
  expect_found(bad, kLost);
}

// A kernel that writes rows, were there one: the checker knows of what it would write over.
TEST_F(WrongRows, ResultsInRowsOverOthers) {
  Plan bad = good;
  const ValueId sine = graph.outputs[0], absolute = graph.outputs[1];
  bad.buffer_of[sine] = bad.buffer_of[absolute];
  bad.pieces[sine] = {0, 12, 32, 64};  // between the rows of what is written next
  EXPECT_FALSE(said(bad).empty());
  bad = good;
  bad.buffer_of[sine] = bad.buffer_of[qkv];
  bad.pieces[sine] = {32, 12, 32, 96};  // over the beginning of each row of `second`
  EXPECT_FALSE(said(bad).empty());
}

TEST_F(WrongRows, TheWholeIsFreedOrWrittenOver) {
  Plan bad = good;
  buffer(bad, qkv).last_step = 1;
  expect_found(bad, "when its buffer is free");
  bad = good;
  buffer(bad, graph.outputs[0]).offset = buffer(bad, qkv).offset;
  EXPECT_FALSE(said(bad).empty());
  bad = good;
  const ValueId abs = graph.outputs[1];  // in place over the rows that it reads, as if they were dense
  bad.buffer_of[abs] = bad.buffer_of[qkv];
  EXPECT_FALSE(said(bad).empty());
}

TEST_F(WrongRows, EveryShiftByAnElementIsFound) {
  int found = 0, tried = 0;
  for (const auto& [value, part] : good.pieces)
    for (const std::int64_t shift : {-32, -8, -4, 4, 8, 32}) {
      Plan bad = good;
      bad.pieces[value].offset_bytes += shift;
      ++tried;
      found += said(bad).empty() ? 0 : 1;
    }
  EXPECT_EQ(found, tried);
}

}  // namespace
}  // namespace gradloom
