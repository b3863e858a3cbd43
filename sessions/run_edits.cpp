// What is said of runs after they were recorded (names, tags, notes, pins), and their end.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "engine/base/text.h"
#include "sessions/store.h"
#include "sessions/store_impl.h"

namespace gradloom {
namespace {

constexpr std::size_t kMostNameBytes = 256, kMostTagBytes = 64, kMostTags = 32, kMostNoteBytes = 4096;

// One more than may be is enough to see that there are too many: a file can hold millions.
std::vector<std::string> split_tags(const std::string& text) {
  std::vector<std::string> tags;
  std::istringstream words(text);
  for (std::string tag; tags.size() <= kMostTags && std::getline(words, tag, ',');)
    if (!tag.empty()) tags.push_back(tag);
  return tags;
}

std::string joined_tags(const std::vector<std::string>& tags) {
  std::string text;
  for (const std::string& tag : tags) text += (text.empty() ? "" : ",") + tag;
  return text;
}

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

// Names by which a run could not be found: it is looked for by number, as the last one, or by its name.
Status check_name(const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    return Error{Errc::usage, "'" + escaped(name) + "' cannot be the name of a run: " + why};
  };
  if (name.size() > kMostNameBytes) return refuse(fmt::format("it has more than {} bytes", kMostNameBytes));
  if (std::any_of(name.begin(), name.end(), is_control)) return refuse("it has control characters");
  if (name == "last") return refuse("it means the newest run");
  if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos)
    return refuse("it means the run of that number");
  return {};
}

Result<std::vector<std::string>> check_tags(const std::string& text) {
  std::vector<std::string> tags = split_tags(text);
  if (tags.empty()) return Error{Errc::usage, "'" + escaped(text) + "' has no tag (a tag, or several: a,b)"};
  for (const std::string& tag : tags) {
    const bool bad = std::any_of(tag.begin(), tag.end(), [](unsigned char c) {
      return is_control(c) || c == ' ' || c == '"' || c == '*' || c == '?';
    });
    if (bad || tag.size() > kMostTagBytes)
      return Error{Errc::usage,
                   fmt::format("'{}' cannot be a tag: at most {} bytes without spaces, quotes, * and ?",
                               escaped(tag), kMostTagBytes)};
  }
  return tags;
}

Status check_note(const std::string& note) {
  if (note.size() <= kMostNoteBytes) return {};
  return Error{Errc::usage,
               fmt::format("the note has {} bytes; at most {} are kept", note.size(), kMostNoteBytes)};
}

}  // namespace

Status Store::Impl::read_annotation(RunSummary& summary) {
  if (TRY(version()) < 9) return {};
  Statement row = TRY(database.prepare("SELECT tags, note, pinned FROM annotation WHERE run = ?"));
  row.bind(1, summary.id);
  if (!TRY(row.row())) return {};
  summary.tags = split_tags(row.text(0));
  if (summary.tags.size() > kMostTags) summary.tags.resize(kMostTags);
  summary.note = row.text(1);
  summary.pinned = row.integer(2) != 0;
  return {};
}

// The digest may be of an older version: what it does not know has no rows (damaged_table has looked).
Status Store::Impl::renew_digest(std::int64_t run) {
  Statement row = TRY(database.prepare("SELECT digest FROM run WHERE id = ?"));
  row.bind(1, run);
  TRY(row.row());
  std::istringstream stored(row.text(0));
  row = Statement();
  std::string digest = TRY(hash_run_row(run)), hash;
  stored >> hash;  // of the run's row, as it was
  for (const char* table : kRunTables) {
    if (!(stored >> hash)) hash = RowHash().hex();
    if (table == kAnnotation) hash = TRY(hash_table(table, run, Access::index));
    digest += " " + hash;
  }
  Statement update = TRY(database.prepare("UPDATE run SET digest = ? WHERE id = ?"));
  return update.run({std::string_view(digest), run});
}

Status Store::Impl::remove_run(std::int64_t run, RunChange& change) {
  const auto remove = [&](const std::string& table, const std::string& where, std::int64_t& count) -> Status {
    Statement statement = TRY(database.prepare("DELETE FROM " + table + " WHERE " + where));
    statement.bind(1, run);
    TRY(statement.row());
    count += sqlite3_changes64(database.handle());
    return {};
  };
  for (const char* table : kRunTables) TRY(remove(table, "run = ?1", change.rows));
  TRY(remove("comparison", "run_a = ?1 OR run_b = ?1", change.comparisons));
  change.deleted = true;
  return remove("run", "id = ?1", change.rows);
}

Status Store::Impl::apply(const RunEdit& edit, RunChange& change) {
  using Kind = RunEdit::Kind;
  const std::string table = TRY(damaged_table(edit.run, true));
  const bool remove = edit.kind == Kind::remove;
  if (!table.empty() && !remove) return damaged(edit.run, table);
  RunSummary s;
  s.id = edit.run;
  if (table.empty()) s = TRY(read_summary(edit.run));
  std::set<std::string> tags(s.tags.begin(), s.tags.end());
  switch (edit.kind) {
    case Kind::rename: TRY(check_name(s.name = edit.value)); break;
    case Kind::note: TRY(check_note(s.note = edit.value)); break;
    case Kind::tag:
      for (const std::string& tag : TRY(check_tags(edit.value))) tags.insert(tag);
      break;
    case Kind::untag:
      for (const std::string& tag : TRY(check_tags(edit.value)))
        if (tags.erase(tag) == 0)
          return Error{Errc::bad_input, fmt::format("run {} has no tag '{}'", s.id, escaped(tag))};
      break;
    case Kind::pin:
    case Kind::unpin: s.pinned = edit.kind == Kind::pin; break;
    case Kind::remove:
      if (s.status == "running") return Error{Errc::bad_input, fmt::format("run {} is running", s.id)};
      if (s.pinned) return Error{Errc::bad_input, fmt::format("run {} is pinned (--unpin {})", s.id, s.id)};
      break;
  }
  if (tags.size() > kMostTags)
    return Error{Errc::usage, fmt::format("run {} would have more than {} tags", s.id, kMostTags)};
  s.tags.assign(tags.begin(), tags.end());
  change = {s.id, s.name, s.note, s.tags, s.pinned, false, 0, 0};
  if (remove) return remove_run(s.id, change);
  if (edit.kind == Kind::rename) {
    Statement update = TRY(database.prepare("UPDATE run SET name = ? WHERE id = ?"));
    TRY(update.run({std::string_view(s.name), s.id}));
  } else if (s.tags.empty() && s.note.empty() && !s.pinned) {
    Statement row = TRY(database.prepare("DELETE FROM annotation WHERE run = ?"));
    TRY(row.run({s.id}));
  } else {
    const std::string text = joined_tags(s.tags);
    Statement row = TRY(database.prepare("INSERT OR REPLACE INTO annotation VALUES (?,?,?,?)"));
    TRY(row.run({s.id, std::string_view(text), std::string_view(s.note), std::int64_t{s.pinned}}));
  }
  return renew_digest(s.id);
}

Result<std::vector<RunChange>> Store::edit_runs(const std::vector<RunEdit>& edits) {
  CHECK(impl_->mode == StoreMode::write, "the store was opened for reading");
  std::vector<RunChange> changes(edits.size());
  const auto write = [&]() -> Status {
    TRY(impl_->file_in_place());
    Transaction transaction = TRY(Transaction::begin(impl_->database, true));
    for (std::size_t i = 0; i < edits.size(); ++i) {
      const StepLimit limit(impl_->database, impl_->allowed_steps());
      TRY(impl_->apply(edits[i], changes[i]));
    }
    return transaction.commit();
  };
  const Status status = write();
  if (!status.ok()) return impl_->error(status.error());
  return changes;
}

Status Store::compact() {
  CHECK(impl_->mode == StoreMode::write, "the store was opened for reading");
  const auto write = [&]() -> Status {
    TRY(impl_->file_in_place());
    const StepLimit limit(impl_->database, impl_->allowed_steps());
    sqlite3* const db = impl_->database.handle();
    const int attached =
        sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 1);  // VACUUM attaches the file that it fills
    const Status made = impl_->database.execute("VACUUM");
    sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, attached);
    TRY(made);
    return impl_->database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
  };
  const Status status = write();
  if (!status.ok()) return impl_->error(status.error());
  return {};
}

}  // namespace gradloom
