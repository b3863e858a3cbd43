#include "engine/onnx/repair/restored_module.h"

#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "engine/base/names.h"
#include "engine/onnx/repair/added_nodes.h"
#include "engine/onnx/repair/dropped_arguments.h"
#include "engine/onnx/repair/expanded_parameters.h"
#include "engine/onnx/repair/merged_weights.h"
#include "engine/onnx/file/newer_fields.h"
#include "engine/onnx/repair/provenance.h"
#include "engine/onnx/repair/traced_call.h"
#include "engine/onnx/file/scope.h"
#include "engine/onnx/file/tensor_proto.h"

namespace gradloom {

namespace {

constexpr std::size_t kMostBytes = 64 << 20;
constexpr std::int64_t kMostElements = 1 << 20;  // of a norm's scale or a bias

std::int64_t integer_attribute(const onnx::NodeProto& node, const char* name, std::int64_t fallback) {
  for (const auto& attribute : node.attribute())
    if (attribute.name() == name) return attribute.i();
  return fallback;
}

// How many channels the node's result has by its weight; 0: it takes no bias.
std::int64_t bias_size(const onnx::NodeProto& node, const onnx::TensorProto& weight) {
  const std::string& op = node.op_type();
  if (!node.domain().empty() || weight.dims_size() < 2) return 0;
  if (op == "Gemm" && weight.dims_size() == 2)
    return weight.dims(integer_attribute(node, "transB", 0) != 0 ? 0 : 1);
  if (op == "Conv") return weight.dims(0);
  const std::int64_t groups = integer_attribute(node, "group", 1);
  const bool fits = groups > 0 && groups <= kMostElements && weight.dims(1) <= kMostElements;
  return op == "ConvTranspose" && fits ? weight.dims(1) * groups : 0;
}

// "h.1.ln" and "weight" of "h.1.ln.weight".
std::string module_of(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}
std::string leaf_of(const std::string& name) { return name.substr(name.rfind('.') + 1); }

class Restorer {
 public:
  Restorer(onnx::GraphProto& graph, TensorReader& tensors)
      : graph_(graph), tensors_(tensors), lost_(lost_values(graph)), traced_names_(traced_names(graph)) {
    for (const auto& [placeholder, name] : traced_names_) modules_.insert(name);
    for (int i = 0; i < graph.initializer_size(); ++i) initializers_.emplace(graph.initializer(i).name(), i);
  }

  Result<RestoredModule> run() {
    for (auto& node : *graph_.mutable_node()) {
      const std::vector<std::string> scopes = python_list(metadata_of(node, kNameScopes));
      if (scopes.empty()) continue;
      const std::string module = scopes.size() < 2 ? "" : scopes[scopes.size() - 2];
      const std::string prefix = module.empty() ? "" : module + ".";
      restore_batch_norm(node, scopes.back());
      const std::optional<Named> named = named_by_call(node);
      restore_bias(node, named ? named->bias : prefix + "bias");
      for (std::string& input : *node.mutable_input())
        TRY(split(input, named ? named_instead(node, *named, input, prefix) : prefix + leaf_of(input)));
    }
    find_missing();
    return std::move(result_);
  }

 private:
  // What a call names of the module.
  struct Named {
    std::set<std::string> all, lost;  // parameters and buffers; parameters that the file has no more
    std::string bias;                 // of a product or a convolution; empty: none
  };

  // A BatchNormalization that was folded into a convolution seems to read that one's weight.
  void find_missing() {
    NameSet folded;
    for (const std::string& name : lost_.parameters)
      if (used_.count(name) == 0) folded.insert(module_of(name));
    for (const std::string& name : lost_.buffers)
      if (used_.count(name) == 0 && leaf_of(name) == "running_mean") folded.insert(module_of(name));
    for (const std::string& name : lost_.parameters) {
      const bool back = split_from_.count(name) != 0 || sizes_.count(name) != 0;
      if (!back && folded.count(module_of(name)) != 0) result_.missing.push_back(name);
    }
  }

  // `name`: of the node in torch.export's graph, that of ATen's function.
  void restore_batch_norm(onnx::NodeProto& node, const std::string& name) {
    constexpr std::string_view kTraining = "_native_batch_norm_legit_functional";
    if (node.op_type() != "BatchNormalization" || !node.domain().empty() || node.output_size() != 1 ||
        !name.starts_with(kTraining) || integer_attribute(node, "training_mode", -1) != -1)
      return;
    add_attribute(node, "training_mode", std::int64_t{1});
    for (const char* statistic : {"/running_mean", "/running_var"})
      node.add_output(node.output(0) + statistic);
    ++result_.batch_norms;
  }

  void restore_bias(onnx::NodeProto& node, const std::string& name) {
    if (lost_.parameters.count(name) == 0 || node.input_size() < 2 ||
        (node.input_size() > 2 && !node.input(2).empty()) || node.input_size() > 3)
      return;
    const auto it = initializers_.find(node.input(1));
    if (it == initializers_.end()) return;
    const onnx::TensorProto& weight = graph_.initializer(it->second);
    const Result<DType> dtype = dtype_of_proto(weight.data_type());
    const std::int64_t size = bias_size(node, weight);
    if (!dtype.ok() || !is_float(*dtype) || size <= 0 || size > kMostElements) return;
    if (used_.count(name) == 0) {
      const Tensor zeros(*dtype, {size});
      if (!take(zeros.bytes())) return;
      add_initializer(graph_, name, zeros);
      sizes_[name] = size;
      used_.insert(name);
      result_.biases.push_back(name);
    } else if (const auto known = sizes_.find(name); known == sizes_.end() || known->second != size) {
      return;
    }
    if (node.input_size() == 2) node.add_input();
    node.set_input(2, name);
  }

  // No value: the node carries no call, and its module is all that tells of it.
  std::optional<Named> named_by_call(const onnx::NodeProto& node) const {
    const std::optional<TracedCall> call = traced_call_of(node);
    if (!call) return std::nullopt;
    Named named;
    for (const std::string& value : call->values) {
      const auto name = traced_names_.find(value);
      if (name == traced_names_.end()) continue;
      named.all.insert(name->second);
      if (lost_.parameters.count(name->second) != 0) named.lost.insert(name->second);
    }
    const std::string_view function = call->function;
    const bool sum = function.starts_with("aten.addmm.");  // (bias, x, weight), the others (x, weight, bias)
    const std::size_t at = sum ? 0 : 2;
    if ((sum || function.starts_with("aten.linear.") || function.starts_with("aten.conv")) &&
        at < call->arguments.size() && call->arguments[at].starts_with('%'))
      if (const auto name = traced_names_.find(call->arguments[at].substr(1)); name != traced_names_.end())
        named.bias = name->second;
    return named;
  }

  // The parameter or buffer that the node's call names where the node reads `input`: that itself, or what was merged
  // with it. Where the call names no lost parameter, that of the node's module, whose view it may have named.
  std::string named_instead(const onnx::NodeProto& node, const Named& named, const std::string& input,
                            const std::string& prefix) const {
    if (named.all.count(input) != 0) return input;
    const std::string own = prefix + leaf_of(input);
    if (named.all.count(own) != 0) return own;
    std::set<std::string> lost = named.lost, read;
    for (const std::string& name : node.input()) {
      lost.erase(name);  // a bias that came back
      if (modules_.count(name) != 0 && initializers_.count(name) != 0 && named.all.count(name) == 0)
        read.insert(name);
    }
    if (lost.empty()) return own;
    if (lost.size() == 1 && read.size() == 1) return *lost.begin();
    std::erase_if(lost, [&](const std::string& name) { return leaf_of(name) != leaf_of(input); });
    return lost.size() == 1 ? *lost.begin() : input;
  }

  // `own`: what the node means by `input`.
  Status split(std::string& input, const std::string& own) {
    const auto it = initializers_.find(input);
    if (it == initializers_.end() || own == input ||
        (lost_.parameters.count(own) == 0 && lost_.buffers.count(own) == 0))
      return {};
    if (used_.insert(own).second) {
      const std::size_t bytes = TRY(bytes_if_uniform(it->second));
      if (bytes == 0 || !take(bytes)) return {};
      onnx::TensorProto copy = graph_.initializer(it->second);
      copy.set_name(own);
      *graph_.add_initializer() = std::move(copy);
      split_from_[own] = it->second;
      result_.split.push_back(own);
    }
    if (const auto from = split_from_.find(own); from != split_from_.end() && from->second == it->second)
      input = own;
    return {};
  }

  Result<std::size_t> bytes_if_uniform(int initializer) {
    if (const auto it = uniform_bytes_.find(initializer); it != uniform_bytes_.end()) return it->second;
    std::size_t& bytes = uniform_bytes_[initializer];
    const onnx::TensorProto& proto = graph_.initializer(initializer);
    std::int64_t count = 1;
    for (const std::int64_t dim : proto.dims())
      if (dim < 0 || dim > kMostElements || (count *= dim) > kMostElements) return bytes;
    const Tensor contents = TRY(tensors_.read_initializer(proto));
    if (TRY(is_uniform(contents))) bytes = contents.bytes();
    return bytes;
  }

  bool take(std::size_t bytes) {
    if (bytes > kMostBytes - bytes_) return false;
    bytes_ += bytes;
    return true;
  }

  onnx::GraphProto& graph_;
  TensorReader& tensors_;
  const Lost lost_;
  const NameMap<std::string> traced_names_;
  NameSet modules_;  // names of parameters and buffers of modules
  RestoredModule result_;
  NameMap<int> initializers_;                 // of the file, by name
  std::map<int, std::size_t> uniform_bytes_;  // of those looked at; 0: not one number
  NameSet used_;                              // lost parameters that a node stands for
  NameMap<int> split_from_;
  NameMap<std::int64_t> sizes_;  // of biases
  std::size_t bytes_ = 0;
};

}  // namespace

Result<RestoredModule> restore_module(onnx::ModelProto& model, TensorReader& tensors) {
  onnx::GraphProto& graph = *model.mutable_graph();
  Contracted contracted = TRY(contract_expanded(graph, tensors));
  RestoredModule restored = TRY(Restorer(graph, tensors).run());
  restored.contracted = std::move(contracted);
  restored.arguments = restore_arguments(model);
  return restored;
}

}  // namespace gradloom
