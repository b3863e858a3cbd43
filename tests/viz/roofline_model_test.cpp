#include "viz/model/roofline_model.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

KernelRow row(const char* node, const char* op, const char* phase, double flops, double bytes,
              std::int64_t ns, std::int64_t launches = 1) {
  KernelRow r;
  r.info.node = node;
  r.info.op = op;
  r.info.phase = phase;
  r.info.types = "f32[64, 64]";
  r.info.flops = flops;
  r.info.bytes_read = bytes;
  r.samples = 4 * launches;
  r.median_ns = ns;
  r.total_ns = 4 * launches * ns;
  r.steps = 4;
  r.step_ns = launches * ns;
  return r;
}

Hardware hardware() {
  Hardware h;
  h.memory = {{0, 10}};
  h.products = {{"f32", 100}};
  h.vectors = 50;
  return h;
}

const std::vector<KernelRow>& kernels() {
  static const std::vector<KernelRow> all = {
      row("a", "MatMul", "forward", 10000, 100, 150), row("b", "MatMul", "forward", 10000, 100, 250),
      row("c", "Add", "forward", 10, 1000, 120, 2), row("d", "MatMul", "backward", 20000, 100, 1000)};
  return all;
}

TEST(RooflineModel, TellsHowFarKernelsAreAboveTheirRoofs) {
  const RooflineModel model = roofline_of(kernels(), hardware(), "f32");
  ASSERT_EQ(model.rows.size(), 4u);
  EXPECT_DOUBLE_EQ(model.rows[0].least_ns, 100);
  EXPECT_DOUBLE_EQ(model.rows[0].above_ns(), 50);
  EXPECT_DOUBLE_EQ(model.rows[2].count, 2);
  EXPECT_DOUBLE_EQ(model.rows[2].least_ns, 200);
  EXPECT_DOUBLE_EQ(model.rows[2].time_ns, 240);
  EXPECT_DOUBLE_EQ(model.sum.time_ns, 150 + 250 + 240 + 1000);
  EXPECT_DOUBLE_EQ(model.sum.least_ns, 100 + 100 + 200 + 200);
  EXPECT_DOUBLE_EQ(model.time_by_roof.at("f32 products"), 1400);
  EXPECT_DOUBLE_EQ(model.time_by_roof.at("memory"), 240);
}

TEST(RooflineModel, SumsUpAndPutsTheMostAboveItsRoofFirst) {
  const RooflineModel model = roofline_of(kernels(), hardware(), "f32");
  const auto same = grouped(model, RooflineGroup::same);
  ASSERT_EQ(same.size(), 3u);  // a and b do the same work
  EXPECT_EQ(same[0].phase, "backward");
  EXPECT_DOUBLE_EQ(same[0].above_ns(), 800);
  EXPECT_DOUBLE_EQ(same[1].count, 2);
  EXPECT_DOUBLE_EQ(same[1].time_ns, 400);
  const auto ops = grouped(model, RooflineGroup::op);
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[0].name, "MatMul");
  EXPECT_DOUBLE_EQ(ops[0].time_ns, 1400);
  EXPECT_EQ(ops[1].roof, "memory");
  for (const RooflineGroup by :
       {RooflineGroup::node, RooflineGroup::phase, RooflineGroup::scope, RooflineGroup::roof}) {
    double time = 0, least = 0;
    for (const RooflineRow& r : grouped(model, by)) {
      time += r.time_ns;
      least += r.least_ns;
    }
    EXPECT_DOUBLE_EQ(time, model.sum.time_ns);
    EXPECT_DOUBLE_EQ(least, model.sum.least_ns);
  }
}

TEST(RooflineModel, NoKernelIsFasterThanTheBestOfItsRun) {
  const Hardware best = best_of_kernels(kernels(), "f32", "here");
  EXPECT_DOUBLE_EQ(best.product_flops_per_ns("f32"), 10000. / 150);
  EXPECT_DOUBLE_EQ(best.memory.front().bytes_per_ns, 1000. / 120);
  for (const RooflineRow& r : roofline_of(kernels(), best, "f32").rows)
    EXPECT_LE(r.reached(), 1 + 1e-12) << r.name;
}

TEST(RooflineModel, APlanIsExpectedAsOftenAsItIsLaunched) {
  std::vector<KernelRow> plan = kernels();
  for (KernelRow& r : plan) r.samples = r.median_ns = r.total_ns = r.step_ns = 0;
  const RooflineModel model = roofline_of(plan, hardware(), "f32", {4, 4, 4, 1});
  EXPECT_FALSE(model.timed());
  EXPECT_DOUBLE_EQ(model.sum.least_ns, 4 * (100 + 100 + 100) + 200);
  EXPECT_EQ(grouped(model, RooflineGroup::node).front().name, "a");  // 400 ns
}

TEST(RooflineModel, AnAreaSelectsTheKernelsWhoseDotsLieInIt) {
  const RooflineModel model = roofline_of(kernels(), hardware(), "f32");
  // a: 100 FLOP/B at 66.7 GFLOP/s, b: 100 at 40, c: 0.01 at 0.0833, d: 200 at 20.
  const RooflineSelection one = select_inside(model, {{90, 110, 3e10, 7e10}});
  EXPECT_EQ(one.nodes, (std::unordered_set<std::string>{"a", "b"}));
  EXPECT_DOUBLE_EQ(one.inside.sum.time_ns, 400);
  EXPECT_DOUBLE_EQ(one.inside.sum.flops, 20000);
  EXPECT_DOUBLE_EQ(one.inside.sum.bytes, 200);
  EXPECT_DOUBLE_EQ(one.share, 400. / 1640);
  EXPECT_DOUBLE_EQ(one.inside.time_by_roof.at("f32 products"), 400);
  // What is in two areas counts once.
  const RooflineSelection two = select_inside(model, {{90, 110, 3e10, 7e10}, {50, 500, 1e10, 5e10}});
  EXPECT_EQ(two.inside.rows.size(), 3u);
  EXPECT_DOUBLE_EQ(two.inside.sum.time_ns, 1400);
  const RooflineSelection none = select_inside(model, {{1e6, 1e7, 1, 2}});
  EXPECT_TRUE(none.nodes.empty());
  EXPECT_EQ(none.share, 0);
  EXPECT_EQ(selection_text(none), "0 kernels");
  EXPECT_EQ(selection_text(one), "2 kernels, 400 ns, 24.4 % of the kernels' time, 20.0 kFLOP, 200 B");
}

TEST(RooflineModel, AnAreaIsTheSameAsText) {
  const RooflineArea area = area_between(8.123456, 2.3456789e10, 0.5, 1e9);
  EXPECT_EQ(area_text(area), "0.5..8.123,1e+09..2.346e+10");
  const auto again = parse_area(area_text(area));
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, area);
  for (const char* bad : {"", "1..2", "1..2,", "2..1,1..2", "1..2,3..nan", "-1..2,1..2", "1..inf,1..2",
                          "1...2,1..2", "1..2,1..2,3", "a..b,1..2"})
    EXPECT_EQ(parse_area(bad).error().code, Errc::usage) << bad;
}

TEST(RooflineModel, ArrowsGoToTheNearestDotInTheirDirection) {
  const std::vector<std::pair<double, double>> points = {{0, 0}, {1, 1}, {3, 0.1}, {1, -4}};
  EXPECT_EQ(next_point(points, -1, 1, 0), 0);
  EXPECT_EQ(next_point(points, 0, 1, 0), 1);  // 1 + 2, where the one straight on is 3.2 away
  EXPECT_EQ(next_point(points, 1, 1, 0), 2);
  EXPECT_EQ(next_point(points, 2, 1, 0), 2);  // the last
  EXPECT_EQ(next_point(points, 0, 0, -1), 3);
  EXPECT_EQ(next_point(points, 3, 0, 1), 1);
  EXPECT_EQ(next_point({}, -1, 1, 0), -1);
}

}  // namespace
}  // namespace gradloom
