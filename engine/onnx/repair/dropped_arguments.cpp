#include "engine/onnx/repair/dropped_arguments.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/names.h"
#include "engine/base/tensor.h"
#include "engine/onnx/file/newer_fields.h"
#include "engine/onnx/file/scope.h"
#include "engine/onnx/file/tensor_proto.h"
#include "engine/onnx/repair/added_nodes.h"
#include "engine/onnx/repair/provenance.h"
#include "engine/onnx/repair/traced_call.h"

namespace gradloom {

namespace {

constexpr const char* kRestored = "gradloom.restored";
constexpr int kOldestOpset = 18;  // whose operators the added nodes are

bool is_detached(const std::string& value) {
  constexpr std::string_view kDetach = "detach";
  if (!value.starts_with(kDetach)) return false;
  const std::string rest = value.substr(kDetach.size());
  return rest.empty() ||
         (rest.size() > 1 && rest[0] == '_' && rest.find_first_not_of("0123456789", 1) == std::string::npos);
}

class Arguments {
 public:
  Arguments(onnx::GraphProto& graph, bool can_add)
      : graph_(graph), can_add_(can_add), placeholders_(traced_names(graph)) {
    for (const auto& initializer : graph.initializer()) initializers_.insert(initializer.name());
    for (const auto& info : graph.value_info())
      if (info.type().has_tensor_type()) types_[info.name()] = info.type().tensor_type().elem_type();
    for (const auto& input : graph.input()) values_.insert(input.name());
    for (const auto& node : graph.node()) values_.insert(node.output().begin(), node.output().end());
  }

  RestoredArguments run() {
    const int count = graph_.node_size();
    for (const auto& node : graph_.node())
      if (const std::optional<TracedCall> call = traced_call_of(node)) {
        for (const std::string& output : node.output()) makers_.emplace(output, call->result);
        if (!metadata_of(node, kRestored).empty()) settled_.insert(call->result);
      }
    for (int i = 0; i < count; ++i) {
      const std::optional<TracedCall> call = traced_call_of(graph_.node(i));
      if (!call || !metadata_of(graph_.node(i), kRestored).empty()) continue;
      restore_detached(i, *call);
      if (call->function.starts_with("aten.embedding.")) restore_padding(i, *call);
      if (call->function.starts_with("aten.cross_entropy_loss.")) restore_smoothing(i, *call);
    }
    for (const std::string& call : lacking_)
      if (settled_.count(call) == 0) result_.unplaced.push_back(call + " (detach)");
    sort_added(count);
    return std::move(result_);
  }

 private:
  // ---- nodes ----

  // Its scope is that of node `like`. It goes before or after that one in the file.
  onnx::NodeProto& add(const char* op, const std::vector<std::string>& inputs, const std::string& output,
                       int like, bool before = false) {
    const std::string scopes = metadata_of(graph_.node(like), kNameScopes);
    onnx::NodeProto& node = add_node(graph_, op, inputs, output);
    if (!scopes.empty()) add_metadata(node, kNameScopes, scopes);
    places_.emplace_back(2 * like + (before ? -1 : 1), graph_.node_size() - 1);
    return node;
  }

  // No initializer, which might be taken for a parameter.
  std::string constant(const Tensor& contents, const std::string& name, int like) {
    add_attribute(add("Constant", {}, name, like), "value", contents);
    return name;
  }

  // The node makes what the last of the nodes that are added turns into its old output.
  void move_output(int i, const std::string& name) {
    graph_.mutable_node(i)->set_output(0, name);
    mark(i);
  }

  void mark(int i) { add_metadata(*graph_.mutable_node(i), kRestored, "1"); }

  void sort_added(int count) {
    std::vector<std::pair<int, int>> order;  // place, index
    for (int i = 0; i < count; ++i) order.emplace_back(2 * i, i);
    order.insert(order.end(), places_.begin(), places_.end());
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    google::protobuf::RepeatedPtrField<onnx::NodeProto> sorted;
    for (const auto& [place, index] : order) sorted.Add()->Swap(graph_.mutable_node(index));
    graph_.mutable_node()->Swap(&sorted);
  }

  std::string detached(const std::string& value, const std::string& name, int like, bool before) {
    mark_detach(add("Identity", {value}, name, like, before));
    return name;
  }

  // ---- padding_idx ----

  void restore_padding(int i, const TracedCall& call) {
    const std::int64_t row = call.integer(2).value_or(-1);
    const onnx::NodeProto& node = graph_.node(i);
    if (row < 0 || node.op_type() != "Gather" || node.input_size() != 2 || node.output_size() != 1) return;
    if (!can_add_) return result_.unplaced.push_back(call.result + " (padding_idx)");
    const std::string weight = node.input(0), ids = node.input(1), out = node.output(0);
    move_output(i, out + "/rows");
    add_attribute(add("Cast", {ids}, out + "/ids", i), "to", std::int64_t{onnx::TensorProto::INT64});
    const std::string padding =
                          constant(Tensor::scalar(DType::i64, static_cast<double>(row)), out + "/padding", i),
                      last = constant(Tensor::from_i64({-1}), out + "/last", i);
    add("Equal", {out + "/ids", padding}, out + "/is_padding", i);
    add("Unsqueeze", {out + "/is_padding", last}, out + "/of_row", i);
    detached(out + "/rows", out + "/detached", i, false);
    add("Where", {out + "/of_row", out + "/detached", out + "/rows"}, out, i);
    result_.padding.push_back(weight + " (row " + std::to_string(row) + ")");
  }

  // ---- label_smoothing ----

  void restore_smoothing(int i, const TracedCall& call) {
    const double amount = call.number(5).value_or(0);
    const onnx::NodeProto& node = graph_.node(i);
    if (amount == 0 || node.op_type() != "SoftmaxCrossEntropyLoss" || node.output_size() < 1) return;
    const std::string out = node.output(0), x = node.input(0), labels = node.input(1);
    const std::int64_t reduction = call.integer(3).value_or(1);
    const auto type = types_.find(x);
    const Result<DType> dtype =
        dtype_of_proto(type == types_.end() ? std::int32_t{onnx::TensorProto::FLOAT} : type->second);
    if (!can_add_ || node.input_size() != 2 || node.output_size() != 1 || !dtype.ok() || !is_float(*dtype))
      return result_.unplaced.push_back(call.result + " (label_smoothing)");
    const auto name = [&](const char* part) { return out + "/" + part; };
    const auto number = [&](double value, const char* part) {
      return constant(Tensor::scalar(*dtype, value), name(part), i);
    };
    move_output(i, name("hard"));
    add_attribute(add("LogSoftmax", {x}, name("log"), i), "axis", std::int64_t{1});
    const std::string axes = constant(Tensor::from_i64({1}), name("axes"), i);
    add_attribute(add("ReduceMean", {name("log"), axes}, name("mean_log"), i), "keepdims", std::int64_t{0});
    add("Neg", {name("mean_log")}, name("each"), i);
    const auto ignored = static_cast<double>(call.integer(4).value_or(-100));
    add_attribute(add("Cast", {labels}, name("labels"), i), "to", std::int64_t{onnx::TensorProto::INT64});
    add("Equal", {name("labels"), constant(Tensor::scalar(DType::i64, ignored), name("ignored"), i)},
        name("out"), i);
    add("Where", {name("out"), number(0, "zero"), name("each")}, name("kept"), i);
    std::string soft = name("kept");
    if (reduction != 0) soft = summed(soft, name("sum"), i);
    if (reduction == 1) {
      add("Where", {name("out"), name("zero"), number(1, "one")}, name("counted"), i);
      add("Div", {soft, summed(name("counted"), name("count"), i)}, name("soft"), i);
      soft = name("soft");
    }
    add("Mul", {soft, number(amount, "smoothing")}, name("soft_part"), i);
    add("Mul", {name("hard"), number(1 - amount, "rest")}, name("hard_part"), i);
    add("Add", {name("hard_part"), name("soft_part")}, out, i);
    result_.smoothing.push_back(call.result + " (" + call.arguments[5] + ")");
  }

  std::string summed(const std::string& value, const std::string& sum, int like) {
    add_attribute(add("ReduceSum", {value}, sum, like), "keepdims", std::int64_t{0});
    return sum;
  }

  // ---- detach ----

  // Operands of a call that no value of the file is named after: the detached ones, when the others are accounted for.
  void restore_detached(int i, const TracedCall& call) {
    const auto left_out = [&](const std::string& value) {
      return is_detached(value) && values_.count(value) == 0;
    };
    if (std::none_of(call.values.begin(), call.values.end(), left_out)) return;
    const onnx::NodeProto& node = graph_.node(i);
    lacking_.insert(call.result);
    if (is_whole(node, call)) {
      for (std::size_t k = 0; k < call.values.size(); ++k)
        if (left_out(call.values[k])) detach_input(i, static_cast<int>(k));
      return;
    }
    int place = -1;
    // Of several nodes for one call: what only the detached operand can be.
    for (int k = 0; k < node.input_size(); ++k) {
      const std::string& input = node.input(k);
      const bool accounted = initializers_.count(input) != 0 || made_by(input, call.result) ||
                             std::find(call.values.begin(), call.values.end(), input) != call.values.end();
      if (accounted) continue;
      place = place == -1 ? k : -2;
    }
    const auto unnamed = std::count_if(call.values.begin(), call.values.end(), [&](const std::string& value) {
      return values_.count(value) == 0 && placeholders_.count(value) == 0;
    });
    if (place >= 0 && unnamed == 1) detach_input(i, place);
  }

  // The node alone is the call, whose values it reads in their order.
  bool is_whole(const onnx::NodeProto& node, const TracedCall& call) {
    bool whole = node.output_size() == 1 && node.output(0) == call.result &&
                 static_cast<std::size_t>(node.input_size()) == call.values.size();
    for (int k = 0; whole && k < node.input_size(); ++k) {
      const std::string &value = call.values[static_cast<std::size_t>(k)], &input = node.input(k);
      const auto target = placeholders_.find(value);
      whole = !made_by(input, call.result) && (values_.count(value) == 0 || input == value);
      if (whole && target != placeholders_.end())
        whole = initializers_.count(target->second) != 0 ? input == target->second
                                                         : initializers_.count(input) != 0;
    }
    return whole;
  }

  bool made_by(const std::string& value, const std::string& result) {
    const auto maker = makers_.find(value);
    return maker != makers_.end() && maker->second == result;
  }

  void detach_input(int i, int k) {
    const std::string value = graph_.node(i).input(k);
    if (value.empty()) return;
    settled_.insert(makers_.at(graph_.node(i).output(0)));
    const std::string name = graph_.node(i).output(0) + "/detached_" + std::to_string(k);
    detached(value, name, i, true);
    graph_.mutable_node(i)->set_input(k, name);
    mark(i);
    result_.detached.push_back(value);
  }

  onnx::GraphProto& graph_;
  const bool can_add_;  // nodes of newer operators
  const NameMap<std::string> placeholders_;
  NameSet initializers_, values_;
  NameMap<std::int32_t> types_;
  NameMap<std::string> makers_;    // by value: the call that made it
  std::set<std::string> lacking_;  // calls that read a detached value
  NameSet settled_;                // calls that have theirs again
  // Of added nodes: twice the index of a node of the file, -1 or 1; own index.
  std::vector<std::pair<int, int>> places_;
  RestoredArguments result_;
};

}  // namespace

RestoredArguments restore_arguments(onnx::ModelProto& model) {
  std::int64_t opset = 0;
  for (const auto& import : model.opset_import())
    if (import.domain().empty() || import.domain() == "ai.onnx") opset = import.version();
  return Arguments(*model.mutable_graph(), opset >= kOldestOpset).run();
}

}  // namespace gradloom
