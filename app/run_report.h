// A run of a session as a page (viz/report/report.h): what `gradloom report` and the window write.
#pragma once

#include <cstddef>
#include <string>

#include "engine/base/result.h"

namespace gradloom {

struct WrittenReport {
  std::int64_t run = 0;
  std::size_t bytes = 0;
};
// run: as Store::find_run takes it; against: a run that it is compared with, empty: none. output: ends in .html or .htm, or in .md for Markdown; else Errc::usage. Other errors: Store's,
// and those of writing; the file is whole or not there.
Result<WrittenReport> write_run_report(const std::string& session, const std::string& run,
                                       const std::string& against, const std::string& output);

}  // namespace gradloom
