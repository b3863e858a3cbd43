// Questions that inference may ask about the contents of an input.
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

// Contents known before running are low to high; null (unknown ones) are left to the run.
// "label 9 is not 0 to 3"; `what`: "label".
// `but`: an entry that is allowed all the same, or null.
Status require_between(const Tensor* known, std::int64_t low, std::int64_t high, const char* what,
                       const std::int64_t* but = nullptr);

}  // namespace gradloom
