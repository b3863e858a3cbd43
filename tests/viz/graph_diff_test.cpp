#include "viz/model/graph_diff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/onnx/import.h"
#include "tests/paths.h"
#include "tests/viz/small_step.h"

namespace gradloom {
namespace {

Compiled gpt(const std::string& passes, const std::string& precision_pass = "") {
  static const ImportedModel model = [] {
    ImportOptions options;
    options.dims = {{"batch", 4}};
    return std::move(import_onnx(GRADLOOM_SOURCE_DIR "/tests/models/gpt-char/model.onnx", options)).value();
  }();
  CompileOptions options;
  options.train.loss = "ce:logits,labels";
  options.train.optimizer = std::move(parse_optimizer("adamw{lr=1e-3}")).value();
  options.pipeline = std::move(parse_pipeline(passes + precision_pass)).value();
  auto compiled = compile(model.graph, options);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  return std::move(compiled).value();
}

DiffGraph side(const Compiled& compiled, const std::string& name, bool timed = false) {
  const std::vector<double> ns(timed ? compiled.plan.steps.size() : 0, 1000);
  return diff_graph_of(compiled.train.graph, compiled.plan, name, ns);
}

// What a run of it would have stored.
DiffGraph stored(const Compiled& compiled, std::int64_t id) {
  RunRecord run;
  run.summary.id = id;
  run.kernels = test::timed_rows(compiled);
  return diff_graph_of(run);
}

std::string shown(const GraphDifference& d) {
  std::string text;
  for (const DiffRegion& region : d.regions) {
    text += region.name + ":";
    for (const std::int32_t n : region.left) text += " -" + d.left.nodes[static_cast<std::size_t>(n)].name;
    for (const std::int32_t n : region.right) text += " +" + d.right.nodes[static_cast<std::size_t>(n)].name;
    text += "\n";
  }
  return text;
}

TEST(GraphDifference, OfAGraphAgainstItselfIsEmpty) {
  const Compiled compiled = gpt("default");
  const auto d = difference_of(side(compiled, "a"), side(compiled, "b"));
  ASSERT_TRUE(d.ok()) << d.error().message;
  EXPECT_TRUE(d->empty()) << shown(*d);
  EXPECT_EQ(d->left_equal.nodes, static_cast<std::int64_t>(live_node_count(compiled.train.graph)));
  EXPECT_EQ(d->left_equal.kernels, static_cast<std::int64_t>(compiled.plan.steps.size()));
  EXPECT_EQ(d->right_equal.kernels, d->left_equal.kernels);
}

// Each of the four blocks has one GELU; nothing else may be in a region.
TEST(GraphDifference, WithoutFuseGeluIsExactlyTheGelus) {
  const Compiled with = gpt("default"), without = gpt("default,-fuse-gelu");
  for (const auto& d : {difference_of(side(with, "a"), side(without, "b")),
                        difference_of(stored(with, 1), stored(without, 2))}) {
    ASSERT_TRUE(d.ok()) << d.error().message;
    ASSERT_EQ(d->regions.size(), 4u) << shown(*d);
    std::set<std::string> blocks;
    for (const DiffRegion& region : d->regions) {
      const auto gelu =
          std::find_if(region.onnx_nodes.begin(), region.onnx_nodes.end(),
                       [](const std::string& n) { return n.find("/gelu/") != std::string::npos; });
      ASSERT_NE(gelu, region.onnx_nodes.end()) << region.name;
      blocks.insert(gelu->substr(0, gelu->find("/gelu/")));
      EXPECT_NE(std::find(region.left_passes.begin(), region.left_passes.end(), "fuse-gelu"),
                region.left_passes.end())
          << region.name;
      EXPECT_FALSE(region.left.empty());
      EXPECT_FALSE(region.right.empty());
      const std::string block = gelu->substr(0, gelu->find("/gelu/") + 1);
      for (const std::string& name : region.onnx_nodes) EXPECT_EQ(name.find(block), 0u) << name;
    }
    EXPECT_EQ(blocks.size(), 4u) << "one region per block";
    // Left and right tell of the same ONNX nodes, and all kernels are counted once.
    EXPECT_GT(d->left_equal.kernels, d->left_sums.kernels);
    EXPECT_EQ(d->left_equal.kernels, d->right_equal.kernels);
    EXPECT_EQ(d->left_equal.kernels + d->left_sums.kernels,
              static_cast<std::int64_t>(with.plan.steps.size()));
    EXPECT_EQ(d->right_equal.kernels + d->right_sums.kernels,
              static_cast<std::int64_t>(without.plan.steps.size()));
  }
}

TEST(GraphDifference, IsTheSameBothWaysAndEachTime) {
  const Compiled with = gpt("default"), without = gpt("default,-fuse-gelu");
  const auto there = difference_of(side(with, "a"), side(without, "b")),
             again = difference_of(side(with, "a"), side(without, "b")),
             back = difference_of(side(without, "b"), side(with, "a"));
  ASSERT_TRUE(there.ok() && again.ok() && back.ok());
  EXPECT_EQ(shown(*there), shown(*again));
  ASSERT_EQ(there->regions.size(), back->regions.size());
  EXPECT_EQ(there->left_sums.nodes, back->right_sums.nodes);
  EXPECT_EQ(there->right_sums.kernels, back->left_sums.kernels);
}

TEST(GraphDifference, OfAnotherPrecisionNamesItsPassInEveryRegion) {
  const Compiled f32 = gpt("default"), bf16 = gpt("default,mixed-precision");
  const auto d = difference_of(side(f32, "a"), side(bf16, "b"));
  ASSERT_TRUE(d.ok()) << d.error().message;
  ASSERT_FALSE(d->empty());
  std::size_t named = 0;
  for (const DiffRegion& region : d->regions)
    named += std::count(region.right_passes.begin(), region.right_passes.end(), "mixed-precision") > 0;
  EXPECT_GT(named, 0u);
  for (const DiffRegion& region : d->regions)
    EXPECT_FALSE(region.left_passes.empty() && region.right_passes.empty() && region.why.empty())
        << region.name;
}

TEST(GraphDifference, SumsTheTimesThatAreKnown) {
  const Compiled with = gpt("default"), without = gpt("default,-fuse-gelu");
  const auto timed = difference_of(side(with, "a", true), side(without, "b", true));
  ASSERT_TRUE(timed.ok());
  for (const DiffRegion& region : timed->regions) {
    EXPECT_EQ(region.left_sums.timed, region.left_sums.kernels);
    EXPECT_DOUBLE_EQ(region.left_sums.time_ns, 1000.0 * static_cast<double>(region.left_sums.kernels));
  }
  for (std::size_t i = 1; i < timed->regions.size(); ++i)
    EXPECT_GE(std::abs(timed->regions[i - 1].change_ns()), std::abs(timed->regions[i].change_ns()));
  const auto half = difference_of(side(with, "a", true), side(without, "b"));
  ASSERT_TRUE(half.ok());
  EXPECT_TRUE(half->left_sums.is_timed());
  EXPECT_FALSE(half->right_sums.is_timed());
}

// One operand of a node comes from elsewhere: no node came or went, and it is a difference.
TEST(GraphDifference, SeesThatAnInputComesFromElsewhere) {
  const Compiled compiled = test::small_step();
  const DiffGraph a = side(compiled, "a");
  DiffGraph b = side(compiled, "b");
  const auto add = std::find_if(b.nodes.begin(), b.nodes.end(),
                                [](const DiffNode& n) { return n.name == "/layers.1/linear/Add"; });
  const auto first = std::find_if(b.nodes.begin(), b.nodes.end(),
                                  [](const DiffNode& n) { return n.name == "/layers.0/linear/MatMul"; });
  ASSERT_TRUE(add != b.nodes.end() && first != b.nodes.end());
  add->producers[0] = static_cast<std::int32_t>(first - b.nodes.begin());
  const auto d = difference_of(a, b);
  ASSERT_TRUE(d.ok()) << d.error().message;
  ASSERT_EQ(d->regions.size(), 1u) << shown(*d);
  EXPECT_EQ(d->regions[0].why, "other inputs");
  EXPECT_EQ(shown(*d), "layers.1/linear: Add: -/layers.1/linear/Add +/layers.1/linear/Add\n");
}

// An exporter that names everything otherwise: nothing but the structure is left to match by.
TEST(GraphDifference, MatchesByStructureWhereNamesSayNothing) {
  const Compiled compiled = test::small_step();
  DiffGraph renamed = side(compiled, "b");
  for (DiffNode& node : renamed.nodes) {
    node.name = "n/" + node.name;
    for (std::string& name : node.onnx_nodes) name = "n/" + name;
  }
  const auto d = difference_of(side(compiled, "a"), renamed);
  ASSERT_TRUE(d.ok()) << d.error().message;
  EXPECT_TRUE(d->empty()) << shown(*d);
}

TEST(GraphDifference, OfOtherModelsIsAnErrorThatSaysSo) {
  const Compiled mine = test::small_step(), other = gpt("default");
  for (const auto& d :
       {difference_of(side(mine, "a"), side(other, "b")), difference_of(stored(mine, 1), stored(other, 2))}) {
    ASSERT_FALSE(d.ok());
    EXPECT_EQ(d.error().code, Errc::usage);
    EXPECT_NE(d.error().message.find("too different to be matched"), std::string::npos) << d.error().message;
  }
}

}  // namespace
}  // namespace gradloom
