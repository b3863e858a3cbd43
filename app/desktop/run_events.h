// What a run or comparison in a child process says, line by line, and what the window makes of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/desktop/child.h"
#include "app/desktop/state.h"

namespace gradloom {

// What a line asks for besides progress.
struct RunEvent {
  std::optional<Notice> notice;
  std::optional<Comparison> comparison;  // the result
  std::optional<AdviceRow> finding;
  std::optional<WhatIfView> answer;   // without its command
  double advised_step_ns = 0;         // advice has ended; 0: it has not
  std::optional<TuneTableRow> tried;  // by a search
  std::optional<WorthTable> worth;
  std::optional<Proof> proof;  // without its job and its time
  bool checkpoint = false;     // one more was written
};
// How a kind of run is spoken of: "Comparison", "The comparison", "comparing", "The advice is there".
struct RunWords {
  const char *title, *subject, *doing, *done;
};
const RunWords& words_of(RunKind kind);
std::string subject_of(const RunProgress& progress);  // "Run 3", "The comparison"

// What a comparison knows so far: "B is 1.204\u00d7 [1.101, 1.310]"; empty: too few blocks for a ratio.
std::string ratio_so_far(const RunProgress& progress);

// Until it ends, by its pace so far: of a training the median of its last steps, or what passed from step to step where that is
// more, as data and evaluations take time too. -1: not known.
double seconds_left(const RunProgress& progress, std::int64_t now_ns);

// One line of `train --json`, or of what else the window starts, with --json and --progress where it has that. Lines of other kinds change nothing.
RunEvent read_run_line(const std::string& line, RunProgress& progress);

// Ends `progress` by how the child ended. What to tell the user; `verdict`: of a comparison that was made.
Notice end_run(const ChildExit& exit, const std::optional<Verdict>& verdict, RunProgress& progress);

// The run that a line of `runs --json` with a change is about; 0: none, or it was deleted.
std::int64_t changed_run(const std::string& line);

// The devices in the lines of `devices --json`.
std::vector<DeviceInfo> read_devices(const std::vector<std::string>& lines);

}  // namespace gradloom
