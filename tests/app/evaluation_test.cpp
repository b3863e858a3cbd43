// Held-out losses, early stop and averages of parameters, as `gradloom train` has them.
#include "app/evaluation.h"

#include <cmath>
#include <numeric>

#include "app/checkpoint_folder.h"
#include "engine/base/npz.h"
#include "tests/app/command_fixture.h"
#include "tests/app/model_job.h"

namespace gradloom {
namespace {

class Evaluations : public Commands {
 protected:
  struct Trained {
    std::vector<double> losses, evals;
    std::vector<std::int64_t> eval_steps;
    json summary;
    Outcome outcome;
  };
  Trained train(const std::vector<std::string>& more, int code = 0) const {
    Trained t;
    t.outcome = run(train_mlp(more));
    EXPECT_EQ(t.outcome.code, code) << t.outcome.err;
    for (const json& line : t.outcome.lines()) {
      if (line.contains("eval")) {
        t.evals.push_back(line["eval"]["loss"]);
        t.eval_steps.push_back(line["eval"]["step"]);
      }
      if (line.contains("step")) t.losses.push_back(line["loss"]);
      if (line.contains("summary")) t.summary = line["summary"];
    }
    return t;
  }
  static std::string own_batches() { return "npz:" + model("mlp") + "/batches.npz"; }
};

// Where nothing is learnt the losses of the steps are those of the batches.
TEST_F(Evaluations, TheLossIsTheMeanOverTheBatches) {
  const Trained t = train({"--optimizer", "sgd{lr=0}", "--steps", "5", "--eval-data", own_batches()});
  ASSERT_EQ(t.losses.size(), 5u) << "the file has so many";
  ASSERT_EQ(t.evals.size(), 1u) << "after the last step";
  EXPECT_EQ(t.eval_steps[0], 5);
  const double mean = std::accumulate(t.losses.begin(), t.losses.end(), 0.0) / 5;
  EXPECT_NEAR(t.evals[0], mean, 1e-6 * mean);
  EXPECT_EQ(t.summary["eval_loss"], t.evals[0]);
  EXPECT_EQ(t.summary["best_eval_step"], 5);
}

TEST_F(Evaluations, TrainingIsNotTouchedAndTheSessionKeepsThem) {
  const Trained plain = train({"--steps", "25", "--save-params", path("plain.npz")}),
                t = train({"--steps", "25", "--save-params", path("eval.npz"), "--session", path("s.db"),
                           "--eval-data", own_batches(), "--eval-every", "10", "--eval-batches", "2"});
  EXPECT_EQ(t.losses, plain.losses);
  EXPECT_TRUE(read_file(path("eval.npz")) == read_file(path("plain.npz")));
  EXPECT_EQ(t.eval_steps, (std::vector<std::int64_t>{10, 20, 25}));
  EXPECT_LT(t.evals[2], t.evals[0]) << "it learns";
  const json shown = run({"show", path("s.db"), "--json"}).lines()[0];
  ASSERT_EQ(shown["evaluations"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(shown["evaluations"][i]["step"], t.eval_steps[i]);
    EXPECT_EQ(shown["evaluations"][i]["loss"], t.evals[i]);
    EXPECT_EQ(shown["evaluations"][i]["batches"], 2);
  }
  EXPECT_NE(run({"show", path("s.db")}).out.find("over 3 evaluations, best"), std::string::npos);
}

// Dropout and BatchNormalization: the loss is another than that of a training step with the same parameters and
// batch, and equal with and without passes.
TEST_F(Evaluations, DropoutIsOffAndRunningStatisticsAreTaken) {
  for (const char* name : {"bert-tiny", "cnn-digits"}) {
    SCOPED_TRACE(name);
    Recipe recipe = model_recipe(name);
    recipe.eval_data = recipe.data;
    recipe.eval_batches = 1;
    const auto job = make_job(recipe);
    ASSERT_NE(job, nullptr);
    ASSERT_TRUE(job->step(1).ok());
    auto evaluation = Evaluation::create(*job, {});
    ASSERT_TRUE(evaluation.ok()) << evaluation.error().message;
    job->executor().poison();
    const auto first = (*evaluation)->run(1);
    job->executor().poison();
    const auto again = (*evaluation)->run(1);
    ASSERT_TRUE(first.ok() && again.ok());
    EXPECT_EQ(first->loss, again->loss) << "nothing random, no state moves";
    // The same without passes and planner.
    Recipe plain = recipe;
    plain.passes.clear();
    plain.planner = "none";
    const auto other = make_job(plain);
    ASSERT_NE(other, nullptr);
    ASSERT_TRUE(other->step(1).ok());
    auto reference = Evaluation::create(*other, {});
    ASSERT_TRUE(reference.ok()) << reference.error().message;
    EXPECT_NEAR((*reference)->run(1)->loss, first->loss, 1e-4 * first->loss);
    Recipe still = recipe;
    still.optimizer = "sgd{lr=0}";
    const auto trained = make_job(still);
    ASSERT_NE(trained, nullptr);
    auto unmoved = Evaluation::create(*trained, {});
    ASSERT_TRUE(unmoved.ok());
    const auto step = trained->step(1);
    ASSERT_TRUE(step.ok());
    EXPECT_GT(std::abs((*unmoved)->run(1)->loss - step->loss), 1e-3 * step->loss);
  }
}

TEST_F(Evaluations, SettingsWithoutDataAreRefused) {
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--eval-every", "5"},
                                                {"--eval-batches", "5"},
                                                {"--early-stop", "patience=2"}})
    expect_error(train_mlp(flags), 2, flags[0] + " needs held-out data: --eval-data");
  expect_error(train_mlp({"--eval-data", "npz:" + path("none.npz")}), 5, "none.npz");
  expect_error(train_mlp({"--eval-data", "synthetic", "--early-stop", "patience=0"}), 2, "patience");
  const Trained once = train({"--steps", "2", "--eval-data", "synthetic", "--early-stop", "patience=1"});
  EXPECT_NE(once.outcome.err.find("note: early stop has nothing to stop: --eval-every 0"), std::string::npos)
      << once.outcome.err;
}

// Five batches, a resumed run in the middle of the third epoch.
TEST_F(Evaluations, EpochsAreSteps) {
  const Trained three = train({"--epochs", "3", "--shuffle", "on", "--save-params", path("three.npz")});
  EXPECT_EQ(three.losses.size(), 15u);
  EXPECT_EQ(train({"--epochs", "3", "--steps", "4"}).losses.size(), 4u) << "whichever ends first";
  EXPECT_EQ(train({"--epochs", "3", "--accumulate", "2"}).losses.size(), 7u);
  train({"--epochs", "3", "--shuffle", "on", "--steps", "12", "--checkpoint", path("c")});
  const Trained rest = train({"--resume", path("c"), "--epochs", "3", "--save-params", path("rest.npz")});
  EXPECT_EQ(rest.losses, std::vector<double>(three.losses.begin() + 12, three.losses.end()));
  EXPECT_TRUE(read_file(path("rest.npz")) == read_file(path("three.npz")));
  EXPECT_EQ(train({"--resume", path("c"), "--epochs", "4"}).losses.size(), 8u);
  const Trained plain = train({"--epochs", "1"});
  EXPECT_NE(plain.losses, std::vector<double>(three.losses.begin(), three.losses.begin() + 5)) << "shuffled";
  expect_error(train_mlp({"--data", "synthetic", "--epochs", "2"}), 2, "--epochs needs data with an end");
  EXPECT_EQ(three.summary["samples_per_step"], 8);
}

// Five batches, which steps of several do not divide.
TEST_F(Evaluations, BatchesThatFillNoStepAreTold) {
  const auto notes = [&](const std::vector<std::string>& more) {
    std::string all;
    std::istringstream lines(train(more).outcome.err);
    for (std::string line; std::getline(lines, line);)
      if (line.find(" epoch") != std::string::npos) all += line + "\n";
    return all;
  };
  const auto steps_of = [](const char* k, std::vector<std::string> more) {
    more.insert(more.end(), {"--accumulate", k});
    return more;
  };
  const std::vector<std::string> one{"--epochs", "1"}, three{"--epochs", "3"};
  EXPECT_EQ(notes(three), "");
  EXPECT_EQ(notes(steps_of("5", three)), "");
  EXPECT_EQ(notes(steps_of("2", three)),
            "note: 3 epochs are 15 batches, a step takes 2: the last 1 is not read\n");
  EXPECT_EQ(notes(steps_of("3", one)),
            "note: 1 epoch is 5 batches, a step takes 3: the last 2 are not read\n");
  EXPECT_EQ(notes(steps_of("7", one)), "note: 1 epoch is 5 batches, a step takes 7: 2 are read again\n");
  EXPECT_EQ(notes(steps_of("6", one)), "note: 1 epoch is 5 batches, a step takes 6: 1 is read again\n");
  EXPECT_EQ(notes(steps_of("2", {"--epochs", "3", "--steps", "6"})), "") << "steps end before the epochs do";
  train(steps_of("2", {"--epochs", "3", "--steps", "4", "--checkpoint", path("c")}));
  EXPECT_EQ(notes({"--resume", path("c"), "--epochs", "3", "--steps", "100"}),
            "note: 3 epochs are 15 batches, a step takes 2: the last 1 is not read\n");
  EXPECT_EQ(notes({"--resume", path("c"), "--epochs", "1", "--steps", "100"}), "") << "they were read before";
}

// Random labels of 16 batches: what is learnt from others only makes them less likely.
TEST_F(Evaluations, EarlyStopKeepsTheBest) {
  const std::vector<std::string> flags{
      "--optimizer",  "adam{lr=1e-2}", "--eval-data",   "synthetic",     "--eval-every",      "4",
      "--early-stop", "patience=3",    "--checkpoint",  path("c"),       "--checkpoint-keep", "1",
      "--steps",      "400",           "--save-params", path("best.npz")};
  const Trained t = train(flags);
  ASSERT_GE(t.evals.size(), 4u);
  const std::size_t best =
      static_cast<std::size_t>(std::min_element(t.evals.begin(), t.evals.end()) - t.evals.begin());
  ASSERT_EQ(best + 4, t.evals.size()) << "three worse ones follow";
  EXPECT_EQ(t.losses.size(), static_cast<std::size_t>(t.eval_steps.back()));
  EXPECT_NE(t.outcome.err.find("note: early stop after step " + std::to_string(t.eval_steps.back()) +
                               ": 3 evaluations in a row no better"),
            std::string::npos)
      << t.outcome.err;
  EXPECT_EQ(t.summary["early_stop"], true);
  const std::int64_t best_step = t.eval_steps[best];
  EXPECT_EQ(t.summary["best_eval_step"], best_step);
  train(
      {"--optimizer", "adam{lr=1e-2}", "--steps", std::to_string(best_step), "--save-params", path("p.npz")});
  EXPECT_TRUE(read_file(path("best.npz")) == read_file(path("p.npz"))) << "the best parameters are saved";
  char name[32];
  std::snprintf(name, sizeof name, "c/step-%08lld", static_cast<long long>(best_step));
  EXPECT_TRUE(fs::exists(path(name))) << "beside the newest";
  const Trained again = train({"--resume", path("c"), "--steps", "400"});
  EXPECT_TRUE(again.losses.empty()) << "it is still enough";
  const Trained patient = train({"--resume", path("c"), "--steps", "400", "--early-stop", "patience=4"});
  EXPECT_EQ(patient.losses.size(), 4u) << "one more evaluation";
}

// The best evaluation was before the checkpoint that a run goes on from, or at it.
TEST_F(Evaluations, AResumedRunSavesTheBestOfAll) {
  for (const char* ema : {"", "0.5"}) {
    SCOPED_TRACE(ema);
    fs::remove_all(path("c"));
    std::vector<std::string> flags{
        "--optimizer",   "adam{lr=1e-2}",  "--eval-data",       "synthetic", "--eval-every", "4",
        "--early-stop",  "patience=3",     "--checkpoint",      path("c"),   "--steps",      "400",
        "--save-params", path("best.npz"), "--checkpoint-keep", "1"};
    if (*ema != 0) flags.insert(flags.end(), {"--ema", ema});
    const Trained t = train(flags);
    const std::int64_t best = t.summary["best_eval_step"];
    ASSERT_LT(best, t.eval_steps.back());
    const auto saves_best = [&](const std::string& from, const char* patience, std::int64_t steps) {
      const Trained more = train({"--resume", from, "--steps", std::to_string(steps), "--early-stop",
                                  patience, "--save-params", path("again.npz")});
      EXPECT_FALSE(more.losses.empty());
      EXPECT_EQ(more.summary["best_eval_step"], best);
      EXPECT_EQ(more.outcome.err.find("cannot be read"), std::string::npos) << more.outcome.err;
      EXPECT_TRUE(read_file(path("again.npz")) == read_file(path("best.npz"))) << from;
    };
    saves_best(path("c"), "patience=4", 400);
    const std::string at_best = checkpoint_path(path("c"), best);
    saves_best(at_best, "patience=3", best + 4);
    fs::rename(at_best, path("moved"));
    const Trained without = train({"--resume", path("c"), "--steps", "400", "--early-stop", "patience=4",
                                   "--save-params", path("again.npz")});
    EXPECT_NE(without.outcome.err.find("the best parameters so far, after step " + std::to_string(best) +
                                       ", cannot be read"),
              std::string::npos)
        << without.outcome.err;
    fs::remove_all(path("moved"));
  }
}

// A new best evaluation after a step that has a checkpoint anyway.
TEST_F(Evaluations, ABestStepHasOneCheckpoint) {
  const Trained t = train({"--steps", "8", "--eval-data", own_batches(), "--eval-every", "2", "--early-stop",
                           "patience=9", "--checkpoint", path("c"), "--checkpoint-every", "2"});
  EXPECT_EQ(t.outcome.err, "");
  EXPECT_EQ(t.summary["best_eval_step"], 8) << "it learns";
  std::vector<std::int64_t> written;
  for (const json& line : t.outcome.lines())
    if (line.contains("checkpoint")) written.push_back(line["checkpoint"]["step"]);
  EXPECT_EQ(written, (std::vector<std::int64_t>{2, 4, 6, 8}));
}

TEST_F(Evaluations, AveragesOfParametersAreSavedAndEvaluated) {
  constexpr double kDecay = 0.6;
  const std::vector<std::string> sgd{"--optimizer", "sgd{lr=0.5}"};
  const auto parameters = [&](std::int64_t steps, bool ema) {
    std::vector<std::string> flags = sgd;
    flags.insert(flags.end(), {"--steps", std::to_string(steps), "--save-params", path("a.npz")});
    if (ema) flags.insert(flags.end(), {"--ema", "0.6"});
    const Trained t = train(flags);
    return *read_npz(path("a.npz"));
  };
  std::map<std::string, std::vector<double>> expected;
  {
    Recipe recipe = model_recipe("mlp");
    const auto job = make_job(recipe);
    ASSERT_NE(job, nullptr);
    const auto initial = job->parameters();
    ASSERT_TRUE(initial.ok());
    for (const auto& [name, tensor] : *initial) expected[name] = tensor.to_f64();
  }
  for (std::int64_t step = 1; step <= 3; ++step)
    for (const auto& [name, tensor] : parameters(step, false))
      for (std::int64_t i = 0; i < tensor.count(); ++i) {
        double& average = expected.at(name)[static_cast<std::size_t>(i)];
        average = kDecay * average + (1 - kDecay) * tensor.at(i);
      }
  const auto got = parameters(3, true);
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, tensor] : got)
    for (std::int64_t i = 0; i < tensor.count(); ++i)
      ASSERT_NEAR(tensor.at(i), expected.at(name)[static_cast<std::size_t>(i)], 1e-6) << name;
  // What is evaluated is what is saved.
  std::vector<std::string> flags = sgd;
  flags.insert(flags.end(), {"--steps", "3", "--ema", "0.6", "--save-params", path("e.npz"), "--eval-data",
                             own_batches()});
  const Trained averaged = train(flags),
                loaded = train({"--optimizer", "sgd{lr=0}", "--steps", "1", "--load-params", path("e.npz"),
                                "--eval-data", own_batches()});
  EXPECT_EQ(averaged.evals, loaded.evals);
  EXPECT_NE(averaged.losses[2], averaged.evals[0]);
}

}  // namespace
}  // namespace gradloom
