// What --recipe names: the settings of a job, which flags override. A recipe's file, or a run of a session.
#pragma once

#include <string>

#include "sessions/recipe.h"
#include "sessions/store.h"

namespace gradloom {

struct JobSource {
  std::string name;  // as --recipe takes it
  Recipe recipe;     // its model where it is now
  std::string note;  // of a run whose model is not where it was, or another; empty: nothing is to be told
};

// SESSION#RUN, where no file has that name; `run` empty: it is not of that form.
CostsRun named_run(const std::string& name);
bool names_run(const std::string& name);  // of a session that is there
// FILE; SESSION#RUN (a number, a name or "last"), where no file has that name; SESSION, of which it is the last run.
// Errors: those of read_recipe and of the session, and that the run has no recipe.
Result<JobSource> read_job_source(const std::string& name);
// A run that was read: the job without what was found, which a replay would be held against.
Result<JobSource> job_of_run(const RunRecord& run, const std::string& session);

}  // namespace gradloom
