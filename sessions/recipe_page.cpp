// The reference of recipes as a Markdown page: settings, losses, optimizers, schedules and loss scaling, each
// from its declaration.
#include "engine/base/markdown.h"
#include "engine/base/text.h"
#include "engine/train/loss_scaling.h"
#include "engine/train/losses.h"
#include "engine/train/optimizers.h"
#include "engine/train/schedules.h"
#include "passes/precision.h"
#include "sessions/recipe_settings.h"

namespace gradloom {
namespace {

using markdown::cell, markdown::code, markdown::head, markdown::row;

std::string limits(double least, double most) {
  if (least <= -1e307 && most >= 1e307) return "";
  if (most >= 1e307) return "at least " + number_text(least);
  if (least <= -1e307) return "at most " + number_text(most);
  return number_text(least) + " to " + number_text(most);
}

std::string option_table(const Fields& fields) {
  std::string page = head({"option", "default", "range", "meaning"});
  for (const FieldRow& field : list_fields(fields)) {
    const bool flag = field.type == "bool";
    page += row({code(field.name), code(field.value), flag ? "true, false" : limits(field.min, field.max),
                 cell(field.help) + (field.unit.empty() ? "" : " (" + field.unit + ")")});
  }
  return page + "\n";
}

std::string settings_table() {
  std::string page = head({"key", "flag", "type", "default", "meaning"});
  for (const RecipeSetting& setting : recipe_settings()) {
    const std::string text = setting_text(Recipe(), setting);
    page += row({code(setting.key), code(flag_of(setting)), cell(type_of(setting)), code(text),
                 cell(setting.help) + (setting.forms != nullptr ? ": " + code(setting.forms()) : "")});
  }
  return page + "\n";
}

std::string loss_section() {
  std::string page = head({"loss", "form", "per row or element, x prediction, t target", "source"});
  const std::vector<std::string> forms = loss_forms();
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const LossDef& def = all_losses()[i];
    page += row({def.title, code(forms[i]), code(def.formula), def.source});
  }
  page += "\n";
  for (const LossDef& def : all_losses())
    for (const LossOption& option : def.options)
      page += "Option `" + std::string(option.name) + "` of `" + def.name + "`: " + option.help +
              ", by default " + std::to_string(option.fallback) + ".\n\n";
  return page;
}

// "row, column (of two dims and more), v (of fewer dims), m, where beta1 is not 0"
std::string states_of(const OptimizerDef& def) {
  std::string text;
  for (const OptimizerStateDef& state : def.states) {
    text += (text.empty() ? "" : ", ") + std::string(state.name);
    switch (state.form) {
      case kernels::StateForm::whole: break;
      case kernels::StateForm::unfactored: text += " (of fewer than two dims)"; break;
      case kernels::StateForm::rows: text += " (of two dims or more: one number a row)"; break;
      case kernels::StateForm::columns: text += " (one a column)"; break;
    }
    if (*state.needs != 0) text += ", where " + std::string(state.needs) + " is not 0";
  }
  return text;
}

std::string optimizer_section() {
  std::string page;
  for (const OptimizerDef& def : all_optimizers()) {
    OptimizerSpec spec(def.kind);
    page += "### " + std::string(def.name) + "\n\n" + def.title + " (" + def.source + "). One step:\n\n```\n";
    for (const std::string& part : split_top_level(def.formula, ';')) page += part + "\n";
    page += "```\n\nState of every parameter: " + states_of(def) + ".\n\n" +
            option_table([&](FieldVisitor& v) { spec.fields(v); });
  }
  return page;
}

std::string schedule_section() {
  std::string page =
      head({"schedule", "factor after the warm-up", "meaning", "torch.optim.lr_scheduler 1.13"});
  for (const ScheduleDef& def : all_schedules())
    page += row({code(def.name), code(def.formula), def.title, *def.source != 0 ? code(def.source) : ""});
  page += "\n";
  for (const ScheduleDef& def : all_schedules()) {
    ScheduleSpec spec;
    spec.name = def.name;
    page += "### " + std::string(def.name) + "\n\n" + option_table([&](FieldVisitor& v) { spec.fields(v); });
  }
  return page;
}

std::string loss_scale_section() {
  LossScaleSpec scale;
  return option_table([&](FieldVisitor& v) { scale.fields(v); });
}

std::string precision_section() {
  std::string page = head({"list", "what it says", "source"});
  for (const PrecisionList& list : precision_lists())
    page += row({code(list.name), list.meaning, list.source});
  const auto names = [](std::span<const char* const> list) {
    std::string text;
    for (const char* name : list) text += (text.empty() ? "" : ", ") + std::string(name);
    return text.empty() ? std::string("none") : text;
  };
  page += "\n";
  for (const PrecisionList& list : precision_lists())
    page += "`" + std::string(list.name) +
            "` in 16 bits: " + (list.all_low ? "all others" : names(list.low)) +
            ". In f32: " + names(list.full) + ".\n\n";
  return page;
}

// The settings whose texts have declarations of their own.
struct Section {
  const char* key;
  std::string (*text)();
};
constexpr Section kSections[] = {{"loss", loss_section},
                                 {"optimizer", optimizer_section},
                                 {"schedule", schedule_section},
                                 {"precision", precision_section},
                                 {"loss_scale", loss_scale_section}};

}  // namespace

std::string setting_page(const RecipeSetting& setting) {
  std::string page = std::string(setting.key) + ": " + setting.help + "\n\ntype     " + type_of(setting);
  if (setting.kind != SettingKind::part) page += "\ndefault  " + setting_text(Recipe(), setting);
  if (const std::string flag = flag_of(setting); !flag.empty()) page += "\nflag     " + flag;
  if (setting.forms != nullptr) page += "\nforms    " + setting.forms();
  for (const Section& section : kSections)
    if (std::string(section.key) == setting.key) page += "\n\n" + section.text();
  while (page.back() == '\n') page.pop_back();
  return page;
}

std::string recipe_page() {
  std::string page =
      "# Recipes\n\n"
      "A recipe is one training run as a JSON file: `gradloom train --recipe FILE` replays it, `gradloom "
      "export` writes the recipe of a recorded run. This page is made by `gradloom recipe --markdown`; the "
      "JSON Schema is [sessions/recipe.schema.json](../sessions/recipe.schema.json) (`gradloom export "
      "--schema`). In a file, the paths of model, parameters and data are relative to the file's folder.\n\n"
      "## Settings\n\n" +
      settings_table() +
      "In files on and off are written true and false. `gradloom compare MODEL --a 'passes=none' --b "
      "'precision=bf16;steps=20'` names settings like their flags, without the dashes.\n\n## Losses\n\n"
      "Every loss is a mean over what it compares. A target that is no input of the model becomes one.\n\n" +
      loss_section() + "## Optimizers\n\n" + optimizer_section() +
      "## Schedules\n\nThe learning rate of step s is the optimizer's `lr` times a factor: s / warmup during "
      "the warm-up (one-cycle: its own), then what the schedule says of n = s - warmup. Those with a name in the last "
      "column equal PyTorch's schedule of that name; with a warm-up, its SequentialLR of LinearLR(start_factor=1 / "
      "warmup, total_iters=warmup - 1) and that schedule, milestones=[warmup].\n\n" +
      schedule_section() +
      "## Precision\n\n`bf16{full=Softmax,/head/*; low=Sqrt; list=autocast}`: `list` says what is computed in 16 bits "
      "and what in f32 instead of the operators' own wish (`gradloom ops`); `full` and `low` name operator types and, by globs, nodes "
      "that are an exception from it; `within` says likewise where 16 bits may be at all, and what is elsewhere stays in f32. A node that passes made of several answers to the names of all, and is within where all are. What both name "
      "stays in f32, and so do losses; operators in no list follow what they read.\n\n" +
      precision_section() +
      "## Loss scaling\n\nWith precision f16 the loss is multiplied before the backward pass, the gradients "
      "are divided by as much before the optimizer, and a step whose gradients overflow is skipped "
      "(`dynamic{...}`, as torch.cuda.amp.GradScaler 1.13; min and max as Apex's, hysteresis as DeepSpeed's with "
      "consecutive_hysteresis). `static{scale=128}` never changes.\n\n" +
      loss_scale_section();
  while (page.back() == '\n') page.pop_back();
  return page;
}

}  // namespace gradloom
