#include "app/tune.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class Tune : public Commands {
 protected:
  Recipe job() const {
    Recipe recipe;
    recipe.model = model("mlp/model.onnx");
    recipe.dims = {{"batch", 8}};
    recipe.loss = "ce:logits,labels";
    recipe.optimizer = "adam";
    set_pipeline(recipe, default_pipeline());
    return recipe;
  }
  Tuned search(const Recipe& recipe, double seconds, std::vector<Trial>* trials = nullptr,
               TuneOptions options = {}) const {
    auto store = Store::open(path("tune.db"), StoreMode::write);
    EXPECT_TRUE(store.ok());
    options.seconds = seconds;
    const auto tuned = tune(recipe, options, **store, {}, {}, [&](TuneEvent event, const TuneRow& row) {
      if (trials != nullptr && event == TuneEvent::trial) trials->push_back(row.trial);
    });
    EXPECT_TRUE(tuned.ok()) << tuned.error().message;
    return tuned.ok() ? *tuned : Tuned{};
  }
};

TEST(TrialRatio, FewGroupsAreNoSurerThanTheMachine) {
  Comparison compared;
  compared.ratio = {1.2, 1.2, 1.2};
  compared.noise = 0.25;
  compared.groups = 1;
  const Interval few = trial_ratio(compared, 1);
  EXPECT_EQ(few.value, 1.2);
  EXPECT_DOUBLE_EQ(few.low, 0.96);
  EXPECT_DOUBLE_EQ(few.high, 1.5);
  compared.groups = kTrialGroups;
  EXPECT_EQ(trial_ratio(compared, 1).low, 1.2);
  EXPECT_EQ(trial_ratio(compared, 1).high, 1.2);
}

// A step on twice the batch that takes 1.5 times as long makes samples 4/3 as fast.
TEST(TrialRatio, OtherBatchesAreComparedByTheSample) {
  Comparison compared;
  compared.groups = kTrialGroups;
  compared.ratio = {1 / 1.5, 0.5, 0.75};
  const Interval twice = trial_ratio(compared, 2);
  EXPECT_DOUBLE_EQ(twice.value, 2 / 1.5);
  EXPECT_EQ(twice.low, 1);
  EXPECT_EQ(twice.high, 1.5);
  EXPECT_DOUBLE_EQ(trial_ratio(compared, 0.5).value, 1 / 3.);
}

TEST_F(Tune, EveryTrialIsKeptAndTheBestIsBeyondDoubt) {
  std::vector<Trial> told;
  const Tuned tuned = search(job(), 4, &told);
  ASSERT_GT(tuned.rows.size(), 5u);
  EXPECT_EQ(tuned.rows[0].trial.changes, "");
  EXPECT_EQ(tuned.known, 0);
  EXPECT_TRUE(tuned.rows[0].error > 0 && tuned.rows[0].error < 1e-5) << tuned.rows[0].error;
  auto store = Store::open(path("tune.db"), StoreMode::read);
  ASSERT_TRUE(store.ok());
  // What a trial does not say stands beside it.
  const auto known = (*store)->list_configurations(tuned.rows[0].trial.job);
  ASSERT_TRUE(known.ok());
  std::map<std::string, TriedConfiguration> last;
  for (const TriedConfiguration& c : *known) last[c.changes] = c;
  EXPECT_EQ(last[""].error, tuned.rows[0].error);
  EXPECT_EQ(last[""].step_ns, tuned.rows[0].trial.step_ns);
  EXPECT_TRUE(parse_recipe(last[""].recipe_json).ok());
  for (const Trial& trial : told) EXPECT_EQ(last[trial.changes].plan_hash, trial.plan_hash) << trial.changes;
  const auto kept = (*store)->list_trials(tuned.rows[0].trial.job);
  ASSERT_TRUE(kept.ok());
  ASSERT_EQ(kept->size(), told.size());
  std::size_t measured = 0;
  for (std::size_t i = 1; i < tuned.rows.size(); ++i) {
    const Trial& trial = tuned.rows[i].trial;
    if (trial.round < 1) continue;
    ++measured;
    EXPECT_LE(trial.ratio.low, trial.ratio.value);
    EXPECT_GE(trial.ratio.high, trial.ratio.value);
    EXPECT_GT(trial.step_ns, 0);
    const auto recipe = parse_recipe(trial.recipe_json);
    ASSERT_TRUE(recipe.ok()) << trial.changes;
  }
  EXPECT_GE(told.size(), measured);
  EXPECT_GT(measured, 0u);
  if (tuned.best != 0) {
    EXPECT_GT(tuned.rows[tuned.best].trial.ratio.low, 1);
  }
  bool front = false;
  for (const TuneRow& row : tuned.rows) front = front || row.on_front;
  EXPECT_TRUE(front);
}

TEST_F(Tune, ASearchGoesOnFromTheTrialsThatAreThere) {
  const Tuned first = search(job(), 4);
  std::set<std::string> measured;
  for (const TuneRow& row : first.rows)
    if (row.trial.round > 0 && !row.trial.changes.empty()) measured.insert(row.trial.changes);
  ASSERT_FALSE(measured.empty());
  std::vector<Trial> told;
  const Tuned second = search(job(), 3, &told);
  EXPECT_GE(second.known, 1);
  for (const Trial& trial : told)
    EXPECT_TRUE(trial.round > 1 || !measured.count(trial.changes)) << trial.changes << " was measured before";
  Recipe other = job();
  other.optimizer = "sgd";
  EXPECT_EQ(search(other, 1).known, 0) << "another job";
}

// Time, memory and error of configurations that recompute stand beside the others, and on the front where none is as
// fast in as little memory.
TEST_F(Tune, TheFrontReachesFromTheFastestToTheSmallest) {
  Recipe recipe = job();
  recipe.model = model("gpt-char/model.onnx");
  TuneOptions options;
  options.axes = {TuneAxis::budget};
  const Tuned tuned = search(recipe, 8, nullptr, options);
  const TuneRow* smallest = &tuned.rows[0];
  for (const TuneRow& row : tuned.rows)
    if (row.trial.round > 0 && row.trial.peak_bytes < smallest->trial.peak_bytes) smallest = &row;
  ASSERT_NE(smallest, &tuned.rows[0]) << "a budget was measured";
  EXPECT_TRUE(smallest->on_front);
  EXPECT_EQ(smallest->error, tuned.rows[0].error) << "recompute is exact";
  EXPECT_GT(smallest->error, 0);
  EXPECT_GT(smallest->predicted, 0);
  const auto back = parse_recipe(smallest->trial.recipe_json);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ("memory-budget=" + back->memory_budget, smallest->trial.changes);
}

TEST_F(Tune, OtherBatchesHaveNoErrorBesideTheJobs) {
  TuneOptions options;
  options.axes = {TuneAxis::batch};
  const Tuned tuned = search(job(), 3, nullptr, options);
  std::size_t measured = 0;
  for (const TuneRow& row : tuned.rows) {
    if (row.trial.changes.empty() || row.trial.round < 1) continue;
    ++measured;
    EXPECT_LT(row.error, 0) << "gradients of other batches are not comparable";
  }
  EXPECT_GT(measured, 0u);
}

TEST_F(Tune, LastLineHasTheBestAndTheRecipeItsPromises) {
  const Outcome o =
      run({"tune", model("mlp/model.onnx"), "--dim", "batch=8", "--loss", "ce:logits,labels", "--steps", "12",
           "--seconds", "2", "--session", path("t.db"), "-o", path("best.json"), "--json", "--progress"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream lines(o.out);
  std::string line;
  nlohmann::json last;
  int trials = 0, jobs = 0, progress = 0;
  std::set<std::string> candidates, rows, tried;
  while (std::getline(lines, line)) {
    last = nlohmann::json::parse(line);
    trials += last.contains("trial") ? 1 : 0;
    if (last.contains("job")) {
      ++jobs;
      EXPECT_GT(last["job"]["step_ns"], 0);
      EXPECT_EQ(last["job"]["changes"], "");
    }
    if (last.contains("candidate")) candidates.insert(last["candidate"]["changes"]);
    if (last.contains("trial")) tried.insert(last["trial"]["changes"]);
    if (last.contains("row")) rows.insert(last["row"]["changes"]);
    if (last.value("event", "") == "progress") {
      ++progress;
      EXPECT_LE(last["seconds_left"], 2.0);
    }
  }
  EXPECT_EQ(jobs, 1);
  EXPECT_GT(progress, 0);
  EXPECT_GT(trials, 0);
  for (const std::string& changes : tried) EXPECT_TRUE(candidates.count(changes)) << changes;
  candidates.insert("");
  EXPECT_EQ(rows, candidates) << "the last rows are all that there were";
  ASSERT_TRUE(last.contains("best"));
  EXPECT_EQ(last["recipe"], path("best.json"));
  const auto recipe = read_recipe(path("best.json"));
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  ASSERT_TRUE(recipe->expect);
  EXPECT_EQ(recipe->expect->losses.size(), 12u);
  EXPECT_EQ(recipe->steps, 12);
  EXPECT_NE(run({"runs", path("t.db")}).out.find("tuned: "), std::string::npos);
}

// The job may be a training of days: of it no more steps are made than take as long as the search.
TEST_F(Tune, TheRunThatIsRecordedIsNoWholeTraining) {
  const Outcome o = run({"tune", model("mlp/model.onnx"), "--dim", "batch=8", "--loss", "ce:logits,labels",
                         "--steps", "1000000000", "--seconds", "1", "--over", "passes", "--session",
                         path("t.db"), "-o", path("best.json"), "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const auto recipe = read_recipe(path("best.json"));
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  EXPECT_EQ(recipe->steps, 1'000'000'000) << "what is asked for stays";
  ASSERT_TRUE(recipe->expect);
  EXPECT_EQ(recipe->expect->losses.size(), 20u);
  EXPECT_GE(recipe->expect->last_step, 20);
  EXPECT_LT(recipe->expect->last_step, 1'000'000'000);
}

TEST_F(Tune, WhatCannotBeIsFoundBeforeTheSearch) {
  const std::vector<std::string> job{"tune",   model("mlp/model.onnx"), "--dim", "batch=8",
                                     "--loss", "ce:logits,labels"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), job.begin(), job.end());
    return more;
  };
  expect_error(with({}), 2, "--session");
  expect_error(with({"--session", path("s.db"), "--over", "pases"}), 2, "did you mean passes?");
  expect_error(with({"--session", path("s.db"), "-o", path("no/such/folder.json")}), 5, "folder");
  expect_error(with({"--session", path("s.db"), "--seconds", "0"}), 2, "--seconds");
  expect_error(with({"--session", path("s.db"), "--worth", "-o", path("r.json")}), 2,
               "--worth writes no recipe");
  EXPECT_FALSE(fs::exists(path("s.db")));
}

}  // namespace
}  // namespace gradloom
