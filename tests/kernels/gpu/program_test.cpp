// Generated kernels run against the CPU's interpreter, through the plugin of the host executor: all programs
// of this file are one source and one compilation. With GRADLOOM_GPU_TEST_PLUGIN=<libgradloom_cuda.so> they
// run on that device instead.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>

#include "kernels/cpu.h"
#include "kernels/gpu/program_source.h"
#include "kernels/gpu/gpu.h"
#include "engine/device/gpu/plugin.h"
#include "tests/kernels/gpu/programs.h"
#include "tests/kernels/gpu/sparse_memory.h"
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

using Bytes = std::vector<unsigned char>;

// ---- values ---------------------------------------------------------------------------------------------------------------------

double read(DType type, const unsigned char* at) {
  const auto as = [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (type) {
    case DType::f32: return as(float());
    case DType::f64: return as(double());
    case DType::i32: return as(std::int32_t());
    case DType::i64: return double(as(std::int64_t()));
    case DType::f16: return double(as(_Float16()));
    case DType::bf16: return gpu::to_float(gpu::bf16{as(std::uint16_t())});
    case DType::i8: return as(std::int8_t());
    case DType::i16: return as(std::int16_t());
    case DType::u16: return as(std::uint16_t());
    case DType::u32: return as(std::uint32_t());
    case DType::u64: return double(as(std::uint64_t()));
    case DType::u8:
    case DType::boolean: return *at;
    default: break;  // by their codes
  }
  return *at;
}

// `values` as `type`, by the CPU's cast.
Bytes convert(const std::vector<double>& values, DType type) {
  EwProgram program = program_of({std::int64_t(values.size())});
  program.inputs = {strided_input(DType::f64, {1})};
  program.code = {{EwOp::Cast, DType::f64, type, {0, -1, -1}, 0}};
  program.outputs = {{1, type}};
  Bytes bytes(values.size() * dtype_bytes(type));
  const void* inputs[] = {values.data()};
  void* outputs[] = {bytes.data()};
  cpu().elementwise({&program, inputs, outputs, nullptr});
  return bytes;
}

// What types differ in: zeros, signs, halves that round to even, limits of every integer, infinities, NaN,
// subnormals; then random.
Bytes interesting(DType type, std::int64_t n, std::uint64_t seed, double low, double high) {
  std::vector<double> v = values<double>(n, seed, low, high);
  const double special[] = {0.0,      -0.0,      1,      -1,           0.5,          1.5,           2.5,
                            127.5,    128,       255.9,  256,          -129,         32768,         65504,
                            65520,    70000,     -70000, 2147483648.0, 4294967296.0, -2147483649.0, 9.3e18,
                            -9.3e18,  1.9e19,    3.4e38, 1e39,         1e-40,        6e-8,          1e-310,
                            INFINITY, -INFINITY, NAN,    3.00390625,   3.01171875};
  if (type == DType::f16) {
    for (std::size_t i = 0; i < std::size(special) && i < v.size(); ++i) v[i] = special[i];
  }
  if (type != DType::f16 && n >= 64) {
    for (std::size_t i = 0; i < std::size(special); ++i) v[v.size() - 1 - i] = special[i];
  }
  if (type == DType::boolean) {
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = double(i % 3 == 0);
  }
  return convert(v, type);
}

// ---- the CPU's result -----------------------------------------------------------------------------------------------------------

// The CPU computes no 16-bit floats: the same program with casts to f32 before and back after each operator.
EwProgram in_float(const EwProgram& program) {
  EwProgram result = program;
  result.code.clear();
  const auto half = [](DType type) { return type == DType::f16 || type == DType::bf16; };
  const std::size_t first = program.inputs.size() + program.constants.size();
  std::vector<std::int16_t> moved;
  for (std::size_t r = 0; r < first; ++r) moved.push_back(std::int16_t(r));
  const auto emit = [&](const EwInstruction& instruction) {
    result.code.push_back(instruction);
    return std::int16_t(first + result.code.size() - 1);
  };
  const auto type_of = [&](std::int16_t r) {
    const std::size_t i = std::size_t(r);
    if (i < program.inputs.size()) return program.inputs[i].dtype;
    return i < first ? program.constants[i - program.inputs.size()].dtype
                     : program.code[i - first].result_type;
  };
  for (EwInstruction instruction : program.code) {
    const DType operand = instruction.operand_type, made = instruction.result_type;
    const bool widened = half(operand) && instruction.op != EwOp::Cast;
    for (std::int16_t& r : instruction.operands) {
      if (r < 0) continue;
      const DType type = type_of(r);
      r = moved[std::size_t(r)];
      if (widened && half(type)) r = emit({EwOp::Cast, type, DType::f32, {r, -1, -1}, 0});
    }
    if (widened) instruction.operand_type = DType::f32;
    if (widened && half(made)) instruction.result_type = DType::f32;
    std::int16_t r = emit(instruction);
    if (widened && half(made)) r = emit({EwOp::Cast, DType::f32, made, {r, -1, -1}, 0});
    moved.push_back(r);
  }
  for (EwOutput& output : result.outputs) output.reg = moved[std::size_t(output.reg)];
  return result;
}

// ---- cases ----------------------------------------------------------------------------------------------------------------------

struct Case {
  std::string name;
  EwProgram program;
  std::vector<Bytes> inputs;
  int in_place = -1;       // the input that output 0 lies over
  std::size_t offset = 0;  // elements that every buffer begins behind a 256-byte boundary
  double relative = 2e-6;  // of f32 results
  bool exact = false;
  double absolute = 1e-7;  // beside it
};

std::int64_t elements(const EwProgram& program) {
  std::int64_t n = 1;
  for (int d = 0; d < program.rank; ++d) n *= program.dims[std::size_t(d)];
  return n;
}

using Cases = std::vector<Case>;

constexpr std::int64_t kElements = 1001;

void operators_and_casts(Cases& cases) {
  const std::int64_t n = kElements;
  for (const DType type : kAllTypes) {
    Case one{"operators of type " + std::to_string(int(type)), every_operator(type, n), {}};
    const bool wide = type != DType::u8 && type != DType::i8 && type != DType::boolean;
    const double low = is_float(type) || type == DType::i32 || type == DType::i64 ? -3 : 0;
    for (const std::uint64_t seed : {1u, 2u})
      one.inputs.push_back(type == DType::boolean
                               ? interesting(type, n, seed, 0, 1)
                               : convert(values<double>(n, seed, low, wide ? 40 : 11), type));
    one.inputs.push_back(interesting(DType::boolean, n, 3, 0, 1));
    cases.push_back(one);
  }
  for (const DType type : kAllTypes)
    cases.push_back({"casts of type " + std::to_string(int(type)),
                     every_cast(type, n),
                     {interesting(type, n, 4, -70000, 70000)},
                     -1,
                     0,
                     0,
                     true});
}

void dropouts(Cases& cases) {
  const auto random = [&](const std::string& name, DType type, std::initializer_list<std::int64_t> dims,
                          std::size_t offset) {
    Case one{name, dropout_program(type, dims), {}, -1, offset, 1e-6};
    one.inputs = {convert(values<double>(elements(one.program), 5), type),
                  convert(one.program.rank == 2 ? values<double>(one.program.dims[1], 12, 0.1, 0.6)
                                                : std::vector<double>{0.375},
                          type),
                  convert({1}, DType::boolean)};
    return one;
  };
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const std::string of = " of type " + std::to_string(int(type));
    cases.push_back(random("dropout in rows" + of, type, {33, 8}, 0));
    cases.push_back(random("dropout, loose" + of, type, {33, 5}, 0));
    cases.push_back(random("dropout, long" + of, type, {10007}, 0));
    cases.push_back(random("dropout off its boundary" + of, type, {1003}, 1));
  }
  cases.push_back(random("no dropout in evaluation", DType::f32, {999}, 0));
  cases.back().inputs[2] = convert({0}, DType::boolean);
}

void broadcasts(Cases& cases) {
  const auto broadcast = [&](std::int64_t rows, std::int64_t cols, std::size_t offset, int in_place) {
    Case one{"broadcast " + std::to_string(rows) + "x" + std::to_string(cols),
             broadcast_program(rows, cols),
             {},
             in_place,
             offset};
    one.inputs = {convert(values<double>(rows * cols, 6), DType::f32),
                  convert(values<double>(cols, 7), DType::f32), convert(values<double>(rows, 8), DType::f32),
                  convert(values<double>(rows * cols, 9), DType::f32)};
    return one;
  };
  for (const std::size_t offset : {0u, 1u, 2u}) {
    for (const int in_place : {-1, 0}) {
      cases.push_back(broadcast(64, 128, offset, in_place));
      cases.push_back(broadcast(63, 127, offset, in_place));
      cases.push_back(broadcast(1, 4096, offset, in_place));
      cases.push_back(broadcast(300, 4, offset, in_place));
    }
  }
}

void powers(Cases& cases) {
  const std::int64_t n = kElements;
  for (const double exponent : {0.5, 1.0, 2.0, 3.0, -1.5, 0.0}) {
    Case one{"power " + std::to_string(exponent),
             program_of({n}),
             {convert(values<double>(n, 10, 0.01, 3), DType::f32)}};
    one.program.inputs = {strided_input(DType::f32, {1})};
    one.program.constants = {{DType::f32, exponent}};
    one.program.code = {{EwOp::Pow, DType::f32, DType::f32, {0, 1, -1}, 0}};
    one.program.outputs = {{2, DType::f32}};
    cases.push_back(one);
  }
}

// Outputs that are inputs, constants (infinite, of another type) or the same twice.
void outputs_of_all_kinds(Cases& cases) {
  Case copies{"outputs of all kinds",
              program_of({7, 9}),
              {convert(values<double>(63, 11), DType::f32), convert({4.5}, DType::f32)},
              -1,
              0,
              0,
              true};
  copies.program.inputs = {strided_input(DType::f32, {9, 1}), EwInput{DType::f32, {}}};
  copies.program.constants = {{DType::i64, -7},
                              {DType::f64, -std::numeric_limits<double>::infinity()},
                              {DType::u8, 300},
                              {DType::bf16, 0.1}};
  for (std::int16_t r : {0, 1, 2, 3, 4, 5, 0}) {
    const DType types[] = {DType::f32, DType::f32, DType::i64, DType::f64, DType::u8, DType::bf16};
    copies.program.outputs.push_back({r, types[r]});
  }
  cases.push_back(copies);
}

void smallest_programs(Cases& cases) {
  Case scalar{"one element", program_of({}), {convert({2}, DType::f64)}};
  scalar.program.inputs = {EwInput{DType::f64, {}}};
  scalar.program.code = {{EwOp::Exp, DType::f64, DType::f64, {0, -1, -1}, 0}};
  scalar.program.outputs = {{1, DType::f64}};
  cases.push_back(scalar);
  Case empty{"no elements", program_of({0, 5}), {Bytes(4)}};
  empty.program.inputs = {strided_input(DType::f32, {5, 1})};
  empty.program.outputs = {{0, DType::f32}};
  cases.push_back(empty);
}

// Threads of a warp, of several and of a block per row; whole and broken chunks; rows that a block's threads share out unevenly.
void rows_with_reductions(Cases& cases) {
  const auto norm = [&](DType type, std::int64_t rows, std::int64_t cols, std::size_t offset) {
    const DType wide = type == DType::f64 ? DType::f64 : DType::f32;
    Case one{"norm of " + std::to_string(rows) + "x" + std::to_string(cols) + " of type " +
                 std::to_string(int(type)),
             norm_program(type, rows, cols),
             {},
             -1,
             offset,
             2e-5};
    one.inputs = {convert(values<double>(rows * cols, 13), type),
                  convert({0.25}, type),
                  convert({1}, DType::boolean),
                  convert(values<double>(rows * cols, 14), type),
                  convert(values<double>(cols, 15, 0.5, 1.5), wide),
                  convert(values<double>(cols, 16), wide)};
    one.absolute = type == DType::f64 ? 1e-12 : 4e-6;  // of results near 0, which are differences
    cases.push_back(one);
  };
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    norm(type, 5, 64, 0);
    norm(type, 3, 7, 0);
    norm(type, 2, 768, 0);
    norm(type, 2, 1001, 0);
  }
  norm(DType::f32, 130, 2, 0);
  norm(DType::f32, 9, 64, 1);
  norm(DType::bf16, 3, 512, 3);
  norm(DType::f32, 2, 8192, 0);
  norm(DType::f64, 1, 8191, 0);
  for (const std::int64_t cols : {1, 4, 11, 44, 640}) {
    Case one{"softmax of 4x3x" + std::to_string(cols), softmax_program(4, cols), {}};
    one.inputs = {convert(values<double>(4 * 3 * cols, 17, -4, 4), DType::f32),
                  convert({1, -2, 0.5}, DType::f32)};
    one.relative = 1e-5;
    cases.push_back(one);
  }
}

Cases all_cases() {
  Cases cases;
  operators_and_casts(cases);
  dropouts(cases);
  broadcasts(cases);
  powers(cases);
  outputs_of_all_kinds(cases);
  smallest_programs(cases);
  rows_with_reductions(cases);
  return cases;
}

// ---- running --------------------------------------------------------------------------------------------------------------------

constexpr RandomState kRandom = {0xfeedfacecafebeefull, 41};

// One instruction of `program`, or (code empty) an input as it is read, over all elements of the space.
Bytes over_all(EwProgram program, const std::vector<const void*>& in) {
  program.row = 0;
  Bytes made(std::size_t(elements(program)) * dtype_bytes(program.outputs[0].dtype));
  void* out[] = {made.data()};
  cpu().elementwise({&program, in.data(), out, &kRandom});
  return made;
}

// The reduction of each row in double, for each of its elements.
Bytes reduced(const EwProgram& program, const EwInstruction& instruction, const Bytes& operand) {
  const std::size_t width = dtype_bytes(instruction.operand_type);
  std::vector<double> results;
  for (std::int64_t row = 0; row < elements(program) / program.row; ++row) {
    const auto element = [&](std::int64_t i) {
      return read(instruction.operand_type, operand.data() + std::size_t(row * program.row + i) * width);
    };
    double sum = 0, least = element(0), most = element(0);
    for (std::int64_t i = 0; i < program.row; ++i) {
      sum += element(i);
      least = std::min(least, element(i));
      most = std::max(most, element(i));
    }
    const double result = instruction.op == EwOp::RowSum    ? sum
                          : instruction.op == EwOp::RowMean ? sum / double(program.row)
                          : instruction.op == EwOp::RowMax  ? most
                                                            : least;
    results.insert(results.end(), std::size_t(program.row), result);
  }
  return convert(results, instruction.result_type);
}

// A program with rows, one instruction after the other over all elements.
std::vector<Bytes> run_rows(const EwProgram& program, const std::vector<Bytes>& inputs) {
  std::vector<Bytes> registers;
  std::vector<DType> types;
  const auto keep = [&](Bytes made, DType type) {
    registers.push_back(std::move(made));
    types.push_back(type);
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EwProgram copy = program;
    copy.inputs = {program.inputs[i]};
    copy.constants.clear();
    copy.code.clear();
    copy.outputs = {{0, program.inputs[i].dtype}};
    keep(over_all(copy, {inputs[i].data()}), program.inputs[i].dtype);
  }
  for (const EwConstant& constant : program.constants)
    keep(convert(std::vector<double>(std::size_t(elements(program)), constant.value), constant.dtype),
         constant.dtype);
  for (const EwInstruction& instruction : program.code) {
    if (ew_reduces(instruction.op)) {
      keep(reduced(program, instruction, registers[std::size_t(instruction.operands[0])]),
           instruction.result_type);
      continue;
    }
    EwProgram alone = program_of({elements(program)});
    std::vector<const void*> in;
    EwInstruction own = instruction;
    for (std::int16_t& reg : own.operands) {
      if (reg < 0) continue;
      in.push_back(registers[std::size_t(reg)].data());
      alone.inputs.push_back(strided_input(types[std::size_t(reg)], {1}));
      reg = std::int16_t(in.size() - 1);
    }
    alone.code = {own};
    alone.outputs = {{std::int16_t(in.size()), instruction.result_type}};
    keep(over_all(alone, in), instruction.result_type);
  }
  const std::vector<EwRowPlace> places = ew_row_places(program);
  std::vector<Bytes> outputs;
  for (const EwOutput& output : program.outputs) {
    const Bytes& all = registers[std::size_t(output.reg)];
    const std::size_t width = dtype_bytes(output.dtype), step = std::size_t(program.row) * width;
    Bytes firsts;
    for (std::size_t i = 0; i < all.size(); i += step)
      firsts.insert(firsts.end(), all.begin() + std::ptrdiff_t(i), all.begin() + std::ptrdiff_t(i + width));
    outputs.push_back(places[std::size_t(output.reg)].per_row ? firsts : all);
  }
  return outputs;
}

std::vector<Bytes> run_on_cpu(const Case& one) {
  const EwProgram program = in_float(one.program);
  if (program.row > 0) return run_rows(program, one.inputs);
  const std::size_t n = std::size_t(elements(program));
  std::vector<Bytes> outputs;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const EwOutput& output : program.outputs) outputs.emplace_back(n * dtype_bytes(output.dtype));
  for (const Bytes& input : one.inputs) in.push_back(input.data());
  for (Bytes& output : outputs) out.push_back(output.data());
  cpu().elementwise({&program, in.data(), out.data(), &kRandom});
  return outputs;
}

class Programs : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* chosen = std::getenv("GRADLOOM_GPU_TEST_PLUGIN");
    void* library = dlopen(chosen != nullptr ? chosen : GRADLOOM_HOST_GPU_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto entry = reinterpret_cast<GpuPluginFn>(dlsym(library, GRADLOOM_GPU_ENTRY));
    ASSERT_NE(entry, nullptr);
    plugin_ = entry(GRADLOOM_GPU_VERSION);
    ASSERT_NE(plugin_, nullptr);
    ASSERT_EQ(plugin_->open(0, &context_), GPU_OK) << plugin_->message(nullptr);
  }
  void TearDown() override {
    for (void* memory : held_) plugin_->release(context_, memory, 0);
    if (context_ != nullptr) plugin_->close(context_);
  }

  void ok(GpuStatus status, const std::string& what) {
    ASSERT_EQ(status, GPU_OK) << what << ": " << plugin_->message(context_);
  }

  // Memory of the device with these bytes, `behind` bytes after its boundary.
  unsigned char* device(const void* from, std::size_t bytes, std::size_t behind = 0) {
    void* memory = nullptr;
    ok(plugin_->allocate(context_, bytes + behind + 16, 0, &memory), "allocate");
    held_.push_back(memory);
    auto* at = static_cast<unsigned char*>(memory) + behind;
    ok(plugin_->copy(context_, GPU_COMPUTE, at, from, bytes), "copy");
    return at;
  }

  std::vector<Bytes> run_on_device(const Case& one, GpuModule* module, int index,
                                   const gpu::GeneratedKernel& kernel, const void* random) {
    const std::size_t n = std::size_t(elements(one.program));
    const std::vector<EwRowPlace> places = ew_row_places(one.program);
    std::vector<void*> params;
    std::vector<Bytes> outputs;
    for (std::size_t i = 0; i < one.inputs.size(); ++i)
      params.push_back(device(one.inputs[i].data(), one.inputs[i].size(),
                              one.offset * dtype_bytes(one.program.inputs[i].dtype)));
    for (std::size_t o = 0; o < one.program.outputs.size(); ++o) {
      const std::size_t width = dtype_bytes(one.program.outputs[o].dtype);
      const bool per_row = one.program.row > 0 && places[std::size_t(one.program.outputs[o].reg)].per_row;
      outputs.emplace_back((per_row ? n / std::size_t(one.program.row) : n) * width, 0xFF);
      params.push_back(o == 0 && one.in_place >= 0
                           ? params[std::size_t(one.in_place)]
                           : device(outputs[o].data(), outputs[o].size(), one.offset * width));
    }
    params.push_back(const_cast<void*>(random));
    EXPECT_EQ(params.size() * sizeof(void*), kernel.params_bytes) << one.name;
    ok(plugin_->run_program(context_, GPU_COMPUTE, module, index, {kernel.blocks, 1, 1},
                            {kernel.threads, 1, 1}, params.data(), kernel.params_bytes),
       one.name);
    for (std::size_t o = 0; o < outputs.size(); ++o)
      ok(plugin_->copy(context_, GPU_COMPUTE, outputs[o].data(), params[one.inputs.size() + o],
                       outputs[o].size()),
         "copy");
    ok(plugin_->synchronize(context_), one.name);
    return outputs;
  }

  const GpuPlugin* plugin_ = nullptr;
  GpuContext* context_ = nullptr;
  std::vector<void*> held_;
};

void expect_same(const Case& one, std::size_t o, const Bytes& actual, const Bytes& expected) {
  const DType type = one.program.outputs[o].dtype;
  const std::size_t width = dtype_bytes(type);
  double relative = one.relative;
  if (type == DType::f64) relative = 1e-13;
  if (type == DType::bf16) relative = 0x1p-7;  // one step: values beside the middle of two may round apart
  if (type == DType::f16) relative = 0x1p-10;
  const bool exact = one.exact || !is_float(type);
  int reported = 0;
  for (std::size_t i = 0; i < actual.size() && reported < 3; i += width) {
    const double a = read(type, actual.data() + i), b = read(type, expected.data() + i);
    bool same =
        std::memcmp(actual.data() + i, expected.data() + i, width) == 0 || (std::isnan(a) && std::isnan(b));
    if (!exact && std::isfinite(b)) same = same || std::abs(a - b) <= relative * std::abs(b) + one.absolute;
    if (same) continue;
    ++reported;
    ADD_FAILURE() << one.name << ", output " << o << ", element " << i / width << ": " << a
                  << ", the CPU has " << b;
  }
}

TEST_F(Programs, GiveTheResultsOfTheCpu) {
  const std::vector<Case> cases = all_cases();
  std::string source = gpu::generated_prelude();
  std::vector<gpu::GeneratedKernel> kernels;
  std::vector<const char*> entries;
  std::map<std::string, bool> added;
  for (const Case& one : cases) {
    kernels.push_back(gpu::generate(one.program));
    if (!added[kernels.back().entry]) source += kernels.back().source;
    added[kernels.back().entry] = true;
  }
  for (const gpu::GeneratedKernel& kernel : kernels) entries.push_back(kernel.entry.c_str());
  GpuModule* module = nullptr;
  ASSERT_EQ(plugin_->compile(context_, source.c_str(), entries.data(), int(entries.size()), nullptr, &module),
            GPU_OK)
      << plugin_->message(context_);
  const void* random = device(&kRandom, sizeof kRandom);
  for (std::size_t c = 0; c < cases.size(); ++c) {
    const std::vector<Bytes> actual = run_on_device(cases[c], module, int(c), kernels[c], random),
                             expected = run_on_cpu(cases[c]);
    for (std::size_t o = 0; o < expected.size(); ++o) expect_same(cases[c], o, actual[o], expected[o]);
  }
  plugin_->unload(context_, module);
}

// Rows of an input that lie so far apart that the last begins behind 2^31 elements, in address space of which only what is touched has
// memory: host-gpu's memory is the host's.
TEST_F(Programs, ReadElementsThatAreFar) {
  if (std::getenv("GRADLOOM_GPU_TEST_PLUGIN") != nullptr) GTEST_SKIP() << "for host-gpu";
  constexpr std::int64_t kApart = (std::int64_t{1} << 30) + 64, kRows = 4, kColumns = 40;
  const SparseMemory<float> space(kRows * kApart);
  float* const x = space.data();
  if (x == nullptr) GTEST_SKIP() << "the system gives no address space without memory";
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t column = 0; column < kColumns; ++column)
      x[row * kApart + column] = float(row * 100 + column);
  EwProgram program = program_of({kRows, kColumns});
  program.inputs = {strided_input(DType::f32, {kApart, 1})};
  program.code = {{EwOp::Neg, DType::f32, DType::f32, {0, -1, -1}, 0}};
  program.outputs = {{1, DType::f32}};
  const gpu::GeneratedKernel kernel = gpu::generate(program);
  const std::string source = gpu::generated_prelude() + kernel.source;
  const char* const entry = kernel.entry.c_str();
  GpuModule* module = nullptr;
  ASSERT_EQ(plugin_->compile(context_, source.c_str(), &entry, 1, nullptr, &module), GPU_OK)
      << plugin_->message(context_);
  std::vector<float> y(std::size_t(kRows * kColumns));
  void* params[] = {x, device(y.data(), y.size() * sizeof(float)), nullptr};
  ok(plugin_->run_program(context_, GPU_COMPUTE, module, 0, {kernel.blocks, 1, 1}, {kernel.threads, 1, 1},
                          params, kernel.params_bytes),
     "far rows");
  ok(plugin_->copy(context_, GPU_COMPUTE, y.data(), params[1], y.size() * sizeof(float)), "copy");
  ok(plugin_->synchronize(context_), "far rows");
  for (std::int64_t i = 0; i < kRows * kColumns; ++i)
    EXPECT_EQ(y[std::size_t(i)], -float(i / kColumns * 100 + i % kColumns)) << i;
  plugin_->unload(context_, module);
}

}  // namespace
}  // namespace gradloom::kernels::test
