// Loss scaling, for training in f16: the loss is multiplied before the backward pass, so that gradients in
// f16 do not vanish, and the gradients divided by as much before the optimizer. A step whose gradients
// overflow is skipped. Rule and defaults: torch.cuda.amp.GradScaler (1.13); growth = backoff = 1 is a fixed
// scale. Errors: Errc::usage for an unknown name or option.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/fields.h"

namespace gradloom {

struct LossScaleSpec {
  double initial = 65536, growth = 2, backoff = 0.5;
  std::int64_t interval = 2000;  // steps without overflow before it grows
  void fields(FieldVisitor& v);
};
Result<LossScaleSpec> parse_loss_scale(const std::string& text);  // "dynamic{initial=1024}"
std::string print_loss_scale(const LossScaleSpec& spec);
// Where training in f16 has failed: this many steps skipped in a row, or a scale below 1.
constexpr std::int64_t kMostSkippedSteps = 20;
constexpr double kLeastLossScale = 1;

}  // namespace gradloom
