#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "app/desktop/worker.h"

namespace gradloom {
namespace {

using namespace std::chrono_literals;

void drain_until_idle(Worker& worker) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (worker.busy() && std::chrono::steady_clock::now() < end) {
    worker.drain();
    std::this_thread::sleep_for(1ms);
  }
  ASSERT_FALSE(worker.busy());
}

TEST(Worker, PublishesOnTheThreadThatDrains) {
  std::atomic<int> notified{0};
  Worker worker([&] { ++notified; });
  std::thread::id job_thread, publish_thread;
  worker.post("a", "a job", [&](std::stop_token) -> Worker::Publish {
    job_thread = std::this_thread::get_id();
    return [&] { publish_thread = std::this_thread::get_id(); };
  });
  drain_until_idle(worker);
  EXPECT_EQ(publish_thread, std::this_thread::get_id());
  EXPECT_NE(job_thread, publish_thread);
  EXPECT_GE(notified, 1);
}

TEST(Worker, ANewerRequestReplacesTheQueuedOneAndStopsTheRunningOne) {
  Worker worker(nullptr);
  std::promise<void> started;
  std::atomic<bool> stopped{false};
  std::vector<int> published;
  worker.post("plan", "first", [&](std::stop_token stop) -> Worker::Publish {
    started.set_value();
    while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
    stopped = true;
    return [&] { published.push_back(1); };
  });
  started.get_future().wait();
  EXPECT_EQ(worker.running(), "first");
  for (int i = 2; i <= 5; ++i)
    worker.post("plan", "later",
                [&, i](std::stop_token) -> Worker::Publish { return [&, i] { published.push_back(i); }; });
  EXPECT_TRUE(worker.busy_with("plan"));
  drain_until_idle(worker);
  EXPECT_TRUE(stopped);
  EXPECT_EQ(published, std::vector<int>{5});
}

TEST(Worker, OtherTagsAreLeftAlone) {
  Worker worker(nullptr);
  std::vector<std::string> published;
  for (const std::string tag : {"a", "b", "c"})
    worker.post(tag, tag, [&published, tag](std::stop_token) -> Worker::Publish {
      return [&published, tag] { published.push_back(tag); };
    });
  drain_until_idle(worker);
  EXPECT_EQ(published, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(Worker, ACancelledResultIsNotPublished) {
  Worker worker(nullptr);
  std::promise<void> ran;
  bool published = false;
  worker.post("a", "a", [&](std::stop_token) -> Worker::Publish {
    ran.set_value();
    return [&] { published = true; };
  });
  ran.get_future().wait();
  while (!worker.running().empty()) std::this_thread::sleep_for(1ms);
  worker.cancel("a");  // finished but not drained
  worker.drain();
  EXPECT_FALSE(published);
  EXPECT_FALSE(worker.busy());
}

TEST(Worker, EndsPromptlyWithWorkInProgress) {
  std::promise<void> started;
  auto worker = std::make_unique<Worker>(nullptr);
  worker->post("long", "long", [&](std::stop_token stop) -> Worker::Publish {
    started.set_value();
    while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
    return {};
  });
  worker->post("never", "never", [](std::stop_token) -> Worker::Publish {
    ADD_FAILURE() << "queued work must not run while closing";
    return {};
  });
  started.get_future().wait();
  worker.reset();
}

}  // namespace
}  // namespace gradloom
