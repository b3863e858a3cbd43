// An mpirun that does not start ranks, or is asked to end before it has: scripts in its place.
#include "tests/app/ranks_fixture.h"

namespace gradloom {
namespace {

class Mpirun : public RanksFixture {
 protected:
  void starts_with(const std::string& words) const {
    std::ofstream(path("mpirun")) << "#!/bin/sh\n" + words;
    fs::permissions(path("mpirun"), fs::perms::owner_all);
  }
  static std::string path_of_programs() {
    const char* const path = std::getenv("PATH");
    return path != nullptr ? path : "";
  }
  const std::string dashes_ = "echo ---------------------------------------------------------- >&2\n";

 private:
  EnvironmentVariable transport_{"GRADLOOM_TRANSPORT", "mpi"};
  EnvironmentVariable first_{"PATH", folder_.path() + ":" + path_of_programs()};
};

// What it says then is told, whatever its exit code is.
TEST_F(Mpirun, SaysWhyItDoesNotStartRanks) {
  starts_with(dashes_ + "echo 'There is no room for a session directory.' >&2\n" + dashes_ + "exit 1\n");
  expect_error(training("mlp", {"--ranks", "2"}), 6,
               "mpirun ended with exit code 1: There is no room for a session directory.");
  starts_with("exit 1\n");
  expect_error(training("mlp", {"--ranks", "2"}), 6, "mpirun ended with exit code 1, and nobody said why");
}

// An interrupt while it starts is an interrupt, whether the order to end meets it or ranks that do not listen yet.
TEST_F(Mpirun, IsInterruptedBeforeItsRanksListen) {
  const std::string
      there = "echo there > '" + path("there") + "'\n",
      noticed =
          "echo 'mpirun noticed that process rank 0 with PID 0 on node here exited on signal 15 "
          "(Terminated).' >&2\n";
  for (const std::string& words :
       {there + "exec sleep 60\n", "sleep 60 &\n" + there + "exec 3>&2 2> /dev/null\nwait $!\nexec 2>&3\n" +
                                       dashes_ + noticed + dashes_ + "exit 143\n"}) {
    fs::remove(path("there"));
    starts_with(words);
    const pid_t child = start(training("mlp", {"--ranks", "2"}));
    ASSERT_TRUE(wait_for("there", "there"));
    kill(child, SIGINT);
    const Outcome o = wait(child);
    EXPECT_EQ(o.code, 130) << words;
    EXPECT_EQ(o.err, "gradloom: interrupted\n") << words;
  }
}

}  // namespace
}  // namespace gradloom
