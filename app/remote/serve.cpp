#include "app/remote/serve.h"

#include <poll.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/build_info.h"
#include "app/output.h"
#include "app/remote/protocol.h"
#include "engine/base/input_file.h"
#include "engine/base/scratch_folder.h"
#include "engine/base/text.h"
#include "engine/onnx/file/external_files.h"
#include "sessions/copy_session.h"
#include "sessions/find_model.h"
#include "sessions/store.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Between two looks at the session: at least this, and so many times what sending took.
constexpr std::chrono::milliseconds kPause{500};
constexpr int kPauseFactor = 10;

class FarEnd {
 public:
  FarEnd(std::string session, int in, int out, std::stop_token stop)
      : session_(std::move(session)), in_(in), out_(out), stop_(std::move(stop)) {}

  Status run() {
    scratch_ = TRY(ScratchFolder::create("serve"));
    return serve();
  }

 private:
  Status serve() {
    FoundModel model;
    std::string hash;
    if (!session_stamp(session_).empty()) model = TRY(model_of_session(&hash));
    const bool has_model = model.state == FoundModel::State::same;
    TRY(say({{"gradloom", kRemoteProtocol},
             {"version", std::string(build_info().version)},
             {"session", absolute_path(session_)},
             {"model", has_model ? model.path : ""},
             {"model_hash", has_model ? hash : ""}}));
    const std::string answer = TRY(hear());
    if (answer.empty()) return {};
    const Json wants = Json::parse(answer, nullptr, false);
    if (!wants.is_object() || !wants.contains("model") || !wants["model"].is_boolean())
      return Error{Errc::usage, "what the window said is no answer"};
    if (has_model && wants["model"].get<bool>()) TRY(send_model(model.path));
    return follow();
  }

  // Of the newest run that a model of ours made.
  Result<FoundModel> model_of_session(std::string* hash) {
    const auto store = TRY(Store::open(session_, StoreMode::read));
    for (const RunSummary& summary : TRY(store->list_runs())) {
      if (!summary.has_recipe()) continue;
      const RunRecord run = TRY(store->load_run(summary.id));
      *hash = summary.model_hash;
      return find_model(run, session_);
    }
    return FoundModel();
  }

  Status send_model(const std::string& path) {
    for (const std::string& name : TRY(external_files(path)))
      TRY(send_file(TRY(InputFile::open_inside(folder_of(path), name)), name));
    return send_file(TRY(InputFile::open(path)),
                     fs::path(path).filename().string());  // then all of it is there
  }

  Status send_file(const InputFile& file, const std::string& name) {
    TRY(say({{"file", name}, {"size", file.size()}}));
    std::vector<char> bytes(static_cast<std::size_t>(std::min(kMostRemoteBytes, file.size())));
    for (std::int64_t at = 0; at < file.size(); at += kMostRemoteBytes) {
      const std::int64_t count = std::min(kMostRemoteBytes, file.size() - at);
      TRY(file.read_unchanged(at, bytes.data(), count));
      TRY(say_part(at, bytes.data(), count));
    }
    return say({{"done", name}});
  }

  Status follow() {
    std::string sent;
    for (;;) {
      const auto start = Clock::now();
      if (const std::string stamp = session_stamp(session_); stamp != sent) {
        if (stamp.empty() || TRY(send_session())) sent = stamp;
      }
      if (TRY(wait(kPause + kPauseFactor * (Clock::now() - start)))) return {};
    }
  }

  // False: it changes too fast now, and the near end has a state of it already.
  Result<bool> send_session() {
    const std::string copy = *scratch_ / "copy.db";
    const Status copied = copy_session(session_, copy);
    if (!copied && copied.error().code == Errc::io && !sent_blocks_.empty()) return false;
    if (!copied) return copied.error();
    const InputFile file = TRY(InputFile::open(copy));
    TRY(say({{"session_size", file.size()}}));
    std::vector<char> bytes(static_cast<std::size_t>(kRemoteBlock));
    sent_blocks_.resize(static_cast<std::size_t>((file.size() + kRemoteBlock - 1) / kRemoteBlock));
    for (std::size_t block = 0; block < sent_blocks_.size(); ++block) {
      const std::int64_t at = static_cast<std::int64_t>(block) * kRemoteBlock,
                         count = std::min(kRemoteBlock, file.size() - at);
      TRY(file.read_at(at, bytes.data(), count));
      const std::uint64_t hash =
          XXH3_64bits(bytes.data(), static_cast<std::size_t>(count)) | 1;  // 0: not sent
      if (sent_blocks_[block] == hash) continue;
      TRY(say_part(at, bytes.data(), count));
      sent_blocks_[block] = hash;
    }
    TRY(say({{"done", ""}}));
    return true;
  }

  // True: the other end has gone, or a stop was asked for.
  Result<bool> wait(std::chrono::nanoseconds time) {
    const auto end = Clock::now() + time;
    while (Clock::now() < end) {
      if (stop_.stop_requested()) return true;
      pollfd fd{in_, POLLIN, 0};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count() + 1;
      const int ready = ::poll(&fd, 1, static_cast<int>(std::min<std::int64_t>(left, 100)));
      if (ready <= 0) continue;
      char rest[256];
      if (::read(in_, rest, sizeof rest) <= 0) return true;  // nothing more is to be said here
    }
    return false;
  }

  // A line; empty: there is none and there will be none.
  Result<std::string> hear() {
    std::string line;
    for (char c = 0; line.size() < static_cast<std::size_t>(kLongestRemoteLine);) {
      if (stop_.stop_requested()) return std::string();
      pollfd fd{in_, POLLIN, 0};
      if (::poll(&fd, 1, 100) <= 0) continue;
      if (::read(in_, &c, 1) <= 0) return std::string();
      if (c == '\n') return line;
      line += c;
    }
    return Error{Errc::usage, "what the window said has no end"};
  }

  Status say(const Json& message) {
    const std::string line = message.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    return write(line.data(), line.size());
  }
  Status say_part(std::int64_t at, const char* bytes, std::int64_t count) {
    TRY(say({{"at", at}, {"bytes", count}}));
    return write(bytes, static_cast<std::size_t>(count));
  }
  Status write(const char* bytes, std::size_t count) {
    while (count > 0) {
      const ssize_t n = ::write(out_, bytes, count);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        return Error{Errc::io, std::string("the window takes nothing more: ") + std::strerror(errno)};
      bytes += n;
      count -= static_cast<std::size_t>(n);
    }
    return {};
  }

  const std::string session_;
  const int in_, out_;
  const std::stop_token stop_;
  std::optional<ScratchFolder> scratch_;    // with a copy of the session
  std::vector<std::uint64_t> sent_blocks_;  // their hashes
};

}  // namespace

Status serve_session(const std::string& session, int in, int out, std::stop_token stop) {
  return FarEnd(session, in, out, std::move(stop)).run();
}

}  // namespace gradloom
