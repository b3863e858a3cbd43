#include "app/loop_recorder.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "app/parse_words.h"
#include "app/source_commit.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

struct RecorderOptions {
  std::string name, command, source, profile = "sampled";
  std::int64_t steps = 0;
};

Result<RecorderOptions> read_words(const std::vector<std::string>& words) {
  CLI::App app;
  RecorderOptions options;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--name", options.name);
  app.add_option("--command", options.command);
  app.add_option("--source", options.source);
  app.add_option("--profile", options.profile);
  app.add_option("--steps", options.steps)->check(CLI::NonNegativeNumber);
  TRY(parse_words(app, words));
  return options;
}

// What a plan's part is called in the host's lane.
std::string call_name(const std::string& module, bool backward) {
  return module + (backward ? " backward" : " forward");
}

}  // namespace

Result<std::shared_ptr<LoopRecorder>> LoopRecorder::open(const std::string& session,
                                                         const std::vector<std::string>& words) {
  const RecorderOptions options = TRY(read_words(words));
  const ProfileLevel level = TRY(parse_profile_level(options.profile));
  std::shared_ptr<LoopRecorder> recorder(new LoopRecorder(level));
  recorder->store_ = TRY(Store::open(session, StoreMode::write));
  recorder->environment_ = read_environment();
  RunStart start;
  start.name = options.name;
  start.device = "cpu";
  start.data = kLoopData;
  start.command = options.command;
  start.planned_steps = options.steps;
  start.environment = environment_rows(recorder->environment_);
  if (!options.source.empty())
    if (const auto commit = source_commit(options.source)) start.environment.merge(source_rows(*commit));
  recorder->writer_ = TRY(recorder->store_->begin_run(start));
  recorder->next_step(monotonic_ns());
  return recorder;
}

LoopRecorder::~LoopRecorder() = default;

Status LoopRecorder::usable() const {
  if (closed_) return Error{Errc::usage, "the recorder is closed"};
  if (failed_) return *failed_;
  return {};
}

std::string LoopRecorder::free_name(const std::string& name) {
  const std::string wanted = name.empty() ? "module" : name;
  const int number = ++names_[wanted];
  return number == 1 ? wanted : wanted + "#" + std::to_string(number);
}

Status LoopRecorder::watch(ModelModule& module, const std::string& name) {
  auto watched = std::make_shared<Watched>();
  {
    const std::lock_guard lock(mutex_);
    TRY(usable());
    watched->name = free_name(name);
  }
  // The module may outlive the recorder. Its own lock is taken before ours, never after.
  const std::weak_ptr<LoopRecorder> self = weak_from_this();
  module.watch({[self] {
                  const auto recorder = self.lock();
                  return recorder && recorder->timed_ && recorder->thread_ == std::this_thread::get_id();
                },
                [self, watched](WatchedCall call) {
                  if (const auto recorder = self.lock()) recorder->called(*watched, std::move(call));
                }});
  return {};
}

void LoopRecorder::called(Watched& module, WatchedCall call) {
  if (thread_ != std::this_thread::get_id()) return;
  const std::lock_guard lock(mutex_);
  if (closed_ || failed_) return;
  keep_call(module, call);
}

void LoopRecorder::keep_call(Watched& module, WatchedCall& call) {
  spans_.push_back(
      {"engine", call_name(module.name, call.backward), call.start_ns, call.end_ns - call.start_ns});
  auto first = module.first_step.find(call.plan);
  if (first == module.first_step.end()) {
    const std::int64_t start_ns = monotonic_ns();
    // Of several plans of a module (with and without gradients) each has a name.
    const std::string name = module.first_step.empty() ? module.name : free_name(module.name);
    const Status written = writer_->write_plan(call.plan->graph, call.plan->plan, call.plan->reports, name);
    if (!written.ok()) {
      failed_ = written.error();
      return;
    }
    first = module.first_step.emplace(call.plan, plan_steps_).first;
    plan_steps_ += static_cast<std::int64_t>(call.plan->plan.steps.size());
    spans_.push_back({"record", "", start_ns, monotonic_ns() - start_ns});
  }
  if (call.samples.empty()) return;
  // A forward and its backward have the same number in the step, by their arena.
  std::int32_t micro = 0;
  if (const auto at = micro_of_arena_.find(call.arena); call.backward && at != micro_of_arena_.end())
    micro = at->second;
  else
    micro = micro_of_arena_[call.arena] = forwards_[call.plan]++;
  for (KernelSample& sample : call.samples) {
    sample.plan_step += static_cast<std::int32_t>(first->second);
    sample.micro = micro;
  }
  if (samples_.size() <= kMostKernels)
    samples_.insert(samples_.end(), call.samples.begin(), call.samples.end());
}

Status LoopRecorder::add_span(const std::string& kind, const std::string& name, std::int64_t start_ns,
                              std::int64_t end_ns) {
  if (thread_ != std::this_thread::get_id()) return {};
  const std::lock_guard lock(mutex_);
  TRY(usable());
  if (find_host_kind(kind) == nullptr || kind == "step")
    return Error{Errc::usage, "spans of kind '" + escaped(kind) + "' there are not"};
  if (end_ns < start_ns) return Error{Errc::usage, "the span ends before it begins"};
  if (spans_.size() <= kMostSpans) spans_.push_back({kind, name, start_ns, end_ns - start_ns});
  return {};
}

void LoopRecorder::next_step(std::int64_t start_ns) {
  start_ns_ = start_ns;
  timed_ = sampler_.timed(step_ + 1);
  spans_.clear();
  samples_.clear();
  micro_of_arena_.clear();
  forwards_.clear();
}

Status LoopRecorder::begin_step(std::int64_t start_ns) {
  const std::lock_guard lock(mutex_);
  TRY(usable());
  next_step(start_ns);
  return {};
}

Status LoopRecorder::write_step(std::int64_t end_ns, double loss, double lr) {
  if (spans_.size() > kMostSpans || samples_.size() > kMostKernels)
    return Error{Errc::limit, "a step has more than " + std::to_string(kMostSpans) + " spans or " +
                                  std::to_string(kMostKernels) + " kernels"};
  ++step_;
  const bool timed = timed_;
  sampler_.record(step_, end_ns - start_ns_);
  std::vector<HostSpan> later;  // began after the step's end
  const auto in_step = std::stable_partition(spans_.begin(), spans_.end(),
                                             [&](const HostSpan& span) { return span.start_ns < end_ns; });
  later.assign(in_step, spans_.end());
  spans_.erase(in_step, spans_.end());
  writer_->add_host_spans(nested_spans(std::move(spans_), step_, start_ns_, end_ns));
  StepRow row;
  row.step = step_;
  row.loss = loss;
  row.step_ns = end_ns - start_ns_;
  row.lr = std::isfinite(lr) ? lr : 0;
  row.timed = timed;
  TRY(writer_->add_step(row, samples_));
  next_step(end_ns);
  spans_ = std::move(later);
  return {};
}

Status LoopRecorder::end_step(std::int64_t end_ns, double loss, double lr) {
  const std::lock_guard lock(mutex_);
  TRY(usable());
  if (end_ns < start_ns_) return Error{Errc::usage, "the step ends before it begins"};
  const std::int64_t writing_ns = monotonic_ns();
  const Status written = write_step(end_ns, loss, lr);
  if (!written.ok()) {
    failed_ = written.error();
    timed_ = false;
    return written;
  }
  if (writing_ns >= end_ns)  // in the next step, whose time it is
    spans_.push_back({"record", "", writing_ns, monotonic_ns() - writing_ns});
  return {};
}

Status LoopRecorder::tell(const std::string& name, const std::string& value) {
  const std::lock_guard lock(mutex_);
  TRY(usable());
  told_["loop." + name] = value;
  return {};
}

Status LoopRecorder::close(const std::string& failure) {
  const std::lock_guard lock(mutex_);
  if (closed_) return {};
  closed_ = true;
  timed_ = false;
  if (failed_) return *failed_;
  RunFinish end;
  end.status = failure.empty() ? "done" : "failed";
  end.message = failure;
  finish_environment(environment_);
  end.environment = environment_rows(environment_);
  end.environment.insert(told_.begin(), told_.end());
  const Overhead overhead = sampler_.overhead();
  if (overhead.known) {
    end.overhead = overhead.fraction;
    end.overhead_low = overhead.low;
    end.overhead_high = overhead.high;
  }
  return writer_->finish(end);
}

}  // namespace gradloom
