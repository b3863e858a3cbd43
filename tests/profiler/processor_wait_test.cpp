#include "profiler/processor_wait.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

namespace gradloom {
namespace {

// Threads that share one processor wait for each other; what they waited is found again.
TEST(ProcessorWait, GrowsWhereThreadsShareAProcessor) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const std::int64_t start_ns = processor_wait_ns();
  std::atomic<bool> end{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&end] {
      while (!end) {
      }
    });
  std::int64_t waited_ns = 0;  // until it is there: on any machine that tells it at all
  for (int i = 0; i < 1'000'000 && waited_ns < 5'000'000; ++i) {
    sched_yield();
    waited_ns = processor_wait_ns() - start_ns;
  }
  end = true;
  for (std::thread& t : threads) t.join();
  sched_setaffinity(0, sizeof before, &before);
  if (start_ns == 0 && waited_ns == 0) GTEST_SKIP() << "this system does not tell";
  EXPECT_GE(waited_ns, 5'000'000);
}

}  // namespace
}  // namespace gradloom
