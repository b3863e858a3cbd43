// ONNX graph -> Graph: header, functions, names and order, inputs and initializers,
// nodes (node_reader.h), outputs.
#include "engine/onnx/import.h"

#include <algorithm>
#include <exception>
#include <new>
#include <set>

#include "engine/base/hash.h"
#include "engine/base/names.h"
#include "engine/base/text.h"
#include "engine/onnx/read/functions.h"
#include "engine/onnx/repair/buffers.h"
#include "engine/onnx/repair/computed_weights.h"
#include "engine/onnx/repair/initializers.h"
#include "engine/onnx/repair/made_up_name.h"
#include "engine/onnx/repair/merged_weights.h"
#include "engine/onnx/file/model_file.h"
#include "engine/onnx/file/newer_fields.h"
#include "engine/onnx/read/node_order.h"
#include "engine/onnx/read/node_reader.h"
#include "engine/onnx/read/opaque.h"
#include "engine/onnx/repair/restored_module.h"
#include "engine/onnx/file/scope.h"
#include "engine/onnx/file/sparse_tensor.h"
#include "engine/onnx/file/tensor_proto.h"
#include "engine/onnx/file/types.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

constexpr int kOldestOpset = 1, kNewestOpset = 28;
constexpr int kOldestIr = 3, kNewestIr = 13;

std::string quoted(const std::string& name) { return "'" + escaped(name) + "'"; }

class Importer {
 public:
  Importer(ModelFile& file, const ImportOptions& options, const std::string& path)
      : model_(file.model),
        proto_(*file.model.mutable_graph()),
        options_(options),
        types_(options, out_.graph.symbols),
        tensors_(options.limits, folder_of(path), file.file),
        reader_(out_, options_, types_, tensors_) {}

  Result<ImportedModel> run() {
    TRY(read_header());
    if (const std::int64_t count = TRY(make_dense(model_, tensors_, options_.limits)); count > 0)
      out_.notes.push_back(counted(count, "sparse initializer is", "sparse initializers are") +
                           " made dense: zeros train as other numbers do");
    TRY(restore());
    InlinedFunctions functions = TRY(inline_functions(model_, options_.limits));
    reader_.vocabulary.skipped_functions = std::move(functions.skipped);
    const std::vector<std::string> labels = name_nodes();
    NodeOrder order = TRY(order_nodes(proto_, labels));
    if (!order.was_sorted) out_.notes.push_back("nodes were not in topological order: sorted");
    reader_.uses = classify_initializers(proto_, options_.train);
    TRY(read_inputs());
    TRY(read_initializers());
    add_sources(functions.scopes);
    for (const auto& info : proto_.value_info()) reader_.declared_types[info.name()] = &info.type();
    for (std::size_t position = 0; position < order.order.size(); ++position) {
      const int i = order.order[position];
      const BuildScope place(builder_, {.rank = static_cast<std::int64_t>(position)});
      TRY(reader_.read(proto_.node(i), {static_cast<std::uint32_t>(i), names_[static_cast<std::size_t>(i)]},
                       top_));
    }
    if (!out_.unknown.empty() && !options_.allow_unknown) return unsupported_error(out_.unknown);
    TRY(read_outputs());
    out_.unbound_dims = out_.graph.symbols;
    reader_.finish();
    note_names(
        "weight of equal numbers serves several modules and trains as one",
        "weights of equal numbers serve several modules and train as one",
        ", as exporters merge them (torch.onnx.export: training=TRAINING, or with dynamo optimize=False, keeps "
        "them apart)",
        TRY(merged_parameters(out_.graph)));
    TRY(tie());
    TRY(judge_computed());
    TRY(freeze_buffers());
    list_initializers();
    note_inference_forms();
    return std::move(out_);
  }

 private:
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
      return bad_input("IR version " + std::to_string(model_.ir_version()) + " is not supported (" +
                       std::to_string(kOldestIr) + " and newer)");
    }
    if (model_.ir_version() > kNewestIr) {
      out_.notes.push_back("IR version " + std::to_string(model_.ir_version()) +
                           " is newer than the newest known, " + std::to_string(kNewestIr));
    }
    for (const auto& import : model_.opset_import()) {
      if (!reader_.vocabulary.opsets.try_emplace(canonical_domain(import.domain()), import.version())
               .second) {
        return bad_input("the opset of domain " + quoted(import.domain()) + " is given twice");
      }
    }
    const auto own = reader_.vocabulary.opsets.find("");
    if (reader_.vocabulary.opsets.empty()) TRY(no_version("the model does not say its opset"));
    // Without ONNX's own domain it can have none of its operators.
    const std::int64_t opset = own == reader_.vocabulary.opsets.end() ? kNewestOpset : own->second;
    out_.graph.opset = static_cast<int>(std::clamp<std::int64_t>(opset, 0, 1 << 30));
    if (opset < kOldestOpset || opset > kNewestOpset) {
      TRY(no_version("opset " + std::to_string(opset) + " is not supported (" + std::to_string(kOldestOpset) +
                     " to " + std::to_string(kNewestOpset) + ")"));
    }
    if (model_.training_info_size() > 0) out_.notes.push_back("the model's training info is not used");
    return {};
  }

  // What ONNX's operators mean is not known: such a model can only be looked at.
  Status no_version(const std::string& problem) {
    if (!options_.allow_unknown) return bad_input(problem);
    reader_.vocabulary.problem = problem;
    out_.notes.push_back(problem);
    return {};
  }

  // Returns their labels for messages.
  std::vector<std::string> name_nodes() {
    NodeNaming naming = unique_node_names(proto_);
    names_ = std::move(naming.names);
    reader_.reserved = std::move(naming.taken);
    std::vector<std::string> labels;
    for (const auto& node : proto_.node()) {
      labels.push_back(node_label(names_[labels.size()], node.op_type()));
      reader_.reserved_values.insert(node.output().begin(), node.output().end());
    }
    reader_.reserved.insert(names_.begin(), names_.end());
    if (naming.renamed > 0) {
      out_.notes.push_back(std::to_string(naming.renamed) +
                           " nodes had the name of another node and were renamed");
    }
    return labels;
  }

  // `function_scopes`: of nodes that calls were replaced by; else empty.
  void add_sources(const std::vector<std::string>& function_scopes) {
    std::vector<NodeNames> names;
    for (const auto& node : proto_.node()) {
      NodeNames entry{node.name(), "", scope_of_name_scopes(metadata_of(node, kNameScopes))};
      if (const std::string& called = function_scopes[names.size()]; !called.empty()) entry.scope = called;
      for (const std::string& input : node.input()) {
        const auto it = reader_.uses.use.find(input);
        if (it == reader_.uses.use.end() || it->second != InitializerUse::parameter) continue;
        entry.parameter = input;
        break;
      }
      names.push_back(std::move(entry));
    }
    const std::vector<std::string> scopes = node_scopes(names);
    for (int i = 0; i < proto_.node_size(); ++i) {
      const auto& node = proto_.node(i);
      out_.graph.sources.push_back({names_[static_cast<std::size_t>(i)], node.op_type(),
                                    canonical_domain(node.domain()), scopes[static_cast<std::size_t>(i)]});
    }
  }

  // ---- inputs and initializers ----

  Status read_inputs() {
    TRY(types_.check_given());
    NameViewSet initializers;
    for (const auto& initializer : proto_.initializer()) initializers.insert(initializer.name());
    for (const auto& input : proto_.input()) {
      if (initializers.count(input.name()) != 0) continue;  // older files list initializers as inputs too
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
      top_.values[input.name()] = id;
    }
    return types_.check_all_used();
  }

  Status add_known_input(const std::string& name, const Type& type, const Tensor& contents) {
    Tensor data = reader_.promoted(contents);
    bool equal = data.dtype() == type.dtype && data.shape().size() == type.shape.size();
    for (std::size_t i = 0; equal && i < type.shape.size(); ++i)
      equal = type.shape[i] < 0 || type.shape[i] == data.shape()[i];
    if (!equal)
      return bad_input("input " + quoted(name) + " is " + to_string(type) + ", its known contents are " +
                       to_string(data.type()));
    top_.values[name] = builder_.constant(std::move(data), name);
    return {};
  }

  Status read_initializers() {
    NameViewMap<const onnx::TypeProto*> declared;
    for (const auto& input : proto_.input()) declared[input.name()] = &input.type();
    std::vector<std::string> unused;
    for (const auto& initializer : proto_.initializer()) {
      const std::string& name = initializer.name();
      const std::string owner = "initializer " + quoted(name);
      if (const auto it = declared.find(name); it != declared.end())
        TRY(check_declared(*it->second, initializer, owner));
      const ValueId id = TRY(reader_.read_initializer(initializer, name));
      if (id == kNone) {
        unused.push_back(name);
      } else {
        top_.values[name] = id;
      }
    }
    note_names("initializer is used by nothing", "initializers are used by nothing", "", unused);
    note_names("float initializer without a module's name is taken as a constant",
               "float initializers without a module's name are taken as constants", "",
               reader_.uses.exporter_constants);
    return {};
  }

  // ---- outputs and notes ----

  Status read_outputs() {
    for (const auto& output : proto_.output()) {
      const ValueId id = top_.find(output.name());
      if (id == kNone) return bad_input("graph output " + quoted(output.name()) + " is produced by nothing");
      if (NodeReader::is_sequence(id) || !is_tensor(output.type())) {
        TRY(refuse_output(output.name()));
        continue;
      }
      out_.graph.outputs.push_back(id);
      TRY(compare_output(output));
    }
    return {};
  }

  static bool is_tensor(const onnx::TypeProto& declared) {
    return declared.has_tensor_type() || declared.value_case() == onnx::TypeProto::VALUE_NOT_SET;
  }

  Status refuse_output(const std::string& name) {
    const std::string problem =
        "graph output " + quoted(name) + " is no tensor: sequences, maps and optionals are not supported";
    if (!options_.allow_unknown) return bad_input(problem);
    out_.unknown.push_back({name, "graph output", "", "", "no tensor"});
    out_.notes.push_back(problem);
    return {};
  }

  // A wrong element type makes the file wrong; shapes of outputs are often those of
  // the exporter's sample batch.
  Status compare_output(const onnx::ValueInfoProto& output) {
    const Value& value = out_.graph.values[top_.find(output.name())];
    if (!value.has_type || !output.type().has_tensor_type()) return {};
    const Result<bool> equal = types_.shape_agrees(output.type(), value.type);
    if (!equal.ok()) return with_context(equal.error(), "graph output " + quoted(output.name()));
    if (!*equal) {
      out_.notes.push_back("graph output " + quoted(output.name()) +
                           " is declared with another shape than its " + to_string(value.type));
    }
    return {};
  }

  void note_inference_forms() {
    const auto count = std::count_if(out_.graph.nodes.begin(), out_.graph.nodes.end(), [](const Node& node) {
      return node.alive() && std::string_view(node.op->name) == "BatchNormalization" &&
             node.outputs.size() == 1 && node.attrs.integer("training_mode") == 0;
    });
    if (count > 0)
      out_.notes.push_back(
          counted(count, "BatchNormalization node is", "BatchNormalization nodes are") +
          " in inference form, which uses the running statistics and leaves them as they are "
          "(torch.onnx.export: training=TRAINING; dynamo: of a module in training mode, optimize=False)");
  }

  Status restore() {
    RestoredModule restored = TRY(restore_module(model_, tensors_));
    note_names("parameter that the exporter had merged with an equal one is apart again",
               "parameters that the exporter had merged with equal ones are apart again", "", restored.split);
    note_names("parameter that the exporter had expanded is one again",
               "parameters that the exporter had expanded are one again", "", restored.contracted.sure);
    note_names(
        "parameter that the exporter had expanded is taken for one, and may be several equal ones",
        "parameters that the exporter had expanded are taken for one each, and may be several equal ones",
        " (dynamo: optimize=False tells; --train NAME trains it as one)", restored.contracted.guessed);
    guessed_ = std::move(restored.contracted.guessed);
    note_names("bias of zeros that the exporter had left out is back",
               "biases of zeros that the exporter had left out are back", "", restored.biases);
    note_names("embedding's row of padding gets no gradient, which the exporter had left out",
               "embeddings' rows of padding get no gradient, which the exporter had left out", "",
               restored.arguments.padding);
    note_names("loss has its label_smoothing again, which the exporter had left out",
               "losses have their label_smoothing again, which the exporter had left out", "",
               restored.arguments.smoothing);
    note_names("value is detached again, as it was before the exporter left that out",
               "values are detached again, as they were before the exporter left that out", "",
               restored.arguments.detached);
    note_names("call lacks what the exporter left out", "calls lack what the exporter left out",
               " (dynamo: optimize=False keeps detach; write label_smoothing with class weights out)",
               restored.arguments.unplaced);
    if (restored.batch_norms > 0)
      out_.notes.push_back(
          counted(restored.batch_norms, "BatchNormalization node is", "BatchNormalization nodes are") +
          " of a module in training mode, which the exporter wrote as in inference: normalized by the batch again");
    note_names("parameter of the module is not in the file", "parameters of the module are not in the file",
               ": tied to others, or folded or left out by dynamo's optimizer (optimize=False keeps those)",
               restored.missing);
    return {};
  }

  // Copies and what else the exporter computed from weights.
  Status tie() {
    CopyCandidates candidates;
    for (const ComputedParameter& p : reader_.uses.computed) candidates.emplace(p.name, p.from);
    for (const ValueId id : out_.graph.parameters)
      if (const std::string& name = out_.graph.value(id).name; is_made_up(name)) candidates.try_emplace(name);
    out_.tied_copies = TRY(tie_copies(out_.graph, candidates));
    std::vector<std::string> names;
    for (const TiedCopy& tied : out_.tied_copies) names.push_back(tied.copy + " to " + tied.original);
    note_names("copy of a weight, which the exporter made of a tied one, is tied to it again",
               "copies of weights, which the exporter made of tied ones, are tied to them again", "", names);
    return {};
  }

  // What the exporter computed from weights and no tie brings back: is it trained as they would be? Training refuses
  // what is not (ImportedModel::apart).
  Status judge_computed() {
    for (const std::string& name : guessed_) {
      const std::string why = "may stand for several rows that were equal when the file was written";
      reader_.uses.why[name] += "; " + why;
      if (!fits_any(options_.train, name)) out_.apart.push_back({name, why});
    }
    std::vector<ComputedInGraph> computed;
    for (const ComputedParameter& p : reader_.uses.computed)
      if (const auto id = top_.values.find(p.name);
          id != top_.values.end() && out_.graph.value(id->second).role == Role::parameter)
        computed.push_back({p, out_.graph.value(id->second).data});
    std::vector<std::string> replaced, apart;
    for (std::size_t i = 0; i < computed.size(); ++i) {
      const ComputedParameter& p = computed[i].parameter;
      std::string why = TRY(why_apart(computed, i, [&](const std::string& name) {
        const auto it = reader_.uses.use.find(name);
        return it != reader_.uses.use.end() && it->second == InitializerUse::parameter;
      }));
      if (why.empty()) {
        if (!p.factor && !p.rearranged) replaced.push_back(p.name + " for " + p.from[0]);
        continue;
      }
      apart.push_back(p.name + " " + why);
      reader_.uses.why[p.name] += "; " + why;
      if (!fits_any(options_.train, p.name)) out_.apart.push_back({p.name, std::move(why)});
    }
    note_names("weight that the exporter computed would train apart from the module's",
               "weights that the exporter computed would train apart from the module's",
               " (dynamo: optimize=False keeps them together; --train NAME trains it as it is)", apart);
    note_names("weight is trained in the form that the exporter computed",
               "weights are trained in the form that the exporter computed",
               " (dynamo: optimize=False keeps the weights themselves)", replaced);
    return {};
  }

  // Parameters that are buffers by what they hold and who reads them become constants.
  Status freeze_buffers() {
    std::vector<std::string> frozen, unsure;
    std::vector<ValueId> constants;
    for (const BufferFinding& finding : find_buffers(out_.graph)) {
      Value& value = out_.graph.values[finding.parameter];
      const bool said = reader_.uses.said.count(value.name) != 0;
      if (fits_any(options_.train, value.name)) {
        reader_.uses.why[value.name] = finding.why + "; trained as --train says";
      } else if (finding.certain && !said) {
        value.role = Role::constant;
        constants.push_back(finding.parameter);
        reader_.uses.why[value.name] = finding.why;
        frozen.push_back(value.name + " (" + finding.why + ")");
      } else {
        reader_.uses.why[value.name] = reader_.uses.why[value.name] + "; may be a buffer: " + finding.why;
        reader_.uses.unsure.insert(value.name);
        unsure.push_back(value.name + " (" + finding.why + ")");
      }
    }
    std::sort(constants.begin(), constants.end());
    std::erase_if(out_.graph.parameters,
                  [&](ValueId id) { return std::binary_search(constants.begin(), constants.end(), id); });
    note_names("initializer is taken for a buffer and not trained",
               "initializers are taken for buffers and not trained", " (--train NAME trains it)", frozen);
    note_names("parameter may be a buffer and is trained", "parameters may be buffers and are trained",
               " (--freeze NAME keeps it as it is)", unsure);
    return reader_.fold_readers(constants);
  }

  // Once the graph is as it will be trained.
  void list_initializers() {
    NameMap<std::string> tied;
    for (const TiedCopy& copy : out_.tied_copies) tied.emplace(copy.copy, copy.original);
    NameSet listed;
    for (const auto& initializer : proto_.initializer()) {
      const std::string& name = initializer.name();
      const auto at = top_.values.find(name);
      const auto dtype = dtype_of_proto(initializer.data_type());
      InitializerVerdict row{name, {dtype.ok() ? *dtype : DType::f32, {}}, false, reader_.uses.why[name]};
      row.type.shape.assign(initializer.dims().begin(), initializer.dims().end());
      if (at != top_.values.end()) row.trained = out_.graph.value(at->second).role == Role::parameter;
      if (const auto copy = tied.find(name); copy != tied.end())
        row.why = "follows " + copy->second + ", to which it is tied";
      row.unsure = row.trained && reader_.uses.unsure.count(name) != 0;
      listed.insert(name);
      out_.initializers.push_back(std::move(row));
    }
    for (const ValueId id : out_.graph.parameters)
      if (const Value& value = out_.graph.value(id); listed.count(value.name) == 0)
        out_.initializers.push_back({value.name, value.type, true, "of a subgraph"});
  }

  static std::string counted(std::int64_t count, const std::string& one, const std::string& many) {
    return std::to_string(count) + " " + (count == 1 ? one : many);
  }

  void note_names(const std::string& one, const std::string& many, const std::string& why,
                  const std::vector<std::string>& names) {
    if (names.empty()) return;
    std::string text = counted(static_cast<std::int64_t>(names.size()), one, many) + why + ": ";
    for (std::size_t i = 0; i < names.size() && i < 5; ++i) text += (i ? ", " : "") + escaped(names[i]);
    out_.notes.push_back(text + (names.size() > 5 ? ", ..." : ""));
  }

  onnx::ModelProto& model_;
  onnx::GraphProto& proto_;
  const ImportOptions& options_;
  ImportedModel out_;
  TypeReader types_;
  TensorReader tensors_;
  NodeReader reader_;
  GraphBuilder& builder_ = reader_.builder();
  Names top_;
  std::vector<std::string> names_;    // of the nodes, in file order
  std::vector<std::string> guessed_;  // Contracted::guessed
};

}  // namespace

Result<ImportedModel> import_onnx(const std::string& path, const ImportOptions& options) {
  ModelFile file = TRY(read_model_file(path, options.limits));
  try {
    Result<ImportedModel> imported = Importer(file, options, path).run();
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

}  // namespace gradloom
