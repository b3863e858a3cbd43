// Two SQLite VFSes over the default one. Only the database itself is wrapped, for its shared memory; the log,
// the journal and temporary files are the default VFS's own.
#include "sessions/sqlite_vfs.h"

#include <sqlite3.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

namespace gradloom {
namespace {

constexpr int kKept = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL;  // not temporary

sqlite3_vfs* system_vfs() {
  static sqlite3_vfs* const vfs = sqlite3_vfs_find(nullptr);
  return vfs;
}

// The database of a reader. The system's file follows it in the memory that SQLite gave.
struct ReadFile {
  sqlite3_file base;
  bool own_memory;             // the index of the log lies in `regions`
  std::vector<void*> regions;  // as many bytes each as SQLite asked for

  sqlite3_file* inner() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

ReadFile& read_file(sqlite3_file* file) { return *reinterpret_cast<ReadFile*>(file); }
sqlite3_file* inner(sqlite3_file* file) { return read_file(file).inner(); }
const sqlite3_io_methods& methods(sqlite3_file* file) { return *inner(file)->pMethods; }

int close_file(sqlite3_file* file) {
  ReadFile& self = read_file(file);
  const int code = methods(file).xClose(self.inner());
  for (void* region : self.regions) std::free(region);
  self.~ReadFile();
  return code;
}

// Shared memory that is not shared: nobody writes the log, else there were a -shm file.
int map_memory(sqlite3_file* file, int region, int bytes, int extend, void volatile** memory) {
  ReadFile& self = read_file(file);
  if (!self.own_memory) return methods(file).xShmMap(self.inner(), region, bytes, extend, memory);
  *memory = nullptr;
  const auto index = static_cast<std::size_t>(region);
  if (index >= self.regions.size() && extend == 0) return SQLITE_OK;
  while (self.regions.size() <= index) {
    void* fresh = std::calloc(1, static_cast<std::size_t>(bytes));
    if (fresh == nullptr) return SQLITE_NOMEM;
    self.regions.push_back(fresh);
  }
  *memory = self.regions[index];
  return SQLITE_OK;
}
int lock_memory(sqlite3_file* file, int offset, int count, int flags) {
  if (read_file(file).own_memory) return SQLITE_OK;
  return methods(file).xShmLock(inner(file), offset, count, flags);
}
void barrier(sqlite3_file* file) {
  if (!read_file(file).own_memory) return methods(file).xShmBarrier(inner(file));
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
int unmap_memory(sqlite3_file* file, int /*remove*/) {
  if (!read_file(file).own_memory) return methods(file).xShmUnmap(inner(file), 0);
  for (void* region : read_file(file).regions) std::free(region);
  read_file(file).regions.clear();
  return SQLITE_OK;
}

int refuse_write(sqlite3_file*, const void*, int, sqlite3_int64) { return SQLITE_READONLY; }
int refuse_truncate(sqlite3_file*, sqlite3_int64) { return SQLITE_READONLY; }

sqlite3_io_methods read_methods() {
  sqlite3_io_methods m{};
  m.iVersion = 2;  // with shared memory, without memory maps of the file
  m.xClose = close_file;
  m.xRead = [](sqlite3_file* f, void* to, int bytes, sqlite3_int64 at) {
    return methods(f).xRead(inner(f), to, bytes, at);
  };
  m.xWrite = refuse_write;
  m.xTruncate = refuse_truncate;
  m.xSync = [](sqlite3_file*, int) { return SQLITE_OK; };
  m.xFileSize = [](sqlite3_file* f, sqlite3_int64* bytes) { return methods(f).xFileSize(inner(f), bytes); };
  m.xLock = [](sqlite3_file* f, int level) { return methods(f).xLock(inner(f), level); };
  m.xUnlock = [](sqlite3_file* f, int level) { return methods(f).xUnlock(inner(f), level); };
  m.xCheckReservedLock = [](sqlite3_file* f, int* held) {
    return methods(f).xCheckReservedLock(inner(f), held);
  };
  m.xFileControl = [](sqlite3_file* f, int what, void* argument) {
    return methods(f).xFileControl(inner(f), what, argument);
  };
  m.xSectorSize = [](sqlite3_file* f) { return methods(f).xSectorSize(inner(f)); };
  m.xDeviceCharacteristics = [](sqlite3_file* f) { return methods(f).xDeviceCharacteristics(inner(f)); };
  m.xShmMap = map_memory;
  m.xShmLock = lock_memory;
  m.xShmBarrier = barrier;
  m.xShmUnmap = unmap_memory;
  return m;
}

int open_to_read(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* opened_flags) {
  file->pMethods = nullptr;  // there is nothing to close when opening fails
  if ((flags & SQLITE_OPEN_SUPER_JOURNAL) != 0) return SQLITE_CANTOPEN;
  sqlite3_vfs* system = system_vfs();
  if ((flags & kKept) == 0) return system->xOpen(system, name, file, flags, opened_flags);
  constexpr int kWriting = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_DELETEONCLOSE;
  flags = (flags & ~kWriting) | SQLITE_OPEN_READONLY;
  if ((flags & SQLITE_OPEN_MAIN_DB) == 0) return system->xOpen(system, name, file, flags, opened_flags);

  static const sqlite3_io_methods kMethods = read_methods();
  auto* self = new (file) ReadFile{};
  self->own_memory = sqlite3_uri_boolean(name, "still_log", 0) != 0;
  const int code = system->xOpen(system, name, self->inner(), flags, opened_flags);
  if (code != SQLITE_OK) {
    self->~ReadFile();
    file->pMethods = nullptr;
    return code;
  }
  self->base.pMethods = &kMethods;
  return SQLITE_OK;
}

int open_to_write(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* opened_flags) {
  file->pMethods = nullptr;
  if ((flags & SQLITE_OPEN_SUPER_JOURNAL) != 0) return SQLITE_CANTOPEN;
  sqlite3_vfs* system = system_vfs();
  return system->xOpen(system, name, file, flags, opened_flags);
}

int refuse_delete(sqlite3_vfs*, const char*, int) { return SQLITE_READONLY; }
int delete_file(sqlite3_vfs*, const char* name, int sync) {
  return system_vfs()->xDelete(system_vfs(), name, sync);
}

// The system's VFS under another name: all methods that take the VFS are handed the system's own.
sqlite3_vfs derived(const char* name) {
  sqlite3_vfs vfs = *system_vfs();
  vfs.iVersion = 2;  // without the system calls that tests of SQLite replace
  vfs.pNext = nullptr;
  vfs.zName = name;
  vfs.pAppData = nullptr;
  vfs.xAccess = [](sqlite3_vfs*, const char* path, int what, int* result) {
    return system_vfs()->xAccess(system_vfs(), path, what, result);
  };
  vfs.xFullPathname = [](sqlite3_vfs*, const char* path, int bytes, char* full) {
    return system_vfs()->xFullPathname(system_vfs(), path, bytes, full);
  };
  vfs.xDlOpen = [](sqlite3_vfs*, const char*) -> void* { return nullptr; };  // no extensions
  vfs.xRandomness = [](sqlite3_vfs*, int bytes, char* out) {
    return system_vfs()->xRandomness(system_vfs(), bytes, out);
  };
  vfs.xSleep = [](sqlite3_vfs*, int us) { return system_vfs()->xSleep(system_vfs(), us); };
  vfs.xCurrentTime = [](sqlite3_vfs*, double* days) {
    return system_vfs()->xCurrentTime(system_vfs(), days);
  };
  vfs.xCurrentTimeInt64 = [](sqlite3_vfs*, sqlite3_int64* ms) {
    return system_vfs()->xCurrentTimeInt64(system_vfs(), ms);
  };
  vfs.xGetLastError = [](sqlite3_vfs*, int bytes, char* out) {
    return system_vfs()->xGetLastError(system_vfs(), bytes, out);
  };
  return vfs;
}

const char* registered(sqlite3_vfs& vfs) {
  return sqlite3_vfs_register(&vfs, 0) == SQLITE_OK ? vfs.zName : "not registered";
}

}  // namespace

const char* reading_vfs() {
  static sqlite3_vfs vfs = [] {
    sqlite3_vfs v = derived("gradloom-reading");
    v.szOsFile += static_cast<int>(sizeof(ReadFile));
    v.xOpen = open_to_read;
    v.xDelete = refuse_delete;
    return v;
  }();
  static const char* const name = registered(vfs);
  return name;
}

const char* writing_vfs() {
  static sqlite3_vfs vfs = [] {
    sqlite3_vfs v = derived("gradloom-writing");
    v.xOpen = open_to_write;
    v.xDelete = delete_file;
    return v;
  }();
  static const char* const name = registered(vfs);
  return name;
}

}  // namespace gradloom
