// Messages between two ranks: engine/ranks/tcp/peer_link.h, by the plugin that the program loads.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <numeric>

#include "tests/engine/ranks/tcp_worlds.h"

namespace gradloom {
namespace {

using tcp_worlds::Rank;
using Bytes = std::vector<char>;

class TcpPeerLink : public testing::Test {
 protected:
  void SetUp() override {
    if (!tcp_worlds::are_here()) GTEST_SKIP() << "built without Asio";
  }
  // Two ranks that have met, as two ends in one thread.
  void with_two(const std::function<void(Rank&, Rank&)>& f) {
    const tcp_worlds::LoopbackSocket reserved;
    std::unique_ptr<Rank> first;
    std::thread other([&] { first = std::make_unique<Rank>(0, 2, reserved.port()); });
    Rank second(1, 2, reserved.port());
    other.join();
    ASSERT_TRUE(first->met() && second.met());
    never_.clear();
    f(*first, second);
  }
  static int send(Rank& from, const Bytes& bytes, int tag) {
    int request = -1;
    EXPECT_EQ(from.plugin().send(from.self(), bytes.data(), std::ssize(bytes), other(from), tag, &request),
              0);
    return request;
  }
  static int receive(Rank& to, Bytes& bytes, int tag) {
    int request = -1;
    EXPECT_EQ(to.plugin().receive(to.self(), bytes.data(), std::ssize(bytes), other(to), tag, &request), 0);
    return request;
  }
  static int other(const Rank& rank) { return rank.number() == 0 ? 1 : 0; }
  // The code that ends the request; `meanwhile`: another rank that has to move.
  int finish(Rank& rank, int request, Rank* meanwhile = nullptr) {
    for (int i = 0; i < 200000; ++i) {
      int done = 0;
      const int code = rank.plugin().test(rank.self(), request, &done);
      if (code != 0 || done != 0) return code;
      if (meanwhile != nullptr) move(*meanwhile);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return 99;
  }
  // A request that is never done lets a rank read and write.
  void move(Rank& rank) {
    int done = 0;
    if (never_.count(rank.number()) == 0) never_[rank.number()] = receive(rank, nothing_, 77);
    EXPECT_EQ(rank.plugin().test(rank.self(), never_[rank.number()], &done), 0);
  }
  static Bytes pattern(std::size_t count, char seed) {
    Bytes bytes(count);
    std::iota(bytes.begin(), bytes.end(), seed);
    return bytes;
  }

 private:
  std::map<int, int> never_;  // requests, by rank
  Bytes nothing_ = Bytes(1);
};

TEST_F(TcpPeerLink, MessagesKeepTheirOrderPerTag) {
  with_two([&](Rank& a, Rank& b) {
    const Bytes one = pattern(10, 1), two = pattern(3'000'000, 2), three = pattern(5, 3);
    const int x = send(a, one, 1), y = send(a, two, 2), z = send(a, three, 1);
    Bytes first(10), third(5), second(3'000'000);
    const int later = receive(b, second, 2), now = receive(b, first, 1), last = receive(b, third, 1);
    EXPECT_EQ(finish(b, last, &a), 0);
    EXPECT_EQ(finish(b, now, &a), 0);
    EXPECT_EQ(finish(b, later, &a), 0);
    for (const int sent : {x, y, z}) EXPECT_EQ(finish(a, sent), 0);
    EXPECT_TRUE(first == one && second == two && third == three);
    EXPECT_GT(a.plugin().carried(a.self()), 3'000'000);
    EXPECT_EQ(a.plugin().carried(a.self()), b.plugin().carried(b.self())) << "one way alone";
  });
}

// Small ones are kept, a large one waits for its receive; both arrive.
TEST_F(TcpPeerLink, MessagesMayComeBeforeTheirReceives) {
  with_two([&](Rank& a, Rank& b) {
    const Bytes small = pattern(1000, 4), large = pattern(20'000'000, 5);
    send(a, small, 2);
    const int sent = send(a, large, 2);
    for (int i = 0; i < 50; ++i) {
      move(a);
      move(b);
    }
    int done = 0;
    EXPECT_EQ(a.plugin().test(a.self(), sent, &done), 0);
    EXPECT_EQ(done, 0) << "no memory is taken for it there";
    Bytes first(1000), second(20'000'000);
    EXPECT_EQ(finish(b, receive(b, first, 2), &a), 0);
    EXPECT_EQ(finish(b, receive(b, second, 2), &a), 0);
    EXPECT_TRUE(first == small && second == large);
  });
}

TEST_F(TcpPeerLink, WhatIsDroppedDoesNotHoldOthersUp) {
  with_two([&](Rank& a, Rank& b) {
    const Bytes large = pattern(20'000'000, 6), end = pattern(100, 7);
    send(a, large, 2);
    send(a, end, 1);
    for (int i = 0; i < 50; ++i) {
      move(a);
      move(b);
    }
    Bytes heard(100);
    const int request = receive(b, heard, 1);
    b.plugin().drop(b.self(), 2);
    EXPECT_EQ(finish(b, request, &a), 0);
    EXPECT_EQ(heard, end);
  });
}

// An exchange is given up while its message is half way: its memory is the caller's again on the side that gives up, and the other messages go on.
TEST_F(TcpPeerLink, MemoryOfWhatIsDroppedIsNotTouched) {
  for (const bool by_sender : {false, true})
    for (const bool by_receiver : {false, true})
      with_two([&](Rank& a, Rank& b) {
        SCOPED_TRACE(testing::Message() << "sender " << by_sender << " receiver " << by_receiver);
        const Bytes sent = pattern(20'000'000, 6), end = pattern(100, 7), touched(20'000'000, 'x');
        Bytes from = sent, to(20'000'000), heard(100);
        send(a, from, 2);
        const Bytes later = pattern(1000, 8);
        send(a, later, 2);
        send(a, end, 1);
        const int large = receive(b, to, 2), last = receive(b, heard, 1);
        while (b.plugin().carried(b.self()) < 1'000'000) {
          move(a);
          move(b);
        }
        ASSERT_LT(b.plugin().carried(b.self()), 20'000'000);
        if (by_sender) {
          a.plugin().drop(a.self(), 2);
          from = touched;
        }
        if (by_receiver) {
          b.plugin().drop(b.self(), 2);
          to = touched;
        }
        EXPECT_EQ(finish(b, last, &a), 0);
        EXPECT_EQ(heard, end);
        if (!by_receiver) {
          EXPECT_EQ(finish(b, large, &a), 0);
        }
        EXPECT_TRUE(to == (by_receiver ? touched : sent));
      });
}

TEST_F(TcpPeerLink, WhatWasSentBeforeTheEndArrives) {
  const tcp_worlds::LoopbackSocket reserved;
  const Bytes last = pattern(50'000, 8);
  auto second = std::unique_ptr<Rank>();
  std::thread other([&] { second = std::make_unique<Rank>(1, 2, reserved.port()); });
  auto first = std::make_unique<Rank>(0, 2, reserved.port());
  other.join();
  ASSERT_TRUE(first->met() && second->met());
  EXPECT_EQ(finish(*first, send(*first, last, 1)), 0);
  EXPECT_EQ(first->plugin().leave(first->self()), 0);
  first.reset();
  Bytes heard(50'000), more(1);
  EXPECT_EQ(finish(*second, receive(*second, heard, 1)), 0);
  EXPECT_EQ(heard, last);
  EXPECT_EQ(finish(*second, receive(*second, more, 1)), GRADLOOM_TRANSPORT_GONE);
  EXPECT_EQ(finish(*second, send(*second, more, 1)), GRADLOOM_TRANSPORT_GONE);
}

TEST_F(TcpPeerLink, AnotherLengthIsAnErrorOnBothSides) {
  for (const bool early : {false, true})
    with_two([&](Rank& a, Rank& b) {
      const Bytes ten = pattern(10, 9);
      Bytes eleven(11);
      send(a, ten, 2);
      if (early)
        for (int i = 0; i < 50; ++i) {
          move(a);
          move(b);
        }
      const int code = finish(b, receive(b, eleven, 2), &a);
      EXPECT_EQ(code, 1);
      EXPECT_STREQ(b.plugin().message(b.self(), code),
                   "rank 0 has sent a message of 10 bytes, where 11 were to come");
      EXPECT_EQ(finish(a, receive(a, eleven, 2)), GRADLOOM_TRANSPORT_GONE);
    });
}

}  // namespace
}  // namespace gradloom
