#include "engine/device/gpu/runtime/context.h"

namespace gradloom::kernels::gpu {
namespace {

thread_local std::string thread_message;

}  // namespace

GpuStatus report(GpuContext* context, GpuStatus status, const std::string& message) {
  (context != nullptr ? context->message : thread_message) = message;
  if (context != nullptr && status == GPU_DEVICE_LOST) context->lost = true;
  return status;
}

GpuStatus report(GpuContext* context, Error error, const std::string& what) {
  (void)GPU(GetLastError)();  // an error that is not sticky must not show in the next call
  return report(context, status_of(int(error)),
                what + ": " + GPU(GetErrorString)(error) + " (" + GPU(GetErrorName)(error) + ")");
}

const char* message_of(const GpuContext* context) {
  return context != nullptr ? context->message.c_str() : thread_message.c_str();
}

GpuStatus enter(GpuContext* context) {
  if (context->lost) return GPU_DEVICE_LOST;  // the message of the loss stays
  return check(context, GPU(SetDevice)(context->device), "select device");
}

}  // namespace gradloom::kernels::gpu
