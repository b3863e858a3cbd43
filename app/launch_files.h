// Job files for launchers that others have: a batch script of Slurm, an MPIJob (Kubeflow's MPI operator v2beta1) or a PyTorchJob
// (Kubeflow's training operator v1) of Kubernetes, a command job of Azure ML (CLI v2). Pure: a recipe's numbers and command line in, a text out.
//
// What only the user knows stands as <WORD> in the file, is explained in the comment at its top, and is told by `placeholders`.
// Words of the command line are quoted for who reads them: the shell, YAML 1.2, and what expands $ in between.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "sessions/recipe.h"

namespace gradloom {

struct LaunchJob {
  std::string name;                // "gradloom-mlp": lower case, digits and dashes
  std::vector<std::string> words;  // the command line of every rank
  std::vector<std::string> reads;  // files and folders that it needs
  std::int64_t ranks = 1, local = 1,
               threads = 0;  // local: ranks of a machine; threads 0: the recipe does not say
  std::string gpu;           // "nvidia.com/gpu", "amd.com/gpu"; empty: CPUs
  std::int64_t machines() const { return ranks / local; }
};

struct LaunchPlaceholder {
  std::string word, meaning;  // "<IMAGE>"
};
struct LaunchFile {
  std::string text;
  std::vector<LaunchPlaceholder> placeholders;
};

struct LauncherDef {
  const char *name, *title;
  bool shares_files;                                  // the machines see files where they lie here
  Result<LaunchFile> (*write)(const LaunchJob& job);  // Errc::bad_input: a word that the format cannot hold
};
std::span<const LauncherDef> all_launchers();
Result<const LauncherDef*> find_launcher(const std::string& name);  // Errc::usage, with those that there are

// Errc::usage: no ranks, or no whole number of machines. `local` 0: all on one machine.
Result<LaunchJob> launch_job(const Recipe& recipe, std::int64_t ranks, std::int64_t local);

// A double-quoted scalar. Errc::bad_input: the text is no UTF-8.
Result<std::string> yaml_quoted(const std::string& text);

}  // namespace gradloom
