// Gradient rules of the elementwise rows (elementwise.cpp).
#pragma once

#include "engine/ir/op.h"

namespace gradloom::ew_grad {

Status add(GradContext& ctx);
Status sub(GradContext& ctx);
Status mul(GradContext& ctx);
Status div(GradContext& ctx);
Status pow(GradContext& ctx);
Status max(GradContext& ctx);
Status min(GradContext& ctx);
Status neg(GradContext& ctx);
Status abs(GradContext& ctx);
Status exp(GradContext& ctx);
Status log(GradContext& ctx);
Status sqrt(GradContext& ctx);
Status reciprocal(GradContext& ctx);
Status erf(GradContext& ctx);
Status tanh(GradContext& ctx);
Status sigmoid(GradContext& ctx);
Status sin(GradContext& ctx);
Status cos(GradContext& ctx);
Status tan(GradContext& ctx);
Status asin(GradContext& ctx);
Status acos(GradContext& ctx);
Status atan(GradContext& ctx);
Status sinh(GradContext& ctx);
Status cosh(GradContext& ctx);
Status asinh(GradContext& ctx);
Status acosh(GradContext& ctx);
Status atanh(GradContext& ctx);
Status trunc_mod(GradContext& ctx);
Status softplus(GradContext& ctx);
Status relu(GradContext& ctx);
Status square(GradContext& ctx);
Status gelu(GradContext& ctx);
Status gelu_tanh(GradContext& ctx);
Status where(GradContext& ctx);
Status cast(GradContext& ctx);

}  // namespace gradloom::ew_grad
