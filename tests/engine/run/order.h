// Whether queued work is ordered as its memory demands: two operations of which one writes what the other
// touches must run in the order in which they were called, by their stream, by events or because the host
// waited. Vector clocks (Lamport; Mattern 1988).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gradloom {

struct OrderedRange {
  std::uint64_t begin = 0, end = 0;
};

struct OrderedWork {
  enum class Kind { work, record, wait, host_wait, host_wait_all } kind = Kind::work;
  int stream = 0, event = -1;  // of record, wait and host_wait
  std::string name;
  std::vector<OrderedRange> reads, writes;  // of work
  std::vector<OrderedRange> host_writes;    // what the host wrote just before it queued this
};

// The first violation as text, empty when there is none.
inline std::string first_disorder(const std::vector<OrderedWork>& list) {
  using Clock = std::map<int, std::size_t>;  // stream -> operations of it that are known to be over
  std::map<int, Clock> stream_clock, event_clock;
  std::map<int, std::size_t> queued;  // per stream
  Clock host;
  const auto join = [](Clock& into, const Clock& from) {
    for (const auto& [stream, count] : from) into[stream] = std::max(into[stream], count);
  };
  struct Done {
    const OrderedWork* work;
    std::size_t number;  // within its stream, from 1
  };
  std::vector<Done> done;
  const auto overlap = [](const std::vector<OrderedRange>& a, const std::vector<OrderedRange>& b) {
    for (const OrderedRange& x : a)
      for (const OrderedRange& y : b)
        if (x.begin < y.end && y.begin < x.end) return true;
    return false;
  };
  for (const OrderedWork& w : list) {
    Clock& clock = stream_clock[w.stream];
    switch (w.kind) {
      case OrderedWork::Kind::record:
        join(clock, host);
        clock[w.stream] = queued[w.stream];
        event_clock[w.event] = clock;
        break;
      case OrderedWork::Kind::wait:
        join(clock, host);
        join(clock, event_clock[w.event]);
        break;
      case OrderedWork::Kind::host_wait: join(host, event_clock[w.event]); break;
      case OrderedWork::Kind::host_wait_all:
        for (const auto& [stream, count] : queued) host[stream] = count;
        break;
      case OrderedWork::Kind::work: {
        join(clock, host);
        for (const Done& before : done) {
          const bool conflict = overlap(before.work->writes, w.reads) ||
                                overlap(before.work->writes, w.writes) ||
                                overlap(before.work->reads, w.writes);
          if (conflict && before.work->stream != w.stream && clock[before.work->stream] < before.number)
            return w.name + " does not wait for " + before.work->name;
          const bool host_conflict =
              overlap(before.work->reads, w.host_writes) || overlap(before.work->writes, w.host_writes);
          if (host_conflict && host[before.work->stream] < before.number)
            return "the host writes what " + w.name + " reads before " + before.work->name + " is over";
        }
        clock[w.stream] = ++queued[w.stream];
        done.push_back({&w, queued[w.stream]});
        break;
      }
    }
  }
  return "";
}

}  // namespace gradloom
