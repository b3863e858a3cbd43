// Runs of other profilers in a session: written as rows, read back, compared with runs of ours.
#include <cmath>
#include <limits>

#include "profiler/import/imported_trace.h"
#include "tests/sessions/session_fixture.h"

namespace gradloom::test {
namespace {

// Steps of 20 us; in each a product in fc (twice, 2 us each), its backward (3 us) and an update (1 us).
std::int64_t write_import(Store& store, const std::string& origin, std::int64_t steps,
                          const std::string& scope) {
  RunStart start;
  start.name = "torch";
  start.device = "cpu";
  start.data = origin;
  start.command = "gradloom import t.json";
  start.planned_steps = steps;
  start.environment = {{"trace.steps", "ProfilerStep#3 to ProfilerStep#9"}};
  auto run = std::move(store.begin_run(start)).value();
  const auto row = [](std::int32_t number, const char* op, const char* phase, const std::string& in,
                      std::vector<std::uint32_t> sources) {
    ImportedKernel kernel;
    kernel.info.plan_step = number;
    kernel.info.op = kernel.info.kernel = op;
    kernel.info.node = in + "/" + op + std::to_string(number);
    kernel.info.phase = phase;
    kernel.info.scope = in;
    kernel.info.sources = std::move(sources);
    kernel.inputs = "f32[4, 8]";
    return kernel;
  };
  EXPECT_TRUE(run->write_kernels(
                     {{scope + "/aten::linear", "aten::linear", "", scope}},
                     {row(0, "aten::addmm", "forward", scope, {0}),
                      row(1, "aten::mm", "backward", scope, {0}), row(2, "aten::add_", "optimizer", "", {})})
                  .ok());
  for (std::int64_t step = 1; step <= steps; ++step) {
    const std::int64_t at = step * 20'000;
    StepRow r;
    r.step = step;
    r.loss = std::numeric_limits<double>::quiet_NaN();
    r.step_ns = 20'000 + step;
    r.timed = true;
    run->add_host_spans(
        nested_spans({{"module", scope, at, 5'000}, {"optimizer", "SGD.step", at + 10'000, 4'000}}, step, at,
                     at + 20'000));
    EXPECT_TRUE(run->add_step(r, {{0, 0, at, 2'000},
                                  {0, 0, at + 3'000, 2'000},
                                  {1, 0, at + 6'000, 3'000},
                                  {2, 0, at + 11'000, 1'000}})
                    .ok());
  }
  EXPECT_TRUE(run->finish({}).ok());
  return run->id();
}

using ImportedRunTest = SessionTest;

TEST_F(ImportedRunTest, ComesBackAsItWasWritten) {
  auto store = Store::open(file("s.db"), StoreMode::write);
  ASSERT_TRUE(store.ok());
  const std::int64_t id = write_import(**store, "kineto", 2, "fc");
  EXPECT_TRUE((*store)->check(id).ok()) << error_of((*store)->check(id));
  const auto run = (*store)->load_run(id);
  ASSERT_TRUE(run.ok()) << error_of(run);
  const RunSummary& s = run->summary;
  EXPECT_TRUE(s.is_import());
  EXPECT_FALSE(s.has_recipe());
  EXPECT_FALSE(s.has_loss());
  EXPECT_EQ(s.kind_text(), "PyTorch's profiler");
  EXPECT_EQ(s.kernels_per_step, 3);
  EXPECT_EQ(s.plan_peak_bytes, 0);
  ASSERT_EQ(run->kernels.size(), 3u);
  const KernelRow& product = run->kernels[0];
  EXPECT_EQ(product.samples, 4) << "the first steps count: their profiler left out what came before";
  EXPECT_EQ(product.step_ns, 4'000);
  EXPECT_EQ(product.median_ns, 2'000);
  EXPECT_DOUBLE_EQ(product.share, 0.5);
  EXPECT_EQ(product.info.onnx_nodes, std::vector<std::string>{"fc/aten::linear"});
  ASSERT_TRUE(run->loop.has_value());
  EXPECT_EQ(run->loop->steps, 2);
  EXPECT_EQ(loop_verdict(*run->loop), "the kernels' times add up to 40.0 % of a step");
  EXPECT_EQ(loop_rows(*run->loop)[0].title, "modules");
  const auto trace = (*store)->load_trace(id);
  ASSERT_TRUE(trace.ok()) << error_of(trace);
  EXPECT_EQ(trace->rows.size(), 8u);
  EXPECT_EQ(trace->steps.size(), 2u);
  EXPECT_EQ(trace->steps[0].duration_ns, 20'000);
}

TEST_F(ImportedRunTest, OnlyKnownProfilersAreImports) {
  RunSummary run;
  for (const ImportOrigin& origin : import_origins()) {
    run.data = origin.name;
    EXPECT_TRUE(run.is_import());
  }
  for (const char* data : {"", "loop", "synthetic", "npz:kineto", "tokens:f"}) {
    run.data = data;
    EXPECT_FALSE(run.is_import()) << data;
  }
  EXPECT_TRUE(run.has_loss()) << "ours always has one, were it NaN";
}

TEST_F(ImportedRunTest, ComparesByModuleAndPhaseWithoutLosses) {
  auto store = Store::open(file("s.db"), StoreMode::write);
  ASSERT_TRUE(store.ok());
  const std::int64_t ours = write_tiny_run(**store, "ours", 60),
                     theirs = write_import(**store, "kineto", 60, "fc/inner");
  const auto a = (*store)->load_run(theirs), b = (*store)->load_run(ours);
  ASSERT_TRUE(a.ok() && b.ok());
  const auto c = compare_runs(*a, *b);
  ASSERT_TRUE(c.ok()) << error_of(c);
  EXPECT_TRUE(c->by_scope);
  EXPECT_FALSE(c->has_losses());
  EXPECT_EQ(c->verdict, Verdict::faster);
  std::map<std::pair<std::string, std::string>, ComparedRow> rows;
  for (const ComparedRow& row : c->kernels) rows[{row.name, row.phase}] = row;
  ASSERT_EQ(rows.size(), 5u);
  const ComparedRow& product = rows.at({"fc", "forward"});
  EXPECT_EQ(product.a_ns, 4'000) << "of fc/inner, which is no module of ours: that around it";
  EXPECT_EQ(product.a_kernels, 2);
  EXPECT_EQ(product.b_kernels, 1);
  EXPECT_GT(product.b_ns, 0);
  EXPECT_EQ(rows.at({"fc", "backward"}).a_ns, 3'000);
  EXPECT_EQ(rows.at({"(no module)", "optimizer"}).a_ns, 1'000);
  EXPECT_EQ(rows.at({"(no module)", "forward"}).a_kernels, 0) << "act, which PyTorch's run does not name";
  const std::string text = comparison_text(*c);
  EXPECT_NE(text.find("losses are not compared"), std::string::npos) << text;
  EXPECT_EQ(text.find("bit for bit"), std::string::npos) << text;
  EXPECT_NE(c->note.find("runs of other programs"), std::string::npos) << c->note;
  const auto back = parse_comparison(comparison_json(*c));
  ASSERT_TRUE(back.ok()) << error_of(back);
  EXPECT_TRUE(back->by_scope);
  EXPECT_EQ(comparison_json(*back), comparison_json(*c));
  EXPECT_TRUE((*store)->add_comparison(*c, theirs, ours).ok());
}

}  // namespace
}  // namespace gradloom::test
