// What each view of the window shows, and where: its texts with their places, held against those in structure/. Numbers are masked, so
// that what a plan or a machine counts makes no difference; the order of rows and columns, what is named, what is missing and what has
// moved does. Every panel is looked at, and the views inside panels that are reached by one click.
//
//     GRADLOOM_TEST_STRUCTURE=write build/release/tests/app_tests --gtest_filter='*DesktopStructure*'
//
// writes the files again. A picture of each view lies beside the program (structure_*.png).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <regex>
#include <sstream>
#include <vector>

#include "app/desktop/panels.h"
#include "tests/app/trend_session.h"
#include "tests/app/window_script.h"
#include "tests/environment.h"

namespace gradloom {
namespace {

// A view: what is clicked after its tab.
struct StructureView {
  std::string name, panel, before;
};
void PrintTo(const StructureView& view, std::ostream* out) { *out << view.name; }

std::vector<StructureView> structure_views() {
  std::vector<StructureView> views;
  for (const Panel& panel : panels()) {
    std::string name = panel.name;
    std::replace(name.begin(), name.end(), ' ', '_');
    views.push_back({name, panel.name, ""});
  }
  views.push_back({"Compare_graph", "Compare", "click compare.view/Graph\n"});
  views.push_back({"Tune_waterfall", "Tune", "click tune.view/Waterfall\n"});
  views.push_back({"What_if_scores", "What if", "click whatif.tab/Scores\n"});
  return views;
}

struct PlacedText {
  double x = 0, y = 0;
  std::string text;
  std::string line() const {
    return std::to_string(std::lround(x)) + " " + std::to_string(std::lround(y)) + " " + text;
  }
};

// "12.3 ms of 4 GiB" -> "# of #"; levels of processors in names of kernels too.
std::string masked(std::string text) {
  static const std::regex kLevels("avx512_core(_[a-z0-9]+)?|avx512|avx2(_[a-z0-9]+)?|x86-64-v[0-9]");
  static const std::regex kNumbers(
      "[-+]?[0-9]+([.,:][0-9]+)*(e[-+]?[0-9]+)?( ?(ns|us|\u00b5s|ms|s|h|min|B|KiB|MiB|GiB|TiB|[kMGTP]?FLOP(/s)?|[kMGT]?B/s|[kMG]|%)(?![A-Za-z]))?");
  static const std::regex kFolder("[^ ']*gradloom-[A-Za-z0-9]{6}(?![A-Za-z0-9])");
  text = std::regex_replace(std::regex_replace(text, kFolder, "FOLDER"), kLevels, "LEVEL");
  return std::regex_replace(text, kNumbers, "#");
}

// The texts of a picture in lines from the top, each from the left.
std::vector<PlacedText> texts_of(const std::string& svg) {
  static const std::regex kText("<text x=\"([-0-9.]+)\" y=\"([-0-9.]+)\"[^>]*>([^<]*)</text>");
  std::vector<PlacedText> all;
  for (std::sregex_iterator at(svg.begin(), svg.end(), kText), end; at != end; ++at)
    all.push_back({std::stod((*at)[1]), std::stod((*at)[2]), masked((*at)[3])});
  std::stable_sort(all.begin(), all.end(), [](const PlacedText& a, const PlacedText& b) {
    return std::lround(a.y) != std::lround(b.y) ? a.y < b.y : a.x < b.x;
  });
  return all;
}

std::vector<PlacedText> kept_texts(const std::string& file) {
  std::vector<PlacedText> all;
  std::istringstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    PlacedText text;
    if (!(words >> text.x >> text.y)) continue;
    std::getline(words >> std::ws, text.text);
    all.push_back(text);
  }
  return all;
}

// What is missing, new or moved by more than a few points; empty: nothing.
std::string difference(const std::vector<PlacedText>& kept, std::vector<PlacedText> drawn) {
  constexpr double kAside = 12, kDown = 5;  // a number with more digits moves what stands behind it
  std::string all;
  for (const PlacedText& text : kept) {
    const auto at = std::find_if(drawn.begin(), drawn.end(), [&](const PlacedText& other) {
      return other.text == text.text && std::abs(other.x - text.x) <= kAside &&
             std::abs(other.y - text.y) <= kDown;
    });
    if (at == drawn.end())
      all += "not there: " + text.line() + "\n";
    else
      drawn.erase(at);
  }
  for (const PlacedText& text : drawn) all += "new: " + text.line() + "\n";
  return all;
}

class DesktopStructure : public WindowScript, public testing::WithParamInterface<StructureView> {
 protected:
  static std::string file_of(const std::string& view) {
    return std::string(GRADLOOM_SOURCE_DIR) + "/tests/app/structure/" + view + ".txt";
  }
  static std::string read(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // The folder of a session, written once: runs with times of the test's own, of kernels that do not depend on the processor.
  static const std::string& session_folder() {
    static TemporaryFolder folder;
    static const std::string at = folder / "";
    if (!std::filesystem::exists(folder / "s.db")) {
      const Setting level("ONEDNN_MAX_CPU_ISA", "AVX2");
      // Named from its own folder, so that no line is longer elsewhere.
      std::filesystem::copy_file(GRADLOOM_SOURCE_DIR "/tests/models/bert-tiny/model.onnx",
                                 folder / "model.onnx");
      const std::filesystem::path here = std::filesystem::current_path();
      std::filesystem::current_path(at);
      TrendSession("model.onnx", 2).write("s.db", 3, 3);
      std::filesystem::current_path(here);
    }
    return at;
  }

  // The view's texts as they are drawn; its picture lies beside the program.
  std::vector<PlacedText> drawn(const StructureView& view) {
    const Setting level("ONEDNN_MAX_CPU_ISA", "AVX2");
    shell_ = "cd '" + session_folder() + "'; ";
    const std::string pane = "\" \"pane." + view.panel + "\"\n";
    EXPECT_EQ(open("s.db", "size 1600 1000\nwait idle\nclick \"tab." + view.panel + "\"\nwait idle\n" +
                               view.before + "wait idle\nmove 1 1\nwait 4\nscreenshot \"" + file("view.svg") +
                               pane + "screenshot \"" + picture("structure_" + view.name + ".png") + pane),
              0)
        << error_;
    return texts_of(read(file("view.svg")));
  }
};

TEST_P(DesktopStructure, TextsStandWhereTheyStood) {
  const StructureView& view = GetParam();
  const std::vector<PlacedText> texts = drawn(view);
  ASSERT_GE(texts.size(), 2u) << view.name;
  const char* const mode = std::getenv("GRADLOOM_TEST_STRUCTURE");
  if (mode != nullptr && std::string(mode) == "write") {
    std::ofstream out(file_of(view.name));
    for (const PlacedText& text : texts) out << text.line() << "\n";
    ASSERT_TRUE(out.flush().good()) << file_of(view.name);
    return;
  }
  const std::string kept = read(file_of(view.name));
  EXPECT_LT(kept.size(), 20'000u);
  EXPECT_EQ(difference(kept_texts(kept), texts), "")
      << "picture: " << picture("structure_" + view.name + ".png")
      << "; GRADLOOM_TEST_STRUCTURE=write keeps it";
}

INSTANTIATE_TEST_SUITE_P(Views, DesktopStructure, testing::ValuesIn(structure_views()),
                         [](const auto& view) { return view.param.name; });

// The comparison finds what it is for.
TEST(DesktopStructureComparison, FindsWhatIsMissingNewOrMoved) {
  const std::string svg =
      "<text x=\"10.0\" y=\"20.2\" font-size=\"13\">Kernels</text><text x=\"10.0\" y=\"40.0\" fill=\"#fff\">12.3 ms of 4 "
      "GiB</text><text x=\"90.0\" y=\"20.4\">time</text>";
  const std::vector<PlacedText> texts = texts_of(svg);
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_EQ(texts[0].line(), "10 20 Kernels");
  EXPECT_EQ(texts[1].line(), "90 20 time");
  EXPECT_EQ(texts[2].line(), "10 40 # of #");
  std::string file;
  for (const PlacedText& text : texts) file += text.line() + "\n";
  EXPECT_EQ(difference(kept_texts(file), texts), "");
  std::vector<PlacedText> moved = texts, fewer = texts, more = texts;
  moved[0].x += 30;
  EXPECT_EQ(difference(texts, moved), "not there: 10 20 Kernels\nnew: 40 20 Kernels\n");
  moved[0].x = texts[0].x + 3;
  EXPECT_EQ(difference(texts, moved), "");
  fewer.pop_back();
  EXPECT_EQ(difference(texts, fewer), "not there: 10 40 # of #\n");
  more.push_back({5, 60, "more"});
  EXPECT_EQ(difference(texts, more), "new: 5 60 more\n");
  std::swap(moved[0].y, moved[2].y);
  EXPECT_NE(difference(texts, moved), "") << "rows in another order";
}

TEST(DesktopStructureComparison, EveryFileIsOfAView) {
  std::map<std::string, bool> views;
  for (const StructureView& view : structure_views()) views[view.name + ".txt"] = true;
  for (const auto& entry : std::filesystem::directory_iterator(GRADLOOM_SOURCE_DIR "/tests/app/structure"))
    EXPECT_TRUE(views.count(entry.path().filename().string()) != 0) << entry.path();
}

}  // namespace
}  // namespace gradloom
