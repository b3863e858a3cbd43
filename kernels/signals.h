// When handlers of signals may run on a thread that computes.
//
// oneDNN's products in f32 (seen in 2.6: the gemm for AVX and AVX2; that for AVX-512 is written alike) put the stack pointer
// into a buffer on the heap where they sum over many elements. A signal at that moment has the system write the handler's frame, some kilobytes, over what lies before that buffer. So no handler runs then:
// signals wait until the computation is over or lets them through.
#pragma once

#include <csignal>
#include <cstdint>

namespace gradloom::kernels {

// While one exists, signals whose handlers could run on this thread wait, but those of its own faults (SIGSEGV, SIGBUS,
// SIGFPE, SIGILL, SIGTRAP, SIGSYS). Of nested ones the outermost does it, with two system calls.
class NoSignals {
 public:
  NoSignals();
  ~NoSignals();
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

  // Between two computations, as often as one likes: lets handlers run every 10 ms.
  void let_through();

  // For the rest of this thread's life.
  static void from_now_on();

  // Within it handlers run again: while functions of others are called.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    int depth_;
  };

 private:
  bool outermost_;
  std::int64_t since_ns_ = 0;  // when handlers could last run
};

}  // namespace gradloom::kernels
