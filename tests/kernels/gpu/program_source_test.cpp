// Generated source: its text for small programs, and that every operator, type and cast compiles with the
// run-time compilers that this machine has. tests/kernels/gpu/program_test.cpp runs it.
#include "kernels/gpu/program_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine/device/gpu/runtime/rtc.h"
#include "tests/kernels/gpu/programs.h"

namespace gradloom::kernels::test {
namespace {

using gpu::generate;
using gpu::generated_prelude;
using gpu::GeneratedKernel;

// The text between the braces of the entry.
std::string body_of(const GeneratedKernel& kernel) {
  const std::size_t begin = kernel.source.find("_Params) {\n") + 11;
  return kernel.source.substr(begin, kernel.source.rfind("}\n}") - begin);
}

TEST(Generate, DenseProgram) {
  EwProgram program = program_of({7, 11});
  program.inputs = {strided_input(DType::f32, {11, 1}), strided_input(DType::f32, {11, 1})};
  program.code = {{EwOp::Add, DType::f32, DType::f32, {0, 1, -1}, 0},
                  {EwOp::Relu, DType::f32, DType::f32, {2, -1, -1}, 0}};
  program.outputs = {{3, DType::f32}};
  const GeneratedKernel kernel = generate(program);
  EXPECT_EQ(kernel.source,
            "namespace gradloom::kernels::gpu {\n"
            "struct " +
                kernel.entry +
                "_Params {\n"
                "  const void* in[2];\n"
                "  void* out[1];\n"
                "  const RandomState* random;\n"
                "};\n"
                "GRADLOOM_PROGRAM(" +
                kernel.entry + ", " + kernel.entry +
                "_Params) {\n"
                "  const unsigned first = (blockIdx.x * 256u + threadIdx.x) * 4u;\n"
                "  if (first >= 77u) return;\n"
                "  const bool whole = first + 4u <= 77u && at_boundary<float, 4>(params.in[0]) && "
                "at_boundary<float, 4>(params.in[1]) && at_boundary<float, 4>(params.out[0]);\n"
                "  const int valid = int(77u - first);\n"
                "  const Lanes<float, 4> a0 = load_lanes<float, 4>(static_cast<const float*>(params.in[0]) + "
                "(first), whole, valid);\n"
                "  const Lanes<float, 4> a1 = load_lanes<float, 4>(static_cast<const float*>(params.in[1]) + "
                "(first), whole, valid);\n"
                "  Lanes<float, 4> y0;\n"
                "#pragma unroll\n"
                "  for (int j = 0; j < 4; ++j) {\n"
                "    const float r0 = a0.v[j];\n"
                "    const float r1 = a1.v[j];\n"
                "    const float r2 = op::Add<float>(r0, r1);\n"
                "    const float r3 = op::Relu<float>(r2);\n"
                "    y0.v[j] = r3;\n"
                "  }\n"
                "  store_lanes(static_cast<float*>(params.out[0]) + first, y0, whole, valid);\n"
                "}\n"
                "}  // namespace gradloom::kernels::gpu\n");
  EXPECT_EQ(kernel.entry.size(), 19u);
  EXPECT_EQ(kernel.entry.substr(0, 3), "ew_");
  EXPECT_EQ(kernel.params_bytes, 32u);
  EXPECT_EQ(kernel.blocks, 1u);
  EXPECT_EQ(kernel.threads, 256u);
}

// A row that is no whole number of vectors, broadcast inputs, bf16 computed in float, dropout.
TEST(Generate, BroadcastProgram) {
  EwProgram program = program_of({3, 5, 6});
  program.inputs = {strided_input(DType::bf16, {30, 6, 1}), strided_input(DType::bf16, {0, 1, 0}),
                    strided_input(DType::bf16, {0, 0, 0}), strided_input(DType::boolean, {0, 0, 0})};
  program.code = {{EwOp::Mul, DType::bf16, DType::bf16, {0, 1, -1}, 0},
                  {EwOp::Dropout, DType::bf16, DType::bf16, {4, 2, 3}, 255}};
  program.outputs = {{5, DType::bf16}};
  EXPECT_EQ(body_of(generate(program)),
            "#pragma unroll\n"
            "  for (int j = 0; j < 4; ++j) {\n"
            "    const unsigned i = blockIdx.x * 1024u + j * 256u + threadIdx.x;\n"
            "    if (i >= 90u) return;\n"
            "    const bf16 r0 = static_cast<const bf16*>(params.in[0])[i];\n"
            "    const bf16 r1 = static_cast<const bf16*>(params.in[1])[i / 6u % 5u];\n"
            "    const bf16 r2 = static_cast<const bf16*>(params.in[2])[0];\n"
            "    const unsigned char r3 = static_cast<const unsigned char*>(params.in[3])[0];\n"
            "    const float u0 = uniform_at(i, params.random->seed ^ 0xffull, params.random->step);\n"
            "    const bf16 r4 = cast<bf16>(op::Mul<float>(widen(r0), widen(r1)));\n"
            "    const bf16 r5 = cast<bf16>(dropout<float>(u0, widen(r4), widen(r2), r3));\n"
            "    static_cast<bf16*>(params.out[0])[i] = r5;\n"
            "  }\n");
}

TEST(Generate, RowsAreReadInVectorsOnceOrByStep) {
  const std::string body = body_of(generate(broadcast_program(64, 128)));
  EXPECT_NE(
      body.find("load_lanes<float, 4>(static_cast<const float*>(params.in[0]) + (first), whole, valid)"),
      std::string::npos)
      << body;
  EXPECT_NE(
      body.find(
          "load_lanes<float, 4>(static_cast<const float*>(params.in[1]) + (first % 128u), whole, valid)"),
      std::string::npos)
      << body;
  EXPECT_NE(body.find("const float r2 = static_cast<const float*>(params.in[2])[first / 128u];"),
            std::string::npos)
      << body;
  EXPECT_NE(body.find("gather_lanes<float, 4>(static_cast<const float*>(params.in[3]) + (first % 128u * 64u "
                      "+ first / 128u), 64)"),
            std::string::npos)
      << body;
}

// Two walks: the largest is known before the second, which has what it needs in registers; a number per row is stored once.
TEST(Generate, RowsAreWalkedOverOncePerReduction) {
  EwProgram program = program_of({3, 64});
  program.row = 64;
  const DType f = DType::f32;
  program.inputs = {strided_input(f, {64, 1}), strided_input(f, {0, 1}), strided_input(f, {1, 0})};
  program.code = {{EwOp::Mul, f, f, {0, 1, -1}, 0},
                  {EwOp::RowMax, f, f, {3, -1, -1}, 0},
                  {EwOp::Add, f, f, {4, 2, -1}, 0},
                  {EwOp::Sub, f, f, {3, 5, -1}, 0}};
  program.outputs = {{6, f}, {4, f}};
  const GeneratedKernel kernel = generate(program);
  EXPECT_EQ(
      body_of(kernel),
      "  const unsigned lane = threadIdx.x % 16u;\n"
      "  const unsigned at = blockIdx.x * 16u + threadIdx.x / 16u;\n"
      "  const bool exists = at < 3u;\n"
      "  const unsigned row = exists ? at : 2u;\n"
      "  const unsigned start = row * 64u;\n"
      "  const bool whole = at_boundary<float, 4>(params.in[0]) && at_boundary<float, 4>(params.in[1]) && "
      "at_boundary<float, 4>(params.out[0]);\n"
      "  const int valid = 4;\n"
      "  const float r2 = static_cast<const float*>(params.in[2])[start / 64u];\n"
      "  float h3[4] = {};\n"
      "  float s4 = float(__builtin_bit_cast(double, 0xfff0000000000000ull));\n"
      "#pragma unroll\n"
      "  for (int k = 0; k < 1; ++k) {\n"
      "    const unsigned c = (k * 16u + lane) * 4u;\n"
      "    [[maybe_unused]] const unsigned first = start + c;\n"
      "    const Lanes<float, 4> a0 = load_lanes<float, 4>(static_cast<const float*>(params.in[0]) + (first), "
      "whole, valid);\n"
      "    const Lanes<float, 4> a1 = load_lanes<float, 4>(static_cast<const float*>(params.in[1]) + (first % "
      "64u), whole, valid);\n"
      "#pragma unroll\n"
      "    for (int j = 0; j < 4; ++j) {\n"
      "      const float r0 = a0.v[j];\n"
      "      const float r1 = a1.v[j];\n"
      "      const float r3 = op::Mul<float>(r0, r1);\n"
      "      h3[k * 4 + j] = r3;\n"
      "      s4 = Max()(s4, float(widen(r3)));\n"
      "    }\n"
      "  }\n"
      "  const float r4 = cast<float>(row_reduce<16>(s4, Max(), "
      "float(__builtin_bit_cast(double, 0xfff0000000000000ull))));\n"
      "  const float r5 = op::Add<float>(r4, r2);\n"
      "#pragma unroll\n"
      "  for (int k = 0; k < 1; ++k) {\n"
      "    const unsigned c = (k * 16u + lane) * 4u;\n"
      "    [[maybe_unused]] const unsigned first = start + c;\n"
      "    Lanes<float, 4> y0;\n"
      "#pragma unroll\n"
      "    for (int j = 0; j < 4; ++j) {\n"
      "      const float r3 = h3[k * 4 + j];\n"
      "      const float r6 = op::Sub<float>(r3, r5);\n"
      "      y0.v[j] = r6;\n"
      "    }\n"
      "    if (exists) store_lanes(static_cast<float*>(params.out[0]) + first, y0, whole, valid);\n"
      "  }\n"
      "  if (lane == 0 && exists) static_cast<float*>(params.out[1])[row] = r4;\n");
  EXPECT_EQ(kernel.entry.substr(0, 5), "rows_");
  EXPECT_EQ(kernel.threads, 256u);
  EXPECT_EQ(kernel.blocks, 1u);
}

// Of 8192 elements a thread of 256 has 32: two values of each stay in its registers, the third is read again.
TEST(Generate, LongRowsAreReadAgainWhereRegistersEnd) {
  const auto reads = [](std::int64_t columns) {
    EwProgram program = program_of({2, columns});
    program.row = columns;
    const DType f = DType::f32;
    for (int i = 0; i < 3; ++i) program.inputs.push_back(strided_input(f, {columns, 1}));
    program.code = {{EwOp::RowSum, f, f, {0, -1, -1}, 0}, {EwOp::RowSum, f, f, {1, -1, -1}, 0},
                    {EwOp::RowSum, f, f, {2, -1, -1}, 0}, {EwOp::Mul, f, f, {0, 3, -1}, 0},
                    {EwOp::Mul, f, f, {1, 4, -1}, 0},     {EwOp::Mul, f, f, {2, 5, -1}, 0}};
    program.outputs = {{6, f}, {7, f}, {8, f}};
    const GeneratedKernel kernel = generate(program);
    int loads = 0;
    for (std::size_t at = 0; (at = kernel.source.find("load_lanes", at)) != std::string::npos; ++at) ++loads;
    return loads;
  };
  EXPECT_EQ(reads(512), 3);
  EXPECT_EQ(reads(8192), 4);
}

// 16 bytes of the narrowest type, within 4 and 8 elements.
TEST(Generate, LanesFollowTheNarrowestType) {
  const auto lanes = [](DType type) {
    EwProgram program = program_of({4096});
    program.inputs = {strided_input(type, {1})};
    program.outputs = {{0, type}};
    return generate(program).blocks;
  };
  EXPECT_EQ(lanes(DType::f64), 4u);
  EXPECT_EQ(lanes(DType::f32), 4u);
  EXPECT_EQ(lanes(DType::bf16), 2u);
  EXPECT_EQ(lanes(DType::u8), 2u);
}

TEST(Generate, LargeSpacesCountIn64Bits) {
  EwProgram program = program_of({std::int64_t(1) << 20, 4096});
  program.inputs = {strided_input(DType::bf16, {4096, 1}), strided_input(DType::bf16, {-1, 0})};
  program.code = {{EwOp::Add, DType::bf16, DType::bf16, {0, 1, -1}, 0}};
  program.outputs = {{2, DType::bf16}};
  const GeneratedKernel kernel = generate(program);
  EXPECT_NE(kernel.source.find("const unsigned long long first = ((unsigned long long)blockIdx.x * 256ull"),
            std::string::npos)
      << kernel.source;
  EXPECT_NE(kernel.source.find("[(long long)(first / 4096ull) * -1ll]"), std::string::npos) << kernel.source;
  EXPECT_EQ(kernel.blocks, (std::uint64_t(1) << 32) / 2048);
}

TEST(Generate, EmptySpaceTouchesNothing) {
  EwProgram program = program_of({0, 4});
  program.inputs = {strided_input(DType::f32, {4, 1})};
  program.outputs = {{0, DType::f32}};
  EXPECT_EQ(body_of(generate(program)), "");
  EXPECT_EQ(generate(program).blocks, 1u);
}

TEST(Generate, EntryNamesTheText) {
  std::set<std::string> entries;
  for (const double constant : {0.25, 0.5, 1.0 / 3.0, double(INFINITY)}) {
    EwProgram program = broadcast_program(8, 16);
    program.constants[0].value = constant;
    EXPECT_EQ(generate(program).entry, generate(program).entry);
    entries.insert(generate(program).entry);
  }
  entries.insert(generate(broadcast_program(8, 32)).entry);
  EXPECT_EQ(entries.size(), 5u);
}

TEST(Generate, PreludeNeedsNoIncludePath) {
  const std::string& prelude = generated_prelude();
  EXPECT_EQ(prelude.find("#include \""), std::string::npos);
  EXPECT_NE(prelude.find("auto Gelu(T a) { return gelu(a); }"), std::string::npos);
  EXPECT_NE(prelude.find("0xD2511F53"), std::string::npos) << "Philox";
}

// Every operator in every type, every cast, dropout, all ways of reading;
// each operator's name is in the text.
std::string everything() {
  std::string source = generated_prelude(), programs;
  std::set<std::string> entries;
  const auto add = [&](const EwProgram& program) {
    const GeneratedKernel kernel = generate(program);
    if (entries.insert(kernel.entry).second) programs += kernel.source;
  };
  for (const DType type : kAllTypes) add(every_operator(type, 1001));
  for (const DType type : kAllTypes) add(every_cast(type, 1001));
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    add(dropout_program(type, {33, 8}));
    add(dropout_program(type, {33, 5}));
  }
  add(broadcast_program(64, 128));
  add(broadcast_program(63, 127));
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    add(norm_program(type, 5, 64));
  }
  add(norm_program(DType::f32, 5, 1024));
  add(softmax_program(4, 44));
  EwProgram power = program_of({64});
  power.inputs = {strided_input(DType::f32, {1})};
  power.constants = {
      {DType::f32, 0.5}, {DType::f32, 2}, {DType::f32, 3}, {DType::f32, double(INFINITY)}, {DType::i64, -7}};
  for (std::int16_t i = 0; i < 4; ++i) {
    power.code.push_back({EwOp::Pow, DType::f32, DType::f32, {0, std::int16_t(1 + i), -1}, 0});
    power.outputs.push_back({std::int16_t(6 + i), DType::f32});
  }
  power.outputs.push_back({5, DType::i64});
  add(power);
  for (const EwRow& row : ew_formulas())
    EXPECT_NE(programs.find("op::" + std::string(row.name) + "<"), std::string::npos)
        << row.name << " is in no program";
  return source + programs;
}

TEST(Generate, CompilesWithNvrtc) {
  if (gpu::nvrtc_version().empty()) GTEST_SKIP() << gpu::nvrtc_compile("", "sm_90").error;
  const std::string source = everything();
  for (const char* architecture : {"sm_80", "sm_90"}) {
    const gpu::RtcOutput output = gpu::nvrtc_compile(source, architecture);
    EXPECT_EQ(output.error, "") << architecture;
    EXPECT_EQ(output.code.substr(0, 4), "\177ELF") << architecture;
  }
}

TEST(Generate, CompilesWithHiprtc) {
  if (gpu::hiprtc_version().empty()) GTEST_SKIP() << gpu::hiprtc_compile("", "gfx90a").error;
  const gpu::RtcOutput output = gpu::hiprtc_compile(everything(), "gfx90a");
  EXPECT_EQ(output.error, "");
  EXPECT_FALSE(output.code.empty());
}

}  // namespace
}  // namespace gradloom::kernels::test
