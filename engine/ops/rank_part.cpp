#include "engine/ops/rank_part.h"

#include <string>

#include "engine/ir/op.h"
#include "engine/ranks/world.h"

namespace gradloom {
namespace {

constexpr const char *kParts = "parts", *kRun = "run", *kPart = "part";

}  // namespace

std::int64_t own_part(std::int64_t parts) {
  const World* const world = World::current();
  return world == nullptr ? 0 : world->rank() % parts;
}

Result<std::optional<RankPart>> rank_part(const Attrs& attrs, std::int64_t count) {
  if (!attrs.has(kParts)) return std::optional<RankPart>();
  const std::int64_t parts = attrs.integer(kParts), run = attrs.integer(kRun, 0);
  if (parts < 1 || parts > kMostParts)
    return infer_error("parts are between 1 and " + std::to_string(kMostParts));
  if (run < 1 || count % run != 0)
    return infer_error(std::to_string(count) + " elements are no runs of " + std::to_string(run));
  if (!attrs.has(kPart)) return std::optional(RankPart{run, parts, own_part(parts)});
  const std::int64_t part = attrs.integer(kPart);
  if (part < 0 || part >= parts)
    return infer_error("part " + std::to_string(part) + " is none of " + std::to_string(parts));
  return std::optional(RankPart{run, parts, part});
}

void set_rank_part(Attrs& attrs, std::int64_t parts, std::int64_t run, std::optional<std::int64_t> part) {
  attrs.set(kParts, parts);
  attrs.set(kRun, run);
  if (part) attrs.set(kPart, *part);
}

void copy_rank_part(const Attrs& from, Attrs& to) {
  for (const char* name : {kParts, kRun, kPart})
    if (from.has(name)) to.set(name, from.integer(name));
}

}  // namespace gradloom
