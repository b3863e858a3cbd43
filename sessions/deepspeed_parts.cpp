#include "sessions/deepspeed_parts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "engine/base/text.h"
#include "passes/precision.h"
#include "sessions/json_schema.h"

namespace gradloom {
namespace {

using nlohmann::json;

// The fields of `rows` that differ from those of `usual`, and those named in `always`.
std::string differing(const std::vector<FieldRow>& rows, const std::vector<FieldRow>& usual,
                      std::string_view always = "") {
  std::string text;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].name == always || rows[i].value != usual[i].value)
      text += (text.empty() ? "" : ",") + rows[i].name + "=" + rows[i].value;
  return text.empty() ? "" : "{" + text + "}";
}

template <class Spec>
std::vector<FieldRow> rows_of(Spec spec) {
  return list_fields([&](FieldVisitor& v) { spec.fields(v); });
}

struct KeyReason {
  const char *path, *why;
};

// Documented keys without a counterpart; other keys are unknown to DeepSpeed too, or newer than this list.
constexpr KeyReason kReasons[] = {
    {"/activation_checkpointing", "recompute and memory_budget say what runs again"},
    {"/aio", "nothing waits on disks here"},
    {"/autotuning", "gradloom tune searches"},
    {"/checkpoint", "train --checkpoint writes checkpoints"},
    {"/comet", "runs are kept in sessions"},
    {"/comms_logger", "the time line of a run has its exchanges"},
    {"/compile", "passes are the compiler"},
    {"/compression_training", "nothing is pruned or quantized here"},
    {"/csv_monitor", "gradloom trace writes CSV"},
    {"/curriculum_learning", "batches come in the order of the data"},
    {"/data_efficiency", "batches come in the order of the data"},
    {"/data_types", "gradients are summed in f32"},
    {"/dataloader_drop_last", "batches are whole here"},
    {"/disable_allgather", "parameters that one rank updates go to all, each as it is"},
    {"/dump_state", "gradloom show and the recipe hold the state"},
    {"/eigenvalue", "nothing of the kind"},
    {"/elasticity", "the number of ranks stays"},
    {"/flops_profiler", "gradloom show and report have FLOPs"},
    {"/gradient_predivide_factor", "gradients are averaged in the order of the ranks"},
    {"/graph_harvesting", "record says whether launches are one graph"},
    {"/hybrid_engine", "nothing of the kind"},
    {"/managed_gradient_accumulation", "the step has its accumulation in it"},
    {"/memory_breakdown", "gradloom plan shows the memory"},
    {"/nebula", "train --checkpoint writes checkpoints"},
    {"/pipeline", "a model is not divided between ranks"},
    {"/prescale_gradients", "gradients are averaged in the order of the ranks"},
    {"/progressive_layer_drop", "nothing of the kind"},
    {"/seq_parallel_communication_data_type", "a model is not divided between ranks"},
    {"/sparse_attention", "attention is the model's"},
    {"/sparse_gradients", "gradients of embeddings are dense"},
    {"/steps_per_print", "progress is printed as it comes"},
    {"/tensor_parallel", "pass tensor-parallel{size=N} lets each N ranks share weights and batches"},
    {"/tensorboard", "runs are kept in sessions"},
    {"/timers", "profile says which steps are timed"},
    {"/use_data_before_expert_parallelism", "a model is not divided between ranks"},
    {"/vocabulary_size", "the model has it"},
    {"/wall_clock_breakdown", "profile says which steps are timed"},
    {"/wandb", "runs are kept in sessions"},
    {"/zero_allow_untested_optimizer", "every optimizer may be divided"},
    {"/zero_force_ds_cpu_optimizer", "the optimizer runs where the step does"},
    {"/optimizer/legacy_fusion", "a pass fuses updates"},
    {"/optimizer/params/max_grad_norm", "DeepSpeed refuses it: gradient_clipping"},
    {"/optimizer/params/eps_inside_sqrt", "eps is added to the root"},
    {"/fp16/auto_cast", "inputs stay as the model has them"},
    {"/fp16/fp16_master_weights_and_grads", "parameters stay f32"},
    {"/bf16/immediate_grad_update", "gradients are summed in the step"},
    {"/bf16/check_overflow", "a loss that is not finite ends the training"},
    {"/bf16/bf16_master_weights_and_grads", "precision bf16{weights=low} is nearest"},
    {"/bf16/bf16_optimizer_states", "the option eight_bit_states of optimizers is nearest"},
    {"/torch_autocast/lower_precision_safe_modules", "precision has lists of operators: full and low"},
    {"/zero_optimization/allgather_partitions", "parameters that one rank updates go to all, each as it is"},
    {"/zero_optimization/allgather_bucket_size", "parameters that one rank updates go to all, each as it is"},
    {"/zero_optimization/contiguous_gradients", "gradients have their planned place"},
    {"/zero_optimization/reduce_scatter", "a gradient goes to the rank that owns it, or its parts to all"},
    {"/zero_optimization/offload_optimizer", "the optimizer's state stays with its parameter"},
    {"/zero_optimization/offload_param", "parameters stay on the device"},
    {"/zero_optimization/cpu_offload", "the optimizer's state stays with its parameter"},
    {"/zero_optimization/round_robin_gradients", "every rank has a part of each large gradient"},
};

std::string why_not(const std::string& path, const json& value) {
  const bool off =
      value == false || (value.is_object() && value.contains("enabled") && value["enabled"] == false);
  if (off) return "off there, and here";
  for (const KeyReason& reason : kReasons)
    if (path == reason.path) return reason.why;
  if (path.starts_with("/zero_optimization/")) return "no counterpart";
  if (std::count(path.begin(), path.end(), '/') > 1) return "unknown key";
  std::vector<std::string> known{"train_batch_size",
                                 "train_micro_batch_size_per_gpu",
                                 "gradient_accumulation_steps",
                                 "optimizer",
                                 "scheduler",
                                 "gradient_clipping",
                                 "zero_optimization"};
  for (const KeyReason& reason : kReasons)
    if (std::string_view(reason.path).find('/', 1) == std::string_view::npos)
      known.emplace_back(reason.path + 1);
  return unknown_key(path.substr(1), known);
}

std::string shortened(const json& value) {
  constexpr std::size_t kMost = 80;
  const std::string text = value.dump(-1, ' ', true);
  return text.size() <= kMost ? text : text.substr(0, kMost - 3) + "...";
}

}  // namespace

bool has_option(kernels::OptimizerKind kind, std::string_view name) {
  const auto options = optimizer_def(kind).options;
  return std::any_of(options.begin(), options.end(),
                     [&](const OptimizerOption& option) { return name == option.name; });
}

bool is_of_torch_alone(kernels::OptimizerKind kind) {
  using kernels::OptimizerKind;
  switch (kind) {
    case OptimizerKind::sgd:
    case OptimizerKind::adagrad:
    case OptimizerKind::rmsprop:
    case OptimizerKind::nadam:
    case OptimizerKind::radam:
    case OptimizerKind::adadelta: return true;
    default: return false;
  }
}

std::string optimizer_text(const OptimizerSpec& spec) {
  return optimizer_def(spec.kind).name + differing(rows_of(spec), rows_of(OptimizerSpec(spec.kind)), "lr");
}

std::string schedule_text(const ScheduleSpec& spec) {
  ScheduleSpec usual;
  usual.name = spec.name;
  return spec.name + differing(rows_of(spec), rows_of(usual));
}

std::string loss_scale_text(const LossScaleSpec& spec) {
  LossScaleSpec usual;
  usual.dynamic = spec.dynamic;
  return (spec.dynamic ? "dynamic" : "static") +
         differing(rows_of(spec), rows_of(usual), spec.dynamic ? "" : "scale");
}

double gradient_bytes(const Recipe& recipe) {
  for (const RecipePass& pass : recipe.passes)
    if (pass.name == kBucketPass && option_of(pass, "dtype") == "bf16") return 2;
  const std::string type = precision_type_name(recipe.precision);
  return type == "f64" ? 8 : type == "f32" ? 4 : 2;
}

std::string option_of(const RecipePass& pass, const std::string& name) {
  for (const auto& [option, value] : pass.options)
    if (option == name) return value;
  const auto made = find_pass(pass.name)->make();
  for (const FieldRow& row : list_fields([&](FieldVisitor& v) { made->fields(v); }))
    if (row.name == name) return row.value;
  return "";
}

std::int64_t zero_stage(const Recipe& recipe) {
  for (const RecipePass& pass : recipe.passes)
    if (pass.name == kZeroPass) return std::strtoll(option_of(pass, "stage").c_str(), nullptr, 10);
  return 0;
}

void set_option(RecipePass& pass, const std::string& name, const std::string& value) {
  std::erase_if(pass.options, [&](const auto& option) { return option.first == name; });
  if (option_of(pass, name) == value) return;  // its default
  pass.options.emplace_back(name, value);
  std::sort(pass.options.begin(), pass.options.end());  // as set_pipeline leaves them
}

double rounded_quotient(double a, double b) {
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", a / b);
  const double rounded = std::strtod(text, nullptr);
  return a / rounded == b ? rounded : a / b;
}

// ---- DeepSpeedObject ----

Error DeepSpeedObject::refuse(const std::string& key, const std::string& why) const {
  return {Errc::bad_input, path_ + "/" + escaped(key) + ": " + why};
}

const json* DeepSpeedObject::take(const std::string& key) {
  const auto found = value_->find(key);
  if (found == value_->end()) return nullptr;
  const bool first = taken_.insert(key).second;
  if (found->is_null()) return nullptr;
  if (*found != "auto") return &*found;
  if (first) notes_->push_back({path_ + "/" + key, "auto", "left to the recipe's own"});
  return nullptr;
}

bool DeepSpeedObject::has(const std::string& key) const { return value_->contains(key); }
bool DeepSpeedObject::is_auto(const std::string& key) const {
  return value_->contains(key) && (*value_)[key] == "auto";
}
bool DeepSpeedObject::is_flag(const std::string& key) const {
  return value_->contains(key) && (*value_)[key].is_boolean();
}

Result<std::optional<double>> DeepSpeedObject::number(const std::string& key, double least, double most) {
  const json* const value = take(key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return refuse(key, std::string("must be a number, not ") + value->type_name());
  const double number = value->get<double>();
  if (number < least) return refuse(key, "must be at least " + number_text(least));
  if (!(number <= most)) return refuse(key, "must be at most " + number_text(most));
  return std::optional<double>(number);
}

Result<std::optional<std::int64_t>> DeepSpeedObject::integer(const std::string& key, double least,
                                                             double most) {
  const std::optional<double> value = TRY(number(key, least, most));
  if (!value) return std::optional<std::int64_t>();
  if (*value != std::floor(*value)) return refuse(key, "must be an integer");
  return std::optional<std::int64_t>(static_cast<std::int64_t>(*value));  // 5e8 is written often
}

Result<std::optional<bool>> DeepSpeedObject::flag(const std::string& key) {
  const json* const value = take(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean())
    return refuse(key, std::string("must be true or false, not ") + value->type_name());
  return std::optional<bool>(value->get<bool>());
}

Result<std::optional<std::string>> DeepSpeedObject::text(const std::string& key) {
  const json* const value = take(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return refuse(key, std::string("must be a text, not ") + value->type_name());
  return std::optional<std::string>(value->get<std::string>());
}

Result<std::optional<std::pair<double, double>>> DeepSpeedObject::pair(const std::string& key, double least,
                                                                       double most) {
  const json* const value = take(key);
  if (value == nullptr) return std::optional<std::pair<double, double>>();
  const bool two =
      value->is_array() && value->size() == 2 && (*value)[0].is_number() && (*value)[1].is_number();
  if (!two) return refuse(key, "must be two numbers");
  const std::pair<double, double> numbers{(*value)[0].get<double>(), (*value)[1].get<double>()};
  for (const double number : {numbers.first, numbers.second})
    if (!(number >= least && number <= most))
      return refuse(key, "must be from " + number_text(least) + " to " + number_text(most));
  return std::optional<std::pair<double, double>>(numbers);
}

Result<std::optional<DeepSpeedObject>> DeepSpeedObject::object(const std::string& key) {
  const json* const value = take(key);
  if (value == nullptr) return std::optional<DeepSpeedObject>();
  if (!value->is_object()) return refuse(key, std::string("must be an object, not ") + value->type_name());
  return std::optional<DeepSpeedObject>(DeepSpeedObject(*value, path_ + "/" + key, *notes_));
}

bool DeepSpeedObject::has_others() const {
  const auto items = value_->items();
  return std::any_of(items.begin(), items.end(),
                     [&](const auto& item) { return taken_.count(item.key()) == 0; });
}

void DeepSpeedObject::consume_all() {
  for (const auto& [key, value] : value_->items()) taken_.insert(key);
}

void DeepSpeedObject::list_rest() {
  for (const auto& [key, value] : value_->items())
    if (taken_.insert(key).second) {
      const std::string path = path_ + "/" + escaped(key.substr(0, 200));
      notes_->push_back({path, shortened(value), why_not(path, value)});
    }
}

}  // namespace gradloom
