#include "app/training_state.h"

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "app/parameter_file.h"
#include "app/ranks.h"
#include "engine/base/names.h"
#include "engine/base/text.h"
#include "engine/ops/collectives/parameter_part.h"
#include "engine/ops/products/fp8.h"
#include "engine/ops/rank_part.h"
#include "engine/ranks/world.h"
#include "engine/train/eight_bit.h"
#include "engine/train/state_ranges.h"
#include "engine/train/weight_copies.h"
#include "kernels/nadam.h"

namespace gradloom {
namespace {

// As torch.optim's state_dict calls them; those of Adafactor as transformers' does.
struct Renamed {
  std::string_view ours, torch;
};
constexpr Renamed kRenamed[] = {{"m", "exp_avg"},           {"v", "exp_avg_sq"},
                                {"vmax", "max_exp_avg_sq"}, {"momentum", "momentum_buffer"},
                                {"row", "exp_avg_sq_row"},  {"column", "exp_avg_sq_col"}};
constexpr std::string_view kUpdates = ".step";  // PyTorch's count of updates, one per parameter

// NAdam's momenta of all updates, multiplied: here a function of their count, in PyTorch a tensor of each parameter.
constexpr std::string_view kMomenta = ".mu_product";
double momenta_of(const OptimizerSpec& nadam, std::int64_t updates) {
  const auto t = static_cast<double>(updates);
  return std::pow(nadam.beta1, t) * std::exp(kernels::portable::momentum_logarithms(nadam.momentum_decay, t));
}

std::string torch_name(const std::string& state) {
  for (const Renamed& row : kRenamed)
    if (state == row.ours) return std::string(row.torch);
  return state;
}

std::string key_of(const TrainState& state) { return state.parameter + "." + torch_name(state.name); }

// Of loss scaling (LossScaleState and Checkpoint::made_steps): scalars in state.json.
constexpr const char *kScale = "loss_scale", *kGood = "good_steps", *kSkipped = "skipped_steps",
                     *kMade = "made_steps";
bool is_of_loss_scaling(const TrainState& state) {
  return state.parameter.empty() &&
         (state.name == kScale || state.name == kGood || state.name == kSkipped || state.name == kMade);
}

struct KeptState {
  std::string key;  // in the checkpoint
  ValueId id;
  const TrainState* state = nullptr;       // null: of another kind
  std::optional<ElementRange> range = {};  // of the parameter's elements, where others are on other ranks
  bool own = false;                        // no other rank has it
  std::optional<ParameterPart> part = {};  // that ranks share
  Shape parameter = {};                    // of the whole one, where it is of one
};

// The states of the step that are not the model's own.
std::vector<KeptState> kept_states(const ImportedModel& model, const Compiled& compiled) {
  const Graph& graph = compiled.train.graph;
  std::set<std::string_view> own;
  for (const ValueId id : graph.parameters) own.insert(graph.values[id].name);
  for (const Value& v : model.graph.values)
    if (v.role == Role::state) own.insert(v.name);
  std::map<std::string_view, const TrainState*> listed;
  for (const TrainState& state : compiled.train.states) listed[state.value] = &state;
  const std::map<ValueId, ValueId> copies = weight_copies(graph);
  const std::map<ValueId, ElementRange> ranges = state_ranges(graph);
  const std::set<ValueId> apart = own_states(graph);
  const std::map<ValueId, ParameterPart> parts = parameter_parts(graph);
  const std::map<ValueId, OwnRange> own_ranges = parameter_ranges(graph);
  std::vector<KeptState> kept;
  for (const Update& u : graph.updates) {
    if (copies.count(u.state) != 0) continue;
    const std::string& name = graph.values[u.state].name;
    const auto found = listed.find(name);
    const TrainState* const state = found == listed.end() ? nullptr : found->second;
    if (own.count(name) != 0 || (state != nullptr && !state->remembered)) continue;
    const bool named = state != nullptr && !state->parameter.empty();
    kept.push_back({named ? key_of(*state) : name, u.state, state});
    kept.back().own = apart.count(u.state) != 0;
    const ValueId parameter = named ? find_value(graph, state->parameter) : kNone;
    if (const auto part = parts.find(parameter);
        part != parts.end() && graph.type(u.state).shape == graph.type(parameter).shape)
      kept.back().part = part->second;
    if (const auto range = ranges.find(u.state); range != ranges.end()) kept.back().range = range->second;
    const auto own_range = own_ranges.find(parameter);
    if (own_range != own_ranges.end())
      kept.back().parameter = own_range->second.whole;
    else if (parameter != kNone)
      kept.back().parameter = graph.type(parameter).shape;
  }
  return kept;
}

// States of 8 bits are two tensors in a checkpoint.
std::string codes_of(const std::string& key) { return key + ".codes"; }
std::string scales_of(const std::string& key) { return key + ".scales"; }

// The scalars of loss scaling. A checkpoint of another precision has none but the count of updates.
Status set_loss_scaling(const OptimizerFile& from, const TrainState& state, Value& value) {
  const auto set = [&](double number) { value.data = Tensor::scalar(value.type.dtype, number); };
  const auto count = [&](std::int64_t steps) {
    value.data = Tensor(value.type.dtype, {});
    value.data.mutable_as<std::int64_t>()[0] = steps;
  };
  if (state.name == kMade) count(from.made_steps);
  if (!from.loss_scale) return {};
  if (state.name == kScale) set(from.loss_scale->scale);
  if (state.name == kGood) count(from.loss_scale->good_steps);
  if (state.name == kSkipped) count(from.loss_scale->skipped_steps);
  return {};
}

// What a file calls a state: its key or, where it is of a tied weight, that of the other name.
std::string key_in(const OptimizerFile& from, const KeptState& kept, const ImportedModel& model) {
  const auto is_there = [&](const std::string& key) {
    return from.tensors.count(key) != 0 || from.tensors.count(codes_of(key)) != 0;
  };
  if (kept.state == nullptr || is_there(kept.key)) return kept.key;
  for (const TiedCopy& tied : model.tied_copies) {
    const std::string other = tied.copy + kept.key.substr(kept.state->parameter.size());
    if (tied.original == kept.state->parameter && !tied.transposed && is_there(other)) return other;
  }
  return kept.key;
}

// A tensor of a file, or those of its elements that this training keeps, as `whole` wants it.
Result<Tensor> elements_in(const OptimizerFile& from, const std::string& name, const Type& whole,
                           const std::optional<ElementRange>& range) {
  const auto it = from.tensors.find(name);
  if (it == from.tensors.end())
    return Error{Errc::bad_input, from.path + ": no '" + escaped(name) + "'" + from.without + from.hint};
  const std::string called = from.path + ": '" + escaped(name) + "'";
  const bool cut = range && it->second.shape() == whole.shape;
  if (from.shards)
    TRY(from.shards->check(name, cut ? range->begin : 0, cut ? range->count : it->second.count()));
  if (!cut) return tensor_as(it->second, whole, called);
  return tensor_as(TRY(elements_of(it->second, *range)), {whole.dtype, {range->count}}, called);
}

// The state in the file as this training keeps it: what is of 8 bits in one of both is encoded or decoded. The names that it has
// there are added to `known`.
Result<Tensor> contents_of(const OptimizerFile& from, const KeptState& kept, const std::string& key,
                           const Graph& graph, std::set<std::string>& known) {
  const Type& type = graph.type(kept.id);
  const bool encoded = kept.state != nullptr && kept.state->encoded;
  const Shape shape = encoded || kept.range ? kept.parameter
                      : kept.part           ? kept.part->whole(type.shape)
                                            : type.shape;
  const auto own = [&](Tensor whole) -> Result<Tensor> {
    return kept.part ? cut_part(whole, *kept.part, own_part(kept.part->parts)) : whole;
  };
  if (kept.state != nullptr && from.tensors.count(key) == 0 && from.tensors.count(codes_of(key)) != 0) {
    std::optional<ElementRange> scales;
    if (kept.range) scales = scale_blocks_of(*kept.range);
    const EightBitState state{TRY(elements_in(from, codes_of(key), codes_type(shape), kept.range)),
                              TRY(elements_in(from, scales_of(key), scales_type(shape), scales))};
    known.insert({codes_of(key), scales_of(key)});
    if (encoded) return joined_state(state);
    return own(TRY(decoded_state(state, kept.state->range)).cast(type.dtype));
  }
  const Tensor numbers = TRY(elements_in(from, key, {encoded ? DType::f32 : type.dtype, shape}, kept.range));
  known.insert(key);
  return encoded ? encoded_state(numbers, kept.state->range) : own(numbers);
}

// How many updates a tensor of one number says were made; -1: it is no such count.
std::int64_t count_in(const Tensor& tensor) {
  const double count = tensor.at(0);
  return count >= 0 && count <= 0x1p52 && count == std::floor(count) ? static_cast<std::int64_t>(count) : -1;
}

// PyTorch's product is rounded to f32 with every update.
Status check_momenta(const OptimizerFile& from, const std::string& key, const OptimizerSpec& nadam) {
  const Tensor found = TRY(from.tensors.at(key).loaded());
  const double expected = momenta_of(nadam, from.made_steps);
  if (found.count() == 1 && std::fabs(found.at(0) - expected) <= 1e-3 * expected + 1e-6) return {};
  return Error{Errc::bad_input, from.path + ": '" + escaped(key) + "' is not that of " +
                                    std::to_string(from.made_steps) + " updates with " +
                                    print_optimizer(nadam)};
}

// What this rank has of a state, by names of a checkpoint.
void add_parts(const KeptState& kept, Tensor contents, StateParts& parts) {
  const std::int64_t begin = kept.range ? kept.range->begin : 0;
  if (kept.state == nullptr || !kept.state->encoded) {
    const Shape whole = kept.range ? kept.parameter : contents.shape();
    parts[kept.key] = {std::move(contents), whole, begin};
    return;
  }
  const Shape& shape = kept.parameter;
  EightBitState split = split_state(contents, kept.range ? Shape{kept.range->count} : shape);
  parts[codes_of(kept.key)] = {std::move(split.codes), codes_type(shape).shape, begin};
  parts[scales_of(kept.key)] = {std::move(split.scales), scales_type(shape).shape,
                                scale_blocks_of({begin, 0}).begin};
}

// What loss scaling keeps.
Status read_loss_scaling(const Job& job, const std::vector<KeptState>& kept, Checkpoint& c) {
  LossScaleState scale;
  bool scaled = false;
  for (const KeptState& one : kept) {
    if (one.state == nullptr || !is_of_loss_scaling(*one.state)) continue;
    const Tensor contents = TRY(job.state_view(one.id));
    scaled = true;
    if (one.state->name == kScale) scale.scale = contents.at(0);
    if (one.state->name == kGood) scale.good_steps = contents.int_at(0);
    if (one.state->name == kSkipped) scale.skipped_steps = contents.int_at(0);
    if (one.state->name == kMade) c.made_steps = contents.int_at(0);
  }
  if (scaled) c.loss_scale = scale;
  return {};
}

}  // namespace

Result<Checkpoint> checkpoint_without_states(const Job& job, std::int64_t step) {
  Checkpoint c;
  c.step = c.made_steps = step;
  c.next_batch = job.first_batch(step + 1);
  c.seed = job.recipe().seed;
  c.recipe = with_absolute_paths(job.asked());
  c.recipe.expect.reset();
  if (!job.algorithms().empty()) c.recipe.algorithms.clear();
  for (const auto& [problem, algorithm] : job.algorithms()) c.recipe.algorithms[problem] = algorithm.bytes;
  c.model = with_buffers(TRY(with_whole_parameters(job, TRY(job.parameter_views()))), job.model());
  TRY(read_loss_scaling(job, kept_states(job.model(), job.compiled()), c));
  return c;
}

Result<std::map<std::string, Tensor>> results_in(const Checkpoint& checkpoint, const Job& job) {
  const OptimizerFile optimizer = optimizer_file(checkpoint);
  std::map<std::string, const TrainState*> averages;
  for (const TrainState& state : job.compiled().train.states)
    if (state.name == kAverage) averages[state.parameter] = &state;
  std::map<std::string, Tensor> results;
  for (const auto& [name, view] : TRY(job.result_views())) {
    const auto there = checkpoint.model.tensors.find(name);
    if (there == checkpoint.model.tensors.end())
      return Error{Errc::bad_input, escaped(checkpoint.path) + ": no '" + escaped(name) + "'"};
    const Type type{view.dtype(), there->second.shape()};
    const auto average = averages.find(name);
    const Tensor contents =
        average == averages.end()
            ? TRY(tensor_as(there->second, type, escaped(checkpoint.path) + ": '" + escaped(name) + "'"))
            : TRY(elements_in(
                  optimizer,
                  key_in(optimizer, {key_of(*average->second), kNone, average->second}, job.model()), type,
                  std::nullopt));
    results[name] = TRY(contents.loaded());
  }
  return results;
}

// What all ranks have is rank 0's to write. The count of a parameter's updates goes with its first elements.
Result<StateParts> states_to_write(const Job& job, std::int64_t made_steps) {
  const Compiled& compiled = job.compiled();
  const OptimizerSpec optimizer = TRY(parse_optimizer(job.recipe().optimizer));
  const bool first_rank = !keeps_states_apart(job) || World::current()->rank() == 0;
  StateParts parts;
  std::set<std::string> counted,
      everywhere;  // parameters whose first elements are here; with states on every rank
  for (const KeptState& kept : kept_states(job.model(), compiled)) {
    if (kept.state != nullptr && is_of_loss_scaling(*kept.state)) continue;
    if (kept.state != nullptr && !kept.own) everywhere.insert(kept.state->parameter);
    if (!kept.own && !first_rank) continue;
    add_parts(kept, TRY(job.state_view(kept.id)), parts);
    if (kept.state != nullptr && (!kept.range || kept.range->begin == 0))
      counted.insert(kept.state->parameter);
  }
  const auto add_scalar = [&](const std::string& key, double number) {
    parts.try_emplace(key, StatePart{Tensor::scalar(DType::f32, number), {}, 0});
  };
  for (const std::string& parameter : counted) {
    if (!first_rank && everywhere.count(parameter) != 0) continue;
    add_scalar(parameter + std::string(kUpdates), static_cast<double>(made_steps));
    if (optimizer.kind == kernels::OptimizerKind::nadam)
      add_scalar(parameter + std::string(kMomenta), momenta_of(optimizer, made_steps));
  }
  return parts;
}

std::map<std::string, std::string> states_metadata(const Checkpoint& checkpoint) {
  return {{"format", "pt"},
          {"optimizer", checkpoint.recipe.optimizer},
          {"step", std::to_string(checkpoint.step)}};
}

// States are whole then where their parameters are.
Result<Checkpoint> checkpoint_of(const Job& job, std::int64_t step) {
  Checkpoint c = TRY(checkpoint_without_states(job, step));
  StateParts parts = TRY(states_to_write(job, c.made_steps));
  if (has_parts(job)) {
    std::map<std::string, ParameterPart> shared;
    for (const KeptState& kept : kept_states(job.model(), job.compiled()))
      if (kept.part) shared[kept.key] = *kept.part;
    c.optimizer = {TRY(with_whole(TRY(joined(std::move(parts))), shared)), states_metadata(c)};
    return c;
  }
  c.optimizer = {TRY(keeps_states_apart(job) ? gather_states(std::move(parts)) : joined(std::move(parts))),
                 states_metadata(c)};
  return c;
}

OptimizerFile optimizer_file(const Checkpoint& checkpoint) {
  const std::string path = escaped(checkpoint.path) + "/";
  return {.path = path + kOptimizerFile,
          .without = ", which " + escaped(checkpoint.recipe.optimizer) + " did not keep",
          .hint = " (--load-params " + path + kModelFile + " begins anew with the parameters alone)",
          .tensors = checkpoint.optimizer.tensors,
          .made_steps = checkpoint.made_steps,
          .loss_scale = checkpoint.loss_scale,
          .shards = checkpoint.shards};
}

Result<OptimizerFile> read_optimizer_file(const std::string& path) {
  OptimizerFile file{.path = escaped(path),
                     .without = ", which the optimizer keeps",
                     .tensors = TRY(read_parameter_file(path)).tensors,
                     .foreign = true};
  const Tensor* first = nullptr;
  for (const auto& [name, tensor] : file.tensors) {
    if (name != kUpdates.substr(1) && !name.ends_with(kUpdates)) continue;
    const std::int64_t count = tensor.count() == 1 ? count_in(TRY(tensor.loaded())) : -1;
    if (count < 0)
      return Error{Errc::bad_input, file.path + ": '" + escaped(name) +
                                        "' is no count of updates: " + to_string(tensor.type())};
    if (first != nullptr && count != file.made_steps)
      return Error{Errc::bad_input, file.path + ": '" + escaped(name) + "' says " + std::to_string(count) +
                                        " updates, others " + std::to_string(file.made_steps)};
    file.made_steps = count;
    first = &tensor;
  }
  if (first == nullptr)
    return Error{Errc::bad_input, file.path +
                                      ": it does not say how many updates were made: no 'step' and no "
                                      "'<parameter>.step'"};
  file.tensors.erase(std::string(kUpdates.substr(1)));
  return file;
}

Status set_states(const OptimizerFile& from, const ImportedModel& model, const OptimizerSpec& optimizer,
                  Compiled& compiled) {
  Graph& graph = compiled.train.graph;
  std::set<std::string> known;
  const std::set<ValueId> scaling = fp8_states(graph);
  for (const KeptState& kept : kept_states(model, compiled)) {
    Value& value = graph.values[kept.id];
    if (kept.state != nullptr && is_of_loss_scaling(*kept.state)) {
      TRY(set_loss_scaling(from, *kept.state, value));
      continue;
    }
    const std::string key = key_in(from, kept, model);
    const bool average = kept.state != nullptr && kept.state->name == kAverage;
    const bool may_lack = (average && from.foreign) || scaling.count(kept.id) != 0;
    if (may_lack && from.tensors.count(key) == 0) continue;
    value.data = TRY(contents_of(from, kept, key, graph, known));
    if (kept.state != nullptr) known.insert(key.substr(0, key.rfind('.')) + std::string(kUpdates));
  }
  // Other ranks may keep some.
  for (const TrainState& state : compiled.train.states) {
    if (state.parameter.empty() || !state.remembered) continue;
    const std::string key = key_in(from, {key_of(state), kNone, &state}, model);
    known.insert({key, codes_of(key), scales_of(key), key.substr(0, key.rfind('.')) + std::string(kUpdates)});
  }
  if (optimizer.kind == kernels::OptimizerKind::nadam) {
    for (const auto& [key, tensor] : from.tensors) {
      if (!key.ends_with(kMomenta)) continue;
      TRY(check_momenta(from, key, optimizer));
      if (known.count(key.substr(0, key.size() - kMomenta.size()) + std::string(kUpdates)) != 0)
        known.insert(key);
    }
  }
  for (const auto& [key, tensor] : from.tensors)
    if (known.count(key) == 0 && key.rfind(kFp8StatePrefix, 0) != 0)
      return Error{Errc::bad_input,
                   from.path + ": '" + escaped(key) +
                       "' is of another optimizer, or of a parameter that is not trained now" + from.hint};
  return {};
}

}  // namespace gradloom
