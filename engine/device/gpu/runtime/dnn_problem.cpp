#include "engine/device/gpu/runtime/dnn_problem.h"

#include <algorithm>
#include <type_traits>

#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {
namespace {

void* writable(const void* address) { return const_cast<void*>(address); }

bool has_engines(DType type) { return type == DType::f32 || is_half(type); }

// ---- pooling ----------------------------------------------------------------------------------------------------------------------

// Along one dim, as the library counts windows: out = (in + pads - kernel) / stride + 1.
struct PoolDim {
  std::int64_t in, out, kernel, stride, pad_begin, pad_end;
};

// Pads just so large that the last window ends in them. With ceil_mode it may reach beyond the pads that the
// node has, which a divisor of those pads does not count: nothing then.
std::optional<PoolDim> pool_dim(const PoolShape& s, int d, PoolDivisor divisor) {
  const std::int64_t behind = (s.out[d] - 1) * s.stride[d] + s.kernel[d] - s.pad_begin[d] - s.in[d];
  const PoolDim dim{s.in[d],     s.out[d],       s.kernel[d],
                    s.stride[d], s.pad_begin[d], std::max<std::int64_t>(behind, 0)};
  const bool dilated = s.dilation[d] != 1 && s.kernel[d] != 1;
  const bool empty_window = dim.pad_begin >= dim.kernel || dim.pad_end >= dim.kernel;
  if (dilated || empty_window || divisor == PoolDivisor::one ||
      (divisor == PoolDivisor::padded && dim.pad_end > s.pad_end[d]))
    return std::nullopt;
  return dim;
}

std::optional<DnnProblem> pool_problem(DType dtype, const PoolShape& s, bool max, bool backward,
                                       PoolDivisor divisor) {
  if (!has_engines(dtype) || s.block != 1) return std::nullopt;
  PoolProblem p{};
  p.mode = max                              ? PoolMode::max
           : divisor == PoolDivisor::padded ? PoolMode::average_padded
                                            : PoolMode::average_inside;
  p.backward = backward;
  DnnSizes x{s.planes, 1}, y{s.planes, 1};
  const bool deep = s.in[0] != 1 || s.out[0] != 1 || s.kernel[0] != 1 || s.pad_begin[0] != 0;
  for (int d = deep ? 0 : 1; d < 3; ++d) {
    const auto dim = pool_dim(s, d, divisor);
    if (!dim) return std::nullopt;
    x.push_back(dim->in);
    y.push_back(dim->out);
    p.kernel.push_back(dim->kernel);
    p.stride.push_back(dim->stride);
    p.pad_begin.push_back(dim->pad_begin);
    p.pad_end.push_back(dim->pad_end);
  }
  p.x = dense_tensor('x', dtype, std::move(x));
  p.y = dense_tensor('y', dtype, std::move(y));
  return p;
}

std::optional<DnnCall> pool_call(std::optional<DnnProblem> problem, void* x, void* y) {
  if (!problem) return std::nullopt;
  return DnnCall{std::move(*problem), {{'x', x}, {'y', y}}};
}

// ---- batch normalization ----------------------------------------------------------------------------------------------------------

// Args: of forward or backward. Channels last and first are the same where there is one position. What is added and bounded behind it
// is for our own kernels.
template <class Args>
std::optional<BatchNormProblem> batch_norm_problem(const Args& args) {
  if constexpr (std::is_same_v<Args, BatchNormArgs>)
    if (args.added != nullptr) return std::nullopt;
  if (args.activation != NormActivation::none || !args.training || args.spatial != 1 || args.block != 1 ||
      !has_engines(args.dtype) || args.parameters != DType::f32)
    return std::nullopt;
  const auto of_x = [&](std::int64_t id) {
    return DnnTensor{id, args.dtype, {args.n, args.c, 1, 1}, {args.c, 1, args.c, args.c}};
  };
  const auto of_channels = [&](std::int64_t id) {
    return DnnTensor{id, DType::f32, {1, args.c, 1, 1}, {args.c, 1, args.c, args.c}};
  };
  BatchNormProblem p{};
  p.x = of_x('x');
  p.y = of_x('y');
  p.dx = of_x('d');
  p.scale = of_channels('s');
  p.bias = of_channels('b');
  p.dscale = of_channels('g');
  p.mean = of_channels('m');
  p.inv_std = of_channels('i');
  return p;
}

// ---- attention --------------------------------------------------------------------------------------------------------------------

DnnTensor strided(std::int64_t id, DType type, DnnSizes dims, const std::int64_t (&strides)[4]) {
  return {id, type, std::move(dims), DnnSizes(std::begin(strides), std::end(strides))};
}

bool packs(const std::int64_t (&strides)[4]) { return strides[3] == 1; }

std::optional<AttentionProblem> attention_problem(const AttentionArgs& a) {
  if (!is_half(a.dtype) || !packs(a.q_strides) || !packs(a.k_strides) || !packs(a.v_strides) ||
      !packs(a.y_strides))
    return std::nullopt;
  AttentionProblem p{};
  p.causal = a.causal;
  p.scale = a.scale;
  const DnnSizes q{a.batch, a.heads, a.rows, a.d}, k{a.batch, a.heads, a.keys, a.d},
      v{a.batch, a.heads, a.keys, a.e}, y{a.batch, a.heads, a.rows, a.e}, rows{a.batch, a.heads, a.rows, 1};
  p.q = strided('q', a.dtype, q, a.q_strides);
  p.k = strided('k', a.dtype, k, a.k_strides);
  p.v = strided('v', a.dtype, v, a.v_strides);
  p.y = strided('y', a.dtype, y, a.y_strides);
  p.log_sum_exp = dense_tensor('l', DType::f32, rows);
  p.row_sums = dense_tensor('r', DType::f32, rows);
  if (a.mask != nullptr)
    p.mask = dense_tensor('m', a.dtype, DnnSizes(std::begin(a.mask_dims), std::end(a.mask_dims)));
  return p;
}

// `p`: of its forward.
std::optional<AttentionProblem> gradient_of(AttentionProblem p, const AttentionGradArgs& args) {
  if (!packs(args.dy_strides) || !packs(args.dq_strides) || !packs(args.dk_strides) ||
      !packs(args.dv_strides))
    return std::nullopt;
  const AttentionArgs& a = args.forward;
  p.backward = true;
  p.dq = strided('Q', a.dtype, p.q.dims, args.dq_strides);
  p.dk = strided('K', a.dtype, p.k.dims, args.dk_strides);
  p.dv = strided('V', a.dtype, p.v.dims, args.dv_strides);
  p.dy = strided('Y', a.dtype, p.y.dims, args.dy_strides);
  return p;
}

// Of the forward's operands and results.
std::vector<DnnCall::Place> forward_places(const AttentionArgs& a, void* log_sum_exp) {
  std::vector<DnnCall::Place> places = {
      {'q', writable(a.q)}, {'k', writable(a.k)}, {'v', writable(a.v)}, {'y', a.y}, {'l', log_sum_exp}};
  if (a.mask != nullptr) places.push_back({'m', writable(a.mask)});
  return places;
}

// ---- keys -------------------------------------------------------------------------------------------------------------------------

class Key {
 public:
  std::vector<std::int64_t> words;

  void operator()(const ConvolutionProblem& p) {
    add(std::int64_t(p.kind), p.x, p.w, p.y, p.stride, p.pad_begin, p.pad_end, p.dilation);
  }
  void operator()(const PoolProblem& p) {
    add(std::int64_t(p.mode), std::int64_t{p.backward}, p.x, p.y, p.kernel, p.stride, p.pad_begin, p.pad_end);
  }
  void operator()(const BatchNormProblem& p) { add(std::int64_t{p.backward}, p.epsilon, p.x); }
  void operator()(const AttentionProblem& p) {
    add(std::int64_t{p.backward}, std::int64_t{p.causal}, p.scale, p.q, p.k, p.v, p.y);
    if (p.backward) add(p.dq, p.dk, p.dv, p.dy);
    if (p.mask) add_one(*p.mask);
  }

 private:
  template <class... Parts>
  void add(const Parts&... parts) {
    (add_one(parts), ...);
  }
  void add_one(std::int64_t word) { words.push_back(word); }
  void add_one(double number) {
    std::int64_t word;
    static_assert(sizeof word == sizeof number);
    std::copy_n(reinterpret_cast<const char*>(&number), sizeof word, reinterpret_cast<char*>(&word));
    words.push_back(word);
  }
  void add_one(const DnnSizes& sizes) {
    words.push_back(std::int64_t(sizes.size()));
    words.insert(words.end(), sizes.begin(), sizes.end());
  }
  void add_one(const DnnTensor& t) { add(std::int64_t(t.dtype), t.dims, t.strides); }
};

}  // namespace

DnnTensor dense_tensor(std::int64_t id, DType dtype, DnnSizes dims) {
  DnnSizes strides(dims.size());
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return {id, dtype, std::move(dims), std::move(strides)};
}

std::optional<DnnCall> dnn_call(const ConvolutionArgs& args) {
  const ConvolutionDesc& s = args.shape;
  if (!has_engines(s.dtype)) return std::nullopt;
  const bool deep = s.d != 1 || s.t != 1 || s.od != 1 || s.pad_front != 0 || s.pad_back != 0;
  // Without depth its size of 1 goes: the first of three.
  const auto spatial = [&](std::int64_t depth, std::int64_t height, std::int64_t width) {
    return deep ? DnnSizes{depth, height, width} : DnnSizes{height, width};
  };
  const auto tensor = [&](std::int64_t id, std::int64_t outer, std::int64_t inner, DnnSizes sizes) {
    sizes.insert(sizes.begin(), {outer, inner});
    return dense_tensor(id, s.dtype, std::move(sizes));
  };
  ConvolutionProblem p{args.kind,
                       tensor('x', s.n, s.c, spatial(s.d, s.h, s.w)),
                       tensor('w', s.k, s.c / s.groups, spatial(s.t, s.r, s.s)),
                       tensor('y', s.n, s.k, spatial(s.od, s.oh, s.ow)),
                       spatial(s.stride_d, s.stride_h, s.stride_w),
                       spatial(s.pad_front, s.pad_top, s.pad_left),
                       spatial(s.pad_back, s.pad_bottom, s.pad_right),
                       spatial(s.dilation_d, s.dilation_h, s.dilation_w)};
  void *const a = writable(args.a), *const b = writable(args.b);
  std::vector<DnnCall::Place> places;
  switch (args.kind) {
    case ConvolutionKind::forward: places = {{'x', a}, {'w', b}, {'y', args.out}}; break;
    case ConvolutionKind::backward_data: places = {{'x', args.out}, {'w', b}, {'y', a}}; break;
    case ConvolutionKind::backward_weights: places = {{'x', b}, {'w', args.out}, {'y', a}}; break;
  }
  return DnnCall{std::move(p), std::move(places), args.workspace,
                 args.workspace != nullptr ? args.workspace_bytes : 0};
}

std::optional<DnnCall> dnn_call(const MaxPoolArgs& args) {
  if (args.argmax != nullptr || args.indices != nullptr) return std::nullopt;
  return pool_call(pool_problem(args.dtype, args.shape, true, false, PoolDivisor::inside), writable(args.x),
                   args.y);
}
std::optional<DnnCall> dnn_call(const AveragePoolArgs& args) {
  return pool_call(pool_problem(args.dtype, args.shape, false, false, args.divisor), writable(args.x),
                   args.y);
}
std::optional<DnnCall> dnn_call(const AveragePoolGradArgs& args) {
  return pool_call(pool_problem(args.dtype, args.shape, false, true, args.divisor), args.dx,
                   writable(args.dy));
}

// Within the workspace of our own kernel. Not in place: that the library could is written nowhere. Nor the moments
// or sums alone.
std::optional<DnnCall> dnn_call(const BatchNormArgs& args) {
  auto p = batch_norm_problem(args);
  if (!p || args.y == nullptr || args.x == args.y) return std::nullopt;
  p->epsilon = args.epsilon;
  return DnnCall{std::move(*p),
                 {{'x', writable(args.x)},
                  {'y', args.y},
                  {'s', writable(args.scale)},
                  {'b', writable(args.bias)},
                  {'m', args.saved_mean},
                  {'i', args.saved_inv_std}},
                 args.workspace,
                 gpu::workspace_bytes(args)};
}
std::optional<DnnCall> dnn_call(const BatchNormGradArgs& args) {
  auto p = batch_norm_problem(args);
  if (!p || args.dx == nullptr || args.dx == args.dy || args.dx == args.x) return std::nullopt;
  p->backward = true;
  return DnnCall{std::move(*p),
                 {{'x', writable(args.x)},
                  {'y', writable(args.dy)},
                  {'d', args.dx},
                  {'s', writable(args.scale)},
                  {'g', args.dscale},
                  {'b', args.dbias},
                  {'m', writable(args.saved_mean)},
                  {'i', writable(args.saved_inv_std)}},
                 args.workspace,
                 gpu::workspace_bytes(args)};
}

std::optional<DnnCall> dnn_call(const AttentionArgs& args) {
  auto p = attention_problem(args);
  const std::size_t engine = attention_engine_at(args);
  if (!p || args.workspace == nullptr || args.workspace_bytes < engine) return std::nullopt;
  return DnnCall{std::move(*p),
                 forward_places(args, args.log_sum_exp != nullptr ? args.log_sum_exp : args.workspace),
                 static_cast<std::byte*>(args.workspace) + engine, args.workspace_bytes - engine};
}
std::optional<DnnCall> dnn_call(const AttentionGradArgs& args) {
  const AttentionArgs& a = args.forward;
  const auto forward = attention_problem(a);
  const std::size_t engine = attention_engine_at(a);
  if (!forward || a.workspace == nullptr || a.workspace_bytes < engine) return std::nullopt;
  auto backward = gradient_of(*forward, args);
  if (!backward) return std::nullopt;
  auto places = forward_places(a, a.log_sum_exp);
  for (const DnnCall::Place& place : {DnnCall::Place{'r', a.workspace},
                                      {'Y', writable(args.dy)},
                                      {'Q', args.dq},
                                      {'K', args.dk},
                                      {'V', args.dv}})
    places.push_back(place);
  return DnnCall{std::move(*backward), std::move(places), static_cast<std::byte*>(a.workspace) + engine,
                 a.workspace_bytes - engine};
}

bool aligned(const DnnCall& call) {
  return std::all_of(call.places.begin(), call.places.end(), [](const DnnCall::Place& place) {
    return place.address != nullptr && reinterpret_cast<std::uintptr_t>(place.address) % kDnnAlignment == 0;
  });
}

std::vector<std::int64_t> key_of(const DnnCall& call) {
  Key key;
  key.words = {std::int64_t(call.problem.index()), std::int64_t(call.workspace_bytes)};
  std::visit(key, call.problem);
  return std::move(key.words);
}

}  // namespace gradloom::kernels::gpu
