// A matrix product with an activation that oneDNN does not compute as the operator does (matmul.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/elementwise.h"
#include "kernels/prepared/dnnl.h"
#include "kernels/prepared/matmul.h"

namespace gradloom::kernels::prepared {

// Another MatMul, then the activation over C; over an image of C in the workspace where C is not dense.
class ActivatedMatMul final : public MatMul {
 public:
  explicit ActivatedMatMul(const MatMulDesc& desc) {
    MatMulDesc linear = desc;
    linear.activation = Activation::none;
    linear_ = MatMul::create(linear);
    std::vector<std::int64_t> dims = desc.batch, strides = desc.c_strides;
    dims.insert(dims.end(), {desc.m, desc.n});
    for (std::size_t d = dims.size(); d-- > 0;) {
      if (dims[d] != 1) continue;
      dims.erase(dims.begin() + std::ptrdiff_t(d));
      strides.erase(strides.begin() + std::ptrdiff_t(d));
    }
    if (dims.size() > std::size_t(kEwMaxRank)) throw std::runtime_error("matmul: too many batch dims");
    program_.rank = copy_.rank = int(dims.size());
    program_.inputs = {{desc.dtype, {}}};
    copy_.element_bytes = dtype_bytes(desc.dtype);
    std::int64_t count = 1;
    for (std::size_t d = dims.size(); d-- > 0;) {
      program_.dims[d] = copy_.dims[d] = dims[d];
      program_.inputs[0].strides[d] = copy_.out_strides[d] = strides[d];
      copy_.in_strides[d] = count;
      dense_ = dense_ && strides[d] == count;
      count *= dims[d];
    }
    const EwOp op = desc.activation == Activation::relu       ? EwOp::Relu
                    : desc.activation == Activation::gelu_erf ? EwOp::Gelu
                                                              : EwOp::GeluTanh;
    if (desc.dtype == DType::bf16) {  // computed in f32
      constexpr DType low = DType::bf16, full = DType::f32;
      program_.code = {{EwOp::Cast, low, full, {0, -1, -1}, 0},
                       {op, full, full, {1, -1, -1}, 0},
                       {EwOp::Cast, full, low, {2, -1, -1}, 0}};
    } else {
      program_.code = {{op, desc.dtype, desc.dtype, {0, -1, -1}, 0}};
    }
    program_.outputs = {{std::int16_t(program_.code.size()), desc.dtype}};
    ew_collapse_dims(program_);
    layout_.take(linear_->workspace_bytes());
    image_ = layout_.take(dense_ ? 0 : std::size_t(count) * copy_.element_bytes);
  }
  std::size_t workspace_bytes() const override { return layout_.size(); }
  void run(const void* a, const void* b, const void* bias, void* c, void* workspace) override {
    linear_->run(a, b, bias, c, workspace);
    const void* const inputs[] = {c};
    void* const outputs[] = {dense_ ? c : at(workspace, image_)};
    cpu().elementwise({&program_, inputs, outputs, nullptr});
    if (dense_) return;
    StridedCopyArgs copy = copy_;
    copy.in = outputs[0];
    copy.out = c;
    cpu().strided_copy(copy);
  }
  std::string implementation() const override { return linear_->implementation(); }

 private:
  std::unique_ptr<MatMul> linear_;
  EwProgram program_;
  StridedCopyArgs copy_{};
  Layout layout_;
  std::size_t image_ = 0;
  bool dense_ = true;
};

}  // namespace gradloom::kernels::prepared
