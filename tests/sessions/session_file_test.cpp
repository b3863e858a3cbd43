// What lies beside a session from a stranger: nothing is deleted or written by reading, nothing of others by
// writing, and a session that grows or was killed is read all the same.
#include "sessions/session_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "tests/sessions/hot_journal.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {
namespace fs = std::filesystem;

class SessionFileTest : public SessionTest {
 protected:
  void SetUp() override {
    fs::create_directory(file("there"));
    fs::create_directory(file("outside"));
    write_all(victim_, "a letter");
  }
  // A session of one run, closed.
  void make(const std::string& path) const {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok()) << error_of(store);
    write_tiny_run(**store, "a", 9);
  }
  // As `make`, but killed before the run's end, so that its log stays.
  static void make_killed(const std::string& path) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto store = Store::open(path, StoreMode::write);
      if (!store.ok()) ::_exit(1);
      write_tiny_run(**store, "a", 9);
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_GT(fs::file_size(path + "-wal"), 0u);
  }
  // What lies beside sessions and is none.
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& one : fs::directory_iterator(file("there")))
      if (const std::string name = one.path().filename(); name.find(".db.new-") != std::string::npos)
        names.push_back(name);
    return names;
  }
  std::map<std::string, std::string> everything() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      const std::string name = entry.path().string();
      files[name] = entry.is_symlink()        ? "-> " + fs::read_symlink(name).string()
                    : entry.is_regular_file() ? read_all(name)
                                              : "";
    }
    return files;
  }
  static std::int64_t steps(Store& store) {
    const auto record = store.load_run(1);
    EXPECT_TRUE(record.ok()) << error_of(record);
    const auto trace = store.load_trace(1);
    EXPECT_TRUE(trace.ok()) << error_of(trace);
    return record.ok() ? record->summary.steps : -1;
  }
  static std::int64_t steps(const std::string& path) {
    auto store = Store::open(path, StoreMode::read);
    EXPECT_TRUE(store.ok()) << error_of(store);
    return store.ok() ? steps(**store) : -1;
  }
  const std::string session_ = file("there/s.db"), victim_ = file("outside/letter");
};

TEST_F(SessionFileTest, AJournalThatNamesAnotherFileDeletesNothing) {
  const auto plain_read = [&](const std::string& path) {
    sqlite3* db = nullptr;
    sqlite3_open(path.c_str(), &db);
    sqlite3_exec(db, "SELECT count(*) FROM sqlite_schema", nullptr, nullptr, nullptr);
    sqlite3_close(db);
  };
  make(session_);
  const std::string good = read_all(session_);
  const auto pages = static_cast<std::uint32_t>(good.size() / 4096);
  sqlite3* db = nullptr;
  sqlite3_open(file("other.db").c_str(), &db);
  sqlite3_exec(db, "CREATE TABLE t (x)", nullptr, nullptr, nullptr);
  sqlite3_close(db);
  std::string damaged = good;
  damaged.replace(4096, 4096, std::string(4096, '\xa5'));
  const std::pair<const char*, std::string> files[] = {{"a session", good},
                                                       {"a damaged session", damaged},
                                                       {"another program's", read_all(file("other.db"))},
                                                       {"text", std::string(9000, 'x')},
                                                       {"empty", ""}};
  for (const auto& [what, bytes] : files) {
    write_all(session_, bytes);
    write_all(session_ + "-journal", hot_journal(victim_, pages));
    const auto before = everything();
    for (const StoreMode mode : {StoreMode::read, StoreMode::write}) {
      const auto store = Store::open(session_, mode);
      ASSERT_FALSE(store.ok()) << what;
      EXPECT_EQ(store.error().code, Errc::bad_input) << store.error().message;
      EXPECT_EQ(store.error().message.find('\n'), std::string::npos);
      EXPECT_EQ(everything(), before) << what;
    }
  }
  write_all(session_, good);
  const auto store = Store::open(session_, StoreMode::read);
  ASSERT_FALSE(store.ok());
  EXPECT_NE(store.error().message.find("names another file"), std::string::npos) << store.error().message;
  plain_read(session_);
  EXPECT_FALSE(fs::exists(victim_)) << "the journal of this test is none that SQLite obeys";
}

// Killed at any moment of its making: it is not there, or a session.
TEST_F(SessionFileTest, ANewOneIsWholeOnceItHasItsName) {
  int there = 0, missing = 0;
  constexpr int kKills = 50;
  for (int i = 0; i < kKills; ++i) {
    const std::string path = file("there/new-" + std::to_string(i) + ".db");
    const pid_t child = ::fork();
    if (child == 0) {
      (void)Store::open(path, StoreMode::write);
      ::pause();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * i));
    // The last is killed as soon as it is there.
    for (int k = 0; i == kKills - 1 && k < 20000 && !fs::exists(path); ++k)
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!fs::exists(path)) {
      ++missing;
      continue;
    }
    ++there;
    const auto store = Store::open(path, StoreMode::read);
    EXPECT_TRUE(store.ok()) << error_of(store);
  }
  std::printf("%d sessions, %d not there yet\n", there, missing);
  EXPECT_GT(there, 0);
  // The next to open each for writing removes what the killed ones left.
  for (int i = 0; i < kKills; ++i)
    EXPECT_TRUE(Store::open(file("there/new-" + std::to_string(i) + ".db"), StoreMode::write).ok());
  EXPECT_EQ(left(), std::vector<std::string>());
}

// Only what nobody makes any more is removed: a lock says so, whatever number its maker has.
// Whoever deletes a session need not know of the log beside it.
TEST_F(SessionFileTest, TheLogOfOneThatWasKilledAndDeletedIsNotTheNextOnes) {
  const std::string path = file("there/s.db");
  for (int i = 0; i < 3; ++i) {
    make_killed(path);
    fs::remove(path);
    ASSERT_TRUE(fs::exists(path + "-wal"));
    if (i == 1) fs::remove(path + "-shm");
    make(path);
    auto store = Store::open(path, StoreMode::read);
    ASSERT_TRUE(store.ok()) << error_of(store);
    EXPECT_EQ((*store)->list_runs()->size(), 1u) << "the run of the deleted one is not in it";
    fs::remove(path);
    EXPECT_EQ(left(), std::vector<std::string>());
  }
}

TEST_F(SessionFileTest, ANewOneThatIsBeingMadeIsLeftAlone) {
  const std::string path = file("there/s.db"), stale = path + ".new-1", busy = path + ".new-2",
                    other = file("there/other.db.new-3");
  for (const std::string& name : {stale, busy, other}) {
    write_all(name, "a part of a session");
    write_all(name + "-journal", "its journal");
    write_all(name + "-lock", "");
  }
  write_all(path + ".new-4", "of a program that has no locks");
  const int lock = ::open((busy + "-lock").c_str(), O_RDWR);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  make(path);
  for (const char* end : {"", "-journal", "-lock"}) {
    EXPECT_FALSE(fs::exists(stale + end)) << end;
    EXPECT_TRUE(fs::exists(busy + end)) << end;
    EXPECT_TRUE(fs::exists(other + end)) << end;
  }
  EXPECT_TRUE(fs::exists(path + ".new-4"));
  ::close(lock);
  EXPECT_TRUE(Store::open(path, StoreMode::write).ok());
  EXPECT_FALSE(fs::exists(busy));
}

TEST_F(SessionFileTest, LinksLeadToWhatLiesBesideTheirTarget) {
  make(session_);
  fs::create_symlink(session_, file("link.db"));
  EXPECT_EQ(steps(file("link.db")), 9);
  write_all(session_ + "-journal", hot_journal(victim_, 40));
  const auto before = everything();
  for (const StoreMode mode : {StoreMode::read, StoreMode::write})
    EXPECT_FALSE(Store::open(file("link.db"), mode).ok());
  EXPECT_EQ(everything(), before);
}

TEST_F(SessionFileTest, OnlyRegularFilesBesideIt) {
  make(session_);
  for (const char* end : {"-journal", "-wal", "-shm"}) {
    for (const char* kind : {"link", "pipe", "folder"}) {
      const std::string name = session_ + end;
      if (*kind == 'l') fs::create_symlink(victim_, name);
      if (*kind == 'p') {
        ASSERT_EQ(::mkfifo(name.c_str(), 0600), 0);
      }
      if (*kind == 'f') fs::create_directory(name);
      const auto before = everything();
      for (const StoreMode mode : {StoreMode::read, StoreMode::write}) {
        const auto store = Store::open(session_, mode);
        ASSERT_FALSE(store.ok()) << end << kind;
        EXPECT_NE(store.error().message.find("is not a regular file"), std::string::npos)
            << store.error().message;
      }
      EXPECT_EQ(everything(), before) << end << kind;
      fs::remove(name);
    }
    fs::create_hard_link(victim_, session_ + end);
    EXPECT_FALSE(Store::open(session_, StoreMode::write).ok()) << end;
    EXPECT_EQ(read_all(victim_), "a letter");
    fs::remove(session_ + end);
  }
}

TEST_F(SessionFileTest, ReadingLeavesEverythingAsItWas) {
  const auto reads = [&](const char* what) {
    const auto before = everything();
    EXPECT_EQ(steps(session_), 9) << what;
    EXPECT_EQ(everything(), before) << what;
  };
  make(session_);
  reads("closed");
  write_all(session_ + "-shm", std::string(32768, '\xff'));
  reads("an index of rubbish without a log");
  write_all(session_ + "-wal", "");
  reads("an empty log");
  write_all(session_ + "-wal", std::string(100'000, '\xff'));
  reads("a log of rubbish");
  fs::remove(session_ + "-shm");
  reads("a log of rubbish without an index");
  write_all(session_ + "-wal", std::string("\x37\x7f\x06\x82", 4) + std::string(100'000, '\0'));
  reads("a log whose header only looks right");
  write_all(session_ + "-shm", std::string(32768, '\xff'));
  reads("such a log with an index");

  const std::string killed = file("killed.db");  // beside the log's header another has written nothing
  make_killed(killed);
  write_all(session_ + "-wal", read_all(killed + "-wal").substr(0, 32));
  write_all(session_ + "-shm", read_all(killed + "-shm"));
  reads("killed behind the header of its log");
  fs::remove(session_ + "-shm");
  reads("the same, and the index not copied");

  for (const char* end : {"", "-wal", "-shm"}) fs::remove(session_ + end);
  make_killed(session_);
  reads("killed");
  fs::remove(session_ + "-shm");
  reads("killed, and the index not copied");
  fs::permissions(file("there"), fs::perms::owner_read | fs::perms::owner_exec);
  reads("killed, in a folder that cannot be written");
  fs::permissions(file("there"), fs::perms::owner_all);
  make(session_);
  EXPECT_FALSE(fs::exists(session_ + "-wal")) << "a writer takes the log into the file";
}

TEST_F(SessionFileTest, AnInterruptedWriteIsRolledBackByWritersAlone) {
  make(session_);
  const auto pages = static_cast<std::uint32_t>(fs::file_size(session_) / 4096);
  write_all(session_ + "-journal", hot_journal("", pages));
  const auto before = everything();
  const auto store = Store::open(session_, StoreMode::read);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, Errc::bad_input);
  EXPECT_NE(store.error().message.find("interrupted"), std::string::npos) << store.error().message;
  EXPECT_EQ(everything(), before);
  make(session_);
  EXPECT_EQ(steps(session_), 9);
  write_all(session_ + "-journal", std::string(1000, '\0'));
  EXPECT_EQ(steps(session_), 9) << "a journal whose transaction was finished";
}

// A process that writes a step whenever it is told to; the parent reads meanwhile.
class Writer {
 public:
  explicit Writer(const std::string& path) {
    EXPECT_EQ(::pipe(to_), 0);
    EXPECT_EQ(::pipe(from_), 0);
    child_ = ::fork();
    if (child_ != 0) return;
    char command = 0;
    if (::read(to_[0], &command, 1) != 1) ::_exit(1);
    auto store = Store::open(path, StoreMode::write);
    if (!store.ok()) ::_exit(2);
    auto run = (*store)->begin_run(tiny_start("grows"));
    const TinyStep t = tiny_step(false);
    if (!run.ok() || !(*run)->write_plan(t.graph, t.plan, t.reports).ok()) ::_exit(3);
    for (std::int64_t step = 1; command == 's'; ++step) {
      for (int many = 0; many < 200; ++many)  // more than the log takes before SQLite empties it
        if (!(*run)->add_step({step, 1, 1, 0.1, -1, true}, tiny_samples(t, step)).ok()) ::_exit(4);
      if (!(*run)->flush().ok()) ::_exit(5);
      if (::write(from_[1], "d", 1) != 1 || ::read(to_[0], &command, 1) != 1) ::_exit(6);
    }
    if (!(*run)->finish({}).ok()) ::_exit(7);
    run->reset();
    store->reset();
    ::_exit(0);
  }
  void step() const {
    char done = 0;
    ASSERT_EQ(::write(to_[1], "s", 1), 1);
    ASSERT_EQ(::read(from_[0], &done, 1), 1);
  }
  void finish() const {
    ASSERT_EQ(::write(to_[1], "f", 1), 1);
    int status = 0;
    ::waitpid(child_, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }

 private:
  int to_[2] = {}, from_[2] = {};
  pid_t child_ = 0;
};

TEST_F(SessionFileTest, ASessionIsReadWhileItGrows) {
  for (const bool before_it : {true, false}) {
    for (const char* end : {"", "-wal", "-shm"}) fs::remove(session_ + end);
    make(session_);
    const Writer writer(session_);
    std::unique_ptr<Store> reader;  // kept open, from before or after the writer began
    const auto open = [&] { reader = std::move(Store::open(session_, StoreMode::read)).value(); };
    if (before_it) open();
    writer.step();
    if (!before_it) open();
    for (std::int64_t step = 1; step <= 20; ++step) {
      const auto runs = reader->list_runs();
      ASSERT_TRUE(runs.ok()) << error_of(runs);
      ASSERT_EQ(runs->size(), 2u);
      EXPECT_EQ(runs->back().steps, step * 200);
      const auto fresh = Store::open(session_, StoreMode::read);
      ASSERT_TRUE(fresh.ok()) << error_of(fresh);
      const auto record = (*fresh)->load_run(2);
      ASSERT_TRUE(record.ok()) << error_of(record);
      EXPECT_EQ(record->steps.size(), static_cast<std::size_t>(step * 200));
      writer.step();
    }
    writer.finish();
    fs::copy_file(session_, file("alone.db"), fs::copy_options::overwrite_existing);
    auto alone = Store::open(file("alone.db"), StoreMode::read);
    ASSERT_TRUE(alone.ok()) << error_of(alone);
    EXPECT_EQ((*alone)->summary(2)->status, "done") << "the file alone is the session, whoever reads it";
    EXPECT_EQ(reader->summary(2)->status, "done");
  }
}

}  // namespace
}  // namespace gradloom::test
