// LRN against the definition.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

TEST(LRN, LooksAtTheChannelsAround) {
  for (const std::int64_t size : {1, 2, 3, 4, 9}) {
    const Tensor x = numbers(DType::f64, {2, 5, 3}, 1);
    const Attrs attrs{{"size", size}, {"alpha", 0.3}, {"beta", 0.6}, {"bias", 1.5}};
    std::vector<double> y;
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const std::int64_t c = i / 3 % 5;
      double squares = 0;
      for (std::int64_t k = std::max<std::int64_t>(0, c - (size - 1) / 2);
           k <= std::min<std::int64_t>(4, c + size / 2); ++k)
        squares += x.at(i + (k - c) * 3) * x.at(i + (k - c) * 3);
      y.push_back(x.at(i) / std::pow(1.5 + 0.3 / static_cast<double>(size) * squares, 0.6));
    }
    expect_near(run("LRN", attrs, {x})[0], {2, 5, 3}, y, 1e-14, "size " + std::to_string(size));
  }
  EXPECT_EQ(inference_error("LRN", {}, {{DType::f32, {1, 2, 3}}}), "size 0 is out of range");
}

}  // namespace
}  // namespace gradloom
