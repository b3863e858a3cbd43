// Elementwise programs for the tests of generated kernels: every operator in every type, every cast, every
// way that inputs are read.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/elementwise.h"

namespace gradloom::kernels::test {

constexpr DType kAllTypes[] = {
    DType::f32,        DType::f64,    DType::i32,        DType::i64,    DType::u8,    DType::boolean,
    DType::f16,        DType::bf16,   DType::i8,         DType::i16,    DType::u16,   DType::u32,
    DType::u64,        DType::i4,     DType::u4,         DType::i2,     DType::u2,    DType::f8e4m3fn,
    DType::f8e4m3fnuz, DType::f8e5m2, DType::f8e5m2fnuz, DType::f4e2m1, DType::f8e8m0};

inline EwProgram program_of(std::initializer_list<std::int64_t> dims) {
  EwProgram program;
  for (const std::int64_t d : dims) program.dims[std::size_t(program.rank++)] = d;
  return program;
}

// strides: one per dim of the iteration space.
inline EwInput strided_input(DType type, std::initializer_list<std::int64_t> strides) {
  EwInput input{type, {}};
  std::size_t d = 0;
  for (const std::int64_t stride : strides) input.strides[d++] = stride;
  return input;
}

inline bool has_type(const EwRow& row, DType type) {
  switch (row.types) {
    case 'F': return is_float(type);
    case 'B': return type == DType::boolean;
    case 'N': return type != DType::boolean && !is_small(type);
    case 'I': return type != DType::boolean && !is_float(type) && !is_small(type);
    case 'C': return !is_small(type);
    case 'P': return is_float(type);
    default: return true;
  }
}

// Every operator that exists for `type`, each over the inputs a, b (of the type) and a
// condition, each result an output.
inline EwProgram every_operator(DType type, std::int64_t n) {
  EwProgram program = program_of({n});
  program.inputs = {strided_input(type, {1}), strided_input(type, {1}), strided_input(DType::boolean, {1})};
  for (const EwRow& row : ew_formulas()) {
    if (!has_type(row, type)) continue;
    EwInstruction instruction{
        row.op,
        type,
        row.types == 'C' || row.types == 'B' || row.types == 'P' ? DType::boolean : type,
        {0, -1, -1},
        0};
    if (row.types == 'S')
      instruction.operands = {2, 0, 1};
    else if (row.arity == 2)
      instruction.operands[1] = 1;
    program.outputs.push_back({std::int16_t(3 + program.code.size()), instruction.result_type});
    program.code.push_back(instruction);
  }
  return program;
}

// An input of `type` cast to every type.
inline EwProgram every_cast(DType type, std::int64_t n) {
  EwProgram program = program_of({n});
  program.inputs = {strided_input(type, {1})};
  for (const DType to : kAllTypes) {
    program.outputs.push_back({std::int16_t(1 + program.code.size()), to});
    program.code.push_back({EwOp::Cast, type, to, {0, -1, -1}, 0});
  }
  return program;
}

// keep mask and dropout of x over `dims`, twice with one key and once with another,
// and numbers between ratio and x. training is one element; ratio is too for one dim,
// for two it has one per column, which keeps the dims apart.
inline EwProgram dropout_program(DType type, std::initializer_list<std::int64_t> dims) {
  EwProgram program = program_of(dims);
  EwInput x{type, {}};
  std::int64_t stride = 1;
  for (std::size_t d = std::size_t(program.rank); d-- > 0; stride *= program.dims[d]) x.strides[d] = stride;
  EwInput ratio{type, {}};
  if (program.rank == 2) ratio.strides[1] = 1;
  program.inputs = {x, ratio, EwInput{DType::boolean, {}}};
  program.code = {{EwOp::Dropout, type, type, {0, 1, 2}, 0x1234567890abcdefull},
                  {EwOp::DropoutMask, type, DType::boolean, {1, 2, -1}, 0x1234567890abcdefull},
                  {EwOp::DropoutMask, type, DType::boolean, {1, 2, -1}, 7},
                  {EwOp::Uniform, type, type, {1, 0, -1}, 7}};
  program.outputs = {{3, type}, {4, DType::boolean}, {5, DType::boolean}, {6, type}};
  return program;
}

// f32: (a + row) * column - transposed * 0.25, with inputs dense, constant along columns, constant along
// rows, and transposed.
inline EwProgram broadcast_program(std::int64_t rows, std::int64_t cols) {
  EwProgram program = program_of({rows, cols});
  const DType f = DType::f32;
  program.inputs = {strided_input(f, {cols, 1}), strided_input(f, {0, 1}), strided_input(f, {1, 0}),
                    strided_input(f, {1, rows})};
  program.constants = {{f, 0.25}};
  program.code = {{EwOp::Add, f, f, {0, 1, -1}, 0},
                  {EwOp::Mul, f, f, {5, 2, -1}, 0},
                  {EwOp::Mul, f, f, {3, 4, -1}, 0},
                  {EwOp::Sub, f, f, {6, 7, -1}, 0}};
  program.outputs = {{8, f}};
  return program;
}

// Over rows of [rows, cols]: s = dropout(x) + residual, its mean and deviation, (s - mean) / deviation * scale + bias in `type`, of which
// s, the deviations and the last are results. Numbers of 16 bits are computed with in f32.
inline EwProgram norm_program(DType type, std::int64_t rows, std::int64_t cols) {
  EwProgram program = program_of({rows, cols});
  program.row = cols;
  const DType wide = type == DType::f16 || type == DType::bf16 ? DType::f32 : type;
  program.inputs = {strided_input(type, {cols, 1}),        strided_input(type, {0, 0}),
                    strided_input(DType::boolean, {0, 0}), strided_input(type, {cols, 1}),
                    strided_input(wide, {0, 1}),           strided_input(wide, {0, 1})};
  program.constants = {{wide, 1e-3}};
  const auto add = [&](EwOp op, DType made, std::int16_t a, std::int16_t b = -1, std::int16_t c = -1,
                       std::uint64_t key = 0) {
    const DType operand = op == EwOp::Dropout || (op == EwOp::Cast && a == 8) ? type : wide;
    program.code.push_back({op, operand, made, {a, b, c}, key});
    return std::int16_t(program.inputs.size() + program.constants.size() + program.code.size() - 1);
  };
  const std::int16_t dropped = add(EwOp::Dropout, type, 0, 1, 2, 0x1234567890abcdefull);
  program.code.push_back({EwOp::Add, type, type, {dropped, 3, -1}, 0});
  const std::int16_t sum = std::int16_t(dropped + 1), x = add(EwOp::Cast, wide, sum);
  const std::int16_t mean = add(EwOp::RowMean, wide, x), d = add(EwOp::Sub, wide, x, mean);
  const std::int16_t variance = add(EwOp::RowMean, wide, add(EwOp::Square, wide, d));
  const std::int16_t deviation = add(EwOp::Sqrt, wide, add(EwOp::Add, wide, variance, 6));
  const std::int16_t normal = add(EwOp::Mul, wide, add(EwOp::Div, wide, d, deviation), 4);
  const std::int16_t y = add(EwOp::Cast, type, add(EwOp::Add, wide, normal, 5));
  program.outputs = {{sum, type}, {deviation, wide}, {y, type}};
  return program;
}

// f32 over rows of [outer, 3, cols], both of whose last dims are a row: softmax of x + bias, of which [3, 1] are added; the largest and the
// smallest.
inline EwProgram softmax_program(std::int64_t outer, std::int64_t cols) {
  EwProgram program = program_of({outer, 3, cols});
  program.row = 3 * cols;
  const DType f = DType::f32;
  program.inputs = {strided_input(f, {3 * cols, cols, 1}), strided_input(f, {0, 1, 0})};
  program.code = {{EwOp::Add, f, f, {0, 1, -1}, 0},     {EwOp::RowMax, f, f, {2, -1, -1}, 0},
                  {EwOp::RowMin, f, f, {2, -1, -1}, 0}, {EwOp::Sub, f, f, {2, 3, -1}, 0},
                  {EwOp::Exp, f, f, {5, -1, -1}, 0},    {EwOp::RowSum, f, f, {6, -1, -1}, 0},
                  {EwOp::Div, f, f, {6, 7, -1}, 0}};
  program.outputs = {{8, f}, {3, f}, {4, f}};
  return program;
}

}  // namespace gradloom::kernels::test
