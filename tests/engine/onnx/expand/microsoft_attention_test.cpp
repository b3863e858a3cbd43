// Attention as ONNX Runtime's optimizer writes it, and its position bias.
#include "engine/onnx/expand/expansion.h"

#include "tests/engine/onnx/expand/support.h"

namespace gradloom::expand_test {
namespace {

Array columns_of(const Array& rows, std::size_t size, std::size_t begin, std::size_t end) {
  Array y;
  for (std::size_t row = 0; row < rows.size(); row += size)
    y.insert(y.end(), rows.begin() + static_cast<std::ptrdiff_t>(row + begin),
             rows.begin() + static_cast<std::ptrdiff_t>(row + end));
  return y;
}

// A finite filling value shows that masked keys are hidden by what is added, not left out.
TEST(ExpandMicrosoftAttention, PackedWeightsOfThreeSizes) {
  const std::vector<int> mask = {1, 1, 0, 0, 1, 1};
  const Expanded e = expanded(
      "g (float[2, 3, 4] x, float[4, 16] w, float[16] b, int32[2, 3] m, float[1, 2, 3, 3] a) =>"
      "(float[2, 3, 4] y) { y = com.microsoft.Attention<num_heads = 2, qkv_hidden_sizes = [6, 6, 4],"
      "unidirectional = 1, mask_filter_value = -3.0, scale = 0.5>(x, w, b, m, , a) }",
      17, {{"m", Tensor::from_i64({1, 1, 0, 0, 1, 1}).cast(DType::i32).reshaped({2, 3})}});
  Array p = product(e.inputs.at("x"), e.inputs.at("w"), 4);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] += e.inputs.at("b")[i % 16];
  AttentionOptions o;
  o.scale = 0.5;
  o.causal = true;
  o.bias = [&](int b, int h, int i, int j) {
    return e.inputs.at("a")[static_cast<std::size_t>((h * 3 + i) * 3 + j)] +
           (mask[static_cast<std::size_t>(b * 3 + j)] != 0 ? 0 : -3);
  };
  const Array y = attention({2, 2, 2, 3, 3, 3, 2}, swapped(columns_of(p, 16, 0, 6), 2, 3, 2, 3),
                            swapped(columns_of(p, 16, 6, 12), 2, 3, 2, 3),
                            swapped(columns_of(p, 16, 12, 16), 2, 3, 2, 2), o);
  expect_near(outputs_of(e)[0], swapped(y, 2, 2, 3, 2));
  expect_gradients(e);
}

TEST(ExpandMicrosoftAttention, FormsOfTheMask) {
  struct Form {
    const char* shape;
    std::vector<std::int64_t> values;
    std::function<bool(int b, int i, int j)> seen;
  };
  const std::vector<std::int64_t> three = {1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1};
  const Form forms[] = {
      {"[2]", {2, 3}, [](int b, int, int j) { return j < 2 + b; }},
      {"[4]", {2, 3, 0, 1}, [](int b, int, int j) { return j < 2 + b && j >= b; }},
      {"[2, 3]", {1, 0, 1, 0, 1, 1}, [](int b, int, int j) { return b == 0 ? j != 1 : j != 0; }},
      {"[2, 3, 3]", three,
       [&](int b, int i, int j) { return three[static_cast<std::size_t>((b * 3 + i) * 3 + j)] != 0; }}};
  for (const Form& form : forms) {
    const std::string shape = form.shape;
    Shape dims = shape == "[2]" ? Shape{2} : shape == "[4]" ? Shape{4} : Shape{2, 3};
    if (form.values.size() == 18) dims = {2, 3, 3};
    const Expanded e = expanded("g (float[2, 3, 4] x, float[4, 12] w, int32" + shape +
                                    " m) => (float[2, 3, 4] y, float[2, 2, 2, 3, 2] present)"
                                    "{ y, present = com.microsoft.Attention<num_heads = 2>(x, w, , m) }",
                                17, {{"m", Tensor::from_i64(form.values).cast(DType::i32).reshaped(dims)}});
    const Array p = product(e.inputs.at("x"), e.inputs.at("w"), 4);
    AttentionOptions o;
    o.bias = [&](int b, int, int i, int j) { return form.seen(b, i, j) ? 0 : -10000; };
    const Array k = swapped(columns_of(p, 12, 4, 8), 2, 3, 2, 2),
                v = swapped(columns_of(p, 12, 8, 12), 2, 3, 2, 2);
    const Array y = attention({2, 2, 2, 3, 3, 2, 2}, swapped(columns_of(p, 12, 0, 4), 2, 3, 2, 2), k, v, o);
    const auto outputs = outputs_of(e);
    expect_near(outputs[0], swapped(y, 2, 2, 3, 2));
    Array both = k;
    both.insert(both.end(), v.begin(), v.end());
    expect_near(outputs[1], both);
    expect_gradients(e);
  }
}

TEST(ExpandMicrosoftAttention, QuantizedIsThatOfTheRealNumbers) {
  const std::vector<std::int64_t> x = {3, 7, 0, 255, 12, 9}, w = {1, -2, 3, 4, -5, 6, 7, 8, -9, 10, 11, -12},
                                  wz = {0, 1, 2, 3, 4, 5};
  const Array scales = {0.125, 0.25, 0.5, 0.0625, 0.25, 1};
  const Expanded e = expanded(
      "g (uint8[1, 3, 2] x, int8[2, 6] w, float[6] b, float[1] s, float[6] t, int32[1] m, uint8 z, int8[6] u)"
      " => (float[1, 3, 2] y) { y = com.microsoft.QAttention<num_heads = 1>(x, w, b, s, t, m, z, u) }",
      17,
      {{"x", Tensor::from_i64(x).cast(DType::u8).reshaped({1, 3, 2})},
       {"w", Tensor::from_i64(w).cast(DType::i8).reshaped({2, 6})},
       {"s", Tensor::from_f64(DType::f32, {1}, {0.03125})},
       {"t", Tensor::from_f64(DType::f32, {6}, scales)},
       {"m", Tensor::from_i64({2}).cast(DType::i32)},
       {"z", Tensor::scalar(DType::u8, 5)},
       {"u", Tensor::from_i64(wz).cast(DType::i8)}});
  Array rows, matrix;
  for (const std::int64_t v : x) rows.push_back(static_cast<double>(v - 5) * 0.03125);
  for (std::size_t i = 0; i < w.size(); ++i)
    matrix.push_back(static_cast<double>(w[i] - wz[i % 6]) * scales[i % 6]);
  Array p = product(rows, matrix, 2);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] += e.inputs.at("b")[i % 6];
  AttentionOptions o;
  o.bias = [](int, int, int, int j) { return j < 2 ? 0 : -10000; };
  expect_near(outputs_of(e)[0], attention({1, 1, 1, 3, 3, 2, 2}, columns_of(p, 6, 0, 2),
                                          columns_of(p, 6, 2, 4), columns_of(p, 6, 4, 6), o));
  expect_gradients(e);
}

TEST(ExpandMicrosoftAttention, RefusesWhatItCannotMean) {
  const auto refused = [](const std::string& attributes, const std::string& rest, const std::string& text) {
    expect_refused(import_model(microsoft_model(
                       "g (float[2, 3, 4] x, float[4, 12] w, float[12] b, int32[8] c, int32[5] d, "
                       "int32[2, 1, 3, 3] m, float[2, 3] f, float[2, 2, 2, 1, 2] p) => (float y)"
                       "{ y = com.microsoft.Attention<" +
                       attributes + ">(x, w, b" + rest + ") }")),
                   Errc::bad_input, {"Attention", text});
  };
  refused("num_heads = 2", ", , p", "a past");
  refused("num_heads = 2", ", c", "cumulated");
  refused("num_heads = 2", ", d", "mask_index [5]");
  refused("num_heads = 2", ", m", "rank 4");
  refused("num_heads = 2", ", f", "integers");
  refused("num_heads = 3", "", "size 4 in 3 heads");
  refused("unidirectional = 1", "", "0 heads");
  refused("num_heads = 2, do_rotary = 1", "", "do_rotary");
  refused("num_heads = 2, qkv_hidden_sizes = [4, 4, 5]", "", "qkv_hidden_sizes");
  refused("num_heads = 2, qkv_hidden_sizes = [4, 8]", "", "no query, key and value");
  expect_refused(import_model(microsoft_model("g (float[2, 3, 2, 3, 2] q) => (float y)"
                                              "{ y = com.microsoft.MultiHeadAttention<num_heads = 3>(q) }")),
                 Errc::bad_input, {"num_heads is 3, packed are 2"});
}

// Every head has its query, key and value behind each other.
TEST(ExpandMicrosoftAttention, PackedInputs) {
  const auto part = [](const Array& packed, std::size_t parts, std::size_t which) {  // [.., H, parts, 2]
    Array y;
    for (std::size_t i = 0; i < packed.size(); i += 2 * parts)
      for (std::size_t d = 0; d < 2; ++d) y.push_back(packed[i + 2 * which + d]);
    return y;
  };
  const auto biased = [](Array x, const Array& b, std::size_t which) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += b[which * 4 + i % 4];
    return x;
  };
  const Expanded all = expanded(
      "g (float[2, 3, 2, 3, 2] q, float[12] b) => (float[2, 3, 4] y)"
      "{ y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, , , b) }",
      17);
  Array x[3];
  for (std::size_t i = 0; i < 3; ++i)
    x[i] = swapped(biased(part(all.inputs.at("q"), 3, i), all.inputs.at("b"), i), 2, 3, 2, 2);
  expect_near(outputs_of(all)[0],
              swapped(attention({2, 2, 2, 3, 3, 2, 2}, x[0], x[1], x[2], {}), 2, 2, 3, 2));
  expect_gradients(all);
  const Expanded two = expanded(
      "g (float[2, 3, 4] q, float[2, 5, 2, 2, 2] k) => (float[2, 3, 4] y)"
      "{ y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k) }",
      17);
  const Array k = swapped(part(two.inputs.at("k"), 2, 0), 2, 5, 2, 2),
              v = swapped(part(two.inputs.at("k"), 2, 1), 2, 5, 2, 2);
  expect_near(outputs_of(two)[0],
              swapped(attention({2, 2, 2, 3, 5, 2, 2}, swapped(two.inputs.at("q"), 2, 3, 2, 2), k, v, {}), 2,
                      2, 3, 2));
  expect_gradients(two);
}

// The expected buckets are those of the published formula in float64.
TEST(ExpandPositionBias, BucketsOfDistances) {
  const Expanded both = expanded(
      "g (float[8, 2] t, int64 q, int64 k) => (float[1, 2, 4, 40] y)"
      "{ y = com.microsoft.RelativePositionBias<is_bidirectional = 1, max_distance = 16>(t, q, k) }",
      17, {{"q", Tensor::from_i64({4}).reshaped({})}, {"k", Tensor::from_i64({40}).reshaped({})}});
  std::vector<std::size_t> row = {0, 5, 6, 6, 6, 6};
  row.resize(40, 7);
  std::vector<std::size_t> last = {2, 2, 1, 0, 5, 6, 6, 6, 6};
  last.resize(40, 7);
  const Array y = outputs_of(both)[0], &table = both.inputs.at("t");
  ASSERT_EQ(y.size(), 320u);
  for (std::size_t head = 0; head < 2; ++head)
    for (std::size_t j = 0; j < 40; ++j) {
      EXPECT_EQ(y[head * 160 + j], table[row[j] * 2 + head]) << j;
      EXPECT_EQ(y[head * 160 + 3 * 40 + j], table[last[j] * 2 + head]) << j;
    }
  expect_gradients(both);
  const Expanded past = expanded(
      "g (float[8, 1] t, int64[1] q, int64[1] k) => (float[1, 1, 40, 3] y)"
      "{ y = com.microsoft.RelativePositionBias<max_distance = 16>(t, q, k) }",
      17, {{"q", Tensor::from_i64({40})}, {"k", Tensor::from_i64({3})}});
  std::vector<std::size_t> column = {0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6};
  column.resize(40, 7);
  const Array z = outputs_of(past)[0];
  ASSERT_EQ(z.size(), 120u);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(z[3 * i], past.inputs.at("t")[column[i]]) << i;
  EXPECT_EQ(z[1], past.inputs.at("t")[0]);  // keys behind the query
  expect_refused(
      import_model(microsoft_model("g (float[8, 1] t, int64 q) => (float y)"
                                   "{ y = com.microsoft.RelativePositionBias<max_distance = 16>(t, q, q) }")),
      Errc::bad_input, {"lengths are not known"});
}

TEST(ExpandPositionBias, GatesOfTheQuery) {
  const Expanded e = expanded(
      "g (float[2, 3, 4] q, float[4] qb, float[1, 2, 3, 3] r, float[2, 6] w, float[6] b, float[1, 2, 1, 1] a)"
      " => (float[2, 2, 3, 3] y)"
      "{ y = com.microsoft.GatedRelativePositionBias<num_heads = 2>(q, qb, r, w, b, a) }",
      17);
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  Array want;
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t h = 0; h < 2; ++h)
      for (std::size_t i = 0; i < 3; ++i) {
        double gates[2] = {0, 0};
        for (std::size_t j = 0; j < 6; ++j) {
          gates[j / 3] += e.inputs.at("b")[j];
          for (std::size_t d = 0; d < 2; ++d)
            gates[j / 3] += (e.inputs.at("q")[(n * 3 + i) * 4 + h * 2 + d] + e.inputs.at("qb")[h * 2 + d]) *
                            e.inputs.at("w")[d * 6 + j];
        }
        const double gate = sigmoid(gates[0]) * (sigmoid(gates[1]) * e.inputs.at("a")[h] - 1) + 2;
        for (std::size_t j = 0; j < 3; ++j) want.push_back(gate * e.inputs.at("r")[(h * 3 + i) * 3 + j]);
      }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

}  // namespace
}  // namespace gradloom::expand_test
