#include "profiler/roofline.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

Hardware hardware() {
  Hardware h;
  h.memory = {{0, 100}};
  h.products = {{"f32", 1000}, {"bf16", 4000}};
  h.vectors = 500;
  h.launch_ns = 10;
  return h;
}

KernelInfo kernel(const char* op, const char* types, double flops, double read, double written) {
  KernelInfo info;
  info.op = op;
  info.types = types;
  info.flops = flops;
  info.bytes_read = read;
  info.bytes_written = written;
  return info;
}

TEST(Roofline, TheLowerRoofHoldsAKernelDown) {
  const KernelBound sum = kernel_bound(hardware(), kernel("Add", "f32[100]", 1000, 8000, 4000), "f32");
  EXPECT_EQ(roof_text(sum), "memory");
  EXPECT_DOUBLE_EQ(sum.least_ns, 120);
  const KernelBound busy = kernel_bound(hardware(), kernel("Erf", "f32[100]", 1e6, 400, 400), "f32");
  EXPECT_EQ(roof_text(busy), "vectors");
  EXPECT_DOUBLE_EQ(busy.least_ns, 2000);
  const KernelBound small = kernel_bound(hardware(), kernel("Add", "f32[1]", 1, 8, 4), "f32");
  EXPECT_EQ(roof_text(small), "launch");
  EXPECT_DOUBLE_EQ(small.least_ns, 10);
}

TEST(Roofline, ProductsHaveTheRoofOfTheirOperands) {
  const KernelInfo wide = kernel("MatMul", "f32[1000, 1000]", 2e9, 8e6, 4e6);
  EXPECT_EQ(roof_text(kernel_bound(hardware(), wide, "f32")), "f32 products");
  EXPECT_DOUBLE_EQ(kernel_bound(hardware(), wide, "f32").least_ns, 2e6);
  // A weight's gradient of a bf16 run is f32; what it is the product of is not.
  EXPECT_EQ(roof_text(kernel_bound(hardware(), wide, "bf16{full=Softmax}")), "bf16 products");
  EXPECT_DOUBLE_EQ(kernel_bound(hardware(), wide, "bf16").least_ns, 5e5);
  // No unit for products in f64.
  const KernelInfo f64 = kernel("MatMul", "f64[1000, 1000]", 2e9, 8e6, 4e6);
  EXPECT_EQ(roof_text(kernel_bound(hardware(), f64, "f64")), "vectors");
  EXPECT_DOUBLE_EQ(kernel_bound(hardware(), f64, "f64").least_ns, 4e6);
}

TEST(Roofline, EveryGradientOfAProductIsOneToo) {
  for (const char* op :
       {"MatMul", "Gemm", "FusedMatMul", "FusedMatMulGrad", "AccumulateMatMul", "Einsum", "Conv",
        "ConvTranspose", "ConvGradData", "ConvGradWeights", "FusedAttention", "FusedAttentionGrad",
        "LinearCrossEntropyLoss", "LinearCrossEntropyGrad", "RNN", "GRU", "LSTM", "RecurrentGrad"})
    EXPECT_EQ(kernel_bound(hardware(), kernel(op, "f32[64, 64]", 1e9, 1, 1), "f32").roof, Roof::products)
        << op;
  // And what mixed precision computes in 16 bits is a product.
  for (const OpDef* op : all_ops())
    if (op->precision == Precision::low) {
      EXPECT_NE(op->arithmetic, Arithmetic::vectors) << op->name;
    }
}

TEST(Roofline, WhatIsExpectedReachesAPartOfTheRoofs) {
  Hardware h = hardware();
  h.reach = {.memory = 0.5, .vectors = 0.25, .products = 0.8, .convolutions = 0.4, .attention = 0.2};
  const auto expected = [&](const char* op, double flops, double bytes) {
    return kernel_bound(h, kernel(op, "f32[8]", flops, bytes, 0), "f32").expected_ns;
  };
  EXPECT_DOUBLE_EQ(expected("Add", 1, 10000), 200 + 10);
  EXPECT_DOUBLE_EQ(expected("Erf", 1e6, 1), 8000 + 10);
  EXPECT_DOUBLE_EQ(expected("MatMul", 8e6, 1), 10000 + 10);
  EXPECT_DOUBLE_EQ(expected("Conv", 8e6, 1), 20000 + 10);
  EXPECT_DOUBLE_EQ(expected("FusedAttention", 8e6, 1), 40000 + 10);
}

// A product of 4e6 FLOP and then, twice, a sum that moves 3000 bytes with two kernels.
TEST(Roofline, ASequenceTakesWhatItsLaunchesTakeOneAfterAnother) {
  KernelInfo info = kernel("LinearCrossEntropyGrad", "f32[]", 4e6 + 2, 6000, 100);
  info.launches = {{.kernel = "gemm",
                    .arithmetic = Arithmetic::products,
                    .dtype = DType::bf16,
                    .count = 1,
                    .flops = 4e6,
                    .bytes_read = 100,
                    .rows = 10,
                    .columns = 10},
                   {.kernel = "reduce", .count = 2, .kernels = 2, .flops = 1, .bytes_read = 3000}};
  const KernelBound bound = kernel_bound(hardware(), info, "bf16");
  EXPECT_EQ(roof_text(bound), "bf16 products");
  EXPECT_DOUBLE_EQ(bound.least_ns, 1000 + 2 * 30);
  EXPECT_DOUBLE_EQ(bound.expected_ns, (1000 + 10) + 2 * (30 + 20));
  // The same in one launch: what moves is hidden behind what is computed.
  info.launches.clear();
  EXPECT_DOUBLE_EQ(kernel_bound(hardware(), info, "bf16").expected_ns, (4e6 + 2) / 4000 + 10);
}

// A GPU of 100 processors, tiles of 256 x 128 at best.
TEST(Roofline, ProductsFillProcessorsTileByTile) {
  Hardware h = hardware();
  h.processors = 100;
  h.launch_ns = 0;
  h.memory = {{0, 1e9}};
  const auto part = [&](double rows, double columns, double inner, double batch = 1,
                        bool own_weights = true) {
    const double flops = 2 * batch * rows * columns * inner;
    char types[96];
    std::snprintf(types, sizeof types, "bf16[%.0f, %.0f, %.0f]", batch, rows, columns);
    const double read = 2 * (batch * rows * inner + (own_weights ? batch : 1) * inner * columns);
    const KernelBound bound =
        kernel_bound(h, kernel("MatMul", types, flops, read, 2 * batch * rows * columns), "bf16");
    return flops / 4000 / bound.expected_ns;
  };
  EXPECT_NEAR(part(256 * 10, 128 * 10, 4096), 1, 1e-9);  // one full wave
  EXPECT_LT(part(256 * 10, 128 * 11, 4096), 1);
  EXPECT_NEAR(part(256 * 100, 128 * 100, 4096), 1, 1e-9);
  // A long inner dimension is split: 25 tiles for 100 processors.
  EXPECT_NEAR(part(256 * 5, 128 * 5, 4096), 0.95, 1e-9);
  EXPECT_NEAR(part(256 * 5, 128 * 5, 256), 0.8, 1e-9);  // a short one is not, but smaller tiles fill them
  // One weight for a batch of thin products makes one large product of them.
  EXPECT_GT(part(16, 1280, 4096, 160, false), 0.9);
  EXPECT_LT(part(16, 1280, 4096, 160, true), 0.5);
}

}  // namespace
}  // namespace gradloom
