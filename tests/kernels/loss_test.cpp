// NLL loss and softmax cross-entropy, all reductions, weights, ignored labels,
// and gradients against loops in double.
#include "tests/kernels/support.h"

namespace gradloom::kernels::test {
namespace {

struct Setup {
  LossReduction reduction;
  bool weighted, ignore;
  std::int64_t outer, n, inner;
};

template <class T>
struct Problem {
  std::vector<T> logits, weight, dloss;
  std::vector<std::int64_t> labels;
  std::int64_t rows;
  explicit Problem(const Setup& s)
      : logits(values<T>(s.outer * s.n * s.inner, 1, -5, 5)),
        weight(values<T>(s.n, 2, 0.5, 2)),
        rows(s.outer * s.inner) {
    Random random(3);
    for (std::int64_t i = 0; i < rows; ++i)
      labels.push_back(s.ignore && i % 3 == 0 ? -100 : random.below(s.n));
    dloss = values<T>(s.reduction == LossReduction::none ? rows : 1, 4, 0.5, 1.5);
  }
};

struct Expected {
  std::vector<double> loss, lse, log_prob, dlogits, dlog_prob;
  double total_weight = 0;
};

template <class T>
Expected reference(const Setup& s, const Problem<T>& p) {
  Expected e;
  e.log_prob.resize(p.logits.size());
  e.dlogits.resize(p.logits.size());
  e.dlog_prob.resize(p.logits.size());
  std::vector<double> losses, weights;
  double total = 0;
  const auto at = [&](std::int64_t row, std::int64_t j) {
    return std::size_t((row / s.inner * s.n + j) * s.inner + row % s.inner);
  };
  for (std::int64_t row = 0; row < p.rows; ++row) {
    double sum = 0;
    for (std::int64_t j = 0; j < s.n; ++j) sum += std::exp(double(p.logits[at(row, j)]));
    e.lse.push_back(std::log(sum));
    for (std::int64_t j = 0; j < s.n; ++j)
      e.log_prob[at(row, j)] = double(p.logits[at(row, j)]) - e.lse.back();
    const std::int64_t label = p.labels[std::size_t(row)];
    const double w = label < 0 ? 0 : (s.weighted ? double(p.weight[std::size_t(label)]) : 1);
    weights.push_back(w);
    losses.push_back(label < 0 ? 0 : -w * e.log_prob[at(row, label)]);
    total += losses.back();
    e.total_weight += w;
  }
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const std::int64_t label = p.labels[std::size_t(row)];
    if (label < 0) continue;
    double g = double(p.dloss[s.reduction == LossReduction::none ? std::size_t(row) : 0]) *
               weights[std::size_t(row)];
    if (s.reduction == LossReduction::mean) g /= e.total_weight;
    for (std::int64_t j = 0; j < s.n; ++j) {
      e.dlogits[at(row, j)] = (std::exp(e.log_prob[at(row, j)]) - (j == label ? 1 : 0)) * g;
    }
    e.dlog_prob[at(row, label)] = -g;
  }
  if (s.reduction == LossReduction::none) e.loss = losses;
  if (s.reduction == LossReduction::sum) e.loss = {total};
  if (s.reduction == LossReduction::mean) e.loss = {total / e.total_weight};
  return e;
}

template <class T>
void check(const Setup& s) {
  const Problem<T> p(s);
  const Expected e = reference(s, p);
  const void* const weight = s.weighted ? p.weight.data() : nullptr;
  const DType type = dtype_of<T>();
  Tolerance tolerance = reduction_tolerance<T>();
  std::vector<double> forward = e.loss;
  forward.push_back(e.total_weight);
  const std::vector<T> log_prob(e.log_prob.begin(), e.log_prob.end());
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(forward.size());
        k.nll_loss({type, DType::i64, s.reduction, s.outer, s.n, s.inner, s.ignore, -100, log_prob.data(),
                    p.labels.data(), weight, out.data(), &out.back()});
        return out;
      },
      forward, tolerance, "nll");
  forward.insert(forward.end(), e.lse.begin(), e.lse.end());
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(forward.size());
        SoftmaxCrossEntropyArgs args{type,
                                     DType::i64,
                                     s.reduction,
                                     s.outer,
                                     s.n,
                                     s.inner,
                                     s.ignore,
                                     -100,
                                     p.logits.data(),
                                     p.labels.data(),
                                     weight,
                                     out.data(),
                                     out.data() + e.loss.size() + 1,
                                     out.data() + e.loss.size(),
                                     nullptr};
        std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
        args.workspace = workspace.data();
        k.softmax_cross_entropy(args);
        return out;
      },
      forward, tolerance, "cross-entropy");
  const T total_weight = T(e.total_weight);
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out(p.logits.size(), T(9));
        k.nll_loss_grad({type, DType::i64, s.reduction, s.outer, s.n, s.inner, s.ignore, -100, p.dloss.data(),
                         p.labels.data(), weight, &total_weight, out.data()});
        return out;
      },
      e.dlog_prob, gradient_tolerance<T>(), "nll gradient");
  const std::vector<T> lse(e.lse.begin(), e.lse.end());
  expect_on_every_level(
      [&](const CpuKernels& k) {
        std::vector<T> out = p.logits;  // in place
        k.softmax_cross_entropy_grad({type, DType::i64, s.reduction, s.outer, s.n, s.inner, s.ignore, -100,
                                      p.dloss.data(), out.data(), p.labels.data(), weight, lse.data(),
                                      &total_weight, out.data()});
        return out;
      },
      e.dlogits, gradient_tolerance<T>(), "cross-entropy gradient");
}

TEST(Loss, MatchesTheReference) {
  for (const LossReduction reduction : {LossReduction::none, LossReduction::sum, LossReduction::mean}) {
    for (const bool extra : {false, true}) {
      check<float>({reduction, extra, extra, 512, 256, 1});
      check<float>({reduction, extra, extra, 7, 11, 13});
      check<float>({reduction, extra, extra, 2, 150, 301});  // several strips of columns
      check<float>({reduction, extra, extra, 1, 1, 1});
      check<double>({reduction, extra, extra, 61, 1009, 1});
      check<double>({reduction, extra, extra, 3, 5, 17});
    }
  }
}

// Rows that begin further apart than they are long: the bits of dense ones, and nothing between them is touched.
void check_pitch(const Setup& s) {
  constexpr std::int64_t kPitch = 64;
  const Problem<float> p(s);
  std::vector<float> apart(std::size_t(s.outer * kPitch), 1e30f);
  for (std::int64_t row = 0; row < s.outer; ++row)
    std::copy_n(p.logits.data() + row * s.n, s.n, apart.data() + row * kPitch);
  for (const CpuKernels* k : levels()) {
    const auto run = [&](std::vector<float> logits, std::int64_t pitch) {
      std::vector<float> out(std::size_t(s.outer) + 2);
      SoftmaxCrossEntropyArgs args{DType::f32,      DType::i64, s.reduction, s.outer,       s.n,
                                   s.inner,         s.ignore,   -100,        logits.data(), p.labels.data(),
                                   p.weight.data(), &out[0],    &out[2],     &out[1],       nullptr};
      args.pitch = pitch;
      std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
      args.workspace = workspace.data();
      k->softmax_cross_entropy(args);
      k->softmax_cross_entropy_grad({DType::f32, DType::i64, s.reduction, s.outer, s.n, s.inner, s.ignore,
                                     -100, p.dloss.data(), logits.data(), p.labels.data(), p.weight.data(),
                                     &out[2], &out[1], logits.data(), DType::f32, pitch});
      for (std::int64_t row = 0; row < s.outer; ++row)
        out.insert(out.end(), logits.begin() + row * std::max(pitch, s.n),
                   logits.begin() + row * std::max(pitch, s.n) + s.n);
      for (std::int64_t row = 0; row < s.outer && pitch > 0; ++row)
        for (std::int64_t c = s.n; c < pitch; ++c) EXPECT_EQ(logits[std::size_t(row * pitch + c)], 1e30f);
      return out;
    };
    EXPECT_TRUE(same_bits(run(apart, kPitch), run(p.logits, 0))) << k->isa;
  }
}

TEST(Loss, TakesRowsWithAPitch) { check_pitch({LossReduction::mean, true, true, 7, 53, 1}); }

// The gradient of rows beside their losses, in place: the bits of the kernel that makes it alone.
void check_gradient_beside_losses(const Setup& s, std::int64_t pitch) {
  const Problem<float> p(s);
  const float dloss = p.dloss[0];
  const float* const weight = s.weighted ? p.weight.data() : nullptr;
  std::vector<float> apart(std::size_t(s.outer * pitch), 1e30f);
  for (std::int64_t row = 0; row < s.outer; ++row)
    std::copy_n(p.logits.data() + row * s.n, s.n, apart.data() + row * pitch);
  on_every_level(
      [&](const CpuKernels& k) {
        std::vector<float> logits = apart, losses(std::size_t(s.outer)), lse(losses.size());
        SoftmaxCrossEntropyArgs args{
            DType::f32, DType::i64,    LossReduction::none, s.outer, s.n,           1,          s.ignore,
            -100,       logits.data(), p.labels.data(),     weight,  losses.data(), lse.data(), nullptr,
            nullptr};
        args.pitch = pitch;
        std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
        args.workspace = workspace.data();
        std::vector<float> expected = apart, alone = losses;
        args.logits = expected.data();
        args.loss = alone.data();
        k.softmax_cross_entropy(args);
        SoftmaxCrossEntropyGradArgs grad{
            DType::f32,     DType::i64, LossReduction::sum, s.outer,         s.n,    1,          s.ignore,
            -100,           &dloss,     expected.data(),    p.labels.data(), weight, lse.data(), nullptr,
            expected.data()};
        grad.pitch = pitch;
        k.softmax_cross_entropy_grad(grad);
        args.loss = losses.data();
        args.logits = args.dlogits = logits.data();
        args.dloss = &dloss;
        k.softmax_cross_entropy(args);
        EXPECT_TRUE(same_bits(logits, expected)) << k.isa;
        EXPECT_TRUE(same_bits(losses, alone)) << k.isa;
        return logits;
      },
      [](const std::vector<float>&, const std::string&) {});
}

TEST(Loss, GradientOfRowsBesideTheirLosses) {
  for (const bool extra : {false, true}) {
    check_gradient_beside_losses({LossReduction::none, extra, extra, 7, 53, 1}, 64);
    check_gradient_beside_losses({LossReduction::none, extra, extra, 5, 1009, 1}, 1024);
    check_gradient_beside_losses({LossReduction::none, extra, extra, 200, 300, 1}, 300);
    check_gradient_beside_losses({LossReduction::none, extra, extra, 3, 1, 1}, 2);
  }
}

// Logits in bf16, all else in f32: what the f32 kernels make of the same numbers, the gradient rounded once.
void check_bf16(const Setup& s) {
  const Problem<Bf16> p(s);
  const std::vector<float> wide(p.logits.begin(), p.logits.end()), weights(p.weight.begin(), p.weight.end()),
      dloss(p.dloss.begin(), p.dloss.end());
  const float* const weight = s.weighted ? weights.data() : nullptr;
  const std::size_t rows = std::size_t(p.rows), losses = dloss.size();
  for (const CpuKernels* k : levels()) {
    const auto forward = [&](DType type, const void* logits) {
      std::vector<float> out(losses + 1 + rows);
      SoftmaxCrossEntropyArgs args{type,     DType::i64, s.reduction, s.outer,         s.n,    s.inner,
                                   s.ignore, -100,       logits,      p.labels.data(), weight, out.data(),
                                   nullptr,  nullptr,    nullptr,     DType::f32};
      args.total_weight = out.data() + losses;
      args.log_sum_exp = out.data() + losses + 1;
      std::vector<std::uint8_t> workspace(workspace_bytes(Target::cpu, args) + 1, 0xff);
      args.workspace = workspace.data();
      k->softmax_cross_entropy(args);
      return out;
    };
    const std::vector<float> expected = forward(DType::f32, wide.data());
    EXPECT_TRUE(same_bits(forward(DType::bf16, p.logits.data()), expected)) << k->isa;
    const auto gradient = [&](DType type, auto logits) {  // in place
      k->softmax_cross_entropy_grad({type, DType::i64, s.reduction, s.outer, s.n, s.inner, s.ignore, -100,
                                     dloss.data(), logits.data(), p.labels.data(), weight,
                                     expected.data() + losses + 1, expected.data() + losses, logits.data(),
                                     DType::f32});
      return logits;
    };
    const std::vector<float> dlogits = gradient(DType::f32, wide);
    EXPECT_TRUE(same_bits(gradient(DType::bf16, p.logits), std::vector<Bf16>(dlogits.begin(), dlogits.end())))
        << k->isa;
  }
}

TEST(Loss, LogitsInBf16) {
  for (const LossReduction reduction : {LossReduction::none, LossReduction::sum, LossReduction::mean}) {
    for (const bool extra : {false, true}) {
      check_bf16({reduction, extra, extra, 512, 256, 1});
      check_bf16({reduction, extra, extra, 7, 11, 13});
      check_bf16({reduction, extra, extra, 2, 150, 301});
      check_bf16({reduction, extra, extra, 3, 9001, 1});
    }
  }
}

TEST(Loss, IgnoredRowsHaveNoGradientWhateverTheirLogits) {
  const std::int64_t n = 3, inner = 40;
  const std::vector<std::int64_t> labels(std::size_t(inner), -100);
  const std::vector<float> lse(std::size_t(inner), std::numeric_limits<float>::infinity());
  const float one = 1, total = 1;
  for (const auto& [outer, width] : {std::pair{inner, std::int64_t(1)}, std::pair{std::int64_t(1), inner}}) {
    const std::vector<float> x(std::size_t(n * inner), std::numeric_limits<float>::infinity());
    for (const CpuKernels* k : levels()) {
      std::vector<float> dx(x.size(), 7);
      k->softmax_cross_entropy_grad({DType::f32, DType::i64, LossReduction::mean, outer, n, width, true, -100,
                                     &one, x.data(), labels.data(), nullptr, lse.data(), &total, dx.data(),
                                     DType::f32});
      EXPECT_EQ(dx, std::vector<float>(x.size(), 0)) << k->isa << " inner " << width;
    }
  }
}

// With log_sum_exp 0 and one row, the gradient is exp(x) but at the label.
TEST(Loss, ExponentialsOfEverySize) {
  const std::int64_t n = 8709;
  std::vector<float> x, first = {-88, -INFINITY, -1e30f, -0.0f};
  for (std::int64_t i = 0; i < n; ++i) x.push_back(-87 + 87 * float(i) / float(n - 1));
  x.insert(x.begin(), first.begin(), first.end());
  const std::int64_t label = 1;
  const float one = 1, zero = 0;
  for (const CpuKernels* k : levels()) {
    std::vector<float> dx(x.size());
    k->softmax_cross_entropy_grad({DType::f32, DType::i64, LossReduction::sum, 1, std::int64_t(x.size()), 1,
                                   false, 0, &one, x.data(), &label, nullptr, &zero, &one, dx.data(),
                                   DType::f32});
    EXPECT_EQ(dx[0], 0.0f) << k->isa;
    EXPECT_EQ(dx[2], 0.0f) << k->isa;
    EXPECT_EQ(dx[3], 1.0f) << k->isa;
    for (std::size_t i = first.size(); i < x.size(); ++i) {
      const double exact = std::exp(double(x[i]));
      ASSERT_NEAR(double(dx[i]) / exact, 1.0, 1.3e-7) << k->isa << " exp(" << x[i] << ")";
    }
  }
}

TEST(Loss, AllIgnoredGivesNanMean) {
  const std::vector<float> x(6, 0.5f);
  const std::vector<std::int32_t> labels = {7, 7};
  for (const CpuKernels* k : levels()) {
    float loss = 0, total = 9;
    k->nll_loss({DType::f32, DType::i32, LossReduction::mean, 2, 3, 1, true, 7, x.data(), labels.data(),
                 nullptr, &loss, &total});
    EXPECT_TRUE(std::isnan(loss));
    EXPECT_EQ(total, 0.0f);
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
