// Our own attention on the executor against plain loops in f64: y, log-sum-exp, dq, dk, dv of masks, dropout, layouts and sizes. Errors are
// counted in roundings of the half type: scores and sums are f32, so that those of operands and results are all there is.
#include "kernels/philox.h"
#include "tests/kernels/gpu/support.h"

namespace gradloom::kernels::gpu::test {
namespace {

enum class Layout { dense, heads_inside, turned };

struct Case {
  std::vector<i64> batch;
  i64 rows, keys, d, e;
  i64 reach = 0;  // 0: all keys
  AttentionMask mask = AttentionMask::none;
  bool mask_of_keys = false;  // one row of it serves all, as of a padding mask
  double fill = -INFINITY, dropout = 0;
  bool safe = false;
  Layout layout = Layout::dense;
  std::size_t offset = 0;            // elements, of every operand from a boundary
  i64 run = 0, ranks = 1, rank = 0;  // of a batch that is a part: what FlashAttentionArgs says of it

  i64 parts() const {
    i64 n = 1;
    for (const i64 size : batch) n *= size;
    return n;
  }
  i64 mask_count() const { return parts() * (mask_of_keys ? 1 : rows) * keys; }
};

// Strides of [batch.., rows, columns].
struct Steps {
  i64 batch[kEwMaxRank] = {}, row, column;
};
Steps steps_of(const Case& c, i64 rows, i64 columns) {
  Steps s{};
  const bool inside = c.layout == Layout::heads_inside;
  const i64 heads = inside ? c.batch.back() : 1;
  s.row = c.layout == Layout::turned ? 1 : heads * columns;
  s.column = c.layout == Layout::turned ? rows : 1;
  i64 step = inside ? columns : rows * columns;
  for (std::size_t i = c.batch.size(); i-- > 0;) {
    s.batch[i] = step;
    step = inside ? heads * rows * columns : step * c.batch[i];
  }
  return s;
}
i64 offset_of(const Case& c, const Steps& s, i64 part) {
  i64 at = 0;
  for (std::size_t i = c.batch.size(); i-- > 0; part /= c.batch[i]) at += part % c.batch[i] * s.batch[i];
  return at;
}

constexpr RandomState kState{0x123456789abcdef0ull, 7};
constexpr std::uint64_t kKey = 0x55aa;
constexpr double kScale = 0.3;

template <class T>
struct Operands {
  std::vector<Host<T>> q, k, v, dy, added;
  std::vector<std::uint8_t> flags;

  explicit Operands(const Case& c)
      : q(numbers<T>(c.parts() * c.rows * c.d, 1)),
        k(numbers<T>(c.parts() * c.keys * c.d, 2)),
        v(numbers<T>(c.parts() * c.keys * c.e, 3)),
        dy(numbers<T>(c.parts() * c.rows * c.e, 4)) {
    if (c.mask == AttentionMask::add) added = numbers<T>(c.mask_count(), 5, -3, 3);
    if (c.mask != AttentionMask::add && c.mask != AttentionMask::none)
      for (const double x : values<double>(c.mask_count(), 6)) flags.push_back(x > 0.5);
  }
};

struct Expected {
  std::vector<double> y, log_sums, dq, dk, dv;
};

template <class T>
class Reference {
 public:
  Reference(const Case& c, const Operands<T>& x)
      : c_(c),
        x_(x),
        rows_(steps_of(c, c.rows, c.d)),
        keys_(steps_of(c, c.keys, c.d)),
        values_(steps_of(c, c.keys, c.e)),
        results_(steps_of(c, c.rows, c.e)) {}

  Expected all() {
    out_ = {std::vector<double>(x_.dy.size()),
            {},
            std::vector<double>(x_.q.size()),
            std::vector<double>(x_.k.size()),
            std::vector<double>(x_.v.size())};
    for (i64 part = 0; part < c_.parts(); ++part)
      for (i64 row = 0; row < c_.rows; ++row) add_row(part, row);
    return out_;
  }

 private:
  static std::size_t at(i64 begin, const Steps& s, i64 row, i64 column) {
    return std::size_t(begin + row * s.row + column * s.column);
  }
  // NaN: nothing is replaced.
  double replacement(i64 part, i64 row, i64 key) const {
    if (x_.flags.empty()) return NAN;
    const bool set = x_.flags[mask_at(part, row, key)] != 0;
    return set == (c_.mask == AttentionMask::block) ? c_.fill : NAN;
  }
  std::size_t mask_at(i64 part, i64 row, i64 key) const {
    return std::size_t(c_.mask_of_keys ? part * c_.keys + key : (part * c_.rows + row) * c_.keys + key);
  }
  double kept(i64 part, i64 row, i64 key) const {
    if (c_.dropout == 0) return 1;
    const i64 in_whole = c_.run == 0 ? part : (part / c_.run * c_.ranks + c_.rank) * c_.run + part % c_.run;
    const auto i = static_cast<unsigned long long>((in_whole * c_.rows + row) * c_.keys + key);
    const auto words = portable::philox_block(i / 4, kState.seed ^ kKey, kState.step);
    return portable::philox_uniform(words.word[i % 4]) >= float(c_.dropout) ? 1 / (1 - c_.dropout) : 0;
  }

  void add_row(i64 part, i64 row) {
    const i64 q0 = offset_of(c_, rows_, part), k0 = offset_of(c_, keys_, part),
              v0 = offset_of(c_, values_, part), y0 = offset_of(c_, results_, part);
    std::vector<double> p(std::size_t(c_.keys), -INFINITY), dp(p.size());
    const i64 end = c_.reach > 0 ? std::min(c_.keys, row + c_.reach) : c_.keys;
    double peak = -INFINITY, sum = 0, slope = 0;
    for (i64 key = 0; key < end; ++key) {
      double s = 0;
      for (i64 i = 0; i < c_.d; ++i)
        s += double(x_.q[at(q0, rows_, row, i)]) * double(x_.k[at(k0, keys_, key, i)]);
      s *= kScale;
      if (!x_.added.empty()) s += double(x_.added[mask_at(part, row, key)]);
      const double instead = replacement(part, row, key);
      p[std::size_t(key)] = std::isnan(instead) ? s : instead;
      peak = std::max(peak, p[std::size_t(key)]);
    }
    for (double& s : p) sum += s = peak == -INFINITY ? 0 : std::exp(s - peak);
    out_.log_sums.push_back(peak + std::log(sum));
    for (i64 key = 0; key < c_.keys; ++key) {
      double& share = p[std::size_t(key)];
      share = c_.safe && sum == 0 ? 0 : share / sum;
      double& g = dp[std::size_t(key)];
      for (i64 i = 0; i < c_.e; ++i) {
        const double v = double(x_.v[at(v0, values_, key, i)]), dy = double(x_.dy[at(y0, results_, row, i)]),
                     keep = kept(part, row, key);
        out_.y[at(y0, results_, row, i)] += share * keep * v;
        out_.dv[at(v0, values_, key, i)] += share * keep * dy;
        g += keep * dy * v;
      }
      slope += share * g;
    }
    for (i64 key = 0; key < c_.keys; ++key) {
      const double ds = p[std::size_t(key)] * (dp[std::size_t(key)] - slope) * kScale;
      if (!std::isnan(replacement(part, row, key))) continue;
      for (i64 i = 0; i < c_.d; ++i) {
        out_.dq[at(q0, rows_, row, i)] += ds * double(x_.k[at(k0, keys_, key, i)]);
        out_.dk[at(k0, keys_, key, i)] += ds * double(x_.q[at(q0, rows_, row, i)]);
      }
    }
  }

  const Case& c_;
  const Operands<T>& x_;
  const Steps rows_, keys_, values_, results_;
  Expected out_;
};

void set(const Steps& s, i64 (&batch)[kEwMaxRank], i64& row, i64& column) {
  std::copy(std::begin(s.batch), std::end(s.batch), batch);
  row = s.row;
  column = s.column;
}

template <class T>
FlashAttentionArgs form_of(const Case& c) {
  FlashAttentionArgs a{};
  a.dtype = gpu_dtype<T>();
  a.batch_rank = int(c.batch.size());
  std::copy(c.batch.begin(), c.batch.end(), a.batch_dims);
  a.rows = c.rows;
  a.keys = c.keys;
  a.d = c.d;
  a.e = c.e;
  set(steps_of(c, c.rows, c.d), a.q_batch, a.q_row, a.q_col);
  set(steps_of(c, c.keys, c.d), a.k_batch, a.k_row, a.k_col);
  set(steps_of(c, c.keys, c.e), a.v_batch, a.v_row, a.v_col);
  set(steps_of(c, c.rows, c.e), a.y_batch, a.y_row, a.y_col);
  const i64 matrix = (c.mask_of_keys ? 1 : c.rows) * c.keys;
  i64 step = matrix;
  for (std::size_t i = c.batch.size(); i-- > 0; step *= c.batch[i]) a.mask_batch[i] = step;
  a.mask_row = c.mask_of_keys ? 0 : c.keys;
  a.mask_col = 1;
  if (c.mask == AttentionMask::none) std::fill(std::begin(a.mask_batch), std::end(a.mask_batch), 0);
  a.reach = c.reach > 0 ? c.reach : c.keys;
  a.scale = kScale;
  a.mask_mode = c.mask;
  a.fill = c.fill;
  a.safe = c.safe;
  a.dropout = c.dropout;
  a.key = kKey;
  a.part_run = c.run;
  a.parts = c.ranks;
  a.part = c.rank;
  return a;
}

template <class T>
Results computed(const Case& c, const Operands<T>& x) {
  return on_device([&](Device& device) {
    FlashAttentionArgs a = form_of<T>(c);
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
    set(steps_of(c, c.rows, c.e), g.dy_batch, g.dy_row, g.dy_col);
    set(steps_of(c, c.rows, c.d), g.dq_batch, g.dq_row, g.dq_col);
    set(steps_of(c, c.keys, c.d), g.dk_batch, g.dk_row, g.dk_col);
    set(steps_of(c, c.keys, c.e), g.dv_batch, g.dv_row, g.dv_col);
    g.dy = device.in<T>(x.dy, c.offset);
    g.dq = device.out<T>("dq", x.q.size(), c.offset);
    g.dk = device.out<T>("dk", x.k.size(), c.offset);
    g.dv = device.out<T>("dv", x.v.size(), c.offset);
    g.workspace = device.workspace(kernels::workspace_bytes(Target::gpu, g));
    device.run(flash_attention_grad, g);
  });
}

// Root mean square of the difference as a part of the numbers', and the largest difference as a part of both the number
// and the mean: sums have errors of what cancels out, results of their own size.
struct Errors {
  double mean = 0, most = 0;
};
template <class V>
Errors errors_of(const std::vector<V>& got, const std::vector<double>& expected) {
  double differences = 0, squares = 0, most = 0;
  for (const double x : expected) squares += std::isnan(x) ? 0 : x * x;
  const double size = std::sqrt(squares / double(std::max<std::size_t>(expected.size(), 1)));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(double(got[i]) - expected[i]);
    EXPECT_EQ(std::isnan(double(got[i])), std::isnan(expected[i])) << i;
    if (std::isnan(expected[i]) || difference == 0) continue;
    differences += difference * difference;
    most = std::max(most, difference / (std::abs(expected[i]) + size));
  }
  return {differences == 0 ? 0 : std::sqrt(differences / squares), most};
}

void expect_log_sums(const std::vector<float>& got, const std::vector<double>& expected, const char* what) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(double(got[i]) == expected[i] ||
                std::abs(double(got[i]) - expected[i]) <= 2e-6 * (1 + std::abs(expected[i])))
        << what << ": log-sum-exp " << i << ": " << got[i] << " against " << expected[i];
}

template <class T>
void check(const Case& c, const Operands<T>& x, const char* what) {
  const Results gpu = computed<T>(c, x);
  const Expected expected = Reference<T>(c, x).all();
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
  check(c, Operands<T>(c), what);
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
    Operands<TypeParam> x(c);
    for (std::size_t i = 0; i < x.added.size(); ++i) {
      const std::size_t row = i / 150, key = i % 150;
      if (row % 7 == 3) x.added[i] = key % 5 < 2 ? -30720.0f : -61440.0f;
      if (row % 7 == 5) x.added[i] = 1024 + 8 * float(key % 3);
    }
    check(c, x, "hidden by added numbers");
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
Results computed_in_rows(const Case& c, const Operands<T>& x) {
  const i64 row = c.batch[1] * c.d;
  const auto wider = [&](i64 pitch) {
    Steps s = steps_of(c, c.rows, c.d);
    s.batch[0] = c.rows * pitch;
    s.row = pitch;
    return s;
  };
  return on_device([&](Device& device) {
    FlashAttentionGradArgs g{};
    FlashAttentionArgs& a = g.forward = form_of<T>(c);
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
      const Operands<T> x(c);
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
  Operands<TypeParam> x(c);
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
