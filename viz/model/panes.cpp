#include "viz/model/panes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <utility>

namespace gradloom {
namespace {

constexpr int kMaxDepth = 64;  // more than there are tabs, each of which may be split off

struct Parser {
  std::string_view rest;

  bool take(char c) {
    if (rest.empty() || rest.front() != c) return false;
    rest.remove_prefix(1);
    return true;
  }

  std::unique_ptr<Pane> pane(int depth) {
    if (depth > kMaxDepth || rest.empty()) return nullptr;
    auto out = std::make_unique<Pane>();
    const size_t end = rest.find_first_of(",()|");
    const bool split =
        (rest.front() == 'h' || rest.front() == 'v') && end != std::string_view::npos && rest[end] == '(';
    return split ? split_pane(std::move(out), end, depth) : tab_pane(std::move(out));
  }

  std::unique_ptr<Pane> split_pane(std::unique_ptr<Pane> out, size_t open, int depth) {
    out->kind = rest.front() == 'h' ? Pane::Kind::kLeftRight : Pane::Kind::kTopBottom;
    float ratio = 0;
    const char* const end = rest.data() + open;
    const auto [at, error] = std::from_chars(rest.data() + 1, end, ratio);
    if (error != std::errc() || !(ratio >= 0.02f && ratio <= 0.98f)) return nullptr;
    std::string_view front(at, static_cast<size_t>(end - at));
    if (!front.empty() && (front.back() == '[' || front.back() == ']')) {
      out->away = front.back() == '[' ? Pane::Away::kFirst : Pane::Away::kSecond;
      front.remove_suffix(1);
    }
    if (front == "<")
      out->front = Pane::Front::kFirst;
    else if (front == ">")
      out->front = Pane::Front::kSecond;
    else if (!front.empty())
      return nullptr;
    out->ratio = ratio;
    rest.remove_prefix(open + 1);
    out->first = pane(depth + 1);
    if (!out->first || !take(',')) return nullptr;
    out->second = pane(depth + 1);
    if (!out->second || !take(')')) return nullptr;
    return out;
  }

  std::unique_ptr<Pane> tab_pane(std::unique_ptr<Pane> out) {
    do {
      const size_t end = std::min(rest.find_first_of(",()|"), rest.size());
      std::string name(rest.substr(0, end));
      if (!name.empty() && name.back() == '*') {
        name.pop_back();
        out->active = static_cast<int>(out->tabs.size());
      }
      if (name.empty()) return nullptr;
      out->tabs.push_back(std::move(name));
      rest.remove_prefix(end);
    } while (take('|'));
    return out;
  }
};

void write(const Pane& pane, std::string& out) {
  if (pane.kind == Pane::Kind::kTabs) {
    for (size_t i = 0; i < pane.tabs.size(); ++i) {
      if (i > 0) out += '|';
      out += pane.tabs[i];
      if (static_cast<int>(i) == pane.active) out += '*';
    }
    return;
  }
  const char* const front = pane.front == Pane::Front::kLarger  ? ""
                            : pane.front == Pane::Front::kFirst ? "<"
                                                                : ">";
  const char* const away = pane.away == Pane::Away::kNeither ? ""
                           : pane.away == Pane::Away::kFirst ? "["
                                                             : "]";
  out +=
      fmt::format("{}{:.3f}{}{}(", pane.kind == Pane::Kind::kLeftRight ? 'h' : 'v', pane.ratio, front, away);
  write(*pane.first, out);
  out += ',';
  write(*pane.second, out);
  out += ')';
}

template <class P>
void each_leaf(P& pane, const std::function<void(P&)>& visit) {
  if (pane.kind == Pane::Kind::kTabs) return visit(pane);
  each_leaf<P>(*pane.first, visit);
  each_leaf<P>(*pane.second, visit);
}

bool first_in_front(const Pane& split) {
  return split.front == Pane::Front::kLarger ? split.ratio >= 0.5f : split.front == Pane::Front::kFirst;
}

const Pane& leaf_in_front(const Pane& pane) {
  if (pane.kind == Pane::Kind::kTabs) return pane;
  if (pane.away != Pane::Away::kNeither)
    return leaf_in_front(pane.away == Pane::Away::kFirst ? *pane.second : *pane.first);
  return leaf_in_front(first_in_front(pane) ? *pane.first : *pane.second);
}

std::string tab_in_front(const Pane& leaf) {
  const bool any = leaf.active >= 0 && leaf.active < static_cast<int>(leaf.tabs.size());
  return any ? leaf.tabs[static_cast<size_t>(leaf.active)] : std::string();
}

// One pane with all tabs of `pane`: whichever is in front has room.
PaneRoom least_folded(const Pane& pane, const LeastRoom& least) {
  PaneRoom most;
  each_leaf<const Pane>(pane, [&](const Pane& leaf) {
    for (const std::string& tab : leaf.tabs) {
      const PaneRoom room = least(tab);
      most = {std::max(most.width, room.width), std::max(most.height, room.height)};
    }
  });
  return most;
}

// All panes of `pane` side by side.
PaneRoom least_apart(const Pane& pane, float gap, const LeastRoom& least) {
  if (pane.kind == Pane::Kind::kTabs) return least_folded(pane, least);
  const bool across = pane.kind == Pane::Kind::kLeftRight;
  if (pane.away != Pane::Away::kNeither) {
    PaneRoom room = least_apart(pane.away == Pane::Away::kFirst ? *pane.second : *pane.first, gap, least);
    (across ? room.width : room.height) += gap;
    return room;
  }
  const PaneRoom a = least_apart(*pane.first, gap, least), b = least_apart(*pane.second, gap, least);
  if (across) return {a.width + gap + b.width, std::max(a.height, b.height)};
  return {std::max(a.width, b.width), a.height + gap + b.height};
}

// Brings the tab to the front of its leaf, and its side to the front of each split above.
bool tab_to_front(Pane& pane, std::string_view tab) {
  if (pane.kind == Pane::Kind::kTabs) {
    const auto at = std::find(pane.tabs.begin(), pane.tabs.end(), tab);
    if (at == pane.tabs.end()) return false;
    pane.active = static_cast<int>(at - pane.tabs.begin());
    return true;
  }
  const bool first = tab_to_front(*pane.first, tab);
  if (!first && !tab_to_front(*pane.second, tab)) return false;
  const bool larger = first == (pane.ratio >= 0.5f);
  pane.front = larger ? Pane::Front::kLarger : first ? Pane::Front::kFirst : Pane::Front::kSecond;
  return true;
}

// Calls `visit(split, of_first)` for the splits above a tab, the lowest first. False: the tab is not below the pane.
template <class P>
bool each_above(P& pane, std::string_view tab, const std::function<void(P& split, bool of_first)>& visit) {
  if (pane.kind == Pane::Kind::kTabs)
    return std::find(pane.tabs.begin(), pane.tabs.end(), tab) != pane.tabs.end();
  const bool first = each_above<P>(*pane.first, tab, visit);
  if (!first && !each_above<P>(*pane.second, tab, visit)) return false;
  visit(pane, first);
  return true;
}

template <class P>
void each_split(P& pane, const std::function<void(P& split)>& visit) {
  if (pane.kind == Pane::Kind::kTabs) return;
  visit(pane);
  each_split<P>(*pane.first, visit);
  each_split<P>(*pane.second, visit);
}

Pane::Away side(bool first) { return first ? Pane::Away::kFirst : Pane::Away::kSecond; }

}  // namespace

PaneCut cut_of(const Pane& split, PaneRoom room, float gap, const LeastRoom& least) {
  const bool across = split.kind == Pane::Kind::kLeftRight;
  const auto extent_of = [across](PaneRoom r) { return across ? r.width : r.height; };
  const float span = std::max(0.f, extent_of(room) - gap);
  if (split.away != Pane::Away::kNeither) return {false, split.away == Pane::Away::kFirst ? 0 : span};
  float a = extent_of(least_apart(*split.first, gap, least)),
        b = extent_of(least_apart(*split.second, gap, least));
  if (a + b > span) {
    a = extent_of(least_folded(*split.first, least));
    b = extent_of(least_folded(*split.second, least));
  }
  if (a + b > span) return {true, 0};
  return {false, std::clamp(span * split.ratio, a, span - b)};
}

Pane folded(const Pane& split) {
  Pane all;
  each_leaf<const Pane>(
      split, [&](const Pane& leaf) { all.tabs.insert(all.tabs.end(), leaf.tabs.begin(), leaf.tabs.end()); });
  const auto at = std::find(all.tabs.begin(), all.tabs.end(), tab_in_front(leaf_in_front(split)));
  all.active = at == all.tabs.end() ? 0 : static_cast<int>(at - all.tabs.begin());
  return all;
}

Result<PaneTree> PaneTree::parse(std::string_view text) {
  Parser parser{text};
  auto root = parser.pane(0);
  if (!root || !parser.rest.empty())
    return Error{Errc::bad_input, fmt::format("not a pane layout: '{}'", text)};
  PaneTree tree;
  tree.root_ = std::move(root);
  auto tabs = tree.all_tabs();
  std::sort(tabs.begin(), tabs.end());
  if (std::adjacent_find(tabs.begin(), tabs.end()) != tabs.end()) {
    return Error{Errc::bad_input, "a pane layout names a tab twice"};
  }
  return tree;
}

std::string PaneTree::to_text() const {
  std::string out;
  write(*root_, out);
  return out;
}

Pane* PaneTree::find(std::string_view tab) {
  Pane* found = nullptr;
  each_leaf<Pane>(*root_, [&](Pane& leaf) {
    if (std::find(leaf.tabs.begin(), leaf.tabs.end(), tab) != leaf.tabs.end()) found = &leaf;
  });
  return found;
}

std::vector<std::string> PaneTree::all_tabs() const {
  std::vector<std::string> out;
  each_leaf<Pane>(*root_, [&](Pane& leaf) { out.insert(out.end(), leaf.tabs.begin(), leaf.tabs.end()); });
  return out;
}

std::vector<std::string> PaneTree::tabs_in_front() const {
  std::vector<std::string> out;
  each_leaf<const Pane>(*root_, [&](const Pane& leaf) {
    if (std::string tab = tab_in_front(leaf); !tab.empty()) out.push_back(std::move(tab));
  });
  const auto last = std::find(out.begin(), out.end(), tab_in_front(leaf_in_front(*root_)));
  if (last != out.end()) std::rotate(last, last + 1, out.end());
  return out;
}

void PaneTree::show(std::string_view tab) {
  if (!find(tab)) {
    Pane* leaf = nullptr;
    each_leaf<Pane>(*root_, [&](Pane& l) { leaf = leaf ? leaf : &l; });
    leaf->tabs.emplace_back(tab);
  }
  each_above<Pane>(*root_, tab, [](Pane& split, bool of_first) {
    if (split.away == side(of_first)) split.away = Pane::Away::kNeither;
  });
  if (Pane* const whole = maximized(); whole != nullptr && whole != find(tab)) maximized_.clear();
  bring_to_front(tab);
}

void PaneTree::bring_to_front(std::string_view tab) { tab_to_front(*root_, tab); }

bool PaneTree::in_sight(std::string_view tab) const {
  const Pane *own = nullptr, *whole = nullptr;
  each_leaf<const Pane>(*root_, [&](const Pane& leaf) {
    for (const std::string& name : leaf.tabs) {
      if (name == tab) own = &leaf;
      if (name == maximized_) whole = &leaf;
    }
  });
  if (own == nullptr || whole != nullptr) return own != nullptr && own == whole;
  bool shown = true;
  each_above<const Pane>(
      *root_, tab, [&](const Pane& split, bool of_first) { shown = shown && split.away != side(of_first); });
  return shown;
}

bool PaneTree::fold_away(std::string_view tab) {
  bool done = false;
  each_above<Pane>(*root_, tab, [&](Pane& split, bool of_first) {
    if (done || split.away != Pane::Away::kNeither) return;
    split.away = side(of_first);
    done = true;
  });
  if (done) maximized_.clear();
  return done;
}

bool PaneTree::any_away() const {
  bool any = false;
  each_split<const Pane>(*root_, [&](const Pane& split) { any = any || split.away != Pane::Away::kNeither; });
  return any;
}

void PaneTree::fold_none_away() {
  each_split<Pane>(*root_, [](Pane& split) { split.away = Pane::Away::kNeither; });
}

void PaneTree::close(std::string_view tab) {
  remove(tab);
  prune(root_);
}

void PaneTree::keep_tabs(const std::vector<TabPlace>& tabs) {
  for (const std::string& tab : all_tabs()) {
    if (std::none_of(tabs.begin(), tabs.end(), [&](const TabPlace& t) { return t.tab == tab; })) close(tab);
  }
  for (const TabPlace& place : tabs) {
    if (find(place.tab)) continue;
    Pane* leaf = find(place.beside);
    each_leaf<Pane>(*root_, [&](Pane& l) { leaf = leaf ? leaf : &l; });
    const auto beside = std::find(leaf->tabs.begin(), leaf->tabs.end(), place.beside);
    leaf->tabs.insert(beside == leaf->tabs.end() ? beside : beside + 1, std::string(place.tab));
    const auto at = std::find(leaf->tabs.begin(), leaf->tabs.end(), place.tab) - leaf->tabs.begin();
    if (leaf->active >= static_cast<int>(at)) ++leaf->active;
    leaf->active = std::min(leaf->active, static_cast<int>(leaf->tabs.size()) - 1);
  }
}

void PaneTree::remove(std::string_view tab) {
  Pane* leaf = find(tab);
  if (!leaf) return;
  const auto at = std::find(leaf->tabs.begin(), leaf->tabs.end(), tab);
  const auto index = static_cast<int>(at - leaf->tabs.begin());
  leaf->tabs.erase(at);
  if (leaf->active > index || leaf->active >= static_cast<int>(leaf->tabs.size())) --leaf->active;
  leaf->active = std::max(0, leaf->active);
}

// Replaces a split with an empty leaf by its other child.
void PaneTree::prune(std::unique_ptr<Pane>& pane) {
  if (pane->kind == Pane::Kind::kTabs) return;
  prune(pane->first);
  prune(pane->second);
  auto empty = [](const Pane& p) { return p.kind == Pane::Kind::kTabs && p.tabs.empty(); };
  if (empty(*pane->first)) {
    pane = std::move(pane->second);
  } else if (empty(*pane->second)) {
    pane = std::move(pane->first);
  }
}

void PaneTree::move(std::string_view tab_view, Pane& target, PaneEdge edge) {
  const std::string tab(tab_view);
  if (target.kind != Pane::Kind::kTabs) return;
  const bool own = find(tab) == &target;
  if (own && (edge == PaneEdge::kCentre || target.tabs.size() == 1)) return;
  remove(tab);
  if (edge == PaneEdge::kCentre) {
    target.tabs.push_back(tab);
    target.active = static_cast<int>(target.tabs.size()) - 1;
  } else {
    auto old = std::make_unique<Pane>();
    old->tabs = std::move(target.tabs);
    old->active = target.active;
    auto fresh = std::make_unique<Pane>();
    fresh->tabs.push_back(tab);
    target = Pane{};
    target.kind =
        edge == PaneEdge::kLeft || edge == PaneEdge::kRight ? Pane::Kind::kLeftRight : Pane::Kind::kTopBottom;
    const bool before = edge == PaneEdge::kLeft || edge == PaneEdge::kTop;
    target.first = before ? std::move(fresh) : std::move(old);
    target.second = before ? std::move(old) : std::move(fresh);
  }
  prune(root_);
}

}  // namespace gradloom
