// The flag by which a caller ends a call that goes on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stop_token>
#include <thread>

namespace gradloom::embed {

// Asks for a stop once another thread has set the caller's flag.
class StopFlag {
 public:
  StopFlag(const std::int32_t* flag, std::stop_source stop) {
    if (flag == nullptr) return;
    thread_ = std::jthread([flag, stop = std::move(stop)](const std::stop_token& over) mutable {
      std::atomic_ref<std::int32_t> set(*const_cast<std::int32_t*>(flag));  // which is only read
      for (; !over.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(10)))
        if (set.load(std::memory_order_relaxed) != 0) {
          stop.request_stop();
          return;
        }
    });
  }

 private:
  std::jthread thread_;
};

}  // namespace gradloom::embed
