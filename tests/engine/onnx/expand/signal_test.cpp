// Spectra as bodies.
#include "engine/onnx/expand/expansion.h"

#include "tests/engine/onnx/expand/support.h"

namespace gradloom::expand_test {
namespace {

// One row of `length` complex numbers, zeros after its end.
Array spectrum(const Array& re, const Array& im, int length, int bins, bool inverse) {
  Array y;
  for (int k = 0; k < bins; ++k) {
    double real = 0, imaginary = 0;
    for (int n = 0; n < length && n < static_cast<int>(re.size()); ++n) {
      const double angle = (inverse ? 2 : -2) * 3.14159265358979323846 * n * k / length;
      const auto i = static_cast<std::size_t>(n);
      real += re[i] * std::cos(angle) - im[i] * std::sin(angle);
      imaginary += re[i] * std::sin(angle) + im[i] * std::cos(angle);
    }
    y.push_back(inverse ? real / length : real);
    y.push_back(inverse ? imaginary / length : imaginary);
  }
  return y;
}

Array concatenated(std::initializer_list<Array> parts) {
  Array all;
  for (const Array& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(ExpandSignal, TransformsOfRealAndComplexNumbers) {
  const Expanded real = expanded("g (float[2, 5, 1] x) => (float[2, 5, 2] y) { y = DFT<axis = 1>(x) }", 17);
  const Array& x = real.inputs.at("x");
  const Array zeros(5, 0), first(x.begin(), x.begin() + 5), second(x.begin() + 5, x.end());
  expect_near(outputs_of(real)[0],
              concatenated({spectrum(first, zeros, 5, 5, false), spectrum(second, zeros, 5, 5, false)}));
  expect_gradients(real);

  for (const bool inverse : {false, true}) {
    // Cut to 3, and filled up to 6.
    for (const std::int64_t length : {3, 6}) {
      const std::string size = std::to_string(length);
      const Expanded e =
          expanded("g (float[1, 5, 2] x, int64 n, int64 axis) => (float[1, " + size +
                       ", 2] y) { y = DFT<inverse = " + std::string(inverse ? "1" : "0") + ">(x, n, axis) }",
                   20,
                   {{"n", Tensor::scalar(DType::i64, static_cast<double>(length))},
                    {"axis", Tensor::scalar(DType::i64, -2)}});
      Array re, im;
      for (std::size_t i = 0; i < 10 && i < static_cast<std::size_t>(2 * length); i += 2) {
        re.push_back(e.inputs.at("x")[i]);
        im.push_back(e.inputs.at("x")[i + 1]);
      }
      const int n = static_cast<int>(length);
      expect_near(outputs_of(e)[0], spectrum(re, im, n, n, inverse));
      expect_gradients(e);
    }
  }
}

TEST(ExpandSignal, AnAxisInTheMiddleOneSided) {
  const Expanded e =
      expanded("g (float[4, 2, 1] x, int64 axis) => (float[3, 2, 2] y) { y = DFT<onesided = 1>(x, , axis) }",
               20, {{"axis", Tensor::scalar(DType::i64, 0)}});
  const Array& x = e.inputs.at("x");
  const Array zeros(4, 0), a = spectrum({x[0], x[2], x[4], x[6]}, zeros, 4, 3, false),
                           b = spectrum({x[1], x[3], x[5], x[7]}, zeros, 4, 3, false);
  Array want;
  for (std::size_t k = 0; k < 6; k += 2)
    for (const double value : {a[k], a[k + 1], b[k], b[k + 1]}) want.push_back(value);
  expect_near(outputs_of(e)[0], want);
}

// One half of a spectrum gives real numbers: the inverse of the whole, conjugate spectrum.
TEST(ExpandSignal, HalfASpectrumBecomesRealNumbers) {
  // The default length, an odd one that drops a bin, and one that adds zeros.
  for (const int length : {6, 5, 9}) {
    const std::string size = std::to_string(length);
    const Expanded e = expanded(
        "g (float[1, 4, 2] x, int64 n, int64 axis) => (float[1, " + size +
            ", 1] y) { y = DFT<inverse = 1, onesided = 1>(x, " + (length == 6 ? "" : "n") + ", axis) }",
        20, {{"n", Tensor::scalar(DType::i64, length)}, {"axis", Tensor::scalar(DType::i64, 1)}});
    const Array& x = e.inputs.at("x");
    const auto bins = static_cast<std::size_t>(length);
    Array re(bins, 0), im(bins, 0), want;
    for (std::size_t k = 0; k < 4 && k <= bins / 2; ++k) {
      re[k] = re[(bins - k) % bins] = x[2 * k];
      if (k == 0 || 2 * k == bins) continue;  // its conjugate is itself: no imaginary part
      im[k] = x[2 * k + 1];
      im[bins - k] = -x[2 * k + 1];
    }
    const Array whole = spectrum(re, im, length, length, true);
    for (std::size_t i = 0; i < whole.size(); i += 2) want.push_back(whole[i]);
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
}

TEST(ExpandSignal, FramesAreWindowed) {
  const Expanded e =
      expanded("g (float[1, 8] x, int64 step, float[4] w) => (float[1, 3, 3, 2] y) { y = STFT(x, step, w) }",
               17, {{"step", Tensor::scalar(DType::i64, 2)}});
  const Array &x = e.inputs.at("x"), &w = e.inputs.at("w");
  Array want;
  for (std::size_t frame = 0; frame < 3; ++frame) {
    Array part;
    for (std::size_t i = 0; i < 4; ++i) part.push_back(x[2 * frame + i] * w[i]);
    want = concatenated({want, spectrum(part, Array(4, 0), 4, 3, false)});
  }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandSignal, WindowsAreConstants) {
  const auto window = [](const std::string& op, const std::string& attributes) {
    const Expanded e = expanded("g (int64 n) => (float[5] y) { y = " + op + attributes + "(n) }", 17,
                                {{"n", Tensor::scalar(DType::i64, 5)}});
    return e.model.graph.value(e.model.graph.outputs[0]).data.to_f64();
  };
  expect_near(window("HannWindow", "<periodic = 0>"), {0, 0.5, 1, 0.5, 0});
  const double c = std::cos(2 * 3.14159265358979323846 / 5);
  EXPECT_NEAR(window("HannWindow", "")[1], 0.5 - 0.5 * c, 1e-12);
  EXPECT_NEAR(window("HammingWindow", "")[1], 25.0 / 46 - 21.0 / 46 * c, 1e-12);
  EXPECT_NEAR(window("BlackmanWindow", "")[1], 0.42 - 0.5 * c + 0.08 * (2 * c * c - 1), 1e-12);
}

// 4100 = 50 * 82: two transforms with factors between them.
TEST(ExpandSignal, LongTransformsAreTwo) {
  const std::vector<std::size_t> bins = {0, 1, 77, 1234, 2050, 3333, 4099};
  for (const bool inverse : {false, true}) {
    const Expanded e =
        expanded("g (float[1, 4100, 2] x) => (float[1, 4100, 2] y) { y = DFT<axis = 1, inverse = " +
                     std::string(inverse ? "1" : "0") + ">(x) }",
                 17);
    const Array y = outputs_of(e)[0], &x = e.inputs.at("x");
    ASSERT_EQ(y.size(), 8200u);
    for (const std::size_t k : bins) {
      double re = 0, im = 0;
      for (std::size_t n = 0; n < 4100; ++n) {
        const double angle = (inverse ? 2 : -2) * M_PI * static_cast<double>(n * k % 4100) / 4100;
        re += x[2 * n] * std::cos(angle) - x[2 * n + 1] * std::sin(angle);
        im += x[2 * n] * std::sin(angle) + x[2 * n + 1] * std::cos(angle);
      }
      EXPECT_NEAR(y[2 * k], inverse ? re / 4100 : re, 1e-9) << k;
      EXPECT_NEAR(y[2 * k + 1], inverse ? im / 4100 : im, 1e-9) << k;
    }
  }
  const Expanded half =
      expanded("g (float[1, 4100, 1] x) => (float[1, 2051, 2] y) { y = DFT<axis = 1, onesided = 1>(x) }", 17);
  const Array y = outputs_of(half)[0], &x = half.inputs.at("x");
  ASSERT_EQ(y.size(), 4102u);
  double alternating = 0;
  for (std::size_t n = 0; n < 4100; ++n) alternating += n % 2 == 0 ? x[n] : -x[n];
  EXPECT_NEAR(y[2 * 2050], alternating, 1e-9);
  EXPECT_NEAR(y[2 * 2050 + 1], 0, 1e-9);
}

// An even and an odd length; imaginary parts of bins that are their own conjugates do not count.
TEST(ExpandSignal, LongHalvesOfSpectraBecomeRealNumbers) {
  for (const std::size_t length : {4100u, 4101u}) {
    const std::string size = std::to_string(length), bins = std::to_string(length / 2 + 1);
    const Expanded e = expanded("g (float[1, " + bins + ", 2] x, int64 n) => (float[1, " + size +
                                    ", 1] y) { y = DFT<axis = 1, inverse = 1, onesided = 1>(x, n) }",
                                17, {{"n", Tensor::scalar(DType::i64, static_cast<double>(length))}});
    const Array y = outputs_of(e)[0], &x = e.inputs.at("x");
    ASSERT_EQ(y.size(), length);
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{77}, length / 2, length - 1}) {
      double sum = 0;
      for (std::size_t k = 0; k <= length / 2; ++k) {
        const double angle = 2 * M_PI * static_cast<double>(n * k % length) / static_cast<double>(length);
        const double part = x[2 * k] * std::cos(angle) - x[2 * k + 1] * std::sin(angle);
        sum += k == 0 || 2 * k == length ? part : 2 * part;
      }
      EXPECT_NEAR(y[n], sum / static_cast<double>(length), 1e-9) << length << " " << n;
    }
  }
}

TEST(ExpandSignal, WhatIsNotKnownIsTheReason) {
  const auto refused = [](const std::string& text, int opset, const std::string& reason) {
    expect_refused(import_model(model_from_text(text, opset)), Errc::bad_input, {reason});
  };
  refused("g (float[2, 5, 1] x, int64 n) => (float[2, 5, 2] y) { y = DFT<axis = 1>(x, n) }", 17,
          "its length is not known before running");
  refused("g (float[2, 5, 1] x) => (float[2, 8, 1] y) { y = DFT<axis = 1, inverse = 1, onesided = 1>(x) }",
          17, "takes complex numbers");
  refused("g (float[2, 5, 1] x) => (float[2, 5, 2] y) { y = DFT<axis = 2>(x) }", 17,
          "real and imaginary parts");
  refused("g (float[2, 4099, 1] x) => (float[2, 4099, 2] y) { y = DFT<axis = 1>(x) }", 17,
          "a length of 4099, which has no factors up to 4096");
  refused("g (int64 n) => (float[5] y) { y = HannWindow(n) }", 17, "its size is not known before running");
}

}  // namespace
}  // namespace gradloom::expand_test
