// What the threads that compute (threads.h) do while a kernel runs: which of them had parts of it, from when to when, and for how long.
// While a watch is there, a run_parts costs each of them two looks at the clock more.
#pragma once

#include <cstdint>
#include <vector>

namespace gradloom::kernels {

struct ThreadTime {
  std::int32_t thread = 0;                // worker_number()
  std::int64_t start_ns = 0, end_ns = 0;  // of its first and its last part; monotonic clock
  std::int64_t busy_ns = 0;               // with parts, at most end_ns - start_ns
};

// A watch, by the thread that calls the kernels; the program has one at a time, and a second does nothing and sees nothing.
class ThreadWatch {
 public:
  ThreadWatch();
  ~ThreadWatch();
  ThreadWatch(const ThreadWatch&) = delete;
  ThreadWatch& operator=(const ThreadWatch&) = delete;

  void begin();  // a kernel does
  // By thread what each did since. First the calling thread, which is busy with the kernel's own code, too: all the time but for what it
  // waited for parts of others. Threads that had none are missing.
  std::vector<ThreadTime> end();

 private:
  bool on_;
  std::int64_t start_ns_ = 0;
};

}  // namespace gradloom::kernels
