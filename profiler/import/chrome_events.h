// Chrome's trace event format, read as it streams by: of each event what a run can use, of the rest nothing. PyTorch's profiler
// (Kineto; older PyTorch without Kineto as a bare array without categories) and ONNX Runtime write it. Memory grows with
// the events that are kept, not with the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/names.h"
#include "engine/base/result.h"
#include "profiler/import/imported_trace.h"

namespace gradloom {

// Different texts, each once.
class TextTable {
 public:
  TextTable() { (void)add(""); }
  std::int32_t add(const std::string& text);  // 0: the empty one
  const std::string& operator[](std::int32_t i) const { return *texts_[static_cast<std::size_t>(i)]; }
  std::size_t size() const { return texts_.size(); }
  std::size_t bytes() const { return bytes_; }

 private:
  NameMap<std::int32_t> index_;
  std::vector<const std::string*> texts_;
  std::size_t bytes_ = 0;
};

struct ChromeEvent {
  enum class Kind : std::uint8_t {
    op,          // an operator on a thread
    annotation,  // what the program marked: steps, modules, optimizers
    module,      // a call of a torch.nn.Module, of traces with stacks
    runtime,     // a call of CUDA or HIP
    kernel,
    copy,
    fill,
    node,  // of ONNX Runtime
    session,
  };
  Kind kind = Kind::op;
  std::int32_t name = 0, thread = 0, inputs = 0;  // in ChromeEvents
  std::int32_t detail = 0;  // text: of a node its operator; of a kernel that exchanges, its group of ranks
  std::int32_t device = -1, stream = -1;
  std::int64_t start_ns = 0, duration_ns = 0;
  std::int64_t sequence = -1;     // of autograd
  std::int64_t correlation = -1;  // of runtime, kernel, copy and fill
  std::int64_t external = -1;     // of operators and what they launched, in newer traces
  std::int64_t bytes = 0;         // of a copy or fill; of a kernel that exchanges, sent
};

struct ChromeEvents {
  std::string origin = "kineto";  // of import_origins()
  bool of_onnxruntime = false, with_categories = false;
  TextTable texts;
  std::vector<std::string> threads;          // "pid/tid"
  std::vector<ChromeEvent> events;           // in the file's order; times from the first start
  std::map<std::string, std::string> facts;  // of the machine, as rows of a run's environment
  std::map<std::int64_t, std::string> devices;
  std::map<std::int64_t, std::int64_t> peak_bytes;  // by type of device: 0 the CPU
  std::int64_t unreadable = 0;                      // events without usable times
};

Result<ChromeEvents> read_chrome_events(const std::string& path, const ImportProgress& progress);

}  // namespace gradloom
