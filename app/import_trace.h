// The trace of another profiler as a run of a session: read by its contents, its modules named as the model's, written.
// Errors: those of the readers (profiler/import, sessions/read_nsys.h), of the model's import and of Store. A trace that cannot be
// read leaves the session as it was.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/import/imported_trace.h"

namespace gradloom {

struct ImportRequest {
  // A file, or a folder: all traces in it, those of one job's ranks as one run, else a run each.
  std::string trace;
  std::string session, name, model;
  std::vector<std::string> import_limits;  // of the model's file, NAME=N
};

struct ImportedRun {
  std::int64_t run = 0;
  std::string file, name, origin, device;
  std::int64_t steps = 0, median_step_ns = 0, kernels = 0, executions = 0, modules = 0, matched_modules = 0;
  std::int64_t ranks = 1;
  std::vector<std::string> notes;
};

constexpr std::size_t kMostImportFiles = 1024;  // of a folder

// The files of a run each, by name: one, or the traces of all ranks of a job in their order. Of ranks that recorded several times the
// first traces are one run, the second ones the next.
Result<std::vector<std::vector<std::string>>> import_files(const std::string& trace);
Result<ImportedRun> import_trace(const ImportRequest& request, const std::vector<std::string>& files,
                                 const ImportProgress& progress = {});

}  // namespace gradloom
