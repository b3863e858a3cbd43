// The headless window end to end: widgets, registry, scripted input, screenshots.
// Skipped where EGL is missing.
#include <gtest/gtest.h>
#include <imgui.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

#include "viz/draw/drawn_text.h"
#include "viz/draw/frame_faults.h"
#include "viz/draw/items.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/keys.h"
#include "viz/draw/palette.h"
#include "viz/draw/panes.h"
#include "viz/draw/platform.h"
#include "viz/draw/plots.h"
#include "viz/draw/script.h"
#include "viz/draw/table.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

struct State {
  bool pass = false, box = true;
  int clicks = 0, choice = 0, segment = 0, chosen = -1, opened = -1, key_presses = 0;
  std::string name;
  // Drawn on purpose: 1 beyond its pane, 2 at no place, 3 a text that is cut, 5 one over another, 6 a text cut between words.
  int fault = 0;
  int unreached = 0;   // a button that the keys do not reach
  ImVec2 least{0, 0};  // that a pane needs
  PaletteState palette;
  TableState table;
  PaneTree panes = std::move(PaneTree::parse("h0.500(Left*,Right*|Table)").value());
};

void draw_fault(int fault) {
  ImDrawList* const list = ImGui::GetWindowDrawList();
  const ImVec2 at = ImGui::GetCursorScreenPos();
  if (fault == 1) list->PushClipRect({0, 0}, {800, 600}, false);
  if (fault == 2) list->AddLine({std::nanf(""), 3}, {9, 9}, palette().bad);
  // What a comparison that was stopped has.
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (fault == 4)
    interval_bar("interval", {1, 0, kInfinite}, 1.0, {0, kInfinite, true, Unit::kPlain}, 26, palette().bad);
  if (fault == 3) list->PushClipRect(at, {at.x + 13, at.y + 20}, true);  // through the e
  if (fault == 6) list->PushClipRect(at, {at.x + ImGui::CalcTextSize("Kernels").x + 2, at.y + 20}, true);
  list->AddText(fault == 1 ? ImVec2{500, 500} : at, palette().text, "Kernels per step");
  if (fault == 1 || fault == 3 || fault == 6) list->PopClipRect();
  if (fault == 5) list->AddText({at.x + 30, at.y + 3}, palette().text, "1.25 ms");
}

// 1: nothing is said of the keys; 2: they are to have an action that there is not; 3: one that there is.
void draw_unreached(int fault) {
  ImGui::InvisibleButton("lonely", {20, 20});
  register_item("lonely", "Lonely");
  if (fault > 1) reached_by(fault == 2 ? "no.action" : "graph.fit");
}

void draw(State& s) {
  ImGui::SetNextWindowPos({0, 0});
  ImGui::SetNextWindowSize(ImGui::GetIO().DisplaySize);
  ImGui::Begin("main", nullptr, ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoBringToFrontOnFocus);
  if (key_pressed("app.palette")) s.palette.show();
  if (key_pressed("graph.fit")) ++s.key_presses;
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  draw_panes(
      s.panes, {10, 10}, {display.x - 10, display.y - 10},
      [&](std::string_view tab) {
        if (tab == "Left") {
          if (s.fault > 0) draw_fault(s.fault);
          if (s.unreached > 0) draw_unreached(s.unreached);
          if (button("go", "Go", ButtonKind::kPrimary)) ++s.clicks;
          toggle("pass", &s.pass);
          checkbox("box", "Box", &s.box);
          combo("choice", &s.choice, {"sgd", "adam"});
          segmented("colour", &s.segment, {"Phase", "Time"});
          input_text("name", "Name", &s.name);
          for (int i = 0; i < 60; ++i) text("filler");
          button("far", "Far below");
        } else if (tab == "Table") {
          TableRows rows;
          rows.count = 100000;
          rows.several = true;
          rows.cell = [](int row, int) { number_cell(std::to_string(row)); };
          const TableEvents events = draw_table("rows", {{"Name"}, {"Time", 80, true}}, rows, s.table);
          if (events.opened >= 0) s.opened = events.opened;
        } else {
          std::vector<double> x{0, 1, 2}, y{3, 1, 2};
          const Plot plot = begin_plot("loss", {300, 200}, Axis::fit(0, 2, Unit::kCount),
                                       Axis::fit(1, 3, Unit::kPlain), "step");
          plot_line(plot, x, y, palette().accent);
          end_plot(plot);
        }
      },
      [&](std::string_view) { return s.least; });
  const int chosen = draw_palette("palette", "Command", {{"Open", ""}, {"Run", ""}}, s.palette);
  if (chosen >= 0) s.chosen = chosen;
  ImGui::End();
  draw_toasts({400, 2});
}

class Window : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("DISPLAY");
    HostOptions options;
    options.headless = true;
    options.width = 800;
    options.height = 600;
    auto host = Host::create(options);
    if (!host.ok()) GTEST_SKIP() << host.error().message;
    host_ = std::move(host).value();
    folder_ = std::filesystem::path(testing::TempDir()) / "gradloom-window-test";
    std::filesystem::create_directories(folder_);
  }
  Status run(const std::string& text) {
    auto commands = parse_script(text);
    if (!commands.ok()) return commands.error();
    ScriptRunner runner(std::move(commands).value(), 1);
    return host_->run([&] { draw(state_); }, &runner);
  }
  std::unique_ptr<Host> host_;
  State state_;
  std::filesystem::path folder_;
};

#define EXPECT_OK(expression)                             \
  do {                                                    \
    const Status status_ = (expression);                  \
    EXPECT_TRUE(status_.ok()) << status_.error().message; \
  } while (false)

TEST_F(Window, ClicksReachWidgets) {
  EXPECT_OK(
      run("click go\nclick go\nclick pass\nexpect pass on\nclick box\nexpect box off\nclick colour/Time\n"
          "expect colour/Time on\nclick choice\nclick choice/adam\nexpect choice adam\n"));
  EXPECT_EQ(state_.clicks, 2);
  EXPECT_TRUE(state_.pass);
  EXPECT_FALSE(state_.box);
  EXPECT_EQ(state_.choice, 1);
}

TEST_F(Window, TypingKeysAndPalette) {
  EXPECT_OK(run("click name\ntype layers.0\nexpect name layers.0\nkey home\n"));
  EXPECT_EQ(state_.key_presses, 0) << "a plain key must not act while text is edited";
  EXPECT_OK(
      run("key escape\nwait 2\nkey home\nkey ctrl+shift+p\nwait until palette.input\ntype ru\n"
          "expect palette.row.0 Run\nkey enter\nabsent palette.input\n"));
  EXPECT_EQ(state_.key_presses, 1);
  EXPECT_EQ(state_.chosen, 1);
}

TEST_F(Window, KeysTappedWithinOneFrameAllCount) {
  EXPECT_OK(run("key home home home\n"));
  EXPECT_EQ(state_.key_presses, 3);
}

TEST_F(Window, ItemsOutsideTheScrollAreaAreScrolledTo) { EXPECT_OK(run("click far\n")); }

TEST_F(Window, PanesSplitAndMove) {
  EXPECT_OK(run("expect tab.Left on\ndrag split.0 100 0\n"));
  EXPECT_GT(state_.panes.root().ratio, 0.6f);
  EXPECT_OK(run("click tab.Table\nexpect tab.Table on\ndrag tab.Table -560 300\n"));
  EXPECT_EQ(state_.panes.all_tabs().front(), "Table") << state_.panes.to_text();
}

TEST_F(Window, PanesWithoutRoomFoldIntoOne) {
  state_.least = {300, 100};
  EXPECT_OK(
      run("size 800 600\nwait 2\nexpect pane.Left\nexpect pane.Right\nexpect split.0\n"
          "size 560 600\nwait 2\nexpect pane.Left\nabsent pane.Right\nabsent split.0\n"
          "click tab.Table\nwait 2\nexpect pane.Table\nabsent pane.Left\n"
          "size 800 600\nwait 2\nexpect pane.Left\nexpect pane.Table\nexpect split.0\n"));
  EXPECT_EQ(state_.panes.to_text(), "h0.500>(Left*,Right|Table*)");
  EXPECT_OK(
      run("drag split.0 300 0\nwait 2\nclick tab.Table\ndrag split.0 -700 0\nwait 2\nclick tab.Left\n"));
}

TEST_F(Window, PanesFoldAwayByTheSignOnTheirBar) {
  EXPECT_OK(
      run("expect pane.Left\nexpect split.0.fold open\nclick split.0.fold\nwait 2\nexpect split.0.fold away\n"
          "expect pane.Left\nabsent pane.Right\nclick split.0.fold\nwait 2\nexpect pane.Right\n"));
  EXPECT_EQ(state_.panes.to_text(), "h0.500(Left*,Right*|Table)");
}

TEST_F(Window, ADoubleClickOnATabGivesItsPaneTheWindow) {
  EXPECT_OK(
      run("doubleclick tab.Table\nwait 2\nexpect pane.Table\nabsent pane.Left\nexpect maximize.Table on\n"
          "click maximize.Table\nwait 2\nexpect pane.Left\nexpect pane.Table\n"
          "click maximize.Left\nwait 2\nexpect pane.Left\nabsent pane.Table\n"
          "doubleclick tab.Left\nwait 2\nexpect pane.Table\n"));
}

TEST_F(Window, TableIsVirtualizedAndSortable) {
  EXPECT_OK(
      run("click tab.Table\nwait 2\nclick rows.3\ndoubleclick rows.5\nclick \"rows.column.Time\"\n"
          "expect rows.column.Time descending\nclick rows.column.Time\nexpect rows.column.Time ascending\n"));
  EXPECT_EQ(state_.opened, 5);
  EXPECT_LT(items().all().size(), 100u) << "rows outside the view must not be drawn";
}

TEST_F(Window, SeveralRowsOfAListAreChosenByMouseAndKeys) {
  EXPECT_OK(run("click tab.Table\nwait 2\nclick rows.3\nclick rows.5 shift\nwait 2\n"));
  EXPECT_EQ(state_.table.chosen, (std::set<std::string>{"3", "4", "5"}));
  EXPECT_EQ(state_.table.selected, 3);
  EXPECT_OK(run("key shift+down\nkey shift+down\nwait 2\n"));
  EXPECT_EQ(state_.table.chosen.size(), 5u);
  EXPECT_OK(run("key shift+up\nkey shift+up\nkey shift+up\nwait 2\n"));
  EXPECT_EQ(state_.table.chosen, (std::set<std::string>{"3", "4"}));
  EXPECT_OK(run("click rows.8 ctrl\nclick rows.3 ctrl\nwait 2\n"));
  EXPECT_EQ(state_.table.chosen, (std::set<std::string>{"4", "8"}));
  TableRows rows;
  rows.count = 20;
  EXPECT_EQ(chosen_rows(state_.table, rows), (std::vector<int>{4, 8}));
  EXPECT_OK(run("key down\nwait 2\n"));
  EXPECT_TRUE(state_.table.chosen.empty());
  EXPECT_EQ(state_.table.selected, 4) << "from the row that was selected";
  EXPECT_OK(run("click rows.6\nclick rows.7 ctrl\nclick rows.7 ctrl\nwait 2\n"));
  EXPECT_TRUE(chosen_rows(state_.table, rows).empty()) << "one is no sum";
}

TEST_F(Window, ArrowsMoveThroughTheRowsOfAListThatHasTheKeys) {
  EXPECT_OK(run("click tab.Table\nwait 2\nclick rows.3\nkey down\nwait 2\n"));
  EXPECT_EQ(state_.table.selected, 4);
  EXPECT_OK(run("key up\nkey up\nwait 2\nkey enter\nwait 2\n"));
  EXPECT_EQ(state_.table.selected, 2);
  EXPECT_EQ(state_.opened, 2);
  EXPECT_OK(run("key pagedown\nwait 2\n"));
  EXPECT_GT(state_.table.selected, 8);
  EXPECT_OK(run("expect rows.row." + std::to_string(state_.table.selected) + "\n"));  // it is in sight
  arrows_to_canvas();
  EXPECT_OK(run("key down\nwait 2\n"));
  EXPECT_FALSE(table_has_arrows());
}

TEST_F(Window, WhatTheKeysDoNotReachIsTold) {
  EXPECT_OK(run("reachable\nclick tab.Table\nwait 2\nreachable\n"));
  state_.unreached = 1;
  EXPECT_NE(run("reachable\n").error().message.find("no key reaches lonely"), std::string::npos);
  state_.unreached = 2;
  EXPECT_NE(
      run("reachable\n").error().message.find("there is no action 'no.action', which is to reach lonely"),
      std::string::npos);
  state_.unreached = 3;
  EXPECT_OK(run("reachable\n"));
}

TEST_F(Window, MessagesStandInTheMenuBarAndGoOneByOne) {
  toast(ToastKind::kError, "first");
  toast(ToastKind::kError, "second");
  EXPECT_OK(run("expect toast.0 second\n"));
  const Item* shown = items().find("toast.0");
  ASSERT_TRUE(shown != nullptr);
  EXPECT_GE(shown->min.y, 0);
  EXPECT_LE(shown->max.y, 25) << "the menu bar's height";
  EXPECT_OK(run("click toast.0\nexpect toast.0 first\nclick toast.0\nabsent toast.0\n"));
}

TEST_F(Window, NamesKeepTheirEnd) {
  ImFont* const font = theme().ui;
  const float size = font->FontSize;
  auto width_of = [&](const std::string& s) { return font->CalcTextSizeA(size, FLT_MAX, 0, s.c_str()).x; };
  auto fit = [&](const std::string& name, float width) {
    const std::string shown = fit_name(font, size, name, width);
    EXPECT_LE(width_of(shown), width) << name << " -> " << shown;
    return shown;
  };
  const std::string name = "/blocks.2/proj/MatMul/grad";
  EXPECT_EQ(fit(name, width_of(name)), name);
  EXPECT_EQ(fit(name, width_of(name) - 1), "/blocks.2/\u2026/MatMul/grad")
      << "the layer tells it from others";
  EXPECT_EQ(fit(name, width_of("\u2026/proj/MatMul/grad")), "\u2026/proj/MatMul/grad");
  EXPECT_EQ(fit(name, width_of("\u2026/proj/MatMul/grad") - 1), "\u2026/MatMul/grad");
  EXPECT_EQ(fit(name, width_of("\u2026rad")), "\u2026rad");
  EXPECT_EQ(fit(name, 2), "");
  const std::string gradient = "/layers.0/intermediate/MatMul/grad/FusedMatMul_1";
  EXPECT_EQ(fit(gradient, width_of("/layers.0/intermediate/MatMul/grad/\u2026")),
            "/layers.0/intermediate/MatMul/grad/\u2026");
  EXPECT_EQ(fit(gradient, width_of("\u2026/MatMul/grad/\u2026")), "\u2026/MatMul/grad/\u2026");
  const std::string deep = "/bert/encoder/layer.11/attention/self/query/MatMul";
  EXPECT_EQ(fit(deep, width_of("\u2026/layer.11/\u2026/self/query/MatMul")),
            "\u2026/layer.11/\u2026/self/query/MatMul");
  EXPECT_EQ(fit(deep, width_of("\u2026/layer.11/\u2026/query/MatMul")),
            "\u2026/layer.11/\u2026/query/MatMul");
  EXPECT_EQ(fit(deep, width_of("\u2026/layer.11/\u2026/query/MatMul") - 1), "\u2026/self/query/MatMul");
  EXPECT_EQ(fit("/a/\u03b1\u03b2\u03b3", width_of("\u2026\u03b2\u03b3")), "\u2026\u03b2\u03b3");
  EXPECT_EQ(fit("/gelu/Mul + /gelu/Mul_1 + /gelu/Tanh", width_of("/gelu/Mul +2")), "/gelu/Mul +2");
  EXPECT_EQ(fit("/gelu/Mul + /gelu/Mul_1 + /gelu/Tanh", width_of("\u2026/Mul +2")), "\u2026/Mul +2");
}

TEST_F(Window, ScreenshotIsAPictureOfTheWindow) {
  const std::string dark = (folder_ / "dark.png").string(), light = (folder_ / "light.png").string();
  EXPECT_OK(run("screenshot " + dark + "\ntheme light\nsize 1000 700\nscale 1.5\nwait 2\nscreenshot " +
                light + "\n"));
  auto load = [](const std::string& file, png_image& header) {
    std::memset(&header, 0, sizeof header);
    header.version = PNG_IMAGE_VERSION;
    std::vector<uint8_t> pixels;
    if (!png_image_begin_read_from_file(&header, file.c_str())) return pixels;
    header.format = PNG_FORMAT_RGBA;
    pixels.resize(PNG_IMAGE_SIZE(header));
    png_image_finish_read(&header, nullptr, pixels.data(), 0, nullptr);
    return pixels;
  };
  png_image a, b;
  const auto first = load(dark, a), second = load(light, b);
  ASSERT_EQ(a.width, 800u);
  ASSERT_EQ(b.width, 1000u);
  ASSERT_EQ(b.height, 700u);
  std::set<uint32_t> colors;
  double dark_sum = 0, light_sum = 0;
  for (size_t i = 0; i + 3 < first.size(); i += 4) {
    colors.insert(first[i] << 16 | first[i + 1] << 8 | first[i + 2]);
    dark_sum += first[i];
  }
  for (size_t i = 0; i + 3 < second.size(); i += 4) light_sum += second[i];
  EXPECT_GT(colors.size(), 50u) << "blank picture";
  EXPECT_LT(dark_sum / (800 * 600), 80);
  EXPECT_GT(light_sum / (1000 * 700), 170);
}

TEST_F(Window, AFaultOfAFrameIsFound) {
  EXPECT_OK(run("wait 2\nuncut\n"));
  EXPECT_TRUE(frame_faults().empty()) << frame_faults().front();
  state_.fault = 4;  // none: an interval without an end has its place
  EXPECT_OK(run("wait 2\n"));
  EXPECT_TRUE(frame_faults().empty()) << frame_faults().front();
  state_.fault = 1;
  EXPECT_OK(run("wait 2\n"));
  ASSERT_FALSE(frame_faults().empty());
  EXPECT_NE(frame_faults().front().find("outside its room"), std::string::npos) << frame_faults().front();
  state_.fault = 2;
  EXPECT_OK(run("wait 2\n"));
  ASSERT_FALSE(frame_faults().empty());
  EXPECT_NE(frame_faults().front().find("no number"), std::string::npos) << frame_faults().front();
}

TEST_F(Window, ATextThatIsCutIsFoundByWhatItSays) {
  state_.fault = 3;
  const Status cut = run("wait 2\nuncut\n");
  std::string all;
  for (const DrawnText& text : drawn_texts()) all += "'" + text.text + "' ";
  ASSERT_FALSE(cut.ok()) << all;
  EXPECT_NE(cut.error().message.find("line 2: cut off: 'Ke"), std::string::npos) << cut.error().message;
  const auto texts = drawn_texts();
  EXPECT_TRUE(
      std::any_of(texts.begin(), texts.end(), [](const DrawnText& t) { return t.text == "Go" && !t.cut; }));
}

TEST_F(Window, TextsThatLieOverEachOtherAreFound) {
  state_.fault = 6;
  const Status between = run("wait 2\nuncut\n");
  ASSERT_FALSE(between.ok()) << "glyphs beyond the edge are not there at all";
  EXPECT_NE(between.error().message.find("cut off: 'Kernels' at"), std::string::npos)
      << between.error().message;
  state_.fault = 5;
  const Status over = run("wait 2\nuncut\n");
  ASSERT_FALSE(over.ok());
  EXPECT_NE(over.error().message.find("overlapping: 'Kernels per step' over '1.25 ms'"), std::string::npos)
      << over.error().message;
}

TEST_F(Window, PanesOfATinyWindowStayInIt) {
  EXPECT_OK(run("size 200 150\nwait 2\nscale 3\nwait 2\ndrag split.0 50 0\nwait 2\n"));
  EXPECT_TRUE(frame_faults().empty()) << frame_faults().front();
  EXPECT_TRUE(PaneTree::parse(state_.panes.to_text()).ok()) << state_.panes.to_text();
}

// A file says what, and a fault is told with the action before it.
TEST_F(Window, RandomActionsAreCommandsOfAScript) {
  const std::string first = (folder_ / "first").string(), second = (folder_ / "second").string();
  const auto done = [](const std::string& file) {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_OK(run("random 7 150 " + first + "\n"));
  const auto commands = parse_script(done(first));
  ASSERT_TRUE(commands.ok()) << commands.error().message;
  EXPECT_EQ(commands->size(), 150u);
  EXPECT_OK(run("size 800 600\nscale 1\nwait 3\nrandom 8 10 " + second + "\n"));
  EXPECT_EQ(parse_script(done(second))->size(), 10u);
  state_.fault = 2;
  state_.panes = std::move(PaneTree::parse("Left*").value());
  const Status fault = run("size 800 600\nrandom 9 150\n");
  ASSERT_FALSE(fault.ok());
  EXPECT_NE(fault.error().message.find("of seed 9, '"), std::string::npos) << fault.error().message;
}

TEST_F(Window, ScriptErrorsNameLineAndItem) {
  const Status wrong = run("wait 1\nexpect go nonsense\n");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message, "script line 2: 'go' is 'enabled', expected 'nonsense'");
  EXPECT_EQ(wrong.error().code, Errc::check_failed);
  const Status unwritable = run("screenshot /nonexistent/a.png\n");
  ASSERT_FALSE(unwritable.ok());
  EXPECT_EQ(unwritable.error().code, Errc::io);
}

}  // namespace
}  // namespace gradloom
