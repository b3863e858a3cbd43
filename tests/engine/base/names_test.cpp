#include "engine/base/names.h"

#include <gtest/gtest.h>

#include "engine/base/hash.h"

namespace gradloom {
namespace {

TEST(NameHash, IsTheSameForTheSameNameAndSeeded) {
  EXPECT_EQ(NameHash()("conv1"), NameHash()("conv1"));
  EXPECT_NE(NameHash()("conv1"), NameHash()("conv2"));
  int unseeded = 0;
  for (const char* name : {"a", "b", "c", "d"}) unseeded += NameHash()(name) == hash64(name);
  EXPECT_EQ(unseeded, 0) << "a hash that a file can foresee";
}

TEST(NameMap, HoldsNames) {
  NameMap<int> map;
  for (int i = 0; i < 1000; ++i) map["n" + std::to_string(i)] = i;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(map.at("n" + std::to_string(i)), i);
  EXPECT_EQ(map.count("n1000"), 0u);
}

}  // namespace
}  // namespace gradloom
