#include "viz/model/roofline_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "engine/base/parse_number.h"
#include "engine/base/text.h"

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
  row.count = launches * static_cast<double>(device_kernels(kernel.info.launches));
  if (kernel.samples > 0) row.time_ns = static_cast<double>(kernel.step_ns);
  row.least_ns = bound.least_ns * launches;
  row.expected_ns = bound.expected_ns * launches;
  row.flops = kernel.info.flops * launches;
  row.bytes = (kernel.info.bytes_read + kernel.info.bytes_written) * launches;
  row.flops_per_ns = bound.flops_per_ns;
  row.bytes_per_ns = bound.bytes_per_ns;
  return row;
}

// A row joins a model, whose sums are those of its rows.
void append(RooflineModel& model, const RooflineRow& row) {
  model.rows.push_back(row);
  add(model.sum, row);
  model.expected_by_roof[row.roof] += row.expected_ns;
  if (row.time_ns > 0) model.time_by_roof[row.roof] += row.time_ns;
}

// "0.5..8": two numbers, neither below 0, the smaller one first.
std::optional<std::pair<double, double>> parse_span(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const auto from = parse_number<double>(text.substr(0, dots)),
             to = parse_number<double>(text.substr(dots + 2));
  if (!from || !to || !(*from >= 0) || !(*to >= *from) || !std::isfinite(*to)) return std::nullopt;
  return std::pair(*from, *to);
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
    append(model, row_of(kernels[i], kernel_bound(hardware, kernels[i].info, precision), count));
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

std::string area_text(const RooflineArea& a) {
  return fmt::format("{:.4g}..{:.4g},{:.4g}..{:.4g}", a.from_intensity, a.to_intensity, a.from_rate,
                     a.to_rate);
}

Result<RooflineArea> parse_area(std::string_view text) {
  const std::size_t comma = std::min(text.find(','), text.size());
  const auto across = parse_span(text.substr(0, comma));
  const auto up = parse_span(text.substr(std::min(comma + 1, text.size())));
  if (!across || !up)
    return Error{Errc::usage,
                 "'" + escaped(text) +
                     "' is no area of a roofline: FLOP/B from .. to and FLOP/s from .. to, as in "
                     "0.5..8,1e9..2e10"};
  return RooflineArea{across->first, across->second, up->first, up->second};
}

RooflineArea area_between(double intensity_a, double rate_a, double intensity_b, double rate_b) {
  const auto [left, right] = std::minmax({intensity_a, intensity_b});
  const auto [low, high] = std::minmax({rate_a, rate_b});
  const RooflineArea area{left, right, low, high};
  const auto rounded = parse_area(area_text(area));
  return rounded ? *rounded : area;
}

RooflineSelection select_inside(const RooflineModel& model, std::vector<RooflineArea> areas) {
  RooflineSelection selection;
  selection.areas = std::move(areas);
  RooflineModel& inside = selection.inside;
  inside.hardware = model.hardware;
  inside.precision = model.precision;
  inside.sum.count = 0;
  for (const RooflineRow& row : model.rows) {
    const double across = row.intensity(), up = shown_rate(model, row);  // NaN is in no area
    const bool in = std::any_of(selection.areas.begin(), selection.areas.end(), [&](const RooflineArea& a) {
      return across >= a.from_intensity && across <= a.to_intensity && up >= a.from_rate && up <= a.to_rate;
    });
    if (!in) continue;
    append(inside, row);
    selection.nodes.insert(row.name);
  }
  const double all = shown_ns(model, model.sum);
  if (!inside.rows.empty() && all > 0) selection.share = shown_ns(model, inside.sum) / all;
  return selection;
}

std::string selection_text(const RooflineSelection& selection) {
  const RooflineRow& sum = selection.inside.sum;
  const std::string kernels = plural_text(static_cast<std::int64_t>(selection.inside.rows.size()), "kernel");
  if (selection.inside.rows.empty()) return kernels;
  return fmt::format("{}, {}{}, {} of the kernels' time, {}, {}", kernels,
                     selection.inside.timed() ? "" : "expected ",
                     duration_text(shown_ns(selection.inside, sum)), percent_text(selection.share),
                     count_text(sum.flops, "FLOP"), bytes_text(sum.bytes));
}

int next_point(const std::vector<std::pair<double, double>>& points, int from, int dx, int dy) {
  if (points.empty()) return -1;
  if (from < 0) return static_cast<int>(std::min_element(points.begin(), points.end()) - points.begin());
  const auto [x, y] = points[static_cast<std::size_t>(from)];
  int best = from;
  double least = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double right = points[i].first - x, above = points[i].second - y;
    const double along = dx * right + dy * above, aside = std::abs(dy * right) + std::abs(dx * above);
    if (!(along > 0)) continue;
    const double cost = along + 2 * aside;
    if (best != from && cost >= least) continue;
    best = static_cast<int>(i);
    least = cost;
  }
  return best;
}

}  // namespace gradloom
