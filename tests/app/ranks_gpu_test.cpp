// Trainings on several ranks whose steps run on device host-gpu: the plan, kernels and streams of GPUs, exchanged through pinned memory
// of the host.
#include <algorithm>
#include <cmath>

#include "tests/app/host_gpu_support.h"
#include "tests/app/ranks_fixture.h"

namespace gradloom {
namespace {

class GpuRanks : public RanksFixture {
 protected:
  static Words on(const char* device, const std::string& name, const Words& more) {
    return training(name, with({"--precision", "f32", "--device", device, "--ranks", "2"}, more));
  }
  std::vector<double> loss_numbers(const Outcome& o) const {
    std::vector<double> all;
    for (const std::string& loss : losses(o)) all.push_back(std::stod(loss));
    return all;
  }
  void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(a[i], b[i], 1e-5 * std::max(1.0, std::fabs(a[i]))) << i;
  }
  // As two ranks on the CPU train.
  void expect_as_on_cpu(const std::string& name, const Words& more) {
    SCOPED_TRACE(name + (more.empty() ? "" : " " + more.back()));
    const Outcome cpu = run(on("cpu", name, with(more, {"--save-params", path("a.npz")})));
    ASSERT_EQ(cpu.code, 0) << cpu.err;
    const Outcome gpu = run(on("host-gpu", name, with(more, {"--save-params", path("b.npz")})));
    ASSERT_EQ(gpu.code, 0) << gpu.err;
    EXPECT_EQ(losses(gpu).size(), 3u);
    expect_near(loss_numbers(cpu), loss_numbers(gpu));
    expect_near_parameters(parameters("a.npz"), parameters("b.npz"), 1e-5, Distance::of_size);
  }
  // One of two ranks gets a signal in the midst of the training.
  void expect_named(int signal_number, const Words& more, const char* text) {
    const pid_t child = start(on("host-gpu", "mlp", with({"--steps", "1000000"}, more)));
    ASSERT_TRUE(wait_for("stdout", "\"step\":2"));
    const std::set<pid_t> ranks = rank_processes(child);
    ASSERT_EQ(ranks.size(), 2u);
    kill(*ranks.rbegin(), signal_number);
    const Outcome o = wait(child);
    EXPECT_EQ(o.code, 6);
    EXPECT_NE(o.err.find(text), std::string::npos) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    for (const pid_t rank : ranks) EXPECT_TRUE(ends(rank)) << "none is left";
  }
};

constexpr const char* kSgd = "sgd{lr=0.1,momentum=0.9}";

TEST_F(GpuRanks, TrainAsOnTheCpu) {
  REQUIRE_HOST_GPU();
  expect_as_on_cpu("mlp", {"--optimizer", kSgd});
  expect_as_on_cpu("mlp", {"--optimizer", kSgd, "--passes", "none"});
  expect_as_on_cpu("cnn-digits", {"--optimizer", kSgd, "--clip-norm", "0.5"});
  expect_as_on_cpu("bert-tiny", {"--optimizer", kSgd, "--clip-norm", "1", "--accumulate", "2"});
  expect_as_on_cpu("bert-tiny", {"--optimizer", kSgd, "--passes", "default,data-parallel{bucket_mb=0}"});
  expect_as_on_cpu("bert-tiny", {"--optimizer", kSgd, "--passes", "default,data-parallel{overlap=false}"});
  expect_as_on_cpu("bert-tiny", {"--optimizer", kSgd, "--passes", "default,data-parallel{dtype=bf16}"});
  expect_as_on_cpu("mlp", {"--optimizer", kSgd, "--passes", "default,adasum"});
  expect_as_on_cpu("gpt-char",
                   {"--optimizer", kSgd, "--clip-norm", "1", "--passes", "default,tensor-parallel"});
  expect_as_on_cpu("bert-tiny", {"--optimizer", kSgd, "--ranks", "3", "--reduce", "tree"});
  expect_as_on_cpu("bert-tiny", {"--optimizer", kSgd, "--ranks", "3", "--reduce", "ring"});
}

TEST_F(GpuRanks, KeepStatesAndGradientsApartAsOnTheCpu) {
  REQUIRE_HOST_GPU();
  for (const char* passes :
       {"default,zero", "default,zero{stage=2}", "default,zero{stage=2},data-parallel{bucket_mb=0}",
        "default,zero,gather-early{bucket_mb=0}"}) {
    expect_as_on_cpu("mlp", {"--optimizer", kSgd, "--clip-norm", "0.3", "--passes", passes});
    expect_as_on_cpu("bert-tiny",
                     {"--optimizer", kSgd, "--clip-norm", "0.3", "--accumulate", "2", "--passes", passes});
  }
}

TEST_F(GpuRanks, NormalizeByTheBatchOfAllAsOnTheCpu) {
  REQUIRE_HOST_GPU();
  for (const char* passes :
       {"sync-batchnorm", "default,sync-batchnorm", "default,zero{stage=2},sync-batchnorm"})
    expect_as_on_cpu("cnn-digits", {"--optimizer", kSgd, "--passes", passes});
}

// The order in which the ranks' numbers are added is that of the CPU, whatever runs when.
TEST_F(GpuRanks, HaveTheSameBitsHoweverStepsAreRun) {
  REQUIRE_HOST_GPU();
  const Words common{
      "--optimizer", "adamw{lr=1e-3}", "--passes", "default,data-parallel{bucket_mb=0}", "--accumulate",
      "2",           "--save-params"};
  const Outcome recorded = run(on("host-gpu", "bert-tiny", with(common, {path("a.npz")})));
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  const auto whole = parameters("a.npz");
  const auto expect_equal = [&](const Words& more) {
    const Outcome other = run(on("host-gpu", "bert-tiny", with(common, with({path("b.npz")}, more))));
    ASSERT_EQ(other.code, 0) << other.err;
    EXPECT_EQ(losses(other), losses(recorded));
    expect_same_parameters(whole, parameters("b.npz"));
  };
  expect_equal({"--record", "off"});
  expect_equal({"--passes", "default,zero"});
  expect_equal({"--passes", "default,data-parallel{overlap=false}"});
  for (const char* lazy : {"1", "compute"}) {
    SCOPED_TRACE(lazy);
    const EnvironmentVariable late("GRADLOOM_HOSTGPU_LAZY", lazy);
    expect_equal({});
    expect_equal({"--record", "off"});
  }
  const EnvironmentVariable over("GRADLOOM_TRANSPORT", "tcp");
  expect_equal({});
}

// Of the steps, what made the exchanges, and when.
TEST_F(GpuRanks, TellWhatMadeTheExchanges) {
  REQUIRE_HOST_GPU();
  const Outcome o = run(on("host-gpu", "mlp", {"--session", path("s.db"), "--profile", "all"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const Outcome shown = run({"show", path("s.db"), "--group", "implementation"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_NE(shown.out.find("through pinned memory of the host"), std::string::npos) << shown.out;
  const Outcome trace = run({"trace", path("s.db"), "--output", path("t.json")});
  ASSERT_EQ(trace.code, 0) << trace.err;
  std::size_t exchanges = 0;
  const json written = json::parse(read_file(path("t.json")));
  for (const json& e : written["traceEvents"])
    exchanges +=
        e["ph"] == "X" && e["name"].get<std::string>().find("all_reduce") != std::string::npos ? 1u : 0u;
  EXPECT_GT(exchanges, 0u);
}

TEST_F(GpuRanks, ARankThatHangsIsNamed) {
  REQUIRE_HOST_GPU();
  expect_named(SIGSTOP, {"--rank-timeout", "1"}, "said nothing for 1.00 s");
}

TEST_F(GpuRanks, ARankThatIsKilledIsNamed) {
  REQUIRE_HOST_GPU();
  expect_named(SIGKILL, {}, "was ended by signal 9");
}

// A device that fails between exchanges ends all ranks.
TEST_F(GpuRanks, ADeviceThatFailsEndsAll) {
  REQUIRE_HOST_GPU();
  for (const char* failure : {"call_host:3=5", "run:40=6", "copy:9=5"}) {
    SCOPED_TRACE(failure);
    const EnvironmentVariable fails("GRADLOOM_HOSTGPU_FAIL", failure);
    const Outcome o = run(on("host-gpu", "mlp", {"--steps", "50", "--record", "off", "--rank-timeout", "5"}));
    EXPECT_EQ(o.code, 6) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

TEST_F(GpuRanks, StopTogether) {
  REQUIRE_HOST_GPU();
  const pid_t child = start(on("host-gpu", "mlp", {"--steps", "1000000"}));
  ASSERT_TRUE(wait_for("stdout", "\"step\":2"));
  kill(child, SIGINT);
  const Outcome o = wait(child);
  EXPECT_EQ(o.code, 130) << o.err;
  EXPECT_NE(o.err.find("interrupted after step"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace gradloom
