// The notes tab: the nine bookmarks, every note of the model, and the editor of one note.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>

#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "viz/draw/keys.h"

namespace gradloom {
namespace {

void draw_bookmarks(Ui& ui) {
  const Marks& marks = *ui.state().marks;
  ImGui::AlignTextToFramePadding();
  text("Bookmarks", palette().text_dim);
  for (int slot = 1; slot <= kBookmarks; ++slot) {
    const auto& bookmark = marks.bookmarks[static_cast<std::size_t>(slot - 1)];
    const std::string number = std::to_string(slot);
    ImGui::SameLine(0, px(slot == 1 ? 10 : 4));
    const std::string help =
        bookmark ? fmt::format("{}, around {} ({})", bookmark->tab, escaped(bookmark->graph.node),
                               key_label("bookmark.go." + number))
                 : fmt::format("Bookmark the view as {} ({})", number, key_label("bookmark.set." + number));
    if (!button("bookmark." + number, number, bookmark ? ButtonKind::kPlain : ButtonKind::kGhost, help,
                ImGui::GetFrameHeight()))
      continue;
    if (bookmark)
      ui.go_to_bookmark(slot);
    else
      ui.set_bookmark(slot);
  }
  ImGui::SameLine(0, px(18));
  if (button("notes.add", "Add a note", ButtonKind::kGhost,
             "On the marked time or the selected node (" + key_label("note.add") + ")"))
    ui.note_here();
}

}  // namespace

void draw_notes_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model()) return empty_state("No notes", "Notes and bookmarks belong to a model: open one.");
  draw_bookmarks(ui);
  const std::vector<Note>& notes = s.marks->notes;
  if (notes.empty())
    return empty_state(
        "No notes on this model",
        fmt::format("{} writes one on the selected node, or on the time that is marked in the timeline.",
                    key_label("note.add")));
  static const std::vector<TableColumn> columns{
      {"Note", 0}, {"On", 210}, {"Written", 130, false, true}, {"", 96, false, false, "Edit, delete"}};
  TableRows rows;
  rows.sortable = false;
  rows.count = static_cast<int>(notes.size());
  const auto at = [&](int row) -> const Note& {
    return notes[notes.size() - 1 - static_cast<std::size_t>(row)];
  };
  rows.id = [&](int row) { return std::to_string(at(row).id); };
  rows.value = [&](int row) { return at(row).text; };
  const Note* edited = nullptr;
  const Note* deleted = nullptr;
  rows.cell = [&](int row, int column) {
    const Note& note = at(row);
    if (column == 0) {
      text(escaped(note.text));
      tip(note.text);
    } else if (column == 1) {
      const std::string subject = escaped(note_subject(note));
      text(fit_text(theme().ui, theme().ui->FontSize, subject, ImGui::GetContentRegionAvail().x),
           palette().text_dim);
      tip(subject);
    } else if (column == 2) {
      text(note.created_utc, palette().text_faint);
    } else {
      const std::string id = std::to_string(note.id);
      ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, {px(6), 0});
      if (button("notes.edit." + id, "Edit", ButtonKind::kGhost)) edited = &note;
      ImGui::SameLine(0, px(2));
      if (button("notes.delete." + id, "Delete", ButtonKind::kGhost, "Undo brings it back")) deleted = &note;
      ImGui::PopStyleVar();
    }
  };
  const TableEvents events = draw_table("notes", columns, rows, ui.notes_table);
  if (events.hovered >= 0 && !at(events.hovered).node.empty()) ui.asks.hover_node = at(events.hovered).node;
  if (edited) return ui.edit_note(*edited);
  if (deleted) {
    Note gone = *deleted;
    gone.text.clear();
    return ui.app.put_note(gone);
  }
  if (events.clicked >= 0) ui.go_to_note(at(events.clicked));
}

void draw_node_notes(Ui& ui, const std::string& node) {
  const std::shared_ptr<const Marks> marks = ui.state().marks;
  bool first = true;
  for (const Note& note : marks->notes) {
    if (note.node != node) continue;
    if (std::exchange(first, false)) heading("Notes");
    const std::string id = std::to_string(note.id);
    const ImVec2 top = ImGui::GetCursorScreenPos();
    ImGui::Indent(px(11));
    wrapped(escaped(note.text), palette().text);
    register_item("node-note." + id, "note", note.text);
    ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, {px(4), px(1)});
    if (button("node-note.edit." + id, "Edit", ButtonKind::kGhost)) ui.edit_note(note);
    ImGui::SameLine(0, px(2));
    if (button("node-note.delete." + id, "Delete", ButtonKind::kGhost, "Undo brings it back")) {
      Note gone = note;
      gone.text.clear();
      ui.app.put_note(gone);
    }
    ImGui::PopStyleVar();
    ImGui::Unindent(px(11));
    ImGui::GetWindowDrawList()->AddRectFilled(
        {top.x, top.y + px(2)}, {top.x + px(3), ImGui::GetItemRectMax().y}, palette().warn, px(2));
  }
}

void draw_note_editor(Ui& ui) {
  NoteEditor& editor = ui.note_editor;
  if (!editor.open) return;
  if (editor.just_opened) ImGui::OpenPopup("Note");
  if (!begin_dialog("Note")) {
    editor.open = false;
    return;
  }
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  const float width = std::min(px(460), display.x * 0.8f);
  text("Note", palette().text, theme().title);
  const std::string subject = escaped(note_subject(editor.note));
  muted(fit_text(theme().small, theme().small->FontSize, "on " + subject, width));
  register_item("note.subject", "subject", subject);
  spacer(2);
  const bool entered =
      input_lines("note.text", &editor.note.text, {width, std::clamp(display.y - px(190), px(32), px(92))},
                  std::exchange(editor.just_opened, false));
  muted("Enter keeps it, Ctrl+Enter begins a new line");
  spacer(4);
  bool done = false;
  const auto keep = [&](const std::string& text) {
    Note note = editor.note;
    note.text = text;
    while (!note.text.empty() && std::isspace(static_cast<unsigned char>(note.text.back())))
      note.text.pop_back();
    if (note.created_utc.empty()) note.created_utc = utc_timestamp();
    ui.app.put_note(note);
    done = true;
  };
  if (button("note.keep", "Keep", ButtonKind::kPrimary) || entered) keep(editor.note.text);
  ImGui::SameLine(0, px(6));
  if (button("note.cancel", "Cancel", ButtonKind::kGhost) ||
      ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape), false))
    done = true;
  if (editor.note.id != 0) {
    ImGui::SameLine(width - px(70));
    if (button("note.delete", "Delete", ButtonKind::kDanger, {}, px(70))) keep({});
  }
  if (done) {
    editor.open = false;
    ImGui::CloseCurrentPopup();
  }
  ImGui::EndPopup();
}

}  // namespace gradloom
