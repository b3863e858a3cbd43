// What MatMul, Gemm and FusedMatMul share: shapes, the prepared kernel, and gradients.
//   A' = transpose(A, perm_a), B' = transpose(B, perm_b)
//   P = activation(alpha * A' B' + bias), Y = transpose(P, perm_y)
// with NumPy's matmul rules (batch dims broadcast, a 1-d operand is a row or a column).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/ir/op.h"
#include "kernels/prepared/matmul.h"
#include "kernels/launcher.h"

namespace gradloom {

using Perm = std::vector<std::int64_t>;  // empty: identity

struct ProductSpec {
  Perm perm_a, perm_b, perm_y;
  double alpha = 1;
  kernels::Activation activation = kernels::Activation::none;  // gelu_*: with the identity as perm_y
  // A or B have 2 dims and k is the first as stored.
  kernels::GemmOperand sums_of = kernels::GemmOperand::none;
};

// Whether this is bf16 on a CPU that multiplies it as it is.
bool multiplies_bf16(kernels::Target target, DType dtype);
// Whether a product of this type can have f32 results (MatMulDesc::wide_c): there, and half types on a GPU.
bool has_wide_results(kernels::Target target, DType dtype);

bool is_identity(const Perm& perm);
Perm inverse(const Perm& perm);
Shape permuted(const Shape& shape, const Perm& perm);
Result<Perm> checked_perm(const char* name, const Perm& perm, std::size_t rank);

struct ProductShape {
  Shape a, b;   // permuted, rank >= 2 (a 1-d operand got its dim of 1)
  Shape batch;  // broadcast
  std::int64_t m, n, k;
  Shape p, y;  // of the product, and after perm_y; a 1-d operand's dim removed from both
};
Result<ProductShape> product_shape(const Shape& a, const Shape& b, const ProductSpec& spec);
// Permutations and alpha of a node's attributes, checked for operands of these ranks, which are at least 2.
Result<ProductSpec> product_spec(const Attrs& attrs, std::size_t rank_a, std::size_t rank_b);
// Of the dims of A, B and Y as they are stored, in elements.
struct ProductStrides {
  std::vector<std::int64_t> a, b, y;
};
// The product without bias and activation, of operands stored in these shapes, dense where no strides are given; batch dims
// folded where they can be.
kernels::MatMulDesc product_desc(DType dtype, const ProductShape& s, const Shape& a, const Shape& b,
                                 const ProductSpec& spec);
kernels::MatMulDesc product_desc(DType dtype, const ProductShape& s, const Shape& a, const Shape& b,
                                 const ProductSpec& spec, const ProductStrides& strides);

// Adds beta * C (broadcast to Y) before the activation: Gemm. strides per dim of y, 0 = broadcast.
struct Addend {
  bool present = false;
  double beta = 1;
  std::vector<std::int64_t> strides;
};
// What else a launch reads and writes: positions among its inputs and outputs, none: not there.
struct ProductSlots {
  int aux_in = -1;   // gelu_tanh_grad: what the activation was applied to
  int aux_out = -1;  // gelu_tanh: what it is applied to
  int sums = -1;     // with sums_of
  int addend = -1;   // what is added to Y, of its shape: without activation and sums
};
// Inputs of the launch: A, B, bias or C, of `types`, which also say whether a library may have workspace.
// `bias`: one value per column of P.
Result<Kernel> prepare_product(const NodeTypes& types, const ProductSpec& spec, bool bias,
                               const Addend& addend, const ProductSlots& slots = {});
double product_flops(const ProductShape& shape);  // 2 m n k per batch

// C = alpha A B (+ bias per column) (+ C) on parts of tensors: made when planning, run with pointers.
class SliceProduct {
 public:
  // library: workspace is left for a GPU's library (NodeTypes::dnn_library).
  static Result<SliceProduct> create(kernels::Target target, const kernels::MatMulDesc& desc,
                                     bool library = false);
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  // Whether it has the bits of `other`, the same product of tensors that lie otherwise (of our own kernels: always).
  bool has_bits_of(const SliceProduct& other) const {
    return !matmul_ || !other.matmul_ || matmul_->has_bits_of(*other.matmul_);
  }
  // With packed_b: bytes for the packed B, and B as runs take it: packed into `to`, or as it is.
  std::size_t packed_bytes() const { return matmul_ ? matmul_->packed_bytes() : 0; }
  const void* packed(const void* b, void* to) const;
  // bias: where the description has one.
  void run(const LaunchArgs& args, const void* a, const void* b, void* c, void* workspace,
           const void* bias = nullptr) const;

 private:
  std::shared_ptr<kernels::MatMul> matmul_;  // CPU
  kernels::GemmArgs gemm_{};                 // GPU
  std::size_t workspace_bytes_ = 0;
};

// The address `offset` elements after `base`.
const void* elements_at(const void* base, DType dtype, std::int64_t offset);
void* elements_at(void* base, DType dtype, std::int64_t offset);

// Gradients with respect to A and B of Y without its activation;
// operands have rank >= 2. kNone where not wanted.
struct ProductGradients {
  ValueId a = kNone, b = kNone;
};
ProductGradients product_gradients(GradContext& ctx, const ProductSpec& spec, ValueId a, ValueId b,
                                   ValueId dy, bool want_a, bool want_b);

}  // namespace gradloom
