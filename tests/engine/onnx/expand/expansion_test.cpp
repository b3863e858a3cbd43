// Bodies of library functions: forward against plain loops written from the operators' definitions, gradients
// against central differences in f64.
#include "engine/onnx/expand/expansion.h"

#include <array>
#include <cmath>
#include <map>
#include <random>

#include "engine/autodiff/autodiff.h"
#include "tests/engine/onnx/support.h"
#include "tests/engine/reference.h"

namespace gradloom {
namespace {

using testing::expect_refused;
using testing::import_model;
using testing::imported_or_fail;
using testing::model_from_text;

using Array = std::vector<double>;
using Inputs = std::map<std::string, Array>;

// A model of one node in f64, its inputs and what the node makes of them.
struct Expanded {
  ImportedModel model;
  Inputs inputs;  // floating point, random
};

onnx::ModelProto microsoft_model(const std::string& text, int opset = 17) {
  onnx::ModelProto model = model_from_text(text, opset);
  auto* import = model.add_opset_import();
  import->set_domain("com.microsoft");
  import->set_version(1);
  return model;
}

Expanded expanded(const std::string& text, int opset = 24, const std::map<std::string, Tensor>& known = {}) {
  ImportOptions options;
  options.float_type = DType::f64;
  options.known_inputs = known;
  Result<ImportedModel> imported = import_model(microsoft_model(text, opset), options);
  Expanded e;
  if (!imported.ok()) {
    ADD_FAILURE() << imported.error().message;
    return e;
  }
  e.model = std::move(*imported);
  const Status verified = verify(e.model.graph);
  EXPECT_TRUE(verified.ok()) << verified.error().message;
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (const ValueId id : e.model.graph.inputs) {
    const Value& v = e.model.graph.value(id);
    if (v.type.dtype != DType::f64) continue;
    Array& array = e.inputs[v.name];
    for (std::int64_t i = 0; i < element_count(v.type.shape); ++i) array.push_back(uniform(random));
  }
  for (const Node& node : e.model.graph.nodes)
    EXPECT_EQ(node.origin.sources, std::vector<std::uint32_t>{0}) << node.name << " has lost its ONNX node";
  return e;
}

reference::Feeds feeds_of(const Expanded& e) {
  reference::Feeds feeds;
  for (const ValueId id : e.model.graph.inputs) {
    const Value& v = e.model.graph.value(id);
    feeds[id] = Tensor::from_f64(v.type.dtype, v.type.shape, e.inputs.at(v.name));
  }
  return feeds;
}

std::vector<Array> outputs_of(const Expanded& e) {
  const auto runner = reference::Runner::create(e.model.graph);
  if (!runner.ok()) {
    ADD_FAILURE() << runner.error().message;
    return {};
  }
  const auto values = runner->run(feeds_of(e));
  if (!values.ok()) {
    ADD_FAILURE() << values.error().message;
    return {};
  }
  std::vector<Array> outputs;
  for (const ValueId id : e.model.graph.outputs) outputs.push_back((*values)[id].to_f64());
  return outputs;
}

void expect_near(const Array& got, const Array& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-9) << "element " << i;
}

// sum over the float outputs of random weights * output, differentiated in every float input.
void expect_gradients(Expanded e) {
  Graph& graph = e.model.graph;
  const Graph forward = graph;
  GraphBuilder b(graph);
  std::mt19937_64 random(9);
  std::uniform_real_distribution<double> uniform(-1, 1);
  ValueId loss = kNone;
  std::vector<std::pair<ValueId, Array>> weights;
  for (const ValueId y : forward.outputs) {
    if (!is_float(graph.type(y).dtype)) continue;
    Array w;
    for (std::int64_t i = 0; i < element_count(graph.type(y).shape); ++i) w.push_back(uniform(random));
    const ValueId factor =
        b.constant(Tensor::from_f64(DType::f64, graph.type(y).shape, w), b.unique_name("w"));
    const ValueId term = b.op("ReduceSum", {b.op("Mul", {y, factor})}, {{"keepdims", std::int64_t{0}}});
    loss = loss == kNone ? term : b.op("Add", {loss, term});
    weights.emplace_back(y, std::move(w));
  }
  std::vector<ValueId> wrt;
  for (const ValueId id : forward.inputs)
    if (is_float(graph.type(id).dtype)) wrt.push_back(id);
  const auto grads = add_gradients(graph, loss, wrt);
  ASSERT_TRUE(grads.ok()) << grads.error().message;
  const Status verified = verify(graph);
  ASSERT_TRUE(verified.ok()) << verified.error().message;
  const auto runner = reference::Runner::create(graph), forward_runner = reference::Runner::create(forward);
  ASSERT_TRUE(runner.ok() && forward_runner.ok());
  const reference::Feeds feeds = feeds_of(e);
  const auto values = runner->run(feeds);
  ASSERT_TRUE(values.ok()) << values.error().message;
  const double h = 1e-5;
  for (const ValueId x : wrt) {
    ASSERT_NE(grads->at(x), kNone) << graph.value(x).name << " has no gradient";
    const Array gradient = (*values)[grads->at(x)].to_f64();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      double difference = 0;
      for (const double sign : {1.0, -1.0}) {
        reference::Feeds moved = feeds;
        Array contents = feeds.at(x).to_f64();
        contents[i] += sign * h;
        moved[x] = Tensor::from_f64(DType::f64, graph.type(x).shape, contents);
        const auto side = forward_runner->run(moved);
        ASSERT_TRUE(side.ok());
        for (const auto& [y, w] : weights) {
          const Array out = (*side)[y].to_f64();
          for (std::size_t k = 0; k < w.size(); ++k) difference += sign * w[k] * out[k] / (2 * h);
        }
      }
      EXPECT_NEAR(gradient[i], difference, 1e-8 + 1e-6 * std::fabs(difference))
          << graph.value(x).name << " element " << i;
    }
  }
}

// ---- attention --------------------------------------------------------------------------------------------

struct AttentionShape {
  int batch, q_heads, kv_heads, queries, keys, size, value_size;
};

struct AttentionOptions {
  double scale = 0, softcap = 0;  // scale 0: 1 / sqrt(size)
  bool causal = false;
  int past = 0;  // keys before the first query
  std::function<double(int b, int h, int i, int j)> bias{};
  std::function<bool(int b, int h, int i, int j)> allowed{};
};

// q [B, Hq, S, D], k [B, Hk, T, D], v [B, Hk, T, Dv] -> [B, Hq, S, Dv]
Array attention(const AttentionShape& s, const Array& q, const Array& k, const Array& v,
                const AttentionOptions& o) {
  Array y;
  const int group = s.q_heads / s.kv_heads;
  const double scale = o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(s.size));
  for (int b = 0; b < s.batch; ++b)
    for (int head = 0; head < s.q_heads; ++head)
      for (int i = 0; i < s.queries; ++i) {
        const int kv = b * s.kv_heads + head / group, row = (b * s.q_heads + head) * s.queries + i;
        Array p(static_cast<std::size_t>(s.keys));
        double sum = 0;
        for (int j = 0; j < s.keys; ++j) {
          double dot = 0;
          for (int d = 0; d < s.size; ++d)
            dot += q[static_cast<std::size_t>(row * s.size + d)] *
                   k[static_cast<std::size_t>((kv * s.keys + j) * s.size + d)];
          dot *= scale;
          if (o.softcap > 0) dot = o.softcap * std::tanh(dot / o.softcap);
          if (o.bias) dot += o.bias(b, head, i, j);
          const bool seen = (!o.causal || j <= i + o.past) && (!o.allowed || o.allowed(b, head, i, j));
          p[static_cast<std::size_t>(j)] = seen ? std::exp(dot) : 0;
          sum += p[static_cast<std::size_t>(j)];
        }
        for (int d = 0; d < s.value_size; ++d) {
          double total = 0;
          for (int j = 0; j < s.keys && sum > 0; ++j)
            total += p[static_cast<std::size_t>(j)] / sum *
                     v[static_cast<std::size_t>((kv * s.keys + j) * s.value_size + d)];
          y.push_back(total);
        }
      }
  return y;
}

// [B, S, H D] -> [B, H, S, D], or back with the sizes swapped.
Array swapped(const Array& x, int batch, int first, int second, int size) {
  Array y(x.size());
  for (int b = 0; b < batch; ++b)
    for (int i = 0; i < first; ++i)
      for (int j = 0; j < second; ++j)
        for (int d = 0; d < size; ++d)
          y[static_cast<std::size_t>(((b * second + j) * first + i) * size + d)] =
              x[static_cast<std::size_t>(((b * first + i) * second + j) * size + d)];
  return y;
}

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
  EXPECT_EQ(to_string(testing::value_of(bound->graph, "y").type), "f32[2, 2, 5, 4]");
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

// ---- attention of ONNX Runtime's optimizer ----------------------------------------------------------------

// rows [.., n] times [n, m]
Array product(const Array& rows, const Array& matrix, std::size_t n) {
  const std::size_t m = matrix.size() / n;
  Array y;
  for (std::size_t row = 0; row < rows.size(); row += n)
    for (std::size_t j = 0; j < m; ++j) {
      double sum = 0;
      for (std::size_t i = 0; i < n; ++i) sum += rows[row + i] * matrix[i * m + j];
      y.push_back(sum);
    }
  return y;
}

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

// ---- rotary embedding ----

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

// ---- normalizations ---------------------------------------------------------------------------------------

// Rows of `size` normalized; without a mean when `centred` is false.
Array normalized(const Array& x, std::size_t size, const Array& scale, const Array& bias, double epsilon,
                 bool centred) {
  Array y;
  for (std::size_t row = 0; row < x.size(); row += size) {
    double mean = 0, square = 0;
    for (std::size_t i = 0; centred && i < size; ++i) mean += x[row + i] / static_cast<double>(size);
    for (std::size_t i = 0; i < size; ++i)
      square += (x[row + i] - mean) * (x[row + i] - mean) / static_cast<double>(size);
    for (std::size_t i = 0; i < size; ++i)
      y.push_back((x[row + i] - mean) / std::sqrt(square + epsilon) * scale[i] +
                  (bias.empty() ? 0 : bias[i]));
  }
  return y;
}

Array sum_of(const Array& a, const Array& b) {
  Array sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + b[i % b.size()]);
  return sum;
}

TEST(ExpandNormalization, SkipLayerNormalization) {
  const Expanded e = expanded(
      "g (float[2, 3, 4] x, float[2, 3, 4] s, float[4] gamma, float[4] beta, float[4] b)"
      " => (float[2, 3, 4] y, float[2, 3, 4] sum)"
      "{ y, , , sum = com.microsoft.SkipLayerNormalization<epsilon = 0.01>(x, s, gamma, beta, b) }");
  const Array sum = sum_of(sum_of(e.inputs.at("x"), e.inputs.at("s")), e.inputs.at("b"));
  const auto outputs = outputs_of(e);
  expect_near(outputs[0], normalized(sum, 4, e.inputs.at("gamma"), e.inputs.at("beta"), 0.01f, true));
  expect_near(outputs[1], sum);
  expect_gradients(e);
}

TEST(ExpandNormalization, SimplifiedForms) {
  const Expanded skip = expanded(
      "g (float[2, 3, 4] x, float[2, 3, 4] s, float[4] gamma) => (float[2, 3, 4] y)"
      "{ y = com.microsoft.SkipSimplifiedLayerNormalization<epsilon = 0.01>(x, s, gamma) }");
  expect_near(outputs_of(skip)[0], normalized(sum_of(skip.inputs.at("x"), skip.inputs.at("s")), 4,
                                              skip.inputs.at("gamma"), {}, 0.01f, false));
  expect_gradients(skip);
  for (const char* domain : {"", "com.microsoft."}) {
    const Expanded e =
        expanded("g (float[2, 3, 4] x, float[4] gamma) => (float[2, 3, 4] y) { y = " + std::string(domain) +
                     "SimplifiedLayerNormalization<axis = -1, epsilon = 0.01, stash_type = 1>(x, gamma) }",
                 17);
    expect_near(outputs_of(e)[0], normalized(e.inputs.at("x"), 4, e.inputs.at("gamma"), {}, 0.01f, false));
    expect_gradients(e);
  }
}

TEST(ExpandNormalization, AMeanThatDoesNotExistIsNamed) {
  expect_refused(
      import_model(microsoft_model("g (float[2, 4] x, float[4] w) => (float[2, 4] y)"
                                   "{ y, m = com.microsoft.SkipSimplifiedLayerNormalization(x, x, w) }")),
      Errc::bad_input, {"SkipSimplifiedLayerNormalization", "output 1 is not supported"});
}

TEST(ExpandNormalization, LayerNormalizationBeforeItsOpset) {
  const Expanded e = expanded(
      "g (float[2, 3, 4] x, float[4] gamma, float[4] beta) => (float[2, 3, 4] y)"
      "{ y = LayerNormalization<axis = -1, epsilon = 0.01>(x, gamma, beta) }",
      11);
  expect_near(outputs_of(e)[0],
              normalized(e.inputs.at("x"), 4, e.inputs.at("gamma"), e.inputs.at("beta"), 0.01f, true));
  expect_gradients(e);
}

TEST(ExpandNormalization, EmbedLayerNormalization) {
  const std::vector<std::int64_t> ids = {4, 0, 1, 2, 2, 3}, segments = {0, 0, 1, 1, 0, 1},
                                  mask = {1, 1, 0, 1, 0, 0}, positions = {5, 4, 0, 1, 2, 3};
  const auto known = [](const std::vector<std::int64_t>& values) {
    return Tensor::from_i64(values).cast(DType::i32).reshaped({2, 3});
  };
  for (const bool full : {true, false}) {
    const Expanded e = expanded(
        std::string(
            "g (int32[2, 3] i, int32[2, 3] k, float[5, 4] w, float[6, 4] p, float[2, 4] s, float[4] g, "
            "float[4] b, int32[2, 3] m, int32[2, 3] o)"
            " => (float[2, 3, 4] y, int32[2] n, float[2, 3, 4] z)"
            "{ y, n, z = com.microsoft.EmbedLayerNormalization<epsilon = 0.01>(i, ") +
            (full ? "k, w, p, s, g, b, m, o) }" : ", w, p, , g, b) }"),
        17, {{"i", known(ids)}, {"k", known(segments)}, {"m", known(mask)}, {"o", known(positions)}});
    Array sum;
    for (std::size_t at = 0; at < 6; ++at)
      for (std::size_t c = 0; c < 4; ++c) {
        const auto row = [&](const char* table, std::int64_t index) {
          return e.inputs.at(table)[static_cast<std::size_t>(index) * 4 + c];
        };
        sum.push_back(row("w", ids[at]) + row("p", full ? positions[at] : static_cast<std::int64_t>(at % 3)) +
                      (full ? row("s", segments[at]) : 0));
      }
    const auto outputs = outputs_of(e);
    expect_near(outputs[0], normalized(sum, 4, e.inputs.at("g"), e.inputs.at("b"), 0.01f, true));
    expect_near(outputs[1], full ? Array{2, 1} : Array{0, 0});
    expect_near(outputs[2], sum);
    if (full) expect_gradients(e);
  }
  expect_refused(
      import_model(microsoft_model("g (int32[2, 3] i, float[5, 4] w, float[2, 4] p, float[4] g) => (float y)"
                                   "{ y = com.microsoft.EmbedLayerNormalization(i, , w, p, , g, g) }")),
      Errc::bad_input, {"3 positions in a table of 2"});
  expect_refused(
      import_model(microsoft_model("g (int32[2, 3] i, float[5, 4] w, float[4] g) => (float y)"
                                   "{ y = com.microsoft.EmbedLayerNormalization(i, , w, , , g, g) }")),
      Errc::bad_input, {"input 3 is required"});
}

// x [n, area, c], channels last.
Array group_normalized(const Array& x, std::size_t images, std::size_t channels, std::size_t groups,
                       const Array& gamma, const Array& beta, double epsilon, bool swish) {
  Array y(x.size());
  const std::size_t area = x.size() / images / channels, size = channels / groups;
  for (std::size_t n = 0; n < images; ++n)
    for (std::size_t g = 0; g < groups; ++g) {
      double mean = 0, square = 0;
      const auto each = [&](const auto& f) {
        for (std::size_t p = 0; p < area; ++p)
          for (std::size_t c = g * size; c < (g + 1) * size; ++c) f((n * area + p) * channels + c, c);
      };
      const double count = static_cast<double>(area * size);
      each([&](std::size_t i, std::size_t) { mean += x[i] / count; });
      each([&](std::size_t i, std::size_t) { square += (x[i] - mean) * (x[i] - mean) / count; });
      each([&](std::size_t i, std::size_t c) {
        y[i] = (x[i] - mean) / std::sqrt(square + epsilon) * gamma[c] + beta[c];
        if (swish) y[i] /= 1 + std::exp(-y[i]);
      });
    }
  return y;
}

TEST(ExpandNormalization, GroupsWithTheChannelsLast) {
  const Expanded plain = expanded(
      "g (float[2, 3, 2, 4] x, float[4] a, float[4] b) => (float[2, 3, 2, 4] y)"
      "{ y = com.microsoft.GroupNorm<activation = 1, epsilon = 0.01, groups = 2>(x, a, b) }");
  expect_near(outputs_of(plain)[0], group_normalized(plain.inputs.at("x"), 2, 4, 2, plain.inputs.at("a"),
                                                     plain.inputs.at("b"), 0.01f, true));
  expect_gradients(plain);
  const Expanded skip = expanded(
      "g (float[2, 3, 2, 4] x, float[4] a, float[4] b, float[2, 4] s, float[4] c) =>"
      "(float[2, 3, 2, 4] y, float[2, 3, 2, 4] z)"
      "{ y, z = com.microsoft.SkipGroupNorm<activation = 0, epsilon = 0.01, groups = 2>(x, a, b, s, c) }");
  Array sum = sum_of(skip.inputs.at("x"), skip.inputs.at("c"));
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += skip.inputs.at("s")[i / 24 * 4 + i % 4];
  const auto outputs = outputs_of(skip);
  expect_near(outputs[0],
              group_normalized(sum, 2, 4, 2, skip.inputs.at("a"), skip.inputs.at("b"), 0.01f, false));
  expect_near(outputs[1], sum);
  expect_gradients(skip);
  const auto refused = [](const std::string& attributes, const std::string& text) {
    expect_refused(import_model(microsoft_model("g (float[2, 3, 2, 4] x, float[4] a) => (float y)"
                                                "{ y = com.microsoft.GroupNorm<" +
                                                attributes + ">(x, a, a) }")),
                   Errc::bad_input, {text});
  };
  refused("activation = 2, groups = 2", "activation 2");
  refused("activation = 0, groups = 3", "num_groups 3");
  refused("activation = 0", "num_groups 0");
}

// ---- activations and products -----------------------------------------------------------------------------

TEST(ExpandActivation, Gelus) {
  const auto phi = [](double x) { return 0.5 * (1 + std::erf(x / std::sqrt(2.0))); };
  const auto tanh_form = [](double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  struct Form {
    const char* call;
    bool bias;
    std::function<double(double)> f;
  };
  for (const Form& form :
       {Form{"Gelu(x)", false, [&](double x) { return x * phi(x); }},
        Form{"BiasGelu(x, b)", true, [&](double x) { return x * phi(x); }},
        Form{"FastGelu(x, b)", true, tanh_form}, Form{"FastGelu(x)", false, tanh_form},
        Form{"QuickGelu<alpha = 1.5>(x)", false, [](double x) { return x / (1 + std::exp(-1.5 * x)); }}}) {
    SCOPED_TRACE(form.call);
    const Expanded e = expanded("g (float[3, 4] x" + std::string(form.bias ? ", float[4] b" : "") +
                                ") => (float[3, 4] y) { y = com.microsoft." + form.call + " }");
    Array want = form.bias ? sum_of(e.inputs.at("x"), e.inputs.at("b")) : e.inputs.at("x");
    for (double& v : want) v = form.f(v);
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
}

TEST(ExpandActivation, FusedMatMul) {
  const Expanded e = expanded(
      "g (float[2, 4, 3] a, float[2, 5, 4] b) => (float[2, 3, 5] y)"
      "{ y = com.microsoft.FusedMatMul<alpha = 0.5, transA = 1, transB = 1>(a, b) }");
  Array want;
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 5; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < 4; ++k)
          sum += e.inputs.at("a")[(n * 4 + k) * 3 + i] * e.inputs.at("b")[(n * 5 + j) * 4 + k];
        want.push_back(0.5 * sum);
      }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandActivation, FusedMatMulWithTheBatchInside) {
  const Expanded e = expanded(
      "g (float[3, 2, 4] a, float[2, 4, 5] b) => (float[2, 3, 5] y)"
      "{ y = com.microsoft.FusedMatMul<transBatchA = 1>(a, b) }");
  Array want;
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 5; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < 4; ++k)
          sum += e.inputs.at("a")[(i * 2 + n) * 4 + k] * e.inputs.at("b")[(n * 4 + k) * 5 + j];
        want.push_back(sum);
      }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandActivation, BiasDropoutKeepsWhatItDoesNotDrop) {
  const Expanded e = expanded(
      "g (float[16, 8] x, float[8] b, float[16, 8] r, float ratio, bool training) => (float[16, 8] y, "
      "bool[16, 8] m)"
      "{ y, m = com.microsoft.BiasDropout(x, b, r, ratio, training) }",
      17, {{"ratio", Tensor::scalar(DType::f32, 0.25)}, {"training", Tensor::scalar(DType::boolean, 1)}});
  const auto outputs = outputs_of(e);
  const Array sum = sum_of(e.inputs.at("x"), e.inputs.at("b"));
  int kept = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    EXPECT_NEAR(outputs[0][i], outputs[1][i] * sum[i] / 0.75 + e.inputs.at("r")[i], 1e-12);
    kept += outputs[1][i] != 0;
  }
  EXPECT_GT(kept, 64);
  EXPECT_LT(kept, 128);
  expect_gradients(e);
}

TEST(ExpandActivation, SoftmaxCrossEntropyInternal) {
  const Expanded e = expanded(
      "g (float[3, 4] x, int64[3] l, int64 i) => (float y, float[3, 4] p)"
      "{ y, p = com.microsoft.SoftmaxCrossEntropyLossInternal<reduction = \"mean\">(x, l, , i) }",
      17, {{"l", Tensor::from_i64({2, -1, 0})}, {"i", Tensor::from_i64({-1}).reshaped({})}});
  const Array& x = e.inputs.at("x");
  double loss = 0;
  for (const auto& [row, label] : {std::pair<std::size_t, std::size_t>{0, 2}, {2, 0}}) {
    double sum = 0;
    for (std::size_t i = 0; i < 4; ++i) sum += std::exp(x[row * 4 + i]);
    loss += (std::log(sum) - x[row * 4 + label]) / 2;
  }
  EXPECT_NEAR(outputs_of(e)[0][0], loss, 1e-12);
  expect_gradients(e);
}

TEST(ExpandActivation, CastLikeTakesOnlyTheType) {
  const Expanded e =
      expanded("g (float[2, 3] x, float[7] like) => (float[2, 3] y) { y = CastLike(x, like) }");
  expect_near(outputs_of(e)[0], e.inputs.at("x"));
  EXPECT_TRUE(uses_of(e.model.graph)[e.model.graph.inputs[1]].empty());
  const auto integers = import_model(
      model_from_text("g (float[2] x, int32[1] like) => (int32[2] y) { y = CastLike(x, like) }"));
  ASSERT_TRUE(integers.ok()) << integers.error().message;
  EXPECT_EQ(to_string(integers->graph.type(integers->graph.outputs[0])), "i32[2]");
}

// ---- fused sequences --------------------------------------------------------------------------------------

double gelu_of(double x) { return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }

TEST(ExpandFused, BiasesWithWhatFollows) {
  const Expanded add = expanded(
      "g (float[2, 3, 4] x, float[4] b, float[2, 3, 4] s) => (float[2, 3, 4] y)"
      "{ y = com.microsoft.BiasAdd(x, b, s) }");
  expect_near(outputs_of(add)[0], sum_of(sum_of(add.inputs.at("x"), add.inputs.at("b")), add.inputs.at("s")));
  expect_gradients(add);
  const Expanded split =
      expanded("g (float[2, 6] x, float[6] b) => (float[2, 3] y) { y = com.microsoft.BiasSplitGelu(x, b) }");
  const Array sum = sum_of(split.inputs.at("x"), split.inputs.at("b"));
  Array want;
  for (std::size_t row = 0; row < 12; row += 6)
    for (std::size_t i = 0; i < 3; ++i) want.push_back(sum[row + i] * gelu_of(sum[row + 3 + i]));
  expect_near(outputs_of(split)[0], want);
  expect_gradients(split);
  expect_refused(import_model(microsoft_model("g (float[2, 5] x, float[5] b) => (float y)"
                                              "{ y = com.microsoft.BiasSplitGelu(x, b) }")),
                 Errc::bad_input, {"no halves"});
}

TEST(ExpandFused, BiasSoftmaxOverAllAxesFromOneOn) {
  struct Form {
    const char* axis;
    const char* shape;
    std::size_t size;                              // of what one softmax is over
    std::function<std::size_t(std::size_t)> bias;  // element of the bias for each of x [2, 3, 2, 4]
  };
  const Form forms[] = {{"3", "[2, 1, 1, 4]", 4, [](std::size_t i) { return i / 24 * 4 + i % 4; }},
                        {"-1", "[2, 4]", 4, [](std::size_t i) { return i % 8; }},
                        {"2", "[1, 3, 2, 4]", 8, [](std::size_t i) { return i % 24; }}};
  for (const Form& form : forms) {
    const Expanded e =
        expanded(std::string("g (float[2, 3, 2, 4] x, float") + form.shape +
                 " b) => (float[2, 3, 2, 4] y) { y = com.microsoft.BiasSoftmax<axis = " + form.axis +
                 ", is_inner_broadcast = 1>(x, b) }");
    Array want = e.inputs.at("x");
    for (std::size_t i = 0; i < want.size(); ++i)
      want[i] = std::exp(want[i] + e.inputs.at("b")[form.bias(i)]);
    for (std::size_t row = 0; row < want.size(); row += form.size) {
      double sum = 0;
      for (std::size_t i = 0; i < form.size; ++i) sum += want[row + i];
      for (std::size_t i = 0; i < form.size; ++i) want[row + i] /= sum;
    }
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
}

// x [n, 2, 3, 3], w [2, 2, 2, 2], b [2] -> [n, 2, 2, 2]
Array convolved(const Array& x, const Array& w, const Array& b) {
  Array y;
  for (std::size_t n = 0; n < x.size() / 18; ++n)
    for (std::size_t o = 0; o < 2; ++o)
      for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t j = 0; j < 2; ++j) {
          double sum = b[o];
          for (std::size_t c = 0; c < 2; ++c)
            for (std::size_t u = 0; u < 2; ++u)
              for (std::size_t v = 0; v < 2; ++v)
                sum += x[((n * 2 + c) * 3 + i + u) * 3 + j + v] * w[((o * 2 + c) * 2 + u) * 2 + v];
          y.push_back(sum);
        }
  return y;
}

// [n, c, area] -> [n, area, c]
Array channels_last(const Array& x, std::size_t channels, std::size_t area) {
  Array y;
  for (std::size_t n = 0; n < x.size(); n += channels * area)
    for (std::size_t p = 0; p < area; ++p)
      for (std::size_t c = 0; c < channels; ++c) y.push_back(x[n + c * area + p]);
  return y;
}

TEST(ExpandFused, ConvolutionsWithAnActivation) {
  struct Form {
    const char* activation;
    double (*f)(double);
  };
  const Form forms[] = {{"activation = \"Tanh\"", [](double x) { return std::tanh(x); }},
                        {"activation = \"LeakyRelu\", activation_params = [0.25]",
                         [](double x) { return x > 0 ? x : 0.25 * x; }},
                        {"activation = \"Clip\", activation_params = [-0.5, 0.75]",
                         [](double x) { return std::min(std::max(x, -0.5), 0.75); }},
                        {"activation = \"HardSigmoid\", activation_params = [0.5, 0.25]",
                         [](double x) { return std::min(std::max(0.5 * x + 0.25, 0.0), 1.0); }}};
  for (const Form& form : forms) {
    const Expanded e = expanded(std::string("g (float[2, 2, 3, 3] x, float[2, 2, 2, 2] w, float[2] b, "
                                            "float[2, 2, 2, 2] z) => (float[2, 2, 2, 2] y)"
                                            "{ y = com.microsoft.FusedConv<") +
                                form.activation + ">(x, w, b, z) }");
    Array want = sum_of(convolved(e.inputs.at("x"), e.inputs.at("w"), e.inputs.at("b")), e.inputs.at("z"));
    for (double& v : want) v = form.f(v);
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
  const auto refused = [](const std::string& attributes, const std::string& text) {
    expect_refused(import_model(microsoft_model("g (float[2, 2, 3, 3] x, float[2, 2, 2, 2] w) => (float y)"
                                                "{ y = com.microsoft.FusedConv<" +
                                                attributes + ">(x, w) }")),
                   Errc::bad_input, {text});
  };
  refused("activation = \"Cube\"", "activation 'Cube'");
  refused("activation = \"LeakyRelu\"", "'LeakyRelu' with 0 parameters");
  refused("activation = \"Clip\", activation_params = [1.0]", "'Clip' with 1 parameters");
}

TEST(ExpandFused, ConvolutionWithTheChannelsLast) {
  const Expanded e = expanded(
      "g (float[2, 3, 3, 2] x, float[2, 2, 2, 2] w, float[2] b) => (float[2, 2, 2, 2] y)"
      "{ y = com.microsoft.NhwcConv<kernel_shape = [2, 2]>(x, w, b) }");
  // Back from [n, area, c]: channels and area change their places.
  const Array x = channels_last(e.inputs.at("x"), 9, 2), w = channels_last(e.inputs.at("w"), 4, 2);
  expect_near(outputs_of(e)[0], channels_last(convolved(x, w, e.inputs.at("b")), 2, 4));
  expect_gradients(e);
}

TEST(ExpandFused, ProductsWithAnActivation) {
  struct Form {
    const char* attributes;
    double (*f)(double);
  };
  const Form forms[] = {
      {"", [](double x) { return x; }},
      {", activation = \"Sigmoid\"", [](double x) { return 1 / (1 + std::exp(-x)); }},
      {", activation = \"LeakyRelu\", activation_alpha = 0.25",
       [](double x) { return x > 0 ? x : 0.25 * x; }},
      {", activation = \"LeakyRelu\"", [](double x) { return x > 0 ? x : static_cast<double>(0.01f) * x; }},
      {", activation = \"Selu\", activation_alpha = 1.5, activation_gamma = 1.25",
       [](double x) { return 1.25 * (x > 0 ? x : 1.5 * (std::exp(x) - 1)); }}};
  for (const Form& form : forms) {
    const Expanded e =
        expanded(std::string("g (float[3, 2] a, float[3, 4] b, float[4] c) => (float[2, 4] y)"
                             "{ y = com.microsoft.FusedGemm<transA = 1, alpha = 0.5, beta = 2.0") +
                 form.attributes + ">(a, b, c) }");
    Array want;
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 4; ++j) {
        double sum = 0;
        for (std::size_t k = 0; k < 3; ++k) sum += e.inputs.at("a")[k * 2 + i] * e.inputs.at("b")[k * 4 + j];
        want.push_back(form.f(0.5 * sum + 2 * e.inputs.at("c")[j]));
      }
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
  const Expanded fast = expanded(
      "g (float[2, 3] a, float[3, 4] b, float[4] c) => (float[2, 4] y)"
      "{ y = com.microsoft.GemmFastGelu(a, b, c) }");
  Array want = sum_of(product(fast.inputs.at("a"), fast.inputs.at("b"), 3), fast.inputs.at("c"));
  for (double& x : want) x *= 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  expect_near(outputs_of(fast)[0], want);
  expect_gradients(fast);
  const Expanded old = expanded(
      "g (float[2, 3] a, float[4, 3] b) => (float[2, 4] y) { y = com.microsoft.TransposeMatMul<transB = 1>(a, b) }");
  Array turned;
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < 4; ++j) turned.push_back(old.inputs.at("b")[j * 3 + i]);
  expect_near(outputs_of(old)[0], product(old.inputs.at("a"), turned, 3));
}

// The exporter's file names the domain of every operator set that it uses.
TEST(ExpandFused, NeedsTheOpsetOfItsDomain) {
  expect_refused(
      import_model(model_from_text("g (float[2] x) => (float[2] y) { y = com.microsoft.Gelu(x) }", 17)),
      Errc::bad_input, {"com.microsoft.Gelu", "the model imports no opset of its domain"});
}

// ---- optimizers -------------------------------------------------------------------------------------------

TEST(ExpandTraining, GroupsOfTensorsMustFit) {
  const auto model = [](const std::string& node) {
    onnx::ModelProto m = model_from_text(
        "g (float r, int64 t, float[2] x, float[2] d, float[2] h) => (float[2] y)"
        "{ y = ai.onnx.preview.training." +
        node + " }");
    auto* import = m.add_opset_import();
    import->set_domain("ai.onnx.preview.training");
    import->set_version(1);
    return m;
  };
  EXPECT_TRUE(import_model(model("Adagrad(r, t, x, d, h)")).ok());
  expect_refused(import_model(model("Adagrad(r, t, x, d)")), Errc::bad_input, {"2 tensors are no 3 groups"});
  expect_refused(import_model(model("Adam(r, t, x, d, h)")), Errc::bad_input, {"3 tensors are no 4 groups"});
  expect_refused(import_model(model("Momentum<mode = \"other\">(r, t, x, d, h)")), Errc::bad_input,
                 {"'other'"});
}

// ---- forms before opset 7 ---------------------------------------------------------------------------------

TEST(ExpandLegacy, BroadcastsFromAnAxisOn) {
  const Expanded e = expanded(
      "g (float[2, 3, 2] a, float[3] b) => (float[2, 3, 2] y) { y = Sub<axis = 1, broadcast = 1>(a, b) }", 6);
  Array want = e.inputs.at("a");
  for (std::size_t i = 0; i < want.size(); ++i) want[i] -= e.inputs.at("b")[i / 2 % 3];
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
  expect_refused(import_model(model_from_text("g (float[2, 3] a, float[3] b) => (float[2, 3] y)"
                                              "{ y = Sub<axis = 2, broadcast = 1>(a, b) }",
                                              6)),
                 Errc::bad_input, {"axis"});
}

TEST(ExpandLegacy, SlopesPerChannel) {
  const Expanded e =
      expanded("g (float[2, 3, 2] x, float[3] s) => (float[2, 3, 2] y) { y = PRelu(x, s) }", 6);
  Array want = e.inputs.at("x");
  for (std::size_t i = 0; i < want.size(); ++i)
    if (want[i] < 0) want[i] *= e.inputs.at("s")[i / 2 % 3];
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandLegacy, TestFormsOfNormalizationAndDropout) {
  const Expanded e = expanded(
      "g (float[2, 3] x, float[3] w, float[3] b, float[3] m, float[3] v) => (float[2, 3] y)"
      "{ y = BatchNormalization<is_test = 1, epsilon = 4.0>(x, w, b, m, v) }",
      6);
  Array want = e.inputs.at("x");
  for (std::size_t i = 0; i < want.size(); ++i) {
    const std::size_t c = i % 3;
    const double deviation = std::sqrt(e.inputs.at("v")[c] + 4);
    want[i] = (want[i] - e.inputs.at("m")[c]) / deviation * e.inputs.at("w")[c] + e.inputs.at("b")[c];
  }
  expect_near(outputs_of(e)[0], want);
  expect_refused(import_model(model_from_text("g (float[2, 3] x, float[3] w) => (float[2, 3] y)"
                                              "{ y = BatchNormalization(x, w, w, w, w) }",
                                              6)),
                 Errc::bad_input, {"training form"});
  EXPECT_TRUE(
      import_model(model_from_text("g (float[2] x) => (float[2] y) { y = Dropout<is_test = 1>(x) }", 6))
          .ok());
}

TEST(ExpandLegacy, ConstantsOfAShape) {
  const auto filled = [](const std::string& call, const std::string& type = "float") {
    const auto model = import_model(
        model_from_text("g (float[2, 3] x) => (" + type +
                            "[N] y) { s = Constant<value = int64[2] {3, 2}>() y = " + call + " }",
                        8));
    EXPECT_TRUE(model.ok()) << call;
    return model->graph.value(model->graph.outputs[0]).data;
  };
  const auto expect_filled = [&](const std::string& call, const Shape& shape, double value) {
    const Tensor y = filled(call);
    EXPECT_EQ(y.shape(), shape) << call;
    expect_near(y.to_f64(), Array(static_cast<std::size_t>(element_count(shape)), value));
  };
  expect_filled("ConstantFill<input_as_shape = 1, value = 2.5>(s)", {3, 2}, 2.5);
  expect_filled("ConstantFill<value = 2.5>(x)", {2, 3}, 2.5);
  expect_filled("ConstantFill<shape = [4]>()", {4}, 0);
  expect_filled("ConstantFill<input_as_shape = 1, extra_shape = [5], value = -1.0>(s)", {3, 2, 5}, -1);
  EXPECT_EQ(filled("ConstantFill<shape = [2], dtype = 7>()", "int64").dtype(), DType::i64);
  expect_refused(import_model(model_from_text(
                     "g () => (float[2] y) { y = ConstantFill<shape = [2], dtype = 99>() }", 8)),
                 Errc::bad_input, {"99"});
}

TEST(ExpandLegacy, FormsBeforeOpsetSixAreReported) {
  expect_refused(import_model(model_from_text("g (float[2] x) => (float[2] y) { y = Relu(x) }", 5)),
                 Errc::bad_input, {"Relu", "form of opset 5"});
  EXPECT_TRUE(import_model(model_from_text("g (bool[2] x) => (bool[2] y) { y = Not(x) }", 1)).ok());
}

// ---- windows of attention ---------------------------------------------------------------------------------

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

// ---- spectra ----------------------------------------------------------------------------------------------

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

// ---- n-grams ----------------------------------------------------------------------------------------------

// The n-grams 2, 3, 5, 4 and [5, 6], [7, 8], [6, 7] of ONNX's description, at outputs of another order.
TEST(ExpandText, CountsNGrams) {
  const auto counts = [](const std::string& shape, const std::string& attributes, const Array& x) {
    const Graph graph =
        testing::imported_or_fail(
            model_from_text(
                "g (int32[" + shape +
                    "] x) => (float y) { y = TfIdfVectorizer<ngram_counts = [0, 4],"
                    " ngram_indexes = [6, 1, 2, 3, 4, 5, 0], pool_int64s = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7], " +
                    attributes + ">(x) }",
                17))
            .graph;
    const auto runner = reference::Runner::create(graph);
    EXPECT_TRUE(runner.ok());
    Shape dims = graph.value(graph.inputs[0]).type.shape;
    const auto values = runner->run({{graph.inputs[0], Tensor::from_f64(DType::i32, dims, x)}});
    EXPECT_TRUE(values.ok());
    return values->at(graph.outputs[0]).to_f64();
  };
  const Array x = {1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8};
  const std::string pairs = ", min_gram_length = 2, max_gram_length = 2",
                    both = ", min_gram_length = 1, max_gram_length = 2";
  EXPECT_EQ(counts("12", "mode = \"TF\", max_skip_count = 0" + pairs, x), (Array{1, 0, 0, 0, 1, 1, 0}));
  // Up to 2 between: 7 . 8 no, 6 . . 7 no, 5 . 6 no; 7 8, 6 7, 5 6 and, two further, 7 (5) .. none.
  EXPECT_EQ(counts("2, 6", "mode = \"TF\", max_skip_count = 5" + both, x),
            (Array{0, 3, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 1, 0}));
  EXPECT_EQ(
      counts("12", "mode = \"IDF\", max_skip_count = 0, weights = [1., 2., 3., 4., 5., 6., 7.]" + both, x),
      (Array{7, 2, 3, 0, 5, 6, 0}));
  EXPECT_EQ(
      counts("12", "mode = \"TFIDF\", max_skip_count = 0, weights = [1., 2., 3., 4., 5., 6., 7.]" + both, x),
      (Array{7, 6, 3, 0, 5, 6, 0}));
}

TEST(ExpandText, WhatDoesNotFitIsTheReason) {
  const auto refused = [](const std::string& attributes, const std::string& reason) {
    expect_refused(
        import_model(model_from_text(
            "g (int64[4] x) => (float y) { y = TfIdfVectorizer<min_gram_length = 2, max_skip_count = 0, " +
            attributes + ">(x) }")),
        Errc::bad_input, {reason});
  };
  const std::string pairs = "max_gram_length = 2, ngram_counts = [0, 0], pool_int64s = [5, 6, 7, 8], ";
  refused(pairs + "mode = \"TF\", ngram_indexes = [0]", "do not fit 2 n-grams");
  refused(pairs + "mode = \"TF\", ngram_indexes = [0, -1]", "ngram_indexes must be from 0");
  refused(pairs + "mode = \"IF\", ngram_indexes = [0, 1]", "mode 'IF'");
  refused(
      "max_gram_length = 3, ngram_counts = [0, 0, 4], pool_int64s = [5, 6, 7, 8, 9], mode = \"TF\","
      " ngram_indexes = [0, 1]",
      "does not cut the pool");
  refused(
      "max_gram_length = 5, ngram_counts = [0, 0, 0, 0, 0], pool_int64s = [5, 6, 7, 8, 9], mode = \"TF\","
      " ngram_indexes = [0]",
      "shorter than every n-gram");
}

// ---- images -----------------------------------------------------------------------------------------------

TEST(ExpandImage, BlocksWithStridesPadsAndDilations) {
  // Rows: 4 + 1 of padding, blocks of 2 every 2 pixels: 2. Columns: 5, blocks 3 apart: 2.
  const Expanded e = expanded(
      "g (float[2, 8, 4] x, int64[2] image, int64[2] block) => (float[2, 2, 4, 5] y)"
      "{ y = Col2Im<strides = [2, 1], pads = [0, 0, 1, 0], dilations = [1, 3]>(x, image, block) }",
      18, {{"image", Tensor::from_i64({4, 5})}, {"block", Tensor::from_i64({2, 2})}});
  const Array& x = e.inputs.at("x");
  Array want(80, 0);
  for (std::size_t nc = 0; nc < 4; ++nc)
    for (std::size_t b = 0; b < 4; ++b)
      for (std::size_t p = 0; p < 4; ++p) {
        const std::size_t row = p / 2 * 2 + b / 2, column = p % 2 + b % 2 * 3;
        if (row < 4) want[nc * 20 + row * 5 + column] += x[(nc * 4 + b) * 4 + p];
      }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandImage, ColumnsOfAKnownImage) {
  const Expanded e = expanded(
      "g (float[1, 8, 6] x, int64[2] image, int64[2] block) => (float[1, 2, 3, 4] y)"
      "{ y = Col2Im(x, image, block) }",
      18, {{"image", Tensor::from_i64({3, 4})}, {"block", Tensor::from_i64({2, 2})}});
  const Array& x = e.inputs.at("x");
  Array want(24, 0);
  for (std::size_t c = 0; c < 2; ++c)
    for (std::size_t b = 0; b < 4; ++b)
      for (std::size_t p = 0; p < 6; ++p)  // 2 rows of 3 positions
        want[c * 12 + (p / 3 + b / 2) * 4 + p % 3 + b % 2] += x[(c * 4 + b) * 6 + p];
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandImage, GridsOfAffineMaps) {
  for (const bool corners : {false, true}) {
    const Expanded e = expanded(
        "g (float[1, 2, 3] t, int64[4] size) => (float[1, 2, 3, 2] y) { y = AffineGrid<align_corners = " +
            std::string(corners ? "1" : "0") + ">(t, size) }",
        20, {{"size", Tensor::from_i64({1, 1, 2, 3})}});
    const Array& t = e.inputs.at("t");
    Array want;
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 3; ++j) {
        const double y = corners ? 2.0 * i - 1 : (2.0 * i + 1) / 2 - 1,
                     x = corners ? j - 1.0 : (2.0 * j + 1) / 3 - 1;
        want.push_back(t[0] * x + t[1] * y + t[2]);
        want.push_back(t[3] * x + t[4] * y + t[5]);
      }
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
}

TEST(ExpandImage, CentresAreCutAndFilled) {
  const Expanded e =
      expanded("g (float[3, 4] x, int64[2] size) => (float[6, 1] y) { y = CenterCropPad(x, size) }", 18,
               {{"size", Tensor::from_i64({6, 1})}});
  const Array& x = e.inputs.at("x");
  expect_near(outputs_of(e)[0], {0, x[1], x[5], x[9], 0, 0});
  expect_gradients(e);
}

// The mean of bilinear samples, as the operator defines it.
double roi_value(const Array& image, int height, int width, double y, double x) {
  if (y < -1 || y > height || x < -1 || x > width) return 0;
  y = std::min(std::max(y, 0.0), height - 1.0);
  x = std::min(std::max(x, 0.0), width - 1.0);
  const int y0 = static_cast<int>(y), x0 = static_cast<int>(x);
  const int y1 = std::min(y0 + 1, height - 1), x1 = std::min(x0 + 1, width - 1);
  const auto at = [&](int i, int j) { return image[static_cast<std::size_t>(i * width + j)]; };
  return (1 - (y - y0)) * ((1 - (x - x0)) * at(y0, x0) + (x - x0) * at(y0, x1)) +
         (y - y0) * ((1 - (x - x0)) * at(y1, x0) + (x - x0) * at(y1, x1));
}

TEST(ExpandImage, RegionsAreSampled) {
  Tensor rois = Tensor::from_f64(DType::f64, {2, 4}, {0.5, 1, 6.25, 5.5, -3, 0.25, 3.5, 7.75});
  for (const bool half_pixel : {false, true}) {
    const Expanded e = expanded(
        "g (float[2, 1, 4, 5] x, float[2, 4] rois, int64[2] which) => (float[2, 1, 2, 3] y)"
        "{ y = RoiAlign<output_height = 2, output_width = 3, sampling_ratio = 2, spatial_scale = 0.5"
        ", coordinate_transformation_mode = \"" +
            std::string(half_pixel ? "half_pixel" : "output_half_pixel") + "\">(x, rois, which) }",
        16, {{"which", Tensor::from_i64({1, 0})}, {"rois", rois}});
    const Array& x = e.inputs.at("x");
    Array want;
    for (std::int64_t r = 0; r < 2; ++r) {
      const Array image(x.begin() + (1 - r) * 20, x.begin() + (2 - r) * 20);
      const double offset = half_pixel ? 0.5 : 0, x0 = rois.at(4 * r) / 2 - offset,
                   y0 = rois.at(4 * r + 1) / 2 - offset;
      const double width = rois.at(4 * r + 2) / 2 - offset - x0,
                   height = rois.at(4 * r + 3) / 2 - offset - y0;
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 3; ++j) {
          double sum = 0;
          for (const double a : {0.25, 0.75})
            for (const double b : {0.25, 0.75})
              sum += roi_value(image, 4, 5, y0 + (i + a) * height / 2, x0 + (j + b) * width / 3) / 4;
          want.push_back(sum);
        }
    }
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
}

// As many samples as a bin has pixels: regions of one and of several samples, outside of the image, and of
// negative extent; with the regions known and not.
TEST(ExpandImage, RoiAlignWithAsManySamplesAsPixels) {
  const Tensor rois =
      Tensor::from_f64(DType::f64, {3, 4}, {0.3, 0.4, 5.1, 6.3, -40, 1, 9.7, 33.2, 3.1, 2.2, 1.4, 6.1});
  for (const bool half_pixel : {true, false})
    for (const bool known : {true, false}) {
      std::map<std::string, Tensor> contents = {{"which", Tensor::from_i64({1, 0, 1})}};
      if (known) contents["rois"] = rois;
      const double scale = known ? 0.5 : 6;
      const Expanded e = expanded(
          "g (float[2, 1, 4, 5] x, float[3, 4] rois, int64[3] which) => (float[3, 1, 2, 3] y)"
          "{ y = RoiAlign<output_height = 2, output_width = 3, spatial_scale = " +
              std::string(known ? "0.5" : "6.0") + ", coordinate_transformation_mode = \"" +
              std::string(half_pixel ? "half_pixel" : "output_half_pixel") + "\">(x, rois, which) }",
          16, contents);
      const Array &x = e.inputs.at("x"), r = known ? rois.to_f64() : e.inputs.at("rois");
      Array want;
      for (std::size_t region = 0; region < 3; ++region) {
        const std::ptrdiff_t first = region == 1 ? 0 : 20;
        const Array image(x.begin() + first, x.begin() + first + 20);
        const double offset = half_pixel ? 0.5 : 0;
        const auto edge = [&](std::size_t i) { return r[4 * region + i] * scale - offset; };
        const auto bin = [&](std::size_t axis, int bins) {
          const double length = edge(axis + 2) - edge(axis);
          return (half_pixel ? length : std::max(length, 1.0)) / bins;
        };
        const double down = bin(1, 2), across = bin(0, 3);
        const int rows = static_cast<int>(std::ceil(down)), columns = static_cast<int>(std::ceil(across));
        for (int i = 0; i < 2; ++i)
          for (int j = 0; j < 3; ++j) {
            double sum = 0;
            for (int a = 0; a < rows; ++a)
              for (int b = 0; b < columns; ++b)
                sum += roi_value(image, 4, 5, edge(1) + down * (i + (a + 0.5) / rows),
                                 edge(0) + across * (j + (b + 0.5) / columns));
            want.push_back(rows > 0 && columns > 0 ? sum / (rows * columns) : 0);
          }
      }
      expect_near(outputs_of(e)[0], want);
      expect_gradients(e);
    }
}

TEST(ExpandImage, MaxRoiPool) {
  const Array rois = {1, 0.4, 1, 7.5, 6, 0, 2, 2, 2.4, 2.1, 0, 20, 3, 30, 5};
  const Expanded e = expanded(
      "g (float[2, 2, 4, 5] x, float[3, 5] rois) => (float[3, 2, 2, 3] y)"
      "{ y = MaxRoiPool<pooled_shape = [2, 3], spatial_scale = 0.5>(x, rois) }",
      17, {{"rois", Tensor::from_f64(DType::f64, {3, 5}, rois)}});
  Array want;
  for (std::size_t r = 0; r < 3; ++r)
    for (std::size_t c = 0; c < 2; ++c)
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 3; ++j) {
          const auto edge = [&](std::size_t k) { return std::round(rois[5 * r + k] * 0.5); };
          const double rows = std::max(edge(4) - edge(2) + 1, 1.0) / 2,
                       columns = std::max(edge(3) - edge(1) + 1, 1.0) / 3;
          double largest = -1e9;
          for (int p = 0; p < 4; ++p)
            for (int q = 0; q < 5; ++q)
              if (p >= std::floor(i * rows) + edge(2) && p < std::ceil((i + 1) * rows) + edge(2) &&
                  q >= std::floor(j * columns) + edge(1) && q < std::ceil((j + 1) * columns) + edge(1))
                largest = std::max(
                    largest,
                    e.inputs.at("x")[static_cast<std::size_t>(
                        ((static_cast<int>(rois[5 * r]) * 2 + static_cast<int>(c)) * 4 + p) * 5 + q)]);
          want.push_back(largest == -1e9 ? 0 : largest);
        }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

// The largest of the four weighted pixels around every sample of a bin;
// samples outside of the image count as 0.
TEST(ExpandImage, RoiAlignOfMaxima) {
  const Tensor rois = Tensor::from_f64(DType::f64, {2, 4}, {0.3, 0.4, 5.1, 6.3, -4, 1, 9.7, 3.2});
  const Expanded e = expanded(
      "g (float[2, 1, 4, 5] x, float[2, 4] rois, int64[2] which) => (float[2, 1, 2, 3] y)"
      "{ y = RoiAlign<output_height = 2, output_width = 3, sampling_ratio = 2, mode = \"max\""
      ", coordinate_transformation_mode = \"half_pixel\">(x, rois, which) }",
      16, {{"which", Tensor::from_i64({1, 0})}, {"rois", rois}});
  const Array& x = e.inputs.at("x");
  Array want;
  for (std::int64_t r = 0; r < 2; ++r) {
    const Array image(x.begin() + (1 - r) * 20, x.begin() + (2 - r) * 20);
    const double x0 = rois.at(4 * r) - 0.5, y0 = rois.at(4 * r + 1) - 0.5;
    const double width = rois.at(4 * r + 2) - 0.5 - x0, height = rois.at(4 * r + 3) - 0.5 - y0;
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < 3; ++j) {
        double largest = -1e300;
        for (const double a : {0.25, 0.75})
          for (const double b : {0.25, 0.75}) {
            double row = y0 + (i + a) * height / 2, column = x0 + (j + b) * width / 3;
            const bool inside = row >= -1 && row <= 4 && column >= -1 && column <= 5;
            row = std::clamp(row, 0.0, 3.0);
            column = std::clamp(column, 0.0, 4.0);
            for (const int down : {0, 1})
              for (const int across : {0, 1}) {
                const double part_y = row - std::floor(row), part_x = column - std::floor(column);
                const double weight = (down == 1 ? part_y : 1 - part_y) * (across == 1 ? part_x : 1 - part_x);
                const int at = std::min(static_cast<int>(row) + down, 3) * 5 +
                               std::min(static_cast<int>(column) + across, 4);
                largest = std::max(largest, inside ? weight * image[static_cast<std::size_t>(at)] : 0);
              }
          }
        want.push_back(largest);
      }
  }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

// Two groups of channels and of offsets, strides, dilations and padding on one side; positions up to outside
// of the image.
TEST(ExpandImage, DeformConv) {
  const Expanded e = expanded(
      "g (float[2, 4, 5, 4] x, float[6, 2, 2, 3] w, float[2, 24, 3, 2] o, float[6] b, float[2, 12, 3, 2] m) "
      "=> (float[2, 6, 3, 2] y)"
      "{ y = DeformConv<group = 2, offset_group = 2, strides = [2, 1], dilations = [1, 2], pads = [0, 1, 1, "
      "1]>(x, w, o, b, m) }",
      19);
  const auto in = [&](const char* name,
                      std::initializer_list<std::array<std::int64_t, 2>> at) {  // {index, size} by axis
    std::int64_t place = 0;
    for (const auto& [index, size] : at) place = place * size + index;
    return e.inputs.at(name)[static_cast<std::size_t>(place)];
  };
  Array want;
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t o = 0; o < 6; ++o)
      for (std::int64_t i = 0; i < 3; ++i)
        for (std::int64_t j = 0; j < 2; ++j) {
          double sum = e.inputs.at("b")[static_cast<std::size_t>(o)];
          for (std::int64_t c = 0; c < 2; ++c)
            for (std::int64_t tap = 0; tap < 6; ++tap) {
              const std::int64_t channel = o / 3 * 2 + c, group = channel / 2;
              const auto moved = [&](std::int64_t axis) {
                return in("o", {{n, 2}, {group, 2}, {tap, 6}, {axis, 2}, {i, 3}, {j, 2}});
              };
              const double row = static_cast<double>(2 * i + tap / 3) + moved(0),
                           column = static_cast<double>(j + 2 * (tap % 3) - 1) + moved(1);
              double value = 0;
              for (const int down : {0, 1})
                for (const int across : {0, 1}) {
                  const double y = std::floor(row) + down, x = std::floor(column) + across;
                  if (y < 0 || y > 4 || x < 0 || x > 3) continue;
                  value += (1 - std::fabs(row - y)) * (1 - std::fabs(column - x)) *
                           in("x", {{n, 2},
                                    {channel, 4},
                                    {static_cast<std::int64_t>(y), 5},
                                    {static_cast<std::int64_t>(x), 4}});
                }
              sum += value * in("m", {{n, 2}, {group, 2}, {tap, 6}, {i, 3}, {j, 2}}) *
                     in("w", {{o, 6}, {c, 2}, {tap, 6}});
            }
          want.push_back(sum);
        }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandImage, WhatIsNotKnownIsTheReason) {
  const auto refused = [](const std::string& text, const std::string& reason) {
    expect_refused(import_model(model_from_text(text, 20)), Errc::bad_input, {reason});
  };
  refused("g (float[1, 8, 6] x, int64[2] i, int64[2] b) => (float[1, 2, 3, 4] y) { y = Col2Im(x, i, b) }",
          "its image_shape is not known before running");
  refused("g (float[1, 2, 3] t, int64[4] s) => (float[1, 2, 3, 2] y) { y = AffineGrid(t, s) }",
          "its size is not known before running");
  const std::string roi =
      "g (float[1, 1, 4, 4] x, float[2, 4] r, int64[2] b) => (float[2, 1, 1, 1] y) { y = RoiAlign";
  refused(roi + "<mode = \"max\">(x, r, b) }", "sampling_ratio 0");
  refused(roi + "<mode = \"min\", sampling_ratio = 1>(x, r, b) }", "mode 'min'");
}

// ---- integers ---------------------------------------------------------------------------------------------

Tensor bytes_of(DType type, Shape shape, const Array& values) {
  return Tensor::from_f64(type, std::move(shape), values);
}

TEST(ExpandInteger, ProductsOfDifferences) {
  const Expanded e = expanded(
      "g (uint8[2, 2] a, int8[2, 2] b, uint8[2] za, int8 zb) => (int32[2, 2] y)"
      "{ y = MatMulInteger(a, b, za, zb) }",
      17,
      {{"a", bytes_of(DType::u8, {2, 2}, {255, 1, 0, 200})},
       {"b", bytes_of(DType::i8, {2, 2}, {-128, 3, 127, -4})},
       {"za", bytes_of(DType::u8, {2}, {5, 100})},
       {"zb", bytes_of(DType::i8, {}, {2})}});
  expect_near(e.model.graph.value(e.model.graph.outputs[0]).data.to_f64(),
              {250 * -130 - 4 * 125, 250 * 1 + 4 * 6, -100 * -130 + 100 * 125, -100 * 1 + 100 * -6});
}

TEST(ExpandInteger, RoundsToEvenAndSaturates) {
  const auto product = [](const Array& a) {
    const Expanded e = expanded(
        "g (int8[1, 1] a, float sa, int8 za, int8[1, 1] b, float sb, int8 zb, float sy, int8 zy) => (int8[1, "
        "1] y)"
        "{ y = QLinearMatMul(a, sa, za, b, sb, zb, sy, zy) }",
        17,
        {{"a", bytes_of(DType::i8, {1, 1}, a)},
         {"sa", Tensor::scalar(DType::f64, 0.5)},
         {"za", bytes_of(DType::i8, {}, {0})},
         {"b", bytes_of(DType::i8, {1, 1}, {3})},
         {"sb", Tensor::scalar(DType::f64, 0.5)},
         {"zb", bytes_of(DType::i8, {}, {1})},
         {"sy", Tensor::scalar(DType::f64, 1)},
         {"zy", bytes_of(DType::i8, {}, {10})}});
    return e.model.graph.value(e.model.graph.outputs[0]).data.to_f64()[0];
  };
  EXPECT_EQ(product({5}), 12) << "2.5 + 10";
  EXPECT_EQ(product({7}), 14) << "3.5 + 10";
  EXPECT_EQ(product({127}), 74) << "63.5 + 10";
  EXPECT_EQ(product({-128}), -54);
}

// 3 times 2.5 as float8e4m3fn, with scales.
TEST(ExpandInteger, ProductsOfFloatsOfEightBits) {
  const auto product = [](double scale) {
    ImportOptions options;
    options.known_inputs = {{"ua", bytes_of(DType::u8, {1, 1}, {0x44})},
                            {"sa", Tensor::scalar(DType::f32, 0.5)},
                            {"ub", bytes_of(DType::u8, {1, 1}, {0x42})},
                            {"sy", Tensor::scalar(DType::f32, scale)},
                            {"uz", bytes_of(DType::u8, {}, {0})}};
    const Graph graph =
        imported_or_fail(
            model_from_text(
                "g (uint8[1, 1] ua, float sa, uint8[1, 1] ub, float sy, uint8 uz) => (float[1, 1] y) {"
                "a = BitCast<to = 17>(ua) b = BitCast<to = 17>(ub) z = BitCast<to = 17>(uz) "
                "q = QLinearMatMul(a, sa, z, b, sa, z, sy, z) y = Cast<to = 1>(q) }",
                26),
            options)
            .graph;
    return graph.value(graph.outputs[0]).data.to_f64()[0];
  };
  EXPECT_EQ(product(1), 1.875);
  EXPECT_EQ(product(1.1), 1.75) << "1.7045 is between 1.625 and 1.75";
  EXPECT_EQ(product(0.001), 448);
}

// ---- operators of language models -------------------------------------------------------------------------

TEST(ExpandGating, SwiGlu) {
  const Expanded e =
      expanded("g (float[3, 4] a, float[3, 4] b) => (float[3, 4] y) { y = SwiGLU<alpha = 1.5>(a, b) }", 28);
  Array want;
  for (std::size_t i = 0; i < 12; ++i) {
    const double a = e.inputs.at("a")[i];
    want.push_back(a / (1 + std::exp(-1.5 * a)) * e.inputs.at("b")[i]);
  }
  expect_near(outputs_of(e)[0], want);
  expect_gradients(e);
}

TEST(ExpandGating, RunningProducts) {
  for (const bool exclusive : {false, true})
    for (const bool reverse : {false, true}) {
      const Expanded e = expanded(
          "g (float[2, 4] x, int64 axis) => (float[2, 4] y) { y = CumProd<exclusive = " +
              std::string(exclusive ? "1" : "0") + ", reverse = " + (reverse ? "1" : "0") + ">(x, axis) }",
          26, {{"axis", Tensor::scalar(DType::i64, -1)}});
      Array want;
      for (int row = 0; row < 2; ++row)
        for (int i = 0; i < 4; ++i) {
          double product = 1;
          for (int j = 0; j < 4; ++j) {
            const bool before = reverse ? j > i : j < i;
            if (before || (j == i && !exclusive))
              product *= e.inputs.at("x")[static_cast<std::size_t>(row * 4 + j)];
          }
          want.push_back(product);
        }
      expect_near(outputs_of(e)[0], want);
      expect_gradients(e);
    }
}

TEST(ExpandGating, CausalConvolutionWithItsState) {
  const Expanded e = expanded(
      "g (float[1, 2, 4] x, float[2, 1, 3] w, float[2] b, float[1, 2, 2] past) => (float[1, 2, 4] y, "
      "float[1, 2, 2] next)"
      "{ y, next = CausalConvWithState<activation = \"silu\">(x, w, b, past) }",
      27);
  Array want, next;
  for (std::size_t c = 0; c < 2; ++c) {
    const Array &x = e.inputs.at("x"), &past = e.inputs.at("past"), &w = e.inputs.at("w");
    Array line{past[c * 2], past[c * 2 + 1]};
    line.insert(line.end(), x.begin() + static_cast<std::ptrdiff_t>(c * 4),
                x.begin() + static_cast<std::ptrdiff_t>(c * 4 + 4));
    for (std::size_t i = 0; i < 4; ++i) {
      double sum = e.inputs.at("b")[c];
      for (std::size_t k = 0; k < 3; ++k) sum += line[i + k] * w[c * 3 + k];
      want.push_back(sum / (1 + std::exp(-sum)));
    }
    next.insert(next.end(), line.end() - 2, line.end());
  }
  const auto outputs = outputs_of(e);
  expect_near(outputs[0], want);
  expect_near(outputs[1], next);
  expect_gradients(e);
}

TEST(ExpandGating, CachesAreWrittenAtAPosition) {
  for (const bool circular : {false, true}) {
    const Expanded e = expanded(
        "g (float[2, 4, 2] c, float[2, 2, 2] u, int64[2] at) => (float[2, 4, 2] y)"
        "{ y = TensorScatter<mode = \"" +
            std::string(circular ? "circular" : "linear") + "\">(c, u, at) }",
        24, {{"at", Tensor::from_i64({1, circular ? 3 : 2})}});
    Array want = e.inputs.at("c");
    for (std::size_t b = 0; b < 2; ++b)
      for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t d = 0; d < 2; ++d) {
          const std::size_t row = (b == 0 ? 1 : circular ? 3 : 2) + i;
          want[(b * 4 + row % 4) * 2 + d] = e.inputs.at("u")[(b * 2 + i) * 2 + d];
        }
    expect_near(outputs_of(e)[0], want);
    expect_gradients(e);
  }
}

// Two heads of keys, four of queries; S [key, value] per head of keys.
TEST(ExpandGating, LinearAttentionStepByStep) {
  for (const char* rule : {"linear", "gated", "delta", "gated_delta"}) {
    const bool gated = std::string(rule).find("gated") == 0,
               delta = std::string(rule).find("delta") != std::string::npos;
    const Expanded e =
        expanded(std::string("g (float[1, 3, 8] q, float[1, 3, 4] k, float[1, 3, 6] v, float[1, 2, 2, 3] s") +
                     (gated ? ", float[1, 3, 4] g" : "") + (delta ? ", float[1, 3, 2] b" : "") +
                     ") => (float[1, 3, 12] y, float[1, 2, 2, 3] next) { y, next = "
                     "LinearAttention<q_num_heads = 4, kv_num_heads = 2,"
                     " scale = 0.5, update_rule = \"" +
                     rule + "\">(q, k, v, s, " + (gated ? "g" : "") + (delta ? ", b" : "") + ") }",
                 27);
    Array state = e.inputs.at("s"), want(36);
    const Array &q = e.inputs.at("q"), &k = e.inputs.at("k"), &v = e.inputs.at("v");
    for (std::size_t t = 0; t < 3; ++t)
      for (std::size_t h = 0; h < 2; ++h) {
        double* s = &state[h * 6];
        for (std::size_t i = 0; i < 2 && gated; ++i)
          for (std::size_t j = 0; j < 3; ++j) s[i * 3 + j] *= std::exp(e.inputs.at("g")[t * 4 + h * 2 + i]);
        Array added;
        for (std::size_t j = 0; j < 3; ++j) {
          double known = 0;
          for (std::size_t i = 0; i < 2; ++i) known += s[i * 3 + j] * k[t * 4 + h * 2 + i];
          const double value = v[t * 6 + h * 3 + j];
          added.push_back(delta ? e.inputs.at("b")[t * 2 + h] * (value - known) : value);
        }
        for (std::size_t i = 0; i < 2; ++i)
          for (std::size_t j = 0; j < 3; ++j) s[i * 3 + j] += k[t * 4 + h * 2 + i] * added[j];
        for (std::size_t head = 2 * h; head < 2 * h + 2; ++head)
          for (std::size_t j = 0; j < 3; ++j)
            want[t * 12 + head * 3 + j] =
                0.5 * (q[t * 8 + head * 2] * s[j] + q[t * 8 + head * 2 + 1] * s[3 + j]);
      }
    const auto outputs = outputs_of(e);
    expect_near(outputs[0], want);
    expect_near(outputs[1], state);
    expect_gradients(e);
  }
}

// ---- the table --------------------------------------------------------------------------------------------

TEST(Expansion, NoneHidesARow) {
  for (const Expansion* e : all_expansions()) {
    for (int opset = std::max(e->since, 7); opset <= std::min(e->until, 24); ++opset)
      EXPECT_EQ(find_op(e->name, e->domain, opset), nullptr) << e->name << " has a row at opset " << opset;
  }
}

TEST(Expansion, PartsCarryTheNodesScope) {
  onnx::ModelProto model =
      microsoft_model("g (float[2, 4] x) => (float[2, 4] y) { y = com.microsoft.QuickGelu(x) }");
  model.mutable_graph()->mutable_node(0)->set_name("/layers.3/mlp/act/QuickGelu");
  const auto imported = import_model(model);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  const Graph& graph = imported->graph;
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].name, "/layers.3/mlp/act/QuickGelu/Swish");
  const SourceNode& source = graph.sources[graph.nodes[0].origin.sources[0]];
  EXPECT_EQ(source.op_type, "QuickGelu");
  EXPECT_EQ(source.domain, "com.microsoft");
  EXPECT_EQ(source.scope, "layers.3/mlp/act");
  EXPECT_EQ(graph.value(graph.outputs[0]).name, "y");
}

TEST(Expansion, UnknownAttributesAreNamed) {
  expect_refused(import_model(microsoft_model("g (float[2, 4] x) => (float[2, 4] y)"
                                              "{ y = com.microsoft.QuickGelu<beta = 1.0>(x) }")),
                 Errc::bad_input, {"com.microsoft.QuickGelu", "'beta' is not known"});
}

TEST(Expansion, AFailedBodyIsTakenBackWhenViewing) {
  ImportOptions options;
  options.allow_unknown = true;
  const auto imported =
      import_model(model_from_text("g (float[2, 4, 3, 5] q, float[2, 4, 6, 7] k) => (float[2, 4, 3, 7] y)"
                                   "{ y = Attention(q, k, k) }",
                                   23),
                   options);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(live_node_count(imported->graph), 1u);
  ASSERT_EQ(imported->untyped.size(), 1u);
  EXPECT_EQ(imported->untyped[0].op_type, "Attention");
  EXPECT_TRUE(verify(imported->graph).ok());
}

}  // namespace
}  // namespace gradloom
