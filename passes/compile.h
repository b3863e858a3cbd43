// From imported forward graph to plan: loss, pre-gradient passes, autodiff + optimizer,
// post-gradient passes, plan.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "engine/train/module_graph.h"
#include "engine/train/train_graph.h"
#include "passes/pass.h"
#include "passes/offload.h"
#include "passes/recompute.h"

namespace gradloom {

struct CompileOptions {
  TrainSpec train;
  Pipeline pipeline;
  std::string planner = "best-fit";
  bool in_place = true;
  bool pieces = true;  // PlanOptions; told in a report of that name
  kernels::Target target = kernels::Target::cpu;
  bool dnn_library = false;  // PlanOptions
  // What the plan may take; forward values are computed again for the backward pass (recompute.h) when it would
  // take more. 0: any.
  std::int64_t memory_budget_bytes = 0;
  KernelTimes kernel_ns{};  // by which it is chosen what runs again; none: by FLOPs and bytes
  // Forward nodes that run again in any case, before the budget is looked at (recompute_named).
  std::vector<std::string> recompute;
  // What leaves a GPU's memory between the forward and the backward pass (offload_named), before the budget is looked
  // at. kOffloadAuto among them: with a memory budget more may leave, where that is predicted to take less time
  // than recompute. Errc::usage on the CPU.
  std::vector<std::string> offload{};
  double link_bytes_per_ns =
      0;  // what a copy between the GPU and the host was measured to carry; 0: not known
  // Instead of training: gradients of the loss with respect to every parameter and float
  // input become outputs (check).
  bool gradients_only = false;
  std::string loss_for_gradients;  // output name; empty: first output
  GraphWatch watch{};              // of `compile`: sees the graph on its way (stages.h)
};

// What GraphWatch calls the work of others than passes.
constexpr const char* kStartStage = "start";  // the forward graph with its loss, as the passes get it
constexpr const char* kAutodiffStage = "autodiff";

struct Compiled {
  Graph forward;     // after import and loss, before passes
  TrainGraph train;  // whole step after all passes
  Plan plan;
  std::vector<PassReport> reports;
  std::size_t nodes_before_passes = 0;
  double compile_ms = 0;
  // What the user asked for and the model has no use for: instances switched off, or left alone, that no pass met.
  std::vector<std::string> notes;
  // With gradients_only: parameter or input name -> value (kNone: none)
  std::vector<std::pair<std::string, ValueId>> gradients;
};

// A glob of `freeze`, `train` or `groups` that fits nothing that it could be meant for: Errc::usage, with the nearest.
Status check_named(const Graph& graph, const TrainSpec& spec);

// The choices of recompute.h for the graph of a compiled job, whatever its budget.
Result<std::vector<RecomputeChoice>> memory_curve(const Compiled& compiled, const CompileOptions& options,
                                                  std::stop_token stop = {});

// The forward part of a compiled job in inference form (inference_form.h) with the same passes: what evaluation
// runs. Its output is the loss; parameters and states have the names that they have in the training graph.
struct CompiledEvaluation {
  Graph graph;
  Plan plan;
};
Result<CompiledEvaluation> compile_evaluation(const Compiled& compiled, const CompileOptions& options,
                                              std::stop_token stop = {});

// A model as a part of somebody else's training (module_graph.h): one plan in two parts, forward and backward, or the
// forward part alone. Of the options, pipeline, planner and target count, what is frozen, and where there is a backward part
// recompute: the memory budget is for parameters, their gradients, inputs, outputs and the arena. `notes`: instances of
// passes that this graph does not have, and options without effect.
struct CompiledModule {
  Graph graph;
  Plan plan;
  std::vector<PassReport> reports;
  std::vector<std::string> notes;
  ModuleGradients gradients;  // ids and places are those of `graph`
};
Result<CompiledModule> compile_module(const Graph& imported, const CompileOptions& options,
                                      const ModuleSpec& spec, std::stop_token stop = {});

// A plan of a graph as it stands, by the options' planner: a forward graph has one too.
Result<Plan> plan_of_graph(const Graph& graph, const CompileOptions& options);

// Speeds by which offload is planned and its times are predicted, for a job of these options.
StepSpeeds step_speeds(const CompileOptions& options);

// Usage errors name the nearest that exists: an unknown planner, a glob of `freeze`, `train` or `groups` that fits no parameter, a
// instance that is none of its pass's and no node of the model. Passes for other targets keep fingerprints
// unjudged, and gradients_only graphs all, where one pipeline serves many models. Errc::device: the memory budget cannot be met.
Result<Compiled> compile(const Graph& imported, const CompileOptions& options, std::stop_token stop = {});

}  // namespace gradloom
