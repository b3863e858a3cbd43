// What a training takes, as forms of the window: data, held-out data, checkpoints, rules. The command line says what
// the forms show, and the run in the child process does it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "engine/ir/instances.h"
#include "sessions/recipe.h"
#include "sessions/store.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

const std::string kModels = GRADLOOM_SOURCE_DIR "/tests/models/";

std::string typed(const std::string& id, const std::string& text) {
  return "click " + id + "\nkey ctrl+a\ntype " + text + "\nkey enter\nwait idle\n";
}
std::string chosen(const std::string& id, const std::string& choice) {
  return "click " + id + "\nclick \"" + id + "/" + choice + "\"\nwait idle\n";
}

class DesktopTraining : public WindowScript {
 protected:
  std::string mlp(int steps) const {
    return kModels + "mlp/model.onnx --dim batch=8 --loss loss --optimizer adam --steps " +
           std::to_string(steps) + " --session " + session();
  }
  std::string session() const { return file("s.db"); }
  RunRecord recorded(std::int64_t run) const {
    const auto store = Store::open(session(), StoreMode::read);
    EXPECT_TRUE(store.ok());
    auto record = (*store)->load_run(run);
    EXPECT_TRUE(record.ok()) << record.error().message;
    return record.ok() ? std::move(record).value() : RunRecord{};
  }
  static Recipe recipe_of(const RunRecord& run) {
    auto recipe = parse_recipe(run.recipe_json);
    EXPECT_TRUE(recipe.ok());
    return recipe.ok() ? std::move(recipe).value() : Recipe{};
  }
};

TEST_F(DesktopTraining, DataAreChosenByKindAndFile) {
  const std::string batches = kModels + "mlp/batches.npz", folder = kModels + "mlp";
  const std::string script =
      "size 1600 1600\nwait idle\nexpect run.data synthetic\nabsent run.data.file\n" +
      chosen("run.data", "npz") + "expect problem.data \"choose a file\"\n" +
      typed("run.data.file", file("none.npz")) +
      "expect problem.data *none.npz*\n"
      "click run.data.file.browse\nwait until file.path\nkey ctrl+a\ntype " +
      batches + "\nclick file.accept\nwait idle\nabsent problem.data\nexpect run.data.file *batches.npz\n" +
      // A folder is entered from the list and taken by the button.
      "click run.data.file.browse\nwait until file.row.batches.npz\nkey ctrl+a\ntype " + folder +
      "\nclick file.accept\nwait idle\nabsent file.path\nexpect run.data.file *mlp\nabsent problem.data\n" +
      chosen("run.data", "tokens, 2 bytes") + "expect run.command \"*--data 'tokens{bytes=2}:*mlp' *\"\n" +
      chosen("run.data", "npy") + "expect problem.data \"choose a file\"\n" +
      typed("run.data.file.x", "a.npy") + typed("run.data.file.labels", "b.npy") +
      "expect run.command \"*--data npy:x=a.npy,labels=b.npy *\"\nexpect problem.data *a.npy*\n" +
      chosen("run.data", "npz") + typed("run.data.file", batches) +
      "click run.more\nwait 3\nexpect run.eval_data none\nabsent run.eval_data.file\n"
      "click run.shuffle\nwait idle\nexpect run.shuffle on\n" +
      typed("run.eval_every", "2") + "expect problem.eval_data *--eval-data*\n" +
      chosen("run.eval_data", "npz") + typed("run.eval_data.file", batches) +
      typed("run.early_stop", "patience=9") +
      "absent problem.eval_data\nexpect run.command \"*--shuffle on --eval-data *batches.npz --eval-every 2 "
      "--early-stop patience=9 *\"\n"
      "click run.start\nwait until run.outcome done\nwait idle\n";
  ASSERT_EQ(open(mlp(6), script), 0) << error_;
  const RunRecord run = recorded(1);
  const Recipe recipe = recipe_of(run);
  EXPECT_EQ(recipe.data, "npz:" + batches);
  EXPECT_TRUE(recipe.shuffle);
  ASSERT_EQ(run.evaluations.size(), 3u);
  EXPECT_EQ(run.evaluations.back().step, 6);
}

// Six steps with checkpoints, then on from one of them to the twelfth, out of the window: the losses are those of a
// training that never stopped.
TEST_F(DesktopTraining, GoesOnFromACheckpointThatItWrote) {
  const std::string folder = file("kept");
  const std::string script =
      "size 1600 1600\nwait idle\nclick run.more\nwait 3\nexpect run.resume \"the start\"\n" +
      typed("run.checkpoint", folder) + typed("run.checkpoint-every", "2") +
      typed("run.checkpoint-keep", "0") +
      "expect run.command \"*--checkpoint */kept --checkpoint-every 2 --checkpoint-keep 0 *\"\n"
      "click run.start\nwait until run.outcome done\nwait idle\n"
      "expect problem.checkpoint \"the folder holds step 6*\"\n"
      "click run.start\nwait idle\nabsent run.progress\n"  // it cannot be started
      + chosen("run.resume", "step 6") +
      "absent problem.checkpoint\nexpect run.steps 12\n"
      "expect run.command \"*--resume */kept/step-00000006 *\"\n"
      "click run.start\nwait until run.outcome done\nwait idle\n"
      "expect run.outcome \"done\"\n"
      "click run.resume\nexpect \"run.resume/step 12\"\nexpect \"run.resume/step 4\"\nkey escape\nwait 3\n" +
      typed("run.checkpoint", file("other")) + chosen("run.resume", "the start") +
      "expect run.steps 12\nabsent problem.checkpoint\nclick run.start\nwait until run.outcome done\nwait idle\n";
  ASSERT_EQ(open(mlp(6), script), 0) << error_;
  const RunRecord before = recorded(1), on = recorded(2), whole = recorded(3);
  ASSERT_EQ(before.steps.size(), 6u);
  ASSERT_EQ(on.steps.size(), 6u);
  ASSERT_EQ(whole.steps.size(), 12u);
  EXPECT_EQ(on.steps.front().step, 7);
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_EQ(whole.steps[i].loss, i < 6 ? before.steps[i].loss : on.steps[i - 6].loss) << "step " << i + 1;
  for (const char* step : {"2", "4", "6", "8", "10", "12"})
    EXPECT_TRUE(fs::exists(folder + "/step-" + std::string(8 - std::string(step).size(), '0') + step))
        << step;
}

// What is changed after a checkpoint was chosen is said, what it has is not.
TEST_F(DesktopTraining, ACheckpointBringsItsSettings) {
  const std::string folder = file("kept");
  const std::string train = std::string(GRADLOOM_COMMAND) + " train " + mlp(4) +
                            " --clip-norm 0.5 --seed 7 --checkpoint " + folder + " > /dev/null 2>&1";
  ASSERT_EQ(std::system(train.c_str()), 0);
  const std::string script =
      "size 1600 1600\nwait idle\nclick run.more\nwait 3\nexpect run.clip_norm 0\n"
      "click run.resume\nclick \"run.resume/another folder\u2026\"\nwait until file.path\nkey ctrl+a\ntype " +
      file("none") + "\nclick file.accept\nwait 5\nclick file.path\nkey ctrl+a\ntype " + folder +
      "\nclick file.accept\nwait idle\nabsent file.path\nexpect run.clip_norm 0.5\nexpect run.seed 7\n"
      "expect run.resume \"step 4\"\nexpect run.steps 8\n" +
      typed("run.clip_norm", "0") +
      "expect run.command \"*--optimizer adam --clip-norm 0 --steps 8 --resume */kept/step-00000004 --session *\"\n"
      "key ctrl+z\nwait idle\nexpect run.clip_norm 0.5\n" +
      typed("run.steps", "4") + "expect problem.checkpoint \"4 steps are made*\"\n" +
      typed("run.steps", "5") + "click run.start\nwait until run.outcome done\nwait idle\n";
  ASSERT_EQ(open(mlp(4), script), 0) << error_;
  const RunRecord run = recorded(2);
  ASSERT_EQ(run.steps.size(), 1u);
  EXPECT_EQ(run.steps[0].step, 5);
  EXPECT_EQ(recipe_of(run).clip_norm, 0.5);
  EXPECT_EQ(recipe_of(run).seed, 7u);
}

// The instances of a pass by their fingerprints, with what the run that is shown says of them.
TEST_F(DesktopTraining, InstancesAreCalledByFingerprintsThatTheSessionHas) {
  const std::string train = std::string(GRADLOOM_COMMAND) + " train " + mlp(3) + " > /dev/null 2>&1";
  ASSERT_EQ(std::system(train.c_str()), 0);
  std::string fingerprint;
  for (const PassRow& pass : recorded(1).passes)
    for (const RewriteRecord& record : pass.log)
      if (pass.name == "fuse-bias-activation" && record.matched) fingerprint = record.fingerprint;
  ASSERT_TRUE(is_fingerprint(fingerprint)) << fingerprint;
  const std::string link = "fingerprint.fuse-bias-activation." + fingerprint;
  const std::string script =
      "size 1600 1600\nwait idle\nclick pass-row.fuse-bias-activation\nwait 3\nexpect " + link +
      " matched\nclick " + link + "\nwait idle\n";
  ASSERT_EQ(open(mlp(3), script), 0) << error_;
  // What the session calls the instance is what --passes takes.
  const std::string alone = train.substr(0, train.find(" > ")) +
                            " --passes 'fuse-bias-activation{only=" + fingerprint + "}' > /dev/null 2>&1";
  ASSERT_EQ(std::system(alone.c_str()), 0);
  const RunRecord run = recorded(2);
  for (const PassRow& pass : run.passes) EXPECT_EQ(pass.matched, 1) << pass.name;
}

// A file of rules becomes switches before the passes; what is wrong in it is told where it was asked for.
TEST_F(DesktopTraining, RulesAreReadSwitchedReadAgainAndRemoved) {
  std::ofstream(file("wrong.rules")) << "rule twice { y = Neg(n) -> z }";
  std::ofstream(file("my.rules")) << "// of the test\nrule twice { y = Neg(n); n = Neg(x) -> x }\n"
                                     "rule relu { y = Relu(x) -> y = Max(x, #0) }\n";
  const auto ask = [&](const std::string& name) {
    return "click passes.rules\nwait until file.path\nkey ctrl+a\ntype " + file(name) +
           "\nclick file.accept\nwait idle\n";
  };
  const std::string script =
      "size 1600 1600\nwait idle\nabsent rules.remove\n" + ask("wrong.rules") +
      "expect problem.rules \"*wrong.rules:1:28*\"\nabsent pass.twice\n" + ask("my.rules") +
      "absent problem.rules\nexpect pass.twice on\nexpect pass.relu on\n"
      "expect pass-row.twice \"0 matches\"\nexpect pass-row.relu \"2 matches\"\n"
      "expect run.command \"*--rules '*rule twice*rule relu*' *\"\n"
      "click pass.twice\nwait idle\nexpect pass.twice off\nexpect run.command \"*--passes default,-twice *\"\n"
      "click passes.none\nwait idle\nexpect pass.relu off\nclick passes.default\nwait idle\nexpect pass.relu on\n"
      "expect pass.twice on\nclick pass.twice\nwait idle\n"
      "click run.start\nwait until run.outcome done\nwait idle\n"
      "click rules.again\nwait idle\nexpect pass.twice on\nclick rules.remove\nwait idle\nabsent pass.twice\n"
      "expect run.command \"*model.onnx --dim*\"\nkey ctrl+z\nwait idle\nexpect pass.relu on\n";
  ASSERT_EQ(open(mlp(4), script), 0) << error_;
  const RunRecord run = recorded(1);
  const Recipe recipe = recipe_of(run);
  EXPECT_NE(recipe.rules.find("rule relu"), std::string::npos);
  const auto has = [&](const std::string& name) {
    return std::any_of(recipe.passes.begin(), recipe.passes.end(),
                       [&](const auto& p) { return p.name == name; });
  };
  EXPECT_TRUE(has("relu"));
  EXPECT_FALSE(has("twice"));
}

}  // namespace
}  // namespace gradloom
