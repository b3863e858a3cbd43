#include "viz/model/scene.h"

#include <algorithm>
#include <set>
#include <utility>

namespace gradloom {

int32_t GraphScene::group_of(int32_t scope, LayoutColumn column) const {
  return scope < 0 ? -1 : groups_of_scope_[scope][static_cast<int>(column)];
}

int32_t GraphScene::shape_of(const LayoutEnd& end) const {
  if (end.node >= 0) return end.node;
  return static_cast<int32_t>(model->boxes.size()) + group_of(end.scope, end.column);
}

int32_t GraphScene::shape_of_box(int32_t box) const {
  if (layout.hidden_in[box] < 0) return box;
  return static_cast<int32_t>(model->boxes.size()) +
         group_of(layout.hidden_in[box], model->boxes[box].column);
}

LayoutBox GraphScene::bounds(int32_t shape) const {
  const auto boxes = static_cast<int32_t>(model->boxes.size());
  return shape < boxes ? layout.node_boxes[shape] : layout.groups[shape - boxes].box;
}

int32_t GraphScene::shape_at(float x, float y, float header_height) const {
  const auto boxes = static_cast<int32_t>(model->boxes.size());
  for (int32_t b = 0; b < boxes; ++b) {
    if (layout.hidden_in[b] < 0 && layout.node_boxes[b].contains(x, y)) return b;
  }
  for (int32_t g = static_cast<int32_t>(layout.groups.size());
       g-- > 0;) {  // inner groups come after outer ones
    const LayoutGroup& group = layout.groups[g];
    LayoutBox hit = group.box;
    if (!group.collapsed) hit.height = std::min(hit.height, header_height);
    if (hit.contains(x, y)) return boxes + g;
  }
  return -1;
}

namespace {

// Shapes that are closer than a 300th of the graph's height are one box.
std::vector<LayoutBox> merged(std::vector<LayoutBox> shapes, float height) {
  std::sort(shapes.begin(), shapes.end(), [](const LayoutBox& a, const LayoutBox& b) { return a.y < b.y; });
  std::vector<LayoutBox> boxes;
  for (const LayoutBox& shape : shapes) {
    if (boxes.empty() || shape.y > boxes.back().bottom() + height / 300) {
      boxes.push_back(shape);
      continue;
    }
    LayoutBox& last = boxes.back();
    const float right = std::max(last.right(), shape.right()),
                bottom = std::max(last.bottom(), shape.bottom());
    last.x = std::min(last.x, shape.x);
    last.width = right - last.x;
    last.height = bottom - last.y;
  }
  return boxes;
}

void find_overview(GraphScene& scene) {
  std::array<std::vector<LayoutBox>, kLayoutColumns> shapes;
  for (size_t b = 0; b < scene.model->boxes.size(); ++b)
    if (scene.layout.hidden_in[b] < 0)
      shapes[static_cast<size_t>(scene.model->boxes[b].column)].push_back(scene.layout.node_boxes[b]);
  for (const LayoutGroup& group : scene.layout.groups)
    if (group.collapsed) shapes[static_cast<size_t>(group.column)].push_back(group.box);
  for (size_t c = 0; c < shapes.size(); ++c)
    scene.overview[c] = merged(std::move(shapes[c]), scene.layout.height);
}

}  // namespace

std::optional<GraphScene> build_scene(std::shared_ptr<const GraphModel> model, std::vector<bool> collapsed,
                                      std::stop_token stop, std::vector<int32_t> layers) {
  GraphScene scene;
  collapsed.resize(model->scopes.size(), true);
  auto layout = layout_graph(model->layout_input(collapsed, layers), stop);
  if (!layout) return std::nullopt;
  scene.model = std::move(model);
  scene.collapsed = std::move(collapsed);
  scene.layers = std::move(layers);
  scene.layout = std::move(*layout);
  find_overview(scene);
  const GraphModel& m = *scene.model;
  const LayoutResult& l = scene.layout;

  scene.groups_of_scope_.assign(m.scopes.size(), {-1, -1, -1});
  for (size_t g = 0; g < l.groups.size(); ++g) {
    scene.groups_of_scope_[l.groups[g].scope][static_cast<int>(l.groups[g].column)] = static_cast<int32_t>(g);
  }
  scene.route_value.assign(l.routes.size(), kNone);
  scene.route_bytes.assign(l.routes.size(), 0);
  scene.saved.assign(m.boxes.size(), 0);
  for (size_t e = 0; e < m.links.size(); ++e) {
    const GraphLink& link = m.links[e];
    if (link.saved) ++scene.saved[link.src];
    const int32_t route = l.edge_route[e];
    if (route < 0) continue;
    int64_t bytes = 0;
    for (const PortInfo& port : m.boxes[link.dst].inputs) {
      if (port.box == static_cast<int32_t>(link.src)) bytes = std::max(bytes, port.bytes);
    }
    if (scene.route_value[route] == kNone || bytes > scene.route_bytes[route]) {
      scene.route_value[route] = link.value;
      scene.route_bytes[route] = bytes;
    }
  }
  const size_t shapes = scene.shape_count();
  scene.route_first.assign(shapes + 1, 0);
  for (const LayoutRoute& route : l.routes) {
    ++scene.route_first[scene.shape_of(route.src) + 1];
    ++scene.route_first[scene.shape_of(route.dst) + 1];
  }
  for (size_t i = 0; i < shapes; ++i) scene.route_first[i + 1] += scene.route_first[i];
  scene.routes_of.resize(2 * l.routes.size());
  std::vector<uint32_t> cursor(scene.route_first.begin(), scene.route_first.end() - 1);
  std::set<std::pair<int32_t, ValueId>> labelled;
  for (uint32_t r = 0; r < l.routes.size(); ++r) {
    const LayoutRoute& route = l.routes[r];
    const int32_t src = scene.shape_of(route.src);
    scene.routes_of[cursor[src]++] = r;
    scene.routes_of[cursor[scene.shape_of(route.dst)]++] = r;
    scene.route_labelled.push_back(route.kind == LayoutRouteKind::kFlow &&
                                   labelled.emplace(src, scene.route_value[r]).second);
    LayoutBox bounds{1e30f, 1e30f, 0, 0};
    float right = -1e30f, bottom = -1e30f;
    for (uint32_t p = route.first_point; p < route.first_point + route.point_count; ++p) {
      bounds.x = std::min(bounds.x, l.points[p].x);
      bounds.y = std::min(bounds.y, l.points[p].y);
      right = std::max(right, l.points[p].x);
      bottom = std::max(bottom, l.points[p].y);
    }
    bounds.width = right - bounds.x;
    bounds.height = bottom - bounds.y;
    scene.route_bounds.push_back(bounds);
  }
  return scene;
}

SceneBuilder::SceneBuilder(std::function<void()> ready)
    : ready_(std::move(ready)), thread_([this](std::stop_token stop) { work(stop); }) {}

SceneBuilder::~SceneBuilder() {
  thread_.request_stop();
  const std::lock_guard lock(mutex_);
  current_.request_stop();
}

void SceneBuilder::request(std::shared_ptr<const GraphModel> model, std::vector<bool> collapsed,
                           std::vector<int32_t> layers) {
  const std::lock_guard lock(mutex_);
  request_ = Request{std::move(model), std::move(collapsed), std::move(layers)};
  current_.request_stop();
  changed_.notify_all();
}

std::shared_ptr<const GraphScene> SceneBuilder::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(result_, nullptr);
}

bool SceneBuilder::busy() const {
  const std::lock_guard lock(mutex_);
  return working_ || request_.has_value();
}

bool SceneBuilder::is_taken() const {
  const std::lock_guard lock(mutex_);
  return !working_ && !request_ && !result_;
}

void SceneBuilder::work(std::stop_token stop) {
  while (true) {
    Request request;
    std::stop_token build_stop;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return request_.has_value(); })) return;
      request = std::move(*request_);
      request_.reset();
      current_ = std::stop_source();
      build_stop = current_.get_token();
      working_ = true;
    }
    auto scene = build_scene(std::move(request.model), std::move(request.collapsed), build_stop,
                             std::move(request.layers));
    {
      const std::lock_guard lock(mutex_);
      working_ = false;
      if (scene) result_ = std::make_shared<const GraphScene>(std::move(*scene));
    }
    if (scene && ready_) ready_();
  }
}

}  // namespace gradloom
