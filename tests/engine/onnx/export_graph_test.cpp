// Every sample of every operator goes out as ONNX and comes back through the importer: the functions that stand for
// Gradloom's own operators compute what its kernels do.
#include "engine/onnx/export_graph.h"

#include <onnx/checker.h>
#include <onnx/defs/schema.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "engine/onnx/read/attributes.h"
#include "engine/ops/preparation.h"
#include "engine/ops/rank_part.h"
#include "engine/ops/samples.h"
#include "engine/train/train_graph.h"
#include "tests/engine/every_op.h"
#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using every_op::kSeed, every_op::kStep;

// What Dropout keeps, from the random numbers of this key; `node`: of a sample that may be a part of a tensor.
Tensor kept(std::uint64_t key, const Shape& shape, double ratio, const Node& node) {
  Attrs attrs{{"key", static_cast<std::int64_t>(key)}};
  copy_rank_part(node.attrs, attrs);
  const Tensor ones = Tensor::from_f64(
      DType::f32, shape, std::vector<double>(static_cast<std::size_t>(element_count(shape)), 1));
  const auto results = evaluate(op_by_name("Dropout"), attrs,
                                {ones, Tensor::scalar(DType::f32, ratio), Tensor::scalar(DType::boolean, 1)},
                                1, "", kSeed, kStep);
  EXPECT_TRUE(results.ok());
  return (*results)[0].cast(DType::boolean);
}

// The ratio that a sample's Dropout has: of its node, of its statement in a region, or of the attention.
double ratio_of(const every_op::Built& built) {
  const Node& node = built.graph.nodes[0];
  if (node.attrs.has("dropout")) return node.attrs.real("dropout");
  for (const ValueId in : node.inputs) {
    const Value& value = built.graph.values[in == kNone ? 0 : in];
    if (in != kNone && value.data.defined() && value.type.shape.empty() && is_float(value.type.dtype))
      return value.data.at(0);
  }
  return 0.5;
}

class Exported : public ::testing::TestWithParam<const OpDef*> {};

// What the library's checker says up to opset 17; above, where it knows no operator, what the file may not hold: more
// results than the operator's newest known form, and a function of an operator's own name.
void expect_valid(const onnx::ModelProto& model, int opset) {
  if (opset <= 17) {
    ASSERT_NO_THROW(onnx::checker::check_model(model)) << model.DebugString();
  }
  std::set<std::string> functions;
  for (const auto& function : model.functions()) {
    functions.insert(function.name());
    EXPECT_EQ(function.name().find_last_of('_') + 2, function.name().size()) << function.name();
  }
  const auto check = [&](const onnx::NodeProto& node) {
    if (!node.domain().empty()) return;
    const onnx::OpSchema* const schema = newest_schema_of(node.op_type(), opset);
    EXPECT_LE(node.output_size(), schema != nullptr ? schema->max_output() : 1) << node.DebugString();
    for (const auto& attribute : node.attribute())
      EXPECT_EQ(attribute_type(node.op_type(), attribute.name(), opset), attribute.type())
          << node.DebugString();
    if (node.op_type() == "Split" && opset >= 18) {
      EXPECT_TRUE(node.input_size() == 2 || node.attribute_size() > 0) << node.DebugString();
    }
  };
  for (const auto& node : model.graph().node()) check(node);
  for (const auto& function : model.functions())
    for (const auto& node : function.node()) check(node);
}

// compared: gets the attribute `kind` of what was computed in both forms.
void round_trip(const OpDef* op, const Sample& sample, int opset = 17,
                std::set<std::string>* compared = nullptr) {
  auto built = every_op::build(*op, sample, DType::f64);
  ASSERT_OK(built);
  built->graph.opset = opset;
  built->graph.outputs = built->outputs;
  const TemporaryFolder folder;
  const std::string path = folder / "op.onnx";
  const auto exported = export_graph(built->graph, ExportPart::step, path);
  ASSERT_OK(exported);
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(test::read_bytes(path)));
  expect_valid(model, opset);
  // Other programs draw other random numbers; only Dropout's are inputs.
  const bool draws = op->has(kRandom) && exported->masks.empty() && std::string_view(op->name) != "Dropout";
  if (draws || !exported->without_form.empty()) return;
  const auto back = import_onnx(path, {});
  ASSERT_OK(back);
  for (const ValueId id : back->graph.outputs)
    if (!is_static(back->graph.type(id).shape)) return;  // sized by data
  std::map<ValueId, Tensor> feeds;
  for (const ValueId id : back->graph.inputs) {
    const std::string& name = back->graph.values[id].name;
    const ValueId same = find_value(built->graph, name);
    if (same != kNone)
      feeds[id] = built->feeds.at(same);
    else
      feeds[id] = kept(std::stoull(name.substr(name.rfind('/') + 1), nullptr, 16), back->graph.type(id).shape,
                       ratio_of(*built), built->graph.nodes[0]);
  }
  auto ours = reference::Runner::create(built->graph), theirs = reference::Runner::create(back->graph);
  ASSERT_OK(ours);
  ASSERT_OK(theirs);
  const auto want = ours->run(built->feeds, kSeed, kStep), got = theirs->run(feeds, kSeed, kStep);
  ASSERT_OK(want);
  ASSERT_OK(got);
  ASSERT_EQ(back->graph.outputs.size(), built->graph.outputs.size());
  if (compared != nullptr) compared->insert(sample.attrs.text("kind", ""));
  for (std::size_t i = 0; i < built->outputs.size(); ++i)
    EXPECT_TRUE(every_op::near((*got)[back->graph.outputs[i]], (*want)[built->outputs[i]], {1e-6, 1e-6}))
        << "output " << i;
}

TEST_P(Exported, ComesBackAndComputesTheSame) {
  for (const every_op::Case& c : every_op::cases_of(GetParam())) {
    if (c.sample.bench) continue;
    for (const int opset : {17, 18, 20, 23}) {
      SCOPED_TRACE(std::string(c.op->name) + ", sample '" + c.sample.name + "', opset " +
                   std::to_string(opset));
      round_trip(c.op, c.sample, opset);
    }
  }
}

// A row of a table says rate and options of an update, where it says a number; another row changes nothing.
TEST(ExportedForms, OfOptimizersFollowEachOptionOfTheirRow) {
  const double none = std::nan("");
  const std::vector<double> rows[] = {
      {0.3, 0.6, 0.7, 0.8, 0.2, 0.1}, {0.3, 0, none, 0.5, 0, 0.5}, {0.3, none, 0.25, none, 0.5, none}};
  std::set<std::string> kinds;
  const OpDef& op = op_by_name("Optimizer");
  for (const every_op::Case& c : every_op::cases_of(&op)) {
    if (c.sample.bench) continue;
    for (const std::vector<double>& row : rows) {
      SCOPED_TRACE(c.sample.name + ", momentum " + std::to_string(row[1]));
      Sample sample = c.sample;
      std::vector<double> table(row.size(), 0.9);
      table.insert(table.end(), row.begin(), row.end());
      sample.inputs[0] = exact(DType::f64, {2, static_cast<std::int64_t>(row.size())}, table);
      sample.attrs.set("row", std::int64_t{1});
      round_trip(&op, sample, 17, &kinds);
    }
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"adadelta", "adagrad", "adam", "adamw", "adamw_hf", "lamb", "lion",
                                          "nadam", "radam", "rmsprop", "sgd"}));
}

// What is ours in them is not the operator's: channels in blocks are plain ones between transposes.
TEST(ExportedForms, OfChannelsInBlocksAndOfTheLossScaleAreThere) {
  int forms = 0;
  for (const OpDef* op : every_op::rows(false))
    for (const every_op::Case& c : every_op::cases_of(op)) {
      bool blocks = false;
      for (const char* name : {"block", "x_block", "y_block"})
        blocks = blocks || c.sample.attrs.integer(name, 1) > 1;
      if (c.sample.bench || (!blocks && std::string_view(op->name) != "LossScale")) continue;
      auto built = every_op::build(*c.op, c.sample, DType::f64);
      ASSERT_OK(built);
      built->graph.opset = 17;
      built->graph.outputs = built->outputs;
      const TemporaryFolder folder;
      const auto exported = export_graph(built->graph, ExportPart::step, folder / "op.onnx");
      ASSERT_OK(exported);
      ++forms;
      EXPECT_EQ(exported->without_form, std::vector<std::string>()) << op->name << " " << c.sample.name;
    }
  EXPECT_GT(forms, 20);
}

// A recomputed node draws by the key of the first; another program would draw other numbers.
TEST(ExportedForms, OfRandomNumbersThatAreMadeAgainAreTheFirst) {
  Graph graph;
  graph.opset = 17;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {3, 4}});
  const auto draw = [&](std::int64_t key) { return b.op("RandomUniformLike", {x}, {{"key", key}}); };
  graph.outputs = {draw(5), draw(5), draw(6)};
  const TemporaryFolder folder;
  ASSERT_OK(export_graph(graph, ExportPart::step, folder / "random.onnx"));
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(test::read_bytes(folder / "random.onnx")));
  std::multiset<std::string> ops;
  for (const auto& node : model.graph().node()) ops.insert(node.op_type());
  EXPECT_EQ(ops, (std::multiset<std::string>{"Identity", "RandomUniformLike", "RandomUniformLike"}));
}

INSTANTIATE_TEST_SUITE_P(Rows, Exported, ::testing::ValuesIn(every_op::rows(false)), every_op::name_of);

}  // namespace
}  // namespace gradloom
