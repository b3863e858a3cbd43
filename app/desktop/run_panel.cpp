// The run panel: what is lowered, how, on which data, for how long; start, progress, stop; the command line
// that does it.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "app/desktop/run_events.h"
#include "app/desktop/suggest.h"
#include "app/desktop/ui.h"
#include "app/train_report.h"
#include "engine/base/fields.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "engine/train/optimizers.h"
#include "passes/precision.h"
#include "sessions/recipe_settings.h"
#include "viz/draw/keys.h"

namespace gradloom {
namespace {

// The settings that stand first in the form, each with a field of its own making or place.
constexpr std::string_view kOwnFields[] = {"loss", "optimizer", "steps", "data", "device"};
// Those that stand together below; what is left comes between.
constexpr std::string_view kDataFields[] = {"epochs", "shuffle", "seed"},
                           kHeldOutFields[] = {"eval_data", "eval_every", "eval_batches", "early_stop"};

// A setting as its row declares it: a choice, or a text that is read as its kind. What may not be is marked,
// not refused, so that it can be mended.
void setting_field(Ui& ui, const FieldProblems& problems, const RecipeSetting& setting) {
  const Recipe& recipe = ui.state().recipe;
  const std::string id = std::string("run.") + setting.key, label = setting.label;
  std::string shown = setting_text(recipe, setting);
  bool changed = false;
  field_label(label, help_of(setting));
  if (setting.kind == SettingKind::switched) {
    bool on = shown == "on";
    changed = toggle(id, &on);
    shown = on ? "on" : "off";
  } else if (*setting.choices != 0) {
    const std::vector<std::string> choices = split_top_level(setting.choices, ' ');
    int index = static_cast<int>(std::find(choices.begin(), choices.end(), shown) - choices.begin());
    changed = combo(id, &index, choices, -1);
    if (changed) shown = choices[static_cast<std::size_t>(index)];
  } else if (*setting.usual != 0) {
    changed = committed_text(ui, id, "", &shown,
                             ImGui::GetContentRegionAvail().x - ImGui::GetFrameHeight() - px(4));
    ImGui::SameLine(0, px(4));
    const std::vector<std::string> usual = split_top_level(setting.usual, ' ');
    const int chosen = suggestions(id + ".choices", usual);
    if (chosen >= 0) shown = usual[static_cast<std::size_t>(chosen)];
    changed = changed || chosen >= 0;
  } else {
    changed = committed_text(ui, id, "", &shown);
  }
  if (changed) commit_setting(ui, setting, shown);
  field_problem(problems, setting.key);
}

void choice_field(Ui& ui, const std::string& key, const std::string& label, const std::string& help,
                  const std::vector<std::string>& choices, const std::string& value,
                  const std::function<void(Recipe&, const std::string&)>& set) {
  field_label(label, help);
  int index = static_cast<int>(std::find(choices.begin(), choices.end(), value) - choices.begin());
  if (combo("run." + key, &index, choices, -1))
    ui.app.edit(label + " " + choices[static_cast<std::size_t>(index)],
                [&](Recipe& r) { set(r, choices[static_cast<std::size_t>(index)]); });
}

void loss_field(Ui& ui, const FieldProblems& problems) {
  field_label("Loss", help_of(*find_setting("loss")));
  std::string loss = ui.state().recipe.loss;
  const auto set = [&](const std::string& text) {
    ui.app.edit("loss " + text, [&](Recipe& r) { r.loss = text; });
  };
  if (committed_text(ui, "run.loss", "ce:LOGITS,LABELS", &loss,
                     ImGui::GetContentRegionAvail().x - ImGui::GetFrameHeight() - px(4)))
    set(loss);
  ImGui::SameLine(0, px(4));
  const auto& choices = ui.state().model->losses;
  const int chosen = suggestions("run.loss.choices", choices);
  if (chosen >= 0) set(choices[static_cast<std::size_t>(chosen)]);
  field_problem(problems, "loss");
}

// The optimizer's name as a choice and its options as text.
void optimizer_fields(Ui& ui, const FieldProblems& problems) {
  const std::string current = ui.state().recipe.optimizer;
  const std::size_t brace = current.find('{');
  const std::string name = current.substr(0, brace);
  choice_field(ui, "optimizer", "Optimizer", "Options and defaults are PyTorch's", optimizer_names(), name,
               [](Recipe& r, const std::string& v) { r.optimizer = default_optimizer(v); });
  ImGui::TableNextColumn();
  std::string options =
      brace == std::string::npos ? "" : current.substr(brace + 1, current.rfind('}') - brace - 1);
  std::string help = "Known options:";
  if (auto spec = parse_optimizer(name))
    for (const FieldRow& row : list_fields([&](FieldVisitor& v) { spec->fields(v); }))
      help += "\n" + row.name + " = " + row.value + (row.help.empty() ? "" : "   " + row.help);
  field_label("Options", help);
  if (committed_text(ui, "run.optimizer.options", "lr=0.001", &options)) {
    const std::string whole = options.empty() ? name : name + "{" + options + "}";
    if (const auto parsed = parse_optimizer(whole); !parsed)
      ui.app.notice(NoticeKind::error, parsed.error().message);
    else
      ui.app.edit("optimizer " + whole, [&](Recipe& r) { r.optimizer = whole; });
  }
  field_problem(problems, "optimizer");
}

// The devices that there are; those that cannot be used say why.
void device_field(Ui& ui, const FieldProblems& problems) {
  ui.app.find_devices();
  const std::string current = ui.state().recipe.device;
  std::vector<std::string> ids;
  std::vector<ChoiceNote> notes;
  for (const DeviceInfo& d : ui.state().devices) {
    ids.push_back(d.id);
    notes.push_back(d.available
                        ? ChoiceNote{escaped(d.name) + (d.detail.empty() ? "" : "\n" + escaped(d.detail))}
                        : ChoiceNote{escaped(d.why_not), true});
  }
  if (std::find(ids.begin(), ids.end(), current) == ids.end()) ids.push_back(current);
  field_label("Device", "Where the steps run; plan and memory are of its kernels");
  int index = static_cast<int>(std::find(ids.begin(), ids.end(), current) - ids.begin());
  if (combo("run.device", &index, ids, -1, notes)) {
    const std::string& id = ids[static_cast<std::size_t>(index)];
    ui.app.edit("device " + id, [&](Recipe& r) { r.device = id; });
  }
  field_problem(problems, "device");
}

void dim_fields(Ui& ui, const FieldProblems& problems) {
  const AppState& s = ui.state();
  for (const std::string& symbol : s.model->symbols) {
    ImGui::TableNextColumn();
    field_label(symbol, "Size of the model's symbolic dimension");
    const auto it = s.recipe.dims.find(symbol);
    std::string shown = std::to_string(it == s.recipe.dims.end() ? 0 : it->second);
    if (committed_text(ui, "run.dim." + symbol, "", &shown)) {
      if (const std::optional<std::int64_t> size = parse_number<std::int64_t>(shown))
        ui.app.edit(symbol + " " + shown, [&](Recipe& r) { r.dims[symbol] = *size; });
      else
        ui.app.notice(NoticeKind::error, symbol + " expects a number, got '" + escaped(shown) + "'");
    }
    field_problem(problems, "dim." + symbol);
  }
}

using Keys = std::span<const std::string_view>;

bool is_in(Keys keys, std::string_view key) { return std::find(keys.begin(), keys.end(), key) != keys.end(); }

// The settings with a label that stand in no other part of the form.
bool is_other(const RecipeSetting& setting) {
  const std::string_view key = setting.key;
  return *setting.label != 0 && !is_in(kOwnFields, key) && !is_in(kDataFields, key) &&
         !is_in(kHeldOutFields, key);
}

void other_fields(Ui& ui, const FieldProblems& problems) {
  for (const RecipeSetting& setting : recipe_settings()) {
    if (!is_other(setting) ||
        (*setting.precision != 0 && precision_type_name(ui.state().recipe.precision) != setting.precision))
      continue;
    ImGui::TableNextColumn();
    setting_field(ui, problems, setting);
  }
}

void listed_fields(Ui& ui, const FieldProblems& problems, Keys keys) {
  for (const std::string_view key : keys) {
    const RecipeSetting& setting = *find_setting(std::string(key));
    ImGui::TableNextColumn();
    if (key == "eval_data")
      data_fields(ui, problems, setting);
    else
      setting_field(ui, problems, setting);
  }
}

void first_fields(Ui& ui, const FieldProblems& problems) {
  ImGui::TableNextColumn();
  loss_field(ui, problems);
  ImGui::TableNextColumn();
  optimizer_fields(ui, problems);
  ImGui::TableNextColumn();
  setting_field(ui, problems, *find_setting("steps"));
  ImGui::TableNextColumn();
  data_fields(ui, problems, *find_setting("data"));
  ImGui::TableNextColumn();
  device_field(ui, problems);
  dim_fields(ui, problems);
}

// A part of the form; without a title the first.
void draw_part(const char* title, int columns, const std::function<void()>& cells) {
  if (*title != 0) heading(title);
  if (!ImGui::BeginTable(*title != 0 ? title : "fields", columns, ImGuiTableFlags_SizingStretchSame)) return;
  cells();
  ImGui::EndTable();
}

// Whether something is wrong in a field of the parts that may be hidden.
bool wrong_below(const FieldProblems& problems) {
  return std::any_of(problems.begin(), problems.end(), [](const auto& problem) {
    const RecipeSetting* const setting = find_setting(problem.first);
    return problem.first == "checkpoint" || (setting != nullptr && !is_in(kOwnFields, setting->key));
  });
}

void draw_fields(Ui& ui, const FieldProblems& problems) {
  const float room = ImGui::GetContentRegionAvail().x;
  const int columns = room > px(560) ? 4 : room > px(400) ? 3 : room > px(230) ? 2 : 1;
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {px(8), px(3)});
  ImGui::PushStyleVar(ImGuiStyleVar_CellPadding, {px(5), px(3)});
  draw_part("", columns, [&] { first_fields(ui, problems); });
  if (ui.more_settings || wrong_below(problems)) {
    draw_part("Step", columns, [&] { other_fields(ui, problems); });
    draw_part("Order of the data", columns, [&] { listed_fields(ui, problems, kDataFields); });
    draw_part("Evaluation", columns, [&] { listed_fields(ui, problems, kHeldOutFields); });
    draw_part("Checkpoints", columns, [&] {
      ImGui::TableNextColumn();
      checkpoint_fields(ui);
    });
    field_problem(problems, "checkpoint");  // a sentence, for which a column is too narrow
  }
  ImGui::PopStyleVar(2);
}

void draw_buttons(Ui& ui, const FieldProblems& problems) {
  const RunProgress& r = ui.state().progress;
  const std::int64_t steps = ui.state().recipe.steps;
  ImGui::BeginDisabled(r.running || !problems.empty());
  const char* const doing = ui.state().checkpoints.from ? "Go on to step {}" : "Run {} steps";
  if (button("run.start", "\u25b6  " + fmt::format(fmt::runtime(doing), steps), ButtonKind::kPrimary,
             key_label("run.start")))
    ui.do_command("run.start");
  ImGui::EndDisabled();
  const char* const ab = "A/B: passes off vs now";
  flow(button_width(ab), px(6));
  const std::size_t of_checkpoints =
      problems.count("checkpoint");  // a comparison neither reads nor writes any
  ImGui::BeginDisabled(r.running || problems.size() > of_checkpoints);
  if (button("run.ab", ab, ButtonKind::kPlain,
             "Both in one process, steps interleaved (" + key_label("run.compare") + ")")) {
    ui.app.start_compare(ui.app.compare_passes_command());
    ui.panes.show("Compare");
  }
  ImGui::EndDisabled();
  flow(px(58), px(6));
  ImGui::BeginDisabled(!r.running);
  if (button("run.stop", r.stopping ? "Kill" : "Stop", r.running ? ButtonKind::kDanger : ButtonKind::kPlain,
             r.stopping ? std::string("End the process at once")
                        : "Finish the step and keep what is recorded (" + key_label("run.stop") + ")",
             px(58)))
    ui.app.stop_run();
  ImGui::EndDisabled();
  const char* const more = ui.more_settings ? "Fewer settings" : "More settings";
  flow(button_width(more), px(6));
  if (button("run.more", more, ButtonKind::kGhost)) ui.more_settings = !ui.more_settings;
}

std::string progress_text(const RunProgress& r) {
  const double seconds = static_cast<double>(monotonic_ns() - r.started_ns) * 1e-9;
  if (r.kind == RunKind::compare) {
    const std::string ratio = ratio_so_far(r);
    const double most = r.most_seconds - r.seconds;
    return fmt::format("comparing, {:.0f} s{}{}", seconds, ratio.empty() ? "" : ", " + ratio,
                       most > 0 ? ", at most " + remaining_text(most * 1e9) + " left" : "");
  }
  if (r.kind != RunKind::train)
    return fmt::format("{}, {:.0f} s{}{}", words_of(r.kind).doing, seconds, r.what.empty() ? "" : ": ",
                       r.what);
  if (r.step == 0) return "starting\u2026";
  std::string said = fmt::format("step {} of {}, loss {:.5g}, {} per step", r.step, r.planned_steps,
                                 r.losses.back(), duration_text(r.step_ns.back()));
  if (const double left = seconds_left(r, monotonic_ns()); left >= 0)
    said += ", " + remaining_text(left * 1e9) + " left";
  return said;
}

// What runs or ran, or what keeps the recipe from running. Of one height whatever it says: the fields below
// must not move when a run starts or ends.
void draw_state(Ui& ui, const FieldProblems& problems) {
  const RunProgress& r = ui.state().progress;
  ImFont* small = theme().small;
  const ImVec2 at = ImGui::GetCursorPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const auto line = [&](const std::string& said, ImU32 color) {
    text(fit_text(small, small->FontSize, said, width), color, small);
    tip(said);
  };
  const auto plan = problems.find("plan");
  const float bar = px(3);
  if (r.running) {
    const std::string said = progress_text(r);
    line(said, palette().text_dim);
    register_item("run.progress", "progress", std::to_string(std::lround(r.fraction * 100)));
    register_item("run.said", "progress", said);
    const ImVec2 min = ImGui::GetCursorScreenPos();
    const float done = width * std::clamp(static_cast<float>(r.fraction), 0.f, 1.f);
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRectFilled({min.x, min.y - bar}, {min.x + width, min.y}, palette().raised, bar / 2);
    list->AddRectFilled({min.x, min.y - bar}, {min.x + done, min.y}, palette().accent, bar / 2);
    ui.host.animate();
  } else if (plan != problems.end()) {
    line("\u26a0 " + plan->second, palette().bad);
    register_item("problem.plan", "plan", plan->second);
  } else if (!r.error.empty()) {
    line(fmt::format("\u2717 {} (exit code {})", r.error, r.exit_code), palette().bad);
    register_item("run.outcome", r.error, r.outcome);
  } else if (!r.outcome.empty()) {
    const bool done = r.outcome == "done", stopped = r.outcome == "stopped";
    std::string said = r.kind == RunKind::train && r.run_id > 0
                           ? fmt::format("Run {} {}", r.run_id, r.outcome)
                           : words_of(r.kind).title + (" " + r.outcome);
    if (r.kind == RunKind::train && !r.losses.empty())
      said += fmt::format(": {} steps, loss {:.5g} \u2192 {:.5g}", r.steps.size(), r.losses.front(),
                          r.losses.back());
    line((done      ? "\u2713 "
          : stopped ? "\u25a0 "
                    : "\u2717 ") +
             said,
         done      ? palette().good
         : stopped ? palette().text_dim
                   : palette().bad);
    register_item("run.outcome", said, r.outcome);
  } else {
    const RunSummary* const shown = ui.state().run ? &ui.state().run->record.summary : nullptr;
    const std::string said = shown == nullptr
                                 ? "Nothing has run yet"
                                 : fmt::format("run {} of this session: {}", shown->id, steps_text(*shown));
    line(said, palette().text_faint);
    register_item("run.shown", "shown", said);
  }
  ImGui::SetCursorPos({at.x, at.y + small->FontSize + px(5) + bar});
}

}  // namespace

void commit_setting(Ui& ui, const RecipeSetting& setting, const std::string& text) {
  const std::string label = setting.label;
  Recipe next = ui.state().recipe;
  if (const Status read = read_setting(next, setting, text, label); !read)
    ui.app.notice(NoticeKind::error, read.error().message);
  else
    ui.app.edit(label + " " + text, [&](Recipe& r) { r = next; });
}

void draw_run_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model()) return empty_state("Nothing to run", "Open a model first.");
  const FieldProblems problems = ui.app.problems();
  draw_buttons(ui, problems);
  draw_state(ui, problems);
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {px(8), px(3)});
  draw_fields(ui, problems);
  ImGui::Indent(px(5));
  ImGui::AlignTextToFramePadding();
  text("Record into", palette().text_dim, theme().small);
  ImGui::SameLine(0, px(8));
  std::string session = s.remote ? s.remote->address : s.session_path;
  ImGui::BeginDisabled(s.remote.has_value());
  if (committed_text(ui, "run.session", "session file", &session,
                     ImGui::GetContentRegionAvail().x - ImGui::GetFrameHeight() - px(10)))
    ui.app.set_session(session);
  ImGui::SameLine(0, px(4));
  if (button("run.session.browse", "\u2026", ButtonKind::kPlain, "Choose a file", ImGui::GetFrameHeight()))
    show_dialog(ui, DialogPurpose::session);
  ImGui::EndDisabled();
  field_problem(problems, "session");
  ImGui::Dummy({0, px(1)});
  if (code_line("run.command", ui.app.as_typed(ui.app.run_command())))
    ui.app.notice(NoticeKind::info, "The command line was copied");
  ImGui::Unindent(px(5));
  ImGui::PopStyleVar();
}

}  // namespace gradloom
