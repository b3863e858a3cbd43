#include "viz/model/selection_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "viz/model/axis.h"

namespace gradloom {

std::string kernels_sum_text(const std::vector<const KernelLine*>& lines) {
  double ns = 0, share = 0, bytes = 0;
  std::int64_t kernels = 0;
  bool timed = false;
  for (const KernelLine* const line : lines) {
    kernels += line->count;
    bytes += line->bytes;
    share += line->share;
    if (std::isnan(line->time_ns)) continue;
    ns += line->time_ns;
    timed = true;
  }
  std::string text = plural_text(kernels, "kernel") + ": ";
  if (timed) text += fmt::format("{} per step, {}", format_value(ns, Unit::kNs), percent_text(share));
  if (timed && bytes > 0) text += ", ";
  if (bytes > 0) text += format_value(bytes, Unit::kBytes) + " moved";
  return timed || bytes > 0 ? text : text + "not timed";
}

std::string buffers_sum_text(const std::vector<const MemoryBlock*>& blocks, double of) {
  double bytes = 0;
  for (const MemoryBlock* const block : blocks) bytes += static_cast<double>(block->bytes);
  return fmt::format("{}: {}, {} of {}", plural_text(static_cast<std::int64_t>(blocks.size()), "buffer"),
                     format_value(bytes, Unit::kBytes), percent_text(bytes / std::max(1.0, of)),
                     format_value(of, Unit::kBytes));
}

std::string compared_sum_text(const std::vector<const ComparedRow*>& rows) {
  double a_ns = 0, b_ns = 0;
  for (const ComparedRow* const row : rows) {
    a_ns += row->a_ns;
    b_ns += row->b_ns;
  }
  return fmt::format("{}: {} in A, {} in B, {}", plural_text(static_cast<std::int64_t>(rows.size()), "row"),
                     format_value(a_ns, Unit::kNs), format_value(b_ns, Unit::kNs),
                     format_change(b_ns - a_ns, Unit::kNs));
}

}  // namespace gradloom
