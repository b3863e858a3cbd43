// The registry, the text of pipelines, and what run_passes reports.
#include "passes/pass.h"

#include <gtest/gtest.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

std::vector<const PassDef*> default_passes() {
  std::vector<const PassDef*> passes;
  for (const PassDef* def : all_passes())
    if (is_default(*def)) passes.push_back(def);
  return passes;
}

TEST(Pipeline, DefaultHasInOrderWhatThePrecisionDoesNotSwitch) {
  const Pipeline pipeline = default_pipeline();
  const auto expected = default_passes();
  EXPECT_EQ(expected.size() + 8, all_passes().size())
      << "mixed-precision, tensor-parallel, zero, fp8, sync-batchnorm, adasum, drop-padding and gather-early";
  ASSERT_EQ(pipeline.passes.size(), expected.size());
  for (std::size_t i = 0; i < pipeline.passes.size(); ++i) EXPECT_EQ(pipeline.passes[i].def, expected[i]);
}

TEST(Pipeline, TextRoundTrips) {
  const char* const texts[] = {
      "none",
      "default",
      "default,-fuse-gelu",
      "fuse-elementwise{max_nodes=16,max_inputs=3},cse",
      "none,dead-code",
      "default,fuse-elementwise{max_nodes=8},-cse",
      "fuse-gelu{except=/blocks.0/gelu/Mul_5|a%2Cb%20%7Bc%7D%3D%25%3B%7C,only=/blocks.*}"};
  for (const char* text : texts) {
    auto first = parse_pipeline(text);
    ASSERT_OK(first);
    auto second = parse_pipeline(first->text());
    ASSERT_OK(second);
    EXPECT_EQ(first->text(), second->text()) << text;
    ASSERT_EQ(first->passes.size(), second->passes.size());
    for (std::size_t i = 0; i < first->passes.size(); ++i) {
      EXPECT_EQ(first->passes[i].options, second->passes[i].options);
      EXPECT_EQ(first->passes[i].sites, second->passes[i].sites);
    }
  }
  EXPECT_EQ(parse_pipeline("none")->text(), "none");
  EXPECT_EQ(parse_pipeline("")->text(), "none");
  EXPECT_EQ(parse_pipeline("fuse-gelu{except=a%2Cb}")->passes[0].sites.except, std::set<std::string>{"a,b"});
}

// A pass is made once, where its text is read: what runs and what is listed are that object.
TEST(Pipeline, OptionsAreReadOnce) {
  const auto pipeline = parse_pipeline("fuse-elementwise{max_nodes=9}");
  ASSERT_OK(pipeline);
  const auto value = [](const PassConfig& config, const std::string& name) {
    for (const FieldRow& row : list_fields([&](FieldVisitor& v) { config.pass->fields(v); }))
      if (row.name == name) return row.value;
    return std::string();
  };
  EXPECT_EQ(value(pipeline->passes[0], "max_nodes"), "9");
  const Pipeline copy = *pipeline;
  EXPECT_EQ(copy.passes[0].pass, pipeline->passes[0].pass);
  for (const PassConfig& config : default_pipeline().passes) EXPECT_NE(config.pass, nullptr);
  const auto bad = configure_pass(*find_pass("fuse-elementwise"), {{"max_node", "9"}});
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().message.rfind("pass fuse-elementwise has no option 'max_node'", 0), 0u);
}

TEST(Pipeline, MinusRemovesAndANameReplacesItsOptions) {
  const auto without = parse_pipeline("default,-fuse-gelu");
  ASSERT_OK(without);
  EXPECT_EQ(without->passes.size(), default_passes().size() - 1);
  const auto with = parse_pipeline("default,fuse-elementwise{max_nodes=9}");
  ASSERT_OK(with);
  EXPECT_EQ(with->passes.size(), default_passes().size());
  for (const PassConfig& config : with->passes) {
    EXPECT_EQ(config.options.size(), std::string(config.def->name) == "fuse-elementwise" ? 1u : 0u);
  }
}

TEST(Pipeline, ErrorsAreUsageErrorsThatNameTheNearest) {
  const auto unknown = parse_pipeline("fuse-gleu");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, Errc::usage);
  EXPECT_EQ(unknown.error().message, "unknown pass 'fuse-gleu'; did you mean fuse-gelu?");
  EXPECT_EQ(parse_pipeline("defaut").error().message, "unknown pass 'defaut'; did you mean default?");
  EXPECT_EQ(parse_pipeline("nome,cse").error().message, "unknown pass 'nome'; did you mean none?");
  for (const char* text :
       {"fuse-elementwise{max_node=3}", "fuse-elementwise{max_nodes=many}", "fuse-elementwise{max_nodes=1}",
        "cse,,cse", "default,-nothing", "cse{", "fuse-gelu{except=%2}"}) {
    const auto bad = parse_pipeline(text);
    ASSERT_FALSE(bad.ok()) << text;
    EXPECT_EQ(bad.error().code, Errc::usage) << text;
  }
}

TEST(Passes, DeclarationsAreComplete) {
  std::set<std::string> names;
  for (const PassDef* def : all_passes()) {
    EXPECT_TRUE(names.insert(def->name).second) << def->name;
    EXPECT_GT(std::string(def->summary).size(), 10u) << def->name;
    EXPECT_GT(std::string(def->doc).size(), 80u) << def->name;
    EXPECT_EQ(find_pass(def->name), def);
    const auto pass = def->make();
    for (const FieldRow& row : list_fields([&](FieldVisitor& v) { pass->fields(v); })) {
      EXPECT_FALSE(row.help.empty()) << def->name << " " << row.name;
      EXPECT_LT(row.min, row.max) << def->name << " " << row.name;
    }
    if (def->gives_way_to == nullptr) continue;
    const PassDef* const other = find_pass(def->gives_way_to);
    ASSERT_NE(other, nullptr) << def->name << " gives way to " << def->gives_way_to << ", which is no pass";
    const auto runs_before_gradient = [](const PassDef& of) { return of.phase != PassPhase::post_gradient; };
    EXPECT_TRUE(runs_before_gradient(*def) && runs_before_gradient(*other)) << def->name;
    EXPECT_EQ(other->gives_way_to, nullptr) << def->name << ": two that give way would both go";
  }
  EXPECT_EQ(find_pass("no-such-pass"), nullptr);
}

TEST(RunPasses, ReportsEachPassOfThePhase) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4}});
  graph.outputs = {b.op("Exp", {b.op("Identity", {x})})};
  std::vector<PassReport> reports;
  const auto pipeline = parse_pipeline("eliminate-noops,fuse-optimizer");
  ASSERT_OK(pipeline);
  ASSERT_OK(run_passes(graph, *pipeline, PassPhase::pre_gradient, reports));
  ASSERT_EQ(reports.size(), 1u);  // fuse-optimizer comes after the gradient
  EXPECT_EQ(reports[0].name, "eliminate-noops");
  EXPECT_EQ(reports[0].at, PassPhase::pre_gradient);
  EXPECT_EQ(reports[0].matched, 1);
  EXPECT_EQ(reports[0].nodes_before, 2u);
  EXPECT_EQ(reports[0].nodes_after, 1u);
  EXPECT_EQ(reports[0].log[0].removed, std::vector<std::string>{"Identity"});
  ASSERT_OK(run_passes(graph, *pipeline, PassPhase::post_gradient, reports));
  EXPECT_EQ(reports.size(), 3u);
}

// A Concat of all slices between views: the views meet once it is gone.
Graph slices_between_views() {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {2, 4}});
  const ValueId flat = b.op("Reshape", {x, b.i64s({8})});
  const auto slice = [&](std::int64_t begin, std::int64_t end) {
    return b.op("Slice", {flat, b.i64s({begin}), b.i64s({end}), b.i64s({0})});
  };
  const ValueId again = b.op("Concat", {slice(0, 3), slice(3, 8)}, {{"axis", std::int64_t{0}}});
  graph.outputs = {b.op("Exp", {b.op("Reshape", {again, b.i64s({2, 4})})})};
  return graph;
}

std::vector<std::string> pass_names(const std::vector<PassReport>& reports) {
  std::vector<std::string> names;
  for (const PassReport& report : reports) names.push_back(report.name);
  return names;
}

TEST(RunPasses, PassesThatCleanRunAgainAfterWhatOthersLeft) {
  Graph graph = slices_between_views();
  std::vector<PassReport> reports;
  const auto pipeline = parse_pipeline("eliminate-noops,simplify-slices,cse");
  ASSERT_OK(pipeline);
  ASSERT_OK(run_passes(graph, *pipeline, PassPhase::pre_gradient, reports));
  // Runs that found nothing again tell nothing.
  EXPECT_EQ(pass_names(reports),
            (std::vector<std::string>{"eliminate-noops", "simplify-slices", "cse", "eliminate-noops"}));
  EXPECT_EQ(reports[3].matched, 1);
  EXPECT_EQ(live_node_count(graph), 1u);
  EXPECT_EQ(reports[3].nodes_after, 1u);
}

TEST(RunPasses, AnotherPassBetweenThemKeepsThemApart) {
  Graph graph = slices_between_views();
  std::vector<PassReport> reports;
  const auto pipeline = parse_pipeline("eliminate-noops,fuse-gelu,simplify-slices");
  ASSERT_OK(pipeline);
  ASSERT_OK(run_passes(graph, *pipeline, PassPhase::pre_gradient, reports));
  EXPECT_EQ(reports.size(), 3u);
  EXPECT_EQ(live_node_count(graph), 3u);
}

TEST(RunPasses, WhatIsSwitchedOffStaysOffWhenAPassRunsAgain) {
  Graph graph = slices_between_views();
  std::vector<PassReport> reports;
  const auto pipeline = parse_pipeline("eliminate-noops{except=Reshape_1},simplify-slices");
  ASSERT_OK(pipeline);
  std::string last;
  for (const Node& node : graph.nodes)
    if (is_op(node, "Reshape")) last = node.name;
  ASSERT_EQ(last, "Reshape_1");
  ASSERT_OK(run_passes(graph, *pipeline, PassPhase::pre_gradient, reports));
  EXPECT_EQ(reports.size(), 2u);
  EXPECT_EQ(live_node_count(graph), 3u);
}

TEST(RunPasses, ASiteSwitchedOffIsRejectedWithThatReason) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4}});
  graph.outputs = {b.op("Exp", {b.op("Identity", {x})})};
  std::vector<PassReport> reports;
  const auto pipeline = parse_pipeline("eliminate-noops{except=Identity}");
  ASSERT_OK(pipeline);
  ASSERT_OK(run_passes(graph, *pipeline, PassPhase::pre_gradient, reports));
  EXPECT_EQ(reports[0].matched, 0);
  EXPECT_EQ(reports[0].rejected, 1);
  EXPECT_NE(reports[0].log[0].why.find("switched off"), std::string::npos);
}

}  // namespace
}  // namespace gradloom
