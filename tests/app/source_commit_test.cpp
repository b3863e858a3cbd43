// The commit that runs, lists of runs and trends name.
#include "app/source_commit.h"

#include "tests/app/command_fixture.h"

namespace gradloom {
namespace {

const std::string kId(40, 'a');

TEST(GitStatus, TellsCommitBranchAndChangedFiles) {
  const auto clean = parse_git_status("# branch.oid " + kId + "\n# branch.head main\n# branch.ab +1 -0\n");
  ASSERT_TRUE(clean.has_value());
  EXPECT_EQ(clean->id, kId);
  EXPECT_EQ(clean->branch, "main");
  EXPECT_EQ(clean->changed, 0);
  const auto dirty = parse_git_status("# branch.oid " + kId +
                                      "\n# branch.head (detached)\n1 .M N... a\n2 R. N... b\nu UU N... c\n");
  ASSERT_TRUE(dirty.has_value());
  EXPECT_EQ(dirty->branch, "");
  EXPECT_EQ(dirty->changed, 3);
  for (const std::string& text :
       {std::string(), std::string("# branch.oid (initial)\n# branch.head main\n"),
        std::string("# branch.oid 12ab\n"), "# branch.oid " + std::string(40, 'x') + "\n"})
    EXPECT_FALSE(parse_git_status(text).has_value()) << text;
}

TEST(GitStatus, RowsSayItInWords) {
  EXPECT_EQ(source_text(source_rows({kId, "main", 0})), "aaaaaaaaaaaa");
  EXPECT_EQ(source_text(source_rows({kId, "", 2})), "aaaaaaaaaaaa, 2 files changed");
  EXPECT_EQ(source_rows({kId, "", 1}).count("source.branch"), 0u);
  EXPECT_EQ(source_text({}), "");
}

class SourceCommitOfRuns : public Commands {
 protected:
  void SetUp() override {
    fs::create_directory(path("repo"));
    if (git("init -q -b main") != 0) GTEST_SKIP() << "no git here";
  }
  int git(const std::string& words) const {
    return std::system(("git -C '" + path("repo") +
                        "' -c user.name=a -c user.email=a@b -c commit.gpgsign=false " + words +
                        " > /dev/null 2>&1")
                           .c_str());
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path("repo/" + name)) << text;
  }
  std::string commit(const std::string& text) const {
    write("note.txt", text);
    EXPECT_EQ(git("add -A"), 0);
    EXPECT_EQ(git("commit -q -m x"), 0);
    return source_commit(path("repo")).value_or(SourceCommit{}).id;
  }
};

TEST_F(SourceCommitOfRuns, IsThatOfTheFolder) {
  EXPECT_FALSE(source_commit(path("repo")).has_value()) << "no commit yet";
  EXPECT_FALSE(source_commit(path("absent")).has_value());
  const std::string first = commit("one");
  ASSERT_EQ(first.size(), 40u);
  fs::create_directory(path("repo/inner"));
  write("inner/untracked.txt", "");
  const auto inner = source_commit(path("repo/inner"));
  ASSERT_TRUE(inner.has_value());
  EXPECT_EQ(inner->id, first);
  EXPECT_EQ(inner->branch, "main");
  EXPECT_EQ(inner->changed, 0) << "what git does not track is no change";
  write("note.txt", "two, longer");
  EXPECT_EQ(source_commit(path("repo"))->changed, 1);
  EXPECT_NE(commit("three"), first);
}

// What a repository names as its watcher of files is a program: it is not run.
TEST_F(SourceCommitOfRuns, RunsNothingThatTheRepositoryNames) {
  commit("one");
  write("watcher.sh", "#!/bin/sh\ntouch '" + path("ran") + "'\n");
  fs::permissions(path("repo/watcher.sh"), fs::perms::owner_all);
  ASSERT_EQ(git("config core.fsmonitor '" + path("repo/watcher.sh") + "'"), 0);
  EXPECT_TRUE(source_commit(path("repo")).has_value());
  EXPECT_FALSE(fs::exists(path("ran")));
}

TEST_F(SourceCommitOfRuns, IsRecordedOfTheRecipeAndToldByTheLists) {
  const std::string session = path("s.db"), recipe = path("repo/r.json");
  ASSERT_EQ(run(train_mlp({"--steps", "2", "--session", session})).code, 0);
  ASSERT_EQ(run({"export", session, "-o", recipe}).code, 0);
  const std::string id = commit("one");
  ASSERT_EQ(run({"train", "--recipe", recipe, "--steps", "2", "--session", session}).code, 0);
  write("note.txt", "changed since");
  ASSERT_EQ(run({"train", "--recipe", recipe, "--steps", "2", "--session", session}).code, 0);
  const auto runs = run({"runs", session, "--json"}).lines();
  ASSERT_EQ(runs.size(), 3u);
  std::map<int, std::string> commits;
  for (const json& line : runs) commits[line["run_id"]] = line["commit"];
  EXPECT_EQ(commits[2], id.substr(0, 12));
  EXPECT_EQ(commits[3], id.substr(0, 12) + ", 1 file changed");
  EXPECT_NE(run({"runs", session}).out.find(id.substr(0, 12)), std::string::npos);
  const json shown = run({"show", session, "--run", "3", "--json"}).lines().at(0);
  EXPECT_EQ(shown["environment"]["source.commit"], id);
  EXPECT_EQ(shown["environment"]["source.changed"], "1 file");
  EXPECT_EQ(shown["environment"]["source.branch"], "main");
}

}  // namespace
}  // namespace gradloom
