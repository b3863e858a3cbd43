// The window: menus, panes, dialogs and keys around the panels. One draw() per frame.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "app/desktop/controller.h"
#include "app/desktop/ui.h"
#include "app/desktop/view_state.h"

namespace gradloom {

class Window {
 public:
  // `settings_file` empty: nothing is remembered (headless). `views_folder`: what was shown of what (view_state.h).
  Window(Controller& controller, Host& host, std::string settings_file, std::string views_folder = {});
  ~Window();
  void draw();
  bool busy() const;  // background work, a run, or a layout in progress
  // The user asked for it; false: a dialog asks what becomes of the run.
  bool may_close();
  void show_recorded() {
    ui_.show_recorded = true;
  }  // kernels and memory of the shown run, where the plan has others

 private:
  void take_input();
  void draw_menus();
  void draw_layout_menu();
  void draw_status();
  void draw_palettes();
  void draw_command_palette();
  void draw_about();
  void draw_operator();
  void answer_asks();
  void close_popup_by_escape();
  void handle_keys();
  void remember();
  void follow_view();
  void keep_view();
  void keep_view_now_and_then();  // a window that is killed loses little

  Controller& app_;
  Host& host_;
  std::string settings_file_, views_folder_;
  std::string view_;     // whose view is shown
  ViewState kept_view_;  // as it was written last
  std::chrono::steady_clock::time_point view_kept_at_{};
  bool view_restored_ = false;  // as it was left
  Settings saved_;
  Ui ui_;
  std::int64_t loop_shown_ = 0;  // run that the timeline was brought to the front for
  std::string title_;
};

}  // namespace gradloom
