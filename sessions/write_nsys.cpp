#include "sessions/write_nsys.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/names.h"
#include "profiler/trace_events.h"
#include "sessions/read_nsys.h"
#include "sessions/sqlite.h"

namespace gradloom {
namespace {

constexpr const char* kTables =
    "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);"
    "CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT NOT NULL);"
    "CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);"
    "CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);"
    "CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);"
    "CREATE TABLE ANALYSIS_DETAILS (globalVid INTEGER NOT NULL, duration INTEGER NOT NULL, startTime INTEGER NOT NULL,"
    " stopTime INTEGER NOT NULL);"
    "CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL,"
    " nameEnum INTEGER NOT NULL, value TEXT NOT NULL);"
    "CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete INTEGER,"
    " l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, pwGpuId INTEGER,"
    " uuid TEXT, luid INTEGER, chipName TEXT, cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER, smMajor INTEGER,"
    " smMinor INTEGER);"
    "CREATE TABLE TARGET_INFO_CUDA_CONTEXT_INFO (nullStreamId INTEGER NOT NULL, hwId INTEGER NOT NULL, vmId INTEGER NOT NULL,"
    " processId INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, parentContextId INTEGER, isGreenContext"
    " INTEGER);"
    "CREATE TABLE TARGET_INFO_CUDA_STREAM (streamId INTEGER NOT NULL, hwId INTEGER NOT NULL, vmId INTEGER NOT NULL,"
    " processId INTEGER NOT NULL, contextId INTEGER NOT NULL, priority INTEGER NOT NULL, flag INTEGER NOT NULL);"
    "CREATE TABLE ENUM_NSYS_EVENT_TYPE (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);"
    "CREATE TABLE ENUM_NSYS_EVENT_CLASS (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);"
    "CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);"
    "CREATE TABLE ENUM_CUDA_KERNEL_LAUNCH_TYPE (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);"
    "CREATE TABLE ENUM_CUPTI_STREAM_TYPE (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);"
    "CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER PRIMARY KEY, name TEXT, label TEXT);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,"
    " shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER,"
    " gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER,"
    " dynamicSharedMemory INTEGER, localMemoryPerThread INTEGER, localMemoryTotal INTEGER, gridId INTEGER, sharedMemoryExecuted INTEGER,"
    " graphNodeId INTEGER);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL,"
    " copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER, graphNodeId INTEGER);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,"
    " contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER,"
    " bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,"
    " globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);"
    "CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,"
    " color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);"
    "INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (0, 'CUDA_MEMCPY_KIND_UNKNOWN', 'Unknown'), (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device'),"
    " (2, 'CUDA_MEMCPY_KIND_DTOH', 'Device-to-Host'), (8, 'CUDA_MEMCPY_KIND_DTOD', 'Device-to-Device');"
    "INSERT INTO ENUM_NSYS_EVENT_TYPE VALUES (59, 'NvtxPushPopRange', 'NVTX push/pop range');"
    "INSERT INTO ENUM_NSYS_EVENT_CLASS VALUES (0, 'TRACE_PROCESS_EVENT_CUDA_RUNTIME', 'CUDA runtime');"
    "INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE', 'Pageable'), (1, 'CUDA_MEMOPR_MEMORY_KIND_PINNED',"
    " 'Pinned'), (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', 'Device'), (3, 'CUDA_MEMOPR_MEMORY_KIND_ARRAY', 'Array'),"
    " (4, 'CUDA_MEMOPR_MEMORY_KIND_MANAGED', 'Managed'), (5, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC', 'Device Static'),"
    " (6, 'CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC', 'Managed Static'), (7, 'CUDA_MEMOPR_MEMORY_KIND_UNKNOWN', 'Unknown');"
    "INSERT INTO ENUM_CUDA_KERNEL_LAUNCH_TYPE VALUES (0, 'CUDA_KERNEL_LAUNCH_TYPE_UNKNOWN', 'Unknown'),"
    " (1, 'CUDA_KERNEL_LAUNCH_TYPE_REGULAR', 'Regular');"
    "INSERT INTO ENUM_CUPTI_STREAM_TYPE VALUES (0, 'CUPTI_ACTIVITY_STREAM_CREATE_FLAG_UNKNOWN', 'Unknown');"
    "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCER', 'Gradloom');";

constexpr std::int64_t kLaunching = 1, kHost = 2, kExchanging = 3;  // threads
constexpr std::int64_t kContext = 1, kPushed = 59, kRuntimeClass = 0;
constexpr std::int64_t kDeviceMemory = 2, kUnknownMemory = 7;  // ENUM_CUDA_MEM_KIND

// The integer of that name; -1: it has none.
std::int64_t argument(const TraceSlice& slice, std::string_view name) {
  for (const TraceArgument& a : slice.arguments)
    if (a.name == name) return std::get<std::int64_t>(a.value);
  return -1;
}
std::string text_argument(const TraceKernel& kernel, std::string_view name) {
  for (const TraceArgument& a : kernel.arguments)
    if (a.name == name) return std::get<std::string>(a.value);
  return "";
}

// A range of such a name says the phase of what is inside: that of a scope would say another one of its backward.
bool is_phase(std::string_view name) {
  for (const Phase phase : {Phase::forward, Phase::loss, Phase::backward, Phase::optimizer})
    if (name == phase_name(phase)) return true;
  return false;
}

class NsysWriter {
 public:
  static Result<std::unique_ptr<NsysWriter>> create(Database& database, const TraceDocument& document) {
    std::unique_ptr<NsysWriter> made(new NsysWriter(document));
    TRY(database.execute(kTables));
    made->text_ = TRY(database.prepare("INSERT INTO StringIds VALUES (?, ?)"));
    made->device_ = TRY(
        database.prepare("INSERT INTO TARGET_INFO_GPU (vmId, id, cuDevice, name) VALUES (0, ?1, ?1, ?2)"));
    made->kernel_ = TRY(database.prepare(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid,"
        " demangledName, shortName, mangledName) VALUES (?, ?, ?, ?, ?, ?, ?, ?8, ?8, ?8)"));
    made->copy_ = TRY(database.prepare(
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes,"
        " copyKind, srcKind, dstKind) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
    made->fill_ = TRY(database.prepare(
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET (start, end, deviceId, contextId, streamId, correlationId, globalPid, bytes, memKind)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 2)"));
    made->launch_ = TRY(database.prepare(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, eventClass, globalTid, correlationId, nameId, returnValue)"
        " VALUES (?, ?, ?, ?, ?, ?, 0)"));
    made->range_ = TRY(database.prepare(
        "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, textId, domainId) VALUES (?, ?, ?, ?, ?, 0)"));
    made->process_row_ = TRY(database.prepare("INSERT INTO PROCESSES VALUES (?, ?, ?)"));
    made->thread_ = TRY(database.prepare("INSERT INTO ThreadNames VALUES (?, 0, ?)"));
    made->context_ = TRY(database.prepare(
        "INSERT INTO TARGET_INFO_CUDA_CONTEXT_INFO (nullStreamId, hwId, vmId, processId, deviceId, contextId, isGreenContext)"
        " VALUES (0, 0, 0, ?, ?, ?, 0)"));
    made->stream_ = TRY(database.prepare("INSERT INTO TARGET_INFO_CUDA_STREAM VALUES (?, 0, 0, ?, ?, 0, 0)"));
    made->fact_ = TRY(database.prepare("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Gradloom', ?, 0, ?)"));
    made->span_ = TRY(database.prepare("INSERT INTO ANALYSIS_DETAILS VALUES (0, ?, ?, ?)"));
    return made;
  }

  Status write() {
    for (const auto& [name, value] : environment_)
      TRY(fact_.run({std::string_view(name), std::string_view(value)}));
    TRY(events_.each([this](const TraceGroup& group) { return write_group(group); }));
    if (first_ns_ > last_ns_) return {};
    return span_.run({last_ns_ - first_ns_, first_ns_, last_ns_});
  }

 private:
  // A call of the launching thread, with what it started.
  struct LaunchCall {
    std::int64_t start_ns = 0, end_ns = 0;
    std::string phase, scope;
    bool starts = false, mixed_phases = false, mixed_scopes = false;
    void add(const std::string& of_phase, const std::string& of_scope) {
      mixed_phases = mixed_phases || (starts && phase != of_phase);
      mixed_scopes = mixed_scopes || (starts && scope != of_scope);
      phase = of_phase;
      scope = of_scope;
      starts = true;
    }
  };

  explicit NsysWriter(const TraceDocument& document)
      : events_(document), environment_(document.environment), on_cpu_(document.device == "cpu") {}

  std::int64_t process() const { return std::int64_t{process_} << kNsysThreadBits; }
  std::int64_t device() const { return process_ - 1; }

  Result<std::int64_t> text(const std::string& value) {
    const auto [at, fresh] = texts_.try_emplace(value, static_cast<std::int64_t>(texts_.size()) + 1);
    if (fresh) TRY(text_.run({at->second, std::string_view(value)}));
    return at->second;
  }

  Status write_range(std::int64_t thread, const std::string& name, std::int64_t start_ns,
                     std::int64_t end_ns) {
    return range_.run({start_ns, end_ns, kPushed, process() + thread, TRY(text(name))});
  }

  Status write_group(const TraceGroup& group) {
    process_ = group.process;
    if (!group.process_name.empty()) TRY(name_process(group));
    calls_.clear();
    first_launch_ns_ = std::numeric_limits<std::int64_t>::max();
    for (const TraceSlice& slice : group.slices)
      if (std::string_view(slice.category) == "cuda_runtime") TRY(write_launch(slice));
    for (const TraceSlice& slice : group.slices) TRY(write_slice(slice));
    return write_call_ranges();
  }

  // Process, threads and context of a rank.
  Status name_process(const TraceGroup& group) {
    TRY(device_.run({device(), std::string_view(group.process_name)}));
    TRY(process_row_.run({process(), std::int64_t{process_}, std::string_view(group.process_name)}));
    for (const auto& [thread, called] :
         {std::pair(kLaunching, "launches"), {kHost, "host"}, {kExchanging, "exchanges"}})
      TRY(thread_.run({TRY(text(called)), process() + thread}));
    return context_.run({std::int64_t{process_}, device(), kContext});
  }

  // The stream of a slice, which is listed.
  Result<std::int64_t> stream_of(const TraceSlice& slice) {
    const std::int64_t stream = std::max<std::int64_t>(argument(slice, "stream"), 0);
    if (streams_.emplace(process_, stream).second)
      TRY(stream_.run({stream, std::int64_t{process_}, kContext}));
    return stream;
  }

  Status write_launch(const TraceSlice& slice) {
    const std::int64_t correlation = argument(slice, "correlation"),
                       end_ns = slice.start_ns + slice.duration_ns;
    if (correlation >= 0) calls_[correlation] = {slice.start_ns, end_ns};
    first_launch_ns_ = std::min(first_launch_ns_, slice.start_ns);
    return launch_.run({slice.start_ns, end_ns, kRuntimeClass, process() + kLaunching,
                        correlation >= 0 ? Cell(correlation) : Cell(nullptr), TRY(text(slice.name))});
  }

  Status write_slice(const TraceSlice& slice) {
    const std::string_view category = slice.category;
    const std::int64_t end_ns = slice.start_ns + slice.duration_ns;
    first_ns_ = std::min(first_ns_, slice.start_ns);
    last_ns_ = std::max(last_ns_, end_ns);
    const bool step = category == "user_annotation" && slice.name.starts_with("ProfilerStep#");
    if (slice.kernel >= 0) return write_kernel(slice);
    if (step)  // of the launching thread, which is ahead of the device
      return write_range(kLaunching, slice.name, std::min(slice.start_ns, first_launch_ns_), end_ns);
    if (category == "host") return write_range(kHost, "host: " + slice.name, slice.start_ns, end_ns);
    if (category == "exchange") return write_range(kExchanging, slice.name, slice.start_ns, end_ns);
    if (category == "gpu_memcpy" || category == "gpu_memset") return write_transfer(slice);
    if (category != "kernel") return {};  // phases are written around the launches
    return kernel_.run({slice.start_ns, end_ns, device(), kContext, TRY(stream_of(slice)), nullptr, process(),
                        TRY(text(slice.name))});
  }

  Status write_kernel(const TraceSlice& slice) {
    const TraceKernel& kernel = events_.kernels()[static_cast<std::size_t>(slice.kernel)];
    const std::int64_t own = argument(slice, "correlation"), end_ns = slice.start_ns + slice.duration_ns;
    std::int64_t correlation = own;
    if (on_cpu_) {
      calls_[own] = {slice.start_ns, end_ns};
      TRY(launch_.run(
          {slice.start_ns, slice.start_ns, kRuntimeClass, process() + kLaunching, own, TRY(text("call"))}));
    } else if (const auto after = calls_.upper_bound(own); after != calls_.begin()) {
      correlation = std::prev(after)->first;  // launches count up: of a recorded step the last one before
    }
    if (const auto call = calls_.find(correlation); call != calls_.end())
      call->second.add(text_argument(kernel, "phase"), text_argument(kernel, "scope"));
    const std::string name = text_argument(kernel, "kernel");
    return kernel_.run({slice.start_ns, end_ns, device(), kContext, TRY(stream_of(slice)), correlation,
                        process(), TRY(text(name.empty() ? "kernel" : name))});
  }

  // Stream 1 uploads and 2 downloads; else the direction is not known.
  Status write_transfer(const TraceSlice& slice) {
    const std::int64_t stream = TRY(stream_of(slice)), bytes = argument(slice, "bytes"),
                       end_ns = slice.start_ns + slice.duration_ns;
    if (std::string_view(slice.category) == "gpu_memset")
      return fill_.run({slice.start_ns, end_ns, device(), kContext, stream, nullptr, process(), bytes});
    const std::int64_t kind = stream == 1 || stream == 2 ? stream : 0;
    return copy_.run({slice.start_ns, end_ns, device(), kContext, stream, nullptr, process(), bytes, kind,
                      kind == 2 ? kDeviceMemory : kUnknownMemory,
                      kind == 1 ? kDeviceMemory : kUnknownMemory});
  }

  // Around neighbours of one phase, and in it of one scope.
  Status write_call_ranges() {
    std::vector<const LaunchCall*> calls;
    for (const auto& [correlation, call] : calls_)
      if (call.starts && !call.mixed_phases) calls.push_back(&call);
    std::stable_sort(calls.begin(), calls.end(),
                     [](const LaunchCall* a, const LaunchCall* b) { return a->start_ns < b->start_ns; });
    // A range ends behind its last call, but before the next one begins: those of a thread lie inside or beside one another.
    const auto end_of = [&](std::size_t last) {
      const std::int64_t end_ns = calls[last]->end_ns + (on_cpu_ ? 0 : 1);
      return last + 1 < calls.size() ? std::clamp(calls[last + 1]->start_ns, calls[last]->start_ns, end_ns)
                                     : end_ns;
    };
    for (std::size_t i = 0, j = 0; i < calls.size(); i = j) {
      while (j < calls.size() && calls[j]->phase == calls[i]->phase) ++j;
      const std::string& phase = calls[i]->phase;
      if (!phase.empty()) TRY(write_range(kLaunching, phase, calls[i]->start_ns, end_of(j - 1)));
      for (std::size_t k = i, l = i; k < j; k = l) {
        const auto alike = [&](const LaunchCall* call) {
          return call->scope == calls[k]->scope && call->mixed_scopes == calls[k]->mixed_scopes;
        };
        while (l < j && alike(calls[l])) ++l;
        if (!calls[k]->scope.empty() && !calls[k]->mixed_scopes && !is_phase(calls[k]->scope))
          TRY(write_range(kLaunching, calls[k]->scope, calls[k]->start_ns, end_of(l - 1)));
      }
    }
    return {};
  }

  TraceEvents events_;
  const std::map<std::string, std::string>& environment_;
  bool on_cpu_;
  std::set<std::pair<std::int32_t, std::int64_t>> streams_;  // of processes
  std::int64_t first_ns_ = std::numeric_limits<std::int64_t>::max(), last_ns_ = 0;
  std::int32_t process_ = 1;
  std::int64_t first_launch_ns_ = 0;  // of the group
  NameMap<std::int64_t> texts_;
  std::map<std::int64_t, LaunchCall> calls_;  // of the group, by correlation
  Statement text_, device_, kernel_, copy_, fill_, launch_, range_, process_row_, thread_, context_, stream_,
      fact_, span_;
};

}  // namespace

Status write_nsys_export(const TraceDocument& document, const std::string& path) {
  Database database = TRY(Database::open(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  {
    Transaction all = TRY(Transaction::begin(database, true));
    const std::unique_ptr<NsysWriter> writer = TRY(NsysWriter::create(database, document));
    TRY(writer->write());
    TRY(all.commit());
  }
  sqlite3_int64 bytes = 0;
  const std::unique_ptr<unsigned char, void (*)(void*)> file(
      sqlite3_serialize(database.handle(), "main", &bytes, 0), sqlite3_free);
  if (!file) return Error{Errc::limit, "out of memory: the file has " + std::to_string(bytes) + " bytes"};
  return atomic_write_file(path,
                           {reinterpret_cast<const char*>(file.get()), static_cast<std::size_t>(bytes)});
}

}  // namespace gradloom
