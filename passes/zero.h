// How pass zero shares the optimizer's states out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ops/collectives/owned_parts.h"

namespace gradloom {

// A parameter: its elements, the bytes that are shared out with them, and whether each rank may have a range of them.
struct ZeroItem {
  std::int64_t elements = 0, bytes = 0;
  bool cut = false;
};

// Who owns what, in the order of the items (OwnedPart::tensor). Ranges are cut at multiples of kRangeUnit elements
// (optimizer_inputs.h), as many to every rank as there are; what is left over and what stays whole goes, the largest item first, to the
// ranks that have least. So no two ranks differ by two of the largest units.
std::vector<OwnedPart> zero_shares(std::span<const ZeroItem> items, std::int64_t ranks);
// Of an item's bytes, those of a part.
std::int64_t zero_bytes(const ZeroItem& item, const OwnedPart& part);

}  // namespace gradloom
