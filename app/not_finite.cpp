#include "app/not_finite.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "app/rank_message.h"
#include "app/ranks.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ops/collectives/share_parameters.h"

namespace gradloom {
namespace {

template <class Number>
void add_numbers(const void* data, std::int64_t count, OperandRange& range) {
  const auto* const numbers = static_cast<const Number*>(data);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(numbers[i]);
    if (std::isnan(x)) {
      ++range.nan;
    } else if (std::isinf(x)) {
      ++(x > 0 ? range.positive_infinite : range.negative_infinite);
    } else {
      range.least = std::min(range.least, x);
      range.most = std::max(range.most, x);
    }
  }
}

// Ranges of what the step has read and made so far, and the verdict on each kernel.
class NotFiniteSearch {
 public:
  NotFiniteSearch(const Job& job, std::int64_t step, const UsualKernels* usual, UsualKernels* met)
      : job_(job), graph_(job.compiled().train.graph), step_(step), usual_(usual), met_(met) {}

  // False: found, the rest of the step need not run.
  Result<bool> look(std::int32_t plan_step, std::int64_t micro, bool after) {
    if (micro != micro_) ranges_.clear();  // other contents
    micro_ = micro;
    const Node& node = graph_.nodes[job_.compiled().plan.steps[static_cast<std::size_t>(plan_step)].node];
    if (found_) return true;  // the rest of a step that is made whole
    if (node.op->exchanges()) {
      // Other ranks' numbers, and perhaps not there before somebody waits for them.
      for (const ValueId id : node.outputs) ranges_.erase(id);
      return true;
    }
    if (!after) {
      for (const ValueId id : node.inputs)
        if (TRY(look_at(id)) && !TRY(judge_source(id))) return false;
      return true;
    }
    for (const ValueId id : node.outputs) {
      ranges_.erase(id);
      TRY(look_at(id));
    }
    return judge(plan_step, node);
  }
  std::optional<NotFinite> found() { return found_ ? std::move(found_) : std::move(doubtful_); }

 private:
  // Whether the value is a tensor of floats, whose range is known then.
  Result<bool> look_at(ValueId id) {
    if (id == kNone) return false;
    const Value& value = graph_.values[id];
    const bool real = is_float(value.type.dtype) || is_small_float(value.type.dtype);
    if (!real || job_.compiled().plan.buffer_of[id] < 0) return false;
    if (ranges_.count(id) == 0) ranges_[id] = range_of(value.name, TRY(job_.state_view(id)));
    return true;
  }
  std::vector<OperandRange> ranges_of(const std::vector<ValueId>& values) const {
    std::vector<OperandRange> ranges;
    for (const ValueId id : values)
      if (const auto it = ranges_.find(id); it != ranges_.end()) ranges.push_back(it->second);
    return ranges;
  }
  // What nothing made: NaN there is no kernel's doing.
  Result<bool> judge_source(ValueId id) {
    const Value& value = graph_.values[before_gather(graph_, id)];
    if (value.producer != kNone || value.role == Role::constant || ranges_.at(id).nan == 0) return true;
    if (usual_ == nullptr) return true;
    NotFinite source{step_, micro_, -1, {}, {}, {ranges_.at(id)}};
    source.kernel.op = value.role == Role::input       ? "input"
                       : value.role == Role::parameter ? "parameter"
                                                       : "state";
    found_ = std::move(source);
    return false;
  }
  Result<bool> judge(std::int32_t plan_step, const Node& node) {
    const std::vector<OperandRange> inputs = ranges_of(node.inputs), outputs = ranges_of(node.outputs);
    const auto not_finite = [](const OperandRange& r) { return r.not_finite() > 0; };
    if (std::none_of(outputs.begin(), outputs.end(), not_finite) ||
        std::any_of(inputs.begin(), inputs.end(), not_finite))
      return true;
    if (met_ != nullptr) met_->insert(plan_step);
    if (usual_ == nullptr || usual_->count(plan_step) != 0) return true;
    NotFinite one{step_,  micro_, plan_step, job_.kernels()[static_cast<std::size_t>(plan_step)],
                  inputs, outputs};
    const bool certain = std::any_of(outputs.begin(), outputs.end(),
                                     [](const OperandRange& r) { return r.nan + r.positive_infinite > 0; });
    if (certain)
      found_ = std::move(one);
    else if (!doubtful_)
      doubtful_ = std::move(one);
    return !certain;
  }

  const Job& job_;
  const Graph& graph_;
  const std::int64_t step_;
  const UsualKernels* const usual_;
  UsualKernels* const met_;
  std::int64_t micro_ = 0;
  std::map<ValueId, OperandRange> ranges_;
  std::optional<NotFinite> found_, doubtful_;
};

Json range_json(const OperandRange& r) {
  return {{"name", r.name},   {"type", to_string(r.type)},    {"min", r.least}, {"max", r.most},
          {"count", r.count}, {"not_finite", r.not_finite()}, {"nan", r.nan}};
}

std::string range_text(const OperandRange& r) {
  std::string text = escaped(r.name) + " " + to_string(r.type);
  if (r.not_finite() < r.count) text += " from " + short_text(r.least) + " to " + short_text(r.most);
  if (r.not_finite() == 0) return text;
  text += " with " + std::to_string(r.not_finite()) + " of " + std::to_string(r.count) + " not finite (";
  std::string kinds;
  for (const auto& [count, name] : {std::pair(r.nan, "NaN"), std::pair(r.positive_infinite, "inf"),
                                    std::pair(r.negative_infinite, "-inf")})
    if (count > 0) kinds += (kinds.empty() ? "" : ", ") + std::to_string(count) + " " + name;
  return text + kinds + ")";
}

std::string list_text(const std::vector<OperandRange>& ranges) {
  std::string text;
  for (const OperandRange& r : ranges) text += (text.empty() ? "" : "; ") + range_text(r);
  return text.empty() ? "no floats" : text;
}

}  // namespace

OperandRange range_of(const std::string& name, const Tensor& tensor) {
  OperandRange range{name, tensor.type(), INFINITY, -INFINITY, tensor.count(), 0, 0, 0};
  switch (tensor.dtype()) {
    case DType::f32: add_numbers<float>(tensor.data(), range.count, range); break;
    case DType::f64: add_numbers<double>(tensor.data(), range.count, range); break;
    default: {
      const Tensor wide = tensor.cast(DType::f32);
      add_numbers<float>(wide.data(), range.count, range);
    }
  }
  if (range.not_finite() == range.count) range.least = range.most = 0;
  return range;
}

Result<std::optional<NotFinite>> find_not_finite(Job& job, std::int64_t step, const UsualKernels* usual,
                                                 UsualKernels* met) {
  NotFiniteSearch search(job, step, usual, met);
  const bool whole = World::current() != nullptr;
  TRY(job.observe(step, [&](std::int32_t plan_step, std::int64_t micro, bool after) -> Result<bool> {
    return TRY(search.look(plan_step, micro, after)) || whole;
  }));
  return search.found();
}

namespace {

Json json_of(const NotFinite& found) {
  Json json = {{"step", found.step}, {"micro", found.micro}, {"plan_step", found.plan_step}};
  const KernelInfo& k = found.kernel;
  json["op"] = k.op;
  if (found.plan_step >= 0) {
    json["kernel"] = k.kernel;
    json["node"] = k.node;
    json["phase"] = k.phase;
    json["onnx_nodes"] = k.onnx_nodes;
  }
  for (const OperandRange& r : found.inputs) json["inputs"].push_back(range_json(r));
  for (const OperandRange& r : found.outputs) json["outputs"].push_back(range_json(r));
  return json;
}

std::string not_finite_text(const NotFinite& found) {
  const KernelInfo& k = found.kernel;
  if (found.plan_step < 0)
    return "what step " + std::to_string(found.step) + " was given is not finite: " + k.op + " " +
           list_text(found.outputs);
  std::string nodes;
  for (const std::string& name : k.onnx_nodes) {
    if (nodes.size() > 300) {
      nodes += ", ..";
      break;
    }
    nodes += (nodes.empty() ? "" : ", ") + escaped(name);
  }
  return "the first result that is not finite, in step " + std::to_string(found.step) + ": kernel " +
         escaped(k.kernel) + " of node " + escaped(k.node) + " (" + k.op + ", " + k.phase +
         (nodes.empty() ? "" : ", ONNX node " + nodes) + ") made " + list_text(found.outputs) + " out of " +
         list_text(found.inputs);
}

}  // namespace

NotFiniteReport not_finite_report(const NotFinite& found) { return {json_of(found), not_finite_text(found)}; }

Result<std::optional<NotFiniteReport>> first_report(const std::optional<NotFinite>& found) {
  // Of two in the same step of their plans the lower rank's.
  constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::max(),
                         kMostSteps = std::int64_t{1} << 32;
  const std::vector<std::int64_t> places =
      TRY(of_all_ranks(found ? found->micro * kMostSteps + found->plan_step + 1 : kNothing));
  const auto first = std::min_element(places.begin(), places.end());
  if (*first == kNothing) return std::optional<NotFiniteReport>();
  RankMessage mine;
  if (found) {
    mine.add(json_of(*found).dump());
    mine.add(not_finite_text(*found));
  }
  const auto rank = static_cast<std::size_t>(first - places.begin());
  RankMessage told(TRY(bytes_of_rank(rank, mine.bytes())));
  NotFiniteReport report{Json::parse(told.text()), ""};
  report.json["rank"] = rank;
  report.text = "rank " + std::to_string(rank) + ": " + told.text();
  return std::optional(std::move(report));
}

}  // namespace gradloom
