#include "engine/ops/collectives/owned_parts.h"

#include <algorithm>

#include "engine/ops/inference.h"

namespace gradloom {
namespace {

constexpr const char *kOwners = "owners", *kPartsOf = "of", *kPartBegins = "begins", *kPartCounts = "counts";

Status check_owned_parts(std::span<const OwnedPart> parts, std::span<const Type> tensors) {
  const auto elements = [&](std::size_t tensor) { return element_count(tensors[tensor].shape); };
  std::size_t tensor = 0;
  std::int64_t owned = 0;  // of its elements
  int owner = -1;
  const auto whole = [&]() -> Status {
    if (owned == elements(tensor)) return {};
    return infer_error("tensor " + std::to_string(tensor) + " has elements without an owner");
  };
  for (const OwnedPart& part : parts) {
    if (part.tensor == tensor + 1) {
      TRY(whole());
      tensor = part.tensor;
      owned = 0;
      owner = -1;
    }
    if (part.tensor != tensor || part.begin != owned || part.count < 0 ||
        part.count > elements(tensor) - owned || part.owner <= owner)
      return infer_error("the parts of tensor " + std::to_string(tensor) +
                         " are not those of ascending ranks");
    owned += part.count;
    owner = part.owner;
  }
  return parts.empty() ? Status() : whole();
}

}  // namespace

Result<std::vector<OwnedPart>> owned_parts(const Attrs& attrs, std::span<const Type> tensors) {
  const std::int64_t ranks = attrs.integer("ranks", 0);
  const std::vector<std::int64_t> owners = attrs.integers(kOwners), of = attrs.integers(kPartsOf),
                                  begins = attrs.integers(kPartBegins), counts = attrs.integers(kPartCounts);
  const bool cut = !of.empty();
  if (cut && (of.size() != owners.size() || begins.size() != owners.size() || counts.size() != owners.size()))
    return infer_error("of, begins and counts must be one per owner");
  std::vector<OwnedPart> parts;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    if (owners[i] < 0 || owners[i] >= ranks)
      return infer_error("owner " + std::to_string(owners[i]) + " is no rank");
    const std::int64_t tensor = cut ? of[i] : static_cast<std::int64_t>(i);
    if (tensor < 0 || tensor >= std::ssize(tensors)) return infer_error("there is an owner of no tensor");
    const Shape& shape = tensors[static_cast<std::size_t>(tensor)].shape;
    if (!is_static(shape)) return infer_error("input " + std::to_string(tensor) + " is " + to_string(shape));
    parts.push_back({static_cast<std::size_t>(tensor), cut ? begins[i] : 0,
                     cut ? counts[i] : element_count(shape), static_cast<int>(owners[i])});
  }
  TRY(check_owned_parts(parts, tensors));
  return parts;
}

void set_owned_parts(Attrs& attrs, std::span<const OwnedPart> parts, std::span<const Type> tensors) {
  std::vector<std::int64_t> owners, of, begins, counts;
  bool cut = false;
  for (const OwnedPart& part : parts) {
    owners.push_back(part.owner);
    of.push_back(static_cast<std::int64_t>(part.tensor));
    begins.push_back(part.begin);
    counts.push_back(part.count);
    cut = cut || part.count != element_count(tensors[part.tensor].shape);
  }
  attrs.set(kOwners, owners);
  for (const auto& [name, list] :
       {std::pair(kPartsOf, &of), std::pair(kPartBegins, &begins), std::pair(kPartCounts, &counts)}) {
    if (cut)
      attrs.set(name, *list);
    else
      attrs.erase(name);
  }
}

std::size_t tensors_of(std::span<const OwnedPart> parts) {
  return parts.empty() ? 0 : parts.back().tensor + 1;
}

Type type_of(const OwnedPart& part, const Type& tensor) {
  return part.count == element_count(tensor.shape) ? tensor : Type{tensor.dtype, {part.count}};
}

}  // namespace gradloom
