// The ranks of one training: processes that make each step together, every one on batches of its own.
//
// What they exchange is added in the order of the ranks, or as a tree or a ring (reduce_form.h), whatever arrives first: the same
// world gives the same bits on every rank. A mean of gradients is made in two steps, as a reduce-scatter and an all-gather are: each rank sends every
// other the part that is the other's to add, adds its own part, and sends the sum to all. So N ranks carry 2 (N - 1) / N times
// the bytes each. What is small goes to every rank whole, in one step. A gradient that only one rank needs goes to that one alone, and
// is added there in the same order (a tree's, or that of the ranks): half the bytes.
//
// A rank that cannot go on says so to all others, with its reason. One that is silent for longer than the limit is named
// by those that wait for it. In both cases what waits gives up, with the Errc of the rank that ended or Errc::device, and no
// later exchange waits again.
//
// What was begun, means for all or for their owners and what owners give to all, is made by a thread of the world's own, one after the other, while the steps'
// thread computes; whatever else is exchanged comes after it. Every rank begins and waits in the same order. But for that thread, the one that runs the
// steps calls; where a GPU runs them, a thread of its runtime in its place, while the program waits for the device. leave() may come in
// the midst of that: it ends the waiting.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/result.h"
#include "engine/base/tensor.h"
#include "engine/ranks/place.h"
#include "engine/ranks/reduce_form.h"
#include "engine/ranks/transport.h"

namespace gradloom {

// Ranks that exchange apart from the others: `ranks` of them, `stride` from each to the next. Every rank is in one such group: ranks 0 to 3 as
// {2, 1} are 0 1 and 2 3, as {2, 2} they are 0 2 and 1 3.
struct RankGroup {
  int ranks = 0;  // 0: all
  int stride = 1;
  bool operator==(const RankGroup&) const = default;
};

class World {
 public:
  // Connects this process with the other ranks, by the plugin of TCP where they have a place to meet, else by that of Open MPI. Once in
  // a process; it stays until leave(). `limit`: how long to wait for them, and the limit from then on; `stop`: of this alone.
  // Errors: Errc::device (no plugin, ranks that do not come, MPI says another rank than the environment), Errc::interrupted, Errc::usage (it has joined).
  static Result<World*> join(const RankPlace& place, std::chrono::milliseconds limit,
                             const std::stop_token& stop);
  static World* current();  // null: this process is the only rank
  // Of a transport that is ready; `self`: what its join() has made.
  World(const GradloomTransport& transport, void* self, int rank, int size);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  int rank() const { return world_rank_; }
  int size() const { return world_size_; }
  int local_rank() const { return local_rank_; }  // among the ranks of this machine; of what join() has made
  // What a rank may be silent before those that wait for it give up.
  void set_limit(std::chrono::milliseconds limit) { limit_ = limit; }
  std::int64_t limit_ns() const;
  // How means are added from now on, the same on all ranks. REQUIRES that nothing is under way.
  void set_reduce_form(ReduceForm form) { form_ = form; }
  ReduceForm reduce_form() const { return form_; }
  // Whether another rank has ended with an error or without a word, of which it has been heard so far: its error.
  Status ended_ranks();
  // A stop that is requested while this rank waits, and so long without an answer: it gives up. A launcher that ends all ranks because
  // one has died kills them soon after; a rank that is only slow is worth waiting for.
  void set_stop(std::stop_token stop, std::chrono::milliseconds patience) {
    stop_ = std::move(stop);
    patience_ = patience;
  }

  // One of several tensors that are exchanged as if they lay one after the other. `to` may be `from`.
  struct Piece {
    const void* from = nullptr;
    void* to = nullptr;
    std::int64_t count = 0;  // elements
  };
  // to = sum over the ranks of from / size, as reduce_form() says; 16-bit types are added in f32, and in the ranks' order rounded once.
  // `type`: one with which kernels compute. `group`: the ranks that are meant, of which size() is a multiple of ranks x stride.
  Status mean(DType type, std::span<const Piece> pieces, void* workspace, RankGroup group = {});
  // to = the sum of from, always in the order of the ranks, and as much workspace.
  Status sum(DType type, std::span<const Piece> pieces, void* workspace, RankGroup group);
  // What is no longer is sent whole to every rank.
  static constexpr std::int64_t kSmallBytes = 16384;
  static std::int64_t mean_workspace_bytes(DType type, std::int64_t count, int size);
  // The same in the background: pieces and workspace stay as they are until wait_for(workspace).
  void begin_mean(DType type, std::vector<Piece> pieces, void* workspace, RankGroup group = {});
  // The same sums, of each piece at the rank that owns it alone: `owners`, one for each piece. `to` is read at that rank only.
  Status reduce(DType type, std::span<const Piece> pieces, std::span<const int> owners, void* workspace);
  // At `rank`; no more than of the mean of as many elements. `counts`: of each piece.
  static std::int64_t reduce_workspace_bytes(DType type, std::span<const std::int64_t> counts,
                                             std::span<const int> owners, int rank, int size);
  void begin_reduce(DType type, std::vector<Piece> pieces, std::vector<int> owners, void* workspace);
  Status wait_for(const void* workspace);
  // to = AdaSum over the ranks of from, of each piece by itself (Maleki et al. 2020): pairs of ranks, then pairs of pairs, with
  //   adasum(a, b) = (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b
  // where a is of the lower ranks: the sum of what is orthogonal, the mean of what is parallel. Dot products are in float64, 16-bit
  // types are combined in f32 and rounded once for each level. `workspace`: as many bytes as all pieces.
  // REQUIRES that size() is a power of two.
  Status adasum(DType type, std::span<const Piece> pieces, void* workspace);

  // What one rank has, which the others get.
  struct Block {
    void* at = nullptr;
    std::int64_t bytes = 0;
    int owner = 0;
  };
  Status share(std::span<const Block> blocks);
  // The same in the background: blocks stay as they are until wait_for(mark), any address that tells exchanges apart.
  void begin_share(std::vector<Block> blocks, void* mark);
  Status share_between(const Block& block, int with);  // of its owner, with one other rank; others do nothing
  // Every rank's number, at every rank.
  Result<std::vector<std::int64_t>> exchange(std::int64_t mine);
  // Every rank's bytes, in the order of the ranks, at rank 0; nothing at the others.
  using Bytes = std::vector<std::byte>;
  Result<std::vector<Bytes>> gather(const Bytes& mine);

  // How far a rank's monotonic clock is ahead of rank 0's, and how wrong that may be.
  struct Clock {
    std::int64_t offset_ns = 0, error_ns = 0;
  };
  // Of all ranks, at rank 0; nothing at the others. Ranks whose `machine` (any text that differs between machines) is rank 0's share its
  // clock; the others answer, and the quickest answer counts: it was read halfway, give or take half the way (Cristian 1989).
  Result<std::vector<Clock>> clocks(const std::string& machine);

  // A mean that was made, or blocks that were shared: on this rank's clock, with what it sent. Those in the background and those that steps waited for in place
  // are in the order in which they were made.
  struct Exchanged {
    std::int64_t start_ns = 0, end_ns = 0, sent_bytes = 0;
    bool background = false;
  };
  void record(bool on) { recording_ = on; }  // REQUIRES that nothing is under way
  std::vector<Exchanged> take_recorded();    // likewise

  // Tells the others how this rank ended, hears how they did, and ends the connection; once. The common end: the error of the
  // lowest rank that has one of its own ("rank 2: ..." where not all have the same).
  // REQUIRES that the memory of what was exchanged is still there.
  Status leave(const Status& mine);
  // Bytes sent and time waited since the start.
  std::int64_t sent_bytes() const { return sent_bytes_; }
  std::int64_t waited_ns() const { return waited_ns_; }

 private:
  struct End;      // what a rank says last
  struct Request;  // under way
  struct Range {
    std::int64_t begin = 0, end = 0;
  };
  struct Exchange {
    DType type;
    std::vector<Piece> pieces;
    std::vector<int> owners;  // empty: the mean goes to all
    void* workspace;
    RankGroup group;
    std::vector<Block> blocks{};  // no mean: what their owners give to all
  };
  struct Means {
    DType type;
    std::span<const Piece> pieces;
    void* workspace;
  };
  // Of an exchange in several steps, each of which needs those before it at other ranks: a rank may be late because it waits itself.
  // Who waits in a later step waits longer, up to half the limit, so that the silent rank is named and not one that waits for it.
  struct Turn {
    int step = 0, steps = 1;
  };
  template <class Exchanging>
  Status in_step(RankGroup group, const Exchanging& exchanging);
  template <class Exchanging>
  Status recorded(bool background, RankGroup group, const Exchanging& exchanging);
  void enter(RankGroup group);
  int rank_at(int place) const;  // of the group
  Status adasum_now(DType type, std::span<const Piece> pieces, void* workspace);
  Status mean_now(DType type, std::span<const Piece> pieces, void* workspace);
  Status reduce_now(DType type, std::span<const Piece> pieces, std::span<const int> owners, void* workspace);
  Status share_now(std::span<const Block> blocks);
  Status mean_by_ring(const Means& means);
  Status mean_by_tree(const Means& means, bool whole);
  Status add_pair_of_leaf(const Means& means, Range all, bool whole, Turn turn);
  void receive_addends(const Means& means, Range range, int from);
  void add_received(const Means& means, Range range, int from, bool raw, bool raw_theirs);
  void begin(Exchange exchange);
  void add_range(DType type, std::span<const Piece> pieces, Range range, const void* workspace);
  Result<Clock> ask_clock(int peer);
  Status answer_clock();
  void work();
  void settle();
  void send(int to, int tag, const void* bytes, std::int64_t count);
  void receive(int from, int tag, void* bytes, std::int64_t count);
  Status wait(Turn turn);
  Status wait() { return wait(Turn()); }
  bool progress();
  void hear_ends();
  void miss(int peer);
  Status give_up(Error error);
  Status check(int code);
  void send_range(int to, DType type, std::span<const Piece> pieces, Range range, bool sums);
  void receive_range(int from, DType type, std::span<const Piece> pieces, Range range);
  void receive_parts(DType type, std::span<const Piece> pieces, Range range, void* workspace);
  Range part_of(std::int64_t count, int rank) const;
  Status spread_sums(DType type, std::span<const Piece> pieces);
  std::string silent_ranks() const;
  Error error_of(int peer) const;
  Status common_end(const Status& mine) const;

  const GradloomTransport& transport_;
  void* const self_;
  const int world_rank_, world_size_;
  // Of the group that exchanges now: this rank's place in it, how many there are, its first rank. Between exchanges all ranks.
  int rank_, size_, first_ = 0;
  RankGroup group_;
  bool sums_ = false;  // the exchange is a sum, no mean
  std::chrono::milliseconds limit_{600'000}, patience_{500};
  std::stop_token stop_;
  ReduceForm form_ = ReduceForm::order;
  Status status_;
  std::vector<Request> requests_;
  std::vector<End> ends_;  // of each rank
  std::int64_t sent_bytes_ = 0, waited_ns_ = 0, carried_bytes_ = 0;
  std::atomic<bool> left_{false};
  bool recording_ = false;
  std::vector<Exchanged> recorded_;
  // The thread of its own, and what it has to do; all under the mutex but abandoned_.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Exchange> begun_;  // the first is under way
  Status background_;           // of what it has done
  bool closing_ = false;
  std::atomic<bool> abandoned_{false};
  int local_rank_ = 0;
  std::mutex of_steps_;  // held by what a plan's steps exchange, and by leave()
  std::thread worker_;
};

}  // namespace gradloom
