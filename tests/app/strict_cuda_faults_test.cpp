// Each call of the driver fails once, in a program of its own: it ends with a documented exit code and one clear line, or goes on where
// it can do without; it gives back what it took and does nothing that is forbidden on the way. Calls are many, so they are sampled evenly:
// GRADLOOM_TEST_DRIVER_FAULTS is how many of each kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/app/command_fixture.h"
#include "tests/app/strict_cuda.h"
#include "tests/environment.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

class StrictCudaFaults : public Commands {
 protected:
  void SetUp() override { use_strict_cuda(); }
  std::vector<std::string> job(const char* strict_libraries = "off", const char* profile = "sampled",
                               const char* record = "on") const {
    return train_mlp({"--device", kStrictDevice, "--steps", "3", "--session", path("session.gradloom"),
                      "--strict-libraries", strict_libraries, "--profile", profile, "--record", record});
  }
  Outcome run_failing(const std::string& fault, const char* strict_libraries) {
    const Setting setting("GRADLOOM_STRICT_FAIL", fault.c_str());
    fs::remove(path("session.gradloom"));
    return run(job(strict_libraries));
  }
  // How many calls of each kind the job makes.
  std::map<std::string, std::int64_t> counts() const {
    const Setting setting("GRADLOOM_STRICT_COUNTS", path("counts").c_str());
    const Outcome o = run(job());
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.err.find("strict driver"), std::string::npos) << o.err;
    std::map<std::string, std::int64_t> counts;
    std::ifstream file(path("counts"));
    std::string name;
    for (std::int64_t count; file >> name >> count;) counts[name] = count;
    return counts;
  }
};

// It went on, or ended with one clear line behind the notes of steps that ran (what is missing here: a trace of HIP). True: it ended.
bool ended_with_one_line(const Outcome& o, const std::string& fault) {
  EXPECT_EQ(o.err.find("strict driver"), std::string::npos) << fault << ": " << o.err;
  EXPECT_TRUE(o.code == 0 || o.code == 6) << fault << ": " << o.code << " " << o.err;
  if (o.code == 0) return false;
  std::string error = o.err;
  while (error.rfind("note: ", 0) == 0) error.erase(0, error.find('\n') + 1);
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << fault << ": " << o.err;
  EXPECT_EQ(error.rfind("gradloom: ", 0), 0u) << fault << ": " << o.err;
  return true;
}

TEST_F(StrictCudaFaults, EndWithOneLine) {
  const char* const wanted = std::getenv("GRADLOOM_TEST_DRIVER_FAULTS");
  const std::int64_t most = wanted != nullptr ? std::atoll(wanted) : 20;
  auto count = counts();
  ASSERT_GT(count["calls"], 100);
  ASSERT_GT(count["work"], 10);
  const std::pair<const char*, const char*> kinds[] = {
      {"memory", "allocations"}, {"launch", "launches"}, {"lost", "calls"}, {"fault", "work"}};
  for (const auto& [kind, counted] : kinds) {
    const std::int64_t all = count[counted];
    int ended = 0;
    for (std::int64_t i = 0; i < std::min(all, most); ++i) {
      const std::string fault = std::string(kind) + ":" + std::to_string(1 + i * all / std::min(all, most));
      const Outcome o = run_failing(fault, "off");
      if (!ended_with_one_line(o, fault)) continue;
      ++ended;
      EXPECT_NE(o.err.find(GRADLOOM_STRICT_KIND), std::string::npos) << fault << ": " << o.err;
    }
    EXPECT_GT(ended, std::min(all, most) / 2) << kind << ": did it fail at all?";
  }
}

// Each call of the compiler of programs fails once, with none of them kept from before: training ends with its words, or goes on where the
// call only gives back or asks.
TEST_F(StrictCudaFaults, EndWhereTheCompilerFails) {
  const auto compile_anew = [&] { fs::remove_all(path("cache")); };
  const Setting cache("GRADLOOM_CACHE", path("cache").c_str());
  compile_anew();
  int calls = 0, ended = 0;
  for (const auto& [name, count] : counts()) {
    if (name.find("rtc") == std::string::npos) continue;
    ++calls;
    for (const std::int64_t number : std::set<std::int64_t>{1, count}) {
      const std::string fault = name + ":" + std::to_string(number);
      compile_anew();
      ended += ended_with_one_line(run_failing(fault, "off"), fault) ? 1 : 0;
    }
  }
  EXPECT_GE(calls, 5);
  EXPECT_GE(ended, 4) << "creating, compiling, the code and its size";
}

// A library of products: what its calls begin with, what a run says of it and of its failures, how many calls it has at least, and
// whether it has epilogues.
struct ProductLibrary {
  const char *calls, *shown, *failure;
  int at_least;
  bool epilogues;
  const char* switched_off;  // the setting that leaves out who is asked before it; null: nobody
};
constexpr ProductLibrary kProductLibraries[] = {
    {"cublasLt", "gemm: cublasLt 13.1.0 (algorithm 66, ", ": CUBLAS_STATUS_", 10, true, nullptr},
    {"hipblasLt", "gemm: hipblaslt 1.0.0 (solution ", ": status ", 10, true, nullptr},
    {"rocblas_", "gemm: rocblas 5.0.0 (standard algorithm)", ": status ", 5, false, "GRADLOOM_HIPBLASLT"}};

// Each call of a library fails: where it is made last another library or our own kernels serve, and the run says so; where it is made
// first the run ends if it is to have nothing but libraries. Calls that give back or only tell are missed by nobody.
TEST_F(StrictCudaFaults, OthersServeWhereALibraryFails) {
  const bool hip = std::string(GRADLOOM_STRICT_KIND) == "hip";
  for (const ProductLibrary& library : kProductLibraries) {
    if ((std::string(library.calls) != "cublasLt") != hip) continue;
    const Setting off(library.switched_off != nullptr ? library.switched_off : "GRADLOOM_TEST_NOTHING", "0");
    const auto all = counts();
    const Outcome shown = run({"show", path("session.gradloom"), "--group", "implementation"});
    EXPECT_NE(shown.out.find(library.shown), std::string::npos) << shown.out;
    EXPECT_EQ(shown.out.find(library.epilogues ? "our own" : "gemm: our own"), std::string::npos)
        << shown.out;
    int calls = 0;
    for (const auto& [name, count] : all) {
      if (name.rfind(library.calls, 0) != 0) continue;
      ++calls;
      const bool needed = !std::regex_search(name, std::regex("[dD]estroy|ConfigGet|GetVersion"));
      const std::string last = name + ":" + std::to_string(count), first = name + ":1";
      const Outcome served = run_failing(last, "off"), ended = run_failing(first, "on");
      EXPECT_EQ(served.code, 0) << last << ": " << served.err;
      EXPECT_EQ(served.err.find(library.failure) != std::string::npos, needed) << last << ": " << served.err;
      EXPECT_EQ(ended.code, needed ? 6 : 0) << first << ": " << ended.err;
      for (const Outcome& o : {served, ended})
        EXPECT_EQ(o.err.find("strict driver"), std::string::npos) << name << ": " << o.err;
    }
    EXPECT_GE(calls, library.at_least) << library.calls;
  }
}

// A convolution that cuDNN has taken fails once: it is ours from then on, and the run says so.
TEST_F(StrictCudaFaults, OwnConvolutionsServeWhereCudnnFails) {
  const std::string model = GRADLOOM_SOURCE_DIR "/tests/models/cnn-digits/model.onnx";
  const std::vector<std::string> train = {"train",   model,     "--loss",    "ce:logits,labels",
                                          "--dim",   "batch=1", "--device",  kStrictDevice,
                                          "--steps", "1",       "--session", path("session.gradloom")};
  const Outcome whole = run(train);
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Outcome shown = run({"show", path("session.gradloom"), "--group", "implementation"});
  EXPECT_NE(shown.out.find("convolution: cudnn 9.19.0 (engine 17)"), std::string::npos) << shown.out;
  EXPECT_EQ(shown.out.find("convolution: our own"), std::string::npos) << shown.out;
  fs::remove(path("session.gradloom"));
  const Setting setting("GRADLOOM_STRICT_FAIL", "cudnnBackendExecute:1");
  const Outcome served = run(train);
  EXPECT_EQ(served.code, 0) << served.err;
  EXPECT_NE(served.err.find("cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED"), std::string::npos)
      << served.err;
  for (const Outcome& o : {whole, served}) EXPECT_EQ(o.err.find("strict driver"), std::string::npos) << o.err;
}

// Every kernel of the plan has a time of CUPTI's, whether the step is recorded or not.
TEST_F(StrictCudaFaults, OwnTimesAreThoseOfTheTrace) {
  for (const char* record : {"on", "off"}) {
    fs::remove(path("session.gradloom"));
    const Outcome o = run(job("off", "all", record));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.err.find("strict driver"), std::string::npos) << o.err;
    EXPECT_EQ(o.err.find("times of kernels"), std::string::npos) << o.err;
    const Outcome shown = run({"show", path("session.gradloom")});
    EXPECT_TRUE(std::regex_search(shown.out, std::regex("compute\\) +kernel +13 "))) << shown.out;
  }
}

// Each call of CUPTI fails once: training goes on, and says so where times are not CUPTI's.
TEST_F(StrictCudaFaults, OwnTimesAreMissedWhereTheTraceFails) {
  int calls = 0;
  for (const auto& [name, count] : counts()) {
    if (name.rfind("cupti", 0) != 0) continue;
    ++calls;
    const Setting setting("GRADLOOM_STRICT_FAIL", (name + ":1").c_str());
    fs::remove(path("session.gradloom"));
    const Outcome o = run(job("off", "all"));
    EXPECT_EQ(o.code, 0) << name << ": " << o.err;
    EXPECT_EQ(o.err.find("strict driver"), std::string::npos) << name << ": " << o.err;
    const bool only_names = name == "cuptiGetGraphNodeId" || name == "cuptiGetStreamIdEx";
    EXPECT_EQ(o.err.find("times of kernels are from ") == std::string::npos, only_names)
        << name << ": " << o.err;
  }
  EXPECT_GT(calls, 9);
}

}  // namespace
}  // namespace gradloom
