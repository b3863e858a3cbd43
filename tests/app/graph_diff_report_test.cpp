// plan --diff, plan --at and compare --graph.
#include "app/graph_diff_report.h"

#include <gtest/gtest.h>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class GraphDiffCommands : public Commands {
 protected:
  std::vector<std::string> plan(const std::vector<std::string>& more) {
    std::vector<std::string> args{
        "plan", model("gpt-char/model.onnx"), "--dim", "batch=4", "--loss", "ce:logits,labels"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
};

TEST_F(GraphDiffCommands, PlanTellsWhatOtherPassesWouldDo) {
  const Outcome text = run(plan({"--diff", "passes=default,-fuse-gelu"}));
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("4 regions differ"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("- fuse-gelu"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("change"), std::string::npos) << "no times are known: " << text.out;
  const Outcome as_json = run(plan({"--diff", "passes=default,-fuse-gelu", "--json"}));
  ASSERT_EQ(as_json.code, 0) << as_json.err;
  const Json diff = Json::parse(as_json.out)["graph_diff"];
  ASSERT_EQ(diff["regions"].size(), 4u);
  for (const auto& region : diff["regions"]) {
    EXPECT_EQ(region["a_passes"], Json::array({"fuse-gelu"}));
    EXPECT_TRUE(region["a"]["time_ns"].is_null());
    EXPECT_GT(region["a"]["bytes"].get<double>(), 0);
  }
  const Outcome same = run(plan({"--diff", "passes=default"}));
  EXPECT_NE(same.out.find("the graphs are the same"), std::string::npos) << same.out;
}

TEST_F(GraphDiffCommands, AnotherModelIsAnErrorInOneLine) {
  const Outcome other = run(plan({"--diff", "model=" + model("mlp/model.onnx")}));
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("too different to be matched"), std::string::npos) << other.err;
  EXPECT_EQ(run(plan({"--diff", "passes=fuse-gel"})).code, 2);
  EXPECT_EQ(run(plan({"--diff", "nonsense"})).code, 2);
}

// What each match saves, and on a processor how long that takes.
TEST_F(GraphDiffCommands, PlanTellsWhatMatchesSave) {
  const Outcome as_json = run(plan({"--log", "--on", "h200", "--json"}));
  ASSERT_EQ(as_json.code, 0) << as_json.err;
  int gelus = 0;
  const Json told = Json::parse(as_json.out);
  for (const Json& pass : told["passes"])
    for (const Json& match : pass["log"]) {
      EXPECT_TRUE(match["matched"].get<bool>() || !match.contains("saves")) << match.dump();
      if (pass["pass"] != "fuse-gelu" || !match["matched"]) continue;
      ++gelus;
      EXPECT_EQ(match["saves"]["kernels"], 8) << match.dump();
      EXPECT_GT(match["saves"]["bytes"], 0);
      EXPECT_GT(match["saves"]["predicted_ns"], 0);
    }
  EXPECT_GT(gelus, 0);
  const Outcome text = run(plan({"--log", "--on", "h200"}));
  EXPECT_NE(text.out.find("; 8 kernels"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(" less, about "), std::string::npos) << text.out;
  EXPECT_EQ(run(plan({"--log", "--on", "no-such"})).code, 2);
}

TEST_F(GraphDiffCommands, PlanShowsTheGraphAtAPass) {
  const Outcome at = run(plan({"--at", "fuse-gelu:/blocks.1/gelu/Mul_5", "--json", "--kernels"}));
  ASSERT_EQ(at.code, 0) << at.err;
  const Json told = Json::parse(at.out);
  EXPECT_EQ(told["stage"]["site"], "/blocks.1/gelu/Mul_5");
  EXPECT_EQ(told["stage"]["removed"].size(), 9u);
  EXPECT_EQ(told["kernels"].size(), told["kernels_per_step"].get<std::size_t>());
  const Outcome before = run(plan({"--at", "start", "--dump"})),
                after = run(plan({"--at", "fuse-gelu", "--dump"}));
  EXPECT_EQ(before.out.find("GeluTanh"), std::string::npos);
  EXPECT_NE(after.out.find("GeluTanh"), std::string::npos);
  EXPECT_EQ(after.out.find("GeluTanhGrad"), std::string::npos) << "autodiff comes later";
  const Outcome wrote = run(plan({"--at", "fuse-gelu", "--export-graph", path("g.onnx")}));
  EXPECT_EQ(wrote.code, 0) << wrote.err;
  EXPECT_TRUE(fs::exists(path("g.onnx")));
  EXPECT_EQ(run(plan({"--at", "fuse-gelu", "--export-graph", path("s.onnx"), "--part", "step"})).code, 2);
  EXPECT_EQ(run(plan({"--at", "fuse-gelu", "--log"})).code, 2);
  EXPECT_EQ(run(plan({"--at", "fuse-gel"})).code, 2);
}

TEST_F(GraphDiffCommands, CompareTellsTheRegionsOfRecordedRuns) {
  const std::string session = path("s.db");
  for (const char* passes : {"default", "none"}) {
    const Outcome made = run(train_mlp({"--steps", "12", "--session", session, "--passes", passes}));
    ASSERT_EQ(made.code, 0) << made.err;
  }
  const Outcome text = run({"compare", "1", "2", "--stored", "--graph", "--session", session});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("kernels of A -> of B"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("times measured"), std::string::npos) << text.out;
  const Outcome same = run({"compare", "1", "1", "--stored", "--graph", "--session", session});
  EXPECT_NE(same.out.find("the graphs are the same"), std::string::npos) << same.out;
  EXPECT_EQ(run({"compare", "1", "2", "--graph", "--session", session}).code, 2);
}

}  // namespace
}  // namespace gradloom
