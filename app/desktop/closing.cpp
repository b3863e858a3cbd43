// What becomes of a run when its window is closed.
#include <fmt/format.h>
#include <imgui.h>

#include "app/desktop/run_events.h"
#include "app/desktop/ui.h"

namespace gradloom {
namespace {

std::string how_far(const RunProgress& p) {
  if (p.kind == RunKind::train) return fmt::format("step {} of {}", p.step, p.planned_steps);
  return fmt::format("{:.0f} % done", 100 * p.fraction);
}

}  // namespace

bool Ui::may_close() {
  if (!state().progress.running) return true;
  closing = true;
  host.animate();
  return false;
}

void draw_closing(Ui& ui) {
  if (!ui.closing) return;
  const RunProgress& p = ui.state().progress;
  if (!ImGui::IsPopupOpen("Closing")) ImGui::OpenPopup("Closing");
  if (!begin_dialog("Closing", &ui.closing)) return;
  const bool stays = ui.app.outlives_window();
  text(subject_of(p) + (p.running ? " is going on" : " has ended"), palette().text, theme().title);
  if (p.running) muted(how_far(p));
  spacer(4);
  const char* const said =
      !p.running ? "The window can be closed."
      : stays    ? "It can go on without the window. Opened again, its session shows it as it goes on;\n"
                   "`gradloom background` lists it."
                 : "It was started by this window and ends with it.";
  text(said, palette().text_dim);
  register_item("closing.said", "what becomes of it", said);
  spacer(6);
  const auto close = [&] {
    ui.closing = false;
    ImGui::CloseCurrentPopup();
  };
  const bool leave = button("closing.leave",
                            !p.running ? "Close"
                            : stays    ? "Keep it running"
                                       : "End it",
                            p.running && !stays ? ButtonKind::kDanger : ButtonKind::kPrimary);
  bool stop = false;
  if (p.running && stays) {
    ImGui::SameLine(0, px(6));
    stop = button("closing.stop", "Stop it", ButtonKind::kPlain, "After its step; what it recorded stays");
  }
  ImGui::SameLine(0, px(6));
  const bool cancel = button("closing.cancel", "Cancel", ButtonKind::kGhost) ||
                      ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape), false);
  if (stop) ui.app.stop_run();
  if (leave || stop) ui.host.close();
  if (leave || stop || cancel) close();
  ImGui::EndPopup();
}

}  // namespace gradloom
