#include "app/desktop/worker.h"

#include <algorithm>

namespace gradloom {

Worker::Worker(std::function<void()> notify) : notify_(std::move(notify)), thread_([this] { loop(); }) {}

void Worker::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    queue_.clear();
    running_stop_.request_stop();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Worker::post(const std::string& tag, const std::string& label, Job job) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(queue_, [&](const Task& t) { return t.tag == tag; });
    std::erase_if(done_, [&](const auto& d) { return d.first == tag; });
    if (running_tag_ == tag) running_stop_.request_stop();
    queue_.push_back({tag, label, std::move(job), std::stop_source()});
  }
  changed_.notify_all();
}

void Worker::cancel(const std::string& tag) {
  const std::lock_guard lock(mutex_);
  std::erase_if(queue_, [&](const Task& t) { return t.tag == tag; });
  std::erase_if(done_, [&](const auto& d) { return d.first == tag; });
  if (running_tag_ == tag) running_stop_.request_stop();
}

void Worker::drain() {
  std::vector<std::pair<std::string, Publish>> done;
  {
    const std::lock_guard lock(mutex_);
    done.swap(done_);
  }
  for (auto& [tag, publish] : done) publish();
}

bool Worker::busy() const {
  const std::lock_guard lock(mutex_);
  return !queue_.empty() || !running_tag_.empty() || !done_.empty();
}

bool Worker::busy_with(const std::string& tag) const {
  const std::lock_guard lock(mutex_);
  const bool queued = std::any_of(queue_.begin(), queue_.end(), [&](const Task& t) { return t.tag == tag; });
  return queued || running_tag_ == tag ||
         std::any_of(done_.begin(), done_.end(), [&](const auto& d) { return d.first == tag; });
}

std::string Worker::running() const {
  const std::lock_guard lock(mutex_);
  return running_label_.empty() ? std::string() : running_label_ + running_stage_;
}

void Worker::say(const std::string& stage) {
  {
    const std::lock_guard lock(mutex_);
    running_stage_ = ": " + stage;
  }
  if (notify_) notify_();
}

void Worker::loop() {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (closing_) return;
      task = std::move(queue_.front());
      queue_.pop_front();
      running_tag_ = task.tag;
      running_label_ = task.label;
      running_stage_.clear();
      running_stop_ = task.stop;
    }
    Publish publish = task.job(task.stop.get_token());
    {
      const std::lock_guard lock(mutex_);
      if (publish && !task.stop.stop_requested()) done_.emplace_back(task.tag, std::move(publish));
      running_tag_.clear();
      running_label_.clear();
      running_stop_ = std::stop_source(std::nostopstate);
    }
    if (notify_) notify_();
  }
}

}  // namespace gradloom
