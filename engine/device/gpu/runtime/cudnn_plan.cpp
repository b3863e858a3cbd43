#include "engine/device/gpu/runtime/cudnn_plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/device/gpu/runtime/cudnn_operations.h"

namespace gradloom::kernels::gpu {
namespace {

// The device as the library's calls want it.
struct Target {
  cudnnHandle_t handle = nullptr;
  CudnnDescriptor described{};

  explicit Target(const CudnnDevice& device) : handle(static_cast<cudnnHandle_t>(device.handle)) {
    if (handle != nullptr || cudnn_version() < 90800) return;
    described = CudnnDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    described
        .set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, device.description.c_str(),
             device.description.size() + 1)
        .finalize();
  }
  bool good() const { return handle != nullptr || described.good(); }

  void set_for_heuristics(CudnnDescriptor& heuristics) const {
    if (handle == nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, described);
  }
  void set_for_plan(CudnnDescriptor& plan) const {
    if (handle != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &handle);
    if (handle == nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, described);
  }
};

// ---- what is asked of an engine ---------------------------------------------------------------------------------------------------

struct TypeOf {
  DType operator()(const ConvolutionProblem& p) const { return p.x.dtype; }
  DType operator()(const PoolProblem& p) const { return p.x.dtype; }
  DType operator()(const BatchNormProblem& p) const { return p.x.dtype; }
  DType operator()(const AttentionProblem& p) const { return p.q.dtype; }
};

// Does the library compute it, with the same bits every time? Its notes say nothing of attention's gradient:
// on Hopper and before the form of our operations decides, later devices ask for a knob that we do not turn.
bool deterministic(const DnnProblem& problem, int capability) {
  const auto* const attention = std::get_if<AttentionProblem>(&problem);
  return attention == nullptr || !attention->backward || capability < 100;
}

// Engines for convolutions and poolings that are compiled when they are planned, which takes up to a second,
// are for fusions; for normalizations and attention there are no others.
bool may_compile(const DnnProblem& problem) {
  return std::holds_alternative<BatchNormProblem>(problem) ||
         std::holds_alternative<AttentionProblem>(problem);
}

// May an engine with these numerical notes compute values of this type? The same bits every time; half types
// summed in f32, and not through transforms, which the type has neither digits nor range for; f32 as f32: not
// rounded to TF32, and not through transforms that lose digits.
bool fits(DType type, bool tf32, const std::vector<int>& notes) {
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    return std::find(notes.begin(), notes.end(), int(note)) != notes.end();
  };
  if (has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) || has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION))
    return false;
  if (type != DType::f32) return !has(CUDNN_NUMERICAL_NOTE_FFT) && !has(CUDNN_NUMERICAL_NOTE_WINOGRAD);
  if (!tf32 && (has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) || has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)))
    return false;
  return !has(CUDNN_NUMERICAL_NOTE_FFT) && !has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6) &&
         !has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13);
}

struct Demands {
  DType type;
  bool tf32, may_compile;
  std::size_t workspace_bytes;
};

// Why none of the engines that were suggested is used.
struct Rejected {
  int unfit = 0, large = 0, failed = 0;
  bool mistake = false;  // a call failed that should not
  std::string words;     // of the last failure

  void add(const CudnnDescriptor& failure) {
    ++failed;
    if (mistake && is_refusal(failure.status())) return;
    mistake = !is_refusal(failure.status());
    words = failure.words();
  }
  void unreadable(const char* what) {
    ++failed;
    mistake = true;
    words = std::string("its ") + what + " could not be read";
  }
  Answer answer(const Demands& demands) const {
    std::string text;
    const auto say = [&](int count, const std::string& what) {
      if (count > 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
    };
    say(unfit, "not deterministic, exact or ready");
    say(large, "want more than " + std::to_string(demands.workspace_bytes) + " bytes of workspace");
    say(failed, "failed (" + words + ")");
    return {false, mistake, "no engine" + (text.empty() ? " is suggested" : ": " + text)};
  }
};

}  // namespace

struct CudnnPlan::Parts {
  CudnnGraph graph;
  CudnnDescriptor heuristics, config, plan;
  std::int64_t workspace_bytes = 0, engine = -1;
  std::vector<int> notes;
  Rejected rejected;

  // The first engine that the heuristics suggest and that may be used.
  bool choose(const Target& target, cudnnBackendHeurMode_t mode, const Demands& demands) {
    constexpr std::size_t kMost = 64;
    heuristics = CudnnDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.descriptor())
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
    target.set_for_heuristics(heuristics);
    if (!heuristics.finalize().good()) {
      rejected.add(heuristics);
      return false;
    }
    std::vector<CudnnDescriptor> configs;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (std::size_t i = 0; i < kMost; ++i) {
      configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      if (!configs.back().good()) {
        rejected.add(configs.back());
        return false;
      }
      raw.push_back(configs.back().get());
    }
    const std::int64_t count = heuristics.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                               raw.data(), std::int64_t(kMost));
    if (count < 0) rejected.unreadable("suggestions");
    for (std::int64_t i = 0; i < count; ++i)
      if (take(target, std::move(configs[std::size_t(i)]), demands)) return true;
    return false;
  }

 private:
  bool take(const Target& target, CudnnDescriptor from, const Demands& demands) {
    constexpr std::size_t kMostNotes = 64;  // more than any version has
    CudnnDescriptor of(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!of.good()) {
      rejected.add(of);
      return false;
    }
    cudnnBackendDescriptor_t raw = of.get();
    if (from.read(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw, 1) != 1) {
      rejected.unreadable("engine");
      return false;
    }
    std::array<cudnnBackendNumericalNote_t, kMostNotes> numerical{};
    std::array<cudnnBackendBehaviorNote_t, kMostNotes> behavior{};
    const auto notes_count = of.read(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                     numerical.data(), std::int64_t(numerical.size()));
    const auto behavior_count = of.read(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                        behavior.data(), std::int64_t(behavior.size()));
    if (notes_count < 0 || behavior_count < 0) {  // it may be any engine
      rejected.unreadable("notes");
      return false;
    }
    notes.assign(numerical.begin(), numerical.begin() + notes_count);
    const bool compiles =
        std::find(behavior.begin(), behavior.begin() + behavior_count,
                  CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behavior.begin() + behavior_count;
    if ((compiles && !demands.may_compile) || !fits(demands.type, demands.tf32, notes)) {
      ++rejected.unfit;
      return false;
    }
    plan = CudnnDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, from);
    target.set_for_plan(plan);
    if (!plan.finalize().good()) {
      rejected.add(plan);
      return false;
    }
    if (plan.read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, &workspace_bytes, 1) != 1 ||
        workspace_bytes < 0 || std::size_t(workspace_bytes) > demands.workspace_bytes) {
      ++rejected.large;
      return false;
    }
    (void)of.read(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, &engine, 1);
    config = std::move(from);
    return true;
  }
};

std::size_t cudnn_version() { return cudnn().ready ? cudnn().version() : 0; }

CudnnPlan::CudnnPlan(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
CudnnPlan::~CudnnPlan() = default;
std::size_t CudnnPlan::workspace_bytes() const { return std::size_t(parts_->workspace_bytes); }
const std::vector<std::int64_t>& CudnnPlan::tensors() const { return parts_->graph.tensors(); }
std::int64_t CudnnPlan::engine() const { return parts_->engine; }
const std::vector<int>& CudnnPlan::notes() const { return parts_->notes; }

std::unique_ptr<CudnnPlan> CudnnPlan::create(const CudnnDevice& device, const DnnProblem& problem,
                                             std::size_t workspace_bytes, Answer* why) {
  Answer unused;
  Answer& answer = why != nullptr ? *why : unused;
  answer = refused("its gradient is not deterministic on this device");
  if (!cudnn().ready || !deterministic(problem, device.capability)) return nullptr;
  const Target target(device);
  answer = failed("the device's description is not understood");
  if (!target.good()) return nullptr;
  auto parts = std::make_unique<Parts>();
  std::visit([&](const auto& p) { add_operations(p, parts->graph); }, problem);
  if (!parts->graph.finish(target.handle)) {
    const CudnnDescriptor& failure = parts->graph.failure();
    answer = {false, !is_refusal(failure.status()), "its graph: " + failure.words()};
    return nullptr;
  }
  const Demands demands{std::visit(TypeOf(), problem), device.tf32, may_compile(problem), workspace_bytes};
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    if (parts->choose(target, mode, demands)) {
      answer = taken_by("engine " + std::to_string(parts->engine));
      return std::unique_ptr<CudnnPlan>(new CudnnPlan(std::move(parts)));
    }
  answer = parts->rejected.answer(demands);
  return nullptr;
}

Answer CudnnPlan::run(void* handle, const std::vector<DnnCall::Place>& places, void* workspace) const {
  std::vector<std::int64_t> ids;
  std::vector<void*> addresses;
  for (const DnnCall::Place& place : places) {
    ids.push_back(place.id);
    addresses.push_back(place.address);
  }
  for (const auto& [id, value] : parts_->graph.scalars()) {
    ids.push_back(id);
    addresses.push_back(const_cast<float*>(&value));
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.data(), ids.size())
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, addresses.data(), addresses.size())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &workspace)
      .finalize();
  if (!pack.good()) return failed("its addresses: " + pack.words());
  const cudnnStatus_t status =
      cudnn().execute(static_cast<cudnnHandle_t>(handle), parts_->plan.get(), pack.get());
  if (status != CUDNN_STATUS_SUCCESS) return failed("cudnnBackendExecute: " + cudnn_words(status));
  return taken_by("engine " + std::to_string(parts_->engine));
}

}  // namespace gradloom::kernels::gpu
