// The controller's comparison of graphs: the step as it stands with another recipe's, or as a run had it.
#include <utility>

#include "app/desktop/controller.h"
#include "engine/base/text.h"
#include "viz/model/graph_diff.h"

namespace gradloom {
namespace {

constexpr const char* kBefore = "before the last change";

// The times of the shown run, where it is one of this very plan.
void give_times(DiffGraph& graph, const GraphModel& model) {
  if (!model.timed || !model.other_plan.empty()) return;
  graph.times = "measured";
  for (DiffNode& node : graph.nodes)
    if (const std::int32_t box = model.find(node.name); box >= 0)
      node.time_ns = model.boxes[static_cast<std::size_t>(box)].time_ns;
}

DiffGraph graph_of(const PlanSnapshot& plan, const char* name) {
  return diff_graph_of(plan.graph(), plan.plan(), name);
}

Result<DiffGraph> graph_of_run(const std::string& session, const std::string& side) {
  auto store = TRY(Store::open(session, StoreMode::read));
  return diff_graph_of(TRY(store->load_run(TRY(store->find_run(side.substr(kSideOfRun.size()))))));
}

}  // namespace

std::vector<std::string> Controller::diff_sides() const {
  std::vector<std::string> sides;
  if (state_.baseline) sides.emplace_back(kAllPassesOff);
  if (plan_before_) sides.emplace_back(kBefore);
  if (state_.session)
    for (const RunSummary& run : state_.session->runs)
      if (run.has_recipe() && run.kernels_per_step > 0)
        sides.push_back(std::string(kSideOfRun) + std::to_string(run.id));
  return sides;
}

void Controller::diff_against(const std::string& side) {
  state_.difference.against = side;
  state_.difference.difference.reset();
  state_.difference.problem.clear();
  if (side.empty()) state_.difference = {};
  make_difference();
}

void Controller::make_difference() {
  const std::string side = state_.difference.against;
  const auto other = side == kAllPassesOff ? state_.baseline : side == kBefore ? plan_before_ : nullptr;
  const auto after = state_.graphs.after;
  if (side.empty() || !after || !after->plan) return;
  if (!other && !side.starts_with(kSideOfRun)) {  // of a model that is closed
    state_.difference = {};
    return;
  }
  reader_->post(
      "difference", "comparing graphs",
      [this, side, other, after, session = state_.session_path](std::stop_token) -> Worker::Publish {
        const auto made = [&]() -> Result<GraphDifference> {
          DiffGraph now = graph_of(*after->plan, "the step as it stands");
          give_times(now, after->model);
          return difference_of(other ? graph_of(*other, side.c_str()) : TRY(graph_of_run(session, side)),
                               std::move(now));
        }();
        DifferenceView view{side, nullptr, "", after->plan, false};
        if (made)
          view.difference = std::make_shared<const GraphDifference>(*made);
        else
          view.problem = made.error().message;
        return [this, view]() mutable {
          if (state_.difference.against != view.against) return;
          view.marked = state_.difference.marked;
          state_.difference = std::move(view);
        };
      });
}

}  // namespace gradloom
