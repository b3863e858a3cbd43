// Each way in which a node can be wrong; see operator_cases.h.
#include <onnx/defs/schema.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include "engine/ir/op.h"
#include "engine/onnx/file/tensor_proto.h"
#include "engine/onnx/read/attributes.h"
#include "engine/onnx/read/sample_graph.h"
#include "tests/fuzz/operator_cases.h"

namespace gradloom::fuzz {

using onnx::AttributeProto;
using onnx::ModelProto;
using onnx::NodeProto;
using onnx::TensorProto;

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max(),
                       kLeast = std::numeric_limits<std::int64_t>::min();

NodeProto& node_of(ModelProto& model) { return *model.mutable_graph()->mutable_node(0); }

constexpr std::int64_t kIntegers[] = {
    0, 1, -1, 2, -2, 7, 1000, std::int64_t{1} << 31, std::int64_t{1} << 40, kMost, kLeast};
constexpr double kReals[] = {
    0, -1, 1e-45, 3e38, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()};

std::string shown(std::int64_t value) { return std::to_string(value); }

class Collector {
 public:
  explicit Collector(const ModelProto& model) : model_(model) {}

  std::vector<Mutation> collect() {
    const NodeProto& node = model_.graph().node(0);
    for (int i = 0; i < node.attribute_size(); ++i) of_attribute(i, node.attribute(i));
    absent_attributes();
    for (int i = 0; i < node.input_size(); ++i) of_input(i);
    for (int i = 0; i < model_.graph().initializer_size(); ++i) of_tensor(i, model_.graph().initializer(i));
    for (int i = 0; i < model_.graph().input_size(); ++i) of_graph_input(i);
    of_outputs();
    return std::move(mutations_);
  }

 private:
  void add(std::string what, std::function<void(ModelProto&)> apply) {
    mutations_.push_back({std::move(what), std::move(apply)});
  }
  void change_attribute(int i, const std::string& what, const std::function<void(AttributeProto&)>& change) {
    add("attribute '" + model_.graph().node(0).attribute(i).name() + "' " + what,
        [=](ModelProto& m) { change(*node_of(m).mutable_attribute(i)); });
  }

  void of_attribute(int i, const AttributeProto& a) {
    add("attribute '" + a.name() + "' absent",
        [=](ModelProto& m) { node_of(m).mutable_attribute()->DeleteSubrange(i, 1); });
    change_attribute(i, "of another type", [](AttributeProto& b) {
      const bool integer = b.type() == AttributeProto::INT;
      const std::string name = b.name();
      b.Clear();
      b.set_name(name);
      b.set_type(integer ? AttributeProto::INTS : AttributeProto::INT);
      if (integer)
        b.add_ints(1);
      else
        b.set_i(1);
    });
    edges(i, a);
  }

  void edges(int i, const AttributeProto& a) {
    switch (a.type()) {
      case AttributeProto::INT:
        for (const std::int64_t v : kIntegers)
          change_attribute(i, "= " + shown(v), [=](AttributeProto& b) { b.set_i(v); });
        for (const std::int64_t v : {a.i() + 1, a.i() - 1, -a.i() - 1})
          change_attribute(i, "= " + shown(v), [=](AttributeProto& b) { b.set_i(v); });
        return;
      case AttributeProto::FLOAT:
        for (const double v : kReals)
          change_attribute(i, "= " + std::to_string(v),
                           [=](AttributeProto& b) { b.set_f(static_cast<float>(v)); });
        return;
      case AttributeProto::STRING:
        for (const char* v : {"", "sideways", "SAME_LOWER", "linear", "none"})
          change_attribute(i, "= '" + std::string(v) + "'", [=](AttributeProto& b) { b.set_s(v); });
        return;
      case AttributeProto::INTS: integer_lists(i, a); return;
      case AttributeProto::FLOATS:
        change_attribute(i, "empty", [](AttributeProto& b) { b.clear_floats(); });
        change_attribute(i, "one longer", [](AttributeProto& b) { b.add_floats(1); });
        if (a.floats_size() == 0) return;
        for (const double v : kReals)
          change_attribute(i, "[0] = " + std::to_string(v),
                           [=](AttributeProto& b) { b.set_floats(0, static_cast<float>(v)); });
        return;
      case AttributeProto::STRINGS:
        change_attribute(i, "empty", [](AttributeProto& b) { b.clear_strings(); });
        change_attribute(i, "one longer", [](AttributeProto& b) { b.add_strings("sideways"); });
        if (a.strings_size() > 0)
          change_attribute(i, "[0] = 'sideways'", [](AttributeProto& b) { b.set_strings(0, "sideways"); });
        return;
      case AttributeProto::TENSOR:
        change_attribute(i, "without a shape", [](AttributeProto& b) { b.mutable_t()->clear_dims(); });
        change_attribute(i, "of nothing", [](AttributeProto& b) {
          b.mutable_t()->clear_dims();
          b.mutable_t()->add_dims(0);
          b.mutable_t()->clear_raw_data();
        });
        change_attribute(i, "too large", [](AttributeProto& b) { b.mutable_t()->add_dims(1 << 30); });
        return;
      default: return;
    }
  }

  void integer_lists(int i, const AttributeProto& a) {
    change_attribute(i, "empty", [](AttributeProto& b) { b.clear_ints(); });
    change_attribute(i, "one longer", [](AttributeProto& b) { b.add_ints(1); });
    change_attribute(i, "a thousand long", [](AttributeProto& b) {
      for (int n = 0; n < 1000; ++n) b.add_ints(1);
    });
    if (a.ints_size() == 0) return;
    change_attribute(i, "one shorter", [](AttributeProto& b) { b.mutable_ints()->RemoveLast(); });
    for (const std::int64_t v : kIntegers) {
      change_attribute(i, "all " + shown(v), [=](AttributeProto& b) {
        for (auto& entry : *b.mutable_ints()) entry = v;
      });
      change_attribute(i, "[last] = " + shown(v),
                       [=](AttributeProto& b) { b.set_ints(b.ints_size() - 1, v); });
    }
  }

  // Those that ONNX's schema has and the node does not: with a value of their type at the edges.
  void absent_attributes() {
    const NodeProto& node = model_.graph().node(0);
    if (!node.domain().empty()) return;
    const onnx::OpSchema* schema = schema_of(
        node.op_type(), static_cast<int>(std::min<std::int64_t>(model_.opset_import(0).version(), 17)));
    if (schema == nullptr) return;
    for (const auto& [name, declared] : schema->attributes()) {
      const bool there = std::any_of(node.attribute().begin(), node.attribute().end(),
                                     [n = name](const AttributeProto& a) { return a.name() == n; });
      if (there) continue;
      ModelProto with = model_;
      AttributeProto& a = *node_of(with).add_attribute();
      a.set_name(name);
      a.set_type(static_cast<AttributeProto::AttributeType>(declared.type));
      if (a.type() == AttributeProto::INTS)
        for (int n = 0; n < 2; ++n) a.add_ints(1);
      if (a.type() == AttributeProto::FLOATS) a.add_floats(1);
      Collector inner(with);
      inner.edges(node.attribute_size(), a);
      for (Mutation& m : inner.mutations_)
        add(m.what, [a, change = std::move(m.apply)](ModelProto& model) {
          *node_of(model).add_attribute() = a;
          change(model);
        });
    }
  }

  void of_input(int i) {
    const std::string label = "input " + std::to_string(i);
    add(label + " absent", [=](ModelProto& m) { node_of(m).set_input(i, ""); });
    add("no input from " + std::to_string(i),
        [=](ModelProto& m) { node_of(m).mutable_input()->DeleteSubrange(i, node_of(m).input_size() - i); });
    if (i == 0) {
      add("an input too many", [](ModelProto& m) { node_of(m).add_input(node_of(m).input(0)); });
      add("many inputs", [](ModelProto& m) {
        for (int n = 0; n < 500; ++n) node_of(m).add_input(node_of(m).input(0));
      });
    } else {
      add(label + " is input 0", [=](ModelProto& m) { node_of(m).set_input(i, node_of(m).input(0)); });
    }
  }

  // A tensor of another type or shape, with contents to it; or only declared, which allows any size.
  static void retype(ModelProto& m, int i, DType dtype, const Shape& shape) {
    TensorProto& tensor = *m.mutable_graph()->mutable_initializer(i);
    const std::string name = tensor.name();
    std::mt19937_64 random(1);
    const SampleInput input{.type = {dtype, shape}, .low = is_float(dtype) ? -1. : 0.};
    write_tensor(make_sample_input(input, {}, random), &tensor);
    tensor.set_name(name);
  }
  static void declare(ModelProto& m, int i, const Shape& shape, const char* symbol = nullptr) {
    auto& graph = *m.mutable_graph();
    onnx::ValueInfoProto& input = *graph.add_input();
    input.set_name(graph.initializer(i).name());
    auto& type = *input.mutable_type()->mutable_tensor_type();
    type.set_elem_type(graph.initializer(i).data_type());
    type.mutable_shape();
    for (const std::int64_t dim : shape) {
      auto& entry = *type.mutable_shape()->add_dim();
      if (symbol != nullptr && dim < 0)
        entry.set_dim_param(symbol + std::to_string(-dim));
      else
        entry.set_dim_value(dim);
    }
    graph.mutable_initializer()->DeleteSubrange(i, 1);
  }

  void of_tensor(int i, const TensorProto& tensor) {
    const Result<DType> dtype = dtype_of_proto(tensor.data_type());
    if (!dtype.ok()) return;
    const DType type = *dtype;
    const std::string label = "tensor '" + tensor.name() + "' ";
    const Shape shape(tensor.dims().begin(), tensor.dims().end());
    for (const DType other : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64, DType::i32,
                              DType::u8, DType::i8, DType::boolean})
      if (other != type)
        add(label + "as " + dtype_name(other), [=](ModelProto& m) { retype(m, i, other, shape); });
    add(label + "only declared", [=](ModelProto& m) { declare(m, i, shape); });
    shapes(i, label, type, shape);
    if (!is_float(type) && element_count(shape) > 0) contents(i, label, type, shape);
    if (is_float(type) && element_count(shape) > 0 && element_count(shape) <= 16) {
      for (const double v : kReals)
        add(label + "all " + std::to_string(v), [=](ModelProto& m) { fill(m, i, type, shape, v, false); });
    }
  }

  void shapes(int i, const std::string& label, DType type, const Shape& shape) {
    const auto reshaped = [&](const std::string& what, const Shape& other) {
      add(label + what + " " + to_string(other), [=](ModelProto& m) { retype(m, i, type, other); });
    };
    reshaped("as a scalar", {});
    reshaped("empty", {0});
    Shape longer = shape;
    longer.insert(longer.begin(), 1);
    reshaped("of a rank more", longer);
    longer.resize(33, 1);
    reshaped("of rank", longer);
    if (shape.empty()) return;
    reshaped("of a rank less", {shape.begin(), shape.end() - 1});
    for (std::size_t d = 0; d < shape.size(); ++d) {
      Shape other = shape;
      for (const std::int64_t dim : {std::int64_t{0}, std::int64_t{1}, shape[d] + 1}) {
        if (dim == shape[d]) continue;
        other[d] = dim;
        reshaped("as", other);
      }
      for (const std::int64_t dim : {std::int64_t{100'000}, std::int64_t{1} << 31, kMost}) {
        other[d] = dim;
        add(label + "declared " + to_string(other), [=](ModelProto& m) { declare(m, i, other); });
      }
      other[d] = -1;
      add(label + "declared with axis " + std::to_string(d) + " unknown",
          [=](ModelProto& m) { declare(m, i, other, "N"); });
    }
    Shape unknown;
    for (std::size_t d = 0; d < shape.size(); ++d) unknown.push_back(-1 - static_cast<std::int64_t>(d));
    add(label + "declared with all axes unknown", [=](ModelProto& m) { declare(m, i, unknown, "N"); });
  }

  static void fill(ModelProto& m, int i, DType type, const Shape& shape, double value, bool last) {
    TensorProto& tensor = *m.mutable_graph()->mutable_initializer(i);
    const std::string name = tensor.name();
    std::vector<double> all(static_cast<std::size_t>(element_count(shape)), last ? 1 : value);
    all.back() = value;
    write_tensor(Tensor::from_f64(type, shape, all), &tensor);
    tensor.set_name(name);
  }

  // Indices, axes, sizes.
  void contents(int i, const std::string& label, DType type, const Shape& shape) {
    for (const std::int64_t v : kIntegers) {
      // 64-bit edges as the file would have them: through a double they would be rounded.
      const auto set = [=](ModelProto& m, bool last) {
        fill(m, i, type, shape, static_cast<double>(std::clamp<std::int64_t>(v, -(1 << 30), 1 << 30)), last);
        TensorProto& tensor = *m.mutable_graph()->mutable_initializer(i);
        if (type != DType::i64) return;
        std::string raw = tensor.raw_data();
        for (std::size_t at = last ? raw.size() - 8 : 0; at < raw.size(); at += 8)
          std::copy_n(reinterpret_cast<const char*>(&v), 8, raw.begin() + static_cast<std::ptrdiff_t>(at));
        tensor.set_raw_data(raw);
      };
      add(label + "all " + shown(v), [=](ModelProto& m) { set(m, false); });
      if (element_count(shape) > 1) add(label + "[last] = " + shown(v), [=](ModelProto& m) { set(m, true); });
    }
  }

  void of_graph_input(int i) {
    const std::string label = "graph input " + std::to_string(i) + " ";
    for (const int type : {TensorProto::FLOAT, TensorProto::INT64, TensorProto::UINT8, TensorProto::BOOL})
      add(label + "of type " + std::to_string(type), [=](ModelProto& m) {
        m.mutable_graph()->mutable_input(i)->mutable_type()->mutable_tensor_type()->set_elem_type(type);
      });
    const auto& shape = model_.graph().input(i).type().tensor_type().shape();
    for (int d = 0; d < shape.dim_size(); ++d)
      for (const std::int64_t dim : {std::int64_t{0}, std::int64_t{1}, std::int64_t{100'000}, kMost})
        add(label + "axis " + std::to_string(d) + " = " + shown(dim), [=](ModelProto& m) {
          m.mutable_graph()
              ->mutable_input(i)
              ->mutable_type()
              ->mutable_tensor_type()
              ->mutable_shape()
              ->mutable_dim(d)
              ->set_dim_value(dim);
        });
  }

  void of_outputs() {
    const int count = model_.graph().node(0).output_size();
    if (count > 1)
      add("first output absent", [](ModelProto& m) {
        node_of(m).set_output(0, "");
        m.mutable_graph()->mutable_output()->DeleteSubrange(0, 1);
      });
    if (count > 1)
      add("last output absent", [](ModelProto& m) {
        node_of(m).mutable_output()->RemoveLast();
        m.mutable_graph()->mutable_output()->RemoveLast();
      });
    for (const int more : {1, 100})
      add(std::to_string(more) + " outputs more", [=](ModelProto& m) {
        for (int n = 0; n < more; ++n) {
          node_of(m).add_output("more" + std::to_string(n));
          m.mutable_graph()->add_output()->set_name("more" + std::to_string(n));
        }
      });
  }

  const ModelProto& model_;
  std::vector<Mutation> mutations_;
};

}  // namespace

std::vector<Mutation> mutations_of(const ModelProto& model) { return Collector(model).collect(); }

}  // namespace gradloom::fuzz
