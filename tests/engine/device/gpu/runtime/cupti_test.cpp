// Tracing, with a CUPTI that counts and fails (fake_cupti.cpp). There is one recorder per process: each test is a process.
#include "engine/device/gpu/runtime/activity.h"
#include "engine/device/gpu/runtime/cupti_api.h"
#include "tests/engine/device/gpu/runtime/fake_toolkit.h"

#include <vector>

namespace gradloom::kernels::gpu {
namespace {

// Runs `body` in a process of its own; its failures are this test's.
template <class Body>
void apart(const Body& body) {
  EXPECT_EXIT(
      {
        body(test::FakeLibrary("libcupti.so.13"));
        std::exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

bool start(std::string* error) {
  const cudaStream_t streams[GPU_STREAMS] = {};
  return start_activity(GPU_TRACE_KERNELS, streams, error);
}

std::vector<int> steps() {
  GpuActivity activities[16];
  std::vector<int> found;
  const std::size_t count = read_activity(true, activities, 16);
  for (std::size_t i = 0; i < count; ++i) found.push_back(activities[i].plan_step);
  return found;
}

TEST(Cupti, IsAttachedOnceAndRecordsInWindows) {
  apart([](const test::FakeLibrary& library) {
    const auto launch = library.function<void(std::uint32_t)>("fake_launch");
    const auto kernel = library.function<void(std::uint32_t, std::uint64_t)>("fake_kernel");
    std::string error;
    for (std::uint32_t window = 0; window < 3; ++window) {
      ASSERT_TRUE(start(&error)) << error;
      set_activity_step(int(window) + 4);
      launch(2 * window + 1);
      kernel(2 * window + 1, 0);
      EXPECT_EQ(steps(), std::vector<int>{int(window) + 4});
      stop_activity();
      launch(2 * window + 2);
      kernel(2 * window + 2, 0);  // outside
      EXPECT_EQ(steps(), std::vector<int>{});
    }
    EXPECT_EQ(library.count("subscribe"), 1);
    EXPECT_EQ(library.count("register buffers"), 1);
    EXPECT_EQ(library.count("enable"), 9);
    EXPECT_EQ(library.count("disable"), 9);
    EXPECT_EQ(library.count("unsubscribe"), 0);
    EXPECT_EQ(library.count("finalize"), 0);
  });
}

TEST(Cupti, AnotherProfilerIsLeftAlone) {
  apart([](const test::FakeLibrary& library) {
    library.fail("subscribe", 1, cupti_api::kMultipleSubscribers);
    std::string error;
    for (int window = 0; window < 2; ++window) {
      EXPECT_FALSE(start(&error));
      EXPECT_EQ(error, "subscribe: CUPTI_ERROR_ON_DEMAND (another profiler is attached)");
      stop_activity();
    }
    EXPECT_EQ(library.count("subscribe"), 1) << "it is asked once";
    for (const char* call : {"unsubscribe", "finalize", "enable", "disable", "register buffers"})
      EXPECT_EQ(library.count(call), 0) << call;
  });
}

TEST(Cupti, AHalfAttachedOneIsTakenOff) {
  apart([](const test::FakeLibrary& library) {
    library.fail("enable callback", 2, 1);
    std::string error;
    EXPECT_FALSE(start(&error));
    EXPECT_EQ(library.count("unsubscribe"), 1);
    EXPECT_EQ(library.count("finalize"), 0);
  });
}

TEST(Cupti, AWindowThatDoesNotOpenIsOver) {
  apart([](const test::FakeLibrary& library) {
    library.fail("enable", 2, 1);
    std::string error;
    EXPECT_FALSE(start(&error));
    EXPECT_NE(error.find("enable activities"), std::string::npos) << error;
    EXPECT_EQ(library.count("disable"), 3);
    EXPECT_TRUE(start(&error)) << error;
    EXPECT_EQ(library.count("subscribe"), 1);
  });
}

// Instantiation tells of its nodes as new ones and as copies, in either order.
TEST(Cupti, NodesOfGraphsKeepTheStepTheyWereRecordedFor) {
  apart([](const test::FakeLibrary& library) {
    const auto node =
        library.function<void(cupti_api::CallbackId, std::uint64_t, std::uint64_t)>("fake_node");
    const auto kernel = library.function<void(std::uint32_t, std::uint64_t)>("fake_kernel");
    std::string error;
    ASSERT_TRUE(start(&error)) << error;
    set_activity_step(3);
    node(cupti_api::kGraphNodeCreated, 10, 0);
    set_activity_step(8);
    node(cupti_api::kGraphNodeCreated, 11, 0);
    set_activity_step(-1);
    node(cupti_api::kGraphNodeCreated, 20, 0);
    node(cupti_api::kGraphNodeCloned, 20, 10);
    node(cupti_api::kGraphNodeCloned, 21, 11);
    node(cupti_api::kGraphNodeCreated, 21, 0);
    stop_activity();
    ASSERT_TRUE(start(&error)) << error;  // a later window
    kernel(0, 20);
    kernel(0, 21);
    kernel(0, 99);
    EXPECT_EQ(steps(), (std::vector<int>{3, 8, -1}));
  });
}

}  // namespace
}  // namespace gradloom::kernels::gpu
