// Copies of parameters in 16 bits: found in the graph, set from the parameter, written with it, read by the next step.
#include "engine/train/weight_copies.h"

#include <gtest/gtest.h>

#include "engine/device/device.h"
#include "engine/ir/builder.h"
#include "engine/ir/op.h"
#include "engine/run/executor.h"
#include "tests/engine/plan/support.h"

namespace gradloom {
namespace {

// y = copy of w in f32; w -= lr 1, with the copy.
struct Copied {
  Graph graph;
  Plan plan;
  std::unique_ptr<Device> device;
  std::unique_ptr<Executor> executor;
  StepNames names;
  ValueId w, copy, y;
  explicit Copied(DType low) {
    GraphBuilder b(graph);
    names.lr = b.input("lr", {DType::f64, {}}, Role::hyper);
    names.step = b.input("step", {DType::i64, {}}, Role::hyper);
    w = b.parameter("w", Tensor::from_f64(DType::f32, {3}, {1.00390625 + 0.001, -3.1, 70000.5}));
    copy = b.input("w/copy", {low, {3}}, Role::state);
    const ValueId g = b.constant(Tensor::from_f64(DType::f32, {3}, {1, 1, 1}), "g");
    y = b.op("Cast", {copy}, {{"to", std::int64_t{1}}});
    names.loss = b.op("ReduceSum", {y}, {{"keepdims", std::int64_t{0}}});
    const Attrs attrs{
        {"kind", std::string("sgd")}, {"n", std::int64_t{1}}, {"copies", std::vector<std::int64_t>{0}}};
    const auto next =
        b.ops(op_by_name("Optimizer"), {names.lr, names.step, kNone, kNone, w, g, copy}, attrs, 2);
    b.update(w, next[0]);
    b.update(copy, next[1]);
    graph.outputs = {names.loss, y};
    plan = make_plan(graph, {stack_all, "stack", true}).value();
    device = open_device("cpu").value();
    executor = Executor::create(graph, plan, *device).value();
  }
  Tensor read(ValueId v) const { return executor->read(v).value(); }
  void expect_rounded() const { EXPECT_TRUE(bit_equal(read(copy), read(w).cast(graph.type(copy).dtype))); }
};

class WeightCopies : public ::testing::TestWithParam<DType> {};

TEST_P(WeightCopies, FollowTheParameter) {
  Copied c(GetParam());
  EXPECT_EQ(weight_copies(c.graph), (std::map<ValueId, ValueId>{{c.copy, c.w}}));
  c.expect_rounded();
  const Tensor first = c.read(c.copy);
  const auto outcome = c.executor->step(c.names, {.step = 1, .lr = 0.3}, {});
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_TRUE(bit_equal(c.read(c.y), first.cast(DType::f32))) << "the step reads the copy from before it";
  EXPECT_FALSE(bit_equal(c.read(c.copy), first));
  c.expect_rounded();
  ASSERT_TRUE(c.executor->write(c.w, Tensor::from_f64(DType::f32, {3}, {5.01, 6, 7})).ok());
  c.expect_rounded();
  ASSERT_TRUE(c.executor->reset().ok());
  EXPECT_TRUE(bit_equal(c.read(c.copy), first));
}
INSTANTIATE_TEST_SUITE_P(Types, WeightCopies, ::testing::Values(DType::bf16, DType::f16));

TEST(WeightCopiesOf, AGraphWithoutAnOptimizer) {
  Graph graph;
  GraphBuilder b(graph);
  graph.outputs = {b.op("Relu", {b.input("x", {DType::f32, {2}})})};
  EXPECT_TRUE(weight_copies(graph).empty());
}

}  // namespace
}  // namespace gradloom
