// Adds backward, accumulation, clipping and optimizer to a forward graph with a loss (losses.h): the whole
// step in one graph. Errors: Errc::bad_input where nothing can be trained.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/rewriter.h"
#include "engine/train/loss_scaling.h"
#include "engine/train/losses.h"
#include "engine/train/optimizers.h"
#include "engine/train/parameter_groups.h"

namespace gradloom {

struct TrainSpec {
  std::string loss;  // as add_loss takes it
  OptimizerSpec optimizer;
  std::vector<std::string> freeze;  // globs over parameter names
  std::vector<std::string> train;   // globs over names: trained although one of `freeze` fits
  std::vector<ParameterGroup> groups;
  double clip_norm = 0;   // 0 = off
  double clip_value = 0;  // 0 = off; after clip_norm
  std::int64_t accumulate = 1;
  std::int64_t ranks = 1;  // processes that train together, each on batches of its own
  double ema = 0;  // decay of the moving average of trained parameters, states "<param>/ema"; 0 = none
  std::optional<LossScaleSpec> loss_scale;  // f16
  // Parameters in bf16 are the only ones: computed in f32 and rounded at random (operator Optimizer).
  bool low_weights = false;
};

// Names of what was added, for the trainer and the window.
struct StepNames {
  // Role::hyper inputs: f64 scalar or, with numbered groups, a table of their options (optimizer_inputs.h); i64 scalar
  ValueId lr = kNone, step = kNone;
  ValueId micro = kNone;       // i64 scalar: index of the micro-batch, only with accumulation
  ValueId loss = kNone;        // value to report: mean over the micro-batches
  ValueId grad_norm = kNone;   // with clipping or loss scaling: before clipping, of the true gradients
  ValueId loss_scale = kNone;  // with loss scaling: of the next step
  ValueId skipped = kNone;     // i64 scalar, with loss scaling: steps skipped in a row up to this one
  static const std::array<ValueId StepNames::*, 4> kReported;  // what the host hears of a step
};
constexpr std::array<ValueId StepNames::*, 4> StepNames::kReported = {
    &StepNames::loss, &StepNames::grad_norm, &StepNames::loss_scale, &StepNames::skipped};
// A state that training added to those of the model: what the optimizer and loss scaling remember.
struct TrainState {
  std::string value{};      // its name in the graph
  std::string parameter{};  // that it belongs to; empty: to the step as a whole
  std::string name{};       // "m", "loss_scale"
  kernels::StateRange range = kernels::StateRange::any;
  bool encoded = false;    // in 8 bits (engine/train/eight_bit.h); it has its parameter's shape then
  bool remembered = true;  // read by later steps; an accumulator is not: each step begins it anew
};
constexpr const char* kAverage = "ema";  // TrainState::name of a parameter's moving average
struct TrainGraph {
  Graph graph;
  StepNames names;
  std::vector<TrainState> states;
  std::vector<std::string> trainable;  // parameter names
  std::vector<RewriteRecord> removed;  // what is not trained on, node by node
};
// Value::frozen of the parameters, by name. Passes before autodiff ask for it (is_trained).
void freeze_parameters(Graph& graph, const TrainSpec& spec);

// Training needs the loss and the state updates (running statistics): the model's other outputs go, and what only
// they needed. REQUIRES a loss.
Result<std::vector<RewriteRecord>> keep_trained(Graph& graph);

// Backward and optimizer appended; what neither the loss nor a state update needs is removed; outputs become
// those of {loss, grad_norm, loss_scale, skipped} that there are. Optimizer states are named "<param>/<state>"
// (kernels/optimizers.def), accumulators "<param>/acc".
Result<TrainGraph> add_training(Graph forward_with_loss, const TrainSpec& spec);

}  // namespace gradloom
