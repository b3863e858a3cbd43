// ONNX graph -> Graph: names become ids, nodes get their rows, attributes and types, and what can be computed
// without parameters and inputs (shapes and the index arithmetic on them) is computed at once.
#include "engine/onnx/import.h"

#include <algorithm>
#include <exception>
#include <new>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/onnx/attributes.h"
#include "engine/onnx/fold.h"
#include "engine/onnx/functions.h"
#include "engine/onnx/initializers.h"
#include "engine/onnx/model_file.h"
#include "engine/onnx/node_order.h"
#include "engine/onnx/opaque.h"
#include "engine/onnx/scope.h"
#include "engine/onnx/tensor_proto.h"
#include "engine/onnx/types.h"
#include "engine/ops/op.h"

namespace gradloom {

namespace {

constexpr int kOldestOpset = 7, kNewestOpset = 24;
constexpr int kOldestIr = 3, kNewestIr = 13;

Error bad(const std::string& message) { return Error{Errc::bad_input, message}; }

std::string canonical(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

std::string quoted(const std::string& name) { return "'" + escaped(name) + "'"; }

class Importer {
 public:
  Importer(onnx::ModelProto& model, const ImportOptions& options, const std::string& path)
      : model_(model),
        proto_(*model.mutable_graph()),
        options_(options),
        builder_(out_.graph),
        types_(options, out_.graph.symbols),
        tensors_(options.limits, folder_of(path)),
        folder_(out_.graph, options.limits) {}

  Result<ImportedModel> run() {
    TRY(read_header());
    skipped_functions_ = TRY(inline_functions(model_, options_.limits));
    name_nodes();
    NodeOrder order = TRY(order_nodes(proto_, labels_));
    if (!order.was_sorted) out_.notes.push_back("nodes were not in topological order: sorted");
    uses_ = classify_initializers(proto_);
    TRY(read_inputs());
    TRY(read_initializers());
    add_sources();
    for (const auto& info : proto_.value_info()) declared_types_[info.name()] = &info.type();
    for (std::size_t position = 0; position < order.order.size(); ++position) {
      builder_.rank = static_cast<std::int64_t>(position);
      TRY(read_node(order.order[position]));
    }
    if (!out_.unknown.empty() && !options_.allow_unknown) return unsupported_error(out_.unknown);
    TRY(read_outputs());
    add_notes();
    return std::move(out_);
  }

 private:
  bool lenient() const { return options_.allow_unknown || !out_.graph.symbols.empty(); }

  // ---- model, opsets, names ----

  Status read_header() {
    if (options_.float_type != DType::f32 && options_.float_type != DType::f64) {
      return Error{Errc::usage, "the float type of a model is f32 or f64"};
    }
    out_.ir_version = static_cast<int>(std::clamp<std::int64_t>(model_.ir_version(), 0, 1 << 30));
    out_.producer =
        model_.producer_name() + (model_.producer_version().empty() ? "" : " " + model_.producer_version());
    out_.graph.name = proto_.name();
    if (model_.ir_version() < kOldestIr) {
      return bad("IR version " + std::to_string(model_.ir_version()) + " is not supported (" +
                 std::to_string(kOldestIr) + " and newer)");
    }
    if (model_.ir_version() > kNewestIr) {
      out_.notes.push_back("IR version " + std::to_string(model_.ir_version()) +
                           " is newer than the newest known, " + std::to_string(kNewestIr));
    }
    for (const auto& import : model_.opset_import()) {
      if (!opsets_.try_emplace(canonical(import.domain()), import.version()).second) {
        return bad("the opset of domain " + quoted(import.domain()) + " is given twice");
      }
    }
    if (opsets_.count("") == 0) return bad("the model does not say its opset");
    const std::int64_t opset = opsets_[""];
    out_.graph.opset = static_cast<int>(std::clamp<std::int64_t>(opset, 0, 1 << 30));
    if (opset < kOldestOpset || opset > kNewestOpset) {
      opset_problem_ = "opset " + std::to_string(opset) + " is not supported (" +
                       std::to_string(kOldestOpset) + " to " + std::to_string(kNewestOpset) + ")";
      if (!options_.allow_unknown) return bad(opset_problem_);
      out_.notes.push_back(opset_problem_);
    }
    if (proto_.sparse_initializer_size() > 0) return bad("sparse initializers are not supported");
    if (model_.training_info_size() > 0) out_.notes.push_back("the model's training info is not used");
    return {};
  }

  void name_nodes() {
    NodeNaming naming = unique_node_names(proto_);
    names_ = std::move(naming.names);
    taken_names_ = std::move(naming.taken);
    for (const auto& node : proto_.node()) {
      labels_.push_back("node " + quoted(names_[labels_.size()]) + " (" + escaped(node.op_type()) + ")");
      produced_.insert(node.output().begin(), node.output().end());
    }
    if (naming.renamed > 0) {
      out_.notes.push_back(std::to_string(naming.renamed) +
                           " nodes had the name of another node and were renamed");
    }
  }

  void add_sources() {
    std::vector<NodeNames> names;
    for (const auto& node : proto_.node()) {
      NodeNames entry{node.name(), ""};
      for (const std::string& input : node.input()) {
        const auto it = uses_.use.find(input);
        if (it == uses_.use.end() || it->second != InitializerUse::parameter) continue;
        entry.parameter = input;
        break;
      }
      names.push_back(std::move(entry));
    }
    const std::vector<std::string> scopes = node_scopes(names);
    for (int i = 0; i < proto_.node_size(); ++i) {
      const auto& node = proto_.node(i);
      out_.graph.sources.push_back({names_[static_cast<std::size_t>(i)], node.op_type(),
                                    canonical(node.domain()), scopes[static_cast<std::size_t>(i)]});
    }
  }

  // ---- inputs and initializers ----

  Status read_inputs() {
    TRY(types_.check_given());
    for (const auto& input : proto_.input()) {
      if (uses_.use.count(input.name()) != 0) continue;  // older files list initializers as inputs too
      Result<Type> type = types_.read_input(input.name(), input.type());
      if (!type.ok() && !options_.allow_unknown) return type.error();
      if (const auto known = options_.known_inputs.find(input.name());
          type.ok() && known != options_.known_inputs.end()) {
        TRY(add_known_input(input.name(), *type, known->second));
        continue;
      }
      const ValueId id = builder_.input(input.name(), type.ok() ? *type : Type{});
      if (!type.ok()) {
        out_.graph.values[id].has_type = false;
        out_.notes.push_back(type.error().message);
      }
      values_[input.name()] = id;
    }
    return types_.check_all_used();
  }

  Status add_known_input(const std::string& name, const Type& type, const Tensor& contents) {
    Tensor data = promoted(contents);
    bool equal = data.dtype() == type.dtype && data.shape().size() == type.shape.size();
    for (std::size_t i = 0; equal && i < type.shape.size(); ++i)
      equal = type.shape[i] < 0 || type.shape[i] == data.shape()[i];
    if (!equal)
      return bad("input " + quoted(name) + " is " + to_string(type) + ", its known contents are " +
                 to_string(data.type()));
    values_[name] = builder_.constant(std::move(data), name);
    return {};
  }

  Tensor promoted(Tensor tensor) const {
    return tensor.dtype() == DType::f32 && options_.float_type == DType::f64 ? tensor.cast(DType::f64)
                                                                             : tensor;
  }

  Status read_initializers() {
    std::unordered_map<std::string_view, const onnx::TypeProto*> declared;
    for (const auto& input : proto_.input()) declared[input.name()] = &input.type();
    std::vector<std::string> unused;
    for (auto& initializer : *proto_.mutable_initializer()) {
      const std::string& name = initializer.name();
      const std::string owner = "initializer " + quoted(name);
      if (const auto it = declared.find(name); it != declared.end())
        TRY(check_declared(*it->second, initializer, owner));
      const InitializerUse use = uses_.use[name];
      Result<Tensor> data = tensors_.read(initializer);
      if (!data.ok() && (!options_.allow_unknown || dtype_of_proto(initializer.data_type()).ok())) {
        return with_context(data.error(), owner);
      }
      if (initializer.has_raw_data())
        delete initializer.release_raw_data();  // halves what a large model needs
      if (use == InitializerUse::unused) {
        unused.push_back(name);
      } else if (!data.ok()) {
        values_[name] = builder_.input(name, Type{});
        out_.graph.inputs.pop_back();
        out_.graph.values.back().has_type = false;
        out_.notes.push_back(owner + ": " + data.error().message);
      } else {
        values_[name] = add_initializer(name, promoted(std::move(*data)), use);
      }
    }
    note_names("initializers are used by nothing", unused);
    note_names("float initializers without a module's name are taken as constants", uses_.exporter_constants);
    return {};
  }

  ValueId add_initializer(const std::string& name, Tensor data, InitializerUse use) {
    if (use == InitializerUse::parameter) return builder_.parameter(name, std::move(data));
    if (use == InitializerUse::constant) return builder_.constant(std::move(data), name);
    const ValueId id = builder_.input(name, data.type(), Role::state);
    out_.graph.values[id].data = std::move(data);
    return id;
  }

  // ---- nodes ----

  Status read_node(int i) {
    const onnx::NodeProto& node = proto_.node(i);
    const std::string& label = labels_[static_cast<std::size_t>(i)];
    const auto located = [&](Error error) { return with_context(std::move(error), label); };
    builder_.origin = Origin{{static_cast<std::uint32_t>(i)}, Phase::forward, ""};

    std::string reason = opset_problem_;
    const OpDef* op = reason.empty() ? lookup(node, &reason) : nullptr;
    Result<ReadAttributes> read = read_attributes(node, out_.graph.opset, tensors_);
    const bool is_constant_node = canonical(node.domain()).empty() && node.op_type() == "Constant";
    if (!read.ok()) {
      if (op != nullptr || is_constant_node) return located(read.error());
      read = ReadAttributes{};
    }
    if ((op != nullptr || is_constant_node) && !read->unsupported.empty()) reason = read->unsupported;
    if (is_constant_node && reason.empty()) {
      Status added = add_constant(node, read->attrs);
      return added.ok() ? added : Status{located(added.error())};
    }
    std::vector<ValueId> inputs;
    for (const std::string& input : node.input()) inputs.push_back(input.empty() ? kNone : values_.at(input));
    if (!reason.empty()) {
      const SourceNode& source = out_.graph.sources[static_cast<std::size_t>(i)];
      out_.unknown.push_back(
          {source.name, node.op_type(), source.domain, source.scope, reason == "unknown" ? "" : reason});
      add_untyped({opaque_op(node.op_type(), source.domain), source.name, std::move(inputs), outputs_of(node),
                   std::move(read->attrs)});
      return {};
    }
    NewNode added{op, names_[static_cast<std::size_t>(i)], std::move(inputs), outputs_of(node),
                  std::move(read->attrs)};
    trim(added);
    const std::string_view type = op->name;
    const bool chain = op->max_inputs == 2 && added.inputs.size() != 2 && (type == "Max" || type == "Min");
    Status status = chain ? add_chain(std::move(added)) : add_node(std::move(added));
    return status.ok() ? status : Status{located(status.error())};
  }

  // A node about to be added: the ONNX node, or a part of one that stands for several of ours.
  struct NewNode {
    const OpDef* op;
    std::string name;
    std::vector<ValueId> inputs;
    std::vector<std::string> outputs;  // empty names: omitted
    Attrs attrs;
  };

  static std::vector<std::string> outputs_of(const onnx::NodeProto& node) {
    return {node.output().begin(), node.output().end()};
  }

  static void trim(NewNode& node) {
    while (!node.inputs.empty() && node.inputs.back() == kNone) node.inputs.pop_back();
    while (!node.outputs.empty() && node.outputs.back().empty()) node.outputs.pop_back();
  }

  // Max and Min of any number of inputs: max(max(a, b), c). Equal inputs: the first one counts, as in a
  // single operator.
  Status add_chain(NewNode node) {
    if (node.inputs.empty()) return bad("has 0 inputs, it needs 1");
    if (node.outputs.size() != 1)
      return bad("has " + std::to_string(node.outputs.size()) + " outputs, it gives 1");
    if (node.inputs.size() == 1) {
      node.op = &op_by_name("Identity");
      return add_node(std::move(node));
    }
    ValueId left = node.inputs[0];
    for (std::size_t k = 1; k < node.inputs.size(); ++k) {
      NewNode link{node.op, node.name, {left, node.inputs[k]}, node.outputs, node.attrs};
      if (k + 1 < node.inputs.size()) {
        link.outputs[0] = node.outputs[0] + "/" + std::to_string(k);
        while (values_.count(link.outputs[0]) != 0 || produced_.count(link.outputs[0]) != 0)
          link.outputs[0] += "_";
        link.name = node.name + "/" + std::to_string(k);
        while (!taken_names_.insert(link.name).second) link.name += "_";
      }
      const std::string output = link.outputs[0];
      TRY(add_node(std::move(link)));
      left = values_.at(output);
    }
    return {};
  }

  // The node's row, or null and why not ("unknown" when there is just none).
  const OpDef* lookup(const onnx::NodeProto& node, std::string* reason) const {
    const std::string domain = canonical(node.domain());
    if (const auto it = skipped_functions_.find({domain, node.op_type()}); it != skipped_functions_.end()) {
      *reason = it->second;
      return nullptr;
    }
    const auto opset = opsets_.find(domain);
    // Our own operators are made by passes and autodiff; their attributes are trusted, a file's are not.
    if (opset == opsets_.end() || domain == "gradloom") {
      *reason = "unknown";
      return nullptr;
    }
    if (domain.empty() && node.op_type() == "Constant") return nullptr;
    const OpDef* op = find_op(node.op_type(), domain,
                              static_cast<int>(std::clamp<std::int64_t>(opset->second, 0, 1 << 30)));
    if (op == nullptr) *reason = "unknown";
    return op;
  }

  Status add_constant(const onnx::NodeProto& node, const Attrs& attrs) {
    if (node.input_size() != 0 || node.output_size() != 1 || node.output(0).empty())
      return bad("has no inputs and one output");
    Tensor data = TRY(constant_contents(attrs));
    values_[node.output(0)] = builder_.constant(promoted(std::move(data)), node.output(0));
    return {};
  }

  Status add_node(NewNode node) {
    TRY(check_arity(node));
    const OpDef& op = *node.op;
    if (options_.float_type == DType::f64) promote_attributes_to_f64(op.name, node.attrs);
    if (op.has(kRandom)) node.attrs.set("key", static_cast<std::int64_t>(fnv1a64(node.name)));
    const bool typed = std::all_of(node.inputs.begin(), node.inputs.end(),
                                   [&](ValueId id) { return id == kNone || out_.graph.values[id].has_type; });
    if (!typed) {
      add_untyped(std::move(node));
      return {};
    }
    Result<std::vector<ValueId>> added = builder_.add(
        op, node.inputs, node.attrs, static_cast<int>(node.outputs.size()), node.outputs, node.name);
    if (!added.ok() && !lenient()) return added.error();
    if (!added.ok()) {
      note_failure("node " + quoted(node.name) + " (" + op.name + "): " + added.error().message);
      add_untyped(std::move(node));
      return {};
    }
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      if ((*added)[k] == kNone) continue;
      values_[node.outputs[k]] = (*added)[k];
      TRY(check_size(out_.graph.type((*added)[k]), node.outputs[k]));
    }
    if (std::string_view(op.name) == "BatchNormalization") TRY(add_updates(node.inputs, *added));
    return folder_.fold(static_cast<NodeId>(out_.graph.nodes.size() - 1));
  }

  static Status check_arity(const NewNode& node) {
    const auto count = [](std::size_t n, const char* what) {
      return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
    };
    const std::size_t least = static_cast<std::size_t>(node.op->min_inputs),
                      most = static_cast<std::size_t>(node.op->max_inputs);
    const std::size_t most_outputs = static_cast<std::size_t>(node.op->max_outputs);
    if (node.outputs.empty()) return bad("has no outputs");
    if (node.inputs.size() < least)
      return bad("has " + count(node.inputs.size(), "input") + ", it needs " + std::to_string(least));
    if (node.inputs.size() > most)
      return bad("has " + count(node.inputs.size(), "input") + ", it takes at most " + std::to_string(most));
    if (node.outputs.size() > most_outputs) {
      return bad("has " + count(node.outputs.size(), "output") + ", it gives at most " +
                 std::to_string(most_outputs));
    }
    for (std::size_t k = 0; k < least; ++k) {
      if (node.inputs[k] == kNone) return bad("input " + std::to_string(k) + " is required");
    }
    return {};
  }

  Status check_size(const Type& type, const std::string& name) const {
    if (static_cast<std::int64_t>(type.shape.size()) > options_.limits.rank) {
      return Error{Errc::limit, "output " + quoted(name) + " has rank " + std::to_string(type.shape.size()) +
                                    ", over the limit of " + std::to_string(options_.limits.rank)};
    }
    if (!is_static(type.shape)) return {};
    const auto count = checked_element_count(type.shape, dtype_bytes(type.dtype));
    return count.ok() ? Status{} : Status{with_context(count.error(), "output " + quoted(name))};
  }

  // Running mean and variance after the step are outputs 1 and 2 of a BatchNormalization that trains.
  Status add_updates(const std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs) {
    for (std::size_t k = 1; k <= 2 && k < outputs.size(); ++k) {
      const ValueId state = inputs[k + 2], next = outputs[k];
      if (next == kNone || out_.graph.values[state].role != Role::state) continue;
      if (!updated_.insert(state).second) {
        out_.notes.push_back("state " + quoted(out_.graph.values[state].name) +
                             " is updated by several nodes: the first counts");
        continue;
      }
      if (out_.graph.type(state) != out_.graph.type(next))
        return bad("the new running statistics have another type than the old ones");
      out_.graph.updates.push_back({state, next});
    }
    return {};
  }

  // Outputs take the types that the file declares for them, if it does.
  void add_untyped(NewNode node) {
    Node added;
    added.op = node.op;
    added.attrs = std::move(node.attrs);
    added.inputs = std::move(node.inputs);
    added.name = std::move(node.name);
    added.origin = builder_.origin;
    added.rank = builder_.rank;
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
      if (const auto it = declared_types_.find(output); it != declared_types_.end()) {
        Result<Type> type = types_.read_declared(*it->second);
        value.has_type = type.ok();
        if (type.ok()) value.type = std::move(*type);
      }
      values_[output] = static_cast<ValueId>(out_.graph.values.size());
      added.outputs.push_back(values_[output]);
      out_.graph.values.push_back(std::move(value));
    }
    out_.graph.nodes.push_back(std::move(added));
  }

  // ---- outputs and notes ----

  Status read_outputs() {
    std::set<ValueId> seen;
    for (const auto& output : proto_.output()) {
      const auto it = values_.find(output.name());
      if (it == values_.end())
        return bad("graph output " + quoted(output.name()) + " is produced by nothing");
      if (!seen.insert(it->second).second)
        return bad("graph output " + quoted(output.name()) + " is listed twice");
      out_.graph.outputs.push_back(it->second);
      TRY(compare_output(output));
    }
    return {};
  }

  // A wrong element type makes the file wrong; shapes of outputs are often those of the exporter's sample
  // batch.
  Status compare_output(const onnx::ValueInfoProto& output) {
    const Value& value = out_.graph.values[values_.at(output.name())];
    if (!value.has_type || !output.type().has_tensor_type()) return {};
    const Result<bool> equal = types_.shape_agrees(output.type(), value.type);
    if (!equal.ok()) return with_context(equal.error(), "graph output " + quoted(output.name()));
    if (!*equal) {
      out_.notes.push_back("graph output " + quoted(output.name()) +
                           " is declared with another shape than its " + to_string(value.type));
    }
    return {};
  }

  void note_names(const std::string& what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    std::string text = std::to_string(names.size()) + " " + what + ": ";
    for (std::size_t i = 0; i < names.size() && i < 5; ++i) text += (i ? ", " : "") + escaped(names[i]);
    out_.notes.push_back(text + (names.size() > 5 ? ", ..." : ""));
  }

  void note_failure(const std::string& message) {
    if (failures_++ == 0) first_failure_ = message;
  }

  void add_notes() {
    out_.unbound_dims = out_.graph.symbols;
    if (failures_ > 0) {
      out_.notes.push_back("types of " + std::to_string(failures_) + (failures_ == 1 ? " node" : " nodes") +
                           " could not be inferred; the first: " + first_failure_);
    }
    if (folder_.skipped() > 0) {
      out_.notes.push_back(std::to_string(folder_.skipped()) +
                           " computable constants were left to the run: over the folding limits");
    }
  }

  onnx::ModelProto& model_;
  onnx::GraphProto& proto_;
  const ImportOptions& options_;
  ImportedModel out_;
  GraphBuilder builder_;
  TypeReader types_;
  TensorReader tensors_;
  Folder folder_;
  std::map<std::string, std::int64_t> opsets_;
  std::string opset_problem_;  // not empty: no node of the model can be understood
  SkippedFunctions skipped_functions_;
  std::vector<std::string> names_, labels_;                 // of the nodes, in file order
  std::unordered_set<std::string> taken_names_, produced_;  // node names; names of node outputs
  InitializerUses uses_;
  std::unordered_map<std::string, ValueId> values_;
  std::unordered_map<std::string, const onnx::TypeProto*> declared_types_;
  std::set<ValueId> updated_;
  int failures_ = 0;
  std::string first_failure_;
};

}  // namespace

Result<ImportedModel> import_onnx(const std::string& path, const ImportOptions& options) {
  ModelFile file = TRY(read_model_file(path, options.limits));
  try {
    Result<ImportedModel> imported = Importer(file.model, options, path).run();
    if (!imported.ok()) {
      return imported.error().code == Errc::usage ? imported.error()
                                                  : with_context(imported.error(), escaped(path));
    }
    imported->path = path;
    imported->content_hash = file.content_hash;
    return imported;
  } catch (const std::bad_alloc&) {
    return Error{Errc::limit, escaped(path) + ": does not fit in memory"};
  } catch (const std::exception& e) {  // protobuf and libonnx report some damage by throwing
    return Error{Errc::bad_input, escaped(path) + ": " + e.what()};
  }
}

Result<NamedTensor> read_tensor_file(const std::string& path, const Limits& limits) {
  const onnx::TensorProto proto = TRY(read_tensor_proto(path, limits));
  TensorReader reader(limits, "");
  Result<Tensor> tensor = reader.read(proto);
  if (!tensor.ok()) return with_context(tensor.error(), escaped(path));
  return NamedTensor{proto.name(), std::move(*tensor)};
}

}  // namespace gradloom
