// Our own file dialog (std::filesystem): works over SSH and headless, and is scriptable. Folders are listed
// in the background, so that a slow network folder never blocks the window.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradloom {

std::string file_time_text(std::filesystem::file_time_type time);  // local, to the minute

class FileDialog {
 public:
  struct Options {
    std::string title = "Open";
    std::string accept = "Open";          // the button
    std::vector<std::string> extensions;  // {".onnx", ".db"}; empty = all files
    bool save = false;                    // a new name may be typed
    std::string name;                     // proposed file name when saving
    bool folder = false;                  // a folder is an answer too; with `save` the only one
  };

  void show(Options options, const std::filesystem::path& folder, std::vector<std::string> recents = {});
  bool is_open() const { return open_; }
  // Draws the dialog; the path once the user accepted one. Reports "file.path", "file.row.NAME",
  // "file.accept", "file.cancel".
  std::optional<std::filesystem::path> draw();

 private:
  struct Entry {
    std::string name;
    bool folder = false;
    uint64_t bytes = 0;
    std::filesystem::file_time_type modified{};
  };
  struct Listing {
    std::filesystem::path folder;
    std::vector<Entry> entries;
    std::string error;
  };
  static Listing list(const std::filesystem::path& folder, const Options& options);
  void enter(const std::filesystem::path& folder);
  void poll();
  void draw_places();
  std::optional<std::filesystem::path> draw_entries();
  // `chosen`: by the button, which takes a folder where that is an answer; else a folder is entered.
  std::optional<std::filesystem::path> accept(const std::filesystem::path& path, bool chosen = false);

  Options options_;
  std::vector<std::string> recents_;
  bool open_ = false, just_opened_ = false;
  std::filesystem::path folder_;
  std::string path_text_, message_;
  std::filesystem::path confirm_;  // an existing file that would be replaced
  Listing listing_;
  int selected_ = -1;
  // The last one is wanted; older ones are waited for and dropped.
  std::vector<std::future<Listing>> pending_;
};

}  // namespace gradloom
