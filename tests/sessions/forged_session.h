// Sessions as a stranger could make them: any value in any column, with the digests that belong to them, so
// that reading goes past what protects from damage. Columns and tables are those of the file itself.
#pragma once

#include <sqlite3.h>

#include "engine/ops/collectives/all_reduce.h"
#include "sessions/sqlite.h"
#include "sessions/store_impl.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {

struct ForgedColumn {
  std::string table, name;
};

class ForgedSession {
 public:
  // A session with rows in every table: a run as of the CPU (1), one as of a GPU (2), and one (3) with loss scales, a loop's
  // spans, two ranks, a kernel of two threads and an evaluation; a comparison, tuning, a prediction, trials, tags and a note.
  static void make(const std::string& path) {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok()) << error_of(store);
    write_tiny_run(**store, "one", 12);
    write_tiny_run(**store, "two", 12, true, {{"gpu.name", "test"}, {"gpu.throttle", "none"}});
    auto run = (*store)->begin_run(tiny_start("scaled"));
    ASSERT_TRUE(run.ok());
    TinyStep exchanging = tiny_step(false);
    exchanging.graph.nodes[2].op = &all_reduce_sum_op();
    ASSERT_TRUE((*run)->write_plan(exchanging.graph, exchanging.plan, exchanging.reports).ok());
    (*run)->add_host_spans(
        nested_spans({{"data", "set", 100, 300}, {"engine", "net", 500, 400}}, 1, 0, 1000));
    ASSERT_TRUE(
        (*run)
            ->write_ranks({{0, "here", 0, 2, "cpu", 0, 0}, {1, "there", 0, 2, "cpu", 7, 3, {{"isa", "v4"}}}})
            .ok());
    (*run)->add_rank_step(1,
                          {{{1, {0, 0, 100, 50}}}, {{0, 0, 0, 120, 40, 10, 64}, {1, 0, 0, 130, 30, 0, 64}}});
    (*run)->add_evaluation({1, 0.25, 3, 777});
    const KernelSample shared{0, 0, 100, 60, {{0, 100, 160, 50}, {1, 110, 150, 40}}};
    ASSERT_TRUE((*run)->add_step({1, 2, 1000, 0.1, -1, true, 65536, 0}, {shared}).ok());
    RunFinish end;
    end.implementations = {{{"gemm", "cublasLt 13.1.0", "algorithm 66", false}}};
    ASSERT_TRUE((*run)->finish(end).ok());
    Comparison comparison;
    comparison.a = "a";
    comparison.kernels.push_back({"/fc/MatMul", "forward", 1, 1, 10, 20, 0.5});
    ASSERT_TRUE((*store)->add_comparison(comparison, 1, 2).ok());
    ASSERT_TRUE((*store)->add_tuning("test", {{"k", {"c", 5}}}).ok());
    ASSERT_TRUE(
        (*store)->add_prediction({.question = "threads=1", .plan_hash = "p", .recipe_json = "{}"}).ok());
    ASSERT_TRUE((*store)->add_trial({"job", "threads=1", "p", 1, {1.1, 1.0, 1.2}, 10, 11, 100, "{}"}).ok());
    ASSERT_TRUE(
        (*store)->add_configuration({"job", "threads=1", "one thread", "p", 100, 10, 1.1, 1e-6, "{}"}).ok());
    ASSERT_TRUE((*store)->edit_runs({{RunEdit::Kind::tag, 1, "a,b"}, {RunEdit::Kind::note, 3, "n"}}).ok());
  }

  // Opens `path` with its declarations loosened: any type, NULL, no checks.
  explicit ForgedSession(const std::string& path) : path_(path) {
    Database file = open();
    Statement row = file.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").value();
    while (row.row().value()) tables_.emplace_back(row.text(0), row.text(1));
    std::erase_if(tables_, [](const auto& table) { return table.first.rfind("sqlite_", 0) == 0; });
    row = Statement();
    for (const auto& [name, sql] : tables_) {
      std::string loose = sql;
      for (const char* word : {" STRICT", " NOT NULL", "AUTOINCREMENT"})
        for (std::size_t at = 0; (at = loose.find(word)) != std::string::npos;)
          loose.erase(at, std::string(word).size());
      if (const std::size_t at = loose.find(" CHECK ("); at != std::string::npos)
        loose.erase(at, loose.find("))", at) + 2 - at);
      set_schema(file, name, loose);
    }
  }

  std::vector<ForgedColumn> columns() const {
    std::vector<ForgedColumn> all;
    Database file = open();
    for (const auto& [table, sql] : tables_) {
      Statement row = file.prepare("SELECT name FROM pragma_table_info('" + table + "')").value();
      while (row.row().value()) all.push_back({table, row.text(0)});
    }
    return all;
  }

  Status execute(const std::string& sql) const { return open().execute(sql); }

  // Renews the digests and puts the declarations back.
  void finish(bool renew_digests = true) const {
    Database file = open();
    ASSERT_TRUE(file.execute("BEGIN").ok());
    Statement runs = file.prepare("SELECT rowid FROM run").value();
    std::vector<std::int64_t> ids;
    while (runs.row().value()) ids.push_back(runs.integer(0));
    if (!renew_digests) ids.clear();
    for (const std::int64_t id : ids) {
      Statement update = file.prepare("UPDATE run SET digest = ? WHERE id = ?").value();
      const std::string digest = digest_of(file, id);
      ASSERT_TRUE(update.run({std::string_view(digest), id}).ok());
    }
    if (renew_digests) renew_rows(file);
    for (const auto& [name, sql] : tables_) set_schema(file, name, sql);
    ASSERT_TRUE(file.execute("COMMIT").ok());
    ASSERT_TRUE(file.execute("PRAGMA wal_checkpoint(TRUNCATE)").ok());
  }
  // Too large for SQLite's own check of all its pages: a hole at its end.
  void look_large() const { std::filesystem::resize_file(path_, 70 << 20); }

 private:
  Database open() const {
    Result<Database> file = Database::open(path_, SQLITE_OPEN_READWRITE);
    EXPECT_TRUE(file.ok()) << error_of(file);
    EXPECT_TRUE(file->execute("PRAGMA synchronous = OFF").ok());
    return std::move(file).value();
  }
  static void set_schema(Database& file, const std::string& table, const std::string& sql) {
    ASSERT_TRUE(file.execute("PRAGMA writable_schema = ON").ok());
    Statement update =
        file.prepare("UPDATE sqlite_schema SET sql = ? WHERE type = 'table' AND name = ?").value();
    ASSERT_TRUE(update.run({std::string_view(sql), std::string_view(table)}).ok());
  }
  static void add_rows(RowHash& hash, Statement& rows, int columns) {
    while (rows.row().value())
      for (int i = 0; i < columns; ++i) hash.add(rows.cell(i));
  }
  static std::string digest_of(Database& file, std::int64_t run) {
    RowHash own;
    Statement row = file.prepare("SELECT * FROM run WHERE id = ?").value();
    row.bind(1, run);
    add_rows(own, row, row.columns() - 1);
    std::string digest = own.hex();
    for (const char* table : kRunTables) {
      RowHash hash;
      Statement rows =
          file.prepare(std::string("SELECT * FROM ") + table + " WHERE run = ? ORDER BY rowid").value();
      rows.bind(1, run);
      add_rows(hash, rows, rows.columns());
      digest += " " + hash.hex();
    }
    return digest;
  }
  // Of tables that belong to no run each row has a digest of its own; what it is made of, in the order of its hash.
  static void renew_rows(Database& file) {
    const std::pair<const char*, const char*> hashed[] = {
        {"comparison", "run_a, run_b, created_utc, body"},
        {"trial",
         "created_utc, job, changes, plan_hash, recipe, round, peak_bytes, ratio, ratio_low, ratio_high, step_ns, predicted_ns"},
        {"configuration",
         "created_utc, job, changes, label, plan_hash, recipe, peak_bytes, step_ns, predicted, error"},
        {"prediction",
         "created_utc, question, plan_hash, hardware, recipe, step_ns, predicted_ns, low_ns, high_ns"}};
    for (const auto& [table, columns] : hashed) {
      Statement rows = file.prepare(std::string("SELECT rowid, ") + columns + " FROM " + table).value();
      std::vector<std::pair<std::int64_t, std::string>> digests;
      while (rows.row().value()) {
        RowHash hash;
        for (int i = 1; i < rows.columns(); ++i) hash.add(rows.cell(i));
        digests.emplace_back(rows.integer(0), hash.hex());
      }
      for (const auto& [id, digest] : digests) {
        Statement update =
            file.prepare(std::string("UPDATE ") + table + " SET digest = ? WHERE rowid = ?").value();
        ASSERT_TRUE(update.run({std::string_view(digest), id}).ok());
      }
    }
  }

  std::string path_;
  std::vector<std::pair<std::string, std::string>> tables_;  // name, declaration
};

}  // namespace gradloom::test
