// The machines on which ranks are predicted to run (rank_scaling.h), and by whose figures.
//
// Ranks on GPUs are those of a job whose device is one (cuda, hip), or of any job on a processor of a data sheet (--on). Which one it is
// says --on, else what was measured of the job's device, else the name of the card in the run whose times the job has or in this
// machine, else it is taken for an H200 (hip: an MI300X), and the text says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/job.h"
#include "app/nccl_times.h"
#include "profiler/hardware.h"

namespace gradloom {

// "400Gb/s,5us", "10GB/s"; the latency may be left out. Errc::usage: anything else.
Result<Link> parse_link(const std::string& text);

inline constexpr const char* kUsualLink = "25Gb/s,20us";      // between machines: Ethernet of a cloud
inline constexpr const char* kUsualLocalLink = "10GB/s,2us";  // inside one: its memory
inline constexpr const char* kLocalLinkHelp =
    "the same between ranks of one machine; by default 10GB/s,2us, of GPUs what NCCL reaches of the links of their data sheet";

// As it is asked.
struct ClusterQuestion {
  Link link;                           // between machines
  std::optional<Link> local{};         // inside one; none: the usual one of the processor
  std::int64_t ranks_per_machine = 0;  // 0: all are on one
  double cores = 0;  // of a machine; 0: those of the run that --costs names, else enough for all
};
// `local`: empty, the usual one.
Result<ClusterQuestion> parse_cluster(const std::string& link, const std::string& local,
                                      std::int64_t ranks_per_machine);

// What moves and adds what ranks exchange.
enum class Exchanger : std::uint8_t {
  world,  // engine/ranks/world.h
  host,   // of GPUs: the same, with copies to pinned memory and back
  nccl    // or RCCL, between GPUs
};

struct Cluster {
  Link link, local;  // between machines, and inside one
  std::int64_t ranks_per_machine = 0;
  double cores = 0;          // of a machine; 0: enough for all
  std::int64_t threads = 1;  // of a rank
  Exchanger exchanger = Exchanger::world;
  double copy_bytes_per_ns = 0;  // Exchanger::host: between a GPU and its host
  // Kernels take what is expected of them here (kernel_bound); none: what was measured, else estimates of a core.
  std::optional<Hardware> roofs{};
  // Whose: "kernels as expected of NVIDIA H200 SXM: its data sheet, ..; exchanges by NCCL's own model".
  std::string figures{};
};

// Of a plan for several ranks. `on`: the processor that --on names, where nothing that was measured elsewhere counts. `run_hardware`:
// that of the run whose times the job has; empty: of the run that the job's costs name.
Cluster cluster_of(const ClusterQuestion& question, const Prepared& prepared,
                   const std::optional<Hardware>& on, const std::string& run_hardware = "");

}  // namespace gradloom
