// The graph view's geometry: a layout of a GraphModel for one set of open scopes, with what drawing needs per
// frame precomputed. Built by a background worker; the view shows the old scene until the new one is there.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "viz/layout/layout.h"
#include "viz/model/graph_model.h"

namespace gradloom {

struct GraphScene {
  std::shared_ptr<const GraphModel> model;
  std::vector<bool> collapsed;  // per scope
  std::vector<int32_t> layers;  // per fold, as GraphModel::layout_input takes them
  LayoutResult layout;
  // A shape is what can be pointed at: visible boxes first (id = box index),
  // then groups (id = boxes + group index).
  std::vector<uint32_t> route_first,
      routes_of;                     // routes that start or end at a shape: routes_of[route_first[id] ..]
  std::vector<ValueId> route_value;  // per route: the value of its largest edge
  std::vector<int64_t> route_bytes;  // per route: that value's bytes
  std::vector<LayoutBox> route_bounds;
  // The first of a producer's routes with that value carries the shape label
  std::vector<bool> route_labelled;
  std::vector<uint16_t> saved;  // per box: backward nodes that read its values
  // Where each column has shapes, from the top: few boxes, for drawing the whole of a large graph.
  std::array<std::vector<LayoutBox>, kLayoutColumns> overview;

  size_t shape_count() const { return model->boxes.size() + layout.groups.size(); }
  int32_t shape_of(const LayoutEnd& end) const;
  int32_t shape_of_box(int32_t box) const;  // the box itself, or the collapsed group that hides it
  LayoutBox bounds(int32_t shape) const;
  int32_t group_of(int32_t scope, LayoutColumn column) const;  // index in layout.groups, -1

  // Visible box or collapsed group, else the title strip of an expanded group, at a point; -1.
  int32_t shape_at(float x, float y, float header_height) const;

 private:
  friend std::optional<GraphScene> build_scene(std::shared_ptr<const GraphModel>, std::vector<bool>,
                                               std::stop_token, std::vector<int32_t>);
  std::vector<std::array<int32_t, kLayoutColumns>> groups_of_scope_;
};

std::optional<GraphScene> build_scene(std::shared_ptr<const GraphModel> model, std::vector<bool> collapsed,
                                      std::stop_token stop = {}, std::vector<int32_t> layers = {});

// Builds scenes on its own thread; a newer request cancels the one in progress.
class SceneBuilder {
 public:
  // `ready` is called on the worker when a scene can be taken (to wake the window).
  explicit SceneBuilder(std::function<void()> ready = {});
  ~SceneBuilder();
  SceneBuilder(const SceneBuilder&) = delete;
  SceneBuilder& operator=(const SceneBuilder&) = delete;

  void request(std::shared_ptr<const GraphModel> model, std::vector<bool> collapsed,
               std::vector<int32_t> layers = {});
  std::shared_ptr<const GraphScene> take();  // null when there is no new one
  bool busy() const;                         // builds one, or is about to
  bool is_taken() const;                     // nothing is asked for that was not taken

 private:
  struct Request {
    std::shared_ptr<const GraphModel> model;
    std::vector<bool> collapsed;
    std::vector<int32_t> layers;
  };
  void work(std::stop_token stop);

  std::function<void()> ready_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<Request> request_;
  std::stop_source current_;
  std::shared_ptr<const GraphScene> result_;
  bool working_ = false;
  std::jthread thread_;  // last: starts when everything else exists
};

}  // namespace gradloom
