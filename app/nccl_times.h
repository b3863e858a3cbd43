// What an exchange of GPUs takes by NCCL or RCCL, by the model with which NCCL chooses its algorithm: ncclTopoTuneModel and
// ncclTopoGetAlgoTime of its src/graph/tuning.cc; the bytes are those of nccl-tests' doc/PERFORMANCE.md.
//
// N GPUs in M machines of L each; in a machine a link of rate b and latency l, between machines B and K. A ring goes through all of a
// machine's GPUs, then to the next machine, and all of its links carry at once: bus = min(b, B) of several machines, else b.
//   all-reduce as a ring     2 (N - 1) / N bytes / bus      + 2 (N - M) l + 2 (M - 1) K
//   all-reduce as two trees  2 bytes / (0.9 bus)            + 2 (L - 1) l + 2 floor(log2 M) K
//   reduce-scatter or all-gather, a ring
//                            (N - 1) / N bytes / bus        + (N - M) l + (M - 1) K
// and 2 us for the kernel. Of an all-reduce the faster one counts. Nothing is added up apart: it is done as bytes pass.
//
// NCCL's own figures have a latency for each of three protocols, and corrections for sizes; here a latency is the link's, whatever the
// size. SHARP and NVLS, which add in switches, are not counted.
#pragma once

#include <cstdint>

namespace gradloom {

struct Link {
  double bytes_per_ns = 10, latency_ns = 2000;
};

enum class NcclCall : std::uint8_t {
  all_reduce,
  one_way  // reduce-scatter, all-gather: bytes are those of all parts
};

// ns. `local`: GPUs of a machine, the last of which may have fewer; one GPU takes nothing.
double nccl_ns(NcclCall call, double bytes, std::int64_t gpus, std::int64_t local, const Link& inside,
               const Link& between);

}  // namespace gradloom
