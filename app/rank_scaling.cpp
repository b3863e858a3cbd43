#include "app/rank_scaling.h"

#include <algorithm>
#include <map>

#include "app/rank_peaks.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/collectives/parameter_part.h"
#include "engine/plan/streams.h"
#include "engine/ranks/world.h"
#include "profiler/roofline.h"
#include "profiler/trace.h"

namespace gradloom {
namespace {

constexpr double kMessageNs = 500, kAddedBytesPerNs = 4;
// What a byte costs a processor that leaves a rank or comes to it: copies, and the system's work.
constexpr double kCarriedNs = 0.4;
// Without measured times: what a core's memory gives, in bytes per ns, and its arithmetic.
constexpr double kMemory = 10, kFlopsPerByte = 5;
constexpr double kGoodEfficiency = 0.9;
constexpr const char* kExchangers[] = {"world", "host", "nccl"};  // as JSON names them

double own_ranks(std::int64_t ranks, const Cluster& cluster) {
  return static_cast<double>(cluster.ranks_per_machine > 0 ? std::min(cluster.ranks_per_machine, ranks)
                                                           : ranks);
}

// How many times longer ranks compute, because they share cores.
double crowding(std::int64_t ranks, const Cluster& cluster) {
  if (cluster.cores == 0) return 1;
  return std::max(1.0, own_ranks(ranks, cluster) * static_cast<double>(cluster.threads) / cluster.cores);
}

double added_bytes_per_ns(std::int64_t ranks, const Cluster& cluster) {
  return kAddedBytesPerNs / crowding(ranks, cluster);
}

bool goes_whole(double bytes) { return bytes <= static_cast<double>(World::kSmallBytes); }

// Every rank with every other.
double ns_in_order(double bytes, std::int64_t ranks, const Cluster& cluster) {
  const auto n = static_cast<double>(ranks);
  const double own = own_ranks(ranks, cluster);
  const bool whole = goes_whole(bytes);
  const double ways = whole ? 1 : 2, share = whole ? bytes : bytes / n;
  const double out = ways * own * (n - own) * share / cluster.link.bytes_per_ns,
               inside = ways * own * (own - 1) * share / cluster.local.bytes_per_ns;
  return std::max(out, inside) + ways * (own < n ? cluster.link : cluster.local).latency_ns +
         ways * (n - 1) * kMessageNs + bytes * (whole ? n : 1) / added_bytes_per_ns(ranks, cluster);
}

// Every rank to the next.
double ns_in_ring(double bytes, std::int64_t ranks, const Cluster& cluster) {
  const auto n = static_cast<double>(ranks);
  const double own = own_ranks(ranks, cluster), share = bytes / n;
  const bool crosses = own < n;
  const double inside = (crosses ? own - 1 : n) * share / cluster.local.bytes_per_ns,
               out = crosses ? share / cluster.link.bytes_per_ns : 0;
  const double latency = (crosses ? cluster.link : cluster.local).latency_ns;
  return 2 * (n - 1) * (std::max(out, inside) + latency + kMessageNs) +
         bytes / added_bytes_per_ns(ranks, cluster);
}

// Every rank with one that is 1, 2, 4, .. away; before that those that are left over with their neighbours.
double ns_in_tree(double bytes, std::int64_t ranks, const Cluster& cluster) {
  const ReduceTree tree(static_cast<int>(ranks));
  const double own = own_ranks(ranks, cluster);
  const bool whole = goes_whole(bytes);
  // `at_once`: ranks of a machine that send.
  const auto turn = [&](double sent, double at_once, bool inside) {
    const Link& link = inside ? cluster.local : cluster.link;
    return sent * at_once / link.bytes_per_ns + link.latency_ns + kMessageNs;
  };
  const double added = added_bytes_per_ns(ranks, cluster);
  double ns = bytes * (whole ? tree.levels() : 1) / added, sent = whole ? bytes : bytes / 2;
  for (int level = 0; level < tree.levels(); ++level, sent = whole ? sent : sent / 2)
    ns += (whole ? 1 : 2) * turn(sent, own, (1 << level) < own);
  if (tree.paired == 0) return ns;
  const double firsts = std::min(own / 2, static_cast<double>(tree.paired));
  const bool inside = own > 1;
  if (!whole) ns += turn(bytes / 2, 2 * firsts, inside) + turn(bytes / 2, firsts, inside);
  if (whole) ns += turn(bytes, firsts, inside);
  return ns + turn(bytes, firsts, inside) + bytes / added;
}

// From a GPU to its host, and the result back.
double copies_ns(double bytes, const Cluster& cluster) {
  return cluster.exchanger == Exchanger::host ? 2 * bytes / cluster.copy_bytes_per_ns : 0;
}

// The time of one exchange between CPUs.
double world_ns(ReduceForm form, double bytes, std::int64_t ranks, const Cluster& cluster) {
  if (form == ReduceForm::tree) return ns_in_tree(bytes, ranks, cluster);
  return form == ReduceForm::ring && !goes_whole(bytes) ? ns_in_ring(bytes, ranks, cluster)
                                                        : ns_in_order(bytes, ranks, cluster);
}

// `one_way`: of gradients to their owners, or of what owners have to all; `bytes` is half of theirs.
double exchange_ns(ReduceForm form, bool one_way, double bytes, std::int64_t ranks, const Cluster& cluster) {
  if (ranks == 1) return 0;
  if (cluster.exchanger != Exchanger::nccl)
    return world_ns(form, bytes, ranks, cluster) + copies_ns(bytes * (one_way ? 2 : 1), cluster);
  const std::int64_t own = cluster.ranks_per_machine > 0 ? cluster.ranks_per_machine : ranks;
  return nccl_ns(one_way ? NcclCall::one_way : NcclCall::all_reduce, one_way ? 2 * bytes : bytes, ranks, own,
                 cluster.local, cluster.link);
}

// What a plan does, as far as exchanges are concerned.
struct Moment {
  enum Kind { kernel, begin, wait, exchange, adasum } kind = kernel;
  double ns = 0;     // kernel
  double bytes = 0;  // begin, exchange, adasum
  std::int64_t sharing =
      0;                  // of ranks that share parameters; 0: of all, or of those that have the same parts
  std::size_t begun = 0;  // wait: the event that it waits for
  ReduceForm form = ReduceForm::order;  // begin, exchange
  bool one_way = false;                 // the same
};

// What a rank sends of it; what is small is counted as if it were not. In a tree the first rank of a pair sends half to the second
// before, and the means after; by AdaSum all goes to one other rank in each of log2(ranks) rounds.
double sent_bytes(const Moment& event, std::int64_t ranks) {
  const auto share = [&](std::int64_t n) {
    return 2 * event.bytes * static_cast<double>(n - 1) / static_cast<double>(n);
  };
  const ReduceTree tree(static_cast<int>(ranks));
  if (event.kind == Moment::adasum) return event.bytes * tree.levels();
  if (event.form != ReduceForm::tree || tree.paired == 0) return share(ranks);
  return share(tree.leaves) + 1.5 * event.bytes;
}

// What a core has to do for an exchange of as many ranks as share it: carry what goes and comes, and add.
double processor_ns(const Moment& event, std::int64_t ranks, const Cluster& cluster) {
  if (cluster.cores == 0 || ranks == 1) return 0;
  const double sharing = std::max(1.0, own_ranks(ranks, cluster) / cluster.cores);
  return sharing * (2 * sent_bytes(event, ranks) * kCarriedNs + event.bytes / kAddedBytesPerNs);
}

// The share of a rank's exchanging thread for which no core is left: it takes it from the rank's kernels.
double taken_share(std::int64_t ranks, const Cluster& cluster) {
  if (cluster.cores == 0) return 0;
  const double own = own_ranks(ranks, cluster);
  return std::clamp(1 - (cluster.cores / own - static_cast<double>(cluster.threads)), 0.0, 1.0);
}

// All bytes go to one other rank in each of log2(ranks) rounds, the nearest first, and are combined. The ranks of a machine send at once.
double adasum_ns(double bytes, std::int64_t ranks, const Cluster& cluster) {
  const double own = own_ranks(ranks, cluster);
  double ns = 0;
  for (std::int64_t distance = 1; distance < ranks; distance *= 2) {
    const Link& link = static_cast<double>(distance) < own ? cluster.local : cluster.link;
    ns += bytes * own / link.bytes_per_ns + link.latency_ns + kMessageNs +
          bytes / added_bytes_per_ns(ranks, cluster);
  }
  return ns > 0 ? ns + copies_ns(bytes, cluster) : 0;
}

double bytes_of(const Graph& graph, const Node& node) {
  double bytes = 0;
  for (const ValueId in : node.inputs) bytes += static_cast<double>(byte_size(graph.type(in)));
  return bytes;
}

// Of the plan's steps, one launch each.
std::vector<double> kernel_times(const Prepared& prepared, const Cluster& cluster) {
  const Compiled& c = prepared.compiled;
  StepSpeeds speeds = step_speeds(prepared.options);
  speeds.memory = kMemory;
  speeds.flops_per_byte = kFlopsPerByte;
  if (cluster.roofs)
    speeds.step_ns = [&](const Graph& graph, const Plan& plan) {
      std::vector<double> ns;
      for (const KernelInfo& kernel : kernel_infos(graph, plan))
        ns.push_back(kernel_bound(*cluster.roofs, kernel, prepared.recipe.precision).expected_ns);
      return ns;
    };
  return step_times(c.train.graph, c.plan, speeds);
}

std::vector<Moment> events_of(const Prepared& prepared, const Cluster& cluster) {
  const Compiled& c = prepared.compiled;
  const Graph& graph = c.train.graph;
  const std::vector<double> ns = kernel_times(prepared, cluster);
  const auto repeats = static_cast<double>(prepared.options.train.accumulate);
  const ReduceForm form = *reduce_form_of(prepared.recipe.reduce);
  std::vector<Moment> events;
  std::map<ValueId, std::size_t> begun;  // by workspace
  for (std::size_t i = 0; i < c.plan.steps.size(); ++i) {
    const PlanStep& step = c.plan.steps[i];
    const Node& node = graph.nodes[step.node];
    Moment event;
    const RankExchange exchange = node.op->exchange;
    if (exchange == RankExchange::sum) {  // added in the order of the ranks
      event = {Moment::exchange, 0, bytes_of(graph, node), node.attrs.integer("ranks")};
    } else if (node.op->begins_exchange()) {
      const bool mean = exchange == RankExchange::begin_mean;
      const int ways = mean ? 1 : 2;  // a gradient goes to its owner, and not back
      event = {Moment::begin, 0, bytes_of(graph, node) / ways, 0, 0, mean ? form : ReduceForm::order, !mean};
      begun[node.outputs.back()] = events.size();
    } else if (exchange == RankExchange::wait) {
      event = {Moment::wait, 0, 0, 0, begun.at(node.inputs[0])};
    } else if (exchange == RankExchange::mean) {
      event = {Moment::exchange, 0, bytes_of(graph, node), 0, 0, form};
    } else if (exchange == RankExchange::adasum) {
      event = {Moment::adasum, 0, bytes_of(graph, node)};
    } else if (exchange == RankExchange::share) {
      double bytes = 0;
      for (const ValueId out : node.outputs) bytes += static_cast<double>(byte_size(graph.type(out)));
      event = {.kind = Moment::exchange, .bytes = bytes / 2, .one_way = true};
    } else {
      event.ns = ns[i];
      if (step.micro) event.ns *= repeats;
    }
    if (step.micro && event.kind == Moment::exchange)  // of each micro-batch, one after the other
      for (std::int64_t k = 1; k < prepared.options.train.accumulate; ++k) events.push_back(event);
    events.push_back(event);
  }
  return events;
}

// Exchanges of several groups are made at the same time: what one of so many has of a machine.
Cluster shared_by(double groups, Cluster cluster) {
  cluster.link.bytes_per_ns /= groups;
  cluster.local.bytes_per_ns /= groups;
  cluster.cores /= groups;
  return cluster;
}

// Of each group of ranks that share parameters, which are neighbours.
Cluster within_groups(const Cluster& cluster, std::int64_t ranks, std::int64_t sharing) {
  return shared_by(std::max(own_ranks(ranks, cluster) / static_cast<double>(sharing), 1.0), cluster);
}

// Of those that have the same parts: a machine has as many of them as it has such groups.
Cluster among_groups(Cluster cluster, std::int64_t ranks, std::int64_t sharing) {
  const double parts = std::min(own_ranks(ranks, cluster), static_cast<double>(sharing));
  if (cluster.ranks_per_machine > 0)
    cluster.ranks_per_machine = std::max<std::int64_t>(cluster.ranks_per_machine / sharing, 1);
  return shared_by(parts, cluster);
}

// Exchanges in the background, made one after the other, beside kernels on the same cores.
struct Background {
  double free_ns = 0;  // when all that was begun is over
  double load = 0;     // what a core has to do for them, of that time
  void add(double begun_ns, double ns, double processor_ns) {
    const double left = std::max(free_ns - begun_ns, 0.0);
    free_ns = begun_ns + left + ns;
    load = std::min((load * left + processor_ns) / std::max(left + ns, 1.0), 1.0);
  }
  // How long a kernel takes that begins now, where `taken` of the work for exchanges is done by its core.
  double stretched(double now_ns, double ns, double taken) const {
    const double left = std::max(free_ns - now_ns, 0.0), slower = 1 + load * taken;
    return ns * slower <= left ? ns * slower : ns + left - left / slower;
  }
};

// `sharing`: ranks that share parameters (parameter_part.h).
ScalingRow row_of(const std::vector<Moment>& events, std::int64_t ranks, std::int64_t sharing,
                  const Cluster& cluster) {
  ScalingRow row{.ranks = ranks, .crowding = crowding(ranks, cluster)};
  const Cluster within = within_groups(cluster, ranks, sharing),
                among = among_groups(cluster, ranks, sharing);
  const double taken = taken_share(ranks, cluster);
  double now = 0;
  Background background;
  std::vector<double> over(events.size(), 0);
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Moment& event = events[i];
    const double before = now;
    if (event.kind == Moment::kernel) {
      const double alone_ns = event.ns * row.crowding, ns = background.stretched(now, alone_ns, taken);
      now += ns;
      row.exposed_ns += ns - alone_ns;
      continue;
    }
    if (event.kind == Moment::wait) {
      now = std::max(now, over[event.begun]);
    } else {
      const bool is_within = event.sharing > 0;
      const std::int64_t members = is_within ? event.sharing : ranks / sharing;
      const Cluster& here = is_within ? within : among;
      const double ns = event.kind == Moment::adasum
                            ? adasum_ns(event.bytes, members, here)
                            : exchange_ns(event.form, event.one_way, event.bytes, members, here);
      row.exchange_ns += ns;
      background.add(now, ns, processor_ns(event, members, here));
      over[i] = background.free_ns;
      if (event.kind != Moment::begin) now = background.free_ns;
    }
    row.exposed_ns += now - before;
  }
  row.step_ns = now;
  return row;
}

std::string bend_text(const std::vector<ScalingRow>& rows) {
  for (const ScalingRow& row : rows)
    if (row.efficiency < kGoodEfficiency && row.crowding > 1.05)
      return "below " + percent_text(kGoodEfficiency) + " from " + std::to_string(row.ranks) +
             " ranks: those of a machine have " + short_text(row.crowding) + " threads for each core of it";
    else if (row.efficiency < kGoodEfficiency)
      return "below " + percent_text(kGoodEfficiency) + " from " + std::to_string(row.ranks) +
             " ranks: exchanges take " + duration_text(row.exchange_ns) +
             ", of which the backward pass hides " +
             duration_text(std::max(row.exchange_ns - row.exposed_ns, 0.0));
  return "";
}

}  // namespace

double predict_exposed_ns(const Prepared& prepared, const Cluster& cluster) {
  return row_of(events_of(prepared, cluster), prepared.recipe.ranks,
                tensor_ranks(prepared.compiled.train.graph), cluster)
      .exposed_ns;
}

RankScaling predict_scaling(const Prepared& prepared, const Cluster& cluster) {
  RankScaling scaling;
  const std::vector<Moment> events = events_of(prepared, cluster);
  const std::int64_t sharing = tensor_ranks(prepared.compiled.train.graph);
  for (const Moment& event : events) {
    if (event.kind == Moment::kernel || event.kind == Moment::wait) continue;
    ++scaling.exchanges;
    scaling.bytes += event.bytes;
    scaling.sent_bytes +=
        sent_bytes(event, event.sharing > 0 ? event.sharing : prepared.recipe.ranks / sharing);
  }
  scaling.measured = prepared.options.kernel_ns && !cluster.roofs;
  if (cluster.roofs) scaling.hardware = cluster.roofs->name;
  scaling.figures = cluster.figures;
  scaling.exchanger = cluster.exchanger;
  std::vector<std::int64_t> worlds;
  // A plan of one group that shares parameters has no exchanges of gradients, from which more groups would be predicted.
  if (prepared.recipe.ranks > sharing)
    for (std::int64_t n = sharing; n <= 1024; n *= 2) worlds.push_back(n);
  worlds.push_back(prepared.recipe.ranks);
  std::sort(worlds.begin(), worlds.end());
  worlds.erase(std::unique(worlds.begin(), worlds.end()), worlds.end());
  for (const std::int64_t n : worlds) {
    scaling.rows.push_back(row_of(events, n, sharing, cluster));
    ScalingRow& row = scaling.rows.back();
    row.efficiency = row.step_ns > 0 ? scaling.rows.front().step_ns / row.step_ns : 1;
  }
  scaling.bend = bend_text(scaling.rows);
  const PeakPrediction peaks(prepared);
  for (ScalingRow& row : scaling.rows) row.peaks = peaks.of(row.ranks / sharing);
  scaling.sharing = sharing;
  return scaling;
}

Json scaling_json(const RankScaling& scaling) {
  Json rows = Json::array();
  const auto with_zero = [&](const RankPeak& peak) {
    return scaling.sharing > 1 ? Json() : Json(peak.bytes);
  };
  const auto parts = [&](const RankPeak& peak) -> Json {
    return {{"peak_bytes", peak.bytes}, {"parameters", peak.parameters},   {"gradients", peak.gradients},
            {"state", peak.state},      {"activations", peak.activations}, {"buckets", peak.buckets}};
  };
  const auto memory = [&](const RankPeaks& peaks) -> Json {
    Json of_stages = {{"whole", parts(peaks.whole)}};
    if (scaling.sharing == 1) of_stages.update({{"zero", parts(peaks.zero)}, {"zero2", parts(peaks.zero2)}});
    return of_stages;
  };
  for (const ScalingRow& row : scaling.rows)
    rows.push_back({{"ranks", row.ranks},
                    {"predicted_step_ns", row.step_ns},
                    {"exchange_ns", row.exchange_ns},
                    {"exposed_ns", row.exposed_ns},
                    {"efficiency", row.efficiency},
                    {"crowding", row.crowding},
                    {"peak_bytes", row.peaks.whole.bytes},
                    {"zero_peak_bytes", with_zero(row.peaks.zero)},
                    {"zero2_peak_bytes", with_zero(row.peaks.zero2)},
                    {"memory", memory(row.peaks)}});
  return {{"exchanges_per_step", scaling.exchanges},
          {"sharing_ranks", scaling.sharing},
          {"exchanged_bytes", scaling.bytes},
          {"sent_bytes", scaling.sent_bytes},
          {"kernel_times", scaling.measured           ? "measured"
                           : scaling.hardware.empty() ? "estimated"
                                                      : "roofline"},
          {"hardware", scaling.hardware.empty() ? Json() : Json(scaling.hardware)},
          {"exchanged_by", kExchangers[static_cast<std::size_t>(scaling.exchanger)]},
          {"figures", scaling.figures},
          {"bend", scaling.bend},
          {"rows", rows}};
}

// What a rank holds when it needs most, in each stage of zero.
static void print_memory(const Output& out, const RankScaling& scaling, std::int64_t ranks) {
  const auto row = std::find_if(scaling.rows.begin(), scaling.rows.end(),
                                [&](const ScalingRow& one) { return one.ranks == ranks; });
  if (row == scaling.rows.end()) return;
  const auto text = [](std::int64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const char* stage, const RankPeak& peak) {
    rows.push_back({stage, text(peak.parameters), text(peak.gradients), text(peak.state),
                    text(peak.activations), text(peak.buckets), text(peak.bytes)});
  };
  add("without zero", row->peaks.whole);
  if (scaling.sharing == 1) {
    add("zero", row->peaks.zero);
    add("zero{stage=2}", row->peaks.zero2);
  }
  out.text("");
  out.text(table_text({"a rank of " + std::to_string(ranks), "parameters", "gradients", "optimizer state",
                       "activations", "buckets", "peak"},
                      rows, {0}));
}

void print_scaling(const Output& out, const RankScaling& scaling, const Prepared& prepared,
                   const Cluster& cluster) {
  const Recipe& recipe = prepared.recipe;
  const auto link_text = [](const Link& link) {
    return bytes_text(link.bytes_per_ns * 1e9) + "/s, " + duration_text(link.latency_ns);
  };
  const std::int64_t local = cluster.ranks_per_machine;
  out.text("ranks        " + std::to_string(recipe.ranks) +
           (scaling.sharing > 1 ? ", each " + std::to_string(scaling.sharing) + " share parameters" : "") +
           "; each sends " + bytes_text(scaling.sent_bytes) + " a step, in " +
           plural_text(scaling.exchanges, "exchange") + " of " + bytes_text(scaling.bytes) +
           (recipe.reduce == "order" ? "" : ", added as a " + recipe.reduce));
  out.text("links        " + link_text(cluster.local) + " in a machine" +
           (local > 0 ? "; " + link_text(cluster.link) + " between machines of " + plural_text(local, "rank")
                      : ""));
  out.text("figures      " + scaling.figures);
  const auto time_text = [](double ns) { return ns > 0 ? duration_text(ns) : std::string("-"); };
  const auto with_zero = [&](const RankPeak& peak) {  // not of ranks that share parameters
    return scaling.sharing > 1 ? std::string("-") : bytes_text(static_cast<double>(peak.bytes));
  };
  std::vector<std::vector<std::string>> rows;
  for (const ScalingRow& row : scaling.rows)
    rows.push_back({row.ranks == recipe.ranks ? "*" : "", std::to_string(row.ranks),
                    duration_text(row.step_ns), time_text(row.exchange_ns), time_text(row.exposed_ns),
                    percent_text(row.efficiency), bytes_text(static_cast<double>(row.peaks.whole.bytes)),
                    with_zero(row.peaks.zero), with_zero(row.peaks.zero2)});
  out.text("");
  out.text(table_text({"", "ranks", "predicted step", "exchanges", "not hidden", "efficiency",
                       "peak of a rank", "with zero", "zero{stage=2}"},
                      rows, {0}));
  if (!scaling.bend.empty()) out.text(scaling.bend);
  print_memory(out, scaling, recipe.ranks);
}

}  // namespace gradloom
