// Stores: digests, comparisons, tuning. Files are opened in session_file.cpp, runs read in store_read.cpp.
#include "sessions/store.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "engine/base/boot_id.h"
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "sessions/store_impl.h"

namespace gradloom {
namespace {

// Field 22 of /proc/<pid>/stat: clock ticks between boot and the start of the process.
// Empty when there is no such process.
std::string start_time(const std::string& pid) {
  const Result<std::string> text = read_file_limited("/proc/" + pid + "/stat", 1 << 16);
  if (!text.ok()) return "";
  const std::size_t name_end = text->rfind(')');  // the name may hold spaces
  if (name_end == std::string::npos) return "";
  std::istringstream fields(text->substr(name_end + 1));
  std::string field, state;
  fields >> state;
  if (state == "Z" || state == "X") return "";  // dead, not yet waited for
  for (int i = 4; i <= 22; ++i) fields >> field;
  return field;
}

}  // namespace

std::string this_process() {
  const std::string pid = std::to_string(::getpid());
  return boot_id() + ":" + pid + ":" + start_time(pid);
}

bool process_alive(const std::string& process) {
  const std::size_t a = process.find(':'), b = process.rfind(':');
  if (a == std::string::npos || a == b || process.substr(0, a) != boot_id()) return false;
  const std::string pid = process.substr(a + 1, b - a - 1);
  if (pid.empty() || pid.find_first_not_of("0123456789") != std::string::npos) return false;
  const std::string started = start_time(pid);
  return !started.empty() && started == process.substr(b + 1);
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Store::~Store() {
  // SQLite does this for the last one that closes the file, unless that is a reader, which writes nothing:
  // the file alone shall be the whole session.
  if (impl_->mode != StoreMode::write) return;
  sqlite3_busy_timeout(impl_->database.handle(), 1000);
  (void)impl_->database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

const std::string& Store::path() const { return impl_->path; }

Result<std::int64_t> Store::version() {
  return impl_->on_snapshot([&] { return impl_->version(); });
}

Result<std::unique_ptr<Store>> Store::open(const std::string& path, StoreMode mode) {
  if (path.empty() || path.find('\0') != std::string::npos)
    return Error{Errc::usage, "the session needs a file name"};
  auto impl = std::make_unique<Impl>(path, mode, TRY(open_session_file(path, mode)));
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    impl->device = info.st_dev;
    impl->inode = info.st_ino;
  }
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

Status Store::Impl::renew(bool again) {
  if (mode != StoreMode::read || (!again && !outdated())) return {};
  SessionFile fresh = TRY(open_session_file(path, mode));
  database = std::move(fresh.database);
  unlocked = fresh.unlocked;
  stamp = fresh.stamp;
  return {};
}

std::int64_t Store::Impl::allowed_steps() const {
  // A whole reading takes 2 to 4 steps per byte of the file. Pages that are children of many others make a
  // file of few bytes endless; whether any are is looked at in small files alone (session_file.cpp).
  constexpr std::int64_t kStepsPerByte = 16, kAnyway = 20'000'000;
  const FileStamp now = stamp_of(path);
  return kAnyway + kStepsPerByte * now.bytes();
}

Status Store::Impl::file_in_place() const {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || info.st_dev != device || info.st_ino != inode) {
    return Error{Errc::io, "the session file was removed or replaced while it was written"};
  }
  return {};
}

Result<std::string> Store::Impl::hash_run_row(std::int64_t run) {
  Statement row = TRY(database.prepare("SELECT * FROM run WHERE id = ?"));
  row.bind(1, run);
  if (!TRY(row.row())) return Error{Errc::bad_input, fmt::format("no run {}", run)};
  RowHash hash;
  for (int i = 0; i + 1 < row.columns(); ++i) hash.add(row.cell(i));  // the last column is the digest
  return hash.hex();
}

Result<std::string> Store::Impl::hash_table(const std::string& table, std::int64_t run, Access access) {
  const char* how = access == Access::scan ? " NOT INDEXED" : "";
  Statement rows = TRY(database.prepare("SELECT * FROM " + table + how + " WHERE run = ? ORDER BY rowid"));
  rows.bind(1, run);
  RowHash hash;
  while (TRY(rows.row())) {
    for (int i = 0; i < rows.columns(); ++i) hash.add(rows.cell(i));
  }
  return hash.hex();
}

Result<std::string> Store::Impl::damaged_table(std::int64_t run, bool summary_only, Access access) {
  Statement row = TRY(database.prepare("SELECT digest FROM run WHERE id = ?"));
  row.bind(1, run);
  if (!TRY(row.row())) return Error{Errc::bad_input, fmt::format("no run {}", run)};
  std::istringstream digest(row.text(0));
  TRY(row.row());
  std::string stored, extra;
  digest >> stored;
  if (stored != TRY(hash_run_row(run))) return std::string("run");
  for (std::size_t i = 0; i < kRunTables.size(); ++i) {
    const char* table = kRunTables[i];
    digest >> stored;
    if (!digest) {
      // A run of an older version has no rows in tables that came later.
      if (std::find(kRunTablesOfVersion.begin(), kRunTablesOfVersion.end(), i) == kRunTablesOfVersion.end())
        return std::string("run");
      const std::size_t there = kRunTablesOfVersion.at(static_cast<std::size_t>(TRY(version())) - 1);
      for (std::size_t later = i; later < there; ++later)
        if (TRY(hash_table(kRunTables[later], run, access)) != RowHash().hex())
          return std::string(kRunTables[later]);
      return std::string();
    }
    bool needed = !summary_only;
    for (const char* name : kSummaryTables) needed = needed || std::string(name) == table;
    if (needed && stored != TRY(hash_table(table, run, access))) return std::string(table);
  }
  if (digest >> extra) return std::string("run");
  return std::string();
}

Status Store::check(std::int64_t run) {
  return impl_->on_snapshot([&]() -> Status {
    for (const Impl::Access access : {Impl::Access::index, Impl::Access::scan}) {
      const std::string table = TRY(impl_->damaged_table(run, false, access));
      if (!table.empty()) return damaged(run, table);
    }
    return {};
  });
}

namespace {
std::string comparison_digest(const StoredComparison& stored, const std::string& body) {
  RowHash hash;
  hash.add(stored.run_a);
  hash.add(stored.run_b);
  hash.add(std::string_view(stored.created_utc));
  hash.add(std::string_view(body));
  return hash.hex();
}
}  // namespace

Result<std::int64_t> Store::add_comparison(const Comparison& comparison, std::int64_t run_a,
                                           std::int64_t run_b) {
  const std::string body = comparison_json(comparison);
  StoredComparison stored{0, run_a, run_b, utc_timestamp(), {}};
  const std::string digest = comparison_digest(stored, body);
  const auto write = [&]() -> Status {
    TRY(impl_->file_in_place());
    TRY(impl_->database.require_free_id("comparison"));
    Statement insert =
        TRY(impl_->database.prepare("INSERT INTO comparison VALUES (NULL,?,?,?,?,?,?,?,?,?,?,?,?)"));
    const auto run_cell = [](std::int64_t id) { return id > 0 ? Cell(id) : Cell(nullptr); };
    return insert.run({std::string_view(stored.created_utc), run_cell(run_a), run_cell(run_b),
                       std::string_view(comparison.a), std::string_view(comparison.b),
                       std::string_view(verdict_name(comparison.verdict)), comparison.ratio.value,
                       comparison.ratio.low, comparison.ratio.high, comparison.max_loss_difference,
                       std::string_view(body), std::string_view(digest)});
  };
  const Status status = write();
  if (!status.ok()) return impl_->error(status.error());
  return impl_->database.last_id();
}

Result<std::vector<StoredComparison>> Store::list_comparisons() {
  return impl_->on_snapshot([&]() -> Result<std::vector<StoredComparison>> {
    std::vector<StoredComparison> all;
    Statement row = TRY(impl_->database.prepare(
        "SELECT id, created_utc, run_a, run_b, body, digest FROM comparison ORDER BY id"));
    while (TRY(row.row())) {
      StoredComparison stored{row.integer(0), row.integer(2), row.integer(3), row.text(1), {}};
      const std::string body = row.text(4);
      if (row.text(5) != comparison_digest(stored, body)) continue;
      Result<Comparison> parsed = parse_comparison(body);
      if (!parsed.ok()) continue;
      stored.comparison = std::move(parsed).value();
      all.push_back(std::move(stored));
    }
    return all;
  });
}

Status Store::add_tuning(const std::string& hardware, const std::map<std::string, TuningChoice>& choices) {
  const auto write = [&]() -> Status {
    TRY(impl_->file_in_place());
    Transaction transaction = TRY(Transaction::begin(impl_->database, true));
    Statement insert = TRY(impl_->database.prepare(
        "INSERT INTO tuning (hardware, key, choice, time_ns) VALUES (?,?,?,?) ON CONFLICT (hardware, key) DO "
        "UPDATE SET choice = excluded.choice, time_ns = excluded.time_ns"));
    for (const auto& [key, found] : choices)
      TRY(insert.run({std::string_view(hardware), std::string_view(key), std::string_view(found.choice),
                      found.time_ns}));
    return transaction.commit();
  };
  const Status status = write();
  if (!status.ok()) return impl_->error(status.error());
  return {};
}

Result<std::map<std::string, TuningChoice>> Store::tuning(const std::string& hardware) {
  return impl_->on_snapshot([&]() -> Result<std::map<std::string, TuningChoice>> {
    Statement row = TRY(impl_->database.prepare(
        "SELECT key, choice, time_ns FROM tuning WHERE hardware = ? ORDER BY key LIMIT 4096"));
    row.bind(1, std::string_view(hardware));
    std::map<std::string, TuningChoice> choices;
    while (TRY(row.row())) choices[row.text(0)] = {row.text(1), row.integer(2)};
    return choices;
  });
}

}  // namespace gradloom
