#include "app/compare_jobs.h"

#include "app/job.h"

namespace gradloom {
namespace {

Resident make_resident(Job& job, const std::string& name) {
  Resident resident;
  resident.name = name;
  resident.kernels = job.kernels();
  resident.run = [&job](std::int64_t first_step, std::int64_t steps, bool timed) -> Result<Block> {
    apply_threads(job.recipe().threads);
    Block block;
    for (std::int64_t step = first_step; step < first_step + steps; ++step) {
      const StepResult result = TRY(job.step(step, timed ? &block.samples : nullptr));
      block.step_ns.push_back(result.step_ns);
      block.losses.push_back(result.loss);
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

Result<Comparison> compare_recipes(const Recipe& a, const Recipe& b, const std::string& name_a, const std::string& name_b,
                                   const CompareOptions& options, std::stop_token stop,
                                   const std::function<void(const CompareProgress&)>& progress) {
  const auto job_a = TRY(make_job(a, name_a, stop));
  const auto job_b = TRY(make_job(b, name_b, stop));
  Resident side_a = make_resident(*job_a, name_a), side_b = make_resident(*job_b, name_b);
  return compare_interleaved(side_a, side_b, options, stop, progress);
}

}  // namespace gradloom
