// The what-if tab: a question put together (settings, faster kernels, another processor), and the predicted step beside the
// measured one.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>

#include "app/desktop/ui.h"
#include "app/recipe_flags.h"
#include "engine/base/glob.h"
#include "engine/base/text.h"
#include "viz/draw/graph_canvas.h"

namespace gradloom {
namespace {

constexpr const char* kOf[] = {"op", "scope", "node", "phase", "launch"};
const std::vector<std::string> kOfNames = {"Operator", "Scope", "Node", "Phase", "Launches"};
constexpr int kLaunch = 4;
constexpr const char* kPhases[] = {"forward", "loss", "backward", "optimizer"};

std::string flags_of(const WhatIfForm& form) {
  std::string flags;
  const auto add = [&](const std::string& flag, const std::string& value) {
    flags += (flags.empty() ? "" : " ") + flag + " " + shell_quoted(value);
  };
  if (!form.changes.empty()) add("--b", form.changes);
  for (const WhatIfForm::Faster& f : form.faster)
    add("--speed", std::string(kOf[f.of]) + (f.of == kLaunch ? "" : ":" + f.pattern) + "=" + f.factor);
  if (form.on > 0) add("--on", known_hardware()[static_cast<std::size_t>(form.on - 1)].id);
  if (!form.keep && !flags.empty()) flags += " --forget";
  return flags;
}

// One line of what would be faster; true: it goes.
bool faster_row(Ui& ui, std::size_t i, WhatIfForm::Faster& f) {
  const std::string id = "whatif.faster." + std::to_string(i + 1);
  combo(id + ".of", &f.of, kOfNames, 100);
  if (f.of != kLaunch) {
    ImGui::SameLine(0, px(6));
    committed_text(ui, id + ".pattern", f.of == 0 ? "MatMul, *Attention*" : "a name or glob", &f.pattern,
                   px(240));
  }
  ImGui::SameLine(0, px(6));
  committed_text(ui, id + ".factor", "2", &f.factor, px(60));
  ImGui::SameLine(0, px(6));
  ImGui::AlignTextToFramePadding();
  muted("times as fast");
  ImGui::SameLine(0, px(6));
  return button(id + ".remove", "Remove", ButtonKind::kGhost);
}

void draw_question(Ui& ui) {
  const AppState& s = ui.state();
  WhatIfForm& form = ui.what_if;
  committed_text(ui, "whatif.changes", "precision=bf16;dim=batch=16", &form.changes);
  field_label("What would be faster");
  for (std::size_t i = 0; i < form.faster.size(); ++i)
    if (faster_row(ui, i, form.faster[i])) {
      form.faster.erase(form.faster.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
  if (button("whatif.add", "Add", ButtonKind::kPlain)) {
    form.faster.emplace_back();
    // What is selected is most likely what is meant.
    if (const std::string node = ui.selected(); !node.empty()) form.faster.back() = {2, glob_of(node), "2"};
  }
  field_label("Processor");
  std::vector<std::string> names = {"The same"};
  for (const Hardware& h : known_hardware()) names.push_back(h.name);
  combo("whatif.on", &form.on, names, 260);
  ImGui::SameLine(0, px(10));
  const std::string flags = flags_of(form);
  ImGui::BeginDisabled(s.progress.running || flags.empty());
  if (button("whatif.ask", "Predict", ButtonKind::kPrimary, ui.app.what_if_command(flags)))
    ui.app.start_what_if(flags);
  ImGui::EndDisabled();
  ImGui::SameLine(0, px(12));
  checkbox("whatif.keep", "Keep it for a run to score", &form.keep);
}

// Phases of a step side by side, to one scale; a line for the range.
void step_bar(const char* id, const std::string& label, const std::vector<WhatIfPart>& phases, bool after,
              double all_ns, double other_ns, double scale_ns, const WhatIfView* range) {
  const float left = px(70), height = px(20),
              width = std::max(px(100), ImGui::GetContentRegionAvail().x - left - px(8));
  const ImVec2 min = ImGui::GetCursorScreenPos();
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddText(theme().ui, theme().ui->FontSize, {min.x, min.y + (height - theme().ui->FontSize) / 2},
                palette().text, label.c_str());
  float x = min.x + left;
  const auto part = [&](double ns, ImU32 color) {
    const float to = x + width * static_cast<float>(ns / scale_ns);
    list->AddRectFilled({x, min.y}, {to, min.y + height}, color);
    x = to;
  };
  for (const char* name : kPhases)
    for (const WhatIfPart& p : phases)
      if (p.name == name)
        part(after ? p.after_ns : p.before_ns, mix(palette().panel, phase_color(p.name), 0.75f));
  part(std::max(0.0, other_ns), palette().raised);
  if (range != nullptr) {
    const auto at = [&](double ns) {
      return min.x + left + width * static_cast<float>(std::min(ns, scale_ns) / scale_ns);
    };
    const float middle = min.y + height / 2;
    list->AddLine({at(range->low_ns), middle}, {at(range->high_ns), middle}, palette().text, px(2));
    for (const double end : {range->low_ns, range->high_ns})
      list->AddLine({at(end), middle - px(5)}, {at(end), middle + px(5)}, palette().text, px(2));
  }
  ImGui::Dummy({left + width, height});
  register_item(id, label, duration_text(all_ns));
}

double kernels_of(const std::vector<WhatIfPart>& phases, bool after) {
  double ns = 0;
  for (const WhatIfPart& p : phases) ns += after ? p.after_ns : p.before_ns;
  return ns;
}

void legend() {
  for (const char* name : kPhases) {
    badge(name, phase_color(std::string(name)));
    ImGui::SameLine(0, px(6));
  }
  ImGui::AlignTextToFramePadding();
  muted("grey: launches and waiting");
}

void draw_ops(const WhatIfView& w, TableState& state) {
  double most = 1;
  for (const WhatIfPart& p : w.ops) most = std::max(most, std::abs(p.after_ns - p.before_ns));
  TableRows rows;
  rows.sortable = false;
  rows.count = static_cast<int>(w.ops.size());
  rows.id = [&](int r) { return w.ops[static_cast<std::size_t>(r)].name; };
  rows.value = [&](int r) { return duration_text(w.ops[static_cast<std::size_t>(r)].after_ns); };
  rows.cell = [&](int r, int c) {
    const WhatIfPart& p = w.ops[static_cast<std::size_t>(r)];
    const double change = p.after_ns - p.before_ns;
    if (c == 0) name_cell(p.name);
    if (c == 1) number_cell(fmt::format("{} \u2192 {}", p.before, p.after));
    if (c == 2) number_cell(duration_text(p.before_ns));
    if (c == 3) number_cell(duration_text(p.after_ns));
    if (c == 4)
      cell_bar(std::abs(change) / most, change < 0 ? palette().good : palette().bad,
               format_change(change, Unit::kNs));
  };
  draw_table(
      "whatif.ops",
      {{"Operator"}, {"Kernels", 100, true}, {"Now", 90, true}, {"Then", 90, true}, {"Change", 150, true}},
      rows, state, std::max(px(180), ImGui::GetContentRegionAvail().y));
}

void draw_answer(Ui& ui) {
  const WhatIfView& w = ui.state().what_if;
  const std::string said =
      fmt::format("{} instead of {}: {:.2f}\u00d7 [{:.2f}, {:.2f}]", duration_text(w.after_ns),
                  duration_text(w.before_ns), w.ratio, w.low, w.high);
  spacer(6);
  title(said, w.low > 1 ? palette().good : w.high < 1 ? palette().bad : palette().text);
  register_item("whatif.answer", said, fmt::format("{:.4f}", w.ratio));
  muted(fmt::format(
      "If {}. {}{}", w.question,
      w.note.empty() ? percent_text(w.known) + " of what differs was measured" : escaped(w.note),
      w.samples != 1 ? fmt::format("; a step has {} times as many samples", number_text(w.samples)) : ""));
  spacer(4);
  const double scale = 1.02 * std::max({w.before_ns, w.after_ns, w.high_ns, 1.0});
  step_bar("whatif.now", "Now", w.phases, false, w.before_ns, w.before_ns - kernels_of(w.phases, false),
           scale, nullptr);
  step_bar("whatif.then", "Then", w.phases, true, w.after_ns, w.after_ns - kernels_of(w.phases, true), scale,
           &w);
  legend();
  muted(fmt::format("Peak {} \u2192 {}", bytes_text(static_cast<double>(w.before_peak_bytes)),
                    bytes_text(static_cast<double>(w.after_peak_bytes))));
  spacer(4);
  draw_ops(w, ui.what_if.table);
}

}  // namespace

void draw_what_if_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model() && !s.run) return empty_state("Nothing to predict", "Open a model or a session.");
  segmented("whatif.tab", &ui.what_if.tab, {"A question", "Scores"});
  if (ui.what_if.tab == 1) return draw_scores(ui);
  ImGui::SameLine(0, px(14));
  ImGui::AlignTextToFramePadding();
  muted("Settings that would be different");
  tip("as compare takes them: precision=bf16;dim=batch=16;passes=default,-fuse-gelu");
  draw_question(ui);
  if (s.progress.running && s.progress.kind == RunKind::what_if) {
    ui.host.animate();
    spacer(6);
    muted("Predicting\u2026");
    return;
  }
  if (s.what_if.before_ns > 0) draw_answer(ui);
}

}  // namespace gradloom
