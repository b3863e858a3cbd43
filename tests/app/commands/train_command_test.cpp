// Checkpoints as a user has them: written, gone on from, killed.
#include <gtest/gtest.h>

#include <random>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class TrainCommand : public Commands {
 protected:
  static std::map<std::int64_t, double> losses(const Outcome& o) {
    std::map<std::int64_t, double> all;
    std::istringstream in(o.out);
    for (std::string line; std::getline(in, line);)
      if (const json parsed = json::parse(line, nullptr, false);
          parsed.is_object() && parsed.contains("step"))
        all[parsed["step"]] = parsed["loss"];
    return all;
  }
  // Steps that were made again had the same losses.
  static void expect_agreement(std::map<std::int64_t, double>& seen, std::map<std::int64_t, double> more) {
    for (const auto& [step, loss] : more)
      if (const auto it = seen.find(step); it != seen.end()) {
        EXPECT_EQ(it->second, loss) << "step " << step;
      }
    seen.merge(more);
  }
  std::string kept() const { return path("kept"); }
};

TEST_F(TrainCommand, GoesOnWithWhatTheCheckpointSays) {
  const Outcome whole = run(train_mlp({"--steps", "9", "--save-params", path("whole.npz")}));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Outcome first = run(train_mlp({"--steps", "5", "--checkpoint", kept(), "--checkpoint-every", "2",
                                       "--checkpoint-keep", "3", "--session", path("s.db")}));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.lines().back()["summary"]["checkpoint"]["step"], 5);
  EXPECT_EQ(first.lines().back()["summary"]["checkpoint"]["written"], 3);
  for (const char* name : {"step-00000002", "step-00000004", "step-00000005"})
    EXPECT_TRUE(fs::exists(kept() + "/" + name)) << name;
  const Outcome rest = run({"train", "--resume", kept(), "--steps", "9", "--save-params", path("rest.npz"),
                            "--session", path("s.db"), "--json"});
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(rest.lines()[0]["steps_before"], 5);
  auto expected = losses(whole);
  for (std::int64_t step = 1; step <= 5; ++step) EXPECT_EQ(losses(first)[step], expected[step]);
  for (std::int64_t step = 1; step <= 5; ++step) expected.erase(step);
  EXPECT_EQ(losses(rest), expected);
  EXPECT_TRUE(read_file(path("whole.npz")) == read_file(path("rest.npz")));
  // The session knows where the run came from and what it left, and promises nothing that a replay cannot keep.
  const json shown = run({"show", path("s.db"), "--run", "2", "--json"}).lines()[0];
  EXPECT_EQ(shown["environment"]["resumed_from"], kept() + "/step-00000005");
  const json before = run({"show", path("s.db"), "--run", "1", "--json"}).lines()[0];
  EXPECT_EQ(before["environment"]["checkpoint"], kept() + "/step-00000005");
  ASSERT_EQ(run({"export", path("s.db"), "--run", "2", "-o", path("r.json")}).code, 0);
  EXPECT_FALSE(json::parse(read_file(path("r.json")))["expect"].contains("losses"));
}

TEST_F(TrainCommand, WithNothingLeftToDoItEndsWell) {
  ASSERT_EQ(run(train_mlp({"--steps", "3", "--checkpoint", kept()})).code, 0);
  const Outcome o = run({"train", "--resume", kept(), "--json", "--save-params", path("p.safetensors")});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("nothing is left to do"), std::string::npos) << o.err;
  EXPECT_EQ(o.lines().back()["summary"]["steps"], 0);
  EXPECT_TRUE(fs::exists(path("p.safetensors")));
}

TEST_F(TrainCommand, ParametersAloneAreLoaded) {
  const Outcome first =
      run(train_mlp({"--steps", "3", "--checkpoint", kept(), "--save-params", path("p.npz")}));
  ASSERT_EQ(first.code, 0) << first.err;
  std::map<std::int64_t, double> seen;
  for (const std::string& file : {path("p.npz"), kept() + "/step-00000003/model.safetensors"}) {
    const Outcome o = run(train_mlp({"--steps", "2", "--load-params", file}));
    ASSERT_EQ(o.code, 0) << o.err;
    if (seen.empty()) seen = losses(o);
    EXPECT_EQ(losses(o), seen);
  }
  EXPECT_NE(seen[1], losses(first)[1]);
  expect_error(train_mlp({"--steps", "1", "--load-params", path("none.npz")}), 5, "none.npz");
  expect_error(train_mlp({"--steps", "1", "--load-params", model("mlp") + "/model.onnx"}), 3,
               "not a safetensors file");
}

TEST_F(TrainCommand, MistakesAreOneLine) {
  ASSERT_EQ(run(train_mlp({"--steps", "2", "--checkpoint", kept(), "--checkpoint-every", "1"})).code, 0);
  expect_error(train_mlp({"--steps", "2", "--checkpoint", kept()}), 2, "has a checkpoint of step 2");
  expect_error(train_mlp({"--checkpoint-every", "1"}), 2, "--checkpoint");
  expect_error(train_mlp({"--paced", "--resume", kept()}), 2, "--paced takes no checkpoints");
  expect_error({"train", "--resume", path("none")}, 5, "No such file");
  expect_error({"train", "--resume", folder_.path()}, 3, "no checkpoint, and none in it");
  expect_error({"train", model("cnn-digits") + "/model.onnx", "--resume", kept()}, 3,
               "no tensor for parameter");
  expect_error({"train", "--resume", kept(), "--steps", "3", "--optimizer", "sgd"}, 3,
               "is of another optimizer");
  fs::resize_file(kept() + "/step-00000002/optimizer.safetensors", 100);
  expect_error({"train", "--resume", kept(), "--steps", "3"}, 3,
               "the newest that is whole is " + kept() + "/step-00000001");
}

TEST_F(TrainCommand, AStoppedTrainingLeavesACheckpoint) {
  const pid_t child = start(train_mlp({"--steps", "100000000", "--checkpoint", kept()}));
  ASSERT_TRUE(wait_for("stdout", "\"step\":20,"));
  kill(child, SIGINT);
  const Outcome o = wait(child);
  EXPECT_EQ(o.code, 130) << o.err;
  const std::int64_t step = o.lines().end()[-2]["summary"]["checkpoint"]["step"];
  EXPECT_EQ(step, losses(o).rbegin()->first);
}

TEST_F(TrainCommand, AFullDiskEndsNoTraining) {
  const Outcome o = wait(start(train_mlp({"--steps", "5", "--checkpoint", kept(), "--checkpoint-every", "2",
                                          "--save-params", path("p.npz")}),
                               80'000));
  EXPECT_EQ(o.code, 5) << o.err;
  EXPECT_EQ(losses(o).size(), 5u);
  EXPECT_NE(o.err.find("File too large"), std::string::npos) << o.err;
  EXPECT_TRUE(fs::is_empty(kept()));
  EXPECT_TRUE(fs::exists(path("p.npz")));
}

// As often as GRADLOOM_TEST_KILLS says: a process killed at any moment leaves a checkpoint that goes on with the bits
// of a training that was never killed.
TEST_F(TrainCommand, AKilledTrainingGoesOnBitEqual) {
  const char* const wanted = getenv("GRADLOOM_TEST_KILLS");
  const int kills = wanted != nullptr ? atoi(wanted) : 6;
  std::mt19937_64 random(1);
  std::map<std::int64_t, double> seen;
  std::vector<std::string> args =
      train_mlp({"--checkpoint", kept(), "--checkpoint-every", "1", "--steps", "100000000"});
  for (int i = 0; i < kills; ++i) {
    const pid_t child = start(args);
    if (i == 0) {
      ASSERT_TRUE(wait_for("stdout", "\"checkpoint\":{"));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50'000 + random() % 200'000));
    kill(child, SIGKILL);
    const Outcome o = wait(child);
    ASSERT_EQ(o.code, -SIGKILL) << o.err;
    expect_agreement(seen, losses(o));
    args = {"train", "--resume", kept(), "--checkpoint", kept(), "--checkpoint-every", "1", "--json"};
  }
  const std::int64_t last = seen.rbegin()->first + 2;
  const Outcome rest = run({"train", "--resume", kept(), "--steps", std::to_string(last), "--json"});
  ASSERT_EQ(rest.code, 0) << rest.err;
  expect_agreement(seen, losses(rest));
  const Outcome whole = run(train_mlp({"--steps", std::to_string(last)}));
  EXPECT_EQ(seen, losses(whole)) << "over " << last << " steps";
}

}  // namespace
}  // namespace gradloom
