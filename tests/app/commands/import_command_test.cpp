// gradloom import, from a file of a stranger to what the other commands say of its run.
#include <gtest/gtest.h>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class ImportCommand : public Commands {
 protected:
  // Two steps of 90 us: a product in blocks.0/up, its backward, an update.
  static std::string trace_text() {
    std::string text = R"({"schemaVersion":1,"traceEvents":[)";
    const auto add = [&](const char* category, const std::string& name, int start_us, int duration_us,
                         int sequence) {
      text += std::string(text.back() == '[' ? "" : ",") + R"({"ph":"X","cat":")" + category +
              R"(","name":")" + name + R"(","pid":1,"tid":1,"ts":)" + std::to_string(start_us) +
              R"(,"dur":)" + std::to_string(duration_us) + R"(,"args":{"Sequence number":)" +
              std::to_string(sequence) + "}}";
    };
    for (int i = 0; i < 2; ++i) {
      const int t = 100 * i;
      add("user_annotation", "ProfilerStep#" + std::to_string(i + 3), t, 90, -1);
      add("user_annotation", "blocks.0/up", t + 1, 30, -1);
      add("cpu_op", "aten::addmm", t + 5, 20, i + 1);
      add("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", t + 40, 20, i + 1);
      add("cpu_op", "aten::mm", t + 42, 10, -1);
      add("user_annotation", "Optimizer.step#SGD.step", t + 70, 15, -1);
      add("cpu_op", "aten::add_", t + 72, 5, -1);
    }
    return text + "]}";
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  void SetUp() override { write("t.json", trace_text()); }
  Outcome import(const std::string& name, std::vector<std::string> more = {}) const {
    std::vector<std::string> args{"import", path(name), "--session", path("s.db")};
    args.insert(args.end(), more.begin(), more.end());
    return run(args);
  }
};

TEST_F(ImportCommand, SaysWhatItFound) {
  const Outcome o = import("t.json");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  EXPECT_EQ(o.out.substr(0, o.out.find('\n')),
            "run 1 (t): PyTorch's profiler on cpu, 2 steps of 90.0 us, 3 kernels in 6 executions, 1 module");
  const Outcome as_json = import("t.json", {"--json", "--name", "again"});
  ASSERT_EQ(as_json.code, 0) << as_json.err;
  const json told = as_json.lines().at(0);
  EXPECT_EQ(told["run_id"], 2);
  EXPECT_EQ(told["name"], "again");
  EXPECT_EQ(told["recorded_by"], "kineto");
  EXPECT_EQ(told["steps"], 2);
  EXPECT_EQ(told["median_step_ns"], 90'000);
  EXPECT_EQ(told["executions"], 6);
}

TEST_F(ImportCommand, OtherCommandsTellNothingFalseOfIt) {
  ASSERT_EQ(import("t.json").code, 0);
  const Outcome runs = run({"runs", path("s.db")});
  EXPECT_NE(runs.out.find("PyTorch's profiler"), std::string::npos) << runs.out;
  EXPECT_EQ(runs.out.find("nan"), std::string::npos) << runs.out;
  const Outcome show = run({"show", path("s.db"), "--group", "phase"});
  ASSERT_EQ(show.code, 0) << show.err;
  EXPECT_EQ(show.out.find("nan"), std::string::npos) << show.out;
  EXPECT_EQ(show.out.find("loss"), std::string::npos) << show.out;
  EXPECT_EQ(show.out.find("lower bound"), std::string::npos) << show.out;
  EXPECT_EQ(show.out.find("FLOP"), std::string::npos) << show.out;
  EXPECT_NE(show.out.find("recorded by PyTorch's profiler on cpu"), std::string::npos) << show.out;
  EXPECT_NE(show.out.find("3 kernels in 3 executions per step"), std::string::npos) << show.out;
  EXPECT_NE(show.out.find("the kernels' times add up to 38.9 % of a step"), std::string::npos) << show.out;
  const json object = run({"show", path("s.db"), "--json"}).lines().at(0);
  EXPECT_EQ(object["first_loss"], "NaN");
  EXPECT_EQ(object["kernels"][0]["scope"], "blocks.0/up");
  EXPECT_EQ(object["kernels"][1]["phase"], "backward");
  EXPECT_EQ(object["kernels"][1]["onnx_nodes"][0], "blocks.0/up/aten::addmm");
  expect_error({"export", path("s.db")}, 3, "run 1 was recorded by PyTorch's profiler: there is no recipe");
  expect_error({"compare", "1", "1", "--session", path("s.db")}, 3, "there is no recipe");
  EXPECT_EQ(run({"compare", "1", "1", "--stored", "--session", path("s.db")}).code, 0);
  EXPECT_EQ(run({"trace", path("s.db"), "-o", path("o.json")}).code, 0);
  ASSERT_EQ(run({"report", path("s.db"), "-o", path("r.html")}).code, 0);
  const std::string page = read_file(path("r.html"));
  EXPECT_NE(page.find("A run of PyTorch&#39;s profiler"), std::string::npos);
  for (const char* text :
       {"nan", "only copy, convert", "Where the memory goes", "FLOP/s", "is not there", "It runs again"})
    EXPECT_EQ(page.find(text), std::string::npos) << text;
}

TEST_F(ImportCommand, AFolderIsARunPerFile) {
  fs::create_directory(path("ranks"));
  for (const char* name : {"ranks/w0.1.pt.trace.json", "ranks/w1.2.pt.trace.json", "ranks/readme.txt"})
    write(name, trace_text());
  const Outcome o = import("ranks", {"--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(o.lines().size(), 2u);
  EXPECT_EQ(o.lines()[0]["name"], "w0.1");
  EXPECT_EQ(o.lines()[1]["run_id"], 2);
  fs::create_directory(path("none"));
  expect_error({"import", path("none"), "--session", path("s.db")}, 3, "no file in it ends in");
}

TEST_F(ImportCommand, WithAModelItsModulesHaveTheModelsNames) {
  const Outcome o = import("t.json", {"--model", model("gpt-char/model.onnx"), "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.lines()[0]["matched_modules"], 0);
  EXPECT_NE(o.err.find("note: 1 module not in the model: blocks.0/up"), std::string::npos) << o.err;
  std::string text = trace_text();
  for (std::size_t at; (at = text.find("blocks.0/up")) != std::string::npos;)
    text.replace(at, 11, "blocks.0.fc");
  write("u.json", text);
  const Outcome named = import("u.json", {"--model", model("gpt-char/model.onnx"), "--json"});
  ASSERT_EQ(named.code, 0) << named.err;
  EXPECT_EQ(named.lines()[0]["matched_modules"], 1);
  EXPECT_EQ(run({"show", path("s.db"), "--json"}).lines()[0]["kernels"][0]["scope"], "blocks.0/fc");
  EXPECT_EQ(import("t.json", {"--model", path("absent.onnx")}).code, 5);
}

TEST_F(ImportCommand, FilesOfStrangersLeaveTheSessionAlone) {
  write("cut.json", trace_text().substr(0, 700));
  write("other.json", R"({"a":[1,2]})");
  write("empty.json", "");
  expect_error({"import", path("cut.json"), "--session", path("s.db")}, 3,
               "it breaks off or goes wrong at byte");
  expect_error({"import", path("other.json"), "--session", path("s.db")}, 3, "no list of events");
  expect_error({"import", path("empty.json"), "--session", path("s.db")}, 3, "empty.json");
  expect_error({"import", path("absent.json"), "--session", path("s.db")}, 5, "absent.json");
  EXPECT_FALSE(fs::exists(path("s.db")));
  EXPECT_EQ(run({"import", path("t.json")}).code, 2);
  write("odd.json",
        R"([{"ph":"X","cat":"cpu_op","name":"a::\u001b[2J\n\u202e","pid":1,"tid":1,"ts":0,"dur":5}])");
  ASSERT_EQ(import("odd.json", {"--name", "\x1b[2Jx"}).code, 0);
  for (const std::vector<std::string>& args : {std::vector<std::string>{"show", path("s.db")},
                                               {"runs", path("s.db")},
                                               {"show", path("s.db"), "--group", "op"}})
    EXPECT_EQ(run(args).out.find('\x1b'), std::string::npos);
  // A session of ours is no export of Nsight Systems, although it has views that look like one.
  EXPECT_EQ(run({"import", path("s.db"), "--session", path("s2.db")}).code, 3);
}

}  // namespace
}  // namespace gradloom
