// Loss scaling, for training in f16: the loss is multiplied before the backward pass, so that gradients in
// f16 do not vanish, and the gradients divided by as much before the optimizer. A step whose gradients
// overflow is skipped. Rule and defaults of `dynamic`: torch.cuda.amp.GradScaler (1.13), with Apex's bounds and DeepSpeed's
// hysteresis (consecutive_hysteresis); `static` is a fixed scale. Errors: Errc::usage for an unknown name or option.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/fields.h"

namespace gradloom {

struct LossScaleSpec {
  bool dynamic = true;
  double initial = 65536, growth = 2, backoff = 0.5;  // growth and backoff of a static scale are 1
  std::int64_t interval = 2000;                       // steps without overflow before it grows
  std::int64_t hysteresis = 1;                        // skipped steps in a row before it falls
  double least = 0, most = 0;                         // 0: none
  void fields(FieldVisitor& v);
};
// "dynamic{initial=1024}", "static{scale=128}"
Result<LossScaleSpec> parse_loss_scale(const std::string& text);
std::string print_loss_scale(const LossScaleSpec& spec);
// Where training in f16 has failed: this many steps skipped in a row, or a scale below 1 or the smaller
// one that was asked for.
constexpr std::int64_t kMostSkippedSteps = 20;
constexpr double kLeastLossScale = 1;

}  // namespace gradloom
