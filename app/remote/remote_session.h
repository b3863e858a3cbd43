// A session of another machine, shown here: the user's ssh starts `gradloom serve` there, whose words a Mirror takes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/remote/address.h"
#include "engine/base/result.h"

namespace gradloom {

// Where the copy of a session of another machine lies: a folder of this user's cache, told by the address, that no other window
// has.
class MirrorFolder {
 public:
  static Result<MirrorFolder> take(const RemoteAddress& address);  // Errc::io
  MirrorFolder(MirrorFolder&& other) noexcept
      : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}
  MirrorFolder& operator=(MirrorFolder&&) = delete;
  ~MirrorFolder();
  const std::string& path() const { return path_; }

 private:
  MirrorFolder() = default;
  std::string path_;
  int lock_ = -1;
};

class RemoteSession {
 public:
  // `notify` is called from a thread of its own when `state` has news. Errc::io: ssh cannot be started, there is no folder.
  static Result<std::unique_ptr<RemoteSession>> start(const RemoteAddress& address,
                                                      std::function<void()> notify);
  ~RemoteSession();  // ends ssh

  struct State {
    std::int64_t states = 0;  // of the session, that are whole here
    double fraction = 1;      // of what arrives
    std::string session, session_there, model, model_there;
    std::optional<Error> ended;  // the connection is gone
  };
  State state() const;
  const RemoteAddress& address() const { return address_; }

 private:
  struct Impl;
  RemoteSession(RemoteAddress address, std::unique_ptr<Impl> impl);
  RemoteAddress address_;
  std::unique_ptr<Impl> impl_;
};

// Words of a command line for the far end: paths of files here are those there.
std::vector<std::string> words_there(std::vector<std::string> words, const RemoteSession::State& state);

}  // namespace gradloom
