#include "viz/report/model_explorer.h"

#include <nlohmann/json.hpp>

#include "engine/base/text.h"

namespace gradloom {
namespace {

using Json = nlohmann::ordered_json;

Json attribute(const char* key, std::string value) { return {{"key", key}, {"value", std::move(value)}}; }

class ExplorerWriter {
 public:
  explicit ExplorerWriter(const GraphModel& model) : model_(model) {
    for (const GraphBox& box : model.boxes) {
      std::string id = box.name;  // a graph input may have the name of a node
      while (!used_.insert(id).second) id += "'";
      ids_.push_back(std::move(id));
    }
  }

  Json nodes() const {
    Json list = Json::array();
    for (std::size_t b = 0; b < model_.boxes.size(); ++b) list.push_back(node(b));
    return list;
  }

  // The phases, and in them each scope that has nodes.
  Json groups(const std::map<std::string, std::string>& about) const {
    Json made = Json::object();
    for (const auto& [name, value] : about) made[""][name] = value;
    for (const ScopeInfo& scope : model_.scopes)
      for (int c = 0; c < kLayoutColumns; ++c) {
        if (scope.boxes[c] == 0 || scope.box_of >= 0) continue;
        Json& group = made[kColumns[c] + ("/" + path(scope.path))];
        group["nodes"] = std::to_string(scope.boxes[c]);
        group["FLOPs"] = number_text(scope.flops[c]);
        group["bytes"] = number_text(scope.bytes[c]);
        if (scope.timed) group["time per step"] = duration_text(scope.time_ns[c]);
      }
    return made;
  }

 private:
  static constexpr const char* kColumns[] = {"forward", "backward", "optimizer"};

  // Without empty parts, which would be boxes without a name.
  static std::string path(const std::string& scope) {
    std::string made;
    for (const char c : scope)
      if (c != '/' || (!made.empty() && made.back() != '/')) made += c;
    while (!made.empty() && made.back() == '/') made.pop_back();
    return made;
  }

  std::string name_space(const GraphBox& box) const {
    const std::string phase = kColumns[static_cast<int>(box.column)];
    const std::string scope =
        box.scope < 0 ? "" : path(model_.scopes[static_cast<std::size_t>(box.scope)].path);
    return scope.empty() ? phase : phase + "/" + scope;
  }

  Json node(std::size_t b) const {
    const GraphBox& box = model_.boxes[b];
    Json made = {{"id", ids_[b]},
                 {"label", box.node == kNone ? box.name : box.op},
                 {"namespace", name_space(box)},
                 {"attrs", attributes(box)}};
    Json edges = Json::array(), inputs = Json::array(), outputs = Json::array();
    for (std::size_t i = 0; i < box.inputs.size(); ++i) {
      const PortInfo& port = box.inputs[i];
      if (port.box >= 0) edges.push_back(edge(port, i));
      if (port.box < 0 && !port.role.empty())
        inputs.push_back({{"id", std::to_string(i)},
                          {"attrs",
                           {attribute("__tensor_tag", port.value), attribute("type", port.type),
                            attribute("role", port.role)}}});
    }
    for (std::size_t i = 0; i < box.outputs.size(); ++i) {
      const PortInfo& port = box.outputs[i];
      outputs.push_back({{"id", std::to_string(i)},
                         {"attrs",
                          {attribute("tensor_shape", port.type), attribute("tensor_name", port.value),
                           attribute("role", port.role), attribute("bytes", std::to_string(port.bytes))}}});
    }
    made["incomingEdges"] = std::move(edges);
    made["inputsMetadata"] = std::move(inputs);
    made["outputsMetadata"] = std::move(outputs);
    return made;
  }

  Json edge(const PortInfo& port, std::size_t input) const {
    const auto source = static_cast<std::size_t>(port.box);
    const std::vector<PortInfo>& from = model_.boxes[source].outputs;
    std::size_t output = 0;
    while (output + 1 < from.size() && from[output].value != port.value) ++output;
    return {{"sourceNodeId", ids_[source]},
            {"sourceNodeOutputId", std::to_string(output)},
            {"targetNodeInputId", std::to_string(input)}};
  }

  Json attributes(const GraphBox& box) const {
    Json list = Json::array();
    const auto add = [&](const char* key, std::string value) {
      if (!value.empty()) list.push_back(attribute(key, std::move(value)));
    };
    add("name", box.name);
    if (box.node == kNone) return list;
    add("phase", phase_name(box.phase));
    add("attributes", box.attributes);
    std::string sources;
    for (const std::string& name : box.onnx_nodes) sources += (sources.empty() ? "" : " ") + name;
    add("ONNX nodes", sources);
    add("passes", box.passes);
    if (box.unsupported) add("note", "not supported");
    if (box.plan_step < 0) return list;
    add("kernel", box.kernel);
    add("plan step", std::to_string(box.plan_step));
    add("FLOPs", number_text(box.flops));
    add("bytes read", number_text(box.bytes_read));
    add("bytes written", number_text(box.bytes_written));
    if (std::isnan(box.time_ns)) return list;
    add("time per step (ns)", number_text(box.time_ns));
    add("time per step", model_.time_text(box.time_ns));
    if (model_.total_time_ns > 0)
      add("share of kernels' time", percent_text(box.time_ns / model_.total_time_ns));
    if (box.time_ns > 0) add("rate", count_text(box.step_flops / box.time_ns * 1e9, "FLOP/s"));
    return list;
  }

  const GraphModel& model_;
  NameSet used_;
  std::vector<std::string> ids_;  // by box
};

}  // namespace

std::string model_explorer_json(const GraphModel& model, const std::map<std::string, std::string>& about) {
  const ExplorerWriter writer(model);
  const std::string name = model.name.empty() ? "graph" : model.name;
  const Json collection = {
      {"label", name},
      {"graphs", {{{"id", name}, {"nodes", writer.nodes()}, {"groupNodeAttributes", writer.groups(about)}}}}};
  return collection.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gradloom
