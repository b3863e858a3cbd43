// gradloom runs: finding runs, and what is said of them.
#include <gtest/gtest.h>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class RunsCommand : public Commands {
 protected:
  void SetUp() override {
    for (const char* name : {"base", "plain"}) {
      const Outcome made = run(train_mlp({"--steps", "4", "--session", session_, "--name", name, "--passes",
                                          name == std::string("base") ? "default" : "none"}));
      ASSERT_EQ(made.code, 0) << made.err;
    }
  }
  Outcome runs(std::vector<std::string> more) const {
    more.insert(more.begin(), {"runs", session_});
    return run(more);
  }
  std::vector<std::int64_t> found(const std::string& filter) const {
    const Outcome o = runs({"--filter", filter, "--json"});
    EXPECT_EQ(o.code, 0) << o.err;
    std::vector<std::int64_t> ids;
    for (const json& line : o.lines()) ids.push_back(line["run_id"]);
    return ids;
  }
  const std::string session_ = path("s.db");
};

TEST_F(RunsCommand, NamesTagsNotesAndPins) {
  const Outcome o =
      runs({"--tag", "base=a,gpu", "--note", "2=a = b", "--pin", "last", "--rename", "2=no passes"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "run 1 (base): tagged a, gpu\nrun 2 (no passes): pinned, noted: a = b\n");
  const std::vector<json> lines = runs({"--json"}).lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["run_id"], 2) << "pinned ones first";
  EXPECT_EQ(lines[0]["note"], "a = b");
  EXPECT_EQ(lines[0]["pinned"], true);
  EXPECT_EQ(lines[1]["tags"], (std::vector<std::string>{"a", "gpu"}));
  EXPECT_NE(runs({}).out.find("(pinned)"), std::string::npos);
  EXPECT_NE(run({"show", session_, "--run", "base"}).out.find("\n  tagged a, gpu\n"), std::string::npos);
  const json changed = runs({"--untag", "1=gpu", "--json"}).lines().at(0);
  EXPECT_EQ(changed["tags"], std::vector<std::string>{"a"});
  EXPECT_EQ(changed["deleted"], false);
}

TEST_F(RunsCommand, ComparisonsAreToldAsJsonToo) {
  const Outcome compared = run({"compare", "base", "plain", "--stored", "--session", session_, "--json"});
  ASSERT_EQ(compared.code, 0) << compared.err;
  const json made = compared.lines().at(0);
  const std::vector<json> lines = runs({"--json"}).lines();
  ASSERT_EQ(lines.size(), 3u);
  const json& told = lines[2];
  EXPECT_FALSE(told.contains("run_id"));
  EXPECT_EQ(told["comparison_id"], 1);
  EXPECT_EQ(told["run_a"], 1);
  EXPECT_EQ(told["run_b"], 2);
  EXPECT_EQ(told["interleaved"], false);
  for (const char* same : {"a", "b", "verdict", "ratio", "ratio_low", "ratio_high"})
    EXPECT_EQ(told[same], made[same]) << same;
  EXPECT_FALSE(told["created_utc"].get<std::string>().empty());
  EXPECT_TRUE(runs({"--json", "--filter", "name:nobody"}).lines().empty()) << "of runs that are shown";
}

TEST_F(RunsCommand, NamesMayHaveWhatEndsThem) {
  ASSERT_EQ(runs({"--rename", "2=lr=0.1"}).code, 0);
  const Outcome o = runs({"--tag", "lr=0.1=slow", "--note", "lr=0.1=a = b", "--pin", "lr=0.1"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "run 2 (lr=0.1): pinned, tagged slow, noted: a = b\n");
  expect_error({"runs", session_, "--tag", "lr=0.2=slow"}, 3, "no run lr");
}

TEST_F(RunsCommand, AFilterFinds) {
  ASSERT_EQ(runs({"--tag", "1=base", "--pin", "2"}).code, 0);
  EXPECT_EQ(found("tag:base device:cpu loss<99 step<10s"), std::vector<std::int64_t>{1});
  EXPECT_EQ(found("-tag:base"), std::vector<std::int64_t>{2});
  EXPECT_EQ(found("model:mlp"), (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(found("step>1000s"), std::vector<std::int64_t>{});
}

TEST_F(RunsCommand, DeletesForGood) {
  ASSERT_EQ(run({"compare", "1", "2", "--stored", "--session", session_}).code, 0);
  const Outcome o = runs({"--delete", "base", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const json line = o.lines().at(0);
  EXPECT_EQ(line["run_id"], 1);
  EXPECT_EQ(line["name"], "base");
  EXPECT_EQ(line["deleted"], true);
  EXPECT_GT(line["rows"], 100);
  EXPECT_EQ(line["comparisons"], 1);
  EXPECT_EQ(runs({"--json"}).lines().size(), 1u);
  EXPECT_EQ(runs({}).out.find("comparison"), std::string::npos);
  expect_error({"show", session_, "--run", "1"}, 3, "no run 1");
  const json compacted = runs({"--compact", "--json"}).lines().at(0);
  EXPECT_LT(compacted["bytes"], compacted["bytes_before"]);
  EXPECT_EQ(run({"show", session_, "--run", "2"}).code, 0);
}

// As train gives it: --rename refuses names of digits.
TEST_F(RunsCommand, ANameMayBeANumber) {
  for (const char* const name : {"20261130", "1"})
    ASSERT_EQ(run(train_mlp({"--session", session_, "--name", name, "--steps", "1"})).code, 0);
  const auto shown = [&](const std::string& name) {
    return run({"show", session_, "--run", name, "--json"}).lines().at(0)["run_id"];
  };
  EXPECT_EQ(shown("20261130"), 3);
  EXPECT_EQ(shown("1"), 1) << "a number goes before a name";
}

TEST_F(RunsCommand, RefusesInOneLine) {
  expect_error({"runs", session_, "--rename", "base"}, 2, "--rename base: it takes RUN=NAME");
  expect_error({"runs", session_, "--tag", "9=a"}, 3, "no run 9");
  expect_error({"runs", session_, "--tag", "1=a b"}, 2, "'a b' cannot be a tag");
  expect_error({"runs", session_, "--filter", "colour:red"}, 2, "--filter: unknown key 'colour'");
  expect_error({"runs", session_, "--filter", "tag:a", "--pin", "1"}, 2, "not what is changed");
  expect_error({"runs", path("absent.db"), "--pin", "1"}, 5, "absent.db");
  EXPECT_FALSE(fs::exists(path("absent.db")));
  expect_error({"runs", session_, "--searches", "--delete", "1"}, 2, "--searches");
  expect_error({"runs", session_, "--searches", "--filter", "tag:a"}, 2, "--searches");
  ASSERT_EQ(runs({"--pin", "1"}).code, 0);
  expect_error({"runs", session_, "--delete", "2", "--delete", "1"}, 3, "run 1 is pinned (--unpin 1)");
  EXPECT_EQ(runs({"--json"}).lines().size(), 2u) << "the other one stays, too";
}

}  // namespace
}  // namespace gradloom
