// Channels in blocks: the same results and gradients for the shapes of ResNet, MobileNet, U-Net and
// squeeze-excitation, which islands change their layout, and why others do not.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "engine/autodiff/autodiff.h"
#include "tests/passes/support.h"

namespace gradloom {
namespace {

using test::Counts;
using test::expect_same_results;
using test::op_counts;
using test::run_pass;
using test::why_nots;
using Ints = std::vector<std::int64_t>;

// Layers over one graph; every layer has parameters of its own.
class Layers {
 public:
  explicit Layers(Graph& of) : graph(of), b(of) { graph.opset = 17; }
  Graph& graph;
  GraphBuilder b;

  ValueId conv(ValueId x, std::int64_t k, std::int64_t size = 3, std::int64_t stride = 1,
               std::int64_t group = 1, bool bias = false) {
    const std::int64_t pad = size / 2;
    std::vector<ValueId> inputs = {x, parameter({k, b.shape(x)[1] / group, size, size})};
    if (bias) inputs.push_back(parameter({k}));
    return b.op("Conv", inputs,
                {{"pads", Ints{pad, pad, pad, pad}}, {"strides", Ints{stride, stride}}, {"group", group}});
  }
  ValueId norm(ValueId x) {
    const Shape c{b.shape(x)[1]};
    return b.op("BatchNormalization", {x, parameter(c), parameter(c), parameter(c), parameter(c)},
                {{"training_mode", std::int64_t{1}}});
  }
  ValueId relu(ValueId x) { return b.op("Relu", {x}); }
  ValueId pool(ValueId x, const char* op = "MaxPool") {
    return b.op(op, {x}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  }
  ValueId input(Shape shape) {
    return b.input("x" + std::to_string(count_++), {DType::f64, std::move(shape)});
  }
  ValueId parameter(Shape shape) {
    return b.input("w" + std::to_string(count_++), {DType::f64, std::move(shape)}, Role::parameter);
  }

 private:
  int count_ = 0;
};

struct Net {
  const char* name;
  ValueId (*build)(Layers& l);
  Counts counts;  // of what the pass adds and takes in the forward graph
  int matched;
};

ValueId resnet(Layers& l) {
  ValueId x = l.pool(l.relu(l.norm(l.conv(l.input({2, 3, 16, 12}), 16, 7, 2))));
  const ValueId y = l.norm(l.conv(l.relu(l.norm(l.conv(x, 32, 3, 2))), 32));
  x = l.relu(l.b.op("Add", {y, l.norm(l.conv(x, 32, 1, 2))}));
  return l.b.op("Flatten", {l.b.op("GlobalAveragePool", {x})});
}

ValueId mobilenet(Layers& l) {
  const auto clip = [&](ValueId x) {
    return l.b.op("Clip", {x, l.b.scalar(DType::f64, 0), l.b.scalar(DType::f64, 0.7)});
  };
  const ValueId x = clip(l.norm(l.conv(l.input({2, 8, 6, 6}), 16, 1)));
  const ValueId y = clip(l.norm(l.conv(x, 16, 3, 1, 16)));
  const ValueId narrow = l.norm(l.conv(y, 24, 1));  // 24: plain between two convolutions
  return l.b.op("ReduceMean", {clip(l.norm(l.conv(narrow, 48, 1))), l.b.i64s({2, 3})},
                {{"keepdims", std::int64_t{0}}});
}

ValueId unet(Layers& l) {
  const ValueId skip = l.relu(l.conv(l.input({1, 3, 8, 8}), 16, 3, 1, 1, true));
  const ValueId low = l.relu(l.conv(l.pool(skip, "AveragePool"), 32));
  const ValueId scales = l.b.constant(Tensor::from_f64(DType::f32, {4}, {1, 1, 2, 2}));
  const ValueId up = l.b.op("Resize", {low, kNone, scales}, {{"mode", std::string("nearest")}});
  return l.conv(l.relu(l.conv(l.b.op("Concat", {up, skip}, {{"axis", std::int64_t{1}}}), 16)), 2, 1);
}

ValueId squeeze(Layers& l) {
  const ValueId x = l.relu(l.conv(l.input({2, 4, 5, 5}), 32));
  const ValueId middle = l.relu(l.conv(l.b.op("GlobalAveragePool", {x}), 16, 1, 1, 1, true));
  const ValueId gate = l.b.op("Sigmoid", {l.conv(middle, 32, 1, 1, 1, true)});
  return l.b.op("GlobalAveragePool", {l.conv(l.b.op("Mul", {x, gate}), 16)});
}

// Operands of every kind that broadcasts, and a result of the graph in the middle.
ValueId operands(Layers& l) {
  ValueId x = l.conv(l.input({2, 3, 4, 5}), 16);
  x = l.b.op("PRelu", {x, l.parameter({16, 1, 1})});
  x = l.b.op("Add", {l.parameter({1, 16, 1, 1}), x});
  x = l.b.op("Mul", {x, l.input({2, 1, 4, 5})});
  x = l.b.op("Mul", {x, l.input({5})});
  x = l.b.op("Sub", {x, l.parameter({1, 1, 1, 1})});
  const ValueId twice = l.b.op("Mul", {x, l.b.scalar(DType::f64, 2)});
  l.graph.outputs.push_back(twice);
  return l.conv(l.b.op("Where", {l.b.op("Greater", {x, twice}), x, twice}), 16);
}

ValueId one_dim(Layers& l) {
  const auto conv = [&](ValueId x) {
    return l.b.op("Conv", {x, l.parameter({16, l.b.shape(x)[1], 3})}, {{"pads", Ints{1, 1}}});
  };
  return conv(l.relu(conv(l.input({2, 3, 9}))));
}

ValueId three_dims(Layers& l) {
  const auto conv = [&](ValueId x) {
    return l.b.op("Conv", {x, l.parameter({16, l.b.shape(x)[1], 2, 1, 2})});
  };
  const ValueId x = l.relu(conv(l.input({1, 3, 4, 3, 5})));
  return conv(l.b.op("MaxPool", {x}, {{"kernel_shape", Ints{1, 2, 2}}}));
}

const Net kNets[] = {
    {"resnet", resnet, {{"Transpose", 0}, {"ReduceMean", 1}, {"GlobalAveragePool", 0}}, 4},
    {"mobilenet", mobilenet, {{"Transpose", 0}}, 4},
    {"unet", unet, {{"Transpose", 2}}, 3},
    {"squeeze", squeeze, {{"Transpose", 0}, {"GlobalAveragePool", 0}}, 7},
    {"operands", operands, {{"Transpose", 2}}, 2},
    {"one-dim", one_dim, {{"Transpose", 1}}, 2},
    {"three-dims", three_dims, {{"Transpose", 1}}, 2},
};

Graph graph_of(const Net& net) {
  Graph graph;
  Layers layers(graph);
  graph.outputs.push_back(net.build(layers));
  return graph;
}

// The loss is a weighted sum of the outputs; gradients of everything become outputs.
void add_training(Graph& graph) {
  GraphBuilder b(graph);
  ValueId loss = kNone;
  for (ValueId y : std::vector<ValueId>(graph.outputs)) {
    Tensor weights(DType::f64, graph.type(y).shape);
    for (std::int64_t i = 0; i < weights.count(); ++i)
      weights.mutable_as<double>()[i] = std::sin(static_cast<double>(i));
    const ValueId part =
        b.op("ReduceSum", {b.op("Mul", {y, b.constant(weights)})}, {{"keepdims", std::int64_t{0}}});
    loss = loss == kNone ? part : b.op("Add", {loss, part});
  }
  std::vector<ValueId> wrt;
  for (ValueId id = 0; id < graph.values.size(); ++id)
    if (graph.values[id].producer == kNone && graph.values[id].role != Role::constant) wrt.push_back(id);
  const auto gradients = add_gradients(graph, loss, wrt);
  ASSERT_OK(gradients);
  graph.outputs.push_back(loss);
  for (ValueId x : wrt)
    if (gradients->at(x) != kNone) graph.outputs.push_back(gradients->at(x));
}

TEST(BlockChannels, ResultsAndGradientsStayTheSame) {
  for (const Net& net : kNets) {
    for (const char* pass : {"block-channels", "block-channels{block=8}", "block-channels{block=4}"}) {
      SCOPED_TRACE(std::string(net.name) + " with " + pass);
      Graph plain = graph_of(net), blocks = graph_of(net);
      const PassReport report = run_pass(blocks, pass);
      EXPECT_GE(report.matched, 1) << why_nots(report);
      expect_same_results(plain, blocks, 1e-11);
      add_training(plain);
      add_training(blocks);
      expect_same_results(plain, blocks, 1e-9);
    }
  }
}

TEST(BlockChannels, WhatBecomesOfEachNetwork) {
  for (const Net& net : kNets) {
    SCOPED_TRACE(net.name);
    Graph graph = graph_of(net);
    const PassReport report = run_pass(graph, "block-channels");
    EXPECT_EQ(report.matched, net.matched) << why_nots(report);
    Counts counts = op_counts(graph);
    for (const auto& [op, count] : net.counts) EXPECT_EQ(counts[op], count) << op;
    EXPECT_EQ(run_pass(graph, "block-channels").matched, 0);
  }
}

TEST(BlockChannels, GradientsComputeOnBlocksToo) {
  Graph graph = graph_of(kNets[0]);
  run_pass(graph, "block-channels");
  add_training(graph);
  run_pass(graph, "eliminate-noops");
  for (const Node& node : graph.nodes) {
    if (!node.alive()) continue;
    const std::string name = node.op->name;
    EXPECT_NE(name, "Transpose");
    if (name == "BatchNormGrad" || name == "MaxPoolGrad") {
      EXPECT_EQ(node.attrs.integer("block"), 16) << node.name;
    }
    if (name == "ConvGradWeights") {
      EXPECT_EQ(node.attrs.integer("y_block"), 16) << node.name;
    }
  }
}

TEST(BlockChannels, NodesKeepTheirNames) {
  Graph graph = graph_of(kNets[0]);
  std::set<std::string> names;
  for (const Node& node : graph.nodes) names.insert(node.name);
  run_pass(graph, "block-channels");
  for (const Node& node : graph.nodes) {
    if (node.alive()) names.erase(node.name);
  }
  EXPECT_TRUE(names.empty()) << *names.begin();
}

TEST(BlockChannels, ASiteThatIsSwitchedOffStaysPlain) {
  Graph graph = graph_of(kNets[0]);
  const PassReport all = run_pass(graph, "block-channels");
  Graph partly = graph_of(kNets[0]);
  const std::string site = all.log[0].site;
  const PassReport report = run_pass(partly, "block-channels{except=" + site + "}");
  EXPECT_LT(report.matched, all.matched);
  EXPECT_NE(why_nots(report).find("switched off"), std::string::npos);
  expect_same_results(graph_of(kNets[0]), partly, 1e-11);
}

struct Refusal {
  const char* name;
  ValueId (*build)(Layers& l);
  const char* why;
};

const Refusal kRefusals[] = {
    {"channels",
     [](Layers& l) {
       return l.conv(l.input({1, 3, 6, 6}), 24);
     },
     "3 channels are no multiple of 16, 24 channels are no multiple of 16"},
    {"groups",
     [](Layers& l) {
       return l.conv(l.input({1, 32, 6, 6}), 32, 3, 1, 4);
     },
     "groups of 8 channels are no multiple of 16"},
    {"borders",
     [](Layers& l) {
       const ValueId x = l.relu(l.b.op("Softmax", {l.input({1, 16, 6, 6})}));
       l.graph.outputs.push_back(l.b.op("Flatten", {x}));
       return l.b.op("Softmax", {l.conv(x, 3)});
     },
     "transposes at its borders would move 2304 elements, convolutions reorder 1728 (Flatten"},
    {"unknown dims",
     [](Layers& l) {
       return l.conv(l.input({-1, 16, 6, 6}), 16);
     },
     "its dims are not all known"},
};

TEST(BlockChannels, SaysWhyAConvolutionStaysPlain) {
  for (const Refusal& refusal : kRefusals) {
    SCOPED_TRACE(refusal.name);
    Graph graph;
    Layers layers(graph);
    graph.outputs.push_back(refusal.build(layers));
    const PassReport report = run_pass(graph, "block-channels");
    EXPECT_EQ(report.matched, 0);
    EXPECT_NE(why_nots(report).find(refusal.why), std::string::npos) << why_nots(report);
  }
}

// Masks of Dropout are drawn by the place of an element in memory: they must stay where they are.
TEST(BlockChannels, DropoutKeepsItsMask) {
  Graph graph;
  Layers l(graph);
  const ValueId x = l.relu(l.conv(l.input({2, 3, 8, 8}), 16));
  const ValueId y = l.b.op("Dropout", {x, l.b.scalar(DType::f64, 0.5), l.b.scalar(DType::boolean, 1)},
                           {{"key", std::int64_t{5}}});
  graph.outputs.push_back(l.conv(y, 16));
  EXPECT_GE(test::run_and_compare(graph, "block-channels", 1e-11).matched, 1);
  const NodeId dropout = graph.values[y].producer;
  EXPECT_EQ(graph.type(graph.nodes[dropout].outputs[0]).shape, (Shape{2, 16, 8, 8}));
}

TEST(BlockChannels, IsForTheCpu) {
  Graph graph;
  Layers l(graph);
  graph.outputs.push_back(l.relu(l.conv(l.input({2, 3, 8, 8}), 16)));
  const PassReport report = test::run_pass(graph, "block-channels", kernels::Target::gpu);
  EXPECT_EQ(report.matched, 0);
  EXPECT_NE(test::why_nots(report).find("for the CPU"), std::string::npos);
}

}  // namespace
}  // namespace gradloom
