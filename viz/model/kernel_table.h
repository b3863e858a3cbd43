// The kernel table's data: rows of a recorded run (or of a plan alone), filtered by the search language,
// grouped and sorted.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "sessions/store.h"
#include "viz/model/search.h"

namespace gradloom {

enum class KernelGroup : uint8_t { kSingle, kOp, kScope, kPhase, kPass, kKernel };
enum class KernelColumn : uint8_t {
  kName,
  kOp,
  kPhase,
  kScope,
  kKernel,
  kCount,
  kTime,
  kShare,
  kMedian,
  kBandwidth,
  kRate,
  kBytes,
  kFlops,
  kThreads
};

// One shown line: a kernel, or a group of them.
struct KernelLine {
  std::string name, op, phase, scope, kernel;
  int32_t row = -1;               // index in KernelTableModel::rows(); -1 for a group
  int64_t count = 1;              // kernels per step
  double time_ns = std::nan("");  // per optimizer step
  double share = 0;               // of all kernels' time
  double median_ns = std::nan("");
  double bytes = 0, flops = 0;  // per optimizer step, too; of one micro-batch where nothing was timed
  // Of time_ns where the run tells how busy the CPU's threads were, and times that.
  double told_ns = 0, busy_ns = 0;
  double threads_busy() const { return told_ns > 0 ? busy_ns / told_ns : std::nan(""); }
  double bandwidth() const { return time_ns > 0 ? bytes / time_ns : std::nan(""); }  // GB/s
  double rate() const { return time_ns > 0 ? flops / time_ns : std::nan(""); }       // GFLOP/s
};

class KernelTableModel {
 public:
  void set_rows(std::vector<KernelRow> rows);
  const std::vector<KernelRow>& rows() const { return rows_; }
  bool timed() const { return timed_; }
  bool tells_threads() const { return tells_threads_; }    // how busy they were
  double total_ns() const { return total_ns_; }            // per step, all kernels
  const std::string& example() const { return example_; }  // a query that finds something

  void set_query(const Query& query);
  // Only these nodes besides the query; null: all.
  void set_only(std::shared_ptr<const std::unordered_set<std::string>> nodes);
  void set_group(KernelGroup group);
  void set_sort(KernelColumn column, bool descending);
  KernelGroup group() const { return group_; }

  const std::vector<KernelLine>& lines() const { return lines_; }
  double shown_ns() const { return shown_ns_; }  // per step, the filtered kernels
  size_t shown_kernels() const { return shown_; }
  int find_line(const std::string& node) const;  // -1 when filtered out or grouped
  std::string to_text() const;                   // tab-separated, for the clipboard

 private:
  void rebuild();
  void sort();
  std::vector<KernelRow> rows_;
  std::vector<KernelLine> lines_;
  Query query_;
  std::shared_ptr<const std::unordered_set<std::string>> only_;
  KernelGroup group_ = KernelGroup::kSingle;
  KernelColumn sort_column_ = KernelColumn::kTime;
  bool descending_ = true, timed_ = false, tells_threads_ = false;
  std::string example_;
  double total_ns_ = 0, shown_ns_ = 0;
  size_t shown_ = 0;
};

// What the scope does not tell: "/blocks.0/fc/MatMul/grad" in scope "blocks.0/fc" is "MatMul/grad".
std::string_view inside_scope(std::string_view name, std::string_view scope);

// The rows a plan alone can give: everything but times.
std::vector<KernelRow> untimed_rows(const Graph& graph, const Plan& plan);

}  // namespace gradloom
