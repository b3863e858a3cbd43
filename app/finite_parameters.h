// Whether training has spoiled the parameters: NaN or infinite numbers where the model had none.
#pragma once

#include <map>
#include <set>
#include <string>

#include "engine/ir/graph.h"

namespace gradloom {

class FiniteParameters {
 public:
  explicit FiniteParameters(const Graph& graph) : graph_(graph) {}  // of the step; must outlive this
  // Errc::io: contents in a file that has changed.
  Result<bool> finite(const std::map<std::string, Tensor>& parameters);

 private:
  const Graph& graph_;
  std::set<std::string> never_finite_;  // -inf in a mask belongs there
  bool looked_ = false;                 // for those
};

}  // namespace gradloom
