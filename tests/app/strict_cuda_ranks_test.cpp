// Trainings on two ranks whose plugin is the CUDA plugin over the strict driver, each process with a device of its own: exchanged by a library
// that carries numbers between processes and holds their calls against each other (fake_nccl.cpp), and through the host where there is none.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/app/ranks_fixture.h"
#include "tests/app/strict_cuda.h"

namespace gradloom {
namespace {

class StrictCudaRanks : public RanksFixture {
 protected:
  void SetUp() override { use_strict_cuda(); }
  Outcome train(const Words& more, const char* device = "cuda") {
    return run(training("bert-tiny", with({"--precision", "f32", "--device", device, "--ranks", "2",
                                           "--optimizer", "sgd{lr=0.1,momentum=0.9}", "--clip-norm", "0.5"},
                                          more)));
  }
  static std::vector<double> numbers(const Outcome& o) {
    std::vector<double> all;
    for (const std::string& loss : losses(o)) all.push_back(std::stod(loss));
    return all;
  }
};

// The library of the tests adds in the order of the ranks, so that both ways have the same bits.
TEST_F(StrictCudaRanks, ExchangeByTheLibraryAsThroughTheHostAndAsOnTheCpu) {
  for (const Words& how :
       {Words{"--accumulate", "2"}, Words{"--passes", "default,data-parallel{bucket_mb=0}"},
        Words{"--passes", "default,data-parallel{dtype=bf16}"},
        Words{"--passes", "default,zero{stage=2},data-parallel{dtype=bf16}"},
        Words{"--passes", "default,zero", "--accumulate", "2"}, Words{"--passes", "default,zero{stage=2}"},
        Words{"--record", "off"}}) {
    SCOPED_TRACE(how.back());
    const Words saved = with(how, {"--save-params"});
    const Outcome cpu = train(how, "cpu");
    const Outcome library = train(with(saved, {path("a.npz"), "--session", path(how.back() + ".db")}));
    ASSERT_EQ(library.code, 0) << library.err;
    EXPECT_EQ(library.err.find("strict driver"), std::string::npos) << library.err;
    const Outcome shown = run({"show", path(how.back() + ".db"), "--group", "implementation"});
    EXPECT_NE(shown.out.find("nccl 2.99.1"), std::string::npos) << shown.out;
    EXPECT_EQ(shown.out.find("which exchanges"), std::string::npos) << shown.out;
    const EnvironmentVariable off("GRADLOOM_NCCL", "0");
    const Outcome host = train(with(saved, {path("b.npz")}));
    ASSERT_EQ(host.code, 0) << host.err;
    EXPECT_EQ(host.err.find("strict driver"), std::string::npos) << host.err;
    EXPECT_EQ(losses(library), losses(host));
    const auto a = parameters("a.npz"), b = parameters("b.npz");
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [key, x] : a) EXPECT_EQ(std::memcmp(x.data(), b.at(key).data(), x.bytes()), 0) << key;
    const std::vector<double> expected = numbers(cpu), found = numbers(library);
    ASSERT_EQ(expected.size(), 3u);
    ASSERT_EQ(found.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(found[i], expected[i], 1e-5 * std::max(1.0, std::fabs(expected[i])));
  }
}

TEST_F(StrictCudaRanks, WithOneDeviceForBothTheHostExchangesAndSaysWhy) {
  const EnvironmentVariable same("GRADLOOM_STRICT_SAME_DEVICE", "1");
  const Outcome o = train({"--session", path("s.db")});
  ASSERT_EQ(o.code, 0) << o.err;
  const Outcome shown = run({"show", path("s.db"), "--group", "implementation"});
  EXPECT_NE(shown.out.find("rank 1 has the device of another rank"), std::string::npos) << shown.out;
}

// Each call of the library that fails ends both ranks, or leaves it to the host; nobody hangs.
TEST_F(StrictCudaRanks, ALibraryThatFailsEndsAllRanksOrIsNotUsed) {
  enum class Then { the_host_exchanges, all_end, nothing };
  struct Failing {
    const char* call;
    Then then;
    const char* passes = "default";
  };
  for (const auto& [call, then, passes] :
       {Failing{"ncclGetVersion", Then::the_host_exchanges},
        Failing{"ncclGetUniqueId", Then::the_host_exchanges},
        Failing{"ncclCommInitRank", Then::the_host_exchanges}, Failing{"ncclGroupStart", Then::all_end},
        Failing{"ncclGroupEnd", Then::all_end}, Failing{"ncclAllReduce", Then::all_end},
        Failing{"ncclReduce", Then::all_end, "default,zero{stage=2}"},
        Failing{"ncclReduceScatter", Then::all_end, "default,zero{stage=2}"},
        Failing{"ncclBroadcast", Then::all_end, "default,zero"},
        Failing{"ncclAllGather", Then::all_end, "default,zero"},
        Failing{"ncclCommGetAsyncError", Then::all_end}, Failing{"ncclCommAbort", Then::nothing}}) {
    SCOPED_TRACE(call);
    const EnvironmentVariable fails("GRADLOOM_FAKE_NCCL_FAIL", call);
    fs::remove(path("s.db"));
    const Outcome o = train({"--rank-timeout", "20", "--passes", passes, "--session", path("s.db")});
    EXPECT_EQ(o.code, then == Then::all_end ? 6 : 0) << o.err;
    EXPECT_EQ(o.err.find("strict driver"), std::string::npos) << o.err;
    if (then == Then::all_end) {
      EXPECT_NE(o.err.find("fake error"), std::string::npos) << o.err;
      continue;
    }
    EXPECT_EQ(losses(o).size(), 3u);
    const bool by_host = then == Then::the_host_exchanges;
    const Outcome shown = run({"show", path("s.db"), "--group", "implementation"});
    EXPECT_EQ(shown.out.find("nccl 2.99.1") == std::string::npos, by_host) << shown.out;
    if (!by_host) continue;
    const bool version = std::string(call) == "ncclGetVersion";
    const std::string why =
        version ? "nccl is too old or lacks functions" : call + std::string(": fake error");
    EXPECT_NE(shown.out.find(why), std::string::npos) << shown.out;
  }
}

// Ranks whose calls do not agree are told so.
TEST_F(StrictCudaRanks, CallsThatDoNotAgreeAreNamed) {
  for (const char* passes : {"default,data-parallel{bucket_mb=0}", "default,zero{stage=2}"})
    for (const char* what : {"count", "type", "kind", "root", "order"}) {
      SCOPED_TRACE(std::string(passes) + " " + what);
      const EnvironmentVariable fails("GRADLOOM_FAKE_NCCL_SPOIL", what);
      const Outcome o = train({"--rank-timeout", "20", "--passes", passes});
      EXPECT_EQ(o.code, 6) << o.err;
      EXPECT_NE(o.err.find("invalid usage"), std::string::npos) << o.err;
      EXPECT_NE(o.err.find(" makes "), std::string::npos) << o.err;
    }
}

// Libraries of two versions are told before anything is exchanged by them, and may be left out.
TEST_F(StrictCudaRanks, ALibraryOfAnotherVersionIsNamed) {
  const EnvironmentVariable older("GRADLOOM_FAKE_NCCL_OLDER", "1");
  const Outcome o = train({"--rank-timeout", "20"});
  EXPECT_EQ(o.code, 6) << o.err;
  EXPECT_NE(o.err.find("rank 1 has another library than rank 0: nccl 2.98.5, not nccl 2.99.1"),
            std::string::npos)
      << o.err;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  const EnvironmentVariable off("GRADLOOM_NCCL", "0");
  EXPECT_EQ(train({}).code, 0);
}

// The library's order is its own: where another one is asked for, the host exchanges, or nobody does.
TEST_F(StrictCudaRanks, ATreeIsNotLeftToTheLibrary) {
  const Outcome refused = train({"--reduce", "tree"});
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  EXPECT_NE(refused.err.find("--reduce tree: these devices exchange by nccl 2.99.1"), std::string::npos)
      << refused.err;
  const EnvironmentVariable off("GRADLOOM_NCCL", "0");
  const Outcome through_host = train({"--reduce", "tree"}), in_order = train({});
  ASSERT_EQ(through_host.code, 0) << through_host.err;
  EXPECT_EQ(losses(through_host), losses(in_order)) << "a sum of two has one order";
}

}  // namespace
}  // namespace gradloom
