// plan and show: --graph, --find, --path, --neighbours: the graph view's data and its searches without a window.
#include "app/graph_report.h"

#include <set>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class GraphReport : public Commands {
 protected:
  json plan(const std::vector<std::string>& more) const {
    std::vector<std::string> words{"plan",   model("mlp/model.onnx"), "--dim",       "batch=8",
                                   "--loss", "ce:logits,labels",      "--optimizer", "adam",
                                   "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? o.lines().at(0)["graph"] : json();
  }
  std::string session() const {
    for (const char* passes : {"default", "none"}) {
      const Outcome made = run(train_mlp({"--steps", "8", "--session", path("s.db"), "--profile", "all",
                                          "--passes", passes, "--name", passes}));
      EXPECT_EQ(made.code, 0) << made.err;
    }
    return path("s.db");
  }
  json show(const std::vector<std::string>& more) const {
    std::vector<std::string> words{"show", path("s.db"), "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? o.lines().at(0)["graph"] : json();
  }
};

std::set<std::string> names_of(const json& graph) {
  std::set<std::string> names;
  for (const json& box : graph["boxes"]) names.insert(box["node"].get<std::string>());
  return names;
}

// Who reads whom, both ways.
std::map<std::string, std::set<std::string>> links_of(const json& graph) {
  std::map<std::string, std::set<std::string>> links;
  for (const json& box : graph["boxes"])
    for (const json& input : box["inputs"]) {
      links[box["node"]].insert(input.get<std::string>());
      links[input].insert(box["node"].get<std::string>());
    }
  return links;
}

TEST_F(GraphReport, ASearchFindsWhatTheWindowsDoes) {
  const json all = plan({"--graph"});
  ASSERT_GT(all["boxes"].size(), 10u);
  EXPECT_EQ(all["boxes"].size(), all["nodes"]);
  std::set<std::string> backward, either;
  for (const json& box : all["boxes"]) {
    const std::string phase = box["phase"], op = box["op"];
    if (phase == "backward" && box.value("flops", 0.0) > 1000) backward.insert(box["node"]);
    if (phase == "optimizer" || op.find("MatMul") != std::string::npos) either.insert(box["node"]);
  }
  ASSERT_FALSE(backward.empty());
  EXPECT_EQ(names_of(plan({"--find", "phase:bwd flops>1k"})), backward);
  EXPECT_EQ(names_of(plan({"--find", "phase:opt or op~\"^.*MatMul.*$\""})), either);
  EXPECT_EQ(plan({"--find", "no-such-thing"})["boxes"].size(), 0u);
  EXPECT_EQ(plan({"--find", "phase:bwd"})["nodes"], all["nodes"]);
}

TEST_F(GraphReport, NeighboursAreTheLinksOfTheNode) {
  const json all = plan({"--graph"});
  const auto links = links_of(all);
  const std::string node = all["boxes"].back()["node"];
  std::set<std::string> near = links.at(node), two = near;
  for (const std::string& other : near)
    for (const std::string& next : links.at(other)) two.insert(next);
  near.insert(node);
  two.insert(node);
  EXPECT_EQ(names_of(plan({"--neighbours", node})), near);
  const json around = plan({"--neighbours", node + ",2"});
  EXPECT_EQ(names_of(around), two);
  EXPECT_EQ(around["boxes"][0]["node"], node);
  for (const json& box : around["boxes"])
    EXPECT_EQ(box["distance"], box["node"] == node ? 0 : near.count(box["node"]) > 0 ? 1 : 2);
  EXPECT_EQ(names_of(plan({"--neighbours", node + ",1000"})).size(), all["boxes"].size())
      << "all hangs together";
}

TEST_F(GraphReport, AWayIsMadeOfLinks) {
  const json all = plan({"--graph"});
  const auto links = links_of(all);
  const std::string first = all["boxes"].front()["node"], last = all["boxes"].back()["node"];
  const json there = plan({"--path", first, last})["boxes"], back = plan({"--path", last, first})["boxes"];
  ASSERT_GT(there.size(), 2u);
  EXPECT_EQ(there, back) << "whichever leads to the other";
  EXPECT_EQ(there.front()["node"], first);
  EXPECT_EQ(there.back()["node"], last);
  for (std::size_t i = 1; i < there.size(); ++i) {
    EXPECT_EQ(there[i]["distance"], i);
    EXPECT_TRUE(links.at(there[i]["node"]).count(there[i - 1]["node"])) << i;
  }
}

TEST_F(GraphReport, OfARunItHasTimesAndChanges) {
  session();
  const json graph = show({"--run", "default", "--graph", "--against", "none"});
  const json shown = run({"show", path("s.db"), "--run", "default", "--json"}).lines().at(0);
  std::map<std::string, double> ns;
  for (const json& kernel : shown["kernels"]) ns[kernel["node"]] += kernel["step_ns"].get<double>();
  double sum = 0, share = 0, launches = 0, other = 0;
  for (const json& box : graph["boxes"]) {
    if (!box.contains("time_ns")) continue;
    EXPECT_EQ(box["time_ns"], ns.at(box["node"])) << box["node"];
    sum += box["time_ns"].get<double>();
    share += box["share"].get<double>();
    launches += box["launches"].get<double>();
    other += box["other_ns"].get<double>();
    const double flops = box["flops"];
    if (flops > 0) {
      EXPECT_NEAR(box["flops_per_second"], 1e9 * flops / box["time_ns"].get<double>(), 1e-6 * flops * 1e9);
    }
    EXPECT_TRUE(box.contains("workspace_bytes"));
  }
  EXPECT_EQ(graph["kernels_ns"], sum);
  EXPECT_NEAR(share, 1, 1e-9);
  EXPECT_EQ(launches, shown["kernels_per_step"].get<double>());
  EXPECT_EQ(graph["against"], "run 2");
  const json plain = run({"show", path("s.db"), "--run", "none", "--json"}).lines().at(0);
  double none = 0;
  for (const json& kernel : plain["kernels"]) none += kernel["step_ns"].get<double>();
  EXPECT_GT(other, 0.5 * none) << "what the other run took lies on boxes of this one";
  EXPECT_LT(other, 1.01 * none);
  const json slow = show({"--run", "default", "--find", "time>1ns"});
  EXPECT_EQ(slow["boxes"].size(), ns.size());
  const std::string text =
      run({"show", path("s.db"), "--run", "default", "--graph", "--against", "2", "--limit", "3"}).out;
  EXPECT_NE(text.find("against run 2"), std::string::npos) << text;
  EXPECT_NE(text.find("more (--limit N"), std::string::npos) << text;
}

TEST_F(GraphReport, AnotherProgramsRunHasItsKernels) {
  std::ofstream(path("t.json")) << R"({"traceEvents":[
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":0,"dur":100},
    {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":10,"dur":40,"args":{"External id":1}},
    {"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":60,"dur":20,"args":{"External id":2}}]})";
  ASSERT_EQ(run({"import", path("t.json"), "--session", path("s.db")}).code, 0);
  const json graph = show({"--find", "mm"});
  ASSERT_EQ(graph["boxes"].size(), 1u);
  EXPECT_EQ(graph["boxes"][0]["time_ns"], 40000);
  EXPECT_EQ(graph["kernels_ns"], 60000);
  expect_error({"show", path("s.db"), "--path", "mm", "add"}, 2, "no links");
  expect_error({"show", path("s.db"), "--neighbours", "mm"}, 2, "no links");
}

TEST_F(GraphReport, BadQuestionsAreOneLine) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& said) {
    std::vector<std::string> words{"plan",   model("mlp/model.onnx"), "--dim", "batch=8",
                                   "--loss", "ce:logits,labels"};
    words.insert(words.end(), more.begin(), more.end());
    expect_error(words, 2, said);
  };
  refused({"--find", "time>"}, "--find");
  refused({"--find", "(a"}, "--find");
  refused({"--path", "no-such", "x"}, "no node is named so");
  refused({"--path", "phase:bwd", "x"}, "nodes: ");
  refused({"--neighbours", "no-such"}, "no node is named so");
  refused({"--neighbours", "x,0"}, "1 to 1000");
  refused({"--find", "a", "--neighbours", "b"}, "one at a time");
  refused({"--dump", "--export-graph", path("g.onnx")}, "--dump and --export-graph are asked one at a time");
  refused({"--at", "start", "--dump", "--export-graph", path("g.onnx")}, "asked one at a time");
  refused({"--memory", "--find", "a"}, "--memory and --find are asked one at a time");
  refused({"--dump", "--log"}, "--dump and --log are asked one at a time");
  refused({"--memory", "--kernels"}, "--memory and --kernels are asked one at a time");
  refused({"--roofline", "--log", "--kernels"}, "--roofline and --log are asked one at a time");
  refused({"--at", "start", "--roofline"}, "--at goes with --dump, --export-graph or --kernels");
  EXPECT_FALSE(fs::exists(path("g.onnx")));
  refused({"--part", "forward"}, "--export-graph");
  session();
  expect_error({"show", path("s.db"), "--graph", "--curves", "loss"}, 2,
               "--curves and --graph are asked one at a time");
  expect_error({"show", path("s.db"), "--idle", "--roofline"}, 2, "asked one at a time");
  expect_error({"show", path("s.db"), "--limit", "0"}, 2, "--limit");
  expect_error({"show", path("s.db"), "--against", "1"}, 2, "--graph");
  expect_error({"show", path("s.db"), "--graph", "--against", "no-such"}, 3, "no-such");
}

}  // namespace
}  // namespace gradloom
