#include "engine/ranks/tcp/peer_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gradloom::tcp {
namespace {

constexpr std::uint32_t kMagic = 0x6b726c67;  // "glrk"
constexpr std::size_t kMostAtOnce = std::size_t{1} << 22;

}  // namespace

int Transfers::begin() {
  if (unused_.empty()) {
    states_.push_back(State::open);
    return static_cast<int>(states_.size()) - 1;
  }
  const int number = unused_.back();
  unused_.pop_back();
  states_[static_cast<std::size_t>(number)] = State::open;
  return number;
}

PeerLink::PeerLink(asio::ip::tcp::socket socket, int peer, Transfers& transfers)
    : socket_(std::move(socket)), peer_(peer), transfers_(transfers) {
  read_header();
}

void PeerLink::send(const void* bytes, std::int64_t count, int tag, int number) {
  if (cannot_write_) return transfers_.end(number, Transfers::State::gone);
  out_.push_back({{kMagic, tag, count}, bytes, number});
  write_next();
}

// So much of a message has been carried, and so much more may be at once.
std::size_t PeerLink::more(std::size_t& before, std::size_t now) {
  transfers_.carried += static_cast<std::int64_t>(now - std::exchange(before, now));
  return kMostAtOnce;
}

void PeerLink::write_next() {
  if (writing_ || out_.empty()) return;
  writing_ = true;
  const Outgoing& next = out_.front();
  const std::size_t of_header = std::min(sent_, sizeof next.header);
  const std::array<asio::const_buffer, 2> buffers{
      asio::buffer(&next.header, sizeof next.header) + of_header,
      asio::buffer(next.bytes, static_cast<std::size_t>(next.header.count)) + (sent_ - of_header)};
  written_ = 0;
  asio::async_write(
      socket_, buffers,
      [this](const std::error_code& code, std::size_t count) { return code ? 0 : more(written_, count); },
      [this](const std::error_code& code, std::size_t count) {
        (void)more(written_, count);
        writing_ = false;
        sent_ += count;
        if (code == asio::error::operation_aborted && !lost_) return write_next();  // by drop
        if (code) return lose_sends();
        transfers_.end(out_.front().number, Transfers::State::done);
        out_.pop_front();
        sent_ = 0;
        write_next();
      });
}

void PeerLink::read(asio::mutable_buffer to, std::function<void()> done) {
  reading_ = to;
  read_ = std::move(done);
  read_on();
}

void PeerLink::read_on() {
  had_ = 0;
  asio::async_read(
      socket_, reading_,
      [this](const std::error_code& code, std::size_t count) { return code ? 0 : more(had_, count); },
      [this](const std::error_code& code, std::size_t count) {
        (void)more(had_, count);
        reading_ += count;
        if (code == asio::error::operation_aborted && !lost_) return go_on_reading();
        if (code) return lose("");
        std::exchange(read_, {})();
      });
}

// After drop has stopped it: what was to come into the caller's memory is thrown away from here on.
void PeerLink::go_on_reading() {
  if (!into_memory_ || dropped_.count(*into_memory_) == 0) return read_on();
  into_memory_.reset();
  incoming_.count = static_cast<std::int64_t>(reading_.size());
  read_and_drop();
}

void PeerLink::read_header() {
  read(asio::buffer(&incoming_, sizeof incoming_), [this] {
    if (incoming_.magic != kMagic || incoming_.count < 0 || incoming_.count > kMostCount)
      return lose("bytes that are no message");
    take_message();
  });
}

// The header has come.
void PeerLink::take_message() {
  paused_ = false;
  std::deque<Awaited>& awaited = awaited_[incoming_.tag];
  if (!awaited.empty()) {
    const Awaited next = awaited.front();
    if (next.count != incoming_.count)
      return lose("a message of " + std::to_string(incoming_.count) + " bytes, where " +
                  std::to_string(next.count) + " were to come");
    return read_into_memory(next);
  }
  if (dropped_.count(incoming_.tag) != 0) return read_and_drop();
  if (kept_bytes_ + incoming_.count <= kMostKept) return read_and_keep();
  paused_ = true;
}

void PeerLink::read_into_memory(const Awaited& awaited) {
  into_memory_ = incoming_.tag;
  read(asio::buffer(awaited.bytes, static_cast<std::size_t>(awaited.count)), [this] {
    std::deque<Awaited>& of_tag = awaited_[*std::exchange(into_memory_, std::nullopt)];
    transfers_.end(of_tag.front().number, Transfers::State::done);
    of_tag.pop_front();
    read_header();
  });
}

void PeerLink::read_and_keep() {
  scratch_.resize(static_cast<std::size_t>(incoming_.count));
  kept_bytes_ += incoming_.count;
  read(asio::buffer(scratch_), [this] {
    std::deque<Awaited>& awaited = awaited_[incoming_.tag];
    if (awaited.empty()) {
      kept_[incoming_.tag].push_back(std::exchange(scratch_, {}));
    } else {  // somebody has come to wait for it meanwhile
      const Awaited first = awaited.front();
      awaited.pop_front();
      hand_over(std::exchange(scratch_, {}), first);
    }
    if (!lost_) read_header();
  });
}

void PeerLink::read_and_drop() {
  scratch_.resize(static_cast<std::size_t>(std::min(incoming_.count, kMostKept)));
  read(asio::buffer(scratch_), [this] {
    incoming_.count -= static_cast<std::int64_t>(scratch_.size());
    incoming_.count > 0 ? read_and_drop() : read_header();
  });
}

void PeerLink::receive(void* bytes, std::int64_t count, int tag, int number) {
  std::deque<Kept>& kept = kept_[tag];
  if (!kept.empty()) {
    Kept first = std::move(kept.front());
    kept.pop_front();
    return hand_over(std::move(first), {bytes, count, number});
  }
  if (lost_) return transfers_.end(number, Transfers::State::gone);
  awaited_[tag].push_back({bytes, count, number});
  if (paused_) take_message();
}

void PeerLink::hand_over(Kept message, const Awaited& awaited) {
  const auto count = static_cast<std::int64_t>(message.size());
  kept_bytes_ -= count;
  if (count != awaited.count) {
    transfers_.end(awaited.number, Transfers::State::wrong);
    return lose("a message of " + std::to_string(count) + " bytes, where " + std::to_string(awaited.count) +
                " were to come");
  }
  if (count > 0) std::memcpy(awaited.bytes, message.data(), message.size());
  transfers_.end(awaited.number, Transfers::State::done);
}

void PeerLink::drop(int tag) {
  dropped_.insert(tag);
  for (const Awaited& one : std::exchange(awaited_[tag], {}))
    transfers_.end(one.number, Transfers::State::gone);
  const bool writes = take_back_sends(tag);
  std::error_code ignored;
  // Both the write and the read end here, and go on elsewhere.
  if (writes || into_memory_ == tag) socket_.cancel(ignored);
  if (paused_) take_message();
}

// All but the one that is being written: its rest has to be sent, from memory of our own. True: there is one.
bool PeerLink::take_back_sends(int tag) {
  bool first = writing_, writes = false;
  std::erase_if(out_, [&](Outgoing& out) {
    const bool going = std::exchange(first, false);
    if (out.header.tag != tag || !out.own.empty()) return false;
    if (!going) {
      transfers_.end(out.number, Transfers::State::gone);
      return true;
    }
    const auto* const bytes = static_cast<const std::byte*>(out.bytes);
    out.own.assign(bytes, bytes + out.header.count);
    out.bytes = out.own.data();
    return !(writes = true);
  });
  return writes;
}

void PeerLink::finish() {
  std::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

// What the other side has sent before it ended can still be read.
void PeerLink::lose_sends() {
  cannot_write_ = true;
  for (const Outgoing& out : out_) transfers_.end(out.number, Transfers::State::gone);
  out_.clear();
}

// Nothing more comes. `wrong`: what is, if the other side has not just ended.
void PeerLink::lose(const std::string& wrong) {
  lost_ = true;
  if (!wrong.empty()) transfers_.error = "rank " + std::to_string(peer_) + " has sent " + wrong;
  for (auto& [tag, awaited] : awaited_) {
    for (const Awaited& one : awaited)
      transfers_.end(one.number, wrong.empty() ? Transfers::State::gone : Transfers::State::wrong);
    awaited.clear();
  }
  if (!writing_) lose_sends();
  std::error_code ignored;
  socket_.close(ignored);  // what is being written ends with an error
}

}  // namespace gradloom::tcp
