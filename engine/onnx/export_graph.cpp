#include "engine/onnx/export_graph.h"

#include <onnx/defs/schema.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/ir/op.h"
#include "engine/ir/rewriter.h"
#include "engine/onnx/file/newer_fields.h"
#include "engine/onnx/file/tensor_proto.h"
#include "engine/onnx/read/attributes.h"
#include "engine/onnx/write/bodies.h"
#include "engine/ops/training/optimizer_inputs.h"
#include "engine/ops/inference.h"

namespace gradloom {
namespace {

constexpr const char* kDomain = "gradloom";
constexpr int kLeastOpset = 17, kAxesAsInput = 18;
constexpr std::size_t kMostBytes = (std::size_t{1} << 31) - 1;

bool ours(const OpDef& op) { return *op.domain != '\0'; }

void write_attribute(const std::string& name, const AttrValue& value, onnx::NodeProto* node) {
  onnx::AttributeProto& a = *node->add_attribute();
  a.set_name(name);
  if (const auto* i = std::get_if<std::int64_t>(&value)) {
    a.set_type(onnx::AttributeProto::INT);
    a.set_i(*i);
  } else if (const auto* d = std::get_if<double>(&value)) {
    a.set_type(onnx::AttributeProto::FLOAT);
    a.set_f(static_cast<float>(*d));
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    a.set_type(onnx::AttributeProto::STRING);
    a.set_s(*text);
  } else if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&value)) {
    a.set_type(onnx::AttributeProto::INTS);
    for (const std::int64_t v : *ints) a.add_ints(v);
  } else if (const auto* reals = std::get_if<std::vector<double>>(&value)) {
    a.set_type(onnx::AttributeProto::FLOATS);
    for (const double v : *reals) a.add_floats(static_cast<float>(v));
  } else {
    a.set_type(onnx::AttributeProto::TENSOR);
    write_tensor(std::get<Tensor>(value), a.mutable_t());
  }
}

// Names: one text with commas here, several there.
void write_list(const std::string& name, const std::string& text, onnx::NodeProto* node) {
  onnx::AttributeProto& a = *node->add_attribute();
  a.set_name(name);
  a.set_type(onnx::AttributeProto::STRINGS);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    a.add_strings(text.substr(at, end - at));
    at = end + 1;
  }
}

// Reductions whose axes became an input in opset 18 (ReduceSum's did in 13).
bool axes_moved(std::string_view op) { return op.starts_with("Reduce") && op != "ReduceSum"; }
bool has_axes_attribute(std::string_view op, int opset) { return opset < kAxesAsInput && axes_moved(op); }

// Of the operator at this opset, which may have more of them than its schema: opset 18 gave reductions and Pad the
// axes, opset 20 gave them to DFT.
int most_inputs(const onnx::OpSchema& schema, int opset) {
  const std::string& name = schema.Name();
  const bool more =
      (opset >= kAxesAsInput && (axes_moved(name) || name == "Pad")) || (opset >= 20 && name == "DFT");
  return schema.max_input() + (more ? 1 : 0);
}

// What of the node ONNX's operator does not have; empty: it is that operator.
std::string not_standard(const Node& node, int opset) {
  if (ours(*node.op)) return node.op->name;
  if (node.op->until < opset || node.op->since > opset) return "of opset " + std::to_string(node.op->since);
  const onnx::OpSchema* schema = newest_schema_of(node.op->name, opset);
  if (schema != nullptr && static_cast<int>(node.inputs.size()) > most_inputs(*schema, opset))
    return "with operands of its own";
  int outputs = 0;
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] != kNone) outputs = static_cast<int>(i) + 1;
  // The newer operators that have rows (Gelu, GroupNormalization, RMSNormalization, ..) have one result.
  if (outputs > (schema != nullptr ? schema->max_output() : 1)) return "with results of its own";
  for (const auto& [name, value] : node.attrs.all())
    if (name != "key" && name != "unbiased" &&
        attribute_type(node.op->name, name, opset) == onnx::AttributeProto::UNDEFINED)
      return "with " + name;
  return "";
}

// Dropout draws random numbers, which another program would draw otherwise.
bool needs_body(const Node& node, int opset) {
  const std::string name = node.op->name;
  return !not_standard(node, opset).empty() || name == "Dropout";
}

// The value of an attribute as the operator of this opset calls it: opset 20 renamed GridSample's modes.
AttrValue as_of_opset(const Node& node, const std::string& name, const AttrValue& value, int opset) {
  const auto* mode = std::get_if<std::string>(&value);
  if (opset >= 20 || mode == nullptr || name != "mode" || !is_op(node, "GridSample")) return value;
  return *mode == "linear" ? std::string("bilinear") : *mode == "cubic" ? std::string("bicubic") : *mode;
}

// A node of a standard operator, of the graph or of a function's body.
template <class NameOf>
void write_standard(const Graph& graph, const Node& node, int opset, const NameOf& name_of,
                    onnx::NodeProto* proto) {
  proto->set_name(node.name);
  proto->set_op_type(node.op->name);
  const bool axes =
      has_axes_attribute(node.op->name, opset) && node.inputs.size() > 1 && node.inputs[1] != kNone;
  for (std::size_t i = 0; i < node.inputs.size() && !(axes && i == 1); ++i)
    proto->add_input(node.inputs[i] == kNone ? "" : name_of(node.inputs[i]));
  while (proto->input_size() > 0 && proto->input(proto->input_size() - 1).empty())
    proto->mutable_input()->RemoveLast();
  for (const ValueId id : node.outputs) proto->add_output(id == kNone ? "" : name_of(id));
  const onnx::OpSchema* schema = ours(*node.op) ? nullptr : newest_schema_of(node.op->name, opset);
  while (schema != nullptr && proto->output_size() < schema->min_output())
    proto->add_output(node.name + "/unread" + std::to_string(proto->output_size()));
  for (const auto& [name, value] : node.attrs.all()) {
    if (schema != nullptr && attribute_type(node.op->name, name, opset) == onnx::AttributeProto::STRINGS)
      write_list(name, std::get<std::string>(value), proto);
    else if (name == "unbiased")
      add_metadata(*proto, kRunningVariance, name);
    else if (name != "key")
      write_attribute(name, as_of_opset(node, name, value, opset), proto);
  }
  if (is_op(node, "Split") && opset >= kAxesAsInput && proto->input_size() < 2 &&
      !node.attrs.has("num_outputs"))
    write_attribute("num_outputs", std::int64_t{proto->output_size()}, proto);
  if (axes) write_attribute("axes", graph.values[node.inputs[1]].data.to_i64(), proto);
}

// A body on its way into a FunctionProto.
struct BuiltBody {
  Graph graph;
  std::vector<ValueId> inputs, outputs;
  std::map<std::uint64_t, Body::Mask> masks;  // behind the inputs, in this order
};

Result<BuiltBody> build_body(const Graph& graph, const Node& node) {
  const BodyFn build = find_body(*node.op);
  const bool blocks = has_blocks(node.attrs);
  if (build == nullptr && !blocks) return infer_error("no form in standard operators");
  const NodeTypes types = node_types(graph, node);
  BuiltBody made;
  GraphBuilder b(made.graph);
  Body body{b, types, {}};
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const bool given = node.inputs[i] != kNone;
    body.in.push_back(given ? b.input("x" + std::to_string(i), types.inputs[i]) : kNone);
  }
  made.inputs = body.in;
  made.outputs = TRY(blocks ? body_of_blocks(body, *node.op) : build(body));
  for (const auto& [key, mask] : body.keep) made.inputs.push_back(mask.value);
  made.masks = body.keep;
  for (const Node& inner : made.graph.nodes)
    if (ours(*inner.op)) return infer_error(std::string(inner.op->name) + " in its form");
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNone) continue;
    if (i >= made.outputs.size())
      return infer_error("result " + std::to_string(i) + " in standard operators");
    // A result that is an input, or one twice, needs a node of its own.
    const bool again = std::count(made.outputs.begin(), made.outputs.begin() + static_cast<std::ptrdiff_t>(i),
                                  made.outputs[i]) > 0;
    if (again || made.graph.values[made.outputs[i]].producer == kNone)
      made.outputs[i] = b.op("Identity", {made.outputs[i]});
  }
  return made;
}

class GraphWriter {
 public:
  explicit GraphWriter(const Graph& graph) : graph_(graph), opset_(std::max(graph.opset, kLeastOpset)) {}

  Status write() {
    model_.set_ir_version(8);
    model_.set_producer_name("gradloom");
    set_opsets(*model_.mutable_opset_import());
    out_ = model_.mutable_graph();
    out_->set_name("training");
    const std::vector<NodeId> order = TRY(topological_order(graph_));
    write_inputs(order);
    for (const NodeId id : order) write_node(graph_.nodes[id]);
    for (const ValueId id : graph_.outputs) write_output(id);
    for (const Update& update : graph_.updates) {
      write_output(update.next);
      onnx::StringStringEntryProto& next = *model_.add_metadata_props();
      next.set_key("next of " + name_of(update.state));
      next.set_value(name_of(update.next));
    }
    return write_initializers();
  }

  Status save(const std::string& path) const {
    if (model_.ByteSizeLong() > kMostBytes)
      return Error{Errc::limit,
                   escaped(path) + ": the model would be over 2 GiB, which ONNX files cannot be"};
    std::string bytes;
    if (!model_.SerializeToString(&bytes)) return Error{Errc::bug, "the graph cannot be written as protobuf"};
    return atomic_write_file(path, bytes);
  }

  ExportedGraph summary() const {
    ExportedGraph result;
    result.nodes = static_cast<std::size_t>(out_->node_size());
    result.functions = static_cast<std::size_t>(model_.functions_size());
    for (const auto& [what, count] : without_form_)
      result.without_form.push_back(std::to_string(count) + " x " + what);
    for (const auto& [key, name] : masks_) result.masks.push_back(name);
    return result;
  }

 private:
  template <class Imports>
  void set_opsets(Imports& imports) const {
    onnx::OperatorSetIdProto& standard = *imports.Add();
    standard.set_domain("");
    standard.set_version(opset_);
    onnx::OperatorSetIdProto& own = *imports.Add();
    own.set_domain(kDomain);
    own.set_version(1);
  }

  const std::string& name_of(ValueId id) const { return graph_.values[id].name; }

  static void write_value(const std::string& name, const Type& type, onnx::ValueInfoProto* info) {
    info->set_name(name);
    auto* tensor = info->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(static_cast<int>(onnx_from_dtype(type.dtype)));
    tensor->mutable_shape();
    for (const std::int64_t d : type.shape) tensor->mutable_shape()->add_dim()->set_dim_value(d);
  }

  // What is read and made by no node: inputs, and contents.
  void write_inputs(const std::vector<NodeId>& order) {
    std::set<ValueId> read(graph_.inputs.begin(), graph_.inputs.end()), changed;
    for (const Update& update : graph_.updates) changed.insert(update.state);
    read.insert(changed.begin(), changed.end());
    for (const NodeId id : order)
      for (const ValueId in : graph_.nodes[id].inputs)
        if (in != kNone) read.insert(in);
    read.insert(graph_.outputs.begin(), graph_.outputs.end());
    for (const ValueId id : read) {
      const Value& value = graph_.values[id];
      if (value.producer != kNone) continue;
      if (!value.data.defined() || changed.count(id) > 0)
        write_value(value.name, value.type, out_->add_input());
      if (value.data.defined()) contents_.push_back(id);
    }
  }

  Status write_initializers() {
    std::size_t bytes = 0;
    for (const ValueId id : contents_) bytes += byte_size(graph_.values[id].type);
    if (bytes > kMostBytes)
      return Error{Errc::limit, "parameters and states of " + bytes_text(static_cast<double>(bytes)) +
                                    ": ONNX files hold less than 2 GiB"};
    for (const ValueId id : contents_) {
      onnx::TensorProto& proto = *out_->add_initializer();
      write_tensor(TRY(graph_.values[id].data.loaded()), &proto);
      proto.set_name(name_of(id));
    }
    return {};
  }

  void write_output(ValueId id) {
    if (!written_.insert(id).second) return;
    write_value(name_of(id), graph_.type(id), out_->add_output());
  }

  void write_node(const Node& node) {
    onnx::NodeProto& proto = *out_->add_node();
    proto.set_doc_string(about(node));
    const auto names = [this](ValueId id) { return name_of(id); };
    if (!needs_body(node, opset_)) {
      if (const Node* const drawn = drawn_before(node)) return write_again(node, *drawn, proto);
      return write_standard(graph_, node, opset_, names, &proto);
    }
    const auto body = build_body(graph_, node);
    if (!body.ok()) {
      write_standard(graph_, node, opset_, names, &proto);
      proto.set_domain(kDomain);
      ++without_form_[std::string(node.op->name) + " (" + body.error().message + ")"];
      return;
    }
    write_call(node, *body, proto);
  }

  // The node that made the same random numbers: recomputation draws by the same key, another program would draw anew.
  const Node* drawn_before(const Node& node) {
    if (!node.op->has(kRandom) || !node.attrs.has("key")) return nullptr;
    for (const Node* other : drawn_)
      if (other->op == node.op && other->attrs == node.attrs &&
          other->outputs.size() == node.outputs.size() &&
          graph_.type(other->outputs[0]) == graph_.type(node.outputs[0]))
        return other;
    drawn_.push_back(&node);
    return nullptr;
  }

  void write_again(const Node& node, const Node& drawn, onnx::NodeProto& proto) const {
    proto.set_name(node.name);
    proto.set_op_type("Identity");
    proto.add_input(name_of(drawn.outputs[0]));
    proto.add_output(name_of(node.outputs[0]));
  }

  void write_call(const Node& node, const BuiltBody& body, onnx::NodeProto& call) {
    call.set_name(node.name);
    call.set_domain(kDomain);
    call.set_op_type(function_for(node, body));
    for (const ValueId id : node.inputs) call.add_input(id == kNone ? "" : name_of(id));
    for (const auto& [key, mask] : body.masks)
      call.add_input(mask_name(key, body.graph.type(mask.value), mask.ratio));
    for (const ValueId id : node.outputs) call.add_output(id == kNone ? "" : name_of(id));
    for (const auto& [name, value] : node.attrs.all()) write_attribute(name, value, &call);
  }

  std::string mask_name(std::uint64_t key, const Type& type, double ratio) {
    const auto [at, fresh] = masks_.try_emplace(key);
    if (!fresh) return at->second;
    char text[96];
    std::snprintf(text, sizeof text, "gradloom/keep/%016llx", static_cast<unsigned long long>(key));
    at->second = text;
    onnx::ValueInfoProto& input = *out_->add_input();
    write_value(at->second, type, &input);
    std::snprintf(text, sizeof text, "true where a uniform random number is at least %.17g", ratio);
    input.set_doc_string(text);
    return at->second;
  }

  // The function with this body, made where there is none yet.
  std::string function_for(const Node& node, const BuiltBody& body) {
    onnx::FunctionProto function;
    function.set_domain(kDomain);
    function.set_doc_string(node.op->summary);
    set_opsets(*function.mutable_opset_import());
    for (const auto& [name, value] : node.attrs.all()) function.add_attribute(name);
    for (std::size_t i = 0; i < body.inputs.size(); ++i)
      function.add_input(body.inputs[i] == kNone ? "x" + std::to_string(i)
                                                 : body.graph.values[body.inputs[i]].name);
    write_body(node, body, function);
    const std::string key = function.SerializeAsString() + node.op->name;
    const auto [at, fresh] = functions_.try_emplace(key);
    if (!fresh) return at->second;
    // Never the operator's own name, which nodes without a form are written with.
    at->second = std::string(node.op->name) + "_" + std::to_string(++numbers_[node.op->name]);
    function.set_name(at->second);
    *model_.add_functions() = std::move(function);
    return at->second;
  }

  void write_body(const Node& node, const BuiltBody& body, onnx::FunctionProto& function) const {
    const Graph& g = body.graph;
    const auto names = [&g](ValueId id) { return g.values[id].name; };
    std::set<ValueId> needed, read;
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      const bool there = i < body.outputs.size();
      function.add_output(there ? names(body.outputs[i]) : "y" + std::to_string(i));
      if (there) needed.insert(body.outputs[i]);
    }
    std::vector<const Node*> kept;
    for (auto it = g.nodes.rbegin(); it != g.nodes.rend(); ++it) {
      if (std::none_of(it->outputs.begin(), it->outputs.end(),
                       [&](ValueId id) { return needed.count(id) > 0; }))
        continue;
      kept.push_back(&*it);
      const bool axes = has_axes_attribute(it->op->name, opset_);
      for (std::size_t i = 0; i < it->inputs.size(); ++i) {
        needed.insert(it->inputs[i]);
        if (!axes || i != 1) read.insert(it->inputs[i]);
      }
    }
    for (ValueId id = 0; id < g.values.size(); ++id) {
      if (!g.values[id].data.defined() || g.values[id].producer != kNone || read.count(id) == 0) continue;
      onnx::NodeProto& constant = *function.add_node();
      constant.set_name(names(id));
      constant.set_op_type("Constant");
      constant.add_output(names(id));
      write_attribute("value", g.values[id].data, &constant);
    }
    for (auto it = kept.rbegin(); it != kept.rend(); ++it)
      write_standard(g, **it, opset_, names, function.add_node());
  }

  // "backward of /fc/MatMul; fuse-gelu"
  std::string about(const Node& node) const {
    std::string text = phase_name(node.origin.phase);
    for (std::size_t i = 0; i < node.origin.sources.size(); ++i)
      text += (i == 0 ? " of " : ", ") + graph_.sources[node.origin.sources[i]].name;
    for (std::size_t i = 0; i < node.origin.passes.size(); ++i)
      text += (i == 0 ? "; " : ", ") + graph_.passes[node.origin.passes[i]];
    return text;
  }

  const Graph& graph_;
  const int opset_;
  onnx::ModelProto model_;
  onnx::GraphProto* out_ = nullptr;
  std::vector<ValueId> contents_;  // become initializers
  std::set<ValueId> written_;      // outputs
  std::map<std::uint64_t, std::string> masks_;
  std::vector<const Node*> drawn_;                // of random numbers, as standard nodes
  std::map<std::string, std::string> functions_;  // body -> name
  std::map<std::string, int> numbers_;
  std::map<std::string, std::size_t> without_form_;
};

// Of each updated parameter, what the Optimizer nodes read as its gradient.
std::vector<std::pair<ValueId, ValueId>> gradients_of(const Graph& graph) {
  using namespace optimizer_inputs;
  std::vector<std::pair<ValueId, ValueId>> gradients;
  for (const Node& node : graph.nodes) {
    if (!is_op(node, "Optimizer")) continue;
    const auto n = parameter_count(node.attrs);
    for (std::size_t i = 0; i < n; ++i)
      gradients.emplace_back(node.inputs[kFirst + i], node.inputs[kFirst + n + i]);
  }
  return gradients;
}

Result<Graph> part_of(Graph graph, ExportPart part) {
  if (part == ExportPart::step) return graph;
  std::vector<ValueId> outputs = {graph.outputs.at(0)};
  if (part == ExportPart::gradients) {
    const auto gradients = gradients_of(graph);
    GraphBuilder b(graph, {.origin = {{}, Phase::backward}});
    for (const auto& [parameter, gradient] : gradients) {
      const std::string name = b.unique_name(graph.values[parameter].name + "/grad");
      outputs.push_back(TRY(b.add(op_by_name("Identity"), {gradient}, {}, 1, {name}))[0]);
    }
  }
  graph.outputs = std::move(outputs);
  graph.updates.clear();
  Rewriter rw(graph, "export");
  TRY(remove_unneeded(rw, "not in this part"));
  return graph;
}

}  // namespace

Result<ExportedGraph> export_graph(const Graph& graph, ExportPart part, const std::string& path) {
  const Graph chosen = TRY(part_of(graph, part));
  GraphWriter writer(chosen);
  TRY(writer.write());
  TRY(writer.save(path));
  return writer.summary();
}

}  // namespace gradloom
