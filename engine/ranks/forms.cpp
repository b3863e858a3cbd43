// Means by a tree and by a ring (reduce_form.h). Partial sums lie where the means will be: nobody reads them before that.
#include <utility>
#include <vector>

#include "engine/ranks/numbers.h"
#include "engine/ranks/pieces.h"

namespace gradloom {
namespace {

template <class T>
using Wide = decltype(widened(T{}));

// to = a + b; what is raw is a rank's own and is divided by their number first.
template <bool kRawA, bool kRawB, class T>
void add(const T* a, const T* b, T* to, std::int64_t count, Wide<T> ranks) {
  for (std::int64_t i = 0; i < count; ++i) {
    Wide<T> x = widened(a[i]), y = widened(b[i]);
    if constexpr (kRawA) x /= ranks;
    if constexpr (kRawB) y /= ranks;
    set(to[i], x + y);
  }
}

struct Addend {
  const void* at;
  bool raw;
};

// `to` may be where one of them is.
void add_pair(DType type, Addend a, Addend b, void* to, std::int64_t count, int ranks) {
  with_type(type, [&]<class T>(T) {
    const auto x = static_cast<const T*>(a.at), y = static_cast<const T*>(b.at);
    const auto z = static_cast<T*>(to);
    const auto n = static_cast<Wide<T>>(ranks);
    if (a.raw && b.raw) return add<true, true>(x, y, z, count, n);
    if (a.raw) return add<true, false>(x, y, z, count, n);
    if (b.raw) return add<false, true>(x, y, z, count, n);
    add<false, false>(x, y, z, count, n);
  });
}

// The elements [begin, begin + count) of all ranks, those of one block.
template <class T>
struct TreeBlock {
  static constexpr std::int64_t kMost = 256;  // one such block for each level is on the stack
  std::span<const void* const> parts;
  std::int64_t begin, count;
  ReduceTree tree;

  static Wide<T> rounded(Wide<T> x) {
    T to;
    set(to, x);
    return widened(to);
  }
  const T* of(int rank) const { return static_cast<const T*>(parts[static_cast<std::size_t>(rank)]) + begin; }
  void add_leaf(int leaf, Wide<T>* to) const {
    const auto ranks = static_cast<Wide<T>>(parts.size());
    const T* const x = of(tree.rank_of(leaf));
    if (!tree.is_pair(leaf)) {
      for (std::int64_t i = 0; i < count; ++i) to[i] = widened(x[i]) / ranks;
      return;
    }
    const T* const y = of(tree.rank_of(leaf) + 1);
    for (std::int64_t i = 0; i < count; ++i) to[i] = rounded(widened(x[i]) / ranks + widened(y[i]) / ranks);
  }
  void add_leaves(int first, int leaves, Wide<T>* to) const {
    if (leaves == 1) return add_leaf(first, to);
    Wide<T> upper[kMost];
    add_leaves(first, leaves / 2, to);
    add_leaves(first + leaves / 2, leaves / 2, upper);
    for (std::int64_t i = 0; i < count; ++i) to[i] = rounded(to[i] + upper[i]);
  }
};

}  // namespace

void add_tree(DType type, std::span<const void* const> parts, void* to, std::int64_t count) {
  const ReduceTree tree(static_cast<int>(parts.size()));
  with_type(type, [&]<class T>(T) {
    using Block = TreeBlock<T>;
    for (std::int64_t begin = 0; begin < count; begin += Block::kMost) {
      const Block block{parts, begin, std::min(Block::kMost, count - begin), tree};
      Wide<T> sums[Block::kMost];
      block.add_leaves(0, tree.leaves, sums);
      for (std::int64_t i = 0; i < block.count; ++i) set(static_cast<T*>(to)[begin + i], sums[i]);
    }
  });
}

// What an exchange of several messages in turn adds: `range` of the pieces, of another rank in `workspace`.
void World::add_received(const Means& means, Range range, int from, bool raw, bool raw_theirs) {
  const auto width = static_cast<std::int64_t>(dtype_bytes(means.type));
  const char* theirs = at(means.workspace, 0);
  for_pieces(
      means.pieces, range.begin, range.end, [&](const Piece& piece, std::int64_t begin, std::int64_t end) {
        const Addend own{at(raw ? piece.from : piece.to, begin * width), raw}, other{theirs, raw_theirs};
        const bool first = rank_ < from;
        add_pair(means.type, first ? own : other, first ? other : own, at(piece.to, begin * width),
                 end - begin, size_);
        theirs = at(theirs, (end - begin) * width);
      });
}

void World::receive_addends(const Means& means, Range range, int from) {
  const auto width = static_cast<std::int64_t>(dtype_bytes(means.type));
  char* to = at(means.workspace, 0);
  for_pieces(means.pieces, range.begin, range.end, [&](const Piece&, std::int64_t begin, std::int64_t end) {
    receive(from, kDataTag, to, (end - begin) * width);
    to = at(to, (end - begin) * width);
  });
}

// Part p begins at rank p and is whole at the one before it.
Status World::mean_by_ring(const Means& means) {
  const std::int64_t count = count_of(means.pieces);
  const int next = (rank_ + 1) % size_, before = (rank_ + size_ - 1) % size_, turns = 2 * (size_ - 1);
  const auto part = [&](int steps_back) { return part_of(count, (rank_ + 2 * size_ - steps_back) % size_); };
  for (int step = 0; step < size_ - 1; ++step) {
    const Range mine = part(step + 1);
    receive_addends(means, mine, before);
    send_range(next, means.type, means.pieces, part(step), step > 0);
    TRY(wait({step, turns}));
    add_received(means, mine, before, true, step == 0);
  }
  for (int step = 0; step < size_ - 1; ++step) {
    receive_range(before, means.type, means.pieces, part(step));
    send_range(next, means.type, means.pieces, part(step - 1), true);
    TRY(wait({size_ - 1 + step, turns}));
  }
  return {};
}

// Of the two ranks of a leaf the first has its sums in the end. The second leaves then, until they are the means.
Status World::add_pair_of_leaf(const Means& means, Range all, bool whole, Turn turn) {
  const bool first = rank_ % 2 == 0;
  const int peer = first ? rank_ + 1 : rank_ - 1;
  const std::int64_t middle = whole ? all.end : all.end / 2;
  const Range lower{0, middle}, upper{middle, all.end};
  receive_addends(means, first ? lower : upper, peer);
  send_range(peer, means.type, means.pieces, first ? upper : lower, false);
  TRY(wait(turn));
  add_received(means, first ? lower : upper, peer, true, true);
  if (whole) return {};
  if (first)
    receive_range(peer, means.type, means.pieces, upper);
  else
    send_range(peer, means.type, means.pieces, upper, true);
  return wait({turn.step + 1, turn.steps});
}

// `whole`: nothing is halved, so that all ranks have all sums at once.
Status World::mean_by_tree(const Means& means, bool whole) {
  const ReduceTree tree(size_);
  const Range all{0, count_of(means.pieces)};
  const int leaf = tree.leaf_of(rank_), levels = tree.levels();
  Turn turn{0, 2 * levels + 3};
  const bool paired = tree.is_pair(leaf), second = paired && rank_ % 2 == 1;
  if (paired) TRY(add_pair_of_leaf(means, all, whole, turn));
  turn.step = 2;
  std::vector<Range> before;  // of each level
  Range mine = all;
  for (int level = 0; level < levels && !second; ++level, ++turn.step) {
    const int other = leaf ^ (1 << level), peer = tree.rank_of(other);
    const std::int64_t middle = mine.begin + (mine.end - mine.begin) / 2;
    const Range lower{mine.begin, middle}, upper{middle, mine.end};
    const bool low = leaf < other, raw = level == 0 && !paired;
    const Range kept = whole ? mine : low ? lower : upper, sent = whole ? mine : low ? upper : lower;
    receive_addends(means, kept, peer);
    send_range(peer, means.type, means.pieces, sent, !raw);
    TRY(wait(turn));
    add_received(means, kept, peer, raw, level == 0 && !tree.is_pair(other));
    before.push_back(std::exchange(mine, kept));
  }
  for (int level = levels - 1; level >= 0 && !second && !whole; --level, ++turn.step) {
    const int peer = tree.rank_of(leaf ^ (1 << level));
    const Range wider = before[static_cast<std::size_t>(level)];
    send_range(peer, means.type, means.pieces, mine, true);
    receive_range(peer, means.type, means.pieces,
                  mine.begin == wider.begin ? Range{mine.end, wider.end} : Range{wider.begin, mine.begin});
    TRY(wait(turn));
    mine = wider;
  }
  if (paired && second) receive_range(rank_ - 1, means.type, means.pieces, all);
  if (paired && !second) send_range(rank_ + 1, means.type, means.pieces, all, true);
  return wait({turn.steps - 1, turn.steps});
}

}  // namespace gradloom
