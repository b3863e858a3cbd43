// Every part is computed exactly once, whatever threads come and however late.
#include "kernels/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kernels/clock.h"
#include "kernels/thread_watch.h"

namespace gradloom::kernels::test {
namespace {

// How often each of `count` parts was computed, as text where it was not once.
std::string wrong_parts(std::int64_t count, int most = kMostThreads) {
  const auto times = std::make_unique<std::atomic<int>[]>(std::size_t(count));
  for_parts(
      count, [&](std::int64_t part) { times[std::size_t(part)].fetch_add(1); }, most);
  std::string wrong;
  for (std::int64_t part = 0; part < count; ++part)
    if (times[std::size_t(part)] != 1)
      wrong += "part " + std::to_string(part) + ": " + std::to_string(times[std::size_t(part)]) + " times\n";
  return wrong;
}

class Threads : public testing::Test {
 protected:
  ~Threads() override { set_threads(2); }
};

TEST_F(Threads, ComputeEachPartOnce) {
  for (const int team : {1, 2, 3, 8, 40, 2}) {
    set_threads(team);
    for (const std::int64_t count : {0, 1, 2, 3, 7, 15, 16, 17, 64, 1000, 100003}) {
      EXPECT_EQ(wrong_parts(count), "") << count << " parts, " << team << " threads";
      EXPECT_EQ(wrong_parts(count, 2), "") << count << " parts, 2 of " << team << " threads";
    }
    for (int region = 0; region < 2000; ++region) ASSERT_EQ(wrong_parts(team), "") << region;
  }
}

// Also where threads sleep between the regions.
TEST_F(Threads, WakeForARegion) {
  set_threads(3);
  for (int region = 0; region < 50; ++region) {
    usleep(500);
    ASSERT_EQ(wrong_parts(30), "") << region;
  }
}

TEST_F(Threads, RangesCoverAllParts) {
  set_threads(3);
  std::atomic<std::int64_t> sum{0};
  for_ranges(1000, [&](std::int64_t begin, std::int64_t end) {
    EXPECT_LT(begin, end);
    for (std::int64_t part = begin; part < end; ++part) sum += part;
  });
  EXPECT_EQ(sum, 499500);
}

// What the system says of each thread of this process: its state, and where in the kernel it waits.
std::string thread_states() {
  std::string text;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    text += "thread " + task.path().filename().string();
    for (const char* file : {"stat", "wchan", "syscall"}) {
      std::string line;
      std::getline(std::ifstream(task.path() / file), line);
      text += std::string("\n  ") + file + ": " + line;
    }
    text += '\n';
  }
  return text;
}

// Each part waits, asleep, for the other to begin, so two threads compute at once; then their numbers differ. Late is a
// second thread where the machine is busy: the region is tried again. Where none ever comes something is wrong, as it was
// when thread_local arrays left no room on the stacks of threads and none was started.
TEST_F(Threads, HaveNumbersOfTheirOwn) {
  set_threads(2);
  bool met = false;
  for (int region = 0; region < 60 && !met; ++region) {
    std::atomic<int> begun{0};
    std::atomic<bool> together{true};
    int numbers[2] = {-1, -1};
    for_parts(2, [&](std::int64_t part) {
      numbers[part] = worker_number();
      begun.fetch_add(1);
      for (int turn = 0; begun.load() < 2 && turn < 10000; ++turn) usleep(100);
      if (begun.load() < 2) together = false;
    });
    EXPECT_EQ(begun.load(), 2);
    met = together;
    if (met) {
      EXPECT_EQ(numbers[0] + numbers[1], 1);
    }
  }
  EXPECT_EQ(worker_number(), 0);
  EXPECT_TRUE(met) << "two threads never computed at once\n" << thread_states();
}

TEST_F(Threads, HaveNumbersBelowTheTeam) {
  set_threads(8);
  for (int region = 0; region < 2000; ++region)
    for (const int team : {8, 2, 5, 3}) {
      std::atomic<int> beyond{0};
      for_parts(
          40, [&](std::int64_t) { beyond += worker_number() < team ? 0 : 1; }, team);
      ASSERT_EQ(beyond, 0) << team << " threads";
    }
}

TEST_F(Threads, HaveScratchOfTheirOwn) {
  set_threads(2);
  for (const std::size_t bytes : {100, 5000, 64, 1 << 20, 100})
    for_parts(20, [&](std::int64_t part) {
      auto* const memory = static_cast<unsigned char*>(thread_scratch(bytes));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
      std::fill_n(memory, bytes, static_cast<unsigned char>(part));
      usleep(50);
      EXPECT_EQ(std::count(memory, memory + bytes, static_cast<unsigned char>(part)), std::ptrdiff_t(bytes));
    });
}

TEST_F(Threads, PartsWithinAPartAreComputedThere) {
  set_threads(4);
  std::atomic<int> count{0};
  for_parts(8, [&](std::int64_t) {
    const int outer = worker_number();
    for_parts(8, [&](std::int64_t) {
      EXPECT_EQ(worker_number(), outer);
      count.fetch_add(1);
    });
  });
  EXPECT_EQ(count, 64);
}

TEST_F(Threads, ServeSeveralCallers) {
  set_threads(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 3; ++caller)
    callers.emplace_back([&] {
      for (int region = 0; region < 300; ++region)
        if (!wrong_parts(50).empty()) wrong.fetch_add(1);
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Threads, APartMayThrow) {
  for (const int team : {1, 3}) {
    set_threads(team);
    std::atomic<int> computed{0};
    const auto fail = [&](std::int64_t part) {
      if (part == 10) throw std::runtime_error("part 10");
      computed.fetch_add(1);
    };
    EXPECT_THROW(for_parts(64, fail), std::runtime_error);
    EXPECT_GT(computed, 0);
    EXPECT_EQ(wrong_parts(64), "");
  }
}

int in_child(const std::function<bool()>& good) {
  const pid_t child = fork();
  if (child == 0) _exit(good() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(Threads, AChildStartsItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer lets no child of many threads start one";
#endif
  set_threads(3);
  EXPECT_EQ(wrong_parts(100), "");
  EXPECT_EQ(refused_threads(), 0);
  EXPECT_EQ(in_child([] { return wrong_parts(100).empty(); }), 0);
  EXPECT_EQ(wrong_parts(100), "");
}

// The stacks of so many threads need more address space than there is.
TEST_F(Threads, FewerThanAskedForComputeAllParts) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need their address space";
#endif
  EXPECT_EQ(in_child([] {
              const rlimit little{512 << 20, 512 << 20};
              setrlimit(RLIMIT_AS, &little);
              set_threads(kMostThreads);
              return wrong_parts(5000).empty() && wrong_parts(5000).empty() && refused_threads() > 0;
            }),
            0);
}

// What a watch sees of a region in which each part takes a millisecond at least.
TEST_F(Threads, AreWatched) {
  set_threads(2);
  const auto work = [] {
    for_parts(24, [](std::int64_t) {
      for (const std::int64_t end = now_ns() + 1'000'000; now_ns() < end;) {
      }
    });
  };
  work();  // before
  ThreadWatch watch, second;
  watch.begin();
  second.begin();
  const std::int64_t start_ns = now_ns();
  work();
  work();
  std::vector<ThreadTime> times = watch.end();
  ASSERT_EQ(times.size(), 2u);
  std::int64_t busy = 0;
  for (std::size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(times[k].thread, std::int32_t(k));
    EXPECT_LE(times[k].start_ns, times[k].end_ns);
    EXPECT_GE(times[k].end_ns, start_ns);
    EXPECT_GE(times[k].busy_ns, 0);
    EXPECT_LE(times[k].busy_ns, times[k].end_ns - times[k].start_ns);
    busy += times[k].busy_ns;
  }
  EXPECT_LE(times[0].start_ns, times[1].start_ns) << "thread 0 begins it";
  EXPECT_GE(busy, 48'000'000) << "of 2 x 24 parts";
  EXPECT_TRUE(second.end().empty()) << "one at a time";

  watch.begin();
  wrong_parts(1);
  times = watch.end();
  ASSERT_EQ(times.size(), 1u) << "what one thread computes is its own";
  EXPECT_EQ(times[0].busy_ns, times[0].end_ns - times[0].start_ns);

  watch.begin();
  std::thread(work).join();
  EXPECT_EQ(watch.end().size(), 1u) << "what another thread begins is not seen";
}

}  // namespace
}  // namespace gradloom::kernels::test
