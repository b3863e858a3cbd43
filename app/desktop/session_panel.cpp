// The session's runs: which is shown, which two are compared.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <filesystem>

#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "viz/draw/key_focus.h"
#include "viz/model/run_search.h"

namespace gradloom {
namespace {

std::string pipeline_label(const std::string& passes) {
  if (passes.empty() || passes == "none") return "no passes";
  if (passes == default_pipeline().text()) return "default passes";
  const auto pipeline = parse_pipeline(passes);
  return pipeline ? fmt::format("{} of {} passes", pipeline->passes.size(), all_passes().size())
                  : escaped(passes);
}

// By its name; runs without one are told apart by what they were.
std::string row_label(const RunSummary& r) {
  if (!r.name.empty()) return escaped(r.name);
  if (!r.has_recipe()) return r.kind_text();
  const bool usual = r.precision.empty() || r.precision == "f32";
  return (usual ? "" : escaped(r.precision) + ", ") + pipeline_label(r.passes);
}

void side_cell(Ui& ui, const RunSummary& r, bool a) {
  const AppState& s = ui.state();
  const bool on = (a ? s.run_a : s.run_b) == r.id;
  const Palette& p = palette();
  const std::string id = fmt::format("runs.{}.{}", a ? "a" : "b", r.id);
  ImGui::PushID(id.c_str());
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float d = ImGui::GetTextLineHeight();
  if (ImGui::InvisibleButton("side", {d + px(6), d})) ui.choose_side(r.id, a);
  const bool hovered = ImGui::IsItemHovered();
  register_item(id, a ? "A" : "B", on ? "on" : "off");
  reached_by(a ? "runs.as_a" : "runs.as_b");
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 centre{at.x + (d + px(6)) / 2, at.y + d / 2};
  const ImU32 color = category_color(a ? 2 : 0);  // as in the comparison
  if (on)
    list->AddCircleFilled(centre, d * 0.52f, color, 24);
  else
    list->AddCircle(centre, d * 0.45f, hovered ? color : p.border, 24, px(1.2f));
  const char* letter = a ? "A" : "B";
  ImFont* font = theme().small;
  const ImVec2 size = font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, letter);
  list->AddText(font, font->FontSize, {centre.x - size.x / 2, centre.y - size.y / 2},
                on        ? ink_on(color)
                : hovered ? color
                          : p.text_faint,
                letter);
  ImGui::PopID();
}

// A dot in the colour of the run's curve, or a ring where it has none.
void curve_cell(Ui& ui, const RunSummary& r) {
  const AppState& s = ui.state();
  const CurveRun of{s.session_path, r.id};
  const auto [place, own] = curve_place(s, of);
  const std::string id = fmt::format("runs.curve.{}", r.id);
  ImGui::PushID(id.c_str());
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float d = ImGui::GetTextLineHeight();
  if (ImGui::InvisibleButton("curve", {d, d}) && !own) ui.app.overlay_curve(of, place < 0);
  const bool hovered = ImGui::IsItemHovered();
  register_item(id, "curve", place >= 0 ? "on" : "off");
  reached_by("runs.curve");
  register_item(fmt::format("runs.colour.{}", r.id), "colour", std::to_string(place));
  tip(own ? "Its curve is drawn: the run is shown" : place >= 0 ? "Without its curve" : "Add its curve");
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 centre{at.x + d / 2, at.y + d / 2};
  if (place >= 0)
    list->AddCircleFilled(centre, d * 0.3f, category_color(static_cast<std::uint32_t>(place)), 16);
  else
    list->AddCircle(centre, d * 0.28f, hovered ? palette().text_dim : palette().border, 16, px(1.2f));
  ImGui::PopID();
}

void status_cell(const RunSummary& r) {
  const Palette& p = palette();
  const bool done = r.status == "done", failed = r.status == "failed", running = r.status == "running";
  text(done      ? "\u2713"
       : failed  ? "\u2717"
       : running ? "\u25b6"
                 : "\u25a0",
       done      ? p.good
       : failed  ? p.bad
       : running ? p.accent
                 : p.warn);
  tip(r.message.empty() ? r.status : r.status + ": " + r.message);
}

// What it is called or what passes it had, with its tags.
void name_of_run(Ui& ui, const RunSummary& r) {
  const RunEditor& editor = ui.run_editor;
  if (editor.what == RunEditor::What::name && editor.run == r.id) return draw_run_name(ui);
  const Palette& p = palette();
  text(row_label(r), r.pinned ? p.accent : p.text);
  std::string help = !r.has_recipe() ? r.command : r.passes.empty() ? "no passes" : r.passes;
  if (r.pinned) help = "pinned\n" + help;
  if (!r.note.empty()) help = r.note + "\n" + help;
  tip(help);
  register_item(fmt::format("runs.label.{}", r.id), "run", row_label(r));
  std::string tags;
  for (const std::string& tag : r.tags) tags += (tags.empty() ? "#" : " #") + escaped(tag);
  if (!r.note.empty()) tags += tags.empty() ? "\u2026" : " \u2026";
  if (tags.empty()) return;
  ImGui::SameLine(0, px(8));
  text(fit_text(theme().small, theme().small->FontSize, tags,
                std::max(px(12), ImGui::GetContentRegionAvail().x)),
       p.text_faint, theme().small);
  tip(r.note.empty() ? joined(r.tags) : r.note);
}

void run_cell(Ui& ui, const RunSummary& r, int column) {
  const Palette& p = palette();
  switch (column) {
    case 0: text(std::to_string(r.id)); break;
    case 1: side_cell(ui, r, true); break;
    case 2: side_cell(ui, r, false); break;
    case 3: curve_cell(ui, r); break;
    case 4: status_cell(r); break;
    case 5: name_of_run(ui, r); break;
    case 6:
      number_cell(r.steps > 0 && r.has_loss() ? fmt::format("{:.4f}", r.last_loss) : "\u2013");
      if (r.steps > 0 && r.has_loss())
        tip(fmt::format("{:.6g} after {} steps, from {:.6g}", r.last_loss, r.steps, r.first_loss));
      break;
    case 7:
      number_cell(r.median_step_ns > 0 ? duration_text(static_cast<double>(r.median_step_ns)) : "\u2013");
      break;
    case 8:
      number_cell(r.measured_peak_bytes > 0 ? bytes_text(static_cast<double>(r.measured_peak_bytes))
                                            : "\u2013");
      break;
    case 9: number_cell(std::to_string(r.steps)); break;
    case 10: text(escaped(r.optimizer), p.text_dim); break;
    case 11: text(escaped(r.started_utc), p.text_dim); break;
    default: break;
  }
}

void draw_compare_buttons(Ui& ui) {
  const AppState& s = ui.state();
  const bool pair = s.run_a != 0 && s.run_b != 0 && s.run_a != s.run_b;
  const auto ours = [&](std::int64_t id) {
    return std::any_of(s.session->runs.begin(), s.session->runs.end(),
                       [&](const RunSummary& run) { return run.id == id && run.has_recipe(); });
  };
  ImGui::BeginDisabled(!pair || s.progress.running);
  ImGui::BeginDisabled(pair && !(ours(s.run_a) && ours(s.run_b)));
  const std::string sides = pair ? fmt::format(" {} and {}", s.run_a, s.run_b) : "";
  if (button("runs.compare", "Compare" + sides + ", interleaved", ButtonKind::kPrimary,
             "Runs both again in one process, steps interleaved (ABBA)")) {
    ui.app.start_compare(ui.app.compare_command(false));
    ui.panes.show("Compare");
  }
  ImGui::EndDisabled();
  const char* const recorded = "Compare as recorded";
  flow(button_width(recorded), px(6));
  if (button("runs.stored", recorded, ButtonKind::kPlain,
             "Uses the recorded timings: fast, but drift of the machine counts")) {
    ui.app.start_compare(ui.app.compare_command(true));
    ui.panes.show("Compare");
  }
  ImGui::EndDisabled();
  ImGui::SameLine(0, px(12));
  ImGui::AlignTextToFramePadding();
  const std::string file = std::filesystem::path(s.session->path).filename().string();
  text(fit_text(theme().small, theme().small->FontSize, file, ImGui::GetContentRegionAvail().x),
       palette().text_faint, theme().small);
  tip(s.session->path);
}

// The places of the runs that the filter finds, in the order of the list.
std::vector<std::size_t> draw_filter(Ui& ui) {
  const auto& runs = ui.state().session->runs;
  const float width = std::min(px(320), ImGui::GetContentRegionAvail().x * 0.6f);
  input_text("runs.filter", fit_hint("Filter", "tag:base step<10ms loss<2.5 -status:failed", width),
             &ui.runs_filter, width);
  const auto query = RunQuery::parse(ui.runs_filter);
  const std::vector<std::size_t> found = found_runs(runs, query.ok() ? *query : RunQuery());
  ImGui::SameLine(0, px(8));
  ImGui::AlignTextToFramePadding();
  const std::string said =
      !query.ok() ? "\u26a0 " + query.error().message
      : query->empty()
          ? plural_text(static_cast<std::int64_t>(runs.size()), "run")
          : fmt::format("{} of {}", found.size(), plural_text(static_cast<std::int64_t>(runs.size()), "run"));
  text(fit_text(theme().small, theme().small->FontSize, said, ImGui::GetContentRegionAvail().x),
       query.ok() ? palette().text_faint : palette().warn, theme().small);
  register_item("runs.found", "found", query.ok() ? said : query.error().message);
  return found;
}

}  // namespace

void draw_session_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.session && ui.app.reading()) return empty_state("Reading\u2026", ui.app.running_job());
  if (!s.session || s.session->runs.empty()) {
    return empty_state("No runs in this session", s.session_path.empty()
                                                      ? "Open a session file or run a model."
                                                      : "Runs are recorded into " + s.session_path);
  }
  draw_compare_buttons(ui);
  const std::vector<std::size_t> found = draw_filter(ui);
  const auto run_at = [&](int row) -> const RunSummary& {
    return s.session->runs[found[static_cast<std::size_t>(row)]];
  };
  static const std::vector<TableColumn> columns{{"#", 24},
                                                {"A", 24},
                                                {"B", 24},
                                                {"", 18, false, false, "Its curve", 4},
                                                {"", 16, false, false, "Status", 4},
                                                {"Run", 0},
                                                {"Last loss", 70, true, false, "", 2},
                                                {"Step time", 70, true, false, "Median over untimed steps"},
                                                {"Peak", 66, true, false, "Measured", 3},
                                                {"Steps", 48, true, true, "", 5},
                                                {"Optimizer", 130, false, true, "", 6},
                                                {"Started", 150, false, true, "", 5}};
  TableRows rows;
  rows.count = static_cast<int>(found.size());
  rows.cell = [&](int row, int column) { run_cell(ui, run_at(row), column); };
  rows.id = [&](int row) { return std::to_string(run_at(row).id); };
  rows.value = [&](int row) { return run_at(row).status; };
  ui.runs_table.selected = -1;
  for (int row = 0; row < rows.count; ++row)
    if (s.run && s.run->record.summary.id == run_at(row).id) ui.runs_table.selected = row;
  const TableEvents events = draw_table("runs", columns, rows, ui.runs_table);
  if (const int of = events.menu >= 0           ? events.menu
                     : ImGui::IsMouseClicked(1) ? events.hovered
                                                : -1;
      of >= 0) {
    ui.menu_run = run_at(of).id;
    ImGui::OpenPopup("runs-menu");
    if (events.menu >= 0) menu_by_keys(events.menu_at);
  }
  draw_run_menu(ui);
  if (events.clicked >= 0) {
    const std::int64_t id = run_at(events.clicked).id;
    if (s.progress.running && id != s.progress.run_id) ui.app.edit_state().settings.follow_run = false;
    ui.app.show_run(id);
  }
  if (events.opened >= 0) {
    const auto& run = run_at(events.opened);
    if (s.run && s.run->record.summary.id == run.id && s.of_other_model(run)) {
      ui.app.open_model_of_run();
    } else if (s.run && s.run->record.summary.id == run.id) {
      if (auto recipe = parse_recipe(s.run->record.recipe_json))
        ui.app.edit("recipe of run " + std::to_string(run.id), [&](Recipe& r) { r = *recipe; });
    }
  }
}

}  // namespace gradloom
