#include "viz/model/axis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace gradloom {
namespace {

TEST(Axis, FormatsValuesWithUnits) {
  EXPECT_EQ(format_value(1.5 * 1024 * 1024, Unit::kBytes), "1.50 MiB");
  EXPECT_EQ(format_value(12.5, Unit::kPercent), "12.5 %");
  EXPECT_EQ(format_value(7, Unit::kCount), "7");
  EXPECT_EQ(format_value(std::nan(""), Unit::kNs), "not measured");
  EXPECT_NE(format_value(2.68e9, Unit::kFlop).find("GFLOP"), std::string::npos);
  EXPECT_EQ(format_change(0, Unit::kBytes), "no change");
  EXPECT_EQ(format_change(-25, Unit::kPercent), "\u221225.0 %");
  EXPECT_EQ(format_change(25, Unit::kPercent), "+25.0 %");
}

TEST(Axis, FitAddsRoomAndHandlesDegenerateRanges) {
  const Axis flat = Axis::fit(3, 3, Unit::kPlain);
  EXPECT_LT(flat.min, 3);
  EXPECT_GT(flat.max, 3);
  const Axis zero = Axis::fit(10, 20, Unit::kBytes, false, true);
  EXPECT_EQ(zero.min, 0);
  const double inf = std::numeric_limits<double>::infinity();
  const Axis empty = Axis::fit(inf, -inf, Unit::kPlain);
  EXPECT_LT(empty.min, empty.max);
}

TEST(Axis, TransformsAreInverse) {
  for (const bool log : {false, true}) {
    const Axis axis = Axis::fit(2, 5000, Unit::kPlain, log);
    for (double v : {2.0, 10.0, 333.0, 5000.0}) {
      EXPECT_NEAR(axis.from_fraction(axis.to_fraction(v)), v, v * 1e-9);
      EXPECT_GE(axis.to_fraction(v), 0);
      EXPECT_LE(axis.to_fraction(v), 1);
    }
  }
}

TEST(Axis, TicksAreRoundAndFew) {
  for (double span : {0.003, 1.0, 7.0, 42.0, 1e6}) {
    const Axis axis{0, span, false, Unit::kPlain};
    const auto t = ticks(axis, 6);
    EXPECT_GE(t.size(), 3u);
    EXPECT_LE(t.size(), 7u);
    for (const Tick& tick : t) {
      EXPECT_LE(tick.value, span * (1 + 1e-9));
      EXPECT_FALSE(tick.label.empty());
    }
  }
  const auto bytes = ticks({0, 40.0 * 1024 * 1024, false, Unit::kBytes}, 5);
  EXPECT_EQ(bytes[1].label, "8 MiB");
  EXPECT_EQ(ticks({0, 1.2 * 1024 * 1024, false, Unit::kBytes}, 5)[3].label, "0.75 MiB");
  EXPECT_EQ(ticks({0, 1.2 * 1024 * 1024, false, Unit::kBytes}, 10)[3].label, "0.375 MiB");
  EXPECT_EQ(ticks({0, 1500, false, Unit::kNs}, 4)[1].label, "0.5 us") << "as duration_text";
  EXPECT_EQ(ticks({0, 3, false, Unit::kCount}, 8).size(), 4u);  // no fractions of a count
}

TEST(Axis, MarksTellTheScale) {
  EXPECT_EQ(ticks({3.0, 5.8, false, Unit::kPlain}, 2).size(), 3u) << "4 alone would be one";
  std::vector<std::string> few;
  for (const Tick& tick : ticks({0.3, 60, true, Unit::kPlain}, 9)) few.push_back(tick.label);
  EXPECT_EQ(few, (std::vector<std::string>{"0.5", "1", "2", "5", "10", "20", "50"}));
  EXPECT_EQ(ticks({0.3, 60, true, Unit::kPlain}, 4).size(), 2u) << "1 and 10";
}

TEST(Axis, DecimationKeepsExtremesAndEnds) {
  std::vector<double> y(10000, 0);
  y[1234] = 50;
  y[7777] = -50;
  const auto kept = decimate(y, 0, 10000, 100);
  EXPECT_LE(kept.size(), 202u);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  EXPECT_EQ(kept.front(), 0u);
  EXPECT_EQ(kept.back(), 9999u);
  EXPECT_NE(std::find(kept.begin(), kept.end(), 1234u), kept.end());
  EXPECT_NE(std::find(kept.begin(), kept.end(), 7777u), kept.end());
  EXPECT_EQ(decimate(y, 5, 10, 100).size(), 5u);
  EXPECT_TRUE(decimate(y, 10, 10, 100).empty());
}

}  // namespace
}  // namespace gradloom
