// What gradloom help makes of the declarations for shells and man. Shells and groff that are not installed are left out, bash is not.
#include <gtest/gtest.h>

#include <set>

#include "app/command.h"
#include "app/command_sheets.h"
#include "app/completion.h"
#include "passes/pass.h"
#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

class HelpCommand : public Commands {
 protected:
  void SetUp() override {
    std::ofstream(path("gradloom.bash")) << run({"help", "--completion", "bash"}).out;
    fs::create_directory(path("work"));
    for (const char* name : {"a.onnx", "[a].onnx", "b.db", "c.json", "tokens.bin"})
      std::ofstream(path("work/") + name) << "x";
    fs::create_directory(path("work/sub"));
  }
  // The exit code of a command line, with what it said on both in `said_`.
  int shell(const std::string& line) {
    const int status = std::system((line + " > " + path("said") + " 2>&1").c_str());
    said_ = read_file(path("said"));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  bool installed(const std::string& program) { return shell("command -v " + program) == 0; }
  // What bash offers where the last word stands. Words are parted as readline does, at = and : too.
  std::set<std::string> offered(const std::vector<std::string>& words) {
    std::string list;
    for (const std::string& word : words) list += " '" + word + "'";
    std::ofstream(path("ask.bash"))
        << "cd " << path("work") << "\nsource " << path("gradloom.bash")
        << "\ncomplete -p gradloom | grep -q -e '-F _gradloom' || exit 9\nCOMP_WORDS=(" << list
        << ")\nCOMP_CWORD=" << words.size() - 1
        << "\n_gradloom\n[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\\n' \"${COMPREPLY[@]}\"\n";
    EXPECT_EQ(shell("bash --norc " + path("ask.bash")), 0) << said_;
    std::set<std::string> all;
    std::istringstream lines(said_);
    for (std::string line; std::getline(lines, line);) all.insert(line);
    return all;
  }
  std::string said_;
};

TEST_F(HelpCommand, BashCompletesCommandsAndFlags) {
  std::set<std::string> commands{"--help", "--version"};
  for (const CommandDef& def : all_commands()) commands.insert(def.name);
  EXPECT_EQ(offered({"gradloom", ""}), commands);
  EXPECT_EQ(offered({"gradloom", "re"}), (std::set<std::string>{"recipe", "report"}));
  for (const CommandSheet& command : command_sheets()) {
    std::set<std::string> flags{"--help"};
    for (const FlagSheet& flag : command.flags) {
      std::istringstream names(flag.names);
      for (std::string name; std::getline(names, name, ',');) flags.insert(name);
    }
    EXPECT_EQ(offered({"gradloom", command.name, "-"}), flags) << command.name;
  }
  EXPECT_EQ(offered({"gradloom", "train", "--save"}), std::set<std::string>{"--save-params"});
}

TEST_F(HelpCommand, BashCompletesValues) {
  using Words = std::set<std::string>;
  Words passes{"default", "none"};
  for (const PassDef* pass : all_passes()) passes.insert(pass->name);
  EXPECT_EQ(offered({"gradloom", "train", "--passes", ""}), passes);
  EXPECT_EQ(offered({"gradloom", "plan", "m.onnx", "--passes", "default,-fuse-gel"}),
            Words{"default,-fuse-gelu"});
  EXPECT_EQ(offered({"gradloom", "train", "--passes", "=", "fuse-gelu,cs"}), Words{"fuse-gelu,cse"});
  EXPECT_EQ(offered({"gradloom", "train", "--device", ""}), (Words{"cpu", "cuda:", "hip:", "host-gpu"}));
  EXPECT_EQ(offered({"gradloom", "train", "--optimizer", "adam"}), (Words{"adam", "adamw", "adamw_hf"}));
  EXPECT_EQ(offered({"gradloom", "train", "--precision", ""}), (Words{"bf16", "f16", "f32", "f64"}));
  EXPECT_EQ(offered({"gradloom", "train", "--profile", "s"}), (Words{"sampled", "step"}));
  EXPECT_EQ(offered({"gradloom", "train", "--shuffle", ""}), (Words{"off", "on"}));
  EXPECT_EQ(offered({"gradloom", "train", "--planner", ""}), (Words{"best-fit", "none", "reuse"}));
  EXPECT_EQ(offered({"gradloom", "train", "--data", "t"}), Words{"tokens:"});
  EXPECT_EQ(offered({"gradloom", "train", "--data", "tokens", ":", "tok"}), Words{"tokens.bin"});
  EXPECT_EQ(offered({"gradloom", "train", "--steps", ""}), Words{});
  EXPECT_EQ(offered({"gradloom", "show", "--group", "p"}), (Words{"pass", "phase"}));
  EXPECT_EQ(offered({"gradloom", "open", "--theme", ""}), (Words{"contrast", "dark", "light"}));
  EXPECT_EQ(offered({"gradloom", "help", "--completion", ""}), (Words{"bash", "fish", "zsh"}));
  EXPECT_EQ(offered({"gradloom", "help", "tra"}), (Words{"trace", "train"}));
  EXPECT_EQ(offered({"gradloom", "passes", "fuse-gel"}), Words{"fuse-gelu"});
}

TEST_F(HelpCommand, BashCompletesFiles) {
  using Words = std::set<std::string>;
  EXPECT_EQ(offered({"gradloom", "inspect", ""}), (Words{"[a].onnx", "a.onnx", "sub"}));
  EXPECT_EQ(offered({"gradloom", "open", ""}), (Words{"[a].onnx", "a.onnx", "b.db", "c.json", "sub"}));
  EXPECT_EQ(offered({"gradloom", "show", ""}),
            (Words{"[a].onnx", "a.onnx", "b.db", "c.json", "sub", "tokens.bin"}))
      << "a session may be called anything";
  EXPECT_EQ(offered({"gradloom", "train", "--checkpoint", ""}), Words{"sub"});
  EXPECT_EQ(offered({"gradloom", "train", "--export-onnx", "a"}), Words{"a.onnx"});
}

TEST_F(HelpCommand, TheProgramAloneTellsWhatThereIsByGroups) {
  const Outcome alone = run({});
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(alone.out, run({"--help"}).out);
  for (const CommandDef& def : all_commands()) {
    const std::size_t group = alone.out.find("\n" + std::string(def.group) + ":\n");
    const std::size_t command = alone.out.find("\n  " + std::string(def.name) + " ");
    ASSERT_NE(group, std::string::npos) << def.group;
    ASSERT_NE(command, std::string::npos) << def.name;
    EXPECT_LT(group, command) << def.name;
  }
  EXPECT_EQ(run({"--json"}).code, 2) << "JSON has no list of commands";
}

TEST_F(HelpCommand, OtherShellsReadTheirScripts) {
  for (const std::string shell_name : {"bash", "zsh", "fish"}) {
    const Outcome o = run({"help", "--completion", shell_name});
    ASSERT_EQ(o.code, 0) << o.err;
    for (const CommandDef& def : all_commands()) EXPECT_NE(o.out.find(def.name), std::string::npos);
    if (!installed(shell_name)) {
      std::printf("no %s here\n", shell_name.c_str());
      continue;
    }
    std::ofstream(path("script")) << o.out;
    EXPECT_EQ(shell(shell_name + " -n " + path("script")), 0) << said_;
    EXPECT_EQ(said_, "");
  }
  expect_error({"help", "--completion", "csh"}, 2, "csh");
}

TEST_F(HelpCommand, FishOffersThem) {
  if (!installed("fish")) GTEST_SKIP() << "no fish here";
  std::ofstream(path("c.fish")) << run({"help", "--completion", "fish"}).out;
  const auto asked = [&](const std::string& line) {
    EXPECT_EQ(shell("cd " + path("work") + " && fish --no-config -c 'source " + path("c.fish") +
                    "; complete -C \"" + line + "\"'"),
              0)
        << said_;
    return said_;
  };
  EXPECT_NE(asked("gradloom tr").find("train\t"), std::string::npos) << said_;
  EXPECT_NE(asked("gradloom train --dev").find("--device"), std::string::npos) << said_;
  EXPECT_NE(asked("gradloom train --device h").find("host-gpu"), std::string::npos) << said_;
  EXPECT_NE(asked("gradloom train --passes cse,fuse-gel").find("cse,fuse-gelu"), std::string::npos) << said_;
  EXPECT_NE(asked("gradloom inspect a").find("a.onnx"), std::string::npos) << said_;
}

TEST_F(HelpCommand, ManReadsItsPage) {
  const Outcome o = run({"help", "--man"});
  ASSERT_EQ(o.code, 0) << o.err;
  std::ofstream(path("gradloom.1")) << o.out;
  for (const CommandSheet& command : command_sheets()) {
    std::string heading = "\n.SS " + command.name + "\n";  // in roff a bare hyphen may break a word
    if (const std::size_t at = heading.find('-'); at != std::string::npos) heading.insert(at, 1, '\\');
    EXPECT_NE(o.out.find(heading), std::string::npos) << command.name;
    EXPECT_FALSE(command.examples.empty());
  }
  if (!installed("groff")) GTEST_SKIP() << "no groff here";
  EXPECT_EQ(shell("groff -man -ww -Tutf8 -z " + path("gradloom.1")), 0);
  EXPECT_EQ(said_, "");
  EXPECT_EQ(shell("groff -man -Tascii -P-cbou " + path("gradloom.1")), 0);
  for (const char* words : {"gradloom show [OPTIONS] SESSION", "--passes",
                            "gradloom trace s.db -o trace.pftrace", "'tag:base step<10ms -status:failed'"})
    EXPECT_NE(said_.find(words), std::string::npos) << words;
}

}  // namespace
}  // namespace gradloom
