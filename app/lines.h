// Whole lines of what comes in pieces, as pipes and growing files bring it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace gradloom {

class LineSplitter {
 public:
  // Calls line(std::string) for each that is whole now, without its end. One of more than 16 MiB is none of ours, and left out.
  template <class Line>
  void take(std::string_view bytes, const Line& line) {
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      if (!skipping_) rest_.append(bytes.substr(0, end));
      if (rest_.size() > kLongest) skipping_ = true;
      if (skipping_) rest_.clear();
      if (end == std::string_view::npos) return;
      if (!std::exchange(skipping_, false)) line(std::exchange(rest_, {}));
      bytes.remove_prefix(end + 1);
    }
  }
  // What stands behind the last end of a line, if anything does: nothing more will come.
  template <class Line>
  void finish(const Line& line) {
    if (!rest_.empty()) line(std::exchange(rest_, {}));
  }

 private:
  static constexpr std::size_t kLongest = std::size_t{16} << 20;
  std::string rest_;
  bool skipping_ = false;  // the line that comes is too long
};

}  // namespace gradloom
