// Which rank of how many this process is, as its launcher says in the environment.
//
// The first of these that names a world:
//   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE                   torchrun, Azure ML, PyTorchJob of Kubernetes, by hand
//   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE            mpirun of Open MPI
//   SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID                srun; a batch script outside srun is no rank
// LOCAL_* may be missing: then all ranks are of one machine. Slurm lists the ranks of every machine, SLURM_STEP_TASKS_PER_NODE=1,3, and
// SLURM_NODEID says which of them this one is.
//
// Ranks that RANK numbers meet by themselves, over TCP, where MASTER_ADDR says on which machine rank 0 is: at port GRADLOOM_PORT, by
// default MASTER_PORT + 1 (MASTER_PORT itself is PyTorch's, whose launcher listens there). So two trainings on one machine need ports that
// are not neighbours. Ranks of the others meet by MPI, whose launcher connects them. GRADLOOM_WORLD_ID: any text, the same for all ranks
// of a training; others that come by mistake are sent away (else that of torchrun, TORCHELASTIC_RUN_ID, and how often it has started them).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "engine/base/result.h"

namespace gradloom {

// Where ranks meet that no launcher connects.
struct MeetingPlace {
  std::string address;       // of rank 0, as MASTER_ADDR says it
  int port = 0;              // where it listens
  std::string world_id;      // 32 hex digits
  bool one_machine = false;  // all ranks are known to be of this machine
};

struct RankPlace {
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;  // among the ranks of the same machine
  std::string source;                   // the variable that says the rank: "OMPI_COMM_WORLD_RANK"
  std::optional<MeetingPlace> meeting;  // nothing: MPI
};

// The value of an environment variable, null where there is none.
using ReadVariable = std::function<const char*(const char* name)>;

// Nothing: no launcher, or one that started a single process. Errc::usage: numbers that are none, a rank outside its
// world, MASTER_ADDR without a port.
Result<std::optional<RankPlace>> rank_place(const ReadVariable& variable);
Result<std::optional<RankPlace>> rank_place();  // of this process's environment

}  // namespace gradloom
