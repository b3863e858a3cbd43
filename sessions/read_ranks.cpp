// Reading what the ranks of a run of several did.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/base/text.h"
#include "engine/ops/collectives/exchange_rows.h"
#include "sessions/store.h"
#include "sessions/store_impl.h"

namespace gradloom {
namespace {

constexpr std::size_t kMostRanks = 65'536;

// What a rank did in one step.
struct StepSums {
  double kernels_ns = 0, exposed_ns = 0, exchange_ns = 0, wait_ns = 0, sent_bytes = 0;
  using Span = std::pair<std::int64_t, std::int64_t>;
  std::vector<Span> computing{}, exchanging{};  // from .. to, of kernels

  // Kernels that exchange expose what no other kernel of the rank computes beside them.
  void find_exposed() {
    std::sort(computing.begin(), computing.end());
    std::vector<Span> busy;
    for (const Span& span : computing)
      if (busy.empty() || span.first > busy.back().second)
        busy.push_back(span);
      else
        busy.back().second = std::max(busy.back().second, span.second);
    for (const auto& [from, to] : exchanging) {
      std::int64_t left = to - from;
      auto at = std::upper_bound(busy.begin(), busy.end(), Span(from, from));
      if (at != busy.begin()) --at;
      for (; at != busy.end() && at->first < to; ++at)
        left -= std::max<std::int64_t>(0, std::min(to, at->second) - std::max(from, at->first));
      exposed_ns += static_cast<double>(left);
    }
    computing = exchanging = {};
  }
};

}  // namespace

Status Store::Impl::read_ranks(std::int64_t run, std::vector<RankRow>& ranks) {
  if (TRY(version()) < 8) return {};
  Statement row = TRY(
      database.prepare("SELECT rank, host, local_rank, threads, cpu_model, clock_offset_ns, clock_error_ns "
                       "FROM rank WHERE run = ? ORDER BY rank"));
  row.bind(1, run);
  while (TRY(row.row())) {
    if (row.integer(0) != static_cast<std::int64_t>(ranks.size())) return misnumbered(run, "rank");
    if (ranks.size() >= kMostRanks)
      return Error{Errc::limit, fmt::format("run {} has more than {} ranks", run, kMostRanks)};
    ranks.push_back({row.integer(0), row.text(1), row.integer(2), row.integer(3), row.text(4),
                     clock_ns(row, 5), clock_ns(row, 6)});
  }
  return {};
}

Status Store::Impl::read_rank_environments(std::int64_t run, std::vector<RankRow>& ranks) {
  if (TRY(version()) < 11) return {};
  Statement row =
      TRY(database.prepare("SELECT rank, name, value FROM rank_environment WHERE run = ? ORDER BY rowid"));
  row.bind(1, run);
  while (TRY(row.row())) {
    const std::int64_t rank = row.integer(0);
    if (rank < 1 || rank >= std::ssize(ranks))
      return Error{Errc::bad_input, fmt::format("run {} is damaged (environment of rank {})", run, rank)};
    ranks[static_cast<std::size_t>(rank)].environment[row.text(1)] = row.text(2);
  }
  return {};
}

Result<std::vector<bool>> Store::Impl::read_exchange_steps(std::int64_t run,
                                                           const std::vector<KernelRow>& kernels) {
  std::vector<bool> stands(kernels.size(), false);
  bool told = false;
  if (TRY(version()) >= 11) {
    Statement row = TRY(database.prepare("SELECT plan_step FROM exchange_step WHERE run = ?"));
    row.bind(1, run);
    while (TRY(row.row())) {
      const auto step = static_cast<std::size_t>(row.integer(0));
      if (step >= stands.size())
        return Error{Errc::bad_input, fmt::format("run {} is damaged (table exchange_step)", run)};
      stands[step] = told = true;
    }
  }
  // What runs of versions 8 to 10 have instead.
  for (std::size_t i = 0; i < kernels.size() && !told; ++i) stands[i] = stands_still(kernels[i].info.op);
  return stands;
}

Status Store::Impl::read_rank_samples(
    std::int64_t run, std::size_t ranks,
    const std::function<void(std::int64_t step, std::int64_t rank, const KernelSample&)>& take) {
  Statement row =
      TRY(database.prepare("SELECT rank, step, micro, plan_step, start_ns, duration_ns FROM rank_sample "
                           "WHERE run = ? ORDER BY rowid"));
  row.bind(1, run);
  while (TRY(row.row())) {
    const std::int64_t rank = row.integer(0);
    if (rank < 1 || rank >= static_cast<std::int64_t>(ranks))
      return Error{Errc::bad_input, fmt::format("run {} is damaged (kernels of rank {})", run, rank)};
    take(row.integer(1), rank, {row.small(3), row.small(2), clock_ns(row, 4), row.size(5)});
  }
  return {};
}

Status Store::Impl::read_exchanges(std::int64_t run, std::size_t ranks,
                                   const std::function<void(std::int64_t step, const ExchangeRow&)>& take) {
  Statement row = TRY(database.prepare(
      "SELECT rank, step, micro, plan_step, start_ns, duration_ns, wait_ns, sent_bytes FROM exchange "
      "WHERE run = ? ORDER BY rowid"));
  row.bind(1, run);
  while (TRY(row.row())) {
    ExchangeRow e;
    e.rank = row.integer(0);
    if (e.rank < 0 || e.rank >= static_cast<std::int64_t>(ranks))
      return Error{Errc::bad_input, fmt::format("run {} is damaged (exchanges of rank {})", run, e.rank)};
    e.micro = row.small(2);
    e.plan_step = row.small(3);
    e.start_ns = clock_ns(row, 4);
    e.duration_ns = row.size(5);
    e.wait_ns = std::min(row.size(6), e.duration_ns);
    e.sent_bytes = row.size(7);
    take(row.integer(1), e);
  }
  return {};
}

Status Store::Impl::read_rank_shares(std::int64_t run, const std::vector<KernelRow>& kernels,
                                     std::vector<RankShares>& shares) {
  std::vector<RankRow> ranks;
  TRY(read_ranks(run, ranks));
  if (ranks.empty()) return {};
  TRY(read_rank_environments(run, ranks));
  const std::vector<bool> exchanges = TRY(read_exchange_steps(run, kernels));
  std::vector<std::map<std::int64_t, StepSums>> sums(ranks.size());  // by rank and step
  const auto add_kernel = [&](std::int64_t step, std::int64_t rank, const KernelSample& s) {
    if (s.plan_step < 0 || static_cast<std::size_t>(s.plan_step) >= kernels.size()) return;
    StepSums& to = sums[static_cast<std::size_t>(rank)][step];
    const bool stands_still = exchanges[static_cast<std::size_t>(s.plan_step)];
    if (!stands_still) to.kernels_ns += static_cast<double>(s.duration_ns);
    (stands_still ? to.exchanging : to.computing).emplace_back(s.start_ns, s.start_ns + s.duration_ns);
  };
  Statement row =
      TRY(database.prepare("SELECT step, plan_step, start_ns, duration_ns FROM kernel_sample WHERE run = ?"));
  row.bind(1, run);
  while (TRY(row.row())) add_kernel(row.integer(0), 0, {row.small(1), 0, clock_ns(row, 2), row.size(3)});
  TRY(read_rank_samples(run, ranks.size(), add_kernel));
  TRY(read_exchanges(run, ranks.size(), [&](std::int64_t step, const ExchangeRow& e) {
    StepSums& to = sums[static_cast<std::size_t>(e.rank)][step];
    to.exchange_ns += static_cast<double>(e.duration_ns);
    to.wait_ns += static_cast<double>(e.wait_ns);
    to.sent_bytes += static_cast<double>(e.sent_bytes);
  }));
  const std::int64_t warmup = TRY(last_warmup_step(run));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    std::map<std::int64_t, StepSums>& steps = sums[rank];
    for (auto& [_, of_step] : steps) of_step.find_exposed();
    if (!steps.empty() && steps.rbegin()->first > warmup)
      steps.erase(steps.begin(), steps.upper_bound(warmup));
    const auto middle = [&](double StepSums::*member) {
      std::vector<double> values;
      for (const auto& [step, of_step] : steps) values.push_back(of_step.*member);
      return median(std::move(values));
    };
    shares.push_back({std::move(ranks[rank]), static_cast<std::int64_t>(steps.size()),
                      middle(&StepSums::kernels_ns), middle(&StepSums::exchange_ns),
                      middle(&StepSums::wait_ns), middle(&StepSums::exposed_ns),
                      middle(&StepSums::sent_bytes)});
  }
  return {};
}

// After rank 0's: of the steps that the document shows.
Status Store::Impl::read_rank_steps(std::int64_t run, const std::vector<RankRow>& ranks,
                                    std::size_t max_executions, TraceDocument& document) {
  if (ranks.empty()) return {};
  const auto shown = [&](std::int64_t step) {
    return std::binary_search(document.steps.begin(), document.steps.end(), TraceStep{step, 0, 0},
                              [](const TraceStep& a, const TraceStep& b) { return a.step < b.step; });
  };
  std::size_t left_out = 0;
  TRY(read_rank_samples(run, ranks.size(), [&](std::int64_t step, std::int64_t rank, const KernelSample& s) {
    if (!shown(step)) return;
    if (document.rows.size() + document.other_ranks.size() >= max_executions) {
      ++left_out;
      return;
    }
    append_samples({s}, document.kernels, step, document.other_ranks, static_cast<std::int32_t>(rank));
  }));
  if (left_out > 0)
    return Error{Errc::limit,
                 fmt::format("run {}: its ranks have more than {} kernel executions", run, max_executions)};
  TRY(read_exchanges(run, ranks.size(), [&](std::int64_t step, const ExchangeRow& e) {
    if (shown(step) && document.exchanges.size() < max_executions)
      document.exchanges.push_back({static_cast<std::int32_t>(e.rank), e.plan_step, e.micro, step, e.start_ns,
                                    e.duration_ns, e.wait_ns, e.sent_bytes});
  }));
  for (const RankRow& rank : ranks) document.ranks.push_back({rank.host});
  return {};
}

}  // namespace gradloom
