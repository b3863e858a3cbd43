// DeepSpeed's configuration file (ds_config.json) as settings of a recipe, and back. What one side has no word for, or means
// otherwise, is listed with its reason; nothing is left out silently. Pure: texts in, texts out.
//
// Keys, defaults and formulas are those of DeepSpeed 0.18 (deepspeed/runtime/config.py, lr_schedules.py, fp16/loss_scaler.py,
// zero/config.py, docs/_pages/config-json.md). "auto", which Hugging Face's integrations replace, leaves the recipe's own value.
//
// In DeepSpeed step s trains at the rate that its schedule has for s - 2 (the first two at the least rate), that of OneCycle for
// s - 1; here it is s. A listed line says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sessions/conversion.h"

namespace gradloom {

constexpr std::int64_t kMaxDeepSpeedBytes = 16 << 20;
constexpr const char* kBatchDim = "batch";  // the symbolic dim that micro-batches bind

struct DeepSpeedGiven {
  std::optional<std::int64_t> ranks{};  // that the user named; otherwise the batch sizes may say
  bool batch = false;                   // the user bound the dim `batch`: it stays
  std::optional<std::vector<std::string>> free_dims{};  // of the model, without a binding; nothing: not known
};

struct FromDeepSpeed {
  Recipe recipe;
  std::vector<ConversionNote> notes;
};
// The recipe `own` with what the file says. Errc::bad_input, naming the JSON path: no JSON, a wrong type, a value out of range,
// batch sizes that contradict each other or the ranks.
Result<FromDeepSpeed> recipe_from_deepspeed(const std::string& json, const Recipe& own,
                                            const DeepSpeedGiven& given);

// Two-space indent, newline at the end. Errors: those of the recipe's own texts.
Result<ConvertedFile> deepspeed_from_recipe(const Recipe& recipe);

}  // namespace gradloom
