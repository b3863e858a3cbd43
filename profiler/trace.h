// Trace: one row per kernel execution, keyed by the plan step that caused it,
// and the document that trace writers take.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/plan/plan.h"
#include "engine/run/executor.h"
#include "profiler/host_spans.h"

namespace gradloom {

struct TraceRow {
  std::int64_t start_ns = 0, duration_ns = 0;  // monotonic clock
  std::int32_t stream = 0;
  std::int32_t plan_step = 0;    // index into Plan::steps
  std::int64_t correlation = 0;  // unique per launch in a run; counts up in launch order
  std::int64_t bytes = 0;        // read and written, as the operator's cost function says
  std::int64_t step = 0;         // optimizer step, 1-based
  std::int32_t micro = 0;        // micro-batch within the step
  std::int32_t rank = 0;         // of a training by several
};

// What one thread of the CPU did of a kernel: from its first part to its last, and how long it had some. Thread 0 begins every kernel, and
// waits for the parts of others when it is not busy.
struct TraceThread {
  std::int32_t thread = 0, plan_step = 0, micro = 0;
  std::int64_t step = 0;
  std::int64_t start_ns = 0, duration_ns = 0, busy_ns = 0;
};

// A rank of a training by several.
struct TraceRank {
  std::string host;  // name of its machine
};
// A mean over the ranks, as one of them took part in it: first it waited until the last rank was ready.
struct TraceExchange {
  std::int32_t rank = 0, plan_step = 0, micro = 0;  // of the kernel that made or began it
  std::int64_t step = 0;
  std::int64_t start_ns = 0, duration_ns = 0, wait_ns = 0, sent_bytes = 0;
};

// What else the device did in a timed step: copies and fills, kernels that belong to no plan
// step, and the host's launches.
struct TraceActivity {
  Activity::Kind kind = Activity::Kind::copy;  // api: a launch by the host
  std::int32_t stream = -1;                    // of the device; -1: the host
  std::int32_t plan_step = -1;  // that it is part of or launches (a recorded step: the first one); -1: none
  std::int32_t micro = 0;
  std::int64_t step = 0;
  std::int64_t start_ns = 0, duration_ns = 0, bytes = 0;
  std::string name;
};
const char* activity_name(Activity::Kind kind);  // as stored: kernel, copy, fill, launch
// "stream 1 (upload)"; -1: "CPU launches". Of a run whose environment says what its streams were, as that of another profiler's
// trace does (kTraceStream): "stream 4 (thread 7/9)".
std::string stream_name(std::int32_t stream, const std::map<std::string, std::string>& environment = {});
constexpr const char* kTraceStream = "trace.stream_";  // and the number

// One optimizer step on the clock of its rows.
struct TraceStep {
  std::int64_t step = 0, start_ns = 0, duration_ns = 0;
};

// What is known of one plan step without running it: its kernel, its node and where the node comes from.
struct KernelInfo {
  std::int32_t plan_step = 0;
  // phase: forward, loss, backward, optimizer; passes: as passes_text gives them, empty when not
  // rewritten.
  std::string kernel, node, op, phase, scope, passes;
  std::string types;                    // of its results, as result_types gives them
  std::vector<std::string> onnx_nodes;  // names of the ONNX nodes it stands for
  std::vector<std::uint32_t> sources;   // their indices in Graph::sources
  std::int32_t stream = 0;
  double flops = 0, bytes_read = 0, bytes_written = 0;
  std::vector<LaunchKind> launches;  // of a plan for a GPU (PlanStep::launches); a recorded run has none
  std::string implementation;        // implementation_text of a run on a GPU; else empty
  bool library_failed = false;       // of one of them
};
// "gemm: cublasLt 13.1.0 (algorithm 66, tile 20)", "gemm: our own (cublasLt 13.1.0: it has no such epilogue)".
std::string implementation_text(const Implementations& implementations);
std::string result_types(const Graph& graph, const Node& node);              // "f32[8, 64, 128] i64[8]"
std::vector<KernelInfo> kernel_infos(const Graph& graph, const Plan& plan);  // one per plan step, in order

// Executor samples of one optimizer step -> rows, appended; correlation ids go on from `rows.size()`.
void append_samples(const std::vector<KernelSample>& samples, const std::vector<KernelInfo>& kernels,
                    std::int64_t step, std::vector<TraceRow>& rows, std::int32_t rank = 0);
TraceActivity trace_activity(const Activity& activity, std::int64_t step);

// Everything a trace file holds.
struct TraceDocument {
  std::int64_t run_id = 0;
  std::string model, device = "cpu";
  std::map<std::string, std::string> environment;
  std::vector<KernelInfo> kernels;        // by plan step
  std::vector<TraceStep> steps;           // timed optimizer steps
  std::int64_t steps_left_out = 0;        // later ones, for which the document has no room
  std::vector<TraceRow> rows;             // of the only rank, or of `rank`
  std::vector<TraceActivity> activities;  // GPUs only
  std::vector<TraceThread> threads;       // CPU: of `rows` that several computed; later steps may lack theirs
  std::int32_t rank = 0;
  std::vector<TraceRank> ranks;          // of several, else none
  std::vector<TraceRow> other_ranks;     // rows of the others
  std::vector<TraceExchange> exchanges;  // of all
  std::vector<HostSpan> host;            // recorded loops only: of `steps`, step after step
  std::vector<std::int64_t> live_bytes;  // of the arena, by plan step; may be empty
};
// The part of one rank, which must be among `ranks`.
TraceDocument of_rank(TraceDocument document, std::int32_t rank);

}  // namespace gradloom
