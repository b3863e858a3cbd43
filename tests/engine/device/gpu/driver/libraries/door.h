// Stand-ins of the device's libraries speak with the strict driver through this: the one in the program that they are opened in, or in the
// plugin in whose folder lib64 they lie.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tests/engine/device/gpu/driver/control.h"

namespace gradloom::strict {

// Null: there is no strict driver here.
inline const StrictDoor* find_door() {
  auto found = reinterpret_cast<StrictDoorFn>(dlsym(RTLD_DEFAULT, STRICT_DOOR));
  Dl_info here{};
  if (found == nullptr && dladdr(reinterpret_cast<const void*>(&find_door), &here) != 0) {
    const std::string path = here.dli_fname;
    for (const char* kind : {"cuda", "hip"}) {
      const std::string plugin = path.substr(0, path.rfind('/')) + "/../libgradloom_" + kind + ".so";
      void* const driver = dlopen(plugin.c_str(), RTLD_NOW | RTLD_NOLOAD);
      if (driver != nullptr) found = reinterpret_cast<StrictDoorFn>(dlsym(driver, STRICT_DOOR));
    }
  }
  return found != nullptr ? found() : nullptr;
}
inline const StrictDoor& door() {
  static const StrictDoor* const found = find_door();
  return *found;
}

// The statuses that a library has for what the driver tells it.
struct LibraryStatuses {
  int invalid, no_memory, failed;
};

// One call of a library.
class LibraryCall {
 public:
  LibraryCall(const char* name, const LibraryStatuses& statuses, int rules = 0)
      : name_(name), statuses_(statuses), status_(status_of(door().begin(name, rules))) {}
  bool failed() const { return status_ != 0; }
  int status() const { return status_; }
  // What a caller must not do: a complaint, and the status of it.
  int wrong(const std::string& why) {
    door().complain((std::string(name_) + ": " + why).c_str());
    return status_ = statuses_.invalid;
  }
  // The memory is the device's, and begins where it must. False: it was said.
  bool device_memory(const char* what, const void* at, std::size_t bytes, std::size_t boundary) {
    if (const char* const why = at != nullptr ? door().wrong(at, bytes) : "it is null"; why != nullptr)
      wrong(std::string(what) + ": " + why);
    else if (reinterpret_cast<std::size_t>(at) % boundary != 0)
      wrong(std::string(what) + " does not begin at a boundary of " + std::to_string(boundary) + " bytes");
    return !failed();
  }
  // Queues it. function: void(), run once or, in a graph, more often.
  template <class F>
  int submit(void* stream, const char* work, F function) {
    const int refused = door().work(
        stream, work, [](void* user) { (*static_cast<F*>(user))(); }, new F(std::move(function)),
        [](void* user) { delete static_cast<F*>(user); });
    return status_ = refused != 0 ? statuses_.failed : 0;
  }

 private:
  int status_of(int begun) const {
    return begun == STRICT_NO_MEMORY ? statuses_.no_memory
           : begun < 0               ? begun == STRICT_REFUSED ? statuses_.invalid : statuses_.failed
                                     : begun;
  }
  const char* name_;
  LibraryStatuses statuses_;
  int status_;
};

// What a library has made of one kind, and not destroyed. The driver counts them. Not for several threads at once.
template <class T>
class Made {
 public:
  explicit Made(const char* what) : what_(what) {}
  T* make(T value) {
    auto made = std::make_unique<T>(std::move(value));
    T* const handle = made.get();
    live_[handle] = std::move(made);
    door().hold(what_, 1);
    return handle;
  }
  // Null, which was said: it is none, or was destroyed.
  T* get(LibraryCall& call, const void* handle) const {
    const auto found = live_.find(handle);
    if (found != live_.end()) return found->second.get();
    call.wrong(std::string("no such handle among the ") + what_ + ", or it was destroyed");
    return nullptr;
  }
  int destroy(LibraryCall& call, const void* handle) {
    if (get(call, handle) == nullptr) return call.status();
    live_.erase(handle);
    door().hold(what_, -1);
    return call.status();
  }

 private:
  const char* what_;
  std::map<const void*, std::unique_ptr<T>> live_;
};

}  // namespace gradloom::strict
