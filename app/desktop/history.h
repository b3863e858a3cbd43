// Undo and redo: the values before each change, and those that were undone.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace gradloom {

template <class T>
class History {
 public:
  explicit History(std::size_t most) : most_(most) {}
  void push(T before) {  // a change is made: what was undone is forgotten
    undo_.push_back(std::move(before));
    if (undo_.size() > most_) undo_.erase(undo_.begin());
    redo_.clear();
  }
  // The value to go back or forward to, given the present one; nothing where there is none.
  std::optional<T> undo(T now) { return step(undo_, redo_, std::move(now)); }
  std::optional<T> redo(T now) { return step(redo_, undo_, std::move(now)); }
  bool can_undo() const { return !undo_.empty(); }
  bool can_redo() const { return !redo_.empty(); }
  void clear() {
    undo_.clear();
    redo_.clear();
  }

 private:
  static std::optional<T> step(std::vector<T>& from, std::vector<T>& to, T now) {
    if (from.empty()) return std::nullopt;
    to.push_back(std::move(now));
    T back = std::move(from.back());
    from.pop_back();
    return back;
  }
  std::size_t most_;
  std::vector<T> undo_, redo_;
};

}  // namespace gradloom
