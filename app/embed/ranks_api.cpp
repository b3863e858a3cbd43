// gradloom_ranks_*: the process as one rank of a training. Once it has met the others, its jobs are theirs.
#include <mutex>
#include <stop_token>

#include "app/embed/border.h"
#include "app/embed/joined_ranks.h"
#include "app/embed/stop_flag.h"
#include "app/rank_agreement.h"
#include "engine/ranks/world.h"

using namespace gradloom;

namespace {

struct Joined {
  std::mutex mutex;  // not held while a thread meets the others, which may take as long as they do not come
  bool meeting = false;
  std::optional<RankPlace> place;
  bool left = false;
  Status end;  // how the training ended, once this rank has left
};

constexpr const char* kMeeting = "another thread of this process is meeting the other ranks";

Joined& joined() {
  static Joined one;
  return one;
}

// The thread that meets the others, while it does.
class Meets {
 public:
  explicit Meets(Joined& own) : own_(own) { own.meeting = true; }
  Meets(const Meets&) = delete;
  Meets& operator=(const Meets&) = delete;
  ~Meets() { own_.meeting = false; }

 private:
  Joined& own_;
};

// REQUIRES the lock, which is there again afterwards.
Status meet(Joined& own, std::unique_lock<std::mutex>& lock, double limit_s, const std::int32_t* stop) {
  std::optional<RankPlace> place = TRY(rank_place());
  if (place) {
    const Meets meets(own);
    const std::stop_source source;
    lock.unlock();
    Status met;
    bool joined_world = false;
    {
      const embed::StopFlag watched(stop, source);
      const auto world = World::join(
          *place, std::chrono::milliseconds(static_cast<std::int64_t>(limit_s * 1000)), source.get_token());
      joined_world = world.ok();
      met = world.ok() ? check_same_build(**world) : Status(world.error());
      if (!met.ok() && world.ok()) met = (*world)->leave(met);
    }
    lock.lock();
    if (!met.ok() && joined_world) {  // there is no other world to meet in this process
      own.place = std::move(place);
      own.left = true;
      own.end = met;
    }
    TRY(met);
  }
  own.place = std::move(place);
  return {};
}

Status join(double limit_s, const std::int32_t* stop, int* rank, int* world) {
  if (!(limit_s > 0 && limit_s <= 1e6))
    return Error{Errc::usage, "limit_s is no number of seconds from 0 to 1e6"};
  Joined& own = joined();
  std::unique_lock lock(own.mutex);
  if (own.left) return Error{Errc::usage, "this process has left the other ranks"};
  if (own.meeting) return Error{Errc::usage, kMeeting};
  if (!own.place) TRY(meet(own, lock, limit_s, stop));
  if (rank != nullptr) *rank = own.place ? own.place->rank : 0;
  if (world != nullptr) *world = own.place ? own.place->world : 1;
  return {};
}

Status share(void* data, std::int64_t bytes) {
  Joined& own = joined();
  const std::lock_guard lock(own.mutex);
  if (bytes < 0) return Error{Errc::usage, "bytes is negative"};
  if (!own.place || bytes == 0) return {};
  TRY(embed::given(data, "data"));
  if (own.left) return Error{Errc::usage, "this process has left the other ranks"};
  const World::Block block{data, bytes, 0};
  return World::current()->share({&block, 1});
}

Status leave() {
  Joined& own = joined();
  const std::lock_guard lock(own.mutex);
  if (!own.place) return {};
  if (!std::exchange(own.left, true)) own.end = World::current()->leave({});
  return std::exchange(own.end, Status());
}

}  // namespace

std::optional<RankPlace> embed::joined_place() {
  Joined& own = joined();
  const std::lock_guard lock(own.mutex);
  return own.place;
}

Status embed::has_not_left() {
  Joined& own = joined();
  const std::lock_guard lock(own.mutex);
  if (own.meeting) return Error{Errc::usage, kMeeting};
  return own.left ? Status(Error{Errc::usage, "this process has left the other ranks"}) : Status();
}

Error embed::as_end_of_rank(Error error) {
  Joined& own = joined();
  const std::lock_guard lock(own.mutex);
  if (own.place && !std::exchange(own.left, true)) own.end = World::current()->leave(error);
  return error;
}

int gradloom_ranks_join(double limit_s, const int32_t* stop, int* rank, int* world) {
  return embed::guarded(nullptr, [&] { return join(limit_s, stop, rank, world); });
}

int gradloom_ranks_share(void* data, int64_t bytes) {
  return embed::guarded(nullptr, [&] { return share(data, bytes); });
}

int gradloom_ranks_leave(void) {
  return embed::guarded(nullptr, [] { return leave(); });
}
