// The page of an operator.
#include <fmt/format.h>
#include <imgui.h>

#include "engine/base/text.h"
#include "viz/draw/views.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

std::string kernel_text(const std::string& how, const std::string& types) {
  if (how == "parts") return "by other operators";
  return types.empty() ? how : how + ": " + types;
}

void version(const OpTableRow& row) {
  heading(row.domain + ", opset " + row.opsets());
  key_value("Gradient", row.gradient, 120);
  key_value("CPU", kernel_text(row.cpu, row.cpu_types), 120);
  key_value("CUDA and HIP", kernel_text(row.gpu, row.gpu_types), 120);
  key_value("Mixed precision", row.mixed_precision, 120);
}

}  // namespace

void draw_operator_page(const OperatorPage& page) {
  text(escaped(page.name), palette().text, theme().title);
  register_item("operator-page", page.name, page.summary);
  if (page.versions.empty())
    return wrapped("Gradloom lacks this operator: a model that has it can be viewed, not trained.",
                   palette().bad);
  wrapped(page.summary, palette().text_dim);
  if (!page.formula.empty()) {
    spacer(4);
    key_value("Formula", page.formula, 120);
    register_item("operator-page.formula", "formula", page.formula);
  }
  spacer(2);
  for (const std::string& fact : page.facts) wrapped("\u2022 " + fact, palette().text_dim);
  for (const OpTableRow& row : page.versions) version(row);
  register_item("operator-page.versions", "versions", std::to_string(page.versions.size()));
  spacer(4);
}

}  // namespace gradloom
