// Problems (dnn_problem.h) as operations of cuDNN's graph interface.
#pragma once

#include "engine/device/gpu/runtime/cudnn_graph.h"

namespace gradloom::kernels::gpu {

void add_operations(const ConvolutionProblem& problem, CudnnGraph& graph);
void add_operations(const PoolProblem& problem, CudnnGraph& graph);
void add_operations(const BatchNormProblem& problem, CudnnGraph& graph);
void add_operations(const AttentionProblem& problem, CudnnGraph& graph);

}  // namespace gradloom::kernels::gpu
