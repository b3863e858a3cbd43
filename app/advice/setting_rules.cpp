// Settings that cost more than they need to: recompute, precision, threads, the size of what ranks exchange.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <optional>

#include "app/advice/subject.h"
#include "app/rank_scaling.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"

namespace gradloom::advice {
namespace {

// Of the memory: what a plan may take, where other programs want some too.
constexpr double kRoom = 0.8;

bool fits(const Subject& subject, std::int64_t peak_bytes) {
  return static_cast<double>(peak_bytes) <= kRoom * static_cast<double>(subject.machine().memory_bytes);
}

std::string memory_text(const Subject& subject, std::int64_t peak_bytes) {
  return bytes_text(static_cast<double>(peak_bytes)) + " of the machine's " +
         bytes_text(static_cast<double>(subject.machine().memory_bytes));
}

// Without recompute, offload and budget, where the plan then fits the machine.
Status find_needless(Subject& subject, Findings& found) {
  const Recipe& recipe = subject.recipe();
  std::string change, what;
  const auto drop = [&](const char* setting, bool used) {
    if (!used) return;
    change += (change.empty() ? "" : ";") + std::string(setting) + "=";
    what += (what.empty() ? "" : ", ") + std::string(setting);
  };
  drop("recompute", !recipe.recompute.empty());
  drop("memory-budget", !recipe.memory_budget.empty());
  drop("offload", !recipe.offload.empty());
  if (change.empty()) return {};
  const ChangedJob* const changed = TRY(subject.changed(change));
  if (changed == nullptr || !fits(subject, changed->candidate.peak_bytes)) return {};
  std::int64_t again = 0;
  double ns = 0;
  for (const NodeTime& time : subject.node_times())
    if (time.kernel->node.find("/again") != std::string::npos) {
      ++again;
      ns += time.ns;
    }
  Finding finding = subject.of_change(
      *changed, what + " saves memory that is there: " + plural_text(again, "node") + " run again");
  finding.numbers.push_back("they take " + subject.of_a_step(ns));
  finding.numbers.push_back("without it the plan takes " +
                            memory_text(subject, changed->candidate.peak_bytes));
  found.push_back(std::move(finding));
  return {};
}

// What a tenth of the peak costs, where the peak is near what there is.
Status find_cheap_memory(Subject& subject, Findings& found) {
  const std::int64_t peak = subject.job().peak_bytes;
  if (fits(subject, peak) || subject.machine().memory_bytes == 0) return {};
  constexpr double kCheap = 0.03, kWorth = 0.9;
  const Prepared& p = subject.prepared();
  for (const RecomputeChoice& choice : TRY(memory_curve(p.compiled, p.options))) {
    if (choice.cost > kCheap) break;
    if (static_cast<double>(choice.peak_bytes) > kWorth * static_cast<double>(peak)) continue;
    const ChangedJob* const changed =
        TRY(subject.changed("memory-budget=" + std::to_string(choice.peak_bytes)));
    if (changed == nullptr) continue;
    Finding finding = subject.of_change(
        *changed, "the plan takes " + memory_text(subject, peak) + ", and " +
                      plural_text(static_cast<std::int64_t>(choice.nodes.size()), "node") +
                      " that run again save " +
                      bytes_text(static_cast<double>(peak - changed->candidate.peak_bytes)));
    finding.numbers.push_back("for " + percent_text(choice.cost) + " more time");
    found.push_back(std::move(finding));
    return {};
  }
  return {};
}

double products_ns(const Subject& subject) {
  double ns = 0;
  for (const NodeTime& time : subject.node_times())
    if (is_product(*time.node)) ns += time.ns;
  return ns;
}

}  // namespace

Status find_recompute(Subject& subject, Findings& found) {
  TRY(find_needless(subject, found));
  return find_cheap_memory(subject, found);
}

Status find_precision(Subject& subject, Findings& found) {
  const std::string own = subject.recipe().precision;
  const bool low = own.rfind("bf16", 0) == 0 || own.rfind("f16", 0) == 0;
  const std::string other = own == "f64" || (low && !subject.machine().fast_bf16) ? "f32"
                            : own == "f32" && subject.machine().fast_bf16         ? "bf16"
                                                                                  : "";
  if (other.empty()) return {};
  const ChangedJob* const changed = TRY(subject.changed("precision=" + other));
  if (changed == nullptr) return {};
  const double products = products_ns(subject);
  const std::string why = own == "f64"     ? "f64 moves twice the bytes of f32"
                          : other == "f32" ? "this processor has no products in " + own
                                           : "this processor multiplies bf16";
  ChangedJob shown = *changed;
  // Products of a type that the processor lacks convert their operands first, which no size tells.
  if (!changed->timed && low) shown.gain = {0.3 * products, 0, 0.7 * products, 0};
  Finding finding = subject.of_change(shown, "precision " + own + ": " + why);
  finding.numbers.push_back("products and convolutions take " + subject.of_a_step(products));
  finding.remedy = "first prove that it trains: " + subject.proof(changed->candidate.changes);
  found.push_back(std::move(finding));
  return {};
}

namespace {

// Ranks share the machine's, all of them where none has more already.
std::int64_t processors_of_a_rank(const Subject& subject) {
  const std::int64_t cores = subject.machine().cores, ranks = subject.recipe().ranks;
  return ranks > 1 ? std::max(subject.threads(), cores / ranks) : cores;
}

}  // namespace

// Without steps on other numbers of threads: kernels long enough to be cut scale by a power of their number.
Status find_threads(Subject& subject, Findings& found) {
  if (subject.recipe().device != "cpu") return {};
  constexpr double kCutNs = 50'000, kUsual = 0.7, kLeast = 0.3;
  const std::int64_t own = subject.threads(), cores = processors_of_a_rank(subject);
  double cut_ns = 0;
  for (const KernelInfo& kernel : subject.job().kernels)
    if (const double ns = subject.predictor().ns(kernel); ns >= kCutNs) cut_ns += ns;
  std::set<std::int64_t> others{cores};
  for (std::int64_t n = 1; n < cores; n *= 2) others.insert(n);
  others.erase(own);
  const ChangedJob* best = nullptr;
  Gain best_gain;
  std::int64_t best_threads = 0;
  for (const std::int64_t n : others) {
    // Where there are more threads than processors, as many as these come first.
    if (own > cores && n < cores) continue;
    const ChangedJob* const changed = TRY(subject.changed("threads=" + std::to_string(n)));
    if (changed == nullptr) continue;
    Gain gain = changed->gain;
    if (!changed->timed) {
      const double times = static_cast<double>(n) / static_cast<double>(own);
      const auto saved = [&](double power) { return cut_ns * (1 - std::pow(times, -power)); };
      gain = {saved(kUsual), std::min(saved(kLeast), saved(1)), std::max(saved(kLeast), saved(1)), 0};
      // Fewer threads wake and wait less, which no kernel's time tells before it was tried.
      if (n < own) gain.high_ns = std::max(gain.high_ns, 0.15 * (subject.step_ns() - cut_ns));
      // More threads than processors wait for each other.
      if (n < own && own > cores) gain = {cut_ns / 4, 0, cut_ns / 2, 0};
    }
    if (best != nullptr && gain.ns <= best_gain.ns) continue;
    best = changed;
    best_gain = gain;
    best_threads = n;
  }
  if (best == nullptr) return {};
  ChangedJob shown = *best;
  shown.gain = best_gain;
  Finding finding =
      subject.of_change(shown, fmt::format("{} on {}{}: {} {} faster", plural_text(own, "thread"),
                                           plural_text(cores, "usable processor"),
                                           subject.recipe().ranks > 1 ? " for each rank" : "", best_threads,
                                           best_threads == 1 ? "is" : "are"));
  finding.numbers.push_back("kernels of more than " + duration_text(kCutNs) + " take " +
                            subject.of_a_step(cut_ns));
  found.push_back(std::move(finding));
  return {};
}

namespace {

// How long kernels wait for exchanges, on as many ranks as the job has. `cluster`: the first call finds it.
Result<ScalingRow> scaling_of(const Subject& subject, const std::string& changes,
                              std::optional<Cluster>& cluster) {
  const auto prepared = TRY(subject.prepared_with(changes));
  Prepared timed = *prepared;
  timed.options.kernel_ns = [&](const Graph& graph, const Plan& plan) {
    std::vector<double> ns;
    for (const KernelInfo& kernel : kernel_infos(graph, plan)) ns.push_back(subject.predictor().ns(kernel));
    return ns;
  };
  if (!cluster) cluster = cluster_of({}, timed, std::nullopt);
  for (const ScalingRow& row : predict_scaling(timed, *cluster).rows)
    if (row.ranks == subject.recipe().ranks) return row;
  return ScalingRow();
}

// What gradients are rounded to is not changed, nor where.
Result<std::string> with_buckets(const Subject& subject, int megabytes) {
  Pipeline pipeline = TRY(recipe_pipeline(subject.recipe()));
  const PassDef& def = *find_pass("data-parallel");
  PassConfig other = TRY(configure_pass(def, {{"bucket_mb", std::to_string(megabytes)}}));
  if (const PassConfig* const own = pipeline.find(def.name)) {
    auto options = other.options;
    std::copy_if(own->options.begin(), own->options.end(), std::back_inserter(options),
                 [](const auto& option) { return option.first == "dtype"; });
    other = TRY(configure_pass(def, std::move(options), own->sites));
  }
  std::erase_if(pipeline.passes, [&](const PassConfig& p) { return p.def == &def; });
  pipeline.passes.insert(place_of(pipeline, def, TRY(recipe_rules(subject.recipe()))), std::move(other));
  return pipeline_change(subject.recipe(), pipeline);
}

}  // namespace

Status find_ranks(Subject& subject, Findings& found) {
  if (subject.recipe().ranks < 2) return {};
  std::optional<Cluster> cluster;
  const ScalingRow own = TRY(scaling_of(subject, "", cluster));
  ScalingRow best = own;
  std::string best_change;
  int best_megabytes = 0;
  for (const int megabytes : {1, 2, 4, 8, 25, 100}) {
    const std::string change = TRY(with_buckets(subject, megabytes));
    const ScalingRow row = TRY(scaling_of(subject, change, cluster));
    if (row.step_ns >= 0.995 * best.step_ns) continue;
    best = row;
    best_change = change;
    best_megabytes = megabytes;
  }
  if (best_change.empty()) return {};
  const ChangedJob* const changed = TRY(subject.changed(best_change));
  if (changed == nullptr) return {};
  ChangedJob shown = *changed;
  const double most = 0.99 * subject.step_ns(), gain = std::min(own.step_ns - best.step_ns, most);
  shown.gain = {gain, gain / 2, std::min(1.5 * gain, most), 0};
  Finding finding = subject.of_change(
      shown, fmt::format("kernels wait {} of a step for exchanges of {}, with pieces of {} MB {}",
                         duration_text(own.exposed_ns), plural_text(subject.recipe().ranks, "rank"),
                         best_megabytes, duration_text(best.exposed_ns)));
  finding.numbers.push_back("exchanges take " + duration_text(own.exchange_ns) + " over a link of " +
                            number_text(cluster->local.bytes_per_ns) + " GB/s");
  finding.command = "gradloom plan " + subject.job_flags() + " " + train_flags(best_change);
  finding.ratio = finding.ratio_low = finding.ratio_high = 0;
  found.push_back(std::move(finding));
  return {};
}

// Of a run: what its first step took beyond the others, spread over all.
Status find_first_step(Subject& subject, Findings& found) {
  const RunRecord* const run = subject.run();
  if (run == nullptr || run->steps.size() < 5 || run->steps.front().step != 1) return {};
  const auto usual = static_cast<double>(run->summary.median_step_ns);
  const double more = static_cast<double>(run->steps.front().step_ns) - usual;
  const auto steps = static_cast<double>(run->steps.size());
  const double part = more / (more + usual * steps);  // of the run
  if (usual <= 0 || more <= 0 || !subject.matters(part * usual)) return {};
  constexpr double kLittle = 0.01;
  const double even = std::ceil(more / (kLittle * usual));
  Finding finding;
  finding.title =
      fmt::format("the first of {} takes {}, the others {}", plural_text(run->steps.size(), "step"),
                  duration_text(usual + more), duration_text(usual));
  finding.gain = {part * usual, part * usual, part * usual, 1};
  finding.once = true;
  finding.numbers.push_back("that is " + percent_text(part) + " of the run, and paid once");
  finding.change = fmt::format("steps={:.0f}", std::max(even, steps));
  finding.remedy =
      fmt::format("from {:.0f} steps on it is less than {} of the run", even, percent_text(kLittle));
  finding.command = "gradloom train " + subject.job_flags() + " " + train_flags(finding.change);
  found.push_back(std::move(finding));
  return {};
}

}  // namespace gradloom::advice
