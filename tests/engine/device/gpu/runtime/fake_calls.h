// For libraries that stand in for a vendor's in tests: every call is counted by name, and the n-th of a name fails on demand.
// Tests find both functions in the library (fake_toolkit.h).
#pragma once

#include <map>
#include <string>

namespace gradloom::test {

struct FakeCalls {
  std::map<std::string, int> calls;
  std::map<std::pair<std::string, int>, int> failures;  // by name and number: the status

  // The status of a call that would succeed with 0.
  int call(const std::string& name) {
    const auto failure = failures.find({name, ++calls[name]});
    return failure != failures.end() ? failure->second : 0;
  }
};
inline FakeCalls& fake_calls() {
  static FakeCalls calls;
  return calls;
}

}  // namespace gradloom::test

extern "C" __attribute__((visibility("default"))) inline int fake_count(const char* name) {
  return gradloom::test::fake_calls().calls[name];
}
// The n-th call from now on fails.
extern "C" __attribute__((visibility("default"))) inline void fake_fail(const char* name, int n, int status) {
  auto& all = gradloom::test::fake_calls();
  all.failures[{name, all.calls[name] + n}] = status;
}
// So that the two are in every library that includes this.
namespace gradloom::test {
[[maybe_unused]] __attribute__((used)) static int (*const kept_count)(const char*) = &fake_count;
[[maybe_unused]] __attribute__((used)) static void (*const kept_fail)(const char*, int, int) = &fake_fail;
}  // namespace gradloom::test
