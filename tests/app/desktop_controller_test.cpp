// What the window does, driven without a window: open, plan, switch passes,
// run in a child process, compare, export.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "app/desktop/controller.h"
#include "tests/folder.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class DesktopController : public testing::Test {
 protected:
  void SetUp() override {
    controller_ = std::make_unique<Controller>(GRADLOOM_COMMAND, Settings(), nullptr);
    controller_->set_session(file("sub/session.db"));
  }
  std::string file(const std::string& name) const { return folder_ / name; }
  static std::string model(const std::string& name) {
    return std::string(GRADLOOM_SOURCE_DIR "/tests/models/") + name + "/model.onnx";
  }

  Controller& app() { return *controller_; }
  const AppState& state() { return controller_->state(); }
  void settle(std::chrono::seconds most = 240s) {
    const auto end = std::chrono::steady_clock::now() + most;
    do {
      app().tick();
      std::this_thread::sleep_for(1ms);
    } while (app().busy() && std::chrono::steady_clock::now() < end);
    app().tick();
    ASSERT_FALSE(app().busy());
  }
  std::string notices(NoticeKind kind) {
    std::string all;
    for (const Notice& n : state().notices)
      if (n.kind == kind) all += n.text + "\n";
    return all;
  }
  void open(const std::string& path) {
    app().open(path);
    settle();
  }
  void steps(std::int64_t n) {
    app().edit("steps", [&](Recipe& r) { r.steps = n; });
  }

  TemporaryFolder folder_;
  std::unique_ptr<Controller> controller_;
};

TEST_F(DesktopController, DevicesAreListedOnceAndUnusableOnesStopARun) {
  unsetenv("GRADLOOM_PLUGINS");
  app().find_devices();
  settle();
  const std::vector<DeviceInfo> found = state().devices;
  ASSERT_GE(found.size(), 3u) << "the CPU, CUDA, HIP";
  EXPECT_EQ(found[0].id, "cpu");
  EXPECT_TRUE(found[0].available);
  EXPECT_FALSE(found[0].name.empty());
  app().find_devices();
  settle();
  EXPECT_EQ(state().devices.size(), found.size());
  open(model("mlp"));
  EXPECT_EQ(app().problems().count("device"), 0u);
  const auto lacking =
      std::find_if(found.begin(), found.end(), [](const DeviceInfo& d) { return !d.available; });
  if (lacking == found.end()) GTEST_SKIP() << "every device works here";
  ASSERT_FALSE(lacking->why_not.empty());
  app().edit("device", [&](Recipe& r) { r.device = lacking->id; });
  settle();
  EXPECT_EQ(app().problems().at("device"), lacking->why_not);
  ASSERT_TRUE(state().plan) << "planned for GPUs all the same: " << state().plan_error;
  EXPECT_EQ(state().plan->plan().target, kernels::Target::gpu);
  app().start_run();
  EXPECT_FALSE(app().busy());
  EXPECT_NE(notices(NoticeKind::error).find(lacking->why_not), std::string::npos);
}

// Views ask what is wrong in each frame: the fields are looked at when the recipe changes.
TEST_F(DesktopController, FieldsAreCheckedOnceForEachRecipe) {
  open(model("mlp"));
  EXPECT_TRUE(app().problems().empty());
  const std::int64_t before = app().fields_checked();
  for (int frame = 0; frame < 50; ++frame) EXPECT_TRUE(app().problems().empty());
  EXPECT_EQ(app().fields_checked(), before);
  app().edit("no loss", [](Recipe& r) { r.loss.clear(); });
  settle();
  for (int frame = 0; frame < 50; ++frame) EXPECT_EQ(app().problems().count("loss"), 1u);
  EXPECT_EQ(app().fields_checked(), before + 1);
}

TEST_F(DesktopController, OpeningChoosesLossAndDimsAndPlans) {
  open(model("mlp"));
  ASSERT_TRUE(state().has_model()) << notices(NoticeKind::error);
  EXPECT_EQ(state().recipe.loss, "loss");
  EXPECT_EQ(state().model->symbols.empty(), state().recipe.dims.empty());
  ASSERT_TRUE(state().plan) << state().plan_error;
  ASSERT_TRUE(state().baseline);
  EXPECT_LT(state().plan->totals.kernels, state().baseline->totals.kernels);
  EXPECT_GT(state().plan->totals.peak_bytes, 0);
  for (GraphStage at : {GraphStage::model, GraphStage::before, GraphStage::after})
    ASSERT_TRUE(state().graphs.at(at));
  EXPECT_TRUE(app().problems().empty());
  EXPECT_EQ(state().settings.recents.front(), model("mlp"));
}

TEST_F(DesktopController, AFindingsChangeIsAppliedAndUndone) {
  open(model("mlp"));
  ASSERT_TRUE(state().plan) << state().plan_error;
  const Recipe before = state().recipe;
  EXPECT_FALSE(app().can_apply(""));
  EXPECT_FALSE(app().can_apply("model=EDITED.onnx"));
  ASSERT_TRUE(app().can_apply("passes=none;threads=1"));
  app().apply_change("passes=none;threads=1");
  settle();
  EXPECT_TRUE(state().recipe.passes.empty());
  EXPECT_EQ(state().recipe.threads, 1);
  EXPECT_EQ(state().plan->totals.kernels, state().baseline->totals.kernels);
  app().apply_change("threads=1");
  EXPECT_NE(notices(NoticeKind::info).find("already"), std::string::npos);
  app().undo();
  settle();
  EXPECT_EQ(state().recipe, before);
  app().apply_change("colour=red");
  EXPECT_EQ(state().recipe, before);
  EXPECT_NE(notices(NoticeKind::error), "");
}

// What is large is looked at while its step is planned.
TEST_F(DesktopController, TheModelsGraphIsThereBeforeThePlan) {
  app().open(model("gpt-char"));
  while (!state().has_model() && app().busy()) app().tick();
  ASSERT_TRUE(state().has_model());
  EXPECT_FALSE(state().plan);
  ASSERT_TRUE(state().graphs.model);
  const auto seen = state().graphs.model;
  EXPECT_GT(seen->model.boxes.size(), 20u);
  settle();
  ASSERT_TRUE(state().plan);
  EXPECT_EQ(state().graphs.model->model.boxes.size(), seen->model.boxes.size());
  // A recipe without a plan leaves what was imported.
  app().edit("loss", [](Recipe& r) { r.loss = "none"; });
  settle();
  EXPECT_FALSE(state().plan_error.empty());
  EXPECT_EQ(state().graphs.model, seen);
}

// Jobs tell how far they are while the window goes.
TEST_F(DesktopController, ClosingWhileASessionIsReadWaitsForTheReader) {
  open(model("mlp"));
  steps(3);
  app().start_run();
  settle();
  ASSERT_EQ(state().progress.outcome, "done") << state().progress.error;
  for (int i = 0; i < 20; ++i) {
    Controller closing(GRADLOOM_COMMAND, Settings(), nullptr);
    closing.open_session(file("sub/session.db"));
    std::this_thread::sleep_for(std::chrono::microseconds(200 * i));
  }
}

TEST_F(DesktopController, SwitchingAPassReplansAndSaysWhatChanged) {
  open(model("mlp"));
  ASSERT_TRUE(state().plan);
  const PlanTotals before = state().plan->totals;
  app().set_pass("fuse-optimizer", false);
  settle();
  ASSERT_TRUE(state().change);
  EXPECT_EQ(state().change->what, "fuse-optimizer off");
  EXPECT_EQ(state().change->before.kernels, before.kernels);
  EXPECT_GT(state().plan->totals.kernels, before.kernels);
  EXPECT_GT(state().change->added, 0u);
  EXPECT_EQ(state().change->added_nodes.size(), state().change->added);
  EXPECT_EQ(state().change->removed_nodes.size(), state().change->removed);
  const auto row =
      std::find_if(state().passes.passes.begin(), state().passes.passes.end(),
                   [](const PassView& p) { return p.def->name == std::string("fuse-optimizer"); });
  ASSERT_NE(row, state().passes.passes.end());
  EXPECT_FALSE(row->enabled);
  EXPECT_NE(app().run_command().find("--passes default,-fuse-optimizer "), std::string::npos)
      << app().run_command();
  app().undo();
  settle();
  EXPECT_EQ(state().plan->totals.kernels, before.kernels);
  app().redo();
  settle();
  EXPECT_GT(state().plan->totals.kernels, before.kernels);
}

// The thread that reads sessions is held up here; a plan does not wait for it.
TEST_F(DesktopController, PlansAreMadeWhileASessionIsRead) {
  std::atomic<bool> hold = false, held = false, release = false;
  std::atomic<std::thread::id> reader;
  controller_ = std::make_unique<Controller>(GRADLOOM_COMMAND, Settings(), [&] {
    // After a job, on the thread that did it: the first to work is the one that reads sessions.
    const std::thread::id self = std::this_thread::get_id();
    std::thread::id nobody;
    reader.compare_exchange_strong(nobody, self);
    if (reader != self || !hold.exchange(false)) return;
    held = true;
    release.wait(false);
  });
  controller_->set_session(file("sub/session.db"));
  settle();
  open(model("mlp"));
  ASSERT_TRUE(state().plan);
  ASSERT_NE(reader.load(), std::thread::id());
  hold = true;
  app().reload_session();
  while (!held) std::this_thread::sleep_for(1ms);
  app().set_pass("fuse-optimizer", false);
  for (int i = 0; i < 60000 && !state().change; ++i) {
    app().tick();
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_TRUE(state().change) << "planning waits for reading";
  release = true;
  release.notify_all();
  settle();
  controller_.reset();  // its thread reads what stands above
}

TEST_F(DesktopController, OnlyTheLastOfQuickSwitchesIsPlanned) {
  open(model("mlp"));
  ASSERT_TRUE(state().plan);
  const std::int64_t kernels = state().plan->totals.kernels;
  for (int i = 0; i < 10; ++i) app().set_pass("fuse-optimizer", i % 2 == 1);
  settle();
  EXPECT_EQ(state().plan->totals.kernels, kernels);
}

TEST_F(DesktopController, RunsComparesAndExports) {
  open(model("mlp"));
  steps(5);
  app().start_run();
  EXPECT_TRUE(state().progress.running);
  settle();
  EXPECT_EQ(state().progress.outcome, "done") << state().progress.error;
  EXPECT_EQ(state().progress.losses.size(), 5u);
  ASSERT_TRUE(state().run);
  EXPECT_EQ(state().run->record.steps.size(), 5u);
  EXPECT_EQ(state().run->record.summary.plan_hash, state().plan->plan().hash);
  EXPECT_EQ(state().graphs.after->timed_run, state().run->record.summary.id);
  EXPECT_TRUE(state().graphs.after->model.timed);
  EXPECT_TRUE(app().shown_run_is_current());

  app().set_pass("fuse-optimizer", false);
  settle();
  EXPECT_FALSE(app().shown_run_is_current());
  EXPECT_TRUE(app().can_export());
  app().start_run();
  settle();
  ASSERT_EQ(state().session->runs.size(), 2u);
  EXPECT_EQ(state().run_a, 1);
  EXPECT_EQ(state().run_b, 2);

  app().start_compare(app().compare_command(true));
  settle();
  EXPECT_EQ(state().progress.outcome, "done") << state().progress.error;
  ASSERT_TRUE(state().comparison);
  EXPECT_FALSE(state().comparison->comparison.interleaved);
  EXPECT_EQ(state().comparison->run_a, 1);

  app().start_compare(app().compare_passes_command());
  settle();
  EXPECT_EQ(state().progress.outcome, "done") << state().progress.error;
  EXPECT_TRUE(state().comparison->comparison.interleaved);
  EXPECT_EQ(state().comparison->comparison.a, "passes=none");
  EXPECT_EQ(state().comparison->run_a, 0);  // settings, not recorded runs

  app().export_run(file("out.json"));
  settle();
  const auto recipe = read_recipe(file("out.json"));
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  ASSERT_TRUE(recipe->expect);
  EXPECT_EQ(recipe->expect->losses.size(), 5u);

  app().report_run(file("run.html"));
  settle();
  std::ifstream in(file("run.html"));
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  EXPECT_NE(page.find("</html>"), std::string::npos) << notices(NoticeKind::error);
  app().report_run(file("missing/run.html"));
  settle();
  EXPECT_NE(notices(NoticeKind::error).find("missing"), std::string::npos);

  app().close_model();
  EXPECT_FALSE(state().has_model());
  app().open(file("sub/session.db"));  // the newest run says which model
  settle();
  EXPECT_TRUE(state().has_model()) << notices(NoticeKind::error);
  EXPECT_EQ(state().session->runs.size(), 2u);
  EXPECT_TRUE(state().comparison);
}

TEST_F(DesktopController, SavingIsOfTheRecipeAndExportingOfTheRun) {
  open(model("mlp"));
  EXPECT_FALSE(app().can_export());
  app().export_run(file("none.json"));
  app().report_run(file("none.html"));
  settle();
  EXPECT_FALSE(fs::exists(file("none.json")));
  EXPECT_FALSE(fs::exists(file("none.html")));
  EXPECT_FALSE(state().unsaved());  // it never was in a file
  app().save_recipe(file("r.json"));
  settle();
  EXPECT_EQ(state().recipe_path, file("r.json"));
  steps(7);
  EXPECT_TRUE(state().unsaved());
  app().undo();
  EXPECT_FALSE(state().unsaved());
  app().redo();
  app().save_recipe(state().recipe_path);
  settle();
  EXPECT_FALSE(state().unsaved());
  app().close_model();
  open(file("r.json"));
  EXPECT_EQ(state().recipe.steps, 7);
  EXPECT_EQ(state().recipe_path, file("r.json"));
  EXPECT_FALSE(state().unsaved());
  open(model("mlp"));
  EXPECT_EQ(state().recipe_path, "");
  app().save_recipe(file("missing/r.json"));
  settle();
  EXPECT_EQ(state().recipe_path, "") << "a file that could not be written is not the recipe's";
  EXPECT_NE(notices(NoticeKind::error).find("missing"), std::string::npos);
}

TEST_F(DesktopController, NotesAndBookmarksStayWithTheModel) {
  const std::string marks = file("marks");
  controller_ = std::make_unique<Controller>(GRADLOOM_COMMAND, Settings(), nullptr, marks);
  app().put_note({0, "nothing is open", "a"});
  EXPECT_TRUE(state().marks->notes.empty());
  open(model("mlp"));
  Bookmark here;
  here.tab = "Kernels";
  here.graph.node = "x";
  app().set_bookmark(9, here);
  app().set_bookmark(10, here);
  app().put_note({0, "first", "a"});
  steps(7);
  app().put_note({0, "second", "b"});
  ASSERT_EQ(state().marks->notes.size(), 2u);
  app().undo();  // notes and recipe are one history
  EXPECT_EQ(state().marks->notes.size(), 1u);
  EXPECT_EQ(state().recipe.steps, 7);
  app().undo();
  EXPECT_NE(state().recipe.steps, 7);
  EXPECT_EQ(state().marks->notes.size(), 1u);
  app().undo();
  EXPECT_TRUE(state().marks->notes.empty());
  EXPECT_TRUE(state().marks->bookmarks[8]) << "going back in the recipe keeps bookmarks";
  for (int i = 0; i < 3; ++i) app().redo();
  EXPECT_EQ(state().marks->notes.back().text, "second");
  const Marks kept = *state().marks;
  controller_.reset();  // at once: nothing waits for a timer
  controller_ = std::make_unique<Controller>(GRADLOOM_COMMAND, Settings(), nullptr, marks);
  open(model("cnn-digits"));
  EXPECT_TRUE(state().marks->notes.empty());
  open(model("mlp"));
  EXPECT_EQ(*state().marks, kept);
}

TEST_F(DesktopController, ARunThatGoesOnIsFollowedOrNot) {
  open(model("mlp"));
  steps(5);
  app().start_run();
  settle();
  ASSERT_TRUE(state().run);
  ASSERT_EQ(state().run->record.summary.id, 1);
  const auto run_until = [&](const auto& reached) {
    app().edit("more", [](Recipe& r) { r.steps = 100000000, r.profile = "sampled"; });
    app().start_run();
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (!reached() && std::chrono::steady_clock::now() < end) {
      app().tick();
      std::this_thread::sleep_for(1ms);
    }
  };
  run_until([&] { return state().run->record.summary.id == 2; });
  EXPECT_TRUE(state().progress.running) << "shown while it runs";
  EXPECT_EQ(state().run->record.summary.id, 2);
  EXPECT_FALSE(state().run->record.steps.empty());
  app().stop_run();
  settle();
  EXPECT_EQ(state().run->record.summary.status, "stopped");

  app().edit_state().settings.follow_run = false;
  app().show_run(1);
  settle();
  run_until([&] { return state().progress.step > 20; });
  app().stop_run();
  settle();
  EXPECT_EQ(state().session->runs.size(), 3u);
  EXPECT_EQ(state().run->record.summary.id, 1) << "the chosen run stays";
}

TEST_F(DesktopController, TheRunShownIsOfTheModelHoweverLateThatIsRead) {
  for (const char* name : {"mlp", "cnn-digits"}) {
    open(model(name));
    steps(2);
    settle();
    app().start_run();
    settle();
  }
  ASSERT_EQ(state().session->runs.size(), 2u) << notices(NoticeKind::error);
  controller_ = std::make_unique<Controller>(GRADLOOM_COMMAND, Settings(), nullptr);
  app().set_session(file("sub/session.db"));
  settle();
  ASSERT_TRUE(state().run);
  EXPECT_EQ(state().run->record.summary.id, 2) << "the newest, as no model is known";
  open(model("mlp"));
  EXPECT_EQ(state().run->record.summary.id, 1);
}

TEST_F(DesktopController, AnotherModelHasNoTimesOfARun) {
  open(model("mlp"));
  steps(3);
  app().start_run();
  settle();
  ASSERT_EQ(timed_run(state()), 1);
  const std::string session = state().session_path;
  open(model("cnn-digits"));
  EXPECT_EQ(state().session_path, session) << "the next runs are recorded there";
  EXPECT_EQ(state().session->runs.size(), 1u);
  EXPECT_FALSE(state().run);
  EXPECT_NE(notices(NoticeKind::info).find("Run 1 is of another model"), std::string::npos);
  const auto has_no_times = [&] {
    EXPECT_EQ(timed_run(state()), 0);
    EXPECT_EQ(state().graphs.after->timed_run, 0);
    EXPECT_FALSE(state().graphs.after->model.timed);
    EXPECT_FALSE(app().predicts_run());
    EXPECT_EQ(app().advise_command(true), app().advise_command(false));
    EXPECT_TRUE(app().timed_runs().empty());
  };
  has_no_times();
  app().show_run(1);
  settle();
  ASSERT_TRUE(state().run) << "what was chosen is shown";
  has_no_times();
  app().set_pass("fuse-optimizer", false);  // nor has what is planned then
  settle();
  has_no_times();
  app().open_model_of_run();
  settle();
  EXPECT_EQ(state().model->model.content_hash, state().run->record.summary.model_hash);
  EXPECT_EQ(timed_run(state()), 1);
  EXPECT_TRUE(state().graphs.after->model.timed);
}

TEST_F(DesktopController, ARunThatWasAskedForStaysWithItsModel) {
  for (const char* name : {"mlp", "mlp", "cnn-digits"}) {
    open(model(name));
    steps(2);
    app().start_run();
    settle();
  }
  const std::string session = state().session_path;
  controller_ = std::make_unique<Controller>(GRADLOOM_COMMAND, Settings(), nullptr);
  app().want_run(1, 0);
  open(session);
  EXPECT_EQ(state().run->record.summary.id, 1);
  open(model("cnn-digits"));
  EXPECT_EQ(state().run->record.summary.id, 3) << "the newest of the model";
  open(model("mlp"));
  EXPECT_EQ(state().run->record.summary.id, 2) << "it was asked for once";
  EXPECT_EQ(state().run_b, 2);
  EXPECT_EQ(state().run_a, 1);
}

// A model that was exported again: the session's runs are of what it was before, and that is told beside their times.
TEST_F(DesktopController, AModelThatHasChangedSinceKeepsItsRuns) {
  fs::copy_file(model("mlp"), file("m.onnx"));
  open(file("m.onnx"));
  steps(2);
  app().start_run();
  settle();
  const std::string session = state().session_path;
  std::ofstream(file("m.onnx"), std::ios::binary | std::ios::app) << "\x32\x01x";  // ModelProto.doc_string
  controller_ = std::make_unique<Controller>(GRADLOOM_COMMAND, Settings(), nullptr);
  open(session);
  EXPECT_NE(notices(NoticeKind::warning).find("its contents differ"), std::string::npos);
  ASSERT_TRUE(state().own_run());
  EXPECT_NE(state().run->record.summary.model_hash, state().model->model.content_hash);
  EXPECT_TRUE(state().graphs.after->model.timed);
}

TEST_F(DesktopController, ASessionOpenedWithItsModelBringsTheTimes) {
  open(model("mlp"));
  steps(5);
  app().start_run();
  settle();
  const std::string session = state().session_path;
  controller_ = std::make_unique<Controller>(GRADLOOM_COMMAND, Settings(), nullptr);
  app().set_session(session);  // read at the same time as the model
  open(model("mlp"));
  ASSERT_TRUE(state().run);
  ASSERT_TRUE(state().graphs.after);
  EXPECT_EQ(state().graphs.after->timed_run, 1);
  EXPECT_TRUE(state().graphs.after->model.timed);
}

TEST_F(DesktopController, StoppingKeepsWhatWasRecorded) {
  open(model("mlp"));
  steps(100000000);
  app().start_run();
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (state().progress.step < 3 && std::chrono::steady_clock::now() < end) {
    app().tick();
    std::this_thread::sleep_for(1ms);
  }
  app().stop_run();
  settle();
  EXPECT_EQ(state().progress.outcome, "stopped") << state().progress.error;
  ASSERT_TRUE(state().run);
  EXPECT_GE(state().run->record.steps.size(), 3u);
  EXPECT_EQ(state().run->record.summary.status, "stopped");
}

TEST_F(DesktopController, ProblemsAreNamedBeforeAnythingStarts) {
  open(model("mlp"));
  app().edit("loss", [](Recipe& r) { r.loss = "ce:nothing,labels"; });
  settle();
  EXPECT_NE(state().plan_error.find("nothing"), std::string::npos);
  app().start_run();
  EXPECT_FALSE(state().progress.running);
  EXPECT_NE(notices(NoticeKind::error).find("nothing"), std::string::npos);
  app().undo();
  settle();
  EXPECT_EQ(state().plan_error, "");
  app().edit("data", [&](Recipe& r) { r.data = "npz:" + file("missing.npz"); });
  settle();
  EXPECT_NE(app().problems()["data"].find("missing.npz"), std::string::npos);
}

TEST_F(DesktopController, AModelWithUnknownOperatorsIsViewedNotTrained) {
  std::ifstream in(model("mlp"), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const std::string known = "\x22\x04Relu", odd = "\x22\x04Rolu";  // field op_type of a NodeProto
  int replaced = 0;
  for (std::size_t at = 0; (at = bytes.find(known, at)) != std::string::npos; ++replaced)
    bytes.replace(at, odd.size(), odd);
  ASSERT_GT(replaced, 0);
  std::ofstream(file("odd.onnx"), std::ios::binary) << bytes;
  open(file("odd.onnx"));
  ASSERT_TRUE(state().has_model()) << notices(NoticeKind::error);
  EXPECT_EQ(state().model->model.unknown.size(), static_cast<std::size_t>(replaced));
  EXPECT_FALSE(state().plan);
  ASSERT_TRUE(state().graphs.model);
  EXPECT_EQ(std::count_if(state().graphs.model->model.boxes.begin(), state().graphs.model->model.boxes.end(),
                          [](const GraphBox& b) { return b.unsupported; }),
            replaced);
  app().start_run();
  EXPECT_FALSE(state().progress.running);
}

TEST_F(DesktopController, BadFilesAreOneLineAndLeaveTheOpenModel) {
  open(model("mlp"));
  std::ofstream(file("broken.onnx")) << "not a model";
  std::ofstream(file("broken.db")) << "not a session";
  std::ofstream(file("broken.json")) << "{";
  for (const char* name : {"broken.onnx", "broken.db", "broken.json", "missing.onnx"}) {
    app().edit_state().notices.clear();
    open(file(name));
    EXPECT_NE(notices(NoticeKind::error).find(name), std::string::npos)
        << name << ": " << notices(NoticeKind::error);
    EXPECT_TRUE(state().has_model());
    EXPECT_TRUE(state().plan);
  }
}

}  // namespace
}  // namespace gradloom
