// Every row at every opset: a model of one node in the form that opset has, imported;
// and refused before the operator existed.
#include "engine/onnx/read/node_reader.h"

#include <onnx/defs/schema.h>

#include <optional>
#include <sstream>

#include "engine/onnx/read/attributes.h"
#include "tests/engine/every_op.h"
#include "tests/engine/onnx/support.h"
#include "tests/engine/reference.h"

namespace gradloom {
namespace {

using every_op::Built;

// Arguments that an opset moved from an attribute to an input. Source: the ONNX operator changelog.
struct Moved {
  const char* op;
  const char* attribute;
  std::size_t input;
  int since;
};
constexpr Moved kMoved[] = {
    {"Clip", "min", 1, 11},       {"Clip", "max", 2, 11},          {"Pad", "pads", 1, 11},
    {"Pad", "value", 2, 11},      {"Slice", "starts", 1, 10},      {"Slice", "ends", 2, 10},
    {"Slice", "axes", 3, 10},     {"Split", "split", 1, 13},       {"Squeeze", "axes", 1, 13},
    {"Unsqueeze", "axes", 1, 13}, {"ReduceSum", "axes", 1, 13},    {"ReduceMean", "axes", 1, 18},
    {"ReduceMax", "axes", 1, 18}, {"ReduceMin", "axes", 1, 18},    {"ReduceProd", "axes", 1, 18},
    {"ReduceL1", "axes", 1, 18},  {"ReduceL2", "axes", 1, 18},     {"ReduceSumSquare", "axes", 1, 18},
    {"TopK", "k", 1, 10},         {"ReduceLogSum", "axes", 1, 18}, {"ReduceLogSumExp", "axes", 1, 18},
    {"Upsample", "scales", 1, 9},
};

struct Form {
  Attrs attrs;
  std::vector<Tensor> constants;  // undefined: as the sample has it
  std::vector<bool> present;
};

// The sample as this opset writes it; no value: it cannot.
std::optional<Form> form_at(const OpDef& op, const Sample& sample, const Built& built, int opset) {
  Form form{sample.attrs, {}, {}};
  form.attrs.erase("key");  // ours: the importer gives random operators their stream
  for (std::size_t i = 0; i < sample.inputs.size(); ++i) {
    const ValueId id = built.inputs[i];
    const bool known = id != kNone && built.graph.value(id).role == Role::constant;
    form.constants.push_back(known ? built.graph.value(id).data : Tensor());
    form.present.push_back(id != kNone);
  }
  for (const Moved& moved : kMoved) {
    if (std::string_view(moved.op) != op.name) continue;
    if (opset >= moved.since && form.attrs.has(moved.attribute)) {
      const AttrValue value = form.attrs.all().at(moved.attribute);
      form.attrs.erase(moved.attribute);
      form.constants.resize(std::max(form.constants.size(), moved.input + 1));
      form.present.resize(form.constants.size(), false);
      form.present[moved.input] = true;
      if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) {
        form.constants[moved.input] = Tensor::from_i64(*list);
      } else if (const auto* reals = std::get_if<std::vector<double>>(&value)) {
        form.constants[moved.input] =
            Tensor::from_f64(DType::f32, {static_cast<std::int64_t>(reals->size())}, *reals);
      } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
        form.constants[moved.input] = Tensor::from_i64({*integer});
      } else {
        form.constants[moved.input] =
            Tensor::scalar(built.graph.type(built.inputs[0]).dtype, std::get<double>(value));
      }
    }
    if (opset < moved.since && moved.input < form.present.size() && form.present[moved.input]) {
      const Tensor& contents = form.constants[moved.input];
      if (!contents.defined()) return std::nullopt;
      const bool real = std::string_view(op.name) == "Clip" || std::string_view(moved.attribute) == "value";
      if (real && !is_float(contents.dtype())) return std::nullopt;  // the attribute is a FLOAT
      if (is_float(contents.dtype()) && contents.shape().empty()) {
        form.attrs.set(moved.attribute, contents.at(0));
      } else if (is_float(contents.dtype())) {
        form.attrs.set(moved.attribute, contents.to_f64());
      } else if (std::string_view(moved.attribute) == "k") {
        form.attrs.set(moved.attribute, static_cast<std::int64_t>(contents.at(0)));
      } else {
        form.attrs.set(moved.attribute, contents.to_i64());
      }
      form.present[moved.input] = false;
    }
  }
  while (!form.present.empty() && !form.present.back()) form.present.pop_back();
  if (const onnx::OpSchema* schema = schema_of(op.name, opset)) {
    for (const auto& [name, value] : form.attrs.all())
      if (schema->attributes().count(name) == 0) return std::nullopt;
    if (static_cast<int>(form.present.size()) > schema->max_input() ||
        sample.output_count > schema->max_output())
      return std::nullopt;
  }
  return form;
}

void set_attribute(onnx::NodeProto* node, const std::string& name, const AttrValue& value) {
  auto* a = node->add_attribute();
  a->set_name(name);
  if (const auto* i = std::get_if<std::int64_t>(&value)) {
    a->set_type(onnx::AttributeProto::INT);
    a->set_i(*i);
  } else if (const auto* f = std::get_if<double>(&value)) {
    a->set_type(onnx::AttributeProto::FLOAT);
    a->set_f(static_cast<float>(*f));
  } else if (const auto* s = std::get_if<std::string>(&value); s != nullptr && name == "activations") {
    a->set_type(onnx::AttributeProto::STRINGS);  // we hold the list as one text
    std::istringstream words(*s);
    for (std::string word; std::getline(words, word, ',');) a->add_strings(word);
  } else if (s != nullptr) {
    a->set_type(onnx::AttributeProto::STRING);
    a->set_s(*s);
  } else if (const auto* is = std::get_if<std::vector<std::int64_t>>(&value)) {
    a->set_type(onnx::AttributeProto::INTS);
    for (const std::int64_t v : *is) a->add_ints(v);
  } else if (const auto* fs = std::get_if<std::vector<double>>(&value)) {
    a->set_type(onnx::AttributeProto::FLOATS);
    for (const double v : *fs) a->add_floats(static_cast<float>(v));
  } else {
    a->set_type(onnx::AttributeProto::TENSOR);
    write_tensor(std::get<Tensor>(value), a->mutable_t());
  }
}

onnx::ModelProto model_of(const OpDef& op, const Sample& sample, const Built& built, const Form& form,
                          int opset) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(opset);
  onnx::GraphProto* graph = model.mutable_graph();
  graph->set_name("g");
  onnx::NodeProto node;
  node.set_op_type(op.name);
  for (std::size_t i = 0; i < form.present.size(); ++i) {
    const std::string name = form.present[i] ? "x" + std::to_string(i) : "";
    node.add_input(name);
    if (name.empty()) continue;
    if (form.constants[i].defined() && is_float(form.constants[i].dtype())) {
      onnx::NodeProto* constant = graph->add_node();  // an initializer would be a parameter
      constant->set_op_type("Constant");
      constant->add_output(name);
      set_attribute(constant, "value", form.constants[i]);
      continue;
    }
    if (form.constants[i].defined()) {
      onnx::TensorProto* tensor = graph->add_initializer();
      tensor->set_name(name);
      write_tensor(form.constants[i], tensor);
      continue;
    }
    auto* input = graph->add_input();
    input->set_name(name);
    const Type& type = built.graph.type(built.inputs[i]);
    auto* proto = input->mutable_type()->mutable_tensor_type();
    onnx::TensorProto element;
    write_tensor(Tensor(type.dtype, {}), &element);
    proto->set_elem_type(element.data_type());
    proto->mutable_shape();
    for (const std::int64_t dim : type.shape) proto->mutable_shape()->add_dim()->set_dim_value(dim);
  }
  for (int k = 0; k < sample.output_count; ++k) {
    node.add_output("y" + std::to_string(k));
    graph->add_output()->set_name("y" + std::to_string(k));
  }
  for (const auto& [name, value] : form.attrs.all()) set_attribute(&node, name, value);
  *graph->add_node() = node;
  return model;
}

class EveryOpset : public ::testing::TestWithParam<const OpDef*> {};

TEST_P(EveryOpset, ImportsInItsForm) {
  const OpDef& op = *GetParam();
  const std::vector<Sample> samples = op.samples();
  for (int opset = std::max(op.since, 7); opset <= std::min(op.until, 24); ++opset) {
    int imported_forms = 0;
    for (const Sample& sample : samples) {
      if (sample.bench) continue;  // the same forms, only larger
      const auto built = every_op::build(op, sample, DType::f32);
      ASSERT_TRUE(built.ok()) << built.error().message;
      const auto form = form_at(op, sample, *built, opset);
      if (!form) continue;
      SCOPED_TRACE(sample.name + " at opset " + std::to_string(opset));
      const auto imported = test::import_model(model_of(op, sample, *built, *form, opset));
      if (!imported.ok() && imported.error().message.find("is not known)") != std::string::npos && opset > 17)
        continue;  // an attribute that a later opset added
      ASSERT_TRUE(imported.ok()) << imported.error().message;
      ++imported_forms;
      EXPECT_TRUE(verify(imported->graph).ok());
      for (std::size_t k = 0; k < built->outputs.size(); ++k) {
        if (built->outputs[k] == kNone) continue;
        EXPECT_EQ(to_string(imported->graph.type(imported->graph.outputs[k])),
                  to_string(built->graph.type(built->outputs[k])));
      }
    }
    EXPECT_GT(imported_forms, 0) << op.name << " has no sample that opset " << opset << " can write";
  }
}

TEST_P(EveryOpset, DoesNotExistBefore) {
  const OpDef& op = *GetParam();
  for (int opset = 7; opset < 25; ++opset) {
    const OpDef* row = find_op(op.name, "", opset);
    const onnx::OpSchema* schema = schema_of(op.name, opset);
    if (opset <= 17) {
      EXPECT_EQ(row != nullptr, schema != nullptr && !schema->Deprecated()) << "opset " << opset;
    } else if (row == nullptr) {
      EXPECT_TRUE(opset < op.since || opset > op.until) << "opset " << opset;
    } else {
      EXPECT_TRUE(row->since <= opset && opset <= row->until) << "opset " << opset;
    }
  }
}

std::vector<const OpDef*> onnx_rows() {
  std::vector<const OpDef*> rows;
  for (const OpDef* op : all_ops()) {
    // Constant has no input that a sample could have.
    if (std::string_view(op->domain).empty() && op->samples != nullptr &&
        std::string_view(op->name) != "Constant")
      rows.push_back(op);
  }
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Rows, EveryOpset, ::testing::ValuesIn(onnx_rows()),
                         [](const ::testing::TestParamInfo<const OpDef*>& row) {
                           return std::string(row.param->name) + "_" + std::to_string(row.param->since);
                         });

TEST(NodeReader, InputsOfAnotherOpsetAreRefused) {
  onnx::ModelProto model =
      test::model_from_text("g (float[2, 3] x) => (float[2] y) { y = ReduceSum(x, a) }", 12);
  test::add_ints(model, "a", {1}, {1});
  test::expect_refused(test::import_model(model), Errc::bad_input, {"opset 12 it takes at most 1"});
  test::expect_refused(test::import_model(test::model_from_text(
                           "g (float[2, 3] x) => (float[2] y) { y = ReduceSum<axes = [1]>(x) }", 18)),
                       Errc::bad_input, {"'axes' is not known"});
}

TEST(NodeReader, SumsOfManyInputsAreChained) {
  for (const char* op : {"Sum", "Mean"}) {
    for (const std::size_t count : {64, 65, 200}) {
      onnx::ModelProto model =
          test::model_from_text("g (float[2] x) => (float[2] y) { y = " + std::string(op) + "(x) }");
      std::vector<double> want = {1, 2};
      for (std::size_t i = 1; i < count; ++i) {
        const std::string name = "w" + std::to_string(i);
        test::add_floats(model, name, {2}, {static_cast<float>(i), 0.5f});
        model.mutable_graph()->mutable_node(0)->add_input(name);
        want[0] += static_cast<double>(i);
        want[1] += 0.5;
      }
      if (std::string(op) == "Mean")
        for (double& v : want) v /= static_cast<double>(count);
      ImportOptions options;
      options.float_type = DType::f64;
      const auto imported = test::import_model(model, options);
      ASSERT_TRUE(imported.ok()) << imported.error().message;
      const Status verified = verify(imported->graph);
      EXPECT_TRUE(verified.ok()) << verified.error().message;
      const auto runner = reference::Runner::create(imported->graph);
      ASSERT_TRUE(runner.ok());
      const auto values =
          runner->run({{imported->graph.inputs[0], Tensor::from_f64(DType::f64, {2}, {1, 2})}});
      ASSERT_TRUE(values.ok());
      const Graph& graph = imported->graph;
      EXPECT_EQ(graph.value(graph.outputs[0]).name, "y");
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_NEAR((*values)[graph.outputs[0]].at(static_cast<std::int64_t>(i)), want[i], 1e-9)
            << op << count;
    }
  }
}

TEST(NodeReader, OperatorsHaveAFirstOpset) {
  test::expect_refused(
      test::import_model(test::model_from_text("g (float[2] x) => (float[2] y) { y = HardSwish(x) }", 13)),
      Errc::bad_input, {"HardSwish (1 node"});
}

// Parameters stay in the file, constants and what is converted do not.
TEST(NodeReader, LargeParametersStayInTheFile) {
  onnx::ModelProto model = test::model_from_text(
      "g (float[4, 64] x) => (float[4, 64] y) { h = MatMul(x, w) y = Gather(h, rows) }");
  model.mutable_graph()->mutable_node(0)->set_input(1, "fc.weight");
  std::vector<float> numbers(64 * 64);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  test::add_floats(model, "fc.weight", {64, 64}, {})->set_raw_data(numbers.data(), 4 * numbers.size());
  onnx::TensorProto* rows = test::add_ints(model, "rows", {4096}, {});
  rows->set_raw_data(std::string(4096 * 8, '\0'));
  const TemporaryFolder folder;
  test::write_bytes(folder / "m.onnx", model.SerializeAsString());
  for (const DType type : {DType::f32, DType::f64}) {
    ImportOptions options;
    options.float_type = type;
    const Result<ImportedModel> imported = import_onnx(folder / "m.onnx", options);
    ASSERT_TRUE(imported.ok()) << imported.error().message;
    const Tensor& weight = test::value_of(imported->graph, "fc.weight").data;
    EXPECT_EQ(weight.in_memory(), type == DType::f64);
    EXPECT_EQ(weight.type(), (Type{type, {64, 64}}));
    EXPECT_EQ(weight.at(4095), 4095);
    EXPECT_TRUE(test::value_of(imported->graph, "rows").data.in_memory());
  }
}

}  // namespace
}  // namespace gradloom
