#include "app/background/background.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <thread>

#include "app/json_fields.h"
#include "app/recipe_flags.h"
#include "app/spawn.h"
#include "app/user_folders.h"
#include "engine/base/file.h"
#include "engine/base/parse_number.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostBytes = 1 << 20;  // of a command.json or an end.json
constexpr std::int64_t kMostNumber = 1'000'000;
constexpr int kAskTries = 500;  // of 2 ms: a keeper that has just been started opens its FIFO soon
constexpr char kEnded = 'e';    // to itself: the command has

Error io_error(const std::string& what, int code = errno) {
  return Error{Errc::io, what + ": " + std::strerror(code)};
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_;
};

Json read_json(const std::string& path) {
  const auto text = read_file_limited(path, kMostBytes);
  return text ? Json::parse(*text, nullptr, false) : Json();
}

bool is_locked(const std::string& files) {
  const Descriptor lock(open((files + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  return lock.open() && flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

std::optional<BackgroundCommand> read_command(const std::string& root, std::int64_t number) {
  BackgroundCommand command;
  command.number = number;
  command.files = root + "/" + std::to_string(number);
  const Json json = read_json(command.files + "/command.json");
  if (!json.is_object()) return std::nullopt;
  command.words = texts_of(json, "words");
  command.folder = text_of(json, "folder");
  command.started_s = integer_of(json, "started");
  command.note = text_of(json, "note");
  if (command.words.empty()) return std::nullopt;
  look_again(command);
  return command;
}

// A folder of the lowest number that is free.
Result<BackgroundCommand> make_folder(const std::string& root) {
  std::error_code error;
  fs::create_directories(root, error);
  if (error) return Error{Errc::io, root + ": " + error.message()};
  for (std::int64_t number = 1; number <= kMostNumber; ++number) {
    const std::string files = root + "/" + std::to_string(number);
    if (mkdir(files.c_str(), 0700) == 0) {
      BackgroundCommand command;
      command.number = number;
      command.files = files;
      return command;
    }
    if (errno != EEXIST) return io_error(files);
  }
  return Error{Errc::limit, root + ": there are too many commands in the background"};
}

Status start_keeper(BackgroundCommand& command, const std::string& program) {
  const std::string lock_path = command.files + "/lock", ask_path = command.files + "/ask";
  constexpr int kFlags = O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
  const Descriptor lock(open(lock_path.c_str(), kFlags | O_RDWR, 0600));
  const Descriptor out(open(command.out().c_str(), kFlags | O_WRONLY, 0600)),
      err(open(command.err().c_str(), kFlags | O_WRONLY, 0600));
  if (!lock.open() || !out.open() || !err.open() || flock(lock.get(), LOCK_EX) != 0)
    return io_error(command.files);
  if (mkfifo(ask_path.c_str(), 0600) != 0) return io_error(ask_path);
  const Json json = {{"words", command.words},
                     {"folder", command.folder},
                     {"started", command.started_s},
                     {"note", command.note}};
  TRY(atomic_write_file(command.files + "/command.json",
                        json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"));
  const int failure =
      spawn(program, {"gradloom", "background", "--keeper", command.files},
            {.in = lock.get(), .out = out.get(), .err = err.get(), .own_session = true}, command.keeper);
  return failure == 0 ? Status() : io_error(program + " cannot be started", failure);
}

}  // namespace

std::string BackgroundCommand::session() const {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string flag = "--session";
    std::string value;
    if (words[i] == flag && i + 1 < words.size())
      value = words[i + 1];
    else if (words[i].compare(0, flag.size() + 1, flag + "=") == 0)
      value = words[i].substr(flag.size() + 1);
    if (!value.empty()) return (fs::path(folder) / value).lexically_normal().string();
  }
  return {};
}

std::string BackgroundCommand::command_line() const {
  std::string line = "gradloom";
  for (const std::string& word : words) line += " " + shell_quoted(word);
  return line;
}

std::string background_root() {
  const std::string folder = data_folder();
  return folder.empty() ? folder : folder + "/background";
}

Result<BackgroundCommand> start_in_background(const std::string& root, const std::string& program,
                                              const std::vector<std::string>& words,
                                              const std::string& note) {
  if (root.empty()) return Error{Errc::io, "no folder for commands in the background: HOME is not set"};
  BackgroundCommand command = TRY(make_folder(root));
  std::error_code ignored;
  command.words = words;
  command.folder = fs::current_path(ignored).string();
  command.started_s = std::time(nullptr);
  command.note = note;
  command.running = true;
  if (const Status started = start_keeper(command, program); !started) {
    fs::remove_all(command.files, ignored);
    return started.error();
  }
  return command;
}

std::vector<BackgroundCommand> list_background(const std::string& root) {
  std::vector<BackgroundCommand> found;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    const auto number = parse_number<std::int64_t>(entry->path().filename().string());
    if (!number || *number < 1 || *number > kMostNumber) continue;
    if (auto command = read_command(root, *number)) found.push_back(std::move(*command));
  }
  std::sort(found.begin(), found.end(), [](const BackgroundCommand& a, const BackgroundCommand& b) {
    return std::pair(a.started_s, a.number) < std::pair(b.started_s, b.number);
  });
  return found;
}

Result<BackgroundCommand> find_background(const std::string& root, std::int64_t number) {
  if (auto command = read_command(root, number)) return std::move(*command);
  return Error{Errc::usage, "no command " + std::to_string(number) +
                                " in the background; `gradloom background` lists them"};
}

void look_again(BackgroundCommand& command) {
  command.running =
      is_locked(command.files);  // before its end is read: the keeper writes that, and then ends
  const Json json = read_json(command.files + "/end.json");
  if (!json.is_object()) return;
  command.running = false;
  command.end = BackgroundEnd{static_cast<int>(integer_of(json, "exit_code")),
                              static_cast<int>(integer_of(json, "signal"))};
}

namespace {

// Not the lock alone: who has just written how it ended still holds that, and uses no file any more.
bool goes_on(BackgroundCommand command) {
  look_again(command);
  return command.running;
}

}  // namespace

Status ask_background(const BackgroundCommand& command, BackgroundAsk ask) {
  const std::string path = command.files + "/ask";
  const char byte = static_cast<char>(ask);
  for (int i = 0; i < kAskTries && goes_on(command); ++i) {
    const Descriptor fifo(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    if (fifo.open() && write(fifo.get(), &byte, 1) == 1) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return Error{Errc::usage, "command " + std::to_string(command.number) + " has ended"};
}

Status forget_background(const BackgroundCommand& command) {
  if (goes_on(command))
    return Error{Errc::usage, "command " + std::to_string(command.number) + " is running: stop it first"};
  std::error_code error;
  fs::remove_all(command.files, error);
  return error ? Status(Error{Errc::io, command.files + ": " + error.message()}) : Status();
}

Status keep_background(const std::string& files, const std::string& program, const std::stop_token& stop) {
  const fs::path path(files);
  const auto number = parse_number<std::int64_t>(path.filename().string());
  const auto command = number ? read_command(path.parent_path().string(), *number) : std::nullopt;
  if (!command || !command->running || command->end)
    return Error{Errc::usage, files + ": no command that waits for its keeper"};
  const Descriptor ask(open((files + "/ask").c_str(), O_RDWR | O_CLOEXEC));  // for both: it never ends
  if (!ask.open()) return io_error(files + "/ask");
  const auto tell = [fd = ask.get()](char byte) {
    while (write(fd, &byte, 1) < 0 && errno == EINTR) {
    }
  };
  pid_t process = -1;
  std::vector<std::string> words{"gradloom"};
  words.insert(words.end(), command->words.begin(), command->words.end());
  if (const int failure = spawn(program, std::move(words), {}, process); failure != 0)
    return io_error(program + " cannot be started", failure);
  // It stays a zombie until `process` is not asked for any more: its number is nobody else's.
  std::jthread waiter([&] {
    siginfo_t info{};
    while (waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
    tell(kEnded);
  });
  const std::stop_callback on_stop(stop, [&] { tell(static_cast<char>(BackgroundAsk::interrupt)); });
  for (char byte = 0; byte != kEnded;) {
    if (read(ask.get(), &byte, 1) != 1) continue;
    if (byte == static_cast<char>(BackgroundAsk::interrupt)) kill(-process, SIGINT);
    if (byte == static_cast<char>(BackgroundAsk::kill)) kill(-process, SIGKILL);
  }
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  const int signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  const Json end = {{"exit_code", signal_number > 0 ? 128 + signal_number : WEXITSTATUS(status)},
                    {"signal", signal_number}};
  return atomic_write_file(files + "/end.json", end.dump() + "\n");
}

}  // namespace gradloom
