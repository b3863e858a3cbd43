// Queries, keys, values and their gradients in rows of a larger tensor, in trainings: losses and parameters are those of copies to
// the bit, on the CPU and on GPUs, in an arena that begins as NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "app/job.h"
#include "engine/ir/op.h"
#include "tests/app/host_gpu_support.h"
#include "tests/app/model_job.h"

namespace gradloom {
namespace {

struct TakenSteps {
  std::vector<double> losses;
  std::map<std::string, Tensor> parameters;
  int splits = 0, joins = 0;  // nodes without a kernel, whose parts are rows
};

Result<TakenSteps> take_steps(const Recipe& recipe) {
  TakenSteps steps;
  const std::shared_ptr<const Prepared> prepared = TRY(prepare(recipe));
  const Graph& graph = prepared->compiled.train.graph;
  const Plan& plan = prepared->compiled.plan;
  TRY(check_plan(graph, plan));
  for (const PieceChoice& choice : plan.choices) {
    const Node& node = graph.nodes[choice.node];
    const bool joins = is_op(node, "Concat");
    const auto part = plan.pieces.find(joins ? node.inputs[0] : node.outputs[0]);
    if (choice.taken && part != plan.pieces.end() && !part->second.dense())
      ++(joins ? steps.joins : steps.splits);
  }
  const auto job = TRY(Job::create(prepared));
  job->executor().poison();
  for (std::int64_t step = 1; step <= 2; ++step) steps.losses.push_back(TRY(job->step(step)).loss);
  steps.parameters = TRY(job->parameters());
  return steps;
}

// Attention in one operator; as products and a softmax, which read and write through axis permutations; and through
// Transpose nodes.
constexpr const char* kPasses[] = {"default,fuse-attention{min_keys=1}", "default", "none"};

using Case = std::tuple<const char*, const char*, int>;
class AttentionRowsOf : public ::testing::TestWithParam<Case> {};

// Four blocks, each with a Split of a product and a Concat of its gradient.
TEST_P(AttentionRowsOf, GptChar) {
  const auto [device, precision, passes] = GetParam();
  if (std::string_view(device) == "host-gpu") {
    REQUIRE_HOST_GPU();
  }
  Recipe recipe = model_recipe("gpt-char");
  recipe.data = "synthetic";
  recipe.dims = {{"batch", 4}};
  recipe.device = device;
  set_pipeline(recipe, *parse_pipeline(kPasses[passes]));
  set_precision(recipe, precision);
  const auto rows = take_steps(recipe);
  recipe.pieces = false;
  const auto copies = take_steps(recipe);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_TRUE(copies.ok()) << copies.error().message;
  EXPECT_EQ(rows->losses, copies->losses);
  ASSERT_EQ(rows->parameters.size(), copies->parameters.size());
  for (const auto& [name, value] : rows->parameters)
    EXPECT_TRUE(bit_equal(value, copies->parameters.at(name))) << name;
  EXPECT_EQ(copies->splits + copies->joins, 0);
  // Where a processor's library multiplies, what lies in rows it may add in another order.
  const bool ours = std::string_view(device) == "host-gpu" || std::string_view(precision) == "f64";
  if (ours) {
    EXPECT_EQ(rows->splits, 4);
    EXPECT_EQ(rows->joins, 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Processors, AttentionRowsOf,
                         ::testing::Combine(::testing::Values("cpu", "host-gpu"),
                                            ::testing::Values("f32", "f64", "bf16", "f16"),
                                            ::testing::Values(0, 1, 2)),
                         [](const auto& test) {
                           std::string name = std::string(std::get<0>(test.param)) + "_" +
                                              std::get<1>(test.param) +
                                              (std::get<2>(test.param) == 0   ? "_fused"
                                               : std::get<2>(test.param) == 1 ? ""
                                                                              : "_no_passes");
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace gradloom
