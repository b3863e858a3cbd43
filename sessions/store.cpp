// Opening, creating and validating session files; digests; comparisons. Reading of runs is in store_read.cpp.
#include "sessions/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "sessions/store_impl.h"
#include "sessions_embedded.h"

namespace gradloom {
namespace {

constexpr std::int64_t kQuickCheckBytes = 64 << 20;  // larger files rely on the digests
constexpr std::int64_t kOpenDeadlineNs = 5'000'000'000;
constexpr int kBusyMs = 5000;  // for what another process has locked

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::uint32_t big_endian(const unsigned char* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 |
         std::uint32_t{bytes[3]};
}

Error not_a_session(const std::string& path, const std::string& why) {
  return {Errc::bad_input, path + ": not a Gradloom session (" + why + ")"};
}

Error newer_version(const std::string& path, std::int64_t version) {
  return {Errc::bad_input,
          fmt::format("{}: written by a newer Gradloom (session format {}, this one knows up to {})", path,
                      version, kSchemaVersion)};
}

// Looks at the first bytes before SQLite touches the file, so that files of other programs are left exactly
// as they are. SQLite header: magic at 0, user_version at 60, application_id at 68
// (sqlite.org/fileformat2.html, 1.3).
Status check_header(const std::string& path, std::int64_t file_bytes) {
  unsigned char header[100] = {};
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(header), sizeof header);
  if (in.gcount() == 0 && file_bytes > 0)
    return Error{Errc::io, "cannot read " + path + ": " + std::strerror(errno)};
  if (in.gcount() < 100) return not_a_session(path, "too short");
  if (std::memcmp(header, "SQLite format 3", 16) != 0) return not_a_session(path, "not an SQLite file");
  const auto application = static_cast<std::int32_t>(big_endian(header + 68));
  if (application != kApplicationId) return not_a_session(path, "an SQLite file of another program");
  const std::uint32_t version = big_endian(header + 60);
  if (version > static_cast<std::uint32_t>(kSchemaVersion)) return newer_version(path, version);
  return {};
}

Status refuse_network(const std::string& folder, const std::string& path) {
  struct statfs info {};
  if (::statfs(folder.c_str(), &info) != 0) return {};
  constexpr std::uint32_t kNfs = 0x6969, kSmb = 0x517b, kCifs = 0xff534d42, kSmb2 = 0xfe534d42;
  const auto type = static_cast<std::uint32_t>(info.f_type);
  if (type == kNfs || type == kSmb || type == kCifs || type == kSmb2) {
    return Error{Errc::io,
                 path + ": a session cannot be written on a network file system; use a local folder"};
  }
  return {};
}

Status harden(Database& database) {
  sqlite3* db = database.handle();
  sqlite3_busy_timeout(db, kBusyMs);
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 64 << 20);
  sqlite3_limit(db, SQLITE_LIMIT_TRIGGER_DEPTH, 0);
  return database.execute("PRAGMA cell_size_check=ON; PRAGMA mmap_size=0; PRAGMA foreign_keys=OFF;");
}

// Processor time of this thread: on a busy machine the clock on the wall would refuse good files.
std::int64_t thread_cpu_ns() {
  struct timespec now {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Stops SQL that runs longer than the deadline: a hostile file can make any statement long.
class Deadline {
 public:
  explicit Deadline(Database& database) : database_(database), end_ns_(thread_cpu_ns() + kOpenDeadlineNs) {
    sqlite3_progress_handler(
        database_.handle(), 10'000,
        [](void* self) { return thread_cpu_ns() > static_cast<Deadline*>(self)->end_ns_ ? 1 : 0; }, this);
  }
  ~Deadline() { sqlite3_progress_handler(database_.handle(), 0, nullptr, nullptr); }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  Database& database_;
  std::int64_t end_ns_;
};

using Schema = std::map<std::pair<std::string, std::string>, std::string>;  // (type, name) -> text

Result<Schema> read_schema(Database& database) {
  Schema schema;
  Statement rows =
      TRY(database.prepare("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"));
  while (TRY(rows.row())) schema[{rows.text(0), rows.text(1)}] = rows.text(2);
  return schema;
}

Result<Schema> expected_schema() {
  Database memory = TRY(Database::open(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  TRY(memory.execute(schema_sql()));
  return read_schema(memory);
}

// What a version added to the one before, in the order of creation.
struct Added {
  std::int64_t version;
  const char *kind, *name;
  std::pair<std::string, std::string> key() const { return {kind, name}; }
};
constexpr Added kAdded[] = {{2, "table", "activity"},   {2, "index", "activity_of_run"},
                            {2, "view", "v_streams"},   {2, "view", "CUPTI_ACTIVITY_KIND_MEMCPY"},
                            {3, "table", "loss_scale"}, {3, "index", "loss_scale_of_run"}};

// Tables replaced by views, changed constraints and triggers are refused; tables that the user added are none
// of our business.
Status check_schema(Database& database, const std::string& path) {
  const std::int64_t version = TRY(database.integer("PRAGMA user_version"));
  if (version > kSchemaVersion) return newer_version(path, version);
  if (TRY(database.integer("PRAGMA application_id")) != kApplicationId)
    return not_a_session(path, "another program's file");
  if (version < 1) return not_a_session(path, "it has no format version");
  Schema expected = TRY(expected_schema());
  const Schema found = TRY(read_schema(database));
  for (const Added& added : kAdded)
    if (version < added.version) expected.erase(added.key());
  for (const auto& [key, sql] : expected) {
    const auto at = found.find(key);
    if (at == found.end()) return not_a_session(path, key.first + " " + key.second + " is missing");
    if (at->second != sql) return not_a_session(path, key.first + " " + key.second + " is not as expected");
  }
  for (const auto& [key, sql] : found) {
    if (key.first == "trigger") return not_a_session(path, "it has a trigger, " + escaped(key.second));
  }
  return {};
}

Status create_schema(Database& database) {
  // The schema goes in with a rollback journal, so that the main file is complete before WAL starts; a second
  // process that creates the same file waits here and then finds it made.
  Status status = database.execute("BEGIN EXCLUSIVE");
  if (!status.ok()) return status;
  const auto fail = [&](Error error) {
    sqlite3_exec(database.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
    return error;
  };
  const Result<std::int64_t> application = database.integer("PRAGMA application_id");
  if (!application.ok()) return fail(application.error());
  if (*application != kApplicationId) {
    const Result<std::int64_t> objects = database.integer("SELECT count(*) FROM sqlite_schema");
    if (!objects.ok()) return fail(objects.error());
    if (*objects != 0) return fail({Errc::bad_input, "an SQLite file of another program"});
    status = database.execute(schema_sql());
    if (!status.ok()) return fail(status.error());
  }
  status = database.execute("COMMIT");
  if (!status.ok()) return fail(status.error());
  return {};
}

// An older file, checked as such, becomes one of this version.
Status migrate(Database& database, const std::string& path) {
  if (TRY(database.integer("PRAGMA user_version")) >= kSchemaVersion) return {};
  Transaction transaction = TRY(Transaction::begin(database, true));
  const std::int64_t version = TRY(database.integer("PRAGMA user_version"));
  if (version >= kSchemaVersion) return transaction.commit();  // another process did it
  TRY(check_schema(database, path));
  const Schema expected = TRY(expected_schema());
  for (const Added& added : kAdded) {
    if (version >= added.version) continue;
    const Status made = database.execute(expected.at(added.key()));
    if (!made.ok()) return with_context(made.error(), path);
  }
  TRY(database.execute(fmt::format("PRAGMA user_version = {}", kSchemaVersion)));
  return transaction.commit();
}

Status quick_check(Database& database) {
  Statement check = TRY(database.prepare("PRAGMA quick_check(1)"));
  if (TRY(check.row()) && check.text(0) != "ok") {
    return Error{Errc::bad_input, "the session is damaged (" + escaped(check.text(0)) + ")"};
  }
  return {};
}

Status validate(Database& database, const std::string& path, bool all_pages) {
  const Deadline deadline(database);
  TRY(check_schema(database, path));
  if (!all_pages) return {};
  const Status checked = quick_check(database);
  if (!checked.ok()) return with_context(checked.error(), path);
  return {};
}

std::string uri_of(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '?' || c == '#' || c == '%') {
      uri += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

Result<Database> open_for_reading(const std::string& path) {
  // Opening read-write lets SQLite recover the log of a run that was killed; on a read-only medium it opens
  // read-only by itself.
  Result<Database> database = Database::open(path, SQLITE_OPEN_READWRITE);
  if (database.ok()) {
    TRY(harden(*database));
    TRY(database->execute("PRAGMA query_only=ON"));
    const Result<std::int64_t> first = database->integer("SELECT count(*) FROM sqlite_schema");
    if (first.ok()) return database;
    if (first.error().code != Errc::io) return first.error();
    database = first.error();
  }
  // A read-only folder has no place for the lock file of WAL. Without a log the file can be read as it lies.
  struct stat log {};
  const bool has_log = ::stat((path + "-wal").c_str(), &log) == 0 && log.st_size > 0;
  if (has_log)
    return Error{database.error().code,
                 database.error().message + "; copy the session and its -wal file to a writable folder"};
  Database immutable = TRY(Database::open(uri_of(path), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI));
  TRY(harden(immutable));
  return immutable;
}

// Switching to WAL begins with a read, and SQLite does not wait for others' locks then: two processes that
// open a new file would meet here.
Status start_log(Database& database) {
  constexpr int kWaitMs = 10;
  for (int waited = 0;; waited += kWaitMs) {
    const Status status = database.execute("PRAGMA journal_mode=WAL");
    const bool busy = !status.ok() && sqlite3_errcode(database.handle()) == SQLITE_BUSY;
    if (!busy || waited >= kBusyMs) return status;
    sqlite3_sleep(kWaitMs);
  }
}

Result<Database> open_for_writing(const std::string& path, bool create) {
  Database database = TRY(Database::open(path, SQLITE_OPEN_READWRITE | (create ? SQLITE_OPEN_CREATE : 0)));
  TRY(harden(database));
  if (sqlite3_db_readonly(database.handle(), "main") == 1) return Error{Errc::io, "the file is read-only"};
  if (create) TRY(create_schema(database));
  TRY(start_log(database));
  TRY(database.execute("PRAGMA synchronous=NORMAL"));
  return database;
}

Result<Database> open_database(const std::string& path, StoreMode mode) {
  struct stat info {};
  const bool there = ::stat(path.c_str(), &info) == 0;
  if (!there && mode == StoreMode::read)
    return Error{Errc::io, "cannot read " + path + ": " + std::strerror(errno)};
  if (there && !S_ISREG(info.st_mode)) return not_a_session(path, "not a regular file");
  const bool empty = !there || info.st_size == 0;
  if (empty && mode == StoreMode::read) return not_a_session(path, "empty file");
  // With a rollback journal beside it, the creation of the file was interrupted: SQLite undoes it first.
  if (!empty && !exists(path + "-journal")) TRY(check_header(path, info.st_size));

  if (mode == StoreMode::write) {
    const std::string folder = folder_of(path);
    if (!exists(folder)) return Error{Errc::io, "cannot write " + path + ": no folder " + folder};
    if (::access(folder.c_str(), W_OK) != 0)
      return Error{Errc::io, "cannot write " + path + ": the folder " + folder + " is read-only"};
    if (there && ::access(path.c_str(), W_OK) != 0)
      return Error{Errc::io, "cannot write " + path + ": the file is read-only"};
    TRY(refuse_network(folder, path));
  }
  Result<Database> opened = mode == StoreMode::write
                                ? open_for_writing(path, empty || exists(path + "-journal"))
                                : open_for_reading(path);
  if (!opened.ok()) return with_context(opened.error(), path);
  TRY(validate(*opened, path, there && info.st_size <= kQuickCheckBytes));
  if (mode == StoreMode::write) TRY(migrate(*opened, path));
  return opened;
}

std::string boot_id() {
  const Result<std::string> text = read_file_limited("/proc/sys/kernel/random/boot_id", 4096);
  return text.ok() ? text->substr(0, text->find('\n')) : "?";
}

// Field 22 of /proc/<pid>/stat: clock ticks between boot and the start of the process. Empty when there is no
// such process.
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

const char* schema_sql() { return embedded::kSchemaSql; }

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
Store::~Store() = default;
const std::string& Store::path() const { return impl_->path; }

Result<std::unique_ptr<Store>> Store::open(const std::string& path, StoreMode mode) {
  if (path.empty() || path.find('\0') != std::string::npos)
    return Error{Errc::usage, "the session needs a file name"};
  // A leading "file:" or ":memory:" must stay a plain file name.
  const std::string file =
      path[0] == '/' || path.rfind("./", 0) == 0 || path.rfind("../", 0) == 0 ? path : "./" + path;
  Result<Database> database = open_database(file, mode);
  if (!database.ok()) {
    Error error = database.error();
    if (file != path && error.message.find(file) != std::string::npos)
      error.message.replace(error.message.find(file), file.size(), path);
    return error;
  }
  auto impl = std::make_unique<Impl>(path, std::move(database).value());
  impl->mode = mode;
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    impl->device = info.st_dev;
    impl->inode = info.st_ino;
  }
  return std::unique_ptr<Store>(new Store(std::move(impl)));
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
  Result<Transaction> snapshot = Transaction::begin(impl_->database, false);
  if (!snapshot.ok()) return impl_->error(snapshot.error());
  for (const Impl::Access access : {Impl::Access::index, Impl::Access::scan}) {
    const Result<std::string> table = impl_->damaged_table(run, false, access);
    if (!table.ok()) return impl_->error(table.error());
    if (!table->empty())
      return impl_->error({Errc::bad_input, fmt::format("run {} is damaged (table {})", run, *table)});
  }
  return {};
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
  std::vector<StoredComparison> all;
  Result<Statement> prepared = impl_->database.prepare(
      "SELECT id, created_utc, run_a, run_b, body, digest FROM comparison ORDER BY id");
  if (!prepared.ok()) return impl_->error(prepared.error());
  for (;;) {
    const Result<bool> row = prepared->row();
    if (!row.ok()) return impl_->error(row.error());
    if (!*row) return all;
    StoredComparison stored{
        prepared->integer(0), prepared->integer(2), prepared->integer(3), prepared->text(1), {}};
    const std::string body = prepared->text(4);
    if (prepared->text(5) != comparison_digest(stored, body)) continue;
    Result<Comparison> parsed = parse_comparison(body);
    if (!parsed.ok()) continue;
    stored.comparison = std::move(parsed).value();
    all.push_back(std::move(stored));
  }
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
  Result<Statement> rows = impl_->database.prepare(
      "SELECT key, choice, time_ns FROM tuning WHERE hardware = ? ORDER BY key LIMIT 4096");
  if (!rows.ok()) return impl_->error(rows.error());
  rows->bind(1, std::string_view(hardware));
  std::map<std::string, TuningChoice> choices;
  for (;;) {
    const Result<bool> row = rows->row();
    if (!row.ok()) return impl_->error(row.error());
    if (!*row) return choices;
    choices[rows->text(0)] = {rows->text(1), rows->integer(2)};
  }
}

}  // namespace gradloom
