#include "viz/model/fuzzy.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

TEST(Fuzzy, LettersInOrder) {
  EXPECT_TRUE(fuzzy_score("rts", "Run training steps").has_value());
  EXPECT_TRUE(fuzzy_score("RUN", "run").has_value());
  EXPECT_FALSE(fuzzy_score("xyz", "Run training steps").has_value());
  EXPECT_FALSE(fuzzy_score("nur", "run").has_value());
}

TEST(Fuzzy, WordStartsAndRunsWin) {
  EXPECT_GT(*fuzzy_score("cr", "Compare runs"), *fuzzy_score("cr", "Second row"));
  EXPECT_GT(*fuzzy_score("run", "Run steps"), *fuzzy_score("run", "Remove unused node"));
}

TEST(Fuzzy, RankIsStableAndLimited) {
  const std::vector<std::string_view> texts{"Open model", "Export recipe", "Open session", "Compare"};
  EXPECT_EQ(fuzzy_rank("open", texts, 10), (std::vector<int>{0, 2}));
  EXPECT_EQ(fuzzy_rank("", texts, 2), (std::vector<int>{0, 1}));
  EXPECT_EQ(fuzzy_rank("recipe", texts, 10).front(), 1);
}

TEST(Fuzzy, SubstringIsFoundThoughTheGreedyWalkMissesIt) {
  EXPECT_EQ(fuzzy_rank("am", {"a/bam"}, 5), (std::vector<int>{0}));
}

}  // namespace
}  // namespace gradloom
