// The connection with one other rank: messages with a tag, in both directions, straight from and to the memory of the caller.
//
// On the wire: a header (magic, tag, length) in the byte order of x86, then so many bytes. A message that nobody waits for yet is kept where
// it is small; else it stays in the socket, so that the other side waits, until a receive of its tag comes or the tag is dropped.
#pragma once

#include <array>
#include <asio.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace gradloom::tcp {

// What is under way with any rank: numbers that are used again.
class Transfers {
 public:
  enum class State { open, done, gone, wrong };
  int begin();
  void end(int number, State state) { states_[static_cast<std::size_t>(number)] = state; }
  State state(int number) const { return states_[static_cast<std::size_t>(number)]; }
  void forget(int number) { unused_.push_back(number); }
  std::int64_t carried = 0;  // bytes
  std::string error;         // of the last that is wrong

 private:
  std::vector<State> states_;
  std::vector<int> unused_;
};

class PeerLink {
 public:
  PeerLink(asio::ip::tcp::socket socket, int peer, Transfers& transfers);
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  void send(const void* bytes, std::int64_t count, int tag, int number);
  void receive(void* bytes, std::int64_t count, int tag, int number);
  // What comes with this tag is thrown away, also for those who wait for it; the memory of what comes and goes with it is not
  // touched any more.
  void drop(int tag);
  // Nothing is sent any more; what has come stays.
  void finish();

 private:
  struct Header {
    std::uint32_t magic = 0;
    std::int32_t tag = 0;
    std::int64_t count = 0;
  };
  struct Outgoing {
    Header header;
    const void* bytes = nullptr;
    int number = 0;
    std::vector<std::byte> own = {};  // in the place of the caller's bytes, once its tag is dropped
  };
  struct Awaited {
    void* bytes = nullptr;
    std::int64_t count = 0;
    int number = 0;
  };
  using Kept = std::vector<std::byte>;
  void write_next();
  bool take_back_sends(int tag);
  void read_header();
  void take_message();
  void read_into_memory(const Awaited& awaited);
  void read_and_keep();
  void read_and_drop();
  void hand_over(Kept message, const Awaited& awaited);
  void lose_sends();
  void lose(const std::string& wrong);
  std::size_t more(std::size_t& before, std::size_t now);
  void read(asio::mutable_buffer to, std::function<void()> done);
  void read_on();
  void go_on_reading();

  static constexpr std::int64_t kMostKept = std::int64_t{1} << 20, kMostCount = (std::int64_t{1} << 31) - 1;
  asio::ip::tcp::socket socket_;
  const int peer_;
  Transfers& transfers_;
  std::deque<Outgoing> out_;  // the first is being written
  bool writing_ = false, cannot_write_ = false;
  std::size_t sent_ = 0;               // bytes of the first of out_, by writes that have ended
  std::size_t written_ = 0, had_ = 0;  // by the write and the read that go on
  asio::mutable_buffer reading_;       // what is left to be read, then:
  std::function<void()> read_;
  std::optional<int> into_memory_;              // a message of this tag is read into the caller's memory
  std::map<int, std::deque<Awaited>> awaited_;  // by tag
  std::map<int, std::deque<Kept>> kept_;
  std::int64_t kept_bytes_ = 0;
  std::set<int> dropped_;
  Header incoming_;
  Kept scratch_;
  bool paused_ = false;  // after a header whose message nobody takes yet
  bool lost_ = false;
};

}  // namespace gradloom::tcp
