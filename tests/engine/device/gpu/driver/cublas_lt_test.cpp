// Who asks cuBLASLt for products (runtime/blas_lt.cpp), with the stand-in that computes them: the numbers, what is said of what was done,
// each failure. And the stand-in's rules, each broken on purpose.
#include <cmath>
#include <cstring>
#include <functional>

#include "engine/base/bf16.h"
#include "engine/device/gpu/runtime/blas_lt_api.h"
#include "engine/device/gpu/runtime/gemm_library.h"
#include "tests/engine/device/gpu/driver/libraries/numbers.h"
#include "tests/engine/device/gpu/driver/library_fixture.h"

namespace gradloom::strict {
namespace {

using namespace kernels;
using namespace kernels::gpu;

// ---- products ---------------------------------------------------------------------------------------------------------------------

class CublasLt : public LibraryFixture {
 protected:
  void SetUp() override {
    LibraryFixture::SetUp();
    Answer why;
    gemm_ = open_gemm_library(&why);
    ASSERT_NE(gemm_, nullptr) << why.text;
  }
  void TearDown() override {
    gemm_.reset();
    LibraryFixture::TearDown();
  }
  Answer run(const GemmArgs& args) {
    std::string used;
    const Answer answer = run_gemm(*gemm_, args, stream_, &used);
    EXPECT_EQ(used, "cublasLt 13.1.0");
    return answer;
  }

  static constexpr std::int64_t kM = 24, kN = 16, kK = 96;
  // Numbers that f16 has, whose products and sums f32 has.
  static std::vector<double> numbers(std::int64_t count, int seed) {
    std::vector<double> all;
    for (std::int64_t i = 0; i < count; ++i) all.push_back(double((i * 7 + seed * 5) % 17 - 8) / 8);
    return all;
  }
  void* numbers_of(DType type, const std::vector<double>& all) {
    std::vector<double> f64 = all;
    std::vector<float> f32(all.begin(), all.end());
    std::vector<_Float16> f16(all.begin(), all.end());
    std::vector<std::uint16_t> bf16;
    for (const double x : all) bf16.push_back(f32_to_bf16(float(x)));
    switch (type) {
      case DType::f64: return device(f64);
      case DType::f32: return device(f32);
      case DType::f16: return device(f16);
      default: return device(bf16);
    }
  }
  std::vector<double> read(DType type, const void* at, std::size_t count) const {
    const auto as = [&](const auto* memory) {
      const auto all = host(memory, count);
      return std::vector<double>(all.begin(), all.end());
    };
    if (type == DType::f64) return as(static_cast<const double*>(at));
    if (type == DType::f32) return as(static_cast<const float*>(at));
    if (type == DType::f16) return as(static_cast<const _Float16*>(at));
    std::vector<double> all;
    for (const std::uint16_t bits : host(static_cast<const std::uint16_t*>(at), count))
      all.push_back(bf16_to_f32(bits));
    return all;
  }
  // C = A B, dense by rows, of 2 products where there is a batch.
  GemmArgs product(DType type, std::int64_t batch = 1) {
    GemmArgs args{};
    args.dtype = type;
    args.batch_rank = batch > 1 ? 1 : 0;
    args.batch_dims[0] = batch;
    args.m = kM, args.n = kN, args.k = kK;
    args.a_row = kK, args.b_row = args.c_row = kN;
    args.a_col = args.b_col = args.c_col = 1;
    args.a_batch[0] = kM * kK, args.b_batch[0] = kK * kN, args.c_batch[0] = kM * kN;
    args.alpha = 0.5;
    args.a = numbers_of(type, numbers(batch * kM * kK, 1));
    args.b = numbers_of(type, numbers(batch * kK * kN, 2));
    args.c = numbers_of(type, numbers(batch * kM * kN, 3));
    args.workspace = device(std::vector<char>(1 << 16));
    args.workspace_bytes = 1 << 16;
    return args;
  }
  // What A B / 2 is, and more(i, j, it).
  void expect(const GemmArgs& args, DType type,
              const std::function<double(std::int64_t, std::int64_t, double)>& more,
              std::int64_t batch = 1) const {
    const auto a = read(args.dtype, args.a, std::size_t(batch * kM * kK)),
               b = read(args.dtype, args.b, std::size_t(batch * kK * kN)),
               c = read(type, args.c, std::size_t(batch * kM * kN));
    const double digits = type == DType::bf16  ? 1.0 / 128
                          : type == DType::f16 ? 1.0 / 1024
                          : type == DType::f32 ? 1e-6
                                               : 1e-14;
    for (std::int64_t at = 0; at < batch * kM * kN; ++at) {
      const std::int64_t which = at / (kM * kN), i = at / kN % kM, j = at % kN;
      double sum = 0;
      for (std::int64_t k = 0; k < kK; ++k)
        sum += a[std::size_t(which * kM * kK + i * args.a_row + k * args.a_col)] *
               b[std::size_t(which * kK * kN + k * args.b_row + j * args.b_col)];
      const double wanted = more(i, j, 0.5 * sum);
      ASSERT_NEAR(c[std::size_t(at)], wanted, digits * std::max(1.0, std::fabs(wanted))) << i << ", " << j;
    }
  }
  static double plain(std::int64_t, std::int64_t, double x) { return x; }
  static double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  }

  GemmLibraryPtr gemm_;
};

TEST_F(CublasLt, MultipliesInEveryTypeAndForm) {
  for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const bool a_turned : {false, true}) {
      for (const bool b_turned : {false, true}) {
        GemmArgs args = product(type, 2);
        if (a_turned) args.a_row = 1, args.a_col = kM;
        if (b_turned) args.b_row = 1, args.b_col = kK;
        EXPECT_EQ(run(args).text, "algorithm 68, tile 20, stages 36, split-K 2");
        expect(args, type, plain, 2);
      }
    }
  }
}

TEST_F(CublasLt, WhatIsWholeNeedsNoWorkspace) {
  GemmArgs args = product(DType::f32);
  args.workspace = nullptr;
  args.workspace_bytes = 0;
  EXPECT_EQ(run(args).text, "algorithm 66, tile 20, stages 36");
  expect(args, DType::f32, plain);
}

TEST_F(CublasLt, AddsToWhatIsThere) {
  GemmArgs args = product(DType::f32);
  args.accumulate = true;
  EXPECT_TRUE(run(args).taken);
  const auto before = numbers(kM * kN, 3);
  expect(args, DType::f32,
         [&](std::int64_t i, std::int64_t j, double x) { return x + before[std::size_t(i * kN + j)]; });
}

TEST_F(CublasLt, WideResultsAreF32) {
  GemmArgs args = product(DType::bf16);
  args.c = device(std::vector<float>(kM * kN));
  args.wide_c = true;
  EXPECT_TRUE(run(args).taken);
  expect(args, DType::f32, plain);
  args.bias = args.a;
  EXPECT_FALSE(run(args).taken) << "whose epilogue would read a bias of another type";
}

TEST_F(CublasLt, EpiloguesFollowTheProduct) {
  const auto bias = numbers(kN, 4), aux = numbers(kM * kN, 6);
  for (const DType type : {DType::f32, DType::bf16}) {
    GemmArgs args = product(type);
    args.bias = numbers_of(type, bias);
    args.activation = Activation::relu;
    EXPECT_TRUE(run(args).taken);
    expect(args, type,
           [&](std::int64_t, std::int64_t j, double x) { return std::max(0.0, x + bias[std::size_t(j)]); });
    args.activation = Activation::gelu_tanh;
    args.aux = numbers_of(type, aux);
    EXPECT_TRUE(run(args).taken);
    expect(args, type,
           [&](std::int64_t, std::int64_t j, double x) { return gelu(x + bias[std::size_t(j)]); });
    const GemmArgs with_gelu = args;
    args.c = args.aux;  // what the activation was applied to
    expect(args, type, [&](std::int64_t, std::int64_t j, double x) { return x + bias[std::size_t(j)]; });
    args = with_gelu;
    args.activation = Activation::gelu_tanh_grad;
    args.bias = nullptr;
    args.aux = numbers_of(type, aux);
    EXPECT_TRUE(run(args).taken);
    expect(args, type, [&](std::int64_t i, std::int64_t j, double x) {
      const double z = aux[std::size_t(i * kN + j)], h = 1e-5;
      return x * (gelu(z + h) - gelu(z - h)) / (2 * h);
    });
  }
}

// C = A B of codes, whose lines are along k. Every code of -8 to 8 eighths is a number of both formats' tables (exponent and fraction).
TEST_F(CublasLt, MultipliesCodesOf8Bits) {
  const auto codes = [&](std::int64_t count, int seed) {
    std::vector<std::uint8_t> all;
    for (std::int64_t i = 0; i < count; ++i)
      all.push_back(std::uint8_t(0x30 + (i * 7 + seed) % 11 + (i % 3 == 0 ? 0x80 : 0)));
    return all;
  };
  constexpr std::int64_t m = 32, n = 16, k = 96;
  const auto a = codes(m * k, 1), b = codes(n * k, 2);
  std::string used;
  for (const auto& [of_a, of_b] : {std::pair{DType::f8e4m3fn, DType::f8e4m3fn},
                                   {DType::f8e5m2, DType::f8e4m3fn},
                                   {DType::f8e4m3fn, DType::f8e5m2}})
    for (const DType type : {DType::f32, DType::f16, DType::bf16})
      for (const bool turned : {false, true}) {
        Fp8ProductArgs args{product(type), of_a, of_b, device(std::vector<float>{0.25f}),
                            device(std::vector<float>{0.125f})};
        GemmArgs& p = args.product;
        p.m = m, p.n = n, p.k = k;
        p.a = device(a), p.b = device(b), p.c = numbers_of(type, numbers(m * n, 3));
        p.a_row = k, p.a_col = 1, p.b_row = 1, p.b_col = k;
        p.c_row = turned ? 1 : n, p.c_col = turned ? m : 1;
        const Answer answer = run_fp8_product(*gemm_, args, stream_, &used);
        ASSERT_TRUE(answer.taken) << answer.text;
        const auto c = read(type, p.c, std::size_t(m * n));
        const auto number = [](DType format, std::uint8_t code) {
          return number_of_code(format == DType::f8e4m3fn ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2, code);
        };
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (std::int64_t l = 0; l < k; ++l)
              sum += number(of_a, a[std::size_t(i * k + l)]) * number(of_b, b[std::size_t(j * k + l)]);
            const double wanted = 0.5 * 0.25 * 0.125 * sum, digits = type == DType::f32 ? 1e-6 : 1.0 / 128;
            ASSERT_NEAR(c[std::size_t(i * p.c_row + j * p.c_col)], wanted,
                        digits * std::max(1.0, std::fabs(wanted)));
          }
      }
}

TEST_F(CublasLt, RefusesCodesThatTheLibraryHasNoProductOf) {
  const float* const one = device(std::vector<float>{1});
  GemmArgs p = product(DType::f32);
  p.m = p.n = 16, p.k = 32;
  p.a = device(std::vector<std::uint8_t>(1024)), p.b = device(std::vector<std::uint8_t>(1024));
  p.a_row = p.b_col = 32, p.a_col = p.b_row = 1, p.c_row = 16;
  std::string used;
  const auto why = [&](const GemmArgs& args, DType a = DType::f8e4m3fn, DType b = DType::f8e4m3fn) {
    const Answer answer = run_fp8_product(*gemm_, {args, a, b, one, one}, stream_, &used);
    EXPECT_FALSE(answer.failed);
    return answer.taken ? "taken" : answer.text;
  };
  EXPECT_EQ(why(p).substr(0, 5), "taken");
  EXPECT_EQ(why(p, DType::f8e5m2, DType::f8e5m2), "it has no products of E5M2 and E5M2");
  GemmArgs other = p;
  other.a_row = 1, other.a_col = 16;
  EXPECT_EQ(why(other), "codes of 8 bits must lie along the sums");
  other = p;
  other.k = other.a_row = other.b_col = 24;
  EXPECT_EQ(why(other), "a line of codes is no multiple of 16 bytes");
  other = p;
  other.a = static_cast<const std::uint8_t*>(p.a) + 8;
  EXPECT_EQ(why(other), "a matrix does not begin at a boundary of 16 bytes");
  other = p;
  other.bias = p.a;
  EXPECT_EQ(why(other), "codes of 8 bits are multiplied alone");
}

TEST_F(CublasLt, SumsOfAnOperandComeBesideTheProduct) {
  for (const GemmOperand of : {GemmOperand::a, GemmOperand::b}) {
    GemmArgs args = product(DType::f32);
    args.a_row = 1, args.a_col = kM;  // [k, m] dense
    args.sums_of = of;
    const std::int64_t length = of == GemmOperand::a ? kM : kN;
    args.sums = device(std::vector<float>(std::size_t(length)));
    ASSERT_TRUE(run(args).taken);
    expect(args, DType::f32, plain);
    const auto all = read(DType::f32, of == GemmOperand::a ? args.a : args.b, std::size_t(kK * length)),
               sums = read(DType::f32, args.sums, std::size_t(length));
    for (std::int64_t i = 0; i < length; ++i) {
      double sum = 0;
      for (std::int64_t k = 0; k < kK; ++k) sum += all[std::size_t(k * length + i)];
      EXPECT_NEAR(sums[std::size_t(i)], sum, 1e-5);
    }
  }
}

TEST_F(CublasLt, AlgorithmsAreTimedKeptAndTakenAgain) {
  const GemmArgs args = product(DType::f32);
  AlgorithmTable found;
  ASSERT_TRUE(tune_gemm(*gemm_, args, stream_, 8, found));
  expect(args, DType::f32, plain);
  GpuAlgorithm kept{};
  ASSERT_EQ(found.list(&kept, 1), 1);
  EXPECT_GT(kept.time_ns, 0);
  const std::string chosen = run(args).text;
  Answer why;
  gemm_.reset();
  gemm_ = open_gemm_library(&why);
  AlgorithmTable given, table;
  ASSERT_TRUE(given.give(kept));
  ASSERT_TRUE(tune_gemm(*gemm_, args, stream_, 8, given));
  EXPECT_EQ(run(args).text, chosen);
  kept.bytes[0] ^= 1;  // the library does not know it: others are timed
  gemm_.reset();
  gemm_ = open_gemm_library(&why);
  ASSERT_TRUE(table.give(kept));
  EXPECT_TRUE(tune_gemm(*gemm_, args, stream_, 1, table));
  expect(args, DType::f32, plain);
}

TEST_F(CublasLt, ChoosesOncePerProblem) {
  const GemmArgs args = product(DType::f32);
  const std::string text = run(args).text;
  const std::int64_t asked = driver().calls_by_name["cublasLtMatmulAlgoGetHeuristic"];
  EXPECT_EQ(run(args).text, text);
  EXPECT_EQ(driver().calls_by_name["cublasLtMatmulAlgoGetHeuristic"], asked);
}

TEST_F(CublasLt, WhatItHasNotIsRefusedAndWhatFailsHasFailed) {
  GemmArgs args = product(DType::f32);
  args.activation = Activation::gelu_erf;
  Answer answer = run(args);
  EXPECT_FALSE(answer.taken || answer.failed);
  EXPECT_EQ(answer.text, "it has no such epilogue");
  strict_fail("cublasLtMatmulAlgoGetHeuristic:1:15");
  answer = run(product(DType::f64));
  EXPECT_FALSE(answer.taken || answer.failed);
  EXPECT_EQ(answer.text, "cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_NOT_SUPPORTED");
  strict_fail("cublasLtMatmulAlgoGetHeuristic:1");
  answer = run(product(DType::f16));
  EXPECT_FALSE(answer.taken);
  EXPECT_TRUE(answer.failed);
  EXPECT_EQ(answer.text, "cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_INTERNAL_ERROR");
}

TEST_F(CublasLt, AProductThatFailsIsToldEachTime) {
  const GemmArgs args = product(DType::bf16);
  for (const char* fault : {"cublasLtMatmul:1", "launch:1"}) {
    EXPECT_TRUE(run(args).taken);
    strict_fail(fault);
    const Answer answer = run(args);
    EXPECT_FALSE(answer.taken) << fault;
    EXPECT_TRUE(answer.failed);
    EXPECT_EQ(answer.text, "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED");
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the library has a runtime of its own";
  }
  EXPECT_TRUE(run(args).taken);
}

TEST_F(CublasLt, WithoutAHandleItSaysWhatFailed) {
  for (const char* fault : {"cublasLtCreate:1", "memory:1"}) {
    strict_fail(fault);
    Answer why;
    EXPECT_EQ(open_gemm_library(&why), nullptr);
    EXPECT_TRUE(why.failed);
    EXPECT_EQ(why.text, "cublasLtCreate: CUBLAS_STATUS_ALLOC_FAILED");
  }
}

// ---- rules ------------------------------------------------------------------------------------------------------------------------

constexpr const char* kFile = "libcublasLt.so.13";

// [16, 8] = [16, 32] [32, 8], f32 by columns, which is right until a test changes something.
class CublasLtRules : public LibraryFixture {
 protected:
  struct Layout {
    cudaDataType_t type = CUDA_R_32F;
    std::uint64_t rows = 0, cols = 0;
    std::int64_t ld = 0;
    std::int32_t batch = 1;
    std::int64_t stride = 0;
  };
  struct Request {
    Layout a{CUDA_R_32F, 16, 32, 16}, b{CUDA_R_32F, 32, 8, 32}, d{CUDA_R_32F, 16, 8, 16};
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void *a_at, *b_at, *d_at, *bias = nullptr, *aux = nullptr, *workspace = nullptr;
    std::int64_t aux_ld = 0;
    std::size_t workspace_bytes = 0, preferred_bytes = 0;
    cudaStream_t stream;
    bool other_algorithm = false, foreign_preference = false, a_transposed = false;
    const float* scale = nullptr;  // of both operands
  };
  void SetUp() override {
    LibraryFixture::SetUp();
    good_.a_at = device(std::vector<float>(1024));
    good_.b_at = device(std::vector<float>(1024));
    good_.d_at = device(std::vector<float>(1024));
    good_.bias = good_.aux = nullptr;
    good_.stream = stream_;
    ASSERT_EQ(call<CublasLtCreate>("cublasLtCreate")(&handle_), 0);
  }
  void TearDown() override {
    EXPECT_EQ(call<CublasLtDestroy>("cublasLtDestroy")(handle_), 0);
    LibraryFixture::TearDown();
  }
  template <class F>
  static F* call(const char* name) {
    return function<F>(kFile, name);
  }
  static cublasLtMatrixLayout_t made(const Layout& from) {
    cublasLtMatrixLayout_t layout = nullptr;
    EXPECT_EQ(call<CublasLtLayoutCreate>("cublasLtMatrixLayoutCreate")(&layout, from.type, from.rows,
                                                                       from.cols, from.ld),
              0);
    const auto set = call<CublasLtLayoutSet>("cublasLtMatrixLayoutSetAttribute");
    EXPECT_EQ(set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &from.batch, sizeof from.batch), 0);
    EXPECT_EQ(set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &from.stride, sizeof from.stride), 0);
    return layout;
  }
  // What the heuristic says, else what the product does.
  int multiply(const Request& r) const {
    cublasLtMatmulDesc_t desc = nullptr;
    EXPECT_EQ(call<CublasLtDescCreate>("cublasLtMatmulDescCreate")(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      EXPECT_EQ(
          call<CublasLtDescSet>("cublasLtMatmulDescSetAttribute")(desc, attribute, &value, sizeof value), 0);
    };
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, r.epilogue);
    set(CUBLASLT_MATMUL_DESC_TRANSA, r.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, r.scale);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, r.scale);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, r.bias);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, r.aux);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, r.aux_ld);
    const cublasLtMatrixLayout_t a = made(r.a), b = made(r.b), d = made(r.d);
    cublasLtMatmulPreference_t preference = nullptr;
    EXPECT_EQ(call<CublasLtPreferenceCreate>("cublasLtMatmulPreferenceCreate")(&preference), 0);
    EXPECT_EQ(call<CublasLtPreferenceSet>("cublasLtMatmulPreferenceSetAttribute")(
                  preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &r.preferred_bytes,
                  sizeof r.preferred_bytes),
              0);
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    int status = call<CublasLtHeuristic>("cublasLtMatmulAlgoGetHeuristic")(handle_, desc, a, b, d, d,
                                                                           preference, 1, &result, &count);
    const float alpha = 1, beta = 0;
    if (r.other_algorithm) result.algo.data[1] ^= 1;
    if (status == 0)
      status = call<CublasLtMatmul>("cublasLtMatmul")(handle_, desc, &alpha, r.a_at, a, r.b_at, b, &beta,
                                                      r.d_at, d, r.d_at, d, &result.algo, r.workspace,
                                                      r.workspace_bytes, r.stream);
    EXPECT_EQ(call<CublasLtPreferenceDestroy>("cublasLtMatmulPreferenceDestroy")(preference), 0);
    for (const cublasLtMatrixLayout_t layout : {a, b, d})
      EXPECT_EQ(call<CublasLtLayoutDestroy>("cublasLtMatrixLayoutDestroy")(layout), 0);
    EXPECT_EQ(call<CublasLtDescDestroy>("cublasLtMatmulDescDestroy")(desc), 0);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return status;
  }
  void expect_broken(const Request& r, const char* words, int status = 7) const {
    EXPECT_EQ(multiply(r), status) << words;
    expect_said(words);
  }
  Request good_{};
  cublasLtHandle_t handle_ = nullptr;
};

TEST_F(CublasLtRules, TheProductItselfIsRight) { EXPECT_EQ(multiply(good_), 0); }

TEST_F(CublasLtRules, LayoutsDescribeTheProduct) {
  Request r = good_;
  r.b.rows = 31;
  expect_broken(r, "a product of 16 x 32 and 31 x 8 is no 16 x 8");
  r = good_;
  r.a.ld = 15;
  expect_broken(r, "matrix A: columns of 16 are 15 apart");
  r = good_;
  r.b.batch = 2;
  expect_broken(r, "the batches are of different sizes");
  r.a.batch = r.d.batch = 2;
  r.a.stride = 512, r.b.stride = 256, r.d.stride = 127;
  expect_broken(r, "elements of matrix D overlap");
  r = good_;
  r.d.cols = 0;
  expect_broken(r, "matrix D is empty");
}

TEST_F(CublasLtRules, TypesGoTogetherOrAreNotSupported) {
  Request r = good_;
  r.d.type = CUDA_R_16F;
  EXPECT_EQ(multiply(r), CUBLAS_STATUS_NOT_SUPPORTED);
  r = good_;
  r.a.type = r.b.type = CUDA_R_16F;
  EXPECT_EQ(multiply(r), 0) << "of half types into f32";
  r.b.type = CUDA_R_16BF;
  EXPECT_EQ(multiply(r), CUBLAS_STATUS_NOT_SUPPORTED);
}

// Transposed A, plain B, lines of whole packs, and their scales.
TEST_F(CublasLtRules, CodesOf8BitsHaveRulesOfTheirOwn) {
  Request r = good_;
  r.a = {CUDA_R_8F_E4M3, 32, 16, 32};
  r.b = {CUDA_R_8F_E5M2, 32, 8, 32};
  expect_broken(r, "a product of 32 x 16 and 32 x 8 is no 16 x 8");
  r.a_transposed = true;
  expect_broken(r, "codes of 8 bits without their scales");
  r.scale = static_cast<const float*>(device(std::vector<float>{1}));
  EXPECT_EQ(multiply(r), 0);
  Request other = r;
  other.a.type = CUDA_R_8F_E5M2;
  EXPECT_EQ(multiply(other), CUBLAS_STATUS_NOT_SUPPORTED);
  other = r;
  other.a.ld = 40;
  EXPECT_EQ(multiply(other), CUBLAS_STATUS_NOT_SUPPORTED);
  other = r;
  other.a = {CUDA_R_8F_E4M3, 16, 32, 16};
  other.a_transposed = false;
  EXPECT_EQ(multiply(other), CUBLAS_STATUS_NOT_SUPPORTED);
  std::vector<float> pageable(1);
  other = r;
  other.scale = pageable.data();
  expect_broken(other, "a scale: it is not memory of the device");
  other = good_;
  other.scale = r.scale;
  expect_broken(other, "scales of what is no code of 8 bits");
}

TEST_F(CublasLtRules, PlacesAreTheDevices) {
  Request r = good_;
  std::vector<float> pageable(1024);
  r.a_at = pageable.data();
  expect_broken(r, "matrix A: it is not memory of the device");
  r = good_;
  r.b_at = static_cast<float*>(good_.b_at) + 900;
  expect_broken(r, "matrix B: 1024 bytes at 3600 of device memory of 4096 bytes");
  r = good_;
  r.d_at = static_cast<float*>(good_.d_at) + 1;
  expect_broken(r, "matrix D does not begin at a boundary of 16 bytes");
  r = good_;
  r.stream = nullptr;
  EXPECT_EQ(multiply(r), 13);
  expect_said("the default stream");
}

TEST_F(CublasLtRules, WorkspaceIsAtItsBoundaryAndLargeEnough) {
  Request r = good_;
  r.a.cols = r.b.rows = r.b.ld = 128;
  r.a_at = device(std::vector<float>(4096));
  r.preferred_bytes = 4096;
  r.workspace = device(std::vector<char>(8192));
  r.workspace_bytes = 4096;
  EXPECT_EQ(multiply(r), 0);
  r.workspace_bytes = 1023;
  expect_broken(r, "a workspace of 1023 bytes, of which the algorithm needs 1024");
  r.workspace_bytes = 4096;
  r.workspace = static_cast<char*>(r.workspace) + 64;
  expect_broken(r, "the workspace does not begin at a boundary of 256 bytes");
}

TEST_F(CublasLtRules, EpiloguesHaveWhatTheyNeed) {
  Request r = good_;
  r.epilogue = CUBLASLT_EPILOGUE_BIAS;
  expect_broken(r, "no bias pointer");
  r.bias = static_cast<char*>(good_.b_at) + 2;
  expect_broken(r, "the bias does not begin at a boundary of 4 bytes");
  r.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  expect_broken(r, "a bias pointer that no epilogue uses");
  r = good_;
  r.epilogue = CUBLASLT_EPILOGUE_GELU_AUX;
  r.aux = device(std::vector<float>(1024));
  r.aux_ld = 17;
  expect_broken(r, "auxiliary columns of 16 are 17 apart");
  r.aux_ld = 16;
  EXPECT_EQ(multiply(r), 0);
  r.aux = static_cast<float*>(r.aux) + 1;
  expect_broken(r, "the auxiliary pointer is not at a boundary of 16 bytes");
}

TEST_F(CublasLtRules, AlgorithmsAreThoseOfTheProblem) {
  Request r = good_;
  r.other_algorithm = true;
  expect_broken(r, "the algorithm is none, or another problem's");
}

TEST_F(CublasLtRules, HandlesLive) {
  const cublasLtMatrixLayout_t layout = made(good_.a);
  const auto destroy = call<CublasLtLayoutDestroy>("cublasLtMatrixLayoutDestroy");
  EXPECT_NE(left().find("1 cublasLt layouts"), std::string::npos) << left();
  EXPECT_EQ(destroy(layout), 0);
  EXPECT_EQ(destroy(layout), 7);
  expect_said("no such handle among the cublasLt layouts, or it was destroyed");
  const std::int64_t wide = 1;
  cublasLtMatrixLayout_t other = made(good_.a);
  EXPECT_EQ(call<CublasLtLayoutSet>("cublasLtMatrixLayoutSetAttribute")(
                other, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &wide, sizeof wide),
            7);
  expect_said("an attribute of 4 bytes is given as one of 8");
  EXPECT_EQ(destroy(other), 0);
}

TEST_F(CublasLtRules, WorkIsRecordedAndHandlesAreNotMadeMeanwhile) {
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  cublasLtHandle_t other = nullptr;
  EXPECT_EQ(call<CublasLtCreate>("cublasLtCreate")(&other), 7);
  expect_said("cublasLtCreate: not possible while work is recorded");
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  said();
}

}  // namespace
}  // namespace gradloom::strict
