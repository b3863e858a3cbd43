// What the generic suites over operator rows share: a graph of one node built from a sample, its inputs, and
// tolerances.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "engine/base/hash.h"
#include "engine/ir/builder.h"
#include "engine/onnx/attributes.h"
#include "kernels/cpu.h"
#include "tests/engine/reference.h"

namespace gradloom::every_op {

constexpr std::uint64_t kSeed = 7, kStep = 3;

struct Case {
  const OpDef* op;
  Sample sample;
};

inline std::vector<Case> cases_of(const OpDef* op) {
  std::vector<Case> cases;
  if (op->samples == nullptr) return cases;
  for (Sample& sample : op->samples()) cases.push_back({op, std::move(sample)});
  return cases;
}

// ---- inputs -----------------------------------------------------------------------------------------------

inline double away_from_kinks(double x, const Sample& sample) {
  for (double kink : sample.kinks)
    if (std::fabs(x - kink) < sample.kink_distance)
      x = kink + (x < kink ? -sample.kink_distance : sample.kink_distance);
  return x;
}

// Floats are drawn as f32 numbers, so that an f64 run has the same inputs.
inline Tensor make_input(const SampleInput& input, const Sample& sample, std::mt19937_64& random) {
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

// One node built from a sample, its inputs' contents, and the values it makes.
struct Built {
  Graph graph;
  reference::Feeds feeds;
  std::vector<ValueId> inputs, outputs;
};

inline DType promoted(DType t, DType float_type) { return t == DType::f32 ? float_type : t; }

inline Result<Built> build(const OpDef& op, const Sample& sample, DType float_type) {
  Built built;
  GraphBuilder b(built.graph);
  std::mt19937_64 random(fnv1a64(sample.name + op.name));
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    const SampleInput& input = sample.inputs[i];
    if (input.omitted) {
      built.inputs.push_back(kNone);
      continue;
    }
    Tensor data = make_input(input, sample, random);
    data = data.cast(promoted(data.dtype(), float_type));
    if (input.constant) {
      built.inputs.push_back(b.constant(data, "c" + std::to_string(i)));
    } else {
      built.inputs.push_back(b.input("x" + std::to_string(i), data.type()));
      built.feeds[built.inputs.back()] = data;
    }
  }
  Attrs attrs = sample.attrs;
  if (float_type == DType::f64) promote_attributes_to_f64(op.name, attrs);
  built.outputs = TRY(b.add(op, built.inputs, attrs, sample.output_count));
  return built;
}

#define ASSERT_OK(result) ASSERT_TRUE((result).ok()) << (result).error().message

// ---- comparison -------------------------------------------------------------------------------------------

struct Tolerance {
  double rtol, atol;
};

// reliability tolerances of f32 against f64: elementwise and moved, reduced, gradients.
inline Tolerance tolerance_of(const OpDef& op) {
  static const std::set<std::string> kElementwiseLike = {"FusedElementwise",
                                                         "Clip",
                                                         "LeakyRelu",
                                                         "PRelu",
                                                         "Elu",
                                                         "HardSigmoid",
                                                         "HardSwish",
                                                         "Softsign",
                                                         "Xor",
                                                         "Sum",
                                                         "Mean",
                                                         "Gelu",
                                                         "Reshape",
                                                         "Flatten",
                                                         "Squeeze",
                                                         "Unsqueeze",
                                                         "Identity",
                                                         "Transpose",
                                                         "Concat",
                                                         "Split",
                                                         "Expand",
                                                         "Tile",
                                                         "Pad",
                                                         "Slice",
                                                         "SliceGrad",
                                                         "Gather",
                                                         "GatherElements",
                                                         "CastLike",
                                                         "OneHot",
                                                         "Constant",
                                                         "ConstantOfShape",
                                                         "Range",
                                                         "Trilu",
                                                         "Dropout",
                                                         "MaxPool",
                                                         "MaxPoolGrad"};
  if (std::string(op.name).find("Grad") != std::string::npos) return {1e-4, 1e-5};
  if (op.has(kElementwise) || kElementwiseLike.count(op.name) != 0) return {1.3e-6, 1e-6};
  return {1e-5, 1e-5};
}

// Absolute tolerances are for results of unit scale. Samples draw unit inputs, so sums over k of them have
// scale sqrt(k): their errors are compared with the root mean square of the output.
inline double scale_of(const OpDef& op, const Tensor& want) {
  if (op.has(kElementwise) || tolerance_of(op).rtol < 1e-5 || want.count() == 0) return 1;
  double sum = 0;
  for (std::int64_t i = 0, n = want.count(); i < n; ++i) sum += want.at(i) * want.at(i);
  return std::max(1.0, std::sqrt(sum / static_cast<double>(want.count())));
}

inline ::testing::AssertionResult near(const Tensor& got, const Tensor& want, Tolerance t) {
  if (got.shape() != want.shape())
    return ::testing::AssertionFailure() << to_string(got.type()) << " against " << to_string(want.type());
  const bool exact = !is_float(got.dtype());
  for (std::int64_t i = 0, n = got.count(); i < n; ++i) {
    const double a = got.at(i), b = want.at(i);
    const bool same = a == b || (std::isnan(a) && std::isnan(b)) ||
                      (!exact && std::fabs(a - b) <= t.atol + t.rtol * std::fabs(b));
    if (!same) return ::testing::AssertionFailure() << "element " << i << ": " << a << " against " << b;
  }
  return ::testing::AssertionSuccess();
}

// Tests with one row as parameter, run on every sample of it.
class RowTest : public ::testing::TestWithParam<const OpDef*> {
 protected:
  // Runs `check` on every sample of the row, with its name in front of any failure.
  template <class Check>
  void for_each_sample(const std::vector<Case>& cases, Check check) {
    for (const Case& c : cases) {
      SCOPED_TRACE(std::string(c.op->name) + ", sample '" + c.sample.name + "'");
      check(c.op, c.sample);
    }
  }
};

inline std::vector<const OpDef*> rows(bool differentiable) {
  std::vector<const OpDef*> list;
  for (const OpDef* op : all_ops())
    if (!differentiable || op->grad != nullptr) list.push_back(op);
  return list;
}

inline std::string name_of(const ::testing::TestParamInfo<const OpDef*>& info) {
  return std::string(info.param->name) + (info.param->domain[0] != 0 ? "_ours" : "") + "_" +
         std::to_string(info.param->since);
}

}  // namespace gradloom::every_op
