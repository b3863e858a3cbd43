#include "app/job.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "app/caller_memory.h"
#include "app/checkpoint_folder.h"
#include "app/measured_costs.h"
#include "app/op_libraries.h"
#include "app/parameter_file.h"
#include "app/training_state.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/onnx/read/known_inputs.h"
#include "engine/ops/collectives/parameter_part.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "engine/ranks/world.h"
#include "engine/run/blocks.h"
#include "engine/train/optimizers.h"
#include "engine/train/parameter_groups.h"
#include "engine/train/weight_copies.h"
#include "kernels/cpu.h"

namespace gradloom {
namespace {

// The dim at an axis that may count from the end; 0 where the shape has no such.
std::int64_t dim_at(const Shape& shape, std::int64_t axis) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (axis < 0) axis += rank;
  return axis >= 0 && axis < rank ? shape[static_cast<std::size_t>(axis)] : 0;
}

// What consumers say about the integers of `value`: following views and casts.
void find_limit(const Graph& graph, const std::vector<std::vector<Use>>& uses, ValueId value, InputSpec& spec,
                std::set<ValueId>& seen) {
  if (!seen.insert(value).second) return;
  const auto take = [&](std::int64_t limit) {
    if (limit > 0 && (spec.limit == 0 || limit < spec.limit)) spec.limit = limit;
  };
  for (const Use& use : uses[value]) {
    const Node& node = graph.nodes[use.node];
    const InputRole* const role = node.op->role(use.input_index);
    if (role != nullptr && (role->use == InputUse::indices || role->use == InputUse::labels)) {
      const std::int64_t axis = node.attrs.integer("axis", role->axis);
      const ValueId selected = node.inputs[role->of];
      if (selected != kNone) take(dim_at(graph.values[selected].type.shape, axis));
      if (role->use != InputUse::labels) continue;
      spec.label = true;
      if (node.attrs.has("ignore_index")) spec.ignored = node.attrs.integer("ignore_index");
    } else if (node.op->has(kView) || std::string_view(node.op->name) == "Cast") {
      if (use.input_index == 0 && node.outputs[0] != kNone)
        find_limit(graph, uses, node.outputs[0], spec, seen);
    }
  }
}

}  // namespace

std::vector<InputSpec> input_specs(const Graph& graph, const Graph& before_passes) {
  const auto uses = uses_of(graph), uses_before = uses_of(before_passes);
  std::map<std::string_view, ValueId> before;
  for (const ValueId id : before_passes.inputs) before[before_passes.values[id].name] = id;
  std::vector<InputSpec> specs;
  for (ValueId id : graph.inputs) {
    const Value& v = graph.values[id];
    if (uses[id].empty() && std::find(graph.outputs.begin(), graph.outputs.end(), id) == graph.outputs.end())
      continue;
    InputSpec spec{v.name, v.type, 0, false};
    std::set<ValueId> seen;
    const auto same = before.find(v.name);
    if (!is_float(v.type.dtype) && same != before.end())
      find_limit(before_passes, uses_before, same->second, spec, seen);
    specs.push_back(std::move(spec));
  }
  return specs;
}

Status apply_threads(std::int64_t threads) {
  const char* const variable = std::getenv("OMP_NUM_THREADS");
  if (threads == 0 && variable != nullptr && *variable != 0) {
    const std::string_view text(variable);
    // A list gives the numbers of nested teams, of which we have one.
    const std::string_view first = text.substr(0, text.find(','));
    threads = parse_number<std::int64_t>(first).value_or(0);
    if (threads < 1 || threads > 1024)
      return Error{Errc::usage,
                   "OMP_NUM_THREADS=" + escaped(text) +
                       " in the environment: expected a number from 1 to 1024; --threads goes before it"};
  }
  kernels::set_threads(static_cast<int>(threads));
  return {};
}

namespace {

Result<ImportOptions> import_options(const Recipe& recipe) {
  ImportOptions options;
  options.dims = recipe.dims;
  options.train = recipe.train;
  for (const auto& [name, n] : recipe.import_limits) TRY(set_limit(options.limits, name, n));
  options.float_type = TRY(precision_type(recipe.precision));
  return options;
}

}  // namespace

Result<ImportedModel> load_model(const Recipe& recipe, bool for_viewing) {
  TRY(check_op_libraries(recipe.ops));
  ImportOptions options = TRY(import_options(recipe));
  options.allow_unknown = for_viewing;
  return import_onnx(recipe.model, options);
}

namespace {

// The inputs that nodes are computed from.
std::set<std::string> inputs_of(const Graph& graph, std::vector<NodeId> nodes) {
  std::set<std::string> inputs;
  std::vector<bool> seen(graph.nodes.size());
  while (!nodes.empty()) {
    const NodeId id = nodes.back();
    nodes.pop_back();
    if (seen[id]) continue;
    seen[id] = true;
    for (const ValueId in : graph.node(id).inputs) {
      if (in == kNone) continue;
      const Value& v = graph.value(in);
      if (v.producer != kNone) nodes.push_back(v.producer);
      if (v.role == Role::input) inputs.insert(v.name);
    }
  }
  return inputs;
}

// Every tensor's size is known before running. Where contents of inputs decide sizes, those that the data
// repeat in every batch, held-out data too, are: the edges of a graph that is trained as a whole.
Status settle_sizes(const Recipe& recipe, ImportedModel& model) {
  std::vector<NodeId> sized = nodes_sized_by_data(model.graph);
  if (sized.empty()) return {};
  const std::set<std::string> names = inputs_of(model.graph, sized);
  std::map<std::string, Tensor> known = TRY(repeated_inputs(recipe.data, names));
  if (!recipe.eval_data.empty() && !known.empty()) {
    const auto held_out = repeated_inputs(recipe.eval_data, names);
    if (!held_out) return with_context(held_out.error(), "held-out data");
    std::erase_if(known, [&](const auto& input) {
      const auto there = held_out->find(input.first);
      return there == held_out->end() || !bit_equal(there->second, input.second);
    });
  }
  if (!known.empty()) {
    if (const Status status = know_inputs(model.graph, known, TRY(import_options(recipe))); !status)
      return with_context(status.error(), escaped(recipe.model));
    sized = nodes_sized_by_data(model.graph);
    if (sized.empty()) return {};
  }
  std::string text;
  for (const NodeId id : sized)
    text += (text.empty() ? "" : ", ") + escaped(model.graph.nodes[id].name) + " (" +
            model.graph.nodes[id].op->name + ")";
  return Error{Errc::bad_input,
               "only the data tells how large the outputs are of " + text +
                   "; a plan needs to know it before running (integer inputs that are the same in "
                   "every batch of npz: data, held-out data too, are known)"};
}

// The numbers with which training begins, where they are not the model's own.
Status set_initial(const Recipe& recipe, const Checkpoint* from, ImportedModel& model) {
  if (from != nullptr)
    return set_parameters(model, parameter_file(from->path + "/" + kModelFile, from->model), true);
  if (recipe.load_params.empty()) return {};
  return set_parameters(model, TRY(read_parameter_file(recipe.load_params)), false);
}

}  // namespace

Result<std::unique_ptr<Prepared>> prepare_model(const Recipe& recipe, const Checkpoint* from) {
  auto prepared = std::make_unique<Prepared>();
  prepared->recipe = recipe;
  TRY(apply_threads(recipe.threads));
  prepared->model = TRY(load_model(recipe));
  if (!recipe.model_hash.empty() && recipe.model_hash != prepared->model.content_hash)
    return Error{Errc::bad_input,
                 "model '" + escaped(recipe.model) + "' is not the one of the recipe (its contents hash to " +
                     prepared->model.content_hash + ", the recipe says " + recipe.model_hash + ")"};
  prepared->recipe.model_hash = prepared->model.content_hash;
  if (!prepared->model.unbound_dims.empty()) {
    std::string names, flags;
    for (const std::string& d : prepared->model.unbound_dims) {
      names += (names.empty() ? "" : ", ") + escaped(d);
      flags += " --dim " + escaped(d) + "=N";
    }
    return Error{Errc::usage, "dims are not bound: " + names + " (bind with" + flags + ")"};
  }
  TRY(settle_sizes(recipe, prepared->model));
  TRY(set_initial(recipe, from, prepared->model));
  TRY(read_costs(prepared->recipe));
  prepared->options = TRY(recipe_compile_options(prepared->recipe));
  if (prepared->options.train.loss.empty() && !prepared->model.graph.outputs.empty())
    prepared->options.train.loss = prepared->model.graph.values[prepared->model.graph.outputs[0]].name;
  prepared->recipe.loss = prepared->options.train.loss;
  return prepared;
}

namespace {

// Ranks that have batches of their own: those that share parameters have the same.
std::int64_t data_ranks(const Prepared& prepared) {
  return prepared.options.train.ranks / tensor_ranks(prepared.compiled.train.graph);
}

}  // namespace

Result<std::unique_ptr<Prepared>> prepare(const Recipe& recipe, std::stop_token stop,
                                          const Checkpoint* from) {
  auto prepared = TRY(prepare_model(recipe, from));
  prepared->compiled = TRY(compile(prepared->model.graph, prepared->options, stop));
  if (from != nullptr) {
    const Status set = set_states(optimizer_file(*from), prepared->model, prepared->options.train.optimizer,
                                  prepared->compiled);
    if (!set.ok()) return damage_or(set.error(), *from);
    prepared->steps_before = from->step;
    prepared->next_batch = from->next_batch;
  } else if (!recipe.load_optimizer.empty()) {
    const OptimizerFile file = TRY(read_optimizer_file(recipe.load_optimizer));
    TRY(set_states(file, prepared->model, prepared->options.train.optimizer, prepared->compiled));
    prepared->steps_before = file.made_steps;
    prepared->next_batch = file.made_steps * prepared->options.train.accumulate * data_ranks(*prepared);
  }
  std::vector<std::string>& notes = prepared->model.notes;
  notes.insert(notes.end(), prepared->compiled.notes.begin(), prepared->compiled.notes.end());
  return prepared;
}

Status check_apart(const ImportedModel& model, const std::vector<std::string>& trained) {
  for (const ApartParameter& p : model.apart) {
    if (std::find(trained.begin(), trained.end(), p.name) == trained.end()) continue;
    const std::string name = escaped(p.name);
    return Error{Errc::bad_input,
                 "weight '" + name + "' " + escaped(p.why) +
                     ": it would not train as the module does (export with optimize=False; --train " + name +
                     " trains it as it is, --freeze " + name + " does not)"};
  }
  return {};
}

namespace {

// Other GPUs would multiply 16 bits after all, and round for nothing. host-gpu computes what they do.
Status check_fp8(const Graph& graph, const DeviceInfo& device) {
  constexpr int kFirst = 89;
  const bool needed = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                  [](const Node& node) { return is_op(node, "Fp8MatMul"); });
  if (!needed || !device.queued || device.id.starts_with("host-gpu")) return {};
  const std::size_t at = device.name.rfind(", sm_");
  if (at != std::string::npos && std::atoi(device.name.c_str() + at + 5) >= kFirst) return {};
  return Error{Errc::usage, "fp8: " + escaped(device.id + " (" + device.name + ")") +
                                " has no products of 8 bits, as NVIDIA's GPUs have from sm_89 on"};
}

Result<std::shared_ptr<const JobPlan>> in_memory(std::shared_ptr<const Prepared> prepared, Device& device,
                                                 const LentMemory* lent) {
  const Compiled& compiled = prepared->compiled;
  const Graph& graph = compiled.train.graph;
  const DeviceInfo info = device.info();
  // The CPU's free memory is a moving number: only what can never fit is refused there.
  TRY(check_fp8(graph, info));
  TRY(check_fits(graph, compiled.plan, info.id, info.queued ? info.free_bytes : info.memory_bytes));
  auto plan = std::make_shared<JobPlan>();
  plan->executor = TRY(Executor::create(graph, compiled.plan, device, lent));
  plan->inputs = input_specs(graph, compiled.forward);
  for (const InputSpec& input : plan->inputs) plan->fed.push_back(find_value(graph, input.name));
  plan->prepared = std::move(prepared);
  return std::shared_ptr<const JobPlan>(std::move(plan));
}

// Where a rank's steps run: "cuda" and "hip" name no device, so that each rank of a machine takes its own, the one of its number among
// them; where the machine, or what its launcher shows of it, has one device, that is everybody's.
std::string device_of_rank(const std::string& device) {
  const World* const world = World::current();
  if (world == nullptr || (device != "cuda" && device != "hip")) return device;
  const std::vector<DeviceInfo> devices = list_devices();
  const auto count = std::count_if(devices.begin(), devices.end(), [&](const DeviceInfo& info) {
    return info.available && info.id.starts_with(device + ":");
  });
  return device + ":" + std::to_string(count == 1 ? 0 : world->local_rank());
}

Result<std::int64_t> own_rank(std::int64_t ranks) {
  if (ranks == 1) return 0;
  const World* const world = World::current();
  if (world == nullptr || world->size() != ranks)
    return Error{Errc::usage, "ranks " + std::to_string(ranks) +
                                  ": only train and replay run on several ranks (--ranks 1 runs here)"};
  return world->rank();
}

}  // namespace

Result<std::unique_ptr<Job>> Job::create(std::shared_ptr<const Prepared> prepared, const Algorithms& known,
                                         std::unique_ptr<BatchSource> batches, const CallerMemory* memory) {
  std::unique_ptr<Job> job(new Job());
  job->recipe_ = prepared->recipe;
  job->rank_ = TRY(own_rank(prepared->recipe.ranks)) / tensor_ranks(prepared->compiled.train.graph);
  job->data_ranks_ = data_ranks(*prepared);
  if (World* const world = World::current()) world->set_reduce_form(*reduce_form_of(prepared->recipe.reduce));
  TRY(check_apart(prepared->model, prepared->compiled.train.trainable));
  const Recipe& recipe = job->recipe_;
  job->optimizer_ = TRY(parse_optimizer(recipe.optimizer));
  job->schedule_ = TRY(parse_schedule(recipe.schedule));
  job->device_ = TRY(open_device(device_of_rank(recipe.device)));
  job->device_->set_strict_libraries(recipe.strict_libraries);
  LentMemory lent;
  if (memory != nullptr)
    lent = TRY(
        lent_memory(*memory, prepared->compiled.train.graph, prepared->compiled.plan, job->device_->info()));
  job->uses_callers_memory_ = !lent.states.empty();
  job->own_ = job->used_ = TRY(in_memory(std::move(prepared), *job->device_, &lent));
  if (memory != nullptr) TRY(memory->has_contents ? job->begin_averages(lent) : job->executor().load(lent));
  if (recipe.search > 1) TRY(job->choose_algorithms(known));
  job->batches_ = batches ? std::move(batches) : TRY(recipe_batches(recipe, job->own_->inputs));
  job->count_steps();
  job->kernels_ = kernel_infos(job->compiled().train.graph, job->compiled().plan);
  return job;
}

namespace {

// The states that every plan of a training keeps: all but copies of weights.
std::set<std::string_view> lasting_states(const TrainGraph& train) {
  const std::map<ValueId, ValueId> copies = weight_copies(train.graph);
  std::set<std::string_view> names;
  for (const Update& update : train.graph.updates)
    if (copies.count(update.state) == 0) names.insert(train.graph.values[update.state].name);
  return names;
}

}  // namespace

Result<std::shared_ptr<const JobPlan>> Job::plan_for(std::shared_ptr<const Prepared> other_sizes) {
  const TrainGraph &theirs = other_sizes->compiled.train, &ours = compiled().train;
  if (std::set<std::string>(theirs.trainable.begin(), theirs.trainable.end()) !=
      std::set<std::string>(ours.trainable.begin(), ours.trainable.end()))
    return Error{Errc::usage, "the model for other sizes trains other parameters"};
  if (lasting_states(theirs) != lasting_states(ours))
    return Error{Errc::usage, "the plan for other sizes keeps other states than this training"};
  std::map<std::string_view, ValueId> known;
  for (ValueId id = 0; id < ours.graph.values.size(); ++id) known[ours.graph.values[id].name] = id;
  const std::map<ValueId, ValueId> copies = weight_copies(theirs.graph);
  std::vector<std::pair<ValueId, ValueId>> shared;
  for (ValueId id = 0; id < theirs.graph.values.size(); ++id) {
    const Value& value = theirs.graph.values[id];
    if (value.producer != kNone || (value.role != Role::parameter && value.role != Role::state)) continue;
    if (other_sizes->compiled.plan.buffer_of[id] < 0) continue;
    const auto found = known.find(value.name);
    const bool same = found != known.end() && ours.graph.type(found->second) == value.type &&
                      compiled().plan.buffer_of[found->second] >= 0;
    if (same)
      shared.emplace_back(id, found->second);
    else if (copies.count(id) == 0)
      return Error{Errc::usage, "the model for other sizes needs '" + escaped(value.name) + "' as " +
                                    to_string(value.type) + ", which this training does not have"};
  }
  const LentMemory lent = own_->executor->lend(shared);
  return in_memory(std::move(other_sizes), *device_, &lent);
}

void Job::use(std::shared_ptr<const JobPlan> plan) {
  CHECK(pending() == 0, "another plan while steps are pending");
  used_ = plan ? std::move(plan) : own_;
}

Status Job::choose_algorithms(Algorithms known) {
  const Recipe& recipe = asked();
  for (const auto& [problem, bytes] : recipe.algorithms)
    if (known[problem].bytes != bytes) known[problem] = {bytes, 0};
  TRY(device_->set_algorithms(known));
  TRY(own_->executor->tune(static_cast<std::int32_t>(recipe.search)));
  algorithms_ = TRY(device_->algorithms());
  return {};
}

std::int64_t Job::first_batch(std::int64_t step) const {
  return own_->prepared->next_batch + (step - 1 - steps_before()) * batches_per_step();
}

// Rank r of N takes batches r, r + N, .. of a step, where r and N count groups that share parameters.
std::int64_t Job::own_batch(std::int64_t step, std::int64_t k) const {
  return first_batch(step) + k * data_ranks_ + rank_;
}

// Those that no step before this job has read.
std::int64_t Job::batches_of_epochs() const {
  return std::max<std::int64_t>(recipe_.epochs * data_batches() - own_->prepared->next_batch, 0);
}

void Job::count_steps() {
  if (recipe_.epochs == 0) return;
  const std::int64_t steps = batches_of_epochs() / batches_per_step();
  recipe_.steps = std::min(recipe_.steps, std::max<std::int64_t>(1, steps_before() + steps));
}

std::int64_t Job::batches_left_over() const {
  if (recipe_.epochs == 0) return 0;
  const std::int64_t left = batches_of_epochs() - (recipe_.steps - steps_before()) * batches_per_step();
  return left < batches_per_step() ? left : 0;
}

Job::Items Job::items_per_step() const {
  const std::int64_t micro_batches = batches_per_step();
  if (batches_->tokens() > 0) return {batches_->tokens() * micro_batches, "tokens"};
  for (const InputSpec& input : inputs())
    if (!input.type.shape.empty()) return {input.type.shape[0] * micro_batches, "samples"};
  return {micro_batches, "samples"};
}

// Of parameters in no group that has a rate of its own.
double Job::common_rate(std::int64_t step) const {
  return own_lr_.value_or(optimizer_.lr * schedule_.factor(step));
}

double Job::learning_rate(std::int64_t step) const {
  return own_options_.empty() || std::isnan(own_options_[0]) ? common_rate(step) : own_options_[0];
}

// The option with which a state is kept: 0 in the recipe means that there is none.
Result<std::size_t> Job::option_column(const std::string& name, double value) const {
  const OptimizerDef& def = optimizer_def(optimizer_.kind);
  const auto is_called = [&](const auto& option) { return name == option.name; };
  const auto option = std::find_if(def.options.begin(), def.options.end(), is_called);
  const auto followed =
      std::find(std::begin(optimizer_inputs::kFollowed), std::end(optimizer_inputs::kFollowed), name);
  const std::string whose = "optimizer " + std::string(def.name);
  if (option == def.options.end() || followed == std::end(optimizer_inputs::kFollowed))
    return Error{Errc::usage, whose + " has no option '" + escaped(name) + "' that may change"};
  if (optimizer_.kind == kernels::OptimizerKind::nadam && name == "beta1")
    return Error{Errc::usage,
                 whose + ": beta1 cannot change: its momenta are multiplied from the first update on"};
  if (!(value >= option->least && value <= option->most))
    return Error{Errc::usage, whose + ": no " + name + ": " + std::to_string(value)};
  const bool keeps = std::any_of(def.states.begin(), def.states.end(),
                                 [&](const OptimizerStateDef& state) { return name == state.needs; });
  if (keeps && value != 0 && optimizer_.*option->number == 0)
    return Error{Errc::usage, whose + " began with " + name + "=0, and keeps nothing for another"};
  if (device().id.rfind("cpu", 0) != 0)
    return Error{Errc::usage, whose + ": " + name + " cannot change on a GPU, lr can"};
  return 1 + static_cast<std::size_t>(followed - std::begin(optimizer_inputs::kFollowed));
}

Status Job::set_option(std::int64_t group, const std::string& option, double value) {
  const std::int64_t groups = group_numbers(options().train.groups);
  if (group < 0 || group >= groups)
    return Error{Errc::usage, "there is no group " + std::to_string(group) + ": the recipe numbers " +
                                  std::to_string(groups)};
  own_options_.resize(static_cast<std::size_t>(groups) * optimizer_inputs::kColumns, std::nan(""));
  double* const row = own_options_.data() + static_cast<std::size_t>(group) * optimizer_inputs::kColumns;
  if (option == "lr") {
    if (!(value >= 0 && value <= 1e30))
      return Error{Errc::usage, "no learning rate: " + std::to_string(value)};
    row[0] = value;
    return {};
  }
  row[TRY(option_column(option, value))] = value;
  return {};
}

StepOptions Job::step_options(std::int64_t step) const {
  StepOptions options;
  options.step = step;
  options.lr = learning_rate(step);
  options.options = own_options_;
  for (std::size_t at = 0; at < options.options.size(); at += optimizer_inputs::kColumns)
    if (std::isnan(options.options[at])) options.options[at] = common_rate(step);
  options.seed = recipe_.seed;
  options.micro_batches = this->options().train.accumulate;
  options.rank = rank_;
  options.ranks = data_ranks_;
  options.record = recipe_.record;
  return options;
}

Status Job::feed(const std::map<std::string, Tensor>& batch) {
  for (std::size_t i = 0; i < used_->fed.size(); ++i)
    TRY(used_->executor->feed(used_->fed[i], batch.at(used_->inputs[i].name)));
  return {};
}

// One batch is in memory at a time. The first is made before the step's time begins; what making the others
// takes on the CPU is taken off it again, a device that queues works meanwhile.
Status Job::submit(std::int64_t step, bool timed) {
  std::map<std::string, Tensor> batch = TRY(batches_->batch(own_batch(step, 0)));
  StepOptions options = step_options(step);
  options.timed = timed;
  std::int64_t made_ns = 0;
  TRY(used_->executor->submit(used_->prepared->compiled.train.names, options, [&](std::int64_t k) -> Status {
    if (k > 0) {
      const std::int64_t start_ns = monotonic_ns();
      batch.clear();
      batch = TRY(batches_->batch(own_batch(step, k)));
      made_ns += monotonic_ns() - start_ns;
    }
    return feed(batch);
  }));
  made_ns_.push_back(depth() == 0 ? made_ns : 0);
  return {};
}

Status Job::observe(std::int64_t step, const Observer& observer) {
  return used_->executor->observe(
      used_->prepared->compiled.train.names, step_options(step),
      [&](std::int64_t k) -> Status { return feed(TRY(batches_->batch(own_batch(step, k)))); }, observer);
}

Result<StepResult> Job::collect() {
  StepOutcome outcome = TRY(used_->executor->collect());
  StepResult result;
  result.step = outcome.step;
  result.loss = outcome.loss;
  result.grad_norm = outcome.grad_norm;
  result.loss_scale = outcome.loss_scale;
  result.skipped = outcome.skipped;
  result.lr = learning_rate(outcome.step);
  result.step_ns = outcome.end_ns - outcome.start_ns - made_ns_.front();
  made_ns_.pop_front();
  result.end_ns = outcome.end_ns;
  result.samples = std::move(outcome.samples);
  result.times_from = std::move(outcome.times_from);
  result.activities = std::move(outcome.activities);
  return result;
}

Result<StepResult> Job::step(std::int64_t step, bool timed) {
  TRY(submit(step, timed));
  return collect();
}

Result<std::map<std::string, Tensor>> Job::parameters_by(ReadValue read) const {
  const Graph& graph = compiled().train.graph;
  std::map<std::string, Tensor> result;
  std::map<std::string, DType> types;  // of the model: weights may be trained in 16 bits
  for (const ValueId id : model().graph.parameters)
    types[model().graph.values[id].name] = model().graph.type(id).dtype;
  for (ValueId id : graph.parameters) {
    const std::string& name = graph.values[id].name;
    // What nothing of this rank's step reads or updates is as it began.
    Tensor contents =
        own_->executor->holds(id) ? TRY((*own_->executor.*read)(id)) : TRY(graph.values[id].data.loaded());
    const auto type = types.find(name);
    result[name] = type == types.end() ? contents : contents.cast(type->second);
  }
  std::set<std::string> statistics;  // states of the model, not of the optimizer
  for (const Value& v : model().graph.values)
    if (v.role == Role::state) statistics.insert(v.name);
  for (const Update& u : graph.updates)
    if (const std::string& name = graph.values[u.state].name; statistics.count(name) != 0)
      result[name] = TRY((*own_->executor.*read)(u.state));
  return result;
}

Result<std::map<std::string, Tensor>> Job::parameters() const { return parameters_by(&Executor::read); }

// Where the caller's memory says what parameters begin with, and no file what their averages do.
Status Job::begin_averages(const LentMemory& lent) {
  const TrainGraph& train = compiled().train;
  if (!recipe_.load_optimizer.empty()) return {};
  for (const TrainState& state : train.states) {
    const ValueId parameter = state.name == kAverage ? find_value(train.graph, state.parameter) : kNone;
    if (parameter == kNone || lent.states.count(parameter) == 0) continue;
    TRY(executor().write(find_value(train.graph, state.value), TRY(executor().view(parameter))));
  }
  return {};
}

Result<std::map<std::string, Tensor>> Job::parameter_views() const { return parameters_by(&Executor::view); }

Result<std::map<std::string, Tensor>> Job::result_views() const {
  std::map<std::string, Tensor> views = TRY(parameter_views());
  const TrainGraph& train = compiled().train;
  for (const TrainState& state : train.states)
    if (state.name == kAverage)
      views[state.parameter] = TRY(own_->executor->view(find_value(train.graph, state.value)));
  return views;
}

}  // namespace gradloom
