// TrainingArguments and Accelerate's file: values, the Trainer's curves, and what is listed.
#include "sessions/training_arguments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "engine/train/schedules.h"

namespace gradloom::test {
namespace {

using json = nlohmann::json;

Recipe job(const std::string& optimizer, const std::string& schedule = "constant") {
  Recipe recipe;
  recipe.model = "m.onnx";
  set_pipeline(recipe, default_pipeline());
  recipe.dims["batch"] = 4;
  recipe.optimizer = optimizer;
  recipe.schedule = schedule;
  recipe.steps = 100;
  return recipe;
}

json arguments(const Recipe& recipe) { return json::parse(training_arguments_of(recipe)->text); }

// The reasons of the notes on one setting.
std::string reasons(const Recipe& recipe, const std::string& where) {
  std::string text;
  const ConvertedFile file = *training_arguments_of(recipe);
  for (const ConversionNote& note : file.notes)
    if (note.where == where) text += note.why + "; ";
  return text;
}

TEST(TrainingArguments, SayTheSettings) {
  Recipe recipe = job("adamw{lr=0.002,beta2=0.95,eps=1e-6}", "linear{warmup=10,total=100}");
  recipe.accumulate = 3;
  recipe.clip_norm = 0.5;
  recipe.precision = "bf16{list=autocast}";
  recipe.seed = 7;
  recipe.eval_data = "npz:held.npz";
  recipe.eval_every = 20;
  EXPECT_EQ(
      arguments(recipe),
      json::parse(R"({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3, "max_steps": 100,
                            "dataloader_drop_last": true, "learning_rate": 0.002, "weight_decay": 0.01, "adam_beta1": 0.9,
                            "adam_beta2": 0.95, "adam_epsilon": 1e-06, "optim": "adamw_torch", "lr_scheduler_type": "linear",
                            "warmup_steps": 10, "max_grad_norm": 0.5, "bf16": true, "fp16": false, "eval_strategy": "steps",
                            "eval_steps": 20, "seed": 7, "use_cpu": true})"));
  EXPECT_EQ(reasons(recipe, "precision"), "");
  EXPECT_NE(reasons(recipe, "optimizer").find("no biases and norms"), std::string::npos);
  EXPECT_NE(reasons(recipe, "eval_data"), "");
  recipe.epochs = 3;
  recipe.steps = 1'000'000'000'000;
  EXPECT_EQ(arguments(recipe)["num_train_epochs"], 3);
  EXPECT_FALSE(arguments(recipe).contains("max_steps"));
}

TEST(TrainingArguments, ListWhatTheTrainerHasNot) {
  for (const char* optimizer :
       {"lamb", "sgd{momentum=0.9}", "adagrad{lr_decay=0.1}", "adamw_hf", "adafactor",
        "adam{weight_decay=0.1}", "adamw{maximize=true}", "lion{eight_bit_states=true}",
        "adamw{amsgrad=true}", "rmsprop{momentum=0.9}", "nadam", "radam", "adadelta"})
    EXPECT_NE(reasons(job(optimizer), "optimizer"), "") << optimizer;
  for (const char* optimizer :
       {"adam{lr=0.1}", "adamw{weight_decay=0}", "sgd{lr=0.1}", "adagrad", "lion", "rmsprop"})
    EXPECT_EQ(reasons(job(optimizer), "optimizer"), "") << optimizer;
  EXPECT_FALSE(arguments(job("lamb")).contains("optim"));
  for (const char* schedule :
       {"step{step_size=5}", "one-cycle{total=100}", "cosine-restarts{period=5}", "linear{total=50}",
        "linear{total=100,end=0.1}", "cosine{total=100}", "constant{warmup=5}"})
    EXPECT_NE(reasons(job("adam", schedule), "schedule"), "") << schedule;
  for (const char* schedule : {"constant", "polynomial{total=100,power=2}"})
    EXPECT_EQ(reasons(job("adam", schedule), "schedule"), "") << schedule;
  Recipe recipe = job("adam");
  recipe.ema = 0.5;
  recipe.dims["T"] = 8;
  recipe.precision = "f64";
  for (const char* where : {"model", "ema", "dims", "precision"})
    EXPECT_NE(reasons(recipe, where), "") << where;
}

// The factors of transformers/optimization.py: step s has that of s - 1.
double their_factor(const json& arguments, std::int64_t step) {
  const std::string type = arguments["lr_scheduler_type"];
  const double now = static_cast<double>(step - 1), rise = arguments["warmup_steps"],
               total = arguments["max_steps"];
  if (type == "constant") return 1;
  if (now < rise) return now / std::max(1.0, rise);
  if (type == "constant_with_warmup") return 1;
  const double part = (now - rise) / std::max(1.0, total - rise);
  if (type == "linear") return std::max(0.0, 1 - part);
  const json more = arguments.value("lr_scheduler_kwargs", json::object());
  if (type == "polynomial") {
    const double lr = arguments["learning_rate"], end = more["lr_end"];
    return now > total ? end / lr : ((lr - end) * std::pow(1 - part, more["power"].get<double>()) + end) / lr;
  }
  const double least = more.value("min_lr_rate", 0.0);
  return std::max(0.0, (1 + std::cos(std::numbers::pi * part)) / 2 * (1 - least) + least);
}

TEST(TrainingArguments, SchedulesAreTheTrainersAStepEarlier) {
  for (const char* schedule : {"constant{warmup=10}", "linear{warmup=10,total=100}", "linear{total=100}",
                               "cosine{total=100}", "cosine{warmup=10,total=100,end=0.2}"}) {
    const json given = arguments(job("adam{lr=0.1}", schedule));
    for (std::int64_t s = 1; s < 100; ++s)
      EXPECT_NEAR(parse_schedule(schedule)->factor(s), their_factor(given, s + 1), 1e-14)
          << schedule << " " << s;
  }
  for (const char* schedule :
       {"constant", "polynomial{total=100,power=2}", "polynomial{total=100,end=0.1,power=0.5}"}) {
    const json given = arguments(job("adam{lr=0.1}", schedule));
    for (std::int64_t s = 1; s <= 100; ++s)
      EXPECT_NEAR(parse_schedule(schedule)->factor(s), their_factor(given, s), 1e-14) << schedule << " " << s;
  }
}

TEST(TrainingArguments, AcceleratesFileCountsProcessesOfAllMachines) {
  Recipe recipe = job("adam");
  recipe.ranks = 8;
  recipe.precision = "f16";
  const std::string two = accelerate_config_of(recipe, 2)->text;
  for (const char* line :
       {"\nnum_machines: 2\n", "\nnum_processes: 8\n", "\nmixed_precision: \"fp16\"\n", "\nuse_cpu: true\n",
        "\ndistributed_type: MULTI_CPU\n", "\nmain_process_ip: \"<ADDRESS>\"\n"})
    EXPECT_NE(two.find(line), std::string::npos) << line << two;
  recipe.ranks = 1;
  const ConvertedFile one = *accelerate_config_of(recipe, 1);
  EXPECT_NE(one.text.find("distributed_type: \"NO\"\n"), std::string::npos);
  EXPECT_EQ(one.text.find('<'), std::string::npos);
  EXPECT_TRUE(std::any_of(one.notes.begin(), one.notes.end(),
                          [](const auto& note) { return note.where == "optimizer"; }));
}

TEST(TrainingArguments, ZeroIsFsdpOnGpusOrListed) {
  const auto with = [](const char* passes, const char* device, std::int64_t ranks) {
    Recipe recipe = job("adamw");
    set_pipeline(recipe, *parse_pipeline(passes));
    recipe.device = device;
    recipe.ranks = ranks;
    return recipe;
  };
  const auto zero_notes = [](const std::vector<ConversionNote>& notes) {
    return std::count_if(notes.begin(), notes.end(),
                         [](const ConversionNote& note) { return note.value.starts_with("zero"); });
  };
  const Recipe two = with("default,zero{stage=2}", "cuda:0", 4);
  EXPECT_EQ(arguments(two)["fsdp"], "shard_grad_op");
  EXPECT_EQ(zero_notes(training_arguments_of(two)->notes), 0);
  const std::string file = accelerate_config_of(two, 1)->text;
  EXPECT_NE(file.find("\ndistributed_type: FSDP\nfsdp_config:\n"), std::string::npos) << file;
  EXPECT_NE(file.find("\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"), std::string::npos) << file;
  for (const Recipe& recipe : {with("default,zero", "cuda:0", 4), with("default,zero{stage=2}", "cpu", 4),
                               with("default,zero{stage=2}", "cuda:0", 1)}) {
    EXPECT_FALSE(arguments(recipe).contains("fsdp"));
    EXPECT_EQ(zero_notes(training_arguments_of(recipe)->notes), 1);
    EXPECT_EQ(zero_notes(accelerate_config_of(recipe, 1)->notes), 1);
    EXPECT_EQ(accelerate_config_of(recipe, 1)->text.find("FSDP"), std::string::npos);
  }
  EXPECT_EQ(zero_notes(training_arguments_of(with("default", "cpu", 2))->notes), 0);
}

}  // namespace
}  // namespace gradloom::test
