// The model panel: what the opened file holds and what stands in the way of training it.
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <filesystem>

#include "app/desktop/suggest.h"
#include "app/desktop/ui.h"
#include "engine/base/glob.h"
#include "engine/base/text.h"
#include "sessions/find_model.h"

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

// `id`: of the links to the nodes.
void draw_obstacle_list(Ui& ui, const char* title, const char* id, const std::vector<Obstacle>& rows,
                        ImU32 color) {
  if (rows.empty()) return;
  heading(title);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Obstacle& row = rows[i];
    ImGui::PushID(static_cast<int>(i));
    badge(escaped(row.op), color);
    ImGui::SameLine();
    node_link(ui, std::string(id) + "." + row.node, row.node);
    if (!row.reason.empty()) wrapped(escaped(row.reason), palette().text_faint);
    ImGui::PopID();
  }
}

// Everything that keeps the model from being trained, all of it at once.
void draw_obstacles(Ui& ui, const ModelSnapshot& m) {
  const Palette& p = palette();
  const bool on_gpu = ui.state().recipe.device != "cpu";
  const std::size_t stopping = m.model.unknown.size() + m.model.untyped.size() + m.sized_by_data.size();
  if (stopping > 0)
    wrapped(fmt::format("{} cannot run: the model can be viewed but not trained.",
                        plural_text(static_cast<std::int64_t>(stopping), "node")),
            p.bad);
  draw_obstacle_list(ui, "Unsupported operators", "unsupported", obstacles_of(m.model.unknown), p.bad);
  draw_obstacle_list(ui, "Types that cannot be inferred", "untyped", obstacles_of(m.model.untyped), p.bad);
  draw_obstacle_list(ui, "Sized by the data", "datasized", m.sized_by_data, p.bad);
  draw_obstacle_list(ui, on_gpu ? "No GPU kernel" : "No CPU kernel", "nokernel",
                     on_gpu ? m.no_gpu_kernel : m.no_cpu_kernel, p.bad);
  draw_obstacle_list(ui, "No gradient", "nogradient", m.no_gradient, p.warn);
}

void trained_line(const Graph& graph, const std::vector<ParameterRow>& rows) {
  const auto trained = static_cast<std::size_t>(
      std::count_if(rows.begin(), rows.end(), [](const ParameterRow& row) { return row.trained; }));
  const std::size_t all = graph.parameters.size();
  key_value("Trained", trained == all ? "all of them" : fmt::format("{} of {} tensors", trained, all), 84);
  register_item("model.trained", "trained", std::to_string(trained));
}

// What is trained and may be a buffer: the file does not say which, so that the user is asked.
void draw_unsure(Ui& ui, const std::vector<ParameterRow>& rows) {
  bool first = true;
  for (const ParameterRow& row : rows) {
    if (!row.unsure || fits_any(ui.state().recipe.train, row.name)) continue;
    if (first) heading("Weights or buffers?");
    first = false;
    const std::string name = escaped(row.name);
    const auto answer = [&](const char* id, const char* label, const char* tip,
                            std::vector<std::string> Recipe::*list) {
      if (button(std::string("unsure.") + id + "." + row.name, label, ButtonKind::kPlain, tip))
        ui.app.edit(std::string(id) + " " + name, [&](Recipe& r) { (r.*list).push_back(glob_of(row.name)); });
    };
    text(fit_name(theme().small, theme().small->FontSize, name, ImGui::GetContentRegionAvail().x),
         palette().text, theme().small);
    tip(name);
    register_item("unsure." + row.name, row.name, row.why);
    ImGui::PushFont(theme().small);
    wrapped(escaped(row.why), palette().text_faint);
    ImGui::PopFont();
    answer("freeze", "Freeze", "A buffer: it keeps its numbers", &Recipe::freeze);
    ImGui::SameLine(0, px(6));
    answer("train", "Train", "A weight: the optimizer changes it", &Recipe::train);
    spacer(4);
  }
}

// Statistics, masks and tables too; integers, which are shapes and indices, are never meant.
void draw_untrained(const std::vector<ParameterRow>& rows) {
  constexpr int kMostShown = 40;
  int shown = 0;
  for (const ParameterRow& row : rows) {
    if (row.trained || !is_float(row.type.dtype)) continue;
    if (shown == 0) heading("Not trained");
    if (++shown > kMostShown) continue;
    text(
        fit_name(theme().small, theme().small->FontSize, escaped(row.name), ImGui::GetContentRegionAvail().x),
        palette().text, theme().small);
    tip(escaped(row.name));
    register_item("untrained." + row.name, row.name, row.why);
    ImGui::PushFont(theme().small);
    wrapped(escaped(row.why), palette().text_faint);
    ImGui::PopFont();
  }
  if (shown > kMostShown) muted(fmt::format("and {} more", shown - kMostShown));
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

void draw_no_model(Ui& ui, const char* title, const char* hint) {
  const AppState& s = ui.state();
  if (s.opening) return empty_state("Reading\u2026", ui.app.running_job());
  if (s.run && s.run->record.summary.is_loop())
    return empty_state("A recorded loop",
                       "It has no model file: Timeline, Kernels and Memory show what it ran.");
  if (s.run && s.run->record.summary.is_import())
    return empty_state(("A run of " + s.run->record.summary.kind_text()).c_str(),
                       "Its trace has no graph: Timeline and Kernels show what it ran.");
  if (!s.without_model) return empty_state(title, hint);
  wrapped("The model is not found", palette().text, theme().title);
  wrapped("The session's newest run was of " + escaped(s.without_model->model), palette().text_dim);
  spacer(4);
  if (button("model.locate", "Locate model\u2026", ButtonKind::kPrimary, "Where the file is now"))
    show_dialog(ui, DialogPurpose::locate);
}

void draw_model_panel(Ui& ui) {
  const AppState& s = ui.state();
  if (!s.has_model()) return draw_no_model(ui, "No model", "Open an ONNX file (Ctrl+O) or drop one here.");
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
  // As the file's operators add up: counting them in the graph is too slow for every frame.
  std::int64_t nodes = 0;
  for (const OpCount& c : m.ops) nodes += static_cast<std::int64_t>(c.nodes);
  key_value("Nodes", std::to_string(nodes), 84);
  key_value("Params",
            fmt::format("{} ({}), {}", count_text(static_cast<double>(m.parameters), ""),
                        bytes_text(static_cast<double>(m.parameter_bytes)),
                        plural_text(static_cast<std::int64_t>(graph.parameters.size()), "tensor")),
            84);
  if (s.plan) trained_line(graph, s.plan->parameters);
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
  if (s.plan) draw_unsure(ui, s.plan->parameters);
  if (s.plan) draw_untrained(s.plan->parameters);
  draw_operators(m);
  ImGui::PopStyleVar();
}

}  // namespace gradloom
