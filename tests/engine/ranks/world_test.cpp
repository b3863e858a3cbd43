#include "engine/ranks/world.h"

#include <gtest/gtest.h>

#include <array>
#include <latch>
#include <random>

#include "tests/engine/ranks/tcp_worlds.h"
#include "tests/engine/ranks/thread_transport.h"

namespace gradloom {
namespace {

// The ranks are threads of this process, which exchange over queues or over sockets.
using OnRanks = void (*)(int size, const std::function<void(World&)>& f);
OnRanks on_ranks = nullptr;

class Worlds : public testing::TestWithParam<OnRanks> {
 protected:
  void SetUp() override {
    if (GetParam() == tcp_worlds::on_ranks && !tcp_worlds::are_here()) GTEST_SKIP() << "built without Asio";
    on_ranks = GetParam();
  }
};
INSTANTIATE_TEST_SUITE_P(Over, Worlds, testing::Values(thread_transport::on_ranks, tcp_worlds::on_ranks),
                         [](const auto& over) {
                           return over.param == tcp_worlds::on_ranks ? "Tcp" : "Threads";
                         });

// Rank r's numbers of a tensor.
Tensor numbers(DType type, std::int64_t count, int rank, int tensor) {
  std::mt19937 random(static_cast<unsigned>(100 * rank + tensor));
  std::uniform_real_distribution<double> uniform(-3, 3);
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(uniform(random));
  return Tensor::from_f64(type, {count}, values);
}

// As one rank adds micro-batches up.
Tensor mean_in_order(DType type, std::int64_t count, int ranks, int tensor) {
  const bool half = type == DType::f16 || type == DType::bf16;
  const DType wide = half ? DType::f32 : type;
  std::vector<double> sums(static_cast<std::size_t>(count), 0.0);
  for (int rank = 0; rank < ranks; ++rank) {
    const Tensor x = numbers(type, count, rank, tensor);
    for (std::int64_t i = 0; i < count; ++i) {
      double& sum = sums[static_cast<std::size_t>(i)];
      if (wide == DType::f64)
        sum += x.at(i) / ranks;
      else
        sum = static_cast<double>(static_cast<float>(sum) +
                                  static_cast<float>(x.at(i)) / static_cast<float>(ranks));
    }
  }
  return Tensor::from_f64(type, {count}, sums);
}

void expect_means(DType type, int ranks, const std::vector<std::int64_t>& counts, bool in_place) {
  std::vector<std::vector<Tensor>> results(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](World& world) {
    std::vector<Tensor> from, &to = results[static_cast<std::size_t>(world.rank())];
    std::vector<World::Piece> pieces;
    std::int64_t total = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      from.push_back(numbers(type, counts[i], world.rank(), static_cast<int>(i)));
      to.push_back(in_place ? from.back() : Tensor(type, {counts[i]}));
      void* const place = to.back().mutable_data();
      pieces.push_back({in_place ? place : from.back().data(), place, counts[i]});
      total += counts[i];
    }
    std::vector<char> workspace(
        static_cast<std::size_t>(World::mean_workspace_bytes(type, total, world.size())));
    const Status status = world.mean(type, pieces, workspace.data());
    EXPECT_TRUE(status.ok()) << status.error().message;
  });
  for (const std::vector<Tensor>& of_rank : results)
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const Tensor want = mean_in_order(type, counts[i], ranks, static_cast<int>(i));
      EXPECT_EQ(std::memcmp(of_rank[i].data(), want.data(), want.bytes()), 0)
          << dtype_name(type) << " of " << ranks << " ranks, tensor " << i;
    }
}

TEST_P(Worlds, MeansHaveTheBitsOfASumInOrder) {
  const std::vector<std::vector<std::int64_t>> all{{1}, {0, 3, 0}, {70000}, {5, 4096, 1, 9001}, {2048, 2048}};
  for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const int ranks : {2, 3, 5})
      for (const auto& counts : all)
        for (const bool in_place : {false, true}) expect_means(type, ranks, counts, in_place);
}

// Of neighbours, and of those at the same place among neighbours: in their order, apart from the others, at the same time.
TEST_P(Worlds, GroupsExchangeApartFromEachOther) {
  for (const std::int64_t n : {std::int64_t{7}, std::int64_t{30000}})
    on_ranks(6, [&](World& world) {
      const int rank = world.rank();
      const auto members = [&](RankGroup group) {
        std::vector<int> ranks;
        const int block = group.ranks * group.stride, first = rank / block * block + rank % group.stride;
        for (int i = 0; i < group.ranks; ++i) ranks.push_back(first + i * group.stride);
        return ranks;
      };
      const auto expect = [&](const Tensor& found, RankGroup group, int tensor, bool mean) {
        std::vector<float> sums(static_cast<std::size_t>(n), 0.0F);
        for (const int member : members(group)) {
          const Tensor x = numbers(DType::f32, n, member, tensor);
          const float divisor = mean ? static_cast<float>(group.ranks) : 1.0F;
          for (std::int64_t i = 0; i < n; ++i)
            sums[static_cast<std::size_t>(i)] += x.as<float>()[i] / divisor;
        }
        EXPECT_EQ(std::memcmp(found.data(), sums.data(), found.bytes()), 0)
            << group.ranks << " " << group.stride;
      };
      for (const RankGroup group : {RankGroup{2, 1}, RankGroup{3, 1}, RankGroup{2, 3}, RankGroup{3, 2}}) {
        std::vector<char> workspace(
            static_cast<std::size_t>(World::mean_workspace_bytes(DType::f32, n, group.ranks)));
        Tensor x = numbers(DType::f32, n, rank, 0), y = numbers(DType::f32, n, rank, 1),
               z = numbers(DType::f32, n, rank, 2);
        world.begin_mean(DType::f32, {{x.data(), x.mutable_data(), n}}, workspace.data(), group);
        EXPECT_TRUE(world.wait_for(workspace.data()).ok());
        const std::vector<World::Piece> of_y{{y.data(), y.mutable_data(), n}},
            of_z{{z.data(), z.mutable_data(), n}};
        EXPECT_TRUE(world.sum(DType::f32, of_y, workspace.data(), group).ok());
        EXPECT_TRUE(world.mean(DType::f32, of_z, workspace.data(), group).ok());
        expect(x, group, 0, true);
        expect(y, group, 1, false);
        expect(z, group, 2, true);
      }
      const auto all = world.exchange(rank);
      ASSERT_TRUE(all.ok());
      EXPECT_EQ(*all, (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5})) << "then all are meant again";
      EXPECT_TRUE(world.leave(Status()).ok());
    });
}

TEST_P(Worlds, MeansAreMadeInTheBackgroundInTheirOrder) {
  on_ranks(3, [](World& world) {
    constexpr std::int64_t n = 30000;
    std::vector<Tensor> x, workspaces;
    for (int i = 0; i < 4; ++i) {
      x.push_back(numbers(DType::f32, n, world.rank(), i));
      workspaces.emplace_back(DType::u8, Shape{World::mean_workspace_bytes(DType::f32, n, world.size())});
    }
    for (std::size_t i = 0; i < 4; ++i)
      world.begin_mean(DType::f32, {{x[i].data(), x[i].mutable_data(), n}}, workspaces[i].mutable_data());
    EXPECT_TRUE(world.wait_for(workspaces[1].data()).ok());
    EXPECT_TRUE(world.exchange(1).ok()) << "after all that was begun";
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(world.wait_for(workspaces[i].data()).ok());
      const Tensor want = mean_in_order(DType::f32, n, 3, static_cast<int>(i));
      EXPECT_EQ(std::memcmp(x[i].data(), want.data(), want.bytes()), 0);
    }
    EXPECT_TRUE(world.leave(Status()).ok());
  });
}

// Of each tensor at its owner; what others have of it stays as it is.
void expect_reduced(DType type, int ranks, const std::vector<std::int64_t>& counts,
                    const std::vector<int>& owners, bool background) {
  std::vector<std::vector<Tensor>> results(static_cast<std::size_t>(ranks));
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  on_ranks(ranks, [&](World& world) {
    std::vector<Tensor> from, &to = results[static_cast<std::size_t>(world.rank())];
    std::vector<World::Piece> pieces;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      from.push_back(numbers(type, counts[i], world.rank(), static_cast<int>(i)));
      to.emplace_back(type, Shape{counts[i]});
      const bool own = owners[i] == world.rank();
      pieces.push_back({from.back().data(), own ? to.back().mutable_data() : nullptr, counts[i]});
    }
    const std::int64_t bytes = World::reduce_workspace_bytes(type, counts, owners, world.rank(), ranks);
    EXPECT_LE(bytes, World::mean_workspace_bytes(type, total, ranks));
    std::vector<char> workspace(static_cast<std::size_t>(bytes) + 1, 77);
    const std::int64_t sent_before = world.sent_bytes();
    if (background) {
      world.begin_reduce(type, pieces, owners, workspace.data());
      EXPECT_TRUE(world.wait_for(workspace.data()).ok());
    } else {
      EXPECT_TRUE(world.reduce(type, pieces, owners, workspace.data()).ok());
    }
    EXPECT_EQ(workspace.back(), 77);
    std::int64_t others = 0;
    for (std::size_t i = 0; i < counts.size(); ++i)
      if (owners[i] != world.rank()) others += counts[i] * static_cast<std::int64_t>(dtype_bytes(type));
    EXPECT_EQ(world.sent_bytes() - sent_before, others) << "each goes to its owner, once";
  });
  for (int rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const Tensor want = rank == owners[i] ? mean_in_order(type, counts[i], ranks, static_cast<int>(i))
                                            : Tensor(type, {counts[i]});
      EXPECT_EQ(std::memcmp(results[static_cast<std::size_t>(rank)][i].data(), want.data(), want.bytes()), 0)
          << dtype_name(type) << " of " << ranks << " ranks, tensor " << i << " at rank " << rank;
    }
}

TEST_P(Worlds, GradientsAtTheirOwnersHaveTheBitsOfMeans) {
  for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const int ranks : {2, 3, 5})
      for (const bool background : {false, true}) {
        expect_reduced(type, ranks, {1}, {1}, background);
        expect_reduced(type, ranks, {0, 3, 0}, {0, 1, 0}, background);
        expect_reduced(type, ranks, {70000}, {ranks - 1}, background);
        expect_reduced(type, ranks, {5, 40960, 1, 9001}, {1, 0, 0, ranks - 1}, background);
      }
}

// Blocks of any bytes, of which the second exchange has one; what comes in place waits for both.
TEST_P(Worlds, OwnersGiveToAllInTheBackground) {
  for (const int ranks : {2, 3, 5})
    on_ranks(ranks, [&](World& world) {
      const std::vector<int> owners{ranks - 1, 0, 1, 0};
      const std::vector<std::int64_t> counts{70001, 1, 0, 4097};
      std::vector<Tensor> x;
      std::vector<World::Block> blocks;
      std::int64_t own_bytes = 0;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        x.push_back(numbers(DType::bf16, counts[i], world.rank(), static_cast<int>(i)));
        blocks.push_back({x.back().mutable_data(), static_cast<std::int64_t>(x.back().bytes()), owners[i]});
        if (owners[i] == world.rank()) own_bytes += blocks.back().bytes;
      }
      const std::int64_t sent_before = world.sent_bytes();
      char marks[2];
      world.begin_share({blocks.begin(), blocks.begin() + 3}, &marks[0]);
      world.begin_share({blocks.begin() + 3, blocks.end()}, &marks[1]);
      EXPECT_TRUE(world.wait_for(&marks[0]).ok());
      const auto expect_theirs = [&](std::size_t i) {
        const Tensor want = numbers(DType::bf16, counts[i], owners[i], static_cast<int>(i));
        EXPECT_EQ(std::memcmp(x[i].data(), want.data(), want.bytes()), 0) << i << " at " << world.rank();
      };
      for (const std::size_t i : {0, 1, 2}) expect_theirs(i);
      const auto all = world.exchange(world.rank());
      EXPECT_TRUE(all.ok());
      expect_theirs(3);
      EXPECT_TRUE(world.wait_for(&marks[1]).ok());
      const std::int64_t told = static_cast<std::int64_t>(sizeof(std::int64_t)) * (ranks - 1);
      EXPECT_EQ(world.sent_bytes() - sent_before, own_bytes * (ranks - 1) + told);
    });
}

// Nobody waits for ever for what a rank that ended had to give.
TEST_P(Worlds, ARankThatEndsLeavesWhatOthersWaitFor) {
  on_ranks(2, [](World& world) {
    std::vector<float> x(100000);
    char mark = 0;
    if (world.rank() == 0) {
      world.begin_share({{x.data(), 400000, 1}}, &mark);
      const Status waited = world.wait_for(&mark);
      EXPECT_FALSE(waited.ok());
      EXPECT_NE(waited.error().message.find("no space"), std::string::npos) << waited.error().message;
      EXPECT_FALSE(world.leave(waited).ok());
    } else {
      EXPECT_FALSE(world.leave(Error{Errc::io, "no space"}).ok());
    }
  });
}

TEST_P(Worlds, ARankThatFailsLeavesWhatItBegan) {
  on_ranks(2, [](World& world) {
    std::vector<float> x(100000), workspace(100000);
    if (world.rank() == 0) world.begin_mean(DType::f32, {{x.data(), x.data(), 100000}}, workspace.data());
    const Status end = world.leave(Error{Errc::io, "no space"});
    EXPECT_EQ(end.error().message, "no space");
  });
}

TEST_P(Worlds, ExchangesNumbers) {
  on_ranks(4, [](World& world) {
    const auto all = world.exchange(10 * world.rank());
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(*all, (std::vector<std::int64_t>{0, 10, 20, 30}));
  });
}

// The paper's recursion, in float64.
std::vector<double> adasum_of(const std::vector<std::vector<double>>& ranks) {
  if (ranks.size() == 1) return ranks[0];
  const auto middle = ranks.begin() + static_cast<std::ptrdiff_t>(ranks.size() / 2);
  const std::vector<double> a = adasum_of({ranks.begin(), middle}), b = adasum_of({middle, ranks.end()});
  double aa = 0, ab = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    aa += a[i] * a[i];
    ab += a[i] * b[i];
    bb += b[i] * b[i];
  }
  std::vector<double> sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    sum[i] = (aa > 0 ? 1 - ab / (2 * aa) : 1) * a[i] + (bb > 0 ? 1 - ab / (2 * bb) : 1) * b[i];
  return sum;
}

void expect_adasum(DType type, int ranks, bool in_place, double tolerance) {
  const std::vector<std::int64_t> counts{1, 5000, 17};
  std::vector<std::vector<Tensor>> results(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](World& world) {
    std::vector<Tensor> from, &to = results[static_cast<std::size_t>(world.rank())];
    std::vector<World::Piece> pieces;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      from.push_back(
          numbers(type, counts[i], i == 2 && world.rank() == 1 ? 0 : world.rank(), static_cast<int>(i)));
      to.push_back(in_place ? from.back() : Tensor(type, {counts[i]}));
      void* const place = to.back().mutable_data();
      pieces.push_back({in_place ? place : from.back().data(), place, counts[i]});
    }
    std::vector<double> workspace(6000);
    EXPECT_TRUE(world.adasum(type, pieces, workspace.data()).ok());
  });
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::vector<std::vector<double>> values;
    for (int rank = 0; rank < ranks; ++rank) {
      const Tensor x = numbers(type, counts[i], i == 2 && rank == 1 ? 0 : rank, static_cast<int>(i));
      values.emplace_back();
      for (std::int64_t k = 0; k < x.count(); ++k) values.back().push_back(x.at(k));
    }
    const std::vector<double> want = adasum_of(values);
    for (const std::vector<Tensor>& of_rank : results) {
      EXPECT_EQ(std::memcmp(of_rank[i].data(), results[0][i].data(), of_rank[i].bytes()), 0)
          << "the same on all ranks";
      for (std::size_t k = 0; k < want.size(); ++k)
        ASSERT_NEAR(of_rank[i].at(static_cast<std::int64_t>(k)), want[k], tolerance)
            << dtype_name(type) << ", " << ranks << " ranks";
    }
  }
}

TEST_P(Worlds, AdasumIsThatOfThePaper) {
  for (const int ranks : {1, 2, 4}) {
    expect_adasum(DType::f64, ranks, true, 1e-12);
    expect_adasum(DType::f32, ranks, false, 1e-5);
    expect_adasum(DType::bf16, ranks, true, 0.1);
  }
  on_ranks(2, [](World& world) {  // equal gradients, and those of a rank that has none
    std::vector<double> same{1, -2, 3}, one_alone(2, world.rank() == 0 ? 5.0 : 0.0), workspace(5);
    const std::vector<World::Piece> pieces{{same.data(), same.data(), 3},
                                           {one_alone.data(), one_alone.data(), 2}};
    EXPECT_TRUE(world.adasum(DType::f64, pieces, workspace.data()).ok());
    EXPECT_EQ(same, (std::vector<double>{1, -2, 3})) << "the mean";
    EXPECT_EQ(one_alone, (std::vector<double>{5, 5})) << "the sum";
  });
}

TEST_P(Worlds, SharesWhatEachRankHas) {
  on_ranks(3, [](World& world) {
    std::vector<std::vector<float>> x;
    std::vector<World::Block> blocks;
    for (const std::int64_t count : {5, 30000, 0, 7}) {
      x.emplace_back(static_cast<std::size_t>(count),
                     static_cast<float>(10 * world.rank()) + static_cast<float>(count));
      blocks.push_back({x.back().data(), 4 * count, static_cast<int>(x.size()) % 3});
    }
    EXPECT_TRUE(world.share(blocks).ok());
    for (std::size_t i = 0; i < x.size(); ++i)
      for (const float value : x[i])
        ASSERT_EQ(value, static_cast<float>(10 * blocks[i].owner) + static_cast<float>(x[i].size()));
  });
}

TEST_P(Worlds, GathersBytesOfAnyLengthAtTheFirstRank) {
  on_ranks(4, [](World& world) {
    const World::Bytes mine(static_cast<std::size_t>(3 * world.rank()), std::byte(world.rank()));
    const auto all = world.gather(mine);
    ASSERT_TRUE(all.ok());
    if (world.rank() > 0) {
      EXPECT_TRUE(all->empty());
      return;
    }
    ASSERT_EQ(all->size(), 4u);
    for (std::size_t rank = 0; rank < 4; ++rank)
      EXPECT_EQ(all->at(rank), World::Bytes(3 * rank, std::byte(rank)));
  });
}

TEST_P(Worlds, ClocksOfOtherMachinesAreAsked) {
  on_ranks(3, [](World& world) {
    const auto clocks = world.clocks(world.rank() == 2 ? "there" : "here");
    ASSERT_TRUE(clocks.ok());
    if (world.rank() > 0) {
      EXPECT_TRUE(clocks->empty());
      return;
    }
    ASSERT_EQ(clocks->size(), 3u);
    for (const std::size_t same : {0, 1}) {
      EXPECT_EQ(clocks->at(same).offset_ns, 0);
      EXPECT_EQ(clocks->at(same).error_ns, 0);
    }
    const World::Clock there = clocks->at(2);
    EXPECT_GT(there.error_ns, 0) << "it was asked";
    EXPECT_LE(std::abs(there.offset_ns), there.error_ns + 1) << "here, too, the clock is the same";
  });
}

TEST_P(Worlds, MeansAreRecordedWhereThatIsAskedFor) {
  on_ranks(2, [](World& world) {
    std::vector<float> x(100000), workspace(100000);
    const World::Piece all{x.data(), x.data(), 100000}, few{x.data(), x.data(), 10};
    EXPECT_TRUE(world.mean(DType::f32, {&few, 1}, workspace.data()).ok());
    EXPECT_TRUE(world.take_recorded().empty());
    world.record(true);
    world.begin_mean(DType::f32, {all}, workspace.data());
    EXPECT_TRUE(world.wait_for(workspace.data()).ok());
    EXPECT_TRUE(world.mean(DType::f32, {&few, 1}, workspace.data()).ok());
    const auto made = world.take_recorded();
    ASSERT_EQ(made.size(), 2u);
    EXPECT_TRUE(made[0].background);
    EXPECT_EQ(made[0].sent_bytes, 400000) << "half of the elements, and half of the sums";
    EXPECT_FALSE(made[1].background);
    EXPECT_EQ(made[1].sent_bytes, 40);
    EXPECT_LE(made[0].start_ns, made[0].end_ns);
    EXPECT_LE(made[0].end_ns, made[1].start_ns);
    EXPECT_TRUE(world.take_recorded().empty());
  });
}

Status wait_for_a_mean(World& world) {
  std::vector<float> x(100000), workspace(100000 * 3);
  const World::Piece piece{x.data(), x.data(), 100000};
  return world.mean(DType::f32, {&piece, 1}, workspace.data());
}

TEST_P(Worlds, ARankThatEndsIsHeardByThoseThatWait) {
  std::array<Status, 3> ends;
  on_ranks(3, [&](World& world) {
    const Status own = world.rank() == 1 ? Status(Error{Errc::bad_input, "its batch cannot be read"})
                                         : wait_for_a_mean(world);
    EXPECT_FALSE(own.ok());
    if (world.rank() != 1) {
      EXPECT_EQ(own.error().message, "rank 1: its batch cannot be read");
      EXPECT_FALSE(wait_for_a_mean(world).ok()) << "no later exchange waits";
    }
    ends[static_cast<std::size_t>(world.rank())] = world.leave(own);
  });
  for (const Status& end : ends) {
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.error().code, Errc::bad_input);
    EXPECT_EQ(end.error().message, "rank 1: its batch cannot be read");
  }
}

TEST(TcpWorld, ARankWhoseProcessEndsIsNamedAtOnce) {
  if (!tcp_worlds::are_here()) GTEST_SKIP() << "built without Asio";
  tcp_worlds::on_ranks(3, [](World& world) {
    if (world.rank() == 2) return;  // as the system ends its connections
    const Status waited = wait_for_a_mean(world);
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, Errc::device);
    EXPECT_EQ(waited.error().message, "rank 2 has ended without a word");
    const Status end = world.leave(waited);
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.error().message, "rank 2 has ended without a word");
  });
}

TEST_P(Worlds, ASilentRankIsNamed) {
  std::latch over(2);
  on_ranks(3, [&](World& world) {
    world.set_limit(std::chrono::milliseconds(300));
    if (world.rank() == 2) return over.wait();
    const Status waited = wait_for_a_mean(world);
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, Errc::device);
    EXPECT_EQ(waited.error().message, "rank 2 said nothing for 300 ms");
    over.arrive_and_wait();
  });
}

TEST_P(Worlds, AStopEndsTheWaiting) {
  std::stop_source stop;
  std::latch over(1);
  on_ranks(2, [&](World& world) {
    world.set_stop(stop.get_token(), std::chrono::milliseconds(200));
    if (world.rank() == 1) return over.wait();
    stop.request_stop();
    const Status waited = wait_for_a_mean(world);
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, Errc::interrupted);
    over.count_down();
  });
}

TEST_P(Worlds, AllEndAlike) {
  on_ranks(3, [&](World& world) {
    const Status ended = world.leave(Error{Errc::numeric, "the loss is NaN at step 3"});
    ASSERT_FALSE(ended.ok());
    EXPECT_EQ(ended.error().message, "the loss is NaN at step 3") << "no rank is named where all have it";
  });
  on_ranks(3, [&](World& world) { EXPECT_TRUE(world.leave(Status()).ok()); });
}

TEST_P(Worlds, MessagesOfAnotherLengthAreAnError) {
  on_ranks(2, [&](World& world) {
    world.set_limit(std::chrono::milliseconds(2000));
    std::vector<float> x(200, 1.0f), workspace(200);
    const World::Piece piece{x.data(), x.data(), world.rank() == 0 ? 100 : 200};
    EXPECT_FALSE(world.mean(DType::f32, {&piece, 1}, workspace.data()).ok());
  });
}

}  // namespace
}  // namespace gradloom
