#include "sessions/recipe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/file.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

using json = nlohmann::json;
using RecipeTest = SessionTest;

Recipe full_recipe() {
  Recipe recipe;
  recipe.model = "models/gpt.onnx";
  recipe.model_hash = "00112233445566778899aabbccddeeff";
  recipe.dims = {{"batch", 8}, {"time", 64}};
  recipe.ops = {"/ops.so#00112233445566778899aabbccddeeff", "/more.so"};
  recipe.loss = "ce:logits,labels";
  recipe.freeze = {"wte*", "ln_?"};
  recipe.train = {"*.cos", "ln_f"};
  recipe.load_params = "/p.safetensors";
  recipe.load_optimizer = "/o.safetensors";
  recipe.memory_budget = "2GiB";
  recipe.recompute = {"Softmax", "/head/*"};
  recipe.offload = {"auto", "/body/*"};
  recipe.group = {"*bias{weight_decay=0}", "wte*{lr=1e-4}"};
  recipe.costs = "/runs.gls#3";
  recipe.kernel_times = {{"product", "MatMul", "f32[8, 64]", 4096, 1024.5, 2048, 1234.5},
                         {"sums", "ReduceSum", "f32[8] i64[8]", 0, 8, 0, 1}};
  recipe.clip_value = 0.25;
  recipe.ema = 0.999;
  recipe.epochs = 3;
  recipe.shuffle = true;
  recipe.eval_data = "npy:x=/x.npy,y=/y.npy";
  recipe.eval_every = 50;
  recipe.eval_batches = 8;
  recipe.early_stop = "patience=3,min_delta=0.01";
  recipe.optimizer = "adamw{lr=0.001}";
  recipe.schedule = "cosine{warmup=10,total=100}";
  recipe.clip_norm = 0.1;
  recipe.accumulate = 4;
  recipe.ranks = 2;
  recipe.reduce = "tree";
  recipe.data = "tokens:README.md";
  recipe.seed = 18446744073709551615u;
  recipe.steps = 200;
  recipe.threads = 2;
  recipe.rules = "rule twice {\n  y = Neg(n); n = Neg(x) -> x\n}";
  recipe.passes = {
      {"fuse-gelu", {}, {{"/h.0/mlp/Erf", "odd \"name\" \n\xc3\xa9"}, {"@0123456789ab", "/h.*"}}},
      {"fuse-elementwise", {{"keep", "true"}, {"max_nodes", "16"}, {"mode", "a b"}, {"ratio", "0.25"}}, {}}};
  recipe.planner = "reuse";
  recipe.in_place = recipe.pieces = false;
  recipe.search = 8;
  recipe.strict_libraries = true;
  recipe.algorithms = {{"lib 1.2; NVIDIA H200; 1 2 3", "00ff10"}, {"lib 1.2; NVIDIA H200; 4 5 6", "0a"}};
  recipe.profile = "all";
  recipe.expect = RecipeExpect{1.5e6,
                               1.4e6,
                               1.6e6,
                               123456,
                               "plan",
                               "graph",
                               {5.545177444479562, 1.0 / 3},
                               2.5,
                               200,
                               "a CPU, 2 threads, x86-64-v4"};
  return recipe;
}

TEST_F(RecipeTest, RoundTrips) {
  for (const Recipe& recipe : {full_recipe(), [] {
                                 Recipe plain;
                                 plain.model = "m.onnx";
                                 return plain;
                               }()}) {
    const std::string text = recipe_json(recipe);
    const auto back = parse_recipe(text);
    ASSERT_TRUE(back.ok()) << error_of(back) << text;
    EXPECT_EQ(*back, recipe) << text;
    EXPECT_EQ(recipe_json(*back), text);
  }
  EXPECT_NE(recipe_json(full_recipe()).find("\"max_nodes\": 16"), std::string::npos) << "numbers are numbers";
}

TEST_F(RecipeTest, FilesHoldRelativePaths) {
  std::filesystem::create_directories(file("a/b"));
  Recipe recipe = full_recipe();
  recipe.model = file("a/m.onnx");
  recipe.data = "npz:" + file("a/b/d.npz");
  ASSERT_TRUE(write_recipe(recipe, file("a/b/r.json")).ok());
  const json written = json::parse(read_all(file("a/b/r.json")));
  EXPECT_EQ(written["model"]["path"], "../m.onnx");
  EXPECT_EQ(written["data"], "npz:d.npz");
  const auto back = read_recipe(file("a/b/r.json"));
  ASSERT_TRUE(back.ok()) << error_of(back);
  EXPECT_EQ(std::filesystem::weakly_canonical(back->model), std::filesystem::weakly_canonical(recipe.model));
  EXPECT_EQ(back->data, "npz:" + file("a/b/d.npz"));
  EXPECT_EQ(read_recipe(file("none.json")).error().code, Errc::io);
}

// Behind a link ".." is not the folder that the link is in.
TEST_F(RecipeTest, PathsHoldInAFolderThatIsALink) {
  std::filesystem::create_directories(file("a/b"));
  std::filesystem::create_directory_symlink(file("a/b"), file("link"));
  write_all(file("m.onnx"), "a model");
  Recipe recipe = full_recipe();
  recipe.model = file("m.onnx");
  ASSERT_TRUE(write_recipe(recipe, file("link/r.json")).ok());
  for (const char* name : {"link/r.json", "a/b/r.json"}) {
    const auto back = read_recipe(file(name));
    ASSERT_TRUE(back.ok()) << error_of(back);
    EXPECT_EQ(read_all(back->model), "a model") << name << " leads to " << back->model;
  }
}

// A recipe with one thing changed.
std::string changed(const std::string& pointer, const json& value) {
  json recipe = json::parse(recipe_json(full_recipe()));
  recipe[json::json_pointer(pointer)] = value;
  return recipe.dump();
}

TEST_F(RecipeTest, ErrorsNameTheJsonPath) {
  const std::tuple<std::string, json, std::string> cases[] = {
      {"/passs", 1, "/passs: unknown key; did you mean passes?"},
      {"/steps", "ten", "/steps: must be of type integer"},
      {"/steps", 1.5, "/steps: must be of type integer"},
      {"/steps", 0, "/steps: must be at least 1"},
      {"/accumulate", -1, "/accumulate: must be at least 1"},
      {"/threads", 1e9, "/threads: must be at most 4096"},
      {"/seed", -1, "/seed: must be at least 0"},
      {"/precision", 16, "/precision: must be of type string"},
      {"/clip_norm", -0.5, "/clip_norm: must be at least 0"},
      {"/in_place", 1, "/in_place: must be of type boolean"},
      {"/model/hash", "xyz", "/model/hash: must match"},
      {"/model", "m.onnx", "/model: must be of type object"},
      {"/model/path", "", "/model/path: must not be empty"},
      {"/model/path", std::string("m.onnx\0.png", 11), "/model/path: holds a NUL character"},
      {"/dims/batch", 0, "/dims/batch: must be at least 1"},
      {"/dims/a~1b", "x", "/dims/a~1b: must be of type integer"},
      {"/freeze/1", 5, "/freeze/1: must be of type string"},
      {"/passes/1/options/max_nodes", json::array(),
       "/passes/1/options/max_nodes: must be of type string or number or boolean"},
      {"/passes/0/option", 1, "/passes/0/option: unknown key; did you mean options?"},
      {"/passes/1/name", nullptr, "/passes/1/name: must be of type string"},
      {"/expect/losses/0", "nan", "/expect/losses/0: must be of type number"},
      {"/expect/step_ns", json::object(), "/expect/step_ns: key \"median\" is missing"},
      {"/loss", std::string(5000, 'x'), "/loss: longer than 4096"},
      {"/gradloom_recipe", 2, "/gradloom_recipe: written by a newer"},
      {"/gradloom_recipe", "1", "/gradloom_recipe: must be 1"}};
  for (const auto& [pointer, value, why] : cases) {
    const auto recipe = parse_recipe(changed(pointer, value));
    ASSERT_FALSE(recipe.ok()) << pointer << " = " << value;
    EXPECT_EQ(recipe.error().code, Errc::bad_input);
    EXPECT_EQ(recipe.error().message.rfind(why, 0), 0u) << recipe.error().message;
  }
  json missing = json::parse(recipe_json(full_recipe()));
  missing.erase("model");
  EXPECT_NE(error_of(parse_recipe(missing.dump())).find("\"model\" is missing"), std::string::npos);
}

TEST_F(RecipeTest, HostileTexts) {
  const std::string good = recipe_json(full_recipe());
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    return text.replace(at, from.size(), to);
  };
  const std::pair<std::string, std::string> cases[] = {
      {std::string(100'000, '['), "nested deeper"},
      {with("\"seed\"", "\"steps\": 5, \"seed\""), "is there twice"},
      {with("\"steps\": 200", "\"steps\": 1e999"), "not valid JSON"},
      {with("\"steps\": 200", "\"steps\": NaN"), "not valid JSON"},
      {with("\"steps\": 200", "\"steps\": 9223372036854775808"), "/steps: must be at most"},
      {with("\"seed\": 18446744073709551615", "\"seed\": 18446744073709551616"), "/seed"},
      {with("adamw", "\xff\xfe"), "not valid JSON"},
      {with("\"planner\": \"reuse\",", "\"planner\": \"reuse\" // comment\n,"), "not valid JSON"},
      {good.substr(0, good.size() / 2), "not valid JSON"},
      {good + "{}", "not valid JSON"},
      {"", "not valid JSON"},
      {"null", "must be of type object"},
      {"[]", "must be of type object"}};
  for (const auto& [text, why] : cases) {
    const auto recipe = parse_recipe(text);
    ASSERT_FALSE(recipe.ok()) << why;
    EXPECT_NE(recipe.error().message.find(why), std::string::npos) << recipe.error().message;
    EXPECT_EQ(recipe.error().message.find('\n'), std::string::npos) << recipe.error().message;
    EXPECT_LT(recipe.error().message.size(), 1000u);
  }
  EXPECT_EQ(parse_recipe(std::string(5 << 20, ' ')).error().code, Errc::limit);
  // Every cut of a good recipe is refused.
  for (std::size_t size = 0; size + 2 < good.size(); size += 7)
    EXPECT_FALSE(parse_recipe(good.substr(0, size)).ok()) << size;
}

TEST_F(RecipeTest, DivergedLossesAreNotPromised) {
  Recipe recipe = full_recipe();
  recipe.expect->losses = {3, std::numeric_limits<double>::quiet_NaN(), 2};
  recipe.expect->last_loss = std::numeric_limits<double>::infinity();
  const auto back = parse_recipe(recipe_json(recipe));
  ASSERT_TRUE(back.ok()) << error_of(back);
  EXPECT_EQ(back->expect->losses, std::vector<double>{3});
  EXPECT_EQ(back->expect->last_step, 0);
}

// The published schema uses only keywords that the validator knows, and every key that is written is in it.
TEST_F(RecipeTest, SchemaIsUnderstood) {
  const std::set<std::string> known = {"$schema",       "title",    "description",
                                       "type",          "const",    "enum",
                                       "properties",    "required", "additionalProperties",
                                       "maxProperties", "items",    "maxItems",
                                       "minimum",       "maximum",  "minLength",
                                       "maxLength",     "pattern"};
  const std::function<void(const json&)> walk = [&](const json& schema) {
    for (const auto& [key, value] : schema.items()) {
      EXPECT_TRUE(known.count(key)) << key;
      if (key == "properties") {
        for (const auto& item : value) walk(item);
      } else if ((key == "items" || key == "additionalProperties") && value.is_object()) {
        walk(value);
      }
    }
  };
  const json schema = json::parse(recipe_schema_json());
  walk(schema);
  const json written = json::parse(recipe_json(full_recipe()));
  for (const auto& [key, value] : schema["properties"].items()) {
    EXPECT_TRUE(written.contains(key) || key == "$schema") << key;
  }
  for (const auto& [key, value] : schema["properties"]["expect"]["properties"].items())
    EXPECT_TRUE(written["expect"].contains(key)) << key;
}

TEST_F(RecipeTest, ThePrecisionSwitchesItsPass) {
  const auto has = [](const CompileOptions& options) {
    return std::any_of(options.pipeline.passes.begin(), options.pipeline.passes.end(),
                       [](const PassConfig& config) { return config.def == find_pass("mixed-precision"); });
  };
  Recipe recipe;
  recipe.model = "m.onnx";
  for (const char* passes : {"default", "none"}) {
    set_pipeline(recipe, *parse_pipeline(passes));
    for (const char* precision : {"f32", "f64", "bf16", "f16", "bf16"}) {
      set_precision(recipe, precision);
      const auto options = recipe_compile_options(recipe);
      ASSERT_TRUE(options.ok()) << error_of(options);
      const bool f16 = std::string(precision) == "f16";
      EXPECT_EQ(has(*options), f16 || std::string(precision) == "bf16") << precision;
      EXPECT_EQ(options->pipeline.text().find("type=f16") != std::string::npos, f16) << precision;
      EXPECT_EQ(options->train.loss_scale.has_value(), f16) << precision;
    }
  }
  set_pipeline(recipe, *parse_pipeline("default,mixed-precision{except=here}"));
  const auto options = recipe_compile_options(recipe);
  ASSERT_TRUE(options.ok()) << error_of(options);
  EXPECT_EQ(options->pipeline.passes.back().sites.except, std::set<std::string>{"here"});
  Recipe wrong = recipe;
  wrong.precision = "f32";
  const auto refused = recipe_compile_options(wrong);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::usage);
  EXPECT_NE(refused.error().message.find("mixed-precision is switched on by precision bf16"),
            std::string::npos)
      << refused.error().message;
  set_precision(recipe, "f32");
  EXPECT_TRUE(recipe_compile_options(recipe).ok()) << "the setting went with the precision";
}

TEST_F(RecipeTest, PrecisionsSetTheOptionsOfTheirPass) {
  Recipe recipe;
  recipe.model = "m.onnx";
  set_precision(recipe, "f16{full=Softmax,/head/*; low=Gelu; list=O1}");
  const auto options = recipe_compile_options(recipe);
  ASSERT_TRUE(options.ok()) << error_of(options);
  EXPECT_TRUE(options->train.loss_scale.has_value());
  EXPECT_EQ(options->pipeline.text(), "mixed-precision{type=f16,list=O1,full=Softmax;/head/*,low=Gelu}");
  EXPECT_TRUE(parse_pipeline(options->pipeline.text()).ok());
  const auto again = parse_recipe(recipe_json(recipe));
  ASSERT_TRUE(again.ok()) << error_of(again);
  EXPECT_EQ(again->precision, recipe.precision);
}

TEST_F(RecipeTest, PrecisionsNameWhatIsLacking) {
  EXPECT_EQ(*precision_type("f64"), DType::f64);
  EXPECT_EQ(*precision_type("f32"), DType::f32);
  EXPECT_EQ(*precision_type("bf16"), DType::f32) << "parameters are f32";
  EXPECT_EQ(*precision_type("f16"), DType::f32) << "parameters are f32";
  for (const auto& [precision, part] :
       {std::pair("f8", "unknown precision"), std::pair("", "f32, f64, bf16, f16"),
        std::pair("bf16{list=O3}", "O1, O2")}) {
    const auto type = precision_type(precision);
    ASSERT_FALSE(type.ok());
    EXPECT_EQ(type.error().code, Errc::usage);
    EXPECT_NE(type.error().message.find(part), std::string::npos) << type.error().message;
  }
}

// A recipe has its rules in itself: what reads it needs no other file.
TEST_F(RecipeTest, RulesAreKeptLineByLine) {
  Recipe recipe;
  recipe.model = "m.onnx";
  recipe.rules = "rule twice {\n  y = Neg(n); n = Neg(x)\n  -> x\n}";
  set_pipeline(recipe, default_pipeline(*recipe_rules(recipe)));
  recipe.passes[0].sites = {{"/a"}, {"@0123456789ab"}};
  const auto back = parse_recipe(recipe_json(recipe));
  ASSERT_TRUE(back.ok()) << error_of(back);
  EXPECT_EQ(*back, recipe);
  const auto pipeline = recipe_pipeline(*back);
  ASSERT_TRUE(pipeline.ok()) << error_of(pipeline);
  EXPECT_EQ(pipeline->passes[0].def->name, std::string("twice"));
  EXPECT_EQ(pipeline->passes[0].sites, recipe.passes[0].sites);
  recipe.rules = "rule twice { y = Nog(x) -> x }";
  const auto wrong = recipe_pipeline(recipe);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, Errc::bad_input);
  EXPECT_EQ(wrong.error().message, "/rules: rules:1:18: unknown operator 'Nog'; did you mean Neg?");
}

TEST_F(RecipeTest, PipelinesConvertBothWays) {
  Recipe recipe;
  recipe.model = "m.onnx";
  recipe.optimizer = "adamw{lr=0.001}";
  set_pipeline(recipe, default_pipeline());
  ASSERT_FALSE(recipe.passes.empty());
  recipe.passes[0].sites.except = {"here"};
  const auto pipeline = recipe_pipeline(recipe);
  ASSERT_TRUE(pipeline.ok()) << error_of(pipeline);
  ASSERT_EQ(pipeline->passes.size(), recipe.passes.size());
  EXPECT_EQ(pipeline->passes[0].sites.except, std::set<std::string>{"here"});
  Recipe again = recipe;
  set_pipeline(again, *pipeline);
  EXPECT_EQ(again, recipe);
  const auto options = recipe_compile_options(recipe);
  ASSERT_TRUE(options.ok()) << error_of(options);
  EXPECT_EQ(options->train.optimizer.lr, 0.001);

  const auto expect_path = [&](Recipe bad, const std::string& path) {
    const auto result = recipe_compile_options(bad);
    ASSERT_FALSE(result.ok()) << path;
    EXPECT_EQ(result.error().message.rfind(path, 0), 0u) << result.error().message;
    EXPECT_EQ(result.error().code, Errc::bad_input);
  };
  Recipe bad = recipe;
  bad.passes[0].name = "fuse-everything";
  expect_path(bad, "/passes/0/name");
  bad = recipe;
  bad.passes[0].options = {{"no_such_option", "1"}};
  expect_path(bad, "/passes/0/options");
  bad = recipe;
  bad.optimizer = "adamw{lr=much}";
  expect_path(bad, "/optimizer");
  bad = recipe;
  bad.schedule = "sometimes";
  expect_path(bad, "/schedule");
  bad = recipe;
  bad.planner = "perfect";
  expect_path(bad, "/planner");
}

TEST_F(RecipeTest, ReplayIsJudged) {
  const RecipeExpect expect = *full_recipe().expect;
  ReplayResult result;
  result.plan_hash = "plan";
  result.graph_hash = "graph";
  result.hardware = expect.hardware;
  result.losses.assign(200, 3.0);
  result.losses[0] = expect.losses[0];
  result.losses[1] = expect.losses[1];
  result.losses[199] = expect.last_loss;
  result.step_ns = 1.55e6;
  result.step_ns_low = 1.5e6;
  result.step_ns_high = 1.7e6;
  result.peak_bytes = expect.peak_bytes;
  auto lines = check_replay(expect, result);
  EXPECT_EQ(lines.size(), 5u);
  EXPECT_TRUE(replay_agrees(lines));
  for (const ReplayLine& line : lines) EXPECT_EQ(line.outcome, "agrees") << line.what << line.detail;

  ReplayResult slow = result;
  slow.step_ns = 2e6, slow.step_ns_low = 1.9e6, slow.step_ns_high = 2.1e6;
  EXPECT_FALSE(replay_agrees(check_replay(expect, slow)));
  ReplayResult disturbed = slow;  // as slow, on a machine that was busy with others
  disturbed.waited = 0.4;
  lines = check_replay(expect, disturbed);
  EXPECT_TRUE(replay_agrees(lines));
  EXPECT_EQ(lines.back().outcome, "unsure");
  EXPECT_NE(lines.back().detail.find("waited for a processor for 40 % of the time"), std::string::npos);
  disturbed.waited = 0.02;
  EXPECT_EQ(check_replay(expect, disturbed).back().outcome, "differs") << "it explains too little";
  disturbed = slow;
  disturbed.fastest_ns = expect.step_ns;  // some steps were as fast as promised
  EXPECT_EQ(check_replay(expect, disturbed).back().outcome, "unsure");
  disturbed.fastest_ns = 1.89e6;
  EXPECT_EQ(check_replay(expect, disturbed).back().outcome, "differs");
  slow.hardware = "another";
  lines = check_replay(expect, slow);
  EXPECT_TRUE(replay_agrees(lines));
  EXPECT_EQ(lines.back().outcome, "not judged");

  ReplayResult drifted = result;
  drifted.losses[1] *= 1 + 1e-6;
  EXPECT_TRUE(replay_agrees(check_replay(expect, drifted)));
  drifted.losses[1] *= 1 + 1e-3;
  EXPECT_FALSE(replay_agrees(check_replay(expect, drifted)));
  drifted.losses[1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(replay_agrees(check_replay(expect, drifted)));
  ReplayResult other_plan = result;
  other_plan.plan_hash = "other";
  EXPECT_FALSE(replay_agrees(check_replay(expect, other_plan)));
}

}  // namespace
}  // namespace gradloom::test
