#include "engine/run/input_slots.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/engine/run/queued_device.h"

namespace gradloom {
namespace {

using Row = std::array<float, 4>;
using Strings = std::vector<std::string>;

struct InputSlotsTest : ::testing::Test {
  SmallPlan small;
  QueuedDevice device;
  Blocks blocks{small.plan, device};
  InputSlots inputs{small.graph, small.plan, device, blocks};

  void SetUp() override {
    ASSERT_TRUE(blocks.allocate(inputs.block_bytes()).ok());
    ASSERT_TRUE(inputs.allocate().ok());
  }
  Status write(ValueId v, const Row& row) { return inputs.write(v, row.data(), sizeof row); }
  Row there(ValueId v) const {  // where the kernels read it
    Row row;
    std::memcpy(row.data(), blocks.address(v), sizeof row);
    return row;
  }
};

TEST_F(InputSlotsTest, WhatNobodyFedKeepsWhatItHad) {
  ASSERT_TRUE(inputs.holds(small.x));
  EXPECT_FALSE(inputs.holds(small.y)) << "computed";
  ASSERT_TRUE(write(small.x, {1, 2, 3, 4}).ok());
  ASSERT_TRUE(write(small.other, {5, 6, 7, 8}).ok());
  ASSERT_TRUE(inputs.send({11, 1}).ok());
  ASSERT_TRUE(write(small.x, {9, 9, 9, 9}).ok());
  EXPECT_EQ(there(small.x), (Row{1, 2, 3, 4})) << "the step before still reads it";
  ASSERT_TRUE(inputs.send({11, 2}).ok());
  EXPECT_EQ(there(small.x), (Row{9, 9, 9, 9}));
  EXPECT_EQ(there(small.other), (Row{5, 6, 7, 8}));
  EXPECT_EQ(inputs.random()->seed, 11u);
  EXPECT_EQ(inputs.random()->step, 2u);
}

// Two slots: the third batch may be written once the first has been copied on.
TEST_F(InputSlotsTest, ASlotIsWrittenAgainOnceItWasCopied) {
  const std::string bytes = std::to_string(inputs.block_bytes());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(inputs.send({0, 0}).ok());
  EXPECT_EQ(device.take_notes(),
            (Strings{"upload " + bytes, "copy " + bytes, "upload " + bytes, "copy " + bytes}));
  ASSERT_TRUE(write(small.x, {}).ok());
  ASSERT_TRUE(write(small.other, {}).ok());
  EXPECT_EQ(device.take_notes(), Strings{"wait 1"}) << "once, by the first write";
}

TEST(InputSlots, TheCpuReadsWhatIsWrittenAtOnce) {
  const SmallPlan small;
  const auto device = make_cpu_device();
  Blocks blocks(small.plan, *device);
  InputSlots inputs(small.graph, small.plan, *device, blocks);
  ASSERT_TRUE(blocks.allocate(inputs.block_bytes()).ok());
  ASSERT_TRUE(inputs.allocate().ok());
  const Row row{1, 2, 3, 4};
  EXPECT_FALSE(inputs.holds(small.x));
  ASSERT_TRUE(inputs.write(small.x, row.data(), sizeof row).ok());
  EXPECT_EQ(std::memcmp(blocks.address(small.x), row.data(), sizeof row), 0);
  ASSERT_TRUE(inputs.send({3, 4}).ok());
  inputs.set_random_step(9);
  EXPECT_EQ(inputs.random()->seed, 3u);
  EXPECT_EQ(inputs.random()->step, 9u);
}

}  // namespace
}  // namespace gradloom
