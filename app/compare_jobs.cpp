#include "app/compare_jobs.h"

#include "app/job.h"
#include "profiler/environment.h"

namespace gradloom {
namespace {

// `environment`: its GPU is looked at while blocks run.
Resident make_resident(Job& job, const std::string& name, Environment& environment) {
  Resident resident;
  resident.name = name;
  resident.kernels = job.kernels();
  resident.run = [&job, &environment](std::int64_t first_step, std::int64_t steps,
                                      bool timed) -> Result<Block> {
    TRY(apply_threads(job.recipe().threads));
    Block block;
    std::int64_t next = first_step;
    for (std::int64_t done = 0; done < steps; ++done) {
      while (next < first_step + steps && job.pending() <= job.depth()) TRY(job.submit(next++, timed));
      watch_gpu(environment);
      StepResult result = TRY(job.collect());
      block.step_ns.push_back(result.step_ns);
      block.losses.push_back(result.loss);
      block.samples.insert(block.samples.end(), result.samples.begin(), result.samples.end());
      if (timed && job.depth() > 0) block.activities.push_back(std::move(result.activities));
    }
    return block;
  };
  return resident;
}

Result<std::unique_ptr<Job>> make_job(const Recipe& recipe, const std::string& name, std::stop_token stop) {
  auto prepared = prepare(recipe, stop);
  if (!prepared) return with_context(prepared.error(), name);
  auto job = Job::create(std::move(prepared).value());
  if (!job) return with_context(job.error(), name);
  return job;
}

}  // namespace

Result<Comparison> compare_recipes(const Recipe& a, const Recipe& b, const std::string& name_a,
                                   const std::string& name_b, const CompareOptions& options,
                                   std::stop_token stop,
                                   const std::function<void(const CompareProgress&)>& progress) {
  const auto job_a = TRY(make_job(a, name_a, stop));
  const auto job_b = TRY(make_job(b, name_b, stop));
  const bool one_device = job_a->device().id == job_b->device().id;
  Environment environments[2];
  begin_gpu(environments[0], job_a->device());
  if (!one_device) begin_gpu(environments[1], job_b->device());
  Resident side_a = make_resident(*job_a, name_a, environments[0]),
           side_b = make_resident(*job_b, name_b, environments[one_device ? 0 : 1]);
  Comparison comparison = TRY(compare_interleaved(side_a, side_b, options, stop, progress));
  for (int side = 0; side < 2; ++side) {
    const std::string disturbed = gpu_disturbances(environment_rows(environments[side]));
    if (disturbed.empty()) continue;
    const std::string whose = one_device ? "" : side == 0 ? "A: " : "B: ";
    comparison.note += (comparison.note.empty() ? "" : "; ") + whose + disturbed;
  }
  return comparison;
}

}  // namespace gradloom
