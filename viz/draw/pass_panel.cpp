#include <fmt/format.h>

#include <algorithm>

#include "engine/base/text.h"
#include "passes/precision.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/views.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

constexpr size_t kMostSites = 60;

std::string count_text_of(const PassView& pass) {
  if (!pass.enabled) return "off";
  if (!pass.reported) return "\u2026";
  return fmt::format("{} {}", pass.matched, pass.matched == 1 ? "match" : "matches");
}

// The text being edited for one option; starts as the pipeline's value.
std::string& edit_of(PassPanelState& state, const std::string& key, const std::string& value) {
  const auto known =
      std::find_if(state.edits.begin(), state.edits.end(), [&](const auto& e) { return e.first == key; });
  if (known != state.edits.end()) return known->second;
  state.edits.emplace_back(key, value);
  return state.edits.back().second;
}

void apply(const Result<Pipeline>& changed, PassPanelState& state, Actions& actions) {
  if (changed.ok()) {
    actions.pipeline = *changed;
    state.error.clear();
  } else {
    state.error = changed.error().message;
  }
}

void option_row(const PassView& pass, const FieldRow& option, const Pipeline& pipeline, PassPanelState& state,
                Actions& actions) {
  const std::string key = fmt::format("{}.{}", pass.def->name, option.name);
  const float x = ImGui::GetCursorPosX();
  ImGui::AlignTextToFramePadding();
  text(option.name, palette().text_dim);
  if (!option.help.empty()) tip(option.help);
  ImGui::SameLine();
  ImGui::SetCursorPosX(x + px(140));
  if (option.type == "bool") {
    bool value = option.value == "true" || option.value == "1";
    if (toggle("option." + key, &value))
      apply(with_option(pipeline, *pass.def, option.name, value ? "true" : "false"), state, actions);
  } else if (!option.choices.empty()) {
    int index = static_cast<int>(std::find(option.choices.begin(), option.choices.end(), option.value) -
                                 option.choices.begin());
    if (combo("option." + key, &index, option.choices, 150))
      apply(with_option(pipeline, *pass.def, option.name, option.choices[index]), state, actions);
  } else {
    std::string& edit = edit_of(state, key, option.value);
    input_text("option." + key, option.value, &edit, px(110));
    const bool done = ImGui::IsItemDeactivatedAfterEdit();
    if (!ImGui::IsItemActive() && !done) edit = option.value;
    if (done && edit != option.value)
      apply(with_option(pipeline, *pass.def, option.name, edit), state, actions);
  }
  if (!option.unit.empty()) {
    ImGui::SameLine();
    muted(option.unit);
  }
}

// As much of a fingerprint as a line has room for; the rest is in the tooltip.
std::string short_fingerprint(const std::string& fingerprint) { return fingerprint.substr(0, 5) + "\u2026"; }

float fingerprint_width(const std::string& fingerprint) {
  const ImFont* font = theme().small;
  return font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, short_fingerprint(fingerprint).c_str()).x;
}

// What a recorded run tells of an instance.
std::string recorded_text(const PassView& pass, std::int64_t run, const std::string& fingerprint) {
  if (run == 0) return "";
  const auto known = pass.recorded.find(fingerprint);
  return fmt::format("\nRun {} {}", run,
                     known == pass.recorded.end() ? "had no such instance"
                     : known->second              ? "had it too"
                                                  : "had it switched off");
}

// The fingerprint at the end of the line: a click copies what --passes calls the instance.
void fingerprint_link(const PassView& pass, std::int64_t run, const std::string& fingerprint,
                      Actions& actions) {
  ImFont* font = theme().small;
  const std::string choice = fmt::format("{}{{only={}}}", pass.def->name, fingerprint);
  const ImVec2 at = ImGui::GetCursorScreenPos(),
               size{fingerprint_width(fingerprint), ImGui::GetTextLineHeight()};
  if (ImGui::InvisibleButton("fingerprint", size)) {
    ImGui::SetClipboardText(choice.c_str());
    actions.copied = choice;
  }
  const auto known = pass.recorded.find(fingerprint);
  const Palette& p = palette();
  const ImU32 ink = ImGui::IsItemHovered()                          ? p.accent
                    : known != pass.recorded.end() && known->second ? p.text_dim
                                                                    : p.text_faint;
  ImGui::GetWindowDrawList()->AddText(font, font->FontSize,
                                      {at.x, at.y + (size.y - font->FontSize) / 2 + px(2)}, ink,
                                      short_fingerprint(fingerprint).c_str());
  register_item(fmt::format("fingerprint.{}.{}", pass.def->name, fingerprint), fingerprint,
                known == pass.recorded.end() ? ""
                : known->second              ? "matched"
                                             : "off");
  focus_stop(fmt::format("fingerprint.{}.{}", pass.def->name, fingerprint));
  tip(fmt::format("Copy {}: this instance, whatever other passes do to its name{}", choice,
                  recorded_text(pass, run, fingerprint)));
}

void match_row(const PassView& pass, std::int64_t run, const RewriteRecord& match, const Pipeline& pipeline,
               Actions& actions) {
  bool on = true;
  if (checkbox(fmt::format("site.{}.{}", pass.def->name, match.site), "", &on))
    actions.pipeline = with_site(pipeline, *pass.def, match.site, false);
  tip("Switch this instance off");
  ImGui::SameLine();
  const float end = match.fingerprint.empty() ? 0 : fingerprint_width(match.fingerprint) + px(8),
              width = std::max(px(60), ImGui::GetContentRegionAvail().x - end);
  const std::string nodes = fmt::format("  {} \u2192 {}", match.removed.size(), match.added.size());
  const std::string label = fit_name(theme().ui, theme().ui->FontSize, escaped(match.site),
                                     width - ImGui::CalcTextSize(nodes.c_str()).x) +
                            nodes;
  const std::string target = match.added.empty() ? std::string() : match.added.front();
  if (selectable_row(fmt::format("match.{}.{}", pass.def->name, match.site), label, false, width) &&
      !target.empty())
    actions.go_to_node = target;
  if (ImGui::IsItemHovered() && !target.empty()) actions.hover_node = target;
  const std::string saved = match.saves ? saved_text(*match.saves) : "";
  tip(escaped(match.site) + (match.why.empty() ? "" : "\n" + match.why) +
      (saved.empty() ? "" : "\n" + saved));
  if (match.fingerprint.empty()) return;
  ImGui::SameLine(0, px(8));
  fingerprint_link(pass, run, match.fingerprint, actions);
}

void sites(const PassView& pass, std::int64_t run, const Pipeline& pipeline, Actions& actions) {
  if (!pass.matches.empty()) {
    heading("Matched");
    for (size_t i = 0; i < pass.matches.size() && i < kMostSites; ++i) {
      ImGui::PushID(static_cast<int>(i));
      match_row(pass, run, pass.matches[i], pipeline, actions);
      ImGui::PopID();
    }
    if (pass.matches.size() > kMostSites) muted(fmt::format("and {} more", pass.matches.size() - kMostSites));
  }
  if (!pass.excluded_sites.empty()) {
    heading("Switched off by you");
    for (const std::string& site : pass.excluded_sites) {
      bool on = false;
      if (checkbox(fmt::format("excluded.{}.{}", pass.def->name, site), escaped(site), &on))
        actions.pipeline = with_site(pipeline, *pass.def, site, true);
    }
  }
  if (pass.why_nots.empty()) return;
  heading("Looked at, not changed");
  for (size_t w = 0; w < pass.why_nots.size(); ++w) {
    const WhyNot& why = pass.why_nots[w];
    ImGui::PushID(static_cast<int>(w));
    text(fmt::format("{}\u00d7", why.sites.size()), palette().warn);
    ImGui::SameLine();
    wrapped(why.reason, palette().text_dim);
    register_item(fmt::format("why.{}.{}", pass.def->name, w), why.reason, why.reason);
    for (size_t i = 0; i < why.sites.size() && i < 3; ++i) {
      ImGui::SetCursorPosX(ImGui::GetCursorPosX() + px(24));
      if (selectable_row(fmt::format("whynot.{}.{}.{}", pass.def->name, w, i), escaped(why.sites[i]), false))
        actions.go_to_node = why.sites[i];
      if (ImGui::IsItemHovered()) actions.hover_node = why.sites[i];
    }
    if (why.sites.size() > 3) {
      ImGui::SetCursorPosX(ImGui::GetCursorPosX() + px(24));
      muted(fmt::format("and {} more", why.sites.size() - 3));
    }
    ImGui::PopID();
  }
}

// The pass's own example, as its tests run it: what it looks for and what it leaves.
void preview(const PassView& pass, PassPanelState& state) {
  const std::string name = pass.def->name;
  if (pass.def->example == nullptr) return;
  const auto [known, fresh] = state.previews.try_emplace(name);
  if (fresh) {
    const auto example = pass.def->example();
    if (example.ok())
      known->second = PassPreview{make_small_graph(example->before), make_small_graph(example->after)};
  }
  if (!known->second) return;
  heading("Example");
  muted("before");
  draw_small_graph("example." + name + ".before", known->second->before);
  muted("after");
  draw_small_graph("example." + name + ".after", known->second->after);
}

void details(const PassView& pass, std::int64_t run, const Pipeline& pipeline, PassPanelState& state,
             Actions& actions) {
  ImGui::Indent(px(42));
  wrapped(pass.def->doc, palette().text_dim);
  if (pass.def->by_precision) muted("Switched by the precision of the run.");
  if (!pass.def->by_default)
    muted(changes_precision(*pass.def) ? "Off unless you switch it on: it trains in fewer bits on purpose."
                                       : "Off unless you switch it on: whether it fits, the data says.");
  muted(changes_precision(*pass.def) ? "Keeps loss and gradients within the rounding of its type."
        : !pass.def->by_default      ? "Keeps loss and gradients where that holds; verify tells."
        : pass.def->bit_exact        ? "Keeps loss and gradients bit for bit."
                                     : "Keeps loss and gradients within rounding.");
  if (pass.reported) {
    const std::string change =
        pass.node_change == 0
            ? "no change"
            : fmt::format("{}{} nodes", pass.node_change > 0 ? "+" : "\u2212", std::abs(pass.node_change));
    key_value("Graph", change, 80);
    key_value("Took", fmt::format("{:.1f} ms", pass.ms), 80);
  }
  if (pass.enabled && !pass.options.empty()) {
    heading("Options");
    for (const FieldRow& option : pass.options) option_row(pass, option, pipeline, state, actions);
    if (!state.error.empty()) wrapped("\u26a0 " + state.error, palette().warn);
  }
  sites(pass, run, pipeline, actions);
  preview(pass, state);
  spacer(6);
  ImGui::Unindent(px(42));
}

struct ProofLook {
  std::string sign, words, tip;
  ImU32 color = 0;
};

ProofLook look_of(const PassProof& proof) {
  const Palette& p = palette();
  const bool equal = proof.state == PassProof::State::equal;
  ProofLook look{
      equal ? "\u2713" : "\u2717", equal ? "proved equal" : "strays",
      equal ? "Proved equal to the job without passes in f64" : "Strays from the job without passes in f64",
      proof.other ? p.text_faint
      : equal     ? p.good
                  : p.bad};
  if (proof.other) look.tip += ", of other settings: a click verifies again";
  look.tip += "\n" + proof.detail;
  return look;
}

// A pill that ends at `right`, behind `left`; of what strays with its words where there is room for them. Its width; 0: no room at all.
float draw_proof(const PassView& pass, const PassProof& proof, float left, float right, float top,
                 float height, bool* hovered) {
  const ProofLook look = look_of(proof);
  ImFont* font = theme().small;
  const auto width_of = [&](const std::string& s) {
    return font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, s.c_str()).x + px(10);
  };
  const bool equal = proof.state == PassProof::State::equal;
  std::string said = equal ? look.sign : look.sign + " " + look.words;  // what strays is said aloud
  if (right - width_of(said) < left) said = look.sign;
  const float width = width_of(said), tall = font->FontSize + px(4);
  if (right - width < left) return 0;
  const ImVec2 min{std::round(right - width), std::round(top + (height - tall) / 2)},
      max{right, min.y + tall};
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(min, max, mix(palette().panel, look.color, 0.18f), tall / 2);
  list->AddRect(min, max, mix(palette().panel, look.color, 0.55f), tall / 2);
  list->AddText(font, font->FontSize, {min.x + px(5), min.y + px(2) - 0.5f}, look.color, said.c_str());
  register_rect(std::string("proof.") + pass.def->name, min, max, look.words,
                std::string(proof.other ? "other, " : "") + (equal ? "equal" : "strays " + proof.site));
  *hovered = ImGui::IsItemHovered() && ImGui::IsMouseHoveringRect(min, max);
  return width;
}

void pass_row(const PassView& pass, const PassModel& model, const Pipeline& pipeline, bool planning,
              PassPanelState& state, Actions& actions) {
  const std::string name = pass.def->name;
  bool on = pass.enabled;
  ImGui::BeginDisabled(pass.def->by_precision);
  if (toggle("pass." + name, &on)) actions.pipeline = with_pass(pipeline, *pass.def, on, model.rules);
  ImGui::EndDisabled();
  ImGui::SameLine(0, px(10));
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x, height = ImGui::GetFrameHeight();
  ImGui::PushID(name.c_str());
  const bool clicked = ImGui::InvisibleButton("row", {std::max(width, px(20)), height});
  const bool hovered = ImGui::IsItemHovered();
  register_item("pass-row." + name, name, count_text_of(pass));
  focus_stop("pass-row." + name);
  if (state.scroll_to == name) {
    ImGui::SetScrollHereY(0.1f);
    state.scroll_to.clear();
  }
  ImGui::PopID();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const Palette& p = palette();
  const float y = std::round(at.y + (height - ImGui::GetFontSize()) / 2);
  if (hovered)
    list->AddRectFilled({at.x - px(4), at.y}, {at.x + width, at.y + height}, with_alpha(p.hover, 0.7f),
                        px(5));
  // In a narrow pane the count loses its word before the name loses letters.
  ImFont* small = theme().small;
  std::string count = count_text_of(pass);
  const auto small_width = [&](const std::string& s) {
    return small->CalcTextSizeA(small->FontSize, FLT_MAX, 0, s.c_str()).x;
  };
  const float for_both = width - px(state.proofs.count(name) > 0 ? 64 : 36);
  if (ImGui::CalcTextSize(name.c_str()).x + small_width(count) > for_both)
    count = count.substr(0, count.find(' '));
  const std::string shown = fit_text(theme().ui, theme().ui->FontSize, name, for_both - small_width(count));
  // What changes this model is bright, what is on and finds nothing in it steps back.
  const bool idle = pass.reported && pass.matched == 0;
  list->AddText({at.x, y}, !pass.enabled ? p.text_faint : idle ? p.text_dim : p.text, shown.c_str());
  const float small_y = std::round(at.y + (height - small->FontSize) / 2);
  float right = at.x + width - px(20);
  const char* arrow = state.open == name ? "\u25be" : "\u25b8";
  list->AddText({right + px(4), y}, p.text_faint, arrow);
  const ImU32 ink = pass.enabled && !planning && pass.matched > 0 ? p.accent : p.text_faint;
  right -= small_width(count) + px(4);
  list->AddText(small, small->FontSize, {right, small_y}, ink, count.c_str());
  const float name_end = at.x + ImGui::CalcTextSize(shown.c_str()).x + px(8);
  const auto proof = pass.enabled ? state.proofs.find(name) : state.proofs.end();
  bool over_proof = false;
  if (proof != state.proofs.end())
    if (const float taken =
            draw_proof(pass, proof->second, name_end, right - px(8), at.y, height, &over_proof);
        taken > 0)
      right -= taken + px(8);
  tip(over_proof ? look_of(proof->second).tip : std::string(pass.def->summary));
  if (clicked && over_proof && proof->second.other)
    actions.verify = true;
  else if (clicked)
    state.open = state.open == name ? std::string() : name;
  if (pass.enabled && pass.rejected > 0) {
    const std::string rejected = fmt::format("{} skipped", pass.rejected);
    right -= small_width(rejected) + px(12);
    if (right > name_end) {
      list->AddText(small, small->FontSize, {right, small_y}, planning ? p.text_faint : p.warn,
                    rejected.c_str());
    }
  }
  if (state.open == name) details(pass, model.run, pipeline, state, actions);
}

// The user's rules: each a pass, before the others.
void rule_rows(const PassModel& model, const Pipeline& pipeline, const std::string& file, bool planning,
               PassPanelState& state, Actions& actions) {
  if (model.rules.empty()) return;
  heading("Your rules");
  for (const PassView& pass : model.passes)
    if (pass.rule) pass_row(pass, model, pipeline, planning, state, actions);
  if (!file.empty()) {
    muted(fit_name(theme().small, theme().small->FontSize, file, ImGui::GetContentRegionAvail().x));
    tip(file);
    if (button("rules.again", "Read again", ButtonKind::kGhost, "The file has changed"))
      actions.rules = Actions::RulesAsk::read_again;
    ImGui::SameLine();
  }
  if (button("rules.remove", "Remove", ButtonKind::kGhost, "Without rules"))
    actions.rules = Actions::RulesAsk::remove;
}

}  // namespace

void draw_pass_panel(const PassModel& model, const Pipeline& pipeline, const std::string& rules_file,
                     bool planning, PassPanelState& state, Actions& actions) {
  if (button("passes.default", "Default", ButtonKind::kPlain, "The default passes"))
    actions.pipeline = default_pipeline(model.rules);
  ImGui::SameLine();
  if (button("passes.none", "None", ButtonKind::kPlain, "Only what is needed for correctness")) {
    auto none = parse_pipeline("none");
    if (none.ok()) actions.pipeline = *none;
  }
  ImGui::SameLine();
  if (button("passes.rules", "Rules\u2026", ButtonKind::kGhost,
             "Rewrites of your own: a file of rules, each of which becomes a pass"))
    actions.rules = Actions::RulesAsk::choose;
  ImGui::SameLine(0, px(12));
  ImGui::AlignTextToFramePadding();
  text(planning
           ? fit_text(theme().ui, theme().ui->FontSize, "Planning \u2026", ImGui::GetContentRegionAvail().x)
           : "",
       palette().text_dim);
  register_item("passes.planning", "planning", planning ? "yes" : "no");
  spacer(2);
  rule_rows(model, pipeline, rules_file, planning, state, actions);
  const auto phase = [&](PassPhase wanted, const char* title) {
    bool first = true;
    for (const PassView& pass : model.passes) {
      if (pass.rule || pass.def->phase != wanted) continue;
      if (first) heading(title);
      first = false;
      pass_row(pass, model, pipeline, planning, state, actions);
    }
  };
  phase(PassPhase::pre_gradient, "Before the gradient");
  phase(PassPhase::both, "Before and after");
  phase(PassPhase::post_gradient, "After the gradient");
}

}  // namespace gradloom
