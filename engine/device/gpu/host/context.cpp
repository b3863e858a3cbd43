#include "engine/device/gpu/host/context.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "engine/device/gpu/host/symbols.h"

namespace gradloom::kernels::gpu::host {
namespace {

constexpr std::size_t kMostRecords = 65536, kMostActivities = 1 << 20;

thread_local std::string last_message;

GpuStatus execute_kernel(GpuContext* context, const Operation& operation) {
  if (const auto fault = run(operation.launch->get(), context->order))
    return report(context, fault->of_launch ? GPU_LAUNCH_FAILED : GPU_DEVICE_LOST, fault->text);
  if (const auto damage = context->memory.damage())
    return report(context, GPU_DEVICE_LOST, "kernel " + operation.kernel + ": " + *damage);
  return GPU_OK;
}

GpuStatus execute(GpuContext* context, const Operation& operation) {
  const std::int64_t start_ns = now_ns();
  GpuStatus status = GPU_OK;
  GpuActivityKind kind = GPU_ACTIVITY_KERNEL;
  switch (operation.kind) {
    case HOST_GPU_KERNEL: status = execute_kernel(context, operation); break;
    case HOST_GPU_COPY:
      kind = GPU_ACTIVITY_COPY;
      std::memmove(operation.target, operation.source, operation.bytes);
      break;
    case HOST_GPU_FILL:
      kind = GPU_ACTIVITY_FILL;
      std::memset(operation.target, operation.byte, operation.bytes);
      break;
    case HOST_GPU_CALL: operation.function(operation.user); return GPU_OK;
    case HOST_GPU_WAIT_EVENT: return run_until(context, operation.event, operation.serial);
    case HOST_GPU_RECORD_EVENT:
      context->events[std::size_t(operation.event)].done = operation.serial;
      context->events[std::size_t(operation.event)].time_ns = start_ns;
      return GPU_OK;
    default: return GPU_OK;
  }
  if (context->trace_level != GPU_TRACE_OFF) {
    const char* name = kind == GPU_ACTIVITY_COPY ? "copy" : "fill";
    add_activity(context,
                 {kind,
                  operation.plan_step,
                  operation.stream,
                  start_ns,
                  now_ns(),
                  std::int64_t(operation.bytes),
                  operation.correlation,
                  operation.graph_node,
                  {}},
                 kind == GPU_ACTIVITY_KERNEL ? operation.kernel : name);
  }
  return status;
}

GpuStatus run_next(GpuContext* context, std::size_t stream) {
  const Operation operation = std::move(context->queues[stream].front());
  context->queues[stream].pop_front();
  return execute(context, operation);
}

}  // namespace

GpuStatus report(GpuContext* context, GpuStatus status, const std::string& message) {
  (context != nullptr ? context->message : last_message) = message;
  if (context != nullptr && status == GPU_DEVICE_LOST) context->lost = true;
  return status;
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void add_activity(GpuContext* context, GpuActivity activity, const std::string& name) {
  if (context->activities.size() == kMostActivities) {
    ++context->lost_activities;
    return;
  }
  copy_text(activity.name, name);
  context->activities.push_back(activity);
}

const std::string& thread_message() { return last_message; }

Call::Call(GpuContext* context, const char* entry, Capture capture)
    : context_(context), entry_(entry), start_ns_(now_ns()) {
  ++context->correlation;
  if (context->lost) {
    status_ = GPU_DEVICE_LOST;  // the message of the loss stays
  } else if (const GpuStatus wanted = context->faults.call(entry); wanted != GPU_OK) {
    status_ = report(context, wanted, std::string(entry) + ": failure on demand");
  } else if (context->capturing && capture == forbidden) {
    context->capture_broken = true;
    status_ = report(context, GPU_FAILED, std::string(entry) + " is not possible while work is recorded");
  }
}
Call::~Call() {
  if (context_->trace_level != GPU_TRACE_ALL) return;
  add_activity(
      context_,
      {GPU_ACTIVITY_API, context_->plan_step, -1, start_ns_, now_ns(), 0, context_->correlation, 0, {}},
      entry_);
}

GpuStatus Call::status(int32_t stream, int32_t event) {
  if (status_ != GPU_OK || (is_stream(stream) && is_event(context_, event))) return status_;
  return report(context_, GPU_FAILED,
                std::string(entry_) + ": no stream " + std::to_string(stream) + " or no event " +
                    std::to_string(event));
}

GpuStatus run_all(GpuContext* context, std::size_t stream) {
  GpuStatus status = GPU_OK;
  while (status == GPU_OK && !context->queues[stream].empty()) status = run_next(context, stream);
  return status;
}

GpuStatus run_all(GpuContext* context) {
  GpuStatus status = GPU_OK;
  for (std::size_t stream = 0; status == GPU_OK && stream < GPU_STREAMS; ++stream)
    status = run_all(context, stream);
  return status;
}

// The record was queued before whoever waits for it, so this ends.
GpuStatus run_until(GpuContext* context, int event, std::uint64_t serial) {
  const Event& wanted = context->events[std::size_t(event)];
  GpuStatus status = GPU_OK;
  for (std::size_t stream = 0; status == GPU_OK && wanted.done < serial && stream < GPU_STREAMS; ++stream) {
    auto& queue = context->queues[stream];
    const auto is_record = [&](const Operation& o) {
      return o.kind == HOST_GPU_RECORD_EVENT && o.event == event && o.serial <= serial;
    };
    while (status == GPU_OK && wanted.done < serial && std::any_of(queue.begin(), queue.end(), is_record))
      status = run_next(context, stream);
  }
  return status;
}

void add_record(GpuContext* context, const Operation& operation) {
  HostGpuRecord record = {operation.kind,      operation.stream,          operation.event,
                          operation.plan_step, operation.graph_node != 0, operation.target,
                          operation.source,    operation.bytes,           {}};
  copy_text(record.name, operation.kernel);
  if (context->records.size() == kMostRecords) context->records.pop_front();
  context->records.push_back(record);
}

bool is_captured(const GpuContext* context, int32_t stream) {
  return context->capturing && context->capture.takes_part[std::size_t(stream)];
}

GpuStatus queue(GpuContext* context, Operation operation) {
  if (is_captured(context, operation.stream)) {
    const auto on = std::size_t(operation.stream);
    ++context->capture.knows[on][on];
    operation.correlation = 0;
    operation.graph_node = context->captured.size() + 1;
    context->captured.push_back(std::move(operation));
    return GPU_OK;
  }
  add_record(context, operation);
  const auto stream = std::size_t(operation.stream);
  context->queues[stream].push_back(std::move(operation));
  return context->lazy[stream] ? GPU_OK : run_all(context, stream);
}

Operation operation_of(GpuContext* context, HostGpuOperation kind, int stream) {
  Operation operation{kind, stream, context->plan_step};
  operation.correlation = context->correlation;
  return operation;
}

GpuStatus queue_launch(GpuContext* context, int32_t stream, const Launch& launch) {
  if (const auto fault = check(launch)) return report(context, GPU_LAUNCH_FAILED, fault->text);
  Operation operation = operation_of(context, HOST_GPU_KERNEL, stream);
  operation.launch = std::make_shared<KeptLaunch>(launch);
  operation.kernel = kernel_symbol(launch.kernel).name;
  return queue(context, std::move(operation));
}

}  // namespace gradloom::kernels::gpu::host
