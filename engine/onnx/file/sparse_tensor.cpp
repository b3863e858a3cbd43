// A SparseTensorProto holds `values` [n], whose name is the tensor's, and `indices`: [n] positions in the
// dense tensor, or [n, rank] coordinates, ascending and each one once. Source: ONNX SparseTensorProto (IR 6).
#include "engine/onnx/file/sparse_tensor.h"

#include <onnx/onnx_pb.h>

#include <cstring>

#include "engine/base/text.h"
#include "engine/onnx/file/tensor_proto.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

class Densifier {
 public:
  Densifier(TensorReader& tensors, const Limits& limits) : tensors_(tensors), limits_(limits) {}

  Status of_graph(onnx::GraphProto& graph) {
    for (const auto& sparse : graph.sparse_initializer()) {
      onnx::TensorProto made;
      const Status status = dense(sparse, made);
      const std::string& name = sparse.values().name();
      if (!status.ok()) return with_context(status.error(), "sparse initializer '" + escaped(name) + "'");
      made.set_name(name);
      *graph.add_initializer() = std::move(made);
      ++count;
    }
    graph.clear_sparse_initializer();
    return of_nodes(*graph.mutable_node());
  }

  Status of_nodes(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
    for (auto& node : nodes) {
      for (auto& attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) TRY(of_graph(*attribute.mutable_g()));
        for (auto& inner : *attribute.mutable_graphs()) TRY(of_graph(inner));
      }
    }
    return {};
  }

  std::int64_t count = 0;

 private:
  Status dense(const onnx::SparseTensorProto& sparse, onnx::TensorProto& made) {
    const Shape shape(sparse.dims().begin(), sparse.dims().end());
    if (static_cast<std::int64_t>(shape.size()) > limits_.rank)
      return Error{Errc::limit, "rank " + std::to_string(shape.size()) + " is over the limit of " +
                                    std::to_string(limits_.rank) + raised_by("rank")};
    const DType type = TRY(dtype_of_proto(sparse.values().data_type()));
    const auto width = static_cast<std::int64_t>(dtype_bytes(type));
    const std::int64_t bytes = TRY(checked_element_count(shape, dtype_bytes(type))) * width;
    if (bytes > limits_.folded_bytes || bytes > 2 * limits_.folded_bytes - bytes_)
      return Error{Errc::limit, "it has " + std::to_string(bytes) + " bytes when dense, over the limit of " +
                                    std::to_string(limits_.folded_bytes) + " (all of them: twice that)" +
                                    raised_by("folded_bytes")};
    const Tensor values = TRY(tensors_.read(sparse.values())), indices = TRY(tensors_.read(sparse.indices()));
    const std::vector<std::int64_t> places = TRY(places_of(indices, values, shape));
    bytes_ += bytes;
    Tensor contents(type, shape);
    char* const to = contents.mutable_as<char>();
    for (std::size_t i = 0; i < places.size(); ++i)
      std::memcpy(to + places[i] * width,
                  static_cast<const char*>(values.data()) + static_cast<std::int64_t>(i) * width,
                  static_cast<std::size_t>(width));
    write_tensor(contents, &made);
    return {};
  }

  // Of each value in the dense tensor.
  static Result<std::vector<std::int64_t>> places_of(const Tensor& indices, const Tensor& values,
                                                     const Shape& shape) {
    if (values.shape().size() != 1)
      return bad_input("its values have rank " + std::to_string(values.shape().size()));
    const std::int64_t n = values.count(), rank = static_cast<std::int64_t>(shape.size());
    const bool linear = indices.shape() == Shape{n};
    if (indices.dtype() != DType::i64 || (!linear && indices.shape() != Shape{n, rank}))
      return bad_input("its indices are " + to_string(indices.type()) + ", " + std::to_string(n) +
                       " values need i64[" + std::to_string(n) + "] or i64[" + std::to_string(n) + ", " +
                       std::to_string(rank) + "]");
    std::vector<std::int64_t> places;
    places.reserve(static_cast<std::size_t>(n));
    const std::int64_t* at = indices.as<std::int64_t>();
    for (std::int64_t i = 0; i < n; ++i) {
      std::int64_t place = 0;
      for (std::int64_t d = 0; d < (linear ? 1 : rank); ++d, ++at) {
        const std::int64_t size = linear ? element_count(shape) : shape[static_cast<std::size_t>(d)];
        if (*at < 0 || *at >= size)
          return bad_input("index " + std::to_string(*at) + " of value " + std::to_string(i) +
                           " is outside of 0.." + std::to_string(size - 1));
        place = place * size + *at;
      }
      if (!places.empty() && place <= places.back())
        return bad_input("its indices do not ascend at value " + std::to_string(i));
      places.push_back(place);
    }
    return places;
  }

  TensorReader& tensors_;
  const Limits& limits_;
  std::int64_t bytes_ = 0;  // of all dense contents so far
};

}  // namespace

Result<std::int64_t> make_dense(onnx::ModelProto& model, TensorReader& tensors, const Limits& limits) {
  Densifier densifier(tensors, limits);
  TRY(densifier.of_graph(*model.mutable_graph()));
  for (auto& function : *model.mutable_functions()) TRY(densifier.of_nodes(*function.mutable_node()));
  return densifier.count;
}

}  // namespace gradloom
