// Somebody who does anything: clicks, drags, keys of the key map, text, sizes, by a seed and by what is on the
// screen. What it does are commands of scripts, so that a file of them shows what came before a fault.
//
// It does not quit, and it writes no file by a dialog or by Save: all else is fair.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "viz/draw/script.h"

namespace gradloom {

class RandomUser {
 public:
  // `drops`: files that it drops on the window now and then.
  RandomUser(std::uint64_t seed, std::vector<std::string> drops) : random_(seed), drops_(std::move(drops)) {}
  ScriptCommand next();

 private:
  std::uint64_t below(std::uint64_t end) {
    return random_() % end;
  }  // the same everywhere, as distributions are not
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class List>
  auto any_of(const List& list) {
    return list[below(std::size(list))];
  }
  std::string any_item();  // empty: none is in the window
  ScriptCommand pointer(ScriptVerb verb);
  ScriptCommand key();
  ScriptCommand of_window();
  void hold(ScriptCommand& command);

  std::mt19937_64 random_;
  std::vector<std::string> drops_;
  bool click_next_ = false;  // the pointer was moved to a place of its own
};

// A `random` of a script while it goes on: one action after the other, each without waiting for what is not there.
// After every frame frame_faults() must be empty.
class RandomRun {
 public:
  RandomRun(const ScriptCommand& command, std::vector<std::string> drops);
  // Before a frame; an error says which action it was, and the seed.
  Status step(ScriptTarget& target);
  bool finished() const { return made_ == actions_ && runner_.finished(); }

 private:
  std::uint64_t seed_;
  int actions_, made_ = 0;
  std::string trail_;  // file that gets each action before it is done; empty: none
  std::string last_;
  RandomUser user_;
  ScriptRunner runner_;
};

}  // namespace gradloom
