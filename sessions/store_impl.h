// What store.cpp (opening, digests, reading) and run_writer.cpp share. Private to sessions/.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sessions/session_file.h"
#include "sessions/sqlite.h"
#include "sessions/store.h"

namespace gradloom {

// Tables of a run in the order of its digest. Rows of a table are hashed in the order they were written
// (rowid). A new version of the format appends.
constexpr const char* kAnnotation = "annotation";  // the only one that others than the run's writer change
constexpr std::array<const char*, 24> kRunTables = {
    "environment", "source_node",   "graph_node",       "node_source",
    "plan",        "plan_step",     "buffer",           "pass",
    "pass_match",  "loss",          "kernel_sample",    "activity",
    "loss_scale",  "evaluation",    "pass_instance",    "host_span",
    "rank",        "rank_sample",   "exchange",         "implementation",
    kAnnotation,   "exchange_step", "rank_environment", "thread_sample"};
constexpr std::array<std::size_t, kSchemaVersion> kRunTablesOfVersion = {
    11, 12, 13, 13, 14, 15, 16, 20, 21, 21, 23, 24};  // of version i + 1
// Those that a run's summary is computed from; lists of runs check only these.
constexpr std::array<const char*, 4> kSummaryTables = {"plan", "plan_step", "loss", kAnnotation};

// More of these are a limit of their own (Errc::limit), because what is made of them
// grows faster than the file.
constexpr std::size_t kMaxListedRuns = 20'000;
constexpr std::size_t kMaxNameBytes = 256 << 20;  // names of nodes and ONNX nodes, each once per kernel

struct Store::Impl {
  Impl(std::string name, StoreMode how, SessionFile file)
      : path(std::move(name)),
        mode(how),
        database(std::move(file.database)),
        unlocked(file.unlocked),
        stamp(file.stamp) {}
  std::string path;
  StoreMode mode;
  Database database;
  bool unlocked;  // see SessionFile
  FileStamp stamp;
  dev_t device = 0;
  ino_t inode = 0;

  Status file_in_place() const;  // the file we write is still the one at `path`
  Error error(Error inner) const { return with_context(std::move(inner), path); }
  bool outdated() const { return unlocked && stamp_of(path) != stamp; }
  std::int64_t allowed_steps() const;  // of SQLite, in one reading
  Status renew(bool again);            // a reader opens the file again when it is outdated, or in any case

  // Runs `body`, which reads, on one snapshot of the file; names the file in errors.
  template <class Body>
  auto on_snapshot(Body body) -> decltype(body()) {
    constexpr int kAttempts = 5;
    for (int attempt = 1;; ++attempt) {
      const Status ready = renew(attempt > 1);
      if (!ready.ok()) return ready.error();
      const auto once = [&]() -> decltype(body()) {
        const StepLimit limit(database, allowed_steps());
        const Transaction snapshot = TRY(Transaction::begin(database, false));
        return body();
      };
      auto result = once();
      // Somebody began to write a file that was read without locks, or wrote its log for the first time.
      const bool again = mode == StoreMode::read &&
                         (outdated() || (!result.ok() && result.error().code == Errc::io && !unlocked));
      if (again && attempt < kAttempts) continue;
      if (again && result.ok()) return error({Errc::io, "it changes while it is read"});
      if (!result.ok()) return error(result.error());
      return result;
    }
  }

  // Hash of the run's own row, without its digest column.
  Result<std::string> hash_run_row(std::int64_t run);
  // Readers find rows through indices and SQLite takes indexed columns from there;
  // Access::scan reads the table itself.
  enum class Access : std::uint8_t { index, scan };
  Result<std::string> hash_table(const std::string& table, std::int64_t run, Access access);
  // Empty when what is read matches the stored digest, else the name of the first damaged table.
  Result<std::string> damaged_table(std::int64_t run, bool summary_only, Access access = Access::index);

  // As RunSummary's: times of kernels leave the first steps out where there are more.
  Result<std::int64_t> last_warmup_step(std::int64_t run);
  Result<RunSummary> read_summary(std::int64_t run);
  Status read_steps(std::int64_t run, std::int64_t after, std::vector<StepRow>& steps);
  Status read_loss_scales(std::int64_t run, std::int64_t after, std::vector<StepRow>& steps);
  Status read_evaluations(std::int64_t run, std::vector<EvaluationRow>& evaluations);
  Status read_kernel_infos(std::int64_t run, std::vector<KernelInfo>& kernels);
  Status read_implementations(std::int64_t run, std::vector<KernelInfo>& kernels);
  Status read_kernels(std::int64_t run, std::int64_t threads, std::vector<KernelRow>& kernels);
  Status read_source_ops(std::int64_t run, std::vector<std::string>& ops);
  Status read_instances(std::int64_t run, std::vector<PassRow>& passes);
  Status read_passes(std::int64_t run, std::vector<PassRow>& passes);
  // Lifetimes must lie within the plan's steps.
  Status read_buffers(std::int64_t run, std::int64_t plan_steps, std::vector<BufferRow>& buffers);
  Status read_annotation(RunSummary& summary);
  // Of what run_edits.cpp changes in the run: its row and its annotation. Other tables keep the hashes they have.
  Status renew_digest(std::int64_t run);
  Status apply(const RunEdit& edit, RunChange& change);
  Status remove_run(std::int64_t run, RunChange& change);
  Status read_environment(std::int64_t run, std::map<std::string, std::string>& environment);
  Result<std::int64_t> version();  // of the file
  Status read_activities(std::int64_t run, std::vector<TraceActivity>& activities);
  // Of a recorded loop, step after step; false from `take` ends the reading.
  Status read_host_spans(std::int64_t run, const std::function<bool(std::vector<HostSpan>&)>& take);
  Status read_loop(std::int64_t run, const std::vector<StepRow>& steps, const std::vector<KernelRow>& kernels,
                   std::optional<LoopShares>& loop);
  Status read_host_steps(std::int64_t run, std::size_t max_spans, TraceDocument& document);
  Status read_samples(std::int64_t run, std::size_t max_executions, TraceDocument& document);
  // Of the steps that the document shows, as far as there is room.
  Status read_threads(std::int64_t run, std::size_t max_rows, TraceDocument& document);
  Status read_busy_threads(std::int64_t run, std::int64_t threads, std::vector<KernelRow>& kernels);
  Status read_ranks(std::int64_t run, std::vector<RankRow>& ranks);
  Status read_rank_environments(std::int64_t run, std::vector<RankRow>& ranks);
  // By plan step: whether its kernels stand still while ranks exchange.
  Result<std::vector<bool>> read_exchange_steps(std::int64_t run, const std::vector<KernelRow>& kernels);
  Status read_rank_samples(
      std::int64_t run, std::size_t ranks,
      const std::function<void(std::int64_t step, std::int64_t rank, const KernelSample&)>& take);
  Status read_exchanges(std::int64_t run, std::size_t ranks,
                        const std::function<void(std::int64_t step, const ExchangeRow&)>& take);
  Status read_rank_shares(std::int64_t run, const std::vector<KernelRow>& kernels,
                          std::vector<RankShares>& shares);
  Status read_rank_steps(std::int64_t run, const std::vector<RankRow>& ranks, std::size_t max_executions,
                         TraceDocument& document);
  Status read_streams(std::int64_t run, const std::vector<KernelRow>& kernels,
                      std::vector<StreamRow>& streams);
};

// Clocks begin anywhere; 2^60 ns are 36 years.
inline std::int64_t clock_ns(const Statement& row, int column) {
  constexpr std::int64_t kFarthest = std::int64_t{1} << 60;
  return std::clamp(row.integer(column), -kFarthest, kFarthest);
}

inline Error damaged(std::int64_t run, const std::string& table) {
  return {Errc::bad_input, "run " + std::to_string(run) + " is damaged (table " + table + ")"};
}

// Ids within a run count from 0, without gaps and without repetition.
inline Error misnumbered(std::int64_t run, const std::string& table) {
  return {Errc::bad_input, "run " + std::to_string(run) + " is damaged (ids of table " + table +
                               " do not count from 0 one by one)"};
}

std::int64_t integer_median(std::vector<std::int64_t>& values);  // sorts them; 0 of none

// "boot id:process id:start time" of this process, and whether the process of such a text still runs.
std::string this_process();
bool process_alive(const std::string& process);

}  // namespace gradloom
