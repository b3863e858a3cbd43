#include "app/graph_diff_report.h"

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr std::size_t kShownKernels = 3;

Json sums_json(const DiffSums& sums) {
  return {{"nodes", sums.nodes},
          {"kernels", sums.kernels},
          {"time_ns", sums.is_timed() ? json_number(sums.time_ns) : Json(nullptr)},
          {"timed_kernels", sums.timed},
          {"bytes", sums.bytes},
          {"flops", sums.flops}};
}

Json nodes_json(const DiffGraph& graph, const std::vector<std::int32_t>& nodes) {
  Json list = Json::array();
  for (const std::int32_t n : nodes) {
    const DiffNode& node = graph.nodes[static_cast<std::size_t>(n)];
    list.push_back({{"node", node.name},
                    {"op", node.op},
                    {"phase", node.phase},
                    {"kernel", node.kernel},
                    {"types", node.types},
                    {"passes", node.passes},
                    {"time_ns", std::isnan(node.time_ns) ? Json(nullptr) : json_number(node.time_ns)},
                    {"bytes", node.bytes}});
  }
  return list;
}

std::string time_text(const DiffSums& sums) {
  return sums.is_timed() ? duration_text(sums.time_ns) : sums.kernels == 0 ? "" : "-";
}

std::string signed_duration(double ns) { return (ns < 0 ? "-" : "+") + duration_text(std::abs(ns)); }

// A side that has no kernels takes no time: that is known.
bool change_known(const DiffSums& left, const DiffSums& right) {
  return left.timed == left.kernels && right.timed == right.kernels && left.timed + right.timed > 0;
}

std::vector<std::string> row_of(const std::string& what, const std::string& kernels, const DiffSums& left,
                                const DiffSums& right, const std::string& cause, bool timed) {
  std::vector<std::string> row{what, kernels};
  if (timed) {
    row.push_back(time_text(left));
    row.push_back(time_text(right));
    row.push_back(change_known(left, right) ? signed_duration(right.time_ns - left.time_ns) : "-");
  }
  row.push_back(bytes_text(left.bytes));
  row.push_back(bytes_text(right.bytes));
  row.push_back(cause);
  return row;
}

}  // namespace

std::string kernels_text(const DiffGraph& graph, const std::vector<int32_t>& nodes) {
  std::vector<std::pair<std::string, int>> ops;  // in the order of the schedule
  std::size_t kernels = 0;
  for (const std::int32_t n : nodes) {
    const DiffNode& node = graph.nodes[static_cast<std::size_t>(n)];
    if (!node.has_kernel) continue;
    ++kernels;
    const auto known =
        std::find_if(ops.begin(), ops.end(), [&](const auto& o) { return o.first == node.op; });
    if (known == ops.end())
      ops.emplace_back(node.op, 1);
    else
      ++known->second;
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(ops.size(), kShownKernels); ++i)
    text += (i ? ", " : "") + (ops[i].second > 1 ? std::to_string(ops[i].second) + " x " : "") +
            escaped(ops[i].first);
  if (ops.size() > kShownKernels) text += ", .. (" + std::to_string(kernels) + ")";
  return text.empty() ? "no kernel" : text;
}

std::string cause_text(const DiffRegion& region) {
  std::string text;
  for (const std::string& pass : region.left_passes) text += (text.empty() ? "- " : ", - ") + escaped(pass);
  for (const std::string& pass : region.right_passes) text += (text.empty() ? "+ " : ", + ") + escaped(pass);
  return text.empty() ? region.why : text;
}

Json graph_difference_json(const GraphDifference& d) {
  Json regions = Json::array();
  for (const DiffRegion& region : d.regions)
    regions.push_back({{"region", region.name},
                       {"onnx_nodes", region.onnx_nodes},
                       {"a_nodes", nodes_json(d.left, region.left)},
                       {"b_nodes", nodes_json(d.right, region.right)},
                       {"a", sums_json(region.left_sums)},
                       {"b", sums_json(region.right_sums)},
                       {"a_passes", region.left_passes},
                       {"b_passes", region.right_passes},
                       {"why", region.why}});
  return {{"a", d.left.name},
          {"b", d.right.name},
          {"a_times", d.left.times},
          {"b_times", d.right.times},
          {"regions", regions},
          {"differing", {{"a", sums_json(d.left_sums)}, {"b", sums_json(d.right_sums)}}},
          {"equal", {{"a", sums_json(d.left_equal)}, {"b", sums_json(d.right_equal)}}}};
}

std::string graph_difference_text(const GraphDifference& d) {
  const auto side = [](const char* name, const DiffGraph& graph, const DiffSums& differing,
                       const DiffSums& equal) {
    return std::string(name) + ": " + escaped(graph.name) + ", " +
           plural_text(differing.kernels + equal.kernels, "kernel") +
           (graph.times.empty() ? ", times not known" : ", times " + graph.times) + "\n";
  };
  std::string text =
      side("A", d.left, d.left_sums, d.left_equal) + side("B", d.right, d.right_sums, d.right_equal);
  const std::string same =
      plural_text(d.left_equal.nodes, "node") + " (" + plural_text(d.left_equal.kernels, "kernel") + ")";
  if (d.empty()) return text + "the graphs are the same: " + same;
  text += plural_text(static_cast<std::int64_t>(d.regions.size()), "region") +
          (d.regions.size() == 1 ? " differs, " : " differ, ") + same +
          (d.left_equal.nodes == 1 ? " is" : " are") + " the same\n\n";
  const bool timed = d.left_sums.is_timed() || d.right_sums.is_timed();
  std::vector<std::string> header{"region", "kernels of A -> of B"};
  if (timed) header.insert(header.end(), {"A", "B", "change"});
  header.insert(header.end(), {"A moves", "B moves", "only in A (-), in B (+)"});
  std::vector<std::vector<std::string>> rows;
  for (const DiffRegion& region : d.regions)
    rows.push_back(row_of(escaped(region.name),
                          kernels_text(d.left, region.left) + " -> " + kernels_text(d.right, region.right),
                          region.left_sums, region.right_sums, cause_text(region), timed));
  rows.push_back(row_of(
      "together", std::to_string(d.left_sums.kernels) + " -> " + plural_text(d.right_sums.kernels, "kernel"),
      d.left_sums, d.right_sums, "", timed));
  return text + table_text(header, rows, {1, static_cast<int>(header.size()) - 1});
}

}  // namespace gradloom
