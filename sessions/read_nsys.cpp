#include "sessions/read_nsys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <set>

#include "profiler/import/chrome_events.h"
#include "profiler/import/kineto.h"
#include "sessions/session_file.h"

namespace gradloom {
namespace {

using Kind = ChromeEvent::Kind;

constexpr std::int64_t kStepsPerByte = 64, kLeastSteps = 1'000'000'000;  // of SQLite's machine

constexpr const char* kKernels = "CUPTI_ACTIVITY_KIND_KERNEL";
// CUDA graphs that nsys traces as a whole (--cuda-graph-trace=graph, its default): their kernels are nowhere else.
constexpr const char* kGraphs = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";

constexpr const char* kProcesses = "trace.processes";  // of ChromeEvents::facts: how many have kernels

// "step 12", "train_step_12", "Iteration #12": the number; nothing else is a step.
std::optional<std::int64_t> step_number(const std::string& text) {
  const std::size_t digits = text.find_last_not_of("0123456789");
  if (digits == std::string::npos || digits + 1 == text.size() || text.size() - digits > 16)
    return std::nullopt;
  std::string word;
  for (const char c : text.substr(0, digits + 1))
    if (std::isalpha(static_cast<unsigned char>(c)) != 0)
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  static const std::set<std::string> words{"step", "trainstep", "trainingstep",      "iteration",
                                           "iter", "trainiter", "trainingiteration", "profilerstep"};
  if (words.count(word) == 0) return std::nullopt;
  return std::stoll(text.substr(digits + 1));
}

class NsysReader {
 public:
  NsysReader(Database& database, ChromeEvents& out) : database_(database), out_(out) {}
  Status read(const ImportProgress& progress);

 private:
  struct Column {
    const char* name;
    const char* otherwise;  // SQL where the table has no such column
  };
  Result<bool> has(const std::string& table);
  // Of events only those with numbers as times.
  Result<std::string> select(const std::string& table, const std::vector<Column>& columns);
  Status read_strings();
  Status read_devices();
  Status choose_process();
  Status read_device_table(const std::string& table, Kind kind);
  Status read_runtime();
  Status read_ranges();
  Status add(ChromeEvent event, std::int64_t start_ns, std::int64_t end_ns);
  std::int32_t thread(std::int64_t global);
  std::int32_t text(std::int64_t id, const char* otherwise);
  void name_range(const std::string& text, ChromeEvent& event);

  Database& database_;
  ChromeEvents& out_;
  std::map<std::int64_t, std::int32_t> strings_;  // numbers of texts by StringIds
  std::map<std::int64_t, std::int32_t> threads_;
  std::optional<std::int64_t> process_;  // globalPid
};

// A table, and no view: what a view costs nobody knows.
Result<bool> NsysReader::has(const std::string& table) {
  Statement row =
      TRY(database_.prepare("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?"));
  row.bind(1, std::string_view(table));
  return TRY(row.row()) && row.integer(0) > 0;
}

Result<std::string> NsysReader::select(const std::string& table, const std::vector<Column>& columns) {
  std::set<std::string> known;
  Statement row = TRY(database_.prepare("SELECT name FROM pragma_table_info(?)"));
  row.bind(1, std::string_view(table));
  while (TRY(row.row())) known.insert(row.text(0));
  std::string list;
  for (const Column& column : columns)
    list += (list.empty() ? "" : ", ") + (known.count(column.name) != 0 ? fmt::format("\"{}\"", column.name)
                                                                        : std::string(column.otherwise));
  const bool times = known.count("start") != 0 && known.count("end") != 0;
  return "SELECT " + list + " FROM " + table +
         (times ? " WHERE typeof(start) = 'integer' AND typeof(\"end\") = 'integer'" : "");
}

Status NsysReader::read_strings() {
  if (!TRY(has("StringIds"))) return {};
  Statement row = TRY(database_.prepare("SELECT id, value FROM StringIds"));
  while (TRY(row.row())) {
    strings_[row.integer(0)] = out_.texts.add(row.text(1).substr(0, kMostImportName));
    if (out_.texts.bytes() > kMostImportNameBytes)
      return Error{Errc::limit, "its names take more than 256 MiB"};
    if (strings_.size() > kMostImportEvents) return Error{Errc::limit, "it has too many names"};
  }
  return {};
}

Status NsysReader::read_devices() {
  if (!TRY(has("TARGET_INFO_GPU"))) return {};
  Statement row = TRY(database_.prepare(TRY(select("TARGET_INFO_GPU", {{"id", "0"}, {"name", "''"}}))));
  while (TRY(row.row()) && out_.devices.size() < 64)
    out_.devices.emplace(row.integer(0), row.text(1).substr(0, 256));
  return {};
}

// A profile may be of several; correlations count in each of them.
Status NsysReader::choose_process() {
  std::map<std::int64_t, std::int64_t> kernels;
  for (const char* const table : {kKernels, kGraphs}) {
    if (!TRY(has(table))) continue;
    Statement row = TRY(database_.prepare(TRY(select(table, {{"globalPid", "NULL"}}))));
    while (TRY(row.row()))
      if (!row.is_null(0) && kernels.size() < 100'000) ++kernels[row.integer(0)];
  }
  for (const auto& [process, count] : kernels)
    if (!process_ || count > kernels[*process_]) process_ = process;
  if (kernels.size() > 1) out_.facts[kProcesses] = std::to_string(kernels.size());
  return {};
}

Status NsysReader::add(ChromeEvent event, std::int64_t start_ns, std::int64_t end_ns) {
  constexpr std::int64_t kFarthest = std::int64_t{1} << 61;
  if (start_ns < -kFarthest || end_ns > kFarthest || end_ns < start_ns || event.name == 0) {
    ++out_.unreadable;
    return {};
  }
  if (out_.events.size() >= kMostImportEvents)
    return Error{Errc::limit, fmt::format("it has more than {} events", kMostImportEvents)};
  event.start_ns = start_ns;
  event.duration_ns = std::min(end_ns - start_ns, kLongestImport);
  out_.events.push_back(event);
  return {};
}

std::int32_t NsysReader::thread(std::int64_t global) {
  const auto [at, fresh] = threads_.try_emplace(global, static_cast<std::int32_t>(out_.threads.size()));
  if (fresh) out_.threads.push_back(std::to_string(global));
  return at->second;
}

std::int32_t NsysReader::text(std::int64_t id, const char* otherwise) {
  const auto at = strings_.find(id);
  return at == strings_.end() || at->second == 0 ? out_.texts.add(otherwise) : at->second;
}

Status NsysReader::read_device_table(const std::string& table, Kind kind) {
  if (!TRY(has(table))) return {};
  Statement row = TRY(database_.prepare(TRY(select(table, {{"start", "0"},
                                                           {"end", "-1"},
                                                           {"deviceId", "0"},
                                                           {"streamId", "0"},
                                                           {"correlationId", "-1"},
                                                           {"globalPid", "NULL"},
                                                           {"demangledName", "-1"},
                                                           {"bytes", "0"},
                                                           {"copyKind", "0"},
                                                           {"graphId", "0"}}))));
  static constexpr const char* kCopies[] = {"Memcpy",      "Memcpy HtoD", "Memcpy DtoH", "Memcpy HtoA",
                                            "Memcpy AtoH", "Memcpy AtoA", "Memcpy AtoD", "Memcpy DtoA",
                                            "Memcpy DtoD", "Memcpy HtoH", "Memcpy PtoP"};
  const auto name_of = [&]() -> std::int32_t {
    if (table == kGraphs) return out_.texts.add("CUDA graph " + std::to_string(row.integer(9)));
    if (kind == Kind::kernel) return text(row.integer(6), "kernel");
    const std::int64_t copy = row.integer(8);
    return out_.texts.add(kind == Kind::fill ? "Memset"
                                             : kCopies[copy >= 0 && copy < std::ssize(kCopies) ? copy : 0]);
  };
  while (TRY(row.row())) {
    if (process_ && !row.is_null(5) && row.integer(5) != *process_) continue;
    ChromeEvent event;
    event.kind = kind;
    event.device = row.small(2);
    event.stream = row.small(3);
    event.correlation = row.integer(4);
    event.bytes = row.size(7);
    event.name = name_of();
    TRY(add(event, row.integer(0), row.integer(1)));
  }
  return {};
}

Status NsysReader::read_runtime() {
  if (!TRY(has("CUPTI_ACTIVITY_KIND_RUNTIME"))) return {};
  Statement row = TRY(database_.prepare(TRY(select(
      "CUPTI_ACTIVITY_KIND_RUNTIME",
      {{"start", "0"}, {"end", "-1"}, {"globalTid", "0"}, {"correlationId", "-1"}, {"nameId", "-1"}}))));
  while (TRY(row.row())) {
    const std::int64_t global = row.integer(2);
    if (process_ && (global >> kNsysThreadBits) != (*process_ >> kNsysThreadBits)) continue;
    ChromeEvent event;
    event.kind = Kind::runtime;
    event.thread = thread(global);
    event.correlation = row.integer(3);
    event.name = text(row.integer(4), "CUDA");
    TRY(add(event, row.integer(0), row.integer(1)));
  }
  return {};
}

// emit_nvtx: "aten::addmm, seq = 12, op_id = 345, sizes = [[32, 64]]", where autograd is off "aten::add_, op_id = 346"; the number
// of op_id is another each time.
void NsysReader::name_range(const std::string& text, ChromeEvent& event) {
  if (const auto step = step_number(text)) {
    event.name = out_.texts.add("ProfilerStep#" + std::to_string(*step));
    return;
  }
  const std::size_t sequence = text.find(", seq = "), number = text.find(", op_id = "),
                    sizes = text.find(", sizes = "), end = std::min({sequence, number, sizes});
  const std::string name = text.substr(0, end);
  if (end != std::string::npos || name.find("::") != std::string::npos) {
    event.kind = Kind::op;
    const std::string digits = sequence == std::string::npos ? "" : text.substr(sequence + 8, 18);
    if (!digits.empty() && digits[0] >= '0' && digits[0] <= '9') event.sequence = std::atoll(digits.c_str());
  }
  event.name = out_.texts.add(name);
}

Status NsysReader::read_ranges() {
  if (!TRY(has("NVTX_EVENTS"))) return {};
  Statement row = TRY(database_.prepare(TRY(select("NVTX_EVENTS", {{"start", "0"},
                                                                   {"end", "NULL"},
                                                                   {"globalTid", "0"},
                                                                   {"text", "NULL"},
                                                                   {"textId", "NULL"},
                                                                   {"eventType", "59"}}))));
  constexpr std::int64_t kPushed = 59;  // of one thread, inside one another
  while (TRY(row.row())) {
    const std::int64_t global = row.integer(2);
    if (row.is_null(1) || row.integer(5) != kPushed) continue;
    if (process_ && (global >> kNsysThreadBits) != (*process_ >> kNsysThreadBits)) continue;
    ChromeEvent event;
    event.kind = Kind::annotation;
    event.thread = thread(global);
    name_range(row.is_null(3) ? out_.texts[text(row.integer(4), "")] : row.text(3).substr(0, kMostImportName),
               event);
    TRY(add(event, row.integer(0), row.integer(1)));
    if (out_.texts.bytes() > kMostImportNameBytes)
      return Error{Errc::limit, "its names take more than 256 MiB"};
  }
  return {};
}

Status NsysReader::read(const ImportProgress& progress) {
  if (!TRY(has(kKernels)) && !TRY(has(kGraphs)))
    return Error{Errc::bad_input,
                 "it is an SQLite file without table CUPTI_ACTIVITY_KIND_KERNEL: no export of "
                 "Nsight Systems with kernels of a GPU"};
  const auto done = [&](double fraction) {
    if (progress) progress(fraction);
  };
  out_.origin = "nsys";
  TRY(read_strings());
  TRY(read_devices());
  TRY(choose_process());
  done(0.2);
  TRY(read_device_table(kKernels, Kind::kernel));
  TRY(read_device_table(kGraphs, Kind::kernel));
  done(0.5);
  TRY(read_device_table("CUPTI_ACTIVITY_KIND_MEMCPY", Kind::copy));
  TRY(read_device_table("CUPTI_ACTIVITY_KIND_MEMSET", Kind::fill));
  TRY(read_runtime());
  done(0.8);
  TRY(read_ranges());
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const ChromeEvent& e : out_.events) first = std::min(first, e.start_ns);
  for (ChromeEvent& e : out_.events) e.start_ns -= first;
  return {};
}

}  // namespace

bool is_sqlite_file(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return false;
  std::ifstream in(path, std::ios::binary);
  char head[16] = {};
  in.read(head, sizeof head);
  return in.gcount() == sizeof head &&
         std::string_view(head, sizeof head) == std::string_view("SQLite format 3\0", 16);
}

Result<ImportedTrace> read_nsys_export(const std::string& path, const ImportProgress& progress) {
  Database database = TRY(open_foreign_database(path));
  const StepLimit limit(database, std::max(kLeastSteps, kStepsPerByte * stamp_of(path).bytes()));
  ChromeEvents events;
  const Status read = NsysReader(database, events).read(progress);
  if (!read.ok()) return with_context(read.error(), path);
  auto trace = import_kineto(events);
  if (!trace) return with_context(trace.error(), path);
  if (const auto several = events.facts.find(kProcesses); several != events.facts.end())
    trace->notes.push_back("its kernels are of " + several->second +
                           " processes: those of the one with the most are taken");
  return trace;
}

}  // namespace gradloom
