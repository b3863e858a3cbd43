#include "engine/onnx/repair/expanded_parameters.h"

#include <algorithm>
#include <cstring>

#include "engine/base/names.h"
#include "engine/onnx/repair/merged_weights.h"
#include "engine/onnx/repair/provenance.h"
#include "engine/onnx/file/tensor_proto.h"

namespace gradloom {

namespace {

// The first of the parts along the first axes, where these are equal, with dims of 1 for such axes. The last
// axis is none of them, and of a tensor of one number, which says nothing, only the first is.
Result<Tensor> first_part(const Tensor& tensor) {
  Shape shape = tensor.shape();
  const auto* const bytes = static_cast<const unsigned char*>(tensor.data());
  std::size_t size = tensor.bytes();
  const bool uniform = TRY(is_uniform(tensor));
  for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    const std::size_t part = size / static_cast<std::size_t>(shape[axis]);
    if ((uniform && axis > 0) || std::memcmp(bytes, bytes + part, size - part) != 0) break;
    shape[axis] = 1;
    size = part;
  }
  Tensor part(tensor.dtype(), shape);
  std::memcpy(part.mutable_data(), bytes, size);
  return part;
}

class Contraction {
 public:
  Contraction(onnx::GraphProto& graph, TensorReader& tensors) : graph_(graph), tensors_(tensors) {
    for (int i = 0; i < graph.initializer_size(); ++i) initializers_.emplace(graph.initializer(i).name(), i);
  }

  Result<std::vector<std::string>> run() {
    const NameMap<Provenance> provenance = provenance_of(graph_);
    const int initializers = graph_.initializer_size(), nodes = graph_.node_size();
    for (int i = 0; i < initializers; ++i) {
      const auto from = provenance.find(graph_.initializer(i).name());
      if (from != provenance.end() && from->second.expanded && from->second.parameters.size() == 1)
        TRY(contract(i, from->second.parameters[0]));
    }
    for (auto it = expanded_.rbegin(); it != expanded_.rend(); ++it)
      graph_.mutable_initializer()->DeleteSubrange(*it, 1);
    auto& all = *graph_.mutable_node();  // in topological order if it was
    std::rotate(all.pointer_begin(), all.pointer_begin() + nodes, all.pointer_end());
    return std::move(added_);
  }

 private:
  Status contract(int i, const std::string& parameter) {
    const std::string name = graph_.initializer(i).name(), shape_name = name + "/shape";
    const Result<DType> dtype = dtype_of_proto(graph_.initializer(i).data_type());
    if (!dtype.ok() || !is_float(*dtype) || initializers_.count(shape_name) != 0) return {};
    const Tensor whole = TRY(tensors_.read_initializer(graph_.initializer(i)));
    if (whole.count() == 0) return {};
    const Tensor part = TRY(first_part(whole));
    if (part.count() == whole.count()) return {};
    if (const auto known = initializers_.find(parameter); known != initializers_.end()) {
      const Tensor there = TRY(tensors_.read_initializer(graph_.initializer(known->second)));
      if (there.count() != part.count() || !bit_equal(there.reshaped(part.shape()), part)) return {};
    } else {
      add_initializer(parameter, part);
      added_.push_back(parameter);
    }
    add_initializer(shape_name, Tensor::from_i64(whole.shape()));
    onnx::NodeProto* node = graph_.add_node();
    node->set_name(name);
    node->set_op_type("Expand");
    node->add_input(parameter);
    node->add_input(shape_name);
    node->add_output(name);
    expanded_.push_back(i);
    return {};
  }

  void add_initializer(const std::string& name, const Tensor& tensor) {
    initializers_.emplace(name, graph_.initializer_size());
    onnx::TensorProto* initializer = graph_.add_initializer();
    initializer->set_name(name);
    write_tensor(tensor, initializer);
  }

  onnx::GraphProto& graph_;
  TensorReader& tensors_;
  NameMap<int> initializers_;  // by name
  std::vector<int> expanded_;  // initializers that nodes make now
  std::vector<std::string> added_;
};

}  // namespace

Result<std::vector<std::string>> contract_expanded(onnx::GraphProto& graph, TensorReader& tensors) {
  return Contraction(graph, tensors).run();
}

}  // namespace gradloom
