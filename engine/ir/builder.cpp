#include "engine/ir/builder.h"

#include <algorithm>

#include "engine/base/names.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

// What stands for a name in the table of names: its hash, whose seed is new in every process, so that no file can
// choose names that all fall together there (engine/base/names.h). Short enough to take no memory of its own. Two names of one
// hash would only make a free name count as taken.
std::string key_of(const std::string& name) {
  const std::size_t hash = NameHash()(name);
  return {reinterpret_cast<const char*>(&hash), sizeof hash};
}

}  // namespace

std::string GraphBuilder::unique_name(const std::string& base) {
  // Index what was appended since the last call, by whomever: names never leave a graph.
  if (names_.empty()) names_.reserve(graph_.values.size() + graph_.nodes.size());
  for (; indexed_values_ < graph_.values.size(); ++indexed_values_)
    names_.insert(key_of(graph_.values[indexed_values_].name));
  for (; indexed_nodes_ < graph_.nodes.size(); ++indexed_nodes_)
    names_.insert(key_of(graph_.nodes[indexed_nodes_].name));
  if (names_.insert(key_of(base)).second) return base;
  int& counter = counters_[base];
  std::string name;
  do name = base + "_" + std::to_string(++counter);
  while (!names_.insert(key_of(name)).second);
  return name;
}

ValueId GraphBuilder::input(const std::string& name, Type type, Role role) {
  const auto id = static_cast<ValueId>(graph_.values.size());
  Value v;
  v.name = name;
  v.type = std::move(type);
  v.has_type = true;
  v.role = role;
  graph_.values.push_back(std::move(v));
  if (role == Role::input) graph_.inputs.push_back(id);
  return id;
}

ValueId GraphBuilder::parameter(const std::string& name, Tensor data) {
  const ValueId id = input(name, data.type(), Role::parameter);
  graph_.values[id].data = std::move(data);
  graph_.parameters.push_back(id);
  return id;
}

ValueId GraphBuilder::state(const std::string& name, Tensor initial) {
  const ValueId id = input(name, initial.type(), Role::state);
  graph_.values[id].data = std::move(initial);
  return id;
}

ValueId GraphBuilder::constant(Tensor data, const std::string& name) {
  std::string key;
  if (name.empty() && data.bytes() <= 64) {
    key = to_string(data.type()) + std::string(static_cast<const char*>(data.data()), data.bytes());
    const auto it = constants_.find(key);
    if (it != constants_.end()) return it->second;
  }
  const ValueId id =
      input(name.empty() ? unique_name(context_.name_prefix + "const") : name, data.type(), Role::constant);
  graph_.values[id].data = std::move(data);
  if (!key.empty()) constants_[key] = id;
  return id;
}

Result<std::vector<ValueId>> GraphBuilder::add(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs,
                                               int output_count, const std::vector<std::string>& output_names,
                                               const std::string& node_name) {
  InferContext ctx{graph_, attrs, inputs, output_count,
                   std::vector<Type>(static_cast<std::size_t>(output_count))};
  CHECK(op.infer != nullptr, "operator without inference");
  TRY(op.infer(ctx));
  const auto node_id = static_cast<NodeId>(graph_.nodes.size());
  Node node;
  node.op = &op;
  node.attrs = std::move(attrs);
  node.inputs = std::move(inputs);
  named_last_ = node_name.empty();
  node.name = named_last_ ? unique_name(context_.name_prefix + op.name) : node_name;
  node.origin = context_.origin;
  node.rank = context_.rank;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(output_count); ++i) {
    Value v;
    const bool named = i < output_names.size();
    if (named && output_names[i].empty()) {  // an omitted optional output
      node.outputs.push_back(kNone);
      continue;
    }
    v.name = named ? output_names[i]
                   : unique_name(context_.name_prefix + op.name + (i ? "." + std::to_string(i) : "") + ":v");
    v.type = std::move(ctx.outputs[i]);
    v.has_type = true;
    v.role = context_.origin.phase == Phase::backward ? Role::gradient : Role::activation;
    v.producer = node_id;
    v.output_index = i;
    node.outputs.push_back(static_cast<ValueId>(graph_.values.size()));
    graph_.values.push_back(std::move(v));
  }
  std::vector<ValueId> outputs = node.outputs;
  graph_.nodes.push_back(std::move(node));
  return outputs;
}

ValueId GraphBuilder::add_output(NodeId node_id, std::size_t index) {
  Node& node = graph_.nodes[node_id];
  const std::size_t count = std::max(node.outputs.size(), index + 1);
  InferContext ctx{graph_, node.attrs, node.inputs, static_cast<int>(count), std::vector<Type>(count)};
  const Status inferred = node.op->infer(ctx);
  CHECK(inferred.ok(),
        (std::string(node.op->name) + ": " + (inferred.ok() ? "" : inferred.error().message)).c_str());
  node.outputs.resize(count, kNone);
  Value v;
  v.name = unique_name(node.name + ":out" + std::to_string(index));
  v.type = ctx.outputs[index];
  v.has_type = true;
  v.producer = node_id;
  v.output_index = static_cast<std::uint32_t>(index);
  const auto id = static_cast<ValueId>(graph_.values.size());
  node.outputs[index] = id;
  graph_.values.push_back(std::move(v));
  return id;
}

std::vector<ValueId> GraphBuilder::ops(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs,
                                       int output_count) {
  auto result = add(op, std::move(inputs), std::move(attrs), output_count);
  CHECK(result.ok(), (std::string(op.name) + ": " + (result.ok() ? "" : result.error().message)).c_str());
  return std::move(result).value();
}

ValueId GraphBuilder::op(const OpDef& def, std::vector<ValueId> inputs, Attrs attrs) {
  return ops(def, std::move(inputs), std::move(attrs), 1)[0];
}

ValueId GraphBuilder::op(const char* name, std::vector<ValueId> inputs, Attrs attrs) {
  return op(op_by_name(name), std::move(inputs), std::move(attrs));
}

ValueId GraphBuilder::reshape(ValueId value, Shape shape) {
  Attrs attrs;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) attrs.set("allowzero", std::int64_t{1});
  return op("Reshape", {value, i64s(shape)}, std::move(attrs));
}

}  // namespace gradloom
