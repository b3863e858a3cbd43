// The model panel: what the opened file holds and what stands in the way of training it; and the first
// screen.
#include <fmt/format.h>
#include <imgui.h>

#include <filesystem>

#include "app/desktop/suggest.h"
#include "app/desktop/ui.h"
#include "engine/base/text.h"

namespace gradloom {
namespace {

std::string type_text(const Graph& graph, const Value& v) {
  if (!v.has_type) return "unknown type";
  std::string text = std::string(dtype_name(v.type.dtype)) + "[";
  for (std::size_t i = 0; i < v.type.shape.size(); ++i) {
    const std::int64_t d = v.type.shape[i];
    const auto symbol = static_cast<std::size_t>(-d - 1);
    text += (i ? ", " : "") + (d >= 0                          ? std::to_string(d)
                               : symbol < graph.symbols.size() ? escaped(graph.symbols[symbol])
                                                               : "?");
  }
  return text + "]";
}

void value_lines(const Graph& graph, const char* title, const std::vector<ValueId>& ids) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Value& v = graph.values[ids[i]];
    key_value(i == 0 ? title : "", escaped(v.name) + "  " + type_text(graph, v), 84);
  }
}

// Everything that keeps the model from being trained, all of it at once.
void draw_obstacles(Ui& ui, const ModelSnapshot& m) {
  const Palette& p = palette();
  const bool on_gpu = ui.state().recipe.device != "cpu";
  const std::vector<std::string>& no_kernel = on_gpu ? m.no_gpu_kernel : m.no_kernel;
  if (m.model.unknown.empty() && no_kernel.empty() && m.no_gradient.empty()) return;
  if (!m.model.unknown.empty()) {
    heading("Unsupported operators");
    wrapped(
        fmt::format("{} nodes cannot run: the model can be viewed but not trained.", m.model.unknown.size()),
        p.bad);
    for (std::size_t i = 0; i < m.model.unknown.size(); ++i) {
      const UnknownOp& u = m.model.unknown[i];
      ImGui::PushID(static_cast<int>(i));
      badge((u.domain.empty() ? "" : escaped(u.domain) + ".") + escaped(u.op_type), p.bad);
      ImGui::SameLine();
      node_link(ui, "unsupported." + u.node, u.node);
      if (!u.reason.empty()) wrapped(escaped(u.reason), p.text_faint);
      ImGui::PopID();
    }
  }
  if (!no_kernel.empty()) {
    heading(on_gpu ? "No GPU kernel" : "No CPU kernel");
    for (const std::string& n : no_kernel) wrapped(escaped(n), p.bad);
  }
  if (!m.no_gradient.empty()) {
    heading("No gradient");
    for (const MissingGradient& g : m.no_gradient) {
      badge(escaped(g.op_type), p.warn);
      ImGui::SameLine();
      node_link(ui, "nogradient." + g.node, g.node);
    }
  }
}

void draw_operators(const ModelSnapshot& m) {
  heading("Operators");
  const Palette& p = palette();
  double most = 0;
  for (const OpCount& c : m.ops) most = std::max(most, c.flops);
  if (!ImGui::BeginTable("ops", 3, ImGuiTableFlags_SizingStretchProp)) return;
  ImGui::TableSetupColumn("op", 0, 1.6f);
  ImGui::TableSetupColumn("n", 0, 0.5f);
  ImGui::TableSetupColumn("flops", 0, 1.3f);
  for (const OpCount& c : m.ops) {
    ImGui::TableNextRow();
    ImGui::TableNextColumn();
    text(fit_text(theme().small, theme().small->FontSize, c.op, ImGui::GetContentRegionAvail().x), p.text,
         theme().small);
    ImGui::TableNextColumn();
    text(fmt::format("\u00d7{}", c.nodes), p.text_dim, theme().small);
    ImGui::TableNextColumn();
    ImGui::PushFont(theme().small);
    if (c.flops > 0)
      cell_bar(most > 0 ? c.flops / most : 0, p.forward, count_text(c.flops, "FLOP"));
    else
      number_cell("\u2013");
    ImGui::PopFont();
  }
  ImGui::EndTable();
}

}  // namespace

void draw_model_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model()) return empty_state("No model", "Open an ONNX file (Ctrl+O) or drop one here.");
  const ModelSnapshot& m = *s.model;
  const Graph& graph = m.model.graph;
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, {px(8), px(4)});
  text(fit_text(theme().title, theme().title->FontSize, model_label(s.recipe.model),
                ImGui::GetContentRegionAvail().x),
       palette().text, theme().title);
  muted(fit_text(theme().small, theme().small->FontSize, s.recipe.model, ImGui::GetContentRegionAvail().x));
  tip(s.recipe.model);
  spacer(4);
  key_value("Made by", m.model.producer.empty() ? "unknown" : escaped(m.model.producer), 84);
  key_value("Opset", fmt::format("{}, IR {}", graph.opset, m.model.ir_version), 84);
  key_value("Nodes", std::to_string(live_node_count(graph)), 84);
  key_value("Params",
            fmt::format("{} ({}), {}", count_text(static_cast<double>(m.parameters), ""),
                        bytes_text(static_cast<double>(m.parameter_bytes)),
                        plural_text(static_cast<std::int64_t>(graph.parameters.size()), "tensor")),
            84);
  value_lines(graph, "Inputs", graph.inputs);
  value_lines(graph, "Outputs", graph.outputs);
  if (m.flops > 0)
    key_value("Forward", fmt::format("{}, {} moved", count_text(m.flops, "FLOP"), bytes_text(m.bytes)), 84);
  if (s.plan) {
    const PlanTotals& t = s.plan->totals;
    key_value("Step", fmt::format("{} kernels, {}", t.kernels, count_text(t.flops, "FLOP")), 84);
    key_value("Peak",
              fmt::format("{} planned, {} at least", bytes_text(static_cast<double>(t.peak_bytes)),
                          bytes_text(static_cast<double>(t.lower_bound_bytes))),
              84);
  }
  for (const std::string& n : m.model.notes) wrapped(escaped(n), palette().text_faint);
  draw_obstacles(ui, m);
  draw_operators(m);
  ImGui::PopStyleVar();
}

void draw_welcome(Ui& ui) {
  const Palette& p = palette();
  const ImVec2 region = ImGui::GetContentRegionAvail(), at = ImGui::GetCursorScreenPos();
  const float width = std::min(px(560), region.x - px(48));
  const AppState& s = ui.state();
  const float rows = static_cast<float>(std::min<std::size_t>(s.settings.recents.size(), 6));
  const float height = px(230) + rows * px(44);
  const float x = at.x + (region.x - width) / 2, y = at.y + std::max(px(24), (region.y - height) * 0.4f);
  ImGui::SetCursorScreenPos({x, y});
  ImGui::BeginGroup();
  text("Gradloom", p.text, theme().title);
  text("See, optimize and run the training step of an ONNX model", p.text_dim);
  ImGui::Dummy({width, px(10)});
  if (s.opening) {
    text("Reading the model\u2026", p.text_dim);
  } else if (button("welcome.open", "Open a model, session or recipe\u2026", ButtonKind::kPrimary)) {
    show_dialog(ui, DialogPurpose::open);
  }
  ImGui::SameLine(0, px(14));
  ImGui::AlignTextToFramePadding();
  text("or drop a .onnx, .db or .json file here", p.text_faint);
  ImGui::Dummy({0, px(14)});
  if (!s.settings.recents.empty()) text("Recent", p.text_dim, theme().bold);
  int shown = 0;
  for (const std::string& path : s.settings.recents) {
    if (++shown > 6) break;
    ImGui::PushID(path.c_str());
    const ImVec2 min = ImGui::GetCursorScreenPos(), size{width, px(42)};
    const bool clicked = ImGui::InvisibleButton("recent", size);
    const bool hovered = ImGui::IsItemHovered();
    register_item("recent." + std::to_string(shown - 1), path, path);
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRectFilled(min, {min.x + size.x, min.y + size.y}, hovered ? p.hover : p.panel, px(6));
    const FileKind kind = file_kind(path);
    const char* what = kind == FileKind::session ? "session" : kind == FileKind::recipe ? "recipe" : "model";
    const std::string label =
        kind == FileKind::model ? model_label(path) : std::filesystem::path(path).filename().string();
    list->AddText({min.x + px(12), min.y + px(5)}, p.text, label.c_str());
    const float kind_width = theme().small->CalcTextSizeA(theme().small->FontSize, FLT_MAX, 0, what).x;
    list->AddText(theme().small, theme().small->FontSize,
                  {min.x + size.x - kind_width - px(12), min.y + px(13)}, p.text_faint, what);
    const std::string folder =
        fit_text(theme().small, theme().small->FontSize, path, size.x - kind_width - px(40));
    list->AddText(theme().small, theme().small->FontSize, {min.x + px(12), min.y + px(23)}, p.text_faint,
                  folder.c_str());
    if (clicked) ui.app.open(path);
    ImGui::PopID();
  }
  ImGui::Dummy({0, px(16)});
  text("Ctrl+O open    Ctrl+Shift+P commands    ? keys", p.text_faint, theme().small);
  ImGui::EndGroup();
}

}  // namespace gradloom
