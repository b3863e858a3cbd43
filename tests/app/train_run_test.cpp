// What was trained is kept, whatever happens to the session, the places for the
// files, the loss, or the reader.
#include "app/train_run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <set>

#include "engine/base/npz.h"
#include "tests/app/command_fixture.h"
#include "tests/environment.h"

namespace gradloom {
namespace {

class TrainRuns : public Commands {
 protected:
  // The file of parameters after so many steps without any trouble.
  std::string parameters_after(std::int64_t steps, std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--steps", std::to_string(steps), "--save-params", path("expected.npz")});
    const Outcome o = run(train_mlp(std::move(more)));
    EXPECT_EQ(o.code, 0) << o.err;
    return read_file(path("expected.npz"));
  }
  static std::int64_t steps_in(const std::string& out) {
    std::int64_t steps = 0;
    std::istringstream in(out);
    for (std::string line; std::getline(in, line);)
      if (const json parsed = json::parse(line, nullptr, false);
          parsed.is_object() && parsed.contains("step"))
        steps = parsed["step"];
    return steps;
  }
  // A run that goes on until it is stopped, after its first steps.
  pid_t start_endless(std::vector<std::string> more) const {
    more.insert(more.end(), {"--steps", "100000000"});
    const pid_t child = start(train_mlp(std::move(more)));
    EXPECT_TRUE(wait_for("stdout", "\"step\":20,"));
    return child;
  }
};

TEST_F(TrainRuns, AFullSessionCostsNothingThatWasTrained) {
  const Outcome o = wait(start(train_mlp({"--steps", "2000", "--profile", "all", "--session", path("s.db"),
                                          "--save-params", path("p.npz"), "--export-onnx", path("m.onnx")}),
                               1 << 20));
  EXPECT_EQ(o.code, 5) << o.err;
  EXPECT_NE(o.err.find("s.db: "), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("; the training goes on without the session\n"), std::string::npos) << o.err;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  EXPECT_TRUE(read_file(path("p.npz")) == parameters_after(2000));
  EXPECT_EQ(run({"inspect", path("m.onnx")}).code, 0);
  const json runs = run({"runs", path("s.db"), "--json"}).lines()[0];
  EXPECT_NE(runs["status"], "done") << "what the session holds is not the whole run";
  EXPECT_LT(runs["steps"], 2000);
}

// Another program moved it; the same holds for a lock, which takes its time.
TEST_F(TrainRuns, ASessionThatIsGoneCostsNothingThatWasTrained) {
  const pid_t child = start_endless({"--session", path("s.db"), "--save-params", path("p.npz")});
  fs::rename(path("s.db"), path("moved.db"));
  EXPECT_TRUE(wait_for("stderr", "the training goes on without the session"));
  kill(child, SIGINT);
  const Outcome o = wait(child);
  EXPECT_EQ(o.code, 130) << o.err;
  EXPECT_TRUE(read_file(path("p.npz")) == parameters_after(steps_in(o.out)));
}

TEST_F(TrainRuns, ANotFiniteLossLeavesTheParametersBeforeIt) {
  const std::vector<std::string> diverging{"--optimizer", "sgd{lr=30000}"};
  std::vector<std::string> more = diverging;
  more.insert(more.end(), {"--steps", "500", "--save-params", path("p.npz"), "--export-onnx", path("m.onnx"),
                           "--session", path("s.db")});
  const Outcome o = run(train_mlp(more));
  EXPECT_EQ(o.code, 7) << o.err;
  const std::size_t at = o.err.find("holds the parameters after step ");
  ASSERT_NE(at, std::string::npos) << o.err;
  const std::int64_t step = std::stoll(o.err.substr(at + 32));
  EXPECT_LT(step, steps_in(o.out));
  EXPECT_TRUE(read_file(path("p.npz")) == parameters_after(step, diverging)) << "after step " << step;
  const auto arrays = read_npz(path("p.npz"));
  ASSERT_TRUE(arrays.ok());
  for (const auto& [name, array] : *arrays)
    for (const double x : array.to_f64()) ASSERT_TRUE(std::isfinite(x)) << name;
  EXPECT_EQ(run({"inspect", path("m.onnx")}).err, "") << "no weight that is not finite";
}

TEST_F(TrainRuns, PlacesThatTakeNoFilesAreFoundBeforeTheFirstStep) {
  std::ofstream(path("file")) << "x";
  const auto entries = [&] {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) names.insert(entry.path().filename());
    return names;
  };
  const auto refused = [&](const std::vector<std::string>& more, int code, const std::string& part) {
    SCOPED_TRACE(more[0] + " " + more[1]);
    expect_error(train_mlp(more), code, part);
    EXPECT_EQ(read_file(path("stdout")).find("\"step\""), std::string::npos);
    EXPECT_EQ(entries(), (std::set<std::string>{"file", "stderr", "stdout"}));
  };
  for (const char* flag : {"--save-params", "--export-onnx"}) {
    refused({flag, path("file") + "/p"}, 5, "cannot write " + path("file") + "/p: Not a directory");
    refused({flag, path("none") + "/p"}, 5, "cannot write " + path("none") + "/p: No such file");
    refused({flag, folder_.path()}, 5, "is a folder");
    refused({flag, path("s.db"), "--session", path("s.db")}, 2, "is to hold the session");
  }
  refused({"--save-params", path("p"), "--export-onnx", path("p")}, 2, "name the same file");
}

TEST_F(TrainRuns, FilesGoElsewhereWhereTheirPlaceWent) {
  fs::create_directory(path("results"));
  fs::create_directory(path("sessions"));
  std::ofstream(path("sessions/p.npz")) << "another's";
  const Setting temporary("TMPDIR", folder_.path().c_str());
  const pid_t child = start_endless({"--session", path("sessions/s.db"), "--save-params",
                                     path("results/p.npz"), "--export-onnx", path("results/m.onnx")});
  fs::remove(path("results"));
  kill(child, SIGINT);
  const Outcome o = wait(child);
  EXPECT_EQ(o.code, 130) << o.err;
  EXPECT_NE(o.err.find("the parameters are in " + path("sessions/p-1.npz")), std::string::npos) << o.err;
  EXPECT_EQ(read_file(path("sessions/p.npz")), "another's");
  EXPECT_TRUE(read_file(path("sessions/p-1.npz")) == parameters_after(steps_in(o.out)));
  EXPECT_EQ(run({"inspect", path("sessions/m.onnx")}).code, 0);
  json summary;
  std::istringstream lines(o.out);
  for (std::string line; std::getline(lines, line);)
    if (const json parsed = json::parse(line); parsed.contains("summary")) summary = parsed["summary"];
  EXPECT_EQ(summary["saved"][0]["asked"], path("results/p.npz"));
  EXPECT_EQ(summary["saved"][0]["path"], path("sessions/p-1.npz"));
}

// The pipe keeps the run from its end until the place is gone.
TEST_F(TrainRuns, AFinishedRunWhosePlaceWentEndsWithAnError) {
  fs::create_directory(path("results"));
  fs::create_directory(path("temporary"));
  const Setting temporary("TMPDIR", path("temporary").c_str());
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
  const pid_t child = start(train_mlp({"--steps", "3000", "--save-params", path("results/p.npz")}),
                            RLIM_INFINITY, pipe_fds[1]);
  close(pipe_fds[1]);
  char bytes[4096];
  ASSERT_GT(read(pipe_fds[0], bytes, sizeof bytes), 0);
  fs::remove(path("results"));
  while (read(pipe_fds[0], bytes, sizeof bytes) > 0) {
  }
  close(pipe_fds[0]);
  const Outcome o = wait(child);
  EXPECT_EQ(o.code, 5) << o.err;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  EXPECT_NE(o.err.find("; the parameters are in " + path("temporary/p.npz")), std::string::npos) << o.err;
  EXPECT_TRUE(read_file(path("temporary/p.npz")) == parameters_after(3000));
}

TEST_F(TrainRuns, AReaderThatGoesAwayStopsTheRun) {
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
  const pid_t child =
      start(train_mlp({"--steps", "100000000", "--session", path("s.db"), "--save-params", path("p.npz")}),
            RLIM_INFINITY, pipe_fds[1]);
  close(pipe_fds[1]);
  char byte = 0;
  ASSERT_EQ(read(pipe_fds[0], &byte, 1), 1);
  close(pipe_fds[0]);
  const Outcome o = wait(child);
  EXPECT_EQ(o.code, 130) << o.err;
  EXPECT_NE(o.err.find("the reader of standard output went away"), std::string::npos) << o.err;
  EXPECT_TRUE(fs::exists(path("p.npz")));
  const auto runs = run({"runs", path("s.db"), "--json"}).lines();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["status"], "stopped");
  EXPECT_TRUE(read_file(path("p.npz")) == parameters_after(runs[0]["steps"]));
}

// Batches of one step are held one at a time: so many of them at once would not fit.
TEST_F(TrainRuns, BatchesOfOneStepComeOneByOne) {
  expect_error(train_mlp({"--accumulate", "4294967296"}), 2, "--accumulate must be at most 65536");
  [[maybe_unused]] const auto peak_kib = [&](const char* accumulate) {
    const pid_t child = start({"train", model("mlp/model.onnx"), "--dim", "batch=4096", "--loss",
                               "ce:logits,labels", "--steps", "1", "--json", "--accumulate", accumulate});
    int status = 0;
    rusage usage{};
    EXPECT_EQ(wait4(child, &status, 0, &usage), child);
    EXPECT_EQ(status, 0) << read_file(path("stderr"));
    return usage.ru_maxrss;
  };
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // who keep what was freed
  const long few = peak_kib("2"), many = peak_kib("66");
  const long batch_kib = 4096 * 64 * 4 / 1024;  // at least: 64 floats of 4096 samples
  EXPECT_LT(many - few, 16 * batch_kib) << "64 more batches";
#endif
}

}  // namespace
}  // namespace gradloom
