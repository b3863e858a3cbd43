// Helpers of the neural-network rows (products, convolutions, normalizations, losses, pooling, dropout,
// optimizers).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/ops/common.h"
#include "kernels/cpu.h"

namespace gradloom::nn {

std::int64_t size(std::size_t n);  // as a dim
// Product of dims [from, to); REQUIRES them static.
std::int64_t product(const Shape& shape, std::size_t from, std::size_t to);
bool all_static(const Shape& shape, std::size_t from, std::size_t to);
// Two dims that cannot be equal. Symbolic dims match everything: binding decides later.
bool differ(std::int64_t a, std::int64_t b);
// The better known of two dims that must be equal.
std::int64_t known_dim(std::int64_t a, std::int64_t b);

// The first `output_count` of `types` become the outputs.
Status set_outputs(InferContext& ctx, std::vector<Type> types);
// "bias must be f32 like the input, it is i64" unless input i has the floating type of input 0.
Status require_float(const InferContext& ctx, std::size_t i, const char* what);
// Scale or bias of a normalization, input i: the type of input 0, or f32 where that is bf16 or f16; the same
// for both. `scale`: the input that it must agree with.
Status require_parameter(const InferContext& ctx, std::size_t i, const char* what, std::size_t scale = 1);
// Means and deviations of a tensor: its type, f32 where that is bf16 or f16.
DType statistics_type(DType dtype);
Status require_statistic(const InferContext& ctx, std::size_t i, const char* what);
// "the gradient needs every dim of [?1, 3, 8, 8] bound".
Status require_static(const GradContext& ctx, ValueId value);
// "no gradient through output 1" when the loss depends on another output than the first.
Status require_first_output_only(const GradContext& ctx);
// What the moments of x add to its gradient: mean = sum(x) / count and moment = sum((x - mean)^2) / count
// (mean kNone: of x itself), each over `count` elements of x and of a shape that broadcasts against it.
// dmean, dmoment: their gradients, or kNone. kNone: nothing.
ValueId moments_gradient(GradContext& ctx, ValueId x, ValueId mean, ValueId dmean, ValueId dmoment,
                         std::int64_t count);
// The gradient of a moment from that of inv_std = 1 / sqrt(moment + epsilon); kNone stays.
ValueId moment_gradient(GradContext& ctx, ValueId inv_std, ValueId dinv_std);
// a + b, where either may be kNone.
ValueId sum_of(GraphBuilder& b, ValueId x, ValueId y);
// f32 and f64 have kernels, on GPUs f16 and bf16 too; anything else is a device error that inspect shows.
// takes_bf16: the CPU's kernel reads and writes bf16 itself.
Status require_kernel_type(kernels::Target target, DType dtype, bool takes_bf16 = false);

// A kernel that runs one elementwise program over the inputs as they come.
Kernel elementwise_kernel(std::string name, kernels::EwProgram program);
// A program over dense tensors of `count` elements for kernels in several steps. Registers: the inputs, then
// the constants, then one per added instruction.
class FlatProgram {
 public:
  FlatProgram(DType dtype, std::int64_t count, std::size_t inputs, const std::vector<double>& constants = {});
  int add(kernels::EwOp op, int a, int b = -1, int c = -1);
  std::shared_ptr<const kernels::EwProgram> finish(int result);

 private:
  DType dtype_;
  kernels::EwProgram program_;
};
// `count` elements of one type to another.
std::shared_ptr<const kernels::EwProgram> conversion(DType from, DType to, std::int64_t count);
Kernel no_work(std::string name);  // for outputs without elements

// Cost with given FLOPs; every input read once, every output written once.
Cost cost_of(const NodeTypes& types, double flops);

// A sample input of pairwise distinct contents, at least `step` apart (no ties for max).
SampleInput distinct(Shape shape, double step = 0.1);

}  // namespace gradloom::nn
