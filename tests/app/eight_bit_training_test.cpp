// 500 steps with optimizer states of 8 bits against states of f32: the mean loss of steps 480 to 500 within 2 %.
#include "tests/app/long_training.h"

#include "engine/train/optimizers.h"

namespace gradloom {
namespace {

class EightBitTraining : public testing::TestWithParam<LongTraining> {};

TEST_P(EightBitTraining, EndsWhereF32Does) {
  const double full = last_loss(GetParam(), [](Recipe&) {});
  const double encoded = last_loss(GetParam(), [](Recipe& recipe) {
    OptimizerSpec optimizer = *parse_optimizer(recipe.optimizer);
    optimizer.eight_bit_states = true;
    recipe.optimizer = print_optimizer(optimizer);
  });
  EXPECT_NEAR(encoded, full, 0.02 * full);
  RecordProperty("f32", std::to_string(full));
  RecordProperty("eight_bit", std::to_string(encoded));
  EXPECT_NE(encoded, full) << "the states were not of 8 bits";
}

INSTANTIATE_TEST_SUITE_P(Models, EightBitTraining,
                         testing::Values(LongTraining{"cnn-digits", 0}, LongTraining{"gpt-char", 0},
                                         LongTraining{"bert-tiny", 0},
                                         LongTraining{"bert-tiny", 0, "lamb{lr=0.002}"}),
                         training_name);

}  // namespace
}  // namespace gradloom
