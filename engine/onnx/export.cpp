// The new file is written completely or not at all.
#include "engine/onnx/export.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <exception>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/names.h"
#include "engine/base/text.h"
#include "engine/onnx/file/contents_in_file.h"
#include "engine/onnx/file/model_file.h"
#include "engine/onnx/repair/restored_module.h"
#include "engine/onnx/file/sparse_tensor.h"
#include "engine/onnx/file/tensor_proto.h"
#include "engine/ir/op.h"

namespace gradloom {

namespace {

using Parameters = std::map<std::string, Tensor>;

// Of the graph and of those inside it, which the importer takes parameters from too.
void collect_initializers(onnx::GraphProto& graph, std::vector<onnx::TensorProto*>& all) {
  for (auto& initializer : *graph.mutable_initializer()) all.push_back(&initializer);
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) collect_initializers(*attribute.mutable_g(), all);
      for (auto& inner : *attribute.mutable_graphs()) collect_initializers(inner, all);
    }
  }
}

// Tensors of attributes whose contents lie in files beside the source, of all graphs and functions.
template <class Node>
void collect_external(google::protobuf::RepeatedPtrField<Node>& nodes, std::vector<onnx::TensorProto*>& all) {
  const auto add = [&](onnx::TensorProto& tensor) {
    if (tensor.data_location() == onnx::TensorProto::EXTERNAL) all.push_back(&tensor);
  };
  for (auto& node : nodes) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) add(*attribute.mutable_t());
      for (auto& tensor : *attribute.mutable_tensors()) add(tensor);
      if (attribute.has_g()) collect_external(*attribute.mutable_g()->mutable_node(), all);
      for (auto& inner : *attribute.mutable_graphs()) collect_external(*inner.mutable_node(), all);
    }
  }
}

// What an initializer is to hold: the parameter of its name, or what the source has, whose external data would
// have to lie beside the new file.
Result<Tensor> new_contents(const onnx::TensorProto& initializer, const Parameters& parameters,
                            TensorReader& tensors) {
  const auto it = parameters.find(initializer.name());
  if (it == parameters.end()) {
    Result<Tensor> old = tensors.refer(initializer);
    if (!old.ok()) return with_context(old.error(), "initializer '" + escaped(initializer.name()) + "'");
    return old;
  }
  const std::string owner = "parameter '" + escaped(it->first) + "'";
  const Result<DType> dtype = dtype_of_proto(initializer.data_type());
  if (!dtype.ok()) return with_context(dtype.error(), owner);
  const Shape shape(initializer.dims().begin(), initializer.dims().end());
  if (!it->second.defined() || it->second.shape() != shape) {
    return Error{Errc::bad_input, owner + " has shape " + to_string(it->second.shape()) +
                                      ", the model's has " + to_string(shape)};
  }
  return it->second;
}

Status check_names(const std::vector<onnx::TensorProto*>& initializers, const Parameters& parameters) {
  NameSet names;
  for (const auto* initializer : initializers) names.insert(initializer->name());
  for (const auto& [name, tensor] : parameters)
    if (names.count(name) == 0)
      return Error{Errc::bad_input, "the model has no initializer '" + escaped(name) + "'"};
  return {};
}

// A model on its way into a file. Large contents of initializers are not in its message: they are written from
// where they are, a parameter after the other.
class ModelWriter {
 public:
  explicit ModelWriter(onnx::ModelProto& model) : model_(model) {
    graph_.Swap(model.mutable_graph());
    model.clear_graph();
  }

  Status replace(const Parameters& parameters, TensorReader& tensors) {
    std::vector<onnx::TensorProto*> all;
    collect_initializers(graph_, all);
    TRY(check_names(all, parameters));
    const auto outer = static_cast<std::size_t>(graph_.initializer_size());  // they come first
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool known = parameters.count(all[i]->name()) != 0;
      if (!known && !contents_in_file(*all[i]) && all[i]->data_location() != onnx::TensorProto::EXTERNAL)
        continue;  // the message has them
      TRY(set_contents(*all[i], TRY(new_contents(*all[i], parameters, tensors)), i < outer));
    }
    initializers_.Swap(graph_.mutable_initializer());
    return embed_attributes(tensors);
  }

  // Of the file.
  std::size_t bytes() const {
    const std::size_t graph = graph_bytes();
    return model_.ByteSizeLong() + in_field(graph);
  }

  // The model's own fields, its graph's, and its graph's initializers at the end.
  Status write(google::protobuf::io::CodedOutputStream& to) const {
    constexpr std::uint32_t kGraphOfModel = 7, kInitializerOfGraph = 5, kRawDataOfTensor = 9;
    bool written = model_.SerializeToCodedStream(&to);
    begin_field(to, kGraphOfModel, graph_bytes());
    written = graph_.SerializeToCodedStream(&to) && written;
    for (const auto& initializer : initializers_) {
      begin_field(to, kInitializerOfGraph, tensor_bytes(initializer));
      written = initializer.SerializeToCodedStream(&to) && written;
      const auto it = contents_.find(&initializer);
      if (it == contents_.end()) continue;
      const Tensor contents = TRY(in_type_of(initializer, it->second));
      begin_field(to, kRawDataOfTensor, contents.bytes());
      TRY(contents.visit([&](const std::byte* piece, std::size_t, std::size_t bytes) -> Result<bool> {
        to.WriteRaw(piece, static_cast<int>(bytes));  // under 2 GiB, as the file is
        return !to.HadError();
      }));
    }
    return written ? Status() : Error{Errc::bug, "it cannot be written as protobuf"};
  }

 private:
  Status embed_attributes(TensorReader& tensors) {
    std::vector<onnx::TensorProto*> all;
    collect_external(*graph_.mutable_node(), all);
    for (auto& function : *model_.mutable_functions()) collect_external(*function.mutable_node(), all);
    for (onnx::TensorProto* tensor : all) {
      const Result<Tensor> contents = tensors.read(*tensor);
      if (!contents.ok()) return with_context(contents.error(), "tensor '" + escaped(tensor->name()) + "'");
      write_tensor(*contents, tensor);
    }
    return {};
  }

  Status set_contents(onnx::TensorProto& initializer, const Tensor& contents, bool outer) {
    constexpr std::size_t kLeastBytes = 4096;
    const DType dtype = TRY(dtype_of_proto(initializer.data_type()));
    if (outer && elements_per_byte(dtype) == 1 && contents.bytes() >= kLeastBytes) {
      write_type({dtype, contents.shape()}, &initializer);
      contents_.emplace(&initializer, contents);
    } else {
      write_tensor(TRY(in_type_of(initializer, contents)), &initializer);
    }
    return {};
  }

  static Result<Tensor> in_type_of(const onnx::TensorProto& initializer, const Tensor& contents) {
    const DType dtype = TRY(dtype_of_proto(initializer.data_type()));
    if (contents.dtype() == dtype) return contents;
    return TRY(contents.loaded()).cast(dtype);
  }

  static std::size_t in_field(std::size_t bytes) {  // whose number is below 16
    return 1 + google::protobuf::io::CodedOutputStream::VarintSize64(bytes) + bytes;
  }
  static void begin_field(google::protobuf::io::CodedOutputStream& to, std::uint32_t number,
                          std::size_t bytes) {
    constexpr std::uint32_t kLengthDelimited = 2;
    to.WriteTag(number << 3 | kLengthDelimited);
    to.WriteVarint64(bytes);
  }
  std::size_t tensor_bytes(const onnx::TensorProto& initializer) const {
    const auto it = contents_.find(&initializer);
    if (it == contents_.end()) return initializer.ByteSizeLong();
    const Result<DType> dtype = dtype_of_proto(initializer.data_type());
    const Type type{dtype.ok() ? *dtype : DType::f32, it->second.shape()};  // it was known before
    return initializer.ByteSizeLong() + in_field(byte_size(type));
  }
  std::size_t graph_bytes() const {
    std::size_t bytes = graph_.ByteSizeLong();
    for (const auto& initializer : initializers_) bytes += in_field(tensor_bytes(initializer));
    return bytes;
  }

  onnx::ModelProto& model_;  // without its graph
  onnx::GraphProto graph_;   // without its initializers
  google::protobuf::RepeatedPtrField<onnx::TensorProto> initializers_;
  std::map<const onnx::TensorProto*, Tensor> contents_;  // of those that hold none themselves
};

// With the copies of the parameters in it.
Result<Parameters> with_copies(Parameters parameters, const std::vector<TiedCopy>& copies) {
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
Status write_model(const ModelWriter& model, const std::string& path) {
  constexpr int kPieceBytes = 1 << 20;
  AtomicFile file = TRY(AtomicFile::create(path));
  FileSink sink(file);
  {
    google::protobuf::io::CopyingOutputStreamAdaptor stream(&sink, kPieceBytes);
    Status written;
    {
      google::protobuf::io::CodedOutputStream coded(&stream);
      written = model.write(coded);
    }
    stream.Flush();
    TRY(Status(sink.status()));  // what could not be written is the reason for what else failed
    if (!written.ok()) return with_context(written.error(), escaped(path));
  }
  return file.commit();
}

}  // namespace

Status export_onnx(const std::string& source_path, const std::map<std::string, Tensor>& parameters,
                   const std::string& path, const std::vector<TiedCopy>& copies) {
  const Limits limits;
  ModelFile file = TRY(read_model_file(source_path, limits));
  try {
    TensorReader tensors(limits, folder_of(source_path), file.file);
    const Result<std::int64_t> sparse = make_dense(file.model, tensors, limits);
    if (!sparse.ok()) return with_context(sparse.error(), escaped(source_path));
    const auto restored = restore_module(file.model, tensors);
    if (!restored.ok()) return with_context(restored.error(), escaped(source_path));
    ModelWriter writer(file.model);
    const Status replaced = writer.replace(TRY(with_copies(parameters, copies)), tensors);
    if (!replaced.ok()) return with_context(replaced.error(), escaped(source_path));
    if (writer.bytes() > static_cast<std::size_t>(limits.file_bytes)) {
      return Error{Errc::limit,
                   escaped(path) + ": the model would be over 2 GiB, which ONNX files cannot be"};
    }
    return write_model(writer, path);
  } catch (const std::exception& e) {
    return Error{Errc::limit, escaped(path) + ": " + e.what()};
  }
}

}  // namespace gradloom
