// The C interface between the program and a GPU plugin (libgradloom_cuda.so, libgradloom_hip.so,
// libgradloom_hostgpu.so). A plugin exports one function, gradloom_gpu_plugin, and is loaded with
// dlopen(RTLD_LOCAL). Plain structs and function pointers only: no C++ type crosses it, no exception, and
// memory is released by the side that took it. All functions but `device_count` and `describe` are called
// from one thread per context.
//
// Every function returns a GpuStatus; when it is not GPU_OK the text of the error is in
// `gpu->message(context)` (context may be null) until the next call. After GPU_DEVICE_LOST the context takes
// no further work and the process should end (CUDA's sticky errors).
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GRADLOOM_GPU_VERSION 9

typedef enum GpuStatus {
  GPU_OK = 0,
  GPU_NO_DRIVER = 1,  // no driver, or too old for the plugin: message says what was found and what is needed
  GPU_NO_DEVICE = 2,
  GPU_UNSUPPORTED = 3,    // this device or operation is not supported by the plugin
  GPU_OUT_OF_MEMORY = 4,  // recoverable
  GPU_LAUNCH_FAILED = 5,  // invalid configuration, failed compilation or library call: recoverable
  GPU_DEVICE_LOST =
      6,  // illegal address, launch timeout, ECC error, device removed: not recoverable in this process
  GPU_NOT_READY = 7,  // from query_event: work before the event still runs
  GPU_FAILED = 8,
} GpuStatus;

typedef struct GpuContext GpuContext;  // one open device
typedef struct GpuModule GpuModule;    // compiled programs
typedef struct GpuGraph GpuGraph;      // a recorded sequence of work

typedef struct GpuDescription {
  char name[128], architecture[32];  // "NVIDIA H200", "sm_90"
  char driver[64], runtime[64];      // versions
  char libraries[512];  // optional libraries found and their versions, "cublasLt 13.1.0, cupti 13.0"; "" none
  char uuid[48];
  int64_t memory_bytes, free_bytes;
  int32_t warp_size, multiprocessors, shared_bytes_per_block, clock_khz;
} GpuDescription;

// State of the device for a run's record (NVML, rocm_smi); -1 and "" where not measured.
typedef struct GpuEnvironment {
  int32_t sm_clock_mhz, memory_clock_mhz, temperature_c, power_mw, power_limit_mw, utilization_percent,
      other_processes;
  uint64_t throttle_reasons;  // NVML clocks event reasons bits
  char throttle_text[128];    // "power cap, thermal"; "none"
} GpuEnvironment;

typedef struct GpuDim {
  uint32_t x, y, z;
} GpuDim;

typedef enum GpuActivityKind {
  GPU_ACTIVITY_KERNEL = 0,
  GPU_ACTIVITY_COPY = 1,
  GPU_ACTIVITY_FILL = 2,
  GPU_ACTIVITY_API = 3,
  GPU_ACTIVITY_LOST = 4
} GpuActivityKind;

// One finished piece of work. Times are of CLOCK_MONOTONIC in ns. plan_step: what `mark` said when it was
// queued or recorded; -1 none.
typedef struct GpuActivity {
  int32_t kind, plan_step, stream;  // kind: GpuActivityKind; LOST: `bytes` records were dropped
  int64_t start_ns, end_ns, bytes;
  uint64_t correlation;  // joins API calls with what they queued; 0 inside graphs
  uint64_t graph_node;   // 0 outside graphs
  char name[96];         // symbol, cut
} GpuActivity;

typedef enum GpuTraceLevel {
  GPU_TRACE_OFF = 0,
  GPU_TRACE_KERNELS = 1,
  GPU_TRACE_ALL = 2
} GpuTraceLevel;  // ALL: API calls too

// The algorithm with which a library is to compute one problem. problem: library and its
// version, device and shape, made by the plugin; bytes: the library's own description,
// which means something to that library only.
enum { GPU_ALGORITHM_BYTES = 64 };
typedef struct GpuAlgorithm {
  char problem[384];
  uint8_t bytes[GPU_ALGORITHM_BYTES];
  int32_t size;     // of bytes
  int64_t time_ns;  // of one run when it was found; 0: not known
} GpuAlgorithm;

// What computed the latest `run` or taken `offer` of a context. library: its name and version where a library of
// the vendor did, "" a kernel of ours. detail: the library's algorithm, or why no library computed it, in the
// library's words; all of it empty: no library has such a kernel. failed: it was work for a library that is
// missing or that failed at it.
typedef struct GpuImplementation {
  char library[64], detail[256];
  int32_t failed;
} GpuImplementation;

// What the devices of several ranks exchange by a library of theirs (NCCL). Pieces are of one type, DType of kernels/types.h. MEAN: of
// all ranks, for all; REDUCE: the same, for `root` alone, where `to` is read; SHARE: root's, for all. `together` > 1: this piece and those
// behind it, as many as there are ranks, are those of roots 0, 1, .. with as many elements each, side by side in memory (`from` of
// REDUCE, `to` of SHARE): one call may make them; the others have 0.
enum { GPU_RANKS_ID_BYTES = 128 };
typedef enum GpuExchangeKind {
  GPU_EXCHANGE_MEAN = 0,
  GPU_EXCHANGE_REDUCE = 1,
  GPU_EXCHANGE_SHARE = 2
} GpuExchangeKind;
typedef struct GpuExchangePiece {
  const void* from;
  void* to;
  int64_t count;  // elements
  int32_t root;
  int32_t together;
} GpuExchangePiece;
typedef struct GpuExchange {
  int32_t kind, dtype, piece_count;  // kind: GpuExchangeKind
  const GpuExchangePiece* pieces;
} GpuExchange;

// Stream 0 computes, stream 1 uploads, stream 2 downloads, stream 3 exchanges with other ranks. Events are small integers: those below
// GPU_EVENTS are made by open(), others by make_event.
enum {
  GPU_COMPUTE = 0,
  GPU_UPLOAD = 1,
  GPU_DOWNLOAD = 2,
  GPU_EXCHANGE = 3,
  GPU_STREAMS = 4,
  GPU_EVENTS = 64
};

typedef struct GpuPlugin {
  uint32_t version, struct_bytes;  // GRADLOOM_GPU_VERSION, sizeof(GpuPlugin)
  uint64_t kernel_abi;             // kernel_abi() of engine/device/gpu/abi.h: kernel ids and argument structs
  const char* kind;                // "cuda", "hip", "host-gpu"

  const char* (*message)(const GpuContext*);
  GpuStatus (*device_count)(int32_t* count);
  GpuStatus (*describe)(int32_t index, GpuDescription* description);
  GpuStatus (*environment)(int32_t index, GpuEnvironment* environment);
  GpuStatus (*open)(int32_t index, GpuContext** context);
  void (*close)(GpuContext*);

  // Memory. pinned: page-locked host memory. copy goes in any direction;
  // asynchronous when host memory is pinned.
  GpuStatus (*allocate)(GpuContext*, size_t bytes, int32_t pinned, void** memory);
  GpuStatus (*release)(GpuContext*, void* memory, int32_t pinned);
  GpuStatus (*copy)(GpuContext*, int32_t stream, void* target, const void* source, size_t bytes);
  GpuStatus (*fill)(GpuContext*, int32_t stream, void* target, int32_t byte, size_t bytes);

  // The host calls function(user) when all that the stream had before has run, and the stream waits until it returns. It
  // runs on any thread and calls nothing of the plugin. In a recording it is called each time that this runs.
  GpuStatus (*call_host)(GpuContext*, int32_t stream, void (*function)(void* user), void* user);

  // Ranks. ranks_library: its name and version, or in `detail` why there is none to use. Rank 0 makes an id, with which all ranks join,
  // each with a device of its own, at the same time; limit_ns: how long one waits for the others. exchange: all ranks queue the same
  // ones in the same order, whatever their streams, which have to be ordered; in a recording too. Pieces are read before it returns.
  // ranks_state: an error of exchanges that were queued. leave_ranks: what is under way is given up; may be called in any state.
  void (*ranks_library)(GpuImplementation* implementation);
  GpuStatus (*make_ranks_id)(GpuContext*, uint8_t* id);
  GpuStatus (*join_ranks)(GpuContext*, const uint8_t* id, int32_t rank, int32_t size, int64_t limit_ns);
  GpuStatus (*exchange)(GpuContext*, int32_t stream, const GpuExchange* exchange);
  GpuStatus (*ranks_state)(GpuContext*);
  void (*leave_ranks)(GpuContext*);

  // Work. run: a kernel of kernels/launcher.h by its id; args is its struct. Pointers to lists inside args
  // are read before it returns.
  GpuStatus (*run)(GpuContext*, int32_t stream, uint32_t kernel_id, const void* args, size_t args_bytes);
  // Work that only a library of the device may do (LibraryKernelId of kernels/launcher.h). taken: 1 when it
  // was queued, otherwise its results must be made by other kernels.
  GpuStatus (*offer)(GpuContext*, int32_t stream, uint32_t kernel_id, const void* args, size_t args_bytes,
                     int32_t* taken);
  void (*implementation)(const GpuContext*, GpuImplementation* implementation);
  // 1: a library of convolutions, attention and the like was found and is wanted (kernels/library_kernels.h).
  // No device is touched.
  int32_t (*has_dnn_library)(void);
  // Algorithms. tune: of what `run` would hand to a library: unless its algorithm is known, times at most
  // `candidates` on the compute stream, waits for them and keeps the fastest; results of the kernel are
  // overwritten. Nothing happens where there is no choice. set_algorithm: one that tune found in another
  // process; the library tests it before it is used, and what it does not take is as if it had not been set.
  // algorithms: what tune found or confirmed, at most `capacity` of them; count: how many there are.
  GpuStatus (*tune)(GpuContext*, uint32_t kernel_id, const void* args, size_t args_bytes, int32_t candidates);
  GpuStatus (*set_algorithm)(GpuContext*, const GpuAlgorithm* algorithm);
  GpuStatus (*algorithms)(GpuContext*, GpuAlgorithm* algorithms, int32_t capacity, int32_t* count);
  // Programs: source text of kernels/gpu/program_source.h with `count` entry points. cache_folder: where compiled
  // code may be kept; null none.
  GpuStatus (*compile)(GpuContext*, const char* source, const char* const* entries, int32_t count,
                       const char* cache_folder, GpuModule** module);
  void (*unload)(GpuContext*, GpuModule*);
  // params: the one argument, a struct of `bytes` bytes, of entry `index`.
  GpuStatus (*run_program)(GpuContext*, int32_t stream, GpuModule*, int32_t index, GpuDim grid, GpuDim block,
                           const void* params, size_t bytes);
  // Work queued until the next mark belongs to plan step `plan_step` (-1: none) of this name (NVTX,
  // roctx range; correlation).
  GpuStatus (*mark)(GpuContext*, int32_t plan_step, const char* name);

  // Order. make_event: one more event, which lives as long as the context.
  GpuStatus (*make_event)(GpuContext*, int32_t* event);
  GpuStatus (*record_event)(GpuContext*, int32_t stream, int32_t event);
  GpuStatus (*wait_event)(GpuContext*, int32_t stream, int32_t event);  // the stream waits, not the host
  GpuStatus (*query_event)(GpuContext*, int32_t event);                 // GPU_OK or GPU_NOT_READY
  GpuStatus (*synchronize_event)(GpuContext*, int32_t event);           // the host waits
  GpuStatus (*elapsed_ns)(GpuContext*, int32_t from_event, int32_t to_event, int64_t* ns);
  GpuStatus (*synchronize)(GpuContext*);  // everything; reports errors of earlier work
  // A stream that the program has from elsewhere (cudaStream_t, hipStream_t; null: the default stream). first: the compute stream waits for
  // what that stream has now, and recorded is 1 where the program records that stream: what the compute stream gets is a part of its
  // recording then. Else that stream waits for what the compute stream has, and the thread's device is again what it was when the call
  // with `first` came.
  GpuStatus (*join_stream)(GpuContext*, void* stream, int32_t first, int32_t* recorded);

  // Recording of the compute stream. Nothing runs between begin and end. Another stream belongs to the recording from when it
  // waits for an event of it that was recorded meanwhile; the compute stream must have waited for all of
  // its work at the end.
  GpuStatus (*begin_capture)(GpuContext*);
  GpuStatus (*end_capture)(GpuContext*, GpuGraph** graph);
  GpuStatus (*run_graph)(GpuContext*, GpuGraph*);
  void (*destroy_graph)(GpuContext*, GpuGraph*);

  // Profiling. read_trace hands over finished activities, at most `capacity`; flush:
  // waits for those still under way.
  GpuStatus (*set_trace)(GpuContext*, int32_t level);
  GpuStatus (*read_trace)(GpuContext*, int32_t flush, GpuActivity* activities, int32_t capacity,
                          int32_t* count);
} GpuPlugin;

// The members from `allocate` on, as functions of these names where the table is made: it has an order of its own nowhere else.
#define GRADLOOM_GPU_FUNCTIONS                                                                               \
  allocate, release, copy, fill, call_host, ranks_library, make_ranks_id, join_ranks, exchange, ranks_state, \
      leave_ranks, run, offer, implementation, has_dnn_library, tune, set_algorithm, algorithms, compile,    \
      unload, run_program, mark, make_event, record_event, wait_event, query_event, synchronize_event,       \
      elapsed_ns, synchronize, join_stream, begin_capture, end_capture, run_graph, destroy_graph, set_trace, \
      read_trace

// The plugin's table, or null when it cannot serve a program of this version. The program checks version,
// struct_bytes and kernel_abi.
typedef const GpuPlugin* (*GpuPluginFn)(uint32_t version);
#define GRADLOOM_GPU_ENTRY "gradloom_gpu_plugin"

#ifdef __cplusplus
}
#endif
