// The first screen: what can be opened, what was open before, and the sample job for who comes for the first time.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "app/desktop/suggest.h"
#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "sessions/find_model.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/keys.h"

namespace gradloom {
namespace {

constexpr std::size_t kShownRecents = 8;
constexpr float kRow = 46, kCardGap = 6;

// A row with a title and a line below it; true: it was clicked. `right`: kept free of text, pixels.
bool offer(const std::string& id, const std::string& title, const std::string& line, float width, bool dimmed,
           float right = 0) {
  const Palette& p = palette();
  const ImVec2 min = ImGui::GetCursorScreenPos(), size{width, px(kRow)};
  ImGui::PushID(id.c_str());
  const bool clicked = ImGui::InvisibleButton("offer", size);
  const bool hovered = ImGui::IsItemHovered();
  ImGui::SetItemAllowOverlap();
  ImGui::PopID();
  register_item(id, title, line);
  focus_stop(id);
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(min, {min.x + size.x, min.y + size.y}, hovered ? p.hover : p.panel, px(6));
  list->AddRect(min, {min.x + size.x, min.y + size.y}, p.border, px(6));
  const float room = size.x - px(24) - right;
  list->AddText(theme().bold, theme().bold->FontSize, {min.x + px(12), min.y + px(6)},
                dimmed ? p.text_faint : p.text,
                fit_text(theme().bold, theme().bold->FontSize, title, room).c_str());
  list->AddText(theme().small, theme().small->FontSize, {min.x + px(12), min.y + px(25)},
                dimmed ? p.text_faint : p.text_dim,
                fit_text(theme().small, theme().small->FontSize, line, room).c_str());
  return clicked;
}

void tell_capture(Ui& ui, float width) {
  ImGui::BeginChild("capture", {width, px(132)});
  muted("In the script, before its training loop:");
  code_line("welcome.capture.code", "gradloom.torch.capture(model, batch, loss, optimizer, \"job\")");
  muted("It writes model, batches and recipe into the folder job: choose that.");
  if (button("welcome.capture.choose", "Choose the folder\u2026", ButtonKind::kPrimary, "gradloom open job"))
    show_path_dialog(ui, {"The folder that the script wrote", "Open", {}, false, "", true},
                     ui.state().settings.last_folder, [&ui](const std::string& path) { ui.app.open(path); });
  ImGui::EndChild();
}

void ask_remote(Ui& ui, float width) {
  ImGui::BeginChild("remote", {width, px(78)});
  muted("Where it lies; gradloom is installed there, and your ssh gets in:");
  const float open = button_width("Open") + px(8);
  const bool entered = committed_text(ui, "welcome.remote.address", "ssh://host/~/runs/s.db",
                                      &ui.remote_address, ImGui::GetContentRegionAvail().x - open);
  ImGui::SameLine(0, px(8));
  ImGui::BeginDisabled(ui.remote_address.empty());
  if (button("welcome.remote.open", "Open", ButtonKind::kPrimary, "gradloom open ssh://host/~/runs/s.db") ||
      entered)
    ui.app.open_remote(ui.remote_address);
  ImGui::EndDisabled();
  ImGui::EndChild();
}

// GLFW tells of no file that is only held over the window: the target is drawn all the time.
void drop_target(float width) {
  const Palette& p = palette();
  const ImVec2 min = ImGui::GetCursorScreenPos(), max{min.x + width, min.y + px(52)};
  ImGui::Dummy({width, px(52)});
  const char* const said = "Drop a model, session, recipe or capture's folder here";
  register_item("welcome.drop", said);
  ImDrawList* list = ImGui::GetWindowDrawList();
  const float dash = px(6);
  for (float x = min.x; x < max.x; x += 2 * dash)
    for (const float y : {min.y, max.y})
      list->AddLine({x, y}, {std::min(x + dash, max.x), y}, p.text_faint, px(1));
  for (float y = min.y; y < max.y; y += 2 * dash)
    for (const float x : {min.x, max.x})
      list->AddLine({x, y}, {x, std::min(y + dash, max.y)}, p.text_faint, px(1));
  const std::string shown = fit_text(theme().ui, theme().ui->FontSize, said, width - px(16));
  const ImVec2 size = ImGui::CalcTextSize(shown.c_str());
  list->AddText({(min.x + max.x - size.x) / 2, (min.y + max.y - size.y) / 2}, p.text_dim, shown.c_str());
}

void draw_offers(Ui& ui, float width) {
  const std::optional<RemoteView>& remote = ui.state().remote;
  if (remote && remote->awaited)
    muted("There is no session at " + escaped(remote->address) +
          " yet: it is shown as soon as a run begins it.");
  else if (ui.state().opening || remote)
    text("Reading\u2026", palette().text_dim);
  else if (button("welcome.open", "Open a model, session or recipe\u2026", ButtonKind::kPrimary,
                  key_label("file.open"), width))
    show_dialog(ui, DialogPurpose::open);
  ImGui::Dummy({0, px(2)});
  if (offer("welcome.sample", "Open the sample job",
            "A tiny BERT with batches that it can learn: 50 steps take a second", width, false)) {
    if (!ui.state().settings.tour_seen)
      ui.start_tour();
    else
      ui.app.open_sample();
  }
  if (offer("welcome.capture", "Open a PyTorch script's capture",
            "Its training step as a job: one line in the script", width, false))
    ui.tell_capture = !ui.tell_capture;
  if (ui.tell_capture) tell_capture(ui, width);
  if (offer("welcome.remote", "Open a session of another machine",
            "By your ssh: it is followed as it grows, and runs run there", width, false))
    ui.ask_remote = !ui.ask_remote;
  if (ui.ask_remote) ask_remote(ui, width);
  if (offer("welcome.tour", "Take the tour", "Five steps through the window, on the sample job", width,
            false))
    ui.start_tour();
  drop_target(width);
}

// What it is, when it was written, how large it is; where it lies.
std::string recent_line(const AppState& s, const std::string& path, FileKind kind) {
  const char* what = kind == FileKind::session ? "session" : kind == FileKind::recipe ? "job" : "model";
  const auto found = s.recents.find(path);
  if (found == s.recents.end()) return fmt::format("{} \u00b7 {}", what, escaped(path));
  const RecentFile& file = found->second;
  if (!file.exists) return fmt::format("{} \u00b7 is not there any more \u00b7 {}", what, escaped(path));
  return fmt::format("{} \u00b7 {} \u00b7 {} \u00b7 {}", what, file.when, bytes_text(file.bytes),
                     escaped(path));
}

// Runs that go on without a window, and those whose end nobody has seen.
void draw_background(Ui& ui, float width) {
  const std::vector<BackgroundRun> all = ui.state().background;  // what is clicked changes the list
  if (all.empty()) return;
  text("In the background", palette().text_dim, theme().bold);
  for (const BackgroundRun& run : all) {
    const std::string file = std::filesystem::path(run.session).filename().string();
    const std::string how = !run.running            ? "has ended"
                            : run.last_said.empty() ? "is going on"
                                                    : run.last_said;
    const std::string line =
        fmt::format("{} \u00b7 since {} \u00b7 {}", how, run.started, escaped(run.command));
    const std::string id = "background." + std::to_string(run.number);
    if (offer(id, file.empty() ? "no session" : escaped(file), line, width, run.session.empty()))
      ui.app.open_background(run);
  }
  ImGui::Dummy({0, px(4)});
}

void draw_recents(Ui& ui, float width) {
  const AppState& s = ui.state();
  text("Recent", palette().text_dim, theme().bold);
  if (s.settings.recents.empty()) {
    wrapped("Models, sessions and jobs that were open before stand here.", palette().text_faint);
    return;
  }
  const std::vector<std::string> recents = s.settings.recents;  // what is clicked changes the list
  for (std::size_t i = 0; i < std::min(recents.size(), kShownRecents); ++i) {
    const std::string& path = recents[i];
    const std::string id = "recent." + std::to_string(i);
    const FileKind kind = file_kind(path);
    const auto file = s.recents.find(path);
    const bool gone = file != s.recents.end() && !file->second.exists;
    const std::filesystem::path as_path(path);
    const std::string name = as_path.filename().string();
    const std::string label = escaped(kind == FileKind::model ? model_label(path)
                                      : name == "recipe.json" ? as_path.parent_path().filename().string()
                                                              : name);
    const ImVec2 at = ImGui::GetCursorScreenPos();
    if (offer(id, label, recent_line(s, path, kind), width, gone, px(28))) ui.app.open(path);
    const ImVec2 after = ImGui::GetCursorScreenPos();
    ImGui::SetCursorScreenPos({at.x + width - px(34), at.y + (px(kRow) - ImGui::GetFrameHeight()) / 2});
    if (button(id + ".remove", "\u00d7", ButtonKind::kGhost, "Remove from this list; the file stays"))
      ui.app.forget_recent(path);
    ImGui::SetCursorScreenPos(after);
  }
}

}  // namespace

void draw_welcome(Ui& ui) {
  ui.app.look_for_recents();
  const ImVec2 region = ImGui::GetContentRegionAvail(), at = ImGui::GetCursorScreenPos();
  const bool two = region.x >= px(760);  // columns
  const float whole = std::min(px(two ? 980 : 520), region.x - px(40)), gap = px(28);
  const float width = two ? (whole - gap) / 2 : whole;
  const std::size_t background = ui.state().background.size();
  const float rows = static_cast<float>(std::min(ui.state().settings.recents.size(), kShownRecents) +
                                        (background == 0 ? 0 : background + 1));
  const float tall = px(110) + std::max(px(300), rows * px(kRow + kCardGap) + px(40));
  const float x = at.x + (region.x - whole) / 2, y = at.y + std::max(px(16), (region.y - tall) * 0.35f);
  ImGui::SetCursorScreenPos({x, y});
  ImGui::BeginGroup();
  text("Gradloom", palette().text, theme().title);
  text("See, optimize and run the training step of an ONNX model", palette().text_dim);
  ImGui::Dummy({whole, px(12)});
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {px(8), px(kCardGap)});
  ImGui::BeginGroup();
  draw_offers(ui, width);
  ImGui::EndGroup();
  if (two) ImGui::SameLine(0, gap);
  ImGui::BeginGroup();
  draw_background(ui, width);
  draw_recents(ui, width);
  ImGui::EndGroup();
  ImGui::PopStyleVar();
  ImGui::Dummy({0, px(12)});
  text("Ctrl+O open    Ctrl+Shift+P commands    ? keys", palette().text_faint, theme().small);
  ImGui::EndGroup();
}

}  // namespace gradloom
