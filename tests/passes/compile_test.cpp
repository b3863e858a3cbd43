#include "passes/compile.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

// loss = mean((relu(x w + b) - t)^2)
Graph regression() {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4, 3}}), t = b.input("t", {DType::f32, {4, 2}});
  const ValueId w = b.parameter("w", Tensor::from_f64(DType::f32, {3, 2}, {1, 2, 3, 4, 5, 6})),
                bias = b.parameter("b", Tensor(DType::f32, {2}));
  const ValueId y = b.op("Relu", {b.op("Add", {b.op("MatMul", {x, w}), bias})});
  const ValueId loss =
      b.op("ReduceMean", {b.op("Square", {b.op("Sub", {y, t})})}, {{"keepdims", std::int64_t{0}}});
  graph.values[loss].name = "loss";
  graph.values[y].name = "prediction";
  graph.outputs = {loss, y};
  return graph;
}

CompileOptions training(const char* passes) {
  CompileOptions options;
  options.train.loss = "loss";
  options.train.optimizer = *parse_optimizer("adamw");
  options.train.clip_norm = 1;
  options.pipeline = *parse_pipeline(passes);
  return options;
}

TEST(Compile, NamesFollowThePasses) {
  for (const char* passes : {"none", "default"}) {
    const auto compiled = compile(regression(), training(passes));
    ASSERT_OK(compiled);
    const Graph& graph = compiled->train.graph;
    const StepNames& names = compiled->train.names;
    ASSERT_OK(verify(graph));
    ASSERT_OK(check_plan(graph, compiled->plan));
    for (ValueId id : {names.loss, names.grad_norm}) {
      ASSERT_NE(id, kNone);
      EXPECT_NE(graph.values[id].producer, kNone);
      EXPECT_TRUE(graph.nodes[graph.values[id].producer].alive());
      EXPECT_EQ(graph.type(id).shape, Shape{});
    }
    EXPECT_EQ(graph.values[names.loss].name, "loss");
    EXPECT_EQ(compiled->reports.empty(), std::string(passes) == "none");
  }
}

TEST(Compile, PassesMakeFewerNodesAndNoneChangesNothing) {
  const auto none = compile(regression(), training("none")), all = compile(regression(), training("default"));
  ASSERT_OK(none);
  ASSERT_OK(all);
  EXPECT_EQ(live_node_count(none->train.graph), none->nodes_before_passes);
  EXPECT_LT(live_node_count(all->train.graph), none->nodes_before_passes);
}

TEST(Compile, PlannersKeepTheirOrderOfSize) {
  std::map<std::string, std::int64_t> bytes;
  for (const char* planner : {"none", "reuse", "best-fit"}) {
    CompileOptions options = training("default");
    options.planner = planner;
    const auto compiled = compile(regression(), options);
    ASSERT_OK(compiled);
    EXPECT_EQ(compiled->plan.planner, planner);
    ASSERT_OK(check_plan(compiled->train.graph, compiled->plan));
    bytes[planner] = compiled->plan.arena_bytes;
    EXPECT_GE(compiled->plan.arena_bytes, compiled->plan.lower_bound_bytes);
  }
  EXPECT_LE(bytes["best-fit"], bytes["reuse"]);
  EXPECT_LE(bytes["reuse"], bytes["none"]);
}

TEST(Compile, GradientsOnlyGivesEveryParameterAndFloatInput) {
  CompileOptions options;
  options.gradients_only = true;
  options.pipeline = default_pipeline();
  const auto compiled = compile(regression(), options);
  ASSERT_OK(compiled);
  std::map<std::string, Shape> shapes;
  for (const auto& [name, id] : compiled->gradients) shapes[name] = compiled->train.graph.type(id).shape;
  EXPECT_EQ(shapes, (std::map<std::string, Shape>{{"w", {3, 2}}, {"b", {2}}, {"x", {4, 3}}, {"t", {4, 2}}}));
  EXPECT_TRUE(compiled->train.graph.updates.empty());
  EXPECT_EQ(compiled->train.graph.values[compiled->train.graph.outputs[1]].name, "prediction");
}

TEST(Compile, ErrorsNameTheirObject) {
  CompileOptions options = training("default");
  options.planner = "worst-fit";
  const auto planner = compile(regression(), options);
  ASSERT_FALSE(planner.ok());
  EXPECT_EQ(planner.error().code, Errc::usage);
  EXPECT_NE(planner.error().message.find("worst-fit"), std::string::npos);

  options = {};
  options.gradients_only = true;
  options.loss_for_gradients = "nothing";
  const auto loss = compile(regression(), options);
  ASSERT_FALSE(loss.ok());
  EXPECT_NE(loss.error().message.find("nothing"), std::string::npos);
}

TEST(Compile, StopsWhenAsked) {
  std::stop_source stop;
  stop.request_stop();
  const auto compiled = compile(regression(), training("default"), stop.get_token());
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code, Errc::interrupted);
}

// What is switched off or frozen by name was meant for something: names that fit nothing are errors with the
// nearest that exists.
TEST(Compile, SwitchedOffSitesExist) {
  CompileOptions options = training("fuse-elementwise");
  const auto plain = compile(regression(), options);
  ASSERT_OK(plain);
  std::string site;
  for (const PassReport& report : plain->reports)
    for (const RewriteRecord& record : report.log)
      if (record.matched) site = record.site;
  ASSERT_NE(site, "");
  std::set<std::string>& off = options.pipeline.passes[0].sites.except;
  off = {site};
  const auto without = compile(regression(), options);
  ASSERT_OK(without);
  EXPECT_TRUE(without->notes.empty()) << without->notes[0];
  off = {site + "x"};
  const auto unknown = compile(regression(), options);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, Errc::usage);
  EXPECT_EQ(unknown.error().message,
            "pass fuse-elementwise has no site '" + site + "x' to switch off; did you mean " + site + "?");
  // A node that this pass does not look at may be a site on another device: recipes keep working.
  off = {plain->forward.nodes[0].name};
  const auto elsewhere = compile(regression(), options);
  ASSERT_OK(elsewhere);
  ASSERT_EQ(elsewhere->notes.size(), 1u);
  EXPECT_NE(elsewhere->notes[0].find("has nothing to switch off at"), std::string::npos);
}

// Instances by fingerprint, by glob, and all but some; the same for a pass that is for another device.
TEST(Compile, InstancesAreChosenByFingerprintAndGlob) {
  CompileOptions options = training("fuse-elementwise");
  const auto matches = [](const Compiled& compiled) {
    std::vector<RewriteRecord> matched;
    for (const PassReport& report : compiled.reports)
      for (const RewriteRecord& record : report.log)
        if (record.matched) matched.push_back(record);
    return matched;
  };
  const auto plain = compile(regression(), options);
  ASSERT_OK(plain);
  const std::vector<RewriteRecord> all = matches(*plain);
  ASSERT_GE(all.size(), 2u);
  InstanceChoice& sites = options.pipeline.passes[0].sites;
  for (const std::string& entry : {all[0].fingerprint, all[0].site}) {
    sites = {{}, {entry}};
    const auto alone = compile(regression(), options);
    ASSERT_OK(alone);
    ASSERT_EQ(matches(*alone).size(), 1u) << entry;
    EXPECT_EQ(matches(*alone)[0].fingerprint, all[0].fingerprint);
    sites = {{entry}};
    const auto others = compile(regression(), options);
    ASSERT_OK(others);
    EXPECT_EQ(matches(*others).size(), all.size() - 1) << entry;
  }
  sites = {{"*"}};
  const auto none = compile(regression(), options);
  ASSERT_OK(none);
  EXPECT_TRUE(matches(*none).empty());
  for (const std::string entry : {"@000000000000", "nothing*"}) {
    sites = {{}, {entry}};
    const auto unknown = compile(regression(), options);
    ASSERT_FALSE(unknown.ok()) << entry;
    EXPECT_EQ(unknown.error().code, Errc::usage);
    EXPECT_NE(unknown.error().message.find("has no site '" + entry + "' to leave on; did you mean"),
              std::string::npos)
        << unknown.error().message;
  }
  options = training("block-channels");
  options.target = kernels::Target::gpu;
  options.pipeline.passes[0].sites = {{"nosuchnode"}};
  const auto elsewhere = compile(regression(), options);
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_NE(elsewhere.error().message.find("has no site 'nosuchnode'"), std::string::npos);
}

TEST(Compile, GlobsOfParametersFitSome) {
  CompileOptions options = training("default");
  options.train.freeze = {"wx*"};
  const auto frozen = compile(regression(), options);
  ASSERT_FALSE(frozen.ok());
  EXPECT_EQ(frozen.error().code, Errc::usage);
  EXPECT_EQ(frozen.error().message, "--freeze 'wx*' fits no parameter; the nearest is 'w'");
  options.train.freeze = {"w*"};
  ASSERT_OK(compile(regression(), options));
  options.train.freeze = {};
  options.train.train = {"wx"};
  const auto trained = compile(regression(), options);
  ASSERT_FALSE(trained.ok());
  EXPECT_EQ(trained.error().code, Errc::usage);
  EXPECT_EQ(trained.error().message, "--train 'wx' fits nothing that can be trained; the nearest is 'w'");
  options.train.train = {};
  for (const char* group : {"wx*{lr_factor=2}", "wx*{freeze=on}"}) {
    options.train.groups = {*parse_group("w*{weight_decay=0}"), *parse_group(group)};
    const auto grouped = compile(regression(), options);
    ASSERT_FALSE(grouped.ok());
    EXPECT_EQ(grouped.error().code, Errc::usage);
    EXPECT_EQ(grouped.error().message, "--group 'wx*' fits no parameter; the nearest is 'w'");
  }
}

// Nothing walks a graph by calling itself: on a small stack a chain of 12,000 nodes, forward and backward, would end it.
TEST(Compile, LongChainsNeedNoStack) {
  Graph graph;
  GraphBuilder b(graph);
  ValueId at =
      b.op("MatMul", {b.input("x", {DType::f32, {2, 3}}), b.parameter("w", Tensor(DType::f32, {3, 4}))});
  for (int i = 0; i < 4000; ++i) {
    at = b.op("Reshape", {at, b.i64s({4, 2})});
    at = b.op("Tanh", {b.op("Reshape", {at, b.i64s({2, 4})})});
  }
  at = b.op("ReduceMean", {at}, {{"keepdims", std::int64_t{0}}});
  graph.values[at].name = "loss";
  graph.outputs = {at};
  constexpr std::size_t kStackBytes = 512 << 10;
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread{};
  const auto run = [](void* chain) -> void* {
    for (const char* passes : {"none", "default"}) {
      const auto compiled = compile(*static_cast<Graph*>(chain), training(passes));
      EXPECT_TRUE(compiled.ok() && check_plan(compiled->train.graph, compiled->plan).ok()) << passes;
    }
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &graph), 0);
  EXPECT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

}  // namespace
}  // namespace gradloom
