// DeepSpeed's configuration and recipes: values, formulas, round trips, what is listed, and files from strangers.
#include "sessions/deepspeed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numbers>

#include "engine/train/loss_scaling.h"
#include "engine/train/optimizers.h"
#include "engine/train/schedules.h"
#include "sessions/recipe_settings.h"

namespace gradloom::test {
namespace {

using json = nlohmann::json;

Recipe base_recipe() {
  Recipe recipe;
  recipe.model = "m.onnx";
  set_pipeline(recipe, default_pipeline());
  return recipe;
}

FromDeepSpeed read(const std::string& text, const DeepSpeedGiven& given = {},
                   const Recipe& own = base_recipe()) {
  Result<FromDeepSpeed> made = recipe_from_deepspeed(text, own, given);
  EXPECT_TRUE(made.ok()) << text << ": " << (made.ok() ? "" : made.error().message);
  return made.ok() ? *made : FromDeepSpeed{own, {}};
}

std::string refusal(const std::string& text, const DeepSpeedGiven& given = {}) {
  const Result<FromDeepSpeed> made = recipe_from_deepspeed(text, base_recipe(), given);
  if (made.ok()) return "accepted";
  EXPECT_EQ(made.error().code, Errc::bad_input) << made.error().message;
  EXPECT_EQ(made.error().message.find('\n'), std::string::npos);
  return made.error().message;
}

std::vector<std::string> places(const std::vector<ConversionNote>& notes) {
  std::vector<std::string> list;
  for (const ConversionNote& note : notes) list.push_back(note.where);
  return list;
}
bool lists(const std::vector<ConversionNote>& notes, const std::string& where) {
  const std::vector<std::string> all = places(notes);
  return std::find(all.begin(), all.end(), where) != all.end();
}

// All that a file says, in one form for equal meanings.
std::string meaning(const Recipe& recipe) {
  ScheduleSpec schedule = *parse_schedule(recipe.schedule);
  std::string text = print_optimizer(*parse_optimizer(recipe.optimizer)) + " " + schedule.name + "{" +
                     print_fields([&](FieldVisitor& v) { schedule.fields(v); }) + "} " +
                     print_loss_scale(*parse_loss_scale(recipe.loss_scale));
  for (const char* key : {"clip_norm", "accumulate", "ranks", "precision"})
    text += std::string(" ") + key + "=" + setting_text(recipe, *find_setting(key));
  for (const auto& [name, size] : recipe.dims) text += " " + name + "=" + std::to_string(size);
  return text + " " + recipe_pipeline(recipe)->text();
}

// ---- values ----

// In the form of the examples in DeepSpeed's documentation.
constexpr const char* kExample = R"({
  "train_batch_size": 48, "gradient_accumulation_steps": 3, "train_micro_batch_size_per_gpu": 4,
  "optimizer": {"type": "Adam", "params": {"lr": 0.00015, "betas": [0.8, 0.999], "eps": 1e-7, "weight_decay": 3e-7}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.00015,
                "warmup_num_steps": 100, "total_num_steps": 1000, "warmup_type": "linear"}},
  "gradient_clipping": 0.5,
  "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 2,
           "consecutive_hysteresis": true, "min_loss_scale": 1},
  "zero_optimization": {"stage": 0, "reduce_bucket_size": 2.5e6, "overlap_comm": false}})";

TEST(DeepSpeed, AnExampleIsReadWhole) {
  const FromDeepSpeed made = read(kExample);
  const Recipe& recipe = made.recipe;
  EXPECT_EQ(recipe.ranks, 4);
  EXPECT_EQ(recipe.accumulate, 3);
  EXPECT_EQ(recipe.dims.at("batch"), 4);
  EXPECT_EQ(recipe.optimizer, "adamw{lr=0.00015,weight_decay=3e-07,beta1=0.8,eps=1e-07}");
  EXPECT_EQ(recipe.schedule, "linear{warmup=100,total=1000}");
  EXPECT_EQ(recipe.clip_norm, 0.5);
  EXPECT_EQ(recipe.precision, "f16");
  EXPECT_EQ(recipe.loss_scale, "dynamic{initial=4096,interval=500,hysteresis=2}");
  EXPECT_NE(recipe_pipeline(recipe)->text().find("data-parallel{bucket_mb=5,overlap=false}"),
            std::string::npos);
  EXPECT_EQ(places(made.notes), (std::vector<std::string>{"/scheduler/type", "/fp16"}));
  EXPECT_TRUE(recipe_compile_options(recipe).ok());
}

struct OptimizerCase {
  const char *type, *params, *text;
  const char* listed;  // a place; "": nothing
};

TEST(DeepSpeed, OptimizersHaveDeepSpeedsDefaults) {
  const OptimizerCase cases[] = {
      {"Adam", "{}", "adamw{lr=0.001,weight_decay=0}", ""},
      {"Adam", R"({"adam_w_mode": false, "weight_decay": 0.1})", "adam{lr=0.001,weight_decay=0.1}", ""},
      {"AdamW", R"({"adam_w_mode": false})", "adamw{lr=0.001,weight_decay=0}",
       "/optimizer/params/adam_w_mode"},
      {"AdamW", R"({"torch_adam": true})", "adamw{lr=0.001}", ""},
      {"AdamW", R"({"bias_correction": false})", "adamw_hf{lr=0.001,eps=1e-08,correct_bias=false}", ""},
      {"AdamW", R"({"bias_correction": false, "weight_decay": 0.1})", "adamw{lr=0.001,weight_decay=0.1}",
       "/optimizer/params/bias_correction"},
      {"Lamb", R"({"lr": 0.01, "min_coeff": 0, "max_coeff": 1e30})", "lamb{lr=0.01,weight_decay=0,eps=1e-08}",
       "/optimizer/params/bias_correction"},
      {"Lamb", "{}", "lamb{lr=0.001,weight_decay=0,eps=1e-08}", "/optimizer/params/max_coeff"},
      {"SGD", R"({"lr": 0.1, "momentum": 0.9, "nesterov": true})", "sgd{lr=0.1,momentum=0.9,nesterov=true}",
       ""},
      {"Lion", "{}", "lion{lr=0.001,beta2=0.999}", ""},
      {"Adagrad", R"({"lr_decay": 0.5})", "adagrad{lr=0.01,lr_decay=0.5}", ""},
      {"OneBitAdam", R"({"lr": 0.1, "freeze_step": 400})", "sgd{lr=0.01}", "/optimizer"},
      {"Muon", R"({"lr": 0.1})", "sgd{lr=0.01}", "/optimizer"},
      {"Adam", R"({"lr": "auto", "betas": "auto"})", "adamw{lr=0.01,weight_decay=0}", "/optimizer/params/lr"},
      {"Adam", R"({"lr": 0.5, "amsgrad": true})", "adamw{lr=0.5,weight_decay=0,amsgrad=true}", ""},
      {"RMSprop", R"({"alpha": 0.9, "centered": true})", "rmsprop{lr=0.01,alpha=0.9,centered=true}", ""},
      {"NAdam", R"({"betas": [0.8, 0.99], "momentum_decay": 0.1})",
       "nadam{lr=0.002,beta1=0.8,beta2=0.99,momentum_decay=0.1}", ""},
      {"RAdam", R"({"lr": 0.5, "decoupled_weight_decay": true})", "radam{lr=0.5,decoupled_weight_decay=true}",
       ""},
      {"Adadelta", R"({"rho": 0.8, "weight_decay": 0.1})", "adadelta{lr=1,weight_decay=0.1,rho=0.8}", ""},
  };
  for (const OptimizerCase& c : cases) {
    SCOPED_TRACE(std::string(c.type) + " " + c.params);
    const FromDeepSpeed made = read(std::string(R"({"gradient_clipping": 1, "optimizer": {"type": ")") +
                                    c.type + R"(", "params": )" + c.params + "}}");
    EXPECT_EQ(made.recipe.optimizer, c.text);
    if (*c.listed == 0)
      EXPECT_TRUE(made.notes.empty()) << made.notes[0].where;
    else
      EXPECT_TRUE(lists(made.notes, c.listed));
  }
  Recipe own = base_recipe();
  own.optimizer = "adamw{lr=0.25,beta1=0.5}";
  const char* const automatic =
      R"({"optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": 1e-5}}})";
  EXPECT_EQ(read(automatic, {}, own).recipe.optimizer, "adamw{lr=0.25,weight_decay=0,beta1=0.5,eps=1e-05}");
}

// ---- the formulas of lr_schedules.py, as its classes have them ----

double their_rise(double k, double steps) { return k / steps; }

// Step s trains at the rate of batch s - 2: the scheduler begins at -1, where all is least, and moves after the step.
double their_warmup_decay(std::int64_t step, double most, double steps, double total, bool falls) {
  const auto k = static_cast<double>(step - 2);
  if (k < 0) return 0;
  if (k < steps) return most * their_rise(k, steps);
  return falls ? most * std::max(0.0, (total - k) / std::max(1.0, total - steps)) : most;
}

double their_cosine(std::int64_t step, double lr, double steps, double total, double least) {
  const auto k = static_cast<double>(step - 2);
  if (k < 0) return 0;
  if (k < steps) return lr * their_rise(k, steps);
  const double progress = std::min(1.0, (k - steps + 1) / std::max(1.0, total - steps));
  return lr * std::max(0.0, least + (1 - least) * (1 + std::cos(std::numbers::pi * progress)) / 2);
}

double their_one_cycle(std::int64_t step, double least, double most, double first, double second) {
  const auto last = static_cast<double>(step - 2);
  const double size = first + second, ratio = first / size, batch = last + 1;
  if (last >= size) return least;
  const double x = 1 + batch / size - std::floor(1 + batch / size);
  return least + (most - least) * (x <= ratio ? x / ratio : (x - 1) / (ratio - 1));
}

double our_rate(const Recipe& recipe, std::int64_t step) {
  return parse_optimizer(recipe.optimizer)->lr * parse_schedule(recipe.schedule)->factor(step);
}

TEST(DeepSpeed, SchedulesAreTheirCurves) {
  const Recipe constant = read(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.002,
      "warmup_num_steps": 50, "warmup_type": "linear"}}})")
                              .recipe;
  const Recipe falling = read(R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 0.002,
      "warmup_num_steps": 50, "total_num_steps": 200, "warmup_type": "linear"}}})")
                             .recipe;
  const Recipe cosine = read(R"({"optimizer": {"type": "SGD", "params": {"lr": 0.1}}, "scheduler": {"type":
      "WarmupCosineLR", "params": {"warmup_num_steps": 50, "total_num_steps": 200, "cos_min_ratio": 0.05,
      "warmup_type": "linear"}}})")
                            .recipe;
  const Recipe cycle =
      read(R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-2,
      "cycle_first_step_size": 30, "cycle_second_step_size": 70}}})")
          .recipe;
  for (std::int64_t s = 1; s <= 400; ++s) {
    EXPECT_NEAR(our_rate(constant, s), their_warmup_decay(s + 2, 0.002, 50, 0, false), 1e-15) << s;
    EXPECT_NEAR(our_rate(falling, s), their_warmup_decay(s + 2, 0.002, 50, 200, true), 1e-15) << s;
    const std::int64_t late = s < 50 ? 2 : 1;  // at 50 both say the peak, or theirs one step of the fall
    if (s != 50) {
      EXPECT_NEAR(our_rate(cosine, s), their_cosine(s + late, 0.1, 50, 200, 0.05), 1e-15) << s;
    }
    EXPECT_NEAR(our_rate(cycle, s), their_one_cycle(s, 1e-4, 1e-2, 30, 70), 1e-15) << s;
  }
}

TEST(DeepSpeed, SchedulesTellWhatTheyAreNot) {
  const auto notes = [](const std::string& type, const std::string& params) {
    return read(R"({"optimizer": {"type": "Adam", "params": {"lr": 0.5}}, "gradient_clipping": 0,
                    "scheduler": {"type": ")" +
                type + R"(", "params": )" + params + "}}")
        .notes;
  };
  EXPECT_TRUE(lists(notes("WarmupLR", "{}"), "/scheduler/params/warmup_type"));  // log by default
  EXPECT_TRUE(lists(notes("WarmupLR", R"({"warmup_min_lr": 0.1})"), "/scheduler/params/warmup_min_lr"));
  EXPECT_TRUE(lists(notes("WarmupLR", R"({"warmup_max_lr": 0.1})"), "/optimizer/params/lr"));
  EXPECT_TRUE(
      notes("WarmupLR", R"({"warmup_min_lr": 0.5, "warmup_max_lr": 0.5})").empty());  // constant there too
  EXPECT_TRUE(
      lists(notes("WarmupDecayLR", R"({"total_num_steps": 5})"), "/scheduler/params/total_num_steps"));
  EXPECT_TRUE(lists(
      notes("WarmupCosineLR", R"({"warmup_min_ratio": 1, "warmup_num_steps": 9, "total_num_steps": 50})"),
      "/scheduler/params/warmup_num_steps"));
  EXPECT_TRUE(lists(notes("LRRangeTest", "{}"), "/scheduler"));
  EXPECT_TRUE(
      lists(notes("OneCycle",
                  R"({"cycle_min_lr": 0, "cycle_max_lr": 0.5, "decay_step_size": 5, "decay_lr_rate": 1})"),
            "/scheduler/params/decay_lr_rate"));
  EXPECT_TRUE(
      lists(notes("OneCycle", R"({"cycle_min_lr": 0.1, "cycle_max_lr": 0.5, "cycle_first_stair_count": 5})"),
            "/scheduler/params/cycle_first_stair_count"));
  EXPECT_TRUE(
      notes("OneCycle", R"({"cycle_min_lr": 0.1, "cycle_max_lr": 0.5, "cycle_momentum": false})").empty());
  Recipe own = base_recipe();
  own.steps = 700;
  EXPECT_EQ(
      read(
          R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_max_lr": "auto",
                     "warmup_num_steps": "auto"}}})",
          {}, own)
          .recipe.schedule,
      "linear{total=700}");
}

// ---- batches ----

TEST(DeepSpeed, BatchSizesAreConsistent) {
  const auto said = [](const std::string& text, const DeepSpeedGiven& given = {}) {
    const Recipe recipe = read(text, given).recipe;
    const auto batch = recipe.dims.find("batch");
    return std::to_string(batch == recipe.dims.end() ? 0 : batch->second) + " " +
           std::to_string(recipe.accumulate) + " " + std::to_string(recipe.ranks);
  };
  const DeepSpeedGiven four{.ranks = 4};
  EXPECT_EQ(said(R"({"train_batch_size": 32})"), "32 1 1");
  EXPECT_EQ(said(R"({"train_batch_size": 32})", four), "8 1 4");
  EXPECT_EQ(said(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 2})", four), "2 4 4");
  EXPECT_EQ(said(R"({"train_batch_size": 32, "gradient_accumulation_steps": 2})", four), "4 2 4");
  EXPECT_EQ(said(R"({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 3})", four),
            "8 3 4");
  EXPECT_EQ(said(R"({"train_micro_batch_size_per_gpu": 8})"), "8 1 1");
  EXPECT_EQ(
      said(
          R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2})"),
      "8 2 4");
  EXPECT_EQ(
      said(
          R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"})"),
      "0 1 1");
  EXPECT_NE(refusal(R"({"train_batch_size": 30})", four)
                .find("/train_batch_size: 30 is no multiple of 4 (4 ranks)"),
            std::string::npos);
  EXPECT_NE(
      refusal(
          R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2})",
          four)
          .find("32 is not 8 x 2 x 4 ranks"),
      std::string::npos);
  const FromDeepSpeed other =
      read(R"({"train_batch_size": 32})", {.free_dims = std::vector<std::string>{"N", "T"}});
  EXPECT_TRUE(lists(other.notes, "/train_micro_batch_size_per_gpu"));
  EXPECT_TRUE(other.recipe.dims.empty());
}

TEST(DeepSpeed, TheUsersBatchStays) {
  Recipe own = base_recipe();
  own.dims["batch"] = 5;
  const FromDeepSpeed made = read(R"({"train_batch_size": 32})", {.batch = true}, own);
  EXPECT_EQ(made.recipe.dims.at("batch"), 5);
  EXPECT_TRUE(lists(made.notes, "/train_micro_batch_size_per_gpu"));
}

// ---- precision and exchange ----

TEST(DeepSpeed, PrecisionsAndLossScales) {
  const auto said = [](const std::string& text) {
    const Recipe recipe = read(text).recipe;
    return recipe.precision + " " + recipe.loss_scale;
  };
  EXPECT_EQ(said(R"({"bf16": {"enabled": true}})"), "bf16 dynamic");
  EXPECT_EQ(said(R"({"bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 0}})"),
            "bf16 dynamic");
  EXPECT_EQ(said(R"({"fp16": {"enabled": true}})"), "f16 dynamic{interval=1000,hysteresis=2}");
  EXPECT_EQ(said(R"({"fp16": {"enabled": true, "loss_scale": 128}})"), "f16 static{scale=128}");
  EXPECT_EQ(said(R"({"fp16": {"enabled": "auto"}})"), "f32 dynamic");
  EXPECT_EQ(said(R"({"torch_autocast": {"enabled": true, "dtype": "bfloat16"}})"),
            "bf16{list=autocast} dynamic");
  EXPECT_EQ(said(R"({"amp": {"enabled": true, "opt_level": "O2"}})"), "f16{list=O2} dynamic");
  EXPECT_NE(refusal(R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})").find("another precision"),
            std::string::npos);
  EXPECT_TRUE(lists(read(R"({"fp16": {"enabled": true}})").notes, "/fp16/hysteresis"));
  Recipe own = base_recipe();
  own.precision = "f16{list=O2}";
  const Recipe automatic =
      read(R"({"fp16": {"enabled": "auto", "loss_scale_window": 7, "hysteresis": 1}})", {}, own).recipe;
  EXPECT_EQ(automatic.precision + " " + automatic.loss_scale, "f16{list=O2} dynamic{interval=7}");
}

TEST(DeepSpeed, ZeroStagesAreThePass) {
  const auto passes = [](const FromDeepSpeed& made) { return recipe_pipeline(made.recipe)->text(); };
  for (const char* text : {R"({"zero_optimization": {"stage": 1}})", R"({"zero_optimization": true})"}) {
    const FromDeepSpeed one = read(text);
    EXPECT_NE(passes(one).find(",zero,"), std::string::npos) << text;
    EXPECT_FALSE(lists(one.notes, "/zero_optimization/stage")) << text;
  }
  const FromDeepSpeed two = read(R"({"zero_optimization": {"stage": 2}})");
  EXPECT_NE(passes(two).find(",zero{stage=2},"), std::string::npos);
  EXPECT_FALSE(lists(two.notes, "/zero_optimization/stage"));
  EXPECT_NE(deepspeed_from_recipe(two.recipe)->text.find("\"stage\": 2"), std::string::npos);
  const FromDeepSpeed again = read(R"({"zero_optimization": {"stage": 1}})", {}, two.recipe);
  EXPECT_NE(passes(again).find(",zero,"), std::string::npos) << "the file's stage counts";
  for (const char* text : {R"({"zero_optimization": {"stage": 0}})", R"({"zero_optimization": false})"})
    EXPECT_EQ(passes(read(text, {}, two.recipe)), passes(read("{}"))) << text;
  for (const char* text : {R"({"zero_optimization": {"stage": "auto"}})", "{}"})
    EXPECT_EQ(passes(read(text, {}, two.recipe)), passes(two)) << text;
  const FromDeepSpeed three =
      read(R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
      "stage3_max_live_parameters": 1e9, "reduce_bucket_size": 7000000}})");
  for (const char* key : {"stage", "offload_optimizer", "stage3_max_live_parameters"})
    EXPECT_TRUE(lists(three.notes, std::string("/zero_optimization/") + key)) << key;
  EXPECT_NE(passes(three).find("bucket_mb=28"), std::string::npos);
  EXPECT_NE(passes(three).find(",zero{stage=2},"), std::string::npos) << "the nearest";
  EXPECT_TRUE(read(R"({"zero_optimization": {"stage": 0}, "gradient_clipping": 0})").notes.empty());
}

TEST(DeepSpeed, GradientsAreExchangedInATypeOfTheirOwn) {
  const auto passes_of = [](const FromDeepSpeed& made) { return recipe_pipeline(made.recipe)->text(); };
  const FromDeepSpeed half =
      read(R"({"communication_data_type": "bf16", "zero_optimization": {"reduce_bucket_size": 3000000}})");
  EXPECT_NE(passes_of(half).find("data-parallel{bucket_mb=6,dtype=bf16}"), std::string::npos)
      << passes_of(half);
  EXPECT_FALSE(lists(half.notes, "/communication_data_type"));
  const FromDeepSpeed full = read(R"({"communication_data_type": "fp32"})"),
                      other = read(R"({"communication_data_type": "fp16"})");
  EXPECT_EQ(passes_of(full).find("dtype"), std::string::npos);
  EXPECT_FALSE(lists(full.notes, "/communication_data_type"));
  EXPECT_EQ(passes_of(other).find("dtype"), std::string::npos);
  EXPECT_TRUE(lists(other.notes, "/communication_data_type"));
}

// ---- nothing is left out silently ----

TEST(DeepSpeed, EveryOtherKeyIsListed) {
  const std::vector<std::string> others{"steps_per_print", "wall_clock_breakdown", "activation_checkpointing",
                                        "flops_profiler",  "prescale_gradients",   "something_new"};
  json file = json::parse(kExample);
  for (const std::string& key : others) file[key] = json::object({{"enabled", true}});
  file["optimizer"]["params"]["odd"] = 1;
  file["optimizer"]["odd"] = 1;
  file["scheduler"]["odd"] = 1;
  file["scheduler"]["params"]["odd"] = 1;
  file["fp16"]["auto_cast"] = true;
  file["zero_optimization"]["odd"] = 1;
  const FromDeepSpeed made = read(file.dump());
  for (const std::string& key : others) EXPECT_TRUE(lists(made.notes, "/" + key)) << key;
  for (const char* path : {"/optimizer/params/odd", "/optimizer/odd", "/scheduler/odd",
                           "/scheduler/params/odd", "/fp16/auto_cast", "/zero_optimization/odd"})
    EXPECT_TRUE(lists(made.notes, path)) << path;
  EXPECT_EQ(meaning(made.recipe), meaning(read(kExample).recipe));
  const std::vector<ConversionNote> misspelled =
      read(R"({"gradient_cliping": 1, "zzz": 2, "gradient_clipping": 0})").notes;
  ASSERT_EQ(misspelled.size(), 2u);
  EXPECT_EQ(misspelled[0].why, "unknown key; did you mean gradient_clipping?");
  EXPECT_EQ(misspelled[1].why, "unknown key");
}

TEST(DeepSpeed, EverySettingWithoutAWordIsListed) {
  Recipe recipe = base_recipe();
  recipe.ema = 0.5;
  recipe.freeze = {"a*"};
  recipe.seed = 7;
  recipe.clip_value = 2;
  recipe.dims = {{"batch", 4}, {"T", 8}};
  recipe.schedule = "step{step_size=10}";
  recipe.optimizer = "adafactor";
  recipe.planner = "none";
  recipe.passes.pop_back();
  const ConvertedFile made = *deepspeed_from_recipe(recipe);
  for (const char* where :
       {"model", "ema", "freeze", "seed", "clip_value", "dims", "schedule", "optimizer", "planner", "passes"})
    EXPECT_TRUE(lists(made.notes, where)) << where;
  EXPECT_FALSE(lists(made.notes, "steps"));  // at its default
  EXPECT_FALSE(json::parse(made.text).contains("optimizer"));
}

TEST(DeepSpeed, RanksThatShareABatchAreListed) {
  Recipe recipe = base_recipe();
  set_pipeline(recipe, *parse_pipeline("default,tensor-parallel{size=2}"));
  const auto tells = [&] {
    const ConvertedFile made = *deepspeed_from_recipe(recipe);
    return std::any_of(made.notes.begin(), made.notes.end(),
                       [](const ConversionNote& note) { return note.value == "tensor-parallel"; });
  };
  EXPECT_FALSE(tells()) << "one rank shares with none";
  recipe.ranks = 4;
  EXPECT_TRUE(tells());
}

// ---- round trips ----

// The recipe that its own file makes of a recipe without these settings.
Recipe there_and_back(const Recipe& recipe) {
  const ConvertedFile out = *deepspeed_from_recipe(recipe);
  Recipe bare = recipe;
  for (const char* key :
       {"optimizer", "schedule", "clip_norm", "accumulate", "ranks", "precision", "loss_scale"})
    reset_setting(bare, *find_setting(key));
  bare.dims.clear();
  for (RecipePass& pass : bare.passes)
    if (pass.name == "data-parallel") pass.options.clear();
  std::erase_if(bare.passes, [](const RecipePass& pass) { return pass.name == "zero"; });
  return read(out.text, {}, bare).recipe;
}

TEST(DeepSpeed, RecipesComeBack) {
  const std::vector<std::vector<std::pair<const char*, const char*>>> cases = {
      {},
      {{"optimizer", "adam{lr=0.002,beta2=0.95}"}, {"schedule", "constant{warmup=10}"}},
      {{"optimizer", "adamw{lr=1e-4}"}, {"schedule", "linear{warmup=100,total=1000}"}, {"clip_norm", "1"}},
      {{"optimizer", "adamw{lr=1e-4,weight_decay=0.1}"}, {"schedule", "linear{total=1000}"}},
      {{"optimizer", "sgd{lr=0.1,momentum=0.9,nesterov=true}"},
       {"schedule", "cosine{warmup=5,total=50,end=0.1}"}},
      {{"optimizer", "sgd{lr=0.1,maximize=true,weight_decay=0.01}"}, {"schedule", "cosine{total=50}"}},
      {{"optimizer", "lion{lr=3e-5}"}, {"precision", "bf16"}, {"accumulate", "4"}, {"ranks", "8"}},
      {{"optimizer", "lamb{lr=0.01}"}, {"precision", "f16"}, {"loss_scale", "static{scale=1024}"}},
      {{"optimizer", "adagrad{lr_decay=0.1,initial_accumulator_value=0.5}"},
       {"precision", "f16"},
       {"loss_scale", "dynamic{initial=1024,interval=100,hysteresis=3}"}},
      {{"optimizer", "adamw{lr=0.01,amsgrad=true,weight_decay=0.2}"}},
      {{"optimizer", "adam{lr=0.01,amsgrad=true}"}},
      {{"optimizer", "rmsprop{lr=0.1,momentum=0.9,alpha=0.8,centered=true,eps=1e-5,maximize=true}"}},
      {{"optimizer", "nadam{lr=0.1,beta2=0.9,momentum_decay=0.1,weight_decay=0.1}"}},
      {{"optimizer", "radam{lr=0.1,beta1=0.8,decoupled_weight_decay=true,weight_decay=0.1}"}},
      {{"optimizer", "adadelta{rho=0.8,eps=1e-5}"}},
      {{"optimizer", "adamw_hf{lr=0.01,correct_bias=false,eps=1e-5}"}, {"precision", "bf16{list=autocast}"}},
      {{"optimizer", "adamw{lr=0.003}"},
       {"precision", "f16{list=O1}"},
       {"ranks", "2"},
       {"passes", "default,data-parallel{bucket_mb=16,overlap=false}"}},
      {{"optimizer", "adamw{lr=0.003}"},
       {"precision", "bf16"},
       {"ranks", "3"},
       {"passes", "default,data-parallel{bucket_mb=25}"}},
      {{"optimizer", "adamw{lr=0.003}"},
       {"ranks", "4"},
       {"passes", "default,zero{stage=2},data-parallel{bucket_mb=4,dtype=bf16}"}},
      {{"optimizer", "adamw{lr=0.003}"}, {"ranks", "4"}, {"passes", "default,zero"}},
      {{"optimizer", "sgd{lr=0.003}"}, {"ranks", "4"}, {"passes", "default,zero{stage=2}"}},
      {{"schedule", "one-cycle{warmup=31,total=101,div_factor=25,final_div_factor=1,linear=true}"},
       {"optimizer", "sgd{lr=0.001}"}},
      {{"schedule", "one-cycle{warmup=2,total=100,div_factor=7.3,final_div_factor=1,linear=true}"},
       {"optimizer", "sgd{lr=0.3}"}}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    Recipe recipe = base_recipe();
    recipe.dims["batch"] = 6;
    for (const auto& [key, text] : cases[i])
      ASSERT_TRUE(read_setting(recipe, *find_setting(key), text, key).ok()) << key;
    EXPECT_EQ(meaning(there_and_back(recipe)), meaning(recipe)) << deepspeed_from_recipe(recipe)->text;
  }
}

TEST(DeepSpeed, FilesComeBack) {
  for (
      const char* text :
      {kExample,
       R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 1.5e-4}}, "fp16": {"enabled": true},
                      "zero_optimization": true})",
       R"({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 3, "gradient_clipping": 1.0,
            "zero_optimization": {"stage": 0, "reduce_bucket_size": 7000000}, "fp16": {"enabled": true, "loss_scale_window": 10}})",
       R"({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "betas": [0.9, 0.95]}},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 2e-5, "warmup_num_steps": 10}}, "bf16": {"enabled": true}})"}) {
    const Recipe once = read(text).recipe;
    EXPECT_EQ(meaning(there_and_back(once)), meaning(once)) << text;
  }
}

// The documented keys of what is written, with their types.
TEST(DeepSpeed, WhatIsWrittenIsDocumented) {
  const std::function<bool(const json&)> number = [](const json&v) { return v.is_number(); },
                                         integer = [](const json&v) { return v.is_number_integer(); },
                                         flag = [](const json&v) { return v.is_boolean(); },
                                         text = [](const json&v) { return v.is_string(); },
                                         object = [](const json&v) { return v.is_object(); };
  const std::map<std::string, std::function<bool(const json&)>> keys = {
      {"/train_batch_size", integer},
      {"/train_micro_batch_size_per_gpu", integer},
      {"/gradient_accumulation_steps", integer},
      {"/gradient_clipping", number},
      {"/optimizer", object},
      {"/optimizer/type", text},
      {"/optimizer/params", object},
      {"/scheduler", object},
      {"/scheduler/type", text},
      {"/scheduler/params", object},
      {"/fp16", object},
      {"/fp16/enabled", flag},
      {"/fp16/loss_scale", number},
      {"/fp16/initial_scale_power", integer},
      {"/fp16/loss_scale_window", integer},
      {"/fp16/hysteresis", integer},
      {"/fp16/consecutive_hysteresis", flag},
      {"/fp16/min_loss_scale", integer},
      {"/bf16", object},
      {"/bf16/enabled", flag},
      {"/zero_optimization", object},
      {"/zero_optimization/stage", integer},
      {"/zero_optimization/reduce_bucket_size", integer},
      {"/zero_optimization/overlap_comm", flag}};
  for (const char* precision : {"f32", "bf16", "f16"}) {
    Recipe recipe = base_recipe();
    recipe.dims["batch"] = 6;
    recipe.precision = precision;
    recipe.schedule = "cosine{warmup=5,total=50}";
    const json file = json::parse(deepspeed_from_recipe(recipe)->text);
    for (const auto& [key, value] : file.items()) {
      ASSERT_TRUE(keys.count("/" + key)) << key;
      EXPECT_TRUE(keys.at("/" + key)(value)) << key;
      if (!value.is_object()) continue;
      for (const auto& [inner, of] : value.items()) {
        ASSERT_TRUE(keys.count("/" + key + "/" + inner)) << key << " " << inner;
        EXPECT_TRUE(keys.at("/" + key + "/" + inner)(of)) << key << " " << inner;
      }
    }
  }
}

// ---- files from strangers ----

TEST(DeepSpeed, WrongTypesAndNumbersAreOneErrorEach) {
  const json whole = json::parse(kExample), flat = whole.flatten();
  std::size_t refused = 0;
  // Each value in turn becomes what it may not be.
  for (const json& bad : {json(json::array()), json("text"), json(-1), json(1e300), json(0.5)})
    for (const auto& [path, value] : flat.items()) {
      json file = whole;
      file[json::json_pointer(path)] = bad;
      const Result<FromDeepSpeed> made = recipe_from_deepspeed(file.dump(), base_recipe(), {});
      if (made.ok()) continue;
      ++refused;
      EXPECT_EQ(made.error().code, Errc::bad_input);
      EXPECT_EQ(made.error().message.find('\n'), std::string::npos);
      EXPECT_EQ(made.error().message.rfind("/", 0), 0u) << path << ": " << made.error().message;
    }
  EXPECT_GT(refused, 70u);
  for (const char* block : {"optimizer", "scheduler", "fp16", "bf16", "zero_optimization"})
    EXPECT_EQ(refusal(std::string(R"({")") + block + R"(": [1]})"),
              std::string("/") + block + ": must be an object, not array");
}

TEST(DeepSpeed, HostileTextsAreOneErrorEach) {
  EXPECT_NE(refusal("[1]").find("must be an object"), std::string::npos);
  EXPECT_NE(refusal("").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal("{\"train_batch_size\": 1e999}").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal("{\"a\xff\": 1}").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal("{\"a\": 1, \"a\": 2}").find("is there twice"), std::string::npos);
  std::string deep;
  while (deep.size() < 10'000'000) deep += "{\"a\":";
  EXPECT_NE(refusal(deep).find("nested deeper"), std::string::npos);
  EXPECT_NE(refusal("{\"x\": " + std::string(10'000'000, '[')).find("nested deeper"), std::string::npos);
  // Names and values that a terminal would obey stay escaped, and short.
  const FromDeepSpeed made =
      read("{\"\\u001b[2J" + std::string(5000, 'k') + "\": \"\\u001b" + std::string(5000, 'v') + "\"}");
  for (const ConversionNote& note : made.notes) {
    EXPECT_EQ((note.where + note.value + note.why).find('\x1b'), std::string::npos);
    EXPECT_LT((note.where + note.value + note.why).size(), 600u);
  }
}

}  // namespace
}  // namespace gradloom::test
