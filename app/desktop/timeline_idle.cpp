// What the lanes of the timeline wait for: the line and bars above it, the tint of its gaps, the critical path along it.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "app/desktop/timeline_lanes.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr std::size_t kMostBars = 4;
constexpr std::array<const char*, kIdleCauses> kExplained{
    "launch: engine, driver and device between one kernel and the next",
    "dependency: a lane waits for a kernel of another one",
    "copy: copies and fills on the stream, or that a kernel waits for; exchanges being transferred",
    "host: before the step's first kernel and after its last one, and outside the engine: batches, loss",
    "imbalance: a rank waits for the one that is ready last"};

ImU32 cause_color(IdleCause cause) {
  switch (cause) {
    case IdleCause::kLaunch: return palette().warn;
    case IdleCause::kDependency: return category_color(3);
    case IdleCause::kCopy: return category_color(6);
    case IdleCause::kHost: return category_color(1);
    case IdleCause::kImbalance: return palette().bad;
  }
  return palette().text_dim;
}

void make_paths(TimelineIdle& idle, const TimelineModel& model, const TraceDocument& trace) {
  if (idle.paths.size() == idle.steps.size()) return;
  idle.paths.clear();
  idle.path_lanes.clear();
  std::map<std::string, double> ops;
  for (const StepIdle& step : idle.steps) {
    idle.paths.push_back(critical_path(step, trace));
    std::vector<std::int32_t>& lanes = idle.path_lanes.emplace_back();
    for (const IdleLane& on : step.lanes) {
      const auto lane = std::find_if(model.lanes.begin(), model.lanes.end(), [&](const TimelineLane& l) {
        return l.stream && l.rank == on.rank && l.number == on.stream;
      });
      lanes.push_back(lane == model.lanes.end() ? -1 : static_cast<std::int32_t>(lane - model.lanes.begin()));
    }
    for (const auto& [op, ns] : path_by_op(idle.paths.back(), step, trace)) ops[op] += ns;
  }
  idle.ops.assign(ops.begin(), ops.end());
  std::stable_sort(idle.ops.begin(), idle.ops.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
}

// Of a lane in all shown steps, or in a part of their time.
IdleSums sums_of(const TimelineIdle& idle, const TimelineModel& model, const RangeFilter* filter,
                 std::size_t lane) {
  IdleSums all;
  for (std::size_t s = 0; s < idle.steps.size() && s < model.steps.size(); ++s) {
    const StepIdle& step = idle.steps[s];
    if (lane >= step.lanes.size()) continue;
    const double start_ns = model.steps[s].start_ns;
    const IdleSums sums =
        filter ? step.lanes[lane].sums(filter->range.from_ns - start_ns, filter->range.to_ns - start_ns)
               : step.lanes[lane].sums();
    all.wall_ns += sums.wall_ns;
    for (std::size_t c = 0; c < kIdleCauses; ++c) all.idle_ns[c] += sums.idle_ns[c];
  }
  return all;
}

// After follow_idle. False: it has no lane.
bool follow_sums(TimelineIdle& idle, const TimelineModel& model,
                 const std::shared_ptr<const RangeFilter>& filter) {
  if (idle.steps.empty() || idle.steps.front().lanes.empty()) return false;
  if (idle.sums_made == idle.made && idle.sums_of == filter && !idle.sums.empty()) return true;
  idle.sums_made = idle.made;
  idle.sums_of = filter;
  idle.sums.clear();
  const std::size_t lanes = std::min(kMostBars, idle.steps.front().lanes.size());
  for (std::size_t lane = 0; lane < lanes; ++lane)
    idle.sums.push_back(sums_of(idle, model, filter.get(), lane));
  return true;
}

struct Part {
  std::string name;
  double ns = 0;
  ImU32 color = 0;
};
std::vector<Part> parts_of(const IdleSums& sums) {
  std::vector<Part> parts{{"busy", sums.busy_ns(), mix(palette().panel, palette().text_dim, 0.55f)}};
  for (std::size_t c = 0; c < kIdleCauses; ++c)
    if (sums.idle_ns[c] > 0)
      parts.push_back({kIdleCauseNames[c], sums.idle_ns[c], cause_color(static_cast<IdleCause>(c))});
  return parts;
}

// "busy 92.1 %" and so on, each behind a square of its colour.
void draw_legend(const IdleSums& sums) {
  ImDrawList* list = ImGui::GetWindowDrawList();
  ImFont* font = theme().small;
  for (const Part& part : parts_of(sums)) {
    const std::string label = part.name + " " + percent_text(part.ns / std::max(1.0, sums.wall_ns));
    const float width = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, label.c_str()).x, square = px(9);
    flow(width + square + px(5), px(14));
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float tall = ImGui::GetFrameHeight(), top = at.y + (tall - square) / 2;
    list->AddRectFilled({at.x, top}, {at.x + square, top + square}, part.color, px(2));
    list->AddText(font, font->FontSize, {at.x + square + px(5), at.y + (tall - font->FontSize) / 2},
                  palette().text_dim, label.c_str());
    ImGui::Dummy({width + square + px(5), tall});
    register_item("idle." + part.name, part.name, duration_text(part.ns));
    std::string said = part.name == "busy" ? "busy: a kernel computes" : "";
    for (std::size_t c = 0; c < kIdleCauses; ++c)
      if (part.name == kIdleCauseNames[c]) said = kExplained[c];
    tip(said + "\n" + duration_text(part.ns));
  }
}

void draw_bar(const std::string& name, const IdleSums& sums, ImVec2 at, float width, float tall) {
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  ImFont* font = theme().small;
  list->AddText(font, font->FontSize, {at.x, at.y + (tall - font->FontSize) / 2}, p.text_faint, name.c_str());
  const float left = at.x + px(kLaneNames), whole = width - px(kLaneNames);
  const ImVec2 mouse = ImGui::GetIO().MousePos;
  float x = left;
  for (const Part& part : parts_of(sums)) {
    const float to = x + static_cast<float>(part.ns / std::max(1.0, sums.wall_ns)) * whole;
    if (to - x >= 0.5f)
      list->AddRectFilled({x, at.y}, {std::max(to - 1, x + 1), at.y + tall}, part.color, px(2));
    if (ImGui::IsWindowHovered() && mouse.x >= x && mouse.x < to && mouse.y >= at.y && mouse.y < at.y + tall)
      ImGui::SetTooltip("%s: %s, %s of %s", name.c_str(), part.name.c_str(), duration_text(part.ns).c_str(),
                        duration_text(sums.wall_ns).c_str());
    x = to;
  }
  register_rect("idle.bar." + name, at, {at.x + width, at.y + tall}, name, idle_text(sums));
}

// Where the path's time goes, by operator; of a single lane that there is nothing to see.
void draw_path_line(const Ui& ui) {
  const TimelineIdle& idle = ui.idle;
  if (idle.paths.empty() || idle.steps.front().lanes.empty()) return;
  std::string said = idle.steps.size() == 1 || idle.paths.front().alone
                         ? path_text(idle.paths.front(), idle.steps.front())
                         : fmt::format("critical paths of {} steps", idle.steps.size());
  double all = 0;
  for (const auto& [op, ns] : idle.ops) all += ns;
  std::string ops;
  for (std::size_t i = 0; i < idle.ops.size() && i < 6; ++i)
    ops += fmt::format("{}{} {}", i == 0 ? ": " : ", ", escaped(idle.ops[i].first),
                       percent_text(idle.ops[i].second / std::max(1.0, all)));
  if (!idle.paths.front().alone) said += ops;
  said[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(said[0])));
  text(fit_text(theme().small, theme().small->FontSize, said, ImGui::GetContentRegionAvail().x),
       palette().text_dim, theme().small);
  tip(said);
  register_item("timeline.path.text", "critical path", said);
}

const IdleLane* lane_of(const StepIdle& step, const TimelineLane& lane) {
  for (const IdleLane& l : step.lanes)
    if (lane.stream && l.rank == lane.rank && l.stream == lane.number) return &l;
  return nullptr;
}

}  // namespace

void follow_idle(TimelineIdle& idle, const std::shared_ptr<const RunSnapshot>& run,
                 const TimelineModel& model, std::int64_t made, bool paths) {
  if (idle.source != run) {
    idle.source = run;
    idle.reader = std::make_unique<IdleReader>(run->record, run->trace);
    idle.made = -1;
  }
  if (idle.made != made) {
    idle.made = made;
    idle.steps.clear();
    idle.paths.clear();
    for (const TimelineStep& step : model.steps) idle.steps.push_back(idle.reader->step(step.step));
  }
  if (paths) make_paths(idle, model, run->trace);
}

std::string idle_words(TimelineIdle& idle, const TimelineModel& model,
                       const std::shared_ptr<const RangeFilter>& filter) {
  return follow_sums(idle, model, filter) ? idle_text(idle.sums.front()) : std::string();
}

void draw_idle_legend(Ui& ui) {
  const TimelineModel& model = ui.timeline.model;
  follow_idle(ui.idle, ui.state().run, model, ui.timeline.made, ui.timeline.show_path);
  if (!follow_sums(ui.idle, model, ui.timeline.filter)) return;
  draw_legend(ui.idle.sums.front());
  flow(px(130), px(14));
  checkbox("timeline.path", "Critical path", &ui.timeline.show_path);
  tip("The chain of kernels, exchanges and pauses that the step's end waited for");
  follow_idle(ui.idle, ui.state().run, model, ui.timeline.made, ui.timeline.show_path);
}

void draw_idle_bars(const Ui& ui) {
  const std::vector<StepIdle>& steps = ui.idle.steps;
  if (steps.empty() || steps.front().lanes.empty()) return;
  if (ui.timeline.show_path) draw_path_line(ui);
  const std::vector<IdleSums>& sums = ui.idle.sums;  // follow_sums made them above
  const float tall = px(10), width = ImGui::GetContentRegionAvail().x;
  const ImVec2 at = ImGui::GetCursorScreenPos();
  for (std::size_t l = 0; l < sums.size(); ++l)
    draw_bar(sums.size() > 1 ? steps.front().lanes[l].name : "Time", sums[l],
             {at.x, at.y + static_cast<float>(l) * (tall + px(3))}, width, tall);
  ImGui::Dummy({width, static_cast<float>(sums.size()) * (tall + px(3))});
}

void draw_gaps(const DrawnRun& run, const TimelineView& view, const TimelineLane& lane, LanePlace place,
               bool over_bars) {
  const TimelineModel& model = run.model;
  ImDrawList* list = ImGui::GetWindowDrawList();
  for (std::size_t s = 0; s < run.idle.steps.size() && s < model.steps.size(); ++s) {
    const IdleLane* idle = lane_of(run.idle.steps[s], lane);
    if (idle == nullptr) continue;
    const double offset_ns = model.steps[s].start_ns;
    const auto after = [&](double time_ns, std::size_t from) {
      const auto at =
          std::partition_point(idle->idle.begin() + static_cast<std::ptrdiff_t>(from), idle->idle.end(),
                               [&](const IdlePiece& p) { return p.end_ns + offset_ns <= time_ns; });
      return static_cast<std::size_t>(at - idle->idle.begin());
    };
    float drawn_to = view.min.x - 1;
    for (std::size_t i = after(view.shown.from_ns, 0); i < idle->idle.size();) {
      const IdlePiece& piece = idle->idle[i];
      const float x0 = std::max(view.x(piece.start_ns + offset_ns), view.min.x),
                  x1 = std::min(view.x(piece.end_ns + offset_ns), view.max.x);
      if (x0 > view.max.x) break;
      if (x1 < drawn_to + 0.5f) {  // many that nobody sees: on to the next pixel
        i = std::max(i + 1, after(view.ns(drawn_to + 0.5f), i));
        continue;
      }
      ++i;
      drawn_to = x1;
      const bool inside = piece.before >= 0 &&
                          idle->kernels[static_cast<std::size_t>(piece.before)].start_ns <= piece.start_ns;
      if (inside != over_bars || x1 - x0 < 0.5f) continue;
      const ImU32 color = cause_color(piece.cause);
      const float top = inside ? place.y + place.height - std::min(px(7), place.height / 2) : place.y;
      list->AddRectFilled({x0, top}, {x1, place.y + place.height}, with_alpha(color, inside ? 0.95f : 0.4f));
    }
  }
}

void draw_path(const DrawnRun& run, const TimelineView& view, const std::vector<LanePlace>& lanes) {
  const TimelineModel& model = run.model;
  const ImU32 color = palette().text;
  ImDrawList* list = ImGui::GetWindowDrawList();
  for (std::size_t s = 0; s < run.idle.paths.size() && s < model.steps.size(); ++s) {
    const CriticalPath& path = run.idle.paths[s];
    if (path.alone) continue;
    float last_x = -1, last_y = -1, drawn_to = view.min.x - 1;
    // Pieces follow each other in time: from the one before the first in sight, where an arrow may come from.
    const double from_ns = view.shown.from_ns - model.steps[s].start_ns;
    auto first = std::partition_point(path.pieces.begin(), path.pieces.end(),
                                      [&](const PathPiece& p) { return p.end_ns < from_ns; });
    if (first != path.pieces.begin()) --first;
    for (; first != path.pieces.end(); ++first) {
      const PathPiece& piece = *first;
      const std::int32_t lane = run.idle.path_lanes[s][static_cast<std::size_t>(piece.lane)];
      if (lane < 0) continue;
      if (last_x > view.max.x) break;
      const float y = lanes[static_cast<std::size_t>(lane)].y - px(1.5f);
      const float x0 = view.x(piece.start_ns + model.steps[s].start_ns),
                  x1 = view.x(piece.end_ns + model.steps[s].start_ns);
      const bool changes = last_y >= 0 && y != last_y;
      if (changes && x0 >= view.min.x && x0 <= view.max.x) {
        list->AddLine({last_x, last_y}, {x0, y}, color, px(2));
        const float down = y > last_y ? 1.f : -1.f;
        list->AddTriangleFilled({x0 - px(4), y - down * px(6)}, {x0 + px(4), y - down * px(6)}, {x0, y},
                                color);
      }
      last_x = x1;
      last_y = y;
      if (x1 < view.min.x || x0 > view.max.x || (!changes && x1 < drawn_to + 0.5f)) continue;
      const bool pause = piece.kind == PathPiece::Kind::kIdle;
      list->AddLine({std::max(x0, view.min.x), y}, {std::min(std::max(x1, x0 + 1), view.max.x), y},
                    pause ? with_alpha(color, 0.4f) : color, px(pause ? 1.f : 2.5f));
      drawn_to = x1;
    }
  }
}

}  // namespace gradloom
