#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "engine/device/gpu/runtime/library.h"
#include "engine/device/gpu/runtime/names.h"
#include "engine/device/gpu/runtime/nccl_api.h"
#include "engine/device/gpu/runtime/ranks_library.h"
#include "kernels/types.h"

namespace gradloom::kernels::gpu {
namespace {

#if defined(GRADLOOM_HIP)
constexpr const char* kRanksLibrary = "rccl";
#else
constexpr const char* kRanksLibrary = "nccl";
#endif
constexpr int kOldest = 21000;  // the first with ncclAvg

struct NcclLibrary {
#if defined(GRADLOOM_HIP)
  Library library{"librccl.so.1"};
#else
  Library library{"libnccl.so.2"};
#endif
  NcclGetVersion* get_version = nullptr;
  NcclGetUniqueId* get_id = nullptr;
  NcclCommInitRank* init_rank = nullptr;
  NcclCommAbort* abort = nullptr;
  NcclCommGetAsyncError* async_error = nullptr;
  NcclAllReduce* all_reduce = nullptr;
  NcclReduce* reduce = nullptr;
  NcclBroadcast* broadcast = nullptr;
  NcclReduceScatter* reduce_scatter = nullptr;
  NcclAllGather* all_gather = nullptr;
  NcclGroup *start = nullptr, *end = nullptr;
  NcclGetErrorString* error_text = nullptr;
  NcclGetLastError* last_error = nullptr;  // since 2.13; may be missing
  int version = 0;                         // 22809; 0: it is not ready

  NcclLibrary() {
    const bool ready =
        library && library.bind(get_version, "ncclGetVersion") && library.bind(get_id, "ncclGetUniqueId") &&
        library.bind(init_rank, "ncclCommInitRank") && library.bind(abort, "ncclCommAbort") &&
        library.bind(async_error, "ncclCommGetAsyncError") && library.bind(all_reduce, "ncclAllReduce") &&
        library.bind(reduce, "ncclReduce") && library.bind(broadcast, "ncclBroadcast") &&
        library.bind(reduce_scatter, "ncclReduceScatter") && library.bind(all_gather, "ncclAllGather") &&
        library.bind(start, "ncclGroupStart") && library.bind(end, "ncclGroupEnd") &&
        library.bind(error_text, "ncclGetErrorString");
    if (!ready || get_version(&version) != ncclSuccess || version < kOldest) version = 0;
    if (ready) last_error = reinterpret_cast<NcclGetLastError*>(library.symbol("ncclGetLastError"));
  }
};

const NcclLibrary& nccl() {
  static const NcclLibrary library;
  return library;
}

Answer nccl_failed(const char* call, ncclResult_t result, ncclComm_t comm) {
  std::string text = std::string(call) + ": " + nccl().error_text(result);
  const char* const more = nccl().last_error != nullptr ? nccl().last_error(comm) : nullptr;
  if (more != nullptr && more[0] != 0) text += std::string(" (") + more + ")";
  return failed(text);
}

// False: it exchanges no such numbers.
bool nccl_type(std::int32_t dtype, ncclDataType_t* type) {
  switch (DType(dtype)) {
    case DType::f16: *type = ncclFloat16; return true;
    case DType::bf16: *type = ncclBfloat16; return true;
    case DType::f32: *type = ncclFloat32; return true;
    case DType::f64: *type = ncclFloat64; return true;
    case DType::u8: *type = ncclUint8; return true;
    default: return false;
  }
}

ncclResult_t queue_piece(ncclComm_t comm, const GpuExchange& exchange, const GpuExchangePiece& piece,
                         ncclDataType_t type, void* stream) {
  const auto count = std::size_t(piece.count);
  switch (exchange.kind) {
    case GPU_EXCHANGE_MEAN:
      return nccl().all_reduce(piece.from, piece.to, count, type, ncclAvg, comm, stream);
    case GPU_EXCHANGE_REDUCE:
      return nccl().reduce(piece.from, piece.to, count, type, ncclAvg, piece.root, comm, stream);
    default: return nccl().broadcast(piece.from, piece.to, count, type, piece.root, comm, stream);
  }
}

// Of a tensor of which every rank owns as much; `rank`: this one.
ncclResult_t queue_pieces_together(ncclComm_t comm, int rank, const GpuExchange& exchange,
                                   const GpuExchangePiece* pieces, ncclDataType_t type, void* stream) {
  const auto each = std::size_t(pieces[0].count);
  if (exchange.kind == GPU_EXCHANGE_REDUCE)
    return nccl().reduce_scatter(pieces[0].from, pieces[rank].to, each, type, ncclAvg, comm, stream);
  return nccl().all_gather(pieces[rank].from, pieces[0].to, each, type, comm, stream);
}

// Shared with the thread that joins: it may stay when nobody waits for it any more.
struct Joining {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false, left = false;
  ncclResult_t result{};
  ncclComm_t comm = nullptr;
};

void join_in_thread(const std::shared_ptr<Joining>& joining, const ncclUniqueId& id, int device, int rank,
                    int size) {
  ncclComm_t comm = nullptr;
  (void)GPU(SetDevice)(device);
  const ncclResult_t result = nccl().init_rank(&comm, size, id, rank);
  const std::lock_guard lock(joining->mutex);
  joining->result = result;
  joining->comm = comm;
  joining->done = true;
  joining->changed.notify_all();
  if (joining->left && result == ncclSuccess) (void)nccl().abort(comm);
}

}  // namespace

class RanksLibrary {
 public:
  RanksLibrary(ncclComm_t comm, int rank) : comm_(comm), rank_(rank) {}
  RanksLibrary(const RanksLibrary&) = delete;
  RanksLibrary& operator=(const RanksLibrary&) = delete;
  ~RanksLibrary() { (void)nccl().abort(comm_); }

  Answer run(const GpuExchange& exchange, void* stream) {
    ncclDataType_t type{};
    if (!nccl_type(exchange.dtype, &type)) return failed("numbers that the library does not exchange");
    ncclResult_t result = nccl().start();
    if (result != ncclSuccess) return nccl_failed("ncclGroupStart", result, comm_);
    bool together = false;
    for (std::int32_t i = 0; i < exchange.piece_count && result == ncclSuccess; ++i) {
      const GpuExchangePiece* const piece = exchange.pieces + i;
      if (piece->count == 0 || piece->together == 0) continue;
      together = together || piece->together > 1;
      result = piece->together > 1 ? queue_pieces_together(comm_, rank_, exchange, piece, type, stream)
                                   : queue_piece(comm_, exchange, *piece, type, stream);
    }
    const ncclResult_t ended = nccl().end();
    if (result != ncclSuccess) return nccl_failed("exchange", result, comm_);
    if (ended != ncclSuccess) return nccl_failed("ncclGroupEnd", ended, comm_);
    return taken_by(exchange.kind == GPU_EXCHANGE_MEAN     ? "all-reduce"
                    : exchange.kind == GPU_EXCHANGE_REDUCE ? together ? "reduce-scatter" : "reduce to owners"
                    : together                             ? "all-gather"
                                                           : "broadcast by owners");
  }

  Answer state() {
    ncclResult_t error{};
    const ncclResult_t asked = nccl().async_error(comm_, &error);
    if (asked != ncclSuccess) return nccl_failed("ncclCommGetAsyncError", asked, comm_);
    return error == ncclSuccess ? taken_by("") : nccl_failed("exchange", error, comm_);
  }

 private:
  const ncclComm_t comm_;
  const int rank_;
};

void CloseRanksLibrary::operator()(RanksLibrary* library) const { delete library; }

std::string ranks_library_version(Answer* why) {
  *why = refused("GRADLOOM_NCCL=0");
  if (!switched("GRADLOOM_NCCL", true)) return "";
  *why = failed(nccl().library ? std::string(kRanksLibrary) + " is too old or lacks functions"
                               : nccl().library.error());
  const int version = nccl().version;
  if (version == 0) return "";
  return std::string(kRanksLibrary) + " " + std::to_string(version / 10000) + "." +
         std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

Answer new_ranks_id(std::uint8_t* id) {
  ncclUniqueId made{};
  static_assert(sizeof made == GPU_RANKS_ID_BYTES);
  const ncclResult_t result = nccl().get_id(&made);
  if (result != ncclSuccess) return nccl_failed("ncclGetUniqueId", result, nullptr);
  std::memcpy(id, &made, sizeof made);
  return taken_by("");
}

RanksLibraryPtr open_ranks(const std::uint8_t* id, int device, int rank, int size, std::int64_t limit_ns,
                           Answer* why) {
  ncclUniqueId own;
  std::memcpy(&own, id, sizeof own);
  const auto joining = std::make_shared<Joining>();
  std::thread([=] { join_in_thread(joining, own, device, rank, size); }).detach();
  std::unique_lock lock(joining->mutex);
  joining->changed.wait_for(lock, std::chrono::nanoseconds(limit_ns), [&] { return joining->done; });
  joining->left = !joining->done;
  if (!joining->done) *why = failed("the other ranks did not come to ncclCommInitRank");
  if (joining->done && joining->result != ncclSuccess)
    *why = nccl_failed("ncclCommInitRank", joining->result, nullptr);
  const bool joined = joining->done && joining->result == ncclSuccess;
  return RanksLibraryPtr(joined ? new RanksLibrary(joining->comm, rank) : nullptr);
}

Answer run_exchange(RanksLibrary& library, const GpuExchange& exchange, void* stream) {
  return library.run(exchange, stream);
}

Answer exchanges_state(RanksLibrary& library) { return library.state(); }

}  // namespace gradloom::kernels::gpu
