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
