#include "app/graph_report.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "viz/model/graph_paths.h"
#include "viz/model/memory_model.h"

namespace gradloom {
namespace {

constexpr int kMostAround = 1000;  // links from a node

const GraphBox& box_at(const GraphModel& model, std::int32_t box) {
  return model.boxes[static_cast<std::size_t>(box)];
}

// The node that a user means.
Result<std::int32_t> meant(const GraphModel& model, const std::string& flag, const std::string& text) {
  if (const std::int32_t box = model.find(text); box >= 0) return box;
  const auto query = Query::parse(text);
  if (!query) return with_context(query.error(), flag + " " + escaped(text));
  const std::vector<std::int32_t> found = query->empty() ? std::vector<std::int32_t>() : model.search(*query);
  if (found.size() == 1) return found.front();
  constexpr std::size_t kNamed = 4;
  std::string names;
  for (std::size_t i = 0; i < std::min(kNamed, found.size()); ++i)
    names += (i > 0 ? ", " : "") + escaped(box_at(model, found[i]).name);
  return Error{Errc::usage, flag + " " + escaped(text) +
                                (found.empty() ? ": no node is named so, and a search for it finds none"
                                               : " is " + std::to_string(found.size()) + " nodes: " + names +
                                                     (found.size() > kNamed ? ", .." : ""))};
}

Result<GraphAnswer> around(const GraphModel& model, const std::string& text) {
  std::string node = text;
  std::int64_t most = 1;
  if (const std::size_t comma = text.rfind(','); comma != std::string::npos && model.find(text) < 0) {
    const auto number = parse_number<std::int64_t>(text.substr(comma + 1));
    if (!number || *number < 1 || *number > kMostAround)
      return Error{Errc::usage, "--neighbours " + escaped(text) + ": links from the node are 1 to " +
                                    std::to_string(kMostAround) + " (NODE,N)"};
    node = text.substr(0, comma);
    most = *number;
  }
  GraphAnswer answer;
  std::vector<std::int32_t> boxes{TRY(meant(model, "--neighbours", node))};
  answer.title = "within " + plural_text(most, "link") + " of " + escaped(box_at(model, boxes.front()).name);
  answer.boxes.emplace_back(boxes.front(), 0);
  for (std::int32_t links = 1; links <= most; ++links) {
    const std::vector<std::int32_t> next = graph_neighbours(model, boxes);
    if (next.empty()) break;
    for (const std::int32_t box : next) answer.boxes.emplace_back(box, links);
    boxes.insert(boxes.end(), next.begin(), next.end());
  }
  return answer;
}

Result<GraphAnswer> way(const GraphModel& model, const std::vector<std::string>& ends) {
  const std::int32_t a = TRY(meant(model, "--path", ends[0])), b = TRY(meant(model, "--path", ends[1]));
  GraphAnswer answer;
  answer.title = "from " + escaped(box_at(model, a).name) + " to " + escaped(box_at(model, b).name);
  for (const std::int32_t box : graph_path(model, a, b))
    answer.boxes.emplace_back(box, static_cast<std::int32_t>(answer.boxes.size()));
  if (answer.boxes.empty())
    answer.title += ": neither leads to the other";
  else if (answer.boxes.front().first != a)
    answer.title += ", against the direction of the links";
  return answer;
}

// What the view colours boxes by, without what is not known of this one.
constexpr std::pair<ColorBy, const char*> kMeasures[] = {
    {ColorBy::kTime, "time_ns"},      {ColorBy::kRate, "flops_per_second"},
    {ColorBy::kBytes, "bytes"},       {ColorBy::kLive, "live_at_peak_bytes"},
    {ColorBy::kLaunches, "launches"}, {ColorBy::kChange, "change"}};

Json box_json(const GraphModel& model, std::int32_t index, const Plan* plan) {
  const GraphBox& box = box_at(model, index);
  const SearchFields fields = model.fields(index);
  Json inputs = Json::array(), types = Json::array();
  std::set<std::int32_t> read;
  for (const PortInfo& port : box.inputs)
    if (port.box >= 0 && read.insert(port.box).second) inputs.push_back(box_at(model, port.box).name);
  for (const PortInfo& port : box.outputs) types.push_back(port.type);
  Json row = {{"node", box.name},
              {"op", box.op},
              {"phase", std::string(fields.phase)},
              {"scope", std::string(fields.scope)},
              {"kernel", box.kernel},
              {"passes", box.passes},
              {"onnx_nodes", box.onnx_nodes},
              {"inputs", inputs},
              {"types", types}};
  if (box.plan_step >= 0) row["flops"] = box.flops;
  if (plan != nullptr && box.plan_step >= 0)
    row["workspace_bytes"] = plan->steps[static_cast<std::size_t>(box.plan_step)].workspace_bytes;
  for (const auto& [by, name] : kMeasures)
    if (const double value = model.value_of(index, by); !std::isnan(value)) row[name] = json_number(value);
  if (!std::isnan(box.time_ns) && model.total_time_ns > 0) row["share"] = box.time_ns / model.total_time_ns;
  if (!std::isnan(box.other_ns)) row["other_ns"] = box.other_ns;
  return row;
}

// Boxes of another program's run, scope by scope.
class KernelBoxes {
 public:
  explicit KernelBoxes(const RunRecord& run) {
    model_.name = run.summary.model;
    for (const KernelRow& row : run.kernels) add(row);
    model_.planned = true;
    apply_times(model_, run.kernels);
  }
  GraphModel take() { return std::move(model_); }

 private:
  void add(const KernelRow& row) {
    const KernelInfo& info = row.info;
    const auto [at, fresh] =
        model_.by_name.try_emplace(info.node, static_cast<std::int32_t>(model_.boxes.size()));
    if (fresh) model_.boxes.push_back(box_of(info));
    GraphBox& box = model_.boxes[static_cast<std::size_t>(at->second)];
    box.flops += info.flops;
    box.bytes_read += info.bytes_read;
    box.bytes_written += info.bytes_written;
    box.launches += static_cast<double>(row.launches());
  }
  GraphBox box_of(const KernelInfo& info) {
    GraphBox box;
    box.name = info.node;
    box.op = info.op;
    box.kernel = info.kernel;
    box.passes = info.passes;
    box.type = info.types;
    box.phase = phase_of(info.phase);
    box.onnx_nodes = info.onnx_nodes;
    box.plan_step = info.plan_step;
    box.outputs.push_back({"", info.types});
    if (info.scope.empty()) return box;
    const auto [at, fresh] = scopes_.try_emplace(info.scope, static_cast<std::int32_t>(model_.scopes.size()));
    if (fresh) model_.scopes.push_back({.name = info.scope, .path = info.scope});
    box.scope = at->second;
    return box;
  }
  static Phase phase_of(const std::string& name) {
    for (const Phase phase : {Phase::loss, Phase::backward, Phase::optimizer})
      if (name == phase_name(phase)) return phase;
    return Phase::forward;
  }

  GraphModel model_;
  std::map<std::string, std::int32_t> scopes_;
};

}  // namespace

void declare_graph(CLI::App& app, GraphAsked& asked) {
  app.add_flag(
      "--graph", asked.all,
      "the nodes as the window's graph shows them: scope, links, FLOPs, bytes, what is live at the peak; of a run "
      "also times, rates and launches");
  app.add_option(
      "--find", asked.find,
      "of these the ones that a search finds, as the window's: 'attn (op:MatMul* or phase:bwd) bytes>1MiB'");
  app.add_option("--path", asked.path, "the fewest links that lead from one node to another: A B")
      ->expected(2);
  app.add_option("--neighbours", asked.neighbours,
                 "what a node reads and is read by, up to N links away: NODE or NODE,N");
}

Result<GraphAnswer> ask_graph(const GraphModel& model, const GraphAsked& asked) {
  if (int{!asked.find.empty()} + int{!asked.path.empty()} + int{!asked.neighbours.empty()} > 1)
    return Error{Errc::usage, "--find, --path and --neighbours are asked one at a time"};
  if (model.links.empty() && (!asked.path.empty() || !asked.neighbours.empty()))
    return Error{Errc::usage,
                 "no links between these nodes are known: of another program's run kernels alone are"};
  if (!asked.path.empty()) return way(model, asked.path);
  if (!asked.neighbours.empty()) return around(model, asked.neighbours);
  const auto query = Query::parse(asked.find);
  if (!query) return with_context(query.error(), "--find");
  GraphAnswer answer;
  const bool all = query->empty();
  if (!all) answer.title = "found by " + escaped(asked.find);
  for (std::int32_t box = 0; box < static_cast<std::int32_t>(model.boxes.size()); ++box)
    if (all || query->matches(model.fields(box))) answer.boxes.emplace_back(box, 0);
  return answer;
}

GraphModel graph_model_of(const Prepared& prepared, const RunRecord* run) {
  const Compiled& c = prepared.compiled;
  GraphModel model = build_graph_model(c.train.graph, &c.plan);
  apply_memory(model, build_memory_model(c.train.graph, c.plan));
  if (run == nullptr) return model;
  const bool same = run->summary.plan_hash == c.plan.hash;
  apply_times(model, run->kernels, same ? "" : "run " + std::to_string(run->summary.id));
  return model;
}

GraphModel graph_model_of(const RunRecord& run) { return KernelBoxes(run).take(); }

Status compare_graph(GraphModel& model, const RunRecord& run, const RunRecord& other) {
  for (const RunRecord* const side : {&run, &other})
    if (!side->has_times())
      return Error{Errc::bad_input, "run " + std::to_string(side->summary.id) +
                                        " has no times of kernels (--profile sampled or all takes them)"};
  const Comparison comparison = TRY(compare_runs(other, run));
  apply_other(model, comparison.kernels, "run " + std::to_string(other.summary.id));
  return {};
}

Json graph_answer_json(const GraphModel& model, const GraphAnswer& answer, const Plan* plan) {
  Json boxes = Json::array();
  for (const auto& [box, distance] : answer.boxes) {
    boxes.push_back(box_json(model, box, plan));
    boxes.back()["distance"] = distance;
  }
  Json json = {{"asked", answer.title}, {"nodes", model.boxes.size()}, {"boxes", boxes}};
  if (model.timed) json["kernels_ns"] = model.total_time_ns;
  if (!model.other_plan.empty()) json["times_of_another_plan"] = model.other_plan;
  if (!model.against.empty()) json["against"] = model.against;
  return json;
}

std::string graph_answer_text(const GraphModel& model, const GraphAnswer& answer, std::size_t limit) {
  const bool timed = model.timed, compared = !model.against.empty();
  std::vector<std::string> head{"node", "operator", "phase", "scope", "FLOPs", "bytes", "at peak"};
  if (timed) head.insert(head.end(), {"launches", "time", "share", "rate"});
  if (compared) head.push_back("against " + model.against);
  std::vector<std::vector<std::string>> rows;
  for (const auto& [index, distance] : answer.boxes) {
    if (rows.size() >= limit) break;
    const GraphBox& box = box_at(model, index);
    const auto text = [&, at = index](ColorBy by) {
      const double value = model.value_of(at, by);
      return std::isnan(value) || (by == ColorBy::kLive && value <= 0) ? std::string("-")
                                                                       : model.value_text(value, by);
    };
    const bool runs = box.plan_step >= 0;
    rows.push_back({escaped(box.name), box.op, phase_name(box.phase),
                    box.scope < 0 ? "" : escaped(model.scopes[static_cast<std::size_t>(box.scope)].path),
                    runs ? count_text(box.flops, "FLOP") : "-", text(ColorBy::kBytes), text(ColorBy::kLive)});
    if (timed) {
      const bool known = !std::isnan(box.time_ns) && model.total_time_ns > 0;
      rows.back().insert(rows.back().end(), {text(ColorBy::kLaunches), text(ColorBy::kTime),
                                             known ? percent_text(box.time_ns / model.total_time_ns) : "-",
                                             text(ColorBy::kRate)});
    }
    if (compared) rows.back().push_back(text(ColorBy::kChange));
  }
  std::string text = std::to_string(answer.boxes.size()) + " of " +
                     plural_text(static_cast<std::int64_t>(model.boxes.size()), "node") +
                     (answer.title.empty() ? "" : " " + answer.title);
  if (!model.other_plan.empty()) text += "; times are of " + model.other_plan + ", which had another plan";
  if (!rows.empty()) text += "\n\n" + table_text(head, rows, {0, 1, 2, 3});
  if (answer.boxes.size() > rows.size())
    text += "\n  " + std::to_string(answer.boxes.size() - rows.size()) + " more (--limit N shows them)";
  return text;
}

}  // namespace gradloom
