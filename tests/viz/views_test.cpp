// The views on a real step, drawn headless and driven by scripts.
#include <gtest/gtest.h>
#include <imgui.h>

#include <cmath>
#include <set>

#include "tests/viz/small_step.h"
#include "viz/draw/curve_view.h"
#include "viz/draw/drawn_text.h"
#include "viz/draw/graph_canvas.h"
#include "viz/draw/items.h"
#include "viz/draw/platform.h"
#include "viz/draw/script.h"
#include "viz/draw/views.h"

namespace gradloom {
namespace {

class Views : public ::testing::Test {
 protected:
  void SetUp() override {
    HostOptions options;
    options.headless = true;
    options.width = 1200;
    options.height = 800;
    auto host = Host::create(options);
    if (!host.ok()) GTEST_SKIP() << host.error().message;
    host_ = std::move(host).value();
    auto model = std::make_shared<GraphModel>(build_graph_model(step_.train.graph, &step_.plan));
    apply_times(*model, test::timed_rows(step_));
    model_ = model;
    kernels_.set_rows(test::timed_rows(step_));
    host_->set_busy([this] { return canvas_.busy(); });
  }

  Status run(const std::string& view, const std::string& text) {
    auto commands = parse_script(text);
    if (!commands.ok()) return commands.error();
    ScriptRunner runner(std::move(commands).value(), 2);
    return host_->run(
        [&] {
          ImGui::SetNextWindowPos({0, 0});
          ImGui::SetNextWindowSize(ImGui::GetIO().DisplaySize);
          ImGui::Begin("main", nullptr, ImGuiWindowFlags_NoDecoration);
          Actions now;
          draw(view, now);
          if (now.pipeline) pipeline_ = *now.pipeline;
          if (!now.go_to_node.empty()) gone_to_ = now.go_to_node;
          if (now.select_row) selected_row_ = *now.select_row;
          if (!now.hover_node.empty()) hovered_ = now.hover_node;
          ImGui::End();
        },
        &runner);
  }

  void draw(const std::string& view, Actions& actions) {
    if (view == "graph") {
      draw_graph_toolbar(canvas_, actions, false);
      draw_graph_canvas(model_, canvas_, actions);
      graph_keys(canvas_, actions);
      ImGui::SetNextWindowPos({900, 60});
      ImGui::SetNextWindowSize({280, 700});
      ImGui::Begin("node");
      draw_node_panel(canvas_, actions);
      ImGui::End();
    } else if (view == "kernels") {
      draw_kernel_table(kernels_, kernel_state_, actions);
    } else if (view == "memory") {
      draw_memory_view(memory_, memory_state_, actions);
    } else if (view == "passes") {
      draw_pass_panel(build_pass_model(pipeline_, step_.reports), pipeline_, "", false, pass_state_, actions);
    } else {
      draw_curves({{"a", 1, {1, 2, 3}, {3, 2, std::nan("")}, {}}, {"b", 2, {1, 2}, {2, 1}, {2, 1.5}}},
                  CurveOf::kLoss, "", 0, curves_, 200);
      draw_compare_view(comparison_, nullptr, nullptr, compare_state_, actions);
    }
  }

  Compiled step_ = test::small_step("default");
  Pipeline pipeline_ = *parse_pipeline("default");
  std::shared_ptr<const GraphModel> model_;
  KernelTableModel kernels_;
  MemoryModel memory_ = build_memory_model(step_.train.graph, step_.plan);
  Comparison comparison_;
  GraphCanvasState canvas_;
  KernelTableState kernel_state_;
  MemoryViewState memory_state_;
  PassPanelState pass_state_;
  CurveViewState curves_;
  CompareViewState compare_state_;
  std::string gone_to_, hovered_;
  ComparedRow selected_row_;
  std::unique_ptr<Host> host_;  // last: goes first
};

#define EXPECT_OK(expression)                             \
  do {                                                    \
    const Status status_ = (expression);                  \
    EXPECT_TRUE(status_.ok()) << status_.error().message; \
  } while (false)

TEST_F(Views, GraphScopesOpenAndClose) {
  EXPECT_OK(
      run("graph",
          "wait idle\nclick graph.collapse\nwait idle\nwait 2\nexpect scope.layers.0.forward collapsed\n"
          "absent node./layers.0/Tanh\ndoubleclick scope.layers.0.forward\nwait idle\nwait 2\n"
          "expect scope.layers.0.forward expanded\nexpect scope.layers.0.backward expanded\n"));
  EXPECT_TRUE(canvas_.expanded.count("layers.0") == 1);
}

TEST_F(Views, GraphSelectionSearchAndPartner) {
  EXPECT_TRUE(canvas_.selection.empty());
  EXPECT_OK(run(
      "graph",
      "wait idle\nclick graph.expand\nwait idle\nkey home\nwait 2\nclick node.x\nexpect node-panel.name x\n"
      "click graph.search\ntype phase:backward\nexpect graph.hits ?*\nkey enter\nwait idle\nwait 3\n"));
  ASSERT_FALSE(canvas_.selection.empty());
  const GraphBox& box = model_->boxes[canvas_.selected()];
  EXPECT_EQ(box.phase, Phase::backward);
  ASSERT_GE(box.partner, 0);
  const int32_t partner = box.partner;
  EXPECT_OK(run("graph", "key escape\nwait 2\n"));
  canvas_.selection = {model_->find(box.name)};
  EXPECT_OK(run("graph", "key g\nwait idle\nwait 2\n"));
  EXPECT_EQ(canvas_.selected(), partner);
}

TEST_F(Views, GraphZoomsAtTheCursorAndPans) {
  EXPECT_OK(run("graph", "wait idle\nwait 2\n"));
  const float zoom = canvas_.view.zoom, x = canvas_.view.x;
  EXPECT_OK(run("graph", "wheel graph 2\n"));
  EXPECT_GT(canvas_.view.zoom, zoom);
  EXPECT_OK(run("graph", "drag graph -100 0 right\n"));
  EXPECT_GT(canvas_.view.x, x);
  EXPECT_OK(run("graph", "key home\nwait 2\nkey backspace\nwait 2\n"));
}

TEST_F(Views, GraphDragsByButtonAndModifier) {
  EXPECT_OK(run("graph", "wait idle\nclick graph.expand\nwait idle\nwait 2\n"));
  const auto view = canvas_.view;
  EXPECT_OK(run("graph", "drag graph -120 40\nwait 2\n"));
  EXPECT_EQ(canvas_.view.x, view.x) << "a plain left drag is the rubber band";
  const std::vector<int32_t> band = canvas_.selection;
  EXPECT_FALSE(band.empty());
  EXPECT_OK(run("graph", "drag graph 40 -330 shift\nwait 2\n"));
  EXPECT_GT(canvas_.selection.size(), band.size()) << "Shift adds";
  EXPECT_EQ(canvas_.view.x, view.x);
  EXPECT_OK(run("graph", "drag graph -120 0 middle\nwait 2\n"));
  EXPECT_GT(canvas_.view.x, view.x);
  const float middle = canvas_.view.x;
  EXPECT_OK(run("graph", "drag graph -120 0 space\nwait 2\n"));
  EXPECT_GT(canvas_.view.x, middle);
  const float space = canvas_.view.x;
  EXPECT_OK(run("graph", "drag graph 60 60 ctrl\nwait 2\n"));
  EXPECT_GT(canvas_.view.zoom, view.zoom);
  EXPECT_OK(run("graph", "key backspace\nwait 2\n"));
  EXPECT_EQ(canvas_.view.x, space);
  EXPECT_OK(run("graph", "key alt+right\nwait 2\n"));
  EXPECT_GT(canvas_.view.zoom, view.zoom);
  EXPECT_OK(run("graph", "key space\nwait 2\n"));
  const float fitted = canvas_.view.zoom;
  EXPECT_OK(run("graph", "wheel graph 3\nkey home\nwait 2\n"));
  EXPECT_EQ(canvas_.view.zoom, fitted) << "a tap of Space fits all, as Home does";
  EXPECT_OK(run("graph", "key escape\nwait 2\n"));
  EXPECT_TRUE(canvas_.selection.empty());
}

TEST_F(Views, GraphStepsThroughTheScheduleAndFitsTheSelection) {
  EXPECT_OK(run("graph", "wait idle\nclick graph.expand\nwait idle\nkey .\nwait idle\nkey .\nwait idle\n"));
  EXPECT_EQ(canvas_.selected(), 1);
  EXPECT_OK(run("graph", "key ,\nwait idle\nwait 2\n"));
  EXPECT_EQ(canvas_.selected(), 0);
  const LayoutBox box = canvas_.scene->bounds(0);
  EXPECT_OK(run("graph", "key home\nwait 2\nkey f\nwait 2\n"));
  EXPECT_NEAR(canvas_.view.x, box.centre_x(), 0.5f);
  EXPECT_NEAR(canvas_.view.y, box.centre_y(), 0.5f);
}

TEST_F(Views, GraphPlacesAreFoundAgain) {
  EXPECT_OK(
      run("graph", "wait idle\nclick graph.expand\nwait idle\nwait 2\nkey . .\nwait idle\nwheel graph 2\n"));
  const auto place = graph_place(canvas_);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->selection.size(), 1u);
  const auto view = canvas_.view;
  EXPECT_OK(run("graph", "click graph.collapse\nwait idle\nkey escape home\nwait 2\n"));
  EXPECT_TRUE(canvas_.expanded.empty());
  graph_show_place(canvas_, *place);
  EXPECT_OK(run("graph", "wait idle\nwait 2\n"));
  EXPECT_NEAR(canvas_.view.x, view.x, 0.5f);
  EXPECT_NEAR(canvas_.view.y, view.y, 0.5f);
  EXPECT_NEAR(canvas_.view.zoom, view.zoom, 1e-4f);
  EXPECT_EQ(graph_place(canvas_)->expanded, place->expanded);
  EXPECT_EQ(graph_place(canvas_)->selection, place->selection);
}

TEST_F(Views, GraphMarksShowOnBoxes) {
  GraphMarks marks;
  marks.noted = {"x"};
  marks.added = {"x"};
  marks.inside = std::unordered_set<std::string>{"x"};
  canvas_.marks = std::make_shared<const GraphMarks>(marks);
  EXPECT_OK(
      run("graph",
          "wait idle\nclick graph.expand\nwait idle\nkey home\nwait 2\nexpect node.x \"noted added\"\n"));
  marks.inside = std::unordered_set<std::string>{"something else"};
  canvas_.marks = std::make_shared<const GraphMarks>(marks);
  EXPECT_OK(run("graph", "wait 2\nexpect node.x \"noted added outside\"\n"));
}

// The camera stands at the first nodes, near enough to read them; Fit shows everything, however long it is.
TEST_F(Views, LongGraphsAreInSight) {
  Graph graph;
  graph.opset = 17;
  GraphBuilder b(graph);
  ValueId x = b.input("x", {DType::f32, {8, 16}});
  for (int i = 0; i < 2500; ++i) {
    const ValueId tanh =
        std::move(b.add(op_by_name("Tanh"), {x}, {}, 1, {}, "tanh_" + std::to_string(i)).value())[0];
    const ValueId relu =
        std::move(b.add(op_by_name("Relu"), {tanh}, {}, 1, {}, "relu_" + std::to_string(i)).value())[0];
    x = std::move(b.add(op_by_name("Add"), {x, relu}, {}, 1, {}, "add_" + std::to_string(i)).value())[0];
  }
  graph.outputs = {x};
  model_ = std::make_shared<GraphModel>(build_graph_model(graph, nullptr));
  EXPECT_OK(run("graph", "wait idle\nwait 2\nexpect node.tanh_0\nexpect node.add_0\n"));
  const LayoutResult& layout = canvas_.scene->layout;
  EXPECT_LT(layout.width, 1000) << "blocks do not drift sideways";
  EXPECT_GE(canvas_.view.zoom, 0.55f);
  EXPECT_OK(run("graph", "click graph.fit\nwait 2\n"));
  const float top = canvas_.view.y - 800 / canvas_.view.zoom,
              bottom = canvas_.view.y + 800 / canvas_.view.zoom;
  EXPECT_LT(top, 0);
  EXPECT_GT(bottom, layout.height);
  EXPECT_LT(canvas_.view.zoom * layout.height, 800) << "all of it is on the canvas";
  EXPECT_OK(run("graph", "wheel graph 30\nwait 2\n"));
  EXPECT_GT(canvas_.view.zoom, 0.1f);
}

TEST_F(Views, GraphColorsAndBadQuery) {
  EXPECT_OK(
      run("graph",
          "wait idle\nclick graph.color\nclick graph.color/Time\nexpect graph.color Time\nclick graph.color\n"
          "click graph.color/Bytes\n"
          "click graph.search\ntype colour:red\nexpect graph.hits unknown*\n"));
  EXPECT_EQ(canvas_.color_by, ColorBy::kBytes);
}

// The legend has a strip of its own, and what is brought into view stands beside the minimap.
TEST_F(Views, NothingLiesOverTheNodes) {
  EXPECT_OK(run("graph", "size 700 520\nwait idle\nclick graph.expand\nwait idle\nkey home\nwait 2\n"));
  const Item *canvas = items().find("graph"), *legend = items().find("graph.legend");
  ASSERT_TRUE(canvas != nullptr && legend != nullptr);
  EXPECT_GE(legend->min.y, canvas->max.y);
  const std::vector<std::string> wanted{"x", "/layers.0/Tanh"};
  canvas_.view.zoom = 2;
  ASSERT_TRUE(graph_go_to(canvas_, wanted));
  EXPECT_OK(run("graph", "wait idle\nwait 2\n"));
  const Item* map = items().find("graph.minimap");
  ASSERT_TRUE(map != nullptr) << "part of the graph is out of sight";
  for (const std::string& name : wanted) {
    const Item* node = items().find("node." + name);
    ASSERT_TRUE(node != nullptr) << name;
    EXPECT_TRUE(node->max.x <= map->min.x || node->max.y <= map->min.y || node->min.x >= map->max.x ||
                node->min.y >= map->max.y)
        << name;
  }
}

// How many nodes and scopes can be read on the canvas: inside it and large enough for their text.
size_t readable_shapes() {
  const Item* canvas = items().find("graph");
  size_t count = 0;
  for (const auto& [id, item] : items().all()) {
    if (id.rfind("node.", 0) != 0 && id.rfind("scope.", 0) != 0) continue;
    count += item.max.y - item.min.y >= 20 && item.min.x >= canvas->min.x && item.max.x <= canvas->max.x &&
             item.min.y >= canvas->min.y && item.max.y <= canvas->max.y;
  }
  return count;
}

// `per_scope` 0: flat.
std::shared_ptr<const GraphModel> long_model(int boxes, int per_scope) {
  auto model = std::make_shared<GraphModel>();
  for (int i = 0; i < boxes; ++i) {
    GraphBox box;
    box.node = static_cast<NodeId>(i);
    box.op = box.title = i % 3 == 2 ? "Mul" : "Tanh";
    box.scope = per_scope > 0 ? i / per_scope : -1;
    if (per_scope > 0 && i % per_scope == 0) {
      ScopeInfo scope;
      scope.name = scope.path = "blocks." + std::to_string(box.scope);
      scope.boxes[0] = static_cast<uint32_t>(per_scope);
      model->scopes.push_back(scope);
    }
    box.name = "node" + std::to_string(i);
    model->by_name.emplace(box.name, i);
    model->boxes.push_back(box);
    model->value_labels.emplace_back("f32 4");
    // Each third box joins the two before it.
    const auto b = static_cast<uint32_t>(i), value = b - 1;
    if (i > 0) model->links.push_back({b - 1, b, value, false});
    if (i > 2 && i % 3 == 2) model->links.push_back({b - 2, b, b - 2, false});
  }
  return model;
}

TEST_F(Views, LongGraphsAreReadableAtFirstExpandedAndOnASmallCanvas) {
  for (const auto& [boxes, per_scope] : {std::pair(10000, 0), {50000, 200}, {3200, 16}}) {
    canvas_.expanded.clear();
    canvas_.expanded_known = false;
    canvas_.fit_wanted = true;
    model_ = long_model(boxes, per_scope);
    EXPECT_OK(run("graph", "size 1280 720\nwait idle 60\nwait 3\n"));
    EXPECT_GE(readable_shapes(), 3u) << boxes << " at first";
    EXPECT_OK(run("graph", "click graph.expand\nwait idle 60\nwait 3\n"));
    EXPECT_GE(readable_shapes(), 3u) << boxes << " expanded";
    EXPECT_OK(run("graph", "size 720 400\nwait 3\nclick graph.collapse\nwait idle 60\nwait 3\n"));
    EXPECT_GE(readable_shapes(), 2u) << boxes << " on a small canvas";
  }
}

// Another graph in the place of one that nobody has touched is shown as the first one was.
TEST_F(Views, AGraphInThePlaceOfAnotherIsShownFromItsStart) {
  const auto other = [&](const std::string& before) {
    canvas_.expanded_known = false;
    canvas_.fit_wanted = true;
    model_ = long_model(3000, 0);
    EXPECT_OK(run("graph", "size 1280 720\nwait idle 60\nwait 3\n" + before));
    const auto was = canvas_.view;
    graph_start_again(canvas_);
    model_ = long_model(40, 4);
    EXPECT_OK(run("graph", "wait idle 60\nwait 3\n"));
    return was;
  };
  other("");
  EXPECT_EQ(canvas_.view, canvas_.first_view);
  EXPECT_GE(readable_shapes(), 3u);
  EXPECT_NE(other("drag graph 0 -300 right\nwait 2\n"), canvas_.first_view);
  EXPECT_NE(canvas_.view, canvas_.first_view) << "who has moved it keeps his place";
  // Nothing of what was shown is left: there is no place to keep.
  canvas_.view.y = 1e6f;
  model_ = long_model(50, 5);
  auto renamed = std::const_pointer_cast<GraphModel>(model_);
  renamed->by_name.clear();
  for (std::size_t b = 0; b < renamed->boxes.size(); ++b) {
    renamed->boxes[b].name = "other" + std::to_string(b);
    renamed->by_name.emplace(renamed->boxes[b].name, static_cast<std::int32_t>(b));
  }
  EXPECT_OK(run("graph", "wait idle 60\nwait 3\n"));
  EXPECT_EQ(canvas_.view, canvas_.first_view);
}

TEST_F(Views, AnEmptySearchFieldSaysWhatHasRoom) {
  EXPECT_OK(run("graph", "size 1200 800\nwait idle\nwait 2\nexpect graph.search\n"));
  EXPECT_EQ(items().find("graph.search")->label, "Search: " + canvas_.example);
  EXPECT_OK(run("graph", "size 620 520\nwait idle\nwait 2\nexpect graph.search\n"));
  const Item* field = items().find("graph.search");
  EXPECT_LE(ImGui::CalcTextSize(field->label.c_str()).x, field->max.x - field->min.x);
  EXPECT_EQ(("Search: " + canvas_.example).rfind(field->label, 0), 0u) << "whole terms: " << field->label;
}

TEST_F(Views, TheToolsOfTheGraphFindRoomAtAnyWidth) {
  for (const char* size : {"1200 800", "620 520", "430 520", "330 520"}) {
    EXPECT_OK(run("graph", std::string("size ") + size + "\nwait idle\nwait 3\nexpect graph.search\n"));
    const Item* canvas = items().find("graph");
    std::vector<std::pair<std::string, const Item*>> tools;
    for (const char* id : {"graph.color", "graph.search", "graph.fit", "graph.expand", "graph.collapse"})
      tools.emplace_back(id, items().find(id));
    for (const auto& [id, tool] : tools) {
      ASSERT_TRUE(tool != nullptr) << id;
      EXPECT_LE(tool->max.x, canvas->max.x + 1) << id << " at " << size;
      for (const auto& [other_id, other] : tools) {
        const bool apart = tool->max.x <= other->min.x || other->max.x <= tool->min.x ||
                           tool->max.y <= other->min.y || other->max.y <= tool->min.y;
        EXPECT_TRUE(tool == other || apart) << id << " over " << other_id << " at " << size;
      }
    }
  }
}

TEST_F(Views, TheExamplesInTheSearchFieldsFindSomething) {
  EXPECT_OK(run("graph", "wait idle\nwait 2\n"));
  ASSERT_NE(canvas_.example, "");
  graph_set_query(canvas_, canvas_.example);
  EXPECT_EQ(canvas_.query_error, "");
  EXPECT_FALSE(canvas_.hits.empty()) << canvas_.example;
  kernel_table_set_query(kernels_, kernel_state_, kernels_.example());
  EXPECT_EQ(kernel_state_.query_error, "");
  EXPECT_GT(kernels_.shown_kernels(), 0u) << kernels_.example();
}

// Layers that are alike: one box, whose arrows and keys show one after the other beside it.
TEST_F(Views, LayersAreFoldedAndSteppedThrough) {
  const Compiled layered = test::layered_step();
  auto model = std::make_shared<GraphModel>(build_graph_model(layered.train.graph, &layered.plan));
  apply_times(*model, test::timed_rows(layered));
  model_ = model;
  const std::string box = "scope.net/encoder/h.*.forward", layer = "scope.net/encoder/h.";
  EXPECT_OK(run("graph",
                "wait idle\nkey home\nwait 3\nexpect " + box + " collapsed\nabsent " + layer +
                    "0.forward\nexpect " + layer + "5.forward\nclick " + box + ".next\nwait idle\nwait 3\n" +
                    "expect " + layer + "0.forward expanded\nexpect " + layer + "0.backward expanded\n" +
                    "key home\nwait 3\nkey l\nwait idle\nwait 3\nabsent " + layer + "0.forward\nexpect " +
                    layer + "1.forward expanded\nkey shift+l\nwait idle\nwait 3\nexpect " + layer +
                    "0.forward expanded\nkey shift+l\nwait idle\nwait 3\nabsent " + layer +
                    "0.forward\nexpect " + box + " collapsed\n"));
  ASSERT_TRUE(graph_go_to(canvas_, "/net/encoder/h.3/linear/MatMul"));
  EXPECT_OK(run("graph", "wait idle\nwait 3\nexpect node./net/encoder/h.3/linear/MatMul selected\n"));
  EXPECT_OK(run("graph", "click graph.expand\nwait idle\nkey home\nwait 3\nabsent " + box +
                             "\nclick graph.collapse\nwait idle\nwait 3\n"));
}

// F frames a node and what is computed backwards through it.
TEST_F(Views, TheSelectionIsFramedWithItsBackwardPartner) {
  EXPECT_OK(run("graph", "wait idle\nclick graph.expand\nwait idle\n"));
  const int32_t tanh = model_->find("/layers.0/Tanh");
  std::vector<std::string> both{"/layers.0/Tanh"};
  for (const int32_t b : model_->boxes[static_cast<size_t>(tanh)].related)
    if (model_->boxes[static_cast<size_t>(b)].partner == tanh)
      both.push_back(model_->boxes[static_cast<size_t>(b)].name);
  ASSERT_GE(both.size(), 2u);
  ASSERT_TRUE(graph_go_to(canvas_, both.front()));
  EXPECT_OK(run("graph", "wait idle\nkey f\nwait 3\n"));
  const Item* canvas = items().find("graph");
  for (const std::string& name : both) {
    const Item* node = items().find("node." + name);
    ASSERT_TRUE(node != nullptr) << name;
    EXPECT_GE(node->min.x, canvas->min.x) << name;
    EXPECT_LE(node->max.x, canvas->max.x) << name;
    EXPECT_GE(node->min.y, canvas->min.y) << name;
    EXPECT_LE(node->max.y, canvas->max.y) << name;
  }
}

TEST_F(Views, GraphKeepsItsSelectionWhenTheModelChanges) {
  EXPECT_OK(run("graph", "wait idle\nclick graph.expand\nwait idle\n"));
  ASSERT_TRUE(graph_go_to(canvas_, "x"));
  EXPECT_OK(run("graph", "wait idle\nwait 2\n"));
  const Compiled other = test::small_step("none");
  model_ = std::make_shared<GraphModel>(build_graph_model(other.train.graph, &other.plan));
  EXPECT_OK(run("graph", "wait idle\nwait 2\nexpect node-panel.name x\n"));
  EXPECT_FALSE(graph_go_to(canvas_, "no such node"));
}

TEST_F(Views, KernelTableClicksLeadToTheGraph) {
  const std::string node = kernels_.rows()[0].info.node;
  EXPECT_OK(run("kernels", "click \"kernels." + node + "\"\n"));
  EXPECT_EQ(gone_to_, node);
  EXPECT_OK(
      run("kernels",
          "click kernels.group/Phase\nexpect kernels.group/Phase on\ndoubleclick kernel-groups.backward\n"
          "expect kernels.search phase:*backward*\n"));
}

TEST_F(Views, MemoryViewShowsThePeak) {
  EXPECT_OK(
      run("memory",
          "expect memory.peak\nexpect memory.measured \"not measured\"\nclick memory.arena-plot\nwait 2\n"));
  EXPECT_GE(memory_state_.step, 0);
}

// A step is at one place in the arena and in the curve below it, however wide the labels of their axes are.
TEST_F(Views, BothPlotsOfMemoryBeginAtOnePlace) {
  for (const char* size : {"700 500", "1280 720", "1600 1000"}) {
    EXPECT_OK(run("memory", std::string("size ") + size + "\nwait 3\nexpect memory.peak\nwait 2\n"));
    std::set<long> zeros;  // one of the axis of y and one of the steps'
    for (const DrawnText& text : drawn_texts())
      if (text.text == "0") zeros.insert(std::lround(text.min.x));
    EXPECT_EQ(zeros.size(), 2u) << size;
  }
}

TEST_F(Views, HeadsOfNumbersStandOverThem) {
  EXPECT_OK(run("memory", "expect memory.peak\nwait 2\n"));
  const MemoryBlock& largest = memory_.blocks[static_cast<size_t>(memory_.live_at_peak.front())];
  const std::string size = format_value(static_cast<double>(largest.bytes), Unit::kBytes);
  float head = -1, number = -1;
  for (const DrawnText& text : drawn_texts()) {
    if (text.text == "Size") head = text.max.x;
    if (text.text == size && head >= 0) number = text.max.x;
  }
  ASSERT_GE(head, 0);
  ASSERT_GE(number, 0);
  EXPECT_LT(std::abs(number - head), 24);
}

TEST_F(Views, PassSwitchAsksForANewPipeline) {
  EXPECT_OK(
      run("passes",
          "expect pass.fuse-gelu on\nclick pass.fuse-gelu\nexpect pass.fuse-gelu off\nclick passes.none\n"
          "expect pass.cse off\nclick passes.default\nexpect pass.cse on\nclick "
          "pass-row.fuse-elementwise\nwait 2\n"));
  EXPECT_EQ(pass_state_.open, "fuse-elementwise");
}

TEST_F(Views, ComparisonStatesItsVerdict) {
  comparison_.steps = 10;
  comparison_.ratio = {1.3, 1.2, 1.4};
  comparison_.verdict = Verdict::faster;
  comparison_.kernels = {{"/a/MatMul", "forward", 2, 1, 2000, 1000, 0.01, {"/a/MatMul"}}};
  EXPECT_OK(
      run("compare",
          "expect compare.verdict FASTER\nexpect compare.loss *bit-equal*\nclick compare.rows./a/MatMul\n"
          "expect compare.ratio.axis \"1* 1.*\"\nexpect compare.how \"The median of the ratios*\"\n"
          "absent compare.table/Streams\n"));
  comparison_.streams = {{"CPU launches", "", 1, 0, 2000, 0, 1, {}}};
  EXPECT_OK(run(
      "streams",
      "click compare.table/Streams\nexpect \"compare.rows.CPU launches\"\nabsent compare.rows./a/MatMul\n"));
  EXPECT_EQ(selected_row_.nodes, std::vector<std::string>{"/a/MatMul"});
  selected_row_ = {};
  EXPECT_OK(run("streams", "click \"compare.rows.CPU launches\"\n"));
  EXPECT_EQ(selected_row_.name, "") << "a stream stands for no nodes";
}

}  // namespace
}  // namespace gradloom
