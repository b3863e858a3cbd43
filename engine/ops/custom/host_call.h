// Functions of the program that has Gradloom inside, called from within a graph: nodes HostCall of domain "gradloom".
// So a step stays one plan where a part of it is, say, a torch.autograd.Function. Attributes of a node: `function`
// (number of a HostFunction), `call` (what that tells its nodes apart by), `name` (for tables), `dtypes` (ONNX's number
// of each result's type; -1: that of the first floating-point input), `dims_0`, `dims_1`, .. (of each result), and
// `differentiable` (1 for each result that has a gradient). Dims are known when the graph is made.
//
// The gradient is another node, HostCallGrad: it reads the gradients of the results alone, so what backward needs is
// kept by the function itself, under `call`. Nodes are never merged or folded, but may run twice (recompute).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "engine/ir/op.h"

namespace gradloom {

struct HostTensor {
  void* data = nullptr;  // null: absent (a gradient that is zero or not wanted)
  DType dtype = DType::f32;
  Shape shape;
};

// One call. forward: inputs to results. backward: gradients of the results to gradients of the inputs, each to be
// written whole where it is present. False: it failed, which ends the step with an error.
using HostFunction = std::function<bool(std::int64_t call, bool backward, std::span<const HostTensor> inputs,
                                        std::span<const HostTensor> outputs)>;

// The function's number, from 1. It is called from the thread that runs the step, until it is removed.
std::int64_t add_host_function(HostFunction function);
void remove_host_function(std::int64_t number);

const OpDef& host_call_op();
bool is_host_call(const OpDef& op);  // the call or its gradient

}  // namespace gradloom
