#include "viz/draw/file_dialog.h"

#include <imgui.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>

#include "engine/base/dates.h"
#include "engine/base/text.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostEntries = 20000;

fs::path home() {
  const char* value = std::getenv("HOME");
  return value && *value ? fs::path(value) : fs::path("/");
}

}  // namespace

std::string file_time_text(fs::file_time_type time) {
  const auto system = std::chrono::time_point_cast<std::chrono::system_clock::duration>(
      time - fs::file_time_type::clock::now() + std::chrono::system_clock::now());
  return local_time_text(std::chrono::system_clock::to_time_t(system));
}

void FileDialog::show(Options options, const fs::path& folder, std::vector<std::string> recents) {
  options_ = std::move(options);
  recents_ = std::move(recents);
  open_ = just_opened_ = true;
  confirm_.clear();
  std::error_code ignored;
  fs::path start = fs::absolute(folder.empty() ? fs::current_path(ignored) : folder, ignored);
  enter(start);
  if (!options_.name.empty()) path_text_ = (start / options_.name).string();
}

FileDialog::Listing FileDialog::list(const fs::path& folder, const Options& options) {
  const std::vector<std::string>& extensions = options.extensions;
  const bool only_folders = options.folder && options.save;
  Listing listing;
  listing.folder = folder;
  std::error_code error;
  fs::directory_iterator it(folder, fs::directory_options::skip_permission_denied, error);
  if (error) {
    listing.error = error.message();
    return listing;
  }
  for (const fs::directory_iterator end; it != end && listing.entries.size() < kMostEntries;
       it.increment(error)) {
    if (error) break;
    Entry entry;
    entry.name = it->path().filename().string();
    if (entry.name.empty() || entry.name[0] == '.') continue;
    entry.folder = it->is_directory(error);
    const std::string extension = it->path().extension().string();
    const bool wanted =
        !only_folders && (extensions.empty() ||
                          std::find(extensions.begin(), extensions.end(), extension) != extensions.end());
    if (!entry.folder && !wanted) continue;
    if (!entry.folder) entry.bytes = it->file_size(error);
    if (error) entry.bytes = 0;
    entry.modified = it->last_write_time(error);
    listing.entries.push_back(std::move(entry));
  }
  std::sort(listing.entries.begin(), listing.entries.end(),
            [](const Entry& a, const Entry& b) { return a.folder != b.folder ? a.folder : a.name < b.name; });
  return listing;
}

void FileDialog::enter(const fs::path& folder) {
  folder_ = folder.lexically_normal();
  const bool named = options_.save && !options_.folder;
  path_text_ = named ? (folder_ / fs::path(path_text_).filename()).string() : folder_.string();
  message_.clear();
  selected_ = -1;
  pending_.push_back(std::async(std::launch::async, list, folder_, options_));
}

void FileDialog::poll() {
  for (size_t i = 0; i < pending_.size();) {
    if (pending_[i].wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      ++i;
      continue;
    }
    Listing listing = pending_[i].get();
    if (listing.folder == folder_) {
      listing_ = std::move(listing);
      message_ = listing_.error;
    }
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

std::optional<fs::path> FileDialog::accept(const fs::path& path, bool chosen) {
  std::error_code error;
  const fs::path full = path.is_absolute() ? path : folder_ / path;
  const bool is_folder = fs::is_directory(full, error), answer = options_.folder && chosen;
  if (is_folder && !answer) {
    enter(full);
    return std::nullopt;
  }
  const bool exists = fs::exists(full, error);
  if (options_.folder && options_.save && exists && !is_folder) {
    message_ = escaped(full.filename().string()) + " is no folder";
    return std::nullopt;
  }
  if (!options_.save && !exists) {
    message_ = "There is no file " + escaped(full.string());
    return std::nullopt;
  }
  if (options_.save && exists && !is_folder && confirm_ != full) {
    confirm_ = full;
    message_ = escaped(full.filename().string()) + " exists. Press the button again to replace it.";
    return std::nullopt;
  }
  open_ = false;
  ImGui::CloseCurrentPopup();
  return full;
}

namespace {

// The dialog's parts in a window that may be small: then there are no places beside the files, and fewer columns.
struct DialogRoom {
  float width, height, places;
};
constexpr float kPlacesWide = 170, kGapOfPlaces = 8;  // points

DialogRoom room_of_dialog() {
  const ImVec2 display = ImGui::GetIO().DisplaySize;
  const float width = std::min(px(718), display.x - px(52));
  return {width, std::clamp(display.y - px(180), px(60), px(330)), width >= px(520) ? px(kPlacesWide) : 0};
}

}  // namespace

void FileDialog::draw_places() {
  ImGui::BeginChild("places", {px(kPlacesWide), room_of_dialog().height});
  muted("Places");
  std::error_code ignored;
  if (selectable_row("file.home", "Home", false)) enter(home());
  if (selectable_row("file.here", "Working folder", false)) enter(fs::current_path(ignored));
  if (selectable_row("file.root", "File system", false)) enter("/");
  if (!recents_.empty()) {
    spacer(6);
    muted("Recent");
    for (size_t i = 0; i < std::min<size_t>(recents_.size(), 8); ++i) {
      const fs::path recent = recents_[i];
      const std::string name = escaped(recent.filename().string());
      if (selectable_row("file.recent." + std::to_string(i), name, false)) {
        enter(recent.parent_path());
        path_text_ = recent.string();
      }
      tip(recents_[i]);
    }
  }
  ImGui::EndChild();
}

std::optional<fs::path> FileDialog::draw_entries() {
  std::optional<fs::path> result;
  fs::path next;
  const DialogRoom room = room_of_dialog();
  const float width = room.places > 0 ? room.width - room.places - px(kGapOfPlaces) : room.width;
  if (ImGui::BeginTable("entries", 3, ImGuiTableFlags_ScrollY | ImGuiTableFlags_RowBg,
                        {width, room.height})) {
    const ImGuiTableColumnFlags changed = width < px(400) ? ImGuiTableColumnFlags_Disabled : 0;
    ImGui::TableSetupColumn("Name", ImGuiTableColumnFlags_WidthStretch);
    ImGui::TableSetupColumn("Size", ImGuiTableColumnFlags_WidthFixed, px(80));
    ImGui::TableSetupColumn("Changed", ImGuiTableColumnFlags_WidthFixed | changed, px(130));
    ImGui::TableSetupScrollFreeze(0, 1);
    ImGui::TableHeadersRow();
    ImGuiListClipper clipper;
    clipper.Begin(static_cast<int>(listing_.entries.size()));
    while (clipper.Step()) {
      for (int i = clipper.DisplayStart; i < clipper.DisplayEnd; ++i) {
        const Entry& entry = listing_.entries[i];
        ImGui::TableNextRow();
        ImGui::TableNextColumn();
        ImGui::PushID(i);
        const std::string label = (entry.folder ? "\u25b8 " : "   ") + escaped(entry.name);
        if (ImGui::Selectable(label.c_str(), i == selected_,
                              ImGuiSelectableFlags_SpanAllColumns | ImGuiSelectableFlags_AllowDoubleClick |
                                  ImGuiSelectableFlags_DontClosePopups)) {
          selected_ = i;
          if (!entry.folder || !options_.save || options_.folder)
            path_text_ = (folder_ / entry.name).string();
          if (ImGui::IsMouseDoubleClicked(0)) next = folder_ / entry.name;
        }
        register_item("file.row." + entry.name, entry.name, entry.folder ? "folder" : "file");
        ImGui::PopID();
        ImGui::TableNextColumn();
        if (!entry.folder) text(bytes_text(static_cast<double>(entry.bytes)), palette().text_dim);
        if (ImGui::TableNextColumn()) text(file_time_text(entry.modified), palette().text_dim);
      }
    }
    ImGui::EndTable();
  }
  if (!next.empty()) result = accept(next);
  return result;
}

std::optional<fs::path> FileDialog::draw() {
  if (!open_) {
    poll();
    return std::nullopt;
  }
  const std::string title = options_.title + "###file-dialog";
  if (just_opened_) ImGui::OpenPopup(title.c_str());
  bool stay = true;
  if (!begin_dialog(title.c_str(), &stay, ImGuiWindowFlags_None)) {
    open_ = false;
    return std::nullopt;
  }
  poll();
  std::optional<fs::path> result;
  if (button("file.up", "\u2191", ButtonKind::kPlain, "Parent folder")) enter(folder_.parent_path());
  ImGui::SameLine();
  const DialogRoom room = room_of_dialog();
  if (input_text("file.path", "Path", &path_text_, room.width - px(38), just_opened_,
                 ImGuiInputTextFlags_EnterReturnsTrue)) {
    result = accept(path_text_);
  }
  just_opened_ = false;
  if (room.places > 0) {
    draw_places();
    ImGui::SameLine(0, px(kGapOfPlaces));
  }
  if (!result) result = draw_entries();
  if (message_.empty()) {
    muted(pending_.empty() ? " " : "Reading the folder \u2026");
  } else {
    ImGui::PushTextWrapPos(ImGui::GetCursorPosX() + room.width);
    text("\u26a0 " + message_, palette().warn);
    ImGui::PopTextWrapPos();
  }
  ImGui::SetCursorPosX(ImGui::GetContentRegionMax().x - px(200));
  if (button("file.cancel", "Cancel", ButtonKind::kPlain, {}, px(92)) || !stay ||
      ImGui::IsKeyPressed(ImGui::GetKeyIndex(ImGuiKey_Escape), false)) {
    open_ = false;
    ImGui::CloseCurrentPopup();
  }
  ImGui::SameLine();
  if (button("file.accept", options_.accept, ButtonKind::kPrimary, {}, px(92)) && !result)
    result = accept(path_text_, true);
  ImGui::EndPopup();
  return result;
}

}  // namespace gradloom
