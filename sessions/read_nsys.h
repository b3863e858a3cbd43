// The SQLite export of Nsight Systems (nsys export --type sqlite) as a run: its kernels, copies, fills and launches, and the
// NVTX ranges around the launches. Ranges "step 12", "iteration 12" and "ProfilerStep#12" are steps; those that
// torch.autograd.profiler.emit_nvtx makes are operators; other ranges are modules, by their nesting. A CUDA graph that was
// traced as a whole is a kernel "CUDA graph N". Of several processes the one with the most kernels is taken, which is noted.
//
// The export has no fixed set of tables: what a profile has nothing of is not there, and columns differ by version.
// Errors: Errc::bad_input for a database that is no such export; Errc::limit; Errc::io.
#pragma once

#include <string>

#include "profiler/import/imported_trace.h"

namespace gradloom {

constexpr std::int64_t kNsysThreadBits = 24;  // of a globalTid: the process is above them

bool is_sqlite_file(const std::string& path);
Result<ImportedTrace> read_nsys_export(const std::string& path, const ImportProgress& progress = {});

}  // namespace gradloom
