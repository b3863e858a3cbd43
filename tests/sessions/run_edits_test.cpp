// Names, tags, notes and pins of runs, and their end.
#include <algorithm>
#include <filesystem>

#include "sessions/sqlite.h"
#include "sessions/store_impl.h"
#include "tests/sessions/forged_session.h"
#include "tests/sessions/session_fixture.h"
#include "tests/sessions/views_10.h"

namespace gradloom::test {
namespace {

using Kind = RunEdit::Kind;

class RunEdits : public SessionTest {
 protected:
  std::unique_ptr<Store> open(StoreMode mode = StoreMode::write) {
    auto store = Store::open(path_, mode);
    EXPECT_TRUE(store.ok()) << error_of(store);
    return std::move(store).value();
  }
  // With a plain connection; the first column of the first row.
  std::int64_t query(const std::string& sql) {
    Result<Database> file = Database::open(path_, SQLITE_OPEN_READWRITE);
    EXPECT_TRUE(file.ok());
    const Result<std::int64_t> value = file->integer(sql);
    EXPECT_TRUE(value.ok()) << sql << ": " << error_of(value);
    return value.ok() ? *value : -1;
  }
  const std::string path_ = file("s.db");
};

TEST_F(RunEdits, WhatIsSaidIsKept) {
  auto store = open();
  const std::int64_t a = write_tiny_run(*store, "a", 4), b = write_tiny_run(*store, "b", 4);
  const auto changes = store->edit_runs({{Kind::rename, a, "base line"},
                                         {Kind::tag, a, "gpu,base"},
                                         {Kind::tag, a, "base,night"},
                                         {Kind::untag, a, "gpu"},
                                         {Kind::note, b, "warm = 40 C\nfan off"},
                                         {Kind::pin, b, ""}});
  ASSERT_TRUE(changes.ok()) << error_of(changes);
  EXPECT_EQ(changes->at(3).tags, (std::vector<std::string>{"base", "night"}));
  store = open(StoreMode::read);
  const auto runs = store->list_runs();
  ASSERT_TRUE(runs.ok()) << error_of(runs);
  EXPECT_EQ(runs->at(0).name, "base line");
  EXPECT_EQ(runs->at(0).tags, (std::vector<std::string>{"base", "night"}));
  EXPECT_FALSE(runs->at(0).pinned);
  EXPECT_EQ(runs->at(1).note, "warm = 40 C\nfan off");
  EXPECT_TRUE(runs->at(1).pinned);
  EXPECT_EQ(*store->find_run("base line"), a);
  for (const std::int64_t run : {a, b}) EXPECT_TRUE(store->check(run).ok()) << error_of(store->check(run));
  store = open();
  ASSERT_TRUE(store->edit_runs({{Kind::unpin, b, ""}, {Kind::note, b, ""}}).ok());
  EXPECT_EQ(query("SELECT count(*) FROM annotation"), 1) << "a run of which nothing is said has no row";
  EXPECT_TRUE(store->check(b).ok()) << error_of(store->check(b));
}

TEST_F(RunEdits, ADeletedRunLeavesNothing) {
  ForgedSession::make(path_);
  write_tiny_loop(path_, 4, true);
  auto store = open();
  std::vector<std::string> tables;
  {
    Result<Database> file = Database::open(path_, SQLITE_OPEN_READWRITE);
    Statement row = file->prepare(
                            "SELECT m.name FROM sqlite_schema m, pragma_table_info(m.name) c "
                            "WHERE m.type = 'table' AND c.name = 'run'")
                        .value();
    while (row.row().value()) tables.push_back(row.text(0));
  }
  EXPECT_EQ(tables.size(), kRunTables.size()) << "a table with rows of runs is in none of the lists";
  const auto rows_of = [&](std::int64_t run) {
    std::int64_t rows = 0;
    for (const std::string& table : tables)
      rows += query("SELECT count(*) FROM " + table + " WHERE run = " + std::to_string(run));
    return rows;
  };
  for (const std::int64_t run : {1, 2, 3, 4}) {
    const std::int64_t before = rows_of(run), others = run < 4 ? rows_of(4) : 0;
    ASSERT_GT(before, 0);
    const auto changes = store->edit_runs({{Kind::remove, run, ""}});
    ASSERT_TRUE(changes.ok()) << error_of(changes);
    EXPECT_TRUE(changes->at(0).deleted);
    EXPECT_EQ(changes->at(0).rows, before + 1) << "and its own row";
    EXPECT_EQ(changes->at(0).comparisons, run == 1 ? 1 : 0);
    EXPECT_EQ(rows_of(run), 0);
    EXPECT_EQ(query("SELECT count(*) FROM run WHERE id = " + std::to_string(run)), 0);
    EXPECT_EQ(run < 4 ? rows_of(4) : 0, others);
    if (run < 4) {
      EXPECT_TRUE(store->check(4).ok()) << error_of(store->check(4));
    }
  }
  EXPECT_EQ(query("SELECT count(*) FROM comparison"), 0);
  EXPECT_EQ(query("SELECT count(*) FROM tuning"), 1) << "belongs to no run";
  EXPECT_EQ(write_tiny_run(*store, "next", 1), 5) << "numbers are not used again";
}

TEST_F(RunEdits, AllOrNothing) {
  auto store = open();
  const std::int64_t a = write_tiny_run(*store, "a", 9), b = write_tiny_run(*store, "b", 9);
  const std::int64_t samples = query("SELECT count(*) FROM kernel_sample");
  ASSERT_TRUE(store->edit_runs({{Kind::pin, b, ""}}).ok());
  const auto refused = [&](std::vector<RunEdit> edits, Errc code, const std::string& message) {
    edits.insert(edits.begin(), {{Kind::rename, a, "other"}, {Kind::remove, a, ""}});
    const auto changes = store->edit_runs(edits);
    ASSERT_FALSE(changes.ok()) << message;
    EXPECT_EQ(changes.error().code, code) << message;
    EXPECT_EQ(changes.error().message, path_ + ": " + message);
    EXPECT_EQ(query("SELECT count(*) FROM kernel_sample"), samples);
    EXPECT_EQ(store->summary(a)->name, "a");
    EXPECT_TRUE(store->check(a).ok()) << error_of(store->check(a));
  };
  refused({{Kind::remove, b, ""}}, Errc::bad_input, "run 2 is pinned (--unpin 2)");
  refused({{Kind::pin, 9, ""}}, Errc::bad_input, "no run 9");
  refused({{Kind::pin, a, ""}}, Errc::bad_input, "no run 1");
  refused({{Kind::untag, b, "x"}}, Errc::bad_input, "run 2 has no tag 'x'");
  refused({{Kind::rename, b, "17"}}, Errc::usage,
          "'17' cannot be the name of a run: it means the run of that number");
  refused({{Kind::rename, b, "last"}}, Errc::usage,
          "'last' cannot be the name of a run: it means the newest run");
  refused({{Kind::rename, b, "a\nb"}}, Errc::usage,
          "'a\\x0ab' cannot be the name of a run: it has control characters");
  refused({{Kind::tag, b, ","}}, Errc::usage, "',' has no tag (a tag, or several: a,b)");
  refused({{Kind::tag, b, "a b"}}, Errc::usage,
          "'a b' cannot be a tag: at most 64 bytes without spaces, quotes, * and ?");
  refused({{Kind::note, b, std::string(5000, 'x')}}, Errc::usage,
          "the note has 5000 bytes; at most 4096 are kept");
  std::string many = "t0";
  for (int i = 1; i < 33; ++i) many += ",t" + std::to_string(i);
  refused({{Kind::tag, b, many}}, Errc::usage, "run 2 would have more than 32 tags");
}

// The run's own process and others write the same row and digest.
TEST_F(RunEdits, ARunningRunIsNamedButNotDeleted) {
  auto writer = open();
  auto run = writer->begin_run(tiny_start("a"));
  ASSERT_TRUE(run.ok());
  ASSERT_TRUE((*run)->add_step({1, 2, 1000, 0.1}).ok());
  ASSERT_TRUE((*run)->flush().ok());
  auto other = open();
  const auto deleted = other->edit_runs({{Kind::remove, 1, ""}});
  ASSERT_FALSE(deleted.ok());
  EXPECT_EQ(deleted.error().message, path_ + ": run 1 is running");
  ASSERT_TRUE(other->edit_runs({{Kind::rename, 1, "b"}, {Kind::tag, 1, "x"}}).ok());
  EXPECT_TRUE(other->check(1).ok()) << error_of(other->check(1));
  ASSERT_TRUE((*run)->add_step({2, 1, 1000, 0.1}).ok());
  ASSERT_TRUE((*run)->finish({}).ok());
  EXPECT_TRUE(other->check(1).ok()) << error_of(other->check(1));
  const auto summary = other->summary(1);
  ASSERT_TRUE(summary.ok()) << error_of(summary);
  EXPECT_EQ(summary->name, "b");
  EXPECT_EQ(summary->tags, std::vector<std::string>{"x"});
  EXPECT_EQ(summary->steps, 2);
}

TEST_F(RunEdits, DamageIsNotCoveredUp) {
  write_tiny_run(*open(), "a", 9);
  query("UPDATE kernel_sample SET duration_ns = 1 WHERE rowid = 2 RETURNING 1");
  auto store = open();
  ASSERT_TRUE(store->edit_runs({{Kind::tag, 1, "x"}, {Kind::rename, 1, "b"}}).ok());
  EXPECT_EQ(error_of(store->check(1)), path_ + ": run 1 is damaged (table kernel_sample)");
  for (const char* sql :
       {"UPDATE annotation SET tags = 'y' RETURNING 1", "UPDATE run SET model = 'other' RETURNING 1"}) {
    query(sql);
    const auto changes = store->edit_runs({{Kind::note, 1, "n"}});
    ASSERT_FALSE(changes.ok()) << sql;
    EXPECT_EQ(changes.error().code, Errc::bad_input);
  }
  EXPECT_EQ(store->list_runs()->at(0).status, "damaged");
  ASSERT_TRUE(store->edit_runs({{Kind::remove, 1, ""}}).ok()) << "it can go";
  EXPECT_TRUE(store->list_runs()->empty());
}

TEST_F(RunEdits, RunsOfOlderVersionsTakeThem) {
  write_tiny_run(*open(), "a", 9);
  for (const char* sql :
       {test::kViews10, "DROP TABLE configuration", "DROP TABLE annotation", "DROP TABLE prediction",
        "DROP INDEX thread_sample_of_run", "DROP TABLE thread_sample", "DROP TABLE exchange_step",
        "DROP TABLE rank_environment", "UPDATE run SET digest = substr(digest, 1, 21 * 17 - 1)",
        "PRAGMA user_version = 8"})
    ASSERT_TRUE(Database::open(path_, SQLITE_OPEN_READWRITE)->execute(sql).ok());
  EXPECT_TRUE(open(StoreMode::read)->list_runs()->at(0).tags.empty());
  auto store = open();
  EXPECT_TRUE(store->check(1).ok()) << error_of(store->check(1));
  ASSERT_TRUE(store->edit_runs({{Kind::tag, 1, "x"}}).ok());
  EXPECT_TRUE(store->check(1).ok()) << error_of(store->check(1));
  query("UPDATE annotation SET tags = 'y' RETURNING 1");
  EXPECT_EQ(error_of(store->check(1)), path_ + ": run 1 is damaged (table annotation)");
}

TEST_F(RunEdits, ACompactFileHoldsTheSame) {
  auto store = open();
  const std::int64_t large = write_tiny_run(*store, "large", 3000),
                     small = write_tiny_run(*store, "small", 9);
  ASSERT_TRUE(store->edit_runs({{Kind::tag, small, "x"}, {Kind::remove, large, ""}}).ok());
  const Status made = store->compact();
  ASSERT_TRUE(made.ok()) << error_of(made);
  const auto bytes = std::filesystem::file_size(path_);
  EXPECT_TRUE(store->check(small).ok()) << error_of(store->check(small));
  store.reset();
  EXPECT_EQ(std::filesystem::file_size(path_), bytes);
  EXPECT_LT(bytes, 300'000u);
  store = open(StoreMode::read);
  EXPECT_TRUE(store->load_run(small).ok()) << "schema and application are as before";
  EXPECT_EQ(store->summary(small)->tags, std::vector<std::string>{"x"});
}

}  // namespace
}  // namespace gradloom::test
