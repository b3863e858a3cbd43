// The process as one rank: gradloom_ranks_*. What ranks do together is tested from Python (tests/app/python/ranks_test.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "app/embed/gradloom.h"

namespace {

TEST(RanksApi, WithoutALauncherThereIsOne) {
  EXPECT_EQ(gradloom_ranks_leave(), GRADLOOM_OK) << "nobody was met";
  EXPECT_EQ(gradloom_ranks_join(0, nullptr, nullptr, nullptr), GRADLOOM_USAGE);
  setenv("RANK", "2", 1);
  setenv("WORLD_SIZE", "2", 1);
  EXPECT_EQ(gradloom_ranks_join(1, nullptr, nullptr, nullptr), GRADLOOM_USAGE);
  EXPECT_NE(std::string(gradloom_last_error()).find("RANK=2"), std::string::npos);
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  int rank = -1, world = -1;
  EXPECT_EQ(gradloom_ranks_join(1, nullptr, &rank, &world), GRADLOOM_OK);
  EXPECT_EQ(rank, 0);
  EXPECT_EQ(world, 1);
  int number = 5;
  EXPECT_EQ(gradloom_ranks_share(&number, sizeof number), GRADLOOM_OK);
  EXPECT_EQ(number, 5);
  EXPECT_EQ(gradloom_ranks_share(&number, -1), GRADLOOM_USAGE);
}

}  // namespace
