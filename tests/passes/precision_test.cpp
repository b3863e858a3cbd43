#include "passes/precision.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/passes/support.h"

namespace gradloom {
namespace {

std::string error_of(const std::string& text) {
  const auto spec = parse_precision(text);
  return spec.ok() ? "" : spec.error().message;
}

TEST(Precision, IsReadFromText) {
  const auto spec =
      parse_precision(" bf16{full=Softmax, /head/* ; low=Gelu;list=autocast; within=/body/*,Conv} ");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->type, "bf16");
  EXPECT_EQ(spec->full, (std::vector<std::string>{"Softmax", "/head/*"}));
  EXPECT_EQ(spec->low, std::vector<std::string>{"Gelu"});
  EXPECT_EQ(spec->list, "autocast");
  EXPECT_EQ(spec->within, (std::vector<std::string>{"/body/*", "Conv"}));
  for (const char* plain : {"f32", "f64", "f16", "bf16", "bf16{}"}) EXPECT_EQ(error_of(plain), "") << plain;
  EXPECT_EQ(precision_type_name("f16{list=O2}"), "f16");
}

TEST(Precision, SaysWhatIsWrong) {
  EXPECT_EQ(error_of("f8"), "unknown precision 'f8' (known: f32, f64, bf16, f16)");
  EXPECT_NE(error_of("bf16{list=autocats}").find("autocast"), std::string::npos);
  EXPECT_NE(error_of("bf16{fll=Softmax}").find("full"), std::string::npos);
  EXPECT_NE(error_of("bf16{full}").find("names nothing"), std::string::npos);
  EXPECT_NE(error_of("bf16{full=").find("missing '}'"), std::string::npos);
  EXPECT_NE(error_of("f32{full=Softmax}").find("no options"), std::string::npos);
}

// Operator names of the lists are ours.
TEST(Precision, ListsNameOperators) {
  std::set<std::string> known;
  for (const OpDef* op : all_ops()) known.insert(op->name);
  for (const PrecisionList& list : precision_lists())
    for (const auto names : {list.low, list.full})
      for (const char* name : names) EXPECT_EQ(known.count(name), 1u) << list.name << ": " << name;
}

// x w -> Relu -> Softmax
struct PrecisionLists : ::testing::Test {
  Graph graph;
  GraphBuilder b{graph};
  ValueId product, relu, softmax;
  void SetUp() override {
    const ValueId x = b.input("x", {DType::f32, {4, 8}}), w = b.parameter("w", Tensor(DType::f32, {8, 8}));
    graph.sources = {{"/body/MatMul", "MatMul", "", "body"},
                     {"/body/Relu", "Relu", "", "body"},
                     {"/head/Softmax", "Softmax", "", "head"}};
    const auto scope = [&](std::uint32_t source) {
      return BuildContext{.origin = {{source}, Phase::forward},
                          .name_prefix = graph.sources[source].name + "/"};
    };
    {
      const BuildScope s(b, scope(0));
      product = b.op("MatMul", {x, w});
    }
    {
      const BuildScope s(b, scope(1));
      relu = b.op("Relu", {product});
    }
    const BuildScope s(b, scope(2));
    softmax = b.op("Softmax", {relu});
    graph.outputs = {softmax};
  }
  // Types of product, Relu and Softmax; the last before its cast back to the output's.
  std::string types_with(const std::string& options) {
    Graph copy = graph;
    test::run_pass(copy, "mixed-precision{" + options + "}");
    std::string text;
    for (const char* op : {"MatMul", "Relu", "Softmax"})
      for (const Node& node : copy.nodes)
        if (node.alive() && std::string(op) == node.op->name)
          text += (text.empty() ? "" : " ") + std::string(dtype_name(copy.type(node.outputs[0]).dtype));
    return text;
  }
};

TEST_F(PrecisionLists, TypesAndGlobs) {
  const std::string own = types_with("type=bf16");
  EXPECT_EQ(own.substr(0, 9), "bf16 bf16");
  EXPECT_EQ(types_with("full=Softmax"), "bf16 bf16 f32");
  EXPECT_EQ(types_with("full=Relu"), "bf16 f32 f32");
  EXPECT_EQ(types_with("full=MatMul"), "f32 f32 f32");
  EXPECT_EQ(types_with("full=/body/*"), "f32 f32 f32");
  EXPECT_EQ(types_with("full=/body/*,low=/head/*"), "f32 f32 bf16");
  EXPECT_EQ(types_with("full=MatMul,low=MatMul"), "f32 f32 f32") << "what is in both stays in f32";
  EXPECT_EQ(types_with("low=Softmax"), "bf16 bf16 bf16");
}

TEST_F(PrecisionLists, WhatIsNotWithinStaysFull) {
  EXPECT_EQ(types_with("list=O2,within=/body/*"), "bf16 bf16 f32");
  EXPECT_EQ(types_with("list=O2,within=/head/*"), "f32 f32 bf16");
  EXPECT_EQ(types_with("list=O2,within=MatMul;Softmax"), "bf16 f32 bf16");
  EXPECT_EQ(types_with("list=autocast,within=/body/*,full=MatMul"), "f32 f32 f32");
  EXPECT_EQ(types_with("list=autocast,within=/body/*,low=Softmax"), "bf16 bf16 f32")
      << "16 bits may not be there";
  // What passes made of nodes in both parts is not within one.
  graph.nodes[graph.values[relu].producer].origin.sources = {1, 2};
  EXPECT_EQ(types_with("list=O2,within=/body/*"), "bf16 f32 f32");
  EXPECT_EQ(types_with("list=O2,within=/body/*;/head/*"), "bf16 bf16 bf16");
}

TEST_F(PrecisionLists, KnownLists) {
  EXPECT_EQ(types_with("list=autocast"), "bf16 bf16 f32");
  EXPECT_EQ(types_with("list=O1"), "bf16 bf16 f32");
  EXPECT_EQ(types_with("list=O2"), "bf16 bf16 bf16");
  EXPECT_EQ(types_with("list=O2,full=Relu"), "bf16 f32 bf16");
  EXPECT_EQ(types_with("list=autocast,low=Softmax"), "bf16 bf16 bf16");
}

// x.float() and x.to(y.dtype) of a script: what would follow its operands does as its name says.
TEST_F(PrecisionLists, TypesOfAScriptAreInNames) {
  graph.sources[1].name = "/body/Relu@f32";
  EXPECT_EQ(types_with("type=bf16"), "bf16 f32 f32");
  EXPECT_EQ(types_with("list=autocast"), "bf16 f32 f32");
  EXPECT_EQ(types_with("list=O2"), "bf16 f32 bf16");
  EXPECT_EQ(types_with("low=Relu"), "bf16 bf16 bf16") << "the user's word goes first";
  graph.sources[1].name = "/body/Relu@low";
  EXPECT_EQ(types_with("list=autocast,full=MatMul"), "f32 bf16 f32");
  EXPECT_EQ(types_with("list=autocast,within=/head/*"), "f32 f32 f32");
  graph.sources[1].name = "/body/Relu";
  graph.sources[0].name = "/body/MatMul@f32";
  graph.sources[2].name = "/head/Softmax@low";
  EXPECT_EQ(types_with("list=autocast"), "bf16 bf16 f32") << "products and sums have types of their own";
}

TEST_F(PrecisionLists, UnknownNamesAreErrorsWithTheNearest) {
  const auto error = [&](const std::string& pattern) {
    PrecisionSpec spec;
    spec.full = {pattern};
    const auto choice = PrecisionChoice::make(graph, spec);
    return choice.ok() ? "" : choice.error().message;
  };
  EXPECT_EQ(error("LayerNormalization"), "") << "a type that this model has not";
  EXPECT_EQ(error("/head/*"), "");
  EXPECT_NE(error("/haed/Softmax").find("'/head/Softmax'"), std::string::npos) << error("/haed/Softmax");
  EXPECT_NE(error("Sofmax").find("'Softmax'"), std::string::npos) << error("Sofmax");
  EXPECT_NE(error("/tail/*").find("fits no node"), std::string::npos);
}

}  // namespace
}  // namespace gradloom
