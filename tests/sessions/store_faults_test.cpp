// Files that are not sessions, damage, kill -9, full disks, read-only places.
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "profiler/sampler.h"
#include "sessions/random.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

using StoreFaults = SessionTest;

void plain_sql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* message = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK) << message;
  sqlite3_free(message);
  sqlite3_close(db);
}

// Runs `body` in a child and returns its exit status; 99: it ended some other way.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

TEST_F(StoreFaults, ForeignFilesAreRefusedAndUntouched) {
  const auto refused = [&](const std::string& path, const char* why, Errc code = Errc::bad_input) {
    const std::string before = read_all(path);
    for (const StoreMode mode : {StoreMode::read, StoreMode::write}) {
      const auto store = Store::open(path, mode);
      ASSERT_FALSE(store.ok()) << path;
      EXPECT_EQ(store.error().code, code) << store.error().message;
      EXPECT_NE(store.error().message.find(why), std::string::npos) << store.error().message;
      EXPECT_EQ(store.error().message.find('\n'), std::string::npos);
    }
    EXPECT_EQ(read_all(path), before);
    EXPECT_FALSE(std::filesystem::exists(path + "-wal"));
  };
  plain_sql(file("other.db"), "CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('x')");
  refused(file("other.db"), "another program");
  write_all(file("text"), std::string(5000, 'x'));
  refused(file("text"), "not an SQLite file");
  write_all(file("short"), "SQLite format 3");
  refused(file("short"), "too short");
  ASSERT_EQ(::mkfifo(file("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(Store::open(file("pipe"), StoreMode::read).ok()) << "and does not wait for a writer";
  EXPECT_FALSE(Store::open(folder_.path(), StoreMode::read).ok());
  EXPECT_EQ(Store::open(file("missing"), StoreMode::read).error().code, Errc::io);
  EXPECT_EQ(Store::open(file("no/folder/s.db"), StoreMode::write).error().code, Errc::io);
  EXPECT_EQ(Store::open("", StoreMode::write).error().code, Errc::usage);
}

TEST_F(StoreFaults, ChangedSchemasAreRefused) {
  const auto fresh = [&](const std::string& path) {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok()) << error_of(store);
    write_tiny_run(**store, "a", 3);
  };
  const std::pair<const char*, const char*> edits[] = {
      {"PRAGMA user_version = 12", "newer"},
      {"PRAGMA user_version = 0", "no format version"},
      {"DROP TABLE tuning", "missing"},
      {"DROP TABLE tuning; CREATE VIEW tuning AS SELECT 1 AS id", "missing"},
      {"DROP VIEW v_kernels; CREATE VIEW v_kernels AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + "
       "1 FROM c) SELECT x FROM c",
       "not as expected"},
      {"CREATE TRIGGER t AFTER INSERT ON loss BEGIN DELETE FROM loss; END", "trigger"},
      {"PRAGMA application_id = 1", "another program"}};
  for (const auto& [sql, why] : edits) {
    const std::string path = file("s.db");
    std::filesystem::remove(path);
    fresh(path);
    plain_sql(path, sql);
    const auto store = Store::open(path, StoreMode::read);
    ASSERT_FALSE(store.ok()) << sql;
    EXPECT_EQ(store.error().code, Errc::bad_input);
    EXPECT_NE(store.error().message.find(why), std::string::npos) << store.error().message;
  }
  const std::string path = file("extra.db");
  fresh(path);
  plain_sql(path, "CREATE TABLE my_notes (x TEXT)");
  EXPECT_TRUE(Store::open(path, StoreMode::read).ok()) << "additions of the user are fine";
}

// Trials of a randomized test: `fallback`, or what the environment asks for (long runs by hand).
int trials(const char* variable, int fallback) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : fallback;
}

// What a reader gets from run 1, as text; empty and `error` set when refused.
std::string read_run(const std::string& path, std::string& error) {
  auto store = Store::open(path, StoreMode::read);
  if (!store.ok()) return error = store.error().message, "";
  auto record = (*store)->load_run(1);
  if (!record.ok()) return error = record.error().message, "";
  std::string text =
      record->summary.model + record->summary.optimizer + record->recipe_json + record->summary.started_utc;
  text += record->summary.note;
  for (const auto& [name, value] : record->environment) text += name + value;
  for (const StepRow& s : record->steps)
    text += std::to_string(s.step) + " " + std::to_string(s.loss) + " " + std::to_string(s.step_ns) + "\n";
  for (const KernelRow& k : record->kernels)
    text +=
        k.info.kernel + k.info.node + std::to_string(k.total_ns) + " " + std::to_string(k.median_ns) + "\n";
  for (const PassRow& p : record->passes)
    text += p.name + std::to_string(p.matched) + (p.log.empty() ? "" : p.log[0].why);
  for (const BufferRow& b : record->buffers) text += b.values[0] + std::to_string(b.offset) + "\n";
  return text;
}

TEST_F(StoreFaults, NoBitFlipIsSilent) {
  const std::string path = file("s.db"), copy = file("copy.db");
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok());
    write_tiny_run(**store, "a", 900);  // most of the file is rows, not free space
    ASSERT_TRUE((*store)->edit_runs({{RunEdit::Kind::note, 1, std::string(4000, 'n')}}).ok());
  }
  const std::string good = read_all(path);
  std::string error;
  const std::string expected = read_run(path, error);
  ASSERT_FALSE(expected.empty()) << error;
  Pcg32 random(11);
  int detected = 0, harmless = 0;
  const int flips = trials("GRADLOOM_TEST_FLIPS", 600);
  for (int i = 0; i < flips; ++i) {
    std::string bytes = good;
    bytes[random.below(static_cast<std::uint32_t>(bytes.size()))] ^= static_cast<char>(1u << random.below(8));
    write_all(copy, bytes);
    error.clear();
    const std::string got = read_run(copy, error);
    if (got.empty()) {
      ++detected;
      EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    } else {
      ASSERT_EQ(got, expected) << "flip " << i << " changed what is read";
      ++harmless;
    }
    for (const char* end : {"", "-wal", "-shm", "-journal"}) std::filesystem::remove(copy + end);
  }
  std::printf("%d flips: %d detected, %d harmless (free space), 0 silent\n", flips, detected, harmless);
  EXPECT_GT(detected, flips / 4);
}

TEST_F(StoreFaults, TruncatedFilesAreRefused) {
  const std::string path = file("s.db"), copy = file("copy.db");
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok());
    write_tiny_run(**store, "a", 60);
  }
  const std::string good = read_all(path);
  std::string error;
  const std::string expected = read_run(path, error);
  constexpr std::size_t kPageBytes = 4096;
  for (std::size_t size = 0; size < good.size(); size += 4099) {
    write_all(copy, good.substr(0, size));
    error.clear();
    const std::string got = read_run(copy, error);
    // Of the last page only free space may be missing: then nothing is lost.
    if (size + kPageBytes > good.size() && error.empty()) {
      EXPECT_EQ(got, expected) << size;
    } else {
      EXPECT_EQ(got, "") << size;
      EXPECT_FALSE(error.empty()) << size;
    }
    for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(copy + end);
  }
}

// The child acknowledges each flush in a log of its own, outside the session.
[[noreturn]] void write_until_killed(const std::string& path, const std::string& acks) {
  const int log = ::open(acks.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  auto store = Store::open(path, StoreMode::write);
  if (!store.ok()) ::_exit(1);
  auto run = (*store)->begin_run(tiny_start("killed"));
  if (!run.ok()) ::_exit(2);
  const TinyStep t = tiny_step(false);
  if (!(*run)->write_plan(t.graph, t.plan, t.reports).ok()) ::_exit(3);
  for (std::int64_t step = 1;; ++step) {
    if (!(*run)
             ->add_step({step, 1.0 / static_cast<double>(step), 1000 + step, 0.1, -1, true},
                        tiny_samples(t, step))
             .ok())
      ::_exit(4);
    if (step % 3 != 0) continue;
    if (!(*run)->flush().ok()) ::_exit(5);
    if (::write(log, &step, sizeof step) != sizeof step) ::_exit(6);
  }
}

TEST_F(StoreFaults, AcknowledgedStepsSurviveKill9) {
  const std::string path = file("s.db"), acks = file("acks");
  Pcg32 random(5);
  const int kills = trials("GRADLOOM_TEST_KILLS", 40);
  std::int64_t acknowledged_steps = 0, runs_seen = 0;
  for (int trial = 0; trial < kills; ++trial) {
    std::filesystem::remove(acks);
    const pid_t child = ::fork();
    if (child == 0) write_until_killed(path, acks);
    // From before the file exists to well into the run.
    std::this_thread::sleep_for(std::chrono::microseconds(200 + random.below(150'000)));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself with " << WEXITSTATUS(status);

    const std::string log = read_all(acks);
    std::int64_t acknowledged = 0;
    if (log.size() >= 8) std::memcpy(&acknowledged, log.data() + (log.size() / 8 - 1) * 8, 8);
    auto store = Store::open(path, StoreMode::read);
    if (!store.ok()) {
      // Killed before the schema was there: an empty file is fine, lost acknowledgements are not.
      ASSERT_EQ(acknowledged, 0) << error_of(store);
      ASSERT_EQ(runs_seen, 0) << error_of(store);
      continue;
    }
    auto runs = (*store)->list_runs();
    ASSERT_TRUE(runs.ok()) << error_of(runs);
    for (const RunSummary& run : *runs) {
      EXPECT_EQ(run.status, "interrupted");
      EXPECT_TRUE((*store)->check(run.id).ok()) << error_of((*store)->check(run.id));
    }
    const auto seen = static_cast<std::int64_t>(runs->size());
    ASSERT_GE(seen, runs_seen);
    if (acknowledged > 0) {
      ASSERT_EQ(seen, runs_seen + 1);
      auto record = (*store)->load_run(runs->back().id);
      ASSERT_TRUE(record.ok()) << error_of(record);
      ASSERT_GE(record->summary.steps, acknowledged) << "trial " << trial;
      for (std::size_t i = 0; i < record->steps.size(); ++i) {
        ASSERT_EQ(record->steps[i].step, static_cast<std::int64_t>(i) + 1);
        ASSERT_EQ(record->steps[i].loss, 1.0 / static_cast<double>(i + 1));
      }
      const std::int64_t steps = record->summary.steps;
      ASSERT_EQ(record->kernels[0].samples, steps > kWarmupSteps ? steps - kWarmupSteps : steps)
          << "a step and its samples are committed together";
    }
    runs_seen = seen;
    acknowledged_steps += acknowledged;
  }
  std::printf("%d kills, %lld runs, %lld acknowledged steps, 0 lost\n", kills,
              static_cast<long long>(runs_seen), static_cast<long long>(acknowledged_steps));
  EXPECT_GT(acknowledged_steps, 0);
}

TEST_F(StoreFaults, FullDiskKeepsWhatWasCommittedAndRetries) {
  const std::string path = file("s.db");
  const int code = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    auto store = Store::open(path, StoreMode::write);
    if (!store.ok()) return 1;
    auto run = (*store)->begin_run(tiny_start("full"));
    if (!run.ok()) return 2;
    const TinyStep t = tiny_step(false);
    if (!(*run)->write_plan(t.graph, t.plan, t.reports).ok()) return 3;
    if (!(*run)->add_step({1, 1, 1, 0.1, -1, true}, tiny_samples(t, 1)).ok() || !(*run)->flush().ok())
      return 4;
    // Neither the file nor its log may grow any more.
    struct rlimit limit {};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = std::filesystem::file_size(path + "-wal");
    ::setrlimit(RLIMIT_FSIZE, &limit);
    Status failed;
    for (std::int64_t step = 2; step <= 200; ++step) {
      const Status added = (*run)->add_step({step, 1, 1, 0.1, -1, true}, tiny_samples(t, step));
      if (!added.ok()) failed = added;
    }
    if (failed.ok()) return 5;
    std::fprintf(stderr, "full disk: %s\n", failed.error().message.c_str());
    if (failed.error().code != Errc::io) return 6;
    auto reader = Store::open(path, StoreMode::read);
    if (!reader.ok() || (*reader)->load_run(1)->summary.steps != 1) return 7;
    // Space is back: nothing was lost.
    limit.rlim_cur = before;
    ::setrlimit(RLIMIT_FSIZE, &limit);
    if (!(*run)->finish({}).ok()) return 8;
    auto record = (*reader)->load_run(1);
    return record.ok() && record->summary.steps == 200 && record->summary.status == "done" ? 0 : 9;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(StoreFaults, ReadOnlyPlaces) {
  const std::string path = file("s.db");
  {
    auto store = Store::open(path, StoreMode::write);
    ASSERT_TRUE(store.ok());
    write_tiny_run(**store, "a", 3);
  }
  ASSERT_EQ(::chmod(path.c_str(), 0444), 0);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0555), 0);
  const int code = in_child([&] {
    // Permissions do not bind root: become nobody.
    if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0))
      return 50;
    const auto writing = Store::open(path, StoreMode::write);
    if (writing.ok() || writing.error().code != Errc::io) return 1;
    std::fprintf(stderr, "read-only: %s\n", writing.error().message.c_str());
    const auto creating = Store::open(file("new.db"), StoreMode::write);
    if (creating.ok() || creating.error().code != Errc::io) return 2;
    if (creating.error().message.find("read-only") == std::string::npos) return 3;
    auto reading = Store::open(path, StoreMode::read);
    if (!reading.ok()) {
      std::fprintf(stderr, "%s\n", reading.error().message.c_str());
      return 4;
    }
    auto record = (*reading)->load_run(1);
    return record.ok() && record->summary.steps == 3 ? 0 : 5;
  });
  ::chmod(folder_.path().c_str(), 0755);
  if (code == 50) GTEST_SKIP() << "cannot change the user here";
  EXPECT_EQ(code, 0);
}

TEST_F(StoreFaults, ARemovedFileIsNoticed) {
  const std::string path = file("s.db");
  auto store = Store::open(path, StoreMode::write);
  ASSERT_TRUE(store.ok());
  auto run = (*store)->begin_run(tiny_start());
  ASSERT_TRUE(run.ok());
  std::filesystem::remove(path);
  ASSERT_TRUE((*run)->add_step({1, 1, 1, 0.1, -1, false}).ok());
  const Status status = (*run)->flush();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::io);
  EXPECT_NE(status.error().message.find("removed"), std::string::npos) << status.error().message;
}

TEST_F(StoreFaults, AnUnfinishedRunOfThisProcessIsRunning) {
  auto store = Store::open(file("s.db"), StoreMode::write);
  ASSERT_TRUE(store.ok());
  std::int64_t id = 0;
  {
    auto run = (*store)->begin_run(tiny_start());
    ASSERT_TRUE(run.ok());
    id = (*run)->id();
    ASSERT_TRUE((*run)->add_step({1, 1, 1, 0.1, -1, false}).ok());
  }
  auto summary = (*store)->summary(id);
  ASSERT_TRUE(summary.ok()) << error_of(summary);
  EXPECT_EQ(summary->status, "running");
  EXPECT_EQ(summary->steps, 1) << "the destructor commits what was buffered";
}

TEST_F(StoreFaults, EightWritersLoseNothing) {
  const std::string path = file("s.db");
  constexpr int kWriters = 8;
  std::vector<pid_t> children;
  for (int w = 0; w < kWriters; ++w) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto store = Store::open(path, StoreMode::write);
      if (!store.ok()) ::_exit(1);
      auto run = (*store)->begin_run(tiny_start("w" + std::to_string(w)));
      if (!run.ok()) ::_exit(2);
      for (std::int64_t step = 1; step <= 100; ++step) {
        if (!(*run)->add_step({step, 1, 1, 0.1, -1, false}).ok() || !(*run)->flush().ok()) ::_exit(3);
      }
      ::_exit((*run)->finish({}).ok() ? 0 : 4);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
  }
  auto store = Store::open(path, StoreMode::read);
  ASSERT_TRUE(store.ok()) << error_of(store);
  auto runs = (*store)->list_runs();
  ASSERT_TRUE(runs.ok());
  ASSERT_EQ(runs->size(), static_cast<std::size_t>(kWriters));
  for (const RunSummary& run : *runs) {
    EXPECT_EQ(run.steps, 100);
    EXPECT_EQ(run.status, "done");
    EXPECT_TRUE((*store)->check(run.id).ok());
  }
}

}  // namespace
}  // namespace gradloom::test
