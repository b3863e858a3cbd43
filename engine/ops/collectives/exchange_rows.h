// The operators that exchange with other ranks, for those who know operators by their names alone: session files.
#pragma once

#include <span>
#include <string_view>

#include "engine/ir/op.h"

namespace gradloom {

std::span<const OpDef* const> exchange_rows();  // every row with OpDef::exchange

// Whether a rank's other kernels stand still while a kernel of the operator runs: it exchanges, or waits for what was begun.
// One that only begins an exchange takes its rank's time as any other kernel does.
bool stands_still(const OpDef& op);
bool stands_still(std::string_view op);  // of this name

}  // namespace gradloom
