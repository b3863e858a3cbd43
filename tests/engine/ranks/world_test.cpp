#include "engine/ranks/world.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "tests/engine/ranks/thread_transport.h"

namespace gradloom {
namespace {

using thread_transport::on_ranks;

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

TEST(World, MeansHaveTheBitsOfASumInOrder) {
  const std::vector<std::vector<std::int64_t>> all{{1}, {0, 3, 0}, {70000}, {5, 4096, 1, 9001}, {2048, 2048}};
  for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const int ranks : {2, 3, 5})
      for (const auto& counts : all)
        for (const bool in_place : {false, true}) expect_means(type, ranks, counts, in_place);
}

TEST(World, MeansAreMadeInTheBackgroundInTheirOrder) {
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

TEST(World, ARankThatFailsLeavesWhatItBegan) {
  on_ranks(2, [](World& world) {
    std::vector<float> x(100000), workspace(100000);
    if (world.rank() == 0) world.begin_mean(DType::f32, {{x.data(), x.data(), 100000}}, workspace.data());
    const Status end = world.leave(Error{Errc::io, "no space"});
    EXPECT_EQ(end.error().message, "no space");
  });
}

TEST(World, ExchangesNumbers) {
  on_ranks(4, [](World& world) {
    const auto all = world.exchange(10 * world.rank());
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(*all, (std::vector<std::int64_t>{0, 10, 20, 30}));
  });
}

Status wait_for_a_mean(World& world) {
  std::vector<float> x(100000), workspace(100000 * 3);
  const World::Piece piece{x.data(), x.data(), 100000};
  return world.mean(DType::f32, {&piece, 1}, workspace.data());
}

TEST(World, ARankThatEndsIsHeardByThoseThatWait) {
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

TEST(World, ASilentRankIsNamed) {
  on_ranks(3, [&](World& world) {
    world.set_limit(std::chrono::milliseconds(300));
    if (world.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(900));
      return;
    }
    const Status waited = wait_for_a_mean(world);
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, Errc::device);
    EXPECT_EQ(waited.error().message, "rank 2 said nothing for 300 ms");
  });
}

TEST(World, AStopEndsTheWaiting) {
  std::stop_source stop;
  on_ranks(2, [&](World& world) {
    world.set_stop(stop.get_token(), std::chrono::milliseconds(200));
    if (world.rank() == 1) return;
    stop.request_stop();
    const Status waited = wait_for_a_mean(world);
    ASSERT_FALSE(waited.ok());
    EXPECT_EQ(waited.error().code, Errc::interrupted);
  });
}

TEST(World, AllEndAlike) {
  on_ranks(3, [&](World& world) {
    const Status ended = world.leave(Error{Errc::numeric, "the loss is NaN at step 3"});
    ASSERT_FALSE(ended.ok());
    EXPECT_EQ(ended.error().message, "the loss is NaN at step 3") << "no rank is named where all have it";
  });
  on_ranks(3, [&](World& world) { EXPECT_TRUE(world.leave(Status()).ok()); });
}

TEST(World, MessagesOfAnotherLengthAreAnError) {
  on_ranks(2, [&](World& world) {
    world.set_limit(std::chrono::milliseconds(2000));
    std::vector<float> x(200, 1.0f), workspace(200);
    const World::Piece piece{x.data(), x.data(), world.rank() == 0 ? 100 : 200};
    EXPECT_FALSE(world.mean(DType::f32, {&piece, 1}, workspace.data()).ok());
  });
}

}  // namespace
}  // namespace gradloom
