#include "app/finite_parameters.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine/ir/builder.h"

namespace gradloom {
namespace {

TEST(FiniteParameters, OnlyWhatTrainingSpoiledCounts) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  Graph graph;
  GraphBuilder b(graph);
  const Tensor weight = Tensor::from_f64(DType::f32, {2}, {1, 2}),
               mask = Tensor::from_f64(DType::f32, {2}, {0, -kInfinite});
  b.parameter("weight", weight);
  b.parameter("mask", mask);
  FiniteParameters parameters(graph);
  EXPECT_TRUE(*parameters.finite({{"weight", weight}, {"mask", mask}}));
  const Tensor spoiled = Tensor::from_f64(DType::f32, {2}, {1, kInfinite});
  EXPECT_FALSE(*parameters.finite({{"weight", spoiled}, {"mask", mask}}));
}

}  // namespace
}  // namespace gradloom
