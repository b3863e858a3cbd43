// Pages lead where they say: each link to a file of the tree finds it, and each "#name" a heading there.
#include <gtest/gtest.h>

#include <cctype>
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

const fs::path kTree = GRADLOOM_SOURCE_DIR;

struct Page {
  std::set<std::string> headings;  // as links name them
  std::vector<std::string> links;
};

// GitHub's way: small letters, no punctuation, a hyphen for each blank.
std::string name_of_heading(const std::string& heading) {
  std::string name;
  for (const char c : heading) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ' || c == '-') name += '-';
    if (std::isalnum(byte) != 0 || c == '_' || byte > 127)
      name += static_cast<char>(byte > 127 ? byte : std::tolower(byte));
  }
  return name;
}

Page read_page(const fs::path& file) {
  static const std::regex kLink(R"(\]\(([^)\s]+)\))");
  Page page;
  std::ifstream in(file);
  bool code = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("```")) code = !code;
    if (code) continue;
    if (line.starts_with("#")) page.headings.insert(name_of_heading(line.substr(line.find(' ') + 1)));
    for (std::sregex_iterator link(line.begin(), line.end(), kLink), end; link != end; ++link)
      page.links.push_back((*link)[1]);
  }
  return page;
}

std::map<fs::path, Page> read_pages() {
  std::map<fs::path, Page> pages;
  const auto add = [&](const fs::path& file) {
    if (file.extension() == ".md") pages[file.lexically_normal()] = read_page(file);
  };
  for (const auto& entry : fs::directory_iterator(kTree)) add(entry.path());
  for (const char* folder :
       {"app", "bench", "docs", "engine", "kernels", "passes", "profiler", "sessions", "tests", "viz"})
    for (const auto& entry : fs::recursive_directory_iterator(kTree / folder)) add(entry.path());
  return pages;
}

TEST(Pages, LeadWhereTheySay) {
  const std::map<fs::path, Page> pages = read_pages();
  int followed = 0;
  for (const auto& [file, page] : pages)
    for (const std::string& link : page.links) {
      if (link.find("://") != std::string::npos) continue;
      const std::size_t mark = link.find('#');
      const std::string path = link.substr(0, mark);
      const fs::path to = path.empty() ? file : (file.parent_path() / path).lexically_normal();
      EXPECT_TRUE(fs::exists(to)) << file << " leads to " << link;
      ++followed;
      if (mark == std::string::npos) continue;
      const auto target = pages.find(to);
      ASSERT_NE(target, pages.end()) << file << " leads to " << link;
      EXPECT_TRUE(target->second.headings.count(link.substr(mark + 1)) != 0) << file << " leads to " << link;
    }
  EXPECT_GT(followed, 50);
}

// What a newcomer reads first says what there is; docs/features.md has the rest.
TEST(Pages, TheFirstFitsOnThreeScreens) {
  std::ifstream in(kTree / "README.md");
  int lines = 0;
  for (std::string line; std::getline(in, line);) ++lines;
  EXPECT_GT(lines, 80);
  EXPECT_LE(lines, 180);
}

TEST(Pages, HeadingsAreNamedAsGitHubDoes) {
  EXPECT_EQ(name_of_heading("What stands, and what does not yet"), "what-stands-and-what-does-not-yet");
  EXPECT_EQ(name_of_heading("`app/embed`: the C front"), "appembed-the-c-front");
}

}  // namespace
