// Helpers of the tests of memory planners: random requests, an independent overlap checker, the optimum of small sets.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/plan/plan.h"

namespace gradloom::test {

// Empty when no two requests that live at the same step share bytes, and everything is aligned and inside.
inline std::string overlap_problem(const std::vector<Request>& requests,
                                   const std::vector<std::int64_t>& offsets, std::int64_t arena) {
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

inline std::vector<Request> random_requests(std::mt19937& random, int count, int steps, int most_bytes) {
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
inline std::int64_t brute_force(const std::vector<Request>& requests) {
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
          const std::int64_t end = offsets[j] + aligned_bytes(requests[j].bytes);
          if (at < end && offsets[j] < at + aligned_bytes(requests[i].bytes)) {
            at = end;
            moved = true;
          }
        }
      }
      offsets[i] = at;
      arena = std::max(arena, at + aligned_bytes(requests[i].bytes));
    }
    best = std::min(best, arena);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

}  // namespace gradloom::test
