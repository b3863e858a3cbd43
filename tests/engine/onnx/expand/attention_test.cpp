// Attention, rotary embeddings and group query attention as bodies.
#include "engine/onnx/expand/expansion.h"

#include "tests/engine/onnx/expand/support.h"

namespace gradloom::expand_test {
namespace {

// ---- attention ------------------------------------------------------------------------------------------

constexpr const char* kFour =
    "g (float[2, 4, 3, 5] q, float[2, 2, 6, 5] k, float[2, 2, 6, 3] v) => (float[2, 4, 3, 3] y) ";

TEST(ExpandAttention, GroupsScaleAndSoftcap) {
  const Expanded e =
      expanded(std::string(kFour) + "{ y = Attention<scale = 0.7, softcap = 0.4>(q, k, v) }", 23);
  AttentionOptions o;
  o.scale = 0.7f;
  o.softcap = 0.4f;
  expect_near(outputs_of(e)[0],
              attention({2, 4, 2, 3, 6, 5, 3}, e.inputs.at("q"), e.inputs.at("k"), e.inputs.at("v"), o));
  expect_gradients(e);
}

TEST(ExpandAttention, CausalWithPast) {
  const Expanded e = expanded(
      "g (float[2, 4, 3, 5] q, float[2, 2, 3, 5] k, float[2, 2, 3, 4] v, float[2, 2, 2, 5] pk, float[2, 2, "
      "2, 4] pv)"
      " => (float[2, 4, 3, 4] y, float[2, 2, 5, 5] nk, float[2, 2, 5, 4] nv)"
      "{ y, nk, nv = Attention<is_causal = 1>(q, k, v, , pk, pv) }");
  const auto joined = [&](const char* past, const char* now, int size) {
    Array all;
    for (int head = 0; head < 4; ++head) {
      const Array &a = e.inputs.at(past), &b = e.inputs.at(now);
      all.insert(all.end(), a.begin() + head * 2 * size, a.begin() + (head + 1) * 2 * size);
      all.insert(all.end(), b.begin() + head * 3 * size, b.begin() + (head + 1) * 3 * size);
    }
    return all;
  };
  const Array keys = joined("pk", "k", 5), values = joined("pv", "v", 4);
  AttentionOptions o;
  o.causal = true;
  o.past = 2;
  const auto outputs = outputs_of(e);
  expect_near(outputs[0], attention({2, 4, 2, 3, 5, 5, 4}, e.inputs.at("q"), keys, values, o));
  expect_near(outputs[1], keys);
  expect_near(outputs[2], values);
  expect_gradients(e);
}

TEST(ExpandAttention, AddedMaskAndHeadsInOneAxis) {
  const Expanded e = expanded(
      "g (float[2, 3, 8] q, float[2, 6, 4] k, float[2, 6, 6] v, float[3, 6] m) => (float[2, 3, 12] y)"
      "{ y = Attention<q_num_heads = 4, kv_num_heads = 2, is_causal = 1>(q, k, v, m) }");
  AttentionOptions o;
  o.causal = true;
  o.bias = [&](int, int, int i, int j) { return e.inputs.at("m")[static_cast<std::size_t>(i * 6 + j)]; };
  const Array y = attention({2, 4, 2, 3, 6, 2, 3}, swapped(e.inputs.at("q"), 2, 3, 4, 2),
                            swapped(e.inputs.at("k"), 2, 6, 2, 2), swapped(e.inputs.at("v"), 2, 6, 2, 3), o);
  expect_near(outputs_of(e)[0], swapped(y, 2, 4, 3, 3));
  expect_gradients(e);
}

// One column of a mask is for all keys by the text of opset 23, and for the first key by the function body of 24.
TEST(ExpandAttention, MaskOfOneColumn) {
  for (const int opset : {23, 24}) {
    const Expanded e = expanded(
        "g (float[1, 2, 3, 4] q, float[1, 2, 5, 4] k, float[1, 2, 5, 3] v, float[3, 1] m) => (float[1, 2, 3, 3] "
        "y) { y = Attention(q, k, v, m) }",
        opset);
    AttentionOptions o;
    o.bias = [&](int, int, int i, int) { return e.inputs.at("m")[static_cast<std::size_t>(i)]; };
    o.allowed = [&](int, int, int, int j) { return opset == 23 || j == 0; };
    expect_near(outputs_of(e)[0],
                attention({1, 2, 2, 3, 5, 4, 3}, e.inputs.at("q"), e.inputs.at("k"), e.inputs.at("v"), o));
    expect_gradients(e);
  }
}

TEST(ExpandAttention, BooleanMaskWithAnEmptyRowAndShortMask) {
  Tensor mask(DType::boolean, {3, 4});
  const std::vector<int> bits = {1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 1};
  for (std::size_t i = 0; i < bits.size(); ++i)
    static_cast<std::uint8_t*>(mask.mutable_data())[i] = static_cast<std::uint8_t>(bits[i]);
  const Expanded e = expanded(
      "g (float[2, 4, 3, 5] q, float[2, 2, 6, 5] k, float[2, 2, 6, 3] v, bool[3, 4] m) => (float[2, 4, 3, 3] "
      "y)"
      "{ y = Attention(q, k, v, m) }",
      24, {{"m", mask}});
  AttentionOptions o;
  o.allowed = [&](int, int, int i, int j) { return j < 4 && bits[static_cast<std::size_t>(i * 4 + j)] != 0; };
  expect_near(outputs_of(e)[0],
              attention({2, 4, 2, 3, 6, 5, 3}, e.inputs.at("q"), e.inputs.at("k"), e.inputs.at("v"), o));
  expect_gradients(e);
}

TEST(ExpandAttention, LengthsOfTheKeys) {
  for (const bool causal : {false, true}) {
    const Expanded e = expanded(
        "g (float[2, 4, 3, 5] q, float[2, 2, 6, 5] k, float[2, 2, 6, 3] v, int64[2] n) => (float[2, 4, 3, 3] "
        "y)"
        "{ y = Attention<is_causal = " +
            std::string(causal ? "1" : "0") + ">(q, k, v, , , , n) }",
        24, {{"n", Tensor::from_i64({4, 6})}});
    AttentionOptions o;
    o.allowed = [&](int b, int, int i, int j) {
      const int length = b == 0 ? 4 : 6;
      return j < length && (!causal || j <= i + length - 3);
    };
    expect_near(outputs_of(e)[0],
                attention({2, 4, 2, 3, 6, 5, 3}, e.inputs.at("q"), e.inputs.at("k"), e.inputs.at("v"), o));
    expect_gradients(e);
  }
}

TEST(ExpandAttention, ScoresAreAnOutputOfEachStage) {
  const auto scores = [](int mode) {
    const Expanded e = expanded(
        "g (float[1, 1, 2, 3] q, float[1, 1, 2, 3] k, float[1, 1, 2, 3] v, float[2, 2] m)"
        " => (float[1, 1, 2, 3] y, float[1, 1, 2, 2] s)"
        "{ y, , , s = Attention<softcap = 0.5, qk_matmul_output_mode = " +
        std::to_string(mode) + ">(q, k, v, m) }");
    return std::pair(outputs_of(e)[1], e.inputs.at("m"));
  };
  const Array raw = scores(0).first, capped = scores(1).first, masked = scores(2).first,
              weights = scores(3).first;
  const Array mask = scores(0).second;
  ASSERT_EQ(raw.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(capped[i], 0.5 * std::tanh(raw[i] / 0.5), 1e-12);
    EXPECT_NEAR(masked[i], capped[i] + mask[i], 1e-12);
    EXPECT_NEAR(weights[i],
                std::exp(masked[i]) / (std::exp(masked[i / 2 * 2]) + std::exp(masked[i / 2 * 2 + 1])), 1e-12);
  }
}

TEST(ExpandAttention, CausalMasksAreSharedAndSymbolicSizesStay) {
  const std::string text =
      "g (float[B, 2, T, 4] q) => (float[B, 2, T, 4] y) { h = Attention<is_causal = 1>(q, q, q)"
      " y = Attention<is_causal = 1>(h, h, h) }";
  const auto symbolic = import_model(model_from_text(text, 23));
  ASSERT_TRUE(symbolic.ok()) << symbolic.error().message;
  ImportOptions options;
  options.dims = {{"B", 2}, {"T", 5}};
  const auto bound = import_model(model_from_text(text, 23), options);
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  int masks = 0;
  for (const Value& v : bound->graph.values)
    masks += v.data.defined() && v.type == Type{DType::boolean, {5, 5}};
  EXPECT_EQ(masks, 1);
  EXPECT_EQ(to_string(test::value_of(bound->graph, "y").type), "f32[2, 2, 5, 4]");
}

TEST(ExpandAttention, RefusesWhatDoesNotFit) {
  const auto refused = [](const std::string& node, const std::string& text) {
    expect_refused(
        import_model(model_from_text("g (float[2, 4, 3, 5] q, float[2, 3, 6, 5] k, float[2, 3, 8] t)"
                                     " => (float[2, 4, 3, 5] y) { y = " +
                                         node + " }",
                                     23)),
        Errc::bad_input, {"node 'Attention_0' (Attention)", text});
  };
  refused("Attention(q, k, k)", "4 query heads for 3 key heads");
  refused("Attention(q, k, t)", "rank");
  refused("Attention<q_num_heads = 3, kv_num_heads = 2>(t, t, t)", "size 8 in 3 heads");
  refused("Attention(q, q, q, , k)", "past");
  refused("Attention(q, q)", "has 2 inputs");
  refused("Attention<scale = 1>(q, q, q)", "'scale' is INT");
}

TEST(ExpandAttention, MultiHeadWithBiasPaddingAndScores) {
  const Expanded e = expanded(
      "g (float[2, 3, 8] q, float[2, 5, 8] k, float[2, 5, 8] v, float[24] b, int32[2, 5] p, float[1, 2, 3, "
      "5] a)"
      " => (float[2, 3, 8] y)"
      "{ y = com.microsoft.MultiHeadAttention<num_heads = 2, scale = 0.3>(q, k, v, b, p, a) }",
      17, {{"p", Tensor::from_i64({1, 1, 1, 0, 1, 0, 1, 1, 1, 1}).cast(DType::i32).reshaped({2, 5})}});
  const std::vector<int> padding = {1, 1, 1, 0, 1, 0, 1, 1, 1, 1};
  Array x[3] = {e.inputs.at("q"), e.inputs.at("k"), e.inputs.at("v")};
  for (std::size_t part = 0; part < 3; ++part)
    for (std::size_t i = 0; i < x[part].size(); ++i) x[part][i] += e.inputs.at("b")[part * 8 + i % 8];
  AttentionOptions o;
  o.scale = 0.3f;
  o.bias = [&](int, int h, int i, int j) {
    return e.inputs.at("a")[static_cast<std::size_t>((h * 3 + i) * 5 + j)];
  };
  o.allowed = [&](int b, int, int, int j) { return padding[static_cast<std::size_t>(b * 5 + j)] != 0; };
  const Array y = attention({2, 2, 2, 3, 5, 4, 4}, swapped(x[0], 2, 3, 2, 4), swapped(x[1], 2, 5, 2, 4),
                            swapped(x[2], 2, 5, 2, 4), o);
  expect_near(outputs_of(e)[0], swapped(y, 2, 2, 3, 4));
  expect_gradients(e);
}

// Rows without a key, by a mask that is known only when running; half of the queries see nothing.
TEST(ExpandAttention, QueriesWithoutKeysGiveZero) {
  Expanded e = expanded(
      "g (float[1, 1, 2, 3] q, float[1, 1, 2, 3] k, float[1, 1, 2, 3] v, bool[2, 2] m) =>"
      "(float[1, 1, 2, 3] y) { y = Attention(q, k, v, m) }",
      23);
  Graph& graph = e.model.graph;
  const ValueId mask = find_value(graph, "m");
  Tensor bits(DType::boolean, {2, 2});
  bits.mutable_as<std::uint8_t>()[3] = 1;  // the second query sees the second key
  graph.values[mask].data = bits;
  graph.values[mask].role = Role::constant;
  std::erase(graph.inputs, mask);
  const Array y = outputs_of(e)[0], v = e.inputs.at("v");
  expect_near(y, {0, 0, 0, v[3], v[4], v[5]});
  expect_gradients(e);
}

// ---- rotary embedding -----------------------------------------------------------------------------------

// x [B, S, H, D] rotated by tables [B, S, half] over its first 2 half elements.
Array rotated(const Array& x, const Array& cos, const Array& sin, int rows, int heads, int size, int half,
              bool interleaved) {
  Array y = x;
  for (int r = 0; r < rows; ++r)
    for (int h = 0; h < heads; ++h)
      for (int i = 0; i < half; ++i) {
        const int base = (r * heads + h) * size;
        const auto a = static_cast<std::size_t>(base + (interleaved ? 2 * i : i)),
                   b = static_cast<std::size_t>(base + (interleaved ? 2 * i + 1 : half + i)),
                   t = static_cast<std::size_t>(r * half + i);
        y[a] = cos[t] * x[a] - sin[t] * x[b];
        y[b] = sin[t] * x[a] + cos[t] * x[b];
      }
  return y;
}

Array rows_of(const Array& table, const std::vector<std::int64_t>& rows, std::size_t size) {
  Array picked;
  for (const std::int64_t row : rows)
    for (std::size_t i = 0; i < size; ++i) picked.push_back(table[static_cast<std::size_t>(row) * size + i]);
  return picked;
}

TEST(ExpandRotaryEmbedding, HalvesOfFourAxes) {
  const std::vector<std::int64_t> positions = {0, 2, 1, 3, 3, 4};
  const Expanded e = expanded(
      "g (float[2, 3, 3, 4] x, float[5, 2] c, float[5, 2] s, int64[2, 3] p) => (float[2, 3, 3, 4] y)"
      "{ y = RotaryEmbedding(x, c, s, p) }",
      23, {{"p", Tensor::from_i64(positions).reshaped({2, 3})}});
  const Array y = rotated(swapped(e.inputs.at("x"), 2, 3, 3, 4), rows_of(e.inputs.at("c"), positions, 2),
                          rows_of(e.inputs.at("s"), positions, 2), 6, 3, 4, 2, false);
  expect_near(outputs_of(e)[0], swapped(y, 2, 3, 3, 4));
  expect_gradients(e);
}

TEST(ExpandRotaryEmbedding, PairsOfPartOfTheHead) {
  const Expanded e = expanded(
      "g (float[2, 3, 12] x, float[2, 3, 2] c, float[2, 3, 2] s) => (float[2, 3, 12] y)"
      "{ y = RotaryEmbedding<num_heads = 2, rotary_embedding_dim = 4, interleaved = 1>(x, c, s) }",
      23);
  expect_near(outputs_of(e)[0],
              rotated(e.inputs.at("x"), e.inputs.at("c"), e.inputs.at("s"), 6, 2, 6, 2, true));
  expect_gradients(e);
}

// q, k and v apart or packed in one input, keys and queries rotated inside; each query sees its own key and
// the one before.
TEST(ExpandAttention, GroupQuery) {
  for (const bool packed : {false, true}) {
    SCOPED_TRACE(packed);
    const Expanded e = expanded(
        "g (" +
            std::string(packed ? "float[2, 3, 32] x"
                               : "float[2, 3, 16] q, float[2, 3, 8] k, float[2, 3, 8] v") +
            ", int32[2] n, int32 t, float[5, 1] c, float[5, 1] s) => (float[2, 3, 16] y, float[2, 2, 3, 4] "
            "pk, "
            "float[2, 2, 3, 4] pv)"
            "{ y, pk, pv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, do_rotary = 1, "
            "rotary_interleaved = 1, local_window_size = 1, softcap = 0.7>" +
            (packed ? "(x, , , , , n, t, c, s) }" : "(q, k, v, , , n, t, c, s) }"),
        17, {{"n", Tensor::from_i64({2, 2}).cast(DType::i32)}, {"t", Tensor::scalar(DType::i32, 3)}});
    const auto part = [&](const char* name, int begin, int size) {
      if (!packed) return e.inputs.at(name);
      Array some;
      for (int row = 0; row < 6; ++row)
        for (int i = begin; i < begin + size; ++i)
          some.push_back(e.inputs.at("x")[static_cast<std::size_t>(row * 32 + i)]);
      return some;
    };
    const std::vector<std::int64_t> positions = {0, 1, 2, 0, 1, 2};
    const Array cos = rows_of(e.inputs.at("c"), positions, 1), sin = rows_of(e.inputs.at("s"), positions, 1);
    const Array k = swapped(rotated(part("k", 16, 8), cos, sin, 6, 2, 4, 1, true), 2, 3, 2, 4),
                v = swapped(part("v", 24, 8), 2, 3, 2, 4);
    AttentionOptions o;
    o.causal = true;
    o.softcap = 0.7f;
    o.allowed = [](int, int, int i, int j) { return j > i - 2; };
    const Array y =
        attention({2, 4, 2, 3, 3, 4, 4},
                  swapped(rotated(part("q", 0, 16), cos, sin, 6, 4, 4, 1, true), 2, 3, 4, 4), k, v, o);
    const auto outputs = outputs_of(e);
    expect_near(outputs[0], swapped(y, 2, 4, 3, 4));
    expect_near(outputs[1], k);
    expect_near(outputs[2], v);
    expect_gradients(e);
  }
}

// Buffers of 4 elements of which 3 and 1 count, and 2 new ones behind them.
TEST(ExpandAttention, GroupQueryWithAPast) {
  const std::int64_t before[] = {3, 1};
  const Expanded e = expanded(
      "g (float[2, 2, 16] q, float[2, 2, 8] k, float[2, 2, 8] v, float[2, 2, 4, 4] a, float[2, 2, 4, 4] b, "
      "int32[2] n, int32 t, float[7, 2] c, float[7, 2] s) => (float[2, 2, 16] y, float[2, 2, 5, 4] pk, "
      "float[2, 2, 5, 4] pv)"
      "{ y, pk, pv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, do_rotary = 1, "
      "local_window_size = 2>(q, k, v, a, b, n, t, c, s) }",
      17, {{"n", Tensor::from_i64({4, 2}).cast(DType::i32)}, {"t", Tensor::scalar(DType::i32, 5)}});
  const std::vector<std::int64_t> positions = {3, 4, 1, 2};
  const Array cos = rows_of(e.inputs.at("c"), positions, 2), sin = rows_of(e.inputs.at("s"), positions, 2);
  const auto joined = [&](const Array& buffer, const Array& fresh) {  // [2, 2, 4 and 2, 4] to [2, 2, 5, 4]
    Array all;
    for (std::size_t row = 0; row < 2; ++row)
      for (std::size_t head = 0; head < 2; ++head)
        for (std::int64_t j = 0; j < 5; ++j)
          for (std::size_t d = 0; d < 4; ++d) {
            const std::size_t at = row * 2 + head;
            const std::int64_t step = j - before[row];
            all.push_back(step >= 0 && step < 2 ? fresh[(at * 2 + static_cast<std::size_t>(step)) * 4 + d]
                          : j < 4               ? buffer[(at * 4 + static_cast<std::size_t>(j)) * 4 + d]
                                                : fresh[(at * 2 + 1) * 4 + d]);
          }
    return all;
  };
  const Array k = joined(e.inputs.at("a"),
                         swapped(rotated(e.inputs.at("k"), cos, sin, 4, 2, 4, 2, false), 2, 2, 2, 4)),
              v = joined(e.inputs.at("b"), swapped(e.inputs.at("v"), 2, 2, 2, 4));
  AttentionOptions o;
  o.allowed = [&](int row, int, int i, int j) { return j <= before[row] + i && j >= before[row] + i - 2; };
  const Array y =
      attention({2, 4, 2, 2, 5, 4, 4},
                swapped(rotated(e.inputs.at("q"), cos, sin, 4, 4, 4, 2, false), 2, 2, 4, 4), k, v, o);
  const auto outputs = outputs_of(e);
  expect_near(outputs[0], swapped(y, 2, 4, 2, 4));
  expect_near(outputs[1], k);
  expect_near(outputs[2], v);
  expect_gradients(e);
}

// A prompt: all that counts is new, whatever the buffer holds.
TEST(ExpandAttention, GroupQueryBeginsItsBuffer) {
  const auto outputs = [](const std::string& past, const std::string& keys) {
    return expanded(
        "g (float[1, 3, 8] q, float[1, 3, 4] k, float[1, 3, 4] v, float[1, 2, 5, 2] a, int32[1] n, "
        "int32 t) => (float[1, 3, 8] y, float[1, 2, " +
            keys + ", 2] pk, float[1, 2, " + keys +
            ", 2] pv) { y, pk, pv = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(q, k, v, " +
            past + ", n, t) }",
        17, {{"n", Tensor::from_i64({1}).cast(DType::i32)}, {"t", Tensor::scalar(DType::i32, 3)}});
  };
  const Expanded with = outputs("a, a", "5"), without = outputs(", ", "3");
  expect_near(outputs_of(with)[0], outputs_of(without)[0]);
}

TEST(ExpandAttention, GroupQueryRefusesWhatItCannotMean) {
  const auto refused = [](const std::string& attributes, const std::string& rest, const std::string& text) {
    expect_refused(import_model(microsoft_model("g (float[2, 3, 8] q, float[2, 3, 4] k, float[2, 2, 3, 2] p, "
                                                "int32[2] n, int32 t) => (float y) { y = "
                                                "com.microsoft.GroupQueryAttention<" +
                                                attributes + ">(q, k, k" + rest + ") }")),
                   Errc::bad_input, {"GroupQueryAttention", text});
  };
  refused("num_heads = 4, kv_num_heads = 2", ", p, p, n, t", "total_sequence_length is not known");
  refused("num_heads = 4, kv_num_heads = 2", ", p, , n, t", "must both be");
  refused("num_heads = 4, kv_num_heads = 3", ", , , n, t", "4 query heads for 3 key heads");
  refused("num_heads = 4, kv_num_heads = 2, do_rotary = 1", ", , , n, t", "cos_cache");
  refused("num_heads = 4, kv_num_heads = 2, smooth_softmax = 1", ", , , n, t", "smooth_softmax");
}

TEST(ExpandRotaryEmbedding, MicrosoftCountsFromAFirstPosition) {
  const Expanded e = expanded(
      "g (float[2, 3, 8] x, int64[1] p, float[6, 2] c, float[6, 2] s) => (float[2, 3, 8] y)"
      "{ y = com.microsoft.RotaryEmbedding(x, p, c, s) }",
      17, {{"p", Tensor::from_i64({2})}});
  const std::vector<std::int64_t> positions = {2, 3, 4, 2, 3, 4};
  expect_near(outputs_of(e)[0], rotated(e.inputs.at("x"), rows_of(e.inputs.at("c"), positions, 2),
                                        rows_of(e.inputs.at("s"), positions, 2), 6, 2, 4, 2, false));
  expect_gradients(e);
}

// ---- windows of attention -------------------------------------------------------------------------------

TEST(ExpandAttention, WindowsBoundBothSides) {
  for (const bool with_past : {false, true}) {
    const Expanded e =
        with_past ? expanded(
                        "g (float[2, 4, 3, 5] q, float[2, 2, 4, 5] k, float[2, 2, 4, 3] v, "
                        "float[2, 2, 2, 5] pk, float[2, 2, 2, 3] pv) => (float[2, 4, 3, 3] y, "
                        "float[2, 2, 6, 5] nk, float[2, 2, 6, 3] nv) { y, nk, nv = "
                        "Attention<left_window_size = 1, right_window_size = 2>(q, k, v, , pk, pv) }",
                        25)
                  : expanded(std::string(kFour) +
                                 "{ y = Attention<left_window_size = 1, right_window_size = 2>(q, k, v) }",
                             25);
    AttentionOptions o;
    o.allowed = [&](int, int, int i, int j) {
      const int at = i + (with_past ? 2 : 0);
      return j >= at - 1 && j <= at + 2;
    };
    const auto outputs = outputs_of(e);
    const Array keys = with_past ? outputs[1] : e.inputs.at("k"),
                values = with_past ? outputs[2] : e.inputs.at("v");
    expect_near(outputs[0], attention({2, 4, 2, 3, 6, 5, 3}, e.inputs.at("q"), keys, values, o));
    expect_gradients(e);
  }
}

}  // namespace
}  // namespace gradloom::expand_test
