#include "engine/onnx/read/sample_graph.h"

#include <algorithm>
#include <cmath>

#include "engine/base/hash.h"
#include "engine/onnx/read/attributes.h"

namespace gradloom {
namespace {

double away_from_kinks(double x, const Sample& sample) {
  for (double kink : sample.kinks)
    if (std::fabs(x - kink) < sample.kink_distance)
      x = kink + (x < kink ? -sample.kink_distance : sample.kink_distance);
  return x;
}

}  // namespace

Tensor make_sample_input(const SampleInput& input, const Sample& sample, std::mt19937_64& random) {
  const Type& type = input.type;
  if (!input.values.empty() || element_count(type.shape) == 0)
    return Tensor::from_f64(type.dtype, type.shape, input.values);
  std::vector<double> values(static_cast<std::size_t>(element_count(type.shape)));
  for (double& v : values) {
    const double u = std::uniform_real_distribution<double>(0, 1)(random);
    if (is_float(type.dtype))
      v = away_from_kinks(input.low + u * (input.high - input.low), sample);
    else
      v = std::min(input.high, std::floor(input.low + u * (input.high - input.low + 1)));
  }
  return Tensor::from_f64(type.dtype, type.shape, values);
}

Result<SampleNode> add_sample(GraphBuilder& b, const OpDef& op, const Sample& sample, DType float_type,
                              const std::string& prefix, DType rounded) {
  SampleNode node;
  std::mt19937_64 random(fnv1a64(sample.name + op.name));
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    const SampleInput& input = sample.inputs[i];
    if (input.omitted) {
      node.inputs.push_back(kNone);
      continue;
    }
    Tensor data = make_sample_input(input, sample, random);
    if (data.dtype() == DType::f32 && !(input.statistic && is_half(float_type)))
      data = data.cast(input.statistic ? DType::f32 : rounded).cast(float_type);
    if (input.constant) {
      node.inputs.push_back(b.constant(data, prefix + "c" + std::to_string(i)));
    } else {
      node.inputs.push_back(b.input(prefix + "x" + std::to_string(i), data.type()));
      node.feeds[node.inputs.back()] = data;
    }
  }
  Attrs attrs = sample.attrs;
  if (float_type == DType::f64) promote_attributes_to_f64(op.name, attrs, false);
  node.outputs = TRY(b.add(op, node.inputs, attrs, sample.output_count));
  return node;
}

}  // namespace gradloom
