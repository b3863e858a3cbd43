#include "app/launch_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "app/output.h"
#include "app/recipe_flags.h"
#include "engine/base/text.h"
#include "sessions/data.h"

namespace gradloom {
namespace {

std::string number(std::int64_t n) { return std::to_string(n); }

// Lines of a comment: what the job is, what is to be filled in, what it reads.
std::string banner(const LaunchJob& job, const std::string& what, const std::string& missing,
                   const std::vector<LaunchPlaceholder>& placeholders, const std::string& where) {
  std::string text = "# " + what + ": gradloom train, " + plural_text(job.ranks, "rank") + ", " +
                     number(job.local) + " on each of " + plural_text(job.machines(), "machine") +
                     ".\n# To fill in" + missing + ":\n";
  for (const LaunchPlaceholder& p : placeholders) text += "#   " + p.word + "  " + p.meaning + "\n";
  text += "# Files that the command reads, " + where + ":\n";
  // Quoted, since YAML ends a line, and so a comment, at more than \n.
  for (const std::string& file : job.reads) text += "#   " + yaml_quoted(escaped(file)).value() + "\n";
  return text;
}

// ---- Slurm ----

Result<LaunchFile> write_slurm(const LaunchJob& job) {
  LaunchFile file;
  file.placeholders = {{"<TIME>", "most time that the job may take, HH:MM:SS"},
                       {"<PARTITION>", "where it runs"},
                       {"<ACCOUNT>", "who pays"}};
  if (job.threads == 0)
    file.placeholders.push_back({"<CPUS>", "processors of each rank, which are its threads"});
  std::string& text = file.text;
  text =
      "#!/bin/bash\n" + banner(job, "Batch script of Slurm (sbatch)",
                               ", with the first # of the line removed; without them Slurm's defaults hold",
                               file.placeholders, "on all machines");
  text += "##SBATCH --time=<TIME>\n##SBATCH --partition=<PARTITION>\n##SBATCH --account=<ACCOUNT>\n";
  if (job.threads == 0) text += "##SBATCH --cpus-per-task=<CPUS>\n";
  text += "#SBATCH --job-name=" + job.name +
          "\n#SBATCH --output=%x-%j.out\n#SBATCH --nodes=" + number(job.machines()) +
          "\n#SBATCH --ntasks=" + number(job.ranks) + "\n#SBATCH --ntasks-per-node=" + number(job.local) +
          "\n";
  if (job.threads > 0) text += "#SBATCH --cpus-per-task=" + number(job.threads) + "\n";
  if (!job.gpu.empty()) text += "#SBATCH --gpus-per-node=" + number(job.local) + "\n";
  // Since Slurm 22.05 srun does not take --cpus-per-task from its batch script.
  text +=
      "\nset -eu\nexport OMP_NUM_THREADS=\"${SLURM_CPUS_PER_TASK:-1}\"\n"
      "export SRUN_CPUS_PER_TASK=\"${SLURM_CPUS_PER_TASK:-1}\"\n\n"
      "exec srun --mpi=pmix --kill-on-bad-exit=1 " +
      shell_line(job.words) + "\n";
  return file;
}

// ---- Kubernetes ----

// The words of a launcher, in which Kubernetes expands $(NAME), then ours, in which it must not: one $ of two.
Result<std::string> container_words(std::vector<std::string> words, const LaunchJob& job) {
  for (const std::string& word : job.words) {
    std::string doubled;
    for (const char c : word) doubled += c == '$' ? "$$" : std::string(1, c);
    words.push_back(std::move(doubled));
  }
  std::string text;
  for (const std::string& word : words) text += "                - " + TRY(yaml_quoted(word)) + "\n";
  return text;
}

std::string threads_word(const LaunchJob& job) { return job.threads > 0 ? number(job.threads) : "<THREADS>"; }

std::vector<LaunchPlaceholder> kubernetes_placeholders(const LaunchJob& job, const std::string& image) {
  std::vector<LaunchPlaceholder> placeholders = {
      {"<IMAGE>", "a container image with " + image},
      {"<CLAIM>", "the PersistentVolumeClaim that holds the files"},
      {"<FOLDER>", "where it is mounted; the command runs there"}};
  if (job.threads == 0) {
    placeholders.push_back({"<CPUS>", "processors of each worker"});
    placeholders.push_back(
        {"<THREADS>", "threads of each rank: processors of a worker / " + number(job.local)});
  }
  return placeholders;
}

// What a container that computes has besides its command, and its pod: processors, GPUs, files.
std::string worker_resources(const LaunchJob& job) {
  const std::string cpus = job.threads > 0 ? number(job.threads * job.local) : "\"<CPUS>\"";
  const std::string gpus =
      job.gpu.empty() ? "" : "                  " + job.gpu + ": " + number(job.local) + "\n";
  return "              resources:\n"
         "                limits:\n"
         "                  cpu: " +
         cpus + "\n" + gpus +
         "              volumeMounts:\n"
         "                - name: files\n"
         "                  mountPath: \"<FOLDER>\"\n"
         "          volumes:\n"
         "            - name: files\n"
         "              persistentVolumeClaim:\n"
         "                claimName: \"<CLAIM>\"\n";
}

// The head of a job, and of a kind of its replicas up to the container's name.
std::string job_head(const std::string& version, const std::string& kind, const LaunchJob& job) {
  return "apiVersion: kubeflow.org/" + version + "\nkind: " + kind + "\nmetadata:\n  name: " + job.name +
         "\nspec:\n";
}

std::string replicas_head(const std::string& kind, std::int64_t replicas, const std::string& container) {
  return "    " + kind + ":\n      replicas: " + number(replicas) +
         "\n"
         "      restartPolicy: Never\n"
         "      template:\n"
         "        spec:\n"
         "          containers:\n"
         "            - name: " +
         container +
         "\n"
         "              image: \"<IMAGE>\"\n";
}

Result<LaunchFile> write_mpi_job(const LaunchJob& job) {
  LaunchFile file;
  file.placeholders = kubernetes_placeholders(job, "gradloom, Open MPI and sshd");
  const std::vector<std::string> mpirun{"mpirun",    "--allow-run-as-root",
                                        "--bind-to", "none",
                                        "--map-by",  "ppr:" + number(job.local) + ":node",
                                        "-np",       number(job.ranks),
                                        "-x",        "OMP_NUM_THREADS=" + threads_word(job),
                                        "-wdir",     "<FOLDER>"};
  file.text = banner(job, "MPIJob of Kubeflow's MPI operator (kubectl create -f)",
                     ", before Kubernetes takes it", file.placeholders, "from <FOLDER>") +
              job_head("v2beta1", "MPIJob", job) + "  slotsPerWorker: " + number(job.local) +
              "\n"
              "  runPolicy:\n"
              "    cleanPodPolicy: Running\n"
              "  mpiReplicaSpecs:\n" +
              replicas_head("Launcher", 1, "launcher") + "              command:\n" +
              TRY(container_words(mpirun, job)) + replicas_head("Worker", job.machines(), "worker") +
              worker_resources(job);
  return file;
}

// The operator gives each pod MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE of pods. A pod of one rank is that rank (engine/ranks/place.h),
// one of several starts them by torchrun.
Result<LaunchFile> write_pytorch_job(const LaunchJob& job) {
  LaunchFile file;
  const bool one = job.local == 1;
  file.placeholders = kubernetes_placeholders(
      job, one ? "gradloom" : "gradloom and PyTorch, whose torchrun starts the ranks");
  std::vector<std::string> torchrun;
  if (!one)
    torchrun = {"torchrun",       "--nnodes",   number(job.machines()), "--nproc_per_node", number(job.local),
                "--node_rank",    "$(RANK)",    "--master_addr",        "$(MASTER_ADDR)",   "--master_port",
                "$(MASTER_PORT)", "--no_python"};
  const std::string words = TRY(container_words(torchrun, job));
  const auto replicas = [&](const std::string& kind, std::int64_t count) {
    std::string text = replicas_head(kind, count, "pytorch") +
                       "              workingDir: \"<FOLDER>\"\n"
                       "              command:\n" +
                       words +
                       "              env:\n"
                       "                - name: OMP_NUM_THREADS\n"
                       "                  value: \"" +
                       threads_word(job) + "\"\n";
    if (one)  // else the ranks of all pods would be of one machine
      for (const auto& [name, value] : {std::pair("LOCAL_RANK", "0"), {"LOCAL_WORLD_SIZE", "1"}})
        text +=
            std::string("                - name: ") + name + "\n                  value: \"" + value + "\"\n";
    return text + worker_resources(job);
  };
  file.text = banner(job, "PyTorchJob of Kubeflow's training operator (kubectl create -f)",
                     ", before Kubernetes takes it", file.placeholders, "from <FOLDER>") +
              job_head("v1", "PyTorchJob", job) +
              "  runPolicy:\n"
              "    cleanPodPolicy: Running\n"
              "  pytorchReplicaSpecs:\n" +
              replicas("Master", 1);
  if (job.machines() > 1) file.text += replicas("Worker", job.machines() - 1);
  return file;
}

// ---- Azure ML ----

Result<LaunchFile> write_azure_ml(const LaunchJob& job) {
  LaunchFile file;
  file.placeholders = {{"<ENVIRONMENT>", "NAME:VERSION of an environment with gradloom and Open MPI"},
                       {"<COMPUTE>", "name of a compute cluster with " + plural_text(job.machines(), "node")},
                       {"<FOLDER>", "the folder that is uploaded; the command runs in its copy"}};
  if (job.threads == 0)
    file.placeholders.push_back(
        {"<THREADS>", "threads of each rank: processors of a node / " + number(job.local)});
  const std::string line = shell_line(job.words);
  if (line.find("${{") != std::string::npos)
    return Error{Errc::bad_input, "Azure ML would expand ${{ in the command line: " + escaped(line)};
  file.text = banner(job, "Command job of Azure ML (az ml job create -f)", ", before Azure ML takes it",
                     file.placeholders, "from <FOLDER>") +
              "$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\n"
              "type: command\n"
              "display_name: " +
              job.name +
              "\n"
              "code: \"<FOLDER>\"\n"
              "command: " +
              TRY(yaml_quoted(line)) +
              "\n"
              "environment: \"azureml:<ENVIRONMENT>\"\n"
              "compute: \"azureml:<COMPUTE>\"\n"
              "environment_variables:\n"
              "  OMP_NUM_THREADS: \"" +
              (job.threads > 0 ? number(job.threads) : "<THREADS>") +
              "\"\n"
              "resources:\n"
              "  instance_count: " +
              number(job.machines()) +
              "\n"
              "distribution:\n"
              "  type: mpi\n"
              "  process_count_per_instance: " +
              number(job.local) + "\n";
  return file;
}

constexpr LauncherDef kLaunchers[] = {{"slurm", "batch script of Slurm", true, write_slurm},
                                      {"k8s", "MPIJob of Kubernetes", false, write_mpi_job},
                                      {"k8s-pytorch", "PyTorchJob of Kubernetes", false, write_pytorch_job},
                                      {"azureml", "command job of Azure ML", false, write_azure_ml}};

// Of the model's file: what all of them take as a name, and Kubernetes with what its operator adds to it.
std::string job_name(const std::string& model) {
  std::string name = "gradloom";
  for (const char c : "-" + std::filesystem::path(model).stem().string()) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    const bool capital = c >= 'A' && c <= 'Z';
    const char kept = letter ? c : capital ? static_cast<char>(c - 'A' + 'a') : '-';
    if (kept != '-' || name.back() != '-') name += kept;
    if (name.size() == 40) break;
  }
  while (name.back() == '-') name.pop_back();
  return name;
}

}  // namespace

std::span<const LauncherDef> all_launchers() { return kLaunchers; }

Result<const LauncherDef*> find_launcher(const std::string& name) {
  std::vector<std::string> known;
  for (const LauncherDef& def : kLaunchers) {
    if (name == def.name) return &def;
    known.emplace_back(def.name);
  }
  return Error{Errc::usage, unknown_name("launcher", name, known)};
}

Result<LaunchJob> launch_job(const Recipe& recipe, std::int64_t ranks, std::int64_t local) {
  if (local == 0) local = ranks;
  if (ranks < 1 || ranks > 1048576) return Error{Errc::usage, "--ranks must be from 1 to 1048576"};
  if (local < 1 || ranks % local != 0)
    return Error{Errc::usage, "--ranks " + number(ranks) + " is no multiple of --local " + number(local)};
  Recipe run = recipe;
  run.ranks = ranks;
  LaunchJob job{.name = job_name(recipe.model),
                .words = command_words(run, {}),
                .ranks = ranks,
                .local = local,
                .threads = recipe.threads};
  // Libraries are not loaded here, so command_words names none of them.
  for (const std::string& library : recipe.ops) job.words.insert(job.words.end(), {"--ops", library});
  if (recipe.device.starts_with("cuda")) job.gpu = "nvidia.com/gpu";
  if (recipe.device.starts_with("hip")) job.gpu = "amd.com/gpu";
  for (const std::string& file : {recipe.model, recipe.load_params, recipe.load_optimizer, recipe.costs})
    if (!file.empty()) job.reads.push_back(file);
  for (const std::string& data : {recipe.data, recipe.eval_data})
    move_data_files(data, [&](const std::string& file) {
      job.reads.push_back(file);
      return file;
    });
  job.reads.insert(job.reads.end(), recipe.ops.begin(), recipe.ops.end());
  return job;
}

// A text of JSON is one of YAML, but for characters that YAML wants escaped and JSON does not.
Result<std::string> yaml_quoted(const std::string& text) {
  std::string quoted;
  try {
    quoted = Json(text).dump();
  } catch (const Json::exception&) {
    return Error{Errc::bad_input, "YAML holds UTF-8 alone: " + escaped(text)};
  }
  std::string out;
  for (std::size_t i = 0; i < quoted.size(); ++i) {
    const std::string_view rest = std::string_view(quoted).substr(i);
    const auto next = static_cast<unsigned char>(rest.size() > 1 ? rest[1] : 0);
    const auto replace = [&](const char* escape, std::size_t bytes) {
      out += escape;
      i += bytes - 1;
    };
    if (rest[0] == '\x7f')
      replace("\\x7f", 1);
    else if (rest[0] == '\xc2' && next >= 0x80 && next < 0xa0)
      replace(fmt::format("\\x{:02x}", next).c_str(), 2);
    else if (rest.starts_with("\u2028") || rest.starts_with("\u2029"))
      replace(rest[2] == '\xa8' ? "\\u2028" : "\\u2029", 3);
    else if (rest.starts_with("\ufeff"))
      replace("\\ufeff", 3);
    else if (rest.starts_with("\xef\xbf\xbe") || rest.starts_with("\xef\xbf\xbf"))
      replace(rest[2] == '\xbe' ? "\\ufffe" : "\\uffff", 3);
    else
      out += rest[0];
  }
  return out;
}

}  // namespace gradloom
