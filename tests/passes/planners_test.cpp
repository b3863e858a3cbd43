// Planners: an independent overlap checker over random interval sets, and a brute-force bound for small ones.
#include "passes/planners.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/passes/packing_support.h"

namespace gradloom {
namespace {

using namespace test;

TEST(Planners, TenThousandRandomSetsDoNotOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 10000; ++round) {
    const int count = std::uniform_int_distribution<int>(0, 24)(random);
    const auto requests = random_requests(random, count, 12, round % 2 == 0 ? 400 : 40000);
    for (const PlannerDef& planner : all_planners()) {
      std::vector<std::int64_t> offsets;
      const std::int64_t arena = planner.plan(requests, offsets);
      ASSERT_EQ(overlap_problem(requests, offsets, arena), "") << planner.name << ", set " << round;
    }
  }
}

TEST(Planners, NoneSumsAllBytes) {
  std::vector<std::int64_t> offsets;
  EXPECT_EQ(find_planner("none")->plan({{1, 0, 0}, {64, 1, 1}, {65, 2, 2}}, offsets), 64 + 64 + 128);
  EXPECT_EQ(offsets, (std::vector<std::int64_t>{0, 64, 128}));
}

TEST(Planners, ReuseTakesAFreedBlockAndNeverSplitsIt) {
  std::vector<std::int64_t> offsets;
  // The second is free again at step 2: the third takes all of it, the fourth needs a new block.
  EXPECT_EQ(find_planner("reuse")->plan({{64, 0, 3}, {128, 0, 1}, {64, 2, 3}, {64, 2, 3}}, offsets), 256);
  EXPECT_EQ(offsets, (std::vector<std::int64_t>{0, 64, 64, 192}));
}

TEST(Planners, BestFitFillsTheGapThatReuseCannotSplit) {
  std::vector<std::int64_t> offsets;
  EXPECT_EQ(find_planner("best-fit")->plan({{64, 0, 3}, {128, 0, 1}, {64, 2, 3}, {64, 2, 3}}, offsets), 192);
}

// body(requests, arena of best-fit, smallest arena) for sets of so few requests that every order can be tried.
template <class Body>
void for_small_sets(unsigned seed, int sets, int count, const Body& body) {
  std::mt19937 random(seed);
  for (int round = 0; round < sets; ++round) {
    SCOPED_TRACE("set " + std::to_string(round));
    auto requests = random_requests(random, count, 6, 1000);
    for (Request& r : requests) r.bytes = aligned_bytes(r.bytes + 1);
    std::vector<std::int64_t> offsets;
    body(requests, find_planner("best-fit")->plan(requests, offsets), brute_force(requests));
  }
}

TEST(Planners, BestFitIsNeverBelowTheBoundAndNearTheOptimum) {
  double excess = 0;
  constexpr int kSets = 200;
  for_small_sets(2, kSets, 6, [&](const auto& requests, std::int64_t arena, std::int64_t optimum) {
    ASSERT_GE(arena, lower_bound_bytes(requests));
    ASSERT_GE(arena, optimum);
    excess += static_cast<double>(arena) / static_cast<double>(optimum) - 1;
  });
  EXPECT_LT(excess / kSets, 0.01);
}

TEST(Planners, BestFitIsNoWorseThanReuseOnTrainingLikeLifetimes) {
  // Activations live from their forward step to the mirrored backward step, temporaries for two steps.
  std::mt19937 random(3);
  std::vector<Request> requests;
  for (int step = 0; step < 200; ++step) {
    const int bytes = 64 * std::uniform_int_distribution<int>(1, 500)(random);
    requests.push_back({bytes, step, 399 - step});
    requests.push_back({bytes, step, step + 1});
    requests.push_back({bytes, 398 - step, 399 - step});
  }
  std::vector<std::int64_t> offsets;
  const std::int64_t best_fit = find_planner("best-fit")->plan(requests, offsets);
  EXPECT_EQ(overlap_problem(requests, offsets, best_fit), "");
  EXPECT_LE(best_fit, find_planner("reuse")->plan(requests, offsets));
  EXPECT_LE(static_cast<double>(best_fit), 1.001 * static_cast<double>(lower_bound_bytes(requests)));
}

TEST(Planners, FiveThousandBuffersDoNotOverlap) {
  std::mt19937 random(4);
  const auto requests = random_requests(random, 5000, 2000, 1 << 20);
  std::vector<std::int64_t> offsets;
  const std::int64_t arena = find_planner("best-fit")->plan(requests, offsets);
  EXPECT_EQ(overlap_problem(requests, offsets, arena), "");
  EXPECT_LE(static_cast<double>(arena), 1.06 * static_cast<double>(lower_bound_bytes(requests)));
  std::vector<std::int64_t> again;
  EXPECT_EQ(find_planner("best-fit")->plan(requests, again), arena);
  EXPECT_EQ(offsets, again);
}

TEST(Planners, BestFitFindsTheOptimumOfSmallSets) {
  int found = 0;
  constexpr int kSets = 100;
  for_small_sets(5, kSets, 7, [&](const auto&, std::int64_t arena, std::int64_t optimum) {
    found += arena == optimum ? 1 : 0;
  });
  EXPECT_EQ(found, kSets);
}

TEST(Planners, VeryManyRequestsDoNotOverlap) {
  std::mt19937 random(6);
  constexpr int kCount = 60'000, kSteps = 30'000;
  std::vector<Request> requests;
  std::vector<std::vector<std::size_t>> at(kSteps + 8);
  for (int i = 0; i < kCount; ++i) {
    const int first = std::uniform_int_distribution<int>(0, kSteps - 1)(random);
    const int last = first + std::uniform_int_distribution<int>(0, 6)(random);
    for (int step = first; step <= last; ++step)
      at[static_cast<std::size_t>(step)].push_back(requests.size());
    requests.push_back({std::uniform_int_distribution<int>(0, 1 << 16)(random), first, last});
  }
  std::vector<std::int64_t> offsets;
  const std::int64_t arena = find_planner("best-fit")->plan(requests, offsets);
  EXPECT_LE(static_cast<double>(arena), 1.6 * static_cast<double>(lower_bound_bytes(requests)));
  for (const std::vector<std::size_t>& live : at) {
    std::vector<Request> together;
    std::vector<std::int64_t> places;
    for (const std::size_t i : live) {
      together.push_back({requests[i].bytes, 0, 0});
      places.push_back(offsets[i]);
    }
    ASSERT_EQ(overlap_problem(together, places, arena), "");
  }
}

TEST(Planners, NothingToPlaceTakesNothing) {
  for (const PlannerDef& planner : all_planners()) {
    std::vector<std::int64_t> offsets = {7};
    EXPECT_EQ(planner.plan({}, offsets), 0) << planner.name;
    EXPECT_TRUE(offsets.empty()) << planner.name;
  }
  EXPECT_EQ(find_planner("no-such-planner"), nullptr);
  const auto unknown = known_planner("bestfit");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, Errc::usage);
  EXPECT_EQ(unknown.error().message,
            "unknown memory planner 'bestfit' (known: none, reuse, best-fit); did you mean best-fit?");
}

}  // namespace
}  // namespace gradloom
