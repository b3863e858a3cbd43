// What the what-if tab asks: settings, what would be faster, another processor; typed, or by one gesture on what is selected.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <map>
#include <set>

#include "app/desktop/ui.h"
#include "app/recipe_flags.h"
#include "engine/base/glob.h"
#include "engine/base/parse_number.h"
#include "engine/base/text.h"
#include "sessions/recipe_settings.h"
#include "viz/draw/graph_canvas.h"

namespace gradloom {
namespace {

constexpr std::size_t kMostFaster = 64;  // that one question names

const SpeedUpKind& speed_kind(const WhatIfForm::Faster& faster) {
  return speed_up_kinds()[static_cast<std::size_t>(faster.of)];
}

std::vector<std::string> precisions() { return split_top_level(find_setting("precision")->usual, ' '); }

bool several_ranks(const AppState& s, const WhatIfForm& form) {
  const auto asked = parse_number<std::int64_t>(form.ranks);
  return asked.value_or(s.recipe.ranks) > 1 || s.recipe.ranks > 1;
}

// The settings that would be different, as --b takes them.
std::string settings_of(const AppState& s, const WhatIfForm& form) {
  std::string settings;
  const auto add = [&](const std::string& setting) { settings += (settings.empty() ? "" : ";") + setting; };
  if (form.precision > 0) add("precision=" + precisions()[static_cast<std::size_t>(form.precision - 1)]);
  for (const auto& [symbol, size] : form.dims)
    if (!size.empty() && s.model &&
        std::find(s.model->symbols.begin(), s.model->symbols.end(), symbol) != s.model->symbols.end())
      add("dim=" + symbol + "=" + size);
  if (!form.ranks.empty()) add("ranks=" + form.ranks);
  if (!form.changes.empty()) add(form.changes);
  return settings;
}

std::string flags_of(const AppState& s, const WhatIfForm& form) {
  std::string flags;
  const auto add = [&](const std::string& flag, const std::string& value) {
    flags += (flags.empty() ? "" : " ") + flag + " " + shell_quoted(value);
  };
  if (const std::string settings = settings_of(s, form); !settings.empty()) add("--b", settings);
  for (const WhatIfForm::Faster& f : form.faster) {
    const SpeedUpKind& kind = speed_kind(f);
    add("--speed", std::string(kind.name) + (kind.pattern ? ":" + f.pattern : "") + "=" + f.factor);
  }
  const std::string known = processor_id(form.on), on = form.on > 0 && known.empty() ? form.on_file : known;
  if (!on.empty()) add("--on", on);
  if (flags.empty()) return flags;
  if (several_ranks(s, form))
    for (const std::string& word : cluster_words(form.cluster)) flags += " " + shell_quoted(word);
  if (!form.keep) flags += " --forget";
  return flags;
}

void draw_what_if_settings(Ui& ui) {
  constexpr std::size_t kMostDims = 3;
  const AppState& s = ui.state();
  WhatIfForm& form = ui.what_if;
  labelled("Precision", "", 110, true, [&](float) {
    std::vector<std::string> names = {"The same"};
    for (const std::string& precision : precisions()) names.push_back(precision);
    combo("whatif.precision", &form.precision, names, 110);
  });
  if (s.model)
    for (std::size_t i = 0; i < std::min(kMostDims, s.model->symbols.size()); ++i) {
      const std::string& symbol = s.model->symbols[i];
      const auto size = s.recipe.dims.find(symbol);
      labelled(symbol.c_str(), "a dim of the model", 60, false, [&](float width) {
        committed_text(ui, "whatif.dim." + symbol,
                       size == s.recipe.dims.end() ? "" : std::to_string(size->second), &form.dims[symbol],
                       width);
      });
    }
  labelled("Ranks", "", 52, false, [&](float width) {
    committed_text(ui, "whatif.ranks", std::to_string(s.recipe.ranks), &form.ranks, width);
  });
  labelled("Other settings", "as compare takes them: passes=default,-fuse-gelu;accumulate=2", 150, false,
           [&](float) { committed_text(ui, "whatif.changes", "passes=none;threads=1", &form.changes); });
  if (!several_ranks(s, form)) return;
  cluster_fields(ui, "whatif", form.cluster);
}

// One line of what would be faster; true: it goes.
bool faster_row(Ui& ui, std::size_t i, WhatIfForm::Faster& f) {
  const std::string id = "whatif.faster." + std::to_string(i + 1);
  std::vector<std::string> labels;
  for (const SpeedUpKind& kind : speed_up_kinds()) labels.emplace_back(kind.label);
  combo(id + ".of", &f.of, labels, 118);
  if (speed_kind(f).pattern) {
    ImGui::SameLine(0, px(6));
    const float others = px(60 + 90 + 76 + 18);  // factor, its words, the button
    committed_text(ui, id + ".pattern", f.of == 0 ? "MatMul, *Attention*" : "a name or glob", &f.pattern,
                   std::clamp(ImGui::GetContentRegionAvail().x - others, px(80), px(340)));
  }
  ImGui::SameLine(0, px(6));
  committed_text(ui, id + ".factor", "2", &f.factor, px(60));
  ImGui::SameLine(0, px(6));
  ImGui::AlignTextToFramePadding();
  muted("times as fast");
  ImGui::SameLine(0, px(6));
  return button(id + ".remove", "Remove", ButtonKind::kGhost);
}

void draw_processor(Ui& ui) {
  WhatIfForm& form = ui.what_if;
  std::vector<std::string> names = processor_names("The same processor");
  names.emplace_back("One that a file describes");
  combo("whatif.on", &form.on, names, 230);
  if (form.on != static_cast<int>(names.size()) - 1) return;
  path_field(ui, "whatif.on_file", "written by devices --measure --json", form.on_file,
             {"A processor that was measured", "Choose", {".json"}, false, ""},
             [&form](const std::string& path) { form.on_file = path; });
}

// Of the run or the plan.
std::vector<const KernelInfo*> predicted_kernels(const Ui& ui) {
  const AppState& s = ui.state();
  std::vector<const KernelInfo*> kernels;
  if (ui.app.predicts_run())
    for (const KernelRow& row : s.run->record.kernels) kernels.push_back(&row.info);
  else if (s.plan)
    for (const KernelInfo& kernel : s.plan->kernels) kernels.push_back(&kernel);
  return kernels;
}

// Those that have this name, or else that compute this node of the model.
std::vector<std::string> kernels_named(const std::vector<const KernelInfo*>& kernels,
                                       const std::string& name) {
  std::set<std::string> found;
  for (const KernelInfo* const k : kernels) {
    if (k->node == name) return {name};
    if (std::find(k->onnx_nodes.begin(), k->onnx_nodes.end(), name) != k->onnx_nodes.end())
      found.insert(k->node);
  }
  return {found.begin(), found.end()};
}

}  // namespace

void Ui::ask_twice_as_fast(const std::vector<std::string>& selectors) {
  const std::vector<const KernelInfo*> known = predicted_kernels(*this);
  std::vector<WhatIfForm::Faster> faster;
  for (const std::string& selector : selectors) {
    const std::size_t colon = selector.find(':');
    const std::string name = colon == std::string::npos ? "" : selector.substr(colon + 1);
    const auto kinds = speed_up_kinds();
    const auto kind = std::find_if(kinds.begin(), kinds.end(),
                                   [&](const SpeedUpKind& k) { return selector.substr(0, colon) == k.name; });
    CHECK(kind != kinds.end(), "a selector of --speed");
    const auto of = static_cast<int>(kind - kinds.begin());
    if (kind->of != SpeedUp::Of::node) {
      faster.push_back({of, name.substr(0, name.find(" #")), "2"});  // as folds of one name are told apart
      continue;
    }
    for (const std::string& kernel : kernels_named(known, name)) faster.push_back({of, glob_of(kernel), "2"});
  }
  if (faster.empty()) return app.notice(NoticeKind::info, "No kernel of the step computes it");
  if (faster.size() > kMostFaster)
    return app.notice(NoticeKind::info,
                      fmt::format("It has {} kernels, more than one question can name", faster.size()));
  what_if.faster = std::move(faster);
  what_if.precision = what_if.on = what_if.tab = 0;
  what_if.dims.clear();
  what_if.ranks.clear();
  what_if.changes.clear();
  panes.show("What if");
  app.start_what_if(flags_of(state(), what_if));
}

std::string Ui::longest_operator() const {
  std::map<std::string, std::int64_t> ns;
  if (app.predicts_run())
    for (const KernelRow& row : state().run->record.kernels) ns[row.info.op] += row.step_ns;
  const auto longest = std::max_element(ns.begin(), ns.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  return longest == ns.end() || longest->second == 0 ? std::string() : longest->first;
}

std::vector<std::string> Ui::selected_to_speed() const {
  if (graph.model && graph.selected_scope >= 0)
    return {"scope:" + graph.model->scopes[static_cast<std::size_t>(graph.selected_scope)].path};
  std::vector<std::string> all;
  for (const std::int32_t box : graph.selection)
    if (graph.model) all.push_back("node:" + graph.model->boxes[static_cast<std::size_t>(box)].name);
  return all;
}

void draw_what_if_question(Ui& ui) {
  const AppState& s = ui.state();
  WhatIfForm& form = ui.what_if;
  draw_what_if_settings(ui);
  for (std::size_t i = 0; i < form.faster.size(); ++i)
    if (faster_row(ui, i, form.faster[i])) {
      form.faster.erase(form.faster.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
  if (button("whatif.add", "Something faster", ButtonKind::kPlain,
             "A kernel, an operator, a scope, the launches or the link would be so many times as fast")) {
    form.faster.emplace_back();
    // What is selected is most likely what is meant.
    const auto kinds = speed_up_kinds();
    const auto node = std::find_if(kinds.begin(), kinds.end(),
                                   [](const SpeedUpKind& k) { return k.of == SpeedUp::Of::node; });
    if (const std::string name = ui.selected(); !name.empty())
      form.faster.back() = {static_cast<int>(node - kinds.begin()), glob_of(name), "2"};
  }
  ImGui::SameLine(0, px(8));
  draw_processor(ui);
  const std::string flags = flags_of(s, form);
  flow(px(80), px(10));
  ImGui::BeginDisabled(s.progress.running || flags.empty());
  if (button("whatif.ask", "Predict", ButtonKind::kPrimary, ui.app.what_if_command(flags)))
    ui.app.start_what_if(flags);
  ImGui::EndDisabled();
  flow(px(200), px(12));
  checkbox("whatif.keep", "Keep it for a run to score", &form.keep);
}

}  // namespace gradloom
