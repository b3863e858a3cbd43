#include "engine/ranks/world.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/ranks/pieces.h"
#include "engine/ranks/transport_plugin.h"
#include "kernels/clock.h"
#include "kernels/signals.h"

namespace gradloom {
namespace {

// The tag of what is told at the end.
constexpr int kEndTag = 1;
constexpr std::int64_t kMostMessageBytes = std::int64_t{1} << 29;

std::unique_ptr<World>& own_world() {
  static std::unique_ptr<World> world;
  return world;
}

}  // namespace

struct World::End {
  static constexpr std::size_t kTextBytes = 2000;
  std::int32_t code = 0;
  std::int32_t of_another = 0;  // the rank gave up because of another one
  std::array<char, kTextBytes> text{};
  int request = -1;  // of this side alone, like what follows
  bool heard = false, gone = false;
  Status status() const {
    return code == 0 ? Status() : Status(Error{static_cast<Errc>(code), std::string(text.data())});
  }
  static constexpr std::int64_t kBytes = 8 + kTextBytes;
};

struct World::Request {
  int handle = -1, peer = 0;
  bool done = false, receives = false;
};

Result<World*> World::join(const RankPlace& place, std::chrono::milliseconds limit,
                           const std::stop_token& stop) {
  if (own_world() != nullptr) return Error{Errc::usage, "this process has met other ranks already"};
  const GradloomTransport& transport = *TRY(load_transport(place.meeting ? "tcp" : "mpi"));
  const MeetingPlace none, &where = place.meeting ? *place.meeting : none;
  const auto stopped = [](void* user) {
    return static_cast<const std::stop_token*>(user)->stop_requested() ? 1 : 0;
  };
  std::stop_token own_stop = stop;
  const GradloomMeeting meeting{place.rank,
                                place.world,
                                where.address.c_str(),
                                where.port,
                                where.one_machine ? 1 : 0,
                                where.world_id.c_str(),
                                std::chrono::nanoseconds(limit).count(),
                                stopped,
                                &own_stop};
  int rank = 0, size = 1;
  void* self = nullptr;
  const int code = transport.join(&meeting, &self, &rank, &size);
  const auto refuse = [&](Errc errc, const std::string& text) {
    transport.close(self);
    return Error{errc, text};
  };
  if (code == GRADLOOM_TRANSPORT_STOPPED)
    return refuse(Errc::interrupted, "interrupted while other ranks were waited for");
  if (code != 0)
    return refuse(Errc::device, (place.meeting ? "" : "Open MPI does not start: ") +
                                    escaped(transport.message(self, code)));
  if (rank != place.rank || size != place.world) {
    if (size == 1) transport.leave(self);
    return refuse(Errc::device,
                  place.source + " in the environment says rank " + std::to_string(place.rank) + " of " +
                      std::to_string(place.world) + ", Open MPI says " + std::to_string(rank) + " of " +
                      std::to_string(size) + ": start the ranks by mpirun, by srun --mpi=pmix, by --ranks " +
                      std::to_string(place.world) +
                      " alone, or set MASTER_ADDR and MASTER_PORT, where they meet without MPI");
  }
  own_world() = std::make_unique<World>(transport, self, rank, size);
  own_world()->set_limit(limit);
  own_world()->local_rank_ = place.local_rank;
  return own_world().get();
}

World* World::current() { return own_world().get(); }

// In place, by the thread of the steps.
template <class Exchanging>
Status World::in_step(RankGroup group, const Exchanging& exchanging) {
  const std::lock_guard lock(of_steps_);
  if (left_) return Error{Errc::interrupted, "this rank has ended"};
  settle();
  const std::int64_t start_ns = kernels::now_ns();
  Status made = recorded(false, group, exchanging);
  waited_ns_ += kernels::now_ns() - start_ns;
  return made;
}

template <class Exchanging>
Status World::recorded(bool background, RankGroup group, const Exchanging& exchanging) {
  const std::int64_t start_ns = kernels::now_ns(), sent_before = sent_bytes_;
  enter(group);
  Status made = exchanging();
  enter({});
  TRY(std::move(made));
  if (recording_) recorded_.push_back({start_ns, kernels::now_ns(), sent_bytes_ - sent_before, background});
  return {};
}

// What follows is exchanged in this rank's group.
void World::enter(RankGroup group) {
  CHECK(group.ranks >= 0 && group.stride > 0, "a group of ranks has members");
  group_ = group;
  const int block = group.ranks * group.stride;
  CHECK(block == 0 || world_size_ % block == 0, "groups of ranks are as large as each other");
  first_ = block == 0 ? 0 : world_rank_ / block * block + world_rank_ % group.stride;
  rank_ = block == 0 ? world_rank_ : world_rank_ % block / group.stride;
  size_ = block == 0 ? world_size_ : group.ranks;
}

int World::rank_at(int place) const { return first_ + place * group_.stride; }

World::World(const GradloomTransport& transport, void* self, int rank, int size)
    : transport_(transport),
      self_(self),
      world_rank_(rank),
      world_size_(size),
      rank_(rank),
      size_(size),
      ends_(static_cast<std::size_t>(size)) {
  for (int peer = 0; peer < world_size_; ++peer) {
    End& end = ends_[static_cast<std::size_t>(peer)];
    if (peer != world_rank_)
      (void)check(transport_.receive(self_, &end, End::kBytes, peer, kEndTag, &end.request));
  }
}

World::~World() {
  abandoned_ = true;
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
  transport_.close(self_);
}

void World::begin_mean(DType type, std::vector<Piece> pieces, void* workspace, RankGroup group) {
  begin({type, std::move(pieces), {}, workspace, group});
}

void World::begin_reduce(DType type, std::vector<Piece> pieces, std::vector<int> owners, void* workspace) {
  begin({type, std::move(pieces), std::move(owners), workspace, {}});
}

void World::begin_share(std::vector<Block> blocks, void* mark) {
  begin({DType::u8, {}, {}, mark, {}, std::move(blocks)});
}

void World::begin(Exchange exchange) {
  const std::lock_guard of_steps(of_steps_);
  if (left_) return;
  {
    const std::lock_guard lock(mutex_);
    begun_.push_back(std::move(exchange));
  }
  if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  changed_.notify_all();
}

void World::work() {
  kernels::NoSignals::from_now_on();  // they are for the program's own threads
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !begun_.empty(); });
    if (begun_.empty()) return;
    const Exchange& next = begun_.front();  // stays where it is: others are added behind it
    lock.unlock();
    Status made = recorded(true, next.group, [&] {
      if (!next.blocks.empty()) return share_now(next.blocks);
      return next.owners.empty() ? mean_now(next.type, next.pieces, next.workspace)
                                 : reduce_now(next.type, next.pieces, next.owners, next.workspace);
    });
    lock.lock();
    if (!made.ok() && background_.ok()) background_ = std::move(made);
    begun_.pop_front();
    changed_.notify_all();
  }
}

Status World::wait_for(const void* workspace) {
  const std::int64_t start_ns = kernels::now_ns();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return std::none_of(begun_.begin(), begun_.end(),
                        [&](const Exchange& e) { return e.workspace == workspace; });
  });
  waited_ns_ += kernels::now_ns() - start_ns;
  return background_;
}

// Until nothing is under way in the background.
void World::settle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return begun_.empty(); });
}

Status World::mean(DType type, std::span<const Piece> pieces, void* workspace, RankGroup group) {
  return in_step(group, [&] { return mean_now(type, pieces, workspace); });
}

Status World::sum(DType type, std::span<const Piece> pieces, void* workspace, RankGroup group) {
  return in_step(group, [&] {
    sums_ = true;
    Status made = mean_now(type, pieces, workspace);
    sums_ = false;
    return made;
  });
}

std::vector<World::Exchanged> World::take_recorded() { return std::exchange(recorded_, {}); }

Status World::check(int code) {
  if (code != 0 && status_.ok())
    status_ =
        Error{Errc::device, std::string(transport_.name) + ": " + escaped(transport_.message(self_, code))};
  return status_;
}

Status World::give_up(Error error) {
  if (status_.ok()) status_ = std::move(error);
  return status_;
}

void World::send(int to, int tag, const void* bytes, std::int64_t count) {
  for (std::int64_t begin = 0; begin < count && status_.ok(); begin += kMostMessageBytes) {
    Request request{.peer = rank_at(to)};
    const std::int64_t length = std::min(kMostMessageBytes, count - begin);
    if (check(transport_.send(self_, at(bytes, begin), length, request.peer, tag, &request.handle)).ok())
      requests_.push_back(request);
    sent_bytes_ += length;
  }
}

void World::receive(int from, int tag, void* bytes, std::int64_t count) {
  for (std::int64_t begin = 0; begin < count && status_.ok(); begin += kMostMessageBytes) {
    Request request{.peer = rank_at(from), .receives = true};
    const std::int64_t length = std::min(kMostMessageBytes, count - begin);
    if (check(transport_.receive(self_, at(bytes, begin), length, request.peer, tag, &request.handle)).ok())
      requests_.push_back(request);
  }
}

// Looks once at everything that is under way. True: something was done, or moves.
bool World::progress() {
  bool any = false;
  for (Request& request : requests_) {
    if (request.done) continue;
    int done = 0;
    const int code = transport_.test(self_, request.handle, &done);
    request.done = done != 0 || code != 0;
    any = any || request.done;
    if (code == GRADLOOM_TRANSPORT_GONE)
      miss(request.peer);
    else if (!check(code).ok())
      return any;
  }
  const std::int64_t before = std::exchange(carried_bytes_, transport_.carried(self_));
  return any || before != carried_bytes_;
}

// A peer whose process has ended: it may have said why.
void World::miss(int peer) {
  if (left_) return;
  hear_ends();
  const End& end = ends_[static_cast<std::size_t>(peer)];
  (void)give_up(end.heard
                    ? error_of(peer)
                    : Error{Errc::device, "rank " + std::to_string(peer) + " has ended without a word"});
}

void World::hear_ends() {
  for (int peer = 0; peer < world_size_; ++peer) {
    End& end = ends_[static_cast<std::size_t>(peer)];
    if (peer == world_rank_ || end.heard || end.gone || end.request < 0) continue;
    int done = 0;
    const int code = transport_.test(self_, end.request, &done);
    end.gone = code == GRADLOOM_TRANSPORT_GONE;
    if (!end.gone && !check(code).ok()) return;
    end.heard = done != 0;
    end.text.back() = 0;
  }
}

std::int64_t World::limit_ns() const { return std::chrono::nanoseconds(limit_).count(); }

// One that has ended well has nothing left that this one waits for.
Status World::ended_ranks() {
  const std::lock_guard lock(of_steps_);
  if (left_) return status_;
  hear_ends();
  for (int peer = 0; peer < world_size_; ++peer) {
    const End& end = ends_[static_cast<std::size_t>(peer)];
    if (peer == world_rank_ || (end.heard ? end.code == 0 : !end.gone)) continue;
    return give_up(end.heard
                       ? error_of(peer)
                       : Error{Errc::device, "rank " + std::to_string(peer) + " has ended without a word"});
  }
  return status_;
}

// Why a rank that has ended makes this one give up.
Error World::error_of(int peer) const {
  const End& end = ends_[static_cast<std::size_t>(peer)];
  const std::string name = "rank " + std::to_string(peer);
  if (end.code == 0) return {Errc::device, name + " ended before this one"};
  const Error theirs = end.status().error();
  return end.of_another != 0 ? theirs : Error{theirs.code, name + ": " + theirs.message};
}

std::string World::silent_ranks() const {
  std::vector<int> ranks;
  for (const Request& request : requests_)
    if (!request.done && request.receives) ranks.push_back(request.peer);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i) text += (i ? ", " : " ") + std::to_string(ranks[i]);
  return ranks.empty() ? "another rank" : text + (ranks.size() > 8 ? ", .." : "");
}

// Until all is done that was begun. A rank that computes with few processors shares them with those that it waits for: it looks
// without a pause for a moment, then lets others run, then sleeps.
Status World::wait(Turn turn) {
  constexpr std::int64_t kLooksNs = 20'000, kYieldsNs = 2'000'000, kStragglerNs = 50'000'000,
                         kMostLaterNs = 1'000'000'000;
  const std::int64_t later_ns = std::min(limit_ns() / 2 / turn.steps, kMostLaterNs),
                     limit_ns = this->limit_ns() + turn.step * later_ns;
  const std::int64_t start_ns = kernels::now_ns(), patience_ns = std::chrono::nanoseconds(patience_).count();
  std::int64_t heard_ns = start_ns, now_ns = start_ns;
  const auto open = [&] {
    return std::any_of(requests_.begin(), requests_.end(), [](const Request& r) { return !r.done; });
  };
  while (status_.ok() && open()) {
    const bool any = progress();
    now_ns = kernels::now_ns();
    if (any) {
      heard_ns = now_ns;
      continue;
    }
    const std::int64_t quiet_ns = now_ns - heard_ns;
    if (quiet_ns < kLooksNs) continue;
    hear_ends();
    // What an ended rank sent before may still be on its way; it takes nothing any more.
    if (quiet_ns > kStragglerNs)
      for (const Request& request : requests_)
        if (!request.done && ends_[static_cast<std::size_t>(request.peer)].heard)
          (void)give_up(error_of(request.peer));
    if (quiet_ns > kStragglerNs && turn.steps > 1)  // those that it waits for may wait for one that has ended
      for (int peer = 0; peer < world_size_; ++peer)
        if (peer != world_rank_ && ends_[static_cast<std::size_t>(peer)].heard &&
            ends_[static_cast<std::size_t>(peer)].code != 0)
          (void)give_up(error_of(peer));
    if (quiet_ns > limit_ns)
      (void)give_up({Errc::device,
                     silent_ranks() + " said nothing for " + duration_text(static_cast<double>(limit_ns))});
    if (abandoned_) (void)give_up({Errc::interrupted, "this rank has ended"});
    if (quiet_ns > patience_ns && stop_.stop_requested())
      (void)give_up({Errc::interrupted, "interrupted while " + silent_ranks() + " was waited for"});
    if (quiet_ns < kYieldsNs)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(quiet_ns < 50 * kYieldsNs ? 100 : 1000));
  }
  requests_.clear();
  if (!status_.ok())
    transport_.drop(self_, kDataTag);  // the memory of an exchange that is given up is the caller's
  return status_;
}

void World::send_range(int to, DType type, std::span<const Piece> pieces, Range range, bool sums) {
  const auto width = static_cast<std::int64_t>(dtype_bytes(type));
  for_pieces(pieces, range.begin, range.end, [&](const Piece& piece, std::int64_t begin, std::int64_t end) {
    send(to, kDataTag, at(sums ? piece.to : piece.from, begin * width), (end - begin) * width);
  });
}

void World::receive_range(int from, DType type, std::span<const Piece> pieces, Range range) {
  const auto width = static_cast<std::int64_t>(dtype_bytes(type));
  for_pieces(pieces, range.begin, range.end, [&](const Piece& piece, std::int64_t begin, std::int64_t end) {
    receive(from, kDataTag, at(piece.to, begin * width), (end - begin) * width);
  });
}

Status World::reduce(DType type, std::span<const Piece> pieces, std::span<const int> owners,
                     void* workspace) {
  return in_step({}, [&] { return reduce_now(type, pieces, owners, workspace); });
}

Status World::adasum(DType type, std::span<const Piece> pieces, void* workspace) {
  return in_step({}, [&] { return adasum_now(type, pieces, workspace); });
}

Status World::share_now(std::span<const Block> blocks) {
  for (const Block& block : blocks)
    for (int peer = 0; peer < world_size_; ++peer) {
      if (peer == world_rank_) continue;
      if (block.owner == world_rank_) send(peer, kDataTag, block.at, block.bytes);
      if (block.owner == peer) receive(peer, kDataTag, block.at, block.bytes);
    }
  return wait();
}

Status World::share(std::span<const Block> blocks) {
  return in_step({}, [&] { return share_now(blocks); });
}

Status World::share_between(const Block& block, int with) {
  settle();
  if (block.owner == world_rank_) send(with, kDataTag, block.at, block.bytes);
  if (with == world_rank_) receive(block.owner, kDataTag, block.at, block.bytes);
  return wait();
}

Result<std::vector<std::int64_t>> World::exchange(std::int64_t mine) {
  settle();
  std::vector<std::int64_t> all(static_cast<std::size_t>(world_size_), mine);
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == world_rank_) continue;
    receive(peer, kDataTag, &all[static_cast<std::size_t>(peer)], sizeof mine);
    send(peer, kDataTag, &mine, sizeof mine);
  }
  TRY(wait());
  return all;
}

Result<std::vector<World::Bytes>> World::gather(const Bytes& mine) {
  const std::vector<std::int64_t> sizes = TRY(exchange(static_cast<std::int64_t>(mine.size())));
  if (world_rank_ != 0) {
    send(0, kDataTag, mine.data(), static_cast<std::int64_t>(mine.size()));
    TRY(wait());
    return std::vector<Bytes>();
  }
  std::vector<Bytes> all{mine};
  for (int peer = 1; peer < world_size_; ++peer) {
    const std::int64_t size = sizes[static_cast<std::size_t>(peer)];
    receive(peer, kDataTag, all.emplace_back(static_cast<std::size_t>(size)).data(), size);
  }
  TRY(wait());
  return all;
}

constexpr int kClockQuestions = 8;

Result<World::Clock> World::ask_clock(int peer) {
  Clock best{0, std::numeric_limits<std::int64_t>::max()};
  for (int i = 0; i < kClockQuestions; ++i) {
    std::int64_t there_ns = 0;
    const std::int64_t asked_ns = kernels::now_ns();
    receive(peer, kDataTag, &there_ns, sizeof there_ns);
    send(peer, kDataTag, &asked_ns, sizeof asked_ns);
    TRY(wait());
    const std::int64_t half_way_ns = (kernels::now_ns() - asked_ns) / 2;
    if (half_way_ns < best.error_ns) best = {there_ns - (asked_ns + half_way_ns), half_way_ns};
  }
  return best;
}

Status World::answer_clock() {
  for (int i = 0; i < kClockQuestions; ++i) {
    std::int64_t asked_ns = 0;
    receive(0, kDataTag, &asked_ns, sizeof asked_ns);
    TRY(wait());
    const std::int64_t now_ns = kernels::now_ns();
    send(0, kDataTag, &now_ns, sizeof now_ns);
    TRY(wait());
  }
  return {};
}

Result<std::vector<World::Clock>> World::clocks(const std::string& machine) {
  const std::vector<std::int64_t> machines = TRY(exchange(static_cast<std::int64_t>(fnv1a64(machine))));
  if (world_rank_ != 0) {
    if (machines[static_cast<std::size_t>(world_rank_)] != machines[0]) TRY(answer_clock());
    return std::vector<Clock>();
  }
  std::vector<Clock> clocks(machines.size());
  for (std::size_t peer = 1; peer < machines.size(); ++peer)
    if (machines[peer] != machines[0]) clocks[peer] = TRY(ask_clock(static_cast<int>(peer)));
  return clocks;
}

Status World::leave(const Status& mine) {
  std::unique_lock of_steps(of_steps_, std::try_to_lock);
  // The steps' thread exchanges: that is not why this rank ends.
  const bool in_the_midst = !of_steps.owns_lock();
  if (in_the_midst) {
    if (!mine.ok()) abandoned_ = true;
    of_steps.lock();
  }
  if (left_.exchange(true)) return mine;
  bool failed_before = false;
  {
    const std::lock_guard lock(mutex_);
    failed_before = !in_the_midst && (begun_.empty() ? !status_.ok() : !background_.ok());
  }
  if (!mine.ok()) abandoned_ = true;
  settle();
  End& own = ends_[static_cast<std::size_t>(world_rank_)];
  own.heard = true;
  own.of_another = failed_before ? 1 : 0;
  if (!mine.ok()) {
    own.code = static_cast<std::int32_t>(mine.error().code);
    mine.error().message.copy(own.text.data(), End::kTextBytes - 1);
  }
  status_ = {};
  requests_.clear();
  // What others still send of exchanges that they do not know to be given up.
  transport_.drop(self_, kDataTag);
  for (int peer = 0; peer < world_size_; ++peer)
    if (peer != world_rank_) send(peer, kEndTag, &own, End::kBytes);
  const std::int64_t start_ns = kernels::now_ns(),
                     limit_ns = mine.ok() ? std::chrono::nanoseconds(limit_).count() : 5'000'000'000;
  const auto all_heard = [&] {
    return std::all_of(ends_.begin(), ends_.end(), [](const End& end) { return end.heard || end.gone; });
  };
  const auto all_sent = [&] {
    return std::all_of(requests_.begin(), requests_.end(), [](const Request& r) { return r.done; });
  };
  while (status_.ok() && !(all_heard() && all_sent()) && kernels::now_ns() - start_ns < limit_ns) {
    progress();
    hear_ends();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (status_.ok() && all_heard() && all_sent()) (void)check(transport_.leave(self_));
  return common_end(mine);
}

// Who has an error of its own; the lowest of them speaks. Where nobody has: one of those that gave up.
Status World::common_end(const Status& mine) const {
  const End* first = nullptr;
  int rank = 0;
  bool same = true;
  for (const bool of_another : {false, true}) {
    for (int peer = 0; peer < world_size_ && first == nullptr; ++peer) {
      const End& end = ends_[static_cast<std::size_t>(peer)];
      if (!end.heard || end.code == 0 || (end.of_another != 0) != of_another) continue;
      first = &end;
      rank = peer;
    }
  }
  if (first == nullptr) return mine;
  for (const End& end : ends_)
    same = same && (!end.heard || (end.code == first->code && end.text == first->text));
  const Error error = first->status().error();
  return same ? error : error_of(rank);
}

}  // namespace gradloom
