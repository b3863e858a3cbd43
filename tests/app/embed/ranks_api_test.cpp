// The process as one rank: gradloom_ranks_*. What ranks do together is tested from Python (tests/app/python/ranks_test.py).
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "app/embed/gradloom.h"
#include "tests/paths.h"

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

// Whoever asks meanwhile is answered at once.
TEST(RanksApi, NobodyWaitsForAThreadThatMeetsTheOthers) {
  const std::string program = GRADLOOM_COMMAND;
  setenv("GRADLOOM_PLUGINS", program.substr(0, program.rfind('/')).c_str(), 0);
  for (const auto& [name, value] : {std::pair("RANK", "1"), std::pair("WORLD_SIZE", "2"),
                                    std::pair("MASTER_ADDR", "127.0.0.1"), std::pair("MASTER_PORT", "1")})
    setenv(name, value, 1);  // nobody is there
  std::int32_t stop = 0;
  std::atomic<bool> ended{false};
  int met = -1;
  std::thread meeting([&] {
    met = gradloom_ranks_join(600, &stop, nullptr, nullptr);
    ended = true;
  });
  std::string told;
  std::int32_t at_once = 1;  // one that finds no other thread there gives up by itself
  while (!ended && told.find("another thread") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_NE(gradloom_ranks_join(600, &at_once, nullptr, nullptr), GRADLOOM_OK);
    told = gradloom_last_error();
  }
  EXPECT_FALSE(ended) << "it still waits for rank 0";
  EXPECT_EQ(told, "another thread of this process is meeting the other ranks");
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  meeting.join();
  EXPECT_EQ(met, GRADLOOM_INTERRUPTED);
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
}

}  // namespace
