#include "engine/ranks/tcp/meeting.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <thread>

namespace gradloom::tcp {
namespace {

constexpr std::array<char, 8> kMagic{'g', 'r', 'a', 'd', 'l', 'o', 'o', 'm'};
constexpr std::int32_t kVersion = 1;
constexpr std::int32_t kWelcome = 0, kAnotherWorld = 1, kGivenUp = 2, kInterrupted = 3;  // codes of answers
constexpr auto kLook = std::chrono::milliseconds(20);
constexpr std::chrono::milliseconds kAgain(5), kSeldom(200);
constexpr auto kPatience = std::chrono::seconds(10);  // with a visitor who says nothing
constexpr int kMostVisitors = 64;                     // at once, beside the ranks

// A socket that takes both kinds of addresses tells those of IPv4 as some of IPv6.
asio::ip::address plain(const asio::ip::address& address) {
  return address.is_v6() && address.to_v6().is_v4_mapped()
             ? asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6())
             : address;
}

Place place_of(const asio::ip::address& address, std::int32_t port) {
  Place place;
  place.port = port;
  if (address.is_v4()) {
    const auto bytes = address.to_v4().to_bytes();
    std::copy(bytes.begin(), bytes.end(), place.address.begin());
    place.bytes = 4;
  } else {
    place.address = address.to_v6().to_bytes();
    place.bytes = 16;
  }
  return place;
}

asio::ip::tcp::endpoint endpoint_of(const Place& place) {
  const auto port = static_cast<unsigned short>(place.port);
  if (place.bytes == 16) return {asio::ip::make_address_v6(place.address), port};
  asio::ip::address_v4::bytes_type bytes{};
  std::copy_n(place.address.begin(), 4, bytes.begin());
  return {asio::ip::make_address_v4(bytes), port};
}

std::string text_of(const asio::ip::tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + address + "]" : address) + ":" + std::to_string(endpoint.port());
}

std::string seconds_text(std::int64_t ns) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g s", static_cast<double>(ns) / 1e9);
  return text.data();
}

void prepare(asio::ip::tcp::socket& socket) {
  std::error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
}

}  // namespace

Meeting::Meeting(asio::io_context& context, const GradloomMeeting& known)
    : context_(context),
      known_(known),
      end_(Clock::now() + std::chrono::nanoseconds(known.limit_ns)),
      acceptor_(context),
      again_(context),
      came_(static_cast<std::size_t>(known.world)) {
  for (int rank = 0; rank < known.world; ++rank) reached_.emplace_back(context);
}

int Meeting::fail(std::string text) {
  error_ = std::move(text);
  return 1;
}

// Why it is over: the time, or the user.
int Meeting::missed(const std::string& text) {
  if (stopped()) return GRADLOOM_TRANSPORT_STOPPED;
  return fail(text + " within " + seconds_text(known_.limit_ns));
}

template <class Done>
bool Meeting::run_until(Clock::time_point limit, const Done& done) {
  while (!done() && Clock::now() < limit && !is_over()) {
    context_.restart();
    if (context_.run_one_for(kLook) == 0 && context_.stopped())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // there is nothing to wait for
  }
  return done();
}

int Meeting::meet(std::vector<Socket>& sockets) {
  const int code = known_.rank == 0 ? meet_as_first() : meet_first();
  end_visits();
  if (code != 0) return code;
  for (std::size_t rank = 0; rank < came_.size(); ++rank)
    if (came_[rank] != nullptr) reached_[rank] = std::move(came_[rank]->socket);
  sockets = std::move(reached_);
  return 0;
}

// Nothing refers to this object any more.
void Meeting::end_visits() {
  std::error_code ignored;
  acceptor_.close(ignored);
  again_.cancel();
  for (const std::weak_ptr<Visitor>& one : all_visits_) {
    const Visit visit = one.lock();
    if (visit == nullptr) continue;
    visit->patience.cancel();
    if (std::find(came_.begin(), came_.end(), visit) == came_.end()) visit->socket.close(ignored);
  }
  context_.restart();
  context_.run();
  context_.restart();
}

std::string Meeting::name_of_place() const {
  return std::string(known_.address) + " port " + std::to_string(known_.port);
}

int Meeting::resolve(Endpoints& endpoints) {
  std::error_code code;
  asio::ip::tcp::resolver resolver(context_);
  const auto found =
      resolver.resolve(known_.address, std::to_string(known_.port), asio::ip::resolver_base::flags(), code);
  for (const auto& one : found) endpoints.push_back(one.endpoint());
  if (!code && !endpoints.empty()) return 0;
  return fail("the address of rank 0, " + std::string(known_.address) + ", is not known: " + code.message());
}

bool Meeting::listen_at(const Endpoint& endpoint, std::error_code& code) {
  std::error_code ignored;
  acceptor_.close(ignored);
  acceptor_.open(endpoint.protocol(), code);
  if (code) return false;
  fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
  acceptor_.set_option(asio::socket_base::reuse_address(true), ignored);
  if (endpoint.address().is_v6()) acceptor_.set_option(asio::ip::v6_only(false), ignored);
  acceptor_.bind(endpoint, code);
  if (!code) acceptor_.listen(asio::socket_base::max_listen_connections, code);
  if (code)
    acceptor_.close(ignored);
  else
    accept();
  return !code;
}

int Meeting::listen_as_first() {
  Endpoints endpoints;
  if (const int failed = resolve(endpoints)) return failed;
  std::error_code code;
  for (const Endpoint& endpoint : endpoints) {
    if (endpoint.address().is_loopback() && known_.one_machine == 0) continue;
    if (listen_at(endpoint, code)) return 0;
    if (code == asio::error::address_in_use) break;
  }
  const auto port = static_cast<unsigned short>(known_.port);
  if (code != asio::error::address_in_use &&
      (listen_at({asio::ip::tcp::v6(), port}, code) || listen_at({asio::ip::tcp::v4(), port}, code)))
    return 0;
  return fail("rank 0 cannot listen at " + name_of_place() + ": " + code.message() +
              " (GRADLOOM_PORT names another port)");
}

bool Meeting::listen_as_other(const Socket& to_first, std::error_code& code) {
  if (acceptor_.is_open() || known_.rank + 1 == known_.world) return true;  // nobody comes
  asio::ip::address own = plain(to_first.local_endpoint(code).address());
  if (code) return false;
  if (own.is_loopback() && known_.one_machine == 0)
    own = own.is_v4() ? asio::ip::address(asio::ip::address_v4::any())
                      : asio::ip::address(asio::ip::address_v6::any());
  return listen_at(Endpoint(own, 0), code);
}

Greeting Meeting::greeting() const {
  Greeting mine;
  mine.magic = kMagic;
  mine.version = kVersion;
  mine.rank = known_.rank;
  mine.world = known_.world;
  std::error_code ignored;
  mine.port = acceptor_.is_open() ? acceptor_.local_endpoint(ignored).port() : 0;
  const std::string id = known_.world_id;
  id.copy(mine.world_id.data(), mine.world_id.size() - 1);
  return mine;
}

Answer Meeting::answer_of(std::int32_t code, const std::string& text) const {
  Answer answer;
  answer.magic = kMagic;
  answer.code = code;
  text.copy(answer.text.data(), answer.text.size() - 1);
  return answer;
}

void Meeting::accept() {
  acceptor_.async_accept([this](const std::error_code& code, Socket socket) {
    if (code == asio::error::operation_aborted || !acceptor_.is_open()) return;
    if (code) return accept_later();
    if (unheard_ < known_.world + kMostVisitors) {
      prepare(socket);
      hear(std::make_shared<Visitor>(std::move(socket)));
    }
    accept();
  });
}

// The system has no descriptor or memory for who has come: he still waits, and the next answer would be the same at once.
void Meeting::accept_later() {
  again_.expires_after(kLook);
  again_.async_wait([this](const std::error_code& code) {
    if (!code && acceptor_.is_open()) accept();
  });
}

void Meeting::hear(const Visit& visit) {
  ++unheard_;
  std::erase_if(all_visits_, [](const auto& one) { return one.expired(); });
  all_visits_.push_back(visit);
  visit->patience.expires_after(kPatience);
  visit->patience.async_wait([visit](const std::error_code& code) {
    std::error_code ignored;
    if (!code) visit->socket.close(ignored);
  });
  asio::async_read(visit->socket, asio::buffer(&visit->greeting, sizeof(Greeting)),
                   [this, visit](const std::error_code& code, std::size_t) {
                     --unheard_;
                     visit->patience.cancel();
                     if (!code) judge(visit);
                   });
}

void Meeting::judge(const Visit& visit) {
  const Greeting mine = greeting();
  Greeting& theirs = visit->greeting;
  if (theirs.magic != mine.magic) return;  // its connection ends with it
  theirs.world_id.back() = 0;
  std::error_code code;
  const Endpoint from = visit->socket.remote_endpoint(code);
  const std::string rank = std::to_string(theirs.rank);
  if (theirs.version != mine.version) return answer(visit, kAnotherWorld, "another version of Gradloom");
  if (theirs.world_id != mine.world_id) return answer(visit, kAnotherWorld, "another training");
  if (theirs.world != mine.world)
    return answer(visit, kAnotherWorld, "a training of " + std::to_string(mine.world) + " ranks");
  if (theirs.rank <= mine.rank || theirs.rank >= mine.world || theirs.port < 0 || theirs.port > 65535 || code)
    return answer(visit, kAnotherWorld, "a training that does not wait for rank " + rank + " there");
  Visit& place = came_[static_cast<std::size_t>(theirs.rank)];
  if (place != nullptr)
    return answer(visit, kAnotherWorld, "a training that has a rank " + rank + " already");
  visit->listens = place_of(plain(from.address()), theirs.port);
  place = visit;
  if (mine.rank > 0) answer(visit, kWelcome, "");  // rank 0 answers once all are there
}

void Meeting::answer(const Visit& visit, std::int32_t code, const std::string& text) {
  visit->answer = answer_of(code, text);
  asio::async_write(visit->socket, asio::buffer(&visit->answer, sizeof(Answer)),
                    [visit](const std::error_code&, std::size_t) {});
}

bool Meeting::all_came() const {
  return std::all_of(came_.begin() + known_.rank + 1, came_.end(),
                     [](const Visit& one) { return one != nullptr; });
}

std::string Meeting::ranks_missing() const {
  std::string text;
  int count = 0;
  for (std::size_t rank = static_cast<std::size_t>(known_.rank) + 1; rank < came_.size(); ++rank)
    if (came_[rank] == nullptr && ++count <= 8) text += (count > 1 ? ", " : "") + std::to_string(rank);
  return (count == 1 ? "rank " : "ranks ") + text + (count > 8 ? ", .." : "");
}

int Meeting::meet_as_first() {
  if (const int failed = listen_as_first()) return failed;
  const bool all = run_until(end_, [&] { return all_came(); });
  const int code = all ? 0 : missed(ranks_missing() + " did not come to " + name_of_place());
  const Answer told = answer_of(all ? kWelcome : code == 1 ? kGivenUp : kInterrupted, error_);
  std::error_code ignored;  // a rank that has ended meanwhile is found out later
  for (const Visit& one : came_)
    if (one != nullptr) asio::write(one->socket, asio::buffer(&told, sizeof told), ignored);
  if (all) tell_places();
  return code;
}

// Who has reached this machine by its loopback address is where this rank is, for those on other machines.
void Meeting::tell_places() {
  for (std::size_t to = 1; to < came_.size(); ++to) {
    std::vector<Place> places(came_.size());
    std::error_code ignored;
    Socket& socket = came_[to]->socket;
    const asio::ip::address own = plain(socket.local_endpoint(ignored).address());
    for (std::size_t rank = 1; rank < came_.size(); ++rank) {
      places[rank] = came_[rank]->listens;
      if (endpoint_of(places[rank]).address().is_loopback() && !own.is_loopback())
        places[rank] = place_of(own, places[rank].port);
    }
    asio::write(socket, asio::buffer(places), ignored);
  }
}

bool Meeting::connect(const Endpoints& endpoints, Socket& socket, std::string& why) {
  std::error_code problem = asio::error::would_block;
  socket = Socket(context_);
  asio::async_connect(socket, endpoints,
                      [&](const std::error_code& code, const Endpoint&) { problem = code; });
  const auto known = [&] { return problem != asio::error::would_block; };
  if (!run_until(end_, known)) {
    std::error_code ignored;
    socket.close(ignored);
    context_.restart();
    while (!known()) context_.run_one();  // what refers to this frame ends
    if (why.empty()) why = "it does not answer";
    return false;
  }
  if (problem) why = problem.message();
  return !problem;
}

bool Meeting::read(Socket& socket, const asio::mutable_buffer& into) {
  std::error_code problem = asio::error::would_block;
  asio::async_read(socket, into, [&](const std::error_code& code, std::size_t) { problem = code; });
  const auto known = [&] { return problem != asio::error::would_block; };
  if (!run_until(end_, known)) {
    std::error_code ignored;
    socket.close(ignored);
    context_.restart();
    while (!known()) context_.run_one();
  }
  return !problem;
}

// One connection, and what is answered on it. False: it may be tried again.
bool Meeting::try_to_reach(const Endpoints& endpoints, Answer& answer, Socket& socket, std::string& why) {
  if (!connect(endpoints, socket, why)) return false;
  prepare(socket);
  std::error_code problem;
  if (!listen_as_other(socket, problem)) {
    why = "this rank has no port to listen at: " + problem.message();
    return false;
  }
  const Greeting mine = greeting();
  asio::write(socket, asio::buffer(&mine, sizeof mine), problem);
  why = "no rank of Gradloom answers there, or it waits for others";
  return !problem && read(socket, asio::buffer(&answer, sizeof answer)) && answer.magic == kMagic;
}

int Meeting::reach(const Endpoints& endpoints, int rank) {
  std::string why;
  Answer answer;
  std::chrono::milliseconds again = kAgain;
  Socket& socket = reached_[static_cast<std::size_t>(rank)];
  const std::string name = "rank " + std::to_string(rank), at = " at " + text_of(endpoints.front());
  while (!try_to_reach(endpoints, answer, socket, why)) {
    if (is_over()) return missed(name + " was not met" + at + " (" + why + ")");
    run_until(Clock::now() + again, [] { return false; });
    again = std::min(2 * again, kSeldom);
  }
  answer.text.back() = 0;
  const std::string text = answer.text.data();
  if (answer.code == kWelcome) return 0;
  if (answer.code == kInterrupted) return fail(name + at + " was interrupted before all ranks were there");
  return fail(answer.code == kAnotherWorld ? name + at + " belongs to " + text : text);
}

int Meeting::meet_first() {
  Endpoints endpoints;
  if (const int failed = resolve(endpoints)) return failed;
  if (const int failed = reach(endpoints, 0)) return failed;
  std::vector<Place> places(came_.size());
  if (!read(reached_[0], asio::buffer(places)))
    return is_over() ? missed("rank 0 did not say where the others are")
                     : fail("rank 0 has ended before all met");
  return meet_others(places);
}

int Meeting::meet_others(const std::vector<Place>& places) {
  for (int rank = 1; rank < known_.rank; ++rank)
    if (const int failed = reach({endpoint_of(places[static_cast<std::size_t>(rank)])}, rank)) return failed;
  if (run_until(end_, [&] { return all_came(); })) return 0;
  return missed(ranks_missing() + " did not come to rank " + std::to_string(known_.rank));
}

}  // namespace gradloom::tcp
