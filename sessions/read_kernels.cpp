// Reading what a run executed: kernels with their provenance and times, streams of a GPU, traces. Every table
// is read once, in the order of its index, and joined here: SQLite would have to guess which table to begin
// with, and a file with repeated ids would multiply its rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "kernels/threads.h"
#include "sessions/store.h"
#include "sessions/store_impl.h"

namespace gradloom {
namespace {

std::int64_t saturating_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) sum = std::numeric_limits<std::int64_t>::max();
  return sum;
}

constexpr int kMaxStreams = 1024;

Error no_such_stream(std::int64_t run, std::int64_t stream) {
  return {Errc::bad_input, fmt::format("run {} is damaged (stream {})", run, stream)};
}

// A step begins with the first of its launches, copies and spans of the host, where there are any, and ends with the last.
template <class Event>
void widen_steps(TraceDocument& document, const std::vector<Event>& events) {
  for (const Event& e : events) {
    const auto step =
        std::lower_bound(document.steps.begin(), document.steps.end(), e.step,
                         [](const TraceStep& s, std::int64_t number) { return s.step < number; });
    if (step == document.steps.end() || step->step != e.step) continue;
    const std::int64_t end_ns = std::max(step->start_ns + step->duration_ns, e.start_ns + e.duration_ns);
    step->start_ns = std::min(step->start_ns, e.start_ns);
    step->duration_ns = end_ns - step->start_ns;
  }
}

// `column` of the ONNX nodes, by their number.
Result<std::vector<std::string>> read_sources(Database& database, std::int64_t run,
                                              const std::string& column) {
  std::vector<std::string> texts;
  Statement row =
      TRY(database.prepare("SELECT source, " + column + " FROM source_node WHERE run = ? ORDER BY source"));
  row.bind(1, run);
  while (TRY(row.row())) {
    if (row.integer(0) != static_cast<std::int64_t>(texts.size())) return misnumbered(run, "source_node");
    texts.push_back(row.text(1));
  }
  return texts;
}

// A node of the training graph: what is known of its kernel without the plan, and the bytes of its names.
struct GraphNode {
  KernelInfo info;
  std::size_t name_bytes = 0;
};

Result<std::map<std::int64_t, GraphNode>> read_nodes(Database& database, std::int64_t run,
                                                     const std::vector<std::string>& source_names) {
  std::map<std::int64_t, GraphNode> nodes;
  Statement row = TRY(database.prepare(
      "SELECT node, name, op, phase, scope, pass, output_types FROM graph_node WHERE run = ? ORDER BY node"));
  row.bind(1, run);
  while (TRY(row.row())) {
    const auto [at, fresh] = nodes.try_emplace(row.integer(0));
    if (!fresh)
      return Error{Errc::bad_input,
                   fmt::format("run {} is damaged (node {} is there twice)", run, at->first)};
    KernelInfo& info = at->second.info;
    std::string* const texts[] = {&info.node, &info.op, &info.phase, &info.scope, &info.passes, &info.types};
    int column = 1;
    for (std::string* text : texts) {
      *text = row.text(column++);
      at->second.name_bytes += text->size();
    }
  }
  Statement link =
      TRY(database.prepare("SELECT node, source FROM node_source WHERE run = ? ORDER BY node, rowid"));
  link.bind(1, run);
  while (TRY(link.row())) {
    const auto at = nodes.find(link.integer(0));
    const std::int64_t source = link.integer(1);
    if (at == nodes.end() || source < 0 || source >= static_cast<std::int64_t>(source_names.size())) continue;
    at->second.info.sources.push_back(static_cast<std::uint32_t>(source));
    at->second.name_bytes += sizeof(std::string) + source_names[static_cast<std::size_t>(source)].size();
  }
  return nodes;
}

}  // namespace

Status Store::Impl::read_kernel_infos(std::int64_t run, std::vector<KernelInfo>& kernels) {
  const std::vector<std::string> source_names = TRY(read_sources(database, run, "name"));
  const std::map<std::int64_t, GraphNode> nodes = TRY(read_nodes(database, run, source_names));
  static const GraphNode kUnknown;
  Statement row = TRY(database.prepare(
      "SELECT plan_step, node, kernel, stream, flops, bytes_read, bytes_written FROM plan_step WHERE run = ? "
      "ORDER BY plan_step"));
  row.bind(1, run);
  std::size_t name_bytes = 0;
  while (TRY(row.row())) {
    if (row.integer(0) != static_cast<std::int64_t>(kernels.size())) return misnumbered(run, "plan_step");
    const auto at = nodes.find(row.integer(1));
    const GraphNode& node = at == nodes.end() ? kUnknown : at->second;
    name_bytes += node.name_bytes;  // several plan steps may have the same node
    if (name_bytes > kMaxNameBytes)
      return Error{Errc::limit, fmt::format("run {}: the names of its kernels' nodes take more than {} MiB",
                                            run, kMaxNameBytes >> 20)};
    KernelInfo info = node.info;
    info.plan_step = static_cast<std::int32_t>(kernels.size());
    info.kernel = row.text(2);
    const std::int64_t stream = row.integer(3);
    if (stream < 0 || stream >= kMaxStreams) return no_such_stream(run, stream);
    info.stream = static_cast<std::int32_t>(stream);
    info.flops = row.real(4);
    info.bytes_read = row.real(5);
    info.bytes_written = row.real(6);
    for (const std::uint32_t source : info.sources) info.onnx_nodes.push_back(source_names[source]);
    kernels.push_back(std::move(info));
  }
  return read_implementations(run, kernels);
}

Status Store::Impl::read_implementations(std::int64_t run, std::vector<KernelInfo>& kernels) {
  if (TRY(version()) < 8) return {};
  Statement row = TRY(
      database.prepare("SELECT plan_step, kernel, library, detail, failed FROM implementation WHERE run = ? "
                       "ORDER BY plan_step, number"));
  row.bind(1, run);
  Implementations of_step;
  std::int64_t current = -1;
  const auto finish = [&] {
    if (current >= 0 && current < static_cast<std::int64_t>(kernels.size())) {
      KernelInfo& info = kernels[static_cast<std::size_t>(current)];
      info.implementation = implementation_text(of_step);
      info.library_failed =
          std::any_of(of_step.begin(), of_step.end(), [](const Implementation& i) { return i.failed; });
    }
    of_step.clear();
  };
  while (TRY(row.row())) {
    if (row.integer(0) != current) finish();
    current = row.integer(0);
    of_step.push_back({row.text(1), row.text(2), row.text(3), row.integer(4) != 0});
  }
  finish();
  return {};
}

Status Store::Impl::read_source_ops(std::int64_t run, std::vector<std::string>& ops) {
  ops = TRY(read_sources(database, run, "op"));
  return {};
}

namespace {

struct TimeInStep {
  std::int64_t step = 0, ns = 0;
};

// The times of one kernel from its samples, which it sorts.
void sum_up(std::vector<TimeInStep>& samples, KernelRow& kernel) {
  std::sort(samples.begin(), samples.end(),
            [](const TimeInStep& a, const TimeInStep& b) { return a.step < b.step; });
  std::vector<std::int64_t> each, of_step;
  std::int64_t step = 0;
  for (const TimeInStep& sample : samples) {
    kernel.total_ns = saturating_sum(kernel.total_ns, sample.ns);
    each.push_back(sample.ns);
    if (of_step.empty() || sample.step != step) of_step.push_back(0);
    of_step.back() = saturating_sum(of_step.back(), sample.ns);
    step = sample.step;
  }
  kernel.samples = static_cast<std::int64_t>(each.size());
  kernel.median_ns = integer_median(each);
  kernel.min_ns = each.front();
  kernel.step_ns = integer_median(of_step);
  if (const auto ran = static_cast<std::int64_t>(of_step.size()); ran < kernel.steps)
    kernel.step_ns = std::llround(static_cast<double>(kernel.step_ns) * static_cast<double>(ran) /
                                  static_cast<double>(kernel.steps));
}

}  // namespace

Status Store::Impl::read_kernels(std::int64_t run, std::int64_t threads, std::vector<KernelRow>& kernels) {
  std::vector<KernelInfo> infos;
  TRY(read_kernel_infos(run, infos));
  for (KernelInfo& info : infos) kernels.push_back({std::move(info)});
  Statement count = TRY(database.prepare(
      "SELECT count(DISTINCT step), count(DISTINCT CASE WHEN step > ? THEN step END) FROM kernel_sample WHERE "
      "run = ?"));
  const std::int64_t warmup = TRY(last_warmup_step(run));
  count.bind(1, warmup);
  count.bind(2, run);
  const bool any = TRY(count.row());
  const bool warm = any && count.integer(1) > 0;
  if (any)
    for (KernelRow& kernel : kernels) kernel.steps = count.integer(warm ? 1 : 0);
  Statement row = TRY(database.prepare(
      "SELECT plan_step, step, duration_ns FROM kernel_sample WHERE run = ? AND step > ? ORDER BY plan_step"));
  row.bind(1, run);
  row.bind(2, warm ? warmup : 0);
  std::vector<TimeInStep> samples;  // of one plan step: the rows come by plan step
  std::int64_t current = -1;
  const auto finish = [&] {
    if (current >= 0 && current < static_cast<std::int64_t>(kernels.size()) && !samples.empty())
      sum_up(samples, kernels[static_cast<std::size_t>(current)]);
  };
  while (TRY(row.row())) {
    if (row.integer(0) != current) {
      finish();
      samples.clear();
      current = row.integer(0);
    }
    samples.push_back({row.integer(1), row.size(2)});
  }
  finish();
  double all = 0;
  for (const KernelRow& kernel : kernels) all += static_cast<double>(kernel.step_ns);
  for (KernelRow& kernel : kernels) kernel.share = all > 0 ? static_cast<double>(kernel.step_ns) / all : 0;
  return read_busy_threads(run, threads, kernels);
}

// Of all samples, those of the warm-up too: a ratio of times that were taken together.
Status Store::Impl::read_busy_threads(std::int64_t run, std::int64_t threads,
                                      std::vector<KernelRow>& kernels) {
  if (threads < 2 || TRY(version()) < 12) return {};
  Statement row = TRY(database.prepare(
      "WITH apart AS (SELECT plan_step, sum(busy_ns) AS busy, sum(CASE WHEN thread = 0 THEN duration_ns END) AS ns "
      "FROM thread_sample WHERE run = ?1 GROUP BY plan_step) "
      "SELECT k.plan_step, total(k.duration_ns), coalesce(a.busy, 0), coalesce(a.ns, 0) FROM kernel_sample k "
      "LEFT JOIN apart a ON a.plan_step = k.plan_step WHERE k.run = ?1 AND EXISTS (SELECT 1 FROM apart) "
      "GROUP BY k.plan_step"));
  row.bind(1, run);
  while (TRY(row.row())) {
    const std::int64_t plan_step = row.integer(0);
    if (plan_step < 0 || plan_step >= static_cast<std::int64_t>(kernels.size())) continue;
    const double all = row.real(1), busy = row.real(2), apart = row.real(3);
    if (!(all > 0) || !(apart >= 0) || !(busy >= 0)) continue;
    kernels[static_cast<std::size_t>(plan_step)].threads_busy =
        std::clamp((busy + std::max(all - apart, 0.0)) / (static_cast<double>(threads) * all), 0.0, 1.0);
  }
  return {};
}

Status Store::Impl::read_activities(std::int64_t run, std::vector<TraceActivity>& activities) {
  if (TRY(version()) < 2) return {};
  Statement row = TRY(database.prepare(
      "SELECT step, micro, kind, stream, plan_step, start_ns, duration_ns, bytes, name FROM activity "
      "WHERE run = ? ORDER BY rowid"));
  row.bind(1, run);
  while (TRY(row.row())) {
    TraceActivity a;
    a.step = row.integer(0);
    a.micro = row.small(1);
    const std::string kind = row.text(2);
    for (const Activity::Kind k : {Activity::Kind::kernel, Activity::Kind::fill, Activity::Kind::api}) {
      if (kind == activity_name(k)) a.kind = k;
    }
    const std::int64_t stream = row.is_null(3) ? -1 : row.integer(3);
    if (stream < -1 || stream >= kMaxStreams) return no_such_stream(run, stream);
    a.stream = static_cast<std::int32_t>(stream);
    a.plan_step = row.is_null(4) ? -1 : row.small(4);
    a.start_ns = clock_ns(row, 5);
    a.duration_ns = row.size(6);
    a.bytes = row.size(7);
    a.name = row.text(8);
    activities.push_back(std::move(a));
  }
  return {};
}

// As v_streams does for people: by stream, kind and step.
Status Store::Impl::read_streams(std::int64_t run, const std::vector<KernelRow>& kernels,
                                 std::vector<StreamRow>& streams) {
  if (TRY(version()) < 2) return {};
  struct Sums {
    std::int64_t count = 0, bytes = 0;
    std::map<std::int64_t, std::int64_t> ns;  // by step
  };
  std::map<std::pair<std::int32_t, std::string>, Sums> sums;
  std::vector<TraceActivity> activities;
  TRY(read_activities(run, activities));
  if (activities.empty()) return {};
  const auto add = [&](std::int32_t stream, const char* kind, std::int64_t step, std::int64_t ns,
                       std::int64_t bytes) {
    Sums& to = sums[{stream, kind}];
    ++to.count;
    to.bytes = saturating_sum(to.bytes, bytes);
    std::int64_t& sum = to.ns[step];
    sum = saturating_sum(sum, ns);
  };
  for (const TraceActivity& a : activities)
    add(a.stream, activity_name(a.kind), a.step, a.duration_ns, a.bytes);
  Statement row =
      TRY(database.prepare("SELECT plan_step, step, duration_ns FROM kernel_sample WHERE run = ?"));
  row.bind(1, run);
  while (TRY(row.row())) {
    const std::int64_t plan_step = row.integer(0);
    if (plan_step < 0 || plan_step >= static_cast<std::int64_t>(kernels.size())) continue;
    const std::int32_t stream = kernels[static_cast<std::size_t>(plan_step)].info.stream;
    add(stream, activity_name(Activity::Kind::kernel), row.integer(1), row.size(2), 0);
  }
  for (const auto& [key, found] : sums) {
    streams.push_back({key.second, key.first, found.count, found.bytes, {}});
    for (const auto& [step, ns] : found.ns) streams.back().ns.push_back(static_cast<double>(ns));
  }
  return {};
}

Status Store::Impl::read_samples(std::int64_t run, std::size_t max_executions, TraceDocument& document) {
  Statement row =
      TRY(database.prepare("SELECT step, micro, plan_step, start_ns, duration_ns FROM kernel_sample "
                           "WHERE run = ? ORDER BY rowid"));
  row.bind(1, run);
  std::vector<KernelSample> samples;  // of one step
  std::int64_t current = 0;
  bool room = true;
  const auto close_step = [&] {
    if (samples.empty()) return;
    const std::int64_t start = samples.front().start_ns;
    std::int64_t end = start;
    for (const KernelSample& sample : samples) end = std::max(end, sample.start_ns + sample.duration_ns);
    document.steps.push_back({current, start, end - start});
    append_samples(samples, document.kernels, current, document.rows);
    samples.clear();
  };
  while (room && TRY(row.row())) {
    if (row.integer(0) != current) close_step();
    current = row.integer(0);
    samples.push_back({row.small(2), row.small(1), clock_ns(row, 3), row.size(4)});
    room = document.rows.size() + samples.size() <= max_executions;
  }
  if (room) return close_step(), Status();
  if (document.steps.empty())
    return Error{Errc::limit, fmt::format("run {}: step {} alone has more than {} kernel executions", run,
                                          current, max_executions)};
  Statement count = TRY(database.prepare("SELECT count(DISTINCT step) FROM kernel_sample WHERE run = ?"));
  count.bind(1, run);
  if (TRY(count.row()))
    document.steps_left_out = count.integer(0) - static_cast<std::int64_t>(document.steps.size());
  return {};
}

Status Store::Impl::read_threads(std::int64_t run, std::size_t max_rows, TraceDocument& document) {
  if (TRY(version()) < 12) return {};
  Statement row = TRY(database.prepare(
      "SELECT step, micro, plan_step, thread, start_ns, duration_ns, busy_ns FROM thread_sample WHERE run = ? "
      "ORDER BY rowid"));
  row.bind(1, run);
  auto shown = document.steps.begin();
  while (TRY(row.row())) {
    const std::int64_t step = row.integer(0);
    while (shown != document.steps.end() && shown->step < step) ++shown;
    if (shown == document.steps.end() || document.threads.size() == max_rows) break;
    if (shown->step != step) continue;
    TraceThread t{row.small(3), row.small(2), row.small(1), step, clock_ns(row, 4), row.size(5), row.size(6)};
    if (t.thread < 0 || t.thread >= kernels::kMostThreads)
      return Error{Errc::bad_input, fmt::format("run {} is damaged (thread {})", run, t.thread)};
    t.busy_ns = std::min(t.busy_ns, t.duration_ns);
    document.threads.push_back(t);
  }
  return {};
}

Result<TraceDocument> Store::load_trace(std::int64_t run, std::size_t max_executions) {
  return impl_->on_snapshot([&]() -> Result<TraceDocument> {
    const std::string table = TRY(impl_->damaged_table(run, false));
    if (!table.empty()) return damaged(run, table);
    TraceDocument document;
    document.run_id = run;
    Statement head = TRY(impl_->database.prepare("SELECT model, device FROM run WHERE id = ?"));
    head.bind(1, run);
    if (TRY(head.row())) {
      document.model = head.text(0);
      document.device = head.text(1);
    }
    TRY(impl_->read_environment(run, document.environment));
    TRY(impl_->read_kernel_infos(run, document.kernels));
    Statement live =
        TRY(impl_->database.prepare("SELECT live_bytes FROM plan_step WHERE run = ? ORDER BY plan_step"));
    live.bind(1, run);
    while (TRY(live.row())) document.live_bytes.push_back(live.size(0));
    std::vector<RankRow> ranks;
    TRY(impl_->read_ranks(run, ranks));
    TRY(impl_->read_samples(run, max_executions / std::max<std::size_t>(ranks.size(), 1), document));
    TRY(impl_->read_threads(run, max_executions, document));
    TRY(impl_->read_activities(run, document.activities));
    if (document.steps_left_out > 0)
      std::erase_if(document.activities,
                    [last = document.steps.back().step](const TraceActivity& a) { return a.step > last; });
    TRY(impl_->read_host_steps(run, max_executions, document));
    TRY(impl_->read_rank_steps(run, ranks, max_executions, document));
    widen_steps(document, document.activities);
    widen_steps(document, document.host);
    widen_steps(document, document.other_ranks);
    widen_steps(document, document.exchanges);
    return document;
  });
}

}  // namespace gradloom
