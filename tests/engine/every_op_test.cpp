// The generic suite over every sample of every operator row: kernels write exactly what inference says, f32 agrees with f64,
// the same bits come out for any number of threads, and gradients agree with central differences in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "engine/autodiff/autodiff.h"
#include "engine/base/hash.h"
#include "engine/ir/builder.h"
#include "engine/onnx/attributes.h"
#include "engine/ops/fused_elementwise.h"
#include "kernels/cpu.h"
#include "tests/engine/reference.h"

namespace gradloom {
namespace {

constexpr double kGradientRtol = 1e-6, kGradientAtol = 1e-8;  // against central differences in f64
constexpr std::int64_t kEveryCoordinate = 512, kSomeCoordinates = 64;
constexpr std::uint64_t kSeed = 7, kStep = 3;

struct Case {
  const OpDef* op;
  Sample sample;
};

std::vector<Case> cases_of(const OpDef* op) {
  std::vector<Case> cases;
  if (op->samples == nullptr) return cases;
  for (Sample& sample : op->samples()) cases.push_back({op, std::move(sample)});
  return cases;
}

// ---- inputs -------------------------------------------------------------------------------------------------------------

double away_from_kinks(double x, const Sample& sample) {
  for (double kink : sample.kinks)
    if (std::fabs(x - kink) < sample.kink_distance) x = kink + (x < kink ? -sample.kink_distance : sample.kink_distance);
  return x;
}

// Floats are drawn as f32 numbers, so that an f64 run has the same inputs.
Tensor make_input(const SampleInput& input, const Sample& sample, std::mt19937_64& random) {
  const Type& type = input.type;
  if (!input.values.empty() || element_count(type.shape) == 0) return Tensor::from_f64(type.dtype, type.shape, input.values);
  std::vector<double> values(static_cast<std::size_t>(element_count(type.shape)));
  for (double& v : values) {
    const double u = std::uniform_real_distribution<double>(0, 1)(random);
    if (is_float(type.dtype)) v = away_from_kinks(input.low + u * (input.high - input.low), sample);
    else v = std::min(input.high, std::floor(input.low + u * (input.high - input.low + 1)));
  }
  return Tensor::from_f64(type.dtype, type.shape, values);
}

// One node built from a sample, its inputs' contents, and the values it makes.
struct Built {
  Graph graph;
  reference::Feeds feeds;
  std::vector<ValueId> inputs, outputs;
};

DType promoted(DType t, DType float_type) { return t == DType::f32 ? float_type : t; }

Result<Built> build(const OpDef& op, const Sample& sample, DType float_type) {
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

// ---- comparison -----------------------------------------------------------------------------------------------------------

struct Tolerance {
  double rtol, atol;
};

// reliability tolerances of f32 against f64: elementwise and moved, reduced, gradients.
Tolerance tolerance_of(const OpDef& op) {
  static const std::set<std::string> kElementwiseLike = {
      "FusedElementwise", "Clip", "LeakyRelu", "PRelu", "Elu", "HardSigmoid", "HardSwish", "Softsign", "Xor", "Sum", "Mean", "Gelu",
      "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Concat", "Split", "Expand", "Tile", "Pad", "Slice",
      "SliceGrad", "Gather", "OneHot", "Constant", "ConstantOfShape", "Range", "Trilu", "Dropout", "MaxPool", "MaxPoolGrad"};
  if (std::string(op.name).find("Grad") != std::string::npos) return {1e-4, 1e-5};
  if (op.has(kElementwise) || kElementwiseLike.count(op.name) != 0) return {1.3e-6, 1e-6};
  return {1e-5, 1e-5};
}

// Absolute tolerances are for results of unit scale. Samples draw unit inputs, so sums over k of them have scale sqrt(k):
// their errors are compared with the root mean square of the output.
double scale_of(const OpDef& op, const Tensor& want) {
  if (op.has(kElementwise) || tolerance_of(op).rtol < 1e-5 || want.count() == 0) return 1;
  double sum = 0;
  for (std::int64_t i = 0, n = want.count(); i < n; ++i) sum += want.at(i) * want.at(i);
  return std::max(1.0, std::sqrt(sum / static_cast<double>(want.count())));
}

::testing::AssertionResult near(const Tensor& got, const Tensor& want, Tolerance t) {
  if (got.shape() != want.shape()) return ::testing::AssertionFailure() << to_string(got.type()) << " against " << to_string(want.type());
  const bool exact = !is_float(got.dtype());
  for (std::int64_t i = 0, n = got.count(); i < n; ++i) {
    const double a = got.at(i), b = want.at(i);
    const bool same = a == b || (std::isnan(a) && std::isnan(b)) || (!exact && std::fabs(a - b) <= t.atol + t.rtol * std::fabs(b));
    if (!same) return ::testing::AssertionFailure() << "element " << i << ": " << a << " against " << b;
  }
  return ::testing::AssertionSuccess();
}

class EveryOp : public ::testing::TestWithParam<const OpDef*> {
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
class EveryOpGradient : public EveryOp {};

void check_writes(const OpDef* op, const Sample& sample) {
  for (DType type : {DType::f32, DType::f64}) {
    auto built = build(*op, sample, type);
    ASSERT_OK(built);
    auto runner = reference::Runner::create(built->graph);
    ASSERT_OK(runner);
    // Two fills of the outputs' memory: a byte that the kernel leaves out differs between them.
    auto first = runner->run(built->feeds, kSeed, kStep, 0xcd), second = runner->run(built->feeds, kSeed, kStep, 0x31);
    ASSERT_OK(first);
    ASSERT_OK(second);
    for (ValueId out : built->outputs) EXPECT_TRUE(bit_equal((*first)[out], (*second)[out])) << "not every element was written";
    EXPECT_TRUE(verify(built->graph).ok());
  }
}

void check_precision(const OpDef* op, const Sample& sample) {
  auto single = build(*op, sample, DType::f32), wide = build(*op, sample, DType::f64);
  ASSERT_OK(single);
  ASSERT_OK(wide);
  auto single_runner = reference::Runner::create(single->graph), wide_runner = reference::Runner::create(wide->graph);
  ASSERT_OK(single_runner);
  ASSERT_OK(wide_runner);
  auto got = single_runner->run(single->feeds, kSeed, kStep), want = wide_runner->run(wide->feeds, kSeed, kStep);
  ASSERT_OK(got);
  ASSERT_OK(want);
  for (std::size_t i = 0; i < single->outputs.size(); ++i) {
    const Tensor& reference = (*want)[wide->outputs[i]];
    Tolerance tolerance = tolerance_of(*op);
    tolerance.atol *= scale_of(*op, reference);
    EXPECT_TRUE(near((*got)[single->outputs[i]], reference, tolerance)) << "output " << i;
  }
}

void check_threads(const OpDef* op, const Sample& sample) {
  auto built = build(*op, sample, DType::f32);
  ASSERT_OK(built);
  auto runner = reference::Runner::create(built->graph);
  ASSERT_OK(runner);
  const int before = kernels::threads();
  kernels::set_threads(1);
  auto one = runner->run(built->feeds, kSeed, kStep);
  kernels::set_threads(2);
  auto two = runner->run(built->feeds, kSeed, kStep);
  kernels::set_threads(before);
  ASSERT_OK(one);
  ASSERT_OK(two);
  for (ValueId out : built->outputs) EXPECT_TRUE(bit_equal((*one)[out], (*two)[out]));
}

TEST_P(EveryOp, KernelWritesWhatInferenceSays) { for_each_sample(cases_of(GetParam()), check_writes); }
TEST_P(EveryOp, SingleAgreesWithDouble) { for_each_sample(cases_of(GetParam()), check_precision); }
TEST_P(EveryOp, SameBitsForAnyNumberOfThreads) { for_each_sample(cases_of(GetParam()), check_threads); }

// ---- gradients ----------------------------------------------------------------------------------------------------------------

// Inputs that are not differentiated although the result depends on them (asking for their gradient is an error, or gives none).
const std::set<std::pair<std::string, std::size_t>> kConstantInputs = {
    {"BatchNormalization", 3}, {"BatchNormalization", 4},                              // running statistics
    {"NegativeLogLikelihoodLoss", 2}, {"SoftmaxCrossEntropyLoss", 2},                  // class weights
    {"Dropout", 1},                                                                    // ratio
};

// Outputs that the loss of the check is made of: the first, or all of those that are results in their own right.
bool in_loss(const OpDef& op, std::size_t output) {
  return output == 0 || std::string(op.name) == "Split" || (std::string(op.name) == "SoftmaxCrossEntropyLoss" && output == 1);
}

// sum over the chosen outputs of w * y, with random w.
struct Check {
  Built built;
  std::vector<ValueId> ys;
  std::vector<Tensor> weights;
  std::vector<ValueId> wrt;
  std::map<ValueId, ValueId> grads;
};

Result<Check> make_check(const OpDef& op, const Sample& sample, DType type) {
  Check c;
  c.built = TRY(build(op, sample, type));
  Graph& graph = c.built.graph;
  GraphBuilder b(graph);
  std::mt19937_64 random(11);
  ValueId loss = kNone;
  for (std::size_t i = 0; i < c.built.outputs.size(); ++i) {
    const ValueId y = c.built.outputs[i];
    if (!in_loss(op, i) || !is_float(graph.type(y).dtype)) continue;
    SampleInput w;
    w.type = {DType::f32, graph.type(y).shape};
    c.ys.push_back(y);
    c.weights.push_back(make_input(w, {}, random).cast(type));
    const ValueId term = b.op("ReduceSum", {b.op("Mul", {y, b.constant(c.weights.back(), "w" + std::to_string(i))})},
                              {{"keepdims", std::int64_t{0}}});
    loss = loss == kNone ? term : b.op("Add", {loss, term});
  }
  for (std::size_t i = 0; i < c.built.inputs.size(); ++i) {
    const ValueId x = c.built.inputs[i];
    const bool variable = x != kNone && c.built.feeds.count(x) != 0 && kConstantInputs.count({op.name, i}) == 0;
    if (variable && is_float(graph.type(x).dtype)) c.wrt.push_back(x);
  }
  if (loss == kNone) return Error{Errc::usage, "no floating point output"};
  c.grads = TRY(add_gradients(graph, loss, c.wrt));
  TRY(verify(graph));
  return c;
}

// sum over the outputs of w * (y(x + h d) - y(x - h d)): the difference first, so that little is lost to rounding.
double weighted_difference(const Check& c, const std::vector<Tensor>& plus, const std::vector<Tensor>& minus) {
  double sum = 0;
  for (std::size_t k = 0; k < c.ys.size(); ++k)
    for (std::int64_t i = 0, n = c.weights[k].count(); i < n; ++i)
      sum += c.weights[k].at(i) * (plus[c.ys[k]].at(i) - minus[c.ys[k]].at(i));
  return sum;
}

std::vector<std::int64_t> coordinates(std::int64_t count, std::mt19937_64& random) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) all[static_cast<std::size_t>(i)] = i;
  if (count <= kEveryCoordinate) return all;
  std::shuffle(all.begin(), all.end(), random);
  all.resize(static_cast<std::size_t>(kSomeCoordinates));
  return all;
}

// Runs the forward node alone on moved inputs.
class Differences {
 public:
  Differences(const OpDef& op, const Sample& sample) : built_(build(op, sample, DType::f64)) {
    if (built_.ok()) runner_.emplace_back(reference::Runner::create(built_->graph));
  }
  Result<double> along(const Check& c, ValueId x, const std::vector<double>& direction, double h) {
    const Tensor base = built_->feeds.at(x);
    std::vector<double> moved = base.to_f64();
    Result<std::vector<Tensor>> side[2] = {std::vector<Tensor>{}, std::vector<Tensor>{}};
    for (int s = 0; s < 2; ++s) {
      std::vector<double> values = moved;
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += (s == 0 ? h : -h) * direction[i];
      reference::Feeds feeds = built_->feeds;
      feeds[x] = Tensor::from_f64(DType::f64, base.shape(), values);
      side[s] = runner_[0]->run(feeds, kSeed, kStep);
      if (!side[s]) return side[s].error();
    }
    return weighted_difference(c, *side[0], *side[1]) / (2 * h);
  }

 private:
  Result<Built> built_;
  std::vector<Result<reference::Runner>> runner_;
};

void expect_gradient(double analytic, double numeric, const std::string& where) {
  EXPECT_LE(std::fabs(analytic - numeric), kGradientAtol + kGradientRtol * std::fabs(numeric))
      << where << ": gradient " << analytic << ", central difference " << numeric;
}

void check_input(const Check& c, ValueId x, std::size_t input, const Tensor& gradient, Differences& differences) {
  const Tensor& base = c.built.feeds.at(x);
  std::mt19937_64 random(5);
  for (std::int64_t at : coordinates(base.count(), random)) {
    std::vector<double> direction(static_cast<std::size_t>(base.count()), 0.0);
    direction[static_cast<std::size_t>(at)] = 1;
    auto numeric = differences.along(c, x, direction, 1e-5 * std::max(1.0, std::fabs(base.at(at))));
    ASSERT_OK(numeric);
    const double analytic = gradient.defined() ? gradient.at(at) : 0.0;
    expect_gradient(analytic, *numeric, "input " + std::to_string(input) + ", element " + std::to_string(at));
    if (::testing::Test::HasFailure()) return;
  }
  for (int d = 0; base.count() > kEveryCoordinate && d < 3; ++d) {
    std::vector<double> direction;
    double analytic = 0;
    for (std::int64_t i = 0; i < base.count(); ++i) {
      direction.push_back(std::uniform_real_distribution<double>(-1, 1)(random));
      analytic += gradient.defined() ? gradient.at(i) * direction.back() : 0.0;
    }
    auto numeric = differences.along(c, x, direction, 1e-5);
    ASSERT_OK(numeric);
    expect_gradient(analytic, *numeric, "input " + std::to_string(input) + ", direction " + std::to_string(d));
  }
}

void check_gradient(const OpDef* op, const Sample& sample) {
  auto check = make_check(*op, sample, DType::f64);
  ASSERT_OK(check);
  auto runner = reference::Runner::create(check->built.graph);
  ASSERT_OK(runner);
  auto values = runner->run(check->built.feeds, kSeed, kStep);
  ASSERT_OK(values);
  Differences differences(*op, sample);
  for (std::size_t i = 0; i < check->built.inputs.size(); ++i) {
    const ValueId x = check->built.inputs[i];
    if (x == kNone || check->grads.count(x) == 0) continue;
    const ValueId g = check->grads.at(x);
    // No gradient at all is right only where the differences are zero: the check below finds the rest.
    check_input(*check, x, i, g == kNone ? Tensor() : (*values)[g], differences);
  }
}

void check_gradient_bits(const OpDef* op, const Sample& sample) {
  auto check = make_check(*op, sample, DType::f32);
  ASSERT_OK(check);
  auto runner = reference::Runner::create(check->built.graph);
  ASSERT_OK(runner);
  const int before = kernels::threads();
  kernels::set_threads(1);
  auto one = runner->run(check->built.feeds, kSeed, kStep);
  kernels::set_threads(2);
  auto two = runner->run(check->built.feeds, kSeed, kStep), again = runner->run(check->built.feeds, kSeed, kStep, 0x5a);
  kernels::set_threads(before);
  ASSERT_OK(one);
  for (const auto& [x, g] : check->grads) {
    if (g == kNone) continue;
    EXPECT_TRUE(bit_equal((*one)[g], (*two)[g])) << "threads change the gradient";
    EXPECT_TRUE(bit_equal((*two)[g], (*again)[g])) << "a second run differs";
  }
}

void check_gradient_precision(const OpDef* op, const Sample& sample) {
  auto single = make_check(*op, sample, DType::f32), wide = make_check(*op, sample, DType::f64);
  ASSERT_OK(single);
  ASSERT_OK(wide);
  auto single_runner = reference::Runner::create(single->built.graph), wide_runner = reference::Runner::create(wide->built.graph);
  ASSERT_OK(single_runner);
  ASSERT_OK(wide_runner);
  auto got = single_runner->run(single->built.feeds, kSeed, kStep), want = wide_runner->run(wide->built.feeds, kSeed, kStep);
  ASSERT_OK(got);
  ASSERT_OK(want);
  for (std::size_t i = 0; i < single->wrt.size(); ++i) {
    const ValueId a = single->grads.at(single->wrt[i]), b = wide->grads.at(wide->wrt[i]);
    ASSERT_EQ(a == kNone, b == kNone);
    if (a == kNone) continue;
    EXPECT_TRUE(near((*got)[a], (*want)[b], {1e-4, 1e-5})) << "gradient " << i;
  }
}

// What kNoGradient promises: no gradient, not zeros by accident.
void check_no_gradient(const OpDef* op, const Sample& sample) {
  auto built = build(*op, sample, DType::f64);
  ASSERT_OK(built);
  Graph& graph = built->graph;
  std::vector<ValueId> wrt;
  for (const auto& [x, data] : built->feeds)
    if (is_float(data.dtype())) wrt.push_back(x);
  if (wrt.empty() || !is_float(graph.type(built->outputs[0]).dtype)) return;
  GraphBuilder b(graph);
  const ValueId loss = b.op("ReduceSum", {built->outputs[0]}, {{"keepdims", std::int64_t{0}}});
  auto grads = add_gradients(graph, loss, wrt);
  ASSERT_OK(grads);
  for (ValueId x : wrt) EXPECT_EQ(grads->at(x), kNone);
}

TEST_P(EveryOp, WithoutGradientGivesNone) {
  if (GetParam()->has(kNoGradient)) for_each_sample(cases_of(GetParam()), check_no_gradient);
}

// Samples with a float output and a variable float input; benchmark shapes are checked through the small ones.
std::vector<Case> gradient_cases(const OpDef* op) {
  std::vector<Case> cases;
  for (Case& c : cases_of(op)) {
    const auto is_variable = [](const SampleInput& i) { return !i.omitted && !i.constant && is_float(i.type.dtype); };
    if (c.sample.bench || std::none_of(c.sample.inputs.begin(), c.sample.inputs.end(), is_variable)) continue;
    const auto built = build(*c.op, c.sample, DType::f64);
    if (built.ok() && !is_float(built->graph.type(built->outputs[0]).dtype)) continue;
    cases.push_back(std::move(c));
  }
  return cases;
}

TEST_P(EveryOpGradient, HasSamples) { EXPECT_FALSE(gradient_cases(GetParam()).empty()); }
TEST_P(EveryOpGradient, AgreesWithCentralDifferences) { for_each_sample(gradient_cases(GetParam()), check_gradient); }
TEST_P(EveryOpGradient, SameBitsTwiceAndForAnyNumberOfThreads) { for_each_sample(gradient_cases(GetParam()), check_gradient_bits); }
TEST_P(EveryOpGradient, SingleAgreesWithDouble) { for_each_sample(gradient_cases(GetParam()), check_gradient_precision); }

std::vector<const OpDef*> rows(bool differentiable) {
  std::vector<const OpDef*> list;
  for (const OpDef* op : all_ops())
    if (!differentiable || op->grad != nullptr) list.push_back(op);
  return list;
}

std::string name_of(const ::testing::TestParamInfo<const OpDef*>& info) {
  return std::string(info.param->name) + (info.param->domain[0] != 0 ? "_ours" : "") + "_" + std::to_string(info.param->since);
}

INSTANTIATE_TEST_SUITE_P(Rows, EveryOp, ::testing::ValuesIn(rows(false)), name_of);
INSTANTIATE_TEST_SUITE_P(Rows, EveryOpGradient, ::testing::ValuesIn(rows(true)), name_of);

// ---- the table ------------------------------------------------------------------------------------------------------------------

TEST(Rows, AreComplete) {
  std::set<std::tuple<std::string, std::string, int>> seen;
  for (const OpDef* op : all_ops()) {
    EXPECT_TRUE(seen.insert({op->domain, op->name, op->since}).second) << op->name << " twice";
    EXPECT_NE(op->infer, nullptr) << op->name;
    EXPECT_NE(op->cost, nullptr) << op->name;
    EXPECT_STRNE(op->summary, "") << op->name;
    ASSERT_NE(op->samples, nullptr) << op->name;
    EXPECT_FALSE(op->samples().empty()) << op->name;
    EXPECT_TRUE(op->has(kView) || op->cpu != nullptr) << op->name;
    EXPECT_FALSE(op->has(kNoGradient) && op->grad != nullptr) << op->name;
    EXPECT_EQ(find_op(op->name, op->domain, op->since), op);
  }
}

TEST(Rows, EveryElementwiseOperatorHasOne) {
  for (int i = 0; i <= static_cast<int>(kernels::EwOp::DropoutMask); ++i) {
    const auto ew = static_cast<kernels::EwOp>(i);
    if (ew == kernels::EwOp::Dropout || ew == kernels::EwOp::DropoutMask) continue;
    const OpDef& row = op_by_name(ew_name(ew));
    EXPECT_TRUE(row.has(kElementwise)) << row.name;
    EXPECT_EQ(row.ew, ew);
    EXPECT_EQ(row.min_inputs, ew_arity(ew));
  }
}

}  // namespace
}  // namespace gradloom
