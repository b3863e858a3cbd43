// What the exporter computed from a module's weights is trained only where a step does the same to both.
#include "engine/onnx/repair/computed_weights.h"

#include "tests/engine/onnx/support.h"

namespace gradloom {
namespace {

using test::add_floats;
using test::describe;
using test::imported_or_fail;
using test::kFoldedFrom;
using test::kSignature;

// y = x * first + second, initializers that were folded from these; norm.g, w and a are parameters of the module.
onnx::ModelProto computed_model(const std::string& first, const std::string& from_first,
                                const std::string& second, const std::string& from_second,
                                const std::vector<float>& second_numbers) {
  onnx::ModelProto model =
      test::model_from_text("g (float[2, 4] x) => (float[2, 4] y) { a = Mul(x, f) y = Add(a, s) }");
  model.mutable_graph()->mutable_node(0)->set_input(1, first);
  model.mutable_graph()->mutable_node(1)->set_input(1, second);
  add_floats(model, first, {4}, {1, 2, 3, 4});
  add_floats(model, second, {4}, second_numbers);
  test::add_metadata(
      model.mutable_graph(), 16, kSignature,
      "p_g: PARAMETER target='norm.g'\np_w: PARAMETER target='w'\np_a: PARAMETER target='a'\n");
  if (!from_first.empty()) describe(model, first, kFoldedFrom, from_first);
  if (!from_second.empty()) describe(model, second, kFoldedFrom, from_second);
  return model;
}

TEST(ComputedWeights, TrainedApartOrAsTheModulesOwn) {
  struct Case {
    const char *first, *from_first, *second, *from_second;
    std::vector<float> numbers;
    const char* why;  // of the first; empty: it trains as the module's
  };
  const std::vector<float> others = {5, 6, 7, 8}, same = {3, 4, 7, 8};
  for (const Case& c : {
           Case{"view_4", "['norm.g', 'val_3']", "w", "", others, ""},
           Case{"slice_1", "['norm.g', 'val_3']", "w", "", others, ""},
           Case{"val_4", "['norm.g']", "w", "", others, ""},
           Case{"index_1", "['norm.g', 'val_3']", "w", "", others, ""},  // each once
           Case{"slice_1", "['norm.g', 'val_3']", "slice_2", "['norm.g', 'val_3']", others, ""},
           Case{"slice_1", "['norm.g', 'val_3']", "slice_2", "['norm.g', 'val_3']", same,
                "shares numbers of 'norm.g' with 'slice_2'"},
           Case{"add_4", "['norm.g', 'val_3']", "w", "", others, "is another form of 'norm.g'"},
           Case{"neg", "['a', 'exp']", "w", "", others, "is another form of 'a'"},
           Case{"view_4", "['a', 'exp']", "w", "", others, "is another form of 'a'"},
           Case{"val_4", "['a', 'norm.g']", "w", "", others, "was computed from 'a', 'norm.g' together"},
           Case{"cat", "['a', 'norm.g']", "w", "", others, ""},
           Case{"slice_1", "['w', 'val_3']", "w", "", others,
                "was computed from 'w', which the file has too"},
       }) {
    SCOPED_TRACE(std::string(c.first) + " " + c.from_first + ", " + c.second);
    const onnx::ModelProto model = computed_model(c.first, c.from_first, c.second, c.from_second, c.numbers);
    const ImportedModel imported = imported_or_fail(model);
    const std::string why = imported.apart.empty() ? "" : imported.apart[0].why;
    EXPECT_EQ(why, c.why);
    if (why.empty()) continue;
    EXPECT_EQ(imported.apart[0].name, c.first);
    EXPECT_TRUE(test::has_note(imported, std::string(c.first) + " " + c.why));
    EXPECT_EQ(test::value_of(imported.graph, c.first).role, Role::parameter);
    ImportOptions options;
    options.train = {c.first};
    EXPECT_TRUE(imported_or_fail(model, options).apart.size() < imported.apart.size()) << "as it is, by name";
  }
}

TEST(ComputedWeights, OfRecurrentLayersAreTheirs) {
  const ComputedParameter parameter{
      .name = "val_9", .from = {"rnn.bias_ih_l0", "rnn.bias_hh_l0"}, .recurrent = true};
  const Tensor contents = Tensor::from_f64(DType::f32, {2}, {1, 2});
  EXPECT_EQ(why_apart({{parameter, contents}}, 0, [](const std::string&) { return false; }).value(), "");
}

}  // namespace
}  // namespace gradloom
