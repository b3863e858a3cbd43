#include "app/tune_space.h"

#include <algorithm>
#include <map>

#include "app/recipe_flags.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "kernels/cpu.h"
#include "profiler/environment.h"

namespace gradloom {
namespace {

constexpr std::pair<const char*, TuneAxis> kAxes[] = {{"passes", TuneAxis::passes},
                                                      {"instances", TuneAxis::instances},
                                                      {"threads", TuneAxis::threads},
                                                      {"precision", TuneAxis::precision},
                                                      {"accumulate", TuneAxis::accumulate}};

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
  for (const KernelInfo& k : candidate.kernels)
    text += "\n" + k.kernel + " " + std::to_string(k.flops) + " " + std::to_string(k.bytes_read) + " " +
            std::to_string(k.bytes_written);
  return hash_hex(text);
}

Result<Candidate> compile_candidate(const Recipe& recipe, const std::string& changes, std::stop_token stop) {
  const auto prepared = TRY(prepare(recipe, std::move(stop)));
  Candidate c;
  c.changes = changes;
  c.recipe = recipe;
  c.label = changes;
  c.plan_hash = prepared->compiled.plan.hash;
  c.kernels = launches(prepared->compiled, recipe.accumulate);
  c.peak_bytes = prepared->compiled.plan.peak_bytes();
  c.reports = prepared->compiled.reports;
  c.work = work_of(c);
  return c;
}

// "/blocks.11/mlp/Mul_1" and "/blocks.3/mlp/Mul_1" are one role: "/blocks.#/mlp/Mul_#".
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

}  // namespace

Result<std::set<TuneAxis>> parse_tune_axes(const std::string& text) {
  std::set<TuneAxis> axes;
  std::vector<std::string> names;
  for (const auto& [name, axis] : kAxes) names.emplace_back(name);
  for (const std::string& part : split_top_level(text)) {
    const auto at = std::find(names.begin(), names.end(), part);
    if (at == names.end()) return Error{Errc::usage, unknown_name("part of the search", part, names)};
    axes.insert(kAxes[at - names.begin()].second);
  }
  return axes;
}

Result<TuneSpace> TuneSpace::of(const Recipe& job, std::set<TuneAxis> axes, std::stop_token stop) {
  TuneSpace space;
  space.axes_ = std::move(axes);
  space.stop_ = std::move(stop);
  space.job_ = TRY(compile_candidate(job, "", space.stop_));
  space.works_.insert(space.job_.work);
  return space;
}

Result<std::optional<Candidate>> TuneSpace::changed(const std::string& changes) {
  Recipe recipe = job_.recipe;
  TRY(RecipeFlags::override_with(recipe, changes));
  auto candidate = compile_candidate(recipe, changes, stop_);
  if (!candidate && candidate.error().code == Errc::interrupted) return candidate.error();
  if (!candidate || !works_.insert(candidate->work).second) return std::optional<Candidate>();
  return std::optional<Candidate>(std::move(candidate).value());
}

Result<std::optional<Candidate>> TuneSpace::with_pipeline(const Pipeline& pipeline, std::int64_t threads) {
  std::string changes = "passes=" + pipeline_flag(pipeline, TRY(recipe_rules(job_.recipe)));
  if (threads > 0) changes += ";threads=" + std::to_string(threads);
  return changed(changes);
}

Result<std::optional<Candidate>> TuneSpace::with_passes(const std::set<std::string>& off,
                                                        std::int64_t threads) {
  Pipeline pipeline = TRY(recipe_pipeline(job_.recipe));
  std::erase_if(pipeline.passes, [&](const PassConfig& p) { return off.count(p.def->name) != 0; });
  return with_pipeline(pipeline, threads);
}

Result<std::optional<Candidate>> TuneSpace::with_only(const std::set<std::string>& passes,
                                                      std::int64_t threads) {
  Pipeline pipeline = default_pipeline();
  std::erase_if(pipeline.passes, [&](const PassConfig& p) { return passes.count(p.def->name) == 0; });
  return with_pipeline(pipeline, threads);
}

Result<std::vector<Candidate>> TuneSpace::single_changes() {
  std::vector<Candidate> all;
  const auto add = [&](std::optional<Candidate> candidate, const std::string& without,
                       const std::string& alone) {
    if (!candidate) return;
    candidate->without = without;
    candidate->alone = alone;
    all.push_back(std::move(*candidate));
  };
  if (axes_.count(TuneAxis::passes)) {
    add(TRY(with_only({})), "", "");
    add(TRY(with_pipeline(default_pipeline(), 0)), "", "");
    const Pipeline own = TRY(recipe_pipeline(job_.recipe));
    for (const PassConfig& pass : own.passes)
      if (!pass.def->by_precision) {
        auto candidate = TRY(with_passes({pass.def->name}));
        if (!candidate) idle_.insert(pass.def->name);
        add(std::move(candidate), pass.def->name, "");
      }
    for (const PassDef* def : all_passes())
      if (!def->by_precision) add(TRY(with_only({def->name})), "", def->name);
  }
  if (axes_.count(TuneAxis::threads) && job_.recipe.device == "cpu")
    for (std::int64_t threads = 1; threads <= read_environment().usable_cores; threads *= 2)
      add(TRY(changed("threads=" + std::to_string(threads))), "", "");
  if (axes_.count(TuneAxis::precision))
    for (const char* precision : {"f32", "bf16"})
      if (job_.recipe.precision != precision)
        add(TRY(changed(std::string("precision=") + precision)), "", "");
  const auto batch = job_.recipe.dims.find("batch");
  if (axes_.count(TuneAxis::accumulate) && batch != job_.recipe.dims.end())
    for (const std::int64_t k : {2, 4})
      if (batch->second % k == 0)
        add(TRY(changed("dim=batch=" + std::to_string(batch->second / k) +
                        ";accumulate=" + std::to_string(job_.recipe.accumulate * k))),
            "", "");
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
      auto candidate = TRY(with_pipeline(pipeline, 0));
      if (!candidate) continue;
      candidate->label = std::string(pass.def->name) + " off at " + role +
                         (sites.size() > 1 ? " (" + std::to_string(sites.size()) + " sites)" : "");
      all.push_back(std::move(*candidate));
    }
  }
  return all;
}

}  // namespace gradloom
