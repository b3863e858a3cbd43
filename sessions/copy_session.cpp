#include "sessions/copy_session.h"

#include <sys/stat.h>

#include "engine/base/text.h"
#include "sessions/session_file.h"

namespace gradloom {
namespace {

constexpr int kPagesAtOnce = 4096, kTries = 5, kPauseMs = 20;

Status back_up(const Database& from, const Database& to) {
  sqlite3_backup* backup = sqlite3_backup_init(to.handle(), "main", from.handle(), "main");
  if (backup == nullptr) return sqlite_error(to.handle());
  int code = SQLITE_OK;
  while (code == SQLITE_OK) code = sqlite3_backup_step(backup, kPagesAtOnce);
  sqlite3_backup_finish(backup);
  if (code != SQLITE_DONE) return sqlite_error(to.handle());
  return {};
}

}  // namespace

Status copy_session(const std::string& from, const std::string& to) {
  Status last;
  for (int i = 0; i < kTries; ++i) {
    if (i > 0) sqlite3_sleep(kPauseMs);
    const SessionFile source = TRY(open_session_file(from, StoreMode::read));
    const Database copy = TRY(Database::open(to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE));
    last = back_up(source.database, copy);
    if (last && (!source.unlocked || source.stamp == stamp_of(from))) return {};
  }
  return last ? Status(Error{Errc::io, escaped(from) + " changes faster than it can be read"}) : last;
}

std::string session_stamp(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || info.st_size == 0) return "";  // or it is only just being made
  std::string text;
  for (const std::int64_t number : stamp_of(path).of) text += std::to_string(number) + " ";
  return text;
}

}  // namespace gradloom
