// Inlining works on the protobuf graph: names in the body are prefixed, with a number where the model has such a name
// already, formal names become those of the call, and references to the function's attributes become the call's
// attributes. Depth first, so the nodes stay in an order in which producers come first.
#include "engine/onnx/read/functions.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/names.h"
#include "engine/base/text.h"
#include "engine/onnx/expand/expansion.h"
#include "engine/onnx/file/model_file.h"
#include "engine/onnx/file/newer_fields.h"
#include "engine/onnx/file/scope.h"
#include "engine/onnx/file/subgraph.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

using onnx::AttributeProto;
using onnx::FunctionProto;
using onnx::GraphProto;
using onnx::NodeProto;
using Nodes = google::protobuf::RepeatedPtrField<NodeProto>;

// ONNX spells its own domain "" and "ai.onnx".
std::string canonical(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// What calls make, with all that they call.
struct Size {
  double nodes = 0, bytes = 0;  // no integer would hold 100^30
  std::int64_t depth = 0;       // calls inside calls
};

struct Function {
  const FunctionProto* proto = nullptr;
  std::vector<AttributeProto> defaults;
  Size size{};  // once `measured`
  bool measured = false, measuring = false;
};

std::string label_of(const FunctionProto& function) {
  return "call of function '" + escaped(function.name()) + "'";
}

// How the names and attributes of a body become those of one call.
struct Call {
  std::string prefix;
  NameMap<std::string> names;  // formal -> actual
  NameMap<const AttributeProto*> given;

  void rename(std::string* name) const {
    if (name->empty()) return;
    const auto it = names.find(*name);
    *name = it == names.end() ? prefix + *name : it->second;
  }
};

// visit(name) for the values that nodes make.
template <class Visit>
void for_results(const Nodes& nodes, const Visit& visit) {
  for (const NodeProto& node : nodes)
    for (const std::string& name : node.output())
      if (!name.empty()) visit(name);
}

// visit(name) for a graph's values, without those of graphs inside it.
template <class Visit>
void for_values(const GraphProto& graph, const Visit& visit) {
  for (const auto& input : graph.input()) visit(input.name());
  for (const auto& initializer : graph.initializer()) visit(initializer.name());
  for_results(graph.node(), visit);
}

class Inliner {
 public:
  Inliner(onnx::ModelProto& model, const Limits& limits) : model_(model), limits_(limits) {}

  Result<InlinedFunctions> run() {
    TRY(index());
    if (functions_.empty()) {
      result_.scopes.resize(static_cast<std::size_t>(model_.graph().node_size()));
      return std::move(result_);
    }
    top_ = model_.mutable_graph()->mutable_node();
    Size made;
    TRY(add_calls(model_.graph(), made));
    if (made.nodes > static_cast<double>(std::min(limits_.nodes, limits_.expanded_nodes)))
      return too_many_nodes();
    if (made.bytes > static_cast<double>(limits_.expanded_bytes)) return too_many_bytes();
    for_each_graph(model_.graph(), [&](const GraphProto& graph) {
      for_values(graph, [&](const std::string& name) {
        if (name.find('/') != std::string::npos) taken_.insert(name);
      });
    });
    TRY(inline_graph(model_.mutable_graph()));
    return std::move(result_);
  }

 private:
  Status index() {
    std::map<std::string, std::int64_t> versions;
    for (const auto& import : model_.opset_import()) versions[canonical(import.domain())] = import.version();
    for (const FunctionProto& f : model_.functions()) {
      const FunctionKey key{canonical(f.domain()), f.name(), overload_of(f)};
      if (functions_.count(key) != 0 || result_.skipped.count(key) != 0) {
        return Error{Errc::bad_input, "function '" + escaped(f.name()) + "' is defined twice"};
      }
      Function function{&f, {}};
      if (!attribute_defaults(f, &function.defaults)) {
        return Error{Errc::bad_input,
                     "function '" + escaped(f.name()) + "' has attribute defaults that cannot be read"};
      }
      const std::string why = TRY(opset_conflict(f, versions));
      if (why.empty()) {
        functions_[key] = std::move(function);
      } else {
        result_.skipped[key] = why;
      }
    }
    return {};
  }

  // A body may be written for another opset than the model when its operators mean the same in both.
  static Result<std::string> opset_conflict(const FunctionProto& f,
                                            const std::map<std::string, std::int64_t>& versions) {
    std::map<std::string, std::int64_t> own_versions;
    for (const auto& import : f.opset_import()) {
      if (own_versions.try_emplace(canonical(import.domain()), import.version()).second) continue;
      return Error{Errc::bad_input, "function '" + escaped(f.name()) + "': the opset of domain '" +
                                        escaped(import.domain()) + "' is given twice"};
    }
    for (const NodeProto& node : f.node()) {
      const std::string domain = canonical(node.domain());
      const auto own_version = own_versions.find(domain);
      const auto version = versions.find(domain);
      if (own_version == own_versions.end() || version == versions.end() ||
          own_version->second == version->second)
        continue;
      const auto opset = [](std::int64_t v) {
        return static_cast<int>(std::clamp<std::int64_t>(v, 0, 1 << 30));
      };
      const int own = opset(own_version->second), models = opset(version->second);
      const std::string& type = node.op_type();
      const bool same = find_op(type, domain, own) == find_op(type, domain, models) &&
                        find_expansion(type, domain, own) == find_expansion(type, domain, models);
      if (same && subgraphs_of(node).empty()) continue;
      return "the function is written for opset " + std::to_string(own_version->second) + ", the model for " +
             std::to_string(version->second) + ", and " + escaped(type) + " differs between them";
    }
    return std::string();
  }

  // ---- how much calls make, before they are made ----

  Error too_many_nodes() const {
    return Error{Errc::limit,
                 "more than " + std::to_string(std::min(limits_.nodes, limits_.expanded_nodes)) +
                     " nodes after inlining functions" +
                     raised_by(limits_.nodes < limits_.expanded_nodes ? "nodes" : "expanded_nodes")};
  }
  Error too_many_bytes() const {
    return Error{Errc::limit, "more than " + std::to_string(limits_.expanded_bytes) +
                                  " bytes after inlining functions" + raised_by("expanded_bytes")};
  }
  Error too_deep(const FunctionProto& function) const {
    return Error{Errc::limit, label_of(function) + ": nesting is over the limit of " +
                                  std::to_string(limits_.nesting) + raised_by("nesting")};
  }

  // Adds what the calls in `graph` make.
  Status add_calls(const GraphProto& graph, Size& made) {
    for (const NodeProto& node : graph.node()) {
      const auto it = functions_.find(function_key(node));
      if (it != functions_.end()) TRY(add_call(it->second, made));
      for (const GraphProto* inner : subgraphs_of(node)) TRY(add_calls(*inner, made));
    }
    return {};
  }

  Status add_call(Function& function, Size& made) {
    TRY(measure(function));
    made.nodes += 1 + function.size.nodes;
    made.bytes += function.size.bytes;
    made.depth = std::max(made.depth, 1 + function.size.depth);
    if (made.depth > limits_.nesting) return too_deep(*function.proto);
    return {};
  }

  // Once for each function, so in the time that reading them takes.
  Status measure(Function& function) {
    if (function.measured) return {};
    if (function.measuring) return Error{Errc::bad_input, label_of(*function.proto) + " is recursive"};
    if (++measuring_ > limits_.nesting) return too_deep(*function.proto);
    function.measuring = true;
    for (const NodeProto& node : function.proto->node()) {
      function.size.nodes += 1;
      function.size.bytes += static_cast<double>(node.ByteSizeLong());
      const auto it = functions_.find(function_key(node));
      if (it != functions_.end()) TRY(add_call(it->second, function.size));
      for (const GraphProto* inner : subgraphs_of(node)) TRY(add_calls(*inner, function.size));
    }
    --measuring_;
    function.measuring = false;
    function.measured = true;
    return {};
  }

  // ---- inlining ----

  Status inline_graph(GraphProto* graph) {
    Nodes nodes;
    nodes.Swap(graph->mutable_node());
    for (NodeProto& node : nodes) TRY(emit(std::move(node), graph->mutable_node()));
    return {};
  }

  Status emit(NodeProto&& node, Nodes* to) {
    const auto it = functions_.find(function_key(node));
    if (it != functions_.end()) return expand(it->second, node, to);
    if (++emitted_ > limits_.nodes || (!active_.empty() && ++made_ > limits_.expanded_nodes))
      return too_many_nodes();
    for (AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) TRY(inline_graph(attribute.mutable_g()));
      for (GraphProto& graph : *attribute.mutable_graphs()) TRY(inline_graph(&graph));
    }
    *to->Add() = std::move(node);
    if (to == top_) result_.scopes.push_back(scope_);
    return {};
  }

  Status expand(const Function& function, const NodeProto& node, Nodes* to) {
    const FunctionProto& proto = *function.proto;
    const std::string label = label_of(proto);
    if (node.input_size() > proto.input_size() || node.output_size() > proto.output_size()) {
      return Error{Errc::bad_input, label + " has more inputs or outputs than the function"};
    }
    if (static_cast<std::int64_t>(active_.size()) >= limits_.nesting) return too_deep(proto);
    // Graphs given as attributes are not in the measure.
    if (!active_.insert(&proto).second) return Error{Errc::bad_input, label + " is recursive"};
    // A call may be empty inside; calls count so that chains of empty functions end too.
    if (++calls_ > limits_.nodes)
      return Error{Errc::limit,
                   "more than " + std::to_string(limits_.nodes) + " function calls" + raised_by("nodes")};
    const std::string name =
        node.name().empty() ? proto.name() + "_call" + std::to_string(calls_) : node.name();
    if (name.size() >= static_cast<std::size_t>(limits_.name_bytes)) {
      return Error{Errc::limit, label + ": names are over the limit of " +
                                    std::to_string(limits_.name_bytes) + raised_by("name_bytes")};
    }
    Call call;
    for (int i = 0; i < proto.input_size(); ++i)
      call.names[proto.input(i)] = i < node.input_size() ? node.input(i) : "";
    // Outputs of the function that are its inputs.
    std::vector<std::pair<std::string, std::string>> passed_through;
    for (int i = 0; i < node.output_size(); ++i) {
      if (node.output(i).empty()) continue;
      const auto [formal, fresh] = call.names.try_emplace(proto.output(i), node.output(i));
      if (!fresh) passed_through.emplace_back(formal->second, node.output(i));
    }
    TRY(choose_prefix(proto, name, call));
    for (const AttributeProto& a : function.defaults) call.given[a.name()] = &a;
    for (const AttributeProto& a : node.attribute()) call.given[a.name()] = &a;
    const std::string outer = scope_;
    scope_ = scope_of_call(node, proto.name());
    for (const NodeProto& body : proto.node()) {
      NodeProto made = instantiate(body, call);
      made_bytes_ +=
          static_cast<std::int64_t>(made.ByteSizeLong());  // names grow with every call around them
      if (made_bytes_ > limits_.expanded_bytes) return too_many_bytes();
      TRY(emit(std::move(made), to));
    }
    for (const auto& [from, output] : passed_through) TRY(emit(identity(call.prefix, from, output), to));
    scope_ = outer;
    active_.erase(&proto);
    return {};
  }

  // The call's name, with a number where the model has one of the names that the body's own values would get.
  Status choose_prefix(const FunctionProto& proto, const std::string& name, Call& call) {
    std::vector<const std::string*> own;
    std::int64_t bytes = 0;
    const auto add = [&](const std::string& value) {
      if (value.empty() || call.names.count(value) != 0) return;
      own.push_back(&value);
      bytes += static_cast<std::int64_t>(name.size() + 1 + value.size());
    };
    for_results(proto.node(), add);
    for (const NodeProto& node : proto.node())
      for (const GraphProto* graph : subgraphs_of(node))
        for_each_graph(*graph, [&](const GraphProto& inner) { for_values(inner, add); });
    if (bytes > limits_.expanded_bytes - made_bytes_) return too_many_bytes();
    const auto is_taken = [&] {
      return std::any_of(own.begin(), own.end(),
                         [&](const std::string* value) { return taken_.count(call.prefix + *value) != 0; });
    };
    call.prefix = name + "/";
    if (is_taken()) {
      int& bearers = bearers_.try_emplace(name, 1).first->second;
      do call.prefix = name + "_" + std::to_string(++bearers) + "/";
      while (is_taken());
    }
    for (const std::string* value : own) taken_.insert(call.prefix + *value);
    return {};
  }

  // The call as a component of its own: where it stands, its name and the function's.
  std::string scope_of_call(const NodeProto& node, const std::string& function) const {
    std::string scope = scope_;
    if (scope.empty()) {
      const auto modules = scope_of_name_scopes(metadata_of(node, kNameScopes));
      scope = modules ? *modules : scope_of_node(node.name()).value_or("");
    }
    std::string name = last_part(node.name());
    if (name.empty()) {
      name = function;
    } else if (name.find(function) == std::string::npos) {
      name += ":" + function;
    }
    return (scope.empty() ? "" : scope + "/") + name;
  }

  static NodeProto identity(const std::string& prefix, const std::string& from, const std::string& to) {
    NodeProto node;
    node.set_op_type("Identity");
    node.set_name(prefix + "Identity");
    node.add_input(from);
    node.add_output(to);
    return node;
  }

  static NodeProto instantiate(const NodeProto& body, const Call& call) {
    NodeProto node = body;
    node.set_name(call.prefix + (node.name().empty() ? node.op_type() : node.name()));
    adapt(&node, call);
    return node;
  }

  // Renames what a node of the body reads and makes, and gives it the call's attributes; likewise in
  // subgraphs, whose own names get the prefix too.
  static void adapt(NodeProto* node, const Call& call) {
    for (std::string& name : *node->mutable_input()) call.rename(&name);
    for (std::string& name : *node->mutable_output()) call.rename(&name);
    google::protobuf::RepeatedPtrField<AttributeProto> attributes;
    attributes.Swap(node->mutable_attribute());
    for (AttributeProto& a : attributes) {
      if (a.ref_attr_name().empty()) {
        if (a.has_g()) adapt(a.mutable_g(), call);
        for (GraphProto& graph : *a.mutable_graphs()) adapt(&graph, call);
        *node->add_attribute() = std::move(a);
        continue;
      }
      const auto it = call.given.find(a.ref_attr_name());
      if (it == call.given.end()) continue;  // not given by the call: the operator's default
      AttributeProto* given = node->add_attribute();
      *given = *it->second;
      given->set_name(a.name());
    }
  }

  static void adapt(GraphProto* graph, const Call& call) {
    for (auto& input : *graph->mutable_input()) call.rename(input.mutable_name());
    for (auto& output : *graph->mutable_output()) call.rename(output.mutable_name());
    for (auto& info : *graph->mutable_value_info()) call.rename(info.mutable_name());
    for (auto& initializer : *graph->mutable_initializer()) call.rename(initializer.mutable_name());
    for (NodeProto& node : *graph->mutable_node()) adapt(&node, call);
  }

  onnx::ModelProto& model_;
  const Limits& limits_;
  std::map<FunctionKey, Function> functions_;
  InlinedFunctions result_;
  Nodes* top_ = nullptr;
  std::string scope_;  // of the calls that are being inlined
  std::set<const FunctionProto*> active_;
  NameSet taken_;         // names of values with a "/", as all have that calls make
  NameMap<int> bearers_;  // of a call's name, where one was not enough
  std::int64_t calls_ = 0, emitted_ = 0, made_ = 0, made_bytes_ = 0, measuring_ = 0;
};

}  // namespace

FunctionKey function_key(const NodeProto& call) {
  return {canonical(call.domain()), call.op_type(), overload_of(call)};
}

Result<InlinedFunctions> inline_functions(onnx::ModelProto& model, const Limits& limits) {
  return Inliner(model, limits).run();
}

}  // namespace gradloom
