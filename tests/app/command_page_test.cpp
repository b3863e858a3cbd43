#include "app/command_page.h"

#include "app/command.h"
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

using CommandPage = Commands;

TEST_F(CommandPage, TheCommittedPageIsWhatTheCommandsDeclare) {
  EXPECT_EQ(read_file(GRADLOOM_SOURCE_DIR "/docs/commands.md"), command_page() + "\n")
      << "gradloom help --markdown > docs/commands.md";
  EXPECT_EQ(run({"help", "--markdown"}).out, command_page() + "\n");
}

TEST_F(CommandPage, EveryFlagOfACommandsHelpStandsInItsSection) {
  const std::string page = command_page();
  for (const CommandDef& def : all_commands()) {
    const std::size_t begin = page.find("\n## " + std::string(def.name) + "\n");
    ASSERT_NE(begin, std::string::npos) << def.name;
    const std::string section = page.substr(begin, page.find("\n## ", begin + 1) - begin);
    std::istringstream help(run({def.name, "--help"}).out);
    int flags = 0;
    for (std::string line; std::getline(help, line);) {
      const std::size_t at = line.find("--");
      if (line.rfind("  -", 0) != 0 || line.find("--help") != std::string::npos) continue;
      const std::string flag = line.substr(at, line.find_first_of(" ", at) - at);
      EXPECT_NE(section.find(flag + "`"), std::string::npos) << def.name << " " << flag;
      ++flags;
    }
    EXPECT_GE(flags, 1) << def.name;
  }
}

TEST_F(CommandPage, HelpNamesACommandOrTheNearest) {
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  const std::string help = run({"help", "compare"}).out;
  EXPECT_NE(help.find("Usage: gradloom compare [OPTIONS] [SIDES...]\n"), std::string::npos) << help;
  EXPECT_EQ(help, run({"compare", "--help"}).out);
  expect_error({"help", "comapre"}, 2, "did you mean compare?");
}

}  // namespace
}  // namespace gradloom
