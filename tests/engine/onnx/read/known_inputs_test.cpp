// Contents that are found out after reading must leave the graph that reading with them makes.
#include "engine/onnx/read/known_inputs.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/onnx/file/tensor_file.h"
#include "engine/onnx/import.h"
#include "engine/plan/plan.h"
#include "tests/paths.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

const fs::path kModules = fs::path(GRADLOOM_SOURCE_DIR) / "tests/modules";
const std::string kSelfLoops = (kModules / "graph-self-loops").string();

// The integer inputs of a test folder.
std::map<std::string, Tensor> contents_of(const std::string& folder) {
  std::map<std::string, Tensor> contents;
  for (int i = 0;; ++i) {
    const auto input = read_tensor_file(folder + "/test_data_set_0/input_" + std::to_string(i) + ".pb");
    if (!input.ok()) return contents;
    if (!is_float(input->tensor.dtype())) contents[input->name] = input->tensor;
  }
}

void expect_equal(const Graph& a, const Graph& b, const std::string& model) {
  EXPECT_EQ(dump(a), dump(b)) << model;
  ASSERT_EQ(a.values.size(), b.values.size()) << model;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    const Value &x = a.values[i], &y = b.values[i];
    EXPECT_EQ(x.name, y.name) << model;
    EXPECT_EQ(x.role, y.role) << model << " " << x.name;
    EXPECT_EQ(x.type, y.type) << model << " " << x.name;
    ASSERT_EQ(x.data.defined(), y.data.defined()) << model << " " << x.name;
    if (x.data.defined()) {
      EXPECT_EQ(x.data.to_f64(), y.data.to_f64()) << model << " " << x.name;
    }
  }
}

TEST(KnownInputs, TheGraphIsTheOneThatReadingWithThemMakes) {
  int sized_by_data = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kModules)) {
    const std::string folder = entry.path().string(), model = folder + "/model.onnx";
    const auto contents = entry.is_directory() ? contents_of(folder) : std::map<std::string, Tensor>();
    for (const DType type : {DType::f32, DType::f64}) {
      ImportOptions options;
      options.float_type = type;
      if (contents.empty()) continue;
      auto late = import_onnx(model, options);
      options.known_inputs = contents;
      const auto early = import_onnx(model, options);
      if (!late.ok() || !early.ok()) continue;
      sized_by_data += nodes_sized_by_data(late->graph).empty() ? 0 : 1;
      const Status known = know_inputs(late->graph, contents, options);
      ASSERT_TRUE(known.ok()) << model << ": " << known.error().message;
      EXPECT_TRUE(verify(late->graph).ok()) << model;
      expect_equal(late->graph, early->graph, model);
    }
  }
  EXPECT_GE(sized_by_data, 2) << "graph-self-loops in both types at least";
}

TEST(KnownInputs, ContentsMustBeOfTheInputsType) {
  auto model = import_onnx(kSelfLoops + "/model.onnx", {});
  ASSERT_TRUE(model.ok());
  auto contents = contents_of(kSelfLoops);
  contents.at("edges") = contents.at("edges").cast(DType::f32);
  const Status status = know_inputs(model->graph, contents, {});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::bad_input);
  EXPECT_EQ(status.error().message.rfind("input 'edges' is i64", 0), 0u) << status.error().message;
}

}  // namespace
}  // namespace gradloom
