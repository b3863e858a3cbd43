// What the stand-ins of the device's libraries ask of the driver (control.h).
#include "tests/engine/device/gpu/driver/driver.h"

namespace gradloom::strict {
namespace {

// Libraries have a runtime of their own: what fails in it is not the last error of ours.
class OwnError {
 public:
  OwnError() : before_(take_last_error()) {}
  ~OwnError() { set_last_error(before_); }
  OwnError(const OwnError&) = delete;
  OwnError& operator=(const OwnError&) = delete;

 private:
  cudaError_t before_;
};

int begin(const char* name, int rules) {
  const OwnError own;
  const Call call(name, (rules & STRICT_ALLOCATES) != 0 ? Call::on_device | Call::unsafe | Call::allocates
                                                        : unsigned{Call::anywhere});
  Driver& d = driver();
  const bool due = ++d.calls_by_name[name] == d.fail_at && d.fail_kind == name;
  if (due) return d.fail_status > 0 ? int(d.fail_status) : STRICT_FAILS;
  if (!call.refused()) return STRICT_OK;
  if (d.lost != cudaSuccess) return STRICT_LOST;
  return call.error() == cudaErrorMemoryAllocation ? STRICT_NO_MEMORY : STRICT_REFUSED;
}

void complain_of(const char* what) {
  const std::lock_guard lock(driver().mutex);
  complain(what);
}

const char* wrong(const void* at, std::size_t bytes) {
  thread_local std::string text;
  const std::lock_guard lock(driver().mutex);
  const GuardedMemory& memory = driver().memory;
  const auto why = memory.wrong(at, bytes);
  text = why ? *why : memory.find(at) == nullptr ? "it is not memory of the device" : "";
  return text.empty() ? nullptr : text.c_str();
}

void hold(const char* what, int count) {
  const std::lock_guard lock(driver().mutex);
  driver().holds_by_name[what] += count;
}

int work(void* stream, const char* name, void (*function)(void*), void* user, void (*release)(void*)) {
  const OwnError own;
  Work made{Work::library};
  made.function = function;
  made.user = user;
  made.name = name;
  made.owned = std::shared_ptr<void>(user, release);
  const Call call(name, Call::on_device | Call::launches);
  if (call.refused()) return int(call.error());
  return int(call.submit(static_cast<CUstream_st*>(stream), std::move(made)));
}

void observe(const StrictObserver* observer) {
  const std::lock_guard lock(driver().mutex);
  driver().observer = observer;
}

std::uint32_t stream_id(const void* stream) {
  const std::lock_guard lock(driver().mutex);
  return stream_number(static_cast<const CUstream_st*>(stream));
}

}  // namespace
}  // namespace gradloom::strict

extern "C" __attribute__((visibility("default"))) const StrictDoor* strict_door() {
  using namespace gradloom::strict;
  static constexpr StrictDoor kDoor{begin, complain_of, wrong, hold, work, observe, stream_id};
  return &kDoor;
}
