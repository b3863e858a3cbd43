// LinearCrossEntropyGrad in bf16 against f64.
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

// Of as many classes as dx is made in parts of, and some behind the parts: within the roundings of the gradient of the logits and of
// the results. Rows that are left out, and a chunk that is not full.
TEST(LinearCrossEntropy, GradientsOfManyClassesInBf16) {
  constexpr std::int64_t rows = 7, columns = 8, classes = 16 * 1056 + 7;
  const Tensor labels = Tensor::from_i64({classes - 1, 0, -100, 5000, 16 * 1056, 1, -100}),
               dloss = Tensor::from_f64(DType::f32, {}, {1});
  for (const bool transposed : {false, true}) {
    Attrs attrs{{"chunk_rows", std::int64_t{2}},
                {"reduction", std::string("sum")},
                {"ignore_index", std::int64_t{-100}}};
    if (transposed) attrs.set("axis", std::int64_t{0});
    const Tensor x = numbers(DType::bf16, {rows, columns}, 3),
                 w = numbers(DType::bf16, transposed ? Shape{classes, columns} : Shape{columns, classes}, 4);
    const auto got = run("LinearCrossEntropyGrad", attrs, {dloss, x, w, Tensor(), labels}, 3),
               exact =
                   run("LinearCrossEntropyGrad", attrs,
                       {dloss.cast(DType::f64), x.cast(DType::f64), w.cast(DType::f64), Tensor(), labels}, 3);
    EXPECT_NEAR(got[0].at(0), exact[0].at(0), 1e-4);
    for (const std::size_t i : {1u, 2u}) {
      ASSERT_EQ(got[i].shape(), exact[i].shape());
      for (std::int64_t e = 0; e < got[i].count(); ++e)
        ASSERT_NEAR(got[i].at(e), exact[i].at(e), 0x1p-8 * (1 + std::abs(exact[i].at(e))))
            << transposed << " " << i << " " << e;
    }
    for (const std::int64_t left_out : {2, 6})
      for (std::int64_t c = 0; c < columns; ++c) EXPECT_EQ(got[1].at(left_out * columns + c), 0);
  }
}

}  // namespace
}  // namespace gradloom
