// Who meets, and who is sent away: engine/ranks/tcp/meeting.h, by the plugin that the program loads.
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cstring>
#include <ctime>
#include <memory>

#include "engine/ranks/tcp/greeting.h"
#include "tests/engine/ranks/tcp_worlds.h"

namespace gradloom {
namespace {

using tcp_worlds::LoopbackSocket;
using tcp_worlds::Rank;

class TcpMeeting : public testing::Test {
 protected:
  void SetUp() override {
    if (!tcp_worlds::are_here()) GTEST_SKIP() << "built without Asio";
  }
  int port() const { return reserved_.port(); }
  // Once somebody listens there.
  std::unique_ptr<LoopbackSocket> stranger() const {
    for (int i = 0; i < 2000; ++i) {
      auto one = std::make_unique<LoopbackSocket>(port());
      if (one->connected()) return one;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return nullptr;
  }
  // What comes until the other side closes.
  static std::string answer(const LoopbackSocket& socket) {
    std::string all;
    std::array<char, 4096> bytes{};
    pollfd waits{socket.handle(), POLLIN, 0};
    for (ssize_t count = 1; count > 0 && poll(&waits, 1, 20000) > 0;) {
      count = read(socket.handle(), bytes.data(), bytes.size());
      if (count > 0) all.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return all;
  }
  static void say(const LoopbackSocket& socket, const void* bytes, std::size_t count) {
    EXPECT_EQ(send(socket.handle(), bytes, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
  }
  static tcp::Greeting greeting(int rank, int world, const char* world_id) {
    tcp::Greeting one;
    std::memcpy(one.magic.data(), "gradloom", 8);
    one.version = 1;
    one.rank = rank;
    one.world = world;
    std::strncpy(one.world_id.data(), world_id, one.world_id.size() - 1);
    return one;
  }

 private:
  LoopbackSocket reserved_;
};

TEST_F(TcpMeeting, StrangersDoNoHarm) {
  std::array<std::int64_t, 2> heard{};
  std::thread first([&] {
    Rank own(0, 2, port());
    ASSERT_TRUE(own.met()) << own.message();
    const auto all = own.world()->exchange(7);
    ASSERT_TRUE(all.ok()) << all.error().message;
    heard[0] = all->at(1);
  });
  const auto silent = stranger(), gone = stranger();
  ASSERT_TRUE(silent && gone);
  {
    const std::string garbage(5000, '\xa5'), request = "GET / HTTP/1.1\r\n\r\n";
    const auto one = stranger(), two = stranger();
    say(*one, garbage.data(), 88);
    EXPECT_EQ(answer(*one), "") << "who does not speak the protocol hears nothing";
    say(*two, request.data(), request.size());
  }
  const auto refused = [&](const tcp::Greeting& said) {
    const auto one = stranger();
    say(*one, &said, sizeof said);
    const std::string told = answer(*one);
    EXPECT_EQ(told.size(), sizeof(tcp::Answer));
    return told.size() < 12 ? "" : std::string(told.c_str() + 12);
  };
  EXPECT_EQ(refused(greeting(1, 2, "another")), "another training");
  EXPECT_EQ(refused(greeting(1, 3, "tests")), "a training of 2 ranks");
  for (const int rank : {0, 2, -1})
    EXPECT_EQ(refused(greeting(rank, 2, "tests")),
              "a training that does not wait for rank " + std::to_string(rank) + " there");
  tcp::Greeting later = greeting(1, 2, "tests");
  later.version = 2;
  EXPECT_EQ(refused(later), "another version of Gradloom");
  Rank own(1, 2, port());
  ASSERT_TRUE(own.met()) << own.message();
  const auto all = own.world()->exchange(9);
  ASSERT_TRUE(all.ok()) << all.error().message;
  heard[1] = all->at(0);
  EXPECT_FALSE(LoopbackSocket(port()).connected()) << "once all are there, nobody listens";
  first.join();
  EXPECT_EQ(heard, (std::array<std::int64_t, 2>{9, 7}));
}

// Where the system has no descriptor for who connects, rank 0 waits for one, without keeping a processor busy.
TEST_F(TcpMeeting, WhoCannotBeAcceptedYetWaits) {
  bool met = false;
  std::thread first([&] {
    Rank own(0, 2, port());
    met = own.met();
  });
  (void)stranger();  // somebody listens
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int last = dup(0);  // the lowest that is free
  ASSERT_GE(last, 0);
  close(last);
  const rlimit narrow{static_cast<rlim_t>(last) + 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &narrow), 0);
  clockid_t clock = 0;
  ASSERT_EQ(pthread_getcpuclockid(first.native_handle(), &clock), 0);
  const auto processor_ns = [&] {
    timespec time{};
    clock_gettime(clock, &time);
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
  };
  {
    const auto one = stranger();  // it has the last one
    const auto start = std::chrono::steady_clock::now();
    const std::int64_t busy_before = processor_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    const std::int64_t busy = processor_ns() - busy_before,
                       all = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    EXPECT_TRUE(one != nullptr);
    EXPECT_LT(busy, all / 4) << "of a processor's time";
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  Rank own(1, 2, port());
  EXPECT_TRUE(own.met()) << own.message();
  first.join();
  EXPECT_TRUE(met);
}

TEST_F(TcpMeeting, OneRankIsThereOnce) {
  std::thread first([&] {
    Rank own(0, 3, port(), "tests", std::chrono::seconds(1));
    EXPECT_FALSE(own.met()) << "rank 2 does not come";
  });
  const auto one = stranger();
  const tcp::Greeting said = greeting(1, 3, "tests");
  say(*one, &said, sizeof said);
  Rank another(1, 3, port());
  EXPECT_FALSE(another.met());
  EXPECT_NE(another.message().find("belongs to a training that has a rank 1 already"), std::string::npos)
      << another.message();
  first.join();
}

TEST_F(TcpMeeting, WhoIsMissingIsNamedByAll) {
  const auto limit = std::chrono::milliseconds(400);
  std::string second;
  std::thread other([&] {
    Rank own(1, 3, port(), "tests", std::chrono::seconds(20));
    EXPECT_FALSE(own.met());
    second = own.message();
  });
  Rank own(0, 3, port(), "tests", limit);
  EXPECT_FALSE(own.met());
  const std::string expected =
      "rank 2 did not come to 127.0.0.1 port " + std::to_string(port()) + " within 0.4 s";
  EXPECT_EQ(own.message(), expected);
  other.join();
  EXPECT_EQ(second, expected);
}

TEST_F(TcpMeeting, ARankWithoutAFirstOneSaysWhereItLooked) {
  Rank own(1, 2, port(), "tests", std::chrono::milliseconds(200));
  EXPECT_FALSE(own.met());
  EXPECT_EQ(own.message(), "rank 0 was not met at 127.0.0.1:" + std::to_string(port()) +
                               " (Connection refused) within 0.2 s");
}

TEST_F(TcpMeeting, ATakenPortIsNamed) {
  LoopbackSocket taken;
  ASSERT_EQ(listen(taken.handle(), 1), 0);
  Rank own(0, 2, taken.port());
  EXPECT_FALSE(own.met());
  EXPECT_EQ(own.message(), "rank 0 cannot listen at 127.0.0.1 port " + std::to_string(taken.port()) +
                               ": Address already in use (GRADLOOM_PORT names another port)");
  Rank other(1, 2, taken.port(), "tests", std::chrono::milliseconds(300));  // which answers nothing
  EXPECT_FALSE(other.met());
  EXPECT_NE(other.message().find("no rank of Gradloom answers there, or it waits for others"),
            std::string::npos)
      << other.message();
}

TEST_F(TcpMeeting, RanksOfAnotherTrainingAreToldSo) {
  std::thread first([&] {
    Rank own(0, 2, port());
    EXPECT_TRUE(own.met()) << own.message();
  });
  Rank other(1, 2, port(), "of another");
  EXPECT_FALSE(other.met());
  EXPECT_EQ(other.message(),
            "rank 0 at 127.0.0.1:" + std::to_string(port()) + " belongs to another training");
  Rank own(1, 2, port());
  EXPECT_TRUE(own.met()) << own.message();
  first.join();
}

TEST_F(TcpMeeting, AStopEndsIt) {
  const auto stopped = [](void*) { return 1; };
  const GradloomMeeting meeting{0, 2, "127.0.0.1", port(), 1, "tests", 20'000'000'000, stopped, nullptr};
  const GradloomTransport& plugin = *tcp_worlds::transport().value();
  void* self = nullptr;
  int rank = 0, world = 0;
  EXPECT_EQ(plugin.join(&meeting, &self, &rank, &world), GRADLOOM_TRANSPORT_STOPPED);
  plugin.close(self);
}

}  // namespace
}  // namespace gradloom
