// Style that a test can hold: include directions of ARCHITECTURE.md, lengths, names, one operator
// list without orphans, no leftovers. Over the sources, and what concerns all code over tests and
// benches too.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/paths.h"
#include "tests/tidy/scan.h"

namespace {
namespace fs = std::filesystem;

const fs::path kRoot = GRADLOOM_SOURCE_DIR;

struct Source {
  std::string path;  // relative
  std::vector<std::string> lines;
  bool is(const char* extension) const { return path.ends_with(extension); }
};

// Of these top folders, files of these endings.
std::vector<Source> read_files(const std::vector<std::string>& folders,
                               const std::set<std::string>& endings) {
  std::vector<Source> list;
  for (const std::string& folder : folders)
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (!endings.count(entry.path().extension()) || !entry.is_regular_file()) continue;
      Source s{fs::relative(entry.path(), kRoot).string(), {}};
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) s.lines.push_back(line);
      list.push_back(std::move(s));
    }
  std::sort(list.begin(), list.end(), [](const Source& a, const Source& b) { return a.path < b.path; });
  return list;
}

const std::set<std::string> kCode{".h", ".cpp", ".def", ".cu"};
const std::vector<std::string> kFolders{"kernels", "engine", "passes", "profiler", "sessions", "viz", "app"};

constexpr const char* kDrawing[] = {"viz/draw/", "app/desktop/", "tests/viz/"};  // know the GUI library

const std::vector<Source>& sources() {
  static const std::vector<Source> list = read_files(kFolders, kCode);
  return list;
}
const std::vector<Source>& tests() {
  static const std::vector<Source> list = read_files({"tests", "bench"}, kCode);
  return list;
}
std::vector<Source> all_code() {
  std::vector<Source> list = sources();
  list.insert(list.end(), tests().begin(), tests().end());
  return list;
}

tidy::Scan scan_of(const Source& source) {
  std::string text;
  for (const std::string& line : source.lines) text += line + "\n";
  return tidy::scan(text);
}

// What the file includes of ours: the paths that exist (others are generated, or a library's).
std::vector<std::string> includes(const Source& source) {
  std::vector<std::string> list;
  for (const std::string& line : source.lines) {
    if (line.rfind("#include \"", 0) != 0) continue;
    const std::string included = line.substr(10, line.find('"', 10) - 10);
    if (fs::exists(kRoot / included)) list.push_back(included);
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

using Rows = std::map<std::string, std::set<std::string>>;  // what a layer may include

std::set<std::string> plus(std::set<std::string> set, std::initializer_list<const char*> more) {
  for (const char* m : more) set.insert(m);
  return set;
}

Rows rows_of_the_map() {
  const std::vector<std::string> engine{"engine/base",   "engine/ranks",    "engine/ir",    "engine/ops",
                                        "engine/onnx",   "engine/autodiff", "engine/train", "engine/plan",
                                        "engine/device", "engine/run"};
  Rows allowed;
  allowed["kernels"] = {"kernels"};
  std::set<std::string> below{"kernels"};
  for (const std::string& e : engine) {
    below.insert(e);
    allowed[e] = below;
  }
  allowed["passes"] = plus(below, {"passes"});
  allowed["profiler"] = plus(below, {"profiler"});
  allowed["sessions"] = plus(below, {"passes", "profiler", "sessions"});
  allowed["viz/layout"] = {"viz/layout"};
  allowed["viz/model"] = plus(allowed["sessions"], {"viz/layout", "viz/model"});
  allowed["viz/report"] = plus(allowed["viz/model"], {"viz/report"});
  allowed["viz/draw"] = plus(allowed["viz/model"], {"viz/draw"});
  allowed["app"] = plus(allowed["viz/draw"], {"viz/report", "app"});
  return allowed;
}

TEST(Tidy, IncludesFollowTheArchitecture) {
  const Rows allowed = rows_of_the_map();
  for (const Source& s : sources())
    for (const std::string& included : includes(s))
      EXPECT_TRUE(allowed.at(layer(s.path)).count(layer(included))) << s.path << " includes " << included;
}

// "tests/kernels", "bench", "tests" for what all tests share; else the layer.
std::string test_layer(const std::string& path) {
  const std::size_t first = path.find('/');
  if (path.rfind("bench/", 0) == 0) return "bench";
  if (path.rfind("tests/", 0) != 0) return layer(path);
  const std::size_t second = path.find('/', first + 1);
  return path.substr(0, second == std::string::npos ? first : second);
}

// A test uses what its folder may and, to make and run what it tests, the engine; helpers come from
// its own folder and from those below. Nothing includes a test.
TEST(Tidy, IncludesOfTestsFollowTheirFolders) {
  const Rows map = rows_of_the_map();
  const std::set<std::string> engine = map.at("engine/run");
  Rows allowed;
  allowed["tests"] = {"tests"};
  allowed["tests/kernels"] = {"kernels", "engine/device", "tests", "tests/kernels"};
  allowed["tests/engine"] = plus(engine, {"tests", "tests/kernels", "tests/engine"});
  const std::set<std::string> below = plus(engine, {"tests", "tests/engine"});
  allowed["tests/passes"] = plus(below, {"passes", "tests/passes"});
  allowed["tests/profiler"] = plus(below, {"profiler", "tests/profiler"});
  allowed["tests/sessions"] =
      plus(below, {"passes", "profiler", "sessions", "tests/profiler", "tests/sessions"});
  allowed["tests/viz"] = plus(map.at("viz/draw"), {"viz/report", "tests", "tests/viz"});
  allowed["tests/app"] = plus(map.at("app"), {"tests", "tests/engine", "tests/passes", "tests/profiler",
                                              "tests/sessions", "tests/app"});
  allowed["tests/hostile"] = plus(map.at("app"), {"tests", "tests/hostile"});
  allowed["tests/fuzz"] = plus(map.at("app"), {"tests", "tests/engine", "tests/hostile", "tests/fuzz"});
  allowed["tests/tidy"] = {"tests/tidy"};
  allowed["bench"] = plus(map.at("app"), {"bench"});
  for (const Source& s : tests()) {
    ASSERT_TRUE(allowed.count(test_layer(s.path))) << s.path << " is in a folder without a row";
    for (const std::string& included : includes(s))
      EXPECT_TRUE(allowed[test_layer(s.path)].count(test_layer(included)))
          << s.path << " includes " << included;
  }
}

// A family of operators includes its own files and what all rows share; a trade of the importer
// those before it.
TEST(Tidy, RoomsOfTheEngineAreApart) {
  const std::regex family("engine/ops/([a-z]+)/.*"), trade("engine/onnx/([a-z]+)/.*");
  const std::vector<std::string> trades{"file", "repair", "expand", "read", "write"};
  const auto rank = [&](const std::string& name) { return std::find(trades.begin(), trades.end(), name); };
  // Elementwise statements and products are what other families' kernels are made of.
  const std::set<std::string> languages{"elementwise", "products"};
  for (const Source& s : sources())
    for (const std::string& included : includes(s)) {
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
  for (const Source& s : all_code())
    for (const std::string& line : s.lines)
      if (line.rfind("#include", 0) == 0 && line.find("imgui") != std::string::npos) {
        EXPECT_TRUE(std::any_of(std::begin(kDrawing), std::end(kDrawing), [&](const char* folder) {
          return s.path.rfind(folder, 0) == 0;
        })) << s.path;
      }
}

TEST(Tidy, FilesHaveABannerAndReasonableLength) {
  for (const Source& s : all_code()) {
    ASSERT_FALSE(s.lines.empty()) << s.path;
    EXPECT_LE(s.lines.size(), 620u) << s.path;
    if (s.is(".h")) {
      const bool plain_c = s.path == "app/embed/gradloom.h" || s.path == "engine/ops/custom/gradloom_op.h";
      EXPECT_EQ(s.lines[0].rfind(plain_c ? "/*" : "//", 0), 0u) << s.path << " has no banner";
    }
  }
}

TEST(Tidy, ScriptsHaveReasonableLengthToo) {
  std::vector<std::string> folders = kFolders;
  for (const char* more : {"tests", "bench", "docs"}) folders.emplace_back(more);
  const std::vector<Source> scripts = read_files(folders, {".py", ".sh"});
  EXPECT_GT(scripts.size(), 50u);
  for (const Source& s : scripts) EXPECT_LE(s.lines.size(), 620u) << s.path;
}

// A declaration whose remark does not fit behind it has it above: clang-format would tear it apart, its type (or what
// comes before a parenthesis, or a const) on a line of its own and the rest beside the remark.
TEST(Tidy, RemarksTearNoDeclaration) {
  const std::regex torn(R"(\s*[A-Za-z_][\w:<>,*& ()]*[\w>*()])"), rest(R"((\s+)[^\s/].*[;,{]\s*//.*)");
  for (const Source& s : sources())
    for (std::size_t i = 0; i + 1 < s.lines.size(); ++i) {
      const std::string &line = s.lines[i], &next = s.lines[i + 1];
      if (next.find("//") == std::string::npos || line.find("//") != std::string::npos) continue;
      const std::size_t indent = line.find_first_not_of(' ');
      if (indent == std::string::npos) continue;
      const std::size_t behind = next.find_first_not_of(' ') - indent;  // 0: a function's name
      if (behind != 4 && (behind != 0 || next.find('(') == std::string::npos)) continue;
      EXPECT_FALSE(std::regex_match(line, torn) && std::regex_match(next, rest))
          << s.path << ":" << i + 1 << ": " << line << next;
    }
}

TEST(Tidy, FunctionsFitOnAScreen) {
  std::size_t functions = 0;
  for (const Source& s : all_code()) {
    if (s.is(".def")) continue;
    const tidy::Scan scan = scan_of(s);
    functions += scan.functions.size();
    for (const tidy::Function& f : scan.functions)
      EXPECT_LE(f.length, 70u) << s.path << ":" << f.line << ": " << f.head;
  }
  EXPECT_GT(functions, 6000u) << "the scanner overlooks functions";
}

// Two classes of one name in different folders end up in one program, where the linker takes either
// one's members.
TEST(Tidy, ATypeIsDefinedOnce) {
  // The plugins' handles: every plugin has its own.
  const std::set<std::string> handles{"GpuContext", "GpuGraph", "GpuModule"};
  std::map<std::string, std::string> folder_of;
  for (const Source& s : all_code()) {
    if (s.is(".def")) continue;
    const std::string folder = s.path.substr(0, s.path.rfind('/'));
    for (const std::string& type : scan_of(s).types) {
      if (handles.count(type)) continue;
      const auto [at, fresh] = folder_of.emplace(type, folder);
      EXPECT_TRUE(fresh || at->second == folder)
          << type << " is defined in " << folder << " and " << at->second;
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

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The word stands there, not as a part of a longer one.
bool holds_word(const std::string& line, const std::string& word) {
  for (std::size_t at = line.find(word); at != std::string::npos; at = line.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_word(line[at - 1])) && (end == line.size() || !is_word(line[end]))) return true;
  }
  return false;
}

// The words are put together here, so that this file holds none.
TEST(Tidy, NoLeftovers) {
  const auto word = [](const char* begin, const char* end) { return std::string(begin) + end; };
  const std::vector<std::string> banned{word("TO", "DO"), word("FIX", "ME"), word("XX", "X"),
                                        word("HA", "CK")};
  const std::string format = word("std::", "format"), names = word("using namespace ", "std;");
  for (const Source& s : all_code())
    for (std::size_t i = 0; i < s.lines.size(); ++i) {
      const std::string& line = s.lines[i];
      const bool found =
          line.find(format) != std::string::npos || line.find(names) != std::string::npos ||
          std::any_of(banned.begin(), banned.end(), [&](const auto& one) { return holds_word(line, one); });
      EXPECT_FALSE(found) << s.path << ":" << i + 1 << ": " << line;
    }
}

// An error leaves from between the memory that `new` has taken and the object, and the memory stays.
TEST(Tidy, NothingLeavesFromWithinNew) {
  const std::string leaves = std::string("TRY") + "(";
  for (const Source& s : all_code())
    for (std::size_t i = 0; i < s.lines.size(); ++i) {
      const std::string code = s.lines[i].substr(0, s.lines[i].find("//"));
      std::size_t at = code.find("new ");
      if (at > 0 && at != std::string::npos && is_word(code[at - 1])) at = std::string::npos;
      EXPECT_EQ(at == std::string::npos ? at : code.find(leaves, at), std::string::npos)
          << s.path << ":" << i + 1 << ": " << code;
    }
}

// Code, scripts and prose hold on any machine: no folder of the one where they were written. The
// names are put together here, so that this file holds none.
TEST(Tidy, NoPathsOfOneMachine) {
  std::vector<std::string> folders = kFolders;
  for (const char* more : {"tests", "bench", "docs"}) folders.emplace_back(more);
  std::vector<Source> files = read_files(
      folders, {".h", ".cpp", ".def", ".cu", ".py", ".sh", ".md", ".sql", ".txt", ".cmake", ".json"});
  for (const char* name : {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CMakeLists.txt", "dev"}) {
    Source s{name, {}};
    std::ifstream in(kRoot / name);
    for (std::string line; std::getline(in, line);) s.lines.push_back(line);
    files.push_back(std::move(s));
  }
  for (const Source& s : files)
    for (std::size_t i = 0; i < s.lines.size(); ++i)
      for (const std::string name : {"work", "root", "home", "Users"}) {
        const std::string folder = "/" + name + "/";
        const std::size_t at = s.lines[i].find(folder);
        if (at == std::string::npos) continue;
        const bool absolute =
            at == 0 || !(is_word(s.lines[i][at - 1]) ||
                         std::string("./}>*$").find(s.lines[i][at - 1]) != std::string::npos);
        EXPECT_FALSE(absolute) << s.path << ":" << i + 1 << ": " << s.lines[i];
      }
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
