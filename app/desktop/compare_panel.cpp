// The comparison tab: progress while one is measured, and the last result.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "app/desktop/ui.h"

namespace gradloom {
namespace {

const RunSummary* find_run(const AppState& s, std::int64_t id) {
  if (!s.session || id == 0) return nullptr;
  const auto it = std::find_if(s.session->runs.begin(), s.session->runs.end(),
                               [&](const RunSummary& r) { return r.id == id; });
  return it == s.session->runs.end() ? nullptr : &*it;
}

void draw_progress(Ui& ui) {
  const RunProgress& r = ui.state().progress;
  if (button("compare.stop", r.stopping ? "Kill" : "Stop", ButtonKind::kDanger)) ui.app.stop_run();
  ImGui::SameLine(0, px(10));
  ImGui::BeginGroup();
  progress("compare.progress", static_cast<float>(r.fraction),
           r.ratio ? fmt::format("measuring: B is {:.3f}\u00d7 [{:.3f}, {:.3f}] so far", r.ratio->value,
                                 r.ratio->low, r.ratio->high)
                   : "preparing both sides\u2026");
  ImGui::EndGroup();
  ui.host.animate();
}

}  // namespace

void draw_compare_panel(Ui& ui) {
  const AppState& s = ui.state();
  const bool measuring = s.progress.running && s.progress.kind == RunKind::compare;
  if (measuring) {
    draw_progress(ui);
    spacer(6);
  }
  if (s.comparison) {
    const ComparisonView& c = *s.comparison;
    draw_compare_view(c.comparison, find_run(s, c.run_a), find_run(s, c.run_b), ui.compare, ui.asks);
  } else if (!measuring) {
    empty_state("Nothing compared yet",
                "Choose two runs (A and B) in the list of runs, or compare the passes against none with F6.");
  }
}

}  // namespace gradloom
