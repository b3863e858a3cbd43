#include "viz/report/model_explorer.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/viz/small_step.h"

namespace gradloom {
namespace {

using nlohmann::json;

std::map<std::string, std::string> attributes(const json& node) {
  std::map<std::string, std::string> made;
  for (const json& a : node["attrs"]) EXPECT_TRUE(made.emplace(a["key"], a["value"]).second) << a;
  return made;
}

// What the reader asks for: unique ids, edges between nodes that there are, texts everywhere.
std::map<std::string, json> checked_nodes(const json& collection) {
  EXPECT_TRUE(collection["label"].is_string());
  EXPECT_EQ(collection["graphs"].size(), 1u);
  EXPECT_TRUE(collection["graphs"][0]["id"].is_string());
  std::map<std::string, json> nodes;
  for (const json& node : collection["graphs"][0]["nodes"]) {
    EXPECT_TRUE(node["label"].is_string() && node["namespace"].is_string());
    EXPECT_TRUE(nodes.emplace(node["id"], node).second) << node["id"];
  }
  for (const auto& [id, node] : nodes)
    for (const json& edge : node["incomingEdges"]) {
      EXPECT_EQ(edge.size(), 3u);
      const auto from = nodes.find(edge["sourceNodeId"]);
      EXPECT_NE(from, nodes.end()) << edge;
      if (from != nodes.end()) {
        EXPECT_LT(std::stoul(edge["sourceNodeOutputId"].get<std::string>()),
                  from->second["outputsMetadata"].size());
      }
    }
  return nodes;
}

TEST(ModelExplorer, NodesEdgesAndProvenance) {
  const Compiled step = test::small_step("default");
  GraphModel model = build_graph_model(step.train.graph, &step.plan);
  apply_times(model, test::timed_rows(step));
  const json collection = json::parse(model_explorer_json(model, {{"model", "m.onnx"}}));
  const auto nodes = checked_nodes(collection);
  ASSERT_EQ(nodes.size(), model.boxes.size());
  std::size_t edges = 0, timed = 0;
  std::set<std::string> phases;
  for (const GraphBox& box : model.boxes) {
    const json& node = nodes.at(box.name);
    edges += node["incomingEdges"].size();
    const std::string space = node["namespace"];
    phases.insert(space.substr(0, space.find('/')));
    if (box.scope >= 0) {
      EXPECT_EQ(space.substr(space.find('/') + 1), model.scopes[static_cast<std::size_t>(box.scope)].path);
    }
    if (box.node == kNone) continue;
    EXPECT_EQ(node["label"], box.op);
    auto told = attributes(node);
    EXPECT_EQ(told["phase"], phase_name(box.phase));
    EXPECT_EQ(told["passes"], box.passes);
    for (const std::string& name : box.onnx_nodes)
      EXPECT_NE(told["ONNX nodes"].find(name), std::string::npos);
    if (box.plan_step < 0) continue;
    EXPECT_EQ(told["kernel"], box.kernel);
    EXPECT_EQ(std::stod(told["FLOPs"]), box.flops);
    EXPECT_EQ(std::stod(told["time per step (ns)"]), box.time_ns);
    ++timed;
  }
  EXPECT_EQ(edges, model.links.size());
  EXPECT_EQ(timed, step.plan.steps.size());
  EXPECT_EQ(phases, (std::set<std::string>{"forward", "backward", "optimizer"}));
  const json& groups = collection["graphs"][0]["groupNodeAttributes"];
  EXPECT_EQ(groups[""]["model"], "m.onnx");
  EXPECT_TRUE(groups.contains("forward/layers.0/linear"));
  EXPECT_TRUE(groups["forward/layers.0"].contains("time per step"));
}

TEST(ModelExplorer, ParametersAreNamedWhereTheyAreRead) {
  const Compiled step = test::small_step();
  const GraphModel model = build_graph_model(step.train.graph, &step.plan);
  const std::string text = model_explorer_json(model, {});
  bool found = false;
  for (const auto& [id, node] : checked_nodes(json::parse(text)))
    for (const json& input : node["inputsMetadata"])
      for (const json& a : input["attrs"])
        found = found || (a["key"] == "__tensor_tag" && a["value"] == "layers.0.weight");
  EXPECT_TRUE(found);
  EXPECT_EQ(text.find("time per step"), std::string::npos) << "nothing was measured";
}

TEST(ModelExplorer, HostileNames) {
  GraphModel model;
  model.name = "\xff";
  model.scopes.push_back({"x", "//a///b\"/", -1, 0});
  for (const char* name : {"same", "same", "\"\n\xc3(", ""}) {
    GraphBox box;
    box.node = 0;
    box.name = name;
    box.op = "Op\x01";
    box.scope = 0;
    box.outputs.push_back({"v", "f32[2]", "activation"});
    model.boxes.push_back(box);
  }
  model.boxes[3].inputs = {{"not there", "?", "activation", 0}, {"(omitted)", "", ""}};
  const auto nodes = checked_nodes(json::parse(model_explorer_json(model, {})));
  EXPECT_EQ(nodes.size(), 4u);
  EXPECT_EQ(nodes.at("same'")["namespace"], "forward/a/b\"");
  EXPECT_EQ(nodes.at("")["inputsMetadata"].size(), 0u);
}

}  // namespace
}  // namespace gradloom
