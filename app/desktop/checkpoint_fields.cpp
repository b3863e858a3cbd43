// The form of what a training keeps to go on from, and of where it goes on: train's --checkpoint flags and
// --resume.
#include <fmt/format.h>

#include "app/desktop/ui.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

constexpr std::int64_t kMost = 1'000'000'000;

void count_field(Ui& ui, const std::string& id, const std::string& label, const std::string& help,
                 std::int64_t CheckpointOptions::*member) {
  CheckpointOptions options = ui.state().checkpoints.options;
  field_label(label, help);
  std::string shown = std::to_string(options.*member);
  ImGui::BeginDisabled(options.folder.empty());
  if (committed_text(ui, id, "", &shown)) {
    const auto number = parse_number<std::int64_t>(shown);
    if (number && *number >= 0 && *number <= kMost) {
      options.*member = *number;
      ui.app.set_checkpoints(options);
    } else {
      ui.app.notice(NoticeKind::error,
                    fmt::format("{} expects a number from 0 to {}, got '{}'", label, kMost, escaped(shown)));
    }
  }
  ImGui::EndDisabled();
}

// What the folder holds, the newest first, and a checkpoint of another folder where that was chosen.
void resume_field(Ui& ui) {
  const CheckpointState& c = ui.state().checkpoints;
  std::vector<std::string> labels{"the start"}, paths{""};
  std::vector<ChoiceNote> notes{{"Training begins anew"}};
  int index = 0;
  for (const HeldCheckpoint& held : c.held) {
    if (c.from && c.from->path == held.path) index = static_cast<int>(labels.size());
    labels.push_back(fmt::format("step {}", held.step));
    paths.push_back(held.path);
    notes.push_back({"Written " + file_time_text(held.written) + "\n" + escaped(held.path)});
  }
  if (c.from && index == 0) {
    index = static_cast<int>(labels.size());
    labels.push_back(fmt::format("step {}", c.from->step));
    paths.push_back(c.from->path);
    notes.push_back({escaped(c.from->path)});
  }
  labels.emplace_back("another folder\u2026");
  notes.push_back({"A checkpoint, or a folder of them, whose newest it is then"});
  field_label("Go on from",
              "The form takes the settings of the checkpoint; what is changed then is changed there");
  if (!combo("run.resume", &index, labels, -1, notes)) return;
  if (const auto chosen = static_cast<std::size_t>(index); chosen < paths.size())
    return ui.app.go_on_from(paths[chosen]);
  show_path_dialog(ui, {"Go on from a checkpoint", "Choose", {}, false, "", true}, c.options.folder,
                   [&ui](const std::string& path) { ui.app.go_on_from(path); });
}

}  // namespace

void checkpoint_fields(Ui& ui) {
  const CheckpointState& c = ui.state().checkpoints;
  field_label("Folder",
              "Where checkpoints are written, all that a training goes on from bit for bit; empty: none");
  path_field(ui, "run.checkpoint", "none are written", c.options.folder,
             {"Folder of checkpoints", "Choose", {}, true, "", true}, [&ui](const std::string& path) {
               CheckpointOptions options = ui.state().checkpoints.options;
               options.folder = path;
               ui.app.set_checkpoints(options);
             });
  ImGui::TableNextColumn();
  count_field(ui, "run.checkpoint-every", "Every",
              "Steps between two; 0: only at the end, also of a run that is stopped",
              &CheckpointOptions::every);
  ImGui::TableNextColumn();
  count_field(ui, "run.checkpoint-keep", "Keep", "How many of the newest stay; 0: all",
              &CheckpointOptions::keep);
  ImGui::TableNextColumn();
  resume_field(ui);
}

}  // namespace gradloom
