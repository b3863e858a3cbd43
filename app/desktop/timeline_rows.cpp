#include "app/desktop/timeline_rows.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

namespace gradloom {
namespace {

constexpr float kGap = 5, kStripGap = 2, kNameHeight = 14;  // points; the least that a name needs
constexpr int kNeverFolds = 100;

bool begins_with(const std::string& text, const char* word) { return text.rfind(word, 0) == 0; }

// Lanes of the lowest rank fold first.
int fold_rank(const TimelineLane& lane, bool main) {
  if (main) return kNeverFolds;
  if (lane.bars.empty()) return 0;
  if (begins_with(lane.name, "Host")) return 1;
  if (lane.name == "Launches" || lane.thread) return 2;
  if (begins_with(lane.name, "Scope")) return 3;
  if (lane.other_rank) return lane.stream ? 6 : 4;
  if (lane.stream) return 7;
  return lane.name == "Phase" ? 8 : 5;
}

// "Host 3" is the third of its kind, "Host" the first.
std::pair<std::string, int> kind_and_number(const std::string& name) {
  const std::size_t space = name.rfind(' ');
  const bool numbered = space != std::string::npos && space + 1 < name.size() &&
                        name.find_first_not_of("0123456789", space + 1) == std::string::npos;
  if (!numbered) return {name, 1};
  return {name.substr(0, space), std::atoi(name.c_str() + space + 1)};
}

struct Foldable {
  int rank = 0, depth = 0;
  std::size_t row = 0;
  // Deeper lanes first; those of the same place in both runs go together.
  std::tuple<int, int> place() const { return {rank, -depth}; }
};

bool strips_go_on(const std::vector<LaneRow>& rows, std::size_t row) {
  return row + 1 < rows.size() && rows[row].folded && rows[row + 1].folded &&
         rows[row].of_b == rows[row + 1].of_b;
}

// Strips in a row share a name, for which there is room beside them; `close`: they have no more than that.
void size_strips(std::vector<LaneRow>& rows, bool close) {
  for (std::size_t first = 0; first < rows.size(); ++first) {
    if (!rows[first].folded) continue;
    std::size_t last = first;
    while (strips_go_on(rows, last)) ++last;
    const auto count = static_cast<float>(last - first + 1);
    const float gap = close ? 0 : kStripGap, fits = (kNameHeight - gap * (count - 1)) / count;
    const float height = close ? fits : std::max(kFoldedHeight, fits);
    for (std::size_t i = first; i <= last; ++i) {
      rows[i].height = height;
      rows[i].gap = i < last ? gap : kGap;
    }
    first = last;
  }
}

float all_rows(const std::vector<LaneRow>& rows) {
  return rows_height(rows, false) + rows_height(rows, true);
}

void add_rows(std::vector<LaneRow>& rows, std::vector<Foldable>& foldable, const TimelineModel& model,
              bool of_b, const LaneFolds& folds) {
  const int main = model.main_lane;
  for (std::size_t l = 0; l < model.lanes.size(); ++l) {
    const TimelineLane& lane = model.lanes[l];
    if (of_b && lane.bars.empty()) continue;
    LaneRow row{of_b, l, false, lane.stream && !lane.bars.empty() ? kKernelHeight : kLaneHeight, kGap};
    const auto chosen = folds.find(lane_key(lane, of_b));
    if (chosen != folds.end()) row.folded = chosen->second;
    const int rank = fold_rank(lane, static_cast<int>(l) == main);
    if (chosen == folds.end() && rank != kNeverFolds)
      foldable.push_back({rank, kind_and_number(lane.name).second, rows.size()});
    rows.push_back(row);
  }
}

}  // namespace

std::string lane_key(const TimelineLane& lane, bool of_b) {
  const std::string name =
      lane.name == "exchanges" ? lane.name + " of rank " + std::to_string(lane.rank) : lane.name;
  return of_b ? "beside." + name : name;
}

float rows_height(const std::vector<LaneRow>& rows, bool of_b) {
  float height = 0;
  for (const LaneRow& row : rows)
    if (row.of_b == of_b) height += row.height + row.gap;
  return height;
}

std::vector<LaneRow> lane_rows(const TimelineModel& a, const TimelineModel* b, const LaneFolds& folds,
                               float room) {
  std::vector<LaneRow> rows;
  std::vector<Foldable> foldable;
  add_rows(rows, foldable, a, false, folds);
  if (b != nullptr) add_rows(rows, foldable, *b, true, folds);
  size_strips(rows, false);
  std::stable_sort(foldable.begin(), foldable.end(),
                   [](const Foldable& x, const Foldable& y) { return x.place() < y.place(); });
  for (std::size_t i = 0; i < foldable.size() && all_rows(rows) > room;) {
    const auto place = foldable[i].place();
    for (; i < foldable.size() && foldable[i].place() == place; ++i) rows[foldable[i].row].folded = true;
    size_strips(rows, false);
  }
  if (all_rows(rows) > room) size_strips(rows, true);
  const float over = all_rows(rows) - room;
  const auto tall = [](const LaneRow& row) { return !row.folded && row.height > kLaneHeight; };
  const auto kernels = std::count_if(rows.begin(), rows.end(), tall);
  if (over > 0 && kernels > 0)
    for (LaneRow& row : rows)
      if (tall(row)) row.height = std::max(kLaneHeight, row.height - over / static_cast<float>(kernels));
  return rows;
}

std::vector<RowsOfName> names_of_rows(const std::vector<LaneRow>& rows, const TimelineModel& a,
                                      const TimelineModel* b) {
  const auto name_of = [&](std::size_t row) -> const std::string& {
    return (rows[row].of_b ? *b : a).lanes[rows[row].lane].name;
  };
  std::vector<RowsOfName> names;
  for (std::size_t first = 0; first < rows.size(); first = names.back().first + names.back().count) {
    std::size_t last = first;
    while (strips_go_on(rows, last)) ++last;
    RowsOfName of{first, last - first + 1, name_of(first)};
    const auto [kind, from] = kind_and_number(of.name);
    bool one_kind = true;
    for (std::size_t i = first; i <= last; ++i)
      one_kind = one_kind && kind_and_number(name_of(i)).first == kind;
    if (of.count > 1)
      of.name = one_kind ? kind + " " + std::to_string(from) + "\u2013" +
                               std::to_string(kind_and_number(name_of(last)).second)
                         : std::to_string(of.count) + " lanes";
    names.push_back(std::move(of));
  }
  return names;
}

}  // namespace gradloom
