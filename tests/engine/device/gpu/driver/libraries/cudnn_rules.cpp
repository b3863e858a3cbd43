// What a descriptor of cuDNN must be when it is finalized. Sources: cuDNN documentation, "Backend descriptor types" (attributes of each,
// and what cudnnBackendFinalize() returns for them); cudnn_graph.h.
#include <algorithm>
#include <iterator>

#include "tests/engine/device/gpu/driver/libraries/cudnn_descriptor.h"

namespace gradloom::strict {

using namespace kernels::gpu;

namespace {

// ---- tensors and windows ----------------------------------------------------------------------------------------------------------

Array tensor_of(const Descriptor& d, Attributes& a) {
  Array t;
  t.id = a.number(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  t.type = a.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE);
  t.dims = a.list<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64);
  t.strides = a.list<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64);
  t.boundary = a.number(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  if (d.attributes.count(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0)
    t.is_virtual = a.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN);
  if (d.attributes.count(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0)
    t.by_value = a.one<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN);
  return t;
}

void check_tensor(const Descriptor& d, Attributes& a) {
  const Array t = tensor_of(d, a);
  if (t.dims.size() < 3 || t.dims.size() > 8 || t.strides.size() != t.dims.size())
    a.say("a tensor of " + std::to_string(t.dims.size()) + " dims and " + std::to_string(t.strides.size()) +
          " strides");
  if (std::any_of(t.dims.begin(), t.dims.end(), [](std::int64_t dim) { return dim < 1; }) ||
      std::any_of(t.strides.begin(), t.strides.end(), [](std::int64_t stride) { return stride < 1; }))
    a.say("a dim or a stride is not positive");
  if (t.boundary < 1 || (t.boundary & (t.boundary - 1)) != 0)
    a.say("a boundary of " + std::to_string(t.boundary) + " bytes");
  if (t.is_virtual && t.by_value) a.say("a virtual tensor has no value");
  if (!t.is_virtual && t.stored() == CUDA_R_32F && t.type != CUDNN_DATA_FLOAT)
    a.say("the stand-in has no such tensors in memory");
}

Window window_of(const Descriptor& d, Attributes& a) {
  Window w;
  const auto whole = [&](int name) {
    Sizes sizes;
    for (const cudnnFraction_t& f : a.list<cudnnFraction_t>(name, CUDNN_TYPE_FRACTION)) {
      if (f.denominator != 1) a.say("a window of fractions");
      sizes.push_back(f.numerator);
    }
    return sizes;
  };
  if (d.type == CUDNN_BACKEND_RESAMPLE_DESCRIPTOR) {
    w.kernel = whole(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS);
    w.stride = whole(CUDNN_ATTR_RESAMPLE_STRIDES);
    w.pad_begin = whole(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS);
    w.pad_end = whole(CUDNN_ATTR_RESAMPLE_POST_PADDINGS);
    w.dilation = Sizes(w.kernel.size(), 1);
    return w;
  }
  w.stride = a.list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64);
  w.pad_begin = a.list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64);
  w.pad_end = a.list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64);
  w.dilation = a.list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64);
  return w;
}

void check_window(const Descriptor& d, Attributes& a) {
  const bool pool = d.type == CUDNN_BACKEND_RESAMPLE_DESCRIPTOR;
  const auto dims =
      std::size_t(a.number(pool ? CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS : CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS));
  const Window w = window_of(d, a);
  (void)a.one<cudnnDataType_t>(pool ? CUDNN_ATTR_RESAMPLE_COMP_TYPE : CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
                               CUDNN_TYPE_DATA_TYPE);
  if (pool) {
    (void)a.one<cudnnResampleMode_t>(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE);
    (void)a.one<cudnnPaddingMode_t>(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE);
  } else {
    (void)a.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE);
  }
  for (const Sizes* sizes : {&w.stride, &w.pad_begin, &w.pad_end, &w.dilation})
    if (sizes->size() != dims || dims < 2 || dims > 3) a.say("a window of other than 2 or 3 dims throughout");
  for (const Sizes* sizes : {&w.stride, &w.dilation})
    if (std::any_of(sizes->begin(), sizes->end(), [](std::int64_t size) { return size < 1; }))
      a.say("a stride or dilation of 0");
}

// ---- operations -------------------------------------------------------------------------------------------------------------------

// The attributes of an operation that are tensors.
struct Slots {
  cudnnBackendDescriptorType_t type;
  std::vector<int> read, written, maybe;  // maybe: read where they are given
  int window = -1;                        // another descriptor that it has, and its kind
  cudnnBackendDescriptorType_t window_kind{};
};
const std::vector<Slots>& all_slots() {
  static const std::vector<Slots> all = {
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W},
       {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
       {},
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
       CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W},
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX},
       {},
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X},
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW},
       {},
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
       CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC},
       {CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC},
       {},
       CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC,
       CUDNN_BACKEND_RESAMPLE_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC},
       {CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC},
       {},
       CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC,
       CUDNN_BACKEND_RESAMPLE_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC,
        CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC},
       {CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC,
        CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC},
       {}},
      {CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC,
        CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC,
        CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC},
       {CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
        CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC},
       {}},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_POINTWISE_XDESC},
       {CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
       {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
       CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
       CUDNN_BACKEND_POINTWISE_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_REDUCTION_XDESC},
       {CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
       {},
       CUDNN_ATTR_OPERATION_REDUCTION_DESC,
       CUDNN_BACKEND_REDUCTION_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
       {CUDNN_ATTR_OPERATION_MATMUL_CDESC},
       {},
       CUDNN_ATTR_OPERATION_MATMUL_DESC,
       CUDNN_BACKEND_MATMUL_DESCRIPTOR},
      {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
       {CUDNN_ATTR_OPERATION_RESHAPE_XDESC},
       {CUDNN_ATTR_OPERATION_RESHAPE_YDESC},
       {}}};
  return all;
}
const Slots* slots_of(cudnnBackendDescriptorType_t type) {
  const auto& all = all_slots();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Slots& s) { return s.type == type; });
  return found != all.end() ? &*found : nullptr;
}

// An operation and its tensors, which begin with those that are read.
struct Described {
  Operation operation;
  std::vector<std::optional<Array>> read;
  std::vector<Array> written;
};
Described operation_of(const Descriptor& d, const Slots& slots, Attributes& a) {
  Described all{{d.type}, {}, {}};
  const auto tensor = [&](int name) {
    const Descriptor* const part = a.part(name, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (part == nullptr) return Array{};
    Attributes of(*part);
    return tensor_of(*part, of);
  };
  for (const int name : slots.read) all.read.emplace_back(tensor(name));
  for (const int name : slots.maybe)
    all.read.push_back(a.has(name) ? std::optional(tensor(name)) : std::nullopt);
  for (const int name : slots.written) all.written.push_back(tensor(name));
  if (slots.window < 0) return all;
  const Descriptor* const how = a.part(slots.window, slots.window_kind);
  if (how == nullptr) return all;
  Attributes of(*how);
  Operation& o = all.operation;
  switch (slots.window_kind) {
    case CUDNN_BACKEND_RESAMPLE_DESCRIPTOR:
      o.mode = of.one<int>(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE);
      [[fallthrough]];
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: o.window = window_of(*how, of); break;
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      o.mode = of.one<int>(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE);
      if (o.mode == CUDNN_POINTWISE_GEN_INDEX) o.axis = of.number(CUDNN_ATTR_POINTWISE_AXIS);
      break;
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
      o.mode = of.one<int>(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
      break;
    default: break;
  }
  if (of.wrong()) a.say(*of.wrong());
  return all;
}

// Sizes that windows make: (in + pads - ((kernel - 1) dilation + 1)) / stride + 1.
void check_sizes(const Window& w, const Sizes& kernel, const Array& x, const Array& y, Attributes& a) {
  if (x.dims.size() != kernel.size() + 2 || y.dims.size() != x.dims.size() ||
      w.stride.size() != kernel.size())
    return a.say("tensors and window are of different ranks");
  for (std::size_t d = 0; d < kernel.size(); ++d) {
    const std::int64_t wide = x.dims[d + 2] + w.pad_begin[d] + w.pad_end[d] -
                              ((kernel[d] - 1) * w.dilation[d] + 1),
                       size = wide < 0 ? 0 : wide / w.stride[d] + 1;
    if (size != y.dims[d + 2])
      a.say("a window makes " + std::to_string(size) + " of dim " + std::to_string(d + 2) + " and not " +
            std::to_string(y.dims[d + 2]));
  }
}

void check_convolution(const Operation& o, const Array& x, const Array& w, const Array& y, Attributes& a) {
  if (x.dims.size() != w.dims.size() || y.dims.size() != w.dims.size())
    return a.say("tensors of different ranks");
  check_sizes(o.window, Sizes(w.dims.begin() + 2, w.dims.end()), x, y, a);
  if (x.dims[1] % w.dims[1] != 0 || w.dims[0] % (x.dims[1] / w.dims[1]) != 0 || y.dims[1] != w.dims[0] ||
      y.dims[0] != x.dims[0])
    a.say("images or channels that do not fit the weight");
}

bool spreads_to(const Array& from, const Array& to) {
  if (from.dims.size() != to.dims.size()) return false;
  for (std::size_t d = 0; d < to.dims.size(); ++d)
    if (from.dims[d] != to.dims[d] && from.dims[d] != 1) return false;
  return true;
}

void check_matmul(const Array& a_of, const Array& b, const Array& c, Attributes& a) {
  const std::size_t rank = c.dims.size();
  if (a_of.dims.size() != rank || b.dims.size() != rank) return a.say("matrices of different ranks");
  if (a_of.dims[rank - 1] != b.dims[rank - 2] || a_of.dims[rank - 2] != c.dims[rank - 2] ||
      b.dims[rank - 1] != c.dims[rank - 1])
    a.say("matrices whose sizes do not fit");
  for (std::size_t d = 0; d + 2 < rank; ++d)
    for (const Array* one : {&a_of, &b})
      if (one->dims[d] != c.dims[d] && one->dims[d] != 1) a.say("matrices of different batches");
}

void check_operation(const Described& all, Attributes& a) {
  const Operation& o = all.operation;
  const auto read = [&](std::size_t i) -> const Array& { return *all.read[i]; };
  const Array& y = all.written[0];
  switch (o.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return check_convolution(o, read(0), read(1), y, a);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return check_convolution(o, y, read(1), read(0), a);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return check_convolution(o, read(1), y, read(0), a);
    case CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR:
      return check_sizes(o.window, o.window.kernel, read(0), y, a);
    case CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR:
      return check_sizes(o.window, o.window.kernel, y, read(0), a);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return check_matmul(read(0), read(1), y, a);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      if (!spreads_to(y, read(0))) a.say("a reduction to dims that are neither 1 nor its own");
      return;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      for (const auto& one : all.read)
        if (one && !spreads_to(*one, y))
          a.say("a pointwise operation of dims that do not spread to its result's");
      return;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      if (read(0).count() != y.count()) a.say("a reshape of another number of elements");
      if (!y.is_virtual) a.say("the stand-in reshapes into virtual tensors alone");
      return;
    default:  // normalizations: one number of each channel
      for (std::size_t i = 1; i < all.written.size(); ++i)
        if (all.written[i].count() != y.dims[1]) a.say("not one number of each channel");
      if (read(0).dims != y.dims) a.say("a result of other dims");
  }
}

// ---- graphs and engines -----------------------------------------------------------------------------------------------------------

// The number of the tensor in the graph; one that is there already must be the same.
int number_in(OperationGraph& graph, const Array& t, Attributes& a) {
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const Array& known = graph.tensors[i];
    if (known.id != t.id) continue;
    if (known.dims != t.dims || known.strides != t.strides || known.type != t.type ||
        known.is_virtual != t.is_virtual)
      a.say("two tensors with the id " + std::to_string(t.id));
    return int(i);
  }
  graph.tensors.push_back(t);
  return int(graph.tensors.size() - 1);
}

std::shared_ptr<OperationGraph> graph_of(const Descriptor& d, Attributes& a) {
  auto graph = std::make_shared<OperationGraph>();
  const auto found = d.attributes.find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (found == d.attributes.end() || found->second.parts.empty()) {
    a.say("a graph without operations");
    return graph;
  }
  std::vector<int> made;  // tensors that an operation has written
  for (const DescriptorPtr& part : found->second.parts) {
    const Slots* const slots = slots_of(part->type);
    if (slots == nullptr) {
      a.say("a part that is no operation");
      return graph;
    }
    Attributes of(*part);
    Described all = operation_of(*part, *slots, of);
    for (const auto& t : all.read) {
      all.operation.read.push_back(t ? number_in(*graph, *t, a) : -1);
      if (t && t->is_virtual && std::find(made.begin(), made.end(), all.operation.read.back()) == made.end())
        a.say("virtual tensor " + std::to_string(t->id) + " is read before it is written");
    }
    for (const Array& t : all.written) {
      const int number = number_in(*graph, t, a);
      if (std::find(made.begin(), made.end(), number) != made.end())
        a.say("tensor " + std::to_string(t.id) + " is written twice");
      made.push_back(number);
      all.operation.written.push_back(number);
    }
    graph->operations.push_back(std::move(all.operation));
  }
  return graph;
}

// First those that a caller who wants the same bits every time, in f32, must not take; of the fallback one without workspace.
std::vector<Engine> engines_for(const OperationGraph& graph, cudnnBackendHeurMode_t mode) {
  const cudnnBackendDescriptorType_t type = graph.operations[0].type;
  const bool convolution = type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
                           type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
                           type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
             pooling = type == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR ||
                       type == CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR;
  const std::vector<int> compiled =
      convolution || pooling ? std::vector<int>{} : std::vector<int>{CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION};
  if (mode == CUDNN_HEUR_MODE_FALLBACK) return {{1, 0, {}, compiled}};
  if (!convolution) return {{17, 0, {}, compiled}};
  return {{3, 0, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, {}},
          {4, 0, {CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13, CUDNN_NUMERICAL_NOTE_WINOGRAD}, {}},
          {17, 512, {}, {}}};
}

}  // namespace

std::optional<std::string> finalize(Descriptor& d) {
  Attributes a(d);
  const auto take = [&](int name, cudnnBackendDescriptorType_t kind) {
    const Descriptor* const from = a.part(name, kind);
    if (from == nullptr) return;
    d.graph = from->graph;
    d.engines = from->engines;
    d.handle = from->handle;
  };
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: check_tensor(d, a); break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
    case CUDNN_BACKEND_RESAMPLE_DESCRIPTOR: check_window(d, a); break;
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
      (void)a.one<int>(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE);
      break;
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
      (void)a.one<int>(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
      break;
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
      (void)a.one<int>(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE);
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      d.handle = a.one<void*>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE);
      d.graph = graph_of(d, a);
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      take(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
      if (d.graph != nullptr)
        d.engines = engines_for(
            *d.graph, a.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE));
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      take(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      if (a.one<void*>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE) != d.handle)
        a.say("a plan for another handle than its graph's");
      break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      if (a.list<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64).size() !=
          a.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR).size())
        a.say("another number of ids than of addresses");
      break;
    default: {
      const Slots* const slots = slots_of(d.type);
      if (slots == nullptr) {
        a.say("a descriptor of kind " + std::to_string(d.type));
        break;
      }
      const Described all = operation_of(d, *slots, a);
      if (!a.wrong()) check_operation(all, a);
    }
  }
  return a.wrong();
}

}  // namespace gradloom::strict
