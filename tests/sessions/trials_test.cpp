// Tables trial and configuration, which a search of tune goes on from.
#include <sqlite3.h>

#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

class Trials : public SessionTest {
 protected:
  // SQL as a user with the sqlite3 shell would run it.
  void change(const std::string& sql) const {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(file("s.db").c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
  }
};

TEST_F(Trials, TrialsAreKeptByJobAndInOrder) {
  const Trial first{"job a", "passes=none", "p1", 1, {0.5, 0.4, 0.6}, 2e6, 1.5e6, 4096, "{}"},
      again{"job a", "passes=none", "p1", 2, {0.55, 0.5, 0.6}, 2e6, 1.5e6, 4096, "{}"},
      other{"job b", "", "p2", 1, {1, 1, 1}, 1e6, 1e6, 4096, "{}"};
  {
    auto store = Store::open(file("s.db"), StoreMode::write);
    ASSERT_TRUE(store.ok());
    for (const Trial* trial : {&first, &other, &again}) ASSERT_TRUE((*store)->add_trial(*trial).ok());
  }
  auto reader = Store::open(file("s.db"), StoreMode::read);
  ASSERT_TRUE(reader.ok());
  const auto trials = (*reader)->list_trials("job a");
  ASSERT_TRUE(trials.ok()) << error_of(trials);
  ASSERT_EQ(trials->size(), 2u);
  EXPECT_EQ((*trials)[0].ratio.value, 0.5);
  EXPECT_EQ((*trials)[1].round, 2);
  EXPECT_EQ((*trials)[1].changes, "passes=none");
  EXPECT_EQ((*trials)[1].peak_bytes, 4096);
  EXPECT_TRUE((*reader)->list_trials("job c")->empty());
  EXPECT_EQ((*reader)->list_trials()->size(), 3u) << "of all jobs";
  EXPECT_FALSE((*reader)->add_trial(first).ok()) << "opened for reading";
  reader = Error{};
  change("UPDATE trial SET ratio = 3 WHERE id = 1");
  reader = Store::open(file("s.db"), StoreMode::read);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->list_trials("job a")->size(), 1u) << "a changed row is left out";
}

TEST_F(Trials, ConfigurationsAreKeptBesideTheirTrials) {
  const TriedConfiguration job{"job a", "", "", "p0", 8192, 2e6, 1, 1e-6, "{}"},
      other{"job b", "passes=none", "none", "p1", 4096, 3e6, 0.5, -1, "{}"};
  {
    auto store = Store::open(file("s.db"), StoreMode::write);
    ASSERT_TRUE(store.ok());
    for (const TriedConfiguration* c : {&job, &other}) ASSERT_TRUE((*store)->add_configuration(*c).ok());
  }
  change(
      "INSERT INTO configuration SELECT NULL, created_utc, job, changes, label, plan_hash, 1, "
      "step_ns, predicted, error, recipe, digest FROM configuration WHERE id = 1");
  auto reader = Store::open(file("s.db"), StoreMode::read);
  ASSERT_TRUE(reader.ok());
  const auto all = (*reader)->list_configurations();
  ASSERT_TRUE(all.ok()) << error_of(all);
  ASSERT_EQ(all->size(), 2u) << "a changed row is left out";
  const auto of_b = (*reader)->list_configurations("job b");
  ASSERT_EQ(of_b->size(), 1u);
  EXPECT_EQ((*of_b)[0].label, "none");
  EXPECT_EQ((*of_b)[0].predicted, 0.5);
  EXPECT_EQ((*of_b)[0].error, -1);
  EXPECT_EQ((*of_b)[0].peak_bytes, 4096);
  EXPECT_EQ((*all)[0].error, 1e-6);
  EXPECT_TRUE((*reader)->list_configurations("job c")->empty());
  EXPECT_FALSE((*reader)->add_configuration(job).ok()) << "opened for reading";
}

}  // namespace
}  // namespace gradloom::test
