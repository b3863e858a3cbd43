#include "viz/draw/icicle_view.h"

#include <GLFW/glfw3.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/text.h"
#include "viz/draw/graph_canvas.h"
#include "viz/draw/key_focus.h"
#include "viz/draw/keys.h"
#include "viz/draw/plots.h"
#include "viz/draw/widgets.h"

namespace gradloom {
namespace {

constexpr size_t kMostRegistered = 400;  // boxes reported to the item registry

const StepNode& node_of(const IcicleState& state, int32_t id) {
  return state.tree.nodes[static_cast<size_t>(id)];
}

std::string title_of(const IcicleState& state, int32_t id) { return escaped(node_of(state, id).label); }

ImU32 part_color(StepPart part) {
  const Palette& p = palette();
  switch (part) {
    case StepPart::kForward: return p.forward;
    case StepPart::kLoss: return p.loss;
    case StepPart::kBackward: return p.backward;
    case StepPart::kOptimizer: return p.optimizer;
    case StepPart::kExchange: return p.text;
    case StepPart::kOther: break;
  }
  return p.text_dim;
}

// Text cut in its middle, as names of one module begin and end apart.
std::string fit_middle(ImFont* font, std::string_view s, float width) {
  const auto width_of = [&](std::string_view part) {
    return font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, part.data(), part.data() + part.size()).x;
  };
  if (width_of(s) <= width) return std::string(s);
  const auto whole = [&](size_t at) {  // not inside a code point
    while (at > 0 && at < s.size() && (static_cast<unsigned char>(s[at]) & 0xc0) == 0x80) --at;
    return at;
  };
  const auto cut = [&](size_t kept) {
    const size_t head = whole((kept + 1) / 2), tail = whole(s.size() - kept / 2);
    return std::string(s.substr(0, head)) + "\u2026" + std::string(s.substr(std::max(head, tail)));
  };
  size_t least = 0, most = s.size();  // bytes that are kept
  while (least < most) {
    const size_t middle = (least + most + 1) / 2;
    if (width_of(cut(middle)) <= width)
      least = middle;
    else
      most = middle - 1;
  }
  return least >= 3 ? cut(least) : std::string();
}

std::string share_text(const IcicleState& state, int32_t id) {
  return duration_text(node_of(state, id).total_ns) + ", " + percent_text(state.tree.share(id));
}

void zoom_to(IcicleState& state, int32_t node) {
  if (node < 0 || node_of(state, node).children.empty() || node == state.root) return;
  state.root = node;
  state.boxes.clear();
  state.table.scroll_to = 0;
}

void zoom_out(IcicleState& state) {
  const int32_t up = node_of(state, state.root).parent;
  if (up < 0) return;
  state.selection = {state.root};
  zoom_to(state, up);
}

void select(IcicleState& state, int32_t node, bool add) {
  auto& chosen = state.selection;
  const auto at = std::find(chosen.begin(), chosen.end(), node);
  if (!add)
    chosen = {node};
  else if (at == chosen.end())
    chosen.push_back(node);
  else
    chosen.erase(at);
}

bool is_selected(const IcicleState& state, int32_t node) {
  return std::find(state.selection.begin(), state.selection.end(), node) != state.selection.end();
}

// ---- Lines above and below ----

void draw_controls(IcicleState& state, const std::string& about, IcicleEvents& events) {
  int by = static_cast<int>(state.by);
  if (segmented("icicle.by", &by, {"Scope", "Phase", "ONNX node", "Pass", "Operator"})) {
    state.by = static_cast<TreeBy>(by);
    events.changed_tree = true;
  }
  flow(ImGui::GetFrameHeight() + ImGui::CalcTextSize("Fold layers").x, px(14));
  ImGui::SetCursorPosY(ImGui::GetCursorPosY() + ImGui::GetStyle().FramePadding.y - px(2));  // it is less tall
  if (checkbox("icicle.fold", "Fold layers", &state.fold)) events.changed_tree = true;
  tip("Layers that are alike as one: h.0 to h.11 as 12 x h.*");
  ImGui::SameLine(0, px(14));
  ImGui::AlignTextToFramePadding();
  const float room = ImGui::GetContentRegionAvail().x;
  text(fit_text(theme().small, theme().small->FontSize, about, room), palette().text_dim, theme().small);
  register_item("icicle.about", "run", about);
}

// What the colours mean, with what the node that fills the width takes of each; nothing where there is no room.
void draw_legend(const IcicleState& state) {
  const StepNode& node = node_of(state, state.root);
  ImFont* font = theme().small;
  const float side = px(8), gap = px(5), space = px(14);
  std::vector<std::pair<StepPart, std::string>> entries;
  float width = 0;
  for (size_t part = 0; part < kStepParts; ++part) {
    if (node.part_ns[part] <= 0) continue;
    entries.emplace_back(static_cast<StepPart>(part),
                         fmt::format("{} {}", kStepPartNames[part], duration_text(node.part_ns[part])));
    const std::string& label = entries.back().second;
    width += side + gap + space + font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, label.c_str()).x;
  }
  ImGui::SameLine(0, space);
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float room = ImGui::GetContentRegionAvail().x, tall = ImGui::GetFrameHeight();
  if (width > room) return ImGui::NewLine();
  float x = at.x + room - width + space;
  ImDrawList* list = ImGui::GetWindowDrawList();
  for (const auto& [part, label] : entries) {
    const float y = std::round(at.y + (tall - side) / 2);
    list->AddRectFilled({x, y}, {x + side, y + side}, part_color(part), px(2));
    x += side + gap;
    list->AddText(font, font->FontSize, {x, std::round(at.y + (tall - font->FontSize) / 2)},
                  palette().text_dim, label.c_str());
    x += font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, label.c_str()).x + space;
  }
  ImGui::Dummy({1, tall});
  register_rect("icicle.legend", at, {at.x + room, at.y + tall}, "legend", parts_text(node.part_ns));
}

// "step > model > 12 x h.*": all but the last lead back.
void draw_breadcrumb(IcicleState& state) {
  std::vector<int32_t> way;
  for (int32_t at = state.root; at >= 0; at = node_of(state, at).parent) way.push_back(at);
  std::reverse(way.begin(), way.end());
  const float right = ImGui::GetCursorScreenPos().x + ImGui::GetContentRegionAvail().x;
  int32_t to = -1;
  for (size_t i = 0; i < way.size(); ++i) {
    if (i > 0) {
      ImGui::SameLine(0, px(2));
      text("\u203a", palette().text_faint);
      ImGui::SameLine(0, px(6));
    }
    ImGui::AlignTextToFramePadding();
    const std::string id = "icicle.crumb." + std::to_string(i);
    const float room = right - ImGui::GetCursorScreenPos().x - px(30);
    const std::string label =
        fit_middle(theme().ui, title_of(state, way[i]), std::max(px(40), std::min(room, px(220))));
    if (i + 1 < way.size()) {
      if (button(id, label, ButtonKind::kGhost, "Back to it (" + key_label("icicle.up") + ")")) to = way[i];
    } else {
      text(label, palette().text, theme().bold);
      register_item(id, label, "here");
      ImGui::SameLine(0, px(10));
      const std::string time = share_text(state, way[i]);
      text(fit_text(theme().ui, theme().ui->FontSize, time, right - ImGui::GetCursorScreenPos().x),
           palette().text_dim);
    }
  }
  draw_legend(state);
  if (to < 0) return;
  state.selection = {state.root};
  zoom_to(state, to);
}

// What the selection takes together.
void draw_sum(const IcicleState& state) {
  const StepSum sum = sum_of(state.tree, state.selection);
  ImGui::AlignTextToFramePadding();
  if (sum.nodes == 0) {
    const std::string hint = "Click selects, Ctrl + click adds, double click zooms in";
    text(hint, palette().text_faint, theme().small);
    register_item("icicle.sum", "sum", "");
    return;
  }
  const std::string what =
      sum.nodes == 1 ? title_of(state, state.selection.front()) : fmt::format("{} selected", sum.nodes);
  const std::string total = duration_text(sum.ns) + ", " + percent_text(sum.share) + " of the step";
  const std::string rest = plural_text(sum.kernels, "kernel") + ", " + parts_text(sum.part_ns);
  const float width = ImGui::GetContentRegionAvail().x;
  text(fit_middle(theme().bold, what, width * 0.3f), palette().text, theme().bold);
  ImGui::SameLine(0, px(10));
  text(fit_text(theme().ui, theme().ui->FontSize, total, width * 0.4f));
  ImGui::SameLine(0, px(14));
  text(fit_text(theme().ui, theme().ui->FontSize, rest, std::max(0.f, ImGui::GetContentRegionAvail().x)),
       palette().text_dim);
  register_item("icicle.sum", what, total + ", " + rest);
}

// ---- Boxes ----

// A node of one phase is of its colour, any other grey with its phases as a strip.
struct BoxLook {
  ImU32 fill;
  bool strip;
};
BoxLook look_of(const StepNode& node) {
  const Palette& p = palette();
  const StepPart part = node.main_part();
  const bool pure = node.part_ns[static_cast<size_t>(part)] >= node.total_ns * 0.999;
  if (!pure) return {mix(p.panel, p.text_dim, 0.22f), true};
  return {mix(p.panel, part_color(part), part == StepPart::kExchange ? 0.45f : 0.62f), false};
}

void draw_strip(ImDrawList* list, const StepNode& node, ImVec2 min, ImVec2 max) {
  float x = min.x;
  for (size_t part = 0; part < kStepParts; ++part) {
    const float to =
        x + static_cast<float>(node.part_ns[part] / std::max(1.0, node.total_ns)) * (max.x - min.x);
    if (to > x)
      list->AddRectFilled({x, min.y}, {to, max.y},
                          mix(palette().panel, part_color(static_cast<StepPart>(part)), 0.8f));
    x = to;
  }
}

bool has_label(ImVec2 min, ImVec2 max) { return max.x - min.x >= px(26); }

void draw_label(ImDrawList* list, const std::string& name, const std::string& time, ImVec2 min, ImVec2 max,
                ImU32 ink) {
  ImFont* font = theme().small;
  const float room = max.x - min.x - px(10), tall = max.y - min.y;
  const bool way = name.find('/') != std::string::npos;  // of a node: its end says most
  const std::string label = way ? fit_name(font, font->FontSize, name, room) : fit_middle(font, name, room);
  constexpr size_t kLeast = 8;  // bytes of a name's end, with its ellipsis: less of it says nothing
  if (label.empty() || (way && label != name && label.size() < kLeast)) return;
  const bool two = tall >= 2 * font->FontSize + px(1);
  const bool fits = two && font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, time.c_str()).x <= room;
  const float lines = fits ? 2 * font->FontSize + px(1) : font->FontSize;
  const float y = std::round(min.y + (tall - lines) / 2);
  list->AddText(font, font->FontSize, {min.x + px(5), y}, ink, label.c_str());
  if (fits)
    list->AddText(font, font->FontSize, {min.x + px(5), y + font->FontSize + px(1)}, with_alpha(ink, 0.72f),
                  time.c_str());
}

// A node is faint when none of its kernels, and of those below it, is inside.
void find_faint(const std::vector<KernelRow>& kernels, const IcicleMarks& marks, IcicleState& state) {
  const std::vector<StepNode>& nodes = state.tree.nodes;
  if (state.faint_of == marks.inside && (!marks.inside || state.faint.size() == nodes.size())) return;
  state.faint_of = marks.inside;
  state.faint.assign(marks.inside ? nodes.size() : 0, true);
  if (!marks.inside) return;
  for (size_t i = nodes.size(); i-- > 0;) {  // children come after their parents
    for (const uint32_t row : nodes[i].rows)
      if (marks.inside->count(kernels[row].info.node) != 0) state.faint[i] = false;
    if (!state.faint[i] && nodes[i].parent >= 0) state.faint[static_cast<size_t>(nodes[i].parent)] = false;
  }
}

bool stands_for(const StepNode& node, const std::vector<KernelRow>& kernels, const std::string& name) {
  return !name.empty() && std::any_of(node.rows.begin(), node.rows.end(),
                                      [&](uint32_t row) { return kernels[row].info.node == name; });
}

// Where the boxes are on the screen.
struct BoxView {
  ImVec2 min;
  float width = 0, row = 0;
  ImVec2 box_min(const IcicleBox& b) const {
    return {min.x + std::round(static_cast<float>(b.left) * width),
            min.y + static_cast<float>(b.level) * row};
  }
  ImVec2 box_max(const IcicleBox& b) const {  // with a gap of a pixel to the next
    const float left = box_min(b).x, right = min.x + std::round(static_cast<float>(b.right) * width);
    return {std::max(left + 1, right - (right - left > 3 ? 1 : 0)),
            min.y + static_cast<float>(b.level + 1) * row - 1};
  }
};

void draw_box(const IcicleState& state, const IcicleBox& box, const BoxView& view,
              const std::vector<KernelRow>& kernels, const IcicleMarks& marks, bool over) {
  const Palette& p = palette();
  ImDrawList* list = ImGui::GetWindowDrawList();
  const ImVec2 min = view.box_min(box), max = view.box_max(box);
  const float rounding = max.x - min.x > px(6) ? px(3) : 0;
  if (box.node < 0) {
    list->AddRectFilled(min, max, mix(p.panel, p.text_dim, over ? 0.2f : 0.1f), rounding);
    if (has_label(min, max)) draw_label(list, fmt::format("{} more", box.more), "", min, max, p.text_faint);
    return;
  }
  const StepNode& node = node_of(state, box.node);
  BoxLook look = look_of(node);
  const bool faint = !state.faint.empty() && state.faint[static_cast<size_t>(box.node)];
  if (faint) look.fill = mix(p.panel, look.fill, 0.25f);
  if (over || state.hovered == box.node) look.fill = mix(look.fill, p.text, 0.15f);
  list->AddRectFilled(min, max, look.fill, rounding);
  const float strip = look.strip ? px(3) : 0;
  if (look.strip && !faint && max.x - min.x >= 3) draw_strip(list, node, {min.x, max.y - strip}, max);
  const bool chosen = is_selected(state, box.node), elsewhere = stands_for(node, kernels, marks.selected);
  if (chosen || elsewhere || stands_for(node, kernels, marks.outline))
    list->AddRect(min, max, chosen ? p.text : p.accent, rounding, 0, px(chosen ? 2.f : 1.5f));
  if (has_label(min, max))
    draw_label(list, title_of(state, box.node), share_text(state, box.node), min, {max.x, max.y - strip},
               ink_on(look.fill));
}

// A tooltip is as wide as its longest line: none is longer than this.
constexpr float kCardWidth = 440;

void card_line(std::string_view key, const std::string& value, float key_width = 104) {
  const float x = ImGui::GetCursorPosX();
  text(key, palette().text_dim);
  ImGui::SameLine();
  ImGui::SetCursorPosX(x + px(key_width));
  text(fit_text(theme().ui, theme().ui->FontSize, value, px(kCardWidth - key_width)));
}

void card_parts(const StepNode& node) {
  ImDrawList* list = ImGui::GetWindowDrawList();
  for (size_t part = 0; part < kStepParts; ++part) {
    if (node.part_ns[part] <= 0) continue;
    const ImVec2 at = ImGui::GetCursorScreenPos();
    const float side = px(8), y = at.y + (ImGui::GetTextLineHeight() - side) / 2;
    list->AddRectFilled({at.x, y}, {at.x + side, y + side}, part_color(static_cast<StepPart>(part)), px(2));
    ImGui::SetCursorPosX(ImGui::GetCursorPosX() + side + px(6));
    card_line(kStepPartNames[part],
              duration_text(node.part_ns[part]) + ", " +
                  percent_text(node.part_ns[part] / std::max(1.0, node.total_ns)),
              90);
  }
}

void card_kernel(const StepNode& node, const KernelRow& k) {
  card_line("Operator", escaped(k.info.op) + (k.info.kernel.empty() ? "" : "  " + escaped(k.info.kernel)));
  if (!k.info.passes.empty()) card_line("Passes", escaped(k.info.passes));
  if (node.rows.size() > 1) return;  // what follows is of one kernel alone
  if (!k.info.scope.empty()) card_line("Scope", escaped(k.info.scope));
  if (!k.info.onnx_nodes.empty()) {
    std::string nodes;
    for (const std::string& name : k.info.onnx_nodes) nodes += (nodes.empty() ? "" : ", ") + escaped(name);
    card_line("ONNX", nodes.size() > 300 ? nodes.substr(0, 300) + "\u2026" : nodes);
  }
  if (node.total_ns > 0 && k.info.flops > 0)
    card_line("Rate", fmt::format("{:.1f} GFLOP/s, {:.1f} GB/s", k.step_flops() / node.total_ns,
                                  k.step_bytes() / node.total_ns));
}

void draw_card(const IcicleState& state, const IcicleBox& box, const std::vector<KernelRow>& kernels) {
  ImGui::BeginTooltip();
  if (box.node < 0) {
    text(fmt::format("{} more, each too narrow to be seen", box.more));
    muted("A double click zooms to " + title_of(state, box.parent));
    register_item("icicle.card", "narrow", std::to_string(box.more));
  } else {
    const StepNode& node = node_of(state, box.node);
    const std::string path = escaped(state.tree.path(box.node));
    text(path.empty() ? "The whole step" : fit_middle(theme().bold, path, px(kCardWidth)), palette().text,
         theme().bold);
    register_item("icicle.card", path, share_text(state, box.node));
    spacer(2);
    card_line("Total", share_text(state, box.node) + " of the step");
    if (!node.children.empty() && node.self_ns > 0) card_line("Self", duration_text(node.self_ns));
    card_parts(node);
    card_line("Kernels", std::to_string(node.kernels));
    card_line("Launches", short_text(node.launches) + " per step");
    if (node.peak_bytes > 0) card_line("At peak", bytes_text(node.peak_bytes) + " of what it made is live");
    if (state.tree.steps > 1)
      card_line("In a step",
                fmt::format("median {}, half of {} steps {} \u2013 {}", duration_text(node.median_ns),
                            state.tree.steps, duration_text(node.low_ns), duration_text(node.high_ns)));
    if (node.repeats > 1)
      card_line("Each of " + std::to_string(node.repeats),
                fmt::format("median {}, longest {} in {}", duration_text(node.each_ns),
                            duration_text(node.most_ns), escaped(node.longest)));
    if (!node.rows.empty()) card_kernel(node, kernels[node.rows.front()]);
  }
  ImGui::EndTooltip();
}

// ---- Icicle and table ----

const IcicleBox* box_under(const IcicleState& state, const BoxView& view, ImVec2 mouse) {
  const auto level = static_cast<int32_t>(std::floor((mouse.y - view.min.y) / view.row));
  for (const IcicleBox& b : state.boxes)
    if (b.level == level && mouse.x >= view.box_min(b).x && mouse.x <= view.box_max(b).x) return &b;
  return nullptr;
}

void context_menu(IcicleState& state, IcicleEvents& events, Actions& actions) {
  if (!ImGui::BeginPopup("icicle-menu")) return;
  const int32_t id = state.menu_node;
  const std::string path = state.tree.path(id);
  if (!node_of(state, id).children.empty() && selectable_row("icicle.menu.zoom", "Zoom to it", false))
    zoom_to(state, id);
  if (selectable_row("icicle.menu.graph", "Show in the graph", false)) events.show_graph = id;
  const bool listed = node_of(state, id).rows.size() == 1 || !kernel_query(state.tree, id).empty();
  if (listed && selectable_row("icicle.menu.kernels", "Show in the kernel table", false))
    events.show_kernels = id;
  if (id != 0 && selectable_row("icicle.menu.faster", kTwiceAsFast, false)) events.faster = id;
  if (selectable_row("icicle.menu.copy", "Copy name", false)) {
    ImGui::SetClipboardText(path.c_str());
    actions.copied = path;
  }
  if (state.root != 0 && selectable_row("icicle.menu.all", "Show the whole step", false)) zoom_to(state, 0);
  ImGui::EndPopup();
}

void handle_mouse(IcicleState& state, const IcicleBox* under, bool hovered, IcicleEvents& events) {
  if (!hovered || under == nullptr) return;
  const int32_t node = under->node;
  if (ImGui::IsMouseDoubleClicked(0)) return zoom_to(state, node < 0 ? under->parent : node);
  if (node < 0) return;
  if (ImGui::IsMouseClicked(0)) {
    select(state, node, ImGui::GetIO().KeyCtrl);
    events.selected = true;
  }
  if (ImGui::IsMouseClicked(1)) {
    state.menu_node = node;
    ImGui::OpenPopup("icicle-menu");
  }
}

int levels_of(const IcicleState& state) { return state.boxes.empty() ? 1 : state.boxes.back().level + 1; }

void draw_boxes(const std::vector<KernelRow>& kernels, const IcicleMarks& marks, IcicleState& state,
                float row, IcicleEvents& events, Actions& actions) {
  const ImVec2 at = ImGui::GetCursorScreenPos();
  const float width = ImGui::GetContentRegionAvail().x;
  const BoxView view{at, width, row};
  ImGui::InvisibleButton("icicle", {width, row * static_cast<float>(levels_of(state))},
                         ImGuiButtonFlags_MouseButtonLeft | ImGuiButtonFlags_MouseButtonRight);
  const bool hovered = ImGui::IsItemHovered();
  register_item("icicle.canvas", state.tree.path(state.root), std::to_string(state.boxes.size()));
  reached_by("icicle.move");
  if (std::exchange(state.menu_wanted, false)) {
    state.menu_node = state.focus();
    ImGui::OpenPopup("icicle-menu");
    for (const IcicleBox& b : state.boxes)
      if (b.node == state.menu_node) menu_by_keys({view.box_min(b).x, view.box_max(b).y});
  }
  const IcicleBox* under = hovered ? box_under(state, view, ImGui::GetIO().MousePos) : nullptr;
  size_t registered = 0;
  for (const IcicleBox& b : state.boxes) {
    draw_box(state, b, view, kernels, marks, under == &b);
    const ImVec2 min = view.box_min(b), max = view.box_max(b);
    if (max.x - min.x < px(3) || ++registered > kMostRegistered) continue;
    const bool narrow = b.node < 0;
    const std::string path = state.tree.path(narrow ? b.parent : b.node);
    register_rect("icicle.box" + (path.empty() ? "" : "." + path) + (narrow ? "/more" : ""), min, max,
                  narrow ? fmt::format("{} more", b.more) : node_of(state, b.node).label,
                  !narrow && is_selected(state, b.node) ? "selected" : "");
  }
  state.hovered = under != nullptr ? under->node : -1;
  if (under != nullptr) {
    draw_card(state, *under, kernels);
    if (under->node >= 0 && !node_of(state, under->node).rows.empty())
      actions.hover_node = kernels[node_of(state, under->node).rows.front()].info.node;
  }
  const IcicleBox copy = under != nullptr ? *under : IcicleBox();  // zooming makes other boxes
  handle_mouse(state, under != nullptr ? &copy : nullptr, hovered, events);
}

void draw_rows(const IcicleState& state, const StepNode& node, int32_t id, int column, double most) {
  const auto part = [&](StepPart p) {
    const double ns = node.part_ns[static_cast<size_t>(p)];
    number_cell(ns > 0 ? duration_text(ns) : "\u2013");
  };
  switch (column) {
    case 0: name_cell(title_of(state, id)); break;
    case 1: number_cell(duration_text(node.total_ns)); break;
    case 2: cell_bar(node.total_ns / most, palette().accent, percent_text(state.tree.share(id))); break;
    case 3: number_cell(node.self_ns > 0 ? duration_text(node.self_ns) : "\u2013"); break;
    case 4: part(StepPart::kForward); break;
    case 5: part(StepPart::kLoss); break;
    case 6: part(StepPart::kBackward); break;
    case 7: part(StepPart::kOptimizer); break;
    case 8: part(StepPart::kExchange); break;
    case 9: number_cell(std::to_string(node.kernels)); break;
    case 10: number_cell(short_text(node.launches)); break;
    case 11: number_cell(node.peak_bytes > 0 ? bytes_text(node.peak_bytes) : "\u2013"); break;
    case 12:
      number_cell(std::isnan(node.low_ns)
                      ? "\u2013"
                      : duration_text(node.low_ns) + " \u2013 " + duration_text(node.high_ns));
      break;
    default:
      number_cell(node.repeats > 1 ? fmt::format("{}, {} in {}", duration_text(node.each_ns),
                                                 duration_text(node.most_ns), escaped(node.longest))
                                   : "\u2013");
  }
}

// What the node that fills the width is made of.
void draw_children(IcicleState& state, IcicleEvents& events) {
  const std::vector<int32_t>& children = node_of(state, state.root).children;
  const auto& all = state.tree.nodes.front().part_ns;
  const auto has = [&](StepPart p) { return all[static_cast<size_t>(p)] > 0; };
  const std::vector<TableColumn> columns{
      {"Name"},
      {"Time", 84, true, false, "Of a step: medians over the timed steps, added up"},
      {"Share", 96, true, false, "Of the step", 1},
      {"Self", 76, true, false, "Of kernels that are in no module below", 5},
      {"Forward", 78, true, !has(StepPart::kForward), "", 3},
      {"Loss", 70, true, true, "", 8},
      {"Backward", 82, true, !has(StepPart::kBackward), "", 3},
      {"Optimizer", 84, true, !has(StepPart::kOptimizer), "", 4},
      {"Exchange", 82, true, !has(StepPart::kExchange), "Between ranks", 4},
      {"Kernels", 66, true, false, "", 2},
      {"Launches", 76, true, true, "Per step", 8},
      {"At peak", 80, true, state.tree.nodes.front().peak_bytes <= 0,
       "Of what its kernels made, live where the step's memory is largest", 3},
      {"Quartiles", 150, true, false, "Of what the timed steps took: half of them lie between", 6},
      {"Each, longest", 150, true, false, "Of layers that are one row: the median and the longest of them",
       7}};
  TableRows rows;
  rows.arrows_of_pane = false;  // they move in the boxes
  rows.sortable = false;
  rows.count = static_cast<int>(children.size());
  const double most = children.empty() ? 1 : std::max(1.0, node_of(state, children.front()).total_ns);
  rows.cell = [&](int r, int c) {
    draw_rows(state, node_of(state, children[static_cast<size_t>(r)]), children[static_cast<size_t>(r)], c,
              most);
  };
  rows.id = [&](int r) { return node_of(state, children[static_cast<size_t>(r)]).label; };
  rows.value = [&](int r) {
    return duration_text(node_of(state, children[static_cast<size_t>(r)]).total_ns);
  };
  const auto chosen = std::find(children.begin(), children.end(), state.focus());
  state.table.selected = chosen == children.end() ? -1 : static_cast<int>(chosen - children.begin());
  const TableEvents table = draw_table("icicle.rows", columns, rows, state.table);
  if (table.hovered >= 0) state.hovered = children[static_cast<size_t>(table.hovered)];
  if (table.clicked >= 0) {
    select(state, children[static_cast<size_t>(table.clicked)], ImGui::GetIO().KeyCtrl);
    events.selected = true;
  }
  if (table.opened >= 0) zoom_to(state, children[static_cast<size_t>(table.opened)]);
}

}  // namespace

void icicle_set_tree(IcicleState& state, StepTree tree) {
  const StepTree old = std::exchange(state.tree, std::move(tree));
  const auto now = [&](int32_t id) {
    return old.nodes.empty() || old.by != state.tree.by ? -1 : state.tree.find(old.path(id));
  };
  int32_t root = state.root;  // else what it was in
  while (root > 0 && now(root) < 0) root = old.nodes[static_cast<size_t>(root)].parent;
  state.root = std::max(0, now(root));
  std::vector<int32_t> kept;
  for (const int32_t id : state.selection)
    if (const int32_t at = now(id); at >= 0) kept.push_back(at);
  state.selection = std::move(kept);
  state.boxes.clear();
  state.faint.clear();
  state.menu_node = state.hovered = -1;
}

IcicleEvents draw_icicle(const std::vector<KernelRow>& kernels, const std::string& about,
                         const IcicleMarks& marks, IcicleState& state, Actions& actions) {
  IcicleEvents events;
  find_faint(kernels, marks, state);
  draw_controls(state, about, events);
  draw_breadcrumb(state);
  const ImVec2 space = ImGui::GetContentRegionAvail();
  if (state.boxes.empty() || state.boxes_width != space.x) {
    state.boxes = icicle_boxes(state.tree, state.root, space.x);
    state.boxes_width = space.x;
  }
  // Rows as tall as there is room for, with the table below where that leaves enough.
  const float line = ImGui::GetFrameHeightWithSpacing(), levels = static_cast<float>(levels_of(state));
  const bool table = space.y > px(250);
  const float most = std::max(px(40), table ? (space.y - line) * 0.58f : space.y - line);
  const float row = std::clamp(std::floor(most / levels), px(19), px(38));
  const float height = std::min(row * levels + px(2), most);
  if (ImGui::BeginChild("icicle-boxes", {0, height}, false, ImGuiWindowFlags_NoBackground)) {
    draw_boxes(kernels, marks, state, row, events, actions);
    context_menu(state, events, actions);
  }
  ImGui::EndChild();
  draw_sum(state);
  if (table) draw_children(state, events);
  return events;
}

bool icicle_keys(IcicleState& state) {
  if (state.boxes.empty()) return false;
  if (ImGui::IsPopupOpen(nullptr, ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel)) return false;
  if (key_pressed("icicle.up")) zoom_out(state);
  if (key_pressed("icicle.all")) zoom_to(state, 0);
  if (key_pressed("icicle.zoom")) zoom_to(state, state.focus());
  if (key_pressed("app.menu") && !table_has_arrows()) state.menu_wanted = true;
  if (state.boxes.empty()) return false;  // of another node in the next frame
  const ImGuiIO& io = ImGui::GetIO();
  if (io.WantTextInput || io.KeyCtrl || io.KeyAlt || table_has_arrows()) return false;
  constexpr std::pair<int, IcicleMove> kArrows[] = {{GLFW_KEY_UP, IcicleMove::kUp},
                                                    {GLFW_KEY_DOWN, IcicleMove::kDown},
                                                    {GLFW_KEY_LEFT, IcicleMove::kLeft},
                                                    {GLFW_KEY_RIGHT, IcicleMove::kRight}};
  for (const auto& [key, move] : kArrows) {
    if (!ImGui::IsKeyPressed(key, true)) continue;
    const int32_t from = state.selection.empty() ? -1 : state.selection.back();
    const int32_t to = icicle_move(state.boxes, from, move);
    if (to == from) continue;
    select(state, to, io.KeyShift);
    return true;
  }
  return false;
}

}  // namespace gradloom
