// One node at a time, producers first. A failed attempt (an expansion or unrolling that turns out impossible)
// is taken back by removing its nodes.
#include "engine/onnx/read/node_reader.h"

#include <onnx/defs/schema.h>

#include <algorithm>

#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/onnx/file/newer_fields.h"
#include "engine/onnx/read/attributes.h"
#include "engine/onnx/read/opaque.h"
#include "engine/onnx/repair/provenance.h"
#include "engine/onnx/file/subgraph.h"
#include "engine/ir/op.h"
#include "engine/ops/custom/custom_ops.h"
#include "engine/ops/custom/host_call.h"

namespace gradloom {

namespace {

std::string quoted(const std::string& name) { return "'" + escaped(name) + "'"; }

int opset_number(std::int64_t version) {
  return static_cast<int>(std::clamp<std::int64_t>(version, 0, 1 << 30));
}

std::string counted(std::size_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

struct Arity {
  int min_inputs, max_inputs, max_outputs;
};

Status check_arity(const std::vector<ValueId>& inputs, std::size_t outputs, const Arity& arity) {
  const auto least = static_cast<std::size_t>(arity.min_inputs),
             most = static_cast<std::size_t>(arity.max_inputs);
  const auto most_outputs = static_cast<std::size_t>(arity.max_outputs);
  if (outputs == 0) return bad_input("has no outputs");
  if (inputs.size() < least)
    return bad_input("has " + counted(inputs.size(), "input") + ", it needs " + std::to_string(least));
  if (inputs.size() > most)
    return bad_input("has " + counted(inputs.size(), "input") + ", it takes at most " + std::to_string(most));
  if (outputs > most_outputs)
    return bad_input("has " + counted(outputs, "output") + ", it gives at most " +
                     std::to_string(most_outputs));
  for (std::size_t k = 0; k < least; ++k) {
    if (inputs[k] == kNone) return bad_input("input " + std::to_string(k) + " is required");
  }
  return {};
}

// A row serves several opsets: what one of them lets a node have is in ONNX's schema.
Status check_schema_arity(const onnx::NodeProto& node, std::size_t inputs, std::size_t outputs, int opset) {
  const onnx::OpSchema* schema = schema_of(node.op_type(), opset);
  if (schema == nullptr) return {};
  if (static_cast<int>(inputs) > schema->max_input())
    return bad_input("has " + counted(inputs, "input") + ", at opset " + std::to_string(opset) +
                     " it takes at most " + std::to_string(schema->max_input()));
  if (static_cast<int>(outputs) > schema->max_output())
    return bad_input("has " + counted(outputs, "output") + ", at opset " + std::to_string(opset) +
                     " it gives at most " + std::to_string(schema->max_output()));
  return {};
}

// Opset 7 broadcasts as numpy does; of what is older, the forms of opset 6 are known
// (engine/onnx/expand/legacy.cpp).
constexpr int kBroadcastOpset = 7;

bool same_form(const std::string& op_type, int opset, int later) {
  const onnx::OpSchema *a = schema_of(op_type, opset), *b = schema_of(op_type, later);
  return a == nullptr ? b == nullptr : b != nullptr && a->since_version() == b->since_version();
}

// What onnxscript (0.7) gives a convolution without bias for one, where it is 3-d or its padding is text:
// zeros of [channels, 2].
bool is_malformed_bias(const Graph& graph, ValueId bias) {
  if (bias == kNone) return false;
  const Tensor& data = graph.value(bias).data;
  if (!data.defined() || data.shape().size() != 2 || data.shape()[1] != 2) return false;
  bool zeros = true;
  const Status seen = data.visit([&](const std::byte* piece, std::size_t, std::size_t bytes) -> Result<bool> {
    return zeros = std::all_of(piece, piece + bytes, [](std::byte byte) { return byte == std::byte{0}; });
  });
  return seen.ok() && zeros;
}

}  // namespace

std::string canonical_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

std::string node_label(const std::string& name, const std::string& op_type) {
  return "node " + quoted(name) + " (" + escaped(op_type) + ")";
}

ValueId Names::find(const std::string& name) const {
  for (const Names* names = this; names != nullptr; names = names->outer) {
    const auto it = names->values.find(name);
    if (it != names->values.end()) return it->second;
  }
  return kNone;
}

Status NodeReader::read(const onnx::NodeProto& node, const Site& site, Names& names) {
  const BuildScope here(builder_,
                        {.origin = {{site.source}, Phase::forward}, .rank = builder_.context().rank});
  const Result<Values> outputs = read_outputs_of(node, site, names);
  if (!outputs.ok()) return with_context(outputs.error(), node_label(site.name, node.op_type()));
  for (std::size_t k = 0; k < outputs->size(); ++k) {
    const std::string& name = node.output(static_cast<int>(k));
    if (!name.empty()) names.values[name] = (*outputs)[k];
  }
  return {};
}

Result<NodeReader::Values> NodeReader::read_outputs_of(const onnx::NodeProto& node, const Site& site,
                                                       Names& names) {
  std::string reason;
  const Expansion* expansion = nullptr;
  const OpDef* op = lookup(node, &expansion, &reason);
  if (reason.empty() && is_control_flow(node)) return read_control_flow(node, site, names);
  const bool is_constant_node = canonical_domain(node.domain()).empty() && node.op_type() == "Constant";
  const bool known = op != nullptr || expansion != nullptr || is_constant_node || is_sequence_operator(node);
  const bool own_attributes =
      expansion != nullptr && (*expansion->domain != '\0' || !expansion->attributes.empty());
  const std::vector<ExpansionAttribute>* own = own_attributes ? &expansion->attributes : nullptr;
  const bool custom = op != nullptr && (is_custom(*op) || op->has(kOfFiles));
  Result<ReadAttributes> read = read_attributes(node, out_.graph.opset, tensors_, own, custom);
  if (!read.ok()) {
    if (known) return read.error();
    read = ReadAttributes{};
  }
  if (op != nullptr && node.op_type() == "BatchNormalization" &&
      metadata_of(node, kRunningVariance) == "unbiased")
    read->attrs.set("unbiased", std::int64_t{1});
  if (known && reason.empty()) reason = read->unsupported;
  if (is_constant_node && reason.empty()) {
    if (const auto it = constants_.find(&node); it != constants_.end()) return Values{it->second};
    const ValueId id = TRY(read_constant(node, read->attrs, names));
    if (names.outer != nullptr) constants_[&node] = id;
    return Values{id};
  }
  if (!reason.empty()) {
    report_unknown(node, site, reason == "unknown" ? "" : reason);
    return opaque(node, site, names, std::move(read->attrs));
  }
  if (!read->excluded.empty()) {
    if (!lenient()) return bad_input(read->excluded);
    report_untyped(site.name, node.op_type().c_str(), site.source, bad_input(read->excluded));
    return opaque(node, site, names, std::move(read->attrs));
  }
  Values inputs = resolve(node, names);
  const bool of_sequence = std::any_of(inputs.begin(), inputs.end(), is_sequence);
  if (is_sequence_operator(node) || (of_sequence && node.op_type() == "Identity"))
    return read_sequence_operator(node, site, names, std::move(read->attrs));
  if (of_sequence) {
    report_unknown(node, site, "of a sequence");
    return opaque(node, site, names, std::move(read->attrs));
  }
  const std::string_view type = op == nullptr ? "" : op->name;
  if (type == "Identity" && is_detach(node)) op = &op_by_name("StopGradient");
  if (type == "Conv" && inputs.size() == 3 && is_malformed_bias(out_.graph, inputs[2])) {
    inputs[2] = kNone;
    ++malformed_biases_;
  }
  NewNode added{op, site.name, std::move(inputs), output_names(node, names), std::move(read->attrs)};
  while (!added.inputs.empty() && added.inputs.back() == kNone) added.inputs.pop_back();
  while (!added.outputs.empty() && added.outputs.back().empty()) added.outputs.pop_back();
  if (op == nullptr) return add_expansion(*expansion, node, site, std::move(added));
  if (!custom) TRY(check_schema_arity(node, added.inputs.size(), added.outputs.size(), out_.graph.opset));
  if (op->has(kChained) && added.inputs.size() != 2) return add_chain(std::move(added));
  const bool is_long = added.inputs.size() > static_cast<std::size_t>(op->max_inputs);
  return is_long && (type == "Sum" || type == "Mean") ? add_long_sum(std::move(added))
                                                      : add_node(std::move(added));
}

// The node's row or body, or none and why not ("unknown" when there is just none).
const OpDef* NodeReader::lookup(const onnx::NodeProto& node, const Expansion** expansion,
                                std::string* reason) const {
  *reason = vocabulary.problem;
  if (!reason->empty()) return nullptr;
  const std::string domain = canonical_domain(node.domain());
  const FunctionKey key = function_key(node);
  if (const auto it = vocabulary.skipped_functions.find(key); it != vocabulary.skipped_functions.end()) {
    *reason = it->second;
    return nullptr;
  }
  const auto opset = vocabulary.opsets.find(domain);
  if (opset == vocabulary.opsets.end() && domain != "gradloom") {
    *reason = "the model imports no opset of its domain";
    return nullptr;
  }
  // Our own operators are made by passes and autodiff, and trust their attributes; but those that are of files look at theirs.
  if (domain == "gradloom" && std::get<2>(key).empty()) {
    const OpDef* own =
        node.op_type() == host_call_op().name ? &host_call_op() : find_op(node.op_type(), domain, 1);
    if (own != nullptr && own->has(kOfFiles)) return own;
  }
  if (domain == "gradloom" || !std::get<2>(key).empty()) {
    *reason = "unknown";
    return nullptr;
  }
  if (domain.empty() && node.op_type() == "Constant") return nullptr;
  const int version = opset_number(opset->second);
  if (domain.empty() && version < kBroadcastOpset) {
    if (!same_form(node.op_type(), version, kBroadcastOpset - 1)) {
      *reason = "its form of opset " + std::to_string(version) + " is not supported";
      return nullptr;
    }
    *expansion = find_expansion(node.op_type(), domain, version);
    if (*expansion != nullptr) return nullptr;
  }
  const OpDef* op = find_op(node.op_type(), domain, version);
  if (op == nullptr) *expansion = find_expansion(node.op_type(), domain, version);
  if (op == nullptr && *expansion == nullptr && !is_control_flow(node) && !is_sequence_operator(node))
    *reason = "unknown";
  return op;
}

Result<ValueId> NodeReader::read_constant(const onnx::NodeProto& node, const Attrs& attrs,
                                          const Names& names) {
  if (node.input_size() != 0 || node.output_size() != 1 || node.output(0).empty())
    return bad_input("has no inputs and one output");
  return builder_.constant(promoted(TRY(constant_contents(attrs))), output_names(node, names)[0]);
}

Tensor NodeReader::promoted(Tensor tensor) const {
  const DType type = options_.imported(tensor.dtype());
  return type == tensor.dtype() ? tensor : tensor.cast(type);
}

// Contents of constants are looked at, and must not change afterwards: they are in memory. Those of others stay
// where they are, if they can.
Result<ValueId> NodeReader::read_initializer(const onnx::TensorProto& initializer, const std::string& name) {
  const std::string owner = "initializer " + quoted(initializer.name());
  const InitializerUse use = uses.use[initializer.name()];
  Result<Tensor> data =
      use == InitializerUse::constant ? tensors_.read(initializer) : tensors_.refer(initializer);
  if (!data.ok() && (!options_.allow_unknown || dtype_of_proto(initializer.data_type()).ok()))
    return with_context(data.error(), owner);
  if (use == InitializerUse::unused) return kNone;
  if (!data.ok()) {
    const ValueId id = builder_.input(name, Type{});
    out_.graph.inputs.pop_back();
    out_.graph.values[id].has_type = false;
    out_.notes.push_back(owner + ": " + data.error().message);
    return id;
  }
  if (options_.imported(data->dtype()) != data->dtype()) data = data->loaded();
  if (!data.ok()) return with_context(data.error(), owner);
  Tensor contents = promoted(std::move(*data));
  if (use == InitializerUse::parameter) return builder_.parameter(name, std::move(contents));
  if (use == InitializerUse::constant) return builder_.constant(std::move(contents), name);
  const ValueId id = builder_.input(name, contents.type(), Role::state);
  out_.graph.values[id].data = std::move(contents);
  return id;
}

// ---- names ----

NodeReader::Values NodeReader::resolve(const onnx::NodeProto& node, const Names& names) const {
  Values inputs;
  for (const std::string& input : node.input()) inputs.push_back(input.empty() ? kNone : names.find(input));
  return inputs;
}

std::vector<std::string> NodeReader::output_names(const onnx::NodeProto& node, const Names& names) {
  std::vector<std::string> outputs;
  for (const std::string& name : node.output())
    outputs.push_back(name.empty() || names.outer == nullptr ? name : fresh_name(names.prefix + name));
  return outputs;
}

std::string NodeReader::fresh_name(const std::string& base) {
  std::string name = builder_.unique_name(base);
  while (reserved.count(name) != 0 || reserved_values.count(name) != 0)
    name = builder_.unique_name(name + "_");
  return name;
}

std::string NodeReader::fresh_value_name(const std::string& base) {
  for (; named_values_ < out_.graph.values.size(); ++named_values_)
    value_names_.insert(out_.graph.values[named_values_].name);
  return reserved_values.count(base) == 0 && value_names_.count(base) == 0 ? base : fresh_name(base);
}

// ---- nodes that cannot be read ----

void NodeReader::report_unknown(const onnx::NodeProto& node, const Site& site, const std::string& reason) {
  const SourceNode& source = out_.graph.sources[site.source];
  out_.unknown.push_back({site.name, node.op_type(), source.domain, source.scope, reason});
}

NodeReader::Values NodeReader::opaque(const onnx::NodeProto& node, const Site& site, const Names& names,
                                      Attrs attrs) {
  NewNode added{opaque_op(node.op_type(), canonical_domain(node.domain())), site.name, resolve(node, names),
                output_names(node, names), std::move(attrs)};
  for (const std::string& name : captured_names(node)) {
    if (const ValueId id = names.find(name); id != kNone) added.inputs.push_back(id);
  }
  std::replace_if(added.inputs.begin(), added.inputs.end(), is_sequence, kNone);
  return add_untyped(std::move(added));
}

NodeReader::Mark NodeReader::mark() const {
  return {out_.graph.nodes.size(), out_.graph.sources.size(), out_.unknown.size(), out_.untyped.size(),
          static_cast<ValueId>(out_.graph.values.size())};
}

void NodeReader::take_back(const Mark& mark) {
  Graph& graph = out_.graph;
  for (std::size_t i = mark.nodes; i < graph.nodes.size(); ++i) graph.nodes[i] = Node{};
  if (std::erase_if(updates_, [&](const Update& u) { return u.next >= mark.first_value; }) > 0) {
    contents_.clear();
    for (const Update& u : updates_) contents_[u.state] = u.next;
  }
  graph.sources.resize(mark.sources);
  out_.untyped.resize(mark.untyped);
}

void NodeReader::report_untyped(const std::string& node, const char* op, std::uint32_t source,
                                const Error& error) {
  const SourceNode& from = out_.graph.sources[source];
  out_.untyped.push_back({node, op, from.domain, from.scope, error.message});
}

// ---- nodes that can ----

// Max and Min of any number of inputs: max(max(a, b), c). Equal inputs:
// the first one counts, as in a single operator.
Result<NodeReader::Values> NodeReader::add_chain(NewNode node) {
  if (node.inputs.empty()) return bad_input("has 0 inputs, it needs 1");
  if (node.outputs.size() != 1)
    return bad_input("has " + std::to_string(node.outputs.size()) + " outputs, it gives 1");
  if (node.inputs.size() == 1) {
    node.op = &op_by_name("Identity");
    return add_node(std::move(node));
  }
  ValueId left = node.inputs[0];
  for (std::size_t k = 1; k < node.inputs.size(); ++k) {
    NewNode link{node.op, node.name, {left, node.inputs[k]}, node.outputs, node.attrs};
    if (k + 1 < node.inputs.size()) {
      link.outputs[0] = fresh_name(node.outputs[0] + "/" + std::to_string(k));
      link.name = fresh_name(node.name + "/" + std::to_string(k));
    }
    left = TRY(add_node(std::move(link)))[0];
  }
  return Values{left};
}

// Sum and Mean of more inputs than their rows take: every part begins with the sum of those before it.
Result<NodeReader::Values> NodeReader::add_long_sum(NewNode node) {
  if (node.outputs.size() != 1)
    return bad_input("has " + std::to_string(node.outputs.size()) + " outputs, it gives 1");
  const bool mean = std::string_view(node.op->name) == "Mean";
  const OpDef& sum = op_by_name("Sum");
  const auto most = static_cast<std::size_t>(sum.max_inputs);
  ValueId total = kNone;
  for (std::size_t k = 0; k < node.inputs.size();) {
    NewNode part{&sum, node.name, {}, node.outputs, {}};
    if (total != kNone) part.inputs.push_back(total);
    while (k < node.inputs.size() && part.inputs.size() < most) part.inputs.push_back(node.inputs[k++]);
    if (mean || k < node.inputs.size()) {
      part.outputs[0] = fresh_name(node.outputs[0] + "/" + std::to_string(k));
      part.name = fresh_name(node.name + "/" + std::to_string(k));
    }
    total = TRY(add_node(std::move(part)))[0];
  }
  if (!mean) return Values{total};
  const Value& value = out_.graph.values[total];
  const DType type = value.has_type ? value.type.dtype : DType::f32;
  const ValueId count = builder_.scalar(type, static_cast<double>(node.inputs.size()));
  return add_node({&op_by_name("Div"), node.name, {total, count}, node.outputs, {}});
}

Result<NodeReader::Values> NodeReader::add_expansion(const Expansion& expansion, const onnx::NodeProto& node,
                                                     const Site& site, NewNode added) {
  TRY(check_arity(added.inputs, added.outputs.size(),
                  {expansion.min_inputs, expansion.max_inputs, expansion.max_outputs}));
  const bool typed = std::all_of(added.inputs.begin(), added.inputs.end(),
                                 [&](ValueId id) { return id == kNone || out_.graph.values[id].has_type; });
  added.op = opaque_op(node.op_type(), canonical_domain(node.domain()));
  if (!typed) return add_untyped(std::move(added));
  const Mark start = mark();
  const AddPart add = [&](const OpDef& op, std::vector<ValueId> inputs, Attrs attrs,
                          int count) -> Result<Values> {
    NewNode part{&op, fresh_name(site.name + "/" + op.name), std::move(inputs), {}, std::move(attrs)};
    for (int k = 0; k < count; ++k) part.outputs.push_back(fresh_name(part.name + ":" + std::to_string(k)));
    Values outputs = TRY(add_node(std::move(part)));
    for (const ValueId id : outputs) {
      if (!out_.graph.values[id].has_type) return bad_input("types inside it cannot be inferred");
    }
    return outputs;
  };
  std::vector<bool> wanted;
  for (const std::string& output : added.outputs) wanted.push_back(!output.empty());
  Expander expander(builder_, add, added.attrs, added.inputs, wanted, shared_constants_);
  const Status built = expansion.build(expander);
  std::string reason = expander.unsupported_reason();
  for (std::size_t k = 0; built.ok() && k < wanted.size(); ++k) {
    if (wanted[k] && expander.outputs[k] == kNone)
      reason = "output " + std::to_string(k) + " is not supported";
  }
  if (built.ok() && reason.empty()) return bind(expander.outputs, added.outputs, site, start.first_value);
  if (reason.empty() && !lenient()) return built.error();
  take_back(start);
  if (reason.empty()) {
    report_untyped(site.name, node.op_type().c_str(), site.source, built.error());
  } else {
    report_unknown(node, site, reason);
  }
  return add_untyped(std::move(added));
}

Result<NodeReader::Values> NodeReader::bind(const Values& values, const std::vector<std::string>& names,
                                            const Site& site, ValueId first_value) {
  Values bound;
  std::set<ValueId> renamed;
  for (std::size_t k = 0; k < names.size(); ++k) {
    const ValueId id = names[k].empty() ? kNone : values[k];
    bound.push_back(id);
    if (id == kNone || is_sequence(id)) continue;
    Value& value = out_.graph.values[id];
    if (id >= first_value && value.producer != kNone && renamed.insert(id).second) {
      value.name = names[k];
      value_names_.insert(names[k]);
      continue;
    }
    NewNode identity{&op_by_name("Identity"), fresh_name(site.name + "/Identity"), {id}, {names[k]}, {}};
    bound.back() = TRY(add_node(std::move(identity)))[0];
  }
  return bound;
}

Result<ValueId> NodeReader::add_part(const Site& site, const char* op, std::vector<ValueId> inputs,
                                     Attrs attrs) {
  NewNode part{&op_by_name(op), fresh_name(site.name + "/" + op), std::move(inputs), {}, std::move(attrs)};
  part.outputs.push_back(fresh_name(part.name + ":0"));
  return TRY(add_node(std::move(part)))[0];
}

namespace {

// Outputs that kernels do not need memory for. Those of BatchNormalization say by
// their absence what it updates.
bool may_be_left_out(const OpDef& op, std::size_t output) {
  if (output == 0) return op.has(kFirstOutputOptional);
  return op.has(kOptionalOutputs) || std::string_view(op.name) == "BatchNormalization";
}

}  // namespace

Result<NodeReader::Values> NodeReader::add_node(NewNode node) {
  const OpDef& op = *node.op;
  TRY(check_arity(node.inputs, node.outputs.size(), {op.min_inputs, op.max_inputs, op.max_outputs}));
  if (static_cast<std::int64_t>(out_.graph.nodes.size()) >= options_.limits.nodes) {
    return Error{Errc::limit, "more than " + std::to_string(options_.limits.nodes) +
                                  " nodes after unrolling" + raised_by("nodes")};
  }
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i].empty() && !may_be_left_out(op, i))
      node.outputs[i] = fresh_name(node.name + ":" + std::to_string(i));
  if (options_.float_type == DType::f64) promote_attributes_to_f64(op.name, node.attrs, true);
  if (op.has(kRandom)) node.attrs.set("key", static_cast<std::int64_t>(fnv1a64(node.name)));
  const bool typed = std::all_of(node.inputs.begin(), node.inputs.end(),
                                 [&](ValueId id) { return id == kNone || out_.graph.values[id].has_type; });
  if (!typed) return add_untyped(std::move(node));
  const bool has_states = std::string_view(op.name) == "BatchNormalization";
  const std::vector<ValueId> named = has_states ? node.inputs : std::vector<ValueId>();
  if (has_states) follow_updates(node.inputs);
  Result<Values> added = Values{};
  if (const Status affordable = folder_.examine(op, node.inputs); !affordable.ok()) {
    added = affordable.error();
  } else {
    added = builder_.add(op, node.inputs, node.attrs, static_cast<int>(node.outputs.size()), node.outputs,
                         node.name);
  }
  if (!added.ok() && !lenient()) return added.error();
  if (!added.ok()) {
    report_untyped(node.name, op.name, builder_.context().origin.sources.at(0), added.error());
    return add_untyped(std::move(node));
  }
  for (std::size_t k = 0; k < node.outputs.size(); ++k) {
    if ((*added)[k] != kNone) TRY(check_size(out_.graph.type((*added)[k]), node.outputs[k]));
  }
  if (has_states) TRY(add_updates(named, *added));
  TRY(folder_.fold(static_cast<NodeId>(out_.graph.nodes.size() - 1)));
  return added;
}

Status NodeReader::check_size(const Type& type, const std::string& name) const {
  if (static_cast<std::int64_t>(type.shape.size()) > options_.limits.rank) {
    return Error{Errc::limit, "output " + quoted(name) + " has rank " + std::to_string(type.shape.size()) +
                                  ", over the limit of " + std::to_string(options_.limits.rank) +
                                  raised_by("rank")};
  }
  if (!is_static(type.shape)) return {};
  const auto count = checked_element_count(type.shape, dtype_bytes(type.dtype));
  return count.ok() ? Status{} : Status{with_context(count.error(), "output " + quoted(name))};
}

// A module that PyTorch calls twice in a step is two nodes with the same states: the second one starts from
// what the first one made of them.
void NodeReader::follow_updates(std::vector<ValueId>& inputs) const {
  for (std::size_t k = 3; k < inputs.size(); ++k)
    if (const auto it = contents_.find(inputs[k]); it != contents_.end()) inputs[k] = it->second;
}

// Running mean and variance after the step are outputs 1 and 2 of a BatchNormalization that trains.
Status NodeReader::add_updates(const std::vector<ValueId>& states, const Values& outputs) {
  for (std::size_t k = 1; k <= 2 && k < outputs.size(); ++k) {
    const ValueId state = states[k + 2], next = outputs[k];
    if (next == kNone || out_.graph.values[state].role != Role::state) continue;
    if (out_.graph.type(state) != out_.graph.type(next))
      return bad_input("the new running statistics have another type than the old ones");
    updates_.push_back({state, next});
    contents_[state] = next;
  }
  return {};
}

// Outputs take the types that the file declares for them, if it does.
NodeReader::Values NodeReader::add_untyped(NewNode node) {
  Node added;
  added.op = node.op;
  added.attrs = std::move(node.attrs);
  added.inputs = std::move(node.inputs);
  added.name = std::move(node.name);
  added.origin = builder_.context().origin;
  added.rank = builder_.context().rank;
  const auto id = static_cast<NodeId>(out_.graph.nodes.size());
  for (const std::string& output : node.outputs) {
    if (output.empty()) {
      added.outputs.push_back(kNone);
      continue;
    }
    Value value;
    value.name = output;
    value.producer = id;
    value.output_index = static_cast<std::uint32_t>(added.outputs.size());
    if (const auto it = declared_types.find(output); it != declared_types.end()) {
      Result<Type> type = types_.read_declared(*it->second);
      value.has_type = type.ok();
      if (type.ok()) value.type = std::move(*type);
    }
    added.outputs.push_back(static_cast<ValueId>(out_.graph.values.size()));
    out_.graph.values.push_back(std::move(value));
  }
  Values outputs = added.outputs;
  out_.graph.nodes.push_back(std::move(added));
  return outputs;
}

Status NodeReader::fold_readers(const std::vector<ValueId>& constants) {
  const Graph& graph = out_.graph;
  std::vector<bool> follows(graph.values.size(), false);
  for (const ValueId id : constants) follows[id] = true;
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {  // as they were read: producers before consumers
    const Node& node = graph.node(id);
    const auto is_in = [&](ValueId in) { return in != kNone && follows[in]; };
    const auto typed = [&](ValueId out) { return out == kNone || graph.value(out).has_type; };
    if (!node.alive() || std::none_of(node.inputs.begin(), node.inputs.end(), is_in) ||
        !std::all_of(node.outputs.begin(), node.outputs.end(), typed))
      continue;
    if (const Status folded = folder_.fold(id); !folded)
      return with_context(folded.error(), "node " + quoted(node.name) + " (" + node.op->name + ")");
    for (const ValueId out : node.outputs)
      if (out != kNone && is_constant(graph, out)) follows[out] = true;
  }
  return {};
}

void NodeReader::finish() {
  std::copy_if(updates_.begin(), updates_.end(), std::back_inserter(out_.graph.updates),
               [&](const Update& u) { return contents_.at(u.state) == u.next; });
  if (folder_.skipped() > 0) {
    out_.notes.push_back(std::to_string(folder_.skipped()) +
                         " computable constants were left to the run: over the folding limits");
  }
  if (malformed_biases_ > 0) {
    out_.notes.push_back("left away: the bias of " + counted(malformed_biases_, "convolution") +
                         ", zeros that are no vector (the dynamo exporter's for none)");
  }
}

}  // namespace gradloom
