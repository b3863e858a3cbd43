// What becomes of local ranks once one of them has failed.
#include "app/rank_processes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/folder.h"

namespace gradloom {
namespace {

// Rank 1 fails. Rank 0 works on for longer than an idle one may, rank 2 only waits; neither heeds the request to end.
TEST(RankProcesses, WhoStillWorksIsLetFinish) {
  const TemporaryFolder folder;
  const std::string saved = folder / "saved", fifo = folder / "fifo",
                    script =
                        "trap '' TERM\n"
                        "case $RANK in\n"
                        "0) end=$(($(date +%s) + 9))\n"
                        "   while [ $(date +%s) -lt $end ]; do :; done\n"
                        "   : > '" +
                        saved +
                        "';;\n"
                        "1) exit 6;;\n"
                        "2) mkfifo '" +
                        fifo + "'; read line < '" + fifo +
                        "';;\n"
                        "esac\n";
  const auto end = run_by_themselves(3, {"/bin/sh", "-c", script}, {}, [] { return false; });
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_EQ(end->code, 6);
  EXPECT_EQ(end->cause, "") << "signals of this process are no cause";
  EXPECT_TRUE(std::filesystem::exists(saved)) << "rank 0 was not killed while it worked";
}

}  // namespace
}  // namespace gradloom
