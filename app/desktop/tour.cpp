// The tour: five cards, each beside the part of the window that it explains.
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui_internal.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "app/desktop/ui.h"

namespace gradloom {
namespace {

struct Stop {
  const char* tab;   // brought to the front; null: none
  const char* item;  // of the registry: what the card points at
  const char* title;
  const char* said;
};
constexpr Stop kStops[kTourSteps] = {
    {"Graph", "tab.Graph", "The whole step is one graph",
     "The model lies on the left, the backward graph that autodiff made of it runs back on the same rows, the optimizer "
     "ends it. The wheel zooms, a double click opens or closes a part, a click shows a node with its kernels."},
    {"Passes", "tab.Passes", "Every rewrite is a switch",
     "Each pass says what it matched and why not more. Switch one off: kernels and peak memory of the step are planned "
     "again at once, and nothing of loss or gradients depends on it."},
    {"Run", "run.start", "Run real steps",
     "Training runs in a process of its own, by the command line that stands here, and is recorded into a session: losses, "
     "and the time of every kernel. Graph, Kernels, Timeline and Memory then show it. F5 starts it, or the button below."},
    {"Advice", "tab.Advice", "What would make it faster, and whether it does",
     "Advice ranks causes with their predicted gain. Compare beside it proves one: both variants run interleaved, and the "
     "answer has a confidence interval. What if and Roofline are on the same row."},
    {nullptr, "export", "Take the result along",
     "A run leaves as a recipe: a small file that replays anywhere, on the command line or in a PyTorch script, and says "
     "what must come out. The tour is in the Help menu from now on."}};

float overlap(ImVec2 at, ImVec2 card, const Item& item) {
  const float wide = std::min(at.x + card.x, item.max.x) - std::max(at.x, item.min.x);
  const float tall = std::min(at.y + card.y, item.max.y) - std::max(at.y, item.min.y);
  return std::max(0.f, wide) * std::max(0.f, tall);
}

// Where a card of this size stands beside the target: below it, above it, or to its left or right. What is told of a tab is to
// be seen meanwhile: of these places, and those beside the tab's pane, the first that hides least of it; null: it is of none.
ImVec2 beside(const Item& target, const Item* pane, ImVec2 card) {
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  // Between the menus and the status line.
  const float gap = px(16), edge = px(8), top = ImGui::GetFrameHeight() + px(8), bottom = display.y - px(34);
  std::vector<ImVec2> places;
  for (const Item* item : {&target, pane}) {
    if (item == nullptr) continue;
    const ImVec2 middle{item->centre().x - card.x / 2, target.centre().y - card.y / 2};
    for (const ImVec2 at : {ImVec2{middle.x, item->max.y + gap},
                            {middle.x, item->min.y - gap - card.y},
                            {item->min.x - gap - card.x, middle.y},
                            {item->max.x + gap, middle.y}})
      places.push_back({std::clamp(at.x, edge, std::max(edge, display.x - card.x - edge)),
                        std::clamp(at.y, top, std::max(top, bottom - card.y))});
  }
  const auto hides = [&](ImVec2 at) {
    const float own = overlap(at, card, target) > 0 ? 1e9f : 0;  // never what it points at
    return own + (pane != nullptr ? overlap(at, card, *pane) : 0);
  };
  return *std::min_element(places.begin(), places.end(),
                           [&](ImVec2 a, ImVec2 b) { return hides(a) < hides(b); });
}

// A frame around the target and a line from the card to it.
void point_at(const Item& target, ImVec2 min, ImVec2 max) {
  ImDrawList* list = ImGui::GetForegroundDrawList();
  const ImU32 color = palette().accent;
  const float air = px(3);
  list->AddRect({target.min.x - air, target.min.y - air}, {target.max.x + air, target.max.y + air}, color,
                px(6), 0, px(2));
  const ImVec2 to = target.centre();
  const ImVec2 from{std::clamp(to.x, min.x, max.x), std::clamp(to.y, min.y, max.y)};
  const ImVec2 end{std::clamp(from.x, target.min.x, target.max.x), from.y < target.min.y ? target.min.y - air
                                                                   : from.y > target.max.y
                                                                       ? target.max.y + air
                                                                       : from.y};
  list->AddLine(from, end, color, px(2));
}

void end_tour(Ui& ui) {
  ui.tour = {};
  ui.app.edit_state().settings.tour_seen = true;
}

void go(Ui& ui, int by) {
  const int next = ui.tour.step + by;
  if (next >= kTourSteps) return end_tour(ui);
  ui.tour.step = std::max(0, next);
}

void draw_buttons(Ui& ui) {
  const int step = ui.tour.step;
  if (step + 1 < kTourSteps) {
    if (button("tour.skip", "Skip", ButtonKind::kGhost, "Escape")) return end_tour(ui);
  } else {
    ImGui::Dummy({button_width("Skip"), 1});
  }
  // What the tour shows from here on has times then.
  const bool can_run = !ui.state().progress.running && !ui.state().own_run();
  if (can_run && std::string_view(kStops[step].item) == "run.start") {
    ImGui::SameLine(0, px(6));
    if (button("tour.run", "Run now", ButtonKind::kPlain, key_label("run.start"))) ui.do_command("run.start");
  }
  const bool last = step + 1 == kTourSteps;
  const char* const next = last ? "Done" : "Next";
  ImGui::SameLine(ImGui::GetContentRegionMax().x - button_width(next) - px(6) - button_width("Back"));
  ImGui::BeginDisabled(step == 0);
  if (button("tour.back", "Back", ButtonKind::kPlain, "Left")) go(ui, -1);
  ImGui::EndDisabled();
  ImGui::SameLine(0, px(6));
  if (button("tour.next", next, ButtonKind::kPrimary, "Right, Enter")) go(ui, 1);
}

}  // namespace

void Ui::start_tour() {
  if (!state().has_model() && state().session)
    return app.notice(NoticeKind::info,
                      "The tour goes through a model's step: close the session and ask again");
  tour = {.step = state().has_model() ? 0 : -1, .waiting = !state().has_model()};
  if (tour.waiting) app.open_sample();
}

bool tour_keys(Ui& ui) {
  ImGuiIO& io = ImGui::GetIO();
  if (ui.tour.step < 0 || io.WantTextInput || io.KeyCtrl || io.KeyAlt || ui.dialog.is_open() ||
      ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopup))
    return false;
  bool any = false;
  for (const int key : {GLFW_KEY_RIGHT, GLFW_KEY_LEFT, GLFW_KEY_ENTER, GLFW_KEY_ESCAPE}) {
    const bool pressed = ImGui::IsKeyPressed(key, false);
    // The graph below has the arrows too: it does not see them.
    io.KeysDown[key] = false;
    if (!pressed) continue;
    io.KeysDownDuration[key] = 1e-6f;  // down, and not just now
    any = true;
    if (key == GLFW_KEY_ESCAPE) return end_tour(ui), true;
    go(ui, key == GLFW_KEY_LEFT ? -1 : 1);
    if (ui.tour.step < 0) return true;
  }
  return any;
}

void draw_tour(Ui& ui) {
  const AppState& s = ui.state();
  TourState& tour = ui.tour;
  if (tour.waiting && s.open_failed) tour = {};
  if (tour.waiting && s.has_model() && s.plan) tour = {.step = 0};
  if (tour.step < 0) return;
  if (!s.has_model()) return tour = {}, void();
  const Stop& stop = kStops[tour.step];
  if (std::exchange(tour.shown, tour.step) != tour.step) {
    if (stop.tab != nullptr) ui.panes.show(stop.tab);
    ui.host.animate();  // the registry has its place in the next frame
  }
  const Item* const found = items().find(stop.item);
  if (found == nullptr) return;
  const Item target = *found;
  const float width = px(340);
  const ImVec2 text_size = ImGui::CalcTextSize(stop.said, nullptr, false, width - px(32));
  const ImVec2 size{width, text_size.y + theme().bold->FontSize + theme().small->FontSize +
                               ImGui::GetFrameHeight() + px(62)};
  const Item* const pane = stop.tab != nullptr ? items().find(std::string("pane.") + stop.tab) : nullptr;
  ImGui::SetNextWindowPos(beside(target, pane, size));
  ImGui::SetNextWindowSize(size);
  ImGui::PushStyleColor(ImGuiCol_WindowBg, palette().raised);
  ImGui::PushStyleColor(ImGuiCol_Border, palette().accent);
  ImGui::PushStyleVar(ImGuiStyleVar_WindowRounding, px(8));
  ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, {px(16), px(14)});
  ImGui::Begin("tour", nullptr,
               ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                   ImGuiWindowFlags_NoFocusOnAppearing);
  muted(fmt::format("{} of {}", tour.step + 1, kTourSteps));
  text(stop.title, palette().text, theme().bold);
  wrapped(stop.said, palette().text);
  spacer(4);
  register_rect("tour.card", ImGui::GetWindowPos(),
                {ImGui::GetWindowPos().x + size.x, ImGui::GetWindowPos().y + size.y}, stop.title,
                std::to_string(tour.step + 1));
  draw_buttons(ui);
  const ImVec2 min = ImGui::GetWindowPos(), max{min.x + size.x, min.y + size.y};
  ImGui::End();
  ImGui::PopStyleVar(2);
  ImGui::PopStyleColor(2);
  if (ui.tour.step >= 0) point_at(target, min, max);
}

}  // namespace gradloom
