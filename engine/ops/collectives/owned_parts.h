// Tensors whose elements ranks own: each rank none of a tensor, all of them, or one range in row-major order. As attributes of a
// node: owners, the rank of each part; where a tensor is cut, also of, begins and counts: the tensor, first element and elements of each
// part, in the order of tensors and elements. A node without these has a part for each tensor.
#pragma once

#include <span>
#include <vector>

#include "engine/ir/graph.h"

namespace gradloom {

struct OwnedPart {
  std::size_t tensor = 0;
  std::int64_t begin = 0, count = 0;
  int owner = 0;
};

// Of the first tensors of the list: as many as the attributes name. Errors: an owner that is none of `ranks`; parts that overlap, leave
// something out, or are not in the order of the ranks; tensors whose dims are not known.
Result<std::vector<OwnedPart>> owned_parts(const Attrs& attrs, std::span<const Type> tensors);
void set_owned_parts(Attrs& attrs, std::span<const OwnedPart> parts, std::span<const Type> tensors);
std::size_t tensors_of(std::span<const OwnedPart> parts);
// The tensor itself, or its range as one dim.
Type type_of(const OwnedPart& part, const Type& tensor);

}  // namespace gradloom
