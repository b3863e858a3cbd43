// Result<T>: a value or an Error. Every operating error (bad file, full disk, missing kernel) is one of
// these; CHECK is for our own bugs. The code of an Error is the exit code of the command that meets it.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace gradloom {

enum class Errc : int {
  check_failed = 1,  // a check or comparison failed
  usage = 2,         // wrong flags or options
  bad_input = 3,     // a file or model that cannot be used
  limit = 4,         // a documented limit was reached
  io = 5,            // reading or writing failed
  device = 6,        // a device failed or lacks a kernel
  numeric = 7,       // NaN or Inf
  bug = 70,          // our bug
  interrupted = 130,
};

struct Error {
  Errc code = Errc::bug;
  std::string message;
};
inline Error bad_input(std::string message) { return {Errc::bad_input, std::move(message)}; }

template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}
  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  void value() const {}
  const Error& error() const& { return error_; }
  Error&& error() && { return std::move(error_); }

 private:
  Error error_;
  bool ok_ = true;
};

using Status = Result<void>;

// Adds where it happened while an error travels up: "load m.onnx: node 12 (Softmax): axis 7 is out of range".
inline Error with_context(Error error, const std::string& where) {
  error.message = where + ": " + error.message;
  return error;
}

namespace detail {
[[noreturn]] void check_failed(const char* condition, const char* why, const char* file, int line);
}

}  // namespace gradloom

// The value of `expr`, or return its error from the enclosing function. Not among the arguments of `new`: memory that is taken
// for the object would stay.
#define GRADLOOM_JOIN_(a, b) a##b
#define GRADLOOM_JOIN(a, b) GRADLOOM_JOIN_(a, b)
#define GRADLOOM_TRY(result, expr)                      \
  ({                                                    \
    auto result = (expr);                               \
    if (!result.ok()) return std::move(result).error(); \
    std::move(result).value();                          \
  })
#define TRY(expr) GRADLOOM_TRY(GRADLOOM_JOIN(gradloom_result_, __COUNTER__), expr)

// A broken invariant of our own: prints and aborts, in every build.
#define CHECK(condition, why) \
  ((condition) ? (void)0 : ::gradloom::detail::check_failed(#condition, why, __FILE__, __LINE__))
