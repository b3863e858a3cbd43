#include "kernels/signals.h"

#include <pthread.h>

#include <initializer_list>

#include "kernels/clock.h"

namespace gradloom::kernels {
namespace {

constexpr std::int64_t kLongestWaitNs = 10'000'000;

struct Own {
  int depth = 0;  // of NoSignals; -1: for ever
  sigset_t before{};
};
thread_local Own own;

sigset_t all_but_faults() {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&set, fault);
  return set;
}

void block() {
  static const sigset_t signals = all_but_faults();
  pthread_sigmask(SIG_BLOCK, &signals, &own.before);
}
void unblock() { pthread_sigmask(SIG_SETMASK, &own.before, nullptr); }

}  // namespace

NoSignals::NoSignals() : outermost_(own.depth == 0) {
  if (own.depth < 0) return;
  if (outermost_) {
    block();
    since_ns_ = now_ns();
  }
  ++own.depth;
}

NoSignals::~NoSignals() {
  if (own.depth < 0) return;
  --own.depth;
  if (outermost_) unblock();
}

void NoSignals::let_through() {
  if (!outermost_ || now_ns() - since_ns_ < kLongestWaitNs) return;
  unblock();
  block();
  since_ns_ = now_ns();
}

void NoSignals::from_now_on() {
  block();
  own.depth = -1;
}

NoSignals::Pause::Pause() : depth_(own.depth) {
  if (depth_ <= 0) return;
  unblock();
  own.depth = 0;
}

NoSignals::Pause::~Pause() {
  if (depth_ <= 0) return;
  block();
  own.depth = depth_;
}

}  // namespace gradloom::kernels
