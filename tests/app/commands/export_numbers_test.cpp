// trace --format, export --csv and --tensorboard: files for other programs, from a session of real steps.
#include <cmath>
#include <map>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class ExportNumbers : public Commands {
 protected:
  void SetUp() override {
    session_ = path("s.db");
    const Outcome made = run(train_mlp({"--steps", "6", "--session", session_, "--name", "first"}));
    ASSERT_EQ(made.code, 0) << made.err;
  }
  static std::size_t lines_of(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  std::string session_;
};

TEST_F(ExportNumbers, TraceTakesItsFormatFromTheNameOrTheFlag) {
  for (const std::vector<std::string>& to :
       {std::vector<std::string>{"-o", path("t.pftrace")}, {"--format", "perfetto", "-o", path("t.bin")}}) {
    std::vector<std::string> args{"trace", session_, "--json"};
    args.insert(args.end(), to.begin(), to.end());
    const Outcome o = run(args);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.lines().at(0)["trace"], to.back());
    EXPECT_GT(o.lines().at(0)["events"], 10);
  }
  const std::string packets = read_file(path("t.pftrace"));
  EXPECT_EQ(packets, read_file(path("t.bin")));
  EXPECT_EQ(packets[0], '\x0a') << "Trace.packet";
  ASSERT_EQ(run({"trace", session_, "--format", "chrome", "-o", path("odd.csv")}).code, 0);
  EXPECT_FALSE(json::parse(read_file(path("odd.csv")))["traceEvents"].empty());
  expect_error({"trace", session_, "--format", "svg", "-o", path("x")}, 2, "--format");
}

// What is written is read as if Nsight Systems had written it: the same kernels took the same time.
TEST_F(ExportNumbers, AnNsysFileComesBack) {
  ASSERT_EQ(run({"trace", session_, "-o", path("n.sqlite")}).code, 0);
  const Outcome o = run({"import", path("n.sqlite"), "--session", path("i.db")});
  ASSERT_EQ(o.code, 0) << o.err;
  const auto times = [&](const std::string& session) {
    EXPECT_EQ(run({"trace", session, "-o", path("t.json")}).code, 0);
    std::map<std::string, std::int64_t> ns;
    const json trace = json::parse(read_file(path("t.json")));
    for (const json& e : trace["traceEvents"])
      if (e.contains("args") && e["args"].contains("phase"))
        ns[e["args"]["kernel"].get<std::string>() + ", " + e["args"]["phase"].get<std::string>()] +=
            std::llround(e["dur"].get<double>() * 1000);
    return ns;
  };
  const std::map<std::string, std::int64_t> ours = times(session_);
  EXPECT_GT(ours.size(), 5u);
  EXPECT_EQ(ours, times(path("i.db")));
  expect_error({"trace", session_, "--format", "nsys", "-o", path("n.gz")}, 2, ".gz");
}

TEST_F(ExportNumbers, GraphsOfARun) {
  const Outcome json_file = run({"export", session_, "--graph", path("g.json"), "--json"});
  ASSERT_EQ(json_file.code, 0) << json_file.err;
  const json told = json_file.lines().at(0);
  EXPECT_EQ(told["timed"], true);
  EXPECT_EQ(told["same_plan"], true);
  const std::string text = read_file(path("g.json"));
  EXPECT_EQ(json::parse(text)["graphs"][0]["nodes"].size(), told["nodes"]);
  EXPECT_NE(text.find("time per step"), std::string::npos);
  ASSERT_EQ(run({"export", session_, "--graph", path("g.svg"), "--boxes", "500"}).code, 0);
  EXPECT_EQ(read_file(path("g.svg")).rfind("<svg ", 0), 0u);
  const std::vector<std::string> plan{"plan",   model("mlp/model.onnx"), "--dim",         "batch=8",
                                      "--loss", "ce:logits,labels",      "--export-graph"};
  const auto planned = [&](std::vector<std::string> more) {
    more.insert(more.begin(), plan.begin(), plan.end());
    return more;
  };
  ASSERT_EQ(run(planned({path("p.json")})).code, 0);
  EXPECT_EQ(read_file(path("p.json")).find("time per step"), std::string::npos) << "nothing ran";
  ASSERT_EQ(run(planned({path("p.svg")})).code, 0);
  expect_error(planned({path("p.svg"), "--part", "forward"}), 2, "--part");
  expect_error({"export", session_, "--graph", path("g.onnx")}, 2, "--graph");
  expect_error({"export", session_, "--graph", path("none/g.svg")}, 5, "none");
}

TEST_F(ExportNumbers, TablesAreOfTheWholeRun) {
  const Outcome o = run({"export", session_, "--csv", path("tables"), "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const json told = o.lines().at(0);
  EXPECT_EQ(told["rows"]["steps"], 6);
  EXPECT_EQ(told["rows"]["exchanges"], 0);
  for (const auto& [name, rows] : told["rows"].items())
    EXPECT_EQ(lines_of(read_file(path("tables/" + name + ".csv"))), rows.get<std::size_t>() + 1) << name;
  const json shown = run({"show", session_, "--json"}).lines().at(0);
  EXPECT_EQ(told["rows"]["kernels"], shown["kernels"].size());
  const std::string again = read_file(path("tables/kernels.csv"));
  ASSERT_EQ(run({"export", session_, "--run", "first", "--csv", path("tables")}).code, 0);
  EXPECT_EQ(read_file(path("tables/kernels.csv")), again);
}

TEST_F(ExportNumbers, RunsHaveFoldersForTensorBoard) {
  ASSERT_EQ(run(train_mlp({"--steps", "3", "--session", session_})).code, 0);
  for (const char* number : {"1", "2", "2"}) {
    const Outcome o = run({"export", session_, "--run", number, "--tensorboard", path("logs"), "--json"});
    ASSERT_EQ(o.code, 0) << o.err;
    const json told = o.lines().at(0);
    EXPECT_EQ(told["steps"], *number == '1' ? 6 : 3);
    EXPECT_TRUE(fs::exists(path("logs/" + told["file"].get<std::string>())));
  }
  std::size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path("logs")))
    files += entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 2u) << "one of each run, however often it is written";
  EXPECT_TRUE(fs::exists(path("logs/run-1-first")));
}

TEST_F(ExportNumbers, BadPlacesAndFlagsAreErrors) {
  expect_error({"export", "--csv", path("tables")}, 2, "SESSION");
  expect_error({"export", session_, "--csv", path("t"), "-o", path("r.json")}, 2, "--csv");
  expect_error({"export", session_, "--tensorboard", path("t"), "--deepspeed"}, 2, "--tensorboard");
  expect_error({"export", session_, "--run", "9", "--csv", path("t")}, 3, "9");
  std::ofstream(path("file")) << "x";
  expect_error({"export", session_, "--csv", path("file")}, 5, "file");
  expect_error({"export", session_, "--tensorboard", path("file/in")}, 5, "file");
  expect_error({"trace", session_, "-o", path("none/t.pftrace")}, 5, "none");
}

}  // namespace
}  // namespace gradloom
