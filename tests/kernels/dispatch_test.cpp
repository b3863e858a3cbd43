// Choice of the x86-64 level and the thread count.
#include <cstdlib>

#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

TEST(Dispatch, LevelsAreDistinctAndOrdered) {
  const auto all = levels();
  ASSERT_FALSE(all.empty());
  for (std::size_t i = 1; i < all.size(); ++i) {
    EXPECT_LT(std::string(all[i - 1]->isa), all[i]->isa);
    EXPECT_NE(all[i - 1]->reduce, all[i]->reduce);
  }
  EXPECT_STREQ(all.front()->isa,
               all.size() > 1 || std::string(all.front()->isa) == "v2" ? "v2" : all.front()->isa);
}

TEST(Dispatch, TheBestAllowedLevelIsUsed) {
  const char* const limit = std::getenv("GRADLOOM_ISA");
  std::string best;
  for (const CpuKernels* level : levels()) {
    if (limit == nullptr || std::string(level->isa) <= limit) best = level->isa;
  }
  EXPECT_EQ(best, cpu().isa);
}

TEST(Dispatch, ThreadCountIsKept) {
  set_threads(3);
  EXPECT_EQ(threads(), 3);
  set_threads(1);
  EXPECT_EQ(threads(), 1);
  set_threads(0);
  EXPECT_GE(threads(), 1);
  set_threads(2);
}

}  // namespace
}  // namespace gradloom::kernels::test
