// Elementwise programs: broadcasting, fusion, in-place use. What the operators compute:
// elementwise_tiles_test.cpp.
#include "kernels/elementwise.h"

#include "tests/kernels/elementwise_support.h"

namespace gradloom::kernels::test {
namespace {

// ---- shapes -----------------------------------------------------------------------------------------------

template <class T>
void check_broadcast(const Dims& dims, const Dims& b_dims, const Dims& c_dims, bool collapse) {
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= d;
  const auto count = [](const Dims& shape) {
    std::int64_t product = 1;
    for (const std::int64_t d : shape) product *= d;
    return product;
  };
  EwProgram program = program_over(dims);
  program.inputs = {input_of(dtype_of<T>(), dims), input_of(dtype_of<T>(), b_dims),
                    input_of(dtype_of<T>(), c_dims)};
  program.constants = {{dtype_of<T>(), 0.25}};
  program.code = {{EwOp::Add, dtype_of<T>(), dtype_of<T>(), {0, 1, -1}, 0},
                  {EwOp::Mul, dtype_of<T>(), dtype_of<T>(), {4, 2, -1}, 0},
                  {EwOp::Sub, dtype_of<T>(), dtype_of<T>(), {5, 3, -1}, 0}};
  program.outputs = {{6, dtype_of<T>()}};
  const auto a = values<T>(n, 1), b = values<T>(count(b_dims), 2), c = values<T>(count(c_dims), 3);
  std::vector<double> expected;
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t rest = i, ib = 0, ic = 0;
    for (std::size_t d = dims.size(); d-- > 0;) {
      ib += rest % dims[d] * program.inputs[1].strides[d];
      ic += rest % dims[d] * program.inputs[2].strides[d];
      rest /= dims[d];
    }
    expected.push_back((double(a[std::size_t(i)]) + double(b[std::size_t(ib)])) * double(c[std::size_t(ic)]) -
                       0.25);
  }
  if (collapse) ew_collapse_dims(program);
  expect_on_every_level(
      [&](const CpuKernels& k) {
        return run<T>(k, program, {a.data(), b.data(), c.data()}, n);
      },
      expected, elementwise_tolerance<T>());
}

TEST(Elementwise, Broadcasting) {
  for (const bool collapse : {false, true}) {
    check_broadcast<float>({}, {}, {}, collapse);
    check_broadcast<float>({1}, {1}, {1}, collapse);
    check_broadcast<float>({512, 128}, {1, 128}, {512, 1}, collapse);
    check_broadcast<float>({37, 41, 43}, {1, 41, 1}, {37, 1, 43}, collapse);
    check_broadcast<double>({5, 7, 1, 11}, {5, 1, 1, 11}, {1, 7, 1, 1}, collapse);
    check_broadcast<double>({3, 5, 7, 11, 13}, {1, 5, 1, 11, 1}, {3, 1, 7, 1, 13}, collapse);
    check_broadcast<float>({0, 5}, {1, 5}, {0, 1}, collapse);
    check_broadcast<float>({2, 3, 2, 3, 2, 3, 2, 3}, {2, 1, 2, 1, 2, 1, 2, 1}, {1, 3, 1, 3, 1, 3, 1, 3},
                           collapse);
  }
}

TEST(Elementwise, CollapseMergesAndDropsDims) {
  EwProgram program = program_over({4, 1, 5, 6});
  program.inputs = {input_of(DType::f32, {4, 1, 5, 6}), input_of(DType::f32, {1, 1, 5, 6})};
  ew_collapse_dims(program);
  EXPECT_EQ(program.rank, 2);
  EXPECT_EQ(program.dims[0], 4);
  EXPECT_EQ(program.dims[1], 30);
  EXPECT_EQ(program.inputs[0].strides[0], 30);
  EXPECT_EQ(program.inputs[1].strides[0], 0);
  EXPECT_EQ(program.inputs[1].strides[1], 1);
}

// Of rows of two dims: what is the same along them is one number per row; each reduction is waited for by what reads it.
TEST(Elementwise, RowsOfAProgram) {
  const DType f = DType::f32;
  for (const bool collapse : {false, true}) {
    EwProgram program = program_over({5, 3, 4});
    program.row = 12;
    program.inputs = {input_of(f, {5, 3, 4}), input_of(f, {5, 1, 1}), input_of(f, {1, 3, 1}),
                      input_of(f, {1, 1, 1}), input_of(f, {1, 1, 4})};
    program.constants = {{f, 2}};
    program.code = {{EwOp::Add, f, f, {0, 2, -1}, 0}, {EwOp::RowSum, f, f, {6, -1, -1}, 0},
                    {EwOp::Mul, f, f, {1, 3, -1}, 0}, {EwOp::Div, f, f, {7, 5, -1}, 0},
                    {EwOp::Sub, f, f, {4, 9, -1}, 0}, {EwOp::RowMax, f, f, {10, -1, -1}, 0}};
    if (collapse) ew_collapse_dims(program);
    const std::vector<EwRowPlace> places = ew_row_places(program);
    const bool per_row[] = {false, true, false, true, false, true, false, true, true, true, false, true};
    const int wave[] = {0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 2};
    ASSERT_EQ(places.size(), std::size(per_row));
    for (std::size_t r = 0; r < places.size(); ++r) {
      EXPECT_EQ(places[r].per_row, per_row[r]) << r;
      EXPECT_EQ(places[r].wave, wave[r]) << r;
    }
  }
  // Dense inputs alone are one dim, rows and all.
  EwProgram dense = program_over({5, 12});
  dense.row = 12;
  dense.inputs = {input_of(f, {5, 12}), input_of(f, {1, 1})};
  ew_collapse_dims(dense);
  ASSERT_EQ(dense.rank, 1);
  EXPECT_FALSE(ew_row_places(dense)[0].per_row);
  EXPECT_TRUE(ew_row_places(dense)[1].per_row);
}

TEST(Elementwise, StridedAndTransposedInputs) {
  const std::int64_t rows = 67, cols = 129;
  const auto x = values<float>(rows * cols, 8);
  EwProgram program = program_over({cols, rows});
  EwInput transposed{DType::f32, {}};
  transposed.strides[0] = 1;
  transposed.strides[1] = cols;
  program.inputs = {transposed};
  program.code = {{EwOp::Neg, DType::f32, DType::f32, {0, -1, -1}, 0}};
  program.outputs = {{1, DType::f32}};
  std::vector<double> expected;
  for (std::int64_t c = 0; c < cols; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) expected.push_back(-double(x[std::size_t(r * cols + c)]));
  }
  expect_on_every_level([&](const CpuKernels& k) { return run<float>(k, program, {x.data()}, rows * cols); },
                        expected, {0, 0});
}

// ---- programs ---------------------------------------------------------------------------------------------

TEST(Elementwise, InPlaceWithSeveralOutputs) {
  const std::int64_t n = 50021;
  const auto a = values<float>(n, 1), b = values<float>(n, 2);
  EwProgram program = program_over({n});
  program.inputs = {input_of(DType::f32, {n}), input_of(DType::f32, {n})};
  // sum = a + b goes over a; product = a * b still needs a and goes over b.
  program.code = {{EwOp::Add, DType::f32, DType::f32, {0, 1, -1}, 0},
                  {EwOp::Mul, DType::f32, DType::f32, {0, 1, -1}, 0}};
  program.outputs = {{2, DType::f32}, {3, DType::f32}};
  for (const CpuKernels* k : levels()) {
    auto x = a, y = b;
    const void* inputs[] = {x.data(), y.data()};
    void* outputs[] = {x.data(), y.data()};
    k->elementwise({&program, inputs, outputs, nullptr});
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(x[i], a[i] + b[i]) << i;
      ASSERT_EQ(y[i], a[i] * b[i]) << i;
    }
  }
}

TEST(Elementwise, OutputsThatAreInputsConstantsOrRepeated) {
  const std::int64_t n = 3001;
  const auto a = values<float>(n, 1);
  const float scalar = 4.5f;
  EwProgram program = program_over({n});
  program.inputs = {input_of(DType::f32, {n}), EwInput{DType::f32, {}}};
  program.constants = {{DType::i64, -7}};
  program.code = {{EwOp::Add, DType::f32, DType::f32, {0, 1, -1}, 0}};
  program.outputs = {{0, DType::f32}, {1, DType::f32}, {2, DType::i64}, {3, DType::f32}, {3, DType::f32}};
  for (const CpuKernels* k : levels()) {
    std::vector<float> o0(a.size()), o1(a.size()), o3(a.size()), o4(a.size());
    std::vector<std::int64_t> o2(a.size());
    const void* inputs[] = {a.data(), &scalar};
    void* outputs[] = {o0.data(), o1.data(), o2.data(), o3.data(), o4.data()};
    k->elementwise({&program, inputs, outputs, nullptr});
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(o0[i], a[i]);
      ASSERT_EQ(o1[i], scalar);
      ASSERT_EQ(o2[i], -7);
      ASSERT_EQ(o3[i], a[i] + scalar);
      ASSERT_EQ(o4[i], a[i] + scalar);
    }
  }
}

// A long program of mixed types, against one-instruction programs run one after the other: the same bits.
TEST(Elementwise, FusedEqualsStepByStep) {
  const std::int64_t n = 40009;
  const auto a = values<float>(n, 1), b = values<float>(n, 2);
  EwProgram fused = program_over({n});
  fused.inputs = {input_of(DType::f32, {n}), input_of(DType::f32, {n})};
  const EwOp ops[] = {EwOp::Mul, EwOp::Gelu, EwOp::Add, EwOp::Tanh, EwOp::Sub, EwOp::Sigmoid};
  std::int16_t last = 0;
  for (int i = 0; i < 120; ++i) {
    const EwOp op = ops[i % 6];
    const bool two = op == EwOp::Mul || op == EwOp::Add || op == EwOp::Sub;
    const std::int16_t other = i > 30 ? std::int16_t(2 + i % 29) : std::int16_t(1);
    fused.code.push_back({op, DType::f32, DType::f32, {last, two ? other : std::int16_t(-1), -1}, 0});
    last = std::int16_t(2 + i);
  }
  fused.code.push_back({EwOp::Greater, DType::f32, DType::boolean, {last, 1, -1}, 0});
  fused.code.push_back({EwOp::Where, DType::f32, DType::f32, {std::int16_t(last + 1), last, 0}, 0});
  fused.outputs = {{std::int16_t(last + 2), DType::f32}};
  for (const CpuKernels* k : levels()) {
    const auto result = run<float>(*k, fused, {a.data(), b.data()}, n);
    std::vector<std::vector<float>> reg = {a, b};
    std::vector<std::uint8_t> condition;
    for (const EwInstruction& instruction : fused.code) {
      if (instruction.op == EwOp::Where) {
        const EwProgram one = one_operator(EwOp::Where, DType::f32, DType::f32, 3, n);
        reg.push_back(run<float>(
            *k, one, {condition.data(), reg[std::size_t(instruction.operands[1])].data(), a.data()}, n));
        continue;
      }
      const bool compare = instruction.op == EwOp::Greater;
      const EwProgram one = one_operator(instruction.op, DType::f32, compare ? DType::boolean : DType::f32,
                                         instruction.operands[1] >= 0 ? 2 : 1, n);
      const void* second =
          instruction.operands[1] >= 0 ? reg[std::size_t(instruction.operands[1])].data() : nullptr;
      const void* first = reg[std::size_t(instruction.operands[0])].data();
      if (compare) {
        condition = run<std::uint8_t>(*k, one, {first, second}, n);
        reg.emplace_back();
      } else {
        reg.push_back(run<float>(*k, one, {first, second}, n));
      }
    }
    EXPECT_TRUE(same_bits(result, reg.back())) << k->isa;
  }
}

TEST(Elementwise, PowersWithConstantExponent) {
  const std::int64_t n = 1009;
  const auto x = values<float>(n, 1, 0.01, 3);
  for (const double exponent : {0.5, 2.0, 3.0, -1.5, 0.0, 1.0}) {
    EwProgram program = program_over({n});
    program.inputs = {input_of(DType::f32, {n})};
    program.constants = {{DType::f32, exponent}};
    program.code = {{EwOp::Pow, DType::f32, DType::f32, {0, 1, -1}, 0}};
    program.outputs = {{2, DType::f32}};
    std::vector<double> expected;
    for (const float v : x) expected.push_back(std::pow(double(v), exponent));
    expect_on_every_level([&](const CpuKernels& k) { return run<float>(k, program, {x.data()}, n); },
                          expected, elementwise_tolerance<float>());
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
