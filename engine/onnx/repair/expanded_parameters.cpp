#include "engine/onnx/repair/expanded_parameters.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "engine/base/names.h"
#include "engine/onnx/repair/added_nodes.h"
#include "engine/onnx/repair/merged_weights.h"
#include "engine/onnx/repair/provenance.h"
#include "engine/onnx/file/tensor_proto.h"

namespace gradloom {

namespace {

// The first of the parts along the first axes, where these are equal, with dims of 1 for such axes. The last
// axis is none of them, and of a tensor of one number, which says nothing, only the first is.
Tensor first_part(const Tensor& tensor, bool uniform) {
  Shape shape = tensor.shape();
  const auto* const bytes = static_cast<const unsigned char*>(tensor.data());
  std::size_t size = tensor.bytes();
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

// The same for axes anywhere, of numbers that are not all equal.
Tensor part_along_axes(const Tensor& tensor) {
  Tensor part = tensor;
  for (std::size_t axis = 0; axis < tensor.shape().size(); ++axis) {
    const std::int64_t size = part.shape()[axis];
    if (size == 1) continue;
    std::size_t block = dtype_bytes(part.dtype());
    for (std::size_t i = axis + 1; i < part.shape().size(); ++i)
      block *= static_cast<std::size_t>(part.shape()[i]);
    const std::size_t whole = block * static_cast<std::size_t>(size);
    const auto* const bytes = static_cast<const unsigned char*>(part.data());
    bool equal = true;
    for (std::size_t at = 0; equal && at < part.bytes(); at += whole)
      equal = std::memcmp(bytes + at, bytes + at + block, whole - block) == 0;
    if (!equal) continue;
    Shape shape = part.shape();
    shape[axis] = 1;
    Tensor first(part.dtype(), shape);
    auto* const to = static_cast<unsigned char*>(first.mutable_data());
    for (std::size_t at = 0; at < part.bytes(); at += whole)
      std::memcpy(to + at / static_cast<std::size_t>(size), bytes + at, block);
    part = std::move(first);
  }
  return part;
}

// Only one axis may have been expanded: that which was contracted, and no axis of size 1 before it (a batch of one) nor,
// of a tensor of one number, another one before the last.
bool is_sure(const Shape& whole, const Shape& part, bool uniform) {
  int candidates = 0;
  bool contracted = false;
  for (std::size_t axis = 0; axis < whole.size(); ++axis) {
    contracted |= whole[axis] != part[axis];
    const bool single = whole[axis] == 1 && !contracted,
               equal = uniform && axis + 1 < whole.size() && whole[axis] > 1;
    candidates += whole[axis] != part[axis] || single || equal ? 1 : 0;
  }
  return candidates == 1;
}

// A tensor as vectors along one axis, or its single numbers (`length` 1).
struct Vectors {
  const Tensor& tensor;
  std::size_t length = 1, stride = 1;  // elements between two of a vector
  std::size_t count() const { return static_cast<std::size_t>(tensor.count()) / length; }
  std::string at(std::size_t i) const {
    const std::size_t bytes = dtype_bytes(tensor.dtype());
    const auto* const from = static_cast<const char*>(tensor.data());
    std::string vector(length * bytes, '\0');
    const std::size_t first = i / stride * stride * length + i % stride;
    for (std::size_t k = 0; k < length; ++k)
      std::memcpy(vector.data() + k * bytes, from + (first + k * stride) * bytes, bytes);
    return vector;
  }
};

Vectors vectors_along(const Tensor& tensor, std::size_t axis) {
  Vectors vectors{tensor, static_cast<std::size_t>(tensor.shape()[axis])};
  for (std::size_t i = axis + 1; i < tensor.shape().size(); ++i)
    vectors.stride *= static_cast<std::size_t>(tensor.shape()[i]);
  return vectors;
}

// A row that another of the table may equal before it is trained: of one number, if that says anything.
bool is_plain(const std::string& row, std::size_t number_bytes) {
  const bool zero = row.find_first_not_of('\0') == std::string::npos;
  const bool equal = row.compare(number_bytes, std::string::npos, row, 0, row.size() - number_bytes) == 0;
  return zero || (equal && row.size() > number_bytes);
}

struct Rows {
  NameMap<std::int64_t> index;
  std::vector<std::string> rows;  // each once
  std::vector<std::int64_t> of;   // each vector
};
// `known`: rows that there are already, to which none may be added.
std::optional<Rows> rows_of(const Vectors& vectors, std::size_t count, Rows rows = {}, bool known = false) {
  for (std::size_t i = 0; i < count; ++i) {
    std::string row = vectors.at(i);
    const auto [it, is_new] = rows.index.emplace(row, static_cast<std::int64_t>(rows.rows.size()));
    if (is_new && known) return std::nullopt;
    if (is_new) rows.rows.push_back(std::move(row));
    rows.of.push_back(it->second);
  }
  return rows;
}

// The axis of the rows that indices chose: where a sample has the fewest different ones. No value: that of single numbers.
std::optional<std::size_t> axis_of_rows(const Tensor& tensor) {
  constexpr std::size_t kSampled = 2048;
  std::optional<std::size_t> best;
  double fewest = 0.9;  // of those sampled
  for (std::size_t axis = 0; axis < tensor.shape().size(); ++axis) {
    if (tensor.shape()[axis] < 2) continue;
    const Vectors vectors = vectors_along(tensor, axis);
    const std::size_t count = std::min(vectors.count(), kSampled);
    const double share =
        static_cast<double>(rows_of(vectors, count)->rows.size()) / static_cast<double>(count);
    if (share >= fewest) continue;
    fewest = share;
    best = axis;
  }
  return best;
}

class Contraction {
 public:
  Contraction(onnx::GraphProto& graph, TensorReader& tensors) : graph_(graph), tensors_(tensors) {
    for (int i = 0; i < graph.initializer_size(); ++i) initializers_.emplace(graph.initializer(i).name(), i);
  }

  Result<Contracted> run() {
    const NameMap<Provenance> provenance = provenance_of(graph_);
    const int initializers = graph_.initializer_size(), nodes = graph_.node_size();
    for (int i = 0; i < initializers; ++i) {
      const auto from = provenance.find(graph_.initializer(i).name());
      if (from != provenance.end() && from->second.repeated && from->second.parameters.size() == 1)
        TRY(contract(i, from->second));
    }
    for (auto it = replaced_.rbegin(); it != replaced_.rend(); ++it)
      graph_.mutable_initializer()->DeleteSubrange(*it, 1);
    auto& all = *graph_.mutable_node();  // in topological order if it was
    std::rotate(all.pointer_begin(), all.pointer_begin() + nodes, all.pointer_end());
    Contracted result;
    for (std::string& name : added_)
      (guessed_.count(name) != 0 ? result.guessed : result.sure).push_back(std::move(name));
    return result;
  }

 private:
  Status contract(int i, const Provenance& from) {
    const std::string name = graph_.initializer(i).name();
    const Result<DType> dtype = dtype_of_proto(graph_.initializer(i).data_type());
    if (!dtype.ok() || !is_float(*dtype) || initializers_.count(name + "/shape") != 0) return {};
    const Tensor whole = TRY(TRY(tensors_.read_initializer(graph_.initializer(i))).loaded());
    if (whole.count() == 0) return {};
    const bool uniform = TRY(is_uniform(whole));
    if (from.expanded || !uniform) {
      const Tensor part = from.expanded ? first_part(whole, uniform) : part_along_axes(whole);
      if (part.count() < whole.count())
        return expand(i, name, from.parameters[0], whole, part,
                      is_sure(whole.shape(), part.shape(), uniform));
    }
    return from.gathered && !uniform ? gather(i, name, from.parameters[0], whole) : Status();
  }

  Status expand(int i, const std::string& name, const std::string& parameter, const Tensor& whole,
                const Tensor& part, bool sure) {
    if (const auto known = initializers_.find(parameter); known != initializers_.end()) {
      const Tensor there = TRY(tensors_.read_initializer(graph_.initializer(known->second)));
      if (there.count() != part.count() || !bit_equal(there.reshaped(part.shape()), part)) return {};
      if (sure) guessed_.erase(parameter);
    } else {
      add(parameter, part);
      added_.push_back(parameter);
      if (!sure) guessed_.insert(parameter);
    }
    add(name + "/shape", Tensor::from_i64(whole.shape()));
    add_node(graph_, "Expand", {parameter, name + "/shape"}, name);
    replaced_.push_back(i);
    return {};
  }

  Status gather(int i, const std::string& name, const std::string& parameter, const Tensor& whole) {
    const std::optional<std::size_t> axis = axis_of_rows(whole);
    const Vectors vectors = axis ? vectors_along(whole, *axis) : Vectors{whole};
    const std::string rows_name = parameter + kRows, index_name = name + "/index";
    const auto length = static_cast<std::int64_t>(vectors.length);
    Rows known;
    const auto before = initializers_.find(rows_name);
    if (before != initializers_.end()) {
      const Tensor there = TRY(tensors_.read_initializer(graph_.initializer(before->second)));
      if (there.dtype() != whole.dtype() || there.shape().size() != 2 || there.shape()[1] != length)
        return {};
      known = *rows_of({there, vectors.length}, static_cast<std::size_t>(there.shape()[0]));
      known.of.clear();
    }
    const auto rows = rows_of(vectors, vectors.count(), std::move(known), before != initializers_.end());
    if (!rows || initializers_.count(index_name) != 0 || initializers_.count(parameter) != 0) return {};
    if (before == initializers_.end()) {
      if (rows->rows.size() == vectors.count()) return {};  // each once
      Tensor table(whole.dtype(), {static_cast<std::int64_t>(rows->rows.size()), length});
      auto* to = static_cast<char*>(table.mutable_data());
      for (const std::string& row : rows->rows) to = std::copy(row.begin(), row.end(), to);
      add(rows_name, table);
      added_.push_back(rows_name);
    }
    std::vector<int> uses(rows->rows.size(), 0);
    for (const std::int64_t row : rows->of) ++uses[static_cast<std::size_t>(row)];
    for (std::size_t row = 0; row < uses.size(); ++row)
      if (uses[row] > 1 && is_plain(rows->rows[row], dtype_bytes(whole.dtype()))) guessed_.insert(rows_name);
    add(index_name, Tensor::from_i64(rows->of));
    Shape dims;
    std::vector<std::int64_t> perm;  // of [other axes..., axis]
    for (std::size_t d = 0; d < whole.shape().size(); ++d) {
      if (axis && d == *axis) {
        perm.push_back(static_cast<std::int64_t>(whole.shape().size()) - 1);
      } else {
        perm.push_back(static_cast<std::int64_t>(dims.size()));
        dims.push_back(whole.shape()[d]);
      }
    }
    if (axis) dims.push_back(length);
    add(name + "/shape", Tensor::from_i64(dims));
    add_node(graph_, "Gather", {rows_name, index_name}, name + ".gathered");
    add_node(graph_, "Reshape", {name + ".gathered", name + "/shape"}, axis ? name + ".reshaped" : name);
    if (axis) add_attribute(add_node(graph_, "Transpose", {name + ".reshaped"}, name), "perm", perm);
    replaced_.push_back(i);
    return {};
  }

  void add(const std::string& name, const Tensor& tensor) {
    initializers_.emplace(name, graph_.initializer_size());
    add_initializer(graph_, name, tensor);
  }

  onnx::GraphProto& graph_;
  TensorReader& tensors_;
  NameMap<int> initializers_;  // by name
  std::vector<int> replaced_;  // initializers that nodes make now
  std::vector<std::string> added_;
  NameSet guessed_;  // of these
};

}  // namespace

Result<Contracted> contract_expanded(onnx::GraphProto& graph, TensorReader& tensors) {
  return Contraction(graph, tensors).run();
}

}  // namespace gradloom
