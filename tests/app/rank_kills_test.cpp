// Ranks that are killed at random moments: whatever is under way then, the others end soon and say who it was, and what was written is
// whole. GRADLOOM_RANK_KILLS says how many times, over each transport; GRADLOOM_RANK_KILLS_SEED makes other moments.
#include <cstdlib>
#include <random>

#include "tests/app/ranks_fixture.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

unsigned long from_environment(const char* name, unsigned long otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoul(text, nullptr, 10);
}

// With zero each rank writes its shard of a checkpoint; in bf16 rank 0 gathers the parameters of all for it.
struct KillsAt {
  const char *transport, *passes, *precision;
};

class RankKills : public RanksFixture, public testing::WithParamInterface<KillsAt> {
 protected:
  static constexpr int kSteps = 2000;

  static Words steps(int count, const Words& more) {
    const Words how{"--ranks",         "2",           "--optimizer",       "adamw{lr=1e-3}", "--passes",
                    GetParam().passes, "--precision", GetParam().precision};
    Words words = training("mlp", with(how, more));
    *std::next(std::find(words.begin(), words.end(), "--steps")) = std::to_string(count);
    return words;
  }
  // Its ranks, once all are there.
  static std::set<pid_t> ranks_of(pid_t started) {
    std::set<pid_t> ranks;
    for (int i = 0; i < 1000 && (ranks = rank_processes(started)).size() < 2; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return ranks;
  }
  Outcome end_of(pid_t started, std::chrono::seconds limit) const {
    for (const auto end = Clock::now() + limit; Clock::now() < end;) {
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(started), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          info.si_pid == started)
        return wait(started);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ADD_FAILURE() << "it has not ended";
    kill(started, SIGKILL);
    return wait(started);
  }
  void kill_one(std::mt19937_64& random);
  void expect_whole(const Words& undisturbed);

  Words losses_;  // of a training that nobody disturbs
  int resumed_ = 0;
  // In which kills fall: Open MPI takes a second until its ranks have met; on a busy machine all takes longer.
  std::chrono::microseconds span_{std::string(GetParam().transport) == "mpi" ? 2'000'000 : 1'000'000};

 private:
  EnvironmentVariable transport_{"GRADLOOM_TRANSPORT", GetParam().transport};
};

void RankKills::kill_one(std::mt19937_64& random) {
  fs::remove_all(path("c"));
  fs::remove(path("s.db"));
  const auto moment =
      std::chrono::microseconds(std::uniform_int_distribution<std::int64_t>(0, span_.count())(random));
  const auto victim = std::uniform_int_distribution<int>(0, 1)(random);
  SCOPED_TRACE("rank " + std::to_string(victim) + " after " + std::to_string(moment.count()) + " us");
  const pid_t started =
      start(steps(kSteps, {"--checkpoint", path("c"), "--checkpoint-every", "1", "--session", path("s.db")}));
  const std::set<pid_t> ranks = ranks_of(started);
  ASSERT_EQ(ranks.size(), 2u) << read_file(path("stderr"));
  std::this_thread::sleep_for(moment);
  ASSERT_EQ(kill(*std::next(ranks.begin(), victim), SIGKILL), 0);
  const Outcome o = end_of(started, std::chrono::seconds(15));
  EXPECT_EQ(o.code, 6) << o.err;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  EXPECT_NE(o.err.find("gradloom: rank "), std::string::npos) << o.err;
  EXPECT_NE(o.err.find(" was ended by signal 9 (Killed)"), std::string::npos) << o.err;
  for (const pid_t rank : ranks) EXPECT_TRUE(ends(rank)) << "none is left";
  expect_whole(losses_);
}

// The session is readable, the newest checkpoint whole; from there on the losses are those of a training that nobody disturbs.
void RankKills::expect_whole(const Words& undisturbed) {
  constexpr int kMore = 3;
  if (fs::exists(path("s.db"))) {
    const Outcome runs = run({"runs", path("s.db"), "--json"});
    EXPECT_EQ(runs.code, 0) << runs.err;
  }
  int newest = 0;
  std::error_code none;
  for (const auto& one : fs::directory_iterator(path("c"), none))
    if (const std::string name = one.path().filename(); name.rfind("step-", 0) == 0)
      newest = std::max(newest, std::stoi(name.substr(5)));
  if (newest == 0) return;
  const Outcome rest = run({"train", "--resume", path("c"), "--checkpoint", path("c"), "--ranks", "2",
                            "--steps", std::to_string(newest + kMore), "--json"});
  ASSERT_EQ(rest.code, 0) << rest.err;
  const auto from = undisturbed.begin() + newest;
  EXPECT_EQ(losses(rest), Words(from, from + kMore)) << "after step " << newest;
  for (const auto& one : fs::directory_iterator(path("c")))
    EXPECT_EQ(one.path().filename().string().rfind("step-", 0), 0u) << one.path() << " is left";
  ++resumed_;
}

TEST_P(RankKills, LeaveWhatWasWrittenWhole) {
  const auto kills =
      from_environment("GRADLOOM_RANK_KILLS", std::string(GetParam().transport) == "mpi" ? 4 : 8);
  std::mt19937_64 random(from_environment("GRADLOOM_RANK_KILLS_SEED", 20261129));
  const Outcome undisturbed = run(steps(kSteps + 3, {}));
  ASSERT_EQ(undisturbed.code, 0) << undisturbed.err;
  losses_ = losses(undisturbed);
  ASSERT_EQ(losses_.size(), static_cast<std::size_t>(kSteps + 3));
  const auto begun = Clock::now();
  ASSERT_EQ(run(steps(1, {"--checkpoint", path("c"), "--checkpoint-every", "1"})).code, 0);
  span_ = std::max(span_, 2 * std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun));
  for (unsigned long i = 0; i < kills; ++i) {
    SCOPED_TRACE("kill " + std::to_string(i));
    kill_one(random);
  }
  RecordProperty("resumed", resumed_);
  std::printf("%d of %lu killed trainings had a checkpoint and went on from it\n", resumed_, kills);
  EXPECT_GT(resumed_, 0);
}

INSTANTIATE_TEST_SUITE_P(Transport, RankKills,
                         testing::Values(KillsAt{"mpi", "default", "f64"}, KillsAt{"tcp", "default", "f64"},
                                         KillsAt{"mpi", "default,zero", "bf16"},
                                         KillsAt{"tcp", "default,zero{stage=2}", "f64"}),
                         [](const auto& at) {
                           const bool zero = std::string(at.param.passes) != "default";
                           return std::string(at.param.transport) + (zero ? "_shards" : "");
                         });

}  // namespace
}  // namespace gradloom
