#include "tests/engine/device/gpu/driver/libraries/operations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tests/engine/device/gpu/driver/libraries/numbers.h"

namespace gradloom::strict {

using namespace kernels::gpu;

cudaDataType_t Array::stored() const {
  return type == CUDNN_DATA_HALF ? CUDA_R_16F : type == CUDNN_DATA_BFLOAT16 ? CUDA_R_16BF : CUDA_R_32F;
}
std::int64_t Array::count() const {
  std::int64_t count = 1;
  for (const std::int64_t dim : dims) count *= dim;
  return count;
}
std::size_t Array::bytes() const {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < dims.size(); ++d) last += (dims[d] - 1) * strides[d];
  return std::size_t(last + 1) * width();
}

namespace {

// Where element `number` in the order of `dims` is in `a`, whose dims of 1 are the same for all.
std::int64_t offset_of(const Array& a, const Sizes& dims, std::int64_t number) {
  std::int64_t offset = 0;
  for (std::size_t d = dims.size(); d-- > 0;) {
    const std::int64_t i = number % dims[d];
    number /= dims[d];
    if (a.dims[d] != 1) offset += i * a.strides[d];
  }
  return offset;
}
double get(const Array& a, const Sizes& dims, std::int64_t number) {
  return load<double>(a.stored(), a.at, offset_of(a, dims, number));
}
void set(const Array& a, std::int64_t number, double x) {
  store(a.stored(), a.at, offset_of(a, a.dims, number), x);
}
// Dense, in the order of the dims.
std::vector<double> read(const Array& a) {
  std::vector<double> all(std::size_t(a.count()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = get(a, a.dims, std::int64_t(i));
  return all;
}
void write(const Array& a, const std::vector<double>& all) {
  for (std::size_t i = 0; i < all.size(); ++i) set(a, std::int64_t(i), all[i]);
}

// ---- windows ----------------------------------------------------------------------------------------------------------------------

using Three = std::array<std::int64_t, 3>;
// Spatial sizes: the last ones of `dims`, after ones.
Three three(const Sizes& sizes, std::size_t first, std::int64_t otherwise) {
  Three all{otherwise, otherwise, otherwise};
  for (std::size_t i = first; i < sizes.size(); ++i) all[3 - (sizes.size() - i)] = sizes[i];
  return all;
}

// Calls each(output position, filter position, input position) for all that lie within the input.
template <class F>
void for_windows(const Three& in, const Three& out, const Three& kernel, const Three& stride,
                 const Three& pad, const Three& dilation, const F& each) {
  const auto total = [](const Three& sizes) { return sizes[0] * sizes[1] * sizes[2]; };
  for (std::int64_t o = 0; o < total(out); ++o) {
    const Three at_out{o / (out[1] * out[2]), o / out[2] % out[1], o % out[2]};
    for (std::int64_t f = 0; f < total(kernel); ++f) {
      const Three at{f / (kernel[1] * kernel[2]), f / kernel[2] % kernel[1], f % kernel[2]};
      Three from{};
      bool inside = true;
      for (std::size_t d = 0; d < 3; ++d) {
        from[d] = at_out[d] * stride[d] - pad[d] + at[d] * dilation[d];
        inside = inside && from[d] >= 0 && from[d] < in[d];
      }
      if (inside) each(o, f, (from[0] * in[1] + from[1]) * in[2] + from[2]);
    }
  }
}

// read, written: of x, w and y, in the order of the operation's attributes, the two that are read and the one that is written.
void convolve(const Operation& o, const Array& x, const Array& w, const Array& y) {
  const Three in = three(x.dims, 2, 1), out = three(y.dims, 2, 1), kernel = three(w.dims, 2, 1);
  const std::int64_t n = x.dims[0], channels = w.dims[1], groups = x.dims[1] / channels, k = w.dims[0],
                     positions = in[0] * in[1] * in[2], outputs = out[0] * out[1] * out[2],
                     filters = kernel[0] * kernel[1] * kernel[2];
  const bool data = o.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
             weights = o.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
  std::vector<double> of_x = data ? std::vector<double>(std::size_t(x.count())) : read(x),
                      of_w = weights ? std::vector<double>(std::size_t(w.count())) : read(w),
                      of_y = data || weights ? read(y) : std::vector<double>(std::size_t(y.count()));
  for (std::int64_t both = 0; both < n * k * channels; ++both) {
    const std::int64_t image = both / (k * channels), to = both / channels % k, c = both % channels;
    double* const xs = of_x.data() + (image * x.dims[1] + to / (k / groups) * channels + c) * positions;
    double* const ws = of_w.data() + (to * channels + c) * filters;
    double* const ys = of_y.data() + (image * k + to) * outputs;
    for_windows(in, out, kernel, three(o.window.stride, 0, 1), three(o.window.pad_begin, 0, 0),
                three(o.window.dilation, 0, 1), [&](std::int64_t at_y, std::int64_t at_w, std::int64_t at_x) {
                  if (data)
                    xs[at_x] += ws[at_w] * ys[at_y];
                  else if (weights)
                    ws[at_w] += xs[at_x] * ys[at_y];
                  else
                    ys[at_y] += xs[at_x] * ws[at_w];
                });
  }
  write(data ? x : weights ? w : y, data ? of_x : weights ? of_w : of_y);
}

void pool(const Operation& o, const Array& x, const Array& y) {
  const Three in = three(x.dims, 2, 1), out = three(y.dims, 2, 1), kernel = three(o.window.kernel, 0, 1);
  const std::int64_t planes = x.dims[0] * x.dims[1], positions = in[0] * in[1] * in[2],
                     outputs = out[0] * out[1] * out[2];
  const bool max = o.mode == CUDNN_RESAMPLE_MAXPOOL,
             back = o.type == CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR;
  std::vector<std::int64_t> inside(std::size_t(outputs), 0);
  const auto windows = [&](const auto& each) {
    for_windows(in, out, kernel, three(o.window.stride, 0, 1), three(o.window.pad_begin, 0, 0), {1, 1, 1},
                each);
  };
  windows([&](std::int64_t at_y, std::int64_t, std::int64_t) { ++inside[std::size_t(at_y)]; });
  const auto divisor = [&](std::int64_t at_y) {
    return double(o.mode == CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING ? kernel[0] * kernel[1] * kernel[2]
                                                                   : inside[std::size_t(at_y)]);
  };
  std::vector<double> of_x = back ? std::vector<double>(std::size_t(x.count())) : read(x),
                      of_y = back ? read(y)
                                  : std::vector<double>(std::size_t(y.count()),
                                                        max ? -std::numeric_limits<double>::infinity() : 0);
  for (std::int64_t plane = 0; plane < planes; ++plane) {
    double *const xs = of_x.data() + plane * positions, *const ys = of_y.data() + plane * outputs;
    windows([&](std::int64_t at_y, std::int64_t, std::int64_t at_x) {
      if (back)
        xs[at_x] += ys[at_y] / divisor(at_y);
      else if (max)
        ys[at_y] = std::isnan(ys[at_y]) || ys[at_y] > xs[at_x] ? ys[at_y] : xs[at_x];
      else
        ys[at_y] += xs[at_x] / divisor(at_y);
    });
  }
  write(back ? x : y, back ? of_x : of_y);
}

// ---- normalization ----------------------------------------------------------------------------------------------------------------

// read: x, scale, bias, epsilon; written: y, mean, 1 / deviation. Of each channel, over all else.
void normalize(const Array& x, const Array& scale, const Array& bias, const Array& epsilon, const Array& y,
               const Array& mean, const Array& inv_std) {
  const std::vector<double> all = read(x);
  const std::int64_t channels = x.dims[1], inner = x.count() / (x.dims[0] * channels),
                     per = x.count() / channels;
  std::vector<double> means(std::size_t(channels), 0.0), squares(std::size_t(channels), 0.0);
  const auto channel = [&](std::size_t i) { return std::size_t(std::int64_t(i) / inner % channels); };
  for (std::size_t i = 0; i < all.size(); ++i) means[channel(i)] += all[i] / double(per);
  for (std::size_t i = 0; i < all.size(); ++i)
    squares[channel(i)] += (all[i] - means[channel(i)]) * (all[i] - means[channel(i)]) / double(per);
  for (double& s : squares) s = 1 / std::sqrt(s + get(epsilon, epsilon.dims, 0));
  const std::vector<double> factors = read(scale), shifts = read(bias);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t c = channel(i);
    set(y, std::int64_t(i), (all[i] - means[c]) * squares[c] * factors[c] + shifts[c]);
  }
  write(mean, means);
  write(inv_std, squares);
}

// read: x, dy, scale, mean, 1 / deviation; written: dx, dscale, dbias.
void normalize_back(const Array& x, const Array& dy, const Array& scale, const Array& mean,
                    const Array& inv_std, const Array& dx, const Array& dscale, const Array& dbias) {
  const std::vector<double> xs = read(x), gs = read(dy), factors = read(scale), means = read(mean),
                            stds = read(inv_std);
  const std::int64_t channels = x.dims[1], inner = x.count() / (x.dims[0] * channels);
  const double per = double(x.count() / channels);
  std::vector<double> of_scale(std::size_t(channels), 0.0), of_bias(std::size_t(channels), 0.0);
  const auto channel = [&](std::size_t i) { return std::size_t(std::int64_t(i) / inner % channels); };
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const std::size_t c = channel(i);
    of_bias[c] += gs[i];
    of_scale[c] += gs[i] * (xs[i] - means[c]) * stds[c];
  }
  for (std::size_t i = 0; i < xs.size(); ++i) {
    const std::size_t c = channel(i);
    const double normal = (xs[i] - means[c]) * stds[c];
    set(dx, std::int64_t(i), factors[c] * stds[c] * (gs[i] - of_bias[c] / per - normal * of_scale[c] / per));
  }
  write(dscale, of_scale);
  write(dbias, of_bias);
}

// ---- parts of attention -----------------------------------------------------------------------------------------------------------

// read: x, and b, and what selects; written: y.
void pointwise(const Operation& o, const Array& x, const Array* b, const Array* select, const Array& y) {
  for (std::int64_t i = 0; i < y.count(); ++i) {
    const double a = get(x, y.dims, i), other = b != nullptr ? get(*b, y.dims, i) : 0;
    double result = 0;
    switch (o.mode) {
      case CUDNN_POINTWISE_ADD: result = a + other; break;
      case CUDNN_POINTWISE_SUB: result = a - other; break;
      case CUDNN_POINTWISE_MUL: result = a * other; break;
      case CUDNN_POINTWISE_DIV: result = a / other; break;
      case CUDNN_POINTWISE_EXP: result = std::exp(a); break;
      case CUDNN_POINTWISE_LOG: result = std::log(a); break;
      case CUDNN_POINTWISE_CMP_GE: result = a >= other ? 1 : 0; break;
      case CUDNN_POINTWISE_BINARY_SELECT: result = get(*select, y.dims, i) != 0 ? a : other; break;
      default: {  // CUDNN_POINTWISE_GEN_INDEX
        std::int64_t behind = 1;
        for (std::size_t d = std::size_t(o.axis) + 1; d < y.dims.size(); ++d) behind *= y.dims[d];
        result = double(i / behind % y.dims[std::size_t(o.axis)]);
      }
    }
    set(y, i, result);
  }
}

void reduce(const Operation& o, const Array& x, const Array& y) {
  const bool max = o.mode == CUDNN_REDUCE_TENSOR_MAX;
  std::vector<double> result(std::size_t(y.count()), max ? -std::numeric_limits<double>::infinity() : 0);
  Array numbers = y;  // where in `result` an element of x goes
  std::int64_t step = 1;
  for (std::size_t d = y.dims.size(); d-- > 0; step *= y.dims[d]) numbers.strides[d] = step;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    double& to = result[std::size_t(offset_of(numbers, x.dims, i))];
    const double value = get(x, x.dims, i);
    to = max ? std::max(to, value) : to + value;
  }
  write(y, result);
}

void matmul(const Array& a, const Array& b, const Array& c) {
  const std::size_t rank = c.dims.size();
  const std::int64_t rows = c.dims[rank - 2], columns = c.dims[rank - 1], inner = a.dims[rank - 1];
  const Sizes a_dims = [&] {
    Sizes dims = c.dims;
    dims[rank - 1] = inner;
    return dims;
  }();
  const Sizes b_dims = [&] {
    Sizes dims = c.dims;
    dims[rank - 2] = inner;
    return dims;
  }();
  for (std::int64_t i = 0; i < c.count(); ++i) {
    const std::int64_t batch = i / (rows * columns), row = i / columns % rows, column = i % columns;
    double sum = 0;
    for (std::int64_t k = 0; k < inner; ++k)
      sum += get(a, a_dims, (batch * rows + row) * inner + k) *
             get(b, b_dims, (batch * inner + k) * columns + column);
    set(c, i, sum);
  }
}

// The same places with other dims and strides, in the type of y.
void reshape(const Array& x, const Array& y) {
  for (std::int64_t i = 0; i < y.count(); ++i) {
    const std::int64_t at = offset_of(y, y.dims, i);
    store(y.stored(), y.at, at, load<double>(x.stored(), x.at, at));
  }
}

void run_one(const Operation& o, std::vector<Array>& t) {
  const auto in = [&](std::size_t i) -> Array& { return t[std::size_t(o.read[i])]; };
  const auto out = [&](std::size_t i) -> Array& { return t[std::size_t(o.written[i])]; };
  const auto given = [&](std::size_t i) { return o.read.size() > i && o.read[i] >= 0 ? &in(i) : nullptr; };
  switch (o.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: return convolve(o, in(0), in(1), out(0));
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return convolve(o, out(0), in(1), in(0));
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return convolve(o, in(1), out(0), in(0));
    case CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR: return pool(o, in(0), out(0));
    case CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR: return pool(o, out(0), in(0));
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
      return normalize(in(0), in(1), in(2), in(3), out(0), out(1), out(2));
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR:
      return normalize_back(in(0), in(1), in(2), in(3), in(4), out(0), out(1), out(2));
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return pointwise(o, in(0), given(1), given(2), out(0));
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return reduce(o, in(0), out(0));
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return matmul(in(0), in(1), out(0));
    default: return reshape(in(0), out(0));
  }
}

}  // namespace

void run(OperationGraph graph) {
  for (Array& t : graph.tensors) {
    if (!t.is_virtual) continue;
    t.held = std::make_shared<std::vector<std::byte>>(t.bytes());
    t.at = t.held->data();
  }
  for (const Operation& o : graph.operations) run_one(o, graph.tensors);
}

}  // namespace gradloom::strict
