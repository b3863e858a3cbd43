// If, Loop and Scan whose course is known while the model is read become the nodes that would run: the branch
// taken, the iterations one after another. Bodies are read into scopes of their own (Names), so captured
// outer values need no renaming, and a body's initializers and Constant nodes are read once. Everything else
// is unsupported, with the reason.
#include <algorithm>
#include <memory>
#include <utility>

#include "engine/base/text.h"
#include "engine/onnx/read/attributes.h"
#include "engine/onnx/file/newer_fields.h"
#include "engine/onnx/read/node_reader.h"
#include "engine/onnx/file/scope.h"
#include "engine/onnx/file/subgraph.h"
#include "engine/ops/samples.h"

namespace gradloom {

namespace {

Result<const onnx::GraphProto*> graph_attribute(const onnx::NodeProto& node, const std::string& name) {
  const onnx::GraphProto* found = nullptr;
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() != name) continue;
    if (!attribute.has_g() || found != nullptr)
      return bad_input("attribute '" + name + "' must be one graph");
    found = &attribute.g();
  }
  if (found == nullptr) return bad_input("attribute '" + name + "' is missing");
  return found;
}

// One value of a constant of one element, or why there is none.
const Tensor* known_scalar(const Graph& graph, ValueId id) {
  if (id >= graph.values.size() || !graph.value(id).has_type || !is_constant(graph, id)) return nullptr;
  const Tensor& data = graph.value(id).data;
  return data.defined() && data.count() == 1 ? &data : nullptr;
}

Status check_count(const char* what, int given, std::size_t expected) {
  if (given == static_cast<int>(expected)) return {};
  return bad_input("its body has " + std::to_string(given) + " " + what + ", it needs " +
                   std::to_string(expected));
}

}  // namespace

struct NodeReader::Body {
  const onnx::GraphProto* proto = nullptr;
  std::vector<std::string> names;  // of the nodes
  std::vector<int> order;
  std::vector<std::pair<std::string, ValueId>> initializers;
};

bool NodeReader::is_control_flow(const onnx::NodeProto& node) {
  const std::string& type = node.op_type();
  if (type == "FlexAttention") return node.domain() == "ai.onnx.preview";
  return canonical_domain(node.domain()).empty() &&
         (type == "If" || type == "Loop" || type == "Scan" || type == "SequenceMap");
}

Result<NodeReader::Values> NodeReader::read_control_flow(const onnx::NodeProto& node, const Site& site,
                                                         Names& names) {
  const Mark start = mark();
  const std::string& type = node.op_type();
  not_followed_.clear();
  Result<Values> read = type == "If"              ? read_if(node, site, names)
                        : type == "Loop"          ? read_loop(node, site, names)
                        : type == "Scan"          ? read_scan(node, site, names)
                        : type == "FlexAttention" ? read_flex_attention(node, site, names)
                                                  : read_sequence_map(node, site, names);
  std::string reason = std::exchange(not_followed_, "");
  // A loop that is too long to unroll can still be looked at.
  if (!read.ok() && reason.empty() && read.error().code == Errc::limit && options_.allow_unknown)
    reason = read.error().message;
  if (!read.ok() && reason.empty()) return read.error();
  const bool unknown_inside = out_.unknown.size() > start.unknown;
  if (!read.ok() || (unknown_inside && type != "If")) {
    take_back(start);
    if (!unknown_inside) {
      report_unknown(node, site, reason);
      for (const onnx::GraphProto* graph : subgraphs_of(node)) report_inside(*graph, site);
    }
    return opaque(node, site, names, {});
  }
  return bind(*read, output_names(node, names), site, start.first_value);
}

Error NodeReader::not_followed(const std::string& why) {
  not_followed_ = why;
  return bad_input(why);
}

// Operators inside that are unknown too: a model's problems are named all at once.
void NodeReader::report_inside(const onnx::GraphProto& graph, const Site& site) {
  for_each_graph(graph, [&](const onnx::GraphProto& inner) {
    for (const auto& node : inner.node()) {
      std::string reason;
      const Expansion* expansion = nullptr;
      lookup(node, &expansion, &reason);
      if (reason.empty()) continue;
      const std::string name = node.name().empty() ? node.op_type() : node.name();
      out_.unknown.push_back({site.name + "/" + name, node.op_type(), canonical_domain(node.domain()),
                              out_.graph.sources[site.source].scope, reason == "unknown" ? "" : reason});
    }
  });
}

Result<NodeReader::Body*> NodeReader::body_of(const onnx::GraphProto& graph, const Names& names,
                                              const Site& site) {
  std::shared_ptr<Body>& body = bodies_[&graph];
  if (body != nullptr) return body.get();
  auto fresh = std::make_shared<Body>();
  fresh->proto = &graph;
  NodeNaming naming = unique_node_names(graph);
  std::vector<std::string> labels;
  for (int i = 0; i < graph.node_size(); ++i)
    labels.push_back(
        node_label(site.name + "/" + naming.names[static_cast<std::size_t>(i)], graph.node(i).op_type()));
  fresh->names = std::move(naming.names);
  fresh->order = TRY(order_nodes(graph, labels, [&](const std::string& name) {
                   return names.find(name) != kNone;
                 })).order;
  for (const auto& initializer : graph.initializer()) {
    // Trained weights leave under the file's name, so they keep it where they can.
    const ValueId id = TRY(read_initializer(initializer, fresh_value_name(initializer.name())));
    if (id != kNone) fresh->initializers.emplace_back(initializer.name(), id);
  }
  body = std::move(fresh);
  return body.get();
}

Result<NodeReader::Values> NodeReader::read_body(const Body& body, Names& inner, const Site& site,
                                                 const std::string& part) {
  for (const auto& [name, id] : body.initializers) inner.values[name] = id;
  const std::string around = out_.graph.sources[site.source].scope;
  const std::string scope =
      (around.empty() ? "" : around + "/") + site.name.substr(site.name.rfind('/') + 1) + part;
  for (const int i : body.order) {
    const onnx::NodeProto& node = body.proto->node(i);
    const auto own = scope_of_name_scopes(metadata_of(node, kNameScopes));
    const Site place{static_cast<std::uint32_t>(out_.graph.sources.size()),
                     fresh_name(inner.prefix + body.names[static_cast<std::size_t>(i)])};
    if (++unrolled_ >
        options_.limits.expanded_nodes) {  // not less when an attempt is taken back: its time is spent
      return Error{Errc::limit, "more than " + std::to_string(options_.limits.expanded_nodes) +
                                    " nodes after unrolling" + raised_by("expanded_nodes")};
    }
    out_.graph.sources.push_back(
        {place.name, node.op_type(), canonical_domain(node.domain()), own ? *own : scope});
    TRY(read(node, place, inner));
  }
  Values outputs;
  for (const auto& output : body.proto->output()) {
    outputs.push_back(inner.find(output.name()));
    if (outputs.back() == kNone)
      return bad_input("output '" + escaped(output.name()) + "' of its body is produced by nothing");
  }
  return outputs;
}

Status NodeReader::count_iterations(std::int64_t count) {
  const std::int64_t most =
      options_.limits.expanded_nodes / 2;  // an iteration is at least its number and its condition
  if (count <= most - iterations_) {
    iterations_ += count;
    return {};
  }
  return Error{Errc::limit, "the loops of the model have more than " + std::to_string(most) + " iterations" +
                                raised_by("expanded_nodes")};
}

Result<NodeReader::Values> NodeReader::read_if(const onnx::NodeProto& node, const Site& site, Names& names) {
  const onnx::GraphProto* branches[] = {TRY(graph_attribute(node, "else_branch")),
                                        TRY(graph_attribute(node, "then_branch"))};
  const Values inputs = resolve(node, names);
  if (inputs.size() != 1 || inputs[0] == kNone) return bad_input("has one input, the condition");
  for (const onnx::GraphProto* branch : branches) {
    if (branch->input_size() != 0) return bad_input("its branches have no inputs");
    TRY(check_count("outputs", branch->output_size(), static_cast<std::size_t>(node.output_size())));
  }
  const Tensor* condition = known_scalar(out_.graph, inputs[0]);
  if (condition == nullptr) return not_followed("its condition is not known before running");
  if (condition->dtype() != DType::boolean) return bad_input("the condition must be boolean");
  const Body* body = TRY(body_of(*branches[condition->at(0) != 0 ? 1 : 0], names, site));
  Names inner{&names, site.name + "/"};
  return read_body(*body, inner, site, "");
}

// Inputs: trip count, condition, values carried from one iteration to the next. The body takes the
// number of the iteration, the condition and those values; it gives the next condition and values,
// and slices of further outputs.
Result<NodeReader::Values> NodeReader::read_loop(const onnx::NodeProto& node, const Site& site,
                                                 Names& names) {
  const onnx::GraphProto& graph = *TRY(graph_attribute(node, "body"));
  Values inputs = resolve(node, names);
  if (inputs.size() < 2) inputs.resize(2, kNone);
  const ValueId trips_value = inputs[0], condition_value = inputs[1];
  Values carried(inputs.begin() + 2, inputs.end());
  TRY(check_count("inputs", graph.input_size(), 2 + carried.size()));
  const std::size_t outputs = static_cast<std::size_t>(std::max(graph.output_size(), 1)) - 1;
  if (outputs < carried.size() || static_cast<std::size_t>(node.output_size()) > outputs)
    return bad_input("its body has too few outputs");
  if (std::find(carried.begin(), carried.end(), kNone) != carried.end())
    return bad_input("a carried value is missing");
  const Tensor* trips = known_scalar(out_.graph, trips_value);
  const Tensor* condition = known_scalar(out_.graph, condition_value);
  if (trips_value != kNone && trips == nullptr)
    return not_followed("its trip count is not known before running");
  if (condition_value != kNone && condition == nullptr)
    return not_followed("its condition is not known before running");
  if ((trips != nullptr && trips->dtype() != DType::i64) ||
      (condition != nullptr && condition->dtype() != DType::boolean))
    return bad_input("the trip count must be a 64-bit integer and the condition boolean");
  const bool counted = trips != nullptr;
  const auto count = counted ? static_cast<const std::int64_t*>(trips->data())[0] : 0;
  bool goes_on = condition == nullptr || condition->at(0) != 0;

  const Body* body = TRY(body_of(graph, names, site));
  const std::size_t unknown = out_.unknown.size();
  std::vector<Values> slices(outputs - carried.size());
  for (std::int64_t i = 0; goes_on && (!counted || i < count); ++i) {
    TRY(count_iterations(1));
    Names inner{&names, site.name + "/" + std::to_string(i) + "/"};
    inner.values[graph.input(0).name()] = builder_.constant(Tensor::from_i64({i}).reshaped({}));
    inner.values[graph.input(1).name()] = builder_.constant(Tensor::scalar(DType::boolean, 1));
    for (std::size_t k = 0; k < carried.size(); ++k)
      inner.values[graph.input(static_cast<int>(k) + 2).name()] = carried[k];
    const Values results = TRY(read_body(*body, inner, site, "." + std::to_string(i)));
    if (out_.unknown.size() > unknown) break;
    const Tensor* next = known_scalar(out_.graph, results[0]);
    if (next == nullptr)
      return not_followed("whether iteration " + std::to_string(i + 1) +
                          " follows is not known before running");
    goes_on = next->at(0) != 0;
    std::copy_n(results.begin() + 1, carried.size(), carried.begin());
    for (std::size_t k = 0; k < slices.size(); ++k) slices[k].push_back(results[1 + carried.size() + k]);
  }
  Values results = carried;
  for (std::size_t k = 0; k < slices.size() && results.size() < static_cast<std::size_t>(node.output_size());
       ++k)
    results.push_back(TRY(stacked(site, slices[k], 0, graph.output(static_cast<int>(results.size()) + 1))));
  results.resize(static_cast<std::size_t>(node.output_size()));
  return results;
}

// Slices joined along a new axis. Without any the declared type tells the shape.
Result<ValueId> NodeReader::stacked(const Site& site, const Values& slices, std::int64_t axis,
                                    const onnx::ValueInfoProto& declared) {
  if (slices.empty()) {
    Result<Type> type = types_.read_declared(declared.type());
    if (!type.ok() || !is_static(type->shape))
      return not_followed("it has no iteration, and output '" + escaped(declared.name()) +
                          "' no declared shape");
    axis = TRY(normalized_axis(axis, type->shape.size() + 1));
    type->shape.insert(type->shape.begin() + axis, 0);
    return builder_.constant(Tensor(type->dtype, type->shape));
  }
  Values parts;
  for (const ValueId slice : slices) {
    if (is_sequence(slice) || !out_.graph.value(slice).has_type)
      return not_followed("types in its body cannot be inferred");
    parts.push_back(TRY(add_part(site, "Unsqueeze", {slice, builder_.i64s({axis})})));
  }
  return parts.size() == 1 ? parts[0] : TRY(add_part(site, "Concat", std::move(parts), {{"axis", axis}}));
}

namespace {

// Axis or direction k of a list that may be absent.
std::int64_t entry(const std::vector<std::int64_t>& list, std::size_t k) {
  return list.empty() ? 0 : list[k];
}

}  // namespace

// What a Scan says beside its inputs: states, then sequences.
struct NodeReader::Scan {
  const onnx::GraphProto& graph;
  std::size_t states;
  std::vector<std::int64_t> input_axes, input_reversed, output_axes, output_reversed;  // empty: zeros
};

// Inputs: initial states, then sequences, whose slices along their axes the iterations take in turn. The body
// takes states and slices and gives the next states and slices of outputs.
Result<NodeReader::Values> NodeReader::read_scan(const onnx::NodeProto& node, const Site& site,
                                                 Names& names) {
  const onnx::GraphProto& graph = *TRY(graph_attribute(node, "body"));
  const bool batched = out_.graph.opset < 9;
  const auto [attrs, unsupported, excluded] = TRY(read_attributes(node, out_.graph.opset, tensors_));
  if (!excluded.empty()) return bad_input(excluded);
  Values inputs = resolve(node, names);
  if (batched && !inputs.empty()) {
    if (inputs[0] != kNone) return not_followed("its items have lengths of their own");
    inputs.erase(inputs.begin());
  }
  const auto sequences =
      static_cast<std::size_t>(std::max<std::int64_t>(attrs.integer("num_scan_inputs"), 0));
  if (sequences < 1 || sequences > inputs.size() ||
      std::find(inputs.begin(), inputs.end(), kNone) != inputs.end())
    return bad_input("num_scan_inputs does not fit its " + std::to_string(inputs.size()) + " inputs");
  const std::size_t states = inputs.size() - sequences;
  TRY(check_count("inputs", graph.input_size(), inputs.size()));
  TRY(check_count("outputs", graph.output_size(), static_cast<std::size_t>(node.output_size())));
  const std::size_t outputs = static_cast<std::size_t>(node.output_size());
  if (outputs < states) return bad_input("its body has too few outputs");
  const auto list = [&, &attrs = attrs](const char* name,
                                        std::size_t size) -> Result<std::vector<std::int64_t>> {
    auto values = attrs.integers(name);
    if (!values.empty() && values.size() != size)
      return bad_input(std::string("attribute '") + name + "' has a wrong size");
    return values;
  };
  for (const ValueId id : inputs) {
    if (is_sequence(id)) return not_followed("of a sequence");
    if (!out_.graph.value(id).has_type) return not_followed("the type of an input is not known");
  }
  const char* const reversed = batched ? "directions" : "scan_input_directions";
  const Scan scan{graph,
                  states,
                  TRY(list("scan_input_axes", sequences)),
                  TRY(list(reversed, sequences)),
                  TRY(list("scan_output_axes", outputs - states)),
                  TRY(list("scan_output_directions", outputs - states))};
  return batched ? scan_items(scan, site, names, inputs) : unrolled(scan, site, names, inputs, "");
}

// Opset 8: one scan for each item of the batch, the first axis of every input and output.
Result<NodeReader::Values> NodeReader::scan_items(const Scan& scan, const Site& site, Names& names,
                                                  const Values& inputs) {
  const Shape& first = out_.graph.value(inputs[0]).type.shape;
  const std::int64_t items = first.empty() ? 0 : first[0];
  if (items < 0) return not_followed("its batch is a dimension without a number (--dim NAME=N)");
  TRY(count_iterations(items));
  std::vector<Values> of_input, of_output(static_cast<std::size_t>(scan.graph.output_size()));
  for (const ValueId input : inputs) {
    const Shape shape = out_.graph.value(input).type.shape;
    if (shape.empty() || shape[0] != items) return bad_input("its inputs have different batches");
    of_input.push_back(TRY(slices_of(site, input, 0, items)));
  }
  const std::size_t unknown = out_.unknown.size();
  for (std::size_t item = 0; item < static_cast<std::size_t>(items) && out_.unknown.size() == unknown;
       ++item) {
    Values own;
    for (const Values& slices : of_input) own.push_back(slices[item]);
    const Values results = TRY(unrolled(scan, site, names, own, std::to_string(item) + "."));
    for (std::size_t k = 0; k < results.size(); ++k) of_output[k].push_back(results[k]);
  }
  Values results;
  for (std::size_t k = 0; k < of_output.size(); ++k) {
    if (of_output[k].empty()) return not_followed("its batch has no item");
    results.push_back(TRY(stacked(site, of_output[k], 0, scan.graph.output(static_cast<int>(k)))));
  }
  return results;
}

// `item` names the iterations of one scan of several.
Result<NodeReader::Values> NodeReader::unrolled(const Scan& scan, const Site& site, Names& names,
                                                const Values& inputs, const std::string& item) {
  const onnx::GraphProto& graph = scan.graph;
  const std::size_t states = scan.states, sequences = inputs.size() - states;
  std::int64_t trips = -1;
  std::vector<std::int64_t> axes;
  for (std::size_t k = 0; k < sequences; ++k) {
    const Shape& shape = out_.graph.value(inputs[states + k]).type.shape;
    axes.push_back(TRY(normalized_axis(entry(scan.input_axes, k), shape.size())));
    const std::int64_t length = shape[static_cast<std::size_t>(axes.back())];
    if (length < 0) return not_followed("its trip count is a dimension without a number (--dim NAME=N)");
    if (trips >= 0 && length != trips) return bad_input("its sequences have different lengths");
    trips = length;
  }
  TRY(count_iterations(trips));
  std::vector<Values> parts;
  for (std::size_t k = 0; k < sequences; ++k) {
    parts.push_back(TRY(slices_of(site, inputs[states + k], axes[k], trips)));
    if (entry(scan.input_reversed, k) != 0) std::reverse(parts.back().begin(), parts.back().end());
  }

  const Body* body = TRY(body_of(graph, names, site));
  const std::size_t unknown = out_.unknown.size();
  Values carried(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(states));
  std::vector<Values> slices(static_cast<std::size_t>(graph.output_size()) - states);
  for (std::int64_t i = 0; i < trips && out_.unknown.size() == unknown; ++i) {
    const std::string iteration = item + std::to_string(i);
    Names inner{&names, site.name + "/" + iteration + "/"};
    for (std::size_t k = 0; k < inputs.size(); ++k)
      inner.values[graph.input(static_cast<int>(k)).name()] =
          k < states ? carried[k] : parts[k - states][static_cast<std::size_t>(i)];
    const Values results = TRY(read_body(*body, inner, site, "." + iteration));
    std::copy_n(results.begin(), states, carried.begin());
    for (std::size_t k = 0; k < slices.size(); ++k) slices[k].push_back(results[states + k]);
  }
  Values results = carried;
  for (std::size_t k = 0; k < slices.size(); ++k) {
    if (entry(scan.output_reversed, k) != 0) std::reverse(slices[k].begin(), slices[k].end());
    results.push_back(TRY(
        stacked(site, slices[k], entry(scan.output_axes, k), graph.output(static_cast<int>(states + k)))));
  }
  return results;
}

// The body for each tensor of the first sequence; further inputs are sequences of the same length, or tensors
// that all iterations take. Outputs are sequences.
Result<NodeReader::Values> NodeReader::read_sequence_map(const onnx::NodeProto& node, const Site& site,
                                                         Names& names) {
  const onnx::GraphProto& graph = *TRY(graph_attribute(node, "body"));
  const Values inputs = resolve(node, names);
  TRY(check_count("inputs", graph.input_size(), inputs.size()));
  TRY(check_count("outputs", graph.output_size(), static_cast<std::size_t>(node.output_size())));
  if (inputs.empty() || std::find(inputs.begin(), inputs.end(), kNone) != inputs.end())
    return bad_input("an input is missing");
  if (!is_sequence(inputs[0])) return not_followed("its sequence is not known before running");
  const std::size_t count = sequences_[inputs[0] - kFirstSequence].size();
  TRY(count_iterations(static_cast<std::int64_t>(count)));
  const Body* body = TRY(body_of(graph, names, site));
  const std::size_t unknown = out_.unknown.size();
  std::vector<Values> lists(static_cast<std::size_t>(node.output_size()));
  for (std::size_t i = 0; i < count && out_.unknown.size() == unknown; ++i) {
    Names inner{&names, site.name + "/" + std::to_string(i) + "/"};
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      ValueId value = inputs[k];
      if (is_sequence(value)) {
        const Values& list = sequences_[value - kFirstSequence];
        if (list.size() != count) return bad_input("its sequences have different lengths");
        value = list[i];
      }
      inner.values[graph.input(static_cast<int>(k)).name()] = value;
    }
    const Values results = TRY(read_body(*body, inner, site, "." + std::to_string(i)));
    for (std::size_t k = 0; k < lists.size(); ++k) lists[k].push_back(results[k]);
  }
  Values outputs;
  for (Values& list : lists) {
    if (std::any_of(list.begin(), list.end(), is_sequence)) return not_followed("a sequence of sequences");
    outputs.push_back(TRY(add_sequence(std::move(list))));
  }
  return outputs;
}

// The slices of a sequence: one Split, so that its gradient is one Concat.
Result<NodeReader::Values> NodeReader::slices_of(const Site& site, ValueId sequence, std::int64_t axis,
                                                 std::int64_t count) {
  if (count == 0) return Values{};
  Values pieces{sequence};
  if (count > 1) {
    NewNode split{&op_by_name("Split"), fresh_name(site.name + "/Split"), {sequence}, {}, {{"axis", axis}}};
    for (std::int64_t i = 0; i < count; ++i)
      split.outputs.push_back(fresh_name(split.name + ":" + std::to_string(i)));
    pieces = TRY(add_node(std::move(split)));
  }
  for (ValueId& piece : pieces) piece = TRY(add_part(site, "Squeeze", {piece, builder_.i64s({axis})}));
  return pieces;
}

}  // namespace gradloom
