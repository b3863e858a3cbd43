// What trace files show, before it is spelled in the format of one: slices on the lanes of processes, arrows between them and the
// arena's bytes. The writers of all formats take it from here.
//
// A process is a rank (its number: rank + 1). Its lane 0 has the optimizer steps ("ProfilerStep#N"), inside them the phases, inside them
// the kernels of a CPU; kernels, copies and fills of other devices are on the lanes of their streams, the host's launches, what the
// host of a recorded loop did, and the exchanges with other ranks on lanes of their own. Slices of a lane lie inside or beside one another:
// one that begins before the last one ended is on the next lane. Arrows: "fwdbwd" from the last forward kernel of
// an ONNX node to its first backward kernel, "ac2g" from a launch to its (first) kernel.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "profiler/trace.h"

namespace gradloom {

struct TraceArgument {
  const char* name;
  std::variant<std::int64_t, double, std::string> value;
};

// What is alike in all executions of a kernel.
struct TraceKernel {
  std::string name;
  std::vector<TraceArgument> arguments;
};

struct TraceSlice {
  int lane = 0;
  const char* category = "";
  std::string name;                            // empty: that of its kernel
  std::int64_t start_ns = 0, duration_ns = 0;  // since TraceEvents::base_ns
  std::int32_t kernel = -1;  // in TraceEvents::kernels, whose arguments it has too; -1: none
  std::vector<TraceArgument> arguments;
};
struct TraceArrow {
  const char* name;
  std::int64_t id;       // from 1, of the whole trace
  std::size_t from, to;  // in TraceGroup::slices
};
struct TraceLiveBytes {
  std::int64_t at_ns, bytes;
};
struct TraceLane {
  int lane;
  std::string name;
};

// A step of a process, or of one of its lanes. Those of a lane follow one another.
struct TraceGroup {
  std::int32_t process = 1;
  std::string process_name;      // not empty: it is the process's first
  std::vector<TraceLane> lanes;  // that have slices for the first time
  std::vector<TraceSlice> slices;
  std::vector<TraceArrow> arrows;
  std::vector<TraceLiveBytes> live_bytes;  // of the arena over the first timed step; every step is alike
};

// Takes the next piece of a file.
using TraceSink = std::function<Status(std::string_view)>;

class TraceEvents {
 public:
  explicit TraceEvents(const TraceDocument& document);  // which must outlive it
  TraceEvents(const TraceEvents&) = delete;
  TraceEvents& operator=(const TraceEvents&) = delete;
  ~TraceEvents();
  std::int64_t base_ns() const;  // of the earliest event
  // By plan step; the last: of rows whose plan step is unknown
  const std::vector<TraceKernel>& kernels() const;
  // Once. Ends with the first error of `take`, which is returned.
  Status each(const std::function<Status(const TraceGroup&)>& take);

 private:
  struct Walk;
  std::unique_ptr<Walk> walk_;
};

}  // namespace gradloom
