// Means added as trees and rings (reduce_form.h): the bits that the form says, near the sum in float64, the same on all ranks and every
// time; and who is named where a rank does not come.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <latch>
#include <random>

#include "engine/base/bf16.h"
#include "engine/ranks/world.h"
#include "tests/engine/ranks/tcp_worlds.h"
#include "tests/engine/ranks/thread_transport.h"

namespace gradloom {
namespace {

using OverRanks = void (*)(int size, const std::function<void(World&)>& f);

class ReduceForms : public testing::TestWithParam<std::pair<OverRanks, ReduceForm>> {
 protected:
  void SetUp() override {
    if (GetParam().first == tcp_worlds::on_ranks && !tcp_worlds::are_here())
      GTEST_SKIP() << "built without Asio";
  }
  static void on_ranks(int size, const std::function<void(World&)>& f) {
    GetParam().first(size, [&](World& world) {
      world.set_reduce_form(form());
      f(world);
    });
  }
  static ReduceForm form() { return GetParam().second; }
  void expect_means(DType type, int ranks, const std::vector<std::int64_t>& counts, bool in_place) const;
  void expect_reduced(DType type, int ranks, const std::vector<std::int64_t>& counts,
                      const std::vector<int>& owners) const;
};
constexpr OverRanks kThreads = thread_transport::on_ranks, kTcp = tcp_worlds::on_ranks;
constexpr std::pair<OverRanks, ReduceForm> kRelayed[] = {{kThreads, ReduceForm::tree},
                                                         {kThreads, ReduceForm::ring},
                                                         {kTcp, ReduceForm::tree},
                                                         {kTcp, ReduceForm::ring}};
std::string name_of(const testing::TestParamInfo<std::pair<OverRanks, ReduceForm>>& over) {
  return std::string(over.param.first == kTcp ? "Tcp" : "Threads") + "_" +
         kReduceForms[static_cast<int>(over.param.second)];
}
INSTANTIATE_TEST_SUITE_P(InOrder, ReduceForms, testing::Values(std::pair(kThreads, ReduceForm::order)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Over, ReduceForms, testing::ValuesIn(kRelayed), name_of);

// Rank r's numbers of a tensor.
Tensor own_numbers(DType type, std::int64_t count, int rank, std::size_t tensor) {
  std::mt19937 random(static_cast<unsigned>(1000 * rank) + static_cast<unsigned>(tensor));
  std::uniform_real_distribution<double> uniform(-3, 3);
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(uniform(random));
  return Tensor::from_f64(type, {count}, values);
}

double rounded_to(DType type, double x) {
  switch (type) {
    case DType::f64: return x;
    case DType::f16: return static_cast<double>(static_cast<_Float16>(static_cast<float>(x)));
    case DType::bf16: return bf16_to_f32(f32_to_bf16(static_cast<float>(x)));
    default: return static_cast<float>(x);
  }
}
DType wide(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

// One element's mean, of each rank's x, as the form says. `part`: in which part of all elements it is.
double mean_of(ReduceForm form, DType type, const std::vector<double>& x, int part) {
  const auto n = static_cast<int>(x.size());
  // Sums of two in the wide type round once, as a sum in double rounded to f32 does.
  const auto own = [&](int rank) { return rounded_to(wide(type), x[static_cast<std::size_t>(rank)] / n); };
  const auto plus = [&](double a, double b) { return rounded_to(wide(type), a + b); };
  if (form == ReduceForm::order) {
    double sum = 0;
    for (int rank = 0; rank < n; ++rank) sum = plus(sum, own(rank));
    return rounded_to(type, sum);
  }
  if (form == ReduceForm::ring) {
    double sum = own(part);
    for (int i = 1; i < n; ++i) sum = rounded_to(type, plus(sum, own((part + i) % n)));
    return rounded_to(type, sum);
  }
  // The pairs that are left over of a power of two come first; then neighbours, until one is left.
  int leaves = 1;
  while (2 * leaves <= n) leaves *= 2;
  std::vector<double> sums;
  for (int rank = 0; rank < n;) {
    const bool pair = rank < 2 * (n - leaves);
    sums.push_back(pair ? rounded_to(type, plus(own(rank), own(rank + 1))) : own(rank));
    rank += pair ? 2 : 1;
  }
  while (sums.size() > 1) {
    std::vector<double> next;
    for (std::size_t i = 0; i < sums.size(); i += 2)
      next.push_back(rounded_to(type, plus(sums[i], sums[i + 1])));
    sums = next;
  }
  return rounded_to(type, sums[0]);
}

// Of element `at` of `count`, cut into `ranks` parts of which the first are one longer.
int part_of_element(std::int64_t at, std::int64_t count, int ranks) {
  for (int part = 0;; ++part) {
    const std::int64_t length = count / ranks + (part < count % ranks ? 1 : 0);
    if (at < length) return part;
    at -= length;
  }
}

double unit_of(DType type) {
  switch (type) {
    case DType::f64: return 0x1p-52;
    case DType::f32: return 0x1p-23;
    case DType::f16: return 0x1p-10;
    default: return 0x1p-7;
  }
}

void ReduceForms::expect_means(DType type, int ranks, const std::vector<std::int64_t>& counts,
                               bool in_place) const {
  std::int64_t total = 0;
  for (const std::int64_t count : counts) total += count;
  std::vector<std::vector<Tensor>> results(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](World& world) {
    std::vector<Tensor> from, &to = results[static_cast<std::size_t>(world.rank())];
    std::vector<World::Piece> pieces;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      from.push_back(own_numbers(type, counts[i], world.rank(), i));
      to.push_back(in_place ? from.back() : Tensor(type, {counts[i]}));
      void* const place = to.back().mutable_data();
      pieces.push_back({in_place ? place : from.back().data(), place, counts[i]});
    }
    const auto bytes = static_cast<std::size_t>(World::mean_workspace_bytes(type, total, ranks));
    std::vector<char> workspace(bytes + 1, 77);
    const Status status = world.mean(type, pieces, workspace.data());
    EXPECT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(workspace.back(), 77) << "no more than the workspace of sums in order";
  });
  const bool small = total * static_cast<std::int64_t>(dtype_bytes(type)) <= World::kSmallBytes;
  const ReduceForm expected = form() == ReduceForm::ring && small ? ReduceForm::order : form();
  std::int64_t before = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::vector<Tensor> x;
    for (int rank = 0; rank < ranks; ++rank) x.push_back(own_numbers(type, counts[i], rank, i));
    for (const std::vector<Tensor>& of_rank : results)
      ASSERT_EQ(std::memcmp(of_rank[i].data(), results[0][i].data(), of_rank[i].bytes()), 0)
          << "the same on all ranks";
    for (std::int64_t k = 0; k < counts[i]; ++k) {
      std::vector<double> values;
      double sum = 0, size = 0;
      for (const Tensor& one : x) {
        values.push_back(one.at(k));
        sum += one.at(k) / ranks;
        size += std::fabs(one.at(k)) / ranks;
      }
      const double found = results[0][i].at(k);
      ASSERT_EQ(found, mean_of(expected, type, values, part_of_element(before + k, total, ranks)))
          << dtype_name(type) << " of " << ranks << " ranks, tensor " << i << " element " << k;
      ASSERT_NEAR(found, sum, unit_of(type) * ranks * size) << dtype_name(type);
    }
    before += counts[i];
  }
}

TEST_P(ReduceForms, MeansHaveTheBitsThatTheFormSays) {
  const std::vector<std::vector<std::int64_t>> all{{1}, {0, 3, 0}, {5, 4096, 1, 9001}, {2048, 2048}};
  for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const int ranks : {2, 3, 4, 5, 7, 8})
      for (const auto& counts : all) {
        expect_means(type, ranks, counts, ranks % 2 == 0);
        if (HasFatalFailure()) return;
      }
  expect_means(DType::f32, 4, {20000, 13}, false);
  expect_means(DType::bf16, 3, {20000, 13}, true);
}

// Groups of neighbours, and of those at the same place among them, at the same time; sums of groups stay in the order of the ranks.
TEST_P(ReduceForms, GroupsAddAsTheFormSays) {
  constexpr std::int64_t kFew = 50, kMany = 9001;
  for (const DType type : {DType::f32, DType::bf16})
    for (const std::int64_t n : {kFew, kMany})
      for (const RankGroup group : {RankGroup{2, 1}, RankGroup{4, 1}, RankGroup{4, 2}, RankGroup{2, 4}}) {
        SCOPED_TRACE(dtype_name(type) + std::string(" ") + std::to_string(group.ranks) + " " +
                     std::to_string(group.stride));
        std::vector<Tensor> means(8), sums(8);
        on_ranks(8, [&](World& world) {
          const auto at = static_cast<std::size_t>(world.rank());
          std::vector<char> workspace(
              static_cast<std::size_t>(World::mean_workspace_bytes(type, n, group.ranks)));
          means[at] = own_numbers(type, n, world.rank(), 3);
          sums[at] = own_numbers(type, n, world.rank(), 4);
          const World::Piece mean{means[at].data(), means[at].mutable_data(), n},
              sum{sums[at].data(), sums[at].mutable_data(), n};
          EXPECT_TRUE(world.mean(type, {&mean, 1}, workspace.data(), group).ok());
          EXPECT_TRUE(world.sum(type, {&sum, 1}, workspace.data(), group).ok());
          EXPECT_TRUE(world.leave(Status()).ok());
        });
        const bool small = n * static_cast<std::int64_t>(dtype_bytes(type)) <= World::kSmallBytes;
        const ReduceForm expected = form() == ReduceForm::ring && small ? ReduceForm::order : form();
        for (int rank = 0; rank < 8; ++rank) {
          const int block = group.ranks * group.stride, first = rank / block * block + rank % group.stride;
          std::vector<Tensor> x, y;
          for (int i = 0; i < group.ranks; ++i) {
            x.push_back(own_numbers(type, n, first + i * group.stride, 3));
            y.push_back(own_numbers(type, n, first + i * group.stride, 4));
          }
          for (std::int64_t k = 0; k < n; ++k) {
            std::vector<double> values;
            double sum = 0;
            for (int i = 0; i < group.ranks; ++i) {
              values.push_back(x[static_cast<std::size_t>(i)].at(k));
              sum = rounded_to(wide(type), sum + y[static_cast<std::size_t>(i)].at(k));
            }
            ASSERT_EQ(means[static_cast<std::size_t>(rank)].at(k),
                      mean_of(expected, type, values, part_of_element(k, n, group.ranks)))
                << "rank " << rank << " element " << k;
            ASSERT_EQ(sums[static_cast<std::size_t>(rank)].at(k), rounded_to(type, sum)) << rank << " " << k;
          }
        }
      }
}

TEST_P(ReduceForms, ThreeRunsHaveTheSameBitsInTheBackgroundToo) {
  constexpr std::int64_t n = 30001;
  constexpr int kRanks = 3;
  std::vector<std::vector<float>> of_run;
  for (int run = 0; run < 3; ++run) {
    std::vector<Tensor> x(kRanks);
    on_ranks(kRanks, [&](World& world) {
      Tensor& own = x[static_cast<std::size_t>(world.rank())];
      own = own_numbers(DType::f32, n, world.rank(), 7);
      std::vector<float> workspace(2 * n);
      const World::Piece piece{own.data(), own.mutable_data(), n};
      if (run == 0) {
        EXPECT_TRUE(world.mean(DType::f32, {&piece, 1}, workspace.data()).ok());
      } else {
        world.begin_mean(DType::f32, {piece}, workspace.data());
        EXPECT_TRUE(world.wait_for(workspace.data()).ok());
      }
    });
    for (const Tensor& own : x) of_run.emplace_back(own.as<float>(), own.as<float>() + n);
  }
  for (const std::vector<float>& one : of_run)
    EXPECT_EQ(std::memcmp(one.data(), of_run[0].data(), n * sizeof(float)), 0);
}

// At its owner alone; a ring's are added in the order of the ranks there.
void ReduceForms::expect_reduced(DType type, int ranks, const std::vector<std::int64_t>& counts,
                                 const std::vector<int>& owners) const {
  std::vector<Tensor> results(counts.size());
  on_ranks(ranks, [&](World& world) {
    std::vector<Tensor> from;
    std::vector<World::Piece> pieces;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      from.push_back(own_numbers(type, counts[i], world.rank(), i));
      const bool own = owners[i] == world.rank();
      if (own) results[i] = Tensor(type, {counts[i]});
      pieces.push_back({from.back().data(), own ? results[i].mutable_data() : nullptr, counts[i]});
    }
    std::vector<char> workspace(
        static_cast<std::size_t>(World::reduce_workspace_bytes(type, counts, owners, world.rank(), ranks)));
    EXPECT_TRUE(world.reduce(type, pieces, owners, workspace.data()).ok());
  });
  const ReduceForm expected = form() == ReduceForm::ring ? ReduceForm::order : form();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    std::vector<Tensor> x;
    for (int rank = 0; rank < ranks; ++rank) x.push_back(own_numbers(type, counts[i], rank, i));
    for (std::int64_t k = 0; k < counts[i]; ++k) {
      std::vector<double> values;
      for (const Tensor& one : x) values.push_back(one.at(k));
      ASSERT_EQ(results[i].at(k), mean_of(expected, type, values, 0)) << dtype_name(type) << " " << i;
    }
  }
}

TEST_P(ReduceForms, GradientsAtTheirOwnersHaveTheSameBits) {
  for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const int ranks : {2, 3, 4, 5}) {
      expect_reduced(type, ranks, {5, 9000, 1, 2001}, {1, 0, 0, ranks - 1});
      if (HasFatalFailure()) return;
    }
}

TEST_P(ReduceForms, SendTheirShareOfTheBytes) {
  constexpr std::int64_t n = 24000;  // a multiple of all parts
  for (const int ranks : {2, 4, 8})
    on_ranks(ranks, [&](World& world) {
      std::vector<float> x(n, 1.0f), workspace(n);
      const World::Piece piece{x.data(), x.data(), n};
      const std::int64_t before = world.sent_bytes();
      EXPECT_TRUE(world.mean(DType::f32, {&piece, 1}, workspace.data()).ok());
      EXPECT_EQ(world.sent_bytes() - before, 2 * 4 * n * (ranks - 1) / ranks);
    });
}

// In the order of the ranks all wait for all at once: Worlds.ASilentRankIsNamed.
class RelayedForms : public ReduceForms {};
INSTANTIATE_TEST_SUITE_P(Over, RelayedForms, testing::ValuesIn(kRelayed), name_of);

TEST_P(RelayedForms, TheSilentRankIsNamedAndNotOneThatWaitsForIt) {
  constexpr int kSilent = 2;
  std::latch given_up(4);
  on_ranks(5, [&](World& world) {
    world.set_limit(std::chrono::seconds(3));
    if (world.rank() == kSilent) {
      given_up.wait();
      (void)world.leave({});
      return;
    }
    std::vector<float> x(100000), workspace(100000);
    const World::Piece piece{x.data(), x.data(), 100000};
    const Status waited = world.mean(DType::f32, {&piece, 1}, workspace.data());
    given_up.count_down();
    const Status end = world.leave(waited);
    for (const Status& told : {waited, end}) {
      ASSERT_FALSE(told.ok());
      EXPECT_EQ(told.error().message.rfind("rank 2 said nothing for 3", 0), 0u) << told.error().message;
    }
  });
}

TEST_P(ReduceForms, ARankThatFailsIsHeardByAll) {
  on_ranks(4, [](World& world) {
    Status own = Error{Errc::bad_input, "its batch cannot be read"};
    if (world.rank() != 1) {
      std::vector<float> x(100000), workspace(100000);
      const World::Piece piece{x.data(), x.data(), 100000};
      own = world.mean(DType::f32, {&piece, 1}, workspace.data());
      ASSERT_FALSE(own.ok());
      EXPECT_EQ(own.error().message, "rank 1: its batch cannot be read");
    }
    EXPECT_EQ(world.leave(own).error().message, "rank 1: its batch cannot be read");
  });
}

}  // namespace
}  // namespace gradloom
