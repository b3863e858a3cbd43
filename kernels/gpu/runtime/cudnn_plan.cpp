#include "kernels/gpu/runtime/cudnn_plan.h"

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/gpu/runtime/library.h"

namespace gradloom::kernels::gpu {
namespace {

struct Functions {
  Library library{"libcudnn.so.9", "libcudnn.so"};
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy = nullptr;
  decltype(&cudnnBackendSetAttribute) set = nullptr;
  decltype(&cudnnBackendGetAttribute) get = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;
  bool ready = false;

  Functions() {
    ready = library && library.bind(version, "cudnnGetVersion") &&
            library.bind(create, "cudnnBackendCreateDescriptor") &&
            library.bind(destroy, "cudnnBackendDestroyDescriptor") &&
            library.bind(set, "cudnnBackendSetAttribute") && library.bind(get, "cudnnBackendGetAttribute") &&
            library.bind(finalize, "cudnnBackendFinalize") && library.bind(execute, "cudnnBackendExecute") &&
            version() >= 90000;
  }
};
const Functions& cudnn() {
  static const Functions functions;
  return functions;
}

// A descriptor of the library. The first failure stays: what is done with it afterwards does nothing.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type) { good_ = cudnn().create(type, &descriptor_) == 0; }
  Descriptor(Descriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, nullptr)), good_(std::exchange(other.good_, false)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(good_, other.good_);
    return *this;
  }
  ~Descriptor() {
    if (descriptor_ != nullptr) (void)cudnn().destroy(descriptor_);
  }

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values,
                  std::size_t count = 1) {
    good_ = good_ && cudnn().set(descriptor_, name, type, std::int64_t(count), values) == 0;
    return *this;
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const DnnSizes& sizes) {
    return set(name, CUDNN_TYPE_INT64, sizes.data(), sizes.size());
  }
  Descriptor& set(cudnnBackendAttributeName_t name, std::int64_t value) {
    return set(name, CUDNN_TYPE_INT64, &value);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& part) {
    good_ = good_ && part.good_;
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &part.descriptor_);
  }
  Descriptor& finalize() {
    good_ = good_ && cudnn().finalize(descriptor_) == 0;
    return *this;
  }

  bool good() const { return good_; }
  cudnnBackendDescriptor_t get() const { return descriptor_; }
  // At most `capacity` values; how many were read, or 0.
  template <class T>
  std::int64_t read(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, T* values,
                    std::int64_t capacity) const {
    std::int64_t count = 0;
    const bool done = good_ && cudnn().get(descriptor_, name, type, capacity, &count, values) == 0;
    return done ? std::min(count, capacity) : 0;
  }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
  bool good_ = false;
};

cudnnDataType_t type_of(DType type) { return type == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT; }

Descriptor tensor(const DnnTensor& t, cudnnDataType_t type) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, t.dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, t.strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, t.id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16)
      .finalize();
  return d;
}

Descriptor window(const ConvolutionProblem& p) {
  const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  Descriptor d(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &compute)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, &mode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t(p.stride.size()))
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, p.stride)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, p.pad_begin)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, p.pad_end)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, p.dilation)
      .finalize();
  return d;
}

// What the operation of a kind is called, and its attributes.
struct Operation {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, window, x, w, y;
};
Operation operation_of(ConvolutionKind kind) {
  switch (kind) {
    case ConvolutionKind::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case ConvolutionKind::backward_weights:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
  }
}

// May an engine with these numerical notes compute values of this type? The same bits every time; bf16 summed
// in f32; f32 as f32: not rounded to TF32, and not through transforms that lose digits.
bool fits(DType type, bool tf32, const std::vector<int>& notes) {
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    return std::find(notes.begin(), notes.end(), int(note)) != notes.end();
  };
  if (has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) || has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION))
    return false;
  if (type != DType::f32) return true;
  if (!tf32 && (has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) || has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS)))
    return false;
  return !has(CUDNN_NUMERICAL_NOTE_FFT) && !has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6) &&
         !has(CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13);
}

// The device that a plan is for: one that is there, or one that is described.
struct Target {
  cudnnHandle_t handle = nullptr;
  Descriptor described{};
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // the newer form needs 9.8
constexpr cudnnBackendAttributeName_t kGraphHandle = CUDNN_ATTR_OPERATIONGRAPH_HANDLE,
                                      kPlanHandle = CUDNN_ATTR_EXECUTION_PLAN_HANDLE;
#pragma GCC diagnostic pop

}  // namespace

struct CudnnPlan::Parts {
  Descriptor x, w, y, window, operation, graph, heuristics, config, plan;
  std::int64_t workspace_bytes = 0, engine = -1;
  std::vector<int> notes;
  std::array<std::int64_t, 3> ids{};

  bool describe(const Target& target, const ConvolutionProblem& p) {
    const cudnnDataType_t type = type_of(p.dtype);
    const Operation o = operation_of(p.kind);
    const float alpha = 1, beta = 0;
    ids = {p.x.id, p.w.id, p.y.id};
    x = tensor(p.x, type);
    w = tensor(p.w, type);
    y = tensor(p.y, type);
    window = gpu::window(p);
    operation = Descriptor(o.type);
    operation.set(o.alpha, CUDNN_TYPE_FLOAT, &alpha)
        .set(o.beta, CUDNN_TYPE_FLOAT, &beta)
        .set(o.window, window)
        .set(o.x, x)
        .set(o.w, w)
        .set(o.y, y)
        .finalize();
    graph = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    if (target.handle != nullptr) graph.set(kGraphHandle, CUDNN_TYPE_HANDLE, &target.handle);
    return graph.finalize().good();
  }

  // The first engine that the heuristics suggest and that may be used.
  bool choose(const Target& target, cudnnBackendHeurMode_t mode, const ConvolutionProblem& p,
              std::size_t limit, bool tf32) {
    constexpr std::int64_t kMost = 64;
    heuristics = Descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
    on_described_device(target, heuristics, kHeuristics);
    if (!heuristics.finalize().good()) return false;
    std::vector<Descriptor> configs;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (std::int64_t i = 0; i < kMost; ++i) {
      configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      raw.push_back(configs.back().get());
    }
    const std::int64_t count =
        heuristics.read(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw.data(), kMost);
    for (std::int64_t i = 0; i < count; ++i) {
      if (!take(target, std::move(configs[std::size_t(i)]), p.dtype, limit, tf32)) continue;
      return true;
    }
    return false;
  }

 private:
  enum Place { kHeuristics, kPlan };
  static void on_described_device([[maybe_unused]] const Target& target, [[maybe_unused]] Descriptor& part,
                                  [[maybe_unused]] Place place) {
#if CUDNN_VERSION >= 90800
    if (target.handle == nullptr)
      part.set(place == kPlan ? CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP : CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
               target.described);
#endif
  }

  bool take(const Target& target, Descriptor from, DType type, std::size_t limit, bool tf32) {
    Descriptor of(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t raw = of.get();
    if (from.read(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw, 1) != 1) return false;
    std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> numerical{};
    std::array<cudnnBackendBehaviorNote_t, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT> behavior{};
    const auto notes_count = of.read(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                     numerical.data(), std::int64_t(numerical.size()));
    const auto behavior_count = of.read(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                        behavior.data(), std::int64_t(behavior.size()));
    notes.assign(numerical.begin(), numerical.begin() + notes_count);
    // Those that compile for seconds are for fusions.
    const bool compiles =
        std::find(behavior.begin(), behavior.begin() + behavior_count,
                  CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behavior.begin() + behavior_count;
    if (compiles || !fits(type, tf32, notes)) return false;
    plan = Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, from);
    if (target.handle != nullptr) plan.set(kPlanHandle, CUDNN_TYPE_HANDLE, &target.handle);
    on_described_device(target, plan, kPlan);
    if (!plan.finalize().good()) return false;
    if (plan.read(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, &workspace_bytes, 1) != 1 ||
        workspace_bytes < 0 || std::size_t(workspace_bytes) > limit)
      return false;
    (void)of.read(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, &engine, 1);
    config = std::move(from);
    return true;
  }
};

namespace {

template <class Parts>
std::unique_ptr<Parts> build(const Target& target, const ConvolutionProblem& problem,
                             std::size_t workspace_bytes, bool tf32) {
  auto parts = std::make_unique<Parts>();
  if (!parts->describe(target, problem)) return nullptr;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    if (parts->choose(target, mode, problem, workspace_bytes, tf32)) return parts;
  return nullptr;
}

bool takes(const ConvolutionProblem& p) { return p.dtype == DType::f32 || p.dtype == DType::bf16; }

}  // namespace

std::size_t cudnn_version() { return cudnn().ready ? cudnn().version() : 0; }

CudnnPlan::CudnnPlan(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
CudnnPlan::~CudnnPlan() = default;
std::size_t CudnnPlan::workspace_bytes() const { return std::size_t(parts_->workspace_bytes); }
std::int64_t CudnnPlan::engine() const { return parts_->engine; }
const std::vector<int>& CudnnPlan::notes() const { return parts_->notes; }

std::unique_ptr<CudnnPlan> CudnnPlan::create(void* handle, const ConvolutionProblem& problem,
                                             std::size_t workspace_bytes, bool tf32) {
  if (handle == nullptr || !cudnn().ready || !takes(problem)) return nullptr;
  auto parts = build<Parts>({static_cast<cudnnHandle_t>(handle)}, problem, workspace_bytes, tf32);
  return parts == nullptr ? nullptr : std::unique_ptr<CudnnPlan>(new CudnnPlan(std::move(parts)));
}

std::unique_ptr<CudnnPlan> CudnnPlan::describe([[maybe_unused]] const std::string& device_json,
                                               [[maybe_unused]] const ConvolutionProblem& problem,
                                               [[maybe_unused]] std::size_t workspace_bytes,
                                               [[maybe_unused]] bool tf32) {
#if CUDNN_VERSION >= 90800
  if (cudnn_version() < 90800 || !takes(problem)) return nullptr;
  Target target{nullptr, Descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)};
  target.described
      .set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, device_json.c_str(),
           device_json.size() + 1)
      .finalize();
  if (!target.described.good()) return nullptr;
  auto parts = build<Parts>(target, problem, workspace_bytes, tf32);
  return parts == nullptr ? nullptr : std::unique_ptr<CudnnPlan>(new CudnnPlan(std::move(parts)));
#else
  return nullptr;
#endif
}

bool CudnnPlan::run(void* handle, const std::array<void*, 3>& tensors, void* workspace) const {
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, parts_->ids.data(), parts_->ids.size())
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, tensors.data(), tensors.size())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &workspace)
      .finalize();
  return pack.good() &&
         cudnn().execute(static_cast<cudnnHandle_t>(handle), parts_->plan.get(), pack.get()) == 0;
}

}  // namespace gradloom::kernels::gpu
