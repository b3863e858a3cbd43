// Gradients of every operator row, in every differentiable input: against central differences in f64, the
// same bits twice and for any number of threads, f32 against f64. And the check itself: seeded faults in a
// gradient rule must be found.
#include "engine/autodiff/autodiff.h"
#include "tests/engine/every_op.h"
#include "kernels/launcher.h"

namespace gradloom::every_op {
namespace {

constexpr double kGradientRtol = 1e-6, kGradientAtol = 1e-8;  // against central differences in f64
constexpr std::int64_t kEveryCoordinate = 512, kSomeCoordinates = 64;

class EveryOpGradient : public RowTest {};
class EveryRow : public RowTest {};

// Inputs that are not differentiated although the result depends on them (asking for their gradient is an
// error, or gives none).
const std::set<std::pair<std::string, std::size_t>> kConstantInputs = {
    {"Dropout", 1},         // ratio
    {"FusedAttention", 3},  // added mask
};

// Outputs that the loss of the check is made of: the first, or all of those that are
// results in their own right.
bool in_loss(const OpDef& op, std::size_t output) {
  const std::string name = op.name;
  const bool all = name == "Split" || name == "LayerNormalization" || name == "RMSNormalization" ||
                   name == "BatchNormalization";
  return output == 0 || all || (name == "SoftmaxCrossEntropyLoss" && output == 1);
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
    c.weights.push_back(make_sample_input(w, {}, random).cast(type));
    const ValueId term =
        b.op("ReduceSum", {b.op("Mul", {y, b.constant(c.weights.back(), "w" + std::to_string(i))})},
             {{"keepdims", std::int64_t{0}}});
    loss = loss == kNone ? term : b.op("Add", {loss, term});
  }
  for (std::size_t i = 0; i < c.built.inputs.size(); ++i) {
    const ValueId x = c.built.inputs[i];
    const bool variable =
        x != kNone && c.built.feeds.count(x) != 0 && kConstantInputs.count({op.name, i}) == 0;
    if (variable && is_float(graph.type(x).dtype)) c.wrt.push_back(x);
  }
  if (loss == kNone) return Error{Errc::usage, "no floating point output"};
  c.grads = TRY(add_gradients(graph, loss, c.wrt));
  TRY(verify(graph));
  return c;
}

// sum over the outputs of w * (y(x + h d) - y(x - h d)): the difference first,
// so that little is lost to rounding.
double weighted_difference(const Check& c, const std::vector<Tensor>& plus,
                           const std::vector<Tensor>& minus) {
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

// The largest error of a gradient, in units of the tolerance, and where it was found.
struct Worst {
  double ratio = 0;
  std::string where;
  void add(double analytic, double numeric, const std::string& place) {
    const double error = std::fabs(analytic - numeric) / (kGradientAtol + kGradientRtol * std::fabs(numeric));
    if (!(error > ratio)) return;
    ratio = error;
    where =
        place + ": gradient " + std::to_string(analytic) + ", central difference " + std::to_string(numeric);
  }
};

Status compare_input(const Check& c, ValueId x, const std::string& name, const Tensor& gradient,
                     Differences& differences, Worst& worst) {
  const Tensor& base = c.built.feeds.at(x);
  std::mt19937_64 random(5);
  for (std::int64_t at : coordinates(base.count(), random)) {
    std::vector<double> direction(static_cast<std::size_t>(base.count()), 0.0);
    direction[static_cast<std::size_t>(at)] = 1;
    const double h = 1e-5 * std::max(1.0, std::fabs(base.at(at)));
    const double numeric = TRY(differences.along(c, x, direction, h));
    worst.add(gradient.defined() ? gradient.at(at) : 0.0, numeric, name + ", element " + std::to_string(at));
  }
  for (int d = 0; base.count() > kEveryCoordinate && d < 3; ++d) {
    std::vector<double> direction;
    double analytic = 0;
    for (std::int64_t i = 0; i < base.count(); ++i) {
      direction.push_back(std::uniform_real_distribution<double>(-1, 1)(random));
      analytic += gradient.defined() ? gradient.at(i) * direction.back() : 0.0;
    }
    worst.add(analytic, TRY(differences.along(c, x, direction, 1e-5)),
              name + ", direction " + std::to_string(d));
  }
  return {};
}

// An input without a gradient counts as one with zeros: right only where the differences are zero, too.
Result<Worst> worst_gradient(const OpDef& op, const Sample& sample) {
  const Check check = TRY(make_check(op, sample, DType::f64));
  const reference::Runner runner = TRY(reference::Runner::create(check.built.graph));
  const std::vector<Tensor> values = TRY(runner.run(check.built.feeds, kSeed, kStep));
  Differences differences(op, sample);
  Worst worst;
  for (std::size_t i = 0; i < check.built.inputs.size(); ++i) {
    const ValueId x = check.built.inputs[i];
    if (x == kNone || check.grads.count(x) == 0) continue;
    const ValueId g = check.grads.at(x);
    TRY(compare_input(check, x, "input " + std::to_string(i), g == kNone ? Tensor() : values[g], differences,
                      worst));
  }
  return worst;
}

void check_gradient(const OpDef* op, const Sample& sample) {
  const auto worst = worst_gradient(*op, sample);
  ASSERT_OK(worst);
  EXPECT_LE(worst->ratio, 1) << worst->where;
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
  auto two = runner->run(check->built.feeds, kSeed, kStep),
       again = runner->run(check->built.feeds, kSeed, kStep, 0x5a);
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
  auto single_runner = reference::Runner::create(single->built.graph),
       wide_runner = reference::Runner::create(wide->built.graph);
  ASSERT_OK(single_runner);
  ASSERT_OK(wide_runner);
  auto got = single_runner->run(single->built.feeds, kSeed, kStep),
       want = wide_runner->run(wide->built.feeds, kSeed, kStep);
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

TEST_P(EveryRow, WithoutGradientGivesNone) {
  if (GetParam()->has(kNoGradient)) for_each_sample(cases_of(GetParam()), check_no_gradient);
}

// Samples with a float output and a variable float input, both f64 in this check (central differences of f16
// say nothing); benchmark shapes are checked through the small ones.
std::vector<Case> gradient_cases(const OpDef* op) {
  std::vector<Case> cases;
  for (Case& c : cases_of(op)) {
    const auto is_variable = [](const SampleInput& i) {
      return !i.omitted && !i.constant && is_float(i.type.dtype);
    };
    const auto is_half = [](const SampleInput& i) {
      return i.type.dtype == DType::f16 || i.type.dtype == DType::bf16;
    };
    if (std::any_of(c.sample.inputs.begin(), c.sample.inputs.end(), is_half)) continue;
    if (c.sample.bench || std::none_of(c.sample.inputs.begin(), c.sample.inputs.end(), is_variable)) continue;
    const auto built = build(*c.op, c.sample, DType::f64);
    if (built.ok() && built->graph.type(built->outputs[0]).dtype != DType::f64) continue;
    cases.push_back(std::move(c));
  }
  return cases;
}

// QuantizeLinear makes integers: its straight-through gradient is tested in ops/elementwise/quantize_test.cpp.
// GivenGradient has the gradient that a rule gives it: tests/passes/rules_test.cpp.
TEST_P(EveryOpGradient, HasSamples) {
  const std::string name = GetParam()->name;
  EXPECT_EQ(gradient_cases(GetParam()).empty(), name == "QuantizeLinear" || name == "GivenGradient");
}
TEST_P(EveryOpGradient, AgreesWithCentralDifferences) {
  for_each_sample(gradient_cases(GetParam()), check_gradient);
}
TEST_P(EveryOpGradient, SameBitsTwiceAndForAnyNumberOfThreads) {
  for_each_sample(gradient_cases(GetParam()), check_gradient_bits);
}
TEST_P(EveryOpGradient, SingleAgreesWithDouble) {
  for_each_sample(gradient_cases(GetParam()), check_gradient_precision);
}

// A gradient rule of a node whose dims are not known gives a graph that verifies or
// an error: it never aborts.
struct Unknown {
  const char* name;
  bool (*dim)(std::size_t input, std::size_t axis);
};
constexpr Unknown kUnknown[] = {
    {"all", [](std::size_t, std::size_t) { return true; }},
    {"first", [](std::size_t, std::size_t axis) { return axis == 0; }},
    {"but first", [](std::size_t, std::size_t axis) { return axis > 0; }},
    {"of the first input", [](std::size_t input, std::size_t) { return input == 0; }},
    {"of other inputs", [](std::size_t input, std::size_t) { return input > 0; }},
};

Shape with_unknown(Graph& graph, Shape shape, const std::function<bool(std::size_t)>& unknown) {
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (!unknown(axis)) continue;
    graph.symbols.push_back("d" + std::to_string(graph.symbols.size()));
    shape[axis] = -static_cast<std::int64_t>(graph.symbols.size());
  }
  return shape;
}

void check_unknown_dims(const OpDef* op, const Sample& sample) {
  for (const Unknown& unknown : kUnknown) {
    Graph graph;
    GraphBuilder b(graph);
    std::mt19937_64 random(kSeed);
    std::vector<ValueId> inputs;
    std::vector<bool> wanted;
    for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
      const SampleInput& input = sample.inputs[i];
      wanted.push_back(!input.omitted && !input.constant && is_float(input.type.dtype));
      inputs.push_back(
          input.omitted ? kNone
          : input.constant
              ? b.constant(make_sample_input(input, sample, random))
              : b.input("x" + std::to_string(i),
                        {input.type.dtype, with_unknown(graph, input.type.shape, [&](std::size_t axis) {
                           return unknown.dim(i, axis);
                         })}));
    }
    const auto outputs = b.add(*op, inputs, sample.attrs, sample.output_count);
    if (!outputs.ok()) continue;
    const Type y = graph.type(outputs->at(0));
    if (!is_float(y.dtype)) continue;
    GradContext ctx{b, graph.nodes[0], 0, {}, {}, {}};
    ctx.out_grads.assign(ctx.node.outputs.size(), kNone);
    ctx.out_grads[0] = b.input("dy", y);
    ctx.wanted = wanted;
    ctx.in_grads.assign(inputs.size(), kNone);
    const Status built = op->grad(ctx);
    if (!built.ok()) continue;
    const Status valid = verify(graph);
    EXPECT_TRUE(valid.ok()) << "dims unknown: " << unknown.name << ": " << valid.error().message;
  }
}

TEST_P(EveryOpGradient, UnknownDimsAreHandledOrRefused) {
  for_each_sample(gradient_cases(GetParam()), check_unknown_dims);
}

// ---- the check itself -------------------------------------------------------------------------------------

// A rule with a fault; a plain function, as rows have, so the fault is told here.
struct Fault {
  const OpDef* op = nullptr;
  double factor = 1;     // on every gradient
  bool dropped = false;  // no gradient at all
} fault;

Status faulty_rule(GradContext& ctx) {
  TRY(fault.op->grad(ctx));
  for (ValueId& g : ctx.in_grads) {
    if (g == kNone) continue;
    g = fault.dropped ? kNone : ctx.b.op("Mul", {g, ctx.b.scalar(ctx.dtype(g), fault.factor)});
  }
  return {};
}

bool has_gradient(const OpDef& op, const Sample& sample) {
  const auto check = make_check(op, sample, DType::f64);
  if (!check) return false;
  for (ValueId x : check->wrt)
    if (check->grads.at(x) != kNone && check->built.feeds.at(x).count() > 0) return true;
  return false;
}

TEST_P(EveryOpGradient, SeededFaultsAreFound) {
  for (const Case& c : gradient_cases(GetParam())) {
    if (!has_gradient(*c.op, c.sample)) continue;
    for (const Fault& f : {Fault{c.op, -1, false}, Fault{c.op, 1.0001, false}, Fault{c.op, 1, true}}) {
      fault = f;
      OpDef faulty = *c.op;
      faulty.grad = faulty_rule;
      const auto worst = worst_gradient(faulty, c.sample);
      ASSERT_OK(worst);
      EXPECT_GT(worst->ratio, 1) << c.sample.name << ", factor " << f.factor
                                 << (f.dropped ? ", dropped" : "");
    }
    return;  // one sample of each row
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, EveryRow, ::testing::ValuesIn(rows(false)), name_of);
INSTANTIATE_TEST_SUITE_P(Rows, EveryOpGradient, ::testing::ValuesIn(rows(true)), name_of);

}  // namespace
}  // namespace gradloom::every_op
