// Adafactor against its formula in double over several steps: matrices, lists of matrices, and what is not factored.
#include "tests/kernels/adafactor_support.h"
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

using Tensors = AdafactorTensors<double>;

double rms(const std::vector<double>& v) {
  double squares = 0;
  for (const double x : v) squares += x * x;
  return std::sqrt(squares / double(v.size()));
}

// One step of one tensor of [matrices, rows, columns].
void step_reference(const AdafactorSettings& s, const AdafactorShape& shape, std::int64_t step, double scale,
                    std::vector<double> g, AdafactorState<double>& state) {
  const auto [matrices, rows, columns] = shape;
  for (double& x : g) {
    x *= scale;
    if (s.clip_value > 0) x = std::clamp(x, -s.clip_value, s.clip_value);
    if (s.maximize) x = -x;
  }
  double rate = s.lr * s.lr_factor;
  if (s.relative_step)
    rate *= std::min(s.warmup_init ? 1e-6 * double(step) : 1e-2, 1 / std::sqrt(double(step)));
  if (s.scale_parameter) rate *= std::max(s.epsilon2, rms(state.param));
  const double keep = 1 - std::pow(double(step), s.decay_rate);
  const auto average = [&](double& moment, double square) {
    moment = (keep > 0 ? keep * moment : 0) + (1 - keep) * (square + s.epsilon);
  };
  std::vector<double> update(g.size());
  for (std::int64_t m = 0; s.factored && m < matrices; ++m) {
    double* const row = state.state1.data() + m * rows;
    double* const column = state.state2.data() + m * columns;
    const double* const from = g.data() + m * rows * columns;
    double mean = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (std::int64_t c = 0; c < columns; ++c) squares += from[r * columns + c] * from[r * columns + c];
      average(row[r], squares / double(columns));
      mean += row[r] / double(rows);
    }
    for (std::int64_t c = 0; c < columns; ++c) {
      double squares = 0;
      for (std::int64_t r = 0; r < rows; ++r) squares += from[r * columns + c] * from[r * columns + c];
      average(column[c], squares / double(rows));
    }
    for (std::int64_t i = 0; i < rows * columns; ++i)
      update[std::size_t(m * rows * columns + i)] =
          from[i] / std::sqrt(row[i / columns] / mean * column[i % columns]);
  }
  for (std::size_t i = 0; !s.factored && i < g.size(); ++i) {
    average(state.state1[i], g[i] * g[i]);
    update[i] = g[i] / std::sqrt(state.state1[i]);
  }
  const double over = std::max(1.0, rms(update) / s.clip_threshold);
  for (std::size_t i = 0; i < g.size(); ++i) {
    double u = rate * update[i] / over;
    if (s.beta1 > 0) u = state.state3[i] = (step > 1 ? s.beta1 * state.state3[i] : 0) + (1 - s.beta1) * u;
    state.param[i] -= s.weight_decay * rate * state.param[i] + u;
  }
}

template <class T>
std::vector<T> all_of(const AdafactorTensors<T>& tensors) {
  std::vector<T> all;
  for (const AdafactorState<T>& t : tensors)
    for (const auto* list : {&t.param, &t.state1, &t.state2, &t.state3})
      all.insert(all.end(), list->begin(), list->end());
  return all;
}

template <class T>
void check(const AdafactorSettings& s, const std::vector<AdafactorShape>& shapes, Tolerance tolerance) {
  constexpr int kSteps = 4;
  const T scale = T(0.5);
  AdafactorTensors<T> start;
  for (const AdafactorShape& shape : shapes) {
    start.push_back(adafactor_state<T>(s, shape));
    start.back().param = values<T>(shape.elements(), 10 + start.size(), -0.2, 0.2);
  }
  const auto gradient = [&](int step, std::size_t t) {
    return values<T>(shapes[t].elements(), 100 * std::uint64_t(step) + t, -1, 1);
  };
  Tensors reference;
  for (std::size_t t = 0; t < shapes.size(); ++t) {
    reference.push_back(adafactor_state<double>(s, shapes[t]));
    reference[t].param.assign(start[t].param.begin(), start[t].param.end());
    for (int step = 1; step <= kSteps; ++step) {
      const std::vector<T> g = gradient(step, t);
      step_reference(s, shapes[t], step, s.scaled ? double(scale) : 1, {g.begin(), g.end()}, reference[t]);
    }
  }
  for (const bool in_place : {true, false}) {
    expect_on_every_level(
        [&](const CpuKernels& k) {
          AdafactorTensors<T> now = start;
          for (AdafactorState<T>& t : now)  // the first states are not read
            for (auto* list : {&t.state1, &t.state2, &t.state3})
              for (T& v : *list) v = T(NAN);
          for (std::int64_t step = 1; step <= kSteps; ++step) {
            std::vector<std::vector<T>> grads;
            for (std::size_t t = 0; t < shapes.size(); ++t) grads.push_back(gradient(int(step), t));
            AdafactorTensors<T> next = now;
            AdafactorCall call(s, dtype_of<T>(), shapes);
            for (std::size_t t = 0; t < shapes.size(); ++t)
              call.add(grads[t], now[t], in_place ? now[t] : next[t]);
            OptimizerArgs args = call.args();
            std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
            args.step = &step;
            args.grad_scale = s.scaled ? &scale : nullptr;
            args.workspace = workspace.data();
            k.optimizer(args);
            if (!in_place) now = next;
          }
          return all_of(now);
        },
        all_of(reference), tolerance, s.factored ? "factored" : "not factored");
  }
}

template <class T>
void check_all(Tolerance tolerance) {
  const std::vector<AdafactorShape> matrices{{1, 3, 5},    {2, 3, 4},     {1, 1, 9000},
                                             {1, 9000, 1}, {1, 300, 130}, {700, 3, 3}};
  for (const bool factored : {true, false}) {
    const auto& shapes =
        factored ? matrices : std::vector<AdafactorShape>{{1, 1, 7}, {0, 1, 1}, {1, 1, 8193}, {1, 1, 1}};
    AdafactorSettings s;
    s.factored = factored;
    check<T>(s, shapes, tolerance);
    s.beta1 = 0.9;
    s.weight_decay = 0.1;
    s.scaled = s.warmup_init = true;
    s.lr = 3000;
    check<T>(s, shapes, tolerance);
    s.relative_step = s.scale_parameter = false;
    s.lr = 0.01;
    s.lr_factor = 0.5;
    s.clip_value = 0.3;
    s.clip_threshold = 0.7;
    s.decay_rate = -0.5;
    s.epsilon = 1e-3;
    s.maximize = true;
    check<T>(s, shapes, tolerance);
  }
}

TEST(Adafactor, Float64FollowsTheFormula) { check_all<double>({1e-12, 1e-13}); }
TEST(Adafactor, Float32FollowsTheFormula) { check_all<float>({1e-5, 1e-5}); }

TEST(Adafactor, GradientsOfZeroAndNaN) {
  AdafactorSettings s;
  const std::vector<AdafactorShape> shapes{{1, 2, 3}};
  const double lr = 1;
  const std::int64_t step = 1;
  for (const float bad : {0.0F, NAN}) {
    AdafactorTensors<float> now{adafactor_state<float>(s, shapes[0])};
    now[0].param = {1, 1, 1, 1, 1, 1};
    std::vector<float> grad{0, 0, 0, 0, 0, bad};
    AdafactorCall call(s, DType::f32, shapes);
    call.add(grad, now[0], now[0]);
    OptimizerArgs args = call.args();
    std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args));
    args.lr = &lr;
    args.step = &step;
    args.workspace = workspace.data();
    cpu().optimizer(args);
    for (const float p : now[0].param) EXPECT_TRUE(bad == 0 ? p == 1 : std::isnan(p)) << p;
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
