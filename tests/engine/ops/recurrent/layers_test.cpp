// RNN, GRU and LSTM against the equations of the specification, one item and one unit at a time; shapes and
// errors. The gradients are proven with the samples (tests/engine/every_op_gradient_test.cpp).
#include "tests/engine/ops/numeric_support.h"

namespace gradloom {
namespace {

using namespace gradloom::test;

constexpr std::int64_t kSteps = 4, kBatch = 3, kInputs = 2, kHidden = 5;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// A layer of one direction; tensors by the names of the specification.
struct Layer {
  std::string kind;
  std::int64_t gates;
  Tensor x, w, r, b, h0, c0, p;
  Ints lengths{4, 2, 3};
  bool reverse = false, linear = false;

  explicit Layer(const std::string& name)
      : kind(name),
        gates(name == "RNN"   ? 1
              : name == "GRU" ? 3
                              : 4),
        x(numbers(DType::f64, {kSteps, kBatch, kInputs}, 1)),
        w(numbers(DType::f64, {1, gates * kHidden, kInputs}, 2)),
        r(numbers(DType::f64, {1, gates * kHidden, kHidden}, 3)),
        b(numbers(DType::f64, {1, 2 * gates * kHidden}, 4)),
        h0(numbers(DType::f64, {1, kBatch, kHidden}, 5)),
        c0(numbers(DType::f64, {1, kBatch, kHidden}, 6)),
        p(numbers(DType::f64, {1, 3 * kHidden}, 7)) {}

  double from_input(std::int64_t gate, std::int64_t unit, std::int64_t t, std::int64_t item) const {
    const std::int64_t row = gate * kHidden + unit;
    double sum = b.at(row);
    for (std::int64_t i = 0; i < kInputs; ++i)
      sum += w.at(row * kInputs + i) * x.at((t * kBatch + item) * kInputs + i);
    return sum;
  }
  double from_state(std::int64_t gate, std::int64_t unit, const std::vector<double>& h) const {
    const std::int64_t row = gate * kHidden + unit;
    double sum = b.at((gates + gate) * kHidden + unit);
    for (std::int64_t j = 0; j < kHidden; ++j)
      sum += r.at(row * kHidden + j) * h[static_cast<std::size_t>(j)];
    return sum;
  }
  void step(std::int64_t t, std::int64_t item, std::vector<double>& h, std::vector<double>& c) const {
    const std::vector<double> before = h;
    const auto sum = [&](std::int64_t gate, std::int64_t unit) {
      return from_input(gate, unit, t, item) + from_state(gate, unit, before);
    };
    std::vector<double> reset(before);
    for (std::int64_t j = 0; kind == "GRU" && j < kHidden; ++j)
      reset[static_cast<std::size_t>(j)] *= sigmoid(sum(1, j));
    for (std::int64_t j = 0; j < kHidden; ++j) {
      const auto u = static_cast<std::size_t>(j);
      if (kind == "RNN") {
        h[u] = std::tanh(sum(0, j));
      } else if (kind == "GRU") {
        const double z = sigmoid(sum(0, j));
        const double state = linear ? sigmoid(sum(1, j)) * from_state(2, j, before) : from_state(2, j, reset);
        h[u] = (1 - z) * std::tanh(from_input(2, j, t, item) + state) + z * before[u];
      } else {
        const double i = sigmoid(sum(0, j) + p.at(j) * c[u]),
                     f = sigmoid(sum(2, j) + p.at(2 * kHidden + j) * c[u]);
        c[u] = f * c[u] + i * std::tanh(sum(3, j));
        h[u] = sigmoid(sum(1, j) + p.at(kHidden + j) * c[u]) * std::tanh(c[u]);
      }
    }
  }
  Attrs attrs() const {
    return {{"hidden_size", kHidden},
            {"direction", std::string(reverse ? "reverse" : "forward")},
            {"linear_before_reset", std::int64_t{linear}}};
  }
  std::vector<Tensor> inputs() const {
    const Tensor n = Tensor::from_i64(lengths).cast(DType::i32);
    if (kind == "LSTM") return {x, w, r, b, n, h0, c0, p};
    return {x, w, r, b, n, h0};
  }
};

void check(const Layer& layer) {
  std::vector<double> y(static_cast<std::size_t>(kSteps * kBatch * kHidden)), last_h, last_c;
  for (std::int64_t item = 0; item < kBatch; ++item) {
    std::vector<double> h, c;
    for (std::int64_t j = 0; j < kHidden; ++j) {
      h.push_back(layer.h0.at(item * kHidden + j));
      c.push_back(layer.c0.at(item * kHidden + j));
    }
    const std::int64_t length = layer.lengths[static_cast<std::size_t>(item)];
    for (std::int64_t s = 0; s < length; ++s) {
      const std::int64_t t = layer.reverse ? length - 1 - s : s;
      layer.step(t, item, h, c);
      for (std::int64_t j = 0; j < kHidden; ++j)
        y[static_cast<std::size_t>((t * kBatch + item) * kHidden + j)] = h[static_cast<std::size_t>(j)];
    }
    last_h.insert(last_h.end(), h.begin(), h.end());
    last_c.insert(last_c.end(), c.begin(), c.end());
  }
  const bool lstm = layer.kind == "LSTM";
  const auto got = run(layer.kind.c_str(), layer.attrs(), layer.inputs(), lstm ? 3 : 2);
  expect_near(got[0], {kSteps, 1, kBatch, kHidden}, y, 1e-13, "Y");
  expect_near(got[1], {1, kBatch, kHidden}, last_h, 1e-13, "Y_h");
  if (lstm) expect_near(got[2], {1, kBatch, kHidden}, last_c, 1e-13, "Y_c");
}

TEST(Recurrent, FollowsTheEquations) {
  for (const char* kind : {"RNN", "GRU", "LSTM"}) {
    for (const bool reverse : {false, true}) {
      for (const bool linear : {false, true}) {
        SCOPED_TRACE(std::string(kind) + (reverse ? " reverse" : "") + (linear ? " linear" : ""));
        Layer layer(kind);
        layer.reverse = reverse;
        layer.linear = linear;
        check(layer);
      }
    }
  }
}

// Both directions in one node are the two nodes side by side, and the layout changes only where things are.
TEST(Recurrent, DirectionsAndLayouts) {
  for (const char* kind : {"RNN", "GRU", "LSTM"}) {
    SCOPED_TRACE(kind);
    Layer layer(kind);
    const auto twice = [](const Tensor& t) {
      Shape shape = t.shape();
      shape[0] = 2;
      std::vector<double> values = t.to_f64(), again = values;
      values.insert(values.end(), again.begin(), again.end());
      return Tensor::from_f64(DType::f64, shape, values);
    };
    const std::vector<Tensor> both{layer.x, twice(layer.w), twice(layer.r), twice(layer.b)};
    Attrs attrs{{"hidden_size", kHidden}, {"direction", std::string("bidirectional")}};
    const Tensor y = run(kind, attrs, both)[0];
    Tensor single[2];
    for (int d = 0; d < 2; ++d)
      single[d] =
          run(kind, {{"hidden_size", kHidden}, {"direction", std::string(d == 0 ? "forward" : "reverse")}},
              {layer.x, layer.w, layer.r, layer.b})[0];
    const Tensor flipped = run("Transpose", {{"perm", Ints{1, 0, 2}}}, {layer.x})[0];
    attrs.set("layout", std::int64_t{1});
    const Tensor batch_first = run(kind, attrs, {flipped, both[1], both[2], both[3]})[0];
    ASSERT_EQ(batch_first.shape(), (Shape{kBatch, kSteps, 2, kHidden}));
    for (std::int64_t i = 0; i < y.count(); ++i) {
      const std::int64_t j = i % kHidden, item = i / kHidden % kBatch, d = i / kHidden / kBatch % 2,
                         t = i / kHidden / kBatch / 2;
      EXPECT_EQ(y.at(i), single[d].at((t * kBatch + item) * kHidden + j));
      EXPECT_NEAR(y.at(i), batch_first.at(((item * kSteps + t) * 2 + d) * kHidden + j), 1e-15);
    }
  }
}

TEST(Recurrent, ClipBoundsWhatActivationsGet) {
  const Tensor x = Tensor::from_f64(DType::f64, {1, 1, 1}, {10}),
               w = Tensor::from_f64(DType::f64, {1, 1, 1}, {1});
  const Tensor r(DType::f64, {1, 1, 1});
  expect_near(run("RNN", {{"hidden_size", std::int64_t{1}}, {"clip", 0.5}}, {x, w, r})[0], {1, 1, 1, 1},
              {std::tanh(0.5)}, 1e-15);
}

TEST(Recurrent, ShapesAndErrors) {
  const Type x{DType::f32, {-1, -2, 4}}, w{DType::f32, {1, 12, 4}}, r{DType::f32, {1, 12, 3}};
  const auto types = inferred("LSTM", {{"hidden_size", std::int64_t{3}}}, {x, w, r}, 3);
  EXPECT_EQ(types[0].shape, (Shape{-1, 1, -2, 3}));
  EXPECT_EQ(types[2].shape, (Shape{1, -2, 3}));
  EXPECT_EQ(inference_error("LSTM", {{"direction", std::string("up")}}, {x, w, r}),
            "direction 'up' is unknown");
  EXPECT_EQ(inference_error("LSTM", {{"activations", std::string("Tanh,Gelu,Tanh")}}, {x, w, r}),
            "activation 'gelu' is unknown");
  EXPECT_EQ(inference_error("LSTM", {{"activations", std::string("Tanh")}}, {x, w, r}),
            "activations has 1 entries, 3 are needed");
  EXPECT_EQ(inference_error("LSTM", {}, {x, {DType::f32, {1, 12, 5}}, r}),
            "W is [1, 12, 5] instead of [1, 12, 4]");
  EXPECT_EQ(inference_error("LSTM", {{"hidden_size", std::int64_t{4}}}, {x, w, r}),
            "recurrent weights [1, 12, 3] do not fit 1 directions of 4 gates of hidden_size 4");
}

}  // namespace
}  // namespace gradloom
