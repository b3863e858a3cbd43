#include "viz/report/graph_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "engine/base/text.h"
#include "viz/model/axis.h"
#include "viz/report/html.h"

namespace gradloom {
namespace {

constexpr float kMargin = 24, kTop = 64, kLegend = 30, kLeastWidth = 480;
constexpr const char* kColumns[] = {"forward", "backward", "optimizer"};

// The colours of a report's pictures (report.cpp), written out: programs that draw SVG know no variables.
constexpr const char* kStyle = R"(
svg{font:13px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}.soft{font-size:11px}.head{font-size:15px;font-weight:600}
.edge{fill:none}.folded{stroke-width:1.6}
.page{fill:#fff}text{fill:#1c2128}.soft{fill:#5d6773}.group,.under{fill:#f6f7f9;stroke:#d3d8de}.box,.folded{fill:#fff;stroke:#d3d8de}
.input{fill:#f6f7f9;stroke:#3572c6}.edge{stroke:#98a2ae}.tip{fill:#98a2ae}
.forward .stripe,.forward .title{fill:#3572c6}.forward .folded{stroke:#3572c6}
.loss .stripe,.loss .title{fill:#8a5cd0}.loss .folded{stroke:#8a5cd0}
.backward .stripe,.backward .title{fill:#c9701a}.backward .folded{stroke:#c9701a}
.optimizer .stripe,.optimizer .title{fill:#2f8f63}.optimizer .folded{stroke:#2f8f63}
.bad .stripe,.bad .title{fill:#b93a32}.bad .folded{stroke:#b93a32}
@media(prefers-color-scheme:dark){
.page{fill:#14171b}text{fill:#e4e7eb}.soft{fill:#9aa4b0}.group,.under{fill:#1d2126;stroke:#3b424b}.box,.folded{fill:#262b32;stroke:#3b424b}
.input{fill:#1d2126;stroke:#6ea3ec}.edge{stroke:#6b7684}.tip{fill:#6b7684}
.forward .stripe,.forward .title{fill:#6ea3ec}.forward .folded{stroke:#6ea3ec}
.loss .stripe,.loss .title{fill:#b294ee}.loss .folded{stroke:#b294ee}
.backward .stripe,.backward .title{fill:#e8a04f}.backward .folded{stroke:#e8a04f}
.optimizer .stripe,.optimizer .title{fill:#62c193}.optimizer .folded{stroke:#62c193}
.bad .stripe,.bad .title{fill:#f08078}.bad .folded{stroke:#f08078}}
)";

// As many letters as fit, by the width of most.
std::string fitted(const std::string& name, float width, float letter_width) {
  const auto most = static_cast<std::size_t>(std::max(width / letter_width, 1.F));
  std::size_t letters = 0, end = 0;
  for (; end < name.size(); ++end)
    if ((static_cast<unsigned char>(name[end]) & 0xc0) != 0x80 && ++letters > most) break;
  if (letters <= most) return name;
  while (letters > most - std::min<std::size_t>(most, 1) && end > 0)  // room for the sign
    if ((static_cast<unsigned char>(name[--end]) & 0xc0) != 0x80) --letters;
  return name.substr(0, end) + "\u2026";
}

class Picture {
 public:
  explicit Picture(const GraphScene& scene) : scene_(scene), model_(*scene.model) {}

  std::string draw(const std::string& title) {
    const LayoutResult& layout = scene_.layout;
    const float width = std::max(layout.width + 2 * kMargin, kLeastWidth),
                height = layout.height + kTop + kLegend + kMargin;
    add(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {:.0f} {:.0f}" width="{:.0f}" height="{:.0f}" role="img" aria-label="{}">)"
        "<style>{}</style><rect class=\"page\" width=\"100%\" height=\"100%\"/>\n",
        width, height, width, height, html::text(title), kStyle);
    words(kMargin, 26, "head", fitted(title, width - 2 * kMargin, 8));
    add("<g transform=\"translate({:.0f} {:.0f})\">\n", kMargin, kTop);
    columns();
    for (const LayoutGroup& group : layout.groups)
      if (!group.collapsed) open_group(group);
    for (std::size_t r = 0; r < layout.routes.size(); ++r)
      if (layout.routes[r].kind == LayoutRouteKind::kFlow) edge(r);
    for (const LayoutGroup& group : layout.groups)
      if (group.collapsed) folded_group(group);
    for (std::size_t b = 0; b < model_.boxes.size(); ++b)
      if (layout.hidden_in[b] < 0) box(b);
    add("</g>\n");
    words(kMargin, height - kMargin + 4, "soft", summary());
    return std::move(out_) + "</svg>\n";
  }

 private:
  template <typename... Values>
  void add(fmt::format_string<Values...> text, Values&&... values) {
    fmt::format_to(std::back_inserter(out_), text, std::forward<Values>(values)...);
  }
  void words(float x, float y, const char* classes, const std::string& text, const char* anchor = "start") {
    if (!text.empty())
      add(R"(<text x="{:.1f}" y="{:.1f}" class="{}" text-anchor="{}">{}</text>)"
          "\n",
          x, y, classes, anchor, html::text(text));
  }
  void rect(const LayoutBox& b, const char* classes, float rounding) {
    add(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="{:.0f}" class="{}"/>)", b.x, b.y,
        b.width, b.height, rounding, classes);
  }

  void columns() {
    static constexpr const char* kTitles[] = {"Forward", "Backward", "Optimizer"};
    for (int c = 0; c < kLayoutColumns; ++c) {
      const LayoutBox& column = scene_.layout.columns[static_cast<std::size_t>(c)];
      if (column.width <= 0) continue;
      add("<g class=\"{}\">", kColumns[c]);
      words(column.centre_x(), -14, "title head", kTitles[c], "middle");
      add("</g>\n");
    }
  }

  void open_group(const LayoutGroup& group) {
    const ScopeInfo& scope = model_.scopes[static_cast<std::size_t>(group.scope)];
    const double ns = scope.time_ns[static_cast<std::size_t>(group.column)];
    const std::string cost = ns > 0 ? model_.time_text(ns) : "";
    rect(group.box, "group", 10);
    words(group.box.x + 14, group.box.y + 18, "soft",
          fitted(scope.name, group.box.width - 28 - 7 * static_cast<float>(cost.size()), 6.5F));
    words(group.box.right() - 12, group.box.y + 18, "soft", cost, "end");
  }

  void folded_group(const LayoutGroup& group) {
    const ScopeInfo& scope = model_.scopes[static_cast<std::size_t>(group.scope)];
    const auto c = static_cast<std::size_t>(group.column);
    std::string detail = plural_text(scope.boxes[c], "node");
    if (scope.time_ns[c] > 0)
      detail += " \u00b7 " + model_.time_text(scope.time_ns[c]);
    else if (!scope.timed && scope.flops[c] > 0)
      detail += " \u00b7 " + format_value(scope.flops[c], Unit::kFlop);
    add("<g class=\"{}\"><title>{}</title>", kColumns[c], html::text(scope.path + ": " + detail));
    rect({group.box.x + 4, group.box.y + 4, group.box.width, group.box.height}, "under", 8);
    rect(group.box, "folded", 8);
    words(group.box.x + 12, group.box.y + 18, "", fitted(scope.name, group.box.width - 24, 7.6F));
    words(group.box.x + 12, group.box.y + 35, "soft", fitted(detail, group.box.width - 24, 6.5F));
    add("</g>\n");
  }

  std::string told(const GraphBox& box) const {
    std::string text = box.name + "\n" + box.op + ", " + phase_name(box.phase);
    if (!box.type.empty()) text += "\n" + box.type;
    if (!box.kernel.empty()) text += "\nkernel " + box.kernel;
    if (box.flops > 0) text += "\n" + format_value(box.flops, Unit::kFlop);
    if (!std::isnan(box.time_ns)) text += "\n" + model_.time_text(box.time_ns) + " per step";
    if (!box.passes.empty()) text += "\npasses " + box.passes;
    for (const std::string& name : box.onnx_nodes) text += "\nfrom " + name;
    return text;
  }

  // Lines stay lines: html::text would show what ends them.
  static std::string lines(const std::string& text) {
    std::string made;
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      made += (at == 0 ? "" : "\n") + html::text(std::string_view(text).substr(at, end - at));
      at = end + 1;
    }
    return made;
  }

  void box(std::size_t b) {
    const GraphBox& node = model_.boxes[b];
    const LayoutBox& at = scene_.layout.node_boxes[b];
    const bool input = node.node == kNone;
    add("<g class=\"{}\"><title>{}</title>", node.unsupported ? "bad" : phase_name(node.phase),
        lines(told(node)));
    rect(at, input ? "box input" : "box", input ? at.height / 2 : 6);
    if (!input) rect({at.x, at.y + 1, 4, at.height - 2}, "stripe", 2);
    const float pad = input ? 18 : 13, width = at.width - pad - 8;
    const std::string cost = !std::isnan(node.time_ns)    ? model_.time_text(node.time_ns)
                             : !input && node.flops > 1e5 ? format_value(node.flops, Unit::kFlop)
                                                          : "";
    words(at.x + pad, at.y + at.height * 0.42F, "", fitted(node.title, width, 7.6F));
    words(at.x + pad, at.y + at.height * 0.8F, "soft",
          fitted(node.subtitle, width - 6.5F * static_cast<float>(cost.size()), 6.5F));
    words(at.right() - 8, at.y + at.height * 0.8F, "soft", cost, "end");
    if (!node.passes.empty())
      add(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3.5" class="stripe"/>)", at.right() - 9, at.y + 9);
    add("</g>\n");
  }

  void edge(std::size_t r) {
    const LayoutRoute& route = scene_.layout.routes[r];
    const LayoutPoint* points = &scene_.layout.points[route.first_point];
    if (route.point_count < 2) return;
    std::string path = fmt::format("M{:.1f} {:.1f}", points[0].x, points[0].y);
    for (std::uint32_t i = 1; i < route.point_count; ++i) {
      const LayoutPoint &from = points[i - 1], &to = points[i];
      const float bend = (to.y - from.y) * 0.5F;
      path += std::abs(to.x - from.x) < 1.5F
                  ? fmt::format("L{:.1f} {:.1f}", to.x, to.y)
                  : fmt::format("C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}", from.x, from.y + bend, to.x,
                                to.y - bend, to.x, to.y);
    }
    const double kib = static_cast<double>(scene_.route_bytes[r]) / 1024;
    const double wide = kib > 16 ? std::min(1.6, 0.22 * std::log2(kib / 16)) : 0;
    add(R"(<path d="{}" class="edge" stroke-width="{:.2f}"/>)", path, 1.1 + wide);
    const LayoutPoint &tip = points[route.point_count - 1], &before = points[route.point_count - 2];
    const float d = tip.y > before.y ? -7.F : 7.F;
    add(R"(<path d="M{:.1f} {:.1f}l-3.6 {:.1f}h7.2z" class="tip"/>)"
        "\n",
        tip.x, tip.y, d);
    if (!scene_.route_labelled[r] || scene_.route_value[r] == kNone) return;
    const std::string& shape = model_.value_labels[scene_.route_value[r]];
    const std::string label =
        route.edge_count > 1 ? fmt::format("{}  +{}", shape, route.edge_count - 1) : shape;
    const bool down = points[1].y >= points[0].y;
    if (const auto line = free_line(points[0], label)) {
      const float first = down ? 13.F : -5.F, next = down ? 12.F : -12.F;
      words(points[0].x + 6, points[0].y + first + next * static_cast<float>(*line), "soft", label);
    }
  }

  // Edges that leave one place have room for two labels, and say the same once.
  std::optional<int> free_line(const LayoutPoint& at, const std::string& label) {
    std::vector<std::string>& there = labels_[{std::lround(at.x / 8), std::lround(at.y / 8)}];
    if (there.size() > 1 || std::find(there.begin(), there.end(), label) != there.end()) return std::nullopt;
    there.push_back(label);
    return static_cast<int>(there.size()) - 1;
  }

  std::string summary() const {
    std::size_t folded = 0;
    for (const LayoutGroup& group : scene_.layout.groups) folded += group.collapsed ? 1 : 0;
    std::string text = plural_text(static_cast<std::int64_t>(model_.boxes.size()), "node");
    if (folded > 0) text += ", " + plural_text(static_cast<std::int64_t>(folded), "folded group");
    if (model_.timed) text += ", kernels " + model_.time_text(model_.total_time_ns) + " per step";
    return text;
  }

  const GraphScene& scene_;
  const GraphModel& model_;
  std::map<std::pair<long, long>, std::vector<std::string>> labels_;  // of edges, by where these leave
  std::string out_;
};

}  // namespace

std::string graph_picture(const GraphScene& scene, const std::string& title) {
  return Picture(scene).draw(title);
}

}  // namespace gradloom
