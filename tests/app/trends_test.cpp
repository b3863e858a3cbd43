// gradloom trends: the change that was made, found and named.
#include "app/trends.h"

#include <thread>

#include "tests/app/command_fixture.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom {
namespace {

class Trends : public Commands {
 protected:
  // A run whose steps take so long, and whose first kernel takes what is more than 10 us of it.
  void add_run(Store& store, std::int64_t step_ns, const std::string& recipe, const std::string& git_id,
               const std::string& model_hash = "m") {
    const auto t = test::tiny_step(false);
    RunStart start = test::tiny_start("");
    start.model_hash = model_hash;
    start.recipe_json = recipe;
    start.environment["git_id"] = git_id;
    start.environment["source.commit"] = std::string(40, git_id[0]);
    start.environment["source.changed"] = "no";
    auto run = store.begin_run(start);
    ASSERT_TRUE(run.ok());
    ASSERT_TRUE((*run)->write_plan(t.graph, t.plan, t.reports).ok());
    for (std::int64_t i = 1; i <= 6; ++i) {
      auto samples = test::tiny_samples(t, i, 100);
      samples.front().duration_ns += step_ns - 10'000;
      const StepRow row{i, 1, step_ns, 0.1, -1, i > 3};
      ASSERT_TRUE((*run)->add_step(row, row.timed ? samples : std::vector<KernelSample>{}).ok());
    }
    ASSERT_TRUE((*run)->finish({}).ok());
  }
  std::string session(const std::string& name, int before, int after) {
    const auto store = Store::open(path(name), StoreMode::write);
    EXPECT_TRUE(store.ok());
    for (int i = 0; i < before; ++i)
      add_run(**store, 20'000 + i % 3 * 100, R"({"clip_norm":1,"seed":1})", "aaa");
    for (int i = 0; i < after; ++i)
      add_run(**store, 30'000 + i % 3 * 100, R"({"clip_norm":0,"seed":2})", "bbb");
    return path(name);
  }
};

TEST_F(Trends, AChangeIsNamedBySettingsMachineAndKernel) {
  const auto found = find_trends({session("s.db", 10, 5)}, {}, {});
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->size(), 1u);
  const Trend& trend = found->front();
  EXPECT_EQ(trend.runs.size(), 15u);
  ASSERT_EQ(trend.changes.size(), 1u);
  const TrendChange& change = trend.changes.front();
  EXPECT_EQ(change.point.at, 10u);
  EXPECT_TRUE(change.slower());
  EXPECT_EQ(change.settings, (std::vector<std::string>{"clip_norm: 1 -> 0",
                                                       "commit of the recipe: aaaaaaaaaaaa -> bbbbbbbbbbbb"}))
      << "the seed is no cause";
  EXPECT_EQ(change.machine, std::vector<std::string>{"git_id: aaa -> bbb"});
  ASSERT_FALSE(change.kernels.empty());
  EXPECT_NEAR(change.kernels.front().after_ns - change.kernels.front().before_ns, 10'000, 300);
  EXPECT_NEAR(change.kernels.at(1).after_ns, change.kernels.at(1).before_ns, 1);
}

TEST_F(Trends, ModelsAndSessionsAreToldApart) {
  const std::string first = session("a.db", 6, 0), second = session("b.db", 6, 0);
  {
    const auto store = Store::open(second, StoreMode::write);
    ASSERT_TRUE(store.ok());
    for (int i = 0; i < 4; ++i) add_run(**store, 90'000, "{}", "aaa", "other");
  }
  const auto found = find_trends({first, second, first}, {}, {});
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 2u);
  for (const Trend& trend : *found) EXPECT_TRUE(trend.changes.empty());
  EXPECT_EQ(found->at(0).runs.size() + found->at(1).runs.size(), 16u)
      << "a session that is named twice counts once";
}

TEST_F(Trends, TheCommandTellsAndChecks) {
  const std::string slower = session("s.db", 10, 5), steady = session("t.db", 12, 0);
  const Outcome text = run({"trends", slower});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("SLOWER since run 11"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("setting  clip_norm: 1 -> 0"), std::string::npos) << text.out;
  const json told = run({"trends", slower, "--json"}).lines().front();
  EXPECT_EQ(told["changes"].size(), 1u);
  EXPECT_EQ(told["runs"].size(), 15u);
  EXPECT_EQ(told["changes"][0]["kernels"].size(), 1u) << "those that account for it";
  ASSERT_EQ(told["levels"].size(), 2u);
  EXPECT_EQ(told["levels"][1]["from"], 10);
  EXPECT_EQ(told["levels"][1]["median_ns"], 30'100);
  EXPECT_TRUE(told["baselines"].empty());
  ASSERT_EQ(run({"runs", slower, "--pin", "3"}).code, 0);
  const json pinned = run({"trends", slower, "--json"}).lines().front();
  EXPECT_EQ(pinned["baselines"][0]["at"], 2);
  EXPECT_NEAR(pinned["baselines"][0]["ratio"], 30'100.0 / 20'200, 1e-9);
  EXPECT_EQ(pinned["runs"][2]["pinned"], true);
  EXPECT_NE(run({"trends", slower}).out.find("1.49x as long as the pinned run 3"), std::string::npos);
  EXPECT_EQ(run({"trends", slower, "--check"}).code, 1);
  EXPECT_EQ(run({"trends", steady, "--check"}).code, 0);
  EXPECT_EQ(run({"trends", slower, "--check", "--least", "60"}).code, 0);
  EXPECT_EQ(run({"trends", slower, "--models", "nothing*"}).out, "no finished runs\n");
  expect_error({"trends", path("none.db")}, 5, "none.db");
  expect_error({"trends"}, 2, "SESSION");
}

}  // namespace
}  // namespace gradloom
