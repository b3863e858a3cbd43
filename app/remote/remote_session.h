// A session of another machine, shown here: the user's ssh starts `gradloom serve` there, whose words a Mirror takes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/remote/address.h"
#include "engine/base/result.h"

namespace gradloom {

// Where the copy of a session of another machine lies: a folder of this user's cache, told by the address. Errc::io.
Result<std::string> mirror_folder(const RemoteAddress& address);

class RemoteSession {
 public:
  // `notify` is called from that thread when `status` has news. Errc::io: ssh cannot be started.
  static Result<std::unique_ptr<RemoteSession>> start(const RemoteAddress& address, const std::string& folder,
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
