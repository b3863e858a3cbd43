// What a model holds, and everything that stands in the way of training it: for `gradloom inspect` and for
// the window's model page.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/onnx/import.h"
#include "engine/train/train_graph.h"

namespace gradloom {

struct OpCount {
  std::string op;
  int nodes = 0;
  double flops = 0, bytes = 0;  // per forward pass; 0 while dims are unbound
};

struct ModuleCount {
  int nodes = 0;
  double flops = 0;
  std::int64_t parameters = 0;  // elements of those that its own nodes read first
};

// A node that keeps the model from a device or from training.
struct Obstacle {
  std::string node, op, scope;
  std::string reason;  // empty: there is just none
};

struct ModelSummary {
  std::vector<OpCount> ops;                    // most FLOPs first
  std::map<std::string, ModuleCount> modules;  // by scope, "layers.0/attention"
  std::int64_t parameters = 0, parameter_bytes = 0;
  double flops = 0, bytes = 0;
  // Weights that hold NaN or infinite numbers (the first 512 MiB are looked at)
  std::vector<std::string> not_finite;
  std::vector<Obstacle> sized_by_data;  // outputs whose sizes only the data tells
  std::vector<Obstacle> no_cpu_kernel, no_gpu_kernel, no_gradient;
};

// A parameter, or what could be taken for one: is it trained, and why.
struct ParameterRow {
  std::string name;
  Type type;
  bool trained = false;
  std::string why;
  bool unsure = false;  // trained, and may be a buffer
};
// Every initializer of the model, under these globs (TrainSpec) and for gradients of `losses`.
std::vector<ParameterRow> parameter_table(const ImportedModel& model, const std::vector<ValueId>& losses,
                                          const TrainSpec& spec);
// The same of a graph made from the model's, in which freeze_parameters marked what is frozen.
std::vector<ParameterRow> parameter_table(const ImportedModel& model, const Graph& forward,
                                          const std::vector<ValueId>& losses);

// NaN or infinite; never for integers. Errc::io: contents in a file that has changed.
Result<bool> any_not_finite(const Tensor& tensor);

// What import says of the model's nodes; the operators with their domains.
std::vector<Obstacle> obstacles_of(const std::vector<UnknownOp>& nodes);

// Gradients are those of `losses` with respect to the parameters.
ModelSummary summarize(const ImportedModel& model, const std::vector<ValueId>& losses);

}  // namespace gradloom
