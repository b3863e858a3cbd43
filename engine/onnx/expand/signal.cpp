// Spectra: a discrete Fourier transform is a product with matrices of cosines and sines, so its gradient is
// one too. A long one is two of its factors (Cooley and Tukey, 1965).
//   DFT   X_k = sum_n x_n exp(-+ 2 pi i n k / N), the inverse divided by N; the last axis holds real and imaginary part
//   STFT  the DFT of windowed frames
//   HannWindow, HammingWindow, BlackmanWindow   sums of cosines
//   MelWeightMatrix                             triangles over the spectrum, equally wide on the mel scale
// Source: ONNX DFT-17 and -20, STFT-17, HannWindow-17, MelWeightMatrix-17.
#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/onnx/expand/expansion.h"
#include "engine/ops/inference.h"

namespace gradloom {

namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr std::int64_t kLargest = 4096;  // of one product: its matrices are constants

// One known integer; no value where the input is left out.
Result<std::optional<std::int64_t>> known_integer(Expander& e, std::size_t input, const char* what) {
  if (!e.has(input)) return std::optional<std::int64_t>{};
  const Tensor* known = e.known(e.in(input));
  if (known == nullptr) return e.unsupported(std::string("its ") + what + " is not known before running");
  if (known->count() != 1 || is_float(known->dtype()))
    return infer_error(std::string("its ") + what + " must be one integer");
  return std::optional<std::int64_t>{static_cast<std::int64_t>(known->at(0))};
}

struct Transform {
  std::int64_t length, bins;  // N, and how many of its N results are kept
  bool inverse;
};

struct Complex {
  ValueId re, im;  // im: kNone for real numbers
};

// cos and sign * sin of 2 pi r c / length, times weight(r): [rows, columns].
struct Waves {
  ValueId cosines, sines;
};

template <class Weight>
Waves waves(Expander& e, DType type, std::int64_t rows, std::int64_t columns, std::int64_t length,
            double sign, const Weight& weight) {
  std::vector<double> cosines, sines;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const double angle = 2 * kPi * static_cast<double>(r * c % length) / static_cast<double>(length);
      cosines.push_back(std::cos(angle) * weight(r));
      sines.push_back(sign * std::sin(angle) * weight(r));
    }
  }
  return {e.constant(Tensor::from_f64(type, {rows, columns}, cosines)),
          e.constant(Tensor::from_f64(type, {rows, columns}, sines))};
}

// The transform of the last axis as one product.
Result<Complex> multiplied(Expander& e, const Complex& x, const Transform& t) {
  const double scale = t.inverse ? 1 / static_cast<double>(t.length) : 1;
  const auto [c, s] = waves(e, e.dtype(x.re), t.length, t.bins, t.length, t.inverse ? 1 : -1,
                            [&](std::int64_t) { return scale; });
  Complex y{TRY(e.op("MatMul", {x.re, c})), TRY(e.op("MatMul", {x.re, s}))};
  if (x.im == kNone) return y;
  y.re = TRY(e.op("Sub", {y.re, TRY(e.op("MatMul", {x.im, s}))}));
  y.im = TRY(e.op("Add", {y.im, TRY(e.op("MatMul", {x.im, c}))}));
  return y;
}

// `f` of both parts.
template <class F>
Result<Complex> each_part(Complex x, const F& f) {
  for (ValueId* part : {&x.re, &x.im})
    if (*part != kNone) *part = TRY(f(*part));
  return x;
}

Result<ValueId> swapped(Expander& e, ValueId x, std::size_t a, std::size_t b) {
  if (a == b) return x;
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < e.rank(x); ++i) order.push_back(static_cast<std::int64_t>(i));
  std::swap(order[a], order[b]);
  return e.transpose(x, order);
}

// The largest factor that is no larger than its counterpart; 0 when they are too large.
std::int64_t factor_of(std::int64_t length) {
  std::int64_t factor = 1;
  for (std::int64_t f = 2; f <= kLargest && f * f <= length; ++f)
    if (length % f == 0) factor = f;
  return length / factor <= kLargest ? factor : 0;
}

// With N = a b, n = b p + q and k = r + a s:
//   X_k = sum_q exp(-2 pi i q s / b) exp(-2 pi i q r / N) sum_p exp(-2 pi i p r / a) x_n
Result<Complex> factored(Expander& e, Complex x, const Transform& t, std::int64_t a) {
  const std::int64_t b = t.length / a;
  const std::size_t last = e.rank(x.re);                        // after the split
  std::vector<std::int64_t> split(last - 1, 0), whole = split;  // 0 copies
  split.push_back(a);
  split.push_back(b);
  x = TRY(each_part(x, [&](ValueId part) -> Result<ValueId> {
    return swapped(e, TRY(e.reshape(part, split)), last - 1, last);  // [.., q, p]
  }));
  Complex y = TRY(multiplied(e, x, {a, a, t.inverse}));  // [.., q, r]
  const auto [c, s] =
      waves(e, e.dtype(y.re), b, a, t.length, t.inverse ? 1 : -1, [](std::int64_t) { return 1.0; });
  const ValueId re = y.re;
  y.re = TRY(e.op("Sub", {TRY(e.op("Mul", {re, c})), TRY(e.op("Mul", {y.im, s}))}));
  y.im = TRY(e.op("Add", {TRY(e.op("Mul", {re, s})), TRY(e.op("Mul", {y.im, c}))}));
  const auto turned = [&](ValueId part) { return swapped(e, part, last - 1, last); };
  y = TRY(multiplied(e, TRY(each_part(y, turned)), {b, b, t.inverse}));  // [.., r, s]
  whole.push_back(t.length);
  return each_part(y, [&](ValueId part) -> Result<ValueId> {
    const ValueId all = TRY(e.reshape(TRY(turned(part)), whole));
    return t.bins == t.length ? Result<ValueId>(all)
                              : e.slice(all, 0, t.bins, static_cast<std::int64_t>(last) - 1);
  });
}

Result<Complex> transformed(Expander& e, const Complex& x, const Transform& t) {
  if (t.length <= kLargest) return multiplied(e, x, t);
  const std::int64_t factor = factor_of(t.length);
  if (factor == 0)
    return e.unsupported("a length of " + std::to_string(t.length) + ", which has no factors up to " +
                         std::to_string(kLargest));
  return factored(e, x, t, factor);
}

// The axis cut to `length`, or filled with zeros.
Result<ValueId> resized(Expander& e, ValueId x, std::size_t axis, std::int64_t length) {
  const std::int64_t size = e.shape(x)[axis];
  if (size == length) return x;
  if (size > length) return e.slice(x, 0, length, static_cast<std::int64_t>(axis));
  std::vector<std::int64_t> pads(2 * e.rank(x), 0);
  pads[e.rank(x) + axis] = length - size;
  return e.op("Pad", {x, e.ints(pads)});
}

// The real numbers, `length` of them, of which the last axis holds the first half of the spectrum: the other
// half is conjugate to it, so each of its bins but the first and, for an even length, the last counts twice.
Result<ValueId> real_inverse(Expander& e, Complex x, std::int64_t length) {
  const auto weight = [&](std::int64_t k) { return k == 0 || 2 * k == length ? 1.0 : 2.0; };
  const std::int64_t bins = length / 2 + 1;
  if (length <= kLargest) {
    const auto [c, s] = waves(e, e.dtype(x.re), bins, length, length, 1,
                              [&](std::int64_t k) { return weight(k) / static_cast<double>(length); });
    return e.op("Sub", {TRY(e.op("MatMul", {x.re, c})), TRY(e.op("MatMul", {x.im, s}))});
  }
  // The real part of the transform of all bins, the other half 0.
  std::vector<double> weights;
  for (std::int64_t k = 0; k < bins; ++k) weights.push_back(weight(k));
  const ValueId row = e.constant(Tensor::from_f64(e.dtype(x.re), {bins}, weights));
  x = TRY(each_part(x, [&](ValueId part) -> Result<ValueId> {
    return resized(e, TRY(e.op("Mul", {part, row})), e.rank(part) - 1, length);
  }));
  return TRY(transformed(e, x, {length, length, true})).re;
}

// [.., 1 or 2] apart and together.
Result<Complex> split_parts(Expander& e, ValueId x) {
  const auto last = static_cast<std::int64_t>(e.rank(x)) - 1;
  const std::int64_t parts = e.shape(x).back();
  if (parts != 1 && parts != 2) return infer_error("the last axis must hold 1 or 2 numbers: real, imaginary");
  const auto part = [&](std::int64_t i) -> Result<ValueId> {
    return e.op("Squeeze", {TRY(e.slice(x, i, i + 1, last)), e.ints({last})});
  };
  const ValueId re = TRY(part(0));
  return Complex{re, parts == 1 ? kNone : TRY(part(1))};
}

Result<ValueId> join_parts(Expander& e, const Complex& y) {
  const auto axis = static_cast<std::int64_t>(e.rank(y.re));
  const ValueId re = TRY(e.op("Unsqueeze", {y.re, e.ints({axis})})),
                im = TRY(e.op("Unsqueeze", {y.im, e.ints({axis})}));
  return e.op("Concat", {re, im}, {{"axis", axis}});
}

// Inputs: x [.., n, .., 1 or 2], the length, from opset 20 on the axis.
Status dft(Expander& e) {
  const std::size_t rank = e.rank(e.in(0));
  if (rank < 2) return infer_error("the input has rank " + std::to_string(rank));
  const auto given = TRY(known_integer(e, 2, "axis"));
  const std::int64_t wanted = given                                        ? *given
                              : e.attrs.has("axis") || e.input_count() > 2 ? e.attrs.integer("axis", -2)
                                                                           : -2;
  const auto axis = static_cast<std::size_t>(TRY(normalized_axis(wanted, rank)));
  if (axis + 1 == rank) return infer_error("the axis is that of the real and imaginary parts");
  const auto length = TRY(known_integer(e, 1, "length"));
  const bool one_sided = e.attrs.integer("onesided") != 0, inverse = e.attrs.integer("inverse") != 0,
             to_real = one_sided && inverse;
  const std::int64_t given_bins = e.shape(e.in(0))[axis];
  Transform t{length.value_or(to_real && given_bins > 0 ? 2 * (given_bins - 1) : given_bins), 0, inverse};
  if (t.length < 0) return e.unsupported("the length of its axis is not known");
  if (t.length < 1) return infer_error("its length is " + std::to_string(t.length));
  t.bins = one_sided ? t.length / 2 + 1 : t.length;
  Complex x = TRY(split_parts(e, TRY(resized(e, e.in(0), axis, to_real ? t.bins : t.length))));
  if (to_real && x.im == kNone)
    return infer_error("the inverse of a one-sided transform takes complex numbers");
  for (ValueId* part : {&x.re, &x.im})
    if (*part != kNone) *part = TRY(swapped(e, *part, axis, rank - 2));
  if (to_real) {
    const ValueId y = TRY(swapped(e, TRY(real_inverse(e, x, t.length)), axis, rank - 2));
    e.outputs[0] = TRY(e.op("Unsqueeze", {y, e.ints({static_cast<std::int64_t>(rank) - 1})}));
    return {};
  }
  Complex y = TRY(transformed(e, x, t));
  for (ValueId* part : {&y.re, &y.im}) *part = TRY(swapped(e, *part, axis, rank - 2));
  e.outputs[0] = TRY(join_parts(e, y));
  return {};
}

// The axis is 1 where opset 17 leaves it out.
Status dft_17(Expander& e) {
  if (e.attrs.has("axis")) return dft(e);
  if (e.rank(e.in(0)) < 3) return infer_error("the input has rank " + std::to_string(e.rank(e.in(0))));
  return e.rank(e.in(0)) == 3 ? dft(e)
                              : e.unsupported("its default axis with more than one axis to choose from");
}

// Inputs: signal [b, n] or [b, n, 1 or 2], step, window, frame length. Output: [b, frames, bins, 2].
Status stft(Expander& e) {
  ValueId signal = e.in(0);
  if (e.rank(signal) == 2) signal = TRY(e.op("Unsqueeze", {signal, e.ints({2})}));
  if (e.rank(signal) != 3) return infer_error("the signal has rank " + std::to_string(e.rank(signal)));
  const auto step = TRY(known_integer(e, 1, "step")), given = TRY(known_integer(e, 3, "frame length"));
  const std::int64_t samples = e.shape(signal)[1];
  const std::int64_t length = given ? *given : e.has(2) ? e.shape(e.in(2))[0] : -1;
  if (samples < 0 || length < 0) return e.unsupported("the length of its signal or frames is not known");
  if (!step || *step < 1 || length < 1 || length > samples)
    return infer_error("its step or frame length does not fit");
  const std::int64_t frames = (samples - length) / *step + 1;
  if (frames > (std::int64_t{1} << 26) / length) return e.unsupported("this many frames");
  std::vector<std::int64_t> at;
  for (std::int64_t f = 0; f < frames; ++f)
    for (std::int64_t i = 0; i < length; ++i) at.push_back(f * *step + i);
  const ValueId places = TRY(e.reshape(e.ints(at), {frames, length}));
  const ValueId framed = TRY(e.op("Gather", {signal, places}, {{"axis", std::int64_t{1}}}));
  Complex x = TRY(split_parts(e, framed));
  if (e.has(2))
    for (ValueId* part : {&x.re, &x.im})
      if (*part != kNone) *part = TRY(e.op("Mul", {*part, e.in(2)}));
  const bool one_sided = e.attrs.integer("onesided", 1) != 0;
  const Transform t{length, one_sided ? length / 2 + 1 : length, false};
  e.outputs[0] = TRY(join_parts(e, TRY(transformed(e, x, t))));
  return {};
}

// a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N), N one less where the window is symmetric.
Status window(Expander& e, double a0, double a1, double a2) {
  const auto size = TRY(known_integer(e, 0, "size"));
  if (!size || *size < 0 || *size > (1 << 24)) return infer_error("its size must be from 0 to 2^24");
  const bool periodic = e.attrs.integer("periodic", 1) != 0;
  const double period = static_cast<double>(std::max<std::int64_t>(*size - (periodic ? 0 : 1), 1));
  std::vector<double> values;
  for (std::int64_t n = 0; n < *size; ++n) {
    const double angle = 2 * kPi * static_cast<double>(n) / period;
    values.push_back(a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle));
  }
  e.outputs[0] = TRY(e.op("Cast", {e.constant(Tensor::from_f64(DType::f64, {*size}, values))},
                          {{"to", e.attrs.integer("output_datatype", onnx_from_dtype(DType::f32))}}));
  return {};
}

Status hann(Expander& e) { return window(e, 0.5, 0.5, 0); }
Status hamming(Expander& e) { return window(e, 25.0 / 46, 1 - 25.0 / 46, 0); }
Status blackman(Expander& e) { return window(e, 0.42, 0.5, 0.08); }

// Inputs: number of triangles, length of the transform, sample rate, lowest and highest frequency in Hz.
Status mel_weights(Expander& e) {
  double numbers[5];
  for (std::size_t i = 0; i < 5; ++i) {
    const Tensor* known = e.known(e.in(i));
    if (known == nullptr) return e.unsupported("input " + std::to_string(i) + " is not known before running");
    if (known->count() != 1) return infer_error("its inputs must be single numbers");
    numbers[i] = known->at(0);
  }
  const auto [bands, length, rate, low, high] = numbers;
  if (bands < 1 || length < 1 || rate < 1 || bands > 4096 || length > (1 << 20) || low < 0 || high <= low)
    return infer_error("its numbers do not make bands");
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const auto rows = static_cast<std::int64_t>(length) / 2 + 1, columns = static_cast<std::int64_t>(bands);
  std::vector<double> edges;  // bins of the spectrum
  for (std::int64_t i = 0; i < columns + 2; ++i) {
    const double at =
        mel(low) + static_cast<double>(i) * (mel(high) - mel(low)) / static_cast<double>(columns + 2);
    edges.push_back(std::floor((length + 1) * 700 * (std::pow(10, at / 2595) - 1) / rate));
  }
  std::vector<double> weights(static_cast<std::size_t>(rows * columns), 0);
  for (std::int64_t k = 0; k < columns; ++k) {
    const auto edge = [&](std::int64_t i) { return edges[static_cast<std::size_t>(k + i)]; };
    const auto put = [&](double row, double weight) {
      if (row >= 0 && row < static_cast<double>(rows))
        weights[static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) +
                static_cast<std::size_t>(k)] = weight;
    };
    if (edge(1) == edge(0)) put(edge(1), 1);
    for (double row = edge(0); row <= edge(1) && edge(1) > edge(0); ++row)
      put(row, (row - edge(0)) / (edge(1) - edge(0)));
    for (double row = edge(1); row < edge(2); ++row) put(row, (edge(2) - row) / (edge(2) - edge(1)));
  }
  e.outputs[0] = TRY(e.op("Cast", {e.constant(Tensor::from_f64(DType::f64, {rows, columns}, weights))},
                          {{"to", e.attrs.integer("output_datatype", onnx_from_dtype(DType::f32))}}));
  return {};
}

}  // namespace

std::span<const Expansion> signal_expansions() {
  static const std::vector<Expansion> kTable = {
      {"DFT", "", 17, 19, 1, 2, 1, dft_17, {}},
      {"DFT", "", 20, kNewest, 1, 3, 1, dft, {}},
      {"STFT", "", 17, kNewest, 2, 4, 1, stft, {}},
      {"HannWindow", "", 17, kNewest, 1, 1, 1, hann, {}},
      {"HammingWindow", "", 17, kNewest, 1, 1, 1, hamming, {}},
      {"BlackmanWindow", "", 17, kNewest, 1, 1, 1, blackman, {}},
      {"MelWeightMatrix", "", 17, kNewest, 5, 5, 1, mel_weights, {}},
  };
  return kTable;
}

}  // namespace gradloom
