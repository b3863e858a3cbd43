// Bytes between ranks over TCP, a connection for each pair, by Asio: nothing runs but what a call runs.
//
// Why Asio: it reads and writes the caller's memory, tells at once that a connection has ended, needs no thread and no library at run time. ZeroMQ
// copies what comes, moves it by a thread of its own, and connects again in silence; gloo cannot be asked without waiting, and trusts
// whoever connects.
#include <asio.hpp>

#include <memory>
#include <string>
#include <vector>

#include "engine/ranks/tcp/meeting.h"
#include "engine/ranks/tcp/peer_link.h"
#include "engine/ranks/transport.h"

namespace {

namespace tcp = gradloom::tcp;
using State = tcp::Transfers::State;

struct Connections {
  asio::io_context context{ASIO_CONCURRENCY_HINT_UNSAFE};
  tcp::Transfers transfers;
  std::vector<std::unique_ptr<tcp::PeerLink>> links;  // by rank
  std::string error;
  tcp::PeerLink& link(int rank) { return *links[static_cast<std::size_t>(rank)]; }
  void poll() {
    context.restart();
    context.poll();
  }
};

Connections& of(void* self) { return *static_cast<Connections*>(self); }

int join(const GradloomMeeting* meeting, void** self, int* rank, int* world) {
  auto* const own = new Connections;
  *self = own;
  *rank = meeting->rank;
  *world = meeting->world;
  tcp::Meeting met(own->context, *meeting);
  std::vector<asio::ip::tcp::socket> sockets;
  if (const int code = met.meet(sockets)) {
    own->error = met.error();
    return code;
  }
  for (int peer = 0; peer < meeting->world; ++peer) {
    auto& socket = sockets[static_cast<std::size_t>(peer)];
    own->links.push_back(peer == meeting->rank
                             ? nullptr
                             : std::make_unique<tcp::PeerLink>(std::move(socket), peer, own->transfers));
  }
  return 0;
}

int send(void* self, const void* bytes, std::int64_t count, int to, int tag, int* request) {
  *request = of(self).transfers.begin();
  of(self).link(to).send(bytes, count, tag, *request);
  return 0;
}

int receive(void* self, void* bytes, std::int64_t count, int from, int tag, int* request) {
  *request = of(self).transfers.begin();
  of(self).link(from).receive(bytes, count, tag, *request);
  return 0;
}

int test(void* self, int request, int* done) {
  tcp::Transfers& transfers = of(self).transfers;
  if (transfers.state(request) == State::open) of(self).poll();
  const State state = transfers.state(request);
  *done = state == State::done ? 1 : 0;
  if (state == State::open) return 0;
  transfers.forget(request);
  if (state == State::gone) return GRADLOOM_TRANSPORT_GONE;
  return state == State::wrong ? 1 : 0;
}

std::int64_t carried(void* self) { return of(self).transfers.carried; }

void drop(void* self, int tag) {
  for (const auto& link : of(self).links)
    if (link != nullptr) link->drop(tag);
}

// Everything of the others has come, and the system sends what is on its way.
int leave(void* self) {
  for (const auto& link : of(self).links)
    if (link != nullptr) link->finish();
  return 0;
}

void close(void* self) { delete static_cast<Connections*>(self); }

const char* message(void* self, int) {
  const Connections& own = of(self);
  return own.transfers.error.empty() ? own.error.c_str() : own.transfers.error.c_str();
}

constexpr GradloomTransport kTransport{
    GRADLOOM_TRANSPORT_VERSION, "TCP", join, send, receive, test, carried, drop, leave, close, message};

}  // namespace

extern "C" __attribute__((visibility("default"))) const GradloomTransport* gradloom_transport() {
  return &kTransport;
}
