// What a GPU's kernels were computed with, from the device to what commands say, on host-gpu, whose products have a library's
// stand-in (engine/device/gpu/host/products.h).
#include "tests/app/command_fixture.h"
#include "tests/app/host_gpu_support.h"
#include "tests/environment.h"

namespace gradloom {
namespace {

class ImplementationCommands : public Commands {
 protected:
  // Batches of 2048, so that products that make gradients of weights have slices; those that a pass has sum a bias's gradient
  // beside have none.
  std::vector<std::string> train(std::vector<std::string> more) const {
    std::vector<std::string> args{"train",       model("mlp") + "/model.onnx",
                                  "--dim",       "batch=2048",
                                  "--loss",      "ce:logits,labels",
                                  "--optimizer", "sgd{lr=0.01}",
                                  "--device",    "host-gpu",
                                  "--steps",     "3",
                                  "--profile",   "all",
                                  "--passes",    "none",
                                  "--json"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  // Of the run in the session: how many kernels have an implementation with these words.
  int kernels_with(const std::string& words, bool failed) const {
    int count = 0;
    const Outcome shown = run({"show", path("s.db"), "--json"});
    EXPECT_EQ(shown.code, 0) << shown.err;
    const json run_json = shown.lines().at(0);
    for (const json& kernel : run_json["kernels"])
      count += kernel["implementation"].get<std::string>().find(words) != std::string::npos &&
               kernel["library_failed"] == failed;
    return count;
  }
};

TEST_F(ImplementationCommands, AreShownOfEveryProduct) {
  REQUIRE_HOST_GPU();
  const Outcome trained = run(train({"--session", path("s.db")}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(trained.err.find("a library"), std::string::npos) << trained.err;
  const int sliced = kernels_with("gemm: host-gpu tiles 1 (slices)", false);
  EXPECT_GT(sliced, 0);
  EXPECT_GT(kernels_with("gemm: our own (there is one way to compute it)", false), 0);
  const Outcome shown = run({"show", path("s.db")});
  EXPECT_NE(shown.out.find("computed by"), std::string::npos) << shown.out;
  const Outcome grouped = run({"show", path("s.db"), "--group", "implementation"});
  EXPECT_NE(grouped.out.find("gemm: host-gpu tiles 1 (slices)"), std::string::npos) << grouped.out;
  ASSERT_EQ(run({"trace", path("s.db"), "-o", path("trace.json")}).code, 0);
  EXPECT_NE(read_file(path("trace.json")).find("\"implementation\":\"gemm: host-gpu tiles 1 (slices)\""),
            std::string::npos);
}

TEST_F(ImplementationCommands, AFailureIsToldAndMadeGood) {
  REQUIRE_HOST_GPU();
  const Setting fail("GRADLOOM_HOSTGPU_FAIL",
                     "library:1=5,library:2=5,library:3=5,library:4=5,library:5=5,"
                     "library:6=5,library:7=5,library:8=5,library:9=5");
  const Outcome trained = run(train({"--session", path("s.db"), "--record", "off"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.err.find("a library is missing or failed at"), std::string::npos) << trained.err;
  EXPECT_NE(trained.err.find("host-gpu tiles 1: status 5 on demand"), std::string::npos) << trained.err;
}

TEST_F(ImplementationCommands, AFailureEndsAStrictRun) {
  REQUIRE_HOST_GPU();
  const Setting fail("GRADLOOM_HOSTGPU_FAIL", "library:1=5");
  const Outcome trained = run(train({"--session", path("s.db"), "--strict-libraries", "on"}));
  EXPECT_EQ(trained.code, 6) << trained.err;
  EXPECT_NE(trained.err.find("(matmul): gemm: host-gpu tiles 1: status 5 on demand (an error with "
                             "--strict-libraries on)"),
            std::string::npos)
      << trained.err;
  EXPECT_EQ(kernels_with("gemm: our own (host-gpu tiles 1: status 5 on demand)", true), 1)
      << "the session knows it too";
}

// A device whose driver gives no trace times its kernels by events, and says so; losses are the same.
TEST_F(ImplementationCommands, WithoutATraceEventsTime) {
  REQUIRE_HOST_GPU();
  const Outcome traced = run(train({}));
  ASSERT_EQ(traced.code, 0) << traced.err;
  const Setting fail("GRADLOOM_HOSTGPU_FAIL", "set_trace:1=3,set_trace:2=3,set_trace:3=3");
  const Outcome timed = run(train({"--session", path("s.db")}));
  ASSERT_EQ(timed.code, 0) << timed.err;
  const std::string note = "times of kernels are from events: set_trace";
  EXPECT_NE(timed.err.find(note), std::string::npos) << timed.err;
  EXPECT_EQ(timed.err.find(note), timed.err.rfind(note)) << "once";
  const json shown = run({"show", path("s.db"), "--json"}).lines().at(0);
  EXPECT_EQ(shown["environment"]["gpu.kernel_times"].get<std::string>().rfind("events: ", 0), 0u);
  for (const json& kernel : shown["kernels"]) EXPECT_EQ(kernel["samples"], 3) << kernel["node"];
  const auto last_loss = [](const Outcome& o) { return o.lines().back()["summary"]["last_loss"]; };
  EXPECT_EQ(last_loss(timed), last_loss(traced));
}

}  // namespace
}  // namespace gradloom
