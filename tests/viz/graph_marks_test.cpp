#include "viz/model/graph_marks.h"

#include <gtest/gtest.h>

namespace gradloom {
namespace {

GraphModel two_boxes() {
  GraphModel model;
  for (const char* name : {"a", "b"}) {
    GraphBox box;
    box.name = name;
    model.by_name.emplace(name, static_cast<int32_t>(model.boxes.size()));
    model.boxes.push_back(box);
  }
  return model;
}

TEST(GraphMarks, AreFoundByNameAndUnknownNamesAreHarmless) {
  GraphMarks marks;
  marks.noted = {"a", "gone"};
  marks.added = {"b"};
  marks.removed = {"a", "b", "gone"};  // b became another node under its name
  EXPECT_EQ(marks_of_boxes(two_boxes(), marks),
            (std::vector<uint8_t>{kMarkNoted | kMarkRemoved, kMarkAdded}));
}

TEST(GraphMarks, NothingMarkedCostsNothingAndAnEmptyRangeDimsAll) {
  EXPECT_TRUE(marks_of_boxes(two_boxes(), {}).empty());
  GraphMarks marks;
  marks.inside.emplace();
  EXPECT_EQ(marks_of_boxes(two_boxes(), marks), (std::vector<uint8_t>{kMarkOutside, kMarkOutside}));
  marks.inside->insert("b");
  EXPECT_EQ(marks_of_boxes(two_boxes(), marks), (std::vector<uint8_t>{kMarkOutside, 0}));
}

}  // namespace
}  // namespace gradloom
