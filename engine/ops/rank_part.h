// What ranks that share parameters (pass tensor-parallel) have of a tensor that is split among them, as attributes of a node: parts, how many
// ranks have one each; run: of each parts x run elements of the whole in a row, rank n of its group has the n-th `run`. Columns of [rows, columns]
// are runs of columns / parts elements, heads of [batch, heads, rows, keys] runs of heads / parts x rows x keys. part: the number of the part that
// every process has, as of the rows that pass select-rows leaves of a tensor; absent: its rank's.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/ir/graph.h"

namespace gradloom {

constexpr std::int64_t kMostParts = 1 << 20;

// The place of this process among `parts` neighbours: its rank modulo parts, 0 where it is no rank.
std::int64_t own_part(std::int64_t parts);

struct RankPart {
  std::int64_t run = 1, parts = 1, number = 0;  // number: which part this process has
};
// Of a part of so many elements; nothing: the tensor is whole. Errors: runs that do not make up the elements, no or too many parts.
Result<std::optional<RankPart>> rank_part(const Attrs& attrs, std::int64_t count);
void set_rank_part(Attrs& attrs, std::int64_t parts, std::int64_t run, std::optional<std::int64_t> part = {});
void copy_rank_part(const Attrs& from, Attrs& to);

}  // namespace gradloom
