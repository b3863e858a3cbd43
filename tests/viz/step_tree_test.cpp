// Trees by hand: what is where, what adds up, what is folded.
#include "viz/model/step_tree.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/viz/small_step.h"
#include "viz/model/icicle.h"

namespace gradloom {
namespace {

// A run as a store would give it: each kernel's time in a step in units, and ONNX nodes by name.
struct HandMadeRun {
  std::vector<KernelRow> kernels;
  std::vector<std::string> source_ops;
  std::map<std::string, std::uint32_t> sources;

  void add(const std::string& phase, const std::string& scope, const std::string& op, std::int64_t ns,
           const std::vector<std::string>& onnx = {}, const std::string& passes = "") {
    KernelRow row;
    row.info.plan_step = static_cast<std::int32_t>(kernels.size());
    row.info.phase = phase;
    row.info.scope = scope;
    row.info.op = op;
    row.info.node = "/" + (scope.empty() ? "" : scope + "/") + op + (phase == "backward" ? "/grad" : "");
    row.info.passes = passes;
    for (const std::string& name : onnx) {
      const auto [at, added] = sources.emplace(name, static_cast<std::uint32_t>(source_ops.size()));
      if (added) source_ops.push_back(name.substr(name.rfind('/') + 1));
      row.info.sources.push_back(at->second);
      row.info.onnx_nodes.push_back(name);
    }
    row.samples = 1;
    row.step_ns = ns;
    kernels.push_back(std::move(row));
  }
  std::map<std::string, std::int64_t> held;
  StepTree tree(TreeBy by, bool fold = true, const StepSamples& samples = {}) const {
    return build_step_tree(kernels, source_ops, samples, held, by, fold);
  }
};

const StepNode& at(const StepTree& tree, const std::string& path) {
  const std::int32_t id = tree.find(path);
  EXPECT_GE(id, 0) << path;
  return tree.nodes[static_cast<std::size_t>(std::max(id, 0))];
}

std::vector<std::string> labels(const StepTree& tree, const std::string& path) {
  std::vector<std::string> all;
  for (const std::int32_t c : at(tree, path).children)
    all.push_back(tree.nodes[static_cast<std::size_t>(c)].label);
  return all;
}

// What is below each node adds up to it, and its own time to what is in it alone.
void expect_sums(const StepTree& tree) {
  for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
    const StepNode& node = tree.nodes[i];
    double parts = 0, below = 0, own = 0;
    for (const double ns : node.part_ns) parts += ns;
    EXPECT_DOUBLE_EQ(parts, node.total_ns) << node.label;
    std::int64_t kernels = 0;
    double longest = INFINITY;
    for (const std::int32_t c : node.children) {
      const StepNode& child = tree.nodes[static_cast<std::size_t>(c)];
      EXPECT_EQ(child.parent, static_cast<std::int32_t>(i));
      EXPECT_LE(child.total_ns, longest) << child.label;
      longest = child.total_ns;
      below += child.total_ns;
      own += child.children.empty() ? child.total_ns : 0;
      kernels += child.kernels;
    }
    EXPECT_EQ(tree.find(tree.path(static_cast<std::int32_t>(i))), static_cast<std::int32_t>(i));
    if (node.children.empty()) continue;
    EXPECT_DOUBLE_EQ(below, node.total_ns) << node.label;
    EXPECT_DOUBLE_EQ(own, node.self_ns) << node.label;
    EXPECT_EQ(kernels, node.kernels) << node.label;
  }
}

HandMadeRun transformer(int layers) {
  HandMadeRun run;
  run.add("forward", "embed", "Gather", 5);
  for (int i = 0; i < layers; ++i) {
    const std::string h = "model/h." + std::to_string(i);
    run.add("forward", h + "/attn", "MatMul", 10 + i);
    run.add("forward", h + "/mlp", "Gelu", 20);
    run.add("forward", h, "Add", 1);
  }
  run.add("loss", "", "SoftmaxCrossEntropyLoss", 2);
  for (int i = layers; i-- > 0;) {
    const std::string h = "model/h." + std::to_string(i);
    run.add("backward", h + "/mlp", "GeluGrad", 40);
    run.add("backward", h + "/attn", "MatMul", 30);
    if (i > 0) run.add("backward", h, "Add", 3);  // nothing needs the gradient of the first layer's input
  }
  run.add("optimizer", "", "Optimizer", 7);
  run.add("backward", "", "AllReduceMean", 9);
  return run;
}

TEST(StepTree, WhatIsLiveAtThePeakIsOfTheKernelThatMadeIt) {
  HandMadeRun run = transformer(3);
  run.held = {{"/model/h.0/attn/MatMul", 100},
              {"/model/h.1/attn/MatMul", 200},
              {"/model/h.1/mlp/Gelu", 7},
              {"/nowhere", 5}};
  for (const TreeBy by : {TreeBy::kScope, TreeBy::kPhase, TreeBy::kNode, TreeBy::kPass, TreeBy::kOp})
    for (const bool fold : {true, false}) {
      const StepTree tree = run.tree(by, fold);
      EXPECT_EQ(tree.nodes.front().peak_bytes, 307) << kTreeByNames[static_cast<std::size_t>(by)];
      for (const StepNode& node : tree.nodes) {
        if (node.children.empty()) continue;
        double below = 0;
        for (const std::int32_t c : node.children)
          below += tree.nodes[static_cast<std::size_t>(c)].peak_bytes;
        EXPECT_EQ(below, node.peak_bytes) << node.label;
      }
    }
  const StepTree tree = run.tree(TreeBy::kScope, false);
  EXPECT_EQ(at(tree, "model/h.1").peak_bytes, 207);
  EXPECT_EQ(at(tree, "model/h.2").peak_bytes, 0);
  EXPECT_EQ(sum_of(tree, {tree.find("model/h.0"), tree.find("model/h.1")}).peak_bytes, 307);
}

TEST(StepTree, ByScopeTheModulesHoldTheirKernels) {
  const StepTree tree = transformer(3).tree(TreeBy::kScope, false);
  expect_sums(tree);
  EXPECT_EQ(labels(tree, ""),
            (std::vector<std::string>{"model", "(exchange)", "(optimizer)", "embed", "(no scope)"}));
  EXPECT_EQ(labels(tree, "model"), (std::vector<std::string>{"h.2", "h.1", "h.0"}));
  const StepNode& layer = at(tree, "model/h.1");
  EXPECT_EQ(layer.total_ns, 11 + 20 + 1 + 40 + 30 + 3);
  EXPECT_EQ(layer.self_ns, 1 + 3);
  EXPECT_EQ(layer.part_ns[static_cast<std::size_t>(StepPart::kForward)], 11 + 20 + 1);
  EXPECT_EQ(layer.part_ns[static_cast<std::size_t>(StepPart::kBackward)], 40 + 30 + 3);
  EXPECT_EQ(layer.main_part(), StepPart::kBackward);
  EXPECT_EQ(layer.kernels, 6);
  EXPECT_EQ(at(tree, "(exchange)").part_ns[static_cast<std::size_t>(StepPart::kExchange)], 9);
  EXPECT_EQ(at(tree, "model/h.1/attn/MatMul/grad").rows.size(), 1u);
  EXPECT_EQ(tree.find("model/h.9"), -1);
}

TEST(StepTree, LayersThatAreAlikeBecomeOne) {
  const StepTree tree = transformer(12).tree(TreeBy::kScope);
  expect_sums(tree);
  EXPECT_EQ(labels(tree, "model"), (std::vector<std::string>{"12 x h.*"}));
  const StepNode& layers = at(tree, "model/12 x h.*");
  EXPECT_EQ(layers.repeats, 12);
  EXPECT_EQ(layers.most_ns, 11 + 10 + 20 + 1 + 40 + 30 + 3);
  EXPECT_EQ(layers.longest, "h.11");
  EXPECT_EQ(layers.each_ns, 109.5);  // of 101, 105, .. 115
  EXPECT_EQ(layers.kernels, 12 * 6 - 1);
  const StepNode& attention = at(tree, "model/12 x h.*/attn");
  EXPECT_EQ(attention.repeats, 12);
  EXPECT_EQ(attention.longest, "h.11");
  const StepNode& forward = at(tree, "model/12 x h.*/attn/MatMul");
  EXPECT_EQ(forward.rows.size(), 12u);
  EXPECT_EQ(forward.total_ns, 12 * 10 + 66);
  EXPECT_EQ(at(tree, "model/12 x h.*/Add/grad").repeats, 11);
  EXPECT_EQ(tree.rows_of(tree.find("model")).size(), 71u);
}

TEST(StepTree, LayersOfAnotherKindStayApart) {
  HandMadeRun run = transformer(4);
  run.add("forward", "model/h.2/router", "TopK", 1);  // a module that the others lack
  const StepTree tree = run.tree(TreeBy::kScope);
  expect_sums(tree);
  EXPECT_EQ(labels(tree, "model"), (std::vector<std::string>{"3 x h.*", "h.2"}));
  HandMadeRun sequential;  // numbers of nn.Sequential count what is not alike
  sequential.add("forward", "net.0", "Gemm", 3);
  sequential.add("forward", "net.1", "Relu", 2);
  sequential.add("forward", "net.2", "Gemm", 4);
  EXPECT_EQ(labels(sequential.tree(TreeBy::kScope), ""), (std::vector<std::string>{"2 x net.*", "net.1"}));
}

TEST(StepTree, FoldsWithinFolds) {
  HandMadeRun run;
  for (int layer = 0; layer < 3; ++layer)
    for (int expert = 0; expert < 4; ++expert)
      run.add("forward", "h." + std::to_string(layer) + "/experts." + std::to_string(expert), "MatMul",
              1 + 10 * expert);
  const StepTree tree = run.tree(TreeBy::kScope);
  expect_sums(tree);
  const StepNode& experts = at(tree, "3 x h.*/4 x experts.*");
  EXPECT_EQ(experts.repeats, 4);
  EXPECT_EQ(experts.most_ns, 3 * 31);
  EXPECT_EQ(experts.longest, "experts.3");  // in all layers together
  EXPECT_EQ(at(tree, "3 x h.*/4 x experts.*/MatMul").repeats, 12);
}

TEST(StepTree, ByNodeWhatOneForwardKernelComputesIsOne) {
  HandMadeRun run;
  for (const std::string layer : {"/h.0/", "/h.1/"}) {
    run.add("forward", "", "FusedMatMul", 10, {layer + "Transpose", layer + "MatMul", layer + "Add"});
    run.add("backward", "", "ReduceSum", 1, {layer + "Add"});
    run.add("backward", "", "FusedMatMul", 20, {layer + "Transpose", layer + "MatMul"});
  }
  run.add("optimizer", "", "Optimizer", 4);
  const StepTree open = run.tree(TreeBy::kNode, false);
  expect_sums(open);
  EXPECT_EQ(labels(open, ""), (std::vector<std::string>{"Transpose + MatMul + Add", "(no ONNX node)"}));
  EXPECT_EQ(labels(open, "Transpose + MatMul + Add"),
            (std::vector<std::string>{"/h.0/Add +2", "/h.1/Add +2"}));
  EXPECT_EQ(at(open, "Transpose + MatMul + Add//h.0/Add +2").total_ns, 31);
  const StepTree folded = run.tree(TreeBy::kNode);
  expect_sums(folded);
  EXPECT_EQ(at(folded, "Transpose + MatMul + Add/2 x /h.*/Add +2").total_ns, 62);
}

TEST(StepTree, ByPhasePassAndOperatorTheGroupComesFirst) {
  HandMadeRun run = transformer(2);
  run.kernels[1].info.passes = "dead-code,fuse-bias";
  const StepTree phases = run.tree(TreeBy::kPhase);
  expect_sums(phases);
  EXPECT_EQ(labels(phases, ""),
            (std::vector<std::string>{"backward", "forward", "exchange", "optimizer", "loss"}));
  EXPECT_EQ(at(phases, "backward/model/2 x h.*/mlp").total_ns, 80);
  const StepTree passes = run.tree(TreeBy::kPass);
  expect_sums(passes);
  EXPECT_EQ(labels(passes, ""), (std::vector<std::string>{"(not rewritten)", "fuse-bias"}));
  EXPECT_EQ(at(passes, "fuse-bias/model/h.0/attn/MatMul").total_ns, 10);
  const StepTree ops = run.tree(TreeBy::kOp, false);
  expect_sums(ops);
  EXPECT_EQ(at(ops, "MatMul/model/h.1").total_ns, 11 + 30);
}

TEST(StepTree, TheSpreadIsThatOfTheSteps) {
  HandMadeRun run;
  run.add("forward", "a", "MatMul", 15);
  run.add("forward", "a", "Relu", 5);
  TraceDocument trace;
  for (std::int64_t step = 1; step <= 8; ++step)
    for (std::int32_t kernel = 0; kernel < 2; ++kernel) {
      TraceRow row;
      row.step = step;
      row.plan_step = kernel;
      row.duration_ns = kernel == 0 ? 10 * step : 5;
      trace.rows.push_back(row);
    }
  trace.rows.back().plan_step = 7;  // no such kernel
  const StepSamples samples = step_samples(trace, 2, 3);
  EXPECT_EQ(samples.steps, 5u);  // 4 .. 8
  const StepTree tree = run.tree(TreeBy::kScope, true, samples);
  const StepNode& kernel = at(tree, "a/MatMul");
  EXPECT_EQ(kernel.total_ns, 60);
  EXPECT_EQ(kernel.median_ns, 60);
  EXPECT_EQ(kernel.low_ns, 50);
  EXPECT_EQ(kernel.high_ns, 70);
  EXPECT_EQ(kernel.launches, 1);
  EXPECT_EQ(at(tree, "a").median_ns, 65);  // of 45, 55, 65, 75, 80
  EXPECT_EQ(at(tree, "a").low_ns, 55);
  EXPECT_TRUE(std::isnan(at(run.tree(TreeBy::kScope), "a").median_ns));
  EXPECT_EQ(step_samples(trace, 2, 100).steps, 8u);  // none is later: all
}

// One launch of a kernel in one step.
void run_at(StepSamples& samples, std::uint32_t step, double ns) { samples.entries.push_back({step, ns}); }

TEST(StepTree, OneDisturbedStepMovesNothing) {
  HandMadeRun run;
  run.add("forward", "a", "MatMul", 2008);  // the mean
  run.add("forward", "a", "Relu", 3);
  run.add("forward", "a", "Add", 7);
  StepSamples samples;
  samples.steps = 5;
  for (std::uint32_t step = 0; step < 5; ++step) run_at(samples, step, step == 3 ? 10'000 : 10);
  samples.first.push_back(samples.entries.size());
  for (const std::uint32_t step : {0u, 0u, 2u, 2u}) run_at(samples, step, 5);  // twice in two steps of five
  samples.first.push_back(samples.entries.size());
  samples.first.push_back(samples.entries.size());  // never
  const StepTree tree = run.tree(TreeBy::kScope, true, samples);
  expect_sums(tree);
  EXPECT_EQ(at(tree, "a/MatMul").total_ns, 10);
  EXPECT_EQ(at(tree, "a/Relu").total_ns, 4);  // 10 in two steps of five
  EXPECT_EQ(at(tree, "a/Add").total_ns, 7);
  EXPECT_EQ(at(tree, "a/Relu").launches, 0.8);
  EXPECT_EQ(at(tree, "a").median_ns, 20);  // of 20, 10, 20, 10000, 10, without what never ran
}

TEST(StepTree, ASelectionCountsWhatItHoldsOnce) {
  const StepTree tree = transformer(3).tree(TreeBy::kScope, false);
  const auto id = [&](const std::string& path) { return tree.find(path); };
  const StepSum sum = sum_of(tree, {id("model/h.0/attn"), id("model/h.0"), id("embed"), id("embed")});
  EXPECT_EQ(sum.nodes, 3);
  EXPECT_EQ(sum.ns, 101 + 5);
  EXPECT_EQ(sum.kernels, 5 + 1);
  EXPECT_DOUBLE_EQ(sum.share, 106.0 / tree.nodes[0].total_ns);
  EXPECT_EQ(parts_text(sum.part_ns), "forward 36.0 ns, backward 70.0 ns");
}

// What the search language finds by it is what is in the node.
TEST(StepTree, TheQueryOfANodeFindsItsKernels) {
  const HandMadeRun run = transformer(12);
  int queries = 0;
  for (const TreeBy by : {TreeBy::kScope, TreeBy::kPhase, TreeBy::kPass, TreeBy::kOp})
    for (const bool fold : {true, false}) {
      const StepTree tree = run.tree(by, fold);
      for (std::size_t id = 1; id < tree.nodes.size(); ++id) {
        const std::string text = kernel_query(tree, static_cast<std::int32_t>(id));
        if (text.empty()) continue;
        ++queries;
        const auto query = Query::parse(text);
        ASSERT_TRUE(query.ok()) << text;
        KernelTableModel table;
        table.set_rows(run.kernels);
        table.set_query(*query);
        // op: finds what begins so: MatMul, but Gelu and GeluGrad.
        if (text.find("op:\"Gelu\"") != std::string::npos) continue;
        EXPECT_EQ(table.shown_kernels(), static_cast<std::size_t>(tree.nodes[id].kernels)) << text;
      }
    }
  EXPECT_GT(queries, 100);
  const StepTree tree = run.tree(TreeBy::kScope, false);
  EXPECT_EQ(kernel_query(tree, tree.find("model/h.1")),
            "scope:\"model/h.1*\" -scope:\"model/h.11*\" -scope:\"model/h.10*\"");
  EXPECT_EQ(kernel_query(tree, tree.find("(optimizer)")), "");
  EXPECT_EQ(kernel_query(tree, 0), "");
}

TEST(StepTree, NamesOfStrangersMakeNoTreeTooDeepOrLarge) {
  HandMadeRun run;
  std::string deep = "x";
  for (int i = 0; i < 5000; ++i) deep += "/x";
  run.add("forward", deep, "Add", 1);
  run.add("", "//", "", 2);
  run.kernels.back().info.node.clear();
  for (const bool fold : {true, false}) {
    const StepTree tree = run.tree(TreeBy::kScope, fold);
    expect_sums(tree);
    for (const StepNode& node : tree.nodes) EXPECT_LT(node.depth, 30);
  }
  const StepTree none = HandMadeRun().tree(TreeBy::kNode);
  EXPECT_EQ(none.nodes.size(), 1u);
  EXPECT_EQ(none.share(0), 0);
  EXPECT_EQ(icicle_boxes(none, 0, 100).size(), 1u);
}

TEST(StepTree, OfARealPlanEveryKernelIsInItOnce) {
  const Compiled step = test::small_step("default");
  const std::vector<KernelRow> rows = test::timed_rows(step);
  std::vector<std::string> ops;
  for (const SourceNode& source : step.train.graph.sources) ops.push_back(source.op_type);
  for (const TreeBy by : {TreeBy::kScope, TreeBy::kPhase, TreeBy::kNode, TreeBy::kPass, TreeBy::kOp})
    for (const bool fold : {true, false}) {
      const StepTree tree = build_step_tree(rows, ops, {}, {}, by, fold);
      expect_sums(tree);
      std::vector<std::uint32_t> all = tree.rows_of(0);
      std::sort(all.begin(), all.end());
      ASSERT_EQ(all.size(), rows.size());
      for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i);
    }
  const StepTree tree = build_step_tree(rows, ops, {}, {}, TreeBy::kScope, true);
  EXPECT_GE(tree.find("2 x layers.*/linear"), 0);
}

TEST(LayerStem, NumbersThatCountLayersBecomeStars) {
  EXPECT_EQ(layer_stem("h.11"), "h.*");
  EXPECT_EQ(layer_stem("3"), "*");
  EXPECT_EQ(layer_stem("layer1.0"), "layer1.*");
  EXPECT_EQ(layer_stem("/layers.3/query/MatMul_1 +2"), "/layers.*/query/MatMul_1 +2");
  EXPECT_EQ(layer_stem("conv2d"), "conv2d");
  EXPECT_EQ(layer_stem(""), "");
}

TEST(Icicle, ChildrenLieUnderTheirParentAndNarrowOnesAreOneBox) {
  HandMadeRun run = transformer(3);
  for (int i = 0; i < 25'000; ++i) run.add("forward", "tiny/" + std::to_string(i % 100), "Add", 1);
  run.kernels[0].step_ns = 1'000'000;
  const StepTree tree = run.tree(TreeBy::kScope, false);
  const auto boxes = icicle_boxes(tree, 0, 1000);
  EXPECT_LT(boxes.size(), 300u);  // of 25,000 nodes
  std::map<std::int32_t, IcicleBox> by_node;
  for (const IcicleBox& b : boxes)
    if (b.node >= 0) by_node[b.node] = b;
  std::size_t narrow = 0;
  for (std::size_t i = 1; i < boxes.size(); ++i) {
    const IcicleBox &b = boxes[i], &parent = by_node.at(b.parent);
    EXPECT_EQ(b.level, parent.level + 1);
    EXPECT_GE(b.left, parent.left - 1e-9);
    EXPECT_LE(b.right, parent.right + 1e-9);
    EXPECT_GE((b.right - b.left) * 1000, 1 - 1e-6);
    EXPECT_GE(b.level, boxes[i - 1].level);
    if (b.level == boxes[i - 1].level) {
      EXPECT_GE(b.left, boxes[i - 1].right - 1e-9);
    }
    if (b.node < 0) {
      ++narrow;
      EXPECT_GT(b.more, 0);
    }
  }
  EXPECT_GT(narrow, 0u);
  EXPECT_EQ(icicle_boxes(tree, tree.find("model"), 1000).front().right, 1);
}

TEST(Icicle, ArrowsGoToNeighbours) {
  const StepTree tree = transformer(3).tree(TreeBy::kScope, false);
  const auto boxes = icicle_boxes(tree, 0, 1000);
  const auto move = [&](const std::string& from, IcicleMove to) {
    return tree.path(icicle_move(boxes, tree.find(from), to));
  };
  EXPECT_EQ(move("", IcicleMove::kDown), "model");
  EXPECT_EQ(move("", IcicleMove::kUp), "");
  EXPECT_EQ(move("model", IcicleMove::kRight), "(exchange)");
  EXPECT_EQ(move("model", IcicleMove::kLeft), "model");
  EXPECT_EQ(move("model/h.2", IcicleMove::kRight), "model/h.1");
  EXPECT_EQ(move("model/h.0", IcicleMove::kRight), "(exchange)/AllReduceMean/grad");  // under the next module
  EXPECT_EQ(move("model/h.0/mlp", IcicleMove::kUp), "model/h.0");
}

}  // namespace
}  // namespace gradloom
