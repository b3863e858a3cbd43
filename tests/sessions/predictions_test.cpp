#include "sessions/predictions.h"

#include <sqlite3.h>

#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

class Predictions : public SessionTest {};

TEST_F(Predictions, AreKeptInOrder) {
  KeptPrediction first{.question = "precision=bf16",
                       .plan_hash = "p1",
                       .hardware = "a processor",
                       .step_ns = 3e6,
                       .predicted_ns = 2e6,
                       .low_ns = 1.5e6,
                       .high_ns = 2.5e6,
                       .recipe_json = "{}"};
  KeptPrediction second = first;
  second.question = "op:MatMul 2x";
  second.plan_hash.clear();
  {
    auto store = Store::open(file("s.db"), StoreMode::write);
    ASSERT_TRUE(store.ok());
    for (const KeptPrediction* p : {&first, &second}) ASSERT_TRUE((*store)->add_prediction(*p).ok());
  }
  auto reader = Store::open(file("s.db"), StoreMode::read);
  ASSERT_TRUE(reader.ok());
  const auto kept = (*reader)->list_predictions();
  ASSERT_TRUE(kept.ok()) << error_of(kept);
  ASSERT_EQ(kept->size(), 2u);
  EXPECT_EQ((*kept)[0].question, first.question);
  EXPECT_EQ((*kept)[0].high_ns, 2.5e6);
  EXPECT_FALSE((*kept)[0].created_utc.empty());
  EXPECT_EQ((*kept)[1].plan_hash, "");
  EXPECT_FALSE((*reader)->add_prediction(first).ok()) << "opened for reading";
  reader = Error{};
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(file("s.db").c_str(), &db), SQLITE_OK);
  EXPECT_EQ(
      sqlite3_exec(db, "UPDATE prediction SET predicted_ns = 1 WHERE id = 1", nullptr, nullptr, nullptr),
      SQLITE_OK);
  sqlite3_close(db);
  reader = Store::open(file("s.db"), StoreMode::read);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->list_predictions()->size(), 1u) << "a changed row is left out";
}

}  // namespace
}  // namespace gradloom::test
