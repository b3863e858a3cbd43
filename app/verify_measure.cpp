#include "app/verify_measure.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "engine/base/text.h"
#include "engine/train/losses.h"

namespace gradloom {
namespace {

Status nudge(Executor& executor, const Graph& graph, const MeasureOptions& options) {
  if (options.nudge_seed == 0) return {};
  std::mt19937_64 random(options.nudge_seed);
  for (const ValueId id : graph.parameters) {
    if (!is_float(graph.type(id).dtype)) continue;
    const Tensor old = TRY(executor.read(id));
    std::vector<double> values = old.to_f64();
    for (double& x : values) x *= 1 + options.unit * (static_cast<double>(random() >> 11) * 0x1p-53 - 0.5);
    TRY(executor.write(id, Tensor::from_f64(DType::f64, old.shape(), values).cast(old.dtype())));
  }
  return {};
}

// The loss of the job's recipe as the graph's only output, compiled for its gradients.
Result<Compiled> compile_gradients(const Prepared& job, std::stop_token stop) {
  Graph graph = job.model.graph;
  TRY(add_loss(graph, job.options.train.loss));
  freeze_parameters(graph, job.options.train);
  graph.outputs = {graph.loss};
  CompileOptions options = job.options;
  options.gradients_only = true;
  options.loss_for_gradients = graph.value(graph.loss).name;
  options.train.loss_scale.reset();
  return compile(graph, options, std::move(stop));
}

Result<Compiled> compile_measured(const Prepared& job, std::stop_token stop) {
  return job.options.gradients_only ? compile_gradients(job, std::move(stop))
                                    : compile(job.model.graph, job.options, std::move(stop));
}

bool anything_trains(const Prepared& job) {
  Graph graph = job.model.graph;
  freeze_parameters(graph, job.options.train);
  return std::any_of(graph.parameters.begin(), graph.parameters.end(),
                     [&](ValueId id) { return is_trained(graph, id) && is_float(graph.type(id).dtype); });
}

Status measure_gradients(const Prepared& job, const MeasureOptions& options, std::vector<Measured>& out,
                         std::stop_token stop) {
  std::optional<Compiled> own;
  if (!job.options.gradients_only) own = TRY(compile_gradients(job, std::move(stop)));
  const Compiled& compiled = own ? *own : job.compiled;
  const Graph& graph = compiled.train.graph;
  const auto device = TRY(open_device(job.recipe.device));
  const auto executor = TRY(Executor::create(graph, compiled.plan, *device));
  executor->poison();
  TRY(nudge(*executor, graph, options));
  const std::vector<InputSpec> specs = input_specs(graph);
  const auto batches = TRY(recipe_batches(job.recipe, specs));
  const auto batch = TRY(batches->batch(0));
  for (const InputSpec& spec : specs) TRY(executor->feed(find_value(graph, spec.name), batch.at(spec.name)));
  TRY(executor->run_forward(job.recipe.seed, 1));
  Tensor loss = TRY(executor->read(graph.loss));
  out.push_back({MeasuredKind::loss, "batch 1", std::move(loss)});
  for (const auto& [name, value] : compiled.gradients) {
    const ValueId of = find_value(graph, name);
    const bool trained = of == kNone || graph.value(of).role != Role::parameter || is_trained(graph, of);
    if (value == kNone || !trained) continue;
    Tensor gradient = TRY(executor->read(value));
    out.push_back({MeasuredKind::gradient, name, std::move(gradient)});
  }
  return {};
}

// What steps change and files of the training hold: trained parameters, running statistics, averages of parameters.
Result<std::map<std::string, Tensor>> changed_by_steps(Job& job) {
  const TrainGraph& train = job.compiled().train;
  std::set<std::string> updated(train.trainable.begin(), train.trainable.end());
  for (const Update& u : train.graph.updates) updated.insert(train.graph.values[u.state].name);
  std::map<std::string, Tensor> found = TRY(job.parameters());
  for (const TrainState& state : train.states)
    if (state.name == kAverage)
      found[state.value] = TRY(job.executor().read(find_value(train.graph, state.value)));
  std::erase_if(found, [&](const auto& named) {
    return !is_float(named.second.dtype()) || updated.count(named.first) == 0;
  });
  return found;
}

// What steps change of all trained parameters, as one tensor in the order of their names.
Tensor change_of_all(const std::vector<std::string>& trained, const std::map<std::string, Tensor>& before,
                     const std::map<std::string, Tensor>& after) {
  const std::set<std::string> names(trained.begin(), trained.end());
  std::int64_t count = 0;
  DType type = DType::f32;
  for (const auto& [name, tensor] : after) {
    if (names.count(name) == 0) continue;
    count += tensor.count();
    if (tensor.dtype() == DType::f64) type = DType::f64;
  }
  Tensor change(type, {count});
  float* const narrow = type == DType::f32 ? change.mutable_as<float>() : nullptr;
  double* const wide = type == DType::f64 ? change.mutable_as<double>() : nullptr;
  std::int64_t next = 0;
  for (const auto& [name, to] : after) {
    if (names.count(name) == 0) continue;
    const Tensor& from = before.at(name);
    for (std::int64_t i = 0; i < to.count(); ++i, ++next) {
      const double by = to.at(i) - from.at(i);
      if (wide != nullptr)
        wide[next] = by;
      else
        narrow[next] = static_cast<float>(by);
    }
  }
  return change;
}

Status measure_training(const std::shared_ptr<const Prepared>& prepared, const MeasureOptions& options,
                        std::vector<Measured>& out, const std::stop_token& stop) {
  const auto job = TRY(Job::create(prepared));
  TRY(nudge(job->executor(), job->compiled().train.graph, options));
  const std::map<std::string, Tensor> before = TRY(changed_by_steps(*job));
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    if (stop.stop_requested()) return Error{Errc::interrupted, "interrupted"};
    const StepResult result = TRY(job->step(step));
    out.push_back(
        {MeasuredKind::loss, "step " + std::to_string(step), Tensor::scalar(DType::f64, result.loss)});
  }
  std::map<std::string, Tensor> after = TRY(changed_by_steps(*job));
  out.push_back({MeasuredKind::parameter, "change of all",
                 change_of_all(job->compiled().train.trainable, before, after)});
  for (auto& [name, tensor] : after) out.push_back({MeasuredKind::parameter, name, std::move(tensor)});
  return {};
}

}  // namespace

const char* measured_kind_name(MeasuredKind kind) {
  switch (kind) {
    case MeasuredKind::loss: return "loss";
    case MeasuredKind::gradient: return "gradient";
    case MeasuredKind::parameter: return "parameter";
  }
  return "?";
}

double root_mean_square(const Tensor& tensor) {
  double squares = 0;
  for (std::int64_t i = 0; i < tensor.count(); ++i) squares += tensor.at(i) * tensor.at(i);
  return std::sqrt(squares / static_cast<double>(std::max<std::int64_t>(1, tensor.count())));
}

// Root mean square of the difference; infinite where `got` is not finite but the reference is.
double distance(const Tensor& got, const Tensor& reference) {
  if (got.shape() != reference.shape()) return std::numeric_limits<double>::infinity();
  double squares = 0;
  for (std::int64_t i = 0; i < got.count(); ++i) {
    const double difference = got.at(i) - reference.at(i);
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    squares += difference * difference;
  }
  return std::sqrt(squares / static_cast<double>(std::max<std::int64_t>(1, got.count())));
}

double gradient_error(const std::vector<Measured>& got, const std::vector<Measured>& reference) {
  // What is so much smaller than the others is zero but for the rounding of f64, as the gradient of what is added to all keys of an
  // attention: what it is in place of that counts beside the largest.
  constexpr double kZero = 1e-9;
  double size_of_largest = 0, error = 0;
  for (const Measured& r : reference)
    if (r.kind == MeasuredKind::gradient)
      size_of_largest = std::max(size_of_largest, root_mean_square(r.tensor));
  for (const Measured& r : reference)
    for (const Measured& g : got)
      if (r.kind == MeasuredKind::gradient && g.kind == r.kind && g.name == r.name)
        if (const double size = root_mean_square(r.tensor); size_of_largest > 0)
          error = std::max(error, distance(g.tensor, r.tensor) /
                                      (size > kZero * size_of_largest ? size : size_of_largest));
  return error;
}

Result<std::shared_ptr<const Prepared>> configured(const Prepared& job, const Configuration& configuration,
                                                   std::stop_token stop) {
  auto changed = std::make_shared<Prepared>();
  changed->recipe = job.recipe;
  changed->model = job.model;
  changed->options = job.options;
  changed->options.pipeline = configuration.pipeline;
  changed->options.planner = configuration.planner;
  changed->options.in_place = configuration.in_place;
  changed->options.pieces = configuration.pieces;
  changed->options.memory_budget_bytes = configuration.memory_budget_bytes;
  changed->options.recompute = configuration.recompute;
  changed->options.offload = configuration.offload;
  changed->compiled = TRY(compile_measured(*changed, std::move(stop)));
  return std::shared_ptr<const Prepared>(std::move(changed));
}

Result<std::shared_ptr<const Prepared>> prepare_measured(const Recipe& recipe, std::stop_token stop) {
  std::unique_ptr<Prepared> job = TRY(prepare_model(recipe));
  job->options.gradients_only = !anything_trains(*job);
  job->compiled = TRY(compile_measured(*job, std::move(stop)));
  const std::vector<std::string>& notes = job->compiled.notes;
  job->model.notes.insert(job->model.notes.end(), notes.begin(), notes.end());
  return std::shared_ptr<const Prepared>(std::move(job));
}

Result<std::vector<Measured>> measure(const std::shared_ptr<const Prepared>& job,
                                      const MeasureOptions& options, std::stop_token stop) {
  std::vector<Measured> measured;
  TRY(measure_gradients(*job, options, measured, stop));
  if (!job->options.gradients_only && options.steps > 0) TRY(measure_training(job, options, measured, stop));
  return measured;
}

}  // namespace gradloom
