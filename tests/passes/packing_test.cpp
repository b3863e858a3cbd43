#include "passes/packing.h"

#include <gtest/gtest.h>

#include "tests/passes/packing_support.h"

namespace gradloom {
namespace {

using namespace test;

constexpr std::int64_t kMuch = 1'000'000'000;

// Sets of many sizes and few steps.
std::vector<Request> crowded(unsigned seed, int count) {
  std::mt19937 random(seed);
  auto requests = random_requests(random, count, 7, 400);
  for (Request& r : requests) r.bytes = aligned_bytes(r.bytes + 1);
  return requests;
}

// Short lifetimes and few sizes, as many as fit below six units: now and then the bound cannot be met.
std::vector<Request> filled(unsigned seed) {
  constexpr int kSteps = 12;
  std::mt19937 random(seed);
  std::vector<Request> requests;
  std::vector<std::int64_t> live(kSteps, 0);
  for (int tries = 0; tries < 120 && requests.size() < 20; ++tries) {
    const int first = static_cast<int>(random() % kSteps);
    const int last = std::min(kSteps - 1, first + static_cast<int>(random() % 4));
    const std::int64_t bytes = kAlignmentBytes * (1 + random() % 3);
    if (*std::max_element(live.begin() + first, live.begin() + last + 1) + bytes > 6 * kAlignmentBytes)
      continue;
    for (int step = first; step <= last; ++step) live[static_cast<std::size_t>(step)] += bytes;
    requests.push_back({bytes, first, last});
  }
  std::stable_sort(requests.begin(), requests.end(),
                   [](const Request& a, const Request& b) { return a.first_step < b.first_step; });
  return requests;
}

// Every offset for every request, without any thought: the rest of the requests has a place in `most` bytes.
bool fits(const std::vector<Request>& requests, std::int64_t most, std::vector<std::int64_t>& offsets) {
  const std::size_t i = offsets.size();
  if (i == requests.size()) return true;
  for (std::int64_t offset = 0; offset + requests[i].bytes <= most; offset += kAlignmentBytes) {
    offsets.push_back(offset);
    const std::vector<Request> placed(requests.begin(),
                                      requests.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (overlap_problem(placed, offsets, most).empty() && fits(requests, most, offsets)) return true;
    offsets.pop_back();
  }
  return false;
}

TEST(Packing, TheExactSearchKnowsWhatFits) {
  int impossible = 0;
  for (unsigned seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto requests = filled(seed);
    const std::int64_t bound = lower_bound_bytes(requests);
    std::vector<std::int64_t> offsets, any;
    std::int64_t work = kMuch;
    const Packed answer = pack_exactly(requests, bound, work, offsets);
    ASSERT_NE(answer, Packed::gave_up);
    if (answer == Packed::found) {
      EXPECT_EQ(overlap_problem(requests, offsets, bound), "");
      continue;
    }
    ++impossible;
    EXPECT_FALSE(fits(requests, bound, any));
    ASSERT_EQ(pack_exactly(requests, bound + kAlignmentBytes, work, offsets), Packed::found);
    EXPECT_EQ(overlap_problem(requests, offsets, bound + kAlignmentBytes), "");
  }
  EXPECT_GE(impossible, 4);
}

TEST(Packing, EjectionPlacesWhatItSays) {
  int found = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto requests = crowded(seed, 40);
    const std::int64_t bound = lower_bound_bytes(requests);
    std::vector<std::int64_t> offsets;
    std::int64_t work = 20'000'000;
    if (pack_by_ejection(requests, bound, work, offsets) != Packed::found) continue;
    ++found;
    EXPECT_EQ(overlap_problem(requests, offsets, bound), "");
  }
  EXPECT_GT(found, 150);
}

TEST(Packing, SearchesEndWithTheirWork) {
  const auto requests = crowded(1, 200);
  for (const auto search : {pack_by_ejection, pack_exactly}) {
    std::vector<std::int64_t> offsets;
    std::int64_t work = 100'000;
    EXPECT_NE(search(requests, lower_bound_bytes(requests) - kAlignmentBytes, work, offsets), Packed::found);
    EXPECT_GT(work, -1'000'000);
  }
}

TEST(Packing, AnArenaSmallerThanARequestHoldsNothing) {
  const std::vector<Request> requests{{128, 0, 1}, {0, 0, 5}, {64, 3, 4}};
  std::vector<std::int64_t> offsets;
  std::int64_t work = kMuch;
  EXPECT_EQ(pack_exactly(requests, 64, work, offsets), Packed::impossible);
  EXPECT_EQ(pack_by_ejection(requests, 64, work, offsets), Packed::impossible);
  EXPECT_EQ(pack_exactly(requests, 128, work, offsets), Packed::found);
  EXPECT_EQ(offsets, (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(pack_exactly({{0, 0, 1}}, 0, work, offsets), Packed::found);
}

}  // namespace
}  // namespace gradloom
