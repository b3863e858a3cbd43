#include "engine/device/host_calls.h"

#include "engine/base/text.h"

namespace gradloom {

GpuStatus HostCall::queue(const GpuPlugin& api, GpuContext* context, std::int32_t stream,
                          const Operands& operands, std::int32_t plan_step) {
  plan_step_ = plan_step;
  stream_ = stream;
  GpuStatus status = GPU_OK;
  for (const HostWork::Copy& copy : work_.down)
    if (status == GPU_OK)
      status = api.copy(context, stream, memory_.get() + copy.at, operands.inputs[copy.operand],
                        static_cast<std::size_t>(copy.bytes));
  if (status == GPU_OK) status = api.call_host(context, stream, &HostCall::run, this);
  for (const HostWork::Copy& copy : work_.up)
    if (status == GPU_OK)
      status = api.copy(context, stream, operands.outputs[copy.operand], memory_.get() + copy.at,
                        static_cast<std::size_t>(copy.bytes));
  return status;
}

bool HostCall::by_library() const {
  return calls_.library_ && work_.on_device.kind != DeviceExchange::Kind::none;
}

GpuStatus HostCall::queue_by_library(const GpuPlugin& api, GpuContext* context, std::int32_t stream,
                                     const Operands& operands) const {
  const DeviceExchange& exchange = work_.on_device;
  std::vector<GpuExchangePiece> pieces;
  for (const DeviceExchange::Piece& piece : exchange.pieces)
    pieces.push_back({static_cast<const std::byte*>(operands.inputs[piece.input]) + piece.input_begin,
                      piece.has_output
                          ? static_cast<std::byte*>(operands.outputs[piece.output]) + piece.output_begin
                          : nullptr,
                      piece.count, piece.owner, piece.together});
  const GpuExchange wanted{exchange.kind == DeviceExchange::Kind::mean     ? GPU_EXCHANGE_MEAN
                           : exchange.kind == DeviceExchange::Kind::reduce ? GPU_EXCHANGE_REDUCE
                                                                           : GPU_EXCHANGE_SHARE,
                           static_cast<std::int32_t>(exchange.type), static_cast<std::int32_t>(pieces.size()),
                           pieces.data()};
  return api.exchange(context, stream, &wanted);
}

void HostCall::run(void* self) {
  HostCall& call = *static_cast<HostCall*>(self);
  if (call.calls_.has_failed()) return;
  const std::int64_t start_ns = monotonic_ns();
  Status done = call.work_.run(call.memory_.get());
  const std::lock_guard lock(call.calls_.mutex_);
  if (!done.ok()) {
    call.calls_.failed_ = true;
    call.calls_.failure_ = std::move(done);
  }
  if (!call.calls_.traced_) return;
  std::int64_t bytes = 0;
  for (const HostWork::Copy& copy : call.work_.down) bytes += copy.bytes;
  call.calls_.activities_.push_back({Activity::Kind::kernel, call.plan_step_, call.stream_, start_ns,
                                     monotonic_ns(), bytes, call.name_ + " on the host"});
}

bool HostCalls::has_failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

Status HostCalls::take_failure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(failure_, {});
}

void HostCalls::trace(bool on) {
  const std::lock_guard lock(mutex_);
  traced_ = on;
}

std::vector<Activity> HostCalls::take_activities() {
  const std::lock_guard lock(mutex_);
  return std::exchange(activities_, {});
}

}  // namespace gradloom
