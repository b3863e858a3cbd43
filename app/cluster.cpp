#include "app/cluster.h"

#include <initializer_list>
#include <string_view>

#include "app/measured_costs.h"
#include "app/roofline.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/device/device.h"
#include "engine/ops/collectives/parameter_part.h"

namespace gradloom {
namespace {

constexpr double kLocalLatencyNs = 2000;  // of a step between GPUs of a machine
constexpr const char *kUsualCuda = "h200", *kUsualHip = "mi300x";

struct NamedUnit {
  const char* name;
  double value;
};

// A number and one of these units behind it.
std::optional<double> with_unit(std::string_view text, std::initializer_list<NamedUnit> units) {
  for (const NamedUnit& unit : units) {
    if (!text.ends_with(unit.name)) continue;
    const auto number =
        parse_number<double>(text.substr(0, text.size() - std::string_view(unit.name).size()));
    if (number && *number > 0 && *number < 1e9) return *number * unit.value;
  }
  return std::nullopt;
}

bool device_is_gpu(const std::string& device) {
  return device.starts_with("cuda") || device.starts_with("hip");
}

// The card of a job for GPUs, and whether anything says that it is that one.
struct Card {
  Hardware hardware;
  bool known = true;
};

// What is measured has no links: those of the data sheet of the card whose name it bears.
Hardware with_links(Hardware measured, const Hardware* sheet) {
  if (sheet == nullptr) sheet = hardware_of_device(measured.name);
  if (measured.link_bytes_per_ns > 0 || sheet == nullptr) return measured;
  measured.link_bytes_per_ns = sheet->link_bytes_per_ns;
  measured.reach.links = sheet->reach.links;
  return measured;
}

Card card_of(const Recipe& recipe, const std::optional<Hardware>& on, const std::string& run_hardware) {
  if (on) return {with_links(*on, nullptr)};
  const std::vector<DeviceInfo> devices = list_devices();
  const Hardware* sheet = hardware_of_device(run_hardware);
  for (const DeviceInfo& device : devices) {
    if (!device.available || !device.id.starts_with(recipe.device)) continue;
    Recipe of_device;  // of "cuda" each rank has one
    of_device.device = device.id;
    of_device.threads = recipe.threads;
    if (sheet == nullptr) sheet = hardware_of_device(device.name);
    if (const auto measured = hardware_of_plan(of_device, "", devices); measured)
      return {with_links(*measured, sheet)};
  }
  if (sheet != nullptr) return {*sheet};
  return {*find_hardware(recipe.device.starts_with("hip") ? kUsualHip : kUsualCuda), false};
}

// What an exchange is made by (engine/ranks/README.md): NCCL knows one communicator of all ranks and one order of sums.
Exchanger exchanger_of(const Prepared& prepared) {
  const Graph& graph = prepared.compiled.train.graph;
  if (prepared.recipe.reduce != "order" || tensor_ranks(graph) > 1) return Exchanger::host;
  for (const PlanStep& step : prepared.compiled.plan.steps)
    if (graph.nodes[step.node].op->exchange == RankExchange::adasum) return Exchanger::host;
  return Exchanger::nccl;
}

std::string figures_text(const Cluster& cluster, const Prepared& prepared, bool gpu, const Card& card) {
  const Recipe& recipe = prepared.recipe;
  std::string text = "kernels ";
  if (cluster.roofs)
    text += "as expected of " + escaped(card.hardware.name) + ": " + escaped(card.hardware.source);
  else if (prepared.options.kernel_ns)
    text += "as measured" + (recipe.costs.empty() ? std::string() : " (" + escaped(recipe.costs) + ")");
  else
    text += "are estimates of a CPU's core (--costs takes measured ones)";
  if (cluster.roofs && gpu && !device_is_gpu(recipe.device))
    text += ", of a plan for " + escaped(recipe.device);
  switch (cluster.exchanger) {
    case Exchanger::world: text += "; exchanges of processes, added by a CPU"; break;
    case Exchanger::host: text += "; exchanges through the hosts, added by a CPU"; break;
    case Exchanger::nccl: text += "; exchanges by NCCL's own model"; break;
  }
  if (gpu && !card.known)
    text += "; nothing is known of " + escaped(recipe.device) + ": taken for " + escaped(card.hardware.name) +
            " (--on names another)";
  return text;
}

}  // namespace

Result<Link> parse_link(const std::string& text) {
  const std::size_t comma = text.find(',');
  Link link;
  const auto rate = with_unit(std::string_view(text).substr(0, comma),
                              {{"Gb/s", 0.125}, {"GB/s", 1}, {"Mb/s", 0.125e-3}, {"MB/s", 1e-3}});
  const auto latency = comma == std::string::npos ? std::optional<double>(link.latency_ns)
                                                  : with_unit(std::string_view(text).substr(comma + 1),
                                                              {{"us", 1e3}, {"ns", 1}, {"ms", 1e6}});
  if (!rate || !latency)
    return Error{Errc::usage,
                 "'" + escaped(text) + "' is no link: expected a rate and a latency, as in 400Gb/s,5us"};
  link.bytes_per_ns = *rate;
  link.latency_ns = *latency;
  return link;
}

Result<ClusterQuestion> parse_cluster(const std::string& link, const std::string& local,
                                      std::int64_t ranks_per_machine) {
  ClusterQuestion question{.link = TRY(parse_link(link)), .ranks_per_machine = ranks_per_machine};
  if (!local.empty()) question.local = TRY(parse_link(local));
  return question;
}

Cluster cluster_of(const ClusterQuestion& question, const Prepared& prepared,
                   const std::optional<Hardware>& on, const std::string& run_hardware) {
  const Recipe& recipe = prepared.recipe;
  const CostsMachine machine = costs_machine(recipe);
  Cluster cluster{.link = question.link,
                  .local = *parse_link(kUsualLocalLink),
                  .ranks_per_machine = question.ranks_per_machine};
  const bool gpu = device_is_gpu(recipe.device) || (on && on->is_gpu());
  Card card;
  if (on) cluster.roofs = *on;
  if (gpu) {
    card = card_of(recipe, on, run_hardware.empty() ? machine.hardware : run_hardware);
    if (!prepared.options.kernel_ns) cluster.roofs = card.hardware;
    cluster.exchanger = exchanger_of(prepared);
    cluster.copy_bytes_per_ns = step_speeds(prepared.options).link;
    const double links = card.hardware.link_bytes_per_ns * card.hardware.reach.links;
    if (cluster.exchanger == Exchanger::nccl && links > 0) cluster.local = {links, kLocalLatencyNs};
  } else {
    cluster.cores = question.cores > 0 ? question.cores : static_cast<double>(machine.cores);
    cluster.threads = recipe.threads > 0 ? recipe.threads : machine.threads;
    if (on) card.hardware = *on;
  }
  if (question.local) cluster.local = *question.local;
  cluster.figures = figures_text(cluster, prepared, gpu, card);
  return cluster;
}

}  // namespace gradloom
