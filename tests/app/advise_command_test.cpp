// gradloom advise: jobs, sessions, JSON lines and errors. What it finds: advise_test.cpp.
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class AdviseCommand : public Commands {
 protected:
  std::string recorded(const std::string& profile = "all") const {
    const Outcome made = run(train_mlp({"--steps", "8", "--session", path("s.db"), "--profile", profile}));
    EXPECT_EQ(made.code, 0) << made.err;
    return path("s.db");
  }
  static std::vector<std::string> job() {
    return {"advise", model("mlp/model.onnx"), "--dim", "batch=2", "--loss", "ce:logits,labels"};
  }
  static std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(AdviseCommand, OneLineForEachFindingAndASummary) {
  const Outcome o = run(with(job(), {"--seconds", "0.5", "--json", "--progress"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const auto lines = o.lines();
  ASSERT_GE(lines.size(), 2u);
  const json summary = lines.back()["summary"];
  EXPECT_GT(summary["step_ns"], 0);
  std::size_t findings = 0, told = 0;
  double before = 1e300;
  for (const json& line : lines) {
    told += line.value("event", "") == "progress" ? 1 : 0;
    if (!line.contains("finding")) continue;
    ++findings;
    EXPECT_LE(line["gain_ns"], before) << "the largest first";
    before = line["gain_ns"];
    EXPECT_LE(line["low_ns"], line["gain_ns"]);
    EXPECT_GE(line["high_ns"], line["gain_ns"]);
    EXPECT_LT(line["high"].get<double>(), 1) << "no more than the step";
    EXPECT_GE(line["gain"].get<double>(), 0.01);
    EXPECT_NE(line["title"], "");
  }
  EXPECT_EQ(summary["findings"], findings);
  EXPECT_GT(findings, 0u) << "batch 2 is small";
  EXPECT_GT(told, 5u);
}

// A recorded run is named, not spelled out: what the run has is not said again.
TEST_F(AdviseCommand, ItsCommandsNameTheRunThatWasAsked) {
  const std::string session = recorded();
  const Outcome o = run({"advise", session, "--json", "--all"});
  ASSERT_EQ(o.code, 0) << o.err;
  int compared = 0;
  for (const json& line : o.lines()) {
    if (!line.value("compares", false)) continue;
    ++compared;
    EXPECT_EQ(
        line["command"].get<std::string>().rfind("gradloom compare --recipe '" + session + "#1' --b ", 0), 0u)
        << line["command"];
  }
  EXPECT_GT(compared, 0);
}

// What it proposes is taken by the command that it names.
TEST_F(AdviseCommand, ItsCommandsCanBeStarted) {
  const Outcome o = run(with(job(), {"--seconds", "0", "--json", "--passes", "none"}));
  ASSERT_EQ(o.code, 0) << o.err;
  int started = 0;
  for (const json& line : o.lines()) {
    if (!line.value("compares", false) || started > 1) continue;
    const std::string command = line["command"].get<std::string>();
    ASSERT_EQ(command.rfind("gradloom compare ", 0), 0u) << command;
    const std::string again = std::string(GRADLOOM_COMMAND) + command.substr(8) +
                              " --max-seconds 0.3 --min-groups 2 > " + path("out") + " 2> " + path("err");
    EXPECT_EQ(std::system(again.c_str()), 0) << command << "\n" << read_file(path("err"));
    ++started;
  }
  EXPECT_GT(started, 0);
}

TEST_F(AdviseCommand, ARunIsJudgedByItsOwnKernels) {
  const std::string session = recorded();
  const Outcome o = run({"advise", session, "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.lines().back()["summary"]["times"], "run 1");
  const Outcome text = run({"advise", session, "--run", "1", "--all"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("(run 1)"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("prove    gradloom "), std::string::npos) << text.out;
  const Outcome none = run({"advise", session, "--least", "100"});
  EXPECT_NE(none.out.find("nothing was found that is worth 100.0 % of a step"), std::string::npos)
      << none.out;
  const Outcome named = run(with(job(), {"--costs", session, "--optimizer", "adam{lr=1e-3}", "--json"}));
  ASSERT_EQ(named.code, 0) << named.err;
  EXPECT_EQ(named.lines().back()["summary"]["times"], session + "#1");
}

TEST_F(AdviseCommand, AReportHoldsIt) {
  const std::string session = recorded();
  ASSERT_EQ(run({"report", session, "--advice", "-o", path("r.html")}).code, 0);
  const std::string page = read_file(path("r.html"));
  EXPECT_NE(page.find("What would make it faster"), std::string::npos);
  ASSERT_EQ(run({"report", session, "-o", path("r.html")}).code, 0);
  EXPECT_EQ(read_file(path("r.html")).find("What would make it faster"), std::string::npos);
  ASSERT_EQ(run({"report", session, "--advice", "-o", path("r.md")}).code, 0);
  EXPECT_NE(read_file(path("r.md")).find("could be faster"), std::string::npos);
}

TEST_F(AdviseCommand, ErrorsAreOneLine) {
  expect_error({"advise"}, 2, "no model");
  expect_error({"advise", path("absent.onnx")}, 5, "absent.onnx");
  expect_error({"advise", model("mlp/model.onnx")}, 2, "--dim batch=N");
  expect_error(with(job(), {"--least", "101"}), 2, "--least");
  expect_error(with(job(), {"--no-steps"}), 2, "--costs");
  const std::string session = recorded("step");
  expect_error({"advise", session, "--run", "9"}, 3, "no run 9");
  expect_error({"advise", session}, 2, "run 1 has no times of kernels");
  expect_error({"advise", session, "--threads", "77"}, 2, "run 1 was measured with threads ");
  std::ofstream(path("broken.db")) << "SQLite format 3" << std::string(200, '\x01');
  expect_error({"advise", path("broken.db")}, 3, "broken.db");
}

}  // namespace
}  // namespace gradloom
