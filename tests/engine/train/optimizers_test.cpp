#include "engine/train/optimizers.h"

#include <gtest/gtest.h>

#include "engine/ir/builder.h"
#include "engine/ir/op.h"

namespace gradloom {
namespace {

TEST(Optimizers, PyTorchDefaultsAndErrors) {
  EXPECT_EQ(parse_optimizer("adamw")->weight_decay, 0.01);
  EXPECT_EQ(parse_optimizer("adam")->weight_decay, 0.0);
  EXPECT_EQ(parse_optimizer("lamb")->epsilon, 1e-6);
  EXPECT_EQ(parse_optimizer("sgd{lr=0.5,momentum=0.9,nesterov=true}")->momentum, 0.9);
  EXPECT_FALSE(parse_optimizer("sgd{nesterov=true}").ok());
  EXPECT_FALSE(parse_optimizer("sgd{beta1=0.5}").ok());
  EXPECT_EQ(parse_optimizer("adagrad")->lr, 0.01);
  EXPECT_EQ(parse_optimizer("lion")->beta2, 0.99);
  EXPECT_TRUE(parse_optimizer("adamw_hf")->correct_bias);
  EXPECT_FALSE(parse_optimizer("adamw_hf{correct_bias=false}")->correct_bias);
  EXPECT_FALSE(parse_optimizer("rprop").ok());
  EXPECT_FALSE(parse_optimizer("adam{lr=-1}").ok());
  for (const std::string& name : optimizer_names()) {
    const auto spec = parse_optimizer(name);
    ASSERT_TRUE(spec.ok());
    EXPECT_EQ(print_optimizer(*parse_optimizer(print_optimizer(*spec))), print_optimizer(*spec));
  }
}

TEST(Optimizers, ErrorsNameTheNearest) {
  EXPECT_EQ(
      parse_optimizer("adamv").error().message,
      "unknown optimizer 'adamv' (known: sgd, adam, adamw, lamb, adagrad, lion, adamw_hf); did you mean adam?");
  EXPECT_EQ(parse_optimizer("rectified").error().message,
            "unknown optimizer 'rectified' (known: sgd, adam, adamw, lamb, adagrad, lion, adamw_hf)");
  EXPECT_EQ(parse_optimizer("lamb{momentum=1}").error().message,
            "optimizer lamb has no option 'momentum' (known: lr, weight_decay, beta1, beta2, eps, maximize)");
}

// What a row says of its states is what operator Optimizer makes of its attributes.
TEST(Optimizers, RowsAndOperatorAgree) {
  for (const OptimizerDef& def : all_optimizers()) {
    EXPECT_EQ(&optimizer_def(def.kind), &def) << def.name;
    EXPECT_TRUE(parse_optimizer(std::string(def.name) + "{" + def.start + "}").ok()) << def.name;
    OptimizerSpec spec(def.kind);
    for (const bool bare : {true, false}) {
      for (const OptimizerOption& option : def.options)
        if (!bare && std::string(def.needs) == option.name) spec.*option.number = 0.5;
      const std::size_t states = optimizer_states(spec).size();
      EXPECT_EQ(states > 0, !bare || *def.needs == 0) << def.name;
      Graph graph;
      GraphBuilder b(graph);
      const Type type{DType::f32, {3}};
      std::vector<ValueId> inputs{b.input("lr", {DType::f64, {}}), b.input("step", {DType::i64, {}}), kNone,
                                  kNone};
      for (std::size_t i = 0; i < 2 + states; ++i) inputs.push_back(b.input(std::to_string(i), type));
      const auto outputs =
          b.add(op_by_name("Optimizer"), inputs, optimizer_attrs(spec), static_cast<int>(1 + states));
      EXPECT_TRUE(outputs.ok()) << def.name;
      inputs.push_back(inputs.back());
      EXPECT_FALSE(
          b.add(op_by_name("Optimizer"), inputs, optimizer_attrs(spec), static_cast<int>(1 + states)).ok())
          << def.name;
    }
  }
}

}  // namespace
}  // namespace gradloom
