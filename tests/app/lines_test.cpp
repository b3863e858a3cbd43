#include "app/lines.h"

#include <gtest/gtest.h>

#include <vector>

namespace gradloom {
namespace {

std::vector<std::string> lines_of(const std::vector<std::string>& pieces) {
  std::vector<std::string> lines;
  LineSplitter splitter;
  const auto keep = [&](std::string line) { lines.push_back(std::move(line)); };
  for (const std::string& piece : pieces) splitter.take(piece, keep);
  splitter.finish(keep);
  return lines;
}

TEST(LineSplitter, PutsPiecesTogether) {
  EXPECT_EQ(lines_of({"on", "e\n\ntw", "o\nthree"}), (std::vector<std::string>{"one", "", "two", "three"}));
  EXPECT_EQ(lines_of({"one\n"}), std::vector<std::string>{"one"});
  EXPECT_TRUE(lines_of({""}).empty());
}

TEST(LineSplitter, LeavesOutWhatIsNoLineOfOurs) {
  const std::string half(9 << 20, 'x');
  EXPECT_EQ(lines_of({"one\n", half, half, half, "end\ntwo\n"}), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(lines_of({half + "\n"}).at(0).size(), half.size());
}

}  // namespace
}  // namespace gradloom
