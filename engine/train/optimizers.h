// Optimizers by name: the meaning of `adamw{lr=1e-3}`. The rows of kernels/optimizers.def declare them,
// with formula, source, options and defaults (PyTorch's). Errors: Errc::usage for an unknown name or option
// and for values out of range.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/base/fields.h"
#include "engine/ir/graph.h"
#include "kernels/optimizer_kind.h"

namespace gradloom {

// An optimizer with its options; those that its row does not list mean nothing.
struct OptimizerSpec {
  OptimizerSpec() : OptimizerSpec(kernels::OptimizerKind::sgd) {}
  explicit OptimizerSpec(kernels::OptimizerKind kind);  // with the defaults of its row
  kernels::OptimizerKind kind;
  double lr = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  double momentum = 0, dampening = 0;
  double lr_decay = 0, initial_sum = 0;
  double epsilon2 = 0, clip_threshold = 0, decay_rate = 0;
  double alpha = 0, momentum_decay = 0;
  bool nesterov = false, maximize = false, correct_bias = false;
  bool scale_parameter = false, relative_step = false, warmup_init = false;
  bool amsgrad = false, centered = false, decoupled = false;
  bool eight_bit_states = false;
  void fields(FieldVisitor& v);  // those of `kind`
};

// One option: a number or a flag of OptimizerSpec (the other pointer is null),
// and attribute `field` of operator Optimizer.
struct OptimizerOption {
  const char *field, *name, *help;
  double fallback, least, most;
  double OptimizerSpec::*number;
  bool OptimizerSpec::*flag;
};

// A tensor that is kept for a parameter, if it has this form and `needs` (an option; "": none) is not 0.
struct OptimizerStateDef {
  const char* name;
  kernels::StateForm form;
  kernels::StateRange range;
  const char* needs;
};

struct OptimizerDef {
  const char* name;
  kernels::OptimizerKind kind;
  const char* title;
  double lr;  // when the user gives none
  std::span<const OptimizerStateDef> states;
  const char* start;  // options to begin with, as text
  const char *formula, *source;
  std::span<const OptimizerOption> options;  // after lr, in the order in which they are printed
};
std::span<const OptimizerDef> all_optimizers();
const OptimizerDef& optimizer_def(kernels::OptimizerKind kind);

Result<OptimizerSpec> parse_optimizer(const std::string& text);  // "adamw{lr=1e-3}"
std::string print_optimizer(const OptimizerSpec& spec);
std::vector<std::string> optimizer_names();

// With eight_bit_states: whether a parameter of this shape has states of 8 bits. Small ones, biases and scales that all others pass
// through, gain little and keep theirs (as bitsandbytes does).
constexpr std::int64_t kLeastEightBit = 4096;
bool has_eight_bit_states(const OptimizerSpec& spec, const Shape& parameter);

// For the training graph: attributes of operator Optimizer for one parameter of this shape, and its states in
// the operator's order.
struct OptimizerState {
  std::string name;
  Shape shape;
  kernels::StateRange range;
};
Attrs optimizer_attrs(const OptimizerSpec& spec, const Shape& parameter);
std::vector<OptimizerState> optimizer_states(const OptimizerSpec& spec, const Shape& parameter);

}  // namespace gradloom
