#include "app/pass_worth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

TuneRow row(const std::string& changes, Interval ratio, std::int64_t peak_bytes, std::int64_t round = 1) {
  TuneRow r;
  r.trial.changes = changes;
  r.trial.ratio = ratio;
  r.trial.peak_bytes = peak_bytes;
  r.trial.round = round;
  return r;
}

const PassWorth& worth_of(const WorthTable& table, const std::string& pass) {
  const auto found = std::find_if(table.passes.begin(), table.passes.end(),
                                  [&](const PassWorth& p) { return p.pass == pass; });
  EXPECT_NE(found, table.passes.end()) << pass;
  return *found;
}

// Without a pass the job is slower: ratios below one against the job are a worth above one.
Tuned of_job() {
  Tuned tuned;
  tuned.rows = {row("", {1, 1, 1}, 100), row("passes=none", {0.5, 0.4, 0.6}, 160),
                row("passes=default,-a", {0.8, 0.75, 0.85}, 130), row("passes=a", {0.6, 0.5, 0.7}, 140),
                row("passes=default,-c", {0, 0, 0}, 100, 0)};
  tuned.without = {
      {"a", "passes=default,-a"}, {"b", ""}, {"c", "passes=default,-c"}, {"d", "passes=default,-a"}};
  tuned.alone = {{"a", "passes=a"}, {"b", "passes=none"}};
  return tuned;
}

TEST(PassWorth, IsTheTimeWithoutItAgainstTheTimeWithIt) {
  const WorthTable table = pass_worth(of_job());
  EXPECT_EQ(table.all.state, WorthSide::State::measured);
  EXPECT_DOUBLE_EQ(table.all.speed.value, 2);
  EXPECT_DOUBLE_EQ(table.all.speed.low, 1 / 0.6);
  EXPECT_DOUBLE_EQ(table.all.speed.high, 1 / 0.4);
  EXPECT_EQ(table.all.peak_saved_bytes, 60);
  const PassWorth& a = worth_of(table, "a");
  EXPECT_DOUBLE_EQ(a.among.speed.value, 1.25);
  EXPECT_EQ(a.among.peak_saved_bytes, 30);
  EXPECT_DOUBLE_EQ(a.alone.speed.value, 1.2);
  EXPECT_DOUBLE_EQ(a.alone.speed.low, 0.5 / 0.6) << "two measurements: their ends at the worst";
  EXPECT_EQ(a.alone.peak_saved_bytes, 20);
  EXPECT_EQ(worth_of(table, "b").among.state, WorthSide::State::same);
  EXPECT_EQ(worth_of(table, "b").alone.state, WorthSide::State::same);
  EXPECT_EQ(worth_of(table, "c").among.state, WorthSide::State::unknown) << "it was not measured";
  EXPECT_DOUBLE_EQ(worth_of(table, "d").among.speed.value, 1.25) << "without d is the work of without a";
  const std::string text = worth_text(table);
  EXPECT_NE(text.find("1.250x"), std::string::npos) << text;
  EXPECT_NE(text.find("same work with and without: b"), std::string::npos) << text;
  EXPECT_EQ(worth_text(WorthTable{}), "");
}

TEST(PassWorth, AloneIsMeasuredAgainstNoPassesWhereThatWasDone) {
  Tuned none;
  none.rows = {row("", {1, 1, 1}, 160), row("passes=a", {1.3, 1.25, 1.35}, 150)};
  none.alone = {{"a", "passes=a"}, {"b", ""}};
  const WorthTable table = pass_worth(of_job(), &none);
  const PassWorth& a = worth_of(table, "a");
  EXPECT_DOUBLE_EQ(a.alone.speed.value, 1.3);
  EXPECT_DOUBLE_EQ(a.alone.speed.low, 1.25);
  EXPECT_EQ(a.alone.peak_saved_bytes, 10);
  EXPECT_EQ(worth_of(table, "b").alone.state, WorthSide::State::same);
}

class WorthCommand : public Commands {};

TEST_F(WorthCommand, TellsEveryPassOfTheJobAndKeepsItsTrials) {
  const std::vector<std::string> line{"tune",       model("mlp/model.onnx"),
                                      "--dim",      "batch=8",
                                      "--loss",     "ce:logits,labels",
                                      "--worth",    "--optimizer",
                                      "adam",       "--seconds",
                                      "20",         "--session",
                                      path("w.db"), "--json"};
  const Outcome o = run(line);
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream lines(o.out);
  std::string text;
  nlohmann::json last;
  std::set<std::string> measured;
  while (std::getline(lines, text)) {
    last = nlohmann::json::parse(text);
    if (last.contains("trial")) measured.insert(last["trial"]["changes"]);
  }
  EXPECT_TRUE(measured.count("passes=default,-fuse-optimizer")) << o.out;
  EXPECT_TRUE(measured.count("passes=fuse-optimizer")) << o.out;
  ASSERT_TRUE(last.contains("worth")) << o.out;
  const auto& passes = last["worth"]["passes"];
  EXPECT_EQ(passes.size(), default_pipeline().passes.size()) << "every pass has its row";
  for (const auto& pass : passes) {
    if (pass["pass"] == "fuse-attention") {
      EXPECT_EQ(pass["among"]["same_work"], true);
    }
    if (pass["pass"] != "fuse-optimizer") continue;
    for (const char* side : {"among", "alone"}) {
      EXPECT_EQ(pass[side]["same_work"], false);
      EXPECT_LE(pass[side]["low"], pass[side]["ratio"]);
      EXPECT_GE(pass[side]["high"], pass[side]["ratio"]);
    }
  }
  EXPECT_GT(last["worth"]["all"]["ratio"], 0);
  EXPECT_GT(last["worth"]["step_ns"], 0);
  EXPECT_GT(last["worth"]["peak_bytes"], 0);
  const Outcome again = run(line);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("\"known\":" + std::to_string(measured.size())), std::string::npos) << again.out;
}

}  // namespace
}  // namespace gradloom
