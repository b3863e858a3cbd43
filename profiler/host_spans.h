// What the thread of a training loop of another program did, beside the engine's kernels: spans that lie inside one
// another. A span's own time is its duration without those of the spans directly inside it, so that the own times of a
// step add up to its duration.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

struct HostSpan {
  std::string kind, name;                      // kind: one of host_kinds()
  std::int64_t start_ns = 0, duration_ns = 0;  // monotonic clock
  std::int64_t step = 0;                       // of the loop, 1-based
  std::int32_t parent = -1;                    // number in its step of the span that it lies in; -1: none
};

struct HostKind {
  const char* name;   // as stored: sessions/schema.sql says what each is
  const char* title;  // of its own time, for people
};
const std::vector<HostKind>& host_kinds();  // in the order in which they are shown
const HostKind* find_host_kind(std::string_view name);

// The spans of a step, by start, with their parents. The first is the step itself, from `start_ns` to `end_ns`; what reaches
// out of the step, or out of the span in which it began, is cut there.
std::vector<HostSpan> nested_spans(std::vector<HostSpan> spans, std::int64_t step, std::int64_t start_ns,
                                   std::int64_t end_ns);
// By number, of the spans of one step. Never negative, whatever a file says.
std::vector<std::int64_t> own_ns(const std::vector<HostSpan>& spans);
// How many spans each lies in: 0 for the step.
std::vector<int> depths(const std::vector<HostSpan>& spans);

}  // namespace gradloom
