// Inlining works on the protobuf graph: names in the body are prefixed, formal names become those of the
// call, and references to the function's attributes become the call's attributes. Depth first, so the nodes
// stay in an order in which producers come first.
#include "engine/onnx/functions.h"

#include <google/protobuf/unknown_field_set.h>

#include <set>
#include <unordered_map>
#include <vector>

#include "engine/base/text.h"
#include "engine/onnx/model_file.h"

namespace gradloom {

namespace {

using onnx::AttributeProto;
using onnx::FunctionProto;
using onnx::NodeProto;
using Key = std::pair<std::string, std::string>;

constexpr int kNodeOverload = 8, kFunctionAttributeDefaults = 11, kFunctionOverload = 13;

// ONNX spells its own domain "" and "ai.onnx".
std::string canonical(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

class Inliner {
 public:
  Inliner(onnx::ModelProto& model, const Limits& limits) : model_(model), limits_(limits) {}

  Result<SkippedFunctions> run() {
    TRY(index());
    if (functions_.empty()) return skipped_;
    google::protobuf::RepeatedPtrField<NodeProto> nodes;
    nodes.Swap(model_.mutable_graph()->mutable_node());
    for (NodeProto& node : nodes) TRY(emit(std::move(node)));
    return skipped_;
  }

 private:
  Status index() {
    std::map<std::string, std::int64_t> versions;
    for (const auto& import : model_.opset_import()) versions[canonical(import.domain())] = import.version();
    for (const FunctionProto& f : model_.functions()) {
      const Key key{canonical(f.domain()), f.name()};
      if (functions_.count(key) != 0 || skipped_.count(key) != 0) {
        return Error{Errc::bad_input, "function '" + escaped(f.name()) + "' is defined twice"};
      }
      std::string why;
      if (has_unknown_field(f.unknown_fields(), kFunctionAttributeDefaults))
        why = "the function has attribute defaults";
      if (has_unknown_field(f.unknown_fields(), kFunctionOverload)) why = "the function is overloaded";
      for (const auto& import : f.opset_import()) {
        const auto it = versions.find(canonical(import.domain()));
        if (it != versions.end() && it->second != import.version()) {
          why = "the function is written for opset " + std::to_string(import.version()) + ", the model for " +
                std::to_string(it->second);
        }
      }
      if (why.empty()) {
        functions_[key] = &f;
      } else {
        skipped_[key] = why;
      }
    }
    return {};
  }

  Status emit(NodeProto&& node) {
    const auto it = functions_.find({canonical(node.domain()), node.op_type()});
    if (it == functions_.end() || has_unknown_field(node.unknown_fields(), kNodeOverload)) {
      if (model_.graph().node_size() >= limits_.nodes) {
        return Error{Errc::limit,
                     "more than " + std::to_string(limits_.nodes) + " nodes after inlining functions"};
      }
      *model_.mutable_graph()->add_node() = std::move(node);
      return {};
    }
    return expand(*it->second, node);
  }

  Status expand(const FunctionProto& function, const NodeProto& call) {
    const std::string label = "call of function '" + escaped(function.name()) + "'";
    if (call.input_size() > function.input_size() || call.output_size() > function.output_size()) {
      return Error{Errc::bad_input, label + " has more inputs or outputs than the function"};
    }
    if (static_cast<std::int64_t>(active_.size()) >= limits_.nesting) {
      return Error{Errc::limit, label + ": nesting is over the limit of " + std::to_string(limits_.nesting)};
    }
    if (!active_.insert(&function).second) return Error{Errc::bad_input, label + " is recursive"};
    // A call may be empty inside; calls count so that chains of empty functions end too.
    if (++calls_ > limits_.nodes)
      return Error{Errc::limit, "more than " + std::to_string(limits_.nodes) + " function calls"};
    const std::string prefix =
        (call.name().empty() ? function.name() + "_call" + std::to_string(calls_) : call.name()) + "/";
    if (prefix.size() > static_cast<std::size_t>(limits_.name_bytes)) {
      return Error{Errc::limit,
                   label + ": names are over the limit of " + std::to_string(limits_.name_bytes)};
    }
    std::unordered_map<std::string, std::string> names;
    for (int i = 0; i < function.input_size(); ++i)
      names[function.input(i)] = i < call.input_size() ? call.input(i) : "";
    for (int i = 0; i < function.output_size(); ++i) {
      if (i < call.output_size() && !call.output(i).empty()) names[function.output(i)] = call.output(i);
    }
    std::unordered_map<std::string, const AttributeProto*> given;
    for (const AttributeProto& a : call.attribute()) given[a.name()] = &a;
    for (const NodeProto& body : function.node()) TRY(emit(instantiate(body, prefix, names, given)));
    active_.erase(&function);
    return {};
  }

  static NodeProto instantiate(const NodeProto& body, const std::string& prefix,
                               const std::unordered_map<std::string, std::string>& names,
                               const std::unordered_map<std::string, const AttributeProto*>& given) {
    const auto renamed = [&](const std::string& name) {
      if (name.empty()) return name;
      const auto it = names.find(name);
      return it == names.end() ? prefix + name : it->second;
    };
    NodeProto node = body;
    if (!node.name().empty()) node.set_name(prefix + node.name());
    if (node.name().empty()) node.set_name(prefix + node.op_type());
    for (std::string& name : *node.mutable_input()) name = renamed(name);
    for (std::string& name : *node.mutable_output()) name = renamed(name);
    node.clear_attribute();
    for (const AttributeProto& a : body.attribute()) {
      if (a.ref_attr_name().empty()) {
        *node.add_attribute() = a;
        continue;
      }
      const auto it = given.find(a.ref_attr_name());
      if (it == given.end()) continue;  // not given by the call: the operator's default
      *node.add_attribute() = *it->second;
      node.mutable_attribute(node.attribute_size() - 1)->set_name(a.name());
    }
    return node;
  }

  onnx::ModelProto& model_;
  const Limits& limits_;
  std::map<Key, const FunctionProto*> functions_;
  SkippedFunctions skipped_;
  std::set<const FunctionProto*> active_;
  std::int64_t calls_ = 0;
};

}  // namespace

Result<SkippedFunctions> inline_functions(onnx::ModelProto& model, const Limits& limits) {
  return Inliner(model, limits).run();
}

}  // namespace gradloom
