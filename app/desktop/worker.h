// One background thread for everything that may take longer than a frame: loading, compiling,
// layout, reading sessions.
//
// A job runs in the background and returns a closure that publishes its result; `drain` runs these on the
// window's thread, once per frame. Jobs carry a tag: posting "plan" again drops the queued one and asks the
// running one to stop, so that of ten quick switches only the last is compiled. A result that was overtaken
// is never published.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace gradloom {

class Worker {
 public:
  using Publish = std::function<void()>;  // may be empty
  using Job = std::function<Publish(std::stop_token)>;

  // `notify` is called from the background after each job, to wake the window.
  explicit Worker(std::function<void()> notify);
  ~Worker() { close(); }
  void close();  // asks the running job to stop and waits for it; nothing runs or is published afterwards
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void post(const std::string& tag, const std::string& label, Job job);
  void cancel(const std::string& tag);  // queued: dropped; running: asked to stop, not published
  void drain();                         // publishes finished results; call on the window's thread
  bool busy() const;                    // queued, running or unpublished work
  bool busy_with(const std::string& tag) const;
  std::string running() const;         // label of the running job, empty when idle
  void say(const std::string& stage);  // from a job: how far it is, behind its label

 private:
  struct Task {
    std::string tag, label;
    Job job;
    std::stop_source stop;
  };
  void loop();

  std::function<void()> notify_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  std::vector<std::pair<std::string, Publish>> done_;  // with their tags
  std::string running_tag_, running_label_, running_stage_;
  std::stop_source running_stop_{std::nostopstate};
  bool closing_ = false;
  std::thread thread_;  // last: starts when the rest exists
};

}  // namespace gradloom
