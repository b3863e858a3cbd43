// Ranks that plain variables number, as torchrun, Azure ML and PyTorchJob set them: they meet over TCP.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "app/spawn.h"
#include "tests/app/ranks_fixture.h"

namespace gradloom {
namespace {

class RankPlaces : public RanksFixture {
 protected:
  RankPlaces() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    place_.sin_family = AF_INET;
    place_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    socklen_t bytes = sizeof place_;
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    EXPECT_EQ(bind(socket_, at(), bytes), 0);
    EXPECT_EQ(getsockname(socket_, at(), &bytes), 0);
  }
  ~RankPlaces() override { close(socket_); }
  // As one of two; what it says is in files that begin with its number.
  pid_t start_rank(int rank, Words words, const Words& variables = {}) {
    const auto file = [&](const char* name) {
      return open(path(std::to_string(rank) + name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    };
    const int out = file("-stdout"), err = file("-stderr");
    words.insert(words.begin(), GRADLOOM_COMMAND);
    pid_t process = -1;
    const Words place{"RANK=" + std::to_string(rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                      "MASTER_PORT=" + std::to_string(port() - 1)};
    const SpawnStreams streams{.out = out, .err = err};
    EXPECT_EQ(spawn(words[0], words, streams, process, with(place, variables)), 0);
    close(out);
    close(err);
    return process;
  }
  Outcome end_of(int rank, pid_t process) {
    Outcome o = wait(process);
    o.out = read_file(path(std::to_string(rank) + "-stdout"));
    o.err = read_file(path(std::to_string(rank) + "-stderr"));
    return o;
  }
  int port() const { return ntohs(place_.sin_port); }
  sockaddr* at() { return reinterpret_cast<sockaddr*>(&place_); }
  sockaddr_in place_{};

 private:
  int socket_;  // has the port for this test; ranks may listen there
};

TEST_F(RankPlaces, TrainToTheBitsOfMpi) {
  const Words more{"--optimizer", "adamw{lr=1e-3}", "--clip-norm", "0.5", "--save-params"};
  const pid_t second = start_rank(1, training("bert-tiny", with(more, {path("b.npz")}))),
              first = start_rank(0, training("bert-tiny", with(more, {path("b.npz")})));
  const Outcome quiet = end_of(1, second), told = end_of(0, first);
  ASSERT_EQ(told.code, 0) << told.err;
  ASSERT_EQ(quiet.code, 0) << quiet.err;
  EXPECT_EQ(quiet.out, "") << "rank 0 tells";
  EXPECT_EQ(told.lines().back()["summary"]["world"], 2);
  const EnvironmentVariable mpi("GRADLOOM_TRANSPORT", "mpi");
  const Outcome by_mpi = run(training("bert-tiny", with(more, {path("a.npz"), "--ranks", "2"})));
  ASSERT_EQ(by_mpi.code, 0) << by_mpi.err;
  EXPECT_EQ(losses(told), losses(by_mpi));
  const auto a = parameters("a.npz"), b = parameters("b.npz");
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [key, x] : a) EXPECT_EQ(std::memcmp(x.data(), b.at(key).data(), x.bytes()), 0) << key;
}

TEST_F(RankPlaces, AStrangerAtThePortDoesNoHarm) {
  const pid_t first = start_rank(0, training("mlp", {}));
  const int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  for (int i = 0; i < 2000 && connect(stranger, at(), sizeof place_) != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::string garbage(100'000, '\xee');
  EXPECT_GT(send(stranger, garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
  const pid_t second = start_rank(1, training("mlp", {}));
  const Outcome told = end_of(0, first), quiet = end_of(1, second);
  close(stranger);
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_EQ(quiet.code, 0) << quiet.err;
  EXPECT_EQ(losses(told).size(), 3u);
}

TEST_F(RankPlaces, ARankThatDoesNotComeIsNamed) {
  const pid_t first = start_rank(0, training("mlp", {"--rank-timeout", "0.5"}));
  const Outcome o = end_of(0, first);
  EXPECT_EQ(o.code, 6);
  EXPECT_EQ(o.err,
            "gradloom: rank 1 did not come to 127.0.0.1 port " + std::to_string(port()) + " within 0.5 s\n");
}

TEST_F(RankPlaces, ARankThatIsKilledIsNamedAtOnce) {
  const Words words = training("gpt-char", {"--steps", "100000", "--session", path("s.db")});
  const pid_t second = start_rank(1, words), first = start_rank(0, words);
  ASSERT_TRUE(wait_for("0-stdout", "\"step\":2"));
  kill(second, SIGKILL);
  const Outcome o = end_of(0, first);  // the limit is ten minutes
  EXPECT_EQ(o.code, 6);
  EXPECT_EQ(o.err, "gradloom: rank 1 has ended without a word\n");
  end_of(1, second);
  EXPECT_NE(run({"runs", path("s.db"), "--json"}).out.find("\"steps\""), std::string::npos);
}

TEST_F(RankPlaces, AStopOfOneRankStopsAll) {
  const Words words = training("gpt-char", {"--steps", "100000"});
  const pid_t second = start_rank(1, words), first = start_rank(0, words);
  ASSERT_TRUE(wait_for("0-stdout", "\"step\":2"));
  kill(second, SIGTERM);
  const Outcome told = end_of(0, first), quiet = end_of(1, second);
  EXPECT_EQ(told.code, 130) << told.err;
  EXPECT_EQ(quiet.code, 130) << quiet.err;
  EXPECT_NE(told.err.find("interrupted after step"), std::string::npos) << told.err;
}

TEST_F(RankPlaces, AStopEndsTheMeeting) {
  const pid_t first = start_rank(0, training("mlp", {}));
  const int visitor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  for (int i = 0; i < 2000 && connect(visitor, at(), sizeof place_) != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  close(visitor);
  kill(first, SIGTERM);
  const Outcome o = end_of(0, first);
  EXPECT_EQ(o.code, 130);
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
}

TEST_F(RankPlaces, RanksOfAnotherTrainingAreSentAway) {
  const pid_t first = start_rank(0, training("mlp", {"--rank-timeout", "1"}));
  const Outcome o = end_of(1, start_rank(1, training("mlp", {}), {"GRADLOOM_WORLD_ID=of another"}));
  EXPECT_EQ(o.code, 6);
  EXPECT_NE(o.err.find("belongs to another training"), std::string::npos) << o.err;
  EXPECT_EQ(end_of(0, first).code, 6);
}

}  // namespace
}  // namespace gradloom
