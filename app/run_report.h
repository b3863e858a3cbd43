// A run of a session as a page (viz/report/report.h): what `gradloom report` and the window write.
#pragma once

#include <cstddef>
#include <stop_token>
#include <string>

#include "engine/base/result.h"

namespace gradloom {

struct WrittenReport {
  std::int64_t run = 0;
  std::size_t bytes = 0;
};
// run: as Store::find_run takes it; against: a run that it is compared with, empty: none. output: ends in .html or .htm, or in .md for Markdown; else Errc::usage. Other errors: Store's,
// and those of writing; the file is whole or not there.
// `advise`: what would make it faster is a part of it; then the job's changes are compiled, which takes its time, and the model must
// be there.
Result<WrittenReport> write_run_report(const std::string& session, const std::string& run,
                                       const std::string& against, const std::string& output,
                                       bool advise = false, std::stop_token stop = {});

}  // namespace gradloom
