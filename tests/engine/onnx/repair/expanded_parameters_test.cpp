// A parameter that dynamo's optimizer wrote expanded to the batch is one parameter again.
#include "engine/onnx/export.h"
#include "engine/onnx/repair/expanded_parameters.h"

#include <algorithm>

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::add_floats;
using test::describe;
using test::kFoldedFrom;
using test::kSignature;

// y = x + `name`, an initializer that was folded from `sources`.
onnx::ModelProto expanded_model(const std::string& name, const Shape& shape,
                                const std::vector<float>& numbers, const std::string& sources) {
  onnx::ModelProto model =
      test::model_from_text("g (float[2, 2, 3] x) => (float[2, 2, 3] y) { y = Add(x, t) }");
  model.mutable_graph()->mutable_node(0)->set_input(1, name);
  add_floats(model, name, shape, numbers);
  describe(model, name, kFoldedFrom, sources);
  test::add_metadata(model.mutable_graph(), 16, kSignature,
                     "a: PARAMETER target='h.token'\nb: PARAMETER target='h.other'\n");
  return model;
}

struct ExpandedCase {
  const char* name;
  Shape shape;
  std::vector<float> numbers;
  const char* sources;
  Shape trained;  // empty: as it is in the file
  bool guessed = false;
};

std::vector<ExpandedCase> expanded_cases() {
  return {
      {"expand", {2, 1, 3}, {1, 2, 3, 1, 2, 3}, "['h.token', 'val_3']", {1, 1, 3}},
      {"repeat_12", {2, 2, 3}, {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}, "['h.token']", {1, 1, 3}, true},
      {"expand_1", {2, 2, 3}, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, "['h.token']", {1, 2, 3}},
      {"tile", {2, 3}, {1, 2, 3, 1, 2, 3}, "['h.token']", {1, 3}},
      {"expand",
       {2, 2, 3},
       std::vector<float>(12, 0.0f),
       "['h.token']",
       {1, 2, 3},
       true},  // of [1, 2, 3] or [1, 1, 3]
      {"expand", {2, 1, 3}, std::vector<float>(6, 0.0f), "['h.token']", {1, 1, 3}},
      {"expand",
       {1, 2, 3},
       {1, 2, 3, 1, 2, 3},
       "['h.token']",
       {1, 1, 3},
       true},  // a batch of one, or one row
      {"expand", {2, 1, 3}, {1, 2, 3, 1, 2, 4}, "['h.token']", {}},
      {"expand", {3}, {1, 1, 1}, "['h.token']", {}},
      {"expand", {2, 1, 3}, {1, 2, 3, 1, 2, 3}, "['h.token', 'h.other']", {}},
      {"expand", {2, 1, 3}, {1, 2, 3, 1, 2, 3}, "['arange']", {}},
      {"view_1", {2, 3}, {1, 2, 3, 1, 2, 3}, "['h.token', 'unsqueeze', 'expand_4', 'val_3']", {1, 3}},
      {"expand", {2, 1, 3}, {1, 2, 3, 1, 2, 3}, "['h.token', 'mul_2']", {}},  // of another form
      {"transpose", {1, 2, 3}, {1, 2, 3, 1, 2, 3}, "['h.token', 'repeat', 'val_1']", {1, 1, 3}, true},
      {"permute", {2, 2, 3}, {1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4}, "['h.token', 'expand']", {2, 2, 1}},
      {"permute", {2, 2, 3}, {1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}, "['h.token', 'expand']", {2, 1, 3}},
      {"slice_2", {2, 1, 3}, {1, 2, 3, 1, 2, 3}, "['h.token', 'expand']", {1, 1, 3}},
      // Along which axis?
      {"transpose", {1, 2, 3}, {0, 0, 0, 0, 0, 0}, "['h.token', 'repeat']", {}},
      // Of rows that were equal.
      {"slice_2", {2, 1, 3}, {1, 2, 3, 1, 2, 3}, "['h.token']", {}},
      {"val_7", {2, 1, 3}, {1, 2, 3, 1, 2, 3}, "['h.token', 'expand']", {}},
      {"expand_as", {2, 1, 3}, {1, 2, 3, 1, 2, 3}, "['h.token']", {}},
      {"view_2", {2, 1, 3}, {1, 2, 3, 1, 2, 3}, "['h.token']", {}},
  };
}

TEST(ExpandedParameters, FirstOfTheEqualPartsIsTrained) {
  for (const ExpandedCase& c : expanded_cases()) {
    SCOPED_TRACE(std::string(c.name) + " " + to_string(c.shape) + " " + c.sources);
    const ImportedModel model = test::imported_or_fail(expanded_model(c.name, c.shape, c.numbers, c.sources));
    EXPECT_EQ(test::has_note(model, "1 parameter that the exporter had expanded is one again: h.token"),
              !c.trained.empty() && !c.guessed);
    EXPECT_EQ(test::has_note(model, "1 parameter that the exporter had expanded is taken for one"),
              c.guessed);
    if (c.guessed) {
      ASSERT_EQ(model.apart.size(), 1u);
      EXPECT_EQ(model.apart[0].name, "h.token");
      EXPECT_EQ(model.apart[0].why, "may stand for several rows that were equal when the file was written");
    }
    EXPECT_FALSE(test::has_note(model, "topological"));
    if (c.trained.empty()) continue;
    ASSERT_EQ(model.graph.parameters.size(), 1u);
    const Value& token = model.graph.value(model.graph.parameters[0]);
    EXPECT_EQ(token.name, "h.token");
    EXPECT_EQ(token.type.shape, c.trained);
    std::vector<double> first;  // each number once, in order
    for (const float number : c.numbers)
      if (first.size() < static_cast<std::size_t>(token.data.count()) &&
          (number == 0 || std::find(first.begin(), first.end(), number) == first.end()))
        first.push_back(number);
    EXPECT_EQ(token.data.to_f64(), first);
    EXPECT_EQ(test::value_of(model.graph, c.name).type.shape, c.shape);
  }
}

TEST(ExpandedParameters, ExpansionsOfOneParameterShareIt) {
  onnx::ModelProto model = expanded_model("expand", {2, 1, 3}, {1, 2, 3, 1, 2, 3}, "['h.token']");
  onnx::NodeProto* node = model.mutable_graph()->add_node();
  *node = model.graph().node(0);
  node->set_input(1, "expand_1");
  node->set_output(0, "z");
  *model.mutable_graph()->add_output() = model.graph().output(0);
  model.mutable_graph()->mutable_output(1)->set_name("z");
  describe(model, "expand_1", kFoldedFrom, "['h.token']");
  add_floats(model, "expand_1", {2, 2, 3}, {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3});
  EXPECT_EQ(test::imported_or_fail(model).graph.parameters.size(), 1u);

  model.mutable_graph()->mutable_initializer(1)->set_float_data(2, 7);  // of another one
  EXPECT_EQ(test::imported_or_fail(model).graph.parameters.size(), 2u);

  // One that the file has, with other dims.
  model.mutable_graph()->mutable_initializer(1)->set_float_data(2, 3);
  add_floats(model, "h.token", {3}, {1, 2, 3});
  const ImportedModel known = test::imported_or_fail(model);
  ASSERT_EQ(known.graph.parameters.size(), 1u);
  EXPECT_EQ(known.graph.type(known.graph.parameters[0]).shape, (Shape{3}));
}

TEST(ExpandedParameters, AreWrittenOnce) {
  const TemporaryFolder folder;
  test::write_bytes(
      folder / "in.onnx",
      expanded_model("expand", {2, 1, 3}, {1, 2, 3, 1, 2, 3}, "['h.token']").SerializeAsString());
  const std::map<std::string, Tensor> trained = {
      {"h.token", Tensor::from_f64(DType::f32, {1, 1, 3}, {7, 8, 9})}};
  const Status exported = export_onnx(folder / "in.onnx", trained, folder / "out.onnx");
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  const Result<ImportedModel> back = import_onnx(folder / "out.onnx", {});
  ASSERT_TRUE(back.ok()) << back.error().message;
  ASSERT_EQ(back->graph.parameters.size(), 1u);
  EXPECT_EQ(back->graph.value(back->graph.parameters[0]).data.to_f64(), (std::vector<double>{7, 8, 9}));
}

// Two rows that are equal in the file may be two of the parameter, which the user is asked.
TEST(ExpandedParameters, GuessesAreTold) {
  onnx::ModelProto model =
      expanded_model("expand", {2, 2, 3}, {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}, "['h.token', 'unsqueeze']");
  EXPECT_EQ(test::imported_or_fail(model).apart.size(), 1u);
  ImportOptions options;
  options.train = {"h.token"};
  EXPECT_TRUE(test::imported_or_fail(model, options).apart.empty());
  // Another copy of it tells that it is one row.
  onnx::NodeProto* node = model.mutable_graph()->add_node();
  *node = model.graph().node(0);
  node->set_input(1, "expand_1");
  node->set_output(0, "z");
  *model.mutable_graph()->add_output() = model.graph().output(0);
  model.mutable_graph()->mutable_output(1)->set_name("z");
  describe(model, "expand_1", kFoldedFrom, "['h.token']");
  add_floats(model, "expand_1", {2, 1, 3}, {1, 2, 3, 1, 2, 3});
  EXPECT_TRUE(test::imported_or_fail(model).apart.empty());

  // Rows of zeros of an embedding, by indices 0, 2, 4, 1, 2, 0.
  const auto rows = [](const std::vector<float>& third) {
    std::vector<float> numbers;
    for (const int row : {0, 2, 4, 1, 2, 0})
      for (int i = 0; i < 2; ++i)
        numbers.push_back(row == 2 ? third[static_cast<std::size_t>(i)]
                                   : static_cast<float>(10 * row + i + 1));
    onnx::ModelProto table =
        test::model_from_text("g (float[6, 2] x) => (float[6, 2] y) { y = Add(x, embedding) }");
    add_floats(table, "embedding", {6, 2}, numbers);
    describe(table, "embedding", kFoldedFrom, "['ids', 't.weight']");
    test::add_metadata(table.mutable_graph(), 16, kSignature,
                       "a: PARAMETER target='t.weight'\nb: BUFFER target='ids' persistent=True\n");
    return test::imported_or_fail(table);
  };
  EXPECT_TRUE(rows({7, 8}).apart.empty());
  for (const std::vector<float>& plain : {std::vector<float>{0, 0}, {7, 7}}) {
    const ImportedModel zeros = rows(plain);
    ASSERT_EQ(zeros.apart.size(), 1u);
    EXPECT_EQ(zeros.apart[0].name, "t.weight/rows");
  }
}

// Rows of a table by indices, which the file has not: those that are equal are one row.
TEST(ExpandedParameters, GatheredRowsAreATableAgain) {
  // [heads 2, pairs 3, pairs 3] of 5 relative positions: row p, column q holds position q - p + 2.
  std::vector<float> numbers;
  for (int head = 0; head < 2; ++head)
    for (int p = 0; p < 3; ++p)
      for (int q = 0; q < 3; ++q) numbers.push_back(static_cast<float>(10 * head + q - p + 2) + 0.5f);
  onnx::ModelProto model =
      test::model_from_text("g (float[2, 3, 3] x) => (float[2, 3, 3] y) { y = Add(x, permute_1) }");
  add_floats(model, "permute_1", {2, 3, 3}, numbers);
  describe(model, "permute_1", kFoldedFrom, "['h.table', 'index', 'view', 'val_3']");
  test::add_metadata(model.mutable_graph(), 16, kSignature,
                     "a: PARAMETER target='h.table'\nb: BUFFER target='index' persistent=True\n");
  const ImportedModel imported = test::imported_or_fail(model);
  ASSERT_EQ(imported.graph.parameters.size(), 1u);
  const Value& rows = imported.graph.value(imported.graph.parameters[0]);
  EXPECT_EQ(rows.name, "h.table/rows");
  EXPECT_EQ(rows.type.shape, (Shape{5, 2}));
  EXPECT_EQ(rows.data.to_f64(), (std::vector<double>{2.5, 12.5, 3.5, 13.5, 4.5, 14.5, 1.5, 11.5, 0.5, 10.5}));
  EXPECT_TRUE(imported.apart.empty());
  const Value& made = test::value_of(imported.graph, "permute_1");
  EXPECT_EQ(made.type.shape, (Shape{2, 3, 3}));
  EXPECT_EQ(std::string(imported.graph.node(made.producer).op->name), "Transpose");

  // Of equal numbers nothing can be told: it would train as nine positions.
  for (float& number : *model.mutable_graph()->mutable_initializer(0)->mutable_float_data()) number = 0;
  const ImportedModel zeros = test::imported_or_fail(model);
  ASSERT_EQ(zeros.apart.size(), 1u);
  EXPECT_EQ(zeros.apart[0].name, "permute_1");
  EXPECT_EQ(zeros.apart[0].why, "holds numbers of 'h.table' several times");
}

}  // namespace
}  // namespace gradloom
