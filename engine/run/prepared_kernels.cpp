#include "engine/run/prepared_kernels.h"

#include <string>

#include "engine/base/text.h"
#include "engine/plan/planned_types.h"

namespace gradloom {

Result<std::vector<std::unique_ptr<PreparedKernel>>> prepared_kernels(const Graph& graph, const Plan& plan,
                                                                      Device& device) {
  std::vector<KernelRequest> requests;
  for (const PlanStep& step : plan.steps) {
    const Node& node = graph.nodes[step.node];
    requests.push_back({node.op, planned_types(graph, plan, node), node.name});
  }
  std::vector<std::unique_ptr<PreparedKernel>> kernels = TRY(device.prepare(requests));
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const auto wanted = static_cast<std::int64_t>(kernels[i]->workspace_bytes());
    if (wanted > plan.steps[i].workspace_bytes)
      return Error{Errc::bug, "node '" + escaped(requests[i].node) + "': its kernel wants " +
                                  std::to_string(wanted) + " bytes of workspace, the plan has " +
                                  std::to_string(plan.steps[i].workspace_bytes) + " for it"};
  }
  return kernels;
}

}  // namespace gradloom
