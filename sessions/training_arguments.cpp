#include "sessions/training_arguments.h"

#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "engine/train/early_stop.h"
#include "engine/train/optimizers.h"
#include "engine/train/schedules.h"
#include "passes/precision.h"
#include "sessions/deepspeed_parts.h"

namespace gradloom {
namespace {

using ordered = nlohmann::ordered_json;
using kernels::OptimizerKind;

constexpr std::int64_t kEndless = 1'000'000'000'000;  // steps of a recipe whose epochs alone say when it ends

// FSDP's SHARD_GRAD_OP divides states and gradients, and keeps parameters whole between the passes: ZeRO 2. It is for GPUs.
bool by_fsdp(const Recipe& recipe) {
  return recipe.ranks > 1 && zero_stage(recipe) == 2 &&
         (recipe.device.starts_with("cuda") || recipe.device.starts_with("hip"));
}

void note_zero(const Recipe& recipe, std::vector<ConversionNote>& notes) {
  const std::int64_t stage = zero_stage(recipe);
  if (stage == 0 || by_fsdp(recipe)) return;
  notes.push_back({"passes", stage == 1 ? "zero" : "zero{stage=2}",
                   stage == 1 ? "FSDP divides gradients too, as zero{stage=2}: DeepSpeed's file has stage 1"
                              : "FSDP, which divides states and gradients, is for several GPUs"});
}

class ArgumentsWriter {
 public:
  explicit ArgumentsWriter(const Recipe& recipe) : recipe_(recipe) {}

  Result<ConvertedFile> write() {
    write_batches();
    const OptimizerSpec optimizer = TRY(parse_optimizer(recipe_.optimizer));
    write_optimizer(optimizer);
    write_schedule(TRY(parse_schedule(recipe_.schedule)));
    out_["max_grad_norm"] = recipe_.clip_norm;
    const PrecisionSpec precision = TRY(parse_precision(recipe_.precision));
    out_["bf16"] = precision.type == "bf16";
    out_["fp16"] = precision.type == "f16";
    if (precision.mixed() && recipe_.precision != precision.type + "{list=autocast}")
      note("precision", recipe_.precision, "the Trainer computes under torch.autocast: list=autocast alone");
    if (precision.type == "f64") note("precision", "f64", "the Trainer trains in the type of the model");
    write_evaluation();
    out_["seed"] = recipe_.seed;
    if (recipe_.device == "cpu") out_["use_cpu"] = true;
    if (by_fsdp(recipe_)) out_["fsdp"] = "shard_grad_op";
    note_zero(recipe_, notes_);
    note_unsaid(recipe_,
                {"dims " + std::string(kBatchDim), "optimizer", "schedule", "clip_norm", "accumulate",
                 "precision", "seed", "steps", "epochs", "eval_every", "device"},
                notes_);
    return ConvertedFile{out_.dump(2) + "\n", std::move(notes_)};
  }

 private:
  void note(const std::string& where, const std::string& value, const std::string& why) {
    notes_.push_back({where, value, why});
  }

  void write_batches() {
    const auto bound = recipe_.dims.find(kBatchDim);
    if (bound != recipe_.dims.end())
      out_["per_device_train_batch_size"] = bound->second;
    else
      note("dims", "-", "no dim named batch is bound: per_device_train_batch_size is yours to add");
    out_["gradient_accumulation_steps"] = recipe_.accumulate;
    if (recipe_.steps < kEndless || recipe_.epochs == 0) out_["max_steps"] = recipe_.steps;
    if (recipe_.epochs > 0 && recipe_.steps == kEndless) out_["num_train_epochs"] = recipe_.epochs;
    if (recipe_.epochs > 0 && recipe_.steps < kEndless)
      note("epochs", std::to_string(recipe_.epochs), "max_steps alone says when the Trainer ends");
    out_["dataloader_drop_last"] = true;  // batches are whole here
  }

  void write_optimizer(const OptimizerSpec& spec) {
    const std::string text = recipe_.optimizer;
    std::string name;
    switch (spec.kind) {
      case OptimizerKind::adam:
        name = "adamw_torch";
        if (spec.weight_decay != 0) note("optimizer", text, "the Trainer's Adam decays beside the moments");
        break;
      case OptimizerKind::adamw: name = "adamw_torch"; break;
      case OptimizerKind::adamw_hf:
        name = "adamw_torch";
        note("optimizer", text,
             "newer versions have torch.optim.AdamW alone, which adds eps to the corrected moment");
        break;
      case OptimizerKind::sgd:
        name = "sgd";
        if (spec.momentum != 0 || spec.dampening != 0 || spec.nesterov)
          note("optimizer", text, "the Trainer's sgd has no momentum: give it the optimizer");
        break;
      case OptimizerKind::adagrad:
        name = "adagrad";
        if (spec.lr_decay != 0 || spec.initial_sum != 0 || spec.epsilon != 1e-10)
          note("optimizer", text, "the Trainer's adagrad has defaults but for lr and weight_decay");
        break;
      case OptimizerKind::lion: name = "lion_32bit"; break;
      case OptimizerKind::adafactor:
        name = "adafactor";
        note("optimizer", text,
             "the Trainer's adafactor has scale_parameter=false, relative_step=false and lr");
        break;
      case OptimizerKind::rmsprop:
        name = "rmsprop";
        if (spec.alpha != 0.99 || spec.epsilon != 1e-8 || spec.momentum != 0 || spec.centered)
          note("optimizer", text, "the Trainer's rmsprop has defaults but for lr and weight_decay");
        break;
      case OptimizerKind::nadam:
      case OptimizerKind::radam:
      case OptimizerKind::adadelta:
      case OptimizerKind::lamb: break;
    }
    out_["learning_rate"] = spec.lr;
    out_["weight_decay"] = spec.weight_decay;
    if (spec.weight_decay != 0) note("optimizer", text, "the Trainer decays no biases and norms");
    if (name.empty())
      return note("optimizer", text, "the Trainer has none of this kind: give it the optimizer");
    const bool adam = name == "adamw_torch" || spec.kind == OptimizerKind::lion;
    if (adam) {
      out_["adam_beta1"] = spec.beta1;
      out_["adam_beta2"] = spec.beta2;
    }
    if (name == "adamw_torch") out_["adam_epsilon"] = spec.epsilon;
    out_["optim"] = name;
    if (spec.maximize) note("optimizer", text, "maximize has no word there");
    if (spec.amsgrad) note("optimizer", text, "amsgrad has no word there");
    if (spec.eight_bit_states)
      note("optimizer", text, "eight_bit_states is another optimizer there: adamw_bnb_8bit");
  }

  void write_schedule(const ScheduleSpec& spec) {
    ordered more;
    std::string type = spec.name;
    bool late = true;  // theirs, by a step
    if (spec.name == "constant") {
      type = spec.warmup > 0 ? "constant_with_warmup" : "constant";
      late = spec.warmup > 0;
    } else if (spec.name == "linear" && spec.end != 0) {
      note("schedule", recipe_.schedule, "the Trainer's linear ends at 0");
    } else if (spec.name == "cosine" && spec.end != 0) {
      type = "cosine_with_min_lr";
      more["min_lr_rate"] = spec.end;
    } else if (spec.name == "polynomial" && spec.end < 1) {
      more["power"] = spec.power;
      more["lr_end"] = spec.end * out_["learning_rate"].get<double>();
      late = spec.warmup > 0;
    } else if (spec.name != "linear" && spec.name != "cosine") {
      note("schedule", recipe_.schedule, "the Trainer has none of this form: give it the scheduler");
      type = "constant";
      late = false;
    }
    out_["lr_scheduler_type"] = type;
    if (!more.empty()) out_["lr_scheduler_kwargs"] = more;
    out_["warmup_steps"] = spec.name == "one-cycle" ? 0 : spec.warmup;
    if (late)
      note("schedule", recipe_.schedule,
           "the same curve, but the Trainer is a step late: it begins at the least rate");
    if (type != "constant" && spec.total > 0 && spec.total != recipe_.steps)
      note("schedule", recipe_.schedule, "the Trainer's curve ends with its last step");
  }

  void write_evaluation() {
    if (recipe_.eval_data.empty()) return;
    if (recipe_.eval_every > 0) {
      out_["eval_strategy"] = "steps";
      out_["eval_steps"] = recipe_.eval_every;
    }
  }

  const Recipe& recipe_;
  ordered out_ = ordered::object();
  std::vector<ConversionNote> notes_;
};

}  // namespace

Result<ConvertedFile> training_arguments_of(const Recipe& recipe) { return ArgumentsWriter(recipe).write(); }

Result<ConvertedFile> accelerate_config_of(const Recipe& recipe, std::int64_t machines) {
  const PrecisionSpec precision = TRY(parse_precision(recipe.precision));
  const bool cpu = !recipe.device.starts_with("cuda") && !recipe.device.starts_with("hip");
  const std::string mixed = precision.type == "bf16" ? "bf16" : precision.type == "f16" ? "fp16" : "no";
  ConvertedFile file;
  if (machines > 1)
    file.text = "# To fill in: <ADDRESS>, name or address of the first machine; machine_rank, 0 to " +
                std::to_string(machines - 1) + ", of each.\n";
  file.text += "compute_environment: LOCAL_MACHINE\n";
  file.text += std::string("distributed_type: ") +
               (recipe.ranks == 1 ? "\"NO\""
                : cpu             ? "MULTI_CPU"
                : by_fsdp(recipe) ? "FSDP"
                                  : "MULTI_GPU") +
               "\n";
  if (by_fsdp(recipe))
    file.text +=
        "fsdp_config:\n  fsdp_version: 1\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
        "  fsdp_auto_wrap_policy: NO_WRAP\n  fsdp_state_dict_type: FULL_STATE_DICT\n";
  note_zero(recipe, file.notes);
  file.text += "mixed_precision: \"" + mixed + "\"\n";
  file.text += "num_machines: " + std::to_string(machines) +
               "\nnum_processes: " + std::to_string(recipe.ranks) + "\nmachine_rank: 0\n";
  if (machines > 1) {
    file.text += "main_process_ip: \"<ADDRESS>\"\nmain_process_port: 29500\n";
    file.notes.push_back(
        {"<ADDRESS>", "main_process_ip", "to fill in: name or address of the first machine"});
  }
  file.text += std::string("use_cpu: ") + (cpu ? "true" : "false") + "\n";
  if (precision.type == "f64")
    file.notes.push_back({"precision", "f64", "Accelerate trains in the type of the model"});
  if (precision.mixed() && recipe.precision != precision.type + "{list=autocast}")
    file.notes.push_back(
        {"precision", recipe.precision, "Accelerate computes under torch.autocast: list=autocast alone"});
  if (recipe.accumulate > 1)
    file.notes.push_back({"accumulate", std::to_string(recipe.accumulate),
                          "an argument of Accelerator: gradient_accumulation_steps"});
  note_unsaid(recipe, {"accumulate", "precision", "ranks", "device"}, file.notes);
  return file;
}

}  // namespace gradloom
