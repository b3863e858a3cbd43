// CopyToHost and CopyFromHost: a tensor leaves a GPU's memory for the host's and comes back, both y = x. They are copies like
// any other where a plan says nothing else; what passes/offload makes of them, and where they run, is engine/plan/streams.h.
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

bool copies_to_host(const OpDef& op);
bool copies_from_host(const OpDef& op);

}  // namespace gradloom
