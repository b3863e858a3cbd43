// What SQLite may do to files, in both ways of opening a session. SQLite trusts the files beside a database:
// a rollback journal can name any other file (its "super-journal"), which SQLite deletes when it has rolled
// back. Sessions come from strangers, so their files go through these layers over the system's own:
//
// - reading: nothing is written, created or deleted, whatever the files say. The log of a run that was killed
//   is read with an index in memory (URI parameter still_log=1), so that no -shm file is needed either.
// - writing: super-journals are not opened, hence never deleted.
//
// Source: sqlite.org/vfs.html, sqlite.org/walformat.html, pager.c (pager_delsuper). Private to sessions/.
#pragma once

namespace gradloom {

// Names for sqlite3_open_v2; registered by the first call.
const char* reading_vfs();
const char* writing_vfs();

}  // namespace gradloom
