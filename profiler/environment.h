// The machine record of a run: what one needs to judge whether two timings may be compared.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace gradloom {

struct Environment {
  std::string cpu_model, isa;              // isa: level of the CPU kernels in use, e.g. "x86-64-v4"
  int logical_cores = 0, physical_cores = 0, usable_cores = 0;   // usable: affinity mask of this process
  int threads = 0;                         // that kernels use
  std::string governor;                    // empty where the machine does not tell
  double frequency_mhz = 0, max_frequency_mhz = 0;               // 0: unknown
  std::string os, kernel, compiler, version, git_id;             // git_id empty when built outside a checkout
  std::int64_t memory_bytes = 0, available_bytes = 0;
  double load_before = -1, load_after = -1;                      // 1-minute load average; -1: unknown
  bool virtual_machine = false;
};

Environment read_environment();                       // load_before is read here
void finish_environment(Environment& environment);    // reads load_after and the frequency again
std::map<std::string, std::string> environment_rows(const Environment& environment);   // as stored: name -> text, known ones only
std::string hardware_text(const Environment& environment);   // "AMD EPYC 9654, 2 threads, x86-64-v4": recipes compare it

}  // namespace gradloom
