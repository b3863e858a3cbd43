#include "engine/train/loss_scaling.h"

#include "engine/base/text.h"

namespace gradloom {

void LossScaleSpec::fields(FieldVisitor& v) {
  v.field("initial", initial, {.help = "scale of the first step", .min = 1, .max = 3e38});
  v.field("growth", growth, {.help = "factor after `interval` steps that were made", .min = 1, .max = 65536});
  v.field("backoff", backoff, {.help = "factor after a step that was skipped", .min = 1e-3, .max = 1});
  v.field("interval", interval,
          {.help = "steps in a row before the scale grows", .unit = "steps", .min = 1, .max = 1e9});
}

Result<LossScaleSpec> parse_loss_scale(const std::string& text) {
  const NamedOptions named = TRY(parse_named_options(text.empty() ? "dynamic" : text));
  if (named.name != "dynamic")
    return Error{Errc::usage, "unknown loss scale '" + escaped(named.name) + "' (known: dynamic)"};
  LossScaleSpec spec;
  TRY(set_fields([&](FieldVisitor& v) { spec.fields(v); }, named.values, "loss scale"));
  return spec;
}

std::string print_loss_scale(const LossScaleSpec& spec) {
  LossScaleSpec copy = spec;
  return "dynamic{" + print_fields([&](FieldVisitor& v) { copy.fields(v); }) + "}";
}

}  // namespace gradloom
