#include "sessions/session_page.h"

#include "sessions/sqlite.h"
#include "sessions/store.h"
#include "tests/paths.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

using SessionPage = SessionTest;

TEST_F(SessionPage, TheCommittedPageIsTheSchemas) {
  const auto page = session_page();
  ASSERT_TRUE(page.ok()) << page.error().message;
  EXPECT_EQ(read_all(GRADLOOM_SOURCE_DIR "/docs/sessions.md"), *page + "\n")
      << "gradloom help --sessions > docs/sessions.md";
}

// What SQLite makes of the schema, against what was read from its text.
TEST_F(SessionPage, EveryTableViewAndColumnIsThere) {
  const auto page = session_page();
  ASSERT_TRUE(page.ok()) << page.error().message;
  auto database = Database::open(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  ASSERT_TRUE(database.ok());
  ASSERT_TRUE(database->execute(schema_sql()).ok());
  auto columns = database->prepare(
      "SELECT s.name, c.name, s.type, c.type FROM sqlite_schema s, pragma_table_info(s.name) c "
      "WHERE s.type IN ('table', 'view') AND s.name NOT LIKE 'sqlite_%'");
  ASSERT_TRUE(columns.ok());
  int seen = 0;
  for (auto more = columns->row(); more.ok() && *more; more = columns->row(), ++seen) {
    const std::size_t begin = page->find("### " + columns->text(0) + "\n");
    ASSERT_NE(begin, std::string::npos) << columns->text(0);
    const std::string section = page->substr(begin, page->find("\n##", begin) - begin);
    const std::string column = "`" + columns->text(1) + "`";
    EXPECT_NE(
        section.find(columns->text(2) == "table" ? "| " + column + " | " + columns->text(3) + " |" : column),
        std::string::npos)
        << columns->text(0) << "." << columns->text(1);
  }
  EXPECT_GT(seen, 150);
}

}  // namespace
}  // namespace gradloom::test
