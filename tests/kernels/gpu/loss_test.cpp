// Negative log-likelihood, softmax cross-entropy and their gradients on the GPU
// executor against the CPU kernels.
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

struct Case {
  LossReduction reduction;
  bool weights, ignore;
  i64 outer, n, inner;
  std::size_t offset = 0;  // of the logits from their 16-byte boundary, in elements
  i64 rows() const { return outer * inner; }
  i64 count() const { return outer * n * inner; }
};
constexpr i64 kIgnored = -100;

template <class L>
std::vector<L> labels_of(const Case& s) {
  Random random(11);
  std::vector<L> labels;
  for (i64 row = 0; row < s.rows(); ++row)
    labels.push_back(L(s.ignore && random.below(4) == 0 ? kIgnored : random.below(s.n)));
  if (s.rows() > 2) labels[1] = L(s.n);  // outside: counts as ignored
  return labels;
}

template <class L>
const L* labels_in(Device& device, const std::vector<L>& labels) {
  return device.in<L>(labels);
}

// Sums of many rows in another order, of numbers of the size of the loss.
template <class T>
Tolerance loss_tolerance(const Case& s) {
  return tolerance<T>({1e-5, 1e-6 * std::sqrt(double(s.reduction == LossReduction::sum ? s.rows() : 1))});
}

// Operands, and what the CPU's kernels make of them.
template <class T, class L, class P>
struct Reference {
  using H = Host<T>;
  explicit Reference(const Case& which) : s(which) { compute(); }

  const Case& s;
  DType label_type = kernels::test::dtype_of<L>();
  std::size_t losses = s.reduction == LossReduction::none ? std::size_t(s.rows()) : 1;
  decltype(numbers<T>(0, 1)) x = numbers<T>(s.count(), 1, -5.0, 5.0);
  decltype(numbers<P>(0, 1)) weight = numbers<P>(s.n, 2, 0.5, 2.0), dloss = numbers<P>(i64(losses), 3);
  std::vector<L> labels = labels_of<L>(s);
  std::vector<H> nll = std::vector<H>(losses), nll_total = std::vector<H>(1), loss = nll, total = nll_total,
                 lse = std::vector<H>(std::size_t(s.rows())), dlog_prob = std::vector<H>(x.size()),
                 dlogits = dlog_prob;

 private:
  void compute() {
    const DType type = cpu_dtype<T>();
    const H* const w = s.weights ? weight.data() : nullptr;
    cpu().nll_loss({type, label_type, s.reduction, s.outer, s.n, s.inner, s.ignore, kIgnored, x.data(),
                    labels.data(), w, nll.data(), nll_total.data()});
    std::vector<double> space(std::size_t(2 * s.rows()));
    cpu().softmax_cross_entropy({type, label_type, s.reduction, s.outer, s.n, s.inner, s.ignore, kIgnored,
                                 x.data(), labels.data(), w, loss.data(), lse.data(), total.data(),
                                 space.data()});
    cpu().nll_loss_grad({type, label_type, s.reduction, s.outer, s.n, s.inner, s.ignore, kIgnored,
                         dloss.data(), labels.data(), w, total.data(), dlog_prob.data()});
    cpu().softmax_cross_entropy_grad({type, label_type, s.reduction, s.outer, s.n, s.inner, s.ignore,
                                      kIgnored, dloss.data(), x.data(), labels.data(), w, lse.data(),
                                      total.data(), dlogits.data()});
  }
};

// NLLLoss and its gradient, where loss and logits are of one type.
template <class T, class L>
void launch_nll(Device& device, const Reference<T, L, T>& ref, const T* logits, const L* labels,
                const T* weight) {
  const Case& s = ref.s;
  using S = Accum<T>;
  NllLossArgs args{gpu_dtype<T>(),
                   ref.label_type,
                   s.reduction,
                   s.outer,
                   s.n,
                   s.inner,
                   s.ignore,
                   kIgnored,
                   logits,
                   labels,
                   weight,
                   device.out<T>("nll", ref.losses),
                   device.out<S>("nll total", 1)};
  args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
  device.run(nll_loss, args);
  device.run(nll_loss_grad,
             NllLossGradArgs{gpu_dtype<T>(), ref.label_type, s.reduction, s.outer, s.n, s.inner, s.ignore,
                             kIgnored, device.in<T>(ref.dloss), labels, weight, device.in<S>(ref.total),
                             device.out<T>("dlog_prob", ref.x.size(), s.offset)});
}

template <class T, class L, class P>
void launch_cross_entropy(Device& device, const Reference<T, L, P>& ref, const T* logits, const L* labels,
                          const P* weight) {
  const Case& s = ref.s;
  using S = Accum<T>;
  SoftmaxCrossEntropyArgs args{gpu_dtype<T>(),
                               ref.label_type,
                               s.reduction,
                               s.outer,
                               s.n,
                               s.inner,
                               s.ignore,
                               kIgnored,
                               logits,
                               labels,
                               weight,
                               device.out<P>("loss", ref.losses),
                               device.out<S>("lse", ref.lse.size()),
                               device.out<S>("total", 1),
                               nullptr,
                               gpu_dtype<P>()};
  args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
  device.run(softmax_cross_entropy, args);
  SoftmaxCrossEntropyGradArgs grad{gpu_dtype<T>(),
                                   ref.label_type,
                                   s.reduction,
                                   s.outer,
                                   s.n,
                                   s.inner,
                                   s.ignore,
                                   kIgnored,
                                   device.in<P>(ref.dloss),
                                   logits,
                                   labels,
                                   weight,
                                   device.in<S>(ref.lse),
                                   device.in<S>(ref.total),
                                   device.out<T>("dlogits", ref.x.size(), s.offset),
                                   gpu_dtype<P>()};
  device.run(softmax_cross_entropy_grad, grad);
  T* const in_place = device.inout<T>("in place", ref.x, s.offset);
  grad.logits = grad.dlogits = in_place;
  device.run(softmax_cross_entropy_grad, grad);
}

template <class T, class L, class P = T>
void check(const Case& s) {
  SCOPED_TRACE(testing::Message() << "[" << s.outer << ", " << s.n << ", " << s.inner << "] reduction "
                                  << int(s.reduction) << " weights " << s.weights << " ignore " << s.ignore
                                  << " offset " << s.offset);
  using S = Accum<T>;
  const Reference<T, L, P> ref(s);
  const Results gpu = on_device([&](Device& device) {
    const L* const labels = labels_in(device, ref.labels);
    const P* const weight = s.weights ? device.in<P>(ref.weight) : nullptr;
    const T* const logits = device.in<T>(ref.x, s.offset);
    if constexpr (std::is_same_v<T, P>) launch_nll<T, L>(device, ref, logits, labels, weight);
    launch_cross_entropy<T, L, P>(device, ref, logits, labels, weight);
  });
  const Tolerance sums = loss_tolerance<P>(s), totals = loss_tolerance<S>(s),
                  close = tolerance<T>({2e-5, 1e-6});
  if constexpr (std::is_same_v<T, P>) {
    expect_close(gpu.get<T>("nll"), widen(ref.nll), sums, "nll");
    expect_close(gpu.get<S>("nll total"), widen(ref.nll_total), totals, "nll total weight");
    expect_close(gpu.get<T>("dlog_prob"), widen(ref.dlog_prob), close, "dlog_prob");
  }
  expect_close(gpu.get<P>("loss"), widen(ref.loss), sums, "loss");
  expect_close(gpu.get<S>("total"), widen(ref.total), totals, "total weight");
  expect_close(gpu.get<S>("lse"), widen(ref.lse), tolerance<S>({2e-5, 1e-6}), "log-sum-exp");
  expect_close(gpu.get<T>("dlogits"), widen(ref.dlogits), close, "dlogits");
  expect_close(gpu.get<T>("in place"), widen(ref.dlogits), close, "dlogits in place");
}

template <class T>
class LossOnGpu : public testing::Test {};
using Types = testing::Types<float, f16, bf16, double>;
TYPED_TEST_SUITE(LossOnGpu, Types);

constexpr LossReduction kReductions[] = {LossReduction::none, LossReduction::sum, LossReduction::mean};

TYPED_TEST(LossOnGpu, Rows) {
  for (const LossReduction reduction : kReductions) {
    for (const bool extra : {false, true}) {
      check<TypeParam, i64>({reduction, extra, extra, 40, 10, 1});
      check<TypeParam, std::int32_t>({reduction, extra, !extra, 7, 1, 1});
      check<TypeParam, std::int32_t>({reduction, extra, extra, 5, 1000, 1});
      check<TypeParam, i64>({reduction, !extra, extra, 3, 4096, 1});
    }
  }
  check<TypeParam, i64>({LossReduction::mean, true, true, 3, 9000, 1});
  check<TypeParam, i64>({LossReduction::mean, false, true, 3, 50257, 1});
}

TYPED_TEST(LossOnGpu, RowsOffTheBoundary) {
  check<TypeParam, i64>({LossReduction::mean, false, false, 5, 64, 1, 1});
  check<TypeParam, i64>({LossReduction::sum, false, false, 2, 9000, 1, 3});
}

// Rows of a vocabulary head, which begin at multiples of 64 elements: what lies between them is neither read nor written.
template <class T>
void check_pitch(i64 n) {
  SCOPED_TRACE(n);
  using S = Accum<T>;
  using H = Host<T>;
  const Case s{LossReduction::mean, true, true, 3, n, 1};
  const Reference<T, i64, T> ref(s);
  const i64 pitch = ceil_div(n, 64) * 64;
  const H between = H(1e4f);
  std::vector<H> x(std::size_t(s.outer * pitch), between), expected = x;
  for (i64 row = 0; row < s.outer; ++row)
    for (i64 c = 0; c < n; ++c) {
      x[std::size_t(row * pitch + c)] = ref.x[std::size_t(row * n + c)];
      expected[std::size_t(row * pitch + c)] = ref.dlogits[std::size_t(row * n + c)];
    }
  const Results gpu = on_device([&](Device& device) {
    const i64* const labels = labels_in(device, ref.labels);
    const T* const weight = device.in<T>(ref.weight);
    T* const logits = device.inout<T>("in place", x);
    SoftmaxCrossEntropyArgs args{gpu_dtype<T>(),
                                 ref.label_type,
                                 s.reduction,
                                 s.outer,
                                 s.n,
                                 s.inner,
                                 s.ignore,
                                 kIgnored,
                                 logits,
                                 labels,
                                 weight,
                                 device.out<T>("loss", 1),
                                 device.out<S>("lse", ref.lse.size()),
                                 device.out<S>("total", 1)};
    args.losses = gpu_dtype<T>();
    args.pitch = pitch;
    args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
    device.run(softmax_cross_entropy, args);
    device.run(softmax_cross_entropy_grad,
               SoftmaxCrossEntropyGradArgs{gpu_dtype<T>(), ref.label_type, s.reduction, s.outer, s.n, s.inner,
                                           s.ignore, kIgnored, device.in<T>(ref.dloss), logits, labels,
                                           weight, device.in<S>(ref.lse), device.in<S>(ref.total), logits,
                                           gpu_dtype<T>(), pitch});
  });
  expect_close(gpu.get<T>("loss"), widen(ref.loss), loss_tolerance<T>(s), "loss");
  expect_close(gpu.get<S>("lse"), widen(ref.lse), tolerance<S>({2e-5, 1e-6}), "log-sum-exp");
  expect_close(gpu.get<T>("in place"), widen(expected), tolerance<T>({2e-5, 1e-6}), "dlogits");
}

TYPED_TEST(LossOnGpu, RowsWithAPitch) {
  for (const i64 n : {1, 13, 63, 1000, 8191, 9001, 50257}) check_pitch<TypeParam>(n);
}

// Loss and gradient by one kernel, as by two, in place; rows that are packs, have a pitch, or are too long to be held.
template <class T, class P>
void check_whole(i64 n, i64 pitch, std::size_t offset = 0) {
  SCOPED_TRACE(testing::Message() << n << " of " << pitch << ", offset " << offset);
  using S = Accum<T>;
  const Case s{LossReduction::none, true, true, 5, n, 1};
  const Reference<T, i64, P> ref(s);
  const auto dloss = numbers<P>(1, 3);
  std::vector<Host<T>> x(std::size_t(s.outer * pitch), Host<T>(1e4f)), expected = x;
  for (i64 row = 0; row < s.outer; ++row) {
    const std::size_t from = std::size_t(row * n), to = std::size_t(row * pitch);
    for (std::size_t c = 0; c < std::size_t(n); ++c) x[to + c] = ref.x[from + c];
  }
  std::vector<Host<T>> dense(ref.x.size());
  const std::vector<Host<P>> each(std::size_t(s.outer), dloss[0]);
  const Host<S> one = 1;
  const std::vector<Host<T>> lse = ref.lse;
  cpu().softmax_cross_entropy_grad({cpu_dtype<T>(), DType::i64, LossReduction::none, s.outer, n, 1, s.ignore,
                                    kIgnored, each.data(), ref.x.data(), ref.labels.data(), ref.weight.data(),
                                    lse.data(), &one, dense.data()});
  for (i64 row = 0; row < s.outer; ++row)
    for (i64 c = 0; c < n; ++c) expected[std::size_t(row * pitch + c)] = dense[std::size_t(row * n + c)];
  const Results gpu = on_device([&](Device& device) {
    SoftmaxCrossEntropyArgs args{};
    args.dtype = gpu_dtype<T>();
    args.losses = gpu_dtype<P>();
    args.label_dtype = DType::i64;
    args.outer = s.outer;
    args.n = n;
    args.inner = 1;
    args.has_ignore = s.ignore;
    args.ignore_index = kIgnored;
    args.labels = labels_in(device, ref.labels);
    args.weight = device.in<P>(ref.weight);
    args.dloss = device.in<P>(dloss);
    args.loss = device.out<P>("loss", std::size_t(s.outer));
    args.log_sum_exp = device.out<S>("lse", std::size_t(s.outer));
    args.pitch = pitch;
    args.logits = args.dlogits = device.inout<T>("in place", x, offset);
    args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
    device.run(softmax_cross_entropy, args);
  });
  const Tolerance close = tolerance<T>({2e-5, 1e-6});
  expect_close(gpu.get<P>("loss"), widen(ref.loss), loss_tolerance<P>(s), "loss");
  expect_close(gpu.get<S>("lse"), widen(ref.lse), tolerance<S>({2e-5, 1e-6}), "log-sum-exp");
  expect_close(gpu.get<T>("in place"), widen(expected), close, "dlogits");
}

TYPED_TEST(LossOnGpu, AndGradientInOneKernel) {
  for (const i64 n : {1, 13, 64, 1000, 9001}) {
    check_whole<TypeParam, TypeParam>(n, ceil_div(n, 64) * 64);
    check_whole<TypeParam, TypeParam>(n, n);
  }
  check_whole<TypeParam, TypeParam>(1024, 1024, 1);
  check_whole<TypeParam, TypeParam>(50257, 50304);
  check_whole<TypeParam, TypeParam>(70001, 70016);
}

TYPED_TEST(LossOnGpu, Columns) {
  for (const LossReduction reduction : kReductions) {
    check<TypeParam, i64>({reduction, true, true, 2, 21, 40});
    check<TypeParam, std::int32_t>({reduction, false, true, 3, 5, 3});
  }
  check<TypeParam, i64>({LossReduction::mean, true, false, 1, 700, 2});
}

TYPED_TEST(LossOnGpu, ManyRows) {  // added in two steps
  check<TypeParam, std::int32_t>({LossReduction::mean, true, true, 9001, 3, 1});
  check<TypeParam, std::int32_t>({LossReduction::sum, false, true, 3, 2, 4099});
}

template <class T>
class LossOnGpuWide : public testing::Test {};
TYPED_TEST_SUITE(LossOnGpuWide, Halves);

TYPED_TEST(LossOnGpuWide, AndGradientInOneKernel) {
  check_whole<TypeParam, float>(1000, 1024);
  check_whole<TypeParam, float>(50257, 50304);
}

TYPED_TEST(LossOnGpuWide, LossOfMixedPrecision) {
  for (const LossReduction reduction : kReductions) {
    check<TypeParam, i64, float>({reduction, true, true, 40, 10, 1});
    check<TypeParam, std::int32_t, float>({reduction, false, true, 3, 4096, 1});
    check<TypeParam, i64, float>({reduction, true, true, 2, 21, 40});
  }
  check<TypeParam, std::int32_t, float>({LossReduction::mean, true, true, 9001, 3, 1});
}

TEST(LossOnGpuSpecial, AllIgnoredGivesNanMean) {
  const Results gpu = on_device([&](Device& device) {
    const std::int32_t* const labels = device.in<std::int32_t>({7, 7});
    const float* const x = device.in<float>(std::vector<float>(6, 0.5f));
    device.run(nll_loss,
               NllLossArgs{DType::f32, DType::i32, LossReduction::mean, 2, 3, 1, true, 7, x, labels, nullptr,
                           device.out<float>("nll", 1), device.out<float>("nll total", 1)});
    SoftmaxCrossEntropyArgs args{DType::f32,
                                 DType::i32,
                                 LossReduction::mean,
                                 2,
                                 3,
                                 1,
                                 true,
                                 7,
                                 x,
                                 labels,
                                 nullptr,
                                 device.out<float>("loss", 1),
                                 nullptr,
                                 device.out<float>("total", 1),
                                 nullptr};
    args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
    device.run(softmax_cross_entropy, args);
  });
  for (const char* name : {"nll", "loss"}) EXPECT_TRUE(std::isnan(gpu.get<float>(name)[0])) << name;
  for (const char* name : {"nll total", "total"}) EXPECT_EQ(gpu.get<float>(name)[0], 0.0f) << name;
}

// Of a part of the classes: log-sum-exp and the logit at a label that is among them, and what both give back, in rows and columns.
TEST(LossOnGpuSpecial, PartsOfTheClasses) {
  constexpr i64 kOuter = 2, kInner = 3;
  for (const i64 inner : {i64{1}, kInner})
    for (const i64 n : {5, 600, 9000}) {
      SCOPED_TRACE(std::to_string(n) + " classes, " + std::to_string(inner) + " columns");
      const i64 rows = kOuter * inner;
      const auto x = numbers<float>(kOuter * n * inner, 1), dlse = numbers<float>(rows, 2),
                 dtarget = numbers<float>(rows, 3);
      std::vector<i64> labels = {n - 1, n, -100, 0, -1, 2};
      labels.resize(std::size_t(rows));
      const auto of_parts = [&](auto common) {
        common.dtype = common.losses = DType::f32;
        common.label_dtype = DType::i64;
        common.reduction = LossReduction::none;
        common.outer = kOuter;
        common.n = n;
        common.inner = inner;
        return common;
      };
      const auto args = of_parts(SoftmaxCrossEntropyArgs{});
      const auto grad = of_parts(SoftmaxCrossEntropyGradArgs{});
      std::vector<float> lse(dlse.size()), target(lse.size()), dx(x.size());
      std::vector<double> space(workspace_bytes(Target::cpu, args) / sizeof(double) + 1);
      const auto computed = [&](const auto& run, const float* logits, const i64* of, const float* dl,
                                const float* dt, float* l, float* t, float* d, void* workspace) {
        SoftmaxCrossEntropyArgs a = args;
        a.logits = logits;
        a.labels = of;
        a.log_sum_exp = l;
        a.targets = t;
        a.workspace = workspace;
        SoftmaxCrossEntropyGradArgs g = grad;
        g.dloss = dl;
        g.dtargets = dt;
        g.logits = logits;
        g.labels = of;
        g.log_sum_exp = l;
        g.dlogits = d;
        run(a, g);
      };
      computed(
          [](const auto& a, const auto& g) {
            cpu().softmax_cross_entropy(a);
            cpu().softmax_cross_entropy_grad(g);
          },
          x.data(), labels.data(), dlse.data(), dtarget.data(), lse.data(), target.data(), dx.data(),
          space.data());
      for (std::size_t row = 0; row < lse.size(); ++row)
        EXPECT_EQ(target[row] == 0, labels[row] < 0 || labels[row] >= n) << row;
      const Results gpu = on_device([&](Device& device) {
        computed(
            [&](const auto& a, const auto& g) {
              device.run(softmax_cross_entropy, a);
              device.run(softmax_cross_entropy_grad, g);
            },
            device.in<float>(x), device.in<i64>(labels), device.in<float>(dlse), device.in<float>(dtarget),
            device.out<float>("lse", lse.size()), device.out<float>("target", target.size()),
            device.out<float>("dx", dx.size()), device.workspace(workspace_bytes(Target::gpu, args)));
      });
      expect_close(gpu.get<float>("lse"), widen(lse), {1e-6, 1e-6}, "lse");
      expect_close(gpu.get<float>("target"), widen(target), {}, "target");
      expect_close(gpu.get<float>("dx"), widen(dx), {1e-5, 1e-6}, "dx");
    }
}

// Masked logits are -inf; NaN of an ignored row goes nowhere.
TEST(LossOnGpuSpecial, InfinitiesAndNan) {
  for (const i64 n : {8, 600, 9000}) {
    SCOPED_TRACE(n);
    auto x = numbers<float>(4 * n, 1);
    const std::size_t cols = std::size_t(n);
    for (std::size_t k = 0; k + 1 < cols; ++k) x[k] = -std::numeric_limits<float>::infinity();
    x[cols + 2] = std::numeric_limits<float>::infinity();
    x[2 * cols] = std::numeric_limits<float>::quiet_NaN();
    for (std::size_t k = 0; k < cols; ++k) x[3 * cols + k] = -std::numeric_limits<float>::infinity();
    const std::vector<i64> labels = {n - 1, 0, -100, -100};
    std::vector<float> loss(4), lse(4), total(1);
    std::vector<double> space(8);
    cpu().softmax_cross_entropy({DType::f32, DType::i64, LossReduction::none, 4, n, 1, true, -100, x.data(),
                                 labels.data(), nullptr, loss.data(), lse.data(), total.data(),
                                 space.data()});
    const Results gpu = on_device([&](Device& device) {
      SoftmaxCrossEntropyArgs args{DType::f32,
                                   DType::i64,
                                   LossReduction::none,
                                   4,
                                   n,
                                   1,
                                   true,
                                   -100,
                                   device.in<float>(x),
                                   device.in<i64>(labels),
                                   nullptr,
                                   device.out<float>("loss", 4),
                                   device.out<float>("lse", 4),
                                   device.out<float>("total", 1),
                                   nullptr};
      args.workspace = device.workspace(workspace_bytes(Target::gpu, args));
      device.run(softmax_cross_entropy, args);
    });
    expect_close(gpu.get<float>("loss"), widen(loss), {1e-6, 1e-6}, "loss");
    expect_close(gpu.get<float>("lse"), widen(lse), {1e-6, 1e-6}, "lse");
    expect_close(gpu.get<float>("total"), widen(total), {}, "total");
  }
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
