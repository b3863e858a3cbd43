// Queries, keys and values that are rows of what one product made, and their gradients, which are written where they are
// joined: no kernel splits or joins them, with the bits of copies; what keeps the copies; and wrong plans, which the
// checker must find.
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "engine/ir/views.h"
#include "engine/ops/inference.h"
#include "tests/engine/plan/pieces_support.h"

namespace gradloom {
namespace {

// Of heads of `columns` columns.
struct Attended {
  std::int64_t columns = 16;
  DType dtype = DType::f32;
  Attrs attrs = {};
  ValueId mask = kNone;
};

struct AttentionRows : Pieces {
  void SetUp() override { REQUIRE_OWN_PRODUCTS(); }
  static constexpr std::int64_t kBatch = 2, kTime = 24, kHeads = 2;
  ValueId parts[3] = {kNone, kNone, kNone}, grads[3] = {kNone, kNone, kNone};
  ValueId qkv = kNone, y = kNone, joined = kNone;

  ValueId of_type(ValueId v, DType dtype) {
    return dtype == DType::f32 ? v : b.op("Cast", {v}, {{"to", onnx_from_dtype(dtype)}});
  }
  ValueId given(const char* name, Shape shape, DType dtype) {
    return of_type(b.input(name, {DType::f32, std::move(shape)}), dtype);
  }

  // Outputs: the attention of a split product, and a function of its joined gradients.
  void attend(const Attended& a = {}) {
    const std::int64_t width = kHeads * a.columns;
    qkv = b.op("Tanh", {given("qkv", {kBatch, kTime, 3 * width}, a.dtype)});
    const auto made = split(qkv, {width, width, width}, 2);
    const Ints perm{0, 2, 1, 3};
    Attrs attrs = a.attrs;
    for (const char* name : {"perm_q", "perm_k", "perm_v", "perm_y"}) attrs.set(name, perm);
    attrs.set("scale", 0.25);
    std::vector<ValueId> operands;
    for (std::size_t i = 0; i < 3; ++i) {
      parts[i] = made[i];
      operands.push_back(b.op("Reshape", {made[i], b.i64s({kBatch, kTime, kHeads, a.columns})}));
    }
    if (a.mask != kNone) operands.push_back(a.mask);
    const auto results = b.ops(op_by_name("FusedAttention"), operands, attrs, 2);
    y = results[0];
    operands.insert(operands.begin(),
                    {given("dy", {kBatch, kTime, kHeads, a.columns}, a.dtype), y, results[1]});
    const auto slopes = b.ops(op_by_name("FusedAttentionGrad"), operands, attrs, 3);
    std::vector<ValueId> flat;
    for (std::size_t i = 0; i < 3; ++i) {
      grads[i] = slopes[i];
      flat.push_back(b.op("Reshape", {slopes[i], b.i64s({kBatch, kTime, width})}));
    }
    joined = join(flat, 2);
    graph.outputs = {y, unary("Sin", joined)};
  }
  std::string node_of(ValueId v) const { return "'" + graph.nodes[graph.values[v].producer].name + "'"; }
  // The last reason why a node is copied.
  void expect_copies(const std::string& words, const Plan& p) const {
    EXPECT_NE(why(p, false).find(words), std::string::npos) << words << ", but: " << why(p, false);
  }
  // Of plans for a GPU with cuDNN.
  Plan plan_for_gpu() const {
    PlanOptions options{spread_far, "spread", true, kernels::Target::gpu, true};
    auto made = make_plan(graph, options);
    EXPECT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(said(*made), "");
    return std::move(made).value();
  }
  static std::int64_t spread_far(const std::vector<Request>& requests, std::vector<std::int64_t>& offsets) {
    constexpr std::int64_t kApart = std::int64_t{1} << 28;
    for (std::size_t i = 0; i < requests.size(); ++i) offsets[i] = static_cast<std::int64_t>(i) * kApart;
    return 32 * kApart;
  }
};

// What a mask hides from every row is left out of blocks of queries.
Tensor future(std::int64_t size) {
  Tensor mask(DType::boolean, {size, size});
  auto* const flags = static_cast<std::uint8_t*>(mask.mutable_data());
  for (std::int64_t i = 0; i < size * size; ++i) flags[i] = i % size > i / size ? 1 : 0;
  return mask;
}

TEST_F(AttentionRows, CostNoKernel) {
  attend();
  const Plan p = plan();
  EXPECT_EQ(p.steps.size(), 4u) << why(p, false);
  const std::int64_t row = 2 * 16 * 4;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(p.buffer_of[parts[i]], p.buffer_of[qkv]);
    EXPECT_EQ(p.buffer_of[grads[i]], p.buffer_of[joined]);
    for (const ValueId v : {parts[i], grads[i]}) {
      EXPECT_EQ(p.pieces.at(v).offset_bytes, static_cast<std::int64_t>(i) * row);
      EXPECT_EQ(p.pieces.at(v).rows, kBatch * kTime);
      EXPECT_EQ(p.pieces.at(v).row_bytes, row);
      EXPECT_EQ(p.pieces.at(v).pitch_bytes, 3 * row);
    }
  }
  EXPECT_EQ(same_bits(), 2u);
}

TEST_F(AttentionRows, InF64) {
  attend({.dtype = DType::f64});
  EXPECT_EQ(same_bits(), 2u) << why(plan(), false);
}

// Blocks of queries, of which later ones add to the gradients of the keys that they see.
TEST_F(AttentionRows, OfAKnownMaskAndDropout) {
  Attended a{.attrs = {{"mask", std::string("block")}, {"dropout", 0.25}, {"key", std::int64_t{77}}}};
  a.mask = b.constant(future(kTime));
  attend(a);
  EXPECT_EQ(same_bits(), 2u) << why(plan(), false);
}

// oneDNN's, which with few columns is faster than our own: in rows where a trial finds the bits of dense tensors, else copied.
TEST_F(AttentionRows, OfALibrarysProductsHaveTheBitsOfCopies) {
  attend({.columns = 8});
  const Plan p = plan();
  const std::size_t taken = same_bits();
  if (taken < 2) {
    expect_copies("a product that the processor's library may add in another order", p);
  }
}

// Keys that nothing sees: their gradients are zeros, which are written as dense ones.
TEST_F(AttentionRows, WhoseGradientsBeginAsZerosAreCopied) {
  Tensor blind = future(kTime);
  for (std::int64_t row = 0; row < kTime; ++row)
    static_cast<std::uint8_t*>(blind.mutable_data())[row * kTime + kTime - 1] = 1;
  for (std::int64_t key = kTime - 9; key < kTime; ++key)
    for (std::int64_t row = 0; row < kTime; ++row)
      static_cast<std::uint8_t*>(blind.mutable_data())[row * kTime + key] = 1;
  Attended a{.attrs = {{"mask", std::string("block")}}};
  a.mask = b.constant(blind);
  attend(a);
  expect_copies("keys that nothing sees", plan());
  EXPECT_EQ(same_bits(), 1u) << "the operands are read in rows";
}

// Other readers of a gradient must take rows, too: elementwise operators do, products do not.
TEST_F(AttentionRows, GradientsThatAreReadElsewhereToo) {
  attend();
  const std::vector<ValueId> outputs = graph.outputs;
  graph.outputs.push_back(unary("Exp", grads[1]));
  EXPECT_EQ(same_bits(), 2u) << why(plan(), false);
  graph.outputs = outputs;
  const ValueId softmax = unary("Softmax", grads[1]);
  graph.outputs.push_back(softmax);
  expect_copies(node_of(softmax) + " (Softmax) reads dense tensors only", plan());
  EXPECT_EQ(same_bits(), 1u);
  graph.outputs = outputs;
  graph.outputs.push_back(grads[2]);
  expect_copies("'" + graph.values[grads[2]].name + "' is an output", plan());
  EXPECT_EQ(same_bits(), 1u);
}

TEST_F(AttentionRows, OnGpusToo) {
  attend({.dtype = DType::bf16});
  const Plan p = plan_for_gpu();
  EXPECT_EQ(p.pieces.count(parts[2]), 1u) << why(p, false);
  EXPECT_EQ(p.pieces.count(grads[2]), 1u) << why(p, false);
  EXPECT_EQ(why(p, false), "");
}

// Rows that begin between what a thread loads at once: our kernels would take elements one by one.
TEST_F(AttentionRows, OnGpusOfWholePacks) {
  attend({.columns = 9, .dtype = DType::bf16});
  expect_copies("begin between packs of 16 bytes", plan_for_gpu());
}

// Halves of more columns than our kernel of one piece takes: sums of f32 are rounded into dense tensors.
TEST_F(AttentionRows, OnGpusNotOfRoundedSums) {
  Attended a{.columns = 264, .dtype = DType::bf16, .attrs = {{"mask", std::string("block")}}};
  Tensor blind = future(kTime);
  for (std::int64_t row = 0; row < kTime; ++row)
    for (std::int64_t key = 2; key < kTime; ++key)
      static_cast<std::uint8_t*>(blind.mutable_data())[row * kTime + key] = 1;
  a.mask = b.constant(blind);
  attend(a);
  expect_copies("keys that nothing sees", plan_for_gpu());
}

// ---- plans that are wrong ---------------------------------------------------------------------------------

struct WrongAttentionRows : AttentionRows {
  Plan good;
  void SetUp() override {
    REQUIRE_OWN_PRODUCTS();
    attend();
    good = plan(true, false);
    ASSERT_EQ(good.steps.size(), 4u) << why(good, false);
    ASSERT_EQ(said(good), "");
  }
  static constexpr std::int64_t kRow = 2 * 16 * 4;
};

// Of kernels that write rows between each other's.
TEST_F(WrongAttentionRows, RowsThatOverlap) {
  Plan bad = good;
  bad.pieces[grads[1]].offset_bytes = kRow / 2;  // over the end of each row of dq
  expect_found(bad, "writes two outputs to the same memory");
  bad = good;
  bad.pieces[grads[1]].offset_bytes = 0;
  expect_found(bad, "writes two outputs to the same memory");
  bad = good;
  bad.pieces[grads[2]].pitch_bytes = 2 * kRow;
  EXPECT_NE(said(bad), "");
}

TEST_F(WrongAttentionRows, RowsThatChangedPlaces) {
  Plan bad = good;
  std::swap(bad.pieces[grads[0]].offset_bytes, bad.pieces[grads[1]].offset_bytes);
  expect_found(bad, "reads '" + graph.values[joined].name + "' after it was overwritten, or where it is not");
  bad = good;
  std::swap(bad.pieces[parts[0]].offset_bytes, bad.pieces[parts[2]].offset_bytes);
  for (auto& [value, part] : bad.pieces)
    if (behind_views(graph, value) == parts[0]) part = bad.pieces[parts[0]];
  expect_found(bad, "after it was overwritten, or where it is not");
}

TEST_F(WrongAttentionRows, RowsThatAreDense) {
  Plan bad = good;
  bad.pieces[grads[0]] = {0, 1, kBatch * kTime * kRow, 0};  // over what is beside it
  expect_found(bad, "writes two outputs to the same memory");
  bad = good;
  for (auto& [value, part] : bad.pieces) part.rows /= 2, part.row_bytes *= 2;
  EXPECT_NE(said(bad), "");
}

TEST_F(WrongAttentionRows, RowsOverWhatIsStillRead) {
  Plan bad = good;
  buffer(bad, joined).offset = buffer(bad, qkv).offset;  // while q, k and v are read
  expect_found(bad, "over its input");
  bad = good;
  buffer(bad, joined).offset = buffer(bad, y).offset;  // an output: read after the last step
  EXPECT_NE(said(bad), "");
}

TEST_F(WrongAttentionRows, RowsThatAKernelDoesNotTake) {
  Plan bad = good;
  const ValueId sine = graph.outputs[1];
  bad.buffer_of[sine] = static_cast<std::int32_t>(bad.buffers.size());
  bad.buffers.push_back({Place::arena, bad.arena_bytes, aligned_bytes(6 * kBatch * kTime * kRow), 0, 4});
  bad.arena_bytes += bad.buffers.back().bytes;
  bad.pieces[sine] = {0, kBatch * kTime, 3 * kRow, 6 * kRow};
  expect_found(bad, "in rows, as its operator does not");
}

// Of everything that a kernel reads or writes in rows.
TEST_F(WrongAttentionRows, EveryShiftIsFound) {
  std::set<ValueId> touched;
  for (const PlanStep& step : good.steps)
    for (const auto* values : {&graph.nodes[step.node].inputs, &graph.nodes[step.node].outputs})
      touched.insert(values->begin(), values->end());
  int found = 0, tried = 0;
  for (const auto& [value, part] : good.pieces)
    for (const std::int64_t shift : {-kRow, std::int64_t{-64}, std::int64_t{-4}, std::int64_t{4}, kRow}) {
      if (touched.count(value) == 0) continue;
      Plan bad = good;
      bad.pieces[value].offset_bytes += shift;
      ++tried;
      found += said(bad).empty() ? 0 : 1;
    }
  EXPECT_EQ(found, tried);
  EXPECT_EQ(tried, 6 * 5);
}

}  // namespace
}  // namespace gradloom
