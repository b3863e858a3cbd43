// Style that a test can hold: include directions of ARCHITECTURE.md,
// one operator/pass list without orphans, no leftovers.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/paths.h"

namespace {
namespace fs = std::filesystem;

const fs::path kRoot = GRADLOOM_SOURCE_DIR;

struct Source {
  std::string path;  // relative
  std::vector<std::string> lines;
};

std::vector<Source> sources() {
  std::vector<Source> list;
  for (const char* folder : {"kernels", "engine", "passes", "profiler", "sessions", "viz", "app"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string ext = entry.path().extension();
      if (ext != ".h" && ext != ".cpp" && ext != ".def" && ext != ".cu") continue;
      Source s{fs::relative(entry.path(), kRoot).string(), {}};
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) s.lines.push_back(line);
      list.push_back(std::move(s));
    }
  return list;
}

// The part of a path that has a rule of its own: "engine/ops", "viz/draw", "passes".
std::string layer(const std::string& path) {
  const std::size_t first = path.find('/');
  const std::string top = path.substr(0, first);
  if (top != "engine" && top != "viz") return top;
  return path.substr(0, path.find('/', first + 1));
}

TEST(Tidy, IncludesFollowTheArchitecture) {
  const std::vector<std::string> engine{"engine/base", "engine/ir",       "engine/ops",
                                        "engine/onnx", "engine/autodiff", "engine/train",
                                        "engine/plan", "engine/device",   "engine/run"};
  std::map<std::string, std::set<std::string>> allowed;
  allowed["kernels"] = {"kernels"};
  std::set<std::string> below{"kernels"};
  for (const std::string& e : engine) {
    below.insert(e);
    allowed[e] = below;
  }
  const auto plus = [](std::set<std::string> set, std::initializer_list<const char*> more) {
    for (const char* m : more) set.insert(m);
    return set;
  };
  allowed["passes"] = plus(below, {"passes"});
  allowed["profiler"] = plus(below, {"profiler"});
  allowed["sessions"] = plus(below, {"passes", "profiler", "sessions"});
  allowed["viz/layout"] = {"viz/layout"};
  allowed["viz/model"] = plus(allowed["sessions"], {"viz/layout", "viz/model"});
  allowed["viz/draw"] = plus(allowed["viz/model"], {"viz/draw"});
  allowed["app"] = plus(allowed["viz/draw"], {"app"});
  for (const Source& s : sources())
    for (const std::string& line : s.lines) {
      if (line.rfind("#include \"", 0) != 0) continue;
      const std::string included = line.substr(10, line.find('"', 10) - 10);
      if (!fs::exists(kRoot / included)) continue;  // generated, or a library's
      EXPECT_TRUE(allowed[layer(s.path)].count(layer(included))) << s.path << " includes " << included;
    }
}

// A family of operators includes its own files and what all rows share; a trade of the importer those before it.
TEST(Tidy, RoomsOfTheEngineAreApart) {
  const std::regex family("engine/ops/([a-z]+)/.*"), trade("engine/onnx/([a-z]+)/.*");
  const std::vector<std::string> trades{"file", "repair", "expand", "read"};
  const auto rank = [&](const std::string& name) { return std::find(trades.begin(), trades.end(), name); };
  // Elementwise statements and products are what other families' kernels are made of.
  const std::set<std::string> languages{"elementwise", "products"};
  for (const Source& s : sources())
    for (const std::string& line : s.lines) {
      if (line.rfind("#include \"", 0) != 0) continue;
      const std::string included = line.substr(10, line.find('"', 10) - 10);
      std::smatch from, to;
      if (std::regex_match(s.path, from, family) && std::regex_match(included, to, family) &&
          !languages.count(to[1])) {
        EXPECT_EQ(from[1], to[1]) << s.path << " includes " << included;
      }
      if (std::regex_match(s.path, from, trade)) {
        ASSERT_NE(rank(from[1]), trades.end()) << s.path << " is of no trade";
        EXPECT_NE(included, "engine/onnx/import.h") << s.path;
        if (std::regex_match(included, to, trade)) {
          EXPECT_LE(rank(to[1]), rank(from[1])) << s.path << " includes " << included;
        }
      }
    }
}

TEST(Tidy, OnlyDrawingKnowsTheGuiLibrary) {
  for (const Source& s : sources())
    for (const std::string& line : s.lines)
      if (line.rfind("#include", 0) == 0 && line.find("imgui") != std::string::npos) {
        EXPECT_TRUE(s.path.rfind("viz/draw/", 0) == 0 || s.path.rfind("app/desktop/", 0) == 0) << s.path;
      }
}

TEST(Tidy, FilesHaveABannerAndReasonableLength) {
  for (const Source& s : sources()) {
    ASSERT_FALSE(s.lines.empty()) << s.path;
    EXPECT_LE(s.lines.size(), 620u) << s.path;
    if (s.path.size() > 2 && s.path.substr(s.path.size() - 2) == ".h") {
      EXPECT_EQ(s.lines[0].rfind("//", 0), 0u) << s.path << " has no banner";
    }
  }
}

TEST(Tidy, TheMapFitsOnAPage) {
  std::ifstream map(kRoot / "ARCHITECTURE.md");
  int lines = 0;
  for (std::string line; std::getline(map, line); ++lines) {
  }
  EXPECT_GT(lines, 40);
  EXPECT_LE(lines, 90);
}

TEST(Tidy, NoLeftovers) {
  const std::regex banned("\\b(TODO|FIXME|XXX|HACK)\\b|std::format|using namespace std;");
  for (const Source& s : sources())
    for (std::size_t i = 0; i < s.lines.size(); ++i)
      EXPECT_FALSE(std::regex_search(s.lines[i], banned)) << s.path << ":" << i + 1 << ": " << s.lines[i];
}

TEST(Tidy, EveryOperatorFileIsListed) {
  std::ifstream list(kRoot / "engine/ops/ops.def");
  std::set<std::string> listed;
  for (std::string line; std::getline(list, line);) {
    std::smatch match;
    if (std::regex_search(line, match, std::regex("^OP\\((\\w+)\\)"))) {
      EXPECT_TRUE(listed.insert(match[1]).second) << match[1] << " is listed twice";
    }
  }
  std::set<std::string> defined;
  for (const Source& s : sources()) {
    if (s.path.rfind("engine/ops/", 0) != 0 || s.path == "engine/ops/ops.def") continue;
    for (const std::string& line : s.lines) {
      std::smatch match;
      if (std::regex_search(line, match, std::regex("^(extern )?const OpDef (\\w+)_op\\b.*[={]")))
        defined.insert(match[2]);
    }
  }
  for (const std::string& name : defined)
    EXPECT_TRUE(listed.count(name)) << name << "_op is defined but not in ops.def";
}

}  // namespace
