#include "sessions/recipe_settings.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/paths.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

using json = nlohmann::json;
using RecipeSettings = SessionTest;

const RecipeSetting& setting(const std::string& key) {
  const RecipeSetting* const found = find_setting(key);
  EXPECT_NE(found, nullptr) << key;
  return found != nullptr ? *found : recipe_settings()[0];
}

std::string read(const std::string& key, const std::string& text) {
  Recipe recipe;
  Status status = read_setting(recipe, setting(key), text, "--" + key);
  if (status) status = check_setting(recipe, setting(key), "--" + key);
  return status ? setting_text(recipe, setting(key)) : status.error().message;
}

TEST_F(RecipeSettings, TheCommittedSchemaIsTheTables) {
  EXPECT_EQ(read_all(GRADLOOM_SOURCE_DIR "/sessions/recipe.schema.json"), recipe_schema_json())
      << "gradloom export --schema > sessions/recipe.schema.json";
}

TEST_F(RecipeSettings, TheCommittedReferenceIsTheTables) {
  EXPECT_EQ(read_all(GRADLOOM_SOURCE_DIR "/docs/recipe.md"), recipe_page() + "\n")
      << "gradloom recipe --markdown > docs/recipe.md";
}

TEST_F(RecipeSettings, EveryRowIsWhole) {
  std::set<std::string> keys, flags;
  for (const RecipeSetting& s : recipe_settings()) {
    EXPECT_TRUE(keys.insert(s.key).second) << s.key;
    const std::string flag = flag_of(s);
    EXPECT_TRUE(flag.empty() || flags.insert(flag).second) << flag;
    EXPECT_NE(std::string(s.help), "") << s.key;
    EXPECT_EQ(help_of(s).find('\n'), std::string::npos) << s.key;
    EXPECT_EQ(s.kind == SettingKind::part, std::holds_alternative<std::monostate>(s.member)) << s.key;
    if (s.kind == SettingKind::part) continue;
    // The default is of the setting's type and may be.
    Recipe recipe;
    EXPECT_EQ(error_of(check_setting(recipe, s, s.key)), "");
    EXPECT_TRUE(at_default(recipe, s)) << s.key;
    EXPECT_EQ(error_of(read_setting(recipe, s, setting_text(Recipe(), s), s.key)), "");
    EXPECT_EQ(recipe, Recipe()) << s.key;
  }
}

// Reading, writing, resetting: each row concerns its own member and no other.
TEST_F(RecipeSettings, RowsConcernTheirMember) {
  const std::map<std::string, std::string> others = {{"loss", "ce:a,b"},
                                                     {"ops", "a.so b.so"},
                                                     {"freeze", "a* b"},
                                                     {"optimizer", "adam"},
                                                     {"schedule", "constant{warmup=3}"},
                                                     {"clip_norm", "0.5"},
                                                     {"accumulate", "2"},
                                                     {"ranks", "2"},
                                                     {"reduce", "ring"},
                                                     {"precision", "bf16{full=Softmax}"},
                                                     {"loss_scale", "dynamic{initial=8}"},
                                                     {"data", "npz:f"},
                                                     {"seed", "18446744073709551615"},
                                                     {"steps", "7"},
                                                     {"threads", "3"},
                                                     {"planner", "reuse"},
                                                     {"in_place", "off"},
                                                     {"pieces", "off"},
                                                     {"record", "off"},
                                                     {"search", "4"},
                                                     {"strict_libraries", "on"},
                                                     {"train", "c* d"},
                                                     {"device", "cuda:0"},
                                                     {"profile", "all"},
                                                     {"load_params", "p.npz"},
                                                     {"load_optimizer", "o.npz"},
                                                     {"memory_budget", "2GiB"},
                                                     {"recompute", "Softmax /head/*"},
                                                     {"offload", "auto /head/*"},
                                                     {"costs", "runs.gls#3"},
                                                     {"clip_value", "2"},
                                                     {"ema", "0.9"},
                                                     {"epochs", "3"},
                                                     {"shuffle", "on"},
                                                     {"eval_data", "npz:g"},
                                                     {"eval_every", "5"},
                                                     {"eval_batches", "6"},
                                                     {"early_stop", "patience=2"},
                                                     {"group", "*bias{lr=2} w{freeze=on}"}};
  for (const RecipeSetting& s : recipe_settings()) {
    if (s.kind == SettingKind::part) continue;
    ASSERT_EQ(others.count(s.key), 1u) << "a value other than the default for " << s.key;
    Recipe recipe;
    recipe.model = "m.onnx";
    const Recipe before = recipe;
    EXPECT_EQ(error_of(read_setting(recipe, s, others.at(s.key), s.key)), "");
    EXPECT_EQ(setting_text(recipe, s), others.at(s.key));
    EXPECT_FALSE(at_default(recipe, s)) << s.key;
    json written = json::parse(recipe_json(recipe)), plain = json::parse(recipe_json(before));
    EXPECT_NE(written[s.key], plain[s.key]) << s.key;
    written.erase(s.key);
    plain.erase(s.key);
    EXPECT_EQ(written, plain) << s.key;
    const auto back = parse_recipe(recipe_json(recipe));
    ASSERT_TRUE(back.ok()) << error_of(back);
    EXPECT_EQ(*back, recipe) << s.key;
    reset_setting(recipe, s);
    EXPECT_EQ(recipe, before) << s.key;
  }
}

TEST_F(RecipeSettings, ErrorsNameFlagAndBound) {
  EXPECT_EQ(read("steps", "ten"), "--steps expects an integer, got 'ten'");
  EXPECT_EQ(read("steps", "1e3"), "--steps expects an integer, got '1e3'");
  EXPECT_EQ(read("clip_norm", "ten"), "--clip_norm expects a number, got 'ten'");
  EXPECT_EQ(read("steps", "0"), "--steps must be at least 1");
  EXPECT_EQ(read("accumulate", "4294967296"), "--accumulate must be at most 65536");
  EXPECT_EQ(read("search", "33"), "--search must be at most 32");
  EXPECT_EQ(read("threads", "2000"), "--threads must be at most 1024") << "files may say up to 4096";
  EXPECT_EQ(read("clip_norm", "nan"), "--clip_norm must be at most 1e+30");
  EXPECT_EQ(read("clip_norm", "-1"), "--clip_norm must be at least 0");
  EXPECT_EQ(read("seed", "-1"), "--seed expects an integer of at least 0, got '-1'");
  EXPECT_EQ(read("precision", "f8"), "unknown precision 'f8' (known: f32, f64, bf16, f16)");
  EXPECT_EQ(read("in_place", "maybe"), "--in_place maybe: expected one of on, off");
  EXPECT_EQ(
      read("optimizer", "adamm"),
      "unknown optimizer 'adamm' (known: sgd, adam, adamw, lamb, adagrad, lion, adamw_hf, adafactor, rmsprop, nadam, radam, adadelta); did you mean adam?");
  EXPECT_NE(read("planner", "bestfit").find("did you mean best-fit?"), std::string::npos);
}

}  // namespace
}  // namespace gradloom::test
