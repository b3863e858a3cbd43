// The program itself on every case of the corpus: the exit code and one error line that says what is
// expected, within 2 s of processor time and the files' size + 256 MiB of memory, and nothing outside the
// model's folder touched.
//
// Time is what the kernel counts for the child, user and system of all threads, with as much more as this
// machine is slower than the one where the corpus was made; memory is its peak resident size (ru_maxrss), the
// whole program with its libraries. A child begins as a copy of this process, whose own size counts as long
// as it is the larger one: what is measured is never too small. Sanitizers need more of both: there only the
// answers are judged.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <unordered_map>

#include "engine/base/text.h"
#include "tests/hostile/corpus.h"
#include "tests/paths.h"

namespace gradloom::hostile {
namespace {
namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr double kSeconds = 2;
constexpr double kReferenceSeconds =
    0.05;  // of reference_job() where the corpus was made: AMD EPYC, 2 shared cores
constexpr std::int64_t kMemory = 256 << 20;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Hashing and sorting, as reading a model does; processor seconds.
double reference_job() {
  const std::clock_t start = std::clock();
  std::mt19937 random(1);
  std::unordered_map<std::string, std::uint32_t> names;
  std::vector<std::uint32_t> numbers;
  for (int i = 0; i < 100'000; ++i) names.emplace("name " + std::to_string(random()), random());
  for (const auto& [name, number] : names)
    numbers.push_back(number ^ static_cast<std::uint32_t>(name.size()));
  std::sort(numbers.begin(), numbers.end());
  return numbers.empty() ? 0 : static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

// How much longer than there this machine takes just now; 1 when it is faster.
double slowness() {
  double best = reference_job();
  for (int i = 0; i < 4; ++i) best = std::min(best, reference_job());
  return std::max(1.0, best / kReferenceSeconds);
}

// Whether a run was longer than it may be. The machine is asked only where it matters: that takes some tenths of a second.
bool too_long(double seconds) { return seconds > kSeconds && seconds > kSeconds * slowness(); }

struct Outcome {
  int code = -1;  // negative: the signal that ended it
  std::string out, err;
  double seconds = 0;
  std::int64_t peak_bytes = 0;
};

// What happens to files outside, as the kernel tells it.
class Watch {
 public:
  explicit Watch(const std::string& folder) : fd_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(fd_, 0);
    EXPECT_GE(inotify_add_watch(fd_, folder.c_str(), IN_ALL_EVENTS), 0);
    // A hard link elsewhere is the same file under another name: only a watch on the
    // file itself sees its reads.
    EXPECT_GE(inotify_add_watch(fd_, (folder + "/secret.bin").c_str(), IN_ALL_EVENTS), 0);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { close(fd_); }
  // All events since the last call.
  std::uint32_t events() const {
    std::uint32_t all = 0;
    alignas(inotify_event) std::array<char, 8192> buffer{};
    for (ssize_t n = read(fd_, buffer.data(), buffer.size()); n > 0;
         n = read(fd_, buffer.data(), buffer.size())) {
      for (ssize_t at = 0; at < n;) {
        const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
        all |= event->mask;
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    }
    return all;
  }

 private:
  int fd_;
};

class Hostile : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("gradloom-hostile-" + std::to_string(getpid()));
    fs::remove_all(root_);
    place_ = {(root_ / "model").string(), (root_ / "outside").string()};
    fs::create_directories(place_.outside);
    std::ofstream(place_.outside + "/secret.bin")
        << kCanary << std::string(2, '\0');  // as many bytes as the weights that name it need
    watch_ = std::make_unique<Watch>(place_.outside);
  }
  void TearDown() override {
    std::error_code code;
    fs::remove_all(root_, code);
  }

  Outcome run(std::vector<std::string> args) const {
    args.insert(args.begin(), GRADLOOM_COMMAND);
    const std::string out = root_ / "stdout", err = root_ / "stderr";
    const pid_t child = fork();
    if (child == 0) {
      if (chdir(place_.model.c_str()) != 0 || !freopen(out.c_str(), "w", stdout) ||
          !freopen(err.c_str(), "w", stderr))
        _exit(99);
      const rlimit processor{30, 30}, stack{256 << 10, 256 << 10},
          address{std::uint64_t{16} << 30, std::uint64_t{16} << 30}, core{0, 0};
      setrlimit(RLIMIT_CORE, &core);
      setrlimit(RLIMIT_CPU, &processor);
      if (!kSanitized) {
        setrlimit(RLIMIT_STACK, &stack);
        setrlimit(RLIMIT_AS, &address);  // protects the machine, not what is measured
      }
      std::vector<char*> argv;
      for (std::string& a : args) argv.push_back(a.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(98);
    }
    int status = 0;
    rusage used{};
    wait4(child, &status, 0, &used);
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), read_file(out), read_file(err),
            seconds(used.ru_utime) + seconds(used.ru_stime), used.ru_maxrss * 1024};
  }

  // Bytes that the model may bring: all files of its folder, as far as they are on the disk.
  std::int64_t file_bytes() const {
    std::int64_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(place_.model))
      if (!entry.is_symlink() && entry.is_regular_file() && entry.file_size() < (std::uint64_t{4} << 30))
        bytes += static_cast<std::int64_t>(entry.file_size());
    return bytes;
  }

  static bool is_clean(const std::string& text) {
    std::string without_breaks = text;
    std::erase(without_breaks, '\n');
    return escaped(without_breaks) == without_breaks;
  }

  // What is wrong with an answer, in words; empty: nothing.
  std::string judge(const Case& c, const Command& r, const Outcome& o, std::uint32_t events) const {
    std::string wrong;
    const auto require = [&](bool kept, const std::string& what) { wrong += kept ? "" : "  " + what + "\n"; };
    require(o.code == r.code, "exit code " + std::to_string(o.code) + ", expected " + std::to_string(r.code));
    require(is_clean(o.out) && is_clean(o.err), "control characters or text that is not UTF-8");
    require((o.out + o.err).find(kCanary) == std::string::npos, "shows what lies outside");
    std::vector<std::string> errors;
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = o.err.find('\n', begin)) != std::string::npos; begin = end + 1)
      if (o.err.compare(begin, 6, "note: ") != 0) errors.push_back(o.err.substr(begin, end - begin));
    if (r.code <= 1) {  // 1: check, a line per folder
      require((o.out + o.err).find(r.says) != std::string::npos, "does not say: " + r.says);
    } else {
      require(errors.size() == 1 && errors[0].rfind("gradloom: ", 0) == 0, "not one error line");
      require(o.err.size() < 20000, "an error of " + std::to_string(o.err.size()) + " bytes");
      require(errors.empty() || errors[0].find(r.says) != std::string::npos, "does not say: " + r.says);
    }
    // A hard link is found out by opening it; nothing of it is read.
    require((events & ~(c.may_open_outside ? IN_OPEN | IN_CLOSE_NOWRITE : 0u)) == 0,
            "something outside the model's folder was touched");
    if (kSanitized) return wrong;
    const std::int64_t files = file_bytes();
    require(!too_long(o.seconds), std::to_string(o.seconds) + " s of processor time");
    require(o.peak_bytes - files <= kMemory, "peak " + std::to_string(o.peak_bytes >> 20) + " MiB, files " +
                                                 std::to_string(files >> 20) + " MiB");
    slowest_ = std::max(slowest_, o.seconds);
    largest_ = std::max(largest_, o.peak_bytes - files);
    return wrong;
  }

  std::set<std::string> listing(const std::string& folder) const {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) names.insert(entry.path().string());
    return names;
  }

  // Every name that a run may make: those it was given.
  static std::set<std::string> made_by(const Command& r) {
    std::set<std::string> names;
    for (std::size_t i = 1; i < r.args.size(); ++i)
      if (r.args[i - 1] == "-o" || r.args[i - 1] == "--session" || r.args[i - 1] == "--save-params" ||
          r.args[i - 1] == "--export-onnx")
        names.insert(r.args[i]);
    return names;
  }

  void try_case(const Case& c) {
    fs::remove_all(place_.model);
    fs::create_directories(place_.model);
    c.make(place_);
    for (const Command& r : c.runs) {
      const std::set<std::string> before = listing(root_);
      watch_->events();
      Outcome o = run(r.args);
      // Other programs share the caches and the clock of this machine, and come and go: the best of three runs counts, each beside
      // what the machine was worth at that moment.
      for (int again = 0; again < 2 && !kSanitized && too_long(o.seconds); ++again)
        o.seconds = std::min(o.seconds, run(r.args).seconds);
      std::string wrong = judge(c, r, o, watch_->events());
      const std::set<std::string> made = made_by(r);
      for (const std::string& path : listing(root_)) {
        if (before.count(path) != 0 || path == root_ / "stdout" || path == root_ / "stderr") continue;
        const std::string name = path.substr(std::min(path.size(), place_.model.size() + 1));
        const bool of_session = made.count(name.substr(0, name.rfind('-'))) != 0;  // SQLite's -wal and -shm
        if (made.count(name) == 0 && !of_session) wrong += "  made " + path + "\n";
      }
      ++runs_;
      if (wrong.empty()) continue;
      std::string command;
      for (const std::string& a : r.args) command += " " + a;
      ADD_FAILURE() << c.row << " " << escaped(c.name) << ": gradloom" << command << "\n"
                    << wrong << escaped(o.err.substr(0, 1000)) << "\n"
                    << escaped(o.out.substr(0, 300));
    }
  }

  void try_row(const std::string& row) {
    int count = 0;
    for (const Case& c : all_cases()) {
      if (c.row != row) continue;
      try_case(c);
      ++count;
    }
    EXPECT_GT(count, 0);
    RecordProperty("cases", count);
    std::printf("%s: %d cases, %d runs; slowest %.2f s, largest %lld MiB over its files\n", row.c_str(),
                count, runs_, slowest_, static_cast<long long>(largest_ >> 20));
  }

  fs::path root_;
  Place place_;
  std::unique_ptr<Watch> watch_;
  int runs_ = 0;
  mutable double slowest_ = 0;
  mutable std::int64_t largest_ = 0;
};

TEST_F(Hostile, O1NoModel) { try_row("O1"); }
TEST_F(Hostile, O2Cycles) { try_row("O2"); }
TEST_F(Hostile, O3Duplicates) { try_row("O3"); }
TEST_F(Hostile, O4Missing) { try_row("O4"); }
TEST_F(Hostile, O5Shapes) { try_row("O5"); }
TEST_F(Hostile, O6Contents) { try_row("O6"); }
TEST_F(Hostile, O7Paths) { try_row("O7"); }
TEST_F(Hostile, O8WrittenFiles) { try_row("O8"); }
TEST_F(Hostile, O9Nesting) { try_row("O9"); }
TEST_F(Hostile, O10Objects) { try_row("O10"); }
TEST_F(Hostile, O11HugeTensors) { try_row("O11"); }
TEST_F(Hostile, O12Names) { try_row("O12"); }
TEST_F(Hostile, O13Attributes) { try_row("O13"); }
TEST_F(Hostile, O14Future) { try_row("O14"); }
TEST_F(Hostile, O15LargeFiles) { try_row("O15"); }
TEST_F(Hostile, O16Polyglots) { try_row("O16"); }
TEST_F(Hostile, O17Numbers) { try_row("O17"); }
TEST_F(Hostile, DataFiles) { try_row("D"); }
TEST_F(Hostile, Parameters) { try_row("P"); }
TEST_F(Hostile, Recipes) { try_row("R"); }
TEST_F(Hostile, Sessions) { try_row("S"); }
TEST_F(Hostile, TestFolders) { try_row("C"); }

// The corpus is as large as promised, and no row is without a test above.
TEST(HostileCorpus, HasEveryRow) {
  std::map<std::string, int> rows;
  std::set<std::string> names;
  for (const Case& c : all_cases()) {
    ++rows[c.row];
    EXPECT_TRUE(names.insert(c.row + c.name).second) << c.row << " " << c.name << " is there twice";
  }
  for (int i = 1; i <= 17; ++i) EXPECT_GE(rows["O" + std::to_string(i)], 3) << "O" << i;
  EXPECT_EQ(rows.size(), 23u);
  EXPECT_GE(names.size(), 300u);
}

// What the tests above rely on sees what it should.
TEST_F(Hostile, TheWatchSeesAReader) {
  EXPECT_EQ(watch_->events(), 0u);
  EXPECT_EQ(read_file(place_.outside + "/secret.bin").rfind(kCanary, 0), 0u);
  EXPECT_NE(watch_->events() & IN_ACCESS, 0u);
  fs::create_directories(place_.model);
  fs::create_hard_link(place_.outside + "/secret.bin", place_.model + "/link");
  watch_->events();
  read_file(place_.model + "/link");
  EXPECT_NE(watch_->events() & IN_ACCESS, 0u) << "through another name";
}

}  // namespace
}  // namespace gradloom::hostile
