// Chrome's trace event format in Kineto's dialect: Perfetto, chrome://tracing, HolisticTraceAnalysis read it.
//
// Timestamps are microseconds with three decimals relative to `baseTimeNanoseconds`. What there is to see is said in trace_events.h: slices
// are X events (their lane is the tid, their process the pid), of the categories user_annotation (steps, phases), cpu_op or kernel with args
// onnx_node, scope, phase, pass_chain, flops, bytes, run_id, gpu_memcpy and gpu_memset, cuda_runtime (launches), exchange, host.
#pragma once

#include <string>

#include "profiler/trace_events.h"

namespace gradloom {

Status write_chrome_trace(const TraceDocument& document, const TraceSink& sink);
std::string chrome_trace_json(const TraceDocument& document);

}  // namespace gradloom
