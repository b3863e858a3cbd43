#include "app/measured_costs.h"

#include <algorithm>
#include <map>

#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/device/device.h"
#include "kernels/threads.h"
#include "profiler/environment.h"
#include "sessions/run_environment.h"
#include "sessions/store.h"

namespace gradloom {
namespace {

// What a run must have been for its times to be those of the job.
struct Wanted {
  std::string threads;
  std::string hardware;  // hardware_text, of a GPU with its name
};

Wanted wanted(const Recipe& recipe) {
  const int threads = recipe.threads > 0 ? static_cast<int>(recipe.threads) : kernels::threads();
  return {std::to_string(threads), hardware_text_here(recipe.device, threads)};
}

bool same_job(const Recipe& recipe, const RunSummary& run) {
  return run.model_hash == recipe.model_hash && run.device == recipe.device &&
         run.precision == recipe.precision;
}

// The run that the user named is what it must be.
Status check_named_run(const Recipe& recipe, const RunRecord& run, const std::string& called) {
  const auto refuse = [&](const std::string& why) {
    return Error{Errc::usage, "--costs: " + escaped(called) + " " + why};
  };
  if (run.summary.model_hash != recipe.model_hash) return refuse("is a run of another model");
  const std::string threads = wanted(recipe).threads;
  for (const auto& [what, has, needs] : {std::tuple("device", run.summary.device, recipe.device),
                                         std::tuple("precision", run.summary.precision, recipe.precision),
                                         std::tuple("threads", environment_row(run, "threads"), threads)})
    if (has != needs)
      return refuse("was measured with " + std::string(what) + " " + escaped(has) + ", the job has " +
                    escaped(needs));
  if (!run.has_times()) return refuse("has no times of kernels (--profile sampled or all takes them)");
  return {};
}

Result<RunRecord> newest_run(const Recipe& recipe, Store& store) {
  std::vector<RunSummary> runs = TRY(store.list_runs());
  std::sort(runs.begin(), runs.end(), [](const RunSummary& a, const RunSummary& b) { return a.id > b.id; });
  const std::string hardware = wanted(recipe).hardware;
  for (const RunSummary& summary : runs) {
    if (!same_job(recipe, summary)) continue;
    auto run = store.load_run(summary.id);
    if (run && environment_row(*run, "hardware") == hardware && run->has_times()) return run;
  }
  return Error{Errc::usage, "--costs: no run of " + escaped(store.path()) +
                                " has times of kernels of this model on " + escaped(recipe.device) + " in " +
                                escaped(recipe.precision) + " on this hardware (" + escaped(hardware) + ")"};
}

}  // namespace

Status read_costs(Recipe& recipe) {
  if (recipe.costs.empty() || !recipe.kernel_times.empty()) return {};
  const CostsRun named = costs_run(recipe.costs);
  const auto store = TRY(Store::open(named.session, StoreMode::read));
  RunRecord run;
  if (named.run.empty()) {
    run = TRY(newest_run(recipe, *store));
  } else {
    run = TRY(store->load_run(TRY(store->find_run(named.run))));
    TRY(check_named_run(recipe, run, recipe.costs));
  }
  std::vector<KernelInfo> kernels;
  std::vector<double> median_ns;
  for (const KernelRow& kernel : run.kernels) {
    kernels.push_back(kernel.info);
    median_ns.push_back(kernel.samples > 0 ? std::max(1.0, static_cast<double>(kernel.median_ns)) : 0);
  }
  CostModel model;
  model.add(kernels, median_ns);
  recipe.kernel_times = model.times();
  if (recipe.kernel_times.size() > kMostKernelTimes) {  // the short ones matter least
    std::stable_sort(recipe.kernel_times.begin(), recipe.kernel_times.end(),
                     [](const KernelTime& a, const KernelTime& b) { return a.ns > b.ns; });
    recipe.kernel_times.resize(kMostKernelTimes);
  }
  recipe.costs = named.session + "#" + std::to_string(run.summary.id);
  return {};
}

CostsMachine costs_machine(const Recipe& recipe) {
  CostsMachine machine;
  const CostsRun named = costs_run(recipe.costs);
  if (named.session.empty() || named.run.empty()) return machine;
  const auto number = [](const std::map<std::string, std::string>& rows, const char* name) {
    const auto at = rows.find(name);
    return at == rows.end() ? std::nullopt : parse_number<std::int64_t>(at->second);
  };
  const auto find = [&]() -> Status {
    const auto store = TRY(Store::open(named.session, StoreMode::read));
    const auto rows = TRY(store->environment(TRY(store->find_run(named.run))));
    machine.cores = std::max<std::int64_t>(number(rows, "usable_cores").value_or(0), 0);
    machine.threads = std::max<std::int64_t>(number(rows, "threads").value_or(1), 1);
    if (const auto at = rows.find("hardware"); at != rows.end()) machine.hardware = at->second;
    return {};
  };
  (void)find();  // a replay has the times, but maybe not the session
  return machine;
}

std::string MeasuredCosts::text() const {
  return std::to_string(measured) + " of " + plural_text(static_cast<std::int64_t>(kernels), "kernel") +
         " as " + escaped(from) + " measured them" + (measured < kernels ? ", the others by those" : "");
}

Json MeasuredCosts::json() const {
  return {{"from", from}, {"measured_kernels", measured}, {"kernels", kernels}};
}

std::optional<MeasuredCosts> measured_costs(const Recipe& recipe, const Compiled& compiled) {
  if (recipe.kernel_times.empty()) return std::nullopt;
  const CostModel model(recipe.kernel_times);
  MeasuredCosts costs{recipe.costs};
  for (const KernelInfo& kernel : kernel_infos(compiled.train.graph, compiled.plan)) {
    costs.measured += model.knows(kernel) ? 1 : 0;
    ++costs.kernels;
  }
  return costs;
}

std::vector<double> known_kernel_times(const CompileOptions& options, const Graph& graph, const Plan& plan) {
  return options.kernel_ns ? options.kernel_ns(graph, plan) : std::vector<double>();
}

}  // namespace gradloom
