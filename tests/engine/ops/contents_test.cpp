// Known contents within bounds: of the function, and of the rows that ask it.
#include "engine/ops/contents.h"

#include "tests/engine/ops/support.h"

namespace gradloom {
namespace {

TEST(Contents, KnownOnesAreWithinTheirBounds) {
  const Tensor values = ints({0, 2});
  EXPECT_TRUE(require_between(nullptr, 0, 1, "label").ok());
  EXPECT_TRUE(require_between(&values, 0, 2, "label").ok());
  const Status high = require_between(&values, 0, 1, "label"), low = require_between(&values, 1, 2, "label");
  ASSERT_FALSE(high.ok());
  EXPECT_EQ(high.error().message, "label 2 is not 0 to 1");
  ASSERT_FALSE(low.ok());
  EXPECT_EQ(low.error().message, "label 0 is not 1 to 2");
}

TEST(Contents, LengthsOfSequencesReachToTheLastStep) {
  const auto reversed = [](const List& lengths) {
    return error_of("ReverseSequence", {f32({4, 2}), ints(lengths)});
  };
  EXPECT_TRUE(mentions(reversed({4, 5}), "length 5 is not 0 to 4"));
  EXPECT_TRUE(mentions(reversed({-1, 4}), "length -1 is not 0 to 4"));
  EXPECT_TRUE(infer("ReverseSequence", {f32({4, 2}), ints({0, 4})}).ok());
  const auto recurrent = [](double length) {
    return infer(
        "GRU",
        {f32({4, 1, 3}), f32({1, 6, 3}), f32({1, 6, 2}), std::monostate(), tensor({1}, {length}, DType::i32)},
        {{"hidden_size", std::int64_t{2}}}, 2);
  };
  EXPECT_TRUE(recurrent(4).ok());
  ASSERT_FALSE(recurrent(5).ok());
  EXPECT_TRUE(mentions(recurrent(5).error().message, "length 5 is not 0 to 4"));
}

TEST(Contents, LabelsAreClassesOrIgnored) {
  for (const char* loss : {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}) {
    const Attrs ignored{{"ignore_index", std::int64_t{-1}}};
    EXPECT_TRUE(infer(loss, {f32({2, 3}), ints({0, 2})}).ok());
    EXPECT_TRUE(mentions(error_of(loss, {f32({2, 3}), ints({0, 3})}), "label 3 is not 0 to 2"));
    EXPECT_TRUE(mentions(error_of(loss, {f32({2, 3}), ints({0, -1})}), "label -1 is not 0 to 2"));
    EXPECT_TRUE(infer(loss, {f32({2, 3}), ints({0, -1})}, ignored).ok());
    EXPECT_TRUE(mentions(error_of(loss, {f32({2, 3}), ints({-1, 3})}, ignored), "label 3 is not 0 to 2"));
  }
}

// Labels that come with the data may be anything: those that are no class add nothing.
TEST(Contents, UnknownLabelsOfNoClassAddNothing) {
  const Tensor scores = tensor({3, 2}, {-1, -2, -3, -4, -5, -7});
  const Attrs each{{"reduction", std::string("none")}};
  using Values = std::vector<double>;
  EXPECT_EQ(run_unknown("NegativeLogLikelihoodLoss", {scores, ints({1, 2, 0})}, each), (Values{2, 0, 5}));
  EXPECT_EQ(run_unknown("NegativeLogLikelihoodLoss", {scores, ints({1, -3, 0})}), (Values{3.5}));
  EXPECT_EQ(gradient("NegativeLogLikelihoodLoss", {scores, ints({1, 9, 0})}, 0),
            (Values{0, -0.5, 0, 0, -0.5, 0}));
  const Values losses = run_unknown("SoftmaxCrossEntropyLoss", {scores, ints({1, 7, 0})}, each);
  EXPECT_EQ(losses[1], 0);
  EXPECT_GT(losses[0], 0);
  const Values slopes = gradient("SoftmaxCrossEntropyLoss", {scores, ints({1, 7, 0})}, 0);
  EXPECT_EQ(slopes[2], 0);
  EXPECT_EQ(slopes[3], 0);
  EXPECT_NE(slopes[0], 0);
}

}  // namespace
}  // namespace gradloom
