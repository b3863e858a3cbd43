// A compiled graph as a file for viewers, as its name ends: .json for Google's Model Explorer (viz/report/model_explorer.h), .svg as the graph
// view draws it (viz/report/graph_picture.h).
#pragma once

#include <stop_token>
#include <string>

#include "app/job.h"
#include "sessions/store.h"

namespace gradloom {

bool is_viewers_graph(const std::string& path);  // its name ends so

struct GraphFileOptions {
  std::size_t boxes = 60;          // of a picture, about: scopes are opened level by level while they fit
  const RunRecord* run = nullptr;  // whose times it shows; null: none
};
struct WrittenGraph {
  std::size_t nodes = 0;
  bool timed = false;
};
// REQUIRES is_viewers_graph(path). Errors: Errc::io; Errc::interrupted when stopped.
Result<WrittenGraph> write_viewers_graph(const Prepared& prepared, const GraphFileOptions& options,
                                         const std::string& path, std::stop_token stop);

}  // namespace gradloom
