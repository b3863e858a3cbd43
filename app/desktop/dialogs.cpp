// File dialogs of the window, by what they are for.
#include <filesystem>

#include "app/desktop/suggest.h"
#include "app/desktop/ui.h"
#include "engine/base/text.h"
#include "sessions/find_model.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

fs::path start_folder(const Ui& ui, DialogPurpose purpose) {
  std::error_code ignored;
  const AppState& s = ui.state();
  const auto folder_of = [](const std::string& file) { return fs::path(file).parent_path(); };
  const bool by_session = purpose == DialogPurpose::session || purpose == DialogPurpose::locate;
  if (by_session && !s.session_path.empty() && fs::exists(folder_of(s.session_path), ignored))
    return folder_of(s.session_path);
  if (!s.settings.last_folder.empty() && fs::is_directory(s.settings.last_folder, ignored))
    return s.settings.last_folder;
  if (s.has_model()) return folder_of(s.recipe.model);
  return fs::current_path(ignored);
}

}  // namespace

void show_dialog(Ui& ui, DialogPurpose purpose) {
  FileDialog::Options options;
  const std::string label = ui.state().has_model() ? model_label(ui.state().recipe.model) : "model";
  switch (purpose) {
    case DialogPurpose::none:
    case DialogPurpose::field: return;
    case DialogPurpose::open:
      options = {"Open a model, session or recipe", "Open", {".onnx", ".db", ".json"}, false, ""};
      break;
    case DialogPurpose::export_run:
      if (!ui.app.can_export()) return;
      options = {
          "Recipe of run " + std::to_string(ui.state().run->record.summary.id) +
              (ui.app.shown_run_is_current() ? "" : " (recorded with other settings than the present ones)"),
          "Write",
          {".json"},
          true,
          label + ".run" + std::to_string(ui.state().run->record.summary.id) + ".json"};
      break;
    case DialogPurpose::report_run: {
      if (!ui.state().run) return;
      const std::string run = std::to_string(ui.state().run->record.summary.id);
      options = {"Report of run " + run, "Write", {".html", ".md"}, true, label + ".run" + run + ".html"};
      break;
    }
    case DialogPurpose::save_recipe:
      options = {"Save the recipe as it stands", "Save", {".json"}, true, label + ".recipe.json"};
      break;
    case DialogPurpose::session:
      options = {"Session to record into", "Choose", {".db"}, true, label + ".db"};
      break;
    case DialogPurpose::locate:
      if (!ui.state().without_model) return;
      options = {"Where is " + fs::path(ui.state().without_model->model).filename().string() + " now?",
                 "Open",
                 {".onnx"},
                 false,
                 ""};
      break;
  }
  ui.purpose = purpose;
  ui.dialog.show(options, start_folder(ui, purpose), ui.state().settings.recents);
}

void show_path_dialog(Ui& ui, FileDialog::Options options, const std::string& path,
                      std::function<void(const std::string&)> set) {
  std::error_code ignored;
  const fs::path folder = fs::is_directory(path, ignored) ? fs::path(path) : fs::path(path).parent_path();
  ui.purpose = DialogPurpose::field;
  ui.on_path = std::move(set);
  ui.dialog.show(std::move(options),
                 fs::is_directory(folder, ignored) ? folder : start_folder(ui, DialogPurpose::field));
}

void draw_dialogs(Ui& ui) {
  const auto chosen = ui.dialog.draw();
  if (!chosen) return;
  const std::string path = chosen->string();
  ui.app.edit_state().settings.last_folder = chosen->parent_path().string();
  switch (std::exchange(ui.purpose, DialogPurpose::none)) {
    case DialogPurpose::none: break;
    case DialogPurpose::open: ui.app.open(path); break;
    case DialogPurpose::export_run: ui.app.export_run(path); break;
    case DialogPurpose::report_run: ui.app.report_run(path); break;
    case DialogPurpose::save_recipe: ui.app.save_recipe(path); break;
    case DialogPurpose::session: ui.app.set_session(path); break;
    case DialogPurpose::locate: ui.app.locate_model(path); break;
    case DialogPurpose::field: ui.on_path(path); break;
  }
}

}  // namespace gradloom
