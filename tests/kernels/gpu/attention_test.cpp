// Our own attention on the executor against plain loops in f64: y, log-sum-exp, dq, dk, dv of masks, dropout, layouts and sizes. Errors are
// counted in roundings of the half type: scores and sums are f32, so that those of operands and results are all there is.
#include "tests/kernels/attention_reference.h"
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

using namespace kernels::test::attention;

template <class T>
Operands<Host<T>> operands(const Case& c) {
  return Operands<Host<T>>(
      c, [](i64 n, std::uint64_t seed, double low, double high) { return numbers<T>(n, seed, low, high); });
}

template <class T>
Results computed(const Case& c, const Operands<Host<T>>& x) {
  return on_device([&](Device& device) {
    FlashAttentionArgs a = form_of(c, gpu_dtype<T>());
    a.q = device.in<T>(x.q, c.offset);
    a.k = device.in<T>(x.k, c.offset);
    a.v = device.in<T>(x.v, c.offset);
    if (!x.added.empty()) a.mask = device.in<T>(x.added);
    if (!x.flags.empty()) a.mask = device.in<std::uint8_t>(x.flags);
    a.random = device.in<RandomState>(std::vector<RandomState>{kState});
    a.y = device.out<T>("y", x.dy.size(), c.offset);
    a.log_sum_exp = device.out<float>("log_sums", std::size_t(c.parts() * c.rows));
    device.run(flash_attention, a);
    FlashAttentionArgs silent = a;
    silent.y = device.out<T>("y alone", x.dy.size(), c.offset);
    silent.log_sum_exp = nullptr;
    device.run(flash_attention, silent);
    FlashAttentionGradArgs g{};
    g.forward = a;
    set_gradients(c, g);
    g.dy = device.in<T>(x.dy, c.offset);
    g.dq = device.out<T>("dq", x.q.size(), c.offset);
    g.dk = device.out<T>("dk", x.k.size(), c.offset);
    g.dv = device.out<T>("dv", x.v.size(), c.offset);
    g.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, g));
    device.run(flash_attention_grad, g);
  });
}

template <class T>
void check(const Case& c, const Operands<Host<T>>& x, const char* what) {
  const Results gpu = computed<T>(c, x);
  const Expected expected = Reference<Host<T>>(c, x).all();
  expect_log_sums(gpu.get<float>("log_sums"), expected.log_sums, what);
  EXPECT_TRUE(kernels::test::same_bits(gpu.get<T>("y alone"), gpu.get<T>("y"))) << what;
  const auto expect = [&](const char* name, const std::vector<double>& exact) {
    const Errors errors = errors_of(gpu.get<T>(name), exact);
    // One rounding is half of kUnit<T> in the mean of what it may be. Probabilities, their slopes and results are rounded.
    EXPECT_LT(errors.mean, 1.6 * kUnit<T> / 2) << what << ": " << name;
    EXPECT_LT(errors.most, 6 * kUnit<T>) << what << ": " << name;
    if (std::getenv("GRADLOOM_PRINT_ERRORS") != nullptr)
      std::printf("%-34s %s %.2f %.2f\n", what, name, errors.mean / kUnit<T> * 2, errors.most / kUnit<T>);
  };
  expect("y", expected.y);
  expect("dq", expected.dq);
  expect("dk", expected.dk);
  expect("dv", expected.dv);
}

template <class T>
void check(const Case& c, const char* what) {
  check<T>(c, operands<T>(c), what);
}

template <class T>
class GpuAttention : public testing::Test {};
TYPED_TEST_SUITE(GpuAttention, Halves);

TYPED_TEST(GpuAttention, OfHeadsOfEverySize) {
  check<TypeParam>({{2}, 33, 47, 16, 16}, "16 columns");
  check<TypeParam>({{}, 70, 80, 40, 40}, "40 columns");
  check<TypeParam>({{2, 2}, 64, 64, 64, 64}, "64 columns");
  check<TypeParam>({{1}, 65, 65, 80, 80}, "80 columns");
  check<TypeParam>({{1}, 65, 100, 128, 128}, "128 columns");
  check<TypeParam>({{1}, 65, 40, 200, 256}, "200 and 256 columns");
  check<TypeParam>({{1}, 40, 40, 256, 5}, "256 and 5 columns");
  check<TypeParam>({{1}, 20, 20, 5, 2}, "5 and 2 columns");
  check<TypeParam>({{1}, 20, 20, 24, 136}, "24 and 136 columns");
}

TYPED_TEST(GpuAttention, OfAnyLengths) {
  for (const i64 rows : {1, 17, 129})
    for (const i64 keys : {1, 17, 129})
      check<TypeParam>({{1}, rows, keys, 24, 24},
                       (std::to_string(rows) + " x " + std::to_string(keys)).c_str());
  check<TypeParam>({{0}, 5, 5, 8, 8}, "nothing");
  check<TypeParam>({{2}, 0, 5, 8, 8}, "no rows");
}

TYPED_TEST(GpuAttention, OfKeysThatRowsReach) {
  check<TypeParam>({{2}, 129, 129, 64, 64, 1}, "causal");
  check<TypeParam>({{1}, 40, 200, 16, 16, 1}, "causal, more keys");
  check<TypeParam>({{1}, 200, 40, 16, 16, 1}, "causal, more rows");
  check<TypeParam>({{1}, 50, 150, 32, 32, 101}, "causal, keys of before");
  check<TypeParam>({{1}, 70, 70, 256, 256, 1}, "causal, 256 columns");
}

TYPED_TEST(GpuAttention, OfMasks) {
  using enum AttentionMask;
  check<TypeParam>({{2, 3}, 37, 50, 16, 16, 0, add}, "added");
  check<TypeParam>({{2}, 37, 50, 16, 16, 0, add, true}, "added to keys");
  check<TypeParam>({{2}, 37, 64, 16, 16, 0, keep}, "kept");
  check<TypeParam>({{2}, 37, 50, 64, 64, 0, block, true, -3.4e38}, "padding");
  check<TypeParam>({{2}, 37, 50, 16, 16, 5, block}, "blocked, causal");
  check<TypeParam>({{2}, 37, 50, 16, 16, 0, block, false, 0.5}, "replaced, not hidden");
  check<TypeParam>({{4}, 37, 3, 16, 16, 0, keep, false, -INFINITY, 0, true}, "blind rows, safe");
  check<TypeParam>({{4}, 37, 3, 16, 16, 0, keep, false, -0x1.fffffep127}, "blind rows, alike");
}

// Rows all of whose keys large numbers hide, of several sizes, among rows that see some: their log-sum-exp has no digit of how many keys share
// the largest score.
TYPED_TEST(GpuAttention, OfRowsThatTheirLogSumExpDoesNotTell) {
  for (const i64 d : {16, 80}) {
    const Case c{{2}, 70, 150, d, d, 0, AttentionMask::add};
    Operands<Host<TypeParam>> x = operands<TypeParam>(c);
    for (std::size_t i = 0; i < x.added.size(); ++i) {
      const std::size_t row = i / 150, key = i % 150;
      if (row % 7 == 3) x.added[i] = key % 5 < 2 ? -30720.0f : -61440.0f;
      if (row % 7 == 5) x.added[i] = 1024 + 8 * float(key % 3);
    }
    check<TypeParam>(c, x, "hidden by added numbers");
  }
}

TYPED_TEST(GpuAttention, OfDropout) {
  check<TypeParam>({{2, 2}, 33, 36, 16, 16, 0, AttentionMask::none, false, 0, 0.25}, "whole blocks");
  check<TypeParam>({{2}, 33, 37, 16, 16, 0, AttentionMask::none, false, 0, 0.25}, "parts of blocks");
  check<TypeParam>({{2}, 150, 150, 64, 64, 1, AttentionMask::none, false, 0, 0.1}, "causal");
  check<TypeParam>({{1}, 64, 64, 128, 128, 0, AttentionMask::keep, true, -INFINITY, 0.5}, "padding");
}

// Two heads of each of three images, of six that three ranks share: those of the second.
TYPED_TEST(GpuAttention, OfAPartDropsWhatTheWholeDoes) {
  for (const i64 keys : {36, 37}) {
    Case c{{3, 2}, 33, keys, 16, 16, 0, AttentionMask::none, false, 0, 0.25};
    c.run = 2;
    c.ranks = 3;
    c.rank = 1;
    check<TypeParam>(c, "a part");
  }
}

TYPED_TEST(GpuAttention, OfOperandsAsTheyLie) {
  Case c{{2, 3}, 40, 50, 32, 24};
  c.layout = Layout::heads_inside;
  check<TypeParam>(c, "heads inside");
  c.offset = 1;
  check<TypeParam>(c, "heads inside, odd addresses");
  c.layout = Layout::turned;
  check<TypeParam>(c, "turned");
}

// Rows of one tensor, [batch, position, (q, k, v), head, column], of what lies dense as [batch, position, head, column].
template <class T>
std::vector<Host<T>> side_by_side(const Case& c, std::initializer_list<const std::vector<Host<T>>*> parts) {
  const std::size_t row = std::size_t(c.batch[1] * c.d), rows = parts.begin()[0]->size() / row;
  std::vector<Host<T>> whole;
  for (std::size_t r = 0; r < rows; ++r)
    for (const auto* part : parts)
      whole.insert(whole.end(), part->begin() + std::ptrdiff_t(r * row),
                   part->begin() + std::ptrdiff_t((r + 1) * row));
  return whole;
}

// All results, where q, k and v are rows of one tensor and so are dq, dk and dv, of another width.
template <class T>
Results computed_in_rows(const Case& c, const Operands<Host<T>>& x) {
  const i64 row = c.batch[1] * c.d;
  const auto wider = [&](i64 pitch) {
    Steps s = steps_of(c, c.rows, c.d);
    s.batch[0] = c.rows * pitch;
    s.row = pitch;
    return s;
  };
  return on_device([&](Device& device) {
    FlashAttentionGradArgs g{};
    FlashAttentionArgs& a = g.forward = form_of(c, gpu_dtype<T>());
    const Steps operand = wider(3 * row), result = wider(4 * row);
    set(operand, a.q_batch, a.q_row, a.q_col);
    set(operand, a.k_batch, a.k_row, a.k_col);
    set(operand, a.v_batch, a.v_row, a.v_col);
    set(result, g.dq_batch, g.dq_row, g.dq_col);
    set(result, g.dk_batch, g.dk_row, g.dk_col);
    set(result, g.dv_batch, g.dv_row, g.dv_col);
    set(steps_of(c, c.rows, c.e), g.dy_batch, g.dy_row, g.dy_col);
    const T* const qkv = device.in<T>(side_by_side<T>(c, {&x.q, &x.k, &x.v}), c.offset);
    a.q = qkv;
    a.k = qkv + row;
    a.v = qkv + 2 * row;
    a.y = device.out<T>("y", x.dy.size(), c.offset);
    a.log_sum_exp = device.out<float>("log_sums", std::size_t(c.parts() * c.rows));
    a.random = device.in<RandomState>(std::vector<RandomState>{kState});
    device.run(flash_attention, a);
    T* const whole = device.out<T>("dqkv", 4 * x.q.size(), c.offset);
    g.dy = device.in<T>(x.dy, c.offset);
    g.dq = whole;
    g.dk = whole + row;
    g.dv = whole + 2 * row;
    g.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, g));
    device.run(flash_attention_grad, g);
  });
}

TYPED_TEST(GpuAttention, OfRowsOfALargerTensorHasTheBitsOfDenseOnes) {
  using T = TypeParam;
  for (const i64 d : {16, 80, 5})
    for (const std::size_t offset : {std::size_t{0}, std::size_t{1}}) {
      Case c{{2, 3}, 70, 70, d, d, 1};
      c.layout = Layout::heads_inside;
      c.offset = offset;
      c.dropout = d == 80 ? 0.25 : 0;
      const Operands<Host<T>> x = operands<T>(c);
      const Results dense = computed<T>(c, x), apart = computed_in_rows<T>(c, x);
      EXPECT_EQ(apart.get<T>("y"), dense.get<T>("y")) << d;
      const auto dq = dense.get<T>("dq"), dk = dense.get<T>("dk"), dv = dense.get<T>("dv"),
                 got = apart.get<T>("dqkv");
      const std::size_t row = std::size_t(3 * d);
      for (std::size_t i = 0; i < got.size(); ++i) {
        const std::size_t line = i / (4 * row), column = i % (4 * row), at = line * row + column % row;
        if (column >= 3 * row) {
          EXPECT_TRUE(std::isnan(got[i])) << "written beside the rows, at " << i;
          continue;
        }
        ASSERT_EQ(got[i], column < row ? dq[at] : column < 2 * row ? dk[at] : dv[at]) << d << ", " << i;
      }
    }
}

// A row that sees nothing has no probabilities, as a softmax of infinite scores.
TYPED_TEST(GpuAttention, OfBlindRowsIsNaNUnlessSafe) {
  const Case c{{1}, 3, 4, 8, 8, 0, AttentionMask::keep};
  Operands<Host<TypeParam>> x = operands<TypeParam>(c);
  std::fill(x.flags.begin(), x.flags.end(), std::uint8_t{1});
  std::fill_n(x.flags.begin() + 4, 4, std::uint8_t{0});
  const Results gpu = computed<TypeParam>(c, x);
  for (const char* name : {"y", "dq"}) {
    const auto got = gpu.get<TypeParam>(name);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i / 8 == 1) << name << i;
  }
}

}  // namespace
}  // namespace gradloom::kernels::gpu::test
