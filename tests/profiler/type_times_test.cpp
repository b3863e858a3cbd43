#include "profiler/type_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>

namespace gradloom {
namespace {

KernelInfo kernel_of(const std::string& op, const std::string& name, const std::string& types, double flops,
                     double bytes) {
  KernelInfo info;
  info.op = op;
  info.kernel = name;
  info.types = types;
  info.flops = flops;
  info.bytes_read = bytes / 2;
  info.bytes_written = bytes / 2;
  return info;
}

// Additions take as long in both types while they lie in a cache, half of it in 16 bits beyond.
const TypeTimes& known() {
  static const TypeTimes times({{"Add", "f32", 1e4, 100},
                                {"Add", "bf16", 1e4, 100},
                                {"Add", "f32", 1e6, 40000},
                                {"Add", "bf16", 1e6, 20000},
                                {"Gelu", "f32", 1e4, 1000},
                                {"Gelu", "bf16", 1e4, 1300},
                                {"MatMul", "f32", 1e6, 100},
                                {"MatMul", "bf16", 1e6, 50},
                                {"Conv", "f32", 1e6, 100},
                                {"Conv", "bf16", 1e6, 90},
                                {"Concat", "f32", 1e4, 10},
                                {"Concat", "bf16", 1e4, 6},
                                {"LayerNormalization", "f32", 1e4, 10},
                                {"LayerNormalization", "bf16", 1e4, 17}});
  return times;
}

TEST(TypeTimes, AnOperatorThatWasMeasuredGoesByItsSize) {
  const auto ratio = [](double bytes) {
    return known().ratio(kernel_of("Add", "elementwise Add", "f32[8]", 8, bytes), "bf16").value_or(-1);
  };
  EXPECT_DOUBLE_EQ(ratio(10), 1) << "smaller than any that was measured";
  EXPECT_DOUBLE_EQ(ratio(1e4), 1);
  EXPECT_NEAR(ratio(1e5), std::sqrt(0.5), 1e-9) << "half way, on logarithmic axes";
  EXPECT_DOUBLE_EQ(ratio(1e6), 0.5);
  EXPECT_DOUBLE_EQ(ratio(1e9), 0.5);
}

TEST(TypeTimes, SizesAreThoseOfF32) {
  EXPECT_EQ(type_size(kernel_of("Add", "", "f32[2]", 2, 64)), 64);
  EXPECT_EQ(type_size(kernel_of("Add", "", "bf16[2]", 2, 32)), 64);
  EXPECT_EQ(type_size(kernel_of("MatMul", "", "bf16[2, 2]", 16, 32)), 16) << "FLOPs";
  EXPECT_EQ(first_type("bf16[8, 2] f32[8]"), "bf16");
  EXPECT_EQ(type_bits("f64"), 64);
  EXPECT_EQ(type_bits("no type"), 32);
  // The way back is the same.
  EXPECT_DOUBLE_EQ(*known().ratio(kernel_of("Add", "", "bf16[2]", 2, 5e5), "f32"), 2);
}

TEST(TypeTimes, OthersGoAsOneOfTheirKind) {
  for (const auto& [op, name, flops, expected] :
       {std::tuple("FusedMatMul", "matmul brg", 1e6, 0.5), std::tuple("Gemm", "matmul brg", 1e6, 0.5),
        std::tuple("ConvGradData", "convolution jit", 1e6, 0.9),
        std::tuple("FusedElementwise", "elementwise Add+Relu", 2500.0, 1.0),
        std::tuple("GeluGrad", "elementwise GeluGrad", 16.0 * 1250, 1.3),
        std::tuple("Transpose", "transpose", 0.0, 0.6), std::tuple("Softmax", "softmax", 5000.0, 1.7)})
    EXPECT_NEAR(known().ratio(kernel_of(op, name, "f32[8]", flops, 1e4), "bf16").value_or(-1), expected, 1e-9)
        << op;
}

TEST(TypeTimes, WhatWasNotMeasuredIsNotTold) {
  const KernelInfo add = kernel_of("Add", "elementwise Add", "f32[8]", 8, 100);
  EXPECT_FALSE(known().ratio(add, "f16").has_value());
  EXPECT_FALSE(TypeTimes().ratio(add, "bf16").has_value());
  EXPECT_EQ(known().ratio(add, "f32"), 1.0) << "its own type";
  EXPECT_EQ(TypeTimes().ratio(add, "f32"), 1.0);
}

TEST(TypeTimes, AUsualCpuGainsByItsUnitsForProductsOnly) {
  const KernelInfo product = kernel_of("MatMul", "matmul", "f32[8, 8]", 1024, 768),
                   sum = kernel_of("ReduceSum", "reduce", "f32[8]", 64, 256);
  EXPECT_LT(*TypeTimes::usual_of_cpu(true).ratio(product, "bf16"), 0.8);
  EXPECT_GT(*TypeTimes::usual_of_cpu(false).ratio(product, "bf16"), 1);
  EXPECT_GT(*TypeTimes::usual_of_cpu(true).ratio(product, "f16"), 1) << "no processor multiplies f16 here";
  EXPECT_GT(*TypeTimes::usual_of_cpu(true).ratio(sum, "bf16"), 1);
  EXPECT_NEAR(
      *TypeTimes::usual_of_cpu(true).ratio(sum, "bf16") *
          *TypeTimes::usual_of_cpu(true).ratio(kernel_of("ReduceSum", "reduce", "bf16[8]", 64, 128), "f32"),
      1, 1e-12);
}

}  // namespace
}  // namespace gradloom
