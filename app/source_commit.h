// The commit of the folder that a recipe, or the command of a training, lies in: what a regression in Trends is traced to. Git is
// asked, as a program beside this one, for its own folder's HEAD and whether tracked files differ from it; nothing is run of what
// a repository's settings name as its watcher, nothing is written there, and a repository that does not answer within 2 s has
// no commit. Git refuses folders of other users itself.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace gradloom {

struct SourceCommit {
  std::string id;            // 40 or 64 hexadecimal digits
  std::string branch;        // empty: HEAD is on none
  std::int64_t changed = 0;  // tracked files that differ from it
};
// None: no git, no repository, none that has a commit.
std::optional<SourceCommit> source_commit(const std::string& folder);
// What `git status --porcelain=v2 --branch` prints.
std::optional<SourceCommit> parse_git_status(const std::string& text);

// As rows of a run's environment: source.commit, source.branch, source.changed ("no", "2 files").
std::map<std::string, std::string> source_rows(const SourceCommit& commit);
// Of those rows "1a2b3c4d5e6f, 2 files changed"; empty: a run has none.
std::string source_text(const std::map<std::string, std::string>& environment);

}  // namespace gradloom
