// The positions of the items of an IndexWalk (kernels/arguments/indices.h), for the kernels of every device.
#pragma once

#include "kernels/arguments.h"
#include "kernels/math.h"

namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE {

GRADLOOM_HD std::int64_t items_of(const IndexWalk& walk) { return walk.outer * walk.n * walk.inner; }

// `base` moved by the item's indices; -1: no place.
template <class Index>
GRADLOOM_HD std::int64_t moved(const IndexWalk& walk, const Index* indices, std::int64_t item,
                               std::int64_t base) {
  for (int j = 0; j < walk.depth; ++j) {
    std::int64_t k = std::int64_t(indices[item * walk.depth + j]);
    k = k < 0 ? k + walk.sizes[j] : k;
    if (k < 0 || k >= walk.sizes[j]) return -1;
    base += k * walk.steps[j];
  }
  return base;
}

}  // namespace gradloom::kernels::GRADLOOM_MATH_NAMESPACE
