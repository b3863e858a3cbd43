// Kernel table, memory and pass models on a real compiled step.
#include <gtest/gtest.h>

#include <algorithm>

#include "passes/planners.h"
#include "passes/rules.h"
#include "tests/viz/small_step.h"
#include "viz/model/kernel_table.h"
#include "viz/model/memory_model.h"
#include "viz/model/pass_model.h"

namespace gradloom {
namespace {

TEST(KernelTable, SortsFiltersAndGroups) {
  const Compiled step = test::small_step();
  KernelTableModel model;
  model.set_rows(test::timed_rows(step));
  ASSERT_EQ(model.lines().size(), step.plan.steps.size());
  model.set_sort(KernelColumn::kTime, true);
  for (size_t i = 1; i < model.lines().size(); ++i)
    EXPECT_GE(model.lines()[i - 1].time_ns, model.lines()[i].time_ns);
  double share = 0;
  for (const KernelLine& line : model.lines()) share += line.share;
  EXPECT_NEAR(share, 1, 1e-9);

  model.set_query(*Query::parse("phase:backward"));
  EXPECT_LT(model.shown_kernels(), step.plan.steps.size());
  EXPECT_LT(model.shown_ns(), model.total_ns());
  for (const KernelLine& line : model.lines()) EXPECT_EQ(line.phase, "backward");

  model.set_query({});
  model.set_group(KernelGroup::kPhase);
  int64_t kernels = 0;
  double time = 0;
  for (const KernelLine& line : model.lines()) {
    kernels += line.count;
    time += line.time_ns;
    EXPECT_EQ(line.row, -1);
  }
  EXPECT_EQ(kernels, static_cast<int64_t>(step.plan.steps.size()));
  EXPECT_NEAR(time, model.total_ns(), 1e-6);
  EXPECT_EQ(model.find_line("/layers.0/Tanh"), -1);
  model.set_group(KernelGroup::kSingle);
  EXPECT_EQ(model.lines()[model.find_line("/layers.0/Tanh")].op, "Tanh");
  EXPECT_NE(model.to_text().find("/layers.0/Tanh\tTanh\tforward"), std::string::npos);
}

TEST(KernelTable, UntimedRowsSortLast) {
  const Compiled step = test::small_step();
  std::vector<KernelRow> rows = test::timed_rows(step);
  rows[1].samples = 0;
  const std::string untimed = rows[1].info.node;
  KernelTableModel model;
  model.set_rows(rows);
  for (const bool descending : {true, false}) {
    model.set_sort(KernelColumn::kTime, descending);
    EXPECT_EQ(model.lines().back().name, untimed);
    EXPECT_TRUE(std::isnan(model.lines().back().time_ns));
  }
}

// Two micro-batches: work and traffic are of the step, as its time is.
TEST(KernelTable, WorkIsThatOfEveryMicroBatch) {
  const Compiled step = test::small_step();
  std::vector<KernelRow> rows = test::timed_rows(step);
  for (KernelRow& row : rows) row.steps = row.samples / 2;
  KernelTableModel model;
  model.set_rows(rows);
  for (const KernelLine& line : model.lines()) {
    const KernelInfo& info = rows[static_cast<std::size_t>(line.row)].info;
    EXPECT_EQ(line.flops, 2 * info.flops);
    EXPECT_DOUBLE_EQ(line.bandwidth(), 2 * (info.bytes_read + info.bytes_written) / line.time_ns);
  }
}

TEST(KernelTable, ThreadsOfAGroupAreThoseOfItsTime) {
  const Compiled step = test::small_step();
  std::vector<KernelRow> rows = test::timed_rows(step);
  rows.resize(3);
  rows[0].step_ns = 300;
  rows[0].threads_busy = 0.9;
  rows[1].step_ns = 100;
  rows[1].threads_busy = 0.5;
  rows[2].threads_busy = -1;
  for (KernelRow& row : rows) row.info.op = "Same";
  KernelTableModel model;
  model.set_rows(rows);
  model.set_sort(KernelColumn::kThreads, false);
  EXPECT_EQ(model.lines()[0].threads_busy(), 0.5);
  EXPECT_TRUE(std::isnan(model.lines()[2].threads_busy())) << "unknown is last";
  model.set_group(KernelGroup::kOp);
  ASSERT_EQ(model.lines().size(), 1u);
  EXPECT_DOUBLE_EQ(model.lines()[0].threads_busy(), (0.9 * 300 + 0.5 * 100) / 400);
}

TEST(MemoryModel, TheHostsMemoryIsToldApart) {
  Compiled step = test::small_step();
  step.plan.host_bytes = 4096;
  const MemoryModel planned = build_memory_model(step.train.graph, step.plan);
  EXPECT_EQ(planned.host_bytes, 4096);
  EXPECT_EQ(planned.total_bytes(), step.plan.peak_bytes()) << "which is the device's";
  RunRecord run;
  BufferRow row;
  row.place = "host";
  row.offset = 64;
  row.bytes = 128;
  run.buffers = {row};
  EXPECT_EQ(build_memory_model(run).host_bytes, 192);
}

TEST(MemoryModel, AgreesWithThePlan) {
  const Compiled step = test::small_step();
  const MemoryModel memory = build_memory_model(step.train.graph, step.plan);
  const std::vector<int64_t> live = live_bytes(step.plan);
  ASSERT_EQ(memory.live.size(), step.plan.steps.size());
  EXPECT_EQ(memory.live, live);
  EXPECT_EQ(memory.live[memory.peak_step], memory.lower_bound_bytes);
  EXPECT_EQ(memory.total_bytes(), step.plan.peak_bytes());
  int64_t at_peak = 0;
  for (size_t i = 0; i < memory.live_at_peak.size(); ++i) {
    const MemoryBlock& block = memory.blocks[memory.live_at_peak[i]];
    at_peak += block.bytes;
    if (i > 0) {
      EXPECT_LE(block.bytes, memory.blocks[memory.live_at_peak[i - 1]].bytes);
    }
    EXPECT_LE(block.offset + block.bytes, memory.arena_bytes);
    EXPECT_FALSE(block.name.empty());
  }
  EXPECT_EQ(at_peak, memory.live[memory.peak_step]);
  EXPECT_GE(
      memory.find(step.train.graph.values[step.train.graph.nodes[step.plan.steps[0].node].outputs[0]].name),
      0);
}

// A tensor of parts is one block, under its own name, that goes to the kernel that begins it.
TEST(MemoryModel, NamesPartsInTheWhole) {
  Graph graph;
  GraphBuilder b(graph);
  const ValueId x = b.input("x", {DType::f32, {4, 16}});
  const ValueId first = b.op("Exp", {x}), second = b.op("Tanh", {x});
  const ValueId whole = b.op("Concat", {first, second}, {{"axis", std::int64_t{0}}});
  graph.values[whole].name = "whole";
  graph.values[second].name = "second";
  graph.outputs = {b.op("Softmax", {whole})};
  const auto plan = make_plan(graph, {find_planner("best-fit")->plan, "best-fit", true});
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->pieces.size(), 2u);
  const MemoryModel memory = build_memory_model(graph, *plan);
  EXPECT_EQ(memory.live, live_bytes(*plan));
  const int32_t at = memory.find("whole");
  ASSERT_GE(at, 0);
  const MemoryBlock& block = memory.blocks[static_cast<std::size_t>(at)];
  EXPECT_EQ(block.name, "whole");
  EXPECT_EQ(block.bytes, 512);
  EXPECT_EQ(block.node, graph.nodes[graph.values[first].producer].name);
  ASSERT_EQ(block.parts.size(), 2u);
  EXPECT_EQ(block.parts[1], "second: bytes 256 to 511");
  EXPECT_EQ(memory.find("second"), at);
}

TEST(PassModel, ShowsSwitchesMatchesAndReasons) {
  const Compiled step = test::small_step("default");
  const Pipeline pipeline = *parse_pipeline("default");
  const PassModel model = build_pass_model(pipeline, step.reports);
  EXPECT_EQ(model.passes.size(), all_passes().size());
  int matched = 0;
  for (const PassView& pass : model.passes) {
    EXPECT_EQ(pass.enabled, is_default(*pass.def)) << pass.def->name;
    matched += pass.matched;
    size_t sites = 0;
    for (const WhyNot& why : pass.why_nots) sites += why.sites.size();
    EXPECT_EQ(sites, static_cast<size_t>(pass.rejected)) << pass.def->name;
  }
  EXPECT_GT(matched, 0);
  const PassModel off = build_pass_model(*parse_pipeline("none"), {});
  for (const PassView& pass : off.passes) EXPECT_FALSE(pass.enabled) << pass.def->name;
}

TEST(PassModel, RulesStandBeforeThePassesAndReturnToTheirPlace) {
  const std::string text = "rule one { y = Neg(n); n = Neg(x) -> x } rule two { y = Abs(x) -> y = Relu(x) }";
  const Rules rules = *parse_rules(text);
  const Pipeline all = default_pipeline(rules);
  const PassModel model = build_pass_model(all, {}, rules);
  ASSERT_EQ(model.passes.size(), all_passes().size() + 2);
  EXPECT_TRUE(model.passes[1].rule);
  EXPECT_FALSE(model.passes[2].rule);
  EXPECT_TRUE(model.passes[0].enabled);
  // The pipeline is of the same text read again, as it is in every frame of the window.
  const Pipeline again = default_pipeline(*parse_rules(text));
  const Pipeline without = with_pass(again, *model.passes[0].def, false, model.rules);
  EXPECT_EQ(without.passes.size() + 1, all.passes.size());
  EXPECT_FALSE(build_pass_model(without, {}, rules).passes[0].enabled);
  EXPECT_EQ(with_pass(without, *model.passes[0].def, true, model.rules).text(), all.text());
}

TEST(PassModel, TellsWhatARunSaysOfItsInstances) {
  const Compiled step = test::small_step("default");
  PassModel model = build_pass_model(*parse_pipeline("default"), step.reports);
  std::vector<PassRow> recorded;
  std::string pass, fingerprint;
  for (const PassReport& report : step.reports) {
    recorded.push_back({report.name, "post_gradient", 0, 0, 0, 0, 0, report.log});
    for (const RewriteRecord& record : report.log)
      if (record.matched && !record.fingerprint.empty()) {
        pass = report.name;
        fingerprint = record.fingerprint;
      }
  }
  ASSERT_FALSE(fingerprint.empty());
  apply_recorded(model, 7, recorded);
  EXPECT_EQ(model.run, 7);
  const auto view = [&]() -> const PassView& {
    return *std::find_if(model.passes.begin(), model.passes.end(),
                         [&](const PassView& v) { return v.def->name == pass; });
  };
  EXPECT_TRUE(view().recorded.at(fingerprint));
  EXPECT_EQ(view().recorded.count("@000000000000"), 0u);
  apply_recorded(model, 0, {});
  EXPECT_TRUE(view().recorded.empty());
}

TEST(PassModel, SavedWorkIsTold) {
  EXPECT_EQ(saved_text({}), "");
  EXPECT_EQ(saved_text({1.5e6, 4096, 2}), "2 kernels, 1.50 MFLOP and 4.00 KiB less");
  EXPECT_EQ(saved_text({0, 4096, 1}), "1 kernel and 4.00 KiB less");
  EXPECT_EQ(saved_text({-3e6, 0, 1}), "1 kernel less, 3.00 MFLOP more");
  EXPECT_EQ(saved_text({0, -512, -1}), "1 kernel and 512 B more");
}

TEST(PassModel, ChangesOfThePipeline) {
  const Pipeline all = *parse_pipeline("default");
  const PassDef& gelu = *find_pass("fuse-gelu");
  const Pipeline without = with_pass(all, gelu, false);
  EXPECT_EQ(without.passes.size() + 1, all.passes.size());
  EXPECT_EQ(with_pass(without, gelu, true).text(), all.text()) << "a pass returns to its place";
  EXPECT_EQ(with_pass(all, gelu, true).text(), all.text());
  EXPECT_FALSE(with_option(without, gelu, "x", "1").ok());
  const Pipeline excluded = with_site(all, gelu, "/a/Gelu", false);
  const PassModel model = build_pass_model(excluded, {});
  for (const PassView& pass : model.passes) {
    if (pass.def == &gelu) {
      EXPECT_EQ(pass.excluded_sites, std::vector<std::string>{"/a/Gelu"});
    }
  }
  EXPECT_EQ(with_site(excluded, gelu, "/a/Gelu", true).text(), all.text());
  for (const PassView& pass : build_pass_model(all, {}).passes) {
    EXPECT_TRUE(pass.options.empty() || !pass.def->by_precision) << "the precision's to set";
    const Pipeline on = with_pass(all, *pass.def, true);
    for (const FieldRow& option : pass.options) {
      EXPECT_FALSE(with_option(on, *pass.def, option.name, "not a value at all").ok() &&
                   option.type != "text");
      EXPECT_TRUE(with_option(on, *pass.def, option.name, option.value).ok())
          << pass.def->name << " " << option.name;
    }
  }
}

}  // namespace
}  // namespace gradloom
