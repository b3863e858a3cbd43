// gradloom report, from a training to its page.
#include <gtest/gtest.h>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class ReportCommand : public Commands {
 protected:
  void SetUp() override {
    for (const char* name : {"first", "second"}) {
      const Outcome trained =
          run({"train", model("mlp/model.onnx"), "--dim", "batch=8", "--loss", "loss", "--steps", "6",
               "--profile", "all", "--name", name, "--session", path("s.db")});
      ASSERT_EQ(trained.code, 0) << trained.err;
    }
  }
};

TEST_F(ReportCommand, WritesOnePage) {
  const Outcome written = run({"report", path("s.db"), "-o", path("r.html")});
  ASSERT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(written.out.rfind("wrote " + path("r.html") + ": run 2, ", 0), 0u) << written.out;
  const std::string page = read_file(path("r.html"));
  for (const char* text :
       {"mlp/model.onnx: second", "Where the time goes", "Where the memory goes", "By operator",
        "Under the roofs", "Time above the roofs", "From run to run", "2 runs; the newest level",
        "Runs of this session", "gradloom export s.db --run 2", "cpu_model", "</html>"})
    EXPECT_NE(page.find(text), std::string::npos) << text;
  EXPECT_LT(page.size(), 200'000u);
}

TEST_F(ReportCommand, OfANamedRunAsMarkdown) {
  const Outcome written = run({"report", path("s.db"), "--run", "first", "-o", path("r.md"), "--json"});
  ASSERT_EQ(written.code, 0) << written.err;
  const json told = written.lines().at(0);
  EXPECT_EQ(told["run_id"], 1);
  const std::string page = read_file(path("r.md"));
  EXPECT_EQ(told["bytes"], page.size());
  EXPECT_NE(page.find("### mlp/model.onnx: first"), std::string::npos) << page;
  EXPECT_NE(page.find("| `FusedMatMul`"), std::string::npos) << page;
}

TEST_F(ReportCommand, AgainstAnotherRun) {
  const Outcome written =
      run({"report", path("s.db"), "--run", "2", "--against", "first", "-o", path("r.html")});
  ASSERT_EQ(written.code, 0) << written.err;
  const std::string page = read_file(path("r.html"));
  EXPECT_NE(page.find("<h2>Comparisons</h2>"), std::string::npos);
  EXPECT_NE(page.find("one after the other"), std::string::npos);
  EXPECT_EQ(run({"report", path("s.db"), "--against", "7", "-o", path("x.html")}).code, 3);
  EXPECT_FALSE(fs::exists(path("x.html")));
}

TEST_F(ReportCommand, RefusesWhatItCannotWrite) {
  EXPECT_EQ(run({"report", path("s.db"), "-o", path("r.pdf")}).code, 2);
  EXPECT_FALSE(fs::exists(path("r.pdf")));
  EXPECT_EQ(run({"report", path("s.db"), "--run", "7", "-o", path("r.html")}).code, 3);
  EXPECT_EQ(run({"report", path("none.db"), "-o", path("r.html")}).code, 5);
  EXPECT_EQ(run({"report", path("s.db"), "-o", path("nowhere/r.html")}).code, 5);
  EXPECT_EQ(run({"report", path("s.db")}).code, 2);
  EXPECT_FALSE(fs::exists(path("r.html")));
}

}  // namespace
}  // namespace gradloom
