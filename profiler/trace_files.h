// A trace as a file, in the format that its name or the caller chooses.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/trace.h"

namespace gradloom {

enum class TraceFormat : std::uint8_t {
  chrome,
  perfetto,
  csv
};  // chrome_trace.h, perfetto_trace.h; a line per plan step

std::string trace_csv(const TraceDocument& document);  // statistics of the plan steps
// By the ending of the name, before .gz: .pftrace and .perfetto-trace, .csv; else chrome.
TraceFormat trace_format_of(const std::string& path);
// Whole or not at all; as gzip when the name ends in .gz.
Status write_trace(const TraceDocument& document, TraceFormat format, const std::string& path);

}  // namespace gradloom
