// The flags of a recipe: what the command line says of one, read again, is that recipe.
#include "app/recipe_flags.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

// As a shell splits the line: '..' is one word, also an empty one.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  bool quoted = false, open = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == ' ' && !quoted) {
      open = false;
      continue;
    }
    if (!open) words.emplace_back();
    open = true;
    if (c == '\'')
      quoted = !quoted;
    else
      words.back() += c == '\\' && !quoted ? line[++i] : c;
  }
  return words;
}

Result<Recipe> resolved(const std::string& arguments, const Recipe* base = nullptr) {
  CLI::App app;
  RecipeFlags flags;
  flags.declare(app);
  try {
    std::vector<std::string> words = words_of(arguments);
    std::reverse(words.begin(), words.end());
    app.parse(words);
  } catch (const CLI::ParseError& e) {
    return Error{Errc::usage, e.what()};
  }
  return flags.resolve(base);
}

std::string arguments_of(const Recipe& recipe) {
  return command_line(recipe, {}).substr(std::string("gradloom train ").size());
}

Recipe default_recipe() {
  Recipe recipe;
  recipe.model = "m.onnx";
  set_pipeline(recipe, default_pipeline());
  return recipe;
}

TEST(RecipeFlags, RulesAreReadFromTextOrFileAndSwitchedOnFirst) {
  const auto recipe = resolved("m.onnx --rules 'rule twice { y = Neg(n); n = Neg(x) -> x }'");
  ASSERT_TRUE(recipe.ok()) << recipe.error().message;
  EXPECT_EQ(recipe->passes[0].name, "twice");
  EXPECT_EQ(recipe->passes.size(), default_pipeline().passes.size() + 1);
  EXPECT_EQ(recipe_pipeline(*recipe)->passes[0].def->summary, std::string("y = Neg(n); n = Neg(x) -> x"));
  EXPECT_EQ(arguments_of(*recipe).find("--passes"), std::string::npos) << "the default has them";
  const auto off =
      resolved("m.onnx --rules 'rule twice { y = Neg(n); n = Neg(x) -> x }' --passes default,-twice");
  ASSERT_TRUE(off.ok()) << off.error().message;
  EXPECT_EQ(off->passes.size(), default_pipeline().passes.size());
  const auto absent = resolved("m.onnx --rules no-such-file");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, Errc::io);
  const auto wrong = resolved("m.onnx --rules 'rule twice { y = Neg(n) -> z }'");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message, "rules:1:28: 'z' is no value that the pattern is made of");
}

TEST(RecipeFlags, EverySettingGoesThroughTheCommandLine) {
  Recipe recipe = default_recipe();
  auto back = resolved(arguments_of(recipe));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, recipe);
  recipe.dims = {{"batch", 8}, {"time", 64}};
  recipe.loss = "ce{axis=1}:logits,labels";
  recipe.freeze = {"wte*", "ln_?"};
  recipe.train = {"*.cos"};
  recipe.load_params = "p.safetensors";
  recipe.load_optimizer = "o.safetensors";
  recipe.group = {"*bias{weight_decay=0}", "wte*{lr=1e-4,freeze=off}"};
  recipe.clip_value = 0.25;
  recipe.optimizer = "adamw{lr=0.001}";
  recipe.schedule = "cosine{warmup=10,total=100}";
  recipe.clip_norm = 0.1;
  recipe.accumulate = 4;
  recipe.ranks = 3;
  recipe.reduce = "ring";
  recipe.memory_budget = "2GiB";
  recipe.recompute = {"Softmax", "/blocks.?/*"};
  recipe.offload = {"auto", "/blocks.0/*"};
  recipe.costs = "runs of today.gls#3";
  set_precision(recipe, "f16");
  recipe.loss_scale = "dynamic{initial=256}";
  recipe.data = "tokens:text";
  recipe.ema = 0.99;
  recipe.epochs = 3;
  recipe.shuffle = true;
  recipe.eval_data = "tokens{bytes=2}:held out";
  recipe.eval_every = 20;
  recipe.eval_batches = 5;
  recipe.early_stop = "patience=3,min_delta=0.01";
  recipe.seed = 18446744073709551615u;
  recipe.steps = 200;
  recipe.threads = 2;
  recipe.rules = "rule twice {\n  y = Neg(n); n = Neg(x) -> x  // both\n}\nrule once { y = Abs(x) -> x }";
  set_pipeline(recipe, *parse_pipeline("default,-fuse-gelu,-once,cse{only=@0123456789ab|/a/*}",
                                       *recipe_rules(recipe)));
  recipe.passes[0].sites.except = {"here"};
  recipe.planner = "reuse";
  recipe.in_place = recipe.pieces = false;
  recipe.record = false;
  recipe.strict_libraries = true;
  recipe.search = 8;
  recipe.device = "cuda:0";
  recipe.profile = "all";
  const std::string line = arguments_of(recipe);
  for (const RecipeSetting& setting : recipe_settings()) {
    const std::string flag = flag_of(setting);
    if (flag == "--ops") continue;  // of libraries that are loaded: custom_ops_test.cpp
    EXPECT_TRUE(flag.empty() || line.find(flag + " ") != std::string::npos) << flag << " is not in: " << line;
  }
  back = resolved(line);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, recipe) << line;
}

TEST(RecipeFlags, PassesAreSaidByWhatDiffersFromTheUsualOnes) {
  for (const char* text : {"default,drop-padding", "default,-fuse-gelu,drop-padding",
                           "default,fuse-elementwise{except=/a},drop-padding", "none", "fuse-gelu"}) {
    const auto pipeline = parse_pipeline(text);
    ASSERT_TRUE(pipeline.ok()) << pipeline.error().message;
    EXPECT_EQ(pipeline_flag(*pipeline), text);
  }
}

// A command that names where the job is from says only what is different.
TEST(RecipeFlags, BesideItsSourceAJobSaysWhatDiffers) {
  JobSource source{"s.db#2", default_recipe(), ""};
  source.recipe.dims = {{"batch", 8}};
  source.recipe.train = {"a", "b"};
  const auto line = [&](const Recipe& recipe) { return command_line(recipe, {.source = &source}); };
  EXPECT_EQ(line(source.recipe), "gradloom train --recipe 's.db#2'");
  Recipe changed = source.recipe;
  changed.dims["batch"] = 4;
  changed.train = {};
  changed.steps = 7;
  set_pipeline(changed, *parse_pipeline("default,drop-padding"));
  EXPECT_EQ(
      line(changed),
      "gradloom train --recipe 's.db#2' --dim batch=4 --train '' --steps 7 --passes default,drop-padding");
  changed = source.recipe;
  changed.model = "other.onnx";
  EXPECT_EQ(line(changed), "gradloom train other.onnx --recipe 's.db#2'");
}

// What the window shows when training goes on: read with the checkpoint's recipe as the base it is the form's.
TEST(RecipeFlags, AResumedRunSaysWhatDiffersFromItsCheckpoint) {
  Recipe before = default_recipe();
  before.dims = {{"batch", 8}};
  before.clip_norm = 0.5;
  before.freeze = {"wte*", "ln_?"};
  before.eval_data = "npz:held out.npz";
  before.rules = "rule twice { y = Neg(n); n = Neg(x) -> x }";
  set_pipeline(before, *parse_pipeline("default,-fuse-gelu", *recipe_rules(before)));
  const auto line = [&](const Recipe& recipe) {
    return command_line(recipe, {"s.db", {"kept", 10, 3}, "kept/step-00000010", &before})
        .substr(std::string("gradloom train ").size());
  };
  EXPECT_EQ(
      line(before),
      "m.onnx --dim batch=8 --optimizer 'sgd{lr=0.01}' --steps 10 --resume kept/step-00000010 --checkpoint kept "
      "--checkpoint-every 10 --checkpoint-keep 3 --session s.db");
  Recipe changed = before;
  changed.clip_norm = 0;
  changed.freeze = {};
  changed.eval_data = "";
  changed.rules = "";
  set_pipeline(changed, default_pipeline());
  for (const Recipe& recipe : {before, changed}) {
    std::string said = line(recipe);
    said.resize(said.find(" --resume"));
    const auto back = resolved(said, &before);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, recipe) << said;
  }
}

TEST(RecipeFlags, SidesOfAComparisonNameSettingsLikeFlags) {
  Recipe recipe = default_recipe();
  const Status changed =
      RecipeFlags::override_with(recipe, "passes=none;in-place=off;clip-norm=1;dim=batch=4;steps=7");
  ASSERT_TRUE(changed.ok()) << changed.error().message;
  EXPECT_TRUE(recipe.passes.empty());
  EXPECT_FALSE(recipe.in_place);
  EXPECT_EQ(recipe.clip_norm, 1);
  EXPECT_EQ(recipe.dims.at("batch"), 4);
  EXPECT_EQ(recipe.steps, 7);
  recipe.model_hash = "of m.onnx";
  ASSERT_TRUE(RecipeFlags::override_with(recipe, "model=" + recipe.model).ok());
  EXPECT_EQ(recipe.model_hash, "of m.onnx");
  ASSERT_TRUE(RecipeFlags::override_with(recipe, "model=other.onnx").ok());
  EXPECT_EQ(recipe.model, "other.onnx");
  EXPECT_EQ(recipe.model_hash, "") << "another file has other contents";
  const auto error = [&](const std::string& text) {
    Recipe copy = recipe;
    const Status status = RecipeFlags::override_with(copy, text);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_NE(error("pases=none").find("; did you mean passes?"), std::string::npos) << error("pases=none");
  EXPECT_EQ(error("steps=0"), "--steps must be at least 1");
  EXPECT_EQ(error("algorithms=x").rfind("unknown setting 'algorithms'", 0), 0u);
  EXPECT_EQ(error("steps"), "expected setting=value, got 'steps'");
}

TEST(RecipeFlags, WrongValuesAreUsageErrors) {
  for (const char* wrong : {"--steps 0", "--accumulate 4294967296", "--threads 2000", "--precision f8",
                            "--in-place maybe", "--clip-norm nan", "--seed -1", "--optimizer adamm",
                            "--schedule cosin", "--planner bestfit", "--dim batch", "--exclude fuse-gelu"}) {
    const auto recipe = resolved(std::string("m.onnx ") + wrong);
    ASSERT_FALSE(recipe.ok()) << wrong;
    EXPECT_EQ(recipe.error().code, Errc::usage) << wrong;
    EXPECT_EQ(recipe.error().message.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace gradloom
