// What prepare functions share: refusals, small kernels, elementwise programs over dense tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/ir/op.h"
#include "kernels/elementwise.h"
#include "kernels/launcher.h"

namespace gradloom {

Error no_kernel(const std::string& message);  // Errc::device
// f32 and f64 have kernels, on GPUs f16 and bf16 too; anything else is a device error that inspect shows.
// takes_bf16: the CPU's kernel reads and writes bf16 itself.
Status require_kernel_type(kernels::Target target, DType dtype, bool takes_bf16 = false);

// A kernel that runs one elementwise program over the inputs as they come.
Kernel elementwise_kernel(std::string name, kernels::EwProgram program);
Kernel no_work(std::string name);  // for outputs without elements
// `count` elements of one type to another.
std::shared_ptr<const kernels::EwProgram> conversion(DType from, DType to, std::int64_t count);

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

// What a half type can hold of x: what is finite stays so (masks are made of the largest number there is).
// Other types: x.
double kept_finite(DType type, double x);
// The random stream of a node: attribute key, else its name.
// Attribute seed of ONNX is not used: runs have one seed.
std::uint64_t random_key(const Attrs& attrs, const std::string& node_name);

}  // namespace gradloom
