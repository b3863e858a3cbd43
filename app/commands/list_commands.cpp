// gradloom passes, ops: what this build has, from its declarations.
#include <CLI/CLI.hpp>

#include "app/commands/commands.h"
#include "app/op_libraries.h"
#include "engine/base/text.h"
#include "engine/onnx/read/op_table.h"
#include "passes/pass.h"
#include "passes/planners.h"

namespace gradloom {
namespace {

const char* phase_text(PassPhase phase) {
  switch (phase) {
    case PassPhase::pre_gradient: return "before autodiff";
    case PassPhase::post_gradient: return "after autodiff";
    case PassPhase::both: return "before and after";
  }
  return "?";
}

Json field_json(const FieldRow& f) {
  Json row = {{"name", f.name}, {"type", f.type}, {"default", f.value}, {"help", f.help}, {"unit", f.unit}};
  if (f.min > -1e307) row["min"] = f.min;
  if (f.max < 1e307) row["max"] = f.max;
  if (!f.choices.empty()) row["choices"] = f.choices;
  return row;
}

void list_passes(const Output& out, const std::string& only) {
  std::vector<std::vector<std::string>> rows;
  for (const PassDef* def : all_passes()) {
    if (!only.empty() && only != def->name) continue;
    const auto pass = def->make();
    const auto fields = list_fields([&](FieldVisitor& v) { pass->fields(v); });
    Json options = Json::array();
    std::string text;
    for (const FieldRow& f : fields) {
      options.push_back(field_json(f));
      text += (text.empty() ? "" : ",") + f.name + "=" + f.value;
    }
    out.object({{"pass", def->name},
                {"summary", def->summary},
                {"doc", def->doc},
                {"phase", phase_text(def->phase)},
                {"by_precision", def->by_precision},
                {"by_default", is_default(*def)},
                {"bit_exact", def->bit_exact},
                {"gives_way_to", def->gives_way_to == nullptr ? Json(nullptr) : Json(def->gives_way_to)},
                {"options", options}});
    rows.push_back({def->name, phase_text(def->phase), text.empty() ? "-" : text, def->summary});
    if (only.empty()) continue;
    out.text(std::string(def->name) + ": " + def->summary + "\n\n" + def->doc + "\n\nruns " +
             phase_text(def->phase) +
             (def->by_precision
                  ? "; switched on by --precision bf16 or f16; results stay equal within its rounding"
              : !def->by_default
                  ? "; off unless it is named (--passes default," + std::string(def->name) + ")"
              : def->bit_exact ? "; results stay bit-equal"
                               : "; results stay equal within rounding") +
             (def->gives_way_to == nullptr ? ""
                                           : "; gives way to " + std::string(def->gives_way_to) +
                                                 ", where that is on and finds nothing beside it"));
    for (const FieldRow& f : fields)
      out.text("  " + f.name + "=" + f.value + "  " + f.help + (f.unit.empty() ? "" : " (" + f.unit + ")") +
               (f.max < 1e307 ? ", " + number_text(f.min) + " to " + number_text(f.max) : ""));
    if (def->example == nullptr) continue;
    if (const auto example = def->example(); example.ok())
      out.text("\nbefore\n" + dump(example->before) + "after\n" + dump(example->after));
  }
  if (!only.empty()) return;
  out.text(table_text({"pass", "when", "options", "what it does"}, rows, {1, 2, 3}));
  rows.clear();
  for (const PlannerDef& p : all_planners()) {
    out.object({{"planner", p.name}, {"summary", p.summary}});
    rows.push_back({p.name, p.summary});
  }
  out.text("");
  out.text(table_text({"planner", "what it does"}, rows, {1}));
}

void list_ops(const Output& out) {
  std::vector<std::vector<std::string>> rows;
  for (const OpTableRow& op : op_table()) {
    out.object({{"op", op.name},
                {"domain", op.domain},
                {"since", op.since},
                {"until", op.until == 0 ? Json(nullptr) : Json(op.until)},
                {"gradient", op.gradient},
                {"cpu", op.cpu},
                {"cpu_types", op.cpu_types},
                {"gpu", op.gpu},
                {"gpu_types", op.gpu_types},
                {"mixed_precision", op.mixed_precision},
                {"summary", op.summary}});
    rows.push_back({op.name, op.domain, op.opsets(), op.gradient, op.cpu, op.gpu, op.cpu_types,
                    op.mixed_precision, op.summary});
  }
  out.text(table_text({"operator", "domain", "opset", "gradient", "cpu", "gpu", "types", "mixed", "summary"},
                      rows, {1, 2, 3, 4, 5, 6, 7, 8}));
}

}  // namespace

CommandRun declare_passes(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  app.add_option("NAME", *name, "one pass in detail, with its example, or one memory planner");
  return [name](CommandContext& context) -> Status {
    if (const PlannerDef* planner = find_planner(*name)) {
      context.out.object({{"planner", planner->name}, {"summary", planner->summary}});
      context.out.text(std::string(planner->name) + ": " + planner->summary + " (--planner " + planner->name +
                       ")");
      return {};
    }
    if (!name->empty() && find_pass(*name) == nullptr)
      return Error{Errc::usage, unknown_pass(*name, PassWords::with_planners)};
    list_passes(context.out, *name);
    return {};
  };
}

CommandRun declare_ops(CLI::App& app) {
  auto markdown = std::make_shared<bool>(false);
  auto libraries = std::make_shared<std::vector<std::string>>();
  app.add_flag("--markdown", *markdown, "the table as a Markdown page");
  declare_op_libraries(app, *libraries);
  return [markdown, libraries](CommandContext& context) -> Status {
    TRY(load_op_libraries(*libraries));
    if (*markdown)
      context.out.document(op_page(op_table()) + "\n");
    else
      list_ops(context.out);
    return {};
  };
}

}  // namespace gradloom
