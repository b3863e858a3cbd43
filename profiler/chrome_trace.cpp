// Chrome trace JSON in Kineto's dialect, CSV, gzip. The format is described in chrome_trace.h.
#include "profiler/chrome_trace.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr int kStepLane = 0;       // tid of steps, phases and, on the CPU, kernels
constexpr int kLaunchLane = 1;     // tid of the host's launches on other devices
constexpr int kStreamLanes = 100;  // tids of other devices: 100 * (stream + 1) + lane

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

class Writer {
 public:
  explicit Writer(const TraceDocument& document) : document_(document), on_cpu_(document.device == "cpu") {
    base_ns_ = document.rows.empty() ? 0 : document.rows.front().start_ns;
    for (const TraceRow& row : document.rows) base_ns_ = std::min(base_ns_, row.start_ns);
    for (const TraceActivity& activity : document.activities)
      base_ns_ = std::min(base_ns_, activity.start_ns);
    for (const TraceStep& step : document.steps) {
      base_ns_ = std::min(base_ns_, step.start_ns);
      steps_.emplace(step.step, &step);
    }
  }

  std::string write() {
    write_head();
    std::map<std::int64_t, std::vector<const TraceRow*>> by_step;
    for (const TraceRow& row : document_.rows) by_step[row.step].push_back(&row);
    for (const TraceActivity& activity : document_.activities)
      activities_[activity.step].push_back(&activity);
    const auto earlier = [](const auto* a, const auto* b) { return a->start_ns < b->start_ns; };
    for (auto& [step, list] : activities_) std::stable_sort(list.begin(), list.end(), earlier);
    for (auto& [step, rows] : by_step) {
      std::stable_sort(rows.begin(), rows.end(), earlier);
      write_step(step, rows);
    }
    for (const auto& [lane, name] : lanes_) {
      event(fmt::format(R"("ph":"M","name":"thread_name","pid":1,"tid":{},"args":{{"name":{}}})", lane,
                        quoted(name)));
    }
    out_ += "\n]}\n";
    return std::move(out_);
  }

 private:
  void event(const std::string& body) {
    out_ += first_ ? "\n{" : ",\n{";
    first_ = false;
    out_ += body;
    out_ += "}";
  }
  // Nanoseconds since the base as microseconds with three decimals: exact, and short enough for a double.
  std::string microseconds(std::int64_t ns) const {
    return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
  }
  std::string timestamp(std::int64_t ns) const { return microseconds(ns - base_ns_); }

  void write_head() {
    out_ = "{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"distributedInfo\":{\"rank\":0},";
    out_ += fmt::format("\"deviceProperties\":[{{\"id\":0,\"name\":{}}}],", quoted(document_.device));
    out_ +=
        fmt::format("\"baseTimeNanoseconds\":{},\"gradloom\":{{\"run_id\":{},\"model\":{},\"environment\":{{",
                    base_ns_, document_.run_id, quoted(document_.model));
    bool first = true;
    for (const auto& [name, value] : document_.environment) {
      out_ += fmt::format("{}{}:{}", first ? "" : ",", quoted(name), quoted(value));
      first = false;
    }
    out_ += "}},\"traceEvents\":[";
    event(fmt::format(R"("ph":"M","name":"process_name","pid":1,"tid":0,"args":{{"name":{}}})",
                      quoted("gradloom " + document_.device)));
    lanes_[kStepLane] = "training step";
  }

  const KernelInfo& info(const TraceRow& row) const {
    static const KernelInfo unknown;
    const auto at = static_cast<std::size_t>(row.plan_step);
    return row.plan_step >= 0 && at < document_.kernels.size() ? document_.kernels[at] : unknown;
  }

  void annotation(const std::string& name, std::int64_t start_ns, std::int64_t end_ns) {
    event(fmt::format(R"("ph":"X","cat":"user_annotation","name":{},"pid":1,"tid":{},"ts":{},"dur":{})",
                      quoted(name), kStepLane, timestamp(start_ns), microseconds(end_ns - start_ns)));
  }

  void write_step(std::int64_t step, const std::vector<const TraceRow*>& rows) {
    std::int64_t start = rows.front()->start_ns, end = start;
    for (const TraceRow* row : rows) end = std::max(end, row->start_ns + row->duration_ns);
    const auto [first, last] = steps_.equal_range(step);
    for (auto known = first; known != last; ++known) {
      start = std::min(start, known->second->start_ns);
      end = std::max(end, known->second->start_ns + known->second->duration_ns);
    }
    annotation("ProfilerStep#" + std::to_string(step), start, end);
    write_phases(rows);
    std::map<const TraceRow*, int> lane_of;
    const std::vector<const TraceActivity*>& others = activities_[step];
    kernels_.clear();
    for (const TraceRow* row : rows) kernels_.try_emplace({row->micro, row->plan_step}, row);
    std::size_t next = 0;  // lanes are given out in the order of the starts
    for (const TraceRow* row : rows) {
      for (; next < others.size() && others[next]->start_ns <= row->start_ns; ++next)
        write_activity(*others[next]);
      lane_of[row] = lane(row->stream, row->start_ns, row->duration_ns);
      write_kernel(*row, lane_of[row]);
    }
    for (; next < others.size(); ++next) write_activity(*others[next]);
    write_arrows(rows, lane_of);
    write_launch_arrows(others, lane_of);
    if (!memory_written_) write_memory(rows);
  }

  // Stretches of equal phase, in time order; a phase that returns (micro-batches) gets several.
  void write_phases(const std::vector<const TraceRow*>& rows) {
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
      annotation(info(*rows[i]).phase.empty() ? "kernels" : info(*rows[i]).phase, rows[i]->start_ns, end);
      i = j;
    }
  }

  // Events of one lane must nest: what starts before the last one of its lane ended takes the next lane.
  // `stream` -1: the host's launches.
  int lane(std::int32_t stream, std::int64_t start_ns, std::int64_t duration_ns) {
    const int base = on_cpu_ ? kStepLane : stream < 0 ? kLaunchLane : kStreamLanes * (stream + 1);
    for (int i = 0; i < kStreamLanes - 1; ++i) {
      const auto found = busy_until_.find(base + i);
      if (found != busy_until_.end() && found->second > start_ns) continue;
      busy_until_[base + i] = start_ns + duration_ns;
      if (!on_cpu_ || i > 0) lanes_[base + i] = stream_name(stream) + (i == 0 ? "" : fmt::format(" ({})", i));
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
    if (const TraceRow* row = launched(a)) {
      args +=
          fmt::format(R"(,"correlation":{},"External id":{},"kernel":{},"plan_step":{},"micro":{})",
                      row->correlation, row->correlation, quoted(info(*row).kernel), a.plan_step, a.micro);
    }
    event(fmt::format(R"("ph":"X","cat":"{}","name":{},"pid":1,"tid":{},"ts":{},"dur":{},"args":{{{}}})",
                      category, quoted(a.name), lane(a.stream, a.start_ns, a.duration_ns),
                      timestamp(a.start_ns), microseconds(a.duration_ns), args));
  }

  // The kernel that a launch of this step started, or null.
  const TraceRow* launched(const TraceActivity& a) const {
    if (a.kind != Activity::Kind::api) return nullptr;
    const auto row = kernels_.find({a.micro, a.plan_step});
    return row == kernels_.end() ? nullptr : row->second;
  }

  void write_launch_arrows(const std::vector<const TraceActivity*>& activities,
                           const std::map<const TraceRow*, int>& lane_of) {
    for (const TraceActivity* a : activities) {
      const TraceRow* row = launched(*a);
      if (row == nullptr) continue;
      ++arrows_;
      event(fmt::format(R"("ph":"s","id":{},"cat":"ac2g","name":"ac2g","pid":1,"tid":{},"ts":{})", arrows_,
                        kLaunchLane, timestamp(a->start_ns)));
      event(fmt::format(R"("ph":"f","bp":"e","id":{},"cat":"ac2g","name":"ac2g","pid":1,"tid":{},"ts":{})",
                        arrows_, lane_of.at(row), timestamp(row->start_ns)));
    }
  }

  void write_kernel(const TraceRow& row, int tid) {
    const KernelInfo& kernel = info(row);
    std::string args = fmt::format(
        R"("run_id":{},"kernel":{},"node":{},"onnx_node":{},"scope":{},"phase":{},"pass_chain":{},"flops":{},"bytes":{},"step":{},"micro":{},"plan_step":{})",
        document_.run_id, quoted(kernel.kernel), quoted(kernel.node), quoted(joined(kernel.onnx_nodes)),
        quoted(kernel.scope), quoted(kernel.phase), quoted(kernel.passes), json_number(kernel.flops),
        row.bytes, row.step, row.micro, row.plan_step);
    args += fmt::format(R"(,"External id":{},"correlation":{})", row.correlation, row.correlation);
    if (!on_cpu_) args += fmt::format(R"(,"device":0,"context":0,"stream":{})", row.stream);
    if (!kernel.sources.empty())
      args += fmt::format(R"(,"loc":{})", quoted(document_.model + ":" + std::to_string(kernel.sources[0])));
    event(fmt::format(R"("ph":"X","cat":"{}","name":{},"pid":1,"tid":{},"ts":{},"dur":{},"args":{{{}}})",
                      on_cpu_ ? "cpu_op" : "kernel",
                      quoted(on_cpu_ && !kernel.op.empty() ? kernel.op : kernel.kernel), tid,
                      timestamp(row.start_ns), microseconds(row.duration_ns), args));
  }

  // From the last forward kernel of an ONNX node to its first backward kernel, per micro-batch; one arrow per
  // pair of kernels.
  void write_arrows(const std::vector<const TraceRow*>& rows, const std::map<const TraceRow*, int>& lane_of) {
    std::map<std::pair<std::int32_t, std::uint32_t>, const TraceRow*> forward,
        backward;  // by (micro-batch, ONNX node)
    for (const TraceRow* row : rows) {
      const KernelInfo& kernel = info(*row);
      for (const std::uint32_t source : kernel.sources) {
        if (kernel.phase == "backward") {
          backward.try_emplace({row->micro, source}, row);
        } else if (kernel.phase == "forward" || kernel.phase == "loss") {
          forward[{row->micro, source}] = row;
        }
      }
    }
    std::set<std::pair<const TraceRow*, const TraceRow*>> done;
    for (const auto& [key, to] : backward) {
      const auto from = forward.find(key);
      if (from == forward.end() || !done.insert({from->second, to}).second) continue;
      ++arrows_;
      event(fmt::format(R"("ph":"s","id":{},"cat":"fwdbwd","name":"fwdbwd","pid":1,"tid":{},"ts":{})",
                        arrows_, lane_of.at(from->second), timestamp(from->second->start_ns)));
      event(
          fmt::format(R"("ph":"f","bp":"e","id":{},"cat":"fwdbwd","name":"fwdbwd","pid":1,"tid":{},"ts":{})",
                      arrows_, lane_of.at(to), timestamp(to->start_ns)));
    }
  }

  // Live arena bytes over the first recorded step; every step is alike.
  void write_memory(const std::vector<const TraceRow*>& rows) {
    memory_written_ = true;
    for (const TraceRow* row : rows) {
      const auto at = static_cast<std::size_t>(row->plan_step);
      if (row->plan_step < 0 || at >= document_.live_bytes.size()) continue;
      event(fmt::format(R"("ph":"C","name":"arena_bytes","pid":1,"tid":0,"ts":{},"args":{{"live":{}}})",
                        timestamp(row->start_ns), document_.live_bytes[at]));
    }
  }

  const TraceDocument& document_;
  std::multimap<std::int64_t, const TraceStep*> steps_;
  std::map<std::int64_t, std::vector<const TraceActivity*>> activities_;  // by step, by start
  std::map<std::pair<std::int32_t, std::int32_t>, const TraceRow*>
      kernels_;  // of one step, by micro-batch and plan step
  bool on_cpu_, first_ = true, memory_written_ = false;
  std::int64_t base_ns_ = 0;
  std::int64_t arrows_ = 0;
  std::map<int, std::int64_t> busy_until_;
  std::map<int, std::string> lanes_;
  std::string out_;
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

Result<std::string> gzip(const std::string& bytes) {
  z_stream stream{};
  constexpr int kGzipWindow = 15 + 16;  // 16: gzip header and trailer
  if (deflateInit2(&stream, 6, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    return Error{Errc::io, "out of memory"};
  std::string out;
  std::size_t done = 0;
  int code = Z_OK;
  do {
    constexpr std::size_t kChunk = 1 << 20;  // avail_in is 32 bits wide
    if (stream.avail_in == 0) {
      const std::size_t size = std::min(kChunk, bytes.size() - done);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + done));
      stream.avail_in = static_cast<uInt>(size);
      done += size;
    }
    char buffer[65536];
    stream.next_out = reinterpret_cast<Bytef*>(buffer);
    stream.avail_out = sizeof buffer;
    code = deflate(&stream, done == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
    out.append(buffer, sizeof buffer - stream.avail_out);
  } while (code == Z_OK || code == Z_BUF_ERROR);
  deflateEnd(&stream);
  if (code != Z_STREAM_END) return Error{Errc::io, "compression failed"};
  return out;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::string chrome_trace_json(const TraceDocument& document) { return Writer(document).write(); }

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
  std::string bytes = ends_with(name, ".csv") ? trace_csv(document) : chrome_trace_json(document);
  if (compress) bytes = TRY(gzip(bytes));
  return atomic_write_file(path, bytes);
}

}  // namespace gradloom
