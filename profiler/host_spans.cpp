#include "profiler/host_spans.h"

#include <algorithm>

namespace gradloom {

const std::vector<HostKind>& host_kinds() {
  static const std::vector<HostKind> kinds{
      {"engine", "engine"},
      {"gradloom", "Gradloom's Python"},
      {"outside", "parts in PyTorch"},
      {"module", "other modules"},
      {"backward", "autograd"},
      {"optimizer", "optimizer"},
      {"data", "data"},
      {"compile", "tracing and compiling"},
      {"python", "marked by the program"},
      {"record", "recording"},
      {"step", "Python and the rest"},
  };
  return kinds;
}

const HostKind* find_host_kind(std::string_view name) {
  for (const HostKind& kind : host_kinds())
    if (name == kind.name) return &kind;
  return nullptr;
}

std::vector<HostSpan> nested_spans(std::vector<HostSpan> spans, std::int64_t step, std::int64_t start_ns,
                                   std::int64_t end_ns) {
  end_ns = std::max(end_ns, start_ns);
  std::stable_sort(spans.begin(), spans.end(), [](const HostSpan& a, const HostSpan& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.duration_ns > b.duration_ns;
  });
  std::vector<HostSpan> nested{{"step", "", start_ns, end_ns - start_ns, step, -1}};
  std::vector<std::int32_t> open{0};  // the spans that a next one may lie in, outermost first
  const auto end_of = [&](std::int32_t i) {
    const HostSpan& span = nested[static_cast<std::size_t>(i)];
    return span.start_ns + span.duration_ns;
  };
  for (HostSpan& span : spans) {
    const std::int64_t from = std::max(span.start_ns, start_ns);
    while (open.size() > 1 && end_of(open.back()) <= from) open.pop_back();
    const std::int64_t to = std::min(span.start_ns + span.duration_ns, end_of(open.back()));
    if (to < from) continue;
    span.start_ns = from;
    span.duration_ns = to - from;
    span.step = step;
    span.parent = open.back();
    open.push_back(static_cast<std::int32_t>(nested.size()));
    nested.push_back(std::move(span));
  }
  return nested;
}

std::vector<std::int64_t> own_ns(const std::vector<HostSpan>& spans) {
  std::vector<std::int64_t> own(spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) own[i] = spans[i].duration_ns;
  for (const HostSpan& span : spans)
    if (span.parent >= 0 && static_cast<std::size_t>(span.parent) < spans.size()) {
      std::int64_t& rest = own[static_cast<std::size_t>(span.parent)];
      rest = std::max<std::int64_t>(rest - span.duration_ns, 0);
    }
  return own;
}

std::vector<int> depths(const std::vector<HostSpan>& spans) {
  std::vector<int> depth(spans.size(), 0);
  for (std::size_t i = 0; i < spans.size(); ++i)
    if (spans[i].parent >= 0 && static_cast<std::size_t>(spans[i].parent) < i)
      depth[i] = depth[static_cast<std::size_t>(spans[i].parent)] + 1;
  return depth;
}

}  // namespace gradloom
