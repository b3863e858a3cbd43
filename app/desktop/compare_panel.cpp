// The comparison tab: the comparisons that there are, progress while one is measured,
// and the result of the chosen pair.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "app/desktop/difference_panel.h"
#include "app/desktop/run_events.h"
#include "app/desktop/ui.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

// "passes=none against passes=default: SAME 1.00\u00d7, 2026-11-23 14:05"
std::string label_of(const StoredComparison& c) {
  const auto side = [](std::int64_t run, const std::string& name) {
    return run != 0 ? fmt::format("run {}", run) : escaped(name);
  };
  std::string when = c.created_utc.substr(0, 16);  // "2026-11-23T14:05"
  std::replace(when.begin(), when.end(), 'T', ' ');
  return fmt::format("{} against {}: {} {:.2f}\u00d7, {}", side(c.run_a, c.comparison.a),
                     side(c.run_b, c.comparison.b), verdict_name(c.comparison.verdict),
                     c.comparison.ratio.value, escaped(when));
}

// Every comparison that the session holds, newest first.
void draw_history(Ui& ui) {
  const AppState& s = ui.state();
  std::vector<std::string> labels;
  int shown = -1;
  const std::size_t count = s.session ? s.session->comparisons.size() : 0;
  if (count == 0) return;
  for (std::size_t i = 0; i < count; ++i) {
    const StoredComparison& c = s.session->comparisons[i];
    labels.push_back(label_of(c));
    const bool same = s.comparison && c.run_a == s.comparison->run_a && c.run_b == s.comparison->run_b &&
                      c.comparison.ratio.value == s.comparison->comparison.ratio.value &&
                      c.comparison.seconds == s.comparison->comparison.seconds;
    if (same && shown < 0) shown = static_cast<int>(i);
  }
  const bool measuring = s.progress.running && s.progress.kind == RunKind::compare;
  ImGui::BeginDisabled(measuring);
  if (combo("compare.history", &shown, labels, -1))
    ui.app.show_comparison(s.session->comparisons[static_cast<std::size_t>(shown)]);
  ImGui::EndDisabled();
}

// What a comparison of two settings of the recipe compares, from its command line.
std::string changes_text(const std::string& command) {
  const auto words = split_command_line(command);
  std::string a = "the recipe as it stands", b = a;
  for (std::size_t i = 0; words && i + 1 < words->size(); ++i) {
    if ((*words)[i] == "--a") a = escaped((*words)[i + 1]);
    if ((*words)[i] == "--b") b = escaped((*words)[i + 1]);
  }
  return a + " (A) against " + b + " (B)";
}

// It ends as soon as the interval decides, at the latest when its time is up.
std::string comparison_progress(const RunProgress& r) {
  if (r.most_seconds <= 0) return "preparing both sides\u2026";
  const std::string left =
      fmt::format("at most {:.0f} s left", std::max(0.0, std::ceil(r.most_seconds - r.seconds)));
  const std::string ratio = ratio_so_far(r);
  return ratio.empty() ? "too few blocks for a ratio yet, " + left : ratio + " so far, " + left;
}

void draw_progress(Ui& ui) {
  const RunProgress& r = ui.state().progress;
  const std::string sides = r.run_a != 0
                                ? fmt::format("Measuring run {} (A) against run {} (B)", r.run_a, r.run_b)
                                : "Measuring " + changes_text(r.command);
  title(sides);
  register_item("compare.measuring", sides, sides);
  spacer(4);
  if (button("compare.stop", r.stopping ? "Kill" : "Stop", ButtonKind::kDanger)) ui.app.stop_run();
  ImGui::SameLine(0, px(10));
  ImGui::BeginGroup();
  progress("compare.progress", static_cast<float>(r.fraction), comparison_progress(r));
  ImGui::EndGroup();
  if (r.most_seconds > 0) {
    spacer(6);
    draw_groups_so_far(r.measured, r.intervals.all(), r.most_seconds,
                       std::clamp(ImGui::GetContentRegionAvail().y - px(4), px(120), px(320)));
  }
  ui.host.animate();
}

// What can be compared: the chosen pair of runs, or the passes.
void draw_offer(Ui& ui) {
  const AppState& s = ui.state();
  const bool pair = s.run_a != 0 && s.run_b != 0 && s.run_a != s.run_b;
  title(pair ? fmt::format("Run {} (A) and run {} (B) are not compared yet", s.run_a, s.run_b)
             : "Nothing compared yet");
  muted("Two runs, marked A and B in the list of runs, or all passes off against the recipe as it stands.");
  spacer(4);
  ImGui::BeginDisabled(s.progress.running);
  ImGui::BeginDisabled(!pair);
  if (button("compare.runs", "Compare the runs, interleaved", ButtonKind::kPrimary,
             "Runs both again in one process, steps interleaved (ABBA)"))
    ui.do_command("run.compare_runs");
  ImGui::SameLine(0, px(6));
  if (button("compare.stored", "Compare as recorded", ButtonKind::kPlain,
             "Uses the recorded timings: fast, but drift of the machine counts"))
    ui.do_command("run.compare_stored");
  ImGui::EndDisabled();
  ImGui::SameLine(0, px(6));
  if (button("compare.passes", "A/B: passes off vs now", ButtonKind::kPlain, "With the recipe as it stands"))
    ui.do_command("run.compare");
  ImGui::EndDisabled();
}

}  // namespace

void draw_compare_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model() && !s.session) return empty_state("Nothing to compare", "Open a model or a session.");
  const bool measuring = s.progress.running && s.progress.kind == RunKind::compare;
  if (!measuring && difference_switch(ui)) return draw_difference(ui);
  draw_history(ui);
  spacer(4);
  if (measuring) return draw_progress(ui);
  if (!s.comparison) return draw_offer(ui);
  const ComparisonView& c = *s.comparison;
  draw_compare_view(c.comparison, find_run(s, c.run_a), find_run(s, c.run_b), ui.compare, ui.asks);
}

}  // namespace gradloom
