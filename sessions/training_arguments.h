// A recipe as keyword arguments of Hugging Face's TrainingArguments (transformers 4.38 and newer) and as a configuration file of
// Accelerate: `TrainingArguments(output_dir, **json.load(open(FILE)))`, `accelerate launch --config_file FILE`. Pure.
//
// The Trainer's step s has the rate that its schedule has for s - 1; here it is s, but for polynomial without a rise, which is
// equal. Its weight decay leaves biases and norms out. Lists say so.
#pragma once

#include <cstdint>

#include "sessions/conversion.h"

namespace gradloom {

// JSON, two-space indent, newline at the end. Errors: those of the recipe's own texts.
Result<ConvertedFile> training_arguments_of(const Recipe& recipe);

// YAML. `machines` divides the recipe's ranks; <ADDRESS> stands for the first of several.
Result<ConvertedFile> accelerate_config_of(const Recipe& recipe, std::int64_t machines);

}  // namespace gradloom
