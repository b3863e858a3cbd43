#include "engine/device/gpu/runtime/error_code.h"

#include <gtest/gtest.h>

#include <set>

namespace gradloom::kernels::gpu {
namespace {

// cudaError of driver_types.h: those whose text says that the process must be terminated, and the ones that
// drivers give for hardware.
TEST(ErrorCode, LostDevicesAreThoseOfTheDocumentation) {
  const std::set<int> lost = {214, 220, 226, 700, 702, 709, 710, 714, 715,
                              716, 717, 718, 719, 721, 810, 911, 999};
  for (int error = 0; error < 1000; ++error)
    EXPECT_EQ(status_of(error) == GPU_DEVICE_LOST, lost.count(error) == 1) << error;
}

TEST(ErrorCode, WhatTheCallerCanActOn) {
  EXPECT_EQ(status_of(0), GPU_OK);
  EXPECT_EQ(status_of(2), GPU_OUT_OF_MEMORY);
  EXPECT_EQ(status_of(35), GPU_NO_DRIVER);
  EXPECT_EQ(status_of(100), GPU_NO_DEVICE);
  EXPECT_EQ(status_of(9), GPU_LAUNCH_FAILED);
  EXPECT_EQ(status_of(701), GPU_LAUNCH_FAILED);
  EXPECT_EQ(status_of(600), GPU_NOT_READY);
  EXPECT_EQ(status_of(901), GPU_FAILED);
}

}  // namespace
}  // namespace gradloom::kernels::gpu
