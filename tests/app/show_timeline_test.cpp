// show --steps, --idle and --critical-path of runs that were really made.
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class ShowTimeline : public Commands {
 protected:
  Outcome train(std::vector<std::string> more) const {
    std::vector<std::string> args{
        "train", model("mlp") + "/model.onnx", "--dim", "batch=2", "--loss", "loss", "--session", session_};
    args.insert(args.end(), more.begin(), more.end());
    return run(args);
  }
  const std::string session_ = path("s.db");
};

TEST_F(ShowTimeline, StepsHaveTimesLossesAndWhatIsKnownOfThem) {
  ASSERT_EQ(
      train({"--steps", "24", "--profile", "all", "--eval-data", "synthetic", "--eval-every", "10"}).code, 0);
  const json all = run({"show", session_, "--json", "--steps"}).lines().front();
  ASSERT_EQ(all["steps"].size(), 24u);
  const json losses = run({"show", session_, "--json"}).lines().front()["losses"];
  std::size_t slow = 0, fast = 0;
  for (std::size_t i = 0; i < 24; ++i) {
    const json& s = all["steps"][i];
    EXPECT_EQ(s["step"], i + 1);
    EXPECT_EQ(s["step_ns"].get<double>(), losses[i]["step_ns"].get<double>());
    EXPECT_EQ(s["loss"], losses[i]["loss"]);
    EXPECT_EQ(s["timed"], true);
    const double ns = s["step_ns"];
    EXPECT_EQ(s["stands_out"] == "slow", ns > all["timed"]["slow_ns"].get<double>());
    EXPECT_EQ(s["stands_out"] == "fast", ns < all["timed"]["fast_ns"].get<double>());
    slow += s["stands_out"] == "slow" ? 1 : 0;
    fast += s["stands_out"] == "fast" ? 1 : 0;
  }
  EXPECT_EQ(all["slow"], slow);
  EXPECT_EQ(all["fast"], fast);
  EXPECT_EQ(all["timed"]["steps"], 21);
  EXPECT_EQ(all["steps"][0]["causes"], json::array({"one of the first steps"}));
  EXPECT_EQ(all["steps"][10]["causes"].size(), 1u);
  EXPECT_EQ(all["steps"][10]["causes"][0].get<std::string>().rfind("after an evaluation of ", 0), 0u);
  EXPECT_TRUE(all["steps"][11]["causes"].empty());
  const Outcome text = run({"show", session_, "--steps"});
  EXPECT_NE(text.out.find("of 24 steps"), std::string::npos) << text.out;
}

TEST_F(ShowTimeline, IdleAddsUpToTheStep) {
  ASSERT_EQ(train({"--steps", "8", "--profile", "all"}).code, 0);
  const json found = run({"show", session_, "--json", "--idle"}).lines().front();
  ASSERT_EQ(found["timed_steps"].size(), 8u);
  const json kernels = run({"show", session_, "--json"}).lines().front()["kernels"];
  for (const json& step : found["timed_steps"]) {
    ASSERT_EQ(step["lanes"].size(), 1u);
    const json& lane = step["lanes"][0];
    EXPECT_EQ(lane["lane"], "Kernels");
    EXPECT_EQ(lane["kernels"], kernels.size());
    double sum = lane["busy_ns"];
    for (const char* cause : {"launch_ns", "dependency_ns", "copy_ns", "host_ns", "imbalance_ns"}) {
      EXPECT_GE(lane[cause], 0) << cause;
      sum += lane[cause].get<double>();
    }
    EXPECT_NEAR(sum, lane["wall_ns"].get<double>(), 1);
    EXPECT_GT(lane["busy_ns"], 0);
    EXPECT_EQ(lane["dependency_ns"], 0);
    EXPECT_EQ(lane["imbalance_ns"], 0);
  }
  const json chosen = run({"show", session_, "--json", "--idle", "--step", "5"}).lines().front();
  EXPECT_EQ(chosen["idle"], found["timed_steps"][4]);
  EXPECT_NE(run({"show", session_, "--idle"}).out.find("busy"), std::string::npos);
}

TEST_F(ShowTimeline, ThreadsShareTheKernels) {
  ASSERT_EQ(run({"train", model("gpt-char") + "/model.onnx", "--dim", "batch=8", "--loss", "ce:logits,labels",
                 "--threads", "2", "--steps", "4", "--profile", "all", "--session", session_})
                .code,
            0);
  const json found = run({"show", session_, "--json", "--idle"}).lines().front();
  const json shown = run({"show", session_, "--json"}).lines().front();
  double least = 1, most = 0;
  for (const json& kernel : shown["kernels"]) {
    least = std::min(least, kernel["threads_busy"].get<double>());
    most = std::max(most, kernel["threads_busy"].get<double>());
  }
  EXPECT_GE(least, 0);
  EXPECT_GT(most, 0.5) << "no kernel is shared";
  EXPECT_LE(most, 1);
  for (const json& step : found["timed_steps"]) {
    ASSERT_EQ(step["threads"].size(), 2u);
    for (const json& thread : step["threads"]) {
      EXPECT_EQ(thread["wall_ns"], step["lanes"][0]["wall_ns"]);
      EXPECT_LE(thread["busy_ns"], step["lanes"][0]["busy_ns"]);
      EXPECT_GT(thread["busy_ns"], 0);
    }
  }
  EXPECT_NE(run({"show", session_}).out.find("threads busy"), std::string::npos);
  EXPECT_NE(run({"show", session_, "--idle"}).out.find("Thread 2"), std::string::npos);
  const Outcome short_table = run({"show", session_, "--idle", "--limit", "1"});
  EXPECT_EQ(short_table.out.find("Thread 1"), std::string::npos) << short_table.out;
  EXPECT_NE(short_table.out.find("  and 2 more (--limit N shows them)"), std::string::npos)
      << short_table.out;
}

TEST_F(ShowTimeline, OneLaneIsItsOwnCriticalPathAndSaysSo) {
  ASSERT_EQ(train({"--steps", "5", "--profile", "all"}).code, 0);
  const json path = run({"show", session_, "--json", "--critical-path"}).lines().front()["critical_path"];
  EXPECT_EQ(path["alone"], true);
  EXPECT_EQ(path["kernels"], path["of_kernels"]);
  double sum = 0, pieces = 0;
  for (const json& op : path["by_op"]) sum += op["ns"].get<double>();
  for (const json& piece : path["pieces"]) pieces += piece["ns"].get<double>();
  EXPECT_NEAR(sum, path["length_ns"].get<double>(), 1);
  EXPECT_NEAR(pieces, path["length_ns"].get<double>(), 1);
  const Outcome text = run({"show", session_, "--critical-path"});
  EXPECT_NE(text.out.find("one after the other on one lane"), std::string::npos) << text.out;
}

TEST_F(ShowTimeline, WithoutTimedStepsItSaysSo) {
  ASSERT_EQ(train({"--steps", "3", "--profile", "step"}).code, 0);
  EXPECT_EQ(run({"show", session_, "--steps"}).code, 0);
  expect_error({"show", session_, "--idle"}, 2, "no step of the run is timed");
  ASSERT_EQ(train({"--steps", "3", "--profile", "all"}).code, 0);
  expect_error({"show", session_, "--critical-path", "--step", "9"}, 2, "step 9 is not timed");
  expect_error({"show", session_, "--idle", "--step", "0"}, 2, "--step");
}

TEST_F(ShowTimeline, WhatIsAskedIsShownOrRefused) {
  ASSERT_EQ(train({"--steps", "5", "--profile", "all"}).code, 0);
  const std::string no_step = "--step goes with --idle, --critical-path or --launches";
  const std::vector<std::vector<std::string>> others{{},           {"--group", "op"},   {"--roofline"},
                                                     {"--memory"}, {"--tree", "scope"}, {"--steps"},
                                                     {"--graph"},  {"--find", "fc"},    {"--curves", "loss"}};
  for (std::vector<std::string> words : others) {
    words.insert(words.begin(), {"show", session_, "--step", "3"});
    expect_error(words, 2, no_step);
  }
  const std::vector<std::vector<std::string>> views{{"--memory"}, {"--tree", "scope"}, {"--steps"},
                                                    {"--idle"},   {"--critical-path"}, {"--launches"},
                                                    {"--graph"},  {"--find", "fc"},    {"--curves", "loss"}};
  for (std::vector<std::string> words : views) {
    const std::string view = words.front();
    words.insert(words.begin(), {"show", session_, "--group", "kernel"});
    expect_error(words, 2, "--group and " + view + " are asked one at a time");
  }
  const Outcome both = run({"show", session_, "--steps", "--launches", "--step", "3"});
  EXPECT_EQ(both.code, 0) << both.err;
}

}  // namespace
}  // namespace gradloom
