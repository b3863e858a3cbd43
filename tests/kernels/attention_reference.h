// Attention and its gradient by plain loops in f64, for the kernels of GPUs and of the CPU, and how far results may be from it.
#pragma once

#include <algorithm>

#include "kernels/philox.h"
#include "tests/kernels/support.h"

namespace gradloom::kernels::test::attention {

using i64 = std::int64_t;

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
inline Steps steps_of(const Case& c, i64 rows, i64 columns) {
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
inline i64 offset_of(const Case& c, const Steps& s, i64 part) {
  i64 at = 0;
  for (std::size_t i = c.batch.size(); i-- > 0; part /= c.batch[i]) at += part % c.batch[i] * s.batch[i];
  return at;
}

constexpr RandomState kState{0x123456789abcdef0ull, 7};
constexpr std::uint64_t kKey = 0x55aa;
constexpr double kScale = 0.3;

// numbers(count, seed, low, high): what the operands are made of.
template <class T>
struct Operands {
  std::vector<T> q, k, v, dy, added;
  std::vector<std::uint8_t> flags;

  template <class Numbers>
  Operands(const Case& c, const Numbers& numbers)
      : q(numbers(c.parts() * c.rows * c.d, 1, -2, 2)),
        k(numbers(c.parts() * c.keys * c.d, 2, -2, 2)),
        v(numbers(c.parts() * c.keys * c.e, 3, -2, 2)),
        dy(numbers(c.parts() * c.rows * c.e, 4, -2, 2)) {
    if (c.mask == AttentionMask::add) added = numbers(c.mask_count(), 5, -3, 3);
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

inline void set(const Steps& s, i64 (&batch)[kEwMaxRank], i64& row, i64& column) {
  std::copy(std::begin(s.batch), std::end(s.batch), batch);
  row = s.row;
  column = s.column;
}

// Where the gradients of a case lie.
inline void set_gradients(const Case& c, FlashAttentionGradArgs& g) {
  set(steps_of(c, c.rows, c.e), g.dy_batch, g.dy_row, g.dy_col);
  set(steps_of(c, c.rows, c.d), g.dq_batch, g.dq_row, g.dq_col);
  set(steps_of(c, c.keys, c.d), g.dk_batch, g.dk_row, g.dk_col);
  set(steps_of(c, c.keys, c.e), g.dv_batch, g.dv_row, g.dv_col);
}

inline FlashAttentionArgs form_of(const Case& c, DType dtype) {
  FlashAttentionArgs a{};
  a.dtype = dtype;
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

inline void expect_log_sums(const std::vector<float>& got, const std::vector<double>& expected,
                            const char* what) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(double(got[i]) == expected[i] ||
                std::abs(double(got[i]) - expected[i]) <= 2e-6 * (1 + std::abs(expected[i])))
        << what << ": log-sum-exp " << i << ": " << got[i] << " against " << expected[i];
}

}  // namespace gradloom::kernels::test::attention
