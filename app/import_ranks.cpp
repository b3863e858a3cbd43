#include "app/import_ranks.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "sessions/stats.h"

namespace gradloom {
namespace {

constexpr std::int64_t kMostRanks = 65'536;
constexpr std::size_t kMostSamples = 4 * kMostImportExecutions;  // of all ranks

using KernelKey = std::tuple<std::string, std::string, std::string, std::string, std::string>;
KernelKey key_of(const ImportedKernel& k) {
  return {k.info.node, k.info.kernel, k.info.phase, k.info.scope, k.inputs};
}

std::string fact(const std::map<std::string, std::string>& facts, const char* name) {
  const auto at = facts.find(name);
  return at == facts.end() ? "" : at->second;
}

// Executions of each exchanging kernel of a step are counted in the order in which they begin.
void number_exchanges(const std::vector<ImportedKernel>& kernels, ImportedStep& step) {
  const auto by_start = [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; };
  std::stable_sort(step.samples.begin(), step.samples.end(), by_start);
  std::stable_sort(step.exchanges.begin(), step.exchanges.end(), by_start);
  std::map<std::int32_t, std::int32_t> made;
  for (KernelSample& s : step.samples)
    if (kernels[static_cast<std::size_t>(s.plan_step)].exchange) s.micro = made[s.plan_step]++;
}

class RankMerger {
 public:
  explicit RankMerger(std::vector<ImportedTrace>& traces) : traces_(traces), all_(merged_.trace) {
    all_ = std::move(traces_.front());
    for (std::size_t i = 0; i < all_.kernels.size(); ++i)
      kernels_.emplace(key_of(all_.kernels[i]), static_cast<std::int32_t>(i));
  }

  Result<ImportedRanks> merge() {
    TRY(keep_common_steps());
    for (std::size_t rank = 1; rank < traces_.size(); ++rank) take_kernels(traces_[rank]);
    for (ImportedStep& step : all_.steps) number_exchanges(all_.kernels, step);
    for (std::size_t rank = 1; rank < traces_.size(); ++rank)
      for (ImportedStep& step : traces_[rank].steps) number_exchanges(all_.kernels, step);
    merged_.steps.resize(all_.steps.size());
    for (std::size_t rank = 0; rank < traces_.size(); ++rank) TRY(add_rank(rank));
    for (RankStep& step : merged_.steps) set_waits(step.exchanges);
    tell();
    return std::move(merged_);
  }

 private:
  // Steps that a rank lacks go from all.
  Status keep_common_steps() {
    // Each step once and in the order of its number, as the ranks are put together.
    const auto numbered = [](const ImportedTrace& t) {
      const auto falls = [](const ImportedStep& a, const ImportedStep& b) { return b.number <= a.number; };
      return std::all_of(t.steps.begin(), t.steps.end(),
                         [](const ImportedStep& s) { return s.number >= 0; }) &&
             std::adjacent_find(t.steps.begin(), t.steps.end(), falls) == t.steps.end();
    };
    bool by_number = numbered(all_);
    for (std::size_t rank = 1; rank < traces_.size(); ++rank) by_number &= numbered(traces_[rank]);
    std::map<std::int64_t, std::size_t> ranks_with;
    for (std::size_t rank = 0; rank < traces_.size(); ++rank) {
      std::vector<ImportedStep>& steps = steps_of(rank);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        if (!by_number) steps[i].number = static_cast<std::int64_t>(i);
        ++ranks_with[steps[i].number];
      }
    }
    for (std::size_t rank = 0; rank < traces_.size(); ++rank) {
      const auto left_out = std::erase_if(
          steps_of(rank), [&](const ImportedStep& s) { return ranks_with[s.number] != traces_.size(); });
      if (rank == 0) left_out_ = static_cast<std::int64_t>(left_out);
    }
    if (all_.steps.empty()) return Error{Errc::bad_input, "no step is in the traces of all ranks"};
    return {};
  }

  std::vector<ImportedStep>& steps_of(std::size_t rank) {
    return rank == 0 ? all_.steps : traces_[rank].steps;
  }

  // The rank's kernels get the numbers of all.
  void take_kernels(ImportedTrace& own) {
    std::vector<std::int32_t> number;
    const auto operators = static_cast<std::uint32_t>(all_.operators.size());
    bool more = false;
    for (ImportedKernel& kernel : own.kernels) {
      const auto [at, fresh] =
          kernels_.try_emplace(key_of(kernel), static_cast<std::int32_t>(all_.kernels.size()));
      number.push_back(at->second);
      if (!fresh) continue;
      more = true;
      kernel.info.plan_step = at->second;
      for (std::uint32_t& source : kernel.info.sources) source += operators;
      all_.kernels.push_back(std::move(kernel));
    }
    if (more) all_.operators.insert(all_.operators.end(), own.operators.begin(), own.operators.end());
    for (ImportedStep& step : own.steps) {
      for (KernelSample& s : step.samples) s.plan_step = number[static_cast<std::size_t>(s.plan_step)];
      for (ImportedExchange& e : step.exchanges) e.plan_step = number[static_cast<std::size_t>(e.plan_step)];
    }
  }

  using ExchangeKey = std::tuple<std::size_t, std::int32_t, std::int32_t>;  // step, kernel, execution
  std::map<ExchangeKey, std::int64_t> ends_of(std::size_t rank) {
    std::map<ExchangeKey, std::int64_t> ends;
    const std::vector<ImportedStep>& steps = steps_of(rank);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      std::map<std::int32_t, std::int32_t> made;
      for (const ImportedExchange& e : steps[i].exchanges)
        ends[{i, e.plan_step, made[e.plan_step]++}] = e.start_ns + e.duration_ns;
    }
    return ends;
  }

  // How far the rank's clock is ahead of rank 0's, and by how much the exchanges disagree about it.
  std::pair<std::int64_t, std::int64_t> clock_of(std::size_t rank) {
    if (rank == 0) return {0, 0};
    if (first_ends_.empty()) first_ends_ = ends_of(0);
    std::vector<double> ahead;
    for (const auto& [key, end_ns] : ends_of(rank))
      if (const auto first = first_ends_.find(key); first != first_ends_.end())
        ahead.push_back(static_cast<double>(end_ns - first->second));
    if (ahead.empty()) {
      unaligned_ = true;
      return {steps_of(rank).front().start_ns - all_.steps.front().start_ns, 0};
    }
    const double middle = median(ahead);
    for (double& ns : ahead) ns = std::abs(ns - middle);
    return {static_cast<std::int64_t>(middle), static_cast<std::int64_t>(median(std::move(ahead)))};
  }

  Status add_rank(std::size_t rank) {
    const auto [ahead_ns, error_ns] = clock_of(rank);
    const auto number = static_cast<std::int64_t>(rank);
    const std::map<std::string, std::string>& facts =
        rank == 0 ? all_.environment : traces_[rank].environment;
    RankRow row;
    row.rank = number;
    row.host = fact(facts, "trace.host_name");
    if (row.host.empty()) row.host = "unknown";
    row.local_rank = hosts_[row.host]++;
    row.clock_error_ns = error_ns;
    if (rank > 0) row.environment = facts;
    merged_.ranks.push_back(std::move(row));
    for (std::size_t i = 0; i < merged_.steps.size(); ++i) {
      ImportedStep& step = steps_of(rank)[i];
      RankStep& to = merged_.steps[i];
      std::map<std::int32_t, std::int32_t> made;
      for (const ImportedExchange& e : step.exchanges)
        to.exchanges.push_back({number, made[e.plan_step]++, e.plan_step, e.start_ns - ahead_ns,
                                e.duration_ns, 0, e.sent_bytes});
      if (rank == 0) continue;
      if ((samples_ += step.samples.size()) > kMostSamples)
        return Error{Errc::limit,
                     "the ranks have more than " + std::to_string(kMostSamples) + " executions of kernels"};
      for (KernelSample s : step.samples) {
        s.start_ns -= ahead_ns;
        to.samples.emplace_back(number, s);
      }
      step = ImportedStep();
    }
    return {};
  }

  void tell() {
    if (left_out_ > 0)
      all_.notes.push_back(plural_text(left_out_, "step") + " that not all ranks have: left out");
    if (unaligned_)
      all_.notes.emplace_back(
          "the traces have no exchanges in common: the ranks' first step begins at one time");
    for (std::size_t rank = 1; rank < traces_.size(); ++rank)
      for (const std::string& note : traces_[rank].notes)
        if (std::find(all_.notes.begin(), all_.notes.end(), note) == all_.notes.end())
          all_.notes.push_back("rank " + std::to_string(rank) + ": " + note);
  }

  std::vector<ImportedTrace>& traces_;
  ImportedRanks merged_;
  ImportedTrace& all_;
  std::map<KernelKey, std::int32_t> kernels_;
  std::map<ExchangeKey, std::int64_t> first_ends_;
  std::map<std::string, std::int64_t> hosts_;
  std::int64_t left_out_ = 0;
  std::size_t samples_ = 0;
  bool unaligned_ = false;
};

}  // namespace

Result<ImportedRanks> merge_ranks(std::vector<ImportedTrace> traces) { return RankMerger(traces).merge(); }

TraceRankPlace rank_of_trace(const std::map<std::string, std::string>& facts) {
  const auto rank = parse_number<std::int64_t>(fact(facts, "trace.rank")),
             ranks = parse_number<std::int64_t>(fact(facts, "trace.world_size"));
  if (!rank || !ranks || *ranks < 2 || *ranks > kMostRanks || *rank < 0 || *rank >= *ranks) return {};
  return {*rank, *ranks};
}

}  // namespace gradloom
