// Attention in half types on a GPU: by our own kernels of one piece, and, of heads that these do not take, by the sequence of
// kernels over several blocks of queries. Scores, probabilities and the sums of dK and dV are f32 in both, so that the errors are
// those of the operands' and results' rounding.
#include <cmath>
#include <random>
#include <tuple>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"
#include "engine/run/executor.h"
#include "kernels/arguments.h"
#include "passes/planners.h"
#include "tests/app/host_gpu_support.h"

namespace gradloom {
namespace {

constexpr std::int64_t kRows = 512;  // causal: 8 blocks of 64 rows

std::vector<double> numbers(std::uint32_t seed, double size, std::int64_t columns) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, size);
  std::vector<double> values(static_cast<std::size_t>(kRows * columns));
  for (double& value : values) value = normal(random);
  return values;
}

Tensor future() {
  std::vector<double> hidden(kRows * kRows);
  for (std::int64_t i = 0; i < kRows * kRows; ++i)
    hidden[static_cast<std::size_t>(i)] = i % kRows > i / kRows ? 1 : 0;
  return Tensor::from_f64(DType::boolean, {kRows, kRows}, hidden);
}

// y, dq, dk, dv as f64, of operands that were rounded to `operands` and are computed with in `type`.
std::vector<Tensor> attention(DType operands, DType type, std::int64_t columns,
                              const std::string& device_id) {
  Graph graph;
  GraphBuilder b(graph);
  const Type rows{type, {1, kRows, columns}};
  std::vector<ValueId> inputs;  // dy, q, k, v; scores have a spread of about 2
  for (const char* name : {"dy", "q", "k", "v"}) inputs.push_back(b.input(name, rows));
  const ValueId mask = b.constant(future());
  Attrs attrs = {{"scale", 1 / std::sqrt(static_cast<double>(columns))},
                 {"mask", std::string("block")},
                 {"fill", -1e30}};
  const std::vector<ValueId> forward = {inputs[1], inputs[2], inputs[3], mask};
  std::vector<ValueId> backward = b.ops(op_by_name("FusedAttention"), forward, attrs, 2);
  std::vector<ValueId> results = {backward[0]};
  backward.insert(backward.begin(), inputs[0]);
  backward.insert(backward.end(), forward.begin(), forward.end());
  for (const ValueId gradient : b.ops(op_by_name("FusedAttentionGrad"), backward, attrs, 3))
    results.push_back(gradient);
  graph.outputs = results;
  const auto target = device_target(device_id);
  EXPECT_TRUE(target.ok());
  const PlannerDef* const planner = find_planner("best-fit");
  const auto plan = make_plan(graph, {planner->plan, planner->name, true, *target});
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  const auto device = open_device(device_id);
  EXPECT_TRUE(device.ok()) << device.error().message;
  const auto executor = Executor::create(graph, *plan, **device);
  EXPECT_TRUE(executor.ok()) << executor.error().message;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor exact =
        Tensor::from_f64(DType::f64, rows.shape, numbers(std::uint32_t(i) + 1, i == 1 ? 2 : 1, columns));
    EXPECT_TRUE((*executor)->feed(inputs[i], exact.cast(operands).cast(type)).ok());
  }
  EXPECT_TRUE((*executor)->run_forward().ok());
  std::vector<Tensor> read;
  for (const ValueId id : results) read.push_back((*executor)->read(id).value());
  return read;
}

// Root mean square of the difference, as a part of that of the numbers.
double error(const Tensor& got, const Tensor& exact) {
  double differences = 0, squares = 0;
  for (std::int64_t i = 0; i < exact.count(); ++i) {
    differences += (got.at(i) - exact.at(i)) * (got.at(i) - exact.at(i));
    squares += exact.at(i) * exact.at(i);
  }
  return std::sqrt(differences / squares);
}

class HalfAttention : public ::testing::TestWithParam<std::tuple<DType, std::int64_t>> {};

TEST_P(HalfAttention, HasTheErrorsOfRoundingAlone) {
  REQUIRE_HOST_GPU();
  const auto [half, columns] = GetParam();
  // Of one rounding; operands of products (probabilities, their slopes) and results are rounded.
  const double rounding = half == DType::bf16 ? std::ldexp(1, -9) : std::ldexp(1, -12);
  const std::vector<Tensor> got = attention(half, half, columns, "host-gpu"),
                            exact = attention(half, DType::f64, columns, "cpu");
  const char* const names[] = {"y", "dq", "dk", "dv"};
  for (std::size_t i = 0; i < got.size(); ++i) {
    // 1.2 to 1.3; with scores and sums in the half type 3.1 to 3.5.
    EXPECT_LT(error(got[i], exact[i]), 1.6 * rounding) << names[i];
    RecordProperty(names[i], std::to_string(error(got[i], exact[i]) / rounding));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, HalfAttention,
                         ::testing::Combine(::testing::Values(DType::bf16, DType::f16),
                                            ::testing::Values(std::int64_t{16}, kernels::kFlashColumns + 8)),
                         [](const auto& of) {
                           return std::string(dtype_name(std::get<0>(of.param))) + "_" +
                                  std::to_string(std::get<1>(of.param)) + "_columns";
                         });

}  // namespace
}  // namespace gradloom
