#include <gtest/gtest.h>

#include <cstring>

#include "engine/device/device.h"

namespace gradloom {
namespace {

TEST(CpuDevice, MemoryIsAlignedAndCounted) {
  const auto device = make_cpu_device();
  const auto a = device->allocate(1000), b = device->allocate(5 << 20);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*a) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*b) % 64, 0u);
  EXPECT_EQ(device->peak_bytes(), 1000 + (5 << 20));
  device->release(*b);
  const auto c = device->allocate(24);
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(device->peak_bytes(), 1000 + (5 << 20));
  const char text[] = "gradient";
  char back[sizeof text] = "";
  ASSERT_TRUE(device->upload(*c, text, sizeof text).ok());
  ASSERT_TRUE(device->download(back, *c, sizeof text).ok());
  EXPECT_STREQ(back, text);
}

TEST(CpuDevice, AnImpossibleRequestIsAnError) {
  const auto device = make_cpu_device();
  const auto memory = device->allocate(std::size_t{1} << 60);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, Errc::device);
}

TEST(Devices, UnavailableOnesSayWhy) {
  EXPECT_TRUE(open_device("cpu").ok());
  EXPECT_EQ(open_device("cuda:0").error().code, Errc::device);
  EXPECT_NE(open_device("hip:1").error().message.find("cannot be used"), std::string::npos);
  EXPECT_EQ(open_device("tpu").error().code, Errc::usage);
  for (const DeviceInfo& d : list_devices()) EXPECT_NE(d.available, !d.why_not.empty()) << d.id;
}

}  // namespace
}  // namespace gradloom
