// Worlds whose ranks are threads of one process that meet and exchange over TCP, by the plugin that the program loads.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/ranks/transport_plugin.h"
#include "engine/ranks/world.h"
#include "tests/paths.h"

namespace gradloom::tcp_worlds {

inline Result<const GradloomTransport*> transport() {
  const std::string program = GRADLOOM_COMMAND;
  setenv("GRADLOOM_PLUGINS", program.substr(0, program.rfind('/')).c_str(), 0);
  return load_transport("tcp");
}

inline bool are_here() { return transport().ok(); }

// A socket on the loopback address. `port`: 0: any, and none else gets it while the socket lives; else one to connect to.
class LoopbackSocket {
 public:
  explicit LoopbackSocket(int port = 0) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<std::uint16_t>(port));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof place;
    const auto at = reinterpret_cast<sockaddr*>(&place);
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    connected_ = port > 0 && connect(socket_, at, bytes) == 0;
    if (port == 0 && (bind(socket_, at, bytes) != 0 || getsockname(socket_, at, &bytes) != 0))
      ADD_FAILURE() << "no port";
    port_ = ntohs(place.sin_port);
  }
  LoopbackSocket(const LoopbackSocket&) = delete;
  LoopbackSocket& operator=(const LoopbackSocket&) = delete;
  ~LoopbackSocket() { close(socket_); }
  int port() const { return port_; }
  bool connected() const { return connected_; }
  int handle() const { return socket_; }

 private:
  int socket_, port_ = 0;
  bool connected_ = false;
};

// One rank's end of a transport.
class Rank {
 public:
  Rank(int rank, int world, int port, const char* world_id = "tests",
       std::chrono::milliseconds limit = std::chrono::seconds(20))
      : transport_(*transport().value()), rank_(rank), world_(world) {
    const GradloomMeeting meeting{
        rank,    world,  "127.0.0.1", port, 1, world_id, std::chrono::nanoseconds(limit).count(),
        nullptr, nullptr};
    int own = 0, size = 0;
    code_ = transport_.join(&meeting, &self_, &own, &size);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    if (self_ != nullptr) transport_.close(self_);
  }
  int number() const { return rank_; }
  bool met() const { return code_ == 0; }
  std::string message() const { return transport_.message(self_, code_); }
  void* self() const { return self_; }
  const GradloomTransport& plugin() const { return transport_; }
  // The World owns the connection then.
  std::unique_ptr<World> world() {
    return std::make_unique<World>(transport_, std::exchange(self_, nullptr), rank_, world_);
  }

 private:
  const GradloomTransport& transport_;
  void* self_ = nullptr;
  int rank_, world_, code_ = 0;
};

// Calls f(world) on a thread for each of `size` ranks.
inline void on_ranks(int size, const std::function<void(World&)>& f) {
  const LoopbackSocket reserved;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      Rank own(rank, size, reserved.port());
      ASSERT_TRUE(own.met()) << own.message();
      f(*own.world());
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace gradloom::tcp_worlds
