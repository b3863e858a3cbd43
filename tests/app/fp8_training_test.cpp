// 500 steps with products of 8 bits, delayed and current scaling, against bf16 without: the mean loss of steps 480 to 500 within 5 %.
#include "tests/app/long_training.h"

namespace gradloom {
namespace {

struct Fp8Training {
  LongTraining training;
  const char* passes;
};

class Fp8Trainings : public testing::TestWithParam<Fp8Training> {};

TEST_P(Fp8Trainings, EndsWhereBf16Does) {
  const double half = last_loss(GetParam().training, [](Recipe& recipe) { set_precision(recipe, "bf16"); });
  const double rounded = last_loss(GetParam().training, [](Recipe& recipe) {
    set_pipeline(recipe, *parse_pipeline(GetParam().passes));
    set_precision(recipe, "bf16");
  });
  RecordProperty("bf16", std::to_string(half));
  RecordProperty("fp8", std::to_string(rounded));
  EXPECT_NEAR(rounded, half, 0.05 * half);
  EXPECT_NE(rounded, half) << "nothing was rounded";
}

INSTANTIATE_TEST_SUITE_P(Models, Fp8Trainings,
                         testing::Values(Fp8Training{{"gpt-char", 0}, "default,fp8{least=64}"},
                                         Fp8Training{{"gpt-char", 0},
                                                     "default,fp8{least=64,scaling=current}"},
                                         Fp8Training{{"bert-tiny", 0}, "default,fp8{least=16}"}));

}  // namespace
}  // namespace gradloom
