// Job files: their numbers, their quoting as shells and YAML readers take it, and the commands that convert.
#include "app/launch_files.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "app/recipe_flags.h"
#include "engine/ranks/place.h"
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class LaunchFiles : public Commands {
 protected:
  static Recipe odd_recipe() {
    Recipe recipe;
    recipe.model = "my models/Net's \"best\" $(HOME) $HOME.onnx";
    recipe.data = "npz:data set";
    recipe.loss = "ce:a b,c";
    recipe.rules = "rule r { y = Neg(n)\n n = Neg(x) -> x }";
    recipe.threads = 3;
    recipe.ranks = 8;
    return recipe;
  }
  static LaunchFile written(const std::string& launcher, const Recipe& recipe, std::int64_t ranks,
                            std::int64_t local) {
    const Result<LaunchJob> job = launch_job(recipe, ranks, local);
    EXPECT_TRUE(job.ok()) << (job.ok() ? "" : job.error().message);
    const Result<LaunchFile> file = (*find_launcher(launcher))->write(*job);
    EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
    return *file;
  }
  void save(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  std::string shell(const std::string& command) const {
    const int code = std::system((command + " > '" + path("told") + "' 2>&1").c_str());
    return code == 0 ? read_file(path("told")) : "failed: " + read_file(path("told"));
  }
  static bool has_yaml() { return std::system("/usr/bin/python3 -c 'import yaml' 2> /dev/null") == 0; }
  // As JSON.
  json parsed(const std::string& yaml) const {
    save("job.yaml", yaml);
    const std::string told = shell(
        "/usr/bin/python3 -c 'import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1], "
        "encoding=\"utf-8\"))))' '" +
        path("job.yaml") + "'");
    const json value = json::parse(told, nullptr, false);
    EXPECT_FALSE(value.is_discarded()) << told;
    return value;
  }
};

// Lines that a strict reader of this part of YAML knows: comments, keys with or without a value, items.
void expect_plain_yaml(const std::string& text) {
  std::istringstream in(text);
  std::size_t before = 0;
  bool may_open = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) continue;
    const std::size_t indent = line.find_first_not_of(' ');
    ASSERT_NE(indent, std::string::npos) << "an empty line";
    EXPECT_EQ(line.find('\t'), std::string::npos);
    EXPECT_TRUE(indent <= before || may_open) << line;
    std::string rest = line.substr(indent);
    const bool item = rest.starts_with("- ");
    if (item) rest = rest.substr(2);
    const std::size_t colon = rest.starts_with("\"") ? std::string::npos : rest.find(": ");
    const std::string value = rest.starts_with("\"")       ? rest
                              : colon == std::string::npos ? ""
                                                           : rest.substr(colon + 2);
    may_open = rest.back() == ':' || item;
    before = indent;
    if (value.empty()) {
      EXPECT_EQ(rest.back(), ':') << line;
    } else if (value.starts_with("\"")) {
      EXPECT_FALSE(json::parse(value, nullptr, false).is_discarded()) << line;
    } else {
      EXPECT_EQ(value.find_first_of(" \"'{}[]&*!|>%@`#"), std::string::npos) << line;
    }
  }
}

TEST_F(LaunchFiles, NumbersAreConsistent) {
  const Recipe recipe = odd_recipe();
  for (const auto& [ranks, local] : {std::pair{8, 4}, std::pair{8, 8}, std::pair{6, 1}, std::pair{1, 1}}) {
    const std::string machines = std::to_string(ranks / local), each = std::to_string(local);
    const std::string slurm = written("slurm", recipe, ranks, local).text;
    for (const std::string& line :
         {"\n#SBATCH --nodes=" + machines + "\n", "\n#SBATCH --ntasks=" + std::to_string(ranks) + "\n",
          "\n#SBATCH --ntasks-per-node=" + each + "\n", std::string("\n#SBATCH --cpus-per-task=3\n")})
      EXPECT_NE(slurm.find(line), std::string::npos) << line << slurm;
    const std::string azure = written("azureml", recipe, ranks, local).text,
                      k8s = written("k8s", recipe, ranks, local).text,
                      pytorch = written("k8s-pytorch", recipe, ranks, local).text;
    expect_plain_yaml(azure);
    expect_plain_yaml(k8s);
    expect_plain_yaml(pytorch);
    EXPECT_EQ(pytorch.find("\n    Worker:\n") != std::string::npos, ranks / local > 1);
    EXPECT_EQ(pytorch.find("\"torchrun\"") != std::string::npos, local > 1);
    EXPECT_NE(pytorch.find("\n                  cpu: " + std::to_string(3 * local) + "\n"),
              std::string::npos);
    EXPECT_NE(azure.find("\n  instance_count: " + machines + "\n"), std::string::npos);
    EXPECT_NE(azure.find("\n  process_count_per_instance: " + each + "\n"), std::string::npos);
    EXPECT_NE(k8s.find("\n  slotsPerWorker: " + each + "\n"), std::string::npos);
    EXPECT_NE(k8s.find("\n                  cpu: " + std::to_string(3 * local) + "\n"), std::string::npos);
  }
}

TEST_F(LaunchFiles, RanksThatFillNoMachinesAreRefused) {
  for (const auto& [ranks, local] :
       {std::pair{6, 4}, std::pair{3, 2}, std::pair{2, 4}, std::pair{0, 0}, std::pair{4, -1}}) {
    const Result<LaunchJob> job = launch_job(odd_recipe(), ranks, local);
    ASSERT_FALSE(job.ok()) << ranks << " " << local;
    EXPECT_EQ(job.error().code, Errc::usage);
  }
}

TEST_F(LaunchFiles, ABatchScriptGivesTheShellTheVeryWords) {
  Recipe recipe = odd_recipe();
  recipe.ops = {"my ops.so#00"};
  const LaunchFile file = written("slurm", recipe, 8, 4);
  save("job.sh", file.text);
  EXPECT_EQ(shell("bash -n '" + path("job.sh") + "'"), "");
  // Run with an srun that tells its arguments, one in brackets each.
  fs::create_directory(path("bin"));
  save(
      "bin/srun",
      "#!/bin/sh\nfor word in \"$@\"; do printf '[%s]' \"$word\"; done\nprintf ' %s' \"$OMP_NUM_THREADS\"\n");
  fs::permissions(path("bin/srun"), fs::perms::owner_all);
  std::string expected = "[--mpi=pmix][--kill-on-bad-exit=1]";
  const LaunchJob job = *launch_job(recipe, 8, 4);
  for (const std::string& word : job.words) expected += "[" + word + "]";
  EXPECT_TRUE(expected.ends_with("[--ops][my ops.so#00]"));
  EXPECT_EQ(shell("PATH='" + path("bin") + "':\"$PATH\" SLURM_CPUS_PER_TASK=3 bash '" + path("job.sh") + "'"),
            expected + " 3");
}

TEST_F(LaunchFiles, YamlReadersTakeTheVeryWords) {
  if (!has_yaml()) GTEST_SKIP() << "no PyYAML";
  const Recipe recipe = odd_recipe();
  const LaunchJob job = *launch_job(recipe, 8, 4);
  const json k8s = parsed(written("k8s", recipe, 8, 4).text);
  EXPECT_EQ(k8s["apiVersion"], "kubeflow.org/v2beta1");
  EXPECT_EQ(k8s["kind"], "MPIJob");
  EXPECT_EQ(k8s["metadata"]["name"], "gradloom-net-s-best-home-home");
  const json &launcher = k8s["spec"]["mpiReplicaSpecs"]["Launcher"],
             &worker = k8s["spec"]["mpiReplicaSpecs"]["Worker"];
  EXPECT_EQ(worker["replicas"].get<int>() * k8s["spec"]["slotsPerWorker"].get<int>(), 8);
  const auto words = launcher["template"]["spec"]["containers"][0]["command"].get<std::vector<std::string>>();
  const auto ours = std::find(words.begin(), words.end(), "gradloom");
  ASSERT_EQ(words.end() - ours, std::ssize(job.words));
  for (std::size_t i = 0; i < job.words.size(); ++i) {
    std::string word = ours[static_cast<std::ptrdiff_t>(i)];  // Kubernetes makes one $ of two
    for (std::size_t at = 0; (at = word.find("$$", at)) != std::string::npos; ++at) word.erase(at, 1);
    EXPECT_EQ(word, job.words[i]);
  }
  EXPECT_EQ(*(std::find(words.begin(), words.end(), "-np") + 1), "8");
  const json azure = parsed(written("azureml", recipe, 8, 4).text);
  EXPECT_EQ(azure["type"], "command");
  EXPECT_EQ(azure["command"], shell_line(job.words));
  EXPECT_EQ(azure["distribution"]["type"], "mpi");
  EXPECT_EQ(azure["resources"]["instance_count"].get<int>() *
                azure["distribution"]["process_count_per_instance"].get<int>(),
            8);
}

using Variables = std::map<std::string, std::string>;

// Of a container's command the words before ours, as Kubernetes expands them.
std::vector<std::string> launcher_words(const json& container, const Variables& set, const LaunchJob& job) {
  std::vector<std::string> words;
  for (std::string word : container["command"].get<std::vector<std::string>>()) {
    if (word.starts_with("$(")) word = set.at(word.substr(2, word.size() - 3));
    for (std::size_t at = 0; (at = word.find("$$", at)) != std::string::npos; ++at) word.erase(at, 1);
    words.push_back(std::move(word));
  }
  EXPECT_GE(words.size(), job.words.size());
  EXPECT_TRUE(std::equal(job.words.rbegin(), job.words.rend(), words.rbegin()));
  words.resize(words.size() - job.words.size());
  return words;
}

void expect_place(const Variables& set, int rank, int ranks, int local) {
  const auto place = rank_place([&](const char* name) -> const char* {
    const auto at = set.find(name);
    return at == set.end() ? nullptr : at->second.c_str();
  });
  ASSERT_TRUE(place.ok()) << place.error().message;
  ASSERT_EQ(place->has_value(), ranks > 1) << "one process is no world";
  if (ranks == 1) return;
  EXPECT_EQ((*place)->rank, rank);
  EXPECT_EQ((*place)->world, ranks);
  EXPECT_EQ((*place)->local_rank, rank % local);
  EXPECT_EQ((*place)->local_world, local);
  ASSERT_TRUE((*place)->meeting);
  EXPECT_EQ((*place)->meeting->address, "job-master-0");
  EXPECT_EQ((*place)->meeting->one_machine, local == ranks);
}

// As the operator and, where a pod has several ranks, torchrun set it: each process is the rank that our reader takes it for.
TEST_F(LaunchFiles, PodsOfAPyTorchJobAreTheRanks) {
  if (!has_yaml()) GTEST_SKIP() << "no PyYAML";
  for (const auto& [ranks, local] : {std::pair{6, 1}, std::pair{8, 4}, std::pair{4, 4}, std::pair{1, 1}}) {
    SCOPED_TRACE(std::to_string(ranks) + " " + std::to_string(local));
    const LaunchJob job = *launch_job(odd_recipe(), ranks, local);
    const json file = parsed(written("k8s-pytorch", odd_recipe(), ranks, local).text);
    EXPECT_EQ(file["apiVersion"], "kubeflow.org/v1");
    EXPECT_EQ(file["kind"], "PyTorchJob");
    std::vector<json> pods;
    for (const char* kind : {"Master", "Worker"})
      if (const json& specs = file["spec"]["pytorchReplicaSpecs"]; specs.contains(kind))
        pods.resize(pods.size() + specs[kind]["replicas"].get<std::size_t>(),
                    specs[kind]["template"]["spec"]["containers"][0]);
    ASSERT_EQ(std::ssize(pods), ranks / local);
    for (int pod = 0; pod < ranks / local; ++pod) {
      const json& container = pods[static_cast<std::size_t>(pod)];
      EXPECT_EQ(container["name"], "pytorch") << "the operator sets the environment of this one";
      const std::string count = std::to_string(pods.size()), number = std::to_string(pod);
      Variables set{
          {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}, {"WORLD_SIZE", count}, {"RANK", number}};
      for (const json& variable : container["env"]) set[variable["name"]] = variable["value"];
      EXPECT_EQ(set["OMP_NUM_THREADS"], "3");
      const std::vector<std::string> words = launcher_words(container, set, job);
      if (local == 1) {
        EXPECT_TRUE(words.empty());
        expect_place(set, pod, ranks, local);
        continue;
      }
      EXPECT_EQ(words,
                (std::vector<std::string>{"torchrun", "--nnodes", count, "--nproc_per_node",
                                          std::to_string(local), "--node_rank", number, "--master_addr",
                                          "job-master-0", "--master_port", "23456", "--no_python"}));
      set["WORLD_SIZE"] = std::to_string(ranks);
      set["LOCAL_WORLD_SIZE"] = std::to_string(local);
      for (int i = 0; i < local; ++i) {
        set["RANK"] = std::to_string(pod * local + i);
        set["LOCAL_RANK"] = std::to_string(i);
        expect_place(set, pod * local + i, ranks, local);
      }
    }
  }
}

TEST_F(LaunchFiles, YamlTextsComeBackByteByByte) {
  if (!has_yaml()) GTEST_SKIP() << "no PyYAML";
  std::string yaml;
  std::vector<std::string> texts{"",
                                 "plain",
                                 "yes",
                                 "a: b # c",
                                 "{}",
                                 "'\"\\",
                                 "\x7f\u0085\u009f\u2028\u2029\ufeff",
                                 "\U0001f600\u00e9"};
  for (int c = 1; c < 32; ++c) texts.push_back(std::string("c") + static_cast<char>(c));
  for (const std::string& text : texts) yaml += "- " + *yaml_quoted(text) + "\n";
  EXPECT_EQ(parsed(yaml), json(texts));
}

TEST_F(LaunchFiles, WhatAFormatCannotHoldIsRefused) {
  Recipe recipe = odd_recipe();
  recipe.model = "m\xff.onnx";
  EXPECT_EQ((*find_launcher("k8s"))->write(*launch_job(recipe, 2, 1)).error().code, Errc::bad_input);
  EXPECT_TRUE((*find_launcher("slurm"))->write(*launch_job(recipe, 2, 1)).ok());
  recipe.model = "${{inputs.x}}.onnx";
  EXPECT_EQ((*find_launcher("azureml"))->write(*launch_job(recipe, 2, 1)).error().code, Errc::bad_input);
  EXPECT_EQ(find_launcher("torque").error().code, Errc::usage);
  // A name of a file ends no comment.
  recipe.model = "a\nkind: Pod\u2028kind: Pod.onnx";
  for (const char* launcher : {"k8s", "k8s-pytorch", "azureml"})
    expect_plain_yaml(written(launcher, recipe, 2, 1).text);
  if (has_yaml()) {
    EXPECT_EQ(parsed(written("k8s", recipe, 2, 1).text)["kind"], "MPIJob");
  }
}

TEST_F(LaunchFiles, PlaceholdersStandInTheFileAndAtItsTop) {
  Recipe recipe = odd_recipe();
  for (const std::int64_t threads : {0, 2})
    for (const LauncherDef& def : all_launchers()) {
      recipe.threads = threads;
      const LaunchFile file = written(def.name, recipe, 4, 2);
      const std::size_t top = file.text.find("# Files that the command reads");
      std::size_t count = 0;
      for (const LaunchPlaceholder& p : file.placeholders) {
        const std::size_t at = file.text.find(p.word);
        EXPECT_LT(at, top) << def.name << " " << p.word;
        EXPECT_NE(file.text.find(p.word, top), std::string::npos) << def.name << " " << p.word;
        ++count;
      }
      EXPECT_GE(count, 3u);
    }
}

// ---- commands ----

TEST_F(LaunchFiles, ExportWritesJobsOfRunsAndRecipes) {
  ASSERT_EQ(run(train_mlp({"--steps", "4", "--session", path("s.db")})).code, 0);
  const Outcome job = run({"export", path("s.db"), "--launch", "slurm", "--ranks", "6", "--local", "3", "-o",
                           path("job.sh"), "--json"});
  ASSERT_EQ(job.code, 0) << job.err;
  const json told = job.lines().back();
  EXPECT_EQ(told["machines"], 2);
  EXPECT_EQ(told["ranks_of_a_machine"], 3);
  EXPECT_TRUE(told["placeholders"].contains("<TIME>"));
  EXPECT_EQ(shell("bash -n '" + path("job.sh") + "'"), "");
  // The command line that it tells trains, on two ranks here.
  EXPECT_NE(read_file(path("job.sh")).find(told["command"].get<std::string>()), std::string::npos);
  EXPECT_EQ(told["command"].get<std::string>().rfind("gradloom train /", 0), 0u);
  ASSERT_EQ(run({"export", path("s.db"), "-o", path("r.json")}).code, 0);
  const Outcome yaml = run({"export", "--recipe", path("r.json"), "--launch", "k8s"});
  EXPECT_EQ(yaml.code, 0) << yaml.err;
  EXPECT_NE(yaml.out.find("kind: MPIJob"), std::string::npos);
  EXPECT_NE(yaml.err.find("note: to fill in: <IMAGE>"), std::string::npos);
  const auto refused = [&](const std::vector<std::string>& args, const std::string& why) {
    const Outcome o = run(args);
    EXPECT_EQ(o.code, 2) << o.err;
    EXPECT_NE(o.err.find(why), std::string::npos) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  };
  refused({"export", path("s.db"), "--launch", "slurm", "--ranks", "7", "--local", "3"},
          "7 is no multiple of --local 3");
  refused({"export", path("s.db"), "--launch", "slurm", "--ranks", "0"}, "--ranks");
  refused({"export", path("s.db"), "--launch", "slum"}, "did you mean slurm?");
  refused({"export", path("s.db"), "--recipe", path("r.json")}, "not both");
  refused({"export", path("s.db"), "--local", "2"}, "--launch");
  refused({"export", path("s.db"), "--launch", "slurm", "--deepspeed"}, "one file");
}

TEST_F(LaunchFiles, DeepSpeedsFileBecomesARecipeThatTrains) {
  save("ds.json",
       R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2,
                      "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "gradient_clipping": 1.0,
                      "zero_optimization": {"stage": 2}, "steps_per_print": 10, "odd\u001b": 1})");
  const std::string recipe = path("r.json");
  const std::vector<std::string> job{model("mlp/model.onnx"), "--loss", "ce:logits,labels", "--steps", "3"};
  std::vector<std::string> args{"recipe", "--from-deepspeed", path("ds.json"), "-o", recipe, "--json"};
  args.insert(args.begin() + 1, job.begin(), job.end());
  const Outcome made = run(args);
  ASSERT_EQ(made.code, 0) << made.err;
  std::vector<std::string> where;
  const json told = made.lines().back();
  for (const json& note : told["notes"]) where.push_back(note["where"]);
  EXPECT_EQ(where, (std::vector<std::string>{"/odd\\x1b", "/steps_per_print"}));
  const json file = json::parse(read_file(recipe));
  EXPECT_EQ(file["dims"]["batch"], 4);
  EXPECT_EQ(file["accumulate"], 2);
  EXPECT_EQ(file["ranks"], 2);
  EXPECT_EQ(file["optimizer"], "adamw{lr=0.01,weight_decay=0}");
  const Outcome trained = run({"train", "--recipe", recipe, "--ranks", "1", "--json"});
  EXPECT_EQ(trained.code, 0) << trained.err;
  // And back.
  const Outcome back = run({"export", "--recipe", recipe, "--deepspeed", "-o", path("back.json")});
  ASSERT_EQ(back.code, 0) << back.err;
  const json theirs = json::parse(read_file(path("back.json")));
  EXPECT_EQ(theirs["train_batch_size"], 16);
  EXPECT_EQ(theirs["zero_optimization"]["stage"], 2);
  EXPECT_EQ(theirs["optimizer"]["params"]["weight_decay"], 0.0);
  EXPECT_NE(back.out.find("  loss (ce:logits,labels): "), std::string::npos) << back.out;
}

TEST_F(LaunchFiles, HuggingFacesFilesAreWritten) {
  save("ds.json", "{}");
  ASSERT_EQ(run({"recipe", model("mlp/model.onnx"), "--from-deepspeed", path("ds.json"), "--dim", "batch=4",
                 "--ranks", "4", "-o", path("r.json")})
                .code,
            0);
  const Outcome arguments = run({"export", "--recipe", path("r.json"), "--training-arguments"});
  EXPECT_EQ(arguments.code, 0) << arguments.err;
  EXPECT_EQ(json::parse(arguments.out)["per_device_train_batch_size"], 4);
  EXPECT_NE(arguments.err.find("note: ranks (4): "), std::string::npos);
  const Outcome accelerate = run({"export", "--recipe", path("r.json"), "--accelerate", "--local", "2"});
  EXPECT_EQ(accelerate.code, 0) << accelerate.err;
  if (has_yaml()) {
    const json file = parsed(accelerate.out);
    EXPECT_EQ(file["num_machines"], 2);
    EXPECT_EQ(file["num_processes"], 4);
    EXPECT_EQ(file["mixed_precision"], "no");
  }
  EXPECT_EQ(run({"export", "--recipe", path("r.json"), "--accelerate", "--local", "3"}).code, 2);
}

TEST_F(LaunchFiles, TheCommandLineHoldsAgainstDeepSpeedsFile) {
  save(
      "ds.json",
      R"({"train_batch_size": 16, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}, "gradient_clipping": 1.0})");
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> args{"recipe", model("mlp/model.onnx"), "--from-deepspeed", path("ds.json")};
    args.insert(args.end(), more.begin(), more.end());
    return run(args);
  };
  const Outcome made = with({"--optimizer", "sgd{lr=1}", "--dim", "batch=2", "--ranks", "4"});
  ASSERT_EQ(made.code, 0) << made.err;
  const json recipe = json::parse(made.out);
  EXPECT_EQ(recipe["optimizer"], "sgd{lr=1}");
  EXPECT_EQ(recipe["dims"]["batch"], 2);
  EXPECT_EQ(recipe["ranks"], 4);
  EXPECT_NE(
      made.err.find("note: --optimizer (adamw{lr=0.01,weight_decay=0}): the command line says otherwise"),
      std::string::npos)
      << made.err;
  EXPECT_EQ(with({"--ranks", "3"}).code, 3);
  save("ds.json", "{\"optimizer\": 1}");
  const Outcome bad = with({});
  EXPECT_EQ(bad.code, 3);
  EXPECT_EQ(bad.err, "gradloom: " + path("ds.json") + ": /optimizer: must be an object, not number\n");
  EXPECT_EQ(run({"recipe", "--from-deepspeed", path("absent.json"), model("mlp/model.onnx")}).code, 5);
  EXPECT_EQ(run({"recipe", "--optimizer", "adam"}).code, 2);
  EXPECT_EQ(run({"recipe", "--from-deepspeed", path("ds.json")}).code, 2);
}

TEST_F(LaunchFiles, ARecipeIsCheckedAndSaidWhole) {
  save("r.json", R"({"gradloom_recipe": 1, "model": {"path": "m.onnx"}, "passes": [], "steps": 7})");
  const Outcome said = run({"recipe", "--recipe", path("r.json")});
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(json::parse(said.out)["steps"], 7);
  EXPECT_TRUE(json::parse(said.out).contains("optimizer"));
  const Outcome written =
      run({"recipe", "--recipe", path("r.json"), "--precision", "f64", "-o", path("w.json"), "--json"});
  ASSERT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(json::parse(read_file(path("w.json")))["precision"], "f64");
  save("r.json", R"({"gradloom_recipe": 1, "model": {"path": "m.onnx"}, "passes": [], "precisoin": "f64"})");
  const Outcome refused = run({"recipe", "--recipe", path("r.json")});
  EXPECT_EQ(refused.code, 3);
  EXPECT_NE(refused.err.find("/precisoin: unknown key; did you mean precision?"), std::string::npos)
      << refused.err;
  EXPECT_EQ(run({"recipe", "--steps", "3"}).code, 2);
}

}  // namespace
}  // namespace gradloom
