#include "app/tune_space.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "app/recipe_flags.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "kernels/cpu.h"
#include "profiler/environment.h"

namespace gradloom {
namespace {

constexpr TuneAxisName kAxes[] = {
    {"passes", TuneAxis::passes, "each pass off, each alone, and together what is faster"},
    {"instances", TuneAxis::instances, "passes off at places where they do not pay"},
    {"threads", TuneAxis::threads, "other numbers of threads, on the CPU"},
    {"precision", TuneAxis::precision, "f32 and bf16: results change by more than rounding"},
    {"accumulate", TuneAxis::accumulate, "the batch cut into micro-batches: less memory"},
    {"batch", TuneAxis::batch, "other batches, compared by the sample: another training"},
    {"budget", TuneAxis::budget, "memory budgets where recompute is cheapest"},
    {"algorithms", TuneAxis::algorithms, "how many algorithms of a GPU's library are tried"}};
// Budgets are proposed at these parts of the peak without one, and at the least that recompute reaches.
constexpr double kPeakParts[] = {0.9, 0.8, 0.7, 0.6, 0.5};

// Every launch of an optimizer step: kernels of a micro-batch as often as there are micro-batches.
std::vector<KernelInfo> launches(const Compiled& compiled, std::int64_t accumulate) {
  std::vector<KernelInfo> kernels = kernel_infos(compiled.train.graph, compiled.plan), all;
  for (std::size_t i = 0; i < kernels.size(); ++i)
    for (std::int64_t k = 0; k < (compiled.plan.steps[i].micro ? accumulate : 1); ++k)
      all.push_back(kernels[i]);
  return all;
}

std::string work_of(const Candidate& candidate) {
  std::string text = std::to_string(kernels::threads()) + " " + std::to_string(candidate.peak_bytes);
  if (candidate.recipe.device != "cpu") text += " " + std::to_string(candidate.recipe.search);
  for (const KernelInfo& k : candidate.kernels)
    text += "\n" + k.kernel + " " + std::to_string(k.flops) + " " + std::to_string(k.bytes_read) + " " +
            std::to_string(k.bytes_written);
  return hash_hex(text);
}

double samples_of(const Recipe& recipe) {
  const auto batch = recipe.dims.find("batch");
  return static_cast<double>((batch == recipe.dims.end() ? 1 : batch->second) * recipe.accumulate);
}

void add(std::vector<Candidate>& all, std::optional<Candidate> candidate) {
  if (candidate) all.push_back(std::move(*candidate));
}

}  // namespace

std::vector<std::int64_t> thread_counts(std::int64_t usable, std::int64_t physical) {
  constexpr std::int64_t kEach = 8, kMost = 1024;  // up to so many processors; that a job may take
  usable = std::min(usable, kMost);
  if (usable < 1) return {};
  std::set<std::int64_t> counts{usable};
  for (std::int64_t n = 1; usable <= kEach && n < usable; ++n) counts.insert(n);
  for (std::int64_t power = 1; power <= usable; power *= 2) {
    counts.insert(power);
    if (power >= 2 && power / 2 * 3 <= usable) counts.insert(power / 2 * 3);  // 3/4 of the next one
  }
  if (physical > 0 && physical <= usable) counts.insert(physical);
  return {counts.begin(), counts.end()};
}

std::string role_of(const std::string& site) {
  std::string role;
  for (const char c : site) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit)
      role += c;
    else if (role.empty() || role.back() != '#')
      role += '#';
  }
  return role;
}

Candidate candidate_of(const Prepared& prepared, const Recipe& recipe, const std::string& changes) {
  Candidate c;
  c.changes = changes;
  c.recipe = recipe;
  c.recipe.costs = prepared.recipe.costs;  // read once; what a trial keeps needs no session
  c.recipe.kernel_times = prepared.recipe.kernel_times;
  c.label = changes;
  c.plan_hash = prepared.compiled.plan.hash;
  c.kernels = launches(prepared.compiled, recipe.accumulate);
  c.peak_bytes = prepared.compiled.plan.peak_bytes();
  c.reports = prepared.compiled.reports;
  c.work = work_of(c);
  return c;
}

Result<Candidate> changed_job(const Recipe& job, const std::string& changes, std::stop_token stop) {
  Recipe recipe = job;
  TRY(RecipeFlags::override_with(recipe, changes));
  Candidate candidate = candidate_of(*TRY(prepare(recipe, std::move(stop))), recipe, changes);
  candidate.samples = samples_of(recipe) / samples_of(job);
  return candidate;
}

Result<std::string> pipeline_change(const Recipe& job, const Pipeline& pipeline) {
  return "passes=" + pipeline_flag(pipeline, TRY(recipe_rules(job)));
}

std::span<const TuneAxisName> tune_axes() { return kAxes; }

Result<std::set<TuneAxis>> parse_tune_axes(const std::string& text) {
  std::set<TuneAxis> axes;
  std::vector<std::string> names;
  for (const TuneAxisName& axis : kAxes) names.emplace_back(axis.name);
  for (const std::string& part : split_top_level(text)) {
    const auto at = std::find(names.begin(), names.end(), part);
    if (at == names.end()) return Error{Errc::usage, unknown_name("part of the search", part, names)};
    axes.insert(kAxes[at - names.begin()].axis);
  }
  return axes;
}

Result<TuneSpace> TuneSpace::of(const Recipe& job, std::set<TuneAxis> axes, std::stop_token stop) {
  TuneSpace space;
  space.axes_ = std::move(axes);
  space.stop_ = std::move(stop);
  space.job_ = TRY(changed_job(job, "", space.stop_));
  space.works_[space.job_.work] = "";
  return space;
}

Result<std::optional<Candidate>> TuneSpace::changed(const std::string& changes) {
  Recipe recipe = job_.recipe;
  TRY(RecipeFlags::override_with(recipe, changes));
  twin_.reset();
  auto candidate = changed_job(job_.recipe, changes, stop_);
  if (!candidate && candidate.error().code == Errc::interrupted) return candidate.error();
  if (!candidate) return std::optional<Candidate>();
  const auto [there, fresh] = works_.emplace(candidate->work, changes);
  if (!fresh) {
    twin_ = there->second;
    return std::optional<Candidate>();
  }
  return std::optional<Candidate>(std::move(candidate).value());
}

Result<std::optional<Candidate>> TuneSpace::with_pipeline(const Pipeline& pipeline, const std::string& also) {
  return changed(TRY(pipeline_change(job_.recipe, pipeline)) + (also.empty() ? "" : ";" + also));
}

Result<std::optional<Candidate>> TuneSpace::with_passes(const std::set<std::string>& off,
                                                        const std::string& also) {
  Pipeline pipeline = TRY(recipe_pipeline(job_.recipe));
  std::erase_if(pipeline.passes, [&](const PassConfig& p) { return off.count(p.def->name) != 0; });
  return with_pipeline(pipeline, also);
}

Result<std::optional<Candidate>> TuneSpace::with_only(const std::set<std::string>& passes,
                                                      const std::string& also) {
  Pipeline pipeline = default_pipeline(TRY(recipe_rules(job_.recipe)));
  std::erase_if(pipeline.passes, [&](const PassConfig& p) { return passes.count(p.def->name) == 0; });
  return with_pipeline(pipeline, also);
}

Status TuneSpace::add_without(Candidates& all) {
  add(all, TRY(with_only({})));
  const Pipeline own = TRY(recipe_pipeline(job_.recipe));
  for (const PassConfig& pass : own.passes) {
    if (pass.def->by_precision) continue;
    auto candidate = TRY(with_passes({pass.def->name}));
    if (candidate) candidate->without = pass.def->name;
    note(without_, pass.def->name, candidate);
    add(all, std::move(candidate));
  }
  return {};
}

Status TuneSpace::add_alone(Candidates& all) {
  const Pipeline usual = default_pipeline(TRY(recipe_rules(job_.recipe)));
  add(all, TRY(with_pipeline(usual)));
  for (const PassConfig& pass : usual.passes) {
    auto candidate = TRY(with_only({pass.def->name}));
    if (candidate) candidate->alone = pass.def->name;
    note(alone_, pass.def->name, candidate);
    add(all, std::move(candidate));
  }
  return {};
}

void TuneSpace::note(std::map<std::string, std::string>& by_pass, const std::string& pass,
                     const std::optional<Candidate>& candidate) const {
  if (candidate)
    by_pass[pass] = candidate->changes;
  else if (twin_)
    by_pass[pass] = *twin_;
}

// Other batches, and the job's cut into micro-batches.
Status TuneSpace::add_sizes(Candidates& all) {
  const auto batch = job_.recipe.dims.find("batch");
  if (batch == job_.recipe.dims.end()) return {};
  const auto sized = [&](std::int64_t n, std::int64_t accumulate) {
    return "dim=batch=" + std::to_string(n) + ";accumulate=" + std::to_string(accumulate);
  };
  const std::int64_t n = batch->second, k = job_.recipe.accumulate;
  for (const std::int64_t factor : {2, 4})
    if (axes_.count(TuneAxis::accumulate) && n % factor == 0)
      add(all, TRY(changed(sized(n / factor, k * factor))));
  if (!axes_.count(TuneAxis::batch)) return {};
  for (const std::int64_t other : {n / 2, n * 2, n * 4})
    if (other > 0) add(all, TRY(changed("dim=batch=" + std::to_string(other))));
  return {};
}

// Where the memory curve is cheapest at parts of the peak, its end, and no budget.
Status TuneSpace::add_budgets(Candidates& all) {
  Recipe plain = job_.recipe;
  plain.memory_budget.clear();
  const auto prepared = TRY(prepare(plain, stop_));
  const auto curve = TRY(memory_curve(prepared->compiled, prepared->options, stop_));
  const auto peak = static_cast<double>(prepared->compiled.plan.peak_bytes());
  if (!job_.recipe.memory_budget.empty()) add(all, TRY(changed("memory-budget=")));
  std::set<std::int64_t> budgets;
  for (const double part : kPeakParts)
    for (const RecomputeChoice& choice : curve)  // the cheapest first
      if (static_cast<double>(choice.peak_bytes) <= part * peak) {
        budgets.insert(choice.peak_bytes);
        break;
      }
  if (curve.size() > 1) budgets.insert(curve.back().peak_bytes);
  for (auto budget = budgets.rbegin(); budget != budgets.rend(); ++budget) {
    auto candidate = TRY(changed("memory-budget=" + std::to_string(*budget)));
    if (candidate)
      candidate->label = "memory-budget=" + bytes_text(static_cast<double>(*budget)) + " (" +
                         std::to_string(std::lround(100 * static_cast<double>(*budget) / peak)) +
                         " % of the peak)";
    add(all, std::move(candidate));
  }
  return {};
}

Result<std::vector<Candidate>> TuneSpace::single_changes() {
  Candidates all;
  if (axes_.count(TuneAxis::passes) || axes_.count(TuneAxis::without)) TRY(add_without(all));
  if (axes_.count(TuneAxis::passes)) TRY(add_alone(all));
  if (axes_.count(TuneAxis::threads) && job_.recipe.device == "cpu") {
    const Environment here = read_environment();
    for (const std::int64_t threads : thread_counts(here.usable_cores, here.physical_cores))
      add(all, TRY(changed("threads=" + std::to_string(threads))));
  }
  if (axes_.count(TuneAxis::precision))
    for (const char* precision : {"f32", "bf16"})
      if (job_.recipe.precision != precision) add(all, TRY(changed(std::string("precision=") + precision)));
  TRY(add_sizes(all));
  if (axes_.count(TuneAxis::budget)) TRY(add_budgets(all));
  if (axes_.count(TuneAxis::algorithms) && job_.recipe.device != "cpu")
    for (const char* search : {"search=0", "search=8", "search=32"}) add(all, TRY(changed(search)));
  return all;
}

Result<std::vector<Candidate>> TuneSpace::without_instances() {
  std::vector<Candidate> all;
  if (!axes_.count(TuneAxis::instances)) return all;
  const Pipeline own = TRY(recipe_pipeline(job_.recipe));
  for (const PassConfig& pass : own.passes) {
    std::map<std::string, std::set<std::string>> roles;
    for (const PassReport& report : job_.reports)
      if (report.name == pass.def->name)
        for (const RewriteRecord& record : report.log)
          if (record.matched) roles[role_of(record.site)].insert(record.site);
    if (roles.size() < 2) continue;  // the pass itself
    for (const auto& [role, sites] : roles) {
      Pipeline pipeline = own;
      for (PassConfig& p : pipeline.passes)
        if (p.def == pass.def) p.sites.except.insert(sites.begin(), sites.end());
      auto candidate = TRY(with_pipeline(pipeline));
      if (!candidate) continue;
      candidate->label = std::string(pass.def->name) + " off at " + role +
                         (sites.size() > 1 ? " (" + std::to_string(sites.size()) + " sites)" : "");
      all.push_back(std::move(*candidate));
    }
  }
  return all;
}

}  // namespace gradloom
