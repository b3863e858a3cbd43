#include "profiler/trace_files.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "engine/base/csv.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "profiler/chrome_trace.h"
#include "profiler/perfetto_trace.h"

namespace gradloom {
namespace {

// Deflates what it is given, as a gzip file, into a sink.
class GzipStream {
 public:
  explicit GzipStream(TraceSink sink) : sink_(std::move(sink)) {
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

  TraceSink sink_;
  z_stream stream_{};
  bool ready_ = false;
  char buffer_[65536];
};

std::string without_gz(const std::string& path) {
  return path.ends_with(".gz") ? path.substr(0, path.size() - 3) : path;
}

std::string finite_text(double value) { return std::isfinite(value) ? number_text(value) : "0"; }

}  // namespace

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
                       csv_field(k.scope), csv_field(fmt::to_string(fmt::join(k.onnx_nodes, " "))),
                       csv_field(last_pass(k.passes)), finite_text(k.flops),
                       finite_text(k.bytes_read + k.bytes_written), ns.size(), total, mean, median,
                       ns.empty() ? 0 : ns.front(), ns.empty() ? 0 : ns.back(),
                       ns.size() > 1 ? std::sqrt(squares / (n - 1)) : 0.0);
  }
  return out;
}

TraceFormat trace_format_of(const std::string& path) {
  const std::string name = without_gz(path);
  if (name.ends_with(".csv")) return TraceFormat::csv;
  if (name.ends_with(".pftrace") || name.ends_with(".perfetto-trace")) return TraceFormat::perfetto;
  return TraceFormat::chrome;
}

Status write_trace(const TraceDocument& document, TraceFormat format, const std::string& path) {
  AtomicFile file = TRY(AtomicFile::create(path));
  const TraceSink to_file = [&](std::string_view piece) { return file.write(piece); };
  std::optional<GzipStream> gzip;
  if (path.ends_with(".gz")) gzip.emplace(to_file);
  const TraceSink sink = gzip ? [&](std::string_view piece) { return gzip->write(piece, false); } : to_file;
  switch (format) {
    case TraceFormat::chrome: TRY(write_chrome_trace(document, sink)); break;
    case TraceFormat::perfetto: TRY(write_perfetto_trace(document, sink)); break;
    case TraceFormat::csv: TRY(sink(trace_csv(document))); break;
  }
  if (gzip) TRY(gzip->write({}, true));
  return file.commit();
}

}  // namespace gradloom
