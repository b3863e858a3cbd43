// Adds loss, backward, accumulation, clipping and optimizer to a forward graph: the whole step in one graph.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/fields.h"
#include "engine/ir/graph.h"
#include "kernels/cpu.h"

namespace gradloom {

// Optimizer options with PyTorch's names and defaults (torch.optim 1.13); LAMB: You et al. 2019, algorithm 2
// with bias correction, eps 1e-6, no clamp.
struct OptimizerSpec {
  kernels::OptimizerKind kind = kernels::OptimizerKind::sgd;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  double momentum = 0, dampening = 0;
  bool nesterov = false, maximize = false;
  void fields(FieldVisitor& v);  // only those of `kind`
};
Result<OptimizerSpec> parse_optimizer(const std::string& text);  // "adamw{lr=1e-3}"
std::string print_optimizer(const OptimizerSpec& spec);
std::vector<std::string> optimizer_names();

// lr at a step = spec.lr * factor(step): constant | linear{warmup=,total=,end=} | cosine{warmup=,total=,end=}
struct ScheduleSpec {
  std::string name = "constant";
  std::int64_t warmup = 0, total = 0;
  double end = 0;
  void fields(FieldVisitor& v);
  double factor(std::int64_t step) const;  // step is 1-based
};
Result<ScheduleSpec> parse_schedule(const std::string& text);
std::string print_schedule(const ScheduleSpec& spec);

// The loss is multiplied before the backward pass, so that gradients in f16 do not vanish, and the gradients
// divided by as much before the optimizer. A step whose gradients overflow is skipped. Rule and defaults:
// torch.cuda.amp.GradScaler (1.13); growth = backoff = 1 is a fixed scale.
struct LossScaleSpec {
  double initial = 65536, growth = 2, backoff = 0.5;
  std::int64_t interval = 2000;  // steps without overflow before it grows
  void fields(FieldVisitor& v);
};
Result<LossScaleSpec> parse_loss_scale(const std::string& text);  // "dynamic{initial=1024}"
std::string print_loss_scale(const LossScaleSpec& spec);
// Where training in f16 has failed: this many steps skipped in a row, or a scale below 1.
constexpr std::int64_t kMostSkippedSteps = 20;
constexpr double kLeastLossScale = 1;

struct TrainSpec {
  std::string loss;  // "OUTPUT" | "ce:LOGITS,LABELS" | "ce{axis=1}:…" | "mse:…" | "l1:…" | "bce:…"
  OptimizerSpec optimizer;
  std::vector<std::string> freeze;  // globs over parameter names
  double clip_norm = 0;             // 0 = off
  std::int64_t accumulate = 1;
  std::optional<LossScaleSpec> loss_scale;  // f16
};

// Graph::loss set (forward part only): what the pre-gradient passes work on. New graph inputs (labels) appear
// in Graph::inputs.
Status add_loss(Graph& graph, const std::string& loss);

// Names of what was added, for the trainer and the window.
struct StepNames {
  ValueId lr = kNone, step = kNone;  // Role::hyper inputs: f64 scalar, i64 scalar
  ValueId micro = kNone;             // i64 scalar: index of the micro-batch, only with accumulation
  ValueId loss = kNone;              // value to report: mean over the micro-batches
  ValueId grad_norm = kNone;         // with clipping or loss scaling: before clipping, of the true gradients
  ValueId loss_scale = kNone;        // with loss scaling: of the next step
  ValueId skipped = kNone;           // i64 scalar, with loss scaling: steps skipped in a row up to this one
  static const std::array<ValueId StepNames::*, 4> kReported;  // what the host hears of a step
};
constexpr std::array<ValueId StepNames::*, 4> StepNames::kReported = {
    &StepNames::loss, &StepNames::grad_norm, &StepNames::loss_scale, &StepNames::skipped};
struct TrainGraph {
  Graph graph;
  StepNames names;
  std::vector<std::string> trainable;  // parameter names
};
// Backward and optimizer appended; what neither the loss nor a state update needs is removed; outputs become
// those of {loss, grad_norm, loss_scale, skipped} that there are. Optimizer states are named "<param>/m",
// "<param>/v", "<param>/momentum", accumulators "<param>/acc".
Result<TrainGraph> add_training(Graph forward_with_loss, const TrainSpec& spec);

}  // namespace gradloom
