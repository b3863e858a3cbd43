#include "viz/model/step_idle.h"

#include <algorithm>
#include <numeric>

#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "kernels/threads.h"
#include "sessions/stats.h"
#include "viz/model/step_tree.h"

namespace gradloom {

// A part of a step's time, ns from its start.
struct IdleMoment {
  double start = 0, end = 0;
};

// What a step has besides the kernels of its lanes.
struct IdleReader::Around {
  struct Copy {
    std::int32_t stream = 0;
    double start = 0, end = 0;
  };
  std::vector<Copy> copies;                                          // of the run's own rank
  std::map<std::pair<std::int32_t, std::int32_t>, double> launched;  // when, by plan step and micro-batch
  std::vector<IdleMoment> outside;                                   // of a recorded loop: not in the engine
  std::vector<const TraceExchange*> exchanges;
  std::int64_t origin_ns = 0;
  double at(std::int64_t ns) const { return static_cast<double>(ns - origin_ns); }
};

namespace {

// By start, what overlaps made one.
void order(std::vector<IdleMoment>& intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const IdleMoment& a, const IdleMoment& b) { return a.start < b.start; });
  std::size_t kept = 0;
  for (const IdleMoment& i : intervals) {
    if (kept > 0 && i.start <= intervals[kept - 1].end)
      intervals[kept - 1].end = std::max(intervals[kept - 1].end, i.end);
    else
      intervals[kept++] = i;
  }
  intervals.resize(kept);
}

// Of a span of a lane what is covered by ordered intervals and what is not, in order.
template <typename Covered, typename Open>
void split(double start, double end, const std::vector<IdleMoment>& intervals, const Covered& covered,
           const Open& open) {
  auto i = std::partition_point(intervals.begin(), intervals.end(),
                                [&](const IdleMoment& m) { return m.end <= start; });
  for (; i != intervals.end() && i->start < end; ++i) {
    const double from = std::max(start, i->start), to = std::min(end, i->end);
    if (from > start) open(start, from);
    covered(from, to);
    start = to;
  }
  if (end > start) open(start, end);
}

// Turns the moments of one lane without kernels into idle pieces.
class LaneReader {
 public:
  // `own`: the lane is of the rank that copies and launches are recorded of.
  LaneReader(std::vector<IdleLane>& lanes, std::size_t lane, bool own, const IdleReader::Around& around,
             const std::vector<KernelInfo>& infos)
      : lanes_(lanes), lane_(lanes[lane]), index_(lane), own_(own), around_(around), infos_(infos) {
    if (!own) return;
    for (const IdleReader::Around::Copy& copy : around.copies) {
      if (copy.stream == lane_.stream)
        own_copies_.push_back({copy.start, copy.end});
      else
        other_copies_end_.push_back(copy.end);
    }
    order(own_copies_);
    std::sort(other_copies_end_.begin(), other_copies_end_.end());
  }

  void read() {
    double free_from = lane_.start_ns;
    for (std::size_t k = 0; k < lane_.kernels.size(); ++k) {
      LaneKernel& kernel = lane_.kernels[k];
      before_ = static_cast<std::int32_t>(k);
      if (kernel.start_ns > free_from) read_gap(free_from, kernel.start_ns, k == 0 ? nullptr : &kernel);
      read_exchange(kernel, free_from);
      free_from = std::max(free_from, kernel.end_ns);
    }
    before_ = -1;
    if (lane_.end_ns > free_from) read_gap(free_from, lane_.end_ns, nullptr);
  }

 private:
  void add(double start, double end, IdleCause cause, std::int32_t by_lane = -1,
           std::int32_t by_kernel = -1) {
    if (end > start) lane_.idle.push_back({start, end, cause, before_, by_lane, by_kernel});
  }

  // `kernel`: that the gap ends with; null: the step begins or ends there.
  void read_gap(double start, double end, const LaneKernel* kernel) {
    split(
        start, end, own_copies_, [&](double from, double to) { add(from, to, IdleCause::kCopy); },
        [&](double from, double to) {
          if (kernel == nullptr) return add(from, to, IdleCause::kHost);
          split(
              from, to, around_.outside, [&](double a, double b) { add(a, b, IdleCause::kHost); },
              [&](double a, double b) { read_wait(a, b, b == end ? kernel : nullptr); });
        });
  }

  // Up to what was over last before the kernel began that is what was waited for.
  void read_wait(double start, double end, const LaneKernel* kernel) {
    double until = start;
    IdleCause cause = IdleCause::kLaunch;
    std::int32_t by_lane = -1, by_kernel = -1;
    const auto take = [&](double over, IdleCause why, std::int32_t lane, std::int32_t k) {
      if (over <= until || over > end) return;
      until = over;
      cause = why;
      by_lane = lane;
      by_kernel = k;
    };
    for (std::size_t other = 0; kernel != nullptr && other < lanes_.size(); ++other) {
      const IdleLane& lane = lanes_[other];
      if (other == index_ || lane.rank != lane_.rank) continue;
      const auto after = std::partition_point(lane.kernels.begin(), lane.kernels.end(),
                                              [&](const LaneKernel& k) { return k.end_ns <= end; });
      if (after == lane.kernels.begin()) continue;
      take((after - 1)->end_ns, IdleCause::kDependency, static_cast<std::int32_t>(other),
           static_cast<std::int32_t>(after - lane.kernels.begin() - 1));
    }
    if (kernel != nullptr && own_) {
      const auto copied = std::upper_bound(other_copies_end_.begin(), other_copies_end_.end(), end);
      if (copied != other_copies_end_.begin()) take(*(copied - 1), IdleCause::kCopy, -1, -1);
      const auto launch = around_.launched.find({kernel->plan_step, kernel->micro});
      if (launch != around_.launched.end()) take(launch->second, IdleCause::kLaunch, -1, -1);
    }
    add(start, until, cause, by_lane, by_kernel);
    add(until, end, IdleCause::kLaunch);
  }

  // Within a kernel that exchanges: what is made while it runs, and what was begun before and it waits for.
  void read_exchange(LaneKernel& kernel, double free_from) {
    const auto info = static_cast<std::size_t>(kernel.plan_step);
    if (kernel.plan_step < 0 || info >= infos_.size() || step_part(infos_[info]) != StepPart::kExchange)
      return;
    std::vector<IdleMoment> waits, transfers;
    bool only_waits = true;  // for what was begun before; what makes an exchange computes around it
    for (const TraceExchange* e : around_.exchanges) {
      if (e->rank != lane_.rank) continue;
      const double start = around_.at(e->start_ns), ready = start + static_cast<double>(e->wait_ns),
                   end = start + static_cast<double>(e->duration_ns);
      if (!stands_still_for(kernel, *e, start, end)) continue;
      waits.push_back({start, ready});
      transfers.push_back({ready, end});
      only_waits = only_waits && e->plan_step != kernel.plan_step;
    }
    if (waits.empty()) return;
    kernel.stands_still = true;
    order(waits);
    order(transfers);
    const double start = std::max(kernel.start_ns, free_from);
    split(
        start, kernel.end_ns, transfers, [&](double a, double b) { add(a, b, IdleCause::kCopy); },
        [&](double from, double to) {
          split(
              from, to, waits, [&](double a, double b) { add(a, b, IdleCause::kImbalance); },
              [&](double a, double b) {
                if (only_waits) add(a, b, IdleCause::kCopy);
              });
        });
  }

  std::vector<IdleLane>& lanes_;
  IdleLane& lane_;
  const std::size_t index_;
  const bool own_;
  const IdleReader::Around& around_;
  const std::vector<KernelInfo>& infos_;
  std::vector<IdleMoment> own_copies_;
  std::vector<double> other_copies_end_;  // of other streams, in order
  std::int32_t before_ = -1;
};

// Of the spans of a loop's step those moments that are not in the engine's: of each span its own.
std::vector<IdleMoment> outside_engine(const std::vector<const HostSpan*>& host,
                                       const IdleReader::Around& around) {
  std::vector<IdleMoment> engine, outside;
  IdleMoment whole;
  for (const HostSpan* s : host) {
    const IdleMoment span{around.at(s->start_ns), around.at(s->start_ns + s->duration_ns)};
    if (s->parent < 0) whole = span;
    if (s->kind == "engine") engine.push_back(span);
  }
  order(engine);
  split(
      whole.start, whole.end, engine, [](double, double) {},
      [&](double from, double to) {
        outside.push_back({from, to});
      });
  return outside;
}

bool copies(const std::vector<KernelInfo>& infos, std::int32_t plan_step) {
  const auto at = static_cast<std::size_t>(plan_step);
  return plan_step >= 0 && at < infos.size() &&
         (infos[at].op == "CopyToHost" || infos[at].op == "CopyFromHost");
}

double over(const IdlePiece& piece, double from_ns, double to_ns) {
  return std::max(0.0, std::min(piece.end_ns, to_ns) - std::max(piece.start_ns, from_ns));
}

}  // namespace

bool stands_still_for(const LaneKernel& kernel, const TraceExchange& exchange, double start_ns,
                      double end_ns) {
  const bool goes_on = exchange.plan_step == kernel.plan_step && end_ns > kernel.end_ns;
  return !goes_on && end_ns > kernel.start_ns && start_ns < kernel.end_ns;
}

double IdleSums::idle() const { return std::accumulate(idle_ns.begin(), idle_ns.end(), 0.0); }

IdleSums IdleLane::sums(double from_ns, double to_ns) const {
  IdleSums out;
  out.wall_ns = std::max(0.0, std::min(end_ns, to_ns) - std::max(start_ns, from_ns));
  auto piece =
      std::partition_point(idle.begin(), idle.end(), [&](const IdlePiece& p) { return p.end_ns <= from_ns; });
  for (; piece != idle.end() && piece->start_ns < to_ns; ++piece)
    out.idle_ns[static_cast<std::size_t>(piece->cause)] += over(*piece, from_ns, to_ns);
  return out;
}

IdleReader::IdleReader(const RunRecord& run, const TraceDocument& trace) : run_(run), trace_(trace) {
  for (const std::vector<TraceRow>* rows : {&trace.rows, &trace.other_ranks})
    for (const TraceRow& row : *rows) rows_[row.step].push_back(&row);
  for (const TraceActivity& a : trace.activities) activities_[a.step].push_back(&a);
  for (const TraceThread& t : trace.threads) threads_[t.step].push_back(&t);
  for (const TraceExchange& e : trace.exchanges) exchanges_[e.step].push_back(&e);
  for (const HostSpan& s : trace.host) host_[s.step].push_back(&s);
  for (const EvaluationRow& e : run.evaluations) evaluated_.insert(e.step);
}

std::int64_t IdleReader::median_step() const {
  std::vector<const TraceStep*> steps;
  for (const TraceStep& s : trace_.steps) steps.push_back(&s);
  const std::int64_t warmup = run_.summary.last_warmup_step();
  if (!steps.empty() && steps.back()->step > warmup)
    std::erase_if(steps, [&](const TraceStep* s) { return s->step <= warmup; });
  if (steps.empty()) return 0;
  std::sort(steps.begin(), steps.end(),
            [](const TraceStep* a, const TraceStep* b) { return a->duration_ns < b->duration_ns; });
  return steps[(steps.size() - 1) / 2]->step;
}

namespace {

// The kernels of a step by rank and stream, the run's own rank first.
std::vector<IdleLane> lanes_of(const std::vector<const TraceRow*>& rows, const TraceDocument& trace,
                               std::int64_t origin_ns) {
  std::map<std::tuple<bool, std::int32_t, std::int32_t>, IdleLane> lanes;
  for (const TraceRow* row : rows) {
    IdleLane& lane = lanes[{row->rank != trace.rank, row->rank, row->stream}];
    lane.rank = row->rank;
    lane.stream = row->stream;
    const auto start_ns = static_cast<double>(row->start_ns - origin_ns);
    lane.kernels.push_back(
        {start_ns, start_ns + static_cast<double>(row->duration_ns), row->plan_step, row->micro});
  }
  std::vector<IdleLane> out;
  for (auto& [key, lane] : lanes) {
    const bool only_copies = std::all_of(lane.kernels.begin(), lane.kernels.end(), [&](const LaneKernel& k) {
      return copies(trace.kernels, k.plan_step);
    });
    if (only_copies) continue;
    std::stable_sort(lane.kernels.begin(), lane.kernels.end(),
                     [](const LaneKernel& a, const LaneKernel& b) { return a.start_ns < b.start_ns; });
    lane.start_ns = lane.kernels.front().start_ns;
    for (const LaneKernel& k : lane.kernels) lane.end_ns = std::max(lane.end_ns, k.end_ns);
    out.push_back(std::move(lane));
  }
  const bool streams = out.size() > 1 && out[0].rank == out[1].rank;
  for (IdleLane& lane : out)
    lane.name = !trace.ranks.empty() ? "Rank " + std::to_string(lane.rank)
                : streams            ? "Stream " + std::to_string(lane.stream)
                                     : "Kernels";
  return out;
}

}  // namespace

void IdleReader::find_around(const TraceStep& step, Around& around) const {
  around.origin_ns = step.start_ns;
  if (const auto found = activities_.find(step.step); found != activities_.end())
    for (const TraceActivity* a : found->second) {
      const double start = around.at(a->start_ns), end = start + static_cast<double>(a->duration_ns);
      if (a->kind == Activity::Kind::api) around.launched[{a->plan_step, a->micro}] = end;
      if (a->kind == Activity::Kind::copy || a->kind == Activity::Kind::fill)
        around.copies.push_back({a->stream, start, end});
    }
  for (const TraceRow* row : rows_.at(step.step))  // copies that are steps of the plan
    if (row->rank == trace_.rank && copies(trace_.kernels, row->plan_step))
      around.copies.push_back({row->stream, around.at(row->start_ns),
                               around.at(row->start_ns) + static_cast<double>(row->duration_ns)});
  if (const auto found = exchanges_.find(step.step); found != exchanges_.end())
    around.exchanges = found->second;
  if (const auto found = host_.find(step.step); found != host_.end())
    around.outside = outside_engine(found->second, around);
}

// When the lane's step begins and ends.
void IdleReader::set_bounds(const TraceStep& step, IdleLane& lane, bool first) const {
  bool told = false;  // by a recorded loop
  if (const auto host = host_.find(step.step); host != host_.end())
    for (const HostSpan* s : host->second) {
      if (s->parent >= 0) continue;
      told = true;
      lane.start_ns = std::min(lane.start_ns, static_cast<double>(s->start_ns - step.start_ns));
      lane.end_ns = std::max(lane.end_ns, static_cast<double>(s->start_ns + s->duration_ns - step.start_ns));
    }
  const bool evaluated = evaluated_.count(step.step - 1) > 0;
  const auto before = evaluated ? rows_.end() : rows_.find(step.step - 1);
  if (before != rows_.end()) {
    std::int64_t end_ns = INT64_MIN;
    for (const TraceRow* row : before->second)
      if (row->rank == lane.rank && row->stream == lane.stream)
        end_ns = std::max(end_ns, row->start_ns + row->duration_ns);
    if (end_ns != INT64_MIN)
      lane.start_ns = std::min(lane.start_ns, static_cast<double>(end_ns - step.start_ns));
  } else if (first && !told) {
    const auto row = std::lower_bound(run_.steps.begin(), run_.steps.end(), step.step,
                                      [](const StepRow& s, std::int64_t value) { return s.step < value; });
    if (row != run_.steps.end() && row->step == step.step)
      lane.start_ns = std::min(lane.start_ns, lane.end_ns - static_cast<double>(row->step_ns));
  }
}

StepIdle IdleReader::step(std::int64_t step) const {
  StepIdle out{step, {}};
  const auto at = std::find_if(trace_.steps.begin(), trace_.steps.end(),
                               [&](const TraceStep& s) { return s.step == step; });
  const auto rows = rows_.find(step);
  if (at == trace_.steps.end() || rows == rows_.end()) return out;
  Around around;
  find_around(*at, around);
  out.lanes = lanes_of(rows->second, trace_, at->start_ns);
  for (std::size_t i = 0; i < out.lanes.size(); ++i) set_bounds(*at, out.lanes[i], i == 0);
  for (std::size_t i = 0; i < out.lanes.size(); ++i)
    LaneReader(out.lanes, i, out.lanes[i].rank == trace_.rank, around, trace_.kernels).read();
  if (!out.lanes.empty()) out.threads = threads_of(step, out.lanes.front());
  return out;
}

std::vector<IdleThread> IdleReader::threads_of(std::int64_t step, const IdleLane& lane) const {
  const auto rows = threads_.find(step);
  const auto named = run_.environment.find("threads");
  if (rows == threads_.end() || named == run_.environment.end()) return {};
  const std::int64_t count = parse_number<std::int64_t>(named->second).value_or(0);
  std::vector<double> busy(
      static_cast<std::size_t>(std::clamp<std::int64_t>(count, 0, kernels::kMostThreads)));
  if (busy.size() < 2) return {};
  const IdleSums all = lane.sums();
  busy[0] = all.busy_ns();  // but for what it waited for others
  for (const TraceThread* t : rows->second) {
    if (static_cast<std::size_t>(t->thread) >= busy.size()) continue;
    busy[static_cast<std::size_t>(t->thread)] +=
        static_cast<double>(t->thread == 0 ? t->busy_ns - t->duration_ns : t->busy_ns);
  }
  std::vector<IdleThread> threads;
  for (std::size_t t = 0; t < busy.size(); ++t) {
    threads.push_back({static_cast<std::int32_t>(t), all});
    threads.back().sums.idle_ns[static_cast<std::size_t>(IdleCause::kImbalance)] +=
        std::clamp(all.busy_ns() - busy[t], 0.0, all.busy_ns());
  }
  return threads;
}

std::string idle_text(const IdleSums& sums) {
  const auto share = [&](double ns) { return percent_text(sums.wall_ns > 0 ? ns / sums.wall_ns : 0); };
  std::string text = "busy " + share(sums.busy_ns());
  for (std::size_t c = 0; c < kIdleCauses; ++c)
    if (sums.idle_ns[c] > 0) text += std::string(", ") + kIdleCauseNames[c] + " " + share(sums.idle_ns[c]);
  return text;
}

}  // namespace gradloom
