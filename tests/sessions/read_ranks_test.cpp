// Runs of several ranks: what each did, who kept the others waiting, and files that say otherwise.
#include "sessions/rank_rows.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "engine/ops/collectives/adasum.h"
#include "engine/ops/collectives/all_reduce.h"
#include "engine/ops/collectives/exchange_rows.h"
#include "engine/ops/collectives/reduce_gradients.h"
#include "engine/ops/collectives/share_parameters.h"
#include "sessions/rank_lines.h"
#include "sessions/recipe.h"
#include "sessions/store.h"
#include "tests/sessions/forged_session.h"
#include "tests/sessions/session_fixture.h"
#include "tests/sessions/views_10.h"

namespace gradloom {
namespace {

using test::error_of;
using test::SessionTest;
using test::tiny_samples;
using test::tiny_start;
using test::tiny_step;
using test::TinyStep;

class RankRowsTest : public SessionTest {
 protected:
  // Two ranks of which the second computes twice as long. Every third step is timed; its update waits for the exchange that the
  // first backward kernel begins, or makes it itself.
  std::int64_t write_run(int steps, const OpDef& exchange = all_reduce_wait_op()) {
    TinyStep t = tiny_step(false);
    t.graph.nodes[2].op = &all_reduce_begin_op();
    t.graph.nodes[4].op = &exchange;
    auto store = Store::open(file("s.db"), StoreMode::write);
    EXPECT_TRUE(store.ok()) << error_of(store);
    auto run = (*store)->begin_run(tiny_start());
    EXPECT_TRUE(run.ok()) << error_of(run);
    EXPECT_TRUE((*run)->write_plan(t.graph, t.plan, t.reports).ok());
    EXPECT_TRUE(
        (*run)
            ->write_ranks({{0, "a", 0, 2, "one cpu", 0, 0},
                           {1, "b\x1b[2J", 0, 2, "another", -5, 3, {{"isa", "v3"}, {"load_before", "1"}}}})
            .ok());
    for (int step = 1; step <= steps; ++step) {
      const bool timed = step % 3 == 2;
      if (timed) {
        RankStep times;
        for (const KernelSample& s : tiny_samples(t, step, 2000)) times.samples.emplace_back(1, s);
        const std::int64_t start = step * 1'000'000;
        times.exchanges = {{0, 0, 2, start + 6000, 9000, 0, 100}, {1, 0, 2, start + 10000, 5000, 0, 100}};
        set_waits(times.exchanges);
        (*run)->add_rank_step(step, std::move(times));
      }
      EXPECT_TRUE((*run)
                      ->add_step({.step = step, .loss = 1, .step_ns = 20000, .timed = timed},
                                 timed ? tiny_samples(t, step) : std::vector<KernelSample>())
                      .ok());
    }
    RunFinish end;
    end.rank_environments = {{{"isa", "v4"}}, {{"isa", "v3"}, {"load_after", "2"}}};
    EXPECT_TRUE((*run)->finish(end).ok());
    return (*run)->id();
  }
  // A run of three steps in a file of its own, run 1, that an edit damages.
  void expect_damage(const std::string& sql, const std::string& why) {
    std::filesystem::remove(file("s.db"));
    ASSERT_EQ(write_run(3), 1);
    const test::ForgedSession forged(file("s.db"));
    ASSERT_TRUE(forged.execute(sql).ok());
    forged.finish();
    auto store = Store::open(file("s.db"), StoreMode::read);
    ASSERT_TRUE(store.ok()) << error_of(store);
    const auto run = (*store)->load_run(1);
    ASSERT_FALSE(run.ok()) << sql;
    EXPECT_NE(run.error().message.find(why), std::string::npos) << run.error().message;
  }
  // Exposed and computing time of rank 0's third step, as the program reads them and in the view.
  std::array<double, 4> times_of(std::int64_t id) {
    auto store = Store::open(file("s.db"), StoreMode::read);
    EXPECT_TRUE(store.ok()) << error_of(store);
    const auto run = (*store)->load_run(id);
    EXPECT_TRUE(run.ok()) << error_of(run);
    auto database = Database::open(file("s.db"), SQLITE_OPEN_READONLY);
    auto row = database->prepare("SELECT exposed_ns, kernels_ns FROM v_ranks WHERE rank = 0");
    EXPECT_TRUE(row.ok()) << error_of(row);
    EXPECT_TRUE(*row->row());
    return {run->ranks.at(0).exposed_ns, run->ranks[0].kernels_ns, static_cast<double>(row->integer(0)),
            static_cast<double>(row->integer(1))};
  }
};

TEST_F(RankRowsTest, SharesAreMediansOfTheTimedSteps) {
  const std::int64_t id = write_run(9);
  auto store = Store::open(file("s.db"), StoreMode::read);
  ASSERT_TRUE(store.ok());
  EXPECT_TRUE((*store)->check(id).ok()) << error_of((*store)->check(id));
  const auto run = (*store)->load_run(id);
  ASSERT_TRUE(run.ok()) << error_of(run);
  ASSERT_EQ(run->ranks.size(), 2u);
  const RankShares& a = run->ranks[0];
  const RankShares& b = run->ranks[1];
  EXPECT_EQ(a.rank.host, "a");
  EXPECT_EQ(b.rank.clock_offset_ns, -5);
  EXPECT_EQ(a.steps, 2) << "5 and 8: the second step warms up";
  EXPECT_DOUBLE_EQ(a.kernels_ns, 4006) << "four kernels that compute";
  EXPECT_DOUBLE_EQ(a.exposed_ns, 1004) << "one that waits";
  EXPECT_DOUBLE_EQ(a.exchange_ns, 9000);
  EXPECT_DOUBLE_EQ(a.wait_ns, 4000) << "until rank 1 is ready";
  EXPECT_DOUBLE_EQ(a.transfer_ns(), 5000);
  EXPECT_DOUBLE_EQ(b.kernels_ns, 8006);
  EXPECT_DOUBLE_EQ(b.wait_ns, 0);
  EXPECT_DOUBLE_EQ(b.sent_bytes, 100);
}

TEST_F(RankRowsTest, KernelsOfEveryExchangeStandStill) {
  const std::array<double, 4> stands{1004, 4006, 1004, 4006};
  static const OpDef further{.name = "AnotherExchange", .exchange = RankExchange::sum};
  for (const OpDef* op : {&all_reduce_op(), &all_reduce_sum_op(), &all_reduce_adasum_op(),
                          &all_reduce_wait_op(), &share_parameters_op(), &further}) {
    std::filesystem::remove(file("s.db"));
    EXPECT_EQ(times_of(write_run(3, *op)), stands) << op->name;
  }
  for (const OpDef* op : {&reduce_gradients_op(), &gather_parameters_op(), &all_reduce_result_op()}) {
    std::filesystem::remove(file("s.db"));
    write_run(3, *op);
    EXPECT_EQ(times_of(1)[0], 0) << op->name;
  }
}

// Before version 11 a run did not say which steps these are: their operators do, before and after the file is written to.
TEST_F(RankRowsTest, RunsOfVersion10AreReadByTheirOperators) {
  const std::array<double, 4> stands{1004, 4006, 1004, 4006};
  const std::int64_t id = write_run(3, all_reduce_sum_op());
  {
    auto database = Database::open(file("s.db"), SQLITE_OPEN_READWRITE);
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(database->execute(test::as_version_10()).ok());
  }
  EXPECT_EQ(times_of(id), (std::array<double, 4>{1004, 4006, 0, 5010}))
      << "the view of version 10 knows no sums";
  {
    auto store = Store::open(file("s.db"), StoreMode::write);
    ASSERT_TRUE(store.ok()) << error_of(store);
    EXPECT_TRUE((*store)->check(id).ok()) << error_of((*store)->check(id));
  }
  EXPECT_EQ(times_of(id), stands) << "the view is of this version";
}

TEST_F(RankRowsTest, EveryRankHasItsEnvironment) {
  const std::int64_t id = write_run(3);
  auto store = Store::open(file("s.db"), StoreMode::read);
  ASSERT_TRUE(store.ok());
  const auto run = (*store)->load_run(id);
  ASSERT_TRUE(run.ok()) << error_of(run);
  using Rows = std::map<std::string, std::string>;
  EXPECT_EQ(run->ranks[0].rank.environment, Rows());
  EXPECT_EQ(run->ranks[1].rank.environment, (Rows{{"isa", "v3"}, {"load_after", "2"}, {"load_before", "1"}}));
  const std::vector<std::string> told = other_environments({{"isa", "v4"}, {"load_before", "9"}}, run->ranks);
  EXPECT_EQ(told, std::vector<std::string>{"rank 1 has another isa than rank 0: v3, not v4"});
  RunRecord shown = *run;
  shown.environment = {{"isa", "v4"}};
  for (RankShares& shares : shown.ranks) shares.exposed_ns = shares.wait_ns = 0;
  EXPECT_EQ(rank_lines(shown), told) << "nothing else is to be said";
  Recipe recipe;
  recipe.model = "m.onnx";
  recipe.reduce = "tree";
  shown.recipe_json = recipe_json(recipe);
  EXPECT_EQ(rank_lines(shown), (std::vector<std::string>{"means are added as a tree", told[0]}));
}

TEST_F(RankRowsTest, TracesHaveAllRanksOrOne) {
  const std::int64_t id = write_run(9);
  auto store = Store::open(file("s.db"), StoreMode::read);
  const auto trace = (*store)->load_trace(id);
  ASSERT_TRUE(trace.ok()) << error_of(trace);
  EXPECT_EQ(trace->ranks.size(), 2u);
  EXPECT_EQ(trace->steps.size(), 3u);
  EXPECT_EQ(trace->rows.size(), 15u);
  EXPECT_EQ(trace->other_ranks.size(), 15u);
  EXPECT_EQ(trace->exchanges.size(), 6u);
  EXPECT_EQ(trace->steps[0].duration_ns, 18004) << "to the end of the slower rank";
  const TraceDocument one = of_rank(*trace, 1);
  EXPECT_EQ(one.rows.size(), 15u);
  EXPECT_EQ(one.exchanges.size(), 3u);
  EXPECT_TRUE(one.other_ranks.empty());
  EXPECT_EQ(of_rank(*trace, 0).rows.size(), 15u);
  // A document has room for one step of both.
  const auto less = (*store)->load_trace(id, 10);
  ASSERT_TRUE(less.ok()) << error_of(less);
  EXPECT_EQ(less->steps.size(), 1u);
  EXPECT_EQ(less->other_ranks.size(), 5u);
}

TEST_F(RankRowsTest, PeopleReadThemInAView) {
  write_run(3);
  auto database = Database::open(file("s.db"), SQLITE_OPEN_READONLY);
  ASSERT_TRUE(database.ok());
  auto row = database->prepare(
      "SELECT rank, kernels_ns, exposed_ns, exchange_ns, wait_ns, sent_bytes FROM v_ranks ORDER BY rank");
  ASSERT_TRUE(row.ok()) << error_of(row);
  const std::int64_t want[2][6] = {{0, 4006, 1004, 9000, 4000, 100}, {1, 8006, 2004, 5000, 0, 100}};
  for (const auto& of_rank : want) {
    ASSERT_TRUE(*row->row());
    for (int i = 0; i < 6; ++i) EXPECT_EQ(row->integer(i), of_rank[i]) << i;
  }
}

// What the program knows from the operators' rows, the view has to list.
TEST(RankView, NamesEveryOperatorThatARankStandsStillFor) {
  const std::string sql = schema_sql();
  const std::size_t at = sql.find("CREATE VIEW v_ranks"), from = sql.find("n.op IN (", at),
                    to = sql.find(") END AS waits", from);
  ASSERT_NE(to, std::string::npos);
  const std::string list = sql.substr(from, to - from);
  std::ptrdiff_t named = std::count(list.begin(), list.end(), ',') + 1;
  for (const OpDef* row : exchange_rows()) {
    EXPECT_NE(row->exchange, RankExchange::none) << row->name;
    const bool listed = list.find("'" + std::string(row->name) + "'") != std::string::npos;
    EXPECT_EQ(listed, stands_still(row->name)) << row->name;
    named -= listed;
  }
  EXPECT_EQ(named, 0) << list;
  EXPECT_FALSE(stands_still("MatMul"));
}

TEST_F(RankRowsTest, RanksThatAreNoneAreDamage) {
  const std::pair<const char*, const char*> edits[] = {
      {"UPDATE rank_sample SET rank = 7", "kernels of rank 7"},
      {"UPDATE exchange SET rank = -1", "exchanges of rank -1"},
      {"DELETE FROM rank WHERE rank = 0", "table rank do not count from 0"}};
  for (const auto& [sql, why] : edits) {
    expect_damage(sql, why);
    const auto trace = Store::open(file("s.db"), StoreMode::read).value()->load_trace(1);
    ASSERT_FALSE(trace.ok()) << sql;
    EXPECT_EQ(trace.error().code, Errc::bad_input);
    EXPECT_NE(trace.error().message.find(why), std::string::npos) << trace.error().message;
  }
}

TEST_F(RankRowsTest, EnvironmentsAndStepsOfNoneAreDamage) {
  expect_damage("UPDATE rank_environment SET rank = 2", "environment of rank 2");
  expect_damage("UPDATE exchange_step SET plan_step = 99", "table exchange_step");
}

TEST(RankRows, AnExchangeWaitsForTheRankThatIsReadyLast) {
  std::vector<ExchangeRow> rows{
      {0, 0, 3, 100, 50}, {1, 0, 3, 120, 30}, {2, 0, 3, 90, 15}, {0, 1, 3, 500, 10}};
  set_waits(rows);
  EXPECT_EQ(rows[0].wait_ns, 20);
  EXPECT_EQ(rows[1].wait_ns, 0);
  EXPECT_EQ(rows[2].wait_ns, 15) << "no longer than it lasts";
  EXPECT_EQ(rows[3].wait_ns, 0) << "of another micro-batch";
}

TEST(RankRows, TheSlowestRankIsNamedWhereOthersStandStill) {
  RankShares a{{0}, 5, 10e6, 3e6, 2e6, 2.5e6, 1}, b{{1}, 5, 12e6, 1e6, 0, 1e6, 1};
  EXPECT_EQ(
      slowest_text({a, b}),
      "rank 1 computes longest, 12.0 ms a step: rank 0 stands still for up to 2.00 ms of its 12.5 ms until the last "
      "is ready");
  a.wait_ns = 0.1e6;
  EXPECT_EQ(slowest_text({a, b}), "");
  EXPECT_EQ(slowest_text({a}), "");
}

}  // namespace
}  // namespace gradloom
