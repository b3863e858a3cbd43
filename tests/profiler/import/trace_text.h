// Traces as text, for tests of their readers.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <string>

#include "profiler/import/imported_trace.h"
#include "tests/folder.h"

namespace gradloom::test {

// Events of Kineto, times in microseconds.
class KinetoText {
 public:
  KinetoText& event(const std::string& category, const std::string& name, int thread, double start_us,
                    double duration_us, const std::string& args = "") {
    events_ += fmt::format(
        R"({}{{"ph":"X","cat":"{}","name":"{}","pid":7,"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
        events_.empty() ? "" : ",\n", category, name, thread, 5e12 + start_us, duration_us, args);
    return *this;
  }
  KinetoText& op(const std::string& name, double start_us, double duration_us, const std::string& args = "") {
    return event("cpu_op", name, 1, start_us, duration_us, args);
  }
  KinetoText& mark(const std::string& name, double start_us, double duration_us) {
    return event("user_annotation", name, 1, start_us, duration_us);
  }
  std::string text(const std::string& more = "") const {
    return R"({"schemaVersion":1,"deviceProperties":[{"id":0,"name":"GPU Zero"}],"traceEvents":[)" + events_ +
           "]" + more + "}";
  }

 private:
  std::string events_;
};

class TraceFile {
 public:
  explicit TraceFile(const std::string& text, const std::string& name = "t.json") : path_(folder_ / name) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  const std::string& path() const { return path_; }

 private:
  TemporaryFolder folder_;
  std::string path_;
};

inline Result<ImportedTrace> read_text(const std::string& text) {
  return read_json_trace(TraceFile(text).path());
}

// The first row of an operator in a phase; null: there is none.
inline const ImportedKernel* find_kernel(const ImportedTrace& trace, const std::string& op,
                                         const std::string& phase) {
  for (const ImportedKernel& kernel : trace.kernels)
    if (kernel.info.op == op && kernel.info.phase == phase) return &kernel;
  return nullptr;
}

// Of all samples of a kernel in a step.
inline std::int64_t time_of(const ImportedStep& step, const ImportedKernel& kernel) {
  std::int64_t ns = 0;
  for (const KernelSample& sample : step.samples)
    if (sample.plan_step == kernel.info.plan_step) ns += sample.duration_ns;
  return ns;
}

inline std::int64_t time_of(const ImportedStep& step) {
  std::int64_t ns = 0;
  for (const KernelSample& sample : step.samples) ns += sample.duration_ns;
  return ns;
}

}  // namespace gradloom::test
