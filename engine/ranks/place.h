// Which rank of how many this process is, as its launcher says in the environment.
//
// The first of these that names a world:
//   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE                   torchrun, Azure ML, PyTorchJob of Kubernetes, by hand
//   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE            mpirun of Open MPI
//   SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID                srun; a batch script outside srun is no rank
// LOCAL_* may be missing: then all ranks are of one machine.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "engine/base/result.h"

namespace gradloom {

struct RankPlace {
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  // among the ranks of the same machine
  std::string source;                   // the variable that says the rank: "OMPI_COMM_WORLD_RANK"
};

// The value of an environment variable, null where there is none.
using ReadVariable = std::function<const char*(const char* name)>;

// Nothing: no launcher, or one that started a single process. Errc::usage: numbers that are none, or a rank outside its
// world.
Result<std::optional<RankPlace>> rank_place(const ReadVariable& variable);
Result<std::optional<RankPlace>> rank_place();  // of this process's environment

}  // namespace gradloom
