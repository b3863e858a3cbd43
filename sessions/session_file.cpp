// Opening, creating and validating session files. What SQLite may do to files is in sqlite_vfs.h.
#include "sessions/session_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <string_view>
#include <vector>

#include "engine/base/hash.h"
#include "engine/base/input_file.h"
#include "engine/base/text.h"
#include "sessions/sqlite_vfs.h"
#include "sessions/store.h"
#include "sessions_embedded.h"

namespace gradloom {
namespace {

constexpr std::int64_t kQuickCheckBytes = 64 << 20;  // larger files rely on the digests
constexpr std::int64_t kOpenDeadlineNs = 5'000'000'000;
constexpr int kBusyMs = 5000;  // for what another process has locked

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
Status check_header(const std::string& path, const std::string& file, std::int64_t file_bytes) {
  unsigned char header[100] = {};
  std::ifstream in(file, std::ios::binary);
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

Result<Schema> read_expected_schema() {
  Database memory = TRY(Database::open(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
  TRY(memory.execute(schema_sql()));
  return read_schema(memory);
}

const Result<Schema>& expected_schema() {
  static const Result<Schema> schema = read_expected_schema();
  return schema;
}

// What a version added to the one before, in the order of creation.
struct Added {
  std::int64_t version;
  const char *kind, *name;
  std::pair<std::string, std::string> key() const { return {kind, name}; }
};
constexpr Added kAdded[] = {{2, "table", "activity"},
                            {2, "index", "activity_of_run"},
                            {2, "view", "v_streams"},
                            {2, "view", "CUPTI_ACTIVITY_KIND_MEMCPY"},
                            {3, "table", "loss_scale"},
                            {3, "index", "loss_scale_of_run"},
                            {4, "table", "trial"},
                            {5, "table", "evaluation"},
                            {5, "index", "evaluation_of_run"},
                            {6, "table", "pass_instance"},
                            {6, "index", "pass_instance_of_run"},
                            {6, "view", "v_instances"},
                            {7, "table", "host_span"},
                            {7, "index", "host_span_of_run"},
                            {7, "view", "v_loop"},
                            {8, "table", "rank"},
                            {8, "table", "rank_sample"},
                            {8, "table", "exchange"},
                            {8, "index", "rank_of_run"},
                            {8, "index", "rank_sample_of_run"},
                            {8, "index", "exchange_of_run"},
                            {8, "view", "v_ranks"},
                            {8, "table", "implementation"},
                            {8, "index", "implementation_of_run"},
                            {9, "table", "annotation"},
                            {9, "table", "prediction"},
                            {10, "table", "configuration"},
                            {11, "table", "rank_environment"},
                            {11, "table", "exchange_step"},
                            {11, "index", "exchange_step_of_run"},
                            {12, "table", "thread_sample"},
                            {12, "index", "thread_sample_of_run"}};

// Views that a version writes otherwise: their text in files from version `since` to the one before, hashed.
struct Changed {
  std::int64_t version, since;
  const char *name, *before;  // hash_hex of the text before
  std::pair<std::string, std::string> key() const { return {"view", name}; }
};
constexpr Changed kChanged[] = {{11, 1, "v_kernels", "7814fcaa94c31dc61fc160680dc28fa2"},
                                {11, 1, "v_nodes", "feccf67e05efc4907a21e1f77b976df2"},
                                {11, 8, "v_ranks", "626baf95789259eae5ae360b3b07fb42"}};

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
  const auto before = [&](const std::pair<std::string, std::string>& key) {
    for (const Changed& changed : kChanged)
      if (version < changed.version && key == changed.key()) return changed.before;
    return static_cast<const char*>(nullptr);
  };
  for (const auto& [key, sql] : expected) {
    const auto at = found.find(key);
    if (at == found.end()) return not_a_session(path, key.first + " " + key.second + " is missing");
    const char* older = before(key);
    if (older != nullptr ? hash_hex(at->second) != older : at->second != sql)
      return not_a_session(path, key.first + " " + key.second + " is not as expected");
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
  for (const Changed& changed : kChanged) {  // what it had; what it had not comes with the others
    if (version >= changed.version || version < changed.since) continue;
    TRY(database.execute(std::string("DROP VIEW ") + changed.name));
    TRY(database.execute(expected.at(changed.key())));
  }
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

std::string uri_of(const std::string& file, const char* parameters) {
  std::string uri = "file:";
  for (const char c : file) {
    if (c == '?' || c == '#' || c == '%') {
      uri += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    } else {
      uri += c;
    }
  }
  return uri + "?" + parameters;
}

Result<Database> open_as(const std::string& file, const char* parameters) {
  Database database =
      TRY(Database::open(uri_of(file, parameters), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, reading_vfs()));
  TRY(harden(database));
  TRY(database.integer("SELECT count(*) FROM sqlite_schema"));
  return database;
}

// Whether SQLite finds anything in the log. Its header, eight numbers, ends with a checksum over the first
// six (sqlite.org/fileformat2.html, 4.1); with another one, everything behind it is left over from before. A header alone, which a writer
// leaves that is killed there, says nothing, and a reader without locks would look for its first frame until SQLite gives up
// ("locking protocol": walBeginShmUnreliable compares salts that recovery has not read).
bool log_counts(const std::string& log) {
  unsigned char header[32] = {};
  std::ifstream in(log, std::ios::binary);
  in.read(reinterpret_cast<char*>(header), sizeof header);
  constexpr std::uint32_t kMagic = 0x377f0682;  // its last bit: the checksum takes numbers as big-endian
  if (in.gcount() != sizeof header || (big_endian(header) & ~1u) != kMagic) return false;
  if (in.peek() == std::ifstream::traits_type::eof()) return false;
  const bool big = (big_endian(header) & 1) != 0;
  std::uint32_t sums[2] = {0, 0};
  for (std::size_t i = 0; i < 6; ++i) {
    const std::uint32_t number = big_endian(header + 4 * i);
    sums[i % 2] += (big ? number : __builtin_bswap32(number)) + sums[1 - i % 2];
  }
  return big_endian(header + 24) == sums[0] && big_endian(header + 28) == sums[1];
}

// A log with an index may belong to a process that writes now, and the index's locks tell. Nobody writes a
// log without an index, nor a file without a log.
Result<SessionFile> open_for_reading(const std::string& file) {
  const FileStamp stamp = stamp_of(file);
  struct stat info {};
  const bool has_log = ::stat((file + "-wal").c_str(), &info) == 0;
  const bool counts = has_log && log_counts(file + "-wal");
  const char* unlocked = counts ? "still_log=1" : "immutable=1";
  const bool maybe_written = has_log && (counts || info.st_size == 0) && exists(file + "-shm");
  if (maybe_written || exists(file + "-journal")) {  // an immutable file would be read without its journal
    Result<Database> database = open_as(file, maybe_written ? "readonly_shm=1" : "still_log=1");
    if (database.ok()) return SessionFile{std::move(database).value(), !maybe_written, stamp};
    // Errc::io with an index: the writer made its first commit and has not read since, so that the index has
    // no place yet at which a reader that may not write could hold its snapshot. Without: there is no log.
    if (database.error().code != Errc::io) return std::move(database).error();
  }
  return SessionFile{TRY(open_as(file, unlocked)), true, stamp};
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

Result<SessionFile> open_for_writing(const std::string& file, bool create) {
  const int flags = SQLITE_OPEN_READWRITE | (create ? SQLITE_OPEN_CREATE : 0);
  Database database = TRY(Database::open(file, flags, writing_vfs()));
  TRY(harden(database));
  if (sqlite3_db_readonly(database.handle(), "main") == 1) return Error{Errc::io, "the file is read-only"};
  if (create) TRY(create_schema(database));
  TRY(start_log(database));
  TRY(database.execute("PRAGMA synchronous=NORMAL"));
  return SessionFile{std::move(database), false, {}};
}

constexpr std::string_view kNew = ".new-", kLock = "-lock", kNaming = ".new-name";

// What SQLite keeps beside a database.
void remove_beside(const std::string& file) {
  for (const char* end : {"-journal", "-wal", "-shm"}) ::unlink((file + end).c_str());
}

void remove_new(const std::string& aside) {
  ::unlink(aside.c_str());
  remove_beside(aside);
}

// A lock on the name of a file that is being made: NAME-lock. It ends with the process, whatever ends that, so that others see which of such
// files nobody makes any more. Not on the file itself: to close that a second time would end SQLite's own locks.
class NameLock {
 public:
  NameLock() = default;
  NameLock(const NameLock&) = delete;
  ~NameLock() {
    if (held_) {
      remove_new(name_);
      ::unlink(path().c_str());
    }
    if (fd_ >= 0) ::close(fd_);
  }
  // On a name that nobody has. False, with errno: the folder takes no file.
  bool take_new(const std::string& file) {
    for (int n = 0; !held_; ++n) {
      const std::string number = n > 0 ? "-" + std::to_string(n) : "";
      if (!take(file + std::string(kNew) + std::to_string(::getpid()) + number, O_CREAT | O_EXCL) &&
          fd_ < 0 && errno != EEXIST)
        return false;
    }
    return true;
  }
  // On one that others may have: waits until they do not. False: it cannot be had.
  bool take_turn(const std::string& name) {
    while (!take(name, O_CREAT | O_NOFOLLOW, LOCK_EX))
      if (fd_ < 0 || !locked_) return false;
    return true;
  }
  // On one that is there. False: somebody has it, or it is no lock.
  bool take_left(const std::string& name) { return take(name, O_NOFOLLOW | O_NONBLOCK); }
  const std::string& name() const { return name_; }

 private:
  std::string path() const { return name_ + std::string(kLock); }
  bool take(const std::string& name, int flags, int how = LOCK_EX | LOCK_NB) {
    if (fd_ >= 0) ::close(fd_);
    name_ = name;
    fd_ = ::open(path().c_str(), O_RDWR | O_CLOEXEC | flags, 0666);
    if (fd_ < 0) return false;
    // A file system without locks has nobody who looks.
    locked_ = ::flock(fd_, how) == 0 || ((flags & O_EXCL) != 0 && errno != EWOULDBLOCK);
    struct stat info {};
    // Who looked between the two calls may have removed the file.
    held_ = locked_ && ::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink > 0;
    return held_;
  }
  std::string name_;
  int fd_ = -1;
  bool locked_ = false, held_ = false;  // held: and the name is still that file's
};

// What processes left that were killed while they made this session.
void remove_unfinished(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  const std::string begin = file.substr(slash + 1) + std::string(kNew), folder = folder_of(file) + "/";
  std::vector<std::string> left;
  if (DIR* const names = ::opendir(folder.c_str())) {
    while (const dirent* const entry = ::readdir(names))
      if (const std::string name = entry->d_name; name.starts_with(begin) && name.ends_with(kLock))
        left.push_back(folder + name.substr(0, name.size() - kLock.size()));
    ::closedir(names);
  }
  for (const std::string& name : left) {
    NameLock lock;
    lock.take_left(name);  // and removes what has the name
  }
}

// A new session is made under another name, whole, and then gets its own: whatever ends the process, no file without a schema
// bears it. Of two processes that make one at the same time the first names its file.
Status make_new(const std::string& file) {
  NameLock lock;
  if (!lock.take_new(file))
    return Error{Errc::io, std::string("a new file cannot be made: ") + std::strerror(errno)};
  const std::string& aside = lock.name();
  remove_new(aside);                   // of a process that had this number before, and no lock
  TRY(open_for_writing(aside, true));  // closed again: all is in the file
  // One that was deleted may have left its log, after a kill: SQLite would take that for the new one's.
  NameLock turn;
  if (turn.take_turn(file + std::string(kNaming)) && !exists(file)) remove_beside(file);
  if (::link(aside.c_str(), file.c_str()) == 0 || errno == EEXIST) return {};
  // Some file systems know one name only.
  if (::rename(aside.c_str(), file.c_str()) == 0) return {};
  return Error{Errc::io, std::string("the new file cannot be named: ") + std::strerror(errno)};
}

// A rollback journal that took part in a transaction over several files ends with the name of another one,
// its length, a checksum and this magic (sqlite.org/fileformat2.html, 3; readSuperJournal in pager.c).
// Sessions have no such transactions.
bool names_another_file(const std::string& journal) {
  constexpr unsigned char kMagic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
  constexpr std::int64_t kTailBytes = 16;
  std::ifstream in(journal, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() < kTailBytes) return false;
  unsigned char tail[kTailBytes] = {};
  in.seekg(-kTailBytes, std::ios::end);
  in.read(reinterpret_cast<char*>(tail), kTailBytes);
  return in.gcount() == kTailBytes && std::memcmp(tail + 8, kMagic, 8) == 0 && big_endian(tail) != 0;
}

// What SQLite would open beside the file. A link could lead it to anything, a pipe keep it waiting.
Status check_beside(const std::string& path, const std::string& file, StoreMode mode) {
  for (const char* end : {"-journal", "-wal", "-shm"}) {
    struct stat info {};
    if (::lstat((file + end).c_str(), &info) != 0) continue;
    if (!S_ISREG(info.st_mode))
      return Error{Errc::bad_input, path + ": " + file + end + " beside it is not a regular file"};
    if (mode == StoreMode::write && info.st_nlink > 1)
      return Error{Errc::bad_input, path + ": " + file + end + " beside it has another name elsewhere"};
  }
  if (names_another_file(file + "-journal"))
    return Error{Errc::bad_input, path + ": the journal beside it (" + file +
                                      "-journal) names another file, which SQLite would delete; no session "
                                      "of ours has such a journal"};
  return {};
}

Status check_writable(const std::string& path, const std::string& file, bool there) {
  const std::string folder = folder_of(file);
  if (!exists(folder)) return Error{Errc::io, "cannot write " + path + ": no folder " + folder_of(path)};
  if (::access(folder.c_str(), W_OK) != 0)
    return Error{Errc::io, "cannot write " + path + ": the folder " + folder_of(path) + " is read-only"};
  if (there && ::access(file.c_str(), W_OK) != 0)
    return Error{Errc::io, "cannot write " + path + ": the file is read-only"};
  return refuse_network(folder, path);
}

// The file that `path` leads to: SQLite looks for journal and log beside that one.
std::string resolved(const std::string& path) {
  char full[PATH_MAX];
  if (::realpath(path.c_str(), full) != nullptr) return full;
  // A leading "file:" or ":memory:" must stay a plain file name.
  return path[0] == '/' || path.rfind("./", 0) == 0 || path.rfind("../", 0) == 0 ? path : "./" + path;
}

}  // namespace

const char* schema_sql() { return embedded::kSchemaSql; }

FileStamp stamp_of(const std::string& path) {
  FileStamp stamp;
  const std::string file = resolved(path);
  std::size_t at = 0;
  for (const char* end : {"", "-wal", "-shm"}) {
    struct stat info {};
    if (::stat((file + end).c_str(), &info) == 0) {
      stamp.of[at] = static_cast<std::int64_t>(info.st_ino);
      stamp.of[at + 1] = info.st_size;
      stamp.of[at + 2] = std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
    }
    at += 3;
  }
  return stamp;
}

Result<SessionFile> open_session_file(const std::string& path, StoreMode mode) {
  const std::string file = resolved(path);
  struct stat info {};
  const bool there = ::stat(file.c_str(), &info) == 0;
  if (!there && mode == StoreMode::read)
    return Error{Errc::io, "cannot read " + path + ": " + std::strerror(errno)};
  if (there && !S_ISREG(info.st_mode)) return not_a_session(path, "not a regular file");
  const bool empty = !there || info.st_size == 0;
  if (empty && mode == StoreMode::read) return not_a_session(path, "empty file");
  // The first page is the first that is written when a session is made: whatever was interrupted, a file that
  // is not empty has our header.
  if (!empty) TRY(check_header(path, file, info.st_size));
  TRY(check_beside(path, file, mode));
  if (mode == StoreMode::write) {
    TRY(check_writable(path, file, there));
    remove_unfinished(file);
  }
  if (!there)
    if (const Status made = make_new(file); !made.ok()) return with_context(made.error(), path);
  Result<SessionFile> opened = mode == StoreMode::write
                                   ? open_for_writing(file, (there && empty) || exists(file + "-journal"))
                                   : open_for_reading(file);
  if (!opened.ok()) return with_context(opened.error(), path);
  TRY(validate(opened->database, path, there && info.st_size <= kQuickCheckBytes));
  if (mode == StoreMode::write) TRY(migrate(opened->database, path));
  return opened;
}

Result<Database> open_foreign_database(const std::string& path) {
  const std::string file = resolved(path);
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0)
    return Error{Errc::io, "cannot read " + path + ": " + std::strerror(errno)};
  if (!S_ISREG(info.st_mode)) return Error{Errc::io, "cannot read " + path + ": it is not a regular file"};
  auto opened = open_as(file, "immutable=1");
  if (!opened.ok()) return with_context(opened.error(), path);
  return opened;
}

}  // namespace gradloom
