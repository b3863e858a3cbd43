// A session's file and what lies beside it: looked at before SQLite opens it, opened, validated, and brought
// to this version when it is to be written.
//
// A session may come from a stranger, with a journal (-journal), a log (-wal) and its index (-shm). Reading
// writes, makes and deletes nothing, on any medium; a session that another process writes is read while it
// grows. A reader rolls no journal back, and a writer none that names another file.
// Errors: Errc::bad_input for what is not a (valid) session, Errc::io. Private to sessions/.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "sessions/sqlite.h"
#include "sessions/store.h"

namespace gradloom {

// Tells two states of a file that nobody was seen writing apart.
struct FileStamp {
  std::array<std::int64_t, 9> of{};  // inode, size and time of the file, its log and the log's index
  bool operator==(const FileStamp&) const = default;
  std::int64_t bytes() const { return of[1] + of[4]; }  // of file and log
};

struct SessionFile {
  Database database;
  // Read without locks, as nobody wrote it. Somebody may begin to:
  // what is read counts when `stamp` is still stamp_of(path).
  bool unlocked = false;
  FileStamp stamp;
};

// Errors name `path`.
Result<SessionFile> open_session_file(const std::string& path, StoreMode mode);
FileStamp stamp_of(const std::string& path);
// A database of another program's, to read as it lies there: nothing beside it counts or is written.
Result<Database> open_foreign_database(const std::string& path);

}  // namespace gradloom
