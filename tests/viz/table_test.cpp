// Which columns of a table find room.
#include "viz/draw/table.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

TEST(Table, TheLeastImportantColumnsGoWhereThereIsNoRoom) {
  const std::vector<TableColumn> columns{{"Name"},
                                         {"Phase", 90, false, false, "", 2},
                                         {"Time", 80, true},
                                         {"Share", 100, true, false, "", 1},
                                         {"Work", 90, true, true, "", 3}};
  const std::vector<bool> usual{true, true, true, true, false}, all(5, true);
  const auto fit = [&](const std::vector<bool>& wanted, float width) {
    return columns_that_fit(columns, wanted, width, 10);
  };
  using Shown = std::vector<bool>;
  EXPECT_EQ(fit(usual, 1000), usual);
  EXPECT_EQ(fit(usual, kMinNameWidth + 90 + 80 + 100 + 4 * 10), usual);
  EXPECT_EQ(fit(usual, kMinNameWidth + 90 + 80 + 100), (Shown{true, false, true, true, false}));
  EXPECT_EQ(fit(usual, kMinNameWidth + 100), (Shown{true, false, true, false, false}));
  EXPECT_EQ(fit(usual, 10), (Shown{true, false, true, false, false})) << "name and time stay";
  EXPECT_EQ(fit(all, kMinNameWidth + 400), (Shown{true, true, true, true, false}))
      << "one that was asked for goes as its rank says";
}

}  // namespace
}  // namespace gradloom
