// Bookmarks, notes and the marks that the views share: which commands put them where, and how they reach the
// graph, the kernel table and the memory view.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "viz/draw/items.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/keys.h"

namespace gradloom {
namespace {

const std::string& shown_tab(PaneTree& panes) {
  static const std::string kNone;
  const Pane* pane = panes.find("Graph");
  if (pane == nullptr || pane->active < 0 || pane->active >= static_cast<int>(pane->tabs.size()))
    return kNone;
  return pane->tabs[static_cast<std::size_t>(pane->active)];
}

// Of the step as it stands, the right side: what it alone has, and what the other graph has under the same name and
// otherwise. What only the other has shows in the graphs that have it too.
void mark_difference(const GraphDifference& difference, GraphMarks& marks) {
  std::unordered_set<std::string> left, right;
  for (const DiffRegion& region : difference.regions) {
    for (const std::int32_t n : region.left)
      left.insert(difference.left.nodes[static_cast<std::size_t>(n)].name);
    for (const std::int32_t n : region.right)
      right.insert(difference.right.nodes[static_cast<std::size_t>(n)].name);
  }
  for (const std::string& name : right) (left.count(name) ? marks.changed : marks.added).insert(name);
  for (const std::string& name : left)
    if (right.count(name) == 0) marks.removed.insert(name);
}

}  // namespace

void Ui::drawn(Canvas canvas, bool hovered) {
  int& frame = canvas_frame[static_cast<int>(canvas)];
  const bool appears = frame < ImGui::GetFrameCount() - 1;
  frame = ImGui::GetFrameCount();
  // A mouse that only lies there does not take the keys from where they were sent.
  const ImGuiIO& io = ImGui::GetIO();
  const bool used =
      io.MouseDelta.x != 0 || io.MouseDelta.y != 0 || io.MouseWheel != 0 || ImGui::IsAnyMouseDown();
  if (!hovered || !(used || appears)) return;
  keys_to = canvas;
  arrows_to_canvas();
}

bool Ui::takes_keys(Canvas canvas) const {
  const auto shown = [&](int c) { return canvas_frame[c] >= ImGui::GetFrameCount() - 1; };
  if (keys_to == canvas) return true;
  if (shown(static_cast<int>(keys_to))) return false;
  // Of those in sight the first, where the mouse was over none of them.
  int first = 0;
  while (first < kCanvases && !shown(first)) ++first;
  return first == static_cast<int>(canvas);
}

namespace {

// The plain keys follow those of panes to a canvas, and Tab into the pane.
void follow_focus(Ui& ui) {
  if (const Item* pane = items().find("pane." + ui.pane_focus.has))
    focus_from({pane->min.x, pane->min.y + pane_strip()}, pane->max);
  static constexpr std::pair<std::string_view, Canvas> kCanvasOf[] = {{"Graph", Canvas::graph},
                                                                      {"Timeline", Canvas::timeline},
                                                                      {"Icicle", Canvas::icicle},
                                                                      {"Roofline", Canvas::roofline}};
  for (const auto& [tab, canvas] : kCanvasOf)
    if (ui.pane_focus.has == tab) {
      ui.keys_to = canvas;
      return arrows_to_canvas();
    }
  arrows_to_table();
}

}  // namespace

std::string Ui::pane_with_keys() const {
  const auto& front = pane_focus.order;
  if (std::find(front.begin(), front.end(), pane_focus.has) != front.end()) return pane_focus.has;
  const std::vector<std::string> tabs = panes.tabs_in_front();
  return tabs.empty() ? std::string() : tabs.back();
}

void Ui::step_pane(int by) {
  pane_step(pane_focus, by);
  follow_focus(*this);
}

void Ui::step_tab(int by) {
  tab_step(panes, pane_focus, by);
  follow_focus(*this);
}

// ---- Bookmarks ----

void Ui::set_bookmark(int slot) {
  const auto at = graph_place(graph);
  if (!at) return app.notice(NoticeKind::info, "There is no graph to bookmark yet");
  // Which step was shown pass by pass is not kept: the place is one of what runs.
  const GraphStage kept = stage == GraphStage::passes ? GraphStage::after : stage;
  app.set_bookmark(slot, Bookmark{shown_tab(panes), static_cast<int>(kept), *at});
}

void Ui::go_to_bookmark(int slot) {
  const auto& bookmark = state().marks->bookmarks[static_cast<std::size_t>(slot - 1)];
  if (!bookmark)
    return app.notice(NoticeKind::info, fmt::format("Bookmark {} is not set: {} sets it", slot,
                                                    key_label("bookmark.set." + std::to_string(slot))));
  if (!panes.find("Graph")) panes.show("Graph");
  if (!bookmark->tab.empty()) panes.show(bookmark->tab);
  stage = static_cast<GraphStage>(bookmark->stage);
  const GraphSnapshot* shown = shown_graph();
  if (shown != nullptr && graph.model.get() == &shown->model)
    graph_show_place(graph, bookmark->graph);
  else
    place_after = bookmark->graph;
}

// ---- Notes ----

void Ui::edit_note(const Note& note) {
  note_editor.note = note;
  note_editor.open = note_editor.just_opened = true;
}

void Ui::note_on_node(const std::string& node) {
  Note note;
  note.node = node;
  edit_note(note);
}

void Ui::note_on_time() {
  const TimeRange range = timeline.filter          ? timeline.filter->range
                          : timeline.ruler.empty() ? TimeRange()
                                                   : timeline.ruler;
  if (range.empty() || !state().run) return;
  Note note;
  note.session = state().session_path;
  note.run = state().run->record.summary.id;
  const TimelineStep* step = timeline.model.step_at(range.from_ns);
  if (step == nullptr) return;
  note.step = step->step;
  note.from_ns = range.from_ns - step->start_ns;
  note.to_ns = range.to_ns - step->start_ns;
  edit_note(note);
}

void Ui::note_here() {
  const bool time = timeline.filter || !timeline.ruler.empty();
  if (time && takes_keys(Canvas::timeline) &&
      canvas_frame[static_cast<int>(Canvas::timeline)] >= ImGui::GetFrameCount() - 1)
    return note_on_time();
  if (!selected().empty()) return note_on_node(selected());
  if (time) return note_on_time();
  app.notice(NoticeKind::info, "Select a node or mark a time first: a note is about something");
}

void Ui::go_to_note(const Note& note) {
  if (!note.node.empty()) {
    panes.show("Graph");
    return go_to(note.node);
  }
  if (note.session != state().session_path)
    return app.notice(NoticeKind::info, "That note is on a run of " +
                                            std::filesystem::path(note.session).filename().string() +
                                            ": open that session first");
  panes.show("Timeline");
  note_after = note;
  if (!state().run || state().run->record.summary.id != note.run) app.show_run(note.run);
}

// ---- What the views share ----

// The timeline's model and with it the range filter, also while another tab is shown.
void Ui::follow_run_shown() {
  const AppState& s = state();
  static const TraceDocument kNothing;
  show_run(timeline, s.run.get(), s.run ? s.run->record.summary.id : 0, s.run ? s.run->trace : kNothing);
  if (!note_after) return;
  if (!s.run || s.run->record.summary.id != note_after->run) {
    if (!app.busy()) note_after.reset();  // that run cannot be read: it has been said
    return;
  }
  const std::vector<std::int64_t> steps = timed_steps(s.run->trace);
  const auto step = std::find(steps.begin(), steps.end(), note_after->step);
  if (step != steps.end()) {
    const auto at = static_cast<int>(step - steps.begin());
    choose_steps(timeline, at, at, static_cast<int>(steps.size()));
    timeline.newest_step = false;
    show_run(timeline, s.run.get(), s.run->record.summary.id, s.run->trace);
    const double margin = (note_after->to_ns - note_after->from_ns) * 0.5;
    timeline.view = {note_after->from_ns - margin, note_after->to_ns + margin};
  } else {
    app.notice(NoticeKind::info,
               fmt::format("Step {} of run {} is not timed", note_after->step, note_after->run));
  }
  note_after.reset();
}

namespace {

// Kernels that the marked time and the roofline's areas both let through; null: neither filters.
std::shared_ptr<const std::unordered_set<std::string>> both(
    const std::shared_ptr<const RangeFilter>& filter,
    const std::shared_ptr<const RooflineSelection>& chosen) {
  using Names = const std::unordered_set<std::string>;
  if (!filter && !chosen) return nullptr;
  if (!chosen) return std::shared_ptr<Names>(filter, &filter->nodes);
  if (!filter) return std::shared_ptr<Names>(chosen, &chosen->nodes);
  auto names = std::make_shared<std::unordered_set<std::string>>();
  for (const std::string& name : chosen->nodes)
    if (filter->nodes.count(name) != 0) names->insert(name);
  return names;
}

}  // namespace

void Ui::share_marks() {
  follow_roofline();
  const AppState& s = state();
  const std::shared_ptr<const RooflineSelection>& chosen = roofline.view.selection;
  if (!s.change) show_diff = false;
  const PlanChange* change = show_diff ? &*s.change : nullptr;
  const GraphDifference* difference =
      s.difference.marked && s.difference.plan == s.plan ? s.difference.difference.get() : nullptr;
  GraphMarks marks;
  // Changes are counted up, differences are somewhere in memory: neither is taken for the other.
  const auto marked = (change ? change->number : 0) + reinterpret_cast<std::int64_t>(difference);
  if (marks_of != s.marks || filter_of_marks != timeline.filter || chosen_of_marks != chosen ||
      change_of_marks != marked) {
    // A time is of the run, and so are the roofline's kernels where there is one.
    if (timeline.filter && timeline.filter != filter_of_marks) show_recorded = true;
    if (chosen && chosen != chosen_of_marks) show_recorded = s.run != nullptr;
    marks_of = s.marks;
    filter_of_marks = timeline.filter;
    chosen_of_marks = chosen;
    change_of_marks = marked;
    for (const Note& note : s.marks->notes)
      if (!note.node.empty()) marks.noted.insert(note.node);
    if (change) {
      marks.added.insert(change->added_nodes.begin(), change->added_nodes.end());
      marks.removed.insert(change->removed_nodes.begin(), change->removed_nodes.end());
    }
    if (difference) mark_difference(*difference, marks);
    inside = both(timeline.filter, chosen);
    if (inside) marks.inside = *inside;
    graph.marks = std::make_shared<const GraphMarks>(std::move(marks));
    kernels.set_only(inside);
  }
  // Steps of the run's own plan: they mean nothing in another one.
  const bool own = timeline.filter && shows_recorded();
  memory.first_step = own ? timeline.filter->first_step : -1;
  memory.last_step = own ? timeline.filter->last_step : -1;
}

bool Ui::shows_recorded() const {
  return state().run && (!state().plan || show_recorded || run_fits_plan(state()));
}

bool run_fits_plan(const AppState& s) {
  return s.run && s.plan && s.run->record.summary.plan_hash == s.plan->plan().hash;
}

void filter_chips(Ui& ui, const std::string& id) {
  if (!ui.filters()) return;
  if (ui.timeline.filter && ui.state().run) {
    const RangeFilter& filter = *ui.timeline.filter;
    const std::string label = fmt::format(
        "{} \u2013 {} of {}: {} kernels", duration_text(filter.range.from_ns),
        duration_text(filter.range.to_ns), shown_steps_text(ui.timeline.model), filter.nodes.size());
    if (chip(id + ".range", label, palette().accent, "Only what runs in this time of the timeline is shown"))
      set_range(ui.timeline, ui.state().run->trace, {});
  }
  if (!ui.roofline.view.selection) return;
  const std::string label =
      "Roofline: " +
      plural_text(static_cast<std::int64_t>(ui.roofline.view.selection->inside.rows.size()), "kernel");
  if (ui.timeline.filter) flow(chip_width(label), px(8));
  if (chip(id + ".roofline", label, palette().accent, selection_text(*ui.roofline.view.selection)))
    roofline_clear(ui.roofline.view);
}

}  // namespace gradloom
