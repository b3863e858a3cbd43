// DepthToSpace and SpaceToDepth: they undo each other; errors.
#include <numeric>

#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

TEST(DepthSpace, UndoEachOther) {
  std::vector<double> contents(2 * 12 * 3 * 2);
  std::iota(contents.begin(), contents.end(), 0);
  const Attrs two{{"blocksize", std::int64_t{2}}};
  const std::vector<double> space = run("DepthToSpace", {tensor({2, 12, 3, 2}, contents)}, two);
  EXPECT_NE(space, contents);
  EXPECT_EQ(run("SpaceToDepth", {tensor({2, 3, 6, 4}, space)}, two), contents);
}

TEST(DepthSpace, ModesNumberChannelsDifferently) {
  const Tensor x = tensor({1, 8, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7});
  const std::int64_t two = 2;
  EXPECT_EQ(run("DepthToSpace", {x}, {{"blocksize", two}}), (std::vector<double>{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(run("DepthToSpace", {x}, {{"blocksize", two}, {"mode", std::string("CRD")}}),
            (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(DepthSpace, RefuseWhatDoesNotDivide) {
  EXPECT_TRUE(mentions(error_of("DepthToSpace", {f32({1, 6, 2, 2})}, {{"blocksize", std::int64_t{2}}}),
                       "6 channels"));
  EXPECT_TRUE(
      mentions(error_of("SpaceToDepth", {f32({1, 6, 2, 3})}, {{"blocksize", std::int64_t{2}}}), "3 pixels"));
  EXPECT_TRUE(
      mentions(error_of("DepthToSpace", {f32({4, 2, 2})}, {{"blocksize", std::int64_t{2}}}), "[n, c, h, w]"));
  EXPECT_TRUE(mentions(error_of("DepthToSpace", {f32({1, 4, 2, 2})}), "blocksize is 0"));
  EXPECT_TRUE(mentions(error_of("DepthToSpace", {f32({1, 4, 2, 2})},
                                {{"blocksize", std::int64_t{2}}, {"mode", std::string("RCD")}}),
                       "RCD"));
}

}  // namespace
}  // namespace gradloom
