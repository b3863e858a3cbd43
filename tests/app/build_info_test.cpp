// What the program says of itself: --version, and About in the window.
#include "app/build_info.h"

#include "tests/app/command_fixture.h"
#include "tests/app/window_script.h"

namespace gradloom {
namespace {

using BuildInfoCommand = Commands;
using BuildInfoWindow = WindowScript;

TEST_F(BuildInfoCommand, VersionIsALineOrAnObject) {
  EXPECT_EQ(run({"--version"}).out, "gradloom " + build_info().version + "\n");
  const Outcome o = run({"--version", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(o.lines().size(), 1u) << o.out;
  const json line = o.lines()[0];
  EXPECT_EQ(line["version"], build_info().version);
  EXPECT_EQ(line["license"], "MIT");
  EXPECT_NE(line["compiler"], "");
  const std::string isas = line["isas"], isa = line["isa"];
  EXPECT_NE((" " + isas + " ").find(" " + isa + " "), std::string::npos) << isa << " is none of " << isas;
  for (const char* library : {"oneDNN", "SQLite", "protobuf", "zlib"})
    EXPECT_NE(line["libraries"][library].get<std::string>().find('.'), std::string::npos) << library;
  // The day of the commit, and none where there is no commit.
  const std::string commit = line["commit"], date = line["commit_date"];
  EXPECT_EQ(date.size(), commit.empty() ? 0u : 10u) << date;
}

TEST_F(BuildInfoWindow, AboutTellsTheSame) {
  const BuildInfo& b = build_info();
  ASSERT_EQ(
      open("", "wait idle\nclick menu.Help\nwait 3\nclick menu.help.about\nwait 3\nexpect about.version \"" +
                   b.version +
                   "\"\nexpect about.license MIT\nexpect about.libraries \"*SQLite *\"\n"
                   "expect about.build \"*" +
                   b.compiler + "*\"\nclick about.close\nwait 3\nabsent about.version\n"),
      0)
      << error_;
}

}  // namespace
}  // namespace gradloom
