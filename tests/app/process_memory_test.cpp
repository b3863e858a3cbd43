#include "app/process_memory.h"

#include <gtest/gtest.h>

#include <numeric>

namespace gradloom {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

Plan planned(std::int64_t arena, std::int64_t states) {
  Plan plan;
  plan.arena_bytes = arena * kMiB;
  plan.state_bytes = states * kMiB;
  return plan;
}
std::int64_t total(const std::vector<MemoryItem>& items) {
  return std::accumulate(items.begin(), items.end(), std::int64_t{0},
                         [](std::int64_t sum, const MemoryItem& item) { return sum + item.bytes; });
}

TEST(ProcessMemory, ItemsAreAllOfThePeak) {
  const auto items = process_memory({20 * kMiB, 32 * kMiB, 53 * kMiB}, 120 * kMiB, planned(60, 16), true);
  EXPECT_EQ(
      process_memory_text(items),
      "process   120 MiB at its peak: 20.0 MiB program and libraries, 12.0 MiB model and compiling, 76.0 MiB "
      "plan, 5.00 MiB kernels' objects, 7.00 MiB batches and copies");
  EXPECT_EQ(total(items), 120 * kMiB);
  EXPECT_EQ(process_memory_json(items)["kernels"], 5 * kMiB);
}

TEST(ProcessMemory, APlanThatIsNotTouchedIsSaid) {
  const auto items = process_memory({20 * kMiB, 32 * kMiB, 48 * kMiB}, 90 * kMiB, planned(60, 16), true);
  EXPECT_EQ(total(items), 90 * kMiB);
  EXPECT_NE(process_memory_text(items).find(", less 18.0 MiB of the plan that nothing touched"),
            std::string::npos)
      << process_memory_text(items);
}

TEST(ProcessMemory, APlanOfAGpuIsNotThis) {
  const auto items = process_memory({20 * kMiB, 32 * kMiB, 48 * kMiB}, 90 * kMiB, planned(60, 16), false);
  EXPECT_EQ(total(items), 90 * kMiB);
  EXPECT_EQ(process_memory_json(items)["plan"], 0);
  EXPECT_EQ(process_memory_json(items)["kernels"], 16 * kMiB);
}

}  // namespace
}  // namespace gradloom
