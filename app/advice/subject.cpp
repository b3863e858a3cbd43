#include "app/advice/subject.h"

#include <algorithm>
#include <optional>

#include "app/recipe_flags.h"
#include "app/roofline.h"
#include "app/verify.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/elementwise/fused.h"
#include "kernels/threads.h"
#include "sessions/run_environment.h"

namespace gradloom {
namespace {

constexpr const char* kNoPasses = "passes=none";
constexpr const char* kUsualPasses = "passes=default";

// Ranks run nowhere but in a training; the kernels of one are those of all.
Recipe alone(Recipe recipe) {
  recipe.ranks = 1;
  return recipe;
}

// A step of a configuration that was timed.
double step_ns_of(const Candidate& candidate, const TimedKernels& timed) {
  const std::vector<double> ns = kernel_medians(timed.kernels, timed.samples);
  double sum = timed.between_ns;
  for (const KernelInfo& launch : candidate.kernels) {
    const auto at = static_cast<std::size_t>(launch.plan_step);
    if (at < ns.size()) sum += ns[at];
  }
  return sum;
}

// Of a job that says no number: those of the run, else what it was prepared with (OMP_NUM_THREADS, or all processors).
std::int64_t threads_of(const Recipe& job, const RunRecord* run) {
  if (job.threads > 0) return job.threads;
  const auto recorded =
      run != nullptr ? parse_number<std::int64_t>(environment_row(*run, "threads")) : std::nullopt;
  return recorded.value_or(kernels::threads());
}

// "cuda" of "cuda:0".
std::string kind_of_device(const std::string& id) { return id.substr(0, id.find(':')); }

// What kernels took in a run they take in the job where that is on such a device, on as many threads.
Status check_run(const RunRecord& run, const Recipe& job) {
  const auto refuse = [&](const std::string& what, const std::string& had, const std::string& has) {
    return Error{Errc::usage, "run " + std::to_string(run.summary.id) + " was measured with " + what + " " +
                                  escaped(had) + ", the job has " + escaped(has) +
                                  ": what its kernels take is not known"};
  };
  if (const std::string& had = run.summary.device;
      !had.empty() && kind_of_device(had) != kind_of_device(job.device))
    return refuse("device", had, job.device);
  const std::string had = environment_row(run, "threads"), has = std::to_string(job.threads);
  if (job.device == "cpu" && job.threads > 0 && !had.empty() && had != has)
    return refuse("threads", had, has);
  return {};
}

}  // namespace

bool is_product(const Node& node) { return node.op->precision == Precision::low; }

bool is_cast(const Node& node) {
  if (is_op(node, "Cast")) return true;
  if (!is_op(node, "FusedElementwise")) return false;
  const auto code = parse_fused(node.attrs.text("code"));
  return code.ok() && std::all_of(code->begin(), code->end(),
                                  [](const FusedStatement& s) { return s.op == kernels::EwOp::Cast; });
}

void add_sources(const Node& node, Sources& sources) {
  sources.insert(node.origin.sources.begin(), node.origin.sources.end());
}

bool stands_for(const KernelInfo& kernel, const Sources& sources) {
  return std::any_of(kernel.sources.begin(), kernel.sources.end(),
                     [&](std::uint32_t s) { return sources.count(s) != 0; });
}

Result<std::unique_ptr<Subject>> Subject::of(const Recipe& job, const RunRecord* run,
                                             const AdviceOptions& options, std::stop_token stop) {
  std::unique_ptr<Subject> subject(new Subject(options, stop));
  subject->run_ = run;
  if (run != nullptr) TRY(check_run(*run, job));
  subject->prepared_ = std::shared_ptr<const Prepared>(TRY(prepare(job, stop)));
  subject->threads_ = threads_of(job, run);
  subject->job_ = candidate_of(*subject->prepared_, job, "");
  subject->know_types();
  TRY(subject->learn(run));
  return subject;
}

// Of the processor of the run, else of this one.
void Subject::know_types() {
  std::vector<TypeTime> types = options_.machine.types;
  if (run_ != nullptr)
    if (auto measured = hardware_of_run(*run_, "")) types = std::move(measured->types);
  if (!types.empty())
    predictor_.set_types(TypeTimes(types), true);
  else if (job_.recipe.device == "cpu")
    predictor_.set_types(TypeTimes::usual_of_cpu(options_.machine.fast_bf16), false);
}

Status Subject::learn(const RunRecord* run) {
  if (run != nullptr && run->has_times()) {
    std::vector<KernelTime> times;
    double kernels_ns = 0;
    for (const KernelRow& row : run->kernels) {
      kernels_ns += static_cast<double>(row.step_ns);
      if (row.samples == 0) continue;
      const KernelInfo& k = row.info;
      times.push_back({k.kernel, k.op, k.types, k.flops, k.bytes_read, k.bytes_written,
                       std::max(1.0, static_cast<double>(row.median_ns))});
    }
    predictor_.add(times);
    predictor_.set_job(job_.kernels, 0);
    const auto step_ns = static_cast<double>(run->summary.median_step_ns);
    const bool same = run->summary.plan_hash == job_.plan_hash;
    predictor_.set_job(job_.kernels,
                       same || kernels_ns <= 0 ? step_ns : predictor_.kernels_ns() * step_ns / kernels_ns);
    times_ = "run " + std::to_string(run->summary.id);
    return {};
  }
  if (!job_.recipe.kernel_times.empty()) {
    predictor_.add(job_.recipe.kernel_times);
    predictor_.set_job(job_.kernels, 0);
    times_ = escaped(job_.recipe.costs);
    return {};
  }
  if (!can_time())
    return Error{Errc::usage, run != nullptr ? "run " + std::to_string(run->summary.id) +
                                                   " has no times of kernels (--profile sampled or all "
                                                   "takes them)"
                                             : "no kernel of the job has a time: --costs names a run of it"};
  return learn_by_timing();
}

// Beside the job's kernels those without passes and with the usual ones, so that what passes would replace or bring is known.
Status Subject::learn_by_timing() {
  const TimedKernels own = TRY(options_.time(alone(job_.recipe)));
  predictor_.add(own.kernels, own.samples);
  predictor_.set_job(job_.kernels, 0);
  predictor_.set_job(job_.kernels, predictor_.kernels_ns() + own.between_ns);
  times_ = plural_text(own.steps, "step") + " made for it";
  for (const char* changes : {kNoPasses, kUsualPasses})
    if (const Status status = time(changes); !status) return status;
  return {};
}

Status Subject::time(const std::string& changes) {
  const ChangedJob* const changed = TRY(this->changed(changes));
  if (changed == nullptr || changed->timed) return {};
  const auto timed = options_.time(alone(changed->candidate.recipe));
  if (!timed)  // more memory than there is: it stays predicted
    return timed.error().code == Errc::interrupted ? Status(timed.error()) : Status();
  ChangedJob& entry = *changed_.at(changes);
  entry.timed = true;
  const bool as_many_threads = entry.candidate.recipe.threads == job_.recipe.threads;
  std::optional<double> slower;
  if (as_many_threads) slower = predictor_.slower_now(timed->kernels, timed->samples);
  if (!slower) {  // a change of all kernels: the job itself says how fast the machine is now
    const auto again = options_.time(alone(job_.recipe));
    if (!again && again.error().code == Errc::interrupted) return again.error();
    if (again) slower = predictor_.slower_now(again->kernels, again->samples);
  }
  if (as_many_threads)
    predictor_.add(timed->kernels, timed->samples, slower);
  else
    timed_ns_[changes] = step_ns_of(entry.candidate, *timed) / slower.value_or(1);
  for (auto& [_, other] : changed_)
    if (other) other->gain = gain_of(*other);
  return {};
}

// The model knows kernels on as many threads as the job has.
Gain Subject::gain_of(const ChangedJob& changed) const {
  const Candidate& c = changed.candidate;
  const auto timed = timed_ns_.find(c.changes);
  if (timed == timed_ns_.end()) return predictor_.gain(c.kernels, c.samples);
  const double ns = step_ns() - timed->second / c.samples, error = 2 * Predictor::kMeasuredError * step_ns();
  return {ns, ns - error, ns + error, 1};
}

Result<const ChangedJob*> Subject::changed(const std::string& changes) {
  if (stop_.stop_requested()) return Error{Errc::interrupted, "interrupted"};
  const auto [at, fresh] = changed_.try_emplace(changes);
  if (!fresh) return at->second.get();
  auto candidate = changed_job(job_.recipe, changes, stop_);
  if (!candidate && candidate.error().code == Errc::interrupted) return candidate.error();
  if (!candidate || candidate->work == job_.work) return nullptr;
  at->second = std::make_unique<ChangedJob>();
  at->second->candidate = std::move(candidate).value();
  at->second->gain = gain_of(*at->second);
  return at->second.get();
}

Result<const ChangedJob*> Subject::with_pipeline(const Pipeline& pipeline) {
  return changed(TRY(pipeline_change(job_.recipe, pipeline)));
}

Result<std::shared_ptr<const Prepared>> Subject::prepared_with(const std::string& changes) const {
  Recipe recipe = job_.recipe;
  TRY(RecipeFlags::override_with(recipe, changes));
  return std::shared_ptr<const Prepared>(TRY(prepare(recipe, stop_)));
}

std::vector<NodeTime> Subject::node_times() const {
  std::map<std::string, double> ns;
  for (const KernelInfo& kernel : job_.kernels) ns[kernel.node] += predictor_.ns(kernel);
  std::vector<NodeTime> times;
  std::set<std::string> seen;
  for (const KernelInfo& kernel : job_.kernels) {
    if (!seen.insert(kernel.node).second) continue;
    const PlanStep& step = prepared_->compiled.plan.steps[static_cast<std::size_t>(kernel.plan_step)];
    times.push_back({&graph().nodes[step.node], &kernel, ns[kernel.node]});
  }
  return times;
}

std::string Subject::of_a_step(double ns) const {
  return duration_text(ns) + " of a step, " + percent_text(share(ns));
}

RunFlags Subject::run_flags() const { return {.source = options_.source ? &*options_.source : nullptr}; }

std::string Subject::flags_of(const Recipe& recipe) const {
  const std::string line = command_line(recipe, run_flags());
  return line.substr(std::string("gradloom train ").size());
}

std::string Subject::job_flags() const { return flags_of(job_.recipe); }
std::string Subject::proof(const std::string& change) const {
  return verify_line(alone(job_.recipe), run_flags()) + " " + train_flags(change);
}

std::string Subject::command(const std::string& change) const {
  if (recipe().ranks == 1) return "gradloom compare " + job_flags() + " --b " + shell_quoted(change);
  Recipe changed = recipe();
  if (change == kEditedModel) {
    changed.model = change.substr(std::string("model=").size());
    return "gradloom train " + flags_of(changed);
  }
  return "gradloom train " + job_flags() + " " + train_flags(change);
}

bool Subject::takes_away(const std::string& changes, const KernelInfo& kernel) const {
  const auto at = changed_.find(changes);
  if (at == changed_.end() || at->second == nullptr) return false;
  const std::vector<KernelInfo>& left = at->second->candidate.kernels;
  return std::none_of(left.begin(), left.end(), [&](const KernelInfo& other) {
    return other.node == kernel.node && other.kernel == kernel.kernel && other.types == kernel.types &&
           other.flops == kernel.flops;
  });
}

void Subject::set_ratio(Finding& finding, double samples) const {
  if (recipe().ranks > 1) return;
  const auto ratio = [&](double gain_ns) {
    return step_ns() / std::max(kLeastLeft * step_ns(), step_ns() - gain_ns) / samples;
  };
  finding.ratio = ratio(finding.gain.ns);
  finding.ratio_low = ratio(finding.gain.low_ns);
  finding.ratio_high = ratio(finding.gain.high_ns);
}

Finding Subject::of_change(const ChangedJob& changed, std::string title) const {
  Finding finding;
  const Candidate& c = changed.candidate;
  finding.title = std::move(title);
  finding.gain = changed.gain;
  finding.saved_bytes = job_.peak_bytes - c.peak_bytes;
  finding.change = c.changes;
  finding.command = command(c.changes);
  set_ratio(finding, c.samples);
  if (c.kernels.size() != job_.kernels.size())
    finding.numbers.push_back(std::to_string(c.kernels.size()) + " kernels per step instead of " +
                              std::to_string(job_.kernels.size()));
  constexpr double kAll = 0.995;
  finding.numbers.push_back(changed.timed ? "its kernels were timed"
                            : changed.gain.known >= kAll
                                ? "all kernels that differ were timed before"
                                : percent_text(changed.gain.known) +
                                      " of what differs was timed, the rest is predicted");
  return finding;
}

Finding Subject::of_model(const Gain& gain, std::string title, std::string remedy) const {
  Finding finding;
  finding.title = std::move(title);
  finding.gain = gain;
  finding.remedy = std::move(remedy);
  finding.change = kEditedModel;
  finding.command = command(finding.change);
  set_ratio(finding);
  return finding;
}

std::string train_flags(const std::string& change) {
  std::string flags;
  for (const std::string& part : split_top_level(change, ';')) {
    const std::size_t equals = part.find('=');
    flags += (flags.empty() ? "--" : " --") + part.substr(0, equals) + " " +
             shell_quoted(equals == std::string::npos ? "" : part.substr(equals + 1));
  }
  return flags;
}

namespace advice {
#define RULE(name) Status find_##name(Subject& subject, Findings& found);
#include "app/advice/rules.def"
}  // namespace advice

std::span<const AdviceRule> advice_rules() {
  static constexpr AdviceRule kRules[] = {
#define RULE(name) {#name, advice::find_##name},
#include "app/advice/rules.def"
  };
  return kRules;
}

}  // namespace gradloom
