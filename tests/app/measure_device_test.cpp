#include "app/measure_device.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

TEST(MeasureDevice, TellsWhatMemoryAndProductsReach) {
  double last = -1;
  const auto speeds = measure_device("cpu", {}, [&](const std::string&, double fraction) {
    EXPECT_GT(fraction, last);
    EXPECT_LT(fraction, 1);
    last = fraction;
  });
  ASSERT_TRUE(speeds.ok()) << speeds.error().message;
  ASSERT_EQ(speeds->memory.size(), 4u);
  for (const MemorySpeed& m : speeds->memory) EXPECT_GT(m.bytes_per_ns, 0.01) << m.bytes;
  ASSERT_GE(speeds->products.size(), 2u) << "f32 and f64 at least";
  EXPECT_EQ(speeds->products.front().type, DType::f32);
  for (const ProductSpeed& p : speeds->products) EXPECT_GT(p.flops_per_ns, 0.1) << dtype_name(p.type);
  // Each kind of kernel in f32, at three sizes at least of which the largest takes longest.
  std::map<std::string, std::map<double, double>> f32;
  std::set<std::string> types;
  for (const TypeTime& t : speeds->types) {
    EXPECT_GT(t.size, 0) << t.op;
    types.insert(t.type);
    if (t.type == "f32") f32[t.op][t.size] = t.ns;
  }
  EXPECT_EQ(types.size(), speeds->products.size());
  EXPECT_EQ(f32.size(), 9u);
  for (const auto& [op, ns] : f32) {
    EXPECT_EQ(ns.size(), 3u) << op;
    EXPECT_LT(ns.begin()->second, ns.rbegin()->second) << op;
  }
}

TEST(MeasureDevice, CanBeStopped) {
  std::stop_source stop;
  stop.request_stop();
  const auto speeds = measure_device("cpu", stop.get_token(), [](const std::string&, double) {});
  ASSERT_FALSE(speeds.ok());
  EXPECT_EQ(speeds.error().code, Errc::interrupted);
}

using DevicesCommand = Commands;

TEST_F(DevicesCommand, NothingIsLoadedFromTheCurrentFolder) {
  for (const char* kind : {"cuda", "hip", "mpi", "tcp"})
    std::ofstream(path(std::string("libgradloom_") + kind + ".so")) << "no library";
  const std::string program = fs::path(GRADLOOM_COMMAND).parent_path().string();
  // By a name that is looked for: then the program's name has no folder in it.
  const std::string line = "cd " + path("") + " && PATH=" + program + ":$PATH && gradloom devices > " +
                           path("stdout") + " 2> " + path("stderr");
  EXPECT_EQ(std::system(line.c_str()), 0) << read_file(path("stderr"));
  const std::string said = read_file(path("stdout")) + read_file(path("stderr"));
  EXPECT_EQ(said.find("too short"), std::string::npos) << said;
  EXPECT_EQ(said.find("./libgradloom"), std::string::npos) << said;
}

TEST_F(DevicesCommand, MeasuresWhatIsAskedFor) {
  expect_error({"devices", "--measure", "--device", "cuda:99"}, 2, "no such device");
  expect_error({"devices", "--device", "cpu"}, 2, "--measure");
}

}  // namespace
}  // namespace gradloom
