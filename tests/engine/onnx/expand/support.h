// Models of one node whose operator is a body, for tests: forward against plain loops written from
// the definitions of the operators, gradients against central differences in f64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/autodiff/autodiff.h"
#include "engine/onnx/expand/expansion.h"
#include "tests/engine/onnx/support.h"
#include "tests/engine/reference.h"

namespace gradloom::expand_test {

using test::expect_refused;
using test::import_model;
using test::imported_or_fail;
using test::model_from_text;

using Array = std::vector<double>;

using Inputs = std::map<std::string, Array>;

// A model of one node in f64, its inputs and what the node makes of them.
struct Expanded {
  ImportedModel model;
  Inputs inputs;  // floating point, random
};

inline onnx::ModelProto microsoft_model(const std::string& text, int opset = 17) {
  onnx::ModelProto model = model_from_text(text, opset);
  auto* import = model.add_opset_import();
  import->set_domain("com.microsoft");
  import->set_version(1);
  return model;
}

inline Expanded expanded(const std::string& text, int opset = 24,
                         const std::map<std::string, Tensor>& known = {}) {
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

inline reference::Feeds feeds_of(const Expanded& e) {
  reference::Feeds feeds;
  for (const ValueId id : e.model.graph.inputs) {
    const Value& v = e.model.graph.value(id);
    feeds[id] = Tensor::from_f64(v.type.dtype, v.type.shape, e.inputs.at(v.name));
  }
  return feeds;
}

inline std::vector<Array> outputs_of(const Expanded& e) {
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

inline void expect_near(const Array& got, const Array& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-9) << "element " << i;
}

// sum over the float outputs of random weights * output, differentiated in every float input.
inline void expect_gradients(Expanded e) {
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
inline Array attention(const AttentionShape& s, const Array& q, const Array& k, const Array& v,
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
inline Array swapped(const Array& x, int batch, int first, int second, int size) {
  Array y(x.size());
  for (int b = 0; b < batch; ++b)
    for (int i = 0; i < first; ++i)
      for (int j = 0; j < second; ++j)
        for (int d = 0; d < size; ++d)
          y[static_cast<std::size_t>(((b * second + j) * first + i) * size + d)] =
              x[static_cast<std::size_t>(((b * first + i) * second + j) * size + d)];
  return y;
}

// rows [.., n] times [n, m]
inline Array product(const Array& rows, const Array& matrix, std::size_t n) {
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

inline Array sum_of(const Array& a, const Array& b) {
  Array sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + b[i % b.size()]);
  return sum;
}

}  // namespace gradloom::expand_test
