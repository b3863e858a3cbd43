// From imported forward graph to plan: loss, pre-gradient passes, autodiff + optimizer, post-gradient passes,
// plan.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "engine/train/train_graph.h"
#include "passes/pass.h"

namespace gradloom {

struct CompileOptions {
  TrainSpec train;
  Pipeline pipeline;
  std::string planner = "best-fit";
  bool in_place = true;
  kernels::Target target = kernels::Target::cpu;
  bool dnn_library = false;  // PlanOptions
  // Instead of training: gradients of the loss with respect to every parameter and float input become outputs
  // (check).
  bool gradients_only = false;
  std::string loss_for_gradients;  // output name; empty: first output
};

struct Compiled {
  Graph forward;     // after import and loss, before passes
  TrainGraph train;  // whole step after all passes
  Plan plan;
  std::vector<PassReport> reports;
  std::size_t nodes_before_passes = 0;
  double compile_ms = 0;
  // With gradients_only: parameter or input name -> value (kNone: none)
  std::vector<std::pair<std::string, ValueId>> gradients;
};

Result<Compiled> compile(const Graph& imported, const CompileOptions& options, std::stop_token stop = {});

}  // namespace gradloom
