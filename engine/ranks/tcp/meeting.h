// How ranks find each other: each pair gets a connection, and then nobody listens any more.
//
// Rank 0 listens at the address and port that all know. Every other rank connects there, from then on listens itself, at a port of the system's
// choice and the address by which it has reached rank 0, and says who it is: version, world id, size, rank, port. Once all have, rank 0 tells
// each where the others are, and of two others the higher rank connects to the lower.
//
// Who says anything else, nothing for some seconds, another world id or a rank that is there already, is sent away, and told why where it speaks this
// protocol. Nothing is encrypted, and the world id keeps out ranks of another training, not an attacker who can read the network.
//
// Listens at: the address of rank 0 alone, where it is one of this machine's and does not stand for "this machine" while ranks
// may be on others (a loopback address then means all addresses).
#pragma once

#include <asio.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/ranks/tcp/greeting.h"
#include "engine/ranks/transport.h"

namespace gradloom::tcp {

class Meeting {
 public:
  using Socket = asio::ip::tcp::socket;
  Meeting(asio::io_context& context, const GradloomMeeting& known);
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  // A connection with each other rank, in their order, the own place closed.
  // Returns 0, GRADLOOM_TRANSPORT_STOPPED, or another code after error().
  int meet(std::vector<Socket>& sockets);
  const std::string& error() const { return error_; }

 private:
  using Endpoint = asio::ip::tcp::endpoint;
  using Endpoints = std::vector<Endpoint>;
  using Clock = std::chrono::steady_clock;
  // Somebody who has connected and has not said enough yet, or who is to be told why not.
  struct Visitor {
    explicit Visitor(Socket accepted) : socket(std::move(accepted)), patience(socket.get_executor()) {}
    Socket socket;
    asio::steady_timer patience;
    Greeting greeting;
    Answer answer;
    Place listens;
  };
  using Visit = std::shared_ptr<Visitor>;
  int meet_as_first();
  int meet_first();
  int meet_others(const std::vector<Place>& places);
  int resolve(Endpoints& endpoints);
  int listen_as_first();
  bool listen_at(const Endpoint& endpoint, std::error_code& code);
  bool listen_as_other(const Socket& to_first, std::error_code& code);
  void accept();
  void accept_later();
  void hear(const Visit& visit);
  void judge(const Visit& visit);
  void answer(const Visit& visit, std::int32_t code, const std::string& text);
  void end_visits();
  void tell_places();
  Answer answer_of(std::int32_t code, const std::string& text) const;
  Greeting greeting() const;
  int reach(const Endpoints& endpoints, int rank);
  bool try_to_reach(const Endpoints& endpoints, Answer& answer, Socket& socket, std::string& why);
  bool connect(const Endpoints& endpoints, Socket& socket, std::string& why);
  bool read(Socket& socket, const asio::mutable_buffer& into);
  template <class Done>
  bool run_until(Clock::time_point limit, const Done& done);
  int missed(const std::string& text);
  std::string name_of_place() const;
  std::string ranks_missing() const;
  bool all_came() const;
  int fail(std::string text);
  bool stopped() const { return known_.stopped != nullptr && known_.stopped(known_.user) != 0; }
  bool is_over() const { return Clock::now() >= end_ || stopped(); }

  asio::io_context& context_;
  const GradloomMeeting& known_;
  const Clock::time_point end_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer again_;                        // to accept
  std::vector<Visit> came_;                         // by rank; those above this one
  std::vector<Socket> reached_;                     // by rank; those below
  std::vector<std::weak_ptr<Visitor>> all_visits_;  // some have ended
  int unheard_ = 0;                                 // visitors that have not said enough yet
  std::string error_;
};

}  // namespace gradloom::tcp
