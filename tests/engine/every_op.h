// What the generic suites over operator rows share: a graph of one node built from a sample,
// its inputs, and tolerances.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "engine/base/hash.h"
#include "engine/ir/builder.h"
#include "engine/onnx/read/sample_graph.h"
#include "kernels/launcher.h"
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

// One node built from a sample, alone in its graph.
struct Built : SampleNode {
  Graph graph;
};

inline Result<Built> build(const OpDef& op, const Sample& sample, DType float_type) {
  Built built;
  GraphBuilder b(built.graph);
  static_cast<SampleNode&>(built) = TRY(add_sample(b, op, sample, float_type));
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
                                                         "Selu",
                                                         "Celu",
                                                         "ThresholdedRelu",
                                                         "Shrink",
                                                         "Mish",
                                                         "Swish",
                                                         "Mod",
                                                         "BitShift",
                                                         "IsInf",
                                                         "QuantizeLinear",
                                                         "DequantizeLinear",
                                                         "Hardmax",
                                                         "EyeLike",
                                                         "Bernoulli",
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
                                                         "GatherND",
                                                         "Scatter",
                                                         "DepthToSpace",
                                                         "SpaceToDepth",
                                                         "ReverseSequence",
                                                         "Compress",
                                                         "TopK",
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
