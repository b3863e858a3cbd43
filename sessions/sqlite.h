// A thin layer over SQLite: errors as Result, statements that reset themselves, hashes of rows as they are
// written and read. Private to sessions/.
#pragma once

#include <sqlite3.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "engine/base/result.h"

struct XXH3_state_s;

namespace gradloom {

// One value of a row. NaN is stored as NULL (SQLite has none) and -0 as 0.
using Cell = std::variant<std::nullptr_t, std::int64_t, double, std::string_view>;

// Hash of a sequence of rows; the same whether fed with what is bound or with what is read back.
class RowHash {
 public:
  RowHash();
  RowHash(const RowHash& other);
  RowHash& operator=(const RowHash& other);
  RowHash(RowHash&&) noexcept = default;
  RowHash& operator=(RowHash&&) noexcept = default;
  ~RowHash() = default;
  void add(const Cell& cell);
  std::string hex() const;  // 16 digits; more may be added afterwards

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

class Statement {
 public:
  explicit Statement(sqlite3_stmt* statement = nullptr) : statement_(statement) {}
  Statement(Statement&& other) noexcept : statement_(std::exchange(other.statement_, nullptr)) {}
  Statement& operator=(Statement&& other) noexcept {
    std::swap(statement_, other.statement_);
    return *this;
  }
  ~Statement() { sqlite3_finalize(statement_); }

  void bind(int index, const Cell& cell);         // text must stay valid until the statement ran
  Result<bool> row();                             // true: a row is there; false: done, and reset
  Status run(std::initializer_list<Cell> cells);  // binds all, runs to the end, resets

  int columns() const { return sqlite3_column_count(statement_); }
  bool is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  int small(int column) const { return sqlite3_column_int(statement_, column); }
  // Of nanoseconds, bytes and places in memory: what a file holds outside of 0 .. 2^58 counts as the nearest
  // of them, so that sums of two do not overflow.
  std::int64_t size(int column) const {
    return std::clamp<std::int64_t>(integer(column), 0, std::int64_t{1} << 58);
  }
  double real(int column) const { return sqlite3_column_double(statement_, column); }
  std::string text(int column) const;
  Cell cell(int column) const;  // text is valid until the next row

 private:
  sqlite3_stmt* statement_;
};

class Database {
 public:
  // `vfs`: one of sqlite_vfs.h; null: SQLite's own, for databases in memory.
  static Result<Database> open(const std::string& file_or_uri, int flags, const char* vfs = nullptr);
  Database(Database&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Database& operator=(Database&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Database() { sqlite3_close_v2(handle_); }

  sqlite3* handle() const { return handle_; }
  Status execute(const std::string& sql);
  Result<Statement> prepare(const std::string& sql);
  // First column of the first row; 0 when there is none.
  Result<std::int64_t> integer(const std::string& sql);
  // An error where the table's ids are used up, which SQLite would report as a full disk.
  Status require_free_id(const std::string& table);
  std::int64_t last_id() const { return sqlite3_last_insert_rowid(handle_); }

 private:
  explicit Database(sqlite3* handle) : handle_(handle) {}
  sqlite3* handle_;
};

Error sqlite_error(sqlite3* handle);

// Stops SQL of the database that takes more steps of SQLite's machine: what a hostile file can make of any
// statement ends, at the same place on every machine.
class StepLimit {
 public:
  StepLimit(Database& database, std::int64_t steps);
  ~StepLimit() { sqlite3_progress_handler(handle_, 0, nullptr, nullptr); }
  StepLimit(const StepLimit&) = delete;
  StepLimit& operator=(const StepLimit&) = delete;

 private:
  sqlite3* handle_;
  std::int64_t rest_;  // in calls of the handler
};

// Rolls back unless committed.
class Transaction {
 public:
  static Result<Transaction> begin(Database& database, bool write);
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Database* database) : database_(database) {}
  Database* database_;
};

}  // namespace gradloom
