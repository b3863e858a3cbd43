#include "app/finite_parameters.h"

#include "app/model_summary.h"

namespace gradloom {

Result<bool> FiniteParameters::finite(const std::map<std::string, Tensor>& parameters) {
  if (!looked_)
    for (const ValueId id : graph_.parameters) {
      const Value& v = graph_.values[id];
      if (!v.data.defined()) continue;
      const Result<bool> found = any_not_finite(v.data);
      if (found.ok() && *found) never_finite_.insert(v.name);
    }
  looked_ = true;
  for (const auto& [name, contents] : parameters)
    if (never_finite_.count(name) == 0 && TRY(any_not_finite(contents))) return false;
  return true;
}

}  // namespace gradloom
