#include "viz/model/roofline_model.h"

#include <algorithm>
#include <tuple>

namespace gradloom {
namespace {

// A name for kernels that do the same: "MatMul bf16[64, 1024, 768]".
std::string work_name(const RooflineRow& row) {
  constexpr std::size_t kMost = 48;
  std::string first = row.types.substr(0, row.types.find(']') + 1);
  if (first.size() > kMost) first.clear();
  return row.op + (first.empty() ? "" : " ") + first;
}

void add(RooflineRow& sum, const RooflineRow& row) {
  sum.count += row.count;
  if (row.time_ns > 0) sum.time_ns = (sum.time_ns > 0 ? sum.time_ns : 0) + row.time_ns;
  sum.least_ns += row.least_ns;
  sum.expected_ns += row.expected_ns;
  sum.flops += row.flops;
  sum.bytes += row.bytes;
}

RooflineRow row_of(const KernelRow& kernel, const KernelBound& bound, double launches) {
  RooflineRow row;
  row.name = kernel.info.node;
  row.op = kernel.info.op;
  row.kernel = kernel.info.kernel;
  row.phase = kernel.info.phase;
  row.scope = kernel.info.scope;
  row.types = kernel.info.types;
  if (!kernel.info.onnx_nodes.empty()) row.onnx_node = kernel.info.onnx_nodes.front();
  row.roof = roof_text(bound);
  row.count = launches;
  if (kernel.samples > 0) row.time_ns = static_cast<double>(kernel.step_ns);
  row.least_ns = bound.least_ns * launches;
  row.expected_ns = bound.expected_ns * launches;
  row.flops = kernel.info.flops * launches;
  row.bytes = (kernel.info.bytes_read + kernel.info.bytes_written) * launches;
  row.flops_per_ns = bound.flops_per_ns;
  row.bytes_per_ns = bound.bytes_per_ns;
  return row;
}

}  // namespace

RooflineModel roofline_of(const std::vector<KernelRow>& kernels, const Hardware& hardware,
                          const std::string& precision, const std::vector<double>& launches) {
  RooflineModel model;
  model.hardware = hardware;
  model.precision = precision;
  model.sum.count = 0;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const double count = i < launches.size() ? launches[i] : static_cast<double>(kernels[i].launches());
    model.rows.push_back(row_of(kernels[i], kernel_bound(hardware, kernels[i].info, precision), count));
    const RooflineRow& row = model.rows.back();
    add(model.sum, row);
    model.expected_by_roof[row.roof] += row.expected_ns;
    if (row.time_ns > 0) model.time_by_roof[row.roof] += row.time_ns;
  }
  return model;
}

Hardware best_of_kernels(const std::vector<KernelRow>& kernels, const std::string& precision,
                         const std::string& name) {
  Hardware best;
  best.name = name;
  best.source = "the best that its kernels reached";
  best.memory = {{0, 0}};
  for (const KernelRow& kernel : kernels) {
    if (kernel.samples <= 0 || kernel.median_ns <= 0) continue;
    const auto ns = static_cast<double>(kernel.median_ns);
    double& memory = best.memory.front().bytes_per_ns;
    memory = std::max(memory, (kernel.info.bytes_read + kernel.info.bytes_written) / ns);
    // With a roof for each type its bound tells the type in which the kernel computes.
    Hardware any;
    for (const char* type : {"f32", "f64", "bf16", "f16"}) any.products[type] = 1;
    any.vectors = 1;
    const std::string type = kernel_bound(any, kernel.info, precision).type;
    double& rate = type.empty() ? best.vectors : best.products[type];
    rate = std::max(rate, kernel.info.flops / ns);
  }
  return best;
}

std::vector<RooflineRow> grouped(const RooflineModel& model, RooflineGroup by) {
  std::map<std::tuple<std::string, std::string, double, double>, std::vector<const RooflineRow*>> groups;
  for (const RooflineRow& row : model.rows) {
    const double one_flops = row.flops / row.count, one_bytes = row.bytes / row.count;
    switch (by) {
      case RooflineGroup::same:
        groups[{work_name(row), row.phase, one_flops, one_bytes}].push_back(&row);
        break;
      case RooflineGroup::node: groups[{row.name, row.phase, 0, 0}].push_back(&row); break;
      case RooflineGroup::op: groups[{row.op, "", 0, 0}].push_back(&row); break;
      case RooflineGroup::phase: groups[{row.phase, "", 0, 0}].push_back(&row); break;
      case RooflineGroup::scope:
        groups[{row.scope.empty() ? "(top)" : row.scope, "", 0, 0}].push_back(&row);
        break;
      case RooflineGroup::roof: groups[{row.roof, "", 0, 0}].push_back(&row); break;
    }
  }
  std::vector<RooflineRow> sums;
  for (const auto& [key, rows] : groups) {
    RooflineRow sum = *rows.front();
    for (std::size_t i = 1; i < rows.size(); ++i) add(sum, *rows[i]);
    sum.name = std::get<0>(key);
    if (by != RooflineGroup::same && by != RooflineGroup::node && by != RooflineGroup::phase)
      sum.phase.clear();
    if (rows.size() > 1 && by != RooflineGroup::same) sum.flops_per_ns = sum.bytes_per_ns = 0;
    std::map<std::string, double> by_roof;
    for (const RooflineRow* row : rows) by_roof[row->roof] += row->expected_ns;
    sum.roof = std::max_element(by_roof.begin(), by_roof.end(), [](const auto& a, const auto& b) {
                 return a.second < b.second;
               })->first;
    sums.push_back(std::move(sum));
  }
  const bool timed = model.timed();
  std::stable_sort(sums.begin(), sums.end(), [&](const RooflineRow& a, const RooflineRow& b) {
    return timed ? a.above_ns() > b.above_ns() : a.expected_ns > b.expected_ns;
  });
  return sums;
}

double shown_ns(const RooflineModel& model, const RooflineRow& row) {
  return model.timed() ? row.time_ns : row.expected_ns;
}

double shown_rate(const RooflineModel& model, const RooflineRow& row) {
  const double ns = shown_ns(model, row);
  return row.flops > 0 && row.bytes > 0 && ns > 0 ? row.flops / ns * 1e9 : std::nan("");
}

RooflineRoofs roofs_over(const RooflineModel& m) {
  RooflineRoofs roofs;
  for (const auto& [type, rate] : m.hardware.products)
    for (const RooflineRow& row : m.rows)
      if (row.flops_per_ns == rate && row.roof != "vectors") roofs.level[rate * 1e9] = type + " products";
  if (m.hardware.vectors > 0 && !roofs.level.count(m.hardware.vectors * 1e9))
    roofs.level[m.hardware.vectors * 1e9] = "vectors";
  for (const RooflineRow& row : m.rows)
    if (row.bytes_per_ns > 0) roofs.slopes.insert(row.bytes_per_ns * 1e9);
  return roofs;
}

}  // namespace gradloom
