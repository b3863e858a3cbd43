// update-session: files of older programs, those of this one, and what is no session.
#include <gtest/gtest.h>

#include "sessions/sqlite.h"
#include "sessions/store.h"
#include "tests/app/command_fixture.h"
#include "tests/sessions/views_10.h"

namespace gradloom {
namespace {

using UpdateSession = Commands;

TEST_F(UpdateSession, OldFilesBecomeNewOnes) {
  const std::string old = path("old.db"), fresh = path("fresh.db");
  for (const std::string& session : {old, fresh}) {
    const Outcome made = run(train_mlp({"--steps", "2", "--session", session}));
    ASSERT_EQ(made.code, 0) << made.err;
  }
  ASSERT_TRUE(Database::open(old, SQLITE_OPEN_READWRITE)->execute(test::as_version_10()).ok());
  const Outcome o = run({"update-session", old, fresh, "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(o.lines().size(), 2u);
  EXPECT_EQ(o.lines()[0]["from"], 10);
  EXPECT_EQ(o.lines()[0]["to"], kSchemaVersion);
  EXPECT_EQ(o.lines()[1]["from"], kSchemaVersion);
  EXPECT_NE(run({"update-session", old}).out.find("the newest already"), std::string::npos);
  EXPECT_EQ(run({"show", old}).code, 0);
}

TEST_F(UpdateSession, WhatIsNoSessionStaysAsItIs) {
  expect_error({"update-session", path("missing.db")}, 5, "missing.db");
  EXPECT_FALSE(fs::exists(path("missing.db")));
  std::ofstream(path("text")) << "no session";
  expect_error({"update-session", path("text")}, 3, "not a Gradloom session");
  EXPECT_EQ(read_file(path("text")), "no session");
}

}  // namespace
}  // namespace gradloom
