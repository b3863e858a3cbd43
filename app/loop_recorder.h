// A training loop of another program as a session keeps it: each step's host spans (profiler/host_spans.h), the forwards and
// backwards of the engine's modules that it watches, and their kernels in the steps that are timed. What libgradloom's
// recorders are made of. A plan that a watched module runs for the first time goes into the session with its graph.
//
// The first thing that the session does not take (full disk, a lock of another process) is the error of the end_step that
// follows, and the last thing that is recorded: the loop itself goes on.
//
// Errors: those of Store; Errc::usage: a closed recorder, a kind that there is not, a span or step that ends before it
// begins; Errc::limit: a step with more than kMostSpans spans or kMostKernels kernels.
// Safe from several threads. Spans and calls count only in the thread that opened it: it is the loop's.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "app/module.h"
#include "profiler/environment.h"
#include "profiler/host_spans.h"
#include "profiler/sampler.h"
#include "sessions/store.h"

namespace gradloom {

class LoopRecorder : public std::enable_shared_from_this<LoopRecorder> {
 public:
  static constexpr std::size_t kMostSpans = 100'000, kMostKernels = 1'000'000;

  // `words`: --name TEXT, --profile step|sampled|all (which steps are timed kernel by kernel), --steps N (planned),
  // --command TEXT (what the program was started with), --source FOLDER (whose commit is recorded). The first step begins now.
  static Result<std::shared_ptr<LoopRecorder>> open(const std::string& session,
                                                    const std::vector<std::string>& words);
  ~LoopRecorder();
  LoopRecorder(const LoopRecorder&) = delete;
  LoopRecorder& operator=(const LoopRecorder&) = delete;

  // From here on the module's calls are recorded, by this recorder alone, until either goes. Its name stands before those
  // of its nodes; a name that is taken gets a number.
  Status watch(ModelModule& module, const std::string& name);
  Status add_span(const std::string& kind, const std::string& name, std::int64_t start_ns,
                  std::int64_t end_ns);
  Status begin_step(std::int64_t start_ns);  // the step begins here: what was before belongs to none
  // The step ends, and the next one begins. `loss`, `lr`: NaN where there are none.
  Status end_step(std::int64_t end_ns, double loss, double lr);
  Status tell(const std::string& name, const std::string& value);  // a row of the run's environment
  // Ends the run; a step that has not ended is not kept. `failure`: why the loop failed; empty: it did not.
  Status close(const std::string& failure);
  std::int64_t run() const { return writer_->id(); }

 private:
  // What the calls of one watched module need.
  struct Watched {
    std::string name;
    std::map<const CompiledModule*, std::int64_t> first_step;  // by plan that is in the session
  };
  explicit LoopRecorder(ProfileLevel level) : sampler_(level) {}
  Status usable() const;  // REQUIRES the lock
  void called(Watched& module, WatchedCall call);
  void keep_call(Watched& module, WatchedCall& call);  // REQUIRES the lock
  std::string free_name(const std::string& name);
  void next_step(std::int64_t start_ns);
  Status write_step(std::int64_t end_ns, double loss, double lr);

  std::mutex mutex_;
  std::thread::id thread_ = std::this_thread::get_id();
  std::unique_ptr<Store> store_;
  std::unique_ptr<RunWriter> writer_;
  Environment environment_;
  std::map<std::string, std::string> told_;
  std::map<std::string, int> names_;  // of modules: how often each was asked for
  Sampler sampler_;
  std::atomic<bool> timed_{false};  // the step that goes on
  bool closed_ = false;
  std::optional<Error> failed_;
  std::int64_t plan_steps_ = 0;  // of all plans in the session
  // Of the step that goes on.
  std::int64_t step_ = 0, start_ns_ = 0;
  std::vector<HostSpan> spans_;
  std::vector<KernelSample> samples_;
  std::map<const void*, std::int32_t> micro_of_arena_;
  std::map<const CompiledModule*, std::int32_t> forwards_;  // so far
};

}  // namespace gradloom
