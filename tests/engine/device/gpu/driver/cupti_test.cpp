// Tracing (runtime/cupti.cpp) with the stand-in that records what the strict driver runs. There is one recorder per process: each test is a
// process.
#include <cstdio>

#include "engine/device/gpu/runtime/activity.h"
#include "engine/device/gpu/runtime/cupti_api.h"
#include "tests/engine/device/gpu/driver/library_fixture.h"

namespace gradloom::strict {
namespace {

using namespace kernels::gpu;

struct Nothing {};
void nothing(const void*) {}

class Cupti : public LibraryFixture {
 protected:
  // Runs `body` in a process of its own; its failures are this test's.
  template <class Body>
  static void apart(const Body& body) {
    EXPECT_EXIT(
        {
          body();
          const ::testing::TestResult& result =
              *::testing::UnitTest::GetInstance()->current_test_info()->result();
          for (int i = 0; i < result.total_part_count(); ++i)
            std::fprintf(stderr, "%s\n", result.GetTestPartResult(i).message());
          std::exit(HasFailure() ? 1 : 0);
        },
        ::testing::ExitedWithCode(0), "");
  }
  bool start(std::string* error, GpuTraceLevel level = GPU_TRACE_KERNELS) const {
    cudaStream_t streams[GPU_STREAMS];
    for (cudaStream_t& one : streams) one = stream_;
    return start_activity(level, streams, error);
  }
  void launch_for(int step) const {
    set_activity_step(step);
    const Nothing params;
    launch(stream_, keep_program(nothing, {1, 1, 1}, {1, 1, 1}, 0, &params, sizeof params));
    set_activity_step(-1);
  }
  static std::vector<GpuActivity> read() {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<GpuActivity> all(4096);
    all.resize(read_activity(true, all.data(), all.size()));
    return all;
  }
  static std::vector<int> steps() {
    std::vector<int> found;
    for (const GpuActivity& activity : read()) found.push_back(activity.plan_step);
    return found;
  }
  static std::int64_t calls(const char* name) { return driver().calls_by_name[name]; }
};

TEST_F(Cupti, IsAttachedOnceAndRecordsInWindows) {
  apart([&] {
    std::string error;
    for (int window = 0; window < 3; ++window) {
      ASSERT_TRUE(start(&error)) << error;
      launch_for(window + 4);
      EXPECT_EQ(steps(), std::vector<int>{window + 4});
      stop_activity();
      launch_for(99);  // outside
      EXPECT_EQ(steps(), std::vector<int>{});
    }
    EXPECT_EQ(calls("cuptiSubscribe"), 1);
    EXPECT_EQ(calls("cuptiActivityRegisterCallbacks"), 1);
    EXPECT_EQ(calls("cuptiActivityEnable"), 9);
    EXPECT_EQ(calls("cuptiActivityDisable"), 9);
    EXPECT_EQ(calls("cuptiUnsubscribe"), 0);
    EXPECT_EQ(said(), "");
  });
}

TEST_F(Cupti, WorkThatWasQueuedBeforeTheWindowIsNotInIt) {
  apart([&] {
    std::string error;
    launch_for(1);
    ASSERT_TRUE(start(&error)) << error;
    launch_for(2);
    EXPECT_EQ(steps(), std::vector<int>{2});
  });
}

TEST_F(Cupti, TellsWhatRanHowLongAndWhere) {
  apart([&] {
    std::string error;
    float* const memory = device(std::vector<float>(64));
    ASSERT_TRUE(start(&error, GPU_TRACE_ALL)) << error;
    set_activity_step(7);
    ASSERT_EQ(cudaMemsetAsync(memory, 0, 256, stream_), cudaSuccess);
    set_activity_step(-1);
    const std::vector<GpuActivity> all = read();
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].kind, GPU_ACTIVITY_API);
    EXPECT_STREQ(all[0].name, "cudaMemsetAsync");
    EXPECT_EQ(all[1].kind, GPU_ACTIVITY_FILL);
    EXPECT_EQ(all[1].bytes, 256);
    EXPECT_EQ(all[1].correlation, all[0].correlation);
    for (const GpuActivity& one : all) {
      EXPECT_EQ(one.plan_step, 7);
      EXPECT_LE(one.start_ns, one.end_ns);
    }
    EXPECT_LE(all[0].end_ns, all[1].start_ns) << "it ran when somebody waited";
  });
}

// More records than all buffers hold: those that were lost are counted.
TEST_F(Cupti, FullBuffersAreReadWhileOthersFill) {
  apart([&] {
    std::string error;
    ASSERT_TRUE(start(&error)) << error;
    constexpr int kWork = 30000;  // of 160 bytes and more: more than two buffers of 2 MiB
    for (int i = 0; i < kWork; ++i) launch_for(i % 100);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<GpuActivity> all(kWork + 10);
    all.resize(read_activity(true, all.data(), all.size()));
    ASSERT_EQ(all.size(), std::size_t{kWork});
    for (int i = 0; i < kWork; ++i) ASSERT_EQ(all[std::size_t(i)].plan_step, i % 100) << i;
    EXPECT_EQ(said(), "");
  });
}

TEST_F(Cupti, AnotherProfilerIsLeftAlone) {
  apart([&] {
    auto* const subscribe = function<cupti_api::Subscribe>("libcupti.so.13", "cuptiSubscribe");
    cupti_api::Subscriber other = nullptr;
    ASSERT_EQ(subscribe(
                  &other, [](void*, cupti_api::Domain, cupti_api::CallbackId, const void*) {}, nullptr),
              0);
    strict_fail("");
    std::string error;
    for (int window = 0; window < 2; ++window) {
      EXPECT_FALSE(start(&error));
      EXPECT_EQ(error,
                "subscribe: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (another profiler is attached)");
      stop_activity();
    }
    EXPECT_EQ(calls("cuptiSubscribe"), 1) << "it is asked once";
    for (const char* call : {"cuptiUnsubscribe", "cuptiActivityEnable", "cuptiActivityDisable",
                             "cuptiActivityRegisterCallbacks"})
      EXPECT_EQ(calls(call), 0) << call;
  });
}

TEST_F(Cupti, AHalfAttachedOneIsTakenOff) {
  for (const char* fault : {"cuptiEnableCallback:2", "cuptiActivityRegisterCallbacks:1",
                            "cuptiActivityRegisterTimestampCallback:1"}) {
    apart([&] {
      strict_fail(fault);
      std::string error;
      EXPECT_FALSE(start(&error));
      EXPECT_NE(error.find("CUPTI_ERROR_UNKNOWN"), std::string::npos) << error;
      EXPECT_EQ(calls("cuptiUnsubscribe"), 1);
      EXPECT_EQ(said(), "");
    });
  }
}

TEST_F(Cupti, AWindowThatDoesNotOpenIsOver) {
  apart([&] {
    strict_fail("cuptiActivityEnable:2");
    std::string error;
    EXPECT_FALSE(start(&error));
    EXPECT_NE(error.find("enable activities"), std::string::npos) << error;
    EXPECT_EQ(calls("cuptiActivityDisable"), 3);
    EXPECT_TRUE(start(&error)) << error;
    EXPECT_EQ(calls("cuptiSubscribe"), 1);
  });
}

// Records that do not come, or come in a later window, are said to be lost: in all windows that they may be of.
TEST_F(Cupti, RecordsThatDoNotComeAreSaidToBeLost) {
  for (const auto& [fault, spoiled] : {std::pair{"cuptiActivityFlushAll:1", 2},
                                       {"cuptiActivityFlushAll:2", 1},
                                       {"cuptiActivityGetNextRecord:2", 1},
                                       {"cuptiActivityGetNumDroppedRecords:1", 1},
                                       {"cuptiActivityDisable:1", 1}}) {
    apart([&, fault = fault, spoiled = spoiled] {
      strict_fail(fault);
      std::string error;
      int lost = 0;
      for (int window = 0; window < 4; ++window) {
        ASSERT_TRUE(start(&error)) << error;
        launch_for(1);
        launch_for(2);
        bool whole = true;
        for (const GpuActivity& one : read()) whole = whole && one.kind != GPU_ACTIVITY_LOST;
        stop_activity();
        launch_for(3);
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        lost += whole ? 0 : 1;
      }
      EXPECT_EQ(lost, spoiled) << fault;
      EXPECT_EQ(said(), "");
    });
  }
}

// Instantiation tells of its nodes as new ones and as copies.
TEST_F(Cupti, NodesOfGraphsKeepTheStepTheyWereRecordedFor) {
  apart([&] {
    std::string error;
    ASSERT_TRUE(start(&error)) << error;
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    launch_for(3);
    launch_for(8);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t program = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&program, graph, 0), cudaSuccess);
    stop_activity();
    ASSERT_EQ(cudaGraphLaunch(program, stream_), cudaSuccess);
    EXPECT_EQ(steps(), std::vector<int>{}) << "between windows";
    ASSERT_TRUE(start(&error)) << error;  // a later window
    for (int run = 0; run < 2; ++run) {
      ASSERT_EQ(cudaGraphLaunch(program, stream_), cudaSuccess);
      const std::vector<GpuActivity> all = read();
      ASSERT_EQ(all.size(), 2u);
      EXPECT_EQ(all[0].plan_step, 3);
      EXPECT_EQ(all[1].plan_step, 8);
      EXPECT_NE(all[0].graph_node, all[1].graph_node);
    }
    EXPECT_EQ(said(), "");
  });
}

TEST_F(Cupti, HasRules) {
  apart([&] {
    const auto get = [](const char* name, auto* type) {
      return function<std::remove_pointer_t<decltype(type)>>("libcupti.so.13", name);
    };
    EXPECT_NE(get("cuptiActivityEnable", static_cast<cupti_api::Enable*>(nullptr))(cupti_api::kMemcpy), 0);
    expect_said("before functions for buffers were registered");
    std::uint8_t buffer[64];
    cupti_api::Activity* record = nullptr;
    EXPECT_NE(get("cuptiActivityGetNextRecord", static_cast<cupti_api::GetNextRecord*>(nullptr))(buffer, 64,
                                                                                                 &record),
              0);
    expect_said("a buffer that was not given back");
    EXPECT_NE(get("cuptiFinalize", static_cast<int (*)()>(nullptr))(), 0);
    expect_said("graphs that were recorded under CUPTI break");
    std::uint32_t id = 0;
    EXPECT_NE(
        get("cuptiGetStreamIdEx", static_cast<cupti_api::GetStreamIdEx*>(nullptr))(nullptr, buffer, 0, &id),
        0);
    expect_said("the stream is none");
  });
}

}  // namespace
}  // namespace gradloom::strict
