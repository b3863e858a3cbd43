#include "viz/report/graph_picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/viz/small_step.h"

namespace gradloom {
namespace {

struct Element {
  std::string name, text;  // text: directly inside, entities as they are
  std::map<std::string, std::string> attributes;
};

// The elements in the order of their starts. Fails where it is no well-formed XML of elements and text.
std::vector<Element> elements(const std::string& xml) {
  std::vector<Element> list;
  std::vector<std::size_t> open;
  for (std::size_t at = 0; at < xml.size();) {
    if (xml[at] != '<') {
      if (xml[at] == '&') {
        EXPECT_LT(xml.find(';', at) - at, 7u) << xml.substr(at, 20);
      }
      if (!open.empty()) list[open.back()].text += xml[at];
      ++at;
      continue;
    }
    const std::size_t end = xml.find('>', at);
    std::string tag = xml.substr(at + 1, end - at - 1);
    at = end + 1;
    EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
    if (tag[0] == '/') {
      EXPECT_FALSE(open.empty());
      if (open.empty()) return list;
      EXPECT_EQ(tag.substr(1), list[open.back()].name);
      open.pop_back();
      continue;
    }
    const bool closed = tag.back() == '/';
    if (closed) tag.pop_back();
    Element element;
    element.name = tag.substr(0, tag.find(' '));
    for (std::size_t i = element.name.size(); i < tag.size() && tag.find("=\"", i) != std::string::npos;) {
      const std::size_t equals = tag.find("=\"", i), quote = tag.find('"', equals + 2);
      EXPECT_TRUE(element.attributes
                      .emplace(tag.substr(i + 1, equals - i - 1), tag.substr(equals + 2, quote - equals - 2))
                      .second);
      i = quote + 1;
    }
    if (!closed) open.push_back(list.size());
    list.push_back(std::move(element));
  }
  EXPECT_TRUE(open.empty());
  return list;
}

std::size_t count(const std::vector<Element>& all, const std::string& name, const std::string& classes) {
  return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [&](const Element& e) {
    const auto at = e.attributes.find("class");
    return e.name == name && at != e.attributes.end() && at->second == classes;
  }));
}

std::vector<Element> drawn(const std::shared_ptr<GraphModel>& model, std::size_t boxes,
                           const std::string& title = "m.onnx") {
  const auto scene = build_scene(model, model->default_collapsed(boxes));
  EXPECT_TRUE(scene.has_value());
  return elements(graph_picture(*scene, title));
}

TEST(GraphPicture, EveryBoxOfAnOpenGraphIsThere) {
  const Compiled step = test::small_step();
  const auto model = std::make_shared<GraphModel>(build_graph_model(step.train.graph, &step.plan));
  apply_times(*model, test::timed_rows(step));
  const std::vector<Element> all = drawn(model, 10'000);
  const auto inputs = static_cast<std::size_t>(std::count_if(
      model->boxes.begin(), model->boxes.end(), [](const GraphBox& b) { return b.node == kNone; }));
  EXPECT_EQ(count(all, "rect", "box"), model->boxes.size() - inputs);
  EXPECT_EQ(count(all, "rect", "box input"), inputs);
  EXPECT_EQ(count(all, "rect", "folded"), 0u);
  EXPECT_GT(count(all, "path", "edge"), 10u);
  std::string told, texts;
  for (const Element& e : all) {
    if (e.name == "title") told += e.text + "\n";
    if (e.name == "text") texts += e.text + "\n";
  }
  for (const GraphBox& box : model->boxes) EXPECT_NE(told.find(box.name), std::string::npos) << box.name;
  for (const char* word :
       {"MatMul", "Tanh", "Forward", "Backward", "Optimizer", "layers.0", "f32 8\u00d716", "m.onnx"})
    EXPECT_NE(texts.find(word), std::string::npos) << word;
  EXPECT_NE(told.find(" per step"), std::string::npos);
}

TEST(GraphPicture, FoldsWhatIsTooMuch) {
  const Compiled step = test::small_step();
  const auto model = std::make_shared<GraphModel>(build_graph_model(step.train.graph, &step.plan));
  const std::vector<Element> all = drawn(model, 4);
  EXPECT_GT(count(all, "rect", "folded"), 1u);
  EXPECT_LT(count(all, "rect", "box"), model->boxes.size());
}

// Boxes lie inside the picture; text begins inside its box.
TEST(GraphPicture, NothingIsOutside) {
  const Compiled step = test::small_step();
  const std::vector<Element> all =
      drawn(std::make_shared<GraphModel>(build_graph_model(step.train.graph, &step.plan)), 30);
  const double width = std::stod(all[0].attributes.at("width")),
               height = std::stod(all[0].attributes.at("height"));
  for (const Element& e : all) {
    if (e.name != "rect" || e.attributes.count("x") == 0) continue;
    EXPECT_GE(std::stod(e.attributes.at("x")), -1);
    EXPECT_LE(std::stod(e.attributes.at("x")) + std::stod(e.attributes.at("width")), width);
    EXPECT_LE(std::stod(e.attributes.at("y")) + std::stod(e.attributes.at("height")), height);
  }
}

TEST(GraphPicture, NamesFromFilesStayNames) {
  Compiled step = test::small_step();
  for (Node& node : step.train.graph.nodes)
    node.name = "<script>&\"'\n" + node.name + std::string(5000, 'x') + "\xff";
  for (SourceNode& source : step.train.graph.sources) source.scope = "<b>/" + source.scope + "]]>";
  const std::vector<Element> all =
      drawn(std::make_shared<GraphModel>(build_graph_model(step.train.graph, &step.plan)), 10'000, "<svg>&");
  for (const Element& e : all) EXPECT_TRUE(e.name != "script" && e.name != "b") << e.name;
  for (const Element& e : all) {
    if (e.name == "text") {
      EXPECT_LT(e.text.size(), 300u) << "it is cut to its box";
    }
  }
}

TEST(GraphPicture, OfNothing) {
  const auto model = std::make_shared<GraphModel>();
  EXPECT_EQ(drawn(model, 60).at(0).name, "svg");
}

}  // namespace
}  // namespace gradloom
