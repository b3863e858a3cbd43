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
  EXPECT_TRUE(parse_optimizer("adafactor")->relative_step);
  EXPECT_EQ(parse_optimizer("adafactor{relative_step=false,lr=1e-3}")->lr, 1e-3);
  EXPECT_EQ(parse_optimizer("adafactor{relative_step=false}").error().message,
            "optimizer adafactor: relative_step=false needs lr");
  EXPECT_TRUE(parse_optimizer("adam{amsgrad=true}")->amsgrad);
  EXPECT_EQ(parse_optimizer("adamw{amsgrad=true,eight_bit_states=true}").error().message,
            "optimizer adamw: with amsgrad states are not of 8 bits");
  EXPECT_FALSE(parse_optimizer("rmsprop{eight_bit_states=true}").ok());
  EXPECT_EQ(parse_optimizer("rmsprop{alpha=0.5}")->alpha, 0.5);
  EXPECT_EQ(parse_optimizer("nadam")->lr, 2e-3);
  EXPECT_EQ(parse_optimizer("adadelta")->alpha, 0.9);
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
      "unknown optimizer 'adamv' (known: sgd, adam, adamw, lamb, adagrad, lion, adamw_hf, adafactor, rmsprop, nadam, radam, adadelta); did you mean adam?");
  EXPECT_EQ(
      parse_optimizer("rectified").error().message,
      "unknown optimizer 'rectified' (known: sgd, adam, adamw, lamb, adagrad, lion, adamw_hf, adafactor, rmsprop, nadam, radam, adadelta)");
  EXPECT_EQ(parse_optimizer("lamb{momentum=1}").error().message,
            "optimizer lamb has no option 'momentum' (known: lr, weight_decay, beta1, beta2, eps, maximize, "
            "eight_bit_states)");
}

// What a row says of its states is what operator Optimizer makes of its attributes.
TEST(Optimizers, RowsAndOperatorAgree) {
  for (const OptimizerDef& def : all_optimizers()) {
    EXPECT_EQ(&optimizer_def(def.kind), &def) << def.name;
    EXPECT_TRUE(parse_optimizer(std::string(def.name) + "{" + def.start + "}").ok()) << def.name;
    for (const bool bare : {true, false}) {
      OptimizerSpec spec(def.kind);
      for (const OptimizerOption& option : def.options)
        for (const OptimizerStateDef& state : def.states)
          if (!bare && std::string(state.needs) == option.name) {
            if (option.number != nullptr) spec.*option.number = 0.5;
            if (option.flag != nullptr) spec.*option.flag = true;
          }
      for (const Shape& shape : {Shape{3}, Shape{4, 3}, Shape{0, 3}}) {
        const std::vector<OptimizerState> states = optimizer_states(spec, shape);
        Graph graph;
        GraphBuilder b(graph);
        std::vector<ValueId> inputs{
            b.input("lr", {DType::f64, {}}),   b.input("step", {DType::i64, {}}), kNone, kNone,
            b.input("p", {DType::f32, shape}), b.input("g", {DType::f32, shape})};
        for (const OptimizerState& s : states) inputs.push_back(b.input(s.name, {DType::f32, s.shape}));
        const Attrs attrs = optimizer_attrs(spec, shape);
        const auto add = [&] {
          return b.add(op_by_name("Optimizer"), inputs, attrs, static_cast<int>(1 + states.size()));
        };
        const auto outputs = add();
        ASSERT_TRUE(outputs.ok()) << def.name;
        for (std::size_t i = 0; i < states.size(); ++i)
          EXPECT_EQ(graph.type((*outputs)[i + 1]).shape, states[i].shape) << def.name;
        inputs.push_back(inputs.back());
        EXPECT_FALSE(add().ok()) << def.name;
      }
    }
  }
}

std::string states_text(const std::string& optimizer, const Shape& shape) {
  std::string text;
  for (const OptimizerState& s : optimizer_states(*parse_optimizer(optimizer), shape))
    text += s.name + to_string(Type{DType::f32, s.shape}) + " ";
  return text;
}

TEST(Optimizers, StatesOfAParameter) {
  EXPECT_EQ(states_text("sgd", {4, 3}), "");
  EXPECT_EQ(states_text("sgd{momentum=0.9}", {4, 3}), "momentumf32[4, 3] ");
  EXPECT_EQ(states_text("adam", {4, 3}), "mf32[4, 3] vf32[4, 3] ");
  EXPECT_EQ(states_text("adamw{amsgrad=true}", {3}), "mf32[3] vf32[3] vmaxf32[3] ");
  EXPECT_EQ(states_text("rmsprop", {3}), "square_avgf32[3] ");
  EXPECT_EQ(states_text("rmsprop{centered=true}", {3}), "square_avgf32[3] grad_avgf32[3] ");
  EXPECT_EQ(states_text("rmsprop{momentum=0.9,centered=true}", {3}),
            "square_avgf32[3] momentumf32[3] grad_avgf32[3] ");
  EXPECT_EQ(states_text("nadam", {3}), "mf32[3] vf32[3] ");
  EXPECT_EQ(states_text("adadelta", {3}), "square_avgf32[3] acc_deltaf32[3] ");
  EXPECT_EQ(states_text("adafactor", {5, 4, 3}), "rowf32[5, 4] columnf32[5, 3] ");
  EXPECT_EQ(states_text("adafactor{beta1=0.9}", {4, 3}), "rowf32[4] columnf32[3] mf32[4, 3] ");
  EXPECT_EQ(states_text("adafactor", {3}), "vf32[3] ");
  EXPECT_EQ(states_text("adafactor", {0, 3}), "vf32[0, 3] ");  // without elements there are no means
}

}  // namespace
}  // namespace gradloom
