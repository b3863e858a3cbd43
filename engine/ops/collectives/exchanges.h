// Which operators exchange numbers with other ranks.
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

// Whether its results hold other ranks' numbers: at once, or after the wait for them (all_reduce.h).
bool is_exchange(const OpDef& op);
bool begins_exchange(const OpDef& op);  // of these, those that AllReduceWait follows
// AllReduceWait: its first input is the last result of what it waits for.
bool waits_for_exchange(const OpDef& op);

// Whether a GPU's host may have to do its work (host_work.h).
bool may_run_on_host(const OpDef& op);

}  // namespace gradloom
