// Trainings on several ranks that give each other updated parameters at the beginning of the next step (pass gather-early).
#include <algorithm>

#include "tests/app/ranks_fixture.h"

namespace gradloom {
namespace {

class RankGather : public RanksFixture {
 protected:
  static std::string early(const std::string& passes) { return passes + ",gather-early{bucket_mb=0}"; }
  static Words adamw(const Words& more) { return with({"--optimizer", "adamw{lr=1e-3}"}, more); }
  Outcome trained(const std::string& name, const std::string& passes, const Words& more, const char* file) {
    Outcome o = run(training(name, with(more, {"--passes", passes, "--save-params", path(file)})));
    EXPECT_EQ(o.code, 0) << passes << ": " << o.err;
    return o;
  }
  void expect_same_files() const { expect_same_parameters(parameters("a.npz"), parameters("b.npz")); }
  // Bit for bit as with what is exchanged at the end of the step.
  void expect_equal(const std::string& name, const char* ranks, const Words& more,
                    const std::string& passes = "default") {
    for (const char* zero : {",zero", ",zero{stage=2}"}) {
      SCOPED_TRACE(name + " " + ranks + " " + passes + zero);
      const Words how = with(more, {"--ranks", ranks});
      const Outcome late = trained(name, passes + zero, how, "a.npz"),
                    soon = trained(name, early(passes + zero), how, "b.npz");
      EXPECT_EQ(losses(soon).size(), 3u);
      EXPECT_EQ(losses(soon), losses(late));
      expect_same_files();
      const json a = late.lines().back()["summary"], b = soon.lines().back()["summary"];
      EXPECT_EQ(a["rank_peak_bytes"].size(), b["rank_peak_bytes"].size());
      const bool averaged = std::find(more.begin(), more.end(), "--ema") != more.end();  // all at the end
      EXPECT_EQ(b["sent_bytes"] > a["sent_bytes"], !averaged) << "once more, for what is saved";
    }
  }
  static Words evaluated(const Outcome& o) {
    Words all;
    for (const json& line : o.lines())
      if (line.contains("eval")) all.push_back(line["eval"]["loss"].dump());
    return all;
  }
};

TEST_F(RankGather, TrainsToTheSameBits) {
  expect_equal("mlp", "4", {"--optimizer", "sgd{lr=0.1,momentum=0.9}"});
  expect_equal("gpt-char", "2", adamw({"--clip-norm", "0.5"}));
  expect_equal("gpt-char", "4", adamw({}), "none");
  expect_equal("bert-tiny", "4", {"--optimizer", "lamb{lr=0.01}", "--clip-norm", "0.5"});
  expect_equal("bert-tiny", "2", adamw({"--ema", "0.9"}));
  expect_equal("cnn-digits", "3", adamw({}), "default,sync-batchnorm");
}

TEST_F(RankGather, TrainsToTheSameBitsInSixteenBits) {
  expect_equal("gpt-char", "2", adamw({"--precision", "bf16", "--clip-norm", "0.5"}));
  expect_equal("gpt-char", "4", adamw({"--precision", "bf16", "--accumulate", "2"}));
  expect_equal("gpt-char", "2",
               adamw({"--precision", "f16", "--loss-scale", "dynamic{initial=1e9,interval=1}"}));
}

TEST_F(RankGather, TrainsToTheSameBitsOverMicroBatches) {
  expect_equal("gpt-char", "2", adamw({"--accumulate", "3", "--clip-norm", "0.5"}));
  expect_equal("bert-tiny", "3", adamw({"--accumulate", "2"}), "none");
}

TEST_F(RankGather, TrainsToTheSameBitsOverEachTransport) {
  for (const char* transport : {"mpi", "tcp"}) {
    const EnvironmentVariable over("GRADLOOM_TRANSPORT", transport);
    expect_equal("gpt-char", "2", adamw({"--precision", "f32"}));
  }
}

// Between two steps, and after the last, parameters are whole where somebody looks.
TEST_F(RankGather, EvaluatesWholeParameters) {
  for (const char* precision : {"f64", "bf16"}) {
    SCOPED_TRACE(precision);
    const Words how = adamw({"--precision", precision, "--ranks", "2", "--eval-data", "synthetic",
                             "--eval-batches", "3", "--eval-every", "1", "--early-stop", "patience=5"});
    const Outcome late = trained("gpt-char", "default,zero", how, "a.npz"),
                  soon = trained("gpt-char", early("default,zero"), how, "b.npz");
    EXPECT_EQ(evaluated(soon).size(), 3u);
    EXPECT_EQ(evaluated(soon), evaluated(late));
    EXPECT_EQ(losses(soon), losses(late));
    expect_same_files();
  }
}

TEST_F(RankGather, WritesTheCheckpointsOfWholeParameters) {
  for (const char* precision : {"f64", "bf16"}) {
    SCOPED_TRACE(precision);
    for (const char* folder : {"a", "b"}) fs::remove_all(path(folder));
    const Words how = adamw(
        {"--precision", precision, "--ranks", "2", "--checkpoint-every", "1", "--checkpoint-keep", "3"});
    trained("gpt-char", "default,zero", with(how, {"--checkpoint", path("a")}), "a.npz");
    trained("gpt-char", early("default,zero"), with(how, {"--checkpoint", path("b")}), "b.npz");
    for (const char* step : {"1", "2", "3"}) {
      for (const char* folder : {"a", "b"}) {
        fs::remove_all(path(std::string(folder) + "j"));
        ASSERT_EQ(run({"export", "--checkpoint", path(std::string(folder) + "/step-0000000" + step), "-o",
                       path(std::string(folder) + "j")})
                      .code,
                  0);
      }
      for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
        EXPECT_EQ(read_file(path("bj") + file), read_file(path("aj") + file)) << step << file;
    }
  }
}

TEST_F(RankGather, GoesOnWithAnyNumberOfRanks) {
  const Outcome first =
      run(training("gpt-char", adamw({"--ranks", "2", "--steps", "2", "--passes",
                                      early("default,zero{stage=2}"), "--checkpoint", path("c")})));
  ASSERT_EQ(first.code, 0) << first.err;
  for (const char* ranks : {"1", "4"}) {
    SCOPED_TRACE(ranks);
    const auto go_on = [&](const std::string& passes, const char* file) {
      return run({"train", "--resume", path("c"), "--ranks", ranks, "--passes", passes, "--steps", "5",
                  "--save-params", path(file), "--json"});
    };
    const Outcome late = go_on("default", "a.npz"), soon = go_on(early("default,zero"), "b.npz");
    ASSERT_EQ(late.code, 0) << late.err;
    ASSERT_EQ(soon.code, 0) << soon.err;
    EXPECT_EQ(losses(soon).size(), 3u);
    EXPECT_EQ(losses(soon), losses(late));
    expect_same_files();
  }
}

// What is saved where the training was interrupted is of its last step.
TEST_F(RankGather, SavesWhatAnInterruptedTrainingHas) {
  const Words how = adamw({"--ranks", "2"});
  const pid_t child = start(training(
      "gpt-char",
      with(how, {"--steps", "100000", "--passes", early("default,zero"), "--save-params", path("b.npz")})));
  ASSERT_TRUE(wait_for("stdout", "\"step\":3"));
  kill(child, SIGINT);
  const Outcome o = wait(child);
  EXPECT_EQ(o.code, 130) << o.err;
  const std::string steps = std::to_string(losses(o).size());
  EXPECT_NE(o.err.find("interrupted after step " + steps), std::string::npos) << o.err;
  trained("gpt-char", "default,zero", with(how, {"--steps", steps}), "a.npz");
  expect_same_files();
}

class RankGatherOver : public RankGather, public testing::WithParamInterface<const char*> {
  EnvironmentVariable transport_{"GRADLOOM_TRANSPORT", GetParam()};

 protected:
  static Words gathering() { return adamw({"--passes", early("default,zero")}); }
};
INSTANTIATE_TEST_SUITE_P(Transport, RankGatherOver, testing::Values("mpi", "tcp"),
                         [](const auto& over) { return std::string(over.param); });

TEST_P(RankGatherOver, ARankThatIsKilledIsNamed) {
  std::set<pid_t> ranks;
  const Outcome o = signalled(SIGKILL, ranks, gathering());
  EXPECT_EQ(o.code, 6);
  EXPECT_NE(o.err.find("was ended by signal 9"), std::string::npos) << o.err;
}

TEST_P(RankGatherOver, ARankThatHangsIsNamed) {
  std::set<pid_t> ranks;
  const Outcome o = signalled(SIGSTOP, ranks, with(gathering(), {"--rank-timeout", "1"}));
  EXPECT_EQ(o.code, 6);
  EXPECT_NE(o.err.find("said nothing for 1.00 s"), std::string::npos) << o.err;
  for (const pid_t rank : ranks) EXPECT_TRUE(ends(rank)) << "none is left";
}

// Of each step of micro-batches every piece is one exchange, on every rank.
TEST_F(RankGather, LeavesTheTimesOfItsExchanges) {
  const Outcome o =
      run(training("gpt-char", adamw({"--ranks", "2", "--steps", "9", "--accumulate", "2", "--passes",
                                      "default,zero,gather-early", "--session", path("s.db")})));
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(run({"trace", path("s.db"), "-o", path("t.json"), "--json"}).code, 0);
  std::map<int, int> begun, exchanges;  // by rank
  std::set<std::pair<int, int>> gathers;
  const json trace = json::parse(read_file(path("t.json")));
  for (const json& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["name"] == "GatherParameters") {
      ++begun[e["pid"].get<int>()];
      gathers.insert({e["pid"].get<int>(), e["args"]["plan_step"].get<int>()});
    }
  for (const json& e : trace["traceEvents"])
    if (e["ph"] == "X" && e["name"] == "exchange" &&
        gathers.count({e["pid"].get<int>(), e["args"]["plan_step"].get<int>()}) != 0)
      ++exchanges[e["pid"].get<int>()];
  ASSERT_EQ(exchanges.size(), 2u);
  EXPECT_EQ(exchanges.begin()->second, exchanges.rbegin()->second);
  for (const auto& [rank, count] : begun)
    EXPECT_EQ(count, 2 * exchanges[rank]) << "the second micro-batch has nothing to exchange";
}

// On a slow link: what the backward pass alone hid before, the forward pass hides, too.
TEST_F(RankGather, IsPredictedToWaitLess) {
  const auto row = [&](const std::string& passes) {
    const Outcome o =
        run({"plan", model("gpt-char") + "/model.onnx", "--dim", "batch=64", "--ranks", "8", "--local", "1",
             "--link", "1Gb/s,20us", "--optimizer", "adamw", "--passes", passes, "--json"});
    EXPECT_EQ(o.code, 0) << o.err;
    const json rows = o.lines().back()["scaling"]["rows"];
    for (const json& one : rows)
      if (one["ranks"] == 8) return one;
    return json();
  };
  for (const char* zero : {"default,zero", "default,zero{stage=2}"}) {
    SCOPED_TRACE(zero);
    const json late = row(zero), soon = row(std::string(zero) + ",gather-early");
    EXPECT_LT(soon["exposed_ns"].get<double>(), 0.8 * late["exposed_ns"].get<double>());
    EXPECT_LT(soon["predicted_step_ns"], late["predicted_step_ns"]);
    EXPECT_EQ(soon["zero_peak_bytes"], late["zero_peak_bytes"]);
    EXPECT_EQ(soon["zero2_peak_bytes"], late["zero2_peak_bytes"]);
  }
}

}  // namespace
}  // namespace gradloom
