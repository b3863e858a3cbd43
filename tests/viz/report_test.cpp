// The page that a run becomes: it says what the run has, is whole by itself, and nothing of a stranger's names acts in it.
#include "viz/report/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "tests/viz/small_step.h"

namespace gradloom {
namespace {

// Ten runs of a level, and five that take half as long again since something changed.
Trend trend_of(const RunSummary& summary) {
  Trend trend;
  for (int i = 0; i < 15; ++i) {
    TrendRun run{"s.db", summary};
    run.run.id = i + 1;
    run.run.started_utc = "2026-01-02T03:04:05Z";
    run.run.median_step_ns = (i < 10 ? 1'000'000 : 1'500'000) + i % 3 * 1000;
    run.run.pinned = i == 2;
    trend.runs.push_back(run);
  }
  TrendChange change{{10, 1'001'000, 1'501'000, 0.0005}, {"clip_norm: 1 -> 0"}, {"git_id: aaa -> bbb"}, {}};
  change.kernels = {{"MatMul_1", "forward", 100'000, 580'000}, {"Add_1", "forward", 50'000, 50'010}};
  trend.changes.push_back(change);
  return trend;
}

Report report_of(const std::string& name = "night run") {
  const Compiled step = test::small_step("default");
  Report report;
  report.session = "s.db";
  report.now_utc = "2026-01-02T03:04:05Z";
  report.replay = "gradloom export s.db --run 1 -o recipe.json";
  RunRecord& run = report.run;
  RunSummary& s = run.summary;
  s.id = 1;
  s.name = name;
  s.status = "done";
  s.model = "/models/small/model.onnx";
  s.device = "cpu";
  s.precision = "f32";
  s.steps = 40;
  s.first_loss = 2.5;
  s.last_loss = 0.5;
  s.median_step_ns = 1'230'000;
  s.measured_peak_bytes = 3 << 20;
  s.plan_peak_bytes = 2 << 20;
  s.kernels_per_step = static_cast<std::int64_t>(step.plan.steps.size());
  for (int i = 1; i <= 40; ++i)
    run.steps.push_back({.step = i, .loss = 2.5 - 0.05 * i, .step_ns = 1'000'000});
  run.evaluations.push_back({.step = 20, .loss = 1.25, .batches = 2});
  run.kernels = test::timed_rows(step);
  run.environment = {{"cpu_model", "a processor"}, {"version", "9.8.7"}};
  run.recipe_json = R"({"model": "model.onnx", "steps": 40})";
  run.passes.push_back({.name = "cse", .phase = "pre", .matched = 2, .rejected = 1});
  run.passes.back().log.push_back({"rule", "site", false, "the shapes differ", {}, {}, {}, {}});
  for (const Buffer& b : step.plan.buffers)
    if (b.place == Place::arena)
      run.buffers.push_back({{"v"}, "arena", b.offset, b.bytes, b.first_step, b.last_step});
  report.runs = {s, s};
  report.runs[1].id = 2;
  Comparison c;
  c.a = "passes=none";
  c.b = "passes=default";
  c.verdict = Verdict::faster;
  c.ratio = {1.25, 1.2, 1.3};
  c.a_step_ns = 1000;
  c.b_step_ns = 800;
  c.kernels.push_back(
      {.name = "MatMul_1", .phase = "forward", .a_kernels = 1, .b_kernels = 1, .a_ns = 100, .b_ns = 50});
  report.comparisons.push_back({.id = 1, .comparison = c});
  report.roofline = roofline_of(run.kernels, best_of_kernels(run.kernels, "f32", "a processor"), "f32");
  report.trend = trend_of(s);
  return report;
}

bool has(const std::string& page, const std::string& text) { return page.find(text) != std::string::npos; }

// What is wrong with the nesting of a page's elements; empty: nothing.
std::string nesting_problem(const std::string& page) {
  std::vector<std::string> open;
  for (std::size_t at = 0; (at = page.find('<', at)) != std::string::npos;) {
    const std::size_t end = page.find('>', at);
    if (end == std::string::npos) return "an element without its end";
    const std::string tag = page.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag[0] == '!' || tag.back() == '/' || tag.rfind("meta", 0) == 0) continue;
    const std::string name = tag.substr(tag[0] == '/', tag.find(' ') - (tag[0] == '/'));
    if (tag[0] != '/') {
      open.push_back(name);
    } else {
      if (open.empty() || open.back() != name)
        return "</" + name + "> where " + (open.empty() ? "nothing" : open.back()) + " is open";
      open.pop_back();
    }
    if (name == "style" && tag[0] != '/') at = page.find("</style>", at);
  }
  return open.empty() ? "" : open.back() + " is left open";
}

TEST(Report, SaysWhatTheRunHas) {
  const std::string page = report_html(report_of());
  for (const char* text :
       {"small/model.onnx: night run", "1.23 ms", "median of 40 steps", "from 2.5", "held-out loss",
        "3.00 MiB", "planned 2.00 MiB", "MatMul", "the shapes differ",
        "B is 1.250x as fast as A [1.200, 1.300]", "passes=default", "-50.0 %", "recipe.json", "a processor",
        "Gradloom 9.8.7, written 2026-01-02T03:04:05Z", "Runs of this session"})
    EXPECT_TRUE(has(page, text)) << text;
  EXPECT_EQ(nesting_problem(page), "");
}

TEST(Report, KernelsStandUnderTheirRoofs) {
  Report report = report_of();
  const std::string page = report_html(report);
  for (const char* text :
       {"Under the roofs", "of the roofs of a processor", "Time above the roofs", "class=\"roof\"",
        "class=\"kernel spot forward\"", "class=\"kernel spot backward\""})
    EXPECT_TRUE(has(page, text)) << text;
  EXPECT_TRUE(has(report_markdown(report), "| above its roof |"));
  report.roofline.reset();
  EXPECT_FALSE(has(report_html(report), "Under the roofs"));
  EXPECT_FALSE(has(report_markdown(report), "above its roof"));
}

TEST(Report, ATrendHasItsChangesAndWhatCameWithThem) {
  Report report = report_of();
  const std::string page = report_html(report);
  for (const char* text :
       {"From run to run", "15 runs; the newest level takes 1.50 ms", "Slower since run 11", "1.50x as long",
        "clip_norm: 1 -&gt; 0", "git_id: aaa -&gt; bbb", "+480 us", "Against the pinned run 3",
        "class=\"band\"", "class=\"baseline\"", "class=\"run shown\"", "class=\"slower\""})
    EXPECT_TRUE(has(page, text)) << text;
  EXPECT_FALSE(has(page, "Add_1")) << "it accounts for nothing";
  const std::string markdown = report_markdown(report);
  EXPECT_TRUE(has(markdown, "Slower since run 11")) << markdown;
  EXPECT_TRUE(has(markdown, "clip\\_norm: 1 -\\> 0 and 1 more")) << markdown;
  report.trend->runs.resize(1);
  report.trend->changes.clear();
  EXPECT_FALSE(has(report_html(report), "From run to run")) << "one run is no trend";
}

TEST(Report, LoadsNothingAndRunsNothing) {
  const std::string page = report_html(report_of());
  for (const char* text : {"<script", "src=", "href=", "url(", "http", "@import", "onload", "nan", "inf\""})
    EXPECT_FALSE(has(page, text)) << text;
}

TEST(Report, NamesFromFilesStayText) {
  const std::string bad = "</h1><script>alert('x')</script>\"&\x1b[31m|`";
  Report report = report_of(bad);
  report.session = report.run.summary.status = report.run.summary.model = report.run.summary.device = bad;
  report.run.summary.message = report.run.summary.command = report.model_note = bad;
  report.run.environment[bad] = bad;
  report.run.recipe_json = R"({"model": "</pre><script>"})";
  report.run.passes[0].name = report.run.passes[0].log[0].why = bad;
  for (BufferRow& buffer : report.run.buffers) buffer.values = {bad};
  for (KernelRow& k : report.run.kernels)
    k.info.node = k.info.op = k.info.kernel = k.info.scope = k.info.phase = bad;
  report.comparisons[0].comparison.a = report.comparisons[0].comparison.kernels[0].name = bad;
  for (RooflineRow& row : report.roofline->rows) row.name = row.op = row.phase = bad;
  report.roofline->hardware.name = report.roofline->hardware.source = bad;
  for (TrendRun& run : report.trend->runs) run.run.name = run.run.started_utc = bad;
  TrendChange& change = report.trend->changes[0];
  change.settings = change.machine = {bad};
  change.kernels[0].node = change.kernels[0].phase = bad;
  const std::string page = report_html(report);
  EXPECT_FALSE(has(page, "<script"));
  EXPECT_FALSE(has(page, "\x1b"));
  EXPECT_EQ(nesting_problem(page), "");
  const std::string markdown = report_markdown(report);
  EXPECT_FALSE(has(markdown, "\x1b"));
  for (std::size_t at = 0; (at = markdown.find("<script", at)) != std::string::npos; ++at)
    EXPECT_TRUE(at > 0 && (markdown[at - 1] == '\\' || markdown.rfind('`', at) > markdown.rfind('\n', at)))
        << markdown.substr(at > 40 ? at - 40 : 0, 80);
}

TEST(Report, RanksHaveARowEach) {
  Report report = report_of();
  EXPECT_EQ(report_html(report).find("What each rank does"), std::string::npos);
  report.run.ranks = {{{0, "<b>one", 0, 2}, 5, 10e6, 3e6, 2e6, 2.5e6, 1024},
                      {{1, "two", 0, 2}, 5, 12e6, 1e6, 0, 1e6, 1024}};
  const std::string page = report_html(report);
  EXPECT_NE(page.find("What each rank does"), std::string::npos);
  EXPECT_NE(page.find("&lt;b&gt;one"), std::string::npos);
  EXPECT_NE(page.find("rank 1 computes longest"), std::string::npos);
  report.run.ranks.resize(1000, report.run.ranks[1]);
  EXPECT_NE(report_html(report).find("the first 64 of 1000 ranks"), std::string::npos);
}

TEST(Report, OfARunWithNothingInIt) {
  Report report;
  report.run.summary.first_loss = report.run.summary.last_loss = std::nan("");
  EXPECT_EQ(nesting_problem(report_html(report)), "");
  EXPECT_FALSE(report_markdown(report).empty());
  report = report_of();
  for (KernelRow& k : report.run.kernels) k.step_ns = k.median_ns = k.total_ns = k.samples = 0;
  const std::string page = report_html(report);
  EXPECT_TRUE(has(page, "No step was timed kernel by kernel"));
  EXPECT_EQ(nesting_problem(page), "");
}

TEST(Report, LossesThatAreNotFiniteAreGaps) {
  Report report = report_of();
  report.run.steps[10].loss = std::nan("");
  report.run.steps[11].loss = INFINITY;
  const std::string page = report_html(report);
  EXPECT_FALSE(has(page, "nan"));
  const std::size_t path = page.find("class=\"curve");
  ASSERT_NE(path, std::string::npos);
  const std::string drawn = page.substr(page.rfind("<path", path), path - page.rfind("<path", path));
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), 'M'), 2) << drawn;  // a line before and one after
}

TEST(Report, OfALargeRunIsUnderTwoMebibytes) {
  Report report = report_of();
  const std::vector<KernelRow> few = report.run.kernels;
  while (report.run.kernels.size() < 20000)
    report.run.kernels.insert(report.run.kernels.end(), few.begin(), few.end());
  report.roofline =
      roofline_of(report.run.kernels, best_of_kernels(report.run.kernels, "f32", "a processor"), "f32");
  while (report.trend->runs.size() < 2000) report.trend->runs.push_back(report.trend->runs.back());
  while (report.run.steps.size() < 200000) {
    StepRow row = report.run.steps.back();
    ++row.step;
    row.loss = std::sin(static_cast<double>(row.step));
    report.run.steps.push_back(row);
  }
  const std::string page = report_html(report);
  EXPECT_LT(page.size(), std::size_t{2} << 20);
  EXPECT_EQ(nesting_problem(page), "");
}

TEST(Report, FindingsHaveNumbers) {
  Report report = report_of();
  std::vector<KernelRow>& kernels = report.run.kernels;
  for (KernelRow& k : kernels) {
    k.step_ns = 20000;
    k.info.flops = 1e6;
  }
  kernels[0].step_ns = 900000;
  kernels[0].info.op = "Slow";
  report.run.passes[0].log[0].site = kernels[0].info.node;
  report.run.passes.push_back({.name = "fuse-matmul-epilogue"});  // of GPUs, which this is not
  report.run.passes[1].log.push_back({"rule", kernels[0].info.node, false, "for GPUs", {}, {}, {}, {}});
  kernels[1].step_ns = 200000;
  kernels[1].info.op = "Carry";
  kernels[1].info.flops = 0;
  const std::vector<std::string> found = report::findings(report.run);
  ASSERT_EQ(found.size(), 3u);  // no kernel is small
  EXPECT_EQ(found[0].rfind("Slow takes the most: 900 us of a step", 0), 0u) << found[0];
  EXPECT_EQ(found[1].rfind("1 kernel that only copy", 0), 0u) << found[1];
  EXPECT_NE(found[1].find("most of it Carry"), std::string::npos);
  EXPECT_EQ(found[2],
            "cse left alone 1 place, whose kernels take 900 us of a step, " +
                percent_text(900000 / (1100000 + 20000.0 * static_cast<double>(kernels.size() - 2))) +
                ": the shapes differ");
  for (KernelRow& k : kernels) k.step_ns = 1000;
  const auto small = report::findings(report.run);
  EXPECT_NE(small.back().find("cse"), std::string::npos);
  EXPECT_NE(small[small.size() - 2].find("take less than 5.00 us each"), std::string::npos)
      << small[small.size() - 2];
}

TEST(Report, Verdicts) {
  Comparison c;
  c.ratio = {0.8, 0.78, 0.82};
  c.verdict = Verdict::slower;
  EXPECT_EQ(report::verdict_sentence(c), "B takes 1.250x the time of A [1.220, 1.282]");
  c.verdict = Verdict::same;
  EXPECT_EQ(report::verdict_sentence(c), "A and B are as fast as each other: 0.800x [0.780, 0.820]");
  c.verdict = Verdict::unsure;
  EXPECT_EQ(report::verdict_sentence(c), "undecided: 0.800x [0.780, 0.820]");
}

}  // namespace
}  // namespace gradloom
