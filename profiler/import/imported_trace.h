// What other profilers recorded, in the words of a run: steps, in them kernels with phase, module and operator, copies, launches
// and what the training thread did. Times are nanoseconds from the first event that was kept; whatever clock the profiler used.
//
// A kernel here is what ran on a device; where a trace has no device, an operator's own time: its duration without those of
// the operators that it called, so that the kernels of a thread add up to no more than its step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/device/device.h"
#include "engine/ir/graph.h"
#include "engine/run/executor.h"
#include "profiler/host_spans.h"
#include "profiler/trace.h"

namespace gradloom {

// Limits of what is read, whatever the file's size (Errc::limit names the one that was met).
constexpr std::int64_t kMostImportBytes = std::int64_t{8} << 30;  // of a trace, unpacked
constexpr std::size_t kMostImportEvents = 8'000'000;              // that are kept: some 72 B of memory each
constexpr std::size_t kMostImportNameBytes = 256 << 20;           // of different names, each once
constexpr std::size_t kMostImportExecutions = 2'000'000;          // of kernels; later steps are left out
constexpr std::size_t kMostImportSteps = 100'000;
constexpr std::size_t kMostImportSpans = 100'000;  // of the thread in one step; else that step has none
constexpr std::size_t kMostImportName = 4096;      // bytes; longer names are cut
constexpr std::int64_t kLongestImport = std::int64_t{1} << 50;  // ns of an event, of a trace: 13 days
constexpr int kMostImportDepth = 64;                            // of modules inside one another

struct ImportedKernel {
  KernelInfo info;        // sources: in ImportedTrace::operators
  std::string inputs;     // types of its operands, "f32[32, 64] f32[64]"; empty: not recorded
  bool exchange = false;  // ranks exchange in it: a kernel of NCCL or RCCL
};

// An exchange with other ranks, from when this one was ready to its end: the kernel that makes it begins when the rank is ready.
struct ImportedExchange {
  std::int32_t plan_step = 0;  // in ImportedTrace::kernels
  std::int64_t start_ns = 0, duration_ns = 0;
  std::int64_t sent_bytes = 0;  // by this rank; 0: the trace does not tell
};

struct ImportedStep {
  std::int64_t start_ns = 0, duration_ns = 0;
  std::vector<KernelSample> samples;  // plan_step: in ImportedTrace::kernels
  std::vector<Activity> activities;
  std::vector<HostSpan> host;  // as nested_spans gives them; may be empty
  std::int64_t number = -1;    // as the profiler counts; -1: it does not
  std::vector<ImportedExchange> exchanges{};
};

struct ImportedTrace {
  std::string origin;  // of import_origins()
  std::string device;  // cpu, cuda:0, ...
  std::map<std::string, std::string> environment;
  std::vector<SourceNode> operators;  // what the program called: name, operator, module
  std::vector<ImportedKernel> kernels;
  std::vector<ImportedStep> steps;
  std::int64_t peak_bytes = 0;     // 0: not recorded
  std::vector<std::string> notes;  // what a reader of the numbers must know
};

// Which programs' traces can be read.
struct ImportOrigin {
  const char* name;   // as stored: run.data
  const char* title;  // for people
};
const std::vector<ImportOrigin>& import_origins();
const ImportOrigin* find_import_origin(const std::string& name);

// Rows of a run's environment with notes of its import: import.note_1, ...
constexpr const char* kImportNote = "import.note_";

// 0..1 of the file.
using ImportProgress = std::function<void(double fraction)>;

// What such a trace says of the machine before its first event, as rows of an environment: trace.rank and trace.world_size of a rank of
// several. Errors: Errc::io; a file that is no trace has no facts.
Result<std::map<std::string, std::string>> read_trace_facts(const std::string& path);

// A Chrome trace of PyTorch's profiler or a profile of ONNX Runtime, plain or gzip, by its contents. Errors name `path`:
// Errc::bad_input for what is neither, or cut off; Errc::limit; Errc::io.
Result<ImportedTrace> read_json_trace(const std::string& path, const ImportProgress& progress = {});

}  // namespace gradloom
