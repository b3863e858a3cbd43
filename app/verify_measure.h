// What one configuration of a job computes, tensor by tensor: the loss and gradients of the first batch, the
// losses of some steps, and after them the parameters, the running statistics and the averages of parameters. A parameter
// is kept in more bits than mixed precision computes its gradient in, and a step changes it little: what steps change of all
// parameters is measured beside them, as one tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/job.h"
#include "engine/base/result.h"
#include "engine/base/tensor.h"

namespace gradloom {

enum class MeasuredKind : std::uint8_t { loss, gradient, parameter };
const char* measured_kind_name(MeasuredKind kind);

struct Measured {
  MeasuredKind kind = MeasuredKind::loss;
  std::string name;  // of a loss: "batch 1", "step 2"; else of the parameter, state or float input
  Tensor tensor;
};

// The switches that verify sets apart.
struct Configuration {
  Pipeline pipeline;
  std::string planner = "none";
  bool in_place = false, pieces = false;
  std::int64_t memory_budget_bytes = 0;
  std::vector<std::string> recompute{}, offload{};
  bool runs_again() const { return memory_budget_bytes > 0 || !recompute.empty(); }
  bool leaves() const { return !offload.empty(); }
};

// As `prepare`, but a model in which nothing trains is compiled for its gradients alone
// (CompileOptions::gradients_only), those of its float inputs.
Result<std::shared_ptr<const Prepared>> prepare_measured(const Recipe& recipe, std::stop_token stop);
// `job` as it is, but for its configuration.
Result<std::shared_ptr<const Prepared>> configured(const Prepared& job, const Configuration& configuration,
                                                   std::stop_token stop);

struct MeasureOptions {
  std::int64_t steps = 3;  // 0: gradients alone
  // Before the first step every float of the parameters is moved by up to half a unit of its last place in
  // `units`, at random from this seed: what comes out differs as much as the precision is unsure of. 0: none.
  std::uint64_t nudge_seed = 0;
  double unit = 0;  // relative, 2^-23 for f32
};

// Gradients are those of all trained parameters and float inputs; the graph that gives them has them as
// outputs, the passes run on it as in training. Where nothing trains they are all there is beside the loss.
Result<std::vector<Measured>> measure(const std::shared_ptr<const Prepared>& job,
                                      const MeasureOptions& options, std::stop_token stop);

double root_mean_square(const Tensor& tensor);
// Root mean square of the difference; infinite where `got` is not finite but the reference is, or has another shape.
double distance(const Tensor& got, const Tensor& reference);
// The largest distance of a gradient, relative to its size, of two measurements of one job.
double gradient_error(const std::vector<Measured>& got, const std::vector<Measured>& reference);

}  // namespace gradloom
