#include "viz/model/kernel_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace gradloom {
namespace {

KernelLine line_of(const KernelRow& row, int32_t index, double total_ns) {
  KernelLine line;
  line.name = row.info.node;
  line.op = row.info.op;
  line.phase = row.info.phase;
  line.scope = row.info.scope;
  line.kernel = row.info.kernel;
  line.row = index;
  line.bytes = row.step_bytes();
  line.flops = row.step_flops();
  if (row.samples > 0) {
    line.time_ns = static_cast<double>(row.step_ns);
    line.median_ns = static_cast<double>(row.median_ns);
    line.share = total_ns > 0 ? line.time_ns / total_ns : 0;
    line.told_ns = row.threads_busy >= 0 ? line.time_ns : 0;
    line.busy_ns = line.told_ns * row.threads_busy;
  }
  return line;
}

std::string group_key(const KernelRow& row, KernelGroup group) {
  switch (group) {
    case KernelGroup::kOp: return row.info.op;
    case KernelGroup::kScope: return row.info.scope.empty() ? "(no scope)" : row.info.scope;
    case KernelGroup::kPhase: return row.info.phase;
    case KernelGroup::kPass: return row.info.passes.empty() ? "(not rewritten)" : last_pass(row.info.passes);
    case KernelGroup::kKernel: return row.info.kernel;
    case KernelGroup::kSingle: break;
  }
  return {};
}

SearchFields fields_of(const KernelRow& row) {
  SearchFields f;
  f.name = row.info.node;
  f.op = row.info.op;
  f.phase = row.info.phase;
  f.scope = row.info.scope;
  f.passes = row.info.passes;
  f.kernel = row.info.kernel;
  if (row.samples > 0) f.time_ns = static_cast<double>(row.step_ns);
  f.bytes = row.step_bytes();
  f.flops = row.step_flops();
  return f;
}

double number_of(const KernelLine& line, KernelColumn column) {
  switch (column) {
    case KernelColumn::kCount: return static_cast<double>(line.count);
    case KernelColumn::kTime:
    case KernelColumn::kShare: return line.time_ns;
    case KernelColumn::kMedian: return line.median_ns;
    case KernelColumn::kBandwidth: return line.bandwidth();
    case KernelColumn::kRate: return line.rate();
    case KernelColumn::kBytes: return line.bytes;
    case KernelColumn::kFlops: return line.flops;
    case KernelColumn::kThreads: return line.threads_busy();
    default: return 0;
  }
}

const std::string* text_of(const KernelLine& line, KernelColumn column) {
  switch (column) {
    case KernelColumn::kName: return &line.name;
    case KernelColumn::kOp: return &line.op;
    case KernelColumn::kPhase: return &line.phase;
    case KernelColumn::kScope: return &line.scope;
    case KernelColumn::kKernel: return &line.kernel;
    default: return nullptr;
  }
}

}  // namespace

std::string_view inside_scope(std::string_view name, std::string_view scope) {
  const std::size_t from = name.substr(0, 1) == "/" ? 1 : 0;
  const bool inside = !scope.empty() && name.substr(from, scope.size()) == scope &&
                      name.size() > from + scope.size() + 1 && name[from + scope.size()] == '/';
  return inside ? name.substr(from + scope.size() + 1) : name;
}

std::vector<KernelRow> untimed_rows(const Graph& graph, const Plan& plan) {
  std::vector<KernelRow> rows;
  for (KernelInfo& info : kernel_infos(graph, plan)) {
    KernelRow row;
    row.info = std::move(info);
    rows.push_back(std::move(row));
  }
  return rows;
}

void KernelTableModel::set_rows(std::vector<KernelRow> rows) {
  rows_ = std::move(rows);
  total_ns_ = 0;
  timed_ = tells_threads_ = false;
  for (const KernelRow& row : rows_) {
    tells_threads_ = tells_threads_ || row.threads_busy >= 0;
    if (row.samples == 0) continue;
    total_ns_ += static_cast<double>(row.step_ns);
    timed_ = true;
  }
  std::vector<SearchFields> fields;
  for (const KernelRow& row : rows_) fields.push_back(fields_of(row));
  example_ = example_query(fields);
  rebuild();
}

void KernelTableModel::set_query(const Query& query) {
  query_ = query;
  rebuild();
}

void KernelTableModel::set_only(std::shared_ptr<const std::unordered_set<std::string>> nodes) {
  if (nodes == only_) return;
  only_ = std::move(nodes);
  rebuild();
}

void KernelTableModel::set_group(KernelGroup group) {
  group_ = group;
  rebuild();
}

void KernelTableModel::set_sort(KernelColumn column, bool descending) {
  sort_column_ = column;
  descending_ = descending;
  sort();
}

void KernelTableModel::rebuild() {
  lines_.clear();
  shown_ns_ = 0;
  shown_ = 0;
  std::unordered_map<std::string, size_t> group_line;
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (only_ && only_->count(rows_[i].info.node) == 0) continue;
    if (!query_.empty() && !query_.matches(fields_of(rows_[i]))) continue;
    KernelLine line = line_of(rows_[i], static_cast<int32_t>(i), total_ns_);
    ++shown_;
    if (!std::isnan(line.time_ns)) shown_ns_ += line.time_ns;
    if (group_ == KernelGroup::kSingle) {
      lines_.push_back(std::move(line));
      continue;
    }
    const std::string key = group_key(rows_[i], group_);
    const auto [at, added] = group_line.emplace(key, lines_.size());
    if (added) {
      KernelLine group;
      group.name = key;
      group.count = 0;
      lines_.push_back(std::move(group));
    }
    KernelLine& group = lines_[at->second];
    ++group.count;
    if (!std::isnan(line.time_ns))
      group.time_ns = (std::isnan(group.time_ns) ? 0 : group.time_ns) + line.time_ns;
    group.share += line.share;
    group.bytes += line.bytes;
    group.flops += line.flops;
    group.told_ns += line.told_ns;
    group.busy_ns += line.busy_ns;
  }
  sort();
}

void KernelTableModel::sort() {
  // Missing numbers go last in both directions; ties keep the schedule order.
  std::stable_sort(lines_.begin(), lines_.end(), [&](const KernelLine& a, const KernelLine& b) {
    if (const std::string* x = text_of(a, sort_column_)) {
      const std::string& y = *text_of(b, sort_column_);
      return descending_ ? y < *x : *x < y;
    }
    const double x = number_of(a, sort_column_), y = number_of(b, sort_column_);
    if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);
    return descending_ ? x > y : x < y;
  });
}

int KernelTableModel::find_line(const std::string& node) const {
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].row >= 0 && lines_[i].name == node) return static_cast<int>(i);
  }
  return -1;
}

std::string KernelTableModel::to_text() const {
  std::string out = "name\top\tphase\tscope\tkernel\tcount\ttime_ns\tshare\tbytes\tflops\tthreads_busy\n";
  for (const KernelLine& l : lines_) {
    const std::string time = std::isnan(l.time_ns) ? std::string() : fmt::format("{:.0f}", l.time_ns);
    const std::string busy = l.told_ns > 0 ? fmt::format("{:.4f}", l.threads_busy()) : std::string();
    out += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{:.4f}\t{:.0f}\t{:.0f}\t{}\n", l.name, l.op, l.phase,
                       l.scope, l.kernel, l.count, time, l.share, l.bytes, l.flops, busy);
  }
  return out;
}

}  // namespace gradloom
