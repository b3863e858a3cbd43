// ds_config.json -> recipe.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "engine/train/loss_scaling.h"
#include "engine/train/optimizers.h"
#include "engine/train/schedules.h"
#include "passes/precision.h"
#include "sessions/deepspeed.h"
#include "sessions/deepspeed_parts.h"
#include "sessions/json_schema.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

using json = nlohmann::json;
using kernels::OptimizerKind;

constexpr double kMostSize = 9007199254740992.0;  // integers up to here are doubles

class DeepSpeedReader {
 public:
  DeepSpeedReader(const Recipe& own, const DeepSpeedGiven& given) : recipe_(own), own_(own), given_(given) {}

  Result<FromDeepSpeed> read(const json& file) {
    DeepSpeedObject top(file, "", notes_);
    TRY(read_batches(top));
    TRY(read_optimizer(top));
    TRY(read_scheduler(top));
    if (set_optimizer_ || rate_changed_) TRY(set("/optimizer", "optimizer", optimizer_text(optimizer_)));
    TRY(read_clipping(top));
    TRY(read_precision(top));
    TRY(read_exchange(top));
    top.list_rest();
    return FromDeepSpeed{std::move(recipe_), std::move(notes_)};
  }

 private:
  using Numbers = std::optional<std::int64_t>;

  // By the setting's own text, so that its range and words are looked at.
  Status set(const std::string& path, const char* key, const std::string& text) {
    const RecipeSetting& setting = *find_setting(key);
    Status status = read_setting(recipe_, setting, text, flag_of(setting));
    if (status.ok()) status = check_setting(recipe_, setting, flag_of(setting));
    if (status.ok()) return {};
    return Error{Errc::bad_input, path + ": " + status.error().message};
  }
  void note(const std::string& where, const std::string& value, const std::string& why) {
    notes_.push_back({where, value, why});
  }

  // ---- batches ----

  Status read_batches(DeepSpeedObject& top) {
    Numbers train = TRY(top.integer("train_batch_size", 1, kMostSize));
    Numbers micro = TRY(top.integer("train_micro_batch_size_per_gpu", 1, 4294967296.0));
    Numbers accumulate = TRY(top.integer("gradient_accumulation_steps", 1, 65536));
    std::int64_t ranks = given_.ranks.value_or(own_.ranks);
    const auto divided = [&](std::int64_t by, const std::string& text) -> Result<std::int64_t> {
      if (*train % by == 0) return *train / by;
      return Error{Errc::bad_input,
                   fmt::format("/train_batch_size: {} is no multiple of {} ({})", *train, by, text)};
    };
    if (train && micro && accumulate) {
      const std::int64_t all =
          TRY(divided(*micro * *accumulate, "train_micro_batch_size_per_gpu x gradient_accumulation_steps"));
      if (given_.ranks && all != *given_.ranks)
        return Error{Errc::bad_input, fmt::format("/train_batch_size: {} is not {} x {} x {} ranks", *train,
                                                  *micro, *accumulate, *given_.ranks)};
      ranks = all;
    } else if (train && micro) {
      accumulate = TRY(divided(*micro * ranks, fmt::format("{} x {} ranks", *micro, ranks)));
    } else if (train && accumulate) {
      micro = TRY(divided(*accumulate * ranks, fmt::format("{} x {} ranks", *accumulate, ranks)));
    } else if (train) {
      micro = TRY(divided(ranks, plural_text(ranks, "rank")));
    }
    if (!accumulate && (train || micro))
      accumulate = top.is_auto("gradient_accumulation_steps") ? own_.accumulate : 1;
    TRY(set("/train_batch_size", "ranks", std::to_string(ranks)));
    if (accumulate) TRY(set("/gradient_accumulation_steps", "accumulate", std::to_string(*accumulate)));
    return micro ? bind_batch(*micro) : Status();
  }

  Status bind_batch(std::int64_t micro) {
    constexpr const char* kPath = "/train_micro_batch_size_per_gpu";
    if (micro > 4294967296) return Error{Errc::bad_input, fmt::format("{}: {} is too large", kPath, micro)};
    const auto bound = own_.dims.find(kBatchDim);
    if (given_.batch && bound != own_.dims.end()) {
      if (bound->second != micro)
        note(kPath, std::to_string(micro), fmt::format("--dim batch={} says otherwise", bound->second));
      return {};
    }
    const auto& free = given_.free_dims;
    if (free && bound == own_.dims.end() && std::find(free->begin(), free->end(), kBatchDim) == free->end()) {
      std::string names;
      for (const std::string& name : *free) names += (names.empty() ? "" : ", ") + escaped(name);
      note(kPath, std::to_string(micro),
           names.empty() ? "the model has its batch size, no symbolic dim"
                         : "the model has no dim named batch: give --dim NAME=N, of " + names);
      return {};
    }
    recipe_.dims[kBatchDim] = micro;
    return {};
  }

  // ---- optimizer ----

  struct KnownOptimizer {
    const char* type;  // in lower case
    OptimizerKind kind;
    double lr;  // DeepSpeed's own default
  };

  Status read_optimizer(DeepSpeedObject& top) {
    optimizer_ = TRY(parse_optimizer(own_.optimizer));
    const OptimizerSpec own = optimizer_;
    auto object = TRY(top.object("optimizer"));
    if (!object) return {};
    static constexpr KnownOptimizer kKnown[] = {
        {"adam", OptimizerKind::adamw, 1e-3},      {"adamw", OptimizerKind::adamw, 1e-3},
        {"lamb", OptimizerKind::lamb, 1e-3},       {"sgd", OptimizerKind::sgd, 1e-3},
        {"adagrad", OptimizerKind::adagrad, 1e-2}, {"lion", OptimizerKind::lion, 1e-3},
        {"rmsprop", OptimizerKind::rmsprop, 1e-2}, {"nadam", OptimizerKind::nadam, 2e-3},
        {"radam", OptimizerKind::radam, 1e-3},     {"adadelta", OptimizerKind::adadelta, 1}};
    const std::optional<std::string> type = TRY(object->text("type"));
    std::string name = type.value_or("");
    for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                     [&](const KnownOptimizer& k) { return name == k.type; });
    if (known == std::end(kKnown)) {
      object->consume_all();
      note("/optimizer", type ? escaped(type->substr(0, 80)) : "-",
           "no optimizer of this type here: the recipe's own stays (" + own_.optimizer + ")");
      return {};
    }
    set_optimizer_ = true;
    auto params = TRY(object->object("params"));
    static const json kNone = json::object();
    DeepSpeedObject options =
        params ? std::move(*params) : DeepSpeedObject(kNone, "/optimizer/params", notes_);
    OptimizerKind kind = known->kind;
    if (kind == OptimizerKind::adamw) kind = TRY(adam_kind(options, name == "adamw"));
    const bool same = own.kind == kind;
    optimizer_ = OptimizerSpec(kind);
    OptimizerSpec& spec = optimizer_;
    spec.lr = known->lr;
    if (!is_of_torch_alone(kind)) {
      if (!torch_decay_) spec.weight_decay = 0;
      if (kind != OptimizerKind::lion) spec.epsilon = 1e-8;
      if (kind == OptimizerKind::lion) spec.beta2 = 0.999;
    }
    TRY(read_options(options, own, same));
    if (kind == OptimizerKind::lamb) TRY(read_lamb(options));
    options.list_rest();
    object->list_rest();
    return {};
  }

  // Adam is AdamW unless adam_w_mode says otherwise; AdamW always is.
  Result<OptimizerKind> adam_kind(DeepSpeedObject& options, bool named_adamw) {
    const bool torch = TRY(options.flag("torch_adam")).value_or(false);
    const std::optional<bool> mode = TRY(options.flag("adam_w_mode"));
    const bool decoupled = named_adamw || mode.value_or(true);
    if (named_adamw && mode == false)
      note("/optimizer/params/adam_w_mode", "false", "AdamW ignores it, there too");
    torch_decay_ = torch && decoupled;
    const bool correction = TRY(options.flag("bias_correction")).value_or(true);
    if (correction) return decoupled ? OptimizerKind::adamw : OptimizerKind::adam;
    const double decay = TRY(options.number("weight_decay", 0, 1e308)).value_or(0);
    if (decay == 0) return OptimizerKind::adamw_hf;  // which is Adam where nothing decays
    note("/optimizer/params/bias_correction", "false",
         "with weight_decay no optimizer here leaves the correction out: it is made");
    return decoupled ? OptimizerKind::adamw : OptimizerKind::adam;
  }

  // What is "auto" is as in the recipe's own optimizer, where that has the option.
  Status read_options(DeepSpeedObject& options, const OptimizerSpec& own, bool same) {
    OptimizerSpec& spec = optimizer_;
    rate_given_ = TRY(options.number("lr", 0, 1e308));
    spec.lr = rate_given_.value_or(options.is_auto("lr") ? own.lr : spec.lr);
    if (spec.kind == OptimizerKind::adamw_hf) spec.correct_bias = false;
    for (const OptimizerOption& option : optimizer_def(spec.kind).options) {
      const std::string name = option.name;
      if (name == "correct_bias" || name == "eight_bit_states" || name == "beta1" || name == "beta2")
        continue;
      if (options.is_auto(option.name) && same) {
        if (option.number != nullptr) spec.*option.number = own.*option.number;
        if (option.flag != nullptr) spec.*option.flag = own.*option.flag;
      }
      if (option.number != nullptr)
        spec.*option.number =
            TRY(options.number(option.name, option.least, option.most)).value_or(spec.*option.number);
      else
        spec.*option.flag = TRY(options.flag(option.name)).value_or(spec.*option.flag);
    }
    if (!has_option(spec.kind, "beta1")) return {};
    if (options.is_auto("betas") && same) {
      spec.beta1 = own.beta1;
      spec.beta2 = own.beta2;
    }
    if (const auto betas = TRY(options.pair("betas", 0, 1))) {
      spec.beta1 = betas->first;
      spec.beta2 = betas->second;
    }
    return {};
  }

  Status read_lamb(DeepSpeedObject& options) {
    const bool correction = TRY(options.flag("bias_correction")).value_or(true);
    const double most = TRY(options.number("max_coeff", 0, 1e308)).value_or(10);
    const double least = TRY(options.number("min_coeff", 0, 1e308)).value_or(0.01);
    note("/optimizer/params/bias_correction", correction ? "true" : "false",
         std::string("DeepSpeed's Lamb ") +
             (correction ? "multiplies the rate by the correction" : "leaves the correction out") +
             "; here the moments are corrected before the norm");
    if (most < kNoClamp || least > 0)
      note("/optimizer/params/max_coeff", number_text(least) + " to " + number_text(most),
           "|p| / |u| is not clamped here");
    return {};
  }

  // ---- scheduler ----

  Status read_scheduler(DeepSpeedObject& top) {
    auto object = TRY(top.object("scheduler"));
    if (!object) return {};
    const std::optional<std::string> type = TRY(object->text("type"));
    own_schedule_ = TRY(parse_schedule(own_.schedule));
    auto given = TRY(object->object("params"));
    static const json kNone = json::object();
    DeepSpeedObject params = given ? std::move(*given) : DeepSpeedObject(kNone, "/scheduler/params", notes_);
    schedule_ = ScheduleSpec();
    if (type == "WarmupLR" || type == "WarmupDecayLR") {
      TRY(read_warmup(params, *type == "WarmupDecayLR"));
    } else if (type == "WarmupCosineLR") {
      TRY(read_cosine(params));
    } else if (type == "OneCycle") {
      TRY(read_one_cycle(params));
    } else {
      params.consume_all();
      object->consume_all();
      note("/scheduler", type ? escaped(type->substr(0, 80)) : "-",
           "no schedule of this type here: the recipe's own stays (" + own_.schedule + ")");
      return {};
    }
    params.list_rest();
    object->list_rest();
    return set("/scheduler/params", "schedule", schedule_text(schedule_));
  }

  // The rise that the three Warmup schedules share; `flat`: it begins where it ends; `falls`: what comes then.
  Status read_rise(DeepSpeedObject& params, bool flat, bool falls, bool from_zero, const std::string& least) {
    const std::int64_t own = own_schedule_.warmup;
    const std::int64_t steps = TRY(params.integer("warmup_num_steps", 0, 1e12))
                                   .value_or(params.is_auto("warmup_num_steps") ? own : 1000);
    const std::string type = TRY(params.text("warmup_type")).value_or("log");
    if (flat && falls && steps > 2)
      note("/scheduler/params/warmup_num_steps", std::to_string(steps),
           "the rate stays for so long there before it falls; here it falls at once");
    schedule_.warmup = flat ? 0 : steps;
    if (schedule_.warmup == 0) return {};
    if (type != "linear")
      note("/scheduler/params/warmup_type", escaped(type.substr(0, 80)),
           "the rate rises in a straight line here");
    if (!from_zero) note("/scheduler/params/" + least, "above 0", "the rate rises from 0 here");
    if (steps == 1) note("/scheduler/params/warmup_num_steps", "1", "DeepSpeed takes at least 2");
    return {};
  }

  Result<std::int64_t> read_total(DeepSpeedObject& params) {
    const std::int64_t own = own_schedule_.total > 0 ? own_schedule_.total : own_.steps;
    const auto total = TRY(params.integer("total_num_steps", 0, 1e12));
    if (total || params.is_auto("total_num_steps")) return total.value_or(own);
    return Error{Errc::bad_input, "/scheduler/params: key \"total_num_steps\" is missing"};
  }

  void set_total(std::int64_t total) {
    if (total > schedule_.warmup) {
      schedule_.total = total;
      return;
    }
    note("/scheduler/params/total_num_steps", std::to_string(total),
         "not above the steps of the rise: the rate stays where it has risen to");
    schedule_ = {.warmup = schedule_.warmup};
  }

  Status read_warmup(DeepSpeedObject& params, bool falls) {
    const double least = TRY(params.number("warmup_min_lr", 0, 1e308)).value_or(0);
    const std::optional<double> peak = TRY(params.number("warmup_max_lr", 0, 1e308));
    const bool own_rate = params.is_auto("warmup_max_lr") || !falls;
    const double most = peak.value_or(own_rate ? optimizer_.lr : 1e-3);
    if (rate_given_ && most != *rate_given_)
      note("/optimizer/params/lr", number_text(*rate_given_),
           "the schedule says the rate: " + number_text(most) + " (warmup_max_lr)");
    rate_changed_ = most != optimizer_.lr;
    optimizer_.lr = most;
    TRY(read_rise(params, least == most, falls, least == 0, "warmup_min_lr"));
    if (falls) {
      schedule_.name = "linear";
      set_total(TRY(read_total(params)));
    }
    if (schedule_.warmup > 0 || schedule_.total > 0) note_shift("two steps");
    return {};
  }

  Status read_cosine(DeepSpeedObject& params) {
    const double least = TRY(params.number("warmup_min_ratio", 0, 1e308)).value_or(0);
    schedule_.end = TRY(params.number("cos_min_ratio", 0, 1e308))
                        .value_or(params.is_auto("cos_min_ratio") ? own_schedule_.end : 0.0001);
    TRY(read_rise(params, least == 1, true, least == 0, "warmup_min_ratio"));
    schedule_.name = "cosine";
    set_total(TRY(read_total(params)));
    note_shift("two steps of the rise and one of the fall");
    return {};
  }

  void note_shift(const std::string& late) {
    note("/scheduler/type", schedule_.name == "constant" ? "warmup" : schedule_.name,
         "the same curve, but DeepSpeed is " + late + " late: its first rates are the least");
  }

  Status read_one_cycle(DeepSpeedObject& params) {
    const auto least = TRY(params.number("cycle_min_lr", 0, 1e308));
    const auto most = TRY(params.number("cycle_max_lr", 1e-300, 1e308));
    if (!least || !most)
      return Error{Errc::bad_input, "/scheduler/params: cycle_min_lr and cycle_max_lr are needed"};
    if (*least > *most)
      return Error{Errc::bad_input, "/scheduler/params/cycle_min_lr: larger than cycle_max_lr"};
    const std::int64_t first = TRY(params.integer("cycle_first_step_size", 1, 1e12)).value_or(2000);
    const std::int64_t second = TRY(params.integer("cycle_second_step_size", 1, 1e12)).value_or(first);
    rate_changed_ = *most != optimizer_.lr;
    if (rate_given_ && *most != *rate_given_)
      note("/optimizer/params/lr", number_text(*rate_given_),
           "the schedule says the rate: " + number_text(*most) + " (cycle_max_lr)");
    optimizer_.lr = *most;
    schedule_.name = "one-cycle";
    schedule_.linear = true;
    schedule_.warmup = first + 1;
    schedule_.total = first + second + 1;
    schedule_.div_factor = *least > 0 ? std::min(rounded_quotient(*most, *least), 1e300) : 1e300;
    schedule_.final_div_factor = 1;
    for (const char* key : {"cycle_first_stair_count", "cycle_second_stair_count"})
      if (const auto stairs = TRY(params.integer(key, 0, 1e12)); stairs.value_or(0) > 0)
        note(std::string("/scheduler/params/") + key, std::to_string(*stairs), "the rate has no stairs here");
    const double decay_steps = TRY(params.number("decay_step_size", 0, 1e12)).value_or(0);
    const double decay_rate = TRY(params.number("decay_lr_rate", 0, 1e308)).value_or(0);
    if (decay_steps > 0 && decay_rate > 0)
      note("/scheduler/params/decay_lr_rate", number_text(decay_rate), "after the cycle the rate stays here");
    return read_momentum(params);
  }

  Status read_momentum(DeepSpeedObject& params) {
    const bool cycled = TRY(params.flag("cycle_momentum")).value_or(true);
    for (const char* key : {"cycle_min_mom", "cycle_max_mom", "decay_mom_rate"})
      TRY(params.number(key, 0, 1e308));
    if (cycled && has_option(optimizer_.kind, "beta1"))
      note("/scheduler/params/cycle_momentum", "true",
           "beta1 stays as it is here, and beta2, which DeepSpeed sets to 0.99");
    return {};
  }

  // ---- clipping ----

  Status read_clipping(DeepSpeedObject& top) {
    const auto norm = TRY(top.number("gradient_clipping", 0, 1e30));
    if (norm) return set("/gradient_clipping", "clip_norm", number_text(*norm));
    if (!top.is_auto("gradient_clipping"))
      note("/gradient_clipping", "absent",
           "newer versions of DeepSpeed clip at 1 then, older ones do not: clip_norm stays " +
               number_text(own_.clip_norm));
    return {};
  }

  // ---- precision ----

  Status read_precision(DeepSpeedObject& top) {
    std::string type;  // empty: the file does not say
    const auto choose = [&](const std::string& path, const std::string& chosen) -> Status {
      if (!type.empty() && type != "f32" && chosen != "f32")
        return Error{Errc::bad_input, path + ": another precision is enabled too"};
      if (type.empty() || chosen != "f32") type = chosen;
      return {};
    };
    for (const char* key : {"bf16", "bfloat16", "fp16"}) {
      auto object = TRY(top.object(key));
      if (!object) continue;
      const std::string path = std::string("/") + key;
      const auto enabled = TRY(object->flag("enabled"));
      const bool half = path == "/fp16", own = object->is_auto("enabled");
      const std::string name = half ? "f16" : "bf16";
      if (!enabled.value_or(own && precision_type_name(own_.precision) == name)) {
        if (object->has_others()) note(path, "not enabled", "what else it says means nothing then");
        object->consume_all();
        if (!own) TRY(choose(path, "f32"));
        continue;
      }
      if (!own) {
        TRY(choose(path, name));
        note(path, "enabled",
             "DeepSpeed computes the whole model in 16 bits; here operators choose (precision " + name +
                 "{list=O2} is nearest)");
      }
      if (half) TRY(read_loss_scale(*object));
      object->list_rest();
    }
    TRY(read_autocast(top, choose));
    return type.empty() ? Status() : set("/fp16", "precision", type);
  }

  template <class Choose>
  Status read_autocast(DeepSpeedObject& top, Choose choose) {
    if (auto object = TRY(top.object("torch_autocast"))) {
      const auto enabled = TRY(object->flag("enabled"));
      const std::string dtype = TRY(object->text("dtype")).value_or("bfloat16");
      const bool half = dtype == "float16" || dtype == "fp16" || dtype == "half" || dtype == "torch.float16";
      const bool brain = dtype == "bfloat16" || dtype == "bf16" || dtype == "torch.bfloat16";
      if (enabled.value_or(false)) {
        if (!half && !brain)
          note("/torch_autocast/dtype", escaped(dtype.substr(0, 80)), "no type of 16 bits: nothing is cast");
        else
          TRY(choose("/torch_autocast", half ? "f16{list=autocast}" : "bf16{list=autocast}"));
      }
      object->list_rest();
    }
    auto object = TRY(top.object("amp"));
    if (!object) return {};
    const bool enabled = TRY(object->flag("enabled")).value_or(false);
    const std::string level = TRY(object->text("opt_level")).value_or("O1");
    if (enabled && (level == "O1" || level == "O2")) TRY(choose("/amp", "f16{list=" + level + "}"));
    if (enabled && level != "O1" && level != "O2")
      note("/amp/opt_level", escaped(level.substr(0, 80)), "of Apex's levels O1 and O2 are known here");
    object->list_rest();
    return {};
  }

  Status read_loss_scale(DeepSpeedObject& fp16) {
    const double fixed = TRY(fp16.number("loss_scale", 0, 3e38)).value_or(0);
    const std::int64_t power = TRY(fp16.integer("initial_scale_power", 0, 127)).value_or(16);
    const std::int64_t window = TRY(fp16.integer("loss_scale_window", 1, 1e9)).value_or(1000);
    const std::int64_t hysteresis = TRY(fp16.integer("hysteresis", 1, 1e9)).value_or(2);
    const bool refilled = TRY(fp16.flag("consecutive_hysteresis")).value_or(false);
    const double least = TRY(fp16.number("min_loss_scale", 1, 3e38)).value_or(1);
    if (fixed > 0) {
      if (fixed < 1) return Error{Errc::bad_input, "/fp16/loss_scale: must be 0 (dynamic) or at least 1"};
      if (fp16.has("initial_scale_power") || fp16.has("loss_scale_window") || fp16.has("hysteresis"))
        note("/fp16/loss_scale", number_text(fixed),
             "it never changes: what the file says of its changes means nothing");
      return set("/fp16/loss_scale", "loss_scale", "static{scale=" + number_text(fixed) + "}");
    }
    LossScaleSpec spec;
    spec.initial = std::ldexp(1.0, static_cast<int>(power));
    spec.interval = window;
    spec.hysteresis = hysteresis;
    spec.least = least > 1 ? least : 0;  // a run whose scale would fall below 1 ends here as there
    if (least > 1)
      note("/fp16/min_loss_scale", number_text(least),
           fmt::format("DeepSpeed ends a run that overflows there; here {} such steps in a row do",
                       kMostSkippedSteps));
    if (hysteresis > 1 && !refilled)
      note("/fp16/hysteresis", std::to_string(hysteresis),
           "here a step without overflow restores it, as consecutive_hysteresis does");
    return set("/fp16", "loss_scale", loss_scale_text(spec));
  }

  // ---- what ranks exchange ----

  Status read_exchange(DeepSpeedObject& top) {
    auto object = top.is_flag("zero_optimization") ? std::optional<DeepSpeedObject>()
                                                   : TRY(top.object("zero_optimization"));
    Numbers stage, bucket;
    std::optional<bool> overlap;
    if (object) {
      stage = TRY(object->integer("stage", 0, 3));
      bucket = TRY(object->integer("reduce_bucket_size", 0, kMostSize));
      overlap = TRY(object->flag("overlap_comm"));
    } else if (const auto on = TRY(top.flag("zero_optimization"))) {
      stage = *on ? 1 : 0;
    }
    if (const auto op = TRY(top.text("gradient_allreduce_op")); op && *op != "mean")
      note("/gradient_allreduce_op", escaped(op->substr(0, 80)), "gradients of ranks are averaged here");
    if (stage) TRY(set_stage(*stage));
    TRY(set_exchange_type(TRY(top.text("communication_data_type"))));
    TRY(set_buckets(bucket, overlap));
    if (object) object->list_rest();
    return {};
  }

  Status set_stage(std::int64_t stage) {
    const auto is_zero = [](const RecipePass& pass) { return pass.name == kZeroPass; };
    if (stage == 0) {
      std::erase_if(recipe_.passes, is_zero);
      return {};
    }
    if (stage > 2)
      note("/zero_optimization/stage", std::to_string(stage),
           "every rank keeps all parameters here: taken as stage 2");
    const PassDef& zero = *find_pass(kZeroPass);
    if (std::none_of(recipe_.passes.begin(), recipe_.passes.end(), is_zero)) {
      Pipeline pipeline = TRY(recipe_pipeline(recipe_));
      const auto at = place_of(pipeline, zero, TRY(recipe_rules(recipe_)));
      pipeline.passes.insert(at, TRY(configure_pass(zero)));
      set_pipeline(recipe_, pipeline);
    }
    const auto pass = std::find_if(recipe_.passes.begin(), recipe_.passes.end(), is_zero);
    set_option(*pass, "stage", stage > 1 ? "2" : "1");
    return {};
  }

  RecipePass* bucket_pass() {
    const auto pass = std::find_if(recipe_.passes.begin(), recipe_.passes.end(),
                                   [](const RecipePass& p) { return p.name == kBucketPass; });
    return pass == recipe_.passes.end() ? nullptr : &*pass;
  }

  Status set_exchange_type(const std::optional<std::string>& type) {
    if (!type) return {};
    const bool rounded = *type == "bf16" || *type == "bfp16";
    RecipePass* const pass = bucket_pass();
    if (pass != nullptr && (rounded || *type == "fp32"))
      set_option(*pass, "dtype", rounded ? "bf16" : "f32");
    else
      note("/communication_data_type", escaped(type->substr(0, 80)),
           pass == nullptr ? "the recipe has the pass data-parallel switched off"
                           : "gradients are exchanged in their own type or in bf16");
    return {};
  }

  Status set_buckets(std::optional<std::int64_t> elements, std::optional<bool> overlap) {
    RecipePass* const pass = bucket_pass();
    if (pass == nullptr) {
      if (elements || overlap)
        note("/zero_optimization", "reduce_bucket_size, overlap_comm",
             "the recipe has the pass data-parallel switched off");
      return {};
    }
    if (elements) {
      const double megabytes = static_cast<double>(*elements) * gradient_bytes(recipe_) / 1e6;
      const double whole = std::min(std::max(std::round(megabytes), 1.0), static_cast<double>(1 << 20));
      set_option(*pass, "bucket_mb", number_text(whole));
      if (whole != megabytes)
        note("/zero_optimization/reduce_bucket_size", std::to_string(*elements),
             "pieces are of whole megabytes here: " + number_text(whole));
    }
    if (overlap) set_option(*pass, "overlap", *overlap ? "true" : "false");
    return {};
  }

  Recipe recipe_;
  const Recipe& own_;
  const DeepSpeedGiven& given_;
  std::vector<ConversionNote> notes_;
  OptimizerSpec optimizer_;
  ScheduleSpec schedule_, own_schedule_;
  std::optional<double> rate_given_;  // by the optimizer
  bool set_optimizer_ = false, rate_changed_ = false, torch_decay_ = false;
};

}  // namespace

Result<FromDeepSpeed> recipe_from_deepspeed(const std::string& text, const Recipe& own,
                                            const DeepSpeedGiven& given) {
  const json file = TRY(parse_json_strict(text, kMaxDeepSpeedBytes));
  if (!file.is_object())
    return Error{Errc::bad_input, std::string("must be an object, not ") + file.type_name()};
  return DeepSpeedReader(own, given).read(file);
}

}  // namespace gradloom
