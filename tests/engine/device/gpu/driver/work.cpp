// How queued work runs, and in which order.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/engine/device/gpu/driver/driver.h"

namespace gradloom::strict {
namespace {

bool copies_early() {
  const char* const set = std::getenv("GRADLOOM_STRICT_COPIES");
  return set != nullptr && std::string(set) == "early";
}

void lose(cudaError_t error) {
  Driver& d = driver();
  d.lost = error;
  for (CUstream_st* const stream : d.streams.live()) stream->queue.clear();
}

// Memory of the host that may be gone: false when it is.
bool move_bytes(void* own, const void* others, std::size_t bytes, bool to_others) {
  const iovec here{own, bytes}, there{const_cast<void*>(others), bytes};
  const ssize_t moved = to_others ? process_vm_writev(getpid(), &here, 1, &there, 1, 0)
                                  : process_vm_readv(getpid(), &here, 1, &there, 1, 0);
  return moved == ssize_t(bytes);
}

void run_copy(const Work& work) {
  const GuardedMemory& memory = driver().memory;
  for (const void* at : {static_cast<const void*>(work.target), work.source}) {
    if (const auto wrong = memory.wrong(at, work.bytes)) {
      complain("copy: " + *wrong);
      return lose(cudaErrorIllegalAddress);
    }
  }
  const void* from = work.source;
  const OpenPages target(memory, work.target, work.bytes), source(memory, work.source, work.bytes);
  std::vector<unsigned char> now;
  if (!work.before.empty()) {
    now.resize(work.bytes);
    if (!move_bytes(now.data(), work.source, work.bytes, false))
      complain("copy: its source, which is not pinned, was freed before the copy ran");
    else if (now != work.before)
      complain("copy: its source, which is not pinned, was changed before the copy ran");
    from = now.data();
  }
  if (memory.find(work.target) != nullptr)
    std::memmove(work.target, from, work.bytes);
  else if (!move_bytes(const_cast<void*>(from), work.target, work.bytes, true))
    complain("copy: its target, which is not pinned, was freed before the copy ran");
}

void run_fill(const Work& work) {
  const GuardedMemory& memory = driver().memory;
  if (const auto wrong = memory.wrong(work.target, work.bytes)) {
    complain("fill: " + *wrong);
    return lose(cudaErrorIllegalAddress);
  }
  const OpenPages target(memory, work.target, work.bytes);
  std::memset(work.target, work.byte, work.bytes);
}

void run_kernel(const Work& work) {
  if (work.module != nullptr && !work.module->alive) {
    complain("kernel " + name_of(*work.launch) + " runs after its module was unloaded");
    return lose(cudaErrorIllegalAddress);
  }
  driver().memory.open();
  if (const auto fault = run(*work.launch)) {
    complain(*fault);
    return lose(cudaErrorLaunchFailure);
  }
  if (const auto damage = driver().memory.damage()) {
    complain("kernel " + name_of(*work.launch) + ": " + *damage);
    lose(cudaErrorIllegalAddress);
  }
}

void run_library(const Work& work) {
  driver().memory.open();
  work.function(work.user);
  if (const auto damage = driver().memory.damage()) {
    complain(std::string(work.name) + ": " + *damage);
    lose(cudaErrorIllegalAddress);
  }
}

// It may touch memory of the host alone, and call nothing of the driver.
void run_host_function(const Work& work) {
  Driver& d = driver();
  d.memory.close();
  d.in_host_function = true;
  work.function(work.user);
  d.in_host_function = false;
}

void run_nodes(const Work& graph);

void run_one(const Work& work) {
  Driver& d = driver();
  if (work.kind == Work::wait) {
    (void)run_until(work.event, work.serial);
    return;
  }
  if (work.kind == Work::record) {
    work.event->done = work.serial;
    work.event->time_ns = std::chrono::steady_clock::now().time_since_epoch().count();
    return;
  }
  if (work.kind == Work::graph) return run_nodes(work);
  if (++d.counts.work == d.fail_at && d.fail_kind == "fault") return lose(cudaErrorLaunchFailure);
  if (work.kind == Work::host) return run_host_function(work);
  const std::optional<StrictWorkKind> kind = watched_kind(work);
  const bool told = d.observer != nullptr && kind && (work.told >> *kind & 1u) != 0;
  const std::uint64_t start = told ? d.observer->clock() : 0;
  d.memory.begin();
  switch (work.kind) {
    case Work::kernel: run_kernel(work); break;
    case Work::copy: run_copy(work); break;
    case Work::fill: run_fill(work); break;
    case Work::library: run_library(work); break;
    default: lose(cudaErrorLaunchFailure);  // trap
  }
  d.memory.end();
  if (!told || d.lost != cudaSuccess) return;
  const char* const name = work.launch != nullptr ? name_of(*work.launch).c_str() : work.name;
  const StrictRan ran{*kind,           name, work.bytes, work.node, start, d.observer->clock(), work.stream,
                      work.correlation};
  d.observer->ran(&ran);
}

// In an order that the nodes allow, as far from that of their making as it gets: the latest that is ready.
void run_nodes(const Work& graph) {
  constexpr std::uint32_t kStreamOfGraphs = 1u << 30;
  const GraphNodes& nodes = *graph.nodes;
  std::vector<bool> done(nodes.list.size(), false);
  for (std::size_t ran = 0; ran < done.size() && driver().lost == cudaSuccess; ++ran) {
    std::size_t next = done.size();
    while (next-- > 0) {
      const auto& after = nodes.list[next].after;
      if (!done[next] && std::all_of(after.begin(), after.end(), [&](std::size_t n) { return done[n]; }))
        break;
    }
    Work work = nodes.list[next].work;
    work.correlation = graph.correlation;
    work.told = graph.told;
    work.stream = kStreamOfGraphs;
    run_one(work);
    done[next] = true;
  }
}

void run_next(CUstream_st& stream) {
  const Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  run_one(work);
}

bool uses(const Work& work, const CUmod_st* module) {
  if (work.module == module) return true;
  return work.nodes != nullptr &&
         std::any_of(work.nodes->list.begin(), work.nodes->list.end(),
                     [&](const GraphNode& node) { return node.work.module == module; });
}

}  // namespace

cudaError_t run_all() {
  Driver& d = driver();
  d.memory.begin();
  for (CUstream_st* const stream : d.streams.live())
    while (d.lost == cudaSuccess && !stream->queue.empty()) run_next(*stream);
  d.memory.end();
  return d.lost;
}

// The record was queued before whoever waits for it, so this ends.
cudaError_t run_until(CUevent_st* event, std::uint64_t serial) {
  Driver& d = driver();
  d.memory.begin();
  const auto is_record = [&](const Work& work) {
    return work.kind == Work::record && work.event == event && work.serial <= serial;
  };
  for (CUstream_st* const stream : d.streams.live())
    while (d.lost == cudaSuccess && event->done < serial &&
           std::any_of(stream->queue.begin(), stream->queue.end(), is_record))
      run_next(*stream);
  d.memory.end();
  return d.lost;
}

void run_early() {
  if (!copies_early()) return;
  const auto may_run = [](const Work& work) {
    return work.kind == Work::copy || work.kind == Work::fill || work.kind == Work::record ||
           (work.kind == Work::wait && work.event->done >= work.serial);
  };
  Driver& d = driver();
  for (bool ran = true; ran;) {
    ran = false;
    for (CUstream_st* const stream : d.streams.live())
      while (d.lost == cudaSuccess && !stream->queue.empty() && may_run(stream->queue.front())) {
        run_next(*stream);
        ran = true;
      }
  }
}

std::optional<StrictWorkKind> watched_kind(const Work& work) {
  switch (work.kind) {
    case Work::kernel: return work.module != nullptr ? STRICT_PROGRAM : STRICT_KERNEL;
    case Work::library: return STRICT_LIBRARY_KERNEL;
    case Work::copy: return STRICT_COPY;
    case Work::fill: return STRICT_FILL;
    case Work::graph: return STRICT_GRAPH;
    default: return std::nullopt;
  }
}

bool is_queued(const CUmod_st* module) {
  for (CUstream_st* const stream : driver().streams.live())
    if (std::any_of(stream->queue.begin(), stream->queue.end(),
                    [&](const Work& work) { return uses(work, module); }))
      return true;
  return false;
}

std::string gone(const GraphNodes& nodes) {
  for (const GraphNode& node : nodes.list) {
    const Work& work = node.work;
    if (work.module != nullptr && !work.module->alive) return "a program of it was unloaded";
    for (const void* at : {static_cast<const void*>(work.target), work.source}) {
      const auto wrong = at != nullptr ? driver().memory.wrong(at, work.bytes) : std::nullopt;
      if (wrong) return *wrong;
    }
  }
  return "";
}

void launch(CUstream_st* stream, KernelPtr kernel) {
  const Call call("kernel launch", Call::on_device | Call::launches);
  if (call.refused()) return;
  if (const auto fault = launch_fault(*kernel)) {
    (void)call.fail(cudaErrorInvalidConfiguration, *fault);
    return;
  }
  (void)call.submit(stream, {Work::kernel, std::move(kernel)});
}

}  // namespace gradloom::strict

// What GRADLOOM_GPU_TRAP launches (engine/device/gpu/runtime/trap.cu).
namespace gradloom::kernels::gpu {
void queue_trap(void* stream);
void queue_trap(void* stream) {
  const strict::Call call("kernel launch", strict::Call::on_device | strict::Call::launches);
  if (!call.refused()) (void)call.submit(static_cast<CUstream_st*>(stream), {strict::Work::trap});
}
}  // namespace gradloom::kernels::gpu
