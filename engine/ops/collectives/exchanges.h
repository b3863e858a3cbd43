// Which operators exchange numbers with other ranks.
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

// Whether its results hold other ranks' numbers: at once, or after the wait for them (all_reduce.h).
bool is_exchange(const OpDef& op);

}  // namespace gradloom
