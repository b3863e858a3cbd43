// Proof that the passes and the memory plan of a job keep what it computes: the same job without them, and in
// f64, are run beside it; where it strays, the pass and the instance are found.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "app/verify_measure.h"

namespace gradloom {

struct RunFlags;

// One tensor, as the root mean square of its difference to the job in f64 without passes. "Own error": of the
// job in its own precision without passes; where that is small by luck the largest of those of jobs whose
// parameters were moved within their last place. Of losses, the largest of all steps.
struct Verified {
  MeasuredKind kind = MeasuredKind::loss;
  std::string name;
  double size = 0;  // root mean square of the tensor in f64
  double own_error = 0, error = 0;
  double bound = 0;  // twice the own error, and at least a unit in the last place of the precision
  bool agrees() const { return error <= bound; }
};

struct Culprit {
  std::string pass;  // or "planner best-fit"
  std::string site;  // of the instance; empty: the pass strays with none of its instances alone to blame
  Verified worst;    // by the first configuration that strays
};

struct Verification {
  std::vector<Verified> tensors;
  std::vector<std::string> passes;  // that were switched on, in order
  std::int64_t instances = 0;       // rewrites that matched
  std::optional<Culprit> culprit;
  std::string folder;  // of the reproducer that was written
  bool agrees() const;
  const Verified& worst(MeasuredKind kind) const;  // the nearest to its bound, or the furthest beyond
};

constexpr std::int64_t kVerifySteps = 3,
                       kMostVerifySteps = 1000;  // made unless asked otherwise; that may be asked

struct VerifyOptions {
  std::int64_t steps = kVerifySteps;
  // Gets what is needed to see the difference again: recipe.json with as few passes as show it, model.onnx,
  // batches.npz. Empty: nothing is written.
  std::string out;
};

// `job` is of prepare_measured. Errors: what makes a job impossible (prepare, Job::create); a model whose values are not finite even in f64
// (Errc::numeric); `out` cannot be written (Errc::io).
Result<Verification> verify(const std::shared_ptr<const Prepared>& job, const VerifyOptions& options,
                            std::stop_token stop = {},
                            const std::function<void(const std::string& what)>& progress = {});

// The command line that proves a recipe. The steps of its training are not those of a proof: it names none.
std::string verify_line(const Recipe& recipe, const RunFlags& flags);

}  // namespace gradloom
