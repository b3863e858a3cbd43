// Work that a library of the device (cuDNN) may compute in one piece and no kernel of ours does: an operator
// offers it (Launcher), and launches its own sequence of kernels where no library takes it. Also the memory that
// such a library needs for this, and for kernels that it and we both have.
#pragma once

#include "kernels/arguments.h"
#include "kernels/target.h"

namespace gradloom::kernels {

// y = softmax(scale q k^T + mask) v. q: [batch, heads, rows, d], k: [.., keys, d], v: [.., keys, e], y: [..,
// rows, e], each with strides in elements. mask: dense, `mask_dims`, each the size of the scores' or 1; null:
// none. causal: row r sees keys 0 to r. log_sum_exp: of the scores of each row, dense [batch, heads, rows]; null: it is not wanted.
struct AttentionArgs {
  DType dtype;
  std::int64_t batch, heads, rows, keys, d, e;
  std::int64_t q_strides[4], k_strides[4], v_strides[4], y_strides[4], mask_dims[4];
  double scale;
  bool causal;
  const void *q, *k, *v, *mask;
  void* y;
  float* log_sum_exp;
  void* workspace;
  std::size_t workspace_bytes;
};
// forward.y and forward.log_sum_exp are read. dy, dq, dk, dv of the shapes of y, q, k, v, with strides of their own.
struct AttentionGradArgs {
  AttentionArgs forward;
  std::int64_t dy_strides[4], dq_strides[4], dk_strides[4], dv_strides[4];
  const void* dy;
  void *dq, *dk, *dv;
};

// A product of codes of 8 bits (f8e4m3fn; one operand may be f8e5m2): `product` says where A and B lie, in elements of one byte, both dense
// along k, and what C is, which is of its dtype: f32, f16 or bf16. C = alpha a_inverse b_inverse A B; the inverses are numbers of f32 in the
// memory of the device. Without batch, bias, activation, aux, sums and addend. Sums are f32.
struct Fp8ProductArgs {
  GemmArgs product;
  DType a_codes, b_codes;
  const float *a_inverse, *b_inverse;
};

#define GRADLOOM_LIBRARY_KERNELS(K) \
  K(attention, AttentionArgs)       \
  K(attention_grad, AttentionGradArgs) K(fp8_product, Fp8ProductArgs)

// Where the library's engines find room beside ours: from the arguments without their pointers. 0: they are
// not worth their memory, or the library has none for it.
std::size_t library_workspace_bytes(const GemmArgs& args);
std::size_t library_workspace_bytes(const ConvolutionArgs& args);
std::size_t library_workspace_bytes(const AttentionArgs& args);
std::size_t library_workspace_bytes(const AttentionGradArgs& args);

// Where workspaces and their pieces begin in which a library may work (cuBLASLt's asks for it).
constexpr std::size_t kLibraryBoundaryBytes = 256;
constexpr std::size_t at_library_boundary(std::size_t offset) {
  return (offset + kLibraryBoundaryBytes - 1) / kLibraryBoundaryBytes * kLibraryBoundaryBytes;
}
// The same where the target's libraries may work there: those of GPUs.
constexpr std::size_t library_place(Target target, std::size_t offset) {
  return shares_host_memory(target) ? offset : at_library_boundary(offset);
}

// Attention's workspace: one f32 per row, which are the log-sum-exp where nobody wants it or, of the gradient, the sums of dy * y; then the
// library's own, from here on. In bytes.
constexpr std::size_t attention_engine_at(const AttentionArgs& a) {
  return at_library_boundary(std::size_t(a.batch * a.heads * a.rows) * sizeof(float));
}

}  // namespace gradloom::kernels
