// Planners: an independent overlap checker over random interval sets, and a brute-force bound for small ones.
#include "passes/planners.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace gradloom {
namespace {

std::int64_t rounded(std::int64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

// Empty when no two requests that live at the same step share bytes, and everything is aligned and inside.
std::string overlap_problem(const std::vector<Request>& requests, const std::vector<std::int64_t>& offsets,
                            std::int64_t arena) {
  if (offsets.size() != requests.size()) return "wrong number of offsets";
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (offsets[i] < 0 || offsets[i] % kAlignmentBytes != 0)
      return "offset " + std::to_string(i) + " is not aligned";
    if (offsets[i] + requests[i].bytes > arena)
      return "request " + std::to_string(i) + " ends outside the arena";
    for (std::size_t j = 0; j < i; ++j) {
      const bool together =
          requests[i].first_step <= requests[j].last_step && requests[j].first_step <= requests[i].last_step;
      const bool overlap =
          offsets[i] < offsets[j] + requests[j].bytes && offsets[j] < offsets[i] + requests[i].bytes;
      if (together && overlap)
        return "requests " + std::to_string(j) + " and " + std::to_string(i) + " overlap";
    }
  }
  return "";
}

std::vector<Request> random_requests(std::mt19937& random, int count, int steps, int most_bytes) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    const int first = std::uniform_int_distribution<int>(0, steps - 1)(random);
    const int last =
        std::uniform_int_distribution<int>(first, std::min(steps - 1, first + steps / 3 + 1))(random);
    requests.push_back({std::uniform_int_distribution<int>(0, most_bytes)(random), first, last});
  }
  return requests;
}

// Smallest arena of first-fit placement over every order of the requests:
// the optimum for a handful of requests.
std::int64_t brute_force(const std::vector<Request>& requests) {
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::int64_t best = INT64_MAX;
  do {
    std::vector<std::int64_t> offsets(requests.size(), -1);
    std::int64_t arena = 0;
    for (std::size_t i : order) {
      std::int64_t at = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t j = 0; j < requests.size(); ++j) {
          if (offsets[j] < 0) continue;
          if (requests[i].first_step > requests[j].last_step ||
              requests[j].first_step > requests[i].last_step)
            continue;
          const std::int64_t end = offsets[j] + rounded(requests[j].bytes);
          if (at < end && offsets[j] < at + rounded(requests[i].bytes)) {
            at = end;
            moved = true;
          }
        }
      }
      offsets[i] = at;
      arena = std::max(arena, at + rounded(requests[i].bytes));
    }
    best = std::min(best, arena);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

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
    for (Request& r : requests) r.bytes = rounded(r.bytes + 1);
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
  EXPECT_LE(static_cast<double>(best_fit), 1.05 * static_cast<double>(lower_bound_bytes(requests)));
}

TEST(Planners, FiveThousandBuffersDoNotOverlap) {
  std::mt19937 random(4);
  const auto requests = random_requests(random, 5000, 2000, 1 << 20);
  std::vector<std::int64_t> offsets;
  const std::int64_t arena = find_planner("best-fit")->plan(requests, offsets);
  EXPECT_EQ(overlap_problem(requests, offsets, arena), "");
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
