// Ranks that are threads of one process: the transport of engine/ranks/transport.h over queues.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "engine/ranks/world.h"

namespace gradloom::thread_transport {

using Key = std::tuple<int, int, int>;  // from, to, tag

struct Pending {
  Key key;
  void* to = nullptr;  // null: a send, which is done at once
  std::int64_t count = 0;
  bool done = false;
};

inline std::mutex mutex;
inline std::map<Key, std::deque<std::vector<char>>> messages;
inline std::array<std::vector<Pending>, 8> requests;  // of each rank

inline int send(int own_rank, const void* bytes, std::int64_t count, int to, int tag, int* request) {
  const std::lock_guard lock(mutex);
  const char* const from = static_cast<const char*>(bytes);
  messages[{own_rank, to, tag}].emplace_back(from, from + count);
  std::vector<Pending>& own = requests[static_cast<std::size_t>(own_rank)];
  own.push_back({{}, nullptr, 0, true});
  *request = static_cast<int>(own.size()) - 1;
  return 0;
}

inline int receive(int own_rank, void* bytes, std::int64_t count, int from, int tag, int* request) {
  const std::lock_guard lock(mutex);
  std::vector<Pending>& own = requests[static_cast<std::size_t>(own_rank)];
  own.push_back({{from, own_rank, tag}, bytes, count, false});
  *request = static_cast<int>(own.size()) - 1;
  return 0;
}

// A message goes to the first receive that waits for it. A wrong length is an error, as it is in MPI.
inline int test(int own_rank, int request, int* done) {
  const std::lock_guard lock(mutex);
  std::vector<Pending>& all = requests[static_cast<std::size_t>(own_rank)];
  Pending& own = all[static_cast<std::size_t>(request)];
  for (int i = 0; i < request; ++i) {
    const Pending& before = all[static_cast<std::size_t>(i)];
    if (!before.done && !own.done && before.key == own.key) return *done = 0;
  }
  auto& queue = messages[own.key];
  if (!own.done && !queue.empty()) {
    if (queue.front().size() != static_cast<std::size_t>(own.count)) return 1;
    std::memcpy(own.to, queue.front().data(), queue.front().size());
    queue.pop_front();
    own.done = true;
  }
  *done = own.done ? 1 : 0;
  return 0;
}

// Of each rank its own: a world has two threads.
template <int rank>
constexpr GradloomTransport transport_of() {
  return {GRADLOOM_TRANSPORT_VERSION,
          "threads",
          [](const GradloomMeeting*, void**, int*, int*) { return 0; },
          [](void*, const void* bytes, std::int64_t count, int to, int tag, int* request) {
            return send(rank, bytes, count, to, tag, request);
          },
          [](void*, void* bytes, std::int64_t count, int from, int tag, int* request) {
            return receive(rank, bytes, count, from, tag, request);
          },
          [](void*, int request, int* done) { return test(rank, request, done); },
          [](void*) { return std::int64_t{0}; },
          [](void*, int) {},
          [](void*) { return 0; },
          [](void*) {},
          [](void*, int) { return "a message of another length"; }};
}
inline constexpr std::array kTransports = {transport_of<0>(), transport_of<1>(), transport_of<2>(),
                                           transport_of<3>(), transport_of<4>(), transport_of<5>(),
                                           transport_of<6>(), transport_of<7>()};
static_assert(kTransports.size() == requests.size());

// Calls f(world) on a thread for each of `size` ranks, 8 at most.
inline void on_ranks(int size, const std::function<void(World&)>& f) {
  messages.clear();
  for (std::vector<Pending>& of_rank : requests) of_rank.clear();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([=] {
      World world(kTransports[static_cast<std::size_t>(rank)], nullptr, rank, size);
      f(world);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace gradloom::thread_transport
