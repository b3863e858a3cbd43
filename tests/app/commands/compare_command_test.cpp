// gradloom compare: what it reports, and which flags go with what it compares.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

using CompareCommand = Commands;

TEST_F(CompareCommand, ReportsRatioAndLossDifference) {
  const Outcome o =
      run({"compare", model("mlp") + "/model.onnx", "--dim", "batch=8", "--loss", "ce:logits,labels",
           "--optimizer", "adam", "--data", "npz:" + model("mlp") + "/batches.npz", "--a", "passes=none",
           "--b", "passes=default", "--max-seconds", "4", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const json c = o.lines().back();
  const std::string verdict = c["verdict"];
  EXPECT_TRUE(verdict == "FASTER" || verdict == "SLOWER" || verdict == "SAME" || verdict == "UNSURE")
      << verdict;
}

// What is said beside two sides holds for both, or is refused.
TEST_F(CompareCommand, FlagsBesideTwoSidesHoldForBoth) {
  const std::string session = path("s.db"), a = session + "#1", b = session + "#2";
  ASSERT_EQ(run(train_mlp({"--steps", "4", "--session", session})).code, 0);
  ASSERT_EQ(run(train_mlp({"--steps", "4", "--session", session, "--passes", "none"})).code, 0);
  const Outcome o =
      run({"compare", a, b, "--passes", "none", "--max-seconds", "0.2", "--min-groups", "2", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const json compared = o.lines().back();
  ASSERT_FALSE(compared["kernels"].empty());
  for (const json& row : compared["kernels"]) EXPECT_EQ(row["a_kernels"], row["b_kernels"]) << row.dump();
  expect_error({"compare", a, b, "--planner", "nonsense"}, 2, "nonsense");
  expect_error({"compare", a, b, "--b", "passes=none"}, 2, "--a and --b");
  expect_error({"compare", a, b, "--recipe", a}, 2, "not both");
  expect_error({"compare", "1", "2", "--stored", "--session", session, "--threads", "2"}, 2,
               "without --threads");
  for (const auto& [flag, value] : {std::pair("--max-seconds", "5"), std::pair("--min-groups", "4"),
                                    std::pair("--exclude", "cse:x"), std::pair("--import-limit", "nodes=5")})
    expect_error({"compare", "1", "2", "--stored", "--session", session, flag, value}, 2,
                 std::string("without ") + flag);
  expect_error({"compare", "1", "2", "--stored", "--session", path("absent.db")}, 5, "absent.db");
  EXPECT_FALSE(fs::exists(path("absent.db")));
}

}  // namespace
}  // namespace gradloom
