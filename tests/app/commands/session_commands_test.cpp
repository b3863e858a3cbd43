// Sessions from strangers, as every reading command meets them: each column of each table hostile in turn,
// and rows that fit together in no way. Whatever is read, the answer is a documented exit code after bounded
// work, on lines without control characters, as valid JSON where JSON was asked for.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "app/command.h"
#include "engine/base/text.h"
#include "tests/paths.h"
#include "tests/sessions/forged_session.h"
#include "tests/sessions/hot_journal.h"

namespace gradloom::test {
namespace {
namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr rlim_t kSeconds = 60;
#else
constexpr rlim_t kSeconds = 10;  // of the processor, for a command on a file of at most some MB
constexpr rlim_t kMemory = rlim_t{3} << 30;
#endif

// In memory where there is such a place: what takes long here is the disk, which each command flushes.
fs::path quick_folder() {
  return ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
}

class SessionCommands : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_ / name; }
  const TemporaryFolder folder_{quick_folder()};

  void SetUp() override {
    ForgedSession::make(base_);
    const ForgedSession forger(base_);
    ASSERT_TRUE(forger
                    .execute("UPDATE run SET recipe = '{\"gradloom_recipe\": 1, \"model\": {\"path\": "
                             "\"model.onnx\"}, \"passes\": [], \"steps\": 1}'")
                    .ok());
    forger.finish();
  }

  std::vector<Arguments> commands() const {
    std::vector<Arguments> all = {{"runs", session_},
                                  {"show", session_, "--run", "1"},
                                  {"show", session_, "--run", "2", "--json", "--group", "scope"},
                                  {"show", session_, "--run", "2", "--tree", "scope"},
                                  {"show", session_, "--run", "3", "--tree", "node", "--json"},
                                  {"trace", session_, "--run", "2", "-o", file("t.json")},
                                  {"trace", session_, "--run", "1", "-o", file("t.csv"), "--json"},
                                  {"trace", session_, "--run", "1", "-o", file("t.pftrace")},
                                  {"export", session_, "--run", "2", "--csv", file("tables")},
                                  {"export", session_, "--run", "1", "--tensorboard", file("logs"), "--json"},
                                  {"export", session_, "--run", "1"},
                                  {"export", session_, "--run", "2", "-o", file("r.json"), "--json"},
                                  {"show", session_, "--run", "3"},
                                  {"show", session_, "--run", "3", "--json"},
                                  {"trace", session_, "--run", "3", "-o", file("h.json")},
                                  {"trace", session_, "--run", "3", "--format", "perfetto", "-o", file("h")},
                                  {"trace", session_, "--run", "2", "-o", file("t.sqlite")},
                                  {"export", session_, "--run", "3", "--csv", file("tables")}};
    for (const char* view : {"--steps", "--idle", "--roofline", "--critical-path", "--launches"})
      all.push_back({"show", session_, "--run", "1", view});
    all.push_back({"show", session_, "--run", "3", "--steps", "--json"});
    all.push_back({"report", session_, "-o", file("r.html")});
    all.push_back({"what-if", session_, "--scores"});
    all.push_back({"runs", session_, "--searches"});
    all.push_back({"export", session_, "--run", "2", "--view", "kernels", "-o", file("v.csv")});
    all.push_back({"trends", session_, "--json"});
    all.push_back({"compare", "1", "2", "--stored", "--session", session_});
    all.push_back({"runs", session_, "--json"});  // with the comparison that was stored
    return all;
  }

  // From here on, for this process.
  static void limit_seconds() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const rlimit seconds{static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1 + kSeconds,
                         RLIM_INFINITY};
    setrlimit(RLIMIT_CPU, &seconds);
  }

  // A child runs all commands, so that a crash or a hang is found as such. What is wrong, in words.
  std::string judge(const std::vector<Arguments>& all, std::vector<int>* codes = nullptr) const {
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe(pipe.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit core{0, 0};
      setrlimit(RLIMIT_CORE, &core);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
      const rlimit memory{kMemory, kMemory};
      setrlimit(RLIMIT_AS, &memory);
#endif
      for (std::size_t i = 0; i < all.size(); ++i) {
        limit_seconds();
        if (!freopen(output(i, "out").c_str(), "w", stdout) ||
            !freopen(output(i, "err").c_str(), "w", stderr))
          ::_exit(1);
        std::vector<const char*> argv{"gradloom"};
        for (const std::string& argument : all[i]) argv.push_back(argument.c_str());
        const int code = run_command_line(static_cast<int>(argv.size()), argv.data());
        std::fflush(nullptr);
        if (::write(pipe[1], &code, sizeof code) != sizeof code) ::_exit(1);
      }
      ::_exit(0);
    }
    ::close(pipe[1]);
    std::string wrong;
    std::size_t answered = 0;
    for (int code = 0; ::read(pipe[0], &code, sizeof code) == sizeof code; ++answered) {
      if (codes != nullptr) codes->push_back(code);
      wrong += judge(all[answered], answered, code);
    }
    ::close(pipe[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (answered < all.size())
      wrong += "  " + text(all[answered]) + ": ended by signal " + std::to_string(WTERMSIG(status)) + ": " +
               read_all(output(answered, "err")).substr(0, 500) + "\n";
    return wrong;
  }

  std::string judge(const Arguments& command, std::size_t i, int code) const {
    std::string wrong;
    const auto require = [&](bool kept, const std::string& what) {
      if (!kept) wrong += "  " + text(command) + ": " + what + "\n";
    };
    const std::string out = read_all(output(i, "out")), err = read_all(output(i, "err"));
    const bool json = std::find(command.begin(), command.end(), "--json") != command.end();
    // A view of times asks for what a damaged run may not have: usage, as of a run that was not timed.
    const bool of_times = std::any_of(command.begin(), command.end(), [](const std::string& word) {
      return word == "--roofline" || word == "--idle" || word == "--critical-path" || word == "--launches";
    });
    require(code == 0 || code == 3 || code == 4 || (code == 2 && of_times),
            "exit code " + std::to_string(code) + " " + err.substr(0, 300));
    require(clean(out) && clean(err), "control characters: " + escaped(err.substr(0, 300)));
    require(err.size() < 20'000, "an error of " + std::to_string(err.size()) + " bytes");
    if (code != 0) {
      std::size_t errors = 0;
      std::istringstream in(err);
      for (std::string line; std::getline(in, line);) errors += line.rfind("gradloom: ", 0) == 0 ? 1 : 0;
      require(errors == 1, "not one error line: " + err.substr(0, 300));
      require(!json || out.empty() || nlohmann::json::accept(out.substr(0, out.find('\n'))),
              "half an object");
      return wrong;
    }
    std::istringstream in(out);
    if (json)
      for (std::string line; std::getline(in, line);)
        require(nlohmann::json::accept(line), "not JSON: " + line.substr(0, 300));
    const std::size_t to =
        static_cast<std::size_t>(std::find(command.begin(), command.end(), "-o") - command.begin());
    if (to + 1 < command.size() && command[to + 1].find(".json") != std::string::npos)
      require(nlohmann::json::accept(read_all(command[to + 1])), "the file is no JSON");
    return wrong;
  }

  // The base session, changed by `sql`.
  std::string forged(const std::string& sql, bool renew_digests = true) const {
    for (const char* end : {"", "-wal", "-shm"}) fs::remove(session_ + end);
    fs::copy_file(base_, session_);
    const ForgedSession forger(session_);
    const Status changed = forger.execute(sql);
    if (!changed.ok()) return error_of(changed);
    forger.finish(renew_digests);
    forger.look_large();
    return "";
  }

  static bool clean(std::string text) {
    std::erase(text, '\n');
    return escaped(text) == text;
  }
  static std::string text(const Arguments& command) {
    std::string all;
    for (const std::string& a : command) all += (all.empty() ? "" : " ") + a;
    return all;
  }
  std::string output(std::size_t i, const char* which) const { return file(std::to_string(i) + which); }

  const std::string base_ = file("base.db"), session_ = file("s.db");
};

TEST_F(SessionCommands, TheBaseHasRowsInEveryTableThatSurviveForging) {
  ASSERT_EQ(forged(""), "");
  auto file = Database::open(session_, SQLITE_OPEN_READONLY);
  ASSERT_TRUE(file.ok());
  std::set<std::string> tables;
  for (const ForgedColumn& column : ForgedSession(base_).columns()) tables.insert(column.table);
  EXPECT_GT(tables.size(), 25u);
  for (const std::string& table : tables)
    EXPECT_GT(file->integer("SELECT count(*) FROM " + table).value(), 0) << table;
  auto store = Store::open(session_, StoreMode::read);
  ASSERT_TRUE(store.ok()) << error_of(store);
  EXPECT_EQ((*store)->list_trials()->size(), 1u);
  EXPECT_EQ((*store)->list_configurations()->size(), 1u);
  EXPECT_EQ((*store)->list_predictions()->size(), 1u);
  EXPECT_EQ((*store)->list_comparisons()->size(), 1u);
}

TEST_F(SessionCommands, TheBaseIsReadByAllOfThem) {
  ASSERT_EQ(forged(""), "");
  std::vector<int> codes;
  EXPECT_EQ(judge(commands(), &codes), "");
  EXPECT_EQ(std::count(codes.begin(), codes.end(), 0), static_cast<std::ptrdiff_t>(codes.size()));
}

TEST_F(SessionCommands, AJournalOfAStrangerDeletesNothing) {
  std::vector<Arguments> all = commands();
  all.push_back({"compare", "1", "2", "--session", session_});
  all.push_back({"train", GRADLOOM_SOURCE_DIR "/tests/models/mlp/model.onnx", "--dim", "batch=8", "--loss",
                 "ce:logits,labels", "--steps", "1", "--session", session_});
  ForgedSession::make(file("plain.db"));
  const std::string victim = file("letter"), other(20'000, 'x');
  for (const std::string& contents : {read_all(file("plain.db")), other}) {
    for (const bool wal : {false, true}) {
      for (const char* end : {"", "-wal", "-shm"}) fs::remove(session_ + end);
      write_all(session_, contents);
      write_all(victim, "a letter");
      if (wal) write_all(session_ + "-wal", std::string(5000, 'x'));
      if (wal) write_all(session_ + "-shm", std::string(32768, 'x'));
      const std::string journal =
          hot_journal(victim, static_cast<std::uint32_t>(fs::file_size(session_) / 4096));
      write_all(session_ + "-journal", journal);
      std::vector<int> codes;
      const std::string wrong = judge(all, &codes);
      EXPECT_EQ(wrong.find("signal"), std::string::npos) << wrong;
      EXPECT_EQ(std::count(codes.begin(), codes.end(), 3) + std::count(codes.begin(), codes.end(), 0),
                static_cast<std::ptrdiff_t>(all.size()))
          << wrong;
      EXPECT_EQ(read_all(victim), "a letter");
      EXPECT_TRUE(read_all(session_) == contents) << "the session was written";
      EXPECT_TRUE(read_all(session_ + "-journal") == journal) << "the journal was rolled back";
    }
  }
}

// An eighth of the columns each, so that several are tried at once.
constexpr std::size_t kParts = 8;
class HostileColumns : public SessionCommands, public ::testing::WithParamInterface<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Part, HostileColumns, ::testing::Range(std::size_t{0}, kParts));

TEST_P(HostileColumns, EveryColumnIsHostileInTurn) {
  const std::pair<const char*, const char*> values[] = {
      {"NULL", "NULL"},
      {"-1", "-1"},
      {"2^31", "2147483648"},
      {"largest", "9223372036854775807"},
      {"least", "-9223372036854775807 - 1"},
      {"infinite", "-9e999"},
      {"empty", "''"},
      {"word", "'abc'"},
      {"escapes", "char(27) || ']0;x' || char(7, 27) || '[31m' || char(8238, 155, 10, 13, 0) || 'z'"},
      {"not UTF-8", "CAST(x'61fffe62c328' AS TEXT)"},
      {"deep JSON", "replace(hex(zeroblob(50000)), '00', '[')"},
      {"1 MB", "replace(hex(zeroblob(500000)), '00', 'ab')"}};
  fs::copy_file(base_, session_);
  const std::vector<ForgedColumn> columns = ForgedSession(session_).columns();
  EXPECT_GT(columns.size(), 100u);
  int cases = 0;
  for (std::size_t i = GetParam(); i < columns.size(); i += kParts) {
    const ForgedColumn& column = columns[i];
    for (const auto& [name, value] : values) {
      const std::string sql = "UPDATE " + column.table + " SET \"" + column.name + "\" = " + value;
      if (!forged(sql, column.name != "digest").empty()) continue;  // ids are integers, and unique
      const std::string wrong = judge(commands());
      EXPECT_EQ(wrong, "") << column.table << "." << column.name << " = " << name;
      ++cases;
    }
  }
  std::printf("%zu columns, %d cases\n", columns.size(), cases);
  EXPECT_GT(cases, 130);
}

// Rows of one or some MB that a join, a lifetime or a count would blow up.
TEST_F(SessionCommands, RowsThatFitTogetherInNoWay) {
  const std::string numbers = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %) ";
  const auto counted = [&](int count, const std::string& sql) {
    std::string text = numbers + sql;
    return text.replace(text.find('%'), 1, std::to_string(count - 1));
  };
  const std::string many_sources =
                        counted(3000, "INSERT INTO source_node SELECT 1, 0, 'n', 'Op', '', '' FROM n; "),
                    many_links = counted(3000, "INSERT INTO node_source SELECT 1, 0, 0 FROM n; "),
                    many_nodes = counted(
                        3000,
                        "INSERT INTO graph_node SELECT 1, 0, 'n', 'Op', 'forward', '', '', '', '' FROM n; "),
                    many_steps = counted(
                        3000, "INSERT INTO plan_step SELECT 1, 5 + i, 0, 'k', 0, 1, 0, 0, 1, 1, 1 FROM n; ");
  const std::pair<const char*, std::string> cases[] = {
      {"3000 x 3000 sources", many_sources + many_links},
      {"3000 nodes of the same id", many_nodes + many_steps},
      {"3000 kernels of one node of 3000 sources", many_links + many_steps},
      {"3000 kernels of one node with a long name",
       many_steps + "UPDATE graph_node SET name = hex(zeroblob(1000000)) WHERE node = 0"},
      {"3000 kernels of one id",
       counted(3000, "INSERT INTO plan_step SELECT 1, 0, 0, 'k', 0, 1, 0, 0, 1, 1, 1 FROM n")},
      {"3000 passes x 3000 matches",
       counted(3000, "INSERT INTO pass SELECT 1, 0, 'p', 'both', 1, 1, 1, 1, 1 FROM n; ") +
           counted(3000, "INSERT INTO pass_match SELECT 1, 0, 'r', 's', 1, '', '[]', '[]', '[]' FROM n")},
      {"lifetimes of 2^31 steps",
       counted(3000, "INSERT INTO buffer SELECT 1, 5 + i, 'v', 'arena', 0, 1, 0, 2147483647 FROM n")},
      {"100000 timed steps",
       counted(100'000, "INSERT INTO loss SELECT 1, 13 + i, 1.0, NULL, 1000, 0.1, NULL, 1 FROM n; ") +
           counted(100'000, "INSERT INTO kernel_sample SELECT 1, 13 + i, 0, i % 5, i * 1000, 500 FROM n")},
      {"100000 steps without timings",
       counted(100'000,
               "INSERT INTO loss SELECT run.id, 13 + i, 1.0, NULL, 1000 + i, 0.1, NULL, 0 FROM n, run")},
      {"100000 kinds of activity",
       counted(100'000, "INSERT INTO activity SELECT 2, i, 0, 'kind ' || i, 0, 0, i, 1, 1, 'x' FROM n")},
      {"25000 runs",
       counted(25'000,
               "INSERT INTO run SELECT 10 + i, name, status, message, started_utc, finished_utc, "
               "process, command, model, model_hash, device, precision, optimizer, loss, data, "
               "passes, planner, seed, planned_steps, graph_hash, plan_hash, recipe, "
               "measured_peak_bytes, overhead, overhead_low, overhead_high, digest FROM n, run "
               "WHERE run.id = 1")}};
  for (const auto& [name, sql] : cases) {
    ASSERT_EQ(forged(sql), "") << name;
    EXPECT_EQ(judge(commands()), "") << name;
  }
}

}  // namespace
}  // namespace gradloom::test
