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

TEST(Blocks, LentMemoryIsUsedAndNotReleased) {
  const SmallPlan small;
  QueuedDevice device;
  Blocks lender(small.plan, device);
  ASSERT_TRUE(lender.allocate(static_cast<std::size_t>(small.plan.input_bytes)).ok());
  const std::size_t live = device.live.size();
  {
    LentMemory lent;
    lent.arena = lender.of(Place::arena);
    lent.arena_bytes = small.plan.arena_bytes;
    lent.states[small.other] = static_cast<std::byte*>(lender.address(small.other));
    Blocks blocks(small.plan, device, lent);
    ASSERT_TRUE(blocks.allocate(static_cast<std::size_t>(small.plan.input_bytes)).ok());
    EXPECT_EQ(blocks.address(small.y), lender.address(small.y));
    EXPECT_EQ(blocks.address(small.other), lender.address(small.other));
    EXPECT_NE(blocks.address(small.x), lender.address(small.x));
    EXPECT_TRUE(blocks.lent(small.other));
    EXPECT_FALSE(blocks.lent(small.x));
    lent.arena_bytes = small.plan.arena_bytes - 1;
    Blocks larger(small.plan, device, lent);
    ASSERT_TRUE(larger.allocate(static_cast<std::size_t>(small.plan.input_bytes)).ok());
    EXPECT_NE(larger.address(small.y), lender.address(small.y)) << "one of its own";
  }
  EXPECT_EQ(device.live.size(), live);
}

TEST(Blocks, StatesThatAreNotLentLieOneBehindTheOther) {
  const SmallPlan small;
  Plan plan = small.plan;
  const auto as_state = [&](ValueId v) {
    Buffer& buffer = plan.buffers[static_cast<std::size_t>(plan.buffer_of[v])];
    buffer.place = Place::state;
    buffer.offset = plan.state_bytes;
    plan.state_bytes += buffer.bytes;
    return buffer.offset;
  };
  const std::int64_t other = as_state(small.other), x = as_state(small.x);
  QueuedDevice device;
  Blocks lender(plan, device);
  ASSERT_TRUE(lender.allocate(64).ok());
  EXPECT_EQ(lender.address(small.x), lender.of(Place::state) + x);
  LentMemory lent;
  for (const char* name : {"other", "p"}) {
    const ValueId v = find_value(small.graph, name);
    lent.states[v] = static_cast<std::byte*>(lender.address(v));
  }
  Blocks blocks(plan, device, lent);
  ASSERT_TRUE(blocks.allocate(64).ok());
  EXPECT_EQ(blocks.address(small.other), lender.of(Place::state) + other);
  EXPECT_EQ(blocks.address(small.x), blocks.of(Place::state)) << "the block begins with it";
}

}  // namespace
}  // namespace gradloom
