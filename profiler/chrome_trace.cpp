#include "profiler/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

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

// A JSON string, quotes included: foreign bytes escaped, invalid UTF-8 replaced.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

class Writer {
 public:
  Writer(const TraceDocument& document, const TraceSink& sink)
      : document_(document), sink_(sink), events_(document) {
    for (const TraceKernel& kernel : events_.kernels())
      kernels_.push_back({quoted(kernel.name), arguments(kernel.arguments)});
  }

  Status write() {
    write_head();
    TRY(events_.each([&](const TraceGroup& group) { return write_group(group); }));
    put("\n]}\n");
    return flush(0);
  }

 private:
  static constexpr std::size_t kFlushBytes = 1 << 20;

  // What is alike in all executions of a kernel is quoted once.
  struct Spelled {
    std::string name, arguments;
  };

  static std::string arguments(const std::vector<TraceArgument>& list) {
    std::string text;
    for (const TraceArgument& a : list) {
      text += fmt::format("{}\"{}\":", text.empty() ? "" : ",", a.name);
      if (const auto* integer = std::get_if<std::int64_t>(&a.value))
        text += fmt::format_int(*integer).c_str();
      else if (const auto* real = std::get_if<double>(&a.value))
        text += number_text(*real);
      else
        text += quoted(std::get<std::string>(a.value));
    }
    return text;
  }

  Status write_group(const TraceGroup& group) {
    process_ = group.process;
    if (!group.process_name.empty())
      event(R"("ph":"M","name":"process_name","tid":0,"args":{{"name":{}}})", quoted(group.process_name));
    for (const TraceLane& lane : group.lanes)
      event(R"("ph":"M","name":"thread_name","tid":{},"args":{{"name":{}}})", lane.lane, quoted(lane.name));
    for (const TraceSlice& slice : group.slices) write_slice(slice);
    for (const TraceArrow& arrow : group.arrows) {
      const TraceSlice &from = group.slices[arrow.from], &to = group.slices[arrow.to];
      event(R"("ph":"s","id":{},"cat":"{}","name":"{}","tid":{},"ts":{})", arrow.id, arrow.name, arrow.name,
            from.lane, Microseconds{from.start_ns});
      event(R"("ph":"f","bp":"e","id":{},"cat":"{}","name":"{}","tid":{},"ts":{})", arrow.id, arrow.name,
            arrow.name, to.lane, Microseconds{to.start_ns});
    }
    for (const TraceLiveBytes& live : group.live_bytes)
      event(R"("ph":"C","name":"arena_bytes","tid":0,"ts":{},"args":{{"live":{}}})", Microseconds{live.at_ns},
            live.bytes);
    return flush(kFlushBytes);
  }

  void write_slice(const TraceSlice& slice) {
    const Spelled* kernel = slice.kernel < 0 ? nullptr : &kernels_[static_cast<std::size_t>(slice.kernel)];
    const std::string own = arguments(slice.arguments);
    event(R"("ph":"X","cat":"{}","name":{},"tid":{},"ts":{},"dur":{}{}{}{}{}{})", slice.category,
          slice.name.empty() && kernel != nullptr ? kernel->name : quoted(slice.name), slice.lane,
          Microseconds{slice.start_ns}, Microseconds{slice.duration_ns},
          kernel != nullptr || !own.empty() ? R"(,"args":{)" : "",
          kernel != nullptr ? std::string_view(kernel->arguments) : std::string_view(),
          kernel != nullptr && !own.empty() ? "," : "", own, kernel != nullptr || !own.empty() ? "}" : "");
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
    fmt::format_to(fmt::appender(out_), R"("pid":{},)", process_);
    fmt::format_to(fmt::appender(out_), body, std::forward<Values>(values)...);
    out_.push_back('}');
  }

  void write_head() {
    put(fmt::format(
        "{{\"schemaVersion\":1,\"displayTimeUnit\":\"ms\",\"distributedInfo\":{{\"rank\":{},\"world_size\":{}}},",
        document_.rank, std::max<std::size_t>(document_.ranks.size(), 1)));
    put(fmt::format("\"deviceProperties\":[{{\"id\":0,\"name\":{}}}],", quoted(document_.device)));
    put(fmt::format("\"baseTimeNanoseconds\":{},\"gradloom\":{{\"run_id\":{},\"model\":{},\"environment\":{{",
                    events_.base_ns(), document_.run_id, quoted(document_.model)));
    bool first = true;
    for (const auto& [name, value] : document_.environment) {
      put(fmt::format("{}{}:{}", first ? "" : ",", quoted(name), quoted(value)));
      first = false;
    }
    put("}},\"traceEvents\":[");
  }

  const TraceDocument& document_;
  const TraceSink& sink_;
  TraceEvents events_;
  std::vector<Spelled> kernels_;
  bool first_ = true;
  std::int32_t process_ = 1;
  fmt::memory_buffer out_;
};

}  // namespace

Status write_chrome_trace(const TraceDocument& document, const TraceSink& sink) {
  return Writer(document, sink).write();
}

std::string chrome_trace_json(const TraceDocument& document) {
  std::string text;
  const TraceSink sink = [&](std::string_view piece) -> Status {
    text += piece;
    return {};
  };
  return Writer(document, sink).write().ok() ? text : "";  // memory takes everything
}

}  // namespace gradloom
