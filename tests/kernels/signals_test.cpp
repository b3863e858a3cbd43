// Handlers of signals and kernels do not meet.
#include "kernels/signals.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/prepared/matmul.h"

namespace gradloom::kernels::test {
namespace {

std::atomic<int> handled{0}, elsewhere{0};
std::atomic<std::uintptr_t> stack_begin{0}, stack_end{0};

void count(int) {
  const char here = 0;
  const auto at = reinterpret_cast<std::uintptr_t>(&here);
  if (at < stack_begin || at >= stack_end) ++elsewhere;
  ++handled;
}

class Signals : public testing::Test {
 protected:
  Signals() {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    void* begin = nullptr;
    std::size_t bytes = 0;
    pthread_attr_getstack(&attributes, &begin, &bytes);
    pthread_attr_destroy(&attributes);
    stack_begin = reinterpret_cast<std::uintptr_t>(begin);
    stack_end = stack_begin + bytes;
    handled = elsewhere = 0;
    struct sigaction action {};
    action.sa_handler = count;
    action.sa_flags = SA_RESTART;
    for (const int number : {SIGALRM, SIGUSR1}) sigaction(number, &action, nullptr);
  }
  ~Signals() override {
    tick(0);
    for (const int number : {SIGALRM, SIGUSR1}) signal(number, SIG_DFL);
  }
  static void tick(long microseconds) {
    const itimerval every{{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &every, nullptr);
  }
};

// A product of few rows over many elements is oneDNN's on every processor. In 2.6 its stack pointer is in a buffer
// on the heap then, where a handler's frame overwrites what is beside the buffer.
TEST_F(Signals, HandlersRunOnTheStack) {
  constexpr std::int64_t m = 8, n = 256, k = 4096;
  const auto product =
      MatMul::create({.m = m, .n = n, .k = k, .a_strides = {k, 1}, .b_strides = {n, 1}, .c_strides = {n, 1}});
  const std::vector<float> a(m * k, 1), b(k * n, 1);
  std::vector<float> c(m * n);
  std::vector<std::byte> workspace(product->workspace_bytes() + 64);
  const auto aligned = (reinterpret_cast<std::uintptr_t>(workspace.data()) + 63) / 64 * 64;
  tick(100);
  for (int run = 0; run < 3000 && handled < 300; ++run)
    product->run(a.data(), b.data(), nullptr, c.data(), reinterpret_cast<void*>(aligned));
  tick(0);
  EXPECT_GE(handled, 100);
  EXPECT_EQ(elsewhere, 0);
  EXPECT_EQ(c, std::vector<float>(m * n, float(k)));
}

TEST_F(Signals, WaitForTheOutermost) {
  {
    const NoSignals outer;
    {
      const NoSignals inner;
      raise(SIGUSR1);
    }
    EXPECT_EQ(handled, 0);
  }
  EXPECT_EQ(handled, 1);
  raise(SIGUSR1);
  EXPECT_EQ(handled, 2);
}

TEST_F(Signals, AreLetThroughInLongComputations) {
  NoSignals scope;
  raise(SIGUSR1);
  scope.let_through();
  for (int turn = 0; turn < 2000 && handled == 0; ++turn) {
    usleep(1000);
    NoSignals inner;
    inner.let_through();
    EXPECT_EQ(handled, 0);
    scope.let_through();
  }
  EXPECT_EQ(handled, 1);
  raise(SIGUSR1);
  EXPECT_EQ(handled, 1);
}

TEST_F(Signals, RunWhileOthersAreCalled) {
  const NoSignals scope;
  raise(SIGUSR1);
  {
    const NoSignals::Pause pause;
    EXPECT_EQ(handled, 1);
    const NoSignals of_their_own;
    raise(SIGUSR1);
    EXPECT_EQ(handled, 1);
  }
  EXPECT_EQ(handled, 2);
  raise(SIGUSR1);
  EXPECT_EQ(handled, 2);
}

TEST_F(Signals, NeverReachAThreadThatSaysSo) {
  std::thread([] {
    NoSignals::from_now_on();
    {
      const NoSignals scope;
      const NoSignals::Pause pause;
      raise(SIGUSR1);
    }
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    EXPECT_EQ(sigismember(&blocked, SIGINT), 1);
    EXPECT_EQ(sigismember(&blocked, SIGSEGV), 0);  // a fault is told by whoever listens
  }).join();
  EXPECT_EQ(handled, 0);
}

}  // namespace
}  // namespace gradloom::kernels::test
