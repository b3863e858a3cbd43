#include "kernels/gpu/program_text.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/gpu/programs.h"

namespace gradloom::kernels::test {
namespace {

using namespace gpu;

TEST(ProgramText, NumbersKeepTheirBits) {
  EXPECT_EQ(exact_text(1), "1.0");
  EXPECT_EQ(exact_text(0.1), "0.10000000000000001");
  EXPECT_EQ(exact_text(1e300), "1.0000000000000001e+300");
  EXPECT_EQ(exact_text(INFINITY), "__builtin_bit_cast(double, 0x7ff0000000000000ull)");
  EXPECT_EQ(index_text(7, false), "7u");
  EXPECT_EQ(index_text(7, true), "7ull");
}

TEST(ProgramText, OffsetsMergeTheDimsOfOneInput) {
  EwProgram program = program_of({4, 8, 16});
  // Every input needs its own dims, so that none is collapsed for all.
  program.inputs = {
      strided_input(DType::f32, {128, 16, 1}), strided_input(DType::f32, {0, 16, 1}),
      strided_input(DType::f32, {1, 0, 4}),    strided_input(DType::f32, {0, 0, 0}),
      strided_input(DType::f32, {0, -16, 1}),  strided_input(DType::f32, {std::int64_t{1} << 31, 16, 1})};
  program.outputs = {{0, DType::f32}};
  const ProgramLayout layout(program);
  const auto offset = [&](std::size_t i) { return offset_text(layout, layout.program.inputs[i], "i"); };
  EXPECT_EQ(offset(0), "i") << "dense";
  EXPECT_EQ(offset(1), "i % 128u");
  EXPECT_EQ(offset(2), "i % 16u * 4u + i / 128u");
  EXPECT_EQ(offset(3), "0");
  EXPECT_EQ(offset(4), "(long long)(i % 16u) * 1ll + (long long)(i / 16u % 8u) * -16ll")
      << "backwards: signed";
  EXPECT_EQ(offset(5), "(long long)(i % 128u) * 1ll + (long long)(i / 128u) * 2147483648ll")
      << "far: 64 bits";
}

TEST(ProgramText, InstructionsConvertWhatTheyStore) {
  EwProgram program = program_of({16});
  program.inputs = {strided_input(DType::f16, {1}), strided_input(DType::f32, {1})};
  program.constants = {{DType::f32, 2}, {DType::f32, 2.5}};
  program.outputs = {{0, DType::f16}};
  const ProgramLayout layout(program);
  const auto text = [&](EwOp op, DType type, DType result, std::array<std::int16_t, 3> operands,
                        std::uint64_t key = 0) {
    return instruction_text(layout, {op, type, result, operands, key}, {});
  };
  EXPECT_EQ(text(EwOp::Add, DType::f32, DType::f32, {1, 1, -1}), "op::Add<float>(r1, r1)");
  EXPECT_EQ(text(EwOp::Neg, DType::f16, DType::f16, {0, -1, -1}), "cast<f16>(op::Neg<float>(widen(r0)))");
  EXPECT_EQ(text(EwOp::Pow, DType::f32, DType::f32, {1, 2, -1}), "op::Square<float>(r1)");
  EXPECT_EQ(text(EwOp::Pow, DType::f32, DType::f32, {1, 3, -1}), "op::Pow<float>(r1, r3)");
  EXPECT_EQ(text(EwOp::Cast, DType::f32, DType::f8e5m2, {1, -1, -1}, 3), "cast<F8e5m2>(r1, 3u)");
}

TEST(ProgramText, RandomStreamsAreNamedOnce) {
  EwProgram program = program_of({16});
  for (const std::uint64_t key : {5u, 7u, 5u})
    program.code.push_back({EwOp::Uniform, DType::f32, DType::f32, {0, 0, -1}, key});
  program.code.push_back({EwOp::Exp, DType::f32, DType::f32, {0, -1, -1}, 9});
  EXPECT_EQ(random_keys(program), (std::vector<std::uint64_t>{5, 7}));
  EXPECT_EQ(stream_text(255), "params.random->seed ^ 0xffull, params.random->step");
}

}  // namespace
}  // namespace gradloom::kernels::test
