#include "passes/packing.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <utility>

namespace gradloom {
namespace {

constexpr std::int64_t kNoWall = std::numeric_limits<std::int64_t>::max();

double area(const Request& r) { return static_cast<double>(r.bytes) * (r.last_step - r.first_step + 1); }

bool live_together(const Request& a, const Request& b) {
  return a.first_step <= b.last_step && b.first_step <= a.last_step;
}

class Ejection {
 public:
  // `start` chooses how much the size of what stands in the way counts, and which of equal offsets are taken.
  Ejection(const std::vector<Request>& requests, std::int64_t most, unsigned start, std::int64_t& work)
      : requests_(requests), most_(most), work_(work), random_(start) {
    constexpr double kExponents[] = {0.5, 0, 1};
    for (const Request& r : requests)
      weight_.push_back(std::pow(area(r), kExponents[start % std::size(kExponents)]));
    cost_ = weight_;
  }

  // All within that many placements?
  bool run(std::int64_t placements, std::vector<std::int64_t>& offsets) {
    for (std::size_t i = 0; i < requests_.size(); ++i)
      if (requests_[i].bytes > 0) homeless_.push_back(i);
    std::stable_sort(homeless_.begin(), homeless_.end(),
                     [&](std::size_t a, std::size_t b) { return area(requests_[a]) < area(requests_[b]); });
    while (!homeless_.empty()) {
      if (work_ <= 0 || placements-- <= 0) return false;
      const std::size_t i = homeless_.back();
      homeless_.pop_back();
      place(i, best_offset(i));
    }
    for (const Standing& s : placed_) offsets[s.request] = s.offset;
    return true;
  }

 private:
  struct Standing {
    std::int64_t offset, end;
    std::size_t request;
    bool operator<(const Standing& other) const {
      return offset != other.offset ? offset < other.offset : request < other.request;
    }
  };

  // Where the least stands in the way. Something does between (offset - bytes) and end of what is placed: the
  // cost of an offset is a sum of those intervals, and least at one of their ends.
  std::int64_t best_offset(std::size_t i) {
    const Request& r = requests_[i];
    const std::int64_t top = most_ - r.bytes;
    begins_.clear();
    ends_.clear();
    work_ -= static_cast<std::int64_t>(placed_.size());
    for (const Standing& s : placed_) {
      const Request& other = requests_[s.request];
      if (!live_together(r, other)) continue;
      begins_.emplace_back(s.offset - r.bytes, cost_[s.request]);
      ends_.emplace_back(s.end, cost_[s.request]);
    }
    work_ -= 16 * static_cast<std::int64_t>(ends_.size());
    std::sort(ends_.begin(), ends_.end());
    list_candidates(top);
    double cost = 0, least = std::numeric_limits<double>::infinity();
    std::int64_t best = 0;
    std::size_t begun = 0, ended = 0;
    unsigned equal = 0;
    for (const std::int64_t offset : candidates_) {
      while (begun < begins_.size() && begins_[begun].first < offset) cost += begins_[begun++].second;
      while (ended < ends_.size() && ends_[ended].first <= offset) cost -= ends_[ended++].second;
      if (begun == ended) return offset;  // nothing is in the way
      if (cost > least || (cost == least && random_() % ++equal != 0)) continue;
      if (cost < least) equal = 1;
      least = cost;
      best = offset;
    }
    cost_[i] += weight_[i];
    return best;
  }

  // The ends of the intervals from 0 to `top`, in order, each once.
  void list_candidates(std::int64_t top) {
    candidates_.assign(1, 0);
    auto begin = begins_.begin(), end = ends_.begin();
    while (begin != begins_.end() || end != ends_.end()) {
      const bool begins = end == ends_.end() || (begin != begins_.end() && begin->first < end->first);
      const std::int64_t next = begins ? (begin++)->first : (end++)->first;
      if (next > candidates_.back() && next < top) candidates_.push_back(next);
    }
    if (candidates_.back() < top) candidates_.push_back(top);
  }

  void place(std::size_t i, std::int64_t offset) {
    const Standing place{offset, offset + requests_[i].bytes, i};
    std::erase_if(placed_, [&](const Standing& s) {
      const bool in_the_way =
          s.offset < place.end && offset < s.end && live_together(requests_[i], requests_[s.request]);
      if (in_the_way) homeless_.push_back(s.request);
      return in_the_way;
    });
    placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), place), place);
  }

  const std::vector<Request>& requests_;
  const std::int64_t most_;
  std::int64_t& work_;
  std::vector<double> weight_,
      cost_;                      // by request; cost: weight times (1 + how often it found no free place)
  std::vector<Standing> placed_;  // by offset
  std::vector<std::size_t> homeless_;
  std::vector<std::pair<std::int64_t, double>> begins_, ends_;
  std::vector<std::int64_t> candidates_;
  std::mt19937 random_;
};

// Requests with their lifetimes in sections: steps at whose ends nothing changes are one, and those that have no more live than the
// next are left out.
struct Timeline {
  explicit Timeline(const std::vector<Request>& all) : requests(all) {
    std::vector<std::int32_t> begins, ends;
    for (const Request& r : all) {
      if (r.bytes == 0) continue;
      begins.push_back(r.first_step);
      ends.push_back(r.last_step);
    }
    std::sort(begins.begin(), begins.end());
    std::sort(ends.begin(), ends.end());
    std::vector<std::int32_t> first_of;  // the section's steps begin after the last end before it
    for (std::size_t i = 0, ended = 0; i < begins.size(); ++i) {
      const std::size_t before = ended;
      while (ends[ended] < begins[i]) ++ended;
      if (i == 0 || ended > before) first_of.push_back(begins[i]);
    }
    const auto section_of = [&](std::int32_t step) {
      return static_cast<std::int32_t>(std::upper_bound(first_of.begin(), first_of.end(), step) -
                                       first_of.begin()) -
             1;
    };
    live.assign(first_of.size(), 0);
    for (Request& r : requests) {
      if (r.bytes == 0) continue;
      r.first_step = section_of(r.first_step);
      r.last_step = section_of(r.last_step);
      for (std::int32_t s = r.first_step; s <= r.last_step; ++s) live[static_cast<std::size_t>(s)] += r.bytes;
    }
  }
  std::vector<Request> requests;
  std::vector<std::int64_t> live;  // bytes, by section
};

class Exact {
 public:
  Exact(const Timeline& timeline, std::int64_t most, std::int64_t& work, std::vector<std::int64_t>& offsets)
      : requests_(timeline.requests),
        live_(timeline.live),
        most_(most),
        work_(work),
        offsets_(offsets),
        preference_(requests_.size()),
        weight_(live_.size(), 1),
        run_of_(live_.size()),
        lowest_(live_.size()) {}

  Packed run() {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i].bytes > 0) all.push_back(i);
    }
    if (*std::max_element(live_.begin(), live_.end()) > most_) return Packed::impossible;
    std::int64_t steps = 0;  // of all requests
    for (const std::size_t i : all) steps += requests_[i].last_step - requests_[i].first_step + 1;
    if (steps * static_cast<std::int64_t>(all.size()) / 4 > work_) return Packed::gave_up;  // not one packing
    for (unsigned start = 0; work_ > 0; ++start) {
      floor_.assign(live_.size(), 0);
      rest_ = live_;
      trail_.clear();
      sum_weights_ = start % 2 == 1;
      prefer(start / 2);
      decisions_ = 1000 + 50 * static_cast<std::int64_t>(start);
      if (fill(0, static_cast<std::int32_t>(live_.size()), all)) return Packed::found;
      if (decisions_ > 0 && work_ > 0) return Packed::impossible;
    }
    return Packed::gave_up;
  }

 private:
  using Section = std::int32_t;
  static std::size_t at(Section s) { return static_cast<std::size_t>(s); }
  struct Run {  // sections of one floor
    Section begin, end;
    std::int64_t floor, wall;  // wall: the lower neighbour's floor where both are higher, else the floor
    std::size_t first_fitting, fitting;  // the requests that live within it, in fitting_: where and how many
  };
  static constexpr std::size_t kNothing = std::numeric_limits<std::size_t>::max();
  // The request rests on the floor at `begin`, and what is before that is filled up to `level`
  struct Choice {
    std::size_t request;  // kNothing: all is filled up
    Section from, begin;
    std::int64_t floor, level;
  };
  struct Change {
    Section section;  // -1: the request was placed
    std::int64_t floor;
    std::size_t request;
  };

  // Which choices come first: by area, length, live bytes around, bytes; from the fifth start on not quite so.
  void prefer(unsigned order) {
    std::mt19937 random(order);
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const Request& r = requests_[i];
      if (r.bytes == 0) continue;
      const double length = r.last_step - r.first_step + 1;
      if (order % 4 == 0) preference_[i] = area(r);
      if (order % 4 == 1) preference_[i] = length;
      if (order % 4 == 2)
        preference_[i] = static_cast<double>(
            *std::max_element(live_.begin() + r.first_step, live_.begin() + r.last_step + 1));
      if (order % 4 == 3) preference_[i] = static_cast<double>(r.bytes);
      if (order >= 4) preference_[i] *= 0.7 + 0.6 * static_cast<double>(random() % 1000) / 1000;
    }
  }

  void set_floor(Section s, std::int64_t floor) {
    trail_.push_back({s, floor_[at(s)], 0});
    floor_[at(s)] = floor;
  }
  void place(std::size_t i, std::int64_t floor) {
    const Request& r = requests_[i];
    offsets_[i] = floor;
    trail_.push_back({-1, 0, i});
    for (Section s = r.first_step; s <= r.last_step; ++s) {
      set_floor(s, floor + r.bytes);
      rest_[at(s)] -= r.bytes;
    }
  }
  void undo(std::size_t mark) {
    for (; trail_.size() > mark; trail_.pop_back()) {
      const Change& change = trail_.back();
      if (change.section >= 0) {
        floor_[at(change.section)] = change.floor;
        continue;
      }
      const Request& r = requests_[change.request];
      for (Section s = r.first_step; s <= r.last_step; ++s) rest_[at(s)] += r.bytes;
    }
  }

  // Packs what is left in the sections [begin, end), each stretch on its own; undoes all if it cannot.
  bool fill(Section begin, Section end, const std::vector<std::size_t>& left) {
    if (left.empty()) return true;
    const std::size_t mark = trail_.size();
    std::vector<std::pair<Section, Section>> stretches;
    for (Section s = begin; s < end;) {
      if (rest_[at(s)] == 0) {
        ++s;
        continue;
      }
      const Section first = s;
      while (s < end && rest_[at(s)] > 0) ++s;
      stretches.emplace_back(first, s);
    }
    if (stretches.size() == 1) return decide(stretches[0].first, stretches[0].second, left);
    std::stable_sort(stretches.begin(), stretches.end(),
                     [](const auto& a, const auto& b) { return a.second - a.first < b.second - b.first; });
    std::vector<std::size_t> within;
    for (const auto& [first, last] : stretches) {
      within.clear();
      for (const std::size_t i : left)
        if (requests_[i].first_step >= first && requests_[i].last_step < last) within.push_back(i);
      if (decide(first, last, within)) continue;
      undo(mark);
      return false;
    }
    return true;
  }

  // One decision and all that follow from it, in sections between which something is left everywhere.
  bool decide(Section begin, Section end, const std::vector<std::size_t>& left) {
    if (--decisions_ <= 0 || work_ <= 0) return false;
    const std::size_t mark = trail_.size();
    std::vector<Choice> choices;
    if (fill_empty_valleys(begin, end, left) && holds_rest(begin, end, left)) choices = best_choices();
    std::vector<std::size_t> others;
    for (const Choice& choice : choices) {
      const std::size_t before = trail_.size();
      for (Section s = choice.from; s < choice.begin; ++s) set_floor(s, choice.level);
      others = left;
      if (choice.request != kNothing) {
        std::erase(others, choice.request);
        place(choice.request, choice.floor);
      }
      if (fill(begin, end, others)) return true;
      undo(before);
      if (decisions_ <= 0 || work_ <= 0) break;
    }
    undo(mark);
    return false;
  }

  void find_runs(Section begin, Section end, const std::vector<std::size_t>& left) {
    work_ -= end - begin + 2 * static_cast<Section>(left.size());
    runs_.clear();
    for (Section s = begin; s < end; ++s) {
      if (s == begin || floor_[at(s)] != floor_[at(s - 1)]) runs_.push_back({s, s, floor_[at(s)], 0, 0, 0});
      runs_.back().end = s + 1;
      run_of_[at(s)] = runs_.size() - 1;
    }
    for (std::size_t k = 0; k < runs_.size(); ++k) {
      const std::int64_t before = k == 0 ? kNoWall : runs_[k - 1].floor,
                         after = k + 1 == runs_.size() ? kNoWall : runs_[k + 1].floor;
      runs_[k].wall = std::max(runs_[k].floor, std::min(before, after));
    }
    const auto run_within = [&](std::size_t i) {  // kNothing: it lives in several
      const std::size_t k = run_of_[at(requests_[i].first_step)];
      return k == run_of_[at(requests_[i].last_step)] ? k : kNothing;
    };
    for (const std::size_t i : left)
      if (const std::size_t k = run_within(i); k != kNothing) ++runs_[k].fitting;
    std::size_t total = 0;
    for (Run& run : runs_) run.first_fitting = std::exchange(total, total + run.fitting);
    fitting_.resize(total);
    for (Run& run : runs_) run.fitting = 0;
    for (const std::size_t i : left)
      if (const std::size_t k = run_within(i); k != kNothing)
        fitting_[runs_[k].first_fitting + runs_[k].fitting++] = i;
  }

  // Nothing can rest on the floor of a valley within which nothing lives.
  bool fill_empty_valleys(Section begin, Section end, const std::vector<std::size_t>& left) {
    for (;;) {
      find_runs(begin, end, left);
      const auto empty = std::find_if(runs_.begin(), runs_.end(), [](const Run& run) {
        return run.wall > run.floor && run.fitting == 0;
      });
      if (empty == runs_.end()) return true;
      for (Section s = empty->begin; s < empty->end; ++s) {
        if (overflows(s, empty->wall)) return fail(s);
        set_floor(s, empty->wall);
      }
    }
  }

  bool overflows(Section s, std::int64_t floor) const { return floor > most_ - rest_[at(s)]; }
  bool fail(Section s) {
    ++weight_[at(s)];
    return false;
  }

  // In each section the lowest of what is left cannot lie below the floors of all its sections.
  bool holds_rest(Section begin, Section end, const std::vector<std::size_t>& left) {
    std::fill(lowest_.begin() + begin, lowest_.begin() + end, kNoWall);
    for (const std::size_t i : left) {
      const Request& r = requests_[i];
      std::int64_t floor = 0;
      for (std::size_t k = run_of_[at(r.first_step)]; k <= run_of_[at(r.last_step)]; ++k)
        floor = std::max(floor, runs_[k].floor);
      if (floor + r.bytes > most_) return fail(r.first_step + (r.last_step - r.first_step) / 2);
      work_ -= r.last_step - r.first_step + 1;
      for (Section s = r.first_step; s <= r.last_step; ++s) lowest_[at(s)] = std::min(lowest_[at(s)], floor);
    }
    for (Section s = begin; s < end; ++s)
      if (overflows(s, lowest_[at(s)])) return fail(s);
    return true;
  }

  // Those of the valley that has the fewest, divided by how often its sections failed; the preferred first. None
  // where a valley has none.
  std::vector<Choice> best_choices() {
    std::vector<Choice> best, choices;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k < runs_.size(); ++k) {
      const Run& run = runs_[k];
      if (run.wall == run.floor) continue;
      choices_in(k, choices);
      if (choices.empty()) return {};
      double weight = 0;
      for (Section s = run.begin; s < run.end; ++s)
        weight = sum_weights_ ? weight + weight_[at(s)] : std::max(weight, weight_[at(s)]);
      const double many = choices.size() == 1 ? 0 : static_cast<double>(choices.size()) / weight;
      if (many >= least) continue;
      least = many;
      best = choices;
      if (choices.size() == 1) break;
    }
    std::stable_sort(best.begin(), best.end(), [&](const Choice& a, const Choice& b) {
      if (a.request == kNothing || b.request == kNothing)
        return b.request == kNothing && a.request != kNothing;
      return preference_[a.request] > preference_[b.request];
    });
    return best;
  }

  // The leftmost request on the floor, or none. What is before it is filled up to the lower of wall and request:
  // no request that fits in there could be left out.
  void choices_in(std::size_t k, std::vector<Choice>& choices) {
    const Run& run = runs_[k];
    const std::int64_t before = k == 0 ? kNoWall : runs_[k - 1].floor;
    const std::span fitting(fitting_.data() + run.first_fitting, run.fitting);
    work_ -= static_cast<std::int64_t>(run.fitting);
    const auto may_be_filled = [&](Section end, std::int64_t level) {
      for (const std::size_t i : fitting)
        if (requests_[i].last_step < end && run.floor + requests_[i].bytes <= level) return false;
      for (Section s = run.begin; s < end; ++s)
        if (overflows(s, level)) return false;
      return true;
    };
    const auto same = [&](const Choice& c, const Request& r) {
      const Request& other = requests_[c.request];
      return other.bytes == r.bytes && other.first_step == r.first_step && other.last_step == r.last_step;
    };
    choices.clear();
    for (const std::size_t i : fitting) {
      const Request& r = requests_[i];
      const std::int64_t level = std::min(before, run.floor + r.bytes);
      if (!may_be_filled(r.first_step, level)) continue;
      if (std::any_of(choices.begin(), choices.end(), [&](const Choice& c) { return same(c, r); })) continue;
      choices.push_back({i, run.begin, r.first_step, run.floor, level});
    }
    if (run.wall != kNoWall && may_be_filled(run.end, run.wall))
      choices.push_back({kNothing, run.begin, run.end, run.floor, run.wall});
  }

  const std::vector<Request>& requests_;
  const std::vector<std::int64_t>& live_;
  const std::int64_t most_;
  std::int64_t& work_;
  std::int64_t decisions_ = 0;  // left in this start
  bool sum_weights_ = false;
  std::vector<std::int64_t>& offsets_;
  std::vector<double> preference_;          // by request
  std::vector<std::int64_t> floor_, rest_;  // by section; rest: bytes of what is not placed
  std::vector<double> weight_;              // by section: 1 + how often it failed
  std::vector<Change> trail_;
  std::vector<Run> runs_;
  std::vector<std::size_t> run_of_, fitting_;
  std::vector<std::int64_t> lowest_;
};

}  // namespace

Packed pack_by_ejection(const std::vector<Request>& requests, std::int64_t most, std::int64_t& work,
                        std::vector<std::int64_t>& offsets) {
  offsets.assign(requests.size(), 0);
  for (const Request& r : requests)
    if (r.bytes > most) return Packed::impossible;
  const auto count = static_cast<std::int64_t>(requests.size());
  std::int64_t placements = 50 * count;
  for (unsigned start = 0; work > 0; ++start, placements += placements / 4)
    if (Ejection(requests, most, start, work).run(placements, offsets)) return Packed::found;
  return Packed::gave_up;
}

Packed pack_exactly(const std::vector<Request>& requests, std::int64_t most, std::int64_t& work,
                    std::vector<std::int64_t>& offsets) {
  offsets.assign(requests.size(), 0);
  const Timeline timeline(requests);
  return timeline.live.empty() ? Packed::found : Exact(timeline, most, work, offsets).run();
}

}  // namespace gradloom
