// Trace files. JSON: Chrome's trace event format in Kineto's dialect (Perfetto, chrome://tracing,
// HolisticTraceAnalysis read it); CSV: one line per plan step with its statistics.
//
// Timestamps are microseconds with three decimals relative to `baseTimeNanoseconds`. Per optimizer step one X
// event "ProfilerStep#N" (user_annotation), inside it the phases, inside them one X event per kernel (cpu_op
// on the CPU, kernel on other devices, one lane per stream) with args onnx_node, scope, phase, pass_chain,
// flops, bytes, run_id. Flow arrows "fwdbwd" lead from the forward kernel of an ONNX node to its backward
// kernel. Of GPUs also copies and fills (gpu_memcpy, gpu_memset) on the lanes of their streams, the host's
// launches (cuda_runtime) on a lane of their own, and of recorded loops what the host did (cat host) on another, and arrows "ac2g" from a launch to its (first) kernel.
// Each rank of several is a process (pid: rank + 1), its exchanges (cat exchange) on a lane of their own, with what it waited for the
// last rank inside them.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "profiler/trace.h"

namespace gradloom {

std::string chrome_trace_json(const TraceDocument& document);
std::string trace_csv(const TraceDocument& document);
// Writes the file atomically: CSV when the name ends in .csv, else JSON; gzip when it ends in .gz.
Status write_trace(const TraceDocument& document, const std::string& path);

}  // namespace gradloom
