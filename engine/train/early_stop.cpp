#include "engine/train/early_stop.h"

#include <cmath>

namespace gradloom {

void EarlyStopSpec::fields(FieldVisitor& v) {
  v.field("patience", patience,
          {.help = "evaluations in a row that are no better", .unit = "evaluations", .min = 1, .max = 1e9});
  v.field("min_delta", min_delta, {.help = "a smaller gain is none", .min = 0, .max = 1e308});
}

std::string early_stop_syntax() { return "patience=3,min_delta=0"; }

Result<EarlyStopSpec> parse_early_stop(const std::string& text) {
  EarlyStopSpec spec;
  if (text.empty()) return spec;
  const NamedOptions named = TRY(parse_named_options("early_stop{" + text + "}"));
  TRY(set_fields([&](FieldVisitor& v) { spec.fields(v); }, named.values, "early stop"));
  if (spec.patience < 1) return Error{Errc::usage, "early stop needs patience=N"};
  return spec;
}

bool EarlyStop::add(std::int64_t step, double loss) {
  state_.last_step = step;
  const bool better =
      std::isfinite(loss) && (state_.best_step < 0 || loss < state_.best_loss - spec_.min_delta);
  if (!better) {
    ++state_.worse;
    return false;
  }
  state_.best_step = step;
  state_.best_loss = loss;
  state_.worse = 0;
  return true;
}

}  // namespace gradloom
