// The command line as a user meets it: exit codes, one error line, JSON lines,
// files that appear whole or not at all.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "engine/onnx/file/tensor_file.h"
#include "engine/onnx/import.h"
#include "engine/base/npz.h"
#include "tests/app/command_fixture.h"
#include "tests/environment.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

TEST_F(Commands, RunsCountsThePasses) {
  for (const char* passes : {"none", "cse", "cse,dead-code", "default"}) {
    const Outcome train =
        run({"train", GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx", "--dim", "batch=8", "--loss",
             "loss", "--steps", "1", "--passes", passes, "--session", path("counts.db")});
    ASSERT_EQ(train.code, 0) << train.err;
  }
  const std::string listed = run({"runs", path("counts.db")}).out;
  for (const char* text : {"  none ", "  1 pass ", "  2 passes ", "  default "})
    EXPECT_NE(listed.find(text), std::string::npos) << text << "\n" << listed;
}

TEST_F(Commands, EveryCommandHasHelp) {
  const Outcome all = run({"--help"});
  EXPECT_EQ(all.code, 0);
  for (const char* name : {"open", "inspect", "plan", "check", "verify", "tune", "train", "compare", "runs",
                           "show", "trace", "report", "export", "passes", "ops", "devices"}) {
    EXPECT_NE(all.out.find(name), std::string::npos) << name;
    const Outcome one = run({name, "--help"});
    EXPECT_EQ(one.code, 0) << name;
    EXPECT_NE(one.out.find("--json"), std::string::npos) << name;
  }
}

// How often `run` opens the file. Equal events in a row come as one, so that its closings are watched too.
int count_opens(const std::string& path, const std::function<void()>& run) {
  const int watch = ::inotify_init1(IN_NONBLOCK);
  EXPECT_GE(::inotify_add_watch(watch, path.c_str(), IN_OPEN | IN_CLOSE), 0);
  run();
  int opens = 0;
  std::array<inotify_event, 256> events;  // of a file, without names
  for (ssize_t bytes = 0; (bytes = ::read(watch, events.data(), sizeof events)) > 0;)
    opens += static_cast<int>(
        std::count_if(events.begin(), events.begin() + bytes / static_cast<ssize_t>(sizeof(inotify_event)),
                      [](const inotify_event& event) { return (event.mask & IN_OPEN) != 0; }));
  ::close(watch);
  return opens;
}

// A graph network that drops self-loops: how many edges remain depends on what they are. They are known where
// every batch has the same.
TEST_F(Commands, TrainsWhereTheDataRepeatWhatDecidesSizes) {
  const std::string folder = GRADLOOM_SOURCE_DIR "/tests/modules/graph-self-loops",
                    set = folder + "/test_data_set_0/";
  std::filesystem::copy_file(folder + "/model.onnx", path("m.onnx"));
  const std::vector<std::string> train{"train", path("m.onnx"), "--steps", "2", "--json"};
  const auto with_data = [&](const std::string& data) {
    std::vector<std::string> args = train;
    args.insert(args.end(), {"--data", data});
    return args;
  };
  const char* part = "only the data tells how large the outputs are of /body/NonZero";
  const int opens = count_opens(path("m.onnx"), [&] { expect_error(train, 3, part); });
  std::map<std::string, Tensor> batches;
  for (const char* file : {"input_0.pb", "input_1.pb", "input_2.pb"}) {
    const auto input = read_tensor_file(set + file);
    ASSERT_TRUE(input.ok());
    Shape shape = input->tensor.shape();
    std::vector<double> values = input->tensor.to_f64(), twice = values;
    twice.insert(twice.end(), values.begin(), values.end());
    shape.insert(shape.begin(), 2);
    batches[input->name] = Tensor::from_f64(input->tensor.dtype(), shape, twice);
  }
  ASSERT_TRUE(write_npz(path("same.npz"), batches).ok());
  batches.at("edges").mutable_as<std::int64_t>()[10] = 3;
  ASSERT_TRUE(write_npz(path("other.npz"), batches).ok());
  Outcome o;
  EXPECT_EQ(count_opens(path("m.onnx"), [&] { o = run(with_data("npz:" + path("same.npz"))); }), opens)
      << "the model is read once";
  ASSERT_EQ(o.code, 0) << o.err;
  const auto loss = read_tensor_file(set + "output_0.pb");
  ASSERT_TRUE(loss.ok());
  double first = NAN;
  for (const json& line : o.lines())
    if (line.contains("step") && line["step"] == 1) first = line["loss"];
  EXPECT_NEAR(first, loss->tensor.to_f64()[0], 1e-6) << o.out;
  expect_error(with_data("npz:" + path("other.npz")), 3, part);
  // Held-out data whose edges are others would be evaluated with these.
  batches.at("edges").mutable_as<std::int64_t>()[0] = 3;
  ASSERT_TRUE(write_npz(path("held.npz"), batches).ok());
  ASSERT_EQ(run(with_data("npz:" + path("held.npz"))).code, 0) << "the same in every batch";
  const auto evaluated = [&](const std::string& file) {
    std::vector<std::string> args = with_data("npz:" + path("same.npz"));
    args.insert(args.end(), {"--eval-data", "npz:" + path(file)});
    return args;
  };
  EXPECT_EQ(run(evaluated("same.npz")).code, 0);
  for (const char* file : {"held.npz", "other.npz"}) expect_error(evaluated(file), 3, part);
}

TEST_F(Commands, UsageErrors) {
  expect_error({"fly"}, 2, "fly");
  expect_error({"train"}, 2, "no model");
  expect_error(train_mlp({"--optimizer", "rprop"}), 2, "unknown optimizer");
  expect_error(train_mlp({"--passes", "fuse-gellu"}), 2, "fuse-gelu");
  expect_error(train_mlp({"--precision", "f16", "--loss-scale", "fixed"}), 2, "unknown loss scale");
  expect_error(train_mlp({"--precision", "f8"}), 2, "unknown precision");
  expect_error(train_mlp({"--passes", "default,mixed-precision"}), 2, "switched on by precision bf16");
  expect_error(train_mlp({"--device", "tpu"}), 2, "unknown device");
  expect_error(train_mlp({"--device", "cuda:0"}), 6, "cannot be used");
  expect_error({"plan", model("mlp") + "/model.onnx", "--loss", "ce:logits,labels"}, 2, "batch");
  expect_error(train_mlp({"--dim", "height=3"}), 2, "height");
  expect_error(train_mlp({"--passes", "defaut"}), 2, "did you mean default?");
  expect_error(train_mlp({"--planner", "bestfit"}), 2,
               "(known: none, reuse, best-fit); did you mean best-fit?");
  expect_error(train_mlp({"--freeze", "layer.0.*"}), 2, "fits no parameter; the nearest is 'layers.0.bias'");
  expect_error(train_mlp({"--group", "layer.0.*{lr=1}"}), 2,
               "--group 'layer.0.*' fits no parameter; the nearest is 'layers.0.bias'");
  expect_error(train_mlp({"--group", "*bias{decay=1}"}), 2, "unknown option of group '*bias' 'decay'");
  expect_error(train_mlp({"--group", "*bias{lr=1}", "--optimizer", "sgd{lr=0}"}), 2,
               "lr=0 cannot be scaled to");
  expect_error(train_mlp({"--exclude", "fuse-bias-activation:/layers.0/Gemn"}), 2,
               "no site '/layers.0/Gemn' to switch off; did you mean /Relu?");
  expect_error(train_mlp({"--exclude", "fuse-gelu:nosuchsite"}), 2, "no site 'nosuchsite' to switch off");
  expect_error(train_mlp({"--exclude", "fuse-gleu:/x"}), 2,
               "unknown pass 'fuse-gleu'; did you mean fuse-gelu?");
  expect_error(train_mlp({"--passes", "none", "--exclude", "fuse-gelu:/x"}), 2, "the pass is switched off");
  expect_error({"trian"}, 2, "did you mean train?");
  expect_error({"help", "trian"}, 2, "did you mean train?");
  expect_error({"passes", "fuse-gleu"}, 2, "unknown pass 'fuse-gleu'; did you mean fuse-gelu?");
  expect_error({"passes", "nosuch"}, 2, "did you mean ");
  expect_error({"passes", "bestfit"}, 2, "unknown pass 'bestfit'; did you mean best-fit?");
  EXPECT_NE(run({"passes", "best-fit"}).out.find("best-fit: into the gaps"), std::string::npos);
}

// A site of a recipe is held to the model as one of the command line is.
TEST_F(Commands, RecipesNameSitesAndPassesThatExist) {
  const std::string start =
      "{\"gradloom_recipe\": 1, \"model\": {\"path\": \"" + model("mlp") +
      "/model.onnx\"}, \"dims\": {\"batch\": 8}, \"loss\": \"loss\", \"passes\": [{\"name\": ";
  std::ofstream(path("site.json")) << start
                                   << "\"fuse-bias-activation\", \"exclude\": [\"/layers.0/Gemn\"]}]}";
  std::ofstream(path("pass.json")) << start << "\"fuse-gleu\"}]}";
  expect_error({"plan", "--recipe", path("site.json")}, 2, "did you mean /Relu?");
  expect_error({"plan", "--recipe", path("pass.json")}, 3, "did you mean fuse-gelu?");
}

TEST_F(Commands, BadInputs) {
  std::ofstream(path("truncated.onnx")) << read_file(model("mlp") + "/model.onnx").substr(0, 2000);
  std::ofstream(path("foreign.onnx")) << "%PDF-1.7 not a model at all";
  std::ofstream(path("empty.onnx"));
  for (const char* file : {"truncated.onnx", "foreign.onnx", "empty.onnx"})
    expect_error({"inspect", path(file)}, 3, file);
  expect_error({"inspect", path("absent.onnx")}, 5, "absent.onnx");
  expect_error({"inspect", model("mlp/model.onnx"), "--loss", "logit"}, 2, "did you mean logits?");
  expect_error(train_mlp({"--loss", "ce:logits,x"}), 3, "integer class labels");
  std::ofstream(path("foreign.db")) << "SQLite format 3";
  EXPECT_EQ(run(train_mlp({"--steps", "1", "--session", path("foreign.db")})).code, 3);
  EXPECT_EQ(read_file(path("foreign.db")), "SQLite format 3");  // untouched
}

// Limits are the user's: given on the command line to each command that opens a
// model, never part of a recipe.
TEST_F(Commands, LimitsAreGivenByName) {
  const std::string mlp = model("mlp/model.onnx");
  for (const std::string command : {"inspect", "train", "plan"}) {
    SCOPED_TRACE(command);
    expect_error({command, mlp, "--dim", "batch=4", "--import-limit", "nodes=1"}, 4,
                 "--import-limit nodes=N raises the limit");
    expect_error({command, mlp, "--dim", "batch=4", "--import-limit", "wobbles=1"}, 2,
                 "limit 'wobbles' is not known");
    expect_error({command, mlp, "--dim", "batch=4", "--import-limit", "nodes"}, 2, "expects NAME=N");
  }
  EXPECT_EQ(run({"plan", mlp, "--dim", "batch=4", "--import-limit", "nodes=1000"}).code, 0);
  EXPECT_EQ(run({"inspect", "--limits", "--import-limit", "nodes=7", "--json"}).lines()[0]["limits"]["nodes"],
            7);
  expect_error({"inspect", "--limits", "--import-limit", "nodes=0"}, 2, "limit nodes");
  EXPECT_EQ(run({"check", GRADLOOM_SOURCE_DIR "/tests/models/mlp", "--import-limit", "nodes=1"}).code, 1);
  const std::string recipe = path("limit.json");
  std::ofstream(recipe)
      << R"({"gradloom_recipe": 1, "model": {"path": "m.onnx"}, "passes": [], "import_limits": {"nodes": 5}})";
  expect_error({"train", "--recipe", recipe}, 3, "import_limits");
}

TEST_F(Commands, TrainWritesStepsSummaryAndSession) {
  const Outcome o = run(train_mlp({"--steps", "12", "--session", path("s.db"), "--save-params", path("p.npz"),
                                   "--export-onnx", path("m.onnx")}));
  ASSERT_EQ(o.code, 0) << o.err;
  const auto lines = o.lines();
  std::vector<double> losses;
  for (const json& l : lines)
    if (l.contains("step")) {
      EXPECT_EQ(l["step"], static_cast<int>(losses.size()) + 1);
      EXPECT_GT(l["step_ns"], 0);
      losses.push_back(l["loss"]);
    }
  ASSERT_EQ(losses.size(), 12u);
  const json s = lines.back()["summary"];
  EXPECT_EQ(s["run_id"], 1);
  EXPECT_EQ(s["steps"], 12);
  EXPECT_EQ(s["first_loss"], losses.front());
  EXPECT_EQ(s["last_loss"], losses.back());
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_EQ(s["plan_peak_bytes"], s["measured_peak_bytes"]);
  EXPECT_GT(s["vmhwm_bytes"], s["plan_peak_bytes"]) << "the process holds the plan and more";
  std::int64_t process = 0;
  for (const auto& [item, bytes] : s["process_memory"].items()) {
    process += bytes.get<std::int64_t>();
    if (item != "rest") {
      EXPECT_GE(bytes, 0) << item;
    }
  }
  EXPECT_EQ(s["process_memory"].size(), 5u);
  EXPECT_EQ(process, s["vmhwm_bytes"]) << "the items are all of it";
  EXPECT_EQ(s["process_memory"]["plan"], s["plan_peak_bytes"]);
  EXPECT_GT(s["process_memory"]["program"], 1 << 20);
  EXPECT_LE(s["lower_bound_bytes"], s["plan_peak_bytes"]);
  EXPECT_GT(s["kernels_per_step"], 0);
  EXPECT_TRUE(fs::exists(path("p.npz")));
  EXPECT_EQ(run({"inspect", path("m.onnx"), "--json"}).code, 0);
  EXPECT_EQ(run({"runs", path("s.db"), "--json"}).lines().size(), 1u);
  const Outcome show = run({"show", path("s.db"), "--json"});
  ASSERT_EQ(show.code, 0) << show.err;
  const json run_json = show.lines()[0];
  EXPECT_GT(run_json["kernels"].size(), 0u);
  bool linked = false;
  for (const json& k : run_json["kernels"]) linked = linked || !k["onnx_nodes"].empty();
  EXPECT_TRUE(linked);
}

TEST_F(Commands, FlagsAndModelComeInAnyOrder) {
  const std::string file = model("mlp") + "/model.onnx";
  const Outcome first = run({"plan", file, "--dim", "batch=8", "--freeze", "layers.0.*", "--json"}),
                last = run({"plan", "--dim", "batch=8", "--freeze", "layers.0.*", file, "--json"});
  ASSERT_EQ(first.code, 0) << first.err;
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(first.lines()[0]["plan_hash"], last.lines()[0]["plan_hash"]);
  EXPECT_EQ(run({"inspect", "--dim", "batch=8", file}).code, 0);
}

TEST_F(Commands, TraceIsChromeJson) {
  ASSERT_EQ(run(train_mlp({"--steps", "6", "--session", path("s.db"), "--profile", "all"})).code, 0);
  ASSERT_EQ(run({"trace", path("s.db"), "-o", path("t.json")}).code, 0);
  const json trace = json::parse(read_file(path("t.json")));
  EXPECT_GT(trace["traceEvents"].size(), 50u);
}

TEST_F(Commands, RecipeReplays) {
  ASSERT_EQ(run(train_mlp({"--steps", "8", "--session", path("s.db")})).code, 0);
  ASSERT_EQ(run({"export", path("s.db"), "-o", path("r.json")}).code, 0);
  const Outcome replay = run({"train", "--recipe", path("r.json"), "--json"});
  json verdict;
  for (const json& l : replay.lines())
    if (l.contains("replay")) verdict = l["replay"];
  ASSERT_FALSE(verdict.is_null()) << replay.err;
  for (const json& c : verdict["checks"]) {
    const bool certain =
        c["what"] == "plan hash" || c["what"] == "losses";  // speed may differ on a busy machine
    if (certain) {
      EXPECT_EQ(c["outcome"], "agrees") << c.dump();
    }
  }
  // A changed optimizer must be noticed.
  const Outcome other = run({"train", "--recipe", path("r.json"), "--optimizer", "sgd{lr=0.5}", "--json"});
  EXPECT_EQ(other.code, 1);
}

// A run of a session is a job for every command that takes a recipe.
TEST_F(Commands, ARunOfASessionIsARecipe) {
  ASSERT_EQ(run(train_mlp({"--steps", "4", "--session", path("s.db"), "--name", "first"})).code, 0);
  ASSERT_EQ(run(train_mlp({"--steps", "4", "--session", path("s.db"), "--passes", "none"})).code, 0);
  const auto losses = [&](const std::string& recipe) {
    const Outcome o = run({"train", "--recipe", recipe, "--json"});
    EXPECT_EQ(o.code, 0) << o.err;
    std::vector<double> found;
    for (const json& line : o.lines())
      if (line.contains("step")) found.push_back(line["loss"]);
    return found;
  };
  const std::vector<double> first = losses(path("s.db#first"));
  EXPECT_EQ(first.size(), 4u);
  EXPECT_EQ(losses(path("s.db#1")), first);
  EXPECT_EQ(losses(path("s.db")).size(), 4u) << "the last run";
  const Outcome plan = run({"plan", "--recipe", path("s.db#2"), "--json"});
  ASSERT_EQ(plan.code, 0) << plan.err;
  EXPECT_NE(plan.out, run({"plan", "--recipe", path("s.db#1"), "--json"}).out) << "it had no passes";
  const Outcome compared =
      run({"compare", path("s.db#1"), path("s.db#2"), "--max-seconds", "0.2", "--min-groups", "2"});
  EXPECT_EQ(compared.code, 0) << compared.err;
  for (const auto& [recipe, says] :
       {std::pair("s.db#9", "run"), std::pair("s.db#nobody", "nobody"), std::pair("t.db#1", "t.db#1")}) {
    const Outcome o = run({"plan", "--recipe", path(recipe)});
    EXPECT_TRUE(o.code == 2 || o.code == 3 || o.code == 5) << o.code;
    EXPECT_NE(o.err.find(says), std::string::npos) << o.err;
  }
}

TEST_F(Commands, MixedPrecisionIsRecordedReplayedAndCompared) {
  const std::string site = "/Relu";
  ASSERT_EQ(run(train_mlp({"--steps", "8", "--precision", "bf16", "--exclude", "mixed-precision:" + site,
                           "--session", path("s.db"), "--profile", "all"}))
                .code,
            0);
  const Outcome kernels = run({"show", path("s.db"), "--group", "kernel", "--json"});
  ASSERT_EQ(kernels.code, 0) << kernels.err;
  EXPECT_NE(kernels.out.find("bf16"), std::string::npos) << "a cast named after what it casts";
  const Outcome by_pass = run({"show", path("s.db"), "--group", "pass", "--json"});
  EXPECT_NE(by_pass.out.find("mixed-precision"), std::string::npos) << by_pass.out;
  ASSERT_EQ(run({"export", path("s.db"), "-o", path("r.json")}).code, 0);
  const std::string recipe = read_file(path("r.json"));
  EXPECT_NE(recipe.find("\"bf16\""), std::string::npos);
  EXPECT_NE(recipe.find(site), std::string::npos);
  const Outcome replay = run({"train", "--recipe", path("r.json"), "--json"});
  json verdict;
  for (const json& l : replay.lines())
    if (l.contains("replay")) verdict = l["replay"];
  ASSERT_FALSE(verdict.is_null()) << replay.err;
  for (const json& c : verdict["checks"]) {
    if (c["what"] == "plan hash" || c["what"] == "losses") {
      EXPECT_EQ(c["outcome"], "agrees") << c.dump();
    }
  }
  const Outcome o = run({"compare", "--recipe", path("r.json"), "--a", "precision=f32", "--b",
                         "precision=bf16", "--max-seconds", "4", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(o.lines().back().contains("verdict"));
  const Outcome plan = run({"plan", model("mlp") + "/model.onnx", "--dim", "batch=8", "--loss",
                            "ce:logits,labels", "--precision", "bf16", "--json"});
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_NE(plan.out.find("mixed-precision"), std::string::npos);
}

// Steps whose gradients overflow in f16 are skipped and counted, the scale halves; the session, its recipe
// and a replay know.
TEST_F(Commands, OverflowInF16SkipsStepsAndIsRecorded) {
  const Outcome o = run(train_mlp({"--steps", "30", "--precision", "f16", "--loss-scale",
                                   "dynamic{initial=16777216,interval=6}", "--session", path("s.db")}));
  ASSERT_EQ(o.code, 0) << o.err;
  double scale = 16777216;
  int skipped = 0, made = 0, grown = 0;
  json summary;
  for (const json& line : o.lines()) {
    if (line.contains("summary")) summary = line["summary"];
    if (!line.contains("step")) continue;
    const double next = line["loss_scale"];
    if (line["skipped"]) {
      EXPECT_EQ(next, scale / 2) << line.dump();
      ++skipped;
      made = 0;
    } else {
      EXPECT_EQ(next, ++made % 6 == 0 ? 2 * scale : scale) << line.dump();
      grown += next > scale;
    }
    scale = next;
  }
  EXPECT_GT(skipped, 2);
  EXPECT_GT(grown, 0);
  EXPECT_EQ(summary["skipped_steps"], skipped);
  EXPECT_EQ(summary["loss_scale"], scale);
  EXPECT_LT(summary["last_loss"], summary["first_loss"]);
  const json shown = run({"show", path("s.db"), "--json"}).lines().at(0);
  EXPECT_EQ(std::count_if(shown["losses"].begin(), shown["losses"].end(),
                          [](const json& step) { return step.value("skipped", false); }),
            skipped);
  EXPECT_EQ(shown.value("finished", "").size(), shown["started"].get<std::string>().size());
  ASSERT_EQ(run({"export", path("s.db"), "-o", path("r.json")}).code, 0);
  EXPECT_NE(read_file(path("r.json")).find("initial=16777216"), std::string::npos);
  const Outcome replay = run({"train", "--recipe", path("r.json"), "--json"});
  for (const json& l : replay.lines())
    if (l.contains("replay"))
      for (const json& c : l["replay"]["checks"])
        if (c["what"] == "plan hash" || c["what"] == "losses") {
          EXPECT_EQ(c["outcome"], "agrees") << c.dump();
        }
  const Outcome hopeless = run(train_mlp({"--steps", "50", "--precision", "f16", "--loss-scale",
                                          "dynamic{initial=1e30}", "--session", path("t.db")}));
  EXPECT_EQ(hopeless.code, 7);
  EXPECT_NE(hopeless.err.find("20 steps in a row were skipped at step 20"), std::string::npos)
      << hopeless.err;
  EXPECT_EQ(run({"runs", path("t.db"), "--json"}).lines()[0]["status"], "failed");
}

TEST_F(Commands, NanLossStopsAndNamesTheStep) {
  const Outcome o =
      run(train_mlp({"--steps", "50", "--optimizer", "sgd{lr=1e30}", "--session", path("s.db")}));
  EXPECT_EQ(o.code, 7) << o.err;
  EXPECT_NE(o.err.find("at step"), std::string::npos) << o.err;
  const auto runs = run({"runs", path("s.db"), "--json"}).lines();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["status"], "failed");
}

#ifdef GRADLOOM_PLUGIN_FOLDER
class GpuCommands : public Commands {
 protected:
  void SetUp() override {
    setenv("GRADLOOM_PLUGINS", GRADLOOM_PLUGIN_FOLDER, 1);
    setenv("GRADLOOM_CACHE", GRADLOOM_PLUGIN_FOLDER "/tests/cache", 1);
  }
  void TearDown() override {
    for (const char* name : {"GRADLOOM_PLUGINS", "GRADLOOM_CACHE"}) unsetenv(name);
  }
};

// Before the first step, in a plain step, while the step is recorded, in a recorded step, while waiting,
// while the trace is read.
TEST_F(GpuCommands, AFailingDeviceIsOneErrorAndAFailedRun) {
  const std::vector<std::string> train =
      train_mlp({"--device", "host-gpu", "--steps", "40", "--session", path("s.db")});
  int failed = 0;
  for (const char* failure : {"allocate:2=4", "compile:1=5", "run:7=6", "end_capture:1=5", "run_graph:5=6",
                              "synchronize_event:5=6", "copy:30=5", "read_trace:2=8"}) {
    const Setting fail("GRADLOOM_HOSTGPU_FAIL", failure);
    const Outcome o = run(train);
    EXPECT_EQ(o.code, 6) << failure << ": " << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    EXPECT_EQ(o.err.rfind("gradloom: host-gpu: ", 0), 0u) << o.err;
    EXPECT_NE(o.err.find("failure on demand"), std::string::npos) << o.err;
    EXPECT_EQ(o.err.find("device lost") != std::string::npos, failure[std::strlen(failure) - 1] == '6')
        << o.err;
    ++failed;
    const std::vector<json> runs = run({"runs", path("s.db"), "--json"}).lines();
    ASSERT_EQ(runs.size(), static_cast<std::size_t>(failed)) << failure;
    EXPECT_EQ(runs.back()["status"], "failed");
    EXPECT_EQ("gradloom: " + runs.back()["message"].get<std::string>() + "\n", o.err);
    EXPECT_EQ(run({"show", path("s.db"), "--run", std::to_string(failed), "--json"}).code, 0) << failure;
  }
  EXPECT_EQ(run(train).code, 0) << "the session takes further runs";
}

// A run's search serves the runs after it in the session, and the recipe that leaves it.
TEST_F(GpuCommands, WhatASearchFoundIsReplayed) {
  std::vector<std::string> train{"train",    GRADLOOM_SOURCE_DIR "/tests/models/gpt-char/model.onnx",
                                 "--dim",    "batch=1",
                                 "--loss",   "ce:logits,labels",
                                 "--device", "host-gpu",
                                 "--steps",  "2",
                                 "--json"};
  const auto with = [](std::vector<std::string> command, const std::vector<std::string>& more) {
    command.insert(command.end(), more.begin(), more.end());
    return command;
  };
  // The file with the trained parameters.
  const auto trained = [&](const std::vector<std::string>& command) {
    const Outcome o = run(with(command, {"--save-params", path("p.npz")}));
    EXPECT_EQ(o.code, 0) << o.err;
    return read_file(path("p.npz"));
  };
  const std::string suggested = trained(train);
  const std::vector<std::string> search = with(train, {"--search", "2"}),
                                 kept = with(search, {"--session", path("s.db")});
  const std::string found = [&] {
    const Setting fastest("GRADLOOM_HOSTGPU_FASTEST", "1");
    return trained(kept);
  }();
  const Setting fastest("GRADLOOM_HOSTGPU_FASTEST", "0");
  EXPECT_TRUE(found != suggested) << "the two algorithms cannot be told apart";
  EXPECT_TRUE(trained(search) == suggested) << "without the session";
  EXPECT_TRUE(trained(kept) == found) << "with it";
  EXPECT_TRUE(trained(with(train, {"--session", path("s.db")})) == suggested)
      << "no search, nothing of the session";
  const Outcome recipe = run({"export", path("s.db"), "--run", "1"});
  ASSERT_EQ(recipe.code, 0) << recipe.err;
  json exported = json::parse(recipe.out);
  EXPECT_FALSE(exported["algorithms"].empty());
  EXPECT_EQ(exported["search"], 2);
  exported.erase("expect");  // of its speed: this is about bits
  std::ofstream(path("r.json")) << exported.dump();
  EXPECT_TRUE(trained({"train", "--recipe", path("r.json"), "--json"}) == found) << "replayed";
}

TEST_F(GpuCommands, ARunIsRecordedWithItsStreamsAndItsGpu) {
  const std::vector<std::string> more{"--device", "host-gpu", "--steps", "60", "--session", path("s.db")};
  const Outcome o = run(train_mlp(more));
  ASSERT_EQ(o.code, 0) << o.err;
  const json summary = o.lines().back()["summary"];
  EXPECT_TRUE(summary.contains("profiler_overhead"));
  const json shown = run({"show", path("s.db"), "--json"}).lines()[0], environment = shown["environment"];
  EXPECT_EQ(shown["profiler_overhead"], summary["profiler_overhead"]);
  ASSERT_GE(shown["streams"].size(), 4u);
  EXPECT_EQ(shown["streams"][0]["name"], "CPU launches");
  EXPECT_EQ(shown["streams"][0]["count"], 1) << "a recorded step is one launch";
  EXPECT_EQ(environment.at("gpu.driver"), "not measured");
  EXPECT_NE(environment.at("gpu.name").get<std::string>().find("host"), std::string::npos)
      << environment.at("gpu.name");
  EXPECT_EQ(environment.at("gpu.sm_clock_mhz"), "not measured");
  EXPECT_EQ(environment.at("gpu.start.throttle"), "not measured");

  ASSERT_EQ(run({"trace", path("s.db"), "--output", path("t.json")}).code, 0);
  const json trace = json::parse(read_file(path("t.json")));
  std::map<std::string, int> counts;
  for (const json& e : trace["traceEvents"]) ++counts[e["ph"].get<std::string>() + ":" + e.value("cat", "")];
  const int kernels = summary["kernels_per_step"], timed = 20;
  EXPECT_EQ(counts["X:kernel"], timed * kernels);
  EXPECT_EQ(counts["X:cpu_op"], 0);
  EXPECT_EQ(counts["X:cuda_runtime"], timed) << "recorded steps";
  EXPECT_EQ(counts["s:ac2g"], timed);
  EXPECT_GE(counts["X:gpu_memcpy"], timed * 3) << "a batch up, its inputs over, the loss down";

  ASSERT_EQ(
      run(train_mlp({"--device", "host-gpu", "--steps", "12", "--profile", "all", "--session", path("s.db")}))
          .code,
      0);
  const Outcome compared = run({"compare", "1", "2", "--stored", "--session", path("s.db"), "--json"});
  ASSERT_EQ(compared.code, 0) << compared.err;
  std::set<std::string> streams;
  const json comparison = compared.lines()[0];
  for (const json& row : comparison["streams"]) streams.insert(row["name"].get<std::string>());
  EXPECT_TRUE(streams.count("CPU launches") == 1 && streams.count("kernel, stream 0 (compute)") == 1 &&
              streams.count("copy, stream 1 (upload)") == 1);
}
#endif

TEST_F(Commands, InterruptKeepsWhatWasCommitted) {
  const pid_t child = start(train_mlp({"--steps", "100000000", "--session", path("s.db")}));
  for (int i = 0; i < 300 && read_file(path("stdout")).find("\"step\":20,") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(child, SIGINT);
  const Outcome o = wait(child);
  EXPECT_EQ(o.code, 130) << o.err;
  const auto runs = run({"runs", path("s.db"), "--json"}).lines();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["status"], "stopped");
  EXPECT_GE(runs[0]["steps"], 20);
}

TEST_F(Commands, FullDiskIsOneErrorAndNoHalfFile) {
  const Outcome o = wait(start(train_mlp({"--steps", "4000", "--session", path("s.db")}), 256 * 1024));
  EXPECT_EQ(o.code, 5) << o.code << o.err;
  EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  const Outcome params = wait(start(train_mlp({"--steps", "1", "--save-params", path("p.npz")}), 4096));
  EXPECT_EQ(params.code, 5) << params.err;
  EXPECT_FALSE(fs::exists(path("p.npz")));
}

TEST_F(Commands, ReadOnlyFolder) {
  if (geteuid() == 0) {
    // Root ignores permissions: a path below a file cannot be created by anyone.
    std::ofstream(path("file")) << "x";
    EXPECT_EQ(run(train_mlp({"--steps", "1", "--session", path("file") + "/s.db"})).code, 5);
    return;
  }
  fs::permissions(folder_.path(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(run(train_mlp({"--steps", "1", "--session", path("s.db")})).code, 5);
}

TEST_F(Commands, NumbersOfFlagsAreThoseOfRecipes) {
  const std::string mlp = model("mlp/model.onnx");
  for (const char* number : {"nan", "inf", "-nan", "1e", "0x10"})
    expect_error({"compare", mlp, "--max-seconds", number}, 2,
                 "--max-seconds: '" + std::string(number) + "' is no number");
  expect_error({"check", mlp, "--rtol", "nan"}, 2, "--rtol: 'nan' is no number");
  expect_error({"check", mlp, "--seed", "-1"}, 2, "--seed: '-1' is no integer of at least 0");
  expect_error({"show", path("s.db"), "--limit", "1.5"}, 2, "--limit: '1.5' is no integer");
  expect_error({"background", "--stop", "0x10"}, 2, "--stop: '0x10' is no integer");
  expect_error({"trace", path("s.db"), "-o", path("t"), "--rank", "-1"}, 2,
               "--rank: Value -1 not in range 0 to 1048575");
  expect_error({"background", "--follow", "011"}, 2, "no command 11");
}

TEST_F(Commands, ListsAreJson) {
  for (const char* name : {"passes", "ops", "devices"}) {
    const Outcome o = run({name, "--json"});
    ASSERT_EQ(o.code, 0) << name;
    EXPECT_GE(o.lines().size(), 3u) << name;
  }
  EXPECT_EQ(run({"passes", "fuse-gelu"}).code, 0);
  const Outcome schema = run({"export", "--schema"});
  EXPECT_EQ(json::parse(schema.out)["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(run({"export", "--schema", "-o", path("schema.json")}).code, 0);
  EXPECT_EQ(read_file(path("schema.json")), schema.out);
  for (const char* name : {"recipe", "ops"}) {
    const Outcome page = run({name, "--markdown"});
    EXPECT_EQ(page.out.rfind("# ", 0), 0u) << name;
    EXPECT_EQ(run({name, "--markdown", "--json"}).out, page.out) << "a page is no JSON";
  }
}

TEST_F(Commands, CheckPassesOnTheModels) {
  const Outcome o = run({"check", GRADLOOM_SOURCE_DIR "/tests/models", "--json"});
  EXPECT_EQ(o.code, 0) << o.out;
  const auto lines = o.lines();
  EXPECT_EQ(lines.size(), 4u);
  for (const json& l : lines) {
    EXPECT_EQ(l["status"], "PASS") << l.dump();
    EXPECT_GT(l["gradients"], 0) << l.dump();
  }
}

}  // namespace
}  // namespace gradloom
