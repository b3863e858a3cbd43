// show --curves of runs that were really made: the numbers are those of the session, in one run and over several.
#include <cmath>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class ShowCurves : public Commands {
 protected:
  void SetUp() override {
    train("base", "7");
    train("other", "5");
  }
  void train(const std::string& name, const std::string& steps) {
    const Outcome made = run({"train",          model("mlp") + "/model.onnx",
                              "--dim",          "batch=8",
                              "--loss",         "loss",
                              "--clip-norm",    "1",
                              "--steps",        steps,
                              "--eval-data",    "synthetic",
                              "--eval-every",   "2",
                              "--eval-batches", "2",
                              "--name",         name,
                              "--session",      session_});
    ASSERT_EQ(made.code, 0) << made.err;
  }
  json curves(std::vector<std::string> more) const {
    more.insert(more.begin(), {"show", session_, "--run", "base", "--json", "--curves"});
    const Outcome o = run(more);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.lines().empty() ? json() : o.lines().front();
  }
  const std::string session_ = path("s.db");
};

TEST_F(ShowCurves, HasEachQuantityOfEachStep) {
  const json run_json = run({"show", session_, "--run", "base", "--json"}).lines().front();
  const auto values_of = [&](const char* quantity) { return curves({quantity})["runs"][0]["values"]; };
  const json loss = curves({"loss"}), step_ns = values_of("step-time"), lr = values_of("lr"),
             norms = values_of("grad-norm");
  EXPECT_EQ(loss["curves"], "loss");
  ASSERT_EQ(loss["runs"].size(), 1u);
  ASSERT_EQ(loss["runs"][0]["steps"].size(), 7u);
  for (std::size_t i = 0; i < 7; ++i) {
    const json& step = run_json["losses"][i];
    EXPECT_EQ(loss["runs"][0]["steps"][i], step["step"]);
    EXPECT_EQ(loss["runs"][0]["values"][i], step["loss"]);
    EXPECT_EQ(step_ns[i].get<double>(), step["step_ns"].get<double>());
    EXPECT_EQ(lr[i], step["lr"]);
    EXPECT_GT(norms[i].get<double>(), 0);
    EXPECT_EQ(norms[i], step.value("grad_norm", json()));
  }
  const json held_out = curves({"held-out"})["runs"][0];
  ASSERT_EQ(held_out["steps"].size(), run_json["evaluations"].size());
  for (std::size_t i = 0; i < held_out["steps"].size(); ++i)
    EXPECT_EQ(held_out["values"][i], run_json["evaluations"][i]["loss"]);
  const json rate = curves({"throughput"});
  EXPECT_EQ(rate["unit"], "samples/s");
  EXPECT_NEAR(rate["runs"][0]["values"][3].get<double>() * run_json["losses"][3]["step_ns"].get<double>(),
              8e9, 1);
}

TEST_F(ShowCurves, SeveralRunsAndSessionsSmoothed) {
  const json both = curves({"loss", "--with", "other", "--with", session_ + "#1", "--smooth", "0.9"});
  ASSERT_EQ(both["runs"].size(), 3u);
  EXPECT_EQ(both["runs"][0]["name"], "run 1 (base)");
  EXPECT_EQ(both["runs"][1]["name"], "run 2 (other)");
  EXPECT_EQ(both["runs"][2]["run_id"], 1);
  EXPECT_EQ(both["runs"][1]["steps"].size(), 5u);
  const json &values = both["runs"][0]["values"], &smooth = both["runs"][0]["smooth"];
  double mean = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    mean = 0.9 * mean + 0.1 * values[i].get<double>();
    EXPECT_NEAR(smooth[i].get<double>(), mean / (1 - std::pow(0.9, static_cast<double>(i) + 1)), 1e-6);
  }
  const Outcome text = run({"show", session_, "--curves", "loss", "--with", "base"});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("run 2 (other)"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("run 1 (base)"), std::string::npos) << text.out;
}

TEST_F(ShowCurves, WhatDoesNotBelongIsAnError) {
  EXPECT_EQ(run({"show", session_, "--curves", "colour"}).code, 2);
  EXPECT_EQ(run({"show", session_, "--smooth", "0.5"}).code, 2);
  EXPECT_EQ(run({"show", session_, "--curves", "loss", "--smooth", "1.5"}).code, 2);
  EXPECT_NE(run({"show", session_, "--curves", "loss", "--with", "nobody"}).code, 0);
  const Outcome first = run({"show", session_, "--curves", "loss", "--with", "base", "--limit", "1"});
  EXPECT_NE(first.out.find("  and 1 more (--limit N shows them)"), std::string::npos) << first.out;
}

}  // namespace
}  // namespace gradloom
