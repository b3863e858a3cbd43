// Attention of bf16 on the CPU against plain loops in f64: y, log-sum-exp, dq, dk, dv of masks, dropout, layouts and sizes, on every level,
// with the same bits for any number of threads. Errors are counted in roundings of bf16: scores and sums are f32, so that those of
// operands and results are all there is.
#include "kernels/prepared/bf16.h"
#include "tests/kernels/attention_reference.h"

namespace gradloom::kernels::test {
namespace {

using namespace attention;

Operands<Bf16> operands(const Case& c) {
  return Operands<Bf16>(
      c, [](i64 n, std::uint64_t seed, double low, double high) { return values<Bf16>(n, seed, low, high); });
}

constexpr double kRounding = 0x1p-8;

struct Computed {
  std::vector<Bf16> y, dq, dk, dv;
  std::vector<float> log_sums;
  bool operator==(const Computed& other) const {
    return same_bits(y, other.y) && same_bits(dq, other.dq) && same_bits(dk, other.dk) &&
           same_bits(dv, other.dv) && same_bits(log_sums, other.log_sums);
  }
};

// `x` from a boundary on by so many elements.
std::vector<Bf16> moved(const std::vector<Bf16>& x, std::size_t offset) {
  std::vector<Bf16> all(offset);
  all.insert(all.end(), x.begin(), x.end());
  return all;
}

Computed computed(const CpuKernels& kernels, const Case& c, const Operands<Bf16>& x) {
  const Bf16 nan(NAN);
  const auto room = [&](const std::vector<Bf16>& like) {
    return std::vector<Bf16>(like.size() + c.offset, nan);
  };
  const std::vector<Bf16> q = moved(x.q, c.offset), k = moved(x.k, c.offset), v = moved(x.v, c.offset),
                          dy = moved(x.dy, c.offset);
  Computed out{room(x.dy), room(x.q), room(x.k), room(x.v),
               std::vector<float>(std::size_t(c.parts() * c.rows), NAN)};
  FlashAttentionArgs a = form_of(c, DType::bf16);
  a.q = q.data() + c.offset;
  a.k = k.data() + c.offset;
  a.v = v.data() + c.offset;
  a.mask = x.added.empty() ? static_cast<const void*>(x.flags.data()) : x.added.data();
  a.random = &kState;
  a.y = out.y.data() + c.offset;
  kernels.flash_attention(a);
  const std::vector<Bf16> alone = out.y;
  a.log_sum_exp = out.log_sums.data();
  kernels.flash_attention(a);
  EXPECT_TRUE(same_bits(alone, out.y)) << "log-sum-exp changes the result";
  FlashAttentionGradArgs g{};
  g.forward = a;
  set_gradients(c, g);
  g.dy = dy.data() + c.offset;
  g.dq = out.dq.data() + c.offset;
  g.dk = out.dk.data() + c.offset;
  g.dv = out.dv.data() + c.offset;
  std::vector<float> workspace(kernels::workspace_bytes(Target::cpu, g) / sizeof(float), NAN);
  g.workspace = workspace.data();
  kernels.flash_attention_grad(g);
  for (std::vector<Bf16>* result : {&out.y, &out.dq, &out.dk, &out.dv})
    result->erase(result->begin(), result->begin() + std::ptrdiff_t(c.offset));
  return out;
}

void check(const Case& c, const Operands<Bf16>& x, const std::string& what) {
  const Expected expected = Reference<Bf16>(c, x).all();
  for (const CpuKernels* level : levels()) {
    if (std::string(level->isa) == "v4" && !has_bf16_products()) continue;
    set_threads(1);
    const Computed one = computed(*level, c, x);
    for (const int team : {2, 3}) {
      set_threads(team);
      EXPECT_TRUE(computed(*level, c, x) == one) << what << ", " << level->isa << ": other bits of " << team;
    }
    set_threads(2);
    const std::string where = what + " " + level->isa;
    expect_log_sums(one.log_sums, expected.log_sums, where.c_str());
    const auto expect = [&](const char* name, const std::vector<Bf16>& got,
                            const std::vector<double>& exact) {
      const Errors errors = errors_of(got, exact);
      // One rounding is half of kRounding in the mean of what it may be. Probabilities, their slopes and results are rounded.
      EXPECT_LT(errors.mean, 1.6 * kRounding / 2) << where << ": " << name;
      EXPECT_LT(errors.most, 6 * kRounding) << where << ": " << name;
    };
    expect("y", one.y, expected.y);
    expect("dq", one.dq, expected.dq);
    expect("dk", one.dk, expected.dk);
    expect("dv", one.dv, expected.dv);
  }
}
void check(const Case& c, const std::string& what) { check(c, operands(c), what); }

TEST(Attention, OfHeadsOfEverySize) {
  check({{2}, 33, 47, 16, 16}, "16 columns");
  check({{}, 70, 80, 40, 40}, "40 columns");
  check({{2, 2}, 64, 64, 64, 64}, "64 columns");
  check({{1}, 65, 65, 80, 80}, "80 columns");
  check({{1}, 65, 40, 200, 256}, "200 and 256 columns");
  check({{1}, 20, 20, 5, 2}, "5 and 2 columns");
  check({{1}, 20, 20, 24, 136}, "24 and 136 columns");
}

// Of panels of 12 rows, blocks of 96 and registers of keys: one less, one more; a head in parts.
TEST(Attention, OfAnyLengths) {
  for (const i64 rows : {1, 12, 17, 97})
    for (const i64 keys : {1, 16, 33, 129})
      check({{1}, rows, keys, 24, 24}, std::to_string(rows) + " x " + std::to_string(keys));
  check({{2}, 400, 70, 16, 24}, "parts of heads");
  check({{9}, 200, 40, 16, 16}, "whole heads");
  check({{0}, 5, 5, 8, 8}, "nothing");
  check({{2}, 0, 5, 8, 8}, "no rows");
}

TEST(Attention, OfKeysThatRowsReach) {
  check({{2}, 129, 129, 64, 64, 1}, "causal");
  check({{1}, 40, 200, 16, 16, 1}, "causal, more keys");
  check({{1}, 400, 40, 16, 16, 1}, "causal, more rows");
  check({{1}, 50, 150, 32, 32, 101}, "causal, keys of before");
  check({{3}, 401, 401, 16, 16, 1}, "causal, parts of heads");
}

TEST(Attention, OfMasks) {
  using enum AttentionMask;
  check({{2, 3}, 37, 50, 16, 16, 0, add}, "added");
  check({{2}, 37, 50, 16, 16, 0, add, true}, "added to keys");
  check({{2}, 37, 64, 16, 16, 0, keep}, "kept");
  check({{2}, 37, 50, 64, 64, 0, block, true, -3.4e38}, "padding");
  check({{2}, 37, 50, 16, 16, 5, block}, "blocked, causal");
  check({{2}, 37, 50, 16, 16, 0, block, false, 0.5}, "replaced, not hidden");
  check({{4}, 37, 3, 16, 16, 0, keep, false, -INFINITY, 0, true}, "blind rows, safe");
  check({{4}, 37, 3, 16, 16, 0, keep, false, -0x1.fffffep127}, "blind rows, alike");
}

// Rows all of whose keys large numbers hide: their log-sum-exp has no digit of how many keys share the largest score.
TEST(Attention, OfRowsThatTheirLogSumExpDoesNotTell) {
  for (const i64 d : {16, 80}) {
    const Case c{{2}, 70, 150, d, d, 0, AttentionMask::add};
    Operands<Bf16> x = operands(c);
    for (std::size_t i = 0; i < x.added.size(); ++i) {
      const std::size_t row = i / 150, key = i % 150;
      if (row % 7 == 3) x.added[i] = Bf16(key % 5 < 2 ? -30720.0 : -61440.0);
      if (row % 7 == 5) x.added[i] = Bf16(1024 + 8 * double(key % 3));
    }
    check(c, x, "hidden by added numbers");
  }
}

TEST(Attention, OfDropout) {
  check({{2, 2}, 33, 36, 16, 16, 0, AttentionMask::none, false, 0, 0.25}, "whole blocks");
  check({{2}, 33, 37, 16, 16, 0, AttentionMask::none, false, 0, 0.25}, "parts of blocks");
  check({{2}, 150, 150, 64, 64, 1, AttentionMask::none, false, 0, 0.1}, "causal");
  check({{1}, 64, 64, 128, 128, 0, AttentionMask::keep, true, -INFINITY, 0.5}, "padding");
  Case part{{3, 2}, 33, 37, 16, 16, 0, AttentionMask::none, false, 0, 0.25};
  part.run = 2;
  part.ranks = 3;
  part.rank = 1;
  check(part, "two heads of each image, of six that three ranks share");
}

TEST(Attention, OfOperandsAsTheyLie) {
  Case c{{2, 3}, 40, 50, 32, 24};
  c.layout = Layout::heads_inside;
  check(c, "heads inside");
  c.offset = 1;
  check(c, "heads inside, odd addresses");
  c.layout = Layout::turned;
  check(c, "turned");
}

// A row that sees nothing has no probabilities, as a softmax of infinite scores; its scores, all replaced, have no gradient.
TEST(Attention, OfBlindRowsIsNaNUnlessSafe) {
  const Case c{{1}, 3, 4, 8, 8, 0, AttentionMask::keep};
  Operands<Bf16> x = operands(c);
  std::fill(x.flags.begin(), x.flags.end(), std::uint8_t{1});
  std::fill_n(x.flags.begin() + 4, 4, std::uint8_t{0});
  for (const CpuKernels* level : levels()) {
    if (std::string(level->isa) == "v4" && !has_bf16_products()) continue;
    const Computed got = computed(*level, c, x);
    for (std::size_t i = 0; i < got.y.size(); ++i) {
      EXPECT_EQ(std::isnan(float(got.y[i])), i / 8 == 1) << level->isa << " y " << i;
      EXPECT_FALSE(std::isnan(float(got.dq[i]))) << level->isa << " dq " << i;
      EXPECT_TRUE(i / 8 != 1 || float(got.dq[i]) == 0) << level->isa << " dq " << i;
    }
  }
}

}  // namespace
}  // namespace gradloom::kernels::test
