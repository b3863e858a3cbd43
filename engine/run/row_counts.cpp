#include "engine/run/row_counts.h"

#include <algorithm>
#include <set>

#include "engine/ops/padding/packed_rows.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

constexpr std::int64_t kMostOfMask = 4;  // elements of a value on the way, by those of the mask

bool known_beforehand(const Value& value) {
  return value.producer == kNone && value.role == Role::constant && value.data.defined();
}

}  // namespace

Result<bool> RowCounts::reach(const Graph& graph, ValueId value, std::int64_t most) {
  if (contents_.count(value) != 0 || same_.count(value) != 0) return true;
  const Value& of = graph.value(value);
  if (!is_static(of.type.shape) || element_count(of.type.shape) > most) return false;
  if (known_beforehand(of)) {
    contents_[value] = TRY(of.data.loaded());
    return true;
  }
  if (of.producer == kNone) {
    if (of.role != Role::input) return false;
    if (std::find(inputs_.begin(), inputs_.end(), value) == inputs_.end()) inputs_.push_back(value);
    return true;
  }
  const Node& node = graph.nodes[of.producer];
  const bool view = node.op->has(kView);
  if (node.op->has(kRandom) || node.op->has(kMustAlias) || (!view && node.op->cpu == nullptr)) return false;
  for (std::size_t i = 0; i < (view ? 1 : node.inputs.size()); ++i)
    if (node.inputs[i] != kNone && !TRY(reach(graph, node.inputs[i], most))) return false;
  if (view) {
    same_[value] = node.inputs[0];
    return true;
  }
  for (const ValueId out : node.outputs)
    if (out != kNone && element_count(graph.type(out).shape) > most) return false;
  auto kernel = prepare_kernel(*node.op, node_types(graph, node));
  if (!kernel) return false;  // the host has none
  Step step{std::move(*kernel), node.inputs, node.outputs};
  step.in.resize(node.inputs.size());
  for (const ValueId out : node.outputs) {
    if (out != kNone) contents_[out] = Tensor(graph.type(out).dtype, graph.type(out).shape);
    step.out.push_back(out == kNone ? nullptr : contents_[out].mutable_data());
  }
  workspace_.resize(std::max(workspace_.size(), step.kernel.workspace_bytes));
  steps_.push_back(std::move(step));
  return true;
}

Status RowCounts::prepare(const Graph& graph, const Plan& plan) {
  std::set<ValueId> counts;
  for (const PlanStep& step : plan.steps)
    if (counts_rows(graph.nodes[step.node])) counts.insert(graph.nodes[step.node].inputs[0]);
  for (const ValueId count : counts) {
    const NodeId from = graph.value(count).producer;
    CHECK(from != kNone && is_op(graph.nodes[from], "TokenRows"), "rows that TokenRows does not count");
    const std::int64_t positions = element_count(graph.type(graph.nodes[from].inputs[0]).shape);
    if (!TRY(reach(graph, count, kMostOfMask * positions))) {
      *this = RowCounts();
      return {};
    }
    masks_.push_back({static_cast<const std::int64_t*>(contents_.at(count).data()), positions});
  }
  for (const auto& [value, tensor] : contents_) addresses_[value] = tensor.data();
  for (const ValueId input : inputs_) addresses_[input] = nullptr;
  return {};
}

std::int64_t RowCounts::rows(const std::function<const void*(ValueId)>& sent) {
  for (const ValueId input : inputs_)
    if ((addresses_[input] = sent(input)) == nullptr) return kAll;
  const auto address = [&](ValueId value) -> const void* {
    while (same_.count(value) != 0) value = same_.at(value);
    return value == kNone ? nullptr : addresses_.at(value);
  };
  for (Step& step : steps_) {
    std::transform(step.inputs.begin(), step.inputs.end(), step.in.begin(), address);
    step.kernel.run({step.in.data(), step.out.data(), workspace_.data(), nullptr, kernels::cpu_launcher()});
  }
  std::int64_t rows = 0;
  for (const Mask& mask : masks_)
    rows = std::max(rows, rows_of_step(row_step(*mask.count, mask.positions), mask.positions));
  return rows;
}

}  // namespace gradloom
