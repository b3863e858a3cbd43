// recipe -> ds_config.json.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/base/text.h"
#include "passes/precision.h"
#include "sessions/deepspeed.h"
#include "sessions/deepspeed_parts.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

using ordered = nlohmann::ordered_json;
using kernels::OptimizerKind;

class DeepSpeedWriter {
 public:
  explicit DeepSpeedWriter(const Recipe& recipe) : recipe_(recipe) {}

  Result<ConvertedFile> write() {
    write_batches();
    const OptimizerSpec optimizer = TRY(parse_optimizer(recipe_.optimizer));
    write_optimizer(optimizer);
    write_schedule(optimizer, TRY(parse_schedule(recipe_.schedule)));
    out_["gradient_clipping"] = recipe_.clip_norm;  // told at 0 too: absent means 1 in newer versions
    TRY(write_precision());
    write_exchange();
    note_unsaid(without_exchange(),
                {"dims " + std::string(kBatchDim), "optimizer", "schedule", "clip_norm", "accumulate",
                 "ranks", "precision", "loss_scale"},
                notes_);
    // Raw UTF-8 and lone surrogates cannot stand there: all texts are our own words.
    return ConvertedFile{out_.dump(2) + "\n", std::move(notes_)};
  }

 private:
  void note(const std::string& where, const std::string& value, const std::string& why) {
    notes_.push_back({where, value, why});
  }

  void write_batches() {
    const auto bound = recipe_.dims.find(kBatchDim);
    out_["gradient_accumulation_steps"] = recipe_.accumulate;
    if (bound == recipe_.dims.end())
      return note("dims", "-", "no dim named batch is bound: train_micro_batch_size_per_gpu is yours to add");
    out_["train_micro_batch_size_per_gpu"] = bound->second;
    const auto all = static_cast<long double>(bound->second) * recipe_.accumulate * recipe_.ranks;
    if (all <= 9007199254740992.0L)
      out_["train_batch_size"] = bound->second * recipe_.accumulate * recipe_.ranks;
    else
      note("ranks", std::to_string(recipe_.ranks), "train_batch_size would be too large");
  }

  // ---- optimizer ----

  void write_optimizer(const OptimizerSpec& spec) {
    const std::string text = recipe_.optimizer;
    ordered params = {{"lr", spec.lr}};
    std::string type;
    const auto adam = [&](const char* name) {
      type = name;
      params["betas"] = {spec.beta1, spec.beta2};
      params["eps"] = spec.epsilon;
    };
    switch (spec.kind) {
      case OptimizerKind::adam:
        adam("Adam");
        params["adam_w_mode"] = false;
        break;
      case OptimizerKind::adamw: adam("AdamW"); break;
      case OptimizerKind::adamw_hf:
        adam("AdamW");
        if (!spec.correct_bias) params["bias_correction"] = false;
        if (spec.correct_bias || spec.weight_decay != 0)
          note("optimizer", text,
               "AdamW there adds eps to the corrected moment and decays before the update");
        break;
      case OptimizerKind::lamb:
        adam("Lamb");
        params["max_coeff"] = kNoClamp;  // here it is not clamped
        params["min_coeff"] = 0.0;
        note("optimizer", text, "Lamb there multiplies the rate by the bias correction, not the moments");
        break;
      case OptimizerKind::lion:
        type = "Lion";
        params["betas"] = {spec.beta1, spec.beta2};
        break;
      case OptimizerKind::sgd: type = "SGD"; break;
      case OptimizerKind::adagrad: type = "Adagrad"; break;
      case OptimizerKind::rmsprop: type = "RMSprop"; break;
      case OptimizerKind::nadam: type = "NAdam"; break;
      case OptimizerKind::radam: type = "RAdam"; break;
      case OptimizerKind::adadelta: type = "Adadelta"; break;
      case OptimizerKind::adafactor: break;
    }
    if (spec.amsgrad) {
      params["torch_adam"] = true;  // DeepSpeed's own kernels have none
      params["amsgrad"] = true;
    }
    if (type.empty()) return note("optimizer", text, "no optimizer of this kind there: yours to give");
    params["weight_decay"] = spec.weight_decay;
    if (is_of_torch_alone(spec.kind))
      add_torch_options(spec, params);
    else if (spec.maximize)
      note("optimizer", text, "maximize has no word there");
    if (spec.eight_bit_states) note("optimizer", text, "eight_bit_states has no word there");
    out_["optimizer"] = {{"type", type}, {"params", params}};
  }

  // Numbers as they are, flags where they are on.
  static void add_torch_options(const OptimizerSpec& spec, ordered& params) {
    if (has_option(spec.kind, "beta1")) params["betas"] = {spec.beta1, spec.beta2};
    for (const OptimizerOption& option : optimizer_def(spec.kind).options) {
      const std::string_view name = option.name;
      if (name == "beta1" || name == "beta2" || name == "eight_bit_states") continue;
      if (option.number != nullptr)
        params[option.name] = spec.*option.number;
      else if (spec.*option.flag)
        params[option.name] = true;
    }
  }

  // ---- schedule ----

  void write_schedule(const OptimizerSpec& optimizer, const ScheduleSpec& spec) {
    const double lr = optimizer.lr;
    const bool flat = spec.warmup == 0;  // no schedule there is without a rise: one that begins where it ends
    ordered params;
    std::string type;
    const auto rise = [&] {
      params["warmup_min_lr"] = flat ? lr : 0.0;
      params["warmup_max_lr"] = lr;
    };
    if (spec.name == "constant" && !flat) {
      type = "WarmupLR";
      rise();
    } else if (spec.name == "linear") {
      type = "WarmupDecayLR";
      params["total_num_steps"] = spec.total;
      rise();
      if (spec.end != 0) note("schedule", recipe_.schedule, "WarmupDecayLR falls to 0");
    } else if (spec.name == "cosine") {
      type = "WarmupCosineLR";
      params["total_num_steps"] = spec.total;
      params["warmup_min_ratio"] = flat ? 1.0 : 0.0;
      params["cos_min_ratio"] = spec.end;
    } else if (is_one_cycle(spec)) {
      return write_one_cycle(lr, spec);
    } else if (spec.name != "constant") {
      note("schedule", recipe_.schedule, "no schedule of this form there: the rate stays");
    }
    if (type.empty()) return;
    params["warmup_num_steps"] = flat ? 2 : spec.warmup;
    params["warmup_type"] = "linear";
    out_["scheduler"] = {{"type", type}, {"params", params}};
    note("schedule", recipe_.schedule, "the same curve, but DeepSpeed is up to two steps late");
  }

  // DeepSpeed's is straight lines between whole steps, up and down to the same rate.
  static bool is_one_cycle(const ScheduleSpec& spec) {
    return spec.name == "one-cycle" && spec.linear && !spec.three_phase && spec.final_div_factor == 1 &&
           spec.warmup > 1 && spec.total > spec.warmup;
  }
  void write_one_cycle(double lr, const ScheduleSpec& spec) {
    out_["scheduler"] = {{"type", "OneCycle"},
                         {"params",
                          {{"cycle_min_lr", lr / spec.div_factor},
                           {"cycle_max_lr", lr},
                           {"cycle_first_step_size", spec.warmup - 1},
                           {"cycle_second_step_size", spec.total - spec.warmup},
                           {"cycle_momentum", false}}}};
  }

  // ---- precision ----

  Status write_precision() {
    const PrecisionSpec spec = TRY(parse_precision(recipe_.precision));
    if (spec.type == "f64")
      note("precision", "f64", "DeepSpeed trains in the type of the module: yours to make");
    if (!spec.full.empty() || !spec.low.empty() || !spec.within.empty() || spec.low_weights)
      note("precision", recipe_.precision, "full, low, within and weights have no word there");
    if (!spec.mixed()) return {};
    const bool half = spec.type == "f16";
    if (spec.list == "autocast") {
      out_["torch_autocast"] = {{"enabled", true}, {"dtype", half ? "float16" : "bfloat16"}};
    } else if (half && spec.list == "O1") {
      out_["amp"] = {{"enabled", true}, {"opt_level", "O1"}};
    } else {
      ordered& block = out_[half ? "fp16" : "bf16"] = {{"enabled", true}};
      note("precision", recipe_.precision, "DeepSpeed computes the whole model in 16 bits");
      if (half) return write_loss_scale(block);
      return {};
    }
    if (half && !at_default(recipe_, *find_setting("loss_scale")))
      note("loss_scale", recipe_.loss_scale, "is the fp16 block's alone there");
    return {};
  }

  Status write_loss_scale(ordered& fp16) {
    const LossScaleSpec spec = TRY(parse_loss_scale(recipe_.loss_scale));
    fp16["loss_scale"] = spec.dynamic ? 0.0 : spec.initial;
    if (!spec.dynamic) return {};
    const double power = std::round(std::log2(spec.initial));
    fp16["initial_scale_power"] = static_cast<std::int64_t>(power);
    fp16["loss_scale_window"] = spec.interval;
    fp16["hysteresis"] = spec.hysteresis;
    if (spec.hysteresis > 1) fp16["consecutive_hysteresis"] = true;
    const double least = std::max(1.0, std::round(spec.least));
    fp16["min_loss_scale"] = least < 9e15 ? ordered(static_cast<std::int64_t>(least)) : ordered(least);
    if (std::exp2(power) != spec.initial || spec.growth != 2 || spec.backoff != 0.5 || spec.most != 0)
      note("loss_scale", recipe_.loss_scale,
           "there the scale is a power of 2, doubled and halved, without a bound above");
    if (spec.least > 0)
      note("loss_scale", recipe_.loss_scale, "a run that overflows at min ends there at once");
    return {};
  }

  // ---- what ranks exchange ----

  void write_exchange() {
    ordered zero = {{"stage", zero_stage(recipe_)}};
    bool exchanges = false;
    for (const RecipePass& pass : recipe_.passes) {
      if (pass.name != kBucketPass) continue;
      exchanges = true;
      const double megabytes = std::strtod(option_of(pass, "bucket_mb").c_str(), nullptr);
      zero["reduce_bucket_size"] = static_cast<std::int64_t>(megabytes * 1e6 / gradient_bytes(recipe_));
      zero["overlap_comm"] = option_of(pass, "overlap") == "true";
      if (option_of(pass, "dtype") == "bf16") out_["communication_data_type"] = "bf16";
    }
    if (recipe_.ranks > 1 && !exchanges)
      note("passes", "-data-parallel", "DeepSpeed always exchanges gradients in pieces");
    out_["zero_optimization"] = zero;
  }

  // The recipe without what zero_optimization says of its passes.
  Recipe without_exchange() const {
    Recipe recipe = recipe_;
    std::erase_if(recipe.passes, [](const RecipePass& pass) { return pass.name == kZeroPass; });
    for (RecipePass& pass : recipe.passes)
      if (pass.name == kBucketPass)
        std::erase_if(pass.options, [](const auto& o) {
          return o.first == "bucket_mb" || o.first == "dtype" || o.first == "overlap";
        });
    return recipe;
  }

  const Recipe& recipe_;
  ordered out_ = ordered::object();
  std::vector<ConversionNote> notes_;
};

}  // namespace

Result<ConvertedFile> deepspeed_from_recipe(const Recipe& recipe) { return DeepSpeedWriter(recipe).write(); }

}  // namespace gradloom
