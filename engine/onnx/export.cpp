// The new file is written completely or not at all.
#include "engine/onnx/export.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <exception>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/onnx/file/model_file.h"
#include "engine/onnx/repair/restored_module.h"
#include "engine/onnx/file/sparse_tensor.h"
#include "engine/onnx/file/tensor_proto.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

using Initializers = std::vector<onnx::TensorProto*>;

// Of the graph and of those inside it, which the importer takes parameters from too.
void collect_initializers(onnx::GraphProto& graph, Initializers& all) {
  for (auto& initializer : *graph.mutable_initializer()) all.push_back(&initializer);
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) collect_initializers(*attribute.mutable_g(), all);
      for (auto& inner : *attribute.mutable_graphs()) collect_initializers(inner, all);
    }
  }
}

// Every initializer's contents move into the file: external data would have to lie beside the new file.
Status embed_external(const Initializers& initializers, TensorReader& tensors) {
  for (onnx::TensorProto* initializer : initializers) {
    if (initializer->data_location() != onnx::TensorProto::EXTERNAL) continue;
    write_tensor(TRY(tensors.read_initializer(*initializer)), initializer);
  }
  return {};
}

Status replace_parameters(const Initializers& initializers, const std::map<std::string, Tensor>& parameters) {
  std::size_t replaced = 0;
  for (onnx::TensorProto* initializer : initializers) {
    const auto it = parameters.find(initializer->name());
    if (it == parameters.end()) continue;
    const std::string owner = "parameter '" + escaped(it->first) + "'";
    const Result<DType> dtype = dtype_of_proto(initializer->data_type());
    if (!dtype.ok()) return with_context(dtype.error(), owner);
    const Shape shape(initializer->dims().begin(), initializer->dims().end());
    if (!it->second.defined() || it->second.shape() != shape) {
      return Error{Errc::bad_input, owner + " has shape " + to_string(it->second.shape()) +
                                        ", the model's has " + to_string(shape)};
    }
    write_tensor(it->second.cast(*dtype), initializer);
    ++replaced;
  }
  if (replaced == parameters.size()) return {};
  for (const auto& [name, tensor] : parameters) {
    bool found = false;
    for (const auto* initializer : initializers) found = found || initializer->name() == name;
    if (!found) return Error{Errc::bad_input, "the model has no initializer '" + escaped(name) + "'"};
  }
  return {};
}

// With the copies of the parameters in it.
Result<std::map<std::string, Tensor>> with_copies(std::map<std::string, Tensor> parameters,
                                                  const std::vector<TiedCopy>& copies) {
  for (const TiedCopy& tied : copies) {
    const auto it = parameters.find(tied.original);
    if (it == parameters.end()) continue;
    const Tensor original = it->second;
    parameters[tied.copy] =
        tied.transposed ? TRY(evaluate(op_by_name("Transpose"), {}, {original}, 1, tied.copy))[0] : original;
  }
  return parameters;
}

class FileSink final : public google::protobuf::io::CopyingOutputStream {
 public:
  explicit FileSink(AtomicFile& file) : file_(file) {}
  bool Write(const void* bytes, int size) override {
    status_ = file_.write({static_cast<const char*>(bytes), static_cast<std::size_t>(size)});
    return status_.ok();
  }
  const Status& status() const { return status_; }

 private:
  AtomicFile& file_;
  Status status_;
};

// In pieces: as one text it would hold all weights once more.
Status write_model(const onnx::ModelProto& model, const std::string& path) {
  constexpr int kPieceBytes = 1 << 20;
  AtomicFile file = TRY(AtomicFile::create(path));
  FileSink sink(file);
  {
    google::protobuf::io::CopyingOutputStreamAdaptor stream(&sink, kPieceBytes);
    const bool written = model.SerializeToZeroCopyStream(&stream) && stream.Flush();
    TRY(Status(sink.status()));
    if (!written) return Error{Errc::bug, escaped(path) + ": cannot be written as protobuf"};
  }
  return file.commit();
}

}  // namespace

Status export_onnx(const std::string& source_path, const std::map<std::string, Tensor>& parameters,
                   const std::string& path, const std::vector<TiedCopy>& copies) {
  const Limits limits;
  ModelFile file = TRY(read_model_file(source_path, limits));
  try {
    TensorReader tensors(limits, folder_of(source_path));
    const Result<std::int64_t> sparse = make_dense(file.model, tensors, limits);
    if (!sparse.ok()) return with_context(sparse.error(), escaped(source_path));
    const auto restored = restore_module(*file.model.mutable_graph(), tensors);
    if (!restored.ok()) return with_context(restored.error(), escaped(source_path));
    Initializers initializers;
    collect_initializers(*file.model.mutable_graph(), initializers);
    Status status = embed_external(initializers, tensors);
    if (status.ok()) status = replace_parameters(initializers, TRY(with_copies(parameters, copies)));
    if (!status.ok()) return with_context(status.error(), escaped(source_path));
    if (file.model.ByteSizeLong() > static_cast<std::size_t>(limits.file_bytes)) {
      return Error{Errc::limit,
                   escaped(path) + ": the model would be over 2 GiB, which ONNX files cannot be"};
    }
    return write_model(file.model, path);
  } catch (const std::exception& e) {
    return Error{Errc::limit, escaped(path) + ": " + e.what()};
  }
}

}  // namespace gradloom
