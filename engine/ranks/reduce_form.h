// In which order ranks add what a mean is made of, and so which way its numbers go. For the same world each gives the same bits, on
// every run and every rank; 16-bit types are added in f32. Of N ranks and B bytes:
//   order  in the order of the ranks, by one rank for each N-th of the elements: every rank sends every other its part, and then the
//          sums; a sum is rounded once. 2 (N - 1) / N B bytes of each rank, two waits.
//   tree   pairs, then pairs of pairs: ((0 + 1) + (2 + 3)) + .., by recursive halving: neighbours exchange halves, and so on with
//          half of that at twice the distance; the sums come back the same way (Rabenseifner 2004). 16-bit types are rounded at each
//          level. As many bytes, 2 log2(N) waits. With P the largest power of two in N and E = N - P left over, the first 2 E ranks
//          make E pairs before.
//   ring   the elements of part p, of N, in the order p, p + 1, ..: sums go round from rank to rank, and then round again to all.
//          16-bit types are rounded at each rank. As many bytes, each to the next rank alone, 2 (N - 1) waits.
// What is small (World::kSmallBytes) is exchanged whole: in a tree by recursive doubling, else to all others at once, in the order of
// the ranks. With order and tree the bits of an element depend on the ranks' numbers alone; in a ring also on where it lies among
// those that are exchanged together, so that buckets of other sizes give other bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gradloom {

enum class ReduceForm : std::uint8_t { order, tree, ring };
inline constexpr const char* kReduceForms[] = {"order", "tree", "ring"};

inline std::optional<ReduceForm> reduce_form_of(std::string_view name) {
  for (const ReduceForm form : {ReduceForm::order, ReduceForm::tree, ReduceForm::ring})
    if (name == kReduceForms[static_cast<int>(form)]) return form;
  return std::nullopt;
}

// How a tree is made of ranks: `paired` pairs (0, 1), (2, 3), .. and the others alone are its leaves, a power of two of them.
struct ReduceTree {
  int leaves = 1, paired = 0;
  explicit ReduceTree(int ranks) {
    while (2 * leaves <= ranks) leaves *= 2;
    paired = ranks - leaves;
  }
  int levels() const {
    int n = 0;
    while ((1 << n) < leaves) ++n;
    return n;
  }
  int leaf_of(int rank) const { return rank < 2 * paired ? rank / 2 : rank - paired; }
  int rank_of(int leaf) const { return leaf < paired ? 2 * leaf : leaf + paired; }  // the first of a pair
  bool is_pair(int leaf) const { return leaf < paired; }
};

}  // namespace gradloom
