// Chrome trace JSON in Kineto's dialect, CSV, gzip. The format is described in chrome_trace.h.
#include "profiler/chrome_trace.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

// Nanoseconds that are written as microseconds with three decimals: exact, and short enough for a double.
struct Microseconds {
  std::int64_t ns = 0;
};

}  // namespace
}  // namespace gradloom

template <>
struct fmt::formatter<gradloom::Microseconds> {
  static constexpr auto parse(format_parse_context& context) { return context.begin(); }
  template <typename Context>
  auto format(const gradloom::Microseconds& time, Context& context) const {
    return fmt::format_to(context.out(), "{}{}.{:03}", time.ns < 0 ? "-" : "", std::abs(time.ns) / 1000,
                          std::abs(time.ns) % 1000);
  }
};

namespace gradloom {
namespace {

constexpr int kStepLane = 0;            // tid of steps, phases and, on the CPU, kernels
constexpr int kLaunchLane = 1;          // tid of the host's launches on other devices
constexpr int kHostLane = 1'000'000;    // tid of the host's spans in recorded loops
constexpr int kExchangeLane = 900'000;  // tid of the exchanges with other ranks
constexpr int kStreamLanes = 100;       // tids of other devices: 100 * (stream + 1) + lane

// A JSON string, quotes included: foreign bytes escaped, invalid UTF-8 replaced.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string json_number(double value) { return std::isfinite(value) ? number_text(value) : "0"; }

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : " ") + part;
  return text;
}

// Takes the next piece of a file.
using Sink = std::function<Status(std::string_view)>;

class Writer {
 public:
  Writer(const TraceDocument& document, Sink sink)
      : document_(document), sink_(std::move(sink)), on_cpu_(document.device == "cpu") {
    base_ns_ = !document.rows.empty()   ? document.rows.front().start_ns
               : !document.host.empty() ? document.host.front().start_ns
                                        : 0;
    for (const TraceRow& row : document.rows) base_ns_ = std::min(base_ns_, row.start_ns);
    for (const TraceActivity& activity : document.activities)
      base_ns_ = std::min(base_ns_, activity.start_ns);
    for (const HostSpan& span : document.host) base_ns_ = std::min(base_ns_, span.start_ns);
    for (const TraceRow& row : document.other_ranks) base_ns_ = std::min(base_ns_, row.start_ns);
    for (const TraceExchange& exchange : document.exchanges) base_ns_ = std::min(base_ns_, exchange.start_ns);
    for (const TraceStep& step : document.steps) {
      base_ns_ = std::min(base_ns_, step.start_ns);
      steps_.emplace(step.step, &step);
    }
    for (const KernelInfo& kernel : document.kernels) spelled_.push_back(spell(kernel));
    spelled_.push_back(spell({}));  // of rows whose plan step is unknown
  }

  Status write() {
    write_head();
    for (const TraceActivity& activity : document_.activities)
      activities_[activity.step].push_back(&activity);
    for (auto& [step, list] : activities_) std::stable_sort(list.begin(), list.end(), earlier<TraceActivity>);
    std::map<std::int32_t, std::vector<const TraceRow*>> of_ranks;
    for (const TraceRow& row : document_.rows) of_ranks[document_.rank].push_back(&row);
    for (const TraceRow& row : document_.other_ranks) of_ranks[row.rank].push_back(&row);
    of_ranks[document_.rank];  // of a recorded loop there may be spans alone
    for (auto& [rank, rows] : of_ranks) {
      rank_ = rank;
      std::stable_sort(rows.begin(), rows.end(), earlier<TraceRow>);
      TRY(write_rank(rows));
    }
    rank_ = document_.rank;
    for (const HostSpan& span : document_.host) {
      write_host(span);
      TRY(flush(kFlushBytes));
    }
    write_lanes();
    put("\n]}\n");
    return flush(0);
  }

 private:
  using Rows = std::span<const TraceRow* const>;  // of one step, by start
  static constexpr std::size_t kFlushBytes = 1 << 20;

  // What events say of a kernel, alike in every step: quoted once.
  struct Spelled {
    std::string name, kernel;  // quoted
    std::string arguments;     // from "kernel" to "flops"
    std::string loc;           // empty, or with its comma in front
  };
  Spelled spell(const KernelInfo& kernel) const {
    Spelled spelled;
    spelled.kernel = quoted(kernel.kernel);
    spelled.name = on_cpu_ && !kernel.op.empty() ? quoted(kernel.op) : spelled.kernel;
    spelled.arguments = fmt::format(
        R"("kernel":{},"node":{},"onnx_node":{},"scope":{},"phase":{},"pass_chain":{},"flops":{})",
        spelled.kernel, quoted(kernel.node), quoted(joined(kernel.onnx_nodes)), quoted(kernel.scope),
        quoted(kernel.phase), quoted(kernel.passes), json_number(kernel.flops));
    if (!kernel.implementation.empty())
      spelled.arguments += fmt::format(R"(,"implementation":{})", quoted(kernel.implementation));
    if (!kernel.sources.empty())
      spelled.loc =
          fmt::format(R"(,"loc":{})", quoted(document_.model + ":" + std::to_string(kernel.sources[0])));
    return spelled;
  }

  template <class Event>
  static bool earlier(const Event* a, const Event* b) {
    return a->step != b->step ? a->step < b->step : a->start_ns < b->start_ns;
  }

  // `rows`: of rank_, by step and start.
  Status write_rank(Rows rows) {
    event(R"("ph":"M","name":"process_name","tid":0,"args":{{"name":{}}})", quoted(process_name()));
    lanes_[{rank_, kStepLane}] = "training step";
    for (std::size_t i = 0, j = 0; i < rows.size(); i = j) {
      while (j < rows.size() && rows[j]->step == rows[i]->step) ++j;
      write_step(rows.subspan(i, j - i));
      TRY(flush(kFlushBytes));
    }
    for (const TraceExchange& exchange : document_.exchanges) {
      if (exchange.rank != rank_) continue;
      write_exchange(exchange);
      TRY(flush(kFlushBytes));
    }
    return {};
  }

  std::string process_name() const {
    const std::string name = "gradloom " + document_.device;
    const auto rank = static_cast<std::size_t>(rank_);
    return rank >= document_.ranks.size() ? name
                                          : fmt::format("{}, rank {} of {} on {}", name, rank,
                                                        document_.ranks.size(), document_.ranks[rank].host);
  }

  void write_lanes() {
    for (const auto& [lane, name] : lanes_) {
      rank_ = lane.first;
      event(R"("ph":"M","name":"thread_name","tid":{},"args":{{"name":{}}})", lane.second, quoted(name));
    }
  }

  // What it waited for the last rank lies inside.
  void write_exchange(const TraceExchange& e) {
    lanes_[{rank_, kExchangeLane}] = "exchanges";
    event(
        R"("ph":"X","cat":"exchange","name":"exchange","tid":{},"ts":{},"dur":{},"args":{{"step":{},"micro":{},"plan_step":{},"sent_bytes":{},"wait_us":{}}})",
        kExchangeLane, timestamp(e.start_ns), microseconds(e.duration_ns), e.step, e.micro, e.plan_step,
        e.sent_bytes, microseconds(e.wait_ns));
    if (e.wait_ns > 0)
      event(R"("ph":"X","cat":"exchange","name":"wait for the last rank","tid":{},"ts":{},"dur":{})",
            kExchangeLane, timestamp(e.start_ns), microseconds(e.wait_ns));
  }

  Status flush(std::size_t from_bytes) {
    if (out_.size() < from_bytes || out_.size() == 0) return {};
    const Status written = sink_({out_.data(), out_.size()});
    out_.clear();
    return written;
  }
  void put(std::string_view text) { out_.append(text.data(), text.data() + text.size()); }
  template <typename... Values>
  void event(fmt::format_string<Values...> body, Values&&... values) {
    put(first_ ? "\n{" : ",\n{");
    first_ = false;
    fmt::format_to(fmt::appender(out_), R"("pid":{},)", rank_ + 1);
    fmt::format_to(fmt::appender(out_), body, std::forward<Values>(values)...);
    out_.push_back('}');
  }
  static Microseconds microseconds(std::int64_t ns) { return {ns}; }
  Microseconds timestamp(std::int64_t ns) const { return microseconds(ns - base_ns_); }

  void write_head() {
    put(fmt::format(
        "{{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"distributedInfo\":{{\"rank\":{},\"world_size\":{}}},",
        document_.rank, std::max<std::size_t>(document_.ranks.size(), 1)));
    put(fmt::format("\"deviceProperties\":[{{\"id\":0,\"name\":{}}}],", quoted(document_.device)));
    put(fmt::format("\"baseTimeNanoseconds\":{},\"gradloom\":{{\"run_id\":{},\"model\":{},\"environment\":{{",
                    base_ns_, document_.run_id, quoted(document_.model)));
    bool first = true;
    for (const auto& [name, value] : document_.environment) {
      put(fmt::format("{}{}:{}", first ? "" : ",", quoted(name), quoted(value)));
      first = false;
    }
    put("}},\"traceEvents\":[");
  }

  std::size_t index(const TraceRow& row) const {
    const auto at = static_cast<std::size_t>(row.plan_step);
    return row.plan_step >= 0 && at < document_.kernels.size() ? at : document_.kernels.size();
  }
  const KernelInfo& info(const TraceRow& row) const {
    static const KernelInfo unknown;
    const std::size_t at = index(row);
    return at < document_.kernels.size() ? document_.kernels[at] : unknown;
  }

  void annotation(const std::string& name, std::int64_t start_ns, std::int64_t end_ns) {
    event(R"("ph":"X","cat":"user_annotation","name":{},"tid":{},"ts":{},"dur":{})", quoted(name), kStepLane,
          timestamp(start_ns), microseconds(end_ns - start_ns));
  }

  void write_step(Rows rows) {
    const std::int64_t step = rows.front()->step;
    std::int64_t start = rows.front()->start_ns, end = start;
    for (const TraceRow* row : rows) end = std::max(end, row->start_ns + row->duration_ns);
    const auto [first, last] = steps_.equal_range(step);
    for (auto known = first; known != last && rank_ == document_.rank; ++known) {
      start = std::min(start, known->second->start_ns);
      end = std::max(end, known->second->start_ns + known->second->duration_ns);
    }
    annotation("ProfilerStep#" + std::to_string(step), start, end);
    write_phases(rows);
    const auto found = activities_.find(step);
    const std::vector<const TraceActivity*> none;
    const std::vector<const TraceActivity*>& others =
        found == activities_.end() || rank_ != document_.rank ? none : found->second;
    rows_ = rows;
    find_launched(others);
    lane_of_.clear();
    std::size_t next = 0;  // lanes are given out in the order of the starts
    for (const TraceRow* row : rows) {
      for (; next < others.size() && others[next]->start_ns <= row->start_ns; ++next)
        write_activity(*others[next]);
      lane_of_.push_back(lane(row->stream, row->start_ns, row->duration_ns));
      write_kernel(*row, lane_of_.back());
    }
    for (; next < others.size(); ++next) write_activity(*others[next]);
    write_arrows();
    write_launch_arrows(others);
    if (!memory_written_) write_memory(rows);
  }

  void write_host(const HostSpan& span) {
    lanes_[{rank_, kHostLane}] = "host";
    const std::string name = span.kind == "step" ? "step " + std::to_string(span.step)
                             : span.name.empty() ? find_host_kind(span.kind)->title
                                                 : span.name;
    event(R"("ph":"X","cat":"host","name":{},"tid":{},"ts":{},"dur":{},"args":{{"kind":{},"step":{}}})",
          quoted(name), kHostLane, timestamp(span.start_ns), microseconds(span.duration_ns),
          quoted(span.kind), span.step);
  }

  // Stretches of equal phase, in time order; a phase that returns (micro-batches) gets several.
  void write_phases(Rows rows) {
    for (std::size_t i = 0; i < rows.size();) {
      std::size_t j = i;
      std::int64_t end = rows[i]->start_ns;
      while (j < rows.size() && info(*rows[j]).phase == info(*rows[i]).phase &&
             rows[j]->micro == rows[i]->micro) {
        end = std::max(end, rows[j]->start_ns + rows[j]->duration_ns);
        ++j;
      }
      // Streams may overlap; annotations share one lane and must not.
      if (j < rows.size()) end = std::min(end, rows[j]->start_ns);
      const std::string& phase = info(*rows[i]).phase;
      annotation(phase.empty() ? "kernels" : phase, rows[i]->start_ns, end);
      i = j;
    }
  }

  // Events of one lane must nest: what starts before the last one of its lane ended takes the next lane.
  // `stream` -1: the host's launches.
  int lane(std::int32_t stream, std::int64_t start_ns, std::int64_t duration_ns) {
    const int base = on_cpu_ ? kStepLane : stream < 0 ? kLaunchLane : kStreamLanes * (stream + 1);
    for (int i = 0; i < kStreamLanes - 1; ++i) {
      const std::pair<std::int32_t, int> key{rank_, base + i};
      const auto found = busy_until_.find(key);
      if (found != busy_until_.end() && found->second > start_ns) continue;
      busy_until_[key] = start_ns + duration_ns;
      if (!on_cpu_ || i > 0) lanes_[key] = stream_name(stream) + (i == 0 ? "" : fmt::format(" ({})", i));
      return base + i;
    }
    return base + kStreamLanes - 1;
  }

  void write_activity(const TraceActivity& a) {
    const char* category = a.kind == Activity::Kind::api    ? "cuda_runtime"
                           : a.kind == Activity::Kind::copy ? "gpu_memcpy"
                           : a.kind == Activity::Kind::fill ? "gpu_memset"
                                                            : "kernel";
    std::string args = fmt::format(R"("run_id":{},"step":{},"bytes":{})", document_.run_id, a.step, a.bytes);
    if (a.stream >= 0) args += fmt::format(R"(,"device":0,"context":0,"stream":{})", a.stream);
    if (const auto at = launched(a)) {
      const TraceRow* row = rows_[*at];
      args +=
          fmt::format(R"(,"correlation":{},"External id":{},"kernel":{},"plan_step":{},"micro":{})",
                      row->correlation, row->correlation, spelled_[index(*row)].kernel, a.plan_step, a.micro);
    }
    event(R"("ph":"X","cat":"{}","name":{},"tid":{},"ts":{},"dur":{},"args":{{{}}})", category,
          quoted(a.name), lane(a.stream, a.start_ns, a.duration_ns), timestamp(a.start_ns),
          microseconds(a.duration_ns), args);
  }

  // Of several executions of a kernel in a step, as other profilers saw them, each has its launch.
  void find_launched(const std::vector<const TraceActivity*>& activities) {
    launched_.clear();
    if (activities.empty()) return;
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::size_t>> executions;
    for (std::size_t i = 0; i < rows_.size(); ++i)
      executions[{rows_[i]->micro, rows_[i]->plan_step}].push_back(i);
    std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> launches;
    for (const TraceActivity* a : activities) {
      if (a->kind != Activity::Kind::api) continue;
      const std::pair key{a->micro, a->plan_step};
      const auto found = executions.find(key);
      if (found == executions.end()) continue;
      launched_[a] = found->second[std::min(launches[key]++, found->second.size() - 1)];
    }
  }

  // The row of this step that a launch started.
  std::optional<std::size_t> launched(const TraceActivity& a) const {
    const auto row = launched_.find(&a);
    return row == launched_.end() ? std::nullopt : std::optional(row->second);
  }

  void write_launch_arrows(const std::vector<const TraceActivity*>& activities) {
    for (const TraceActivity* a : activities)
      if (const auto at = launched(*a)) arrow("ac2g", kLaunchLane, a->start_ns, *at);
  }

  void arrow(std::string_view name, int lane, std::int64_t start_ns, std::size_t to) {
    ++arrows_;
    event(R"("ph":"s","id":{},"cat":"{}","name":"{}","tid":{},"ts":{})", arrows_, name, name, lane,
          timestamp(start_ns));
    event(R"("ph":"f","bp":"e","id":{},"cat":"{}","name":"{}","tid":{},"ts":{})", arrows_, name, name,
          lane_of_[to], timestamp(rows_[to]->start_ns));
  }

  void write_kernel(const TraceRow& row, int tid) {
    const Spelled& kernel = spelled_[index(row)];
    event(
        R"("ph":"X","cat":"{}","name":{},"tid":{},"ts":{},"dur":{},"args":{{"run_id":{},{},"bytes":{},"step":{},"micro":{},"plan_step":{},"External id":{},"correlation":{}{}{}}})",
        on_cpu_ ? "cpu_op" : "kernel", kernel.name, tid, timestamp(row.start_ns),
        microseconds(row.duration_ns), document_.run_id, kernel.arguments, row.bytes, row.step, row.micro,
        row.plan_step, row.correlation, row.correlation,
        on_cpu_ ? "" : fmt::format(R"(,"device":0,"context":0,"stream":{})", row.stream), kernel.loc);
  }

  // From the last forward kernel of an ONNX node to its first backward kernel, per micro-batch; one arrow per
  // pair of kernels. Steps mostly run the same kernels in the same order: their pairs are found once.
  void write_arrows() {
    const auto alike = [](const Launch& a, const TraceRow* b) {
      return a.micro == b->micro && a.plan_step == b->plan_step;
    };
    if (!std::equal(paired_.begin(), paired_.end(), rows_.begin(), rows_.end(), alike)) find_pairs();
    for (const auto& [from, to] : pairs_) arrow("fwdbwd", lane_of_[from], rows_[from]->start_ns, to);
  }

  void find_pairs() {
    paired_.clear();
    pairs_.clear();
    std::map<std::pair<std::int32_t, std::uint32_t>, std::size_t> forward,
        backward;  // by (micro-batch, ONNX node)
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      paired_.push_back({rows_[i]->micro, rows_[i]->plan_step});
      const KernelInfo& kernel = info(*rows_[i]);
      for (const std::uint32_t source : kernel.sources) {
        if (kernel.phase == "backward") {
          backward.try_emplace({rows_[i]->micro, source}, i);
        } else if (kernel.phase == "forward" || kernel.phase == "loss") {
          forward[{rows_[i]->micro, source}] = i;
        }
      }
    }
    std::set<std::pair<std::size_t, std::size_t>> done;
    for (const auto& [key, to] : backward) {
      const auto from = forward.find(key);
      if (from != forward.end() && done.insert({from->second, to}).second)
        pairs_.emplace_back(from->second, to);
    }
  }

  // Live arena bytes over the first recorded step; every step is alike.
  void write_memory(Rows rows) {
    memory_written_ = true;
    for (const TraceRow* row : rows) {
      const auto at = static_cast<std::size_t>(row->plan_step);
      if (row->plan_step < 0 || at >= document_.live_bytes.size()) continue;
      event(R"("ph":"C","name":"arena_bytes","tid":0,"ts":{},"args":{{"live":{}}})", timestamp(row->start_ns),
            document_.live_bytes[at]);
    }
  }

  struct Launch {
    std::int32_t micro = 0, plan_step = 0;
  };

  const TraceDocument& document_;
  Sink sink_;
  std::vector<Spelled> spelled_;  // by plan step; the last: unknown
  std::multimap<std::int64_t, const TraceStep*> steps_;
  std::map<std::int64_t, std::vector<const TraceActivity*>> activities_;  // by step, by start
  // Of one step, rows by index: the launched ones by their launch, their lanes.
  Rows rows_;
  std::map<const TraceActivity*, std::size_t> launched_;
  std::vector<int> lane_of_;
  std::vector<Launch> paired_;  // the order that `pairs_` was found for
  std::vector<std::pair<std::size_t, std::size_t>> pairs_;
  bool on_cpu_, first_ = true, memory_written_ = false;
  std::int64_t base_ns_ = 0;
  std::int64_t arrows_ = 0;
  std::int32_t rank_ = 0;  // that is written; its process is the next number
  std::map<std::pair<std::int32_t, int>, std::int64_t> busy_until_;  // by rank and lane
  std::map<std::pair<std::int32_t, int>, std::string> lanes_;
  fmt::memory_buffer out_;
};

// RFC 4180; a leading = + - @ would be a formula to a spreadsheet,
// names from files get an apostrophe in front.
std::string csv_field(const std::string& text) {
  std::string safe = escaped(text);
  if (!safe.empty() && std::strchr("=+-@", safe[0]) != nullptr) safe.insert(0, "'");
  if (safe.find_first_of(",\"\n") == std::string::npos) return safe;
  std::string quoted_text = "\"";
  for (const char c : safe) quoted_text += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted_text + "\"";
}

// Deflates what it is given, as a gzip file, into a sink.
class GzipStream {
 public:
  explicit GzipStream(Sink sink) : sink_(std::move(sink)) {
    constexpr int kGzipWindow = 15 + 16;  // 16: gzip header and trailer
    ready_ = deflateInit2(&stream_, 6, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) == Z_OK;
  }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;
  ~GzipStream() { deflateEnd(&stream_); }

  // The last piece of a file is `last`; it may be empty.
  Status write(std::string_view bytes, bool last) {
    if (!ready_) return Error{Errc::io, "out of memory"};
    constexpr std::size_t kChunkBytes = 1 << 20;  // avail_in is 32 bits wide
    do {
      const std::size_t size = std::min(kChunkBytes, bytes.size());
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      stream_.avail_in = static_cast<uInt>(size);
      bytes.remove_prefix(size);
      TRY(drain(last && bytes.empty() ? Z_FINISH : Z_NO_FLUSH));
    } while (!bytes.empty());
    return {};
  }

 private:
  Status drain(int flush) {
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(buffer_);
      stream_.avail_out = sizeof buffer_;
      const int code = deflate(&stream_, flush);
      if (code == Z_STREAM_ERROR) return Error{Errc::io, "compression failed"};
      TRY(sink_({buffer_, sizeof buffer_ - stream_.avail_out}));
    } while (stream_.avail_out == 0);
    return {};
  }

  Sink sink_;
  z_stream stream_{};
  bool ready_ = false;
  char buffer_[65536];
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::string chrome_trace_json(const TraceDocument& document) {
  std::string text;
  const Status written = Writer(document, [&](std::string_view piece) -> Status {
                           text += piece;
                           return {};
                         }).write();
  return written.ok() ? text : "";  // memory takes everything
}

std::string trace_csv(const TraceDocument& document) {
  std::vector<std::vector<std::int64_t>> durations(document.kernels.size());
  for (const TraceRow& row : document.rows) {
    if (row.plan_step >= 0 && static_cast<std::size_t>(row.plan_step) < durations.size()) {
      durations[static_cast<std::size_t>(row.plan_step)].push_back(row.duration_ns);
    }
  }
  std::string out =
      "plan_step,name,kernel,op,phase,scope,onnx_nodes,pass,flops,bytes,counts,total_ns,mean_ns,median_ns,"
      "min_ns,max_ns,std_ns\n";
  for (std::size_t i = 0; i < durations.size(); ++i) {
    std::vector<std::int64_t>& ns = durations[i];
    std::sort(ns.begin(), ns.end());
    double total = 0, squares = 0;
    for (const std::int64_t x : ns) total += static_cast<double>(x);
    const auto n = static_cast<double>(ns.size());
    const double mean = ns.empty() ? 0 : total / n;
    for (const std::int64_t x : ns)
      squares += (static_cast<double>(x) - mean) * (static_cast<double>(x) - mean);
    const std::int64_t median = ns.empty()           ? 0
                                : ns.size() % 2 == 1 ? ns[ns.size() / 2]
                                                     : (ns[ns.size() / 2 - 1] + ns[ns.size() / 2]) / 2;
    const KernelInfo& k = document.kernels[i];
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{:.0f},{:.1f},{},{},{},{:.1f}\n", k.plan_step,
                       csv_field(k.node), csv_field(k.kernel), csv_field(k.op), csv_field(k.phase),
                       csv_field(k.scope), csv_field(joined(k.onnx_nodes)), csv_field(last_pass(k.passes)),
                       json_number(k.flops), json_number(k.bytes_read + k.bytes_written), ns.size(), total,
                       mean, median, ns.empty() ? 0 : ns.front(), ns.empty() ? 0 : ns.back(),
                       ns.size() > 1 ? std::sqrt(squares / (n - 1)) : 0.0);
  }
  return out;
}

Status write_trace(const TraceDocument& document, const std::string& path) {
  const bool compress = ends_with(path, ".gz");
  const std::string name = compress ? path.substr(0, path.size() - 3) : path;
  AtomicFile file = TRY(AtomicFile::create(path));
  const Sink to_file = [&](std::string_view piece) { return file.write(piece); };
  std::optional<GzipStream> gzip;
  if (compress) gzip.emplace(to_file);
  const Sink sink = compress ? [&](std::string_view piece) { return gzip->write(piece, false); } : to_file;
  if (ends_with(name, ".csv"))
    TRY(sink(trace_csv(document)));
  else
    TRY(Writer(document, sink).write());
  if (gzip) TRY(gzip->write({}, true));
  return file.commit();
}

}  // namespace gradloom
