// The rows of ops.def by symbol: add_op, matmul_op, ...
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

#define OP(symbol) extern const OpDef symbol##_op;
#include "engine/ops/ops.def"
#undef OP

}  // namespace gradloom
