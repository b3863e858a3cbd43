// show --tree of runs that were really made: the tree has every kernel's time, and text and JSON tell the same.
#include <cmath>
#include <map>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class ShowTree : public Commands {
 protected:
  void SetUp() override {
    const Outcome made =
        run({"train", model("bert-tiny") + "/model.onnx", "--dim", "batch=2", "--loss", "ce:logits,labels",
             "--optimizer", "adamw", "--steps", "8", "--profile", "all", "--session", session_});
    ASSERT_EQ(made.code, 0) << made.err;
  }
  json tree(std::vector<std::string> more) const {
    more.insert(more.begin(), {"show", session_, "--json", "--tree"});
    const Outcome o = run(more);
    EXPECT_EQ(o.code, 0) << o.err;
    const std::vector<json> lines = o.lines();
    EXPECT_EQ(lines.size(), 1u);
    return lines.empty() ? json() : lines.front();
  }
  static const json* child(const json& node, const std::string& name) {
    if (node.contains("children"))
      for (const json& c : node["children"])
        if (c["name"] == name) return &c;
    return nullptr;
  }
  // Sums hold in every node; the plan steps below it are added to `steps`.
  static void expect_sums(const json& node, std::map<int, int>& steps) {
    double parts = 0;
    for (const char* part :
         {"forward_ns", "loss_ns", "backward_ns", "optimizer_ns", "exchange_ns", "other_ns"})
      parts += node[part].get<double>();
    EXPECT_NEAR(parts, node["total_ns"].get<double>(), 1e-3) << node["name"];
    EXPECT_LE(node["low_ns"], node["median_ns"]) << node["name"];
    EXPECT_LE(node["median_ns"], node["high_ns"]) << node["name"];
    if (node.contains("plan_steps"))
      for (const json& step : node["plan_steps"]) ++steps[step.get<int>()];
    if (!node.contains("children")) return;
    double below = 0;
    for (const json& c : node["children"]) {
      below += c["total_ns"].get<double>();
      expect_sums(c, steps);
    }
    EXPECT_NEAR(below, node["total_ns"].get<double>(), 1e-3) << node["name"];
  }
  const std::string session_ = path("s.db");
};

TEST_F(ShowTree, EveryGroupingHasEveryKernelOnce) {
  const json all = run({"show", session_, "--json"}).lines().front();
  double kernels_ns = 0;
  for (const json& k : all["kernels"]) kernels_ns += k["median_ns"].get<double>();
  ASSERT_GT(kernels_ns, 0);
  for (const char* by : {"scope", "phase", "node", "pass", "op"})
    for (const bool fold : {true, false}) {
      SCOPED_TRACE(by);
      const json found = tree(fold ? std::vector<std::string>{by} : std::vector<std::string>{by, "--unfold"});
      EXPECT_EQ(found["tree"], by);
      EXPECT_EQ(found["folded"], fold);
      EXPECT_EQ(found["timed_steps"], 5);  // without the first three
      const json& step = found["step"];
      EXPECT_EQ(step["total_ns"], kernels_ns);
      EXPECT_EQ(step["launches"], all["kernels"].size());
      std::map<int, int> steps;
      expect_sums(step, steps);
      EXPECT_EQ(steps.size(), all["kernels"].size());
      for (const auto& [at, times] : steps) EXPECT_EQ(times, 1) << at;
    }
}

TEST_F(ShowTree, LayersAreFoldedAndUnfoldedOnRequest) {
  const json folded = tree({"scope"})["step"], open = tree({"scope", "--unfold"})["step"];
  const json* layers = child(folded, "2 x layers.*");
  const json *first = child(open, "layers.0"), *second = child(open, "layers.1");
  ASSERT_TRUE(layers && first && second);
  const double a = (*first)["total_ns"], b = (*second)["total_ns"];
  EXPECT_NEAR((*layers)["total_ns"].get<double>(), a + b, 1e-3);
  EXPECT_EQ((*layers)["repeats"], 2);
  EXPECT_NEAR((*layers)["each_ns"].get<double>(), (a + b) / 2, 1e-3);
  EXPECT_EQ((*layers)["most_ns"], std::max(a, b));
  EXPECT_EQ((*layers)["longest"], a > b ? "layers.0" : "layers.1");
  EXPECT_TRUE(child(*layers, "query"));
  EXPECT_EQ(child(open, "2 x layers.*"), nullptr);
  EXPECT_TRUE(child(tree({"node"})["step"], "Transpose + MatMul + Add"));
}

TEST_F(ShowTree, TextIsAlignedAndTellsWhatItLeavesOut) {
  const Outcome o = run({"show", session_, "--tree", "scope", "--limit", "6"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::vector<std::string> lines;
  std::istringstream in(o.out);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_GT(lines.size(), 8u);
  EXPECT_EQ(lines[0].rfind("run 1: ", 0), 0u) << lines[0];
  const std::size_t end = lines[2].find("total") + 5;  // the header's right edge is that of the numbers
  std::size_t nodes = 0;
  for (std::size_t i = 3; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i][end], ' ') << lines[i];
    EXPECT_EQ(lines[i][end - 1], 's') << lines[i];  // of ms, us, ns
    nodes += lines[i].find(" more)") == std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(nodes, 6u);
  EXPECT_NE(o.out.find("\n  2 x layers.* "), std::string::npos) << o.out;
  EXPECT_NE(o.out.find(" more)"), std::string::npos) << o.out;
  const Outcome flat = run({"show", session_, "--tree", "phase", "--depth", "1"});
  EXPECT_NE(flat.out.find("\n  backward "), std::string::npos) << flat.out;
  EXPECT_EQ(flat.out.find("\n    "), std::string::npos) << flat.out;
  for (const json& c : tree({"phase", "--depth", "1"})["step"]["children"])
    EXPECT_FALSE(c.contains("children"));
}

TEST_F(ShowTree, TheSessionNamesTheRun) {
  EXPECT_EQ(run({"train", model("mlp") + "/model.onnx", "--dim", "batch=2", "--loss", "loss", "--steps", "1",
                 "--profile", "step", "--session", session_})
                .code,
            0);
  const Outcome untimed = run({"show", session_ + "#2", "--tree", "scope"});
  EXPECT_EQ(untimed.code, 0) << untimed.err;
  EXPECT_NE(untimed.out.find("no kernel timings were recorded"), std::string::npos) << untimed.out;
  const Outcome names = run({"show", session_ + "#2", "--limit", "1"});
  EXPECT_NE(names.out.find("no kernel timings were recorded"), std::string::npos) << names.out;
  EXPECT_EQ(names.out.find("0.00 ns"), std::string::npos)
      << "what was not measured took no time: " << names.out;
  EXPECT_NE(names.out.find(" more (--limit N shows them)"), std::string::npos) << names.out;
  EXPECT_EQ(run({"show", session_ + "#1", "--json"}).lines().front()["run_id"], 1);
  expect_error({"show", session_ + "#7"}, 3, "no run 7");
  expect_error({"show", session_ + "#1", "--run", "2"}, 2, "--run");
  expect_error({"show", session_, "--tree", "colour"}, 2, "--tree");
  expect_error({"show", session_, "--depth", "2"}, 2, "--tree");
  expect_error({"show", session_, "--tree", "op", "--depth", "-2"}, 2, "--depth");
}

}  // namespace
}  // namespace gradloom
