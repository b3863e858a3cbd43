#include "engine/run/blocks.h"

#include <gtest/gtest.h>

#include "tests/engine/run/queued_device.h"

namespace gradloom {
namespace {

TEST(Blocks, ValuesLieWhereThePlanSays) {
  const SmallPlan small;
  QueuedDevice device;
  {
    Blocks blocks(small.plan, device);
    EXPECT_EQ(blocks.of(Place::arena), nullptr) << "nothing is taken yet";
    ASSERT_TRUE(blocks.allocate(static_cast<std::size_t>(small.plan.input_bytes) + 16).ok());
    EXPECT_EQ(blocks.address(kNone), nullptr);
    const auto at = [&](ValueId v) {
      return small.plan.buffers[static_cast<std::size_t>(small.plan.buffer_of[v])];
    };
    EXPECT_EQ(blocks.address(small.other), blocks.of(Place::input) + at(small.other).offset);
    EXPECT_EQ(blocks.address(small.y), blocks.of(Place::arena) + at(small.y).offset);
    EXPECT_NE(blocks.address(small.x), blocks.address(small.other));
    EXPECT_EQ(blocks.of(Place::constant), nullptr) << "of no bytes";
    EXPECT_EQ(device.live.size(), 3u);
  }
  EXPECT_TRUE(device.live.empty());
}

}  // namespace
}  // namespace gradloom
