#include "app/roofline.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/device/kernel_cache.h"
#include "profiler/environment.h"
#include "sessions/run_environment.h"

namespace gradloom {
namespace {

constexpr std::int64_t kMostRememberedBytes = 1 << 20;

std::string remembered_path(const std::string& hardware) {
  const std::string folder = kernel_cache_folder();
  return folder.empty() ? "" : folder + "/hardware-" + hash_hex(hardware) + ".json";
}

// What was measured of hardware of this text (hardware_text); none: nothing was, or the file is damaged.
std::optional<Hardware> remembered(const std::string& hardware) {
  const std::string path = remembered_path(hardware);
  if (path.empty()) return std::nullopt;
  const auto text = read_file_limited(path, kMostRememberedBytes);
  if (!text) return std::nullopt;
  auto known = parse_hardware(*text, "devices --measure");
  if (!known) return std::nullopt;
  known->name = hardware;
  return *known;
}

Json row_json(const RooflineRow& row) {
  Json json = {{"node", row.name},         {"op", row.op},
               {"kernel", row.kernel},     {"phase", row.phase},
               {"scope", row.scope},       {"types", row.types},
               {"launches", row.count},    {"flops", row.flops},
               {"bytes", row.bytes},       {"roof", row.roof},
               {"least_ns", row.least_ns}, {"expected_ns", row.expected_ns}};
  if (row.time_ns > 0) {
    json["time_ns"] = row.time_ns;
    json["reached"] = row.reached();
    json["above_ns"] = row.above_ns();
  }
  return json;
}

std::string rates_text(const Hardware& h) {
  std::string text;
  for (const auto& [type, rate] : h.products)
    text += (text.empty() ? "" : ", ") + type + " products " + count_text(rate * 1e9, "FLOP/s");
  if (h.vectors > 0)
    text += (text.empty() ? "" : ", ") + std::string("vectors ") + count_text(h.vectors * 1e9, "FLOP/s");
  if (!h.memory.empty()) text += ", memory " + bytes_text(h.memory.back().bytes_per_ns * 1e9) + "/s";
  return text;
}

}  // namespace

Status remember_hardware(const std::string& hardware, const std::string& json) {
  const std::string path = remembered_path(hardware);
  return path.empty() ? Status{} : atomic_write_file(path, json);
}

Result<Hardware> hardware_of_run(const RunRecord& run, const std::string& on) {
  if (!on.empty()) return find_hardware(on);
  const std::string hardware = environment_row(run, "hardware");
  if (auto known = remembered(hardware)) return *known;
  return best_of_kernels(run.kernels, run.summary.precision, hardware);
}

Result<Hardware> hardware_of_plan(const Recipe& recipe, const std::string& on,
                                  const std::vector<DeviceInfo>& devices) {
  if (!on.empty()) return find_hardware(on);
  for (const DeviceInfo& device : devices)
    if (device.id == recipe.device && device.available)
      if (auto known = remembered(hardware_text_with(device, static_cast<int>(recipe.threads))))
        return *known;
  return Error{Errc::usage,
               "nothing is known of the speed of " + escaped(recipe.device) +
                   ": measure it (gradloom devices --measure), or name another processor with --on"};
}

Result<Hardware> hardware_of_plan(const Recipe& recipe, const std::string& on) {
  return hardware_of_plan(recipe, on, on.empty() ? list_devices() : std::vector<DeviceInfo>());
}

double saved_ns(const SavedWork& saved, const Hardware& hardware, const std::string& precision) {
  double flops = hardware.product_flops_per_ns(precision);
  if (flops <= 0) flops = hardware.vectors;
  const double computed = flops > 0 ? saved.flops / flops : 0,
               rate = hardware.bytes_per_ns(std::abs(saved.bytes)), moved = rate > 0 ? saved.bytes / rate : 0;
  const bool together = (computed < 0) == (moved < 0);  // else one is given for the other
  const double work = !together ? computed + moved : std::abs(computed) > std::abs(moved) ? computed : moved;
  return work + saved.kernels * hardware.launch_ns;
}

RooflineModel roofline_of_run(const RunRecord& run, const Hardware& hardware) {
  return roofline_of(run.kernels, hardware, run.summary.precision);
}

RooflineModel roofline_of_plan(const Graph& graph, const Plan& plan, const Recipe& recipe,
                               const Hardware& hardware) {
  std::vector<KernelRow> rows;
  std::vector<double> launches;
  for (KernelInfo& info : kernel_infos(graph, plan)) {
    launches.push_back(plan.steps[rows.size()].micro ? static_cast<double>(recipe.accumulate) : 1);
    rows.emplace_back().info = std::move(info);
  }
  return roofline_of(rows, hardware, recipe.precision, launches);
}

Result<RooflineSelection> asked_selection(const RooflineModel& model,
                                          const std::vector<std::string>& inside) {
  std::vector<RooflineArea> areas;
  for (const std::string& text : inside) areas.push_back(TRY(parse_area(text)));
  return select_inside(model, std::move(areas));
}

namespace {

Json selection_json(const RooflineSelection& selection) {
  const RooflineRow& sum = selection.inside.sum;
  Json areas = Json::array();
  for (const RooflineArea& area : selection.areas) areas.push_back(area_text(area));
  Json json = {{"areas", areas},           {"kernels", selection.inside.rows.size()},
               {"launches", sum.count},    {"share", selection.share},
               {"least_ns", sum.least_ns}, {"expected_ns", sum.expected_ns},
               {"flops", sum.flops},       {"bytes", sum.bytes}};
  if (selection.inside.timed()) json["time_ns"] = sum.time_ns;
  return json;
}

}  // namespace

Json roofline_json(const RooflineModel& model, const RooflineSelection& selection) {
  Json rows = Json::array(), roofs = Json::object();
  const bool some = !selection.areas.empty();
  for (const RooflineRow& row : some ? selection.inside.rows : model.rows) rows.push_back(row_json(row));
  for (const auto& [roof, ns] : model.expected_by_roof) {
    roofs[roof] = {{"expected_ns", ns}};
    if (const auto time = model.time_by_roof.find(roof); time != model.time_by_roof.end())
      roofs[roof]["time_ns"] = time->second;
  }
  Json json = {{"hardware", model.hardware.name}, {"source", model.hardware.source},
               {"least_ns", model.sum.least_ns},  {"expected_ns", model.sum.expected_ns},
               {"flops", model.sum.flops},        {"bytes", model.sum.bytes}};
  if (model.timed()) json["time_ns"] = model.sum.time_ns;
  json["roofs"] = roofs;
  if (some) json["inside"] = selection_json(selection);
  json["kernels"] = rows;
  return json;
}

std::string roofline_text(const RooflineModel& model, const RooflineSelection& selection, RooflineGroup by,
                          std::size_t limit) {
  const bool timed = model.timed();
  const RooflineRow& sum = model.sum;
  std::string text = "roofs        " + escaped(model.hardware.name) + ": " + rates_text(model.hardware) +
                     "; " + escaped(model.hardware.source) + "\n";
  if (timed)
    text += "kernels      " + duration_text(sum.time_ns) + " of a step, at least " +
            duration_text(sum.least_ns) + " (" + percent_text(sum.reached()) + " of the roofs)\n";
  else
    text += "kernels      expected " + duration_text(sum.expected_ns) +
            " of a step (not measured), at least " + duration_text(sum.least_ns) + "\n";
  for (const auto& [roof, ns] : model.expected_by_roof) {
    const auto time = model.time_by_roof.find(roof);
    const double shown = timed && time != model.time_by_roof.end() ? time->second : ns;
    text += fmt::format("  {:<14} {:>9}  {:>6}\n", roof, duration_text(shown),
                        percent_text(shown / (timed ? sum.time_ns : sum.expected_ns)));
  }
  const bool some = !selection.areas.empty();
  if (some) text += "inside       " + selection_text(selection) + "\n";
  std::vector<std::vector<std::string>> rows;
  const std::vector<RooflineRow> sums = grouped(some ? selection.inside : model, by);
  for (const RooflineRow& row : sums) {
    if (rows.size() >= limit) break;
    rows.push_back({escaped(row.name), row.phase, row.roof, number_text(row.count),
                    count_text(row.flops, "FLOP"), bytes_text(row.bytes), duration_text(row.least_ns)});
    if (timed) {
      rows.back().push_back(row.time_ns > 0 ? duration_text(row.time_ns) : "-");
      rows.back().push_back(row.time_ns > 0 ? percent_text(row.reached()) : "-");
      rows.back().push_back(duration_text(row.above_ns()));
    } else {
      rows.back().push_back(duration_text(row.expected_ns));
      rows.back().push_back(percent_text(row.expected_ns / sum.expected_ns));
    }
  }
  std::vector<std::string> head = {"kernels", "phase", "roof", "launches", "FLOPs", "bytes", "at least"};
  if (timed)
    head.insert(head.end(), {"time", "reaches", "above"});
  else
    head.insert(head.end(), {"expected", "share"});
  text += "\n" + table_text(head, rows, {1, 2});
  if (sums.size() > rows.size())
    text += fmt::format("\n  {} more (--limit N shows them)", sums.size() - rows.size());
  return text;
}

Result<RooflineGroup> parse_roofline_group(const std::string& name) {
  constexpr std::pair<const char*, RooflineGroup> kGroups[] = {
      {"kernel", RooflineGroup::same}, {"node", RooflineGroup::node},   {"op", RooflineGroup::op},
      {"phase", RooflineGroup::phase}, {"scope", RooflineGroup::scope}, {"roof", RooflineGroup::roof}};
  for (const auto& [key, group] : kGroups)
    if (name == key) return group;
  return Error{Errc::usage,
               "kernels of a roofline are grouped by kernel, node, op, phase, scope or roof, not by '" +
                   escaped(name) + "'"};
}

}  // namespace gradloom
