// The sums of World, in the order of the ranks, and where they take another way (forms.cpp).
#include <array>
#include <cstring>

#include "engine/ranks/numbers.h"
#include "engine/ranks/pieces.h"

namespace gradloom {
namespace {

// `parts`: where each rank's elements are. `divisor`: their number, or 1 for the sum.
template <class T>
void add_means(std::span<const void* const> parts, std::size_t divisor, void* to, std::int64_t count) {
  using Wide = decltype(widened(T{}));
  constexpr std::int64_t kBlock = 1024;  // of sums, in the first cache
  std::array<Wide, kBlock> sums;
  const auto ranks = static_cast<Wide>(divisor);
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    std::fill_n(sums.begin(), n, Wide{0});
    for (const void* part : parts) {
      const T* const x = static_cast<const T*>(part) + begin;
      for (std::int64_t i = 0; i < n; ++i) sums[static_cast<std::size_t>(i)] += widened(x[i]) / ranks;
    }
    T* const y = static_cast<T*>(to) + begin;
    for (std::int64_t i = 0; i < n; ++i) set(y[i], sums[static_cast<std::size_t>(i)]);
  }
}

void add_means(DType type, std::span<const void* const> parts, std::size_t divisor, void* to,
               std::int64_t count) {
  with_type(type, [&]<class T>(T) { add_means<T>(parts, divisor, to, count); });
}

bool is_small(DType type, std::int64_t count) {
  return count * static_cast<std::int64_t>(dtype_bytes(type)) <= World::kSmallBytes;
}

// How many of so many elements a rank adds at once: the largest part of them.
std::int64_t part_count(DType type, std::int64_t count, int size) {
  return is_small(type, count) ? count : (count + size - 1) / size;
}

// What goes to owners goes in rounds of so many elements of each. Every rank has the same: of a mean, but not so many that what
// comes from the others takes memory without end.
std::int64_t round_count(DType type, std::int64_t count, int size) {
  constexpr std::int64_t kRoundBytes = std::int64_t{1} << 22;
  const auto most = kRoundBytes / static_cast<std::int64_t>(dtype_bytes(type));
  return std::max<std::int64_t>(std::min(part_count(type, count, size), most), 1);
}

}  // namespace

// The part of `count` elements that is a rank's to add.
World::Range World::part_of(std::int64_t count, int rank) const {
  const auto begin = [&](std::int64_t r) { return count / size_ * r + std::min(r, count % size_); };
  return {begin(rank), begin(rank + 1)};
}

std::int64_t World::mean_workspace_bytes(DType type, std::int64_t count, int size) {
  return part_count(type, count, size) * static_cast<std::int64_t>(dtype_bytes(type)) * (size - 1);
}

std::int64_t World::reduce_workspace_bytes(DType type, std::span<const std::int64_t> counts,
                                           std::span<const int> owners, int rank, int size) {
  std::int64_t all = 0, own = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    all += counts[i];
    if (owners[i] == rank) own += counts[i];
  }
  return std::min(own, round_count(type, all, size)) * static_cast<std::int64_t>(dtype_bytes(type)) *
         (size - 1);
}

// `workspace`: for each other rank its elements of the range that is this one's to add, in the order of the ranks.
Status World::mean_now(DType type, std::span<const Piece> pieces, void* workspace) {
  if (!status_.ok()) return status_;
  const std::int64_t count = count_of(pieces);
  const bool small = is_small(type, count);
  if (form_ == ReduceForm::tree && size_ > 1 && !sums_) return mean_by_tree({type, pieces, workspace}, small);
  if (form_ == ReduceForm::ring && size_ > 1 && !sums_ && !small)
    return mean_by_ring({type, pieces, workspace});
  const auto range_of = [&](int rank) { return small ? Range{0, count} : part_of(count, rank); };
  receive_parts(type, pieces, range_of(rank_), workspace);
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) send_range(peer, type, pieces, range_of(peer), false);
  TRY(wait());
  add_range(type, pieces, range_of(rank_), workspace);
  return small ? status_ : spread_sums(type, pieces);
}

void World::receive_parts(DType type, std::span<const Piece> pieces, Range range, void* workspace) {
  const auto width = static_cast<std::int64_t>(dtype_bytes(type));
  char* to = at(workspace, 0);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    for_pieces(pieces, range.begin, range.end, [&](const Piece&, std::int64_t begin, std::int64_t end) {
      receive(peer, kDataTag, to, (end - begin) * width);
      to = at(to, (end - begin) * width);
    });
  }
}

// This rank's elements of the range and those that receive_parts has brought.
void World::add_range(DType type, std::span<const Piece> pieces, Range range, const void* workspace) {
  const auto width = static_cast<std::int64_t>(dtype_bytes(type));
  const std::int64_t length = range.end - range.begin;
  std::vector<const void*> from(static_cast<std::size_t>(size_));
  std::int64_t done = 0;
  for_pieces(pieces, range.begin, range.end, [&](const Piece& piece, std::int64_t begin, std::int64_t end) {
    for (int peer = 0, place = 0; peer < size_; ++peer)
      from[static_cast<std::size_t>(peer)] =
          peer == rank_ ? at(piece.from, begin * width) : at(workspace, (length * place++ + done) * width);
    void* const to = at(piece.to, begin * width);
    if (form_ == ReduceForm::tree && !sums_)
      add_tree(type, from, to, end - begin);
    else
      add_means(type, from, sums_ ? 1 : from.size(), to, end - begin);
    done += end - begin;
  });
}

Status World::spread_sums(DType type, std::span<const Piece> pieces) {
  const std::int64_t count = count_of(pieces);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    receive_range(peer, type, pieces, part_of(count, peer));
    send_range(peer, type, pieces, part_of(count, rank_), true);
  }
  return wait();
}

// In rounds: in each, every rank adds so many of its own elements at most, so that the memory for those of the others does not
// grow where one rank owns all.
Status World::reduce_now(DType type, std::span<const Piece> pieces, std::span<const int> owners,
                         void* workspace) {
  if (!status_.ok()) return status_;
  std::vector<std::vector<Piece>> owned(static_cast<std::size_t>(size_));
  for (std::size_t i = 0; i < pieces.size(); ++i)
    owned[static_cast<std::size_t>(owners[i])].push_back(pieces[i]);
  std::int64_t most = 0;
  for (const std::vector<Piece>& of_rank : owned) most = std::max(most, count_of(of_rank));
  const std::int64_t round = round_count(type, count_of(pieces), size_);
  const std::vector<Piece>& own = owned[static_cast<std::size_t>(rank_)];
  const std::int64_t own_count = count_of(own);
  for (std::int64_t begin = 0; begin < most; begin += round) {
    const Range mine{std::min(begin, own_count), std::min(begin + round, own_count)};
    receive_parts(type, own, mine, workspace);
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_)
        send_range(peer, type, owned[static_cast<std::size_t>(peer)], {begin, begin + round}, false);
    TRY(wait());
    add_range(type, own, mine, workspace);
  }
  return status_;
}

Status World::adasum_now(DType type, std::span<const Piece> pieces, void* workspace) {
  const auto width = static_cast<std::int64_t>(dtype_bytes(type));
  for (const Piece& piece : pieces)
    if (piece.to != piece.from)
      std::memcpy(piece.to, piece.from, static_cast<std::size_t>(piece.count * width));
  for (int distance = 1; distance < size_; distance *= 2) {
    const int peer = rank_ ^ distance;
    char* theirs = at(workspace, 0);
    for (const Piece& piece : pieces) {
      receive(peer, kDataTag, theirs, piece.count * width);
      send(peer, kDataTag, piece.to, piece.count * width);
      theirs = at(theirs, piece.count * width);
    }
    TRY(wait());
    theirs = at(workspace, 0);
    for (const Piece& piece : pieces) {
      combine_adasum(type, piece.to, theirs, piece.count, rank_ < peer);
      theirs = at(theirs, piece.count * width);
    }
  }
  return {};
}

}  // namespace gradloom
