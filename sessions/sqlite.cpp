// SQLite behind Result: error mapping, binding, row hashes, transactions.
#include "sessions/sqlite.h"

#include <xxhash.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "engine/base/text.h"

namespace gradloom {

Error sqlite_error(sqlite3* handle) {
  if (handle == nullptr) return {Errc::io, "out of memory"};
  const int code = sqlite3_extended_errcode(handle);
  const std::string message = escaped(sqlite3_errmsg(handle));  // may quote the file's contents
  switch (code & 0xff) {
    case SQLITE_FULL: return {Errc::io, "disk full"};
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return {Errc::io, "another process kept the session locked for more than 5 s"};
    case SQLITE_READONLY:
      if (code == SQLITE_READONLY_ROLLBACK)
        return {Errc::bad_input,
                "writing it was interrupted, and the journal beside it was not rolled back, which reading "
                "does not do; 'gradloom train --session' or the sqlite3 shell does"};
      return {Errc::io, "the file or its folder is read-only"};
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH: return {Errc::io, message};
    case SQLITE_IOERR: {
      if (code == SQLITE_IOERR_WRITE)
        return {Errc::io, "writing failed (disk full, over quota or file size limit)"};
      const int system = sqlite3_system_errno(handle);
      return {Errc::io, message + (system != 0 ? std::string(" (") + std::strerror(system) + ")" : "")};
    }
    case SQLITE_NOMEM: return {Errc::io, "out of memory"};
    case SQLITE_INTERRUPT:
      return {Errc::bad_input, "reading takes too long: the session is damaged or hostile"};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return {Errc::bad_input, "the session is damaged (" + message + ")"};
    case SQLITE_MISUSE: return {Errc::bug, message};
    default: return {Errc::bad_input, message};
  }
}

void RowHash::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }
RowHash::RowHash() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }
RowHash::RowHash(const RowHash& other) : state_(XXH3_createState()) {
  XXH3_copyState(state_.get(), other.state_.get());
}
RowHash& RowHash::operator=(const RowHash& other) {
  if (this != &other) XXH3_copyState(state_.get(), other.state_.get());
  return *this;
}

void RowHash::add(const Cell& cell) {
  // A tag, the length of texts and the contents: no two sequences of cells give the same bytes.
  char bytes[9];
  if (const auto* i = std::get_if<std::int64_t>(&cell)) {
    bytes[0] = 'i';
    std::memcpy(bytes + 1, i, 8);
    XXH3_64bits_update(state_.get(), bytes, 9);
  } else if (const auto* d = std::get_if<double>(&cell); d != nullptr && !std::isnan(*d)) {
    const double value = *d == 0 ? 0 : *d;
    bytes[0] = 'r';
    std::memcpy(bytes + 1, &value, 8);
    XXH3_64bits_update(state_.get(), bytes, 9);
  } else if (const auto* text = std::get_if<std::string_view>(&cell)) {
    const std::uint64_t size = text->size();
    bytes[0] = 't';
    std::memcpy(bytes + 1, &size, 8);
    XXH3_64bits_update(state_.get(), bytes, 9);
    XXH3_64bits_update(state_.get(), text->data(), text->size());
  } else {
    XXH3_64bits_update(state_.get(), "n", 1);
  }
}

std::string RowHash::hex() const {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits_digest(state_.get())));
  return text;
}

void Statement::bind(int index, const Cell& cell) {
  int code = SQLITE_OK;
  if (const auto* i = std::get_if<std::int64_t>(&cell)) {
    code = sqlite3_bind_int64(statement_, index, *i);
  } else if (const auto* d = std::get_if<double>(&cell)) {
    code = sqlite3_bind_double(statement_, index, *d);
  } else if (const auto* text = std::get_if<std::string_view>(&cell)) {
    const char* data = text->data() == nullptr ? "" : text->data();
    code = sqlite3_bind_text64(statement_, index, data, text->size(), SQLITE_STATIC, SQLITE_UTF8);
  } else {
    code = sqlite3_bind_null(statement_, index);
  }
  CHECK(code == SQLITE_OK || code == SQLITE_TOOBIG || code == SQLITE_NOMEM,
        "statement and values do not fit");
}

Result<bool> Statement::row() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    sqlite3_reset(statement_);
    return false;
  }
  const Error error = sqlite_error(sqlite3_db_handle(statement_));
  sqlite3_reset(statement_);
  return error;
}

Status Statement::run(std::initializer_list<Cell> cells) {
  int index = 0;
  for (const Cell& cell : cells) bind(++index, cell);
  while (TRY(row())) {
  }
  return {};
}

std::string Statement::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  return data == nullptr
             ? std::string()
             : std::string(data, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)));
}

Cell Statement::cell(int column) const {
  switch (sqlite3_column_type(statement_, column)) {
    case SQLITE_INTEGER: return integer(column);
    case SQLITE_FLOAT: return real(column);
    case SQLITE_NULL: return nullptr;
    default: {
      const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
      return std::string_view(data == nullptr ? "" : data,
                              static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)));
    }
  }
}

Result<Database> Database::open(const std::string& file_or_uri, int flags, const char* vfs) {
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(file_or_uri.c_str(), &handle, flags | SQLITE_OPEN_EXRESCODE, vfs);
  Database database(handle);
  if (code != SQLITE_OK) return sqlite_error(handle);
  return database;
}

Status Database::execute(const std::string& sql) {
  if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
    return sqlite_error(handle_);
  return {};
}

Result<Statement> Database::prepare(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(handle_, sql.c_str(), static_cast<int>(sql.size()), &statement, nullptr) !=
      SQLITE_OK) {
    return sqlite_error(handle_);
  }
  return Statement(statement);
}

Result<std::int64_t> Database::integer(const std::string& sql) {
  Statement statement = TRY(prepare(sql));
  return TRY(statement.row()) ? statement.integer(0) : std::int64_t{0};
}

Status Database::require_free_id(const std::string& table) {
  const std::int64_t last = TRY(integer("SELECT coalesce(max(id), 0) FROM " + table));
  if (last == std::numeric_limits<std::int64_t>::max())
    return Error{Errc::bad_input, "table " + table + " has no free id: the largest is taken"};
  return {};
}

StepLimit::StepLimit(Database& database, std::int64_t steps) : handle_(database.handle()) {
  constexpr int kPerCall = 10'000;
  rest_ = steps / kPerCall;
  sqlite3_progress_handler(
      handle_, kPerCall, [](void* self) { return --static_cast<StepLimit*>(self)->rest_ < 0 ? 1 : 0; }, this);
}

Result<Transaction> Transaction::begin(Database& database, bool write) {
  TRY(database.execute(write ? "BEGIN IMMEDIATE" : "BEGIN"));
  return Transaction(&database);
}

Status Transaction::commit() {
  TRY(database_->execute("COMMIT"));
  database_ = nullptr;
  return {};
}

Transaction::~Transaction() {
  // After some errors (disk full) SQLite has rolled back already, and a second ROLLBACK would only fail.
  if (database_ != nullptr && sqlite3_get_autocommit(database_->handle()) == 0) {
    sqlite3_exec(database_->handle(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

}  // namespace gradloom
