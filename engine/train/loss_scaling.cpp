#include "engine/train/loss_scaling.h"

#include <vector>

#include "engine/base/text.h"

namespace gradloom {

void LossScaleSpec::fields(FieldVisitor& v) {
  if (!dynamic) return v.field("scale", initial, {.help = "scale of every step", .min = 1, .max = 3e38});
  v.field("initial", initial, {.help = "scale of the first step", .min = 1, .max = 3e38});
  v.field("growth", growth, {.help = "factor after `interval` steps that were made", .min = 1, .max = 65536});
  v.field("backoff", backoff, {.help = "factor after a step that was skipped", .min = 1e-3, .max = 1});
  v.field("interval", interval,
          {.help = "steps in a row before the scale grows", .unit = "steps", .min = 1, .max = 1e9});
  v.field("hysteresis", hysteresis,
          {.help = "steps in a row that are skipped before the scale falls",
           .unit = "steps",
           .min = 1,
           .max = 1e9});
  v.field("min", least, {.help = "least scale; 0: training stops below 1", .min = 0, .max = 3e38});
  v.field("max", most, {.help = "largest scale; 0: any", .min = 0, .max = 3e38});
}

Result<LossScaleSpec> parse_loss_scale(const std::string& text) {
  const NamedOptions named = TRY(parse_named_options(text.empty() ? "dynamic" : text));
  LossScaleSpec spec;
  spec.dynamic = named.name != "static";
  if (spec.dynamic && named.name != "dynamic")
    return Error{Errc::usage,
                 unknown_name("loss scale", named.name, std::vector<std::string>{"dynamic", "static"})};
  if (!spec.dynamic) spec.growth = spec.backoff = 1;
  TRY(set_fields([&](FieldVisitor& v) { spec.fields(v); }, named.values, "loss scale"));
  if (spec.most > 0 && spec.least > spec.most) return Error{Errc::usage, "loss scale: min is above max"};
  if (spec.initial < spec.least || (spec.most > 0 && spec.initial > spec.most))
    return Error{Errc::usage, "loss scale: initial is not between min and max"};
  return spec;
}

std::string print_loss_scale(const LossScaleSpec& spec) {
  LossScaleSpec copy = spec;
  return std::string(spec.dynamic ? "dynamic{" : "static{") +
         print_fields([&](FieldVisitor& v) { copy.fields(v); }) + "}";
}

}  // namespace gradloom
