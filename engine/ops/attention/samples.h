// Samples of FusedAttention and FusedAttentionGrad.
#pragma once

#include <vector>

#include "engine/ir/op.h"

namespace gradloom::attention {

std::vector<Sample> samples();
std::vector<Sample> samples_grad();

}  // namespace gradloom::attention
