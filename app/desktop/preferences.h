// Dialogs in which the window is made one's own: theme and size, keys, layouts.
#pragma once

#include <string>
#include <vector>

#include "app/desktop/settings.h"

namespace gradloom {

struct Ui;

struct Preferences {
  enum class Dialog : unsigned char { none, settings, keys, layouts };
  Dialog open = Dialog::none;
  bool just_opened = false;
  // Keys: what is searched for, whose key is awaited, and the one that came but means something else already.
  std::string query, awaiting, taken;
  bool adds = false;  // beside the keys that it has
  // Layouts: the name of a new one, which one gets another name, and what is wrong with it.
  std::string layout_name, renaming, renamed, problem;
  bool focus = false;

  void show(Dialog dialog);
};

void draw_preferences(Ui& ui);
void draw_keys_dialog(Ui& ui);  // what lies in the dialog
void draw_layouts_dialog(Ui& ui);

// Those of the window, then the user's; their keys are those of layout.1, layout.2, .. in this order.
std::vector<NamedLayout> all_layouts(const Settings& settings);
constexpr int kLayoutKeys = 9;

}  // namespace gradloom
