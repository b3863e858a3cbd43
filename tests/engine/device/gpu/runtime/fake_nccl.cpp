// A stand-in for NCCL between ranks that are processes or threads of one machine: it carries their numbers through a file that all map,
// and holds each call of a rank against those of the others: what, how many, of which type, from whom, in which order. What does not
// agree is an asynchronous error of all communicators, with words that tell both; nobody hangs. Work runs in its stream where the strict
// driver runs streams (tests/engine/device/gpu/driver), else at once.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/bf16.h"
#include "engine/device/gpu/runtime/nccl_api.h"
#include "tests/engine/device/gpu/driver/libraries/door.h"
#include "tests/engine/device/gpu/runtime/fake_calls.h"

using namespace gradloom::kernels::gpu;

namespace {

constexpr int kMostRanks = 8, kInvalidUsage = 5, kRemoteError = 6;
constexpr std::size_t kSlotBytes = 1 << 20;

// One call of one rank.
struct Described {
  char kind[16];
  int type, op, root;
  std::size_t count;
  bool operator==(const Described& o) const {
    return std::strcmp(kind, o.kind) == 0 && type == o.type && op == o.op && root == o.root &&
           count == o.count;
  }
  std::string text() const {
    return std::string(kind) + " of " + std::to_string(count) + " of type " + std::to_string(type) +
           ", root " + std::to_string(root);
  }
};

// In the file: zero at first.
struct Shared {
  std::atomic<int> joined, ended;  // ended: a communicator is no more
  struct Rank {
    std::atomic<std::uint64_t> written, read;  // rounds
    Described call;
    alignas(64) unsigned char bytes[kSlotBytes];
  } ranks[kMostRanks];
};

// GRADLOOM_FAKE_NCCL_FAIL: a call that fails in every process, its first time.
int failed_or(const char* name, int otherwise = 0) {
  const char* const wanted = std::getenv("GRADLOOM_FAKE_NCCL_FAIL");
  if (wanted != nullptr && std::strcmp(wanted, name) == 0 && gradloom::test::fake_calls().calls[name]++ == 0)
    return 3;
  const int status = gradloom::test::fake_calls().call(name);
  return status != 0 ? status : otherwise;
}
ncclResult_t result(int status) { return ncclResult_t(status); }

std::string path_of(const ncclUniqueId& id) { return std::string("/tmp/") + id.internal; }

// Until it is so; false: the others are gone, or did not come in ten seconds.
template <class F>
bool wait_until(const Shared& shared, const F& so) {
  const auto start = std::chrono::steady_clock::now();
  while (!so()) {
    if (shared.ended > 0 || std::chrono::steady_clock::now() - start > std::chrono::seconds(10)) return so();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

std::size_t width_of(int type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclFloat32: return 4;
    default: return 8;
  }
}

struct Bf16 {
  std::uint16_t bits;
};
float wide(Bf16 x) { return gradloom::bf16_to_f32(x.bits); }
float wide(_Float16 x) { return float(x); }
float wide(float x) { return x; }
double wide(double x) { return x; }
void set(Bf16& to, float x) { to.bits = gradloom::f32_to_bf16(x); }
template <class T, class W>
void set(T& to, W x) {
  to = T(x);
}

}  // namespace

namespace gradloom::kernels::gpu {

struct NcclComm {
  Shared* shared = nullptr;
  std::string path, words;
  int rank = 0, size = 0;
  std::uint64_t round = 0;
  std::atomic<int> error{0};

  // Each rank's part of the numbers is in its slot; all agree on what is done with them.
  template <class T>
  void average(void* to, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) {
      decltype(wide(T{})) sum = 0;
      for (int r = 0; r < size; ++r)
        sum += wide(reinterpret_cast<const T*>(shared->ranks[r].bytes)[i]) / decltype(sum)(size);
      set(static_cast<T*>(to)[i], sum);
    }
  }
  void average(int type, void* to, std::size_t count) const {
    switch (type) {
      case ncclFloat16: return average<_Float16>(to, count);
      case ncclBfloat16: return average<Bf16>(to, count);
      case ncclFloat32: return average<float>(to, count);
      default: return average<double>(to, count);
    }
  }
  void go_wrong(int status, const std::string& why) {
    if (error.exchange(status) == 0) words = why;
    shared->ended = 1;
  }
  bool meet(const Described& mine, const void* from, std::size_t bytes) {
    Shared::Rank& own = shared->ranks[rank];
    own.call = mine;
    if (from != nullptr && bytes > 0) std::memcpy(own.bytes, from, bytes);
    own.written = ++round;
    for (int r = 0; r < size; ++r) {
      if (!wait_until(*shared, [&] { return shared->ranks[r].written >= round; })) {
        go_wrong(kRemoteError, "rank " + std::to_string(r) + " does not make its " + mine.text());
        return false;
      }
      if (!(shared->ranks[r].call == mine)) {
        go_wrong(kInvalidUsage, "rank " + std::to_string(rank) + " makes " + mine.text() + ", rank " +
                                    std::to_string(r) + " " + shared->ranks[r].call.text());
        return false;
      }
    }
    return true;
  }
  bool part() {
    shared->ranks[rank].read = round;
    for (int r = 0; r < size; ++r)
      if (!wait_until(*shared, [&] { return shared->ranks[r].read >= round; })) {
        go_wrong(kRemoteError, "rank " + std::to_string(r) + " is gone");
        return false;
      }
    return true;
  }
};

}  // namespace gradloom::kernels::gpu

namespace {

struct Call {
  NcclComm* comm;
  Described what;
  const void* from;
  void* to;
  void* stream;
};
thread_local std::vector<Call> group;
thread_local int depth = 0;

// Each rank's part of what all have is averaged there; each rank's part goes to all.
void run_of_parts(const Call& call, bool scatter) {
  NcclComm& comm = *call.comm;
  const std::size_t width = width_of(call.what.type), most = kSlotBytes / width, all = call.what.count;
  const auto* const from = static_cast<const unsigned char*>(call.from);
  auto* const to = static_cast<unsigned char*>(call.to);
  for (int part = 0; part < (scatter ? comm.size : 1); ++part)
    for (std::size_t begin = 0; begin < all && comm.error == 0; begin += most) {
      const std::size_t count = std::min(most, all - begin), at = begin + std::size_t(part) * all;
      if (!comm.meet(call.what, from + at * width, count * width)) return;
      if (scatter && part == comm.rank) comm.average(call.what.type, to + begin * width, count);
      for (int r = 0; !scatter && r < comm.size; ++r)
        std::memcpy(to + (std::size_t(r) * all + begin) * width, comm.shared->ranks[r].bytes, count * width);
      if (!comm.part()) return;
    }
}

void run(const Call& call) {
  const bool scatter = std::strcmp(call.what.kind, "reduce-scatter") == 0;
  if (scatter || std::strcmp(call.what.kind, "all-gather") == 0) return run_of_parts(call, scatter);
  const std::size_t width = width_of(call.what.type), most = kSlotBytes / width;
  const bool gives = call.what.root < 0 || std::strcmp(call.what.kind, "broadcast") != 0 ||
                     call.what.root == call.comm->rank;
  const bool takes =
      call.what.root < 0 || std::strcmp(call.what.kind, "reduce") != 0 || call.what.root == call.comm->rank;
  for (std::size_t begin = 0; begin < call.what.count && call.comm->error == 0; begin += most) {
    const std::size_t count = std::min(most, call.what.count - begin);
    const auto* const from = static_cast<const unsigned char*>(call.from) + begin * width;
    auto* const to = static_cast<unsigned char*>(call.to) + begin * width;
    if (!call.comm->meet(call.what, gives ? from : nullptr, count * width)) return;
    if (takes && std::strcmp(call.what.kind, "broadcast") == 0)
      std::memcpy(to, call.comm->shared->ranks[call.what.root].bytes, count * width);
    else if (takes)
      call.comm->average(call.what.type, to, count);
    if (!call.comm->part()) return;
  }
}

ncclResult_t submit(const Call& call) {
  static const StrictDoor* const driver = gradloom::strict::find_door();
  if (driver == nullptr) {
    run(call);
    return ncclSuccess;
  }
  auto* const kept = new Call(call);
  const int refused = driver->work(
      call.stream, kept->what.kind, [](void* user) { run(*static_cast<const Call*>(user)); }, kept,
      [](void* user) { delete static_cast<Call*>(user); });
  return result(refused == 0 ? 0 : 1);
}

// GRADLOOM_FAKE_NCCL_SPOIL: what is wrong of the second call of the last rank: count, type, kind, root, or order, in which it comes after the
// third. True: it waits for that.
bool spoil_second_call(Call& call) {
  const char* const wanted = std::getenv("GRADLOOM_FAKE_NCCL_SPOIL");
  if (wanted == nullptr || call.comm->rank != call.comm->size - 1) return false;
  static int calls = 0;
  static Call late;
  const std::string what = wanted;
  if (++calls == 3 && what == "order") std::swap(call, late);
  if (calls == 3 && what == "order" && depth > 0) group.push_back(late);
  if (calls == 3 && what == "order" && depth == 0) (void)submit(late);
  if (calls != 2) return false;
  if (what == "count") call.what.count /= 2;
  if (what == "type") call.what.type = call.what.type == ncclFloat32 ? ncclBfloat16 : ncclFloat32;
  if (what == "kind") std::snprintf(call.what.kind, sizeof call.what.kind, "scan");
  if (what == "root") call.what.root = 1 - call.what.root;
  if (what == "order") late = call;
  return what == "order";
}

ncclResult_t add(const char* name, const char* kind, const void* from, void* to, std::size_t count,
                 ncclDataType_t type, int op, int root, ncclComm_t comm, void* stream) {
  if (const int status = failed_or(name); status != 0) return result(status);
  Call call{comm, {{}, type, op, root, count}, from, to, stream};
  std::snprintf(call.what.kind, sizeof call.what.kind, "%s", kind);
  if (spoil_second_call(call)) return ncclSuccess;
  if (depth == 0) return submit(call);
  group.push_back(call);
  return ncclSuccess;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED ncclResult_t ncclGetVersion(int* version) {
  // GRADLOOM_FAKE_NCCL_OLDER: the rank, as Open MPI or torchrun number it, whose library is of another version.
  const char* const older = std::getenv("GRADLOOM_FAKE_NCCL_OLDER");
  bool own = false;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "RANK"})
    if (const char* const rank = std::getenv(name))
      own = own || (older != nullptr && std::strcmp(rank, older) == 0);
  *version = own ? 29805 : 29901;
  return result(failed_or("ncclGetVersion"));
}

EXPORTED ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made{0};
  std::snprintf(id->internal, sizeof id->internal, "fake_nccl.%d.%d", int(getpid()), ++made);
  const std::string path = path_of(*id);
  (void)unlink(path.c_str());
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool sized = file >= 0 && ftruncate(file, sizeof(Shared)) == 0;
  if (file >= 0) close(file);
  return result(failed_or("ncclGetUniqueId", sized ? 0 : 2));
}

EXPORTED ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  if (const int status = failed_or("ncclCommInitRank"); status != 0) return result(status);
  const std::string path = path_of(id);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0 || ranks > kMostRanks) return result(kInvalidUsage);
  auto* const shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  close(file);
  if (shared == MAP_FAILED) return result(2);
  ++shared->joined;
  const bool all = wait_until(*shared, [&] { return shared->joined >= ranks; });
  if (rank == 0) (void)unlink(path.c_str());
  if (!all) return result(kRemoteError);
  *comm = new NcclComm;
  (*comm)->shared = shared;
  (*comm)->path = path;
  (*comm)->rank = rank;
  (*comm)->size = ranks;
  return ncclSuccess;
}

// What others still wait for never comes.
EXPORTED ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->shared->ended = 1;
  return result(failed_or("ncclCommAbort"));
}

EXPORTED ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = result(comm->error);
  return result(failed_or("ncclCommGetAsyncError"));
}

EXPORTED ncclResult_t ncclGroupStart() {
  if (const int status = failed_or("ncclGroupStart"); status != 0) return result(status);
  ++depth;
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclGroupEnd() {
  const int status = failed_or("ncclGroupEnd");
  std::vector<Call> calls;
  if (--depth == 0) calls.swap(group);
  ncclResult_t ended = result(status);
  for (const Call& call : calls)
    if (ended == ncclSuccess) ended = submit(call);
  return ended;
}

EXPORTED ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                    ncclRedOp_t op, ncclComm_t comm, void* stream) {
  return add("ncclAllReduce", "all-reduce", from, to, count, type, op, -1, comm, stream);
}
EXPORTED ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, int root, ncclComm_t comm, void* stream) {
  return add("ncclReduce", "reduce", from, to, count, type, op, root, comm, stream);
}
EXPORTED ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                    int root, ncclComm_t comm, void* stream) {
  return add("ncclBroadcast", "broadcast", from, to, count, type, 0, root, comm, stream);
}
EXPORTED ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                        ncclRedOp_t op, ncclComm_t comm, void* stream) {
  return add("ncclReduceScatter", "reduce-scatter", from, to, count, type, op, -1, comm, stream);
}
EXPORTED ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                    ncclComm_t comm, void* stream) {
  return add("ncclAllGather", "all-gather", from, to, count, type, 0, -1, comm, stream);
}

EXPORTED const char* ncclGetErrorString(ncclResult_t status) {
  return status == kInvalidUsage ? "invalid usage" : status == kRemoteError ? "remote error" : "fake error";
}
EXPORTED const char* ncclGetLastError(ncclComm_t comm) { return comm != nullptr ? comm->words.c_str() : ""; }
