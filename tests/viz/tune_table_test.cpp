#include "viz/model/tune_table.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gradloom {
namespace {

TuneTableRow row(const char* changes, Interval ratio, std::int64_t peak_bytes, std::int64_t round = 1,
                 double predicted = 0) {
  TuneTableRow r;
  r.changes = r.label = changes;
  r.plan_hash = std::string("plan of ") + changes;
  r.ratio = ratio;
  r.peak_bytes = peak_bytes;
  r.round = round;
  r.predicted = predicted;
  return r;
}

TuneTableRow job(double step_ns = 1000) {
  TuneTableRow r = row("", {1, 1, 1}, 100);
  r.step_ns = step_ns;
  return r;
}

std::vector<std::string> names(const TuneTable& table, const std::vector<std::int32_t>& order) {
  std::vector<std::string> names;
  for (const std::int32_t i : order) names.push_back(table.rows()[static_cast<std::size_t>(i)].changes);
  return names;
}

using Names = std::vector<std::string>;

TuneTable search() {
  TuneTable table;
  table.put({row("passes=a", {1.2, 1.1, 1.3}, 120), job(), row("passes=b", {0.9, 0.8, 1.0}, 110),
             row("threads=1", {1.1, 1.05, 1.15}, 80), row("passes=c", {0, 0, 0}, 90, 0, 1.4),
             row("passes=d", {0, 0, 0}, 0, -1), row("precision=bf16", {2, 1.9, 2.1}, 60)});
  return table;
}

TEST(TuneTable, TheFrontIsWhatNoOtherBeatsInBoth) {
  EXPECT_EQ(pareto_front({{1, 100, ""}, {2, 200, ""}, {1.5, 250, ""}, {1, 100, ""}, {3, 50, "bf16"}}),
            (std::vector<bool>{true, true, false, false, true}));
  const TuneTable table = search();
  EXPECT_EQ(table.rows()[0].changes, "") << "the job comes first whenever it comes";
  const auto front = table.front();
  ASSERT_EQ(front.size(), 2u) << "f32 and bf16 are not held against each other";
  EXPECT_EQ(names(table, front.at("")), (Names{"threads=1", "passes=a"})) << "the smallest first";
  EXPECT_EQ(names(table, front.at("bf16")), Names{"precision=bf16"});
  EXPECT_FALSE(table.job()->on_front);
}

TEST(TuneTable, TimesAreOfTheJobsLastStep) {
  TuneTable table = search();
  EXPECT_DOUBLE_EQ(table.find("precision=bf16")->step_ns, 500);
  EXPECT_EQ(table.find("passes=c")->step_ns, 0) << "it was not measured";
  table.put(job(2000));
  EXPECT_DOUBLE_EQ(table.find("precision=bf16")->step_ns, 1000);
  EXPECT_EQ(table.measured(), 4);
}

TEST(TuneTable, ALaterLineKeepsWhatItDoesNotKnow) {
  TuneTable table = search();
  TuneTableRow known = row("passes=a", {1.2, 1.1, 1.3}, 120, 1, 1.3);
  known.error = 1e-6;
  known.label = "a for people";
  table.put(known);
  TuneTableRow again = row("passes=a", {1.25, 1.2, 1.3}, 120, 2);
  again.label.clear();
  table.put(again);
  const TuneTableRow* const a = table.find("passes=a");
  EXPECT_EQ(a->label, "a for people");
  EXPECT_EQ(a->error, 1e-6);
  EXPECT_EQ(a->predicted, 1.3);
  EXPECT_EQ(a->round, 2);
  again.plan_hash = "another plan";
  table.put(again);
  EXPECT_EQ(table.find("passes=a")->error, -1) << "of another plan nothing is known";
  EXPECT_EQ(table.rows().size(), 7u);
}

TEST(TuneTable, TheBestIsBeyondDoubtAndMeasuredMost) {
  TuneTable table = search();
  EXPECT_EQ(table.best()->changes, "precision=bf16");
  table.put(row("threads=2", {1.95, 1.92, 1.98}, 80, 2));
  EXPECT_EQ(table.best()->changes, "threads=2") << "two rounds say more than one";
  // An earlier search, over less, measured its best again and again.
  table.put(row("passes=a", {1.15, 1.1, 1.2}, 120, 5));
  EXPECT_EQ(table.best()->changes, "threads=2") << "what is slower beyond doubt is not the best";
  TuneTable unsure;
  unsure.put({job(), row("passes=a", {1.1, 0.99, 1.2}, 100)});
  EXPECT_EQ(unsure.best(), nullptr);
}

TEST(TuneTable, OrdersByColumnWithPinsOnTop) {
  const TuneTable table = search();
  EXPECT_EQ(names(table, table.order(-1, true, {})),
            (Names{"precision=bf16", "passes=a", "threads=1", "", "passes=b", "passes=c", "passes=d"}));
  EXPECT_EQ(names(table, table.order(static_cast<int>(TuneColumn::kPeak), false, {"passes=b"})),
            (Names{"passes=b", "passes=d", "precision=bf16", "threads=1", "passes=c", "", "passes=a"}));
  const auto by_error = table.order(static_cast<int>(TuneColumn::kPredicted), false, {});
  EXPECT_EQ(names(table, by_error)[0], "passes=c") << "rows without the number come last";
  EXPECT_EQ(names(table, table.order(static_cast<int>(TuneColumn::kName), true, {}))[0], "threads=1");
}

TEST(TuneTable, ASessionTellsItsSearchesAgain) {
  const auto trial = [](const char* job, const char* changes, std::int64_t round, double ratio) {
    return Trial{job, changes, "p", round, {ratio, ratio - 0.1, ratio + 0.1}, 800, 700, 90, "{}"};
  };
  const auto about = [](const char* job, const char* changes, const char* label, const char* plan,
                        double error) {
    return TriedConfiguration{
        job, changes, label, plan, 100, 1000, 1.1, error, "recipe of " + std::string(job)};
  };
  const auto searches = recorded_searches(
      {trial("x", "passes=a", 1, 1.2), trial("y", "passes=none", 1, 0.5), trial("x", "passes=a", 2, 1.3),
       trial("old", "passes=none", 1, 0.5)},
      {about("x", "", "", "p0", 1e-7), about("x", "passes=a", "a alone", "p", -1),
       about("x", "passes=a", "a alone", "p", 2e-7), about("x", "passes=b", "b alone", "p", 1e-7),
       about("y", "", "", "p0", -1), about("y", "passes=none", "none", "of a later version", 3e-7)});
  ASSERT_EQ(searches.size(), 3u);
  EXPECT_EQ(searches[0].job, "y") << "the newest first";
  const TuneTable& x = searches[1].table;
  EXPECT_EQ(searches[1].recipe_json, "recipe of x");
  ASSERT_EQ(x.rows().size(), 2u) << "what has no measurement is not told";
  EXPECT_EQ(x.job()->step_ns, 1000);
  EXPECT_EQ(x.job()->error, 1e-7);
  const TuneTableRow* const a = x.find("passes=a");
  EXPECT_EQ(a->round, 2) << "the last measurement holds";
  EXPECT_EQ(a->label, "a alone");
  EXPECT_EQ(a->error, 2e-7);
  EXPECT_EQ(a->predicted, 1.1);
  EXPECT_EQ(searches[0].table.find("passes=none")->error, -1) << "of another plan";
  EXPECT_EQ(searches[2].recipe_json, "") << "an older program told no job";
  EXPECT_EQ(searches[2].table.job(), nullptr);
  EXPECT_EQ(searches[1].trials.size(), 1u);
}

}  // namespace
}  // namespace gradloom
