#include "engine/onnx/file/scope.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

TEST(Scope, OfParameters) {
  EXPECT_EQ(scope_of_parameter("layers.0.attn.qkv.weight"), "layers.0/attn/qkv");
  EXPECT_EQ(scope_of_parameter("wte.weight"), "wte");
  EXPECT_EQ(scope_of_parameter("scale"), "");
  EXPECT_EQ(scope_of_parameter("0.weight"), "0");
}

TEST(Scope, FromPathsInNames) {
  const std::vector<std::string> scopes =
      node_scopes({{"/layers.0/attn/MatMul", "", {}}, {"/Relu", ""}, {"model/dense/BiasAdd", ""}});
  EXPECT_EQ(scopes, (std::vector<std::string>{"layers.0/attn", "", "model/dense"}));
}

TEST(Scope, FromParametersAndNeighbours) {
  const std::vector<std::string> scopes = node_scopes({{"Constant_0", ""},
                                                       {"MatMul_1", "layers.0.attn.qkv.weight"},
                                                       {"Add_2", "layers.0.attn.qkv.bias"},
                                                       {"Mul_3", ""},
                                                       {"MatMul_4", "layers.0.attn.proj.weight"},
                                                       {"Relu_5", ""},
                                                       {"MatMul_6", "layers.1.fc.weight"},
                                                       {"Softmax_7", ""}});
  EXPECT_EQ(scopes, (std::vector<std::string>{"", "layers.0/attn/qkv", "layers.0/attn/qkv", "layers.0/attn",
                                              "layers.0/attn/proj", "", "layers.1/fc", ""}));
}

TEST(Scope, PathBeforeParameter) { EXPECT_EQ(node_scopes({{"/head/Gemm", "decoder.weight"}})[0], "head"); }

TEST(Scope, PathsShareWholeComponents) {
  EXPECT_EQ(node_scopes({{"/blocks.1/x/A", ""}, {"Constant_1", ""}, {"/blocks.10/x/B", ""}})[1], "");
  EXPECT_EQ(node_scopes({{"/blocks.1/A", ""}, {"Constant_1", ""}, {"/blocks.1/x/B", ""}})[1], "blocks.1");
}

TEST(Scope, OfTorchNameScopes) {
  EXPECT_EQ(scope_of_name_scopes("['', 'layers.0', 'layers.0.attn', 'linear']"), "layers.0/attn");
  EXPECT_EQ(scope_of_name_scopes("['', 'encoder', 'encoder.blocks.3.mlp', 'gelu_1']"),
            "encoder/blocks.3/mlp");
  EXPECT_EQ(scope_of_name_scopes("['', 'add']"), "");
  EXPECT_EQ(scope_of_name_scopes("[\"it's\", \"x\"]"), "it's");
  EXPECT_EQ(scope_of_name_scopes("['add']"), "");
  for (const char* text : {"", "[", "[]", "add", "['add", "['a']x"})
    EXPECT_FALSE(scope_of_name_scopes(text)) << text;
}

TEST(Scope, KnownOnesComeFirst) {
  EXPECT_EQ(node_scopes({{"/head/Gemm", "decoder.weight", "blocks.0"}})[0], "blocks.0");
}

}  // namespace
}  // namespace gradloom
