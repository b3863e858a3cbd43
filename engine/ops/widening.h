// That a row computes in f32 what is stored in a half type (prepare_kernel.cpp): its operands have the digits of that. What kernels make of a
// row's types is told by an attribute, as strides are (operand_rows.h).
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

constexpr const char* kWidened = "operands were widened";
inline void set_widened(NodeTypes& types) { types.attrs.set(kWidened, std::int64_t{1}); }
inline bool is_widened(const NodeTypes& types) { return types.attrs.has(kWidened); }

}  // namespace gradloom
