// Recordings and graphs.
#include <algorithm>
#include <functional>

#include "tests/engine/device/gpu/driver/driver.h"

namespace gradloom::strict {
namespace {

// What no path leads to from the last nodes of the stream that began: a fork that was not joined.
bool has_loose_end(const GraphNodes& nodes, const std::vector<std::size_t>& last) {
  std::vector<bool> reached(nodes.list.size(), false);
  std::vector<std::size_t> open = last;
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    open.insert(open.end(), nodes.list[node].after.begin(), nodes.list[node].after.end());
  }
  return std::find(reached.begin(), reached.end(), false) != reached.end();
}

void end_recording(const std::shared_ptr<RecordingState>& recording) {
  Driver& d = driver();
  recording->ended = true;
  d.recordings.erase(std::find(d.recordings.begin(), d.recordings.end(), recording));
  for (CUstream_st* const stream : d.streams.live()) {
    if (stream->recording != recording) continue;
    stream->recording = nullptr;
    stream->last.clear();
  }
}

}  // namespace
}  // namespace gradloom::strict

using namespace gradloom::strict;

extern "C" cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Call call("cudaStreamBeginCapture", Call::on_device);
  const cudaError_t error = call.refused() ? call.error() : call.check_stream(stream);
  if (error != cudaSuccess) return error;
  if (stream->recording != nullptr) return call.fail(cudaErrorIllegalState, "the stream is recorded already");
  stream->recording = std::make_shared<RecordingState>();
  stream->recording->mode = mode;
  stream->recording->thread = std::this_thread::get_id();
  stream->recording->origin = stream;
  stream->last.clear();
  driver().recordings.push_back(stream->recording);
  return cudaSuccess;
}

extern "C" cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Call call("cudaStreamIsCapturing", Call::on_device);
  if (!call.refused() && stream == nullptr && !driver().recordings.empty())
    return call.fail(cudaErrorStreamCaptureImplicit, "the default stream while work is recorded");
  const cudaError_t error = call.refused() ? call.error() : call.check_stream(stream);
  if (error != cudaSuccess) return error;
  *status = stream->recording == nullptr        ? cudaStreamCaptureStatusNone
            : stream->recording->broken.empty() ? cudaStreamCaptureStatusActive
                                                : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

extern "C" cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Call call("cudaStreamEndCapture", Call::on_device);
  const cudaError_t error = call.refused() ? call.error() : call.check_stream(stream);
  if (error != cudaSuccess) return error;
  *graph = nullptr;
  const auto recording = stream->recording;
  if (recording == nullptr) return call.fail(cudaErrorIllegalState, "the stream is not recorded");
  if (recording->origin != stream)
    return call.break_recording(*recording, cudaErrorStreamCaptureUnmatched,
                                "the recording began in another stream");
  if (recording->mode != cudaStreamCaptureModeRelaxed && recording->thread != std::this_thread::get_id())
    return call.fail(cudaErrorStreamCaptureWrongThread, "the recording began in another thread");
  const std::vector<std::size_t> last = stream->last;
  end_recording(recording);
  if (!recording->broken.empty())
    return call.fail(cudaErrorStreamCaptureInvalidated, "the recording is broken by " + recording->broken);
  if (has_loose_end(recording->nodes, last))
    return call.fail(cudaErrorStreamCaptureUnjoined, "a stream that was forked was not joined");
  *graph = driver().graphs.make();
  (*graph)->nodes = std::move(recording->nodes);
  return cudaSuccess;
}

extern "C" cudaError_t cudaGraphInstantiate(cudaGraphExec_t* program, cudaGraph_t graph, unsigned long long) {
  const Call call("cudaGraphInstantiate", Call::on_device | Call::unsafe | Call::allocates);
  const cudaError_t error = call.refused() ? call.error() : call.check(driver().graphs, graph, "graph");
  if (error != cudaSuccess) return error;
  if (const std::string why = gone(graph->nodes); !why.empty()) return call.fail(cudaErrorInvalidValue, why);
  *program = driver().programs.make();
  auto nodes = std::make_shared<GraphNodes>(graph->nodes);
  for (GraphNode& node : nodes->list) node.work.node = new_node(node.work.node);
  (*program)->nodes = std::move(nodes);
  return cudaSuccess;
}

extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Call call("cudaGraphDestroy", Call::on_device);
  const cudaError_t error = call.refused() ? call.error() : call.check(driver().graphs, graph, "graph");
  if (error == cudaSuccess) driver().graphs.destroy(graph);
  return error;
}

// What is queued of it still runs.
extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t program) {
  const Call call("cudaGraphExecDestroy", Call::on_device);
  const cudaError_t error =
      call.refused() ? call.error() : call.check(driver().programs, program, "executable graph");
  if (error == cudaSuccess) driver().programs.destroy(program);
  return error;
}

namespace gradloom::strict {
namespace {

cudaError_t check_launch(const Call& call, cudaGraphExec_t program, cudaStream_t stream) {
  cudaError_t error =
      call.refused() ? call.error() : call.check(driver().programs, program, "executable graph");
  if (error == cudaSuccess) error = call.check_stream(stream);
  if (error != cudaSuccess) return error;
  if (stream->recording != nullptr)
    return call.break_recording(*stream->recording, cudaErrorStreamCaptureUnsupported,
                                "a graph within a recording");
  const std::string why = gone(*program->nodes);
  return why.empty() ? cudaSuccess : call.fail(cudaErrorInvalidValue, why);
}

}  // namespace
}  // namespace gradloom::strict

extern "C" cudaError_t cudaGraphUpload(cudaGraphExec_t program, cudaStream_t stream) {
  const Call call("cudaGraphUpload", Call::on_device | Call::allocates);
  return check_launch(call, program, stream);
}

extern "C" cudaError_t cudaGraphLaunch(cudaGraphExec_t program, cudaStream_t stream) {
  const Call call("cudaGraphLaunch", Call::on_device | Call::launches);
  const cudaError_t error = check_launch(call, program, stream);
  if (error != cudaSuccess) return error;
  Work work{Work::graph};
  work.nodes = program->nodes;
  return call.submit(stream, std::move(work));
}
