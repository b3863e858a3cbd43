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
  // As one of two; what it says is in files that begin with its number. `first`: what a shell does in its process before it.
  pid_t start_rank(int rank, Words words, const Words& variables = {}, const std::string& first = "") {
    const auto file = [&](const char* name) {
      return open(path(std::to_string(rank) + name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    };
    const int out = file("-stdout"), err = file("-stderr");
    words.insert(words.begin(), GRADLOOM_COMMAND);
    if (!first.empty()) words = with({"/bin/sh", "-c", first + "; exec \"$0\" \"$@\""}, words);
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

TEST_F(RankPlaces, ARankThatAddsInAnotherWayIsNamed) {
  const pid_t first = start_rank(0, training("mlp", {"--reduce", "tree"})),
              second = start_rank(1, training("mlp", {"--reduce", "ring"}));
  const Outcome told = end_of(0, first), quiet = end_of(1, second);
  EXPECT_EQ(told.code, 6) << told.err;
  EXPECT_EQ(quiet.code, 6) << quiet.err;
  EXPECT_EQ(told.err, "gradloom: rank 1 has another recipe than rank 0: reduce \"ring\", not \"tree\"\n");
}

// What is of a machine may differ, also where each rank has a plan of its own: where the model lies, threads.
TEST_F(RankPlaces, AModelMayLieElsewhereOnEachMachine) {
  fs::copy(model("bert-tiny"), path("elsewhere"), fs::copy_options::recursive);
  const Words how{"--optimizer", "adamw{lr=1e-3}", "--passes"};
  for (const char* passes : {"default", "default,zero", "default,zero{stage=2}"}) {
    SCOPED_TRACE(passes);
    Words here = training("bert-tiny", with(how, {passes})), there = here;
    there[1] = path("elsewhere/model.onnx");
    *std::next(std::find(there.begin(), there.end(), "--threads")) = "2";
    const pid_t second = start_rank(1, there), first = start_rank(0, here);
    const Outcome told = end_of(0, first), quiet = end_of(1, second);
    ASSERT_EQ(told.code, 0) << told.err;
    ASSERT_EQ(quiet.code, 0) << quiet.err;
    EXPECT_EQ(losses(told), losses(run(with(here, {"--ranks", "2"}))));
  }
}

// Each of these ends both ranks with one line that names the rank and what is different.
TEST_F(RankPlaces, ARankWithAnotherModelOrRecipeIsNamed) {
  const auto expect_told = [&](const Words& a, const Words& b, const std::string& why) {
    const pid_t first = start_rank(0, a), second = start_rank(1, b);
    const Outcome told = end_of(0, first), quiet = end_of(1, second);
    EXPECT_EQ(told.code, 6) << told.err;
    EXPECT_EQ(quiet.code, 6) << quiet.err;
    EXPECT_EQ(told.err.rfind("gradloom: rank 1 has another " + why, 0), 0u) << told.err;
    EXPECT_EQ(std::count(told.err.begin(), told.err.end(), '\n'), 1) << told.err;
  };
  const Words plain = training("bert-tiny", {}), zero{"--passes", "default,zero{stage=2}"};
  expect_told(plain, training("mlp", {}), "model than rank 0: its contents hash to ");
  expect_told(with(plain, zero), training("mlp", zero), "model than rank 0: its contents hash to ");
  for (const Words& more : {Words(), zero}) {
    const Words a = with(plain, more);
    expect_told(a, with(a, {"--seed", "7"}), "recipe than rank 0: seed 7, not 0\n");
    expect_told(a, with(a, {"--clip-norm", "2"}), "recipe than rank 0: clip_norm ");
    expect_told(a, with(a, {"--optimizer", "sgd{lr=0.5}"}),
                "recipe than rank 0: optimizer \"sgd{lr=0.5}\", not \"sgd{lr=0.01}\"\n");
  }
}

// Which may be meant: each machine may have some of the data.
TEST_F(RankPlaces, DataOfAnotherSizeAreTold) {
  const auto whole = read_npz(model("mlp") + "/batches.npz");
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  std::map<std::string, Tensor> some;
  for (const auto& [name, all] : *whole) {
    Shape shape = all.shape();
    ASSERT_EQ(shape[0], 5);
    shape[0] = 3;
    Tensor part(all.dtype(), shape);
    std::memcpy(part.mutable_data(), all.data(), part.bytes());
    some[name] = part;
  }
  ASSERT_TRUE(write_npz(path("some.npz"), some).ok());
  ASSERT_TRUE(write_npz(path("whole.npz"), *whole).ok());
  const auto reads = [&](const char* file) {
    Words words = training("mlp", {"--data", "npz:" + path(file)});
    words[3] = "batch=8";
    return words;
  };
  const auto told = [&](const char* a, const char* b) {
    const pid_t first = start_rank(0, reads(a)), second = start_rank(1, reads(b));
    const Outcome loud = end_of(0, first), quiet = end_of(1, second);
    EXPECT_EQ(loud.code, 0) << loud.err;
    EXPECT_EQ(quiet.code, 0) << quiet.err;
    EXPECT_EQ(losses(loud).size(), 3u);
    EXPECT_EQ(quiet.err.find("batches of data"), std::string::npos) << quiet.err;
    return loud.err.find("batches of data") == std::string::npos ? "" : loud.err;
  };
  EXPECT_EQ(told("whole.npz", "whole.npz"), "");
  EXPECT_NE(
      told("whole.npz", "some.npz")
          .find("note: rank 1 has 3 batches of data, rank 0 5: each begins its own again when they end\n"),
      std::string::npos);
}

// As folders of machines may be that share none, or show each other's files late: ranks would train from different parameters.
TEST_F(RankPlaces, ARankThatBeginsWithOtherNumbersIsNamed) {
  const Outcome made = run(training("mlp", {"--ranks", "2", "--steps", "2", "--checkpoint", path("c"),
                                            "--checkpoint-every", "1", "--save-params", path("b.npz")}));
  ASSERT_EQ(made.code, 0) << made.err;
  ASSERT_EQ(run(training("mlp", {"--steps", "1", "--save-params", path("a.npz")})).code, 0);
  const auto expect_told = [&](const Words& a, const Words& b, const std::string& why) {
    const pid_t first = start_rank(0, a), second = start_rank(1, b);
    const Outcome told = end_of(0, first), quiet = end_of(1, second);
    EXPECT_EQ(told.code, 6) << told.err;
    EXPECT_EQ(quiet.code, 6) << quiet.err;
    EXPECT_EQ(told.err.rfind("gradloom: rank 1 has another " + why, 0), 0u) << told.err;
    EXPECT_EQ(std::count(told.err.begin(), told.err.end(), '\n'), 1) << told.err;
  };
  const auto resumed = [&](const char* step) {
    return Words{"train", "--resume", path("c") + step, "--steps", "4", "--json"};
  };
  expect_told(resumed("/step-00000002"), resumed("/step-00000001"), "checkpoint than rank 0: of step 1, ");
  const auto loaded = [&](const char* file) { return training("mlp", {"--load-params", path(file)}); };
  expect_told(loaded("a.npz"), loaded("b.npz"), "file of parameters than rank 0: its contents hash to ");
  fs::copy(path("a.npz"), path("c.npz"));
  const pid_t first = start_rank(0, loaded("a.npz")), second = start_rank(1, loaded("c.npz"));
  EXPECT_EQ(end_of(0, first).code, 0) << "where it lies may differ";
  EXPECT_EQ(end_of(1, second).code, 0);
}

// Its machine has too little for the plan.
TEST_F(RankPlaces, ARankWithoutMemoryEndsAll) {
  const Words words = training("mlp", {"--dim", "batch=200000", "--data", "synthetic"});
  const pid_t first = start_rank(0, words), second = start_rank(1, words, {}, "ulimit -v 700000");
  const Outcome told = end_of(0, first), quiet = end_of(1, second);
  EXPECT_EQ(told.code, 6) << told.err;
  EXPECT_EQ(quiet.code, 6) << quiet.err;
  EXPECT_EQ(told.err.rfind("gradloom: rank 1: ", 0), 0u) << told.err;
  EXPECT_TRUE(told.err.find("out of memory") != std::string::npos ||
              told.err.find(" free") != std::string::npos)
      << told.err;
  EXPECT_EQ(std::count(told.err.begin(), told.err.end(), '\n'), 1) << told.err;
}

// A folder that is another one for each rank, as on machines that share none.
TEST_F(RankPlaces, RankZeroGathersWhatOthersCannotWriteIntoItsFolder) {
  const Words how{"--optimizer", "adamw{lr=1e-3}", "--checkpoint-every", "1"};
  const Words apart = with(how, {"--passes", "default,zero{stage=2}", "--checkpoint", "/proc/self/cwd/c"});
  for (const char* own : {"0", "1"}) fs::create_directory(path(own));
  const pid_t second = start_rank(1, training("bert-tiny", apart), {}, "cd " + path("1")),
              first = start_rank(0, training("bert-tiny", apart), {}, "cd " + path("0"));
  const Outcome quiet = end_of(1, second), told = end_of(0, first);
  ASSERT_EQ(told.code, 0) << told.err;
  ASSERT_EQ(quiet.code, 0) << quiet.err;
  EXPECT_NE(told.err.find("note: rank 0 gathers and writes the states of all ranks: the folder "
                          "/proc/self/cwd/c is not there for each of them\n"),
            std::string::npos)
      << told.err;
  EXPECT_FALSE(fs::exists(path("1/c")));
  const Outcome whole = run(training("bert-tiny", with(how, {"--ranks", "2", "--checkpoint", path("a")})));
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(losses(told), losses(whole));
  for (const std::string step : {"/step-00000002", "/step-00000003"})
    for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
      EXPECT_EQ(read_file(path("0/c") + step + file), read_file(path("a") + step + file)) << step << file;
  const auto go_on = [&](const std::string& from) {
    return run({"train", "--resume", from, "--ranks", "2", "--steps", "5", "--json"});
  };
  const Outcome rest = go_on(path("0/c"));
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(losses(rest).size(), 2u);
  EXPECT_EQ(losses(rest), losses(go_on(path("a"))));
}

// Its shard cannot be written: the checkpoint is none, rank 0 says whose it was, and the steps go on. The limit is of a process, so that what
// fails is a write in the midst of the file, as on a full disk.
TEST_F(RankPlaces, ARankWhoseDiskIsFullLeavesNoCheckpoint) {
  const Words words = training("bert-tiny", {"--optimizer", "adamw{lr=1e-3}", "--passes", "default,zero",
                                             "--checkpoint", path("c"), "--checkpoint-every", "1"});
  const pid_t second = start_rank(1, words, {}, "trap '' XFSZ; ulimit -f 16"), first = start_rank(0, words);
  const Outcome quiet = end_of(1, second), told = end_of(0, first);
  EXPECT_EQ(told.code, 5) << told.err;
  EXPECT_EQ(quiet.code, 5) << quiet.err;
  EXPECT_EQ(losses(told).size(), 3u) << "the steps go on";
  EXPECT_NE(told.err.find("gradloom: rank 1: "), std::string::npos) << told.err;
  EXPECT_NE(told.err.find("File too large"), std::string::npos) << told.err;
  EXPECT_TRUE(fs::is_empty(path("c"))) << "nothing is left";
  const pid_t roomy = start_rank(1, words), again = start_rank(0, words);
  EXPECT_EQ(end_of(0, again).code, 0);
  EXPECT_EQ(end_of(1, roomy).code, 0);
  EXPECT_EQ(run({"train", "--resume", path("c"), "--ranks", "2", "--steps", "4", "--json"}).code, 0);
}

}  // namespace
}  // namespace gradloom
