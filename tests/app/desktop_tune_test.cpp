// The window's tune tab and the badges of verify: what lines of the children make, the search in a child process, and the tab.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "app/desktop/controller.h"
#include "app/desktop/run_events.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

using namespace std::chrono_literals;

TEST(RunEvents, RowsOfASearchAreReadAsTheyAreSaid) {
  RunProgress progress;
  progress.kind = RunKind::tune;
  for (const char* what : {"job", "candidate", "trial", "row"}) {
    const RunEvent event = read_run_line(
        std::string("{\"") + what +
            R"(":{"changes":"passes=none","label":"none","round":2,"ratio":0.5,"low":0.4,"high":0.6,"step_ns":9.0,)"
            R"("predicted_ratio":0.7,"peak_bytes":64,"plan_hash":"p","error":null}})",
        progress);
    ASSERT_TRUE(event.tried) << what;
    EXPECT_EQ(event.tried->changes, "passes=none");
    EXPECT_EQ(event.tried->round, 2);
    EXPECT_EQ(event.tried->ratio.low, 0.4);
    EXPECT_EQ(event.tried->predicted, 0.7);
    EXPECT_EQ(event.tried->peak_bytes, 64);
    EXPECT_EQ(event.tried->error, -1);
  }
  read_run_line(R"({"event":"progress","fraction":0.25,"what":"threads=1","seconds_left":45})", progress);
  EXPECT_EQ(progress.seconds_left, 45);
  EXPECT_GT(progress.left_at_ns, 0);
  for (const char* odd : {R"({"trial":3})", R"({"trial":[]})", R"({"best":{}})"})
    EXPECT_FALSE(read_run_line(odd, progress).tried) << odd;
  EXPECT_TRUE(read_run_line(R"({"trial":{"ratio":"NaN","changes":7}})", progress).tried);
  progress.kind = RunKind::train;
  EXPECT_FALSE(read_run_line(R"({"trial":{"changes":"x"}})", progress).tried);
}

TEST(RunEvents, WorthAndProofAreReadAsTheyAreSaid) {
  RunProgress progress;
  progress.kind = RunKind::worth;
  const RunEvent worth = read_run_line(
      R"({"worth":{"step_ns":100.0,"peak_bytes":64,"all":{"same_work":false,"ratio":2.0,"low":1.9,"high":2.1,)"
      R"("peak_saved_bytes":8},"passes":[{"pass":"a","among":{"same_work":true},"alone":null}],"known":0}})",
      progress);
  ASSERT_TRUE(worth.worth);
  EXPECT_EQ(worth.worth->all.speed.high, 2.1);
  ASSERT_EQ(worth.worth->passes.size(), 1u);
  EXPECT_EQ(worth.worth->passes[0].among.state, WorthSide::State::same);
  EXPECT_EQ(worth.worth->passes[0].alone.state, WorthSide::State::unknown);
  EXPECT_FALSE(waterfall(*worth.worth, false, false).bars.empty());
  progress.kind = RunKind::verify;
  const RunEvent proof = read_run_line(
      R"({"verified":false,"tensors":5,"passes":["a","b"],"instances":7,"steps":3,"worst":{"name":"w"},)"
      R"("culprit":{"pass":"a","site":"/x","worst":{"kind":"gradient","name":"g","error":1.0,"bound":0.5}}})",
      progress);
  ASSERT_TRUE(proof.proof);
  EXPECT_FALSE(proof.proof->equal);
  EXPECT_EQ(proof.proof->culprit, "a");
  EXPECT_EQ(proof.proof->tensor, "g") << "of what strays";
  EXPECT_EQ(proof.proof->bound, 0.5);
  EXPECT_EQ(proof.proof->passes.size(), 2u);
  const Notice said = end_run({.code = 1}, {}, progress);
  EXPECT_EQ(said.kind, NoticeKind::warning);
  EXPECT_EQ(progress.outcome, "done") << "that a pass strays is an answer";
  for (const char* odd : {R"({"verified":3})", R"({"verified":true,"passes":7,"worst":[],"culprit":"x"})"})
    EXPECT_TRUE(read_run_line(odd, progress).proof) << odd;
}

class DesktopTune : public testing::Test {
 protected:
  void SetUp() override { begin(); }
  // A window as it is begun, with the session and what is kept beside it.
  void begin() {
    controller_ = std::make_unique<Controller>(GRADLOOM_COMMAND, Settings(), nullptr, folder_ / "marks");
    controller_->set_session(folder_ / "s.db");
    app().open(GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx");
    settle();
    ASSERT_TRUE(state().has_model());
  }
  Controller& app() { return *controller_; }
  const AppState& state() { return controller_->state(); }
  template <class Until>
  void settle_until(const Until& until) {
    const auto end = std::chrono::steady_clock::now() + 240s;
    do {
      app().tick();
      std::this_thread::sleep_for(1ms);
    } while (!until() && std::chrono::steady_clock::now() < end);
    ASSERT_TRUE(until());
  }
  void settle() {
    settle_until([&] { return !app().busy(); });
    app().tick();
  }

  TemporaryFolder folder_;
  std::unique_ptr<Controller> controller_;
};

TEST_F(DesktopTune, ASearchIsPausedGoesOnAndIsThereWhenTheWindowOpensAgain) {
  app().start_tune(app().tune_command(600, "passes,threads"));
  settle_until([&] { return state().tune.table.measured() >= 1; });
  EXPECT_TRUE(state().progress.running);
  EXPECT_GT(state().progress.seconds_left, 0);
  ASSERT_NE(state().tune.table.job(), nullptr);
  const std::size_t known = state().tune.table.rows().size();
  EXPECT_GT(known, static_cast<std::size_t>(state().tune.table.measured()))
      << "predicted ones stand there too";
  app().stop_run();
  settle();
  EXPECT_EQ(state().progress.outcome, "stopped") << state().progress.error;
  EXPECT_GT(state().tune.seconds_left, 500) << "that is how long it would go on";
  EXPECT_LT(state().tune.seconds_left, 600);
  const std::int64_t measured = state().tune.table.measured();

  app().start_tune(app().tune_command(2, "passes,threads"));
  EXPECT_EQ(state().tune.table.measured(), measured) << "what is known of the job stays in sight";
  settle();
  ASSERT_EQ(state().progress.outcome, "done") << state().progress.error;
  EXPECT_EQ(state().tune.seconds_left, 0);
  EXPECT_GE(state().tune.table.measured(), measured);
  EXPECT_GT(state().tune.table.job()->error, 0) << "told at the end";
  const std::int64_t all = state().tune.table.measured();
  app().pin_tried("threads=1", true);
  settle();

  begin();
  EXPECT_TRUE(app().tunes_recipe());
  EXPECT_EQ(state().tune.table.measured(), all);
  ASSERT_NE(state().tune.table.job(), nullptr);
  EXPECT_GT(state().tune.table.job()->error, 0);
  EXPECT_EQ(app().pinned_tried(), std::set<std::string>{"threads=1"});
  app().pin_tried("threads=1", false);
  EXPECT_TRUE(app().pinned_tried().empty());
}

TEST_F(DesktopTune, ARowBecomesTheRecipeAndAFile) {
  app().start_tune(app().tune_command(2, "passes"));
  settle();
  ASSERT_EQ(state().progress.outcome, "done") << state().progress.error;
  const Recipe job = state().recipe;
  app().apply_tried("passes=none");
  EXPECT_TRUE(state().recipe.passes.empty());
  EXPECT_EQ(state().recipe.steps, job.steps);
  EXPECT_FALSE(app().tunes_recipe()) << "the search is of the recipe as it was";
  EXPECT_FALSE(state().tune.table.rows().empty());
  app().save_tried("passes=none", folder_ / "r.json");
  settle();
  const auto written = read_recipe(folder_ / "r.json");
  ASSERT_TRUE(written.ok()) << written.error().message;
  EXPECT_TRUE(written->passes.empty());
  EXPECT_EQ(written->model_hash, state().model->model.content_hash);
  app().undo();
  EXPECT_EQ(state().recipe, job);
  EXPECT_TRUE(app().tunes_recipe());
  const std::string command = app().tried_command("passes=none");
  EXPECT_EQ(command.rfind("gradloom compare ", 0), 0u) << command;
  EXPECT_NE(command.find(" --b passes=none"), std::string::npos) << command;
  EXPECT_FALSE(app().tried_recipe("pases=none").ok());
  settle();
}

TEST_F(DesktopTune, TheWorthOfPassesIsToldAgainByTheSession) {
  app().start_tune(app().worth_command(6));
  settle();
  ASSERT_EQ(state().progress.outcome, "done") << state().progress.error;
  ASSERT_TRUE(state().tune.worth.all.measured());
  const Waterfall told = waterfall(state().tune.worth, false, true);
  begin();
  ASSERT_TRUE(state().tune.worth.all.measured());
  const Waterfall read = waterfall(state().tune.worth, false, true);
  EXPECT_EQ(read.bars.front().to, told.bars.front().to);
  EXPECT_EQ(read.bars.back().to, told.bars.back().to);
  EXPECT_GT(read.bars.size(), 2u);
}

TEST_F(DesktopTune, AProofIsKeptForItsRecipe) {
  EXPECT_EQ(app().verify_command().find("--steps"), std::string::npos) << "which are those of the training";
  app().start_verify();
  EXPECT_EQ(state().progress.kind, RunKind::verify);
  settle();
  ASSERT_EQ(state().progress.outcome, "done") << state().progress.error;
  ASSERT_EQ(state().marks->proofs.size(), 1u);
  EXPECT_TRUE(state().marks->proofs[0].equal);
  EXPECT_EQ(state().marks->proofs[0].job, app().recipe_hash());
  EXPECT_FALSE(state().marks->proofs[0].passes.empty());
  EXPECT_LE(state().marks->proofs[0].error, state().marks->proofs[0].bound);
  begin();
  ASSERT_EQ(state().marks->proofs.size(), 1u) << "it is there when the window opens again";
  EXPECT_EQ(state().marks->proofs[0].job, app().recipe_hash());
}

class DesktopTuneWindow : public WindowScript {
 protected:
  std::string job(const std::string& name = "gpt-char", const std::string& more = "") {
    return GRADLOOM_SOURCE_DIR "/tests/models/" + name +
           "/model.onnx --dim batch=2 --loss ce:logits,labels --optimizer adamw " + more + "--session " +
           file("s.db");
  }
};

TEST_F(DesktopTuneWindow, ASearchIsStartedSeenAndUsed) {
  ASSERT_EQ(open(job(),
                 "size 1280 720\n"
                 "wait idle\n"
                 "click tab.Tune\n"
                 "expect tune.start\n"
                 "absent tune.rows.row.0\n"
                 "click tune.seconds\n"
                 "key ctrl+a\n"
                 "type 4\n"
                 "key enter\n"
                 "click tune.over.instances\n"
                 "click tune.start\n"
                 "wait until tune.pause\n"
                 "wait until tune.rows.row.1\n"
                 "wait until run.outcome done\n"
                 "wait idle\n"
                 "expect \"tune.dot.the job\"\n"
                 "expect tune.best\n"
                 "wait 400\n"
                 "screenshot " +
                     picture("desktop_tune_test.png") +
                     "\n"
                     "click tune.rows.column.Change\n"  // the job comes first now, however fast it is
                     "wait 100\n"
                     "click tune.rows.row.1\n"
                     "expect tune.selected *=*\n"
                     "click tune.pin\n"
                     "expect tune.pin.0 on\n"
                     "expect tune.rows.row.0 *=*\n"
                     "click tune.apply\n"
                     "wait idle\n"
                     "expect tune.other\n"
                     "hover tune.plot\n"
                     "key ctrl+z\n"
                     "wait idle\n"
                     "absent tune.other\n"),
            0)
      << error_;
  EXPECT_GT(std::filesystem::file_size(picture("desktop_tune_test.png")), 20000u);
  // The session tells it again.
  EXPECT_EQ(open(job(), "wait idle\nclick tab.Tune\nexpect tune.rows.row.1\nexpect tune.best\n"), 0)
      << error_;
}

TEST_F(DesktopTuneWindow, TheWaterfallLeadsToThePass) {
  ASSERT_EQ(open(job("mlp", "--passes fuse-optimizer "),
                 "size 1280 720\n"
                 "wait idle\n"
                 "click tab.Tune\n"
                 "click tune.seconds\n"
                 "key ctrl+a\n"
                 "type 6\n"
                 "key enter\n"
                 "click tune.worth\n"
                 "wait until run.outcome done\n"
                 "wait idle\n"
                 "expect \"waterfall.no passes\" \"* ?s\"\n"
                 "expect \"waterfall.all passes\" \"* ?s\"\n"
                 "click waterfall.of/Memory\n"
                 "expect \"waterfall.no passes\" \"* ?iB\"\n"
                 "click waterfall.of/Time\n"
                 "click waterfall.fuse-optimizer\n"
                 "wait 3\n"
                 "expect pass-row.fuse-optimizer\n"),
            0)
      << error_;
}

TEST_F(DesktopTuneWindow, PassesCarryWhatVerifySaid) {
  ASSERT_EQ(open(job(),
                 "size 1600 900\n"
                 "wait idle\n"
                 "expect passes.proof none\n"
                 "click passes.verify\n"
                 "wait until passes.proof equal\n"
                 "wait idle\n"
                 "expect proof.fuse-swish equal\n"
                 "wait 400\n"
                 "screenshot " +
                     picture("desktop_verify_test.png") +
                     "\n"
                     "click pass.fuse-gelu\n"
                     "wait idle\n"
                     "expect passes.proof none\n"
                     "expect proof.fuse-swish \"other, equal\"\n"
                     "click proof.fuse-swish\n"
                     "wait until passes.proof equal\n"
                     "expect proof.fuse-swish equal\n"),
            0)
      << error_;
}

}  // namespace
}  // namespace gradloom
