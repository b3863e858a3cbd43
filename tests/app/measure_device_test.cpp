#include "app/measure_device.h"

#include <gtest/gtest.h>

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
}

TEST(MeasureDevice, CanBeStopped) {
  std::stop_source stop;
  stop.request_stop();
  const auto speeds = measure_device("cpu", stop.get_token(), [](const std::string&, double) {});
  ASSERT_FALSE(speeds.ok());
  EXPECT_EQ(speeds.error().code, Errc::interrupted);
}

using DevicesCommand = Commands;

TEST_F(DevicesCommand, MeasuresWhatIsAskedFor) {
  expect_error({"devices", "--measure", "--device", "cuda:99"}, 2, "no such device");
  expect_error({"devices", "--device", "cpu"}, 2, "--measure");
}

}  // namespace
}  // namespace gradloom
