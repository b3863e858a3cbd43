// A model made ready to run as a part of somebody else's training: forward and backward apart, on memory that each call
// brings (engine/train/module_graph.h, engine/run/module_executor.h). What libgradloom's modules are made of.
//
// With --device of a GPU all addresses are of its memory. A call returns when its work is queued, behind what a stream of the caller has;
// what that stream gets later waits for it.
//
// Options are words of the command line: a recipe's settings as flags, as far as they concern a model and its plan, and
// --mode, --gradients, --input-grad, --output-grad, --output (embed/gradloom.h tells what they do). Errors: those of
// `gradloom train` for the same file and flags; Errc::usage.
//
// Safe from several threads: calls of one module follow one another, and those of all modules on one GPU.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device/device.h"
#include "engine/run/module_executor.h"
#include "passes/compile.h"

namespace gradloom {

struct Prepared;  // app/job.h
class ModuleDevice;

enum class ModuleKind : std::uint8_t { input, output, parameter, statistic };
struct ModuleValue {
  std::string name;
  Type type;
  bool gradient = false;  // backward takes (outputs) or gives (inputs, parameters) it, in the same type
  bool used = true;       // of what goes in: some kernel reads it
};

// Addresses by the numbers of the values. Backward reads inputs and parameters again; it takes seed and step of its forward.
struct ModuleCall {
  bool no_grad = false;  // forward alone, with a plan and an arena of its own
  const void* const* inputs = nullptr;
  const void* const* parameters = nullptr;
  void* const* statistics = nullptr;  // updated in place by a forward in mode train
  void* const* outputs = nullptr;
  void* arena = nullptr;
  std::uint64_t seed = 0, step = 0;
  void* stream =
      nullptr;  // on a GPU: cudaStream_t, hipStream_t; null: the default stream. It may be recorded (CUDA graph)
  const void* const* output_gradients = nullptr;
  void* const* input_gradients = nullptr;
  void* const* parameter_gradients = nullptr;
};

// What a call did, for whoever watches a module.
struct WatchedCall {
  const CompiledModule* plan = nullptr;  // lives as long as the module
  bool backward = false;
  const void* arena = nullptr;  // the same in a backward as in its forward
  std::int64_t start_ns = 0, end_ns = 0;
  std::vector<KernelSample> samples;  // when timed; micro is 0
};
// Both are called in the thread of a call, which has the module for itself.
struct ModuleWatch {
  std::function<bool()> timed;  // whether the call that begins is timed kernel by kernel
  std::function<void(WatchedCall)> called;
};

class ModelModule {
 public:
  static Result<std::unique_ptr<ModelModule>> open(const std::string& path,
                                                   const std::vector<std::string>& words);
  // The bytes of a model file. Weights in external files cannot be found.
  static Result<std::unique_ptr<ModelModule>> open_bytes(std::string_view bytes,
                                                         const std::vector<std::string>& words);
  ~ModelModule();
  ModelModule(const ModelModule&) = delete;
  ModelModule& operator=(const ModelModule&) = delete;

  const std::vector<ModuleValue>& values(ModuleKind kind) const {
    return values_[static_cast<std::size_t>(kind)];
  }
  const std::vector<std::string>& notes() const { return notes_; }
  const Graph& model() const;  // as it was imported, without the contents of parameters

  std::int64_t arena_alignment() const;
  // Of the caller's memory in which a forward works and keeps what its backward needs. Without gradients it is
  // compiled at the first call.
  Result<std::int64_t> arena_bytes(bool no_grad);

  Status forward(const ModuleCall& call);
  Status backward(const ModuleCall& call);  // once after its forward, which the arena tells
  void watch(ModuleWatch watch);            // instead of who did before

 private:
  struct Variant;
  ModelModule() = default;
  static Result<std::unique_ptr<ModelModule>> make(const std::string& path,
                                                   const std::vector<std::string>& words);
  Status compile_variant(bool gradients);
  void describe();
  Result<Variant*> variant(bool no_grad);
  Result<ModuleMemory> memory(const Variant& v, const ModuleCall& call, bool backward) const;
  Result<bool> run(Variant& v, ModuleMemory with, const ModuleCall& call, bool backward);
  // A forward that was made: seed and step, and whether the caller recorded it.
  struct Forward {
    kernels::RandomState random;
    bool recorded = false;
  };
  void note_forward(const ModuleCall& call, std::optional<Forward> waits);
  std::optional<Forward> waiting_forward(const ModuleCall& call) const;

  std::mutex mutex_;
  std::unique_ptr<Prepared> prepared_;  // without the contents of parameters
  ModuleSpec spec_;
  std::shared_ptr<ModuleDevice> device_;
  std::unique_ptr<Variant> whole_, forward_alone_;  // the second when it was first asked for
  std::array<std::vector<ModuleValue>, 4> values_;
  std::vector<std::string> notes_;
  ModuleWatch watch_;
};

}  // namespace gradloom
