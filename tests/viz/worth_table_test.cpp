#include "viz/model/worth_table.h"

#include <gtest/gtest.h>

#include "sessions/recipe.h"

namespace gradloom {
namespace {

using Kind = WaterfallBar::Kind;

WorthSide side(double speed, double low, double high, std::int64_t saved) {
  return {WorthSide::State::measured, {speed, low, high}, saved};
}

// Without passes 200 ns and 160 bytes, with all of them 100 ns and 100 bytes.
WorthTable table() {
  WorthTable t;
  t.step_ns = 100;
  t.peak_bytes = 100;
  t.all = side(2, 1.8, 2.2, 60);
  t.passes = {{"a", side(1.5, 1.4, 1.6, 30), side(1.25, 1.2, 1.3, 20)},
              {"b", side(1.2, 0.9, 1.3, 0), WorthSide{}},
              {"c", side(0.9, 0.8, 0.95, -10), side(1, 0.9, 1.1, 0)},
              {"d", {.state = WorthSide::State::same}, {.state = WorthSide::State::same}}};
  return t;
}

TEST(Waterfall, GoesFromNoneToAllAndTellsWhatIsLeftOver) {
  const Waterfall time = waterfall(table(), false, false);
  ASSERT_EQ(time.bars.size(), 6u);
  EXPECT_EQ(time.bars[0].kind, Kind::none);
  EXPECT_DOUBLE_EQ(time.bars[0].to, 200);
  EXPECT_DOUBLE_EQ(time.bars[0].low, 180);
  EXPECT_DOUBLE_EQ(time.bars[0].high, 220);
  EXPECT_EQ(time.bars[1].pass, "a") << "what saves most comes first";
  EXPECT_DOUBLE_EQ(time.bars[1].saved(), 50);
  EXPECT_NEAR(time.bars[1].low, 40, 1e-9);
  EXPECT_NEAR(time.bars[1].high, 60, 1e-9);
  EXPECT_EQ(time.bars[3].pass, "c");
  EXPECT_NEAR(time.bars[3].saved(), -10, 1e-9) << "it costs";
  EXPECT_EQ(time.bars[4].kind, Kind::together);
  EXPECT_NEAR(time.bars[4].saved(), 200 - 100 - (50 + 20 - 10), 1e-9);
  EXPECT_EQ(time.bars[5].kind, Kind::all);
  EXPECT_DOUBLE_EQ(time.bars[5].to, 100);
  for (std::size_t i = 1; i + 1 < time.bars.size(); ++i)
    EXPECT_DOUBLE_EQ(time.bars[i].from, time.bars[i - 1].to) << "each hangs where the one before ends";
  EXPECT_DOUBLE_EQ(time.bars[4].to, time.bars[5].to);
  EXPECT_DOUBLE_EQ(time.most, 220);
}

TEST(Waterfall, AloneIsWhatEachSavesOfTheStepWithoutPasses) {
  const Waterfall alone = waterfall(table(), true, false);
  ASSERT_EQ(alone.bars.size(), 5u) << "b was not measured alone";
  EXPECT_DOUBLE_EQ(alone.bars[1].saved(), 200 * (1 - 1 / 1.25));
  EXPECT_DOUBLE_EQ(alone.bars[1].low, 200 * (1 - 1 / 1.2));
}

TEST(Waterfall, MemoryIsExact) {
  const Waterfall memory = waterfall(table(), false, true);
  EXPECT_DOUBLE_EQ(memory.bars[0].to, 160);
  EXPECT_DOUBLE_EQ(memory.bars[1].saved(), 30);
  for (const WaterfallBar& bar : memory.bars) EXPECT_EQ(bar.low, bar.high) << bar.pass;
  EXPECT_DOUBLE_EQ(memory.bars[4].saved(), 60 - 20);
  EXPECT_TRUE(waterfall(WorthTable{}, false, false).bars.empty());
}

// A session's trials tell by their recipes which pass each leaves out.
TEST(RecordedWorth, IsToldByTheRecipesOfTheTrials) {
  const auto recipe_of = [](const std::string& passes) {
    Recipe recipe;
    recipe.model = "/m.onnx";
    set_pipeline(recipe, *parse_pipeline(passes));
    return recipe_json(recipe);
  };
  const auto trial = [&](const char* job, const char* passes, double ratio, std::int64_t peak) {
    return Trial{
        job, std::string("passes=") + passes, "p", 1, {ratio, ratio, ratio}, 1, 1, peak, recipe_of(passes)};
  };
  const auto about = [&](const char* job, const char* passes, double step_ns, std::int64_t peak) {
    return TriedConfiguration{job, "", "", "p", peak, step_ns, 1, -1, recipe_of(passes)};
  };
  const char* const all = "fuse-elementwise,fuse-optimizer";
  std::vector<Trial> trials = {trial("j", "none", 0.5, 160), trial("j", "fuse-optimizer", 0.8, 130),
                               trial("j", "fuse-elementwise", 0.9, 110),
                               trial("n", "fuse-elementwise", 1.25, 150)};
  std::vector<TriedConfiguration> known = {about("j", all, 1000, 100), about("n", "none", 2000, 160)};
  const auto searches = recorded_searches(trials, known);
  ASSERT_EQ(searches.size(), 2u);
  ASSERT_EQ(searches[1].job, "j");
  const WorthTable table = recorded_worth(searches[1], searches);
  EXPECT_EQ(table.step_ns, 1000);
  EXPECT_EQ(table.peak_bytes, 100);
  EXPECT_DOUBLE_EQ(table.all.speed.value, 2);
  EXPECT_EQ(table.all.peak_saved_bytes, 60);
  ASSERT_EQ(table.passes.size(), 2u);
  EXPECT_EQ(table.passes[0].pass, "fuse-elementwise");
  EXPECT_DOUBLE_EQ(table.passes[0].among.speed.value, 1.25)
      << "without it: the trial that has the other alone";
  EXPECT_EQ(table.passes[0].among.peak_saved_bytes, 30);
  EXPECT_DOUBLE_EQ(table.passes[0].alone.speed.value, 1.25) << "of the search without passes";
  EXPECT_EQ(table.passes[0].alone.peak_saved_bytes, 10);
  EXPECT_FALSE(table.passes[1].alone.measured());
  trials.pop_back();
  known.pop_back();
  const auto one = recorded_searches(trials, known);
  EXPECT_DOUBLE_EQ(recorded_worth(one[0], one).passes[0].alone.speed.value, 1.8) << "of two measurements";
}

}  // namespace
}  // namespace gradloom
