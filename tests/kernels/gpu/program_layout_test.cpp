#include "kernels/gpu/program_layout.h"

#include <gtest/gtest.h>

#include "tests/kernels/gpu/programs.h"

namespace gradloom::kernels::test {
namespace {

using gpu::Access;
using gpu::ProgramLayout;

// out = a + b, of these dims and strides.
EwProgram sum_of(DType type, std::initializer_list<std::int64_t> dims, std::initializer_list<std::int64_t> a,
                 std::initializer_list<std::int64_t> b) {
  EwProgram program = program_of(dims);
  program.inputs = {strided_input(type, a), strided_input(type, b)};
  program.code = {{EwOp::Add, type, type, {0, 1, -1}, 0}};
  program.outputs = {{2, type}};
  return program;
}

TEST(ProgramLayout, LanesAreSixteenBytesOfTheNarrowestType) {
  EXPECT_EQ(ProgramLayout(sum_of(DType::f32, {8, 16}, {16, 1}, {16, 1})).lanes, 4);
  EXPECT_EQ(ProgramLayout(sum_of(DType::f16, {8, 16}, {16, 1}, {16, 1})).lanes, 8);
  EXPECT_EQ(ProgramLayout(sum_of(DType::f64, {8, 16}, {16, 1}, {16, 1})).lanes, 4);
  // A row of a broadcast operand ends where the next begins: whole vectors of 4, or single elements.
  EXPECT_EQ(ProgramLayout(sum_of(DType::f16, {8, 12}, {12, 1}, {0, 1})).lanes, 4);
  EXPECT_EQ(ProgramLayout(sum_of(DType::f16, {8, 13}, {13, 1}, {0, 1})).lanes, 1);
  EXPECT_EQ(ProgramLayout(sum_of(DType::f32, {8, 13}, {13, 1}, {13, 1})).lanes, 4)
      << "one row: its rest is handled";
}

TEST(ProgramLayout, InputsAreReadAsTheirStridesAllow) {
  const ProgramLayout rows(sum_of(DType::f32, {8, 16}, {16, 1}, {1, 0}));
  EXPECT_EQ(rows.access(0), Access::row_vector);
  EXPECT_EQ(rows.access(1), Access::row_constant);
  const ProgramLayout steps(sum_of(DType::f32, {8, 16}, {1, 8}, {0, 0}));
  EXPECT_EQ(steps.access(0), Access::row_steps) << "transposed";
  EXPECT_EQ(steps.access(1), Access::uniform);
  EXPECT_EQ(ProgramLayout(sum_of(DType::f32, {8, 16}, {18, 1}, {16, 1})).access(0), Access::row_steps)
      << "rows begin between the vectors' boundaries";
  EwProgram unread = sum_of(DType::f32, {64}, {1}, {1});
  unread.code[0].operands[1] = 0;
  EXPECT_EQ(ProgramLayout(unread).access(1), Access::unused);
}

TEST(ProgramLayout, BlocksCoverEveryElement) {
  EXPECT_EQ(ProgramLayout(sum_of(DType::f32, {1024}, {1}, {1})).blocks(), 1u);
  EXPECT_EQ(ProgramLayout(sum_of(DType::f32, {1025}, {1}, {1})).blocks(), 2u);
  EXPECT_EQ(ProgramLayout(sum_of(DType::f32, {0}, {1}, {1})).blocks(), 1u) << "a launch has a block";
  const ProgramLayout far(sum_of(DType::f32, {std::int64_t{1} << 31}, {1}, {1}));
  EXPECT_TRUE(far.wide);
  EXPECT_EQ(far.blocks(), 1u << 21);
}

}  // namespace
}  // namespace gradloom::kernels::test
