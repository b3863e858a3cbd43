// What verify said of recipes, as what is known of each pass of the recipe that stands.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/desktop/marks.h"
#include "viz/model/pass_model.h"

namespace gradloom {

// The newest that says something of the recipe `job` (job_hash); null: none does.
const Proof* proof_of(const std::vector<Proof>& proofs, const std::string& job);

// "34 tensors, 12 rewrites, 3 steps": what was held against f64, and the tensor that is nearest to its bound.
std::string proof_text(const Proof& proof);

// By pass: of the recipe `job` where that was proved, else of the newest recipe that had the pass on. Where one pass strays
// nothing is said of those that were on with it.
std::map<std::string, PassProof> pass_proofs(const std::vector<Proof>& proofs, const std::string& job);

}  // namespace gradloom
